"""Problem, clock and plan: the input and the output of planners."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from .. import _registry, files
from .._html import best_fixed, card, percent
from .._kernel.arrays import TINY
from .._shapes import Array, Bool, Float, Integer
from ..checks import check_count
from ..errors import InvalidArgument, Status
from ..model.attrition_values import (
    KnownTypeValues,
    arm_orders_by_type,
    best_fixed_sequence,
    constant_arm_values,
    known_type_values,
    known_type_values_without_repeats,
)
from ..model.bandit import LatentBandit, bandit_of
from ..policies.policy import Policy, restore_policy
from .advice import FittedModel, SavedModel
from .step_model import StepModel

_ORDERED = 8  # types, the most frequent ones, for which orders of arms are kept
_WIDTH = 256  # sets of arms that the search for an order for all types together keeps
_CHUNK, _NEAR = 1024, 16  # priors at which bounds are computed at once, and known ones that each is compared with
UPPER_BINS = 24  # of the observations that upper bounds are computed with: .15% above the value on 30 bandits
BINS = 12  # into which continuous rewards of an arm are cut while planning


class Bounds(NamedTuple):
    """Bounds that were proved after `seconds` seconds.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> bounds = lmab.plan(bandit, horizon=5, method=lmab.Exact()).trace[-1]
        >>> round(bounds.lower, 5), bounds.lower == bounds.upper
        (3.35771, True)
    """

    seconds: float
    lower: float
    upper: float


class Step(NamedTuple):
    """Payoffs and observations at one step of a session."""

    means: Float[Array, "A M"]  # exact mean rewards, also if the observations are bins of the rewards
    table: Float[Array, "D M"]  # row a*Z + z: P(observation z, the session continues | arm a, type)
    stays: Float[Array, "A M"]  # probability that the session continues


Shared = tuple[Float[Array, "_ _"], Float[Array, "_"]]  #: priors over types, and the share of the persons with each


class OutOfTime(Exception):
    """End of the time limit inside a computation that has no result yet."""


class Clock:
    """Clock of one run of a planner: it collects the trace, enforces the time limit and calls `progress`.

    Examples:
        >>> import lmab
        >>> clock = lmab.planning.Clock(time_limit=60.0, progress=lambda bounds: print(bounds.lower, bounds.upper))
        >>> clock.record(2.0, 4.0)
        2.0 4.0
        >>> clock.record(1.0, 3.0)  # a worse lower bound than the one before proves nothing new
        2.0 3.0
        >>> clock.expired, len(clock.trace)
        (False, 2)
    """

    def __init__(self, time_limit: float, progress: Callable[[Bounds], None] | None = None) -> None:
        self.time_limit = time_limit
        self.progress = progress
        self.trace: list[Bounds] = []
        self._start = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Return the seconds since the run began."""
        return time.perf_counter() - self._start

    @property
    def expired(self) -> bool:
        """Return whether the time limit is reached; the planner then stops and returns its bounds."""
        return self.seconds >= self.time_limit

    @property
    def seconds_left(self) -> float:
        """Return the seconds until the time limit."""
        return self.time_limit - self.seconds

    def part(self, share: float, *, lower: float | None = None, upper: float | None = None) -> Clock:
        """Return a clock for a share of the time that is left; its records reach this one, with the given bounds."""
        return _PartOfClock(self, share * self.seconds_left, lower, upper)

    def record(self, lower: float, upper: float) -> None:
        """Record the bounds proved so far; the trace keeps the best lower and the best upper bound."""
        if self.trace:
            lower, upper = max(lower, self.trace[-1].lower), min(upper, self.trace[-1].upper)
        self.trace.append(Bounds(self.seconds, lower, upper))
        if self.progress is not None:
            self.progress(self.trace[-1])


