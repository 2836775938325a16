"""The rule by which a fit explains which arms were shown: it is tried, and taken where held-out rewards say so.

Today's fit comes first. *Likes* has a likelihood ratio against arms that do not depend on types, *free* an evidence
along one chain of concentrations. Where both are small, today's fit stays. Else five folds are held out, and the better
of the two is taken if it predicts rewards better than today's likelihood: only this separates a site that knew from a
site that reacts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._shapes import Array, Float, Integer
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..model.bandit import LatentBandit
from ..model.rewards import encode_values
from ..parallel import SERIAL, Passes
from .assumptions import reaction, reacts
from .categorical import CategoricalLog
from .check import Gain
from .climb import Climb, climb, draw_starts
from .log import Prior
from .result import FREE, LIKES, Selection
from .shown import CONCENTRATIONS, LOOKED_AT, SOFT, Free, Likes, ShownChain, Site

RATIO, EVIDENCE = 15.0, 3.0  # likelihood ratio, and log evidence, from which what was shown depends on the session
_STARTS, _MAPS, _LEFT = 2, 300, 1e-2  # starts beside today's fit, maps of a climb, and what it may leave to be gained
_FOLD_MAPS, _FOLDS = 60, 5
_SWEEPS, _BURN = 30, 8  # of the chain at each concentration, and those that are left out
_PAIRED = 8  # first steps of a session whose arms are compared
_GATE, _PAIRS_GATE = 1.0, 2.0  # standard deviations from which a log is looked at: of the test *shown*, and of pairs
_PAIRS_CLEAR = 4.0  # of pairs, from which arms of one session are alike
_FEW = 100  # sessions below which nothing is asked
_STEPS = (
    8  # per parameter, of the sessions looked at, below which climbs of two models differ by more than what is asked
)
_FOLD_SOFT = 0.1  # part of the marginals in the start of a climb that leaves sessions out


def path(site: Site, bandit: LatentBandit, rng: np.random.Generator) -> tuple[float, float]:
    """The likeliest concentration, and the log evidence of finite ones against infinity.

    One chain walks from the least concentration to infinity, and neighbours are compared from both sides: a chain that
    drew the concentration itself would hardly ever move between finite and infinite ones.
    """
    chain = ShownChain(site, bandit, np.ones((site.log.n_arms, bandit.n_types)))
    seen = np.zeros((len(CONCENTRATIONS), len(CONCENTRATIONS)))
    for i, concentration in enumerate(CONCENTRATIONS.tolist()):
        chain.concentration = concentration
        for sweep in range(_SWEEPS):
            chain.sweep(rng)
            seen[i] += chain.evidence / (_SWEEPS - _BURN) if sweep >= _BURN else 0.0
    now, ahead = np.diag(seen), np.diag(seen, 1)
    steps = (ahead - now[:-1] + now[1:] - np.diag(seen, -1)) / 2
    curve = np.append(-np.cumsum(steps[::-1])[::-1], 0.0)  # of each concentration against infinity
    evidence = float(np.logaddexp.reduce(curve[:-1]) - np.log(len(curve) - 1))
    return float(CONCENTRATIONS[curve.argmax()]), evidence


@dataclass(frozen=True, eq=False)
class Candidate:
    """A fit that explains arms."""

    kind: str
    ascent: Likes | Free
    model: Float[Array, "K P"]
    climb: Climb
    reacting: bool = False  # whether the site also looks at the step before

    @property
    def favour(self) -> Float[Array, "A M"]:
        return self.ascent.favour(self.model[None])[0]

    @property
    def bandit(self) -> LatentBandit:
        log = self.ascent.site.log
        return log.bandit(self.model[: 1 + log.n_own], self.ascent.n_types)

    @property
    def steepness(self) -> float:
        return float(self.model[-1, 0]) if self.kind == LIKES else 0.0

    @property
    def concentration(self) -> float:
        return self.ascent.concentration if isinstance(self.ascent, Free) else np.inf


def _climbed(kind: str, ascent: Likes | Free, models: Float[Array, "R K P"], maps: int = _MAPS) -> Candidate:
    found = climb(ascent, models, left=_LEFT, max_maps=maps, accelerate=True)
    best = int(found.order()[0])
    return Candidate(kind, ascent, found.models[best], found.pick(np.array([best])))


def likes_of(
    site: Site, bandit: LatentBandit, prior: Prior, rng: np.random.Generator, passes: Passes
) -> tuple[Candidate, float]:
    """The best fit of *likes*, and its likelihood ratio against arms that do not depend on types."""
    plain, n_types = CategoricalLog.encode(site.log.sessions, site.log.values, **site.log._more), bandit.n_types
    starts = np.concatenate([_softer(plain, plain.pack(bandit), SOFT), draw_starts(plain, n_types, _STARTS, rng)])
    flat = _flat(starts, site.log.n_arms)
    ascent = Likes(site, n_types, prior, passes)
    found = _climbed(LIKES, ascent, flat)
    again = found.model.copy()
    again[-1] = 0.0
    none = _climbed(LIKES, replace(ascent, steepens=False), np.stack([flat[0], again]))
    return found, 2 * float(found.climb.objectives[0] - none.climb.objectives[0])


def _flat(models: Float[Array, "R K P"], n_arms: int) -> Float[Array, "R L P"]:
    """Models of *likes* in which arms do not depend on types."""
    shape = len(models), 1, models.shape[2]
    return np.concatenate([models, np.repeat(np.ones(shape), n_arms, axis=1), np.zeros(shape)], axis=1)


def free_of(likes: Candidate, bandit: LatentBandit, concentration: float, passes: Passes) -> Candidate:
    """The best fit of *free* at a concentration, from today's types and from those of *likes*."""
    site, prior, n_types = likes.ascent.site, likes.ascent.prior, bandit.n_types
    ascent, n_own = Free(site, n_types, prior, concentration, passes), site.log.n_own
    today = _softer(site.log, site.log.pack(bandit)[:, : 1 + n_own], SOFT)[0]
    starts = []
    for model, favour in ((today, np.ones_like(likes.favour)), (likes.model[: 1 + n_own], likes.favour)):
        rows = np.zeros((len(favour), model.shape[1]))
        rows[:, :n_types] = favour / (site.marginal @ favour)
        starts.append(np.concatenate([model, rows]))
    return _climbed(FREE, ascent, np.stack(starts))


