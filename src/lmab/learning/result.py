"""Learned: a policy, the model behind it, and what was spent and seen on the way there."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..data import Episodes
from ..estimation import Estimate
from ..model import LatentBandit
from ..planning import Plan
from ..policies import Policy
from .exploration import Exploration

Campaign = Generator[Exploration, Episodes, "Learned"]


@dataclass(frozen=True, eq=False)
class Phase:
    """One part of a learner's course: episodes played, or a computation, and what came to light."""

    name: str
    n_episodes: int = 0
    n_rounds: int = 0  # explorations asked for
    reward: float = 0.0  # sum over all steps played
    seconds: float = 0.0  # computing, without the time that playing took
    facts: Mapping[str, Any] = field(default_factory=dict)  # e.g. eigenvalues, g, log_likelihood, status

    def __repr__(self) -> str:
        played = f"{self.n_episodes} episodes in {self.n_rounds} rounds, " if self.n_rounds else ""
        facts = "".join(f", {name}={value!r}" for name, value in self.facts.items())
        return f"Phase({self.name}: {played}{self.seconds:.2g} s{facts})"


@dataclass(frozen=True, eq=False)
class Learned:
    """What a learner came to: `policy` is the result, `bandit` the model that it was planned on.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> environment = lmab.Simulator(lmab.random_bandit(2, 5, rng=rng), horizon=4, rng=rng)
        >>> learned = lmab.learn(environment, lmab.UCB(), n_episodes=500, rng=rng)
        >>> learned
        Learned(Stationary from 500 episodes: explore 500)
        >>> [phase.name for phase in learned.diagnostics]
        ['explore', 'counts']
    """

    policy: Policy
    bandit: LatentBandit | None  # None: the learner keeps no model of contexts
    episodes_used: int
    diagnostics: tuple[Phase, ...]  # in the order of the course
    plan: Plan | None = None  # bounds on the optimum of `bandit`, which is not the true bandit
    estimate: Estimate | None = None  # the fit, where one was made over all arms

    def __getitem__(self, name: str) -> Phase:
        """The phase of that name."""
        return next(phase for phase in self.diagnostics if phase.name == name)

    def __repr__(self) -> str:
        spent = ", ".join(f"{phase.name} {phase.n_episodes}" for phase in self.diagnostics if phase.n_rounds)
        return f"Learned({type(self.policy).__name__} from {self.episodes_used} episodes{': ' * bool(spent)}{spent})"


class Course:
    """Collects the phases of one course; phases of the same name are one.

    In a campaign, `episodes = yield from course.explore(exploration)` has sessions played and notes what they cost and
    earned, `course.note(name, **facts)` notes what a computation found, and `return course.learned(...)` ends it.

    Examples:
        >>> import lmab
        >>> course = lmab.Course()
        >>> exploring = course.explore(lmab.Exploration.of_policy("explore", lmab.Uniform(5), 2))
        >>> next(exploring)  # what a Run asks for
        Exploration(explore: 2 episodes, Uniform)
        >>> try:
        ...     exploring.send(lmab.Episodes.from_arrays([[0, 1], [4, 2]], [[1.0, 0.0], [1.0, 1.0]], n_arms=5))
        ... except StopIteration as end:
        ...     episodes = end.value
        >>> course.note("count", most=3)
        >>> course.learned(lmab.Stationary(2), None)
        Learned(Stationary from 2 episodes: explore 2)
    """

    def __init__(self) -> None:
        self._phases: dict[str, Phase] = {}
        self._clock = time.perf_counter()

    def explore(self, plan: Exploration) -> Generator[Exploration, Episodes, Episodes]:
        """Ask for the episodes of `plan`, and note what they cost and earned."""
        episodes = yield plan
        self._clock = time.perf_counter()  # whoever plays may take days
        phase = self._phases.get(plan.phase, Phase(plan.phase))
        self._phases[plan.phase] = replace(
            phase,
            n_episodes=phase.n_episodes + len(episodes),
            n_rounds=phase.n_rounds + 1,
            reward=phase.reward + float(episodes.rewards.sum()),
        )
        return episodes

    def note(self, name: str, **facts: Any) -> None:
        """Note what a computation found; the time since the last note or exploration is its own."""
        now = time.perf_counter()
        phase = self._phases.get(name, Phase(name))
        self._phases[name] = replace(phase, seconds=phase.seconds + now - self._clock, facts={**phase.facts, **facts})
        self._clock = now

    def learned(
        self, policy: Policy, bandit: LatentBandit | None, plan: Plan | None = None, estimate: Estimate | None = None
    ) -> Learned:
        """The course's end."""
        phases = tuple(self._phases.values())
        return Learned(policy, bandit, sum(phase.n_episodes for phase in phases), phases, plan, estimate)
