"""EDMLE and EDMoments: learners that find a core set, play it, and rebuild all arms from it (sections 3 and 4)."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._shapes import Array, Integer
from ..checks import COUNT, FRACTION, Constraint, OneOf, Or, check_fields, optional
from ..data.sessions import Sessions, require_nobody_left
from ..errors import InvalidArgument, LmabWarning
from ..estimation.em import EM
from ..estimation.fit import fit
from ..learning.learner import (
    RANK,
    Campaign,
    Course,
    Exploration,
    Learned,
    Learner,
    Task,
    check_enough,
    check_not_binned,
    floored,
    lenient,
    note_estimate,
    planned,
    planned_on_estimate,
    share_out,
)
from ..model.bandit import LatentBandit
from ..model.bins import Bins
from ..model.categorical import Categorical
from ..model.gaussian import Gaussian
from ..moments.core_set import Design, design
from ..moments.second import Subspace, subspace
from ..policies.belief_policies import Uniform
from . import algorithm_1
from .moment_matching import MomentMatching, cut_points, reconstruct
from .theory import identifiable

CORE_OPTIONS: Mapping[str, Constraint] = {  # Options that both learners have.
    "pairs": OneOf(("all", "first-two")),
    "rank": RANK,
    "split": FRACTION,
    "events": OneOf(("pairs", "events")),
}


def explore_core(
    task: Task, n_sessions: int, pairs: str, rank: int | str, course: Course, events: str = "pairs"
) -> Generator[Exploration, Sessions, Design]:
    """Play uniformly, then find the subspace of the second moments and its core set (steps 1 and 2 of Algorithm 1)."""
    sessions = yield from uniform_plays(task, n_sessions, course)
    return core_set(sessions, task.rewards, pairs, rank, course, events)


def uniform_plays(task: Task, n_sessions: int, course: Course) -> Generator[Exploration, Sessions, Sessions]:
    """Return sessions of uniformly random arms."""
    if task.horizon < 2:
        raise InvalidArgument(f"horizon must be at least 2 to measure correlations of rewards, got {task.horizon}")
    uniform = Uniform(task.n_arms, horizon=task.horizon)
    return (yield from course.explore(Exploration.of_policy("explore", uniform, n_sessions)))


def core_set(
    sessions: Sessions, rewards: str | None, pairs: str, rank: int | str, course: Course, events: str = "pairs"
) -> Design:
    """Return the subspace of the second moments, and its core set; of normal rewards there are no events but arms."""
    require_nobody_left("a core set that is learned while people are served", sessions)
    size = sessions.n_arms * (1 if rewards == "gaussian" else len(np.unique(sessions.rewards)))
    k = None if isinstance(rank, str) else min(rank, size)
    space = subspace(sessions, rank=k, pairs=pairs, rewards=rewards)
    course.note("subspace", rank=space.rank, eigenvalues=space.eigenvalues[:20], noise=space.noise)
    return designed(space, course, events)


def designed(space: Subspace, course: Course, events: str = "pairs") -> Design:
    """Return the core set of a subspace."""
    core = design(space, events="pairs" if space.values is None else events)
    course.note("design", core_set=core.pairs, rho=core.rho, g=core.g)
    return core


def core_plays(
    task: Task, core: Design, n_sessions: int, rng: np.random.Generator, course: Course
) -> Generator[Exploration, Sessions, Sessions]:
    """Play the core set: every step draws a core pair uniformly at random and plays its arm (section 4)."""
    picks = rng.integers(len(core.support), size=(n_sessions, task.horizon))
    arms = np.array([arm for arm, _ in core.pairs])[picks]
    return (yield from course.explore(Exploration.of_arms("core plays", arms)))


@contextmanager
def core_may_be_one_arm() -> Iterator[None]:
    """Silence the warning about a log of one arm, because a core set may consist of one arm."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "only arm .* was ever played", LmabWarning)
        yield


