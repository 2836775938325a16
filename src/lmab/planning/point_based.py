"""PointBased: value iteration on beliefs that sessions are likely to reach (PBVI), the paper's planning oracle."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._shapes import Array, Float, Integer
from ..checks import COUNT, Count, check_fields
from ..errors import InvalidArgument
from ..status import Status
from .clock import Clock
from .lookahead import heuristic_plan, lookahead_values, root_bounds
from .problem import Problem
from .result import Plan
from .vectors import vector_policy

VectorSet = tuple[Float[Array, "K M"], Integer[Array, "K"]]  # vectors and the first arm of each one's plan

#: How the arms of simulated sessions are chosen: one-step lookahead, greedy, Thompson, and the rest at random.
#: Without lookahead the beliefs after a revealing arm are never seen.
_LOOKAHEAD, _GREEDY, _THOMPSON = 0.55, 0.65, 0.85


@dataclass(frozen=True)
class PointBased:
    """PBVI: simulate `n_beliefs` sessions, then back up the best plans at their beliefs, last step first.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> lmab.plan(bandit, horizon=5, method=lmab.PointBased()).policy.act_on([])
        0
    """

    n_beliefs: int = 300
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self, {"n_beliefs": COUNT, "seed": Count(0)})

    def solve(self, problem: Problem, clock: Clock) -> Plan:
        clock.record(*root_bounds(problem, 1))
        sets = fixed_arms(problem)
        reason = None
        try:
            beliefs = simulated_beliefs(problem, self.n_beliefs, np.random.default_rng(self.seed))
            for remaining in range(2, problem.horizon + 1):
                if clock.expired:
                    reason = Status.TIME_LIMIT
                    break
                sets[remaining - 1] = join(
                    sets[remaining - 1], backup(problem, beliefs[remaining], sets[remaining - 2][0])
                )
        except KeyboardInterrupt:
            reason = Status.INTERRUPTED
        # The start's own lookahead bound belongs to another policy: the vectors' value is the one that is proved.
        lower = float((sets[-1][0] @ problem.weights).max())
        upper = clock.trace[-1].upper
        clock.trace.clear()
        clock.record(lower, upper)
        plan = heuristic_plan(
            problem, vector_policy(problem, sets), clock, f"PBVI on {self.n_beliefs} beliefs per step"
        )
        return plan if reason is None else replace(plan, status=reason)

    def solve_without_repeats(self, problem: Problem, clock: Clock) -> Plan:
        raise InvalidArgument("method must be Certified, Exact, Lookahead or QMDP without repeats, got PointBased")


def fixed_arms(problem: Problem) -> list[VectorSet]:
    """For 1, 2, ..., H steps to go: one arm for all of them."""
    arms = problem.last_arms
    return [(remaining * problem.means[arms], arms) for remaining in range(1, problem.horizon + 1)]


def join(first: VectorSet, second: VectorSet) -> VectorSet:
    return np.concatenate([first[0], second[0]]), np.concatenate([first[1], second[1]])


def simulated_beliefs(problem: Problem, n: int, rng: np.random.Generator) -> dict[int, Float[Array, "k M"]]:
    """Distinct beliefs of n simulated sessions, by steps to go."""
    contexts = rng.choice(len(problem.weights), size=n, p=problem.weights / problem.weights.sum())
    beliefs = np.tile(problem.weights, (n, 1))
    found = {problem.horizon: problem.weights[None]}
    for remaining in range(problem.horizon, 2, -1):
        arms = _explore(problem, beliefs, remaining, rng)
        codes = _observe(problem, contexts, arms, rng)
        beliefs = beliefs * problem.table[codes]
        beliefs /= beliefs.sum(axis=1, keepdims=True)
        found[remaining - 1] = np.unique(beliefs.round(10), axis=0)
    return found


def _explore(
    problem: Problem, beliefs: Float[Array, "n M"], remaining: int, rng: np.random.Generator
) -> Integer[Array, "n"]:
    draw = rng.random(len(beliefs))
    # Sessions share beliefs, the first steps above all: look ahead once for each.
    distinct, group = np.unique(beliefs, axis=0, return_inverse=True)
    lookahead = lookahead_values(problem, distinct, remaining, 1).argmax(axis=1)[group.ravel()]
    greedy = (beliefs @ problem.means.T).argmax(axis=1)
    drawn = (beliefs.cumsum(axis=1) > rng.random((len(beliefs), 1))).argmax(axis=1)
    thompson = problem.means.argmax(axis=0)[drawn]
    anything = rng.integers(problem.n_arms, size=len(beliefs))
    return np.select([draw < _LOOKAHEAD, draw < _GREEDY, draw < _THOMPSON], [lookahead, greedy, thompson], anything)


def _observe(
    problem: Problem, contexts: Integer[Array, "n"], arms: Integer[Array, "n"], rng: np.random.Generator
) -> Integer[Array, "n"]:
    codes = arms[:, None] * problem.n_values + np.arange(problem.n_values)
    cumulative = problem.table[codes, contexts[:, None]].cumsum(axis=1)
    values = (cumulative <= rng.random((len(arms), 1)) * cumulative[:, -1:]).sum(axis=1)
    return codes[np.arange(len(arms)), np.minimum(values, problem.n_values - 1)]


def backup(problem: Problem, beliefs: Float[Array, "n M"], later: Float[Array, "K M"]) -> VectorSet:
    """The best plan at each belief that continues with one of the `later` plans."""
    n_values, transposed = problem.n_values, np.ascontiguousarray(later.T)
    best = np.full(len(beliefs), -np.inf)
    vectors, arms = np.empty(beliefs.shape), np.zeros(len(beliefs), np.int64)
    for arm in range(problem.n_arms):
        candidates = np.tile(problem.means[arm], (len(beliefs), 1))
        for likelihood in problem.table[arm * n_values : (arm + 1) * n_values]:
            chosen = ((beliefs * likelihood) @ transposed).argmax(axis=1)
            candidates += likelihood * later[chosen]
        values = np.einsum("nm,nm->n", candidates, beliefs)
        better = values > best
        best[better], vectors[better], arms[better] = values[better], candidates[better], arm
    _, first = np.unique(vectors.round(12), axis=0, return_index=True)
    return vectors[first], arms[first]
