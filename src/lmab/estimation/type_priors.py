"""The prior over types of a session, learned from its features and from returning persons.

Types and prior are learned together by EM over the components features, persons and rewards; or the types stay as
another method estimated them, and only B and `keep` are learned. The ridge of every column is learned (MacKay's fixed
point).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Float, Integer, Shaped
from ..components.component import Component
from ..components.features import Design, FeatureWeights
from ..components.latent_class_model import FEATURES, Expectation, IndependentSessions, LatentClassModel
from ..components.persons import LinkedSessions, Persons, logit, probability
from ..components.rewards import Rewards
from ..data.features import Features, person_numbers
from ..data.packed import Packed
from ..data.sessions import Sessions, sample_rows
from ..model import belief
from ..model.bandit import LatentBandit
from ..model.categorical import Categorical
from ..model.type_prior import Category, Term, TypePrior, clustered, make_columns, softmax
from ..parallel import SERIAL, Passes
from .climb import Climb, climb, draw_starts
from .fitted_components import Candidate
from .log import Beside, CodeBlock, Log, Prior, padded

_CELLS = 20_000_000  # Sessions times coefficients that are held in memory; larger logs are sampled.
_FIRST_ROUNDS, _ROUNDS = 12, 4  # Climbs between which the ridge is learned: with given types, and with types.
_ROUND_MAPS = 40  # Maps of such a climb.
_FIRST_RIDGE = 5.0  # The ridge before one is learned.
_PILOT = 10_000  # Sessions on which starts compete and the ridge is learned.
_STARTS, _FINISHERS, _START_MAPS = 8, 2, 60  # Starts that are drawn, those that climb on, and maps before that.
_FOLDS, _ENOUGH, _HELD = 5, 10_000, 50_000  # Folds of small logs, sessions that make one fold enough, and at most.
_DESCRIBED = 200_000  # Sessions of a larger log from which levels, means and quantiles of columns are taken.
_SAMPLED = 1e-6  # Log-likelihood per session that may remain to be gained where the fit is to a sample of the log.
_ROUGH = 1e-5  # Log-likelihood per session that may remain to be gained where fits are only compared.
_CLEAR = 1.0  # Standard errors by which held-out sessions must be predicted better.
_ROUNDING = 1e-6  # A gain per held-out session that rounding may make, or that nobody misses.
_SUSPECT = 0.95  # A column that explains more of the rewards is suspected to be made of them.
_LOOKED_AT = 20_000  # Sessions of a larger log that are compared with the columns, about.
_FIRST_STEPS = 10  # Steps whose rewards are compared with the columns.
MOST_GROUPS = 24  # of people, whose features give them different priors
_STAY = 0.5  # The value of `keep` from which it is learned.


def grouped(log: Log, groups: Integer[Array, "N"], n_groups: int) -> Log | None:
    """Return the log with the group of each session as a code in front of it; None: its family has no such codes."""
    if log.family != Categorical.family or log.values is None:
        return None
    beside = Beside.of(CodeBlock(FeatureWeights.name, n_groups, groups))
    return replace(log, beside=beside, _cuts={}) if log.travels else log.coded(log.sessions, beside)


def group_log(log: Log, prior: TypePrior) -> tuple[Log, int] | None:
    """The log with a group of people in front of each session, those of like priors together; and their number."""
    features = log.sessions.features
    if features is None:
        return None
    rows = features.only(prior.columns)
    each = prior.weights(replace(rows, rows=np.arange(rows.n_rows, dtype=np.int32)))
    counts = np.bincount(rows.rows, minlength=rows.n_rows).astype(float)
    centres, _, own = clustered(each, counts / counts.sum(), MOST_GROUPS)
    found = grouped(log, own[rows.rows], len(centres))
    return None if found is None else (found, len(centres))


@dataclass(frozen=True, eq=False)
class Task:
    """A log whose prior over types is learned, together with the types if they are not given by their likelihoods."""

    n_types: int
    persons: Integer[Array, "N"]  # the sessions of a person follow one another; every number once: nobody returns
    log: Log | None = None  # with the sessions in this order, and others
    rows: Integer[Array, "N"] | None = None  # the sessions of the log; None: all
    arm_prior: Prior | None = None
    like: Float[Array, "N M"] | None = None
    passes: Passes = SERIAL

    def __len__(self) -> int:
        return len(self.persons)

    @property
    def given(self) -> bool:
        """Whether the types are given."""
        return self.like is not None

    def part(self, sessions: Integer[Array, "n"]) -> Task:
        """Return the task for some of the sessions."""
        return replace(
            self,
            persons=self.persons[sessions],
            rows=sessions if self.rows is None else self.rows[sessions],
            like=None if self.like is None else self.like[sessions],
        )

    @property
    def strangers(self) -> Task:
        """The same log as if nobody returned."""
        return replace(self, persons=np.arange(len(self)))

    @cached_property
    def sessions(self) -> Sessions:
        """The sessions of the task."""
        assert self.log is not None
        found = self.log.sessions.load()
        return found if self.rows is None else found[self.rows]

    @cached_property
    def edges(self) -> Integer[Array, "P1"]:
        fresh = np.append(True, self.persons[1:] != self.persons[:-1])
        return np.append(np.flatnonzero(fresh), len(self.persons))

    @property
    def returns(self) -> int:
        """The number of sessions of persons who returned."""
        return len(self) - len(self.edges) + 1

    def model(self, design: Design) -> LatentClassModel:
        """Return the model that is fitted under a design of the same sessions."""
        features = FeatureWeights(design, self.n_types)
        before: tuple[Component, ...] = (features, Persons()) if self.returns else (features,)
        if self.log is None:
            linked = LinkedSessions(design.groups, len(design.x), self.edges, self.n_types, like=self.like)
            return LatentClassModel(before, linked)
        assert self.arm_prior is not None
        e_step: Expectation
        if self.returns:
            plain = self.log.coded(self.sessions, None)
            linked = LinkedSessions.of(plain, {}, design.groups, self.edges, len(design.x), self.n_types)
            assert linked.independent is not None
            log, e_step = linked.independent.log, linked
        else:
            log = self.log.coded(self.sessions, Beside.of(features.group_codes))
            e_step = IndependentSessions(log)
        return LatentClassModel((*before, Rewards(log, self.n_types, self.arm_prior)), e_step, self.passes)

    def packed(self, design: Design, fitted: Fitted) -> Float[Array, "K P"]:
        """Return a fit as an array of parameters under a design, which may have more columns than that of the fit."""
        coefficients = np.zeros((design.size, self.n_types))
        coefficients[: len(fitted.coefficients)] = fitted.coefficients
        keep = [np.full((1, self.n_types), logit(fitted.keep or _STAY))] if self.returns else []
        rows = [] if fitted.rows is None else [fitted.rows]
        found = np.concatenate([coefficients, *keep, *rows])
        wide = np.zeros((len(found), padded(self.n_types)))
        wide[:, : self.n_types] = found
        return wide

    def fitted(self, design: Design, model: Float[Array, "K P"]) -> Fitted:
        """Return an array of parameters as a fit."""
        d, m = design.size, self.n_types
        coefficients = model[:d, :m] - model[:d, :m].mean(axis=1, keepdims=True)
        keep = probability(float(model[d, 0])) if self.returns else None
        first = d + (1 if self.returns else 0)
        return Fitted(design, coefficients, keep, None if self.given else model[first:, :m])

    def bandit(self, fitted: Fitted) -> LatentBandit:
        """Return the types of a fit, with equal weights."""
        assert self.log is not None
        assert fitted.rows is not None
        model = np.zeros((1 + len(fitted.rows), padded(self.n_types)))
        model[0, : self.n_types], model[1:, : self.n_types] = 1 / self.n_types, fitted.rows
        return self.log.bandit(model, self.n_types)

    def scores(self, fitted: Fitted, design: Design, softened: bool = False) -> Float[Array, "N"]:
        """log-likelihood of each session, after the person's earlier ones if persons come back."""
        return self._walk(fitted, design, softened)[0]

    def without_each(self, fitted: Fitted, design: Design) -> Iterator[tuple[str, Float[Array, "N"]]]:
        """Return the name of each column, and the scores if it is not known."""
        like, scales = self._likelihoods(fitted, True)
        logits = design.x @ fitted.coefficients
        for term, block in zip(design.terms, design.blocks, strict=True):
            weights = softmax(logits - design.x[:, block] @ fitted.coefficients[block])
            yield term.name, self._scored(like, weights, design.groups, fitted.keep)[0] + scales

    def informed(self, fitted: Fitted, design: Design) -> float:
        """Return how much a session tells about the prior: the variance of what its posterior adds to its weights."""
        _, posterior, weights = self._walk(fitted, design, False)
        return float(((posterior - weights[design.groups]) ** 2).mean()) * self.n_types / max(self.n_types - 1, 1)

    def _walk(
        self, fitted: Fitted, design: Design, softened: bool
    ) -> tuple[Float[Array, "N"], Float[Array, "N M"], Float[Array, "G M"]]:
        like, scales = self._likelihoods(fitted, softened)
        weights = np.ascontiguousarray(design.weights(fitted.coefficients))
        logs, posterior = self._scored(like, weights, design.groups, fitted.keep)
        return logs + scales, posterior, weights

    def _likelihoods(self, fitted: Fitted, softened: bool) -> tuple[Float[Array, "N M"], Float[Array, "N"]]:
        """Return the likelihood of each session by type, scaled, and the logs of the scales."""
        if self.like is not None:
            return self.like, np.zeros(len(self))
        assert self.log is not None
        bandit = self.bandit(fitted)
        return _likelihoods(self.log.possible(bandit) if softened else bandit, self.sessions)

    def _scored(
        self, like: Float[Array, "N M"], weights: Float[Array, "G M"], groups: Integer[Array, "N"], keep: float | None
    ) -> tuple[Float[Array, "N"], Float[Array, "N M"]]:
        """Return the log of each session's probability, less its scale, and its posterior."""
        edges = self.edges if keep is not None else np.arange(len(self) + 1)
        logs, posterior, fresh = np.empty(len(self)), np.empty_like(like), np.empty_like(weights)
        kernel("em").returning(like, edges, weights, groups, keep or 0.0, posterior, fresh, np.empty(2), logs)
        return logs, posterior


