"""check_planner: the laws that every planner keeps, compared with brute force on small bandits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from ..errors import LmabError, Status, first_line
from ..model.bandit import LatentBandit
from ..model.categorical import Categorical
from ..model.instances import random_bandit
from ..planning.plan import Planner, plan
from ..planning.problem import Bounds, Clock, Plan, Problem
from ..policies.policy import Policy
from ..simulation import check_fits
from . import oracle
from .oracle import Case, discrete_cases, normal_bandit
from .policies import check_policy, same_record
from .report import Broken, Law, Report, expect, keep

_EXACT = 1e-9  # rounding, in proportion to the largest sum of rewards
_INTEGRAL = 1e-3  # error of the integrals over normal rewards
_STATUSES = (Status.OPTIMAL, Status.CERTIFIED, Status.TIME_LIMIT, Status.INTERRUPTED, Status.HEURISTIC)
_BINS = 3  # few, so that a bound which holds only for rewards in bins is far from the truth


def check_planner(method: Planner, *, n_random: int = 15, patience: float = 5.0) -> Report:
    """Check that `method` keeps the laws of planners.

    These are the laws. On small bandits of many kinds lower <= value of the policy <= optimum <= upper, compared with
    brute force. The policy fits the bandit and keeps the laws of policies. The status is a `Status` and is true. The
    trace never worsens and equals the calls of `progress`. Time limits are kept, and the bounds hold after them. The
    same problem gives the same plan twice. Planning changes neither the bandit nor the method. Sessions without repeats
    and continuous rewards are planned with bounds that hold, or refused with an error if they are not supported.

    Args:
        method: the planner to check.
        n_random: the number of random bandits, in addition to the named ones.
        patience: seconds by which a time limit may be passed.

    Returns:
        A report of the laws that were kept. A broken one raises `BrokenLaw`, an `AssertionError`.

    Examples:
        >>> import lmab
        >>> from lmab.testing import check_planner
        >>> check_planner(lmab.QMDP())
        Report(QMDP keeps 11 laws)
    """
    return keep(type(method).__name__, LAWS, _Plans(method, discrete_cases(n_random), patience))


@dataclass(frozen=True, eq=False)
class _Planned:
    """A plan, and the arguments of the calls of `progress`."""

    bandit: LatentBandit
    horizon: int
    plan: Plan
    told: tuple[Bounds, ...]

    @cached_property
    def tolerance(self) -> float:
        return _EXACT * max(1.0, self.horizon * float(np.abs(self.bandit.means).max()))


@dataclass(frozen=True, eq=False)
class _Plans:
    """The method and its plans for all cases, each made once."""

    method: Planner
    cases: Mapping[str, Case]
    patience: float

    @cached_property
    def made(self) -> dict[str, _Planned]:
        return {name: self.make(name, *case) for name, case in self.cases.items()}

    def make(
        self, name: str, bandit: LatentBandit, horizon: int, *, may_refuse: bool = False, **options: Any
    ) -> _Planned:
        """Return one plan; errors of the package are raised to the caller only if the method may refuse."""
        told: list[Bounds] = []
        try:
            result = plan(bandit, horizon=horizon, method=self.method, progress=told.append, **options)
        except Exception as error:
            if may_refuse and isinstance(error, LmabError):
                raise
            raise Broken(f"on '{name}' it raised {type(error).__name__}: {first_line(error)}") from error
        expect(isinstance(result, Plan), f"on '{name}' it must return a Plan, got {result!r}")
        return _Planned(bandit, horizon, result, tuple(told))


def _plans_everything(case: _Plans) -> None:
    for name, planned in case.made.items():
        result, bandit, horizon = planned.plan, planned.bandit, planned.horizon
        expect(result.horizon == horizon, f"on '{name}' the plan must be for {horizon} steps, got {result.horizon}")
        check_fits(result.policy, bandit, horizon)
        finite = np.isfinite([result.lower, result.upper]).all()
        ordered = finite and result.lower <= result.upper + planned.tolerance
        expect(ordered, f"on '{name}' the bounds must be finite and in order, got {result.lower} and {result.upper}")


def _bounds_hold(case: _Plans) -> None:
    for name, planned in case.made.items():
        _compare(name, planned, _optimum(planned.bandit, planned.horizon, True))


def _compare(name: str, planned: _Planned, best: float) -> None:
    """Check that lower <= value of the policy <= optimum <= upper."""
    lower, upper, tolerance = planned.plan.lower, planned.plan.upper, planned.tolerance
    value = _value(planned.plan.policy, planned.bandit, planned.horizon)
    where = f"on '{name}' over {planned.horizon} steps"
    expect(lower <= value + tolerance, f"{where} lower is {lower:.9g}, but the policy earns {value:.9g}")
    expect(best <= upper + tolerance, f"{where} upper is {upper:.9g}, but the optimum is {best:.9g}")
    if value > best + tolerance:  # an arm played twice, or an impossible one
        raise Broken(f"{where} the policy earns {value:.9g}, more than the optimum {best:.9g}: it breaks the rules")


def _value(policy: Policy, bandit: LatentBandit, horizon: int) -> float:
    rewards = bandit.rewards
    assert isinstance(rewards, Categorical)

    def shares(history: oracle.History) -> Sequence[float]:
        state = policy.start()
        for arm, reward in history:
            state = policy.observe(state, arm, reward)
        return policy.distribution(state, n_arms=bandit.n_arms)[0].tolist()

    return oracle.mixed_value(bandit.weights, rewards.probabilities, rewards.values.tolist(), shares, horizon)


def _optimum(bandit: LatentBandit, horizon: int, repeats: bool) -> float:
    rewards = bandit.rewards
    assert isinstance(rewards, Categorical)
    values = rewards.values.tolist()
    return oracle.optimal_value(bandit.weights, rewards.probabilities, values, horizon, repeats=repeats)


def _status(case: _Plans) -> None:
    for name, planned in case.made.items():
        result = planned.plan
        expect(result.status in _STATUSES, f"on '{name}' status must be one of {_STATUSES}, got {result.status!r}")
        proved = result.upper - result.lower <= planned.tolerance
        seen = f"on '{name}' status is 'optimal', but the bounds are {result.lower:.9g} and {result.upper:.9g}"
        expect(result.status != "optimal" or proved, seen)
        expect(result.message, f"on '{name}' message must say what was done, got {result.message!r}")


def _trace(case: _Plans) -> None:
    for name, planned in case.made.items():
        trace, result = planned.plan.trace, planned.plan
        for before, after in pairwise(trace):
            fine = before.seconds <= after.seconds and before.lower <= after.lower and after.upper <= before.upper
            expect(fine, f"on '{name}' the trace goes from {before} to {after}")
        if trace:
            bounds = result.lower, result.upper
            near = np.allclose(trace[-1][1:], bounds, rtol=1e-9, atol=1e-9)
            expect(near, f"on '{name}' the trace ends with {trace[-1]}, the plan has the bounds {bounds}")


def _progress(case: _Plans) -> None:
    for name, planned in case.made.items():
        trace, told = planned.plan.trace, planned.told
        expect(told, f"on '{name}' progress was told nothing: clock.record(lower, upper) tells it")
        fine = trace == told[len(told) - len(trace) :]
        expect(fine, f"on '{name}' the plan's trace is {trace}, but progress was told {told}")


class _NoTime(Clock):
    """A clock that has expired before it starts."""

    def __init__(self) -> None:
        super().__init__(0.0)

    @property
    def expired(self) -> bool:
        return True


def _time_limit(case: _Plans) -> None:
    for name, (bandit, horizon) in case.cases.items():
        result = case.method.solve(Problem.of(bandit, horizon, _BINS), _NoTime())
        planned = _Planned(bandit, horizon, result, ())
        _compare(f"{name} (no time left)", planned, _optimum(bandit, horizon, True))
    large = random_bandit(5, 12, rng=0)
    start = time.perf_counter()
    try:
        plan(large, horizon=6, method=case.method, time_limit=0.05)
    except LmabError:
        return  # the planner refused, which takes no time
    seconds = time.perf_counter() - start
    expect(seconds <= 0.05 + case.patience, f"with time_limit=0.05 on {large} over 6 steps it took {seconds:.1f} s")


def _same_plan(case: _Plans) -> None:
    for name, first in case.made.items():
        second = case.make(name, first.bandit, first.horizon)
        for field in ("lower", "upper", "status"):
            mine, theirs = getattr(first.plan, field), getattr(second.plan, field)
            expect(mine == theirs, f"on '{name}' {field} is {mine} the first time and {theirs} the second")
        records = first.plan.policy.record(), second.plan.policy.record()
        expect(same_record(*records), f"on '{name}' the second plan has another policy")


def _changes_nothing(case: _Plans) -> None:
    before, fields = repr(case.method), sorted(vars(case.method))
    fresh, kept = discrete_cases(0), discrete_cases(0)  # nobody has planned on these yet
    for name, (bandit, horizon) in fresh.items():
        case.make(name, bandit, horizon)
        expect(bandit == kept[name][0], f"on '{name}' planning changed the bandit")
    after = repr(case.method), sorted(vars(case.method))
    expect(after == (before, fields), f"planning changed the method from {before} to {after[0]}")


def _policies(case: _Plans) -> None:
    for name in ("two types, two arms", "values of both signs", "one step"):
        planned = case.made[name]
        check_policy(planned.plan.policy, planned.bandit)


def _without_repeats(case: _Plans) -> str | None:
    refused: list[str] = []
    for name, (bandit, longest) in case.cases.items():
        horizon = min(longest, bandit.n_arms)
        try:
            planned = case.make(f"{name} without repeats", bandit, horizon, may_refuse=True, repeats=False)
        except LmabError as error:
            expect("repeat" in str(error), f"on '{name}' the error must say that repeats are the reason, got {error}")
            refused.append(first_line(error))
            continue
        expect(not planned.plan.repeats, f"on '{name}' the plan must say repeats=False")
        _plays_once(name, planned)
        _compare(f"{name} without repeats", planned, _optimum(bandit, horizon, False))
    return refused[0] if len(refused) == len(case.cases) else None


def _plays_once(name: str, planned: _Planned) -> None:
    policy, values = planned.plan.policy, planned.bandit.rewards.support  # the lowest and the highest value are enough
    if not policy.deterministic:
        return  # its value is compared with the optimum
    for history in oracle.histories(lambda history: policy.act_on(history), values, planned.horizon):
        arms = [arm for arm, _ in history]
        expect(len(set(arms)) == len(arms), f"on '{name}' without repeats it plays the arms {arms}")


def _normal(case: _Plans) -> str | None:
    bandit = normal_bandit()
    try:
        planned = case.make("normal rewards", bandit, 2, may_refuse=True, bins=_BINS)
    except LmabError as error:
        return first_line(error)
    _compare_normal("normal rewards", planned, True)
    try:
        planned = case.make("normal rewards without repeats", bandit, 2, may_refuse=True, bins=_BINS, repeats=False)
    except LmabError:
        return None
    _compare_normal("normal rewards without repeats", planned, False)
    return None


def _compare_normal(name: str, planned: _Planned, repeats: bool) -> None:
    bandit, result = planned.bandit, planned.plan
    scale: float = bandit.rewards.scale  # type: ignore[union-attr]
    best = oracle.gaussian_optimum(bandit.weights, bandit.means, scale, repeats=repeats)
    expect(best <= result.upper + _INTEGRAL, f"on '{name}' upper is {result.upper:.6g}, the optimum is {best:.6g}")
    if not result.policy.deterministic:
        expect(result.lower <= best + _INTEGRAL, f"on '{name}' lower is {result.lower:.6g}, the optimum is {best:.6g}")
        return
    first = result.policy.act_on([])
    value = oracle.gaussian_two_steps(bandit.weights, bandit.means, scale, first, _answers(result.policy, first))
    expect(result.lower <= value + _INTEGRAL, f"on '{name}' lower is {result.lower:.6g}, the policy earns {value:.6g}")
    expect(value <= best + _INTEGRAL, f"on '{name}' the policy earns {value:.6g}, more than the optimum {best:.6g}")


def _answers(policy: Policy, first: int) -> Callable[[Any], Any]:
    """Return the second arm for each first reward."""

    def second(rewards: Any) -> Any:
        start = policy.start(len(rewards))
        return policy.act(policy.observe(start, np.full(len(rewards), first), rewards))

    return second


LAWS: dict[str, Law[_Plans]] = {
    "every small bandit is planned": _plans_everything,
    "lower <= value of the policy <= optimum <= upper": _bounds_hold,
    "the status is one of the vocabulary and says the truth": _status,
    "the trace never worsens and ends at the plan's bounds": _trace,
    "progress is told the bounds of the trace": _progress,
    "the policy keeps the laws of policies": _policies,
    "a time limit is kept and leaves bounds that hold": _time_limit,
    "planning changes neither bandit nor method": _changes_nothing,
    "the same problem gives the same plan": _same_plan,
    "without repeats the bounds hold, or planning is refused": _without_repeats,
    "with normal rewards the bounds hold, or planning is refused": _normal,
}
