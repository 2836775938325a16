"""Fingerprint: a few numbers by which a log is known again without keeping it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._shapes import Array, Integer, Shaped
from .episodes import Episodes
from .ingest import step_numbers

_SESSIONS = 1 << 16  # looked at together


@dataclass(frozen=True)
class Fingerprint:
    """Size of a log and a checksum of its arms and rewards, which does not depend on the order of the sessions.

    Examples:
        >>> import lmab
        >>> log = lmab.Episodes.from_arrays([[0, 1], [2, 0]], [[1.0, 0.0], [1.0, 1.0]])
        >>> Fingerprint.of(log) == Fingerprint.of(log[[1, 0]])
        True
        >>> Fingerprint.of(log) == Fingerprint.of(log[[1, 1]])
        False
    """

    n_episodes: int
    n_steps: int | None  # None: nobody noted it (files of 0.1)
    checksum: str | None  # 16 hexadecimal digits; None: nobody noted it (files of 0.1)

    @classmethod
    def of(cls, episodes: Episodes) -> Fingerprint:
        """The fingerprint of a log."""
        total = 0
        for first in range(0, len(episodes), _SESSIONS):
            total += _checksum(episodes, episodes.offsets[first : first + _SESSIONS + 1])
        return cls(len(episodes), episodes.n_steps, f"{total % 2**64:016x}")

    def __str__(self) -> str:
        steps = "" if self.n_steps is None else f", {self.n_steps:,} steps"
        checksum = "" if self.checksum is None else f", checksum {self.checksum}"
        return f"{self.n_episodes:,} episodes{steps}{checksum}"


def _checksum(episodes: Episodes, offsets: Integer[Array, "K1"]) -> int:
    """Sum over the sessions between the offsets of a hash of what was played and paid, in order."""
    steps = slice(int(offsets[0]), int(offsets[-1]))
    places = step_numbers(offsets - offsets[0]).astype(np.uint64)
    arms = episodes.actions[steps].astype(np.uint64)
    paid = (episodes.rewards[steps] + 0.0).view(np.uint64)  # -0.0 is 0.0
    words = _mixed(paid ^ _mixed(arms ^ _mixed(places)))
    return int(_mixed(np.add.reduceat(words, offsets[:-1] - offsets[0])).sum())


def _mixed(words: Shaped[Array, "n"]) -> Shaped[Array, "n"]:
    """Each word, of 64 bits, with its bits spread over all 64 (the mixer of SplitMix64)."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
