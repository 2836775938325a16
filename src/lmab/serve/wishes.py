"""Wishes and Night: how a refit is to be made, and what one found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Wishes:
    """How a refit is to be made."""

    gate: float = 0.0  # what the new policy must earn more, at least, per session
    canary: float = 0.05  # share of new sessions that a version gets at first
    margin: float = 0.02  # part of the reward that a canary may lose and still be promoted
    types: int | str = "auto"
    horizon: int | None = None  # None: the longest session
    repeats: bool | None = None  # None: whether the log plays an arm twice in a session
    floor: float = 0.1
    prior: float | str = "learned"
    least: int = 200  # sessions below which nothing is fitted, and a canary is not judged
    held_back: float = 0.2
    time_limit: float = 30.0
    confidence: float = 0.9
    unproven: bool = (
        False  # where too few sessions agree with a plan to compare it: whether its certificate decides alone
    )


@dataclass(frozen=True)
class Night:
    """What one refit found and did, in three lines."""

    at: float
    outcome: str  # "waits", "kept", "canary", "promoted", "rolled back"
    version: str | None
    passed: bool
    lines: tuple[str, str, str]
