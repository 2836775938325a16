"""Tensor: a learner that plays uniformly and fits by tensor decomposition alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checks import COUNT, check_fields
from ..errors import InvalidArgument
from ..estimation import TensorDecomposition, fit
from ..policies import Uniform
from .exploration import Exploration
from .learner import Learner, Task, check_enough, note_estimate, planned_on_estimate
from .result import Campaign, Course

_DECOMPOSITION = TensorDecomposition(features="free")


@dataclass(frozen=True)
class Tensor(Learner):
    """Explore uniformly, decompose the third moments (Anandkumar et al., 2014), plan: a baseline of the paper.

    Types are vectors of means (or of free probabilities), which is the published method on the paper's model.
    `method=TensorDecomposition(features="pairs")` is a stronger baseline where types are linearly dependent.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> environment = lmab.Simulator(lmab.random_bandit(2, 5, rng=rng), horizon=4, rng=rng)
        >>> lmab.learn(environment, lmab.learning.Tensor(2), n_sessions=5000, rng=rng).bandit.n_types
        2
    """

    n_types: int
    method: TensorDecomposition = _DECOMPOSITION

    def __post_init__(self) -> None:
        check_fields(self, {"n_types": COUNT})

    def campaign(self, task: Task, *, rng: np.random.Generator) -> Campaign:
        if task.horizon < 3:
            raise InvalidArgument(f"horizon must be at least 3 for third moments, got {task.horizon}")
        check_enough(task, task.n_sessions, self.n_types)
        course = Course()
        uniform = Uniform(task.n_arms, horizon=task.horizon)
        sessions = yield from course.explore(Exploration.of_policy("explore", uniform, task.n_sessions))
        fitted = fit(
            sessions, n_types=self.n_types, method=self.method, rewards=task.rewards, values=task.values, rng=rng
        )
        note_estimate(course, "fit", fitted)
        return planned_on_estimate(task, fitted.bandit, course)
