"""A Gibbs chain on coded steps."""

from __future__ import annotations

import numpy as np

from ..._kernel import kernel
from ..._shapes import Array, Float
from ...model import Categorical, LatentBandit
from ..arm_law import STRENGTHS, CategoricalArms
from ..observations import Chain
from ..prior import Prior
from .log import CategoricalLog
from .models import CategoricalModels

_LEAST = 1e-9  # a weight never falls below
_SOFT = 0.01  # of equal probabilities is mixed into the start, which may call nothing impossible


class CategoricalChain(Chain):
    def __init__(self, log: CategoricalLog, bandit: LatentBandit) -> None:
        self._log, self._arms = log, CategoricalArms(log.n_arms, log.values)
        self._table = np.ascontiguousarray(CategoricalModels(log).pack(bandit)[0, :, : bandit.n_contexts])
        self._table[0] = np.maximum(self._table[0], _LEAST)
        self._table[1:] = (1 - _SOFT) * self._table[1:] + _SOFT / len(log.values)
        self._statistics = np.empty_like(self._table)
        self._n_episodes = int(log.multiplicity.sum())

    @property
    def weights(self) -> Float[Array, "M"]:
        return self._table[0] / self._table[0].sum()

    @property
    def rewards(self) -> Categorical:
        probabilities = self._table[1:].T.reshape(-1, self._log.n_arms, len(self._log.values))
        return Categorical(probabilities / probabilities.sum(axis=2, keepdims=True), self._log.values)

    def likely(self, rng: np.random.Generator) -> tuple[Float[Array, "A Z"], Float[Array, "A"]]:
        return self._arms.likely(rng)

    def prior(self, centre: Float[Array, "A Z"], strength: Float[Array, "A"]) -> Prior:
        return Prior(centre, np.clip(strength, *STRENGTHS))

    def sweep(self, rng: np.random.Generator) -> None:
        log, uniforms = self._log, rng.random(self._n_episodes)
        kernel("gibbs").categorical(log.codes, log.offsets, log.counts, self._table, uniforms, self._statistics)
        self._table[0] = np.maximum(rng.dirichlet(self._statistics[0] + 1.0), _LEAST)
        counts = self._statistics[1:].reshape(log.n_arms, len(log.values), -1)
        self._table[1:] = self._arms.draw(counts, rng).reshape(-1, counts.shape[2])