@dataclass(frozen=True, eq=False)
class Fitted:
    """A prior over types, and the rows of the codes if types were learned with it."""

    design: Design
    coefficients: Float[Array, "D M"]
    keep: float | None
    rows: Float[Array, "C M"] | None


def _left(task: Task, tolerance: float) -> float:
    return tolerance * len(task) * min(1.0, len(task) / 10_000)


def search(
    task: Task, design: Design, first: Sequence[Fitted], *, learned: bool, tolerance: float, rng: np.random.Generator
) -> tuple[Fitted, Climb]:
    """The best fit from several starts, which compete on a sample if the log is large; the ridge may be learned."""
    pilot, own = task, design
    if len(task) > 2 * _PILOT:
        rows = _sample(task, _PILOT, rng)
        pilot, own = task.part(rows), design.part(rows)
    if learned and design.terms:
        own = _first_ridge(pilot, own, first[0])
    models = np.stack([task.packed(design, one) for one in first])
    if len(models) > 1:
        found = climb(pilot.model(own), models, left=_left(pilot, _ROUGH), max_maps=_START_MAPS, accelerate=True)
        models = found.models[found.order()[:_FINISHERS]]
        found = climb(pilot.model(own), models, left=_left(pilot, 1e-7), max_maps=5 * _START_MAPS, accelerate=True)
        models = found.models[found.order()[:1]]
    for _ in range(_ROUNDS if learned and design.terms and not task.given else 0):
        models = climb(pilot.model(own), models, left=0.0, max_maps=_ROUND_MAPS, accelerate=True).models
        now = pilot.fitted(own, models[0])
        own = own.with_learned_ridge(now.coefficients, pilot.informed(now, own))
    design = own if own.groups is design.groups else design.with_ridge(own.ridge)
    done = climb(task.model(design), models, left=_left(task, tolerance), max_maps=5000, accelerate=True)
    return task.fitted(design, done.models[0]), done


