"""Requests that make no sense, mixed with ones that do: no answer may be 500, and nothing acknowledged may be lost.

python -m benchmarks.serve_fuzz --requests 10000
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from lmab.serve.app import make_app
from lmab.serve.service import Service, Settings
from lmab.serve.stores import open_store
from lmab.serve.versions import Defaults

from .serve_load import HORIZON, LABELS, write_policy

_PATHS = (
    "/v1/decide", "/v1/decide", "/v1/decide", "/v1/rewards", "/v1/rewards", "/v1/sessions/", "/v1/persons/",
    "/v1/policies", "/v1/policies:rollback", "/v1/policies/x:promote", "/v1/arms", "/v1/summary", "/metrics", "/readyz",
    "/", "/openapi.json", "/nothing",
)  # fmt: skip
_ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 3.5, 1e308, -1e308, 10**30, "", "a", "\0", "é" * 50, "x" * 300, [], [1], {}, {"a": 1},
    "arm-1", ["arm-1", "arm-2"], ["arm-1", "pink"], [None], float("inf"), float("nan"),
)  # fmt: skip


class Fuzz:
    """Makes requests; remembers what was acknowledged."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.steps: Counter[str] = Counter()
        self.decisions: dict[tuple[str, int], Any] = {}
        self.rewards: dict[tuple[str, int], float] = {}
        self.statuses: Counter[int] = Counter()

    def body(self, path: str) -> bytes:
        """Something near a good body, or nothing like it."""
        rng = self.rng
        kind = rng.random()
        if kind < 0.1:
            return rng.randbytes(rng.randrange(200))
        session = f"s{rng.randrange(60)}"
        good: dict[str, Any] = {"session": session, "step": self.steps[session] + rng.choice([0, 0, 0, 0, 1, -1])}
        if rng.random() < 0.7:
            good["reward"] = rng.choice([0, 1, 1.0])
        if good["step"] == 0:
            good.pop("reward", None)
        if path == "/v1/rewards":
            row = {"session": session, "step": rng.randrange(HORIZON), "reward": rng.choice([0, 1])}
            good = {"rewards": [row] * rng.choice([1, 1, 2])}
        elif path == "/v1/arms":
            good = {"arms": list(LABELS)}
        elif path.endswith(":promote"):
            good = {"share": rng.random()}
        if kind < 0.5:
            for _ in range(rng.randrange(1, 3)):
                good[rng.choice([*good, "allowed", "person", "baseline", "unknown"])] = rng.choice(_ODD)
        text = json.dumps(good)
        if kind > 0.95:
            cut = rng.randrange(len(text))
            text = text[:cut] + rng.choice(["", "{", "\\", "\u0000", "]", '"']) + text[cut + 1 :]
        return text.encode()

    async def send(self, client: httpx.AsyncClient) -> None:
        rng = self.rng
        path = rng.choice(_PATHS)
        if path.endswith("/") and path != "/":
            path += "nobody" if path.startswith("/v1/persons") else ""  # else acknowledged sessions would be erased
            path += quote(str(rng.choice([*_ODD[10:16], "s1", "s2", "../x", "%00"])) or "x", safe="")
        good = {"/v1/decide": "POST", "/v1/rewards": "POST", "/v1/arms": "PUT"}.get(path, "GET")
        if path.startswith("/v1/persons/"):
            good = "DELETE"
        method = good if rng.random() < 0.9 else rng.choice(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"])
        body = self.body(path)
        answer = await client.request(method, path, content=body)
        self.statuses[answer.status_code] += 1
        if answer.status_code >= 400 and path.startswith("/v1/") and method != "HEAD":
            assert set(answer.json()) == {"error", "code"}, answer.text
        if answer.status_code == 200 and method == "POST":
            self.remember(path, json.loads(body), answer.json())

    def remember(self, path: str, asked: Any, answer: Any) -> None:
        if path == "/v1/decide":
            session, step = asked["session"], asked["step"]
            told = answer["arm"], answer["propensity"], answer["policy"]
            assert self.decisions.setdefault((session, step), told) == told, (asked, answer)
            self.steps[session] = max(self.steps[session], step + 1)
            if asked.get("reward") is not None:
                self.rewards[session, step - 1] = float(asked["reward"])
        elif path == "/v1/rewards":
            self.rewards |= {(row["session"], row["step"]): float(row["reward"]) for row in asked["rewards"]}


async def fuzz(where: str, policy: Path, n_requests: int, seed: int) -> Counter[int]:
    """Send so many requests; raise where an answer is 500 or something acknowledged is not in the store."""
    service = Service(open_store(where), Settings(Defaults(HORIZON)))
    await service.start(watch=False)
    try:
        await service.register.set_arms(LABELS)
        version = await service.register.add_version(policy.read_bytes())
        await service.register.promote(version.name, 1.0)
        fuzzer = Fuzz(seed)
        transport = httpx.ASGITransport(app=make_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            for _ in range(n_requests):
                await fuzzer.send(client)
        rows = {(row[0], row[1]): row for row in await service.store.rows(0.0, 1e18)}
        for key, told in fuzzer.decisions.items():
            assert (rows[key][2], rows[key][4], rows[key][5]) == told, (key, told)
        for key, reward in fuzzer.rewards.items():
            assert rows[key][3] == reward, (key, reward)
    finally:
        await service.stop()
    assert fuzzer.statuses[500] == 0
    return fuzzer.statuses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lmab-fuzz-") as name:
        folder = Path(name)
        write_policy(folder / "policy.lmab")
        found = asyncio.run(fuzz(str(folder / "events.db"), folder / "policy.lmab", given.requests, given.seed))
    print(", ".join(f"{count:,} of status {status}" for status, count in sorted(found.items())))


if __name__ == "__main__":
    main()
