"""check_learner catches: for every law a learner that breaks that law alone, and the message names it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from policies import always
from test_testing_policies import Chatty

import lmab
from lmab import Uniform, files
from lmab.errors import InvalidArgument, InvalidFile
from lmab.learning.learner import Course, Exploration, Learner, Phase
from lmab.paper.learner_checks import LAWS, check_learner
from lmab.planning.plan import Planner
from lmab.testing.report import BrokenLaw

FAST = {"n_sessions": 60}


@dataclass(frozen=True)
class Right(Learner):
    """Plays at random in two rounds, then the arm that paid most."""

    def campaign(self, task, *, rng):
        course = Course()
        sums, counts = np.zeros(task.n_arms), np.zeros(task.n_arms)
        for n in (task.n_sessions // 2, task.n_sessions - task.n_sessions // 2):
            if n:
                sessions = yield from course.explore(self.exploration(task, n))
                sums += np.bincount(sessions.arms, sessions.rewards, minlength=task.n_arms)
                counts += np.bincount(sessions.arms, minlength=task.n_arms)
        return self.end(task, course, int((sums / np.maximum(counts, 1)).argmax()))

    def exploration(self, task, n):
        return Exploration.of_policy("explore", Uniform(task.n_arms), n)

    def end(self, task, course, arm):
        return course.learned(always(arm, task.n_arms, horizon=task.horizon), None)


class NotFrozen(Learner):
    campaign, exploration, end = Right.campaign, Right.exploration, Right.end


@dataclass(frozen=True)
class Hoards(Right):
    def end(self, task, course, arm):
        object.__setattr__(self, "arm", arm)
        return super().end(task, course, arm)


@dataclass(frozen=True)
class WrongArms(Right):
    def exploration(self, task, n):
        return Exploration.of_arms("explore", np.full((n, task.horizon), task.n_arms))


@dataclass(frozen=True)
class WrongCount(Right):
    def exploration(self, task, n):
        return replace(Exploration.of_arms("explore", np.zeros((n, task.horizon), int)), n_sessions=n + 1)


@dataclass(frozen=True)
class TooLong(Right):
    def exploration(self, task, n):
        return Exploration.of_arms("explore", np.zeros((n, task.horizon + 1), int))


@dataclass(frozen=True)
class Both(Right):
    def exploration(self, task, n):
        return replace(super().exploration(task, n), arms=np.zeros((n, task.horizon), int))


@dataclass(frozen=True)
class Nameless(Right):
    def exploration(self, task, n):
        return replace(super().exploration(task, n), phase="")


@dataclass(frozen=True)
class AnotherSize(Right):
    def exploration(self, task, n):
        return Exploration.of_policy("explore", Uniform(task.n_arms + 1), n)


@dataclass(frozen=True)
class Thrifty(Right):
    def exploration(self, task, n):
        return super().exploration(task, max(n // 2, 1))


@dataclass(frozen=True)
class Greedy(Right):
    def exploration(self, task, n):
        return super().exploration(task, 2 * n)


@dataclass(frozen=True)
class Boasts(Right):
    def end(self, task, course, arm):
        return replace(super().end(task, course, arm), sessions_used=10)


@dataclass(frozen=True)
class CooksTheBooks(Right):
    def end(self, task, course, arm):
        learned = super().end(task, course, arm)
        phases = tuple(replace(phase, reward=phase.reward + 1) for phase in learned.diagnostics)
        return replace(learned, diagnostics=phases)


@dataclass(frozen=True)
class KeepsNoBooks(Right):
    def end(self, task, course, arm):
        return replace(super().end(task, course, arm), diagnostics=(Phase("other", n_sessions=60),))


@dataclass(frozen=True)
class ShortPolicy(Right):
    def end(self, task, course, arm):
        return course.learned(always(arm, task.n_arms, horizon=task.horizon - 1), None)


@dataclass(frozen=True)
class OtherBandit(Right):
    def end(self, task, course, arm):
        bandit = lmab.LatentBandit.bernoulli([1.0], [[0.5]])
        return course.learned(always(arm, task.n_arms, horizon=task.horizon), bandit)


@dataclass(frozen=True)
class BadPolicy(Right):
    def end(self, task, course, arm):
        bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], np.linspace(0.1, 0.9, 2 * task.n_arms).reshape(2, -1))
        return course.learned(Chatty(bandit, horizon=task.horizon), bandit)


CAMPAIGNS = []


@dataclass(frozen=True)
class Moody(Right):
    """Every course ends with the next arm."""

    def end(self, task, course, arm):
        CAMPAIGNS.append(arm)
        return super().end(task, course, len(CAMPAIGNS) % task.n_arms)


FOUR = []


@dataclass(frozen=True)
class FourthTimeOther(Right):
    """The first three courses agree: the reference, that of the second law, and that of the same seed."""

    def end(self, task, course, arm):
        FOUR.append(arm)
        return super().end(task, course, arm if len(FOUR) < 4 else (arm + 1) % task.n_arms)


@dataclass(frozen=True)
class NotSaved(Right):
    """A list comes back from the file as a tuple."""

    arms: Any = field(default_factory=lambda: [1, 2])


@dataclass(frozen=True)
class LateError(Right):
    def end(self, task, course, arm):
        if task.horizon < 2:
            raise InvalidArgument(f"horizon must be at least 2, got {task.horizon}")
        return super().end(task, course, arm)


BROKEN: dict[str, list[tuple[Learner, str]]] = {
    "a learner is configuration and never changes": [
        (NotFrozen(), "it must be a frozen dataclass"),
        (Hoards(), r"learning left \['arm'\] on it"),
    ],
    "explorations can be played": [
        (WrongArms(), "exploration 1 must play arms in 0..3, got 4 to 4"),
        (WrongCount(), "exploration 1 is for 31 sessions, got 30 rows"),
        (TooLong(), r"integer arms of up to 4 columns, got \(30, 5\)"),
        (Both(), "must have either a policy or arms"),
        (Nameless(), "must name its phase, got ''"),
        (AnotherSize(), "policy must be for 4 arms, got one for 5"),
        (Greedy(), "it asked for 120 sessions, the budget is 60"),
    ],
    "exactly the budget is played, or nothing": [
        (Thrifty(), "of a budget of 60 sessions it played 30"),
        (Boasts(), "it played 60 sessions and reports 10"),
    ],
    "diagnostics add up": [
        (CooksTheBooks(), r"phase 'explore' reports a reward of \d+.0, it earned \d+.0"),
        (KeepsNoBooks(), r"it explored for 'explore', which is not among its phases \['other'\]"),
    ],
    "the policy fits the environment": [
        (ShortPolicy(), "horizon must be at most the policy's 3, got 4"),
        (OtherBandit(), "the learned bandit has 1 arms, not 4"),
    ],
    "the policy keeps the laws of policies": [(BadPolicy(), "Chatty breaks the law 'the repr is short'")],
    "the same seed gives the same result": [(Moody(), "a second time with the same seed it learned another policy")],
    "sessions told in parts give the same result": [
        (FourthTimeOther(), "told the same sessions in parts it learned another policy")
    ],
    "a saved and loaded run gives the same result": [(NotSaved(), r"loaded as Run\(NotSaved\(arms=\(1, 2\)\)")],
    "errors come before anything is played": [
        (LateError(), "with horizon=1 it raised after 60 sessions were played, InvalidArgument: horizon must be")
    ],
}


def test_every_law_is_broken_by_something():
    assert BROKEN.keys() == LAWS.keys()


@pytest.mark.parametrize(
    ("law", "learner", "seen"),
    [(law, *case) for law, cases in BROKEN.items() for case in cases],
    ids=lambda value: type(value).__name__ if isinstance(value, Learner) else "",
)
def test_a_broken_law_is_named_with_what_was_seen(law, learner, seen):
    with pytest.raises(BrokenLaw) as caught:
        check_learner(learner, **FAST)
    assert str(caught.value).startswith(f"{type(learner).__name__} breaks ")
    message = caught.value.laws[law]  # others may be broken as well
    assert message in str(caught.value)
    assert re.search(seen, message) or seen in message, message


def test_a_good_learner_passes():
    assert check_learner(Right(), **FAST).kept == tuple(LAWS)


def test_the_learner_plays_the_bandit_that_is_given():
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0, 0.3], [0.0, 1.0, 0.3]])
    check_learner(Right(), bandit=bandit, horizon=3, **FAST)
    with pytest.raises(BrokenLaw, match="it raised InvalidArgument: bandit must have the environment's 4 arms, got 3"):
        check_learner(lmab.learning.Genie(bandit))


# files of one's own classes


@dataclass(frozen=True)
class OwnPlanner(Planner):
    share: float

    def solve(self, problem, clock):
        return lmab.QMDP().solve(problem, clock)

    def solve_without_repeats(self, problem, clock):
        return lmab.QMDP().solve_without_repeats(problem, clock)


def test_a_run_of_ones_own_classes_is_loaded(tmp_path):
    run = lmab.learning.Run(Right(), n_arms=4, horizon=3, n_sessions=20, rng=0, planner=OwnPlanner(0.5))
    run.save(tmp_path / "run.lmab")
    again = lmab.load(tmp_path / "run.lmab")
    assert (again.learner, again.task) == (run.learner, run.task)


def test_classes_that_are_not_there_are_named(tmp_path):
    gone = dataclass(frozen=True)(type("Gone", (Right,), {}))
    lmab.learning.Run(gone(), n_arms=4, horizon=3, n_sessions=20, rng=0).save(tmp_path / "run.lmab")
    assert type(lmab.load(tmp_path / "run.lmab").learner) is gone
    gone.__name__ = "Renamed"
    with pytest.raises(InvalidFile, match="'Gone', which this lmab does not know"):
        lmab.load(tmp_path / "run.lmab")


def test_a_policy_of_ones_own_is_loaded(tmp_path):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
    Chatty(bandit).save(tmp_path / "policy.lmab")
    assert type(lmab.load(tmp_path / "policy.lmab")) is Chatty
    files.write(tmp_path / "policy.lmab", replace(Chatty(bandit).record(), kind="nobody's"))
    with pytest.raises(InvalidFile, match='holds a "nobody\'s", which this lmab does not know'):
        lmab.load(tmp_path / "policy.lmab")
