"""What arms are like: laws of an arm's centre and of its spread over contexts, learned from all arms together.

Two values: the mean of an arm in a context is Beta(k c, k (1 - c)) with centre c and strength k = 1 / (s^2 c (1 - c)),
so that s is about the arm's spread over contexts in logits. Both c and s lie on grids, where what an arm paid has a
closed form (beta-binomial). The law of the centres is a beta law; the law of the spreads says that all arms are
alike, or that a share of *telling* arms stands among others. More values are split in halves again and again, and
every split has laws of its own. Normal rewards have a normal centre and a normal spread instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Float, Integer

SPREADS = np.array([0.1, 0.2, 0.4, 0.7, 1.1, 1.6, 2.4, 3.6])  # in logits; normal rewards: in their own deviation
_CENTRES = 1 / (1 + np.exp(-np.linspace(-5.5, 5.5, 31)))
_TILT = 0.0  # of the prior of the spread laws to wide ones; 2 was worse on sparse rewards, and no better elsewhere
_STRENGTHS = (0.2, 1e5)  # least and most pseudo-plays
_TABLE = 1024  # plays up to which rising factorials are looked up
_LEAST = 1e-9  # probabilities never fall below


@dataclass(frozen=True, eq=False)
class BetaGrid:
    """The grid of (centre, spread), J = G * K pairs with the spread running fastest, and the laws on it."""

    centre: Float[Array, "J"]
    strength: Float[Array, "J"]
    centre_laws: Float[Array, "B G"]
    spread_laws: Float[Array, "L K"]
    log_prior: Float[Array, "L"]  # of the spread laws
    rising: Float[Array, "3 n J"]  # logs of rising factorials of strength * centre, strength * (1 - centre), strength


@cache
def beta_grid() -> BetaGrid:
    """The grid that every split of values uses."""
    centre, spread = (axis.ravel() for axis in np.meshgrid(_CENTRES, SPREADS, indexing="ij"))
    strength = np.clip(1 / (spread**2 * centre * (1 - centre)), *_STRENGTHS)
    shapes = np.stack([strength * centre, strength * (1 - centre), strength])
    steps = np.log(shapes[:, None, :] + np.arange(_TABLE)[:, None])
    rising = np.concatenate([np.zeros((3, 1, len(centre))), np.cumsum(steps, axis=1)], axis=1)
    return BetaGrid(centre, strength, _beta_laws(_CENTRES), *spread_laws(), rising)


def _beta_laws(centres: Float[Array, "G"]) -> Float[Array, "B G"]:
    """Beta laws on the grid of centres, as densities in logits."""
    means, sizes = np.meshgrid(1 / (1 + np.exp(-np.linspace(-5, 5, 31))), 2.0 ** np.arange(-1, 7), indexing="ij")
    first, second = (means * sizes).reshape(-1, 1), ((1 - means) * sizes).reshape(-1, 1)
    logs = first * np.log(centres) + second * np.log(1 - centres)
    return np.exp(np.maximum(logs - np.logaddexp.reduce(logs, axis=1, keepdims=True), -80.0))


@cache
def spread_laws() -> tuple[Float[Array, "L K"], Float[Array, "L"]]:
    """Laws on the grid of spreads and their log prior: all arms alike, or a share of wide ones among narrow ones."""
    one = np.eye(len(SPREADS))
    two = [
        (1 - share) * one[narrow] + share * one[wide]
        for narrow in (0, 2, 3) for wide in (4, 5, 6, 7) for share in (0.12, 0.3, 0.6)
    ]  # fmt: skip
    laws = np.concatenate([one, two])
    prior = np.repeat([0.5 / len(one), 0.5 / len(two)], [len(one), len(two)]) * np.exp(_TILT * laws @ np.log(SPREADS))
    return np.maximum(laws, 1e-12), np.log(prior / prior.sum())


@dataclass(frozen=True)
class Split:
    """Values `first` to `middle` - 1 on one side, `middle` to `last` - 1 on the other."""

    first: int
    middle: int
    last: int


def splits(n_values: int) -> list[Split]:
    """The Z - 1 splits that lead from all values to each one; a split comes before those of its sides."""
    found, left = [], [(0, n_values)]
    while left:
        first, last = left.pop(0)
        if last - first > 1:
            middle = (first + last) // 2
            found.append(Split(first, middle, last))
            left += [(first, middle), (middle, last)]
    return found


class CategoricalArms:
    """The part of a Gibbs chain that knows arms with rewards on Z values: the two laws of every split."""

    def __init__(self, n_arms: int, n_values: int) -> None:
        self._grid, self._splits = beta_grid(), splits(n_values)
        self._laws = [np.array([5, len(self._grid.centre_laws) // 2]) for _ in self._splits]
        self.centre = np.empty((len(self._splits), n_arms))
        self.strength = np.empty((len(self._splits), n_arms))

    def draw(self, counts: Float[Array, "A Z M"], rng: np.random.Generator) -> Float[Array, "A Z M"]:
        """Laws, every arm's centre and strength, then probabilities, given how often each value was paid."""
        result = np.ones(counts.shape)
        for i, split in enumerate(self._splits):
            paid = counts[:, split.middle : split.last].sum(axis=1)
            missed = counts[:, split.first : split.middle].sum(axis=1)
            strength, centre = self._draw_split(i, paid, missed, rng)
            share = rng.beta(paid + (strength * centre)[:, None], missed + (strength * (1 - centre))[:, None])
            share = np.clip(share, _LEAST, 1 - _LEAST)
            result[:, split.middle : split.last] *= share[:, None]
            result[:, split.first : split.middle] *= 1 - share[:, None]
        return result

    def _draw_split(
        self, i: int, paid: Float[Array, "A M"], missed: Float[Array, "A M"], rng: np.random.Generator
    ) -> tuple[Float[Array, "A"], Float[Array, "A"]]:
        grid, kernels = self._grid, kernel("gibbs")
        evidence = np.zeros((len(paid), len(grid.centre)))
        first, second = grid.strength * grid.centre, grid.strength * (1 - grid.centre)
        kernels.beta_evidence(paid, missed, first, second, grid.rising, evidence)
        choice = np.empty(len(paid), np.int64)
        uniforms = rng.random(2 + len(paid))
        kernels.laws(
            evidence, grid.centre_laws, grid.spread_laws, grid.log_prior, self._laws[i], uniforms, choice
        )  # fmt: skip
        self.centre[i], self.strength[i] = grid.centre[choice], grid.strength[choice]
        return self.strength[i], self.centre[i]


