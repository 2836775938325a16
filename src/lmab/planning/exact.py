"""Exact: dynamic programming over the states of a session, with and without repeated arms.

If all steps have the same observation likelihoods, the order of the observations does not matter: there are
C(D + t - 1, t) multisets of t observations, without repeats C(A, t) Z^t sets, instead of D^t sequences.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Bool, Float, Integer
from ..checks import COUNT, check_fields
from ..errors import InvalidArgument, Status, TooLarge
from ..policies.policy import State
from .lookahead import (
    LookaheadPolicy,
    NoRepeatLookaheadPolicy,
    heuristic_plan,
    lookahead_values,
    root_bounds,
    tighten_upper_bound,
)
from .policies import TablePolicy
from .problem import Clock, Plan, Problem

_BLOCK = 1 << 26  # multiplications between two looks at the clock
_CHUNK = 1 << 20  # codes of states handled at once
_SAMPLE = 3_000  # states that are solved to estimate the seconds for all
_SLOWER = 2.0  # factor on the time per state, because the values of all states do not fit in the cache
STATE_BYTES = 8
_MOST_BYTES = 1 << 28  # of the states of the more informative observations


class States(ABC):
    """Observations of sessions after 0, 1, ..., H - 1 steps, as rows of codes in the order of their ranks."""

    is_ordered = False  # rows of codes keep the order of the steps; else they are sorted

    def __init__(self, problem: Problem) -> None:
        self.n_arms, self.n_values, self.n_codes = problem.n_arms, problem.n_values, problem.n_codes
        self.horizon = problem.horizon

    @staticmethod
    def of(problem: Problem) -> States:
        if not problem.has_equal_tables:
            return Sequences(problem)
        return Multisets(problem) if problem.repeats else Sets(problem)

    @abstractmethod
    def count(self, step: int) -> int:
        """Return the number of states after so many steps."""

    @abstractmethod
    def codes(self, ranks: Integer[Array, "n"], step: int) -> Integer[Array, "n step"]:
        """Return the observations of some states."""

    @abstractmethod
    def ranks(self, codes: Integer[Array, "*n t"]) -> Integer[Array, "*n"]:
        """Return the places of states among all of their step."""

    @property
    def total(self) -> int:
        """Return the number of states of all steps."""
        return sum(self.count(step) for step in range(self.horizon))

    def children(self, codes: Integer[Array, "n t"]) -> Integer[Array, "n D"]:
        """Return the ranks of the states that follow each observation."""
        following = np.empty((len(codes), self.n_codes, codes.shape[1] + 1), np.int64)
        following[:, :, :-1] = codes[:, None, :]
        following[:, :, -1] = np.arange(self.n_codes)
        if not self.is_ordered:
            following.sort(axis=2)
        return self.ranks(following)

    def played(self, codes: Integer[Array, "n t"]) -> tuple[Bool[Array, "n A"], Bool[Array, "n"]]:
        """Return which arms each row of codes contains, and whether an arm occurs twice."""
        played = np.zeros((len(codes), self.n_arms + 1), bool)  # the last column: arms that the policy does not know
        arms = np.where(codes < self.n_codes, codes // self.n_values, codes - self.n_codes)  # no reward yet
        played[np.arange(len(codes))[:, None], arms] = True
        return played[:, :-1], played.sum(axis=1) < codes.shape[1]


class Multisets(States):
    """Counts of observations, if arms may be repeated; ranks are colexicographic."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.binomials = binomials(self.n_codes, self.horizon)

    def count(self, step: int) -> int:
        return math.comb(self.n_codes + step - 1, step)

    def codes(self, ranks: Integer[Array, "n"], step: int) -> Integer[Array, "n step"]:
        return _combinations(ranks, step, self.binomials) - np.arange(step)

    def ranks(self, codes: Integer[Array, "*n t"]) -> Integer[Array, "*n"]:
        places = np.arange(codes.shape[-1])
        return self.binomials[codes + places, places + 1].sum(axis=-1)