def as_indicators(core: Design, sessions: Sessions, rng: np.random.Generator) -> Sessions:
    """Return plays of core arms as plays of core pairs: arm j is the pair (a_j, z_j), and pays 1 if a_j paid z_j.

    An event of Remark A.1 pays 1 if its arm paid any of its values.

    An arm with several pairs was played for one of them, chosen at random and not by its reward. So the pair is drawn
    at random here.
    """
    arms = np.array([arm for arm, _ in core.pairs])
    order, n_pairs = np.argsort(arms, kind="stable"), np.bincount(arms, minlength=sessions.n_arms)
    _check_core(core, sessions, n_pairs)
    first = np.cumsum(n_pairs) - n_pairs
    drawn = (rng.random(sessions.n_steps) * n_pairs[sessions.arms]).astype(np.int64)
    pairs = order[first[sessions.arms] + drawn]
    values = np.unique(sessions.rewards)
    hits = np.array(
        [[value in _event(event) for value in values.tolist()] for _, event in core.pairs], dtype=np.float64
    )
    paid = hits[pairs, np.searchsorted(values, sessions.rewards)]
    return Sessions(pairs, paid, sessions.offsets, len(arms))


def _event(value: Any) -> frozenset[float]:
    return value if isinstance(value, frozenset) else frozenset([value])


def as_core_arms(core: Design, sessions: Sessions) -> Sessions:
    """Return plays of core arms, with arms numbered within the core set."""
    arms = np.array(core.arms)
    _check_core(core, sessions, np.bincount(arms, minlength=sessions.n_arms))
    return replace(sessions, arms=np.searchsorted(arms, sessions.arms), n_arms=len(arms), arm_labels=None)


def _check_core(core: Design, sessions: Sessions, n_pairs: Integer[Array, "A"]) -> None:
    outside = np.flatnonzero(n_pairs[sessions.arms] == 0)
    if len(outside):
        raise InvalidArgument(
            f"sessions must play the core arms {core.arms}, got arm {sessions.arms[outside[0]]} at step {outside[0]}"
        )


_EM = EM(restarts=8, tolerance=1e-7, prior=0.0)  # Maximum likelihood, as in the paper.


