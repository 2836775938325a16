"""How late planners stop: seconds past `time_limit`, and seconds from Ctrl-C to the plan, for every planner.

Allowed are 0.3 s or a tenth of the limit, whichever is more. Quiet cores: seconds here are those of the wall clock.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import NamedTuple

import numpy as np

import lmab

from .planning_instances import instance
from .rows import Rows

LIMITS = (0.3, 2.0)
CTRL_C = 0.5  # seconds after which Ctrl-C is pressed
ALLOWED, SHARE = 0.3, 0.1


class Case(NamedTuple):
    planner: str
    kind: str
    n_types: int
    n_arms: int
    horizon: int
    repeats: bool = True

    @property
    def name(self) -> str:
        size = f"({self.n_types},{self.n_arms},{self.horizon})"
        return f"{self.planner} on {self.kind} {size}{'' if self.repeats else ' without repeats'}"


PLANNERS: dict[str, lmab.planning.Planner] = {
    "Certified": lmab.Certified(gap=1e-9),
    "PointBased": lmab.planning.PointBased(gap=1e-9),
    "Lookahead": lmab.planning.Lookahead(depth=2),
    "QMDP": lmab.QMDP(),
    "Exact": lmab.Exact(),
}

LARGE = (("hard", 15, 500, 10), ("hard", 30, 300, 15), ("logit4", 256, 100, 10), ("logit4", 1000, 100, 10))
CASES = [
    *(Case(planner, *size, repeats) for planner in ("Certified", "PointBased", "Lookahead", "QMDP")
      for size in LARGE for repeats in (True, False)),
    Case("Certified", "normal", 20, 100, 10),
    Case("Certified", "normal", 20, 100, 10, repeats=False),
    Case("Exact", "ordinary", 10, 6, 9),
    Case("Exact", "ordinary", 10, 14, 6, repeats=False),
    Case("Certified", "ordinary", 400, 14, 6, repeats=False),
]  # fmt: skip


def main() -> Rows:
    rows: Rows = {}
    for case in CASES:
        late = {f"{limit:g}": _past(case, limit) for limit in LIMITS}
        allowed = {f"{limit:g}": max(ALLOWED, SHARE * limit) for limit in LIMITS}
        late["ctrl-c"], allowed["ctrl-c"] = _after_ctrl_c(case), ALLOWED
        missed = [name for name in late if late[name] > allowed[name]]
        shown = ", ".join(f"{name}: {seconds:+.2f} s" for name, seconds in late.items())
        print(f"{case.name}: {shown}{'  TOO LATE' if missed else ''}", flush=True)
        rows |= {f"{case.name}/{name}": seconds for name, seconds in late.items()}
    rows["latest"] = max(rows.values())
    rows["cases"] = len(CASES)
    print(f"latest of all: {rows['latest']:+.2f} s")
    return rows


def _bandit(case: Case) -> lmab.LatentBandit:
    if case.kind != "normal":
        return instance(case.kind, case.n_types, case.n_arms, 1)
    rng = np.random.default_rng(1)
    return lmab.LatentBandit.gaussian(
        rng.dirichlet(np.ones(case.n_types)), rng.normal(size=(case.n_types, case.n_arms)), scale=1.0
    )


def _plan(case: Case, limit: float) -> None:
    lmab.plan(
        _bandit(case), horizon=case.horizon, method=PLANNERS[case.planner], time_limit=limit, repeats=case.repeats
    )


def _past(case: Case, limit: float) -> float:
    """Seconds past the limit; negative where the plan was done before it."""
    lmab.plan(instance("hard", 3, 10, 1), horizon=4, method=PLANNERS[case.planner])  # kernels loaded
    start = time.perf_counter()
    _plan(case, limit)
    return time.perf_counter() - start - limit


def _after_ctrl_c(case: Case) -> float:
    """Seconds from Ctrl-C to the plan; negative where the plan was done before it."""
    pressed = threading.Timer(CTRL_C, os.kill, (os.getpid(), signal.SIGINT))
    start = time.perf_counter()
    pressed.start()
    _plan(case, 60.0)
    seconds = time.perf_counter() - start - CTRL_C
    pressed.cancel()
    return seconds


if __name__ == "__main__":
    main()
