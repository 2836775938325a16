"""EM: maximum likelihood, or maximum a posteriori, from many starts (equation (log_likelihood) of the paper)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._kernel.threads import Crew
from .._shapes import Array, Float, Integer
from ..errors import InvalidArgument, check_count
from .climbing import Climb, climb
from .observations import Observations
from .result import CONVERGED, INTERRUPTED, ITERATION_LIMIT, Estimate, Observer, Progress, Starts
from .starts import draw_starts

_PILOT = 20_000  # distinct episodes on which the starts of a larger log compete
_SAME = 0.01  # difference of log-likelihood below which two solutions are the same
_ROUNDS = (20, 40, 80)  # maps after which half of the starts drop out
_FINISHERS = 4  # starts that always climb to the end


@dataclass(frozen=True)
class EM:
    """Maximum likelihood by the EM algorithm, with many starts and SQUAREM acceleration.

    The likelihood of a log does not involve the policy that chose the arms, so any history-dependent logging policy
    will do, and no propensities are needed.

    Args:
        restarts: how many starts; they compete in rounds, and the best climb to convergence.
        tolerance: a climb has converged when the log-likelihood rises by no more than this per episode and map, twice
            in a row.
        max_iterations: most maps (passes over the log) of one start.
        accelerate: SQUAREM, which never lets the likelihood fall; False: plain EM.
        prior: pseudo-observations per context and arm at the arm's marginal distribution: 0 is maximum likelihood,
            1 to 2 is best for planning from small logs.
        rank: after convergence, climb on with the contexts' reward tables confined to rank `rank` (an affine space of
            dimension rank - 1).
        threads: None uses all cores; the result is the same to the bit for any number.

    Examples:
        >>> import lmab
        >>> lmab.EM(restarts=50, prior=1.0)
        EM(restarts=50, tolerance=1e-09, max_iterations=5000, accelerate=True, prior=1.0, rank=None, threads=None)
    """

    restarts: int = 20
    tolerance: float = 1e-9
    max_iterations: int = 5000
    accelerate: bool = True
    prior: float = 0.0
    rank: int | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        for name in ("restarts", "max_iterations"):
            check_count(name, getattr(self, name))
        for name in ("rank", "threads"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        for name in ("tolerance", "prior"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 <= value < np.inf):
                raise InvalidArgument(f"{name} must be a finite number of at least 0, got {value!r}")

    def fit(
        self,
        observations: Observations,
        *,
        n_contexts: int,
        rng: np.random.Generator,
        progress: Observer | None = None,
    ) -> Estimate:
        """Fit `n_contexts` contexts to an encoded log."""
        with Crew(self.threads) as crew:
            task = Likelihood(observations, n_contexts, self.prior, crew)
            models, way = self._compete(task, rng, progress)
            limit = 1 if way is not None and way.stopped else self.max_iterations
            outcome = self._climb(task, models, limit, progress, "climb")
            n_starts = self.restarts if n_contexts > 1 else 1
            return _estimate(task, outcome if way is None else outcome.after(way), n_starts)

    def _compete(
        self, task: Likelihood, rng: np.random.Generator, progress: Observer | None
    ) -> tuple[Float[Array, "R K P"], Climb | None]:
        """Short climbs from every start, on a sample of a large log; after each round the worse half drops out.

        Returns the models left and, where they were climbing the log itself, the way they came.
        """
        n_starts = self.restarts if task.n_contexts > 1 else 1
        large = task.observations.n_distinct > 2 * _PILOT
        pilot = replace(task, observations=task.observations.sample(_PILOT, rng)) if large else task
        models = draw_starts(pilot.observations, task.n_contexts, n_starts, rng)
        way: Climb | None = None
        for maps in _ROUNDS:
            keep = max(len(models) // 2, min(_FINISHERS, len(models)))
            if keep == len(models) or (way is not None and way.stopped):
                break
            outcome = self._climb(pilot, models, maps, progress, "starts")
            outcome = outcome if way is None else outcome.after(way)
            way = outcome.pick(outcome.order()[:keep])
            models = way.models
        return (task.observations.soften(models), None) if large else (models, way)

    def _climb(
        self, task: Likelihood, models: Float[Array, "R K P"], max_maps: int, progress: Observer | None, stage: str
    ) -> Climb:
        def observe(maps: int, objective: float) -> bool:
            return progress is not None and bool(progress(Progress(stage, maps, max_maps, objective)))

        gain = self.tolerance * len(task.observations.episodes)
        return climb(task, models, gain=gain, max_maps=max_maps, accelerate=self.accelerate, observer=observe)


@dataclass(frozen=True, eq=False)
class Likelihood:
    """The objective that EM climbs: log-likelihood of the log plus log prior, on batches of models."""

    observations: Observations
    n_contexts: int
    prior: float
    crew: Crew

    def map(self, models: Float[Array, "R K P"]) -> tuple[Float[Array, "R"], Float[Array, "R K P"]]:
        statistics, objective = self.observations.expectation(models, self.crew)
        if self.prior > 0:
            objective = objective + self.observations.log_prior(models[:, :, : self.n_contexts], self.prior)
        return objective, self.observations.maximise(statistics, models, self.prior)

    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        return self.observations.repair(trial, near)


def _estimate(task: Likelihood, outcome: Climb, n_starts: int) -> Estimate:
    best = int(outcome.order()[0])
    observations = task.observations
    bandit = observations.bandit(outcome.models[best], task.n_contexts)
    same = int((outcome.objectives >= outcome.objectives[best] - _SAME).sum())
    starts = Starts(n_starts, len(outcome.models), same)
    status = INTERRUPTED if outcome.stopped else CONVERGED if outcome.converged[best] else ITERATION_LIMIT
    return Estimate(
        bandit=bandit,
        log_likelihood=observations.log_likelihood(bandit, task.crew),
        n_parameters=observations.n_parameters(task.n_contexts),
        status=status,
        message=_message(status, int(outcome.n_maps[best]), starts, observations, bandit.weights),
        trace=np.array(outcome.traces[best]),
        starts=starts,
        prior=task.prior,
        observations=observations,
    )


def _message(status: str, n_maps: int, starts: Starts, observations: Observations, weights: Float[Array, "M"]) -> str:
    said = {
        CONVERGED: f"converged after {n_maps} maps",
        ITERATION_LIMIT: f"stopped by max_iterations after {n_maps} maps, before convergence: raise it",
        INTERRUPTED: f"interrupted after {n_maps} maps: the best so far",
    }
    parts = [said[status], str(starts)]
    dead = np.flatnonzero(weights * len(observations.episodes) < 0.5)
    if len(dead):
        parts.append(f"no episode is left in context {_listing(dead)}: fewer contexts fit as well")
    never = np.flatnonzero(np.bincount(observations.episodes.actions, minlength=observations.episodes.n_arms) == 0)
    if len(never):
        parts.append(f"never played, so given the average rewards of all arms: arm {_listing(never)}")
    return "; ".join(parts)


def _listing(numbers: Integer[Array, "n"]) -> str:
    shown = ", ".join(str(number) for number in numbers[:5].tolist())
    return shown + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")
