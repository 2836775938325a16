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
from ..data import Episodes
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
    task: Task, n_episodes: int, pairs: str, rank: int | str, course: Course, events: str = "pairs"
) -> Generator[Exploration, Episodes, Design]:
    """Play uniformly, then find the subspace of the second moments and its core set (steps 1 and 2 of Algorithm 1)."""
    episodes = yield from uniform_plays(task, n_episodes, course)
    return core_set(episodes, task.rewards, pairs, rank, course, events)


def uniform_plays(task: Task, n_episodes: int, course: Course) -> Generator[Exploration, Episodes, Episodes]:
    """Sessions of uniformly random arms."""
    if task.horizon < 2:
        raise InvalidArgument(f"horizon must be at least 2 to measure correlations of rewards, got {task.horizon}")
    uniform = Uniform(task.n_arms, horizon=task.horizon)
    return (yield from course.explore(Exploration.of_policy("explore", uniform, n_episodes)))


def core_set(
    episodes: Episodes, rewards: str | None, pairs: str, rank: int | str, course: Course, events: str = "pairs"
) -> Design:
    """The subspace of the second moments, and its core set; of normal rewards there are no events but arms."""
    size = episodes.n_arms * (1 if rewards == "gaussian" else len(np.unique(episodes.rewards)))
    k = None if isinstance(rank, str) else min(rank, size)
    space = subspace(episodes, rank=k, pairs=pairs, rewards=rewards)
    course.note("subspace", rank=space.rank, eigenvalues=space.eigenvalues[:20], noise=space.noise)
    core = design(space, events="pairs" if space.values is None else events)
    course.note("design", core_set=core.pairs, rho=core.rho, g=core.g)
    return core


def core_plays(
    task: Task, core: Design, n_episodes: int, rng: np.random.Generator, course: Course
) -> Generator[Exploration, Episodes, Episodes]:
    """Play the core set: every step draws a core pair uniformly at random and plays its arm (section 4)."""
    picks = rng.integers(len(core.support), size=(n_episodes, task.horizon))
    arms = np.array([arm for arm, _ in core.pairs])[picks]
    return (yield from course.explore(Exploration.of_actions("core plays", arms)))


@contextmanager
def core_may_be_one_arm() -> Iterator[None]:
    """Silence the warning about a log of one arm, because a core set may consist of one arm."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "only arm .* was ever played", LmabWarning)
        yield


def as_indicators(core: Design, episodes: Episodes, rng: np.random.Generator) -> Episodes:
    """Plays of core arms as plays of core pairs: arm j is the pair (a_j, z_j), and pays 1 where a_j paid z_j.

    An event of Remark A.1 pays 1 where its arm paid any of its values.

    An arm with several pairs was played for one of them, chosen at random and not by its reward. So the pair is drawn
    at random here.
    """
    arms = np.array([arm for arm, _ in core.pairs])
    order, n_pairs = np.argsort(arms, kind="stable"), np.bincount(arms, minlength=episodes.n_arms)
    _check_core(core, episodes, n_pairs)
    first = np.cumsum(n_pairs) - n_pairs
    drawn = (rng.random(episodes.n_steps) * n_pairs[episodes.actions]).astype(np.int64)
    pairs = order[first[episodes.actions] + drawn]
    values = np.unique(episodes.rewards)
    hits = np.array(
        [[value in _event(event) for value in values.tolist()] for _, event in core.pairs], dtype=np.float64
    )
    paid = hits[pairs, np.searchsorted(values, episodes.rewards)]
    return Episodes(pairs, paid, episodes.offsets, len(arms))


def _event(value: Any) -> frozenset[float]:
    return value if isinstance(value, frozenset) else frozenset([value])


def as_core_arms(core: Design, episodes: Episodes) -> Episodes:
    """Plays of core arms, with arms numbered within the core set."""
    arms = np.array(core.arms)
    _check_core(core, episodes, np.bincount(arms, minlength=episodes.n_arms))
    return replace(episodes, actions=np.searchsorted(arms, episodes.actions), n_arms=len(arms), arm_labels=None)


def _check_core(core: Design, episodes: Episodes, n_pairs: Integer[Array, "A"]) -> None:
    outside = np.flatnonzero(n_pairs[episodes.actions] == 0)
    if len(outside):
        raise InvalidArgument(
            f"episodes must play the core arms {core.arms}, got arm {episodes.actions[outside[0]]} at step {outside[0]}"
        )
