"""TensorDecomposition: the spectral method of Anandkumar et al. (2014), one of the paper's baselines."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from .._shapes import Array, Bool, Float, Integer
from ..checks import COUNT, FRACTION, OneOf, check_fields
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..errors import InvalidArgument, Status
from ..estimation.passes import session_edges, spans
from ..estimation.result import Capabilities, Estimate, Estimator, Progress, Request, Starts, finish
from ..model.rewards import encode_values
from ..moments.second import Moments, Stays, second_moments
from ..parallel import SERIAL, Passes

_SESSIONS = 1 << 16  # Looked at together.
_STEPS = 1 << 16  # steps with features in memory at once
_STILL = 1e-9  # Change of a unit vector below which the power iteration has converged.
_CLOSE = 1e-3  # change of a unit vector below which the rest does not matter
_LEAST_WEIGHT = 1e-3


@dataclass(frozen=True)
class TensorDecomposition(Estimator):
    """Types as the components of the third moments, by whitening and the robust tensor power method.

    Fast and without local optima, but it needs sessions of 3 steps, types that are linearly independent, and plays
    that do not depend on the session's own rewards: elsewhere it is a start for EM, not an answer.

    Args:
        restarts: random starts of the power iteration for each component.
        max_iterations: most iterations of a start.
        floor: eigenvalues of the second moments below this part of the largest are raised to it before whitening, so
            that directions of pure noise are not blown up.
        features: "pairs" describes a type by the probabilities of all (arm, value) pairs; "free" leaves out each
            arm's lowest value, which the others determine: for 0/1 rewards types are then vectors of means. Pairs
            are redundant and the less noisy for it. Normal rewards have means only.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.LatentBandit.bernoulli([0.6, 0.4], [[0.9, 0.1, 0.5], [0.2, 0.7, 0.5]])
        >>> log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=50_000, horizon=5, rng=rng)
        >>> fit = lmab.fit(log, n_types=2, method=lmab.estimation.TensorDecomposition(), rng=rng)
        >>> bool(fit.bandit.distance(bandit) < 0.1)
        True
    """

    restarts: int = 30
    max_iterations: int = 100
    floor: float = 1e-3
    features: Literal["pairs", "free"] = "pairs"

    def __post_init__(self) -> None:
        counts = {"restarts": COUNT, "max_iterations": COUNT}
        check_fields(self, {**counts, "floor": FRACTION, "features": OneOf(("pairs", "free"))})

    @property
    def capabilities(self) -> Capabilities:
        """Return the capabilities that `lmab.fit` may use."""
        return Capabilities(uses_moments=True, corrects_attrition=True)

    def solve(self, request: Request) -> Estimate:
        """Return the components of the log's third moments."""
        log, n_types = request.log, request.n_types
        sessions = log.sessions
        if sessions.horizon < 3:
            raise InvalidArgument(
                f"sessions must have at least 3 steps: third moments need three, got {sessions.horizon}"
            )
        moments = second_moments(sessions, values=log.values, rewards=log.family)
        used = self._used(moments)
        if n_types > used.sum():
            raise InvalidArgument(f"n_types must be at most the {used.sum()} features, got {n_types}")
        values, vectors = _leading(moments.second[np.ix_(used, used)], n_types)
        values = np.maximum(values, self.floor * values[0])
        features = np.zeros((len(used), n_types))
        features[used] = vectors / np.sqrt(values)
        tensor = third_moments(sessions, features, moments.values)
        strengths, directions, converged = decompose(tensor, n_types, self.restarts, self.max_iterations, request.rng)
        request.progress(Progress("components", n_types, n_types, float("nan")))
        weights = np.maximum(1 / strengths**2, _LEAST_WEIGHT)
        types = np.zeros((n_types, len(used)))
        types[:, used] = strengths[:, None] * directions @ (vectors * np.sqrt(values)).T
        if not used.all():  # the first value of every arm has the rest
            cells = types.reshape(n_types, sessions.n_arms, -1)
            cells[:, :, 0] = 1 - np.clip(cells, 0, 1).sum(axis=2)
        bandit = log.from_moments(weights / weights.sum(), types)
        drawn = self.restarts * n_types
        return finish(
            log,
            bandit,
            status=Status.CONVERGED if converged else Status.ITERATION_LIMIT,
            message=f"{n_types} components of the third moments"
            + ("" if converged else "; a power iteration was stopped by max_iterations before it converged: raise it"),
            starts=Starts(drawn, drawn, n_types),
        )

    def _used(self, moments: Moments) -> Bool[Array, "D"]:
        """Return which rows of the moments describe a type."""
        used = np.ones(len(moments.second), bool)
        if self.features == "free" and moments.values is not None and len(moments.values) > 1:
            used[:: len(moments.values)] = False
        return used


