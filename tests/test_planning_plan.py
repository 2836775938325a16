"""plan: what every planner promises, and what a Plan keeps of it."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import oracle
import planners
import pytest
from planning_cases import TWO_UNIFORM_ARMS, interrupted, two_uniform_arms
from policies import always
from seeds import generator

import lmab
from lmab import QMDP, Certified, Exact, LatentBandit, files
from lmab.errors import InvalidArgument, InvalidFile, Status, TooLarge
from lmab.estimation.result import estimate_of
from lmab.planning.information_bound import BoundParameters, evaluate_bound
from lmab.planning.lookahead import Lookahead
from lmab.planning.point_based import PointBased
from lmab.planning.problem import Clock, Problem
from lmab.planning.search import Search
from lmab.testing.oracle import small_bandit
from lmab.testing.planners import check_planner

BANDIT = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.5], [0.2, 0.7, 0.4]])
GAUSSIAN = lmab.LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]], 0.5)
PLANS = {
    "certified": lambda: lmab.plan(BANDIT, horizon=4),
    "exact": lambda: lmab.plan(BANDIT, horizon=4, method=lmab.Exact()),
    "no repeats": lambda: lmab.plan(BANDIT, horizon=3, repeats=False),
    "normal": lambda: lmab.plan(GAUSSIAN, horizon=3, bins=4),
    "open above": lambda: replace(lmab.plan(BANDIT, horizon=4, method=lmab.QMDP()), upper=np.inf),
    "no trace": lambda: replace(lmab.plan(BANDIT, horizon=4), trace=()),
    "graph": lambda: replace(lmab.plan(BANDIT, horizon=4), policy=lmab.plan(BANDIT, horizon=4).policy.graph()),
}
METHODS = [Certified(gap=1e-12), PointBased(n_beliefs=100_000), Lookahead(2), Exact()]


def optimum(bandit: LatentBandit, horizon: int) -> float:
    return oracle.optimal_value(bandit.weights, bandit.rewards.probabilities, bandit.rewards.values, horizon)


@pytest.mark.parametrize("name", planners.EXAMPLES)
def test_every_planner_keeps_the_laws(name):
    example = planners.EXAMPLES[name]
    report = check_planner(example.method)
    refused = {"without repeats the bounds hold, or planning is refused"}
    assert report.not_checked.keys() == (refused if "repeats only" in example.tags else set())


def test_every_planner_is_among_them():
    assert planners.concrete() <= {type(method).__name__ for method in planners.METHODS}


@pytest.mark.parametrize("seed", range(40))
def test_exact_is_brute_force(seed):
    bandit, horizon = small_bandit(seed)
    plan = lmab.plan(bandit, horizon=horizon, method=Exact())
    assert plan.lower == plan.upper == pytest.approx(optimum(bandit, horizon), abs=1e-12)
    assert lmab.evaluate(plan.policy, bandit, horizon=horizon).mean == pytest.approx(plan.lower, abs=1e-12)


def test_certified_brackets_exact_on_a_hundred_instances():
    rng = generator(7)
    for _ in range(100):
        n_types, n_arms, n_values, horizon = (int(n) for n in rng.integers([1, 2, 2, 1], [5, 7, 4, 7]))
        probabilities = rng.dirichlet(np.full(n_values, 0.5), (n_types, n_arms))
        values = rng.normal(size=n_values)
        bandit = LatentBandit.categorical(rng.dirichlet(np.ones(n_types)), probabilities, values)
        exact = lmab.plan(bandit, horizon=horizon, method=Exact()).lower
        plan = lmab.plan(bandit, horizon=horizon, method=Certified(gap=1e-4))
        assert plan.status in ("certified", "optimal")
        assert plan.upper - plan.lower <= 1e-4 * abs(plan.lower) + 1e-12
        assert plan.lower <= exact + 1e-9
        assert exact <= plan.upper + 1e-9
        value = lmab.evaluate(plan.policy, bandit, horizon=horizon).mean
        assert plan.lower - 1e-9 <= value <= exact + 1e-9


@pytest.mark.parametrize("horizon", range(1, 9))
@pytest.mark.parametrize("method", [Exact(), Certified(gap=1e-9)], ids=repr)
def test_two_arms_with_uniform_priors(horizon, method):
    plan = lmab.plan(two_uniform_arms(horizon), horizon=horizon, method=method)
    truth = float(TWO_UNIFORM_ARMS[horizon - 1])
    assert plan.lower == pytest.approx(truth, abs=1e-9)
    assert plan.upper == pytest.approx(truth, abs=1e-8)


def beta_bernoulli(horizon: int) -> float:
    """Two arms with uniform priors by the classical recursion over successes and failures, nothing shared with us."""
    value = np.zeros((horizon + 1, horizon + 1, horizon + 1))  # [plays of arm 0, its successes, successes of arm 1]
    for played in range(horizon - 1, -1, -1):
        first, wins, others = np.ogrid[: horizon + 1, : horizon + 1, : horizon + 1]
        p, q = (wins + 1) / (first + 2), (others + 1) / np.maximum(played - first + 2, 1)
        won, lost, other_won = (np.roll(value, -1, axis=axes) for axes in ((0, 1), 0, 2))
        left = p * (1 + won) + (1 - p) * lost
        right = q * (1 + other_won) + (1 - q) * value
        value = np.maximum(left, right)
    return float(value[0, 0, 0])


@pytest.mark.parametrize("horizon", [8, 25, 60])
def test_two_uniform_arms_over_long_sessions(horizon):
    plan = lmab.plan(two_uniform_arms(horizon), horizon=horizon, method=Exact())
    assert plan.lower == pytest.approx(beta_bernoulli(horizon), rel=1e-11)


def test_feldman_symmetric_arms_make_greedy_optimal():
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.7, 0.4], [0.4, 0.7]])
    for horizon, value in ((5, 2.980355), (10, 6.1767271963)):
        for method in (Exact(), Certified(gap=1e-9)):
            assert lmab.plan(bandit, horizon=horizon, method=method).lower == pytest.approx(value, abs=1e-9)
        assert lmab.evaluate(lmab.Greedy(bandit), bandit, horizon=horizon).mean == pytest.approx(value, abs=1e-9)


def test_without_symmetry_greedy_is_not_optimal():
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    assert lmab.plan(bandit, horizon=5, method=Exact()).lower == pytest.approx(3.35771, abs=1e-9)
    greedy = lmab.plan(bandit, horizon=5, method=QMDP()).policy
    assert lmab.evaluate(greedy, bandit, horizon=5).mean == pytest.approx(3.0183, abs=1e-9)


def test_an_instance_that_needs_probing():
    means = np.random.default_rng(11).uniform(0.05, 0.95, (3, 8))
    bandit = LatentBandit.bernoulli([0.4, 0.35, 0.25], means)
    assert lmab.plan(bandit, horizon=4, method=Exact()).lower == pytest.approx(2.852, abs=5e-4)
    assert lmab.plan(bandit, horizon=4).lower >= 2.852 * 0.99 - 5e-4
    assert lmab.evaluate(lmab.plan(bandit, horizon=4, method=QMDP()).policy, bandit, horizon=4).mean == pytest.approx(
        2.544, abs=5e-4
    )


@pytest.mark.parametrize("seed", range(10))
def test_qmdp_is_greedy(seed):
    bandit, horizon = small_bandit(seed)
    policy = lmab.plan(bandit, horizon=horizon, method=QMDP()).policy
    # The definition of Q-MDP: mean now, plus the best of every type afterwards.
    means, remaining = bandit.means, horizon
    rng = generator(seed)
    state, memory = policy.start(50), np.tile(bandit.weights, (50, 1))
    for step in range(horizon):
        remaining = horizon - step
        scores = memory @ means + (remaining - 1) * (memory @ means.max(axis=1))[:, None]
        arms = policy.act(state)
        np.testing.assert_allclose(scores[np.arange(50), arms], scores.max(axis=1), rtol=1e-9, atol=1e-15)
        played, rewards = rng.integers(bandit.n_arms, size=50), rng.choice(bandit.rewards.values, size=50)
        state = policy.observe(state, played, rewards)
        memory = memory * bandit.rewards.likelihood(played, rewards)


def test_one_arm_best_in_every_type_closes_at_once():
    bandit = LatentBandit.bernoulli([0.3, 0.7], [[0.9, 0.5, 0.1], [0.6, 0.5, 0.2]])
    plan = lmab.plan(bandit, horizon=30, method=Certified(gap=0.0))
    assert (plan.status, plan.gap) == ("optimal", 0.0)
    assert plan.lower == pytest.approx(30 * (0.3 * 0.9 + 0.7 * 0.6))
    assert set(plan.policy.act(plan.policy.start(3)).tolist()) == {0}


def test_types_of_weight_zero_do_not_matter():
    with_ghost = LatentBandit.bernoulli([0.5, 0.0, 0.5], [[0.9, 0.5], [0.99, 0.99], [0.1, 0.6]])
    without = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    for method in planners.METHODS:
        mine, theirs = (lmab.plan(bandit, horizon=5, method=method) for bandit in (with_ghost, without))
        assert (mine.lower, mine.upper) == pytest.approx((theirs.lower, theirs.upper), abs=1e-12)
        assert lmab.evaluate(mine.policy, with_ghost, horizon=5).mean == pytest.approx(
            lmab.evaluate(theirs.policy, without, horizon=5).mean, abs=1e-12
        )


def test_deterministic_rewards_reveal_the_type():
    # Arm c pays 1 in type c only: one play of each arm but one tells all, nothing is ever uncertain twice.
    bandit = LatentBandit.bernoulli(np.full(4, 0.25), np.eye(4))
    exact = lmab.plan(bandit, horizon=6, method=Exact()).lower
    assert exact == pytest.approx(np.mean([6, 5, 4, 3]))
    plan = lmab.plan(bandit, horizon=6, method=Certified(gap=1e-9))
    assert (plan.lower, plan.upper) == pytest.approx((exact, exact), abs=1e-8)
    # A reward that no type left can pay leaves the belief as it was; the policies still answer.
    for policy in (plan.policy, lmab.plan(bandit, horizon=6, method=Exact()).policy):
        assert 0 <= policy.act_on([(0, 1.0), (0, 0.0)]) < 4


def test_values_near_zero_use_the_absolute_gap():
    bandit = LatentBandit.categorical([0.5, 0.5], [[[0.1, 0.9], [0.5, 0.5]], [[0.9, 0.1], [0.5, 0.5]]], [-1.0, 1.0])
    plan = lmab.plan(bandit, horizon=6, method=Certified(gap=0.0, absolute=0.05))
    assert plan.status == "certified"
    assert 0 <= plan.upper - plan.lower <= 0.05
    assert plan.lower - 1e-9 <= lmab.plan(bandit, horizon=6, method=Exact()).lower <= plan.upper + 1e-9


def test_trials_that_gain_little_do_not_stall_just_short_of_the_gap():
    """Here the last gains were each too small to be kept, and the search turned in a circle at 1.0008 times the gap."""
    bandit = lmab.random_bandit(7, 50, rng=np.random.default_rng([2022, 7, 50, 104]))
    assert lmab.plan(bandit, horizon=7, time_limit=30).status == "certified"


def test_same_seed_same_plan_whatever_else_the_machine_does():
    bandit = lmab.random_bandit(7, 50, kind="deep", rng=generator(3))
    quiet = lmab.plan(bandit, horizon=10, method=Certified(gap=0.005))
    assert len(quiet.trace) > 5  # long enough to ask for the information price on the way
    busy = threading.Event()
    load = threading.Thread(target=lambda: [sum(range(2000)) for _ in iter(busy.is_set, True)])
    load.start()
    try:
        loud = lmab.plan(bandit, horizon=10, method=Certified(gap=0.005))
    finally:
        busy.set()
        load.join()
    np.testing.assert_array_equal(quiet.policy.vectors, loud.policy.vectors)
    assert (quiet.lower, quiet.upper) == (loud.lower, loud.upper)


def test_time_limit_leaves_valid_bounds(monkeypatch):
    readings = itertools.count(step=0.01)  # of the clock: a planner must look at it often
    monkeypatch.setattr("lmab.planning.problem.time.perf_counter", lambda: next(readings))
    bandit = lmab.random_bandit(7, 50, kind="deep", rng=generator(0))
    plan = lmab.plan(bandit, horizon=20, time_limit=0.3)
    assert plan.status == "time limit"
    assert "time limit" in plan.message
    assert plan.trace[-1].seconds < 0.4  # ten readings more
    assert plan.lower < plan.upper
    lowers, uppers = [bounds.lower for bounds in plan.trace], [bounds.upper for bounds in plan.trace]
    assert lowers == sorted(lowers)
    assert uppers == sorted(uppers, reverse=True)


def test_exact_out_of_time_falls_back_to_a_lookahead():
    bandit = lmab.random_bandit(3, 20, rng=generator(0))
    plan = lmab.plan(bandit, horizon=6, method=Exact(), time_limit=1e-6)
    assert plan.status == "time limit"
    exact = lmab.plan(bandit, horizon=6, method=Exact())
    assert plan.lower <= exact.lower <= plan.upper
    assert plan.lower <= lmab.evaluate(plan.policy, bandit, horizon=6).mean + 1e-9


@pytest.mark.parametrize("method", [Certified(gap=1e-12), Exact()], ids=repr)
def test_an_interrupt_returns_the_best_so_far(method):
    lmab.plan(LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]]), horizon=5, method=method)  # kernels loaded
    bandit = lmab.random_bandit(7, 50, kind="deep", rng=generator(0))
    horizon = 12 if isinstance(method, Certified) else 5
    plan = interrupted(lambda: lmab.plan(bandit, horizon=horizon, method=method))
    assert plan.lower < plan.upper
    assert 0 <= plan.policy.act_on([]) < 50


def test_compiling_is_not_planning():
    """The warm-up of a method loads or compiles every kernel that its plans call: in a process of its own."""
    program = """
