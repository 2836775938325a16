from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import logs

from lmab import Sessions
from lmab.data import loading, sessions
from lmab.data.sessions import sample_rows
from lmab.errors import InvalidArgument, InvalidData, InvalidFile

FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}
COLUMNS: dict[str, Any] = {"session": "e", "arm": "a", "reward": "r", "step": "t"}


@pytest.fixture(params=FRAMES)
def frame(request):
    return FRAMES[request.param]


def test_from_arrays_skips_unplayed_steps():
    sessions = Sessions.from_arrays([[0, -1, 2], [1, 1, -1]], [[1.0, 9.0, 0.5], [0.0, 1.0, 9.0]])
    assert (len(sessions), sessions.n_steps, sessions.n_arms, sessions.horizon) == (2, 4, 3, 2)
    np.testing.assert_array_equal(sessions.arms, [0, 2, 1, 1])
    np.testing.assert_array_equal(sessions.rewards, [1.0, 0.5, 0.0, 1.0])
    np.testing.assert_array_equal(sessions.offsets, [0, 2, 4])


def test_from_arrays_keeps_propensities():
    sessions = Sessions.from_arrays([[0, -1], [1, 1]], np.ones((2, 2)), propensities=[[0.5, 0], [0.25, 1]])
    np.testing.assert_array_equal(sessions.propensities, [0.5, 0.25, 1.0])


def test_from_frame_sorts_by_session_and_step(frame):
    data = {"e": [2, 1, 2, 1], "t": [1, 0, 0, 1], "a": [3, 0, 2, 1], "r": [0.3, 0.0, 0.2, 0.1]}
    sessions = Sessions.from_frame(frame(data), **COLUMNS)
    np.testing.assert_array_equal(sessions.arms, [0, 1, 2, 3])
    np.testing.assert_array_equal(sessions.rewards, [0.0, 0.1, 0.2, 0.3])
    np.testing.assert_array_equal(sessions.offsets, [0, 2, 4])


def test_without_a_step_column_rows_keep_their_order(frame):
    data = {"e": ["b", "a", "b", "a"], "a": [3, 0, 2, 1], "r": [1, 0, 0, 1]}
    sessions = Sessions.from_frame(frame(data), session="e", arm="a", reward="r")
    np.testing.assert_array_equal(sessions.arms, [0, 1, 3, 2])


def test_string_arms_get_sorted_labels(frame):
    data = {"e": [1, 1, 2], "t": [0, 1, 0], "a": ["tea", "milk", "tea"], "r": [True, False, True]}
    sessions = Sessions.from_frame(frame(data), **COLUMNS)
    assert sessions.arm_labels == ("milk", "tea")
    np.testing.assert_array_equal(sessions.arms, [1, 0, 1])
    np.testing.assert_array_equal(sessions.rewards, [1.0, 0.0, 1.0])


def test_integers_are_labels_unless_they_are_dense_from_0(frame):
    def labels(arms):
        data = frame({"e": [1, 2], "a": arms, "r": [0.0, 1.0]})
        return Sessions.from_frame(data, session="e", arm="a", reward="r").arm_labels

    assert labels([1, 0]) is None
    assert labels([0, 0]) is None
    assert labels([0, 2]) == (0, 2)
    assert labels([2, 1]) == (1, 2)
    assert labels([10**9, 4711]) == (4711, 10**9)
    assert labels([-1, 0]) == (-1, 0)


def test_many_dense_integers_are_numbers():
    arms = np.arange(5000)
    data = pa.table({"e": arms, "a": arms, "r": np.zeros(5000)})
    assert Sessions.from_frame(data, session="e", arm="a", reward="r").arm_labels is None


def test_times_may_be_steps(frame):
    times = pd.to_datetime(["2024-01-02", "2024-01-01"]).to_pydatetime().tolist()
    data = frame({"e": ["x", "x"], "t": times, "a": [1, 0], "r": [1.0, 0.0]})
    np.testing.assert_array_equal(Sessions.from_frame(data, **COLUMNS).arms, [0, 1])


def test_known_labels_fix_the_table(frame):
    data = frame({"e": [1, 2], "t": [0, 0], "a": ["tea", "milk"], "r": [0, 1]})
    sessions = Sessions.from_frame(data, **COLUMNS, arm_labels=("water", "tea", "milk"))
    np.testing.assert_array_equal(sessions.arms, [1, 2])
    assert sessions.n_arms == 3
    with pytest.raises(InvalidData, match="column 'a' names an unknown arm, 'milk', in row 1"):
        Sessions.from_frame(data, **COLUMNS, arm_labels=("tea",))


