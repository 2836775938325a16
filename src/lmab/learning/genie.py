"""Genie: the reference for every learner, which knows the true bandit and only plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..errors import InvalidArgument
from ..model import LatentBandit
from .exploration import Exploration
from .learner import Learner, Task, planned
from .result import Campaign, Course


@dataclass(frozen=True)
class Genie(Learner):
    """Plans on the true model and plays nothing.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.random_bandit(3, 10, rng=rng)
        >>> environment = lmab.Simulator(bandit, horizon=5, rng=rng)
        >>> lmab.learn(environment, lmab.learning.Genie(bandit), n_sessions=1000, rng=rng).sessions_used
        0
    """

    bandit: LatentBandit

    def campaign(self, task: Task, *, rng: np.random.Generator) -> Campaign:
        if self.bandit.n_arms != task.n_arms:
            raise InvalidArgument(f"bandit must have the environment's {task.n_arms} arms, got {self.bandit.n_arms}")
        course = Course()
        result = planned(task, self.bandit, course)
        explorations: Iterator[Exploration] = iter(())
        yield from explorations  # none
        return course.learned(result.policy, self.bandit, plan=result)
