"""Learned: the result of a learner, with its policy, its model and the phases of its course."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..data import Sessions
from ..estimation import Estimate
from ..model import LatentBandit
from ..planning import Plan
from ..policies import Policy
from .exploration import Exploration

Campaign = Generator[Exploration, Sessions, "Learned"]


@dataclass(frozen=True, eq=False)
class Phase:
    """One part of a learner's course: the sessions played, the time of a computation, and what it found."""

    name: str
    n_sessions: int = 0
    n_rounds: int = 0  # explorations asked for
    reward: float = 0.0  # sum over all steps played
    seconds: float = 0.0  # computing, without the time that playing took
    facts: Mapping[str, Any] = field(default_factory=dict)  # e.g. eigenvalues, g, log_likelihood, status

    def __repr__(self) -> str:
        played = f"{self.n_sessions} sessions in {self.n_rounds} rounds, " if self.n_rounds else ""
        facts = "".join(f", {name}={value!r}" for name, value in self.facts.items())
        return f"Phase({self.name}: {played}{self.seconds:.2g} s{facts})"


@dataclass(frozen=True, eq=False)
class Learned:
    """The result of a learner: `policy` is what was learned, `bandit` is the model that it was planned on.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> environment = lmab.Simulator(lmab.random_bandit(2, 5, rng=rng), horizon=4, rng=rng)
        >>> learned = lmab.learn(environment, lmab.learning.UCB(), n_sessions=500, rng=rng)
        >>> learned
        Learned(Stationary from 500 sessions: explore 500)
        >>> [phase.name for phase in learned.diagnostics]
        ['explore', 'counts']
    """

    policy: Policy
    bandit: LatentBandit | None  # None: the learner keeps no model of types
    sessions_used: int
    diagnostics: tuple[Phase, ...]  # in the order of the course
    plan: Plan | None = None  # bounds on the optimum of `bandit`, which is not the true bandit
    estimate: Estimate | None = None  # the fit, where one was made over all arms

    def __getitem__(self, name: str) -> Phase:
        """The phase of that name."""
        return next(phase for phase in self.diagnostics if phase.name == name)

    def __repr__(self) -> str:
        spent = ", ".join(f"{phase.name} {phase.n_sessions}" for phase in self.diagnostics if phase.n_rounds)
        return f"Learned({type(self.policy).__name__} from {self.sessions_used} sessions{': ' * bool(spent)}{spent})"


class Course:
    """Collects the phases of one course; phases with the same name are added up.

    In a campaign, `sessions = yield from course.explore(exploration)` asks for sessions and notes their number and
    rewards, `course.note(name, **facts)` notes what a computation found, and `return course.learned(...)` ends it.

    Examples:
        >>> import lmab
        >>> course = lmab.learning.Course()
        >>> exploring = course.explore(lmab.learning.Exploration.of_policy("explore", lmab.Uniform(5), 2))
        >>> next(exploring)  # what a Run asks for
        Exploration(explore: 2 sessions, Uniform)
        >>> try:
        ...     exploring.send(lmab.Sessions.from_arrays([[0, 1], [4, 2]], [[1.0, 0.0], [1.0, 1.0]], n_arms=5))
        ... except StopIteration as end:
        ...     sessions = end.value
        >>> course.note("count", most=3)
        >>> course.learned(lmab.policies.Stationary(2), None)
        Learned(Stationary from 2 sessions: explore 2)
    """

    def __init__(self) -> None:
        self._phases: dict[str, Phase] = {}
        self._clock = time.perf_counter()

    def explore(self, plan: Exploration) -> Generator[Exploration, Sessions, Sessions]:
        """Ask for the sessions of `plan`, and note their number and rewards."""
        sessions = yield plan
        self._clock = time.perf_counter()  # playing may take days
        phase = self._phases.get(plan.phase, Phase(plan.phase))
        self._phases[plan.phase] = replace(
            phase,
            n_sessions=phase.n_sessions + len(sessions),
            n_rounds=phase.n_rounds + 1,
            reward=phase.reward + float(sessions.rewards.sum()),
        )
        return sessions

    def note(self, name: str, **facts: Any) -> None:
        """Note what a computation found; the time since the last note or exploration counts for it."""
        now = time.perf_counter()
        phase = self._phases.get(name, Phase(name))
        self._phases[name] = replace(phase, seconds=phase.seconds + now - self._clock, facts={**phase.facts, **facts})
        self._clock = now

    def learned(
        self, policy: Policy, bandit: LatentBandit | None, plan: Plan | None = None, estimate: Estimate | None = None
    ) -> Learned:
        """The result at the end of the course."""
        phases = tuple(self._phases.values())
        return Learned(policy, bandit, sum(phase.n_sessions for phase in phases), phases, plan, estimate)
