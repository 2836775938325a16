"""Do normal rewards fit? The rewards of a log against what the fitted model says about them."""

from __future__ import annotations

import numpy as np

from ..._shapes import Array, Float
from ...data import Packed, Sessions
from ...model import LatentBandit, belief

_STEPS = 100_000  # of a larger log are looked at, in whole sessions
_ONE_VALUE = 0.2  # share of one single value above which rewards are no measurements
_NOISE = 1.63  # over the root of the number of rewards: what the distance reaches by chance in 1 of 100 logs
_DISTANCE = 0.08  # between the two distributions of rewards, above which promises were seen to be wrong


def misfit(bandit: LatentBandit, sessions: Sessions | Packed) -> list[str]:
    """Why the normal rewards of `bandit` do not describe `sessions`; nothing where they do.

    Examples:
        >>> import numpy as np, lmab
        >>> rewards = np.zeros((50, 4))
        >>> rewards[:, 0] = np.arange(1, 51)
        >>> log = lmab.Sessions.from_arrays(np.zeros((50, 4), int), rewards)
        >>> misfit(lmab.LatentBandit.gaussian([1.0], [[1.0]], scale=8.0), log)[0][:41]
        'normal rewards do not fit: 75% of the rew'
    """
    some = sessions[:: max(1, -(-sessions.n_steps // _STEPS))]
    rewards = some.rewards
    values, counts = np.unique(rewards, return_counts=True)
    if len(values) == 1:
        return []  # a log that tells nothing is told about elsewhere
    often = int(counts.argmax())
    remedy = "promises made from this model may be far too high; pass rewards='binned'"
    if counts[often] > _ONE_VALUE * len(rewards):
        share = counts[often] / len(rewards)
        return [f"normal rewards do not fit: {share:.0%} of the rewards are exactly {values[often]:g}: {remedy}"]
    distance = _distance(_below(bandit, some))
    if distance > _DISTANCE + _NOISE / np.sqrt(len(rewards)):
        return [
            f"normal rewards do not fit: the shares of rewards below a value differ by up to {distance:.0%} from the "
            f"model's (up to {_DISTANCE:.0%} is no matter): {remedy}"
        ]
    return []


def _below(bandit: LatentBandit, sessions: Sessions) -> Float[Array, "S"]:
    """Probability of a lower reward, given the session before it: uniform where the model is right.

    So arms may have been chosen by a policy that looks at rewards.
    """
    from scipy.special import ndtr

    shares = np.empty(sessions.n_steps)
    for places, beliefs in belief.before_steps(bandit, sessions):
        distances = sessions.rewards[places][:, None] - bandit.means.T[sessions.arms[places]]
        shares[places] = np.einsum("nm,nm->n", ndtr(distances / bandit.rewards.spread), beliefs)
    return shares


def _distance(shares: Float[Array, "n"]) -> float:
    """The largest difference to the uniform distribution (Kolmogorov's)."""
    ordered, n = np.sort(shares), len(shares)
    ranks = np.arange(n + 1) / n
    return float(max((ranks[1:] - ordered).max(), (ordered - ranks[:-1]).max()))