def test_pandas_categories_are_labels():
    data = pd.DataFrame({"e": [1, 2], "a": pd.Categorical(["x", "y"]), "r": [0.0, 1.0]})
    assert Sessions.from_frame(data, session="e", arm="a", reward="r").arm_labels == ("x", "y")


BAD_FRAMES = [
    ({"e": [1, None], "t": [0, 1], "a": [0, 1], "r": [0.0, 1.0]}, "column 'e' has a missing value in row 1"),
    ({"e": [1, 1], "t": [0, 1], "a": ["x", None], "r": [0.0, 1.0]}, "column 'a' has a missing value in row 1"),
    ({"e": [1, 1], "t": [0, 1], "a": [0, 1], "r": [None, 1.0]}, "column 'r' .* row 0"),
    ({"e": [1, 1], "t": [0, 1], "a": [0, 1], "r": [0.0, np.inf]}, "column 'r' must be finite, got inf in row 1"),
    ({"e": [1, 1], "t": [0, 1], "a": [0, 1], "r": ["a", "b"]}, "column 'r' must hold numbers, got .* in row 0"),
    ({"e": [1, 1], "t": [0, 1], "a": [0.5, 1.5], "r": [0, 1]}, "column 'a' must hold integers or text"),
    ({"e": [1, 1], "t": [0, 1], "x": [0, 1], "r": [0, 1]}, "no column 'a'; its columns are 'e', 't', 'x', 'r'"),
]


@pytest.mark.parametrize(("data", "message"), BAD_FRAMES)
def test_bad_frames_name_column_and_row(frame, data, message):
    with pytest.raises(InvalidData, match=message):
        Sessions.from_frame(frame(data), **COLUMNS)


def test_empty_frames(frame):
    data = {name: np.array([], dtype=float) for name in "etar"}
    with pytest.raises(InvalidData, match="at least one row"):
        Sessions.from_frame(frame(data), **COLUMNS)


def test_mixed_types_name_the_column():
    with pytest.raises(InvalidData, match="'a'"):
        Sessions.from_frame(pd.DataFrame({"e": [1, 2], "t": [0, 0], "a": [1, "x"], "r": [0, 1]}), **COLUMNS)


def test_not_a_frame():
    with pytest.raises(InvalidData, match="must be a pandas, polars or pyarrow"):
        Sessions.from_frame([1, 2], **COLUMNS)


def test_propensities_must_be_probabilities(frame):
    data = frame({"e": [1, 2], "t": [0, 0], "a": [0, 1], "r": [0, 1], "p": [0.5, 0.0]})
    with pytest.raises(InvalidData, match=r"column 'p' must be in \(0, 1\], got 0.0 in row 1"):
        Sessions.from_frame(data, **COLUMNS, propensity="p")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (([[0, 1]], [[0.0]]), "same shape"),
        (([0, 1], [0.0, 1.0]), r"\(N, H\) arrays"),
        ((np.empty((0, 3), int), np.empty((0, 3))), "N, H >= 1"),
        ((np.empty((3, 0), int), np.empty((3, 0))), "N, H >= 1"),
        (([[0.5]], [[1.0]]), "arms must be integers"),
        (([[-1, -1]], [[0.0, 0.0]]), "at least one step per session, got none in row 0"),
        (([[0, 1]], [[0.0, np.nan]]), "rewards must be finite, got nan at step 1"),
    ],
)
def test_bad_arrays(arrays, message):
    with pytest.raises(ValueError, match=message):
        Sessions.from_arrays(*arrays)


def test_arms_out_of_range():
    with pytest.raises(ValueError, match=r"arms must be in 0\.\.1, got 2 at step 1"):
        Sessions.from_arrays([[0, 2]], [[0.0, 1.0]], n_arms=2)


@given(logs(), st.sampled_from([".parquet", ".csv"]))
def test_write_and_read_give_the_same_sessions(tmp_path_factory, sessions, suffix):
    path = tmp_path_factory.mktemp("logs") / f"log{suffix}"
    sessions.write(path)
    again = Sessions.read(path)
    if suffix == ".parquet":
        assert again == sessions
    assert called(again) == called(sessions)
    np.testing.assert_array_equal(again.rewards, sessions.rewards)
    np.testing.assert_array_equal(again.offsets, sessions.offsets)


