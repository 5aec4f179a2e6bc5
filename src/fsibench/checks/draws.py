"""Are draws functions, and those behind predict?"""

from __future__ import annotations

import torch
from torch import Tensor

from fsibench.checks.catalogue import check, require
from fsibench.checks.problems import FEW_STEPS, conjugate_problem, draw, fit, linear_data, patiently, predict, trained
from fsibench.contract import Method, Posterior
from fsibench.predictive import Predictive

NUM_DRAWS = 2000
# Distance of neighbours in standard deviations of an input, and the least correlation of one draw at both.
BESIDE, LEAST_CORRELATION = 1e-4, 0.5
# Inputs so many times as far from the data as test rows: there functions spread more than noise.
FAR = 20.0
# Variance of draws over that of predict, at most: 3 for draws of twice the spread. Predict's own components are draws, whose
# variance errs if they are few; implicit posteriors with heavy tails reach 1.25 with 500.
MANY, MOST, MOST_OF_FEW = 50, 1.8, 3.0


@check("a draw is one function: draw its parameters once, then evaluate it at every row; no noise per row")
@patiently
def draws_are_coherent_functions(method: Method, seconds: float) -> None:
    """A draw is one function: one value at one input, and nearly the same value beside it."""
    data = linear_data()
    draws = draw(fit(method, data, FEW_STEPS), torch.cat([data.x[:5], data.x[:5]]), 6)
    gap = float((draws[:, :5] - draws[:, 5:]).abs().max())
    scale = float(draws.abs().max()) + 1e-3
    require(gap <= 1e-2 * scale, f"one draw has two values at the same input, {gap:.2g} apart: it includes noise")
    correlation = _correlation_of_neighbours(trained(method, seconds))
    require(
        correlation > LEAST_CORRELATION,
        f"values of one draw at inputs {BESIDE:g} apart have a correlation of {correlation:.2f}: rows are drawn one by one",
    )


def _correlation_of_neighbours(posterior: Posterior) -> float:
    """Of f(x) and f(x + ε) over draws f, pooled over rows; 1 where draws do not differ."""
    x = conjugate_problem().test.x[:20]
    here, beside = draw(posterior, torch.cat([x, x + BESIDE]), NUM_DRAWS).double().cpu().split(len(x), dim=1)
    spread = float((here.var(0) + beside.var(0)).mean())
    rounding = 1e-10 * float(here.square().mean())
    return 1.0 - float((here - beside).var(0).mean()) / spread if spread > rounding else 1.0


@check(
    "draw must sample the functions behind predict, without observation noise; waive it where the components of predict are "
    "noise, or where the noise itself grows with x"
)
@patiently
def draws_agree_with_predict(method: Method, seconds: float) -> None:
    """Draws have the mean of the prediction, spread like its functions, and hold no noise."""
    x = conjugate_problem().test.x[:50]
    posterior = trained(method, seconds)
    predictive = predict(posterior, x).double()
    draws = draw(posterior, x, NUM_DRAWS).double().cpu()
    sd = predictive.variance.sqrt()
    gap = float(((draws.mean(0) - predictive.mean) / sd).square().mean().sqrt())
    require(gap < 0.35, f"the mean of the draws lies {gap:.2f} predictive standard deviations from the predicted mean")
    function, total = float(draws.var(0).mean()), float(predictive.variance.mean())
    components = float(predictive.loc.var(0, correction=0).mean())
    require(function >= 0.3 * components, f"draws spread by {function:.2g}, the components of predict by {components:.2g}")
    # A converged fit knows its functions well after 200 rows: what spreads is the noise, a quarter of the variance of y.
    # Components that spread themselves, as they do early in a fit, may spread half as much again in other draws.
    noise = float(predictive.scale.square().mean())
    require(
        function < 1.5 * components + 0.9 * noise,
        f"the variance of the draws is {function / total:.0%} of that of the prediction: they include observation noise",
    )
    _require_agreement_far_away(posterior, FAR * x, total)


def _require_agreement_far_away(posterior: Posterior, x: Tensor, near: float) -> None:
    """Far from the data functions are uncertain, and the variance of predict is nearly theirs; `near` is that near the data."""
    predictive = predict(posterior, x).double()
    function, total = draw(posterior, x, NUM_DRAWS).double().cpu().var(0), predictive.variance
    if not bool(torch.isfinite(function + total).all()):
        return  # nothing is promised for inputs like these
    ratio = float((function / total).clamp_min(1e-12).log().mean().exp())
    require(
        ratio < _most(predictive),
        f"far from the data the variance of the draws is {ratio:.1f} times that of the prediction, noise included",
    )
    risen = float(total.mean()) - near
    if predictive.num_components == 1 and risen > near:
        share = float(function.mean()) / risen
        require(
            share > 0.3,
            f"far from the data the draws spread by {share:.0%} of what the variance of the prediction has risen by: they "
            "miss its uncertainty",
        )


def _most(predictive: Predictive) -> float:
    few = 1 < predictive.num_components < MANY
    return MOST_OF_FEW if few else MOST
