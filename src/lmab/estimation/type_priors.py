"""The prior over types of a session, learned from what is known before it: its features, and who comes back.

One step: EM over types and prior together. The first code of a session is its group, the distinct row of its features;
what the kernel sums up there is all that w(x) = softmax(x B) needs. B takes one step of Boehning's bound per map, and
every column has a ridge that is learned (MacKay's fixed point). Two steps: the types stay as another method found them,
and only B and `keep` are learned. A person's sessions are a chain, walked forward and backward.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from ..model.rewards import index_among
from ..model.type_prior import Category, Numeric, Term, TypePrior, softmax
from .categorical import HeldSteps
from .climb import Climb, climb
from .log import EMMap, Observations, Prior, expectation, frozen, merge, padded
from .passes import Passes
from .starts import draw_starts

_LEVELS = 1000  # most levels of a column with a coefficient; the others are the average person
_LEAST = 5  # sessions that a level must have
_CUTS = 16  # values of a column of numbers above which it is cut at as many quantiles
_ROUNDS, _ROUND_MAPS = 5, 40  # climbs between which the ridge is learned, and how long they are
_RIDGE = (1e-3, 1e6)  # least and most
_PILOT = 10_000  # sessions on which starts compete and the ridge is learned
_STARTS, _FINISHERS, _START_MAPS = 8, 2, 60
_FOLDS, _ENOUGH, _HELD = 5, 10_000, 50_000  # folds of small logs; sessions that make one enough, and that are looked at
_CLEAR = 1.0  # standard errors by which held-out sessions must be predicted better
_UNSEEN = 1e-4  # probability that a held-out reward is of any kind
_SUSPECT = 0.95  # correlation with the rewards above which a column is suspected to be made of them
_FIRST_STEPS = 10  # whose rewards are compared with the columns
_STAY = 0.5  # where `keep` starts
_STEEPEST = 12.0  # logit of `keep` at most


def terms_of(features: Features) -> tuple[tuple[Term, ...], tuple[str, ...]]:
    """The columns that can tell anything, and a remark on each that cannot.

    Examples:
        >>> features = Features.of({"land": ["de", "fr"] * 5, "age": [3.0] * 10}, 10)
        >>> terms_of(features)
        ((Category(name='land', levels=('de', 'fr'), shares=(0.5, 0.5)),), ("'age' is the same in all sessions",))
    """
    counts = np.bincount(features.rows, minlength=features.n_rows).astype(float)
    terms, remarks = list[Term](), list[str]()
    for name, values in zip(features.columns, features.table, strict=True):
        found = _numeric(name, values, counts) if values.dtype.kind == "f" else _category(name, values, counts)
        if isinstance(found, str):
            remarks.append(found)
        else:
            terms.append(found)
    return tuple(terms), tuple(remarks)


def _category(name: str, values: Shaped[Array, "R"], counts: Float[Array, "R"]) -> Category | str:
    sizes: dict[str, float] = {}
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        if value is not None and count:
            sizes[value] = sizes.get(value, 0.0) + count
    frequent = sorted(sizes, key=lambda level: (-sizes[level], level))[:_LEVELS]
    levels = [level for level in frequent if sizes[level] >= _LEAST]
    if len(sizes) < 2:
        return f"{name!r} is the same in all sessions"
    if len(levels) < 2:
        return f"{name!r} has no two values with at least {_LEAST} sessions each"
    total = sum(sizes[level] for level in levels)
    return Category(name, tuple(sorted(levels)), tuple(sizes[level] / total for level in sorted(levels)))


def _numeric(name: str, values: Float[Array, "R"], counts: Float[Array, "R"]) -> Numeric | str:
    known = ~np.isnan(values) & (counts > 0)
    missing = bool((np.isnan(values) & (counts > 0)).any())
    if not known.any():
        return f"{name!r} is missing in all sessions"
    numbers, sizes = values[known], counts[known]
    edges: tuple[float, ...] = ()
    means: tuple[float, ...] = ()
    if len(np.unique(numbers)) > _CUTS:
        edges, means = _cuts(numbers, sizes)
        numbers = np.array(means)[np.searchsorted(edges, numbers, side="right")]
    mean = float(np.average(numbers, weights=sizes))
    scale = float(np.sqrt(np.average((numbers - mean) ** 2, weights=sizes)))
    if scale <= 1e-12 * max(abs(mean), 1.0):
        if not missing:
            return f"{name!r} is the same in all sessions"
        scale = 1.0
    return Numeric(name, mean, scale, edges, means, missing)


def _cuts(numbers: Float[Array, "n"], sizes: Float[Array, "n"]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Edges at quantiles of the sessions, and the mean of what lies between two of them."""
    order = np.argsort(numbers)
    numbers, sizes = numbers[order], sizes[order]
    places = np.searchsorted(np.cumsum(sizes), np.arange(1, _CUTS) / _CUTS * sizes.sum())
    edges = np.unique(numbers[places])
    edges = edges[edges > numbers[0]]
    bins = np.searchsorted(edges, numbers, side="right")
    means = np.bincount(bins, numbers * sizes) / np.bincount(bins, sizes)
    return tuple(edges.tolist()), tuple(means.tolist())


