"""Masked replay: what a model's policy earns on held-out sessions that may choose only among the arms logged there.

It needs no model to be believed: every reward was paid in that session. The gain over playing the most popular of the
logged arms has a plain standard error. It holds where the arms that were logged did not depend on the session's own
rewards.
"""

from __future__ import annotations

import numpy as np

from .._shapes import Array, Bool, Float, Integer
from ..data import Sessions
from ..model import LatentBandit, belief
from ..policies import best_allowed

_CELLS = 1 << 22  # pairs of session and arm that are replayed at once


def masked_gains(bandit: LatentBandit, popularity: Float[Array, "A"], held: Sessions) -> Float[Array, "n"]:
    """What half of each session's arms earn more if they are chosen greedily instead of by popularity.

    Each arm that a session logged may be played once, and pays what it paid there first. Sessions with fewer than two
    arms leave no choice and are left out.
    """
    size = max(_CELLS // max(held.n_arms, bandit.n_types), 1)
    parts = [held[slice(start, start + size)] for start in range(0, len(held), size)]
    return np.concatenate([_gains(bandit, popularity, part) for part in parts])


def popularity_of(sessions: Sessions) -> Float[Array, "A"]:
    """The mean reward of each arm, with one pseudo-play of the average arm."""
    plays = np.bincount(sessions.arms, minlength=sessions.n_arms)
    sums = np.bincount(sessions.arms, sessions.rewards, minlength=sessions.n_arms)
    return (sums + sessions.rewards.mean()) / (plays + 1)


def _gains(bandit: LatentBandit, popularity: Float[Array, "A"], held: Sessions) -> Float[Array, "n"]:
    rewards, left = _first_rewards(held)
    steps = left.sum(axis=1) // 2
    popular = np.argsort(-np.where(left, popularity, -np.inf), axis=1, kind="stable")
    gains, rows = np.zeros(len(held)), np.arange(len(held))
    beliefs = belief.prior(bandit, len(held))
    for step in range(int(steps.max(initial=0))):
        live = steps[rows] > step
        rows, beliefs = rows[live], beliefs[live]
        arms = best_allowed(belief.normalise(beliefs) @ bandit.means, left[rows])
        paid = rewards[rows, arms]
        gains[rows] += paid - rewards[rows, popular[rows, step]]
        left[rows, arms] = False
        beliefs = belief.update(bandit, beliefs, arms, paid)
    return gains[steps > 0]


def _first_rewards(sessions: Sessions) -> tuple[Float[Array, "n A"], Bool[Array, "n A"]]:
    """What each session's arms paid first, and which arms it logged."""
    owner = np.repeat(np.arange(len(sessions)), sessions.lengths)
    rewards = np.zeros((len(sessions), sessions.n_arms))
    logged = np.zeros(rewards.shape, bool)
    backwards: Integer[Array, "S"] = np.arange(sessions.n_steps)[::-1]  # so that the first of several stays
    rewards[owner[backwards], sessions.arms[backwards]] = sessions.rewards[backwards]
    logged[owner, sessions.arms] = True
    return rewards, logged
