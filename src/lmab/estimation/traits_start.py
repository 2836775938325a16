"""Where a traits model starts: directions in which the arms of one session vary together."""

from __future__ import annotations

import numpy as np

from .._shapes import Array, Float
from .observations import Observations

_SHRINK = 5.0  # pairs of plays without covariance that are added to each pair of arms
_FILLINGS = 5  # of the diagonal, which holds the noise of single plays, from the leading directions
_DENSE = 400  # arms up to which all eigenvectors are computed
_MOST = 2000  # arms that start with loadings, the most played ones
_LEAST = 1e-4  # of an eigenvalue, so that no factor starts at 0, where it would stay


def start_loadings(data: Observations, n_factors: int) -> Float[Array, "A d"]:
    """Leading eigenvectors of the covariances of arms over pairs of different steps of a session."""
    sums, plays, unit = data.surface.deviations()
    n_arms = len(unit)
    chosen = np.sort(np.argsort(-plays.sum(axis=0), kind="stable")[:_MOST])
    loadings = np.zeros((n_arms, n_factors))
    loadings[chosen] = _leading(_covariance(sums[:, chosen], plays[:, chosen], data.multiplicity), n_factors)
    loadings *= np.where(loadings.sum(axis=0) < 0, -1.0, 1.0)
    return loadings / unit[:, None]


def _covariance(sums: Array, plays: Array, multiplicity: Float[Array, "N"]) -> Float[Array, "a a"]:
    """Of arms met in one session; where few sessions met a pair, near 0."""
    from scipy.sparse import diags_array

    counts = diags_array(multiplicity)
    products, pairs = ((part.T @ (counts @ part)).toarray() for part in (sums, plays))
    return products / (pairs + _SHRINK)


def _leading(matrix: Float[Array, "a a"], n_factors: int) -> Float[Array, "a d"]:
    """Eigenvectors times the roots of their eigenvalues, the diagonal filled in from them."""
    n = min(n_factors, len(matrix))
    np.fill_diagonal(matrix, 0.0)
    for _ in range(_FILLINGS):
        values, vectors = _eigen(matrix, n)
        np.fill_diagonal(matrix, ((vectors * values.clip(0)) * vectors).sum(axis=1))
    values, vectors = _eigen(matrix, n)
    found = np.zeros((len(matrix), n_factors))
    found[:, :n] = vectors * np.sqrt(values.clip(_LEAST))
    return found


def _eigen(matrix: Float[Array, "a a"], n: int) -> tuple[Float[Array, "n"], Float[Array, "a n"]]:
    """The n largest eigenvalues, largest first, and their vectors."""
    if len(matrix) <= _DENSE:
        values, vectors = np.linalg.eigh(matrix)
    else:
        from scipy.sparse.linalg import eigsh

        values, vectors = eigsh(matrix, k=n, which="LA", v0=np.ones(len(matrix)) + np.arange(len(matrix)))
    order = np.argsort(-values, kind="stable")[:n]
    return values[order], vectors[:, order]
