"""Run: one learner on a live system, which can be saved and resumed; and `learn`, which plays a whole run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from .. import _registry, files
from ..checks import Rng, check_rng
from ..data.sessions import Sessions
from ..errors import InvalidArgument, InvalidFile
from ..estimation.em import EM
from ..estimation.result import Estimator
from ..estimation.traits.traits import Traits
from ..files import Makers, Record, as_plain, decode_any, encode, from_plain
from ..model.bandit import LatentBandit
from ..moments.second import Subspace
from ..parallel import with_one_blas_thread
from ..planning.certified import Certified
from ..planning.exact import Exact
from ..planning.lookahead import QMDP, Lookahead
from ..planning.plan import Planner
from ..planning.point_based import PointBased
from ..simulation import Environment
from .direct_mle import DirectMLE
from .learner import CERTIFIED, Exploration, Learned, Learner, Task, joined


class Run:
    """A learner that works in batches: `ask` returns an exploration, a live system plays it, `tell` takes the sessions.

    A file of a run holds its learner, its task, a seed and all sessions so far. Loading the file repeats the same
    course, with the same bits.

    Args:
        learner: the learner.
        task: its task; or give the fields of the `Task` (`n_arms`, `horizon`, `n_sessions` and so on) by name.
        rng: the generator or seed for the learner's randomness.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> live = lmab.Simulator(lmab.random_bandit(2, 5, rng=rng), horizon=4, rng=rng)
        >>> run = lmab.learning.Run(lmab.DirectMLE(2), n_arms=5, horizon=4, n_sessions=1000, rng=rng)
        >>> run.ask()
        Exploration(explore: 500 sessions, Uniform)
        >>> run.tell(live.run(run.ask().policy, 300))  # as many as there are by now
        >>> run.ask()
        Exploration(explore: 200 sessions, Uniform)
        >>> while not run.finished:  # a learner may ask several times
        ...     run.tell(run.ask().on(live))
        >>> run.learned
        Learned(VectorPolicy from 1000 sessions: explore 500, thompson 500)
    """

    def __init__(self, learner: Learner, task: Task | None = None, *, rng: Rng, **settings: Any) -> None:
        if not isinstance(learner, Learner):
            raise InvalidArgument(f"learner must be a Learner such as DirectMLE(4), got {learner!r}")
        if task is not None and settings:
            raise InvalidArgument(f"task must be given without its fields, got {', '.join(settings)} as well")
        task = Task(**settings) if task is None else task
        rng = check_rng(rng, "a learner explores at random")
        self._begin(learner, task, int(rng.integers(2**63)))

    def _begin(self, learner: Learner, task: Task, seed: int) -> None:
        self.learner, self.task, self.seed = learner, task, seed
        self._rounds: list[Sessions] = []  # Rounds of the explorations that are complete.
        self._told: Sessions | None = None  # Sessions of the present exploration.
        self._learned: Learned | None = None
        self._campaign = learner.campaign(task, rng=np.random.default_rng(seed))
        self._advance(None)

    @classmethod
    def resume(cls, learner: Learner, task: Task, seed: int, told: Sequence[Sessions]) -> Run:
        """Return the run in its state after these sessions."""
        run = cls.__new__(cls)
        run._begin(learner, task, seed)
        for sessions in told:
            run.tell(sessions)
        return run

    @property
    def finished(self) -> bool:
        """Return whether all sessions are there, so that `learned` exists."""
        return self._learned is not None

    @property
    def learned(self) -> Learned:
        """Return the result of the learner."""
        if self._learned is None:
            raise InvalidArgument(f"the run must be finished first, got one that still asks for {self.ask()}")
        return self._learned

    @property
    def sessions(self) -> Sessions | None:
        """Return all sessions so far, also after the learner failed; None before the first."""
        told = [*self._rounds, *([] if self._told is None else [self._told])]
        return joined(told) if told else None

    @property
    def sessions_used(self) -> int:
        """Return the number of sessions so far."""
        return sum(map(len, self._rounds)) + (0 if self._told is None else len(self._told))

    def ask(self) -> Exploration:
        """Return the next exploration; it stays the same until enough sessions arrive."""
        if self._learned is not None:
            raise InvalidArgument("the run must not be finished, got one with nothing left to play")
        return self._plan if self._told is None else self._plan.after(len(self._told))

    def tell(self, sessions: Sessions) -> None:
        """Pass on sessions that were played: all sessions of the exploration or a part of them.

        When all are there, the learner computes. So the last call may take as long as the fit and the plan.
        """
        plan = self.ask()
        if sessions.n_arms != self.task.n_arms:
            raise InvalidArgument(f"sessions must have {self.task.n_arms} arms, got {sessions.n_arms}")
        if sessions.horizon > self.task.horizon:
            raise InvalidArgument(f"sessions must have at most {self.task.horizon} steps, got {sessions.horizon}")
        if len(sessions) > plan.n_sessions:
            raise InvalidArgument(f"sessions must be at most the {plan.n_sessions} asked for, got {len(sessions)}")
        sessions = replace(sessions, propensities=None)  # no learner needs them, and only some rounds have them
        told = sessions if self._told is None else self._told + sessions
        if len(told) < self._plan.n_sessions and self._plan.rule is None:
            self._told = told
            return
        self._rounds.append(told)
        self._told = None
        self._advance(told)

    def _advance(self, told: Sessions | None) -> None:
        try:
            self._plan = next(self._campaign) if told is None else self._campaign.send(told)
        except StopIteration as end:
            self._learned = end.value

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to `path`; `lmab.load` gives a run in the same state."""
        files.write(path, self.record())

    def record(self) -> files.Record:
        """Return learner, task, seed, and all sessions as one log, with the number of sessions of each round."""
        rounds = [len(told) for told in (*self._rounds, *([] if self._told is None else [self._told]))]
        nested = {"learner": encode(self.learner), "task": _task_record(self.task)}
        if self.sessions is not None:
            nested["sessions"] = _sessions_record(self.sessions)
        return files.Record("run", {"seed": self.seed}, {"rounds": np.array(rounds, np.int64)}, nested)

    @classmethod
    def from_record(cls, record: Record) -> Run:
        """Return the run that a record describes; all computations are repeated."""
        return restore_run(record)

    def __repr__(self) -> str:
        return f"Run({self.learner!r}: {'finished' if self.finished else self.ask()}, {self.sessions_used} sessions)"


