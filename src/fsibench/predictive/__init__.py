"""Predictive distributions and their scores: mixtures, Student-t components, sets of values."""

from __future__ import annotations

from fsibench.predictive.mixture import Predictive, concatenate, crps_ensemble
from fsibench.predictive.values import SamplePredictive

__all__ = ["Predictive", "SamplePredictive", "concatenate", "crps_ensemble"]