class Sets(States):
    """Observations of distinct arms; ranks are by the set of arms, then by the values."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.binomials = binomials(self.n_arms, self.horizon)

    def count(self, step: int) -> int:
        return math.comb(self.n_arms, step) * self.n_values**step

    def codes(self, ranks: Integer[Array, "n"], step: int) -> Integer[Array, "n step"]:
        arms = _combinations(ranks // self.n_values**step, step, self.binomials)
        return arms * self.n_values + ranks[:, None] // self.n_values ** np.arange(step) % self.n_values

    def ranks(self, codes: Integer[Array, "*n t"]) -> Integer[Array, "*n"]:
        places, arms, values = np.arange(codes.shape[-1]), codes // self.n_values, codes % self.n_values
        subsets = self.binomials[arms, places + 1].sum(axis=-1)
        return subsets * self.n_values ** len(places) + (values * self.n_values**places).sum(axis=-1)


class Sequences(States):
    """Observations in their order, if the likelihoods of steps differ."""

    is_ordered = True

    def count(self, step: int) -> int:
        return int(self.n_codes**step)

    def codes(self, ranks: Integer[Array, "n"], step: int) -> Integer[Array, "n step"]:
        return ranks[:, None] // self.n_codes ** np.arange(step) % self.n_codes

    def ranks(self, codes: Integer[Array, "*n t"]) -> Integer[Array, "*n"]:
        return (codes * self.n_codes ** np.arange(codes.shape[-1])).sum(axis=-1)


def _combinations(ranks: Integer[Array, "n"], size: int, table: Integer[Array, "k b"]) -> Integer[Array, "n size"]:
    """Return the increasing rows of distinct numbers with these colexicographic ranks."""
    rows, left = np.empty((len(ranks), size), np.int64), ranks.copy()
    for place in range(size - 1, -1, -1):
        column = table[:, place + 1]
        rows[:, place] = np.searchsorted(column, left, side="right") - 1
        left -= column[rows[:, place]]
    return rows


def binomials(n_codes: int, horizon: int) -> Integer[Array, "n k"]:
    """Return Pascal's triangle, as large as ranks of `horizon` symbols need."""
    table = np.zeros((n_codes + horizon + 2, horizon + 2), np.int64)
    table[:, 0] = 1
    for i in range(1, len(table)):
        for j in range(1, table.shape[1]):
            table[i, j] = min(int(table[i - 1, j - 1]) + int(table[i - 1, j]), 1 << 62)
    return table


class ExactPolicy(TablePolicy):
    """Optimal policy as a table: the value of every state but those before the last step.

    The memory of a session is its belief, then the codes of its observations.
    """

    kind = "exact"

    def _prepare(self) -> list[int]:
        self._states = States.of(self._problem)
        self._in_order = self._states.is_ordered
        return [self._states.count(step) for step in range(max(self.horizon - 1, 0))]

    def arm_values(self, state: State) -> Float[Array, "n A"]:
        """Return the optimal Q-values times the probability of the observations; off the table, of a lookahead."""
        remaining, codes = self._remaining(state), self._seen(state)
        beliefs = self._problem.beliefs(state.memory)
        if remaining <= 2 and self.repeats:
            return lookahead_values(self._problem, beliefs, remaining, 1)
        covered, played = self._covered(state), None
        if not self.repeats:
            played, repeated = self._states.played(codes)
            covered = covered & ~repeated
        later = self._values[self._starts[state.step + 1] :] if remaining > 1 else np.empty(0)
        values = np.empty((len(beliefs), self._problem.n_arms))
        values[covered] = state_values(self._problem, self._states, beliefs[covered], codes[covered], later)
        if not covered.all():
            off, here = ~covered, None if played is None else played[~covered]
            values[off] = lookahead_values(self._problem, beliefs[off], remaining, 1, played=here)
        return values

    def _played(self, state: State) -> Bool[Array, "n A"] | None:
        return None if self.repeats else self._states.played(self._seen(state))[0]


