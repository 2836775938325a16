"""Canary: a new version gets a share of new sessions, and their rewards decide, in a test with a look every night.

Both versions explore with the same floors, so their sessions have one law until the plans disagree. Only sessions that
reach such a step count, from it on, and whole sessions where that step cannot be known. They are compared within the
spans between two refits, in which the share stays.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from .._shapes import Array, Float
from ..evaluation.sequential import GainBounds, StratifiedEvidence, Stratum, bounds, sessions_needed
from .live import LiveSession
from .stores import Decision, LogRow, Rollout
from .versions import ArmTable

SHARES = (0.05, 0.2, 0.5)  # Shares of new sessions, one after another.
RAISE_AFTER = 3  # nights at one share
PATIENCE = 14  # nights after which a difference below the margin decides
END = 28  # nights after which a canary that nothing decided makes room for the newest plan
MARGIN = 0.02  # part of the reward of a session that does not matter
SAME = 0.005  # part of the sessions in which plans differ, below which they are one plan
APART = 43_200.0  # seconds from which on two looks are two nights
FEWEST = 30  # sessions with different plans that a mean and a variance need
RECENT = 4000  # sessions before the canary, for the expected duration of the test

NEWER, OLDER = "newer", "older"  # which plan stays in force where two earn the same
_MISMATCH = 1e-4  # p-value below which a sample ratio is wrong: one false alarm in 10,000 looks
_FOLLOW = 10.0  # seconds in which every replica follows the register; they read it once a second
WAIT, BETTER, NO_WORSE, WORSE, USELESS, TOO_LONG = 0, 1, 2, -1, -2, -3
WORDS = {
    WAIT: "not clear yet",
    BETTER: "it surely earns more",
    NO_WORSE: f"a tie: it surely earns no less, but for {MARGIN:.0%}, and it is the newer plan",
    WORSE: "it surely earns less",
    USELESS: f"it surely earns no {MARGIN:.0%} more",
    TOO_LONG: f"not clear after {END} nights",
}


def verdict(found: GainBounds, night: Any, margin: Any, ties: str = NEWER) -> Any:
    """Return the verdict of the bounds after a number of nights: positive promotes, negative withdraws. Broadcasts.

    A plan that earns the same is called better with a chance of at most `sequential.ALPHA`. A tie is another thing: the
    newer plan surely earns no less but for the margin, and comes into force for being newer. With `ties` "older" the
    version in force stays then, and only a better version comes into force.

    Examples:
        >>> found = GainBounds(np.array([0.1, -0.1, -0.1]), np.array([0.2, 0.0, 0.0]), np.array([0.3, -0.05, 0.1]))
        >>> verdict(found, 3, 0.02).tolist()
        [1, -1, 0]
    """
    late, ended = np.asarray(night) >= PATIENCE, np.broadcast_to(np.asarray(night) >= END, np.shape(found.low))
    surely = [found.low > 0, found.high < 0]
    in_time = [late & (found.low > -margin) & (ties == NEWER), late & (found.high < margin)]
    return np.select([*surely, *in_time, ended], [BETTER, WORSE, NO_WORSE, USELESS, TOO_LONG], WAIT)


def next_share(share: Any, night: Any, gain: Any, shares: Sequence[float] = SHARES) -> Any:
    """The share from now on: raised every few nights, but only while the canary earns more. Broadcasts."""
    rung = np.minimum(np.asarray(night) // RAISE_AFTER, len(shares) - 1)
    return np.where(np.asarray(gain) > 0, np.maximum(share, np.asarray(shares)[rung]), share)


class Look(NamedTuple):
    """State of a canary at one look; gains are per session of all, counted or not."""

    at: float
    share: float  # until this night
    n_new: int  # counted sessions since the canary began
    n_old: int
    low: float
    gain: float
    high: float


@dataclass(frozen=True)
class Canary:
    """Running test: expectations before it, and its nights so far."""

    version: str
    began: float
    differ: float  # share of the sessions in which the plans, replayed, play different arms
    counted: float  # share of the sessions that count, with the ones that cannot be replayed
    mean: float  # mean reward of such sessions from that step on
    variance: float
    whole: float  # reward of a session
    nights: tuple[Look, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"needed": self.needed(), "nights": [night._asdict() for night in self.nights]}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Canary:
        known = {name: found[name] for name in ("version", "began", "differ", "mean", "variance", "whole")}
        known["counted"] = found.get("counted", found["differ"])  # a test that an earlier release began has one share
        return cls(**known, nights=tuple(Look(**night) for night in found["nights"]))

    def needed(self, gain: float = MARGIN, share: float = SHARES[1]) -> float:
        """Sessions of all until a gain, a part of a session's reward, is seen in 4 of 5 cases."""
        return sessions_needed(gain * self.whole / self.counted, self.mean, self.variance, share=share) / self.counted

    def look(
        self,
        counted: Sequence[Counted],
        active: str,
        at: float,
        share: float,
        changes: Sequence[float] = (),
        ties: str = NEWER,
    ) -> tuple[Canary, int]:
        """The canary after another look, and the verdict; `changes` are times at which the share was changed.

        A second look in one night takes the place of the first, so that frequent looks do not shorten a test.
        """
        past = self.nights[:-1] if self.nights and at - self.nights[-1].at < APART else self.nights
        edges = sorted({*(night.at for night in past), *changes})
        seen = evidence(counted, self.version, active, edges)
        per_counted = bounds(seen, self.mean, self.variance)
        most = 100 * abs(self.whole) + 1  # where no session has come, the bounds are as wide as they are meaningless
        low, gain, high = (float(np.clip(one * self.counted, -most, most)) for one in per_counted)
        night = Look(at, share, int(seen.n_new), int(seen.n_old), low, gain, high)
        after = replace(self, nights=(*past, night))
        return after, int(verdict(GainBounds(low, gain, high), len(after.nights), MARGIN * self.whole, ties))


