"""DirectMLE: explore, fit one likelihood over all arms, plan; the default learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._shapes import Array, Float
from ..checks import COUNT, Count, Nothing, OneOf, Or, check_fields, optional
from ..data.sessions import Sessions
from ..estimation.em import EM
from ..estimation.fit import fit, fit_with_spare
from ..estimation.prior import Schedule, draw_models
from ..estimation.result import Estimate, capabilities_of
from ..estimation.traits.traits import Traits
from ..model.bandit import LatentBandit
from ..moments.second import subspace
from ..policies.belief_policies import Thompson, Uniform
from .learner import (
    RANK,
    Campaign,
    Course,
    Exploration,
    Learner,
    Task,
    check_declared,
    check_enough,
    declared_values,
    floored,
    lenient,
    note_estimate,
    planned,
)

_MAP = EM(restarts=8, tolerance=1e-6, prior="learned")
_DRAWS = Schedule(chains=2, burn=40, keep=8, thin=3)  # models that a round of Thompson sampling draws from
_PAYS = 0.25  # a lower rank is used if AIC falls by more than this fraction of the saved parameters
_SYMMETRY = 1.08  # noise in the second moments has eigenvalues as far above zero as below, up to this factor
_MAX_ROWS = 1000  # Most rows of the second moments; with more no low rank is looked for.


@dataclass(frozen=True)
class DirectMLE(Learner):
    """Explore, fit all arms at once by MAP-EM, confine the fit to a low rank if the log supports one, and plan.

    Args:
        n_types: how many types; "auto" or None: chosen by held-out likelihood. `Traits` has no such number: None.
        rank: the dimension of the space that the types' rewards span. A number confines the fit to this rank; None
            leaves it free. "auto" takes one more than the number of eigenvalues of the second moments above the noise.
            It confines the fit if this rank is below `n_types`, if the other eigenvalues look like noise (as far
            above zero as below), and if Akaike's criterion improves clearly.
        thompson_rounds: half of the sessions explore uniformly, so that the log stays of use, and the others come in
            this many rounds of Thompson sampling: of models that the log so far could have come from, one and its
            type are drawn from the belief, and the best arm of that type is played. Each round takes a fit. 0
            explores uniformly with all sessions, and fits once.
        method: how to fit: `EM(...)`, or `Traits(...)` for continuous latent traits; traits have no rank, and their
            Thompson sampling draws a type of the fit.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> environment = lmab.Simulator(lmab.random_bandit(2, 5, rng=rng), horizon=4, rng=rng)
        >>> learned = lmab.learn(environment, lmab.DirectMLE(2), n_sessions=2000, rng=rng)
        >>> learned.plan.gap <= 0.01
        True
    """

    n_types: int | str | None = None
    rank: int | str | None = "auto"
    thompson_rounds: int = 2
    method: EM | Traits = _MAP

    def __post_init__(self) -> None:
        number = Nothing() if capabilities_of(self.method).chooses_n_types else optional(Or(COUNT, OneOf(("auto",))))
        check_fields(self, {"n_types": number, "rank": RANK, "thompson_rounds": Count(0)})

    @property
    def _asked(self) -> int | str | None:
        """Return the `n_types` of a fit: "auto" if none was given, None for traits."""
        return None if capabilities_of(self.method).chooses_n_types else self.n_types or "auto"

    def campaign(self, task: Task, *, rng: np.random.Generator) -> Campaign:
        course = Course()
        check_declared(task, "DirectMLE")
        n_uniform = task.n_sessions if self.thompson_rounds == 0 else -(-task.n_sessions // 2)
        check_enough(task, n_uniform, self.n_types if isinstance(self.n_types, int) else 2)
        uniform = Uniform(task.n_arms, horizon=task.horizon)
        sessions = yield from course.explore(Exploration.of_policy("explore", uniform, n_uniform))
        number = self._asked
        for left in range(self.thompson_rounds, 0, -1):
            n = (task.n_sessions - len(sessions)) // left
            if n > 0:
                fitted = self._fit(task, sessions, number, rng, course, "fit so far")
                bandit = _possible(fitted, rng)
                number = number and fitted.n_types  # the number is chosen once, and again at the end
                policy = Thompson(lenient(floored(bandit, task.values)), horizon=task.horizon)
                sessions += yield from course.explore(Exploration.of_policy("thompson", policy, n))
        fitted = self._fit(task, sessions, self._asked, rng, course, "fit")
        fitted = self._polish(task, fitted, sessions[:n_uniform], course)
        bandit = floored(fitted.bandit, task.values)
        result = planned(task, bandit, course)
        return course.learned(result.policy, bandit, plan=result, estimate=fitted)

    def _fit(
        self,
        task: Task,
        sessions: Sessions,
        number: int | str | None,
        rng: np.random.Generator,
        course: Course,
        name: str,
    ) -> Estimate:
        said: dict[str, Any] = {"rewards": task.rewards, "values": declared_values(task, sessions)}
        if number == "auto" and len(sessions) > 1:
            fitted = fit_with_spare(sessions, method=self.method, rng=rng, **said)
        else:
            fitted = fit(sessions, n_types=number, method=self.method, selected=False, rng=rng, check=False, **said)
        note_estimate(course, name, fitted)
        return fitted

    def _polish(self, task: Task, fitted: Estimate, uniform: Sessions, course: Course) -> Estimate:
        """Return the fit under a lower rank if one is given or improves Akaike's criterion clearly."""
        rank = self.rank
        if isinstance(self.method, Traits) or fitted.bandit.leaving is not None:  # moments ignore attrition
            return fitted
        if rank == "auto":
            if task.rewards == "binned":  # bins and rewards have different eigenvalues
                return fitted
            if task.horizon < 2 or len(uniform) < 4 or uniform.n_arms * len(np.unique(uniform.rewards)) > _MAX_ROWS:
                return fitted
            space = subspace(uniform, rewards=task.rewards)
            skew = _skew(space.eigenvalues, space.rank, fitted.n_types)
            course.note("subspace", rank=space.rank, eigenvalues=space.eigenvalues[:20], noise=space.noise, skew=skew)
            rank = space.rank + 1 if skew <= _SYMMETRY else None
        if not isinstance(rank, int) or rank >= fitted.n_types:
            return fitted
        confined = self.method.polish(fitted, rank=rank)
        gain, saved = fitted.aic - confined.aic, fitted.n_parameters - confined.n_parameters
        kept = self.rank != "auto" or gain > _PAYS * saved
        course.note("polish", rank=rank, aic_gain=gain, parameters_saved=saved, kept=kept)
        return confined if kept else fitted


def _possible(fitted: Estimate, rng: np.random.Generator) -> LatentBandit:
    """Return the types of several posterior draws as one bandit, so that its belief also covers the models."""
    if fitted.factors is not None:
        return fitted.bandit
    draws = draw_models(fitted.require_log(), fitted.bandit, rng=rng, schedule=_DRAWS)
    rewards = draws.rewards[0].joined(draws.rewards[1:])
    left: Sequence[Any] | None = draws.leaving
    if left is None and fitted.bandit.leaving is not None:
        left = fitted.require_log().draw_leaving(fitted.bandit, len(draws), rng)
    return LatentBandit(
        draws.weights.ravel() / len(draws), rewards, leaving=None if left is None else np.concatenate(left)
    )


def _skew(eigenvalues: Float[Array, "E"], rank: int, n_types: int) -> float:
    """Return by how much the eigenvalues between `rank` and `n_types` exceed the lowest ones; infinite without any.

    Types with eigenvalues too small to be seen one by one still make all of these larger.
    """
    n = min(n_types, len(eigenvalues)) - rank
    below = -float(eigenvalues[-n:].sum()) if n > 0 else 0.0
    return float(eigenvalues[rank : rank + n].sum()) / below if below > 0 else np.inf
