"""Planning for sessions that play each arm at most once: lookahead and greedy policies, and their bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..._shapes import Array, Bool, Float, Integer
from ...errors import InvalidArgument, Status
from ...model.attrition_values import known_type_values_without_repeats
from ...policies.policy import State, best_allowed, mask_unplayed
from ..policies import DepthPolicy, OncePolicy, worth_at_least
from ..problem import Clock, OutOfTime, Plan, Problem
from .backups import best_sequences

WITHOUT_BINS = "the upper bound is that of knowing the type after the first step"
_CHUNK = 1 << 21  # numbers expanded at once


class OnceLookaheadPolicy(OncePolicy, DepthPolicy):
    """Look `depth` rewards ahead among the arms not yet played, then value the best fixed sequence of the rest.

    The memory of a session is its belief, then a 1 for every arm played. Depth 0 is greedy without repeats.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5, 0.3], [0.1, 0.6, 0.3]])
        >>> policy = lmab.plan(bandit, horizon=3, method=lmab.planning.Lookahead(), repeats=False).policy
        >>> policy.act_on([(1, 1.0)])
        0
    """

    kind = "once"

    def arm_values(self, state: State) -> Float[Array, "n A"]:
        """What each arm is worth now; -inf for those played before."""
        beliefs = self._problem.beliefs(state.memory)
        left, played = self._remaining(state), self._played(state)
        return once_values(self._problem, beliefs, played, left, self.depth, optimistic=self.optimistic)

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        return best_allowed(self.arm_values(state), mask_unplayed(self._played(state), allowed))


def once_values(
    problem: Problem,
    beliefs: Float[Array, "n M"],
    played: Bool[Array, "n A"],
    remaining: int,
    depth: int,
    *,
    optimistic: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> Float[Array, "n A"]:
    """Q-values without repeats: expectimax for `depth` rewards, then the best fixed sequence of the arms left.

    With `optimistic` the end is valued as if the type were known; -inf for arms already played. When `stop` says so,
    `OutOfTime` is raised.
    """
    depth, values = min(depth, remaining - 1), beliefs @ problem.means.T
    if depth == 0:
        if (optimistic or problem.people_leave) and remaining > 1:
            for arm in range(problem.n_arms):
                after = played.copy()
                after[:, arm] = True
                who = beliefs * problem.stays[arm] if problem.people_leave else beliefs
                values[:, arm] += _ends(problem, who, after, remaining - 1, optimistic, stop)
        # Otherwise greedy: any order of the best sequence is worth the same, but the best first learns no less.
        return np.where(played, -np.inf, values)
    n_codes, n_values = len(problem.table), problem.n_values
    block = max(1, _CHUNK // (n_codes * problem.n_arms))
    for start in range(0, len(beliefs), block):
        part = slice(start, start + block)
        children = (beliefs[part, None, :] * problem.table).reshape(-1, beliefs.shape[1])
        after = np.repeat(played[part], n_codes, axis=0)
        after[np.arange(len(after)), np.tile(np.arange(n_codes) // n_values, len(after) // n_codes)] = True
        if depth == 1:
            deeper = _ends(problem, children, after, remaining - 1, optimistic, stop)
        else:
            below = once_values(problem, children, after, remaining - 1, depth - 1, optimistic=optimistic, stop=stop)
            deeper = below.max(axis=1)
        values[part] += deeper.reshape(-1, problem.n_arms, n_values).sum(axis=2)
    return np.where(played, -np.inf, values)


def _ends(
    problem: Problem,
    beliefs: Float[Array, "n M"],
    played: Bool[Array, "n A"],
    remaining: int,
    optimistic: bool,
    stop: Callable[[], bool],
) -> Float[Array, "n"]:
    """The best `remaining` unplayed arms: by their means at the belief, or in every type by itself."""
    if stop():
        raise OutOfTime
    if problem.people_leave and optimistic:
        return np.einsum(
            "nm,nm->n", beliefs, known_type_values_without_repeats(problem.means, problem.stays, played, remaining)
        )
    if problem.people_leave:
        steps = min(remaining, problem.n_arms - int(played.sum(axis=1).max(initial=0)))
        return best_sequences(problem, beliefs, beliefs @ problem.means.T, played, steps)[1]
    if not optimistic:
        return _top(np.where(played, -np.inf, beliefs @ problem.means.T), remaining)
    total = np.zeros(len(beliefs))
    for type_ in range(beliefs.shape[1]):
        if stop():
            raise OutOfTime
        total += beliefs[:, type_] * _top(np.where(played, -np.inf, problem.means[:, type_]), remaining)
    return total


def _top(scores: Float[Array, "n A"], count: int) -> Float[Array, "n"]:
    """The sum of the `count` highest scores; of those there are when fewer are left."""
    best = -np.partition(-scores, count - 1, axis=1)[:, :count]
    return np.where(np.isfinite(best), best, 0.0).sum(axis=1)


def once_bounds(problem: Problem, depth: int, stop: Callable[[], bool] = lambda: False) -> tuple[float, float]:
    """What a lookahead of `depth` proves at the start about sessions without repeats: (lower, upper).

    The lower bound holds for the policy: after every reward, the best sequence of the arms left is worth at least
    as much as what was left of the one before.
    """
    if problem.priors is not None:
        found = [(share, *once_bounds(one, depth, stop)) for share, one in problem.each()]
        return sum(share * lower for share, lower, _ in found), sum(share * upper for share, _, upper in found)
    start, nothing = problem.weights[None], np.zeros((1, problem.n_arms), bool)
    if depth == 0 and problem.people_leave:
        lower = float(once_values(problem, start, nothing, problem.horizon, 0, stop=stop).max())
        return lower, upper_without_bins(problem)
    if depth == 0:
        if problem.starts_at_the_weights:
            return problem.bandit.best_fixed(problem.horizon, repeats=False), upper_without_bins(problem)
        return float(np.sort(problem.means @ problem.weights)[-problem.horizon :].sum()), upper_without_bins(problem)
    lower = once_values(problem, start, nothing, problem.horizon, depth, stop=stop).max()
    upper = once_values(problem, start, nothing, problem.horizon, depth, optimistic=True, stop=stop).max()
    return float(lower), float(upper)


def upper_without_bins(problem: Problem) -> float:
    """What knowing the type after the first step would earn: a bound that no bins enter, unlike the search's own."""
    if problem.priors is not None:
        return float(sum(share * upper_without_bins(one) for share, one in problem.each()))
    means, left = problem.means, problem.horizon - 1
    if problem.people_leave:
        nothing = np.zeros((1, problem.n_arms), bool)
        most, rest = (
            known_type_values_without_repeats(means, problem.stays, nothing, steps)[0] for steps in (left + 1, left)
        )
        first = (means + problem.stays * rest) @ problem.weights
        return float(min(first.max(), most @ problem.weights))
    ranked = -np.sort(-means, axis=0)
    most, rest = ranked[: left + 1].sum(axis=0), ranked[:left].sum(axis=0)
    # An arm among the best of a type leaves room for one more; any other comes on top of the best.
    among = means >= ranked[left - 1] if left else np.zeros(means.shape, bool)
    return float((np.where(among, most, means + rest) @ problem.weights).max())


