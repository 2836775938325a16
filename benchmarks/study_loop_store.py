"""The loops of `study_loop`, played against the service: its store, its register and `lmab refit` with the defaults.

    python -m benchmarks.study_loop_store --loops 2 --store

The same people, weekdays, drift, new arm and bad plan; the arm is opened and the bad plan promoted by the calls that
HTTP makes. Assessments keep plans away, too. There are few loops, because one takes half a minute of processor time;
`study_loop` has the many. Rows go to `docs/benchmarks/loops_served.jsonl` as they are done.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import lmab
from lmab.policies.policy import Policy
from lmab.policies.wrappers import Relabelled
from lmab.serve.canary import Canary
from lmab.serve.messages import Question, Reward
from lmab.serve.refit import RefitOptions, refit
from lmab.serve.service import Service, Settings
from lmab.serve.stores import open_store
from lmab.serve.versions import UNIFORM, Defaults, read_version
from lmab.serve.watch import CANARY

from . import rows as stored
from .study_loop import (
    ARMS,
    BAD,
    HORIZON,
    NIGHTS,
    OPENED,
    PER_NIGHT,
    People,
    Test,
    bad_plan,
    summary,
    value,
    with_first,
)

ROWS = Path(__file__).parent.parent / "docs" / "benchmarks" / "loops_served.jsonl"
_DAY = 86_400.0
_AT_ONCE = 64
_LABELS = tuple(f"arm-{arm}" for arm in range(ARMS))
_DEFAULTS = Defaults(HORIZON)


class Days:
    """A clock that runs as outside within a day, and jumps to the next one."""

    def __init__(self) -> None:
        self.shift = -_DAY * NIGHTS

    def __call__(self) -> float:
        return time.time() + self.shift


class ServedLoop:
    """A service in this process, and its nights."""

    def __init__(self, people: People, folder: Path, seed: int) -> None:
        self.people, self.folder, self.seed, self.clock = people, folder, seed, Days()
        self.rng, self.number, self.tested = np.random.default_rng([34, seed]), 0, ""
        store = open_store(str(folder / "events.db"))
        self.service = Service(store, Settings(_DEFAULTS), self.clock, secret=b"%d" % seed)

    async def night(self, night: int) -> list[Any]:
        """Play and refit; what was true that night, as in `study_loop`."""
        n_arms, bandit, register = (ARMS if night >= OPENED else ARMS - 1), self.people.on(night), self.service.register
        if night in (0, OPENED):
            await register.set_arms(_LABELS[:n_arms])
        earned = value(await self._policy(register.rollout.active, n_arms), bandit, n_arms)
        if night == BAD:
            await self._promote(bad_plan(self.people, n_arms, earned, self.rng), n_arms)
        best = lmab.plan(with_first(bandit, n_arms), horizon=HORIZON, method=lmab.Exact()).lower
        row: list[Any] = [earned / best, 0.0, 0, 0.0, "", 0.0]
        name = register.rollout.canary
        if name is not None:
            self.number, self.tested = self.number + (name != self.tested), name
            gets = value(await self._policy(name, n_arms), bandit, n_arms)
            row[1:4] = [gets / best, self.number, register.rollout.share]
            row[5] = await self._needed(name, n_arms, gets - earned)
        await self._play(bandit, night)
        self.clock.shift += _DAY
        found = await refit(
            self.service.store, self.folder, RefitOptions(floor=0.1), rng=self.seed * 100 + night, now=self.clock()
        )
        row[4] = found.outcome
        await register.refresh()
        return [round(one, 5) if isinstance(one, float) else one for one in row]

    async def _policy(self, name: str, n_arms: int) -> Policy | None:
        body = None if name == UNIFORM else await self.service.store.version(name)
        compact = None if body is None else read_version(body, _DEFAULTS).compact
        return None if compact is None else Relabelled(compact.policy, _LABELS[:n_arms])

    async def _promote(self, policy: Policy, n_arms: int) -> None:
        path = self.folder / "bad.lmab"
        bandit = getattr(policy, "bandit", None)
        assert bandit is not None
        named = lmab.LatentBandit(bandit.weights, bandit.rewards, _LABELS[:n_arms])
        lmab.plan(named, horizon=HORIZON, method=lmab.Exact()).policy.save(path)
        version = await self.service.register.add_version(path.read_bytes())
        await self.service.register.promote(version.name, 0.05)

    async def _needed(self, name: str, n_arms: int, gain: float) -> float:
        """Nights that the difference needs at the first share; 0 where the test has not been looked at yet."""
        known = json.loads(await self.service.store.setting(CANARY, None) or "null")
        if known is None or known["version"] != name:
            return 0.0
        found = Canary.from_json(known)
        policy: Any = None
        return Test(policy, 0, n_arms, found.counted, found.mean, found.variance, found.whole).needed(gain)

    async def _play(self, bandit: lmab.LatentBandit, night: int) -> None:
        names, places = {label: arm for arm, label in enumerate(_LABELS)}, asyncio.Semaphore(_AT_ONCE)

        async def session(index: int) -> None:
            rng = np.random.default_rng([self.seed, night, index])
            hidden = rng.choice(2, p=bandit.weights)
            async with places:
                name, reward = f"night{night}-{index}", None
                for step in range(HORIZON):
                    told = await self.service.decide(Question(name, step, reward))
                    reward = float(rng.random() < bandit.means[hidden, names[str(told.label)]])
                assert reward is not None
                await self.service.reward([Reward(name, HORIZON - 1, reward)])

        await asyncio.gather(*(session(index) for index in range(PER_NIGHT)))


def loop(seed: int) -> dict[str, Any]:
    """One loop, with the people of the same loop of `study_loop`."""

    async def nights(folder: Path) -> list[Any]:
        one = ServedLoop(People.drawn(np.random.default_rng([33, seed])), folder, seed)
        await one.service.start(watch=False)
        found = [await one.night(night) for night in range(NIGHTS)]
        for first, second in pairwise(found):  # what a test needs is known after its first look
            if first[2] == second[2] and not first[5]:
                first[5] = second[5]
        await one.service.stop()
        return found

    with tempfile.TemporaryDirectory(prefix="lmab-loop-") as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {"seed": seed, "nights": asyncio.run(nights(Path(name)))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loops", type=int, default=2)
    parser.add_argument("--store", action="store_true", help="keep the sums in docs/benchmarks/rows.json")
    given = parser.parse_args()
    rows = stored.resumed(ROWS, {seed: (seed,) for seed in range(given.loops)}, lambda row: row["seed"], loop)
    found = summary(rows)
    for name, number in found.items():
        print(f"{name:24s} {number:10.4f}")
    if given.store:
        command = f"python -m benchmarks.study_loop_store --loops {given.loops}"
        stored.store("study_loop_store", stored.measured(command, found))


if __name__ == "__main__":
    main()
