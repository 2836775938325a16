"""Normal rewards with one standard deviation, and all that estimation asks of them.

The code of a step is its arm; the number beside it is the reward less the mean of the arm, so that large means cost no
precision. Rows 1 to A of a model hold the (centred) means, the last row the scale in every column. Rows of codes beside
the arms' stand between them, and are likelihoods as in every family: the kernel is given means at such a distance from
the number 0 that the density there is this likelihood, up to a factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Bool, Float, Integer, Shaped
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..errors import InvalidArgument
from ..model import belief
from ..model.bandit import LatentBandit
from ..model.gaussian import Gaussian
from ..parallel import SERIAL, Arrays, Passes
from . import low_rank
from .arm_law import GaussianArms
from .information import Coordinates, Information, check_size, normalised, summed, with_weights, within_support
from .log import Beside, Chain, Log, Prior, SessionArms, Steps, count_parameters, normalised_weights
from .traits.surface import Points, Surface, TraitArms

_BYTES = 8  # Bytes of a number.
_LEAST_SCALE = 1e-6  # Part of the rewards' own deviation, below which the likelihood has no maximum.
_LEAST_RATIO = 1e-300  # Likelihoods of codes beside the arms' are taken for this where they are smaller.
_SESSIONS = 1 << 16  # Sessions added up together, in memory too, so that a packed log has the same bits.
_SHRINK = 0.02  # An extrapolation may take a weight down to this part of what it was.
_SHRINK_SCALE = 0.5  # An extrapolation may take the scale down to this part of what it was.
_SMOOTHING = 5.0  # Pseudo-plays at the arm's mean in a model made of clusters.
_DEVIATION = 0.5  # Deviation of a random mean from the arm's, in standard deviations of the rewards.
_LEAST_WEIGHT = 0.02  # Least weight of a cluster.
_LEAST = 1e-9  # A weight never falls below this in a chain.
_STEPS = 100_000  # Steps of a larger log that are looked at, in whole sessions.
_ONE_VALUE = 0.2  # Share of one single value above which rewards are no measurements.
_NOISE = 1.63  # Over the root of the number of rewards: what the distance reaches by chance in 1 of 100 logs.
_RATIOS = np.concatenate([[0.0], np.geomspace(1e-3, 100, 25)])  # Variance between sessions over that within.
_DISTANCE = 0.08  # Distance between the two distributions of rewards, above which promises were seen to be wrong.


@dataclass(frozen=True, eq=False)
class GaussianLog(Log):
    """A log with rewards centred arm by arm."""

    family = Gaussian.family
    n_last_rows = 1  # the scale
    kernel_name = "gaussian"

    centres: Float[Array, "A"]  # mean reward of each arm; an arm never played gets that of all arms
    recode: Shaped[Array, "c"] | None = field(default=None, kw_only=True)  # the arm of each code in the files
    residuals: Float[Array, "c"] | None = field(default=None, kw_only=True)  # the number beside each code there

    @classmethod
    def encode(
        cls, sessions: Sessions | Packed, known_scale: float | None, beside: Beside | None = None
    ) -> GaussianLog:
        """The log, centred at each arm's mean; a scale that is not known must be there to be estimated."""
        log = cls.centred_at(sessions, _means(sessions), known_scale, beside)
        if known_scale is None and log.spread == 0:
            raise InvalidArgument(
                "scale must be given where no arm's rewards ever differ: there is none to estimate, got None"
            )
        return log

    @classmethod
    def centred_at(
        cls,
        sessions: Sessions | Packed,
        centres: Float[Array, "A"],
        known_scale: float | None,
        beside: Beside | None = None,
    ) -> GaussianLog:
        """The log, with the rewards of each arm less its centre."""
        smallest = np.min_scalar_type(sessions.n_arms - 1)
        if isinstance(sessions, Sessions):
            numbers = sessions.rewards - centres[sessions.arms]
            steps = Steps.of(sessions.arms.astype(smallest), sessions.offsets, numbers=numbers)
            memory = steps if beside is None else beside.joined(steps, sessions.n_arms)
            return cls(sessions, memory, centres, beside=beside, known_scale=known_scale)
        recode = residuals = None
        if sessions.values is not None:
            recode = np.repeat(np.arange(sessions.n_arms), len(sessions.values)).astype(smallest)
            residuals = (sessions.values - centres[:, None]).ravel()
        return cls(sessions, None, centres, recode=recode, residuals=residuals, beside=beside, known_scale=known_scale)

    def coded(self, sessions: Sessions | Packed, beside: Beside | None) -> GaussianLog:
        """Keep the centres of the whole log, so that models of one fit the other."""
        return GaussianLog.centred_at(sessions, self.centres, self.known_scale, beside)

    def level(self, every: int) -> None:
        return None

    @property
    def n_own(self) -> int:
        return self.n_arms

    @property
    def n_features(self) -> int:
        return self.n_arms

    @property
    def n_sums(self) -> int:
        return 1 + 2 * (self.n_arms + self.n_beside)

    @property
    def _n_bytes(self) -> int:
        return _BYTES * self._n_codes

    def _read(self, low: int, high: int, room: Integer[Array, "m"] | None) -> Steps:
        if self.recode is not None and self.residuals is not None:
            offsets, codes = self._partitions.part(low, high, "codes", room=room)
            return Steps.of(self.recode.take(codes), offsets, numbers=self.residuals.take(codes))
        offsets, arms, rewards = self._partitions.part(low, high, "codes", "rewards", room=room)
        return Steps.of(arms, offsets, numbers=rewards - self.centres.take(arms))

    def _kernel_arrays(self, steps: Steps) -> Arrays:
        return steps.codes, steps.numbers, steps.offsets

    @property
    def arms(self) -> Shaped[Array, "S"]:
        """The arm of every step, unsigned, of the smallest size."""
        return self.own.codes

    @property
    def numbers(self) -> Float[Array, "S"]:
        """The reward of every step less the centre of its arm."""
        return self.own.numbers

    @cached_property
    def largest(self) -> float:
        return max(float(np.abs(numbers).max()) for numbers in self._pieces()) or 1.0

    @cached_property
    def plays(self) -> Integer[Array, "A"]:
        return self.sessions.plays

    @property
    def played(self) -> Bool[Array, "A"]:
        return self.plays > 0

    @cached_property
    def squares(self) -> float:
        """Sum of the squared numbers."""
        return float(sum((numbers**2).sum() for numbers in self._pieces()))

    def _pieces(self) -> Iterator[Float[Array, "_"]]:
        """The numbers, some sessions at a time."""
        for low in range(0, self.n_all, _SESSIONS):
            yield self.steps(low, min(low + _SESSIONS, self.n_all)).own.numbers

    @cached_property
    def spread(self) -> float:
        """Standard deviation of the rewards around their arm's mean."""
        return float(np.sqrt(self.squares / self.sessions.n_steps))

    @property
    def least_scale(self) -> float:
        return _LEAST_SCALE * max(self.spread, np.finfo(float).tiny ** 0.25)

    @property
    def first_scale(self) -> float:
        """The scale that a fit begins with."""
        return max(self.spread, self.least_scale) if self.known_scale is None else self.known_scale

    def n_parameters(self, n_types: int, rank: int | None = None) -> int:
        return count_parameters(n_types, int(self.played.sum()), rank) + int(self.known_scale is None)

    def prior(self, strength: float) -> Prior:
        return Prior.equal(self.centres, strength)

    # Models and bandits.

    def empty_model(self, n_models: int, n_types: int, scale: float) -> Float[Array, "R K P"]:
        """Models of equal weights, means at the arms' centres, and the scale."""
        models = self.empty_models(n_models, self.n_arms + self.n_beside + 2, n_types)
        models[:, -1] = scale
        return models

    def means_of(self, models: Float[Array, "*R K m"]) -> Float[Array, "*R A m"]:
        """The rows of the (centred) means, as a view."""
        return models[..., 1 : 1 + self.n_arms, :]

    def pack(self, bandit: LatentBandit) -> Float[Array, "1 K P"]:
        rewards = gaussian(bandit)
        model = self.empty_model(1, bandit.n_types, rewards.scale)
        model[0, 0, : bandit.n_types] = bandit.weights
        self.means_of(model)[0, :, : bandit.n_types] = (rewards.means - self.centres).T
        return model

    def bandit(self, model: Float[Array, "K P"], n_types: int) -> LatentBandit:
        weights = model[0, :n_types] / model[0, :n_types].sum()
        means = self.means_of(model)[:, :n_types].T + self.centres
        return LatentBandit(weights, Gaussian(means, float(model[-1, 0])), self.sessions.arm_labels)

    def from_moments(self, weights: Float[Array, "M"], vectors: Float[Array, "M D"]) -> LatentBandit:
        """Means are taken as they are."""
        means = np.where(self.played, vectors, self.centres)
        rewards = Gaussian(means, self._scale_left(weights, means))
        return LatentBandit(weights, rewards, self.sessions.arm_labels)

    def _scale_left(self, weights: Float[Array, "M"], means: Float[Array, "M A"]) -> float:
        """What is left of the rewards' variance once the types have explained their part."""
        if self.known_scale is not None:
            return self.known_scale
        between = weights @ (means - self.centres) ** 2
        left = self.spread**2 - float(self.plays / self.plays.sum() @ between)
        return float(np.sqrt(max(left, self.least_scale**2)))

    # The EM map: expected plays and sums, and their means.

    def expectation(
        self, models: Float[Array, "R K P"], passes: Passes
    ) -> tuple[Float[Array, "R Q P"], Float[Array, "R"]]:
        """Expected plays, sums of numbers, and masses of the codes beside the arms', in this order."""
        tables, top = self._with_means_beside(models)
        found = passes.expectation(self, tables)
        if found is not None:
            scales = models[:, -1, 0] * np.sqrt(2 * np.pi)
            found = found[0], found[1] - self.n_steps * np.log(scales)
        statistics, logs = found or self._summed(tables, passes)
        if not self.n_beside:
            return statistics, logs
        plays, beside = slice(1, 1 + self.n_arms), slice(1 + self.n_arms, 1 + self.n_arms + self.n_beside)
        sums = slice(beside.stop, beside.stop + self.n_arms)
        masses = statistics[:, beside]
        factors = top + np.log(models[:, -1, :1] * np.sqrt(2 * np.pi))
        logs = logs + (masses.sum(axis=2) * factors).sum(axis=1)
        return np.concatenate([statistics[:, :1], statistics[:, plays], statistics[:, sums], masses], axis=1), logs

    def _with_means_beside(self, models: Float[Array, "R K P"]) -> tuple[Float[Array, "R K P"], Float[Array, "R L"]]:
        """Tables whose rows beside the arms' are means at which 0 has their likelihood over the largest; its log."""
        if not self.n_beside:
            return models, np.empty((len(models), 0))
        tables, own = models.copy(), slice(1 + self.n_arms, 1 + self.n_arms + self.n_beside)
        logs = np.log(np.maximum(models[:, own], _LEAST_RATIO))
        top = logs.max(axis=2, where=models[:, :1] > 0, initial=np.log(_LEAST_RATIO))
        below = np.maximum(top[:, :, None] - logs, 0.0)
        tables[:, own] = models[:, -1:] * np.sqrt(2 * below)
        return tables, top

    def maximise(
        self, statistics: Float[Array, "R Q P"], models: Float[Array, "R K P"], prior: Prior
    ) -> Float[Array, "R K P"]:
        plays, sums = self._with_prior(statistics, prior)
        result = models.copy()
        result[:, 0] = normalised_weights(statistics[:, 0])
        np.divide(sums, plays, out=self.means_of(result), where=plays > 0)
        result[:, -1] = self.best_scales(result, plays, sums, prior)[:, None]
        return result

    def _with_prior(
        self, statistics: Float[Array, "R Q P"], prior: Prior
    ) -> tuple[Float[Array, "R A P"], Float[Array, "R A P"]]:
        """Plays, and sums of centred rewards, with those of the prior."""
        n_arms, pull = self.n_arms, prior.centre - self.centres
        plays = statistics[:, 1 : 1 + n_arms] + prior.strength[:, None]
        return plays, statistics[:, 1 + n_arms : 1 + 2 * n_arms] + (prior.strength * pull)[:, None]

    def best_scales(
        self, models: Float[Array, "R K m"], plays: Float[Array, "R A m"], sums: Float[Array, "R A m"], prior: Prior
    ) -> Float[Array, "R"]:
        """The best scale for the models' means, given what `_with_prior` gives; the known one where it is known.

        The penalty of the prior counts as squared deviation, so that the map climbs likelihood plus prior.
        """
        if self.known_scale is not None:
            return models[:, -1, 0]
        means = self.means_of(models)
        squares = self.squares + means.shape[2] * float(prior.strength @ (prior.centre - self.centres) ** 2)
        rest = squares - 2 * (means * sums).sum(axis=(1, 2)) + (means**2 * plays).sum(axis=(1, 2))
        return np.sqrt(np.maximum(rest / self.sessions.n_steps, self.least_scale**2))

    def log_prior(self, models: Float[Array, "R K M"], prior: Prior) -> Float[Array, "R"]:
        deviations = (self.means_of(models) - (prior.centre - self.centres)[:, None]) / models[:, -1:]
        return -0.5 * np.einsum("a,ram->r", prior.strength, deviations**2)

    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        trial, beside = trial.copy(), slice(1 + self.n_arms, 1 + self.n_arms + self.n_beside)
        trial[:, 0] = normalised_weights(trial[:, 0], _SHRINK * near[:, 0])
        trial[:, beside] = np.maximum(trial[:, beside], _SHRINK * near[:, beside])
        trial[:, -1] = np.maximum(trial[:, -1], _SHRINK_SCALE * near[:, -1])
        return trial

    # Means of a given rank over the types.

    def project(self, model: Float[Array, "K P"], prior: Prior, n_types: int, rank: int) -> Float[Array, "K P"]:
        result = model.copy()
        self.means_of(result)[:, :n_types] = self._nearest(model, n_types, rank).table
        return result

    def improve(
        self, statistics: Float[Array, "Q P"], model: Float[Array, "K P"], prior: Prior, n_types: int, rank: int
    ) -> Float[Array, "K P"]:
        plays, sums = (part[..., :n_types] for part in self._with_prior(statistics[None], prior))
        result = model.copy()
        result[0] = normalised_weights(statistics[None, 0])[0]
        fit = low_rank.improve_means(self._nearest(model, n_types, rank), plays[0], sums[0])
        self.means_of(result)[:, :n_types] = fit.table
        result[-1] = self.best_scales(result[None, :, :n_types], plays, sums, prior)[0]
        return result

    def _nearest(self, model: Float[Array, "K P"], n_types: int, rank: int) -> low_rank.LowRank:
        return low_rank.project(self.means_of(model)[:, :n_types], model[0, :n_types], rank)

    # Models that EM may start from.

    def random_models(self, n_models: int, n_types: int, rng: np.random.Generator) -> Float[Array, "R K P"]:
        models = self.empty_model(n_models, n_types, self.first_scale)
        draws = _DEVIATION * self.spread * rng.standard_normal((n_models, self.n_arms, n_types))
        self.means_of(models)[..., :n_types] = np.where(self.played[:, None], draws, 0.0)
        return models

    def clustered(self, labels: Integer[Array, "n"], n_types: int) -> Float[Array, "1 K P"]:
        n_arms, empty = self.n_arms, self.empty_model(1, n_types, self.first_scale)
        statistics = np.zeros((1, 1 + 2 * n_arms, empty.shape[2]))
        np.add.at(statistics[0, 0], labels, 1.0)
        offsets = self.own.offsets[: len(labels) + 1]
        arms, owners = self.arms[: offsets[-1]].astype(np.int64), np.repeat(labels, np.diff(offsets))
        np.add.at(statistics[0, 1:], (arms, owners), 1.0)
        np.add.at(statistics[0, 1 + n_arms :], (arms, owners), self.numbers[: offsets[-1]])
        model = self.maximise(statistics, empty, Prior.equal(self.centres, _SMOOTHING))
        model[:, -1] = empty[:, -1]
        model[:, 0, :n_types] = normalised_weights(model[:, 0, :n_types], _LEAST_WEIGHT)
        return model

    def soften(self, models: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        return models  # no normal reward is impossible

    def features(self) -> tuple[Any, Float[Array, "D"]]:
        from scipy.sparse import csr_array

        steps = (self.numbers, self.arms.astype(np.int64), self.own.offsets)
        squares = np.bincount(self.arms, self.numbers**2, minlength=self.n_arms)
        return csr_array(steps, shape=(self.n_distinct, self.n_arms)), squares

    def centre(self, features: Float[Array, "D k"]) -> Float[Array, "D k"]:
        return features  # rewards are centred already

    def unrelated(self, test: Sessions) -> Float[Array, "N"]:
        return _unrelated(self.sessions.load(), test)

    # Parts that have a life of their own.

    def chain(self, bandit: LatentBandit) -> GaussianChain:
        return GaussianChain(self, bandit)

    @property
    def surface(self) -> GaussianSurface:
        return GaussianSurface(self)

    def information(self, bandit: LatentBandit, prior: Prior, passes: Passes = SERIAL) -> Information:
        """The information of the log and the prior."""
        weights, rewards, scale_is_known = bandit.weights, gaussian(bandit), self.known_scale is not None
        size = len(weights) + rewards.means.size + (not scale_is_known)
        check_size(len(weights), size)
        matrix = summed(partial(_part, self, weights, rewards), self, size, passes)
        strength = np.repeat(prior.strength[:, None], len(weights), axis=1)
        deviations = (prior.centre[:, None] - rewards.means.T) / rewards.scale
        _add_seen(matrix, strength, strength * deviations, strength * deviations**2)
        matrix = with_weights(matrix[:size, :size], weights, float(self.n_distinct))
        return Information(matrix, GaussianCoordinates(weights, rewards, self.played, scale_is_known))

    def misfit(self, bandit: LatentBandit) -> list[str]:
        return misfit(bandit, self.sessions)


def gaussian(bandit: LatentBandit) -> Gaussian:
    """The bandit's rewards, which must be of this family."""
    if not isinstance(bandit.rewards, Gaussian):
        raise InvalidArgument(f"bandit must have normal rewards, as this log was read, got {bandit}")
    return bandit.rewards


def _means(sessions: Sessions | Packed) -> Float[Array, "A"]:
    """The mean reward of each arm, that of all arms for an arm that was never played."""
    plays, sums = np.zeros(sessions.n_arms), np.zeros(sessions.n_arms)
    for chunk in sessions.chunks(_SESSIONS):
        plays += np.bincount(chunk.arms, minlength=sessions.n_arms)
        sums += np.bincount(chunk.arms, chunk.rewards, minlength=sessions.n_arms)
    return np.where(plays > 0, sums / np.maximum(plays, 1), sums.sum() / plays.sum())


class GaussianChain(Chain):
    """A Gibbs chain on normal rewards; the scale is drawn too unless it is known."""

    def __init__(self, log: GaussianLog, bandit: LatentBandit) -> None:
        self._log, self.scale = log, float(bandit.rewards.spread)
        # One centre for all arms, so that arms can be compared, and large means cost no precision.
        self._centre = float(log.centres[log.played].mean())
        self._rewards = log.numbers + (log.centres - self._centre)[log.arms]
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
            log.arms, self._rewards, log.own.offsets, self._table, self.scale, uniforms, self._statistics
        )  # fmt: skip
        self._table[0] = np.maximum(rng.dirichlet(self._statistics[0] + 1.0), _LEAST)
        plays, sums = self._statistics[1 : 1 + n_arms], self._statistics[1 + n_arms :]
        self._table[1:] = means = self._arms.draw(plays, sums, self.scale, rng)
        if log.known_scale is None:
            rest = self._squares - 2 * (means * sums).sum() + (means**2 * plays).sum()
            least = len(self._rewards) * log.least_scale**2
            self.scale = float(np.sqrt(max(rest, least) / rng.chisquare(len(self._rewards))))


