"""Model selection for exposure: fit both forms, and use the better one if held-out rewards are predicted better.

Preferences have a likelihood ratio against arms that do not depend on types, free ratios a log evidence along one
sampler of concentrations. If both are small, the model stays without exposure. Otherwise five folds are held out: only
the prediction of held-out rewards separates a logging policy that knew the type from one that reacts to rewards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._shapes import Array, Float, Integer
from ..components.component import Component
from ..components.exposure import CONCENTRATIONS, LOOKED_AT, ExposureLog, FreeExposure, PreferenceExposure
from ..components.exposure import NAME as EXPOSURE
from ..components.features import Design, FeatureWeights
from ..components.latent_class_model import FEATURES, REWARDS, WEIGHTS, LatentClassModel
from ..components.weights import Weights
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..model.bandit import LatentBandit
from ..model.rewards import encode_values
from ..parallel import SERIAL, Passes
from .assumptions import reaction, reacts
from .categorical import CategoricalLog
from .check import Gain
from .climb import Climb, climb, draw_starts
from .exposure import SOFT, sampler_of, with_exposure
from .log import Beside, Log, Prior
from .result import FREE, LIKES, Selection

RATIO, EVIDENCE = 15.0, 3.0  # likelihood ratio, and log evidence, above which arms depend on the session
_STARTS, _MAPS, _LEFT = 2, 300, 1e-2  # drawn starts, most EM steps, and log-likelihood that may remain to be gained
_FOLD_MAPS, _FOLDS = 60, 5
_SWEEPS, _BURN = 30, 8  # of the sampler at each concentration, and those that are discarded
_PAIRED = 8  # first steps of a session whose arms are compared
_GATE, _PAIRS_GATE = 1.0, 2.0  # screening thresholds in standard deviations: of the test *shown*, and of pairs
_PAIRS_CLEAR = 4.0  # standard deviations of pairs above which arms of one session are similar
_FEW = 100  # sessions below which exposure is not considered
_STEPS = 8  # per parameter, below which fits of two models differ by chance alone
_FOLD_SOFT = 0.1  # part of the marginals in the start of a fit to the training folds


def path(site: ExposureLog, bandit: LatentBandit, rng: np.random.Generator) -> tuple[float, float]:
    """Return the likeliest concentration, and the log evidence of finite ones against infinity.

    One sampler visits all concentrations from the least to infinity, and neighbours are compared from both sides: a
    sampler that drew the concentration itself would hardly ever move between finite and infinite ones.
    """
    plain = replace(site, log=site.log.coded(site.log.sessions, Beside.of(site.log.beside.blocks[-1])))  # type: ignore[union-attr]
    chain = sampler_of(plain, bandit, np.ones((site.log.n_arms, bandit.n_types)))
    seen = np.zeros((len(CONCENTRATIONS), len(CONCENTRATIONS)))
    for i, concentration in enumerate(CONCENTRATIONS.tolist()):
        exposure = FreeExposure(plain, bandit.n_types, concentration)
        chain.use(exposure)
        for sweep in range(_SWEEPS):
            chain.sweep(rng)
            seen[i] += exposure.evidence / (_SWEEPS - _BURN) if sweep >= _BURN else 0.0
    now, ahead = np.diag(seen), np.diag(seen, 1)
    steps = (ahead - now[:-1] + now[1:] - np.diag(seen, -1)) / 2
    curve = np.append(-np.cumsum(steps[::-1])[::-1], 0.0)  # of each concentration against infinity
    evidence = float(np.logaddexp.reduce(curve[:-1]) - np.log(len(curve) - 1))
    return float(CONCENTRATIONS[curve.argmax()]), evidence


@dataclass(frozen=True, eq=False)
class Base:
    """What an exposure is added to: types, the prior of arms, and the weights of types by features."""

    bandit: LatentBandit
    prior: Prior
    design: Design | None = None  # of all sessions of the log; None: the weights are the same for all sessions
    coefficients: Float[Array, "D M"] | None = None

    @property
    def n_types(self) -> int:
        return self.bandit.n_types

    def feature_weights(self, design: Design) -> FeatureWeights:
        """Return the component of features under a design."""
        return FeatureWeights(design, self.n_types)

    def first(self, log: Log) -> Component:
        """Return the component of type weights for a log, whose first auxiliary codes are groups of features."""
        if self.design is None:
            return Weights()
        assert log.beside is not None
        groups = log.beside.blocks[0].front
        assert groups is not None
        return self.feature_weights(replace(self.design, groups=groups))

    def parameters(self, models: Float[Array, "R K P"]) -> Float[Array, "R k P"]:
        """Return the parameters of weights and rewards from models of a log without auxiliary rows."""
        if self.coefficients is None:
            return models
        first = np.zeros((len(models), len(self.coefficients), models.shape[2]))
        first[0, :, : self.n_types] = self.coefficients
        return np.concatenate([first, models[:, 1:]], axis=1)


@dataclass(frozen=True, eq=False)
class Candidate:
    """A fitted model with exposure."""

    kind: str
    model: LatentClassModel
    parameters: Float[Array, "K P"]
    climb: Climb
    reacting: bool = False  # whether the logging policy also uses the step before

    @property
    def exposure(self) -> PreferenceExposure | FreeExposure:
        found = self.model.components[-1]
        assert isinstance(found, PreferenceExposure | FreeExposure)
        return found

    @property
    def site(self) -> ExposureLog:
        return self.exposure.log

    @property
    def favour(self) -> Float[Array, "A M"]:
        """The ratios u."""
        return np.asarray(self.model.written(self.parameters[None])[1][-1][0])

    @property
    def own(self) -> Float[Array, "k P"]:
        """The parameters of the exposure."""
        return self.parameters[self.model.place(EXPOSURE)]

    @property
    def bandit(self) -> LatentBandit:
        """The types, with the mean weights of the log."""
        log, m = self.site.log, self.exposure.n_types
        weights = self.model.written(self.parameters[None])[2][WEIGHTS][0]
        return log.bandit(np.concatenate([weights, self.parameters[self.model.place(REWARDS)]]), m)

    @property
    def coefficients(self) -> Float[Array, "D M"] | None:
        """The coefficients of features, if the model has them."""
        first = self.model.components[0]
        return self.parameters[: first.n_rows, : self.exposure.n_types] if isinstance(first, FeatureWeights) else None

    @property
    def steepness(self) -> float:
        return float(self.own[-1, 0]) if self.kind == LIKES else 0.0

    @property
    def concentration(self) -> float:
        return self.exposure.concentration if isinstance(self.exposure, FreeExposure) else np.inf


def _climbed(kind: str, model: LatentClassModel, starts: Float[Array, "R K P"], maps: int = _MAPS) -> Candidate:
    found = climb(model, starts, left=_LEFT, max_maps=maps, accelerate=True)
    best = int(found.order()[0])
    return Candidate(kind, model, found.models[best], found.pick(np.array([best])))


def fit_preferences(site: ExposureLog, base: Base, rng: np.random.Generator, passes: Passes) -> tuple[Candidate, float]:
    """Return the best fit of preferences, and its likelihood ratio against arms that do not depend on types."""
    plain, n_types = site.log.coded(site.log.sessions, None), base.n_types
    starts = np.concatenate([_softer(plain, plain.pack(base.bandit), SOFT), draw_starts(plain, n_types, _STARTS, rng)])
    flat = _flat(base.parameters(starts), site.log.n_arms)
    exposure, first = PreferenceExposure(site, n_types), base.first(site.log)
    found = _climbed(LIKES, with_exposure(first, exposure, base.prior, passes), flat)
    again = found.parameters.copy()
    again[-1] = 0.0
    fixed = with_exposure(first, replace(exposure, learns_beta=False), base.prior, passes)
    none = _climbed(LIKES, fixed, np.stack([flat[0], again]))
    return found, 2 * float(found.climb.objectives[0] - none.climb.objectives[0])


def _flat(models: Float[Array, "R K P"], n_arms: int) -> Float[Array, "R L P"]:
    """Return models of preferences in which arms do not depend on types."""
    shape = len(models), 1, models.shape[2]
    return np.concatenate([models, np.repeat(np.ones(shape), n_arms, axis=1), np.zeros(shape)], axis=1)


def fit_free_ratios(likes: Candidate, base: Base, concentration: float, passes: Passes) -> Candidate:
    """Return the best fit of free ratios at a concentration, from the given types and those of preferences."""
    site, n_types = likes.site, base.n_types
    plain = site.log.coded(site.log.sessions, None)
    today = base.parameters(_softer(plain, plain.pack(base.bandit), SOFT))[0]
    starts = []
    for model, favour in ((today, np.ones_like(likes.favour)), (likes.parameters[: len(today)], likes.favour)):
        rows = np.zeros((len(favour), model.shape[1]))
        rows[:, :n_types] = favour / (site.marginal @ favour)
        starts.append(np.concatenate([model, rows]))
    model = with_exposure(base.first(site.log), FreeExposure(site, n_types, concentration), base.prior, passes)
    return _climbed(FREE, model, np.stack(starts))


def _softer(log: CategoricalLog, models: Float[Array, "R K P"], part: float) -> Float[Array, "R K P"]:
    """Return models mixed with a part of the arms' marginals, so that EM can leave them."""
    result = models.copy()
    result[:, 1:] = np.where(models[:, :1] > 0, _mixed(log, models[:, 1:], part), 0.0)  # others are padding
    return result


