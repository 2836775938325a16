"""`lmab fit` on a Parquet log of 10^7 steps (1.5 million sessions, 200 arms): time and peak memory of the process."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import lmab

from .rows import Rows

SESSIONS, STEPS, ARMS, TYPES = 1_500_000, 10_000_000, 200, 8
LIMIT_SECONDS, LIMIT_BYTES = 180, 2e9

_CHILD = """
import sys
from lmab.cli import main
sys.argv = ["lmab", *sys.argv[1:]]
try:
    main()
finally:
    status = open("/proc/self/status").read()
    print("peak", int(status.split("VmHWM:")[1].split()[0]) * 1024, file=sys.stderr)
"""


def main() -> Rows:
    if not os.path.exists("/proc/self/status"):
        print("fit: skipped, peak memory is read from /proc")
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "logs.parquet"
        subprocess.run(
            [sys.executable, "-c", f"from benchmarks import bench_fit; bench_fit.write({str(path)!r})"], check=True
        )
        print(
            f"log: {SESSIONS:,} sessions, {STEPS:,} steps, {ARMS} arms, {path.stat().st_size / 1e6:.0f} MB of Parquet"
        )
        columns = ["--session", "session", "--arm", "item", "--reward", "click", "--step", "t"]
        arguments = ["fit", str(path), *columns, "--types", str(TYPES), "-o", f"{folder}/model.lmab"]
        seconds, processor, peak = _run(arguments)
        verdict = "within" if seconds < LIMIT_SECONDS and peak < LIMIT_BYTES else "OVER"
        print(
            f"lmab fit --types {TYPES}, {os.cpu_count()} cores: {seconds:.1f} s ({processor:.1f} s of processor "
            f"time), peak {peak / 1e9:.2f} GB: {verdict} the limits of {LIMIT_SECONDS} s and {LIMIT_BYTES / 1e9:.0f} GB"
        )
        return {"wall": seconds, "used": processor, "GB": peak / 1e9}


def write(path: str) -> None:
    """A log with text for names, sessions of 2 to 11 steps."""
    import pyarrow as pa
    import pyarrow.parquet

    rng = np.random.default_rng(0)
    bandit = lmab.random_bandit(TYPES, ARMS, rng=rng)
    lengths = 2 + rng.multinomial(STEPS - 2 * SESSIONS, np.full(SESSIONS, 1 / SESSIONS))
    owner = np.repeat(np.arange(SESSIONS, dtype=np.int32), lengths)
    steps = np.arange(STEPS, dtype=np.int32) - np.repeat(np.cumsum(lengths) - lengths, lengths).astype(np.int32)
    types = rng.choice(TYPES, size=SESSIONS, p=bandit.weights)[owner]
    arms = rng.integers(ARMS, size=STEPS)
    clicks = bandit.rewards.sample(types, arms, rng=rng).astype(np.int8)
    items = pa.DictionaryArray.from_arrays(pa.array(arms.astype(np.int16)), [f"item-{arm:03d}" for arm in range(ARMS)])
    names = pa.array([f"session-{k:08d}" for k in range(SESSIONS)])
    sessions = pa.DictionaryArray.from_arrays(pa.array(owner), names)
    table = pa.table({"session": sessions, "t": steps, "item": items, "click": clicks})
    pa.parquet.write_table(table, path, store_schema=False)


def _run(arguments: list[str]) -> tuple[float, float, int]:
    """Seconds, seconds of processor time, and peak memory in bytes of one command."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    result = subprocess.run([sys.executable, "-c", _CHILD, *arguments], capture_output=True, text=True)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if result.returncode != 0:
        raise SystemExit(result.stderr)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, processor, int(result.stderr.split("peak ")[1])


if __name__ == "__main__":
    main()