@dataclass(frozen=True, eq=False)
class GaussianCoordinates(Coordinates):
    """Logits of the weights, the means in the order (arm, type), and the scale's logarithm unless it is known."""

    weights: Float[Array, "M"]
    rewards: Gaussian
    played: Bool[Array, "A"]
    scale_is_known: bool

    @property
    def size(self) -> int:
        return len(self.weights) - 1 + self.rewards.n_parameters + (not self.scale_is_known)

    @property
    def fixed(self) -> Bool[Array, "M A"]:
        return np.tile(~self.played, (len(self.weights), 1))

    def free(self) -> Any:
        from scipy.sparse import block_diag, csr_array, eye_array

        blocks = [csr_array(within_support(self.weights))]
        rewards = np.append(np.repeat(self.played, len(self.weights)), [True] * (not self.scale_is_known))
        blocks.append(eye_array(len(rewards), format="csr")[:, np.flatnonzero(rewards)])
        return csr_array(block_diag(blocks))

    def means_along(self, directions: Float[Array, "P F"]) -> Float[Array, "M A F"]:
        return self.rewards.scale * self._of_means(directions.T).transpose(2, 1, 0)

    def moved(self, moves: Float[Array, "B P"]) -> list[Any]:
        means = self.rewards.means + self.rewards.scale * self._of_means(moves).swapaxes(1, 2)
        changes = np.zeros(len(moves)) if self.scale_is_known else moves[:, -1]
        scales = self.rewards.scale * np.exp(changes)
        return [Gaussian(*pair) for pair in zip(means, scales.tolist(), strict=True)]

    def _of_means(self, moves: Float[Array, "B P"]) -> Float[Array, "B A M"]:
        first, n_means = len(self.weights) - 1, self.rewards.means.size
        return moves[:, first : first + n_means].reshape(len(moves), self.rewards.n_arms, len(self.weights))


