"""check_learner: the laws that every learner keeps."""

from __future__ import annotations

import dataclasses
import tempfile
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..data.sessions import Sessions
from ..errors import LmabWarning, first_line
from ..learning.learner import Exploration, Learned, Learner
from ..learning.run import Run, learn
from ..loading import load
from ..model.bandit import LatentBandit
from ..policies.policy import Policy
from ..simulation import Simulator, check_fits, simulate
from ..testing.policies import check_policy, same_record
from ..testing.report import Broken, Law, Report, expect, keep

_SEED = 2  # The seed of the learner.
_PLAYED = 1  # seed of the environment
_SAVES = 6  # how often a run is saved and loaded during its course


def check_learner(
    learner: Learner,
    *,
    bandit: LatentBandit | None = None,
    horizon: int = 4,
    n_sessions: int = 600,
) -> Report:
    """Check that `learner` keeps the laws of learners on a simulated environment.

    These are the laws. The learner asks for explorations that can be played, for exactly the budget or for nothing. Its
    diagnostics add up. Its policy fits the environment and keeps the laws of policies. The same seed gives the same
    result to the bit, also when sessions arrive in parts and when the run is saved and loaded between any two parts.
    A task that it cannot do is refused before anything is played. The learner never changes.

    Args:
        learner: the learner to check; a frozen dataclass, so that a run can be saved.
        bandit: the bandit that is played; None gives two types, four arms and Bernoulli rewards.
        horizon: steps per session.
        n_sessions: the budget.

    Returns:
        A report of the laws that were kept. A broken one raises `BrokenLaw`, an `AssertionError`.

    Examples:
        >>> import lmab
        >>> from lmab.testing import check_learner
        >>> check_learner(lmab.learning.UCB())
        Report(UCB keeps 10 laws)
    """
    if bandit is None:
        bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2, 0.5, 0.1], [0.1, 0.3, 0.6, 0.8]])
    case = _Course(learner, bandit, horizon, n_sessions)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LmabWarning)  # Learners warn of small budgets.
        return keep(type(learner).__name__, LAWS, case)


class _Recorder:
    """An environment with only the methods of the protocol, which records requests and plays."""

    def __init__(self, bandit: LatentBandit, horizon: int) -> None:
        self._simulator = Simulator(bandit, horizon=horizon, rng=_PLAYED)
        self.n_arms, self.horizon = bandit.n_arms, horizon
        self.rounds: list[Sessions] = []

    @property
    def sessions_used(self) -> int:
        return sum(map(len, self.rounds))

    def play(self, arms: Any) -> Sessions:
        self.rounds.append(self._simulator.play(arms))
        return self.rounds[-1]

    def run(self, policy: Policy, n_sessions: int) -> Sessions:
        self.rounds.append(self._simulator.run(policy, n_sessions))
        return self.rounds[-1]


@dataclass(frozen=True, eq=False)
class _Course:
    """A learner and its environment; its course is computed once."""

    learner: Learner
    bandit: LatentBandit
    horizon: int
    n_sessions: int

    def new_run(self, **options: Any) -> Run:
        settings: dict[str, Any] = {
            "n_arms": self.bandit.n_arms,
            "horizon": self.horizon,
            "n_sessions": self.n_sessions,
            "rng": _SEED,
        }
        return Run(self.learner, **{**settings, **options})

    @cached_property
    def made(self) -> tuple[list[Exploration], list[Sessions], Learned]:
        """Return the explorations, the sessions played, and the result."""
        environment, run = _Recorder(self.bandit, self.horizon), self.new_run()
        asked = []
        while not run.finished:
            asked.append(run.ask())
            _can_be_played(asked[-1], len(asked), self)
            run.tell(asked[-1].on(environment))
            spent = environment.sessions_used
            expect(spent <= self.n_sessions, f"it asked for {spent} sessions, the budget is {self.n_sessions}")
        expect(isinstance(run.learned, Learned), f"campaign must return a Learned, got {run.learned!r}")
        return asked, environment.rounds, run.learned


