"""Normal rewards with one standard deviation, and all that estimation asks of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Bool, Float, Integer, Shaped
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..errors import InvalidArgument
from ..model import belief
from ..model.bandit import LatentBandit
from ..model.gaussian import Gaussian
from . import low_rank
from .arm_law import GaussianArms
from .information import Coordinates, Information, check_size, normalised, summed, with_weights, within_support
from .log import (
    Chain,
    Confinement,
    EMMap,
    InFiles,
    InMemory,
    Models,
    Observations,
    Prior,
    StartModels,
    Steps,
    count_parameters,
    equal_weights,
    expectation,
    frozen,
    log_likelihoods,
    normalised_weights,
    padded,
)
from .passes import SERIAL, Arrays, Passes
from .traits.surface import Arms, Points, Surface

_BYTES = 8  # of a residual
_LEAST_SCALE = 1e-6  # of the rewards' own deviation: below it the likelihood has no maximum
_SESSIONS = 1 << 16  # added up together, in memory too, so that a packed log has the same bits
_SHRINK = 0.02  # an extrapolation may take a weight down to this part of what it was
_SHRINK_SCALE = 0.5  # ... and the scale to this
_SMOOTHING = 5.0  # pseudo-plays at the arm's mean in a model made of clusters
_DEVIATION = 0.5  # of a random mean from the arm's, in standard deviations of the rewards
_LEAST_WEIGHT = 0.02  # of a cluster
_LEAST = 1e-9  # a weight never falls below
_STEPS = 100_000  # of a larger log are looked at, in whole sessions
_ONE_VALUE = 0.2  # share of one single value above which rewards are no measurements
_NOISE = 1.63  # over the root of the number of rewards: what the distance reaches by chance in 1 of 100 logs
_DISTANCE = 0.08  # between the two distributions of rewards, above which promises were seen to be wrong


class Window(NamedTuple):
    """Arrays that hold sessions low to high - 1, perhaps among others."""

    arms: Shaped[Array, "S"]
    residuals: Float[Array, "S"]
    offsets: Integer[Array, "K1"]
    low: int
    high: int

    @property
    def own(self) -> Window:
        """The same sessions alone."""
        first, last = int(self.offsets[self.low]), int(self.offsets[self.high])
        offsets = self.offsets[self.low : self.high + 1] - first
        return Window(self.arms[first:last], self.residuals[first:last], offsets, 0, self.high - self.low)

    @property
    def arrays(self) -> Arrays:
        """(arms, lengths, no counts, residuals)."""
        return self.arms, np.diff(self.offsets), np.empty(0), self.residuals


@dataclass(frozen=True, eq=False)
class HeldSteps(InMemory):
    """Steps in memory."""

    arms: Shaped[Array, "S"]  # unsigned, of the smallest size
    residuals: Float[Array, "S"]

    @property
    def n_bytes(self) -> int:
        return _BYTES * self.n_steps

    def window(self, low: int, high: int, room: Integer[Array, "m"] | None = None) -> Window:
        return Window(self.arms, self.residuals, self.offsets, low, high)


@dataclass(frozen=True, eq=False)
class FiledSteps(InFiles):
    """Steps in the files of a packed log, whose codes are looked up, or are arms with their rewards beside them."""

    centres: Float[Array, "A"]
    arms: Shaped[Array, "c"] | None  # of each code; None: itself
    residuals: Float[Array, "c"] | None  # of each code

    @property
    def n_bytes(self) -> int:
        return _BYTES * self.n_steps

    @property
    def held(self) -> HeldSteps:
        window = self.window(0, self.n_all)
        return HeldSteps(window.offsets, window.arms, window.residuals)

    def window(self, low: int, high: int, room: Integer[Array, "m"] | None = None) -> Window:
        if self.arms is not None and self.residuals is not None:
            offsets, codes = self.partitions.part(low, high, "codes", room=room)
            arms, residuals = self.arms.take(codes), self.residuals.take(codes)
        else:
            offsets, arms, rewards = self.partitions.part(low, high, "codes", "rewards", room=room)
            residuals = rewards - self.centres.take(arms)
        return Window(frozen(arms), frozen(residuals), frozen(offsets), 0, high - low)


def centred(sessions: Sessions | Packed, centres: Float[Array, "A"]) -> Steps:
    """The steps of a log, with the rewards of each arm less its centre."""
    smallest = np.min_scalar_type(sessions.n_arms - 1)
    if isinstance(sessions, Sessions):
        residuals = sessions.rewards - centres[sessions.arms]
        return HeldSteps(frozen(sessions.offsets), frozen(sessions.arms.astype(smallest)), frozen(residuals))
    if sessions.values is None:
        return FiledSteps(sessions.partitions, centres, None, None)
    arms = np.repeat(np.arange(sessions.n_arms), len(sessions.values)).astype(smallest)
    residuals = (sessions.values - centres[:, None]).ravel()
    return FiledSteps(sessions.partitions, centres, arms, residuals)


@dataclass(frozen=True, eq=False)
class GaussianLog:
    """A log with rewards centred arm by arm."""

    sessions: Sessions | Packed  # as they were given
    known_scale: float | None  # None: estimated
    centres: Float[Array, "A"]  # mean reward of each arm; an arm never played gets that of all arms
    steps: Steps

    @classmethod
    def encode(
        cls, sessions: Sessions | Packed, known_scale: float | None, centres: Float[Array, "A"] | None = None
    ) -> GaussianLog:
        """The log, centred at each arm's mean where no other centres are given."""
        centres = _means(sessions) if centres is None else centres
        return cls(sessions, known_scale, centres, centred(sessions, centres))

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle holds: nothing that is computed again as easily."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @cached_property
    def held(self) -> HeldSteps:
        """All steps in memory."""
        return self.steps.held

    @property
    def arms(self) -> Shaped[Array, "S"]:
        """Unsigned, of the smallest size."""
        return self.held.arms

    @property
    def residuals(self) -> Float[Array, "S"]:
        """Rewards less the centre of their arm."""
        return self.held.residuals

    @property
    def offsets(self) -> Integer[Array, "N1"]:
        return self.held.offsets

    @property
    def n_steps(self) -> int:
        return self.steps.n_steps

    @property
    def n_arms(self) -> int:
        return self.sessions.n_arms

    @property
    def n_sums(self) -> int:
        return 1 + 2 * self.n_arms

    @cached_property
    def largest(self) -> float:
        return max(float(np.abs(residuals).max()) for residuals in self._pieces()) or 1.0

    def partitions(self) -> Iterable[Arrays]:
        """(arms, lengths, no counts, residuals) of parts of the log."""
        return self.steps.stretches()

    @property
    def n_distinct(self) -> int:
        return self.steps.n_distinct

    @cached_property
    def plays(self) -> Integer[Array, "A"]:
        return self.sessions.plays

    @property
    def played(self) -> Bool[Array, "A"]:
        return self.plays > 0

    @cached_property
    def squares(self) -> float:
        """Sum of the squared residuals."""
        return float(sum((residuals**2).sum() for residuals in self._pieces()))

    def _pieces(self) -> Iterator[Float[Array, "_"]]:
        """The residuals, some sessions at a time."""
        n = self.steps.n_all
        for low in range(0, n, _SESSIONS):
            yield self.steps.window(low, min(low + _SESSIONS, n)).own.residuals

    @cached_property
    def spread(self) -> float:
        """Standard deviation of the rewards around their arm's mean."""
        return float(np.sqrt(self.squares / self.n_steps))

    @property
    def least_scale(self) -> float:
        return _LEAST_SCALE * max(self.spread, np.finfo(float).tiny ** 0.25)


