"""MomentMatching: parameters with the moments of the log (Algorithm 1, steps 2 and 3)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from .._shapes import Array, Float, Integer
from ..checks import COUNT, FRACTION, POSITIVE, Constraint, Count, OneOf, Or, check_fields, optional
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..errors import InvalidArgument, Status
from ..estimation.categorical import LEAST
from ..estimation.families import observe
from ..estimation.log import Log
from ..estimation.result import Capabilities, Estimate, Estimator, Progress, Request, Starts, StopOnce, finish
from ..model.bandit import LatentBandit
from ..model.bins import Bins
from ..model.categorical import Categorical
from ..model.gaussian import Gaussian
from ..moments.core_set import Design, design
from ..moments.second import subspace
from . import theory
from .high_orders import MAX_ENTRIES, CentredMoments, Contrasts, Pairs, centred_moments, n_entries

BINS = optional(Or(Count(2), OneOf(("auto",))))
ENTRIES = 50_000  # moments that all arms may have: 60 arms of two values for 2 types, 19 arms for 3
_SAME = 1.01  # costs within this factor are the same solution
_FALSE_ALARMS = 0.01  # share of logs of a true model that may be called unmatched
_UNKNOWN = 1e-14  # information about a direction, relative to the best known one, below which it is not known at all
_VAGUE = 10.0  # ratio of the ends of an interval of a weight that is too wide to be of use
_SESSIONS = 1 << 16  # looked at together
_MAX_EVALUATIONS = 200
_LOGIT_RANGE = 6.9  # log 1000: no type is a thousand times as frequent as another
_LEAST_VARIANCE = 1 / 9  # of an entry, as a multiple of that of types that are alike
_FIRMER = (1.0, 30.0, 1000.0)  # weights of the bounds, in turn, until the solution keeps them
_COMPLETIONS = 20  # rounds in which second moments that no session measured are replaced by the model's
_BINS = (8, 64)  # the fewest and the most bins that are tried
NEGLIGIBLE = 1e-3  # a probability that is this far beyond its bounds keeps them


@dataclass(frozen=True)
class MomentMatching(Estimator):
    """Estimator that matches all moments up to order min(H, 2M - 1) of the log: equation (tensor_error_cond).

    With H >= 2M - 1 this recovers the types; with shorter sessions it finds some types that no policy of H steps
    could distinguish from the true ones, which is all that planning needs (Lemma 3.5). Arms must have been chosen
    without looking at the session's own rewards. If no parameters match the moments within their standard errors, the
    status is "unmatched" and a warning says so.

    Rewards are centred at their arm's mean and standardised before they are multiplied. That is a linear change of the
    moments of each order and of lower ones, so the same parameters match; but the noise of an arm's own mean, which
    dominates raw products, drops out. Squared residuals are weighted by the number of plays, and then once more by the
    variances that the first solution predicts.

    Args:
        arms: "all" matches the moments of all arms that the log played, as far as there are at most 50,000 of them:
            first the core set's, then the moments of the arms with the most plays. "core" matches the moments of the
            core pairs only, as Algorithm 1 does. Arms without moments are reconstructed from the core set.
        design: the core set; None finds one from the same log if it is needed.
        rank: dimension of the subspace of the types; None: the number of types.
        restarts: starts of the least-squares fit.
        w_min: least weight of a type; None: a thousandth of the largest weight.
        epsilon: reconstructed probabilities may leave [0, 1] by as much as the measured error of the subspace and the
            type's weight allow; only if that error is unknown, `epsilon` sets it (delta_sub). It also sets the grid of
            `bins=None`.
        bins: normal rewards of sessions shorter than 2M - 1 steps are cut at this many quantiles, and matched as
            categories; "auto": the number of bins that predicts held-out sessions best; None: at the grid of appendix
            B.2 for `epsilon`, which is far finer. The estimate has the `bins`; its bandit has the cut rewards, and
            policies planned on it cut the rewards that they observe.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.LatentBandit.bernoulli([0.4, 0.6], [[0.9, 0.1, 0.4], [0.2, 0.7, 0.5]])
        >>> log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=20_000, horizon=3, rng=rng)
        >>> fit = lmab.fit(log, n_types=2, method=lmab.estimation.MomentMatching(), rng=rng)
        >>> bool(fit.bandit.distance(bandit) < 0.1)
        True
    """

    arms: str = "all"
    design: Design | None = None
    rank: int | None = None
    restarts: int = 12
    w_min: float | None = None
    epsilon: float = 0.1
    bins: int | str | None = "auto"

    def __post_init__(self) -> None:
        numbers: dict[str, Constraint] = {"epsilon": POSITIVE, "w_min": optional(FRACTION)}
        check_fields(
            self,
            {"arms": OneOf(("core", "all")), "restarts": COUNT, "rank": optional(COUNT), "bins": BINS, **numbers},
        )

    @property
    def capabilities(self) -> Capabilities:
        """Return the capabilities that `lmab.fit` may use."""
        return Capabilities(uses_moments=True)

    def solve(self, request: Request) -> Estimate:
        """Return the parameters that match the moments of the log."""
        log, n_types = request.log, request.n_types
        horizon = log.sessions.horizon
        if horizon < 2:
            raise InvalidArgument(f"sessions must have at least 2 steps, got {horizon}")
        if self.w_min is not None and self.w_min * n_types > 1:
            raise InvalidArgument(f"w_min must be at most 1/{n_types}, got {self.w_min!r}")
        if log.values is None and self.design is None and not theory.identifiable(n_types, horizon):
            return self._solve_cut(request)
        order = min(horizon, 2 * n_types - 1)
        parts = self._parts(log, n_types, order)
        if parts.contrasts.n == 0:
            return self._alike(request, parts)
        moments = centred_moments(log.sessions, parts.contrasts, order)
        if int((moments.indices < parts.contrasts.n).sum(axis=1).max(initial=0)) < min(order, 2):
            raise InvalidArgument("sessions must play the matched arms twice in a session, got none that do")
        task = Matching(moments, parts.contrasts, n_types, parts.limits(log.sessions.n_arms), self.w_min or 0.0)
        best, starts = task.search(self.restarts, request.rng, request.progress)
        bandit = parts.bandit(best, log.sessions)
        status, off = task.status(best), _wrong_mean(bandit, log.sessions)
        if off and status is Status.CONVERGED:
            status = Status.UNMATCHED
        return finish(
            log,
            bandit,
            status=Status.INTERRUPTED if request.progress.stopped else status,
            message=self._message(best, task, horizon) + off,
            starts=starts,
        )

    def _alike(self, request: Request, parts: _Parts) -> Estimate:
        """Return types that are all like the log, of which no matched event occurs often enough to differ."""
        weights = np.full(request.n_types, 1 / request.n_types)
        fit = Fit(weights, np.zeros((0, request.n_types)), 0.0, np.zeros(0), 0.0, True)
        message = "types are alike: no matched reward occurs five times"
        return finish(request.log, parts.bandit(fit, request.log.sessions), message=message)

    def _solve_cut(self, request: Request) -> Estimate:
        """Match the moments of cut rewards: short sessions with normal rewards (appendix B.2)."""
        sessions = request.log.sessions.load()
        bins = cut_points(sessions, self, request.n_types, request.rng, request.log.known_scale)
        cut = bins.cut(sessions)
        values = np.unique(cut.rewards)
        fit = self.solve(replace(request, log=observe(cut, values=values)))
        assert isinstance(fit.bandit.rewards, Categorical)
        edges = bins.edges_between(values)
        return replace(fit, bandit=replace(fit.bandit, rewards=replace(fit.bandit.rewards, edges=edges)), bins=bins)

    def _parts(self, log: Log, n_types: int, order: int) -> _Parts:
        """Return the contrasts that are matched, and the reconstruction of the other arms."""
        sessions, values = log.sessions, log.values
        played = np.flatnonzero(sessions.plays)
        per_arm = 1 if values is None else max(len(values) - 1, 1)
        if self.arms == "all" and self.design is None and n_entries(len(played) * per_arm, order) <= ENTRIES:
            return _Parts(Contrasts.of(sessions, _events(played.tolist(), values), values), None, played, 0.0)
        core = self._core(log, n_types)
        known = core.values if values is None or core.values is None else np.union1d(values, core.values)
        events = _single(core.pairs)
        whole: list[int] = []
        if self.arms == "all":
            plays = sessions.plays
            inside = set(core.arms)
            for arm in sorted(played.tolist(), key=lambda arm: (arm not in inside, -plays[arm])):
                more = sorted(set(events) | set(_events([arm], known)))
                if n_entries(_n_contrasts(more, known), order) > ENTRIES:
                    break
                events, whole = more, [*whole, arm]
        size = n_entries(_n_contrasts(events, known), order)
        if size > MAX_ENTRIES:
            raise InvalidArgument(
                f"order must be smaller for a core set of {len(core.pairs)}: {size} moments, more than {MAX_ENTRIES}, "
                f"got {order}"
            )
        slack = self._slack(core, n_types, sessions.horizon)
        contrasts = Contrasts.of(sessions, events, known)
        return _Parts(contrasts, core, np.array(whole, dtype=np.int64), slack, _own_means(sessions, core))

    def _core(self, log: Log, n_types: int) -> Design:
        if self.design is not None:
            return self.design
        rank = min(self.rank or n_types, log.n_features)
        return design(subspace(log.sessions, rank=rank, rewards=log.family))

    def _slack(self, core: Design, n_types: int, horizon: int) -> float:
        """Return how far a type of weight 1 may leave its bounds: equation (valid_param_2), with the measured error.

        If the error of the subspace is not known (features given by hand), it is the delta_sub that `epsilon` asks for.
        """
        if core.leeway is not None:
            return core.leeway
        n_values = 1 if core.values is None else len(core.values)
        delta = theory.delta_sub(n_types, n_values, horizon, self.epsilon, self.w_min or 1 / n_types)
        return float(2 * np.sqrt(n_types) * delta)

    def _message(self, best: Fit, task: Matching, horizon: int) -> str:
        n_types = task.n_types
        regime, weight = "parameters are identifiable", _weight_sentence(task, best)
        if not theory.identifiable(n_types, horizon):
            regime = f"sessions of {horizon} < 2M - 1 steps do not identify parameters: trust values, not types"
            weight = ""  # No weight is better than another.
        worst = int((np.abs(best.errors) / task.allowed(best)).argmax())  # entries of few plays may be further off
        doubt = {
            Status.ITERATION_LIMIT: "; stopped before the least squares converged: raise restarts",
            Status.UNMATCHED: f"; more than the {task.allowed(best)[worst]:.1f} standard errors that noise explains, "
            f"or probabilities {best.beyond:.2g} beyond their bounds: {Status.UNMATCHED.sentence}",
        }
        return (
            f"matched {len(task.moments.entries)} centred moments up to order {task.moments.order} of "
            f"{len(task.contrasts.arms)} arms; largest residual {abs(best.errors[worst]):.1f} standard errors; "
            f"{regime}{weight}{doubt.get(task.status(best), '')}"
        )


def _events(arms: list[int], values: Float[Array, "Z"] | None) -> Pairs:
    """Return all pairs of these arms."""
    return [(arm, value) for arm in arms for value in ([None] if values is None else values.tolist())]


def _own_means(sessions: Sessions | Packed, core: Design) -> Float[Array, "D"]:
    """Return the log's mean of every row of an arm that it played, and NaN for the other arms."""
    plays = sessions.plays
    size = 1 if core.values is None else len(core.values)
    means = np.full((len(core.onto_pairs) // size, size), np.nan)
    arms = np.flatnonzero(plays)
    if len(arms):
        means[arms] = Contrasts.of(sessions, _events(arms.tolist(), core.values), core.values).centre.reshape(-1, size)
    return means.ravel()


def _single(pairs: Pairs) -> Pairs:
    """Return the pairs with each event of several values as its values."""
    return sorted({(arm, one) for arm, event in pairs for one in (event if isinstance(event, frozenset) else (event,))})


def _n_contrasts(events: Pairs, values: Float[Array, "Z"] | None) -> int:
    """Return the number of contrasts: all values of an arm have one direction less."""
    sizes = [len(list(own)) for _, own in groupby(events, key=lambda pair: pair[0])]
    return sum(size - (values is not None and size == len(values)) for size in sizes)


def _weight_sentence(task: Matching, best: Fit) -> str:
    """Return a clause with the interval of the least weight, and with a remedy if it is wide."""
    if task.n_types == 1:
        return ""
    low, high = task.least_weight(best)
    vague = "; too wide to be of use: types that differ little need many more sessions" if high > _VAGUE * low else ""
    return f"; least weight {best.weights.min():.2g} (95%: {low:.2g} to {high:.2g}{vague})"


def _wrong_mean(bandit: LatentBandit, sessions: Sessions | Packed) -> str:
    """Return a clause about the arm with the mean furthest from the log's; empty if noise explains all."""
    n_arms = sessions.n_arms
    plays, sums, squares, together = np.zeros((4, n_arms))
    for chunk in sessions.chunks(_SESSIONS):
        session = np.repeat(np.arange(len(chunk)), chunk.lengths)
        codes, counts = np.unique(session * n_arms + chunk.arms, return_counts=True)
        plays += np.bincount(codes % n_arms, counts, minlength=n_arms)
        together += np.bincount(codes % n_arms, counts**2, minlength=n_arms)
        sums += np.bincount(chunk.arms, chunk.rewards, minlength=n_arms)
        squares += np.bincount(chunk.arms, chunk.rewards**2, minlength=n_arms)
    played = plays > 0
    mean = sums[played] / plays[played]
    variance = np.maximum(squares[played] / plays[played] - mean**2, np.finfo(float).tiny)
    # Steps of a session that play the same arm share the type.
    stderr = np.sqrt(variance * together[played]) / plays[played]
    model = (bandit.weights @ bandit.means)[played]
    errors = np.abs(model - mean) / np.maximum(stderr, LEAST * np.abs(mean).max() + np.finfo(float).tiny)
    worst = int(errors.argmax())
    if errors[worst] <= NormalDist().inv_cdf(1 - _FALSE_ALARMS / (2 * len(errors))):
        return ""
    arm = int(np.flatnonzero(played)[worst])
    return (
        f"; the model's mean of arm {arm} is {model[worst]:.3g}, the log's {mean[worst]:.3g} "
        f"({errors[worst]:.1f} standard errors)"
    )


def cut_points(
    sessions: Sessions, method: MomentMatching, n_types: int, rng: np.random.Generator, scale: float | None = None
) -> Bins:
    """Return the bins that `method.bins` asks for; `scale` is the known standard deviation of the rewards."""
    if method.bins is None:
        return Bins.appendix_grid(sessions.horizon, method.epsilon, scale or 1.0)
    if isinstance(method.bins, str):
        return predictive_bins(sessions, method, n_types, rng)
    return Bins.at_quantiles(sessions.rewards, method.bins)


def predictive_bins(sessions: Sessions, method: MomentMatching, n_types: int, rng: np.random.Generator) -> Bins:
    """Return quantile bins, as many as predict held-out sessions best.

    Fits to two thirds of the sessions predict the others under 8, 16, 32, ... bins, until twice as many do not predict
    better. The score of a session is its log-likelihood minus that of independent rewards from
    the same bins. This difference does not depend on the width of the bins, so numbers of bins can be compared.
    """
    train, held = sessions.split(2 / 3, rng=rng)
    best, scores, n_bins = _BINS[0], np.full(len(held), -np.inf), _BINS[0]
    while n_bins <= _BINS[1]:
        bins = Bins.at_quantiles(train.rewards, n_bins)
        cut, test = bins.cut(train), bins.cut(held)
        bandit = method.fit(observe(cut, values=bins.values), n_types=n_types, rng=rng).bandit
        alone = Contrasts.of(cut, _events(np.flatnonzero(cut.plays).tolist(), bins.values), bins.values)
        rows = np.full((1, sessions.n_arms, len(bins.values)), 1 / len(bins.values))
        rows[0, alone.arms] = np.maximum(alone.centre.reshape(-1, len(bins.values)), LEAST)
        one = LatentBandit(np.ones(1), Categorical(rows / rows.sum(axis=2, keepdims=True), bins.values))
        log = observe(test, values=bins.values)
        new = log.heldout(bandit) - log.heldout(one)
        if new.mean() <= scores.mean():
            break
        best, scores, n_bins = n_bins, new, 2 * n_bins
    return Bins.at_quantiles(sessions.rewards, best)


class Limits(NamedTuple):
    """Linear functions of the contrasts that must be at most `width` + slack / sqrt(weight) from `centre`."""

    rows: Float[Array, "V n"]
    centre: Float[Array, "V"]
    width: Float[Array, "V"]
    slack: Float[Array, "V"]


@dataclass(frozen=True, eq=False)
class _Parts:
    """The contrasts that are matched, and the reconstruction of the other arms."""

    contrasts: Contrasts
    core: Design | None
    whole: Integer[Array, "_"]  # arms with moments of all values: they are not reconstructed
    slack: float
    means: Float[Array, "D"] = field(default_factory=lambda: np.zeros(0))  # see `_own_means`

    @cached_property
    def _pairs(self) -> tuple[Float[Array, "p"], Float[Array, "p n"]]:
        """Return centre and factor of the core pairs."""
        assert self.core is not None
        place = {event: number for number, event in enumerate(self.contrasts.events)}
        hits = np.zeros((len(self.core.pairs), len(place)))
        for row, (arm, event) in enumerate(self.core.pairs):
            for one in event if isinstance(event, frozenset) else (event,):
                hits[row, place[arm, one]] = 1.0
        return hits @ self.contrasts.centre, hits @ self.contrasts.factor

    @cached_property
    def _rebuilt(self) -> tuple[Float[Array, "D"], Float[Array, "D n"]]:
        """Return base and factor of every row that the core set rebuilds: equation (transform_subspace).

        Of arms that the log played, only the types' deviations from the mean are rebuilt.
        """
        assert self.core is not None
        centre, factor = self._pairs
        base = self.core.onto_pairs @ centre
        return np.where(np.isnan(self.means), base, self.means), self.core.onto_pairs @ factor

    def limits(self, n_arms: int) -> Limits:
        """Return the bounds of probabilities: none of normal rewards."""
        contrasts, n = self.contrasts, self.contrasts.n
        if contrasts.values is None:
            none = np.zeros(0)
            return Limits(np.zeros((0, n)), none, none, none)
        group = np.searchsorted(contrasts.arms, [arm for arm, _ in contrasts.events])
        sums = np.zeros((len(contrasts.arms), len(group)))
        sums[group, np.arange(len(group))] = 1.0
        direct = np.concatenate([contrasts.factor, sums @ contrasts.factor])
        base = np.concatenate([contrasts.centre, sums @ contrasts.centre])
        found = [Limits(direct, 0.5 - base, np.full(len(base), 0.5), np.zeros(len(base)))]
        if self.core is not None and self.core.values is not None:
            size = len(self.core.values)
            base, rows = self._rebuilt
            left = ~np.isin(np.arange(len(base)) // size, self.whole)
            totals = rows.reshape(-1, size, n).sum(axis=1), base.reshape(-1, size).sum(axis=1)
            others = left[::size]
            found.append(
                Limits(rows[left], 0.5 - base[left], np.full(left.sum(), 0.5), np.full(left.sum(), self.slack))
            )
            ones = np.ones(int(others.sum()))
            found.append(Limits(totals[0][others], 1 - totals[1][others], 0 * ones, size * self.slack * ones))
        return Limits(*(np.concatenate(parts) for parts in zip(*found, strict=True)))

    def bandit(self, fit: Fit, sessions: Sessions | Packed) -> LatentBandit:
        """Return the bandit of a solution."""
        contrasts = self.contrasts
        if self.core is not None:
            base, factor = self._rebuilt
            bandit = rebuilt(fit.weights, base[:, None] + factor @ fit.y, self.core, sessions, self.means)
            if not len(self.whole):
                return bandit
        means = contrasts.event_means(fit.y)
        if contrasts.values is None:
            table = np.zeros((sessions.n_arms, len(fit.weights))) if self.core is None else bandit.means.T.copy()
            if self.core is None:
                table[:] = contrasts.centre @ sessions.plays[contrasts.arms] / sessions.n_steps
            table[self.whole] = means[np.searchsorted(contrasts.arms, self.whole)]
            normal = Gaussian(np.ascontiguousarray(table.T), _scale(sessions, fit.weights, table))
            return LatentBandit(fit.weights, normal, sessions.arm_labels)
        values = contrasts.values if self.core is None else bandit.rewards.values
        assert values is not None
        rows = np.empty((len(fit.weights), sessions.n_arms, len(values)))
        if self.core is None:  # arms that were never played are like the others
            rows[:] = contrasts.centre.reshape(-1, len(values)).T @ sessions.plays[contrasts.arms] / sessions.n_steps
        else:
            assert isinstance(bandit.rewards, Categorical)
            rows[:] = bandit.rewards.probabilities
        places = np.searchsorted(values, contrasts.values)
        for arm in self.whole.tolist():
            own = [number for number, (other, _) in enumerate(contrasts.events) if other == arm]
            rows[:, arm] = LEAST
            rows[:, arm, places] = np.clip(means[own].T, LEAST, 1)
        rewards = Categorical(rows / rows.sum(axis=2, keepdims=True), values)
        return LatentBandit(fit.weights, rewards, sessions.arm_labels)


def reconstruct(
    weights: Float[Array, "M"], core: Float[Array, "n M"], design: Design, sessions: Sessions | Packed
) -> LatentBandit:
    """Return the bandit with these values on the core set: equations (transform_subspace) and (clipping_mu)."""
    return rebuilt(weights, design.onto_pairs @ core, design, sessions)


def rebuilt(
    weights: Float[Array, "M"],
    table: Float[Array, "D M"],
    design: Design,
    sessions: Sessions | Packed,
    means: Float[Array, "D"] | None = None,
) -> LatentBandit:
    """Return the bandit with this value in every row of the design, clipped to probabilities: (clipping_mu).

    The types' mean of a row that has one in `means` is kept as far as bounds allow.
    """
    if design.values is None:
        if means is not None:
            table = table + np.nan_to_num(means - table @ weights)[:, None]
        scale = _scale(sessions, weights, table)
        return LatentBandit(weights, Gaussian(np.ascontiguousarray(table.T), scale), sessions.arm_labels)
    size = len(design.values)
    known = _clipped(table.T.reshape(len(weights), -1, size))
    if means is not None:
        target = means.reshape(-1, size)
        for _ in range(_COMPLETIONS):
            known = _clipped(known + np.nan_to_num(target - np.tensordot(weights, known, 1)))
    # core plays may pay values that exploration never saw
    values = np.union1d(design.values, np.unique(sessions.some_rewards))
    rows = np.full((*known.shape[:2], len(values)), LEAST)
    rows[:, :, np.searchsorted(values, design.values)] = known
    return LatentBandit(weights, Categorical(rows / rows.sum(axis=2, keepdims=True), values), sessions.arm_labels)


def _clipped(table: Float[Array, "M A Z"]) -> Float[Array, "M A Z"]:
    """Return probabilities of at least `LEAST` that sum to 1."""
    table = np.clip(table, LEAST, 1)
    return table / table.sum(axis=2, keepdims=True)


def _scale(sessions: Sessions | Packed, weights: Float[Array, "M"], means: Float[Array, "A M"]) -> float:
    """Return the standard deviation that the types' means leave; a part of the log is looked at at a time."""
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
    y: Float[Array, "n M"]  # means of the contrasts in each type
    cost: float  # half the sum of squared residuals in standard errors
    errors: Float[Array, "R"]  # residuals in standard errors
    beyond: float  # how far probabilities leave their bounds
    converged: bool


class _Local(NamedTuple):
    """The cost at a point, its gradient, and the Gauss-Newton approximation of its second derivatives."""

    cost: float
    gradient: Float[Array, "p"]
    curvature: Float[Array, "p p"]


@dataclass(frozen=True, eq=False)
class Matching:
    """Search for weights and means of contrasts that have the measured moments.

    A point holds M - 1 logits of the weights, and the means (n, M), or their coordinates (k, M) in a plane. Residuals
    are divided by their standard errors. Further ones keep probabilities within their bounds; they cost more and more
    until the bounds are kept, so the bounds are not traded for moments.
    """

    moments: CentredMoments
    contrasts: Contrasts
    n_types: int
    limits: Limits
    w_min: float = 0.0
    variances: Float[Array, "R"] | None = None  # of an entry, times its plays; None: 1, as if types were alike
    plane: Float[Array, "n k"] | None = None
    firmness: float = 1.0

    @cached_property
    def _stderr(self) -> Float[Array, "R"]:
        return np.sqrt((1.0 if self.variances is None else self.variances) / self.moments.plays)

    @cached_property
    def _penalty(self) -> float:
        """Weight of a bound: at firmness 1 leaving all bounds costs as much as one moment that is off as far."""
        return float(self.firmness * np.median(1 / self._stderr) / np.sqrt(max(len(self.limits.rows), 1)))

    # The search

    def search(self, restarts: int, rng: np.random.Generator, progress: StopOnce) -> tuple[Fit, Starts]:
        """Return the best solution: starts in a plane, the best of them free, then with the model's variances."""
        plane = self.leading_plane()
        inside = replace(self, plane=plane)
        descents: list[tuple[float, Float[Array, "p"]]] = []
        for number in range(restarts if plane.shape[1] else 1):
            point, cost, _ = inside.descend(inside.random_start(rng))
            descents.append((cost, point))
            least = min(cost for cost, _ in descents)
            if progress(Progress("matching", number + 1, restarts, -least)):
                break
        least, point = min(descents, key=lambda one: one[0])
        weights, y = inside.unpack(point)
        fit = self.solve(weights, y)
        if not progress.stopped:
            second = replace(self, variances=self.predicted_variances(fit))
            fit = second.solve(fit.weights, fit.y)
        best = sum(cost <= _SAME * least + 1e-12 for cost, _ in descents)
        return fit, Starts(len(descents), len(descents), best)

    def solve(self, weights: Float[Array, "M"], y: Float[Array, "n M"]) -> Fit:
        """Return the solution of least squares from this one, with firmer bounds until it keeps them."""
        point = self.pack(weights, y)
        for firmness in _FIRMER:
            task = replace(self, firmness=firmness)
            point, _, converged = task.descend(point)
            weights, y = task.unpack(point)
            beyond = float(np.abs(task.beyond(weights, y)).max(initial=0.0))
            if beyond <= NEGLIGIBLE:
                break
        errors = (self.predict(weights, y) - self.moments.entries) / self._stderr
        return Fit(weights, y, float(errors @ errors) / 2, errors, beyond, converged)

    def descend(self, point: Float[Array, "p"]) -> tuple[Float[Array, "p"], float, bool]:
        """Return the point that Levenberg and Marquardt's method reaches, its cost, and whether it converged."""
        here, damping, growth = self.local(point), 1e-3, 2.0
        for _ in range(_MAX_EVALUATIONS):
            free = self._free(point, here.gradient)
            scale = np.maximum(np.diag(here.curvature), 1e-12)
            curvature = here.curvature[np.ix_(free, free)] + np.diag(damping * scale[free])
            step = np.zeros(len(point))
            try:
                step[free] = -np.linalg.solve(curvature, here.gradient[free])
            except np.linalg.LinAlgError:  # moments that do not depend on a parameter, and too little damping
                damping, growth = damping * growth, growth * 2
                continue
            there = self._within(point + step)
            moved = there - point
            predicted = -float(here.gradient @ moved + moved @ here.curvature @ moved / 2)
            if predicted <= 1e-10 * here.cost + 1e-14:
                return point, here.cost, True
            new = self.local(there)
            if new.cost < here.cost:
                small = here.cost - new.cost <= 1e-8 * here.cost and predicted <= 1e-8 * here.cost
                ratio = (here.cost - new.cost) / predicted
                damping, growth = damping * max(1 / 3, 1 - (2 * ratio - 1) ** 3), 2.0
                point, here = there, new
                if small:
                    return point, here.cost, True
            else:
                damping, growth = damping * growth, growth * 2
        return point, here.cost, False

    def _free(self, point: Float[Array, "p"], gradient: Float[Array, "p"]) -> Any:
        """Return the coordinates that may move: not the logits at the end of their range that want to leave it."""
        free = np.ones(len(point), bool)
        logits = slice(self.n_types - 1)
        free[logits] = (np.abs(point[logits]) < _LOGIT_RANGE) | (point[logits] * gradient[logits] > 0)
        return np.flatnonzero(free)

    def _within(self, point: Float[Array, "p"]) -> Float[Array, "p"]:
        logits = slice(self.n_types - 1)
        point[logits] = np.clip(point[logits], -_LOGIT_RANGE, _LOGIT_RANGE)
        return point

    # Points

    def pack(self, weights: Float[Array, "M"], y: Float[Array, "n M"]) -> Float[Array, "p"]:
        """Return the point of these weights and means."""
        shares = np.maximum(weights - self.w_min, 1e-3 * weights) if self.w_min else weights
        logits = np.log(shares[:-1] / shares[-1])
        return self._within(np.concatenate([logits, y.ravel()]))

    def unpack(self, point: Float[Array, "p"]) -> tuple[Float[Array, "M"], Float[Array, "n M"]]:
        """Return the weights, of at least `w_min`, and the means."""
        weights = self.w_min + (1 - self.n_types * self.w_min) * _softmax(point[: self.n_types - 1])
        y = point[self.n_types - 1 :].reshape(-1, self.n_types)
        return weights / weights.sum(), y if self.plane is None else self.plane @ y

    def leading_plane(self) -> Float[Array, "n k"]:
        """Return the M - 1 leading directions of the second moments, times the types' spread along them.

        Arms count by their plays. If no session measured a second moment, the plane completes it.
        """
        n, k = self.contrasts.n, min(self.n_types - 1, self.contrasts.n)
        indices = self.moments.indices
        if k == 0 or indices.shape[1] < 2:
            return np.zeros((n, 0))
        first = (indices < n).sum(axis=1) == 1
        plays = np.ones(n)
        plays[indices[first, 0]] = self.moments.plays[first]
        size = np.sqrt(plays / plays.max())
        pairs = (indices < n).sum(axis=1) == 2
        i, j = indices[pairs, 0], indices[pairs, 1]
        second, measured = np.zeros((n, n)), np.zeros((n, n), bool)
        second[i, j] = second[j, i] = self.moments.entries[pairs] * size[i] * size[j]
        measured[i, j] = measured[j, i] = True
        for _ in range(1 if measured.all() else _COMPLETIONS):
            values, vectors = np.linalg.eigh(second)
            loadings = vectors[:, -k:] * np.sqrt(np.maximum(values[-k:], 1e-9))
            second = np.where(measured, second, loadings @ loadings.T)
        return loadings / size[:, None]

    def random_start(self, rng: np.random.Generator) -> Float[Array, "p"]:
        """Return random weights, and random positions in the plane with mean 0 and unit covariance."""
        assert self.plane is not None
        k = self.plane.shape[1]
        weights = np.maximum(rng.dirichlet(np.ones(self.n_types)), 0.03)
        weights /= weights.sum()
        z = rng.standard_normal((self.n_types, k))
        z -= weights @ z
        covariance = (z * weights[:, None]).T @ z
        z = z @ np.linalg.cholesky(np.linalg.inv(covariance + 1e-9 * np.eye(k)))
        return self.pack(weights, z.T)

    # The objective

    @cached_property
    def _columns(self) -> tuple[Integer[Array, "q"], Integer[Array, "q"]]:
        """Return rows and columns of the free Jacobian's entries."""
        n, m = self.contrasts.n, self.n_types
        rows, places = np.nonzero(self.moments.indices < n)
        slots = self.moments.indices[rows, places]
        return np.repeat(rows, m), (m - 1 + slots[:, None] * m + np.arange(m)).ravel()

    def predict(self, weights: Float[Array, "M"], y: Float[Array, "n M"]) -> Float[Array, "R"]:
        """Return the model's moments."""
        return self._products(y).prod(axis=1) @ weights

    def _products(self, y: Float[Array, "n M"]) -> Float[Array, "R L M"]:
        return np.vstack([y, np.ones((1, self.n_types))])[self.moments.indices]

    def residuals(self, point: Float[Array, "p"]) -> Float[Array, "q"]:
        """Return all residuals: first of the moments, then of the bounds."""
        weights, y = self.unpack(point)
        moments = (self.predict(weights, y) - self.moments.entries) / self._stderr
        return np.concatenate([moments, self._penalty * self.beyond(weights, y).ravel()])

    def local(self, point: Float[Array, "p"]) -> _Local:
        """Return the cost, its gradient and its curvature at a point."""
        from scipy.sparse import csr_array

        weights, y = self.unpack(point)
        shares = _softmax(point[: self.n_types - 1])
        slopes = (1 - self.n_types * self.w_min) * (np.diag(shares) - np.outer(shares, shares))[:, :-1]
        factors = self._products(y)
        products = factors.prod(axis=1)
        errors = (products @ weights - self.moments.entries) / self._stderr
        by_logit = products @ slopes / self._stderr[:, None]
        by_factor = _others(factors) * (weights / self._stderr[:, None, None])
        if self.plane is not None:
            loadings = np.vstack([self.plane, np.zeros((1, self.plane.shape[1]))])[self.moments.indices]
            by_y = np.einsum("rlm,rlk->rkm", by_factor, loadings, optimize=True).reshape(len(errors), -1)
            jacobian: Any = np.hstack([by_logit, by_y])
            curvature = jacobian.T @ jacobian
        else:
            rows, columns = self._columns
            logits = np.indices(by_logit.shape).reshape(2, -1)
            inside = by_factor[self.moments.indices < self.contrasts.n]
            jacobian = csr_array(
                (
                    np.concatenate([by_logit.ravel(), inside.ravel()]),
                    (np.concatenate([logits[0], rows]), np.concatenate([logits[1], columns])),
                ),
                shape=(len(errors), len(point)),
            )
            curvature = (jacobian.T @ jacobian).toarray()
        over, bounds = self._active_bounds(weights, y, slopes)
        cost = float(errors @ errors + over @ over) / 2
        return _Local(cost, jacobian.T @ errors + bounds.T @ over, curvature + bounds.T @ bounds)

    def beyond(self, weights: Float[Array, "M"], y: Float[Array, "n M"]) -> Float[Array, "V M"]:
        """Return how far each bounded quantity leaves its bounds, with the sign of the side."""
        distance = self.limits.rows @ y - self.limits.centre[:, None]
        excess = np.abs(distance) - self.limits.width[:, None] - self.limits.slack[:, None] / np.sqrt(weights)
        return np.maximum(excess, 0) * np.sign(distance)

    def _active_bounds(
        self, weights: Float[Array, "M"], y: Float[Array, "n M"], slopes: Float[Array, "M s"]
    ) -> tuple[Float[Array, "b"], Float[Array, "b p"]]:
        """Return the penalties of the bounds that are not kept, and their derivatives."""
        beyond = self.beyond(weights, y)
        bound, type_ = np.nonzero(beyond)
        rows = self.limits.rows[bound] if self.plane is None else self.limits.rows[bound] @ self.plane
        wider = self.limits.slack[bound] / 2 * weights[type_] ** -1.5  # the bounds of a lighter type are wider
        side = np.sign(beyond[bound, type_])
        by_logit = (side * wider)[:, None] * slopes[type_]
        by_y = (rows[:, :, None] * np.eye(self.n_types)[type_][:, None, :]).reshape(
            len(bound), rows.shape[1] * self.n_types
        )
        return self._penalty * beyond[bound, type_], self._penalty * np.hstack([by_logit, by_y])

    # Errors of a solution

    def predicted_variances(self, fit: Fit) -> Float[Array, "R"]:
        """Return the variance of each entry under a solution, times its plays.

        Products of one session share its type and steps, so that they vary together: if a session has several of them,
        the variance between sessions counts if it is larger.
        """
        mean = self.predict(fit.weights, fit.y)
        second = self._moments_of(self.contrasts.powers(fit.weights, fit.y, 2)) @ fit.weights
        model = np.maximum(second - mean**2, _LEAST_VARIANCE)
        return np.where(self.moments.clustering > 1, np.maximum(model, self.moments.variances), model)

    def _moments_of(self, powers: Float[Array, "n M"]) -> Float[Array, "R M"]:
        return self._products(powers).prod(axis=1)

    def allowed(self, fit: Fit) -> Float[Array, "R"]:
        """Return the standard errors that the largest residual exceeds in at most 1% of all logs, dependent or not.

        The limit of a normal variable is corrected for the skewness and the kurtosis of a mean of few products (Cornish
        and Fisher, without the term that lowers it).
        """
        normal = NormalDist().inv_cdf(1 - _FALSE_ALARMS / (2 * len(self.moments.entries)))
        mean = self.predict(fit.weights, fit.y)
        second, third, fourth = (
            self._moments_of(self.contrasts.powers(fit.weights, fit.y, power)) @ fit.weights for power in (2, 3, 4)
        )
        variance = np.maximum(second - mean**2, _LEAST_VARIANCE)
        n_sessions = self.moments.plays / self.moments.clustering
        skewness = (third - 3 * mean * second + 2 * mean**3) / variance**1.5 / np.sqrt(n_sessions)
        fourth = fourth - 4 * mean * third + 6 * mean**2 * second - 3 * mean**4
        kurtosis = np.maximum(fourth / variance**2 - 3, 0) / n_sessions
        return normal + np.abs(skewness) * (normal**2 - 1) / 6 + kurtosis * (normal**3 - 3 * normal) / 24

    def status(self, fit: Fit) -> Status:
        """Return whether the solution converged and matches the moments."""
        if not fit.converged:
            return Status.ITERATION_LIMIT
        matched = (np.abs(fit.errors) <= self.allowed(fit)).all() and fit.beyond <= NEGLIGIBLE
        return Status.CONVERGED if matched else Status.UNMATCHED

    def least_weight(self, fit: Fit) -> tuple[float, float]:
        """Return a 95% interval of the least weight of a solution, whatever least weight the solution was held to.

        It is symmetric in the logit of the weight. Its variance is that of least squares with residuals in standard
        errors. If the types differ little it is wide: the moments then fit nearly any weight.
        """
        from scipy.special import expit

        weights = fit.weights
        none = Limits(*(part[:0] for part in self.limits))
        free = replace(self, w_min=0.0, limits=none, variances=self.predicted_variances(fit), plane=None)
        information = free.local(np.concatenate([np.log(weights[:-1] / weights[-1]), fit.y.ravel()])).curvature
        known, directions = np.linalg.eigh(information)
        least = int(weights.argmin())
        gradient = np.zeros(len(information))  # d log(w / (1 - w)) / d point, for the least weight
        gradient[: self.n_types - 1] = (np.eye(self.n_types)[least] - weights)[:-1] / (1 - weights[least])
        variances = (directions.T @ gradient) ** 2 / np.maximum(known, _UNKNOWN * known.max())
        reach = NormalDist().inv_cdf(0.975) * float(np.sqrt(variances.sum()))
        logit = float(np.log(weights[least] / (1 - weights[least])))
        return float(expit(logit - reach)), float(expit(logit + reach))


def _softmax(logits: Float[Array, "k"]) -> Float[Array, "M"]:
    full = np.append(logits, 0.0)
    shares = np.exp(full - full.max())
    return shares / shares.sum()


def _others(factors: Float[Array, "R l M"]) -> Float[Array, "R l M"]:
    """Return for every factor the product of the others."""
    ones = np.ones_like(factors[:, :1])
    before = np.concatenate([ones, np.cumprod(factors, axis=1)[:, :-1]], axis=1)
    after = np.concatenate([np.cumprod(factors[:, ::-1], axis=1)[:, -2::-1], ones], axis=1)
    return before * after
