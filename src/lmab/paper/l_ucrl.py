"""LUCRL: a spectral start, then optimistic play on soft counts, as published or refitted."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import files
from .._kernel import kernel
from .._shapes import Array, Bool, Float, Integer
from ..checks import COUNT, FRACTION, POSITIVE, Count, check_array, check_fields, optional
from ..data.sessions import Sessions
from ..errors import InvalidArgument
from ..estimation.em import EM, sweep
from ..estimation.families import observe
from ..learning.learner import (
    FLOOR,
    Campaign,
    Course,
    Exploration,
    Learner,
    Task,
    check_enough,
    declared_values,
    floored,
    joined,
    lenient,
    note_estimate,
    planned_on_estimate,
    share_out,
    united_values,
)
from ..model import belief
from ..model.bandit import LatentBandit
from ..model.categorical import Categorical
from ..policies.belief_policies import BeliefPolicy, Uniform
from ..policies.policy import State, best_allowed
from ..simulation import draw_types, simulate
from .tensor_decomposition import TensorDecomposition

Play = Generator[Exploration, Sessions, LatentBandit]  # A course of plays, and the model at its end.
_SPECTRAL = EM(restarts=1, max_iterations=20, prior=1.0)  # One start, from clusters of the sessions' spectral features.
_SWEEPS = 3  # passes of EM after every round, if rounds are refitted


class OptimisticPolicy(BeliefPolicy):
    """Policy that plays the arm with the highest expected reward plus bonus under the belief.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.6, 0.4], [[0.9, 0.1], [0.2, 0.7]])
        >>> OptimisticPolicy(bandit, [[0.0, 0.9], [0.0, 0.0]]).act_on([])
        1
    """

    kind = "optimistic"

    def __init__(self, bandit: LatentBandit, bonus: Any, *, horizon: int | None = None) -> None:
        super().__init__(bandit, horizon=horizon)
        self.bonus = check_array("bonus", bonus, ndim=2)
        if self.bonus.shape != bandit.means.shape:
            raise InvalidArgument(f"bonus must have shape {bandit.means.shape}, got {self.bonus.shape}")

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        return best_allowed(state.memory @ (self.bandit.means + self.bonus), allowed)

    def record(self) -> files.Record:
        base = super().record()
        return files.Record(base.kind, base.fields, {"bonus": self.bonus}, base.records)

    @classmethod
    def from_record(cls, record: files.Record) -> OptimisticPolicy:
        bandit = LatentBandit.from_record(record.records["bandit"])
        return cls(bandit, record.arrays["bonus"], **record.fields)


@dataclass(frozen=True)
class LUCRL(Learner):
    """L-UCRL (Kwon et al., 2021, "RL for latent MDPs: regret guarantees and a lower bound"), as published or refitted.

    A part of the sessions explores uniformly for a spectral start. The others play greedily on the belief, with a bonus
    for arms that a type has seldom seen; each step counts for every type with the type's posterior probability.

    `refit=False` is the published method: every session has a policy of its own, and its posterior is taken once, when
    it was played, and added to the counts. `refit=True` is ours: rounds have `growth` times as many sessions as were
    played before, and after each round `sweeps` passes of EM take the posteriors of all sessions anew.

    Args:
        n_types: how many types.
        start: part of the sessions that explores uniformly.
        growth: the size of a refitted round, as a part of the sessions before it.
        bonus: the width of the bonus, as a part of the width in Hoeffding's inequality.
        sweeps: passes of EM over all sessions: after every round if rounds are refitted (None: 3), else once, after
            the last session (None: 0, as published).
        prior: pseudo-counts per type and arm.
        method: how the start is fitted: EM from clusters of the sessions' spectral features, or
            `TensorDecomposition()`, the paper's start, which needs sessions of at least 3 steps.
        refit: whether posteriors are taken anew.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> environment = lmab.Simulator(lmab.random_bandit(2, 5, rng=rng), horizon=4, rng=rng)
        >>> learned = lmab.learn(environment, lmab.learning.LUCRL(2), n_sessions=2000, rng=rng)
        >>> learned["optimistic"].reward / 1400 > learned["explore"].reward / 600
        True
        >>> published = lmab.learn(environment, lmab.learning.LUCRL(2, refit=False), n_sessions=500, rng=rng)
        >>> published["optimistic"].n_sessions
        350
    """

    n_types: int
    start: float = 0.3
    growth: float = 0.05
    bonus: float = 0.5
    sweeps: int | None = None
    prior: float = 1.0
    method: EM | TensorDecomposition = _SPECTRAL
    refit: bool = True

    def __post_init__(self) -> None:
        numbers = {"start": FRACTION, "growth": POSITIVE, "bonus": POSITIVE, "prior": POSITIVE}
        check_fields(self, {"n_types": COUNT, "sweeps": optional(Count(1 if self.refit else 0)), **numbers})

    def campaign(self, task: Task, *, rng: np.random.Generator) -> Campaign:
        if task.horizon < 3 and isinstance(self.method, TensorDecomposition):
            raise InvalidArgument(f"horizon must be at least 3 for third moments, got {task.horizon}")
        n_start, _ = share_out(task.n_sessions, self.start)
        check_enough(task, n_start, self.n_types)
        course = Course()
        uniform = Uniform(task.n_arms, horizon=task.horizon)
        sessions = yield from course.explore(Exploration.of_policy("explore", uniform, n_start))
        observations = observe(sessions, rewards=task.rewards, values=declared_values(task, sessions))
        fit = self.method.fit(observations, n_types=self.n_types, rng=rng)
        note_estimate(course, "start", fit)
        play = self._refitted if self.refit else self._published
        bandit = yield from play(task, sessions, fit.bandit, course)
        return planned_on_estimate(task, bandit, course)

    def _refitted(self, task: Task, sessions: Sessions, bandit: LatentBandit, course: Course) -> Play:
        """Play rounds of sessions; after each of them EM takes the posteriors of all sessions anew."""
        sweeps = _SWEEPS if self.sweeps is None else self.sweeps
        while True:
            bandit, counts = self._sweep(task, sessions, bandit, sweeps, course)
            n = min(max(1, int(self.growth * len(sessions))), task.n_sessions - len(sessions))
            if n == 0:
                return bandit
            bonus = self._bonus(bandit, counts, task.n_sessions)
            policy = OptimisticPolicy(lenient(bandit), bonus, horizon=task.horizon)
            sessions += yield from course.explore(Exploration.of_policy("optimistic", policy, n))

    def _published(self, task: Task, sessions: Sessions, bandit: LatentBandit, course: Course) -> Play:
        """Play one policy per session; take its posterior under the model that played it once."""
        rule = OptimisticRule(self, task, SoftCounts.of(floored(bandit, united_values(task, sessions)), sessions))
        played, left = [sessions], task.n_sessions - len(sessions)
        while left:
            exploration = Exploration.of_rule("optimistic", rule, rule.policy(), left)
            played.append((yield from course.explore(exploration)))
            rule.add(played[-1])
            left -= len(played[-1])
        course.note("soft counts", least=float(rule.counts.plays.min()))
        bandit = rule.counts.bandit(self.prior)
        return self._sweep(task, joined(played), bandit, self.sweeps, course)[0] if self.sweeps else bandit

    def _sweep(
        self, task: Task, sessions: Sessions, bandit: LatentBandit, sweeps: int, course: Course
    ) -> tuple[LatentBandit, Float[Array, "M A"]]:
        """Return the model after `sweeps` passes of EM over all sessions, and how often each type saw each arm."""
        values = united_values(task, sessions)
        bandit = self._knowing(task, bandit, sessions)
        bandit, log_likelihood = sweep(bandit, sessions, sweeps=sweeps, prior=self.prior, values=values)
        bandit = floored(bandit)
        counts = SoftCounts.of(bandit, sessions).plays
        course.note("soft counts", log_likelihood=log_likelihood, least=float(counts.min()))
        return bandit, counts

    def _knowing(self, task: Task, bandit: LatentBandit, sessions: Sessions) -> LatentBandit:
        """Return the bandit, with room for values that the sessions paid and no session before them."""
        known, values = bandit.rewards.values, united_values(task, sessions)
        if known is None or values is None or np.isin(values, known).all():
            return bandit
        return floored(bandit, values)

    def _bonus(self, bandit: LatentBandit, counts: Float[Array, "M A"], n_sessions: int) -> Float[Array, "M A"]:
        rewards = bandit.rewards
        width = self._width(counts.size, n_sessions) / np.sqrt(np.maximum(counts, 1))
        return np.minimum(width * rewards.spread, rewards.support[1] - rewards.means)

    def _width(self, n_cells: int, n_sessions: int) -> float:
        """Return the bonus of an arm that a type saw once, as a part of the spread of rewards."""
        return self.bonus * float(np.sqrt(np.log(n_cells * n_sessions) / 2))


@dataclass(frozen=True, eq=False)
class OptimisticRule:
    """The published rule: every session is played by optimism on the soft counts of all sessions before it."""

    learner: LUCRL
    task: Task
    counts: SoftCounts

    def policy(self) -> OptimisticPolicy:
        """Return the policy of the next session."""
        bandit = self.counts.bandit(self.learner.prior)
        bonus = self.learner._bonus(bandit, self.counts.plays, self.task.n_sessions)
        return OptimisticPolicy(lenient(bandit), bonus, horizon=self.task.horizon)

    def add(self, sessions: Sessions) -> None:
        """Add sessions one after another, each with its posterior under the counts before it."""
        begin, prior = 0, self.learner.prior
        while begin < len(sessions):
            rewards, first = self.counts.start.rewards, begin
            if isinstance(rewards, Categorical):
                new = np.flatnonzero(~np.isin(sessions.rewards[sessions.offsets[begin] :], rewards.values))
                first = len(sessions)
                if len(new):  # The session with the first value that is not known yet.
                    step = sessions.offsets[begin] + new[0]
                    first = int(np.searchsorted(sessions.offsets, step, side="right")) - 1
                if first > begin:
                    self._add_known(sessions[begin:first], rewards)
            if first < len(sessions):
                one, bandit = sessions[first : first + 1], self.counts.bandit(prior)
                self.counts.add(self.learner._knowing(self.task, bandit, one), one)
            begin = first + 1

    def _add_known(self, sessions: Sessions, rewards: Categorical) -> None:
        """Add sessions without unknown values."""
        outcomes = rewards.encode(sessions.rewards).astype(np.int64)
        steps = sessions.arms.astype(np.int64), outcomes, sessions.offsets.astype(np.int64)
        counts = self.counts.sessions, self.counts.plays, self.counts.paid
        kernel("em").soft_counts(*steps, *counts, self.learner.prior, FLOOR)

    def play(self, bandit: LatentBandit, n_sessions: int, horizon: int, rng: np.random.Generator) -> Sessions:
        """Play sessions of a bandit that is simulated; the counts of this rule stay as they are."""
        copy = replace(self, counts=self.counts.copy())
        if bandit.leaving is None and isinstance(bandit.rewards, Categorical):
            return copy._play_values(bandit, bandit.rewards, n_sessions, horizon, rng)
        played = []
        for _ in range(n_sessions):
            played.append(simulate(bandit, copy.policy(), n_sessions=1, horizon=horizon, rng=rng))
            copy.add(played[-1])
        return joined(played)

    def _play_values(
        self, bandit: LatentBandit, truth: Categorical, n_sessions: int, horizon: int, rng: np.random.Generator
    ) -> Sessions:
        """Add sessions in compiled code, which returns each session with a new value."""
        types, uniforms = draw_types(bandit, n_sessions, rng), rng.random((n_sessions, horizon))
        arms, outcomes = (np.zeros((n_sessions, horizon), np.int64) for _ in range(2))
        values, done = truth.values, 0

        def played(begin: int, end: int) -> Sessions:
            paid, offsets = values[outcomes[begin:end]], np.arange(0, (end - begin) * horizon + 1, horizon)
            return Sessions(arms[begin:end].ravel(), paid.ravel(), offsets, bandit.n_arms, arm_labels=bandit.arm_labels)

        while done < n_sessions:
            counts, rewards = self.counts, lenient(self.counts.start).rewards
            assert isinstance(rewards, Categorical)
            known = np.isin(values, rewards.values)
            nearest = rewards.encode(values) if len(rewards.values) > 1 else np.zeros(len(values), np.int64)
            width = self.learner._width(counts.plays.size, self.task.n_sessions) * rewards.spread
            done += kernel("em").optimistic_plays(
                types[done:], uniforms[done:], truth.cumulative, nearest, known, rewards.values,
                counts.sessions, counts.plays, counts.paid, self.learner.prior, FLOOR, width,
                arms[done:], outcomes[done:],
            )  # fmt: skip
            if not known[outcomes[done - 1]].all():
                self.add(played(done - 1, done))
        return played(0, n_sessions)


@dataclass(eq=False)
class SoftCounts:
    """Sessions, plays and rewards of each type, every session counted with its posterior when it was added."""

    start: LatentBandit  # decides the reward family, and the scale if it has one
    sessions: Float[Array, "M"]
    plays: Float[Array, "M A"]
    paid: Float[Array, "M A Z"]  # how often each value was paid; if rewards have no values, their sum (Z = 1)

    @classmethod
    def of(cls, bandit: LatentBandit, sessions: Sessions) -> SoftCounts:
        """Return the counts of a log, with its posteriors under `bandit`."""
        n_types, n_arms = bandit.means.shape
        n_values = 1 if bandit.rewards.values is None else len(bandit.rewards.values)
        empty = cls(bandit, np.zeros(n_types), np.zeros((n_types, n_arms)), np.zeros((n_types, n_arms, n_values)))
        empty.add(bandit, sessions)
        return empty

    def copy(self) -> SoftCounts:
        """Return the same counts, to be added to apart."""
        return SoftCounts(self.start, self.sessions.copy(), self.plays.copy(), self.paid.copy())

    def add(self, bandit: LatentBandit, sessions: Sessions) -> None:
        """Add sessions with their posteriors under `bandit`, which knows all values that they paid."""
        posterior = belief.posterior(bandit, sessions)
        self.sessions += posterior.sum(axis=0)
        rewards, amounts = bandit.rewards, None
        if isinstance(rewards, Categorical):
            self._know(rewards)
            codes = rewards.codes(sessions.arms, sessions.rewards)
        else:
            codes, amounts = sessions.arms, sessions.rewards
        for type_, shares in enumerate(np.repeat(posterior, sessions.lengths, axis=0).T):
            paid = shares if amounts is None else shares * amounts
            self.plays[type_] += np.bincount(sessions.arms, shares, minlength=self.plays.shape[1])
            table = self.paid[type_]
            table += np.bincount(codes, paid, minlength=table.size).reshape(table.shape)

    def _know(self, rewards: Categorical) -> None:
        """Make room for values that were not known before."""
        before = self.start.rewards
        assert isinstance(before, Categorical)
        if len(rewards.values) > len(before.values):
            paid = np.zeros((*self.plays.shape, len(rewards.values)))
            paid[:, :, np.searchsorted(rewards.values, before.values)] = self.paid
            self.start, self.paid = replace(self.start, rewards=rewards), paid

    def bandit(self, prior: float) -> LatentBandit:
        """Return the model of the counts, with `prior` pseudo-plays per type and arm, spread evenly over the values.

        No value is less likely than `FLOOR`, as in `floored`.
        """
        weights, rewards = self.sessions / self.sessions.sum(), self.start.rewards
        if isinstance(rewards, Categorical):
            chances = np.maximum((self.paid + prior / self.paid.shape[2]) / (self.plays + prior)[:, :, None], FLOOR)
            chances /= chances.sum(axis=2, keepdims=True)
            return replace(self.start, weights=weights, rewards=replace(rewards, probabilities=chances))
        middle = self.paid.sum() / self.plays.sum()
        means = (self.paid[:, :, 0] + prior * middle) / (self.plays + prior)
        return replace(self.start, weights=weights, rewards=replace(rewards, means=means))
