"""Traits: sessions that differ by degrees instead of by kinds, as a bandit of many types on a smooth surface."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..._html import listing
from ..._shapes import Array, Bool, Float, Integer
from ...checks import COUNT, NOT_NEGATIVE, OneOf, check_fields, optional
from ...data.sessions import sample_rows
from ...errors import InvalidArgument, Status
from ...model.bandit import LatentBandit
from ...parallel import Threads
from ..climb import climb
from ..log import LEARNED, Log
from ..result import Capabilities, Estimate, Estimator, Progress, Request, Starts
from .rounds import NO_PRECISION, Plain, TraitsTask, first_arms, learned_round
from .surface import ALIVE, Factors, Points, Surface, TraitArms, blocks

_COARSE, _FINE, _SETTLE = 35, 12, 8  # rounds on a quarter of the points, on all, and on all without expansion
_WARM = 3  # rounds before the law of arms is first learned
_PILOT = 25_000  # sessions of a larger log that the rounds on few points are made with
_CLOSER, _CHEAP = 3e-4, 10_000  # without a prior climbs are accelerated, and judged more strictly on small logs
_SAMPLE = 2000  # sessions on which the points are doubled
SURE = 2.0  # Standard errors by which the fit's own list must be ahead.
_KNOWN = 0.5  # Part of what the log says about the average arm, from which on an arm counts as known.
_ROUNDING = 1e-9  # Part of a sum of rewards that is rounding.


@dataclass(frozen=True)
class Traits(Estimator):
    """Continuous types: log-odds of arm a in a session with factors u are b[a] + w[a].u, with u normal.

    The result is a latent bandit of `n_points` types, which lie at points of the factors, so that belief, planners,
    files and reports work on it as on any other. People differ by degrees more often than by kinds; where no factor
    tells arms apart, arms rank by their mean rewards in the log, unless the fit is sure that this loses. Arms are
    questions and u is ability in adaptive testing (item response theory): one factor is the two-parameter logistic
    model.

    Rewards on more than two values are ordered, and each value has a logit of its own; the means of normal rewards are
    linear in u.

    Args:
        n_factors: factors that are offered to the log, at most as many as arms; under the learned prior those that the
            log does not support die out.
        n_points: types. Up to two factors they are nodes of Gauss-Hermite quadrature (at most 64 along each), else
            points of a Sobol sequence.
        prior: "learned": b and w of the arms come from a normal law that the arms tell; None: marginal maximum
            likelihood.
        tolerance: a fit has converged when a round changes the objective by less than this per session; much less
            without a prior, where rounds are accelerated.
        max_iterations: most rounds.
        threads: None uses all cores; the result is the same to the bit for any number.
        equal_loadings: all arms load alike on each factor: sessions differ in generosity alone, which changes nobody's
            best arm (with one factor and questions as arms, Rasch's model). Only under the learned prior.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> ability = rng.normal(size=(2000, 1))
        >>> right = rng.random((2000, 4)) < 1 / (1 + np.exp(-(np.array([1.0, 0.5, 0.0, -0.5]) + 1.2 * ability)))
        >>> answers = lmab.Sessions.from_arrays(np.tile(np.arange(4), (2000, 1)), right.astype(float))
        >>> estimate = lmab.fit(answers, method=lmab.Traits(n_factors=1, n_points=21), rng=rng)
        >>> estimate.factors.n_alive, estimate.n_types
        (1, 21)
    """

    n_factors: int = 8
    n_points: int = 512
    prior: str | None = LEARNED
    tolerance: float = 3e-5
    max_iterations: int = 500
    threads: int | None = None
    equal_loadings: bool = False

    def __post_init__(self) -> None:
        counts = dict.fromkeys(("n_factors", "n_points", "max_iterations"), COUNT)
        prior = optional(OneOf((LEARNED,)))
        check_fields(self, {**counts, "threads": optional(COUNT), "tolerance": NOT_NEGATIVE, "prior": prior})
        if self.equal_loadings and self.prior != LEARNED:
            raise InvalidArgument(f"prior must be 'learned' with equal_loadings, got {self.prior!r}")

    @property
    def capabilities(self) -> Capabilities:
        """What `lmab.fit` may expect: the types are the points, and the learned prior is checked.

        Equal loadings (response style alone) are what others are checked against.
        """
        return Capabilities(chooses_n_types=True, is_checked=self.prior == LEARNED and not self.equal_loadings)

    def solve(self, request: Request) -> Estimate:
        """The fit from its one start, which is deterministic."""
        data = request.log
        n_factors = identified(data, self.n_factors)
        points = Points.of(n_factors, self.n_points)
        with Threads(self.threads) as passes:
            task = TraitsTask(data, passes)
            fit = self._learned if self.prior == LEARNED else self._plain
            course = fit(task, points, request)
            return self._estimate(task, points, course)

    def _learned(self, task: TraitsTask, points: Points, request: Request) -> _Course:
        """Rounds on few points (and a sample of a large log), then on all, then until nothing is gained."""
        data, n_factors = task.log, points.n_factors
        pilot = replace(task, log=_sample(data, _PILOT, request.rng))
        arms, trace = first_arms(pilot.log, n_factors), list[float]()
        few = Points.of(n_factors, -(-self.n_points // 4))
        left, status = self.tolerance * len(data.sessions), Status.ITERATION_LIMIT
        for number in range(self.max_iterations):
            coarse, settled = number < _COARSE, number >= _COARSE + _FINE
            arms, objective = learned_round(
                pilot if coarse else task, arms, few if coarse else points, expand=not settled, learn=number >= _WARM,
                equal=self.equal_loadings,
            )  # fmt: skip
            trace += [] if coarse else [objective]
            if request.progress(Progress("traits", number + 1, self.max_iterations, objective)):
                status = Status.INTERRUPTED
                break
            if number >= _COARSE + _FINE + _SETTLE and abs(trace[-1] - trace[-2]) <= left:
                status = Status.CONVERGED
                break
        return _Course(arms, status, number + 1, tuple(trace))

    def _plain(self, task: TraitsTask, points: Points, request: Request) -> _Course:
        """Marginal maximum likelihood, accelerated."""
        first = first_arms(task.log, points.n_factors)
        law = np.zeros_like(first.centre), np.full_like(first.variance, 1 / NO_PRECISION)
        first = replace(first, centre=law[0], variance=law[1])
        ascent = Plain(task, points, first)
        n_distinct = task.log.n_distinct

        def observe(maps: int, objective: float) -> bool:
            return request.progress(Progress("traits", maps, self.max_iterations, objective))

        left = _CLOSER * self.tolerance * n_distinct * min(1.0, n_distinct / _CHEAP)
        found = climb(
            ascent, ascent.pack(first), left=left, max_maps=self.max_iterations, accelerate=True, observer=observe
        )  # fmt: skip
        status = Status.CONVERGED if found.converged[0] else Status.ITERATION_LIMIT
        status = Status.INTERRUPTED if found.stopped else status
        return _Course(ascent.unpack(found.models[0]), status, int(found.n_maps[0]), found.traces[0])

    def _estimate(self, task: TraitsTask, points: Points, course: _Course) -> Estimate:
        data, surface = task.log, task.surface
        free = self.prior == LEARNED and not self.equal_loadings
        ranking = ranked(surface, course.arms, points) if free else RankedArms(course.arms, by_mean=False)
        bandit = surface.averaged(ranking.arms, points)
        factors = _factors(data, ranking, points, self._doubled(data, ranking.arms, points, bandit))
        n_factors = factors.n_alive if self.prior == LEARNED else factors.n_factors
        return Estimate(
            bandit=bandit,
            log_likelihood=data.log_likelihood(bandit, task.passes),
            n_parameters=data.n_parameters(1)
            + n_factors * int(surface.played.sum())
            - n_factors * (n_factors - 1) // 2,
            status=course.status,
            message=_message(data, course, factors, self.n_factors),
            trace=np.array(course.trace),
            starts=Starts(1, 1, 1),
            prior=self.prior or 0.0,
            factors=factors,
            encoded=data,
        )

    def _doubled(self, data: Log, arms: TraitArms, points: Points, bandit: LatentBandit) -> float:
        """What twice the points change in the log-likelihood of a session."""
        some = data.subset(np.arange(min(len(data.sessions), _SAMPLE)))
        finer = data.surface.averaged(arms, Points.of(points.n_factors, 2 * self.n_points))
        return (some.log_likelihood(finer) - some.log_likelihood(bandit)) / len(some.sessions)


GENEROSITY = Traits(n_factors=1, n_points=32, equal_loadings=True)  # sessions that like all arms more or less


@dataclass(frozen=True, eq=False)
class _Course:
    """How a fit went."""

    arms: TraitArms
    status: Status
    n_rounds: int
    trace: tuple[float, ...]


def identified(data: Log, n_factors: int) -> int:
    """How many of the factors a log can say anything about: none from single steps or from equal rewards."""
    equal = data.values is not None and len(data.values) == 1
    if data.sessions.horizon == 1 or equal:
        return 0
    return min(n_factors, data.sessions.n_arms)


def _sample(data: Log, size: int, rng: np.random.Generator) -> Log:
    if data.n_distinct <= 2 * size:
        return data
    return data.subset(np.sort(sample_rows(len(data.sessions), size, rng)))


def _factors(data: Log, ranking: RankedArms, points: Points, doubled: float) -> Factors:
    """The same surface along the principal axes of the loadings."""
    surface, q, arms = data.surface, data.surface.n_intercepts, ranking.arms
    loadings = arms.parameters[:, q:]
    known = loadings[surface.played]
    _, axes = np.linalg.eigh(known.T @ known)
    axes = axes[:, ::-1]
    axes = axes * np.where((known @ axes).sum(axis=0) < 0, -1.0, 1.0)
    turn = np.eye(arms.parameters.shape[1])
    turn[q:, q:] = axes
    return Factors(
        points=points.places @ axes,
        intercepts=arms.parameters[:, :q],
        loadings=loadings @ axes,
        covariance=turn.T @ arms.covariance @ turn,
        centre=arms.centre @ turn,
        spread=turn.T @ (arms.variance[:, None] * turn),
        size=np.sqrt(((known @ axes) ** 2).mean(axis=0)) / surface.unit,
        doubled=doubled,
        apart=apart(surface, loadings),
        by_mean=ranking.by_mean,
    )


def _message(data: Log, course: _Course, factors: Factors, offered: int) -> str:
    said = {
        Status.CONVERGED: f"converged after {course.n_rounds} rounds",
        Status.ITERATION_LIMIT: f"stopped by max_iterations after {course.n_rounds} rounds: raise it",
        Status.INTERRUPTED: f"interrupted after {course.n_rounds} rounds: the best so far",
    }
    parts = [said[course.status], str(factors)]
    if factors.n_factors == 0:
        why = "no session is longer than one step" if data.sessions.horizon == 1 else "all rewards are equal"
        parts.append(f"factors are not identified, because {why}")
    elif factors.n_factors < offered:
        parts.append(f"{offered} factors were asked for, and {data.sessions.n_arms} arms allow no more than as many")
    never = np.flatnonzero(~data.surface.played)
    if len(never):
        parts.append(f"never played, so set to the learned prior of arms: arm {listing(never)}")
    return "; ".join(parts)


@dataclass(frozen=True, eq=False)
class RankedArms:
    """Arms as they are planned with."""

    arms: TraitArms
    by_mean: bool  # in the order of their mean rewards in the log


def apart(surface: Surface, loadings: Float[Array, "A d"]) -> float:
    """By how much the loadings of arms differ, along the direction in which they differ most, in natural units."""
    known = loadings[surface.played]
    if not known.size:
        return 0.0
    largest = np.linalg.norm(known - known.mean(axis=0), ord=2)
    return float(largest / np.sqrt(len(known)) / surface.unit)


def ranked(surface: Surface, arms: TraitArms, points: Points) -> RankedArms:
    """Arms that load alike and rank by their mean rewards, where no factor tells them apart; else the arms as given.

    On more than two values an arm is more than a level, so that generosity itself may change who is best: such arms
    stay as they are.
    """
    if surface.n_intercepts != 1 or apart(surface, arms.parameters[:, 1:]) > ALIVE:
        return RankedArms(arms, by_mean=False)
    known = _known(surface, arms)
    alike = _alike(surface, arms, known)
    by_mean = _by_mean(surface, alike, known)
    if _loses(surface, alike, by_mean, points):
        return RankedArms(alike, by_mean=False)
    return RankedArms(by_mean, by_mean=True)


def _known(surface: Surface, arms: TraitArms) -> Bool[Array, "A"]:
    """Arms about which the log says more than the law does, or about as much as about the average arm.

    The law moves arms of equally many plays alike. An arm of few plays is moved more; its mean reward tells little.
    """
    law = 1 / arms.variance[0]
    log = np.where(surface.played, 1 / arms.covariance[:, 0, 0] - law, 0.0)
    return surface.played & (log >= min(law, _KNOWN * float(log[surface.played].mean())))


def _alike(surface: Surface, arms: TraitArms, known: Bool[Array, "A"]) -> TraitArms:
    """The same levels with one loading for all arms, and equally unsure where the log knows the arm.

    At every point and under every belief these arms then rank by their levels.
    """
    parameters, covariance = arms.parameters.copy(), arms.covariance.copy()
    parameters[:, 1:] = parameters[surface.played, 1:].mean(axis=0)
    if known.any():
        covariance[known] = covariance[known].mean(axis=0)
    return replace(arms, parameters=parameters, covariance=covariance)


def _by_mean(surface: Surface, arms: TraitArms, known: Bool[Array, "A"]) -> TraitArms:
    """The levels of the arms that the log knows, given to these arms in the order of their mean rewards."""
    parameters, places = arms.parameters.copy(), np.flatnonzero(known)
    parameters[places[_order(surface.popularity()[known])], 0] = np.sort(parameters[known, 0])[::-1]
    return replace(arms, parameters=parameters)


def _loses(surface: Surface, arms: TraitArms, other: TraitArms, points: Points) -> bool:
    """Whether the arms are sure that a list in the order of the others earns less, for sessions of any length."""
    means, variance = _means(surface, arms, points)
    own, changed = _order(arms.parameters[:, 0]), _order(other.parameters[:, 0])
    lost = np.cumsum(means[own]) - np.cumsum(means[changed])
    doubt = SURE * np.sqrt(_variance_of_difference(own, changed, variance)) + _ROUNDING * np.cumsum(np.abs(means[own]))
    return bool((lost > doubt).any())


def _means(surface: Surface, arms: TraitArms, points: Points) -> tuple[Float[Array, "A"], Float[Array, "A"]]:
    """The mean reward of each arm over all sessions, and its variance."""
    n_arms, p = arms.parameters.shape
    slopes = np.empty((n_arms, p))
    for some in blocks(n_arms, len(points) * p):
        slopes[some] = np.einsum("k,kap->ap", points.weights, surface.mean_slopes(arms.parameters[some], points))
    means = points.weights @ surface.averaged(arms, points).means
    return means, np.einsum("ai,aij,aj->a", slopes, arms.covariance, slopes)


def _variance_of_difference(
    one: Integer[Array, "A"], other: Integer[Array, "A"], variance: Float[Array, "A"]
) -> Float[Array, "A"]:
    """Of the sums over the first 1, 2, ... arms of two lists: arms that both have fall out."""
    ranks = np.argsort(one), np.argsort(other)
    change = np.zeros(len(variance) + 1)
    np.add.at(change, np.minimum(*ranks), variance)
    np.add.at(change, np.maximum(*ranks), -variance)
    return np.cumsum(change)[:-1].clip(0)


def _order(scores: Float[Array, "n"]) -> Integer[Array, "n"]:
    """Highest first, the lowest number among equals."""
    return np.argsort(-scores, kind="stable")
