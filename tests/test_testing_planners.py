"""check_planner catches: for every law a planner that breaks that law alone, and the message names it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import oracle
import pytest
from policies import in_turn
from test_testing_policies import Chatty

import lmab
from lmab.errors import InvalidArgument
from lmab.planning.problem import Bounds, Clock, Plan, Problem
from lmab.testing.oracle import discrete_cases, small_bandit
from lmab.testing.planners import LAWS, check_planner
from lmab.testing.report import BrokenLaw

FAST = {"n_random": 2}


class Right:
    """The optimum, told by another planner."""

    def solve(self, problem: Problem, clock: Clock) -> Plan:
        return lmab.Exact().solve(problem, clock)

    def solve_without_repeats(self, problem: Problem, clock: Clock) -> Plan:
        return lmab.Exact().solve_without_repeats(problem, clock)


class TwoArmsAtLeast(Right):
    def solve(self, problem, clock):
        if problem.n_arms == 1:
            raise ZeroDivisionError("division by zero")
        return super().solve(problem, clock)


class RefusesOneType(Right):
    def solve(self, problem, clock):
        if len(problem.weights) == 1:
            raise InvalidArgument("bandit must have two types")
        return super().solve(problem, clock)


class ForOneStep(Right):
    def solve(self, problem, clock):
        return replace(super().solve(problem, clock), horizon=1)


class PolicyTooShort(Right):
    def solve(self, problem, clock):
        return replace(super().solve(problem, clock), policy=in_turn(0, n_arms=problem.n_arms))


class Infinite(Right):
    def solve(self, problem, clock):
        return replace(super().solve(problem, clock), upper=np.inf)


class LowerTooHigh(Right):
    """The value of the optimum as the bound of a policy that does not reach it."""

    def solve(self, problem, clock):
        policy = lmab.QMDP().solve(problem, clock).policy
        return replace(super().solve(problem, clock), policy=policy)


class UpperTooLow(Right):
    def solve(self, problem, clock):
        plan = lmab.QMDP().solve(problem, clock)
        return replace(plan, upper=plan.lower)


class WordsOfItsOwn(Right):
    def solve(self, problem, clock):
        return replace(super().solve(problem, clock), status="converged")


class SaysOptimal(Right):
    def solve(self, problem, clock):
        return replace(lmab.QMDP().solve(problem, clock), status="optimal")


class SaysNothing(Right):
    def solve(self, problem, clock):
        return replace(super().solve(problem, clock), message="")


class Worsens(Right):
    def solve(self, problem, clock):
        plan = super().solve(problem, clock)
        first = Bounds(0.0, plan.lower, plan.upper)
        return replace(plan, trace=(first, Bounds(0.1, plan.lower - 1, plan.upper + 1), *plan.trace))


class TraceOfAnother(Right):
    def solve(self, problem, clock):
        clock.record(-1e3, 1e3)
        plan = super().solve(problem, clock)
        return replace(plan, trace=(Bounds(0.0, -1e3, 1e3),))


class TellsNothing(Right):
    def solve(self, problem, clock):
        return super().solve(problem, Clock(clock.time_limit))


class TellsOtherwise(Right):
    def solve(self, problem, clock):
        clock.record(-1e3, 1e3)
        return super().solve(problem, Clock(clock.time_limit))


class BadPolicy(Right):
    def solve(self, problem, clock):
        lower, upper = problem.bandit.best_fixed(problem.horizon), problem.full_information
        clock.record(lower, upper)
        policy = Chatty(problem.bandit, horizon=problem.horizon)
        return Plan(policy, problem.horizon, lower, upper, "heuristic", "greedy", tuple(clock.trace))


class HopesWhenLate(Right):
    def solve(self, problem, clock):
        plan = super().solve(problem, clock)
        return replace(plan, lower=plan.lower + 1, upper=plan.upper + 1) if clock.expired else plan


class Overruns(Right):
    def solve(self, problem, clock):
        while problem.n_arms > 10 and clock.seconds < 0.5:
            pass
        return super().solve(problem, clock)


class Changes(Right):
    """Now and then a plan is greedy."""

    calls = 0

    def solve(self, problem, clock):
        Changes.calls += 1
        greedy = np.random.default_rng(Changes.calls).random() < 0.5
        method = lmab.QMDP() if greedy else lmab.Exact()
        return method.solve(problem, clock)


class TouchesTheBandit(Right):
    def solve(self, problem, clock):
        weights = problem.bandit.weights
        weights.flags.writeable = True
        weights[0] += 1e-14
        return super().solve(problem, clock)


class Remembers(Right):
    def solve(self, problem, clock):
        if problem.horizon == 3 and problem.n_arms == 1:
            self.seen = getattr(self, "seen", 0) + 1
        return super().solve(problem, clock)

    def __repr__(self):
        return f"Remembers({getattr(self, 'seen', 0)})"


class Repeats(Right):
    """It ignores the rule that an arm is played once."""

    def solve_without_repeats(self, problem, clock):
        return replace(self.solve(replace(problem, repeats=True), clock), repeats=False)


class RepeatsAreUnknown:
    solve = Right.solve


class RefusesDarkly(Right):
    def solve_without_repeats(self, problem, clock):
        raise InvalidArgument("cannot do that")


class HopesWithoutRepeats(Right):
    def solve_without_repeats(self, problem, clock):
        plan = super().solve_without_repeats(problem, clock)
        return replace(plan, lower=plan.lower + 0.1, upper=plan.upper + 0.1)


class BoundOfTheBins(Right):
    def solve(self, problem, clock):
        plan = super().solve(problem, clock)
        return replace(plan, upper=plan.lower) if problem.binned else plan


class HopesForNormal(Right):
    def solve(self, problem, clock):
        plan = super().solve(problem, clock)
        return replace(plan, lower=plan.upper) if problem.binned else plan


BROKEN: dict[str, list[tuple[object, str]]] = {
    "every small bandit is planned": [
        (TwoArmsAtLeast(), "on 'one arm' it raised ZeroDivisionError: division by zero"),
        (RefusesOneType(), "on 'one type' it raised InvalidArgument: bandit must have two types"),
        (ForOneStep(), "the plan must be for 4 steps, got 1"),
        (PolicyTooShort(), "horizon must be at most the policy's 1"),
        (Infinite(), "must be finite and in order, got .* and inf"),
    ],
    "lower <= value of the policy <= optimum <= upper": [
        (LowerTooHigh(), r"over \d steps lower is .*, but the policy earns"),
        (UpperTooLow(), r"over \d steps upper is .*, but the optimum is"),
    ],
    "the status is one of the vocabulary and says the truth": [
        (WordsOfItsOwn(), "got 'converged'"),
        (SaysOptimal(), "status is 'optimal', but the bounds are"),
        (SaysNothing(), "message must say what was done, got ''"),
    ],
    "the trace never worsens and ends at the plan's bounds": [
        (Worsens(), "the trace goes from Bounds"),
        (TraceOfAnother(), "the trace ends with Bounds"),
    ],
    "progress is told the bounds of the trace": [
        (TellsNothing(), "progress was told nothing"),
        (TellsOtherwise(), "but progress was told"),
    ],
    "the policy keeps the laws of policies": [(BadPolicy(), "Chatty breaks the law 'the repr is short'")],
    "a time limit is kept and leaves bounds that hold": [
        (HopesWhenLate(), "(no time left)"),
        (Overruns(), "with time_limit=0.05 on LatentBandit"),
    ],
    "the same problem gives the same plan": [(Changes(), "the first time and .* the second")],
    "planning changes neither bandit nor method": [
        (TouchesTheBandit(), "planning changed the bandit"),
        (Remembers(), r"planning changed the method from Remembers\(\d+\) to Remembers\(\d+\)"),
    ],
    "without repeats the bounds hold, or planning is refused": [
        (Repeats(), r"without repeats it plays the arms \[(\d), \1"),
        (RepeatsAreUnknown(), "it raised AttributeError"),
        (RefusesDarkly(), "the error must say that repeats are the reason, got cannot do that"),
        (HopesWithoutRepeats(), "without repeats' over"),
    ],
    "with normal rewards the bounds hold, or planning is refused": [
        (BoundOfTheBins(), "on 'normal rewards' upper is"),
        (HopesForNormal(), "on 'normal rewards' lower is"),
    ],
}


def test_every_law_is_broken_by_something():
    assert BROKEN.keys() == LAWS.keys()


@pytest.mark.parametrize(
    ("law", "method", "seen"),
    [(law, *case) for law, cases in BROKEN.items() for case in cases],
    ids=lambda value: "" if isinstance(value, str) else type(value).__name__,
)
def test_a_broken_law_is_named_with_what_was_seen(law, method, seen):
    with pytest.raises(BrokenLaw) as caught:
        check_planner(method, patience=0.2 if isinstance(method, Overruns) else 60.0, **FAST)
    assert str(caught.value).startswith(f"{type(method).__name__} breaks ")
    message = caught.value.laws[law]  # others may be broken as well
    assert message in str(caught.value)
    assert re.search(seen, message) or seen in message, message


def test_a_good_planner_passes():
    assert check_planner(Right(), **FAST).kept == tuple(LAWS)


def test_a_planner_may_need_arguments_and_refuse():
    @dataclass(frozen=True)
    class Wrapped:
        inner: lmab.planning.PointBased  # no default

        def solve(self, problem: Problem, clock: Clock) -> Plan:
            if problem.binned:
                raise InvalidArgument("rewards must have finitely many values")
            return self.inner.solve(problem, clock)

        def solve_without_repeats(self, problem: Problem, clock: Clock) -> Plan:
            raise InvalidArgument("repeats must be True")

    report = check_planner(Wrapped(lmab.planning.PointBased()), **FAST)
    assert len(report.not_checked) == 2
    assert "finitely many values" in repr(report)


def test_random_bandits_are_as_many_as_asked_for():
    assert len(discrete_cases(5)) == len(discrete_cases(0)) + 5
    assert discrete_cases(1)["small_bandit(0)"][0] == small_bandit(0)[0]


# the oracle itself


def test_brute_force_knows_what_is_known():
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.7, 0.4], [0.4, 0.7]])  # greedy is optimal (Feldman, 1962)
    inputs = bandit.weights, bandit.rewards.probabilities, bandit.rewards.values.tolist()
    assert oracle.optimal_value(*inputs, 5) == pytest.approx(2.980355, abs=1e-9)
    greedy = lmab.Greedy(bandit)
    assert oracle.policy_value(*inputs, greedy.act_on, 5) == pytest.approx(2.980355, abs=1e-9)
    uniform = oracle.mixed_value(*inputs, lambda history: [0.5, 0.5], 3)
    assert uniform == pytest.approx(3 * 0.55)
    sure = oracle.mixed_value(*inputs, lambda history: np.eye(2)[greedy.act_on(history)], 5)
    assert sure == pytest.approx(2.980355, abs=1e-9)


def test_brute_force_without_repeats():
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    inputs = bandit.weights, bandit.rewards.probabilities, bandit.rewards.values.tolist()
    assert oracle.optimal_value(*inputs, 2, repeats=False) == pytest.approx(0.5 + 0.55)
    assert oracle.optimal_value(*inputs, 2) > 1.05


def test_integrals_over_normal_rewards():
    weights, means, scale = [0.6, 0.4], np.array([[1.0, 0.2, 0.5], [0.0, 0.9, 0.5]]), 0.6
    fixed = oracle.gaussian_two_steps(weights, means, scale, 2, lambda grid: np.full(len(grid), 0))
    assert fixed == pytest.approx(0.5 + 0.6, abs=1e-6)
    best = oracle.gaussian_optimum(weights, means, scale)
    once = oracle.gaussian_optimum(weights, means, scale, repeats=False)
    bandit = lmab.LatentBandit.gaussian(weights, means, scale)
    assert bandit.best_fixed(2, repeats=False) < once < best < bandit.known_type(2)
    greedy = lmab.Greedy(bandit)
    simulated = lmab.evaluate(greedy, bandit, horizon=2, n_sessions=200_000, rng=0)
    first = greedy.act_on([])
    value = oracle.gaussian_two_steps(
        weights,
        means,
        scale,
        first,
        lambda grid: np.asarray(greedy.act(greedy.observe(greedy.start(len(grid)), np.full(len(grid), first), grid))),
    )
    assert value == pytest.approx(simulated.mean, abs=4 * simulated.stderr)
    # A wide scale tells nothing, a narrow one all: the limits are the fixed choice and one step of it.
    assert oracle.gaussian_optimum(weights, means, 500.0) == pytest.approx(1.2, abs=1e-2)
    assert oracle.gaussian_optimum(weights, means, 0.01) == pytest.approx(0.6 + 0.6 * 1.0 + 0.4 * 0.9, abs=1e-3)
