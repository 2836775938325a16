"""Kernels compiled once for all processes of a run.

Processes that begin on a fresh clone would each compile the same kernels, which takes each of them half a minute. So
they share the work: each takes the next job that nobody has taken, and goes on when all jobs are done.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

COMPILED = Path(__file__).parent.parent / "src" / "lmab" / "_kernel" / "compiled"
PATIENCE = 120.0  # seconds that a process waits for the others; then it compiles what it needs


@cache
def meeting_place() -> str:
    """Return the folder in which processes of this run record their jobs, or an empty path if kernels are compiled."""
    if any((COMPILED / "__pycache__").glob("*.nbi")):
        return ""
    folder = tempfile.mkdtemp(prefix="lmab-kernels-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def together(folder: Path, jobs: Sequence[Callable[[], object]], patience: float = PATIENCE) -> None:
    """Run the jobs that no other process has taken, and wait for the others."""
    for number, job in enumerate(jobs):
        try:
            (folder / f"{number}.taken").touch(exist_ok=False)
        except FileExistsError:
            continue
        job()
        (folder / f"{number}.done").touch()
    end = time.monotonic() + patience
    while time.monotonic() < end and len(list(folder.glob("*.done"))) < len(jobs):
        time.sleep(0.05)


def _search() -> None:
    """Compile the search for plans, which takes longest."""
    import lmab

    lmab.plan(_bandit(), horizon=3)


def _fits() -> None:
    """Compile fits with a learned prior, from few and from many sessions, and the kernels of an assessment."""
    _fitted(_log(_bandit())).information()


def _normal() -> None:
    """Fits of normal rewards."""
    import lmab

    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], [[0.0, 1.0, 0.5], [1.0, 0.0, 0.5]])
    _fitted(_log(bandit), rewards="gaussian")


def _known() -> None:
    """Compile fits with returning persons and features."""
    from dataclasses import replace

    log = _log(_bandit())
    _fitted(replace(log, persons=[f"p{i // 2}" for i in range(len(log))]))


def _moments() -> None:
    """Moments of a log, and learning by them."""
    import lmab

    lmab.fit(_log(_bandit()), n_types=2, method=lmab.estimation.MomentMatching(restarts=1), check=False, rng=0)


def _learning() -> None:
    """Sessions that are learned from while they are played."""
    import lmab

    environment = lmab.Simulator(_bandit(), horizon=3, rng=0)
    lmab.learn(environment, lmab.learning.LUCRL(2), n_sessions=60, planner=lmab.Exact(), rng=0)


def _bandit() -> Any:
    import lmab

    return lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5, 0.2], [0.1, 0.6, 0.7]])


def _log(bandit: Any) -> Any:
    import lmab

    return lmab.simulate(bandit, lmab.Uniform(bandit.n_arms), n_sessions=60, horizon=3, rng=0)


def _fitted(log: Any, **said: Any) -> Any:
    import lmab

    return lmab.fit(log, n_types=2, method=lmab.EM(restarts=1, sweeps=4), check=False, rng=0, **said)


JOBS: tuple[Callable[[], None], ...] = (_search, _fits, _normal, _known)  # the longest first
if (COMPILED.parents[1] / "paper").is_dir():
    JOBS += (_moments, _learning)
