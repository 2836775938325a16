"""Unnormalised beliefs over types: prior, update, posterior.

A belief is a row of non-negative numbers, one per type; only their ratios matter. An update multiplies the row by the
likelihood of the observation (a density, up to a factor). Rows that would underflow are multiplied by a power of two,
which changes no ratio, not even by rounding. If an observation is impossible in every type that is still possible, the
belief does not change.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .._shapes import Array, Float, Integer, Shaped
from ..data.features import LEFT, UNKNOWN, WENT_ON
from ..data.sessions import Sessions
from .bandit import LatentBandit

_SMALL = 2.0**-400  # rows below this are multiplied by a power of two
_CHUNK = 1 << 16  # steps per batch of `posterior`
_SESSIONS = 8192  # sessions per batch of `predictive_beliefs`


def prior(bandit: LatentBandit, n: int | None = None) -> Float[Array, "*n M"]:
    """Return the belief before any observation: the weights, once or for n sessions."""
    return bandit.weights.copy() if n is None else np.tile(bandit.weights, (n, 1))


def update(
    bandit: LatentBandit,
    belief: Float[Array, "*n M"],
    arm: Shaped[Array, "*n"] | int,
    reward: Shaped[Array, "*n"] | float,
    step: int | None = None,
) -> Float[Array, "*n M"]:
    """Return the belief after `arm` paid `reward`, for one session or for n at once.

    `step` (0, 1, ...) is required if the bandit has step effects.

    Examples:
        >>> from lmab import LatentBandit
        >>> bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.9], [0.3]])
        >>> normalise(update(bandit, prior(bandit), 0, 1.0))
        array([0.75, 0.25])
    """
    if belief.ndim == 1:
        return update(bandit, belief[None], np.array([arm]), np.array([reward]), step)[0]
    return rescale(multiply(belief, bandit.at(step).evidence(np.asarray(arm), np.asarray(reward))))


def multiply(belief: Float[Array, "n M"], likelihood: Float[Array, "n M"]) -> Float[Array, "n M"]:
    """Return belief * likelihood, or the unchanged belief of a row if this product is zero in every type."""
    product = belief * likelihood
    impossible = product.max(axis=1) <= 0
    if impossible.any():
        product[impossible] = belief[impossible]
    return product


def rescale(belief: Float[Array, "n M"]) -> Float[Array, "n M"]:
    """Multiply rows that are too close to zero by a power of two."""
    top = belief.max(axis=1)
    low = top < _SMALL
    if low.any():
        belief = belief.copy()
        belief[low] = np.ldexp(belief[low], -np.frexp(top[low])[1][:, None])
    return belief


def normalise(belief: Float[Array, "*n M"]) -> Float[Array, "*n M"]:
    """Return the belief as probabilities."""
    return belief / belief.sum(axis=-1, keepdims=True)


def predictive_beliefs(
    bandit: LatentBandit, sessions: Sessions
) -> Iterator[tuple[Integer[Array, "n"], Float[Array, "n M"]]]:
    """Yield, for each step position, the rows of the log (at most one per session) and their normalised beliefs.

    Under any logging policy, the next reward given the session so far and the arm is distributed according to this
    belief, if the model is correct.
    """
    for start in range(0, len(sessions), _SESSIONS):
        rows = np.arange(start, min(start + _SESSIONS, len(sessions)))
        beliefs = prior(bandit, len(rows))
        for step in range(int(sessions.lengths[rows].max())):
            live = sessions.lengths[rows] > step
            rows, beliefs = rows[live], beliefs[live]
            places = sessions.offsets[rows] + step
            yield places, normalise(beliefs)
            beliefs = update(bandit, beliefs, sessions.arms[places], sessions.rewards[places], step)


def posterior(bandit: LatentBandit, sessions: Sessions) -> Float[Array, "N M"]:
    """Return the probability of each type given each whole session.

    A session that is impossible in every type gets the weights, because the model has no explanation of it.
    """
    logs = log_joint(bandit, sessions)
    top = logs.max(axis=1, keepdims=True)
    possible = np.isfinite(top[:, 0])
    result = np.tile(bandit.weights, (len(logs), 1))
    result[possible] = normalise(np.exp(logs[possible] - top[possible]))
    return result


def log_attrition_likelihood(
    bandit: LatentBandit, sessions: Sessions, steps: slice = slice(None)
) -> Float[Array, "s M"]:
    """Return, for each type, the log-probability that the session continued or ended after each step.

    It is 0 after the last step of a session if it is unknown whether the session ended there.
    """
    assert bandit.leaving is not None
    after = np.full(sessions.n_steps, WENT_ON, np.uint8)
    after[sessions.offsets[1:] - 1] = UNKNOWN if sessions.endings is None else sessions.endings
    after = after[steps]
    places = bandit.leaving_columns(sessions.rewards[steps])
    chance = bandit.leaving[:, sessions.arms[steps], places].T
    with np.errstate(divide="ignore"):
        logs = np.where((after == LEFT)[:, None], np.log(chance), np.log1p(-chance))
    logs[after == UNKNOWN] = 0.0
    return logs


def log_likelihood(bandit: LatentBandit, sessions: Sessions, steps: slice = slice(None)) -> Float[Array, "s M"]:
    """Return the log-likelihood of the reward of each row of the log, for every type."""
    arms, rewards = sessions.arms[steps], sessions.rewards[steps]
    if bandit.step_effects is None:
        return bandit.rewards.log_likelihood(arms, rewards)
    models, index = bandit.step_models(sessions.horizon)
    numbers, terms = index[sessions.steps[steps]], np.empty((len(arms), bandit.n_types))
    for number, model in enumerate(models):
        rows = numbers == number
        terms[rows] = model.rewards.log_likelihood(arms[rows], rewards[rows])
    return terms


def expected_rewards(bandit: LatentBandit, sessions: Sessions) -> Float[Array, "S M"]:
    """Return the mean reward of the arm of each row of the log at its step, in every type."""
    models, index = bandit.step_models(sessions.horizon)
    means, numbers = np.stack([model.means.T for model in models]), index[sessions.steps]
    return means[numbers, sessions.arms]


def log_joint(bandit: LatentBandit, sessions: Sessions) -> Float[Array, "N M"]:
    """Return the log of weight times likelihood of each session, for every type; -inf if impossible."""
    with np.errstate(divide="ignore"):
        logs = np.tile(np.log(bandit.weights), (len(sessions), 1))
        owner = np.repeat(np.arange(len(sessions)), np.diff(sessions.offsets))
        for start in range(0, sessions.n_steps, _CHUNK):
            steps = slice(start, start + _CHUNK)
            terms = log_likelihood(bandit, sessions, steps)
            if bandit.leaving is not None:
                terms = terms + log_attrition_likelihood(bandit, sessions, steps)
            rows, first = np.unique(owner[steps], return_index=True)
            logs[rows] += np.add.reduceat(terms, first, axis=0)
    return logs
