"""Trials become rows; a killed run resumes and loses at most what was in flight."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from slow_trials import N_TRIALS, trials

from lmab.errors import InvalidArgument
from lmab.paper.experiment import store as store_module
from lmab.paper.experiment.methods import Contender, Measurement, Setting, Trial
from lmab.paper.experiment.store import (
    Again,
    Row,
    RowStore,
    drawn,
    machine,
    pending,
    perform,
    read_table,
    repeated,
    run_all,
    unlike,
    write_table,
)

TESTS = Path(__file__).parent


def started(folder: Path) -> list[tuple[int, int]]:
    """(instance, process) in the order in which trials were begun."""
    lines = (folder / "started").read_text().splitlines() if (folder / "started").exists() else []
    return [(int(line.split()[0]), int(line.split()[1])) for line in lines]


def alive(process: int) -> bool:
    """Whether the process runs; one that ended and waits to be collected does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_killed_run_resumes_and_loses_at_most_what_was_in_flight(tmp_path, monkeypatch, jobs):
    store = RowStore(tmp_path)
    program = [sys.executable, str(TESTS / "slow_trials.py"), str(tmp_path), "0.25", str(jobs)]
    victim = subprocess.Popen(program, env={**os.environ, "PYTHONPATH": str(TESTS)})
    wait_until(lambda: len(store.rows()) >= 3)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    kept = {row.id: row for row in store.rows()}
    assert 3 <= len(kept) < N_TRIALS
    wait_until(lambda: not any(alive(process) for _, process in started(tmp_path)))  # no worker outlives its parent
    begun, handed_out = len(started(tmp_path)), 2 * jobs  # a worker's next trial waits for it
    assert begun - len(kept) <= handed_out

    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    run_all(trials(tmp_path, 0.0), store, jobs=1)
    rows = {row.id: row for row in store.rows()}
    assert len(rows) == N_TRIALS
    assert all(rows[name] == row for name, row in kept.items())
    times_begun = Counter(instance for instance, _ in started(tmp_path))
    assert sum(times_begun.values()) - N_TRIALS <= handed_out
    assert store.path.read_text().count("\n") == N_TRIALS


def test_ctrl_c_does_not_wait_for_what_is_in_flight(tmp_path):
    store = RowStore(tmp_path)
    program = [sys.executable, str(TESTS / "slow_trials.py"), str(tmp_path), "30", "2"]
    victim = subprocess.Popen(program, env={**os.environ, "PYTHONPATH": str(TESTS)}, stderr=subprocess.DEVNULL)
    wait_until(lambda: len(started(tmp_path)) == 2)
    victim.send_signal(signal.SIGINT)
    assert victim.wait(timeout=15) != 0
    wait_until(lambda: not any(alive(process) for _, process in started(tmp_path)), 15)
    assert store.rows() == []


def test_a_dead_worker_is_reported(tmp_path):
    program = [sys.executable, str(TESTS / "slow_trials.py"), str(tmp_path), "30", "2"]
    victim = subprocess.Popen(program, env={**os.environ, "PYTHONPATH": str(TESTS)}, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: len(started(tmp_path)) == 2)
    os.kill(started(tmp_path)[0][1], signal.SIGKILL)
    _, errors = victim.communicate(timeout=30)
    assert "WorkerDied: a worker process was killed; run the same command again" in errors


