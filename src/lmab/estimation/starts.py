"""The starts of EM: a tensor decomposition, clusters of spectral features, and random models."""

from __future__ import annotations

import numpy as np

from .._shapes import Array, Float, Integer
from .log import Log
from .tensor_decomposition import TensorDecomposition

_DENSE = 400  # features up to which the eigenvectors come from a full decomposition
_MAX_DIMENSIONS = 12
_LLOYD = 20


def draw_starts(data: Log, n_types: int, n_starts: int, rng: np.random.Generator) -> Float[Array, "R K P"]:
    """A tensor decomposition where the log allows one, k-means++ on spectral features, and random models."""
    starts = _tensor_start(data, n_types, rng) if n_types > 1 and n_starts > 2 else []
    n_clustered = (n_starts - len(starts) + 1) // 2 if n_types > 1 and data.n_distinct > n_types else 0
    if n_clustered:
        features = spectral_features(data, min(n_types - 1, _MAX_DIMENSIONS))
        labels = [cluster(features, data.multiplicity, n_types, rng) for _ in range(n_clustered)]
        starts += [data.clustered(one, n_types) for one in labels]
    return np.concatenate([*starts, data.random_models(n_starts - len(starts), n_types, rng)])


def _tensor_start(data: Log, n_types: int, rng: np.random.Generator) -> list[Float[Array, "1 K P"]]:
    """One model, or none where there are too few steps or too many features."""
    n_features = data.n_features
    if data.sessions.horizon < 3 or not n_types <= n_features <= _DENSE:
        return []
    bandit = TensorDecomposition(restarts=10).fit(data, n_types=n_types, rng=rng).bandit
    return [data.soften(data.pack(bandit))]


def spectral_features(data: Log, n_dimensions: int) -> Float[Array, "N k"]:
    """Each session's coordinates along the leading directions in which types differ.

    These are eigenvectors of the second moment of the centred steps over pairs of *different* steps of a session:
    given the type, different steps are independent, so what is left is the covariance between types.
    """
    sums, squares = data.features()
    size, multiplicity = len(squares), data.multiplicity[:, None]

    def moment(directions: Float[Array, "D k"]) -> Float[Array, "D k"]:
        centred = data.centre(directions)
        return data.centre(sums.T @ (multiplicity * (sums @ centred)) - squares[:, None] * centred)

    k = max(min(n_dimensions, size - 1), 1)
    if size <= _DENSE:
        matrix = moment(np.eye(size))
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    else:
        from scipy.sparse.linalg import LinearOperator, eigsh

        operator = LinearOperator((size, size), matvec=lambda v: moment(v.reshape(-1, 1))[:, 0], dtype=np.float64)
        values, vectors = eigsh(operator, k=k, which="LA", v0=np.ones(size) + np.arange(size) / size)
    leading = np.argsort(-values)[:k]
    scale = np.sqrt(np.maximum(values[leading], 0) / max(values[leading[0]], np.finfo(float).tiny))
    return sums @ (data.centre(vectors[:, leading]) * scale)


def cluster(
    features: Float[Array, "N k"], multiplicity: Float[Array, "N"], n_clusters: int, rng: np.random.Generator
) -> Integer[Array, "N"]:
    """Labels from k-means++ followed by a few of Lloyd's iterations."""
    centres = np.empty((0, features.shape[1]))
    nearest = np.ones(len(features))
    for _ in range(n_clusters):
        cumulative = np.cumsum(nearest * multiplicity if nearest.any() else multiplicity)
        pick = np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right")
        centres = np.vstack([centres, features[min(pick, len(features) - 1)]])
        distances = ((features - centres[-1]) ** 2).sum(axis=1)
        nearest = distances if len(centres) == 1 else np.minimum(nearest, distances)
    labels = np.empty(0, np.int64)
    for _ in range(_LLOYD):
        previous, labels = labels, _nearest(features, centres)
        if np.array_equal(previous, labels):
            break
        sizes = np.bincount(labels, multiplicity, minlength=n_clusters)
        weighted = (features * multiplicity[:, None]).T
        sums = np.stack([np.bincount(labels, column, minlength=n_clusters) for column in weighted], axis=1)
        centres = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
    return labels


def _nearest(features: Float[Array, "N k"], centres: Float[Array, "M k"]) -> Integer[Array, "N"]:
    return ((centres**2).sum(axis=1) - 2 * features @ centres.T).argmin(axis=1)