def plan_once(problem: Problem, clock: Clock, depth: int, name: str, *, optimistic: bool = False) -> Plan:
    """A lookahead plan for sessions without repeats; `optimistic`: as if the type were known after it."""
    cost = (len(problem.table) ** max(depth, 1)) * problem.n_arms
    if cost > 10**9:
        raise InvalidArgument(f"depth must keep (arms * values) ** depth * arms below 1e9, got {cost}")
    reason = Status.HEURISTIC
    policy = OnceLookaheadPolicy(problem.bandit, depth=depth, optimistic=optimistic, **problem.of_policy)
    lower, upper = once_bounds(problem, 0)
    clock.record(worth_at_least(policy, problem) if optimistic else lower, upper)
    try:
        for deeper in sorted({min(1, depth), depth} - {0}):
            lower, upper = once_bounds(problem, deeper, lambda: clock.expired)
            clock.record(lower, clock.trace[0].upper if problem.binned else upper)
    except OutOfTime:
        reason = Status.TIME_LIMIT
    except KeyboardInterrupt:
        reason = Status.INTERRUPTED
    lower, upper = clock.trace[-1][1:]
    message = f"{name} without repeats: the policy earns at least the lower bound (lmab.evaluate says how much)"
    if problem.binned:
        message += f"; rewards were binned to look ahead, {WITHOUT_BINS}"
    return Plan(policy, problem.horizon, lower, upper, reason, message, tuple(clock.trace))