class _PartOfClock(Clock):
    """A clock that also stops if the clock of the whole run does; one of its bounds may be replaced there."""

    def __init__(self, whole: Clock, time_limit: float, lower: float | None, upper: float | None) -> None:
        super().__init__(time_limit)
        self._whole, self._lower, self._upper = whole, lower, upper

    @property
    def expired(self) -> bool:
        return self._whole.expired or super().expired

    def record(self, lower: float, upper: float) -> None:
        super().record(lower, upper)
        self._whole.record(lower if self._lower is None else self._lower, upper if self._upper is None else self._upper)


@dataclass(frozen=True, eq=False)
class Problem:
    """Planning problem: M types of positive weight, A arms, Z observations per arm, H steps.

    Payoffs and observations are separate, and both may depend on the step: S payoffs and tables are shared by the
    steps. A pair of arm and observation is one of D = A*Z codes. Values refer to unnormalised beliefs, rows of M
    numbers.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.0, 0.5], [[0.9, 0.5], [0.3, 0.3], [0.1, 0.6]])
        >>> problem = lmab.planning.Problem.of(bandit, 5)
        >>> problem.types, problem.n_arms, problem.n_values
        (array([0, 2]), 2, 2)
        >>> problem.means @ problem.weights  # the expected reward of each arm before any observation
        array([0.5 , 0.55])
        >>> round(problem.full_information, 10)
        3.75
    """

    bandit: LatentBandit
    horizon: int
    types: Integer[Array, "M"]  # types of positive weight, as numbered in the bandit
    weights: Float[Array, "M"]
    tables: Float[Array, "S D M"]  # row a*Z + z: P(observation z, the session continues | arm a, type)
    payoffs: Float[Array, "S A M"]  # exact mean rewards, also if the observations are bins of the rewards
    step_tables: Integer[Array, "T"]  # by steps to go 0, ..., H: which of the S entries holds at the step
    edges: Float[Array, "A edges"] | None  # inner edges of the bins of continuous rewards
    repeats: bool = True  # False: a session plays each arm at most once
    priors: Float[Array, "K M"] | None = None  # of the starts; None: all sessions start at `weights`
    shares: Float[Array, "K"] | None = None  # Share of the sessions that start at each prior.
    people: Shared | None = None  # the most frequent of all priors, if `priors` are the ones of groups
    has_own_steps: bool = False  # payoffs and tables were given by `with_steps`, not derived from the bandit

    @classmethod
    def of(
        cls,
        bandit: LatentBandit,
        horizon: int,
        bins: int = BINS,
        *,
        repeats: bool = True,
        priors: Float[Array, "K N"] | None = None,
        shares: Float[Array, "K"] | None = None,
        people: Shared | None = None,
    ) -> Problem:
        """Return the problem of `bandit`; continuous rewards are put into `bins` bins per arm.

        With `priors` (over all types of the bandit) a part of the sessions, given by `shares`, starts at each of them,
        and values are means over the sessions.
        """
        bandit = bandit_of(bandit)
        possible = bandit.weights > 0 if priors is None else (priors > 0).any(axis=0)
        types = np.flatnonzero(possible)
        own = None if priors is None else np.ascontiguousarray(priors[:, types])
        weights = bandit.weights[types] if own is None or shares is None else shares @ own
        models, index = bandit.step_models(horizon)
        first = models[index[0]].outcomes(bins)
        channels = [first if k == index[0] else model.outcomes(bins, first.edges) for k, model in enumerate(models)]
        return cls(
            bandit,
            horizon,
            types,
            weights,
            np.stack([channel.table[:, types] for channel in channels]),
            np.stack([model.means.T[:, types] for model in models]),
            np.append(index[-1], index[::-1]),
            first.edges,
            repeats,
            own,
            shares,
            None if people is None else (np.ascontiguousarray(people[0][:, types]), people[1]),
        )

    def with_steps(
        self, payoffs: Float[Array, "S A M"], tables: Float[Array, "S D M"], step_tables: Integer[Array, "T"]
    ) -> Problem:
        """Return the problem with payoffs and table number `step_tables[t]` at the step with t steps to go."""
        if payoffs.shape != (len(tables), *self.payoffs.shape[1:]) or tables.shape[1:] != self.tables.shape[1:]:
            raise InvalidArgument(
                f"payoffs and tables must be (S, A, M) and (S, A * Z, M) like {self.payoffs.shape} and "
                f"{self.tables.shape} of this problem, got {payoffs.shape} and {tables.shape}"
            )
        numbers = np.asarray(step_tables, np.int64)
        if numbers.shape != (self.horizon + 1,) or numbers.min() < 0 or numbers.max() >= len(tables):
            raise InvalidArgument(
                f"step_tables must hold {self.horizon + 1} numbers of the {len(tables)} tables, one for each number of "
                f"steps to go 0, ..., {self.horizon}, got {numbers.tolist()}"
            )
        contiguous = np.ascontiguousarray
        payoffs, tables = contiguous(payoffs), contiguous(tables)
        return replace(self, payoffs=payoffs, tables=tables, step_tables=numbers, has_own_steps=True)

    def step(self, remaining: int) -> Step:
        """Return the payoffs and observations of the step with so many steps to go, itself included."""
        return self._steps[self.step_tables[remaining]]

    @cached_property
    def _steps(self) -> list[Step]:
        return [Step(*arrays) for arrays in zip(self.payoffs, self.tables, self._stays, strict=True)]

    @cached_property
    def _stays(self) -> Float[Array, "S A M"]:
        if not self.people_leave:
            return np.ones_like(self.payoffs)
        return self.tables.reshape(len(self.tables), self.n_arms, self.n_values, -1).sum(axis=2)

    @property
    def is_stationary(self) -> bool:
        """Return whether all steps have the same payoffs and observations."""
        return len(self.tables) == 1

    @property
    def is_uniform(self) -> bool:
        """Return whether the order of arms is irrelevant if rewards are ignored: equal steps, no attrition."""
        return self.is_stationary and not self.people_leave

    @property
    def _only(self) -> Step:
        if not self.is_stationary:
            raise ValueError(
                f"the {len(self.tables)} tables of this problem belong to steps: use problem.step(remaining)"
            )
        return self._steps[0]

    @property
    def means(self) -> Float[Array, "A M"]:
        """Return the payoffs of a stationary problem."""
        return self._only.means

    @property
    def table(self) -> Float[Array, "D M"]:
        """Return the observation likelihoods of a stationary problem."""
        return self._only.table

    @property
    def stays(self) -> Float[Array, "A M"]:
        """Return the continuation probabilities of a stationary problem."""
        return self._only.stays

    @cached_property
    def mean_step(self) -> Step:
        """Return the mean of all steps, for heuristic choices that are valid for any arrays."""
        if self.is_stationary:
            return self._only
        used = self.step_tables[1:]
        return Step(self.payoffs[used].mean(axis=0), self.tables[used].mean(axis=0), self._stays[used].mean(axis=0))

    def each(self) -> Iterator[tuple[float, Problem]]:
        """Yield the share of sessions that start at each prior, and their problem."""
        if self.priors is None or self.shares is None:
            yield 1.0, self
            return
        for share, prior in zip(self.shares.tolist(), self.priors, strict=True):
            yield share, replace(self, weights=prior, priors=None, shares=None)

    def among(self, arms: Integer[Array, "K"]) -> Problem:
        """Return the problem restricted to these arms; a plan for it has the same value here."""
        codes = (arms[:, None] * self.n_values + np.arange(self.n_values)).ravel()
        edges = None if self.edges is None else self.edges[arms]
        return replace(self, tables=self.tables[:, codes], payoffs=self.payoffs[:, arms], edges=edges)

    def best_mean(self, vectors: Float[Array, "J M"]) -> float:
        """Return the value of the best vector at the start, averaged over the priors."""
        if self.priors is None or self.shares is None:
            return float((vectors @ self.weights).max())
        return float(self.shares @ (self.priors @ vectors.T).max(axis=1))

    @property
    def of_policy(self) -> dict[str, Any]:
        """Return the keyword arguments of every policy for this problem."""
        steps = (self.payoffs, self.tables, self.step_tables) if self.has_own_steps else None
        return {"horizon": self.horizon, "bins": self.bins, "steps": steps}

    def beliefs(self, memory: Float[Array, "n W"]) -> Float[Array, "n M"]:
        """Return the beliefs over these types; the memory of a state begins with all types of the bandit."""
        if len(self.types) == self.bandit.n_types:  # a part of each row, which is copied at once
            return memory[:, : len(self.types)].copy()
        return np.ascontiguousarray(memory[:, self.types])

    @property
    def binned(self) -> bool:
        """Return whether rewards are continuous, so that `table` is a garbling of the observations of a session."""
        return self.edges is not None

    @cached_property
    def upper_problem(self) -> Problem:
        """Return the problem with an optimal value that is an upper bound: itself, unless its observations are bins."""
        return self.informative(UPPER_BINS) if self.binned else self

    def informative(self, bins: int) -> Problem:
        """Return the problem with observations that are at least as informative as continuous rewards.

        Its value is an upper bound on the value with the rewards, up to the loss in about `bins` bins. Its plans cannot
        be executed, because no session sees these observations. If tables were given by step, they reveal the type.
        """
        if not self.has_own_steps:
            models, _ = self.bandit.step_models(self.horizon)
            found = [model.informative_table(self.types, bins) for model in models]
            return replace(self, tables=_stacked(found, self.n_arms), edges=None)
        if self.has_equal_tables:
            table = np.ascontiguousarray(self.bandit.informative_table(self.types, bins))
            return replace(self, tables=np.repeat(table[None], len(self.tables), axis=0), edges=None)
        n_types = len(self.weights)
        tables = self._stays[:, :, None, :] * np.eye(n_types)
        return replace(self, tables=tables.reshape(len(tables), -1, n_types), edges=None)

    def codes(self, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Integer[Array, "n"]:
        """Return the row of `table` of each (arm, reward)."""
        if self.edges is None:
            return self.bandit.rewards.codes(arms, rewards).astype(np.int64)  # type: ignore[union-attr]
        return arms * self.n_values + (rewards[:, None] > self.edges[arms]).sum(axis=1)

    @property
    def bins(self) -> int:
        """Return the number of bins per arm of policies for this problem; the default if rewards are not binned."""
        return self.n_values if self.binned else BINS

    @property
    def n_arms(self) -> int:
        return self.payoffs.shape[1]

    @property
    def n_codes(self) -> int:
        """Return D, the number of pairs of arm and observation."""
        return self.tables.shape[1]

    @property
    def n_values(self) -> int:
        return self.n_codes // self.n_arms

    @cached_property
    def people_leave(self) -> bool:
        """Return whether a session may end before the horizon; the columns of an arm's rows then sum to `stays`."""
        return self.bandit.people_leave

    @cached_property
    def step_model(self) -> StepModel:
        """Return the payoffs and observation likelihoods by steps to go, from which upper bounds are computed."""
        return StepModel.of(
            self.payoffs, self.tables, self.horizon, has_attrition=self.people_leave, step_tables=self.step_tables
        )

    @cached_property
    def known(self) -> KnownTypeValues:
        """Return the values of the best and the worst policy with 0, 1, ..., H steps to go if the type is known."""
        used = self.step_tables[1:]
        return known_type_values(self.payoffs[used], self._stays[used], self.horizon)

    @cached_property
    def fixed_arms(self) -> list[tuple[Float[Array, "_ M"], Integer[Array, "_"]]]:
        """Return the values of playing one arm throughout, and the undominated arms, for 1, 2, ..., H steps to go."""
        if self.is_uniform:
            arms = self.last_arms
            return [(remaining * self.means[arms], arms) for remaining in range(1, self.horizon + 1)]
        found = []
        for values in self._constant_arms[1:]:
            arms = _not_outdone(values)
            found.append((values[arms], arms))
        return found

    def always(self, steps: int) -> Float[Array, "A M"]:
        """Return the values of playing each arm at all of the last `steps` steps."""
        return steps * self.means if self.is_uniform else self._constant_arms[steps]

    @cached_property
    def _constant_arms(self) -> Float[Array, "T A M"]:
        used = self.step_tables[1:]
        return constant_arm_values(self.payoffs[used], self._stays[used], self.horizon)

    @cached_property
    def orders(self) -> list[Integer[Array, "A"]]:
        """Return orders of arms without repeats, for types and for all together, if the order matters.

        They depend on the bandit and the horizon alone, so that a plan and its policy compare the same orders.
        """
        prior = self.bandit.weights[self.types]
        lengths = sorted({1, *(1 << k for k in range(1, self.horizon.bit_length())), self.horizon})
        shown, (means, _, stays) = np.argsort(-prior, kind="stable")[:_ORDERED], self.mean_step
        found = [order for steps in lengths for order in arm_orders_by_type(means[:, shown], stays[:, shown], steps)]
        together = best_fixed_sequence(means, stays, prior, min(self.horizon, self.n_arms), width=_WIDTH)[0]
        by_mean = np.argsort(-(means @ prior), kind="stable")
        found += [np.concatenate([together, np.setdiff1d(by_mean, together, assume_unique=True)]), by_mean]
        return [np.array(order) for order in dict.fromkeys(tuple(order.tolist()) for order in found)]

    @cached_property
    def last_arms(self) -> Integer[Array, "K"]:
        """Return the arms that may be best at the last step: no other arm is at least as good in every type."""
        return _not_outdone(self.step(1).means)

    @property
    def starts_at_the_weights(self) -> bool:
        """Return whether all sessions start at the weights of the bandit, so that its own values hold for them."""
        return self.priors is None and np.array_equal(self.weights, self.bandit.weights[self.types])

    @property
    def has_equal_tables(self) -> bool:
        """Return whether the observations of all steps have the same likelihoods, so that their order is irrelevant."""
        used = self.tables[np.unique(self.step_tables[1:])]
        return bool((used == used[:1]).all())

    @property
    def full_information(self) -> float:
        """Return an upper bound: the value if the type is known; without repeats, known after the first step."""
        if not self.repeats:
            return float(sum(share * _known_second_step(one) for share, one in self.each()))
        if self.is_uniform and self.starts_at_the_weights:
            return self.bandit.known_type(self.horizon)
        return float(self.weights @ self.known.best[-1])

    @property
    def scale(self) -> float:
        """Return the largest absolute sum of rewards, the unit of rounding errors."""
        return self.horizon * float(np.abs(self.payoffs).max())

    def best_everywhere(self) -> int | None:
        """Return an arm that is best in every type at every step: without attrition, to play it always is optimal."""
        if self.people_leave:
            return None
        payoffs = self.payoffs[np.unique(self.step_tables[1:])]
        best = np.all(payoffs >= payoffs.max(axis=1, keepdims=True), axis=(0, 2))
        return int(best.argmax()) if best.any() else None

    def spread(self, vectors: Float[Array, "K M"]) -> Float[Array, "K N"]:
        """Return vectors over the types of positive weight as vectors over all types of the bandit."""
        wide = np.zeros((len(vectors), self.bandit.n_types))
        wide[:, self.types] = vectors
        return wide


def _stacked(tables: list[Float[Array, "_ M"]], n_arms: int) -> Float[Array, "S D M"]:
    """Return the tables in one array; the arms of smaller ones get observations of probability 0."""
    by_arm = [table.reshape(n_arms, -1, table.shape[1]) for table in tables]
    n_values = max(table.shape[1] for table in by_arm)
    wide = [np.pad(table, ((0, 0), (0, n_values - table.shape[1]), (0, 0))) for table in by_arm]
    return np.stack(wide).reshape(len(tables), n_arms * n_values, -1)


def _known_second_step(problem: Problem) -> float:
    """Return the value without repeats if the type becomes known after the first step, or a bound on it."""
    left, weights, (means, _, stays) = problem.horizon - 1, problem.weights, problem.step(problem.horizon)
    if not problem.is_stationary:  # with repeats after the first step
        best = problem.known.best
        return float(min(((means + stays * best[left]) @ weights).max(), best[left + 1] @ weights))
    if problem.people_leave:
        nothing = np.zeros((1, problem.n_arms), bool)
        most, rest = (known_type_values_without_repeats(means, stays, nothing, steps)[0] for steps in (left + 1, left))
        return float(min(((means + stays * rest) @ weights).max(), most @ weights))
    ranked = -np.sort(-means, axis=0)
    most, rest = ranked[: left + 1].sum(axis=0), ranked[:left].sum(axis=0)
    # An arm among the best of a type leaves room for one more; any other is added to the best.
    among = means >= ranked[left - 1] if left else np.zeros(means.shape, bool)
    return float((np.where(among, most, means + rest) @ weights).max())


def _not_outdone(values: Float[Array, "A M"]) -> Integer[Array, "K"]:
    """Return the rows that no other row exceeds, or equals and precedes, in every type."""
    total, everything = values.sum(axis=1), np.arange(len(values))
    best = np.unique(np.append(values.argmax(axis=0), total.argmax()))
    beaten = _at_least(values, best, everything) & (total[best, None] > total)
    rows, kept = everything[~beaten.any(axis=0)], []  # rows that the best ones exceed exceed no other rows than these
    for part in np.split(rows, range(_CHUNK, len(rows), _CHUNK)):  # a table of all pairs of many rows would not fit
        at_least = _at_least(values, rows, part)
        at_most = at_least.T if len(part) == len(rows) else _at_least(values, part, rows).T
        kept.append(part[~(at_least & (~at_most | (rows[:, None] < part))).any(axis=0)])
    return np.concatenate(kept)


def _at_least(
    values: Float[Array, "A M"], rows: Integer[Array, "n"], others: Integer[Array, "k"]
) -> Bool[Array, "n k"]:
    """Return whether each row is at least each of the others in every type."""
    found = np.ones((len(rows), len(others)), bool)
    for of_type in values.T:
        found &= of_type[rows, None] >= of_type[others]
    return found


@dataclass(frozen=True, eq=False)
class PriorBounds:
    """Bounds of a plan at any prior over the types of the bandit.

    The optimum is a convex function of the prior. The plans' vectors are lower bounds. Upper bounds are the plane of
    the known type, the information bound, and the soft sawtooth between the planned priors (docs/planning.md).
    """

    vectors: Float[Array, "J M"]  # Vectors of plans for all steps.
    priors: Float[Array, "K M"]
    upper: Float[Array, "K"]  # at these priors
    known: Float[Array, "M"]  # value of the best plan in every type
    worst: Float[Array, "M"]
    planes: Float[Array, "P M"]  # Planes of the information prices, for all steps.
    rates: Float[Array, "P"]  # 0: there is no price
    references: Float[Array, "P M"]  # the priors of the prices

    @classmethod
    def over(
        cls,
        problem: Problem,
        vectors: Float[Array, "J M"],
        priors: Float[Array, "K M"],
        upper: Float[Array, "K"],
        ends: tuple[Float[Array, "M"], Float[Array, "M"]],
        planes: Float[Array, "P M"],
        rates: Float[Array, "P"],
        references: Float[Array, "P M"],
    ) -> PriorBounds:
        """Return the bounds from arrays over the types of a problem; `ends` are the best and worst values by type.

        Types of weight 0 get the trivial bounds.
        """
        known, worst = (np.full(problem.bandit.n_types, end * problem.scale) for end in (1.0, -1.0))
        known[problem.types], worst[problem.types] = ends
        wide = problem.spread
        return cls(wide(vectors), wide(priors), upper, known, worst, wide(planes), rates, wide(references))

    def at(self, priors: Float[Array, "n M"]) -> tuple[Float[Array, "n"], Float[Array, "n"]]:
        """Return the bounds at other priors: (lower, upper)."""
        lower, upper = (priors @ self.vectors.T).max(axis=1), priors @ self.known
        if (self.rates > 0).all():
            planes = self.planes - self.rates[:, None] * np.log(np.maximum(self.references, TINY))
            told = (priors * np.log(np.maximum(priors, TINY))).sum(axis=1)
            upper = np.minimum(upper, (priors @ planes.T + told[:, None] * self.rates).min(axis=1))
        for start in range(0, len(priors), _CHUNK):
            part = slice(start, start + _CHUNK)
            upper[part] = np.minimum(upper[part], self._between(priors[part]))
        return lower, np.maximum(upper, lower)

    def _between(self, priors: Float[Array, "n M"]) -> Float[Array, "n"]:
        """Return the soft sawtooth bound of the nearest planned priors; any subset gives a bound."""
        far = np.abs(priors[:, None] - self.priors).sum(axis=2)
        near = np.argpartition(far, min(_NEAR, far.shape[1]) - 1, axis=1)[:, :_NEAR]
        points, drops = self.priors[near], (self.upper - self.priors @ self.known)[near]
        ratios = priors[:, None] / np.maximum(points, TINY)  # the lowest bound is at one of these factors
        ratios = np.where(ratios < 1e6, ratios, 0.0)
        over = np.maximum(ratios[..., None] * points[:, :, None] - priors[:, None, None], 0.0)
        lowest = (ratios * drops[..., None] + over @ (self.known - self.worst)).min(axis=(1, 2))
        return priors @ self.known + np.minimum(lowest, 0.0)


@dataclass(frozen=True, eq=False)
class Plan:
    """A session policy with bounds on the optimum.

    The exact value of `policy` (the expected reward of `horizon` steps) is at least `lower`, and the value of every
    policy is at most `upper`. For continuous rewards `upper` is the value of knowing the type, because the bound of
    the search holds only for rewards seen in bins; `message` gives this bound.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> plan = lmab.plan(bandit, horizon=5, method=lmab.Exact())
        >>> plan
        Plan(optimal: 3.35771 over 5 steps)
        >>> plan.policy.act_on([])
        0
    """

    policy: Policy
    horizon: int
    lower: float
    upper: float
    status: Status  # how the planning ended; equal to its name as text
    message: str  # summary in a sentence or two
    trace: tuple[Bounds, ...] = field(repr=False, default=())  # for continuous rewards: of the problem in bins
    repeats: bool = True  # False: policy and bounds are for sessions that play each arm at most once
    source: FittedModel | SavedModel | None = field(repr=False, default=None)  # the fitted model; None for a bandit
    by_prior: PriorBounds | None = field(repr=False, default=None)  # the bounds at any prior; None: one prior for all
    fixed: bool = False  # the plan is the best fixed choice, because held-out sessions support no types
    verdict: str = ""  # result of the held-out check of the types; empty if there was none
    kept_arms: tuple[int, ...] | None = field(repr=False, default=None)  # numbers of the arms planned with; None: all

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", Status.named(self.status))

    @property
    def gap(self) -> float:
        """Return (upper - lower) / |lower|; 0 if the bounds are equal, infinite if only `lower` is 0."""
        difference = max(self.upper - self.lower, 0.0)
        if difference == 0:
            return 0.0
        return difference / abs(self.lower) if self.lower else float("inf")

    @property
    def people_leave(self) -> bool:
        """Return whether the model has attrition; the bounds are then values until the session ends."""
        model = getattr(self.policy, "bandit", None) or (None if self.source is None else self.source.bandit)
        return getattr(model, "leaving", None) is not None

    def of_kept_arms(self, bandit: LatentBandit) -> LatentBandit:
        """Return the bandit of the arms that were planned with, from the bandit of all arms."""
        return bandit if self.kept_arms is None else bandit.only_arms(self.kept_arms)

    @property
    def _steps(self) -> str:
        return f"{'at most ' if self.people_leave else ''}{self.horizon} steps"

    def bounds(self, features: Mapping[str, Any] | None = None) -> Bounds:
        """Return the bounds for one person with these features; None: for a person without features.

        `lower` and `upper` of a plan for persons with features are means over the persons.
        """
        seconds = self.trace[-1].seconds if self.trace else 0.0
        if self.by_prior is None:
            prior = getattr(self.policy, "type_prior", None)
            if features is not None and prior is not None and prior.columns:
                raise InvalidArgument("features must be None, because only Certified proves bounds for one person")
            if features is not None:
                raise InvalidArgument(
                    "features must be None, because the plan starts everybody at one prior; plan with a type_prior, "
                    "or an estimate of a log with features"
                )
            return Bounds(seconds, self.lower, self.upper)
        policy: Any = self.policy
        prior = policy.bandit.weights[None] if features is None else policy.type_prior.weights(features)
        if len(prior) != 1:
            raise InvalidArgument(f"features must be those of one person, got {len(prior)} values a column")
        lower, upper = self.by_prior.at(prior)
        return Bounds(seconds, float(lower[0]), float(upper[0]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to `path`, with the policy and the fitted model; `lmab.load` gives the same plan back."""
        files.write(path, self.record())

    def record(self) -> files.Record:
        plain = files.encode(self, "plan", without=("policy", "trace", "source", "by_prior"))
        nested = {"policy": self.policy.record()}
        if self.by_prior is not None:
            nested["by_prior"] = files.Record("prior_bounds", arrays=vars(self.by_prior))
        if self.source is not None:
            nested["estimate"] = self.source.record()
        return files.Record(plain.kind, plain.fields, {"trace": np.array(self.trace).reshape(-1, 3)}, nested)

    @classmethod
    def from_record(cls, record: files.Record) -> Plan:
        check_count("horizon", record.fields["horizon"])
        model, bounds = record.records.get("estimate"), record.records.get("by_prior")
        records = {name: part for name, part in record.records.items() if name != "estimate"}
        return files.decode(
            replace(record, records=records),
            cls,
            policy=restore_policy(record.records["policy"]),
            trace=tuple(Bounds(*row) for row in record.arrays["trace"].tolist()),
            source=None if model is None else SavedModel(model),
            by_prior=None if bounds is None else PriorBounds(**bounds.arrays),
        )

    def _repr_html_(self) -> str:
        rows = {
            "status": self.status,
            "earns at least": f"{self.lower:.6g} over {self._steps}",
            "no policy earns more than": f"{self.upper:.6g} (gap {percent(self.gap)})",
            "found in": f"{self.trace[-1].seconds:.2f} s" if self.trace else "no time",
        }
        if self.verdict:
            rows["held-out check"] = self.verdict
        return card("Plan", rows)

    def __repr__(self) -> str:
        if self.fixed:
            return f"Plan({best_fixed(self.repeats).removeprefix('the ')}: {self.lower:.6g} over {self._steps})"
        if self.status == Status.OPTIMAL:
            return f"Plan(optimal: {self.lower:.6g} over {self._steps})"
        bounds = f"between {self.lower:.6g} and {self.upper:.6g}, gap {self.gap:.2g}"
        return f"Plan({self.status}: optimum {bounds} over {self._steps})"


def policy_of(given: Policy | Plan) -> Policy:
    """Return the policy, or the policy of a plan; raise `InvalidArgument` for anything else."""
    if isinstance(given, Plan):
        return given.policy
    if isinstance(given, Policy):
        return given
    raise InvalidArgument(f"policy must be a Policy or a Plan, got a {type(given).__name__}")


_registry.register("plan", Plan)
