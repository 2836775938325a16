"""LUCRL: a spectral start, then rounds of optimistic play and online EM with soft counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import files
from .._shapes import Array, Bool, Float, Integer
from ..checks import COUNT, FRACTION, POSITIVE, check_array, check_fields
from ..data import Sessions
from ..errors import InvalidArgument
from ..estimation import EM, TensorDecomposition, observe, sweep
from ..model import LatentBandit, belief
from ..policies import BeliefPolicy, State, Uniform, best_allowed
from .learner import (
    Campaign,
    Course,
    Exploration,
    Learner,
    Task,
    check_enough,
    floored,
    note_estimate,
    planned_on_estimate,
    share_out,
)

_SPECTRAL = EM(restarts=1, max_iterations=20, prior=1.0)  # one start, from clusters of the sessions' spectral features


class OptimisticPolicy(BeliefPolicy):
    """Plays the arm with the highest expected reward plus bonus under the belief.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.6, 0.4], [[0.9, 0.1], [0.2, 0.7]])
        >>> OptimisticPolicy(bandit, [[0.0, 0.9], [0.0, 0.0]]).act_on([])
        1
    """

    kind = "optimistic"

    def __init__(self, bandit: LatentBandit, bonus: Any, *, horizon: int | None = None) -> None:
        super().__init__(bandit, horizon=horizon)
        self.bonus = check_array("bonus", bonus, ndim=2)
        if self.bonus.shape != bandit.means.shape:
            raise InvalidArgument(f"bonus must have shape {bandit.means.shape}, got {self.bonus.shape}")

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        return best_allowed(state.memory @ (self.bandit.means + self.bonus), allowed)

    def record(self) -> files.Record:
        base = super().record()
        return files.Record(base.kind, base.fields, {"bonus": self.bonus}, base.records)

    @classmethod
    def from_record(cls, record: files.Record) -> OptimisticPolicy:
        bandit = LatentBandit.from_record(record.records["bandit"])
        return cls(bandit, record.arrays["bonus"], **record.fields)


@dataclass(frozen=True)
class LUCRL(Learner):
    """L-UCRL (Kwon et al., 2021, "RL for latent MDPs: regret guarantees and a lower bound"), in rounds.

    A part of the sessions explores uniformly for a spectral start. Then every round plays greedily on the belief, with
    a bonus for arms that a type has seldom seen. After the round, `sweeps` passes of online EM over all sessions
    start from the model so far; each step counts for every type with the type's posterior probability. A round
    has `growth` times as many sessions as were played before it.

    Args:
        n_types: how many types.
        start: part of the sessions that explores uniformly.
        bonus: the width of the bonus, as a part of the width in Hoeffding's inequality.
        prior: pseudo-counts per type and arm.
        method: how the start is fitted: EM from clusters of the sessions' spectral features, or
            `TensorDecomposition()`, the paper's start, which needs sessions of at least 3 steps.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> environment = lmab.Simulator(lmab.random_bandit(2, 5, rng=rng), horizon=4, rng=rng)
        >>> learned = lmab.learn(environment, lmab.learning.LUCRL(2), n_sessions=2000, rng=rng)
        >>> learned["optimistic"].reward / 1400 > learned["explore"].reward / 600
        True
    """

    n_types: int
    start: float = 0.3
    growth: float = 0.05
    bonus: float = 0.5
    sweeps: int = 3
    prior: float = 1.0
    method: EM | TensorDecomposition = _SPECTRAL

    def __post_init__(self) -> None:
        numbers = {"start": FRACTION, "growth": POSITIVE, "bonus": POSITIVE, "prior": POSITIVE}
        check_fields(self, {"n_types": COUNT, "sweeps": COUNT, **numbers})

    def campaign(self, task: Task, *, rng: np.random.Generator) -> Campaign:
        if task.horizon < 3 and isinstance(self.method, TensorDecomposition):
            raise InvalidArgument(f"horizon must be at least 3 for third moments, got {task.horizon}")
        n_start, _ = share_out(task.n_sessions, self.start)
        check_enough(task, n_start, self.n_types)
        course = Course()
        uniform = Uniform(task.n_arms, horizon=task.horizon)
        sessions = yield from course.explore(Exploration.of_policy("explore", uniform, n_start))
        observations = observe(sessions, rewards=task.rewards, values=task.values)
        fit = self.method.fit(observations, n_types=self.n_types, rng=rng)
        note_estimate(course, "start", fit)
        bandit = fit.bandit
        while len(sessions) < task.n_sessions:
            bandit, counts = self._sweep(task, sessions, bandit, course)
            n = min(max(1, int(self.growth * len(sessions))), task.n_sessions - len(sessions))
            policy = OptimisticPolicy(bandit, self._bonus(bandit, counts, task.n_sessions), horizon=task.horizon)
            sessions += yield from course.explore(Exploration.of_policy("optimistic", policy, n))
        bandit, counts = self._sweep(task, sessions, bandit, course)
        return planned_on_estimate(task, bandit, course)

    def _sweep(
        self, task: Task, sessions: Sessions, bandit: LatentBandit, course: Course
    ) -> tuple[LatentBandit, Float[Array, "M A"]]:
        """The model after `sweeps` passes of EM over all sessions, and how often each type saw each arm."""
        bandit, log_likelihood = sweep(bandit, sessions, sweeps=self.sweeps, prior=self.prior, values=task.values)
        bandit = floored(bandit)
        responsibilities = np.repeat(belief.posterior(bandit, sessions), sessions.lengths, axis=0)
        counts = np.stack([np.bincount(sessions.arms, column, minlength=task.n_arms) for column in responsibilities.T])
        course.note("soft counts", log_likelihood=log_likelihood, least=float(counts.min()))
        return bandit, counts

    def _bonus(self, bandit: LatentBandit, counts: Float[Array, "M A"], n_sessions: int) -> Float[Array, "M A"]:
        rewards = bandit.rewards
        width = self.bonus * np.sqrt(np.log(counts.size * n_sessions) / (2 * np.maximum(counts, 1)))
        return np.minimum(width * rewards.spread, rewards.support[1] - rewards.means)
