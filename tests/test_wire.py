"""Messages between processes: whole frames from any pieces, and nothing stored that the store could not take."""

from __future__ import annotations

import itertools
import json
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsibench.errors import UsageError
from fsibench.executors.wire import MOST_BYTES, Frames, pack
from fsibench.harness.events import Artifact, Evaluation, Finished, Loaded, MalformedMessage, decode, encode

LOOK = Evaluation(3, 0.5, 0.6, 0.4, {"rmse": 1.0, "ll": -1.0}, (1, 2), {"loss": 0.1})


@given(messages=st.lists(st.binary(max_size=40), max_size=5), cuts=st.lists(st.integers(0, 250), max_size=6))
def test_frames_come_out_whole_however_the_bytes_are_cut(messages: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(pack(message) for message in messages)
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    frames = Frames()
    found = [frame for a, b in itertools.pairwise(places) for frame in frames.feed(stream[a:b])]
    assert found == messages
    assert not frames.unfinished


def test_a_frame_that_claims_too_much_is_refused_before_it_is_collected() -> None:
    with pytest.raises(MalformedMessage, match="claims 4294967295 bytes"):
        Frames().feed(b"\xff\xff\xff\xff")
    with pytest.raises(UsageError, match="too large"):
        pack(bytes(MOST_BYTES + 1))


@given(st.binary(max_size=200))
def test_random_bytes_are_malformed_and_nothing_worse(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(data)


@pytest.mark.parametrize("report", [Loaded(3, 2, 1, 0.5), LOOK, Artifact("functions", {"x": [1]}), Finished("ok")])
def test_reports_survive_the_way_through_json(report: Any) -> None:
    assert decode(encode("cell", report)) == ("cell", report)


FORGED: list[dict[str, Any]] = [
    {"report": "finished", "status": "winner"},
    {"report": "finished", "status": "running"},
    {"report": "finished", "status": "ok", "message": {"no": "text"}},
    {"report": "finished", "status": "ok", "clocks": {"train_seconds": [1]}},
    {"report": "finished", "status": "ok", "clocks": [1]},
    {"report": "loaded", "num_train": 10**30, "num_test": 1, "num_inputs": 1, "target_scale": 1.0},
    {"report": "loaded", "num_train": True, "num_test": 1, "num_inputs": 1, "target_scale": 1.0},
    {"report": "artifact", "kind": 1, "content": 1},
    {"report": "nothing"},
]
LOOKS: list[dict[str, Any]] = [
    {"scores": {"rmse = 0; --": 1.0}},
    {"scores": {"rmse": "0"}},
    {"step": 10**30},
    {"step": -1},
    {"pit": [0.5]},
    {"trace": {"loss": 10**400}},
    {"train_seconds": None},
]


@pytest.mark.parametrize("content", FORGED, ids=json.dumps)
def test_a_forged_report_is_malformed(content: dict[str, Any]) -> None:
    with pytest.raises(MalformedMessage):
        decode(json.dumps({"cell": "a", **content}))


@pytest.mark.parametrize("change", LOOKS, ids=lambda change: next(iter(change)))
def test_a_forged_look_is_malformed(change: dict[str, Any]) -> None:
    with pytest.raises(MalformedMessage):
        decode(json.dumps({**json.loads(encode("a", LOOK)), **change}))


def test_a_lone_surrogate_arrives_as_text_that_can_be_stored() -> None:
    _, report = decode(encode("a", Finished("error", "x\udcffy")))
    assert report == Finished("error", r"x\udcffy")
    assert os.fsencode(report.message) == rb"x\udcffy"
    assert decode(encode("a", Finished("error", "π 🙂")))[1] == Finished("error", "π 🙂")