def _part(log: GaussianLog, weights: Float[Array, "M"], rewards: Gaussian, low: int, high: int) -> Float[Array, "Q Q"]:
    """What some sessions tell about means and scale, less what is missing because their types are not seen."""
    n_types, n_arms = rewards.means.shape
    found = log.alone(log.steps(low, high).own)
    offsets, arms = found.offsets, found.codes.astype(np.int64)
    deviations = (found.numbers[:, None] - (rewards.means - log.centres).T[arms]) / rewards.scale  # (S, M)
    with np.errstate(divide="ignore"):
        joint = np.log(weights) + np.add.reduceat(-0.5 * deviations**2, offsets[:-1], axis=0)
    shares = normalised(joint, weights)
    size = n_types * (1 + n_arms)
    result = np.zeros((size + 1, size + 1))
    missing, rows = np.empty((size, size)), np.arange(len(arms))
    kernel("sums").missing(arms, rows, offsets, np.ones(len(shares)), shares, deviations[:, :, None], missing)
    result[:-1, :-1] -= missing
    expected = np.repeat(shares, np.diff(offsets), axis=0)

    def by_arm(terms: Float[Array, "S M"]) -> Float[Array, "A M"]:
        return np.stack([np.bincount(arms, column, minlength=n_arms) for column in terms.T], axis=1)

    _add_seen(result, by_arm(expected), by_arm(expected * deviations), by_arm(expected * deviations**2))
    scores = np.add.reduceat(deviations**2 - 1, offsets[:-1], axis=0)  # Scores of the logarithm of the scale.
    unsure = shares * (scores - (shares * scores).sum(axis=1, keepdims=True))
    with_means = by_arm(np.repeat(unsure, np.diff(offsets), axis=0) * deviations)
    across = np.concatenate([unsure.sum(axis=0), with_means.ravel()])
    result[-1, :-1] -= across
    result[:-1, -1] -= across
    result[-1, -1] -= (unsure * scores).sum()
    return result


