"""Every planner beside brute force on tiny problems: no bound is wrong, no policy is below its lower bound."""

from __future__ import annotations

import pytest
import tiny_problems
from tiny_problems import Tiny

from lmab import QMDP, Certified, Exact
from lmab.errors import Status
from lmab.planning import Lookahead, PointBased
from lmab.planning.problem import Clock

SECONDS = 60.0
METHODS = (
    Certified(gap=1e-3),
    Certified(gap=0.2, n_beliefs=5),
    Exact(),
    Lookahead(1),
    Lookahead(2),
    PointBased(n_beliefs=10),
    QMDP(),
)


def check(tiny: Tiny, method: object) -> None:
    """Check the bounds and the policy of a planner on one problem."""
    problem = tiny.problem
    if problem.priors is not None and isinstance(method, Exact):
        return
    plan = method.solve(problem, Clock(SECONDS)) if problem.repeats else method.solve_without_repeats(
        problem, Clock(SECONDS)
    )  # fmt: skip
    best, slack = tiny.optimum(), tiny.error + 1e-9 * max(problem.scale, 1e-9)
    assert plan.lower <= best + slack, (method, plan, best)
    assert plan.upper >= best - slack, (method, plan, best)
    value = tiny.value(plan.policy)
    assert plan.lower - slack <= value <= best + slack, (method, plan, best, value)
    if plan.status == Status.OPTIMAL:
        assert plan.lower == pytest.approx(best, abs=slack)


def check_seed(seed: int, n_methods: int, *, step_effects: bool = False) -> None:
    tiny = tiny_problems.draw(seed, step_effects=step_effects)
    for k in range(n_methods):
        check(tiny, METHODS[(seed // 4 + k) % len(METHODS)])


@pytest.mark.parametrize("block", range(8))
def test_no_bound_is_wrong_and_no_policy_is_below_its_bound(block):
    for seed in range(20 * block, 20 * (block + 1)):
        check_seed(seed, 2)


@pytest.mark.parametrize("block", range(4))
def test_no_bound_is_wrong_with_step_effects(block):
    for seed in range(20_000 + 15 * block, 20_000 + 15 * (block + 1)):
        check_seed(seed, 2, step_effects=True)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_no_bound_is_wrong_with_step_effects_on_hundreds(block):
    for seed in range(30_000 + 50 * block, 30_000 + 50 * (block + 1)):
        check_seed(seed, len(METHODS), step_effects=True)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_no_bound_is_wrong_and_no_policy_is_below_its_bound_on_thousands(block):
    for seed in range(10_000 + 100 * block, 10_000 + 100 * (block + 1)):
        check_seed(seed, len(METHODS))