def _means(sessions: Sessions | Packed) -> Float[Array, "A"]:
    """The mean reward of each arm, that of all arms for an arm that was never played."""
    plays, sums = np.zeros(sessions.n_arms), np.zeros(sessions.n_arms)
    for chunk in sessions.chunks(_SESSIONS):
        plays += np.bincount(chunk.arms, minlength=sessions.n_arms)
        sums += np.bincount(chunk.arms, chunk.rewards, minlength=sessions.n_arms)
    return np.where(plays > 0, sums / np.maximum(plays, 1), sums.sum() / plays.sum())


@dataclass(frozen=True, eq=False)
class GaussianObservations(Observations):
    log: GaussianLog
    family = Gaussian.family

    @classmethod
    def encode(cls, sessions: Sessions | Packed, known_scale: float | None) -> GaussianObservations:
        """The log with rewards centred at each arm's mean; a scale that is not known must be there to be estimated."""
        log = GaussianLog.encode(sessions, known_scale)
        if known_scale is None and log.spread == 0:
            raise InvalidArgument(
                "scale must be given where no arm's rewards ever differ: there is none to estimate, got None"
            )
        return cls(log)

    @property
    def known_scale(self) -> float | None:
        return self.log.known_scale

    @property
    def sessions(self) -> Sessions | Packed:  # type: ignore[override]
        return self.log.sessions

    @property
    def values(self) -> None:
        return None

    @property
    def n_distinct(self) -> int:
        return self.log.n_distinct

    @property
    def multiplicity(self) -> Float[Array, "n"]:
        return np.ones(self.n_distinct)

    @property
    def n_features(self) -> int:
        return self.log.n_arms

    def n_parameters(self, n_types: int, rank: int | None = None) -> int:
        scale = int(self.log.known_scale is None)
        return count_parameters(n_types, int(self.log.played.sum()), rank) + scale

    def subset(self, rows: Integer[Array, "n"]) -> GaussianObservations:
        """With the centres of the whole log, so that models of one fit the other."""
        part = GaussianLog.encode(self.sessions[rows], self.log.known_scale, self.log.centres)
        return GaussianObservations(part)

    def prior(self, strength: float) -> Prior:
        return Prior.equal(self.log.centres, strength)

    @property
    def models(self) -> GaussianModels:
        return GaussianModels(self.log)

    @property
    def start_models(self) -> GaussianStartModels:
        return GaussianStartModels(self.log)

    @property
    def surface(self) -> GaussianSurface:
        return GaussianSurface(self.log)

    def em_map(self, prior: Prior) -> GaussianMap:
        return GaussianMap(self.log, prior)

    def confinement(self, prior: Prior, n_types: int, rank: int) -> GaussianConfinement:
        return GaussianConfinement(self.em_map(prior), n_types, rank)

    def chain(self, bandit: LatentBandit) -> GaussianChain:
        return GaussianChain(self.log, bandit)

    def information(self, bandit: LatentBandit, prior: Prior, passes: Passes = SERIAL) -> Information:
        return gaussian_information(self.log, bandit.weights, gaussian(bandit), prior, passes)

    def heldout(self, bandit: LatentBandit, passes: Passes = SERIAL) -> Float[Array, "N"]:
        return log_likelihoods(bandit, self.sessions, passes)


