"""Kill the service, crash its database and swap its policy under load; then count what was lost. It must be nothing.

python -m benchmarks.serve_kill sqlite --kills 20 --acknowledged 100000
python -m benchmarks.serve_kill postgres --kills 20 --crashes 5 --acknowledged 100000
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from . import postgres_server
from .serve_load import BAD, HOST, Record, Served, lies, player, write_policy

_PLAYERS = 16


async def trouble(
    served: Served,
    record: Record,
    *,
    acknowledged: int,
    kills: int,
    crash: Callable[[], None] | None = None,
    recover: Callable[[], None] | None = None,
    crashes: int = 0,
    swap: Callable[[int], None] | None = None,
    swaps: int = 0,
) -> None:
    """Play until so many requests are acknowledged, with trouble spread evenly over them."""
    events = [("kill", kills), ("crash", crashes), ("swap", swaps)]
    due = sorted((acknowledged * (i + 1) / (n + 1), what, i) for what, n in events for i in range(n))
    port, run = [served.port], str(time.time_ns())
    over = False

    def enough() -> bool:
        return over or (not due and record.acknowledged >= acknowledged)

    players = [asyncio.create_task(player(f"{run}-{i}", port, record, enough, seed=i)) for i in range(_PLAYERS)]
    try:
        while due:
            await asyncio.sleep(0.05)
            if record.acknowledged < due[0][0]:
                if all(task.done() for task in players):
                    break
                continue
            _, what, index = due[0]
            if what == "kill":
                served.kill()
                await asyncio.to_thread(served.start)
            elif what == "crash" and crash is not None and recover is not None:
                await asyncio.to_thread(crash)
                await asyncio.to_thread(recover)
            elif what == "swap" and swap is not None:
                await asyncio.to_thread(swap, index)
            due.pop(0)
        await asyncio.gather(*players)
    finally:
        over = True
        for task in players:
            task.cancel()
        await asyncio.gather(*players, return_exceptions=True)


def swapper(served: Served, folder: Path) -> Callable[[int], None]:
    """Put another policy in force, over HTTP."""
    import json
    import urllib.request

    def call(method: str, path: str, body: bytes) -> dict[str, str]:
        request = urllib.request.Request(f"http://{HOST}:{served.port}{path}", body, method=method)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return dict(json.loads(answer.read()))

    def swap(index: int) -> None:
        path = folder / f"swap{index % 2}.lmab"
        if not path.exists():
            write_policy(path, seed=1 + index % 2)
        version = call("PUT", "/v1/policies", path.read_bytes())["version"]
        share = 1.0 if index % 3 else 0.5
        call("POST", f"/v1/policies/{version}:promote", json.dumps({"share": share}).encode())

    return swap


def study(kind: str, acknowledged: int, kills: int, crashes: int = 0, swaps: int = 0) -> dict[str, int]:
    """One run; the counts of `lies`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lmab-kill-")))
        write_policy(folder / "policy.lmab")
        crash = recover = None
        where = str(folder / "events.db")
        if kind == "postgres":
            server = stack.enter_context(postgres_server.running())
            where, crash, recover = server.address, server.crash, server.start
        served = Served(where, str(folder / "policy.lmab"))
        served.start()
        stack.callback(served.kill)
        record = Record()
        asyncio.run(
            trouble(
                served, record, acknowledged=acknowledged, kills=kills, crash=crash, recover=recover,
                crashes=crashes if crash else 0, swap=swapper(served, folder), swaps=swaps,
            )
        )  # fmt: skip
        served.stop()
        return asyncio.run(lies(where, record))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", choices=["sqlite", "postgres"])
    parser.add_argument("--acknowledged", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--crashes", type=int, default=5, help="of the database; postgres only")
    parser.add_argument("--swaps", type=int, default=6)
    given = parser.parse_args()
    began = time.time()
    found = study(given.store, given.acknowledged, given.kills, given.crashes, given.swaps)
    for name, count in found.items():
        print(f"{name:32s} {count:>9,}")
    print(f"{'seconds':32s} {time.time() - began:>9.0f}")
    raise SystemExit(any(found[name] for name in BAD))


if __name__ == "__main__":
    main()