@dataclass(frozen=True, eq=False)
class Design:
    """The distinct rows of features as numbers, the row of each session, and the ridge of every coefficient."""

    terms: tuple[Term, ...]
    x: Float[Array, "G D"]
    groups: Integer[Array, "N"]
    ridge: Float[Array, "D"]  # of the constant: 0

    @classmethod
    def of(cls, terms: tuple[Term, ...], features: Features | None, n_sessions: int, *, ridge: float) -> Design:
        """The design of a log; without terms everybody is in one group."""
        if not terms or features is None:
            return cls((), np.ones((1, 1)), np.zeros(n_sessions, np.int32), np.zeros(1))
        n_terms = sum(term.n_terms for term in terms)
        rows = TypePrior(terms, np.zeros((1 + n_terms, 1))).design(features)
        x, groups = np.unique(rows, axis=0, return_inverse=True)
        return cls(terms, x, groups.ravel()[features.rows].astype(np.int32), np.array([0.0, *[ridge] * n_terms]))

    def part(self, sessions: Integer[Array, "n"]) -> Design:
        """The same rows for some of the sessions."""
        return replace(self, groups=self.groups[sessions])

    @property
    def size(self) -> int:
        return self.x.shape[1]

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
        return np.linalg.pinv(0.5 * self.curvature + np.diag(self.ridge), hermitian=True)

    @property
    def blocks(self) -> list[slice]:
        """The coefficients of each column."""
        ends = np.cumsum([1, *(term.n_terms for term in self.terms)]).tolist()
        return [slice(low, high) for low, high in pairwise(ends)]

    def weights(self, coefficients: Float[Array, "D M"]) -> Float[Array, "G M"]:
        return softmax(self.x @ coefficients)

    def mean_weights(self, coefficients: Float[Array, "D M"]) -> Float[Array, "M"]:
        """The weights of the log: those of its sessions on average."""
        found = self.sizes @ self.weights(coefficients)
        return found / found.sum()

    def improved(
        self, coefficients: Float[Array, "D M"], weights: Float[Array, "G M"], shares: Float[Array, "G M"]
    ) -> Float[Array, "D M"]:
        """One step of the bound; `shares` are the expected sessions of each group by type."""
        gap = shares - shares.sum(axis=1, keepdims=True) * weights
        return coefficients + self.bound @ (self.x.T @ gap - self.ridge[:, None] * coefficients)

    def log_prior(self, coefficients: Float[Array, "D M"]) -> float:
        return -0.5 * float((self.ridge[:, None] * coefficients**2).sum())

    def with_learned_ridge(self, coefficients: Float[Array, "D M"]) -> Design:
        """The ridge of each column: its effective parameters over its squared length (MacKay)."""
        n_types, weights = coefficients.shape[1], self.weights(coefficients)
        informed = float(np.average((weights * (1 - weights)).mean(axis=1), weights=self.sizes))
        informed *= n_types / max(n_types - 1, 1)
        inverse = np.linalg.pinv(informed * self.curvature + np.diag(self.ridge + 1e-9), hermitian=True)
        ridge = self.ridge.copy()
        for block in self.blocks:
            own = np.diag(inverse)[block]
            effective = (n_types - 1) * float(len(own) - (ridge[block] * own).sum())
            length = float((coefficients[block] ** 2).sum())
            ridge[block] = np.clip(max(effective, 1e-3) / max(length, 1e-9), *_RIDGE)
        return replace(self, ridge=ridge)

    def prior(self, coefficients: Float[Array, "D M"], keep: float | None) -> TypePrior:
        centred = coefficients - coefficients.mean(axis=1, keepdims=True)
        return TypePrior(self.terms, centred, keep)


