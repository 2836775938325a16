"""Loading: inputs of all kinds, names and paths that are no SQL, copies, missing arms, times, and damaged files."""

from __future__ import annotations

import gzip
import subprocess
import sys
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

import lmab
from lmab import Sessions
from lmab.data.fingerprint import Fingerprint
from lmab.data.loading import explained
from lmab.errors import InvalidArgument, InvalidData, InvalidFile, LmabError, LmabWarning

ROWS: dict[str, list[Any]] = {
    "session": [2, 1, 1, 2], "step": [0, 1, 0, 1], "arm": ["tea", "milk", "tea", "jam"], "reward": [1.0, 0.0, 1.0, 0.5],
}  # fmt: skip
EXPECTED = Sessions.from_frame(ROWS, step="step")


@pytest.mark.parametrize(
    "made",
    [
        pd.DataFrame(ROWS),
        pl.DataFrame(ROWS),
        pl.LazyFrame(ROWS),
        pa.table(ROWS),
        {name: np.array(values) for name, values in ROWS.items()},
        duckdb.connect().sql(f"SELECT unnest({ROWS['session']}) AS session, unnest({ROWS['step']}) AS step, "
                             f"unnest({ROWS['arm']}) AS arm, unnest({ROWS['reward']}) AS reward"),
        pd.DataFrame(ROWS).astype({"arm": "category"}),
        pd.DataFrame(ROWS, index=[7, 7, 7, 7]),
    ],
    ids=["pandas", "polars", "lazy", "pyarrow", "arrays", "relation", "category", "index"],
)  # fmt: skip
def test_frames_of_all_kinds_are_the_same_log(made, tmp_path):
    assert Sessions.from_frame(made, step="step") == EXPECTED
    assert Sessions.read(made, step="step") == EXPECTED
    assert lmab.pack(made, tmp_path / "packed", step="step").load() == EXPECTED


def test_sessions_are_in_ascending_order_and_labels_too():
    assert EXPECTED.arm_labels == ("jam", "milk", "tea")
    assert EXPECTED.arms.tolist() == [2, 1, 2, 0]
    assert EXPECTED.rewards.tolist() == [1.0, 0.0, 1.0, 0.5]


