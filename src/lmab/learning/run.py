"""Run: one learner at work, asked and told, saved and resumed; and `learn`, the loop around it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .. import files
from ..checks import Rng, check_rng
from ..data import Episodes
from ..errors import InvalidArgument
from ..planning import Planner
from ..records import encode
from ..simulation import Environment
from .exploration import Exploration
from .learner import CERTIFIED, Learner, Task
from .result import Learned


class Run:
    """A learner at work in batches: `ask` what to play, have it played by whatever is live, `tell` the episodes.

    A run is its learner, its task, a seed and the episodes told so far. That is what a file holds; loading it goes
    through the same course again, to the same bits.

    Args:
        learner: who learns.
        task: what it is told; or give the fields of the `Task` (`n_arms`, `horizon`, `n_episodes` and so on) by name.
        rng: the learner's own randomness.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> live = lmab.Simulator(lmab.random_bandit(2, 5, rng=rng), horizon=4, rng=rng)
        >>> run = lmab.Run(lmab.DirectMLE(2), n_arms=5, horizon=4, n_episodes=1000, rng=rng)
        >>> run.ask()
        Exploration(explore: 1000 episodes, Uniform)
        >>> run.tell(live.run(run.ask().policy, 600))  # as many as there are by now
        >>> run.ask()
        Exploration(explore: 400 episodes, Uniform)
        >>> run.tell(run.ask().on(live))
        >>> run.finished, run.learned.episodes_used
        (True, 1000)
    """

    def __init__(self, learner: Learner, task: Task | None = None, *, rng: Rng, **settings: Any) -> None:
        if not isinstance(learner, Learner):
            raise InvalidArgument(f"learner must be a Learner such as DirectMLE(4), got {learner!r}")
        if task is not None and settings:
            raise InvalidArgument(f"task must be given alone, got {', '.join(settings)} beside it")
        task = Task(**settings) if task is None else task
        rng = check_rng(rng, "a learner explores at random")
        self._begin(learner, task, int(rng.integers(2**63)))

    def _begin(self, learner: Learner, task: Task, seed: int) -> None:
        self.learner, self.task, self.seed = learner, task, seed
        self._rounds: list[Episodes] = []  # of the explorations that are complete
        self._told: Episodes | None = None  # of the present one
        self._learned: Learned | None = None
        self._campaign = learner.campaign(task, rng=np.random.default_rng(seed))
        self._advance(None)

    @classmethod
    def resume(cls, learner: Learner, task: Task, seed: int, told: Sequence[Episodes]) -> Run:
        """A run in the state that it had after being told these episodes."""
        run = cls.__new__(cls)
        run._begin(learner, task, seed)
        for episodes in told:
            run.tell(episodes)
        return run

    @property
    def finished(self) -> bool:
        """Nothing is left to ask: `learned` is there."""
        return self._learned is not None

    @property
    def learned(self) -> Learned:
        """What was learned."""
        if self._learned is None:
            raise InvalidArgument(f"the run must be finished first, but {self.ask()} is still to be played")
        return self._learned

    @property
    def episodes_used(self) -> int:
        """Episodes told so far."""
        return sum(map(len, self._rounds)) + (0 if self._told is None else len(self._told))

    def ask(self) -> Exploration:
        """What is to be played next; the same until enough is told."""
        if self._learned is not None:
            raise InvalidArgument("the run must not be finished yet: nothing is left to be played")
        return self._plan if self._told is None else self._plan.after(len(self._told))

    def tell(self, episodes: Episodes) -> None:
        """What was played, all that was asked or a part; when all is there, the learner goes on.

        That is when it computes: the last call may take as long as the fit and the plan do.
        """
        plan = self.ask()
        if episodes.n_arms != self.task.n_arms:
            raise InvalidArgument(f"episodes must have {self.task.n_arms} arms, got {episodes.n_arms}")
        if episodes.horizon > self.task.horizon:
            raise InvalidArgument(f"episodes must have at most {self.task.horizon} steps, got {episodes.horizon}")
        if len(episodes) > plan.n_episodes:
            raise InvalidArgument(f"episodes must be at most the {plan.n_episodes} asked for, got {len(episodes)}")
        episodes = replace(episodes, propensities=None)  # no learner needs them, and rounds differ in having them
        told = episodes if self._told is None else self._told + episodes
        if len(told) < self._plan.n_episodes:
            self._told = told
            return
        self._rounds.append(told)
        self._told = None
        self._advance(told)

    def _advance(self, told: Episodes | None) -> None:
        try:
            self._plan = next(self._campaign) if told is None else self._campaign.send(told)
        except StopIteration as end:
            self._learned = end.value

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to `path`; `lmab.load` gives a run in the same state."""
        files.write(path, self.record())

    def record(self) -> files.Record:
        rounds = [*self._rounds, *([] if self._told is None else [self._told])]
        nested = {f"round-{index}": _episodes_record(episodes) for index, episodes in enumerate(rounds)}
        fields = {"seed": self.seed, "n_rounds": len(self._rounds), "partial": self._told is not None}
        return files.Record(
            "run", fields, records={"learner": encode(self.learner), "task": encode(self.task), **nested}
        )

    def __repr__(self) -> str:
        return f"Run({self.learner!r}: {'finished' if self.finished else self.ask()}, {self.episodes_used} episodes)"


