"""Numbers with their nouns, for sentences that people read."""

from __future__ import annotations

from ._shapes import Array, Integer


def count(number: int, noun: str, plural: str | None = None) -> str:
    """`1 type`, `3 types`, `12,000 sessions`.

    Examples:
        >>> count(1, "type"), count(12000, "session"), count(2, "directory", "directories")
        ('1 type', '12,000 sessions', '2 directories')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listing(numbers: Integer[Array, "n"]) -> str:
    """The first five numbers, and how many more there are."""
    shown = ", ".join(str(number) for number in numbers[:5].tolist())
    return shown + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")
