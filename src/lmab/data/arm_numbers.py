"""The numbers of arms that were seen in any order: the same as for a log that is read into memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._shapes import Array, Integer
from ..errors import InvalidData
from .columns import Labels, is_plain, some


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

    try:
        return pa.array(texts).cast(pa.int64()).to_pylist()
    except pa.ArrowInvalid:
        return texts
