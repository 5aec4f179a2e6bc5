"""What the fork server imports once, so that no cell has to: torch, the runner, every method and data set."""

from __future__ import annotations

import contextlib
import importlib

import scipy.optimize  # noqa: F401 (imported here so that it is not on a method's clock)
import torch

from fsibench import registry
from fsibench.blocks.allocator import keep_freed_memory
from fsibench.harness import identity
from fsibench.harness.plan import Cell, load_protocol, make_plan
from fsibench.harness.runner import Emit, run_cell

torch.set_num_threads(1)
registry.datasets()
for method in registry.methods().items.values():
    identity.code_version(method.__module__)  # parsed here once; every cell checks it
    for module in method.requires:
        with contextlib.suppress(ImportError):  # plans leave the method out and say so
            importlib.import_module(module)


def _first_optimiser_step() -> None:
    """Take an optimiser step before any cell does: the first one imports a large part of torch, which takes seconds.

    No backward pass: a process that has started autograd's engine must not fork.
    """
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    torch.optim.Adam([parameter], fused=True).step()


def _first_cell() -> None:
    """Run a cell without training: it loads metrics and plugins, and parses the core for the identity check."""
    small = {"methods": ["constant"], "datasets": ["bimodal[num_train=20,num_test=20]"], "splits": 1, "steps": 1}
    for cell in make_plan(load_protocol("smoke", small)):
        run_cell(cell, lambda _report: None)


def _syntax_of_methods() -> None:
    """Parse the code now: every cell compares it with the planned one, and unchanged files are parsed only once."""
    for method in registry.methods().items.values():
        identity.code_version(method.__module__)


_first_optimiser_step()
_first_cell()
_syntax_of_methods()


def run_in_fresh_process(cell: Cell, emit: Emit) -> None:
    """Set this process up for one fit, then run it."""
    torch.set_num_threads(1)
    keep_freed_memory()
    run_cell(cell, emit)
