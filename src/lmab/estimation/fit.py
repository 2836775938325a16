"""lmab.fit: fit a latent bandit to a log with the chosen method, and choose the number of types."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from .._html import count
from .._shapes import Array, Float, Integer
from ..checks import Rng, check_count, check_rng
from ..components.component import Component
from ..components.exposure import NAME as EXPOSURE
from ..data.packed import Packed
from ..data.sessions import Sessions, require_log, sample_rows
from ..errors import InvalidArgument, LmabWarning, Status
from ..model.bandit import LatentBandit
from ..model.type_prior import TypePrior
from ..parallel import SERIAL, Threads, with_one_blas_thread
from . import component_fit, exposure_selection, step_effects, type_priors
from . import leaving as who_leaves
from .assumptions import attrition, exposure, tested
from .categorical import CategoricalLog
from .check import Check
from .cross_validation import LEAST, informed
from .cross_validation import check as held_out_check
from .em import EM
from .exposure import with_exposure_sentence
from .families import observe
from .fitted_components import Candidate, ComparedCandidates
from .leave_rates import LeavingLog
from .log import Beside, Log, Prior
from .passes import opened, require_backend
from .prior import Schedule, many_arms, run, unlearnable
from .result import Curve, Estimate, Estimator, Observer, StopOnce, capabilities_of

_DEFAULT = EM()
_OWN = "its types are points of the factors; say how many with n_points, and how many factors with n_factors"
_NOT_BY_REWARD = (
    "leaving depends on the type or on earlier rewards, beyond arm and reward, so moments that are weighed by what "
    "was seen are biased; fit with EM(), which can tell how types leave"
)
MAX_TYPES = 64
_SESSIONS = 100_000  # Sessions of a larger log that are looked at.
_ENOUGH = 10_000  # Sessions that make one fold enough; of fewer, more folds are held out in turn.
_FOLDS = 5
_TRAITS_FOLDS = 2  # fits of traits take long
_PATIENCE = 2  # Numbers tried beyond the last that was worth it; twice as many where even more may be chosen.
_WORTH = 0.01  # Part of the gain of all types so far that one more must add: a wrong model gains a little for ever.
_EMPTY = 1e-3  # The weight below which a type was left empty.
_WEAK = 1.0  # Pseudo-plays per type and arm, if types are looked for that features tell.
_CLEAR = 2.0  # Standard errors that leave no doubt.
_TRIED = 2  # Numbers of types tried with features, before they must predict clearly better.
_MORE, _ONE_MORE = 3, 1  # Types that may be added to what is enough: in doubt, and where its gain was clear.
_METHOD = EM(restarts=6, tolerance=1e-5, prior="learned", sweeps=24)
_BRIEFLY = EM(restarts=3, tolerance=1e-4, prior="learned", sweeps=12)  # of many arms, as in their check


@with_one_blas_thread
def fit(
    sessions: Sessions | Packed,
    *,
    n_types: int | str | None = "auto",
    method: Estimator = _DEFAULT,
    rewards: str | None = None,
    values: Any = None,
    scale: float | None = None,
    leaving: str = "auto",
    rng: Rng,
    progress: Observer | None = None,
    backend: Any = None,
    start: LatentBandit | None = None,
    selected: bool | str = "auto",
    components: Sequence[Component] = (),
    numeric: Sequence[str] = (),
    check: bool = True,
) -> Estimate:
    """Fit a latent bandit to a log.

    Args:
        sessions: the log, in memory or packed; under `EM` the arms may have been chosen by any policy, even one that
            looks at the rewards.
        n_types: how many types; "auto" takes the number that predicts held-out sessions best, or fewer that do so
            hardly worse, and one where the check on held-out sessions confirms no more. With `Traits`, whose points are
            the types, it is not given.
        method: `EM(...)`, `Traits(...)`, `MomentMatching(...)` or `TensorDecomposition(...)`.
        rewards: "categorical", "gaussian", "counts" (Poisson laws of items, pages, visits), "binned" (amounts such as
            money or seconds, cut into a few values with 0 apart), or None: categorical on the observed values when they
            are at most 32.
        values: the reward values of a categorical model, when some may not have been observed yet.
        scale: the standard deviation of a Gaussian model; None: estimated.
        leaving: who leaves, in a log that says how its sessions ended. "shown": by arm and reward, which leaves the
            types as they are; "type": types leave differently, so that they are learned from rewards and stays
            together; "auto": by type only if held-out sessions support it; "none": as if nobody left.
        rng: where the starts come from: a generator or a seed, such as `rng=0`. It must be given.
        progress: told about the progress; answers True to stop with the best so far.
        backend: where passes over a packed log run: None (threads), a `concurrent.futures.Executor`, or a Dask client,
            with the same result to the bit; or "gpu": those of `EM` over any large log run on an NVIDIA GPU, and where
            there is none, an error says so. Where the cluster is lost, `lmab.errors.ClusterLost` is raised with the
            best model so far.
        start: a model with the arms of the log, such as that of last night: `EM` starts from it, too, so that a few
            restarts are enough. The objective never ends below that of this model, and the types are given its
            order. Where "auto" chooses another number of types, it is not used.
        selected: whether the types also explain which arms were shown, because the site knew more about people than
            the log says. "auto": where the arms depend on the session, and rewards of held-out sessions are predicted
            better for it (`estimate.selection`); else the fit is what it was. True: always; False: never. Rewards must
            be on finitely many values. Propensities do not repair such a log; the site's segment as a feature does.
        components: components of your own (`lmab.components.Component`), fitted together with the types, their prior
            and a selected exposure, after the number of types is selected; `estimate.components` describes them. Step
            effects are not estimated then.
        numeric: columns of features whose numbers have a linear effect on the logits of the weights. Other columns of
            16 or more different numbers are cut into bins at quantiles, whose means have this effect. Either way a
            file holds only bins of the numbers of the log.
        check: whether held-out sessions are asked about the types (`estimate.check`), which `lmab.plan` follows. Only
            fits under a learned prior are checked: the others are the paper's methods. The types of a checked fit come
            in the order of their weights, the largest first, unless they follow `start`.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]], scale=0.5)
        >>> sessions = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=1000, horizon=4, rng=rng)
        >>> estimate = lmab.fit(sessions, n_types=2, rewards="gaussian", rng=rng)
        >>> round(estimate.bandit.rewards.scale, 1)
        0.5
    """
    rng = check_rng(rng, "the starts are random")
    require_log("sessions", sessions)
    _check_method(method, backend, start)
    if not isinstance(selected, bool) and selected != "auto":
        raise InvalidArgument(f"selected must be 'auto', True or False, got {selected!r}")
    _check_numeric(sessions, numeric)
    capabilities = capabilities_of(method)
    own_number = capabilities.chooses_n_types
    if own_number and n_types not in (None, "auto"):
        raise InvalidArgument(f"n_types must not be given with {type(method).__name__}, got {n_types!r}: {_OWN}")
    log = observe(sessions, rewards=rewards, values=values, scale=scale)
    silent = leaving == who_leaves.AUTO and sessions.endings is None  # The log does not say how sessions ended.
    form = who_leaves.NONE if silent else who_leaves.asked(leaving, sessions, log, method)
    watch = StopOnce(progress)
    curve, asked = None, None
    if n_types == "auto" and not own_number and len(sessions) > 1:
        _warn(_doubts(sessions))
        curve = choose(
            log, forgiving=_forgives(method, log), rng=rng, progress=watch, told=_told(sessions), numeric=numeric
        )
        if check and capabilities.is_checked and not watch.stopped:
            curve, asked = _settled(curve, log, rng)
        number = curve.chosen
    else:
        number = 0 if own_number else 1 if n_types == "auto" else _number(n_types, len(sessions))
        _warn(_doubts(sessions) if number != 1 else [])
    where = {} if backend is None else {"backend": backend}  # methods of others may know of no backend and no start
    if start is not None and (curve is None or start.n_types == number):
        where["start"] = start
    result = method.fit(log, n_types=number, rng=rng, progress=watch, **where)
    if not isinstance(result, Estimate):
        raise InvalidArgument(
            f"method must return an Estimate, as lmab.estimation.finish makes it; {type(method).__name__} returned "
            f"{result!r}"
        )
    if form != who_leaves.NONE and not watch.stopped:

        def refit(plain: LeavingLog) -> Estimate:
            again = None if curve is not None else number
            return _by_type(plain.with_letters(), method, again, rng, watch, where)

        result = who_leaves.fitted(result, form, refit, rng, chosen=curve is not None)
        curve, asked = (curve, asked) if result.curve is None else (result.curve, None)
        if capabilities.corrects_attrition and attrition(result.bandit, sessions).fires:
            _warn([_NOT_BY_REWARD])
    if _told(sessions) and not watch.stopped:
        result = _with_type_prior(result, method, rng, numeric)
    if selected and not watch.stopped:
        result = _with_selection(result, method, always=selected is True, rng=rng, backend=backend)
    if capabilities.is_checked and not components and not watch.stopped:
        result = _with_step_effects(result, rng, watch)
    unasked = None if silent else who_leaves.ignored(leaving, sessions, log, method)
    if unasked is not None:
        result = replace(result, message=f"{result.message}; {unasked}")
    if rewards == "binned":
        result = replace(result, bins=log.bins)
    if result.encoded is not None:
        _warn(result.encoded.misfit(result.bandit))
    if result.status is Status.ITERATION_LIMIT:
        _warn([f"the estimate did not converge: {result.message}"])
    if result.status is Status.UNMATCHED:
        _warn([f"the estimate does not match the moments: {result.message}"])
    if curve is not None:
        result = replace(result, curve=curve, message=f"{result.message}; {curve}")
    if capabilities.is_checked and check and "start" not in where:
        result = largest_first(result)
    result = replace(result, compared=ComparedCandidates.of(_candidates(result)))
    if components and not watch.stopped:
        result = _with_components(result, method, components, rng=rng, backend=backend)
    if capabilities.is_checked and result.status is not Status.INTERRUPTED:
        found = tested(result.bandit, result.sessions)
        result = replace(result, tested=found if result.selection is None else with_exposure_sentence(found))
        return _checked(result, asked, rng) if check else result
    return result


def _check_numeric(sessions: Sessions | Packed, numeric: Sequence[str]) -> None:
    """Raise `InvalidArgument` if `numeric` names anything but columns of numbers of the log."""
    features = sessions.features
    known = [] if features is None else [name for name in features if features[name].dtype.kind == "f"]
    wrong = [name for name in ((numeric,) if isinstance(numeric, str) else numeric) if name not in known]
    if wrong:
        raise InvalidArgument(f"numeric must name columns of numbers among the features {known}, got {wrong[0]!r}")
    if isinstance(numeric, str):
        raise InvalidArgument(f"numeric must be a sequence of names such as ({numeric!r},), got a text")


def _told(sessions: Sessions | Packed) -> bool:
    """Return whether something is known before a session, which may tell types that rewards alone do not."""
    return sessions.features is not None or sessions.persons is not None


def largest_first(result: Estimate) -> Estimate:
    """Return the estimate with its types in the order of their weights, as tables, pages and posteriors number them.

    The points of a traits model have an order of their own, and stay.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.3, 0.7], [[0.9, 0.1], [0.2, 0.7]])
        >>> log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=500, horizon=4, rng=0)
        >>> found = largest_first(lmab.fit(log, n_types=2, method=lmab.EM(prior=1.0), rng=0))
        >>> bool(found.bandit.weights[0] > found.bandit.weights[1])
        True
    """
    order = result.bandit.types_by_weight
    if result.factors is not None or order == sorted(order):
        return result
    shown, learned = result.selection, result.learned
    if shown is not None:
        shown = replace(shown, favour=shown.favour[:, order])
    if learned is not None and learned.leaving is not None and len(learned.leaving) > 1:
        learned = replace(learned, leaving=learned.leaving[order])
    bandit = result.bandit.relabel(types=order)
    return replace(result, bandit=bandit, selection=shown, learned=learned)


def _forgives(method: Estimator, log: Log) -> bool:
    """Whether superfluous types are harmless, so that `n_types="auto"` may choose too many rather than too few."""
    return capabilities_of(method).tolerates_extra_types and unlearnable(log) is None


def fit_with_spare(sessions: Sessions, *, method: Estimator, rng: np.random.Generator, **said: Any) -> Estimate:
    """`fit` for a learner that was told no number of types: it keeps some to spare, and needs no check.

    A learner cannot wait until types are proved, since what it plays next decides whether they are ever seen.
    """
    log = observe(sessions, **said)
    curve = choose(log, forgiving=_forgives(method, log), spare=True, rng=rng)
    found = fit(sessions, n_types=curve.chosen, method=method, selected=False, rng=rng, check=False, **said)
    return replace(found, curve=curve, message=f"{found.message}; {curve}")


def _by_type(
    log: LeavingLog,
    method: Estimator,
    given: int | None,
    rng: np.random.Generator,
    watch: StopOnce,
    where: dict[str, Any],
) -> Estimate:
    """Types from rewards and stays together; their number is chosen again, unless it was given."""
    curve = choose(log, forgiving=_forgives(method, log), rng=rng, progress=watch) if given is None else None
    number = given if curve is None else curve.chosen
    assert number is not None
    start = where.get("start")
    if start is not None and start.n_types != number:
        where = {name: one for name, one in where.items() if name != "start"}
    return replace(method.fit(log, n_types=number, rng=rng, progress=watch, **where), curve=curve)


def _checked(result: Estimate, asked: Check | None, rng: np.random.Generator) -> Estimate:
    """Return the estimate with what held-out sessions say, if some can be held out and there are types to ask about.

    Where the number of types was settled by the check, it was `asked` already.
    """
    several = result.n_types > 1 or (result.curve is not None and len(result.curve.n_types) > 1)
    if asked is None and several and _checkable(result.sessions):
        n_folds = _FOLDS if result.factors is None else _TRAITS_FOLDS
        return replace(result, check=held_out_check(result, traits=False, n_folds=n_folds, rng=rng.spawn(1)[0]))
    return result if asked is None else replace(result, check=informed(asked, result))


def _checkable(sessions: Sessions | Packed) -> bool:
    """Return whether some sessions can be held out, and rewards tell sessions apart."""
    return len(sessions) >= LEAST and sessions.horizon > 1 and sessions.one_reward is None


def _settled(curve: Curve, log: Log, rng: np.random.Generator) -> tuple[Curve, Check | None]:
    """The curve with the number of types that the check confirms, and the check; it has the last word about one type.

    The curve looks for the best of several numbers, and the best of several is often better by chance. Where features,
    persons or the arms that were shown may tell types, they are asked first, and the check comes after them.
    """
    sessions = log.sessions
    if (
        len(curve.n_types) == 1
        or _told(sessions)
        or not _checkable(sessions)
        or exposure_selection.clearly_alike(sessions)
    ):
        return curve, None
    check = held_out_check(log, n_types=curve.best_of_several, traits=False, n_folds=_FOLDS, rng=rng.spawn(1)[0])
    number = curve.chosen
    if not check.over_one_type.sure:
        number = 1
    elif check.agrees and number == 1:
        number = curve.best_of_several
    return replace(curve, chosen=number, settled=number != curve.chosen), check


def _with_type_prior(result: Estimate, method: Estimator, rng: np.random.Generator, numeric: Sequence[str]) -> Estimate:
    """Return the estimate with the prior over types that features and persons tell, if held-out sessions support it.

    Types are learned again together with their prior by `EM` without a rank; those of other methods stay. Where short
    sessions alone left a type empty, what arms are like was learned from merged types: then a weak prior is tried, and
    what arms are like is learned again from the types that features tell.
    """
    log, together = result.require_log(), isinstance(method, EM) and method.rank is None
    with Threads(getattr(method, "threads", None)) as passes:

        def learn(bandit: LatentBandit, arm_prior: Prior | None) -> type_priors.Learned | None:
            return type_priors.learn(
                log,
                bandit,
                arm_prior,
                ridge=not (isinstance(method, EM) and method.prior == 0),
                tolerance=getattr(method, "tolerance", 1e-8),
                numeric=numeric,
                rng=rng,
                passes=passes,
            )

        found = learn(result.bandit, result.arm_prior if together else None)
        empty = result.learned is not None and result.bandit.weights.min() < _EMPTY
        if together and empty and isinstance(method, EM):
            found, result = _retried(found, learn, result, replace(method, prior=_WEAK), rng)
    if found is None:
        return result
    _warn(list(found.doubts))
    result = result.with_candidates(*found.candidates)
    if found.type_prior is None:
        return replace(result, message="; ".join([result.message, *found.sentences]))
    status, ended = result.status, result.message
    if found.trace:  # types were learned again
        status = Status.CONVERGED if found.converged else Status.ITERATION_LIMIT
        ended = "converged with features and persons" if found.converged else status.sentence.rstrip(".")
    return replace(
        result,
        bandit=(result.bandit if result.factors is not None else found.bandit).with_type_prior(found.type_prior),
        log_likelihood=found.log_likelihood,
        n_parameters=result.n_parameters + found.n_more,
        trace=np.array(found.trace) if found.trace else result.trace,
        status=status,
        message="; ".join([ended, *found.sentences]),
        known=None if found.gain is None else (found.gain.mean, found.gain.stderr),
    )


def _retried(
    found: type_priors.Learned | None,
    learn: Callable[[LatentBandit, Prior | None], type_priors.Learned | None],
    result: Estimate,
    method: Estimator,
    rng: np.random.Generator,
) -> tuple[type_priors.Learned | None, Estimate]:
    """What features tell under a weak prior, then under the one that their types point to; or what was found."""
    log = result.require_log()
    start = method.fit(log, n_types=result.n_types, rng=rng).bandit
    weak = learn(start, log.prior(_WEAK))
    if weak is None or weak.type_prior is None or not weak.type_prior.columns or log.sessions.features is None:
        return found, result
    known = type_priors.group_log(log, weak.type_prior)
    if known is None or unlearnable(log) is not None:
        return weak, result
    schedule = Schedule(chains=4, burn=60, keep=10, thin=3)
    prior = run(known[0], weak.bandit, rng=rng, schedule=schedule, n_groups=known[1]).prior
    again = learn(weak.bandit, prior)
    if again is None or again.type_prior is None:
        return weak, result
    return again, replace(result, learned=prior)


def _with_selection(
    result: Estimate, method: Estimator, *, always: bool, rng: np.random.Generator, backend: Any
) -> Estimate:
    """The estimate with types that explain the arms as well, if this is asked for and held-out rewards support it.

    Draws come from a copy of the generator, so that a fit that stays as it was stays so to the bit.
    """
    why_not = _unexplainable(result, method)
    if why_not is not None and always:
        raise InvalidArgument(f"selected must be False or 'auto' {why_not}, got True")
    log = result.encoded
    if why_not is not None or not isinstance(log, CategoricalLog) or not (always or capabilities_of(method).is_checked):
        return result
    found = exposure(result.bandit, result.sessions)
    if not always and not exposure_selection.may_depend_on_types(found.score, result.sessions, result.n_parameters):
        return result
    base, coded = component_fit.base_of(result), log
    if base.design is not None:
        coded = log.coded(log.sessions, Beside.of(base.feature_weights(base.design).group_codes))
    with opened(backend, getattr(method, "threads", None)) as passes:
        said = exposure_selection.explain(
            coded, base, always=always, fires=found.fires, rng=deepcopy(rng), passes=passes
        )
    _warn([] if said.doubt is None else [said.doubt])
    if said.gain is not None:
        gain, taken = said.gain, said.candidate is not None
        result = result.with_candidates(Candidate(EXPOSURE, gain.mean, gain.stderr, taken))
    if said.candidate is None or said.selection is None:
        return result
    bandit, ended = said.candidate.bandit, bool(said.candidate.climb.converged[0])
    message = result.message if ended else "the fit with selective exposure stopped before convergence"
    prior = result.type_prior
    if prior is not None:
        prior = type_priors.refitted(prior, bandit, said.candidate.coefficients, log)
    return replace(
        result,
        bandit=replace(bandit, leaving=result.bandit.leaving, type_prior=prior),
        selection=said.selection,
        log_likelihood=_log_likelihood(log, bandit, prior),
        n_parameters=result.n_parameters + said.selection.n_parameters,
        trace=np.array(said.candidate.climb.traces[0]),
        status=Status.CONVERGED if ended else Status.ITERATION_LIMIT,
        message=f"{message}; {said.selection.sentence}",
    )


def _with_step_effects(result: Estimate, rng: np.random.Generator, watch: StopOnce) -> Estimate:
    """Return the estimate with effects of the step, if held-out sessions are predicted better with them.

    Draws come from a copy of the generator, so that other fits do not change.
    """
    log = result.require_log()
    if result.selection is not None or result.factors is not None or result.bandit.rewards.values is None:
        return result
    found = step_effects.learn(
        log.sessions, result.bandit, result.type_prior, result.arm_prior, rng=deepcopy(rng), stop=lambda: watch.stopped
    )
    gain = found.component.gain if isinstance(found, step_effects.Fitted) else found
    if gain is not None:
        used = isinstance(found, step_effects.Fitted)
        result = result.with_candidates(Candidate(step_effects.StepEffects.name, gain.mean, gain.stderr, used))
    if not isinstance(found, step_effects.Fitted):
        return result
    bandit = found.bandit
    return replace(
        result,
        bandit=bandit,
        step=found.component,
        log_likelihood=_log_likelihood(log, bandit, result.type_prior),
        n_parameters=result.n_parameters + found.component.n_parameters,
        trace=np.array(found.trace),
        status=Status.CONVERGED if found.converged else Status.ITERATION_LIMIT,
        message=f"{result.message}; {found.component.summary.rstrip('.')}",
    )


def _log_likelihood(log: Log, bandit: LatentBandit, prior: TypePrior | None) -> float:
    """Return the log-likelihood of a log, each session with its own weights if they depend on features or persons."""
    return log.log_likelihood(bandit) if prior is None else type_priors.log_likelihood(bandit, prior, log.sessions)


def _with_components(
    result: Estimate, method: Estimator, components: Sequence[Component], *, rng: np.random.Generator, backend: Any
) -> Estimate:
    """Return the estimate refitted with the components that the caller gave."""
    if not isinstance(method, EM) or method.rank is not None:
        raise InvalidArgument(f"components must be () for methods other than EM without a rank, got {len(components)}")
    with opened(backend, method.threads) as passes:
        return component_fit.with_components(result, components, tolerance=method.tolerance, rng=rng, passes=passes)


def _candidates(result: Estimate) -> list[Candidate]:
    """Return the candidates that were compared: numbers of types, then components."""
    curve, found = result.curve, list(result.candidates)
    if curve is None:
        return found
    numbers = zip(curve.n_types, curve.gain.tolist(), curve.stderr.tolist(), strict=True)
    return [*(Candidate(count(n, "type"), gain, error, n == curve.chosen) for n, gain, error in numbers), *found]


def _unexplainable(result: Estimate, method: Estimator) -> str | None:
    """Return why types cannot explain the arms of this log."""
    leaving = result.bandit.leaving
    if not isinstance(method, EM) or method.rank is not None:
        return "for methods other than EM without a rank"
    if not isinstance(result.encoded, CategoricalLog):
        return "where rewards are not on finitely many values (cut them with rewards='binned')"
    if result.n_types < 2 or result.bandit.n_arms < 2 or len(result.encoded.values) < 2:
        return "where there are no two types, arms and rewards"
    if result.encoded.letters or (leaving is not None and not np.allclose(leaving, leaving[:1])):
        return "where who leaves depends on the type"
    return None


def _check_method(method: Any, backend: Any, start: LatentBandit | None) -> None:
    if isinstance(method, type) or not hasattr(method, "fit"):
        shown = f"the class {method.__name__} itself" if isinstance(method, type) else repr(method)
        raise InvalidArgument(f"method must be an estimator such as EM() or EM(prior=1.0), got {shown}")
    require_backend(backend)
    if isinstance(backend, str) and backend not in capabilities_of(method).devices:
        raise InvalidArgument(f"backend must be None for the method {type(method).__name__}, got {backend!r}")
    if start is not None and not capabilities_of(method).takes_start:
        raise InvalidArgument(f"start must be None for the method {type(method).__name__}, got {start}")


def _number(n_types: int | str | None, n_sessions: int) -> int:
    if n_types is None or isinstance(n_types, str):
        raise InvalidArgument(f"n_types must be an integer of at least 1 or 'auto', got {n_types!r}")
    number = check_count("n_types", n_types)
    if number > n_sessions:
        raise InvalidArgument(f"n_types must be at most the number of sessions ({n_sessions}), got {number}")
    return number


def _doubts(sessions: Sessions | Packed) -> list[str]:
    """Return why types may not be told apart in this log."""
    found = []
    one_reward, played = sessions.one_reward, np.flatnonzero(sessions.plays)
    if one_reward is not None:
        found.append(f"every reward is {one_reward:g}: nothing tells types apart")
    elif sessions.horizon == 1:
        found.append("no session is longer than 1 step: the weights of the types cannot be identified")
    if len(played) == 1:
        found.append(f"only arm {played[0]} was ever played: nothing is known about any other")
    return found


def _warn(messages: list[str]) -> None:
    for message in messages:
        warnings.warn(message, LmabWarning, stacklevel=4)  # the caller of `fit`, behind its decorator


def choose(
    log: Log,
    *,
    forgiving: bool = True,
    spare: bool = False,
    told: bool = False,
    numeric: Sequence[str] = (),
    rng: np.random.Generator,
    progress: StopOnce | None = None,
) -> Curve:
    """Held-out log-likelihood for 1, 2, ... types, until it falls or rises by next to nothing.

    Whole sessions are held out, never steps. Enough is the smallest number that predicts as well as the best, up to a
    standard error. Where one type is enough, it is chosen. Where the number predicts clearly better than one type less,
    and for fits that are not `forgiving`, the next number is chosen if it predicts as well. Else the choice is the
    largest of the next three numbers that is not clearly behind the best: superfluous types are harmless to such fits,
    and one type too few loses what planning needs. No number beyond the best is chosen, because the log supports none;
    but a learner, whose next sessions tell types apart that this log does not, asks for `spare` types: it loses more by
    one too few. Where features or persons may have `told` more than rewards, one type is as doubtful as any number;
    where features predict held-out sessions clearly better, the curve is the one with features.
    """
    sessions = sample_rows(len(log.sessions), _SESSIONS, rng)
    folds = np.array_split(sessions, min(_FOLDS, len(sessions)))[: max(1, round(_ENOUGH / len(sessions)))]
    scores: list[Float[Array, "n"]] = []
    known: list[Float[Array, "n"]] = []  # the same, where features are known
    asks = told and log.sessions.features is not None
    most = min(MAX_TYPES, len(sessions) // 2)
    while len(scores) < most and not (scores and progress is not None and progress.stopped):
        n_types = len(scores) + 1
        own, informed_ = _score(log, sessions, folds, n_types, rng, _prefixed(progress, n_types), asks, numeric)
        scores.append(own)
        known.append(informed_)
        asks = asks and (n_types <= _TRIED or _tells(scores, known))
        if all(_enough(one, forgiving) for one in ([scores, known] if asks else [scores])):
            break
    if asks and _tells(scores, known):
        return replace(_curve(known, forgiving, spare, told), known=True)
    return _curve(scores, forgiving, spare, told)


def _tells(scores: list[Float[Array, "h"]], known: list[Float[Array, "h"]]) -> bool:
    """Whether held-out sessions are clearly predicted better by some number of types where features are known."""
    best = int(np.argmax([score.mean() for score in known]))
    gain, error = _mean_and_error(known[best] - scores[best])
    return gain > _CLEAR * error


def _enough(scores: list[Float[Array, "h"]], forgiving: bool) -> bool:
    """Return whether more types need not be tried: the last numbers were not worth it, and none beyond may be chosen.

    None beyond is tried either if each of the last numbers predicts clearly worse than the best.
    """
    useless = _useless([float(score.mean()) for score in scores])
    if useless < _PATIENCE:
        return False
    ended = len(scores) > _reach(scores, forgiving)[0] or not _as_good(scores, _CLEAR)[-1] >= len(scores) - _PATIENCE
    return ended or useless >= 2 * _PATIENCE


def _useless(means: list[float]) -> int:
    """Return how many of the last numbers of types were not worth it."""
    best, since = means[0], 0
    for mean in means[1:]:
        since = 0 if mean > best + _WORTH * (best - means[0]) else since + 1
        best = max(best, mean)
    return since


def _score(
    log: Log,
    sessions: Integer[Array, "n"],
    folds: list[Integer[Array, "..."]],
    n_types: int,
    rng: np.random.Generator,
    progress: Observer | None,
    told: bool = False,
    numeric: Sequence[str] = (),
) -> tuple[Float[Array, "h"], Float[Array, "h"]]:
    """Held-out log-likelihood of every session of every fold, in the order of the folds; and with its features."""
    found, known, method = [], [], _BRIEFLY if many_arms(log) else _METHOD
    for fold in folds:
        train, held = log.subset(np.setdiff1d(sessions, fold)), log.subset(fold)
        fit = method.fit(train, n_types=n_types, rng=rng, progress=progress)
        found.append(held.heldout(fit.bandit))
        known.append(found[-1])
        if told:
            known[-1] = found[-1] + type_priors.feature_gains(
                train, held, fit.bandit, fit.arm_prior, numeric=numeric, rng=rng, passes=SERIAL
            )
    return np.concatenate(found), np.concatenate(known)


def _curve(scores: list[Float[Array, "h"]], forgiving: bool = True, spare: bool = False, told: bool = False) -> Curve:
    means = np.array([score.mean() for score in scores])
    steps = [_mean_and_error(after - before) for before, after in pairwise(scores)]
    gain, stderr = np.array([(0.0, 0.0), *steps]).T
    last, allowed = _reach(scores, forgiving)
    if not spare:
        last = min(last, int(np.argmax(means)))  # more than what predicts best nobody supports
        last = last if told or _as_good(scores)[0] else 0
    chosen = max(i for i in _as_good(scores, allowed) if i <= last)
    return Curve(tuple(range(1, len(means) + 1)), means, gain, stderr, chosen + 1)


def _as_good(scores: list[Float[Array, "h"]], allowed: float = 1.0) -> list[int]:
    """Return those that predict as well as the best, up to the allowed standard errors."""
    best = max(scores, key=lambda score: float(score.mean()))
    lags = [_mean_and_error(best - score) for score in scores]
    return [i for i, (lag, error) in enumerate(lags) if lag <= allowed * error]


def _reach(scores: list[Float[Array, "h"]], forgiving: bool) -> tuple[int, float]:
    """Return the last place that may be chosen, and by how many standard errors it may be behind the best."""
    enough = _as_good(scores)[0]
    gain, error = _mean_and_error(scores[enough] - scores[enough - 1]) if enough else (0.0, 0.0)
    return (enough + _MORE, _CLEAR) if forgiving and gain <= _CLEAR * error else (enough + _ONE_MORE, 1.0)


def _mean_and_error(differences: Float[Array, "h"]) -> tuple[float, float]:
    return float(differences.mean()), float(differences.std() / np.sqrt(len(differences)))


def _prefixed(progress: StopOnce | None, n_types: int) -> Observer | None:
    if progress is None:
        return None
    return lambda news: progress(replace(news, stage=f"{n_types} types: {news.stage}"))
