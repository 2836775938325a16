"""Advice of a fitted model to `plan`, from its log and its held-out check.

Planning does not know how models are estimated. Any model that is fitted to a log may implement `FittedModel`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from .. import files
from ..model.bandit import LatentBandit

Value = TypeVar("Value")


@dataclass(frozen=True)
class Advice:
    """Consequences for a plan of the log that a model was fitted to; by default there are none."""

    repeats: bool = True  # whether a session may play an arm twice
    repeats_reason: str = ""
    longest: int | None = None  # steps of the longest session of the log
    withdrawn: tuple[int, ...] = ()  # arms that were withdrawn before the end of the log
    withdrawn_note: str = ""
    contradicted: tuple[str, ...] = ()  # names of the assumptions that the log contradicts
    refusal: str = ""  # why held-out sessions do not support the types; empty if they do, or were not asked
    verdict: str = ""  # result of the check on held-out sessions
    remark: str = ""  # a sentence for the message of the plan


@runtime_checkable
class FittedModel(Protocol):
    """A model that was fitted to a log, such as an `Estimate`; the plan keeps it as its `source`."""

    @property
    def bandit(self) -> LatentBandit:
        """Return the model."""

    def advice(self) -> Advice:
        """Return the consequences of the log for a plan."""

    def record(self) -> files.Record:
        """Return the model as a file holds it."""


class SavedModel:
    """The fitted model in the file of a plan: its bandit, and the record from which the estimate is restored."""

    def __init__(self, record: files.Record) -> None:
        self._record = record
        self._value: Any = None
        self.bandit = LatentBandit.from_record(record.records["bandit"])  # a damaged one raises when it is loaded

    def record(self) -> files.Record:
        """Return the model as the file holds it."""
        return self._record

    def restored(self, restore: Callable[[files.Record], Value]) -> Value:
        """Return the value of `restore` for the record; it is called once."""
        if self._value is None:
            self._value = restore(self._record)
        value: Value = self._value
        return value
