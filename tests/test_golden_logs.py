"""The arrays of 206 stored logs, read as when they were stored."""

import json
import shutil

import pytest
from golden_logs import FOLDER, FOLDER_ARRAYS, N_GENERATED, arrays, result, stored, written

import lmab

CASES = stored()


@pytest.mark.parametrize("first", range(0, len(CASES), 26))
def test_stored_logs_read_to_the_same_bits(tmp_path, first):
    for number, case in enumerate(CASES[first : first + 26], start=first):
        paths = written(case, tmp_path / str(number))
        assert result(paths, case["how"], events=case["events"]) == case["result"], f"log {number}"


def test_the_corpus_has_logs_of_all_kinds():
    assert len(CASES) == N_GENERATED + 6
    kinds = {name.partition(".")[2] for case in CASES for name in case["files"]}
    assert kinds == {"csv", "semicolon.csv", "tsv", "jsonl", "csv.gz", "jsonl.gz", "parquet"}
    refused = sum("error" in case["result"] for case in CASES)
    assert 0 < refused < 10
    for column in ("propensities", "persons", "endings", "feature f1", "arm_labels"):
        assert sum(case["result"].get(column) is not None for case in CASES) >= 20, column


def test_a_stored_packed_log_is_read(tmp_path):
    """A folder packed by an earlier version holds the log that it was made of, to the bit."""
    shutil.copytree(FOLDER, tmp_path / "packed")
    packed = lmab.Packed(tmp_path / "packed")
    assert arrays(packed.load()) == json.loads(FOLDER_ARRAYS.read_text())
    assert packed.features is not None
    assert packed.persons is not None
