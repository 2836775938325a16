"""Packing: the same sessions as in memory, for every kind of log; runs that were killed; disks that are full."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import textwrap
import warnings
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lmab
from lmab.data import packing
from lmab.data.features import STRANGER, person_ids, person_numbers
from lmab.data.fingerprint import Fingerprint
from lmab.errors import InvalidArgument, InvalidData, InvalidFile, LmabWarning


def rows(rng, n_sessions=60, longest=5, n_arms=4, values=(0.0, 1.0)):
    """Columns of a log, sorted by session and step."""
    lengths = rng.integers(1, longest + 1, size=n_sessions)
    n = lengths.sum()
    return {
        "session": np.repeat(np.arange(n_sessions) * 3, lengths),
        "step": np.concatenate([np.arange(length) for length in lengths]),
        "arm": rng.integers(n_arms, size=n),
        "reward": rng.choice(values, size=n),
    }


def in_memory(path, **how):
    """Read the log at once."""
    return lmab.Sessions.read(path, **how)


def shuffled(columns, rng):
    order = rng.permutation(len(columns["session"]))
    return {name: column[order] for name, column in columns.items()}


def written(path, columns):
    table = pa.table(columns)
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.parquet.write_table(table, path)
    return path


def sessions(log):
    """The sessions as a sorted list, with the names of the arms."""
    names = log.arm_labels or range(log.n_arms)
    return sorted(
        [(str(names[arm]), reward) for arm, reward in zip(one.arms.tolist(), one.rewards.tolist(), strict=True)]
        for one in log
    )


@pytest.fixture
def small(monkeypatch):
    """Partitions and buckets of a few steps."""
    monkeypatch.setattr(packing, "PARTITION", 50)
    monkeypatch.setattr(packing, "STEPS", 30)
    monkeypatch.setattr("lmab.data.loading._ROWS", 17)


@pytest.mark.parametrize("step", [None, "step"])
@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_sorted_numeric_logs_keep_their_order(small, tmp_path, rng, suffix, step):
    path = written(tmp_path / f"log{suffix}", rows(rng))
    packed, log = lmab.pack(path, tmp_path / "packed", step=step), in_memory(path, step=step)
    assert packed.load() == log
    assert len(packed.manifest.partitions) > 1
    assert Fingerprint.of(packed) == Fingerprint.of(log)
    assert packed.plays.tolist() == log.plays.tolist()
    assert (packed.horizon, packed.median_length) == (log.horizon, np.median(log.lengths))
    assert packed.share_of_length(3) == log.share_of_length(3) == (log.lengths >= 3).mean()
    assert not (tmp_path / "packed" / ".packing").exists()


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("ids", ["numbers", "text", "floats"])
def test_unsorted_logs_hold_the_same_sessions(small, tmp_path, rng, suffix, ids):
    columns = shuffled(rows(rng), rng)
    if ids == "text":
        columns["session"] = np.array([f"s{number}" for number in columns["session"]])
    if ids == "floats":
        columns["session"] = columns["session"] / 2 - 10
    path = written(tmp_path / f"log{suffix}", columns)
    packed, log = lmab.pack(path, tmp_path / "packed", step="step"), in_memory(path, step="step")
    assert sessions(packed.load()) == sessions(log)
    assert Fingerprint.of(packed) == Fingerprint.of(log)
    assert len(packed.manifest.partitions) > 1


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("kind", ["integers", "words", "times"])
def test_text_that_orders_steps_orders_them_as_in_memory(small, tmp_path, rng, suffix, kind):
    """Also where steps are sorted already; text that stands for integers counts as such only in CSV."""
    columns = shuffled(rows(rng), rng)
    shown = {
        "integers": lambda step: str(9 + step),
        "words": lambda step: "é" * (step % 3) + chr(ord("z") - step),
        "times": lambda step: f"2024-05-{1 + step:02d}T10:00:00.{step}+02:00 and a word",
    }[kind]
    columns["step"] = np.array([shown(step) for step in columns["step"].tolist()])
    path = written(tmp_path / f"log{suffix}", columns)
    if kind == "integers" and suffix == ".csv":
        path.write_text(path.read_text().replace('"9"', '" 9"', 1))  # the column is no longer one of integers
    packed, log = lmab.pack(path, tmp_path / "packed", step="step"), in_memory(path, step="step")
    assert sessions(packed.load()) == sessions(log)
    assert Fingerprint.of(packed) == Fingerprint.of(log)


def test_rows_of_a_session_without_steps_keep_their_order(small, tmp_path, rng):
    columns = shuffled(rows(rng), rng)
    path = written(tmp_path / "log.parquet", columns)
    assert sessions(lmab.pack(path, tmp_path / "packed").load()) == sessions(in_memory(path))


def test_a_session_may_go_on_in_another_file(small, tmp_path, rng):
    columns = rows(rng)
    half = len(columns["session"]) // 2
    for number, part in enumerate((slice(0, half), slice(half, None))):
        written(tmp_path / f"{number}.parquet", {name: column[part] for name, column in columns.items()})
    files = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    assert lmab.pack(files, tmp_path / "sorted").load() == in_memory(files)
    turned = lmab.pack(files[::-1], tmp_path / "turned", step="step").load()
    assert sessions(turned) == sessions(in_memory(files, step="step"))


def test_our_own_files_are_logs_of_their_own(small, tmp_path, rng):
    bandit = lmab.random_bandit(2, 6, rng=rng)
    logs = [lmab.simulate(bandit, lmab.Uniform(6), n_sessions=n, horizon=3, rng=rng) for n in (30, 20)]
    for number, log in enumerate(logs):
        lmab.Sessions(log.arms, log.rewards, log.offsets, 6 + number).write(tmp_path / f"{number}.parquet")
    files = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    packed = lmab.pack(files, tmp_path / "packed")
    assert packed.load() == in_memory(files)
    assert (len(packed), packed.n_arms) == (50, 7)


def test_labels_of_our_own_files_are_merged(tmp_path):
    logs = [lmab.Sessions([0, 1], [1.0, 0.0], [0, 2], 2, arm_labels=labels) for labels in (("b", "a"), ("c", "b"))]
    for number, log in enumerate(logs):
        log.write(tmp_path / f"{number}.parquet")
    files = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    packed = lmab.pack(files, tmp_path / "packed")
    assert packed.arm_labels == ("b", "a", "c")
    assert packed.load() == in_memory(files)
    lmab.Sessions([0], [1.0], [0, 1], 2).write(files[1])
    with pytest.raises(InvalidArgument, match="both logs must have arm labels, or none"):
        lmab.pack(files, tmp_path / "another")


@pytest.mark.parametrize("arms", [[10, 20, 40], [-1, 0, 1], [0, 1, 70_000], ["tea", "milk", "jam"], [0, 1, 2]])
@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_arms_get_the_numbers_and_labels_of_a_log_in_memory(tmp_path, rng, arms, suffix):
    columns = rows(rng, n_arms=3)
    columns["arm"] = np.array(arms)[columns["arm"]]
    path = written(tmp_path / f"log{suffix}", columns)
    packed, log = lmab.pack(path, tmp_path / "packed"), in_memory(path)
    assert packed.arm_labels == log.arm_labels
    assert packed.load() == log


def test_text_that_stands_for_the_same_number_is_the_same(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("session,arm,reward\n07,01,1\n7,1,0\n8,0,1\n")
    packed, log = lmab.pack(path, tmp_path / "packed"), in_memory(path)
    assert packed.load() == log
    assert len(packed) == 2
    path.write_text("session,arm,reward\n07,01,1\n7,1,0\nx,0,1\n")
    assert len(lmab.pack(path, tmp_path / "another")) == len(in_memory(path)) == 3


def test_known_labels_and_unknown_arms(tmp_path, rng):
    columns = rows(rng, n_arms=2)
    columns["arm"] = np.array(["b", "a"])[columns["arm"]]
    path = written(tmp_path / "log.parquet", columns)
    labels = ("c", "b", "a")
    assert lmab.pack(path, tmp_path / "packed", arm_labels=labels).load() == in_memory(path, arm_labels=labels)
    with pytest.raises(InvalidData, match="column 'arm' names an unknown arm, 'a', in row 0; 2 are known: 'b', 'c'"):
        lmab.pack(path, tmp_path / "another", arm_labels=("b", "c"))


@pytest.mark.parametrize("propensity", [None, "propensity"])
@pytest.mark.parametrize("missing", ["drop", "zero"])
@pytest.mark.parametrize("listed", [True, False])
def test_missing_rewards_and_at_most(small, tmp_path, rng, missing, propensity, listed, monkeypatch):
    if not listed:
        monkeypatch.setattr("lmab.data.packing.MAX_VALUES", 1)
    columns = rows(rng, values=(1.0, 2.0))
    columns["propensity"] = rng.uniform(0.1, 1.0, size=len(columns["arm"]))
    reward = pa.array(columns["reward"], mask=rng.random(len(columns["reward"])) < 0.1)
    path = written(tmp_path / "log.parquet", columns | {"reward": reward})
    how = {"missing": missing, "at_most": 4, "propensity": propensity}
    with pytest.warns(LmabWarning) as expected:
        log = in_memory(path, **how)
    with pytest.warns(LmabWarning) as found:
        packed = lmab.pack(path, tmp_path / "packed", **how)
    assert packed.load() == log
    assert [str(one.message) for one in found] == [str(one.message) for one in expected]
    with pytest.raises(InvalidData, match="column 'reward' has a missing value"):
        lmab.pack(path, tmp_path / "another")


def test_values_that_no_step_is_left_with_are_not_listed(tmp_path):
    columns = {"session": [0, 0, 1, 1], "arm": [0, 1, 0, 1], "reward": [1.0, 5.0, 2.0, 5.0]}
    path = written(tmp_path / "log.parquet", columns)
    packed = lmab.pack(path, tmp_path / "packed", at_most=1)
    assert packed.values.tolist() == [1.0, 2.0]
    assert packed.load() == in_memory(path, at_most=1)


def test_events_become_sessions(small, tmp_path, rng):
    n = 200
    columns = {
        "who": np.array([f"p{k}" for k in rng.integers(12, size=n)]),
        "when": 1.7e9 + rng.permutation(n) * 400,
        "arm": rng.integers(3, size=n),
        "reward": rng.integers(2, size=n).astype(float),
    }
    path = written(tmp_path / "log.parquet", columns)
    how = {"person": "who", "time": "when", "gap": "30m", "arm": "arm", "reward": "reward"}
    packed = lmab.pack(path, tmp_path / "packed", **how)
    assert sessions(packed.load()) == sessions(lmab.Sessions.from_events(path, **how))
    stamps = pa.array((columns["when"] * 1000).astype(np.int64)).cast(pa.timestamp("ms"))
    path = written(tmp_path / "stamps.parquet", columns | {"when": stamps})
    packed = lmab.pack(path, tmp_path / "stamps", **how)
    assert sessions(packed.load()) == sessions(lmab.Sessions.from_events(path, **how))
    with pytest.raises(InvalidArgument, match="time must be given with person"):
        lmab.pack(path, tmp_path / "another", time="when")


def test_many_distinct_rewards_are_kept_as_numbers(small, tmp_path, rng, monkeypatch):
    columns = rows(rng, n_sessions=200)
    monkeypatch.setattr("lmab.data.packing.MAX_VALUES", 100)
    columns["reward"] = rng.normal(size=len(columns["arm"]))
    path = written(tmp_path / "log.parquet", columns)
    packed, log = lmab.pack(path, tmp_path / "packed"), in_memory(path)
    assert packed.values is None
    assert packed.load() == log
    assert packed.one_reward is None
    assert packed.plays.tolist() == log.plays.tolist()
    assert Fingerprint.of(packed) == Fingerprint.of(log)


@pytest.mark.parametrize(("n_arms", "size"), [(128, 1), (129, 2), (32_769, 4)])
def test_codes_are_as_small_as_arms_and_values_allow(tmp_path, n_arms, size):
    arms = np.array([[0, n_arms - 1], [n_arms // 2, 1]])
    log = lmab.Sessions.from_arrays(arms, np.array([[0.0, 1.0], [1.0, 0.0]]), n_arms=n_arms)
    packed = lmab.pack(log, tmp_path / "packed")
    assert packed.manifest.code_bytes == size
    assert packed.load() == log


def test_rows_with_the_same_step_are_told_once(small, tmp_path, rng):
    columns = rows(rng)
    columns["step"] = columns["step"] // 2
    columns["reward"] = np.arange(len(columns["arm"])) / 8  # no row is a copy
    for name, made in (("sorted", columns), ("shuffled", shuffled(columns, rng))):
        path = written(tmp_path / f"{name}.parquet", made)
        with pytest.warns(LmabWarning) as expected:
            in_memory(path, step="step")
        with pytest.warns(LmabWarning, match="rows have the same 'step'") as found:
            lmab.pack(path, tmp_path / name, step="step")
        assert str(found[0].message) == str(expected[0].message)
        assert len(found) == 1


def test_text_and_numbers_do_not_mix(tmp_path):
    one = written(tmp_path / "1.parquet", {"session": ["a"], "arm": [0], "reward": [1.0]})
    two = written(tmp_path / "2.parquet", {"session": [1], "arm": [0], "reward": [1.0]})
    three = written(tmp_path / "3.parquet", {"session": ["a"], "arm": ["x"], "reward": [1.0]})
    with pytest.raises(InvalidData, match="column 'session' must hold text or numbers in all files"):
        lmab.pack([one, two], tmp_path / "packed")
    with pytest.raises(InvalidData, match="must hold text or numbers in all files"):
        lmab.pack([one, three], tmp_path / "another")


@given(data=st.data())
def test_sessions_in_memory_keep_their_order(tmp_path_factory, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    lengths = rng.integers(1, 6, size=data.draw(st.integers(1, 20)))
    n = int(lengths.sum())
    labels = ("x", "y", "z") if data.draw(st.booleans()) else None
    own = rng.uniform(0.1, 1, size=n) if data.draw(st.booleans()) else None
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    log = lmab.Sessions(rng.integers(3, size=n), rng.integers(3, size=n) - 1.0, offsets, 3, own, labels)
    folder = tmp_path_factory.mktemp("packed")
    packed = lmab.pack(log, folder / "whole")
    assert packed.load() == log
    assert lmab.pack(iter(log), folder / "parts").load() == log
    picked = rng.integers(len(log), size=7)
    assert packed[picked] == log[picked]
    assert packed[-1] == log[-1]
    assert packed[::2] == log[::2]


def test_sessions_that_differ_or_come_once(tmp_path, rng):
    one, two = (lmab.Sessions([0], [1.0], [0, 1], n) for n in (2, 3))
    with pytest.raises(InvalidArgument, match="the logs must have the same arms and labels"):
        lmab.pack([one, two], tmp_path / "packed")
    many = lmab.Sessions.from_arrays(np.zeros((2000, 3), int), rng.normal(size=(2000, 3)))
    assert lmab.pack(iter([many]), tmp_path / "another").load() == many
    assert lmab.pack([many], tmp_path / "third").load() == many


def test_a_folder_that_holds_something_else(tmp_path, rng):
    path = written(tmp_path / "log.parquet", rows(rng))
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "letter.txt").write_text("dear")
    with pytest.raises(InvalidFile, match="it holds other files"):
        lmab.pack(path, tmp_path / "used")
    packed = lmab.pack(path, tmp_path / "packed")
    assert repr(lmab.pack(path, tmp_path / "packed")) == repr(packed)  # done already
    with pytest.raises(InvalidFile, match="holds another packed log"):
        lmab.pack(path, tmp_path / "packed", at_most=2)
    with pytest.raises(InvalidData, match="at least one row"):
        lmab.pack(written(tmp_path / "empty.parquet", pa.table(rows(rng)).slice(0, 0)), tmp_path / "nothing")


KILLED = """
import os, signal, sys
import lmab
from lmab.data import packing

