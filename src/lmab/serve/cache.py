"""Sessions in memory, shared by the experiments of a process; the least recently used ones leave first."""

from __future__ import annotations

from collections import OrderedDict

from .live import LiveSession

_SESSION, _STEP = 1400, 600  # bytes of a session and of a step, by tracemalloc


class SessionCache:
    """Sessions of all experiments of a process, with an estimate of their memory that stays below `megabytes`."""

    def __init__(self, megabytes: float) -> None:
        self.limit, self.size = megabytes * 1e6, 0.0
        self._order: OrderedDict[tuple[CachedSessions, str], int] = OrderedDict()  # with the bytes that were counted

    def count(self, part: CachedSessions, name: str, session: LiveSession) -> None:
        """Mark a session as the one that was used last; remove others if memory is short."""
        size = _SESSION + _STEP * len(session.rows)
        self.size += size - self._order.pop((part, name), 0)
        self._order[part, name] = size
        while self.size > self.limit and len(self._order) > 1:
            (other, oldest), size = self._order.popitem(last=False)
            self.size -= size
            del other.sessions[oldest]

    def remove(self, part: CachedSessions, name: str) -> None:
        """Stop counting a session."""
        self.size -= self._order.pop((part, name), 0)


class CachedSessions:
    """Sessions of one experiment in a shared cache; `put` marks a session as used."""

    def __init__(self, cache: SessionCache) -> None:
        self.cache = cache
        self.sessions: dict[str, LiveSession] = {}

    def put(self, name: str, session: LiveSession) -> None:
        """Keep a session."""
        self.sessions[name] = session
        self.cache.count(self, name, session)

    def pop(self, name: str) -> None:
        """Remove a session if it is there."""
        if self.sessions.pop(name, None) is not None:
            self.cache.remove(self, name)

    def clear(self) -> None:
        """Remove all sessions of the experiment."""
        for name in list(self.sessions):
            self.pop(name)

    def __len__(self) -> int:
        return len(self.sessions)
