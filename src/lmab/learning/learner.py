"""Base class of learners, with their explorations, their task, their course and their result."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .._shapes import Array, Integer
from ..checks import COUNT, OneOf, Or, check, check_array, check_fields, optional
from ..data.sessions import Sessions
from ..errors import InvalidArgument
from ..estimation.families import FAMILIES
from ..estimation.result import Estimate
from ..model.bandit import LatentBandit
from ..model.categorical import Categorical
from ..planning.certified import Certified
from ..planning.plan import Planner, plan
from ..planning.problem import Plan
from ..policies.policy import Policy
from ..simulation import Environment, Rule, Simulator


@dataclass(frozen=True, eq=False)
class Exploration:
    """Sessions to play: either each row of `arms` is one, or `policy` decides. One of the two is None.

    With a `rule`, `policy` is valid for the next session alone: the learner takes any number of sessions and asks
    again. A `Simulator` plays all of its sessions by the rule, any other environment one.

    Examples:
        >>> import numpy as np, lmab
        >>> environment = lmab.Simulator(lmab.random_bandit(2, 5, rng=0), horizon=4, rng=0)
        >>> exploration = lmab.learning.Exploration.of_policy("explore", lmab.Uniform(5), 100)
        >>> exploration.after(30)
        Exploration(explore: 70 sessions, Uniform)
        >>> exploration.on(environment)
        Sessions(100 sessions, 400 steps, 5 arms)
        >>> lmab.learning.Exploration.of_arms("each arm", np.repeat(np.arange(5), 4).reshape(5, 4)).on(environment)
        Sessions(5 sessions, 20 steps, 5 arms)
    """

    phase: str  # purpose of the sessions
    n_sessions: int
    policy: Policy | None = None
    arms: Integer[Array, "n H"] | None = None
    rule: Rule | None = None

    @classmethod
    def of_policy(cls, phase: str, policy: Policy, n_sessions: int) -> Exploration:
        """Let `policy` play n sessions."""
        return cls(phase, n_sessions, policy=policy)

    @classmethod
    def of_rule(cls, phase: str, rule: Rule, policy: Policy, n_sessions: int) -> Exploration:
        """Play n sessions one after another: the first by `policy`, the others by the rule, which learns from each."""
        return cls(phase, n_sessions, policy=policy, rule=rule)

    @classmethod
    def of_arms(cls, phase: str, arms: Integer[Array, "n H"]) -> Exploration:
        """Play the given arms, one row per session."""
        return cls(phase, len(arms), arms=arms)

    def on(self, environment: Environment) -> Sessions:
        """Play the sessions on `environment`."""
        if self.arms is not None:
            return environment.play(self.arms)
        assert self.policy is not None
        if self.rule is None:
            return environment.run(self.policy, self.n_sessions)
        if isinstance(environment, Simulator):
            return environment.follow(self.rule, self.n_sessions)
        return environment.run(self.policy, 1)

    def after(self, n_played: int) -> Exploration:
        """Return the exploration that is left after `n_played` sessions."""
        arms = None if self.arms is None else self.arms[n_played:]
        return replace(self, n_sessions=self.n_sessions - n_played, arms=arms)

    def __repr__(self) -> str:
        how = "arms given" if self.policy is None else type(self.policy).__name__
        return f"Exploration({self.phase}: {self.n_sessions} sessions, {how})"


Campaign = Generator[Exploration, Sessions, "Learned"]


@dataclass(frozen=True, eq=False)
class Phase:
    """One part of a learner's course: its sessions, the time of its computation, and the facts it found."""

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
    """The result of a learner: the learned policy, and the model that it was planned on.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> environment = lmab.Simulator(lmab.random_bandit(2, 5, rng=rng), horizon=4, rng=rng)
        >>> learned = lmab.learn(environment, lmab.learning.UCB(), n_sessions=500, rng=rng)
        >>> learned
        Learned(Ranking from 500 sessions: explore 500)
        >>> [phase.name for phase in learned.diagnostics]
        ['explore', 'counts']
    """

    policy: Policy
    bandit: LatentBandit | None  # None: the learner keeps no model of types
    sessions_used: int
    diagnostics: tuple[Phase, ...]  # in the order of the course
    plan: Plan | None = None  # bounds on the optimum of `bandit`, which is not the true bandit
    estimate: Estimate | None = None  # the fit, if one was made over all arms

    def __getitem__(self, name: str) -> Phase:
        """Return the phase of that name."""
        return next(phase for phase in self.diagnostics if phase.name == name)

    def __repr__(self) -> str:
        spent = ", ".join(f"{phase.name} {phase.n_sessions}" for phase in self.diagnostics if phase.n_rounds)
        return f"Learned({type(self.policy).__name__} from {self.sessions_used} sessions{': ' * bool(spent)}{spent})"