def _can_be_played(asked: Any, number: int, case: _Course) -> None:
    where = f"exploration {number}"
    expect(isinstance(asked, Exploration), f"{where} must be an Exploration, got {asked!r}")
    expect(asked.phase and isinstance(asked.phase, str), f"{where} must name its phase, got {asked.phase!r}")
    expect(asked.n_sessions >= 1, f"{where} must ask for at least one session, got {asked.n_sessions}")
    one = (asked.policy is None) != (asked.arms is None)
    expect(one, f"{where} must have either a policy or arms, got {asked.policy!r} and {asked.arms!r}")
    if asked.policy is not None:
        check_fits(asked.policy, case.bandit, case.horizon)
        return
    arms = np.asarray(asked.arms)
    expect(len(arms) == asked.n_sessions, f"{where} is for {asked.n_sessions} sessions, got {len(arms)} rows")
    fine = arms.ndim == 2 and 1 <= arms.shape[1] <= case.horizon and np.issubdtype(arms.dtype, np.integer)
    wanted = f"integer arms of up to {case.horizon} columns"
    expect(fine, f"{where} must have {wanted}, got {arms.shape} of {arms.dtype}")
    fine = arms.min() >= 0 and arms.max() < case.bandit.n_arms
    expect(fine, f"{where} must play arms in 0..{case.bandit.n_arms - 1}, got {arms.min()} to {arms.max()}")


def _is_configuration(case: _Course) -> None:
    learner = case.learner
    parameters = getattr(type(learner), "__dataclass_params__", None)
    expect(parameters is not None and parameters.frozen, "it must be a frozen dataclass: a saved run holds its fields")
    fields = {field.name for field in dataclasses.fields(learner)}  # type: ignore[arg-type]
    before = repr(learner)
    learn(_Recorder(case.bandit, case.horizon), learner, n_sessions=case.n_sessions, rng=_SEED)
    expect(repr(learner) == before, f"learning changed it from {before} to {learner!r}")
    more = sorted(vars(learner).keys() - fields)
    expect(not more, f"learning left {more} on it, which are none of its fields")


def _asks_for_what_can_be_played(case: _Course) -> None:
    assert case.made


def _budget(case: _Course) -> None:
    _, rounds, learned = case.made
    spent = sum(map(len, rounds))
    expect(spent in (0, case.n_sessions), f"of a budget of {case.n_sessions} sessions it played {spent}")
    expect(learned.sessions_used == spent, f"it played {spent} sessions and reports {learned.sessions_used}")


def _diagnostics(case: _Course) -> None:
    asked, rounds, learned = case.made
    names = [phase.name for phase in learned.diagnostics]
    expect(len(set(names)) == len(names), f"phases must have different names, got {names}")
    phases = {phase.name: phase for phase in learned.diagnostics}
    for name in dict.fromkeys(exploration.phase for exploration in asked):
        expect(name in phases, f"it explored for {name!r}, which is not among its phases {names}")
        parts = [sessions for plan, sessions in zip(asked, rounds, strict=True) if plan.phase == name]
        seen = phases[name].n_sessions, phases[name].n_rounds
        true = sum(map(len, parts)), len(parts)
        expect(seen == true, f"phase {name!r} reports {seen} sessions and rounds, it played {true}")
        earned, reported = sum(float(part.rewards.sum()) for part in parts), phases[name].reward
        expect(np.isclose(earned, reported), f"phase {name!r} reports a reward of {reported}, it earned {earned}")
    total = sum(phase.n_sessions for phase in learned.diagnostics)
    expect(total == learned.sessions_used, f"phases add up to {total} sessions, it reports {learned.sessions_used}")
    expect(all(phase.seconds >= 0 for phase in learned.diagnostics), "phases must take 0 seconds or more")


def _policy_fits(case: _Course) -> None:
    learned = case.made[2]
    check_fits(learned.policy, case.bandit, case.horizon)
    simulate(case.bandit, learned.policy, n_sessions=50, horizon=case.horizon, rng=0)
    if learned.bandit is not None:
        n_arms = learned.bandit.n_arms
        expect(n_arms == case.bandit.n_arms, f"the learned bandit has {n_arms} arms, not {case.bandit.n_arms}")
    if learned.plan is not None:
        steps = learned.plan.horizon
        expect(steps == case.horizon, f"the plan is for {steps} steps, the environment has {case.horizon}")


