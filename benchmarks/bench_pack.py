"""Large logs: packing, reading, a map of a packed log on threads and on a Dask cluster, and how a fit grows.

Files go to the folder in `LMAB_BENCH_FOLDER`, else to a temporary one, and are removed at the end; 1e8 steps take about
1.5 GB. Every measurement runs in a process of its own, whose memory is its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .rows import Rows

STEPS = 10**8
TEXT_STEPS = 10**7
SESSIONS = (10**5, 10**6, 10**7)
HORIZON, ARMS, TYPES = 7, 100, 8


def main() -> Rows:
    folder = Path(tempfile.mkdtemp(dir=os.environ.get("LMAB_BENCH_FOLDER")))
    try:
        return _measured(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measured(folder: Path) -> Rows:
    found: dict[str, float] = {}
    run("sorted_log", folder, STEPS)
    found |= run("pack_sorted", folder)
    print(f"pack 10^8 sorted steps: {found['pack/seconds']:.1f} s, peak {found['pack/peak-MB']:,.0f} MB", flush=True)
    found |= run("maps", folder)
    print(
        f"a map of 10^8 steps: threads {found['map/threads']:.2f} s of processor time, Dask with two workers "
        f"{found['map/dask']:.2f} s, {found['map/ratio']:.2f} times as much",
        flush=True,
    )
    run("text_log", folder, TEXT_STEPS)
    found |= run("pack_text", folder)
    print(f"pack 10^7 shuffled steps of text ids: {found['text/seconds']:.1f} s, peak {found['text/peak-MB']:,.0f} MB")
    found |= run("read", folder)
    print(f"read a sorted log into memory: {found['read/bytes-a-step']:.1f} bytes a step at peak", flush=True)
    for number in SESSIONS:
        found |= run("grow", folder, number)
        seconds, peak = (found[f"grow/{number}/{name}"] for name in ("seconds", "own-MB"))
        print(f"pack and fit {number:,} sessions: {seconds:,.1f} s, {peak:,.0f} MB of its own", flush=True)
    return found


def run(name: str, *arguments: Any) -> dict[str, float]:
    """What a function of `pack_work` prints as JSON, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.bench_pack", name, *map(str, arguments)]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(json.loads(out.splitlines()[-1])) if out.strip() else {}


def _work() -> dict[str, Callable[..., dict[str, float] | None]]:
    from . import pack_work

    return {name: getattr(pack_work, name) for name in pack_work.__all__}


if __name__ == "__main__":
    result = _work()[sys.argv[1]](Path(sys.argv[2]), *map(int, sys.argv[3:]))
    if result is not None:
        print(json.dumps(result))