def called(sessions: Sessions) -> list[str | int]:
    """What the arm of every step is called; the number of an arm without a label."""
    labels = sessions.arm_labels or range(sessions.n_arms)
    return [labels[arm] for arm in sessions.arms]


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_labels_and_propensities_survive_files(tmp_path, suffix):
    data = pa.table(
        {"e": [1, 1, 2], "t": [0, 1, 0], "a": ["b,", 'a"', "b,"], "r": [0.1, 0.2, 0.3], "p": [0.5, 1, 0.25]}
    )
    sessions = Sessions.from_frame(data, **COLUMNS, propensity="p")
    sessions.write(tmp_path / f"log{suffix}")
    assert Sessions.read(tmp_path / f"log{suffix}", propensity="propensity") == sessions


def test_bad_files_are_named(tmp_path):
    (tmp_path / "log.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(InvalidFile, match=r"log\.parquet: cannot be read as Parquet"):
        Sessions.read(tmp_path / "log.parquet")
    (tmp_path / "log.csv").write_bytes(b"")
    with pytest.raises(InvalidFile, match=r"log\.csv: empty: a log has"):
        Sessions.read(tmp_path / "log.csv")
    with pytest.raises(InvalidFile, match=r"log\.xlsx: no such file"):
        Sessions.read(tmp_path / "log.xlsx")
    (tmp_path / "log.xlsx").write_bytes(b"")
    with pytest.raises(InvalidFile, match="must end in"):
        Sessions.read(tmp_path / "log.xlsx")
    with pytest.raises(InvalidFile, match=r"none\.parquet"):
        Sessions.read(tmp_path / "none.parquet")


@given(logs(), st.data())
def test_indexing_is_like_a_list_of_sessions(sessions, data):
    pieces = list(sessions)
    chosen = data.draw(st.lists(st.integers(0, len(sessions) - 1), min_size=1, max_size=5))
    picked = sessions[np.array(chosen)]
    np.testing.assert_array_equal(picked.arms, np.concatenate([pieces[i].arms for i in chosen]))
    np.testing.assert_array_equal(picked.rewards, np.concatenate([pieces[i].rewards for i in chosen]))
    assert sessions[:] == sessions
    assert sessions[np.ones(len(sessions), bool)] == sessions
    assert sessions[-1] == pieces[-1]


@given(logs(), logs())
def test_sum_is_the_concatenation(a, b):
    both = a + b
    assert len(both) == len(a) + len(b)
    assert both[: len(a)] == a
    assert both[len(a) :] == b


def test_sum_merges_labels():
    def log(arms):
        data = pa.table({"e": np.arange(len(arms)), "a": arms, "r": np.zeros(len(arms))})
        return Sessions.from_frame(data, session="e", arm="a", reward="r")

    both = log(["a", "c"]) + log(["b", "c"])
    assert both.arm_labels == ("a", "c", "b")
    np.testing.assert_array_equal(both.arms, [0, 1, 2, 1])
    with pytest.raises(ValueError, match="both logs must have arm labels"):
        log(["a"]) + log([0])


def test_sum_wants_propensities_on_both_sides():
    a = Sessions.from_arrays([[0]], [[1.0]])
    with pytest.raises(ValueError, match="both logs must have propensities"):
        a + Sessions.from_arrays([[0]], [[1.0]], propensities=[[0.5]])


def test_split_parts_every_session(rng):
    sessions = Sessions.from_arrays(np.arange(10)[:, None], np.zeros((10, 1)))
    train, heldout = sessions.split(0.7, rng=rng)
    assert (len(train), len(heldout)) == (7, 3)
    np.testing.assert_array_equal(np.sort(np.concatenate([train.arms, heldout.arms])), np.arange(10))
    for fraction in (0.0, 1.0, 0.01, -1, 2):
        with pytest.raises(ValueError, match="fraction must leave"):
            sessions.split(fraction, rng=rng)


@given(logs())
def test_arrays_round_trip(sessions):
    arms, rewards = sessions.to_arrays()
    assert Sessions.from_arrays(arms, rewards, n_arms=sessions.n_arms) == sessions


@given(logs(), st.randoms(use_true_random=False))
def test_order_of_rows_does_not_matter(sessions, random):
    lengths = sessions.lengths
    data = {
        "e": np.repeat(np.arange(len(sessions)), lengths),
        "t": np.arange(sessions.n_steps) - np.repeat(sessions.offsets[:-1], lengths),
        "a": sessions.arms,
        "r": sessions.rewards,
    }
    rows = list(range(sessions.n_steps))
    random.shuffle(rows)
    shuffled = pa.table({name: values[rows] for name, values in data.items()})
    again = Sessions.from_frame(shuffled, **COLUMNS)
    assert called(again) == called(sessions)
    np.testing.assert_array_equal(again.rewards, sessions.rewards)
    np.testing.assert_array_equal(again.offsets, sessions.offsets)


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize("names", ["text", "integers"])
def test_files_are_read_in_batches(tmp_path, monkeypatch, rng, suffix, names):
    """A file of many small batches, with dictionaries merged on the way, gives what the frame gives."""
    n = 3000
    ids = rng.permutation(n) // 3
    arms, rewards = rng.integers(40, size=n) * 100 - 50, rng.integers(9, size=n) / 8
    data = {"e": ids, "t": rng.permutation(n), "a": arms, "r": rewards}
    if names == "text":
        data |= {"e": [f"user {e}" for e in ids], "a": [f"item {a}" for a in arms]}
    table = pa.table(data)
    path = tmp_path / f"log{suffix}"
    (pyarrow.csv.write_csv if suffix == ".csv" else pyarrow.parquet.write_table)(table, path)
    monkeypatch.setattr(loading, "_ROWS", 64)
    assert Sessions.read(path, **COLUMNS) == Sessions.from_frame(table, **COLUMNS)
    bad = table.set_column(3, "r", pa.array(np.where(np.arange(n) == 2500, np.inf, 0.0)))
    (pyarrow.csv.write_csv if suffix == ".csv" else pyarrow.parquet.write_table)(bad, path)
    where = "line 2502" if suffix == ".csv" else "row 2500"  # a line as an editor counts, the header is the first
    with pytest.raises(InvalidData, match=f"column 'r' must be finite, got inf in {where}$"):
        Sessions.read(path, **COLUMNS)


def test_a_csv_column_that_changes_its_mind(tmp_path):
    path = tmp_path / "log.csv"
    rows = [f"{k},{k % 3},{k % 2}" for k in range(200)]
    path.write_text("\n".join(["e,a,r", *rows, "x7,tea,0.5"]))
    sessions = Sessions.read(path, session="e", arm="a", reward="r")
    assert len(sessions) == 201
    assert sessions.arm_labels == ("0", "1", "2", "tea")
    assert sessions.rewards[-1] == 0.5
    path.write_text("\n".join(["e,a,r", *rows, "7,1,much"]))
    with pytest.raises(
        InvalidData, match=r"column 'r' must hold numbers, got string \('much' in line 202\): write yes"
    ):
        Sessions.read(path, session="e", arm="a", reward="r")


def test_labels_decide_what_digits_in_a_csv_are(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("e,a,r\n1,101,0\n2,205,1\n")
    columns: dict[str, Any] = {"session": "e", "arm": "a", "reward": "r"}
    assert Sessions.read(path, **columns).arm_labels == (101, 205)
    np.testing.assert_array_equal(Sessions.read(path, **columns, arm_labels=("205", "101")).arms, [1, 0])
    np.testing.assert_array_equal(Sessions.read(path, **columns, arm_labels=(205, 101)).arms, [1, 0])
    with pytest.raises(InvalidData, match="unknown arm, 205, in line 3; 1 are known: 101"):
        Sessions.read(path, **columns, arm_labels=(101,))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([b"\xff", b"a"], pa.binary()), "column 'a' cannot be used"),
        (pa.array([[1], [2]]), "column 'a' must hold integers or text"),
    ],
)
def test_strange_columns(column, message):
    with pytest.raises(InvalidData, match=message):
        Sessions.from_frame(pa.table({"e": [1, 2], "a": column, "r": [0, 1]}), session="e", arm="a", reward="r")


