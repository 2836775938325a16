"""assess: from a fitted bandit and a plan to what the log says about the truth behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer
from ..checks import FRACTION, Rng, check, check_count, check_rng
from ..data.packed import Packed
from ..data.sessions import Sessions, require_log, sample_rows
from ..errors import InvalidArgument, TooLarge
from ..estimation.assumptions import LEAVING, SHOWN, left_after, reaction, reacts, tested
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
from ..simulation import check_fits
from .assessment import LEAST_MODELS, THIN, Assessment, Ends, Interval, hardly_told, too_few
from .replanning import (
    FLOOR,
    LEARNED_FLOOR,
    CrowdReplanner,
    Groups,
    Pace,
    Progress,
    Replanned,
    Replanner,
    TraitsReplanner,
    laplace,
)

PARAMETER_LIMIT = 2500  # above which the second derivatives are left out: they take minutes, the other draws need none
_START = EM(restarts=8, tolerance=1e-6, prior=1.5)  # from which models with one more type are drawn
_ABOVE, _BELOW = 0.4, 0.1  # The part of its share of misses that an end takes which reaches further: see `_intervals`.
_WIDE = 2.0  # misses over models around an estimate of more than two values, whose prior says less than the law of arms
_FURTHER = 1.3  # times as far as their quantiles upper ends reach from the median, where types are hardly told apart
_TRAITS_LOW = 0.35  # of half its width, by which the interval of a traits model's value lies too low
_LEAVE = 1.3  # times as far ends lie from the middle where people leave: their types hide behind those who stay
_EXPLAINED = 1.5  # times as far ends lie from the middle where types explain arms: a site's shares are taken for known
_ROUNDING = 1e-9
_REACH = 2.0  # standard errors of a simulated value that an interval adds
_FEW_VALUES = 8  # rewards after each of which leaving is counted
_CLAIMS = frozenset({"value", "optimum", "regret", "gain"})
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

    Models that the log could have come from are drawn in two ways: by short Gibbs runs, which learn from the arms what
    arms are like, and around the estimate (its Laplace approximation). Each is planned for anew, and the spread of the
    values tells how much the log leaves open. Of each way the quantiles of `confidence` half way further to 1 are taken
    (95% to claim 90%; further up, to 99%, for optimum and gain), and both intervals together are claimed: with that the
    claim held on fresh data. Where one more type predicts held-out sessions better, models with one more type
    join. Of a traits model only those around the estimate are drawn, and a simulated crowd, the same for all of them,
    plays the plan and each greedy policy. A claim that the log contradicts is refused: if exposure depends on the type,
    if the log drifts, if rewards depend on the step, and (all but the optimum) if leaving depends on the type. The
    optimum and the best fixed choice are those among the arms of the plan, without withdrawn ones that it leaves out.

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
    deviations = reaction(sessions)
    below = _BELOW if reacts(deviations) or estimate.selection is not None else 1.0
    told = _told(estimate, found.n_parameters)
    further = _FURTHER if hardly_told(told) else 1.0
    bounded = replace(
        plan, upper=max(min(plan.upper, _optimum(estimate, plan, min(_EXACT_SECONDS, pace.left))), found.own)
    )
    value, optimum, regret, gain, undone = _intervals(
        bounded, found.own, found.sets, (1 - confidence) / 2, below, found.stderr, further
    )  # fmt: skip
    stretch = _EXPLAINED if estimate.selection is not None else 1.0
    if estimate.bandit.leaving is not None and estimate.n_types > 1:
        stretch *= _LEAVE
    value, optimum, regret, gain = (_stretched(claim, stretch) for claim in (value, optimum, regret, gain))
    if estimate.factors is not None:
        value = _raised(value)
    average = logged_session(sessions, plan.horizon, until_they_leave=estimate.bandit.leaving is not None)
    if value[0] <= average <= value[1]:  # arms may all be alike: then the best there is earns no more than the policy
        optimum = (min(optimum[0], value[0]), optimum[1])
    fired = {name for name, one in assumptions.by_name.items() if one.fires}
    if estimate.selection is not None:
        assumptions, fired = with_exposure_sentence(assumptions), fired - {SHOWN}
    refused = {claim for name in fired for claim in _CLAIMS - _STANDS.get(name, frozenset())}
    if sum(len(drawn.value) for drawn in found.sets) < LEAST_MODELS:
        refused |= _CLAIMS
    if estimate.check is not None and not estimate.check.agrees:
        refused |= {"optimum", "regret", "gain"}  # bounds on what types could earn need types
    return Assessment(
        value=None if "value" in refused else value,
        optimum=None if "optimum" in refused else optimum,
        regret=None if "regret" in refused else regret,
        gain=None if "gain" in refused else gain,
        tested=assumptions,
        ends=found.ends,
        planning_gap=undone / regret[1] if regret[1] > 0 else 0.0,
        planned=str(plan.status),
        confidence=confidence,
        horizon=plan.horizon,
        n_types=estimate.n_types,
        n_sessions=len(estimate.sessions),
        n_steps=estimate.sessions.n_steps,
        n_unplayed=int((plays[planned] == 0).sum()),
        n_parameters=found.n_parameters,
        n_floored=found.n_floored,
        thin_share=float(found.steps[plays[planned] < found.least_plays].sum() / found.steps.sum()),
        unplayed_share=float(found.sets[0].unplayed.mean()),
        one_more=found.one_more,
        people_leave=estimate.bandit.leaving is not None,
        reaction=deviations,
        told=told,
        logged=average,
        baselines=() if "gain" in refused else _over_baselines(found, (1 - confidence) / 2, further, stretch),
        draws=np.concatenate([_columns(drawn) for drawn in found.sets]),
        left_out=pace.left_out,
        repeats=plan.repeats,
        bounds=(plan.lower, plan.upper),
        check=estimate.check,
        n_factors=None if estimate.factors is None else estimate.factors.n_alive,
    )


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
    values = estimate.bandit.rewards.values
    wide = values is not None and len(values) > 2
    return replace(drawn, misses=_WIDE if wide else 1.0), posterior.n_floored


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


def _intervals(
    plan: Plan, own: float, sets: Sequence[Replanned], miss: float, below: float = 1.0, stderr: float = 0.0,
    further: float = 1.0,
) -> tuple[Interval, Interval, Interval, Interval, float]:  # fmt: skip
    """Value, optimum, regret and gain, each the union over the sets; and what planning left undone.

    Drawn models lie low where arms that pay little tell types apart: the law of arms draws types together, and
    one step of policy iteration falls short of the best plan. So optimum and gain reach further up than down. They lie
    high where the log reacts to rewards, or where its site knew whom arms suit, since such logs know arms from sessions
    that they suit: then value and optimum reach further down (`below`). Where the log hardly tells types apart, drawn
    models lie low as a whole, and every upper end reaches `further` from the median. Simulated values have an error of
    their own (`stderr`), which the intervals add.
    """
    best = max(own, *(float(drawn.transferred.max()) for drawn in sets))  # the best known for the estimate
    undone = max(plan.upper - best, 0.0)
    value = _union([(drawn, drawn.value) for drawn in sets], miss, below, 1.0, further)
    # Arms never played may be worse than those that somebody chose to play: the best there is without them counts too.
    guessed = [(drawn, drawn.value) for drawn in sets if drawn.unplayed.any()]
    low, high = _union([*((drawn, drawn.optimum) for drawn in sets), *guessed], miss, below, _ABOVE, further)
    gains = [(drawn, drawn.value - choice) for drawn in sets for choice in (drawn.fixed, drawn.fixed_played)]
    gain = _union(gains, miss, 1.0, _ABOVE, further)
    losses = [loss for drawn in sets for loss in (drawn.optimum - drawn.value, drawn.given_away(best))]
    regret = undone + further * max(float(np.quantile(loss, 1 - miss / 2)) for loss in losses)
    error = _REACH * stderr
    wider = [(low - error, high + error) for low, high in (value, (low, high + undone), gain)]
    return wider[0], wider[1], (0.0, regret + error), wider[2], undone


def _over_baselines(found: _Found, miss: float, further: float, stretch: float) -> tuple[tuple[str, float, float], ...]:
    """Return the interval of the policy's gain over each baseline, computed as that over the best fixed arm or list."""
    claims, error = [], _REACH * found.stderr
    for number, name in enumerate(found.baselines):
        gains = [
            (drawn, drawn.value - drawn.baselines[:, number])
            for drawn in found.sets
            if drawn.baselines is not None and np.isfinite(drawn.baselines[:, number]).all()
        ]
        low, high = _union(gains, miss, 1.0, _ABOVE, further)
        claims.append((name, *_stretched((low - error, high + error), stretch)))
    return tuple(claims)


def _raised(value: Interval) -> Interval:
    """The interval of a traits model's value, higher: a plan earns less on models near its own than in truth."""
    more = _TRAITS_LOW * (value[1] - value[0]) / 2
    return value[0] + more, value[1] + more


def _union(
    samples: Sequence[tuple[Replanned, Float[Array, "B"]]], miss: float, below: float, above: float, further: float
) -> Interval:
    misses = [(sample, drawn.misses * miss / 2) for drawn, sample in samples]
    ends = np.array([np.quantile(sample, [below * own, 0.5, 1 - above * own]) for sample, own in misses])
    low, middle, high = float(ends[:, 0].min()), float(ends[:, 1].max()), float(ends[:, 2].max())
    return low, high if further == 1.0 else middle + further * (high - middle)


def _stretched(claim: Interval, times: float) -> Interval:
    """The interval with ends `times` as far from its middle, and one that starts at 0 so long, since it is a bound."""
    low, high = claim
    if times == 1:  # the sum of middle and reach would be off by rounding
        return claim
    if low == 0:
        return 0.0, times * high
    middle, reach = (low + high) / 2, times * (high - low) / 2
    return middle - reach, middle + reach


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
