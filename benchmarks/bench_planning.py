"""Time to a certified 1%, what Q-MDP loses, compile and load times, and pomdp-py on the same problems at equal time.

Wall-clock seconds, and in brackets those the processor spent on it: on a busy machine the two differ.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from typing import NamedTuple

import numpy as np

import lmab

from .rows import Rows
from .timing import fastest, timed


class Case(NamedTuple):
    kind: str
    n_types: int
    n_arms: int
    horizon: int

    @property
    def name(self) -> str:
        return "-".join(map(str, self))

    @property
    def cells(self) -> str:
        """The first two cells of a table."""
        return f"{self.n_types}, {self.n_arms}, {self.horizon} | {self.kind}"

    def bandit(self, seed: int = 0) -> lmab.LatentBandit:
        return lmab.random_bandit(self.n_types, self.n_arms, kind=self.kind, rng=seed)


SMALL = [Case(kind, 7, 50, 7) for kind in ("ordinary", "spread", "hard", "deep", "spherical")]
LARGE = [Case(kind, 10, 200, 10) for kind in ("ordinary", "spread", "hard")]
CASES = [*SMALL, *LARGE[:2], Case("hard", 7, 50, 20), LARGE[2]]
WORTH = [*(Case(kind, 4, 20, 5) for kind in ("ordinary", "spread", "hard", "deep")), *SMALL]
EXACT = ((2, 2, 3), (3, 3, 3), (2, 2, 4))
POUCT = {"ordinary": 100, "hard": 30, "deep": 30}  # sessions
N_BANDITS, N_SEEDS = 5, 100


def main() -> Rows:
    rows = _compilation()
    for method in (lmab.Certified(), lmab.Exact(), lmab.QMDP(), lmab.planning.Lookahead()):
        lmab.plan(Case("hard", 2, 5, 4).bandit(), horizon=4, method=method)  # kernels loaded
    rows |= _certified() | _seeds() | _worth() | _peer()
    print(table(rows), table_of_worth(rows), sep="\n\n")
    return rows


def _certified() -> Rows:
    rows: Rows = {}
    for case in CASES:
        bandit = case.bandit()
        plan, wall, used = timed(partial(lmab.plan, bandit, horizon=case.horizon, time_limit=300))
        greedy = _value(lmab.plan(bandit, horizon=case.horizon, method=lmab.QMDP()).policy, bandit, case.horizon)
        print(f"{case.name}: {wall:.2f} s ({used:.2f}), optimum in [{plan.lower:.4f}, {plan.upper:.4f}]", flush=True)
        measures = {"wall": wall, "used": used, "lower": plan.lower, "upper": plan.upper, "qmdp": greedy}
        rows |= {f"{case.name}/{name}": value for name, value in measures.items()}
        rows[f"{case.name}/lost"] = 1 - greedy / plan.upper
    for size, cases in (("7-50-7", SMALL), ("10-200-10", LARGE)):
        seconds = [rows[f"{case.name}/used"] for case in cases]
        rows |= {f"{size}/least": min(seconds), f"{size}/most": max(seconds)}
    lost = [rows[f"{case.name}/lost"] for case in CASES if case.kind == "hard"]
    return rows | {"hard/least-lost": min(lost), "hard/most-lost": max(lost)}


def _value(policy: lmab.Policy, bandit: lmab.LatentBandit, horizon: int) -> float:
    if horizon <= 10:
        return lmab.evaluate(policy, bandit, horizon=horizon).mean
    return lmab.evaluate(policy, bandit, horizon=horizon, n_sessions=20_000, rng=0).mean


def _seeds() -> Rows:
    """Processor seconds over many spherical bandits."""
    seconds = np.array([timed(partial(lmab.plan, SMALL[-1].bandit(seed), horizon=7)).used for seed in range(N_SEEDS)])
    rows = {"seeds/median": float(np.median(seconds)), "seeds/95": float(np.quantile(seconds, 0.95))}
    print(f"{SMALL[-1].name}, {N_SEEDS} seeds: {rows}, most {seconds.max():.2f} s", flush=True)
    return rows | {"seeds/most": float(seconds.max())}


def _worth() -> Rows:
    """What policies earn as a part of the proved upper bound, over a few bandits of each kind."""
    rows: Rows = {}
    for case in WORTH:
        shares = np.array([_shares(case, seed) for seed in range(N_BANDITS)])  # (n, 4)
        names = ("fixed", "qmdp", "lookahead", "certified")
        rows |= {f"worth-{case.name}/{name}": mean for name, mean in zip(names, shares.mean(axis=0), strict=True)}
        rows[f"worth-{case.name}/qmdp-worst"] = float(shares[:, 1].min())
    lost = [1 - rows[f"worth-{case.name}/qmdp"] for case in WORTH if case.kind == "hard"]
    return rows | {"worth/least-lost": min(lost), "worth/most-lost": max(lost)}


def _shares(case: Case, seed: int) -> list[float]:
    bandit = case.bandit(seed)
    best = lmab.plan(bandit, horizon=case.horizon)
    policies = [
        lmab.plan(bandit, horizon=case.horizon, method=method).policy
        for method in (lmab.QMDP(), lmab.planning.Lookahead())
    ]
    values = [lmab.evaluate(policy, bandit, horizon=case.horizon).mean for policy in (*policies, best.policy)]
    return [value / best.upper for value in (bandit.best_fixed(case.horizon), *values)]


def _compilation() -> Rows:
    """A first process compiles into an empty cache, a second one loads from it."""
    program = """