class Course:
    """Record of the phases of one course; phases with the same name are added up.

    In a campaign, `sessions = yield from course.explore(exploration)` asks for sessions and notes their number and
    rewards, `course.note(name, **facts)` notes the facts of a computation, and `return course.learned(...)` ends it.

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
        >>> course.learned(lmab.policies.Ranking([2, 0, 1, 3, 4], horizon=2), None)
        Learned(Ranking from 2 sessions: explore 2)
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
        """Note facts of a computation, with the time since the last note or exploration."""
        now = time.perf_counter()
        phase = self._phases.get(name, Phase(name))
        self._phases[name] = replace(phase, seconds=phase.seconds + now - self._clock, facts={**phase.facts, **facts})
        self._clock = now

    def learned(
        self, policy: Policy, bandit: LatentBandit | None, plan: Plan | None = None, estimate: Estimate | None = None
    ) -> Learned:
        """Return the result at the end of the course."""
        phases = tuple(self._phases.values())
        return Learned(policy, bandit, sum(phase.n_sessions for phase in phases), phases, plan, estimate)


RANK = optional(Or(COUNT, OneOf(("auto",))))  # option of learners that estimate a subspace
FLOOR = 1e-3  # least probability that a belief under an estimated model gives to any reward
CERTIFIED = Certified()


@dataclass(frozen=True)
class Task:
    """The task of a learner: the environment's size, the budget, the rewards, and the planner.

    Examples:
        >>> import lmab
        >>> task = lmab.learning.Task(n_arms=5, horizon=4, n_sessions=1000)
        >>> task.n_sessions, task.planner.gap
        (1000, 0.01)
    """

    n_arms: int
    horizon: int
    n_sessions: int  # the budget
    planner: Planner = CERTIFIED
    time_limit: float = 60.0  # seconds for planning
    rewards: str | None = None  # As in `fit`: "categorical", "gaussian", "counts", "binned"; None: by observed values.
    values: Sequence[float] | None = None  # Values of categorical rewards, rising, if some may never occur.
    declared: str | None = None  # the reward family that the environment declares; None: unknown

    def __post_init__(self) -> None:
        check_fields(self, dict.fromkeys(("n_arms", "horizon", "n_sessions"), COUNT))
        check("rewards", self.rewards, optional(OneOf(FAMILIES)))
        if self.values is not None:
            if self.rewards not in (None, "categorical"):
                raise InvalidArgument(f"values must be None for {self.rewards} rewards, got {len(self.values)} values")
            known = np.unique(check_array("values", self.values, ndim=1))
            object.__setattr__(self, "values", tuple(known.tolist()))


class Learner(ABC):
    """A way to learn. A learner is configuration and never changes; a `Run` holds the progress of one attempt.

    Examples:
        >>> from dataclasses import dataclass
        >>> import numpy as np, lmab
        >>> @dataclass(frozen=True)
        ... class BestOfUniform(lmab.learning.Learner):
        ...     '''Plays at random, then plays the arm with the highest mean reward.'''
        ...     def campaign(self, task, *, rng):
        ...         course = lmab.learning.Course()
        ...         uniform = lmab.Uniform(task.n_arms, horizon=task.horizon)
        ...         plan = lmab.learning.Exploration.of_policy("explore", uniform, task.n_sessions)
        ...         seen = yield from course.explore(plan)
        ...         counts, sums = (np.bincount(seen.arms, w, minlength=task.n_arms) for w in (None, seen.rewards))
        ...         arms = np.argsort(-sums / np.maximum(counts, 1))
        ...         return course.learned(lmab.policies.Ranking(arms, horizon=task.horizon), None)
        >>> environment = lmab.Simulator(lmab.random_bandit(2, 5, rng=0), horizon=4, rng=0)
        >>> lmab.learn(environment, BestOfUniform(), n_sessions=500, rng=0)
        Learned(Ranking from 500 sessions: explore 500)
        >>> lmab.testing.check_learner(BestOfUniform())
        Report(BestOfUniform keeps 10 laws)
    """

    @abstractmethod
    def campaign(self, task: Task, *, rng: np.random.Generator) -> Campaign:
        """Yield each `Exploration`, receive its sessions, and return the learned result at the end.

        A task that cannot be done raises before the first exploration. The same seed and sessions give the same
        explorations and the same result.
        """


def planned(task: Task, bandit: LatentBandit, course: Course) -> Plan:
    """Plan on `bandit` and note the plan in the course."""
    result = plan(bandit, horizon=task.horizon, method=task.planner, time_limit=task.time_limit)
    course.note("plan", lower=result.lower, upper=result.upper, status=result.status, message=result.message)
    return result


def note_estimate(course: Course, name: str, fit: Estimate) -> None:
    """Note the result of a fit in the course."""
    course.note(
        name,
        n_types=fit.n_types,
        log_likelihood=fit.log_likelihood,
        trace=fit.trace,
        status=fit.status,
        message=fit.message,
    )


def planned_on_estimate(task: Task, bandit: LatentBandit, course: Course) -> Learned:
    """Floor the estimated bandit, plan on it, and return the result: the last steps of most learners."""
    safe = floored(bandit, task.values)
    result = planned(task, safe, course)
    return course.learned(result.policy, safe, plan=result)


def floored(bandit: LatentBandit, values: Sequence[float] | None = None) -> LatentBandit:
    """Return the bandit with all reward probabilities at least `FLOOR`, so that no rare reward excludes a type.

    Values that are declared but never occurred get this probability.
    """
    return replace(bandit, rewards=bandit.rewards.floored(FLOOR, values))


def lenient(bandit: LatentBandit) -> LatentBandit:
    """Return the bandit for a policy that explores: it takes an undeclared reward for the nearest declared value.

    A policy that refused such a reward would end the run in the middle of a session, and its sessions would be lost.
    """
    rewards = bandit.rewards
    if not isinstance(rewards, Categorical) or rewards.edges is not None or len(rewards.values) < 2:
        return bandit
    edges = (rewards.values[1:] + rewards.values[:-1]) / 2
    return replace(bandit, rewards=replace(rewards, edges=edges))


def check_declared(task: Task, learner: str) -> None:
    """Raise before anything is played if the environment declares normal rewards and the task names no family."""
    if task.rewards is None and task.declared == "gaussian":
        raise InvalidArgument(
            f"rewards must be named for {learner}: the environment has normal rewards, so give rewards='gaussian'; "
            f"got None"
        )


def check_not_binned(task: Task, learner: str) -> None:
    """Raise before anything is played if the learner, which matches moments, cannot use the task's rewards."""
    check_declared(task, learner)
    if task.rewards == "binned":
        raise InvalidArgument(f"rewards must not be 'binned' for {learner}: use DirectMLE, or 'gaussian' or 'counts'")


