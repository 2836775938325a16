"""Problem: why a request is refused, with the status of HTTP and a short code that programs can test."""

from __future__ import annotations

import math

from ..errors import LmabError
from .stores import RewardRow

STATUS = {
    "malformed": 400,  # not JSON, or not the fields that are asked for
    "unauthorised": 401,
    "unknown-path": 404,
    "unknown-session": 404,
    "unknown-step": 404,
    "unknown-policy": 404,
    "wrong-method": 405,
    "out-of-order": 409,
    "other-reward": 409,
    "too-late": 410,
    "too-large": 413,
    "unknown-arm": 422,
    "unknown-reward": 422,
    "beyond-horizon": 422,
    "bad-value": 422,
    "bad-policy": 422,
    "busy": 429,
    "no-policy": 503,
    "no-store": 503,
}


class Problem(LmabError):
    """A request that cannot be answered."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.status = code, STATUS[code]


def check_name(name: str) -> None:
    """A text that every store can hold: one that a store refuses would take the whole commit with it."""
    if "\0" in name or (not name.isprintable() and any(0xD800 <= ord(letter) <= 0xDFFF for letter in name)):
        raise Problem("bad-value", "session and person must be text without the character 0")


def check_finite(reward: float) -> None:
    """A reward that a store can hold."""
    if not math.isfinite(reward):
        raise Problem("unknown-reward", "reward must be a finite number")


def other_reward(row: RewardRow) -> Problem:
    """Two different rewards for one step, or one that came after the default."""
    if row.defaulted:
        return Problem("too-late", f"step {row.step} of session {row.session!r} has the default reward by now")
    return Problem("other-reward", f"step {row.step} of session {row.session!r} has the reward {row.reward:g} already")