@with_one_blas_thread
def learn(
    environment: Environment,
    learner: Learner,
    *,
    n_sessions: int,
    rng: Rng,
    planner: Planner = CERTIFIED,
    time_limit: float = 60.0,
    rewards: str | None = None,
    values: Sequence[float] | None = None,
    progress: Callable[[Run], None] | None = None,
) -> Learned:
    """Play `environment` for `n_sessions` sessions and return the policy that `learner` learns.

    Args:
        environment: a `Simulator`, or a live system with the same methods.
        learner: the learner; `DirectMLE(n_types)` unless there is a reason for another.
        n_sessions: the budget; exactly this many sessions are played (none by `Genie`).
        rng: the generator or seed for the learner's randomness; the environment has its own.
        planner: how to plan on the learned model, as in `plan`.
        time_limit: seconds for planning.
        rewards: as in `fit`.
        values: the reward values, if some may be too rare to occur while learning.
        progress: called with the `Run` after each round.

    Whatever fails after the first round, the sessions are kept: the error has the `run`, and so `error.run.sessions`.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.random_bandit(3, 10, rng=rng)
        >>> environment = lmab.Simulator(bandit, horizon=5, rng=rng)
        >>> learned = lmab.learn(environment, lmab.DirectMLE(3), n_sessions=5000, rng=rng)
        >>> genie = lmab.learn(environment, lmab.learning.Genie(bandit), n_sessions=5000, rng=rng)
        >>> value = lmab.evaluate(learned.policy, bandit, horizon=5).mean
        >>> value > 0.97 * lmab.evaluate(genie.policy, bandit, horizon=5).mean
        True
    """
    declared = getattr(environment, "rewards", None)  # a live system need not declare its reward family
    task = Task(environment.n_arms, environment.horizon, n_sessions, planner, time_limit, rewards, values, declared)
    run = Run(learner, task, rng=rng)
    with _sessions_kept(run):
        while not run.finished:
            run.tell(run.ask().on(environment))
            if progress is not None:
                progress(run)
    return run.learned


@contextmanager
def _sessions_kept(run: Run) -> Iterator[None]:
    """Give an error that comes after sessions were played the run that holds them."""
    try:
        yield
    except BaseException as error:  # Ctrl-C and a live system that fails among them.
        if run.sessions_used:
            error.run = run  # type: ignore[attr-defined]
            error.add_note(f"The {run.sessions_used} sessions that were told are kept in the error: error.run.sessions")
        raise


