"""The prior over types of a session, learned from what is known before it: its features, and who comes back.

One step: EM over types and prior together. The first code of a session is its group, the distinct row of its features;
what the kernel sums up there is all that w(x) = softmax(x B) needs. B takes one step of Boehning's bound per map, and
every column has a ridge that is learned (MacKay's fixed point). Two steps: the types stay as another method found them,
and only B and `keep` are learned. A person's sessions are a chain, walked forward and backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Float, Integer, Shaped
from ..data.features import Features, person_numbers
from ..data.sessions import Sessions, sample_rows
from ..model import belief
from ..model.bandit import LatentBandit
from ..model.categorical import Categorical
from ..model.rewards import encode_values
from ..model.type_prior import Category, Term, TypePrior, clustered, make_columns, softmax
from ..parallel import Passes
from .climb import Climb, climb, draw_starts
from .log import LETTERS, Beside, Log, Prior, Steps, merge, padded, with_letters

_CELLS = 20_000_000  # Sessions times coefficients that are held in memory; larger logs are sampled.
_MANY, _DENSE = 64, 0.2  # Rows of so many coefficients are sparse, where at most this part of them is not 0.
_GLANCED = 2_000  # Rows from which a first look tells whether they are sparse, about.
_OF_ROWS = ("sizes", "curvature", "_sparse", "_single")  # What a design computes of its rows, whatever the ridge is.
_MERGED = 20_000  # Rows of features up to which those that became equal are merged.
_SINGLE = 500_000  # Numbers of the rows beyond which they are multiplied in single precision.
_FEW = 0.5  # Sessions for each row of features below which rows of nobody are looked for.
_FIRST_ROUNDS, _ROUNDS = 12, 4  # Climbs between which the ridge is learned: with given types, and with types.
_ROUND_MAPS = 40  # Maps of such a climb.
_RIDGE = (1e-3, 1e6)  # The least and the largest ridge.
_FIRST_RIDGE = 5.0  # The ridge before one is learned.
_PILOT = 10_000  # Sessions on which starts compete and the ridge is learned.
_STARTS, _FINISHERS, _START_MAPS = 8, 2, 60  # Starts that are drawn, those that climb on, and maps before that.
_FOLDS, _ENOUGH, _HELD = 5, 10_000, 50_000  # Folds of small logs, sessions that make one fold enough, and at most.
_DESCRIBED = 200_000  # Sessions of a larger log from which levels, means and quantiles of columns are taken.
_SAMPLED = 1e-6  # Log-likelihood per session that may remain to be gained where the fit is to a sample of the log.
_ROUGH = 1e-5  # Log-likelihood per session that may remain to be gained where fits are only compared.
_CLEAR = 1.0  # Standard errors by which held-out sessions must be predicted better.
_ROUNDING = 1e-6  # A gain per held-out session that rounding may make, or that nobody misses.
_UNSEEN = 1e-4  # The probability that a held-out reward is of any kind.
_SUSPECT = 0.95  # A column that explains more of the rewards is suspected to be made of them.
_LOOKED_AT = 20_000  # Sessions of a larger log that are compared with the columns, about.
_FIRST_STEPS = 10  # Steps whose rewards are compared with the columns.
MOST_GROUPS = 24  # of people, whose features give them different priors
_STAY = 0.5  # The value of `keep` from which it is learned.
_STEEPEST = 12.0  # The largest logit of `keep`.


@dataclass(frozen=True, eq=False)
class Design:
    """The distinct rows of features as numbers, the row of each session, and the ridge of every coefficient."""

    terms: tuple[Term, ...]
    x: Float[Array, "G D"]
    groups: Integer[Array, "N"]
    ridge: Float[Array, "D"]  # 0 for the constant.

    @classmethod
    def of(cls, terms: tuple[Term, ...], features: Features | None, n_sessions: int, *, ridge: float) -> Design:
        """The design of a log; without terms everybody is in one group."""
        if not terms or features is None:
            return cls((), np.ones((1, 1)), np.zeros(n_sessions, np.int32), np.zeros(1))
        n_terms = sum(term.n_terms for term in terms)
        used, own = np.unique(features.rows, return_inverse=True)
        table = tuple(column[used] for column in features.table)
        x = TypePrior(terms, np.zeros((1 + n_terms, 1))).design(Features(features.columns, table, own))
        if len(x) <= _MERGED:
            x, groups = np.unique(x, axis=0, return_inverse=True)
            own = groups.ravel()[own]
        return cls(terms, x, own.astype(np.int32), np.array([0.0, *[ridge] * n_terms]))

    def part(self, sessions: Integer[Array, "n"]) -> Design:
        """The rows of some of the sessions; those of nobody are left out where most are."""
        groups = self.groups[sessions]
        if len(groups) > _FEW * len(self.x):
            return replace(self, groups=groups)
        used, groups = np.unique(groups, return_inverse=True)
        return replace(self, x=self.x[used], groups=groups.astype(np.int32))

    @property
    def size(self) -> int:
        return self.x.shape[1]

    @property
    def n_free(self) -> int:
        """Coefficients of a type that the log can tell: those of the levels of a column sum to 0."""
        return sum(len(term.levels) - 1 if isinstance(term, Category) else term.n_terms for term in self.terms)

    @cached_property
    def sizes(self) -> Float[Array, "G"]:
        """How many sessions have each row."""
        return np.bincount(self.groups, minlength=len(self.x)).astype(float)

    @cached_property
    def curvature(self) -> Float[Array, "D D"]:
        return (self.x * self.sizes[:, None]).T @ self.x

    @cached_property
    def bound(self) -> Float[Array, "D D"]:
        """The inverse of a bound on the curvature that does not depend on B: X' n X / 2 plus the ridge."""
        return _inverse(0.5 * self.curvature + np.diag(self.ridge), shrunk=bool(self.ridge[1:].all()))

    @property
    def blocks(self) -> list[slice]:
        """The coefficients of each column."""
        ends = np.cumsum([1, *(term.n_terms for term in self.terms)]).tolist()
        return [slice(low, high) for low, high in pairwise(ends)]

    @cached_property
    def _sparse(self) -> tuple[Any, Float[Array, "D"]] | None:
        """The rows less the most common value of each column, where most of what is left is 0."""
        from scipy.sparse import csr_array

        some = self.x[:: max(1, len(self.x) // _GLANCED)]
        if self.size < _MANY or (some != np.median(some, axis=0)).mean() > 2 * _DENSE:
            return None
        common = np.median(self.x, axis=0)
        rest = self.x - common
        return None if (rest != 0).mean() > _DENSE else (csr_array(rest), common)

    @cached_property
    def _single(self) -> Float[Array, "G D"] | None:
        """Many rows in single precision, which takes half the time; its rounding is far below what remains to gain."""
        return self.x.astype(np.float32) if self.x.size > _SINGLE else None

    def _times(self, coefficients: Float[Array, "D M"]) -> Float[Array, "G M"]:
        if self._sparse is None:
            if self._single is not None:
                return (self._single @ coefficients.astype(np.float32)).astype(float)
            return self.x @ coefficients
        rest, common = self._sparse
        return rest @ coefficients + common @ coefficients

    def _summed(self, numbers: Float[Array, "G M"]) -> Float[Array, "D M"]:
        """X' times some numbers."""
        if self._sparse is None:
            if self._single is not None:
                return (self._single.T @ numbers.astype(np.float32)).astype(float)
            return self.x.T @ numbers
        rest, common = self._sparse
        return rest.T @ numbers + common[:, None] * numbers.sum(axis=0)

    def weights(self, coefficients: Float[Array, "D M"]) -> Float[Array, "G M"]:
        return softmax(self._times(coefficients))

    def mean_weights(self, coefficients: Float[Array, "D M"]) -> Float[Array, "M"]:
        """The weights of the log: those of its sessions on average."""
        found = self.sizes @ self.weights(coefficients)
        return found / found.sum()

    def improved(
        self, coefficients: Float[Array, "D M"], weights: Float[Array, "G M"], shares: Float[Array, "G M"]
    ) -> Float[Array, "D M"]:
        """One step of the bound; `shares` are the expected sessions of each group by type."""
        gap = shares - shares.sum(axis=1, keepdims=True) * weights
        return coefficients + self.bound @ (self._summed(gap) - self.ridge[:, None] * coefficients)

    def log_prior(self, coefficients: Float[Array, "D M"]) -> float:
        return -0.5 * float((self.ridge[:, None] * coefficients**2).sum())

    def with_learned_ridge(self, coefficients: Float[Array, "D M"], informed: float) -> Design:
        """The ridge of each column: its effective parameters over its squared length (MacKay).

        A session is worth `informed` of a session whose type is seen and as likely as not.
        """
        n_types = coefficients.shape[1]
        inverse = _inverse(informed * self.curvature + np.diag(self.ridge + 1e-9), shrunk=True)
        ridge = self.ridge.copy()
        for block in self.blocks:
            own = np.diag(inverse)[block]
            effective = (n_types - 1) * float(len(own) - (ridge[block] * own).sum())
            length = float((coefficients[block] ** 2).sum())
            ridge[block] = np.clip(max(effective, 1e-3) / max(length, 1e-9), *_RIDGE)
        return self.with_ridge(ridge)

    def with_ridge(self, ridge: Float[Array, "D"]) -> Design:
        """The same rows under another ridge; what was computed of them stays."""
        found = replace(self, ridge=ridge)
        vars(found).update({name: vars(self)[name] for name in _OF_ROWS if name in vars(self)})
        return found

    def prior(self, coefficients: Float[Array, "D M"], keep: float | None) -> TypePrior:
        centred = coefficients - coefficients.mean(axis=1, keepdims=True)
        return TypePrior(self.terms, centred, keep)


def _inverse(matrix: Float[Array, "D D"], *, shrunk: bool) -> Float[Array, "D D"]:
    """The inverse of a positive matrix; without a ridge the columns may depend on one another."""
    return np.linalg.inv(matrix) if shrunk else np.linalg.pinv(matrix, hermitian=True)


@dataclass(frozen=True, eq=False)
class Coded:
    """Sessions as codes arm * Z + value, not merged."""

    codes: Shaped[Array, "S"]
    offsets: Integer[Array, "N1"]
    n_codes: int

    @classmethod
    def of(cls, sessions: Sessions, values: Float[Array, "Z"], *, letters: bool = False) -> Coded:
        n_codes = sessions.n_arms * len(values)
        codes = sessions.arms * np.int64(len(values)) + encode_values(values, sessions.rewards, first_step=0)
        if letters:
            codes, n_codes = with_letters(codes, sessions.offsets, sessions.endings, n_codes), LETTERS * n_codes
        return cls(codes.astype(np.min_scalar_type(n_codes - 1)), sessions.offsets, n_codes)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def part(self, sessions: Integer[Array, "n"]) -> Coded:
        lengths = np.diff(self.offsets)[sessions]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        steps = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][sessions] - offsets[:-1], lengths)
        return Coded(self.codes[steps], offsets, self.n_codes)

    def likelihoods(self, rows: Float[Array, "C M"]) -> tuple[Float[Array, "N M"], Float[Array, "N"]]:
        """The likelihood of each session by type, scaled, and the logs of the scales; row c is that of code c."""
        like, scales = np.empty((len(self), rows.shape[1])), np.empty(len(self))
        kernel("em").likelihoods(self.codes, self.offsets, np.ascontiguousarray(rows), like, scales)
        return like, scales

    def after(self, groups: Integer[Array, "N"], n_groups: int) -> Steps:
        """The steps with the group of its session as a code in front, identical sessions merged."""
        lengths, total = np.diff(self.offsets), self.n_codes + n_groups
        offsets = np.concatenate([[0], np.cumsum(lengths + 1)])
        codes = np.empty(offsets[-1], np.min_scalar_type(total - 1))
        first = np.zeros(len(codes), bool)
        first[offsets[:-1]] = True
        codes[first], codes[~first] = self.n_codes + groups, self.codes
        return Steps.of(*merge(codes, offsets, total))