def _add_seen(
    matrix: Float[Array, "Q Q"], plays: Float[Array, "A M"], sums: Float[Array, "A M"], squares: Float[Array, "A M"]
) -> None:
    """Add the information of plays in known types, given the sums of their deviations in units of the scale."""
    index = np.arange(plays.shape[1], plays.shape[1] + plays.size)
    matrix[index, index] += plays.ravel()
    matrix[index, -1] += 2 * sums.ravel()
    matrix[-1, index] += 2 * sums.ravel()
    matrix[-1, -1] += 2 * squares.sum()


@dataclass(frozen=True, eq=False)
class GaussianSurface(Surface):
    log: GaussianLog

    @property
    def n_intercepts(self) -> int:
        return 1

    @property
    def slopes(self) -> Float[Array, "q"]:
        return np.ones(1)

    @property
    def unit(self) -> float:
        return max(self.log.spread, self.log.least_scale)

    def scale(self) -> float:
        return self.log.first_scale

    @cached_property
    def _middles(self) -> Float[Array, "A"]:
        """Centres of the arms, from the mean of all rewards."""
        plays = self.log.plays
        return self.log.centres - float(plays @ self.log.centres / plays.sum())

    def intercepts(self) -> Float[Array, "A q"]:
        plays = self.log.plays
        return (self._middles * plays / (plays + 1))[:, None]

    def popularity(self) -> Float[Array, "A"]:
        return self.intercepts()[:, 0]

    def deviations(self) -> tuple[Any, Any, Float[Array, "A"]]:
        from scipy.sparse import csr_array

        log, arms = self.log, self.log.arms.astype(np.int64)
        shape = (log.n_distinct, log.n_arms)
        sums = csr_array((np.array(log.numbers), arms, log.own.offsets), shape=shape)
        return sums, csr_array((np.ones(len(arms)), arms, log.own.offsets), shape=shape), np.ones(log.n_arms)

    def model(self, parameters: Float[Array, "A p"], scale: float, points: Points) -> Float[Array, "1 K P"]:
        result = self.log.empty_model(1, len(points), scale)
        result[0, 0, : len(points)] = points.weights
        self.log.means_of(result)[0, :, : len(points)] = self._means(parameters, points)
        return result

    def _means(self, parameters: Float[Array, "A p"], points: Points) -> Float[Array, "A K"]:
        """From each arm's own centre, as models hold them."""
        return (parameters[:, 0] - self._middles)[:, None] + parameters[:, 1:] @ points.places.T

    def derivatives(
        self, statistics: Float[Array, "Q P"], parameters: Float[Array, "A p"], scale: float, points: Points
    ) -> tuple[Float[Array, "A p"], Float[Array, "A p p"]]:
        n_arms, p = parameters.shape
        plays, sums = (statistics[k : k + n_arms, : len(points)] for k in (1, 1 + n_arms))
        rows = np.column_stack([np.ones(len(points)), points.places])
        gradient = (sums - plays * self._means(parameters, points)) @ rows
        information = (plays @ np.einsum("ki,kj->kij", rows, rows).reshape(len(rows), -1)).reshape(n_arms, p, p)
        return gradient / scale**2, information / scale**2

    def scores(
        self, played: Integer[Array, "S"], rewards: Float[Array, "S"], arms: TraitArms, points: Points
    ) -> Float[Array, "S p K"]:
        rest = (rewards - self.log.centres[played])[:, None] - self._means(arms.parameters, points)[played]
        rows = np.column_stack([np.ones(len(points)), points.places])
        return rest[:, None] * rows.T / arms.scale**2

    def mean_slopes(self, parameters: Float[Array, "A p"], points: Points) -> Float[Array, "K A p"]:
        rows = np.column_stack([np.ones(len(points)), points.places])
        return np.repeat(rows[:, None], len(parameters), axis=1)

    def best_scale(
        self, statistics: Float[Array, "Q P"], parameters: Float[Array, "A p"], scale: float, points: Points
    ) -> float:
        n_arms, model = len(parameters), self.model(parameters, scale, points)
        plays, sums = statistics[None, 1 : 1 + n_arms], statistics[None, 1 + n_arms : 1 + 2 * n_arms]
        return float(self.log.best_scales(model, plays, sums, self.log.prior(0.0))[0])

    def scale_of(self, rewards: Gaussian) -> float:
        return rewards.scale

    def noise(self, scale: float, unit: float) -> float:
        return scale**2

    def averaged(self, arms: TraitArms, points: Points) -> LatentBandit:
        """Means are linear in the parameters, so that averaging changes nothing."""
        return self.log.bandit(self.model(arms.parameters, arms.scale, points)[0], len(points))