def learn(
    environment: Environment,
    learner: Learner,
    *,
    n_episodes: int,
    rng: Rng,
    planner: Planner = CERTIFIED,
    time_limit: float = 60.0,
    rewards: str | None = None,
    values: Sequence[float] | None = None,
    progress: Callable[[Run], None] | None = None,
) -> Learned:
    """Play `environment` for `n_episodes` episodes and return the policy that `learner` makes of it.

    Args:
        environment: what can be played; a `Simulator`, or a live system with the same names.
        learner: `DirectMLE(n_contexts)` unless there is a reason for another.
        n_episodes: the budget; exactly as many are played (none by `Genie`).
        rng: the learner's own randomness; the environment has its own.
        planner: how to plan on the learned model, as in `plan`.
        time_limit: seconds for planning.
        rewards: as in `estimate`.
        values: the reward values, where some may be too rare to be seen while learning.
        progress: called with the `Run` after each round.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.random_bandit(3, 10, rng=rng)
        >>> environment = lmab.Simulator(bandit, horizon=5, rng=rng)
        >>> learned = lmab.learn(environment, lmab.DirectMLE(3), n_episodes=5000, rng=rng)
        >>> genie = lmab.learn(environment, lmab.Genie(bandit), n_episodes=5000, rng=rng)
        >>> value = lmab.evaluate(learned.policy, bandit, horizon=5).mean
        >>> value > 0.97 * lmab.evaluate(genie.policy, bandit, horizon=5).mean
        True
    """
    task = Task(environment.n_arms, environment.horizon, n_episodes, planner, time_limit, rewards, values)
    run = Run(learner, task, rng=rng)
    while not run.finished:
        run.tell(run.ask().on(environment))
        if progress is not None:
            progress(run)
    return run.learned


def _episodes_record(episodes: Episodes) -> files.Record:
    arrays = {"actions": episodes.actions, "rewards": episodes.rewards, "offsets": episodes.offsets}
    labels: Any = None if episodes.arm_labels is None else list(episodes.arm_labels)
    return files.Record("episodes", {"n_arms": episodes.n_arms, "arm_labels": labels}, arrays)


def episodes_from(record: files.Record) -> Episodes:
    """The episodes that a run's record holds."""
    labels = record.fields["arm_labels"]
    arrays = record.arrays
    return Episodes(
        arrays["actions"],
        arrays["rewards"],
        arrays["offsets"],
        record.fields["n_arms"],
        arm_labels=None if labels is None else tuple(labels),
    )
