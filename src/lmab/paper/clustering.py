"""Clustering: types from sessions that are clustered one by one (section 1.2), a baseline for long sessions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer
from ..checks import COUNT, check_fields
from ..data.sessions import Sessions
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
    planned_on_estimate,
    united_values,
)
from ..model.bandit import LatentBandit
from ..model.categorical import Categorical

_ITERATIONS = 100  # of Lloyd's algorithm, which usually ends within twenty


@dataclass(frozen=True)
class Clustering(Learner):
    """Learner that clusters sessions by the mean rewards of their arms, and plans on the estimated clusters.

    This is the explicit clustering of multitask reinforcement learning (Brunskill and Li, 2013; Gentile et al., 2014;
    Hallak et al., 2015), which needs sessions of H >= A / gamma^2 steps if the means of types differ by gamma
    (section 1.2). Sessions shorter than A leave arms unplayed; their distances then count the arms that were
    played. Clusters are those of k-means, weighted by plays, with the best of several starts by k-means++.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.5], [0.1, 0.9, 0.5]])
        >>> environment = lmab.Simulator(bandit, horizon=60, rng=rng)
        >>> learned = lmab.learn(environment, lmab.learning.Clustering(2), n_sessions=200, rng=rng)
        >>> learned.bandit.distance(bandit) < 0.15
        True
    """

    n_types: int
    restarts: int = 10

    def __post_init__(self) -> None:
        check_fields(self, {"n_types": COUNT, "restarts": COUNT})

    def campaign(self, task: Task, *, rng: np.random.Generator) -> Campaign:
        check_not_binned(task, "Clustering")
        check_enough(task, task.n_sessions, self.n_types)
        course = Course()
        rounds = -(-task.horizon // task.n_arms)
        turns = np.tile(np.arange(task.n_arms), (task.n_sessions, rounds, 1))
        arms = rng.permuted(turns, axis=2).reshape(task.n_sessions, -1)[:, : task.horizon]
        sessions = yield from course.explore(Exploration.of_arms("explore", arms))
        clusters, loss = cluster(sessions, self.n_types, self.restarts, rng)
        course.note("cluster", sizes=np.bincount(clusters, minlength=self.n_types), loss=loss)
        return planned_on_estimate(task, _estimate(sessions, clusters, self.n_types, task, rng), course)


def cluster(
    sessions: Sessions, n_clusters: int, restarts: int, rng: np.random.Generator
) -> tuple[Integer[Array, "N"], float]:
    """Return the cluster of each session by k-means on its arms' mean rewards, and the loss per play."""
    n, n_arms = len(sessions), sessions.n_arms
    places = np.repeat(np.arange(n), sessions.lengths) * n_arms + sessions.arms
    plays = np.bincount(places, minlength=n * n_arms).reshape(n, n_arms).astype(float)
    totals = np.bincount(places, sessions.rewards, minlength=n * n_arms).reshape(n, n_arms)
    means = np.divide(totals, plays, out=np.zeros_like(totals), where=plays > 0)
    common = totals.sum(axis=0) / np.maximum(plays.sum(axis=0), 1)
    best, least = np.zeros(n, np.int64), np.inf
    for _ in range(restarts):
        centres = _starts(plays, means, common, n_clusters, rng)
        labels = np.full(n, -1)
        for _ in range(_ITERATIONS):
            distances = _distances(plays, means, centres)
            nearest = distances.argmin(axis=1)
            if (nearest == labels).all():
                break
            labels = nearest
            centres = _centres(plays, totals, common, labels, n_clusters)
        loss = float(distances.min(axis=1).sum() / plays.sum())
        if loss < least:
            best, least = labels, loss
    return best, least


def _centres(
    plays: Float[Array, "N A"], totals: Float[Array, "N A"], common: Float[Array, "A"], labels: Integer[Array, "N"],
    n_clusters: int,
) -> Float[Array, "K A"]:  # fmt: skip
    """Return the mean rewards of each cluster; an arm that a cluster never played has the mean of all sessions."""
    members = np.eye(n_clusters)[labels].T
    played = members @ plays
    return np.where(played > 0, members @ totals / np.maximum(played, 1), common)


def _distances(
    plays: Float[Array, "N A"], means: Float[Array, "N A"], centres: Float[Array, "K A"]
) -> Float[Array, "N K"]:
    """Return the squared distance of each session to each centre, weighted by the plays of the arms."""
    weighted = plays * means
    squares = (weighted * means).sum(axis=1)
    distances: Float[Array, "N K"] = squares[:, None] - 2 * weighted @ centres.T + plays @ (centres**2).T
    return np.maximum(distances, 0)  # rounding may leave a small negative number


def _starts(
    plays: Float[Array, "N A"], means: Float[Array, "N A"], common: Float[Array, "A"], n_clusters: int,
    rng: np.random.Generator,
) -> Float[Array, "K A"]:  # fmt: skip
    """Draw sessions that are far from each other, as k-means++ does; unplayed arms have the mean of all sessions."""
    filled = np.where(plays > 0, means, common)
    chosen = [int(rng.integers(len(plays)))]
    while len(chosen) < n_clusters:
        nearest = _distances(plays, means, filled[chosen]).min(axis=1)
        total = nearest.sum()
        chance = nearest / total if total > 0 else np.full(len(plays), 1 / len(plays))
        chosen.append(int(rng.choice(len(plays), p=chance)))
    return filled[chosen].copy()


def _estimate(
    sessions: Sessions, clusters: Integer[Array, "N"], n_types: int, task: Task, rng: np.random.Generator
) -> LatentBandit:
    """Fit one type to each cluster and put them together; empty clusters get the model of all sessions and weight 0."""
    values = united_values(task, sessions)
    options: dict[str, Any] = {"n_types": 1, "rewards": task.rewards, "values": values, "check": False, "rng": rng}
    parts = [np.flatnonzero(clusters == k) for k in range(n_types)]
    models = [fit(sessions if len(part) == 0 else sessions[part], **options).bandit for part in parts]
    weights = np.array([len(part) for part in parts]) / len(sessions)
    rewards = models[0].rewards
    if isinstance(rewards, Categorical):
        tables = np.concatenate([model.rewards.probabilities for model in models])  # type: ignore[union-attr]
        return LatentBandit.categorical(weights, tables, rewards.values)
    means = np.concatenate([model.means for model in models])
    if task.rewards == "counts":
        return LatentBandit.counts(weights, means)
    if task.rewards == "gaussian":
        scales = np.array([model.rewards.scale for model in models])  # type: ignore[union-attr]
        return LatentBandit.gaussian(weights, means, float(np.sqrt(weights @ scales**2)))
    raise InvalidArgument(f"rewards must be categorical, counts or gaussian for Clustering, got {rewards}")
