"""EDMoments: experimental design, then the method of moments on the core set (Algorithm 1 of the paper)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..checks import COUNT, check_fields
from ..data import Episodes
from ..estimation import MomentMatching, estimate
from ..model import Bins, Categorical, LatentBandit
from ..moments import Design
from ..theory import identifiable
from .core_sets import CORE_OPTIONS, core_may_be_one_arm, core_plays, core_set, uniform_plays
from .learner import Learner, Task, check_enough, note_estimate, planned_on_estimate, share_out
from .result import Campaign, Course


@dataclass(frozen=True)
class EDMoments(Learner):
    """Algorithm 1: uniform play, subspace, core set, core plays, matching of all their moments, reconstruction.

    Every order up to min(H, 2M - 1) is matched over all combinations of core pairs, so this learner is for few contexts
    or short sessions. Core plays are drawn uniformly and not sequence by sequence, which measures the same moments
    from all steps.

    Args:
        n_contexts: how many contexts.
        pairs: steps that make the second moments: "all" pairs, or the "first-two" as the paper prints it.
        rank: dimension of the subspace: None is `n_contexts`, as in the paper; "auto" finds it in the log.
        split: the part of the episodes that play uniformly, for the subspace; the others play the core set.
        restarts: starts of the least-squares fit.
        w_min: least weight of a context; None searches for it as in appendix A.
        epsilon: the accuracy for which the paper's tolerances are named in messages, and the grid of `bins=None` is
            made. It does not choose the number of episodes: `theory.budget` tells what the paper asks for, which is
            beyond any real log.
        bins: normal rewards of sessions shorter than 2M - 1 steps are cut at this many quantiles (appendix B.2);
            "auto": more in longer logs; None: the appendix's grid. The policy then cuts the rewards that it observes.
        events: "pairs", core action-value pairs; "events", the core action-events of Remark A.1 (2^Z for each arm).

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> environment = lmab.Simulator(lmab.random_bandit(2, 8, rng=rng), horizon=3, rng=rng)
        >>> learned = lmab.learn(environment, lmab.EDMoments(2), n_episodes=4000, rng=rng)
        >>> learned["core plays"].n_episodes
        2000
    """

    n_contexts: int
    pairs: str = "all"
    rank: int | str | None = None
    split: float = 0.5
    restarts: int = 12
    w_min: float | None = None
    epsilon: float = 0.1
    bins: int | str | None = "auto"
    events: str = "pairs"

    def __post_init__(self) -> None:
        check_fields(self, {"n_contexts": COUNT, **CORE_OPTIONS})
        MomentMatching(
            restarts=self.restarts, w_min=self.w_min, epsilon=self.epsilon, bins=self.bins
        )  # checks these settings

    def campaign(self, task: Task, *, rng: np.random.Generator) -> Campaign:
        course = Course()
        n_first, n_second = share_out(task.n_episodes, self.split)
        check_enough(task, n_second, self.n_contexts)
        exploration = yield from uniform_plays(task, n_first, course)
        family, bins = task.rewards, None
        if family == "gaussian" and not identifiable(self.n_contexts, task.horizon):
            family, bins = "categorical", Bins.of_log(exploration, self.bins, self.epsilon)
            exploration = bins.cut(exploration)
        rank = self.n_contexts if self.rank is None else self.rank
        core = core_set(exploration, family, self.pairs, rank, course, self.events)
        plays = yield from core_plays(task, core, n_second, rng, course)
        bandit = self._match(plays if bins is None else bins.cut(plays), core, family, rng, course)
        if bins is not None:
            assert isinstance(bandit.rewards, Categorical)
            bandit = replace(bandit, rewards=replace(bandit.rewards, edges=bins.edges_between(bandit.rewards.values)))
        return planned_on_estimate(task, bandit, course)

    def _match(
        self, plays: Episodes, core: Design, family: str | None, rng: np.random.Generator, course: Course
    ) -> LatentBandit:
        method = MomentMatching(design=core, restarts=self.restarts, w_min=self.w_min, epsilon=self.epsilon)
        with core_may_be_one_arm():
            fit = estimate(
                plays, n_contexts=self.n_contexts, method=method, rewards=family, values=core.values, rng=rng
            )
        note_estimate(course, "fit", fit)
        return fit.bandit
