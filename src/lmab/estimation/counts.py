"""Counts with Poisson laws, and all that estimation asks of them.

Counts are coded like values: one code per (arm, count that occurs). A model holds one mean per arm and type, from which
the rows of its table follow; what the kernel adds up in these rows is summed to plays and counts of each arm. So counts
run through the kernels of categorical rewards, in memory, in files and on a GPU. Where codes also say what came after
the step (`letters`), a model has one more row for each arm and place (0, 1, 2 and all larger counts): the chance to
leave after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Bool, Float, Integer
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..errors import InvalidArgument
from ..model import belief
from ..model.bandit import LatentBandit
from ..model.counts import Counts, require_counts
from ..parallel import SERIAL, Passes
from . import leave_rates, low_rank
from .information import Coordinates, Information, within_support
from .log import (
    LETTERS,
    Chain,
    CodeScores,
    Prior,
    SessionArms,
    count_parameters,
    information_of_codes,
    normalised_weights,
)
from .traits.surface import Points, Surface, TraitArms

MOST = 1000  # Distinct counts up to which each has rows of its own in a table.
_IMPOSSIBLE = 1e-300  # Probabilities never fall below this, so that no count is impossible.
_LEAST = 1e-4  # Part of an arm's average that means of other fits are moved to, where a mean of 0 would exclude counts.
_SHRINK = 0.02  # An extrapolation may take a weight or a mean down to this part of what it was.
_SMOOTHING = 5.0  # Pseudo-plays at the arm's mean in a model made of clusters.
_SHAPE = 2.0  # Shape of the gamma law that means of a random model are drawn from.
_SOFTENING = 0.02  # Part of the arm's mean in a softened model.
_LEAST_WEIGHT = 0.02  # Least weight of a cluster.
_NO_WEIGHT = 1e-9  # A weight never falls below this in a chain.
_NO_MEAN = 1e-6  # Part of the average mean that a mean never falls below in a chain, and that is at the boundary.
_HALVINGS = 12  # Halvings of a Newton step that would lower the likelihood.
_STEEPEST = 30.0  # Logarithms of means beyond are cut.
_LEAST_UNIT = 0.05  # Mean of an arm, below which covariances are not divided by it.
_SPREADS = np.array([0.05, 0.1, 0.2, 0.4, 0.7, 1.1, 1.6])  # Spreads of an arm's mean over types, as parts of it.
_CENTRES = 41  # Places of the grid of arms' centres, in logarithms.
_DEVIATIONS = np.geomspace(0.05, 3.0, 9)  # Deviations of the arms' centres, in logarithms.
_SHAPES = np.concatenate([np.geomspace(0.05, 500, 25), [1e8]])  # Shapes of the gamma laws of sessions; the last: none.
_STEPS = 100_000  # Steps of a larger log that are looked at, in whole sessions.
_PLACES = 4  # Counts after which leaving is told apart: 0, 1, 2, and all larger ones.
_NOISE = 1.63  # Over the root of the number of rewards: what the distance reaches by chance in 1 of 100 logs.
_DISTANCE = 0.04  # Distance between the two distributions of counts above which promises may be wrong.


@dataclass(frozen=True, eq=False)
class CountsLog(leave_rates.LeavingLog):
    """A log of counts."""

    family = Counts.family

    @classmethod
    def of(cls, sessions: Sessions | Packed, listed: Float[Array, "Z"]) -> CountsLog:
        """The log in codes of the counts that occur."""
        require_counts(listed)
        if len(listed) > MOST:
            raise InvalidArgument(
                f"rewards must take at most {MOST} different values to be counts, got {len(listed)}: "
                f"rewards='binned' cuts amounts into a few values"
            )
        return cls.encode(sessions, listed)

    @property
    def n_own_rows(self) -> int:
        return self.n_arms * (1 + (self.n_places if self.letters else 0))

    @property
    def n_features(self) -> int:
        return self.n_arms

    def n_parameters(self, n_types: int, rank: int | None = None) -> int:
        leaving = n_types * int((self.seen_after.sum(axis=0) > 0).sum()) if self.letters else 0
        return count_parameters(n_types, int(self.played.sum()), rank) + leaving

    @cached_property
    def plays(self) -> Float[Array, "A"]:
        return self.cells.sum(axis=1)

    @cached_property
    def overall(self) -> float:
        """The mean of all counts; above 0, so that logarithms are finite."""
        return float(max(self.cells.sum(axis=0) @ self.listed / self.cells.sum(), _NO_MEAN))

    @cached_property
    def centres(self) -> Float[Array, "A"]:
        """The mean of each arm over all types; an arm never played gets that of all arms."""
        return np.where(self.played, self.cells @ self.listed / np.maximum(self.plays, 1), self.overall)

    def prior_of_rewards(self, strength: float) -> Prior:
        return Prior.equal(self.centres, strength)

    # Who leaves: after a count of 0, 1, 2, and after all larger ones.

    @property
    def n_places(self) -> int:
        return int(min(self.listed.max(), _PLACES - 1)) + 1

    @property
    def _places(self) -> Integer[Array, "Z"]:
        """The place of each listed count."""
        return np.minimum(self.listed, self.n_places - 1).astype(np.int64)

    def _by_place(self, cells: Float[Array, "*n V p"]) -> Float[Array, "*n Z p"]:
        """Sums over the counts of each place."""
        found = np.zeros((*cells.shape[:-2], self.n_places, cells.shape[-1]))
        for place, count in zip(self._places.tolist(), np.moveaxis(cells, -2, 0), strict=True):
            found[..., place, :] += count
        return found

    @cached_property
    def seen_after(self) -> Float[Array, "L A Z"]:
        return self._by_place(leave_rates.letter_counts(self.sessions, self.listed)[..., None])[..., 0]

    def after_places(self, statistics: Float[Array, "R Q P"]) -> Float[Array, "R L A Z P"]:
        first, shape = 1 + 2 * self.n_arms, (LETTERS, self.n_arms, self.n_places)
        return statistics[:, first : first + int(np.prod(shape))].reshape(len(statistics), *shape, -1)

    def leaving_of(self, models: Float[Array, "R K P"]) -> Float[Array, "R A Z P"]:
        """The rows of the chances to leave, as a view."""
        shape = (len(models), self.n_arms, self.n_places, models.shape[2])
        return models[:, 1 + self.n_arms : 1 + self.n_own_rows].reshape(shape)

    # Models and bandits: rows 1 to A of a model hold the means.

    def _empty(self, n_models: int, n_types: int) -> Float[Array, "R K P"]:
        models = self.empty_models(n_models, 1 + self.n_own_rows + self.n_beside, n_types)
        if self.letters:
            self.leaving_of(models)[:] = self.shown[..., None]
        return models

    def means_of(self, models: Float[Array, "*R K m"]) -> Float[Array, "*R A m"]:
        """The rows of the means, as a view."""
        return models[..., 1 : 1 + self.n_arms, :]

    def pack(self, bandit: LatentBandit) -> Float[Array, "1 K P"]:
        model = self._empty(1, bandit.n_types)
        model[0, 0, : bandit.n_types] = bandit.weights
        self.means_of(model)[0, :, : bandit.n_types] = counts(bandit).means.T
        if self.letters and bandit.leaving is not None:
            own = bandit.leaving[:, :, np.minimum(np.arange(self.n_places), bandit.leaving.shape[2] - 1)]
            self.leaving_of(model)[0, ..., : bandit.n_types] = np.moveaxis(own, 0, 2)
        return model

    def bandit(self, model: Float[Array, "K P"], n_types: int) -> LatentBandit:
        weights = model[0, :n_types] / model[0, :n_types].sum()
        leaving = np.moveaxis(self.leaving_of(model[None])[0, ..., :n_types], 2, 0) if self.letters else None
        return LatentBandit(weights, Counts(self.means_of(model)[:, :n_types].T), self.sessions.arm_labels, leaving)

    def from_moments(self, weights: Float[Array, "M"], vectors: Float[Array, "M D"]) -> LatentBandit:
        """Means are raised to a small part of the arm's own."""
        means = np.where(self.played, np.maximum(vectors, _LEAST * self.centres), self.centres)
        return LatentBandit(weights, Counts(means), self.sessions.arm_labels)

    def possible(self, bandit: LatentBandit) -> LatentBandit:
        means, leaving = np.maximum(counts(bandit).means, _LEAST * self.overall), None
        if self.letters and bandit.leaving is not None:
            leaving = np.clip(bandit.leaving, _LEAST, 1 - _LEAST)
        return LatentBandit(bandit.weights, Counts(means), leaving=leaving, step_effects=bandit.step_effects)

    # The EM map: expected plays and counts, and their means.

    @cached_property
    def _log_factorials(self) -> Float[Array, "Z"]:
        from scipy.special import gammaln

        return np.asarray(gammaln(self.listed + 1))

    def probabilities(self, means: Float[Array, "*R m"]) -> Float[Array, "*R Z m"]:
        """The probability of every listed count under each mean."""
        from scipy.special import xlogy

        found = means[..., None, :]
        logs = xlogy(self.listed[:, None], found) - found - self._log_factorials[:, None]
        return np.maximum(np.exp(logs), _IMPOSSIBLE)

    def tables(self, models: Float[Array, "R K P"]) -> Float[Array, "R D P"]:
        """The models as tables, a row per code."""
        result = np.empty((len(models), self.n_sums, models.shape[2]))
        result[:, 0], result[:, 1 + self.n_own :] = models[:, 0], models[:, 1 + self.n_own_rows :]
        own = self.by_arm(result)
        own[:] = self.probabilities(self.means_of(models))
        if self.letters:
            chance, rows = self.leaving_of(models)[:, :, self._places], self.by_letter(result)
            rows[:, leave_rates.GOES_ON], rows[:, leave_rates.LEFT] = own * (1 - chance), own * chance
        return result

    def summaries(self, sums: Float[Array, "R D P"]) -> Float[Array, "R Q P"]:
        """Sessions, plays, counts, what came after steps, and masses of codes beside the arms', from sums of rows."""
        after = [self._by_place(self.by_letter(sums)).reshape(len(sums), -1, sums.shape[2])] if self.letters else []
        return np.concatenate([sums[:, :1], *self.plays_and_sums(sums), *after, sums[:, 1 + self.n_own :]], axis=1)

    def plays_and_sums(self, sums: Float[Array, "R D P"]) -> tuple[Float[Array, "R A P"], Float[Array, "R A P"]]:
        """How often each arm was played, and how much it counted, from what is summed in the table's rows."""
        cells = self.counted(sums)
        return cells.sum(axis=2), np.einsum("z,razp->rap", self.listed, cells)

    def expectation(
        self, models: Float[Array, "R K P"], passes: Passes
    ) -> tuple[Float[Array, "R Q P"], Float[Array, "R"]]:
        sums, logs = super().expectation(self.tables(models), passes)
        return self.summaries(sums), logs

    def _with_prior(
        self, statistics: Float[Array, "R Q P"], prior: Prior
    ) -> tuple[Float[Array, "R A P"], Float[Array, "R A P"]]:
        """Plays and counts, with those of the prior."""
        n = self.n_arms
        plays = statistics[:, 1 : 1 + n] + prior.strength[:, None]
        return plays, statistics[:, 1 + n : 1 + 2 * n] + (prior.strength * prior.centre)[:, None]

    def maximise(
        self, statistics: Float[Array, "R Q P"], models: Float[Array, "R K P"], prior: Prior
    ) -> Float[Array, "R K P"]:
        plays, sums = self._with_prior(statistics, prior)
        result = models.copy()
        result[:, 0] = normalised_weights(statistics[:, 0])
        np.divide(sums, plays, out=self.means_of(result), where=plays > 0)
        if self.letters:
            self.leaving_of(result)[:] = self._best_leaving(statistics, prior)
        return result

    def log_prior(self, models: Float[Array, "R K M"], prior: Prior) -> Float[Array, "R"]:
        from scipy.special import xlogy

        means, weight = self.means_of(models), prior.strength
        found = np.einsum("a,ram->r", weight, xlogy(prior.centre[:, None], means) - means)
        if self.letters and prior.leaving is not None:
            found = found + self._log_leaving(self.leaving_of(models), prior)
        return found

    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        trial = np.maximum(trial, _SHRINK * near)
        trial[:, 0] = normalised_weights(trial[:, 0])
        if self.letters:
            chance = self.leaving_of(trial)
            np.minimum(chance, 1 - _SHRINK * (1 - self.leaving_of(near)), out=chance)
        return trial

    # Means of a given rank over the types.

    def project(self, model: Float[Array, "K P"], prior: Prior, n_types: int, rank: int) -> Float[Array, "K P"]:
        result = model.copy()
        self.means_of(result)[:, :n_types] = low_rank.positive(self._nearest(model, n_types, rank)).table
        return result

    def improve(
        self, statistics: Float[Array, "Q P"], model: Float[Array, "K P"], prior: Prior, n_types: int, rank: int
    ) -> Float[Array, "K P"]:
        plays, sums = (part[0, :, :n_types] for part in self._with_prior(statistics[None], prior))
        result = model.copy()
        result[0] = normalised_weights(statistics[None, 0])[0]
        fit = _better_means(self._nearest(model, n_types, rank), plays, sums)
        self.means_of(result)[:, :n_types] = np.maximum(fit.table, 0.0)  # rounding errors at 0
        if self.letters:
            self.leaving_of(result[None])[:] = self._best_leaving(statistics[None], prior)
        return result

    def _nearest(self, model: Float[Array, "K P"], n_types: int, rank: int) -> low_rank.LowRank:
        return low_rank.project(self.means_of(model)[:, :n_types], model[0, :n_types], rank)

    # Models that EM may start from.

    def random_models(self, n_models: int, n_types: int, rng: np.random.Generator) -> Float[Array, "R K P"]:
        models, shape = self._empty(n_models, n_types), (n_models, self.n_arms, n_types)
        draws = rng.gamma(_SHAPE, 1 / _SHAPE, size=shape)
        self.means_of(models)[..., :n_types] = self.centres[:, None] * np.where(self.played[:, None], draws, 1.0)
        if self.letters:
            self.leaving_of(models)[:] = self._random_leaving(n_models, models.shape[2], rng)
        return models

    def clustered(self, labels: Integer[Array, "n"], n_types: int) -> Float[Array, "1 K P"]:
        empty = self._empty(1, n_types)
        sums = np.zeros((1, self.n_sums, empty.shape[2]))
        scale, offsets = self.multiplicity[: len(labels)], self.offsets[: len(labels) + 1]
        np.add.at(sums[0, 0], labels, scale)
        steps, lengths = self.codes[: offsets[-1]].astype(np.int64), np.diff(offsets)
        np.add.at(sums[0, 1:], (steps, np.repeat(labels, lengths)), np.repeat(scale, lengths))
        model = self.maximise(self.summaries(sums), empty, self.prior(_SMOOTHING))
        model[:, 0, :n_types] = normalised_weights(model[:, 0, :n_types], _LEAST_WEIGHT)
        return model

    def soften(self, models: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        softer = models.copy()
        self.means_of(softer)[:] = (1 - _SOFTENING) * self.means_of(models) + _SOFTENING * self.centres[:, None]
        if self.letters:
            own = self.leaving_of(softer)
            own[:] = (1 - _SOFTENING) * own + _SOFTENING * self.shown[..., None]
        return softer

    def _residuals(self) -> tuple[Integer[Array, "T"], Float[Array, "T"]]:
        """The arm of every step, and its count less the mean of the arm."""
        arms, places = np.divmod(self.own.codes.astype(np.int64) % self.n_cells, len(self.listed))
        return arms, self.listed[places] - self.centres[arms]

    def features(self) -> tuple[Any, Float[Array, "D"]]:
        from scipy.sparse import csr_array

        arms, residuals = self._residuals()
        squares = (self.cells * (self.listed - self.centres[:, None]) ** 2).sum(axis=1)
        return csr_array((residuals, arms, self.own.offsets), shape=(self.n_distinct, self.n_arms)), squares

    def centre(self, features: Float[Array, "D k"]) -> Float[Array, "D k"]:
        return features  # counts are centred already

    # Parts that have a life of their own.

    def chain(self, bandit: LatentBandit) -> CountsChain:
        return CountsChain(self, bandit)

    @property
    def surface(self) -> CountsSurface:
        return CountsSurface(self)

    def information(self, bandit: LatentBandit, prior: Prior, passes: Passes = SERIAL) -> Information:
        """The information about logits of the weights and logarithms of the means."""
        weights, rewards = bandit.weights, counts(bandit)
        arms, place = np.divmod(np.arange(self.n_own) % self.n_cells, len(self.listed))
        means, values = rewards.means.T[arms], self.listed[place]  # (D, M), (D,)
        with np.errstate(divide="ignore"):
            logs = np.log(self.tables(self.pack(bandit))[0, 1 : 1 + self.n_own, : bandit.n_types])
        scores = CodeScores(arms, logs, (values[:, None] - means)[:, :, None], rewards.means.T[:, :, None, None])
        matrix = information_of_codes(self, weights, scores, prior, passes)
        least = _NO_MEAN * self.overall
        return Information(matrix, CountsCoordinates(weights, rewards, self.played, rewards.means > least))

    def unrelated(self, test: Sessions) -> Float[Array, "N"]:
        """Each arm's mean is drawn from a gamma law, anew in every session."""
        train = self.sessions.load()
        plays = np.bincount(train.arms, minlength=train.n_arms)
        centres = (np.bincount(train.arms, train.rewards, train.n_arms) + self.overall) / (plays + 1)
        arm = SessionArms.of(train).arm
        fits = np.stack([np.bincount(arm, _gamma_poisson(train, centres, one), train.n_arms) for one in _SHAPES])
        pairs = SessionArms.of(test)
        best = _SHAPES[fits.argmax(axis=0)]
        return np.bincount(pairs.session, _gamma_poisson(test, centres, best[pairs.arm]), len(test))

    def misfit(self, bandit: LatentBandit) -> list[str]:
        """Counts that vary more, or less, than Poisson's law allows, given the session before each step."""
        some = self.sessions[:: max(1, -(-self.sessions.n_steps // _STEPS))]
        distance = _distance(bandit, some)
        if len(self.listed) == 1 or distance <= _DISTANCE + _NOISE / np.sqrt(some.n_steps):
            return []
        return [
            f"Poisson's law does not fit the counts: the shares of rewards up to a count differ by up to "
            f"{distance:.0%} from the model's (up to {_DISTANCE:.0%} is no matter): promises made from this model may "
            f"be wrong; pass rewards='binned'"
        ]


def counts(bandit: LatentBandit) -> Counts:
    """The bandit's rewards, which must be of this family."""
    if not isinstance(bandit.rewards, Counts):
        raise InvalidArgument(f"bandit must have counts as rewards, as this log was read, got {bandit}")
    return bandit.rewards


def _better_means(fit: low_rank.LowRank, plays: Float[Array, "A M"], sums: Float[Array, "A M"]) -> low_rank.LowRank:
    """More of sum(sums * log(table) - plays * table): coordinates, then loadings, by one Newton step each."""
    directions, table = fit.loadings[:, 1:], fit.table
    slope, bend = _slopes(table, plays, sums)
    step = low_rank.solve(np.einsum("ai,aj,am->mij", directions, directions, bend), directions.T @ slope)
    scores = fit.scores.copy()
    scores[:, 1:] += _longest(table, directions @ step.T, plays, sums, axis=0)[:, None] * step
    table = fit.loadings @ scores.T
    slope, bend = _slopes(table, plays, sums)
    step = low_rank.solve(np.einsum("mi,mj,am->aij", scores, scores, bend), scores.T @ slope.T)
    length = _longest(table, step @ scores.T, plays, sums, axis=1)
    return low_rank.LowRank(fit.loadings + length[:, None] * step, scores)


def _slopes(
    table: Float[Array, "A M"], plays: Float[Array, "A M"], sums: Float[Array, "A M"]
) -> tuple[Float[Array, "A M"], Float[Array, "A M"]]:
    """First derivatives in the table, and minus the second ones."""
    means = np.maximum(table, _IMPOSSIBLE**0.25)
    return sums / means - plays, sums / means**2


def _longest(
    table: Float[Array, "A M"],
    moves: Float[Array, "A M"],
    plays: Float[Array, "A M"],
    sums: Float[Array, "A M"],
    axis: int,
) -> Float[Array, "n"]:
    """The largest of 1, 1/2, ... of each move that keeps means positive and the likelihood from falling; else 0."""
    from scipy.special import xlogy

    def value(length: Float[Array, "n"]) -> Float[Array, "n"]:
        means = table + np.expand_dims(length, axis) * moves
        terms = xlogy(sums, np.maximum(means, 0.0)) - plays * means
        return np.where(means < 0, -np.inf, terms).sum(axis=axis)

    length = np.ones(table.shape[1 - axis])
    start = value(np.zeros_like(length))
    for _ in range(_HALVINGS):
        length = np.where(value(length) >= start, length, length / 2)
    return np.where(value(length) >= start, length, 0.0)


def _gamma_poisson(
    sessions: Sessions, centres: Float[Array, "A"], shape: float | Float[Array, "G"]
) -> Float[Array, "G"]:
    """log-probability of the plays of each arm in each session, whose mean there is gamma around the arm's centre."""
    from scipy.special import gammaln

    pairs = SessionArms.of(sessions)
    plays, total, centre = pairs.sums(), pairs.sums(sessions.rewards), np.maximum(centres[pairs.arm], _IMPOSSIBLE)
    rest = total * np.log(centre) - pairs.sums(gammaln(sessions.rewards + 1))
    rising = gammaln(shape + total) - gammaln(shape) - total * np.log(shape)
    return rest + rising - (shape + total) * np.log1p(plays * centre / shape)


def _distance(bandit: LatentBandit, sessions: Sessions) -> float:
    """The largest difference between the shares of rewards up to a count in the log and under the model."""
    from scipy.special import pdtr

    values, observed = np.unique(sessions.rewards, return_counts=True)
    expected = np.zeros(len(values))
    cumulative = pdtr(values[:, None, None], bandit.means)  # (V, M, A)
    for places, beliefs in belief.predictive_beliefs(bandit, sessions):
        expected += np.einsum("nm,vmn->v", beliefs, cumulative[:, :, sessions.arms[places]])
    return float(np.abs(np.cumsum(observed) - expected).max() / sessions.n_steps)


class GammaArms:
    """What arms are like, for counts: the part of a Gibbs chain that learns it from all arms together.

    The mean of an arm in a type is gamma with the arm's centre as its mean and the arm's spread as its relative
    deviation. Logarithms of centres are normal over arms, spreads follow a law on a grid: all arms are alike, or some
    arms tell types apart among others that do not. Centre, spread and both laws are drawn from grids.
    """

    def __init__(self, centres: Float[Array, "A"], played: Bool[Array, "A"]) -> None:
        own = np.log(centres[played & (centres > 0)]) if (played & (centres > 0)).any() else np.zeros(1)
        self._logs = np.linspace(own.min() - 2.0, own.max() + 2.0, _CENTRES)
        middles = np.linspace(own.min(), own.max(), 15)
        means, deviations = (axis.ravel() for axis in np.meshgrid(middles, _DEVIATIONS, indexing="ij"))
        exponents = -0.5 * ((self._logs - means[:, None]) / deviations[:, None]) ** 2
        self._centre_laws = np.exp(np.maximum(exponents - np.logaddexp.reduce(exponents, axis=1, keepdims=True), -80.0))
        one = np.eye(len(_SPREADS))
        two = [0.7 * one[i] + 0.3 * one[j] for i in (0, 1, 2) for j in (4, 5, 6)]
        self._spread_laws = np.maximum(np.concatenate([one, two]), 1e-12)
        self._state = [2, len(self._centre_laws) // 2]
        self.centre: Float[Array, "A"] = np.exp(self._logs[:1])
        self.shape: Float[Array, "A"] = np.ones(1)

    def draw(
        self, plays: Float[Array, "A M"], sums: Float[Array, "A M"], rng: np.random.Generator
    ) -> Float[Array, "A M"]:
        """Laws, every arm's centre and spread, then means, given plays and counts."""
        evidence = self._evidence(plays, sums)  # (A, G, K)
        raised = np.exp(np.maximum(evidence - evidence.max(axis=(1, 2), keepdims=True), -80.0))
        by_spread = np.einsum("agk,g->ak", raised, self._centre_laws[self._state[1]])
        self._state[0] = _pick(np.log(by_spread @ self._spread_laws.T).sum(axis=0)[None], rng)[0]
        spread = self._spread_laws[self._state[0]]
        self._state[1] = _pick(np.log((raised @ spread) @ self._centre_laws.T).sum(axis=0)[None], rng)[0]
        joint = raised * self._centre_laws[self._state[1]][:, None] * spread
        places = _pick(np.log(np.maximum(joint, _IMPOSSIBLE)).reshape(len(plays), -1), rng)
        self.centre = np.exp(self._logs[places // len(_SPREADS)])
        self.shape = 1 / _SPREADS[places % len(_SPREADS)] ** 2
        shape, rate = self.shape[:, None] + sums, (self.shape / self.centre)[:, None] + plays
        return rng.gamma(shape) / rate

    def _evidence(self, plays: Float[Array, "A M"], sums: Float[Array, "A M"]) -> Float[Array, "A G K"]:
        """log-probability of what each arm paid in all types, at every centre and spread."""
        from scipy.special import gammaln

        shape = 1 / _SPREADS**2
        rising = (gammaln(shape + sums[:, :, None]) - gammaln(shape)).sum(axis=1)  # (A, K)
        rates = shape / np.exp(self._logs)[:, None]  # (G, K)
        total = sums[:, :, None, None] + shape
        terms = shape * np.log(rates) - total * np.log(rates + plays[:, :, None, None])
        return rising[:, None, :] + terms.sum(axis=1)


def _pick(logs: Float[Array, "n k"], rng: np.random.Generator) -> Integer[Array, "n"]:
    """One index per row, in proportion to exp(logs)."""
    cumulative = np.cumsum(np.exp(logs - logs.max(axis=1, keepdims=True)), axis=1)
    found = (cumulative <= rng.random((len(logs), 1)) * cumulative[:, -1:]).sum(axis=1)
    return np.minimum(found, logs.shape[1] - 1)


class CountsChain(Chain):
    """A Gibbs chain on coded counts."""

    def __init__(self, log: CountsLog, bandit: LatentBandit) -> None:
        self._log, self._arms = log, GammaArms(log.centres, log.played)
        self._model = np.ascontiguousarray(log.soften(log.pack(bandit))[0, :, : bandit.n_types])
        self._model[0] = np.maximum(self._model[0], _NO_WEIGHT)
        self._sums, self._leaving = np.empty((1, log.n_sums, bandit.n_types)), leave_rates.LeavingDraws(log.n_arms)
        if log.letters:
            chance = log.leaving_of(self._model[None])
            chance[:] = chance.clip(*leave_rates.INSIDE)

    @property
    def weights(self) -> Float[Array, "M"]:
        return self._model[0] / self._model[0].sum()

    @property
    def rewards(self) -> Counts:
        return Counts(self._log.means_of(self._model).T)

    @property
    def leaving(self) -> Float[Array, "M A Z"] | None:
        return np.moveaxis(self._log.leaving_of(self._model[None])[0], 2, 0) if self._log.letters else None

    @property
    def freedom(self) -> Float[Array, "A"] | None:
        return self._leaving.freedom if self._log.letters else None

    def likely(self, rng: np.random.Generator) -> tuple[Float[Array, "A"], Float[Array, "A"]]:
        return self._arms.centre, self._arms.centre / self._arms.shape

    @staticmethod
    def prior(centre: Float[Array, "A"], strength: Float[Array, "A"]) -> Prior:
        return Prior(centre, strength)

    def sweep(self, rng: np.random.Generator) -> None:
        log, table = self._log, self._log.tables(self._model[None])[0]
        self._sums[:] = 0.0
        for steps in log.pieces():
            own, n_drawn = np.empty_like(table), steps.high if log.travels else len(log.sessions)
            kernel("gibbs").categorical(steps.codes, steps.offsets, steps.counts, table, rng.random(n_drawn), own)
            self._sums[0] += own
        plays, sums = (found[0] for found in log.plays_and_sums(self._sums))
        self._model[0] = np.maximum(rng.dirichlet(self._sums[0, 0] + 1.0), _NO_WEIGHT)
        log.means_of(self._model)[:] = np.maximum(self._arms.draw(plays, sums, rng), _NO_MEAN * log.overall)
        if log.letters:
            after = log.after_places(log.summaries(self._sums))[0]
            log.leaving_of(self._model[None])[:] = self._leaving.draw(after, rng)


@dataclass(frozen=True, eq=False)
class CountsCoordinates(Coordinates):
    """Logits of the weights, and logarithms of the means in the order (arm, type)."""

    weights: Float[Array, "M"]
    rewards: Counts
    played: Bool[Array, "A"]
    positive: Bool[Array, "M A"]  # means off their boundary

    @property
    def size(self) -> int:
        return len(self.weights) - 1 + self.rewards.n_parameters

    @property
    def fixed(self) -> Bool[Array, "M A"]:
        return ~(self.positive & self.played)

    def free(self) -> Any:
        from scipy.sparse import block_diag, csr_array, eye_array

        free = np.flatnonzero(~self.fixed.T.ravel())
        blocks = [csr_array(within_support(self.weights)), eye_array(self.fixed.size, format="csr")[:, free]]
        return csr_array(block_diag(blocks))

    def means_along(self, directions: Float[Array, "P F"]) -> Float[Array, "M A F"]:
        return self.rewards.means[:, :, None] * self._of_means(directions.T).transpose(2, 1, 0)

    def moved(self, moves: Float[Array, "B P"]) -> list[Any]:
        factors = np.exp(np.clip(self._of_means(moves).swapaxes(1, 2), -_STEEPEST, _STEEPEST))
        return [Counts(self.rewards.means * factor) for factor in factors]

    def _of_means(self, moves: Float[Array, "B P"]) -> Float[Array, "B A M"]:
        own = moves[:, len(self.weights) - 1 :]
        return own.reshape(len(moves), self.rewards.n_arms, len(self.weights))


@dataclass(frozen=True, eq=False)
class CountsSurface(Surface):
    """Logarithms of means that are linear in the factors of a session."""

    log: CountsLog

    @property
    def n_intercepts(self) -> int:
        return 1

    @property
    def slopes(self) -> Float[Array, "q"]:
        return np.ones(1)

    @property
    def unit(self) -> float:
        return 1.0

    def scale(self) -> float:
        return 1.0

    def popularity(self) -> Float[Array, "A"]:
        plays = self.log.plays
        return (self.log.centres * plays + self.log.overall) / (plays + 1)

    def intercepts(self) -> Float[Array, "A q"]:
        return np.log(self.popularity())[:, None]

    def deviations(self) -> tuple[Any, Any, Float[Array, "A"]]:
        from scipy.sparse import csr_array

        arms, residuals = self.log._residuals()
        shape, offsets = (self.log.n_distinct, self.log.n_arms), self.log.own.offsets
        sums, plays = (csr_array((data, arms, offsets), shape=shape) for data in (residuals, np.ones(len(arms))))
        return sums, plays, self.popularity().clip(_LEAST_UNIT)

    def _means(self, parameters: Float[Array, "A p"], points: Points) -> Float[Array, "A K"]:
        logs = parameters[:, :1] + parameters[:, 1:] @ points.places.T
        return np.exp(np.clip(logs, -_STEEPEST, _STEEPEST))

    def model(self, parameters: Float[Array, "A p"], scale: float, points: Points) -> Float[Array, "1 K P"]:
        result = self.log._empty(1, len(points))
        result[0, 0, : len(points)] = points.weights
        self.log.means_of(result)[0, :, : len(points)] = self._means(parameters, points)
        return result

    def derivatives(
        self, statistics: Float[Array, "Q P"], parameters: Float[Array, "A p"], scale: float, points: Points
    ) -> tuple[Float[Array, "A p"], Float[Array, "A p p"]]:
        n_arms, p = parameters.shape
        plays, sums = (statistics[k : k + n_arms, : len(points)] for k in (1, 1 + n_arms))
        rows, expected = _rows(points), plays * self._means(parameters, points)
        information = expected @ np.einsum("ki,kj->kij", rows, rows).reshape(len(rows), -1)
        return (sums - expected) @ rows, information.reshape(n_arms, p, p)

    def scores(
        self, played: Integer[Array, "S"], rewards: Float[Array, "S"], arms: TraitArms, points: Points
    ) -> Float[Array, "S p K"]:
        rest = rewards[:, None] - self._means(arms.parameters, points)[played]
        return rest[:, None] * _rows(points).T

    def mean_slopes(self, parameters: Float[Array, "A p"], points: Points) -> Float[Array, "K A p"]:
        return self._means(parameters, points).T[:, :, None] * _rows(points)[:, None]

    def best_scale(
        self, statistics: Float[Array, "Q P"], parameters: Float[Array, "A p"], scale: float, points: Points
    ) -> float:
        return scale

    def averaged(self, arms: TraitArms, points: Points) -> LatentBandit:
        """The mean of the exponential of a normal logarithm; an arm that is hardly known is raised by at most e."""
        rows = _rows(points)
        spread = np.einsum("ki,aij,kj->ak", rows, arms.covariance, rows)
        means = self._means(arms.parameters, points) * np.exp(np.minimum(spread / 2, 1.0))
        return LatentBandit(points.weights, Counts(means.T), self.log.sessions.arm_labels)


def _rows(points: Points) -> Float[Array, "K p"]:
    return np.column_stack([np.ones(len(points)), points.places])
