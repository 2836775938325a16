"""Trials that take a moment and write down when they start; run as a program, they are the victim of a kill."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from lmab.model.bandit import LatentBandit
from lmab.paper.experiment.methods import Contender, Measurement, Setting, Trial
from lmab.paper.experiment.store import RowStore, run_all

N_TRIALS = 12


@dataclass(frozen=True)
class Slow:
    folder: str
    seconds: float

    def __call__(self, setting: Setting, bandit: LatentBandit, instance: int) -> Measurement:
        with open(Path(self.folder) / "started", "a") as log:
            log.write(f"{instance} {os.getpid()}\n")
        time.sleep(self.seconds)
        return Measurement(float(bandit.means.mean()))


def trials(folder: Path, seconds: float) -> list[Trial]:
    method = Contender("slow", "slow", Slow(str(folder), seconds))
    return [Trial.of(Setting("ordinary", 3, 10, 4, 100), instance, method) for instance in range(N_TRIALS)]


if __name__ == "__main__":
    out = Path(sys.argv[1])
    run_all(trials(out, float(sys.argv[2])), RowStore(out), jobs=int(sys.argv[3]))
