"""plan: from a latent bandit and a horizon to a session policy with bounds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from ..checks import check_count
from ..errors import InvalidArgument, LmabError
from ..model import LatentBandit
from .certified import Certified
from .clock import Bounds, Clock
from .problem import Problem
from .result import Plan


class Planner(Protocol):
    """A way to plan: configuration that knows how to solve. Any object with these two methods is a planner.

    Examples:
        >>> import lmab
        >>> from lmab.planning import Clock, Plan, Problem
        >>> class FirstArm:
        ...     def solve(self, problem: Problem, clock: Clock) -> Plan:
        ...         lower = problem.horizon * float(problem.weights @ problem.means[0])
        ...         clock.record(lower, problem.full_information)
        ...         policy = lmab.Stationary(0, horizon=problem.horizon)
        ...         bounds = lower, problem.full_information
        ...         return Plan(policy, problem.horizon, *bounds, "heuristic", "arm 0, always", tuple(clock.trace))
        ...
        ...     def solve_without_repeats(self, problem: Problem, clock: Clock) -> Plan:
        ...         raise lmab.errors.InvalidArgument("repeats must be True, got False")
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> lmab.plan(bandit, horizon=5, method=FirstArm())
        Plan(heuristic: optimum between 2.5 and 3.75, gap 0.5 over 5 steps)
        >>> from lmab.testing import check_planner
        >>> check_planner(FirstArm()).kept[1]
        'lower <= value of the policy <= optimum <= upper'
    """

    def solve(self, problem: Problem, clock: Clock) -> Plan:
        """A policy for `problem` with its bounds. When `clock.expired`, return the best so far."""

    def solve_without_repeats(self, problem: Problem, clock: Clock) -> Plan:
        """The same for sessions that play each arm at most once, or an `InvalidArgument` that says why not."""


_DEFAULT = Certified()
_WARM: set[type] = set()  # methods whose kernels are compiled


def plan(
    bandit: LatentBandit,
    *,
    horizon: int,
    method: Planner = _DEFAULT,
    time_limit: float = 60.0,
    repeats: bool = True,
    bins: int = 12,
    progress: Callable[[Bounds], None] | None = None,
) -> Plan:
    """Find a near-optimal policy for sessions of `horizon` steps, and prove how good it is.

    Args:
        bandit: the model to plan for.
        horizon: steps per session.
        method: `Certified`, `Exact`, `PointBased`, `Lookahead` or `QMDP`.
        time_limit: seconds after which the best so far is returned; the first compilation of the kernels is not
            counted. Ctrl-C does the same at once. The bounds hold whenever it stops.
        repeats: False when a session may play each arm at most once: policy and bounds are then for such sessions.
            `Exact` and `Certified` are exact where that is small enough, otherwise `Certified` looks ahead.
        bins: values into which continuous rewards are cut, per arm, while planning.
        progress: called with the `Bounds` proved so far, now and then.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> plan = lmab.plan(bandit, horizon=5)
        >>> plan.gap <= 0.01
        True
        >>> plan.policy.act_on([(0, 0.0)])
        1
    """
    check_count("horizon", horizon)
    check_count("bins", bins, minimum=2)
    if not time_limit > 0:
        raise InvalidArgument(f"time_limit must be a positive number of seconds, got {time_limit!r}")
    problem = Problem.of(bandit, horizon, bins)
    if not repeats:
        if horizon > bandit.n_arms:
            raise InvalidArgument(f"horizon must be at most the {bandit.n_arms} arms without repeats, got {horizon}")
        return replace(method.solve_without_repeats(problem, Clock(time_limit, progress)), repeats=False)
    _warm_up(method)
    return method.solve(problem, Clock(time_limit, progress))


def _warm_up(method: Planner) -> None:
    """Load or compile the kernels of a method on a tiny bandit, once, before any clock runs."""
    if type(method) in _WARM:
        return
    try:
        usual: Planner = type(method)()
    except TypeError:  # it has no defaults
        usual = method
    tiny = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    with suppress(LmabError):  # a method may refuse it: then there is nothing to compile yet
        usual.solve(Problem.of(tiny, 5, 2), Clock(float("inf")))
        _WARM.add(type(method))
