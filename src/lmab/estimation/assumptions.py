"""Assumptions about a log, tested from the log itself: what a fit and its certificate take for granted.

Whatever was seen in a session may decide what happens next. Who it is may not, beyond what was seen: neither which arm
is *shown*, nor who is *leaving*; and the shares of types must not *drift*. Each test compares the belief about the type
before something happened with what the whole session says about the type, and is 0 on average where the assumption
holds, however the arms were chosen. A weaker property, that the next arm *reacts* to the reward, is no fault of a log,
but arms are then known from those they suit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._shapes import Array, Bool, Float, Integer
from ..data.features import LEFT, WENT_ON
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..model.bandit import LatentBandit
from ..model.belief import log_stays

SHOWN, LEAVING, DRIFT = "shown", "leaving", "drift"
_FIRES = {SHOWN: 2.7, LEAVING: 3.0, DRIFT: 2.7}  # standard deviations from which an assumption does not hold
_BEYOND_TYPE = 5.0  # for leaving beyond what types explain, since types are never fitted without error
_LOOKED_AT = 4_000  # sessions, of a larger log
_REACTS = 5.0  # standard deviations from which a log is said to react
_SESSIONS = 20_000  # Sessions of a larger log that are looked at for reactions.
_PARTS = {2: 0.85, 4: 0.15}  # Parts of the log, in its order, that are compared, and shares of the false alarms.
_PRIOR = 1.0  # information about every parameter that a prior adds
_SINGULAR = 1e-6  # A direction with a smaller part of the largest variance has none.
_ITERATIONS = 40  # Iterations of least squares.
_ROUNDS = 10  # Rounds of proportional fitting.
_VALUES = 8  # rewards told apart, where there are few
_FEW = 30  # sessions, or sessions that left, below which nothing is said
_MANY = 32  # types, above which too many shares are compared


@dataclass(frozen=True)
class Assumption:
    """One assumption: whether the log contradicts it, how strongly, and what that means."""

    fires: bool  # the log contradicts the assumption
    score: float  # in standard deviations of logs where it holds
    sentence: str


@dataclass(frozen=True)
class Assumptions:
    """The three assumptions of a fit."""

    shown: Assumption  # which arms are shown does not depend on who it is, beyond what the session had seen
    leaving: Assumption  # nor who leaves
    drift: Assumption  # the shares of types stay the same

    @property
    def by_name(self) -> dict[str, Assumption]:
        return {SHOWN: self.shown, LEAVING: self.leaving, DRIFT: self.drift}


def tested(bandit: LatentBandit, sessions: Sessions | Packed) -> Assumptions:
    """The three assumptions, tested with a fitted bandit on its own log, of which at most 4,000 sessions are looked at.

    Examples:
        >>> import lmab
        >>> truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.4], [0.2, 0.8, 0.6]])
        >>> log = lmab.simulate(truth, lmab.Greedy(truth), n_sessions=2000, horizon=4, rng=0)
        >>> found = tested(truth, log)
        >>> found.shown.fires, found.leaving.fires, found.drift.fires
        (False, False, False)
    """
    if not 1 < bandit.n_types <= _MANY or len(sessions) < _FEW:
        return Assumptions(*[Assumption(fires=False, score=0.0, sentence=_NOT_ASKED)] * 3)
    seen = _Seen.of(bandit, sessions)
    modelled = bandit.leaves_by_type
    leaving = _leaving_beyond_type(seen) if modelled else _leaving(seen)
    scores = {SHOWN: _shown(seen), LEAVING: leaving, DRIFT: _drift(seen)}
    fires = {name: score > _FIRES[name] for name, score in scores.items()}
    fires[LEAVING] = leaving > (_BEYOND_TYPE if modelled else _FIRES[LEAVING])
    said = {name: _SAID[name][fires[name]] for name in scores}
    if modelled:
        said[LEAVING] = _MODELLED[fires[LEAVING]]
    return Assumptions(*(Assumption(fires[name], score, said[name]) for name, score in scores.items()))


_NOT_ASKED = f"Not tested: that takes 2 to {_MANY} types and at least {_FEW} sessions."
_MODELLED = (
    "Who leaves depends on the type, and the fit knows by how much.",
    "Who leaves depends on earlier rewards, beyond type, arm, reward and step, so nobody knows how long sessions last "
    "under another policy; there are more types than the fit has, or a rule of the site ends sessions (three right "
    "answers in a row): do not call the end of such a session left.",
)
_SAID = {
    SHOWN: (
        "Which arms were shown did not depend on the type beyond what the session had seen.",
        "Which arms were shown depends on who it is, beyond what the session had seen, so arms seem better than they "
        "are for others; log what the site knew as a feature, or log some sessions with random arms.",
    ),
    LEAVING: (
        "Who leaves did not depend on the type beyond arm, reward and step.",
        "Who leaves depends on the type or on earlier rewards, beyond arm, reward and step, so long sessions come from "
        "other people than short ones; fit with leaving, or plan for the steps that nearly everybody reaches.",
    ),
    DRIFT: (
        "The shares of types did not change over the log.",
        "The shares of types changed over the log, so the fit knows the mixture in the log and not that of the people "
        "to come; fit to the latest part of the log.",
    ),
}  # each where the assumption holds, and where it does not


@dataclass(frozen=True, eq=False)
class _Seen:
    """A log, or some of its sessions, with what a bandit believes about the types in it."""

    bandit: LatentBandit
    log: Sessions
    owner: Integer[Array, "S"]  # session of every step
    after: Float[Array, "S M"]  # belief after every step
    before: Float[Array, "S M"]  # and before it
    whole: Float[Array, "N M"]  # what the whole session says

    @classmethod
    def of(cls, bandit: LatentBandit, sessions: Sessions | Packed) -> _Seen:
        log = sessions[:: max(1, len(sessions) // _LOOKED_AT)]
        owner = np.repeat(np.arange(len(log)), log.lengths)
        terms = bandit.rewards.log_likelihood(log.arms, log.rewards)
        if bandit.leaves_by_type:
            terms = terms + log_stays(bandit, log)
        terms = np.maximum(terms, -700.0)
        total = np.cumsum(terms, axis=0)
        start = (total - terms)[log.offsets[:-1]]
        with np.errstate(divide="ignore"):
            prior = np.log(bandit.weights)
        after = _normalised(prior + total - start[owner])
        before = _normalised(prior + total - terms - start[owner])
        return cls(bandit, log, owner, after, before, after[log.offsets[1:] - 1])

    def per_session(self, values: Float[Array, "S *k"]) -> Float[Array, "N *k"]:
        """Sums over the steps of every session."""
        return np.add.reduceat(values, self.log.offsets[:-1], axis=0)


def _normalised(logs: Float[Array, "n M"]) -> Float[Array, "n M"]:
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def _shown(seen: _Seen) -> float:
    """Do sessions turn out to be of types that like the arm they were shown, more than was believed before the step?

    Given the session so far and the arm, the belief before a step is the expected belief at the end of the session,
    unless the arm itself told the type. The sum over steps of (belief at the end - belief before) times how much each
    type likes the arm is compared with its standard deviation, after regression on the scores of the fitted parameters,
    which bend to what the arms tell (the efficient score of a site that favours, for each type, what this type likes).
    """
    bandit, log = seen.bandit, seen.log
    likes = (bandit.means - bandit.weights @ bandit.means).T  # (A, M)
    moved = seen.whole[seen.owner] - seen.before
    own = seen.per_session((likes[log.arms] * moved).sum(axis=1))
    rest = _unexplained(own[:, None], _parameter_scores(seen))[:, 0]
    deviation = np.sqrt((rest**2).sum())
    return float(rest.sum() / deviation) if deviation > 0 else 0.0


def _unexplained(own: Float[Array, "N k"], scores: Any) -> Float[Array, "N k"]:
    """What the scores of fitted parameters do not explain, by least squares, widened for the parameters it takes."""
    from scipy.sparse.linalg import lsqr

    size = np.asarray(scores.multiply(scores).sum(axis=0)).ravel()
    free = len(own) / max(len(own) - float((size / (size + _PRIOR)).sum()), 0.5 * len(own))
    fitted = [scores @ lsqr(scores, column, damp=np.sqrt(_PRIOR), iter_lim=_ITERATIONS)[0] for column in own.T]
    rest = own - np.stack(fitted, axis=1)
    middle = rest.mean(axis=0)
    return middle + np.sqrt(free) * (rest - middle)


def _parameter_scores(seen: _Seen) -> Any:
    """Derivatives of every session's log-likelihood by weights and means, one column each."""
    from scipy.sparse import csr_matrix, hstack

    bandit, log, n_types = seen.bandit, seen.log, seen.bandit.n_types
    error = log.rewards[:, None] - bandit.means.T[log.arms]
    values = seen.whole[seen.owner] * error
    rows = np.repeat(seen.owner, n_types)
    columns = (log.arms.astype(np.int64)[:, None] * n_types + np.arange(n_types)).ravel()
    shape = (len(log), bandit.n_arms * n_types)
    of_means = csr_matrix((values.ravel(), (rows, columns)), shape=shape)
    return hstack([csr_matrix(seen.whole - bandit.weights), of_means]).tocsr()


