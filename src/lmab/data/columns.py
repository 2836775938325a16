"""The columns of a log: by which names they are found, how their values are read, and how arms get numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer, Shaped
from ..errors import InvalidData

#: role (session, or person and time; arm, reward, step, propensity) -> name of its column; None: there is none
Columns = Mapping[str, str | None]

#: Words that names of columns contain, the most telling first.
_WORDS = {
    "session": ("session", "sess", "visit", "trip", "basket", "sid", "user", "person", "student"),
    "person": ("person", "user", "visitor", "customer", "student", "member", "client", "uid", "id"),
    "time": ("timestamp", "time", "when", "date", "ts", "at"),
    "arm": ("arm", "item", "product", "movie", "article", "page", "skill", "problem", "choice", "offer"),
    "reward": ("reward", "click", "rating", "correct", "score", "revenue", "amount", "liked", "like", "value", "paid"),
    "step": ("step", "position", "rank", "order", "time", "index"),
    "propensity": ("propensity", "pscore", "probability", "prob"),
    "ended": ("ended", "end", "left", "exit", "bounce"),
}  # fmt: skip
FEATURE = "feature "  # before the name of a feature: its role
OF_SESSIONS = ("person", "ended")  # other roles that say something of whole sessions


def require_columns(found: list[str], columns: Columns) -> list[str]:
    """The names of the columns to read; where one is missing, the error lists the columns and says which to name."""
    names = [name for name in columns.values() if name is not None]
    missing = [role for role, name in columns.items() if name is not None and name not in found]
    if missing:
        role = missing[0]
        listed = ", ".join(map(repr, found))
        guess = suggestion(role, str(columns[role]), [name for name in found if name not in names])
        what, how = ("feature", "features") if role.startswith(FEATURE) else (role, role)
        remedy = f"the {what} may be {guess!r}" if guess else f"name the column of the {what} with {how}= or --{how}"
        raise InvalidData(f"the log has no column {columns[role]!r}; its columns are {listed}; {remedy}")
    twice = [name for name in names if found.count(name) > 1]
    if twice:
        raise InvalidData(f"the log must have one column {twice[0]!r}, got {found.count(twice[0])}")
    return list(dict.fromkeys(names))


def of_session(role: str) -> bool:
    """Whether a column of this role says something of whole sessions, where these are given."""
    return role.startswith(FEATURE) or role in OF_SESSIONS


def suggestion(role: str, asked: str, free: Iterable[str]) -> str | None:
    """The column that was probably meant: one spelled alike, or one whose name says what it holds.

    Examples:
        >>> suggestion("session", "session", ["item", "sess", "click"])
        'sess'
        >>> suggestion("reward", "Click", ["item", "sess", "click"])
        'click'
    """
    plain = {name.casefold().replace("_", "").replace(" ", ""): name for name in free}
    close = get_close_matches(asked.casefold().replace("_", "").replace(" ", ""), plain, n=1, cutoff=0.8)
    if close:
        return plain[close[0]]
    for word in _WORDS.get(role, ()):
        for text, name in plain.items():
            if word in text:
                return name
    return None


Labels = tuple[str | int, ...]
Where = Callable[[int], str]  # what a row is called in messages: "row 3", "line 5 of b.csv"
_TEXTS = 1 << 20  # distinct texts collected before dictionaries are merged
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_DAY = 86400.0


class Column:
    """One column while it is read: numbers are kept, text becomes codes of a dictionary."""

    def __init__(self, name: str, role: str, where: Where, *, untyped: bool, missing: bool = False) -> None:
        self.name = name
        self.role = role
        self.untyped = untyped  # text may stand for integers
        self.seconds: float | None = None  # per unit, of a column of times; None: numbers
        self._where = where
        self._may_miss = missing  # missing values become NaN
        self._numbers: list[Array] = []
        self._codes: list[Array] = []  # Codes of texts, each in the dictionary at the same place.
        self._texts: list[Any] = []  # dictionaries
        self._pending = 0  # texts since the last merge

    def add(self, values: Any, row: int) -> None:
        """Add the values of the rows from `row` on."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if values.null_count and not self._may_miss:
            raise self._missing(row + pc.index(pc.is_null(values), True).as_py())
        try:
            self._add(_decoded(values), row)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            problem = str(error).splitlines()[0]
            raise InvalidData(f"column {self.name!r} cannot be used: it holds {values.type}: {problem}") from None

    def _add(self, values: Any, row: int) -> None:
        import pyarrow as pa

        if self.role in ("reward", "propensity"):
            self._numbers.append(self._measured(values, row))
        elif _is_text(values.type) and self.role == "time":
            example = f"({values[0].as_py()!r} in {self._where(row)})" if len(values) else ""
            form = "times such as '2024-05-01 10:30:00', or numbers"
            raise InvalidData(f"column {self.name!r} must hold {form}, got text {example}")
        elif _is_text(values.type):
            self._collect(values.cast(pa.large_string()).dictionary_encode())
        elif len(values) > 0:
            self._numbers.append(self._counted(values, row))

    def _missing(self, row: int) -> InvalidData:
        remedy = ""
        if self.role == "reward":
            remedy = ": leave such steps out (missing='drop', --missing drop) or count them as 0 (missing='zero')"
        return InvalidData(f"column {self.name!r} has a missing value in {self._where(row)}{remedy}")

    def _measured(self, values: Any, row: int) -> Float[Array, "n"]:
        import pyarrow as pa

        kind = values.type
        known = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_null)
        if not any(test(kind) for test in known):
            example = f" ({values[0].as_py()!r} in {self._where(row)})" if len(values) else ""
            remedy = ": write yes as 1 and no as 0, and decimals with a point" if _is_text(kind) else ""
            raise InvalidData(f"column {self.name!r} must hold numbers, got {kind}{example}{remedy}")
        if pa.types.is_boolean(kind):
            values = values.cast(pa.uint8())
        numbers = as_numpy(values.cast(pa.float64(), safe=False))
        probability = self.role == "propensity"
        good = (numbers > 0) & (numbers <= 1) if probability else np.isfinite(numbers)
        if self._may_miss:
            good |= np.isnan(numbers)
        if not good.all():
            bad = int((~good).argmax())
            if np.isnan(numbers[bad]):
                raise self._missing(row + bad)
            text = "in (0, 1]" if probability else "finite"
            raise InvalidData(f"column {self.name!r} must be {text}, got {numbers[bad]} in {self._where(row + bad)}")
        return numbers

    def _counted(self, values: Any, row: int) -> Shaped[Array, "n"]:
        """The values as integers; ids may also be times and other numbers."""
        import pyarrow as pa

        kind = values.type
        integer = pa.types.is_integer(kind)
        if self.role == "arm" and not integer:
            example = f"({values[0].as_py()!r} in {self._where(row)})"
            raise InvalidData(f"column {self.name!r} must hold integers or text, got {kind} {example}")
        if pa.types.is_temporal(kind):
            self.seconds = _UNITS.get(getattr(kind, "unit", ""), 1e-3 if pa.types.is_date64(kind) else _DAY)
            values = values.cast(pa.int32() if kind.bit_width == 32 else pa.int64(), safe=False)
        elif not (integer or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
            raise InvalidData(f"column {self.name!r} must hold integers, text or times, got {kind}")
        numbers: Shaped[Array, "n"] = as_numpy(values)
        if numbers.dtype.kind == "f" and np.isnan(numbers).any():
            raise self._missing(row + int(np.isnan(numbers).argmax()))
        if numbers.dtype == np.int64 and numbers.min() >= -(2**31) and numbers.max() < 2**31:
            return numbers.astype(np.int32)
        return numbers

    def _collect(self, encoded: Any) -> None:
        self._codes.append(as_numpy(encoded.indices))
        self._texts.append(encoded.dictionary)
        self._pending += len(encoded.dictionary)
        if self._pending > max(_TEXTS, len(self._texts[0])):
            self._merge()

    def _merge(self) -> None:
        """Merge all texts so far into one sorted dictionary; sorting needs far less memory than hashing."""
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = pa.concat_arrays(self._texts)
        order = as_numpy(pc.sort_indices(texts))
        texts = texts.take(order)
        new = np.ones(len(texts), bool)
        new[1:] = as_numpy(pc.not_equal(texts[1:], texts[:-1]))
        place = np.empty(len(texts), np.int32)
        place[order] = np.cumsum(new) - 1
        starts = np.cumsum([0, *map(len, self._texts)])
        self._codes = [place[start + codes] for start, codes in zip(starts, self._codes, strict=False)]
        self._codes, self._texts, self._pending = [np.concatenate(self._codes)], [texts.filter(pa.array(new))], 0

    def _coded(self) -> tuple[Integer[Array, "S"], Any]:
        """A code per row, and the sorted distinct texts; integers where a CSV column holds nothing else."""
        import pyarrow as pa

        self._merge()
        distinct = self._texts[0]
        if self.untyped:
            with suppress(pa.ArrowInvalid):
                distinct = distinct.cast(pa.int64())
        return self._codes[0], distinct

    def take(self) -> tuple[Shaped[Array, "n"], Any]:
        """What was added since the last call: numbers and None, or codes and the dictionary of texts that they name."""
        self._require_one_type()
        if self._texts:
            (codes,), (texts,) = self._codes, self._texts
            self._codes, self._texts, self._pending = [], [], 0
            return codes, texts
        (numbers,), self._numbers = self._numbers, []
        return numbers, None

    def _require_one_type(self) -> None:
        if self._texts and self._numbers:
            raise InvalidData(f"column {self.name!r} must hold text or numbers in all files, got text in some only")

    def numbers(self) -> Float[Array, "S"]:
        """The measured numbers of all rows."""
        return np.concatenate(self._numbers)

    def names(self, rows: Integer[Array, "n"]) -> Shaped[Array, "n"]:
        """The ids of some rows as the log has them."""
        if not self._texts:
            return np.concatenate(self._numbers)[rows]
        codes, distinct = self._coded()
        return np.array(distinct.to_pylist(), object)[codes[rows]]

    def ids(self) -> Shaped[Array, "S"]:
        """Numbers in the same order as the column's values; text becomes its rank."""
        import pyarrow.compute as pc

        self._require_one_type()
        if not self._texts:
            return np.concatenate(self._numbers)
        codes, distinct = self._coded()
        return as_numpy(pc.rank(distinct, tiebreaker="dense")).astype(np.int32)[codes]

    def arms(self, labels: Labels | None, n_arms: int = 0) -> tuple[Integer[Array, "S"], Labels | None]:
        """Arm numbers, and the table of labels; arms that are the numbers 0, 1, 2, ... without a gap have none.

        Of the first `n_arms` numbers, some may never have been played.
        """
        self._require_one_type()
        if self._texts:
            codes, distinct = self._coded()
            seen = distinct.to_pylist()
        else:
            values = np.concatenate(self._numbers)
            if labels is None and is_plain(values, n_arms):
                return values.astype(np.int32), None
            numbers, codes = np.unique(values, return_inverse=True)
            seen = numbers.tolist()
        if labels is None and isinstance(seen[0], int) and is_plain(np.array(seen), n_arms):
            return np.array(seen, np.int32)[codes], None
        known = tuple(sorted(seen)) if labels is None else labels
        place = {label: arm for arm, label in enumerate(known)}
        unknown = [code for code, label in enumerate(seen) if label not in place]
        if unknown:
            row = int((codes == unknown[0]).argmax())
            raise InvalidData(
                f"column {self.name!r} names an unknown arm, {seen[unknown[0]]!r}, in {self._where(row)}; "
                f"{len(known)} are known: {some(known)}"
            )
        return np.array([place[label] for label in seen], np.int32)[codes], known


def is_plain(numbers: Integer[Array, "n"], n_arms: int) -> bool:
    """Whether integers are arm numbers: 0, 1, 2, ... without a gap; otherwise they are names."""
    low, top = int(numbers.min()), int(numbers.max())
    if low < 0 or top >= max(len(numbers), n_arms):
        return False
    return top < n_arms or top + 1 == len(np.unique(numbers))


def _decoded(values: Any) -> Any:
    """Plain values instead of dictionaries, text instead of bytes, because Parquet writes the same in many ways."""
    import pyarrow as pa

    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type) or str(values.type) == "string_view":
        values = values.cast(pa.string())
    return values


