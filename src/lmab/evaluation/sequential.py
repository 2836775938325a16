"""A test that may be looked at every night: what a new policy earns more than the old one, with bounds for all looks.

Sessions are compared within strata (a night at one share), so that weekdays and changes of the share cancel. A stratum
is six sums; everything here broadcasts over them, so that one test and thousands of simulated ones run the same lines.

The bounds. In stratum k let w = n1 n0 / (n1 + n0), S = sum of w (mean1 - mean0), I = sum of w and V the variance of S.
For every bet b, exp(b S - b^2 V / 2) is a martingale of mean 1 when both policies earn the same, and so is the average
over several bets: it ever exceeds 1 / alpha with probability at most alpha (Ville). u(alpha) is where it equals
1 / alpha; the gain per session then lies above (S - u) / I always, but for a chance of alpha.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

ALPHA = 0.05  # chance that a policy which earns no more is ever called better
HARM = 0.1  # chance that a policy which earns no less is ever called worse
GAINS = (0.02, 0.05, 0.1, 0.2, 0.5)  # bets, as parts of the mean; a gain below half of the least is hardly ever seen
FEW = 200  # sessions of the new policy below which it borrows the variance of the old one
_BISECTIONS = 45


class Stratum(NamedTuple):
    """Sums over the sessions of one stratum: counts, rewards, squared rewards, of the new and of the old policy."""

    n_new: Any
    reward_new: Any
    squares_new: Any
    n_old: Any
    reward_old: Any
    squares_old: Any

    @classmethod
    def of(cls, new: ArrayLike, old: ArrayLike) -> Stratum:
        """Return the sums of the rewards of both policies.

        Examples:
            >>> tuple(map(float, Stratum.of([1.0, 3.0], [2.0])))
            (2.0, 4.0, 10.0, 1.0, 2.0, 4.0)
        """
        both = np.asarray(new, float), np.asarray(old, float)
        return cls(*(total for part in both for total in (len(part), part.sum(), part @ part)))


class GainBounds(NamedTuple):
    """The gain per session: surely above `low`, estimated as `gain`, surely below `high`."""

    low: Any
    gain: Any
    high: Any


@dataclass(frozen=True)
class StratifiedEvidence:
    """What the strata so far say. All fields are totals over strata."""

    total: Any = 0.0  # S: w times the difference of the means
    information: Any = 0.0  # I: the sum of w
    n_new: Any = 0.0
    n_old: Any = 0.0
    spread_new: Any = 0.0  # squares around the mean of each stratum
    spread_old: Any = 0.0
    freedom_new: Any = 0.0  # sessions less one for each stratum
    freedom_old: Any = 0.0
    weight_new: Any = 0.0  # the sum of w^2 / n
    weight_old: Any = 0.0

    def add(self, stratum: Stratum) -> StratifiedEvidence:
        """The evidence with one stratum more; a stratum in which one policy has no session adds only its spread.

        Examples:
            >>> seen = StratifiedEvidence().add(Stratum(100, 60.0, 60.0, 100, 50.0, 50.0))
            >>> round(float(seen.total / seen.information), 3)
            0.1
        """
        n1, s1, q1, n0, s0, q0 = (np.asarray(one, float) for one in stratum)
        m1, m0 = np.maximum(n1, 1), np.maximum(n0, 1)
        w = n1 * n0 / np.maximum(n1 + n0, 1)
        return StratifiedEvidence(
            self.total + np.where(w > 0, w * (s1 / m1 - s0 / m0), 0.0),
            self.information + w,
            self.n_new + n1,
            self.n_old + n0,
            self.spread_new + np.maximum(q1 - s1 * s1 / m1, 0.0),
            self.spread_old + np.maximum(q0 - s0 * s0 / m0, 0.0),
            self.freedom_new + np.maximum(n1 - 1, 0),
            self.freedom_old + np.maximum(n0 - 1, 0),
            self.weight_new + w * w / m1,
            self.weight_old + w * w / m0,
        )

    @property
    def variance(self) -> Any:
        """V: the variance of `total`."""
        new = self.spread_new / np.maximum(self.freedom_new, 1)
        old = self.spread_old / np.maximum(self.freedom_old, 1)
        new = np.where(self.freedom_new < FEW, np.maximum(new, old), new)
        return new * self.weight_new + old * self.weight_old


def reach(variance: Any, bets: Any, alpha: float) -> Any:
    """u(alpha): how far a sum of this variance strays, ever, with a chance of `alpha`.

    `bets` has one more axis than `variance`, the last. Solved by bisection.

    Examples:
        >>> u = reach(100.0, [0.1, 0.5], 0.05)
        >>> bets = np.array([0.1, 0.5])
        >>> bool(np.isclose(np.exp(bets * u - bets**2 * 50.0).mean(), 20.0))
        True
    """
    variance, bets = np.asarray(variance, float), np.asarray(bets, float)
    goal = bets.shape[-1] / alpha
    shift = bets**2 * variance[..., None] / 2
    high = ((np.log(goal) + shift) / bets).min(axis=-1)  # where one bet alone would do, so that nothing overflows
    low = np.zeros_like(high)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        below = np.exp(bets * middle[..., None] - shift).sum(axis=-1) < goal
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return high


def bets_for(mean: Any, variance: Any) -> Any:
    """Bets on gains that are parts of the mean; mean and variance of a session come from before the test."""
    mean, variance = np.asarray(mean, float), np.asarray(variance, float)
    size = np.maximum(np.abs(mean), 1e-3 * np.sqrt(variance))
    return np.multiply.outer(size / np.maximum(variance, 1e-12), np.array(GAINS))


def bounds(seen: StratifiedEvidence, mean: Any, variance: Any, alpha: float = ALPHA, harm: float = HARM) -> GainBounds:
    """The gain per session, with bounds that hold at all looks together.

    Args:
        seen: the evidence so far.
        mean: reward of a session, from before the test.
        variance: of the reward of a session, from before the test.
        alpha: chance that the lower bound ever exceeds the gain.
        harm: chance that the upper bound ever falls below the gain.

    Examples:
        >>> seen = StratifiedEvidence().add(Stratum(1000, 600.0, 600.0, 1000, 500.0, 500.0))
        >>> [round(float(one), 3) for one in bounds(seen, 0.5, 0.25)]
        [0.035, 0.1, 0.159]
    """
    bets, information = bets_for(mean, variance), np.maximum(seen.information, 1e-9)
    return GainBounds(
        (seen.total - reach(seen.variance, bets, alpha)) / information,
        seen.total / information,
        (seen.total + reach(seen.variance, bets, harm)) / information,
    )


def sessions_needed(
    gain: float, mean: float, variance: float, *, share: float = 0.5, alpha: float = ALPHA, power: float = 0.8
) -> float:
    """Sessions of both policies together until a gain is seen with probability `power`.

    Args:
        gain: what the new policy earns more per session.
        mean: reward of a session.
        variance: of the reward of a session.
        share: part of the sessions that get the new policy.
        alpha: chance of calling a policy better that is not.
        power: chance that the gain has been seen by then.

    Examples:
        >>> round(sessions_needed(0.05, 0.5, 0.25))
        5683
    """
    from scipy.special import ndtri

    bets, needed = bets_for(mean, variance), 0.0
    low, high = 1.0, 1e15
    for _ in range(_BISECTIONS):
        needed = float(np.sqrt(low * high))
        spread = needed * variance
        seen = abs(gain) * needed - ndtri(power) * np.sqrt(spread)
        low, high = (needed, high) if seen < reach(spread, bets, alpha) else (low, needed)
    return needed / (share * (1 - share))
