"""Thousands of arms, 50 to 10,000: fit, check, choice of types, plans with and without repeats, assessment, decisions.

100,000 sessions of 10 steps, 6 types, 5 values, arms played at random. *stars*: how much a type likes an arm is a
quality plus four tastes; *unrelated*: every type draws what an arm pays anew, which is the hardest to plan for. Every
part runs in a process of its own, so that memory is its own; seconds are those of the processor. What is done is kept
in `build/arms`, so that the benchmark goes on where it was stopped: delete the folder to measure anew.

Peers (extra `peers`): implicit factors the same log by alternating least squares, and Vowpal Wabbit decides from the
session so far, of at most 2,000 arms: it asks about each of them at every step. What is not installed is reported in
one line.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import lmab
from lmab.evaluation import diagnostics

from .rows import Rows
from .timing import fastest, timed

SIZES = (50, 500, 2_000, 10_000)
LARGE = 2_000  # arms of the table
CASES = [*(("stars", size) for size in SIZES), ("unrelated", LARGE)]
SESSIONS, STEPS, TYPES, VALUES = 100_000, 10, 6, 5
TASTES = 4
LIMIT = 10.0  # processor seconds for each plan
DECIDED = 200  # sessions of which decisions are timed
LEARNED = 20_000  # sessions that Vowpal Wabbit learns from
PLAYED = 1_000  # sessions in which policies are compared
FOLDER = Path(__file__).parent.parent / "build" / "arms"


def instance(kind: str, n_arms: int) -> lmab.LatentBandit:
    rng = np.random.default_rng([n_arms, len(kind)])
    weights = rng.dirichlet(np.full(TYPES, 5.0))
    if kind == "unrelated":
        chances = rng.dirichlet(np.ones(VALUES), size=(TYPES, n_arms))
    else:
        tastes = rng.normal(size=(TYPES, TASTES)) @ rng.normal(size=(TASTES, n_arms))
        liked = rng.normal(0, 0.8, n_arms) + 0.8 * tastes / np.sqrt(TASTES)
        below = 1 / (1 + np.exp(liked[..., None] - np.array([-2.0, -0.8, 0.3, 1.6])))
        chances = np.diff(below, axis=-1, prepend=0.0, append=1.0)
    return lmab.LatentBandit.categorical(weights, chances, np.arange(1.0, VALUES + 1))


def log_of(bandit: lmab.LatentBandit) -> lmab.Sessions:
    return lmab.simulate(bandit, lmab.Uniform(bandit.n_arms), n_sessions=SESSIONS, horizon=STEPS, rng=1)


def main() -> Rows:
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = FOLDER / "rows.json"
    done: dict[str, Rows] = json.loads(kept.read_text()) if kept.exists() else {}
    for kind, n_arms in sorted(CASES, key=lambda case: (case[1] != LARGE, case[1])):
        for part in PARTS:
            name = f"{part}/{kind}/{n_arms}"
            if name not in done and not (part == "vw" and n_arms > LARGE):
                found = _child(part, kind, n_arms)
                done |= {name: found} if found else {}
                kept.write_text(json.dumps(done))
        print(sentence(kind, n_arms, _all(done)), flush=True)
    return _all(done) | _ratios(_all(done))


def _all(done: dict[str, Rows]) -> Rows:
    return {row: value for rows in done.values() for row, value in rows.items()}


def _child(part: str, kind: str, n_arms: int) -> Rows:
    """The rows of one part, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.bench_arms", part, kind, str(n_arms), str(FOLDER)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{part}, {kind}, {n_arms:,} arms: {done.stderr.strip().splitlines()[-1]}", flush=True)
        return {}
    return {f"{kind}/{n_arms}/{name}": value for name, value in json.loads(done.stdout.splitlines()[-1]).items()}


