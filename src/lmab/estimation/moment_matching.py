"""MomentMatching: the parameters whose moments over a core set agree with the log's (Algorithm 1, steps 2 and 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .. import theory
from .._shapes import Array, Float
from ..checks import COUNT, FRACTION, POSITIVE, Constraint, Count, check_fields, optional
from ..data import Episodes
from ..errors import InvalidArgument
from ..model import Bins, Categorical, Gaussian, LatentBandit
from ..moments import CoreMoments, Design, core_moments, design, subspace
from ..status import Status
from .categorical import LEAST
from .encoding import observe
from .from_moments import finish
from .moment_equations import Fit, Matching
from .observations import Observations
from .request import Estimator, Progress, Request, StopOnce
from .result import Estimate, Starts

_SAME = 1.01  # costs within this factor are the same solution
_IMPROVEMENT = 0.99  # a smaller w_min must lower the cost below this part to be preferred
_LEAST_WEIGHT = 1e-3  # where the geometric search for w_min ends


@dataclass(frozen=True)
class MomentMatching(Estimator):
    """Match all moments up to order min(H, 2M - 1) over a core set: equation (tensor_error_cond).

    With H >= 2M - 1 this recovers the contexts; with shorter sessions it finds some contexts that no policy of H steps
    could tell from the true ones, which is all that planning needs (Lemma 3.5). Arms must have been chosen without
    looking at the session's own rewards.

    Args:
        design: the core set; None finds one from the same log.
        rank: dimension of the subspace of the contexts; None: the number of contexts.
        restarts: starts of the least-squares fit.
        w_min: least weight of a context; None searches 1/M, 1/(2M), 1/(4M), ... as in appendix A.
        epsilon: the accuracy for which delta_sub (how far reconstructed probabilities may leave [0, 1]) and delta_tsr
            (what the largest residual is compared with) are computed.
        bins: normal rewards of sessions shorter than 2M - 1 steps are cut at this many quantiles, and matched as
            categories; None: at the grid of appendix B.2, which is far finer. The estimate's `bins` say how; its
            bandit has the cut rewards, and policies planned on it cut the rewards that they observe.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.LatentBandit.bernoulli([0.4, 0.6], [[0.9, 0.1, 0.4], [0.2, 0.7, 0.5]])
        >>> log = lmab.simulate(bandit, lmab.Uniform(3), n_episodes=20_000, horizon=3, rng=rng)
        >>> fit = lmab.estimate(log, n_contexts=2, method=lmab.MomentMatching(), rng=rng)
        >>> bool(fit.bandit.distance(bandit) < 0.2)
        True
    """

    design: Design | None = None
    rank: int | None = None
    restarts: int = 12
    w_min: float | None = None
    epsilon: float = 0.1
    bins: int | None = 8

    def __post_init__(self) -> None:
        numbers: dict[str, Constraint] = {"epsilon": POSITIVE, "w_min": optional(FRACTION)}
        check_fields(self, {"restarts": COUNT, "rank": optional(COUNT), "bins": optional(Count(2)), **numbers})

    def solve(self, request: Request) -> Estimate:
        """The parameters that match the moments of the log."""
        observations, n_contexts = request.observations, request.n_contexts
        episodes = observations.episodes
        if episodes.horizon < 2:
            raise InvalidArgument(f"episodes must have sessions of at least 2 steps, got {episodes.horizon}")
        continuous = observations.values is None
        if continuous and self.design is None and not theory.identifiable(n_contexts, episodes.horizon):
            return self._solve_cut(request)
        core = self._core(observations, n_contexts)
        tensors = core_moments(episodes, core, min(episodes.horizon, 2 * n_contexts - 1))
        task = Matching(tensors, core, n_contexts, self._slack(core, n_contexts, episodes.horizon))
        fits = self._search(task, request.rng, request.progress)
        best = min(fits, key=lambda one: one.cost)
        bandit = reconstruct(best.weights, best.core, core, episodes)
        status = Status.CONVERGED if best.converged else Status.ITERATION_LIMIT
        return finish(
            observations,
            bandit,
            status=Status.INTERRUPTED if request.progress.stopped else status,
            message=self._message(best, tensors, core, n_contexts, episodes.horizon),
            starts=Starts(len(fits), len(fits), sum(one.cost <= _SAME * best.cost + 1e-12 for one in fits)),
        )

    def _solve_cut(self, request: Request) -> Estimate:
        """Short sessions with normal rewards: match the moments of cut rewards (appendix B.2)."""
        episodes = request.observations.episodes
        if self.bins is None:
            bins = Bins.on_grid(episodes.horizon, self.epsilon)
        else:
            bins = Bins.at_quantiles(episodes.rewards, self.bins)
        cut = bins.cut(episodes)
        values = np.unique(cut.rewards)
        fit = self.solve(replace(request, observations=observe(cut, values=values)))
        assert isinstance(fit.bandit.rewards, Categorical)
        edges = bins.edges[np.searchsorted(bins.values, values[1:]) - 1]  # bins that no reward fell into are gone
        return replace(fit, bandit=replace(fit.bandit, rewards=replace(fit.bandit.rewards, edges=edges)), bins=bins)

    def _core(self, observations: Observations, n_contexts: int) -> Design:
        if self.design is not None:
            return self.design
        rank = min(self.rank or n_contexts, observations.n_features)
        return design(subspace(observations.episodes, rank=rank, rewards=observations.family))

    def _slack(self, core: Design, n_contexts: int, horizon: int) -> float:
        """2 sqrt(M) delta_sub of equation (valid_param_2)."""
        n_values = 1 if core.values is None else len(core.values)
        delta = theory.delta_sub(n_contexts, n_values, horizon, self.epsilon, self.w_min or 1 / n_contexts)
        return float(2 * np.sqrt(n_contexts) * delta)

    def _search(self, task: Matching, rng: np.random.Generator, progress: StopOnce) -> list[Fit]:
        """All starts at a least weight; where that is unknown, smaller ones while they lower the cost."""
        limit = self.w_min or 1 / task.n_contexts
        if limit * task.n_contexts > 1:
            raise InvalidArgument(f"w_min must be at most 1/{task.n_contexts}, got {self.w_min!r}")
        starts = [task.random_start(rng) for _ in range(self.restarts)]
        fits: list[Fit] = []
        while limit >= _LEAST_WEIGHT:
            found = []
            for number, start in enumerate(starts):
                found.append(task.solve(start, limit))
                best = min(one.cost for one in found)
                if progress(Progress("matching", number + 1, len(starts), -best)):
                    return fits + found
            worse = bool(fits) and min(one.cost for one in found) > _IMPROVEMENT * min(one.cost for one in fits)
            fits = fits if worse else found
            if worse or self.w_min is not None or task.n_contexts == 1:
                break
            starts, limit = [task.restart(one) for one in sorted(fits, key=lambda one: one.cost)[:3]], limit / 2
        return fits

    def _message(self, best: Fit, tensors: tuple[CoreMoments, ...], core: Design, n_contexts: int, horizon: int) -> str:
        n_values = 2 if core.values is None else len(core.values)
        delta = theory.delta_tsr(n_contexts, n_values, horizon, self.epsilon, len(core.support))
        entries = sum(len(tensor.entries) for tensor in tensors)
        regime = "parameters are identifiable"
        if not theory.identifiable(n_contexts, horizon):
            regime = f"sessions of {horizon} < 2M - 1 steps do not identify parameters: trust values, not contexts"
        early = "" if best.converged else "; stopped before the least squares converged: raise restarts"
        return (
            f"matched {entries} moments up to order {tensors[-1].order} over {len(core.support)} core pairs; largest "
            f"residual {best.residual:.2g} ({best.largest_error:.1f} standard errors; the theory's delta_tsr is "
            f"{delta:.2g}); {regime}{early}"
        )


def reconstruct(
    weights: Float[Array, "M"], core: Float[Array, "n M"], design: Design, episodes: Episodes
) -> LatentBandit:
    """The bandit from the contexts' values on the core set: equations (transform_subspace) and (clipping_mu)."""
    table = design.onto_pairs @ core
    if design.values is None:
        scale = _scale(episodes, weights, table)
        return LatentBandit(weights, Gaussian(np.ascontiguousarray(table.T), scale), episodes.arm_labels)
    values = np.union1d(design.values, np.unique(episodes.rewards))  # core plays may pay what exploration never saw
    rows = np.full((len(weights), len(table) // len(design.values), len(values)), LEAST)
    known = np.clip(table.T.reshape(*rows.shape[:2], -1), LEAST, 1)
    rows[:, :, np.searchsorted(values, design.values)] = known
    return LatentBandit(weights, Categorical(rows / rows.sum(axis=2, keepdims=True), values), episodes.arm_labels)


def _scale(episodes: Episodes, weights: Float[Array, "M"], means: Float[Array, "A M"]) -> float:
    """Standard deviation left when the contexts' means are accounted for."""
    explained = (means**2 @ weights)[episodes.actions]
    variance = float((episodes.rewards**2 - explained).mean())
    return float(np.sqrt(max(variance, 1e-4 * float(episodes.rewards.var()), 1e-12)))