def _sessions_record(sessions: Sessions) -> files.Record:
    arrays = {"arms": sessions.arms, "rewards": sessions.rewards, "offsets": sessions.offsets}
    labels: Any = None if sessions.arm_labels is None else list(sessions.arm_labels)
    return files.Record("sessions", {"n_arms": sessions.n_arms, "arm_labels": labels}, arrays)


def sessions_from(record: files.Record) -> Sessions:
    """Return the sessions that a run's record holds."""
    labels = record.fields["arm_labels"]
    arrays = record.arrays
    return Sessions(
        arrays["arms"],
        arrays["rewards"],
        arrays["offsets"],
        record.fields["n_arms"],
        arm_labels=None if labels is None else tuple(labels),
    )


_PLANNER = "planner of the user"  # the kind of a planner that is no dataclass, or none that inherits from Planner


def _task_record(task: Task) -> files.Record:
    """Return the record of a task; a planner of any class is saved by the name of its class and its attributes."""
    planner: Any = task.planner
    if isinstance(planner, _PLANNERS) or (is_dataclass(planner) and type(planner) in _own(Planner).values()):
        return encode(task)
    cls = type(planner)
    parts = (
        {one.name: getattr(planner, one.name) for one in fields(planner)} if is_dataclass(planner) else vars(planner)
    )
    try:
        state = {f"state {name}": as_plain(value) for name, value in parts.items()}
    except TypeError as error:
        raise InvalidArgument(
            f"planner must have attributes that are numbers, texts, or tuples of them to be saved, got {planner!r}: "
            f"{error}"
        ) from error
    record = encode(task, without=("planner",))
    name = {"module": cls.__module__, "name": cls.__qualname__}
    return replace(record, records={**record.records, "planner": Record(_PLANNER, {**name, **state})})


def _planner_from(record: Record) -> Any:
    """Return the planner of a saved run; its class must have been imported, because files never import code."""
    module, name = str(record.fields["module"]), str(record.fields["name"])
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not all(callable(getattr(found, one, None)) for one in _METHODS):
        raise InvalidFile(f"holds a planner {module}.{name}: import the module that defines this class first")
    planner: Any = object.__new__(found)
    for key, value in record.fields.items():
        if key.startswith("state "):
            object.__setattr__(planner, key.removeprefix("state "), from_plain(value))
    return planner


_METHODS = ("solve", "solve_without_repeats")
_PLANNERS = (Certified, Exact, Lookahead, PointBased, QMDP)
_MAKERS: Makers = {
    "bandit": LatentBandit.from_record,
    **{maker.__name__: maker for maker in (DirectMLE, *_PLANNERS, Task, EM, Traits, Subspace)},
}
_PACKAGES = ("lmab.learning", "lmab.estimation")  # packages of public learners and estimators that a run may hold


def restore_run(record: Record) -> Run:
    """Return the run that a record describes; all computations are repeated."""
    makers = {**_own(Learner), **_own(Planner), **_MAKERS, **_public(record), _PLANNER: _planner_from}
    learner, task = (decode_any(record.records[name], makers) for name in ("learner", "task"))
    rounds = record.arrays["rounds"]
    sessions = sessions_from(record.records["sessions"]) if len(rounds) else None
    if sessions is not None and (rounds.min() < 1 or rounds.sum() != len(sessions)):
        raise InvalidFile(f"damaged: rounds of {rounds.sum()} sessions, and {len(sessions)} sessions")
    ends = np.cumsum(rounds).tolist()
    told = [] if sessions is None else [sessions[end - n : end] for end, n in zip(ends, rounds.tolist(), strict=True)]
    return Run.resume(learner, task, record.fields["seed"], told)


def _public(record: Record) -> dict[str, Callable[..., Any]]:
    """Return the public learners and estimators that a record and its nested records name."""
    found: dict[str, Callable[..., Any]] = {}
    for part in (record, *record.records.values()):
        for package in map(import_module, _PACKAGES):
            one = getattr(package, part.kind) if part.kind in package.__all__ else None
            if isinstance(one, type) and issubclass(one, Learner | Estimator):
                found[part.kind] = one
        if part is not record:
            found |= _public(part)
    return found


def _own(base: Any) -> dict[str, Callable[..., Any]]:
    """Return the subclasses of `base` that the program has defined, by name; of two equal names the later one."""
    found: dict[str, Callable[..., Any]] = {}
    todo = list(base.__subclasses__())
    for cls in todo:
        todo += cls.__subclasses__()
        found[cls.__name__] = cls
    return found


_registry.register("run", Run)
