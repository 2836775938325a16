"""Observed information about the arms of a traits model, by Louis' identity.

It is the information of a log in which the point of every session was seen, plus that of the law of arms, less what is
missing because the points were not seen: the covariance, over a session's posterior, of the gradient of its complete
log-likelihood. Factors that are not alive are left as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._shapes import Array, Bool, Float
from ...data.sessions import Sessions
from ...model import belief
from ...model.bandit import LatentBandit
from ...parallel import Passes
from ..information import Coordinates, Information, check_size
from ..log import Log
from ..passes import spans
from .rounds import TraitsTask
from .surface import Factors, Points, Surface, TraitArms

_STEPS = 4096  # Steps whose gradients are held at once.
_SESSIONS = 2000  # Sessions of a larger log that tell what is missing, in proportion.


@dataclass(frozen=True, eq=False)
class TraitCoordinates(Coordinates):
    """Intercepts and live loadings, arm by arm."""

    weights: Float[Array, "K"]
    played: Bool[Array, "A"]
    surface: Surface
    arms: TraitArms  # with the live factors only
    points: Points  # Points of the live factors.

    @property
    def size(self) -> int:
        return int(self.arms.parameters.size)

    @property
    def fixed(self) -> Bool[Array, "K A"]:
        return np.tile(~self.played, (len(self.points), 1))

    @property
    def fixed_weights(self) -> Bool[Array, "K"]:
        return np.ones(len(self.points), bool)

    def free(self) -> Any:
        from scipy.sparse import eye_array

        return eye_array(self.size, format="csr")

    def means_along(self, directions: Float[Array, "P F"]) -> Float[Array, "K A F"]:
        n_arms, p = self.arms.parameters.shape
        slopes = self.surface.mean_slopes(self.arms.parameters, self.points)
        return np.einsum("kap,apf->kaf", slopes, directions.reshape(n_arms, p, -1))

    def weights_along(self, directions: Float[Array, "P F"]) -> Float[Array, "K F"]:
        return np.zeros((len(self.points), directions.shape[1]))

    def moved(self, moves: Float[Array, "B P"]) -> list[Any]:
        parameters = self.arms.parameters
        drawn = (TraitArms(parameters + move.reshape(parameters.shape), *_rest(self.arms)) for move in moves)
        return [self.surface.bandit(arms, self.points).rewards for arms in drawn]

    def shrunk(self, moves: Float[Array, "B P"], shares: Float[Array, "B d"]) -> Float[Array, "B P"]:
        """The moves after which loadings on each factor have only a share of their size."""
        n_arms, p = self.arms.parameters.shape
        moved = self.arms.parameters + moves.reshape(len(moves), n_arms, p)
        moved[..., p - shares.shape[1] :] *= shares[:, None]
        return (moved - self.arms.parameters).reshape(len(moves), -1)

    def with_one_more(
        self, moves: Float[Array, "B P"], loadings: Float[Array, "B A"], places: Float[Array, "K"]
    ) -> list[Any]:
        """The rewards after every move, with one more factor, which the points have these places on."""
        points = Points(np.column_stack([self.points.places, places]), self.points.weights)
        n_arms, p = self.arms.parameters.shape
        wider = [
            np.column_stack([self.arms.parameters + move.reshape(n_arms, p), own])
            for move, own in zip(moves, loadings, strict=True)
        ]
        nothing = np.zeros((n_arms, p + 1, p + 1)), np.zeros(p + 1), np.ones(p + 1)
        return [self.surface.bandit(TraitArms(each, *nothing, self.arms.scale), points).rewards for each in wider]

    def moved_weights(self, moves: Float[Array, "B P"]) -> Float[Array, "B K"]:
        return np.tile(self.weights, (len(moves), 1))


def _rest(arms: TraitArms) -> tuple[Any, ...]:
    return arms.covariance, arms.centre, arms.variance, arms.scale


def traits_information(log: Log, factors: Factors, bandit: LatentBandit, passes: Passes) -> Information:
    """The information of the log and the law of arms about all arms."""
    surface, alive = log.surface, factors.alive
    kept = np.r_[np.ones(surface.n_intercepts, bool), alive]
    parameters = np.column_stack([factors.intercepts, factors.loadings[:, alive]])
    check_size(bandit.n_types, parameters.size)
    points = Points(factors.points[:, alive], bandit.weights)
    spread = factors.spread[np.ix_(kept, kept)]
    arms = TraitArms(
        parameters,
        factors.covariance[:, kept][:, :, kept],
        factors.centre[kept],
        np.diag(spread),
        surface.scale_of(bandit.rewards),
    )
    statistics, _ = TraitsTask(log, passes).expectation(arms, points)
    _, seen = surface.derivatives(statistics, parameters, arms.scale, points)
    matrix = -_missing(log, arms, points)
    n_arms, p = parameters.shape
    blocks = matrix.reshape(n_arms, p, n_arms, p)
    everyone = np.arange(n_arms)
    blocks[everyone, :, everyone, :] += seen + np.linalg.inv(spread)
    return Information(matrix, TraitCoordinates(bandit.weights, surface.played, surface, arms, points))


def hidden_size(log: Log, scale: float) -> float:
    """Root mean square of loadings up to which a factor would hide in the noise of the arms' covariances.

    A pair of arms that met in m sessions has a covariance with error noise / sqrt(m). The covariances of A arms that
    load w on a factor have the eigenvalue A w^2 unit^2 and show it above that of the noise, sqrt(A / m) noise; twice
    that is seen for sure.
    """
    n, played = len(log.sessions), log.surface.played
    rows = np.linspace(0, n - 1, min(n, _SESSIONS)).astype(np.int64)
    _, _, unit = log.subset(rows).surface.deviations()
    steps = np.diff(log.sessions[rows].offsets).astype(np.float64)
    n_arms, typical = int(played.sum()), float(unit[played].mean())
    pairs = n * float((steps * (steps - 1)).mean()) / n_arms**2  # sessions that met an average pair of arms
    noise = log.surface.noise(scale, typical)
    return float(np.sqrt(2 * noise / (typical**2 * np.sqrt(max(pairs * n_arms, 1.0)))))


def _missing(log: Log, arms: TraitArms, points: Points) -> Float[Array, "P P"]:
    """What is missing, from a sample of a large log."""
    n = len(log.sessions)
    some = log.sessions[np.linspace(0, n - 1, min(n, _SESSIONS)).astype(np.int64)]
    model = log.surface.bandit(arms, points)
    parts = (_part(log.surface, some, model, arms, points, *one) for one in spans(some.offsets, _STEPS))
    total = next(parts)
    for part in parts:
        total += part
    return total * (n / len(some))


def _part(
    surface: Surface, sessions: Sessions, model: LatentBandit, arms: TraitArms, points: Points, low: int, high: int
) -> Float[Array, "P P"]:
    """The sum over some sessions of the covariance of their gradients."""
    n_arms, p = arms.parameters.shape
    some = sessions[slice(low, high)]
    shares = belief.posterior(model, some)
    scores = surface.scores(some.arms, some.rewards, arms, points)  # (S, p, K)
    result = np.zeros((n_arms * p, n_arms * p))
    for i in range(len(some)):
        steps = slice(some.offsets[i] - some.offsets[0], some.offsets[i + 1] - some.offsets[0])
        arm, inverse = np.unique(some.arms[steps], return_inverse=True)
        own = np.zeros((len(arm), p, len(points)))
        np.add.at(own, inverse, scores[steps])
        flat = own.reshape(-1, len(points))
        mean = flat @ shares[i]
        rows = (arm[:, None] * p + np.arange(p)).ravel()
        result[np.ix_(rows, rows)] += (flat * shares[i]) @ flat.T - np.outer(mean, mean)
    return result
