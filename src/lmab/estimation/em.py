"""EM: maximum likelihood, or maximum a posteriori, from many starts (equation (log_likelihood) of the paper)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._html import listing
from .._shapes import Array, Float
from ..checks import COUNT, NOT_NEGATIVE, Constraint, OneOf, Or, check, check_count, check_fields, optional
from ..data.packed import Packed
from ..data.sessions import Sessions, sample_rows
from ..errors import ClusterLost, InvalidArgument, Status
from ..model.bandit import LatentBandit
from ..parallel import Threads
from .climb import Climb, Confined, Likelihood, climb, draw_starts
from .families import observe
from .log import LEARNED, START, Log, Prior
from .passes import DEVICES, opened
from .prior import learn, many_arms, unlearnable
from .result import Capabilities, Estimate, Estimator, Progress, Request, Starts, StopOnce

_PILOT = 10_000  # Sessions on which the starts of a larger log compete.
_PILOT_PER_PARAMETER = 20  # Sessions per parameter that a pilot has at least.
_LEVEL = 16  # One of so many parts of a large log is climbed first.
_LEVEL_SIZE = 2  # Pilots that such a part must be worth.
_ROUNDS = (20, 40, 80)  # Maps after which half of the starts drop out.
_LEAST_PRIOR = 0.01  # Pseudo-counts of a polish that is given none.
_CHEAP = 10_000  # Distinct sessions below which convergence is judged more strictly.
_FINISHERS = 4  # Starts that always climb to the end.
_LARGE_FINISHERS = 2  # Starts that climb to the end if the log is large, or the arms are many.
_SAME_SOLUTION = 0.01  # Difference of log-likelihood below which two solutions are the same.
_LEAVING_ROUNDS, _LEAVING_MAPS = 3, 60  # Climbs after which the centres of leaving are learned again, and their maps.
_BRIEF = 150  # Maps under the first prior, of many arms: what they find is only where chains start.
_LOOSER, _LOOSEST = 1_000.0, 1e-5  # Times the tolerance, and at most so much, may remain per parameter of many arms.
_SAME_ORDER = 1e-9  # Part of the total difference by which two orders must differ to be told apart.


@dataclass(frozen=True)
class EM(Estimator):
    """Maximum likelihood by the EM algorithm, with many starts and SQUAREM acceleration.

    The likelihood of a log does not involve the policy that chose the arms, so any history-dependent logging policy
    will do, and no propensities are needed.

    Args:
        restarts: how many starts; they compete in rounds, and the best climb to convergence.
        tolerance: a climb has converged when about this much log-likelihood remains to be gained per distinct
            session; less in proportion if they are fewer than 10,000 and maps cost next to nothing. Of more than
            500 arms (100, if the log has more than 300,000 steps) a thousand times this per parameter will do: the
            log leaves far more open.
        max_iterations: most maps (passes over the log) of one start.
        accelerate: SQUAREM, and L-BFGS after 100 iterations if rewards take finitely many values; neither lets the
            likelihood fall. False: plain EM.
        prior: "learned" lets the arms tell what arms are like here (their centres, and how they spread over types),
            so that an arm played once is taken for an arm, not for what it paid once: best for planning. A number:
            pseudo-observations per type and arm at the arm's own marginal distribution; 0 is maximum likelihood.
        sweeps: how long the Gibbs runs are that learn the prior, if it is learned.
        rank: after convergence, climb on with the types' reward tables confined to rank `rank` (an affine space of
            dimension rank - 1).
        threads: None uses all cores; the result is the same to the bit for any number.

    Examples:
        >>> import lmab
        >>> lmab.EM(restarts=50, prior=1.0)  # doctest: +ELLIPSIS
        EM(restarts=50, tolerance=1e-08, max_iterations=5000, accelerate=True, prior=1.0, rank=None, threads=None, ...)
    """

    restarts: int = 20
    tolerance: float = 1e-8
    max_iterations: int = 5000
    accelerate: bool = True
    prior: float | str = LEARNED
    rank: int | None = None
    threads: int | None = None
    sweeps: int = 130

    def __post_init__(self) -> None:
        counts: dict[str, Constraint] = dict.fromkeys(("restarts", "max_iterations", "sweeps"), COUNT)
        counts |= dict.fromkeys(("rank", "threads"), optional(COUNT))
        check_fields(self, {**counts, "tolerance": NOT_NEGATIVE, "prior": Or(NOT_NEGATIVE, OneOf((LEARNED,)))})

    @property
    def capabilities(self) -> Capabilities:
        """What `lmab.fit` may expect.

        Under the learned prior types that the log cannot distinguish stay alike, and held-out sessions check the types.
        Other priors are the paper's maximum likelihood, or the caller's own choice.
        """
        learned = self.prior == LEARNED
        return Capabilities(tolerates_extra_types=learned, takes_start=True, devices=DEVICES, is_checked=learned)

    def solve(self, request: Request) -> Estimate:
        """Return the best of the climbs from many starts, confined to `rank` at the end."""
        log, n_types, progress = request.log, request.n_types, request.progress
        with opened(request.backend, self.threads) as passes:
            prior, why_not = self._first_prior(log)
            task = Likelihood(log, n_types, prior, passes)
            if request.start is not None:
                check_start(request.start, log, n_types)
            if self.prior == LEARNED and why_not is None:
                task, outcome, starts = self._search_and_learn(task, request)
            else:
                outcome, starts = self._search(task, request)
            if request.start is not None:
                outcome = self._no_lower(task, outcome, request.start, progress)
            if self.rank is not None and self.rank < n_types and not outcome.stopped:
                outcome = self._confine(task, outcome.models[outcome.order()[0]], self.rank, progress)
            found = fitted(task, self.prior if why_not is None else START, outcome, starts, self.rank)
            if request.start is not None:
                found = replace(found, bandit=in_order_of(request.start, found.bandit, log.sessions))
            if passes.failure is not None:
                raise ClusterLost(str(passes.failure), found)
            return found if why_not is None else replace(found, message=f"{found.message}; {why_not}")

    def _no_lower(self, task: Likelihood, outcome: Climb, start: LatentBandit, progress: StopOnce) -> Climb:
        """Return the outcome, or a climb from the given model if that is better, which a sample may have missed."""
        model = task.log.pack(start)
        if not task.map(model)[0][0] > outcome.objectives.max():
            return outcome
        again = self._climb(task, model, 1 if outcome.stopped else self.max_iterations, progress, "climb")
        return replace(again, stopped=again.stopped or outcome.stopped)

    def _first_prior(self, log: Log) -> tuple[Prior, str | None]:
        """Return the prior under which starts compete, and why none is learned where one was asked for."""
        if not isinstance(self.prior, str):
            return log.prior(self.prior), None
        reason = unlearnable(log)
        said = None if reason is None else f"no prior was learned, since {reason}: {START:g} pseudo-plays instead"
        return log.prior(START), said

    def polish(self, estimate: Estimate, *, rank: int) -> Estimate:
        """Return the estimate, climbed on with the types' reward tables confined to rank `rank`."""
        data, n_types = estimate.require_log(), estimate.n_types
        if check_count("rank", rank) >= n_types:
            return estimate
        with Threads(self.threads) as passes:
            prior = estimate.arm_prior if isinstance(self.prior, str) else data.prior(self.prior)
            task = Likelihood(data, n_types, prior, passes)
            outcome = self._confine(task, data.pack(estimate.bandit)[0], rank, StopOnce())
            kind = estimate.prior if isinstance(self.prior, str) else self.prior
            return fitted(task, kind, outcome, estimate.starts, rank)

    def _confine(self, task: Likelihood, model: Float[Array, "K P"], rank: int, progress: StopOnce) -> Climb:
        if not task.prior.active:
            task = replace(task, prior=task.log.prior(_LEAST_PRIOR))
        confined = Confined(task, rank)
        first = confined.project(model)
        return self._climb(confined, first[None], self.max_iterations, progress, "polish")

    def _search_and_learn(self, task: Likelihood, request: Request) -> tuple[Likelihood, Climb, Starts]:
        """Search under the numeric prior, on a sample if the log is large; learn from that; climb on from there.

        Only the prior comes from the chains: the climb starts where the search ended, so that types do not merge.
        """
        rng, progress = request.rng, request.progress
        pilot = self._pilot(task, rng)
        sampled, many = pilot is not task, many_arms(task.log)
        searcher = replace(self, max_iterations=min(_BRIEF, self.max_iterations)) if many else self
        found, starts = searcher._search(pilot, request)
        best = found.models[found.order()]
        if sampled:
            best = task.log.soften(best[:_LARGE_FINISHERS])
        if found.stopped:
            last = replace(self._climb(task, best[:1], 1, StopOnce(), ""), stopped=True) if sampled else found
            return task, last, starts
        top = found.models[found.order()[0]]
        prior = learn(pilot.log, pilot.log.bandit(top, task.n_types), self.sweeps, rng, self.threads)
        prior, moved = self._with_leaving(replace(pilot, prior=prior), top, progress)
        if moved is not None:  # The prior now knows the types of one model.
            best = task.log.soften(moved[None]) if sampled else moved[None]
        task = replace(task, prior=prior)
        if many and not sampled:
            return task, self._finish(task, best, _LARGE_FINISHERS, _ROUNDS[1:2], progress), starts
        if not sampled:
            return task, self._climb(task, best[:1], self.max_iterations, progress, "climb"), starts
        return task, self._by_levels(task, best, progress)[0], starts

    def _with_leaving(
        self, task: Likelihood, model: Float[Array, "K P"], progress: StopOnce
    ) -> tuple[Prior, Float[Array, "K P"] | None]:
        """Return the prior with what the types have in common when they leave, and the model that climbed on under it.

        Centres and model are learned in turn; without letters in the log nothing is to be learned.
        """
        prior, moved = task.prior, None
        for _ in range(_LEAVING_ROUNDS):
            found = task.log.with_leaving(prior, model, task.n_types, task.passes)
            if found is prior:
                break
            prior, task = found, replace(task, prior=found)
            moved = model = self._climb(task, model[None], _LEAVING_MAPS, progress, "leaving").models[0]
        return prior, moved

    def _pilot(self, task: Likelihood, rng: np.random.Generator) -> Likelihood:
        """Return the same for a sample of the sessions, if the log is large."""
        data, size = task.log, self._pilot_size(task)
        if data.n_distinct <= 2 * size:
            return task
        return replace(task, log=data.subset(np.sort(sample_rows(len(data.sessions), size, rng))))

    def _pilot_size(self, task: Likelihood) -> int:
        return max(_PILOT, _PILOT_PER_PARAMETER * task.log.n_parameters(task.n_types))

    def _starts(self, task: Likelihood, request: Request) -> Float[Array, "R K P"]:
        """Return the models that compete: the one that was given, and others drawn from the log."""
        n_starts = self.restarts if task.n_types > 1 else 1
        if request.start is None:
            return draw_starts(task.log, task.n_types, n_starts, request.rng)
        given = packed_start(request.start, task.log)
        if n_starts == 1:
            return given
        drawn = draw_starts(task.log, task.n_types, n_starts - 1, request.rng)
        return np.concatenate([given, drawn])

    def _search(self, task: Likelihood, request: Request) -> tuple[Climb, Starts]:
        """Let the starts compete, on a sample if the log is large; climb to the end from the best."""
        data, pilot, progress = task.log, self._pilot(task, request.rng), request.progress
        models = self._starts(pilot, request)
        n_starts = len(models)
        if pilot is task:
            finishers = _LARGE_FINISHERS if many_arms(task.log) else _FINISHERS
            outcome = self._finish(task, models, finishers, _ROUNDS, progress)
            return outcome, tally(outcome, n_starts)
        found = self._compete(pilot, models, _FINISHERS, _ROUNDS, progress)
        models = data.soften(models if found is None else found.models)
        if found is not None and found.stopped:
            outcome = replace(self._climb(task, models[:1], 1, StopOnce(), ""), stopped=True)
            return outcome, tally(outcome, n_starts)
        outcome, last = self._by_levels(task, models, progress)
        return outcome, tally(last, n_starts)

    def _by_levels(self, task: Likelihood, models: Float[Array, "R K P"], progress: StopOnce) -> tuple[Climb, Climb]:
        """Climb on a part of the log, and from the best there on the whole; also the last climb with several starts.

        A map of the whole log costs as much as many of a part, and most of the way to its maximum is the same.
        """
        part = task.log.level(_LEVEL)
        if part is None or part.n_distinct < _LEVEL_SIZE * self._pilot_size(task):
            outcome = self._finish(task, models, _LARGE_FINISHERS, _ROUNDS[:1], progress)
            return outcome, outcome
        found = self._finish(replace(task, log=part), models, _LARGE_FINISHERS, _ROUNDS[:1], progress)
        best = found.models[found.order()[:1]]
        if found.stopped:
            return replace(self._climb(task, best, 1, StopOnce(), ""), stopped=True), found
        return self._climb(task, best, self.max_iterations, progress, "climb"), found

    def _finish(
        self,
        task: Likelihood,
        models: Float[Array, "R K P"],
        n_finishers: int,
        rounds: tuple[int, ...],
        progress: StopOnce,
    ) -> Climb:
        """Compete, then climb to the end."""
        way = self._compete(task, models, n_finishers, rounds, progress)
        if way is None:
            return self._climb(task, models, self.max_iterations, progress, "climb")
        limit = self.max_iterations - int(way.n_maps.max())
        if way.stopped or limit <= 0:
            return way
        return self._climb(task, way.models, limit, progress, "climb").after(way)

    def _compete(
        self,
        task: Likelihood,
        models: Float[Array, "R K P"],
        n_finishers: int,
        rounds: tuple[int, ...],
        progress: StopOnce,
    ) -> Climb | None:
        """Short climbs, after each of which the worse half drops out, until no more are left than may finish."""
        way: Climb | None = None
        for maps in rounds:
            if len(models) <= n_finishers or (way is not None and way.stopped):
                break
            more = self._climb(task, models, maps, progress, "starts")
            more = more if way is None else more.after(way)
            way = more.pick(more.order()[: max(len(models) // 2, n_finishers)])
            models = way.models
        return way

    def _climb(
        self,
        task: Likelihood | Confined,
        models: Float[Array, "R K P"],
        max_maps: int,
        progress: StopOnce,
        stage: str,
    ) -> Climb:
        max_maps = min(max_maps, self.max_iterations)

        passes = task.passes

        def observe(maps: int, objective: float) -> bool:
            if passes.failure is not None:
                progress.stop()
            return progress(Progress(stage, maps, max_maps, objective))

        n_distinct = task.log.n_distinct
        left = self.tolerance * n_distinct * min(1.0, n_distinct / _CHEAP)
        if many_arms(task.log):
            left = max(left, min(_LOOSER * self.tolerance, _LOOSEST) * task.log.n_parameters(task.n_types))
        smooth = None
        if self.accelerate and isinstance(task, Likelihood) and task.log.has_coordinates:
            smooth = task.smooth
        return climb(
            task, models, left=left, max_maps=max_maps, accelerate=self.accelerate, observer=observe, smooth=smooth
        )


def tally(outcome: Climb, n_starts: int) -> Starts:
    """Return how many starts there were, and how many of the climbs reached the best solution."""
    same = outcome.objectives >= outcome.objectives.max() - _SAME_SOLUTION
    return Starts(n_starts, len(outcome.models), int(same.sum()))


def fitted(task: Likelihood, prior: float | str, outcome: Climb, starts: Starts, rank: int | None) -> Estimate:
    """Return the best of the climbs as an estimate."""
    best = int(outcome.order()[0])
    log = task.log
    bandit = log.bandit(outcome.models[best], task.n_types)
    status = Status.CONVERGED if outcome.converged[best] else Status.ITERATION_LIMIT
    status = Status.INTERRUPTED if outcome.stopped else status
    return Estimate(
        bandit=bandit,
        log_likelihood=log.log_likelihood(bandit, task.passes.processor),
        n_parameters=log.n_parameters(task.n_types, rank),
        status=status,
        message=_message(status, int(outcome.n_maps[best]), starts, log, bandit.weights, prior),
        trace=np.array(outcome.traces[best]),
        starts=starts,
        prior=prior,
        learned=task.prior if prior == LEARNED else None,
        encoded=log,
    )


def _message(
    status: Status,
    n_maps: int,
    starts: Starts,
    log: Log,
    weights: Float[Array, "M"],
    prior: float | str,
) -> str:
    said = {
        Status.CONVERGED: f"converged after {n_maps} EM iterations",
        Status.ITERATION_LIMIT: f"stopped by max_iterations after {n_maps} EM iterations, before convergence: raise it",
        Status.INTERRUPTED: f"interrupted after {n_maps} EM iterations: the best so far",
    }
    parts = [said[status], str(starts)]
    dead = np.flatnonzero(weights * len(log.sessions) < 0.5)
    if len(dead):
        parts.append(f"no session is left in type {listing(dead)}: fewer types fit as well")
    never = np.flatnonzero(log.sessions.plays == 0)
    if len(never):
        given = "the learned prior of arms" if prior == LEARNED else "the average rewards of all arms"
        parts.append(f"never played, so set to {given}: arm {listing(never)}")
    return "; ".join(parts)


def check_start(start: LatentBandit, log: Log, n_types: int) -> None:
    """Raise if a fit of `n_types` types to the log cannot start from the model."""
    wanted = n_types, log.sessions.n_arms
    if (start.n_types, start.n_arms) != wanted:
        got = f"{start.n_types} types and {start.n_arms} arms"
        raise InvalidArgument(f"start must have {wanted[0]} types and {wanted[1]} arms, got {got}")
    own, values = start.rewards.values, log.values
    knows = own is None if values is None else own is not None and bool(np.isin(values, own).all())
    if not knows:
        raise InvalidArgument(f"start must know every reward of the log, got {start}")


def packed_start(start: LatentBandit, log: Log) -> Float[Array, "1 K P"]:
    """Return the model as arrays, moved off the edges, where EM could not leave them."""
    return log.soften(log.pack(start))


def in_order_of(start: LatentBandit, bandit: LatentBandit, sessions: Sessions | Packed) -> LatentBandit:
    """The bandit with its types in the order of those that they resemble: differences count as often as arms play.

    Examples:
        >>> import lmab
        >>> start = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> found = lmab.LatentBandit.bernoulli([0.6, 0.4], [[0.3, 0.7], [0.8, 0.1]])
        >>> log = lmab.Sessions.from_arrays([[0, 1]], [[1.0, 0.0]])
        >>> in_order_of(start, found, log).weights
        array([0.4, 0.6])
    """
    from scipy.optimize import linear_sum_assignment

    cost = np.abs(start.means[:, None] - bandit.means[None]) @ sessions.plays
    _, order = linear_sum_assignment(cost)
    everyone = np.arange(len(order))
    if cost[everyone, order].sum() >= (1 - _SAME_ORDER) * np.trace(cost):
        return bandit
    return bandit.relabel(types=order.tolist())


def sweep(
    bandit: LatentBandit, sessions: Sessions, *, sweeps: int, prior: float, values: Any = None
) -> tuple[LatentBandit, float]:
    """Return the bandit after some maps of EM over a log, and the log-likelihood before the last of them.

    Args:
        bandit: where the maps start from.
        sessions: the log; what it holds must not be impossible under the bandit.
        sweeps: how many maps.
        prior: pseudo-observations per type and arm, as for `EM`.
        values: the reward values of a categorical log; None: those of the log.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=500, horizon=4, rng=rng)
        >>> start = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.6, 0.5], [0.5, 0.6]])
        >>> once, before = sweep(start, log, sweeps=1, prior=1.0)
        >>> twice, after = sweep(once, log, sweeps=1, prior=1.0)
        >>> after > before
        True
    """
    check("prior", prior, NOT_NEGATIVE)
    log = observe(sessions, rewards=bandit.rewards.family, values=values)
    model, pseudo = log.pack(bandit), log.prior(prior)
    with Threads() as passes:
        for _ in range(check_count("sweeps", sweeps)):
            statistics, logs = log.expectation(model, passes)
            model = log.maximise(statistics, model, pseudo)
    return log.bandit(model[0], bandit.n_types), float(logs[0])
