"""compare: what one policy earns more than another, on a model, from a log, or from a log that both have made.

On a model both play the same people. From a log with propensities the same sessions tell of both, so noise cancels.
From a log in which some sessions had the one policy and some the other, the difference within each night is followed by
bounds that hold at all nights together (`sequential`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from .._shapes import Array, Float, Integer
from ..checks import FRACTION, Rng, check, check_count, check_rng
from ..data.sessions import Sessions
from ..errors import InvalidArgument
from ..estimation.result import Estimate
from ..model.bandit import LatentBandit, bandit_of
from ..parallel import with_one_blas_thread
from ..planning.problem import Plan, policy_of
from ..policies.histories import initial_memories
from ..policies.policy import Policy, State
from ..simulation import simulate
from .importance import WEIGHT, Interval, Range, Sums, Tails, estimates, jackknife, student_reach, without_each
from .off_policy import LEAST, METHODS, check_log
from .sequential import GainBounds, StratifiedEvidence, Stratum, bounds, sessions_needed
from .value import outlook, value_of

_SIMULATED = 20_000  # sessions behind the variance of a session, and behind values that are not exact
_MODEL, _LIVE = "model", "live"


@dataclass(frozen=True, repr=False)
class Comparison:
    """Reward per session of a policy, of another one, and the difference with its interval.

    Examples:
        >>> Comparison(2.5, 2.0, (0.4, 0.6), 0.05, "model", 20_000, 20_000.0)
        Comparison(+0.5 (+0.4 to +0.6): 2.5 against 2, model)
    """

    value: float
    other: float
    interval: Interval | None  # The difference, within what is possible; None: the effective sample is too small.
    stderr: float  # Standard error of the difference; NaN where there is no interval.
    method: str  # "model", one of the methods for logs, or "live": sessions of both policies
    n_sessions: int
    effective: float  # from a log: the smallest effective sample over the steps of both policies
    variance: float = float("nan")  # Variance of the reward of a session.
    looks: tuple[GainBounds, ...] = ()  # live: the difference after each night, with bounds that hold at all nights

    def __repr__(self) -> str:
        reach = "no interval" if self.interval is None else "{:+.4g} to {:+.4g}".format(*self.interval)
        return f"Comparison({self.difference:+.4g} ({reach}): {self.value:.4g} against {self.other:.4g}, {self.method})"

    @property
    def difference(self) -> float:
        return self.value - self.other

    def needed(self, gain: float | None = None, *, share: float = 0.5, power: float = 0.8) -> float:
        """Sessions of a live test until a gain per session is seen with probability `power`.

        Args:
            gain: per session; None: the difference that was found here.
            share: part of the sessions that get the new policy.
            power: chance that the gain has been seen by then.

        Examples:
            >>> import lmab
            >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.7, 0.4], [0.4, 0.7]])
            >>> found = lmab.compare([lmab.Greedy(bandit), lmab.policies.Ranking([0, 1], horizon=5)], bandit, rng=0)
            >>> round(found.difference, 3), bool(300 < found.needed() < found.needed(0.1))
            (0.23, True)
        """
        wanted = abs(self.difference if gain is None else gain)
        if not wanted > 0:
            return float("inf")
        return sessions_needed(wanted, self.other, self.variance, share=share, power=power)

    def picture(self) -> str:
        """The looks of a live test as SVG: the difference after each night, with its bounds."""
        if not self.looks:
            raise InvalidArgument("a picture needs the nights of a live test, got none: give versions and nights")
        return _picture(self.looks)


@overload
def compare(
    policies: Sequence[Policy | Plan],
    where: LatentBandit | Estimate | Sessions,
    *,
    horizon: int | None = None,
    versions: Any = None,
    labels: tuple[Any, Any] | None = None,
    nights: Any = None,
    model: LatentBandit | None = None,
    confidence: float = 0.95,
    rng: Rng | None = None,
) -> Comparison: ...
@overload
def compare(
    policies: Mapping[str, Policy | Plan],
    where: LatentBandit | Estimate | Sessions,
    *,
    horizon: int | None = None,
    versions: Any = None,
    labels: tuple[Any, Any] | None = None,
    nights: Any = None,
    model: LatentBandit | None = None,
    confidence: float = 0.95,
    rng: Rng | None = None,
) -> dict[str, Comparison]: ...
@with_one_blas_thread
def compare(
    policies: Sequence[Policy | Plan] | Mapping[str, Policy | Plan],
    where: LatentBandit | Estimate | Sessions,
    *,
    horizon: int | None = None,
    versions: Any = None,
    labels: tuple[Any, Any] | None = None,
    nights: Any = None,
    model: LatentBandit | None = None,
    confidence: float = 0.95,
    rng: Rng | None = None,
) -> Comparison | dict[str, Comparison]:
    """The value of the first policy less that of the second; of several, less that of each of the others.

    Args:
        policies: two policies or plans: the answer is one `Comparison`. A mapping of names to policies, the first one
            against each of the others: the answer is a `Comparison` for the name of each other one.
        where: a bandit, an estimate, or a log. From a log with propensities both values are estimated; from one whose
            sessions had either policy (`versions`), the sessions of both are compared night by night.
        horizon: steps per session; None: the first policy's.
        versions: which policy each session had: N labels, or the name of a feature of the log.
        labels: the labels of the two policies in `versions`; None: 0 and 1.
        nights: in which night each session began: N labels, or the name of a feature; None: all in one.
        model: a model fitted to other sessions, for the doubly robust estimate; None: self-normalised.
        confidence: of the interval. As for one policy, it counts a session that the log may lack, here one on which
            the two differ, and reaches further where few sessions tell how large an error is. Where the effective
            sample of either policy is below 30 there is no interval. Bounds of a live test err with a chance of
            (1 - confidence) / 2 at each end.
        rng: needed where sessions are simulated.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.7, 0.4], [0.4, 0.7]])
        >>> greedy, first, uniform = lmab.Greedy(bandit), lmab.policies.Ranking([0, 1], horizon=3), lmab.Uniform(2)
        >>> round(lmab.compare([greedy, first], bandit, horizon=3, rng=0).difference, 4)
        0.0945
        >>> log = lmab.simulate(bandit, uniform, n_sessions=20_000, horizon=3, rng=0)
        >>> log = lmab.evaluation.with_propensities(log, uniform)
        >>> found = lmab.compare([greedy, first], log, horizon=3, model=bandit, rng=0)
        >>> found.interval[0] < 0.0945 < found.interval[1]
        True
        >>> both = [lmab.simulate(bandit, one, n_sessions=3000, horizon=3, rng=0) for one in (greedy, first)]
        >>> live = lmab.compare([greedy, first], both[0] + both[1], versions=[0] * 3000 + [1] * 3000, horizon=3)
        >>> live.method, bool(live.interval[0] < 0.0945 < live.interval[1])
        ('live', True)
    """
    check("confidence", confidence, FRACTION)
    if isinstance(policies, Mapping):
        return _against_each(policies, where, horizon, model, confidence, rng, versions)
    if len(policies) != 2:
        raise InvalidArgument(
            f"policies must be two, the new one first, got {len(policies)}: give more of them as a dict with names"
        )
    policy, other = (policy_of(one) for one in policies)
    known = horizon or policy.horizon or other.horizon
    if known is None:
        raise InvalidArgument("horizon must be given, because these policies work for any horizon")
    horizon = check_count("horizon", known)
    if isinstance(where, Sessions) and versions is not None:
        return _live(policy, other, where, horizon, _labelled(where, versions, nights, labels), confidence)
    if isinstance(where, Sessions):
        return _from_log(policy, other, where, horizon, model, confidence, rng)
    return _on_model(policy, other, bandit_of(where), horizon, confidence, rng)


def _against_each(
    policies: Mapping[str, Policy | Plan],
    where: LatentBandit | Estimate | Sessions,
    horizon: int | None,
    model: LatentBandit | None,
    confidence: float,
    rng: Rng | None,
    versions: Any,
) -> dict[str, Comparison]:
    """The first policy against each of the others, all on the same sessions."""
    if len(policies) < 2:
        raise InvalidArgument(f"policies must be two or more, got {len(policies)}: lmab.evaluate is for one")
    if versions is not None:
        raise InvalidArgument("versions must be None where policies have names: a live test is between two policies")
    seed = None if rng is None else int(check_rng(rng, "sessions are simulated").integers(1 << 31))
    (_, first), *others = policies.items()
    return {
        name: compare([first, other], where, horizon=horizon, model=model, confidence=confidence, rng=seed)
        for name, other in others
    }


def _on_model(
    policy: Policy,
    other: Policy,
    bandit: LatentBandit,
    horizon: int,
    confidence: float,
    rng: Rng | None,
) -> Comparison:
    """Exact where both values are; else both play the same people."""
    seed = int(check_rng(rng, "sessions of both policies are simulated").integers(1 << 31))
    alike: dict[str, Any] = {"n_sessions": _SIMULATED, "horizon": horizon, "rng": seed}
    totals = [_totals(simulate(bandit, one, **alike)) for one in (policy, other)]
    found = [value_of(one, bandit, **alike) for one in (policy, other)]
    variance = float(totals[1].var())
    if found[0].exact and found[1].exact:
        difference = found[0].mean - found[1].mean
        interval = (difference, difference)
        return Comparison(found[0].mean, found[1].mean, interval, 0.0, _MODEL, 0, np.inf, variance)
    means, gains = [float(one.mean()) for one in totals], totals[0] - totals[1]
    error = float(gains.std(ddof=1) / np.sqrt(len(gains)))
    reach = student_reach(float(len(gains)), (1 - confidence) / 2) * error
    interval = (means[0] - means[1] - reach, means[0] - means[1] + reach)
    return Comparison(means[0], means[1], interval, error, _MODEL, len(gains), float(len(gains)), variance)


def _totals(log: Sessions) -> Float[Array, "N"]:
    return np.add.reduceat(log.rewards, log.offsets[:-1])


@dataclass(frozen=True)
class _Labels:
    """Of each session: 0 had the new policy, 1 the other, -1 neither; and the number of its night, in order."""

    version: Integer[Array, "N"]
    night: Integer[Array, "N"]


def _labelled(log: Sessions, versions: Any, nights: Any, labels: tuple[Any, Any] | None) -> _Labels:
    given = _column(log, "versions", versions)
    new, old = labels if labels is not None else (0, 1)
    version = np.where(given == new, 0, np.where(given == old, 1, -1))
    for name, number in ((new, 0), (old, 1)):
        if not (version == number).any():
            seen = ", ".join(map(str, np.unique(given)[:5].tolist()))
            raise InvalidArgument(f"versions must hold the label {name!r}, got only {seen}: give labels")
    night = (
        np.zeros(len(log), np.int64)
        if nights is None
        else np.unique(_column(log, "nights", nights), return_inverse=True)[1]
    )
    return _Labels(version, night)


def _column(log: Sessions, name: str, given: Any) -> Array:
    if isinstance(given, str):
        if log.features is None or given not in log.features:
            raise InvalidArgument(
                f"{name} must name a feature of the log or hold one label for each session, got {given!r}"
            )
        given = log.features[given]
    found = np.asarray(given)
    if found.shape != (len(log),):
        raise InvalidArgument(f"{name} must hold one label for each of {len(log)} sessions, got shape {found.shape}")
    return found


def _live(policy: Policy, other: Policy, log: Sessions, horizon: int, labels: _Labels, confidence: float) -> Comparison:
    """Sessions of both, from the step on at which the two would choose differently, compared within nights."""
    first = _first_difference(policy, other, log, horizon)
    step = np.arange(log.n_steps) - np.repeat(log.offsets[:-1], log.lengths)
    late = np.where((step >= np.repeat(first, log.lengths)) & (step < horizon), log.rewards, 0.0)
    rest, whole = np.add.reduceat(late, log.offsets[:-1]), _totals(log)
    counts = first < log.lengths
    differ, n = float(counts.mean()), int((labels.version >= 0).sum())
    if not counts.any():  # the two play the same in every session of the log
        mean = float(whole.mean())
        return Comparison(mean, mean, (0.0, 0.0), 0.0, _LIVE, n, 0.0, float(whole.var()))
    start = counts & (labels.night == labels.night.min()) & (labels.version == 1)
    before = rest[start] if start.sum() > 1 else rest[counts]
    mean, variance = float(before.mean()), max(float(before.var()), 1e-12)
    seen, looks, tail = StratifiedEvidence(), [], (1 - confidence) / 2
    for night in np.unique(labels.night):
        parts = [rest[counts & (labels.night == night) & (labels.version == number)] for number in (0, 1)]
        seen = seen.add(Stratum.of(*parts))
        looks.append(GainBounds(*(float(one) * differ for one in bounds(seen, mean, variance, tail, tail))))
    means = [float(whole[labels.version == number].mean()) for number in (0, 1)]
    last = looks[-1]
    error = differ * float(np.sqrt(seen.variance) / max(float(seen.information), 1e-12))
    spread = float(whole[labels.version == 1].var())
    return Comparison(
        means[1] + last.gain, means[1], (last.low, last.high), error, _LIVE, n, float(seen.n_new), spread, tuple(looks)
    )


def _first_difference(policy: Policy, other: Policy, log: Sessions, horizon: int) -> Integer[Array, "N"]:
    """The step of each session from which on the policies may differ; its length where they never do."""
    first = np.zeros(len(log), np.int64)
    if not (policy.deterministic and other.deterministic):
        return first
    both, memory = (policy.compact(), other.compact()), dict[tuple[Any, ...], bool]()
    starts = [initial_memories(one, log) for one in (policy, other)]
    if any(one is not None for one in starts):
        return _first_difference_known((policy, other), starts, log, horizon)
    for number in range(len(log)):
        one = log[number]
        steps = list(zip(one.arms.tolist(), one.rewards.tolist(), strict=True))[:horizon]
        states, first[number] = [each.start() for each in both], len(one.arms)
        for step, (arm, reward) in enumerate(steps):
            key = tuple(steps[:step])
            if key not in memory:
                memory[key] = both[0].act(states[0]) == both[1].act(states[1])
            if not memory[key]:
                first[number] = step
                break
            states = [each.observe(state, arm, reward) for each, state in zip(both, states, strict=True)]
    return first


def _first_difference_known(
    both: tuple[Policy, Policy], starts: Sequence[Float[Array, "N K"] | None], log: Sessions, horizon: int
) -> Integer[Array, "N"]:
    """The same where sessions start from what is known before them."""
    first, live = log.lengths.copy(), np.arange(len(log))
    states = [
        policy.start(len(log)) if memory is None else State(0, memory, single=False)
        for policy, memory in zip(both, starts, strict=True)
    ]
    for step in range(min(horizon, log.horizon)):
        there = log.lengths[live] > step
        alike = np.asarray(both[0].act(states[0])) == np.asarray(both[1].act(states[1]))
        first[live[there & ~alike]] = step
        going = np.flatnonzero(there & alike)
        live = live[going]
        if step + 1 == min(horizon, log.horizon) or len(live) == 0:
            break
        places = log.offsets[live] + step
        seen = log.arms[places], log.rewards[places]
        states = [
            policy.observe(State(step, state.memory[going], single=False), *seen)
            for policy, state in zip(both, states, strict=True)
        ]
    return first


def _from_log(
    policy: Policy,
    other: Policy,
    sessions: Sessions,
    horizon: int,
    model: LatentBandit | None,
    confidence: float,
    rng: Rng | None,
) -> Comparison:
    """Both values from a log with propensities."""
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
    rewards, variance = Range.of(sessions, model), float(_totals(sessions).var())
    values = np.clip(values, horizon * rewards.least, horizon * rewards.most).tolist()
    effective = float(min(sums.effective.min() for sums in both))
    if effective < LEAST:
        return Comparison(values[0], values[1], None, np.nan, METHODS[row], len(sessions), effective, variance)
    error = float(jackknife(np.subtract(*(without_each(sums.groups)[row] for sums in both))))
    interval = _interval(both, _tails(both, effective, rewards), row, confidence)
    return Comparison(values[0], values[1], interval, error, METHODS[row], len(sessions), effective, variance)


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


def _picture(looks: Sequence[GainBounds]) -> str:
    """The difference after each night and its bounds; bounds that are too wide to tell anything are cut off."""
    width, height, left = 640, 260, 60
    top = 1.5 * max(max(abs(look.low), abs(look.high)) for look in looks[-3:]) or 1.0

    def x(night: int) -> float:
        return left + (width - left - 20) * (night + 0.5) / len(looks)

    def y(value: float) -> float:
        return height / 2 - (height / 2 - 25) * float(np.clip(value / top, -1, 1))

    bars = "".join(
        f'<line x1="{x(n):.1f}" x2="{x(n):.1f}" y1="{y(look.low):.1f}" y2="{y(look.high):.1f}" stroke="#2563a8" '
        f'stroke-width="6" opacity="0.35"/><circle cx="{x(n):.1f}" cy="{y(look.gain):.1f}" r="4" fill="#2563a8"/>'
        for n, look in enumerate(looks)
    )
    marks = "".join(
        f'<text x="{left - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:+.3g}</text>'
        for value in (top / 1.5, 0.0, -top / 1.5)
    )
    words = f'<text x="{left}" y="{height - 4}">night 1</text>'
    words += f'<text x="{width - 20}" y="{height - 4}" text-anchor="end">night {len(looks)}</text>'
    words += f'<text x="{left}" y="14">gain per session, with bounds that hold at all nights together</text>'
    zero = f'<line x1="{left}" x2="{width - 20}" y1="{y(0):.1f}" y2="{y(0):.1f}" stroke="#888" stroke-dasharray="4 3"/>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="12" fill="#444">{zero}{bars}{marks}{words}</svg>\n'
    )