def _mixed(log: CategoricalLog, rewards: Float[Array, "R k P"], part: float) -> Float[Array, "R k P"]:
    return (1 - part) * rewards + part * log.marginals.reshape(-1, 1)


def held_out_gain(candidate: Candidate, base: Base) -> Gain:
    """Return the gain in held-out log-likelihood of rewards over types without exposure, from five folds."""
    site, n_types = candidate.site, base.n_types
    n_sessions, plain = len(site.log.sessions), site.log.coded(site.log.sessions, None)
    today = _flat(base.parameters(plain.pack(base.bandit)), site.log.n_arms)
    place, starts = candidate.model.place(REWARDS), []
    for one in (candidate.parameters[None], today):
        softer = one.copy()
        softer[:, place, :n_types] = _mixed(plain, one[:, place, :n_types], _FOLD_SOFT)
        starts.append(softer)
    difference = np.empty(n_sessions)
    for fold in range(_FOLDS):
        rows = np.arange(n_sessions)
        held, part = rows[fold::_FOLDS], site.part(rows[rows % _FOLDS != fold])
        both = replace(candidate.exposure, log=part), PreferenceExposure(part, n_types, learns_beta=False)
        found = [
            _climbed("", with_exposure(base.first(part.log), one, base.prior), start, _FOLD_MAPS)
            for one, start in zip(both, starts, strict=True)
        ]
        scores = [_rewards(one, site, held, exposed=exposed) for one, exposed in zip(found, (True, False), strict=True)]
        difference[held] = scores[0] - scores[1]
    return Gain(float(difference.mean()), float(difference.std() / np.sqrt(n_sessions)))


