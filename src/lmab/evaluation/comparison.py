"""compare: what policies earn beside one another, on one log or one bandit; sessions are the same, so noise cancels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..checks import FRACTION, Rng, check, check_count, check_rng, choices
from ..data.sessions import Sessions
from ..errors import InvalidArgument
from ..estimation.result import Estimate
from ..model.bandit import LatentBandit
from ..planning.problem import Plan, policy_of
from ..policies.policy import Policy
from ..simulation import simulate
from .importance import WEIGHT, Interval, Range, Sums, Tails, estimates, jackknife, student_reach, without_each
from .off_policy import LEAST, METHODS, check_log
from .value import exact_if_possible, outlook


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


@dataclass(frozen=True)
class Rival:
    """One policy of a comparison."""

    name: str
    value: float  # reward per session
    difference: float  # to the first policy
    interval: Interval | None  # of the difference; None: the log tells too little

    def __str__(self) -> str:
        between = "no interval" if self.interval is None else "{:+.4f} to {:+.4f}".format(*self.interval)
        return f"{self.name}: {self.value:.4f}, {self.difference:+.4f} ({between})"


@dataclass(frozen=True)
class Rivals:
    """Policies beside one another: each with the difference to the first one, from the same sessions."""

    rows: tuple[Rival, ...]
    horizon: int
    confidence: float
    method: str  # "exact", "simulated", or one of the methods for logs

    def __iter__(self) -> Iterator[Rival]:
        return iter(self.rows)

    def __getitem__(self, name: str) -> Rival:
        for row in self.rows:
            if row.name == name:
                return row
        raise InvalidArgument(f"name must be {choices([row.name for row in self.rows])}, got {name!r}")

    def __str__(self) -> str:
        first = self.rows[0].name
        head = f"Reward of a session of {self.horizon} steps, and the difference to {first} at {self.confidence:.0%}"
        return "\n".join([f"{head} ({self.method}):", *(f"  {row}" for row in self.rows)])


def compare(
    policies: Mapping[str, Policy | Plan] | Sequence[Policy | Plan],
    on: LatentBandit | Estimate | Sessions,
    *,
    horizon: int,
    model: LatentBandit | None = None,
    confidence: float = 0.95,
    n_sessions: int = 20_000,
    rng: Rng | None = None,
) -> Rivals:
    """Compare policies with the first of them, on the same sessions.

    Args:
        policies: two or more policies or plans; a mapping gives them names.
        on: a bandit or estimate, or a log with propensities that the policies were not made from.
        horizon: steps per session.
        model: for a log, a model fitted to other sessions: then estimates are doubly robust, else self-normalised.
        confidence: of the intervals of the differences.
        n_sessions: sessions simulated on a bandit where a policy has no exact value; the types of the sessions are the
            same for every policy.
        rng: needed where something is simulated.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.7, 0.4], [0.4, 0.7]])
        >>> rivals = {"one arm": lmab.policies.Stationary(0), "greedy": lmab.Greedy(bandit)}
        >>> print(lmab.compare(rivals, bandit, horizon=3))
        Reward of a session of 3 steps, and the difference to one arm at 95% (exact):
          one arm: 1.6500, +0.0000 (+0.0000 to +0.0000)
          greedy: 1.7445, +0.0945 (+0.0945 to +0.0945)
    """
    named = _named(policies)
    horizon = check_count("horizon", horizon)
    check("confidence", confidence, FRACTION)
    if isinstance(on, Sessions):
        return _on_log(named, on, horizon, model, confidence, rng)
    bandit = on.bandit if isinstance(on, Estimate) else on
    if not isinstance(bandit, LatentBandit):
        raise InvalidArgument(f"on must be a LatentBandit, an Estimate or Sessions, got a {type(on).__name__}")
    return _on_bandit(named, bandit, horizon, confidence, check_count("n_sessions", n_sessions), rng)


def _named(policies: Mapping[str, Policy | Plan] | Sequence[Policy | Plan]) -> dict[str, Policy]:
    """The policies by name; without names they are numbered from 1."""
    pairs = (
        policies.items() if isinstance(policies, Mapping) else ((f"policy {k}", p) for k, p in enumerate(policies, 1))
    )
    named = {str(name): policy_of(policy) for name, policy in pairs}
    if len(named) < 2:
        raise InvalidArgument(f"policies must be two or more, got {len(named)}: lmab.evaluate is for one")
    return named


def _on_log(
    named: dict[str, Policy],
    log: Sessions,
    horizon: int,
    model: LatentBandit | None,
    confidence: float,
    rng: Rng | None,
) -> Rivals:
    first = next(iter(named.values()))
    rows, method = [], ""
    for name, policy in named.items():
        found = difference(policy, first, log, horizon=horizon, model=model, confidence=confidence, rng=rng)
        rows.append(Rival(name, found.value, found.difference, found.interval))
        method = found.method
    return Rivals(tuple(rows), horizon, confidence, method)


def _on_bandit(
    named: dict[str, Policy], bandit: LatentBandit, horizon: int, confidence: float, n_sessions: int, rng: Rng | None
) -> Rivals:
    """Exact values where all policies have one; else simulated sessions whose types are the same for all."""
    exact = [exact_if_possible(policy, bandit, horizon) for policy in named.values()]
    if all(found is not None for found in exact):
        values = [float(found[0].sum()) for found in exact if found is not None]
        rows = [Rival(name, v, v - values[0], (v - values[0],) * 2) for name, v in zip(named, values, strict=True)]
        return Rivals(tuple(rows), horizon, confidence, "exact")
    seed = int(check_rng(rng, "a policy has no exact value and is simulated").integers(2**63))
    totals = []
    for policy in named.values():
        played = simulate(bandit, policy, n_sessions=n_sessions, horizon=horizon, rng=seed)
        totals.append(np.bincount(np.repeat(np.arange(n_sessions), played.lengths), played.rewards, n_sessions))
    reach = student_reach(n_sessions, (1 - confidence) / 2)
    rows = []
    for name, own in zip(named, totals, strict=True):
        more = own - totals[0]
        mean, half = float(more.mean()), reach * float(more.std(ddof=1)) / np.sqrt(n_sessions)
        rows.append(Rival(name, float(own.mean()), mean, (mean - half, mean + half)))
    return Rivals(tuple(rows), horizon, confidence, "simulated")


def difference(
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
        >>> from lmab.evaluation.comparison import difference
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.7, 0.4], [0.4, 0.7]])
        >>> uniform = lmab.Uniform(2)
        >>> log = lmab.evaluation.with_propensities(
        ...     lmab.simulate(bandit, uniform, n_sessions=20_000, horizon=3, rng=0), uniform
        ... )
        >>> found = difference(lmab.Greedy(bandit), lmab.policies.Stationary(0), log, horizon=3, model=bandit)
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
