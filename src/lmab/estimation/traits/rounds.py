"""The rounds of a traits fit: EM's own expectation step, and one small regression per arm (Bock and Aitkin, 1981).

Under the learned prior the parameters of arms are drawn from a normal law whose centre and variances are estimated in
every round from the arms themselves. A factor that the log does not support loses its variance; what is then left of
it is a loading that all arms share, and which ranks them as their popularity does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..._shapes import Array, Float
from ...parallel import Passes
from ..log import Log
from .surface import Points, Surface, TraitArms

FIRST_VARIANCES = (4.0, 0.5)  # Squared units of intercepts and loadings, before the arms have told theirs.
NO_PRECISION = 1e-6  # Precision of the prior where none is wanted, so that what the log is silent about has an answer.
_LEAST_VARIANCE = 1e-4
_LONGEST = 2.0  # Longest step of a parameter in one iteration of Newton's.
_STEPS, _PLAIN_STEPS = 2, 4  # Newton's steps in a round, with a law of arms and without.
_TINY = 1e-6
_SHRINK = 5.0  # Pairs of plays without covariance that are added to each pair of arms.
_FILLINGS = 5  # Times that the diagonal, which holds noise, is filled in from the leading directions.
_DENSE = 400  # Arms up to which all eigenvectors are computed.
_MOST = 2000  # Arms that start with loadings, the most played ones.
_LEAST = 1e-4  # Least eigenvalue, so that no factor starts at 0, where it would stay.


@dataclass(frozen=True, eq=False)
class TraitsTask:
    """A log whose arms are fitted."""

    log: Log
    passes: Passes

    @property
    def surface(self) -> Surface:
        return self.log.surface

    def expectation(self, arms: TraitArms, points: Points) -> tuple[Float[Array, "Q P"], float]:
        """Expected statistics of the types, and the log-likelihood."""
        model = self.surface.model(arms.parameters, arms.scale, points)
        statistics, logs = self.log.expectation(model, self.passes)
        return statistics[0], float(logs[0])


def first_arms(data: Log, n_factors: int) -> TraitArms:
    """Intercepts of a model without factors, and loadings from the arms' covariances."""
    surface = data.surface
    loadings = start_loadings(data, n_factors) if n_factors else np.zeros((len(surface.played), 0))
    parameters = np.column_stack([surface.intercepts(), loadings])
    n_arms, p = parameters.shape
    variance = np.repeat(FIRST_VARIANCES, [surface.n_intercepts, n_factors]) * surface.unit**2
    return TraitArms(parameters, np.zeros((n_arms, p, p)), parameters.mean(axis=0), variance, surface.scale())


def learned_round(
    task: TraitsTask, arms: TraitArms, points: Points, *, expand: bool, learn: bool, equal: bool = False
) -> tuple[TraitArms, float]:
    """One round under the learned prior; the objective is that of the arms as they were given.

    `expand` moves how sessions spread over the points into the loadings, which speeds EM up; `learn` takes the law of
    arms from the arms; `equal` keeps their loadings alike.
    """
    surface = task.surface
    statistics, log_likelihood = task.expectation(arms, points)
    objective = evidence(arms, log_likelihood)
    gradient, information = surface.derivatives(statistics, arms.parameters, arms.scale, points)
    tiny = _TINY * np.eye(gradient.shape[1])
    shift = np.linalg.solve(information.sum(axis=0) + tiny, gradient.sum(axis=0))
    shift *= min(1.0, _LONGEST * surface.unit / max(np.abs(shift).max(initial=0.0), _TINY))
    # Without a shift common to all arms a small variance of the law would hold back what the arms share.
    arms = replace(arms, parameters=arms.parameters + shift, centre=arms.centre + shift)
    arms = regressed(surface, statistics, arms, points, _STEPS)
    if expand:
        arms = _expanded(surface, statistics[0, : len(points)], arms, points)
    if learn:
        arms = _law_learned(surface, arms)
    return _alike(surface, arms) if equal else arms, objective


def regressed(
    surface: Surface, statistics: Float[Array, "Q P"], arms: TraitArms, points: Points, steps: int
) -> TraitArms:
    """Each arm regressed on the points with the law as prior, by some of Newton's steps, and how unsure that is."""
    parameters, scale, precision = arms.parameters, arms.scale, 1 / arms.variance
    for step in range(steps + 1):
        gradient, information = surface.derivatives(statistics, parameters, scale, points)
        information = information + np.diag(precision)
        if step == steps:
            break
        pull = gradient - precision * (parameters - arms.centre)
        move = np.linalg.solve(information, pull[..., None])[..., 0]
        longest = np.abs(move).max(axis=1, keepdims=True, initial=0.0)
        parameters = parameters + move * np.minimum(1.0, _LONGEST * surface.unit / np.maximum(longest, _TINY))
    scale = surface.best_scale(statistics, parameters, scale, points)
    return replace(arms, parameters=parameters, covariance=np.linalg.inv(information), scale=scale)


def evidence(arms: TraitArms, log_likelihood: float) -> float:
    """log-likelihood with the parameters of arms integrated out, by Laplace's approximation (after a first round)."""
    deviations = ((arms.parameters - arms.centre) ** 2 / arms.variance).sum()
    if not arms.covariance.any():
        return float(log_likelihood - 0.5 * deviations)
    volume = np.linalg.slogdet(arms.covariance)[1].sum() - len(arms.parameters) * np.log(arms.variance).sum()
    return float(log_likelihood - 0.5 * deviations + 0.5 * volume)


