"""sweep: improve a bandit by a few EM iterations, for learners whose log grows."""

from __future__ import annotations

from typing import Any

from ..checks import NOT_NEGATIVE, check, check_count
from ..data import Sessions
from ..model import LatentBandit
from .encoding import observe
from .passes import Threads


def sweep(
    bandit: LatentBandit, sessions: Sessions, *, sweeps: int, prior: float, values: Any = None
) -> tuple[LatentBandit, float]:
    """The bandit after some maps of EM over a log, and the log-likelihood before the last of them.

    Args:
        bandit: where the maps start from.
        sessions: the log; what it holds must not be impossible under the bandit.
        sweeps: how many maps.
        prior: pseudo-observations per type and arm, as for `EM`.
        values: the reward values of a categorical log; None: those of the log.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=500, horizon=4, rng=rng)
        >>> start = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.6, 0.5], [0.5, 0.6]])
        >>> once, before = sweep(start, log, sweeps=1, prior=1.0)
        >>> twice, after = sweep(once, log, sweeps=1, prior=1.0)
        >>> after > before
        True
    """
    check("prior", prior, NOT_NEGATIVE)
    observations = observe(sessions, rewards=bandit.rewards.family, values=values)
    em_map = observations.em_map(observations.prior(prior))
    model = observations.models.pack(bandit)
    with Threads() as passes:
        for _ in range(check_count("sweeps", sweeps)):
            statistics, logs = em_map.expectation(model, passes)
            model = em_map.maximise(statistics, model)
    return observations.models.bandit(model[0], bandit.n_types), float(logs[0])
