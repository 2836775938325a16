"""Parquet tables with a note, which are replaced as a whole."""

from __future__ import annotations

import pytest

from lmab.data.tables import read_note, read_table, stacked, write_table


def test_a_table_comes_back_with_its_note(tmp_path):
    path = tmp_path / "t.parquet"
    table = {"a": [1, None], "b": ["x", None], "c": [0.5, None], "d": [None, None], "e": [3, 4]}
    kinds = {"a": "int", "b": "text", "c": "float", "d": "text", "e": "int"}
    write_table(path, table, kinds, {"rows": 1, "it's": '"'})
    assert (read_note(path), read_table(path)) == ({"rows": 1, "it's": '"'}, table)
    assert [one.name for one in tmp_path.iterdir()] == ["t.parquet"]


@pytest.mark.parametrize("body", [None, b"", b"PAR1 cut off"])
def test_a_file_that_cannot_be_read_is_none(tmp_path, body):
    path = tmp_path / "t.parquet"
    if body is not None:
        path.write_bytes(body)
    assert read_note(path) is None
    assert read_table(path) is None


def test_columns_of_two_types_are_text():
    kinds = {"a": "int", "b": "text"}
    found = stacked({"a": [1], "b": ["x"]}, {"a": ["y"], "c": [0.5]}, kinds)
    assert found == {"a": [1, "y"], "b": ["x", None], "c": [None, 0.5]}
    assert kinds == {"a": "text", "b": "text", "c": "float"}
