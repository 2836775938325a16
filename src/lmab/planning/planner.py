"""plan: from a latent bandit and a horizon to a session policy with bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Protocol

from ..checks import check_count
from ..errors import InvalidArgument
from ..model import LatentBandit
from .certified import Certified
from .clock import Bounds, Clock
from .exact import Exact
from .lookahead import Lookahead
from .point_based import PointBased
from .problem import Problem
from .qmdp import QMDP
from .result import Plan


class Planner(Protocol):
    """A way to plan: configuration that knows how to solve."""

    def solve(self, problem: Problem, clock: Clock) -> Plan: ...
    def solve_without_repeats(self, problem: Problem, clock: Clock) -> Plan:
        """Sessions that play each arm at most once."""


_COMPILED = (Certified, Exact, Lookahead, PointBased, QMDP)  # planners whose kernels are compiled
_DEFAULT = Certified()


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
        method: `Certified`, `Exact`, `PointBased`, `Lookahead`, `QMDP`, or a `Planner` of your own.
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
    if isinstance(method, _COMPILED):
        _warm_up(type(method))  # type: ignore[arg-type]  # mypy does not see that these classes can be hashed
    return method.solve(problem, Clock(time_limit, progress))


@cache
def _warm_up(method: type[Certified | Exact | Lookahead | PointBased | QMDP]) -> None:
    """Load or compile the kernels of a method on a tiny bandit, once, before any clock runs."""
    tiny = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    method().solve(Problem.of(tiny, 5, 2), Clock(float("inf")))
