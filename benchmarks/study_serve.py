"""Do off-policy intervals from logs of the service hold? A hundred logs of a service that explores, exported by day.

    python -m benchmarks.study_serve --runs 100

Each run plays sessions against a service with a plan and a floor, exports the store, and asks what another policy would
have earned; its exact value is known.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import warnings
from pathlib import Path

import numpy as np

import lmab
from lmab.serve.export import export_days
from lmab.serve.messages import Question, Reward
from lmab.serve.service import Service, Settings
from lmab.serve.stores import open_store
from lmab.serve.versions import Defaults

HORIZON = 3
LABELS = ("red", "green", "blue", "grey")
METHODS = ("self-normalised", "doubly-robust")


def _named(bandit: lmab.LatentBandit) -> lmab.LatentBandit:
    return lmab.LatentBandit(bandit.weights, bandit.rewards, LABELS)


async def _log(folder: Path, truth: lmab.LatentBandit, policy: Path, n_sessions: int, seed: int) -> lmab.Sessions:
    service = Service(open_store(str(folder / "events.db")), Settings(Defaults(HORIZON)), secret=b"%d" % seed)
    await service.start(watch=False)
    version = await service.register.add_version(policy.read_bytes())
    await service.register.promote(version.name, 1.0)

    async def one(index: int) -> None:
        rng = np.random.default_rng([seed, index])
        type_, reward = rng.choice(truth.n_types, size=1, p=truth.weights), None
        for step in range(HORIZON):
            told = await service.decide(Question(f"s{index}", step, reward))
            reward = float(truth.rewards.sample(type_, np.array([told.arm]), rng=rng)[0])
        assert reward is not None
        await service.reward([Reward(f"s{index}", HORIZON - 1, reward)])

    await asyncio.gather(*(one(index) for index in range(n_sessions)))
    files = (await export_days(service.store, folder / "log")).written
    await service.stop()
    logs = [lmab.Sessions.read(path, step="step", propensity="propensity", arm_labels=LABELS) for path in files]
    return sum(logs[1:], logs[0])


def study(runs: int, n_sessions: int) -> dict[str, int]:
    """How often 95% intervals hold the exact value, by method."""
    truth = _named(lmab.random_bandit(3, 4, rng=1))
    other = _named(lmab.random_bandit(3, 4, rng=2))
    target = lmab.plan(truth, horizon=HORIZON).policy
    exact = lmab.evaluate(target, truth, horizon=HORIZON).mean
    held = dict.fromkeys(METHODS, 0)
    for run in range(runs):
        with tempfile.TemporaryDirectory(prefix="lmab-study-") as name, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            folder = Path(name)
            lmab.policies.Exploring(lmab.plan(other, horizon=HORIZON).policy, 0.5).save(folder / "policy.lmab")
            log = asyncio.run(_log(folder, truth, folder / "policy.lmab", n_sessions, run))
            for method in METHODS:
                model = truth if method == "doubly-robust" else None
                found = lmab.evaluate(target, log, horizon=HORIZON, method=method, model=model, rng=run)
                assert found.interval is not None
                held[method] += found.interval[0] <= exact <= found.interval[1]
    return held


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--sessions", type=int, default=2000)
    given = parser.parse_args()
    for method, count in study(given.runs, given.sessions).items():
        print(f"{method:18s} held the exact value in {count} of {given.runs} runs")


if __name__ == "__main__":
    main()