import importlib, lmab, numpy as np
from lmab._kernel import kernel
plans = importlib.import_module("lmab.planning.plan")
members = [member for name in ("planning", "planning_search") for member in vars(kernel(name)).values()]
kernels = [member for member in members if hasattr(member, "signatures")]
bandit = lmab.random_bandit(4, 20, kind="hard", rng=0)
prior = lmab.TypePrior.by_value("who", {str(k): row for k, row in enumerate(np.eye(4) * 0.6 + 0.1)})
for many, given in ((False, {}), (True, {"type_prior": prior})):
    for method in (lmab.Certified,) if many else plans._COMPILED:
        plans._warm_up(method, many)
        loaded = [len(kernel.signatures) for kernel in kernels]
        assert sum(loaded) > 0
        lmab.plan(bandit, horizon=3, method=method(), **given)
        assert [len(kernel.signatures) for kernel in kernels] == loaded, method
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_the_clock_starts_after_the_warm_up(monkeypatch):
    plans, calls = importlib.import_module("lmab.planning.plan"), []
    clock = plans.Clock

    def started(*given):
        calls.append("clock")
        return clock(*given)

    monkeypatch.setattr(plans, "_warm_up", lambda method, many_priors: calls.append(method))
    monkeypatch.setattr(plans, "Clock", started)
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    for method in (Certified(), Exact(), Lookahead(), PointBased(), QMDP()):
        lmab.plan(bandit, horizon=3, method=method)
        assert calls == [type(method), "clock"]
        calls.clear()


