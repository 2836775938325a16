"""The measurements of `bench_pack` and `study_billion`, each for a process of its own."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet

import lmab
from lmab import parallel
from lmab.estimation.families import observe
from lmab.parallel import Cluster, Threads

from .bench_pack import ARMS, HORIZON, TYPES
from .timing import timed

__all__ = ["grow", "maps", "pack_sorted", "pack_text", "read", "sorted_log", "text_log"]

_CHUNK = 1 << 20  # sessions made at once
_MAPS = 5


def sorted_log(folder: Path, n_steps: int) -> None:
    """A Parquet file sorted by numbers of sessions."""
    rng, writer = np.random.default_rng(0), None
    for start in range(0, n_steps // HORIZON, _CHUNK):
        n = min(_CHUNK, n_steps // HORIZON - start)
        table = pa.table(
            {
                "session": np.repeat(np.arange(start, start + n), HORIZON),
                "arm": rng.integers(0, ARMS, n * HORIZON, dtype=np.int16),
                "reward": (rng.random(n * HORIZON) < 0.4).astype(np.float32),
            }
        )
        writer = writer or pyarrow.parquet.ParquetWriter(folder / "sorted.parquet", table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def text_log(folder: Path, n_steps: int) -> None:
    """A Parquet file of sessions named by text, in any order."""
    rng = np.random.default_rng(0)
    order = rng.permutation(n_steps)
    names = pa.array(np.char.add("session-", (np.arange(n_steps // HORIZON + 1) * 7919).astype("U12")))
    table = pa.table(
        {
            "session": names.take(pa.array(order // HORIZON)),
            "step": order % HORIZON,
            "arm": rng.integers(0, ARMS, n_steps),
            "reward": (rng.random(n_steps) < 0.4).astype(np.float64),
        }
    )
    pyarrow.parquet.write_table(table, folder / "text.parquet")


def pack_sorted(folder: Path) -> dict[str, float]:
    found = timed(lambda: lmab.pack(folder / "sorted.parquet", folder / "packed"))
    return {"pack/seconds": found.used, "pack/peak-MB": _peak() / 1e6}


def pack_text(folder: Path) -> dict[str, float]:
    found = timed(lambda: lmab.pack(folder / "text.parquet", folder / "text", step="step"))
    return {"text/seconds": found.used, "text/peak-MB": _peak() / 1e6}


def read(folder: Path) -> dict[str, float]:
    few = pyarrow.parquet.ParquetFile(folder / "sorted.parquet").read_row_group(0).slice(0, 1 << 18)
    pyarrow.parquet.write_table(few, folder / "few.parquet")
    lmab.Sessions.read(folder / "few.parquet")
    before = _peak()
    log = lmab.Sessions.read(folder / "sorted.parquet")
    return {"read/bytes-a-step": (_peak() - before) / log.n_steps}


def maps(folder: Path) -> dict[str, float]:
    """Processor time of a map of one model, of all processes together: on threads, and on Dask with two workers."""
    import psutil
    from distributed import Client, LocalCluster

    data = observe(lmab.Packed(folder / "packed", verify=False))
    model = data.random_models(1, TYPES, np.random.default_rng(0))
    with Threads(2) as passes:
        data.expectation(model, passes)
        here = timed(lambda: [data.expectation(model, passes) for _ in range(_MAPS)])
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
        Threads(1) as one,
    ):
        parallel._FAR = 0
        away = Cluster(client, one)
        data.expectation(model, away)
        workers = [psutil.Process(pid) for pid in client.run(os.getpid).values()]

        def used() -> float:
            return time.process_time() + sum(sum(worker.cpu_times()[:2]) for worker in workers)

        before = used()
        far = [data.expectation(model, away) for _ in range(_MAPS)]
        there = used() - before
    np.testing.assert_array_equal(here.result[-1][0], far[-1][0])
    result = {"map/threads": here.used / _MAPS, "map/dask": there / _MAPS}
    return {**result, "map/ratio": there / here.used}


def grow(folder: Path, n_sessions: int) -> dict[str, float]:
    """Simulate a log straight into a pack, and fit it."""
    target = folder / f"grow-{n_sessions}"
    with own_memory() as peak:
        packed = timed(lambda: lmab.pack(simulated(n_sessions), target))
        print(_said("packed", packed.wall, packed.used, peak[0]), file=sys.stderr, flush=True)
        method = lmab.EM(prior="learned", restarts=8)
        fit = timed(lambda: lmab.fit(packed.result, n_types=TYPES, method=method, rng=0))
    print(_said("fitted", fit.wall, fit.used, peak[0]), fit.result.message, file=sys.stderr, flush=True)
    name = f"grow/{n_sessions}"
    return {
        f"{name}/pack-seconds": packed.used,
        f"{name}/fit-seconds": fit.used,
        f"{name}/seconds": packed.used + fit.used,
        f"{name}/wall": packed.wall + fit.wall,
        f"{name}/own-MB": peak[0] / 1e6,
        f"{name}/log-likelihood": fit.result.log_likelihood,
    }


def _said(done: str, wall: float, used: float, peak: float) -> str:
    times = f"{wall:,.0f} s on the clock, {used:,.0f} s of the processor"
    return f"{done}: {times}, at most {peak / 1e6:,.0f} MB of its own so far;"


def simulated(n_sessions: int) -> Iterator[lmab.Sessions]:
    """Sessions of a bandit with uniform play, a million at a time."""
    rng = np.random.default_rng(0)
    means, weights = rng.beta(0.7, 0.7, (TYPES, ARMS)), rng.dirichlet(np.full(TYPES, 5.0))
    cumulative = np.cumsum(weights)
    for start in range(0, n_sessions, _CHUNK):
        n = min(_CHUNK, n_sessions - start)
        types = np.minimum(np.searchsorted(cumulative, rng.random(n)), TYPES - 1)
        arms = rng.integers(0, ARMS, (n, HORIZON), dtype=np.int32)
        paid = rng.random((n, HORIZON), dtype=np.float32) < means[types[:, None], arms]
        offsets = np.arange(0, n * HORIZON + 1, HORIZON)
        yield lmab.Sessions(arms.ravel(), paid.ravel().astype(np.float64), offsets, ARMS)


@contextmanager
def own_memory() -> Iterator[list[float]]:
    """The most memory that is this process's own, in bytes: pages of mapped files are not counted."""
    peak, done = [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            text = Path("/proc/self/status").read_text()
            peak[0] = max(peak[0], 1024.0 * int(text.partition("RssAnon:")[2].split()[0]))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
