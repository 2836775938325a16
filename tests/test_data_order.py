"""The order of sessions in time, which the tests for drift and for withdrawn arms follow."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from seeds import generator

import lmab
from lmab.data.loading import UNORDERED
from lmab.estimation import assumptions
from lmab.estimation.log_summary import LogSummary

DAYS = [dt.datetime(2024, 1, day) for day in (3, 1, 2)]


def frame(ids, **more):
    """Sessions of one step each; the arm is the number of the row."""
    columns = {"session": ids, "arm": list(range(len(ids))), "reward": [0.0] * len(ids), **more}
    return pa.table(columns)


def read(ids, **more):
    step = "time" if "time" in more else None
    return lmab.Sessions.from_frame(frame(ids, **more), session="session", arm="arm", reward="reward", step=step)


@pytest.mark.parametrize(
    ("ids", "more", "rows"),
    [
        (["v1", "v10", "v2"], {}, [0, 2, 1]),  # numbers in texts, although the rows are sorted by text
        (["v10", "v9", "v1"], {}, [2, 1, 0]),  # whatever the order of the rows
        (["2024-01-10", "2024-01-09"], {}, [1, 0]),
        (["v01", "v02", "v10"], {}, [0, 1, 2]),
        ([30, 4, 5], {}, [1, 2, 0]),
        (["b", "a", "c"], {}, [0, 1, 2]),  # texts without numbers: as they begin in the log
        (["b1", "a2", "c3"], {}, [0, 1, 2]),  # they differ in more than their numbers
        (["a", "b", "c"], {}, None),  # sorted by text
        (["a", "b", "c"], {"time": DAYS}, [1, 2, 0]),  # times decide
        (["v1", "v10", "v2"], {"time": DAYS}, [1, 2, 0]),
        ([1, 2, 3], {"time": DAYS}, [1, 2, 0]),
        ([1, 2, 3], {"time": [7, 5, 6]}, [0, 1, 2]),  # numbers of steps are no times
        (["only"], {}, [0]),
    ],
)
def test_times_then_numbers_then_rows_give_the_order(ids, more, rows):
    found = read(ids, **more).in_time()
    assert (None if found is None else found.arms.tolist()) == rows


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_have_the_order_of_frames(tmp_path, suffix):
    """Sorted numbers with times take the quick way of reading, which must keep the times."""
    for number, (ids, more) in enumerate([([1, 2, 3], {"time": DAYS}), (["v1", "v10", "v2"], {}), (["a", "b"], {})]):
        path, table = tmp_path / f"{number}.{suffix}", frame(ids, **more)
        (pa.csv.write_csv if suffix == "csv" else pa.parquet.write_table)(table, path)
        log = lmab.Sessions.read(path, step="time" if more else None)
        whole = read(ids, **more)
        assert (log.positions is None) is (whole.positions is None)
        if whole.positions is not None:
            np.testing.assert_array_equal(log.positions, whole.positions)


@given(st.permutations(range(12)))
def test_unpadded_numbers_have_the_order_of_numbers(numbers):
    assert read([f"v{number}" for number in numbers]).in_time().arms.tolist() == np.argsort(numbers).tolist()


def test_parts_and_sums_keep_the_order():
    log = read(["v1", "v10", "v2"])  # arms 0, 1, 2; in time 0, 2, 1
    assert log[1:].in_time().arms.tolist() == [2, 1]
    assert [part.in_time().arms.tolist() for part in log.chunks(2)] == [[0, 1], [2]]
    assert log.only_arms([1, 2]).in_time().arms.tolist() == [1, 0]
    assert log.first_steps(1).in_time().arms.tolist() == [0, 2, 1]
    plain = lmab.Sessions.from_arrays([[0], [1]], [[0.0], [0.0]], n_arms=3)
    assert plain.in_time() is plain
    assert (log + plain).in_time().arms.tolist() == [0, 2, 1, 0, 1]
    assert (plain + log).in_time().arms.tolist() == [0, 1, 0, 2, 1]
    assert (read(["a", "b"]) + plain.with_arms(3)).in_time() is None
    assert (plain + plain).positions is None
    with pytest.raises(ValueError, match="same length"):
        replace(log, positions=np.arange(2))


def test_a_written_log_is_numbered_in_time(tmp_path):
    log = read(["v1", "v10", "v2"])
    log.write(tmp_path / "log.parquet")
    assert lmab.Sessions.read(tmp_path / "log.parquet").arms.tolist() == [0, 2, 1]
    read(["a", "b", "c"]).write(tmp_path / "unordered.parquet")
    assert lmab.Sessions.read(tmp_path / "unordered.parquet").arms.tolist() == [0, 1, 2]


def test_a_packed_log_of_texts_has_no_order(tmp_path):
    rows = {"session": [f"v{i}" for i in range(40)], "arm": [i % 3 for i in range(40)], "reward": [0.0] * 40}
    pa.parquet.write_table(pa.table(rows), tmp_path / "texts.parquet")
    pa.parquet.write_table(pa.table({**rows, "session": list(range(40))}), tmp_path / "numbers.parquet")
    texts, numbers = (lmab.pack(tmp_path / f"{name}.parquet", tmp_path / name) for name in ("texts", "numbers"))
    assert texts[:5].in_time() is None
    assert (texts[:5].positions == UNORDERED).all()
    assert numbers[:5].positions is None
    assert not lmab.Packed(tmp_path / "texts").manifest.ordered


def drifting(n: int = 3000):
    """Rows of two types, of which the second is frequent in later sessions only; one arm ends after 80% of them."""
    rng = generator(11)
    means = np.array([[0.9, 0.1, 0.5, 0.2], [0.1, 0.9, 0.5, 0.2]])
    types = (rng.random(n) < np.linspace(0.1, 0.9, n)).astype(int)
    arms = rng.integers(3, size=(n, 4))
    arms[: int(0.8 * n)] = np.where(rng.random((int(0.8 * n), 4)) < 0.2, 3, arms[: int(0.8 * n)])
    rewards = (rng.random((n, 4)) < means[types[:, None], arms]) * 1.0
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], means)
    return bandit, arms, rewards


def named(arms, rewards, name):
    ids = [name(i) for i in range(len(arms)) for _ in range(arms.shape[1])]
    table = pa.table({"session": ids, "arm": arms.ravel(), "reward": rewards.ravel()})
    return lmab.Sessions.from_frame(table, session="session", arm="arm", reward="reward")


def test_drift_and_withdrawn_arms_follow_the_order_in_time():
    bandit, arms, rewards = drifting()
    rng = generator(12)
    letters = ["".join(rng.choice(list("abcdefghijklmnop"), 12)) for _ in range(len(arms))]
    in_order = assumptions.tested(bandit, lmab.Sessions.from_arrays(arms, rewards)).drift
    unpadded, shuffled = named(arms, rewards, lambda i: f"v{i}"), named(arms, rewards, letters.__getitem__)
    assert in_order.fires
    for log in (unpadded, shuffled):  # sorted by id, their mixture does not change
        assert assumptions.tested(bandit, log).drift == in_order
        assert LogSummary.of(log).withdrawn == (3,)
        assert not assumptions.tested(bandit, replace(log, positions=None)).drift.fires or log is unpadded
        assert LogSummary.of(replace(log, positions=None)).withdrawn == ()
    unknown = replace(unpadded, positions=np.full(len(unpadded), UNORDERED))
    found = assumptions.tested(bandit, unknown).drift
    assert not found.fires
    assert found.sentence.startswith("Not tested: the order of the sessions in time is unknown")
    assert LogSummary.of(unknown).withdrawn == ()