def _rewards(fitted: Candidate, site: ExposureLog, rows: Integer[Array, "n"], *, exposed: bool) -> Float[Array, "n"]:
    """Return the log-likelihood of each session's rewards, each given the arms so far and the earlier rewards."""
    assert isinstance(site.log.sessions, Sessions)
    assert site.states is not None
    sessions, values, n_types = site.log.sessions[rows], site.log.values, fitted.exposure.n_types
    offsets, lengths = sessions.offsets, sessions.lengths
    places = np.arange(sessions.n_steps) + np.repeat(site.log.sessions.offsets[rows] - offsets[:-1], lengths)
    codes = sessions.arms * np.int64(len(values)) + encode_values(values, sessions.rewards)
    table = fitted.model.written(fitted.parameters[None])[2]
    owner = np.repeat(np.arange(len(sessions)), lengths)
    with np.errstate(divide="ignore"):
        weights = np.log(table[WEIGHTS][0, 0, :n_types])
        paid = np.log(fitted.parameters[fitted.model.place(REWARDS)][codes, :n_types])
        if fitted.coefficients is not None:
            assert site.log.beside is not None
            groups = site.log.beside.blocks[0].front
            assert groups is not None
            weights = weights + np.log(table[FEATURES][0, groups[rows], :n_types])[owner]
    likelihood = np.zeros_like(paid)
    if exposed:
        likelihood = np.log(fitted.favour)[sessions.arms] - np.log(site.shares @ fitted.favour)[site.states[places]]
    total = np.cumsum(likelihood + paid, axis=0)
    before = total - likelihood - paid
    known = weights + before - before[offsets[:-1]][owner] + likelihood
    logs = np.logaddexp.reduce(known + paid, axis=1) - np.logaddexp.reduce(known, axis=1)
    return np.add.reduceat(logs, offsets[:-1])