def test_errors_name_the_argument():
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    with pytest.raises(InvalidArgument, match="horizon must be an integer of at least 1, got 0"):
        lmab.plan(bandit, horizon=0)
    with pytest.raises(InvalidArgument, match="time_limit must be a positive number of seconds, got 0"):
        lmab.plan(bandit, horizon=5, time_limit=0)
    with pytest.raises(InvalidArgument, match="gap must be a finite number of at least 0, got -1"):
        Certified(gap=-1)
    with pytest.raises(InvalidArgument, match="depth must be an integer of at least 0, got -1"):
        Lookahead(-1)
    with pytest.raises(InvalidArgument, match="depth must keep"):
        lmab.plan(lmab.random_bandit(3, 50, rng=generator(0)), horizon=9, method=Lookahead(5))
    with pytest.raises(
        TooLarge, match=r"Exact would need \d+ states \(50 arms, 2 values, 20 steps; [\d.e+]+ GB\), more than"
    ):
        lmab.plan(lmab.random_bandit(3, 50, rng=generator(0)), horizon=20, method=Exact())


def test_plans_and_methods_are_values():
    assert Certified(gap=0.1) == Certified(gap=0.1)
    assert dataclasses.replace(Certified(), seed=3).seed == 3
    plan = lmab.plan(LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]]), horizon=5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.lower = 0.0
    assert "certified" in repr(plan)


