"""The service as a process: killed, its database crashed, its policy swapped, asked to stop; nothing is lost.

These are short runs; `python -m benchmarks.serve_kill` makes the long ones.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import signal
import urllib.request

import pytest

from benchmarks import postgres_server
from benchmarks.serve_kill import study
from benchmarks.serve_load import BAD, HOST, Record, Served, lies, player, write_policy
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


def test_every_line_of_the_log_is_json(tmp_path, capfd):
    (tmp_path / "arms").write_text("tea\nmilk\n")
    (tmp_path / "tokens").write_text("a1b2 operate name=ann until=2999-12-31\nc3d4 until=2020-12-31\n")
    options = ["--arms", str(tmp_path / "arms"), "--horizon", "3", "--token-file", str(tmp_path / "tokens")]
    served = Served(str(tmp_path / "events.db"), *options, "--log", "json")
    served.start()
    try:
        headers = {"Authorization": "Bearer a1b2", "X-Request-Id": "ticket-7"}
        address, body = f"http://{HOST}:{served.port}/v1/arms", b'{"arms": ["tea"]}'
        with urllib.request.urlopen(urllib.request.Request(address, body, headers, method="PUT"), timeout=60) as answer:
            assert answer.headers["X-Request-Id"] == "ticket-7"
        assert served.process is not None
        served.process.send_signal(signal.SIGHUP)
        served.stop()
    finally:
        served.kill()
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    (line,) = [line for line in lines if line["logger"] == "lmab.audit"]
    assert line | {"time": ""} == {
        "time": "", "level": "INFO", "logger": "lmab.audit", "message": 'ann set-arms "tea": done',
        "request": "ticket-7", "token": "ann", "action": "set-arms", "object": "tea", "status": 200,
        "experiment": "default",
    }  # fmt: skip
    messages = [line["message"] for line in lines]
    assert json.loads(messages[0].removeprefix("configuration: "))["tokens"] == 2
    assert "a1b2" not in messages[0]
    assert messages[1:3] == ["the token token-2 has expired", "the store is open"]


def test_everything_is_warm_before_the_first_request(monkeypatch):
    """What the first version needs is loaded before the service listens: later it would hold up all other sessions."""
    order: list[str] = []
    door = importlib.import_module("lmab.serve.run")  # the package has a function of this name

    class Running:
        reload_tokens, announce = signal.SIG_IGN, None

        def run(self) -> None:
            order.append("run")

    monkeypatch.setattr(door, "warm_up", lambda: order.append("warm"))
    monkeypatch.setattr(door, "tame_garbage_collection", lambda: order.append("frozen"))
    before = signal.getsignal(signal.SIGHUP)
    try:
        door.run(Running())
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
