"""Distribution of the features over sessions, stored so coarsely that no row belongs to a single person.

A prior over types stores the features of its log, because plans, evaluations and simulations draw from them. It stores
combinations of bins and levels that at least 10 sessions share, and merges rarer ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import files
from .._shapes import Array, Bool, Float, Integer, Shaped
from ..data.features import Features

LEAST = 10  # minimum number of sessions of a stored level, bin or combination
MOST_PEOPLE = 2_000  # maximum number of stored combinations; also of rows drawn from more given ones
_NOTHING = 1e-12  # a split that explains less of the effects is due to rounding


class Column(NamedTuple):
    """Column of features in bins or levels. The last code is that of missing values and of all rare levels."""

    codes: Integer[Array, "n"]
    values: Shaped[Array, "k"]  # the value of each code; numbers increase
    effects: Float[Array, "k M"]  # effect of each code on the logits of the types

    @property
    def is_text(self) -> bool:
        return self.values.dtype.kind == "O"


@dataclass(frozen=True, eq=False)
class People:
    """Distribution of the features over sessions: distinct rows of values, and the number of sessions of each."""

    features: Features  # one entry per distinct row
    counts: Float[Array, "n"]  # number of sessions of each row

    @classmethod
    def of(cls, features: Features, rng: np.random.Generator | None = None) -> People:
        """Return the rows of given features; of more than 2,000 different ones, 2,000 sessions drawn at random."""
        rows = features.rows
        if features.n_rows > MOST_PEOPLE and len(rows) > MOST_PEOPLE:
            rng = np.random.default_rng(0) if rng is None else rng
            rows = rows[np.sort(rng.choice(len(rows), MOST_PEOPLE, replace=False))]
        distinct_rows, counts = np.unique(rows, return_counts=True)
        return cls._with(features.columns, [column[distinct_rows] for column in features.table], counts)

    @classmethod
    def shared(cls, names: Sequence[str], columns: Sequence[Column], counts: Float[Array, "n"]) -> People:
        """Return combinations of codes that at least 10 sessions share; `counts` are the sessions of each entry.

        Rarer combinations are divided as long as both parts keep enough sessions, first by the columns that matter most
        for the types. A column that is still mixed in a part becomes the mean of its numbers, or missing.
        """
        codes, group = np.unique(np.stack([column.codes for column in columns]), axis=1, return_inverse=True)
        sizes = np.bincount(group.ravel(), counts)
        least = max(float(LEAST), sizes.sum() / MOST_PEOPLE)
        frequent = np.flatnonzero(sizes >= least)
        rows = [[column.values[code] for column, code in zip(columns, codes[:, one], strict=True)] for one in frequent]
        shares = sizes[frequent].tolist()
        for part in _parts(columns, codes, sizes, np.flatnonzero(sizes < least), least):
            rows.append(_representative(columns, codes[:, part], sizes[part]))
            shares.append(sizes[part].sum())
        table = [np.array(values, column.values.dtype)
                 for column, values in zip(columns, zip(*rows, strict=True), strict=True)]  # fmt: skip
        return cls._with(tuple(names), table, np.array(shares))

    @classmethod
    def _with(cls, names: Sequence[str], table: Sequence[Shaped[Array, "n"]], counts: Shaped[Array, "n"]) -> People:
        return cls(Features(tuple(names), tuple(table), np.arange(len(counts), dtype=np.int32)), counts.astype(float))

    def calibrated(self, weights: Float[Array, "n M"], mean: Float[Array, "M"]) -> People:
        """Return the same rows with counts that restore the mean type weights of the log before merging.

        This is the calibration estimator of survey sampling: the smallest relative changes (sum of squares) with this
        mean.
        """
        apart = weights - self.shares @ weights
        covariance = (self.shares[:, None] * apart).T @ apart
        change = apart @ np.linalg.pinv(covariance, 1e-9, hermitian=True) @ (mean - self.shares @ weights)
        return People(self.features, self.counts * np.clip(1 + change, 0.5, 2.0))

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def shares(self) -> Float[Array, "n"]:
        return np.asarray(self.counts / self.counts.sum())

    def draw(self, n: int, rng: np.random.Generator) -> Features:
        """Draw the features of n sessions."""
        return self.features.take(rng.choice(len(self), n, p=self.shares).astype(np.int32))

    def record(self) -> files.Record:
        listed = [[str(name), [None if one != one else one for one in column.tolist()], column.dtype.kind]
                  for name, column in zip(self.features.columns, self.features.table, strict=True)]  # fmt: skip
        return files.Record("people", {"columns": listed}, {"counts": self.counts})

    @classmethod
    def from_record(cls, record: files.Record) -> People:
        """Read the rows; older files hold shares instead of counts."""
        names, table = [], []
        for name, values, kind in record.fields["columns"]:
            names.append(str(name))
            column = np.array(values, object)
            table.append(np.array([np.nan if one is None else one for one in values]) if kind == "f" else column)
        return cls._with(names, table, next(iter(record.arrays.values())))


def _parts(
    columns: Sequence[Column],
    codes: Integer[Array, "J R"],
    sizes: Float[Array, "R"],
    rest: Integer[Array, "r"],
    least: float,
) -> Iterator[Integer[Array, "r"]]:
    """Divide the combinations `rest` in two repeatedly, and yield the parts that no split explains better."""
    waiting = [rest] if len(rest) else []
    while waiting:
        part = waiting.pop()
        first = _split(columns, codes[:, part], sizes[part], least)
        if first is None:
            yield part
        else:
            waiting += [part[first], part[~first]]


def _split(
    columns: Sequence[Column], codes: Integer[Array, "J R"], sizes: Float[Array, "R"], least: float
) -> Bool[Array, "R"] | None:
    """Return the first part of the split that explains most of the effects, or None if no split keeps both large.

    Numbers are cut at one threshold. Of text, one level is separated, because only a level alone keeps its name.
    """
    best, result = _NOTHING, None
    for column, column_codes in zip(columns, codes, strict=True):
        n = np.bincount(column_codes, sizes, len(column.values))
        sums = n[:, None] * column.effects
        if not column.is_text:
            n, sums = n.cumsum(), sums.cumsum(axis=0)
        total = sizes.sum()
        possible = (n >= least) & (total - n >= least)
        if not possible.any():
            continue
        explained = (sums**2).sum(axis=1) / np.maximum(n, 1)
        if not column.is_text:
            other = ((sums[-1] - sums) ** 2).sum(axis=1) / np.maximum(total - n, 1)
            explained = explained + other - (sums[-1] ** 2).sum() / total
        code = int(np.where(possible, explained, -1.0).argmax())
        if explained[code] > best:
            best, result = float(explained[code]), column_codes == code if column.is_text else column_codes <= code
    return result


def _representative(columns: Sequence[Column], codes: Integer[Array, "J R"], sizes: Float[Array, "R"]) -> list[Any]:
    """Return a row for a part, with the values that at least 10 of its sessions share; other columns are missing."""
    row: list[Any] = [column.values[-1] for column in columns]
    pairs = zip(columns, codes, strict=True)
    counts = [np.bincount(column_codes, sizes, len(column.values)) for column, column_codes in pairs]
    spread = [float((n[:, None] * (column.effects - np.average(column.effects, axis=0, weights=n)) ** 2).sum())
              for column, n in zip(columns, counts, strict=True)]  # fmt: skip
    kept = np.ones(len(sizes), bool)
    for j in np.argsort(spread, kind="stable")[::-1]:  # the columns that matter most choose first
        column, last = columns[j], len(columns[j].values) - 1
        n = np.bincount(codes[j, kept], sizes[kept], last + 1)
        if column.is_text:
            cost = ((column.effects[:, None] - column.effects) ** 2).sum(axis=2) @ n
            code = int(np.where(np.append(n[:-1] >= LEAST, True), cost, np.inf).argmin())
            if code < last:
                row[j] = column.values[code]
                kept &= codes[j] == code
        elif n[:-1].sum() >= max(LEAST, n[-1]):
            row[j] = float(np.average(column.values[:-1], weights=n[:-1]))
            kept &= codes[j] < last
    return row
