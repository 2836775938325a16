"""Log files of every kind: compressed, several at once, other separators and encodings, messages with lines."""

from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from lmab import Sessions
from lmab.data.columns import suggestion
from lmab.data.sessions import require_log
from lmab.errors import InvalidArgument, InvalidData, InvalidFile

COLUMNS: dict[str, Any] = {"session": "e", "arm": "a", "reward": "r", "step": "t"}
ROWS = [
    {"e": "s1", "t": 0, "a": "tea", "r": 1},
    {"e": "s1", "t": 1, "a": "milk", "r": 0.5},
    {"e": "s2", "t": 0, "a": "café", "r": 0},
]
EXPECTED = Sessions.from_frame(pa.Table.from_pylist(ROWS), **COLUMNS)


def text(separator: str = ",", decimal: str = ".") -> str:
    lines = [separator.join("etar")]
    lines += [separator.join(str(value).replace(".", decimal) for value in row.values()) for row in ROWS]
    return "\n".join(lines) + "\n"


def lines() -> str:
    return "".join(json.dumps({**row, "other": {"deep": [1]}}) + "\n" for row in ROWS)


FILES = {
    "log.csv": text().encode(),
    "log.tsv": text("\t").encode(),
    "tabs.csv": text("\t").encode(),
    "semicolons.csv": text(";").encode(),
    "commas.csv": text(";", ",").encode(),
    "bars.csv": text("|").encode(),
    "bom.csv": b"\xef\xbb\xbf" + text().encode(),
    "log.CSV": text().encode(),
    "log.csv.gz": gzip.compress(text().encode()),
    "log.csv.bz2": bz2.compress(text().encode()),
    "semicolons.csv.gz": gzip.compress(text(";").encode()),
    "log.jsonl": lines().encode(),
    "log.ndjson": lines().encode(),
    "log.jsonl.gz": gzip.compress(lines().encode()),
    "blank.jsonl": b"\xef\xbb\xbf" + lines().replace("\n", "\n\n").encode(),
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_every_kind(tmp_path, name):
    (tmp_path / name).write_bytes(FILES[name])
    assert Sessions.read(tmp_path / name, **COLUMNS) == EXPECTED


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_another_encoding_by_option(tmp_path, ending):
    path = tmp_path / f"log.{ending}"
    written = text() if ending == "csv" else lines().replace("caf\\u00e9", "café")
    path.write_bytes(written.encode("latin-1"))
    assert Sessions.read(path, **COLUMNS, encoding="latin-1") == EXPECTED
    with pytest.raises(InvalidFile, match="if it is not in UTF-8, name its encoding, such as latin-1"):
        Sessions.read(path, **COLUMNS)
    with pytest.raises(InvalidArgument, match=r"encoding must be the name of a text encoding, .* got 'klingon'"):
        Sessions.read(path, **COLUMNS, encoding="klingon")


def test_several_files_and_folders_are_one_log(tmp_path):
    (tmp_path / "days" / "deep").mkdir(parents=True)
    rows = text().splitlines()
    (tmp_path / "days" / "1.csv").write_text("\n".join([rows[0], rows[1]]))
    (tmp_path / "days" / "deep" / "2.csv").write_text("\n".join([rows[0], *rows[2:]]))
    (tmp_path / "days" / "_SUCCESS").write_text("")
    (tmp_path / "days" / ".hidden.csv").write_text("nothing")
    assert Sessions.read(tmp_path / "days", **COLUMNS) == EXPECTED  # a session may begin in one file and end in another
    both = [tmp_path / "days" / "deep" / "2.csv", str(tmp_path / "days" / "1.csv")]
    assert Sessions.read(both, **COLUMNS) == EXPECTED
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidFile, match="this folder holds no log: the name of a log must end in"):
        Sessions.read(tmp_path / "empty")
    with pytest.raises(InvalidFile, match="paths must name at least one log"):
        Sessions.read([])


def test_several_files_of_ours_keep_their_tables(tmp_path):
    first = Sessions([0, 1], [0.0, 1.0], [0, 1, 2], 2, arm_labels=("tea", "milk"))
    second = Sessions([0, 1], [0.0, 1.0], [0, 1, 2], 2, arm_labels=("water", "milk"))
    first.write(tmp_path / "1.parquet")
    second.write(tmp_path / "2.parquet")
    both = Sessions.read([tmp_path / "1.parquet", tmp_path / "2.parquet"])
    assert both == first + second  # four sessions, although both files count theirs from 0
    assert both.arm_labels == ("tea", "milk", "water")
    Sessions([0], [1.0], [0, 1], 7).write(tmp_path / "3.parquet")
    Sessions([0], [1.0], [0, 1], 9).write(tmp_path / "4.parquet")
    assert Sessions.read([tmp_path / "3.parquet", tmp_path / "4.parquet"]).n_arms == 9


