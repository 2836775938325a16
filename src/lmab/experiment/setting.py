"""Setting and Trial: what is measured, as data with an id; all randomness follows from the id."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from .._shapes import Array, Float
from ..model import LatentBandit, random_bandit

SEED = 20221003  # of everything; rows carry it


@dataclass(frozen=True)
class Setting:
    """A kind of instance, its size, and what a learner may spend on it."""

    kind: str  # of `random_bandit`, or "line" or "separated", below
    n_types: int
    n_arms: int
    horizon: int
    n_sessions: int = 0  # 0: nothing is learned
    separation: float = 0.0  # gamma of appendix C, for "separated"

    @property
    def id(self) -> str:
        separation = f"-g{self.separation:g}" if self.separation else ""
        return f"{self.kind}{separation}-M{self.n_types}-A{self.n_arms}-H{self.horizon}-N{self.n_sessions}"

    @property
    def instance(self) -> Setting:
        """The same without the budget: what the truth depends on."""
        return replace(self, n_sessions=0)

    def draw(self, instance: int) -> LatentBandit:
        """The bandit number `instance`; the same for every horizon and budget."""
        rng = generator(instance, "bandit")
        if self.kind == "line":
            return on_a_line(self.n_types, self.n_arms, rng)
        if self.kind == "separated":
            return separated(self.n_types, self.n_arms, self.separation, rng)
        return random_bandit(self.n_types, self.n_arms, kind=self.kind, rng=rng)


def generator(instance: int, use: str) -> np.random.Generator:
    """The generator for one use within one instance: the same for all methods, so that they are compared in pairs."""
    uses = ("bandit", "environment", "learner", "evaluation")
    return np.random.default_rng((SEED, instance, uses.index(use)))


def on_a_line(n_types: int, n_arms: int, rng: np.random.Generator) -> LatentBandit:
    """Types on a line: means 1/2 + c_a * x_m with scalar positions x_m, so that sessions show moments of x alone.

    A distribution on M points of a line is fixed by its first 2M-1 moments and by no fewer: the sharpest case of the
    paper's two regimes.
    """
    line = Line.draw(n_types, n_arms, rng)
    return LatentBandit.bernoulli(line.weights, np.clip(0.5 + line.positions[:, None] * line.slopes, 0.01, 0.99))


@dataclass(frozen=True, eq=False)
class Line:
    """What a bandit on a line is made of."""

    positions: Float[Array, "M"]  # rising
    slopes: Float[Array, "A"]
    weights: Float[Array, "M"]

    @classmethod
    def draw(cls, n_types: int, n_arms: int, rng: np.random.Generator) -> Line:
        positions = np.linspace(-1, 1, n_types) + rng.uniform(-0.1, 0.1, n_types)
        slopes = rng.choice((-1.0, 1.0), n_arms) * rng.uniform(0.2, 0.45, n_arms)
        return cls(positions, slopes, rng.dirichlet(np.full(n_types, 20.0)))


def separated(n_types: int, n_arms: int, separation: float, rng: np.random.Generator) -> LatentBandit:
    """Types that differ by exactly `separation` (in l1, as in appendix C) on about half of the arms, else by 0."""
    base = rng.uniform(0.3, 0.7, n_arms)
    signs: Float[Array, "M A"] = rng.choice((-1.0, 1.0), (n_types, n_arms))
    return LatentBandit.bernoulli(np.full(n_types, 1 / n_types), base + signs * separation / 4)


@dataclass(frozen=True)
class Measurement:
    """What one trial found; None where it does not apply."""

    value: float | None  # expected reward of a session on the true bandit, certified planner (or the method's policy)
    value_qmdp: float | None = None  # the same with the paper's planner
    stderr: float = 0.0  # of `value`; 0 when exact
    lower: float | None = None  # proved by the planner, on the model that it planned for
    upper: float | None = None
    distance: float | None = None  # of the learned model to the true one (Wasserstein)
    sessions_used: int = 0
    seconds_learning: float = 0.0
    seconds_planning: float = 0.0
    note: str = ""  # what the planner or the learner said


@dataclass(frozen=True)
class Contender:
    """A named way to act: `measure(setting, bandit, instance)`; `learns` tells whether it depends on the budget.

    A method whose results change gets a higher `revision`: its stored rows no longer count, and all others stay valid.
    """

    name: str
    label: str  # in figures and tables
    measure: Callable[[Setting, LatentBandit, int], Measurement]
    learns: bool = True
    revision: int = 1


@dataclass(frozen=True)
class Trial:
    """One method on one instance of one setting: the unit of work, and one row."""

    setting: Setting
    instance: int
    method: Contender

    @classmethod
    def of(cls, setting: Setting, instance: int, method: Contender) -> Trial:
        """The trial; a method that learns nothing is run once for all budgets."""
        return cls(setting if method.learns else setting.instance, instance, method)

    @property
    def id(self) -> str:
        revision = f"@{self.method.revision}" if self.method.revision > 1 else ""
        return f"{self.setting.id}/{self.instance:02d}/{self.method.name}{revision}"