@dataclass(frozen=True, eq=False)
class GaussianModels(Models):
    log: GaussianLog

    def pack(self, bandit: LatentBandit) -> Float[Array, "1 K P"]:
        rewards = gaussian(bandit)
        model = np.zeros((1, self.log.n_arms + 2, padded(bandit.n_types)))
        model[0, 0, : bandit.n_types] = bandit.weights
        model[0, 1:-1, : bandit.n_types] = (rewards.means - self.log.centres).T
        model[0, -1] = rewards.scale
        return model

    def bandit(self, model: Float[Array, "K P"], n_types: int) -> LatentBandit:
        weights = model[0, :n_types] / model[0, :n_types].sum()
        means = model[1:-1, :n_types].T + self.log.centres
        return LatentBandit(weights, Gaussian(means, float(model[-1, 0])), self.log.sessions.arm_labels)

    def from_moments(self, weights: Float[Array, "M"], vectors: Float[Array, "M D"]) -> LatentBandit:
        """Means are taken as they are."""
        means = np.where(self.log.played, vectors, self.log.centres)
        rewards = Gaussian(means, self._scale(weights, means))
        return LatentBandit(weights, rewards, self.log.sessions.arm_labels)

    def _scale(self, weights: Float[Array, "M"], means: Float[Array, "M A"]) -> float:
        """What is left of the rewards' variance once the types have explained their part."""
        log = self.log
        if log.known_scale is not None:
            return log.known_scale
        between = weights @ (means - log.centres) ** 2
        left = log.spread**2 - float(log.plays / log.plays.sum() @ between)
        return float(np.sqrt(max(left, log.least_scale**2)))


