"""Columns of a log: their roles and names, and the numbers of arms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

import numpy as np

from .._shapes import Array, Integer
from ..errors import InvalidData

#: role (session, or person and time; arm, reward, step, propensity) -> name of its column, or None
Columns = Mapping[str, str | None]

#: Words in the names of columns of each role, the most specific first.
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
OF_SESSIONS = ("person", "ended")  # other roles with one value per session


def require_columns(found: list[str], columns: Columns) -> list[str]:
    """Return the names of the columns to read; raise with the columns of the log if one is missing."""
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
    """Return whether a column of this role holds one value per session."""
    return role.startswith(FEATURE) or role in OF_SESSIONS


def roles_of_sessions(columns: Columns) -> list[str]:
    """Return the roles of the columns with one value per session; the person of events names the sessions instead."""
    named = [role for role, name in columns.items() if name is not None and of_session(role)]
    return [role for role in named if role != "person" or columns.get("session") is not None]


def suggestion(role: str, asked: str, free: Iterable[str]) -> str | None:
    """Return the column that was probably meant: one of a similar name, or one whose name suggests its content.

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


def arm_numbers(
    seen: Sequence[str | int], labels: Labels | None, least: int
) -> tuple[Integer[Array, "a"], int, Labels | None]:
    """Return the number of each distinct arm, the number of arms, and their labels (None: 0, 1, 2, ... without a gap).

    Args:
        seen: the distinct arms of the log, ascending.
        labels: the table of labels, if it is known; arms that it lacks have the number -1.
        least: the least number of arms.

    Examples:
        >>> arm_numbers(["milk", "tea"], None, 0)
        (array([0, 1]), 2, ('milk', 'tea'))
        >>> arm_numbers([0, 1], None, 3)
        (array([0, 1]), 3, None)
        >>> arm_numbers(["milk", "tea"], ("tea", "water"), 0)
        (array([-1,  0]), 2, ('tea', 'water'))
    """
    plain = isinstance(seen[0], int) and int(seen[0]) >= 0
    if labels is None and plain and (int(seen[-1]) < least or int(seen[-1]) + 1 == len(seen)):
        return np.array(seen, np.int64), max(least, int(seen[-1]) + 1), None
    known = tuple(seen) if labels is None else labels
    place = {label: arm for arm, label in enumerate(known)}
    return np.array([place.get(label, -1) for label in seen], np.int64), len(known), known


def some(labels: Labels) -> str:
    """Return the first labels for a message."""
    return ", ".join(map(repr, labels[:5])) + (", ..." if len(labels) > 5 else "")
