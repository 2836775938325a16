"""What a report says, as data: measured once, then rendered."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np

from ..errors import TooLarge
from ..evaluation import Evaluation, evaluate
from ..model import LatentBandit
from ..planning import Plan, plan
from ..policy import Policy
from ..rewards import Categorical

_SESSIONS = 100_000  # simulated where no exact value exists
_SEED = 0


@dataclass(frozen=True, eq=False)
class Worth:
    """What a session earns in expectation under the model: without knowing the type, with the policy, knowing it."""

    fixed: float
    fixed_arm: int
    policy: Evaluation
    upper: float  # no policy earns more
    known: float

    @property
    def captured(self) -> float:
        """The policy's part of what could be gained over the fixed arm; 1 where there is nothing to gain."""
        possible = self.upper - self.fixed
        return (self.policy.mean - self.fixed) / possible if possible > 1e-9 * abs(self.upper) else 1.0


@dataclass(frozen=True, eq=False)
class Contents:
    """Everything that `page.render` shows."""

    title: str
    bandit: LatentBandit
    policy: Policy
    horizon: int
    worth: Worth
    settings: tuple[tuple[str, str], ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """What the arms are called, on the page."""
        named = self.bandit.arm_labels
        return tuple(f"arm {arm}" for arm in range(self.bandit.n_arms)) if named is None else tuple(map(str, named))


def gather(
    bandit: LatentBandit,
    policy: Policy | Plan | None = None,
    *,
    horizon: int | None = None,
    time_limit: float = 20.0,
    title: str = "Session policy report",
    settings: dict[str, str] | None = None,
) -> Contents:
    """Measure what a report shows.

    Args:
        bandit: the model.
        policy: a policy for it, a plan (whose bounds are then used), or None: one is planned.
        horizon: steps per session; None: the policy's.
        time_limit: seconds that planning may take, where bounds or a policy are missing.
        title: of the page.
        settings: more lines for the table at the end: where the model came from and so on.
    """
    steps = horizon or getattr(policy, "horizon", None) or 5
    made = policy if isinstance(policy, Plan) else plan(bandit, horizon=steps, time_limit=time_limit)
    chosen = policy if isinstance(policy, Policy) else made.policy
    worth = measure(bandit, chosen, made.upper, steps)
    lines = {
        **(settings or {}),
        "policy": f"{chosen.kind}, {steps} steps",
        "bounds": f"{made.status}: {made.message}",
        "value of the policy": _how(worth.policy),
        "made": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, lmab {version('lmab')}, NumPy {np.__version__}, "
        f"Python {platform.python_version()}",
    }
    return Contents(title, bandit, chosen, steps, worth, tuple(lines.items()))


def measure(bandit: LatentBandit, policy: Policy, upper: float, horizon: int) -> Worth:
    """Value of the best fixed arm, of the policy, and of knowing the context."""
    averages = bandit.weights @ bandit.means
    return Worth(
        fixed=horizon * float(averages.max()),
        fixed_arm=int(averages.argmax()),
        policy=_value(bandit, policy, horizon),
        upper=upper,
        known=horizon * float(bandit.weights @ bandit.means.max(axis=1)),
    )


def _value(bandit: LatentBandit, policy: Policy, horizon: int) -> Evaluation:
    if policy.deterministic and isinstance(bandit.rewards, Categorical):
        try:
            return evaluate(policy, bandit, horizon=horizon)
        except TooLarge:
            pass
    return evaluate(policy, bandit, horizon=horizon, n_episodes=_SESSIONS, rng=np.random.default_rng(_SEED))


def _how(value: Evaluation) -> str:
    if value.exact:
        return f"{value.mean:.6g}, exact over {value.n_nodes} histories"
    return f"{value.mean:.6g} ± {value.stderr:.2g} from {value.n_episodes} simulated sessions, seed {_SEED}"
