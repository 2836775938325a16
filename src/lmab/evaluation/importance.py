"""Importance weights of logged sessions under a policy, and the sums from which every off-policy estimate is made.

A weight says how much likelier the policy is to act as the session did than the policy that logged it. For every
session and step there are four numbers: the weighted reward, the weight, the weighted reward with a model's control
variates, and whether the session has this step. Every off-policy estimate is a function of their sums over sessions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._shapes import Array, Bool, Float, Integer, Shaped
from ..data import Sessions
from ..model import LatentBandit, belief
from ..policies import Policy, State

REWARD, WEIGHT, ROBUST, REACHED = range(4)  # what is summed for each step
CHUNK = 8192  # sessions processed at once
GROUPS = 10_000  # units of the jackknife and the bootstrap; at least a chunk of sessions


@dataclass(frozen=True, eq=False)
class Sums:
    """What a log adds up to under a policy."""

    groups: Float[Array, "G 4 H"]  # the sums over groups of sessions
    effective: Float[Array, "H"]  # the effective sample of each step
    followed: Integer[Array, "H"]  # sessions that agree with the policy up to each step
    heaviest: Float[Array, "H"]  # the largest weight of each step

    @classmethod
    def of(
        cls,
        policy: Policy,
        sessions: Sessions,
        horizon: int,
        model: LatentBandit | None,
        outlook: Float[Array, "H M"] | None,
    ) -> Sums:
        groups = np.zeros((min(len(sessions), GROUPS), 4, horizon))
        squares, followed, heaviest = np.zeros(horizon), np.zeros(horizon, np.int64), np.zeros(horizon)
        for rows, part in contributions(policy, sessions, horizon, model, outlook):
            groups[rows % len(groups)] += part
            squares += (part[:, WEIGHT] ** 2).sum(axis=0)
            followed += (part[:, WEIGHT] > 0).sum(axis=0)
            heaviest = np.maximum(heaviest, part[:, WEIGHT].max(axis=0))
        weight = groups[:, WEIGHT].sum(axis=0)
        effective = np.divide(weight**2, squares, out=np.zeros(horizon), where=squares > 0)
        return cls(groups, effective, followed, heaviest)


def contributions(
    policy: Policy, sessions: Sessions, horizon: int, model: LatentBandit | None, outlook: Float[Array, "H M"] | None
) -> Iterator[tuple[Integer[Array, "n"], Float[Array, "n 4 H"]]]:
    """For each chunk: the rows of its sessions, and what each session adds to the sums."""
    for start in range(0, len(sessions), CHUNK):
        rows = np.arange(start, min(start + CHUNK, len(sessions)))
        part = np.zeros((len(rows), 4, horizon))
        part[:, REACHED] = np.arange(horizon) < sessions.lengths[rows, None]
        _follow(policy, sessions, rows, part, model, outlook)
        part[:, ROBUST] = (part[:, ROBUST] + part[:, REWARD]) * part[:, REACHED]
        yield rows, part


def _follow(
    policy: Policy,
    sessions: Sessions,
    rows: Integer[Array, "n"],
    part: Float[Array, "n 4 H"],
    model: LatentBandit | None,
    outlook: Float[Array, "H M"] | None,
) -> None:
    """Fill in weights, weighted rewards and control variates; a session ends where the policy plays another arm."""
    assert sessions.propensities is not None
    state, live, weights = policy.start(len(rows)), np.arange(len(rows)), np.ones(len(rows))
    beliefs = np.empty((len(rows), 0)) if model is None else belief.prior(model, len(rows))
    for step in range(part.shape[2]):
        state, live, weights, beliefs = _keep(part[live, REACHED, step] > 0, state, live, weights, beliefs)
        if len(live) == 0:
            return
        places = sessions.offsets[rows[live]] + step
        arms, rewards = sessions.arms[places], sessions.rewards[places]
        decision = _decide(policy, state, sessions.n_arms)
        after = weights * _of(decision, arms) / sessions.propensities[places]
        part[live, WEIGHT, step], part[live, REWARD, step] = after, after * rewards
        if model is not None and outlook is not None:
            part[live, ROBUST, step:] += _control(model, outlook[step:], beliefs, decision, arms, weights, after)
        kept = _keep(after > 0, state, live, after, beliefs, arms, rewards)
        state, live, weights, beliefs, arms, rewards = kept
        if step + 1 < part.shape[2] and len(live):
            state = policy.observe(state, arms, rewards)
            beliefs = beliefs if model is None else belief.update(model, beliefs, arms, rewards)


def _control(
    model: LatentBandit,
    outlook: Float[Array, "left M"],
    beliefs: Float[Array, "n M"],
    decision: Shaped[Array, "n *A"],
    arms: Integer[Array, "n"],
    before: Float[Array, "n"],
    after: Float[Array, "n"],
) -> Float[Array, "n left"]:
    """Control variates of this step and later ones: the model's prediction for the policy minus that for the log.

    The prediction for this step is the arm's mean under the belief; for a later step it is the policy's mean in each
    type. Given the session so far, the expectation of a control variate is zero for any model.
    """
    beliefs = belief.normalise(beliefs)
    means, everyone = beliefs @ model.means, np.arange(len(arms))
    ahead = means[everyone, decision] if decision.ndim == 1 else np.einsum("na,na->n", decision, means)
    control = (before - after)[:, None] * (beliefs @ outlook.T)
    control[:, 0] = before * ahead - after * means[everyone, arms]
    return control


def _keep(mask: Bool[Array, "n"], state: State, *columns: Array) -> Any:
    """The sessions of `mask`."""
    if mask.all():
        return (state, *columns)
    return (State(state.step, state.memory[mask], single=False), *(column[mask] for column in columns))


def _decide(policy: Policy, state: State, n_arms: int) -> Shaped[Array, "n *A"]:
    """The arm of each session where the policy is deterministic, else the probabilities of all arms."""
    if policy.deterministic:
        return np.asarray(policy.act(state))
    return policy.distribution(state, n_arms=n_arms)


def _of(decision: Shaped[Array, "n *A"], arms: Integer[Array, "n"]) -> Float[Array, "n"]:
    """Probability of `arms` under a decision."""
    return (decision == arms).astype(np.float64) if decision.ndim == 1 else decision[np.arange(len(arms)), arms]
