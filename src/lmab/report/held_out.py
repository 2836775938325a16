"""What held-out sessions, which the model was not fitted to, say about the model and the policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._shapes import Array, Float
from ..data import Sessions
from ..errors import InvalidArgument
from ..evaluation import Calibration, LogEvidence, calibrate, weigh
from ..model import LatentBandit, belief
from ..policies import Policy

_SESSIONS = 50_000  # of a larger log are looked at
_FEWEST = 30  # sessions for which a step is shown
_SEED = 0


@dataclass(frozen=True, eq=False)
class HeldOut:
    """How well the model predicts held-out sessions, and what the policy would have earned in them."""

    n_sessions: int
    calibration: Calibration
    gain: Float[Array, "T"]  # nats by which knowing the session so far improves the prediction of each step
    gain_stderr: Float[Array, "T"]
    total: tuple[float, float]  # the same over whole sessions, with its standard error
    evidence: LogEvidence | None  # None where no propensities were logged
    logged: float  # what a session of the policy's length earned as it was logged

    def verdict(self, *, sure: bool) -> str:
        """One sentence for a reader who has to decide; `sure`: certificate and check of the fit agree on a gain."""
        mean, stderr = self.total
        times = f"{np.exp(min(mean, 700.0)):.3g}"
        size = f"a session is {times} times as likely as without memory; log-likelihood {mean:+.3f} ± {stderr:.3f}"
        if mean > 2 * stderr:
            real = "The types are real: the" if sure else "The"
            return f"{real} session so far helps to predict its next reward ({size})."
        return f"No hidden types show here: the session so far does not help to predict its next reward ({size})."


def look(bandit: LatentBandit, policy: Policy, sessions: Sessions, horizon: int) -> HeldOut:
    """Check the model and the policy on `sessions`."""
    if sessions.n_arms > bandit.n_arms:
        raise InvalidArgument(f"logs must have the model's {bandit.n_arms} arms, got {sessions.n_arms}")
    rng = np.random.default_rng(_SEED)
    log = sessions.with_arms(bandit.n_arms) if sessions.n_arms < bandit.n_arms else sessions
    if len(log) > _SESSIONS:
        log = log[np.sort(rng.permutation(len(log))[:_SESSIONS])]
    gains = memory_gains(bandit, log)
    counts = np.isfinite(gains).sum(axis=0)
    shown = gains[:, counts >= min(_FEWEST, len(log))]
    sums = np.nansum(gains, axis=1)
    evidence = None
    if log.propensities is not None and log.horizon >= horizon:
        evidence = weigh(policy, log, horizon=horizon, model=bandit, rng=rng)
    return HeldOut(
        n_sessions=len(log),
        calibration=calibrate(bandit, log),
        gain=np.nanmean(shown, axis=0),
        gain_stderr=np.nanstd(shown, axis=0) / np.sqrt(counts[: shown.shape[1]]),
        total=(float(sums.mean()), float(sums.std() / np.sqrt(len(sums)))),
        evidence=evidence,
        logged=log.mean_session(horizon),
    )


def memory_gains(bandit: LatentBandit, sessions: Sessions) -> Float[Array, "N H"]:
    """log p(reward | arm, session so far) - log p(reward | arm), for every step; NaN after a session's end.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]])
        >>> memory_gains(bandit, lmab.Sessions.from_arrays([[0, 1]], [[1.0, 0.0]])).round(3).tolist()
        [[0.0, 0.693]]
    """
    arms, rewards = sessions.to_arrays()
    gains = np.full(arms.shape, np.nan)
    beliefs = belief.prior(bandit, len(arms))
    for step in range(arms.shape[1]):
        live = np.flatnonzero(arms[:, step] >= 0)
        now_arms, paid = arms[live, step], rewards[live, step]
        likelihood = bandit.rewards.evidence(now_arms, paid)  # up to a factor, the same for both predictions
        now = np.einsum("nm,nm->n", belief.normalise(beliefs[live]), likelihood)
        before = likelihood @ bandit.weights
        gains[live, step] = np.log(np.maximum(now, 1e-12) / np.maximum(before, 1e-12))
        beliefs[live] = belief.update(bandit, beliefs[live], now_arms, paid)
    return gains
