"""What arms are like: laws of an arm's centre and of its spread over types, learned from all arms together.

Two values: the mean of an arm in a type is Beta(k c, k (1 - c)) with centre c and strength k = 1 / (s^2 c (1 - c)),
so that s is about the arm's spread over types in logits. Both c and s lie on grids, where what an arm paid has a
closed form (beta-binomial). The law of the centres is a beta law around a learned mean; its scale is learned too, down
to arms that are all alike, so that the best of many noisy arms is not believed. The law of the spreads says that all
arms spread alike, or that a share of *telling* arms stands among others. A log with one type has no spread over types:
its arms differ by the law of centres alone. More values are split in halves again and again; every split has laws of
its own, and a centre that moves with the split before. Normal rewards have a normal centre and a normal spread instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np

from .._kernel import kernel
from .._kernel.arrays import BetaGrid
from .._shapes import Array, Float, Integer

SPREADS = np.array([0.05, 0.2, 0.4, 0.7, 1.1, 1.6, 2.4, 3.6])  # in logits; normal rewards: in their own deviation
_POINTS = 45  # logits on the grid of centres
_MARGIN, _FARTHEST = 2.0, 12.0  # how far the grid reaches beyond the arms of the log, and the largest logit on it
_SCALES = np.geomspace(1 / 16, 2**1.5, 12)  # deviations, in logits, of the laws of centres
_PLACES, _BEND = 31, 4.0  # means of the laws of centres, and how much denser they lie in the middle
_SPREAD_POWER, _SCALE_POWER = -1.0, -0.5  # the prior falls with these powers of spread and scale: arms may be alike
CAUTIOUS = 0.0  # the power of the scale in claims about one type, which must allow for arms that are less alike
_NARROW = 0.1  # least spread of normal rewards
_GRIDS = 16  # grids kept: every split of every log has its own laws
_RISING = 8  # tables of rising factorials kept, of at most 9 MB: logs share them
_FEW = 16  # plays of an arm in a type whose chances are looked up whole: 0.8 MB, which the second-level cache holds
_ENDS = 2  # the ends of a grid are multiples of 1 / 2, outwards: else each log would need a table of its own
STRENGTHS = (0.2, 1e5)  # least and most pseudo-plays
_TABLES = (64, 1024)  # plays up to which rising factorials are looked up: of a small log, and at most
_STEEPEST = 2.0  # slope of one split's logit on that of the split before
_FRESH = 8  # types drawn of each arm to see how its mean reward varies, where there are more than two values
_FIRST = 10  # sweeps that learn slopes
_JUDGES = 500  # arms, about, that know the laws well enough: of more, a part draws them in each sweep
_FIRST_LAW = 5  # law of spreads from which a chain starts: all arms at 1.6


def freed(grid: BetaGrid, power: float) -> BetaGrid:
    """Return the grid with priors that do not fall with spread and scale; that of the scale goes with `power` here."""
    by_scale = grid.centre_prior.reshape(-1, len(_SCALES)) - power * np.log(_SCALES)
    spread_prior = spread_laws(0.0)[1] if grid.n_spreads > 1 else grid.spread_prior
    return grid._replace(centre_prior=by_scale.ravel(), spread_prior=spread_prior)


@lru_cache(maxsize=_GRIDS)
def beta_grid(
    low: float = -5.5,
    high: float = 5.5,
    middle: float = 0.0,
    *,
    alone: bool = False,
    table: int = _TABLES[1],
    power: float = _SCALE_POWER,
) -> BetaGrid:
    """Return the grid of centres from logit `low` to `high`, with laws of centres mostly near `middle`.

    With `alone` there is one type. Rising factorials are looked up to `table` plays. The prior of laws of centres goes
    with `power` of their scale.
    """
    logits, centre, strength, rising, few = _pairs(low, high, alone, table)
    laws, law_prior = (np.ones((1, 1)), np.zeros(1)) if alone else spread_laws(_SPREAD_POWER)
    step = float(logits[1] - logits[0])
    return BetaGrid(step, centre, strength, *_centre_laws(logits, middle, power), laws, law_prior, rising, few)


@lru_cache(maxsize=_RISING)
def _pairs(
    low: float, high: float, alone: bool, table: int
) -> tuple[Float[Array, "G"], Float[Array, "J"], Float[Array, "J"], Float[Array, "3 n J"], Float[Array, "p p J"]]:
    """Return logits of the centres, and of all pairs centre, strength, rising factorials, and chances of few plays."""
    logits = np.linspace(low, high, _POINTS)
    spreads = SPREADS[:1] if alone else SPREADS
    centre, spread = (axis.ravel() for axis in np.meshgrid(1 / (1 + np.exp(-logits)), spreads, indexing="ij"))
    strength = np.clip(1 / (spread**2 * centre * (1 - centre)), *STRENGTHS)
    shapes = np.stack([strength * centre, strength * (1 - centre), strength])
    rising = np.zeros((3, 1 + table, len(centre)))
    np.log(shapes[:, None, :] + np.arange(table)[:, None], out=rising[:, 1:])
    np.cumsum(rising, axis=1, out=rising)
    plays, paid = np.meshgrid(np.arange(_FEW + 1), np.arange(_FEW + 1), indexing="ij")
    few = np.exp(rising[0, paid] + rising[1, np.maximum(plays - paid, 0)] - rising[2, plays])
    return logits, centre, strength, rising, few


def grid_of(paid: Float[Array, "A"], missed: Float[Array, "A"], n_types: int, power: float = _SCALE_POWER) -> BetaGrid:
    """The grid for arms that paid and missed so often, over all types together.

    It reaches `_MARGIN` beyond the arms, each moved inwards by a standard error, so that a rare arm that paid nothing
    does not stretch it.
    """
    played, alone = paid + missed > 0, n_types == 1
    if not played.any():
        return beta_grid(alone=alone, power=power)
    paid, missed = paid[played], missed[played]
    logit, error = _logits(paid, missed), np.sqrt(1 / (paid + 0.5) + 1 / (missed + 0.5))
    pooled = float(_logits(paid.sum(keepdims=True), missed.sum(keepdims=True))[0])
    middle = _random_effects_mean(logit, error**2, pooled)
    low = min((logit + error).min(), middle, pooled) - _MARGIN
    high = max((logit - error).max(), middle, pooled) + _MARGIN
    table = int(np.clip(2 ** np.ceil(np.log2((paid + missed).max())), *_TABLES))  # all that the log needs
    ends = float(np.floor(_ENDS * low) / _ENDS), float(np.ceil(_ENDS * high) / _ENDS)
    return beta_grid(*ends, round(middle, 3), alone=alone, table=table, power=power)


def _logits(paid: Float[Array, "A"], missed: Float[Array, "A"]) -> Float[Array, "A"]:
    """Logits of shares, with half a play on either side; none so far out that the grid could not reach beyond it."""
    most = _FARTHEST - _MARGIN
    return np.clip(np.log((paid + 0.5) / (missed + 0.5)), -most, most)


def _random_effects_mean(logit: Float[Array, "A"], variance: Float[Array, "A"], pooled: float) -> float:
    """Mean of the arms' logits (DerSimonian and Laird 1986), or the pooled logit where arms differ only by chance."""
    weight = 1 / variance
    total = weight.sum()
    mean = (weight * logit).sum() / total
    free = total - (weight**2).sum() / total
    excess = ((weight * (logit - mean) ** 2).sum() - len(weight) + 1) / max(free, 1e-12)
    if excess <= 0 or len(logit) == 1:
        return pooled
    weight = 1 / (variance + excess)
    return float((weight * logit).sum() / weight.sum())


