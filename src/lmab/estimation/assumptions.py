"""Tests of four assumptions of a fit and its assessment on the log itself.

What a session has seen may decide what happens next; its latent type may not, beyond what was seen. So the type must
decide neither the arms (*exposure*: selective exposure) nor the end of a session (*leaving*: attrition), the mixture of
types and the rewards of arms must not *drift* over the log, and the reward of an arm must not depend on the *step*.

The tests are score tests with the variance between sessions. If the model is right, each score has mean 0 however the
log chose its arms, because beliefs are martingales. If the model is wrong (too few types), *step* and *drift* still
have mean 0 on logs whose arms do not depend on the session, and *exposure* fires only if the arms follow the session:
its other arms, or the belief from its other steps, neither of which arms drawn at random do. If arms or lengths follow
the rewards of the session, too few types make rewards seem to depend on the step; so *step* must fire with more types
than were fitted, too.

A weaker property, that the next arm *reacts* to the reward, is no fault of a log, but the arms are then known from
sessions that they suit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .._shapes import Array, Bool, Float, Integer
from ..data.features import LEFT, WENT_ON
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..model.bandit import LatentBandit
from ..model.belief import expected_rewards, log_attrition_likelihood, log_likelihood

EXPOSURE, LEAVING, DRIFT, STEP = "exposure", "leaving", "drift", "step"
TESTS = {EXPOSURE: "selective exposure", LEAVING: "attrition", DRIFT: "drift", STEP: "the effect of the step"}
_FIRES = {
    EXPOSURE: 2.7,
    LEAVING: 3.0,
    DRIFT: 3.0,
    STEP: 3.0,
}  # standard deviations
_ALIKE, _NEIGHBOURS = 2.0, 8  # deviations from which arms follow the session, beside so many neighbouring sessions
_BEYOND_TYPE = 5.0  # for leaving beyond what types explain, since types are never fitted without error
_LOOKED_AT = 4_000  # sessions, of a larger log
_REACTS = 5.0  # standard deviations from which a log is said to react
_SESSIONS = 20_000  # Sessions of a larger log that are looked at for reactions.
_PARTS = {2: 0.85, 4: 0.15}  # Parts of the log, in its order, that are compared, and shares of the false alarms.
_PRIOR = 1.0  # information about every parameter that a prior adds
_DRIFT_SHARES, _QUARTERS = 0.7, 4  # false alarms of *drift* that the mixture takes; parts in which rewards may differ
_MORE_TYPES = 3  # in the model that must confirm an effect of the step: with 4, none of 88 logs without one fired
_SINGULAR = 1e-6  # A direction with a smaller part of the largest variance has none.
_ITERATIONS = 40  # Iterations of least squares.
_ROUNDS = 10  # Rounds of proportional fitting.
_VALUES = 8  # rewards told apart, where there are few
LOW = 0.01  # p-value below which leaving is said to depend on the arm, or on the reward
_FEW = 30  # sessions, or sessions that left, below which nothing is said
_MANY = 32  # types, above which too many shares are compared


@dataclass(frozen=True)
class Assumption:
    """One assumption: whether the log contradicts it, how strongly, and what that means."""

    fires: bool  # the log contradicts the assumption
    score: float  # in standard deviations of logs where it holds
    sentence: str


_NOT_ASKED = Assumption(False, 0.0, f"Not tested: the test requires 2 to {_MANY} types and at least {_FEW} sessions.")
_UNORDERED = Assumption(
    False,
    0.0,
    "Not tested: the order of the sessions in time is unknown, because the rows are sorted by session ids that are "
    "texts; sort the rows by time, or give the steps times.",
)
_UNTESTED = Assumption(False, 0.0, "Not tested: the file was written by a version without this test.")


@dataclass(frozen=True)
class Assumptions:
    """The four assumptions of a fit."""

    shown: Assumption  # Exposure does not depend on the type beyond what the session had seen.
    leaving: Assumption  # Attrition does not depend on the type beyond arm, reward and step.
    drift: Assumption  # The mixture of types and the rewards of arms stay the same over the log.
    step: Assumption = _UNTESTED  # The expected reward of an arm does not depend on the step; files may lack this one.

    @property
    def by_name(self) -> dict[str, Assumption]:
        return {EXPOSURE: self.shown, LEAVING: self.leaving, DRIFT: self.drift, STEP: self.step}


def tested(bandit: LatentBandit, sessions: Sessions | Packed) -> Assumptions:
    """Test the four assumptions with a fitted bandit on its own log, on at most 4,000 sessions of it.

    Examples:
        >>> import lmab
        >>> truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.4], [0.2, 0.8, 0.6]])
        >>> log = lmab.simulate(truth, lmab.Greedy(truth), n_sessions=2000, horizon=4, rng=0)
        >>> found = tested(truth, log)
        >>> [name for name, one in found.by_name.items() if one.fires]
        []
    """
    if len(sessions) < _FEW:
        return Assumptions(*[_NOT_ASKED] * 4)
    if bandit.n_types > _MANY:
        few = _refitted(_part(sessions), bandit, 1 + _MORE_TYPES)
        return Assumptions(_NOT_ASKED, _NOT_ASKED, _drift(few), _step(few))
    seen = _Seen.of(bandit, sessions)
    return Assumptions(_exposure(seen), _leaving(seen), _drift(seen), _step(seen))


def exposure(bandit: LatentBandit, sessions: Sessions | Packed) -> Assumption:
    """Test the assumption *exposure* alone."""
    few = bandit.n_types > _MANY or len(sessions) < _FEW
    return _NOT_ASKED if few else _exposure(_Seen.of(bandit, sessions))


def attrition(bandit: LatentBandit, sessions: Sessions | Packed) -> Assumption:
    """Test the assumption *leaving* alone."""
    few = bandit.n_types > _MANY or len(sessions) < _FEW
    return _NOT_ASKED if few else _leaving(_Seen.of(bandit, sessions))


def _judged(name: str, score: float, sentences: tuple[str, str], fires_at: float | None = None) -> Assumption:
    """Return the assumption with the first sentence, or with the second one if the score contradicts it."""
    fires = score > (_FIRES[name] if fires_at is None else fires_at)
    return Assumption(fires, score, sentences[fires])


# Each pair: what is said if the assumption holds, and if it does not.
_EXPOSURE = (
    "No selective exposure was found: given the past of the session, the logged arms do not depend on the latent type.",
    "The logged arms depend on the latent type, given the past of the session (selective exposure), so mean rewards of "
    "arms are overestimated for other types; log the information that the site used as a feature, or log some sessions "
    "with random arms.",
)
_LEAVING = (
    "Given arm, reward and step, leaving does not depend on the latent type.",
    "Leaving depends on the latent type or on earlier rewards, given arm, reward and step, so long and short sessions "
    "differ in their types; model attrition (--ended or --limit), or plan for the steps that nearly all sessions "
    "reach.",
)
_MODELLED = (
    "Leaving depends on the latent type, and the model includes this.",
    "Leaving depends on earlier rewards, given type, arm, reward and step, so the length of sessions under another "
    "policy is unknown; either there are more types than fitted, or a rule of the site ends sessions (three right "
    "answers in a row): do not mark such sessions as left.",
)
_STEP_MODELLED = "Rewards depend on the step, and the model includes this."
_MIXTURE = (
    "No drift was found: neither the mixture of types nor the rewards of arms changed over the log.",
    "The mixture of types changed over the log (drift), so the mixture of future sessions is unknown; fit to the "
    "latest part of the log.",
)


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
        log = _part(sessions)
        owner = np.repeat(np.arange(len(log)), log.lengths)
        terms = log_likelihood(bandit, log)
        if bandit.has_informative_attrition:
            terms = terms + log_attrition_likelihood(bandit, log)
        terms = np.maximum(terms, -700.0)
        total = np.cumsum(terms, axis=0)
        start = (total - terms)[log.offsets[:-1]]
        with np.errstate(divide="ignore"):
            prior = np.log(bandit.weights)
        after = _normalised(prior + total - start[owner])
        before = _normalised(prior + total - terms - start[owner])
        return cls(bandit, log, owner, after, before, after[log.offsets[1:] - 1])

    @cached_property
    def means(self) -> Float[Array, "S M"]:
        """Mean reward of every step, by type."""
        return expected_rewards(self.bandit, self.log)

    def per_session(self, values: Float[Array, "S *k"]) -> Float[Array, "N *k"]:
        """Sums over the steps of every session."""
        return np.add.reduceat(values, self.log.offsets[:-1], axis=0)


def _part(sessions: Sessions | Packed) -> Sessions:
    """Return at most about 4,000 sessions, evenly from the whole log, in the order of time if it is known."""
    log = sessions[:: max(1, len(sessions) // _LOOKED_AT)]
    return log.in_time() or log


def _normalised(logs: Float[Array, "n M"]) -> Float[Array, "n M"]:
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def _exposure(seen: _Seen) -> Assumption:
    """Test whether exposure depends on the type."""
    return _NOT_ASKED if seen.bandit.n_types == 1 else _judged(EXPOSURE, _shown(seen), _EXPOSURE)


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
    by_model = _standardised(_unexplained(own[:, None], _parameter_scores(seen))[:, 0])
    alike = _alike_arms((likes * np.sqrt(bandit.weights))[log.arms], log)
    return min(by_model, max(alike, _follows_other_steps(seen, likes[log.arms])) * _FIRES[EXPOSURE] / _ALIKE)


def _follows_other_steps(seen: _Seen, likes: Float[Array, "S M"]) -> float:
    """Test whether an arm suits the types that the other steps of its session point to.

    The belief without the step itself does not depend on an arm that is drawn at random, whatever is wrong with the
    model, unless the rewards of other steps do. Neighbouring sessions are subtracted, so that a calendar cancels.
    """
    bandit, log = seen.bandit, seen.log
    terms = np.maximum(log_likelihood(bandit, log), -700.0)
    with np.errstate(divide="ignore"):
        others = _normalised(np.log(bandit.weights) + seen.per_session(terms)[seen.owner] - terms)
    near = np.mean([np.roll(seen.whole, -shift, axis=0) for shift in range(1, _NEIGHBOURS + 1)], axis=0)
    centred = likes - (_by_key(likes, log.steps) / np.bincount(log.steps)[:, None])[log.steps]
    return _standardised(seen.per_session((centred * (others - near[seen.owner])).sum(axis=1)))


def _alike_arms(likes: Float[Array, "S M"], log: Sessions) -> float:
    """Test whether arms of one session suit the same types, more than arms of neighbouring sessions do.

    The test uses no rewards. Sites that select arms by type show arms to a session that are alike; arms that do not
    depend on the session are not, whatever is wrong with the model of rewards. A common calendar cancels.
    """
    centred = likes - (_by_key(likes, log.steps) / np.bincount(log.steps)[:, None])[log.steps]
    table = np.zeros((len(log), log.horizon, likes.shape[1]))
    table[np.repeat(np.arange(len(log)), log.lengths), log.steps] = centred
    sums = table.sum(axis=1)
    excess = (sums**2).sum(axis=1) - (table**2).sum(axis=(1, 2))
    for shift in range(1, _NEIGHBOURS + 1):
        same_step = (table * np.roll(table, -shift, axis=0)).sum(axis=(1, 2))
        excess -= ((sums * np.roll(sums, -shift, axis=0)).sum(axis=1) - same_step) / _NEIGHBOURS
    return _standardised(excess)


def _by_key(values: Float[Array, "S M"], key: Integer[Array, "S"]) -> Float[Array, "K M"]:
    """Return the sums of each column over the rows of every key."""
    return np.stack([np.bincount(key, column) for column in values.T], axis=1)


def _standardised(values: Float[Array, "N"]) -> float:
    """Return the sum of independent values, in its standard deviations if their mean is 0."""
    deviation = np.sqrt((values**2).sum())
    return float(values.sum() / deviation) if deviation > 0 else 0.0


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
    error = log.rewards[:, None] - seen.means
    values = seen.whole[seen.owner] * error
    rows = np.repeat(seen.owner, n_types)
    columns = (log.arms.astype(np.int64)[:, None] * n_types + np.arange(n_types)).ravel()
    shape = (len(log), bandit.n_arms * n_types)
    of_means = csr_matrix((values.ravel(), (rows, columns)), shape=shape)
    return hstack([csr_matrix(seen.whole - bandit.weights), of_means]).tocsr()


def _leaving(seen: _Seen) -> Assumption:
    """Test whether leaving depends on more than the model knows."""
    if seen.bandit.n_types == 1:
        return _NOT_ASKED
    if seen.bandit.has_informative_attrition:
        return _judged(LEAVING, _leaving_beyond_type(seen), _MODELLED, _BEYOND_TYPE)
    return _judged(LEAVING, _leaving_by_type(seen), _LEAVING)


def _leaving_by_type(seen: _Seen) -> float:
    """Test whether leaving is more frequent in sessions of one type, beyond arm, reward and step.

    The rate of leaving is that of arm and reward times that of step and reward; two tests look at what exceeds it. One
    multiplies it by the belief about each type given the whole session (the score of a type that leaves more often),
    the other by earlier rewards, arm by arm, without a model. The larger one counts.

    If rewards depend on the step, long sessions look like types with the rewards of late steps. The belief after the
    step is used then, which knows nothing of what comes later, so that only sessions at the same step are compared; it
    needs no correction for the fitted parameters, because the score has mean 0 for any belief of this kind.
    """
    left, known = left_after(seen.log)
    if left.sum() < _FEW or known.sum() == left.sum():
        return 0.0
    value = reward_groups(seen.log.rewards)
    cell, time = (key.astype(np.int64) * _VALUES + value for key in (seen.log.arms, seen.log.steps))
    excess = (left - _rate(cell, time, left, known)) * known
    step_matters = _deviations(_within_arms(seen, _step_groups(seen.log))[0]) > _FIRES[STEP]
    beliefs = seen.after if step_matters else seen.whole[seen.owner]
    scores = _with_rates(None if step_matters else _parameter_scores(seen), seen.owner, excess, cell, time)
    own = seen.per_session((beliefs - seen.bandit.weights)[:, :-1] * excess[:, None])
    rest = _unexplained(own, scores)
    total = rest.sum(axis=0)
    by_type = _hotelling(float(total @ _inverse(rest.T @ rest) @ total), seen.bandit.n_types - 1)
    return max(by_type, _by_earlier_rewards(seen, excess))


def reward_groups(rewards: Float[Array, "S"]) -> Integer[Array, "S"]:
    """Return the number of each reward, or of its group if there are many; frequent rewards such as 0 stand alone."""
    value = np.unique(rewards, return_inverse=True)[1]
    if value.max() < _VALUES:
        return value
    edges = np.unique(np.quantile(rewards, np.arange(1, _VALUES) / _VALUES))
    return np.searchsorted(edges, rewards, side="right")


def _leaving_beyond_type(seen: _Seen) -> float:
    """Do earlier rewards go with leaving, where the fit knows how types leave? In standard deviations.

    The rate of leaving is what the fit predicts from the session so far, with one factor for each step and reward.
    """
    bandit, log = seen.bandit, seen.log
    assert bandit.leaving is not None
    left, known = left_after(log)
    if left.sum() < _FEW or known.sum() == left.sum():
        return 0.0
    value = bandit.leaving_columns(log.rewards)
    shares = _normalised(np.log(seen.before) + np.maximum(log_likelihood(bandit, log), -700.0))
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
    """Return the scores of the rates of leaving, beside those of the bandit if given."""
    from scipy.sparse import csr_matrix, hstack

    rates = [csr_matrix((excess, (owner, key)), shape=(owner[-1] + 1, key.max() + 1)) for key in (cell, time)]
    return hstack(rates if scores is None else [scores, *rates]).tocsr()


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


def _drift(seen: _Seen) -> Assumption:
    """Test whether the mixture of types, or the rewards of arms, changed over the log, in the order of time."""
    if seen.log.positions is not None:
        return _UNORDERED
    quarter = np.arange(len(seen.log)) * _QUARTERS // len(seen.log)
    chance, effect = _within_arms(seen, quarter[seen.owner])
    chances = _mixture_changed(seen) / _DRIFT_SHARES, chance / (1 - _DRIFT_SHARES)
    size = _size(seen, effect, [f"in quarter {number + 1} of the log" for number in range(_QUARTERS)])
    rewards = f"Rewards of the same arm changed over the log: {size}, so future rewards are unknown; fit to "
    said = _MIXTURE[0], _MIXTURE[1] if chances[0] <= chances[1] else f"{rewards}the latest part of the log."
    return _judged(DRIFT, _deviations(min(chances)), said)


def _mixture_changed(seen: _Seen) -> float:
    """Return the p-value of equal shares of types in the parts of the log. Halves count most, quarters a little."""
    if seen.bandit.n_types == 1:
        return 1.0
    inverse, centre = _inverse(np.cov(seen.whole.T)), seen.whole.mean(axis=0)
    found = []
    for number, share in _PARTS.items():
        moves = [np.sqrt(len(part)) * (part.mean(axis=0) - centre) for part in np.array_split(seen.whole, number)]
        squared, degrees = sum(move @ inverse @ move for move in moves), (number - 1) * (seen.bandit.n_types - 1)
        found.append(chance_above(float(squared), degrees) / share)
    return min(found)


def _step(seen: _Seen) -> Assumption:
    """Test whether rewards of the same arm depend on the step, and say by how much."""
    group = _step_groups(seen.log)
    chance, effect = _within_arms(seen, group)
    if _deviations(chance) > _FIRES[STEP] and seen.bandit.step_effects is None:
        more, effect = _within_arms(_refitted(seen.log, seen.bandit, seen.bandit.n_types + _MORE_TYPES), group)
        chance = max(chance, more)
    first, last = (getattr(np, end)(seen.log.steps[group == len(effect) - 1]) for end in ("min", "max"))
    names = ["at step 1", *(f"at steps {2**g} to {2 ** (g + 1) - 1}" for g in range(1, len(effect) - 1))]
    names += [f"at steps {first + 1} to {last + 1}"] * (len(effect) > 1)
    size = _size(seen, effect, names)
    if seen.bandit.step_effects is not None:
        beyond = f"Rewards of the same arm depend on the step beyond the effects in the model: {size}"
        return _judged(STEP, _deviations(chance), (_STEP_MODELLED, f"{beyond}; test the policy on live sessions."))
    why = "so a model without an effect of the step cannot predict the reward of a session"
    fires = f"Rewards of the same arm depend on the step: {size}, {why}; test the policy on live sessions."
    return _judged(STEP, _deviations(chance), ("Rewards of the same arm do not depend on the step.", fires))


def _refitted(log: Sessions, bandit: LatentBandit, n_types: int) -> _Seen:
    """Return the sessions with a quick fit of so many types, for the same family of rewards as the bandit's."""
    from .em import EM
    from .families import observe

    rewards = bandit.rewards
    seen = observe(log, rewards=rewards.family, values=rewards.values if rewards.family == "categorical" else None)
    method = EM(restarts=2, tolerance=1e-3, prior="learned", sweeps=8, threads=1)
    return _Seen.of(method.fit(seen, n_types=min(n_types, len(log)), rng=np.random.default_rng(0)).bandit, log)


