"""Sessions: the steps of many short sessions in flat columns, with an offset for the beginning of each session."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer, Shaped
from ..checks import Rng, check_count, check_rng, check_same_length, whole, whole_array
from ..errors import InvalidArgument, InvalidData
from . import loading
from .features import ENDED, LEFT, WENT_ON, Features, ending_codes, person_values, require_endings
from .loading import UNORDERED, LogArrays, ReadOptions, named_columns, step_numbers

_CHUNK = 1 << 20  # steps looked at once: a mask of all steps would be seen in the memory of large logs


@dataclass(frozen=True, eq=False)
class Sessions:
    """Logged or simulated sessions, which may differ in length; steps are stored in arrays, not as Python objects.

    Examples:
        >>> import lmab
        >>> sessions = lmab.Sessions.from_arrays([[0, 1], [2, -1]], [[1.0, 0.0], [1.0, 0.0]])
        >>> sessions
        Sessions(2 sessions, 3 steps, 3 arms)
        >>> sessions.arms, sessions.offsets
        (array([0, 1, 2], dtype=int32), array([0, 2, 3]))
        >>> sessions[1].rewards
        array([1.])
    """

    arms: Integer[Array, "S"]  # int32, arm of every step, sessions one after the other
    rewards: Float[Array, "S"]  # float64
    offsets: Integer[Array, "N1"]  # int64, N + 1 entries: session k holds the steps offsets[k] to offsets[k + 1]
    n_arms: int
    propensities: Float[Array, "S"] | None = None  # probability with which the logging policy chose the arm
    arm_labels: tuple[str | int, ...] | None = None  # what the arms are called; None: their numbers
    features: Features | None = None  # what is known of each session before its first step
    persons: Shaped[Array, "N"] | None = None  # whose session it was: int64, or text and None for a stranger
    endings: Integer[Array, "N"] | None = None  # uint8, LEFT, WENT_ON or UNKNOWN; `ended` has the words
    positions: Integer[Array, "N"] | None = None  # of each session in time; None: sessions are in this order
    times: Float[Array, "N"] | None = None  # float64, seconds, time of the first step of each session

    def __post_init__(self) -> None:
        for name, dtype in (("arms", np.int32), ("rewards", np.float64), ("offsets", np.int64)):
            object.__setattr__(self, name, frozen(getattr(self, name), dtype))
        if self.propensities is not None:
            object.__setattr__(self, "propensities", frozen(self.propensities, np.float64))
        require_sound(self.arms, self.rewards, self.offsets, self.n_arms, self.propensities, self.arm_labels)
        if self.features is not None:
            object.__setattr__(self, "features", Features.of(self.features, len(self)))
        if self.persons is not None:
            object.__setattr__(self, "persons", frozen(person_values(self.persons, len(self)), None))
        if self.endings is not None:
            object.__setattr__(self, "endings", frozen(self.endings, np.uint8))
            require_endings(self.lengths, self.endings)
        if self.positions is not None:
            object.__setattr__(self, "positions", frozen(self.positions, np.int64))
            check_same_length("sessions", self.lengths, self.positions)
        if self.times is not None:
            object.__setattr__(self, "times", frozen(seconds_of(self.times, len(self)), np.float64))

    @classmethod
    def from_arrays(
        cls,
        arms: Any,
        rewards: Any,
        *,
        n_arms: int | None = None,
        propensities: Any = None,
        features: Mapping[str, Any] | None = None,
        persons: Any = None,
        ended: Any = None,
        times: Any = None,
    ) -> Sessions:
        """Make sessions from (N, H) arrays; a negative arm is a step that was not played.

        Args:
            arms: (N, H) integers, -1 where a session has no step.
            rewards: (N, H).
            n_arms: how many arms there are; None: as many as were played.
            propensities: (N, H), the probability with which each arm was chosen.
            features: what is known of each session before its first step: N values by column, numbers or text.
            persons: N ids: whose session it was; the sessions of a person are in the order of time.
            ended: N words: "left", "went on" (we cut the session), or "unknown" (the log stops at this length).
            times: N times of first steps: seconds, `datetime64` values, or text such as "2024-05-01 10:30:00".

        Examples:
            >>> import lmab
            >>> log = lmab.Sessions.from_arrays([[0, 1], [2, -1]], [[1.0, 0.0], [1.0, 0.0]],
            ...     features={"country": ["de", "fr"]}, persons=["ann", "bob"], ended=["unknown", "left"])
            >>> log.features["country"], log.ended
            (array(['de', 'fr'], dtype=object), array(['unknown', 'left'], dtype='<U7'))
        """
        arms, rewards = whole_array(np.asarray(arms)), np.asarray(rewards, np.float64)
        if arms.ndim != 2 or arms.shape != rewards.shape or 0 in arms.shape:
            raise InvalidArgument(
                f"arms and rewards must be (N, H) arrays of the same shape with N, H >= 1, "
                f"got {arms.shape} and {rewards.shape}"
            )
        if not np.issubdtype(arms.dtype, np.integer):
            raise InvalidArgument(f"arms must be integers, got {arms.dtype}")
        played = arms >= 0
        lengths = played.sum(axis=1)
        if (lengths == 0).any():
            raise InvalidArgument(f"arms must play at least one step per session, got none in row {lengths.argmin()}")
        if propensities is not None:
            propensities = np.asarray(propensities, np.float64)
            if propensities.shape != arms.shape:
                raise InvalidArgument(f"propensities must have shape {arms.shape}, got {propensities.shape}")
            propensities = propensities[played]
        flat = arms[played]
        n_sessions, size = len(lengths), whole(n_arms) or int(flat.max()) + 1
        known = None if features is None else Features.of(features, n_sessions)
        endings = None if ended is None else ending_codes(ended, n_sessions)
        seconds = None if times is None else seconds_of(times, n_sessions)
        order = None if seconds is None else loading.ranks(seconds)
        columns = (propensities, None, known, persons, endings, order, seconds)
        return cls(flat, rewards[played], _offsets(lengths), size, *columns)

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        session: str | None = None,
        arm: str = "arm",
        reward: str = "reward",
        step: str | None = None,
        propensity: str | None = None,
        features: Sequence[str] = (),
        person: str | None = None,
        ended: str | None = None,
        time: str | None = None,
        gap: str | float = "30m",
        limit: int | None = None,
        arm_labels: tuple[str | int, ...] | None = None,
        missing: str = "error",
        copies: str = "keep",
        at_most: int | None = None,
    ) -> Sessions:
        """Make sessions from a data frame with one row per step, with the options of `read`.

        Args:
            frame: a pandas, polars or pyarrow frame, a lazy frame, a DuckDB relation, or a dictionary of columns.
            session: column of the session's id.
            arm: column of the arm.
            reward: column of the reward.
            step: column that orders the steps of a session.
            propensity: column of the probability with which the arm was chosen.
            features: columns of features, with one value in a session.
            person: column of the person; with `time` and no `session`, sessions are made of events.
            ended: column of how the session ended.
            time: column of times: of the first step of each session, or of events; also text in ISO form.
            gap: the pause that ends a session of events.
            limit: maximum length of a session in the log.
            arm_labels: the table of labels, if it is known.
            missing: treatment of steps without reward or arm: "error", "drop" or "zero".
            copies: treatment of rows that repeat an earlier row: "keep", "drop" or "error".
            at_most: number of first steps of each session that are kept; None: all.

        Examples:
            >>> import lmab
            >>> log = {"user": [7, 7, 9], "item": ["tea", "milk", "tea"], "click": [1, 0, 1]}
            >>> sessions = lmab.Sessions.from_frame(log, session="user", arm="item", reward="click")
            >>> sessions.arm_labels, sessions.arms
            (('milk', 'tea'), array([1, 0, 1], dtype=int32))
        """
        columns, pause = named_columns(
            session=session, arm=arm, reward=reward, step=step, propensity=propensity, features=features, person=person,
            ended=ended, time=time, gap=gap, limit=limit,
        )  # fmt: skip
        options = ReadOptions(arm_labels, missing, at_most, pause, limit=limit, copies=copies)
        return cls(*loading.read_frame(frame, columns, options))

    @classmethod
    def from_events(
        cls,
        events: Any,
        *,
        person: str,
        time: str,
        arm: str = "arm",
        reward: str = "reward",
        gap: str | float = "30m",
        propensity: str | None = None,
        features: Sequence[str] = (),
        arm_labels: tuple[str | int, ...] | None = None,
        missing: str = "error",
        copies: str = "keep",
        at_most: int | None = None,
        encoding: str = "utf-8",
    ) -> Sessions:
        """Make sessions from events: the events of a person with pauses below `gap` are one session.

        A pause says that the person left. If more than 1% of the sessions may continue after the log, no end is known.

        Args:
            events: a data frame, or what `read` takes: a file, a folder, or several files.
            person: column of the person's id.
            time: column of the time: times, text in ISO form, or numbers (seconds, unless `gap` is a number too).
            arm: column of the arm.
            reward: column of the reward.
            gap: the pause that ends a session: "30m", "90s", "2h", "1d", or a number in the units of the column.
            propensity: column of the probability with which the arm was chosen.
            features: columns of features: numbers or text, with one value in a session.
            arm_labels: the table of labels, if it is known.
            missing: treatment of steps without reward or arm: "error", "drop" or "zero".
            copies: treatment of rows that repeat an earlier row: "keep", "drop" or "error".
            at_most: number of first steps of each session that are kept; None: all.
            encoding: encoding of text files.

        Examples:
            >>> import lmab
            >>> log = {"who": ["ann", "bob", "ann", "ann"], "when": [0, 60, 120, 9000],
            ...        "item": ["tea", "tea", "milk", "milk"], "click": [1, 0, 1, 1]}
            >>> lmab.Sessions.from_events(log, person="who", time="when", arm="item", reward="click").lengths
            array([2, 1, 1])
        """
        return cls.read(
            events, person=person, time=time, arm=arm, reward=reward, gap=gap, propensity=propensity, features=features,
            arm_labels=arm_labels, missing=missing, copies=copies, at_most=at_most, encoding=encoding,
        )  # fmt: skip

    @classmethod
    def read(
        cls,
        path: Any,
        *,
        session: str | None = None,
        arm: str = "arm",
        reward: str = "reward",
        step: str | None = None,
        propensity: str | None = None,
        features: Sequence[str] = (),
        person: str | None = None,
        ended: str | None = None,
        time: str | None = None,
        gap: str | float = "30m",
        limit: int | None = None,
        arm_labels: tuple[str | int, ...] | None = None,
        missing: str = "error",
        copies: str = "keep",
        at_most: int | None = None,
        encoding: str = "utf-8",
    ) -> Sessions:
        """Make sessions from files or a data frame with one row per step.

        Rows may come in any order: sessions are sorted by their id, steps by `step`, equal ones and those without a
        `step` column by the order of the rows (`in_time` has the sessions in the order of time). Arms get labels,
        unless they are the integers 0, 1, 2, ... without a gap. `arm_labels` fixes the table of labels: an arm outside
        of it is then an error.

        Args:
            path: a Parquet file (.parquet, .pq), CSV with commas, semicolons or tabs (.csv, .tsv), JSON lines
                (.jsonl, .ndjson), text also compressed (.gz, .bz2); a folder of such files; several of these; or what
                `from_frame` takes.
            session: column of the session's id; the same id in two files is the same session. None: the column called
                session, unless `person` and `time` are given, which make sessions of events.
            arm: column of the arm.
            reward: column of the reward.
            step: column that orders the steps of a session: numbers, times or text; None: `time`, or the order of rows.
            propensity: column of the probability with which the arm was chosen.
            features: columns of features: numbers or text, with one value in a session. Numbers that are names, such
                as those of regions, must be text.
            person: column of the person; if `step` is a time, the sessions of a person are in its order, otherwise in
                that of their ids.
            ended: column of how the session ended, in its last row: "left", "went on" or "unknown"; or whether the
                person left.
            time: column of times. With `session`: time of the first step of each session, as `times`; with `person`
                and no `session`: times of events.
            gap: the pause that ends a session of events, as for `from_events`.
            limit: maximum length of a session in the log: shorter sessions left, the ends of the others are unknown.
            arm_labels: the table of labels, if it is known.
            missing: treatment of steps without reward or arm: "error", "drop" or "zero" (rewards only).
            copies: treatment of rows that repeat an earlier row in all named columns, with a step or time: "keep",
                which warns, "drop" or "error".
            at_most: number of first steps of each session that are kept; None: all.
            encoding: encoding of text files.
        """
        columns, pause = named_columns(
            session=session, arm=arm, reward=reward, step=step, propensity=propensity, features=features, person=person,
            ended=ended, time=time, gap=gap, limit=limit,
        )  # fmt: skip
        options = ReadOptions(arm_labels, missing, at_most, pause, encoding, limit, copies)
        if loading.is_path(path):
            return _joined([cls(*log) for log in loading.read(path, columns, options)])
        return cls(*loading.read_frame(path, columns, options))

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write to a Parquet or CSV file: session, step, arm, reward, propensity, person, ended, and the features."""
        loading.write(path, LogArrays(*(getattr(self, name) for name in LogArrays._fields)))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_steps(self) -> int:
        """The number of steps of all sessions together."""
        return len(self.arms)

    @property
    def ended(self) -> Shaped[Array, "N"] | None:
        """How each session ended: "left", "went on" or "unknown"; None: the log does not say."""
        return None if self.endings is None else np.array(ENDED)[self.endings]

    @property
    def lengths(self) -> Integer[Array, "N"]:
        """The number of steps of each session."""
        return np.diff(self.offsets)

    @property
    def plays(self) -> Integer[Array, "A"]:
        """How often each arm was played; in chunks, since counting needs wide integers."""
        counts = np.zeros(self.n_arms, np.int64)
        for start in range(0, self.n_steps, _CHUNK):
            counts += np.bincount(self.arms[start : start + _CHUNK], minlength=self.n_arms)
        return counts

    @property
    def one_reward(self) -> float | None:
        """The reward of every step, where all are the same."""
        return float(self.rewards[0]) if bool((self.rewards == self.rewards[0]).all()) else None

    @property
    def repeats(self) -> bool:
        """Return whether some session plays an arm more than once.

        Examples:
            >>> import lmab
            >>> lmab.Sessions.from_arrays([[0, 1], [2, -1]], [[1.0, 0.0], [1.0, 0.0]]).repeats
            False
        """
        played = np.repeat(np.arange(len(self)), self.lengths) * self.n_arms + self.arms
        return len(np.unique(played)) < self.n_steps

    def share_of_length(self, least: int) -> float:
        """The share of the sessions with at least so many steps."""
        return float((self.lengths >= least).mean())

    @property
    def median_length(self) -> float:
        """The median number of steps of a session."""
        return float(np.median(self.lengths))

    @property
    def steps(self) -> Integer[Array, "S"]:
        """The number of every step within its session, from 0.

        Examples:
            >>> import lmab
            >>> lmab.Sessions.from_arrays([[0, 1], [2, -1]], [[1.0, 0.0], [1.0, 0.0]]).steps
            array([0, 1, 0])
        """
        return step_numbers(self.offsets)

    def mean_session(self, horizon: int) -> float:
        """What a logged session of `horizon` steps earned on average: the sum of the mean rewards of its steps.

        Each step is averaged over the sessions that reach it; over all sessions where the log says who left.

        Examples:
            >>> import lmab
            >>> lmab.Sessions.from_arrays([[0, 1], [2, -1]], [[1.0, 0.0], [0.0, 0.0]]).mean_session(2)
            0.5
        """
        steps = self.steps
        inside = steps < check_count("horizon", horizon)
        if self.endings is not None and (self.endings == LEFT).any():
            return float(self.rewards[inside].sum() / len(self))
        return float((np.bincount(steps[inside], self.rewards[inside]) / np.bincount(steps[inside])).sum())

    @property
    def horizon(self) -> int:
        """The number of steps of the longest session."""
        return int(self.lengths.max())

    def __getitem__(self, indices: Any) -> Sessions:
        """The sessions at `indices`: an integer, a slice, an index array or a mask."""
        rows = np.atleast_1d(np.arange(len(self))[indices])
        if len(rows) == 0:
            raise InvalidArgument("indices must pick at least one session, got none")
        lengths = self.lengths[rows]
        offsets = _offsets(lengths)
        steps = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        return self._taken(steps, offsets, rows)

    def _taken(self, steps: Any, offsets: Integer[Array, "n1"], rows: Any) -> Sessions:
        return Sessions(
            self.arms[steps],
            self.rewards[steps],
            offsets,
            self.n_arms,
            None if self.propensities is None else self.propensities[steps],
            self.arm_labels,
            None if self.features is None else self.features.take(rows),
            None if self.persons is None else self.persons[rows],
            None if self.endings is None else self.endings[rows],
            None if self.positions is None else self.positions[rows],
            None if self.times is None else self.times[rows],
        )

    def __iter__(self) -> Iterator[Sessions]:
        return (self[k] for k in range(len(self)))

    def __add__(self, other: Sessions) -> Sessions:
        """All sessions of both; tables of labels are merged."""
        for name in ("propensities", "features", "persons", "ended", "times"):
            if (getattr(self, name) is None) != (getattr(other, name) is None):
                raise InvalidArgument(f"both logs must have {name}, or none; got one with and one without")
        labels, moved = _merge_labels(self, other)
        n_arms = max(self.n_arms, other.n_arms) if labels is None else len(labels)
        return Sessions(
            np.concatenate([self.arms, moved[other.arms]]),
            np.concatenate([self.rewards, other.rewards]),
            np.concatenate([self.offsets, self.offsets[-1] + other.offsets[1:]]),
            n_arms,
            _both(self.propensities, other.propensities),
            labels,
            None if self.features is None or other.features is None else self.features + other.features,
            _both(self.persons, other.persons),
            _both(self.endings, other.endings),
            _positions_of_both(self, other),
            _both(self.times, other.times),
        )

    def in_time(self) -> Sessions | None:
        """Return the sessions in the order of time; None if the log does not show this order.

        Times of the first steps decide. Without times, ids that are numbers, or differ only in their numbers, are
        assumed to rise with time, and other texts as ids appear in the order of the rows. The order is unknown if the
        rows are sorted by such texts.

        Examples:
            >>> import lmab
            >>> rows = {"session": ["v1", "v10", "v2"], "arm": [0, 1, 2], "reward": [1, 0, 1]}
            >>> log = lmab.Sessions.from_frame(rows)
            >>> log.arms, log.in_time().arms
            (array([0, 1, 2], dtype=int32), array([0, 2, 1], dtype=int32))
        """
        if self.positions is None:
            return self
        if (self.positions == UNORDERED).any():
            return None
        return replace(self[np.argsort(self.positions, kind="stable")], positions=None)

    def frequent_arms(self, min_plays: int = 1, top: int | None = None) -> Integer[Array, "K"]:
        """The arms that were played at least `min_plays` times; with `top`, the most played of them only.

        Examples:
            >>> import lmab
            >>> log = lmab.Sessions.from_arrays([[0, 1], [1, 2], [1, 2]], [[1.0, 0.0]] * 3)
            >>> log.frequent_arms(2), log.frequent_arms(top=1)
            (array([1, 2]), array([1]))
        """
        plays = self.plays
        often = np.flatnonzero(plays >= check_count("min_plays", min_plays))
        if top is not None:
            often = often[np.argsort(-plays[often], kind="stable")[: check_count("top", top)]]
        return np.sort(often)

    def only_arms(self, arms: Sequence[int] | Integer[Array, "K"]) -> Sessions:
        """The steps that played one of these arms, which keep their names; sessions without such a step are left out.

        Where the last step of a session is left out, the log no longer says how sessions ended.

        Examples:
            >>> import lmab
            >>> log = lmab.Sessions.from_arrays([[0, 1], [1, 2], [2, 2]], [[1.0, 0.0]] * 3)
            >>> few = log.only_arms([0, 1])
            >>> few, few.arm_labels, few.arms
            (Sessions(2 sessions, 3 steps, 2 arms), (0, 1), array([0, 1, 1], dtype=int32))
        """
        kept = np.unique(np.asarray(arms, np.int64))
        if len(kept) == 0 or kept[0] < 0 or kept[-1] >= self.n_arms:
            raise InvalidArgument(f"arms must be some of the {self.n_arms} arms of the log, got {list(arms)!r}")
        place = np.full(self.n_arms, -1, np.int32)
        place[kept] = np.arange(len(kept))
        steps = np.flatnonzero(place[self.arms] >= 0)
        lengths = np.bincount(np.repeat(np.arange(len(self)), self.lengths)[steps], minlength=len(self))
        rows = np.flatnonzero(lengths)
        if len(rows) == 0:
            raise InvalidArgument(f"arms must be played in some session, got {list(arms)!r}")
        ends = place[self.arms[self.offsets[1:] - 1]][rows] >= 0  # the last step is there
        known = self if ends.all() else replace(self, endings=None)
        found = known._taken(steps, _offsets(lengths[rows]), rows)
        names = self.arm_labels or range(self.n_arms)
        labels = tuple(names[arm] for arm in kept.tolist())
        return replace(found, arms=place[found.arms], n_arms=len(kept), arm_labels=labels)

    def first_steps(self, n: int) -> Sessions:
        """Return the sessions with at most `n` steps; those that are cut went on, if the log says how sessions ended.

        Examples:
            >>> import lmab
            >>> log = lmab.Sessions.from_arrays([[0, 1, 1], [1, 2, 0]], [[1.0, 0.0, 1.0]] * 2)
            >>> log.first_steps(2).arms
            array([0, 1, 1, 2], dtype=int32)
        """
        lengths = np.minimum(self.lengths, check_count("n", n))
        found = replace(self, endings=None)._taken(np.flatnonzero(self.steps < n), _offsets(lengths), slice(None))
        if self.endings is None:
            return found
        return replace(found, endings=np.where(self.lengths > n, WENT_ON, self.endings).astype(np.uint8))

    def split(self, fraction: float = 0.5, *, rng: Rng) -> tuple[Sessions, Sessions]:
        """Two logs: a random `fraction` of the sessions, and the others. Steps of a session stay together.

        Examples:
            >>> import numpy as np, lmab
            >>> sessions = lmab.Sessions.from_arrays(np.zeros((10, 3), int), np.ones((10, 3)))
            >>> train, heldout = sessions.split(0.8, rng=np.random.default_rng(0))
            >>> len(train), len(heldout)
            (8, 2)
        """
        rng = check_rng(rng, "the split is random")
        size = round(fraction * len(self)) if 0 < fraction < 1 else 0
        if not 0 < size < len(self):
            raise InvalidArgument(
                f"fraction must leave at least one of the {len(self)} sessions on either side, got {fraction!r}"
            )
        order = rng.permutation(len(self))
        return self[np.sort(order[:size])], self[np.sort(order[size:])]

    def to_arrays(self) -> tuple[Integer[Array, "N H"], Float[Array, "N H"]]:
        """(N, H) arrays of arms and rewards, with arm -1 and reward 0 after a session's end."""
        played = np.arange(self.horizon) < self.lengths[:, None]
        arms = np.full(played.shape, -1, np.int32)
        rewards = np.zeros(played.shape)
        arms[played], rewards[played] = self.arms, self.rewards
        return arms, rewards

    @property
    def some_rewards(self) -> Float[Array, "S"]:
        """Rewards among which each reward of the log is: all of them."""
        return self.rewards

    def chunks(self, n_sessions: int) -> Iterator[Sessions]:
        """The log in pieces of so many sessions, which share its arrays; a small log is one piece, itself."""
        if len(self) <= n_sessions:
            yield self
            return
        for low in range(0, len(self), n_sessions):
            offsets = self.offsets[low : low + n_sessions + 1]
            steps = slice(int(offsets[0]), int(offsets[-1]))
            yield self._taken(steps, offsets - offsets[0], slice(low, low + n_sessions))

    def load(self) -> Sessions:
        """The log itself: it is in memory already, unlike a packed one."""
        return self

    def with_arms(self, n_arms: int) -> Sessions:
        """The same sessions with more arms; the new arms were never played."""
        return replace(self, n_arms=n_arms)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sessions):
            return NotImplemented
        names = ("arms", "rewards", "offsets", "propensities", "persons", "endings", "times")
        return (self.n_arms, self.arm_labels, self.features) == (
            other.n_arms,
            other.arm_labels,
            other.features,
        ) and all(_same(getattr(self, name), getattr(other, name)) for name in names)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        sizes = ((len(self), "session"), (self.n_steps, "step"), (self.n_arms, "arm"))
        return f"Sessions({', '.join(f'{n} {noun}' if n == 1 else f'{n} {noun}s' for n, noun in sizes)})"


