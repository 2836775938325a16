"""MomentMatching: the parameters whose moments over a core set agree with the log's (Algorithm 1, steps 2 and 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from .. import theory
from .._shapes import Array, Float
from ..checks import COUNT, FRACTION, POSITIVE, Constraint, Count, OneOf, Or, check_fields, optional
from ..data import Packed, Sessions
from ..errors import InvalidArgument
from ..model import Bins, Categorical, Gaussian, LatentBandit
from ..moments import CoreMoments, Design, core_moments, design, subspace
from ..status import Status
from .categorical import LEAST
from .encoding import observe
from .from_moments import finish
from .moment_equations import NEGLIGIBLE, Fit, Matching
from .observations import Observations
from .request import Estimator, Progress, Request, StopOnce
from .result import Estimate, Starts

BINS = optional(Or(Count(2), OneOf(("auto",))))
_SAME = 1.01  # costs within this factor are the same solution
_NOTHING = 1e-3  # A cost that is lower by less than this is no better fit.
_FALSE_ALARMS = 0.01  # share of logs of a true model that may be called unmatched
_SESSIONS = 1 << 16  # looked at together
_LEAST_WEIGHT = 1e-3  # where the geometric search for w_min ends


@dataclass(frozen=True)
class MomentMatching(Estimator):
    """Match all moments up to order min(H, 2M - 1) over a core set: equation (tensor_error_cond).

    With H >= 2M - 1 this recovers the types; with shorter sessions it finds some types that no policy of H steps
    could tell from the true ones, which is all that planning needs (Lemma 3.5). Arms must have been chosen without
    looking at the session's own rewards. Where no parameters match the moments within their standard errors, the
    status is "unmatched" and a warning says so.

    Args:
        design: the core set; None finds one from the same log.
        rank: dimension of the subspace of the types; None: the number of types.
        restarts: starts of the least-squares fit.
        w_min: least weight of a type; None searches 1/M, 1/(2M), 1/(4M), ... down to 1/1000, as in appendix A, and
            takes what fits best.
        epsilon: the accuracy for which the theory's delta_tsr is computed, which the message compares the largest
            residual with. Reconstructed probabilities may leave [0, 1] by what the measured error of the subspace
            and the type's weight allow; only where that error is unknown, `epsilon` sets it (delta_sub).
        bins: normal rewards of sessions shorter than 2M - 1 steps are cut at this many quantiles, and matched as
            categories; "auto": more of them in longer logs (8 to 64), so that the bias of cutting vanishes; None: at
            the grid of appendix B.2 for `epsilon`, which is far finer. The estimate's `bins` say how; its
            bandit has the cut rewards, and policies planned on it cut the rewards that they observe.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.LatentBandit.bernoulli([0.4, 0.6], [[0.9, 0.1, 0.4], [0.2, 0.7, 0.5]])
        >>> log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=20_000, horizon=3, rng=rng)
        >>> fit = lmab.fit(log, n_types=2, method=lmab.MomentMatching(), rng=rng)
        >>> bool(fit.bandit.distance(bandit) < 0.2)
        True
    """

    design: Design | None = None
    rank: int | None = None
    restarts: int = 12
    w_min: float | None = None
    epsilon: float = 0.1
    bins: int | str | None = "auto"

    def __post_init__(self) -> None:
        numbers: dict[str, Constraint] = {"epsilon": POSITIVE, "w_min": optional(FRACTION)}
        check_fields(self, {"restarts": COUNT, "rank": optional(COUNT), "bins": BINS, **numbers})

    def solve(self, request: Request) -> Estimate:
        """The parameters that match the moments of the log."""
        observations, n_types = request.observations, request.n_types
        sessions = observations.sessions
        if sessions.horizon < 2:
            raise InvalidArgument(f"sessions must have sessions of at least 2 steps, got {sessions.horizon}")
        continuous = observations.values is None
        if continuous and self.design is None and not theory.identifiable(n_types, sessions.horizon):
            return self._solve_cut(request)
        core = self._core(observations, n_types)
        tensors = core_moments(sessions, core, min(sessions.horizon, 2 * n_types - 1))
        task = Matching(tensors, core, n_types, self._slack(core, n_types, sessions.horizon))
        fits = self._search(task, request.rng, request.progress)
        best = min(fits, key=lambda one: one.cost)
        bandit = reconstruct(best.weights, best.core, core, sessions)
        return finish(
            observations,
            bandit,
            status=Status.INTERRUPTED if request.progress.stopped else _status(best, tensors),
            message=self._message(best, tensors, core, n_types, sessions.horizon),
            starts=Starts(len(fits), len(fits), sum(one.cost <= _SAME * best.cost + 1e-12 for one in fits)),
        )

    def _solve_cut(self, request: Request) -> Estimate:
        """Short sessions with normal rewards: match the moments of cut rewards (appendix B.2)."""
        sessions = request.observations.sessions.load()
        bins = Bins.of_log(sessions, self.bins, self.epsilon, request.observations.known_scale)
        cut = bins.cut(sessions)
        values = np.unique(cut.rewards)
        fit = self.solve(replace(request, observations=observe(cut, values=values)))
        assert isinstance(fit.bandit.rewards, Categorical)
        edges = bins.edges_between(values)
        return replace(fit, bandit=replace(fit.bandit, rewards=replace(fit.bandit.rewards, edges=edges)), bins=bins)

    def _core(self, observations: Observations, n_types: int) -> Design:
        if self.design is not None:
            return self.design
        rank = min(self.rank or n_types, observations.n_features)
        return design(subspace(observations.sessions, rank=rank, rewards=observations.family))

    def _slack(self, core: Design, n_types: int, horizon: int) -> float:
        """What a type of weight 1 may leave its bounds by: equation (valid_param_2), with the measured error.

        Where the error of the subspace is not known (features given by hand, files of 0.1), it is taken for the
        delta_sub that `epsilon` asks for.
        """
        if core.leeway is not None:
            return core.leeway
        n_values = 1 if core.values is None else len(core.values)
        delta = theory.delta_sub(n_types, n_values, horizon, self.epsilon, self.w_min or 1 / n_types)
        return float(2 * np.sqrt(n_types) * delta)

    def _search(self, task: Matching, rng: np.random.Generator, progress: StopOnce) -> list[Fit]:
        """All starts at a least weight; where that is unknown, at halved ones down to `_LEAST_WEIGHT`.

        The fit decides: the level of the lowest cost is taken, and of equal ones the largest least weight.
        """
        limit = self.w_min or 1 / task.n_types
        if limit * task.n_types > 1:
            raise InvalidArgument(f"w_min must be at most 1/{task.n_types}, got {self.w_min!r}")
        starts = [task.random_start(rng) for _ in range(self.restarts)]
        levels: list[list[Fit]] = []
        while limit >= _LEAST_WEIGHT:
            levels.append([])
            for number, start in enumerate(starts):
                levels[-1].append(task.solve(start, limit))
                if progress(Progress("matching", number + 1, len(starts), -_least(levels[-1]))):
                    return levels[-1]
            if self.w_min is not None or task.n_types == 1:
                break
            starts, limit = [task.restart(one) for one in sorted(levels[-1], key=lambda one: one.cost)[:3]], limit / 2
        lowest = min(_least(level) for level in levels)
        return next(level for level in levels if _least(level) <= lowest + _NOTHING)

    def _message(self, best: Fit, tensors: tuple[CoreMoments, ...], core: Design, n_types: int, horizon: int) -> str:
        n_values = 2 if core.values is None else len(core.values)
        delta = theory.delta_tsr(n_types, n_values, horizon, self.epsilon, len(core.support))
        entries = sum(len(tensor.entries) for tensor in tensors)
        regime = "parameters are identifiable"
        if not theory.identifiable(n_types, horizon):
            regime = f"sessions of {horizon} < 2M - 1 steps do not identify parameters: trust values, not types"
        doubt = {
            Status.ITERATION_LIMIT: "; stopped before the least squares converged: raise restarts",
            Status.UNMATCHED: f"; more than {_allowed(tensors):.1f} standard errors, or probabilities "
            f"{best.beyond:.2g} beyond their bounds: {Status.UNMATCHED.sentence}",
        }
        return (
            f"matched {entries} moments up to order {tensors[-1].order} over {len(core.support)} core pairs; largest "
            f"residual {best.residual:.2g} ({best.largest_error:.1f} standard errors; the theory's delta_tsr is "
            f"{delta:.2g}); {regime}{doubt.get(_status(best, tensors), '')}"
        )


def _least(fits: list[Fit]) -> float:
    return min(one.cost for one in fits)


def _status(best: Fit, tensors: tuple[CoreMoments, ...]) -> Status:
    if not best.converged:
        return Status.ITERATION_LIMIT
    matched = best.largest_error <= _allowed(tensors) and best.beyond <= NEGLIGIBLE
    return Status.CONVERGED if matched else Status.UNMATCHED


def _allowed(tensors: tuple[CoreMoments, ...]) -> float:
    """Standard errors that the largest of so many residuals exceeds in at most 1% of all logs, dependent or not."""
    n_entries = sum(len(tensor.entries) for tensor in tensors)
    return NormalDist().inv_cdf(1 - _FALSE_ALARMS / (2 * n_entries))


def reconstruct(
    weights: Float[Array, "M"], core: Float[Array, "n M"], design: Design, sessions: Sessions | Packed
) -> LatentBandit:
    """The bandit from the types' values on the core set: equations (transform_subspace) and (clipping_mu)."""
    table = design.onto_pairs @ core
    if design.values is None:
        scale = _scale(sessions, weights, table)
        return LatentBandit(weights, Gaussian(np.ascontiguousarray(table.T), scale), sessions.arm_labels)
    values = np.union1d(
        design.values, np.unique(sessions.some_rewards)
    )  # core plays may pay what exploration never saw
    rows = np.full((len(weights), len(table) // len(design.values), len(values)), LEAST)
    known = np.clip(table.T.reshape(*rows.shape[:2], -1), LEAST, 1)
    rows[:, :, np.searchsorted(values, design.values)] = known
    return LatentBandit(weights, Categorical(rows / rows.sum(axis=2, keepdims=True), values), sessions.arm_labels)


def _scale(sessions: Sessions | Packed, weights: Float[Array, "M"], means: Float[Array, "A M"]) -> float:
    """Standard deviation left when the types' means are accounted for; a part of the log is looked at at a time."""
    explained, n = means**2 @ weights, sessions.n_steps
    total = rest = squares = 0.0
    for chunk in sessions.chunks(_SESSIONS):
        total += float(chunk.rewards.sum())
        rest += float((chunk.rewards**2 - explained[chunk.arms]).sum())
    for chunk in sessions.chunks(_SESSIONS):
        squares += float(((chunk.rewards - total / n) ** 2).sum())
    return float(np.sqrt(max(rest / n, 1e-4 * squares / n, 1e-12)))