def dirichlet(
    centre: Float[Array, "Y A"], strength: Float[Array, "Y A"], n_values: int
) -> tuple[Float[Array, "A Z"], Float[Array, "A"]]:
    """Mean and strength of the Dirichlet prior nearest to independent beta priors of the Z - 1 splits.

    It has the same means and the same variance, summed over the values; two values: the beta prior itself.
    """
    mean, square = np.ones((centre.shape[1], n_values)), np.ones((centre.shape[1], n_values))
    if n_values == 1:
        return mean, np.ones(len(mean))  # nothing can be paid but the one value
    for c, k, split in zip(centre, strength, splits(n_values), strict=True):
        spread = c * (1 - c) / (k + 1)
        for side, share in ((slice(split.middle, split.last), c), (slice(split.first, split.middle), 1 - c)):
            mean[:, side] *= share[:, None]
            square[:, side] *= (share**2 + spread)[:, None]
    variance = (square - mean**2).sum(axis=1)
    return mean, np.clip((mean * (1 - mean)).sum(axis=1) / variance - 1, *_STRENGTHS)


class GaussianArms:
    """The same for normal rewards: centres are normal over arms, means normal around the arm's centre."""

    def __init__(self, unit: float, low: float, high: float) -> None:
        """`unit` is the deviation that spreads are multiples of, `low` to `high` the range of the arms' means."""
        laws, self._log_prior = spread_laws()
        self._spreads, self._spread_laws = SPREADS * unit * 0.5, laws
        deviations = np.geomspace(0.03, 2.0, 7) * max(high - low, 0.1 * unit)
        grid = np.meshgrid(np.linspace(low, high, 21), deviations, indexing="ij")
        self._places, self._deviations = grid[0].ravel(), grid[1].ravel()
        self._state = [5, len(self._places) // 2]
        self.centre: Float[Array, "A"] = np.empty(0)
        self.variance: Float[Array, "A"] = np.empty(0)

    def draw(
        self, plays: Float[Array, "A M"], sums: Float[Array, "A M"], scale: float, rng: np.random.Generator
    ) -> Float[Array, "A M"]:
        """Laws, every arm's centre and spread, then means, given plays and sums of rewards."""
        logs, precision, centre = self._summaries(plays, sums, scale)  # each (A, K)
        logs = logs[:, :, None] + _normal(centre[:, :, None], self._places, self._deviations, precision[:, :, None])
        by_law = np.exp(np.maximum(logs - logs.max(axis=(1, 2), keepdims=True), -80.0))
        spread = self._draw_spread_law(by_law[:, :, self._state[1]], rng)
        scores = np.log(np.einsum("akb,k->ab", by_law, spread)).sum(axis=0)
        self._state[1] = law = int(_pick(scores[None], rng)[0])
        arms = np.arange(len(plays))
        k = _pick(np.log(by_law[:, :, law] * spread), rng)
        own = precision[arms, k]
        total = own + 1 / self._deviations[law] ** 2
        mean = (own * centre[arms, k] + self._places[law] / self._deviations[law] ** 2) / total
        self.centre = mean + rng.standard_normal(len(arms)) / np.sqrt(total)
        self.variance = self._spreads[k] ** 2
        weight = plays / scale**2 + 1 / self.variance[:, None]
        best = (sums / scale**2 + (self.centre / self.variance)[:, None]) / weight
        return best + rng.standard_normal(plays.shape) / np.sqrt(weight)

    def _draw_spread_law(self, by_spread: Float[Array, "A K"], rng: np.random.Generator) -> Float[Array, "K"]:
        scores = np.log(np.einsum("ak,lk->al", by_spread, self._spread_laws)).sum(axis=0)
        self._state[0] = int(_pick((self._log_prior + scores)[None], rng)[0])
        return self._spread_laws[self._state[0]]

    def _summaries(
        self, plays: Float[Array, "A M"], sums: Float[Array, "A M"], scale: float
    ) -> tuple[Float[Array, "A K"], Float[Array, "A K"], Float[Array, "A K"]]:
        """For every spread, what an arm's rewards say about its centre: a factor (log), a precision and a mean."""
        n, mean = plays[:, None, :], (sums / np.maximum(plays, 1))[:, None, :]
        excess = n * self._spreads[:, None] ** 2
        weight = n / (scale**2 + excess)
        precision = weight.sum(axis=2)
        centre = (weight * mean).sum(axis=2) / np.maximum(precision, 1e-300)
        rest = (weight * (mean - centre[:, :, None]) ** 2).sum(axis=2)
        return -0.5 * (np.log1p(excess / scale**2).sum(axis=2) + rest), precision, centre


def _normal(
    centre: Float[Array, "A K 1"],
    places: Float[Array, "B"],
    deviations: Float[Array, "B"],
    precision: Float[Array, "A K 1"],
) -> Float[Array, "A K B"]:
    """log of what a centre measured with some precision adds where centres are normal; no precision adds nothing."""
    ratio = precision * deviations**2
    return -0.5 * (np.log1p(ratio) + precision * (centre - places) ** 2 / (1 + ratio))


def _pick(logs: Float[Array, "n k"], rng: np.random.Generator) -> Integer[Array, "n"]:
    """One index per row, in proportion to exp(logs)."""
    cumulative = np.cumsum(np.exp(logs - logs.max(axis=1, keepdims=True)), axis=1)
    found = (cumulative <= rng.random((len(logs), 1)) * cumulative[:, -1:]).sum(axis=1)
    return np.minimum(found, logs.shape[1] - 1)
