"""Readers meet thousands of damaged files: they answer with an error of ours that names the file, or with a value."""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policies import in_turn
from seeds import generator

import lmab
from lmab import Sessions
from lmab.errors import LmabError, LmabWarning
from lmab.evaluation import diagnostics
from lmab.planning.problem import policy_of

FEW, MANY = 400, 3000  # mutations of each kind of file, in the ordinary tests and in the slow ones
RESULTS = lmab.Estimate | lmab.Plan | lmab.Assessment


@pytest.fixture(params=[FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def mutations(request):
    return request.param


def mutate(data: bytes, rng: np.random.Generator) -> bytes:
    """Flip, overwrite, cut, repeat, or glue in bytes that parsers care about."""
    buffer = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        place = int(rng.integers(len(buffer))) if buffer else 0
        length = int(rng.integers(1, 9))
        match rng.integers(7):
            case 0:
                buffer[place : place + 1] = bytes([buffer[place] ^ (1 << int(rng.integers(8)))]) if buffer else b"x"
            case 1:
                buffer[place : place + length] = rng.bytes(length)
            case 2:
                del buffer[place : place + length]
            case 3:
                buffer = buffer[:place]
            case 4:
                buffer[place:place] = buffer[place : place + 4 * length]
            case 5:
                buffer[place : place + 8] = b"\xff" * 8
            case 6:
                glue = [b",", b"\n", b'"', b"nan", b"-1", b"1e999", b"\x00", b"PAR1", b"9" * 30, b"", b"{}", b"null"]
                buffer[place:place] = glue[int(rng.integers(len(glue)))]
    return bytes(buffer)


def a_table() -> pa.Table:
    rng = generator(1)
    n = 60
    return pa.table(
        {
            "session": [f"s{k // 4}" for k in range(n)],
            "arm": [["tea", "milk", "água"][k] for k in rng.integers(3, size=n)],
            "reward": rng.integers(2, size=n).astype(float),
            "step": np.arange(n) % 4,
            "propensity": np.full(n, 0.25),
        }
    )


def logs_of(kind: str, folder: Path) -> Path:
    path = folder / f"original.{kind}"
    if kind == "csv":
        pa.csv.write_csv(a_table(), path)
    elif kind == "jsonl":
        path.write_text("\n".join(json.dumps(row) for row in a_table().to_pylist()))
    elif kind == "parquet":
        pa.parquet.write_table(a_table(), path, row_group_size=25)
    else:  # with the note that our own files carry
        columns: dict[str, Any] = {name: name for name in ("session", "arm", "reward", "step", "propensity")}
        Sessions.from_frame(a_table(), **columns).write(path)
    return path


def survives(read, path: Path) -> bool:
    """True for a value, False for an error of ours; anything else is a failure."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LmabWarning)  # of equal steps
            read(path)
    except LmabError as error:
        message = str(error)
    else:
        return True
    assert path.name in message or " must " in message or "column" in message or "log" in message, message
    assert "\n" not in message
    return False


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "pq"])
def test_damaged_logs(tmp_path, kind, mutations):
    original = logs_of(kind, tmp_path).read_bytes()
    rng = generator(7)
    path = tmp_path / f"damaged.{kind}"
    read = 0
    for _ in range(mutations):
        path.write_bytes(mutate(original, rng))
        read += survives(lambda p: Sessions.read(p, step="step", propensity="propensity"), path)
    assert 0 < read < mutations  # some damage does not matter, most does


def results(bandit: lmab.LatentBandit, rng: np.random.Generator) -> dict[str, Any]:
    """An estimate with all that it can hold, the plan on it, the assessment of both."""
    log = lmab.simulate(bandit, lmab.Uniform(4), n_sessions=100, horizon=3, rng=rng)
    estimate = lmab.fit(log, n_types="auto", method=lmab.EM(restarts=1, prior=1.0), rng=rng)
    checked = replace(estimate, check=diagnostics.check(log, n_types=estimate.n_types, rng=rng))
    plan = lmab.plan(checked, horizon=3)
    return {"estimate": checked, "plan": plan, "assessment": lmab.assess(checked, plan, log, n_draws=20, rng=rng)}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, rng = tmp_path_factory.mktemp("models"), generator(0)
    bandit = lmab.LatentBandit(
        np.array([0.5, 0.5]), lmab.random_bandit(2, 4, rng=rng).rewards, arm_labels=("a", "b", "c", "d")
    )
    values = {
        "bandit": bandit,
        "gaussian": lmab.LatentBandit.gaussian([0.5, 0.5], [[1.0, 2.0], [0.0, 1.0]]),
        "greedy": lmab.Greedy(bandit, horizon=3),
        "mucb": lmab.policies.MUCB(bandit),
        "sequence": in_turn(0, 1),
        "planned": lmab.plan(bandit, horizon=3, method=lmab.planning.PointBased()).policy,
        "exact": lmab.plan(bandit, horizon=3, method=lmab.Exact()).policy,
        "once": lmab.plan(bandit, horizon=3, repeats=False).policy,
        "graph": lmab.plan(bandit, horizon=3, method=lmab.Exact()).policy.graph(),
        "design": lmab.moments.design(rng.standard_normal((6, 2))),
        **results(bandit, rng),
    }
    for name, value in values.items():
        value.save(folder / f"{name}.lmab")
    return [folder / f"{name}.lmab" for name in values]


def test_damaged_models(tmp_path, models, mutations):
    originals = [path.read_bytes() for path in models]
    rng = generator(8)
    path = tmp_path / "damaged.lmab"
    read = 0
    for k in range(mutations):
        path.write_bytes(mutate(originals[k % len(originals)], rng))
        read += survives(lmab.load, path)
    assert read < mutations


def plays(policy: lmab.Policy) -> None:
    """A whole session, as a user would play it."""
    state = policy.start()
    for _ in range(min(policy.horizon or 3, 10)):
        arm = policy.act(state)
        state = policy.observe(state, arm, 1.0)


def speaks(value: Any) -> None:
    """What a reader would ask a result for."""
    assert repr(value)
    assert value._repr_html_()
    if isinstance(value, lmab.Estimate):
        assert value.curve is None or str(value.curve)
        assert value.check is None or value.check.verdict
        assert str(value.starts) + str(value.log)
    if isinstance(value, lmab.Assessment):
        assert value.sentence + value.note


def test_models_whose_contents_lie(tmp_path, models, mutations):
    """The archive is sound, its members are not: checksums cannot help here."""
    rng = generator(9)
    originals = []
    for path in models:
        with zipfile.ZipFile(path) as archive:
            originals.append({info.filename: archive.read(info) for info in archive.infolist()})
    path = tmp_path / "lying.lmab"
    for k in range(mutations):
        members = dict(originals[k % len(originals)])
        victim = sorted(members)[int(rng.integers(len(members)))]
        members[victim] = mutate(members[victim], rng)
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
        path.write_bytes(buffer.getvalue())
        if survives(lmab.load, path):
            value = lmab.load(path)
            assert isinstance(value, lmab.LatentBandit | lmab.Policy | lmab.moments.Design | RESULTS)
            if isinstance(value, RESULTS):
                speaks(value)
            if isinstance(value, lmab.Policy | lmab.Plan):
                survives(lambda p, value=value: plays(policy_of(value)), path)


CELLS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=5), st.binary(max_size=3)
)


@settings(max_examples=120)
@given(
    st.lists(st.sampled_from(["session", "arm", "reward", "step", "propensity", ""]), max_size=6),
    st.lists(st.lists(CELLS, min_size=6, max_size=6), max_size=5),
)
def test_any_csv_text(tmp_path_factory, header, rows):
    path = tmp_path_factory.getbasetemp() / "any.csv"
    lines = [",".join(header), *(",".join(map(str, row[: len(header)])) for row in rows)]
    path.write_text("\n".join(lines), encoding="utf-8", errors="surrogateescape")
    found: list[Sessions] = []
    read = survives(lambda p: found.append(Sessions.read(p, step="step", propensity="propensity")), path)
    assert read == bool(found)
    if read:
        assert_sound(found[0])
        assert set(header) >= {"session", "arm", "reward", "step", "propensity"}


def assert_sound(log: Sessions) -> None:
    """What every log keeps, wherever it came from."""
    assert 1 <= len(log) <= log.n_steps == log.lengths.sum()
    assert ((log.arms >= 0) & (log.arms < log.n_arms)).all()
    assert np.isfinite(log.rewards).all()
    assert log.propensities is None or ((log.propensities > 0) & (log.propensities <= 1)).all()
    assert log.arm_labels is None or len(set(log.arm_labels)) == log.n_arms


@settings(max_examples=120)
@given(
    st.integers(0, 4).flatmap(
        lambda n: st.fixed_dictionaries(
            {
                name: st.one_of(
                    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=n, max_size=n),
                    st.lists(st.floats(), min_size=n, max_size=n),
                    st.lists(st.text(max_size=4), min_size=n, max_size=n),
                    st.lists(st.one_of(st.none(), st.booleans()), min_size=n, max_size=n),
                    st.lists(st.datetimes(), min_size=n, max_size=n),
                    st.lists(st.lists(st.integers(0, 3), max_size=2), min_size=n, max_size=n),
                )
                for name in ("session", "arm", "reward", "step")
            }
        )
    )
)
def test_any_table(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.parquet"
    try:
        pa.parquet.write_table(pa.table(data), path)
    except (pa.ArrowException, UnicodeEncodeError):
        return  # Parquet has no place for it
    found: list[Sessions] = []
    read = survives(lambda p: found.append(Sessions.read(p, step="step")), path)
    assert read == bool(found)
    if read:  # every row is a step, and every id a session
        assert_sound(found[0])
        assert len(found[0]) == len(set(data["session"]))
        assert sorted(found[0].rewards) == sorted(float(reward) for reward in data["reward"])
