"""Can RMSE, LL and CRPS of one row be true together? Two measures and how far an honest row may go.

A homoscedastic Gaussian that knows its error r has LL = −log r − ½ log 2πe and CRPS = r/√π ≈ 0.56 r. Real predictives
stray from that, but not by orders of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

HALF_LOG_2_PI_E = 0.5 * math.log(2 * math.pi * math.e)
# LL above what a Gaussian with this RMSE can reach: more than varying noise can explain.
LARGEST_LL_EXCESS = 1.5
# CRPS as a share of RMSE; above 1, the distribution is worse than its own mean.
CRPS_RANGE = (0.2, 1.25)


def ll_excess(rmse: float, ll: float) -> float:
    """Nats by which LL exceeds that of a Gaussian whose scale is this RMSE."""
    return ll + math.log(max(rmse, 1e-300)) + HALF_LOG_2_PI_E


def too_good(rmse: float, ll: float, crps: float) -> Iterator[str]:
    """One sentence for each score that is better than the RMSE beside it allows."""
    if (excess := ll_excess(rmse, ll)) > LARGEST_LL_EXCESS:
        yield f"LL {ll:.4g} is {excess:.2f} nats above what a Gaussian with RMSE {rmse:.4g} can reach"
    if crps < CRPS_RANGE[0] * rmse:
        yield f"CRPS {crps:.4g} is {crps / rmse:.3g} of RMSE {rmse:.4g}, expected about 0.56"