def test_bytes_are_text_and_decimals_numbers():
    rewards = pa.array([0.25, 1.0]).cast(pa.decimal128(5, 2))
    table = pa.table({"e": [5, 1], "a": pa.array([b"x", b"y"]), "r": rewards})
    sessions = Sessions.from_frame(table, session="e", arm="a", reward="r")
    assert sessions.arm_labels == ("x", "y")
    np.testing.assert_array_equal(sessions.rewards, [1.0, 0.25])


@pytest.mark.parametrize("low", [-(2**31), 0, 2**63])
def test_ids_and_steps_far_apart_sort_right(low):
    top = low + 2**32 - 1
    kind = pa.uint64() if low > 2**62 else pa.int64()
    table = pa.table({"e": pa.array([top, low, top], kind), "t": [2, 1, 1], "a": [2, 0, 1], "r": [0.0, 1.0, 2.0]})
    np.testing.assert_array_equal(Sessions.from_frame(table, **COLUMNS).arms, [0, 1, 2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offsets": [0, 2, 2, 3]}, "by at least 1 each"),
        ({"offsets": [1, 2, 3]}, "offsets must rise from 0"),
        ({"offsets": [0, 2]}, r"to the number of steps \(3\)"),
        ({"offsets": [0]}, "at least one session"),
        ({"rewards": [0.0, 1.0]}, "must have the same length, got 3 arms"),
        ({"propensities": [0.5, 1.0]}, "must have the same length, got 3 arms"),
        ({"propensities": [0.5, 1.0, 0.0]}, r"propensities must be in \(0, 1\], got 0.0 at step 2"),
        ({"propensities": [0.5, 1.0, 1.1]}, r"propensities must be in \(0, 1\], got 1.1 at step 2"),
        ({"arms": [0, 1, -1]}, r"arms must be in 0\.\.1, got -1 at step 2"),
        ({"arm_labels": ("a", "a")}, "arm_labels must be 2 distinct labels"),
        ({"arm_labels": ("a", "b", "c")}, "arm_labels must be 2 distinct labels, got 3"),
    ],
)
def test_columns_that_do_not_fit(change, message):
    good = {"arms": [0, 1, 1], "rewards": [0.0, 1.0, 2.0], "offsets": [0, 2, 3], "n_arms": 2}
    Sessions(**good, propensities=[0.5, 1.0, 1e-9], arm_labels=("a", "b"))
    with pytest.raises(ValueError, match=message):
        Sessions(**{**good, **change})


