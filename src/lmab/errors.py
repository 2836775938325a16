"""Errors and warnings of the package, and the outcome of an estimation or of planning."""

from __future__ import annotations

from enum import StrEnum
from typing import Any


class LmabError(Exception):
    """Base class of the package's errors, so that a program can catch all of them."""


class InvalidArgument(LmabError, ValueError):
    """Invalid argument; the message names the argument, the requirement and the value."""


class InvalidData(LmabError, ValueError):
    """Invalid column of a log; the message names the column and the first invalid row."""


class InvalidFile(LmabError, ValueError):
    """File that lmab did not write, that is damaged, or that a newer version wrote."""


class TooLarge(LmabError, ValueError):
    """Computation that would exceed the limit on states or memory."""


class ClusterLost(LmabError):
    """Cluster that stopped responding during a fit; `estimate` holds the best model so far, or None."""

    def __init__(self, message: str, estimate: Any = None) -> None:
        super().__init__(message)
        self.estimate = estimate


class LmabWarning(UserWarning):
    """Warning about a valid result that the input supports only weakly; the message gives the reason."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


class Status(StrEnum):
    """Outcome of an estimation or of planning; equal to its name as text, so that `status == "converged"` holds.

    Examples:
        >>> Status.CONVERGED == "converged", Status.named("time limit").finished
        (True, False)
        >>> Status.ITERATION_LIMIT.sentence
        'The limit on iterations was reached before convergence: allow more of them.'
    """

    sentence: str  # the outcome and its remedy
    finished: bool  # whether the method ran to its end

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
        """Return the status that equals `text`."""
        for status in cls:
            if status == text:
                return status
        raise InvalidArgument(f"status must be one of {', '.join(map(repr, cls))}, got {text!r}")

    def __repr__(self) -> str:
        return repr(str(self))  # a status shows as the text that it equals