def test_an_estimate_is_planned_for_as_its_bandit():
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=2000, horizon=5, rng=0)
    estimate = lmab.fit(log, n_types=2, method=lmab.EM(prior=0.0), rng=0)
    mine, theirs = (lmab.plan(source, horizon=3, method=Exact()) for source in (estimate, estimate.bandit))
    assert (mine.lower, mine.policy.bandit) == (theirs.lower, estimate.bandit)


def test_what_cannot_be_planned_for_is_named():
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    with pytest.raises(
        InvalidArgument, match=r"bandit must be a LatentBandit, or hold one as its \.bandit .* got a str"
    ):
        lmab.plan("x", horizon=3)
    with pytest.raises(InvalidArgument, match=r"method must be a planner such as .* got the class Exact itself"):
        lmab.plan(bandit, horizon=3, method=Exact)
    with pytest.raises(InvalidArgument, match=r"method must be a planner such as .* got a str"):
        lmab.plan(bandit, horizon=3, method="exact")


@dataclasses.dataclass
class OwnPlanner:
    """A user's planner, with an argument that has no default."""

    status: str
    solved: int = 0

    def solve(self, problem, clock):
        self.solved += 1
        clock.record(1.0, problem.full_information)
        arm = problem.bandit.best_fixed_arms(problem.horizon)[0]
        bounds = problem.bandit.best_fixed(problem.horizon), problem.full_information
        return lmab.Plan(always(arm, problem.n_arms), problem.horizon, *bounds, self.status, "mine", tuple(clock.trace))