def _leading(matrix: Float[Array, "D D"], k: int) -> tuple[Float[Array, "k"], Float[Array, "D k"]]:
    from scipy.linalg import eigh

    size = len(matrix)
    values, vectors = eigh(matrix, subset_by_index=(size - k, size - 1))
    return values[::-1], vectors[:, ::-1]


def third_moments(
    sessions: Sessions | Packed,
    features: Float[Array, "D k"],
    values: Float[Array, "Z"] | None,
    passes: Passes = SERIAL,
) -> Float[Array, "k k k"]:
    """Return mean over ordered triples of different steps of a session of the outer product of their features.

    A step that played arm a has `features[a, z]` (or reward times `features[a]`) divided by how often arm a was played,
    so that its expectation in type m is features' mu_m whatever arms the log prefers. With attrition, triples have
    the weight of their last step.
    """
    stays = Stays.of(sessions)
    plays = sessions.plays if stays is None else _reached(sessions, stays)
    frequency = np.maximum(plays, 1) / plays.sum()
    edges = session_edges(sessions, 8 * features.shape[1] ** 3)
    arguments = (sessions, features, values, frequency, stays, edges)
    total, n_triples = passes.ordered(_thirds, len(edges) - 1, *arguments, work=sessions.n_steps)
    return total.sum(axis=0) / n_triples.sum()


def _reached(sessions: Sessions | Packed, stays: Stays) -> Float[Array, "A"]:
    """Return how often each arm would have been played, had nobody left."""
    plays = np.zeros(sessions.n_arms)
    for chunk in sessions.chunks(_SESSIONS):
        plays += np.bincount(chunk.arms, stays.weights(chunk), minlength=sessions.n_arms)
    return plays


def _thirds(
    sessions: Sessions | Packed,
    features: Float[Array, "D k"],
    values: Float[Array, "Z"] | None,
    frequency: Float[Array, "A"],
    stays: Stays | None,
    edges: Integer[Array, "B1"],
    first: int,
    last: int,
) -> tuple[Float[Array, "n k k k"], Float[Array, "n"]]:
    """Return sums over the triples of the parts, and the number of triples."""
    k = features.shape[1]
    total, n_triples = np.zeros((last - first, k, k, k)), np.zeros(last - first)
    for number, (start, end) in enumerate(pairwise(edges[first : last + 1].tolist())):
        part = sessions[start:end]
        reached = None if stays is None else stays.weights(part)
        for low, high in spans(part.offsets, _STEPS):
            offsets = part.offsets[low : high + 1]
            steps = slice(int(offsets[0]), int(offsets[-1]))
            arms, rewards = part.arms[steps], part.rewards[steps]
            if values is None:
                rows = features[arms] * (rewards / frequency[arms])[:, None]
            else:
                rows = (
                    features[arms * np.int64(len(values)) + encode_values(values, rewards)] / frequency[arms][:, None]
                )
            lengths = np.diff(offsets)
            if reached is None:
                total[number] += _triples(rows, offsets[:-1] - offsets[0], lengths)
                n_triples[number] += float((lengths * (lengths - 1) * np.maximum(lengths - 2, 0)).sum())
            else:
                total[number] += _weighed_triples(rows, reached[steps], offsets[:-1] - offsets[0], lengths)
                n_triples[number] += 3 * float((reached * part.steps * (part.steps - 1))[steps].sum())
    return total, n_triples