def _policy_keeps_laws(case: _Course) -> None:
    check_policy(case.made[2].policy, case.bandit)


def _same_seed(case: _Course) -> None:
    again = learn(_Recorder(case.bandit, case.horizon), case.learner, n_sessions=case.n_sessions, rng=_SEED)
    _expect_same(case.made[2], again, "a second time with the same seed")


def _expect_same(first: Learned, second: Learned, when: str) -> None:
    """Expect the same bits, except for the times."""
    expect(same_record(first.policy.record(), second.policy.record()), f"{when} it learned another policy")
    expect(first.bandit == second.bandit, f"{when} it learned another bandit")
    mine, theirs = (
        [(phase.name, phase.n_sessions, phase.n_rounds, phase.reward) for phase in learned.diagnostics]
        for learned in (first, second)
    )
    expect(mine == theirs, f"{when} its phases are {theirs}, before they were {mine}")


def _in_parts(case: _Course) -> None:
    run = case.new_run()
    for exploration, sessions in zip(*case.made[:2], strict=True):
        same = repr(run.ask()) == repr(exploration)
        expect(same, f"told the same sessions it asks for {run.ask()}, not {exploration}")
        for part in _parts(sessions):
            run.tell(part)
    expect(run.finished, "told the same sessions in parts it is not finished")
    _expect_same(case.made[2], run.learned, "told the same sessions in parts")


def _parts(sessions: Sessions) -> list[Sessions]:
    cut = len(sessions) // 3 + 1
    return [sessions] if len(sessions) == 1 else [sessions[:cut], sessions[cut:]]


def _saved(case: _Course) -> None:
    run = case.new_run()
    parts = [part for sessions in case.made[1] for part in _parts(sessions)]
    every = max(1, len(parts) // _SAVES)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.lmab"
        for number, part in enumerate(parts):
            if number % every == 0:
                run = _resumed(run, path, case)
            run.tell(part)
        run = _resumed(run, path, case)
    expect(run.finished, "saved, loaded and told the same sessions it is not finished")
    _expect_same(case.made[2], run.learned, "saved and loaded on its way")


def _resumed(run: Run, path: Path, case: _Course) -> Run:
    run.save(path)
    again = load(path)
    expect(repr(again) == repr(run), f"saved as {run!r}, loaded as {again!r}")
    expect(again.learner == run.learner, f"the loaded run has the learner {again.learner!r}, not {run.learner!r}")
    return again


def _early_errors(case: _Course) -> None:
    for options in (
        {"horizon": 1},
        {"horizon": 2, "n_sessions": 40},
        {"n_sessions": 1},
        {"n_sessions": 3},
        {"rewards": "gaussian", "n_sessions": 40},
    ):
        told = ", ".join(f"{name}={value!r}" for name, value in options.items())
        try:
            run = case.new_run(**options)
        except ValueError as error:
            expect(str(error), f"with {told} it must say why not")
            continue
        bandit = case.bandit
        if run.task.rewards == "gaussian":
            bandit = LatentBandit.gaussian(bandit.weights, bandit.means, scale=0.5)
        environment = Simulator(bandit, horizon=run.task.horizon, rng=_PLAYED)
        try:
            while not run.finished:
                run.tell(run.ask().on(environment))
        except Exception as error:
            seen = f"{type(error).__name__}: {first_line(error)}"
            when = f"after {environment.sessions_used} sessions were played"
            raise Broken(f"with {told} it raised {when}, {seen}; that must be said before the first") from error
        used = environment.sessions_used
        expect(used in (0, run.task.n_sessions), f"with {told} it played {used} sessions")


LAWS: dict[str, Law[_Course]] = {
    "explorations can be played": _asks_for_what_can_be_played,
    "a learner is configuration and never changes": _is_configuration,
    "exactly the budget is played, or nothing": _budget,
    "diagnostics add up": _diagnostics,
    "the policy fits the environment": _policy_fits,
    "the policy keeps the laws of policies": _policy_keeps_laws,
    "the same seed gives the same result": _same_seed,
    "sessions told in parts give the same result": _in_parts,
    "a saved and loaded run gives the same result": _saved,
    "errors come before anything is played": _early_errors,
}
