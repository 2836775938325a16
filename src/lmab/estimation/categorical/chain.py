"""A Gibbs chain on coded steps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..._kernel import kernel
from ..._shapes import Array, Float
from ...model import Categorical, LatentBandit
from ..arm_law import STRENGTHS, CategoricalArms
from ..observations import Chain
from ..prior import Prior
from .log import CategoricalLog
from .models import CategoricalModels
from .steps import Window

_SESSIONS = 1 << 22  # of a log in files, drawn together
_LEAST = 1e-9  # a weight never falls below
_SOFT = 0.01  # of equal probabilities is mixed into the start, which may call nothing impossible


class CategoricalChain(Chain):
    def __init__(self, log: CategoricalLog, bandit: LatentBandit) -> None:
        self._log, self._arms = log, CategoricalArms(log.n_arms, log.values)
        self._table = np.ascontiguousarray(CategoricalModels(log).pack(bandit)[0, :, : bandit.n_types])
        self._table[0] = np.maximum(self._table[0], _LEAST)
        self._table[1:] = (1 - _SOFT) * self._table[1:] + _SOFT / len(log.values)
        self._statistics = np.empty_like(self._table)

    def _windows(self) -> Iterator[Window]:
        """The log as it lies in memory, or some sessions of a log in files after the other."""
        steps = self._log.steps
        if not steps.travels:
            yield steps.window(0, steps.n_all)
            return
        for low in range(0, steps.n_all, _SESSIONS):
            yield steps.window(low, min(low + _SESSIONS, steps.n_all))

    def _n_drawn(self, window: Window) -> int:
        return len(self._log.sessions) if not self._log.steps.travels else window.high

    @property
    def weights(self) -> Float[Array, "M"]:
        return self._table[0] / self._table[0].sum()

    @property
    def rewards(self) -> Categorical:
        probabilities = self._table[1:].T.reshape(-1, self._log.n_arms, len(self._log.values))
        return Categorical(probabilities / probabilities.sum(axis=2, keepdims=True), self._log.values)

    def likely(self, rng: np.random.Generator) -> tuple[Float[Array, "A Z"], Float[Array, "A"]]:
        return self._arms.likely(rng)

    @staticmethod
    def prior(centre: Float[Array, "A Z"], strength: Float[Array, "A"]) -> Prior:
        return Prior(centre, np.clip(strength, *STRENGTHS))

    def sweep(self, rng: np.random.Generator) -> None:
        log = self._log
        self._statistics[:] = 0.0
        for window in self._windows():
            own, uniforms = np.empty_like(self._statistics), rng.random(self._n_drawn(window))
            kernel("gibbs").categorical(*window[:3], self._table, uniforms, own)
            self._statistics += own
        self._table[0] = np.maximum(rng.dirichlet(self._statistics[0] + 1.0), _LEAST)
        counts = self._statistics[1:].reshape(log.n_arms, len(log.values), -1)
        self._table[1:] = self._arms.draw(counts, rng).reshape(-1, counts.shape[2])
