"""How often the tests of assumptions fire on simulated logs, each with a known fault or none.

`python -m benchmarks.study_assumptions [LOGS]` prints, per kind of log, in how many of LOGS logs (20 by default) each
test fires. Fits have three types, as many as the truth, so rows about too few types are left to the tests.
"""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np

import lmab
from lmab.estimation.leaving import dependences

ARMS, STEPS, SESSIONS = 12, 5, 2000
_METHOD = lmab.EM(restarts=3, tolerance=1e-4, prior="learned", sweeps=8, threads=1)
_BY_STEP = {"fatigue": 0.8 ** np.arange(STEPS), "warming up": 0.4 + 0.15 * np.arange(STEPS)}
_SELECTIVE = {"segments 1.5": 1.5, "segments 0.7": 0.7}
KINDS = (
    "uniform", "without repeats", "greedy", "Thompson", "fatigue", "warming up", "previous arm",
    "previous arm, log-odds", "season", "segments 1.5", "segments 0.7", "random length", "warming up, random length",
    "leaving after 0", "impatient",
)  # fmt: skip


def log_of(kind: str, seed: int) -> lmab.Sessions:
    """Simulate one log of a kind."""
    rng = np.random.default_rng([seed, *kind.encode()])
    truth = lmab.LatentBandit.bernoulli(rng.dirichlet(np.full(3, 5.0)), rng.beta(2, 3, (3, ARMS)))
    if kind in ("greedy", "Thompson"):
        policy = lmab.Thompson(truth) if kind == "Thompson" else lmab.policies.Exploring(lmab.Greedy(truth), 0.1)
        return lmab.simulate(truth, policy, n_sessions=SESSIONS, horizon=STEPS, rng=rng)
    types, arms = rng.choice(3, SESSIONS, p=truth.weights), rng.integers(ARMS, size=(SESSIONS, STEPS))
    if kind == "without repeats":
        arms = np.argsort(rng.random((SESSIONS, ARMS)), axis=1)[:, :STEPS]
    if kind in _SELECTIVE:
        shares = np.exp(_SELECTIVE[kind] * truth.means)
        below = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)[types]
        arms = (below[:, None] > rng.random((SESSIONS, STEPS, 1))).argmax(axis=2)
    chances = truth.means[types[:, None], arms] * _BY_STEP.get(kind.split(",")[0], 1.0)
    if kind == "season":
        chances[2 * SESSIONS // 3 :] *= 0.6
    if kind == "previous arm, log-odds":
        shifts = rng.normal(0, 0.8, (ARMS, ARMS))[arms[:, :-1], arms[:, 1:]]
        chances[:, 1:] = 1 / (1 + (1 / chances[:, 1:] - 1) * np.exp(-shifts))
    if kind == "previous arm":
        chances[:, 1:] *= rng.uniform(0.4, 1.0, (ARMS, ARMS))[arms[:, :-1], arms[:, 1:]]
    rewards = (rng.random(arms.shape) < chances).astype(float)
    leaves = {
        "leaving after 0": np.where(rewards > 0, 0.05, 0.5),
        "impatient": np.where(types == 0, 0.6, 0.05)[:, None],
    }.get(kind, 0.25 * ("random length" in kind))
    gone = np.cumsum(rng.random(arms.shape) < leaves, axis=1)[:, :-1] > 0
    gone = np.concatenate([np.zeros((SESSIONS, 1), bool), gone], axis=1)
    ended = np.where(gone.any(axis=1), "left", "unknown") if np.any(leaves) else None
    return lmab.Sessions.from_arrays(np.where(gone, -1, arms), np.where(gone, 0.0, rewards), n_arms=ARMS, ended=ended)


def fired(log: lmab.Sessions, seed: int) -> list[str]:
    """Return the names of the tests that fire on a log, and what leaving depends on."""
    fit = lmab.fit(log, n_types=3, method=_METHOD, check=False, selected=False, leaving="none", rng=seed)
    return [*fit.contradicted, *(f"by {name}" for name in (dependences(log) if log.endings is not None else ()))]


def main(n_logs: int) -> None:
    for kind in KINDS:
        found = Counter(name for seed in range(n_logs) for name in fired(log_of(kind, seed), seed))
        said = ", ".join(f"{name} {count}" for name, count in found.most_common())
        print(f"{kind:28} {said or 'nothing'} of {n_logs}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
