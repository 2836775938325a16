"""What a log knows of a session besides its steps: features, known before its first step, the person, how it ended.

Features are a table of distinct rows and the row of each session. A column holds numbers or text. NaN and None are
missing values, which never drop a session.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._shapes import Array, Bool, Integer, Shaped
from ..errors import InvalidArgument, InvalidData, LmabWarning

ENDED = ("left", "went on", "unknown")  # how a session ended: the person left, we cut it, the log has a limit there
LEFT, WENT_ON, UNKNOWN = range(3)  # their codes
STRANGER = np.iinfo(np.int64).min  # the person of a session, where ids are integers and nobody knows who it was
_WIDE = 1 << 62  # keys of rows stay below this
_WIDEST = 1 << 63  # Ids of persons, too.
_EXACT = 1 << 53  # Integers below it are exact as floats.
_PER_WORD = 10  # distinct numbers for each word in a column of numbers; codes that mix both have fewer
_YES, _NO = ("true", "1", "1.0"), ("false", "0", "0.0")  # whether the person left, in columns of other forms


@dataclass(frozen=True, eq=False)
class Features(Mapping[str, Array]):
    """A mapping from the name of a column to its value in every session.

    Examples:
        >>> features = Features.of({"country": ["de", "fr", "de"], "age": [31, None, 31]}, 3)
        >>> features["country"]
        array(['de', 'fr', 'de'], dtype=object)
        >>> features["age"]
        array([31., nan, 31.])
        >>> features.rows, features.n_rows
        (array([0, 1, 0], dtype=int32), 2)
    """

    columns: tuple[str, ...]
    table: tuple[Shaped[Array, "R"], ...]  # per column the value of each distinct row: float64 (NaN) or text (None)
    rows: Integer[Array, "N"]  # the distinct row of each session

    @classmethod
    def of(cls, given: Mapping[str, Any], n_sessions: int) -> Features:
        """Features from columns with one value per session."""
        require_mapping(given)
        if not given:
            raise InvalidArgument("features must hold at least one column, got none")
        unnamed = [name for name in given if not isinstance(name, str)]
        if unnamed:
            raise InvalidArgument(f"features must be named by text, got {unnamed[0]!r}")
        if isinstance(given, Features):
            columns, table, rows = given.columns, given.table, given.rows
        else:
            columns = tuple(given)
            values = [column_values(name, given[name]) for name in columns]
            for name, column in zip(columns, values, strict=True):
                if len(column) != n_sessions:
                    raise InvalidArgument(
                        f"features[{name!r}] must hold one value for each of the {n_sessions} sessions, "
                        f"got {len(column)}"
                    )
            table, rows = _distinct(values)
        if len(rows) != n_sessions:
            raise InvalidArgument(f"features must hold {n_sessions} sessions, got {len(rows)}")
        return cls(columns, table, rows)

    @property
    def n_rows(self) -> int:
        """The number of distinct rows; without columns all are the same."""
        return len(self.table[0]) if self.table else 1

    def __getitem__(self, name: str) -> Shaped[Array, "N"]:
        if name not in self.columns:
            raise KeyError(name)
        return self.table[self.columns.index(name)][self.rows]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def take(self, sessions: Any) -> Features:
        """Those of some sessions, with the same table of rows."""
        return Features(self.columns, self.table, self.rows[sessions])

    def only(self, columns: Sequence[str]) -> Features:
        """Some of the columns."""
        kept = [name for name in self.columns if name in columns]
        rows = self.rows if kept else np.zeros_like(self.rows)
        return Features(tuple(kept), tuple(self.table[self.columns.index(name)] for name in kept), rows)

    def __add__(self, other: Features) -> Features:
        """Those of the sessions of both."""
        if self.columns != other.columns:
            raise InvalidArgument(
                f"both logs must have the same features, got {list(self.columns)} and {list(other.columns)}"
            )
        both = [_joined(name, *pair) for name, *pair in zip(self.columns, self.table, other.table, strict=True)]
        table, places = _distinct(both)
        return Features(self.columns, table, places[np.concatenate([self.rows, self.n_rows + other.rows])])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Features):
            return NotImplemented
        return self.columns == other.columns and all(_same(self[name], other[name]) for name in self.columns)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Features({', '.join(self.columns)}; {len(self.rows)} sessions, {self.n_rows} distinct rows)"

    @classmethod
    def from_rows(
        cls, columns: Sequence[str], rows: Sequence[Sequence[Any]], of_sessions: Integer[Array, "N"], *, untyped: bool
    ) -> Features:
        """Features from the values of distinct rows; texts may stand for numbers where they are `untyped`."""
        table = []
        for name, values in zip(columns, zip(*rows, strict=True), strict=True):
            column = column_values(name, list(values))
            table.append(_untyped(name, column) if untyped and column.dtype.kind == "O" else column)
        return cls(tuple(columns), tuple(table), of_sessions)

    @property
    def table_rows(self) -> list[list[Any]]:
        """The distinct rows, with None for a missing value."""
        columns = ([None if one != one else one for one in column.tolist()] for column in self.table)
        return [list(row) for row in zip(*columns, strict=True)]

    @property
    def words(self) -> Shaped[Array, "R"]:
        """64 bits of a hash of each distinct row, for checksums."""
        texts = ("\x1f".join(map(repr, row)) for row in zip(*(column.tolist() for column in self.table), strict=True))
        digests = b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
        return np.frombuffer(digests, np.uint64)


def require_mapping(features: Any) -> None:
    """Raise, with the way out where it is a data frame, unless columns are given by name."""
    if isinstance(features, Mapping):
        return
    how = ": give {'country': frame['country']}" if hasattr(features, "columns") else ""
    raise InvalidArgument(
        f"features must be a mapping such as {{'country': values}}, got a {type(features).__name__}{how}"
    )


def column_values(name: str, given: Any) -> Shaped[Array, "n"]:
    """A column as numbers (NaN: missing) or text (None: missing); values of other kinds, and both kinds, raise."""
    values = _array(given)
    if values.ndim != 1:
        raise InvalidArgument(f"features[{name!r}] must be one-dimensional, got the shape {values.shape}")
    if values.dtype.kind == "O":
        values = _objects(name, values)
    elif values.dtype.kind in "US":
        values = values.astype(str).astype(object)
    if values.dtype.kind in "biuf":
        values = values.astype(np.float64) + 0.0  # -0.0 is 0.0
        if np.isinf(values).any():
            raise InvalidData(f"features[{name!r}] must hold finite numbers, got {values[np.isinf(values)][0]}")
    elif values.dtype.kind != "O":
        raise InvalidData(f"features[{name!r}] must hold numbers or text, got {values.dtype}")
    return values


def _array(given: Any) -> Shaped[Array, "..."]:
    """An array of what was given; a list keeps its numbers and texts apart, which NumPy would make all text."""
    return np.array(given, object) if isinstance(given, list | tuple) else np.asarray(given)


def _objects(name: str, values: Shaped[Array, "n"]) -> Shaped[Array, "n"]:
    """Objects as numbers or as text; None, NaN and the missing value of pandas become NaN or None."""
    missing = np.array([_is_missing(value) for value in values], bool)
    known = values[~missing]
    kinds = {str if isinstance(value, str) else float if _is_number(value) else type(value) for value in known}
    if kinds - {str, float} or len(kinds) > 1:
        names = sorted({type(value).__name__ for value in known})
        raise InvalidData(f"features[{name!r}] must hold numbers or text, got values of {', '.join(names)}")
    if kinds == {float}:
        numbers = np.full(len(values), np.nan)
        try:
            numbers[~missing] = known.astype(np.float64)
        except OverflowError:
            raise InvalidData(f"features[{name!r}] must hold numbers below 1e308, got larger ones") from None
        return numbers
    texts = np.full(len(values), None, object)
    texts[~missing] = known
    return texts


def _untyped(name: str, texts: Shaped[Array, "n"]) -> Shaped[Array, "n"]:
    """Return texts as numbers if all of them are."""
    return column_values(name, np.array(_mostly_numbers(name, texts.tolist()), object))


def _is_missing(value: Any) -> bool:
    """None, NaN, and the missing values of pandas, which cannot be compared."""
    kind = type(value).__name__
    return value is None or kind in ("NAType", "NaTType") or (isinstance(value, float | np.floating) and value != value)


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating)


def _joined(name: str, first: Shaped[Array, "r"], second: Shaped[Array, "s"]) -> Shaped[Array, "t"]:
    if first.dtype != second.dtype:
        first, second = _alike(first, second), _alike(second, first)
    if first.dtype != second.dtype:
        raise InvalidArgument(f"features[{name!r}] must hold text or numbers in both logs, got text in one only")
    return np.concatenate([first, second])


def _alike(values: Shaped[Array, "r"], other: Shaped[Array, "s"]) -> Shaped[Array, "r"]:
    """The values in the form of others, where all of them are missing: then they are neither text nor numbers."""
    if not all(_is_missing(value) for value in values.tolist()):
        return values
    return np.full(len(values), np.nan) if other.dtype.kind == "f" else np.full(len(values), None, object)


def _same(first: Shaped[Array, "n"], second: Shaped[Array, "m"]) -> bool:
    return first.dtype == second.dtype and np.array_equal(first, second, equal_nan=first.dtype.kind == "f")


def _distinct(columns: list[Shaped[Array, "n"]]) -> tuple[tuple[Shaped[Array, "r"], ...], Integer[Array, "n"]]:
    """The distinct rows of columns, and the row of each entry."""
    n = len(columns[0])
    keys, size = np.zeros(n, np.int64), 1
    for column in columns:
        codes, n_codes = _codes(column)
        if size * n_codes >= _WIDE:
            found, keys = np.unique(keys, return_inverse=True)
            size = len(found)
        keys, size = keys * n_codes + codes, size * n_codes
    _, first, rows = np.unique(keys, return_index=True, return_inverse=True)
    return tuple(column[first] for column in columns), rows.astype(np.int32)


def _codes(column: Shaped[Array, "n"]) -> tuple[Integer[Array, "n"], int]:
    if column.dtype.kind == "f":
        found, codes = np.unique(column, return_inverse=True)
        return codes, len(found)
    numbers: dict[Any, int] = {}
    codes = np.array([numbers.setdefault(value, len(numbers)) for value in column.tolist()], np.int64)
    return codes, len(numbers)


def session_values(
    codes: Integer[Array, "S"], values: Shaped[Array, "v"], offsets: Integer[Array, "N1"], *, last: bool = False
) -> tuple[Shaped[Array, "N"], Bool[Array, "N"]]:
    """Return the value of each session, and whether its rows disagree.

    A missing value, the last of the values, agrees with any other. With `last` the last row of a session decides.
    """
    if last:
        return values[codes[offsets[1:] - 1]], np.zeros(len(offsets) - 1, bool)
    missing = codes == len(values) - 1
    low = np.minimum.reduceat(codes, offsets[:-1])
    high = np.maximum.reduceat(np.where(missing, -1, codes), offsets[:-1])
    return values[low], (high >= 0) & (low != high)


def typed_values(name: str, listed: list[Any], *, ids: bool, untyped: bool, words: bool) -> Shaped[Array, "v"]:
    """Return distinct values as numbers or text, with a missing value at the end.

    Args:
        name: the column, for messages.
        listed: the distinct values.
        ids: whether integers are names, so that every digit counts.
        untyped: whether text may stand for numbers.
        words: whether the values are words, such as the ends of sessions.
    """
    if untyped and not words:
        listed = _as_ids(listed) if ids else _mostly_numbers(name, listed)
    values = np.array([*listed, None], object)
    return values if ids or words else column_values(name, values)


def _mostly_numbers(name: str, texts: list[Any]) -> list[Any]:
    """Return the distinct texts of an untyped file as numbers if all of them are, except for a few words.

    Words such as "unknown" stand for missing values in a column of numbers; as text, each number would become a
    category of its own. A warning names them.
    """
    parsed = {text: _parsed(text) for text in texts if text is not None}
    words = sorted(text for text, number in parsed.items() if number is None)
    if words and len(parsed) - len(words) < _PER_WORD * len(words):
        return texts
    if words:
        shown = ", ".join(map(repr, words[:3])) + (", ..." if len(words) > 3 else "")
        warnings.warn(
            f"column {name!r} must hold numbers or text, got numbers and {shown}, read as missing: rename the numbers "
            f"if they are names",
            LmabWarning,
            stacklevel=2,
        )
    return [None if text is None else parsed[text] for text in texts]


def _parsed(text: Any) -> float | None:
    """Return the number that a text stands for; None if it is a word."""
    try:
        return None if "_" in str(text) else float(text)
    except ValueError:
        return None


def _as_ids(texts: list[Any]) -> list[Any]:
    """Return texts of an untyped file as integers if all of them are, or are floats that are exact integers."""
    try:
        if not any("_" in text for text in texts if text is not None):
            found = [None if text is None else int(text) for text in texts]
            if all(one is None or -_WIDEST <= one < _WIDEST for one in found):
                return found
    except ValueError:
        pass
    numbers = [None if text is None else _parsed(text) for text in texts]
    known = [number for text, number in zip(texts, numbers, strict=True) if text is not None]
    exact = all(one is not None and (one != one or (abs(one) < _EXACT and one.is_integer())) for one in known)
    return numbers if exact else texts


def person_values(given: Any, n_sessions: int) -> Shaped[Array, "N"]:
    """Ids of persons, one per session: integers or text, and None for a stranger, who never comes back."""
    found = _array(given)
    if found.shape != (n_sessions,):
        raise InvalidArgument(f"persons must hold one id for each of the {n_sessions} sessions, got {found.shape}")
    if found.dtype.kind in "iu":
        return found.astype(np.int64)
    if found.dtype.kind == "U":
        return found.astype(object)
    ids = [None if _is_missing(one) else _person(one) for one in found.astype(object).tolist()]
    kinds = {type(one) for one in ids if one is not None}
    if len(kinds) > 1 or kinds - {int, str}:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise InvalidData(f"persons must be all integers or all text, got values of {names}")
    large = [one for one in ids if isinstance(one, int) and not -_WIDEST <= one < _WIDEST]
    if large:
        raise InvalidData(f"persons must be integers of 64 bits or text, got {large[0]}")
    return np.array(ids, np.int64 if kinds == {int} and None not in ids else object)


def _person(one: Any) -> Any:
    """An id, where a column with missing values may hold integers as floats."""
    whole = isinstance(one, int | np.integer) or (isinstance(one, float | np.floating) and one.is_integer())
    return int(one) if whole else one


def person_numbers(persons: Shaped[Array, "N"]) -> Integer[Array, "N"]:
    """A number from 0 for each person, in the order of the log, so that a hash of names gives the same numbers.

    Every stranger has one of his own.
    """
    if persons.dtype != object:
        _, first, found = np.unique(persons, return_index=True, return_inverse=True)
        came = first[found]  # The session in which each one came first.
        strangers = np.flatnonzero(persons == STRANGER)
        came[strangers] = strangers
        return np.unique(came, return_inverse=True)[1]
    numbers: dict[Any, int] = {}
    keys = ((one, 0) if one is not None else (None, place) for place, one in enumerate(persons.tolist()))
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


def person_ids(persons: Shaped[Array, "N"]) -> Integer[Array, "N"]:
    """An integer for each id: itself, or 64 bits of a hash of the text."""
    if persons.dtype != object:
        return persons.astype(np.int64)
    words = ("" if one is None else str(one) for one in persons.tolist())
    digests = b"".join(hashlib.blake2b(word.encode(), digest_size=8).digest() for word in words)
    found = np.frombuffer(digests, np.int64)
    if any(isinstance(one, int) for one in persons.tolist()):
        found = np.array([0 if one is None else one for one in persons.tolist()], np.int64)
    return np.where([one is None for one in persons.tolist()], STRANGER, found)


def ending_codes(given: Any, n_sessions: int) -> Integer[Array, "N"]:
    """The code of how each session ended: from its word, or from whether the person left."""
    found = np.asarray(given)
    if found.shape != (n_sessions,):
        raise InvalidArgument(f"ended must hold one entry for each of the {n_sessions} sessions, got {found.shape}")
    codes = dict(zip(ENDED, range(3), strict=True))
    codes |= dict.fromkeys(_YES, LEFT) | dict.fromkeys(_NO, WENT_ON) | dict.fromkeys(("None", "nan", ""), UNKNOWN)
    words = [str(one).strip() for one in found.tolist()]
    wrong = [word for word in set(words) if word.lower() not in codes and word not in codes]
    if wrong:
        raise InvalidData(
            f"ended must be 'left', 'went on' or 'unknown' (or true where the person left), got {wrong[0]!r}"
        )
    return np.array([codes.get(word, codes.get(word.lower(), UNKNOWN)) for word in words], np.uint8)


def limit_codes(lengths: Integer[Array, "N"], limit: int) -> Integer[Array, "N"]:
    """How sessions ended in a log that keeps at most `limit` steps: shorter ones left, the others are unknown."""
    if lengths.max() > limit:
        raise InvalidData(f"limit must be at least the longest session, which has {lengths.max()} steps, got {limit}")
    return np.where(lengths == limit, UNKNOWN, LEFT).astype(np.uint8)


def require_endings(lengths: Integer[Array, "N"], endings: Integer[Array, "E"]) -> None:
    """Raise unless all sessions of the longest length are unknown, or none: else who is unknown tells the type."""
    if len(endings) != len(lengths):
        raise InvalidArgument(f"ended must hold one entry for each of the {len(lengths)} sessions, got {len(endings)}")
    unknown = endings == UNKNOWN
    if not unknown.any():
        return
    limit = int(lengths.max())
    at_limit = lengths == limit
    if (unknown != at_limit).any():
        raise InvalidData(
            f"ended may be 'unknown' only of all sessions at the limit of the log, got {int(unknown.sum())} unknown "
            f"sessions, {int((unknown & at_limit).sum())} of them among the {int(at_limit.sum())} of {limit} steps: "
            f"whose end is known would depend on the person; give limit={limit} instead, or leave ended out"
        )