def _centre_laws(
    logits: Float[Array, "G"], middle: float, power: float
) -> tuple[Float[Array, "B G"], Float[Array, "B"]]:
    """Beta laws on the grid of centres, as densities in logits, and their log prior.

    A law has its mean at a place and the deviation `scale` in logits, so its size is 1 / (scale^2 m (1 - m)). The prior
    is flat in the place and goes with `power` of the scale.
    """
    bent = np.sinh(_BEND * np.linspace(-1, 1, _PLACES)) / np.sinh(_BEND)
    places = middle + bent * np.where(bent < 0, middle - logits[0], logits[-1] - middle)
    means, scales = np.meshgrid(1 / (1 + np.exp(-places)), _SCALES, indexing="ij")
    prior = np.log(np.gradient(places))[:, None] + power * np.log(_SCALES)
    size = 1 / (scales**2 * means * (1 - means))
    first, second = (means * size).reshape(-1, 1), ((1 - means) * size).reshape(-1, 1)
    logs = -first * np.logaddexp(0, -logits) - second * np.logaddexp(0, logits)
    laws = np.exp(np.maximum(logs - np.logaddexp.reduce(logs, axis=1, keepdims=True), -80.0))
    return laws, (prior - prior.max()).ravel()


@cache
def spread_laws(power: float) -> tuple[Float[Array, "L K"], Float[Array, "L"]]:
    """Laws on the grid of spreads and their log prior: all arms alike, or a share of wide ones among narrow ones.

    The prior goes with `power` of a law's spread (root mean square).
    """
    one = np.eye(len(SPREADS))
    two = [
        (1 - share) * one[narrow] + share * one[wide]
        for narrow in (0, 2, 3) for wide in (4, 5, 6, 7) for share in (0.12, 0.3, 0.6)
    ]  # fmt: skip
    laws = np.concatenate([one, two])
    prior = np.repeat([0.5 / len(one), 0.5 / len(two)], [len(one), len(two)]) * (laws @ SPREADS**2) ** (power / 2)
    return np.maximum(laws, 1e-12), np.log(prior / prior.sum())