def _same(first: Shaped[Array, "n"] | None, second: Shaped[Array, "m"] | None) -> bool:
    return first is second if first is None or second is None else np.array_equal(first, second)


def _both(first: Shaped[Array, "n"] | None, second: Shaped[Array, "m"] | None) -> Shaped[Array, "s"] | None:
    return None if first is None or second is None else np.concatenate([first, second])


def _positions_of_both(first: Sessions, second: Sessions) -> Integer[Array, "s"] | None:
    """Return the positions in time of the sessions of two logs, the second of which follows the first."""
    if first.positions is None and second.positions is None:
        return None
    own, later = (np.arange(len(log)) if log.positions is None else log.positions for log in (first, second))
    if UNORDERED in own or UNORDERED in later:
        return np.full(len(own) + len(later), UNORDERED)
    return np.concatenate([own, own.max() + 1 + later])


def _joined(logs: list[Sessions]) -> Sessions:
    return reduce(add, logs)


def _offsets(lengths: Integer[Array, "N"]) -> Integer[Array, "N1"]:
    return np.concatenate([[0], np.cumsum(lengths)])


def _merge_labels(first: Sessions, second: Sessions) -> tuple[tuple[str | int, ...] | None, Integer[Array, "A"]]:
    """The merged table, and the place of each arm of the second log in this table."""
    labels = loading.merged_labels(first.arm_labels, second.arm_labels)
    if labels is None or second.arm_labels is None:
        return None, np.arange(second.n_arms, dtype=np.int32)
    place = {label: arm for arm, label in enumerate(labels)}
    return labels, np.array([place[label] for label in second.arm_labels], np.int32)


