"""Fit the components that a caller adds, together with the types and the components selected before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .._shapes import Array, Float
from ..components.component import Component
from ..components.exposure import Exposure, ExposureLog, FreeExposure, PreferenceExposure
from ..components.latent_class_model import REWARDS, WEIGHTS, IndependentSessions, LatentClassModel
from ..components.rewards import Rewards
from ..errors import InvalidArgument, Status
from ..model.bandit import LatentBandit
from ..parallel import Passes
from . import type_priors
from .categorical import CategoricalLog
from .climb import Climb, climb, draw_starts
from .exposure_selection import Base
from .fitted_components import AddedComponents, FittedComponent, check_names
from .log import START, Beside, Log, padded
from .result import LIKES, Estimate, Selection

_DRAWN = 3  # starts beside the fit without the components
_MAPS, _MOST_MAPS = 60, 2000  # EM steps until the best start is selected, and until convergence


def base_of(result: Estimate) -> Base:
    """Return the types, arm prior and feature weights of an estimate, to which components are added."""
    prior, log = result.type_prior, result.require_log()
    if prior is None or not prior.columns:
        return Base(result.bandit, result.arm_prior)
    design, coefficients = type_priors.design_of(log, result.bandit, prior)
    return Base(result.bandit, result.arm_prior, design, coefficients)


def with_components(
    result: Estimate,
    components: Sequence[Component],
    *,
    tolerance: float,
    rng: np.random.Generator,
    passes: Passes,
) -> Estimate:
    """Return the estimate refitted with more components.

    Args:
        result: the fit without them, from which EM starts, beside other starts.
        components: the components.
        tolerance: log-likelihood per session that may remain to be gained.
        rng: draws the other starts.
        passes: runs the passes over the log.
    """
    check_names(components)
    log, base = result.require_log(), base_of(result)
    for component in components:
        if not component.applies_to(log):
            raise InvalidArgument(f"components must apply to the log, got {component.name!r}, which does not")
    model = _model(result, base, components, passes)
    found = _fitted(model, _starts(model, result, base, components, rng), len(log.sessions), tolerance)
    parameters = found.models[0]
    order = _order(result.bandit, _bandit(model, parameters, log, base.n_types))
    parameters[:, : base.n_types] = parameters[:, order]
    return _described(result, model, parameters, components, found)


def _model(result: Estimate, base: Base, components: Sequence[Component], passes: Passes) -> LatentClassModel:
    """Return the model of weights, rewards, exposure if the estimate has it, and the added components."""
    log = result.require_log()
    sessions = log.sessions.load()
    blocks = [] if base.design is None else [base.feature_weights(base.design).group_codes]
    coded = log.coded(sessions, Beside.of(*blocks, *(one.codes(sessions) for one in components)))
    exposures: tuple[Exposure, ...] = ()
    if result.selection is not None and isinstance(coded, CategoricalLog):
        site, m = ExposureLog.of(coded, reacting=result.selection.reacting).over(coded), base.n_types
        likes, concentration = result.selection.kind == LIKES, result.selection.concentration
        exposures = (PreferenceExposure(site, m) if likes else FreeExposure(site, m, concentration),)
        coded = site.log
    weights, prior = [found for one in components if (found := one.session_weights(sessions)) is not None], base.prior
    if weights:  # the learned prior says how much arms differ if every session counts once
        coded = coded.weighted(np.prod(weights, axis=0))
        prior = coded.prior(START)
    known = (base.first(coded), Rewards(coded, base.n_types, prior), *exposures)
    return LatentClassModel((*known, *components), IndependentSessions(coded), passes)


def _starts(
    model: LatentClassModel, result: Estimate, base: Base, components: Sequence[Component], rng: np.random.Generator
) -> Float[Array, "R K P"]:
    """Return the fit without the components, and drawn models, with parameters of the components."""
    log, m = result.require_log(), base.n_types
    drawn = draw_starts(log, m, _DRAWN, rng) if m > 1 else log.pack(result.bandit)[:0]
    models = log.soften(np.concatenate([log.pack(result.bandit), drawn]))
    parts = [base.parameters(models)]
    if result.selection is not None:
        parts.append(np.repeat(_exposure_rows(result.selection, result.bandit, log), len(models), axis=0))
    for component in components:
        own = np.ones((len(models), component.n_rows, padded(m)))
        own[..., :m] = component.start(len(models), m, rng)
        parts.append(own)
    return np.concatenate(parts, axis=1)


def _exposure_rows(selection: Selection, bandit: LatentBandit, log: Log) -> Float[Array, "1 k P"]:
    """Return the parameters of a fitted exposure."""
    n_arms, m = selection.favour.shape
    wide = np.ones((1, n_arms, padded(m)))
    wide[0, :, :m] = selection.favour
    if selection.kind != LIKES:
        return wide
    unit = np.ptp(log.values) if log.values is not None else 1.0
    preferences = (bandit.means - bandit.weights @ bandit.means).T / unit
    wide[0] = (selection.favour * np.exp(-selection.steepness * preferences)).mean(axis=1, keepdims=True)
    return np.concatenate([wide, np.full((1, 1, padded(m)), selection.steepness)], axis=1)


def _fitted(model: LatentClassModel, starts: Float[Array, "R K P"], n_sessions: int, tolerance: float) -> Climb:
    left = tolerance * n_sessions
    first = climb(model, starts, left=left, max_maps=_MAPS, accelerate=True)
    best = first.models[first.order()[:1]]
    return climb(model, best, left=left, max_maps=_MOST_MAPS, accelerate=True)


def _bandit(model: LatentClassModel, parameters: Float[Array, "K P"], log: Log, n_types: int) -> LatentBandit:
    weights = model.written(parameters[None])[2][WEIGHTS][0]
    return log.bandit(np.concatenate([weights, parameters[model.place(REWARDS)]]), n_types)


def _order(old: LatentBandit, new: LatentBandit) -> list[int]:
    """Return the types in the order of their weights if the old ones were; else that of the old types."""
    return new.types_by_weight if old.types_by_weight == sorted(old.types_by_weight) else type_priors.matched(old, new)


def _described(
    result: Estimate,
    model: LatentClassModel,
    parameters: Float[Array, "K P"],
    components: Sequence[Component],
    found: Climb,
) -> Estimate:
    """Return the estimate with the parameters of all components."""
    log, m = result.require_log(), result.n_types
    rows, memos, table = model.written(parameters[None])
    own = dict(zip([one.name for one in model.components], zip(rows, memos, strict=True), strict=True))
    bandit = _bandit(model, parameters, log, m)
    prior, selection = result.type_prior, result.selection
    if prior is not None:
        coefficients = own["features"][0][0, :, :m] if "features" in own else None
        prior = type_priors.refitted(prior, bandit, coefficients, log)
    if selection is not None:
        beta = float(own["exposure"][0][0, -1, 0]) if selection.kind == LIKES else 0.0
        selection = replace(selection, favour=np.asarray(own["exposure"][1][0]), steepness=beta)
    described = [
        FittedComponent.of(one.name, one.summary(own[one.name][0][0, :, :m]), one.table(own[one.name][0][0, :, :m]))
        for one in components
    ]
    status = Status.CONVERGED if found.converged[0] else Status.ITERATION_LIMIT
    total = float(model.e_step.expectation(table.array, model.passes)[1][0])
    return replace(
        result,
        bandit=replace(
            bandit, leaving=result.bandit.leaving if bandit.leaving is None else bandit.leaving, type_prior=prior
        ),
        selection=selection,
        log_likelihood=total,
        n_parameters=result.n_parameters + sum(one.n_parameters(m) for one in components),
        status=status,
        message="; ".join([status.sentence.rstrip("."), *(one.summary for one in described)]),
        trace=np.array(found.traces[0]),
        own_components=AddedComponents.of(described),
    )