def test_a_planner_of_your_own_solves_once_and_says_its_status_as_text():
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    planner = OwnPlanner("heuristic")
    plan = lmab.plan(bandit, horizon=5, method=planner)
    assert (planner.solved, plan.lower, plan.upper) == (1, pytest.approx(2.75), pytest.approx(3.75))
    assert plan.status is Status.HEURISTIC
    with pytest.raises(InvalidArgument, match=r"status must be one of .*'heuristic'.*, got 'splendid'"):
        lmab.plan(bandit, horizon=5, method=OwnPlanner("splendid"))


def test_statuses_are_members_that_equal_their_text():
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    for method, status in ((Exact(), "optimal"), (Certified(), "certified"), (QMDP(), "heuristic")):
        plan = lmab.plan(bandit, horizon=5, method=method)
        assert isinstance(plan.status, Status)
        assert plan.status == status


def test_point_based_planning_that_is_stopped_says_so_and_its_bounds_hold():
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    problem = lmab.planning.Problem.of(bandit, 5)
    stopped = lmab.planning.PointBased().solve(problem, lmab.planning.Clock(0.0))
    done = lmab.planning.PointBased().solve(problem, lmab.planning.Clock(60.0))
    assert (stopped.status, done.status) == (Status.TIME_LIMIT, Status.HEURISTIC)
    assert stopped.lower >= bandit.best_fixed(5)
    assert stopped.lower <= lmab.evaluate(stopped, bandit, horizon=5).mean <= stopped.upper


