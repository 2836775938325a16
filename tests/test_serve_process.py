"""The service as a process: killed, its database crashed, its policy swapped, asked to stop; nothing is lost.

These are short runs; `python -m benchmarks.serve_kill` makes the long ones.
"""

from __future__ import annotations

import asyncio
import importlib
import signal

import pytest

from benchmarks import postgres_server
from benchmarks.serve_kill import study
from benchmarks.serve_load import BAD, Record, Served, lies, player, write_policy
from lmab.serve import versions


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_killed_crashed_and_swapped_under_load_it_loses_nothing(kind):
    why_not = postgres_server.missing() if kind == "postgres" else None
    if why_not is not None:
        pytest.skip(why_not)
    found = study(kind, acknowledged=1500, kills=2, crashes=1, swaps=2)
    assert found["decisions acknowledged"] + found["rewards acknowledged"] >= 1500
    assert found["sent twice"] > 10
    assert found["retries"] > 0
    assert {name: found[name] for name in BAD} == dict.fromkeys(BAD, 0)


def test_asked_to_stop_it_answers_what_it_accepted_and_ends_well(tmp_path):
    write_policy(tmp_path / "policy.lmab")
    where = str(tmp_path / "events.db")
    served = Served(where, str(tmp_path / "policy.lmab"))
    served.start()
    record = Record()

    async def load() -> int:
        port = [served.port]
        tasks = [
            asyncio.create_task(player(f"p{i}", port, record, lambda: record.acknowledged >= 10**9, seed=i))
            for i in range(8)
        ]
        while record.acknowledged < 200:
            await asyncio.sleep(0.02)
        code = await asyncio.to_thread(served.stop)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return code

    try:
        assert asyncio.run(load()) in (0, -15)  # uvicorn ends by the signal that it was sent
    finally:
        served.kill()
    found = asyncio.run(lies(where, record))
    assert {name: found[name] for name in BAD} == dict.fromkeys(BAD, 0)


def test_everything_is_warm_before_the_first_request(monkeypatch):
    """What the first version needs is loaded before the service listens: later it would hold up all other sessions."""
    order: list[str] = []
    door = importlib.import_module("lmab.serve.run")  # the package has a function of this name

    class Running:
        reload_tokens = signal.SIG_IGN

        def run(self) -> None:
            order.append("run")

    monkeypatch.setattr(door, "server", lambda options: Running())
    monkeypatch.setattr(door, "warm_up", lambda: order.append("warm"))
    monkeypatch.setattr(door, "tame_garbage_collection", lambda: order.append("frozen"))
    before = signal.getsignal(signal.SIGHUP)
    try:
        door.run(door.Options("events.db"))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert order == ["warm", "frozen", "run"]


def test_warming_up_reads_and_plays_a_plan(monkeypatch):
    warmed: list[versions.Version] = []

    def noted(version):
        warmed.append(version)
        return version

    monkeypatch.setattr(versions.Version, "warm", noted)
    versions.warm_up()
    assert type(warmed[0].compact.policy).__name__ == "VectorPolicy"