def test_text_in_one_file_and_numbers_in_another(tmp_path):
    pa.parquet.write_table(pa.table({"e": [1], "a": [0], "r": [1.0]}), tmp_path / "1.parquet")
    pa.parquet.write_table(pa.table({"e": ["x"], "a": [0], "r": [1.0]}), tmp_path / "2.parquet")
    with pytest.raises(InvalidData, match="column 'e' must hold text or numbers in all files"):
        Sessions.read(tmp_path, session="e", arm="a", reward="r")


@pytest.mark.parametrize(("ending", "line"), [("csv", 4), ("jsonl", 3), ("parquet", None)])
def test_rows_are_counted_as_lines_of_the_file(tmp_path, ending, line):
    table = pa.table({"e": [1, 1, 2], "a": [0, 1, 0], "r": [1.0, 0.0, None]})
    path = tmp_path / f"log.{ending}"
    if ending == "csv":
        pyarrow.csv.write_csv(table, path)
    elif ending == "jsonl":
        path.write_text("\n".join(map(json.dumps, table.to_pylist())))
    else:
        pa.parquet.write_table(table, path)
    columns: dict[str, Any] = {"session": "e", "arm": "a", "reward": "r"}
    where = "row 2" if line is None else f"line {line}"
    with pytest.raises(InvalidData, match=f"column 'r' has a missing value in {where}: "):
        Sessions.read(path, **columns)
    good = tmp_path / "good.csv"
    good.write_text("e,a,r\n7,0,1\n")
    with pytest.raises(InvalidData, match=f"missing value in {where} of log.{ending}: "):
        Sessions.read([good, path], **columns)


def test_json_lines_may_change_from_integers_to_decimals(tmp_path, rng):
    n = 500
    data = {"e": rng.integers(50, size=n), "a": rng.integers(5, size=n), "r": rng.integers(2, size=n)}
    rows: list[dict[str, float]] = [{name: int(column[k]) for name, column in data.items()} for k in range(n)]
    rows[-1]["r"] = 0.5  # decimals come late
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    columns: dict[str, Any] = {"session": "e", "arm": "a", "reward": "r"}
    expected = Sessions.from_frame(pa.table({**data, "r": np.array([row["r"] for row in rows])}), **columns)
    assert Sessions.read(tmp_path / "log.jsonl", **columns) == expected


def test_events_come_from_files_too(tmp_path):
    path = tmp_path / "events.csv"
    path.write_text(
        "who;when;what;paid\nann;2024-05-01 10:00:00;x;1\nann;2024-05-01 10:20:00;y;0\nann;2024-05-02 10:00:00;x;1\n"
    )
    log = Sessions.from_events(path, person="who", time="when", arm="what", reward="paid")
    assert log.lengths.tolist() == [2, 1]
    assert Sessions.from_events([path], person="who", time="when", arm="what", reward="paid") == log


@pytest.mark.parametrize(
    ("role", "asked", "names", "expected"),
    [
        ("session", "session", ["sess", "item", "click"], "sess"),
        ("session", "session", ["user_id", "session_id", "item"], "session_id"),
        ("reward", "clicks", ["Clicks", "item"], "Clicks"),
        ("reward", "reward", ["x", "is_correct"], "is_correct"),
        ("arm", "arm", ["movie id", "when"], "movie id"),
        ("propensity", "p", ["pscore"], "pscore"),
        ("person", "person", ["user"], "user"),
        ("time", "time", ["unix_timestamp"], "unix_timestamp"),
        ("step", "step", ["position"], "position"),
        ("reward", "reward", ["x", "y"], None),
    ],
)
def test_the_column_that_was_meant(role, asked, names, expected):
    assert suggestion(role, asked, names) == expected


def test_a_wrong_name_says_what_to_pass(tmp_path):
    (tmp_path / "log.csv").write_text("sess,item,click\n1,a,0\n")
    with pytest.raises(
        InvalidData, match="no column 'session'; its columns are 'sess', 'item', 'click'; the session may be 'sess'"
    ):
        Sessions.read(tmp_path / "log.csv")
    (tmp_path / "odd.csv").write_text("sess,item,x\n1,a,0\n")
    with pytest.raises(InvalidData, match=r"name the column of the reward"):
        Sessions.read(tmp_path / "odd.csv", session="sess", arm="item")


