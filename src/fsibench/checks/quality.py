"""Does it learn, and is what it says about its predictions true? On problems with known answers."""

from __future__ import annotations

import torch
from torch import Tensor

from fsibench.checks.catalogue import check, require
from fsibench.checks.problems import (
    conjugate_problem,
    draw,
    fit,
    patiently,
    predict,
    random_stream,
    scores,
    train,
    trained,
)
from fsibench.contract import Data, Method
from fsibench.predictive import Predictive

NUM_DRAWS = 2000
# Nats below the exact posterior that a short fit may stay.
NEAR = 0.35


@check("check the gradient, the learning rate and that fit uses x; compare with `linear` on the same data")
@patiently
def beats_the_constant(method: Method, seconds: float) -> None:
    """On data with a strong linear signal the log-likelihood exceeds that of a Gaussian around the mean."""
    problem = conjugate_problem()
    constant = Predictive(torch.zeros(1, len(problem.test)), torch.ones(1, len(problem.test)))
    score, reached, floor = scores(predict(trained(method, seconds), problem.test.x), constant, problem.test.y)
    require(reached > floor + 0.05, f"{score} {reached:.2f}, but predicting the training mean gives {floor:.2f}")


@check("look at the mean and at the scale apart: is one of them off, or has the fit not converged in eight seconds?")
@patiently
def comes_near_the_exact_posterior(method: Method, seconds: float) -> None:
    """After a few seconds on a conjugate problem the log-likelihood is near that of the exact posterior."""
    problem = conjugate_problem()
    score, reached, exact = scores(predict(trained(method, seconds), problem.test.x), problem.exact, problem.test.y)
    require(reached > exact - NEAR, f"{score} {reached:.2f}; the exact posterior of this problem has {exact:.2f}")


@check("predictions must be in the units of train.y, neither scaled nor shifted")
@patiently
def means_are_not_inflated(method: Method, seconds: float) -> None:
    """Answers grow with the predicted mean one to one; an inflated mean makes them grow less."""
    problem = conjugate_problem()
    mean = predict(trained(method, seconds), problem.test.x).mean.double().cpu()
    centred, y = mean - mean.mean(), problem.test.y.double()
    slope = float((centred * (y - y.mean())).sum() / centred.square().sum().clamp_min(1e-12))
    require(slope > 0.87 or float(centred.std()) < 1e-3, f"the answers grow by {slope:.2f} where the predicted mean grows by 1: the mean is inflated")
    shift = float((y - mean).mean())
    require(abs(shift) < 0.2, f"the answers lie {shift:+.2f} standard deviations of y beside the predicted mean")


@check("a too small spread misses function uncertainty or noise; a too large one counts noise twice")
@patiently
def spread_is_calibrated(method: Method, seconds: float) -> None:
    """The central 90 % interval holds about 90 % of the answers, the central 50 % about half."""
    problem = conjugate_problem()
    _require_coverage(predict(trained(method, seconds), problem.test.x), problem.test.y, "a linear problem")


def _require_coverage(predictive: Predictive, y: Tensor, where: str) -> None:
    pit = predictive.double().cdf(y.double())
    for level, low, high in ((0.9, 0.75, 0.985), (0.5, 0.33, 0.7)):
        inside = float(((pit - 0.5).abs() <= level / 2).double().mean())
        require(
            low <= inside <= high,
            f"the central {level:.0%} interval holds {inside:.0%} of the answers of {where}: the predictive spread is "
            f"too {'small' if inside < low else 'large'}",
        )


@check("the prior's draws and the likelihood must be those that fit assumes; is the noise learned?")
@patiently
def calibrated_on_data_of_its_own_model(method: Method, seconds: float) -> None:
    """Fitted to a function drawn from its own prior (where it offers `draw_prior`), its intervals hold the answers."""
    problem = conjugate_problem()
    draw_prior = getattr(fit(method, problem.train, 1), "draw_prior", None)
    if not callable(draw_prior):
        return
    x = torch.cat([problem.train.x, problem.test.x])
    with torch.no_grad():
        f = draw_prior(x.clone(), 1, random_stream(5))[0].cpu().float()
    y = f / f.std().clamp_min(1e-3) + 0.5 * torch.randn(len(f), generator=random_stream(6))
    y = (y - y[:200].mean()) / y[:200].std(correction=0)
    posterior = train(method, Data(problem.train.x, y[:200]), seconds)
    _require_coverage(predict(posterior, problem.test.x), y[200:], "a function drawn from its own prior")


@check("draw must sample the functions behind predict, without observation noise; waive it where components of predict are noise")
@patiently
def draws_agree_with_predict(method: Method, seconds: float) -> None:
    """Draws have the mean of the prediction, spread at least like its components, and hold no noise."""
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


@check("predict each row by itself: no statistic over the rows of x (batch normalisation, ranks, centring)")
@patiently
def rows_are_predicted_one_by_one(method: Method, seconds: float) -> None:
    """A row predicted alone has the prediction that it has among others."""
    x = conjugate_problem().test.x[:8]
    posterior = trained(method, seconds)
    together = predict(posterior, x).double()
    alone = [predict(posterior, row[None]).double() for row in x]
    mean, variance = (torch.cat([getattr(p, name) for p in alone]) for name in ("mean", "variance"))
    # Rows may be given their own random numbers: allow for two Monte Carlo errors of the mean.
    error = 3.0 * (2.0 * together.loc.var(0, correction=0) / together.num_components).sqrt()
    gap = float(((mean - together.mean).abs() / (error + 0.15 * together.variance.sqrt())).max())
    require(gap < 1.0, "a row predicted alone has another mean than the same row among others")
    ratio = float((variance / together.variance).log().abs().mean())
    require(ratio < 0.4, "a row predicted alone has another variance than the same row among others")


@check("shuffle the rows you use, and let no sign or order of rows and columns matter")
@patiently
def order_and_sign_do_not_matter(method: Method, seconds: float) -> None:
    """Sorted rows, reversed columns and flipped signs leave the scores as they are, within noise."""
    problem = conjugate_problem()
    order = problem.train.y.argsort()
    turned = Data(-problem.train.x[order].flip(1), -problem.train.y[order])
    back = predict(train(method, turned, seconds), -problem.test.x.flip(1)).rescale(-1.0, 0.0)
    _, plain, other = scores(predict(trained(method, seconds), problem.test.x), back, problem.test.y)
    require(
        abs(plain - other) < NEAR,
        f"with sorted rows and flipped signs the log-likelihood is {other:.2f} instead of {plain:.2f}",
    )