def killed(self, log):
    os.kill(os.getpid(), signal.SIGKILL)

packing.Writer.add = killed
lmab.pack(sys.argv[1], sys.argv[2], step="step")
"""


@pytest.mark.parametrize("changed", [False, True])
def test_a_run_that_was_killed_starts_again(small, tmp_path, rng, changed):
    path = written(tmp_path / "log.parquet", shuffled(rows(rng, n_sessions=120), rng))
    run = subprocess.run([sys.executable, "-c", KILLED, path, tmp_path / "packed"], check=False, capture_output=True)
    assert run.returncode == -signal.SIGKILL, run.stderr.decode()
    with pytest.raises(InvalidFile, match="its packing was not finished"):
        lmab.Packed(tmp_path / "packed")
    if changed:
        written(path, rows(rng, n_sessions=90))
    packed = lmab.pack(path, tmp_path / "packed", step="step")
    assert packed.load() == in_memory(path, step="step")
    assert not (tmp_path / "packed" / ".packing").exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("exists", [False, True])
def test_a_run_that_was_stopped_leaves_nothing_behind(tmp_path, rng, monkeypatch, error, exists):
    def stopped(*arguments):
        raise error

    path = written(tmp_path / "log.parquet", rows(rng))
    if exists:
        (tmp_path / "packed").mkdir()
    monkeypatch.setattr(packing.Writer, "seal", stopped)
    with pytest.raises(error):
        lmab.pack(path, tmp_path / "packed")
    assert (tmp_path / "packed").exists() == exists
    assert not exists or not os.listdir(tmp_path / "packed")


def test_memory_is_a_limit_of_sorting(tmp_path, rng):
    path = written(tmp_path / "log.parquet", shuffled(rows(rng, n_sessions=3000), rng))
    assert lmab.pack(path, tmp_path / "packed", step="step", memory="64MB").load() == in_memory(path, step="step")
    for memory in ("much", "1KB", 0, True):
        with pytest.raises(InvalidArgument, match="memory must be at least 1 MB"):
            lmab.pack(path, tmp_path / "another", memory=memory)


@pytest.mark.parametrize(
    "made",
    [
        {"session": [1, 1, 2, 2], "step": [1, 0, 0, 1]},  # steps of a session
        {"session": [2, 3, 1, 2], "step": [0, 0, 0, 1]},  # sessions, where two batches meet
    ],
)
def test_rows_out_of_order_are_noticed(tmp_path, monkeypatch, made):
    monkeypatch.setattr("lmab.data.loading._ROWS", 2)
    path = written(tmp_path / "log.parquet", made | {"arm": [0, 1, 2, 3], "reward": [0.0, 1.0, 1.0, 0.0]})
    expected = sessions(in_memory(path, step="step"))
    assert sessions(lmab.pack(path, tmp_path / "packed", step="step").load()) == expected


FULL = """
import resource, signal, sys
import lmab

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
try:
    lmab.pack(sys.argv[1], sys.argv[2])
