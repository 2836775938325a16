"""What learners with a core set share: they find it, play it, encode its plays, and rebuild all arms from it."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from .._shapes import Array, Integer
from ..checks import COUNT, FRACTION, Constraint, OneOf, Or, optional
from ..data import Sessions
from ..errors import InvalidArgument, LmabWarning
from ..moments import Design, design, subspace
from ..policies import Uniform
from .exploration import Exploration
from .learner import Task
from .result import Course

RANK = optional(Or(COUNT, OneOf(("auto",))))
CORE_OPTIONS: Mapping[str, Constraint] = {
    "pairs": OneOf(("all", "first-two")),
    "rank": RANK,
    "split": FRACTION,
    "events": OneOf(("pairs", "events")),
}  # of `explore_core`


def explore_core(
    task: Task, n_sessions: int, pairs: str, rank: int | str, course: Course, events: str = "pairs"
) -> Generator[Exploration, Sessions, Design]:
    """Play uniformly, then find the subspace of the second moments and its core set (steps 1 and 2 of Algorithm 1)."""
    sessions = yield from uniform_plays(task, n_sessions, course)
    return core_set(sessions, task.rewards, pairs, rank, course, events)


def uniform_plays(task: Task, n_sessions: int, course: Course) -> Generator[Exploration, Sessions, Sessions]:
    """Sessions of uniformly random arms."""
    if task.horizon < 2:
        raise InvalidArgument(f"horizon must be at least 2 to measure correlations of rewards, got {task.horizon}")
    uniform = Uniform(task.n_arms, horizon=task.horizon)
    return (yield from course.explore(Exploration.of_policy("explore", uniform, n_sessions)))


def core_set(
    sessions: Sessions, rewards: str | None, pairs: str, rank: int | str, course: Course, events: str = "pairs"
) -> Design:
    """The subspace of the second moments, and its core set; of normal rewards there are no events but arms."""
    size = sessions.n_arms * (1 if rewards == "gaussian" else len(np.unique(sessions.rewards)))
    k = None if isinstance(rank, str) else min(rank, size)
    space = subspace(sessions, rank=k, pairs=pairs, rewards=rewards)
    course.note("subspace", rank=space.rank, eigenvalues=space.eigenvalues[:20], noise=space.noise)
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
    """Plays of core arms as plays of core pairs: arm j is the pair (a_j, z_j), and pays 1 where a_j paid z_j.

    An event of Remark A.1 pays 1 where its arm paid any of its values.

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
    """Plays of core arms, with arms numbered within the core set."""
    arms = np.array(core.arms)
    _check_core(core, sessions, np.bincount(arms, minlength=sessions.n_arms))
    return replace(sessions, arms=np.searchsorted(arms, sessions.arms), n_arms=len(arms), arm_labels=None)


def _check_core(core: Design, sessions: Sessions, n_pairs: Integer[Array, "A"]) -> None:
    outside = np.flatnonzero(n_pairs[sessions.arms] == 0)
    if len(outside):
        raise InvalidArgument(
            f"sessions must play the core arms {core.arms}, got arm {sessions.arms[outside[0]]} at step {outside[0]}"
        )
