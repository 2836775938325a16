"""A Gibbs chain on normal rewards; the scale is drawn too unless it is known."""

from __future__ import annotations

import numpy as np

from ..._kernel import kernel
from ..._shapes import Array, Float
from ...model import Gaussian, LatentBandit
from ..arm_law import GaussianArms
from ..observations import Chain
from ..prior import Prior
from .log import GaussianLog

_LEAST = 1e-9  # a weight never falls below


class GaussianChain(Chain):
    def __init__(self, log: GaussianLog, bandit: LatentBandit) -> None:
        self._log, self.scale = log, float(bandit.rewards.spread)
        # One centre for all arms, so that arms can be compared, and large means cost no precision.
        self._centre = float(log.centres[log.played].mean())
        self._rewards = log.residuals + (log.centres - self._centre)[log.arms]
        own = log.centres[log.played] - self._centre
        self._arms = GaussianArms(max(log.spread, log.least_scale), float(own.min()), float(own.max()))
        weights = np.maximum(bandit.weights, _LEAST)
        self._table = np.concatenate([weights[None], bandit.means.T - self._centre])
        self._statistics = np.empty((1 + 2 * log.n_arms, len(weights)))
        self._squares = float(self._rewards @ self._rewards)

    @property
    def weights(self) -> Float[Array, "M"]:
        return self._table[0] / self._table[0].sum()

    @property
    def rewards(self) -> Gaussian:
        return Gaussian(self._table[1:].T + self._centre, self.scale)

    def likely(self, rng: np.random.Generator) -> tuple[Float[Array, "A"], Float[Array, "A"]]:
        return self._arms.centre + self._centre, self._arms.variance / self.scale**2

    @staticmethod
    def prior(centre: Float[Array, "A"], strength: Float[Array, "A"]) -> Prior:
        return Prior(centre, strength)

    def sweep(self, rng: np.random.Generator) -> None:
        log, n_arms, uniforms = self._log, self._log.n_arms, rng.random(self._log.n_distinct)
        kernel("gibbs").gaussian(
            log.arms, self._rewards, log.offsets, self._table, self.scale, uniforms, self._statistics
        )  # fmt: skip
        self._table[0] = np.maximum(rng.dirichlet(self._statistics[0] + 1.0), _LEAST)
        plays, sums = self._statistics[1 : 1 + n_arms], self._statistics[1 + n_arms :]
        self._table[1:] = means = self._arms.draw(plays, sums, self.scale, rng)
        if log.known_scale is None:
            rest = self._squares - 2 * (means * sums).sum() + (means**2 * plays).sum()
            least = len(self._rewards) * log.least_scale**2
            self.scale = float(np.sqrt(max(rest, least) / rng.chisquare(len(self._rewards))))
