"""DirectMLE: explore, fit one likelihood over all arms, plan; the default learner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._shapes import Array, Float
from ..checks import COUNT, Count, Nothing, OneOf, Or, check_fields
from ..data import Episodes
from ..estimation import EM, Estimate, Schedule, Traits, draw_models, estimate
from ..model import LatentBandit
from ..moments import subspace
from ..policies import Thompson, Uniform
from .core_sets import RANK
from .exploration import Exploration
from .learner import Learner, Task, check_enough, floored, note_estimate, planned
from .result import Campaign, Course

_MAP = EM(restarts=8, tolerance=1e-6, prior="learned")
_DRAWS = Schedule(chains=2, burn=40, keep=8, thin=3)  # models that a round of Thompson sampling draws from
_PAYS = 0.25  # a lower rank is used where AIC falls by more than this part of the parameters that it saves
_SYMMETRY = 1.08  # noise in the second moments has eigenvalues as far above zero as below, up to this factor
_MAX_ROWS = 1000  # of the second moments; with more rows no low rank is looked for


@dataclass(frozen=True)
class DirectMLE(Learner):
    """Explore, fit all arms at once by MAP-EM, confine the fit to a low rank where there is one, plan with bounds.

    Args:
        n_contexts: how many contexts, or "auto": chosen by held-out likelihood. None with `Traits`.
        rank: the dimension of the space that the contexts' rewards span. A number confines the fit to this rank; None
            leaves it free. "auto" takes one more than the number of eigenvalues of the second moments above the noise.
            It confines the fit where this rank is below `n_contexts`, where the other eigenvalues look like noise (as
            far above zero as below), and where Akaike's criterion improves clearly.
        thompson_rounds: half of the episodes explore uniformly, so that the log stays of use, and the others come in
            this many rounds of Thompson sampling: of models that the log so far could have come from, one and its
            context are drawn from the belief, and the best arm of that context is played. Each round takes a fit. 0
            explores uniformly with all episodes, and fits once.
        method: how to fit: `EM(...)`, or `Traits(...)` for people who differ by degrees; traits know no rank, and their
            Thompson sampling draws a context of the fit.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> environment = lmab.Simulator(lmab.random_bandit(2, 5, rng=rng), horizon=4, rng=rng)
        >>> learned = lmab.learn(environment, lmab.DirectMLE(2), n_episodes=2000, rng=rng)
        >>> learned.plan.gap <= 0.01
        True
    """

    n_contexts: int | str | None = None
    rank: int | str | None = "auto"
    thompson_rounds: int = 2
    method: EM | Traits = _MAP

    def __post_init__(self) -> None:
        number = Nothing() if self.method.own_number else Or(COUNT, OneOf(("auto",)))
        check_fields(self, {"n_contexts": number, "rank": RANK, "thompson_rounds": Count(0)})

    def campaign(self, task: Task, *, rng: np.random.Generator) -> Campaign:
        course = Course()
        n_uniform = task.n_episodes if self.thompson_rounds == 0 else -(-task.n_episodes // 2)
        check_enough(task, n_uniform, self.n_contexts if isinstance(self.n_contexts, int) else 2)
        uniform = Uniform(task.n_arms, horizon=task.horizon)
        episodes = yield from course.explore(Exploration.of_policy("explore", uniform, n_uniform))
        number = self.n_contexts
        for left in range(self.thompson_rounds, 0, -1):
            n = (task.n_episodes - len(episodes)) // left
            if n > 0:
                fit = self._fit(task, episodes, number, rng, course, "fit so far")
                bandit = _possible(fit, rng)
                number = number and fit.n_contexts  # the number is chosen once, and again at the end
                policy = Thompson(floored(bandit, task.values), horizon=task.horizon)
                episodes += yield from course.explore(Exploration.of_policy("thompson", policy, n))
        fit = self._fit(task, episodes, self.n_contexts, rng, course, "fit")
        fit = self._polish(task, fit, episodes[:n_uniform], course)
        bandit = floored(fit.bandit, task.values)
        result = planned(task, bandit, course)
        return course.learned(result.policy, bandit, plan=result, estimate=fit)

    def _fit(
        self,
        task: Task,
        episodes: Episodes,
        number: int | str | None,
        rng: np.random.Generator,
        course: Course,
        name: str,
    ) -> Estimate:
        fit = estimate(
            episodes, n_contexts=number, method=self.method, rewards=task.rewards, values=task.values, rng=rng
        )
        note_estimate(course, name, fit)
        return fit

    def _polish(self, task: Task, fit: Estimate, uniform: Episodes, course: Course) -> Estimate:
        """The fit under a lower rank, where one is asked for or improves Akaike's criterion clearly."""
        rank = self.rank
        if isinstance(self.method, Traits):
            return fit
        if rank == "auto":
            if task.horizon < 2 or len(uniform) < 4 or uniform.n_arms * len(np.unique(uniform.rewards)) > _MAX_ROWS:
                return fit
            space = subspace(uniform, rewards=task.rewards)
            skew = _skew(space.eigenvalues, space.rank, fit.n_contexts)
            course.note("subspace", rank=space.rank, eigenvalues=space.eigenvalues[:20], noise=space.noise, skew=skew)
            rank = space.rank + 1 if skew <= _SYMMETRY else None
        if not isinstance(rank, int) or rank >= fit.n_contexts:
            return fit
        confined = self.method.polish(fit, rank=rank)
        gain, saved = fit.aic - confined.aic, fit.n_parameters - confined.n_parameters
        kept = self.rank != "auto" or gain > _PAYS * saved
        course.note("polish", rank=rank, aic_gain=gain, parameters_saved=saved, kept=kept)
        return confined if kept else fit


def _possible(fit: Estimate, rng: np.random.Generator) -> LatentBandit:
    """All contexts of models that the log could have come from, as one bandit: its belief tells models apart too."""
    if fit.factors is not None:
        return fit.bandit
    weights, families = draw_models(fit.require_log(), fit.bandit, rng=rng, schedule=_DRAWS)
    return LatentBandit(weights.ravel() / len(weights), families[0].joined(families[1:]))


def _skew(eigenvalues: Float[Array, "E"], rank: int, n_contexts: int) -> float:
    """How much larger the eigenvalues between `rank` and `n_contexts` are than the lowest ones; infinite without any.

    Contexts whose eigenvalues are too small to be seen one by one still make all of these larger.
    """
    n = min(n_contexts, len(eigenvalues)) - rank
    below = -float(eigenvalues[-n:].sum()) if n > 0 else 0.0
    return float(eigenvalues[rank : rank + n].sum()) / below if below > 0 else np.inf
