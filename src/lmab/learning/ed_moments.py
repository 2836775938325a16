"""EDMoments: experimental design, then the method of moments on the core set (Algorithm 1 of the paper)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace

import numpy as np

from ..checks import COUNT, FRACTION, OneOf, Or, check_fields, optional
from ..data import Sessions
from ..errors import InvalidArgument
from ..estimation import MomentMatching, fit
from ..model import Bins, Categorical, LatentBandit
from ..moments import Design
from ..theory import identifiable
from .core_sets import CORE_OPTIONS, core_may_be_one_arm, core_plays, core_set, uniform_plays
from .exploration import Exploration
from .learner import Learner, Task, check_enough, note_estimate, planned_on_estimate, share_out
from .result import Campaign, Course, Learned

_TRIAL = 0.2  # of the sessions of core plays: they play the policies of all least weights instead
_LEAST_WEIGHT = 1e-3


@dataclass(frozen=True)
class EDMoments(Learner):
    """Algorithm 1: uniform play, subspace, core set, core plays, matching of all their moments, reconstruction.

    Every order up to min(H, 2M - 1) is matched over all combinations of core pairs, so this learner is for few types
    or short sessions. Core plays are drawn uniformly and not sequence by sequence, which measures the same moments
    from all steps.

    Args:
        n_types: how many types.
        pairs: steps that make the second moments: "all" pairs, or the "first-two" as the paper prints it.
        rank: dimension of the subspace: None is `n_types`, as in the paper; "auto" finds it in the log.
        split: the part of the sessions that play uniformly, for the subspace; the others play the core set.
        restarts: starts of the least-squares fit.
        w_min: least weight of a type; None takes the largest that matches the moments as well as smaller ones;
            "tried" plans for each of 1/M, 1/(2M), 1/(4M), ..., plays these policies with a fifth of the core plays'
            sessions, and keeps the one that earned most (appendix A).
        epsilon: the accuracy for which the paper's tolerances are named in messages, and the grid of `bins=None` is
            made. It does not choose the number of sessions: `theory.budget` tells what the paper asks for, which is
            beyond any real log.
        bins: normal rewards of sessions shorter than 2M - 1 steps are cut at this many quantiles (appendix B.2);
            "auto": more in longer logs; None: the appendix's grid. The policy then cuts the rewards that it observes.
        events: "pairs", core arm-value pairs; "events", the core arm-events of Remark A.1 (2^Z for each arm).

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> environment = lmab.Simulator(lmab.random_bandit(2, 8, rng=rng), horizon=3, rng=rng)
        >>> learned = lmab.learn(environment, lmab.learning.EDMoments(2), n_sessions=4000, rng=rng)
        >>> learned["core plays"].n_sessions
        2000
    """

    n_types: int
    pairs: str = "all"
    rank: int | str | None = None
    split: float = 0.5
    restarts: int = 12
    w_min: float | str | None = None
    epsilon: float = 0.1
    bins: int | str | None = "auto"
    events: str = "pairs"

    def __post_init__(self) -> None:
        check_fields(self, {"n_types": COUNT, **CORE_OPTIONS, "w_min": optional(Or(FRACTION, OneOf(("tried",))))})
        self._method(None if isinstance(self.w_min, str) else self.w_min)  # checks its settings

    def campaign(self, task: Task, *, rng: np.random.Generator) -> Campaign:
        course = Course()
        n_first, n_second = share_out(task.n_sessions, self.split)
        weights = self._least_weights(task.horizon)
        n_trial = round(_TRIAL * n_second) if len(weights) > 1 else 0
        if len(weights) > 1 and n_trial < len(weights):
            raise InvalidArgument(
                f"n_sessions must leave at least {len(weights)} sessions to try policies, one for each least weight, "
                f"got {task.n_sessions}, which leaves {n_trial}"
            )
        n_second -= n_trial
        check_enough(task, n_second, self.n_types)
        exploration = yield from uniform_plays(task, n_first, course)
        family, bins = task.rewards, None
        if family == "gaussian" and not identifiable(self.n_types, task.horizon):
            family, bins = "categorical", Bins.of_log(exploration, self.bins, self.epsilon)
            exploration = bins.cut(exploration)
        rank = self.n_types if self.rank is None else self.rank
        core = core_set(exploration, family, self.pairs, rank, course, self.events)
        plays = yield from core_plays(task, core, n_second, rng, course)
        plays = plays if bins is None else bins.cut(plays)
        bandits = [_uncut(self._match(plays, core, family, least, rng, course), bins) for least in weights]
        if len(bandits) == 1:
            return planned_on_estimate(task, bandits[0], course)
        return (yield from _best_played(task, bandits, weights, n_trial, course))

    def _method(self, w_min: float | None, core: Design | None = None) -> MomentMatching:
        return MomentMatching(design=core, restarts=self.restarts, w_min=w_min, epsilon=self.epsilon, bins=self.bins)

    def _least_weights(self, horizon: int) -> list[float | None]:
        """The least weights that are tried: 1/M, 1/(2M), ... down to M^-min(M, H); one where none is to be tried."""
        if not isinstance(self.w_min, str):
            return [self.w_min]
        if self.n_types == 1:
            return [None]
        last = max(self.n_types ** -float(min(self.n_types, horizon)), _LEAST_WEIGHT)
        n_halvings = int(np.log2(1 / (self.n_types * last)) + 1e-9)
        return [1 / self.n_types / 2**halving for halving in range(n_halvings + 1)]

    def _match(
        self, plays: Sessions, core: Design, family: str | None, w_min: float | None, rng: np.random.Generator,
        course: Course,
    ) -> LatentBandit:  # fmt: skip
        method = self._method(w_min, core)
        with core_may_be_one_arm():
            fitted = fit(plays, n_types=self.n_types, method=method, rewards=family, values=core.values, rng=rng)
        note_estimate(course, "fit", fitted)
        return fitted.bandit


def _uncut(bandit: LatentBandit, bins: Bins | None) -> LatentBandit:
    """The bandit of cut rewards, with the edges by which policies cut what they observe."""
    if bins is None:
        return bandit
    assert isinstance(bandit.rewards, Categorical)
    return replace(bandit, rewards=replace(bandit.rewards, edges=bins.edges_between(bandit.rewards.values)))


def _best_played(
    task: Task, bandits: list[LatentBandit], weights: list[float | None], n_sessions: int, course: Course
) -> Generator[Exploration, Sessions, Learned]:
    """Plan on each bandit, play the policies equally often, and keep the one that earned most."""
    found, earned = [], []
    ends = np.linspace(0, n_sessions, len(bandits) + 1).astype(int)
    for bandit, n_played in zip(bandits, np.diff(ends).tolist(), strict=True):
        found.append(planned_on_estimate(task, bandit, course))
        played = yield from course.explore(Exploration.of_policy("try policies", found[-1].policy, n_played))
        earned.append(played.mean_session(task.horizon))
    best = found[int(np.argmax(earned))]
    course.note("choice of w_min", tried=weights, earned=earned, w_min=weights[int(np.argmax(earned))])
    assert best.plan is not None
    return course.learned(best.policy, best.bandit, plan=best.plan)
