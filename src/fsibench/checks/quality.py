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
from fsibench.data import Floats, Standardiser
from fsibench.predictive import Predictive

NUM_DRAWS = 500
# Nats below the exact posterior that a short fit may stay.
NEAR = 0.35
# A mean that varies less, in standard deviations of y, has no slope that can be told from noise; `beats_the_constant` sees it.
CONSTANT = 0.05
# A mean scaled by 0.7 makes the exact mean grow by 1.43 with it, and 0.77 of the variance is predicted that answers have
# around it. A fit that stays behind shrinks its mean too, and takes what is left for noise: 0.89 or more.
LARGEST_SLOPE, LEAST_ALLOWANCE = 1.38, 0.82
# In standard deviations of y. Training targets have mean 0, and so have exact predictions of them; short fits reach 0.04.
LARGEST_SHIFT = 0.1
# Noise counted twice: the central half holds 66 %, and what draws do not explain is twice the noise. One alone is no
# proof: mean-field weights may spread that much, and a mean that ignores x leaves that much to the noise.
WIDE, TWICE = 0.62, 1.8


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
    """Answers grow with the predicted mean one to one, and residuals average to nothing."""
    problem = conjugate_problem()
    posterior = trained(method, seconds)
    predictive = predict(posterior, problem.test.x).double()
    mean = predictive.mean
    if float(mean.std()) >= CONSTANT:
        slope = _slope(problem.test.y, mean)
        require(slope > 0.87, f"the answers grow by {slope:.2f} where the predicted mean grows by 1: the mean is inflated")
        slope, variance = _slope(problem.exact.mean, mean), float(predictive.variance.mean())
        needed = float((problem.exact.variance + (problem.exact.mean - mean).square()).mean())
        require(
            slope < LARGEST_SLOPE or variance > LEAST_ALLOWANCE * needed,
            f"the exact mean grows by {slope:.2f} where the predicted mean grows by 1, and the predicted variance does not "
            "allow for the difference: the mean is shrunk",
        )
    shift = float((problem.test.y.double() - mean).mean())
    require(abs(shift) < 0.2, f"the answers lie {shift:+.2f} standard deviations of y beside the predicted mean")
    shift = float((problem.train.y.double() - predict(posterior, problem.train.x).mean.double().cpu()).mean())
    require(
        abs(shift) < LARGEST_SHIFT,
        f"the training targets lie {shift:+.2f} standard deviations of y beside their predicted mean",
    )


def _slope(y: Tensor, x: Tensor) -> float:
    """Of the regression of y on x."""
    x, y = x - x.mean(), y.double() - y.double().mean()
    return float((x * y).sum() / x.square().sum())


@check("a too small spread misses function uncertainty or noise; a too large one counts noise twice")
@patiently
def spread_is_calibrated(method: Method, seconds: float) -> None:
    """The central 90 % interval holds about 90 % of the answers, the central 50 % about half; noise is counted once."""
    problem = conjugate_problem()
    posterior = trained(method, seconds)
    predictive = predict(posterior, problem.test.x).double()
    _require_coverage(predictive, problem.test.y, "a linear problem")
    low, high = predictive.quantile(torch.tensor([0.25, 0.75], dtype=torch.float64))
    inside = float((problem.exact.cdf(high) - problem.exact.cdf(low)).mean())
    functions = float(draw(posterior, problem.test.x, NUM_DRAWS).double().var(0).mean())
    noise = (float(predictive.variance.mean()) - functions) / problem.noise**2
    require(
        inside < WIDE or noise < TWICE,
        f"the central 50 % interval holds {inside:.0%} of the exact distribution, and the variance of the prediction minus "
        f"that of the draws is {noise:.1f} times the noise: the predictive spread is too large",
    )


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
    """Sorted rows, reversed columns, flipped signs and other units leave the scores as they are, within noise."""
    problem = conjugate_problem()
    order = problem.train.y.argsort()
    x, y, test_x = _other_inputs(problem.train.x[order]), _other_targets(problem.train.y[order]), _other_inputs(problem.test.x)
    units = Standardiser.of(x, y)
    posterior = train(method, Data(torch.from_numpy(units.x(x)), torch.from_numpy(units.y(y))), seconds)
    back = predict(posterior, torch.from_numpy(units.x(test_x))).rescale(units.y_scale, units.y_mean)
    back = back.rescale(-1.0 / 3.0, 7.0 / 3.0)
    score, plain, other = scores(predict(trained(method, seconds), problem.test.x), back, problem.test.y)
    require(
        abs(plain - other) < NEAR,
        f"with sorted rows, flipped signs and other units the {score} is {other:.2f} instead of {plain:.2f}",
    )


def _other_inputs(x: Tensor) -> Floats:
    """5 − 1000x, columns reversed."""
    return 5.0 - 1000.0 * x.flip(1).double().numpy()


def _other_targets(y: Tensor) -> Floats:
    """7 − 3y"""
    return 7.0 - 3.0 * y.double().numpy()
