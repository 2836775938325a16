"""Learner: the base class of learners, the task that they are given, and what they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..checks import check_array, check_count
from ..errors import InvalidArgument
from ..estimation import Estimate
from ..model import LatentBandit
from ..planning import Certified, Plan, Planner, plan
from .result import Campaign, Course, Learned

FLOOR = 1e-3  # least probability that a belief under an estimated model gives to any reward
CERTIFIED = Certified()


@dataclass(frozen=True)
class Task:
    """What every learner is told: the environment's size, the budget, the rewards, and how to plan.

    Examples:
        >>> import lmab
        >>> task = lmab.learning.Task(n_arms=5, horizon=4, n_sessions=1000)
        >>> task.n_sessions, task.planner.gap
        (1000, 0.01)
    """

    n_arms: int
    horizon: int
    n_sessions: int  # the budget
    planner: Planner = CERTIFIED
    time_limit: float = 60.0  # seconds for planning
    rewards: str | None = None  # "categorical", "gaussian", or None: categorical on the observed values
    values: Sequence[float] | None = None  # of categorical rewards, where some may not be seen; made a rising tuple

    def __post_init__(self) -> None:
        for name in ("n_arms", "horizon", "n_sessions"):
            check_count(name, getattr(self, name))
        if self.values is not None:
            known = np.unique(check_array("values", self.values, ndim=1))
            object.__setattr__(self, "values", tuple(known.tolist()))


class Learner(ABC):
    """A way to learn. A learner is configuration and never changes; a `Run` holds the progress of one attempt.

    Examples:
        >>> from dataclasses import dataclass
        >>> import numpy as np, lmab
        >>> @dataclass(frozen=True)
        ... class BestOfUniform(lmab.learning.Learner):
        ...     '''Plays at random, then stays with the arm that paid most on average.'''
        ...     def campaign(self, task, *, rng):
        ...         course = lmab.learning.Course()
        ...         uniform = lmab.Uniform(task.n_arms, horizon=task.horizon)
        ...         plan = lmab.learning.Exploration.of_policy("explore", uniform, task.n_sessions)
        ...         seen = yield from course.explore(plan)
        ...         counts, sums = (np.bincount(seen.arms, w, minlength=task.n_arms) for w in (None, seen.rewards))
        ...         arm = int((sums / np.maximum(counts, 1)).argmax())
        ...         return course.learned(lmab.policies.Stationary(arm, horizon=task.horizon), None)
        >>> environment = lmab.Simulator(lmab.random_bandit(2, 5, rng=0), horizon=4, rng=0)
        >>> lmab.learn(environment, BestOfUniform(), n_sessions=500, rng=0)
        Learned(Stationary from 500 sessions: explore 500)
        >>> lmab.testing.check_learner(BestOfUniform())
        Report(BestOfUniform keeps 10 laws)
    """

    @abstractmethod
    def campaign(self, task: Task, *, rng: np.random.Generator) -> Campaign:
        """A generator that yields each `Exploration`, is sent its sessions, and returns what was learned.

        A task that cannot be done raises before the first exploration. The same seed and sessions give the same
        explorations and the same result.
        """


def planned(task: Task, bandit: LatentBandit, course: Course) -> Plan:
    """Plan on `bandit` and note the plan in the course."""
    result = plan(bandit, horizon=task.horizon, method=task.planner, time_limit=task.time_limit)
    course.note("plan", lower=result.lower, upper=result.upper, status=result.status, message=result.message)
    return result


def note_estimate(course: Course, name: str, fit: Estimate) -> None:
    """Note the result of a fit in the course."""
    course.note(
        name,
        n_types=fit.n_types,
        log_likelihood=fit.log_likelihood,
        trace=fit.trace,
        status=fit.status,
        message=fit.message,
    )


def planned_on_estimate(task: Task, bandit: LatentBandit, course: Course) -> Learned:
    """The last steps of most learners: floor the estimated bandit and plan on it."""
    safe = floored(bandit, task.values)
    result = planned(task, safe, course)
    return course.learned(result.policy, safe, plan=result)


def floored(bandit: LatentBandit, values: Sequence[float] | None = None) -> LatentBandit:
    """The bandit with no reward value less likely than `FLOOR`, so that one rare reward does not exclude a type.

    Values that are known to exist but were never seen get this probability.
    """
    return replace(bandit, rewards=bandit.rewards.floored(FLOOR, values))


def check_enough(task: Task, n_fitted: int, n_types: int) -> None:
    """Raise before anything is played when the fit would have fewer sessions than types."""
    if n_fitted < n_types:
        raise InvalidArgument(
            f"n_sessions must leave at least {n_types} sessions for the fit, one for each type, "
            f"got {task.n_sessions}, which leaves {n_fitted}"
        )


def share_out(n_sessions: int, fraction: float) -> tuple[int, int]:
    """The budget in two parts, at least one session each."""
    if n_sessions < 2:
        raise InvalidArgument(f"n_sessions must be at least 2 for a learner of two phases, got {n_sessions}")
    first = min(max(round(fraction * n_sessions), 1), n_sessions - 1)
    return first, n_sessions - first
