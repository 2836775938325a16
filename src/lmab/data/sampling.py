"""Some sessions of a log, drawn at random."""

from __future__ import annotations

import numpy as np

from .._shapes import Array, Integer

_SHUFFLED = 1 << 24  # sessions up to which all of them are shuffled; of more, only those that are drawn take memory


def sample_rows(n_sessions: int, size: int, rng: np.random.Generator) -> Integer[Array, "n"]:
    """At most `size` of the sessions, in random order.

    Examples:
        >>> import numpy as np
        >>> sorted(sample_rows(3, 10, np.random.default_rng(0)).tolist())
        [0, 1, 2]
    """
    if n_sessions <= _SHUFFLED:
        return rng.permutation(n_sessions)[:size]
    return rng.choice(n_sessions, min(size, n_sessions), replace=False)