def grouped(log: Log, groups: Integer[Array, "N"], n_groups: int) -> Log | None:
    """The log with the group of each session as a code in front of it; None: its family has no such codes."""
    if log.family != Categorical.family or log.values is None:
        return None
    if log.travels:
        return replace(log, beside=Beside(n_groups, groups), _cuts={})
    steps = Coded.of(log.sessions.load(), log.values, letters=log.letters).after(groups, n_groups)
    return replace(log, memory=steps, beside=Beside(n_groups), _cuts={})


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
class Types:
    """What the arms pay in each type, under a prior: rows of codes, as the family of the log learns them."""

    log: Log  # without codes beside those of the arms
    prior: Prior

    @property
    def n_values(self) -> int:
        return self.log.n_own // self.log.n_arms

    def maximised(self, statistics: Float[Array, "R Q P"], tables: Float[Array, "R Q P"]) -> Float[Array, "R C P"]:
        """The rows that explain the statistics best; row 0 of both holds the weights."""
        return self.log.maximise(statistics, tables, self.prior)[:, 1:]

    def log_prior(self, tables: Float[Array, "R Q M"]) -> Float[Array, "R"]:
        return self.log.log_prior(tables, self.prior) if self.prior.active else np.zeros(len(tables))

    def repaired(self, first: int, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        """Valid rows from row `first` on; B, before them, may be anything, and the logit of `keep` is bounded."""
        weights = np.ones((len(trial), 1, trial.shape[2]))
        rows = self.log.repair(*(np.concatenate([weights, one[:, first:]], axis=1) for one in (trial, near)))
        result = _limited(trial, first - 1)
        result[:, first:] = rows[:, 1:]
        return result


@dataclass(frozen=True, eq=False)
class Grouped:
    """EM over types and prior together, where nobody comes back: models hold B, then the rows of the codes."""

    types: Types
    coded: Coded
    design: Design
    n_types: int
    passes: Passes

    @cached_property
    def log(self) -> Log:
        """The log with the group of each session as a code in front of it."""
        n_groups = len(self.design.x)
        steps = self.coded.after(self.design.groups, n_groups)
        return replace(self.types.log, memory=steps, beside=Beside(n_groups), _cuts={})

    def map(self, models: Float[Array, "R K P"]) -> tuple[Float[Array, "R"], Float[Array, "R K P"]]:
        d, n_codes, m = self.design.size, self.coded.n_codes, self.n_types
        tables = np.zeros((len(models), 1 + n_codes + len(self.design.x), models.shape[2]))
        weights = [self.design.weights(model[:d, :m]) for model in models]
        for table, model, own in zip(tables, models, weights, strict=True):
            common = self.design.sizes @ own / self.design.sizes.sum()
            table[0, :m], table[1 : 1 + n_codes] = common, model[d:]
            table[1 + n_codes :, :m] = own / common
        statistics, objective = self.log.expectation(tables, self.passes)
        ahead = np.zeros_like(models)
        ahead[:, d:] = self.types.maximised(statistics[:, : 1 + n_codes], tables[:, : 1 + n_codes])
        objective = objective + self.types.log_prior(tables[:, : 1 + n_codes, :m])
        for r, own in enumerate(weights):
            shares = statistics[r, 1 + n_codes :, :m]
            ahead[r, :d, :m] = self.design.improved(models[r, :d, :m], own, shares)
            objective[r] += self.design.log_prior(models[r, :d, :m])
        return objective, ahead

    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        return self.types.repaired(self.design.size, trial, near)


@dataclass(frozen=True, eq=False)
class Returning:
    """EM over types, prior and `keep` together: models hold B, the logit of `keep`, then the rows of the codes."""

    types: Types
    coded: Coded  # the sessions of a person one after the other
    design: Design
    edges: Integer[Array, "P1"]  # The first session of each person, and the end.
    n_types: int

    def map(self, models: Float[Array, "R K P"]) -> tuple[Float[Array, "R"], Float[Array, "R K P"]]:
        pairs = [self._one(model) for model in models]
        return np.array([objective for objective, _ in pairs]), np.stack([model for _, model in pairs])

    def _one(self, model: Float[Array, "K P"]) -> tuple[float, Float[Array, "K P"]]:
        d, m = self.design.size, self.n_types
        rows = model[d + 1 :, :m]
        like, scales = self.coded.likelihoods(rows)
        more, coefficients, keep, posterior = _walked(like, self.edges, self.design, model[: d + 1, :m])
        statistics = np.zeros((1, 1 + len(rows), model.shape[1]))
        statistics[0, 0, :m] = posterior.sum(axis=0)
        sums = np.empty(rows.shape)
        kernel("em").sums(self.coded.codes, self.coded.offsets, posterior, sums)
        statistics[0, 1:, :m] = sums
        table = np.concatenate([statistics[:, :1] / len(like), model[None, d + 1 :]], axis=1)
        ahead = np.zeros_like(model)
        ahead[:d, :m], ahead[d, :m] = coefficients, keep
        ahead[d + 1 :] = self.types.maximised(statistics, table)[0]
        objective = float(scales.sum()) + more + float(self.types.log_prior(table[:, :, :m])[0])
        return objective + self.design.log_prior(model[:d, :m]), ahead

    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        return self.types.repaired(self.design.size + 1, trial, near)


@dataclass(frozen=True, eq=False)
class Given:
    """EM over the prior alone, for types that are given by the likelihood of each session: models hold B and `keep`."""

    like: Float[Array, "N M"]
    design: Design
    edges: Integer[Array, "P1"]

    def map(self, models: Float[Array, "R K M"]) -> tuple[Float[Array, "R"], Float[Array, "R K M"]]:
        objectives, ahead = np.empty(len(models)), np.empty_like(models)
        for r, model in enumerate(models):
            objectives[r], ahead[r, :-1], ahead[r, -1], _ = _walked(self.like, self.edges, self.design, model)
            objectives[r] += self.design.log_prior(model[:-1])
        return objectives, ahead

    def repair(self, trial: Float[Array, "R K M"], near: Float[Array, "R K M"]) -> Float[Array, "R K M"]:
        return _limited(trial, self.design.size)


def _walked(
    like: Float[Array, "N M"], edges: Integer[Array, "P1"], design: Design, model: Float[Array, "D1 M"]
) -> tuple[float, Float[Array, "D M"], float, Float[Array, "N M"]]:
    """The log-likelihood, B and the logit of `keep` one map further, and the posterior of every session."""
    coefficients, keep = model[:-1], _share(float(model[-1, 0]))
    weights = np.ascontiguousarray(design.weights(coefficients))
    posterior, fresh, kept, logs = np.empty_like(like), np.empty_like(weights), np.empty(2), np.empty(len(like))
    kernel("em").returning(like, edges, weights, design.groups, keep, posterior, fresh, kept, logs)
    logit = _logit(kept[0] / kept[1] if kept[1] else keep)
    return float(logs.sum()), design.improved(coefficients, weights, fresh), logit, posterior


def _share(logit: float) -> float:
    return float(1 / (1 + np.exp(-logit)))


def _logit(share: float) -> float:
    with np.errstate(divide="ignore"):
        return float(np.clip(np.log(share) - np.log1p(-share), -_STEEPEST, _STEEPEST))


def _limited(trial: Float[Array, "R K P"], row: int) -> Float[Array, "R K P"]:
    result = trial.copy()
    result[:, row] = np.clip(result[:, row], -40.0, 40.0)
    return result


@dataclass(frozen=True, eq=False)
class Task:
    """A log whose prior is learned: coded where types are learned with it, else with the likelihoods of given types."""

    n_types: int
    persons: Integer[Array, "N"]  # the sessions of a person follow one another; every number once: nobody comes back
    coded: Coded | None = None
    types: Types | None = None
    like: Float[Array, "N M"] | None = None
    passes: Passes | None = None

    def __len__(self) -> int:
        return len(self.persons)

    @property
    def given(self) -> bool:
        """Whether the types are."""
        return self.like is not None

    def part(self, sessions: Integer[Array, "n"]) -> Task:
        return replace(
            self,
            persons=self.persons[sessions],
            coded=None if self.coded is None else self.coded.part(sessions),
            like=None if self.like is None else self.like[sessions],
        )

    @property
    def strangers(self) -> Task:
        """The same log as if nobody came back."""
        return replace(self, persons=np.arange(len(self)))

    @cached_property
    def edges(self) -> Integer[Array, "P1"]:
        fresh = np.append(True, self.persons[1:] != self.persons[:-1])
        return np.append(np.flatnonzero(fresh), len(self.persons))

    @property
    def returns(self) -> int:
        """How often somebody came back."""
        return len(self) - len(self.edges) + 1

    def ascent(self, design: Design) -> Grouped | Returning | Given:
        """What is climbed under a design of the same sessions."""
        if self.like is not None:
            return Given(self.like, design, self.edges)
        assert self.coded is not None
        assert self.types is not None
        assert self.passes is not None
        if self.returns:
            return Returning(self.types, self.coded, design, self.edges, self.n_types)
        return Grouped(self.types, self.coded, design, self.n_types, self.passes)

    def model(self, design: Design, fitted: Fitted) -> Float[Array, "K P"]:
        """A fit as the model that is climbed under a design, which may have more columns than that of the fit."""
        coefficients = np.zeros((design.size, self.n_types))
        coefficients[: len(fitted.coefficients)] = fitted.coefficients
        keep = [np.full((1, self.n_types), _logit(fitted.keep or _STAY))] if self.returns or self.given else []
        if fitted.rows is None:
            return np.concatenate([coefficients, *keep])
        wide = np.zeros((design.size + len(keep) + len(fitted.rows), padded(self.n_types)))
        wide[: design.size + len(keep), : self.n_types] = np.concatenate([coefficients, *keep])
        wide[design.size + len(keep) :, : self.n_types] = fitted.rows
        return wide

    def fitted(self, design: Design, model: Float[Array, "K P"]) -> Fitted:
        """The model as a fit."""
        d, m = design.size, self.n_types
        coefficients = model[:d, :m] - model[:d, :m].mean(axis=1, keepdims=True)
        keep = _share(float(model[d, 0])) if self.returns else None
        first = d + (1 if self.returns else 0)
        return Fitted(design, coefficients, keep, None if self.given else model[first:, :m])

    def scores(self, fitted: Fitted, design: Design, unseen: float = 0.0) -> Float[Array, "N"]:
        """log-likelihood of each session, after the person's earlier ones where persons come back."""
        return self._walk(fitted, design, unseen)[0]

    def without_each(self, fitted: Fitted, design: Design) -> Iterator[tuple[str, Float[Array, "N"]]]:
        """The name of each column, and the scores where it is not known."""
        like, scales = self._likelihoods(fitted, _UNSEEN)
        logits = design.x @ fitted.coefficients
        for term, block in zip(design.terms, design.blocks, strict=True):
            weights = softmax(logits - design.x[:, block] @ fitted.coefficients[block])
            yield term.name, self._scored(like, weights, design.groups, fitted.keep)[0] + scales

    def informed(self, fitted: Fitted, design: Design) -> float:
        """How much a session tells about the prior: the variance of what its posterior adds to its weights."""
        _, posterior, weights = self._walk(fitted, design, 0.0)
        return float(((posterior - weights[design.groups]) ** 2).mean()) * self.n_types / max(self.n_types - 1, 1)

    def _walk(
        self, fitted: Fitted, design: Design, unseen: float
    ) -> tuple[Float[Array, "N"], Float[Array, "N M"], Float[Array, "G M"]]:
        like, scales = self._likelihoods(fitted, unseen)
        weights = np.ascontiguousarray(design.weights(fitted.coefficients))
        logs, posterior = self._scored(like, weights, design.groups, fitted.keep)
        return logs + scales, posterior, weights

    def _likelihoods(self, fitted: Fitted, unseen: float) -> tuple[Float[Array, "N M"], Float[Array, "N"]]:
        """The likelihood of each session by type, scaled, and the logs of the scales."""
        if self.like is not None:
            return self.like, np.zeros(len(self))
        assert self.coded is not None
        assert fitted.rows is not None
        assert self.types is not None
        return self.coded.likelihoods((1 - unseen) * fitted.rows + unseen / self.types.n_values)

    def _scored(
        self, like: Float[Array, "N M"], weights: Float[Array, "G M"], groups: Integer[Array, "N"], keep: float | None
    ) -> tuple[Float[Array, "N"], Float[Array, "N M"]]:
        """The log of each session's probability, less its scale, and its posterior."""
        edges = self.edges if keep is not None else np.arange(len(self) + 1)
        logs, posterior, fresh = np.empty(len(self)), np.empty_like(like), np.empty_like(weights)
        kernel("em").returning(like, edges, weights, groups, keep or 0.0, posterior, fresh, np.empty(2), logs)
        return logs, posterior


@dataclass(frozen=True, eq=False)
class Fitted:
    """A prior over types, and the rows of the codes where types were learned with it."""

    design: Design
    coefficients: Float[Array, "D M"]
    keep: float | None
    rows: Float[Array, "C M"] | None


def _left(task: Task, tolerance: float) -> float:
    return tolerance * len(task) * min(1.0, len(task) / 10_000)


def search(
    task: Task, design: Design, first: Sequence[Fitted], *, learned: bool, tolerance: float, rng: np.random.Generator
) -> tuple[Fitted, Climb]:
    """The best fit from several starts, which compete on a sample where the log is large; the ridge may be learned."""
    pilot, own = task, design
    if len(task) > 2 * _PILOT:
        rows = _sample(task, _PILOT, rng)
        pilot, own = task.part(rows), design.part(rows)
    if learned and design.terms:
        own = _first_ridge(pilot, own, first[0])
    models = np.stack([task.model(design, one) for one in first])
    if len(models) > 1:
        found = climb(pilot.ascent(own), models, left=_left(pilot, _ROUGH), max_maps=_START_MAPS, accelerate=True)
        models = found.models[found.order()[:_FINISHERS]]
        found = climb(pilot.ascent(own), models, left=_left(pilot, 1e-7), max_maps=5 * _START_MAPS, accelerate=True)
        models = found.models[found.order()[:1]]
    for _ in range(_ROUNDS if learned and design.terms and not task.given else 0):
        models = climb(pilot.ascent(own), models, left=0.0, max_maps=_ROUND_MAPS, accelerate=True).models
        now = pilot.fitted(own, models[0])
        own = own.with_learned_ridge(now.coefficients, pilot.informed(now, own))
    design = own if own.groups is design.groups else design.with_ridge(own.ridge)
    done = climb(task.ascent(design), models, left=_left(task, tolerance), max_maps=5000, accelerate=True)
    return task.fitted(design, done.models[0]), done


def _first_ridge(task: Task, design: Design, base: Fitted) -> Design:
    """The design with ridges that suit the types of `base`: types that follow useless columns are never tried."""
    given = task
    if task.coded is not None:
        assert base.rows is not None
        assert task.types is not None
        like, _ = task.coded.likelihoods((1 - _UNSEEN) * base.rows + _UNSEEN / task.types.n_values)
        given = Task(task.n_types, task.persons, like=like)
    base = replace(base, rows=None)
    models = given.model(design, base)[None]
    for _ in range(_FIRST_ROUNDS):
        models = climb(
            given.ascent(design), models, left=_left(task, 1e-6), max_maps=_ROUND_MAPS, accelerate=True
        ).models
        now = given.fitted(design, models[0])
        design = design.with_learned_ridge(now.coefficients, given.informed(now, design))
    return design


def _sample(task: Task, size: int, rng: np.random.Generator) -> Integer[Array, "n"]:
    """All sessions of some persons, about `size` of them."""
    n_persons = len(task.edges) - 1
    drawn = np.zeros(n_persons, bool)
    drawn[sample_rows(n_persons, max(size * n_persons // len(task), 1), rng)] = True
    return np.flatnonzero(np.repeat(drawn, np.diff(task.edges)))


@dataclass(frozen=True, eq=False)
class Gain:
    """By how much held-out sessions are predicted better, in log-likelihood per session."""

    mean: float
    stderr: float
    columns: dict[str, float]  # what is lost where a column is not known

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
        score = part.scores(new, own, _UNSEEN)
        gains.append(np.add.reduceat(score - part.scores(old, base.design.part(there), _UNSEEN), part.edges[:-1]))
        n_held += len(there)
        for name, scores in part.without_each(new, own):
            losses[name] = losses.get(name, 0.0) + float((score - scores).sum())
    found = np.concatenate(gains)
    error = float(found.std() * np.sqrt(len(found))) / n_held
    return Gain(float(found.sum()) / n_held, error, {name: loss / n_held for name, loss in losses.items()})


def _again(task: Task, fitted: Fitted, rows: Integer[Array, "n"]) -> Fitted:
    """The fit, climbed again on some of the sessions."""
    own = (task if fitted.keep is not None else task.strangers).part(rows)
    design = fitted.design.part(rows)
    done = climb(
        own.ascent(design), own.model(design, fitted)[None], left=_left(own, _ROUGH), max_maps=300, accelerate=True
    )
    return own.fitted(design, done.models[0])


@dataclass(frozen=True, eq=False)
class Learned:
    """What was learned about the prior over types, and the bandit that goes with it."""

    bandit: LatentBandit
    type_prior: TypePrior | None  # None: what is known before a session tells nothing about it
    log_likelihood: float
    n_more: int  # parameters of the prior beyond the weights
    trace: tuple[float, ...]  # the objective after every map, where types were learned too
    converged: bool
    sentences: tuple[str, ...]  # what was kept and what not, and why
    doubts: tuple[str, ...]  # what a reader should look at
    gain: Gain | None = None  # of the features on held-out sessions, where they were kept and sessions held out


def learn(
    encoded: Log,
    bandit: LatentBandit,
    arm_prior: Prior | None,
    *,
    ridge: bool,
    tolerance: float,
    rng: np.random.Generator,
    passes: Passes,
) -> Learned | None:
    """The prior over types of a log with features or persons; None where it has neither, or there is one type.

    Args:
        encoded: the log.
        bandit: the fit to it that knows nothing before a session.
        arm_prior: the prior of every arm under which types are learned together with their prior; None: the types of
            `bandit` stay.
        ridge: whether coefficients are shrunk; False: maximum likelihood.
        tolerance: log-likelihood per session that may remain to be gained.
        rng: where starts and held-out sessions come from.
        passes: where passes over the log run.
    """
    sessions = encoded.sessions
    if bandit.n_types == 1 or (sessions.features is None and sessions.persons is None):
        return None
    log = sessions.load()
    terms, remarks = ((), ()) if log.features is None else make_columns(_looked_at(log.features, rng))
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
    if terms and log.features is not None:
        design = Design.of(terms, log.features.take(order), len(task), ridge=_FIRST_RIDGE if ridge else 0.0)
        found, way, said, gain = _tried(task.strangers, design, fitted, settings)
        fitted, done, known = found, way or done, None if way is None else gain
        sentences.append(f"{', '.join(term.name for term in terms)}: {said}")
    if task.returns:
        found, way, said, _ = _tried(task, fitted.design, fitted, settings)
        fitted, done = found, way or done
        kept = "" if way is None else f" (the type is kept with probability {fitted.keep:.2f})"
        sentences.append(f"returning persons{kept}: {said}")
    words, doubts = tuple(sentences), _suspects(log, terms)
    if done is None:
        return Learned(bandit, None, np.nan, 0, (), True, words, doubts)
    result = _learned(task, encoded, bandit, fitted, done)
    prior = result.type_prior
    assert prior is not None
    types = result.bandit if fitted.rows is not None else bandit
    if prior.columns and log.features is not None:
        prior = prior.remembering(log.features)
    total = _log_likelihood(types, prior, sessions.load())
    return replace(result, type_prior=prior, log_likelihood=total, sentences=words, doubts=doubts, gain=known)


def told(
    seen: Log, held: Log, bandit: LatentBandit, arm_prior: Prior | None, *, rng: np.random.Generator, passes: Passes
) -> Float[Array, "n"]:
    """How much likelier every session held out is where its features are known, learned from the sessions seen.

    Args:
        seen: the log that is learned from.
        held: the sessions held out.
        bandit: the fit to the sessions seen that knows nothing before a session.
        arm_prior: as for `learn`.
        rng: where starts come from.
        passes: where passes over the log run.
    """
    logs = [one.sessions.load() for one in (seen, held)]
    features = [log.features for log in logs]
    terms = () if features[0] is None else make_columns(_looked_at(features[0], rng))[0]
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
    gains[places] = test.scores(found, there, _UNSEEN) - test.scores(base, alike, _UNSEEN)
    return gains


def _looked_at(features: Features, rng: np.random.Generator) -> Features:
    """Those of all sessions, or of many drawn ones, from which columns are described."""
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
    """The fit with a design, or `base` where that is not worse; what is said about it, and what it gains held out.

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
    """The log with the sessions of a person one after the other, and their order."""
    persons = np.arange(len(log)) if log.persons is None else person_numbers(log.persons)
    order = np.argsort(persons, kind="stable")
    if arm_prior is not None and encoded.family == Categorical.family and encoded.values is not None:
        coded = Coded.of(log, encoded.values, letters=encoded.letters).part(order)
        return Task(bandit.n_types, persons[order], coded, Types(encoded, arm_prior), passes=passes), order
    like = _likelihoods(bandit, log)[0][order]
    return Task(bandit.n_types, persons[order], like=like), order


def _plain(task: Task, bandit: LatentBandit, encoded: Log) -> Fitted:
    """The fit that knows nothing before a session."""
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
    prior = design.prior(fitted.coefficients, fitted.keep)
    weights = design.mean_weights(fitted.coefficients)
    found = replace(bandit, weights=weights)
    if fitted.rows is not None:
        model = encoded.pack(bandit)[0].copy()
        model[0, : task.n_types], model[1:, : task.n_types] = weights, fitted.rows
        found = replace(encoded.bandit(model, task.n_types), arm_labels=bandit.arm_labels)
        if bandit.leaving is not None and not encoded.letters:  # the same in all types
            found = replace(found, leaving=bandit.leaving)
        places = _matched(bandit, found)
        found, prior = found.relabel(types=places), prior.relabel(places)
    n_more = (task.n_types - 1) * design.n_free + (fitted.keep is not None)
    trace = () if task.given else done.traces[0]
    return Learned(found, prior, np.nan, n_more, trace, bool(done.converged[0]), (), ())


def _log_likelihood(bandit: LatentBandit, prior: TypePrior, log: Sessions) -> float:
    """The log-likelihood of all sessions, each from its own prior."""
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
    """All sessions of some persons, about `size` of them, in their order."""
    persons = np.arange(len(log)) if log.persons is None else person_numbers(log.persons)
    n_persons = int(persons.max()) + 1
    drawn = np.zeros(n_persons, bool)
    drawn[sample_rows(n_persons, max(size * n_persons // len(log), 1), rng)] = True
    return np.flatnonzero(drawn[persons])


def _matched(old: LatentBandit, new: LatentBandit) -> list[int]:
    """The new type that is most like each old one, so that types keep their numbers."""
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
