"""Does one more type predict better? Where it does, a certificate for the types at hand promises too much."""

from __future__ import annotations

import numpy as np

from .._shapes import Array, Float, Integer
from ..data import sample_rows
from ..estimation import EM, Observations

_METHOD = EM(restarts=4, tolerance=1e-5, prior="learned", sweeps=16)
_SESSIONS = 20_000  # of a larger log are looked at
_FOLDS = 2
_STEPS = 60_000  # of a log above which one fold is enough


def one_more(observations: Observations, n_types: int, rng: np.random.Generator) -> tuple[float, float]:
    """Held-out log-likelihood of a session with one more type, over that with `n_types`; and its standard error."""
    rows = sample_rows(len(observations.sessions), _SESSIONS, rng)
    if len(rows) < 2 * (n_types + 1):
        return 0.0, 0.0
    folds = np.array_split(rows, 5)[: 1 if observations.sessions.n_steps > _STEPS else _FOLDS]
    gains = np.concatenate([_gains(observations, rows, fold, n_types, rng) for fold in folds])
    return float(gains.mean()), float(gains.std() / np.sqrt(len(gains)))


def _gains(
    observations: Observations, rows: Integer[Array, "n"], fold: Integer[Array, "h"], n_types: int,
    rng: np.random.Generator,
) -> Float[Array, "h"]:  # fmt: skip
    train, test = observations.subset(np.setdiff1d(rows, fold)), observations.subset(np.sort(fold))
    fewer, more = (_METHOD.fit(train, n_types=n, rng=rng).bandit for n in (n_types, n_types + 1))
    return test.heldout(more) - test.heldout(fewer)