_SHUFFLED = 1 << 24  # sessions up to which all of them are shuffled; of more, only those that are drawn take memory


def sample_rows(n_sessions: int, size: int, rng: np.random.Generator) -> Integer[Array, "n"]:
    """At most `size` of the sessions, in random order.

    Examples:
        >>> import numpy as np
        >>> sorted(sample_rows(3, 10, np.random.default_rng(0)).tolist())
        [0, 1, 2]
    """
    if n_sessions <= _SHUFFLED:
        return rng.permutation(n_sessions)[:size]
    return rng.choice(n_sessions, min(size, n_sessions), replace=False)


def require_log(name: str, value: Any) -> None:
    """Raise, with the call that makes a log of it, where `value` is a data frame, a path or something else.

    Examples:
        >>> require_log("sessions", "x.csv")
        Traceback (most recent call last):
        lmab.errors.InvalidArgument: sessions must be a log: read it by lmab.Sessions.read('x.csv', ...), got a str
    """
    if hasattr(value, "n_arms") and hasattr(value, "arm_labels") and hasattr(value, "__len__"):
        return
    kind = type(value).__name__
    if isinstance(value, str | os.PathLike):
        how = f"read it by lmab.Sessions.read({os.fspath(value)!r}, ...)"
    elif hasattr(value, "columns"):
        how = "make it by lmab.Sessions.from_frame(frame, session=..., arm=..., reward=...)"
    else:
        how = "make it by lmab.Sessions.read, from_frame, from_events or from_arrays"
    raise InvalidArgument(f"{name} must be a log: {how}, got a {kind}")


