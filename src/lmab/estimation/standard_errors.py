"""Standard errors of weights and means, from the observed information."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._shapes import Array, Float
from .information import Information

_FLAT = 1e-5  # scaled eigenvalues below this: the log says nothing, up to how near the estimate is to the maximum
_TOUCHED = 1e-6  # part of a quantity's slope in such directions that makes it one the log does not determine
_NOTHING = 1e-12  # least information that a coordinate is scaled by


@dataclass(frozen=True, eq=False)
class StandardErrors:
    """One standard error per weight and mean.

    Infinite where the log does not determine the quantity; NaN where it sits on its boundary (an arm that pays the
    same in every play of a type) or the arm was never played.
    """

    weights: Float[Array, "M"]
    means: Float[Array, "M A"]


def standard_errors(information: Information) -> StandardErrors:
    """Standard errors by the delta method, from the inverse of the information where no boundary is near."""
    coordinates = information.coordinates
    free = coordinates.free()
    matrix = free.T @ (free.T @ information.matrix).T
    scale = np.sqrt(np.maximum(np.diag(matrix), _NOTHING))
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    directions = free @ (vectors / scale[:, None])
    weights = _errors(coordinates.weights_along(directions), values)
    means = _errors(coordinates.means_along(directions), values)
    weights[coordinates.fixed_weights] = np.nan
    means[coordinates.fixed] = np.nan
    return StandardErrors(weights, means)


def _errors(slopes: Float[Array, "*n F"], values: Float[Array, "F"]) -> Float[Array, "*n"]:
    """Square roots of the variances of quantities, given their slopes along the eigenvectors of the information."""
    flat = values < _FLAT
    variance = (slopes[..., ~flat] ** 2 / values[~flat]).sum(axis=-1)
    touched = (slopes[..., flat] ** 2).sum(axis=-1) > _TOUCHED * (slopes**2).sum(axis=-1)
    return np.where(touched, np.inf, np.sqrt(variance))
