"""Coordinates without bounds of models of categorical rewards, in which L-BFGS maximises their likelihood."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .._shapes import Array, Bool, Float
from . import leave_rates
from .log import Prior

if TYPE_CHECKING:
    from .categorical import CategoricalLog

_LEAST_INFORMATION = 1.0  # parameters about which the log holds less are scaled as if it held this much


@dataclass(frozen=True, eq=False)
class SoftMax:
    """Logarithms of weights and reward probabilities, and logits of the chances to leave, each times a scale.

    The scale is the root of the information about the parameter if all types were known, so that the objective curves
    about equally in all directions. Parameters at the edge, such as a probability of 0, stay as they are.
    """

    log: CategoricalLog
    prior: Prior
    model_before: Float[Array, "K P"]  # holds everything that has no coordinates
    n_types: int
    free: tuple[Bool[Array, "M"], Bool[Array, "A Z M"], Bool[Array, "_ _ _"]]  # not at the edge
    scale: Float[Array, "n"]

    @classmethod
    def at(
        cls,
        log: CategoricalLog,
        prior: Prior,
        model: Float[Array, "K P"],
        statistics: Float[Array, "Q P"],
        n_types: int,
    ) -> SoftMax:
        """Return the coordinates for models near `model`, at which the statistics were taken."""
        unscaled = cls(log, prior, model, n_types, (np.empty(0, bool),) + 2 * (np.empty((0, 0, 0), bool),), np.empty(0))
        weights, rewards, leaving = unscaled._parameters(model)
        sessions, plays, steps = unscaled._counts(statistics)
        free = weights > 0, rewards > 0, (leaving > 0) & (leaving < 1)
        if log.letters:
            free = *free[:2], free[2] & free[1]
        information = (
            sessions.sum() * weights * (1 - weights),
            plays.sum(axis=1, keepdims=True) * rewards * (1 - rewards),
            steps.sum(axis=0) * leaving * (1 - leaving),
        )
        known = np.concatenate([one[mask] for one, mask in zip(information, free, strict=True)])
        return cls(log, prior, model, n_types, free, np.sqrt(np.maximum(known, _LEAST_INFORMATION)))

    def place(self, model: Float[Array, "K P"]) -> Float[Array, "n"]:
        """Return the coordinates of a model."""
        weights, rewards, leaving = self._parameters(model)
        chances = leaving[self.free[2]]
        logits = np.log(chances) - np.log1p(-chances)
        return np.concatenate([np.log(weights[self.free[0]]), np.log(rewards[self.free[1]]), logits]) * self.scale

    def model(self, place: Float[Array, "n"]) -> Float[Array, "K P"]:
        """Return the model with these coordinates."""
        found = self.model_before.copy()
        weights, rewards, logits = self._by_parameter(place / self.scale)
        found[0, : self.n_types] = _soft_max(weights)
        self.log.by_arm(found[None])[0, ..., : self.n_types] = _soft_max(np.swapaxes(rewards, 0, 1)).swapaxes(0, 1)
        if self.log.letters:
            leaving = self.log.leaving_of(self.model_before[None])
            own = leaving[0, ..., : self.n_types]
            own[self.free[2]] = 1 / (1 + np.exp(-logits[self.free[2]]))
            self.log.write_leaving(found[None], leaving)
        return found

    def gradient(self, statistics: Float[Array, "Q P"], model: Float[Array, "K P"]) -> Float[Array, "n"]:
        """Return the gradient of the objective in the coordinates, by Fisher's identity."""
        weights, rewards, leaving = self._parameters(model)
        sessions, plays, steps = self._counts(statistics)
        slopes = (
            sessions - weights * sessions.sum(),
            plays - rewards * plays.sum(axis=1, keepdims=True),
            steps[0] - leaving * steps.sum(axis=0),
        )
        return np.concatenate([one[mask] for one, mask in zip(slopes, self.free, strict=True)]) / self.scale

    def longest(self, direction: Float[Array, "n"]) -> float:
        """Return the largest move of a logarithm or logit."""
        return float(np.abs(direction / self.scale).max(initial=0.0))

    def _parameters(
        self, model: Float[Array, "K P"]
    ) -> tuple[Float[Array, "M"], Float[Array, "A Z M"], Float[Array, "_ _ _"]]:
        """Return weights, reward probabilities and chances to leave; of the last there are none without letters."""
        rewards = self.log.by_arm(model[None])[0, ..., : self.n_types]
        leaving = self.log.leaving_of(model[None])[0, ..., : self.n_types] if self.log.letters else np.empty((0, 0, 0))
        return model[0, : self.n_types], rewards, leaving

    def _counts(
        self, statistics: Float[Array, "Q P"]
    ) -> tuple[Float[Array, "M"], Float[Array, "A Z M"], Float[Array, "2 _ _ _"]]:
        """Return expected sessions, plays by value, and steps that were left or went on, with those of the prior."""
        plays = self.log.counted(statistics[None])[0, ..., : self.n_types]
        if self.prior.active:
            plays = plays + self.prior.pseudo_counts[:, :, None]
        steps = np.empty((2, 0, 0, 0))
        if self.log.letters:
            seen = self.log.after_places(statistics[None])[0, ..., : self.n_types]
            centre, strength = self.log.leaving_centre(self.prior, self.n_types)
            steps = np.stack(
                [seen[leave_rates.LEFT] + strength * centre, seen[leave_rates.GOES_ON] + strength * (1 - centre)]
            )
        return statistics[0, : self.n_types], plays, steps

    def _by_parameter(
        self, values: Float[Array, "n"]
    ) -> tuple[Float[Array, "M"], Float[Array, "A Z M"], Float[Array, "_ _ _"]]:
        """Return the values in the places of their parameters, and -inf in the places of those at the edge."""
        found, first = [], 0
        for mask in self.free:
            one = np.full(mask.shape, -np.inf)
            last = first + int(np.count_nonzero(mask))
            one[mask] = values[first:last]
            found.append(one)
            first = last
        return found[0], found[1], found[2]


def _soft_max(logs: Float[Array, "n *m"]) -> Float[Array, "n *m"]:
    """Return probabilities over the first axis in proportion to exponentials.

    Examples:
        >>> _soft_max(np.log([[1.0, 2.0], [3.0, 2.0]]))
        array([[0.25, 0.5 ],
               [0.75, 0.5 ]])
    """
    found = np.exp(logs - logs.max(axis=0, keepdims=True))
    return found / found.sum(axis=0, keepdims=True)
