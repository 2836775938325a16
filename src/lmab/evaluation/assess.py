"""assess: from a fitted bandit and a plan to what the log says about the truth behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from .._shapes import Array, Float, Integer
from ..checks import FRACTION, Rng, check, check_count, check_rng
from ..data.packed import Packed
from ..data.sessions import Sessions, require_log, sample_rows
from ..errors import InvalidArgument, TooLarge
from ..estimation.assumptions import EXPOSURE, LEAVING, STEP, left_after, reaction, reacts, tested
from ..estimation.categorical import CategoricalLog
from ..estimation.em import EM
from ..estimation.exposure import sampler_with_exposure, with_exposure_sentence
from ..estimation.log import Log
from ..estimation.prior import Schedule, draw_models, run, weigh_groups
from ..estimation.result import Estimate
from ..estimation.step_effects import first_steps
from ..estimation.type_priors import grouped
from ..model import belief
from ..model.bandit import LatentBandit
from ..parallel import with_one_blas_thread
from ..planning.exact import Exact
from ..planning.plan import plan as make_plan
from ..planning.problem import Plan
from ..policies.policy import Policy
from ..policies.ranking import Ranking
from ..simulation import check_fits
from .assessment import (
    CLAIMS,
    LIVE_WIDTH,
    THIN,
    THIN_SHARE,
    WEAK,
    Assessment,
    Ends,
    HeldOutTests,
    too_few,
)
from .calibration import CALIBRATION, LEAST_MODELS, Interval
from .dependence import Dependence, dependence
from .messages import BLOCKS, NOT_WITH_EXPOSURE, SILENT, UNTESTED, WITHIN
from .replanning import (
    FLOOR,
    LEARNED_FLOOR,
    Crowd,
    CrowdReplanner,
    Groups,
    Pace,
    Progress,
    Replanned,
    Replanner,
    TraitsReplanner,
    laplace,
)

if TYPE_CHECKING:
    from .residuals import Correction

PARAMETER_LIMIT = 2500  # above which the second derivatives are left out: they take minutes, the other draws need none
_START = EM(restarts=8, tolerance=1e-6, prior=1.5)  # from which models with one more type are drawn
_ROUNDING = 1e-9
_REACH = 2.0  # standard errors of a simulated value that an interval adds
_FEW_VALUES = 8  # rewards after each of which leaving is counted
_SIMULATED = 4096  # sessions by which effects within sessions are evaluated
_ALONE = 5  # arms with the best means that are compared as fixed choices with effects within sessions
_STANDS = {LEAVING: frozenset({"optimum"})}  # claims that stand although an assumption fires; of others none does
_EXACT_STATES, _EXACT_SECONDS = 1_000_000, 10.0  # up to which the optimum on the estimate is computed exactly
_AT_ONCE = 1 << 16  # sessions of a packed log read together
_ONE_MORE_METHOD = EM(restarts=4, tolerance=1e-5, prior="learned", sweeps=16)
_LOOKED_AT = 20_000  # Sessions of a larger log that are looked at.
_NEVER, _RARE = -700.0, 1e-12  # logs of likelihoods below this count as this; a type is never rarer in a group
_FOLDS = 2
_STEPS = 60_000  # A log with more steps needs one fold only.


@with_one_blas_thread
def assess(
    estimate: Estimate,
    plan: Plan,
    sessions: Sessions | Packed,
    *,
    confidence: float = 0.9,
    n_draws: int = 100,
    rng: Rng,
    backend: Any = None,
    time_limit: float = math.inf,
    progress: Progress | None = None,
) -> Assessment:
    """Assess what the policy of `plan` is worth in truth, and how far from the best it can be.

    Models that the log could have come from are drawn in two ways: by short Gibbs runs, which learn a prior of arms,
    and around the estimate (its Laplace approximation). Each is planned for anew. The intervals are quantiles of all
    draws together, with a factor from a stored calibration study, and wider if sessions depend on their neighbours. If
    one more type predicts held-out sessions better, draws with one more type join.

    Residuals on held-out sessions test effects that the model lacks. If rewards depend on the session so far, value and
    gain are corrected; optimum and regret are then refused. A claim is refused, too, if exposure depends on the type,
    if the log drifts, if sessions without rewards seem to be missing, and (all but the optimum) if leaving depends on
    the type. The optimum and the best fixed choice are those among the arms of the plan.

    Args:
        estimate: a maximum a posteriori fit, best with `lmab.EM(prior="learned")`, of at least as many types as in
            truth.
        plan: a plan for `estimate.bandit`.
        sessions: the log that `fit` was fitted to.
        confidence: how often each of the four intervals is to hold.
        n_draws: models drawn in each way.
        rng: where the draws come from.
        backend: where the pass over a packed log runs that the second way needs, as for `lmab.fit`.
        time_limit: seconds after which no further drawn model is planned for. If replanning takes long, policies are
            simulated with fewer sessions, and the intervals include the error of the simulation; then fewer models are
            planned for. The assessment reports how many, and claims nothing from fewer than 20.
        progress: called after each model with how many were planned for, how many there are, and about how many
            seconds are left.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5, 0.3], [0.1, 0.6, 0.4]])
        >>> log = lmab.simulate(truth, lmab.Uniform(3), n_sessions=2000, horizon=5, rng=rng)
        >>> estimate = lmab.fit(log, n_types=2, method=lmab.EM(prior="learned"), rng=rng)
        >>> plan = lmab.plan(estimate.bandit, horizon=5)
        >>> print(lmab.assess(estimate, plan, log, rng=rng))  # doctest: +ELLIPSIS
        A session of 5 steps earns ... to ... under this policy, ...
    """
    rng = check_rng(rng, "models are drawn at random")
    n_draws = check_count("n_draws", n_draws, minimum=20)
    check("confidence", confidence, FRACTION)
    if not time_limit > 0:
        raise InvalidArgument(f"time_limit must be a positive number of seconds, got {time_limit!r}")
    pace = Pace(time_limit, progress, 2, n_draws)
    _check_kinds(estimate, plan)
    require_log("sessions", sessions)
    estimate = estimate.with_log(sessions)
    sessions = estimate.sessions
    _check_estimate(estimate)
    _check_plan(plan, estimate.bandit)
    everyone = np.arange(estimate.bandit.n_arms)
    planned = everyone if plan.kept_arms is None else everyone[list(plan.kept_arms)]
    plays, groups, assumptions = sessions.plays, Groups.of(estimate, plan), tested(estimate.bandit, sessions)
    if estimate.factors is not None:
        found = _of_traits(estimate, plan, plays, groups, n_draws, rng, backend, pace)
    else:
        found = _of_types(estimate, plan, plays, groups, n_draws, rng, backend, pace)
    best = _optimum(estimate, plan, min(_EXACT_SECONDS, pace.left))
    bounded = replace(plan, upper=max(min(plan.upper, best), found.own))
    dependent = dependence(sessions)
    further = dependent.factor * (1.0 if estimate.selection is None else CALIBRATION.modelled_exposure)
    if estimate.bandit.leaving is not None and estimate.n_types > 1:
        further *= CALIBRATION.attrition
    claims = _intervals(bounded, found, confidence, sessions.n_steps / found.n_parameters, further)
    if estimate.selection is not None:
        assumptions = with_exposure_sentence(assumptions)
    held_out, shift = _residual_tests(estimate, plan, groups, sessions, rng)
    corrected = shift is not None
    if shift is not None:
        assumptions = replace(assumptions, step=held_out.step if held_out.step.fires else assumptions.step)
        claims = shift.applied(claims, NormalDist().inv_cdf((1 + confidence) / 2))
    fired = {name for name, one in assumptions.by_name.items() if one.fires} - ({STEP} if corrected else set())
    if estimate.selection is not None:
        fired -= {EXPOSURE}
    if held_out.silent.fires:
        fired |= {SILENT}
    refused = {claim for name in fired for claim in CLAIMS if claim not in _STANDS.get(name, frozenset())}
    if sum(len(drawn.value) for drawn in found.sets) < LEAST_MODELS:
        refused |= set(CLAIMS)
    if estimate.check is not None and not estimate.check.agrees:
        refused |= {"optimum", "regret", "gain"}  # bounds on what types could earn need types
    if corrected:
        refused |= {"optimum", "regret"}  # the best policy with these effects is not known
    return Assessment(
        **{name: None if name in refused else claims.interval(name) for name in CLAIMS},
        tested=assumptions,
        held_out=held_out,
        corrected=shift is not None,
        ends=found.ends,
        planning_gap=claims.undone / claims.regret[1] if claims.regret[1] > 0 else 0.0,
        planned=str(plan.status),
        confidence=confidence,
        horizon=plan.horizon,
        n_types=estimate.n_types,
        n_sessions=len(estimate.sessions),
        n_steps=estimate.sessions.n_steps,
        n_parameters=found.n_parameters,
        people_leave=estimate.bandit.leaving is not None,
        logged=logged_session(sessions, plan.horizon, until_they_leave=estimate.bandit.leaving is not None),
        baselines=() if "gain" in refused or corrected else claims.baselines,
        draws=np.concatenate([_columns(drawn) for drawn in found.sets]),
        left_out=pace.left_out,
        repeats=plan.repeats,
        bounds=(plan.lower, plan.upper),
        check=estimate.check,
        n_factors=None if estimate.factors is None else estimate.factors.n_alive,
        found=_findings(estimate, plan, plays[planned], found, dependent, pace),
    )


def _residual_tests(
    estimate: Estimate, plan: Plan, groups: Groups, sessions: Sessions | Packed, rng: np.random.Generator
) -> tuple[HeldOutTests, Shift | None]:
    """Test held-out residuals; if an effect within sessions is found, return how it shifts the claims."""
    from .residuals import FIRES, Correction, Residuals, held_out_tests  # needs SciPy, which a service may lack

    if estimate.selection is not None:
        return HeldOutTests.untested(NOT_WITH_EXPOSURE), None
    residuals = Residuals.of(estimate, sessions, rng)
    if residuals is None:
        return HeldOutTests.untested(UNTESTED), None
    chances = {name: residuals.p_value(name) for name in BLOCKS}
    within = any(chances[name] * len(BLOCKS) < FIRES for name in WITHIN)
    if not within and not any(chance * len(BLOCKS) < FIRES for chance in chances.values()):
        return held_out_tests(chances, {}), None
    correction = Correction.learn(residuals)
    changes = {name: correction.change(residuals, name) for name in WITHIN if name in correction.blocks}
    chances[SILENT] = max(chances[SILENT], residuals.p_value(SILENT, correction.on_log(residuals.steps)))
    tests = held_out_tests(chances, changes)
    return tests, Shift.of(correction, estimate.bandit, plan, groups, rng) if within else None


def _findings(
    estimate: Estimate, plan: Plan, plays: Integer[Array, "K"], found: _Found, dependent: Dependence, pace: Pace
) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """Collect the circumstances that weaken the intervals, or that a reader must know."""
    planned = sum(len(drawn.value) for drawn in found.sets)
    thin = float(found.steps[plays < found.least_plays].sum() / max(found.steps.sum(), 1e-300))
    told, value = _told(estimate, found.n_parameters), np.concatenate([drawn.value for drawn in found.sets])
    rows: list[tuple[bool, str, tuple[float, ...]]] = [
        (thin > THIN_SHARE, "sparse data", (thin, THIN, int(estimate.factors is not None))),
        (too_few(found.one_more), "number of types", (estimate.n_types + 1, estimate.n_types)),
        (told is not None and told < WEAK, "weak identification", (told or 0.0,)),
        (reacts(reaction(estimate.sessions)), "adaptive arms", ()),
        (bool((plays == 0).any()), "unplayed arms", (int((plays == 0).sum()), float(found.sets[0].unplayed.mean()))),
        (found.n_floored > 0, "unknown directions", (found.n_floored, found.n_parameters)),
        (pace.left_out > 0, "time limit", (planned, planned + pace.left_out)),
        (dependent.copies > 0, "copies", (dependent.copies, dependent.factor)),
        (dependent.variance_ratio > 1, "dependent sessions", (dependent.factor,)),
        (True, "live test", (live_sessions(estimate.sessions, plan.horizon, float(np.median(value))), LIVE_WIDTH)),
    ]  # fmt: skip
    return tuple((code, data) for applies, code, data in rows if applies)


def live_sessions(sessions: Sessions | Packed, horizon: int, value: float) -> int:
    """Return the sessions of a live test whose 90% interval has a half width of 5% of the value."""
    part = sessions[:: max(1, len(sessions) // _LOOKED_AT)]
    spread = float(part.rewards.std()) * math.sqrt(horizon)
    return max(math.ceil((1.645 * spread / (LIVE_WIDTH * abs(value))) ** 2), 1) if value else 0


@dataclass(frozen=True)
class Shift:
    """How effects within sessions change value and gain of a policy, with standard errors."""

    value: tuple[float, float]
    gain: tuple[float, float]

    @classmethod
    def of(
        cls, correction: Correction, bandit: LatentBandit, plan: Plan, groups: Groups, rng: np.random.Generator
    ) -> Shift:
        """Simulate the policy, and the best arms and list, on the model; weight the sessions for the effects."""
        size = max(_SIMULATED, 2 * bandit.n_types * len(groups))
        crowd = Crowd.of(bandit.n_types, plan.horizon, rng, len(groups), size)

        def values(policy: Policy, start: Float[Array, "G K"]) -> Float[Array, "D"]:
            played = crowd.play(policy, bandit, repeats=plan.repeats, start=start, mass=groups.mass)
            return correction.values(played, bandit, groups.mass)

        own = values(plan.policy, groups.start)
        fixed = []
        for policy in _fixed_policies(bandit, plan):
            memory = policy.start(len(groups)).memory
            fixed.append(values(policy, memory))
        best = np.max(fixed, axis=0)
        return cls(_change(own), _change(own - best))

    def applied(self, claims: Claims, deviations: float) -> Claims:
        """Return the claims shifted, and wider by the standard errors."""
        return replace(
            claims,
            value=_shifted(claims.value, self.value, deviations),
            gain=_shifted(claims.gain, self.gain, deviations),
        )


def _change(values: Float[Array, "D"]) -> tuple[float, float]:
    """Return how the offsets change a value, and the standard error: the first value is without them."""
    return float(values[1] - values[0]), float(np.sqrt(np.mean((values[2:] - values[1]) ** 2)))


def _shifted(claim: Interval, change: tuple[float, float], deviations: float) -> Interval:
    middle, half = (claim[0] + claim[1]) / 2 + change[0], (claim[1] - claim[0]) / 2
    reach = math.hypot(half, deviations * change[1])
    return middle - reach, middle + reach


def _fixed_policies(bandit: LatentBandit, plan: Plan) -> list[Policy]:
    """Return the best fixed list, and if arms may repeat the best arms alone."""
    kept = np.arange(bandit.n_arms) if plan.kept_arms is None else np.array(plan.kept_arms)
    order = kept[np.argsort(-(bandit.weights @ bandit.means)[kept], kind="stable")]
    rest = np.setdiff1d(np.arange(bandit.n_arms), order)
    first = range(min(_ALONE, len(order))) if plan.repeats else range(1)
    orders = [np.concatenate([order[i:], order[:i], rest]) for i in first]
    return [Ranking(each.tolist(), horizon=plan.horizon, repeats=plan.repeats) for each in orders]


def _optimum(estimate: Estimate, plan: Plan, seconds: float) -> float:
    """Return the optimum on the estimate if dynamic programming over counts takes less than `seconds`, else infinity.

    The bound of a plan that stopped at its gap would be counted as regret that better planning could remove.
    """
    gap = plan.upper - plan.lower
    if gap <= 0 or plan.fixed or not plan.repeats or plan.policy.type_prior is not None or estimate.factors is not None:
        return np.inf
    if estimate.bandit.rewards.values is None or seconds <= 0:
        return np.inf
    method = Exact(max_states=_EXACT_STATES)
    try:
        model = plan.of_kept_arms(estimate.bandit).with_type_prior(None)
        found = make_plan(model, horizon=plan.horizon, method=method, time_limit=seconds)
    except TooLarge:
        return np.inf
    return found.upper


@dataclass(frozen=True, eq=False)
class _Found:
    """What the models say that the log could have come from."""

    sets: list[Replanned]
    own: float  # value of the policy on the estimate
    n_parameters: int
    n_floored: int
    steps: Float[Array, "K"]  # how often the policy plays each arm that was planned with
    least_plays: float  # below which an arm is hardly known
    one_more: tuple[float, float]
    stderr: float  # Standard error of a simulated value.
    ends: Ends | None
    baselines: tuple[str, ...]  # beside the best fixed arm or list


def _of_types(
    estimate: Estimate, plan: Plan, plays: Integer[Array, "A"], groups: Groups, n_draws: int,
    rng: np.random.Generator, backend: Any, pace: Pace,
) -> _Found:  # fmt: skip
    try:
        if estimate.bandit.leaving is not None and estimate.bandit.rewards.values is None:
            raise TooLarge("who leaves after each of infinitely many counts cannot be written out")
        replanner = Replanner(estimate.bandit, plan, plays > 0, groups, pace)
        return _drawn(estimate, plan, plays, replanner, groups, n_draws, rng, backend)
    except TooLarge:
        simulated = CrowdReplanner(estimate.bandit, plan, plays > 0, rng, groups, pace)
        return _drawn(estimate, plan, plays, simulated, groups, n_draws, rng, backend)


def _drawn(
    estimate: Estimate, plan: Plan, plays: Integer[Array, "A"], replanner: Replanner | CrowdReplanner, groups: Groups,
    n_draws: int, rng: np.random.Generator, backend: Any,
) -> _Found:  # fmt: skip
    """Draw models in two ways, and models with one more type if these predict better."""
    if replanner.exact:
        _check_bounds(plan, replanner.own)
    models = _gibbs(estimate, estimate.bandit, groups, n_draws, rng)
    sets, floored = [replanner.replan(*models)], 0
    n_parameters = _n_parameters(estimate)
    if n_parameters <= PARAMETER_LIMIT:
        around, floored = _around(estimate, replanner, groups, n_draws, rng, backend)
        sets.append(around)
    more = (0.0, 0.0) if estimate.selection is not None else one_more(estimate.require_log(), estimate.n_types, rng)
    if too_few(more):
        sets.append(_with_one_more(estimate, replanner, groups, n_draws, rng))
    if _may_leave_by_type(estimate):
        sets.append(_leaving_by_type(estimate, replanner, n_draws, rng))
    ends = _ends(estimate.sessions, plan.horizon, replanner)
    least = THIN * estimate.n_types
    names = replanner.baselines.names
    return _Found(
        sets, replanner.own, n_parameters, floored, replanner.plays, least, more, replanner.stderr, ends, names
    )


def _ends(
    sessions: Sessions | Packed, horizon: int, replanner: Replanner | CrowdReplanner | TraitsReplanner
) -> Ends | None:
    """How sessions end; None where all have one length, or rewards have too many values to count leaving after each.

    Where the model knows who leaves, the claims are per started session anyway.
    """
    log = sessions[:: max(1, len(sessions) // _LOOKED_AT)]
    left, known = left_after(log)
    values, place = np.unique(log.rewards, return_inverse=True)
    if not left.any() or len(values) > _FEW_VALUES:
        return None
    chance = np.bincount(place, left * known) / np.maximum(np.bincount(place, known), 1)
    model = replanner.values
    stays = None if model is None else 1 - np.interp(model, values, chance)
    value = None if stays is None or replanner.leaves else replanner.started(stays)
    return Ends(horizon, float((log.lengths >= horizon).mean()), values, chance, value)


def _of_traits(
    estimate: Estimate, plan: Plan, plays: Integer[Array, "A"], groups: Groups, n_draws: int,
    rng: np.random.Generator, backend: Any, pace: Pace,
) -> _Found:  # fmt: skip
    """Only models around the estimate: they have hundreds of parameters instead of tens of thousands."""
    replanner, factors = TraitsReplanner(estimate, plan, plays > 0, rng, groups, pace), estimate.factors
    assert factors is not None
    sets, floored = replanner.replan(n_draws, rng, backend)
    per_arm = factors.intercepts.shape[1] + factors.n_alive
    n_parameters = per_arm * estimate.bandit.n_arms
    ends = _ends(estimate.sessions, plan.horizon, replanner)
    return _Found(
        sets, replanner.own, n_parameters, floored, replanner.plays, THIN * per_arm, (0.0, 0.0), replanner.stderr, ends,
        replanner.baselines.names,
    )  # fmt: skip


def _told(estimate: Estimate, n_parameters: int) -> float | None:
    """How much all sessions tell about their types (mean log of posterior over prior), per parameter; None: no types.

    Sessions of a larger log are looked at in part, and count for all.
    """
    if estimate.n_types == 1 or estimate.factors is not None:
        return None
    sessions = estimate.sessions
    posterior = estimate.posterior(sessions[:: max(1, len(sessions) // _LOOKED_AT)])
    tiny = np.finfo(float).tiny
    ratio = np.log(np.maximum(posterior, tiny)) - np.log(np.maximum(estimate.bandit.weights, tiny))
    return float((posterior * ratio).sum(axis=1).mean() * len(sessions) / n_parameters)


def logged_session(sessions: Sessions | Packed, horizon: int, *, until_they_leave: bool) -> float:
    """Return the mean reward of a session of `horizon` steps as it was logged, or until people left."""
    if until_they_leave:
        parts = (float(part.rewards[part.steps < horizon].sum()) for part in sessions.chunks(_AT_ONCE))
        return sum(parts) / len(sessions)
    total = sum(float(part.rewards.sum()) for part in sessions.chunks(_AT_ONCE))
    return horizon * total / max(sessions.n_steps, 1)


def _n_parameters(estimate: Estimate) -> int:
    return estimate.n_types - 1 + int(estimate.bandit.rewards.n_parameters)


def _gibbs(
    estimate: Estimate, start: LatentBandit, groups: Groups, n_draws: int, rng: np.random.Generator
) -> tuple[Float[Array, "B *G M"], Sequence[Any], Sequence[Any] | None]:
    """Weights, rewards and leaving of models from chains that start at a bandit; groups of people have own weights."""
    data, numbers = estimate.require_log(), groups.of_sessions
    schedule = Schedule.of(data, n_draws)
    known = None if numbers is None else grouped(data, numbers, len(groups))
    log, chain = known or data, None
    if estimate.selection is not None and isinstance(log, CategoricalLog):
        chain = sampler_with_exposure(log, start, estimate.selection)
    elif known is None and start.n_types == 1 and isinstance(data, CategoricalLog):
        chain = partial(data.chain, start, cautious=True)
    draws = run(log, start, rng=rng, schedule=schedule, chain=chain, n_groups=0 if known is None else len(groups))
    families = first_steps(estimate.bandit, data.sessions, draws.rewards)
    weights = draws.groups
    if weights is None:
        weights = _group_weights(estimate, draws.weights, families, groups, rng)
    left = draws.leaving or data.draw_leaving(estimate.bandit, len(draws), rng, n_types=start.n_types)
    return weights, families, left


def _group_weights(
    estimate: Estimate, weights: Float[Array, "B M"], families: Sequence[Any], groups: Groups, rng: np.random.Generator
) -> Float[Array, "B *G M"]:
    """The weights of each group of people under models whose rewards are given; without groups those of the models."""
    if groups.of_sessions is None:
        return weights
    data, effects = estimate.require_log(), estimate.bandit.step_effects
    rows = sample_rows(len(data.sessions), _LOOKED_AT, rng)
    some, counts_for = data.subset(rows).sessions.load(), len(data.sessions) / len(rows)
    found = []
    for own, family in zip(weights, families, strict=True):
        drawn = LatentBandit(np.full(len(own), 1 / len(own)), family, step_effects=effects)
        logs = belief.log_joint(drawn, some)
        likelihoods = np.exp(np.maximum(logs - logs.max(axis=1, keepdims=True), _NEVER))
        tilt = groups.priors / groups.priors.mean(axis=0) if groups.priors.shape[1] == len(own) else 1.0
        start = np.maximum(own * tilt, _RARE) * np.ones((len(groups), 1))
        start /= start.sum(axis=1, keepdims=True)
        found.append(weigh_groups(likelihoods, groups.of_sessions[rows], start, counts_for, rng))
    return np.stack(found)


def _around(
    estimate: Estimate, replanner: Replanner | CrowdReplanner, groups: Groups, n_draws: int,
    rng: np.random.Generator, backend: Any,
) -> tuple[Replanned, int]:  # fmt: skip
    """Models around the estimate, and how many directions the log says next to nothing about."""
    floor = FLOOR if estimate.learned is None else LEARNED_FLOOR
    posterior = laplace(estimate.information(backend=backend), floor)
    weights, moved = posterior.draw(n_draws, rng)
    families = estimate.bandit.rewards.recentred(moved)
    left = estimate.require_log().draw_leaving(estimate.bandit, n_draws, rng, prior=estimate.learned)
    drawn = replanner.replan(_group_weights(estimate, weights, families, groups, rng), families, left)
    return drawn, posterior.n_floored


def _with_one_more(
    estimate: Estimate, replanner: Replanner | CrowdReplanner, groups: Groups, n_draws: int, rng: np.random.Generator
) -> Replanned:
    """Models with one more type, from Gibbs runs."""
    data = estimate.require_log()
    start = _START.fit(data, n_types=estimate.n_types + 1, rng=rng).bandit
    return replanner.replan(*_gibbs(estimate, start, groups, n_draws, rng))


def _may_leave_by_type(estimate: Estimate) -> bool:
    """Whether types may leave differently though the log did not say so clearly: then the claims allow for it."""
    bandit = estimate.bandit
    known = bandit.leaving is not None and not bandit.has_informative_attrition
    return known and estimate.n_types > 1 and estimate.type_prior is None and estimate.selection is None


def _leaving_by_type(
    estimate: Estimate, replanner: Replanner | CrowdReplanner, n_draws: int, rng: np.random.Generator
) -> Replanned:
    """Models whose types leave differently, from Gibbs runs over rewards and stays."""
    data = estimate.require_log().with_letters()
    draws = draw_models(data, estimate.bandit, rng=rng, schedule=Schedule.of(data, n_draws))
    families = first_steps(estimate.bandit, data.sessions, draws.rewards)
    return replanner.replan(draws.weights, families, draws.leaving)


@dataclass(frozen=True)
class Claims:
    """The intervals of an assessment before any is refused."""

    value: Interval
    optimum: Interval
    regret: Interval
    gain: Interval
    baselines: tuple[tuple[str, float, float], ...]
    undone: float  # what planning left undone, which the upper ends of optimum and regret include

    def interval(self, name: str) -> Interval:
        """Return one of the four intervals by its name."""
        found: Interval = getattr(self, name)
        return found


def _intervals(plan: Plan, found: _Found, confidence: float, steps_per_parameter: float, further: float) -> Claims:
    """Return calibrated quantile intervals of the draws of all samplers together.

    The regret is one-sided. What planning left undone is added to the upper ends of optimum and regret; simulated
    values have an error of their own, which the intervals add.
    """
    optimum, value, transferred, fixed = np.concatenate([_columns(drawn) for drawn in found.sets]).T
    undone = max(plan.upper - max(found.own, float(transferred.max())), 0.0)
    error = _REACH * found.stderr

    def claim(sample: Float[Array, "B"]) -> Interval:
        low, high = CALIBRATION.interval(sample, confidence, steps_per_parameter, further)
        return low - error, high + error

    low, high = claim(optimum)
    regret = max(claim(optimum - value)[1], 0.0) + undone
    baselines = []
    for number, name in enumerate(found.baselines):
        beside = np.concatenate([
            np.full(len(drawn.value), np.nan) if drawn.baselines is None else drawn.baselines[:, number]
            for drawn in found.sets
        ])  # fmt: skip
        known = np.isfinite(beside)
        if known.any():
            baselines.append((name, *claim((value - beside)[known])))
    return Claims(claim(value), (low, high + undone), (0.0, regret), claim(value - fixed), tuple(baselines), undone)


def _columns(drawn: Replanned) -> Float[Array, "B 4"]:
    return np.stack([drawn.optimum, drawn.value, drawn.transferred, drawn.fixed], axis=1)


def _check_kinds(estimate: object, plan: object) -> None:
    """The arguments in their order: whoever has a bandit or a policy alone is told what else is needed."""
    if not isinstance(estimate, Estimate):
        raise InvalidArgument(
            f"estimate must be what lmab.fit returns, as in assess(estimate, plan, sessions), because a bandit "
            f"alone does not tell how well its log determines it; got a {type(estimate).__name__}"
        )
    if not isinstance(plan, Plan):
        raise InvalidArgument(f"plan must be what lmab.plan returns, with its bounds, got a {type(plan).__name__}")


def _check_estimate(estimate: Estimate) -> None:
    if not estimate.arm_prior.active:
        raise InvalidArgument(
            f"estimate must be a maximum a posteriori one (fit with method=EM(prior='learned')), got prior "
            f"{estimate.prior}: plain maximum likelihood overfits, and assessments around it held in as few as 16 "
            "cases of 100 where 90 were claimed"
        )


def _check_plan(plan: Plan, bandit: LatentBandit) -> None:
    check_fits(plan.policy, bandit, plan.horizon)
    if not plan.policy.deterministic:
        raise InvalidArgument(f"plan must have a deterministic policy, got {type(plan.policy).__name__}")


def _check_bounds(plan: Plan, value: float) -> None:
    slack = _ROUNDING * max(abs(value), 1.0)
    if not plan.lower - slack <= value <= plan.upper + slack:
        raise InvalidArgument(
            f"plan must be a plan for estimate.bandit: it promises {plan.lower:.6g} to {plan.upper:.6g}, but its "
            f"policy earns {value:.6g} there"
        )


def one_more(observations: Log, n_types: int, rng: np.random.Generator) -> tuple[float, float]:
    """Held-out log-likelihood of a session with one more type, over that with `n_types`; and its standard error."""
    rows = sample_rows(len(observations.sessions), _LOOKED_AT, rng)
    if len(rows) < 2 * (n_types + 1):
        return 0.0, 0.0
    folds = np.array_split(rows, 5)[: 1 if observations.sessions.n_steps > _STEPS else _FOLDS]
    gains = np.concatenate([_one_more_gains(observations, rows, fold, n_types, rng) for fold in folds])
    return float(gains.mean()), float(gains.std() / np.sqrt(len(gains)))


def _one_more_gains(
    observations: Log, rows: Integer[Array, "n"], fold: Integer[Array, "h"], n_types: int,
    rng: np.random.Generator,
) -> Float[Array, "h"]:  # fmt: skip
    train, test = observations.subset(np.setdiff1d(rows, fold)), observations.subset(np.sort(fold))
    fewer, more = (_ONE_MORE_METHOD.fit(train, n_types=n, rng=rng).bandit for n in (n_types, n_types + 1))
    return test.heldout(more) - test.heldout(fewer)