def _softer(log: CategoricalLog, models: Float[Array, "R K P"], part: float) -> Float[Array, "R K P"]:
    """Models with a part of the arms' marginals, so that a climb can leave them."""
    result, own = models.copy(), slice(1, 1 + log.n_own)
    there = models[:, :1] > 0  # columns of types; the others are padding
    result[:, own] = np.where(there, (1 - part) * models[:, own] + part * log.marginals.reshape(-1, 1), 0.0)
    return result


def gained(candidate: Candidate, bandit: LatentBandit) -> Gain:
    """How much better held-out rewards are predicted than by types that do not explain arms: five folds."""
    site, prior, n_types = candidate.ascent.site, candidate.ascent.prior, bandit.n_types
    n_sessions, n_own = len(site.log.sessions), site.log.n_own
    today = _flat(site.log.pack(bandit)[:, : 1 + n_own], site.log.n_arms)
    starts = [_softer(site.log, model, _FOLD_SOFT) for model in (candidate.model[None], today)]
    difference = np.empty(n_sessions)
    for fold in range(_FOLDS):
        rows = np.arange(n_sessions)
        held, part = rows[fold::_FOLDS], site.part(rows[rows % _FOLDS != fold])
        plain = Likes(part, n_types, prior, steepens=False)
        own = replace(candidate.ascent, site=part)
        models = [
            _climbed("", ascent, start, _FOLD_MAPS).model for ascent, start in zip((own, plain), starts, strict=True)
        ]
        told = _Told.of(site, held)
        explained = told.rewards(models[0], own.favour(models[0][None])[0], n_types)
        difference[held] = explained - told.rewards(models[1], None, n_types)
    return Gain(float(difference.mean()), float(difference.std() / np.sqrt(n_sessions)))


@dataclass(frozen=True, eq=False)
class _Told:
    """Steps of some sessions of a site: their codes, arms and states."""

    site: Site
    codes: Integer[Array, "S"]
    arms: Integer[Array, "S"]
    states: Integer[Array, "S"]
    offsets: Integer[Array, "K1"]

    @classmethod
    def of(cls, site: Site, rows: Integer[Array, "n"]) -> _Told:
        assert isinstance(site.log.sessions, Sessions)
        assert site.states is not None
        sessions, values = site.log.sessions[rows], site.log.values
        lengths = sessions.lengths
        places = np.arange(sessions.n_steps) + np.repeat(
            site.log.sessions.offsets[rows] - sessions.offsets[:-1], lengths
        )
        codes = sessions.arms * np.int64(len(values)) + encode_values(values, sessions.rewards)
        return cls(site, codes, sessions.arms, site.states[places], sessions.offsets)

    def rewards(
        self, model: Float[Array, "K P"], favour: Float[Array, "A M"] | None, n_types: int
    ) -> Float[Array, "n"]:
        """log-likelihood of each session's rewards, each given the arms so far and the earlier rewards."""
        with np.errstate(divide="ignore"):
            weights, paid = np.log(model[0, :n_types]), np.log(model[1 + self.codes, :n_types])
        told = np.zeros_like(paid)
        if favour is not None:
            told = np.log(favour)[self.arms] - np.log(self.site.shares @ favour)[self.states]
        total = np.cumsum(told + paid, axis=0)
        before = total - told - paid
        owner = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        known = weights + before - before[self.offsets[:-1]][owner] + told
        logs = np.logaddexp.reduce(known + paid, axis=1) - np.logaddexp.reduce(known, axis=1)
        return np.add.reduceat(logs, self.offsets[:-1])


