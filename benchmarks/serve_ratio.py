"""Processor time of decisions and rewards in this version beside another one, in one run, round by round.

git worktree add ../before COMMIT && python -m benchmarks.serve_ratio ../before [--experiments 3]

With several experiments, the sessions of this version are spread over them.

Both services run side by side, and take turns round by round, so that whatever else the machine does touches both. A
request costs the processor time of the service's process, from /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .bench_serve import processor_seconds
from .serve_load import HORIZON, HOST, Connection, Served, write_policy

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


def add_experiments(served: Served, policy: Path, n: int) -> list[str]:
    """Create experiments beside `default` that serve a policy, n in all; return their paths."""
    paths = ["/v1"]
    for number in range(1, n):
        words = [sys.executable, "-m", "lmab", "experiments", "create", f"more-{number}", "--store", served.store]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        paths.append(f"/v1/experiments/more-{number}")
    address = f"http://{HOST}:{served.port}"
    for path in paths[1:]:
        request = urllib.request.Request(f"{address}{path}/policies", policy.read_bytes(), method="PUT")
        for _ in range(100):  # the service looks for new experiments once a second
            try:
                with urllib.request.urlopen(request, timeout=60) as response:
                    version = json.load(response)["version"]
                break
            except urllib.error.HTTPError:
                time.sleep(0.1)
        request = urllib.request.Request(f"{address}{path}/policies/{version}:promote", b'{"share": 1}')
        urllib.request.urlopen(request, timeout=60).close()
    return paths


async def costs(served: Served, tag: str, n_sessions: int, paths: Sequence[str] = ("/v1",)) -> tuple[float, float]:
    """Return the processor time of a decision and of a late reward, in seconds."""
    connections = [Connection(served.port) for _ in range(_AT_ONCE)]

    async def play(place: int, kind: str) -> None:
        for index in range(place, n_sessions, _AT_ONCE):
            session = f"{tag}-{index}"
            for step in range(HORIZON):
                of, body = paths[index % len(paths)], {"session": session, "step": step}
                path = f"{of}/{'decide' if kind == 'decisions' else 'rewards'}"
                if kind == "rewards":
                    body = {"rewards": [body | {"reward": (index + step) % 2}]}
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


def study(before: Path, n_rounds: int, n_sessions: int, folder: Path, n_experiments: int = 1) -> list[str]:
    """Return a line for decisions and one for rewards: microseconds of both versions, and their ratio."""
    write_policy(folder / "policy.lmab")
    here = Path(__file__).parent.parent
    seen: dict[str, list[tuple[float, float]]] = {"before": [], "now": []}
    with serving(before, folder, "before") as first, serving(here, folder, "now") as second:
        paths = {"before": ["/v1"], "now": add_experiments(second, folder / "policy.lmab", n_experiments)}
        for number in range(-1, n_rounds):  # the first round warms up
            order = [("before", first), ("now", second)]
            for name, served in order[:: 1 if number % 2 else -1]:
                found = asyncio.run(costs(served, f"r{number}", n_sessions, paths[name]))
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
    parser.add_argument("--experiments", type=int, default=1, help="experiments of this version")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lmab-ratio-") as name:
        lines = study(given.before.resolve(), given.rounds, given.sessions, Path(name), given.experiments)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
