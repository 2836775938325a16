"""Plans that are stopped by Ctrl-C or by their clock, wherever the planner happens to be."""

from __future__ import annotations

import pytest

import lmab
from lmab.errors import Status
from lmab.planning import Clock, Lookahead, PointBased, Problem

HARD = lmab.random_bandit(3, 7, kind="hard", rng=0)
LEAVING = lmab.LatentBandit.bernoulli(
    [0.5, 0.5], [[0.9, 0.2, 0.6], [0.1, 0.8, 0.4]], leaving=[[[0.4, 0.05]] * 3, [[0.1, 0.02]] * 3]
)
HORIZON = 3
PLANNERS = {
    "Certified": lmab.Certified(gap=1e-9),
    "Exact": lmab.Exact(),
    "PointBased": PointBased(n_beliefs=20),
    "Lookahead": Lookahead(1),
    "Lookahead of two": Lookahead(2),
    "QMDP": lmab.QMDP(),
}
BANDITS = {"all stay": HARD, "people leave": LEAVING}
OPTIMA = {
    (name, repeats): lmab.plan(bandit, horizon=HORIZON, repeats=repeats, method=lmab.Exact())
    for name, bandit in BANDITS.items()
    for repeats in ((True, False) if name == "all stay" else (True,))
}


class Stopped(Clock):
    """A clock that is looked at so many times before it stops the planner."""

    def __init__(self, looks: int, how: type[BaseException] | None) -> None:
        super().__init__(float("inf"))
        self.looks, self.how, self.reached = looks, how, False

    @property
    def expired(self) -> bool:
        self.looks -= 1
        if self.looks < 0:
            self.reached = True
            if self.how is not None:
                raise self.how
        return self.looks < 0

    @property
    def seconds(self) -> float:
        return 0.0


@pytest.mark.parametrize("looks", [0, 1, 3])
@pytest.mark.parametrize("how", [KeyboardInterrupt, None], ids=["Ctrl-C", "time"])
@pytest.mark.parametrize(("bandit", "repeats"), OPTIMA)
@pytest.mark.parametrize("name", PLANNERS)
def test_a_planner_that_is_stopped_says_so_and_its_bounds_hold(name, bandit, repeats, how, looks):
    problem, clock, planner = Problem.of(BANDITS[bandit], HORIZON, 12), Stopped(looks, how), PLANNERS[name]
    plan = (planner.solve if repeats else planner.solve_without_repeats)(problem, clock)
    optimum = OPTIMA[bandit, repeats]
    assert plan.lower <= optimum.upper + 1e-9
    assert plan.upper >= optimum.lower - 1e-9
    value = lmab.evaluate(plan.policy, BANDITS[bandit], horizon=HORIZON).mean
    assert plan.lower - 1e-9 <= value <= optimum.upper + 1e-9
    if clock.reached and how is not None:
        assert plan.status == Status.INTERRUPTED
    elif clock.reached:
        assert plan.status in (Status.TIME_LIMIT, Status.HEURISTIC)
    else:
        assert plan.status in (Status.CERTIFIED, Status.OPTIMAL, Status.HEURISTIC)