def _leaving(seen: _Seen) -> float:
    """Is leaving more frequent in sessions of one type, beyond arm, reward and step?

    The rate of leaving is that of arm and reward times that of step and reward; two tests look at what exceeds it. One
    multiplies it by what the whole session says about each type (the score of a type that leaves more often), the other
    by earlier rewards, arm by arm, without a model. The larger one counts.
    """
    left, known = left_after(seen.log)
    if left.sum() < _FEW or known.sum() == left.sum():
        return 0.0
    value = np.unique(seen.log.rewards, return_inverse=True)[1]
    if value.max() >= _VALUES:  # groups of about the same size, in which frequent rewards such as 0 stand alone
        edges = np.unique(np.quantile(seen.log.rewards, np.arange(1, _VALUES) / _VALUES))
        value = np.searchsorted(edges, seen.log.rewards, side="right")
    cell, time = (key.astype(np.int64) * _VALUES + value for key in (seen.log.arms, seen.log.steps))
    excess = (left - _rate(cell, time, left, known)) * known
    scores = _with_rates(_parameter_scores(seen), seen.owner, excess, cell, time)
    own = (seen.whole - seen.bandit.weights)[:, :-1] * seen.per_session(excess)[:, None]
    rest = _unexplained(own, scores)
    total = rest.sum(axis=0)
    by_type = _hotelling(float(total @ _inverse(rest.T @ rest) @ total), seen.bandit.n_types - 1)
    return max(by_type, _by_earlier_rewards(seen, excess))