def pairs(sessions: Sessions | Packed) -> float:
    """Return the similarity of arms within sessions over that between neighbouring sessions, in standard deviations.

    No model is needed: the number of sessions with arms a and b is compared with the number of neighbouring sessions
    with a in the first one and b in the second one, at the same two steps.
    """
    part = sessions[:: max(1, len(sessions) // LOOKED_AT)]
    n_arms, lengths, arms = part.n_arms, part.lengths, part.arms.astype(np.int64)
    together, apart = [], []
    for later in range(1, min(part.horizon, _PAIRED)):
        own = np.flatnonzero(lengths > later)
        for step in range(later):
            first = arms[part.offsets[own] + step] * n_arms
            together.append(first + arms[part.offsets[own] + later])
            apart.append(first + arms[part.offsets[np.roll(own, -1)] + later])
    if not together:
        return 0.0
    keys, counts = np.unique(np.concatenate([*together, *apart]), return_inverse=True)
    half = sum(len(one) for one in together)
    same, other = (np.bincount(side, minlength=len(keys)) for side in (counts[:half], counts[half:]))
    excess = ((same - other) ** 2 / (same + other)).sum() - len(keys)
    return float(excess / np.sqrt(2 * len(keys)))


@dataclass(frozen=True, eq=False)
class Found:
    """Result of the model selection for exposure."""

    candidate: Candidate | None  # the fit with exposure; None: exposure is not used
    selection: Selection | None
    doubt: str | None  # a warning, if arms depend on the session and types do not explain it
    gain: Gain | None = None  # of the best candidate on held-out sessions, if candidates were compared


def may_depend_on_types(score: float, sessions: Sessions | Packed, n_parameters: int) -> bool:
    """Return whether arms may depend on types, by the score of the test *shown* and by pairs of arms.

    A log of thousands of arms has too few steps of each: types that follow the noise would seem to explain arms that
    were chosen at random.
    """
    looked_at = sessions.n_steps * min(1.0, LOOKED_AT / max(len(sessions), 1))
    if len(sessions) < _FEW or looked_at < _STEPS * n_parameters:
        return False
    return score > _GATE or (pairs(sessions) > _PAIRS_GATE and not reacts(reaction(sessions)))


def explain(
    log: CategoricalLog,
    base: Base,
    *,
    always: bool,
    fires: bool,
    rng: np.random.Generator,
    passes: Passes,
) -> Found:
    """Fit preferences and free ratios, and select the one that predicts held-out rewards best, if that is better.

    Args:
        log: the log, with the groups of features as auxiliary codes if the base has a design.
        base: the fit without exposure.
        always: select the better of the two whatever held-out sessions say.
        fires: whether the test of exposure contradicts the fit, so that a reaction to rewards does not explain it.
        rng: draws starts and samples.
        passes: runs the expectation over the log.
    """
    site, bandit = ExposureLog.of(log), base.bandit
    likes, ratio = fit_preferences(site, base, rng, SERIAL)
    concentration, evidence = path(site, bandit, rng)
    if not always and ratio <= RATIO and evidence <= EVIDENCE:
        return Found(None, None, None)
    candidates = [likes, *_free(likes, base, concentration)]
    if reacts(reaction(log.sessions)):
        other, _ = fit_preferences(ExposureLog.of(log, reacting=True), base, rng, SERIAL)
        candidates += [replace(one, reacting=True) for one in (other, *_free(other, base, concentration))]
    gains = [held_out_gain(one, base) for one in candidates]
    best = int(np.argmax([gain.mean for gain in gains]))
    if not always and gains[best].mean <= 0:
        return Found(None, None, _doubt(ratio, evidence) if fires or _alike(site) else None, gains[best])
    taken = _over_all(candidates[best], base, log, passes)
    how = taken.steepness, taken.concentration, taken.reacting
    return Found(taken, Selection(taken.kind, taken.favour, *how, ratio, evidence, gains[best]), None, gains[best])


def _free(likes: Candidate, base: Base, concentration: float) -> list[Candidate]:
    """Return the fit of free ratios, if a finite concentration is likely."""
    return [fit_free_ratios(likes, base, concentration, SERIAL)] if concentration < CONCENTRATIONS[-1] else []


def _over_all(found: Candidate, base: Base, log: CategoricalLog, passes: Passes) -> Candidate:
    """Return the candidate fitted to the whole log, if it was fitted to a part of it."""
    site = found.site.over(log)
    if site is found.site:
        return found
    model = with_exposure(base.first(site.log), replace(found.exposure, log=site), base.prior, passes)
    return replace(_climbed(found.kind, model, found.parameters[None]), reacting=found.reacting)


def _alike(site: ExposureLog) -> bool:
    """Return whether arms of one session are similar for a reason that the log does not show."""
    sessions = site.log.sessions
    return bool((site.shares > 0).all()) and not reacts(reaction(sessions)) and clearly_alike(sessions)


def clearly_alike(sessions: Sessions | Packed) -> bool:
    """Return whether arms of one session are clearly more similar than those of neighbouring sessions."""
    return pairs(sessions) > _PAIRS_CLEAR


def _doubt(ratio: float, evidence: float) -> str:
    return (
        f"the logged arms depend on the session (likelihood ratio {ratio:.1f}, threshold {RATIO:g}; log evidence "
        f"{evidence:.1f}, threshold {EVIDENCE:g}), but latent types do not explain this, so the model does not include "
        f"it: log the information that the site used, such as the segment, as a feature (propensities do not repair "
        f"this)"
    )
