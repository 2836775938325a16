"""A service in a process of its own, and players that talk to it over the loopback address and notice every lie."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lmab

HOST = "127.0.0.1"
LABELS = tuple(f"arm-{i}" for i in range(10))
HORIZON = 5


def write_policy(path: Path, seed: int = 0, floor: float = 0.2) -> None:
    """A policy of ten arms and five steps."""
    made = lmab.random_bandit(4, len(LABELS), kind="hard", rng=seed)
    bandit = lmab.LatentBandit(made.weights, made.rewards, LABELS)
    policy = lmab.plan(bandit, horizon=HORIZON, time_limit=5.0).policy
    lmab.policies.Exploring(policy, floor).save(path)


class Served:
    """`lmab serve` as a process; only this process is ever signalled."""

    def __init__(self, store: str, *options: str) -> None:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self.port = probe.getsockname()[1]
        self.store, self.options = store, options
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, seconds: float = 240.0) -> None:
        """Start, and wait until it is ready."""
        command = [sys.executable, "-m", "lmab", "serve", "--store", self.store, "--port", str(self.port)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen([*command, *self.options], env=environment, stdout=subprocess.DEVNULL)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                with urllib.request.urlopen(f"http://{HOST}:{self.port}/readyz", timeout=5):
                    return
            except (OSError, urllib.error.URLError):
                if self.process.poll() is not None:
                    break
                time.sleep(0.05)
        self.kill()
        raise RuntimeError("the service did not become ready")

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def stop(self) -> int:
        """Question it to end, and say how it did."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


class Connection:
    """One connection of HTTP that is kept open, and opened again after trouble."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def post(self, path: str, body: bytes) -> tuple[int, Any]:
        """Status and answer; raises OSError where the connection breaks."""
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(HOST, self.port)
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        try:
            self._writer.write(head.encode() + body)
            answer = await self._reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            data = await self._reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError) as error:
            self.close()
            raise OSError(str(error)) from None
        return int(answer.split(b" ", 2)[1]), json.loads(data)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None


@dataclass
class Record:
    """What the service acknowledged, and every answer that contradicts another."""

    decisions: dict[tuple[str, int], tuple[int, float, str]] = field(default_factory=dict)
    rewards: dict[tuple[str, int], float] = field(default_factory=dict)
    changed: list[Any] = field(default_factory=list)
    refused: list[Any] = field(default_factory=list)
    retries: int = 0
    repeated: int = 0

    @property
    def acknowledged(self) -> int:
        return len(self.decisions) + len(self.rewards)


async def persist(port: list[int], connections: list[Connection], path: str, body: Any, record: Record) -> Any:
    """Send until it is answered; None where it is refused."""
    data = json.dumps(body).encode()
    while True:
        connection = random.choice(connections)
        connection.port = port[0]
        try:
            async with asyncio.timeout(20):  # not wait_for, which in Python 3.11 may swallow that its task is cancelled
                status, answer = await connection.post(path, data)
        except (TimeoutError, OSError):
            connection.close()
            status, answer = 599, None
        if status == 200:
            return answer
        if status < 429:
            record.refused.append((status, answer, body))
            return None
        record.retries += 1
        await asyncio.sleep(0.05)


async def player(name: str, port: list[int], record: Record, enough: Any, seed: int) -> None:
    """Sessions one after the other, with 5% of the requests sent twice, until `enough()`."""
    connections = [Connection(port[0]), Connection(port[0])]
    try:
        await _play(name, port, connections, record, enough, random.Random(seed))
    finally:
        for connection in connections:
            connection.close()
        await asyncio.sleep(0)  # the connections close now


async def _play(
    name: str, port: list[int], connections: list[Connection], record: Record, enough: Any, rng: random.Random
) -> None:
    index = 0
    while not enough():
        session, reward = f"{name}-{index}", None
        index += 1
        for step in range(HORIZON):
            body = {"session": session, "step": step} | ({} if reward is None else {"reward": reward})
            told = await persist(port, connections, "/v1/decide", body, record)
            if told is None:
                break
            record.decisions[session, step] = _answer(told)
            if reward is not None:
                record.rewards[session, step - 1] = reward
            if rng.random() < 0.05:
                again = await persist(port, connections, "/v1/decide", body, record)
                record.repeated += 1
                if again is None or _answer(again) != _answer(told):
                    record.changed.append((body, told, again))
            reward = float(rng.random() < 0.5)
        else:
            late = {"rewards": [{"session": session, "step": HORIZON - 1, "reward": reward}]}
            if await persist(port, connections, "/v1/rewards", late, record) is not None:
                assert reward is not None
                record.rewards[session, HORIZON - 1] = reward


def _answer(told: Any) -> tuple[int, float, str]:
    return told["arm"], told["propensity"], told["policy"]


async def lies(where: str, record: Record) -> dict[str, int]:
    """Compare what was acknowledged with what the store has."""
    from lmab.serve.stores import open_store

    store = open_store(where)
    await store.open()
    rows = await store.rows(0.0, time.time() + 1e6)
    await store.close()
    stored = {(row[0], row[1]): (row[2], row[4], row[5]) for row in rows}
    paid = {(row[0], row[1]): row[3] for row in rows}
    versions: dict[str, set[str]] = {}
    for row in rows:
        versions.setdefault(row[0], set()).add(row[5])
    return {
        "decisions acknowledged": len(record.decisions),
        "rewards acknowledged": len(record.rewards),
        "decisions lost or different": sum(stored.get(key) != told for key, told in record.decisions.items()),
        "rewards lost or different": sum(paid.get(key) != told for key, told in record.rewards.items()),
        "rows twice": len(rows) - len(stored),
        "answers that changed": len(record.changed),
        "requests refused": len(record.refused),
        "sessions with two versions": sum(len(found) > 1 for found in versions.values()),
        "retries": record.retries,
        "sent twice": record.repeated,
    }


BAD = (
    "decisions lost or different", "rewards lost or different", "rows twice", "answers that changed",
    "requests refused", "sessions with two versions",
)  # fmt: skip