import time; start = time.process_time()
import lmab
for method in (lmab.Certified(), lmab.Exact()):
    lmab.plan(lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]]), horizon=5, method=method)
print(time.process_time() - start)
"""
    rows: Rows = {}
    with tempfile.TemporaryDirectory() as cache:
        for name in ("compiled", "loaded"):
            environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
            run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
            rows[f"kernels/{name}"] = float(run.stdout)
            print(f"kernels {name}, and a first plan: {rows[f'kernels/{name}']:.2f} s", flush=True)
    return rows


def _peer() -> Rows:
    try:
        from .peer_pomdp import pouct, value_iteration
    except ImportError:
        print("pomdp-py is not installed: no comparison")
        return {}
    rows: Rows = {}
    for n_types, n_arms, horizon in EXACT:  # pomdp-py's exact value iteration
        name, bandit = (
            f"exact-{n_types}-{n_arms}-{horizon}",
            lmab.random_bandit(n_types, n_arms, kind="ordinary", rng=0),
        )
        ours = fastest(partial(lmab.plan, bandit, horizon=horizon, method=lmab.Exact()), repeats=5)
        theirs = timed(partial(value_iteration, bandit, horizon))
        if theirs.result != ours.result.policy.act_on([]):
            print(f"{name}: another first arm (a tie, or an error)")
        rows |= {f"{name}/ours": ours.used, f"{name}/theirs": theirs.used, f"{name}/ratio": theirs.used / ours.used}
    for kind, sessions in POUCT.items():  # its online search, with the time of our whole plan for each decision
        case = Case(kind, 7, 50, 7)
        bandit, name = case.bandit(), f"pouct-{kind}"
        plan, wall, _ = timed(partial(lmab.plan, bandit, horizon=7))
        totals, took, _ = timed(partial(pouct, bandit, 7, max(wall, 0.02), sessions))
        value, mean = lmab.evaluate(plan.policy, bandit, horizon=7).mean, float(np.mean(totals))
        rows |= {f"{name}/ours": value, f"{name}/planned": wall, f"{name}/mean": mean, f"{name}/lost": 1 - mean / value}
        rows |= {f"{name}/stderr": float(np.std(totals) / np.sqrt(len(totals))), f"{name}/session": took / sessions}
    lost = [rows[f"pouct-{kind}/lost"] for kind in POUCT]
    rows |= {"pouct/least-lost": min(lost), "pouct/most-lost": max(lost)}
    print(table_of_pouct(rows))
    return rows


def table(rows: Rows) -> str:
    """Time to 1%, the proved bounds, and what Q-MDP loses."""
    lines = ["| M, A, H | kind | seconds | optimum between | Q-MDP | lost |", "|---|---|---|---|---|---|"]
    for case in CASES:
        wall, used, lower, upper, qmdp, lost = (
            rows[f"{case.name}/{name}"] for name in ("wall", "used", "lower", "upper", "qmdp", "lost")
        )
        bounds = f"{lower:.4f}, {upper:.4f} | {qmdp:.4f} | {lost:.1%}"
        lines.append(f"| {case.cells} | {wall:.2f} ({used:.2f}) | {bounds} |")
    return "\n".join(lines)


def table_of_worth(rows: Rows) -> str:
    """What simpler policies earn of the upper bound."""
    lines = [
        "| M, A, H | kind | best fixed arm | Q-MDP | Q-MDP, worst of five | lookahead(1) | certified |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in WORTH:
        names = ("fixed", "qmdp", "qmdp-worst", "lookahead", "certified")
        shares = [f"{rows[f'worth-{case.name}/{name}']:.3f}".removeprefix("0") for name in names]
        lines.append(f"| {case.cells} | {' | '.join(shares)} |")
    return "\n".join(lines)


def table_of_pouct(rows: Rows) -> str:
    """pomdp-py's online search beside our plans."""
    lines = ["| kind | ours, exact value | planned in | POUCT, value | per session |", "|---|---|---|---|---|"]
    for kind in POUCT:
        ours, planned, mean, stderr, session = (
            rows[f"pouct-{kind}/{name}"] for name in ("ours", "planned", "mean", "stderr", "session")
        )
        lines.append(f"| {kind} | {ours:.3f} | {planned:.2f} s | {mean:.3f} ± {stderr:.3f} | {session:.2f} s |")
    return "\n".join(lines)


def table_of_seconds(rows: Rows) -> str:
    """Processor seconds to 1% alone."""
    lines = ["| M, A, H | kind | to a certified 1% |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {case.cells} | {rows[f'{case.name}/used']:.2f} s |" for case in CASES)])


TABLES = {"": table, "worth": table_of_worth, "pouct": table_of_pouct, "seconds": table_of_seconds}

if __name__ == "__main__":
    main()
