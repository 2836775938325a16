"""Importance weights of logged sessions under a policy, their sums, and the intervals made from these.

A weight says how much likelier the policy is to act as the session did than the policy that logged it. For every
session and step there are four numbers: the weighted reward, the weight, the weighted reward with a model's control
variates, and whether the session has this step. Every off-policy estimate is a function of their sums over sessions.
Where the log says who left, whoever left has the later steps too: they earn 0 there, and the weight of the session is
carried on, because the end of a session is a part of what the policy brought about.

Few sessions carry the weight, so a log may miss the session that would move the estimate most. Each end of an interval
therefore counts one session more than the log has. Its weight at each step is the largest that was seen, or more where
the weights average less than 1 by more than chance explains, because then the log lacks that much of what the policy
does. It earns the least possible reward for the lower end, and the largest one for the upper end. The bootstrap draws
it like any other session. Thirty sessions that earned nothing then do not prove that the policy earns nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from .._shapes import Array, Bool, Float, Integer, Shaped
from ..data.features import LEFT
from ..data.sessions import Sessions
from ..model import belief
from ..model.bandit import LatentBandit
from ..model.rewards import MAX_VALUES
from ..policies.histories import initial_memories
from ..policies.policy import Policy, State

REWARD, WEIGHT, ROBUST, REACHED = range(4)  # what is summed for each step
CHUNK = 8192  # sessions processed at once
GROUPS = 10_000  # units of the jackknife and the bootstrap; at least a chunk of sessions
Interval = tuple[float, float]
_REPLICATES_AT_ONCE = 100
_CHANCE = 2.0  # standard errors of the average weight that chance explains
_RARE = 0.01  # share of continuous rewards beyond what the session that the log lacks earns
_LOOKED_AT = 100_000  # rewards, of a larger log, that tell whether rewards are continuous


@dataclass(frozen=True, eq=False)
class Sums:
    """What a log adds up to under a policy."""

    groups: Float[Array, "G 4 H"]  # the sums over groups of sessions
    effective: Float[Array, "H"]  # the effective sample of each step
    followed: Integer[Array, "H"]  # sessions that agree with the policy up to each step
    heaviest: Float[Array, "H"]  # the largest weight of each step

    @classmethod
    def of(
        cls,
        policy: Policy,
        sessions: Sessions,
        horizon: int,
        model: LatentBandit | None,
        outlook: Float[Array, "H M"] | None,
    ) -> Sums:
        groups = np.zeros((min(len(sessions), GROUPS), 4, horizon))
        squares, followed, heaviest = np.zeros(horizon), np.zeros(horizon, np.int64), np.zeros(horizon)
        for rows, part in contributions(policy, sessions, horizon, model, outlook):
            groups[rows % len(groups)] += part
            squares += (part[:, WEIGHT] ** 2).sum(axis=0)
            followed += (part[:, WEIGHT] > 0).sum(axis=0)
            heaviest = np.maximum(heaviest, part[:, WEIGHT].max(axis=0))
        weight = groups[:, WEIGHT].sum(axis=0)
        effective = np.divide(weight**2, squares, out=np.zeros(horizon), where=squares > 0)
        return cls(groups, effective, followed, heaviest)


def contributions(
    policy: Policy, sessions: Sessions, horizon: int, model: LatentBandit | None, outlook: Float[Array, "H M"] | None
) -> Iterator[tuple[Integer[Array, "n"], Float[Array, "n 4 H"]]]:
    """For each chunk: the rows of its sessions, and what each adds to the sums; all start from what is known."""
    memory = initial_memories(policy, sessions)
    for start in range(0, len(sessions), CHUNK):
        rows = np.arange(start, min(start + CHUNK, len(sessions)))
        part = np.zeros((len(rows), 4, horizon))
        part[:, REACHED] = np.arange(horizon) < sessions.lengths[rows, None]
        state = policy.start(len(rows)) if memory is None else State(0, memory[rows], single=False)
        _follow(policy, state, sessions, rows, part, model, outlook)
        if knows_who_left(sessions):
            _carry_on(part)
        part[:, ROBUST] = (part[:, ROBUST] + part[:, REWARD]) * part[:, REACHED]
        yield rows, part


def knows_who_left(sessions: Sessions) -> bool:
    """Whether the log says that sessions were left, so that those who left count with rewards of 0."""
    return sessions.endings is not None and bool((sessions.endings == LEFT).any())


def _carry_on(part: Float[Array, "n 4 H"]) -> None:
    """Give sessions that were left their later steps, with the weight of their last one."""
    for step in range(1, part.shape[2]):
        gone = part[:, REACHED, step] == 0
        part[gone, WEIGHT, step] = part[gone, WEIGHT, step - 1]
    part[:, REACHED] = 1.0


def _follow(
    policy: Policy,
    state: State,
    sessions: Sessions,
    rows: Integer[Array, "n"],
    part: Float[Array, "n 4 H"],
    model: LatentBandit | None,
    outlook: Float[Array, "H M"] | None,
) -> None:
    """Fill in weights, weighted rewards and control variates; a session ends where the policy plays another arm."""
    assert sessions.propensities is not None
    live, weights = np.arange(len(rows)), np.ones(len(rows))
    beliefs = np.empty((len(rows), 0)) if model is None else belief.prior(model, len(rows))
    for step in range(part.shape[2]):
        state, live, weights, beliefs = _keep(part[live, REACHED, step] > 0, state, live, weights, beliefs)
        if len(live) == 0:
            return
        places = sessions.offsets[rows[live]] + step
        arms, rewards = sessions.arms[places], sessions.rewards[places]
        decision = _decide(policy, state, sessions.n_arms)
        after = weights * _of(decision, arms) / sessions.propensities[places]
        part[live, WEIGHT, step], part[live, REWARD, step] = after, after * rewards
        if model is not None and outlook is not None:
            part[live, ROBUST, step:] += _control(
                model.at(step), outlook[step:], beliefs, decision, arms, weights, after
            )
        kept = _keep(after > 0, state, live, after, beliefs, arms, rewards)
        state, live, weights, beliefs, arms, rewards = kept
        if step + 1 < part.shape[2] and len(live):
            state = policy.observe(state, arms, rewards)
            beliefs = beliefs if model is None else belief.update(model, beliefs, arms, rewards, step)


def _control(
    model: LatentBandit,
    outlook: Float[Array, "left M"],
    beliefs: Float[Array, "n M"],
    decision: Shaped[Array, "n *A"],
    arms: Integer[Array, "n"],
    before: Float[Array, "n"],
    after: Float[Array, "n"],
) -> Float[Array, "n left"]:
    """Control variates of this step and later ones: the model's prediction for the policy minus that for the log.

    The prediction for this step is the arm's mean under the belief; for a later step it is the policy's mean in each
    type. Given the session so far, the expectation of a control variate is zero for any model.
    """
    beliefs = belief.normalise(beliefs)
    means, everyone = beliefs @ model.means, np.arange(len(arms))
    ahead = means[everyone, decision] if decision.ndim == 1 else np.einsum("na,na->n", decision, means)
    control = (before - after)[:, None] * (beliefs @ outlook.T)
    control[:, 0] = before * ahead - after * means[everyone, arms]
    return control


def _keep(mask: Bool[Array, "n"], state: State, *columns: Array) -> Any:
    """The sessions of `mask`."""
    if mask.all():
        return (state, *columns)
    return (State(state.step, state.memory[mask], single=False), *(column[mask] for column in columns))


def _decide(policy: Policy, state: State, n_arms: int) -> Shaped[Array, "n *A"]:
    """The arm of each session where the policy is deterministic, else the probabilities of all arms."""
    if policy.deterministic:
        return np.asarray(policy.act(state))
    return policy.distribution(state, n_arms=n_arms)


def _of(decision: Shaped[Array, "n *A"], arms: Integer[Array, "n"]) -> Float[Array, "n"]:
    """Probability of `arms` under a decision."""
    return (decision == arms).astype(np.float64) if decision.ndim == 1 else decision[np.arange(len(arms)), arms]


@dataclass(frozen=True)
class Range:
    """Rewards of a step: the least and the largest, and those that a session which the log lacks is given."""

    least: float
    most: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """The most by which two rewards differ."""
        return self.most - self.least

    @classmethod
    def of(cls, sessions: Sessions, model: LatentBandit | None) -> Range:
        """What the log and the model know: their extremes; 0 and 1 where all rewards of the log are 0 or 1.

        Rewards with many values are taken for continuous: their extremes grow with the log, so that the session which
        the log lacks is given a percentile.

        Examples:
            >>> Range.of(Sessions.from_arrays([[0, 1]], [[0.0, 0.0]]), None)
            Range(least=0.0, most=1.0, low=0.0, high=1.0)
            >>> Range.of(Sessions.from_arrays([[0, 1]], [[2.0, -1.0]]), None)
            Range(least=-1.0, most=2.0, low=-1.0, high=2.0)
        """
        known = [float(sessions.rewards.min()), float(sessions.rewards.max())]
        if set(known) <= {0.0, 1.0}:
            known += [0.0, 1.0]
        if model is not None and model.rewards.values is not None:
            known += model.rewards.values.tolist()
        least, most = min(known), max(known)
        some = sessions.rewards[:: max(len(sessions.rewards) // _LOOKED_AT, 1)]
        if len(np.unique(some)) <= MAX_VALUES:
            return cls(least, most, least, most)
        low, high = np.quantile(some, [_RARE, 1 - _RARE]).tolist()
        return cls(least, most, low, high)


@dataclass(frozen=True, eq=False)
class Tails:
    """What a session that the log does not hold could add to the sums."""

    weights: Float[Array, "H"]  # its weight at each step
    effective: float  # the smallest effective sample over the steps
    rewards: Range

    @classmethod
    def of(cls, sums: Float[Array, "G 4 H"], heaviest: Float[Array, "H"], effective: float, rewards: Range) -> Tails:
        """From the sums, the largest weight seen at each step, the effective sample and the range of rewards."""
        average, error = average_weights(sums)
        lacking = sums[:, REACHED].sum(axis=0) * (1 - average - _CHANCE * error)
        return cls(np.maximum(heaviest, lacking), effective, rewards)

    @property
    def bounds(self) -> Interval:
        """What a session can earn."""
        return len(self.weights) * self.rewards.least, len(self.weights) * self.rewards.most

    def sessions_beside(self, sums: Float[Array, "G 4 H"]) -> Float[Array, "2 4 H"]:
        """What that session adds to the sums of a log, of which the doubly robust estimate had expected this much."""
        return self.sessions(np.clip(estimates(sums.sum(axis=0))[2], self.rewards.low, self.rewards.high))

    def sessions(self, expected: Float[Array, "H"]) -> Float[Array, "2 4 H"]:
        """What that session adds, if it earns little and if it earns much; the model had `expected` of each step."""
        parts = np.empty((2, 4, len(self.weights)))
        for part, reward in zip(parts, (self.rewards.low, self.rewards.high), strict=True):
            part[REWARD], part[WEIGHT], part[REACHED] = self.weights * reward, self.weights, 1.0
            part[ROBUST] = expected + self.weights * (reward - expected)
        return parts


def average_weights(sums: Float[Array, "G 4 H"]) -> tuple[Float[Array, "H"], Float[Array, "H"]]:
    """The average weight of each step, 1 in expectation where the propensities are true, and its standard error."""
    weights, reached = sums[:, WEIGHT], sums[:, REACHED]
    average = weights.sum(axis=0) / reached.sum(axis=0)
    deviation = weights - average * reached
    return average, np.sqrt((deviation**2).sum(axis=0)) / reached.sum(axis=0)


def estimates(total: Float[Array, "*n 4 H"]) -> Float[Array, "3 *n H"]:
    """Expected reward of each step by the three methods, from the sums over sessions; NaN where there is no weight."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.stack(
            [
                total[..., REWARD, :] / total[..., REACHED, :],
                total[..., REWARD, :] / total[..., WEIGHT, :],
                total[..., ROBUST, :] / total[..., REACHED, :],
            ]
        )