class NoRepeatExactPolicy(ExactPolicy):
    """Optimal policy without repeats, as the value of every state.

    A session that did play an arm twice, or lacks a reward, goes on with a lookahead.
    """

    kind = "once-exact"
    repeats = False

    def _prepare(self) -> list[int]:
        return [*super()._prepare(), self._states.count(self.horizon - 1)]


@dataclass(frozen=True)
class Exact:
    """Dynamic programming over the states of a session: the optimum.

    `max_states` limits the states of all steps together, 8 bytes each, and so the memory; beyond it `plan` raises
    `TooLarge` with the number needed and their size, before anything is computed.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> round(lmab.plan(bandit, horizon=5, method=lmab.Exact()).lower, 5)
        3.35771
    """

    max_states: int = 100_000_000

    def __post_init__(self) -> None:
        check_fields(self, {"max_states": COUNT})

    def solve(self, problem: Problem, clock: Clock) -> Plan:
        if problem.priors is not None:
            raise InvalidArgument(
                f"method must be Certified() if sessions start at several priors, got Exact(), which supports one, and "
                f"{len(problem.priors)} priors (from features)"
            )
        needed = n_states(problem)
        if needed > self.max_states:
            rule = "" if problem.repeats else "without repeats "
            raise TooLarge(
                f"{rule}Exact would need {needed} states ({problem.n_arms} arms, {problem.n_values} values, "
                f"{problem.horizon} steps; {needed * STATE_BYTES / 1e9:.3g} GB), more than "
                f"max_states={self.max_states}: use Certified"
            )
        clock.record(*root_bounds(problem, 0))
        reason = Status.TIME_LIMIT
        try:
            found = plan_exactly(problem, clock)
        except KeyboardInterrupt:
            found, reason = None, Status.INTERRUPTED
        return _stopped(problem, clock, reason, needed) if found is None else found

    def solve_without_repeats(self, problem: Problem, clock: Clock) -> Plan:
        return self.solve(replace(problem, repeats=False), clock)


def n_states(problem: Problem) -> int:
    """Return the number of states of all steps together."""
    return States.of(problem).total


