"""Entry syntax: text to values, and one clear sentence for every mistake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pytest

from fsibench import options
from fsibench.errors import UsageError


@dataclass(frozen=True)
class Example:
    alpha: float = 0.5
    size: int = 10
    kind: Literal["a", "b"] = "a"
    flag: bool = False
    hidden: tuple[int, ...] = (50, 50)
    limit: int | None = None

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paper": {"alpha": 1.0, "size": 100}}

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError(f"size must not be negative; got {self.size}.")


def build(text: str) -> Example:
    name, raw = options.parse_entry(text)
    example: Example = options.build(Example, name, raw)
    return example


def test_commas_inside_brackets_do_not_split_a_list() -> None:
    assert options.split_list("a, b[x=1,y=2] ,c[]") == ["a", "b[x=1,y=2]", "c[]"]


def test_texts_become_values_of_the_annotated_type() -> None:
    made = build("e[alpha=1e-3,size=7,kind=b,flag=true,hidden=20x30,limit=5]")
    assert made == Example(1e-3, 7, "b", True, (20, 30), 5)
    assert build("e[limit=none]").limit is None
    assert build("e") == Example()


def test_a_preset_sets_several_options_and_yields_to_explicit_ones() -> None:
    assert build("e[preset=paper]") == Example(alpha=1.0, size=100)
    assert build("e[size=3,preset=paper]") == Example(alpha=1.0, size=3)


def test_the_label_names_what_differs_from_the_defaults_and_reads_back() -> None:
    made = build("e[size=10,flag=yes,alpha=0.25,hidden=5]")
    label = options.label("e", options.changed(made))
    assert label == "e[alpha=0.25,flag=true,hidden=5]"
    assert build(label) == made
    assert options.label("e", options.changed(Example())) == "e"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("e[aplha=1]", "did you mean 'alpha'"),
        ("e[alpha=much]", "must be a finite number; got 'much'"),
        ("e[alpha=nan]", "must be a finite number"),
        ("e[alpha=inf]", "must be a finite number"),
        ("e[size=1.5]", "must be a whole number; got '1.5'"),
        ("e[kind=c]", "must be one of a, b; got 'c'"),
        ("e[flag=perhaps]", "must be true or false"),
        ("e[hidden=20xx]", "must be a whole number"),
        ("e[limit=soon]", "must be a whole number"),
        ("e[alpha]", "write option=value"),
        ("e[alpha=1,alpha=2]", "given twice"),
        ("e[alpha=1", "write name or name[option=value"),
        ("e[preset=papr]", "did you mean 'paper'"),
        ("e[size=-1]", "size must not be negative; got -1"),
    ],
)
def test_every_mistake_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        build(text)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