def misfit(bandit: LatentBandit, sessions: Sessions | Packed) -> list[str]:
    """Why the normal rewards of `bandit` do not describe `sessions`; nothing where they do.

    Examples:
        >>> import numpy as np, lmab
        >>> rewards = np.zeros((50, 4))
        >>> rewards[:, 0] = np.arange(1, 51)
        >>> log = lmab.Sessions.from_arrays(np.zeros((50, 4), int), rewards)
        >>> misfit(lmab.LatentBandit.gaussian([1.0], [[1.0]], scale=8.0), log)[0][:41]
        'normal rewards do not fit: 75% of the rew'
    """
    some = sessions[:: max(1, -(-sessions.n_steps // _STEPS))]
    rewards = some.rewards
    values, counts = np.unique(rewards, return_counts=True)
    if len(values) == 1:
        return []  # a log that tells nothing is told about elsewhere
    often = int(counts.argmax())
    remedy = "promises made from this model may be far too high; cut the rewards into bins (rewards 'binned')"
    if counts[often] > _ONE_VALUE * len(rewards):
        share = counts[often] / len(rewards)
        return [f"normal rewards do not fit: {share:.0%} of the rewards are exactly {values[often]:g}: {remedy}"]
    distance = _distance(_below(bandit, some))
    if distance > _DISTANCE + _NOISE / np.sqrt(len(rewards)):
        return [
            f"normal rewards do not fit: the shares of rewards below a value differ by up to {distance:.0%} from the "
            f"model's (up to {_DISTANCE:.0%} is no matter): {remedy}"
        ]
    return []


def _below(bandit: LatentBandit, sessions: Sessions) -> Float[Array, "S"]:
    """Probability of a lower reward, given the session before it: uniform where the model is right.

    So arms may have been chosen by a policy that looks at rewards.
    """
    from scipy.special import ndtr

    shares, means = np.empty(sessions.n_steps), belief.expected_rewards(bandit, sessions)
    for places, beliefs in belief.predictive_beliefs(bandit, sessions):
        distances = sessions.rewards[places][:, None] - means[places]
        shares[places] = np.einsum("nm,nm->n", ndtr(distances / bandit.rewards.spread), beliefs)
    return shares


def _distance(shares: Float[Array, "n"]) -> float:
    """The largest difference to the uniform distribution (Kolmogorov's)."""
    ordered, n = np.sort(shares), len(shares)
    ranks = np.arange(n + 1) / n
    return float(max((ranks[1:] - ordered).max(), (ordered - ranks[:-1]).max()))


def _unrelated(train: Sessions, test: Sessions) -> Float[Array, "N"]:
    """log-likelihood of each test session where each arm's mean is normal, anew in every session."""
    plays = np.bincount(train.arms, minlength=train.n_arms)
    centre = train.rewards.mean()
    means = (np.bincount(train.arms, train.rewards, train.n_arms) + centre) / (plays + 1)
    fits = []
    for ratio in _RATIOS:
        variance = _profile_variance(train, means, ratio)
        fits.append((_log_normal(train, means, variance, ratio).sum(), variance, ratio))
    _, variance, ratio = max(fits)
    return _log_normal(test, means, variance, ratio)


def _profile_variance(sessions: Sessions, means: Float[Array, "A"], ratio: float) -> float:
    """The variance within sessions that fits best, given the ratio of that between them."""
    _, size, within, between = _within_and_between(sessions, means)
    return float((within + size * between**2 / (1 + size * ratio)).sum() / sessions.n_steps)


def _log_normal(sessions: Sessions, means: Float[Array, "A"], variance: float, ratio: float) -> Float[Array, "N"]:
    groups, size, within, between = _within_and_between(sessions, means)
    quadratic = within + size * between**2 / (1 + size * ratio)
    scores = -0.5 * (size * np.log(2 * np.pi * variance) + np.log1p(size * ratio) + quadratic / variance)
    return np.bincount(groups.session, scores, len(sessions))


def _within_and_between(
    sessions: Sessions, means: Float[Array, "A"]
) -> tuple[SessionArms, Float[Array, "G"], Float[Array, "G"], Float[Array, "G"]]:
    """Per group: its size, squared deviations from its own mean, and that mean's deviation from the arm's."""
    groups = SessionArms.of(sessions)
    deviation = sessions.rewards - means[sessions.arms]
    size = groups.sums()
    between = groups.sums(deviation) / size
    return groups, size, np.maximum(groups.sums(deviation**2) - size * between**2, 0.0), between
