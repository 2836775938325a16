"""Processor time of a night that starts from the last model, beside one that starts from nothing, on the same store.

`python -m benchmarks refit`; with options: `python -m benchmarks.bench_refit [--rounds 3]`.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lmab
from lmab.serve.refit import RefitOptions, refit
from lmab.serve.stores import Decision, Job, RewardRow, Rollout, open_store

from .rows import Rows

N_ARMS, HORIZON, DAY = 30, 6, 86_400.0
OPTIONS = RefitOptions(types=4, horizon=HORIZON, repeats=True, time_limit=5.0)


async def fill(store: Any, day: int, n_sessions: int) -> None:
    """Sessions of one day, in which any arm was as likely."""
    truth = lmab.random_bandit(4, N_ARMS, kind="hard", rng=1)
    log = lmab.simulate(truth, lmab.Uniform(N_ARMS), n_sessions=n_sessions, horizon=HORIZON, rng=day)
    jobs = []
    for row in range(log.n_steps):
        session, step = divmod(row, HORIZON)
        name, at = f"day{day}-{session}", day * DAY + session
        decision = Decision(name, step, int(log.arms[row]), 1 / N_ARMS, "uniform", at, 1, 0, None, None, None)
        jobs.append(Job([RewardRow(name, step, float(log.rewards[row]), at, 0)], decision))
    await store.write(jobs)


async def night(store: Any, folder: Path, now: float, seed: int) -> tuple[float, float]:
    """Processor seconds of a refit, and of the fits in it."""
    spent = [0.0]

    def timed(*given: Any, **more: Any) -> Any:
        began = time.process_time()
        found = lmab.fit(*given, **more)
        spent[0] += time.process_time() - began
        return found

    began = time.process_time()
    with patch.object(sys.modules["lmab.serve.refit"], "fit", timed):
        await refit(store, folder, OPTIONS, rng=seed, now=now)
    spent_whole = time.process_time() - began
    await store.add_rollout(Rollout("uniform", None, 0.0, now, "no canary: nights repeat"))
    return spent_whole, spent[0]


async def study(folder: Path, rounds: int) -> Rows:
    """Median processor seconds of a night and of its fits, by how they start."""
    store = open_store(str(folder / "events.db"))
    await store.open()
    await store.set_arms([f"arm-{i}" for i in range(N_ARMS)])
    await fill(store, 1, 5000)
    await night(store, folder / "first", 2 * DAY, 0)  # compiles, and leaves the last model
    await fill(store, 3, 1500)
    found: dict[str, list[tuple[float, float]]] = {"warm": [], "cold": []}
    for seed in range(rounds):
        for what, nights in found.items():
            place = folder / f"{what}-{seed}"
            if what == "warm":
                shutil.copytree(folder / "first", place)
            await store.set_setting("fitted", f'{{"at": {2 * DAY}}}')
            whole, fits = await night(store, place, 4 * DAY, seed)
            nights.append((whole, fits))
            print(f"{what}: {whole:.2f} processor seconds of a night, {fits:.2f} of them its fit")
    await store.close()
    return {
        f"{what}/{part}": statistics.median(seconds)
        for what, nights in found.items()
        for part, seconds in zip(("night", "fits"), zip(*nights, strict=True), strict=True)
    }


def main(arguments: Sequence[str] = ()) -> Rows:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args(arguments).rounds
    with tempfile.TemporaryDirectory(prefix="lmab-refit-") as name:
        return asyncio.run(study(Path(name), rounds))


if __name__ == "__main__":
    main(sys.argv[1:])
