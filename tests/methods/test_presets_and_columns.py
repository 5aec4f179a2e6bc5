"""SIP, AADM, AVB and BBB: what each entry answers for, when it is a variant, and presets with schedules of their own."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from fsibench import registry
from fsibench.contract import Budget, Data
from fsibench.data import Prepared, prepare
from fsibench.metrics import Prediction, score


@pytest.mark.parametrize(
    ("entry", "column"),
    [
        ("sip", "SIP_BNN"), ("sip[prior=ns]", "SIP_NS"), ("sip[prior=gp]", ""), ("aadm", "AADM"), ("avb", "AVB"),
        ("bbb", "BBB"), ("bbb[prior=scale_mixture]", ""), ("sip[preset=paper]", "SIP_BNN"),
        ("sip[preset=released_ns]", "SIP_NS"), ("sip[hyperprior=2.5]", "SIP_BNN"), ("sip[alpha=1]", ""),
        ("aadm[alpha=0]", ""), ("aadm[alpha=1]", ""), ("aadm[preset=paper]", "AADM"), ("avb[preset=paper]", "AVB"),
        ("vip", "VIP"), ("vip[preset=paper]", "VIP"), ("vip[prior=gp]", ""), ("vip[alpha=0]", ""),
        ("dvip", "DVIP-2"), ("dvip[layers=3]", "DVIP-3"), ("dvip[layers=1]", ""), ("dvip[prior=gp]", ""),
    ],
)  # fmt: skip
def test_entries_name_the_published_column_they_answer_for(entry: str, column: str) -> None:
    assert registry.entry(entry).method.published_column() == column


@pytest.mark.parametrize("name", ["sip", "sip[prior=ns]", "aadm", "avb", "bbb"])
def test_an_entry_and_its_presets_optimise_the_published_objective(name: str) -> None:
    method = registry.entry(name).method
    assert method.departure() == ""
    for preset in method.presets:
        assert registry.entry(f"{method.name}[preset={preset}]").method.departure() == ""


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("sip[hyperprior=2.5]", "hyper-prior"), ("sip[kl=forward]", "alone"), ("bbb[warm_up=1]", "cold posterior"),
        ("aadm[warm_up=0.3]", "cold posterior"), ("sip[warm_up=0.5]", "only after 50%"),
        ("fbnn[score=whitened]", "decorrelated"), ("vip[regulariser=none]", "no regulariser"), ("vip[preset=released]", "released code"),
        ("vip[regulariser=subtracted_evidence]", "no maximum"),
    ],
)  # fmt: skip
def test_what_changes_the_objective_is_a_variant(entry: str, words: str) -> None:
    assert words in registry.entry(entry).method.departure()


def prepared(dataset: str) -> tuple[Prepared, Data]:
    table = prepare(registry.dataset(dataset), "paper", 0)
    return table, Data(torch.from_numpy(table.train_x), torch.from_numpy(table.train_y))


def fit(entry: str, train: Data, **changes: Any) -> Iterator[Any]:
    method = dataclasses.replace(registry.entry(entry).method, **changes)
    return iter(method.fit(train, Budget(steps=10**9), torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("entry", ["sip[preset=paper]", "aadm[preset=paper]", "bbb[preset=released]"])
def test_a_schedule_of_its_own_ends_the_fit_after_its_epochs(entry: str) -> None:
    rows = Data(torch.randn(25, 2, generator=torch.Generator().manual_seed(1)), torch.zeros(25))
    assert len(list(fit(entry, rows, epochs=2))) == 2 * 3  # batches of 10, 10 and 5


# Preset -> epochs of a schedule that is run whole, at ten times the rate: warm-up, full KL weight, and most of the way.
SHORTENED = {
    "bbb[preset=paper]": 20, "bbb[preset=released]": 20, "aadm[preset=paper]": 6, "aadm[preset=released]": 6,
    "avb[preset=paper]": 6, "avb[preset=released]": 6, "sip[preset=paper]": 6, "sip[preset=released]": 4,
    "sip[preset=released_ns]": 10,
}  # fmt: skip
RATES = ("learning_rate", "sampler_learning_rate")


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["boston", "yacht"])
@pytest.mark.parametrize("entry", SHORTENED)
def test_the_likelihood_of_a_preset_stays_sane_over_its_schedule(entry: str, dataset: str) -> None:
    table, train = prepared(dataset)
    names = [field.name for field in dataclasses.fields(registry.entry(entry).method)]
    rates = {name: 10 * getattr(registry.entry(entry).method, name) for name in names if name in RATES}
    num_steps = SHORTENED[entry] * math.ceil(len(train) / 10)
    levels = []
    for step, posterior in enumerate(fit(entry, train, epochs=SHORTENED[entry], **rates), 1):
        if step in (1, num_steps // 2, num_steps):
            predictive = posterior.predict(torch.from_numpy(table.test_x), torch.Generator().manual_seed(step))
            predictive = predictive.double().rescale(table.standardiser.y_scale, table.standardiser.y_mean)
            levels.append(score(Prediction(predictive.double(), torch.from_numpy(table.test_y)), last=False)["ll"])
    first, middle, last = levels
    assert min(middle, last) > first - 0.1
    assert last > middle - 0.1