def test_what_sessions_earned_is_averaged_over_those_that_reach_a_step():
    log = Sessions.from_arrays(
        [[0, 1, 0], [0, 1, -1], [1, -1, -1]], [[1.0, 2.0, 5.0], [0.0, 4.0, 9.0], [2.0, 9.0, 9.0]]
    )
    assert log.steps.tolist() == [0, 1, 2, 0, 1, 0]
    assert [log.mean_session(horizon) for horizon in (1, 2, 3, 9)] == [1.0, 4.0, 9.0, 9.0]


def test_picking_and_adding_carry_everything_along():
    log = Sessions.from_arrays(
        [[0, 1], [1, -1], [0, 0]],
        [[1.0, 2.0], [3.0, 0.0], [4.0, 5.0]],
        propensities=np.array([[0.1, 0.2], [0.3, 1.0], [0.4, 0.5]]),
        n_arms=4,
    )
    picked = log[[2, 0]]
    assert picked.propensities.tolist() == [0.4, 0.5, 0.1, 0.2]
    assert picked.n_arms == 4
    both = picked + log[1].with_arms(6)
    assert both.propensities.tolist() == [0.4, 0.5, 0.1, 0.2, 0.3]
    assert (both.n_arms, (log[1].with_arms(6) + picked).n_arms) == (6, 6)
    with pytest.raises(ValueError, match="at least one session, got none"):
        log[[]]


def test_a_split_is_rounded_and_keeps_the_order_of_sessions(rng):
    log = Sessions.from_arrays(np.arange(30)[:, None], np.zeros((30, 1)))
    train, heldout = log.split(0.66, rng=rng)
    assert (len(train), len(heldout)) == (20, 10)
    assert (np.diff(train.arms) > 0).all()
    assert (np.diff(heldout.arms) > 0).all()
    assert log.split(rng=rng)[0].n_steps == 15


