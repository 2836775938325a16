"""Simulation: a policy plays sessions of a latent bandit; `Simulator` also counts the sessions and steps played."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, overload

import numpy as np
from numpy.typing import ArrayLike

from ._shapes import Array, Bool, Float, Integer, Shaped
from .checks import Rng, check_count, check_rng
from .data.features import LEFT, UNKNOWN, Features, person_numbers, person_values, require_mapping
from .data.sessions import Sessions
from .errors import InvalidArgument
from .model.bandit import LatentBandit, bandit_of
from .model.type_prior import ASSUMED_KEEP, TypePrior, check_type_prior
from .policies.histories import start_from_features
from .policies.policy import Policy, State

_CHUNK = 8192  # sessions simulated at once: their state stays in cache


@overload
def simulate(
    bandit: LatentBandit,
    policy: Policy,
    *,
    n_sessions: int,
    horizon: int,
    type_prior: TypePrior | None = None,
    features: Mapping[str, Any] | None = None,
    persons: Any = None,
    rng: Rng,
) -> Sessions: ...
@overload
def simulate(
    bandit: LatentBandit,
    policy: ArrayLike,
    *,
    n_sessions: int | None = None,
    horizon: int | None = None,
    type_prior: TypePrior | None = None,
    features: Mapping[str, Any] | None = None,
    persons: Any = None,
    rng: Rng,
) -> Sessions: ...
def simulate(
    bandit: LatentBandit,
    policy: Policy | Any,
    *,
    n_sessions: int | None = None,
    horizon: int | None = None,
    type_prior: TypePrior | None = None,
    features: Mapping[str, Any] | None = None,
    persons: Any = None,
    rng: Rng,
) -> Sessions:
    """Play `n_sessions` sessions of `horizon` steps; where people leave, of at most so many.

    Args:
        bandit: what the sessions are drawn from.
        policy: a `Policy`, or an (n, H) array of the arms to play (then the two numbers may be left out).
        n_sessions: how many sessions.
        horizon: steps per session.
        type_prior: how the types depend on what is known when a session begins; None: on nothing.
        features: what is known of each session, n values by column of the type prior; None: drawn at random.
        persons: ids, one per session: in a person's later sessions the type is kept with probability
            `type_prior.keep`. None: everybody comes once.
        rng: a generator or a seed.

    Returns:
        The sessions, with features and persons where a type prior is given; where the policy is `Uniform`, with its
        propensities; where people leave, with how they ended: shorter sessions "left", of those of `horizon` steps it
        is "unknown".

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.random_bandit(4, 20, rng=rng)
        >>> lmab.simulate(bandit, lmab.Uniform(20), n_sessions=1000, horizon=7, rng=rng)
        Sessions(1000 sessions, 7000 steps, 20 arms)
        >>> len(lmab.simulate(bandit, [[0, 1, 2], [3, 3, 3]], rng=rng))
        2
        >>> prior = lmab.TypePrior.by_value("country", {"de": [0.7, 0.1, 0.1, 0.1], "fr": [0.1, 0.1, 0.1, 0.7]})
        >>> log = lmab.simulate(bandit, lmab.Uniform(20), n_sessions=5, horizon=7, type_prior=prior, rng=rng)
        >>> log.features
        Features(country; 5 sessions, 2 distinct rows)
    """
    rng = check_rng(rng, "sessions are drawn at random")
    bandit = bandit_of(bandit)
    type_prior = bandit.type_prior if type_prior is None else type_prior
    arms = None if isinstance(policy, Policy) else _arms(policy, bandit, n_sessions, horizon)
    before = None
    if type_prior is not None:
        n = n_sessions if arms is None else len(arms)
        before = _before(bandit, type_prior, features, persons, check_count("n_sessions", n), rng)
    elif features is not None or persons is not None:
        raise InvalidArgument("features and persons must be given with a type_prior: it says what they change")
    if arms is not None:
        return _play(bandit, arms, before, rng)
    n_sessions, horizon = check_count("n_sessions", n_sessions), check_count("horizon", horizon)
    check_fits(policy, bandit, horizon)
    chunks = []
    for start in range(0, n_sessions, _CHUNK):
        own = slice(start, min(start + _CHUNK, n_sessions))
        types = draw_types(bandit, own.stop - start, rng) if before is None else before.types[own]
        known = None if before is None or before.features is None else before.features.take(own)
        chunks.append(interact(bandit, policy, types, horizon, rng, known))
    played, rewards = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
    propensities = np.full(played.shape, 1 / bandit.n_arms) if policy.kind == "uniform" else None
    return _sessions(bandit, played, rewards, propensities, before)


class _Before(NamedTuple):
    """What is known of sessions before their first step, and what is not: their types."""

    types: Integer[Array, "N"]
    features: Features | None
    persons: Shaped[Array, "N"] | None


def _before(
    bandit: LatentBandit, prior: TypePrior, features: Any, persons: Any, n: int, rng: np.random.Generator
) -> _Before:
    check_type_prior(prior, bandit.n_types)
    if features is None:
        features = prior.draw(n, rng)
    else:
        require_mapping(features)
    known = None if not features else Features.of(features, n)
    weights = prior.weights(known) if known is not None else np.tile(prior.weights(), (n, 1))
    types = draw_each(weights, rng)
    if persons is None:
        return _Before(types, known, None)
    ids = person_values(persons, n)
    keep = ASSUMED_KEEP if prior.keep is None else prior.keep
    kept = rng.random(n) < keep
    last: dict[int, int] = {}
    for session, person in enumerate(person_numbers(ids).tolist()):
        if kept[session] and person in last:
            types[session] = last[person]
        last[person] = int(types[session])
    return _Before(types, known, ids)


def draw_each(weights: Float[Array, "n M"], rng: np.random.Generator) -> Integer[Array, "n"]:
    """One type per row of probabilities."""
    cumulative = np.cumsum(weights, axis=1)
    return (cumulative[:, :-1] <= rng.random(len(weights))[:, None] * cumulative[:, -1:]).sum(axis=1)


def interact(
    bandit: LatentBandit,
    policy: Policy,
    types: Integer[Array, "n"],
    horizon: int,
    rng: np.random.Generator,
    features: Features | None = None,
) -> tuple[Integer[Array, "n H"], Float[Array, "n H"]]:
    """Arms and rewards of one session per entry of `types`; a policy with a type prior starts from the features.

    Arms are -1, and rewards 0, after the person left.
    """
    if bandit.leaving is not None:
        return _until_they_leave(bandit, policy, types, horizon, rng, features)
    arms = np.empty((len(types), horizon), np.int32)
    rewards = np.empty((len(types), horizon))
    state = start_from_features(policy, len(types), features)
    for step in range(horizon):
        chosen: Any = policy.act(state, rng=rng)
        arms[:, step] = chosen
        rewards[:, step] = bandit.at(step).rewards.sample(types, chosen, rng=rng)
        if step + 1 < horizon:
            state = policy.observe(state, chosen, rewards[:, step])
    return arms, rewards


def _until_they_leave(
    bandit: LatentBandit,
    policy: Policy,
    types: Integer[Array, "n"],
    horizon: int,
    rng: np.random.Generator,
    features: Features | None,
) -> tuple[Integer[Array, "n H"], Float[Array, "n H"]]:
    """The same where sessions end by themselves: those that go on are followed."""
    arms, rewards = np.full((len(types), horizon), -1, np.int32), np.zeros((len(types), horizon))
    state, live = start_from_features(policy, len(types), features), np.arange(len(types))
    for step in range(horizon):
        chosen: Any = policy.act(state, rng=rng)
        paid = bandit.at(step).rewards.sample(types[live], chosen, rng=rng)
        arms[live, step], rewards[live, step] = chosen, paid
        stay = np.flatnonzero(~leaves(bandit, types[live], chosen, paid, rng))
        if step + 1 == horizon or len(stay) == 0:
            break
        state = policy.observe(state, chosen, paid)
        state, live = State(state.step, state.memory[stay], single=False), live[stay]
    return arms, rewards


def leaves(
    bandit: LatentBandit,
    types: Integer[Array, "n"],
    arms: Integer[Array, "n"],
    rewards: Float[Array, "n"],
    rng: np.random.Generator,
) -> Bool[Array, "n"]:
    """Whether each person leaves after a reward; nobody does where the bandit has no leaving."""
    if bandit.leaving is None:
        return np.zeros(len(types), bool)
    return rng.random(len(types)) < bandit.leaving[types, arms, bandit.leaving_columns(rewards)]


def draw_types(bandit: LatentBandit, n: int, rng: np.random.Generator) -> Integer[Array, "n"]:
    """The hidden types of n sessions."""
    cumulative = np.cumsum(bandit.weights)
    return np.searchsorted(cumulative[:-1] / cumulative[-1], rng.random(n), side="right")


def check_fits(policy: Policy, bandit: LatentBandit, horizon: int) -> None:
    """Raise unless the policy can act on this bandit for `horizon` steps."""
    if policy.n_arms is not None and policy.n_arms != bandit.n_arms:
        raise InvalidArgument(f"policy must be for {bandit.n_arms} arms, got one for {policy.n_arms}")
    if policy.horizon is not None and horizon > policy.horizon:
        raise InvalidArgument(f"horizon must be at most the policy's {policy.horizon}, got {horizon}")


class Rule(Protocol):
    """Plays sessions one after another, each with a policy that depends on all sessions before it."""

    def play(self, bandit: LatentBandit, n_sessions: int, horizon: int, rng: np.random.Generator) -> Sessions: ...


class Environment(Protocol):
    """Something that can be played: a simulator, or a live system with the same attributes and methods."""

    @property
    def n_arms(self) -> int: ...
    @property
    def horizon(self) -> int: ...
    @property
    def sessions_used(self) -> int: ...
    def play(self, arms: Any) -> Sessions:
        """Play (n, H) arms, one row per session."""
        ...

    def run(self, policy: Policy, n_sessions: int) -> Sessions:
        """Let `policy` play n sessions."""
        ...


class Simulator:
    """A latent bandit that can be played but not inspected; it counts the sessions and steps that were played.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> environment = lmab.Simulator(lmab.random_bandit(3, 10, rng=rng), horizon=5, rng=rng)
        >>> environment.run(lmab.Uniform(10), 100)
        Sessions(100 sessions, 500 steps, 10 arms)
        >>> environment.sessions_used, environment.steps_used
        (100, 500)
    """

    def __init__(self, bandit: LatentBandit, *, horizon: int, rng: Rng) -> None:
        self._bandit = bandit_of(bandit)
        self._rng = check_rng(rng, "sessions are drawn at random")
        self.horizon = check_count("horizon", horizon)
        self.sessions_used = 0
        self.steps_used = 0

    @property
    def n_arms(self) -> int:
        return self._bandit.n_arms

    @property
    def rewards(self) -> str:
        """The family of the rewards, as `lmab.fit` names it, which a learner may know before it plays."""
        return self._bandit.rewards.family

    def play(self, arms: Any) -> Sessions:
        """Play (n, H) arms, one row per session, at most `horizon` steps each."""
        if np.ndim(arms) == 2 and np.shape(arms)[1] > self.horizon:
            raise InvalidArgument(f"arms must have at most {self.horizon} columns, got {np.shape(arms)[1]}")
        return self._spend(simulate(self._bandit, arms, rng=self._rng))

    def run(self, policy: Policy, n_sessions: int) -> Sessions:
        """Let `policy` play n sessions of `horizon` steps."""
        return self._spend(simulate(self._bandit, policy, n_sessions=n_sessions, horizon=self.horizon, rng=self._rng))

    def follow(self, rule: Rule, n_sessions: int) -> Sessions:
        """Let `rule` play n sessions of `horizon` steps, one after another."""
        return self._spend(rule.play(self._bandit, n_sessions, self.horizon, self._rng))

    def _spend(self, sessions: Sessions) -> Sessions:
        self.sessions_used += len(sessions)
        self.steps_used += sessions.n_steps
        return sessions


def _arms(given: Any, bandit: LatentBandit, n_sessions: int | None, horizon: int | None) -> Integer[Array, "n H"]:
    arms = np.asarray(given)
    if arms.ndim != 2 or 0 in arms.shape or not np.issubdtype(arms.dtype, np.integer):
        raise InvalidArgument(f"policy must be a Policy or an (n, H) array of arms, got {type(given).__name__}")
    expected = (n_sessions or arms.shape[0], horizon or arms.shape[1])
    if arms.shape != expected:
        raise InvalidArgument(f"policy must have the shape (n_sessions, horizon) = {expected}, got {arms.shape}")
    if arms.min() < 0 or arms.max() >= bandit.n_arms:
        raise InvalidArgument(f"policy must name arms in 0..{bandit.n_arms - 1}, got {arms.min()} to {arms.max()}")
    return arms


def _play(
    bandit: LatentBandit, arms: Integer[Array, "n H"], before: _Before | None, rng: np.random.Generator
) -> Sessions:
    types = draw_types(bandit, len(arms), rng) if before is None else before.types
    each = np.repeat(types, arms.shape[1])
    rewards = _rewards(bandit, types, arms, rng).ravel()
    if bandit.leaving is not None:
        left = leaves(bandit, each, arms.ravel(), rewards, rng).reshape(arms.shape)
        gone = np.cumsum(left, axis=1) - left > 0  # the person left after an earlier step
        arms = np.where(gone, -1, arms)
    return _sessions(bandit, arms, rewards.reshape(arms.shape), None, before)


def _rewards(
    bandit: LatentBandit, types: Integer[Array, "n"], arms: Integer[Array, "n H"], rng: np.random.Generator
) -> Float[Array, "n H"]:
    """Draw the rewards of given arms."""
    rewards, (models, index) = np.empty(arms.shape), bandit.step_models(arms.shape[1])
    for number, model in enumerate(models):
        some = arms[:, index == number]
        rewards[:, index == number] = model.rewards.sample(
            np.repeat(types, some.shape[1]), some.ravel(), rng=rng
        ).reshape(some.shape)
    return rewards


def expected_rewards(
    bandit: LatentBandit, types: Integer[Array, "n"], arms: Integer[Array, "n H"]
) -> Float[Array, "n H"]:
    """Return the mean reward of each arm in the type of its session; 0 for the arm -1, after the end of a session."""
    expected, (models, index) = np.zeros(arms.shape), bandit.step_models(arms.shape[1])
    for number, model in enumerate(models):
        some = arms[:, index == number]
        expected[:, index == number] = np.where(some >= 0, model.means[types[:, None], some], 0.0)
    return expected


def _sessions(
    bandit: LatentBandit,
    arms: Integer[Array, "n H"],
    rewards: Float[Array, "n H"],
    propensities: Float[Array, "n H"] | None,
    before: _Before | None,
) -> Sessions:
    n, horizon = arms.shape
    flat = None if propensities is None else propensities.ravel()
    known = (None, None) if before is None else (before.features, before.persons)
    if bandit.leaving is None:
        offsets = np.arange(0, n * horizon + 1, horizon)
        return Sessions(arms.ravel(), rewards.ravel(), offsets, bandit.n_arms, flat, bandit.arm_labels, *known)
    played = arms.ravel() >= 0
    lengths = (arms >= 0).sum(axis=1)
    offsets, endings = np.append(0, np.cumsum(lengths)), np.where(lengths < horizon, LEFT, UNKNOWN).astype(np.uint8)
    shares = None if flat is None else flat[played]
    steps = arms.ravel()[played], rewards.ravel()[played]
    return Sessions(*steps, offsets, bandit.n_arms, shares, bandit.arm_labels, *known, endings)