def as_numpy(values: Any) -> Shaped[Array, "n"]:
    """Return the numbers of an Arrow array; missing ones become NaN.

    Arrow's own conversion imports pandas if it is installed, which takes longer than reading a small log.
    """
    import pyarrow as pa

    whole = not values.null_count and isinstance(values, pa.Array)
    if whole and pa.types.is_boolean(values.type):
        return np.from_dlpack(values.cast(pa.uint8())).astype(bool)
    if whole and (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        return np.from_dlpack(values)
    return values.to_numpy(zero_copy_only=False)


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def some(labels: Labels) -> str:
    return ", ".join(map(repr, labels[:5])) + (", ..." if len(labels) > 5 else "")


def arm_numbers(
    seen: Sequence[str | int], labels: Labels | None, least: int, name: str, *, untyped: bool
) -> tuple[Integer[Array, "a"], int, Labels | None]:
    """The number of each arm, how many arms there are, and their labels; None: arms are 0, 1, 2, ...

    Args:
        seen: arms as the log names them.
        labels: the table of labels, where it is known.
        least: arms there are at least.
        name: the column, for messages.
        untyped: text may stand for integers, where all of it does.

    Examples:
        >>> arm_numbers(["tea", "milk"], None, 0, "item", untyped=False)
        (array([1, 0]), 2, ('milk', 'tea'))
        >>> arm_numbers([1, 0], None, 3, "item", untyped=False)
        (array([1, 0]), 3, None)
    """
    found = list(seen)
    if untyped and isinstance(found[0], str) and (labels is None or isinstance(labels[0], int)):
        found = _as_integers(found)
    numbers = np.array(found) if isinstance(found[0], int) else None
    if labels is None and numbers is not None and is_plain(numbers, least):
        return numbers.astype(np.int64), max(least, int(numbers.max()) + 1), None
    known = tuple(sorted(set(found))) if labels is None else labels
    place = {label: arm for arm, label in enumerate(known)}
    unknown = [label for label in found if label not in place]
    if unknown:
        raise InvalidData(
            f"column {name!r} names an unknown arm, {unknown[0]!r}; {len(known)} are known: {some(known)}"
        )
    return np.array([place[label] for label in found]), len(known), known


def by_place(seen: Sequence[int], numbers: Integer[Array, "a"]) -> Integer[Array, "b"]:
    """The number of each arm, where arms that are small integers stand at their own places."""
    table = np.zeros(max(seen) + 1, np.int64)
    table[np.asarray(seen)] = numbers
    return table


def _as_integers(texts: list[str | int]) -> list[str | int]:
    import pyarrow as pa

    encoded = [str(text).encode() for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    buffers = pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))  # `pa.array` would import pandas
    try:
        return pa.StringArray.from_buffers(len(encoded), *buffers).cast(pa.int64()).to_pylist()
    except pa.ArrowInvalid:
        return texts
