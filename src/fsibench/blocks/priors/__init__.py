"""Priors over functions, by name.

`make_prior(name, x, generator, ...)` stands behind every `prior=` option. A new prior is a subclass of `Prior` in a file of
its own: one line in `BUILT_IN` for ours, an entry point in the group `fsibench.priors` for those of other packages.
What a method needs beyond draws (weights for HMC, densities for the exact score of fBNN) it asks for by class.
"""

from __future__ import annotations

import importlib.metadata
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fsibench.blocks.priors.base import Prior, sample_moments
from fsibench.blocks.priors.bnn import BNNPrior, TiedBNNPrior
from fsibench.blocks.priors.gp import GaussianProcessPrior
from fsibench.blocks.priors.reference import ReferencePrior
from fsibench.blocks.priors.reference_gp import ReferenceProcess, reference_process
from fsibench.blocks.priors.samplers import ConcatenatedSamplerPrior, NeuralSamplerPrior
from fsibench.errors import UsageError, told, unknown

__all__ = [
    "BNNPrior",
    "ConcatenatedSamplerPrior",
    "GaussianProcessPrior",
    "NeuralSamplerPrior",
    "Prior",
    "ReferencePrior",
    "ReferenceProcess",
    "TiedBNNPrior",
    "make_prior",
    "prior_class",
    "reference_process",
    "sample_moments",
]

BUILT_IN: Mapping[str, type[Prior]] = {
    "bnn": BNNPrior,  # one mean and one scale per weight
    "bnn_tied": TiedBNNPrior,  # one mean and one scale per layer
    "ns": NeuralSamplerPrior,  # two networks that meet in an inner product (SIP)
    "ns_concat": ConcatenatedSamplerPrior,  # one network of inputs and noise (VIP)
    "gp": GaussianProcessPrior,
    "reference": ReferencePrior,  # fixed: that of the reference posteriors
    "reference_gp": ReferenceProcess,  # fixed: that of those with a Gaussian process
}


def prior_class(name: str) -> type[Prior]:
    """The prior of that name, ours or another package's; an unknown name is a `UsageError` that lists them."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    points = {point.name: point for point in importlib.metadata.entry_points(group="fsibench.priors")}
    if name not in points:
        raise unknown("prior", name, [*BUILT_IN, *points])
    try:
        loaded = points[name].load()
    except Exception as error:  # noqa: BLE001 (a plugin may fail in any way)
        raise UsageError(f"the entry point {name!r} of fsibench.priors cannot be loaded: {told(error)}.") from None
    if not (isinstance(loaded, type) and issubclass(loaded, Prior)):
        raise UsageError(f"the entry point {name!r} of fsibench.priors is {loaded!r}, expected a subclass of Prior.")
    return loaded


def make_prior(name: str, x: Tensor, generator: torch.Generator, **options: Any) -> Prior:
    """The prior `name` for inputs like x [N, D], with those `options` that its constructor names."""
    cls = prior_class(name)
    known = inspect.signature(cls).parameters
    made: Any = cls
    prior: Prior = made(x.shape[1], generator, dtype=x.dtype, **{k: v for k, v in options.items() if k in known})
    return prior
