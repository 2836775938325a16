"""What a decision costs: one session, a step of a policy graph, many sessions at once; and how large policies are."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import lmab

from .rows import Rows
from .timing import fastest

SESSIONS = 100_000


def main() -> Rows:
    bandit = lmab.random_bandit(4, 10, kind="hard", rng=1)
    policy: Any = lmab.plan(bandit, horizon=5).policy
    step = fastest(partial(_walk, policy.graph()), repeats=5).used / 8_000
    state = policy.start(SESSIONS)
    state = policy.observe(state, policy.act(state), np.random.default_rng(0).integers(2, size=SESSIONS).astype(float))
    batch = fastest(partial(policy.act, state), repeats=3).used
    print(f"a step of the graph: {step * 1e6:.2f} µs; {SESSIONS:,} sessions in one call: {batch:.2f} s")
    return {"graph/microseconds": step * 1e6, "batch/seconds": batch} | _single() | _sizes()


def _single() -> Rows:
    """A reward and the next arm, for one session of 7 types, 50 arms and 7 steps."""
    policy: Any = lmab.plan(lmab.random_bandit(7, 50, kind="hard", rng=0), horizon=7).policy
    forms = {"single": policy, "compact": policy.compact()}
    rows = {name: fastest(partial(_play, form), repeats=5).used / 12_000 * 1e6 for name, form in forms.items()}
    print(", ".join(f"{name}: {value:.1f} µs" for name, value in rows.items()))
    return {f"{name}/microseconds": value for name, value in rows.items()}


def _play(form: Any) -> None:
    for _ in range(2_000):
        state = form.start()
        arm = form.act(state)
        for reward in (1.0, 0.0, 1.0, 0.0, 1.0, 0.0):
            state = form.observe(state, arm, reward)
            arm = form.act(state)


def _walk(graph: Any) -> None:
    arms, successors, root = graph.arms, graph.successors, graph.root
    for _ in range(2_000):
        node = root
        for _ in range(4):
            _ = arms[node]
            node = successors[node][1.0]


def _sizes() -> Rows:
    """Vectors and nodes, and what their files take."""
    rows: Rows = {}
    for horizon in (7, 20):
        bandit = lmab.random_bandit(7, 50, kind="hard", rng=0)
        policy: Any = lmab.plan(bandit, horizon=horizon, time_limit=300).policy
        graph = policy.graph()
        rows |= {f"vectors-{horizon}/number": len(policy.vectors), f"graph-{horizon}/number": len(graph)}
        rows |= {f"vectors-{horizon}/bytes": _file_size(policy), f"graph-{horizon}/bytes": _file_size(graph)}
    for name in list(rows):
        if name.endswith("bytes"):
            rows[name.replace("bytes", "kB")], rows[name.replace("bytes", "MB")] = rows[name] / 1e3, rows[name] / 1e6
    print(rows)
    return rows


def _file_size(policy: lmab.Policy) -> int:
    with tempfile.TemporaryDirectory() as folder:
        policy.save(Path(folder) / "policy.lmab")
        return (Path(folder) / "policy.lmab").stat().st_size


if __name__ == "__main__":
    main()