def pairs(sessions: Sessions | Packed) -> float:
    """How alike the arms of two steps of one session are, beside those of neighbouring sessions; in deviations.

    No model is needed: how often arms a and b come together in one session is compared with how often they come at
    the same two steps of a session and the next one.
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
    """What a log says about who was shown what."""

    candidate: Candidate | None  # the fit that explains arms; None: today's fit stays
    selection: Selection | None
    doubt: str | None  # a warning, where what was shown depends on the session and types do not explain it


def asks(score: float, sessions: Sessions | Packed, n_parameters: int) -> bool:
    """Whether a look at what was shown may be worth it, where the test *shown* has this score.

    Of thousands of arms the sessions looked at say too little about each: types that follow their noise would seem to
    explain arms that were shown at random.
    """
    looked_at = sessions.n_steps * min(1.0, LOOKED_AT / max(len(sessions), 1))
    if len(sessions) < _FEW or looked_at < _STEPS * n_parameters:
        return False
    return score > _GATE or (pairs(sessions) > _PAIRS_GATE and not reacts(reaction(sessions)))


def explain(
    log: CategoricalLog,
    bandit: LatentBandit,
    prior: Prior,
    *,
    always: bool,
    fires: bool,
    rng: np.random.Generator,
    passes: Passes,
) -> Found:
    """The rule: try *likes* and *free*, and take the one that predicts held-out rewards best, if that is better.

    Args:
        log: the log of today's fit.
        bandit: today's fit.
        prior: that of every arm.
        always: take the better of the two whatever held-out sessions say.
        fires: whether the test *shown* contradicts today's fit, so that a reaction to rewards does not explain it.
        rng: where starts and chains come from.
        passes: where the expectation over the log runs.
    """
    site = Site.of(log)
    likes, ratio = likes_of(site, bandit, prior, rng, SERIAL)
    concentration, evidence = path(site, bandit, rng)
    if not always and ratio <= RATIO and evidence <= EVIDENCE:
        return Found(None, None, None)
    candidates = [likes, *_free(likes, bandit, concentration)]
    if reacts(reaction(log.sessions)):
        other, _ = likes_of(Site.of(log, reacting=True), bandit, prior, rng, SERIAL)
        candidates += [replace(one, reacting=True) for one in (other, *_free(other, bandit, concentration))]
    gains = [gained(one, bandit) for one in candidates]
    best = int(np.argmax([gain.mean for gain in gains]))
    if not always and gains[best].mean <= 0:
        return Found(None, None, _doubt(ratio, evidence) if fires or _alike(site) else None)
    taken = _over_all(candidates[best], log, passes)
    how = taken.steepness, taken.concentration, taken.reacting
    return Found(taken, Selection(taken.kind, taken.favour, *how, ratio, evidence, gains[best]), None)


def _free(likes: Candidate, bandit: LatentBandit, concentration: float) -> list[Candidate]:
    """The fit of *free*, where a finite concentration is likely."""
    return [free_of(likes, bandit, concentration, SERIAL)] if concentration < CONCENTRATIONS[-1] else []


def _over_all(found: Candidate, log: CategoricalLog, passes: Passes) -> Candidate:
    """The candidate climbed on over the whole log, where only a part of it was looked at."""
    site = found.ascent.site.over(log)
    if site is found.ascent.site:
        return found
    whole = _climbed(found.kind, replace(found.ascent, site=site, passes=passes), found.model[None])
    return replace(whole, reacting=found.reacting)


def _alike(site: Site) -> bool:
    """Whether arms of one session are alike for no reason that the log shows: neither its rewards nor its calendar."""
    sessions = site.log.sessions
    return bool((site.shares > 0).all()) and not reacts(reaction(sessions)) and clearly_alike(sessions)


def clearly_alike(sessions: Sessions | Packed) -> bool:
    """Whether arms of one session are clearly more alike than those of neighbouring sessions."""
    return pairs(sessions) > _PAIRS_CLEAR


def _doubt(ratio: float, evidence: float) -> str:
    return (
        f"the logged arms depend on the session (likelihood ratio {ratio:.1f}, threshold {RATIO:g}; log evidence "
        f"{evidence:.1f}, threshold {EVIDENCE:g}), but latent types do not explain this, so the model does not include "
        f"it: log the information that the site used, such as the segment, as a feature (propensities do not repair "
        f"this)"
    )
