"""Parquet tables with a note, which are replaced as a whole."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lmab.data.tables import read_note, read_table, stacked, write_table


def test_a_table_comes_back_with_its_note(tmp_path):
    path = tmp_path / "t.parquet"
    write_table(path, pa.table({"a": [1]}), {"rows": 1})
    assert (read_note(path), read_table(path).to_pydict()) == ({"rows": 1}, {"a": [1]})
    assert [one.name for one in tmp_path.iterdir()] == ["t.parquet"]


@pytest.mark.parametrize("body", [None, b"", b"PAR1 cut off"])
def test_a_file_that_cannot_be_read_is_none(tmp_path, body):
    path = tmp_path / "t.parquet"
    if body is not None:
        path.write_bytes(body)
    assert read_note(path) is None
    assert read_table(path) is None


def test_columns_of_two_types_are_text():
    found = stacked(pa.table({"a": [1], "b": ["x"]}), pa.table({"a": ["y"], "c": [0.5]}))
    assert found.to_pylist() == [{"a": "1", "b": "x", "c": None}, {"a": "y", "b": None, "c": 0.5}]