except lmab.errors.InvalidFile as error:
    print(error)
"""


@pytest.mark.parametrize("limit", [100, 3000, 20_000])
@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_a_disk_that_is_full_leaves_nothing_that_is_read(tmp_path, rng, limit, order):
    columns = rows(rng, n_sessions=4000)
    path = written(tmp_path / "log.parquet", columns if order == "sorted" else shuffled(columns, rng))
    command = [sys.executable, "-c", textwrap.dedent(FULL), path, tmp_path / "packed", str(limit)]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    if limit < 20_000 or order == "shuffled":
        assert "cannot write here" in run.stdout
        assert "nothing half-written is ever read" in run.stdout
        assert not (tmp_path / "packed").exists()
    assert sessions(lmab.pack(path, tmp_path / "packed").load()) == sessions(in_memory(path))
    assert sorted(os.listdir(tmp_path / "packed"))[0] == "00000.codes"


def test_the_unit_of_times_is_that_of_the_whole_log(tmp_path, monkeypatch):
    """Milliseconds in the first batch, and in the last one a clock that was not set."""
    monkeypatch.setattr("lmab.data.loading._ROWS", 2)
    columns = {
        "who": list("aabb"),
        "when": [1.7e12, 1.7e12 + 60_000, 5.0, 1_000.0],
        "arm": [0] * 4,
        "reward": [1.0] * 4,
    }
    path = written(tmp_path / "log.parquet", columns)
    how = {"person": "who", "time": "when", "gap": "30m", "arm": "arm", "reward": "reward"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LmabWarning)  # that the unit was guessed
        packed, log = lmab.pack(path, tmp_path / "packed", **how), lmab.Sessions.from_events(path, **how)
    assert len(log) == len(packed.load()) == 2


@pytest.fixture
def known(rng):
    """Sessions of which everything is known that can be: a log in memory, and its rows."""
    n, lengths = 60, rng.integers(1, 5, 60)
    features = {"land": [("de", "fr", None)[i % 3] for i in range(n)], "age": rng.integers(20, 30, n).astype(float)}
    arms = np.where(np.arange(4) < lengths[:, None], rng.integers(0, 3, (n, 4)), -1)
    ended = np.where(lengths == 4, "unknown", "left")
    return lmab.Sessions.from_arrays(
        arms, rng.integers(0, 2, (n, 4)) * 1.0, features=features, persons=rng.integers(0, 20, n), ended=ended
    )


def told(log):
    """What is known of each session, in any order."""
    columns = (log.features["land"], log.features["age"], log.ended, log.lengths)
    return sorted(repr(tuple(map(str, row))) for row in zip(*columns, strict=True))


@pytest.mark.parametrize("how", ["memory", "ours", "sorted", "shuffled", "csv"])
def test_what_is_known_of_sessions_is_packed(small, tmp_path, rng, known, how):
    if how == "memory":
        packed = lmab.pack(known, tmp_path / "packed")
    else:
        path = tmp_path / ("log.csv" if how == "csv" else "log.parquet")
        known.write(path)
        if how in ("sorted", "shuffled"):
            table = pyarrow.parquet.read_table(path).replace_schema_metadata(None)
            order = np.arange(len(table)) if how == "sorted" else rng.permutation(len(table))
            pyarrow.parquet.write_table(table.take(order), path)
        names = {"features": ["land", "age"], "person": "person", "ended": "ended", "step": "step"}
        packed = lmab.pack(path, tmp_path / "packed", **({} if how == "ours" else names))
    again = packed.load()
    assert len(packed.manifest.partitions) > 1
    if how in ("memory", "ours", "sorted"):
        assert again == known
        assert packed[[5, 2]] == known[[5, 2]]
    else:
        assert told(again) == told(known)
    if how != "csv":  # where persons are text, and become a hash
        assert Fingerprint.of(packed) == Fingerprint.of(known) == Fingerprint.of(again)
    assert packed.ended.tolist() == again.ended.tolist()
    assert len(set(packed.persons.tolist())) == len(set(known.persons.tolist()))


def test_a_limit_and_strangers_are_packed(tmp_path, known):
    bare = dataclasses.replace(known, endings=None, features=None, persons=[None] * 60)
    bare.write(tmp_path / "log.parquet")
    packed = lmab.pack(tmp_path / "log.parquet", tmp_path / "packed", limit=4, at_most=3)
    lengths = dict(zip(("left", "went on"), (known.lengths < 4, known.lengths == 4), strict=True))
    for word, count in lengths.items():
        assert (packed.ended == word).sum() == count.sum()
    assert set(packed.persons.tolist()) == {STRANGER}
    assert len(set(person_numbers(packed.persons).tolist())) == 60
    assert Fingerprint.of(lmab.pack(bare, tmp_path / "memory")) == Fingerprint.of(bare)


def test_ends_that_are_unknown_of_some_only_are_not_packed(small, tmp_path, known):
    rows = pd.DataFrame({"session": np.repeat(np.arange(60), known.lengths), "step": known.steps, "arm": known.arms})
    rows = rows.assign(reward=known.rewards, ended=np.repeat(known.ended, known.lengths))
    rows.loc[rows["session"] == int(known.lengths.argmin()), "ended"] = "unknown"
    rows.to_csv(tmp_path / "log.csv", index=False)
    names = {"ended": "ended", "step": "step"}
    with pytest.raises(InvalidData, match="only of all sessions at the limit of the log"):
        lmab.pack(tmp_path / "log.csv", tmp_path / "packed", **names)


@pytest.mark.parametrize("sessions", [[7, 7, 8, 8], [8, 8, 7, 7], ["s7", "s7", "s8", "s8"]])
@pytest.mark.parametrize(("column", "how"), [("land", {"features": ["age", "land"]}), ("who", {"person": "who"})])
def test_a_column_that_changes_within_a_session_names_the_session(tmp_path, sessions, column, how):
    changes = [sessions[0], sessions[2]].index(8 if isinstance(sessions[0], int) else "s8")
    columns = {
        "session": sessions, "arm": [0, 1, 0, 1], "reward": [1.0, 0.0, 1.0, 0.0], "age": [30, 30, 40, 40],
        column: ["a", "b", "c", "c"] if changes == 0 else ["c", "c", "a", "b"],
    }  # fmt: skip
    path = written(tmp_path / "log.parquet", columns)
    told = []
    for read in (lambda: lmab.pack(path, tmp_path / "packed", **how), lambda: lmab.Sessions.read(path, **how)):
        with pytest.raises(InvalidData, match=f"column '{column}' must have one value in a session") as error:
            read()
        told.append(str(error.value))
    assert told[0] == told[1]
    assert f"got several in session {sessions[2 * changes]!r}:" in told[0]


def test_a_feature_that_changes_within_a_session_of_events_names_the_person(tmp_path):
    columns = {"who": ["ann", "bob", "bob"], "at": [0, 0, 60], "arm": [0, 1, 0], "reward": [1.0, 0.0, 1.0]}
    path = written(tmp_path / "log.parquet", {**columns, "land": ["de", "de", "fr"]})
    how = {"person": "who", "time": "at", "features": ["land"]}
    with pytest.raises(InvalidData, match="'land' must have one value in a session, got several in a session of "
                       "person 'bob'"):  # fmt: skip
        lmab.pack(path, tmp_path / "packed", **how)


@pytest.mark.parametrize("sorted_", [True, False])
def test_rows_where_a_value_is_missing_say_nothing(small, tmp_path, rng, sorted_):
    """Each session has its values in some of its rows only, and never all in one."""
    n = 60
    sessions = np.repeat(np.arange(n), 4)
    land, age, who = (np.repeat(rng.integers(0, size, n), 4) for size in (3, 5, 20))
    columns = {
        "session": sessions, "arm": rng.integers(0, 3, 4 * n), "reward": rng.integers(0, 2, 4 * n) * 1.0,
        "step": np.tile(np.arange(4), n),
        "land": [f"l{one}" if place % 4 in (1, 3) else None for place, one in enumerate(land)],
        "age": [float(one) if place % 4 in (0, 2) else None for place, one in enumerate(age)],
        "who": [f"p{one}" if place % 4 == 2 else None for place, one in enumerate(who)],
    }  # fmt: skip
    order = np.arange(4 * n) if sorted_ else rng.permutation(4 * n)
    path = written(
        tmp_path / "log.parquet", {name: [list(values)[i] for i in order] for name, values in columns.items()}
    )
    how = {"features": ["land", "age"], "person": "who", "step": "step"}
    packed = lmab.pack(path, tmp_path / "packed", **how)
    with nullcontext() if sorted_ else pytest.warns(LmabWarning, match="begins? in a later row"):
        known = lmab.Sessions.read(path, **how)
    assert len(packed.manifest.partitions) > 1
    numbers = [person_numbers(log.persons) for log in (packed, known)]
    assert len(set(numbers[0].tolist())) == len(set(numbers[1].tolist())) == len(set(who.tolist()))
    if sorted_:
        assert packed.features == known.features
        np.testing.assert_array_equal(packed.persons, person_ids(known.persons))
    pairs = [sorted(zip(*(log.features[name].tolist() for name in ("land", "age")), strict=True))
             for log in (packed, known)]  # fmt: skip
    assert pairs[0] == pairs[1]
    assert Fingerprint.of(packed) == Fingerprint.of(packed.load())


@pytest.mark.parametrize("cells", ["1,2,3", " 1,2, 3", "1_000,2,3", "+1,.5,1e3", "1,nan,3", "a,inf,b"])
def test_texts_are_the_same_numbers_as_in_memory(tmp_path, cells):
    lines = [f"{session},0,1,{cell}" for session, cell in enumerate(cells.split(","))]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["session,arm,reward,x", *lines]))
    packed = lmab.pack(path, tmp_path / "packed", features=["x"])
    assert packed.features == lmab.Sessions.read(path, features=["x"]).features


def test_names_and_their_hashes_give_persons_the_same_numbers(tmp_path, rng):
    """So that a packed log, which keeps a hash of names, is fitted to the same bits as the log in memory."""
    names = [None if one == 3 else f"p{one}" for one in rng.integers(0, 20, 60)]
    log = lmab.Sessions.from_arrays(rng.integers(0, 3, (60, 4)), rng.integers(0, 2, (60, 4)) * 1.0, persons=names)
    packed = lmab.pack(log, tmp_path / "packed")
    np.testing.assert_array_equal(person_numbers(packed.persons), person_numbers(log.persons))
    found = [lmab.fit(one, n_types=2, rng=0, check=False) for one in (log, packed)]
    assert found[0].message == found[1].message
    assert found[0].log_likelihood == found[1].log_likelihood


@pytest.mark.parametrize("batch", [2, 1000])
def test_persons_whose_numbers_do_not_rise_with_time_are_told(tmp_path, monkeypatch, batch):
    monkeypatch.setattr("lmab.data.loading._ROWS", batch)
    columns = {"session": np.repeat([1, 2, 3], 2), "arm": [0, 1] * 3, "reward": [1.0, 0.0] * 3}
    columns |= {"who": ["a", "a", None, None, "a", "a"], "at": pd.to_datetime([3, 4, 5, 6, 1, 2], unit="h")}
    names = {"person": "who", "step": "at"}
    with pytest.warns(LmabWarning, match="which is not that of their steps: give sessions numbers that rise"):
        lmab.pack(written(tmp_path / "log.parquet", columns), tmp_path / "packed", **names)
    for name, other in {"late": [3, 4, 1, 2, 5, 6], "positions": [0, 1] * 3}.items():
        path = written(tmp_path / f"{name}.parquet", columns | {"at": other})
        assert len(lmab.pack(path, tmp_path / name, **names)) == 3


def test_an_infinite_feature_is_not_packed(tmp_path):
    (tmp_path / "log.csv").write_text("session,arm,reward,x\n1,0,1,3\n2,1,0,inf\n")
    with pytest.raises(InvalidData, match=r"features\['x'\] must hold finite numbers, got inf"):
        lmab.pack(tmp_path / "log.csv", tmp_path / "packed", features=["x"])


def test_every_digit_of_a_person_counts(tmp_path):
    ids = [2**60 + 1, 2**60, 2**60 + 2]  # the same number in floating point
    columns = {"session": [0, 1, 2], "arm": [0, 1, 0], "reward": [1.0, 0.0, 1.0], "who": ids}
    packed = lmab.pack(written(tmp_path / "log.parquet", columns), tmp_path / "packed", person="who")
    assert packed.persons.tolist() == ids
    parts = {**columns, "who": [1.5, 1.7, 2.0]}
    with pytest.raises(InvalidData, match="persons must be all integers or all text"):
        lmab.pack(written(tmp_path / "floats.parquet", parts), tmp_path / "floats", person="who")


def test_too_many_rows_of_features_are_not_packed(tmp_path, known, monkeypatch):
    monkeypatch.setattr("lmab.data.packing.MAX_FEATURE_ROWS", 5)
    with pytest.raises(InvalidData, match="at most 5 distinct rows to be packed"):
        lmab.pack(known, tmp_path / "packed")


def test_the_last_row_of_a_session_says_how_it_ended(tmp_path):
    (tmp_path / "log.csv").write_text("session,arm,reward,end\n1,0,1,went on\n1,1,0,left\n2,0,1,went on\n")
    packed = lmab.pack(tmp_path / "log.csv", tmp_path / "packed", ended="end")
    assert packed.ended.tolist() == ["left", "went on"]