def test_rows_do_not_depend_on_the_number_of_processes(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    values = []
    for jobs in (1, 3):
        folder = tmp_path / str(jobs)
        folder.mkdir()
        rows = run_all(trials(folder, 0.0)[:4], RowStore(folder), jobs=jobs)
        values.append({row.id: row.value for row in rows})
    assert values[0] == values[1]
    assert len(set(values[0].values())) == 4


def _fail(setting, bandit, instance):
    raise InvalidArgument("horizon must be shorter, got a long one")


def _succeed(setting, bandit, instance):
    return Measurement(1.0)


def _threads(setting, bandit, instance):
    return Measurement(float(os.environ["OPENBLAS_NUM_THREADS"]))


@pytest.mark.parametrize("jobs", [1, 2])
def test_trials_run_on_one_thread_whatever_the_number_of_processes(tmp_path, monkeypatch, jobs):
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    trial = Trial.of(Setting("hard", 3, 10, 4, 100), 0, Contender("m", "m", _threads))
    (row,) = run_all([trial], RowStore(tmp_path), jobs=jobs)
    assert row.value == 1.0
    assert os.environ["OPENBLAS_NUM_THREADS"] == "7"


def test_a_failure_is_a_row_and_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    setting, store = Setting("hard", 3, 10, 4, 100), RowStore(tmp_path)
    bad, good = (Contender("m", "m", measure) for measure in (_fail, _succeed))
    (row,) = run_all([Trial.of(setting, 0, bad)], store)
    assert not row.done
    assert row.status.startswith("InvalidArgument: horizon must be shorter")
    run_all([Trial.of(setting, 0, good)], store)
    assert [row.status for row in store.rows()] == ["done"]


def test_what_is_done_is_left_out_and_instances_come_in_order(tmp_path):
    store = RowStore(tmp_path)
    wanted = trials(tmp_path, 0.0)[::-1]
    store.append(perform(wanted[3]))
    left = pending([*wanted, *wanted], store)
    assert [trial.instance for trial in left] == [i for i in range(N_TRIALS) if i != wanted[3].instance]


def test_rows_of_another_revision_are_done_again_and_of_another_version_are_not(tmp_path, monkeypatch):
    store, wanted = RowStore(tmp_path), trials(tmp_path, 0.0)[:2]
    monkeypatch.setattr("lmab.paper.experiment.store._version", lambda: "0.0.1")
    store.append(perform(wanted[0]))
    monkeypatch.undo()
    assert pending(wanted, store) == [wanted[1]]
    changed = [replace(trial, method=replace(trial.method, revision=2)) for trial in wanted]
    assert pending(changed, store) == changed
    assert changed[0].id == f"{wanted[0].id}@2"


def test_a_table_of_an_earlier_run_is_extended(tmp_path):
    wanted = trials(tmp_path, 0.0)[:3]
    write_table([perform(wanted[0])], tmp_path / "rows.csv.gz")
    store = RowStore(tmp_path)
    assert pending(wanted, store) == wanted[1:]
    store.append(perform(wanted[1]))
    assert [row.id for row in store.rows()] == [wanted[0].id, wanted[1].id]


def test_jobs_is_checked(tmp_path):
    with pytest.raises(InvalidArgument, match="jobs must be an integer of at least 1, got 0"):
        run_all([], RowStore(tmp_path), jobs=0)


def _one_row(name: str = "m", machine: str = "here", **changes) -> Row:
    row = perform(Trial.of(Setting("hard", 3, 10, 4, 100), 0, Contender(name, name, _succeed)))
    return replace(row, machine=machine, **changes)


def test_rows_carry_the_commit_and_the_machine(tmp_path, monkeypatch):
    row = perform(trials(tmp_path, 0.0)[0])
    assert "BLAS" in row.machine
    assert row.machine == machine()
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=TESTS, capture_output=True, text=True)
    if head.returncode == 0:
        assert head.stdout.startswith(row.commit.rstrip("+"))
        assert len(row.commit.rstrip("+")) == 10
    store_module._commit.cache_clear()
    monkeypatch.setattr(store_module, "__file__", str(tmp_path / "store.py"))  # not in a repository
    assert store_module._commit() == ""
    store_module._commit.cache_clear()


def test_a_table_of_before_the_commit_and_the_machine_were_stored_is_read(tmp_path):
    row = replace(_one_row(), commit="", machine="")
    write_table([row], tmp_path / "rows.csv.gz")
    text = gzip.decompress((tmp_path / "rows.csv.gz").read_bytes()).decode()
    older = "\n".join(line.rsplit(",", 3)[0] for line in text.splitlines())
    assert older.splitlines()[0].endswith(",finished")
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(older.encode()))
    assert read_table(tmp_path / "rows.csv.gz") == [row]
    record = {name: value for name, value in asdict(row).items() if name not in ("commit", "machine", "error")}
    store_module.Lines(tmp_path / "more" / "rows.jsonl").append(record)
    assert RowStore(tmp_path / "more").rows() == [row]


def test_rows_of_the_same_machine_must_agree_to_the_bit():
    row = _one_row()
    assert unlike([Again(row, row)] * 3) == []
    other = replace(row, value=np.nextafter(1.0, 2.0))
    assert Again(row, other).difference == pytest.approx(2.2e-16, rel=0.01)
    assert unlike([Again(row, row)] * 3 + [Again(row, other)]) == ["m"]


def test_of_rows_of_other_machines_half_must_be_close():
    row, there = _one_row(), _one_row(machine="there")
    close, far = replace(there, value=1 + 9e-7), replace(there, value=1 + 2e-6)
    assert unlike([Again(close, row), Again(far, row)]) == []
    assert unlike([Again(close, row), Again(far, row), Again(far, row)]) == ["m"]
    other = _one_row("n")
    assert unlike([Again(far, row), Again(other, other)]) == ["m"]


def test_a_row_that_fails_or_lacks_a_number_differs():
    row = _one_row()
    assert Again(row, replace(row, status="ValueError: no")).difference == np.inf
    assert Again(row, replace(row, value=None)).difference == np.inf
    assert Again(replace(row, distance=0.5), row).difference == np.inf
    assert Again(replace(row, distance=0.5), replace(row, distance=0.25)).difference == 0.5


def test_trials_are_drawn_from_those_that_did_not_run_out_of_time(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    wanted = trials(tmp_path, 0.0)[:4]
    rows = [perform(trial) for trial in wanted[:3]]
    rows[0] = replace(rows[0], note="time limit")
    assert sorted(trial.id for trial in drawn(wanted, rows, 9)) == [trial.id for trial in wanted[1:3]]
    assert drawn(wanted, rows, 1) == drawn(wanted, rows, 2)[:1]
    changed = [rows[1], replace(rows[2], value=7.0)]
    found = {pair.found.id: pair.difference for pair in repeated(wanted[1:3], changed)}
    assert found[wanted[1].id] == 0
    assert found[wanted[2].id] > 0.1
