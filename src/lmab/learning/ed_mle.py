"""EDMLE: experimental design, then maximum likelihood on the core set only (section 4 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..checks import COUNT, OneOf, check_fields
from ..data import Episodes
from ..errors import InvalidArgument
from ..estimation import EM, estimate, reconstruct
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
        n_contexts: how many contexts.
        pairs: steps that make the second moments: "all" pairs, or the "first-two" as the paper prints it.
        rank: dimension of the subspace: None is `n_contexts`, as in the paper; "auto" finds it in the log.
        split: the part of the episodes that play uniformly, for the subspace; the others play the core set.
        likelihood: "indicator" is equation (log_likelihood) as printed: of a core pair (a, z) it uses only whether arm
            a paid z; "full" uses what the core arms paid.
        method: how to fit the core set.
        events: "pairs", core action-value pairs; "events", the core action-events of Remark A.1 (2^Z for each arm).

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> environment = lmab.Simulator(lmab.random_bandit(3, 20, rng=rng), horizon=5, rng=rng)
        >>> learned = lmab.learn(environment, lmab.EDMLE(3), n_episodes=5000, rng=rng)
        >>> learned["explore"].n_episodes, learned["core plays"].n_episodes
        (4000, 1000)
        >>> learned["design"].facts["g"] <= 2 * 3 + 1e-9
        True
    """

    n_contexts: int
    pairs: str = "all"
    rank: int | str | None = None
    split: float = 0.8
    likelihood: str = "indicator"
    method: EM = _EM
    events: str = "pairs"

    def __post_init__(self) -> None:
        check_fields(self, {"n_contexts": COUNT, **CORE_OPTIONS, "likelihood": OneOf(("indicator", "full"))})
        if self.events == "events" and self.likelihood == "full":
            raise InvalidArgument("events must be 'pairs' for the full likelihood, got 'events'")

    def campaign(self, task: Task, *, rng: np.random.Generator) -> Campaign:
        course = Course()
        n_first, n_second = share_out(task.n_episodes, self.split)
        check_enough(task, n_second, self.n_contexts)
        rank = self.n_contexts if self.rank is None else self.rank
        core = yield from explore_core(task, n_first, self.pairs, rank, course, self.events)
        episodes = yield from core_plays(task, core, n_second, rng, course)
        with core_may_be_one_arm():
            bandit = self._fit(core, episodes, rng, course)
        return planned_on_estimate(task, bandit, course)

    def _fit(self, core: Design, episodes: Episodes, rng: np.random.Generator, course: Course) -> LatentBandit:
        if core.values is None:
            log = as_core_arms(core, episodes)
            fit = estimate(log, n_contexts=self.n_contexts, method=self.method, rewards="gaussian", rng=rng)
            rewards = Gaussian(fit.bandit.means @ core.reconstruction.T, fit.bandit.rewards.scale)  # type: ignore
            bandit = LatentBandit(fit.bandit.weights, rewards, episodes.arm_labels)
        elif self.likelihood == "indicator":
            log = as_indicators(core, episodes, rng)
            fit = estimate(log, n_contexts=self.n_contexts, method=self.method, values=[0, 1], rng=rng)
            bandit = reconstruct(fit.bandit.weights, fit.bandit.means.T, core, episodes)
        else:
            values = np.union1d(core.values, episodes.rewards)
            log = as_core_arms(core, episodes)
            fit = estimate(log, n_contexts=self.n_contexts, method=self.method, values=values, rng=rng)
            arms, paid = zip(*((core.arms.index(arm), value) for arm, value in core.pairs), strict=True)
            found = fit.bandit.rewards.likelihood(np.array(arms), np.array(paid))
            bandit = reconstruct(fit.bandit.weights, found, core, episodes)
        note_estimate(course, "fit", fit)
        return bandit