def require_nobody_left(what: str, sessions: Any) -> None:
    """Raise where people left sessions of a log, for methods that compare steps as if all sessions went on.

    Examples:
        >>> log = Sessions.from_arrays([[0, 1], [1, -1]], [[1.0, 0.0], [0.0, 0.0]], ended=["unknown", "left"])
        >>> require_nobody_left("moments", log)
        Traceback (most recent call last):
        lmab.errors.InvalidArgument: sessions must not be left by people for moments: ...
    """
    left = 0 if sessions.endings is None else int((sessions.endings == LEFT).sum())
    if left:
        raise InvalidArgument(
            f"sessions must not be left by people for {what}: later steps come from those who stayed, so steps of one "
            f"session tell more than its type; fit with EM(), which knows who left, or drop how sessions ended where "
            f"leaving is pure chance; got {left} of {len(sessions)} sessions that were left"
        )


def require_sound(
    arms: Integer[Array, "S"], rewards: Float[Array, "R"], offsets: Integer[Array, "N1"], n_arms: int,
    propensities: Float[Array, "P"] | None, arm_labels: tuple[str | int, ...] | None,
) -> None:  # fmt: skip
    """Raise an error that says what is wrong with the columns, and at which step, where something is."""
    n_steps = len(arms)
    if len(offsets) < 2:
        raise InvalidArgument("sessions must hold at least one session, got none")
    if offsets[0] != 0 or offsets[-1] != n_steps or (offsets[1:] <= offsets[:-1]).any():
        raise InvalidArgument(f"offsets must rise from 0 to the number of steps ({n_steps}), by at least 1 each")
    if len(rewards) != n_steps or (propensities is not None and len(propensities) != n_steps):
        raise InvalidArgument(f"arms, rewards and propensities must have the same length, got {n_steps} arms")
    if arms.min() < 0 or arms.max() >= n_arms:
        where = int(np.flatnonzero((arms < 0) | (arms >= n_arms))[0])
        raise InvalidArgument(f"arms must be in 0..{n_arms - 1}, got {arms[where]} at step {where}")
    _require_finite("rewards", rewards)
    if propensities is not None:
        _require_probability("propensities", propensities)
    if arm_labels is not None and len(set(arm_labels)) != n_arms:
        raise InvalidArgument(f"arm_labels must be {n_arms} distinct labels, got {len(arm_labels)}")