@dataclass(frozen=True)
class Split:
    """Values `first` to `middle` - 1 on one side, `middle` to `last` - 1 on the other."""

    first: int
    middle: int
    last: int

    def counts(self, counts: Float[Array, "A Z M"]) -> tuple[Float[Array, "A M"], Float[Array, "A M"]]:
        """How often a value of the upper and of the lower side was paid."""
        return counts[:, self.middle : self.last].sum(axis=1), counts[:, self.first : self.middle].sum(axis=1)


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
    """The part of a Gibbs chain that knows arms with rewards on Z values: the two laws of every split.

    Arms that pay more at one split pay more at the next ones: the centre of a split moves with the share of the split
    before it, by a slope that is learned in the first sweeps. Without this, good arms would be taken for worse ones.
    """

    def __init__(self, n_arms: int, values: Float[Array, "Z"], *, cautious: bool = False) -> None:
        self._splits, self._values = splits(len(values)), values
        self._power = CAUTIOUS if cautious else _SCALE_POWER
        self._grids: list[BetaGrid] = []  # one for each split, placed by the first counts
        self._laws: list[Integer[Array, "2"]] = []  # law of spreads and law of centres in force
        self._parents = [_parent(self._splits, split) for split in self._splits]
        self._ends = np.array([(one.first, one.middle, one.last) for one in self._splits], np.int64).reshape(-1, 3)
        self._slopes = np.zeros(len(self._splits))
        self._choice = np.zeros((len(self._splits), n_arms), np.int64)  # Chosen pair of centre and spread.
        self._sweep = -1

    def draw(self, counts: Float[Array, "A Z M"], rng: np.random.Generator) -> Float[Array, "A Z M"]:
        """Laws, every arm's centre and strength, then probabilities, given how often each value was paid."""
        self._sweep += 1
        if not self._grids:
            self._place(counts)
        kernels, below = kernel("gibbs"), np.zeros((counts.shape[1] + 1, len(counts), counts.shape[2]))
        np.cumsum(counts.swapaxes(0, 1), axis=0, out=below[1:])
        shares, sides = np.empty((len(self._splits), len(counts), counts.shape[2])), []
        for i, split in enumerate(self._splits):
            sides.append((below[split.last] - below[split.middle], below[split.middle] - below[split.first]))
            parent, (paid, missed) = self._parents[i], sides[i]
            if self._sweep < _FIRST and parent is not None:
                self._slopes[i] = kernels.slope(*sides[parent], paid, missed, _STEEPEST)
            kernels.draw_split(
                self._grids[i], paid, missed, shares[i if parent is None else parent], self._slopes[i],
                self._judges(i, paid + missed), self._laws[i], self._choice[i], shares[i], rng,
            )  # fmt: skip
        return self._joined(shares)

    def _place(self, counts: Float[Array, "A Z M"]) -> None:
        """Grids where the arms of the log lie, and laws from which the chain starts."""
        pooled = [split.counts(counts.sum(axis=2, keepdims=True)) for split in self._splits]
        self._grids = [grid_of(paid[:, 0], missed[:, 0], counts.shape[2], self._power) for paid, missed in pooled]
        self._laws = [
            np.array([min(_FIRST_LAW, len(grid.spread_laws) - 1), len(grid.centre_laws) // 2]) for grid in self._grids
        ]

    def free(self) -> None:
        """Let the priors of the laws fall no longer with spread and scale."""
        self._grids = [freed(grid, self._power) for grid in self._grids]
        self._power = 0.0

    def likely(self, rng: np.random.Generator) -> tuple[Float[Array, "A Z"], Float[Array, "A"]]:
        """Mean and inverse strength of the Dirichlet prior nearest to what is known of each arm now.

        Two values: the beta prior itself. Of more values, the strength that would give the mean reward the variance
        that it has over types is low, because the values move together; the one that would give it to the
        probabilities is high. Either alone fits worse than the geometric mean of the two.
        """
        if len(self._values) == 2:
            centre, strength = self._grids[0].centre[self._choice[0]], self._grids[0].strength[self._choice[0]]
            return np.stack([1 - centre, centre], axis=1), 1 / strength
        nothing = np.zeros((self._choice.shape[1], _FRESH))
        shares = np.empty((len(self._splits), *nothing.shape))
        for i, parent in enumerate(self._parents):
            kernel("gibbs").draw_shares(
                self._grids[i], nothing, nothing, shares[i if parent is None else parent], self._slopes[i],
                self._choice[i], shares[i], rng,
            )  # fmt: skip
        fresh = self._joined(shares)
        mean = fresh.mean(axis=2)
        by_value = _inverse(fresh.var(axis=2, ddof=1).sum(axis=1), (mean * (1 - mean)).sum(axis=1))
        rewards = np.einsum("azm,z->am", fresh, self._values)
        by_mean = _inverse(rewards.var(axis=1, ddof=1), mean @ self._values**2 - (mean @ self._values) ** 2)
        return mean, np.sqrt(by_value * by_mean)

    def _joined(self, shares: Float[Array, "S A M"]) -> Float[Array, "A Z M"]:
        """Return the probability of every value: the product of its sides' shares at all splits."""
        result = np.empty((shares.shape[1], len(self._values), shares.shape[2]))
        kernel("gibbs").join(self._ends, shares, result)
        return result

    def _judges(self, i: int, plays: Float[Array, "A M"]) -> Integer[Array, "j"]:
        """Return the arms by which the laws of a split are drawn: those that have plays there, or none in this sweep.

        Arms without plays say nothing about laws. Laws of many splits of many arms are drawn in turn, because they
        move less from sweep to sweep than the rewards that are drawn from them, and cost most of a sweep.
        """
        every = max(len(plays) * len(self._splits) // _JUDGES, 1) if len(self._splits) > 1 else 1
        if (self._sweep + i) % min(every, len(self._splits)):
            return np.arange(0)
        found = judges(len(plays), self._sweep // every)
        return found[plays[found].any(axis=1)]


def judges(n_arms: int, sweep: int) -> Integer[Array, "j"]:
    """The arms by which the laws are drawn in a sweep: all, or of many arms a part, another one in every sweep.

    Examples:
        >>> len(judges(700, 0)), judges(2000, 5)[:3]
        (700, array([1, 5, 9]))
    """
    every = max(n_arms // _JUDGES, 1)
    return np.arange(sweep % every, n_arms, every)


def _inverse(variance: Float[Array, "A"], most: Float[Array, "A"]) -> Float[Array, "A"]:
    """One over the strength of a Dirichlet law under which something has `variance`; `most` is that of strength 0."""
    return np.maximum(variance / np.maximum(most - variance, 1e-3 * most + 1e-300), 1 / STRENGTHS[1])


def _parent(known: list[Split], split: Split) -> int | None:
    """The split of which `split` divides a side."""
    inside = [
        i for i, other in enumerate(known) if other != split and other.first <= split.first < split.last <= other.last
    ]
    return inside[-1] if inside else None


class GaussianArms:
    """The same for normal rewards: centres are normal over arms, means normal around the arm's centre."""

    def __init__(self, unit: float, low: float, high: float) -> None:
        """`unit` is the deviation that spreads are multiples of, `low` to `high` the range of the arms' means."""
        self._spread_laws, self._log_prior = spread_laws(0.0)
        self._spreads = np.maximum(SPREADS, _NARROW) * unit * 0.5
        deviations = np.geomspace(0.03, 2.0, 7) * max(high - low, 0.1 * unit)
        grid = np.meshgrid(np.linspace(low, high, 21), deviations, indexing="ij")
        self._places, self._deviations = grid[0].ravel(), grid[1].ravel()
        self._state = [_FIRST_LAW, len(self._places) // 2]
        self.centre: Float[Array, "A"] = np.empty(0)
        self.variance: Float[Array, "A"] = np.empty(0)

    def draw(
        self, plays: Float[Array, "A M"], sums: Float[Array, "A M"], scale: float, rng: np.random.Generator
    ) -> Float[Array, "A M"]:
        """Laws, every arm's centre and spread, then means, given plays and sums of rewards."""
        self._draw_laws(plays, sums, scale, rng)
        weight = plays / scale**2 + 1 / self.variance[:, None]
        best = (sums / scale**2 + (self.centre / self.variance)[:, None]) / weight
        return best + rng.standard_normal(plays.shape) / np.sqrt(weight)

    def _draw_laws(
        self, plays: Float[Array, "A M"], sums: Float[Array, "A M"], scale: float, rng: np.random.Generator
    ) -> None:
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