def _size(seen: _Seen, effect: Float[Array, "g"], names: list[str]) -> str:
    """Return the largest difference of a group from the first one, in words."""
    other = int(np.abs(effect - effect[0]).argmax())
    change, level = effect[other] - effect[0], seen.log.rewards.mean() + effect[0]
    share = f" ({abs(change) / level:.0%})" if level > 0 and seen.log.rewards.min() >= 0 else ""
    return f"{names[other]} they are {abs(change):.3g}{share} {'higher' if change > 0 else 'lower'} than {names[0]}"


def _step_groups(log: Sessions) -> Integer[Array, "S"]:
    """Return the group of every step: the first step, the next 2, the next 4, ..., as far as there are enough plays."""
    group = np.log2(log.steps + 1.0).astype(np.int64)
    enough = np.flatnonzero(np.bincount(group) >= _FEW)
    return np.minimum(group, enough[-1] if len(enough) else 0)


def _within_arms(seen: _Seen, group: Integer[Array, "S"]) -> tuple[float, Float[Array, "g"]]:
    """Compare rewards of the same arm and type between groups of steps by a stratified score test.

    The score of an effect of the group is the reward less its mean by arm and type, weighted by the posterior of the
    whole session and centred within each arm and type, so that groups with different arms are comparable. It has mean 0
    however the log chose its arms, if the model is right, and for any model if the arms do not depend on the session.

    Returns:
        The p-value, and the mean difference of each group from what the model predicts.
    """
    bandit, log = seen.bandit, seen.log
    weight = seen.whole[seen.owner]
    error = weight * (log.rewards[:, None] - seen.means)
    plays = np.zeros((log.n_arms, bandit.n_types))
    np.add.at(plays, log.arms, weight)
    columns, effect = [], np.zeros(int(group.max()) + 1)
    for number in range(len(effect)):
        inside = group == number
        share = np.zeros_like(plays)
        np.add.at(share, log.arms[inside], weight[inside])
        share /= np.maximum(plays, 1e-12)
        columns.append(seen.per_session((error * (inside[:, None] - share[log.arms])).sum(axis=1)))
        effect[number] = error[inside].sum() / max(int(inside.sum()), 1)
    own = np.stack(columns, axis=1)
    rest = _unexplained(own, _parameter_scores(seen))
    spread, total = rest.T @ rest, rest.sum(axis=0)
    least = _SINGULAR * float((own**2).sum())
    values, vectors = np.linalg.eigh(spread)
    kept = values > max(least, _SINGULAR * values[-1])
    if not kept.any():
        return 1.0, effect
    squared = float(((vectors.T @ total)[kept] ** 2 / values[kept]).sum())
    return chance_above(squared, int(kept.sum())), effect


def _inverse(spread: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """Of a covariance of shares, which has no spread in the direction of their sum."""
    return np.asarray(np.linalg.pinv(spread, rcond=_SINGULAR, hermitian=True))


def _hotelling(squared: float, degrees: int) -> float:
    """A squared distance of so many degrees of freedom, in standard deviations that are as unlikely."""
    return _deviations(chance_above(squared, degrees))


def chance_above(squared: float, degrees: int) -> float:
    """Return the chance of a squared distance above this one, of so many degrees of freedom."""
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