def test_arrays_are_padded_with_no_arm_and_no_reward():
    arms, rewards = Sessions.from_arrays([[1, 0], [1, -1]], [[5.0, 6.0], [7.0, 8.0]]).to_arrays()
    assert arms.tolist() == [[1, 0], [1, -1]]
    assert rewards.tolist() == [[5.0, 6.0], [7.0, 0.0]]


def test_equal_logs_have_equal_propensities_and_labels():
    log = Sessions.from_arrays([[0, 1]], [[1.0, 0.0]])
    priced = Sessions.from_arrays([[0, 1]], [[1.0, 0.0]], propensities=[[0.5, 0.5]])
    assert log == Sessions.from_arrays([[0, 1]], [[1.0, 0.0]])
    assert log != priced
    assert priced != Sessions.from_arrays([[0, 1]], [[1.0, 0.0]], propensities=[[0.5, 0.6]])
    assert log != log.with_arms(3)
    assert log != Sessions.from_arrays([[0], [1]], [[1.0], [0.0]])
    named = Sessions(log.arms, log.rewards, log.offsets, 2, arm_labels=("a", "b"))
    assert named != log
    assert named != Sessions(log.arms, log.rewards, log.offsets, 2, arm_labels=("b", "a"))


def test_rows_of_a_session_keep_their_order_in_long_logs(rng):
    """No column of steps: only a stable sort will do."""
    n = 3000
    sessions = rng.integers(5, size=n)
    data = pa.table({"e": sessions, "a": np.arange(n), "r": np.zeros(n)})
    arms = Sessions.from_frame(data, session="e", arm="a", reward="r").arms
    np.testing.assert_array_equal(arms, np.lexsort((np.arange(n), sessions)))


def test_labels_that_are_asked_for_win_over_those_of_the_file(tmp_path):
    log = Sessions([0, 1], [0.0, 1.0], [0, 1, 2], 2, arm_labels=("tea", "milk"))
    log.write(tmp_path / "log.parquet")
    assert Sessions.read(tmp_path / "log.parquet").arm_labels == ("tea", "milk")
    again = Sessions.read(tmp_path / "log.parquet", arm_labels=("water", "milk", "tea"))
    assert again.arms.tolist() == [2, 1]
    assert again.n_arms == 3


def test_the_note_in_a_file_is_for_its_own_columns_only(tmp_path):
    """Another column of arms has nothing to do with the noted number of arms."""
    log = Sessions([0, 1], [0.0, 1.0], [0, 1, 2], 7)
    log.write(tmp_path / "log.parquet")
    assert Sessions.read(tmp_path / "log.parquet").n_arms == 7
    assert Sessions.read(tmp_path / "log.parquet", arm="step").n_arms == 1


