"""TypePrior: the weights of the types as a function of the features of a session.

w(x) = softmax(x B), with x the row of features. A returning person keeps the type with probability `keep`; otherwise
the type is drawn again from w(x).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from .. import _registry, files
from .._shapes import Array, Float, Integer, Shaped
from ..checks import check_array, check_distribution
from ..data.features import Features, column_values, require_mapping
from ..errors import InvalidArgument, InvalidFile
from .people import LEAST, MOST_PEOPLE, Column, People

ASSUMED_KEEP = 0.9  # used if the log has no returning persons; among fixed values it has the smallest regret
_LEVELS = 1000  # maximum number of levels of a column with a coefficient; the others count as the average person
_CUTS = 16  # number of quantiles at which a column with more numbers is cut
_SORTED = 50_000  # size of the sample from which the quantiles of a longer column are computed
_CHUNK = 1 << 14  # rows per batch, which fits into the cache
_FEW = 7  # row length up to which sums by column and sums by row have the same bits
_SHOWN = 12  # maximum number of values of a column in a table
_LLOYD = 20  # rounds of k-means
_TINY = 1e-300


@dataclass(frozen=True)
class Category:
    """Column of text with one coefficient per level. A missing or unknown level counts as the average person."""

    name: str
    levels: tuple[str, ...]
    shares: tuple[float, ...]  # share of each level among the non-missing ones, which defines the average person

    @property
    def n_terms(self) -> int:
        return len(self.levels)

    def terms(self, values: Shaped[Array, "n"]) -> Float[Array, "n k"]:
        """Return the indicators of the levels minus their shares; zeros for the average person."""
        if values.dtype.kind == "f":
            if not np.isnan(values).all():
                raise InvalidArgument(f"features[{self.name!r}] must hold text, got numbers such as {values[0]:g}")
            return np.zeros((len(values), self.n_terms))
        place = {level: number for number, level in enumerate(self.levels)}
        numbers = np.array([place.get(value, -1) for value in values.tolist()], np.int64)
        has_level = numbers >= 0
        terms = np.where(has_level[:, None], -np.array(self.shares), 0.0)
        terms[has_level, numbers[has_level]] += 1.0
        return terms

    def coded(self, values: Shaped[Array, "n"]) -> tuple[Integer[Array, "n"], Shaped[Array, "k"]]:
        """Return the level of each value as a code, and the levels; the last one stands for all levels that are not
        kept.
        """
        place = {level: number for number, level in enumerate(self.levels)}
        codes = np.array([place.get(value, len(place)) for value in values.tolist()], np.int64)
        return codes, np.array([*self.levels, None], object)

    def draw(self, n: int, rng: np.random.Generator) -> Shaped[Array, "n"]:
        """Draw the levels of n sessions with their frequencies in the log."""
        return np.array(self.levels, object)[
            rng.choice(len(self.levels), n, p=np.array(self.shares) / sum(self.shares))
        ]

    @property
    def examples(self) -> tuple[str, ...]:
        """Return the values that a table of weights displays."""
        return self.levels

    def named(self, value: str) -> str:
        return value

    def most_frequent(self, most: int) -> tuple[str, ...]:
        """Return the `most` most frequent levels, in their order."""
        order = np.argsort(-np.array(self.shares), kind="stable")[:most]
        return tuple(self.levels[place] for place in np.sort(order))


@dataclass(frozen=True)
class Numeric:
    """Column of numbers with one coefficient, and one for missing numbers if the log has any."""

    name: str
    mean: float  # mean of the log, which replaces missing numbers
    scale: float
    edges: tuple[float, ...] = ()  # edges between the bins of a discretised column; an edge belongs to the bin above it
    values: tuple[float, ...] = ()  # value of each bin; empty if the column is not discretised
    missing: bool = False  # whether a missing number has a coefficient
    exact: bool = False  # whether numbers have an effect as they are; bins then only describe the sessions of the log

    @property
    def n_terms(self) -> int:
        return 1 + self.missing

    def terms(self, values: Shaped[Array, "n"]) -> Float[Array, "n k"]:
        """Return the standardised numbers, 0 if missing, and the indicator of missing ones."""
        if values.dtype.kind != "f":
            if any(value is not None for value in values.tolist()):
                raise InvalidArgument(f"features[{self.name!r}] must hold numbers, got text such as {values[0]!r}")
            values = np.full(len(values), np.nan)
        missing = np.isnan(values)
        if self.values and not self.exact:
            terms = ((np.array(self.values) - self.mean) / self.scale)[_between(self.edges, values)]
        else:
            terms = (values - self.mean) / self.scale
        terms[missing] = 0.0
        terms = terms[:, None]
        return np.concatenate([terms, missing[:, None].astype(float)], axis=1) if self.missing else terms

    def coded(self, values: Float[Array, "n"]) -> tuple[Integer[Array, "n"], Float[Array, "k"]]:
        """Return the bin of each number as a code, and the values of the bins; the last one is missing."""
        bins = np.array(self.values) if self.values else np.unique(values[~np.isnan(values)])
        codes = _between(self.edges, values) if self.values else np.searchsorted(bins, values)
        return np.where(np.isnan(values), len(bins), codes), np.append(bins, np.nan)

    def draw(self, n: int, rng: np.random.Generator) -> Float[Array, "n"]:
        """Draw the numbers of n sessions: bin values of the log if the column is discretised, else normal numbers."""
        return rng.choice(self.values, n) if self.values else rng.normal(self.mean, self.scale, n)

    @property
    def examples(self) -> tuple[float, ...]:
        """Return the values in a table of weights: one standard deviation below the mean, the mean, one above."""
        return (self.mean - self.scale, self.mean, self.mean + self.scale)

    def named(self, value: float) -> str:
        """Return the value with enough digits to distinguish numbers that are one standard deviation apart."""
        size = max(abs(self.mean), self.scale) / self.scale
        return f"{value:.{max(4, min(17, math.ceil(math.log10(size)) + 2))}g}"

    def most_frequent(self, most: int) -> tuple[float, ...]:
        return self.examples


Term = Category | Numeric


class ColumnTable(NamedTuple):
    """Type weights for the values of one column, for tables."""

    name: str
    rows: tuple[tuple[str, Float[Array, "M"]], ...]  # values, and the type weights of sessions with each value
    n_values: int  # number of values from which the rows were chosen

    @property
    def remark(self) -> str:
        """A sentence on the values that the table omits; empty if it omits none."""
        if self.n_values <= len(self.rows):
            return ""
        return f"Feature {self.name}: the {len(self.rows)} most frequent of {self.n_values:,} values are shown."


@dataclass(frozen=True, eq=False, init=False)
class TypePrior:
    """Prior over types of a session, given its features and the person's earlier sessions.

    `lmab.fit` learns one if the log has features or persons. `TypePrior.by_value` makes one by hand.

    Examples:
        >>> import lmab
        >>> prior = lmab.TypePrior.by_value("country", {"de": [0.8, 0.2], "fr": [0.3, 0.7]}, keep=0.5)
        >>> prior
        TypePrior(country; 2 types, keep 0.5)
        >>> prior.weights({"country": ["fr", "de"]}).round(3)
        array([[0.3, 0.7],
               [0.8, 0.2]])
        >>> prior.after([1.0, 0.0], {"country": "fr"}).round(3)
        array([[0.65, 0.35]])
    """

    terms: tuple[Term, ...]  # the columns and their encodings as numbers
    coefficients: Float[Array, "D M"]  # row 0: the intercept; then the rows of the terms, in their order
    keep: float | None  # probability that a returning person keeps the type; None if not estimated
    people: People | None  # distribution of the features in the log; None if unknown

    def __init__(
        self,
        columns: Sequence[str | Term],
        coefficients: Any,
        keep: float | None = None,
        people: People | None = None,
    ) -> None:
        """Encode a column that is given by its name alone as a number without scaling."""
        terms = tuple(Numeric(one, 0.0, 1.0) if isinstance(one, str) else one for one in columns)
        coefficient_rows = check_array("coefficients", coefficients, ndim=2)
        n_rows = 1 + sum(term.n_terms for term in terms)
        if len(coefficient_rows) != n_rows:
            raise InvalidArgument(
                f"coefficients must have {n_rows} rows, one for everybody and those of the columns, got "
                f"{len(coefficient_rows)}"
            )
        if keep is not None and not (isinstance(keep, int | float | np.number) and 0 <= keep <= 1):
            raise InvalidArgument(f"keep must be a probability or None, got {keep!r}")
        names = [term.name for term in terms]
        if len(set(names)) != len(names):
            raise InvalidArgument(f"columns must have different names, got {names}")
        for name, value in (("terms", terms), ("coefficients", coefficient_rows), ("keep", keep), ("people", people)):
            object.__setattr__(self, name, value)

    @classmethod
    def by_value(cls, column: str, weights: Mapping[str, Any], *, keep: float | None = None) -> TypePrior:
        """Return the prior of one text column from the type weights of each of its values.

        Examples:
            >>> import lmab
            >>> prior = lmab.TypePrior.by_value("device", {"phone": [0.9, 0.1], "desk": [0.5, 0.5]})
            >>> prior.weights({"device": "phone"})
            array([[0.9, 0.1]])
        """
        if not isinstance(weights, Mapping) or not weights:
            raise InvalidArgument(f"weights must be a mapping such as {{'de': [0.8, 0.2]}}, got {weights!r}")
        wrong = [name for name in (column, *weights) if not isinstance(name, str)]
        if wrong:
            raise InvalidArgument(f"the column and its values must be text, got {wrong[0]!r}")
        weight_rows = [check_distribution(f"weights of {value!r}", check_array("weights", row, ndim=1))
                 for value, row in weights.items()]  # fmt: skip
        sizes = {value: len(row) for value, row in zip(weights, weight_rows, strict=True)}
        if len(set(sizes.values())) > 1:
            raise InvalidArgument(f"weights must have as many types for every value, got {sizes}")
        rows = np.array(weight_rows)
        logs = np.log(np.maximum(rows, _TINY))
        term = Category(column, tuple(weights), (1 / len(rows),) * len(rows))
        return cls((term,), np.concatenate([logs.mean(axis=0, keepdims=True), logs]), keep)

    @classmethod
    def constant(cls, weights: Any, *, keep: float | None = None) -> TypePrior:
        """Return the prior with the same weights for everybody, which only depends on earlier sessions."""
        checked_weights = check_distribution("weights", check_array("weights", weights, ndim=1))
        return cls((), np.log(np.maximum(checked_weights, _TINY))[None], keep)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the features."""
        return tuple(term.name for term in self.terms)

    @property
    def n_types(self) -> int:
        return self.coefficients.shape[1]

    def weights(self, features: Mapping[str, Any] | None = None) -> Float[Array, "n M"]:
        """Return the weights of the types for each of n sessions.

        Args:
            features: values by column, one per session or one for a single session. An omitted column is missing in
                all sessions. None means the average person.
        """
        if isinstance(features, Features):
            self._require_known(features)
            parts = {name: features.table[features.columns.index(name)] for name in features}
            result = np.empty((features.n_rows, self.n_types))
            for start in range(0, len(result), _CHUNK):
                some = {name: column[start : start + _CHUNK] for name, column in parts.items()}
                design = self._design(some, min(_CHUNK, len(result) - start))
                result[start : start + _CHUNK] = softmax(design @ self.coefficients)
            return result[features.rows]
        columns = self._columns({} if features is None else features)
        return softmax(self._design(columns, _length(columns)) @ self.coefficients)

    def after(self, posterior: Any, features: Mapping[str, Any] | None = None) -> Float[Array, "n M"]:
        """Return the prior of a person's next session: keep * posterior + (1 - keep) * weights(features).

        `posterior` (M,) or (n, M) is the posterior after the person's last session.
        """
        posteriors = np.atleast_2d(np.asarray(posterior, np.float64))
        if posteriors.ndim != 2 or posteriors.shape[1] != self.n_types:
            raise InvalidArgument(f"posterior must hold {self.n_types} probabilities a row, got {posteriors.shape}")
        bad = ~(np.isfinite(posteriors) & (posteriors >= 0)).all(axis=1) | (posteriors.sum(axis=1) <= 0)
        if bad.any():
            raise InvalidArgument(f"posterior must hold probabilities, got {posteriors[bad][0].tolist()}")
        new_weights = self.weights(features)
        if len(posteriors) != len(new_weights) and 1 not in (len(posteriors), len(new_weights)):
            raise InvalidArgument(
                f"posterior must have a row for each of the {len(new_weights)} sessions, got {len(posteriors)}"
            )
        keep = ASSUMED_KEEP if self.keep is None else self.keep
        return keep * posteriors / posteriors.sum(axis=1, keepdims=True) + (1 - keep) * new_weights

    def by_values(self) -> dict[str, dict[Any, Float[Array, "M"]]]:
        """Return the weights for some values of each column, with the other columns at the average person."""
        return {
            term.name: {value: self.weights({term.name: [value]})[0] for value in term.examples} for term in self.terms
        }

    def shown(self) -> list[ColumnTable]:
        """Return the weights for the most frequent values of each column, with names for tables."""
        column_tables = []
        for term in self.terms:
            values: Any = term.most_frequent(_SHOWN)
            weights = self.weights({term.name: list(values)})
            rows = tuple((term.named(value), row) for value, row in zip(values, weights, strict=True))
            column_tables.append(ColumnTable(term.name, rows, len(term.examples)))
        return column_tables

    def relabel(self, types: Sequence[int]) -> TypePrior:
        """Return the same prior with type i renamed from `types[i]`."""
        return TypePrior(self.terms, self.coefficients[:, list(types)], self.keep, self.people)

    def among(self, people: People | None) -> TypePrior:
        """Return the same prior with another distribution of the features."""
        return TypePrior(self.terms, self.coefficients, self.keep, people)

    def remembering(self, features: Features) -> TypePrior:
        """Return the same prior with the distribution of the features of its log, which contains no personal data."""
        counts = np.bincount(features.rows, minlength=features.n_rows).astype(float)
        used = np.flatnonzero(counts)
        ends = np.cumsum([1, *(term.n_terms for term in self.terms)])
        columns = []
        for term, (low, high) in zip(self.terms, pairwise(ends.tolist()), strict=True):
            codes, values = term.coded(features.table[features.columns.index(term.name)][used])
            columns.append(Column(codes, values, term.terms(values) @ self.coefficients[low:high]))
        people = People.shared(self.columns, columns, counts[used])
        table = replace(features.only(self.columns), rows=np.arange(features.n_rows, dtype=np.int32))
        return self.among(people.calibrated(self.weights(people.features), counts @ self.weights(table) / counts.sum()))

    def draw(self, n: int, rng: np.random.Generator) -> Features | None:
        """Draw features of n sessions like those of the log; return None if there are no columns."""
        if not self.terms:
            return None
        if self.people is not None:
            return self.people.draw(n, rng)
        return Features.of({term.name: term.draw(n, rng) for term in self.terms}, n)

    def resolve_features(self, features: Mapping[str, Any] | None = None) -> People | None:
        """Return the distribution of given features, of the log, or of a sample; None if there are no columns."""
        if not self.terms:
            if features is not None:
                self._require_known(features)
            return None
        if features is None and self.people is not None:
            return self.people
        resolved = self.draw(MOST_PEOPLE, np.random.default_rng(0)) if features is None else features
        if not isinstance(resolved, Features):
            columns = self._columns({} if resolved is None else resolved)
            if columns and not _length(columns):
                raise InvalidArgument("features must be those of at least one person, got columns without values")
            resolved = Features.of(columns, _length(columns))
        self._require_known(resolved)
        return People.of(resolved)

    def design(self, features: Features) -> Float[Array, "R D"]:
        """Return the row of the design matrix of each distinct row of features."""
        return self._design(dict(zip(features.columns, features.table, strict=True)), features.n_rows)

    def _columns(self, features: Mapping[str, Any]) -> dict[str, Shaped[Array, "n"]]:
        self._require_known(features)
        values_by_name = {}
        for name in features:
            given = features[name]
            single = given is None or isinstance(given, str) or np.ndim(given) == 0
            values_by_name[name] = column_values(name, [given] if single else given)
        lengths = {name: len(column) for name, column in values_by_name.items()}
        if len(set(lengths.values())) > 1:
            raise InvalidArgument(f"features must hold as many values in every column, got {lengths}")
        return values_by_name

    def _require_known(self, features: Mapping[str, Any]) -> None:
        require_mapping(features)
        unknown = [name for name in features if name not in self.columns]
        if unknown:
            raise InvalidArgument(f"features must be among {list(self.columns)}, got {unknown[0]!r}")

    def _design(self, columns: Mapping[str, Shaped[Array, "n"]], n: int) -> Float[Array, "n D"]:
        nothing = np.full(n, np.nan)
        parts = [term.terms(columns.get(term.name, nothing)) for term in self.terms]
        return np.concatenate([np.ones((n, 1)), *parts], axis=1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the prior to `path`; `lmab.load` restores it exactly."""
        files.write(path, self.record())

    def record(self) -> files.Record:
        terms = [{"kind": type(term).__name__, **asdict(term)} for term in self.terms]
        nested = {} if self.people is None else {"people": self.people.record()}
        fields = {"terms": terms, "keep": self.keep}
        return files.Record("type_prior", fields, {"coefficients": self.coefficients}, nested)

    @classmethod
    def from_record(cls, record: files.Record) -> TypePrior:
        if record.kind != "type_prior":
            raise InvalidFile(f"holds a {record.kind}, not a type_prior")
        kinds = {"Category": Category, "Numeric": Numeric}
        terms = []
        for one in record.fields["terms"]:
            fields = {name: tuple(part) if isinstance(part, list) else part for name, part in one.items()}
            terms.append(kinds[str(fields.pop("kind"))](**fields))
        people_record = record.records.get("people")
        people = None if people_record is None else People.from_record(people_record)
        return cls(tuple(terms), record.arrays["coefficients"], record.fields["keep"], people)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TypePrior):
            return NotImplemented
        return (self.terms, self.keep) == (other.terms, other.keep) and np.array_equal(
            self.coefficients, other.coefficients
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        kept = "" if self.keep is None else f", keep {self.keep:.3g}"
        return f"TypePrior({', '.join(self.columns) or 'no features'}; {self.n_types} types{kept})"


def check_type_prior(given: Any, n_types: int) -> TypePrior:
    """Return the type prior, or raise `InvalidArgument` if it has a different number of types."""
    if not isinstance(given, TypePrior):
        raise InvalidArgument(f"type_prior must be a TypePrior or None, got a {type(given).__name__}")
    if given.n_types != n_types:
        raise InvalidArgument(f"type_prior must have the bandit's {n_types} types, got {given.n_types}")
    return given


def softmax(logits: Float[Array, "n M"]) -> Float[Array, "n M"]:
    """Return positive rows that sum to 1; rows of a few numbers are summed by column, which is faster."""
    few = 1 < logits.shape[1] <= _FEW
    exponentials = np.exp(
        logits - (reduce(np.maximum, logits.T)[:, None] if few else logits.max(axis=1, keepdims=True))
    )
    return np.asarray(
        exponentials / (reduce(np.add, exponentials.T)[:, None] if few else exponentials.sum(axis=1, keepdims=True))
    )


def make_columns(features: Features, numeric: Sequence[str] = ()) -> tuple[tuple[Term, ...], tuple[str, ...]]:
    """Return the encodings of the informative columns, and a remark on each column that cannot be used.

    A column with 16 or more different numbers is cut into bins, unless `numeric` names it.

    Examples:
        >>> features = Features.of({"land": ["de", "fr"] * 5, "age": [3.0] * 10}, 10)
        >>> make_columns(features)
        ((Category(name='land', levels=('de', 'fr'), shares=(0.5, 0.5)),), ("'age' is the same in all sessions",))
    """
    counts = np.bincount(features.rows, minlength=features.n_rows).astype(float)
    used = np.flatnonzero(counts)
    counts = counts[used]
    terms, remarks = list[Term](), list[str]()
    for name, column in zip(features.columns, features.table, strict=True):
        values = column[used]
        term = (
            _numeric(name, values, counts, name in numeric)
            if values.dtype.kind == "f"
            else _category(name, values, counts)
        )
        if isinstance(term, str):
            remarks.append(term)
        else:
            terms.append(term)
    return tuple(terms), tuple(remarks)


def _category(name: str, values: Shaped[Array, "R"], counts: Float[Array, "R"]) -> Category | str:
    sizes: dict[str, float] = {}
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        if value is not None:
            sizes[value] = sizes.get(value, 0.0) + count
    frequent = sorted(sizes, key=lambda level: (-sizes[level], level))[:_LEVELS]
    levels = [level for level in frequent if sizes[level] >= LEAST]
    if not sizes:
        return f"{name!r} is missing in all sessions"
    if len(sizes) < 2 and any(value is None for value in values.tolist()):
        return f"{name!r} has one value only, and where it is missing stands the average person"
    if len(sizes) < 2:
        return f"{name!r} is the same in all sessions"
    if len(levels) < 2:
        return f"{name!r} has no two values with at least {LEAST} sessions each"
    total = sum(sizes[level] for level in levels)
    return Category(name, tuple(sorted(levels)), tuple(sizes[level] / total for level in sorted(levels)))


def _numeric(name: str, values: Float[Array, "R"], counts: Float[Array, "R"], exact: bool = False) -> Numeric | str:
    known = ~np.isnan(values)
    missing = not known.all()
    if not known.any():
        return f"{name!r} is missing in all sessions"
    numbers, sizes = values[known], counts[known]
    edges: tuple[float, ...] = ()
    means: tuple[float, ...] = ()
    every = max(1, len(numbers) // _SORTED)
    order = np.argsort(numbers[::every]) * every
    if (np.diff(numbers[order]) > 0).sum() >= _CUTS:
        edges = _edges(numbers[order], sizes[order])
        heads = np.bincount(_between(edges, numbers), sizes, minlength=len(edges) + 1)
        edges = _wide(edges, heads)
        if not edges:
            return f"{name!r} has no two ranges of numbers with at least {LEAST} sessions each"
        bins = _between(edges, numbers)
        heads = np.bincount(bins, sizes, minlength=len(edges) + 1)
        means = tuple((np.bincount(bins, numbers * sizes, minlength=len(heads)) / heads).tolist())
        numbers = numbers if exact else np.array(means)[bins]
    mean = float(np.average(numbers, weights=sizes))
    scale = float(np.sqrt(np.average((numbers - mean) ** 2, weights=sizes)))
    if scale <= 1e-12 * max(abs(mean), 1.0):
        if not missing:
            return f"{name!r} is the same in all sessions"
        scale = 1.0
    return Numeric(name, mean, scale, edges, means, missing, exact)


def _edges(numbers: Float[Array, "n"], sizes: Float[Array, "n"]) -> tuple[float, ...]:
    """Return edges at quantiles of the sessions; the numbers increase. If nearly all have the least number: of the
    others.

    An edge is the shortest number between two of the log, because a number itself may be that of a single person.
    """
    places = np.searchsorted(np.cumsum(sizes), np.arange(1, _CUTS) / _CUTS * sizes.sum())
    edges = np.unique(numbers[places])
    if edges[-1] <= numbers[0]:
        above = numbers > numbers[0]
        if not above.any():
            return ()
        return tuple(sorted({_shortest(numbers[0], numbers[above][0]), *_edges(numbers[above], sizes[above])}))
    edges = edges[edges > numbers[0]]
    return tuple(_shortest(numbers[np.searchsorted(numbers, edge) - 1], edge) for edge in edges)


def _shortest(low: float, high: float) -> float:
    """Return the number of fewest digits that lies above one number and below another, or `high` if there is none.

    Examples:
        >>> _shortest(29.0, 30.0), _shortest(83.1, 83.708317)
        (29.5, 83.4)
    """
    middle = low + (high - low) / 2
    for digits in range(-math.ceil(math.log10(high - low)), 310):
        rounded = round(float(middle), digits)
        if low < rounded < high:
            return rounded
        if 10.0**-digits < (high - low) / 4:
            break
    return float(high)


def _wide(edges: tuple[float, ...], sizes: Float[Array, "E1"]) -> tuple[float, ...]:
    """Return the edges between bins that have enough sessions; a smaller bin joins the one above it.

    Examples:
        >>> _wide((1.0, 2.0, 3.0), np.array([12.0, 4.0, 20.0, 9.0]))
        (1.0,)
    """
    kept, bin_size = list[float](), 0.0
    for edge, size in zip(edges, sizes, strict=False):
        bin_size += size
        if bin_size >= LEAST:
            kept.append(edge)
            bin_size = 0.0
    return tuple(kept[:-1] if bin_size + sizes[-1] < LEAST else kept)


def _between(edges: tuple[float, ...], numbers: Float[Array, "n"]) -> Integer[Array, "n"]:
    """Return how many of a few edges lie at or below each number; comparing with each edge is faster than a search."""
    n_edges_below = np.zeros(len(numbers), np.int8)
    for start in range(0, len(numbers), _CHUNK):
        part = numbers[start : start + _CHUNK]
        for edge in edges:
            n_edges_below[start : start + _CHUNK] += part >= edge
    return n_edges_below


def clustered(
    priors: Float[Array, "n M"], shares: Float[Array, "n"], most: int
) -> tuple[Float[Array, "K M"], Float[Array, "K"], Integer[Array, "n"]]:
    """Cluster priors by k-means with a fixed initialisation; return the centres, their weights and the cluster of each.

    At most `most` priors are returned unchanged.
    """
    if len(priors) <= most:
        return priors, shares, np.arange(len(priors))
    rng = np.random.default_rng(0)
    centres, far = priors[[int(shares.argmax())]], np.full(len(priors), np.inf)
    while len(centres) < most:  # k-means++
        far = np.minimum(far, ((priors - centres[-1]) ** 2).sum(axis=1))
        if (far * shares).sum() <= 0:
            break
        centres = np.concatenate([centres, priors[[rng.choice(len(priors), p=far * shares / (far * shares).sum())]]])
    for _ in range(_LLOYD):
        group = nearest(priors, centres)
        sizes = np.bincount(group, shares, minlength=len(centres))
        sums = np.stack([np.bincount(group, shares * column, minlength=len(centres)) for column in priors.T], axis=1)
        centres = (sums / np.maximum(sizes, _TINY)[:, None])[sizes > 0]
    group = nearest(priors, centres)
    used, group = np.unique(group, return_inverse=True)
    sizes = np.bincount(group, shares)
    return centres[used], sizes / sizes.sum(), group


def nearest(priors: Float[Array, "n M"], centres: Float[Array, "K M"]) -> Integer[Array, "n"]:
    """Return the index of the nearest centre of each prior."""
    return np.asarray(((priors[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1))


def _length(columns: Mapping[str, Shaped[Array, "n"]]) -> int:
    return len(next(iter(columns.values()))) if columns else 1


_registry.register("type_prior", TypePrior)