def ratio_is_wrong(began: Iterable[tuple[float, str]], rollouts: Sequence[Rollout], until: float) -> str:
    """Return a sentence if the canary's share of new sessions differs from the asked one, and an empty text otherwise.

    Each span between two changes of the register has an exact binomial test; the smallest p-value times the number of
    spans must be below `_MISMATCH`. Sessions of the first seconds of a span are left out: replicas follow one by one.

    Args:
        began: time and version of the sessions.
        rollouts: entries of the register, the newest first; entries without the canary of the first one do not count.
        until: end of the newest span.
    """
    from scipy.stats import binomtest

    spans, end, canary = list[tuple[float, float, float]](), until, rollouts[0].canary
    for one in rollouts:
        if one.canary == canary and one.at + _FOLLOW < end:
            spans.append((one.at + _FOLLOW, end, one.share))
        end = one.at
    sessions, worst = [one for one in began if one[1] in (canary, rollouts[0].active)], (1.0, 0, 0, 0.0)
    for low, high, share in spans:
        versions = [version == canary for at, version in sessions if low <= at < high]
        if versions:
            p_value = float(binomtest(sum(versions), len(versions), share).pvalue)
            worst = min(worst, (p_value, sum(versions), len(versions), share))
    if worst[0] * len(spans) >= _MISMATCH:
        return ""
    p_value, n, total, share = worst
    return f"Its share of new sessions is wrong: {n:,} of {total:,}, {share:.0%} was asked (p = {p_value:.1g})."


class Counted(NamedTuple):
    """Rewards of a session from the step on at which two plans differ."""

    policy: str
    began: float
    reward: float


def evidence(counted: Iterable[Counted], new: str, old: str, edges: Sequence[float]) -> StratifiedEvidence:
    """The sums of the sessions of two versions, within the spans between `edges`."""
    strata: dict[int, dict[str, list[float]]] = {}
    for one in counted:
        if one.policy in (new, old):
            strata.setdefault(bisect_right(edges, one.began), {new: [], old: []})[one.policy].append(one.reward)
    seen = StratifiedEvidence()
    for _, parts in sorted(strata.items()):
        seen = seen.add(Stratum.of(parts[new], parts[old]))
    return seen


class Compared(NamedTuple):
    """Sessions as two plans see them."""

    counted: list[Counted]  # sessions in which the plans may differ
    n: int  # all sessions
    total: float  # sum of the rewards of all
    n_differ: int  # sessions in which the plans, replayed, play different arms


def count_sessions(sessions: Iterable[Sequence[LogRow]], one: ArmTable, other: ArmTable) -> Compared:
    """Count the sessions, given by their steps, in which two plans may differ, from that step on, and all sessions."""
    counted, n, total, n_differ = list[Counted](), 0, 0.0, 0
    asks = any(table.version.asks for table in (one, other))
    replayed: dict[tuple[Any, ...], int | None] = {}  # most sessions equal another one
    for steps in sessions:
        n += 1
        total += sum(row.reward or 0.0 for row in steps)
        seen = (steps[0].features if asks else None, *[(row.arm, row.reward) for row in steps])
        if seen not in replayed:
            replayed[seen] = first_difference(steps, one, other)
        n_differ += replayed[seen] is not None
        first = 0 if beyond_replay(steps) else replayed[seen]
        if first is not None:
            rest = sum(row.reward or 0.0 for row in steps[first:])
            counted.append(Counted(steps[0].policy, steps[0].began, rest))
    return Compared(counted, n, total, n_differ)


def first_difference(steps: Sequence[LogRow], one: ArmTable, other: ArmTable) -> int | None:
    """The first of these steps at which two versions, asked by the same session, would play different arms.

    Both are replayed by the code that serves sessions.
    """
    lives = [LiveSession("", table, None, [], False, steps[0].features) for table in (one, other)]
    for index, row in enumerate(steps):
        if lives[0].best(None)[0] != lives[1].best(None)[0]:
            return index
        for live in lives:
            live.rows.append(Decision(row.session, row.step, row.arm, None, "", row.at, 0, 0, None, None, None))
            if row.reward is not None and live.table.version.accepts(row.reward):
                live.learn(index, row.reward)
    return None


def beyond_replay(steps: Sequence[LogRow]) -> bool:
    """Whether the versions knew other things than a replay does, so that they may have differed from the start on.

    A replay knows neither which arms a request allowed, nor earlier sessions of a person, nor that a reward came only
    after the next decision.
    """
    late = any(row.told is not None and row.told > after.at for row, after in pairwise(steps))
    return late or any(row.restricted or row.known for row in steps)


def expected(
    latest: Sequence[Sequence[LogRow]], new: ArmTable, old: ArmTable, version: str, at: float
) -> Canary | None:
    """Return a test that begins now, with expectations from the latest sessions; None if both are one plan."""
    found = count_sessions(latest, new, old)
    if found.n_differ < max(SAME * found.n, FEWEST):
        return None
    rewards: Float[Array, "n"] = np.array([one.reward for one in found.counted])
    variance = float(rewards.var()) or 1e-6
    differ, counted = found.n_differ / found.n, len(rewards) / found.n
    return Canary(version, at, differ, counted, float(rewards.mean()), variance, found.total / found.n)