NAMES = ['a "b"', "x'; DROP TABLE raw; --", "größe", "semi;colon", "c0", "select", "a.b"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl", "frame"])
def test_any_name_of_a_column_is_a_name(tmp_path, name, suffix):
    frame = pd.DataFrame(ROWS).rename(columns={"arm": name})
    path = tmp_path / f"log.{suffix}"
    if suffix == "csv":
        frame.to_csv(path, index=False)
    elif suffix == "parquet":
        frame.to_parquet(path)
    elif suffix == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    source = frame if suffix == "frame" else path
    assert Sessions.read(source, arm=name, step="step") == EXPECTED


@pytest.mark.parametrize("name", ["a*b.csv", "a?[c].csv", "it's; drop.csv", "sp ace%20.csv", "a.csv; SELECT 1.csv"])
def test_any_path_is_a_path(tmp_path, name):
    pd.DataFrame(ROWS).to_csv(tmp_path / name, index=False)
    pd.DataFrame(ROWS).assign(session=5).to_csv(tmp_path / "aXb.csv", index=False)
    assert Sessions.read(tmp_path / name, step="step") == EXPECTED
    assert lmab.pack(tmp_path / name, tmp_path / "packed", step="step").load() == EXPECTED


@pytest.mark.filterwarnings("ignore:2 rows have the same 'step'")  # the warning about ties, which others test
@pytest.mark.parametrize("suffix", ["csv", "frame"])
def test_copies_are_reported_dropped_or_refused(tmp_path, suffix):
    frame = pd.concat([pd.DataFrame(ROWS), pd.DataFrame(ROWS).iloc[[1, 3]]])
    frame.to_csv(tmp_path / "log.csv", index=False)
    source = frame if suffix == "frame" else tmp_path / "log.csv"
    with pytest.warns(LmabWarning, match="2 rows are exact copies of an earlier row") as told:
        kept = Sessions.read(source, step="step")
    assert kept.n_steps == 6
    with pytest.warns(LmabWarning, match="2 rows are exact copies of an earlier row: left out") as told:
        assert Sessions.read(source, step="step", copies="drop") == EXPECTED
    assert len(told) == 1
    with pytest.raises(
        InvalidData, match=r"must not repeat rows, 2 rows .*: drop them \(copies='drop', --copies drop\)"
    ):
        Sessions.read(source, step="step", copies="error")
    with pytest.raises(InvalidArgument, match="copies must be"):
        Sessions.read(source, copies="maybe")


def test_rows_that_differ_or_have_no_step_are_no_copies():
    twice = {"session": [1, 1, 1], "arm": [0, 0, 0], "reward": [1.0, 1.0, 0.0]}
    assert Sessions.from_frame(twice, copies="error").n_steps == 3  # an arm may be played twice
    with pytest.warns(LmabWarning, match="2 rows have the same 'at'"):
        assert Sessions.from_frame({**twice, "reward": [1.0, 0.5, 0.0], "at": [0, 0, 0]}, step="at").n_steps == 3


def test_steps_without_an_arm_are_dropped_with_their_count():
    rows = {**ROWS, "arm": ["tea", None, "tea", "jam"], "reward": [1.0, 0.0, None, 0.5]}
    with pytest.warns(LmabWarning, match="^1 step has no reward .* and 1 step has no arm in column 'arm': 2 steps are"):
        log = Sessions.from_frame(rows, step="step", missing="drop")
    assert (log.rewards.tolist(), log.arm_labels) == ([1.0, 0.5], ("jam", "tea"))
    for missing in ("error", "zero"):
        with pytest.raises(InvalidData, match=r"'arm' has a missing value in row 1: leave .*missing='drop'"):
            Sessions.from_frame({**ROWS, "arm": rows["arm"]}, step="step", missing=missing)


# times

STAMPS = ["2024-05-02 10:00:00", "2024-05-01 12:00:00", "2024-05-01 11:00:00", "2024-05-02 11:00:00"]


@pytest.mark.parametrize("form", ["text", "zone", "datetime", "seconds"])
@pytest.mark.parametrize("source", ["frame", "csv"])
def test_times_of_sessions_are_those_of_their_first_steps(tmp_path, form, source):
    seconds = np.array(STAMPS, "datetime64[s]").astype(np.int64)
    times: Any = {
        "text": STAMPS, "datetime": pd.to_datetime(STAMPS), "seconds": seconds,
        "zone": [f"{day}T{int(clock[:2]) + 2}{clock[2:]}+02:00" for day, clock in (one.split() for one in STAMPS)],
    }[form]  # fmt: skip
    frame = pd.DataFrame({**ROWS, "at": times})
    frame.to_csv(tmp_path / "log.csv", index=False)
    log = Sessions.read(frame if source == "frame" else tmp_path / "log.csv", session="session", time="at")
    assert log == replace(EXPECTED, times=log.times)
    assert log.times.tolist() == [seconds[2], seconds[0]]
    packed = lmab.pack(log, tmp_path / "packed")
    assert packed.load() == log
    assert packed.times.tolist() == log.times.tolist()
    assert Fingerprint.of(packed) == Fingerprint.of(log) != Fingerprint.of(EXPECTED)
    assert log[1:].times.tolist() == [seconds[0]]
    log.write(tmp_path / "own.parquet")
    assert Sessions.read(tmp_path / "own.parquet") == log


def test_times_order_sessions_and_come_with_arrays(tmp_path):
    log = Sessions.from_arrays([[0], [1], [2]], [[0.0]] * 3, times=["2024-03-03", "2024-03-01", "2024-03-02"])
    assert log.in_time().arms.tolist() == [1, 2, 0]
    assert lmab.pack(log, tmp_path / "packed").load().in_time().arms.tolist() == [1, 2, 0]
    assert (log + log).times.tolist() == [*log.times, *log.times]
    with pytest.raises(InvalidArgument, match="both logs must have times"):
        log + Sessions.from_arrays([[0]], [[0.0]], n_arms=3)
    for times in ([1.0], [1.0, np.nan, 2.0], ["today", "x", "y"]):
        with pytest.raises((InvalidArgument, InvalidData), match="times must"):
            Sessions.from_arrays([[0], [1], [2]], [[0.0]] * 3, times=times)


def test_a_person_and_a_time_without_a_session_mean_events(tmp_path):
    events = {"who": ["a", "b", "a", "a"], "at": [*STAMPS[:3], "2024-05-02 10:10:00"], "arm": [0, 1, 0, 1]}
    events["reward"] = [1.0, 0.0, 0.5, 0.25]
    log = Sessions.read(events, person="who", time="at")
    assert log.lengths.tolist() == [1, 2, 1]
    assert log.persons.tolist() == ["a", "a", "b"]
    assert log == Sessions.from_events(events, person="who", time="at")
    with pytest.raises(InvalidArgument, match="time must be given with person"):
        Sessions.read(events, time="at")


# damage


def _wide(folder):
    (folder / "log.csv").write_text("session,arm,reward\n1,a,1\n" + "1," * 10_000_000 + "\n")


DAMAGED = {
    "log.csv.gz": lambda raw: gzip.compress(raw)[:-20],
    "log.csv": lambda raw: raw + b"9,9\n",
    "long.csv": lambda raw: raw + b"1,a,1,1,1\n",
    "quote.csv": lambda raw: raw + b'1,"a,1,1\n',
    "text.csv": lambda raw: raw.replace(b"tea", b"t\xffa"),
    "log.jsonl": lambda raw: b'{"session": 1, "arm": "a"\n',
    "nested.jsonl": lambda raw: b'{"session": 1, "arm": {"x": 1}, "reward": 1, "step": 0}\n',
    "list.jsonl": lambda raw: b"[1, 2]\n",
    "log.parquet": lambda raw: b"PAR1" + raw,
    "none.csv": lambda raw: b"",
    "decimal.csv": lambda raw: raw.replace(b"0.5", b"0x5"),
    "huge.csv": lambda raw: raw.replace(b"0.5", b"1e400"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_an_error_of_this_package_that_names_no_engine(tmp_path, name):
    raw = pd.DataFrame(ROWS)[["session", "arm", "reward", "step"]].to_csv(index=False).encode()
    (tmp_path / name).write_bytes(DAMAGED[name](raw))
    for read in (Sessions.read, lambda path, **how: lmab.pack(path, tmp_path / "packed", **how)):
        with pytest.raises((InvalidFile, InvalidData)) as error:
            read(tmp_path / name, step="step")
        for word in ("duckdb", "SELECT", "read_csv", "read_json", "lmab-", "Binder", "LINE 1"):
            assert word not in str(error.value)
    assert not (tmp_path / "packed").exists()


def test_a_cut_parquet_file_and_a_line_of_many_fields_are_errors(tmp_path):
    pyarrow.parquet.write_table(pa.table(ROWS), tmp_path / "log.parquet")
    whole = (tmp_path / "log.parquet").read_bytes()
    (tmp_path / "log.parquet").write_bytes(whole[:-30])
    with pytest.raises(InvalidFile, match=r"log\.parquet: cannot be read as Parquet"):
        Sessions.read(tmp_path / "log.parquet")
    _wide(tmp_path)
    with pytest.raises(InvalidFile, match=r"log\.csv: cannot be read as CSV"):
        Sessions.read(tmp_path / "log.csv")


def test_the_query_of_a_log_is_shown_and_runs(tmp_path):
    pd.DataFrame(ROWS).to_parquet(tmp_path / "log.parquet")
    text = explained(tmp_path / "log.parquet", step="step")
    assert "ORDER BY key, within, rn" in text
    assert "lmab-" not in text


def test_results_do_not_depend_on_the_number_of_threads(tmp_path, rng):
    n = 300_000
    frame = {"session": rng.integers(0, n // 5, n), "arm": rng.integers(0, 9, n), "reward": rng.random(n)}
    pyarrow.parquet.write_table(pa.table(frame), tmp_path / "log.parquet")
    program = "import sys, lmab; print(lmab.Sessions.read(sys.argv[1]).rewards.tobytes()[:80000].hex()[::97])"
    found = {
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "log.parquet")], capture_output=True, text=True, check=True,
            env={"OMP_NUM_THREADS": threads, "PATH": ""},
        ).stdout
        for threads in ("1", "2")
    }  # fmt: skip
    assert len(found) == 1


def test_the_engine_sees_no_other_file(tmp_path):
    from lmab.data.engine import temporary_engine

    (tmp_path / "secret.csv").write_text("a\n1\n")
    (tmp_path / "log.csv").write_text("a\n1\n")
    with temporary_engine([tmp_path / "log.csv"]) as engine:
        assert engine.rows(f"SELECT * FROM read_csv('{engine.name_of(tmp_path / 'log.csv')}')") == [(1,)]
        for statement in (f"SELECT * FROM read_csv('{tmp_path / 'secret.csv'}')", "SET enable_external_access = true"):
            with pytest.raises(duckdb.Error):
                engine.rows(statement)


def test_all_errors_have_the_class_of_the_package():
    assert issubclass(InvalidData, LmabError)


@pytest.mark.parametrize("role", ["session", "step", "arm", "reward", "propensity"])
def test_nan_in_a_parquet_file_is_missing(tmp_path, role):
    """Statistics of Parquet files ignore NaN, and an engine that trusts them finds none."""
    table = {"session": [1.0, 1.0, 2.0, 2.0], "step": [0.0, 1.0, 0.0, 1.0], "arm": [0, 1, 0, 1]}
    table |= {"reward": [0.0, 1.0, 1.0, 0.0], "propensity": [0.5] * 4}
    path = tmp_path / "log.parquet"
    pyarrow.parquet.write_table(pa.table(table | {role: [*table[role][:2], float("nan"), table[role][3]]}), path)
    with pytest.raises(InvalidData, match=f"column '{role}' has a missing value in row 2"):
        lmab.Sessions.read(path, step="step", propensity="propensity")
