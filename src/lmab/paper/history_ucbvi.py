"""HistoryUCBVI: optimistic learning in which every history is a state, for small sizes only."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import files
from .._shapes import Array, Bool, Float, Integer
from ..checks import POSITIVE, check_array, check_count, check_fields
from ..data.sessions import Sessions
from ..errors import InvalidArgument, LmabWarning, TooLarge
from ..learning.learner import Campaign, Course, Exploration, Learner, Task
from ..model.categorical import Categorical
from ..policies.policy import Policy, State, best_allowed

LIMIT = 4_000_000  # continued histories (history, arm, value) that are counted


class HistoryPolicy(Policy):
    """Policy that plays the best arm after every sequence of (arm, reward), from a table of all sequences.

    With `nearest` it takes a reward that is none of the values for the nearest of them; else it refuses it.

    Examples:
        >>> import numpy as np
        >>> policy = HistoryPolicy([0.0, 1.0], [np.array([[1.0, 0.0]]), np.eye(4)[:, :2]])
        >>> policy.act_on([]), policy.act_on([(0, 1.0)])
        (0, 1)
    """

    kind = "history"
    order_free = False

    def __init__(self, values: Any, scores: Sequence[Float[Array, "K A"]], *, nearest: bool = False) -> None:
        self.nearest = nearest
        self.values = check_array("values", values, ndim=1)
        self.horizon = check_count("the number of scores", len(scores))
        self.n_arms = scores[0].shape[1]
        self.n_codes = self.n_arms * len(self.values)
        self._codes = _codec(self.n_arms, self.values, nearest).codes
        for step, table in enumerate(scores):  # row: the codes so far as digits of a number, the first one leading
            if table.shape != (self.n_codes**step, self.n_arms):
                raise InvalidArgument(f"scores[{step}] must have {self.n_codes**step} rows, got shape {table.shape}")
        self.scores = tuple(scores)

    def _initial_memory(self) -> Float[Array, "1"]:
        return np.zeros(1)  # the row of the history so far

    def _remember(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n 1"]:
        return state.memory * self.n_codes + self._codes(arms, rewards)[:, None]

    def _pass(self, state: State, arms: Integer[Array, "n"]) -> Float[Array, "n 1"]:
        raise InvalidArgument("reward must be known at every step, because HistoryPolicy plays by the whole sequence")

    def _skip(self, state: State) -> Float[Array, "n 1"]:
        raise InvalidArgument("arm must be known at every step, because HistoryPolicy plays by the whole sequence")

    def _learn(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n 1"]:
        raise InvalidArgument("reward must not be late, because HistoryPolicy plays by the whole sequence, in order")

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        return best_allowed(self.scores[state.step][state.memory[:, 0].astype(np.int64)], allowed)

    def record(self) -> files.Record:
        tables = {f"scores-{step}": table for step, table in enumerate(self.scores)}
        fields = {"horizon": self.horizon, **({"nearest": True} if self.nearest else {})}
        return files.Record(self.kind, fields, {"values": self.values, **tables})

    @classmethod
    def from_record(cls, record: files.Record) -> HistoryPolicy:
        tables = [record.arrays[f"scores-{step}"] for step in range(record.fields["horizon"])]
        return cls(record.arrays["values"], tables, nearest=record.fields.get("nearest", False))


@dataclass(frozen=True)
class HistoryUCBVI(Learner):
    """UCBVI (Azar et al., 2017) on the Markov decision process of histories, (AZ)^H of them (section 1 of the paper).

    It needs no number of types and no assumption, but it refuses problems with too many histories. Rewards are 0 and
    1 unless `learn` is given the `values`. Another reward counts as the nearest of them, and a warning says how often:
    a run that ended at a rare reward would lose its sessions. A round has `growth` times as many sessions as were
    played before it.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]])
        >>> environment = lmab.Simulator(bandit, horizon=3, rng=rng)
        >>> learned = lmab.learn(environment, lmab.learning.HistoryUCBVI(), n_sessions=5000, rng=rng)
        >>> round(lmab.evaluate(learned.policy, bandit, horizon=3).mean, 2)
        2.14
    """

    growth: float = 0.05
    bonus: float = 0.1  # width of the bonus, as a part of the width in the proof

    def __post_init__(self) -> None:
        check_fields(self, {"growth": POSITIVE, "bonus": POSITIVE})

    def campaign(self, task: Task, *, rng: np.random.Generator) -> Campaign:
        tree = _Tree.for_task(task)
        course, optimism = Course(), tree.scores(self.bonus, task.n_sessions)
        played = unknown = 0
        while played < task.n_sessions:
            policy = HistoryPolicy(tree.values, [table.copy() for table in optimism], nearest=True)
            n = min(max(1, int(self.growth * played)), task.n_sessions - played)
            sessions = yield from course.explore(Exploration.of_policy("explore", policy, n))
            tree.renew(optimism, tree.count(sessions), self.bonus, task.n_sessions)
            unknown += int((~np.isin(sessions.rewards, tree.values)).sum())
            played += len(sessions)
        if unknown:
            message = (
                f"{unknown} rewards are none of the values {tree.values.tolist()} and count as the nearest of them"
            )
            warnings.warn(f"{message}: give `learn` all values that may be paid", LmabWarning, stacklevel=2)
        policy = HistoryPolicy(tree.values, tree.scores(None, task.n_sessions))
        course.note("counts", histories=tree.n_histories, visited=tree.n_visited)
        return course.learned(policy, None)


@dataclass(frozen=True, eq=False)
class _Tree:
    """Counts of how often each (arm, value) followed each history."""

    n_arms: int
    values: Float[Array, "Z"]
    counts: tuple[Float[Array, "C"], ...]  # one per step, updated in place: (AZ)^(t+1) sequences of t + 1 codes

    @classmethod
    def for_task(cls, task: Task) -> _Tree:
        if task.rewards not in (None, "categorical"):
            raise InvalidArgument(f"rewards must be categorical: HistoryUCBVI counts histories, got {task.rewards!r}")
        values = np.array((0.0, 1.0) if task.values is None else task.values)
        sizes = [(task.n_arms * len(values)) ** (step + 1) for step in range(task.horizon)]
        if sum(sizes) > LIMIT:
            raise TooLarge(
                f"HistoryUCBVI would count {sum(sizes):.3g} histories of up to {task.horizon} steps with {task.n_arms} "
                f"arms and {len(values)} values, more than {LIMIT}: use DirectMLE"
            )
        return cls(task.n_arms, values, tuple(np.zeros(size) for size in sizes))

    @property
    def n_histories(self) -> int:
        return sum(map(len, self.counts))

    @property
    def n_visited(self) -> int:
        return sum(int(np.count_nonzero(level)) for level in self.counts)

    def count(self, sessions: Sessions) -> list[Integer[Array, "k"]]:
        """Count the outcomes after each history, and return the histories of each length that it followed."""
        arms, rewards = sessions.to_arrays()
        played = arms >= 0
        codes = np.zeros(arms.shape, np.int64)
        codes[played] = _codec(self.n_arms, self.values, nearest=True).codes(arms[played], rewards[played])
        rows, followed = np.zeros(len(arms), np.int64), []
        for step in range(arms.shape[1]):
            followed.append(np.unique(rows[played[:, step]]))
            rows = rows * (self.n_arms * len(self.values)) + codes[:, step]
            np.add.at(self.counts[step], rows[played[:, step]], 1)
        return followed

    def scores(self, bonus: float | None, n_sessions: int) -> list[Float[Array, "K A"]]:
        """Return the value of every arm after every history: optimistic, or pessimistic without a bonus."""
        sizes = [len(level) // (self.n_arms * len(self.values)) for level in self.counts]
        tables = [np.empty((size, self.n_arms)) for size in sizes]
        self.renew(tables, [np.arange(size) for size in sizes], bonus, n_sessions)
        return tables

    def renew(
        self, tables: list[Float[Array, "K A"]], rows: Sequence[Integer[Array, "k"]], bonus: float | None,
        n_sessions: int,
    ) -> None:  # fmt: skip
        """Put the values of these histories into the tables: after a session only the histories on its way change."""
        horizon, spread = len(self.counts), float(np.ptp(self.values))
        width, shape = np.log(2 * self.n_histories * n_sessions), (-1, self.n_arms, len(self.values))
        for step in reversed(range(len(rows))):
            here, left = rows[step], horizon - step
            seen = self.counts[step].reshape(shape)[here]
            visits = seen.sum(axis=2)
            earned = self.values
            if left > 1:
                next_histories = here[:, None] * (self.n_arms * len(self.values)) + np.arange(seen[0].size)
                earned = earned + tables[step + 1][next_histories].max(axis=2).reshape(seen.shape)
            value = (seen * earned).sum(axis=2) / np.maximum(visits, 1)
            if bonus is None:
                value[visits == 0] = left * self.values.min()
            else:
                value += bonus * left * spread * np.sqrt(width / np.maximum(visits, 1))
                value = np.where(visits == 0, left * self.values.max(), np.minimum(value, left * self.values.max()))
            tables[step][here] = value


def _codec(n_arms: int, values: Float[Array, "Z"], nearest: bool = False) -> Categorical:
    """Return a reward family that is used only to number (arm, value) pairs; its probabilities mean nothing."""
    edges = (values[1:] + values[:-1]) / 2 if nearest and len(values) > 1 else None
    return Categorical(np.full((1, n_arms, len(values)), 1 / len(values)), values, edges)
