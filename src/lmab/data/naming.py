"""The columns of a log by their roles; where a name is wrong, the name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from ..errors import InvalidData

#: role (session, or person and time; arm, reward, step, propensity) -> name of its column; None: there is none
Columns = Mapping[str, str | None]

#: Words that names of columns contain, the most telling first.
_WORDS = {
    "session": ("session", "sess", "session", "visit", "trip", "basket", "sid", "user", "person", "student"),
    "person": ("person", "user", "visitor", "customer", "student", "member", "client", "uid", "id"),
    "time": ("timestamp", "time", "when", "date", "ts", "at"),
    "arm": ("arm", "arm", "item", "product", "movie", "article", "page", "skill", "problem", "choice", "offer"),
    "reward": ("reward", "click", "rating", "correct", "score", "revenue", "amount", "liked", "like", "value", "paid"),
    "step": ("step", "position", "rank", "order", "time", "index"),
    "propensity": ("propensity", "pscore", "probability", "prob"),
}  # fmt: skip


def require_columns(found: list[str], columns: Columns) -> list[str]:
    """The names of the columns to read; where one is missing, the error lists the columns and says which to name."""
    names = [name for name in columns.values() if name is not None]
    missing = [role for role, name in columns.items() if name is not None and name not in found]
    if missing:
        role = missing[0]
        listed = ", ".join(map(repr, found))
        guess = suggestion(role, str(columns[role]), [name for name in found if name not in names])
        remedy = f"pass {role}={guess!r}" if guess else f"pass {role}=... with the name of the column"
        raise InvalidData(f"the log has no column {columns[role]!r}; its columns are {listed}; {remedy}")
    twice = [name for name in names if found.count(name) > 1]
    if twice:
        raise InvalidData(f"the log must have one column {twice[0]!r}, got {found.count(twice[0])}")
    return list(dict.fromkeys(names))


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
    for word in _WORDS[role]:
        for text, name in plain.items():
            if word in text:
                return name
    return None
