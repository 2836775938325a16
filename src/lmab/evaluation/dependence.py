"""Dependence between the sessions of a log: copies of sessions, and sessions near in time that are alike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._shapes import Array, Float
from ..data.packed import Packed
from ..data.sessions import Sessions

_LOOKED_AT = 20_000  # sessions, the first ones of a larger log: neighbours must stay neighbours
_BLOCKS = 40  # parts of consecutive sessions whose variance is compared with that of independent sessions
_LEAST_SIZE = 5  # sessions of a part
_NEAR = 10  # sessions within which copies are looked for
_FIRES = 1e-4  # p-value below which neighbouring sessions are dependent
_COPIES = 0.02  # share of copies from which they are reported
_MOST = 0.99


@dataclass(frozen=True)
class Dependence:
    """Copies among the sessions, and how much less than independent sessions they determine."""

    copies: float  # share of the sessions that repeat one of the ten sessions before, beyond chance
    variance_ratio: float  # of parts of consecutive sessions to independent sessions; 1 if that may be chance

    @property
    def factor(self) -> float:
        """How many times as wide intervals are as for independent sessions."""
        return float(np.sqrt(max(self.variance_ratio, 1 / (1 - min(self.copies, _MOST)))))


def dependence(sessions: Sessions | Packed) -> Dependence:
    """Measure how sessions depend on those near them, in the order of time if it is known, else in that of the log.

    Examples:
        >>> import lmab
        >>> truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.4], [0.2, 0.8, 0.6]])
        >>> log = lmab.simulate(truth, lmab.Uniform(3), n_sessions=400, horizon=6, rng=0)
        >>> dependence(log).factor
        1.0
    """
    part = sessions[: min(len(sessions), _LOOKED_AT)]
    log = part.in_time() or part
    return Dependence(_copies(log), _variance_ratio(log))


def _variance_ratio(log: Sessions) -> float:
    """Return the variance of means of consecutive sessions relative to independent ones, or 1 if it is not larger."""
    from scipy.special import chdtrc

    size = len(log) // _BLOCKS
    if size < _LEAST_SIZE:
        return 1.0
    plays = np.maximum(np.bincount(log.arms, minlength=log.n_arms), 1)
    means = np.bincount(log.arms, log.rewards, minlength=log.n_arms) / plays
    excess: Float[Array, "N"] = np.add.reduceat(log.rewards - means[log.arms], log.offsets[:-1])
    parts = excess[: size * _BLOCKS].reshape(_BLOCKS, size)
    spread = float(excess.var())
    if spread <= 0:
        return 1.0
    ratio = float(parts.mean(axis=1).var(ddof=1)) * size / spread
    return ratio if chdtrc(_BLOCKS - 1, (_BLOCKS - 1) * ratio) < _FIRES else 1.0


def _copies(log: Sessions) -> float:
    """Return the share of sessions that equal one of the ten before, less the share that equal one of ten far away."""
    if len(log) < 4 * _NEAR:
        return 0.0
    parts = np.split(np.stack([log.arms.astype(float), log.rewards], axis=1), log.offsets[1:-1])
    names = np.array([hash(part.tobytes()) for part in parts])
    shift = len(log) // 2

    def equal(first: int) -> float:
        found = np.zeros(len(names), bool)
        for distance in range(first, first + _NEAR):
            found |= names == np.roll(names, distance)
        return float(found.mean())

    near, far = equal(1), equal(shift)
    error = np.sqrt(max(near * (1 - near) + far * (1 - far), 1 / len(log)) / len(log))
    found = (near - far) / max(1 - far, 1e-9)
    return float(found) if near - far > 4 * error and found > _COPIES else 0.0
