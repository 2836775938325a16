"""What the climbs of EM ended in: the estimate, how many starts agreed, and the message that says so."""

from __future__ import annotations

import numpy as np

from .._html import listing
from .._shapes import Array, Float
from ..errors import Status
from .objective import Likelihood
from .observations import Observations
from .prior import LEARNED
from .result import Estimate, Starts
from .squarem import Climb

_SAME = 0.01  # difference of log-likelihood below which two solutions are the same


def tally(outcome: Climb, n_starts: int) -> Starts:
    """How many starts there were, and how many of the climbs reached the best solution."""
    same = outcome.objectives >= outcome.objectives.max() - _SAME
    return Starts(n_starts, len(outcome.models), int(same.sum()))


def fitted(task: Likelihood, prior: float | str, outcome: Climb, starts: Starts, rank: int | None) -> Estimate:
    """The best of the climbs as an estimate."""
    best = int(outcome.order()[0])
    observations = task.observations
    bandit = observations.models.bandit(outcome.models[best], task.n_types)
    status = Status.CONVERGED if outcome.converged[best] else Status.ITERATION_LIMIT
    status = Status.INTERRUPTED if outcome.stopped else status
    return Estimate(
        bandit=bandit,
        log_likelihood=observations.log_likelihood(bandit, task.passes.processor),
        n_parameters=observations.n_parameters(task.n_types, rank),
        status=status,
        message=_message(status, int(outcome.n_maps[best]), starts, observations, bandit.weights, prior),
        trace=np.array(outcome.traces[best]),
        starts=starts,
        prior=prior,
        learned=task.prior if prior == LEARNED else None,
        observations=observations,
    )


def _message(
    status: Status,
    n_maps: int,
    starts: Starts,
    observations: Observations,
    weights: Float[Array, "M"],
    prior: float | str,
) -> str:
    said = {
        Status.CONVERGED: f"converged after {n_maps} maps",
        Status.ITERATION_LIMIT: f"stopped by max_iterations after {n_maps} maps, before convergence: raise it",
        Status.INTERRUPTED: f"interrupted after {n_maps} maps: the best so far",
    }
    parts = [said[status], str(starts)]
    dead = np.flatnonzero(weights * len(observations.sessions) < 0.5)
    if len(dead):
        parts.append(f"no session is left in type {listing(dead)}: fewer types fit as well")
    never = np.flatnonzero(observations.sessions.plays == 0)
    if len(never):
        given = "the law of the other arms" if prior == LEARNED else "the average rewards of all arms"
        parts.append(f"never played, so given {given}: arm {listing(never)}")
    return "; ".join(parts)