def check_enough(task: Task, n_fitted: int, n_types: int) -> None:
    """Raise before anything is played when the fit would have fewer sessions than types."""
    if n_fitted < n_types:
        raise InvalidArgument(
            f"n_sessions must leave at least {n_types} sessions for the fit, one for each type, "
            f"got {task.n_sessions}, which leaves {n_fitted}"
        )


def share_out(n_sessions: int, fraction: float) -> tuple[int, int]:
    """Return the budget in two parts, at least one session each."""
    if n_sessions < 2:
        raise InvalidArgument(f"n_sessions must be at least 2 for a learner of two phases, got {n_sessions}")
    first = min(max(round(fraction * n_sessions), 1), n_sessions - 1)
    return first, n_sessions - first


def declared_values(task: Task, sessions: Sessions) -> list[float] | None:
    """Return the declared reward values with all values of the sessions; None if none were declared."""
    return None if task.values is None else united_values(task, sessions)


def united_values(task: Task, sessions: Sessions) -> list[float] | None:
    """Return the declared reward values and the sessions' values; None if rewards are not categorical."""
    if task.rewards not in (None, "categorical"):
        return None
    values: list[float] = np.union1d(() if task.values is None else task.values, sessions.rewards).tolist()
    return values


def joined(parts: Sequence[Sessions]) -> Sessions:
    """Return one log of many, merged in pairs, pairs of pairs and so on."""
    while len(parts) > 1:
        pairs = [parts[i] + parts[i + 1] for i in range(0, len(parts) - 1, 2)]
        parts = pairs + list(parts[2 * len(pairs) :])
    return parts[0]
