"""A day of traffic in minutes: two replicas on PostgreSQL, refits, kills, crashes of the database, and an upgrade.

git worktree add ../before COMMIT && python -m benchmarks.serve_day --seconds 600 --before ../before

The store begins with sessions of the older release, which then plays on while the first replica of this release starts.
Every acknowledged decision and reward is compared with the store at the end. A monitor asks each replica again and
again: one that is ready before and after a request must have answered it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from . import postgres_server
from .serve_load import BAD, Connection, Record, Served, lies, player, write_policy

_PLAYERS = 6
_PERIODS = ("kill", "refit", "kill", "crash", "kill", "refit")  # events, one after the other, until the day is over


async def monitor(served: Served, found: Counter[str], name: str) -> None:
    """Count requests to a replica by whether it was ready before and after them, and whether it answered."""
    connection = Connection(served.port)
    for number in range(10**9):
        ready = []
        status = 0
        for request in ("ready", "decide", "ready"):
            try:
                async with asyncio.timeout(10):
                    if request == "ready":
                        ready.append(await asyncio.to_thread(is_ready, served.port))
                    else:
                        body = {"session": f"monitor-{name}-{number}", "step": 0}
                        status, _ = await connection.post("/v1/decide", json.dumps(body).encode())
            except (TimeoutError, OSError):
                connection.close()
                ready.append(False)
        found["answered" if status == 200 else "refused while ready" if all(ready) else "refused while not ready"] += 1
        await asyncio.sleep(0.2)


def is_ready(port: int) -> bool:
    """Return whether /readyz answers 200."""
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
            return True
    except (OSError, urllib.error.URLError):
        return False


def start_before(served: Served, tree: Path) -> None:
    """Start a service of another source tree."""
    own = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(tree / "src")
    try:
        served.start()
    finally:
        del os.environ["PYTHONPATH"]
        if own is not None:
            os.environ["PYTHONPATH"] = own


async def day(
    replicas: list[Served],
    server: postgres_server.Server,
    folder: Path,
    record: Record,
    seconds: float,
    before: Path | None,
) -> Counter[str]:
    """Play a day; return what happened and what the monitors saw."""
    found, over = Counter[str](), asyncio.Event()
    until = time.monotonic() + seconds
    port, run = [replicas[0].port], str(time.time_ns())
    names = [f"{run}-{i}" for i in range(_PLAYERS)]
    players = [asyncio.create_task(player(name, port, record, over.is_set, seed=i)) for i, name in enumerate(names)]
    if before is not None:  # the older release has sessions of its own, and stops once this one has started
        await asyncio.sleep(seconds / 10)
        found["acknowledged by the older release"] = record.acknowledged
        await asyncio.to_thread(replicas[1].start)
        port[0] = replicas[1].port
        await asyncio.to_thread(replicas[0].stop)
    await asyncio.to_thread(replicas[0].start)
    await asyncio.to_thread(replicas[1].start) if before is None else None
    monitors = [asyncio.create_task(monitor(one, found, str(i))) for i, one in enumerate(replicas)]
    index = 0
    while time.monotonic() < until:
        event, victim = _PERIODS[index % len(_PERIODS)], replicas[index % 2]
        found[event] += 1
        if event == "kill":
            port[0] = replicas[(index + 1) % 2].port
            victim.kill()
            await asyncio.to_thread(victim.start)
        elif event == "crash":
            await asyncio.to_thread(server.crash)
            await asyncio.to_thread(server.start)
        else:
            words = [sys.executable, "-m", "lmab", "refit", "--store", server.address, "--policies", str(folder / "p")]
            ended = await asyncio.to_thread(subprocess.run, [*words, "--time-limit", "5"], capture_output=True)
            found["refits that failed"] += ended.returncode != 0
        index += 1
        await asyncio.sleep(1.0)
    over.set()
    await asyncio.gather(*players)
    for task in monitors:
        task.cancel()
    await asyncio.gather(*monitors, return_exceptions=True)
    return found


def study(seconds: float, before: Path | None) -> dict[str, int]:
    """Return the counts of `lies` and of a day."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lmab-day-")))
        server = stack.enter_context(postgres_server.running())
        write_policy(folder / "policy.lmab")
        replicas = [Served(server.address, str(folder / "policy.lmab")) for _ in range(2)]
        for one in replicas:
            stack.callback(one.kill)
        record = Record()
        if before is not None:
            start_before(replicas[0], before)
        else:
            replicas[0].start()
            replicas[0].stop()
        found = asyncio.run(day(replicas, server, folder, record, seconds, before))
        for one in replicas:
            with contextlib.suppress(Exception):
                one.stop()
        return {**asyncio.run(lies(server.address, record)), **dict(found)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--before", type=Path, default=None, help="a working tree of an older release")
    given = parser.parse_args()
    found = study(given.seconds, None if given.before is None else given.before.resolve())
    for name, count in found.items():
        print(f"{name:36s} {count:>9,}")
    raise SystemExit(any(found.get(name, 0) for name in (*BAD, "refused while ready")))


if __name__ == "__main__":
    main()
