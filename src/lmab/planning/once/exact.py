"""The optimum of sessions that play each arm at most once, by dynamic programming over sets of observations."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ..._shapes import Array, Bool, Float, Integer
from ...errors import Status, TooLarge
from ...policies.policy import State, best_allowed, mask_unplayed
from ..policies import TablePolicy
from ..problem import Clock, Plan, Problem
from .lookahead import WITHOUT_BINS, once_values, plan_once, upper_without_bins

MAX_STATES = 1_000_000
MOST_STATES = 20_000_000  # 160 MB, the most that is tried after the search for bounds has stalled
_CHUNK = 1 << 20
_SAMPLE = 3_000  # states that are solved to estimate the seconds for all
_SLOWER = 2.0  # times as long each state takes among all, whose values do not fit in the cache


class ExactOncePolicy(TablePolicy):
    """The optimal policy without repeats, as the value of every set of observations.

    The memory of a session is its belief, then the sorted codes of what it saw. A session that did play an arm twice,
    or whose rewards are not all known, goes on with a lookahead.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5, 0.3], [0.1, 0.6, 0.3]])
        >>> plan = lmab.plan(bandit, horizon=3, repeats=False)
        >>> plan.status, plan.policy.act_on([(0, 0.0)])
        ('optimal', 1)
    """

    kind = "once-exact"
    repeats = False

    def _sizes(self) -> list[int]:
        return [n_sets(self._problem, step) for step in range(self.horizon)]

    def arm_values(self, state: State) -> Float[Array, "n A"]:
        """The optimal Q-values, times the probability of what was seen; -inf for arms played before."""
        problem = self._problem
        beliefs = problem.beliefs(state.memory)
        codes = self._seen(state)
        played, repeated = _played(problem, codes)
        later = self._values[self._starts[state.step + 1] :] if state.step + 1 < self.horizon else np.empty(0)
        values, covered = np.empty((len(beliefs), problem.n_arms)), self._covered(state) & ~repeated
        values[covered] = set_values(problem, beliefs[covered], codes[covered], later)
        if not covered.all():
            rest = ~covered
            values[rest] = once_values(problem, beliefs[rest], played[rest], self._remaining(state), 1)
        return values

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        played, _ = _played(self._problem, self._seen(state))
        return best_allowed(self.arm_values(state), mask_unplayed(played, allowed))


def n_sets(problem: Problem, step: int) -> int:
    """What a session may have seen after `step` different arms, order apart."""
    return math.comb(problem.n_arms, step) * problem.n_values**step


def n_states(problem: Problem) -> int:
    """Return the number of sets of observations of all steps together."""
    return sum(n_sets(problem, step) for step in range(problem.horizon))


def fits(problem: Problem) -> bool:
    """Is the problem small enough for `plan_once_exactly`?"""
    return n_states(problem) <= MAX_STATES


def seconds_of_exact(problem: Problem) -> float:
    """Estimate the seconds of `solved_once` from some states of the last step and of the step before."""
    last = problem.horizon - 1
    n_last = n_sets(problem, last)
    found = _seconds_of_one(problem, last, np.empty(0)) * n_last
    if last > 0:
        found += _seconds_of_one(problem, last - 1, np.zeros(n_last)) * (n_states(problem) - n_last)
    return _SLOWER * found


def _seconds_of_one(problem: Problem, step: int, later: Float[Array, "next"]) -> float:
    """Measure the seconds for one of the states of a step."""
    _, codes = next(_blocks(problem, step, _SAMPLE))
    start = time.perf_counter()
    set_values(problem, _beliefs(problem, codes), codes, later)
    return (time.perf_counter() - start) / len(codes)


def plan_once_exactly(problem: Problem, clock: Clock) -> Plan:
    """The optimal plan without repeats, for small problems; a lookahead where time runs out before."""
    if not fits(problem):
        needed = n_states(problem)
        raise TooLarge(
            f"without repeats Exact would need {needed} states ({problem.n_arms} arms, {problem.n_values} values, "
            f"{problem.horizon} steps; {needed * 8 / 1e9:.3g} GB), more than {MAX_STATES}: use Certified"
        )
    reason = Status.TIME_LIMIT
    try:
        found = solved_once(problem, clock)
    except KeyboardInterrupt:
        found, reason = None, Status.INTERRUPTED
    if found is not None:
        return found
    name = "a lookahead of depth 1, because there was no time for all states,"
    return replace(plan_once(problem, clock, 1, name), status=reason)


def solved_once(problem: Problem, clock: Clock) -> Plan | None:
    """The optimal plan, or None when time ran out."""
    stages = _stages(problem, clock)
    if stages is None:
        return None
    needed = sum(map(len, stages))
    value = float(stages[0][0])
    policy = ExactOncePolicy(problem.bandit, np.concatenate(stages), **problem.of_policy)
    upper, status = value, Status.OPTIMAL
    message = f"dynamic programming over {needed} sets of observations, no arm twice"
    if problem.binned:
        upper, status = upper_without_bins(problem), Status.HEURISTIC
        message += f"; rewards were put into {problem.n_values} bins per arm, {WITHOUT_BINS}"
    clock.record(value, upper)
    return Plan(policy, problem.horizon, value, upper, status, message, tuple(clock.trace))


def _stages(problem: Problem, clock: Clock) -> list[Float[Array, "states"]] | None:
    """The values of all sets, by the number of steps seen; None when time ran out."""
    stages = [np.empty(0)]
    size = max(1, _CHUNK // max(len(problem.weights), len(problem.table)))
    for step in range(problem.horizon - 1, -1, -1):
        values = np.empty(n_sets(problem, step))
        for start, part in _blocks(problem, step, size):
            if clock.expired and step > 0:
                return None
            later = set_values(problem, _beliefs(problem, part), part, stages[0])
            values[start : start + len(part)] = later.max(axis=1)
        stages.insert(0, values)
    return stages


def _beliefs(problem: Problem, codes: Integer[Array, "n t"]) -> Float[Array, "n M"]:
    """Return the unnormalised belief after each row of observations."""
    beliefs = np.tile(problem.weights, (len(codes), 1))
    for column in codes.T:
        beliefs *= problem.table[column]
    return beliefs


def set_values(
    problem: Problem, beliefs: Float[Array, "n M"], codes: Integer[Array, "n t"], later: Float[Array, "next"]
) -> Float[Array, "n A"]:
    """Q-values at the given sets of observations; `later` holds the values one step on, empty at the last step."""
    values = beliefs @ problem.means.T
    played, _ = _played(problem, codes)
    n_codes = len(problem.table)
    block = max(1, _CHUNK // (n_codes * (codes.shape[1] + 1)))
    for start in range(0, len(codes) if len(later) else 0, block):
        part = codes[start : start + block]
        children = np.empty((len(part), n_codes, part.shape[1] + 1), np.int64)
        children[:, :, :-1] = part[:, None, :]
        children[:, :, -1] = np.arange(n_codes)
        children.sort(axis=2)
        places = np.where(
            np.repeat(played[start : start + block], problem.n_values, axis=1), 0, _rank(problem, children)
        )
        values[start : start + block] += later[places].reshape(len(part), problem.n_arms, -1).sum(axis=2)
    return np.where(played, -np.inf, values)


def _played(problem: Problem, codes: Integer[Array, "n t"]) -> tuple[Bool[Array, "n A"], Bool[Array, "n"]]:
    """Which arms each row of codes contains, and whether some arm comes twice."""
    played = np.zeros((len(codes), problem.n_arms + 1), bool)  # the last column: arms that the policy does not know
    n_codes = len(problem.table)
    arms = np.where(codes < n_codes, codes // problem.n_values, codes - n_codes)  # the reward may not be known yet
    played[np.arange(len(codes))[:, None], arms] = True
    return played[:, :-1], played.sum(axis=1) < codes.shape[1]


def _rank(problem: Problem, codes: Integer[Array, "*n t"]) -> Integer[Array, "*n"]:
    """Place of sorted rows of codes with distinct arms: arms in colexicographic order, then values."""
    length, n_values = codes.shape[-1], problem.n_values
    arms, values = codes // n_values, codes % n_values
    choose = np.array([[math.comb(n, k + 1) for k in range(length)] for n in range(problem.n_arms)], np.int64)
    subsets = choose[arms, np.arange(length)].sum(axis=-1)
    return subsets * n_values**length + (values * n_values ** np.arange(length)).sum(axis=-1)


def _blocks(problem: Problem, length: int, size: int) -> Iterator[tuple[int, Integer[Array, "n t"]]]:
    """Yield all sorted rows of `length` codes with distinct arms in the order of `_rank`, about `size` at once.

    Each block comes with the place of its first row.
    """
    subsets = [row[::-1] for row in itertools.combinations(range(problem.n_arms - 1, -1, -1), length)][::-1]
    arms = np.array(subsets, np.int64).reshape(len(subsets), length)
    values = np.array(list(itertools.product(range(problem.n_values), repeat=length)), np.int64).reshape(
        -1 if length else 1, length
    )
    at_once = max(1, size // len(values))
    for start in range(0, len(arms), at_once):
        codes = arms[start : start + at_once, None, :] * problem.n_values + values[None, :, ::-1]
        yield start * len(values), codes.reshape(len(codes) * len(values), length)