@dataclass(frozen=True, eq=False)
class Coded:
    """Sessions as codes arm * Z + value, not merged."""

    codes: Shaped[Array, "S"]
    offsets: Integer[Array, "N1"]
    n_codes: int

    @classmethod
    def of(cls, sessions: Sessions, values: Float[Array, "Z"]) -> Coded:
        n_codes = sessions.n_arms * len(values)
        codes = sessions.arms * np.int64(len(values)) + index_among(values, sessions.rewards, first_step=0)
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
        kernel("persons").likelihoods(self.codes, self.offsets, np.ascontiguousarray(rows), like, scales)
        return like, scales

    def after(self, groups: Integer[Array, "N"], n_groups: int) -> HeldSteps:
        """The steps with the group of its session as a code in front, identical sessions merged."""
        lengths, total = np.diff(self.offsets), self.n_codes + n_groups
        offsets = np.concatenate([[0], np.cumsum(lengths + 1)])
        codes = np.empty(offsets[-1], np.min_scalar_type(total - 1))
        first = np.zeros(len(codes), bool)
        first[offsets[:-1]] = True
        codes[first], codes[~first] = self.n_codes + groups, self.codes
        codes, offsets, counts = map(frozen, merge(codes, offsets, total))
        return HeldSteps(offsets, codes, counts)


@dataclass(frozen=True, eq=False)
class Grouped:
    """EM over types and prior together, where nobody comes back: models hold B, then the rows of the codes."""

    em_map: EMMap
    coded: Coded
    design: Design
    n_types: int
    passes: Passes

    @cached_property
    def steps(self) -> HeldSteps:
        return self.coded.after(self.design.groups, len(self.design.x))

    def map(self, models: Float[Array, "R K P"]) -> tuple[Float[Array, "R"], Float[Array, "R K P"]]:
        d, n_codes, m = self.design.size, self.coded.n_codes, self.n_types
        tables = np.zeros((len(models), 1 + n_codes + len(self.design.x), models.shape[2]))
        weights = [self.design.weights(model[:d, :m]) for model in models]
        for table, model, own in zip(tables, models, weights, strict=True):
            common = self.design.sizes @ own / self.design.sizes.sum()
            table[0, :m], table[1 : 1 + n_codes] = common, model[d:]
            table[1 + n_codes :, :m] = own / common
        statistics, objective = expectation("categorical", self.steps, tables, tables.shape[1], self.passes)
        ahead = np.zeros_like(models)
        ahead[:, d:] = self.em_map.maximise(statistics[:, : 1 + n_codes], tables[:, : 1 + n_codes])[:, 1:]
        objective = objective + _log_prior(self.em_map, tables[:, : 1 + n_codes, :m])
        for r, own in enumerate(weights):
            shares = statistics[r, 1 + n_codes :, :m]
            ahead[r, :d, :m] = self.design.improved(models[r, :d, :m], own, shares)
            objective[r] += self.design.log_prior(models[r, :d, :m])
        return objective, ahead

    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        return _repaired(self.em_map, self.design.size, trial, near)


@dataclass(frozen=True, eq=False)
class Returning:
    """EM over types, prior and `keep` together: models hold B, the logit of `keep`, then the rows of the codes."""

    em_map: EMMap
    coded: Coded  # the sessions of a person one after the other
    design: Design
    edges: Integer[Array, "P1"]  # of persons
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
        kernel("persons").sums(self.coded.codes, self.coded.offsets, posterior, sums)
        statistics[0, 1:, :m] = sums
        table = np.concatenate([statistics[:, :1] / len(like), model[None, d + 1 :]], axis=1)
        ahead = np.zeros_like(model)
        ahead[:d, :m], ahead[d, :m] = coefficients, keep
        ahead[d + 1 :] = self.em_map.maximise(statistics, table)[0, 1:]
        objective = float(scales.sum()) + more + float(_log_prior(self.em_map, table[:, :, :m])[0])
        return objective + self.design.log_prior(model[:d, :m]), ahead

    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        return _repaired(self.em_map, self.design.size + 1, trial, near)


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
    kernel("persons").returning(like, edges, weights, design.groups, keep, posterior, fresh, kept, logs)
    logit = _logit(kept[0] / kept[1] if kept[1] else keep)
    return float(logs.sum()), design.improved(coefficients, weights, fresh), logit, posterior


