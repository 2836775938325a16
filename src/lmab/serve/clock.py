"""Wall clock that is checked against monotonic time, because deletions and default rewards cannot be taken back."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

APART = 60.0  # seconds between the wall clock and monotonic time from which on the wall clock is not believed
AGREED = 300.0  # seconds for which both must agree before the wall clock is believed (again), or anything is due
_log = logging.getLogger("lmab.serve")


class SteadyClock:
    """Seconds since 1970 that do not jump: after a jump, time goes on by the monotonic clock.

    If the wall clock goes on evenly for five minutes after a jump, it is believed again; a machine that was suspended
    recovers this way. A simulated clock is its own monotonic clock.

    Examples:
        >>> wall, monotonic = [1000.0], [0.0]
        >>> clock = SteadyClock(lambda: wall[0], lambda: monotonic[0])
        >>> wall[0] += 86_400  # one wrong reading
        >>> clock(), bool(clock.trouble)
        (1000.0, True)
        >>> wall[0] -= 86_400
        >>> clock(), clock.trouble
        (1000.0, '')
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] | None = None) -> None:
        self._wall = wall
        self._monotonic = monotonic or (time.monotonic if wall is time.time else wall)
        self.started = self._monotonic()
        self.trouble = ""  # why the wall clock is not believed
        self._offset = self._other = wall() - self.started  # of the wall clock, as believed and as read last
        self._since = self.started  # the offset has been `_other` since then
        self._newest, self._seen = -math.inf, self.started

    def __call__(self) -> float:
        """Return the time in seconds since 1970."""
        wall, monotonic = self._wall(), self._monotonic()
        offset, before = wall - monotonic, self.trouble
        if abs(offset - self._other) > APART:
            self._other, self._since = offset, monotonic
        if monotonic - self._since >= AGREED:  # small corrections are followed, too
            self._offset, self._other, self._since = offset, offset, monotonic
        jump = offset - self._offset
        apart = abs(jump) > APART
        if apart != bool(before):
            text = f"the clock of this machine jumped by {jump:.0f} s: nothing is swept until it runs evenly again"
            self.trouble = text if apart else ""
            _log.error(text) if apart else _log.warning("the clock of this machine runs evenly again")
        return monotonic + self._offset if apart else wall

    def due(self, newest: float | None) -> float | None:
        """Return the time before which things are due, at most as long after the `newest` step as it has been stored.

        None: nothing is due, because the process has just started, the clock jumped or there is no step.
        """
        now, monotonic = self(), self._monotonic()
        if newest is not None and newest > self._newest:
            self._newest, self._seen = newest, monotonic
        if newest is None or self.trouble or monotonic - self.started < AGREED:
            return None
        return min(now, self._newest + monotonic - self._seen)
