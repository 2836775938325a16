"""Model selection for attrition: leaving by arm and reward, or by latent type as well.

*Shown* is leaving by arm and reward: the chances are counted, and the types stay the same. *Type* lets types leave
differently: the types are learned again, from rewards and stays together. It is selected if held-out sessions support
it: stays must be predicted better by two standard errors, and rewards not worse. Both forms are compared after the same
correction for the step, because leaving that changes with the step would otherwise look like types. If the log
contradicts *shown* (the test of the assumption fires), *type* is selected unless held-out sessions are predicted
clearly worse: types learned from the sessions that went on would be wrong, and nothing could be claimed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._shapes import Array, Bool, Float, Integer
from ..checks import OneOf, check
from ..data.features import LEFT, UNKNOWN, WENT_ON
from ..data.packed import Packed
from ..data.sessions import Sessions, require_nobody_left, sample_rows
from ..errors import InvalidArgument
from ..model import belief
from ..model.bandit import LatentBandit
from .assumptions import LOW, attrition, chance_above, reward_groups
from .em import EM
from .fitted_components import Candidate
from .leave_rates import LeavingLog
from .log import Log
from .result import Estimate, capabilities_of

AUTO, NONE, SHOWN, TYPE = FORMS = ("auto", "none", "shown", "type")
_METHOD = EM(restarts=6, tolerance=1e-5, prior="learned", sweeps=24)
_SESSIONS = 20_000  # Sessions of a larger log that are looked at.
_FOLDS, _ENOUGH = 5, 10_000  # Folds of small logs, and sessions that make one fold enough.
_CLEAR = 2.0  # Standard errors by which stays must be predicted better.
_FEW = 30  # Sessions that must have been left before types are asked about.
_LEAST_LEFT = 5.0  # Sessions expected to leave after an arm, below which rare arms are tested together.
_PSEUDO = 2.0  # Steps that a number of a step counts as, at no correction.
_EDGES = (1e-6, 0.999)  # The least and the largest chance to leave that held-out sessions are judged by.
_NO_END = (
    "the log does not say how its sessions ended: name the column with `ended`, or the steps it keeps with `limit`"
)


def dependences(sessions: Sessions | Packed) -> tuple[str, ...]:
    """Return which of the arm and the reward leaving depends on, by score tests within steps at the level of 1%.

    The reward is tested among the sessions at the same step, the arm among those at the same step with the same reward.

    Examples:
        >>> import numpy as np, lmab
        >>> leaving = np.zeros((1, 3, 2)) + np.array([0.4, 0.1])  # after a reward of 0, and of 1
        >>> bandit = lmab.LatentBandit.bernoulli([1.0], [[0.5, 0.4, 0.3]], leaving=leaving)
        >>> log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=1000, horizon=5, rng=0)
        >>> dependences(log)
        ('reward',)
    """
    log = sessions[:: max(1, len(sessions) // _SESSIONS)]
    left, known = after(log)
    step, value = log.steps.astype(np.int64), reward_groups(log.rewards)
    chances = {
        "arm": _depends(left, known, step * (value.max() + 1) + value, log.arms),
        "reward": _depends(left, known, step, value),
    }
    return tuple(name for name, chance in chances.items() if chance < LOW)


def _depends(
    left: Bool[Array, "S"], known: Bool[Array, "S"], stratum: Integer[Array, "S"], key: Integer[Array, "S"]
) -> float:
    """Return the p-value of a rate of leaving that is the same for all keys within each stratum."""
    stratum = np.unique(stratum, return_inverse=True)[1]
    rate = (np.bincount(stratum, left * known) / np.maximum(np.bincount(stratum, known), 1))[stratum]
    expected = np.bincount(key, rate * known)
    key = np.where(expected < _LEAST_LEFT, len(expected), np.arange(len(expected)))[key]
    key = np.unique(key, return_inverse=True)[1]
    n_keys = int(key.max()) + 1
    counts = np.bincount(stratum * n_keys + key, known, minlength=(stratum.max() + 1) * n_keys).reshape(-1, n_keys)
    share = (counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))[stratum, key]
    excess = np.bincount(key, (left - rate) * known)
    variance = np.bincount(key, rate * (1 - rate) * (1 - share) * known)
    there = variance > 0
    if there.sum() < 2:
        return 1.0
    squared = float((excess[there] ** 2 / variance[there]).sum())
    return chance_above(squared * (1 - 1 / there.sum()), int(there.sum()) - 1)


def asked(leaving: str, sessions: Sessions | Packed, log: Log, method: Any) -> str:
    """Return the form to fit, or raise `InvalidArgument` if the log or the method does not allow it."""
    check("leaving", leaving, OneOf(FORMS))
    if _ends_by_itself(sessions) and capabilities_of(method).uses_moments:
        leaving = _by_moments(leaving, sessions, method)
    why_not = _why_not(sessions, log, method)
    if leaving in (SHOWN, TYPE) and why_not is not None:
        raise InvalidArgument(f"leaving must be 'auto' or 'none' where {why_not}, got {leaving!r}")
    return NONE if why_not is not None or not _ends_by_itself(sessions) else leaving


def _by_moments(leaving: str, sessions: Sessions | Packed, method: Any) -> str:
    """Return the form for a method of moments, which weighs steps by what was seen and cannot leave by type."""
    name = type(method).__name__
    if not capabilities_of(method).corrects_attrition:
        require_nobody_left(f"the method {name}", sessions)
    if leaving == TYPE:
        raise InvalidArgument(
            f"leaving must be 'auto', 'shown' or 'none' for the method {name}, which weighs steps by what was seen "
            f"before them: types that leave differently need EM(); got 'type'"
        )
    return SHOWN if leaving == AUTO else leaving


def ignored(leaving: str, sessions: Sessions | Packed, log: Log, method: Any) -> str | None:
    """Return why leaving is not modelled although the log says how sessions ended; None if it is modelled."""
    why_not = _why_not(sessions, log, method)
    if leaving != AUTO or why_not is None or not _ends_by_itself(sessions):
        return None
    return f"leaving is not modelled, because {why_not}"


def _why_not(sessions: Sessions | Packed, log: Log, method: Any) -> str | None:
    """Return why no chance to leave can be fitted; None if one can."""
    if sessions.endings is None:
        return _NO_END
    if capabilities_of(method).chooses_n_types:
        return "sessions differ by degrees: fit types (method=EM()) to a log whose sessions end by themselves"
    if not isinstance(log, LeavingLog):
        return f"rewards are {log.family}: cut them into a few values with rewards='binned'"
    return None


def _ends_by_itself(sessions: Sessions | Packed) -> bool:
    return sessions.endings is not None and bool((sessions.endings == LEFT).any())


def with_shown(estimate: Estimate) -> Estimate:
    """Return the estimate with the chance to leave after each arm and reward; its types stay the same."""
    log = estimate.require_log()
    assert isinstance(log, LeavingLog)
    return replace(estimate, bandit=_leaving_as_shown(estimate.bandit, log))


def _leaving_as_shown(bandit: LatentBandit, log: LeavingLog) -> LatentBandit:
    return replace(bandit, leaving=np.broadcast_to(log.shown, (bandit.n_types, *log.shown.shape)).copy())


@dataclass(frozen=True)
class Gains:
    """What types add to the chance to leave by arm, reward and step, per held-out session."""

    stays: float  # log-likelihood of staying and leaving
    stays_error: float
    rewards: float  # log-likelihood of the rewards
    rewards_error: float

    @property
    def clear(self) -> bool:
        """Stays are predicted better by two standard errors, and rewards not worse."""
        return self.stays > _CLEAR * self.stays_error and self.rewards > -self.rewards_error

    @property
    def against(self) -> bool:
        """Stays or rewards are predicted worse, by two standard errors."""
        return self.stays < -_CLEAR * self.stays_error or self.rewards < -_CLEAR * self.rewards_error

    def candidate(self, *, selected: bool) -> Candidate:
        """Return leaving by type as a candidate, with its gain in the prediction of stays and rewards."""
        error = float(np.hypot(self.stays_error, self.rewards_error))
        return Candidate("leaving", self.stays + self.rewards, error, selected)

    def __str__(self) -> str:
        stays, rewards = (
            f"{self.stays:+.4f} ({self.stays_error:.4f})",
            f"{self.rewards:+.4f} ({self.rewards_error:.4f})",
        )
        return f"stays {stays}, rewards {rewards} per held-out session"


def gains_of_types(log: LeavingLog, n_types: int, rng: np.random.Generator) -> Gains:
    """Compare leaving by type with leaving by arm, reward and step on held-out sessions."""
    rows = np.sort(sample_rows(len(log.sessions), _SESSIONS, rng))
    folds = np.array_split(rng.permutation(rows), min(_FOLDS, len(rows)))
    found = [_of_fold(log, rows, np.sort(fold), n_types, rng) for fold in folds[: max(1, round(_ENOUGH / len(rows)))]]
    rewards, stays = (np.concatenate(parts) for parts in zip(*found, strict=True))
    n = np.sqrt(len(stays))
    return Gains(*(float(x) for x in (stays.mean(), stays.std() / n, rewards.mean(), rewards.std() / n)))


def _of_fold(
    log: LeavingLog, rows: Integer[Array, "n"], fold: Integer[Array, "h"], n_types: int, rng: np.random.Generator
) -> tuple[Float[Array, "h"], Float[Array, "h"]]:
    """Return how much better rewards and stays of each held-out session are predicted by type."""
    train, test = log.subset(np.setdiff1d(rows, fold)), log.subset(fold)
    lettered = train.with_letters()
    plain = _leaving_as_shown(_METHOD.fit(train, n_types=n_types, rng=rng).bandit, train)
    by_type = _METHOD.fit(lettered, n_types=n_types, rng=rng).bandit
    scores = [
        _scores(lettered.possible(bandit), train.sessions.load(), test.sessions.load()) for bandit in (plain, by_type)
    ]
    return scores[1][0] - scores[0][0], scores[1][1] - scores[0][1]


def _scores(bandit: LatentBandit, train: Sessions, test: Sessions) -> tuple[Float[Array, "h"], Float[Array, "h"]]:
    """Return log-probabilities of the rewards and of the stays of each test session, given what came before."""
    correction = _by_step(bandit, train)
    rewards, chance = predicted(bandit, test)
    place, step = bandit.leaving_columns(test.rewards), test.steps
    step = np.minimum(step, correction.shape[1] - 1)
    chance = np.clip(chance * correction[place, step], *_EDGES)
    left, known = after(test)
    logs = np.where(left, np.log(chance), np.log1p(-chance)) * known
    return rewards, np.add.reduceat(logs, test.offsets[:-1])


def _by_step(bandit: LatentBandit, log: Sessions) -> Float[Array, "Z H"]:
    """Return how much more often sessions end at each step, after each value, than the bandit predicts."""
    _, chance = predicted(bandit, log)
    left, known = after(log)
    assert bandit.leaving is not None
    key = bandit.leaving_columns(log.rewards) * np.int64(log.horizon) + log.steps
    size = bandit.leaving.shape[2] * log.horizon
    seen, expected = (np.bincount(key, what * known, minlength=size) for what in (left, chance))
    return ((seen + _PSEUDO) / (expected + _PSEUDO)).reshape(-1, log.horizon)


def predicted(bandit: LatentBandit, log: Sessions) -> tuple[Float[Array, "N"], Float[Array, "S"]]:
    """Return the log-probability of the rewards of each session, and the chance to leave after each step.

    Each is predicted from all that the session showed before: rewards, and that it went on.
    """
    assert bandit.leaving is not None
    logs, chance = np.zeros(len(log)), np.zeros(log.n_steps)
    beliefs, live = belief.prior(bandit, len(log)), np.arange(len(log))
    place, likelihood = (
        bandit.leaving_columns(log.rewards),
        np.exp(bandit.rewards.log_likelihood(log.arms, log.rewards)),
    )
    for step in range(log.horizon):
        on = log.lengths[live] > step
        live, beliefs = live[on], beliefs[on]
        places = log.offsets[live] + step
        seen = beliefs * likelihood[places]
        mass = seen.sum(axis=1)
        logs[live] += np.log(mass)
        leaves = bandit.leaving[:, log.arms[places], place[places]].T
        chance[places] = (seen * leaves).sum(axis=1) / mass
        beliefs = belief.normalise(seen * (1 - leaves))
    return logs, chance


def after(log: Sessions) -> tuple[Bool[Array, "S"], Bool[Array, "S"]]:
    """Return after which steps a session was left, and after which steps it is known whether it was."""
    codes = np.full(log.n_steps, WENT_ON, np.uint8)
    codes[log.offsets[1:] - 1] = UNKNOWN if log.endings is None else log.endings
    return codes == LEFT, codes != UNKNOWN


_BY_SHOWN = "leaving is modelled by arm and reward"
_BY_TYPE = "leaving is modelled by type, arm and reward"
Refit = Callable[[LeavingLog], Estimate]  # the fit of a log in codes that say what came after each step


def fitted(estimate: Estimate, form: str, refit: Refit, rng: np.random.Generator, *, chosen: bool) -> Estimate:
    """Return the estimate with the chance to leave in the requested form; "auto" selects it on held-out sessions.

    Args:
        estimate: the fit to rewards alone.
        form: "auto", "shown" or "type".
        refit: fits types to rewards and stays together.
        rng: draws the held-out sessions and the starts of fits.
        chosen: whether the number of types was chosen by rewards alone: one more may be needed to explain leaving.
    """
    log = estimate.require_log()
    if form == SHOWN:
        return _saying(with_shown(estimate), _BY_SHOWN)
    assert isinstance(log, LeavingLog)
    if form == TYPE:
        return _saying(refit(log), _BY_TYPE)
    if int((log.sessions.endings == LEFT).sum()) < _FEW or log.sessions.horizon == 1:  # type: ignore[union-attr]
        return _saying(with_shown(estimate), f"{_BY_SHOWN}: fewer than {_FEW} sessions were left")
    gains = gains_of_types(log, max(estimate.n_types + chosen, 2), rng)
    if gains.clear:
        by_type = refit(log).with_candidates(gains.candidate(selected=True))
        return _saying(by_type, f"{_BY_TYPE}: held-out sessions are predicted better ({gains})")
    shown = with_shown(estimate)
    if not gains.against and attrition(shown.bandit, log.sessions).fires:
        by_type = refit(log).with_candidates(gains.candidate(selected=True))
        return _saying(by_type, f"{_BY_TYPE}: the log contradicts leaving by arm and reward alone ({gains})")
    shown = shown.with_candidates(gains.candidate(selected=False))
    return _saying(shown, f"{_BY_SHOWN}: types do not improve the prediction of held-out sessions ({gains})")


def _saying(estimate: Estimate, sentence: str) -> Estimate:
    return replace(estimate, message=f"{estimate.message}; {sentence}")
