"""Traits: sessions that differ by degrees instead of by kinds, as a bandit of many types on a smooth surface."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._html import listing
from ..checks import COUNT, NOT_NEGATIVE, OneOf, check_fields, optional
from ..data import sample_rows
from ..errors import InvalidArgument, Status
from ..model import LatentBandit
from .factors import Factors
from .observations import Observations
from .passes import Threads
from .points import Points
from .prior import LEARNED
from .request import Estimator, Progress, Request
from .result import Estimate, Starts
from .squarem import climb
from .surface import Arms
from .traits_ranking import Ranking, apart, ranked
from .traits_rounds import NO_PRECISION, Plain, Task, first_arms, learned_round

_COARSE, _FINE, _SETTLE = 35, 12, 8  # rounds on a quarter of the points, on all, and on all without expansion
_WARM = 3  # rounds before the law of arms is first learned
_PILOT = 25_000  # sessions of a larger log that the rounds on few points are made with
_CLOSER, _CHEAP = 3e-4, 10_000  # without a prior climbs are accelerated, and judged more strictly on small logs
_SAMPLE = 2000  # sessions on which the points are doubled


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
    def own_number(self) -> bool:
        """The types are the points."""
        return True

    def solve(self, request: Request) -> Estimate:
        """The fit from its one start, which is deterministic."""
        data = request.observations
        n_factors = identified(data, self.n_factors)
        points = Points.of(n_factors, self.n_points)
        with Threads(self.threads) as passes:
            task = Task(data, passes)
            fit = self._learned if self.prior == LEARNED else self._plain
            course = fit(task, points, request)
            return self._estimate(task, points, course)

    def _learned(self, task: Task, points: Points, request: Request) -> _Course:
        """Rounds on few points (and a sample of a large log), then on all, then until nothing is gained."""
        data, n_factors = task.observations, points.n_factors
        pilot = replace(task, observations=_sample(data, _PILOT, request.rng))
        arms, trace = first_arms(pilot.observations, n_factors), list[float]()
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

    def _plain(self, task: Task, points: Points, request: Request) -> _Course:
        """Marginal maximum likelihood, accelerated."""
        first = first_arms(task.observations, points.n_factors)
        law = np.zeros_like(first.centre), np.full_like(first.variance, 1 / NO_PRECISION)
        first = replace(first, centre=law[0], variance=law[1])
        ascent = Plain(task, points, first)
        n_distinct = task.observations.n_distinct

        def observe(maps: int, objective: float) -> bool:
            return request.progress(Progress("traits", maps, self.max_iterations, objective))

        left = _CLOSER * self.tolerance * n_distinct * min(1.0, n_distinct / _CHEAP)
        found = climb(
            ascent, ascent.pack(first), left=left, max_maps=self.max_iterations, accelerate=True, observer=observe
        )  # fmt: skip
        status = Status.CONVERGED if found.converged[0] else Status.ITERATION_LIMIT
        status = Status.INTERRUPTED if found.stopped else status
        return _Course(ascent.unpack(found.models[0]), status, int(found.n_maps[0]), found.traces[0])

    def _estimate(self, task: Task, points: Points, course: _Course) -> Estimate:
        data, surface = task.observations, task.surface
        free = self.prior == LEARNED and not self.equal_loadings
        ranking = ranked(surface, course.arms, points) if free else Ranking(course.arms, by_mean=False)
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
            observations=data,
        )

    def _doubled(self, data: Observations, arms: Arms, points: Points, bandit: LatentBandit) -> float:
        """What twice the points change in the log-likelihood of a session."""
        some = data.subset(np.arange(min(len(data.sessions), _SAMPLE)))
        finer = data.surface.averaged(arms, Points.of(points.n_factors, 2 * self.n_points))
        return (some.log_likelihood(finer) - some.log_likelihood(bandit)) / len(some.sessions)


GENEROSITY = Traits(n_factors=1, n_points=32, equal_loadings=True)  # sessions that like all arms more or less


@dataclass(frozen=True, eq=False)
class _Course:
    """How a fit went."""

    arms: Arms
    status: Status
    n_rounds: int
    trace: tuple[float, ...]


def identified(data: Observations, n_factors: int) -> int:
    """How many of the factors a log can say anything about: none from single steps or from equal rewards."""
    equal = data.values is not None and len(data.values) == 1
    if data.sessions.horizon == 1 or equal:
        return 0
    return min(n_factors, data.sessions.n_arms)


def _sample(data: Observations, size: int, rng: np.random.Generator) -> Observations:
    if data.n_distinct <= 2 * size:
        return data
    return data.subset(np.sort(sample_rows(len(data.sessions), size, rng)))


def _factors(data: Observations, ranking: Ranking, points: Points, doubled: float) -> Factors:
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


def _message(data: Observations, course: _Course, factors: Factors, offered: int) -> str:
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
        parts.append(f"never played, so given the law of the other arms: arm {listing(never)}")
    return "; ".join(parts)