def seconds_of(times: Any, n_sessions: int) -> Float[Array, "N"]:
    """Return times as seconds since 1970; numbers are seconds already.

    Examples:
        >>> seconds_of(["1970-01-02", "1970-01-01 00:00:05"], 2)
        array([8.64e+04, 5.00e+00])
    """
    found = np.asarray(times)
    if found.dtype.kind in "UO":
        try:
            found = np.array([np.datetime64(str(one).strip().replace("Z", ""), "us") for one in found.ravel().tolist()])
        except ValueError:
            raise InvalidData(f"times must be times or seconds, got {found.ravel()[0]!r}") from None
    if found.dtype.kind == "M":
        found = found.astype("datetime64[us]").astype(np.int64) / 1e6
    if found.shape != (n_sessions,) or found.dtype.kind not in "iufb":
        raise InvalidArgument(f"times must hold one time for each of the {n_sessions} sessions, got {found.shape}")
    seconds = found.astype(np.float64)
    if not np.isfinite(seconds).all():
        raise InvalidData(f"times must be finite, got {seconds[~np.isfinite(seconds)][0]}")
    return seconds


def frozen(column: Any, dtype: Any) -> Array:
    """The column as an array of that type that cannot be written to; the caller's own array stays as it is."""
    view = np.ascontiguousarray(column, dtype).view()
    view.flags.writeable = False
    return view


def _require_finite(name: str, column: Float[Array, "S"]) -> None:
    for start in range(0, len(column), _CHUNK):
        good = np.isfinite(column[start : start + _CHUNK])
        if not good.all():
            row = start + int(good.argmin())
            raise InvalidData(f"{name} must be finite, got {column[row]} at step {row}")


def _require_probability(name: str, column: Float[Array, "S"]) -> None:
    bad = ~((column > 0) & (column <= 1))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise InvalidData(f"{name} must be in (0, 1], got {column[row]} at step {row}")
