"""EDMLE: experimental design, then maximum likelihood on the core set only (section 4 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checks import COUNT, OneOf, check_fields
from ..data import Sessions
from ..errors import InvalidArgument
from ..estimation import EM, fit, reconstruct
from ..model import Gaussian, LatentBandit
from ..moments import Design
from .core_sets import CORE_OPTIONS, as_core_arms, as_indicators, core_may_be_one_arm, core_plays, explore_core
from .learner import Learner, Task, check_enough, note_estimate, planned_on_estimate, share_out
from .result import Campaign, Course

_EM = EM(restarts=8, tolerance=1e-7)


@dataclass(frozen=True)
class EDMLE(Learner):
    """The paper's practical method: uniform play, subspace, core set, random core plays, EM on them, reconstruction.

    Args:
        n_types: how many types.
        pairs: steps that make the second moments: "all" pairs, or the "first-two" as the paper prints it.
        rank: dimension of the subspace: None is `n_types`, as in the paper; "auto" finds it in the log.
        split: the part of the sessions that play uniformly, for the subspace; the others play the core set.
        likelihood: "indicator" is equation (log_likelihood) as printed: of a core pair (a, z) it uses only whether arm
            a paid z; "full" uses what the core arms paid.
        method: how to fit the core set.
        events: "pairs", core arm-value pairs; "events", the core arm-events of Remark A.1 (2^Z for each arm).

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> environment = lmab.Simulator(lmab.random_bandit(3, 20, rng=rng), horizon=5, rng=rng)
        >>> learned = lmab.learn(environment, lmab.learning.EDMLE(3), n_sessions=5000, rng=rng)
        >>> learned["explore"].n_sessions, learned["core plays"].n_sessions
        (4000, 1000)
        >>> learned["design"].facts["g"] <= 2 * 3 + 1e-9
        True
    """

    n_types: int
    pairs: str = "all"
    rank: int | str | None = None
    split: float = 0.8
    likelihood: str = "indicator"
    method: EM = _EM
    events: str = "pairs"

    def __post_init__(self) -> None:
        check_fields(self, {"n_types": COUNT, **CORE_OPTIONS, "likelihood": OneOf(("indicator", "full"))})
        if self.events == "events" and self.likelihood == "full":
            raise InvalidArgument("events must be 'pairs' for the full likelihood, got 'events'")

    def campaign(self, task: Task, *, rng: np.random.Generator) -> Campaign:
        course = Course()
        n_first, n_second = share_out(task.n_sessions, self.split)
        check_enough(task, n_second, self.n_types)
        rank = self.n_types if self.rank is None else self.rank
        core = yield from explore_core(task, n_first, self.pairs, rank, course, self.events)
        sessions = yield from core_plays(task, core, n_second, rng, course)
        with core_may_be_one_arm():
            bandit = self._fit(core, sessions, rng, course)
        return planned_on_estimate(task, bandit, course)

    def _fit(self, core: Design, sessions: Sessions, rng: np.random.Generator, course: Course) -> LatentBandit:
        if core.values is None:
            log = as_core_arms(core, sessions)
            fitted = fit(log, n_types=self.n_types, method=self.method, rewards="gaussian", rng=rng)
            rewards = Gaussian(fitted.bandit.means @ core.reconstruction.T, fitted.bandit.rewards.scale)  # type: ignore
            bandit = LatentBandit(fitted.bandit.weights, rewards, sessions.arm_labels)
        elif self.likelihood == "indicator":
            log = as_indicators(core, sessions, rng)
            fitted = fit(log, n_types=self.n_types, method=self.method, values=[0, 1], rng=rng)
            bandit = reconstruct(fitted.bandit.weights, fitted.bandit.means.T, core, sessions)
        else:
            values = np.union1d(core.values, sessions.rewards)
            log = as_core_arms(core, sessions)
            fitted = fit(log, n_types=self.n_types, method=self.method, values=values, rng=rng)
            arms, paid = zip(*((core.arms.index(arm), value) for arm, value in core.pairs), strict=True)
            found = fitted.bandit.rewards.likelihood(np.array(arms), np.array(paid))
            bandit = reconstruct(fitted.bandit.weights, found, core, sessions)
        note_estimate(course, "fit", fitted)
        return bandit
