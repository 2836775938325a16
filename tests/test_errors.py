"""The vocabulary of outcomes: the strings that programs compare with, and a sentence for each."""

from __future__ import annotations

import json
import pickle

import pytest

from lmab.errors import InvalidArgument, Status

FIRST = {"converged", "iteration limit", "optimal", "certified", "time limit", "heuristic", "interrupted"}
NAMES = FIRST | {"memory limit", "unmatched"}
UNFINISHED = {"iteration limit", "unmatched", "time limit", "memory limit", "interrupted"}


def test_statuses_equal_the_strings_of_the_first_version():
    assert {str(status) for status in Status} == NAMES
    for status in Status:
        assert status == str(status) == f"{status}"
        assert repr(status) == repr(str(status))
        assert Status.named(str(status)) is status
        assert hash(status) == hash(str(status))


def test_statuses_go_through_files():
    assert json.loads(json.dumps([Status.TIME_LIMIT])) == ["time limit"]
    assert pickle.loads(pickle.dumps(Status.OPTIMAL)) is Status.OPTIMAL


def test_every_status_has_its_own_sentence_and_says_whether_the_work_is_done():
    sentences = [status.sentence for status in Status]
    assert len(set(sentences)) == len(Status)
    assert all(sentence.endswith(".") and sentence[0].isupper() for sentence in sentences)
    assert {str(status) for status in Status if not status.finished} == UNFINISHED
    with pytest.raises(InvalidArgument, match=r"status must be one of 'converged', .* got 'done'"):
        Status.named("done")
