"""Simulation: a policy plays sessions of a latent bandit; `Simulator` also counts the sessions and steps played."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ._shapes import Array, Float, Integer
from .checks import Rng, check_count, check_rng
from .data import Sessions
from .errors import InvalidArgument
from .model import LatentBandit
from .policies import Policy

_CHUNK = 8192  # sessions simulated at once: their state stays in cache


def simulate(
    bandit: LatentBandit,
    policy: Policy | Any,
    *,
    n_sessions: int | None = None,
    horizon: int | None = None,
    rng: Rng | None = None,
) -> Sessions:
    """Play `n_sessions` sessions of `horizon` steps.

    Args:
        bandit: what the sessions are drawn from.
        policy: a `Policy`, or an (n, H) array of the arms to play (then the two numbers may be left out).
        n_sessions: how many sessions.
        horizon: steps per session.
        rng: a generator or a seed.

    Returns:
        The sessions; where the policy is `Uniform`, with its propensities.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.random_bandit(4, 20, rng=rng)
        >>> lmab.simulate(bandit, lmab.Uniform(20), n_sessions=1000, horizon=7, rng=rng)
        Sessions(1000 sessions, 7000 steps, 20 arms)
        >>> len(lmab.simulate(bandit, [[0, 1, 2], [3, 3, 3]], rng=rng))
        2
    """
    rng = check_rng(rng, "sessions are drawn at random")
    if not isinstance(policy, Policy):
        return _play(bandit, _arms(policy, bandit, n_sessions, horizon), rng)
    n_sessions, horizon = check_count("n_sessions", n_sessions), check_count("horizon", horizon)
    check_fits(policy, bandit, horizon)
    chunks = []
    for start in range(0, n_sessions, _CHUNK):
        types = draw_types(bandit, min(_CHUNK, n_sessions - start), rng)
        chunks.append(interact(bandit, policy, types, horizon, rng))
    arms, rewards = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
    propensities = np.full(arms.shape, 1 / bandit.n_arms) if policy.kind == "uniform" else None
    return _sessions(bandit, arms, rewards, propensities)


def interact(
    bandit: LatentBandit, policy: Policy, types: Integer[Array, "n"], horizon: int, rng: np.random.Generator
) -> tuple[Integer[Array, "n H"], Float[Array, "n H"]]:
    """Arms and rewards of one session per entry of `types`."""
    arms = np.empty((len(types), horizon), np.int32)
    rewards = np.empty((len(types), horizon))
    state = policy.start(len(types))
    for step in range(horizon):
        chosen: Any = policy.act(state, rng=rng)
        arms[:, step] = chosen
        rewards[:, step] = bandit.rewards.sample(types, chosen, rng=rng)
        if step + 1 < horizon:
            state = policy.observe(state, chosen, rewards[:, step])
    return arms, rewards


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

    def __init__(self, bandit: LatentBandit, *, horizon: int, rng: Rng | None = None) -> None:
        self._bandit = bandit
        self._rng = check_rng(rng, "sessions are drawn at random")
        self.horizon = check_count("horizon", horizon)
        self.sessions_used = 0
        self.steps_used = 0

    @property
    def n_arms(self) -> int:
        return self._bandit.n_arms

    def play(self, arms: Any) -> Sessions:
        """Play (n, H) arms, one row per session, at most `horizon` steps each."""
        if np.ndim(arms) == 2 and np.shape(arms)[1] > self.horizon:
            raise InvalidArgument(f"arms must have at most {self.horizon} columns, got {np.shape(arms)[1]}")
        return self._spend(simulate(self._bandit, arms, rng=self._rng))

    def run(self, policy: Policy, n_sessions: int) -> Sessions:
        """Let `policy` play n sessions of `horizon` steps."""
        return self._spend(simulate(self._bandit, policy, n_sessions=n_sessions, horizon=self.horizon, rng=self._rng))

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


def _play(bandit: LatentBandit, arms: Integer[Array, "n H"], rng: np.random.Generator) -> Sessions:
    types = np.repeat(draw_types(bandit, len(arms), rng), arms.shape[1])
    rewards = bandit.rewards.sample(types, arms.ravel(), rng=rng)
    return _sessions(bandit, arms, rewards.reshape(arms.shape), None)


def _sessions(
    bandit: LatentBandit,
    arms: Integer[Array, "n H"],
    rewards: Float[Array, "n H"],
    propensities: Float[Array, "n H"] | None,
) -> Sessions:
    n, horizon = arms.shape
    flat = None if propensities is None else propensities.ravel()
    offsets = np.arange(0, n * horizon + 1, horizon)
    return Sessions(arms.ravel(), rewards.ravel(), offsets, bandit.n_arms, flat, bandit.arm_labels)
