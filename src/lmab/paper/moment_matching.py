"""MomentMatching: the parameters whose moments over a core set agree with the log's (Algorithm 1, steps 2 and 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist

import numpy as np

from .._shapes import Array, Float, Integer
from ..checks import COUNT, FRACTION, POSITIVE, Constraint, Count, OneOf, Or, check_fields, optional
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..errors import InvalidArgument, Status
from ..estimation.categorical import LEAST
from ..estimation.families import observe
from ..estimation.log import Log
from ..estimation.result import Estimate, Estimator, Progress, Request, Starts, StopOnce, finish
from ..model.bandit import LatentBandit
from ..model.bins import Bins
from ..model.categorical import Categorical
from ..model.gaussian import Gaussian
from ..moments.core_set import Design, design
from ..moments.second import subspace
from . import theory
from .high_orders import CoreMoments, core_moments

BINS = optional(Or(Count(2), OneOf(("auto",))))
_SAME = 1.01  # costs within this factor are the same solution
_NOISE = (
    1.9  # Half the 95% quantile of a chi-square: costs, or log-likelihoods, that differ by less are not told apart.
)
_FALSE_ALARMS = 0.01  # share of logs of a true model that may be called unmatched
_UNKNOWN = 1e-14  # part of what is known of the best known direction, below which a direction is not known at all
_VAGUE = 10.0  # An interval of a weight whose ends differ by more than this factor tells nearly nothing.
_SESSIONS = 1 << 16  # looked at together
_LEAST_WEIGHT = 1e-3  # where the geometric search for w_min ends
_MAX_EVALUATIONS = 200
_LOGIT_RANGE = 6.0
_JITTER = 0.3  # spread of the starts around the first moments
_FIRMER = (1.0, 30.0, 1000.0)  # what leaving the bounds costs, in turns, until it is negligible
NEGLIGIBLE = 1e-3  # a probability that is this far beyond its bounds keeps them


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
            takes what fits best: by the moments, and among those they do not tell apart by the likelihood of the log.
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
        >>> fit = lmab.fit(log, n_types=2, method=lmab.estimation.MomentMatching(), rng=rng)
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

    @property
    def by_moments(self) -> bool:
        return True

    def solve(self, request: Request) -> Estimate:
        """The parameters that match the moments of the log."""
        log, n_types = request.log, request.n_types
        sessions = log.sessions
        if sessions.horizon < 2:
            raise InvalidArgument(f"sessions must have at least 2 steps, got {sessions.horizon}")
        continuous = log.values is None
        if continuous and self.design is None and not theory.identifiable(n_types, sessions.horizon):
            return self._solve_cut(request)
        core = self._core(log, n_types)
        tensors = core_moments(sessions, core, min(sessions.horizon, 2 * n_types - 1))
        task = Matching(tensors, core, n_types, self._slack(core, n_types, sessions.horizon))
        levels = self._search(task, request.rng, request.progress)
        fits, bandit = _best_level(levels, core, log)
        best = min(fits, key=lambda one: one.cost)
        return finish(
            log,
            bandit,
            status=Status.INTERRUPTED if request.progress.stopped else _status(best, tensors),
            message=self._message(best, task, sessions.horizon),
            starts=Starts(len(fits), len(fits), sum(one.cost <= _SAME * best.cost + 1e-12 for one in fits)),
        )

    def _solve_cut(self, request: Request) -> Estimate:
        """Short sessions with normal rewards: match the moments of cut rewards (appendix B.2)."""
        sessions = request.log.sessions.load()
        bins = Bins.of_log(sessions, self.bins, self.epsilon, request.log.known_scale)
        cut = bins.cut(sessions)
        values = np.unique(cut.rewards)
        fit = self.solve(replace(request, log=observe(cut, values=values)))
        assert isinstance(fit.bandit.rewards, Categorical)
        edges = bins.edges_between(values)
        return replace(fit, bandit=replace(fit.bandit, rewards=replace(fit.bandit.rewards, edges=edges)), bins=bins)

    def _core(self, log: Log, n_types: int) -> Design:
        if self.design is not None:
            return self.design
        rank = min(self.rank or n_types, log.n_features)
        return design(subspace(log.sessions, rank=rank, rewards=log.family))

    def _slack(self, core: Design, n_types: int, horizon: int) -> float:
        """What a type of weight 1 may leave its bounds by: equation (valid_param_2), with the measured error.

        Where the error of the subspace is not known (features given by hand), it is taken for the
        delta_sub that `epsilon` asks for.
        """
        if core.leeway is not None:
            return core.leeway
        n_values = 1 if core.values is None else len(core.values)
        delta = theory.delta_sub(n_types, n_values, horizon, self.epsilon, self.w_min or 1 / n_types)
        return float(2 * np.sqrt(n_types) * delta)

    def _search(self, task: Matching, rng: np.random.Generator, progress: StopOnce) -> list[list[Fit]]:
        """All starts at a least weight; where that is unknown, at halved ones down to `_LEAST_WEIGHT`."""
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
                    return levels
            if self.w_min is not None or task.n_types == 1:
                break
            starts, limit = [task.restart(one) for one in sorted(levels[-1], key=lambda one: one.cost)[:3]], limit / 2
        return levels

    def _message(self, best: Fit, task: Matching, horizon: int) -> str:
        tensors, core, n_types = task.tensors, task.design, task.n_types
        n_values = 2 if core.values is None else len(core.values)
        delta = theory.delta_tsr(n_types, n_values, horizon, self.epsilon, len(core.support))
        entries = sum(len(tensor.entries) for tensor in tensors)
        regime, told = "parameters are identifiable", _told_of_weights(task, best)
        if not theory.identifiable(n_types, horizon):
            regime = f"sessions of {horizon} < 2M - 1 steps do not identify parameters: trust values, not types"
            told = ""  # No weight is better than another.
        doubt = {
            Status.ITERATION_LIMIT: "; stopped before the least squares converged: raise restarts",
            Status.UNMATCHED: f"; more than {_allowed(tensors):.1f} standard errors, or probabilities "
            f"{best.beyond:.2g} beyond their bounds: {Status.UNMATCHED.sentence}",
        }
        return (
            f"matched {entries} moments up to order {tensors[-1].order} over {len(core.support)} core pairs; largest "
            f"residual {best.residual:.2g} ({best.largest_error:.1f} standard errors; the theory's delta_tsr is "
            f"{delta:.2g}); {regime}{told}{doubt.get(_status(best, tensors), '')}"
        )


def _told_of_weights(task: Matching, best: Fit) -> str:
    """What the moments tell of the least weight; where they hardly do, what to try."""
    if task.n_types == 1:
        return ""
    low, high = task.least_weight(best)
    vague = ", which is nearly nothing: types that differ little need many more sessions" if high > _VAGUE * low else ""
    return f"; least weight {best.weights.min():.2g} (95%: {low:.2g} to {high:.2g}{vague})"


def _least(fits: list[Fit]) -> float:
    return min(one.cost for one in fits)


def _best_level(levels: list[list[Fit]], core: Design, log: Log) -> tuple[list[Fit], LatentBandit]:
    """The least weight that fits best, and its bandit.

    Among the levels whose costs the moments do not tell apart, the likelihood of the log decides: the lowest cost alone
    may belong to probabilities beyond their bounds, and clipping them moves every mean. Among those that the likelihood
    does not tell apart either, the lowest cost is taken, and of equal ones the largest least weight.
    """
    lowest = min(_least(level) for level in levels)
    found: list[tuple[float, list[Fit], LatentBandit]] = []
    for level in levels:
        if _least(level) > lowest + _NOISE:
            continue
        best = min(level, key=lambda one: one.cost)
        bandit = reconstruct(best.weights, best.core, core, log.sessions)
        found.append((float(log.heldout(bandit).sum()) if len(levels) > 1 else 0.0, level, bandit))
    likeliest = max(one[0] for one in found)
    _, fits, bandit = min((one for one in found if one[0] >= likeliest - _NOISE), key=lambda one: _least(one[1]))
    return fits, bandit


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


@dataclass(frozen=True, eq=False)
class Fit:
    """One solution."""

    weights: Float[Array, "M"]
    core: Float[Array, "n M"]  # nu_m(j): what the core pairs pay in each type
    cost: float  # half the sum of squared, weighted residuals
    residual: float  # the largest one, not weighted
    largest_error: float  # the largest one in standard errors
    beyond: float  # how far the reconstruction leaves the bounds of equation (valid_param_2)
    point: Float[Array, "p"]
    converged: bool


@dataclass(frozen=True, eq=False)
class Matching:
    """Find weights and core values whose moments are the measured ones.

    A point holds M - 1 logits of the weights and the core values (n, M). Residuals are divided by their standard
    errors; further ones keep the reconstruction of a type of weight w within slack / sqrt(w) of probabilities,
    equation (valid_param_2). They cost more and more until the bounds are kept, so the bounds are not traded for
    moments.
    """

    tensors: tuple[CoreMoments, ...]
    design: Design
    n_types: int
    slack: float  # 2 sqrt(M) delta_sub of the equation
    firmness: float = 1.0

    @property
    def n_core(self) -> int:
        return len(self.design.support)

    @cached_property
    def _transform(self) -> Float[Array, "D n"]:
        return self.design.onto_pairs

    @cached_property
    def _scales(self) -> Float[Array, "R"]:
        return np.concatenate([1 / tensor.stderr for tensor in self.tensors])

    @cached_property
    def _measured(self) -> Float[Array, "R"]:
        return np.concatenate([tensor.entries for tensor in self.tensors])

    @cached_property
    def _bounds(self) -> tuple[Float[Array, "n"], Float[Array, "n"]]:
        if self.design.values is not None:
            return np.zeros(self.n_core), np.ones(self.n_core)
        reach = 4 * np.abs(self._means).max() + 1
        return np.full(self.n_core, -reach), np.full(self.n_core, reach)

    @cached_property
    def _means(self) -> Float[Array, "n"]:
        """First moments; those not measured are in the middle."""
        first = self.tensors[0]
        means = np.full(self.n_core, float(first.entries.mean()))
        means[first.indices[:, 0]] = first.entries
        return means

    @cached_property
    def _penalty(self) -> float:
        """Weight of a constraint: at firmness 1 leaving all bounds costs as much as one moment that is off as far."""
        return float(self.firmness * np.median(self._scales) / np.sqrt(len(self._transform)))

    def random_start(self, rng: np.random.Generator) -> Float[Array, "p"]:
        low, high = self._bounds
        margin = 0.02 * (high - low)
        jitter = _JITTER * rng.standard_normal((self.n_core, self.n_types))
        core = np.clip(self._means[:, None] + jitter, (low + margin)[:, None], (high - margin)[:, None])
        return np.concatenate([np.zeros(self.n_types - 1), core.ravel()])

    def restart(self, fit: Fit) -> Float[Array, "p"]:
        """The solution of another least weight, moved inside its bounds."""
        low, high = (np.repeat(bound, self.n_types) for bound in self._bounds)
        margin = 1e-6 * (high - low)
        logits = np.clip(fit.point[: self.n_types - 1], -0.9 * _LOGIT_RANGE, 0.9 * _LOGIT_RANGE)
        return np.concatenate([logits, np.clip(fit.point[self.n_types - 1 :], low + margin, high - margin)])

    def solve(self, start: Float[Array, "p"], w_min: float) -> Fit:
        """Least squares from one start, with firmer bounds while they are left."""
        for firmness in _FIRMER:
            fit = replace(self, firmness=firmness)._solve(start, w_min)
            if fit.beyond <= NEGLIGIBLE:
                break
            start = self.restart(fit)
        return fit

    def _solve(self, start: Float[Array, "p"], w_min: float) -> Fit:
        from scipy.optimize import least_squares

        low, high = (np.repeat(bound, self.n_types) for bound in self._bounds)
        reach = np.full(self.n_types - 1, _LOGIT_RANGE)
        answer = least_squares(
            lambda point: self.residuals(point, w_min),
            start,
            jac=lambda point: self.jacobian(point, w_min),
            bounds=(np.concatenate([-reach, low]), np.concatenate([reach, high])),
            max_nfev=_MAX_EVALUATIONS,
            x_scale=1.0,
        )
        weights, core = self.unpack(answer.x, w_min)
        errors = np.abs(self._moments(weights, core) - self._measured)
        beyond = np.abs(self._violations(weights, core)[0]).max(initial=0.0)
        return Fit(
            weights, core, float(answer.cost), float(errors.max()), float((errors * self._scales).max()),
            float(beyond), answer.x, answer.status > 0,
        )  # fmt: skip

    def unpack(self, point: Float[Array, "p"], w_min: float) -> tuple[Float[Array, "M"], Float[Array, "n M"]]:
        """Weights of at least `w_min`, and core values."""
        shares = _softmax(point[: self.n_types - 1])
        weights = w_min + (1 - self.n_types * w_min) * shares
        return weights / weights.sum(), point[self.n_types - 1 :].reshape(self.n_core, self.n_types)

    def least_weight(self, fit: Fit) -> tuple[float, float]:
        """A 95% interval of the least weight of a solution, whatever least weight the solution was held to.

        It is symmetric in the logit of the weight, whose variance is that of least squares with residuals in standard
        errors. Where the types differ little it is wide: the moments then fit nearly any weight.
        """
        from scipy.special import expit

        weights = fit.weights
        point = np.concatenate([np.log(weights[:-1] / weights[-1]), fit.core.ravel()])
        slopes = self.jacobian(point, 0.0)
        known, directions = np.linalg.eigh(slopes.T @ slopes)  # What the moments tell of each direction.
        least = int(weights.argmin())
        gradient = np.zeros(len(point))  # d log(w / (1 - w)) / d point, for the least weight
        gradient[: self.n_types - 1] = (np.eye(self.n_types)[least] - weights)[:-1] / (1 - weights[least])
        variances = (directions.T @ gradient) ** 2 / np.maximum(known, _UNKNOWN * known.max())
        reach = NormalDist().inv_cdf(0.975) * float(np.sqrt(variances.sum()))
        logit = float(np.log(weights[least] / (1 - weights[least])))
        return float(expit(logit - reach)), float(expit(logit + reach))

    def residuals(self, point: Float[Array, "p"], w_min: float) -> Float[Array, "q"]:
        weights, core = self.unpack(point, w_min)
        moments = (self._moments(weights, core) - self._measured) * self._scales
        return np.concatenate([moments, self._penalty * self._violations(weights, core)[0].ravel()])

    def jacobian(self, point: Float[Array, "p"], w_min: float) -> Float[Array, "q p"]:
        weights, core = self.unpack(point, w_min)
        shares = _softmax(point[: self.n_types - 1])
        free = 1 - self.n_types * w_min
        slopes = free * (np.diag(shares) - np.outer(shares, shares))[:, : self.n_types - 1]  # d weights / d logits
        rows = []
        for tensor in self.tensors:
            factors = core[tensor.indices]  # (R, l, M)
            by_weight = factors.prod(axis=1)
            by_core = _scatter(tensor.indices, _others(factors) * weights, self.n_core)
            rows.append(np.hstack([by_weight @ slopes, by_core.reshape(len(by_weight), -1)]))
        by_weight, by_core = self._violation_slopes(weights, core)
        constraints = self._penalty * np.hstack([by_weight @ slopes, by_core])
        return np.vstack([np.vstack(rows) * self._scales[:, None], constraints])

    def _moments(self, weights: Float[Array, "M"], core: Float[Array, "n M"]) -> Float[Array, "R"]:
        return np.concatenate([core[tensor.indices].prod(axis=1) @ weights for tensor in self.tensors])

    def _violations(
        self, weights: Float[Array, "M"], core: Float[Array, "n M"]
    ) -> tuple[Float[Array, "V M"], Float[Array, "V M"]]:
        """How far reconstructed entries, and sums over an arm's values, leave their bounds; and on which side."""
        if self.design.values is None:
            return np.zeros((0, self.n_types)), np.zeros((0, self.n_types))
        distance = self._constrained @ core - self._centres[:, None]
        beyond = np.abs(distance) - self._widths[:, None] - self._slacks[:, None] / np.sqrt(weights)
        side = np.where(beyond > 0, np.sign(distance), 0.0)
        return np.maximum(beyond, 0) * side, side

    @cached_property
    def _constrained(self) -> Float[Array, "V n"]:
        """Rows that rebuild every entry, and every arm's sum over its values."""
        assert self.design.values is not None
        sums = self._transform.reshape(-1, len(self.design.values), self.n_core).sum(axis=1)
        return np.concatenate([self._transform, sums])

    @cached_property
    def _centres(self) -> Float[Array, "V"]:
        return self._per_row(0.5, 1.0)

    @cached_property
    def _widths(self) -> Float[Array, "V"]:
        return self._per_row(0.5, 0.0)

    @cached_property
    def _slacks(self) -> Float[Array, "V"]:
        return self._per_row(self.slack, 0.0 if self.design.values is None else len(self.design.values) * self.slack)

    def _per_row(self, entry: float, total: float) -> Float[Array, "V"]:
        """One number for every entry, and one for every arm's sum."""
        n_entries = len(self._transform)
        return np.concatenate([np.full(n_entries, entry), np.full(len(self._constrained) - n_entries, total)])

    def _violation_slopes(
        self, weights: Float[Array, "M"], core: Float[Array, "n M"]
    ) -> tuple[Float[Array, "v M"], Float[Array, "v q"]]:
        """Derivatives of the violations by the weights and by the core values."""
        side = self._violations(weights, core)[1]
        if not len(side):
            return np.zeros((0, self.n_types)), np.zeros((0, core.size))
        every = np.eye(self.n_types)
        wider = self._slacks[:, None] / 2 * weights**-1.5  # the bounds of a lighter type are wider
        by_weight = np.einsum("vm,mk->vmk", side * wider, every)
        by_core = np.einsum("vm,vn,mk->vmnk", np.abs(side), self._constrained, every)
        return by_weight.reshape(side.size, -1), by_core.reshape(side.size, -1)


def _softmax(logits: Float[Array, "k"]) -> Float[Array, "M"]:
    full = np.append(logits, 0.0)
    shares = np.exp(full - full.max())
    return shares / shares.sum()


def _others(factors: Float[Array, "R l M"]) -> Float[Array, "R l M"]:
    """For every factor the product of the others."""
    ones = np.ones_like(factors[:, :1])
    before = np.concatenate([ones, np.cumprod(factors, axis=1)[:, :-1]], axis=1)
    after = np.concatenate([np.cumprod(factors[:, ::-1], axis=1)[:, -2::-1], ones], axis=1)
    return before * after


def _scatter(indices: Integer[Array, "R l"], slopes: Float[Array, "R l M"], size: int) -> Float[Array, "R n M"]:
    """Add each factor's slope at its position in the core set."""
    total = np.zeros((len(indices), size, slopes.shape[2]))
    rows = np.arange(len(indices))
    for column in range(indices.shape[1]):
        total[rows, indices[:, column]] += slopes[:, column]  # one position per row, so += does not collide
    return total
