"""Estimates with selective exposure: observed information, Gibbs sampler, and the sentence about the assumption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from .._shapes import Array, Float
from ..components.component import Component
from ..components.exposure import Exposure, ExposureLog, FreeExposure, PreferenceExposure
from ..components.latent_class_model import IndependentSessions, LatentClassModel
from ..components.rewards import Rewards
from ..components.weights import GroupWeights, Weights
from ..model.bandit import LatentBandit
from ..parallel import SERIAL, Passes
from .arm_law import CategoricalArms
from .assumptions import Assumptions
from .categorical import CategoricalCoordinates, CategoricalLog, categorical, code_scores
from .gibbs import GibbsSampler
from .information import Information
from .log import Chain, Prior, information_of_codes
from .result import LIKES, Selection

SOFT = 0.01  # part of equal probabilities in the start of a sampler
_LEAST = 1e-9  # the least weight in the start of a sampler


def with_exposure(
    first: Component, exposure: Exposure, prior: Prior, passes: Passes = SERIAL, arms: CategoricalArms | None = None
) -> LatentClassModel:
    """Return the model of arms and rewards, after a component of type weights."""
    log = exposure.log.log
    components = (first, Rewards(log, exposure.n_types, prior, arms), exposure)
    return LatentClassModel(components, IndependentSessions(log), passes)


def sampler_of(
    site: ExposureLog,
    bandit: LatentBandit,
    ratios: Float[Array, "A M"],
    *,
    beta: float | None = None,
    concentration: float = np.inf,
) -> GibbsSampler:
    """Return a sampler of types, rewards and exposure that starts at a bandit and its ratios.

    Args:
        site: the log with its states.
        bandit: weights and rewards of the first state.
        ratios: u of the first state.
        beta: that of preferences, which is drawn; None: u is drawn, at a concentration.
        concentration: that of free ratios.
    """
    log, m = site.log, bandit.n_types
    model = log.pack(bandit)[:, : 1 + log.n_own, :m].copy()
    preferences = site.preferences(model, m)[0]
    model[:, 0] = np.maximum(model[:, 0], _LEAST)
    model[:, 1:] = (1 - SOFT) * model[:, 1:] + SOFT / len(log.values)
    assert log.beside is not None
    n_groups = sum(block.n_rows for block in log.beside.blocks[:-1])
    first: Weights = GroupWeights(n_groups) if n_groups else Weights()
    exposure: Exposure = FreeExposure(site, m, concentration)
    rows = ratios[None]
    if beta is not None:
        exposure = PreferenceExposure(site, m)
        rows = np.concatenate([ratios * np.exp(-beta * preferences), np.full((1, m), beta)])[None]
    parameters = np.concatenate([model[:, :1], np.ones((1, n_groups, m)), model[:, 1:], rows], axis=1)
    arms = CategoricalArms(log.n_arms, log.values)
    return GibbsSampler(with_exposure(first, exposure, log.prior(0.0), arms=arms), log, parameters)


def with_exposure_sentence(found: Assumptions) -> Assumptions:
    """What was tested with a bandit that explains arms too: claims may rest on it though arms tell the type."""
    return replace(found, shown=replace(found.shown, sentence=_SENTENCE if found.shown.fires else found.shown.sentence))


_SENTENCE = (
    "The logged arms depend on the latent type, given the past of the session (selective exposure); the model includes "
    "this, and the intervals assume that it is right. Logging the information that the site used, as a feature, is "
    "safer."
)


def information(
    log: CategoricalLog, bandit: LatentBandit, selection: Selection, prior: Prior, passes: Passes
) -> Information:
    """Return the information of a log, and of the prior, about a bandit with exposure; u counts as known."""
    site, rewards = ExposureLog.of(log, reacting=selection.reacting).over(log), categorical(bandit)
    plain = code_scores(site.log, bandit, rewards)
    ratios, states = np.log(selection.favour)[plain.arms], np.log(site.shares @ selection.favour)
    scores = replace(plain, logs=plain.logs + ratios, beside=-states)
    matrix = information_of_codes(site.log, bandit.weights, scores, prior, passes)
    return Information(matrix, CategoricalCoordinates(bandit.weights, rewards, log.played))


def sampler_with_exposure(log: CategoricalLog, bandit: LatentBandit, selection: Selection) -> Callable[[], Chain]:
    """Return a maker of samplers of a log, which may hold groups, from a fit with exposure."""
    site = ExposureLog.of(log, reacting=selection.reacting).over(log)
    beta = selection.steepness if selection.kind == LIKES else None

    def make() -> Chain:
        return sampler_of(site, bandit, selection.favour, beta=beta, concentration=selection.concentration)

    return make
