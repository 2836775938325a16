"""Propensities that were not logged: fitted to the log, or computed from the policy that logged it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .._shapes import Array, Integer
from ..data import Sessions
from ..policies import Policy, State

_SURE = 1e-6  # p-value below which a log is called adaptive
_CHUNK = 8192


def fit_propensities(sessions: Sessions) -> tuple[Sessions, tuple[str, ...]]:
    """The log with fitted propensities, and warnings where they are wrong.

    The fit assumes that the logging policy chose its arm by the number of the step alone. Where its choices depended on
    what the session had seen, the fitted propensities are wrong. A test for dependence on the previous reward looks
    for such choices.

    Examples:
        >>> import numpy as np, lmab
        >>> log = lmab.Sessions.from_arrays([[0, 1], [0, 0]], [[1.0, 0.0], [0.0, 0.0]])
        >>> fit_propensities(log)[0].propensities
        array([1. , 0.5, 1. , 0.5])
    """
    steps = sessions.steps
    cells = steps * sessions.n_arms + sessions.arms
    counts = np.bincount(cells, minlength=sessions.horizon * sessions.n_arms)
    share = counts.reshape(sessions.horizon, -1) / np.bincount(steps)[:, None]
    notes = []
    p_value = _independence(sessions, steps)
    if p_value < _SURE:
        notes.append(
            f"the arms of this log depend on the rewards before them (p = {p_value:.1g}), so propensities fitted by "
            f"step are wrong and the estimates are biased: log the true propensities"
        )
    return replace(sessions, propensities=share.ravel()[cells]), tuple(notes)


def _independence(sessions: Sessions, steps: Integer[Array, "S"]) -> float:
    """p-value of the hypothesis that an arm does not depend on whether the reward before it was high."""
    from scipy.stats import chi2

    later = np.flatnonzero(steps > 0)
    if len(later) == 0:
        return 1.0
    high = sessions.rewards[later - 1] > sessions.rewards.mean()
    cells = steps[later] * sessions.n_arms + sessions.arms[later]
    observed = np.stack([np.bincount(cells[high == side], minlength=cells.max() + 1) for side in (False, True)])
    observed = observed.reshape(2, -1)
    step_of = np.arange(observed.shape[1]) // sessions.n_arms
    by_step = np.stack([np.bincount(step_of, weights=row) for row in observed])
    expected = observed.sum(axis=0) * (by_step / np.maximum(by_step.sum(axis=0), 1))[:, step_of]
    usable = expected.min(axis=0) >= 5  # the rule for the chi-square approximation
    statistic = ((observed - expected)[:, usable] ** 2 / expected[:, usable]).sum()
    freedom = usable.sum() - len(np.unique(step_of[usable]))
    return float(chi2.sf(statistic, freedom)) if freedom > 0 else 1.0


def with_propensities(sessions: Sessions, policy: Policy) -> Sessions:
    """The log with propensities: the probabilities with which `policy`, which logged it, chose its arms.

    Examples:
        >>> import numpy as np, lmab
        >>> log = lmab.Sessions.from_arrays([[0, 1], [0, 0]], [[1.0, 0.0], [0.0, 0.0]])
        >>> with_propensities(log, lmab.Uniform(2)).propensities
        array([0.5, 0.5, 0.5, 0.5])
    """
    chances = np.empty(sessions.n_steps)
    for start in range(0, len(sessions), _CHUNK):
        rows = np.arange(start, min(start + _CHUNK, len(sessions)))
        state = policy.start(len(rows))
        for step in range(int(sessions.lengths[rows].max())):
            live = sessions.lengths[rows] > step
            rows, state = rows[live], State(state.step, state.memory[live], single=False)
            places = sessions.offsets[rows] + step
            arms = sessions.arms[places]
            chances[places] = policy.distribution(state, n_arms=sessions.n_arms)[np.arange(len(arms)), arms]
            if step + 1 < (policy.horizon or np.inf):
                state = policy.observe(state, arms, sessions.rewards[places])
    return replace(sessions, propensities=chances)