def _megabytes() -> float:
    """The peak of this process."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


def _warm(repeats: bool = True) -> None:
    """Load the kernels, which is not what is timed."""
    tiny = lmab.LatentBandit.categorical([0.5, 0.5], [[[0.9, 0.1], [0.5, 0.5]], [[0.2, 0.8], [0.4, 0.6]]], [0.0, 1.0])
    log = lmab.simulate(tiny, lmab.Uniform(2), n_sessions=60, horizon=3, rng=0)
    lmab.fit(log, n_types=2, rng=0)
    lmab.plan(tiny, horizon=2, repeats=repeats)


def fitted(kind: str, n_arms: int, folder: Path) -> Rows:
    _warm()
    log = log_of(instance(kind, n_arms))
    fit = timed(partial(lmab.fit, log, n_types=TYPES, check=False, rng=0))
    fit_peak = _megabytes()
    check = timed(partial(diagnostics.check, fit.result, rng=0))
    fit.result.save(folder / f"{kind}-{n_arms}.lmab")
    return {"fit": fit.used, "fit/MB": fit_peak, "check": check.used, "check/agrees": float(check.result.agrees)}


def chosen(kind: str, n_arms: int, folder: Path) -> Rows:
    """Fit and check as `lmab fit` does without options: the number of types is chosen, too."""
    _warm()
    log = log_of(instance(kind, n_arms))
    found = timed(partial(lmab.fit, log, rng=0))
    return {"auto": found.used, "auto/types": float(found.result.n_types), "auto/MB": _megabytes()}


def planned(kind: str, n_arms: int, folder: Path, *, repeats: bool) -> Rows:
    _warm(repeats)
    model = lmab.load(folder / f"{kind}-{n_arms}.lmab")
    trace: list[tuple[float, float]] = []
    start = time.process_time()

    def watch(bounds: Any) -> None:
        trace.append((time.process_time() - start, bounds.upper / bounds.lower - 1))
        if len(trace) > 1 and trace[-2][0] <= LIMIT < trace[-1][0]:
            raise KeyboardInterrupt  # as Ctrl-C would, once

    plan = lmab.plan(
        model, horizon=STEPS, repeats=repeats, anyway=True, time_limit=20 * LIMIT, progress=watch,
    )  # fmt: skip
    name = "plan" if repeats else "once"
    reached = [used for used, gap in trace if gap <= 0.01 * (1 + 1e-9)]
    gaps = [gap for used, gap in trace if used <= LIMIT] or [trace[0][1]]
    rows = {f"{name}/gap": min(gaps), f"{name}/MB": _megabytes(), f"{name}/lower": plan.lower}
    rows |= {f"{name}/to-1%": reached[0]} if reached else {}
    plan.save(folder / f"{name}-{kind}-{n_arms}.lmab")
    if repeats:
        compact = plan.policy.compact()
        rows["decision"] = fastest(partial(_decide, compact), repeats=5).used / (DECIDED * STEPS) * 1e6
        rows["decision/policy"] = fastest(partial(_decide, plan.policy), repeats=2).used / (DECIDED * STEPS) * 1e6
    return rows


def _decide(policy: Any) -> None:
    """Sessions step by step: the next arm, and what it paid."""
    for session in range(DECIDED):
        state = policy.start()
        for step in range(STEPS):
            arm = policy.act(state)
            state = policy.observe(state, arm, float(1 + (session + step * step) % VALUES))


def certified(kind: str, n_arms: int, folder: Path) -> Rows:
    _warm()
    model, plan = (lmab.load(folder / f"{name}{kind}-{n_arms}.lmab") for name in ("", "plan-"))
    found = timed(partial(lmab.assess, model, plan, log_of(instance(kind, n_arms)), rng=0))
    low, high = found.result.value or (np.nan, np.nan)
    return {"certificate": found.used, "certificate/MB": _megabytes(), "value/low": low, "value/high": high}


def implicit(kind: str, n_arms: int, folder: Path) -> Rows:
    """Alternating least squares with as many factors as there are types, on one thread."""
    from implicit.als import AlternatingLeastSquares
    from scipy.sparse import csr_matrix

    log = log_of(instance(kind, n_arms))
    owner = np.repeat(np.arange(len(log)), log.lengths)
    ratings = csr_matrix((log.rewards.astype(np.float32), (owner, log.arms)), shape=(len(log), n_arms))
    model = AlternatingLeastSquares(factors=TYPES, random_state=0, num_threads=1)
    return {"implicit": timed(partial(model.fit, ratings, show_progress=False)).used}


def vowpal_wabbit(kind: str, n_arms: int, folder: Path) -> Rows:
    """A contextual bandit over all arms whose features are the arms played before and what they paid."""
    from vowpalwabbit import Workspace

    truth = instance(kind, n_arms)
    log = log_of(truth)[:LEARNED]
    model = Workspace(f"--cb {n_arms} --cb_type ips --quiet")
    learning = time.process_time()
    arms, rewards = log.arms.reshape(-1, STEPS).tolist(), log.rewards.reshape(-1, STEPS).tolist()
    for shown, paid in zip(arms, rewards, strict=True):
        session: list[str] = []
        for arm, reward in zip(shown, paid, strict=True):
            model.learn(f"{arm + 1}:{-reward}:{1 / n_arms} | one {' '.join(session)}")
            session.append(f"a{arm}:{reward - 3}")
    learned = time.process_time() - learning
    decided = 0.0

    def decide(session: list[str]) -> int:
        nonlocal decided
        start = time.process_time()
        arm = int(model.predict(f"| one {' '.join(session)}")) - 1
        decided += time.process_time() - start
        return arm

    earned = _earned(truth, decide)
    policy = lmab.load(folder / f"plan-{kind}-{n_arms}.lmab").policy
    ours = lmab.simulate(truth, policy, n_sessions=PLAYED, horizon=STEPS, rng=5).rewards.sum() / PLAYED
    model.finish()
    microseconds = 1e6 * decided / (PLAYED * STEPS)
    return {"vw/decision": microseconds, "vw/fit": learned, "vw/earned": earned, "earned": float(ours)}


def _earned(truth: lmab.LatentBandit, decide: Any) -> float:
    """Mean sum of rewards of sessions in which `decide` chooses from the session so far."""
    rng, total = np.random.default_rng(5), 0.0
    rewards: Any = truth.rewards
    for _ in range(PLAYED):
        own, session = rng.choice(TYPES, p=truth.weights), list[str]()
        for _ in range(STEPS):
            arm = decide(session)
            reward = float(rng.choice(rewards.values, p=rewards.probabilities[own, arm]))
            session.append(f"a{arm}:{reward - 3}")
            total += reward
    return total / PLAYED


PARTS: dict[str, Any] = {
    "fit": fitted,
    "auto": chosen,
    "plan": partial(planned, repeats=True),
    "once": partial(planned, repeats=False),
    "certificate": certified,
    "implicit": implicit,
    "vw": vowpal_wabbit,
}


def _ratios(rows: Rows) -> Rows:
    """Ours in units of the peer's, and how the time grows per arm."""
    found = {}
    for name in [name.removesuffix("/fit") for name in rows if name.endswith("0/fit")]:
        for ours, peer in (("fit", "implicit"), ("decision", "vw/decision"), ("earned", "vw/earned")):
            if f"{name}/{peer}" in rows and f"{name}/{ours}" in rows:
                found[f"{name}/{ours}/ratio"] = rows[f"{name}/{ours}"] / rows[f"{name}/{peer}"]
    return found


