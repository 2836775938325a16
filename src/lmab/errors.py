"""Errors and warnings of the package."""

from __future__ import annotations


class LmabError(Exception):
    """Root of the package's own errors, so that a door can catch them all."""


class InvalidArgument(LmabError, ValueError):
    """An argument is not what the function needs: the message names it, the requirement and the value."""


class InvalidData(LmabError, ValueError):
    """A column of a log is not usable: the message names the column and the first offending row."""


class InvalidFile(LmabError, ValueError):
    """A file is not one of ours, is damaged, or comes from a newer version."""


class TooLarge(LmabError, ValueError):
    """An exact computation would need more states than the stated limit."""


class LmabWarning(UserWarning):
    """The result is valid, but less can be learned from the input than one may think: the message says why."""


def first_line(error: BaseException) -> str:
    """What an error of another library says, in one line."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
