"""compare: what one policy earns more than another, from one log; the sessions are the same, so noise cancels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checks import FRACTION, Rng, check, check_count
from ..data.sessions import Sessions
from ..errors import InvalidArgument
from ..model.bandit import LatentBandit
from ..policies.policy import Policy
from .importance import WEIGHT, Interval, Range, Sums, Tails, estimates, jackknife, student_reach, without_each
from .off_policy import LEAST, METHODS, check_log
from .value import outlook


@dataclass(frozen=True)
class Comparison:
    """Reward per session of a policy, of another one, and the difference with its interval."""

    value: float
    other: float
    interval: Interval | None  # of the difference, within what is possible; None: the effective sample is too small
    stderr: float  # of the difference; NaN where there is no interval
    method: str  # one of the methods for logs
    n_sessions: int
    effective: float  # the smallest effective sample over the steps of both policies

    @property
    def difference(self) -> float:
        return self.value - self.other


def compare(
    policy: Policy,
    other: Policy,
    sessions: Sessions,
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
        sessions: the log; both policies are for its arms.
        horizon: steps per session.
        model: a model fitted to other sessions, for the doubly robust estimate; None: self-normalised.
        confidence: of the interval. As for one policy, it counts a session that the log may lack, here one on which
            the two differ, and reaches further where few sessions tell how large an error is. Where the effective
            sample of either policy is below 30 there is no interval.
        rng: needed where the model's prediction for a policy has to be simulated.

    Examples:
        >>> import lmab
        >>> from lmab.evaluation import compare
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.7, 0.4], [0.4, 0.7]])
        >>> uniform = lmab.Uniform(2)
        >>> log = lmab.evaluation.with_propensities(
        ...     lmab.simulate(bandit, uniform, n_sessions=20_000, horizon=3, rng=0), uniform
        ... )
        >>> found = compare(lmab.Greedy(bandit), lmab.policies.Stationary(0), log, horizon=3, model=bandit)
        >>> found.interval[0] < 0.0945 < found.interval[1]
        True
    """
    horizon = check_count("horizon", horizon)
    check("confidence", confidence, FRACTION)
    for one in (policy, other):
        check_log(one, sessions, horizon, model)
    row = METHODS.index("self-normalised" if model is None else "doubly-robust")
    both = [
        Sums.of(one, sessions, horizon, model, None if model is None else outlook(one, model, horizon, rng))
        for one in (policy, other)
    ]
    values = [float(estimates(sums.groups.sum(axis=0))[row].sum()) for sums in both]
    if not np.isfinite(values).all():
        raise InvalidArgument("sessions must hold sessions that agree with both policies, got none for one of them")
    rewards = Range.of(sessions, model)
    values = np.clip(values, horizon * rewards.least, horizon * rewards.most).tolist()
    effective = float(min(sums.effective.min() for sums in both))
    if effective < LEAST:
        return Comparison(values[0], values[1], None, np.nan, METHODS[row], len(sessions), effective)
    error = float(jackknife(np.subtract(*(without_each(sums.groups)[row] for sums in both))))
    interval = _interval(both, _tails(both, effective, rewards), row, confidence)
    return Comparison(values[0], values[1], interval, error, METHODS[row], len(sessions), effective)


def _tails(both: list[Sums], effective: float, rewards: Range) -> list[Tails]:
    """What the session adds that the log lacks, for each policy: a session on which the two policies differ."""
    weights = [sums.groups[:, WEIGHT] for sums in both]
    differ = weights[0] != weights[1]
    if not differ.any():
        return [Tails(np.zeros(differ.shape[1]), effective, rewards)] * 2
    found = []
    for sums, own in zip(both, weights, strict=True):
        heaviest = np.minimum(np.where(differ, own, 0.0).max(axis=0), sums.heaviest)  # groups hold several sessions
        found.append(Tails.of(sums.groups, heaviest, effective, rewards))
    return found


def _interval(both: list[Sums], tails: list[Tails], row: int, confidence: float) -> Interval:
    """The lower end counts a session in which the policy earns little and the other much; the upper end the reverse."""
    reach = student_reach(tails[0].effective, (1 - confidence) / 2)
    extra = [tail.sessions_beside(sums.groups) for sums, tail in zip(both, tails, strict=True)]
    ends = []
    for sign, pick in ((-1.0, (0, 1)), (1.0, (1, 0))):
        parts = [np.concatenate([sums.groups, one[k][None]]) for sums, one, k in zip(both, extra, pick, strict=True)]
        middle = float(np.subtract(*(estimates(part.sum(axis=0))[row].sum() for part in parts)))
        error = float(jackknife(np.subtract(*(without_each(part)[row] for part in parts))))
        ends.append(middle + sign * reach * error)
    most = len(tails[0].weights) * tails[0].rewards.width
    return max(ends[0], -most), min(ends[1], most)
