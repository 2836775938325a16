"""Short Gibbs runs: models that a log could have come from, and what they say about the prior of every arm.

A sweep draws the context of every session, the weights, what arms are like (`arm_law`) and the rewards. Chains start
from a fitted model and are short on purpose: contexts keep their places, so that draws of one run can be averaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Float, Integer, Shaped
from .arm_law import CategoricalArms, GaussianArms, dirichlet

_LEAST = 1e-9  # a weight, or a probability of the start, never falls below
_SOFT = 0.005  # of the log's overall rewards is mixed into the start


@dataclass(frozen=True)
class Schedule:
    """How long the chains are."""

    chains: int = 10
    burn: int = 40  # sweeps thrown away
    keep: int = 10  # draws kept of each chain
    thin: int = 3  # sweeps per draw


@dataclass(frozen=True, eq=False)
class Draws:
    """Models that a log could have come from, and the prior of every arm that they point to."""

    weights: Float[Array, "B M"]
    rewards: Float[Array, "B M A Y"]  # probabilities of the Z values; normal rewards: one mean
    scales: Float[Array, "B"]  # of normal rewards; else 1
    centre: Float[Array, "A Y"]  # prior of an arm: mean of its centres
    strength: Float[Array, "A"]  # pseudo-plays: harmonic mean over the draws


class Chain(Protocol):
    """One state of the sampler: `sweep` moves it."""

    weights: Float[Array, "M"]
    scale: float
    rewards: Float[Array, "M A Y"]
    centre: Float[Array, "Y A"]
    inverse_strength: Float[Array, "Y A"]

    def sweep(self, rng: np.random.Generator) -> None: ...


@dataclass(frozen=True, eq=False)
class CodedSteps:
    """A log as codes a * Z + z; identical episodes may be merged."""

    codes: Shaped[Array, "T"]
    offsets: Integer[Array, "K1"]
    counts: Float[Array, "C"]  # episodes that each distinct one stands for; empty: one
    n_arms: int
    n_values: int

    def chain(self, weights: Float[Array, "M"], rewards: Float[Array, "M A Z"]) -> CategoricalChain:
        return CategoricalChain(self, weights, rewards)

    def prior(
        self, centre: Float[Array, "Y A"], strength: Float[Array, "Y A"]
    ) -> tuple[Float[Array, "A Z"], Float[Array, "A"]]:
        return dirichlet(centre, strength, self.n_values)


class CategoricalChain:
    """A chain on coded steps."""

    scale = 1.0

    def __init__(self, log: CodedSteps, weights: Float[Array, "M"], rewards: Float[Array, "M A Z"]) -> None:
        self._log, self._arms = log, CategoricalArms(log.n_arms, log.n_values)
        n_contexts, size = len(weights), log.n_arms * log.n_values
        self._table = np.empty((1 + size, n_contexts))
        self._table[0] = np.maximum(weights, _LEAST)
        self._table[1:] = ((1 - 2 * _SOFT) * rewards + 2 * _SOFT / log.n_values).reshape(n_contexts, size).T
        self._statistics = np.empty_like(self._table)
        self._n_episodes = int(log.counts.sum()) if len(log.counts) else len(log.offsets) - 1

    @property
    def weights(self) -> Float[Array, "M"]:
        return self._table[0] / self._table[0].sum()

    @property
    def rewards(self) -> Float[Array, "M A Z"]:
        return self._table[1:].T.reshape(-1, self._log.n_arms, self._log.n_values)

    @property
    def centre(self) -> Float[Array, "Y A"]:
        return self._arms.centre

    @property
    def inverse_strength(self) -> Float[Array, "Y A"]:
        return 1 / self._arms.strength

    def sweep(self, rng: np.random.Generator) -> None:
        log = self._log
        uniforms = rng.random(self._n_episodes)
        kernel("gibbs").categorical(log.codes, log.offsets, log.counts, self._table, uniforms, self._statistics)
        self._table[0] = np.maximum(rng.dirichlet(self._statistics[0] + 1.0), _LEAST)
        counts = self._statistics[1:].reshape(log.n_arms, log.n_values, -1)
        self._table[1:] = self._arms.draw(counts, rng).reshape(-1, counts.shape[2])


@dataclass(frozen=True, eq=False)
class NormalSteps:
    """A log with normal rewards, centred as its observations are."""

    arms: Shaped[Array, "S"]
    rewards: Float[Array, "S"]
    offsets: Integer[Array, "N1"]
    n_arms: int
    known_scale: float | None

    def chain(self, weights: Float[Array, "M"], rewards: Float[Array, "M A 1"]) -> GaussianChain:
        return GaussianChain(self, weights, rewards[:, :, 0])

    def prior(
        self, centre: Float[Array, "Y A"], strength: Float[Array, "Y A"]
    ) -> tuple[Float[Array, "A Y"], Float[Array, "A"]]:
        return centre.T, strength[0]


class GaussianChain:
    """A chain on normal rewards; the scale is drawn too unless it is known."""

    def __init__(self, log: NormalSteps, weights: Float[Array, "M"], means: Float[Array, "M A"]) -> None:
        self._log = log
        plays = np.bincount(log.arms, minlength=log.n_arms)
        own = np.bincount(log.arms, log.rewards, minlength=log.n_arms) / np.maximum(plays, 1)
        deviation = float(np.sqrt(np.mean((log.rewards - own[log.arms]) ** 2)))
        self.scale = log.known_scale or deviation
        self._arms = GaussianArms(deviation, float(own[plays > 0].min()), float(own[plays > 0].max()))
        self._table = np.concatenate([np.maximum(weights, _LEAST)[None], means.T])
        self._statistics = np.empty((1 + 2 * log.n_arms, len(weights)))
        self._squares = float(log.rewards @ log.rewards)

    @property
    def weights(self) -> Float[Array, "M"]:
        return self._table[0] / self._table[0].sum()

    @property
    def rewards(self) -> Float[Array, "M A 1"]:
        return self._table[1:].T[:, :, None]

    @property
    def centre(self) -> Float[Array, "1 A"]:
        return self._arms.centre[None]

    @property
    def inverse_strength(self) -> Float[Array, "1 A"]:
        return self._arms.variance[None] / self.scale**2

    def sweep(self, rng: np.random.Generator) -> None:
        log, n_arms = self._log, self._log.n_arms
        uniforms = rng.random(len(log.offsets) - 1)
        kernel("gibbs").gaussian(
            log.arms, log.rewards, log.offsets, self._table, self.scale, uniforms, self._statistics
        )  # fmt: skip
        self._table[0] = np.maximum(rng.dirichlet(self._statistics[0] + 1.0), _LEAST)
        plays, sums = self._statistics[1 : 1 + n_arms], self._statistics[1 + n_arms :]
        self._table[1:] = means = self._arms.draw(plays, sums, self.scale, rng)
        if log.known_scale is None:
            rest = self._squares - 2 * (means * sums).sum() + (means**2 * plays).sum()
            self.scale = float(np.sqrt(max(rest, 1e-300) / rng.chisquare(len(log.rewards))))


def run(
    log: CodedSteps | NormalSteps,
    weights: Float[Array, "M"],
    rewards: Float[Array, "M A Y"],
    *,
    rng: np.random.Generator,
    schedule: Schedule = Schedule(),  # noqa: B008
) -> Draws:
    """Short chains from the model (weights, rewards)."""
    kept: list[tuple[Array, Array, float]] = []
    centre, inverse = [], []
    for own in rng.spawn(schedule.chains):
        chain = log.chain(weights, rewards)
        for sweep in range(schedule.burn + schedule.keep * schedule.thin):
            chain.sweep(own)
            if sweep >= schedule.burn and (sweep - schedule.burn) % schedule.thin == schedule.thin - 1:
                kept.append((chain.weights, chain.rewards.copy(), chain.scale))
                centre.append(chain.centre.copy())
                inverse.append(chain.inverse_strength)
    drawn_weights, drawn_rewards, scales = zip(*kept, strict=True)
    prior = log.prior(np.mean(centre, axis=0), 1 / np.mean(inverse, axis=0))
    return Draws(np.stack(drawn_weights), np.stack(drawn_rewards), np.array(scales), *prior)
