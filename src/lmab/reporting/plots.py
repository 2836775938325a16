"""Plots for notebooks and papers, each on given or new matplotlib axes, which it returns (extra `plot`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InvalidArgument, LmabError
from ..estimation.check import Calibration
from ..estimation.result import Curve, estimate_of
from ..evaluation.value import prior_behind
from ..model.bandit import LatentBandit
from ..planning.problem import Plan
from .contents import measure
from .page import arms_in_order


def plot_means(bandit: LatentBandit, *, ax: Any = None, most_arms: int = 60) -> Any:
    """Plot a heat map of expected rewards, arms by types, the most frequent type first.

    Arms are grouped by the type that gains most by them.

    Args:
        bandit: the model.
        ax: matplotlib axes to draw on; None makes new ones.
        most_arms: the largest number of arms to show; arms on which types differ most come first.

    Returns:
        The axes.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> lmab.reporting.plot_means(bandit).get_xlabel()
        'arm'
    """
    ax = _axes(ax, (8, 3))
    arms, order = arms_in_order(bandit.means, most_arms), bandit.types_by_weight
    picture = ax.imshow(bandit.means[order][:, arms], aspect="auto", cmap="Blues", interpolation="nearest")
    ax.figure.colorbar(picture, ax=ax, label="expected reward")
    names = arms if bandit.arm_labels is None else [str(bandit.arm_labels[arm]) for arm in arms]
    ax.set_xticks(range(len(arms)), names, rotation=90, fontsize=7)
    ax.set_yticks(range(len(order)), [f"type {k} ({bandit.weights[m]:.0%})" for k, m in enumerate(order, start=1)])
    ax.set(xlabel="arm", ylabel="types by size")
    return ax


def plot_worth(bandit: LatentBandit, plan: Plan, *, ax: Any = None) -> Any:
    """Plot the values of the best fixed arm, of the plan's policy with its bounds, and of knowing the type as bars.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> ax = lmab.reporting.plot_worth(bandit, lmab.plan(bandit, horizon=5))
        >>> [text.get_text() for text in ax.get_yticklabels()]
        ['best fixed arm', 'policy', 'type known']
    """
    if not isinstance(bandit, LatentBandit) or not isinstance(plan, Plan):
        raise InvalidArgument(
            f"plot_worth must get a LatentBandit and a Plan, got a {type(bandit).__name__} and a {type(plan).__name__}"
        )
    ax = _axes(ax, (6, 2))
    prior = prior_behind(plan, estimate_of(plan.source) or bandit)
    worth = measure(
        bandit, plan.policy, plan.upper, plan.horizon, repeats=plan.repeats, type_prior=prior, arms=plan.kept_arms
    )
    values = [worth.fixed, worth.policy.mean, worth.known]
    ax.barh(range(3), values, color=["0.6", "C0", "0.6"], xerr=None)
    ax.barh(1, max(worth.upper - values[1], 0.0), left=values[1], color="none", edgecolor="C0", hatch="////")
    ax.set_yticks(range(3), ["best fixed arm", "policy", "type known"])
    ax.set(xlabel=f"expected reward of {plan.horizon} steps")
    ax.invert_yaxis()
    return ax


def plot_bounds(plan: Plan, *, ax: Any = None) -> Any:
    """Plot lower and upper bound on the optimum against the seconds of planning.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> lmab.reporting.plot_bounds(lmab.plan(bandit, horizon=5)).get_xlabel()
        'seconds'
    """
    ax = _axes(ax, (5, 3))
    seconds, lower, upper = np.array(plan.trace).T if plan.trace else np.array([[0.0], [plan.lower], [plan.upper]])
    ax.step(seconds, upper, where="post", label="no policy earns more")
    ax.step(seconds, lower, where="post", label="the policy earns at least")
    ax.fill_between(seconds, lower, upper, step="post", alpha=0.15)
    ax.set(xlabel="seconds", ylabel=f"reward of {plan.horizon} steps")
    ax.legend()
    return ax


def plot_calibration(calibration: Calibration, *, ax: Any = None) -> Any:
    """Plot predicted against observed rewards; calibrated points lie on the dashed line.

    Examples:
        >>> import numpy as np, lmab
        >>> from lmab.evaluation import diagnostics
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=500, horizon=5, rng=np.random.default_rng(0))
        >>> lmab.reporting.plot_calibration(diagnostics.calibrate(bandit, log)).get_ylabel()
        'paid'
    """
    ax = _axes(ax, (4, 4))
    low = min(calibration.predicted.min(), calibration.observed.min())
    high = max(calibration.predicted.max(), calibration.observed.max())
    ax.plot([low, high], [low, high], "k--", linewidth=1)
    ax.errorbar(calibration.predicted, calibration.observed, yerr=calibration.stderr, fmt="o")
    ax.set(xlabel="predicted reward", ylabel="paid")
    return ax


def plot_curve(curve: Curve, *, ax: Any = None) -> Any:
    """Plot held-out log-likelihood against the number of types; a ring marks the selected number.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=500, horizon=5, rng=rng)
        >>> estimate = lmab.fit(log, n_types="auto", rng=rng)
        >>> lmab.reporting.plot_curve(estimate.curve).get_xlabel()
        'number of types'
    """
    ax = _axes(ax, (5, 3))
    ax.errorbar(curve.n_types, curve.log_likelihood, yerr=curve.stderr, fmt="o-")
    chosen = curve.log_likelihood[curve.n_types.index(curve.chosen)]
    ax.plot(curve.chosen, chosen, "o", markersize=14, markerfacecolor="none", color="k")
    ax.set(xlabel="number of types", ylabel="held-out log-likelihood", xticks=curve.n_types)
    return ax


def _axes(ax: Any, size: tuple[float, float]) -> Any:
    """Return the given axes, or new ones."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise LmabError("pictures need matplotlib: pip install '.[plot]'") from error
    return plt.subplots(figsize=size, layout="constrained")[1]