def _leaving_beyond_type(seen: _Seen) -> float:
    """Do earlier rewards go with leaving, where the fit knows how types leave? In standard deviations.

    The rate of leaving is what the fit predicts from the session so far, with one factor for each step and reward.
    """
    bandit, log = seen.bandit, seen.log
    assert bandit.leaving is not None
    left, known = left_after(log)
    if left.sum() < _FEW or known.sum() == left.sum():
        return 0.0
    value = bandit.left_after(log.rewards)
    shares = _normalised(np.log(seen.before) + np.maximum(bandit.rewards.log_likelihood(log.arms, log.rewards), -700.0))
    chance = (shares * bandit.leaving[:, log.arms, value].T).sum(axis=1)
    time = log.steps.astype(np.int64) * (int(value.max()) + 1) + value
    happened, expected = (np.bincount(time, what * known) for what in (left, chance))
    factor = (happened + 1.0) / (expected + 1.0)
    return _by_earlier_rewards(seen, (left - np.minimum(chance * factor[time], 0.99)) * known)


def _by_earlier_rewards(seen: _Seen, excess: Float[Array, "S"]) -> float:
    """Do rewards go with leaving later in the session? Squared sums over the sessions of each arm, standardised.

    Steps of one arm in one session are added first: they are of one type and share what happens later.
    """
    from scipy.sparse import csr_matrix

    log = seen.log
    later = seen.per_session(excess)[seen.owner] - _so_far(excess, log)
    plays = np.maximum(np.bincount(log.arms, minlength=log.n_arms), 1)
    rest = log.rewards - (np.bincount(log.arms, log.rewards, minlength=log.n_arms) / plays)[log.arms]
    each = csr_matrix((rest * later, (seen.owner, log.arms)), shape=(len(log), log.n_arms))
    squares = np.asarray(each.multiply(each).sum(axis=1)).ravel()
    spread = 2 * (float(((each.T @ each).power(2)).sum()) - float((squares**2).sum()))
    total = float((np.asarray(each.sum(axis=0)).ravel() ** 2).sum() - squares.sum())
    return float(total / np.sqrt(spread)) if spread > 0 else 0.0


def _so_far(values: Float[Array, "S"], log: Sessions) -> Float[Array, "S"]:
    """Sums over the steps of a session up to each step, this one included."""
    total = np.cumsum(values)
    return total - np.repeat((total - values)[log.offsets[:-1]], log.lengths)


def _with_rates(
    scores: Any,
    owner: Integer[Array, "S"],
    excess: Float[Array, "S"],
    cell: Integer[Array, "S"],
    time: Integer[Array, "S"],
) -> Any:
    """Scores of the rates of leaving beside those of the bandit."""
    from scipy.sparse import csr_matrix, hstack

    rates = [csr_matrix((excess, (owner, key)), shape=(scores.shape[0], key.max() + 1)) for key in (cell, time)]
    return hstack([scores, *rates]).tocsr()


