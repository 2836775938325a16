"""Genie, UCB and Tensor: the reference that knows the truth, one arm for everybody, and tensor decomposition."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .._shapes import Array, Float, Integer
from ..checks import COUNT, POSITIVE, check_fields
from ..errors import InvalidArgument
from ..estimation.fit import fit
from ..learning.learner import (
    Campaign,
    Course,
    Exploration,
    Learner,
    Task,
    check_enough,
    check_not_binned,
    declared_values,
    note_estimate,
    planned,
    planned_on_estimate,
)
from ..model.bandit import LatentBandit
from ..policies.belief_policies import Uniform
from ..policies.ranking import Ranking
from .tensor_decomposition import TensorDecomposition


@dataclass(frozen=True)
class Genie(Learner):
    """Learner that is given the true model: it plans on it and plays nothing.

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


@dataclass(frozen=True)
class UCB(Learner):
    """UCB1 (Auer et al., 2002) in rounds; returns the arm that was played most.

    A round has `growth` times as many sessions as were played before it. Within a round the means stay fixed while the
    counts rise with every play, so that the plays are spread over arms as UCB1 would spread them.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2, 0.6], [0.1, 0.3, 0.7]])
        >>> environment = lmab.Simulator(bandit, horizon=4, rng=rng)
        >>> lmab.learn(environment, lmab.learning.UCB(), n_sessions=2000, rng=rng).policy.arms
        (2, 0, 1)
    """

    growth: float = 0.05
    spread: float = 1.0  # range of the rewards, to which widths are proportional

    def __post_init__(self) -> None:
        check_fields(self, {"growth": POSITIVE, "spread": POSITIVE})

    def campaign(self, task: Task, *, rng: np.random.Generator) -> Campaign:
        course = Course()
        counts, sums = np.zeros(task.n_arms), np.zeros(task.n_arms)
        played = 0
        while played < task.n_sessions:
            # Each arm once, then rounds that grow.
            n = -(-task.n_arms // task.horizon) if played == 0 else max(1, int(self.growth * played))
            n = min(n, task.n_sessions - played)
            plays = next_plays(counts, sums, n * task.horizon, self.spread)
            arms = rng.permutation(np.repeat(np.arange(task.n_arms), plays)).reshape(n, task.horizon)
            sessions = yield from course.explore(Exploration.of_arms("explore", arms))
            counts += np.bincount(sessions.arms, minlength=task.n_arms)
            sums += np.bincount(sessions.arms, sessions.rewards, minlength=task.n_arms)
            played += len(sessions)
        means = np.divide(sums, counts, out=np.full(task.n_arms, np.nan), where=counts > 0)
        course.note("counts", plays=counts.astype(np.int64), means=means)
        return course.learned(Ranking(np.argsort(-counts, kind="stable"), horizon=task.horizon), None)


def next_plays(counts: Float[Array, "A"], sums: Float[Array, "A"], n_plays: int, spread: float) -> Integer[Array, "A"]:
    """Return how often UCB1 would play each arm in its next `n_plays` plays if the means stayed as they are.

    UCB1 plays the arm with the highest index mean + spread * sqrt(2 log t / n), and each play lowers the index. In the
    end all arms that were played have the same index, which is called `level` below. Arms that were never played come
    first, once each.
    """
    plays = np.zeros(len(counts), np.int64)
    unplayed = np.flatnonzero(counts == 0)
    plays[unplayed[:n_plays]] = 1
    left = n_plays - int(plays.sum())
    if left == 0:
        return plays
    if len(unplayed):  # nothing is known about them yet, so the other plays go to all arms in turn
        plays += left // len(counts)
        plays[: left % len(counts)] += 1
        return plays
    means, width = sums / counts, 2 * spread**2 * np.log(counts.sum() + n_plays)

    def wanted(level: float) -> Float[Array, "A"]:
        return np.maximum(width / np.maximum(level - means, 1e-12) ** 2 - counts, 0)

    # At this level the best arm alone would want more than all plays.
    low, high = float(means.max()), float((means + np.sqrt(width / counts)).max())
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if wanted(middle).sum() > left else (low, middle)
    share = wanted(high)
    plays = np.floor(share).astype(np.int64)
    rest = left - int(plays.sum())
    order = np.argsort(-(share - plays), kind="stable")
    plays += rest // len(plays)
    plays[order[: rest % len(plays)]] += 1
    return plays


_DECOMPOSITION = TensorDecomposition(features="free")


@dataclass(frozen=True)
class Tensor(Learner):
    """Explore uniformly, decompose the third moments (Anandkumar et al., 2014), plan: a baseline of the paper.

    Types are vectors of means (or of free probabilities), which is the published method on the paper's model.
    `method=TensorDecomposition(features="pairs")` is a stronger baseline if types are linearly dependent.

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
        check_not_binned(task, "Tensor")
        check_enough(task, task.n_sessions, self.n_types)
        course = Course()
        uniform = Uniform(task.n_arms, horizon=task.horizon)
        sessions = yield from course.explore(Exploration.of_policy("explore", uniform, task.n_sessions))
        fitted = fit(
            sessions,
            n_types=self.n_types,
            method=self.method,
            rewards=task.rewards,
            values=declared_values(task, sessions),
            rng=rng,
        )
        note_estimate(course, "fit", fitted)
        return planned_on_estimate(task, fitted.bandit, course)
