"""Numbers with their nouns, for sentences that people read."""

from __future__ import annotations


def count(number: int, noun: str, plural: str | None = None) -> str:
    """`1 type`, `3 types`, `12,000 sessions`.

    Examples:
        >>> count(1, "type"), count(12000, "session"), count(2, "directory", "directories")
        ('1 type', '12,000 sessions', '2 directories')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