def test_text_is_not_kept_per_step(tmp_path):
    """2 * 10^6 steps whose session names alone are 400 MB of text, read in a process of its own."""
    n = 2_000_000
    steps = np.arange(n, dtype=np.int32)
    sessions = pa.array([f"{k:09d}" + "-long" * 38 for k in range(n // 20)])
    data = {"e": pa.DictionaryArray.from_arrays(steps // 20, sessions), "a": steps % 7, "r": steps % 2}
    path = tmp_path / "log.parquet"
    pyarrow.parquet.write_table(pa.table(data), path, row_group_size=n, store_schema=False)
    program = f"""
import lmab
sessions = lmab.Sessions.read({str(path)!r}, session="e", arm="a", reward="r")
status = open("/proc/self/status").read()
print(len(sessions), status.split("VmHWM:")[1].split()[0])
"""
    if not os.path.exists("/proc/self/status"):
        pytest.skip("peak memory is read from /proc")
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    size, kilobytes = map(int, out.split())
    assert size == n // 20
    assert kilobytes < 600_000  # about 370 MB; a table of the file alone takes 900


@pytest.mark.parametrize("shuffled", [20, 19])  # 20 sessions are shuffled, or drawn without a shuffle
@pytest.mark.parametrize("size", [1, 7, 20, 50])
def test_sessions_are_drawn_without_repeats(monkeypatch, shuffled, size):
    monkeypatch.setattr(sessions, "_SHUFFLED", shuffled)
    rng = np.random.default_rng(3)
    drawn = [sample_rows(20, size, rng) for _ in range(200)]
    assert all(len(rows) == min(size, 20) == len(set(rows.tolist())) for rows in drawn)
    counts = np.bincount(np.concatenate(drawn), minlength=20)
    expected = 200 * min(size, 20) / 20
    assert np.abs(counts - expected).max() <= 5 * np.sqrt(expected)  # all are drawn equally often
    assert len({tuple(rows.tolist()) for rows in drawn}) > 15  # and in random order


def test_as_many_as_are_shuffled_are_the_first_of_a_shuffle(monkeypatch):
    monkeypatch.setattr(sessions, "_SHUFFLED", 20)
    assert (
        sample_rows(20, 5, np.random.default_rng(1)).tolist() == np.random.default_rng(1).permutation(20)[:5].tolist()
    )


def test_frequent_arms_are_those_with_enough_plays_and_of_these_the_most_played():
    log = Sessions.from_arrays([[0, 1, 1], [1, 2, 2], [3, 3, 2]], np.zeros((3, 3)), n_arms=5)
    assert log.frequent_arms().tolist() == [0, 1, 2, 3]  # an arm that was never played is not frequent
    assert log.frequent_arms(2).tolist() == [1, 2, 3]
    assert log.frequent_arms(3).tolist() == [1, 2]
    assert log.frequent_arms(top=1).tolist() == [1]  # of equals the first
    assert log.frequent_arms(3, top=5).tolist() == [1, 2]
    assert log.frequent_arms(9).tolist() == []
    for wrong in ({"min_plays": 0}, {"top": 0}):
        with pytest.raises(InvalidArgument, match=next(iter(wrong))):
            log.frequent_arms(**wrong)


def test_only_some_arms_keep_all_that_belongs_to_their_steps():
    log = Sessions(
        [0, 1, 2, 2, 1, 0], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0, 3, 4, 6], 3,
        propensities=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], arm_labels=("a", "b", "c"),
        features={"x": [10.0, 20.0, 30.0]}, persons=["p", "q", "r"], endings=[0, 1, 0],
    )  # fmt: skip
    few = log.only_arms([1, 0])
    assert few.arm_labels == ("a", "b")
    assert few.arms.tolist() == [0, 1, 1, 0]
    assert few.rewards.tolist() == [1.0, 2.0, 5.0, 6.0]
    assert few.propensities.tolist() == [0.1, 0.2, 0.5, 0.6]
    assert few.offsets.tolist() == [0, 2, 4]  # the session of arm c alone is gone
    assert few.features["x"].tolist() == [10.0, 30.0]
    assert few.persons.tolist() == ["p", "r"]
    assert few.ended is None  # the first one's last step is gone
    assert log[[2]].only_arms([0]).ended.tolist() == log.ended[2:].tolist()
    for wrong in ([], [3], [-1]):
        with pytest.raises(InvalidArgument, match="arms must be some of the 3"):
            log.only_arms(wrong)
    with pytest.raises(InvalidArgument, match="arms must be played"):
        Sessions.from_arrays([[0]], [[1.0]], n_arms=2).only_arms([1])


def test_one_session_is_not_several():
    log = Sessions.from_arrays([[0]], [[1.0]])
    assert repr(log) == "Sessions(1 session, 1 step, 1 arm)"
    assert repr(log + log) == "Sessions(2 sessions, 2 steps, 1 arm)"


def test_the_first_steps_of_sessions_and_how_they_ended():
    arms = np.array([[0, 1, 1], [1, 0, -1], [1, -1, -1]])
    log = Sessions.from_arrays(arms, np.where(arms >= 0, 1.0, 0.0), ended=["unknown", "left", "went on"])
    few = log.first_steps(2)
    assert few.lengths.tolist() == [2, 2, 1]
    assert few.arms.tolist() == [0, 1, 1, 0, 1]
    assert few.ended.tolist() == ["went on", "left", "went on"]
    assert log.first_steps(3) == log
    assert replace(log, endings=None).first_steps(1).lengths.tolist() == [1, 1, 1]
    with pytest.raises(InvalidArgument, match="n must be"):
        log.first_steps(0)


@pytest.mark.parametrize(("arms", "repeats"), [([[0, 1], [1, 0]], False), ([[0, 1], [1, 1]], True), ([[0, 0]], True)])
def test_repeats_within_a_session_are_found(arms, repeats):
    assert Sessions.from_arrays(arms, np.ones(np.shape(arms)), n_arms=3).repeats is repeats
