"""Erasure: after it and the next refit, nothing that only the erased person had is in any file or table."""

from __future__ import annotations

import asyncio
import io
import os
import struct
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from serving import HORIZON, LABELS, Clock, go, served

import lmab
from lmab.data.packed import is_packed
from lmab.serve.messages import Question, Reward
from lmab.serve.refit import RefitOptions, refit

AGE, TOWN = 83.708317, "Kleinstadt-Only-Me"  # of one person alone
OPTIONS = RefitOptions(types=2, horizon=HORIZON, repeats=True, time_limit=5.0, least=100, canary=1.0, prior=1.0)
TRUTH = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.95, 0.5, 0.05], [0.05, 0.6, 0.95]])


async def visits(client, prefix: str, n: int, rng: np.random.Generator) -> None:
    """Sessions whose town and age tell the type; the person of session 60 is the only one from a small town."""

    async def one(index: int) -> None:
        own, kind, mine = np.random.default_rng([seed, index]), index % 2, index == 60
        known = {"age": AGE if mine else float(own.normal((30, 50)[kind], 6)), "town": TOWN if mine else "xy"[kind]}
        reward = None
        for step in range(HORIZON):
            question = Question(f"{prefix}{index}", step, reward, features=known if step == 0 else None,
                                person=f"{prefix}{index}" if step == 0 else None)  # fmt: skip
            arm = LABELS.index((await client.service.decide(question)).label)
            reward = float(TRUTH.rewards.sample(np.array([kind]), np.array([arm]), rng=own)[0])
        await client.service.reward([Reward(f"{prefix}{index}", HORIZON - 1, reward)])

    seed = int(rng.integers(1 << 30))
    for start in range(0, n, 100):
        await asyncio.gather(*(one(index) for index in range(start, min(start + 100, n))))


def holds(data: bytes) -> bool:
    """Whether bytes hold the age or the town, as text or as a number, also within an archive or a table."""
    if data[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            data = b"".join(archive.read(name) for name in archive.namelist())
    if data[:4] == b"PAR1":
        data = repr(pq.read_table(pa.BufferReader(data)).to_pylist()).encode()
    values = (
        str(AGE).encode(),
        struct.pack("<d", AGE),
        struct.pack(">d", AGE),
        TOWN.encode(),
        TOWN.encode().hex().encode(),
    )
    return any(value in data for value in values)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


async def tables(where: str) -> list[bytes]:
    """Return the rows of all tables of a store on PostgreSQL."""
    import asyncpg

    db = await asyncpg.connect(where)
    try:
        names = await db.fetch("SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = current_schema()")
        assert names  # the store has tables, and none is in another schema
        rows = [row for (name,) in names for row in await db.fetch(f"SELECT * FROM {name}")]
    finally:
        await db.close()
    return [value if isinstance(value, bytes) else str(value).encode() for row in rows for value in row.values()]


def test_after_erasure_and_a_refit_nothing_holds_what_one_person_had(event_store, tmp_path, rng):
    folder = tmp_path / "policies"

    async def stored() -> list[bytes]:
        if "://" in event_store:
            return await tables(event_store)
        return [path.read_bytes() for path in files(tmp_path) if path.name.startswith(Path(event_store).name)]

    async def scenario():
        clock = Clock()
        async with served(event_store, clock=clock) as client:
            await visits(client, "s", 300, rng)
            clock.now += 7200
            first = await refit(client.service.store, folder, OPTIONS, rng=rng, now=clock.now)
            assert first.outcome == "promoted", first.lines
            estimate = lmab.load(folder / f"{first.version}.model.lmab")
            assert set(estimate.type_prior.columns) == {"age", "town"}
            assert any(holds(data) for data in await stored())
            assert [path.suffix for path in files(folder) if holds(path.read_bytes()) and path.suffix == ".lmab"] == []
            await client.service.register.refresh()
            answer = (await client.http.delete("/v1/persons/s60")).json()
            assert answer["sessions"] == 1
            assert answer["versions"] == [first.version]
            assert any("until the next refit" in line for line in answer["left"])
            assert any("DELETE /v1/policies/{version}" in line for line in answer["left"])
            again = (await client.http.delete("/v1/persons/s60")).json()
            assert (again["sessions"], again["versions"]) == (0, [first.version])
            clock.now += 10
            await refit(client.service.store, folder, OPTIONS, rng=rng, now=clock.now)
            assert [path.name for path in files(folder) if holds(path.read_bytes())] == []
            assert not any(holds(data) for data in await stored())

    go(scenario())
    assert {oct(path.stat().st_mode & 0o777) for path in files(folder)} == {"0o600"}
    assert {oct(path.stat().st_mode & 0o777) for path in folder.rglob("*") if path.is_dir()} <= {"0o700"}
    assert not any(is_packed(path) and holds(path.read_bytes()) for path in files(folder))


def test_a_file_follows_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        TRUTH.save(tmp_path / "private.lmab")
        os.umask(0o022)
        TRUTH.save(tmp_path / "public.lmab")
    finally:
        os.umask(before)
    modes = [path.stat().st_mode & 0o777 for path in files(tmp_path)]
    assert modes == [0o600, 0o644]