def _expanded(surface: Surface, mass: Float[Array, "K"], arms: TraitArms, points: Points) -> TraitArms:
    """The same surface over factors u', where u = mean + root u' is how the sessions spread over the points."""
    q, share = surface.n_intercepts, mass / mass.sum()
    mean = share @ points.places
    centred = points.places - mean
    root = np.linalg.cholesky((centred * share[:, None]).T @ centred + _TINY * np.eye(points.n_factors))

    def moved(parameters: Float[Array, "n p"]) -> Float[Array, "n p"]:
        loadings = parameters[:, q:]
        return np.column_stack([parameters[:, :q] + np.outer(loadings @ mean, surface.slopes), loadings @ root])

    return replace(arms, parameters=moved(arms.parameters), centre=moved(arms.centre[None])[0])


def _law_learned(surface: Surface, arms: TraitArms) -> TraitArms:
    """The law that makes the arms which were played likeliest."""
    known = surface.played
    centre = arms.parameters[known].mean(axis=0)
    spread = ((arms.parameters[known] - centre) ** 2).mean(axis=0)
    variance = spread + np.einsum("ajj->j", arms.covariance[known]) / known.sum()
    return replace(arms, centre=centre, variance=variance.clip(_LEAST_VARIANCE * surface.unit**2))


def _alike(surface: Surface, arms: TraitArms) -> TraitArms:
    """The law without room for the loadings of single arms."""
    variance = arms.variance.copy()
    variance[surface.n_intercepts :] = _LEAST_VARIANCE * surface.unit**2
    return replace(arms, variance=variance)


@dataclass(frozen=True, eq=False)
class Plain:
    """Marginal maximum likelihood as something to climb: rows of a model are parameters by arm, the last the scale."""

    task: TraitsTask
    points: Points
    arms: TraitArms  # for the law, which says nothing

    @property
    def log(self) -> Log:
        return self.task.log

    def pack(self, arms: TraitArms) -> Float[Array, "1 K A"]:
        return np.column_stack([arms.parameters, np.full(len(arms.parameters), arms.scale)]).T[None]

    def unpack(self, model: Float[Array, "K A"]) -> TraitArms:
        return replace(self.arms, parameters=np.ascontiguousarray(model[:-1].T), scale=float(model[-1, 0]))

    def map(self, models: Float[Array, "R K A"]) -> tuple[Float[Array, "R"], Float[Array, "R K A"]]:
        objectives, ahead = [], []
        for model in models:
            arms = self.unpack(model)
            statistics, log_likelihood = self.task.expectation(arms, self.points)
            after = regressed(self.task.surface, statistics, arms, self.points, _PLAIN_STEPS)
            objectives.append(log_likelihood - 0.5 * NO_PRECISION * float((arms.parameters**2).sum()))
            ahead.append(self.pack(after)[0])
        return np.array(objectives), np.stack(ahead)

    def repair(self, trial: Float[Array, "R K A"], near: Float[Array, "R K A"]) -> Float[Array, "R K A"]:
        trial = trial.copy()
        trial[:, -1] = np.maximum(trial[:, -1], 0.5 * near[:, -1])
        return trial


def start_loadings(data: Log, n_factors: int) -> Float[Array, "A d"]:
    """Leading eigenvectors of the covariances of arms over pairs of different steps of a session."""
    sums, plays, unit = data.surface.deviations()
    n_arms = len(unit)
    chosen = np.sort(np.argsort(-plays.sum(axis=0), kind="stable")[:_MOST])
    loadings = np.zeros((n_arms, n_factors))
    loadings[chosen] = _leading(_covariance(sums[:, chosen], plays[:, chosen], data.multiplicity), n_factors)
    loadings *= np.where(loadings.sum(axis=0) < 0, -1.0, 1.0)
    return loadings / unit[:, None]


def _covariance(sums: Array, plays: Array, multiplicity: Float[Array, "N"]) -> Float[Array, "a a"]:
    """Of arms met in one session; where few sessions met a pair, near 0."""
    from scipy.sparse import diags_array

    counts = diags_array(multiplicity)
    products, pairs = ((part.T @ (counts @ part)).toarray() for part in (sums, plays))
    return products / (pairs + _SHRINK)


def _leading(matrix: Float[Array, "a a"], n_factors: int) -> Float[Array, "a d"]:
    """Eigenvectors times the roots of their eigenvalues, the diagonal filled in from them."""
    n = min(n_factors, len(matrix))
    np.fill_diagonal(matrix, 0.0)
    for _ in range(_FILLINGS):
        values, vectors = _eigen(matrix, n)
        np.fill_diagonal(matrix, ((vectors * values.clip(0)) * vectors).sum(axis=1))
    values, vectors = _eigen(matrix, n)
    found = np.zeros((len(matrix), n_factors))
    found[:, :n] = vectors * np.sqrt(values.clip(_LEAST))
    return found


def _eigen(matrix: Float[Array, "a a"], n: int) -> tuple[Float[Array, "n"], Float[Array, "a n"]]:
    """The n largest eigenvalues, largest first, and their vectors."""
    if len(matrix) <= _DENSE:
        values, vectors = np.linalg.eigh(matrix)
    else:
        from scipy.sparse.linalg import eigsh

        values, vectors = eigsh(matrix, k=n, which="LA", v0=np.ones(len(matrix)) + np.arange(len(matrix)))
    order = np.argsort(-values, kind="stable")[:n]
    return values[order], vectors[:, order]