def _share(logit: float) -> float:
    return float(1 / (1 + np.exp(-logit)))


def _logit(share: float) -> float:
    with np.errstate(divide="ignore"):
        return float(np.clip(np.log(share) - np.log1p(-share), -_STEEPEST, _STEEPEST))


def _log_prior(em_map: EMMap, tables: Float[Array, "R K M"]) -> Any:
    return em_map.log_prior(tables) if em_map.prior.active else np.zeros(len(tables))


def _repaired(
    em_map: EMMap, first: int, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]
) -> Float[Array, "R K P"]:
    """Rows of codes as `EMMap` repairs them; B may be anything, and the logit of `keep` is bounded."""
    constant = np.zeros((len(trial), 1, trial.shape[2]))
    constant[:, 0] = 1.0
    rows = em_map.repair(
        np.concatenate([constant, trial[:, first:]], axis=1), np.concatenate([constant, near[:, first:]], axis=1)
    )
    result = _limited(trial, first - 1)
    result[:, first:] = rows[:, 1:]
    return result


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
    em_map: EMMap | None = None
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
        assert self.em_map is not None
        assert self.passes is not None
        if self.returns:
            return Returning(self.em_map, self.coded, design, self.edges, self.n_types)
        return Grouped(self.em_map, self.coded, design, self.n_types, self.passes)

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
        like, scales = self.like, np.zeros(len(self))
        if self.coded is not None:
            assert fitted.rows is not None
            assert self.em_map is not None
            n_values = self.em_map.prior.centre.shape[-1]
            like, scales = self.coded.likelihoods((1 - unseen) * fitted.rows + unseen / n_values)
        assert like is not None
        weights = np.ascontiguousarray(design.weights(fitted.coefficients))
        edges = self.edges if fitted.keep is not None else np.arange(len(self) + 1)
        logs, posterior, fresh = np.empty(len(self)), np.empty_like(like), np.empty_like(weights)
        keep = fitted.keep or 0.0
        kernel("persons").returning(like, edges, weights, design.groups, keep, posterior, fresh, np.empty(2), logs)
        return logs + scales


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
    models = np.stack([task.model(design, one) for one in first])
    if len(models) > 1:
        found = climb(pilot.ascent(own), models, left=_left(pilot, 1e-5), max_maps=_START_MAPS, accelerate=True)
        models = found.models[found.order()[:_FINISHERS]]
        found = climb(pilot.ascent(own), models, left=_left(pilot, 1e-7), max_maps=5 * _START_MAPS, accelerate=True)
        models = found.models[found.order()[:1]]
    for _ in range(_ROUNDS if learned and design.terms else 0):
        models = climb(pilot.ascent(own), models, left=0.0, max_maps=_ROUND_MAPS, accelerate=True).models
        own = own.with_learned_ridge(models[0][: design.size, : task.n_types])
    design = replace(design, ridge=own.ridge)
    done = climb(task.ascent(design), models, left=_left(task, tolerance), max_maps=5000, accelerate=True)
    return task.fitted(design, done.models[0]), done


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
        return self.mean > _CLEAR * self.stderr

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ({self.stderr:.4f}) per held-out session"


def gain_of(task: Task, better: Fitted, base: Fitted, rng: np.random.Generator) -> Gain:
    """What `better` gains over `base` on held-out persons, each fitted again to the others from where it is."""
    if len(task) > _HELD:
        rows = _sample(task, _HELD, rng)
        task = task.part(rows)
        better, base = (replace(one, design=one.design.part(rows)) for one in (better, base))
    n_persons = len(task.edges) - 1
    folds = np.array_split(rng.permutation(n_persons), min(_FOLDS, n_persons))
    folds = folds[: max(1, round(_ENOUGH / len(task)))]
    owner = np.repeat(np.arange(n_persons), np.diff(task.edges))
    gains, losses = [], dict.fromkeys((term.name for term in better.design.terms), 0.0)
    for fold in folds:
        held = np.isin(owner, fold)
        new, old = (_again(task, one, np.flatnonzero(~held)) for one in (better, base))
        there = task.part(np.flatnonzero(held))
        own = better.design.part(np.flatnonzero(held))
        score = there.scores(new, own, _UNSEEN)
        before = there.scores(old, base.design.part(np.flatnonzero(held)), _UNSEEN)
        gains.append(np.add.reduceat(score - before, there.edges[:-1]))
        for name, block in zip(losses, own.blocks, strict=True):
            less = replace(own, x=own.x.copy())
            less.x[:, block] = 0.0
            losses[name] += float((score - there.scores(new, less, _UNSEEN)).sum())
    found = np.concatenate(gains)
    n_held = sum(int(np.isin(owner, fold).sum()) for fold in folds)
    error = float(found.std() * np.sqrt(len(found))) / n_held
    return Gain(float(found.sum()) / n_held, error, {name: loss / n_held for name, loss in losses.items()})