def state_values(
    problem: Problem,
    states: States,
    beliefs: Float[Array, "n M"],
    codes: Integer[Array, "n t"],
    later: Float[Array, "next"],
) -> Float[Array, "n A"]:
    """Return the Q-values of some states; `later` holds the values one step later and is empty at the last step."""
    step = codes.shape[1]
    values = beliefs @ problem.step(problem.horizon - step).means.T
    played = None if problem.repeats else states.played(codes)[0]
    block = max(1, _CHUNK // (states.n_codes * (step + 1)))
    for start in range(0, len(codes) if len(later) else 0, block):
        part = slice(start, start + block)
        ranks = states.children(codes[part])
        if played is not None:
            ranks = np.where(np.repeat(played[part], states.n_values, axis=1), 0, ranks)
        values[part] += later[ranks].reshape(len(ranks), states.n_arms, -1).sum(axis=2)
    return values if played is None else np.where(played, -np.inf, values)


def optimal_values(problem: Problem, clock: Clock) -> list[Float[Array, "states"]] | None:
    """Return the optimal values of all states by the number of steps done, or None if the time runs out."""
    states, later = States.of(problem), np.empty(0)
    stages: list[Float[Array, "states"]] = []
    for step in range(problem.horizon - 1, -1, -1):
        values = np.empty(states.count(step))
        for _ in _fill(problem, states, step, later, values):
            if clock.expired and step > 0:
                return None
        stages.insert(0, values)
        later = values
    return stages


def _fill(
    problem: Problem, states: States, step: int, later: Float[Array, "next"], values: Float[Array, "states"]
) -> Iterator[None]:
    """Fill `values` block by block, with a pause to look at the clock after each."""
    if isinstance(states, Multisets):
        size, now = max(1, _BLOCK // problem.payoffs[0].size), problem.step(problem.horizon - step)
        symbols, block = np.zeros(step, np.int64), kernel("planning").exact_block
        for start in range(0, len(values), size):
            part = values[start : start + size]
            block(problem.weights, now.table, now.means, states.binomials, later, symbols, part)
            yield
        return
    size = max(1, _CHUNK // max(len(problem.weights), states.n_codes))
    for start in range(0, len(values), size):
        codes = states.codes(np.arange(start, min(start + size, len(values))), step)
        found = state_values(problem, states, _beliefs(problem, codes), codes, later)
        values[start : start + len(codes)] = found.max(axis=1)
        yield


def _beliefs(problem: Problem, codes: Integer[Array, "n t"]) -> Float[Array, "n M"]:
    """Return the unnormalised belief after each row of observations."""
    beliefs = np.tile(problem.weights, (len(codes), 1))
    for step, column in enumerate(codes.T):
        beliefs *= problem.step(problem.horizon - step).table[column]
    return beliefs


def seconds_needed(problem: Problem) -> float:
    """Estimate the seconds of `optimal_values` from some states of the last step and of the step before."""
    states, last = States.of(problem), problem.horizon - 1
    n_last = states.count(last)
    found = _seconds_of_one(problem, states, last, np.empty(0)) * n_last
    if last > 0:
        found += _seconds_of_one(problem, states, last - 1, np.zeros(n_last)) * (states.total - n_last)
    return _SLOWER * found


def _seconds_of_one(problem: Problem, states: States, step: int, later: Float[Array, "next"]) -> float:
    """Measure the seconds for one of the states of a step."""
    values = np.empty(min(_SAMPLE, states.count(step)))
    start = time.perf_counter()
    for _ in _fill(problem, states, step, later, values):
        pass
    return (time.perf_counter() - start) / len(values)


def plan_exactly(problem: Problem, clock: Clock) -> Plan | None:
    """Return the optimal plan, or None if the time runs out."""
    stages = optimal_values(problem, clock)
    if stages is None:
        return None
    value, upper, status = float(stages[0][0]), float(stages[0][0]), Status.OPTIMAL
    kept = stages[:-1] if problem.repeats else stages
    policy_class = ExactPolicy if problem.repeats else NoRepeatExactPolicy
    policy = policy_class(problem.bandit, np.concatenate(kept) if kept else np.empty(0), **problem.of_policy)
    n_states = sum(map(len, stages))
    rule = "" if problem.repeats else ", no arm twice"
    message = f"dynamic programming over {n_states} states{rule}: no policy has a higher value"
    if problem.binned:
        upper, status = _upper_bound(problem, value, clock), Status.HEURISTIC
        message = (
            f"optimal among the policies that see rewards in {problem.n_values} bins per arm{rule}, and its exact value"
        )
    clock.trace.clear()
    clock.record(value, upper)
    return Plan(policy, problem.horizon, value, upper, status, message, tuple(clock.trace), problem.repeats)


def _upper_bound(problem: Problem, lower: float, clock: Clock) -> float:
    """Return an upper bound on the value with the rewards themselves, exact for the more informative observations."""
    above = problem.upper_problem
    upper = tighten_upper_bound(problem, lower, root_bounds(problem, 0)[1], clock)
    if n_states(above) * STATE_BYTES > _MOST_BYTES or seconds_needed(above) > clock.seconds_left:
        return upper
    stages = optimal_values(above, clock)
    return upper if stages is None else min(upper, float(stages[0][0]))


def _stopped(problem: Problem, clock: Clock, reason: Status, needed: int) -> Plan:
    """Return the plan of a lookahead, because the time was over before all states were done."""
    clock.record(*root_bounds(problem, 1))
    policy_class = LookaheadPolicy if problem.repeats else NoRepeatLookaheadPolicy
    policy = policy_class(problem.bandit, depth=1, **problem.of_policy)
    name = f"stopped before all {needed} states were done ({reason}): the policy is a lookahead of depth 1"
    return replace(heuristic_plan(problem, policy, clock, name), status=reason)
