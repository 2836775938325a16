"""A log is split into two, by session or by person, and nothing of it is lost."""

from __future__ import annotations

import csv
import gzip
import json

import pytest
from typer.testing import CliRunner

import lmab
from lmab.cli.app import app
from lmab.data import split_log
from lmab.errors import InvalidArgument, InvalidData

HEADER = ["visit", "user", "item", "click", "note"]
ROWS = [
    [f"v{i}", f"u{i // 3}", item, str(i % 2), 'says "no", twice'] for i in range(300) for item in ("tea", "cake", "Téa")
]


def written(path, rows=ROWS, delimiter=",", encoding="utf-8"):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding=encoding, newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([HEADER, *rows])
    return path


def rows_of(path, delimiter=",", encoding="utf-8"):
    with open(path, encoding=encoding, newline="") as file:
        return list(csv.reader(file, delimiter=delimiter))


def check_parts(train, test, column, rows=ROWS):
    """Every row is in one of the two logs, in its order, and all rows of an id in the same."""
    place = HEADER.index(column)
    ids = [{row[place] for row in part} for part in (train, test)]
    assert not ids[0] & ids[1]
    assert train == [row for row in rows if row[place] in ids[0]]
    assert test == [row for row in rows if row[place] in ids[1]]
    assert len(train) + len(test) == len(rows)


@pytest.mark.parametrize(("name", "delimiter", "encoding"), [
    ("log.csv", ",", "utf-8"), ("log.csv", ";", "latin-1"), ("log.csv.gz", "\t", "utf-8"),
])  # fmt: skip
@pytest.mark.parametrize("by", ["visit", "user"])
def test_text_is_split_row_by_row(tmp_path, name, delimiter, encoding, by):
    made = split_log(
        written(tmp_path / name, delimiter=delimiter, encoding=encoding), by=by, test=0.3, encoding=encoding
    )
    train, test = (rows_of(path, delimiter, encoding) for path in (made.train, made.test))
    assert train.pop(0) == test.pop(0) == HEADER
    check_parts(train, test, by)
    n = 300 if by == "visit" else 100
    assert made.n_train + made.n_test == n
    assert 0.15 * n < made.n_test < 0.45 * n


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_the_same_ids_are_held_out_of_every_kind_of_file(tmp_path, kind):
    import pyarrow as pa
    import pyarrow.parquet

    dictionaries = [dict(zip(HEADER, row, strict=True)) for row in ROWS]
    path = tmp_path / f"log.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in dictionaries))
    else:
        pa.parquet.write_table(pa.Table.from_pylist(dictionaries), path)
    made = split_log(path, by="user", test=0.3)

    def read(one):
        if kind == "jsonl":
            return [list(json.loads(line).values()) for line in one.read_text().splitlines()]
        return [list(row.values()) for row in pa.parquet.read_table(one).to_pylist()]

    check_parts(read(made.train), read(made.test), "user")
    beside = split_log(written(tmp_path / "text.csv"), by="user", test=0.3)
    assert read(made.test) == rows_of(beside.test)[1:]


def test_the_seed_decides_and_a_longer_log_is_split_alike(tmp_path):
    first = split_log(written(tmp_path / "first.csv", ROWS[:450]), by="visit")
    whole = split_log(written(tmp_path / "whole.csv"), by="visit")
    assert rows_of(whole.test)[: len(rows_of(first.test))] == rows_of(first.test)
    other = split_log(written(tmp_path / "other.csv"), by="visit", seed=1)
    assert rows_of(other.test) != rows_of(whole.test)


def test_several_files_make_two_logs(tmp_path):
    folder = tmp_path / "days"
    folder.mkdir()
    written(folder / "a.csv", ROWS[:450]), written(folder / "b.csv", ROWS[450:])
    made = split_log(folder, by="visit", folder=tmp_path)
    train, test = rows_of(made.train), rows_of(made.test)
    check_parts(train[1:], test[1:], "visit")
    assert made.train == tmp_path / "days-train.csv"


def test_what_cannot_be_split_is_refused(tmp_path):
    path = written(tmp_path / "log.csv")
    with pytest.raises(InvalidData, match="no column 'session'"):
        split_log(path)
    with pytest.raises(InvalidData, match="enough ids for both logs, got 1"):
        split_log(written(tmp_path / "one.csv", ROWS[:3]), by="visit")
    assert not list(tmp_path.glob("*-train*")), "nothing is left of a split that failed"
    with pytest.raises(InvalidArgument, match=r"test must be .* got 1"):
        split_log(path, by="visit", test=1.0)
    (tmp_path / "more.jsonl").write_text("{}")
    with pytest.raises(InvalidArgument, match="files of one kind, got CSV and JSON lines"):
        split_log([path, tmp_path / "more.jsonl"], by="visit")
    written(tmp_path / "wide.csv", [])
    (tmp_path / "wide.csv").write_text("visit,item\nv1,tea\n")
    with pytest.raises(InvalidData, match="must have the columns of the other files"):
        split_log([path, tmp_path / "wide.csv"], by="visit")


def test_the_command_writes_logs_that_fit_reads(tmp_path):
    path = written(tmp_path / "log.csv")
    result = CliRunner().invoke(app, ["split", str(path), "--person", "user", "--test", "0.25", "--seed", "2"])
    assert result.exit_code == 0, result.output
    assert "persons written to" in result.output
    assert f"lmab report MODEL POLICY --logs {tmp_path / 'log-test.csv'}" in result.output
    sizes = [len(lmab.Sessions.read(tmp_path / f"log-{side}.csv", session="visit", arm="item", reward="click"))
             for side in ("train", "test")]  # fmt: skip
    assert sum(sizes) == 300
    assert all(size % 3 == 0 for size in sizes)
    told = json.loads(CliRunner().invoke(app, ["split", str(path), "--session", "visit", "--json"]).stdout)
    assert told["unit"] == "session"
    assert told["n_train"] + told["n_test"] == 300
