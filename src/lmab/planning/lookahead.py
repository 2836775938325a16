"""Lookahead(depth): expectimax over the next steps, then a fixed choice of arms; QMDP: as if the type became known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Bool, Float, Integer
from ..checks import Count, check_fields
from ..errors import InvalidArgument, Status
from ..policies.policy import State
from .information_bound import information_bound
from .no_repeats.sequences import best_of_known_type, best_sequences, sum_of_best
from .policies import DepthPolicy, NoRepeatPolicy, PlannedPolicy, policy_lower_bound
from .problem import Clock, OutOfTime, Plan, Problem

_CHUNK = 1 << 21  # numbers expanded at once
_BETWEEN_LOOKS = 1 << 27  # multiplications between two looks at the clock: a tenth of a second or less
_CLOSE = 0.01  # bounds this close, relative to the lower one, are not improved
_MOST_WORK = 10**8, 10**9  # expanded observations of the largest depth, with and without repeats (times the arms)


class LookaheadPolicy(DepthPolicy):
    """Policy that acts as if the session observed `depth` more rewards and then stayed with one arm.

    Depth 0 is greedy without attrition. Each deeper step costs a factor A*Z per decision. With `optimistic` the type
    counts as known afterwards: with depth 0 this is Q-MDP.
    """

    kind = "lookahead"

    def arm_values(self, state: State) -> Float[Array, "n A"]:
        """Return the value of each arm by the lookahead; -inf for arms that may not be played again."""
        beliefs, remaining = self._problem.beliefs(state.memory), self._remaining(state)
        options: dict[str, Any] = {"played": self._played(state), "optimistic": self.optimistic}
        return lookahead_values(self._problem, beliefs, remaining, self.depth, **options)


class NoRepeatLookaheadPolicy(NoRepeatPolicy, LookaheadPolicy):
    """The same among the unplayed arms, followed by the best fixed sequence of the others; depth 0 is greedy."""

    kind = "once"


def lookahead_values(
    problem: Problem,
    beliefs: Float[Array, "n M"],
    remaining: int,
    depth: int,
    *,
    played: Bool[Array, "n A"] | None = None,
    optimistic: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> Float[Array, "n A"]:
    """Return Q-values with `remaining` steps to go: expectimax for `depth` rewards, then the best fixed arm.

    With `played` (past plays) no arm is repeated: their values are -inf, and the best fixed sequence of the other arms
    follows. With `optimistic` the end is valued as if the type were known. The first is a lower, the second an upper
    bound on the optimal Q-values, and the policy that maximises the first earns at least its maximum. If `stop` returns
    True, `OutOfTime` is raised.
    """
    depth, step = min(depth, remaining - 1), problem.step(remaining)
    if depth == 0 and played is None:
        return beliefs @ _final_payoffs(problem, remaining, optimistic).T
    if depth == 1 and played is None:
        return _one_step(problem, beliefs, remaining, _terminal_vectors(problem, remaining - 1, optimistic), stop)
    values = beliefs @ step.means.T
    if depth == 0 and played is not None:
        if remaining > 1 and (optimistic or not problem.is_uniform):
            for arm in range(problem.n_arms):
                continuing, after = beliefs * step.stays[arm], _with_arm(played, np.array([arm]))
                values[:, arm] += _sequence_values(problem, continuing, after, remaining - 1, optimistic, stop)
        return np.where(
            played, -np.inf, values
        )  # otherwise greedy: any order is worth the same, best first learns more
    n_arms, n_codes = problem.n_arms, problem.n_codes
    block = max(1, _CHUNK // (n_codes**depth if played is None else n_codes * n_arms))
    arms, seen = np.repeat(np.arange(n_arms), problem.n_values), None
    for start in range(0, len(beliefs), block):
        part = slice(start, start + block)
        children = (beliefs[part, None, :] * step.table).reshape(-1, beliefs.shape[1])
        if played is not None:
            seen = _with_arm(np.repeat(played[part], n_codes, axis=0), arms)
        if depth == 1 and seen is not None:
            deeper = _sequence_values(problem, children, seen, remaining - 1, optimistic, stop)
        else:
            options: dict[str, Any] = {"played": seen, "optimistic": optimistic, "stop": stop}
            deeper = lookahead_values(problem, children, remaining - 1, depth - 1, **options).max(axis=1)
        values[part] += deeper.reshape(-1, n_arms, problem.n_values).sum(axis=2)
    return values if played is None else np.where(played, -np.inf, values)


def _with_arm(played: Bool[Array, "n A"], arms: Integer[Array, "k"]) -> Bool[Array, "n A"]:
    """Return the past plays with one more arm for each session; `arms` repeats."""
    after = played.copy()
    after[np.arange(len(after)), np.resize(arms, len(after))] = True
    return after


def _final_payoffs(problem: Problem, remaining: int, optimistic: bool) -> Float[Array, "A M"]:
    """Return the payoff of each arm now, plus the later payoffs if these differ between arms."""
    step = problem.step(remaining)
    if optimistic:
        return step.means + step.stays * problem.known.best[remaining - 1]
    return problem.always(remaining) if problem.people_leave else step.means


def _terminal_vectors(problem: Problem, steps: int, optimistic: bool) -> Float[Array, "K M"]:
    """Return the alpha-vectors after a lookahead: any fixed arm, or with `optimistic` the best arms of a known type."""
    if not optimistic or steps == 1:  # the last step needs no optimism: its value is the best mean
        return problem.fixed_arms[steps - 1][0]
    return problem.known.best[steps][None]


def _one_step(
    problem: Problem,
    beliefs: Float[Array, "n M"],
    remaining: int,
    vectors: Float[Array, "K M"],
    stop: Callable[[], bool],
) -> Float[Array, "n A"]:
    """Call the compiled lookahead, with a look at the clock now and then."""
    step, one_step = problem.step(remaining), kernel("planning").one_step_values
    block = max(1, _BETWEEN_LOOKS // (problem.n_codes * vectors.size))
    parts = []
    for start in range(0, len(beliefs), block):
        if stop():
            raise OutOfTime
        parts.append(one_step(beliefs[start : start + block], step.table, step.means, vectors))
    return np.concatenate(parts) if parts else np.empty((0, problem.n_arms))


def _sequence_values(
    problem: Problem,
    beliefs: Float[Array, "n M"],
    played: Bool[Array, "n A"],
    remaining: int,
    optimistic: bool,
    stop: Callable[[], bool],
) -> Float[Array, "n"]:
    """Return the values of the best `remaining` unplayed arms: by their means at the belief, or for a known type."""
    if stop():
        raise OutOfTime
    if optimistic:
        return best_of_known_type(problem, beliefs, played, remaining, stop)
    if problem.is_uniform:
        return sum_of_best(np.where(played, -np.inf, beliefs @ problem.means.T), remaining)
    steps = min(remaining, problem.n_arms - int(played.sum(axis=1).max(initial=0)))
    return best_sequences(problem, beliefs, beliefs @ problem.step(remaining).means.T, played, steps)[1]


def root_bounds(problem: Problem, depth: int, stop: Callable[[], bool] = lambda: False) -> tuple[float, float]:
    """Return the bounds (lower, upper) of a lookahead of `depth` at the initial belief, averaged over the priors.

    The lower bound holds for the policy: after every reward the best fixed choice is worth at least the rest of the
    one before.
    """
    if problem.priors is not None:
        found = [(share, *root_bounds(one, depth, stop)) for share, one in problem.each()]
        return sum(share * lower for share, lower, _ in found), sum(share * upper for share, _, upper in found)
    start, horizon, known = problem.weights[None], problem.horizon, problem.full_information
    played = None if problem.repeats else np.zeros((1, problem.n_arms), bool)
    if depth == 0 or horizon == 1:
        lower = _fixed_value(problem, start, played, stop)
        return lower, lower if horizon == 1 else known
    options: dict[str, Any] = {"played": played, "stop": stop}
    lower = float(lookahead_values(problem, start, horizon, depth, **options).max())
    above = problem.upper_problem
    upper = float(lookahead_values(above, start, horizon, depth, optimistic=True, **options).max())
    return lower, min(upper, known)


def _fixed_value(
    problem: Problem, start: Float[Array, "1 M"], played: Bool[Array, "1 A"] | None, stop: Callable[[], bool]
) -> float:
    """Return the value of the best fixed arm or sequence, which being greedy exceeds: learning never hurts."""
    horizon = problem.horizon
    if problem.repeats:
        return float((problem.always(horizon) @ problem.weights).max())
    if not problem.is_uniform:
        return float(lookahead_values(problem, start, horizon, 0, played=played, stop=stop).max())
    if problem.starts_at_the_weights:
        return problem.bandit.best_fixed(horizon, repeats=False)
    return float(np.sort(problem.means @ problem.weights)[-horizon:].sum())


def tighten_upper_bound(problem: Problem, lower: float, upper: float, clock: Clock) -> float:
    """Return the smaller of the upper bound and the information bound, which is not computed if bounds are close."""
    close = upper - lower <= _CLOSE * abs(lower)
    if problem.horizon == 1 or not problem.repeats or close or clock.expired:
        return upper
    bound = information_bound(problem.upper_problem.step_model, problem.weights, stop=lambda: clock.expired)
    if problem.priors is not None and problem.shares is not None:
        return min(upper, float(problem.shares @ bound.bound(problem.priors, problem.horizon)))
    return min(upper, bound.at_start * float(problem.weights.sum()))


@dataclass(frozen=True)
class Lookahead:
    """Lookahead of `depth` rewards, then one fixed arm (or sequence), decided again after every reward.

    Fast, and often near the optimum; `lower` and `upper` are the bounds that the lookahead itself proves.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> lmab.plan(bandit, horizon=5, method=lmab.planning.Lookahead()).policy.act_on([])
        0
    """

    depth: int = 1

    def __post_init__(self) -> None:
        check_fields(self, {"depth": Count(0)})

    def solve(self, problem: Problem, clock: Clock) -> Plan:
        return plan_lookahead(problem, clock, self.depth, f"lookahead of depth {self.depth}")

    def solve_without_repeats(self, problem: Problem, clock: Clock) -> Plan:
        return self.solve(replace(problem, repeats=False), clock)


def plan_lookahead(problem: Problem, clock: Clock, depth: int, name: str) -> Plan:
    """Return the plan of a lookahead; its bounds become tighter with the depth as long as there is time."""
    work = problem.n_codes ** (depth if problem.repeats else max(depth, 1))
    if not problem.repeats:
        work *= problem.n_arms
    if work > _MOST_WORK[not problem.repeats]:
        formula = "(arms * values) ** depth" if problem.repeats else "(arms * values) ** depth * arms"
        raise InvalidArgument(f"depth must keep {formula} at most {_MOST_WORK[not problem.repeats]:.0e}, got {work}")
    policy = (LookaheadPolicy if problem.repeats else NoRepeatLookaheadPolicy)(
        problem.bandit, depth=depth, **problem.of_policy
    )
    clock.record(*root_bounds(problem, 0))
    reason = Status.HEURISTIC
    try:
        for deeper in sorted({min(1, depth), depth}):
            clock.record(*root_bounds(problem, deeper, lambda: clock.expired))
        clock.record(clock.trace[-1].lower, tighten_upper_bound(problem, *clock.trace[-1][1:], clock))
    except OutOfTime:
        reason = Status.TIME_LIMIT
    except KeyboardInterrupt:
        reason = Status.INTERRUPTED
    return replace(heuristic_plan(problem, policy, clock, name), status=reason)


def heuristic_plan(problem: Problem, policy: PlannedPolicy, clock: Clock, name: str) -> Plan:
    """Return a plan with the bounds that its method found in passing."""
    lower, upper = clock.trace[-1][1:]
    rule = "" if problem.repeats else ", no arm twice"
    message = f"{name}{rule}: the lower bound holds for the policy, whose value is usually higher (see lmab.evaluate)"
    if problem.binned:
        message += f"; rewards were put into {problem.n_values} bins per arm"
    plan = Plan(policy, problem.horizon, lower, upper, Status.HEURISTIC, message, tuple(clock.trace))
    return replace(plan, repeats=problem.repeats)


@dataclass(frozen=True)
class QMDP:
    """Policy that assumes that the type is known from the next step on.

    Types are static, so without attrition the second part is the same for every arm, and Q-MDP is the greedy policy.
    With attrition only sessions that continue earn the second part, so Q-MDP keeps sessions going. It never plays an
    arm for its information: a baseline, not a planner.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> lmab.plan(bandit, horizon=5, method=lmab.QMDP()).policy.act_on([])
        1
    """

    def solve(self, problem: Problem, clock: Clock) -> Plan:
        if not problem.people_leave:
            return plan_lookahead(problem, clock, 0, "Q-MDP, which is greedy without attrition")
        # With attrition no fixed arm bounds Q-MDP from below: its own sessions do.
        policy_class = LookaheadPolicy if problem.repeats else NoRepeatLookaheadPolicy
        policy = policy_class(problem.bandit, depth=0, optimistic=True, **problem.of_policy)
        clock.record(policy_lower_bound(policy, problem), root_bounds(problem, 0)[1])
        reason = Status.HEURISTIC
        try:
            clock.record(clock.trace[-1].lower, tighten_upper_bound(problem, *clock.trace[-1][1:], clock))
        except KeyboardInterrupt:
            reason = Status.INTERRUPTED
        name = "Q-MDP, which values later steps as if the type were known"
        return replace(heuristic_plan(problem, policy, clock, name), status=reason)

    def solve_without_repeats(self, problem: Problem, clock: Clock) -> Plan:
        return self.solve(replace(problem, repeats=False), clock)
