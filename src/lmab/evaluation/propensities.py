"""Propensities that were not logged: fitted to the log, or computed from the policy that logged it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .._shapes import Array, Integer
from ..data import Episodes
from ..policies import Policy, State

_SURE = 1e-6  # p-value below which a log is called adaptive
_CHUNK = 8192


def fit_propensities(episodes: Episodes) -> tuple[Episodes, tuple[str, ...]]:
    """The log with fitted propensities, and warnings where they are wrong.

    The fit assumes that the logging policy chose its arm by the number of the step alone. Where its choices depended on
    what the session had seen, the fitted propensities are wrong. A test for dependence on the previous reward looks
    for such choices.

    Examples:
        >>> import numpy as np, lmab
        >>> log = lmab.Episodes.from_arrays([[0, 1], [0, 0]], [[1.0, 0.0], [0.0, 0.0]])
        >>> fit_propensities(log)[0].propensities
        array([1. , 0.5, 1. , 0.5])
    """
    steps = episodes.steps
    cells = steps * episodes.n_arms + episodes.actions
    counts = np.bincount(cells, minlength=episodes.horizon * episodes.n_arms)
    share = counts.reshape(episodes.horizon, -1) / np.bincount(steps)[:, None]
    notes = []
    p_value = _independence(episodes, steps)
    if p_value < _SURE:
        notes.append(
            f"the arms of this log depend on the rewards before them (p = {p_value:.1g}), so propensities fitted by "
            f"step are wrong and the estimates are biased: log the true propensities"
        )
    return replace(episodes, propensities=share.ravel()[cells]), tuple(notes)


def _independence(episodes: Episodes, steps: Integer[Array, "S"]) -> float:
    """p-value of the hypothesis that an arm does not depend on whether the reward before it was high."""
    from scipy.stats import chi2

    later = np.flatnonzero(steps > 0)
    if len(later) == 0:
        return 1.0
    high = episodes.rewards[later - 1] > episodes.rewards.mean()
    cells = steps[later] * episodes.n_arms + episodes.actions[later]
    observed = np.stack([np.bincount(cells[high == side], minlength=cells.max() + 1) for side in (False, True)])
    observed = observed.reshape(2, -1)
    step_of = np.arange(observed.shape[1]) // episodes.n_arms
    by_step = np.stack([np.bincount(step_of, weights=row) for row in observed])
    expected = observed.sum(axis=0) * (by_step / np.maximum(by_step.sum(axis=0), 1))[:, step_of]
    usable = expected.min(axis=0) >= 5  # the rule for the chi-square approximation
    statistic = ((observed - expected)[:, usable] ** 2 / expected[:, usable]).sum()
    freedom = usable.sum() - len(np.unique(step_of[usable]))
    return float(chi2.sf(statistic, freedom)) if freedom > 0 else 1.0


def with_propensities(episodes: Episodes, policy: Policy) -> Episodes:
    """The log with propensities: the probabilities with which `policy`, which logged it, chose its arms.

    Examples:
        >>> import numpy as np, lmab
        >>> log = lmab.Episodes.from_arrays([[0, 1], [0, 0]], [[1.0, 0.0], [0.0, 0.0]])
        >>> with_propensities(log, lmab.Uniform(2)).propensities
        array([0.5, 0.5, 0.5, 0.5])
    """
    chances = np.empty(episodes.n_steps)
    for start in range(0, len(episodes), _CHUNK):
        rows = np.arange(start, min(start + _CHUNK, len(episodes)))
        state = policy.start(len(rows))
        for step in range(int(episodes.lengths[rows].max())):
            live = episodes.lengths[rows] > step
            rows, state = rows[live], State(state.step, state.memory[live], single=False)
            places = episodes.offsets[rows] + step
            arms = episodes.actions[places]
            chances[places] = policy.distribution(state, n_arms=episodes.n_arms)[np.arange(len(arms)), arms]
            if step + 1 < (policy.horizon or np.inf):
                state = policy.observe(state, arms, episodes.rewards[places])
    return replace(episodes, propensities=chances)
