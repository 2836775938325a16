"""`lmab pack`, packed logs at the other commands, and `--cluster`."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from clusters import cluster
from typer.testing import CliRunner

import lmab
from lmab import parallel
from lmab.cli import fit as command
from lmab.cli.app import app
from lmab.cli.options import Columns, Missing
from lmab.data import packing
from lmab.errors import ClusterLost, InvalidArgument, InvalidData

RUNNER = CliRunner()
pytestmark = pytest.mark.usefixtures("few_draws")


def run(*arguments):
    result = RUNNER.invoke(app, [str(one) for one in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def log(tmp_path, rng, monkeypatch):
    monkeypatch.setattr(packing, "PARTITION", 1000)
    monkeypatch.setattr("lmab.data.loading._ROWS", 300)
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.5], [0.1, 0.8, 0.5]])
    made = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=900, horizon=4, rng=rng)
    table = {
        "session": np.repeat(np.arange(900), 4),
        "item": np.array(["tea", "milk", "jam"])[made.arms],
        "click": made.rewards,
    }
    pyarrow.parquet.write_table(pa.table(table), tmp_path / "log.parquet")
    return tmp_path / "log.parquet"


COLUMNS = ("--session", "session", "--arm", "item", "--reward", "click")


def test_a_packed_log_is_fitted_as_the_log_is(log, tmp_path):
    said = run("pack", log, "-o", tmp_path / "packed", *COLUMNS).output
    assert "900 sessions, 3,600 steps, 3 arms written to" in said.replace("\n", " ")
    assert "4 partitions" in said
    answers = []
    for what in ((log, *COLUMNS), (tmp_path / "packed",)):
        result = run("fit", *what, "-o", tmp_path / "model.lmab", "--types", "2", "--json")
        answers.append(json.loads(result.stdout))
    assert answers[0] == answers[1]
    again = run("pack", log, "-o", tmp_path / "packed", *COLUMNS, "--json")
    sizes = {"sessions": 900, "steps": 3600, "arms": 3, "partitions": 4}
    assert json.loads(again.stdout) == {"output": str(tmp_path / "packed"), **sizes}


OPTIONS: list[tuple[str, dict[str, str]]] = [  # all that name columns, each beside others that it needs
    ("session", {"session": "visit"}),
    ("arm", {"arm": "other"}),
    ("reward", {"reward": "paid"}),
    ("step", {"step": "number"}),
    ("propensity", {"propensity": "chance"}),
    ("features", {"features": "land"}),
    ("person", {"person": "visit", "time": "at"}),
    ("ended", {"ended": "end"}),
    ("limit", {"limit": "4"}),
    ("time", {"person": "visit", "time": "at"}),
    ("gap", {"person": "visit", "time": "at", "gap": "90s"}),
    ("at_most", {"at_most": "1"}),
    ("missing", {"reward": "rarely", "missing": "drop"}),
    ("encoding", {"arm": "drink", "encoding": "latin-1"}),
]


def test_no_option_of_columns_is_left_out():
    assert [name for name, _ in OPTIONS] == [
        one.name
        for one in dataclasses.fields(Columns)
        if one.name not in ("given", "stored", "copies")  # a test below
    ]


@pytest.mark.parametrize(("name", "given"), OPTIONS, ids=[name for name, _ in OPTIONS])
def test_every_option_of_columns_packs_as_it_reads(tmp_path, rng, name, given):
    n = 40
    table = {
        "session": np.repeat(np.arange(n // 4), 4),
        "visit": np.repeat(np.arange(n // 2), 2),
        "arm": rng.integers(0, 3, n),
        "other": np.array(["tea", "milk"])[rng.integers(0, 2, n)],
        "drink": np.array(["piña", "mate"])[rng.integers(0, 2, n)],
        "reward": np.ones(n),
        "paid": np.arange(n) % 2.0,
        "rarely": np.where(np.arange(n) % 5, 1.0, np.nan),
        "number": np.tile([3, 2, 1, 0], n // 4),
        "chance": rng.uniform(0.1, 1.0, n).round(3),
        "at": np.cumsum(rng.integers(1, 200, n)),
        "land": np.repeat(np.array(["de", "fr"])[np.arange(n // 4) % 2], 4),
        "end": np.repeat(np.array(["left", "went on"])[np.arange(n // 4) % 2], 4),
    }
    path = tmp_path / "log.csv"
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    path.write_bytes("\n".join(lines).replace("nan", "").encode(given.get("encoding", "utf-8")))
    options = [text for key, value in given.items() for text in (f"--{key.replace('_', '-')}", value)]
    run("pack", path, "-o", tmp_path / "packed", *options)
    typed = given | ({name: int(given[name])} if name in ("at_most", "limit") else {})
    if name == "missing":
        typed["missing"] = Missing("drop")
    found, wanted = lmab.Packed(tmp_path / "packed").load(), Columns(**typed).read(path)
    assert _sessions(found) == _sessions(wanted)
    assert _sessions(found) != _sessions(Columns(**{**typed, name: _other(name)}).read(path))


@pytest.mark.parametrize("copies", ["keep", "drop"])
def test_copies_pack_as_they_read(tmp_path, copies):
    path = tmp_path / "log.csv"
    path.write_text("session,t,arm,reward\n1,0,a,1\n1,0,a,1\n1,1,b,0\n2,0,b,1\n")
    run("pack", path, "-o", tmp_path / "packed", "--step", "t", "--copies", copies)
    found = lmab.Packed(tmp_path / "packed").load()
    assert _sessions(found) == _sessions(Columns(step="t", copies=copies).read(path))
    assert found.n_steps == {"keep": 4, "drop": 3}[copies]


def _other(name):
    """What the option could be instead."""
    others = {"session": "session", "arm": "arm", "reward": "reward", "step": None, "propensity": None}
    others |= {
        "features": None,
        "ended": None,
        "limit": None,
        "person": "session",
        "time": "number",
        "gap": "30m",
        "at_most": None,
        "missing": Missing("zero"),
    }
    return others.get(name, "cp1250")


def _sessions(log):
    """All that a log holds, whatever the order of its sessions."""
    chances = np.zeros(log.n_steps) if log.propensities is None else log.propensities
    columns = (log.arms.tolist(), log.rewards.tolist(), chances.tolist())
    steps = list(zip(*columns, strict=True))
    lands = [None] * len(log) if log.features is None else log.features["land"].tolist()
    ends = [None] * len(log) if log.ended is None or log.persons is not None else log.ended.tolist()
    sessions = (steps[start:end] for start, end in pairwise(log.offsets.tolist()))
    return log.arm_labels, sorted(map(repr, zip(sessions, lands, ends, strict=True)))


def test_a_packed_log_at_other_commands(log, tmp_path):
    run("pack", log, "-o", tmp_path / "packed", *COLUMNS)
    run("fit", tmp_path / "packed", "-o", tmp_path / "model.lmab", "--types", "2", "--no-check")
    run("plan", tmp_path / "model.lmab", "--horizon", "2", "-o", tmp_path / "policy.lmab")
    answers = [
        run("evaluate", tmp_path / "policy.lmab", "--assess", *what, "--json").stdout
        for what in ((log, *COLUMNS), (tmp_path / "packed",))
    ]
    assert json.loads(answers[0]) == json.loads(answers[1])


def test_options_that_a_packed_log_has_no_use_for(log, tmp_path):
    run("pack", log, "-o", tmp_path / "packed", *COLUMNS)
    with pytest.raises(InvalidArgument, match="whose columns were named when it was packed"):
        run("fit", tmp_path / "packed", "--session", "visit")
    with pytest.raises(InvalidArgument, match="is a packed log, and must be given alone"):
        run("fit", tmp_path / "packed", log)
    with pytest.raises(InvalidArgument, match="--cluster must be given with a packed log"):
        run("fit", log, *COLUMNS, "--cluster", "tcp://localhost:1", "--types", "2")


def test_events_are_packed(tmp_path):
    table = {
        "who": ["a", "b", "a", "a"],
        "at": [0, 5, 60, 9000],
        "arm": [0, 1, 1, 0],
        "reward": [1.0, 0.0, 1.0, 1.0],
    }
    pyarrow.parquet.write_table(pa.table(table), tmp_path / "log.parquet")
    run("pack", tmp_path / "log.parquet", "-o", tmp_path / "packed", "--person", "who", "--time", "at")
    assert sorted(len(one.arms) for one in lmab.Packed(tmp_path / "packed").load()) == [1, 1, 2]


def test_remarks_are_told(tmp_path):
    table = {"session": [0, 0], "arm": [0, 1], "reward": pa.array([1.0, None])}
    pyarrow.parquet.write_table(pa.table(table), tmp_path / "log.parquet")
    result = run("pack", tmp_path / "log.parquet", "-o", tmp_path / "packed", "--missing", "drop", "--json")
    assert "1 step has no reward" in result.stderr
    assert json.loads(result.stdout)["steps"] == 1


def test_amounts_and_single_steps_of_a_packed_log(tmp_path, rng):
    log = lmab.Sessions.from_arrays(np.zeros((40, 3), int), rng.normal(size=(40, 3)))
    lmab.pack(log, tmp_path / "packed")
    with pytest.raises(InvalidData, match="more than 32 distinct rewards"):
        run("fit", tmp_path / "packed")
    lmab.pack(log[:10], tmp_path / "few")
    with pytest.raises(InvalidData, match="types can be estimated only from sessions of two or more"):
        run("fit", lmab.pack(lmab.Sessions([0, 1], [1.0, 0.0], [0, 1, 2], 2), tmp_path / "one").folder)


@pytest.mark.parametrize("labels", [None, ("b", "a", "c")])
def test_arms_of_a_model(tmp_path, labels):
    log = lmab.Sessions([0, 1, 1], [1.0, 0.0, 1.0], [0, 2, 3], 2, arm_labels=labels and labels[:2])
    lmab.pack(log, tmp_path / "packed")
    table = ("c", "a", "b") if labels else None
    bandit = lmab.LatentBandit.bernoulli([1.0], [[0.5, 0.5, 0.5]])
    bandit = lmab.LatentBandit(bandit.weights, bandit.rewards, table)
    found = command.COLUMNS.read(tmp_path / "packed", arms_of=bandit)
    assert found.arms.tolist() == ([2, 1, 1] if labels else [0, 1, 1])
    assert found.n_arms == 3
    other = lmab.LatentBandit(bandit.weights, bandit.rewards, ("c", "x", "y"))
    if labels:
        with pytest.raises(InvalidData, match="the packed log names an unknown arm, 'b'"):
            command.COLUMNS.read(tmp_path / "packed", arms_of=other)


@pytest.fixture
def far(monkeypatch):
    pytest.importorskip("distributed", reason="Dask is not installed")
    monkeypatch.setattr(parallel, "_FAR", 0)
    monkeypatch.setattr("lmab.estimation.passes._PART", 200)
    monkeypatch.setattr("lmab.estimation.log.MOST", 1)  # no sessions are merged


def test_a_fit_and_a_study_on_a_cluster(far, log, tmp_path, monkeypatch):
    run("pack", log, "-o", tmp_path / "packed", *COLUMNS)
    options = ("--types", "2", "--prior", "1", "--restarts", "2", "--no-check", "--json")
    expected = run("fit", tmp_path / "packed", "-o", tmp_path / "model.lmab", *options)
    study = ("reproduce", "planning", "--quick", "--json")
    with cluster(tmp_path, 1) as (processes, _):
        there = ("--cluster", processes.address)
        found = run("fit", tmp_path / "packed", "-o", tmp_path / "model.lmab", *options, *there)
        assert json.loads(found.stdout) == json.loads(expected.stdout)
        done = json.loads(run(*study, "--out", tmp_path / "far", *there).stdout)
        assert done[0]["done"] == done[0]["trials"]

        def killing(news):
            os.kill(processes.scheduler.pid, signal.SIGKILL)
            processes.scheduler.wait()

        original = command.find_types
        monkeypatch.setattr(
            command,
            "find_types",
            lambda *a, progress, **k: original(*a, progress=lambda news: killing(news), **k),
        )
        with pytest.raises(ClusterLost, match=r"the best model so far is written to .*best\.lmab, without the checks"):
            run("fit", tmp_path / "packed", "-o", tmp_path / "best.lmab", *options, *there)
    assert lmab.load(tmp_path / "best.lmab").status == "interrupted"


def test_no_scheduler(far, log, tmp_path, monkeypatch):
    monkeypatch.setattr("lmab.parallel._CONNECT", 0.3)
    run("pack", log, "-o", tmp_path / "packed", *COLUMNS)
    with pytest.raises(ClusterLost, match="no scheduler answers at"):
        run("fit", tmp_path / "packed", "--types", "2", "--cluster", "tcp://127.0.0.1:9")


def test_explain_prints_the_query_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").write_text("session,arm,reward\n0,a,1\n0,b,0\n")
    printed = CliRunner().invoke(app, ["pack", "log.csv", "-o", "packed", "--explain"])
    assert printed.exit_code == 0
    assert "ORDER BY key, within, rn" in printed.output
    assert os.listdir() == ["log.csv"]
