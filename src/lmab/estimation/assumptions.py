"""Does a log react: does the reward of a step have a say in the next arm? Then arms are known from those they suit."""

from __future__ import annotations

import numpy as np

from ..data.packed import Packed
from ..data.sessions import Sessions

_REACTS = 5.0  # standard deviations from which a log is said to react
_SESSIONS = 20_000  # of a larger log are looked at


def reaction(sessions: Sessions | Packed) -> float:
    """How strongly the next arm depends on the reward, in standard deviations of logs where it does not.

    Two steps agree where they have the same arm and are followed by the same arm. Where the next arm does not depend on
    the reward, rewards of such steps, less the mean of their arm, multiply to 0 on average; the sum of all products is
    compared with its standard deviation.

    Examples:
        >>> import numpy as np, lmab
        >>> truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]])
        >>> logs = [
        ...     lmab.simulate(truth, policy, n_sessions=500, horizon=4, rng=np.random.default_rng(0))
        ...     for policy in (lmab.Uniform(2), lmab.Greedy(truth))
        ... ]
        >>> [reacts(reaction(log)) for log in logs]
        [False, True]
    """
    part = sessions[:: max(1, len(sessions) // _SESSIONS)]
    goes_on = np.ones(part.n_steps, bool)
    goes_on[part.offsets[1:] - 1] = False
    now = np.flatnonzero(goes_on)
    arms, after, rewards = part.arms[now], part.arms[now + 1].astype(np.int64), part.rewards[now]
    if len(now) == 0:
        return 0.0
    rest = rewards - (np.bincount(arms, rewards) / np.maximum(np.bincount(arms), 1))[arms]
    group = np.unique(arms * np.int64(part.n_arms) + after, return_inverse=True)[1]
    sums, squares, fourths = (np.bincount(group, rest**power) for power in (1, 2, 4))
    deviation = np.sqrt(2 * np.maximum(squares**2 - fourths, 0.0).sum())
    return float((sums**2 - squares).sum() / deviation) if deviation > 0 else 0.0


def reacts(deviations: float) -> bool:
    """Whether so strong a dependence is no chance."""
    return deviations > _REACTS
