"""Gymnasium environment `lmab/LatentBandit-v0` (extra `gym`), registered when this module is imported.

import gymnasium, lmab.gym
environment = gymnasium.make("lmab/LatentBandit-v0", bandit=bandit, horizon=5)
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ._shapes import Array, Float
from .checks import check_count, choices
from .errors import InvalidArgument
from .loading import load
from .model import belief
from .model.bandit import LatentBandit
from .model.instances import random_bandit
from .simulation import draw_types, leaves

try:
    import gymnasium
except ImportError as error:
    raise ImportError("lmab.gym needs gymnasium: pip install '.[gym]'") from error

ENVIRONMENT = "lmab/LatentBandit-v0"
_OBSERVATIONS = ("last", "belief")


class LatentBanditEnv(gymnasium.Env):
    """Sessions with a latent type: an action is an arm, and a session ends after `horizon` steps.

    If the bandit models attrition, a session is terminated when the person leaves, and truncated after `horizon` steps.

    Args:
        bandit: a `LatentBandit`, or the path of a saved one; None: a seeded random one with 4 types and 20 arms.
        horizon: steps per session.
        observation: "last": one-hot vector of the arm just played, its reward, and the elapsed fraction of the session;
            for agents with a memory of their own. "belief": posterior probability of each type, and the elapsed
            fraction; this uses the model and makes the session a Markov decision process.
        render_mode: "ansi" makes `render` return the session so far as text, or None.

    `reset(options={"type": m})` fixes the latent type. `info` holds values that an agent must not use: the type, the
    expected reward of the arm played, and that of the type's best arm.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012, as gymnasium declares it

    def __init__(
        self,
        bandit: LatentBandit | str | os.PathLike[str] | None = None,
        horizon: int = 7,
        observation: str = "last",
        render_mode: str | None = None,
    ) -> None:
        if observation not in _OBSERVATIONS:
            raise InvalidArgument(f"observation must be {choices(_OBSERVATIONS)}, got {observation!r}")
        self.bandit = _bandit(bandit)
        self.horizon = check_count("horizon", horizon)
        self.observation = observation
        self.render_mode = render_mode
        self.action_space = gymnasium.spaces.Discrete(self.bandit.n_arms)
        self.observation_space = self._space()
        self._type, self._session = 0, list[tuple[int, float]]()
        self._belief = belief.prior(self.bandit)

    def _space(self) -> gymnasium.spaces.Box:
        if self.observation == "belief":
            return gymnasium.spaces.Box(0.0, 1.0, (self.bandit.n_types + 1,), np.float32)
        lowest, highest = self.bandit.rewards.support
        ones = np.ones(self.bandit.n_arms)
        low = np.concatenate([0 * ones, [min(lowest, 0.0), 0.0]]).astype(np.float32)
        high = np.concatenate([ones, [max(highest, 0.0), 1.0]]).astype(np.float32)
        return gymnasium.spaces.Box(low, high, dtype=np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[Array, "d"], dict[str, Any]]:
        """Start a session and draw its type."""
        super().reset(seed=seed)
        type_ = (options or {}).get("type")
        if type_ is None:
            type_ = int(draw_types(self.bandit, 1, self.np_random)[0])
        elif check_count("type", type_, minimum=0) >= self.bandit.n_types:
            raise InvalidArgument(f"type must be in 0..{self.bandit.n_types - 1}, got {type_}")
        self._type, self._session = int(type_), []
        self._belief = belief.prior(self.bandit)
        return self._observe(), {"type": self._type}

    def step(self, action: Any) -> tuple[Float[Array, "d"], float, bool, bool, dict[str, Any]]:
        """Play an arm and return the observation, the reward, terminated, truncated and info."""
        if not self.action_space.contains(action):
            raise InvalidArgument(f"action must be an arm in 0..{self.bandit.n_arms - 1}, got {action!r}")
        arm = int(action)
        types, arms = np.array([self._type]), np.array([arm])
        now = self.bandit.at(len(self._session))
        reward = float(now.rewards.sample(types, arms, rng=self.np_random)[0])
        self._session.append((arm, reward))
        self._belief = belief.update(now, self._belief, arm, reward)
        means = now.means[self._type]
        info = {"type": self._type, "expected": float(means[arm]), "best": float(means.max())}
        over = len(self._session) >= self.horizon
        if self.bandit.leaving is None:
            return self._observe(), reward, over, False, info
        left = bool(leaves(self.bandit, types, arms, np.array([reward]), self.np_random)[0])
        return self._observe(), reward, left, over and not left, info

    def render(self) -> str | None:
        """Return the session so far as text, such as `arm 3 paid 1, arm 0 paid 0`."""
        if self.render_mode is None:
            return None
        steps = ", ".join(f"arm {arm} paid {reward:g}" for arm, reward in self._session)
        return steps or "a session that has not begun"

    def _observe(self) -> Float[Array, "d"]:
        over = len(self._session) / self.horizon
        if self.observation == "belief":
            return np.append(belief.normalise(self._belief), over).astype(np.float32).clip(0.0, 1.0)
        last = np.zeros(self.bandit.n_arms + 2, np.float32)
        last[-1] = over
        if self._session:
            arm, reward = self._session[-1]
            last[arm], last[-2] = 1.0, reward
        return last


def _bandit(given: LatentBandit | str | os.PathLike[str] | None) -> LatentBandit:
    if given is None:
        return random_bandit(4, 20, rng=np.random.default_rng(0))
    bandit = given if isinstance(given, LatentBandit) else load(given)
    if not isinstance(bandit, LatentBandit):
        raise InvalidArgument(f"bandit must be a LatentBandit or a file of one, got a {type(bandit).__name__}")
    return bandit


if ENVIRONMENT not in gymnasium.registry:
    gymnasium.register(ENVIRONMENT, entry_point="lmab.gym:LatentBanditEnv")