@dataclass(frozen=True)
class EDMLE(Learner):
    """The paper's practical method: uniform play, subspace, core set, random core plays, EM on them, reconstruction.

    Args:
        n_types: how many types.
        pairs: steps that make the second moments: "all" pairs, or the "first-two" as the paper prints it.
        rank: dimension of the subspace: None is `n_types`, as in the paper; "auto" finds it in the log.
        split: the part of the sessions that play uniformly, for the subspace; the others play the core set.
        explore: how many sessions play uniformly, if their number is given instead of their part. With a budget of
            `explore` + N sessions, N of them play the core set: step 1 is not counted in the paper's N.
        space: the subspace, if it is known: then no session plays uniformly, and all play the core set.
        likelihood: "indicator" is equation (log_likelihood) as printed: of a core pair (a, z) it uses only whether arm
            a paid z; "full" uses all rewards of the core arms.
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
    explore: int | None = None
    space: Subspace | None = None

    def __post_init__(self) -> None:
        options: dict[str, Constraint] = {"likelihood": OneOf(("indicator", "full")), "explore": optional(COUNT)}
        check_fields(self, {"n_types": COUNT, **CORE_OPTIONS, **options})
        if self.space is not None and self.explore is not None:
            raise InvalidArgument(f"explore must be None where the subspace is given, got {self.explore}")
        if self.events == "events" and self.likelihood == "full":
            raise InvalidArgument("events must be 'pairs' for the full likelihood, got 'events'")

    def campaign(self, task: Task, *, rng: np.random.Generator) -> Campaign:
        course = Course()
        check_not_binned(task, "EDMLE")
        n_first, n_second = self._shares(task)
        check_enough(task, n_second, self.n_types)
        if self.space is not None:
            if self.space.n_arms != task.n_arms:
                raise InvalidArgument(f"space must have {task.n_arms} arms, got {self.space.n_arms}")
            core = designed(self.space, course, self.events)
        else:
            rank = self.n_types if self.rank is None else self.rank
            core = yield from explore_core(task, n_first, self.pairs, rank, course, self.events)
        sessions = yield from core_plays(task, core, n_second, rng, course)
        with core_may_be_one_arm():
            bandit = self._fit(core, sessions, rng, course)
        return planned_on_estimate(task, bandit, course)

    def _shares(self, task: Task) -> tuple[int, int]:
        """Return sessions of uniform play, and of core plays."""
        if self.space is not None:
            return 0, task.n_sessions
        if self.explore is None:
            return share_out(task.n_sessions, self.split)
        if self.explore >= task.n_sessions:
            raise InvalidArgument(f"n_sessions must be more than explore = {self.explore}, got {task.n_sessions}")
        return self.explore, task.n_sessions - self.explore

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
            core_means = fitted.bandit.rewards.likelihood(np.array(arms), np.array(paid))
            bandit = reconstruct(fitted.bandit.weights, core_means, core, sessions)
        note_estimate(course, "fit", fitted)
        return bandit


_TRIAL = 0.2  # Part of the sessions of core plays that play the policies of all least weights instead.
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
        w_min: least weight of a type; None: a thousandth of the largest weight; "tried" plans for least weights of 1/M,
            1/(2M), ... down to 1/1000, plays these policies with a fifth of the core plays' sessions, and keeps the one
            that earned most (appendix A).
        epsilon: the accuracy by which the grid of `bins=None` is made. It does not choose the number of sessions:
            `theory.budget` gives the number that the paper asks for, which is beyond any real log.
        bins: normal rewards of sessions shorter than 2M - 1 steps are cut at this many quantiles (appendix B.2);
            "auto": the number of bins that predicts held-out sessions of uniform play best; None: the appendix's grid.
            The policy then cuts the rewards that it observes.
        events: "pairs", core arm-value pairs; "events", the core arm-events of Remark A.1 (2^Z for each arm).
        literal: Algorithm 1 as printed, for few types and small core sets: second moments of the first two steps, N_1
            sessions for each multi-index, moments within delta_tsr in the sup norm, probabilities clipped at 0. The
            default differs in four ways: it measures moments from random core plays, centres and standardises rewards
            before it multiplies them, matches the moments by least squares in units of their standard errors, and keeps
            all probabilities above .001, so that no reward is impossible.

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
    literal: bool = False

    def __post_init__(self) -> None:
        check_fields(self, {"n_types": COUNT, **CORE_OPTIONS, "w_min": optional(Or(FRACTION, OneOf(("tried",))))})
        self._method(None if isinstance(self.w_min, str) else self.w_min)  # checks its settings
        if self.literal and (self.w_min == "tried" or self.events != "pairs"):
            raise InvalidArgument(
                f"literal must be False with w_min='tried' or events='events', got w_min={self.w_min!r} and "
                f"events={self.events!r}"
            )

    def campaign(self, task: Task, *, rng: np.random.Generator) -> Campaign:
        course = Course()
        check_not_binned(task, "EDMoments")
        if self.literal:
            return (yield from self._as_printed(task, rng, course))
        n_first, n_second = share_out(task.n_sessions, self.split)
        weights = self._least_weights()
        n_trial = round(_TRIAL * n_second) if len(weights) > 1 else 0
        if len(weights) > 1 and n_trial < len(weights):
            raise InvalidArgument(
                f"n_sessions must leave at least {len(weights)} sessions to try policies, one for each least weight, "
                f"got {task.n_sessions}, which leaves {n_trial}"
            )
        n_second -= n_trial
        check_enough(task, n_second, self.n_types)
        exploration = yield from uniform_plays(task, n_first, course)
        # Counts and normal rewards are both matched by their means.
        family, bins = "gaussian" if task.rewards == "counts" else task.rewards, None
        if family == "gaussian" and not identifiable(self.n_types, task.horizon):
            family, bins = "categorical", cut_points(exploration, self._method(None), self.n_types, rng.spawn(1)[0])
            exploration = bins.cut(exploration)
        rank = self.n_types if self.rank is None else self.rank
        core = core_set(exploration, family, self.pairs, rank, course, self.events)
        plays = yield from core_plays(task, core, n_second, rng, course)
        plays = plays if bins is None else bins.cut(plays)
        bandits = [_uncut(self._match(plays, core, family, least, rng, course), bins) for least in weights]
        if len(bandits) == 1:
            return planned_on_estimate(task, bandits[0], course)
        return (yield from _best_played(task, bandits, weights, n_trial, course))

    def _as_printed(
        self, task: Task, rng: np.random.Generator, course: Course
    ) -> Generator[Exploration, Sessions, Learned]:
        """Run the three steps of Algorithm 1 without any change."""
        if task.rewards not in (None, "categorical"):
            raise InvalidArgument(f"literal must be False for {task.rewards} rewards, which have no events")
        n_first, n_second = share_out(task.n_sessions, self.split)
        algorithm_1.check_budget(task, self.n_types, self.n_types, n_second)  # a core set has at least M pairs
        exploration = yield from uniform_plays(task, n_first, course)
        core = core_set(exploration, task.rewards, "first-two", self.n_types, course)
        tensors = yield from algorithm_1.measure(task, core, self.n_types, n_second, rng, course)
        least = None if isinstance(self.w_min, str) else self.w_min
        matched = algorithm_1.match(tensors, core, self.n_types, self.restarts, least, rng)
        tolerance = tensors.tolerance
        course.note(
            "match", residual=matched.residual, delta_tsr=tolerance, feasible=matched.residual < tolerance,
            sessions_per_entry=tensors.n_each, w_min=matched.w_min,
        )  # fmt: skip
        bandit = algorithm_1.rebuild(matched, core)
        result = planned(task, bandit, course)
        return course.learned(result.policy, bandit, plan=result)

    def _method(self, w_min: float | None, core: Design | None = None) -> MomentMatching:
        return MomentMatching("core", core, None, self.restarts, w_min, self.epsilon, self.bins)

    def _least_weights(self) -> list[float | None]:
        """Return the least weights that are tried: 1/M, 1/(2M), ... down to 1/1000; one if none is to be tried."""
        if not isinstance(self.w_min, str):
            return [self.w_min]
        if self.n_types == 1:
            return [None]
        n_halvings = int(np.log2(1 / (self.n_types * _LEAST_WEIGHT)))
        return [1 / self.n_types / 2**halving for halving in range(n_halvings + 1)]

    def _match(
        self, plays: Sessions, core: Design, family: str | None, w_min: float | None, rng: np.random.Generator,
        course: Course,
    ) -> LatentBandit:  # fmt: skip
        method = self._method(w_min, core)
        # core plays may pay values that exploration never saw
        values = None if core.values is None else np.union1d(core.values, plays.rewards)
        with core_may_be_one_arm():
            fitted = fit(plays, n_types=self.n_types, method=method, rewards=family, values=values, rng=rng)
        note_estimate(course, "fit", fitted)
        return fitted.bandit


def _uncut(bandit: LatentBandit, bins: Bins | None) -> LatentBandit:
    """Return the bandit of cut rewards, with the edges by which policies cut their observations."""
    if bins is None:
        return bandit
    assert isinstance(bandit.rewards, Categorical)
    return replace(bandit, rewards=replace(bandit.rewards, edges=bins.edges_between(bandit.rewards.values)))


def _best_played(
    task: Task, bandits: list[LatentBandit], weights: list[float | None], n_sessions: int, course: Course
) -> Generator[Exploration, Sessions, Learned]:
    """Plan on each bandit, play the policies equally often, and keep the one that earned most."""
    plans, earned = [], []
    ends = np.linspace(0, n_sessions, len(bandits) + 1).astype(int)
    for bandit, n_played in zip(bandits, np.diff(ends).tolist(), strict=True):
        plans.append(planned_on_estimate(task, lenient(floored(bandit, task.values)), course))
        played = yield from course.explore(Exploration.of_policy("try policies", plans[-1].policy, n_played))
        earned.append(played.mean_session(task.horizon))
    best = plans[int(np.argmax(earned))]
    course.note("choice of w_min", tried=weights, earned=earned, w_min=weights[int(np.argmax(earned))])
    assert best.plan is not None
    return course.learned(best.policy, best.bandit, plan=best.plan)
