"""Errors and warnings of the package, and the status with which an estimate or a plan ended."""

from __future__ import annotations

from enum import StrEnum
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
    """The cluster that passes ran on does not answer; `estimate` holds the best model so far, where there is one."""

    def __init__(self, message: str, estimate: Any = None) -> None:
        super().__init__(message)
        self.estimate = estimate


class LmabWarning(UserWarning):
    """The result is valid, but the input tells less than a reader may expect: the message says why."""


def first_line(error: BaseException) -> str:
    """The message of an error, cut to one line."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


class Status(StrEnum):
    """How an estimate or a plan ended; equal to its name as text, so that `status == "converged"` holds.

    Examples:
        >>> Status.CONVERGED == "converged", Status.named("time limit").finished
        (True, False)
        >>> Status.ITERATION_LIMIT.sentence
        'The limit on iterations was reached before convergence: allow more of them.'
    """

    sentence: str  # what happened, and what to do about it
    finished: bool  # the method did all that it set out to do

    def __new__(cls, name: str, sentence: str, finished: bool) -> Status:
        member = str.__new__(cls, name)
        member._value_ = name
        member.sentence = sentence
        member.finished = finished
        return member

    CONVERGED = "converged", "The fit converged.", True
    ITERATION_LIMIT = (
        "iteration limit", "The limit on iterations was reached before convergence: allow more of them.", False,
    )  # fmt: skip
    UNMATCHED = (
        "unmatched",
        "No parameters were found whose moments are the measured ones within their errors: allow more types or "
        "restarts, and check that arms were chosen without looking at the session's own rewards.",
        False,
    )
    OPTIMAL = "optimal", "No policy earns more.", True
    CERTIFIED = "certified", "The gap that was asked for is proved.", True
    TIME_LIMIT = (
        "time limit", "The time limit came before the asked gap was proved; the bounds hold. Raise time_limit.", False,
    )  # fmt: skip
    MEMORY_LIMIT = (
        "memory limit", "The memory limit came before the asked gap was proved; the bounds hold. Raise memory_limit.",
        False,
    )  # fmt: skip
    HEURISTIC = "heuristic", "The method promises no gap; the bounds hold.", True
    INTERRUPTED = "interrupted", "The caller stopped the computation; this is the best result until then.", False

    @classmethod
    def named(cls, text: str) -> Status:
        """The status that equals `text`."""
        for status in cls:
            if status == text:
                return status
        raise InvalidArgument(f"status must be one of {', '.join(map(repr, cls))}, got {text!r}")

    def __repr__(self) -> str:
        return repr(str(self))  # a status shows as the text that it equals