def left_after(log: Sessions) -> tuple[Float[Array, "S"], Bool[Array, "S"]]:
    """After which steps a session left, and after which steps this is known.

    A log that does not say how sessions ended is taken to stop at its longest session: whoever got there may have left
    or gone on.
    """
    last = log.offsets[1:] - 1
    left, known = np.zeros(log.n_steps), np.ones(log.n_steps, bool)
    if log.endings is None:
        went = log.lengths == log.lengths.max()
        left[last], known[last] = ~went, ~went
    else:
        left[last], known[last] = log.endings == LEFT, (log.endings == LEFT) | (log.endings == WENT_ON)
    return left, known


def _rate(
    cell: Integer[Array, "S"], time: Integer[Array, "S"], left: Float[Array, "S"], known: Bool[Array, "S"]
) -> Float[Array, "S"]:
    """Chance to leave by arm and reward, times one by step and reward, by proportional fitting."""
    by_cell, by_time = np.ones(cell.max() + 1), np.full(time.max() + 1, left[known].mean())
    for _ in range(_ROUNDS):
        for key, own, others, place in ((time, by_time, by_cell, cell), (cell, by_cell, by_time, time)):
            other = others[place]  # as they are now: rates that both come from the round before would swing
            seen, expected = (np.bincount(key, what * known, minlength=len(own)) for what in (left, other))
            own[:] = (seen + 0.1) / (expected + 0.1)
    return np.minimum(by_cell[cell] * by_time[time], 0.99)


def _drift(seen: _Seen) -> float:
    """Do the parts of the log, in its order, hold other shares of types? Halves count most, quarters a little."""
    inverse, centre = _inverse(np.cov(seen.whole.T)), seen.whole.mean(axis=0)
    found = []
    for number, share in _PARTS.items():
        moves = [np.sqrt(len(part)) * (part.mean(axis=0) - centre) for part in np.array_split(seen.whole, number)]
        squared, degrees = sum(move @ inverse @ move for move in moves), (number - 1) * (seen.bandit.n_types - 1)
        found.append(_chance(float(squared), degrees) / share)
    return _deviations(min(found))


def _inverse(spread: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """Of a covariance of shares, which has no spread in the direction of their sum."""
    return np.asarray(np.linalg.pinv(spread, rcond=_SINGULAR, hermitian=True))


def _hotelling(squared: float, degrees: int) -> float:
    """A squared distance of so many degrees of freedom, in standard deviations that are as unlikely."""
    return _deviations(_chance(squared, degrees))


def _chance(squared: float, degrees: int) -> float:
    from scipy.special import chdtrc

    return float(chdtrc(degrees, squared))


def _deviations(chance: float) -> float:
    from scipy.special import ndtri

    return float(-ndtri(np.clip(chance, 1e-300, 1 - 1e-16)))


def reaction(sessions: Sessions | Packed) -> float:
    """How strongly the next arm depends on the reward, in standard deviations of logs where it does not.

    Two steps agree where they have the same arm and are followed by the same arm. Where the next arm does not depend on
    the reward, rewards of such steps, less the mean of their arm, multiply to 0 on average; the sum of all products is
    compared with its standard deviation.

    Examples:
        >>> import numpy as np, lmab
        >>> truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]])
        >>> logs = [
        ...     lmab.simulate(truth, policy, n_sessions=500, horizon=4, rng=np.random.default_rng(0))
        ...     for policy in (lmab.Uniform(2), lmab.Greedy(truth))
        ... ]
        >>> [reacts(reaction(log)) for log in logs]
        [False, True]
    """
    part = sessions[:: max(1, len(sessions) // _SESSIONS)]
    goes_on = np.ones(part.n_steps, bool)
    goes_on[part.offsets[1:] - 1] = False
    now = np.flatnonzero(goes_on)
    arms, after, rewards = part.arms[now], part.arms[now + 1].astype(np.int64), part.rewards[now]
    if len(now) == 0:
        return 0.0
    rest = rewards - (np.bincount(arms, rewards) / np.maximum(np.bincount(arms), 1))[arms]
    group = np.unique(arms * np.int64(part.n_arms) + after, return_inverse=True)[1]
    return _squared_sums(group, rest)


def _squared_sums(group: Integer[Array, "n"], values: Float[Array, "n"]) -> float:
    """The sum over groups of all products of two values, in its standard deviations where values are independent."""
    sums, squares, fourths = (np.bincount(group, values**power) for power in (1, 2, 4))
    deviation = np.sqrt(2 * np.maximum(squares**2 - fourths, 0.0).sum())
    return float((sums**2 - squares).sum() / deviation) if deviation > 0 else 0.0


def reacts(deviations: float) -> bool:
    """Whether so strong a dependence is no chance."""
    return deviations > _REACTS