def _again(task: Task, fitted: Fitted, rows: Integer[Array, "n"]) -> Fitted:
    """The fit, climbed again on some of the sessions."""
    own = (task if fitted.keep is not None else task.strangers).part(rows)
    design = fitted.design.part(rows)
    done = climb(
        own.ascent(design), own.model(design, fitted)[None], left=_left(own, 1e-5), max_maps=300, accelerate=True
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


def learn(
    observations: Observations,
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
        observations: the encoded log.
        bandit: the fit to it that knows nothing before a session.
        arm_prior: the prior of every arm under which types are learned together with their prior; None: the types of
            `bandit` stay.
        ridge: whether coefficients are shrunk; False: maximum likelihood.
        tolerance: log-likelihood per session that may remain to be gained.
        rng: where starts and held-out sessions come from.
        passes: where passes over the log run.
    """
    sessions = observations.sessions
    if bandit.n_types == 1 or (sessions.features is None and sessions.persons is None):
        return None
    log = sessions.load()
    task, order = _task(log, observations, bandit, arm_prior, passes)
    features = None if log.features is None else log.features.take(order)
    terms, remarks = ((), ()) if features is None else terms_of(features)
    sentences = [f"{remark}: it tells nothing" for remark in remarks]
    fitted = base = _plain(task, bandit, observations)
    done: Climb | None = None
    settings: dict[str, Any] = {"learned": ridge, "tolerance": tolerance, "rng": rng}
    if terms:
        design = Design.of(terms, features, len(task), ridge=1.0 if ridge else 0.0)
        first = [base, *_drawn(task, observations, base, rng)]
        found, way = search(task.strangers, design, first, **settings)
        gain = gain_of(task.strangers, found, base, rng)
        sentences.append(_said(", ".join(term.name for term in terms), gain))
        if gain.clear:
            fitted, done = found, way
    if task.returns:
        found, way = search(task, fitted.design, [fitted], **settings | {"learned": False})
        gain = gain_of(task, found, fitted, rng)
        sentences.append(_said(f"who comes back (the type is kept with probability {found.keep:.2f})", gain))
        if gain.clear:
            fitted, done = found, way
    if done is None:
        return Learned(bandit, None, np.nan, 0, (), True, tuple(sentences), ())
    return _learned(task, observations, bandit, fitted, done, sentences, _suspects(log, terms))


def _task(
    log: Sessions, observations: Observations, bandit: LatentBandit, arm_prior: Prior | None, passes: Passes
) -> tuple[Task, Integer[Array, "N"]]:
    """The log with the sessions of a person one after the other, and their order."""
    persons = np.arange(len(log)) if log.persons is None else person_numbers(log.persons)
    order = np.argsort(persons, kind="stable")
    if arm_prior is not None and observations.values is not None:
        coded = Coded.of(log, observations.values).part(order)
        em_map = observations.em_map(arm_prior)
        return Task(bandit.n_types, persons[order], coded, em_map, passes=passes), order
    with np.errstate(divide="ignore"):
        logs = (belief.log_joint(bandit, log) - np.log(bandit.weights))[order]
    logs[:, bandit.weights == 0] = -np.inf
    top = logs.max(axis=1, keepdims=True)
    like = np.where(np.isfinite(top), np.exp(logs - np.where(np.isfinite(top), top, 0.0)), 1.0)
    return Task(bandit.n_types, persons[order], like=like), order


def _plain(task: Task, bandit: LatentBandit, observations: Observations) -> Fitted:
    """The fit that knows nothing before a session."""
    design = Design.of((), None, len(task), ridge=0.0)
    logs = np.log(np.maximum(bandit.weights, 1e-12))[None]
    rows = None if task.given else observations.models.pack(bandit)[0, 1:, : bandit.n_types]
    return Fitted(design, logs - logs.mean(), None, rows)


def _drawn(task: Task, observations: Observations, base: Fitted, rng: np.random.Generator) -> list[Fitted]:
    """Other starts, because short sessions alone may have led to other types than features do."""
    if task.given:
        return []
    size = min(len(task), _PILOT)
    part = observations if size == len(task) else observations.subset(np.sort(sample_rows(len(task), size, rng)))
    models = observations.start_models.soften(draw_starts(part, task.n_types, _STARTS, rng))
    zero = np.zeros((1, task.n_types))
    return [replace(base, coefficients=zero, rows=model[1:, : task.n_types]) for model in models]


def _said(what: str, gain: Gain) -> str:
    if not gain.clear:
        return f"{what}: left out, since held-out sessions are not predicted better ({gain})"
    parts = ", ".join(f"{name} {loss:+.4f}" for name, loss in gain.columns.items())
    return f"{what}: known before a session, worth {gain}" + (f": {parts}" if len(gain.columns) > 1 else "")


def _learned(
    task: Task,
    observations: Observations,
    bandit: LatentBandit,
    fitted: Fitted,
    done: Climb,
    sentences: list[str],
    doubts: tuple[str, ...],
) -> Learned:
    design = fitted.design
    prior = design.prior(fitted.coefficients, fitted.keep)
    weights = design.mean_weights(fitted.coefficients)
    found = replace(bandit, weights=weights)
    total = float(task.scores(fitted, design).sum())
    if fitted.rows is None:
        total += float(observations.log_likelihood(bandit) - _common(task, bandit))
    else:
        model = observations.models.pack(bandit)[0].copy()
        model[0, : task.n_types], model[1:, : task.n_types] = weights, fitted.rows
        found = replace(observations.models.bandit(model, task.n_types), arm_labels=bandit.arm_labels)
        places = _matched(bandit, found)
        found, prior = found.relabel(types=places), prior.relabel(places)
    free = sum(len(term.levels) - 1 if isinstance(term, Category) else term.n_terms for term in design.terms)
    n_more = (task.n_types - 1) * free + (fitted.keep is not None)
    trace = () if task.given else done.traces[0]
    return Learned(found, prior, total, n_more, trace, bool(done.converged[0]), tuple(sentences), doubts)


def _common(task: Task, bandit: LatentBandit) -> float:
    """The log-likelihood of given types without a prior that knows more, on the scale of the task."""
    assert task.like is not None
    return float(np.log(task.like @ bandit.weights).sum())


def _matched(old: LatentBandit, new: LatentBandit) -> list[int]:
    """The new type that is most like each old one, so that types keep their numbers."""
    from scipy.optimize import linear_sum_assignment

    cost = np.abs(old.means[:, None] - new.means[None]).sum(axis=2)
    return [int(place) for place in linear_sum_assignment(cost)[1]]


def _suspects(log: Sessions, terms: Sequence[Term]) -> tuple[str, ...]:
    """Columns that follow the rewards so closely that they are hardly known before the session."""
    if log.features is None:
        return ()
    targets = [np.add.reduceat(log.rewards, log.offsets[:-1])]
    steps, n_steps = log.steps, min(_FIRST_STEPS, int(log.lengths.min()))
    targets += [log.rewards[steps == step] for step in range(n_steps)]
    found = []
    for term in terms:
        x = term.terms(log.features[term.name])
        best = max(_explained(x, target) for target in targets)
        if best > _SUSPECT:
            found.append(
                f"column {term.name!r} explains {100 * best:.0f}% of the rewards, more than what is known before a "
                f"session can: leave it out if it was made of rewards"
            )
    return tuple(found)


def _explained(x: Float[Array, "N k"], target: Float[Array, "N"]) -> float:
    """The share of the variance of the target that a linear function of x explains."""
    centred = target - target.mean()
    if not centred.any():
        return 0.0
    fit = np.linalg.lstsq(x - x.mean(axis=0), centred, rcond=None)[0]
    return 1 - float(((centred - (x - x.mean(axis=0)) @ fit) ** 2).sum() / (centred**2).sum())
