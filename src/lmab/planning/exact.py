"""Exact: dynamic programming over counts, C(D + t - 1, t) states after t steps instead of D^t histories."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Bool, Float, Integer
from ..checks import COUNT, check_fields
from ..errors import InvalidArgument, Status, TooLarge
from ..policies.policy import State, best_allowed
from .lookahead import LookaheadPolicy, lookahead_values, root_bounds
from .once.exact import plan_once_exactly
from .policies import TablePolicy
from .problem import Clock, Plan, Problem

_BLOCK = 1 << 26  # multiplications between two looks at the clock
_CHUNK = 1 << 20
STATE_BYTES = 8


class ExactPolicy(TablePolicy):
    """The optimal policy as a table: the value of every count of observations but those before the last step.

    The memory of a session is its belief, then the sorted codes of what it saw.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> lmab.plan(bandit, horizon=5, method=lmab.Exact()).policy.act_on([(0, 1.0), (0, 0.0)])
        0
    """

    kind = "exact"

    def _sizes(self) -> list[int]:
        return [n_states(len(self._problem.table), step) for step in range(max(self.horizon - 1, 0))]

    def arm_values(self, state: State) -> Float[Array, "n A"]:
        """The optimal Q-values, times the probability of what the session saw; a lookahead's off the table."""
        remaining = self._remaining(state)
        beliefs = self._problem.beliefs(state.memory)
        if remaining <= 2:
            return lookahead_values(self._problem, beliefs, remaining, 1)
        covered = self._covered(state)
        values = np.empty((len(beliefs), self._problem.n_arms))
        values[covered] = self._listed(beliefs[covered], self._seen(state)[covered])
        if not covered.all():
            values[~covered] = lookahead_values(self._problem, beliefs[~covered], remaining, 1)
        return values

    def _listed(self, beliefs: Float[Array, "n M"], seen: Integer[Array, "n t"]) -> Float[Array, "n A"]:
        """The Q-values of sessions that the table covers."""
        gains = beliefs @ self._problem.means.T
        n_codes, step = len(self._problem.table), seen.shape[1]
        choose = binomials(n_codes, self.horizon)
        block = max(1, _CHUNK // n_codes)
        for start in range(0, len(seen), block):
            part = seen[start : start + block]
            children = np.empty((len(part), n_codes, step + 1), np.int64)
            children[:, :, :-1] = part[:, None, :]
            children[:, :, -1] = np.arange(n_codes)
            children.sort(axis=2)
            places = np.arange(step + 1)
            ranks = choose[children + places, places + 1].sum(axis=2)
            later = self._values[self._starts[step + 1] + ranks]
            gains[start : start + block] += later.reshape(len(part), self._problem.n_arms, -1).sum(axis=2)
        return gains

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        return best_allowed(self.arm_values(state), allowed)


@dataclass(frozen=True)
class Exact:
    """The optimum, by dynamic programming over counts of what was seen.

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
        check_one_prior(problem)
        needed = all_states(problem)
        if needed > self.max_states:
            raise TooLarge(
                f"Exact would need {needed} states ({len(problem.table)} arm-value pairs, {problem.horizon} steps; "
                f"{needed * STATE_BYTES / 1e9:.3g} GB), "
                f"more than max_states={self.max_states}: use Certified"
            )
        clock.record(*root_bounds(problem, 0))
        reason = Status.TIME_LIMIT
        try:
            found = solved(problem, clock)
        except KeyboardInterrupt:
            found, reason = None, Status.INTERRUPTED
        return _stopped(problem, clock, reason, needed) if found is None else found

    def solve_without_repeats(self, problem: Problem, clock: Clock) -> Plan:
        check_one_prior(problem)
        return plan_once_exactly(problem, clock)


def check_one_prior(problem: Problem) -> None:
    """Raise where sessions start at several priors: the table of values holds for one."""
    if problem.priors is not None:
        raise InvalidArgument(
            f"method must be Certified where sessions start at several priors, got Exact, whose table is for one, with "
            f"{len(problem.priors)} priors"
        )


def _stages(problem: Problem, clock: Clock) -> list[Float[Array, "states"]] | None:
    """Values of all states, steps 0 to H - 2, then the value of the start; None when time ran out."""
    table = binomials(len(problem.table), problem.horizon)
    kept: list[Float[Array, "states"]] = []
    later = np.empty(0)
    for step in range(problem.horizon - 1, -1, -1):
        values = np.empty(n_states(len(problem.table), step))
        for _ in _blocks(problem, step, table, later, values):
            if clock.expired and step > 0:
                return None
        if step < problem.horizon - 1 or step == 0:
            kept.insert(0, values)
        later = values
    return kept


def _blocks(
    problem: Problem,
    step: int,
    table: Integer[Array, "n k"],
    later: Float[Array, "next"],
    values: Float[Array, "states"],
) -> Iterator[None]:
    """Fill `values` block by block, with a pause to look at the clock after each."""
    symbols = np.zeros(step, np.int64)
    size = max(1, _BLOCK // problem.means.size)
    block = kernel("planning").exact_block
    for start in range(0, len(values), size):
        part = values[start : start + size]
        block(problem.weights, problem.table, problem.means, table, later, symbols, part)
        yield


def solved(problem: Problem, clock: Clock) -> Plan | None:
    """Return the optimal plan, or None if the time runs out."""
    kept = _stages(problem, clock)
    if kept is None:
        return None
    value = float(kept[0][0])
    tables = kept[: problem.horizon - 1]
    policy = ExactPolicy(
        problem.bandit,
        np.concatenate(tables) if tables else np.empty(0),
        **problem.of_policy,
    )
    upper, status = value, Status.OPTIMAL
    message = f"dynamic programming over {all_states(problem)} counts of observations: nothing better exists"
    if problem.binned:
        upper, status = problem.full_information, Status.HEURISTIC
        message = (
            f"optimal among the policies that see rewards in {problem.n_values} bins per arm, and its exact value; "
            "the upper bound is that of knowing the type"
        )
    clock.trace.clear()
    clock.record(value, upper)
    return Plan(policy, problem.horizon, value, upper, status, message, tuple(clock.trace))


def _stopped(problem: Problem, clock: Clock, reason: Status, needed: int) -> Plan:
    """Out of time: a lookahead instead, with what it proves."""
    depth = 1
    clock.record(*root_bounds(problem, depth))
    policy = LookaheadPolicy(problem.bandit, depth=depth, **problem.of_policy)
    message = f"stopped before all {needed} states were done ({reason}): the policy is a lookahead of depth {depth}"
    lower, upper = clock.trace[-1][1:]
    upper = problem.full_information if problem.binned else upper
    return Plan(policy, problem.horizon, lower, upper, reason, message, tuple(clock.trace))


def all_states(problem: Problem) -> int:
    """Return the number of counts of observations of all steps together."""
    return sum(n_states(len(problem.table), step) for step in range(problem.horizon))


def n_states(n_codes: int, step: int) -> int:
    """Counts of `step` observations over `n_codes` codes."""
    return math.comb(n_codes + step - 1, step)


def binomials(n_codes: int, horizon: int) -> Integer[Array, "n k"]:
    """Pascal's triangle, as large as ranks of `horizon` symbols need."""
    table = np.zeros((n_codes + horizon + 2, horizon + 2), np.int64)
    table[:, 0] = 1
    for i in range(1, len(table)):
        for j in range(1, table.shape[1]):
            table[i, j] = min(int(table[i - 1, j - 1]) + int(table[i - 1, j]), 1 << 62)
    return table
