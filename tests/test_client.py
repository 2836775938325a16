"""The clients of Python and JavaScript against the real service, with faults between them."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from faults import FAULTS, FaultProxy

from benchmarks.serve_load import HOST, Served
from lmab.client import Client
from lmab.serve.stores import open_store

ROOT = Path(__file__).parent.parent
EXPECTED = {  # the failure that a client counts
    "refuse": "connection", "hang": "timeout", "drip": "timeout", "lose": "connection", "garbage": "malformed-response",
    "500": "500", "busy": "429",
}  # fmt: skip
PATIENT = 30.0  # seconds: no test depends on the speed of the machine
HASTY = 0.3


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("client")
    (folder / "arms.txt").write_text("tea\nmilk\n")
    served = Served(str(folder / "events.db"), "--arms", str(folder / "arms.txt"), "--horizon", "4")
    served.start()
    yield served
    served.kill()


@pytest.fixture
def proxy(served):
    proxy = FaultProxy(served.port)
    yield proxy
    proxy.close()


def stored(served: Served) -> dict[tuple[str, int], tuple[str, float | None]]:
    """Labels and rewards in the store."""

    async def read():
        store = open_store(served.store)
        await store.open(create=False)
        arms, rows = await store.arms(), await store.rows(0.0, 1e18)
        await store.close()
        return {(row.session, row.step): (arms[row.arm].label, row.reward) for row in rows}

    return asyncio.run(read())


def address(port: int) -> str:
    return f"http://{HOST}:{port}"


def test_arms_of_the_service_are_played_and_their_rewards_stored(served):
    with Client(address(served.port), deadline=PATIENT) as client:
        first = client.decide("plain", 0, "default", features={"country": "de"})
        second = client.decide("plain", 1, "default", reward=1.0, allowed=["milk"])
        client.reward("plain", 1, 0.0)
        assert client.flush(PATIENT) == 0
    assert first.from_service
    assert first.propensity == 0.5
    assert (second.arm, second.propensity) == ("milk", 1.0)
    assert client.counts == {"decided": 2, "rewards-sent": 1}
    rows = stored(served)
    assert rows["plain", 0] == (first.arm, 1.0)
    assert rows["plain", 1] == ("milk", 0.0)


@pytest.mark.parametrize("fault", FAULTS)
def test_after_a_fault_the_default_arm_is_played_for_the_rest_of_the_session(served, proxy, fault):
    name = f"fault-{fault}"
    with Client(address(proxy.port), deadline=PATIENT) as client:
        assert client.decide(name, 0, "default").from_service
        client.deadline, proxy.mode = HASTY if fault in ("hang", "drip") else PATIENT, fault
        choice = client.decide(name, 1, "default", reward=1.0)
        assert (choice.arm, choice.propensity, choice.from_service) == ("default", None, False)
        assert choice.failure == EXPECTED[fault]
        proxy.mode, client.deadline = "pass", PATIENT
        later = client.decide(name, 2, "default", reward=0.0)  # the reward of a step with a default arm is not sent
        assert (later.arm, later.failure) == ("default", "earlier-failure")
        client.reward(name, 1, 1.0)
        assert client.flush(PATIENT) == 0
        assert client.decide(f"{name}-next", 0, "default").from_service
    assert client.counts[f"default: {EXPECTED[fault]}"] == 1
    assert client.counts["rewards-dropped"] == 1
    rows = stored(served)
    assert rows[name, 0][1] == 1.0  # the reward of the step before arrived at last
    assert (name, 1) not in rows or rows[name, 1][1] is None


@pytest.mark.parametrize(
    ("fields", "step", "failure"),
    [({"allowed": ["coffee"]}, 0, "422 unknown-arm"), ({}, 3, "404 unknown-session"), ({"x": 1}, 0, "400 malformed"),
     ({"features": {"a": object()}}, 0, "request: TypeError")],
)  # fmt: skip
def test_requests_that_the_service_refuses_do_not_raise_and_leave_the_circuit_closed(served, fields, step, failure):
    with Client(address(served.port), deadline=PATIENT) as client:
        for n in range(7):
            assert client.decide(f"wrong-{n}", step, "default", **fields).failure == failure
        assert client.decide("right", 0, "default").from_service


def test_an_open_circuit_asks_nothing_and_one_decision_tries_after_the_pause(proxy):
    now = [1000.0]
    with Client(address(proxy.port), deadline=PATIENT, clock=lambda: now[0]) as client:
        proxy.mode = "500"
        for n in range(5):
            assert client.decide(f"c{n}", 0, "default").failure == "500"
        asked = proxy.n_requests
        assert client.decide("open", 0, "default").failure == "circuit-open"
        assert proxy.n_requests == asked
        now[0] += 0.25
        assert client.decide("trial", 0, "default").failure == "500"  # the trial fails: the pause doubles
        now[0] += 0.25
        assert client.decide("open-2", 0, "default").failure == "circuit-open"
        now[0] += 0.25
        proxy.mode = "pass"
        assert client.decide("closed", 0, "default").from_service
        assert client.decide("closed-2", 0, "default").from_service
    assert client.counts["default: circuit-open"] == 2


def test_rewards_wait_for_the_service_and_wrong_ones_do_not_hold_up_the_others(served, proxy):
    with Client(address(proxy.port), deadline=PATIENT) as client:
        for n in range(3):
            assert client.decide(f"late-{n}", 0, "default").from_service
        proxy.mode = "refuse"
        client.reward("late-0", 0, 1.0)
        client.reward("nobody", 0, 1.0)
        client.reward("late-1", 0, 7.0)  # no such reward
        client.reward("late-2", 0, 0.0)
        assert client.flush(0.1) == 4
        proxy.mode = "pass"
        assert client.flush(PATIENT) == 0
    assert {name: client.counts[name] for name in ("rewards-sent", "rewards-refused")} == {
        "rewards-sent": 2, "rewards-refused": 2,
    }  # fmt: skip
    rows = stored(served)
    assert [rows[f"late-{n}", 0][1] for n in range(3)] == [1.0, None, 0.0]


def test_a_full_queue_drops_the_oldest_reward(proxy):
    proxy.mode = "hang"
    client = Client(address(proxy.port), waiting=2)
    for n in range(6):
        client.reward(f"q{n}", 0, 1.0)
    assert client.close(0.0) <= 2 + 2  # at most two wait, and at most two are under way
    assert client.counts["rewards-dropped"] >= 2


def test_wrong_options_are_refused_at_once():
    with pytest.raises(ValueError, match="address must begin with http"):
        Client("localhost:8000")
    with pytest.raises(ValueError, match="deadline must be above 0"):
        Client("http://localhost", deadline=0)


def test_the_file_imports_the_standard_library_only():
    import ast
    import sys

    tree = ast.parse((ROOT / "src" / "lmab" / "client.py").read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert all(node.level == 0 for node in froms)
    names |= {str(node.module) for node in froms}
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names


SCRIPT = """
import { Client } from "./lmab.mjs";
const address = process.argv[2], control = process.argv[3], patient = 30000;
const fault = (mode) => fetch(control + mode).then((response) => response.text());
const found = {};
const client = new Client(address, { deadline: patient });
const first = await client.decide("js", 0, "default", { features: { country: "de" } });
const second = await client.decide("js", 1, "default", { reward: 1, allowed: ["milk"] });
client.reward("js", 1, 0);
found.plain = [first.fromService, first.propensity, second.arm, second.propensity, await client.flush(patient)];
found.sent = client.counts["rewards-sent"];
for (const mode of ["refuse", "hang", "drip", "lose", "garbage", "500", "busy"]) {
  const name = "js-" + mode, one = new Client(address, { deadline: patient });
  const started = (await one.decide(name, 0, "default")).fromService;
  one.deadline = mode === "hang" || mode === "drip" ? 300 : patient;
  await fault(mode);
  const choice = await one.decide(name, 1, "default", { reward: 1 });
  await fault("pass");
  one.deadline = patient;
  const later = await one.decide(name, 2, "default", { reward: 0 });
  one.reward(name, 1, 1);
  const left = await one.close(patient);
  found[mode] = [started, choice.arm, choice.failure, later.failure, one.counts["rewards-dropped"], left];
}
found.refused = (await client.decide("js-w", 0, "default", { allowed: ["coffee"] })).failure;
await fault("500");
for (let n = 0; n < 5; n++) await client.decide("js-c" + n, 0, "default");
found.open = (await client.decide("js-open", 0, "default")).failure;
await fault("pass");
await new Promise((resolve) => setTimeout(resolve, 250));
found.closed = (await client.decide("js-closed", 0, "default")).fromService;
console.log(JSON.stringify(found));
"""


def test_the_client_of_javascript_does_the_same(served, proxy, tmp_path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    class Control(BaseHTTPRequestHandler):
        def do_GET(self):
            proxy.mode = self.path.strip("/")
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            """Print nothing."""

    control = HTTPServer((HOST, 0), Control)
    Thread(target=control.serve_forever, daemon=True).start()
    shutil.copy(ROOT / "clients" / "lmab.js", tmp_path / "lmab.mjs")
    (tmp_path / "run.mjs").write_text(SCRIPT)
    words = [node, str(tmp_path / "run.mjs"), address(proxy.port), f"{address(control.server_port)}/"]
    try:
        ended = subprocess.run(words, capture_output=True, text=True, timeout=240)
    finally:
        control.shutdown()
        control.server_close()
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["plain"] == [True, 0.5, "milk", 1, 0]
    assert found["sent"] == 1
    for mode in FAULTS:
        assert found[mode] == [True, "default", EXPECTED[mode], "earlier-failure", 1, 0], mode
    assert (found["refused"], found["open"], found["closed"]) == ("422 unknown-arm", "circuit-open", True)
    rows = stored(served)
    assert rows["js", 1] == ("milk", 0.0)
    for mode in FAULTS:
        assert rows[f"js-{mode}", 0][1] == 1.0
        assert (f"js-{mode}", 1) not in rows or rows[f"js-{mode}", 1][1] is None
