"""Requests in any order, many of them contradictory: whatever the service acknowledged must be in its store.

python -m benchmarks.serve_acknowledged --requests 10000

`benchmarks.serve_schema` asks whether requests that make no sense are refused as the description of the service says.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from lmab.serve.app import make_app
from lmab.serve.service import Service, Settings
from lmab.serve.stores import Store, open_store
from lmab.serve.versions import Defaults

from .serve_load import HORIZON, LABELS, write_policy


class Player:
    """Sends decisions and rewards for few sessions, and remembers what was acknowledged."""

    def __init__(self, client: httpx.AsyncClient, seed: int) -> None:
        self.client, self.rng = client, random.Random(seed)
        self.steps: Counter[str] = Counter()
        self.decisions: dict[tuple[str, int], Any] = {}
        self.rewards: dict[tuple[str, int], float] = {}
        self.statuses: Counter[int] = Counter()

    async def send(self) -> None:
        """Send one request: in order or not, with another reward than before or not, for an arm that is open or not."""
        rng = self.rng
        session = f"s{rng.randrange(60)}"
        if rng.random() < 0.3:
            rows: list[dict[str, Any]] = [
                {"session": session, "step": rng.randrange(HORIZON), "reward": rng.choice([0, 1])}
                for _ in range(rng.choice([1, 1, 2]))
            ]
            answer = await self.client.post("/v1/rewards", json={"rewards": rows})
            if answer.status_code == 200:
                self.rewards |= {(row["session"], row["step"]): float(row["reward"]) for row in rows}
        else:
            step = self.steps[session] + rng.choice([0, 0, 0, 0, 1, -1])
            asked: dict[str, Any] = {"session": session, "step": step}
            if rng.random() < 0.7 and step != 0:
                asked["reward"] = rng.choice([0, 1, 1.0, 7])
            if rng.random() < 0.2:
                asked["allowed"] = rng.sample([*LABELS, "unknown"], 3)
            answer = await self.client.post("/v1/decide", json=asked)
            if answer.status_code == 200:
                self.remember(asked, answer.json())
        self.statuses[answer.status_code] += 1

    def remember(self, asked: dict[str, Any], answer: Any) -> None:
        """Note a decision; raise `AssertionError` if another one was acknowledged for the step before."""
        session, step = asked["session"], asked["step"]
        decided = answer["arm"], answer["propensity"], answer["policy"]
        assert self.decisions.setdefault((session, step), decided) == decided, (asked, answer)
        self.steps[session] = max(self.steps[session], step + 1)
        if asked.get("reward") is not None:
            self.rewards[session, step - 1] = float(asked["reward"])


async def play(store: Store, policy: Path, n_requests: int, seed: int) -> Counter[int]:
    """Return how many answers had each status; raise `AssertionError` if something acknowledged is not in the store."""
    service = Service(store, Settings(Defaults(HORIZON)))
    await service.start(watch=False)
    try:
        await service.register.set_arms(LABELS)
        version = await service.register.add_version(policy.read_bytes())
        await service.register.promote(version.name, 1.0)
        transport = httpx.ASGITransport(app=make_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            player = Player(client, seed)
            for _ in range(n_requests):
                await player.send()
        rows = {(row[0], row[1]): row for row in await service.store.rows(0.0, 1e18)}
        for key, decided in player.decisions.items():
            assert (rows[key][2], rows[key][4], rows[key][5]) == decided, (key, decided)
        for key, reward in player.rewards.items():
            assert rows[key][3] == reward, (key, reward)
    finally:
        await service.stop()
    return player.statuses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lmab-acknowledged-") as name:
        folder = Path(name)
        write_policy(folder / "policy.lmab")
        found = asyncio.run(
            play(open_store(str(folder / "events.db")), folder / "policy.lmab", given.requests, given.seed)
        )
    print(", ".join(f"{count:,} of status {status}" for status, count in sorted(found.items())))


if __name__ == "__main__":
    main()
