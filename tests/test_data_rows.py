"""Logs that are read in one pass: what is read, and how much memory it takes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from test_data_packing import in_memory, rows, shuffled, written

import lmab
from lmab.data import ingest
from lmab.data import rows as reading
from lmab.errors import InvalidData, LmabWarning


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr("lmab.data.log_files.BATCH", 17)
    monkeypatch.setattr(reading, "_ROWS", 20)


@pytest.fixture
def in_one_pass(monkeypatch):
    """The usual way is closed."""

    def closed(*arguments):
        raise AssertionError("the log was not read in one pass")

    monkeypatch.setattr(ingest, "read", closed)


@pytest.fixture(params=["one pass", "usual way"])
def either_way(request, monkeypatch):
    """Logs are read in one pass, or in the way that takes all logs."""
    if request.param == "usual way":

        def closed(*arguments):
            raise InvalidData("not in one pass")

        monkeypatch.setattr(reading, "_sorted", closed)
    else:
        request.getfixturevalue("in_one_pass")


def test_text_labels_make_digits_names_either_way(tmp_path, either_way):
    (tmp_path / "log.csv").write_text("session,arm,reward\n1,7,0\n1,11,1\n")
    assert lmab.Sessions.read(tmp_path / "log.csv", arm_labels=("11", "7")).arms.tolist() == [1, 0]
    assert lmab.Sessions.read(tmp_path / "log.csv", arm_labels=(7, 11)).arms.tolist() == [0, 1]


def test_our_own_files_keep_arms_that_were_never_played_either_way(tmp_path, either_way):
    own = lmab.Sessions([1, 0], [1.0, 0.0], [0, 1, 2], n_arms=5)
    own.write(tmp_path / "own.parquet")
    assert lmab.Sessions.read(tmp_path / "own.parquet") == own


def test_given_labels_come_before_those_of_our_own_file_either_way(tmp_path, either_way):
    lmab.Sessions([1, 0], [1.0, 0.0], [0, 1, 2], 2, arm_labels=("a", "b")).write(tmp_path / "own.parquet")
    read = lmab.Sessions.read(tmp_path / "own.parquet", arm_labels=("b", "c", "a"))
    assert (read.arm_labels, read.arms.tolist()) == (("b", "c", "a"), [0, 2])


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("step", [None, "step"])
@pytest.mark.parametrize("arms", [[0, 1, 2, 3], [5, 0, 9, 7], ["d", "a", "c", "b"], [0, -1, 90_000, 2]])
def test_sorted_logs_are_read_as_always(tmp_path, rng, suffix, step, arms, monkeypatch):
    columns = rows(rng)
    columns["arm"] = np.array(arms)[columns["arm"]]
    path = written(tmp_path / f"log{suffix}", columns)
    expected = in_memory(path, step=step)
    monkeypatch.setattr(ingest, "read", None)  # it would be called where one pass is not enough
    assert lmab.Sessions.read(path, step=step) == expected


def test_several_files_and_our_own(tmp_path, rng, in_one_pass):
    columns = rows(rng)
    half = len(columns["session"]) // 2
    for number, part in enumerate((slice(0, half), slice(half, None))):
        written(tmp_path / f"{number}.parquet", {name: column[part] for name, column in columns.items()})
    whole = lmab.Sessions.read(written(tmp_path / "whole.parquet", columns))
    assert lmab.Sessions.read([tmp_path / "0.parquet", tmp_path / "1.parquet"]) == whole
    own = [lmab.Sessions([1, 0], [1.0, 0.0], [0, 1, 2], 2, arm_labels=labels) for labels in (("b", "a"), ("c", "b"))]
    for number, log in enumerate(own):
        log.write(tmp_path / f"own{number}.parquet")
    read = lmab.Sessions.read([tmp_path / "own0.parquet", tmp_path / "own1.parquet"])
    assert read == own[0] + own[1]


@pytest.mark.parametrize("missing", ["drop", "zero"])
def test_missing_rewards_propensities_and_ties(tmp_path, rng, missing):
    columns = rows(rng)
    columns |= {"propensity": rng.uniform(0.1, 1, size=len(columns["arm"])), "step": columns["step"] // 2}
    reward = pa.array(columns["reward"], mask=rng.random(len(columns["reward"])) < 0.1)
    path = written(tmp_path / "log.parquet", columns | {"reward": reward})
    how = {"missing": missing, "at_most": 4, "propensity": "propensity", "step": "step"}
    with pytest.warns(LmabWarning) as expected:
        log = in_memory(path, **how)
    with pytest.warns(LmabWarning) as found:
        assert lmab.Sessions.read(path, **how) == log
    assert [str(one.message) for one in found] == [str(one.message) for one in expected]


def test_whatever_is_unusual_is_left_to_the_usual_way(tmp_path, rng, monkeypatch):
    seen = []
    original = ingest.read

    def noted(*arguments):
        seen.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(ingest, "read", noted)
    columns = shuffled(rows(rng), rng)
    path = written(tmp_path / "log.parquet", columns)
    assert lmab.Sessions.read(path, step="step") == in_memory(path, step="step")
    names = {"session": np.array([f"s{one}" for one in columns["session"]])}
    path = written(tmp_path / "text.parquet", columns | names)
    assert lmab.Sessions.read(path) == in_memory(path)
    path = written(tmp_path / "wrong.parquet", {"session": [0, 1], "arm": [0, 1], "reward": [1.0, np.inf]})
    with pytest.raises(InvalidData, match="column 'reward' must be finite, got inf in row 1"):
        lmab.Sessions.read(path)
    assert len(seen) == 5


PEAK = """
import resource, sys
import lmab
lmab.Sessions.read(sys.argv[2])
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
log = lmab.Sessions.read(sys.argv[1])
print((peak() - before) / log.n_steps)
"""


def test_reading_takes_little_more_than_the_log_itself(tmp_path, rng, monkeypatch):
    monkeypatch.undo()
    n = 1 << 19
    columns = {
        "session": np.repeat(np.arange(n), 8),
        "arm": rng.integers(0, 100, size=8 * n).astype(np.int16),
        "reward": (rng.random(8 * n) < 0.5).astype(float),
    }
    path = written(tmp_path / "log.parquet", columns)
    few = written(tmp_path / "few.parquet", {name: column[: 1 << 18] for name, column in columns.items()})
    run = subprocess.run([sys.executable, "-c", PEAK, path, few], check=True, capture_output=True, text=True)
    assert float(run.stdout) < 16


def test_the_same_numbers_in_two_logs_are_two_sessions_where_rows_are_put_together_by_hash():
    way, numbers = reading.Way(split=True), np.arange(5)
    first, again, other = (reading._ids(numbers, None, way, False, file) for file in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not (first == other).any()


def test_values_of_all_batches_together_are_counted(monkeypatch):
    monkeypatch.setattr(reading, "MAX_VALUES", 3)
    known = reading.Dictionaries()
    assert known.value_places(np.array([1.0, 0.0, 1.0])).tolist() == [1, 0, 1]
    assert known.value_places(np.array([2.0, 0.0])).tolist() == [2, 0]
    with pytest.raises(reading.Change) as change:
        known.value_places(np.array([0.0, 5.0]))
    assert change.value.changes == {"listed": False}
    assert known.values == [0.0, 1.0, 2.0]
