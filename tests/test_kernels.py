"""Processes of one run share the jobs that each of them would otherwise do."""

from __future__ import annotations

import threading
from functools import partial

import kernels
import pytest


def test_every_job_is_done_once_and_nobody_goes_on_before(tmp_path):
    done, held, gone = [], threading.Event(), []

    def long():
        held.wait(10)
        done.append("long")

    jobs = [long, partial(done.append, "short"), partial(done.append, "other")]

    def process():
        kernels.together(tmp_path, jobs, patience=10)
        gone.append(list(done))

    threads = [threading.Thread(target=process) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(1000):
        if len(done) == 2:
            break
        held.wait(0.01)
    assert sorted(done) == ["other", "short"]  # by the process that does not hold the long one
    assert gone == []
    held.set()
    for thread in threads:
        thread.join(10)
    assert sorted(done) == ["long", "other", "short"]
    assert [sorted(one) for one in gone] == [["long", "other", "short"]] * 2


def test_a_job_that_never_ends_elsewhere_is_not_waited_for(tmp_path):
    (tmp_path / "0.taken").touch()
    kernels.together(tmp_path, [lambda: pytest.fail("taken")], patience=0.1)
    assert not (tmp_path / "0.done").exists()


def test_kernels_that_are_there_need_no_meeting(tmp_path, monkeypatch):
    monkeypatch.setattr(kernels, "COMPILED", tmp_path)
    (tmp_path / "__pycache__").mkdir()
    kernels.meeting_place.cache_clear()
    try:
        assert kernels.meeting_place() != ""
        kernels.meeting_place.cache_clear()
        (tmp_path / "__pycache__" / "em.nbi").touch()
        assert kernels.meeting_place() == ""
    finally:
        kernels.meeting_place.cache_clear()
