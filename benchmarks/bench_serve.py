"""Durable decisions beside a constant response of the same stack, and beside single decisions of VW and MABWiser.

`python -m benchmarks serve`; with options: `python -m benchmarks.bench_serve [--seconds 5] [--rate 300] [--rounds 3]`.

Processor time is that of the service's process, from /proc, per request. The load comes from this process over the
loopback address: sessions of seven steps, many at a time, each request after the response to the one before. Both
servers run side by side and take turns, so that whatever else the machine does touches both; then they do so again
beside processes that keep every core busy (`--busy`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import lmab

from . import rows as stored
from .serve_load import HOST, Served

HORIZON = 7
N_ARMS = 50
_TICK = os.sysconf("SC_CLK_TCK")
_CONSTANT = """
import msgspec, sys
from lmab.serve.app import read_body
from lmab.serve.messages import Question, Answer
from lmab.serve.run import http_server, tame_garbage_collection
decode, encode = msgspec.json.Decoder(Question).decode, msgspec.json.Encoder().encode
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": kind + ".complete"})
            if kind == "lifespan.shutdown": return
    if scope["path"] == "/v1/decide":
        ask = decode(await read_body(scope, receive, 65536))
        body = encode(Answer(ask.session, ask.step, 3, "arm-3", 0.95, "abcdef", False, False, True))
    else:
        body = b"ok"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})
