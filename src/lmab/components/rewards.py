"""The component of rewards: the arms' parameters in every type, as the family of the log learns them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._shapes import Array, Float
from ..estimation.log import Log, Prior
from .component import Component, Rows
from .latent_class_model import LOG, REWARDS

_LEAST = 1e-9  # A drawn probability never falls below this.


@dataclass(frozen=True, eq=False)
class Rewards(Component):
    """The rows of rewards of a model, without the auxiliary rows, under a prior of arms."""

    name = REWARDS
    log: Log  # with the auxiliary codes of all components
    n_types: int
    prior: Prior
    arms: Any = None  # draws the arms' parameters and their hierarchical prior; needed by the Gibbs sampler only

    @property
    def n_rows(self) -> int:
        return self.log.n_own_rows + self.log.n_last_rows

    def write(self, own: Float[Array, "R k P"], table: Rows) -> None:
        n, last = self.log.n_own_rows, self.log.n_model_rows
        table[REWARDS][:] = own[:, :n]
        table.array[:, last - self.log.n_last_rows : last] = own[:, n:]

    def update(self, own: Float[Array, "R k P"], memo: Any, counts: Rows, ahead: Rows) -> Float[Array, "R k P"]:
        return self._rows(self.log.maximise(counts[LOG], self._models(own), self.prior))

    def log_prior(self, own: Float[Array, "R k P"]) -> Float[Array, "R"] | float:
        if not self.prior.active:
            return 0.0
        return self.log.log_prior(self._models(own)[..., : self.n_types], self.prior)

    def project(self, trial: Float[Array, "R k P"], near: Float[Array, "R k P"]) -> Float[Array, "R k P"]:
        return self._rows(self.log.repair(self._models(trial), self._models(near)))

    def sample(
        self, own: Float[Array, "R k P"], memo: Any, counts: Rows, ahead: Rows, rng: np.random.Generator
    ) -> Float[Array, "R k P"]:
        cells = counts[REWARDS][0].reshape(self.log.n_arms, -1, own.shape[2])
        return np.clip(self.arms.draw(cells, rng), _LEAST, 1.0).reshape(own.shape)

    def n_parameters(self, n_types: int) -> int:
        return self.log.n_parameters(n_types) - (n_types - 1)

    def _models(self, own: Float[Array, "R k P"]) -> Float[Array, "R K P"]:
        """Return models of the log with these rows of rewards, equal weights, and 1 in auxiliary rows."""
        n, result = self.log.n_own_rows, np.ones((len(own), self.log.n_model_rows, own.shape[2]))
        result[:, 1 : 1 + n] = own[:, :n]
        result[:, result.shape[1] - self.log.n_last_rows :] = own[:, n:]
        return result

    def _rows(self, models: Float[Array, "R K P"]) -> Float[Array, "R k P"]:
        own = models[:, 1 : 1 + self.log.n_own_rows]
        if not self.log.n_last_rows:
            return own
        return np.concatenate([own, models[:, models.shape[1] - self.log.n_last_rows :]], axis=1)