def test_point_based_meets_the_gap_that_is_asked_for_or_says_that_it_does_not():
    """Definition 2.3: an oracle within epsilon. On an easy bandit few beliefs leave a gap, and more close it."""
    bandit = lmab.random_bandit(4, 12, rng=3)
    few = lmab.plan(bandit, horizon=6, method=lmab.planning.PointBased(n_beliefs=2))
    wanted = lmab.plan(bandit, horizon=6, method=lmab.Certified(gap=1e-4))
    gap = (few.upper - wanted.lower) / wanted.lower * 1.001 + 1e-4  # what its upper bound leaves room for
    assert few.status == "heuristic"
    assert few.upper - few.lower > gap * few.lower
    met = lmab.plan(bandit, horizon=6, method=lmab.planning.PointBased(n_beliefs=2, gap=gap))
    assert met.status == "certified"
    assert met.gap <= gap < few.gap
    assert met.lower <= wanted.upper + 1e-9
    never = lmab.plan(bandit, horizon=6, method=lmab.planning.PointBased(n_beliefs=2, gap=1e-9))
    assert never.status == "heuristic"
    assert never.lower >= met.lower - 1e-9
    assert (
        lmab.plan(bandit, horizon=6, method=lmab.planning.PointBased(gap=1e-9), time_limit=1e-3).status == "time limit"
    )
    apart = lmab.plan(bandit, horizon=3, method=lmab.planning.PointBased(gap=5.0), repeats=False)
    assert apart.status == "certified"
    with pytest.raises(ValueError, match="gap must be"):
        lmab.planning.PointBased(gap=0.0)


@pytest.fixture(params=PLANS)
def plan(request):
    return PLANS[request.param]()


@pytest.fixture(scope="module")
def estimate():
    log = lmab.simulate(BANDIT, lmab.Uniform(3), n_sessions=300, horizon=3, rng=0)
    return lmab.fit(log, n_types=2, method=lmab.EM(restarts=2, prior=1.0), rng=0)


def saved(plan: lmab.Plan, folder) -> lmab.Plan:
    plan.save(folder / "plan.lmab")
    return lmab.load(folder / "plan.lmab")


def test_round_trip_to_the_bit(plan, tmp_path):
    again = saved(plan, tmp_path)
    for name in ("horizon", "lower", "upper", "status", "message", "trace", "repeats", "source"):
        assert getattr(again, name) == getattr(plan, name), name
    assert [type(step) for step in again.trace] == [type(step) for step in plan.trace]
    assert repr(again) == repr(plan)
    assert type(again.policy) is type(plan.policy)
    first = plan.policy.act_on([])
    for reward in (0.0, 1.0):
        assert again.policy.act_on([(first, reward)]) == plan.policy.act_on([(first, reward)])


