"""LogSummary: what plans follow from a log beside the model: repeats, the longest session, withdrawn arms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._html import count
from .._shapes import Array, Float, Integer
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..model.bandit import LatentBandit

_SESSIONS = 1 << 16  # sessions read at once
_SEVERAL = 5.0  # expected repeats; a log of independent draws shows none of so many with probability exp(-5) = 0.7%
_RECENT = 0.1  # part of the log, its end, in which a withdrawn arm has no play
_RARE = 1e-3  # probability of no play there, below which an arm counts as withdrawn
_SHOWN = 5  # arms named in a sentence


@dataclass(frozen=True)
class LogSummary:
    """Facts about a fitted log that a plan follows.

    Examples:
        >>> import lmab
        >>> log = lmab.Sessions.from_arrays([[0, 1], [1, 0]] * 50, [[1.0, 0.0]] * 100)
        >>> found = LogSummary.of(log)
        >>> found.repeats, found.longest, found.withdrawn
        (False, 2, ())
    """

    n_repeats: int  # steps that play an arm again that their session has played
    expected_repeats: float  # their number if the arm of each step were drawn independently, as often as in the log
    longest: int  # steps of the longest session
    withdrawn: tuple[int, ...] = ()  # arms without a play at the end of the log, against their earlier rate

    @classmethod
    def of(cls, sessions: Sessions | Packed) -> LogSummary:
        """Summarise a log; arms are withdrawn only from one whose order in time is known."""
        if isinstance(sessions, Packed):
            ordered = sessions.manifest.ordered
        else:
            in_time = sessions.in_time()
            ordered, sessions = in_time is not None, in_time or sessions
        n, n_arms = len(sessions), sessions.n_arms
        recent_from = n - int(n * _RECENT)
        plays, lengths = np.zeros(n_arms), np.zeros(1, np.int64)
        by_part = np.zeros((2, n_arms))  # sessions that play each arm, before the end of the log and there
        n_repeats = first = 0
        for chunk in sessions.chunks(_SESSIONS):
            owner = np.repeat(np.arange(first, first + len(chunk)), chunk.lengths)
            pairs = np.unique(owner * n_arms + chunk.arms)
            n_repeats += len(owner) - len(pairs)
            late = pairs // n_arms >= recent_from
            for part in (0, 1):
                by_part[part] += np.bincount(pairs[late == part] % n_arms, minlength=n_arms)
            plays += np.bincount(chunk.arms, minlength=n_arms)
            lengths = _added(lengths, np.bincount(chunk.lengths))
            first += len(chunk)
        withdrawn = _withdrawn(by_part, recent_from, n) if ordered else np.empty(0, np.int64)
        return cls(n_repeats, _expected(plays, lengths), len(lengths) - 1, tuple(withdrawn.tolist()))

    @property
    def repeats(self) -> bool:
        """Whether a session may play an arm twice: not if no session does although several repeats were expected."""
        return self.n_repeats > 0 or self.expected_repeats < _SEVERAL

    @property
    def reason(self) -> str:
        """Why plans for this log may repeat arms, or may not."""
        if self.n_repeats:
            return f"sessions of the log play arms again ({count(self.n_repeats, 'time')})"
        expected = f"independent draws of arms would give {self._expected_text} repeats"
        if self.repeats:
            return f"the log does not show whether sessions may repeat arms (it has none, and {expected})"
        return f"no session of the log plays an arm twice ({expected})"

    @property
    def _expected_text(self) -> str:
        expected = self.expected_repeats
        return f"{expected:,.0f}" if expected >= 100 else f"{expected:.2g}"

    def sentence_on_withdrawn(self, bandit: LatentBandit) -> str:
        """Name the withdrawn arms; empty text if there are none."""
        if not self.withdrawn:
            return ""
        labels = bandit.arm_labels or range(bandit.n_arms)
        names = [repr(labels[arm]) for arm in self.withdrawn[:_SHOWN]]
        them = "it" if len(self.withdrawn) == 1 else "them"
        more = f" and {len(self.withdrawn) - _SHOWN} more" if len(self.withdrawn) > _SHOWN else ""
        return (
            f"{count(len(self.withdrawn), 'arm')} withdrawn: {', '.join(names)}{more}. No session in the last "
            f"{_RECENT:.0%} of the log plays {them}, which at the earlier rate has a probability below {_RARE:g}."
        )


def _added(one: Integer[Array, "k"], other: Integer[Array, "l"]) -> Integer[Array, "m"]:
    """Add two counts by length."""
    total = np.zeros(max(len(one), len(other)), np.int64)
    total[: len(one)] += one
    total[: len(other)] += other
    return total


def _expected(plays: Float[Array, "A"], lengths: Integer[Array, "L"]) -> float:
    """Return the expected number of repeats: of each session its steps less its different arms."""
    shares = plays / max(plays.sum(), 1.0)
    found = 0.0
    for length in np.flatnonzero(lengths):
        found += lengths[length] * (length - (1 - (1 - shares) ** length).sum())
    return float(max(found, 0.0))


def _withdrawn(by_part: Float[Array, "2 A"], n_before: int, n: int) -> Integer[Array, "k"]:
    """Return the arms that no session of the end plays although, at their earlier rate, this had a small chance."""
    if not 0 < n_before < n:
        return np.empty(0, np.int64)
    rate = by_part[0] / n_before
    with np.errstate(divide="ignore"):
        log_chance = (n - n_before) * np.log1p(-rate)
    return np.flatnonzero((by_part[1] == 0) & (log_chance < np.log(_RARE)))
