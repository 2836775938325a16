"""Fingerprint: the size and a checksum of a log, by which the log is recognised without being stored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._shapes import Array, Float, Integer, Shaped
from .features import Features, person_ids
from .loading import step_numbers
from .packed import Packed
from .sessions import Sessions

_SESSIONS = 1 << 16  # looked at together
_TABLE = 1 << 18  # words that are kept in a table


def mixed(words: Shaped[Array, "*n"]) -> Shaped[Array, "*n"]:
    """Each word of 64 bits, mixed so that every bit depends on all bits (the mixer of SplitMix64)."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


@dataclass(frozen=True)
class Fingerprint:
    """Size of a log and a checksum of what it holds, which does not depend on the order of the sessions.

    Examples:
        >>> import lmab
        >>> log = lmab.Sessions.from_arrays([[0, 1], [2, 0]], [[1.0, 0.0], [1.0, 1.0]])
        >>> Fingerprint.of(log) == Fingerprint.of(log[[1, 0]])
        True
        >>> Fingerprint.of(log) == Fingerprint.of(log[[1, 1]])
        False
    """

    n_sessions: int
    n_steps: int
    checksum: str  # 16 hexadecimal digits

    @classmethod
    def of(cls, sessions: Sessions | Packed) -> Fingerprint:
        """The fingerprint of a log; a packed log knows its own."""
        if isinstance(sessions, Packed) and sessions.cutting is None:
            return cls(len(sessions), sessions.n_steps, sessions.manifest.checksum)
        total = sum(_checksum(chunk) for chunk in sessions.chunks(_SESSIONS))
        return cls(len(sessions), sessions.n_steps, f"{total % 2**64:016x}")

    @property
    def sizes(self) -> tuple[int, int]:
        """Sessions and steps."""
        return self.n_sessions, self.n_steps

    def __str__(self) -> str:
        return f"{self.n_sessions:,} sessions, {self.n_steps:,} steps, checksum {self.checksum}"


def word_sums(
    codes: Shaped[Array, "s"],
    lengths: Integer[Array, "n"],
    values: Float[Array, "Z"] | None,
    rewards: Float[Array, "s"] | None,
    more: Shaped[Array, "n"] | None = None,
) -> int:
    """The checksum of sessions in codes: arm * Z + value, or arms with the rewards beside them.

    `more` holds a word of what else is known of each session. Where rewards are listed there are few different steps,
    and their words are looked up.
    """
    total = first = 0
    n_words = 1 if values is None else int(codes.max()) + 1
    for start in range(0, len(lengths), _SESSIONS):
        own = lengths[start : start + _SESSIONS].astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(own)])
        steps = slice(first, first + int(offsets[-1]))
        first = steps.stop
        places = step_numbers(offsets)
        if values is not None and (int(own.max()) * n_words) < _TABLE:
            table = _words(np.arange(own.max())[:, None], *_apart(np.arange(n_words), values))
            words = table.ravel().take(places * n_words + codes[steps])
        elif values is not None:
            words = _words(places, *_apart(codes[steps].astype(np.int64), values))
        else:
            assert rewards is not None
            words = _words(places, codes[steps], rewards[steps])
        ends = np.cumsum(words)[offsets[1:] - 1]  # modulo 2^64, so that differences are sums of sessions
        ends[1:] -= ends[:-1].copy()
        if more is not None:
            ends ^= more[start : start + _SESSIONS]
        total += int(mixed(ends).sum())
    return total % 2**64


def _apart(codes: Integer[Array, "n"], values: Float[Array, "Z"]) -> tuple[Integer[Array, "n"], Float[Array, "n"]]:
    return codes // len(values), values[codes % len(values)]


def _words(places: Integer[Array, "*p"], arms: Integer[Array, "s"], rewards: Float[Array, "s"]) -> Shaped[Array, "*q"]:
    paid = (rewards + 0.0).view(np.uint64)  # -0.0 is 0.0
    return mixed(paid ^ mixed(arms.astype(np.uint64) ^ mixed(places.astype(np.uint64))))


def _checksum(sessions: Sessions) -> int:
    """The sum over sessions of a hash of the session's arms and rewards, in their order, and of what else is known."""
    words = _words(step_numbers(sessions.offsets), sessions.arms, sessions.rewards)
    own = np.add.reduceat(words, sessions.offsets[:-1])
    more = known_words(sessions.features, sessions.persons, sessions.endings, sessions.times)
    return int(mixed(own if more is None else own ^ more).sum())


def known_words(
    features: Features | None, persons: Shaped[Array, "N"] | None, endings: Shaped[Array, "N"] | None,
    times: Float[Array, "N"] | None = None,
) -> Shaped[Array, "N"] | None:  # fmt: skip
    """Return a word for each session, of its features, person, end and time; None if the log has none of them.

    Times of persons' sessions do not count: logs of events had fingerprints before they had times.
    """
    parts = []
    if features is not None:
        parts.append(features.words[features.rows])
    if persons is not None:
        parts.append(person_ids(persons).astype(np.uint64) + np.uint64(1))
    if endings is not None:
        parts.append(endings.astype(np.uint64) + np.uint64(2))
    if times is not None and persons is None:
        parts.append((times + 0.0).view(np.uint64))
    if not parts:
        return None
    found = np.zeros(len(parts[0]), np.uint64)
    for part in parts:
        found = mixed(found ^ mixed(part))
    return found