def gaussian(bandit: LatentBandit) -> Gaussian:
    """The bandit's rewards, which must be of this family."""
    if not isinstance(bandit.rewards, Gaussian):
        raise InvalidArgument(f"bandit must have normal rewards, as this log was read, got {bandit}")
    return bandit.rewards


@dataclass(frozen=True, eq=False)
class GaussianMap(EMMap):
    log: GaussianLog
    prior: Prior

    def expectation(
        self, models: Float[Array, "R K P"], passes: Passes
    ) -> tuple[Float[Array, "R Q P"], Float[Array, "R"]]:
        log = self.log
        elsewhere = passes.expectation(log, models)
        if elsewhere is not None:
            scales = models[:, -1, 0] * np.sqrt(2 * np.pi)
            return elsewhere[0], elsewhere[1] - log.n_steps * np.log(scales)
        return expectation("gaussian", log.steps, models, log.n_sums, passes)

    def maximise(self, statistics: Float[Array, "R Q P"], models: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        plays, sums = self.with_prior(statistics)
        result = models.copy()
        result[:, 0] = normalised_weights(statistics[:, 0])
        np.divide(sums, plays, out=result[:, 1:-1], where=plays > 0)
        result[:, -1] = self.best_scales(result, plays, sums)[:, None]
        return result

    def with_prior(self, statistics: Float[Array, "R Q P"]) -> tuple[Float[Array, "R A P"], Float[Array, "R A P"]]:
        """Plays, and sums of centred rewards, with those of the prior."""
        n_arms = self.log.n_arms
        plays = statistics[:, 1 : 1 + n_arms] + self.prior.strength[:, None]
        return plays, statistics[:, 1 + n_arms :] + (self.prior.strength * self._pull)[:, None]

    @property
    def _pull(self) -> Float[Array, "A"]:
        """The prior's centres as the models' means are: less the log's."""
        return self.prior.centre - self.log.centres

    def best_scales(
        self, models: Float[Array, "R K m"], plays: Float[Array, "R A m"], sums: Float[Array, "R A m"]
    ) -> Float[Array, "R"]:
        """The best scale for the models' means, given what `with_prior` gives; the known one where it is known.

        The penalty of the prior counts as squared deviation, so that the map climbs likelihood plus prior.
        """
        if self.log.known_scale is not None:
            return models[:, -1, 0]
        means = models[:, 1:-1]
        squares = self.log.squares + means.shape[2] * float(self.prior.strength @ self._pull**2)
        rest = squares - 2 * (means * sums).sum(axis=(1, 2)) + (means**2 * plays).sum(axis=(1, 2))
        return np.sqrt(np.maximum(rest / self.log.n_steps, self.log.least_scale**2))

    def log_prior(self, models: Float[Array, "R K M"]) -> Float[Array, "R"]:
        deviations = (models[:, 1:-1] - self._pull[:, None]) / models[:, -1:]
        return -0.5 * np.einsum("a,ram->r", self.prior.strength, deviations**2)

    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        trial = trial.copy()
        trial[:, 0] = normalised_weights(trial[:, 0], _SHRINK * near[:, 0])
        trial[:, -1] = np.maximum(trial[:, -1], _SHRINK_SCALE * near[:, -1])
        return trial


@dataclass(frozen=True, eq=False)
class GaussianStartModels(StartModels):
    log: GaussianLog

    def random(self, n_models: int, n_types: int, rng: np.random.Generator) -> Float[Array, "R K P"]:
        models = self._empty(n_models, n_types)
        shape = (n_models, self.log.n_arms, n_types)
        draws = _DEVIATION * self.log.spread * rng.standard_normal(shape)
        models[:, 1:-1, :n_types] = np.where(self.log.played[:, None], draws, 0.0)
        return models

    def clustered(self, labels: Integer[Array, "n"], n_types: int) -> Float[Array, "1 K P"]:
        log, n_arms, empty = self.log, self.log.n_arms, self._empty(1, n_types)
        statistics = np.zeros((1, 1 + 2 * n_arms, empty.shape[2]))
        np.add.at(statistics[0, 0], labels, 1.0)
        end = log.offsets[len(labels)]
        arms, owners = log.arms[:end].astype(np.int64), np.repeat(labels, np.diff(log.offsets[: len(labels) + 1]))
        np.add.at(statistics[0, 1:], (arms, owners), 1.0)
        np.add.at(statistics[0, 1 + n_arms :], (arms, owners), log.residuals[:end])
        model = GaussianMap(log, Prior.equal(log.centres, _SMOOTHING)).maximise(statistics, empty)
        model[:, -1] = empty[:, -1]
        model[:, 0, :n_types] = normalised_weights(model[:, 0, :n_types], _LEAST_WEIGHT)
        return model

    def soften(self, models: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        return models  # no normal reward is impossible

    def features(self) -> tuple[Any, Float[Array, "D"]]:
        from scipy.sparse import csr_array

        log = self.log
        steps = (log.residuals, log.arms.astype(np.int64), log.offsets)
        squares = np.bincount(log.arms, log.residuals**2, minlength=log.n_arms)
        return csr_array(steps, shape=(log.n_distinct, log.n_arms)), squares

    def centre(self, features: Float[Array, "D k"]) -> Float[Array, "D k"]:
        return features  # rewards are centred already

    def _empty(self, n_models: int, n_types: int) -> Float[Array, "R K P"]:
        log, models = self.log, equal_weights(n_models, self.log.n_arms + 2, n_types)
        models[:, -1] = max(log.spread, log.least_scale) if log.known_scale is None else log.known_scale
        return models


@dataclass(frozen=True, eq=False)
class GaussianConfinement(Confinement):
    em_map: GaussianMap
    n_types: int
    rank: int

    def project(self, model: Float[Array, "K P"]) -> Float[Array, "K P"]:
        result = model.copy()
        result[1:-1, : self.n_types] = self._nearest(model).table
        return result

    def maximise(self, statistics: Float[Array, "Q P"], model: Float[Array, "K P"]) -> Float[Array, "K P"]:
        plays, sums = (part[..., : self.n_types] for part in self.em_map.with_prior(statistics[None]))
        result = model.copy()
        result[0] = normalised_weights(statistics[None, 0])[0]
        fit = low_rank.improve_gaussian(self._nearest(model), plays[0], sums[0])
        result[1:-1, : self.n_types] = fit.table
        result[-1] = self.em_map.best_scales(result[None, :, : self.n_types], plays, sums)[0]
        return result

    def _nearest(self, model: Float[Array, "K P"]) -> low_rank.LowRank:
        return low_rank.project(model[1:-1, : self.n_types], model[0, : self.n_types], self.rank)


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


def gaussian_information(
    log: GaussianLog, weights: Float[Array, "M"], rewards: Gaussian, prior: Prior, passes: Passes
) -> Information:
    """The information of the log and the prior."""
    scale_is_known = log.known_scale is not None
    size = len(weights) + rewards.means.size + (not scale_is_known)
    check_size(len(weights), size)
    part = partial(_part, log, weights, rewards)
    matrix = summed(part, log.steps, size, passes)
    strength = np.repeat(prior.strength[:, None], len(weights), axis=1)
    deviations = (prior.centre[:, None] - rewards.means.T) / rewards.scale
    _add_seen(matrix, strength, strength * deviations, strength * deviations**2)
    matrix = with_weights(matrix[:size, :size], weights, float(log.n_distinct))
    return Information(matrix, GaussianCoordinates(weights, rewards, log.played, scale_is_known))


def _part(log: GaussianLog, weights: Float[Array, "M"], rewards: Gaussian, low: int, high: int) -> Float[Array, "Q Q"]:
    """What some sessions tell about means and scale, less what is missing because their types are not seen."""
    n_types, n_arms = rewards.means.shape
    window = log.steps.window(low, high).own
    offsets, arms = window.offsets, window.arms.astype(np.int64)
    deviations = (window.residuals[:, None] - (rewards.means - log.centres).T[arms]) / rewards.scale  # (S, M)
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
    scores = np.add.reduceat(deviations**2 - 1, offsets[:-1], axis=0)  # of the logarithm of the scale
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

    @property
    def played(self) -> Bool[Array, "A"]:
        return self.log.played

    def scale(self) -> float:
        return self.unit if self.log.known_scale is None else self.log.known_scale

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
        sums = csr_array((np.array(log.residuals), arms, log.offsets), shape=shape)
        return sums, csr_array((np.ones(len(arms)), arms, log.offsets), shape=shape), np.ones(log.n_arms)

    def model(self, parameters: Float[Array, "A p"], scale: float, points: Points) -> Float[Array, "1 K P"]:
        result = np.zeros((1, self.log.n_arms + 2, padded(len(points))))
        result[0, 0, : len(points)] = points.weights
        result[0, 1:-1, : len(points)] = self._means(parameters, points)
        result[0, -1] = scale
        return result

    def _means(self, parameters: Float[Array, "A p"], points: Points) -> Float[Array, "A K"]:
        """From each arm's own centre, as models hold them."""
        return (parameters[:, 0] - self._middles)[:, None] + parameters[:, 1:] @ points.places.T

    def derivatives(
        self, statistics: Float[Array, "Q P"], parameters: Float[Array, "A p"], scale: float, points: Points
    ) -> tuple[Float[Array, "A p"], Float[Array, "A p p"]]:
        n_arms, p = parameters.shape
        plays, sums = statistics[1 : 1 + n_arms, : len(points)], statistics[1 + n_arms :, : len(points)]
        rows = np.column_stack([np.ones(len(points)), points.places])
        gradient = (sums - plays * self._means(parameters, points)) @ rows
        information = (plays @ np.einsum("ki,kj->kij", rows, rows).reshape(len(rows), -1)).reshape(n_arms, p, p)
        return gradient / scale**2, information / scale**2

    def scores(
        self, played: Integer[Array, "S"], rewards: Float[Array, "S"], arms: Arms, points: Points
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
        plays, sums = statistics[None, 1 : 1 + n_arms], statistics[None, 1 + n_arms :]
        without = GaussianMap(self.log, Prior.equal(self.log.centres, 0.0))
        return float(without.best_scales(model, plays, sums)[0])

    def averaged(self, arms: Arms, points: Points) -> LatentBandit:
        """Means are linear in the parameters, so that averaging changes nothing."""
        return GaussianModels(self.log).bandit(self.model(arms.parameters, arms.scale, points)[0], len(points))


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
    remedy = "promises made from this model may be far too high; pass rewards='binned'"
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

    shares = np.empty(sessions.n_steps)
    for places, beliefs in belief.before_steps(bandit, sessions):
        distances = sessions.rewards[places][:, None] - bandit.means.T[sessions.arms[places]]
        shares[places] = np.einsum("nm,nm->n", ndtr(distances / bandit.rewards.spread), beliefs)
    return shares


def _distance(shares: Float[Array, "n"]) -> float:
    """The largest difference to the uniform distribution (Kolmogorov's)."""
    ordered, n = np.sort(shares), len(shares)
    ranks = np.arange(n + 1) / n
    return float(max((ranks[1:] - ordered).max(), (ordered - ranks[:-1]).max()))