def test_two_columns_of_one_name_are_refused(tmp_path):
    (tmp_path / "log.csv").write_text("e,a,r,r\n1,x,0,1\n")
    with pytest.raises(InvalidData, match="the log must have one column 'r', got 2"):
        Sessions.read(tmp_path / "log.csv", session="e", arm="a", reward="r")


def test_an_empty_name_in_a_text_file_is_a_missing_value(tmp_path):
    (tmp_path / "log.csv").write_text("e,a,r\n1,x,0\n1,,1\n")
    with pytest.raises(
        InvalidData,
        match=r"column 'a' has a missing value in line 3: leave such steps out \(missing='drop', --missing drop\)$",
    ):
        Sessions.read(tmp_path / "log.csv", session="e", arm="a", reward="r")


def test_digits_are_names_where_the_known_labels_are_text(tmp_path):
    (tmp_path / "log.csv").write_text("e,a,r\n1,7,0\n1,11,1\n")
    named = Sessions.read(tmp_path / "log.csv", session="e", arm="a", reward="r", arm_labels=("11", "7"))
    assert named.arms.tolist() == [1, 0]
    numbers = Sessions.read(tmp_path / "log.csv", session="e", arm="a", reward="r", arm_labels=(7, 11))
    assert numbers.arms.tolist() == [0, 1]


@pytest.mark.parametrize(
    "note",
    [
        {"columns": {}, "n_arms": 3, "arm_labels": ["x"]},
        {"columns": {}, "n_arms": 0, "arm_labels": None},
        {"columns": {}, "n_arms": 2**31, "arm_labels": None},
        {"columns": {}, "n_arms": 1, "arm_labels": [0.5]},
        {"columns": {"reward": "step"}, "n_arms": 2, "arm_labels": None},
        {"columns": {}, "n_arms": "2", "arm_labels": None},
        {"n_arms": 2, "arm_labels": None},
    ],
)
def test_a_note_that_makes_no_sense_is_another_programs(tmp_path, note):
    table = pa.table({"session": [0, 0], "step": [0, 1], "arm": [0, 1], "reward": [5.0, 6.0]})
    good = {"columns": {"step": "step"}, "n_arms": 4, "arm_labels": None}
    for text, n_arms in ((good, 4), (note, 2)):
        stored = table.replace_schema_metadata({b"lmab": json.dumps(text).encode()})
        pa.parquet.write_table(stored, tmp_path / "log.parquet")
        log = Sessions.read(tmp_path / "log.parquet")
        assert (log.n_arms, log.arm_labels, log.rewards.tolist()) == (n_arms, None, [5.0, 6.0])


@pytest.mark.parametrize(
    ("given", "how"),
    [
        ("x.csv", r"read it by lmab.Sessions.read\('x.csv', ...\), got a str"),
        (Path("x.csv"), r"read it by lmab.Sessions.read\('x.csv', ...\), got a PosixPath"),
        (pa.table({"a": [1]}), r"make it by lmab.Sessions.from_frame\(frame, .*\), got a Table"),
        ([1, 2], "make it by lmab.Sessions.read, from_frame, from_events or from_arrays, got a list"),
    ],
)
def test_what_is_no_log_is_told_how_to_become_one(given, how):
    with pytest.raises(InvalidArgument, match=f"^sessions must be a log: {how}"):
        require_log("sessions", given)
    require_log("sessions", EXPECTED)


def test_the_separator_is_that_of_the_wanted_columns(tmp_path):
    (tmp_path / "log.csv").write_text("e;a;r;note, with, very, many, commas\n1;x;1;-\n1;y;0;-\n")
    log = Sessions.read(tmp_path / "log.csv", session="e", arm="a", reward="r")
    assert (log.arm_labels, log.rewards.tolist()) == (("x", "y"), [1.0, 0.0])


def test_a_column_that_is_in_use_is_not_suggested(tmp_path):
    (tmp_path / "log.csv").write_text("session,item,click\n1,a,0\n")
    with pytest.raises(InvalidData, match=r"no column 'clicks'; .*; name the column of the reward"):
        Sessions.read(tmp_path / "log.csv", session="session", arm="click", reward="clicks")