running = http_server(app, "127.0.0.1", int(sys.argv[1]))
tame_garbage_collection()
running.run()
"""


class Constant(Served):
    """The same stack, which answers a constant."""

    def start(self, seconds: float = 240.0) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", _CONSTANT, str(self.port)])
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                import urllib.request

                urllib.request.urlopen(f"http://{HOST}:{self.port}/readyz", timeout=5).read()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("the constant did not become ready")


class _Session(asyncio.Protocol):
    """One connection that plays sessions, request by request."""

    def __init__(self, name: str, times: list[float]) -> None:
        self.name, self.times, self.index, self.step = name, times, 0, 0
        self.stopped = asyncio.get_running_loop().create_future()
        self.over = False
        self.buffer = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        reward = f',"reward":{(self.index + self.step) % 2}' if self.step else ""
        body = f'{{"session":"{self.name}-{self.index}","step":{self.step}{reward}}}'
        self.transport.write(
            f"POST /v1/decide HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        self.began = time.perf_counter()
        self.step += 1
        if self.step == HORIZON:
            self.index, self.step = self.index + 1, 0

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        if len(rest) < length:
            return
        assert head.startswith(b"HTTP/1.1 200"), (head, rest)
        self.buffer = b""
        self.times.append(time.perf_counter() - self.began)
        if self.over:
            self.transport.close()
            self.stopped.set_result(None)
        else:
            self.ask()


async def _flood(port: int, seconds: float, connections: int) -> list[float]:
    times: list[float] = []
    loop, run = asyncio.get_running_loop(), time.time_ns()
    made = [
        await loop.create_connection(lambda i=i: _Session(f"{run}-{i}", times), HOST, port)  # type: ignore[misc]
        for i in range(connections)
    ]
    await asyncio.sleep(seconds)
    for _, session in made:
        session.over = True
    await asyncio.gather(*(session.stopped for _, session in made))
    return times


async def _paced(port: int, rate: float, seconds: float) -> list[float]:
    """New sessions at a fixed rate; times count from the moment a request was due."""
    from .serve_load import Connection

    free: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(64):
        free.put_nowait(Connection(port))
    times: list[float] = []

    async def one(index: int, due: float) -> None:
        connection = await free.get()
        await connection.post("/v1/decide", f'{{"session":"p{time.time_ns()}-{index}","step":0}}'.encode())
        times.append(time.perf_counter() - due)
        free.put_nowait(connection)

    begin, jobs = time.perf_counter(), []
    for index in range(int(rate * seconds)):
        due = begin + index / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        jobs.append(asyncio.create_task(one(index, due)))
    await asyncio.gather(*jobs)
    return times


def processor_seconds(pid: int) -> float:
    """User and system time of a process with its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def measure(served: Served, seconds: float, connections: int = 64) -> dict[str, float]:
    """Return requests per second of a running service, processor time of one, and quantiles of its response time."""
    assert served.process is not None
    before, began = processor_seconds(served.process.pid), time.perf_counter()
    times = sorted(asyncio.run(_flood(served.port, seconds, connections)))
    taken, used = time.perf_counter() - began, processor_seconds(served.process.pid) - before
    return {
        "per second": len(times) / taken,
        "processor us": used / len(times) * 1e6,
        "p50 ms": times[len(times) // 2] * 1e3,
        "p99 ms": times[int(len(times) * 0.99)] * 1e3,
    }


@contextlib.contextmanager
def keeping_busy(n: int) -> Iterator[None]:
    """Run processes that do nothing but count."""
    found = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for process in found:
            process.kill()
            process.wait()


def fsync_ms(folder: Path) -> float:
    """The median time of a small write and fsync here."""
    times = []
    with open(folder / "probe", "wb") as stream:
        for _ in range(50):
            began = time.perf_counter()
            stream.write(b"x" * 4096)
            stream.flush()
            os.fsync(stream.fileno())
            times.append(time.perf_counter() - began)
    return sorted(times)[25] * 1e3


def peers() -> dict[str, float]:
    """Microseconds of one decision in one process, without a server or a store; those that are installed."""
    found: dict[str, float] = {}
    bandit = lmab.random_bandit(7, N_ARMS, kind="hard", rng=0)
    compact = lmab.plan(bandit, horizon=HORIZON, method=lmab.planning.PointBased()).policy.compact()
    state = compact.start()

    def lmab_decision() -> None:
        compact.act(compact.observe(state, 3, 1.0))

    found["lmab, compact"] = _microseconds(lmab_decision)
    try:
        from vowpalwabbit import Workspace

        vw = Workspace(f"--cb_explore {N_ARMS} --epsilon 0.05 --quiet")
        found["VW, cb_explore"] = _microseconds(lambda: vw.predict("| user:1"))
    except ImportError:
        print("VW is not installed")
    try:
        from mabwiser.mab import MAB, LearningPolicy

        mab = MAB(list(range(N_ARMS)), LearningPolicy.EpsilonGreedy(0.05))
        mab.fit([i % N_ARMS for i in range(500)], [i % 2 for i in range(500)])
        found["MABWiser, epsilon-greedy"] = _microseconds(mab.predict)
    except ImportError:
        print("MABWiser is not installed")
    return found


def _microseconds(function: Any, n: int = 2000) -> float:
    function()
    began = time.process_time()
    for _ in range(n):
        function()
    return (time.process_time() - began) / n * 1e6


def write_policy(path: Path) -> None:
    """The policy that decides: 7 types, 50 arms, 7 steps."""
    bandit = lmab.random_bandit(7, N_ARMS, kind="hard", rng=0)
    lmab.plan(bandit, horizon=HORIZON, method=lmab.planning.PointBased()).policy.save(path)


Turns = list[tuple[dict[str, float], dict[str, float]]]  # the constant and the decisions, round by round


def flooded(folder: Path, seconds: float, connections: int, rounds: int, busy: int) -> tuple[Turns, Turns]:
    """Return what `measure` finds of the constant and of decisions, on an idle machine and beside busy processes."""
    constant, durable = Constant(""), Served(str(folder / "events.db"), str(folder / "policy.lmab"))
    found: tuple[Turns, Turns] = ([], [])
    try:
        for served in (constant, durable):
            served.start()
            measure(served, 1.0, connections)
        for turns, n in zip(found, (0, busy), strict=True):
            with keeping_busy(n):
                for _ in range(rounds):
                    turns.append((measure(constant, seconds, connections), measure(durable, seconds, connections)))
    finally:
        constant.kill()
        durable.kill()
    return found


def _medians(rows: Iterable[dict[str, float]]) -> dict[str, float]:
    known = list(rows)
    return {name: statistics.median(row[name] for row in known) for name in known[0]}


def ratio(turns: Turns) -> float:
    """Return the median ratio of the processor times of a decision and of the constant."""
    return statistics.median(durable["processor us"] / constant["processor us"] for constant, durable in turns)


def paced(folder: Path, rate: float, seconds: float) -> list[float]:
    """Sorted times of first decisions of sessions that come at a steady rate."""
    served = Served(str(folder / "paced.db"), str(folder / "policy.lmab"))
    served.start()
    try:
        asyncio.run(_paced(served.port, rate, 1.0))
        return sorted(asyncio.run(_paced(served.port, rate, seconds)))
    finally:
        served.kill()


def _verdict(holds: bool) -> str:
    return "holds" if holds else "MISSED"


def service(given: argparse.Namespace) -> stored.Rows:
    """Measure decisions beside the constant: speed, processor time, and response times at a steady rate."""
    with tempfile.TemporaryDirectory(prefix="lmab-bench-") as name:
        folder = Path(name)
        write_policy(folder / "policy.lmab")
        idle, busy = flooded(folder, given.seconds, given.connections, given.rounds, given.busy)
        times = paced(folder, given.rate, given.seconds)
        sync = fsync_ms(folder)
    constant, durable = (_medians(rows) for rows in zip(*idle, strict=True))
    for what, row in (("constant", constant), ("decision, durable", durable)):
        print(f"{what:24s}" + "".join(f"  {name} {value:,.1f}" for name, value in row.items()))
    return {
        "per-second": durable["per second"],
        "ratio": ratio(idle),
        "ratio-busy": ratio(busy),
        "decision": durable["processor us"],
        "constant": constant["processor us"],
        "p50": times[len(times) // 2] * 1e3,
        "p99": times[int(len(times) * 0.99)] * 1e3,
        "fsync": sync,
    }


def report(found: stored.Rows, rate: float, n_busy: int) -> None:
    """Print whether the rows meet the requirements."""
    speed, p99, sync = (found[name] for name in ("per-second", "p99", "fsync"))
    print(f"durable decisions per second: {speed:,.0f}, required at least 4,000: {_verdict(speed >= 4000)}")
    for name, most, where in (("ratio", 1.7, "no other load"), ("ratio-busy", 2.2, f"{n_busy} busy processes")):
        print(
            f"processor time of one with {where}: {found[name]:.2f} times the constant, required at most {most}: "
            f"{_verdict(found[name] <= most)}"
        )
    print(
        f"{rate:.0f} new sessions per second: p50 {found['p50']:.1f} ms, p99 {p99:.1f} ms, required at most 3 fsyncs "
        f"of {sync:.2f} ms + 5 ms: {_verdict(p99 <= 3 * sync + 5)}"
    )


def main(arguments: Sequence[str] = ()) -> stored.Rows:
    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.install()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rate", type=float, default=300.0)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--busy", type=int, default=4, help="processes that count beside the second measurement")
    given = parser.parse_args(arguments)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before the start")
    found = service(given)
    report(found, given.rate, given.busy)
    for what, microseconds in peers().items():
        print(f"{what:24s}  processor us of one decision in one process {microseconds:,.1f}")
        found[what.split(",")[0]] = microseconds
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
