"""Errors and warnings of the package."""

from __future__ import annotations

from typing import Any


class LmabError(Exception):
    """Base class of the package's errors, so that a program can catch all of them."""


class InvalidArgument(LmabError, ValueError):
    """An argument is not what the function needs: the message names the argument, the requirement and the value."""


class InvalidData(LmabError, ValueError):
    """A column of a log cannot be used: the message names the column and the first wrong row."""


class InvalidFile(LmabError, ValueError):
    """A file is not a file of lmab, is damaged, or was written by a newer version."""


class TooLarge(LmabError, ValueError):
    """A computation would need more states or memory than there may be."""


class ClusterLost(LmabError):
    """The cluster that passes ran on does not answer; `fit` holds the best model so far, where there is one."""

    def __init__(self, message: str, estimate: Any = None) -> None:
        super().__init__(message)
        self.estimate = estimate


class LmabWarning(UserWarning):
    """The result is valid, but the input tells less than a reader may expect: the message says why."""


def first_line(error: BaseException) -> str:
    """The message of an error, cut to one line."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