def test_same_value_same_bytes_however_often_saved(plan, tmp_path):
    plan.save(tmp_path / "first")
    lmab.load(tmp_path / "first").save(tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_a_plan_of_an_estimate_remembers_it(estimate, tmp_path):
    plan = lmab.plan(estimate, horizon=3, repeats=False)
    bare = lmab.plan(estimate.bandit, horizon=3, repeats=False)
    assert (estimate_of(plan.source), estimate_of(bare.source)) == (estimate, None)
    assert (plan.lower, plan.upper, plan.repeats) == (bare.lower, bare.upper, False)
    again = estimate_of(saved(plan, tmp_path).source)
    assert again.bandit == estimate.bandit
    assert (again.prior, again.log, again.starts.drawn) == (1.0, estimate.log, estimate.starts.drawn)


def test_all_options_of_a_plan_hold_for_an_estimate(estimate):
    seen = []
    lmab.plan(estimate, horizon=3, time_limit=5.0, progress=seen.append)
    assert seen
    assert lmab.plan(estimate, horizon=3, method=lmab.Exact()).status == "optimal"
    with pytest.raises(ValueError, match="bins"):
        lmab.plan(estimate, horizon=3, bins=1)


def test_evaluate_takes_a_plan_and_an_estimate(estimate):
    plan = lmab.plan(estimate, horizon=3)
    value = lmab.evaluate(plan, estimate, horizon=3).mean
    assert value == lmab.evaluate(plan.policy, estimate.bandit, horizon=3).mean


@pytest.mark.parametrize(
    "change", [{"status": "sure"}, {"lower": "4"}, {"horizon": 0}, {"repeats": None}, {"surprise": 1}]
)
def test_lies_are_refused(tmp_path, change):
    record = lmab.plan(BANDIT, horizon=3).record()
    files.write(tmp_path / "p.lmab", replace(record, fields={**record.fields, **change}))
    with pytest.raises(InvalidFile, match=r"p\.lmab"):
        lmab.load(tmp_path / "p.lmab")


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("method", [Certified(), PointBased()], ids=lambda method: type(method).__name__)
@pytest.mark.parametrize("repeats", [True, False])
def test_stopped_at_once_a_plan_proves_what_a_lookahead_proves(seed, method, repeats):
    bandit = lmab.random_bandit(5, 12, kind=("hard", "spherical")[seed % 2], rng=seed)
    stopped = lmab.plan(bandit, horizon=6, method=method, time_limit=1e-9, repeats=repeats)
    ahead = lmab.plan(bandit, horizon=6, method=Lookahead(1), repeats=repeats)
    greedy = lmab.plan(bandit, horizon=6, method=QMDP(), repeats=repeats)
    assert stopped.lower >= max(ahead.lower, greedy.lower, bandit.best_fixed(6, repeats)) - 1e-9
    assert stopped.lower <= lmab.evaluate(stopped, bandit, horizon=6).mean + 1e-9


@pytest.mark.parametrize("repeats", [True, False])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_an_interrupt_returns_the_best_so_far_promises(method, repeats):
    """Ctrl-C in the middle of planning, wherever that is."""
    lmab.plan(lmab.random_bandit(2, 6, rng=0), horizon=3, method=type(method)(), repeats=repeats)  # kernels loaded
    n_types, n_arms, horizon = (60, 60, 8) if not isinstance(method, Exact) else (400, 14, 6)
    bandit = lmab.random_bandit(n_types, n_arms, rng=1)
    plan = interrupted(lambda: lmab.plan(bandit, horizon=horizon, method=method, repeats=repeats))
    assert bandit.best_fixed(horizon, repeats) - 1e-9 <= plan.lower <= plan.upper
    assert 0 <= plan.policy.act_on([]) < n_arms


def test_the_search_stops_before_its_memory_limit():
    bandit = lmab.random_bandit(10, 200, kind="hard", rng=0)
    plan = lmab.plan(bandit, horizon=10, method=Certified(gap=1e-6, memory_limit=4e7), time_limit=60)
    assert plan.status == "memory limit"
    assert "memory limit" in plan.message
    assert plan.lower < plan.upper
    search = Search(Problem.of(bandit, 10), seed=0, memory_limit=4e7)
    search.look_ahead(Clock(60.0))
    while not search.full:
        search.advance(1e-6)
        assert search._memory(0) <= 4e7
    with pytest.raises(InvalidArgument, match="memory_limit must be"):
        Certified(memory_limit=0)


def test_a_search_without_memory_is_followed_by_dynamic_programming(monkeypatch):
    monkeypatch.setattr(Certified, "_run", lambda self, search, clock: Status.MEMORY_LIMIT)
    bandit = lmab.random_bandit(3, 6, kind="hard", rng=1)
    plan = lmab.plan(bandit, horizon=6, method=Certified(gap=0.0))
    assert plan.status == "optimal"
    assert plan.lower == pytest.approx(lmab.plan(bandit, horizon=6, method=Exact()).lower)
    small = lmab.plan(bandit, horizon=6, method=Certified(gap=0.0, memory_limit=40_000))  # the table takes 49,504 bytes
    assert small.status == "memory limit"


def test_exact_planning_without_repeats_names_the_size_it_refuses():
    with pytest.raises(TooLarge, match=r"would need \d+ states \(60 arms, 2 values, 8 steps; [\d.]+ GB\)"):
        lmab.plan(lmab.random_bandit(3, 60, rng=0), horizon=8, method=Exact(), repeats=False)


@pytest.mark.parametrize("seed", range(5))
def test_one_step_is_worth_the_best_mean(seed):
    bandit = lmab.random_bandit(4, 6, rng=seed)
    for method in (QMDP(), Lookahead(0), Lookahead(2), PointBased(), Certified(), Exact()):
        for repeats in (True, False):
            plan = lmab.plan(bandit, horizon=1, method=method, repeats=repeats)
            assert (plan.lower, plan.upper) == pytest.approx((bandit.best_fixed(1),) * 2, abs=1e-12)


def test_the_price_is_reported_by_every_method():
    bandit = lmab.random_bandit(7, 50, kind="hard", rng=0)
    best = lmab.plan(bandit, horizon=7).lower
    for method in (QMDP(), Lookahead(1), PointBased()):
        plan = lmab.plan(bandit, horizon=7, method=method)
        assert best <= plan.upper < 0.9 * bandit.known_type(7)


def test_rewards_that_tell_nothing_leave_nothing_to_search():
    """Flat arms: their values stand for all the steps left, and the bounds still meet at the optimum."""
    means = np.array([[0.5, 0.6, 0.9, 0.1], [0.5, 0.6, 0.1, 0.9]])
    bandit = LatentBandit.bernoulli([0.5, 0.5], means)
    exact = lmab.plan(bandit, horizon=6, method=Exact()).lower
    plan = lmab.plan(bandit, horizon=6, method=Certified(gap=1e-9))
    assert (plan.lower, plan.upper) == pytest.approx((exact, exact), abs=1e-8)


def test_a_horizon_for_which_no_limit_could_hold_is_refused_at_once():
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    with pytest.raises(InvalidArgument, match="horizon must be at most 10,000 steps, got 100000: the type is known"):
        lmab.plan(bandit, horizon=100_000, time_limit=5.0)


def test_a_poor_price_does_not_raise_the_upper_bound():
    problem = Problem.of(lmab.random_bandit(3, 6, kind="hard", rng=0), 4)
    search = Search(problem, seed=0)
    before = search.upper_bound
    shape = (5, 1, problem.n_arms)
    poor = BoundParameters(np.ones(shape), np.ones((*shape, problem.n_values)), np.full((5, 1), 1e3))
    search.set_information_bounds(evaluate_bound(problem.step_model, problem.weights[None], poor))
    assert search.upper_bound == before
    search.add_information_bound(Clock(60.0))
    assert lmab.plan(problem.bandit, horizon=4, method=Exact()).lower <= search.upper_bound < before