def _weighed_triples(
    rows: Float[Array, "n k"], reached: Float[Array, "n"], first: Integer[Array, "e"], lengths: Integer[Array, "e"]
) -> Float[Array, "k k k"]:
    """Return `_triples`, each weighted by its last step: that step times the pairs of steps before it."""
    k = rows.shape[1]
    squares = (rows[:, :, None] * rows[:, None, :]).reshape(-1, k * k)
    sums, twice = (_before(each, first, lengths) for each in (rows, squares))
    pairs = (sums[:, :, None] * sums[:, None, :]).reshape(-1, k * k) - twice
    total = ((rows * reached[:, None]).T @ pairs).reshape(k, k, k)
    return total + total.transpose(1, 0, 2) + total.transpose(1, 2, 0)


def _before(rows: Float[Array, "n k"], first: Integer[Array, "e"], lengths: Integer[Array, "e"]) -> Float[Array, "n k"]:
    """Return sums over the steps of the session before each step."""
    total = np.cumsum(rows, axis=0) - rows
    return total - np.repeat(total[first], lengths, axis=0)


def _triples(
    rows: Float[Array, "n k"], first: Integer[Array, "e"], lengths: Integer[Array, "e"]
) -> Float[Array, "k k k"]:
    """Sum over ordered triples of different steps: all triples, less all that repeat a step."""
    k = rows.shape[1]
    sums = np.add.reduceat(rows, first, axis=0)
    squares = (rows[:, :, None] * rows[:, None, :]).reshape(-1, k * k)
    every = (sums[:, :, None] * sums[:, None, :]).reshape(-1, k * k).T @ sums
    twice = (squares.T @ np.repeat(sums, lengths, axis=0)).reshape(k, k, k)
    thrice = squares.T @ rows
    twice = twice + twice.transpose(0, 2, 1) + twice.transpose(2, 1, 0)
    return every.reshape(k, k, k) - twice + 2 * thrice.reshape(k, k, k)


def decompose(
    tensor: Float[Array, "k k k"], n_components: int, restarts: int, max_iterations: int, rng: np.random.Generator
) -> tuple[Float[Array, "c"], Float[Array, "c k"], bool]:
    """Return strengths and unit directions of a symmetric tensor's components, by power iterations with deflation."""
    left, k = tensor.copy(), len(tensor)
    strengths, directions, converged = [], [], True
    for _ in range(n_components):
        points = rng.standard_normal((restarts, k))
        points /= np.linalg.norm(points, axis=1, keepdims=True)
        for _ in range(max_iterations):
            before, points = points, _power(left, points)
            change = np.linalg.norm(points - before, axis=1)
            if change.max() < _STILL:
                break
        strength = np.einsum("ijk,ni,nj,nk->n", left, points, points, points, optimize=True)
        best = int(strength.argmax())
        converged &= bool(change[best] < _CLOSE)
        strengths.append(max(float(strength[best]), 1.0))  # a weight is at most 1
        directions.append(points[best])
        left -= strength[best] * np.einsum("i,j,k->ijk", points[best], points[best], points[best])
    return np.array(strengths), np.array(directions), converged


def _power(tensor: Float[Array, "k k k"], points: Float[Array, "n k"]) -> Float[Array, "n k"]:
    k = len(tensor)
    image = (points[:, :, None] * points[:, None, :]).reshape(-1, k * k) @ tensor.reshape(k, k * k).T
    norm = np.linalg.norm(image, axis=1, keepdims=True)
    return np.where(norm > 1e-12, image / np.maximum(norm, 1e-12), points)
