"""Standard errors of weights and means, from the observed information."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._shapes import Array, Float
from .information import Information

_FLAT = 1e-9  # eigenvalues of the scaled information below this: a direction the log says nothing about
_TOUCHED = 1e-6


@dataclass(frozen=True, eq=False)
class StandardErrors:
    """One standard error per weight and mean.

    Infinite where the log does not determine the quantity; NaN where it sits on its boundary (an arm that pays the
    same in every play of a context) or the arm was never played.
    """

    weights: Float[Array, "M"]
    means: Float[Array, "M A"]


def standard_errors(information: Information) -> StandardErrors:
    """Standard errors by the delta method, from the inverse of the information."""
    scale = np.sqrt(np.maximum(np.diag(information.matrix), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(information.matrix / np.outer(scale, scale))
    flat = values < _FLAT
    vectors = vectors / scale[:, None]
    weights = _errors(information.weights @ vectors, values, flat)
    means = _errors(information.means @ vectors, values, flat)
    means[information.fixed] = np.nan
    return StandardErrors(weights, means.reshape(len(weights), -1))


def _errors(directions: Float[Array, "n K"], values: Float[Array, "K"], flat: Array) -> Float[Array, "n"]:
    """Square roots of the variances of linear combinations, given in the eigenvectors of the information."""
    variance = (directions[:, ~flat] ** 2 / values[~flat]).sum(axis=1)
    touched = (directions[:, flat] ** 2).sum(axis=1) > _TOUCHED * (directions**2).sum(axis=1)
    return np.where(touched, np.inf, np.sqrt(variance))