def sentence(kind: str, n_arms: int, rows: Rows) -> str:
    own = {name.split("/", 2)[2]: value for name, value in rows.items() if name.startswith(f"{kind}/{n_arms}/")}
    return f"{kind}, {n_arms:,} arms: " + ", ".join(f"{name} {value:.4g}" for name, value in own.items())


COLUMNS = {
    "fit": ("fit, s", "{:.1f}"), "check": ("check, s", "{:.1f}"),
    "auto": ("fit and check, the number of types chosen, s", "{:.1f}"), "auto/types": ("types chosen", "{:.0f}"),
    "plan/to-1%": ("plan to 1%, s", "{:.2f}"),
    "plan/gap": ("left after 10 s", "{:.2%}"), "plan/MB": ("MB", "{:.0f}"),
    "once/gap": ("without repeats, left after 10 s", "{:.2%}"), "once/MB": ("MB", "{:.0f}"),
    "certificate": ("certificate, s", "{:.1f}"), "decision": ("a decision, µs", "{:.2f}"),
    "implicit": ("implicit: fit, s", "{:.1f}"), "fit/ratio": ("our fit, times implicit's", "{:.1f}"),
    "vw/decision": ("Vowpal Wabbit: a decision, µs", "{:.1f}"),
    "decision/ratio": ("our decision, times Vowpal Wabbit's", "{:.5f}"),
    "earned": ("a session earns", "{:.1f}"), "vw/earned": ("with Vowpal Wabbit", "{:.1f}"),
}  # fmt: skip


def table(rows: Rows) -> str:
    """Sizes across, measures down."""
    lines = [
        "| | " + " | ".join(f"{kind}, {size:,} arms" for kind, size in CASES) + " |",
        "|---" * (1 + len(CASES)) + "|",
    ]
    for name, (label, form) in COLUMNS.items():
        found = (rows.get(f"{kind}/{size}/{name}") for kind, size in CASES)
        lines.append(f"| {label} | " + " | ".join("" if x is None else form.format(x) for x in found) + " |")
    return "\n".join(lines)


TABLES = {"": table}


if __name__ == "__main__":
    part, kind, size, folder = sys.argv[1:]
    print(json.dumps(PARTS[part](kind, int(size), Path(folder))))
