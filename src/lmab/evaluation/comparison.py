"""compare: what one policy earns more than another, from one log; the sessions are the same, so noise cancels."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from ..checks import FRACTION, Rng, check, check_count
from ..data import Episodes
from ..errors import InvalidArgument
from ..model import LatentBandit
from ..policies import Policy
from .importance import Sums
from .intervals import Range, estimates, jackknife, without_each
from .off_policy import METHODS, check_log
from .value import outlook


@dataclass(frozen=True)
class Comparison:
    """Reward per session of a policy, of another one, and the difference with its interval."""

    value: float
    other: float
    interval: tuple[float, float]  # of the difference, within what is possible
    stderr: float
    method: str  # one of the methods for logs
    n_episodes: int

    @property
    def difference(self) -> float:
        return self.value - self.other


def compare(
    policy: Policy,
    other: Policy,
    episodes: Episodes,
    *,
    horizon: int,
    model: LatentBandit | None = None,
    confidence: float = 0.95,
    rng: Rng | None = None,
) -> Comparison:
    """The value of `policy` less that of `other`, from a log with propensities.

    Args:
        policy: one policy.
        other: the policy that it is compared with.
        episodes: the log; both policies are for its arms.
        horizon: steps per session.
        model: a model fitted to other sessions, for the doubly robust estimate; None: self-normalised.
        confidence: of the interval, which is normal around a jackknife over sessions. Where few sessions agree with a
            policy to their end it is too narrow.
        rng: needed where the model's prediction for a policy has to be simulated.

    Examples:
        >>> import lmab
        >>> from lmab.evaluation import compare
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.7, 0.4], [0.4, 0.7]])
        >>> uniform = lmab.Uniform(2)
        >>> log = lmab.evaluation.with_propensities(
        ...     lmab.simulate(bandit, uniform, n_episodes=20_000, horizon=3, rng=0), uniform
        ... )
        >>> found = compare(lmab.Greedy(bandit), lmab.Stationary(0), log, horizon=3, model=bandit)
        >>> found.interval[0] < 0.0945 < found.interval[1]
        True
    """
    horizon = check_count("horizon", horizon)
    check("confidence", confidence, FRACTION)
    for one in (policy, other):
        check_log(one, episodes, horizon, model)
    row = METHODS.index("self-normalised" if model is None else "doubly-robust")
    both = [
        Sums.of(one, episodes, horizon, model, None if model is None else outlook(one, model, horizon, rng))
        for one in (policy, other)
    ]
    values = [float(estimates(sums.groups.sum(axis=0))[row].sum()) for sums in both]
    if not np.isfinite(values).all():
        raise InvalidArgument("episodes must hold sessions that agree with both policies, got none for one of them")
    rewards = Range.of(episodes, model)
    values = np.clip(values, horizon * rewards.least, horizon * rewards.most).tolist()
    error = float(jackknife(np.subtract(*(without_each(sums.groups)[row] for sums in both))))
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * error
    gain, most = values[0] - values[1], horizon * rewards.width
    interval = max(gain - reach, -most), min(gain + reach, most)
    return Comparison(values[0], values[1], interval, error, METHODS[row], len(episodes))