def _first_ridge(task: Task, design: Design, base: Fitted) -> Design:
    """The design with ridges that suit the types of `base`: types that follow useless columns are never tried."""
    like, _ = task._likelihoods(base, True)
    given = Task(task.n_types, task.persons, like=like)
    base = replace(base, rows=None)
    models = given.packed(design, base)[None]
    for _ in range(_FIRST_ROUNDS):
        models = climb(
            given.model(design), models, left=_left(task, 1e-6), max_maps=_ROUND_MAPS, accelerate=True
        ).models
        now = given.fitted(design, models[0])
        design = design.with_learned_ridge(now.coefficients, given.informed(now, design))
    return design


def _sample(task: Task, size: int, rng: np.random.Generator) -> Integer[Array, "n"]:
    """Return all sessions of some persons, about `size` of them."""
    n_persons = len(task.edges) - 1
    drawn = np.zeros(n_persons, bool)
    drawn[sample_rows(n_persons, max(size * n_persons // len(task), 1), rng)] = True
    return np.flatnonzero(np.repeat(drawn, np.diff(task.edges)))


@dataclass(frozen=True, eq=False)
class Gain:
    """By how much held-out sessions are predicted better, in log-likelihood per session."""

    mean: float
    stderr: float
    columns: dict[str, float]  # what is lost if a column is not known

    @property
    def clear(self) -> bool:
        return self.mean > max(_CLEAR * self.stderr, _ROUNDING)

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ({self.stderr:.4f}) per held-out session"


Refit = Callable[[Any, "Fitted"], "Fitted"]  # the candidate, fitted to some sessions from another fit to them


def gain_of(task: Task, design: Design, refit: Refit, base: Fitted, rng: np.random.Generator) -> Gain:
    """What a candidate with the given design gains over `base` on held-out persons, both fitted to the others only."""
    sessions = _sample(task, _HELD, rng) if len(task) > _HELD else np.arange(len(task))
    persons = np.unique(task.persons[sessions])
    folds = np.array_split(rng.permutation(persons), min(_FOLDS, len(persons)))
    gains, n_held, losses = [], 0, dict[str, float]()
    for fold in folds[: max(1, round(_ENOUGH / len(sessions)))]:
        held = np.isin(task.persons[sessions], fold)
        train, there = sessions[~held], sessions[held]
        old = _again(task, base, train)
        new = refit(train, old)
        part, own = task.part(there), design.part(there)
        score = part.scores(new, own, True)
        gains.append(np.add.reduceat(score - part.scores(old, base.design.part(there), True), part.edges[:-1]))
        n_held += len(there)
        for name, scores in part.without_each(new, own):
            losses[name] = losses.get(name, 0.0) + float((score - scores).sum())
    found = np.concatenate(gains)
    error = float(found.std() * np.sqrt(len(found))) / n_held
    return Gain(float(found.sum()) / n_held, error, {name: loss / n_held for name, loss in losses.items()})


def _again(task: Task, fitted: Fitted, rows: Integer[Array, "n"]) -> Fitted:
    """Return the fit, climbed again on some of the sessions."""
    own = (task if fitted.keep is not None else task.strangers).part(rows)
    design = fitted.design.part(rows)
    done = climb(
        own.model(design), own.packed(design, fitted)[None], left=_left(own, _ROUGH), max_maps=300, accelerate=True
    )
    return own.fitted(design, done.models[0])


@dataclass(frozen=True, eq=False)
class Learned:
    """What was learned about the prior over types, and the bandit that goes with it."""

    bandit: LatentBandit
    type_prior: TypePrior | None  # None: what is known before a session tells nothing about it
    log_likelihood: float
    n_more: int  # parameters of the prior beyond the weights
    trace: tuple[float, ...]  # the objective after every map, if types were learned too
    converged: bool
    sentences: tuple[str, ...]  # what was kept and what not, and why
    doubts: tuple[str, ...]  # what a reader should look at
    gain: Gain | None = None  # of the features on held-out sessions, if they were kept and sessions held out
    candidates: tuple[Candidate, ...] = ()  # that were compared on held-out sessions


def learn(
    encoded: Log,
    bandit: LatentBandit,
    arm_prior: Prior | None,
    *,
    ridge: bool,
    tolerance: float,
    numeric: Sequence[str] = (),
    rng: np.random.Generator,
    passes: Passes,
) -> Learned | None:
    """Return the prior over types of a log with features or persons; None if it has neither, or there is one type.

    Args:
        encoded: the log.
        bandit: the fit to it that knows nothing before a session.
        arm_prior: the prior of every arm under which types are learned together with their prior; None: the types of
            `bandit` stay.
        ridge: whether coefficients are shrunk; False: maximum likelihood.
        tolerance: log-likelihood per session that may remain to be gained.
        numeric: columns whose numbers are not cut into bins.
        rng: where starts and held-out sessions come from.
        passes: where passes over the log run.
    """
    sessions = encoded.sessions
    if bandit.n_types == 1 or (sessions.features is None and sessions.persons is None):
        return None
    log = sessions.load()
    terms, remarks = ((), ()) if log.features is None else make_columns(_looked_at(log.features, rng), numeric)
    sentences = [f"{remark}: not used" for remark in remarks]
    size = _CELLS // (1 + sum(term.n_terms for term in terms))
    if log.features is not None and len(log) > size and log.features.n_rows > size:
        encoded = encoded.subset(_some(log, size, rng))
        log = encoded.sessions.load()
        sentences.append(f"estimated from {len(log):,} of the {len(sessions):,} sessions")
        tolerance = max(tolerance, _SAMPLED)
    task, order = _task(log, encoded, bandit, arm_prior, passes)
    settings = _Settings(encoded, order, ridge, tolerance, rng)
    fitted, done, known = _plain(task, bandit, encoded), None, None
    candidates = list[Candidate]()
    if terms and log.features is not None:
        design = Design.of(terms, log.features.take(order), len(task), ridge=_FIRST_RIDGE if ridge else 0.0)
        found, way, said, gain = _tried(task.strangers, design, fitted, settings)
        fitted, done, known = found, way or done, None if way is None else gain
        candidates += _compared(FEATURES, gain, way)
        sentences.append(f"{', '.join(term.name for term in terms)}: {said}")
    if task.returns:
        found, way, said, gain = _tried(task, fitted.design, fitted, settings)
        fitted, done = found, way or done
        candidates += _compared(Persons.name, gain, way)
        kept = "" if way is None else f" (the type is kept with probability {fitted.keep:.2f})"
        sentences.append(f"returning persons{kept}: {said}")
    words, doubts = tuple(sentences), _suspects(log, terms)
    if done is None:
        return Learned(bandit, None, np.nan, 0, (), True, words, doubts, candidates=tuple(candidates))
    result = _learned(task, encoded, bandit, fitted, done)
    prior = result.type_prior
    assert prior is not None
    types = result.bandit if fitted.rows is not None else bandit
    if prior.columns and log.features is not None:
        prior = prior.remembering(log.features)
    total = log_likelihood(types, prior, sessions)
    return replace(
        result, type_prior=prior, log_likelihood=total, sentences=words, doubts=doubts, gain=known,
        candidates=tuple(candidates),
    )  # fmt: skip


def _compared(name: str, gain: Gain | None, used: Climb | None) -> list[Candidate]:
    """Return the candidate, if it was compared on held-out sessions."""
    return [] if gain is None else [Candidate(name, gain.mean, gain.stderr, used is not None)]


def feature_gains(
    seen: Log,
    held: Log,
    bandit: LatentBandit,
    arm_prior: Prior | None,
    *,
    numeric: Sequence[str] = (),
    rng: np.random.Generator,
    passes: Passes,
) -> Float[Array, "n"]:
    """Return the gain in log-likelihood of each held-out session from its features, learned from the sessions seen.

    Args:
        seen: the log that is learned from.
        held: the sessions held out.
        bandit: the fit to the sessions seen that knows nothing before a session.
        arm_prior: as for `learn`.
        numeric: as for `learn`.
        rng: where starts come from.
        passes: where passes over the log run.
    """
    logs = [one.sessions.load() for one in (seen, held)]
    features = [log.features for log in logs]
    terms = () if features[0] is None else make_columns(_looked_at(features[0], rng), numeric)[0]
    if bandit.n_types == 1 or not terms:
        return np.zeros(len(logs[1]))
    tasks = [_task(log, one, bandit, arm_prior, passes) for log, one in zip(logs, (seen, held), strict=True)]
    (task, order), (test, places) = ((task.strangers, order) for task, order in tasks)
    base = _plain(task, bandit, seen)
    assert features[0] is not None
    assert features[1] is not None
    design = Design.of(terms, features[0].take(order), len(task), ridge=_FIRST_RIDGE)
    starts = [base, *_drawn(task, seen, base, rng)]
    found, _ = search(task, design, starts, learned=True, tolerance=_ROUGH, rng=rng)
    there = Design.of(terms, features[1].take(places), len(test), ridge=_FIRST_RIDGE)
    alike = Design.of((), None, len(test), ridge=0.0)
    gains = np.empty(len(test))
    gains[places] = test.scores(found, there, True) - test.scores(base, alike, True)
    return gains


def _looked_at(features: Features, rng: np.random.Generator) -> Features:
    """Return those of all sessions, or of many drawn ones, from which columns are described."""
    n = len(features.rows)
    return features if n <= _DESCRIBED else features.take(sample_rows(n, _DESCRIBED, rng))


@dataclass(frozen=True, eq=False)
class _Settings:
    """How candidates are fitted, and compared with what they must beat."""

    encoded: Log
    order: Integer[Array, "N"]  # The place of each session of the task in the log.
    ridge: bool
    tolerance: float
    rng: np.random.Generator


def _tried(
    task: Task, design: Design, base: Fitted, settings: _Settings
) -> tuple[Fitted, Climb | None, str, Gain | None]:
    """The fit with a design, or `base` if that is not worse; what is said about it, and what it gains held out.

    Shrunk fits are compared on held-out persons, those of maximum likelihood by Schwarz's criterion.
    """
    rng, fresh = settings.rng, design is not base.design
    learned = settings.ridge and fresh

    tried = list[Fitted]()

    def refit(rows: Integer[Array, "n"], from_: Fitted, tolerance: float = _ROUGH) -> tuple[Fitted, Climb]:
        part = task.part(rows)
        drawn = _drawn(part, settings.encoded.subset(settings.order[rows]), from_, rng) if fresh else []
        found = search(part, design.part(rows), [from_, *drawn], learned=learned, tolerance=tolerance, rng=rng)
        tried.append(found[0])
        return found

    def fit_all() -> tuple[Fitted, Climb]:
        if not tried or len(task) <= 2 * _PILOT:
            return refit(everybody, base, settings.tolerance)
        whole = design.with_ridge(tried[-1].design.ridge)  # starts competed, and the ridge was learned, on a part
        return search(task, whole, tried[-1:], learned=False, tolerance=settings.tolerance, rng=rng)

    everybody = np.arange(len(task))
    if settings.ridge:
        if len(task.edges) < 3:
            return base, None, "not used, because a single person cannot be held out", None
        gain = gain_of(task, design, lambda *given: refit(*given)[0], base, rng)
        if not gain.clear:
            return base, None, f"not used, because held-out log-likelihood does not improve ({gain})", gain
        parts = ", ".join(f"{name} {loss:+.4f}" for name, loss in gain.columns.items())
        more = f": {parts}" if len(gain.columns) > 1 and fresh else ""
        return *fit_all(), f"used, held-out log-likelihood {gain}{more}", gain
    found, done = fit_all()
    rise = float(task.scores(found, found.design).sum() - task.scores(base, base.design).sum())
    n_more = (task.n_types - 1) * design.n_free if fresh else 1
    change = f"log-likelihood {rise:+.2f} for {n_more} parameter{'s' if n_more > 1 else ''}"
    if rise <= n_more * np.log(len(task)) / 2:
        return base, None, f"not used ({change})", None
    return found, done, f"used ({change})", None


def _task(
    log: Sessions, encoded: Log, bandit: LatentBandit, arm_prior: Prior | None, passes: Passes
) -> tuple[Task, Integer[Array, "N"]]:
    """Return the log with the sessions of a person one after the other, and their order."""
    persons = np.arange(len(log)) if log.persons is None else person_numbers(log.persons)
    order = np.argsort(persons, kind="stable")
    if arm_prior is not None:
        rows = None if (order[1:] > order[:-1]).all() else order
        return Task(bandit.n_types, persons[order], encoded, rows, arm_prior, passes=passes), order
    like = _likelihoods(bandit, log)[0][order]
    return Task(bandit.n_types, persons[order], like=like), order


def _plain(task: Task, bandit: LatentBandit, encoded: Log) -> Fitted:
    """Return the fit that knows nothing before a session."""
    design = Design.of((), None, len(task), ridge=0.0)
    logs = np.log(np.maximum(bandit.weights, 1e-12))[None]
    rows = None if task.given else encoded.pack(bandit)[0, 1:, : bandit.n_types]
    return Fitted(design, logs - logs.mean(), None, rows)


def _drawn(task: Task, encoded: Log, base: Fitted, rng: np.random.Generator) -> list[Fitted]:
    """Other starts, because short sessions alone may have led to other types than features do."""
    if task.given:
        return []
    size = min(len(task), _PILOT)
    part = encoded if size == len(task) else encoded.subset(np.sort(sample_rows(len(task), size, rng)))
    models = encoded.soften(draw_starts(part, task.n_types, _STARTS, rng))
    zero = np.zeros((1, task.n_types))
    return [replace(base, coefficients=zero, rows=model[1:, : task.n_types]) for model in models]


def _learned(task: Task, encoded: Log, bandit: LatentBandit, fitted: Fitted, done: Climb) -> Learned:
    design = fitted.design
    prior = design.type_prior(fitted.coefficients, fitted.keep)
    weights = design.mean_weights(fitted.coefficients)
    found = replace(bandit, weights=weights)
    if fitted.rows is not None:
        model = encoded.pack(bandit)[0].copy()
        model[0, : task.n_types], model[1:, : task.n_types] = weights, fitted.rows
        found = replace(encoded.bandit(model, task.n_types), arm_labels=bandit.arm_labels)
        if bandit.leaving is not None and not encoded.letters:  # the same in all types
            found = replace(found, leaving=bandit.leaving)
        places = matched(bandit, found)
        found, prior = found.relabel(types=places), prior.relabel(places)
    n_more = (task.n_types - 1) * design.n_free + (fitted.keep is not None)
    trace = () if task.given else done.traces[0]
    return Learned(found, prior, np.nan, n_more, trace, bool(done.converged[0]), (), ())


def log_likelihood(bandit: LatentBandit, prior: TypePrior, sessions: Sessions | Packed) -> float:
    """Return the log-likelihood of all sessions, each from its own prior."""
    log = sessions.load()
    persons = np.arange(len(log))
    if prior.keep is not None and log.persons is not None:
        persons = person_numbers(log.persons)
    order = np.argsort(persons, kind="stable")
    like, scales = _likelihoods(bandit, log)
    features = None if log.features is None or not prior.columns else log.features.only(prior.columns)
    weights = np.tile(prior.weights(), (len(log), 1)) if features is None else prior.weights(features)
    task = Task(bandit.n_types, persons[order], like=like[order])
    logs, fresh, groups = np.empty(len(log)), np.empty_like(weights), np.arange(len(log), dtype=np.int32)
    kernel("em").returning(
        task.like, task.edges, weights[order], groups, prior.keep or 0.0, np.empty_like(like), fresh, np.empty(2), logs
    )
    return float(logs.sum() + scales.sum())


def design_of(log: Log, bandit: LatentBandit, prior: TypePrior) -> tuple[Design, Float[Array, "D M"]]:
    """Return the design of a fitted prior over a log, with the ridge that suits its coefficients; and these."""
    sessions, coefficients = log.sessions.load(), np.asarray(prior.coefficients)
    assert sessions.features is not None
    design = Design.of(prior.terms, sessions.features, len(sessions), ridge=_FIRST_RIDGE)
    task = Task(bandit.n_types, np.arange(len(sessions)), like=_likelihoods(bandit, sessions)[0])
    informed = task.informed(Fitted(design, coefficients, None, None), design)
    for _ in range(_FIRST_ROUNDS):
        design = design.with_learned_ridge(coefficients, informed)
    return design, coefficients


def refitted(prior: TypePrior, bandit: LatentBandit, coefficients: Float[Array, "D M"] | None, log: Log) -> TypePrior:
    """Return a prior over types with new coefficients; without features, with the weights of the bandit."""
    if coefficients is None:
        return TypePrior.constant(bandit.weights, keep=prior.keep)
    found = TypePrior(prior.terms, coefficients - coefficients.mean(axis=1, keepdims=True), prior.keep)
    features = log.sessions.load().features
    assert features is not None
    return found.remembering(features)


def _likelihoods(bandit: LatentBandit, log: Sessions) -> tuple[Float[Array, "N M"], Float[Array, "N"]]:
    """The likelihood of each session by type, scaled, and the logs of the scales; an impossible one tells nothing."""
    logs = belief.log_joint(replace(bandit, weights=np.full(bandit.n_types, 1 / bandit.n_types)), log)
    logs += np.log(bandit.n_types)
    top = logs.max(axis=1)
    possible = np.isfinite(top)
    like = np.ones(logs.shape)
    like[possible] = np.exp(logs[possible] - top[possible, None])
    return like, np.where(possible, top, 0.0)


def _some(log: Sessions, size: int, rng: np.random.Generator) -> Integer[Array, "n"]:
    """Return all sessions of some persons, about `size` of them, in their order."""
    persons = np.arange(len(log)) if log.persons is None else person_numbers(log.persons)
    n_persons = int(persons.max()) + 1
    drawn = np.zeros(n_persons, bool)
    drawn[sample_rows(n_persons, max(size * n_persons // len(log), 1), rng)] = True
    return np.flatnonzero(drawn[persons])


def matched(old: LatentBandit, new: LatentBandit) -> list[int]:
    """Return the new type that is most like each old one, so that types keep their numbers."""
    from scipy.optimize import linear_sum_assignment

    cost = np.abs(old.means[:, None] - new.means[None]).sum(axis=2)
    return [int(place) for place in linear_sum_assignment(cost)[1]]


def _suspects(log: Sessions, terms: Sequence[Term]) -> tuple[str, ...]:
    """Columns that follow the rewards so closely that they are hardly known before the session."""
    if log.features is None:
        return ()
    some = slice(None, None, max(len(log) // _LOOKED_AT, 1))
    n_steps = min(_FIRST_STEPS, int(log.lengths.min()))
    totals = np.add.reduceat(log.rewards, log.offsets[:-1])
    largest = np.maximum.reduceat(log.rewards, log.offsets[:-1])
    targets = [one[some] for one in (totals, totals / log.lengths, largest, log.rewards[log.offsets[1:] - 1])]
    targets += [log.rewards[log.offsets[:-1] + step][some] for step in range(n_steps)]
    known, found = log.features.take(some), []
    for term in terms:
        x = term.terms(known[term.name])
        if isinstance(term, Category):  # the level of each session; whoever has none is a level more
            x = np.where(x.any(axis=1), x.argmax(axis=1), x.shape[1])
        best = max(_explained(x, target) for target in targets)
        if best > _SUSPECT:
            found.append(
                f"column {term.name!r} explains {100 * best:.0f}% of the rewards, more than what is known before a "
                f"session can: leave it out if it was made of rewards"
            )
    return tuple(found)


def _explained(x: Shaped[Array, "N *k"], target: Float[Array, "N"]) -> float:
    """The share of the variance of the target that a linear function of x, or the means of its levels, explain."""
    centred = target - target.mean()
    if not centred.any():
        return 0.0
    if x.ndim == 1:
        sums, sizes = np.bincount(x, centred), np.bincount(x)
        return float((sums**2 / np.maximum(sizes, 1)).sum() / (centred @ centred))
    if x.shape[1] == 1:
        own = x[:, 0] - x[:, 0].mean()
        return float((own @ centred) ** 2 / max(own @ own, 1e-300) / (centred @ centred))
    fit = np.linalg.lstsq(x - x.mean(axis=0), centred, rcond=None)[0]
    return 1 - float(((centred - (x - x.mean(axis=0)) @ fit) ** 2).sum() / (centred**2).sum())
