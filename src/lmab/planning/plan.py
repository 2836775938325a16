"""plan: from a latent bandit and a horizon to a session policy with bounds."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from .._html import best_fixed
from .._shapes import Array, Float, Integer
from ..checks import check_count
from ..errors import InvalidArgument, LmabWarning, Status
from ..model.bandit import LatentBandit, bandit_of
from ..model.type_prior import TypePrior, check_type_prior, clustered
from ..parallel import with_one_blas_thread
from ..policies.ranking import Ranking
from ..policies.wrappers import Relabelled
from .advice import Advice, FittedModel
from .certified import Certified
from .exact import Exact
from .lookahead import QMDP, Lookahead
from .point_based import PointBased
from .problem import BINS, Bounds, Clock, Plan, Problem

_COMPILED = (Certified, Exact, Lookahead, PointBased, QMDP)  # planners with compiled kernels
MAX_HORIZON = 10_000
REPRESENTATIVES = 64  # priors that a plan for persons with features is made for; it earns 99.9% to 100% at others
_PEOPLE = 2_000  # distinct priors, the most frequent ones, at which bounds are proved one by one if that helps
_LEAST = 1e-12  # weight of a type in a prior to plan for: the information bound takes its logarithm
_MODEL_ONLY = (
    "the bounds hold for the model alone: the log contradicts the assumption {}, so claims about real sessions are not "
    "supported"
)
LONG, MANY = 10, 64  # steps without repeats, and types, beyond which searching earned no more than being greedy


class Planner(Protocol):
    """Planning method: a configuration that solves problems. `lmab.plan(..., method=...)` takes any such object.

    Examples:
        >>> import lmab
        >>> class BestFixedArm:
        ...     def solve(self, problem, clock):
        ...         bandit, steps = problem.bandit, problem.horizon
        ...         policy = lmab.policies.Ranking(bandit.ranked_arms(steps), horizon=steps)
        ...         lower, upper = bandit.best_fixed(steps), bandit.known_type(steps)
        ...         clock.record(lower, upper)
        ...         return lmab.Plan(policy, steps, lower, upper, "heuristic", "no look at rewards", tuple(clock.trace))
        ...     def solve_without_repeats(self, problem, clock):
        ...         raise NotImplementedError
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> lmab.plan(bandit, horizon=5, method=BestFixedArm())
        Plan(heuristic: optimum between 2.75 and 3.75, gap 0.36 over 5 steps)
    """

    def solve(self, problem: Problem, clock: Clock) -> Plan:
        """Return a plan with bounds that hold whenever `clock.expired` or Ctrl-C stopped it."""

    def solve_without_repeats(self, problem: Problem, clock: Clock) -> Plan:
        """Return the same for sessions that play each arm at most once."""


class HasBandit(Protocol):
    """Object that holds a model, such as an estimate."""

    @property
    def bandit(self) -> LatentBandit: ...


@with_one_blas_thread
def plan(
    bandit: LatentBandit | HasBandit,
    *,
    horizon: int,
    method: Planner | None = None,
    time_limit: float = 60.0,
    repeats: bool | None = None,
    arms: Iterable[str | int] | None = None,
    anyway: bool = False,
    type_prior: TypePrior | None = None,
    features: Mapping[str, Any] | None = None,
    representatives: int = REPRESENTATIVES,
    bins: int = BINS,
    progress: Callable[[Bounds], None] | None = None,
) -> Plan:
    """Return a near-optimal policy for sessions of `horizon` steps, with bounds on the optimum.

    Args:
        bandit: the model to plan for, or an object that holds one as its `.bandit`; an `Estimate` is kept as
            `plan.source`.
        horizon: steps per session.
        method: `Certified`, `Exact`, `PointBased`, `Lookahead`, `QMDP`, or a `Planner` of your own. None:
            `Certified()`; but `QMDP()`, which is greedy, for more than 10 steps without repeats on more than 64
            types, as traits have them: on held-out persons the search earned no more there.
        time_limit: seconds after which the best policy so far is returned, without the first compilation of the
            kernels. Ctrl-C does the same at once. The bounds hold whenever it stops.
        repeats: False if a session may play each arm at most once: policy and bounds are then for such sessions.
            None: as in the log of the estimate, so False if no session of it plays an arm twice although several
            would if the arms were drawn independently; True for a bandit.
        arms: labels of the arms to plan with (numbers, if the arms have no labels); the others are played only if
            nothing else is allowed, and their rewards change no belief. None: all but those that were withdrawn before
            the end of the log (`estimate.log_summary.withdrawn`).
        anyway: plan with the types of an estimate although its held-out check does not support them. Otherwise such
            an estimate gets the plan of the best fixed choice (one arm, or without repeats a list of arms), with
            `fixed` set and the reason in `verdict`: plans of unsupported types lost to it on held-out persons.
        type_prior: distribution of the types given the features of a session; None: that of the estimate, if it has
            one. The policy then starts from features, and the bounds are means over persons.
        features: features of the persons to plan for, n values by column, such as `sessions.features`. None: those of
            the log that the type prior was learned from, or persons drawn as the prior describes them.
        representatives: number of groups for planning if persons have more distinct priors. The bounds are for the
            persons themselves.
        bins: values into which continuous rewards are cut, per arm, while planning.
        progress: called with the `Bounds` proved so far, now and then.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> plan = lmab.plan(bandit, horizon=5)
        >>> plan.gap <= 0.01
        True
        >>> plan.policy.act_on([(0, 0.0)])
        1
    """
    whole, source = bandit_of(bandit), bandit if isinstance(bandit, FittedModel) else None
    if type_prior is not None:
        whole = whole.with_type_prior(check_type_prior(type_prior, whole.n_types))
    advice, horizon = Advice() if source is None else source.advice(), _check_horizon(horizon)
    follows_log, repeats = repeats is None, advice.repeats if repeats is None else repeats
    method = _default_method(whole, horizon, repeats) if method is None else method
    _check_method(method)
    bins = check_count("bins", bins, minimum=2)
    if not time_limit > 0:
        raise InvalidArgument(f"time_limit must be a positive number of seconds, got {time_limit!r}")
    kept = _planned_arms(whole, arms, advice.withdrawn)
    model = whole if len(kept) == whole.n_arms else whole.only_arms(kept)
    notes = _notes(advice, follows_log and not repeats, model is not whole and arms is None)
    _check_steps(model, horizon, repeats, advice, notes)
    planned = None if model is whole else tuple(kept.tolist())
    if advice.refusal and not anyway:
        fixed = _fixed_choice(whole, kept, horizon, repeats, advice)
        return _with_notes(replace(fixed, source=source, kept_arms=planned), notes)
    people = _people(model, features)
    problem = replace(_problem(model, horizon, bins, people, representatives), repeats=repeats)
    if isinstance(method, _COMPILED):
        _warm_up(type(method), isinstance(method, Certified) and problem.priors is not None)  # type: ignore[arg-type]
    clock = Clock(time_limit, progress)
    made = method.solve(problem, clock) if repeats else method.solve_without_repeats(problem, clock)
    made = _for_people(made, people, 0 if problem.priors is None else len(problem.priors))
    message = made.message + (f"; {advice.remark}" if advice.remark else "")
    if model is not whole:
        made = replace(made, policy=Relabelled(made.policy, whole.arm_labels or range(whole.n_arms)))
    made = replace(made, repeats=repeats, source=source, message=message, verdict=advice.verdict, kept_arms=planned)
    return _with_notes(made, notes)


def _notes(advice: Advice, no_repeats: bool, withdrawn: bool) -> list[str]:
    """Return the consequences of the log for the message of a plan."""
    notes = [f"no arm is played twice, because {advice.repeats_reason}"] if no_repeats else []
    notes += [advice.withdrawn_note.rstrip(".")] if withdrawn else []
    return notes + ([_MODEL_ONLY.format(" and ".join(map(repr, advice.contradicted)))] if advice.contradicted else [])


def _default_method(bandit: LatentBandit, horizon: int, repeats: bool) -> Planner:
    """Return the planner for problems of this size."""
    return QMDP() if not repeats and horizon > LONG and bandit.n_types > MANY else Certified()


def _check_steps(model: LatentBandit, horizon: int, repeats: bool, advice: Advice, notes: list[str]) -> None:
    """Raise `InvalidArgument` if there are too few arms; warn if the log has no session as long as the horizon."""
    if not repeats and horizon > model.n_arms:
        raise InvalidArgument(
            f"horizon must be at most the {model.n_arms} arms without repeats, got {horizon}: plan fewer steps, or let "
            f"arms repeat with repeats=True (at the command line --repeats){''.join(f'; {note}' for note in notes)}"
        )
    if advice.longest is not None and horizon > advice.longest:
        warnings.warn(
            f"horizon must be at most {advice.longest}, the steps of the longest session of the log, for values that "
            f"the log supports, got {horizon}: the values of later steps rely on the model alone",
            LmabWarning,
            stacklevel=4,  # the caller of `plan`, behind its decorator
        )


def _with_notes(made: Plan, notes: list[str]) -> Plan:
    """Return the plan with notes at the end of its message."""
    return replace(made, message="; ".join([made.message, *notes]))


def _planned_arms(
    model: LatentBandit, arms: Iterable[str | int] | None, withdrawn: tuple[int, ...]
) -> Integer[Array, "K"]:
    """Return the numbers of the arms to plan with."""
    names = model.arm_labels or tuple(range(model.n_arms))
    if arms is None:
        kept = np.setdiff1d(np.arange(model.n_arms), np.array(withdrawn, np.int64))
        return kept if len(kept) else np.arange(model.n_arms)
    numbers = {name: number for number, name in enumerate(names)}
    wanted = list(arms)
    unknown = [arm for arm in wanted if arm not in numbers]
    if unknown or not wanted:
        got = repr(unknown[0]) if unknown else "none"
        raise InvalidArgument(f"arms must be labels of the model, such as {names[0]!r}, got {got}")
    return np.unique([numbers[arm] for arm in wanted])


def _fixed_choice(whole: LatentBandit, kept: Integer[Array, "K"], horizon: int, repeats: bool, advice: Advice) -> Plan:
    """Return the plan that ignores rewards; it is optimal with one type, which is all that the log supports."""
    model = whole if len(kept) == whole.n_arms else whole.only_arms(kept)
    value = model.best_fixed(horizon, repeats)
    best, others = kept[list(model.ranked_arms(horizon, repeats))], np.array(whole.ranked_arms(1))
    order = [*best.tolist(), *others[~np.isin(others, kept)].tolist()]
    policy = Ranking(order, horizon=horizon, repeats=repeats, arm_labels=whole.arm_labels)
    other = "" if model.n_types == 1 else "; anyway=True plans with them"
    message = f"{best_fixed(repeats)}, because {advice.refusal}{other}"
    return Plan(
        policy, horizon, value, value, Status.OPTIMAL, message, repeats=repeats, fixed=True,
        verdict=advice.verdict,
    )  # fmt: skip


class _People(NamedTuple):
    """Distinct priors over types of the persons to plan for, and the share of each."""

    type_prior: TypePrior
    priors: Float[Array, "n M"]
    shares: Float[Array, "n"]


def _people(model: LatentBandit, features: Any) -> _People | None:
    prior = model.type_prior
    if prior is None:
        if features is not None:
            raise InvalidArgument("features must be given with a type_prior, or an estimate that has one")
        return None
    if not prior.columns:
        return _People(prior, model.weights[None], np.ones(1))
    persons = prior.resolve_features(features)
    assert persons is not None
    each, counts = prior.weights(persons.features), persons.shares
    each = each.round(12)
    each = np.where((each > 0).any(axis=0), np.maximum(each, _LEAST), 0.0)
    rows, group = np.unique(each, axis=0, return_inverse=True)
    sizes = np.bincount(group.ravel(), counts, minlength=len(rows))
    rows, sizes = rows[sizes > 0], sizes[sizes > 0]
    return _People(prior, rows / rows.sum(axis=1, keepdims=True), sizes / sizes.sum())


def _problem(model: LatentBandit, horizon: int, bins: int, people: _People | None, most: int) -> Problem:
    if people is None:
        return Problem.of(model, horizon, bins)
    most = check_count("representatives", most)
    if not people.type_prior.columns:
        return Problem.of(model, horizon, bins)
    priors, shares, _ = clustered(people.priors, people.shares, most)
    likeliest = np.argsort(-people.shares, kind="stable")[:_PEOPLE]
    return Problem.of(
        model,
        horizon,
        bins,
        priors=priors,
        shares=shares,
        people=None if len(priors) == len(people.priors) else (people.priors[likeliest], people.shares[likeliest]),
    )


def _for_people(plan: Plan, people: _People | None, n_groups: int) -> Plan:
    """Return the plan with bounds averaged over all persons, if it was made for representatives of them."""
    if people is None or plan.by_prior is None or n_groups == len(people.priors):
        return plan
    lower, upper = (float(people.shares @ bounds) for bounds in plan.by_prior.at(people.priors))
    message = (
        f"the plan is for {n_groups} groups of {len(people.priors)} different priors; on average over these no policy "
        f"earns more than {upper:.6g}, this one at least {lower:.6g} (of the groups: {plan.message})"
    )
    return replace(plan, lower=lower, upper=upper, message=message)


def _check_horizon(horizon: Any) -> int:
    """Return the horizon; raise `InvalidArgument` if plans for every number of steps to go would take too long."""
    steps = check_count("horizon", horizon)
    if steps > MAX_HORIZON:
        raise InvalidArgument(
            f"horizon must be at most {MAX_HORIZON:,} steps, got {horizon}: the type is known long before; plan some "
            f"hundred steps, and after these play the best arm of the likeliest type"
        )
    return steps


def _check_method(method: Any) -> None:
    if isinstance(method, type) or not hasattr(method, "solve"):
        shown = f"the class {method.__name__} itself" if isinstance(method, type) else f"a {type(method).__name__}"
        raise InvalidArgument(f"method must be a planner such as Certified(gap=0.01) or Exact(), got {shown}")


@cache
def _warm_up(method: type[Certified | Exact | Lookahead | PointBased | QMDP], many_priors: bool) -> None:
    """Load or compile the kernels of a method on a tiny bandit, once, before any clock runs."""
    tiny = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    method().solve(Problem.of(tiny, 5, 2), Clock(float("inf")))
    if many_priors:
        priors, shares = np.array([[0.5, 0.5], [0.4, 0.6]]), np.array([0.5, 0.5])
        method().solve(Problem.of(tiny, 5, 2, priors=priors, shares=shares), Clock(float("inf")))