def standard_errors(sums: Float[Array, "G 4 H"]) -> Float[Array, "3"]:
    """Of the three totals, by the jackknife over sessions or groups of them."""
    return jackknife(without_each(sums))


def without_each(sums: Float[Array, "G 4 H"]) -> Float[Array, "3 G"]:
    """The three totals without the first group of sessions, without the second, and so on."""
    return estimates(sums.sum(axis=0) - sums).sum(axis=2)


def jackknife(left_out: Float[Array, "*n G"]) -> Float[Array, "*n"]:
    """The standard error of a total, from what it is without each group."""
    size = left_out.shape[-1]
    spread = ((left_out - left_out.mean(axis=-1, keepdims=True)) ** 2).sum(axis=-1)
    return np.asarray(np.sqrt((size - 1) / size * spread))


def intervals(
    sums: Float[Array, "G 4 H"],
    tails: Tails,
    confidence: float,
    n_bootstrap: int,
    rng: np.random.Generator | None,
) -> list[Interval]:
    """The interval of each method: percentiles of the bootstrap over sessions; without `rng` from standard errors."""
    tail = (1 - confidence) / 2
    extra = tails.sessions_beside(sums)
    middles = estimates(sums.sum(axis=0) + extra).sum(axis=2).T
    reach = student_reach(tails.effective, tail)
    if rng is None:
        errors = np.stack([standard_errors(np.concatenate([sums, part[None]])) for part in extra])
        ends = middles + reach * errors * [[-1.0], [1.0]]
    else:
        low, high = _resample(sums, extra, n_bootstrap, rng)
        ends = np.stack([np.quantile(low, tail, axis=1), np.quantile(high, 1 - tail, axis=1)])
        ends = middles + reach / NormalDist().inv_cdf(1 - tail) * (ends - middles)
    return [(float(low), float(high)) for low, high in np.clip(ends, *tails.bounds).T]


def student_reach(effective: float, tail: float) -> float:
    """Standard errors that an interval reaches from its middle, where few sessions tell how large such an error is."""
    from scipy.special import stdtrit

    return float(stdtrit(effective - 1, 1 - tail) * np.sqrt(effective / (effective - 1)))


def _resample(
    sums: Float[Array, "G 4 H"], extra: Float[Array, "2 4 H"], n_bootstrap: int, rng: np.random.Generator
) -> Float[Array, "2 3 B"]:
    """Totals of the three methods on resampled sessions, for each of the two sessions added to the log."""
    size, flat, replicates = len(sums) + 1, sums.reshape(len(sums), -1), []
    for start in range(0, n_bootstrap, _REPLICATES_AT_ONCE):
        n = min(_REPLICATES_AT_ONCE, n_bootstrap - start)
        counts = np.stack([np.bincount(rng.integers(size, size=size), minlength=size) for _ in range(n)])
        drawn = (counts[:, :-1] @ flat).reshape(n, *sums.shape[1:])
        added = counts[:, -1, None, None] * extra[:, None]
        replicates.append(estimates(drawn + added).sum(axis=3).swapaxes(0, 1))
    return np.concatenate(replicates, axis=2)
