"""The behavioural contract as small named checks: `fsibench check NAME`, or `fsibench.testing` in a plugin's own tests.

A check takes a method and raises `CheckFailed` with one sentence that names the cause. It ends within its time limit.
A method may waive a check with a reason (`Method.waivers`); the reason is shown wherever the checks are.
"""

from __future__ import annotations

from fsibench.checks import basics, draws, honesty, quality, randomness
from fsibench.checks.catalogue import CHECKS, LIMIT, Check, CheckFailed, Outcome, run
from fsibench.checks.problems import fit, linear_data, predict, random_stream

__all__ = [
    "CHECKS", "LIMIT", "Check", "CheckFailed", "Outcome", "basics", "draws", "fit", "honesty", "linear_data", "predict", "quality",
    "random_stream", "randomness", "run",
]  # fmt: skip
