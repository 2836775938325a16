"""The component of type weights that are the same for every session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._shapes import Array, Float
from ..estimation.log import normalised_weights
from .component import Component, Rows
from .latent_class_model import FEATURES, WEIGHTS

_SHRINK = 0.02  # An extrapolation keeps at least this part of a weight.
_LEAST = 1e-9  # A drawn weight never falls below this.


class Weights(Component):
    """The weights of the types; columns of weight 0 are padding."""

    name = WEIGHTS

    @property
    def n_rows(self) -> int:
        return 1

    def write(self, own: Float[Array, "R 1 P"], table: Rows) -> None:
        table[WEIGHTS][:] = own

    def update(self, own: Float[Array, "R 1 P"], memo: Any, counts: Rows, ahead: Rows) -> Float[Array, "R 1 P"]:
        return normalised_weights(counts[WEIGHTS][:, 0])[:, None]

    def project(self, trial: Float[Array, "R 1 P"], near: Float[Array, "R 1 P"]) -> Float[Array, "R 1 P"]:
        return normalised_weights(trial[:, 0], _SHRINK * near[:, 0])[:, None]

    def sample(
        self, own: Float[Array, "R 1 P"], memo: Any, counts: Rows, ahead: Rows, rng: np.random.Generator
    ) -> Float[Array, "R 1 P"]:
        result = np.zeros_like(own[:, :1])
        for model, sums in zip(result, counts[WEIGHTS], strict=True):
            used = own[0, 0] > 0
            model[0, used] = np.maximum(rng.dirichlet(sums[0, used] + 1.0), _LEAST)
        return result

    def n_parameters(self, n_types: int) -> int:
        return n_types - 1


@dataclass(frozen=True, eq=False)
class GroupWeights(Weights):
    """Weights whose ratio in each group of sessions is given from outside: a row of weights, and one per group."""

    n_groups: int

    @property
    def n_rows(self) -> int:
        return 1 + self.n_groups

    def write(self, own: Float[Array, "R k P"], table: Rows) -> None:
        table[WEIGHTS][:], table[FEATURES][:] = own[:, :1], own[:, 1:]

    def update(self, own: Float[Array, "R k P"], memo: Any, counts: Rows, ahead: Rows) -> Float[Array, "R k P"]:
        return np.concatenate([super().update(own[:, :1], memo, counts, ahead), own[:, 1:]], axis=1)

    def project(self, trial: Float[Array, "R k P"], near: Float[Array, "R k P"]) -> Float[Array, "R k P"]:
        return np.concatenate([super().project(trial[:, :1], near[:, :1]), near[:, 1:]], axis=1)

    def sample(
        self, own: Float[Array, "R k P"], memo: Any, counts: Rows, ahead: Rows, rng: np.random.Generator
    ) -> Float[Array, "R k P"]:
        return np.concatenate([super().sample(own[:, :1], memo, counts, ahead, rng), own[:, 1:]], axis=1)
