"""Episodes: the steps of many short sessions in flat columns, with an offset for the beginning of each session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer
from ..checks import Rng, check_count, check_rng
from ..errors import InvalidArgument
from . import ingest, streaming
from .ingest import Options, step_numbers
from .log_files import Paths
from .sound import frozen, require_sound

_CHUNK = 1 << 20  # steps counted at once


@dataclass(frozen=True, eq=False)
class Episodes:
    """Logged or simulated sessions, which may differ in length; steps are stored in arrays, not as Python objects.

    Examples:
        >>> import lmab
        >>> episodes = lmab.Episodes.from_arrays([[0, 1], [2, -1]], [[1.0, 0.0], [1.0, 0.0]])
        >>> episodes
        Episodes(2 episodes, 3 steps, 3 arms)
        >>> episodes.actions, episodes.offsets
        (array([0, 1, 2], dtype=int32), array([0, 2, 3]))
        >>> episodes[1].rewards
        array([1.])
    """

    actions: Integer[Array, "S"]  # int32, arm of every step, sessions one after the other
    rewards: Float[Array, "S"]  # float64
    offsets: Integer[Array, "N1"]  # int64, N + 1 entries: session k holds the steps offsets[k] to offsets[k + 1]
    n_arms: int
    propensities: Float[Array, "S"] | None = None  # probability with which the logging policy chose the arm
    arm_labels: tuple[str | int, ...] | None = None  # what the arms are called; None: their numbers

    def __post_init__(self) -> None:
        for name, dtype in (("actions", np.int32), ("rewards", np.float64), ("offsets", np.int64)):
            object.__setattr__(self, name, frozen(getattr(self, name), dtype))
        if self.propensities is not None:
            object.__setattr__(self, "propensities", frozen(self.propensities, np.float64))
        require_sound(self.actions, self.rewards, self.offsets, self.n_arms, self.propensities, self.arm_labels)

    @classmethod
    def from_arrays(
        cls, actions: Any, rewards: Any, *, propensities: Any = None, n_arms: int | None = None
    ) -> Episodes:
        """Episodes from (N, H) arrays; a negative action is a step that was not played."""
        actions, rewards = np.asarray(actions), np.asarray(rewards, np.float64)
        if actions.ndim != 2 or actions.shape != rewards.shape or 0 in actions.shape:
            raise InvalidArgument(
                f"actions and rewards must be (N, H) arrays of the same shape with N, H >= 1, "
                f"got {actions.shape} and {rewards.shape}"
            )
        if not np.issubdtype(actions.dtype, np.integer):
            raise InvalidArgument(f"actions must be integers, got {actions.dtype}")
        played = actions >= 0
        lengths = played.sum(axis=1)
        if (lengths == 0).any():
            raise InvalidArgument(
                f"actions must play at least one step per episode, got none in row {lengths.argmin()}"
            )
        if propensities is not None:
            propensities = np.asarray(propensities, np.float64)
            if propensities.shape != actions.shape:
                raise InvalidArgument(f"propensities must have shape {actions.shape}, got {propensities.shape}")
            propensities = propensities[played]
        flat = actions[played]
        return cls(flat, rewards[played], _offsets(lengths), n_arms or int(flat.max()) + 1, propensities)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        episode: str,
        action: str,
        reward: str,
        step: str | None = None,
        propensity: str | None = None,
        arm_labels: tuple[str | int, ...] | None = None,
        missing: str = "error",
        at_most: int | None = None,
    ) -> Episodes:
        """Episodes from a pandas, polars or pyarrow frame with one row per step.

        Rows may come in any order: episodes are sorted by their id, steps by `step`, equal ones and those without a
        `step` column by the order of the rows. Arms get labels, unless they are the integers 0, 1, 2, ... without a
        gap. `arm_labels` fixes the table of labels: an arm outside of it is then an error.

        Args:
            frame: the data frame.
            episode: column of the session's id.
            action: column of the arm.
            reward: column of the reward.
            step: column that orders the steps of a session: numbers or times.
            propensity: column of the probability with which the arm was chosen.
            arm_labels: the table of labels, where it is known.
            missing: what to do with a step whose reward is missing: "error", "drop" or "zero".
            at_most: how many steps of a session are kept, from its first; None: all.

        Examples:
            >>> import pyarrow, lmab
            >>> log = pyarrow.table({"user": [7, 7, 9], "item": ["tea", "milk", "tea"], "click": [1, 0, 1]})
            >>> episodes = lmab.Episodes.from_frame(log, episode="user", action="item", reward="click")
            >>> episodes.arm_labels, episodes.actions
            (('milk', 'tea'), array([1, 0, 1], dtype=int32))
        """
        columns = {"episode": episode, "action": action, "reward": reward, "step": step, "propensity": propensity}
        options = Options(arm_labels, missing, at_most)
        return cls(*ingest.parse(ingest.table(frame, columns).to_batches(), columns, options))

    @classmethod
    def from_events(
        cls,
        events: Any,
        *,
        person: str,
        time: str,
        action: str,
        reward: str,
        gap: str | float = "30m",
        propensity: str | None = None,
        arm_labels: tuple[str | int, ...] | None = None,
        missing: str = "error",
        at_most: int | None = None,
        encoding: str = "utf-8",
    ) -> Episodes:
        """Episodes from events without sessions: the events of a person with pauses below `gap` are one session.

        Args:
            events: a data frame, or what `read` takes: a file, a folder, or several files.
            person: column of the person's id.
            time: column of the time: times, or numbers (seconds, unless `gap` is a number too).
            action: column of the arm.
            reward: column of the reward.
            gap: the pause that ends a session: "30m", "90s", "2h", "1d", or a number in the units of the column.
            propensity: column of the probability with which the arm was chosen.
            arm_labels: the table of labels, where it is known.
            missing: what to do with a step whose reward is missing: "error", "drop" or "zero".
            at_most: how many steps of a session are kept, from its first; None: all.
            encoding: of text files.

        Examples:
            >>> import pyarrow, lmab
            >>> log = pyarrow.table({"who": ["ann", "bob", "ann", "ann"], "when": [0, 60, 120, 9000],
            ...                      "item": ["tea", "tea", "milk", "milk"], "click": [1, 0, 1, 1]})
            >>> lmab.Episodes.from_events(log, person="who", time="when", action="item", reward="click").lengths
            array([2, 1, 1])
        """
        columns = {"person": person, "time": time, "action": action, "reward": reward, "propensity": propensity}
        options = Options(arm_labels, missing, at_most, gap, encoding)
        if isinstance(events, str | os.PathLike | list | tuple):
            return _joined([cls(*log) for log in ingest.read(events, columns, options)])
        return cls(*ingest.parse(ingest.table(events, columns).to_batches(), columns, options))

    @classmethod
    def read(
        cls,
        path: Paths,
        *,
        episode: str = "episode",
        action: str = "action",
        reward: str = "reward",
        step: str | None = None,
        propensity: str | None = None,
        arm_labels: tuple[str | int, ...] | None = None,
        missing: str = "error",
        at_most: int | None = None,
        encoding: str = "utf-8",
    ) -> Episodes:
        """Episodes from files, with columns as for `from_frame`.

        Args:
            path: a Parquet file (.parquet, .pq), CSV with commas, semicolons or tabs (.csv, .tsv), JSON lines
                (.jsonl, .ndjson), text also compressed (.gz, .bz2); a folder of such files; or several of these.
            episode: column of the session's id; the same id in two files is the same session.
            action: column of the arm.
            reward: column of the reward.
            step: column that orders the steps of a session: numbers or times.
            propensity: column of the probability with which the arm was chosen.
            arm_labels: the table of labels, where it is known.
            missing: what to do with a step whose reward is missing: "error", "drop" or "zero".
            at_most: how many steps of a session are kept, from its first; None: all.
            encoding: of text files.
        """
        columns = {"episode": episode, "action": action, "reward": reward, "step": step, "propensity": propensity}
        options = Options(arm_labels, missing, at_most, None, encoding)
        return _joined([cls(*log) for log in streaming.read(path, columns, options)])

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write to a Parquet or CSV file with the columns episode, step, action, reward (and propensity)."""
        columns = (self.actions, self.rewards, self.offsets, self.n_arms, self.propensities, self.arm_labels)
        ingest.write(path, ingest.Log(*columns))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_steps(self) -> int:
        """The number of steps of all episodes together."""
        return len(self.actions)

    @property
    def lengths(self) -> Integer[Array, "N"]:
        """The number of steps of each episode."""
        return np.diff(self.offsets)

    @property
    def plays(self) -> Integer[Array, "A"]:
        """How often each arm was played; in chunks, since counting needs wide integers."""
        counts = np.zeros(self.n_arms, np.int64)
        for start in range(0, self.n_steps, _CHUNK):
            counts += np.bincount(self.actions[start : start + _CHUNK], minlength=self.n_arms)
        return counts

    @property
    def one_reward(self) -> float | None:
        """The reward of every step, where all are the same."""
        return float(self.rewards[0]) if bool((self.rewards == self.rewards[0]).all()) else None

    def share_of_length(self, least: int) -> float:
        """The share of the episodes with at least so many steps."""
        return float((self.lengths >= least).mean())

    @property
    def median_length(self) -> float:
        """The median number of steps of an episode."""
        return float(np.median(self.lengths))

    @property
    def steps(self) -> Integer[Array, "S"]:
        """The number of every step within its episode, from 0.

        Examples:
            >>> import lmab
            >>> lmab.Episodes.from_arrays([[0, 1], [2, -1]], [[1.0, 0.0], [1.0, 0.0]]).steps
            array([0, 1, 0])
        """
        return step_numbers(self.offsets)

    def mean_session(self, horizon: int) -> float:
        """What a logged session of `horizon` steps earned on average: the sum of the mean rewards of its steps.

        Each step is averaged over the sessions that reach it.

        Examples:
            >>> import lmab
            >>> lmab.Episodes.from_arrays([[0, 1], [2, -1]], [[1.0, 0.0], [0.0, 0.0]]).mean_session(2)
            0.5
        """
        steps = self.steps
        inside = steps < check_count("horizon", horizon)
        return float((np.bincount(steps[inside], self.rewards[inside]) / np.bincount(steps[inside])).sum())

    @property
    def horizon(self) -> int:
        """The number of steps of the longest episode."""
        return int(self.lengths.max())

    def __getitem__(self, indices: Any) -> Episodes:
        """The episodes at `indices`: an integer, a slice, an index array or a mask."""
        rows = np.atleast_1d(np.arange(len(self))[indices])
        if len(rows) == 0:
            raise InvalidArgument("indices must pick at least one episode, got none")
        lengths = self.lengths[rows]
        offsets = _offsets(lengths)
        steps = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        return self._taken(steps, offsets)

    def _taken(self, steps: Any, offsets: Integer[Array, "n1"]) -> Episodes:
        propensities = None if self.propensities is None else self.propensities[steps]
        return Episodes(self.actions[steps], self.rewards[steps], offsets, self.n_arms, propensities, self.arm_labels)

    def __iter__(self) -> Iterator[Episodes]:
        return (self[k] for k in range(len(self)))

    def __add__(self, other: Episodes) -> Episodes:
        """All episodes of both; tables of labels are merged."""
        if (self.propensities is None) != (other.propensities is None):
            raise InvalidArgument("both logs must have propensities, or none; got one with and one without")
        labels, moved = _merge_labels(self, other)
        n_arms = max(self.n_arms, other.n_arms) if labels is None else len(labels)
        propensities = (
            None
            if self.propensities is None or other.propensities is None
            else np.concatenate([self.propensities, other.propensities])
        )
        return Episodes(
            np.concatenate([self.actions, moved[other.actions]]),
            np.concatenate([self.rewards, other.rewards]),
            np.concatenate([self.offsets, self.offsets[-1] + other.offsets[1:]]),
            n_arms,
            propensities,
            labels,
        )

    def split(self, fraction: float = 0.5, *, rng: Rng) -> tuple[Episodes, Episodes]:
        """Two logs: a random `fraction` of the episodes, and the others. Steps of an episode stay together.

        Examples:
            >>> import numpy as np, lmab
            >>> episodes = lmab.Episodes.from_arrays(np.zeros((10, 3), int), np.ones((10, 3)))
            >>> train, heldout = episodes.split(0.8, rng=np.random.default_rng(0))
            >>> len(train), len(heldout)
            (8, 2)
        """
        rng = check_rng(rng, "the split is random")
        size = round(fraction * len(self)) if 0 < fraction < 1 else 0
        if not 0 < size < len(self):
            raise InvalidArgument(
                f"fraction must leave at least one of the {len(self)} episodes on either side, got {fraction!r}"
            )
        order = rng.permutation(len(self))
        return self[np.sort(order[:size])], self[np.sort(order[size:])]

    def to_arrays(self) -> tuple[Integer[Array, "N H"], Float[Array, "N H"]]:
        """(N, H) arrays of actions and rewards, with action -1 and reward 0 after an episode's end."""
        played = np.arange(self.horizon) < self.lengths[:, None]
        actions = np.full(played.shape, -1, np.int32)
        rewards = np.zeros(played.shape)
        actions[played], rewards[played] = self.actions, self.rewards
        return actions, rewards

    @property
    def some_rewards(self) -> Float[Array, "S"]:
        """Rewards among which each reward of the log is: all of them."""
        return self.rewards

    def chunks(self, n_sessions: int) -> Iterator[Episodes]:
        """The log in pieces of so many sessions, which share its arrays; a small log is one piece, itself."""
        if len(self) <= n_sessions:
            yield self
            return
        for low in range(0, len(self), n_sessions):
            offsets = self.offsets[low : low + n_sessions + 1]
            steps = slice(int(offsets[0]), int(offsets[-1]))
            yield self._taken(steps, offsets - offsets[0])

    def load(self) -> Episodes:
        """The log itself: it is in memory already, unlike a packed one."""
        return self

    def with_arms(self, n_arms: int) -> Episodes:
        """The same episodes with more arms; the new arms were never played."""
        return replace(self, n_arms=n_arms)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Episodes):
            return NotImplemented
        pairs = [(self.actions, other.actions), (self.rewards, other.rewards), (self.offsets, other.offsets)]
        if self.propensities is not None and other.propensities is not None:
            pairs.append((self.propensities, other.propensities))
        return (
            (self.n_arms, self.arm_labels) == (other.n_arms, other.arm_labels)
            and (self.propensities is None) == (other.propensities is None)
            and all(np.array_equal(mine, theirs) for mine, theirs in pairs)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Episodes({len(self)} episodes, {self.n_steps} steps, {self.n_arms} arms)"


def _joined(logs: list[Episodes]) -> Episodes:
    return reduce(add, logs)


def _offsets(lengths: Integer[Array, "N"]) -> Integer[Array, "N1"]:
    return np.concatenate([[0], np.cumsum(lengths)])


def _merge_labels(first: Episodes, second: Episodes) -> tuple[tuple[str | int, ...] | None, Integer[Array, "A"]]:
    """The merged table, and the place of each arm of the second log in this table."""
    labels = ingest.merged_labels(first.arm_labels, second.arm_labels)
    if labels is None or second.arm_labels is None:
        return None, np.arange(second.n_arms, dtype=np.int32)
    place = {label: arm for arm, label in enumerate(labels)}
    return labels, np.array([place[label] for label in second.arm_labels], np.int32)
