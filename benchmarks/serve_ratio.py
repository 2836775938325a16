"""Processor time of decisions and rewards in this version beside another one, in one run, round by round.

git worktree add ../before COMMIT && python -m benchmarks.serve_ratio ../before

Both services run side by side, and take turns round by round, so that whatever else the machine does touches both. A
request costs the processor time of the service's process, from /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .bench_serve import processor_seconds
from .serve_load import HORIZON, Connection, Served, write_policy

_AT_ONCE = 32  # connections


@contextmanager
def serving(source: Path, folder: Path, name: str) -> Iterator[Served]:
    """Run the service of a source tree with a store of its own."""
    served = Served(str(folder / f"{name}.db"), str(folder / "policy.lmab"))
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(source / "src")
    try:
        served.start()
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before
    try:
        yield served
    finally:
        served.kill()


async def costs(served: Served, tag: str, n_sessions: int) -> tuple[float, float]:
    """Return the processor time of a decision and of a late reward, in seconds."""
    connections = [Connection(served.port) for _ in range(_AT_ONCE)]

    async def play(place: int, kind: str) -> None:
        for index in range(place, n_sessions, _AT_ONCE):
            session = f"{tag}-{index}"
            for step in range(HORIZON):
                path, body = "/v1/decide", {"session": session, "step": step}
                if kind == "rewards":
                    path, body = "/v1/rewards", {"rewards": [body | {"reward": (index + step) % 2}]}
                status, answer = await connections[place].post(path, json.dumps(body).encode())
                assert status == 200, answer

    assert served.process is not None
    found = []
    for kind in ("decisions", "rewards"):
        began = processor_seconds(served.process.pid)
        await asyncio.gather(*(play(place, kind) for place in range(_AT_ONCE)))
        found.append((processor_seconds(served.process.pid) - began) / (n_sessions * HORIZON))
    for connection in connections:
        connection.close()
    return found[0], found[1]


def study(before: Path, n_rounds: int, n_sessions: int, folder: Path) -> list[str]:
    """Return a line for decisions and one for rewards: microseconds of both versions, and their ratio."""
    write_policy(folder / "policy.lmab")
    here = Path(__file__).parent.parent
    seen: dict[str, list[tuple[float, float]]] = {"before": [], "now": []}
    with serving(before, folder, "before") as first, serving(here, folder, "now") as second:
        for number in range(-1, n_rounds):  # the first round warms up
            order = [("before", first), ("now", second)]
            for name, served in order[:: 1 if number % 2 else -1]:
                found = asyncio.run(costs(served, f"r{number}", n_sessions))
                if number >= 0:
                    seen[name].append(found)
    lines = []
    for place, kind in enumerate(("decision", "reward")):
        old, new = ([row[place] for row in seen[name]] for name in ("before", "now"))
        ratios = sorted(b / a for a, b in zip(old, new, strict=True))
        lines.append(
            f"a {kind}: {1e6 * statistics.median(old):.0f} us before, {1e6 * statistics.median(new):.0f} us now; ratio "
            f"of the sums {sum(new) / sum(old):.3f}, of single rounds {ratios[0]:.3f} to {ratios[-1]:.3f}"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a working tree of the other version")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--sessions", type=int, default=2000, help="sessions of a round, of five steps each")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lmab-ratio-") as name:
        print("\n".join(study(given.before.resolve(), given.rounds, given.sessions, Path(name))))


if __name__ == "__main__":
    main()
