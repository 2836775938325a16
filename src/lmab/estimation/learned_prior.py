"""The learned prior: what an arm is like before it is played, from all arms of the log (`arm_law`, `gibbs`)."""

from __future__ import annotations

import numpy as np

from ..model import LatentBandit
from . import gibbs
from .observations import Observations
from .prior import Prior

_CHAINS, _KEEP = 4, 10  # averages need fewer draws than quantiles
_LEAST_ARMS = 3  # fewer say nothing about what arms are like


def unlearnable(observations: Observations) -> str | None:
    """Why nothing can be learned about what arms are like here; None: it can."""
    n_played = int((observations.sessions.plays > 0).sum())
    if n_played < _LEAST_ARMS:
        return f"{n_played} of the arms were played, and what arms are like takes at least {_LEAST_ARMS}"
    values = observations.values
    if values is not None and len(values) < 2:
        return "every reward is the same"
    return None


def learn(
    observations: Observations, bandit: LatentBandit, sweeps: int, rng: np.random.Generator, threads: int | None = None
) -> Prior:
    """The prior of every arm, from chains of `sweeps` sweeps that start at `bandit`, a fit to the log."""
    keep = min(_KEEP, -(-sweeps // 4))
    thin = max(min(sweeps // (2 * keep), 3), 1)
    schedule = gibbs.Schedule(_CHAINS, max(sweeps - keep * thin, 0), keep, thin)
    return gibbs.run(observations, bandit, rng=rng, schedule=schedule, threads=threads).prior
