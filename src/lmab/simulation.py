"""Simulation: a policy plays sessions of a latent bandit; `Simulator` also counts the episodes and steps played."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ._shapes import Array, Float, Integer
from .checks import Rng, check_count, check_rng
from .data import Episodes
from .errors import InvalidArgument
from .model import LatentBandit
from .policies import Policy

_CHUNK = 8192  # sessions simulated at once: their state stays in cache


def simulate(
    bandit: LatentBandit,
    policy: Policy | Any,
    *,
    n_episodes: int | None = None,
    horizon: int | None = None,
    rng: Rng,
) -> Episodes:
    """Play `n_episodes` sessions of `horizon` steps.

    Args:
        bandit: what the sessions are drawn from.
        policy: a `Policy`, or an (n, H) array of the arms to play (then the two numbers may be left out).
        n_episodes: how many sessions.
        horizon: steps per session.
        rng: a generator or a seed.

    Returns:
        The episodes; where the policy is `Uniform`, with its propensities.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.random_bandit(4, 20, rng=rng)
        >>> lmab.simulate(bandit, lmab.Uniform(20), n_episodes=1000, horizon=7, rng=rng)
        Episodes(1000 episodes, 7000 steps, 20 arms)
        >>> len(lmab.simulate(bandit, [[0, 1, 2], [3, 3, 3]], rng=rng))
        2
    """
    rng = check_rng(rng, "sessions are drawn at random")
    if not isinstance(policy, Policy):
        return _play(bandit, _arms(policy, bandit, n_episodes, horizon), rng)
    n_episodes, horizon = check_count("n_episodes", n_episodes), check_count("horizon", horizon)
    check_fits(policy, bandit, horizon)
    chunks = []
    for start in range(0, n_episodes, _CHUNK):
        contexts = draw_contexts(bandit, min(_CHUNK, n_episodes - start), rng)
        chunks.append(interact(bandit, policy, contexts, horizon, rng))
    actions, rewards = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
    propensities = np.full(actions.shape, 1 / bandit.n_arms) if policy.kind == "uniform" else None
    return _episodes(bandit, actions, rewards, propensities)


def interact(
    bandit: LatentBandit, policy: Policy, contexts: Integer[Array, "n"], horizon: int, rng: np.random.Generator
) -> tuple[Integer[Array, "n H"], Float[Array, "n H"]]:
    """Actions and rewards of one session per entry of `contexts`."""
    actions = np.empty((len(contexts), horizon), np.int32)
    rewards = np.empty((len(contexts), horizon))
    state = policy.start(len(contexts))
    for step in range(horizon):
        arms: Any = policy.act(state, rng=rng)
        actions[:, step] = arms
        rewards[:, step] = bandit.rewards.sample(contexts, arms, rng=rng)
        if step + 1 < horizon:
            state = policy.observe(state, arms, rewards[:, step])
    return actions, rewards


def draw_contexts(bandit: LatentBandit, n: int, rng: np.random.Generator) -> Integer[Array, "n"]:
    """The hidden contexts of n sessions."""
    cumulative = np.cumsum(bandit.weights)
    return np.searchsorted(cumulative[:-1] / cumulative[-1], rng.random(n), side="right")


def check_fits(policy: Policy, bandit: LatentBandit, horizon: int) -> None:
    """Raise unless the policy can act on this bandit for `horizon` steps."""
    if policy.n_arms is not None and policy.n_arms != bandit.n_arms:
        raise InvalidArgument(f"policy must be for {bandit.n_arms} arms, got one for {policy.n_arms}")
    if policy.horizon is not None and horizon > policy.horizon:
        raise InvalidArgument(f"horizon must be at most the policy's {policy.horizon}, got {horizon}")


class Environment(Protocol):
    """Something that can be played: a simulator, or a live system with the same attributes and methods."""

    @property
    def n_arms(self) -> int: ...
    @property
    def horizon(self) -> int: ...
    @property
    def episodes_used(self) -> int: ...
    def play(self, actions: Any) -> Episodes:
        """Play (n, H) arms, one row per session."""
        ...

    def run(self, policy: Policy, n_episodes: int) -> Episodes:
        """Let `policy` play n sessions."""
        ...


class Simulator:
    """A latent bandit that can be played but not inspected; it counts the episodes and steps that were played.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> environment = lmab.Simulator(lmab.random_bandit(3, 10, rng=rng), horizon=5, rng=rng)
        >>> environment.run(lmab.Uniform(10), 100)
        Episodes(100 episodes, 500 steps, 10 arms)
        >>> environment.episodes_used, environment.steps_used
        (100, 500)
    """

    def __init__(self, bandit: LatentBandit, *, horizon: int, rng: Rng) -> None:
        self._bandit = bandit
        self._rng = check_rng(rng, "sessions are drawn at random")
        self.horizon = check_count("horizon", horizon)
        self.episodes_used = 0
        self.steps_used = 0

    @property
    def n_arms(self) -> int:
        return self._bandit.n_arms

    def play(self, actions: Any) -> Episodes:
        """Play (n, H) arms, one row per session, at most `horizon` steps each."""
        if np.ndim(actions) == 2 and np.shape(actions)[1] > self.horizon:
            raise InvalidArgument(f"actions must have at most {self.horizon} columns, got {np.shape(actions)[1]}")
        return self._spend(simulate(self._bandit, actions, rng=self._rng))

    def run(self, policy: Policy, n_episodes: int) -> Episodes:
        """Let `policy` play n sessions of `horizon` steps."""
        return self._spend(simulate(self._bandit, policy, n_episodes=n_episodes, horizon=self.horizon, rng=self._rng))

    def _spend(self, episodes: Episodes) -> Episodes:
        self.episodes_used += len(episodes)
        self.steps_used += episodes.n_steps
        return episodes


def _arms(actions: Any, bandit: LatentBandit, n_episodes: int | None, horizon: int | None) -> Integer[Array, "n H"]:
    arms = np.asarray(actions)
    if arms.ndim != 2 or 0 in arms.shape or not np.issubdtype(arms.dtype, np.integer):
        raise InvalidArgument(f"policy must be a Policy or an (n, H) array of arms, got {type(actions).__name__}")
    expected = (n_episodes or arms.shape[0], horizon or arms.shape[1])
    if arms.shape != expected:
        raise InvalidArgument(f"policy must have the shape (n_episodes, horizon) = {expected}, got {arms.shape}")
    if arms.min() < 0 or arms.max() >= bandit.n_arms:
        raise InvalidArgument(f"policy must name arms in 0..{bandit.n_arms - 1}, got {arms.min()} to {arms.max()}")
    return arms


def _play(bandit: LatentBandit, arms: Integer[Array, "n H"], rng: np.random.Generator) -> Episodes:
    contexts = np.repeat(draw_contexts(bandit, len(arms), rng), arms.shape[1])
    rewards = bandit.rewards.sample(contexts, arms.ravel(), rng=rng)
    return _episodes(bandit, arms, rewards.reshape(arms.shape), None)


def _episodes(
    bandit: LatentBandit,
    actions: Integer[Array, "n H"],
    rewards: Float[Array, "n H"],
    propensities: Float[Array, "n H"] | None,
) -> Episodes:
    n, horizon = actions.shape
    flat = None if propensities is None else propensities.ravel()
    offsets = np.arange(0, n * horizon + 1, horizon)
    return Episodes(actions.ravel(), rewards.ravel(), offsets, bandit.n_arms, flat, bandit.arm_labels)
