"""Does what one client does make the others wait? `python -m benchmarks.serve_stalls [--store] [NAME ...]`

Others are new sessions at a steady rate; the same load goes to a constant answer on the same stack at the same time, so
that what the machine does beside it meets both; and a small write is synced to the same disk ten times a second, since
an answer waits for such a one. Times count from the moment at which a request was due. Each case has a
store filled by SQL: a person with 200,000 steps, a page and an erasure at 1,000,000 steps, 500,000 steps that wait for
their default reward.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sqlite3
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lmab.serve.run import tame_garbage_collection
from lmab.serve.sqlite import make_tables

from . import rows as stored
from .bench_serve import Constant, write_policy
from .serve_load import HOST, Connection, Served

RATE = 60.0  # new sessions a second, for each of both
LIMIT = 100.0  # ms: the longest wait that is no stall
_ARMS, _STEPS = 50, 5
_SETTLED = 2.0  # seconds before something happens
Action = Callable[["Served", threading.Event], None]


def fill(path: Path, n_sessions: int, *, person: str | None = None, rewarded: bool = True) -> None:
    """A store with sessions of five steps of the last days."""
    rng, db = np.random.default_rng(0), sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    make_tables(db)
    at = np.sort(time.time() - 7200.0 - rng.random(n_sessions) * 3 * 86_400)
    arms, paid = rng.integers(0, _ARMS, (2, n_sessions, _STEPS)).tolist()
    where = [(i, step) for i in range(n_sessions) for step in range(_STEPS)]
    db.execute("BEGIN")
    db.executemany("INSERT INTO arms VALUES(?,?,1)", [(i, str(i)) for i in range(_ARMS)])
    db.executemany("INSERT INTO sessions VALUES(?,?,?,NULL)", ((i + 1, f"g{i}", person) for i in range(n_sessions)))
    db.executemany(
        "INSERT INTO steps VALUES(?,?,?,?,'uniform',?,1,0,NULL,NULL)",
        ((i + 1, step, arms[i][step], 1 / _ARMS, float(at[i] + step)) for i, step in where),
    )
    if rewarded:
        db.executemany(
            "INSERT INTO step_rewards VALUES(?,?,?,?,0)",
            ((i + 1, step, float(paid[i][step] % 2), float(at[i] + step)) for i, step in where),
        )
    db.execute("COMMIT")
    db.close()
    os.sync()  # else the disk is busy with these rows while others are timed


async def paced(port: int, seconds: float, rate: float = RATE) -> list[float]:
    """Milliseconds of first decisions of new sessions, each from the moment at which it was due."""
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(32):
        free.put_nowait(Connection(port))
    begin, times = time.perf_counter(), list[float]()
    tag = f"{port}-{time.time_ns()}"

    async def one(index: int) -> None:
        due = begin + index / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        connection = await free.get()
        status, _ = await connection.post("/v1/decide", f'{{"session":"{tag}-{index}","step":0}}'.encode())
        assert status == 200, status
        times.append((time.perf_counter() - due) * 1e3)
        free.put_nowait(connection)

    await asyncio.gather(*(one(index) for index in range(int(rate * seconds))))
    return times


def beside(served: Served, constant: Served, action: Action | None, seconds: float) -> stored.Rows:
    """The waits of others at both, while something happens at the first."""
    over, syncs = threading.Event(), [0.0]

    def act() -> None:
        time.sleep(_SETTLED)
        if action is not None:
            action(served, over)

    def sync() -> None:
        with open(Path(served.store).parent / "probe", "wb", buffering=0) as stream:
            while not over.wait(0.1):
                stream.write(bytes(4096))
                began = time.perf_counter()
                os.fsync(stream.fileno())
                syncs.append((time.perf_counter() - began) * 1e3)

    async def both() -> tuple[list[float], list[float]]:
        return await asyncio.gather(paced(served.port, seconds), paced(constant.port, seconds))

    tame_garbage_collection()  # of this process, which would make both wait
    threads = [threading.Thread(target=one) for one in (act, sync)]
    for thread in threads:
        thread.start()
    own, other = (sorted(times) for times in asyncio.run(both()))
    over.set()
    for thread in threads:
        thread.join()
    found: stored.Rows = {"sync-worst": max(syncs)}
    for name, times in (("", own), ("constant-", other)):
        found |= {f"{name}p50": times[len(times) // 2], f"{name}p99": times[int(len(times) * 0.99)]}
        found |= {f"{name}worst": times[-1]}
    return found


def call(served: Served, method: str, path: str, body: bytes | None = None) -> Any:
    """One request; its answer."""
    request = urllib.request.Request(f"http://{HOST}:{served.port}{path}", body, method=method)
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.loads(answer.read() or b"null")


def returning(served: Served, over: threading.Event) -> None:
    """The person with many steps comes back again and again."""
    while not over.is_set():
        body = json.dumps({"session": f"back{time.time_ns()}", "step": 0, "person": "ann"})
        call(served, "POST", "/v1/decide", body.encode())


def watching(served: Served, over: threading.Event) -> None:
    """A page is open."""
    while not over.is_set():
        call(served, "GET", "/v1/summary")
        over.wait(3.0)


def erasing(served: Served, over: threading.Event) -> None:
    """The person with many steps wants to be forgotten."""
    assert call(served, "DELETE", "/v1/persons/ann")["sessions"] > 0


def loading(policy: Path) -> Action:
    """A policy is sent and put in force."""

    def load(served: Served, over: threading.Event) -> None:
        name = call(served, "PUT", "/v1/policies", policy.read_bytes())["version"]
        call(served, "POST", f"/v1/policies/{name}:promote", b'{"share": 1}')

    return load


@contextlib.contextmanager
def running(served: Served) -> Iterator[Served]:
    """A service that is ready, and ends with the block."""
    served.start()
    try:
        yield served
    finally:
        served.kill()


def cases(folder: Path) -> dict[str, Callable[[Served], stored.Rows]]:
    """What may stall others, by name; each gets the constant answer and gives its rows."""
    write_policy(folder / "policy.lmab")

    def service(store: str, *more: str) -> Served:
        return Served(str(folder / store), "--horizon", "7", *more)

    def during(action: Action | None, seconds: float, n: int = 0, **how: Any) -> Callable[[Served], stored.Rows]:
        def case(constant: Served) -> stored.Rows:
            path = folder / f"{time.time_ns()}.db"
            fill(path, n, **how)
            with running(service(path.name)) as served:
                return beside(served, constant, action, seconds)

        return case

    def first(constant: Served) -> stored.Rows:
        """Ready, and at once the others."""
        with running(Served(str(folder / "first.db"), str(folder / "policy.lmab"))) as served:
            return beside(served, constant, None, 3.0)

    def sweep(constant: Served) -> stored.Rows:
        """Ready, and at once the first default rewards."""
        fill(folder / "sweep.db", 100_000, rewarded=False)
        with running(service("sweep.db", "--default-reward", "0")) as served:
            return beside(served, constant, None, 15.0)

    return {
        "nothing": during(None, 6.0),
        "person": during(returning, 10.0, 40_000, person="ann"),
        "page": during(watching, 15.0, 200_000),
        "version": during(loading(folder / "policy.lmab"), 8.0),
        "first": first,
        "sweep": sweep,
        "erasure": during(erasing, 20.0, 40_000, person="ann"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="cases; by default all of them")
    parser.add_argument("--store", action="store_true", help="keep the rows in docs/benchmarks/rows.json")
    given = parser.parse_args()
    rows: stored.Rows = {}
    with tempfile.TemporaryDirectory(prefix="lmab-stalls-") as name, running(Constant("")) as constant:
        found = cases(Path(name))
        for what in given.names or found:
            row = found[what](constant)
            rows |= {f"{what}/{key}": value for key, value in row.items()}
            told = " ".join(f"{key} {value:.1f}" for key, value in row.items())
            verdict = "no stall" if row["worst"] <= LIMIT else "STALL"
            print(f"{what:8s} {told} ms; worst {row['worst'] / row['constant-worst']:.1f} times: {verdict}", flush=True)
    if given.store:
        stored.store("serve_stalls", stored.measured("python -m benchmarks.serve_stalls", rows))


if __name__ == "__main__":
    main()
