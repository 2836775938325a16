"""One Gibbs sampler over the components of a latent class model: types of sessions, then each component given them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Float
from ..components.component import Component, Rows
from ..components.latent_class_model import FEATURES, REWARDS, WEIGHTS, LatentClassModel
from ..model.categorical import Categorical
from .arm_law import STRENGTHS
from .log import Chain, Prior, ValuesLog


class GibbsSampler(Chain):
    """A state of the sampler: the parameters of all components of a model whose rewards are on finitely many values."""

    def __init__(self, model: LatentClassModel, log: ValuesLog, parameters: Float[Array, "1 K M"]) -> None:
        self.model, self._log, self.parameters = model, log, parameters.copy()
        self._counts: Rows | None = None

    def rows(self, name: str) -> Float[Array, "1 k M"]:
        """Return the parameters of a component, as a view."""
        return self.parameters[:, self.model.place(name)]

    def use(self, component: Component) -> None:
        """Put a component in the place of the one with its name."""
        found = tuple(component if one.name == component.name else one for one in self.model.components)
        self.model = replace(self.model, components=found)

    def sweep(self, rng: np.random.Generator) -> None:
        rows, memos, table = self.model.written(self.parameters)
        counts = self._counts = self._drawn(table, rng)
        ahead = self.model.empty(self.parameters)
        for component, own, memo in zip(self.model.components, rows, memos, strict=True):
            own[:] = component.sample(own, memo, counts, ahead, rng)
            component.write(own, ahead)

    def _drawn(self, table: Rows, rng: np.random.Generator) -> Rows:
        """Draw the types of all sessions, and count the codes by type."""
        scaled = table.array[0].copy()
        scaled[1:] /= np.maximum(scaled[1:].max(axis=1, keepdims=True), 1.0)
        sums, own = np.zeros_like(scaled), np.empty_like(scaled)
        for steps in self._log.pieces():
            uniforms = rng.random(steps.high if self._log.travels else len(self._log.sessions))
            kernel("gibbs").categorical(steps.codes, steps.offsets, steps.counts, scaled, uniforms, own)
            sums += own
        return Rows(sums[None], table.places)

    @property
    def weights(self) -> Float[Array, "M"]:
        weights = self.model.written(self.parameters)[2][WEIGHTS][0, 0]
        return weights / weights.sum()

    @property
    def rewards(self) -> Categorical:
        shape = self._log.n_arms, len(self._log.listed), self.parameters.shape[2]
        cells = np.moveaxis(self.rows(REWARDS)[0].reshape(shape), 2, 0)
        return Categorical(cells / cells.sum(axis=2, keepdims=True), self._log.listed)

    def likely(self, rng: np.random.Generator) -> tuple[Float[Array, "A Z"], Float[Array, "A"]]:
        arms: Any = next(one for one in self.model.components if one.name == REWARDS)
        return arms.arms.likely(rng)

    @staticmethod
    def prior(centre: Float[Array, "A Z"], strength: Float[Array, "A"]) -> Prior:
        return Prior(centre, np.clip(strength, *STRENGTHS))

    @property
    def group_sums(self) -> Float[Array, "G M"]:
        assert self._counts is not None
        return self._counts[FEATURES][0]

    def weigh_groups(self, common: Float[Array, "M"], each: Float[Array, "G M"]) -> None:
        self.rows(WEIGHTS)[0] = np.concatenate([common[None], each / common])
