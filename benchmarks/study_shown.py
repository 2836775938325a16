"""Types that explain which arms were shown, beside those that do not: `python -m benchmarks.study_shown [cases ...]`.

Each row draws a truth and a log of 2,000 sessions of 5 steps, 20 arms and 3 types, fits with `selected=False` and with
`selected="auto"`, plans for both, and plays both plans on the truth. Where the site knew nothing that its log does not
show, the two fits must be the same to the bit, and nothing is planned. Rows go to `docs/benchmarks/shown.jsonl` as they
are done, and those already there are not done again. The seed was not looked at before; the rule and its thresholds
were chosen on others. `--table` only makes the tables, which go to `docs/shown.md` too.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import lmab

from . import rows as stored

ROWS = Path(__file__).parent.parent / "docs" / "benchmarks" / "shown.jsonl"
PAGE = ROWS.parent.parent / "shown.md"
_MARKS = "<!-- rows -->", "<!-- /rows -->"
_SEED = 83_000
_TYPES, _ARMS, _STEPS, _SESSIONS = 3, 20, 5, 2000
KNOWS = {
    "segments": 30,
    "mild segments": 30,
    "the type, right in 87%": 8,
    "the top five of the type": 8,
    "favours, not by liking": 8,
    "without repeats": 8,
}  # logs of each case in which the site knew the type
NULLS = {"uniform": 17, "long tail": 17, "popular": 17, "drift": 17, "greedy": 17, "Thompson": 17}


def _softmax(scores: Any) -> Any:
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return scores / scores.sum(axis=-1, keepdims=True)


def _chosen(chances: Any, rng: np.random.Generator) -> Any:
    return (np.cumsum(chances, axis=-1)[:, None] > rng.random((len(chances), _STEPS, 1))).argmax(axis=2)


def _shown(case: str, truth: lmab.LatentBandit, types: Any, rng: np.random.Generator) -> Any:
    """The arms of every session, (N, H), where a site does not look at rewards."""
    n = len(types)
    if case == "long tail":
        share = 1 / np.arange(1, _ARMS + 1)
        return rng.choice(_ARMS, (n, _STEPS), p=share / share.sum())
    if case == "without repeats":
        return np.argsort(-(3 * truth.means[types] + rng.gumbel(size=(n, _ARMS))), axis=1)[:, :_STEPS]
    chances = _softmax(
        {"segments": 3.0, "mild segments": 1.5, "the type, right in 87%": 3.0}.get(case, 0) * truth.means
    )
    if case == "the type, right in 87%":
        types = np.where(rng.random(n) < 0.8, types, rng.integers(_TYPES, size=n))
    if case == "the top five of the type":
        chances = np.full(truth.means.shape, 0.4 / _ARMS)
        np.put_along_axis(chances, np.argsort(-truth.means, axis=1)[:, :5], 0.4 / _ARMS + 0.12, axis=1)
    if case == "favours, not by liking":
        chances = _softmax(0.6 * rng.normal(size=truth.means.shape))
    return _chosen(chances[types], rng)


def draw(case: str, truth: lmab.LatentBandit, rng: np.random.Generator) -> lmab.Sessions:
    """A log of the case."""
    types = rng.choice(_TYPES, _SESSIONS, p=truth.weights)
    if case == "drift":
        half = _SESSIONS // 2
        types[half:] = rng.choice(_TYPES, _SESSIONS - half, p=rng.dirichlet(np.full(_TYPES, 2.0)))
    if case in ("greedy", "Thompson"):
        return _adaptive(case, truth, types, rng)
    if case == "popular":
        return _popular(truth, types, rng)
    arms = _shown(case, truth, types, rng)
    return lmab.Sessions.from_arrays(arms, _paid(truth, types, arms, rng), n_arms=_ARMS)


def _paid(truth: lmab.LatentBandit, types: Any, arms: Any, rng: np.random.Generator) -> Any:
    return truth.rewards.sample(np.repeat(types, arms.shape[1]), arms.ravel(), rng=rng).reshape(arms.shape)


def _popular(truth: lmab.LatentBandit, types: Any, rng: np.random.Generator) -> lmab.Sessions:
    """Batches of 30 to 70 sessions: one step in ten at random, else the arm of the highest mean so far, for all."""
    plays, sums, arms, rewards = np.ones(_ARMS), np.full(_ARMS, 0.5), [], []
    edges = np.cumsum(rng.integers(30, 71, size=_SESSIONS // 30))
    for part in np.split(np.arange(_SESSIONS), edges[edges < _SESSIONS]):
        random = rng.random((len(part), _STEPS)) < 0.1
        arms.append(np.where(random, rng.integers(_ARMS, size=random.shape), int((sums / plays).argmax())))
        rewards.append(_paid(truth, types[part], arms[-1], rng))
        plays += np.bincount(arms[-1].ravel(), minlength=_ARMS)
        sums += np.bincount(arms[-1].ravel(), rewards[-1].ravel(), minlength=_ARMS)
    return lmab.Sessions.from_arrays(np.concatenate(arms), np.concatenate(rewards), n_arms=_ARMS)


def _adaptive(case: str, truth: lmab.LatentBandit, types: Any, rng: np.random.Generator) -> lmab.Sessions:
    """A policy for a rough model of 300 sessions that are not in the log; greedy but for one step in ten."""
    pilot = lmab.simulate(truth, lmab.Uniform(_ARMS), n_sessions=300, horizon=_STEPS, rng=rng)
    rough = lmab.fit(pilot, n_types=_TYPES, method=lmab.EM(prior=2.0, restarts=4, threads=1), rng=rng).bandit
    policy: Any = lmab.Thompson(rough) if case == "Thompson" else lmab.Greedy(rough)
    state, arms, rewards = policy.start(len(types)), [], []
    for _ in range(_STEPS):
        chosen = np.asarray(policy.act(state, rng=rng) if case == "Thompson" else policy.act(state))
        if case == "greedy":
            chosen = np.where(rng.random(len(types)) < 0.1, rng.integers(_ARMS, size=len(types)), chosen)
        arms.append(chosen)
        rewards.append(truth.rewards.sample(types, chosen, rng=rng))
        state = policy.observe(state, chosen, rewards[-1])
    return lmab.Sessions.from_arrays(np.stack(arms, axis=1), np.stack(rewards, axis=1), n_arms=_ARMS)


def run(case: str, number: int) -> dict[str, Any]:
    """One log: what both fits promise and earn."""
    rng = np.random.default_rng([_SEED, number, *case.encode()])
    truth = lmab.LatentBandit.bernoulli(rng.dirichlet(np.full(_TYPES, 5.0)), rng.beta(2, 3, (_TYPES, _ARMS)))
    log = draw(case, truth, rng)
    method, seed = lmab.EM(tolerance=1e-6, threads=1), int(rng.integers(2**31))
    fits, seconds = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for selected in (False, "auto"):
            start = time.process_time()
            fits.append(
                lmab.fit(
                    log, n_types=_TYPES, values=[0.0, 1.0], method=method, selected=selected, check=False, rng=seed
                )
            )
            seconds.append(time.process_time() - start)
    today, ours = fits
    same = bool((today.bandit.means == ours.bandit.means).all() and (today.bandit.weights == ours.bandit.weights).all())
    row: dict[str, Any] = {"seed": _SEED, "case": case, "log": number, "same": same, "seconds": seconds}
    row["kind"] = None if ours.selection is None else ours.selection.kind
    if case in NULLS:
        return row
    best = lmab.plan(truth, horizon=_STEPS, repeats=case != "without repeats", time_limit=20.0).lower
    judged = [_judged(one.bandit, truth, best, case) for one in ((today,) if same else (today, ours))]
    return row | {"today": judged[0], "ours": judged[-1]}


def _judged(bandit: lmab.LatentBandit, truth: lmab.LatentBandit, best: float, case: str) -> list[float]:
    """What the plan for a fit promises beyond what it earns, and its share of the optimum."""
    plan = lmab.plan(bandit, horizon=_STEPS, repeats=case != "without repeats", time_limit=20.0)
    earned = lmab.evaluate(plan.policy, truth, horizon=_STEPS).mean
    return [plan.lower - earned, earned / best]


def tables(rows: list[dict[str, Any]]) -> str:
    """Both tables, as Markdown."""
    lines = [
        "| what the site knew | logs | used | promised - earned: without | with | share of the best: without | with |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in KNOWS:
        some = [row for row in rows if row["case"] == case]
        if some:
            today, ours = (np.array([row[key] for row in some]) for key in ("today", "ours"))
            used = sum(row["kind"] is not None for row in some)
            parts = [f"{_mean(one[:, 0], '+')}" for one in (today, ours)]
            parts += [f"{one[:, 1].mean():.3f}" for one in (today, ours)]
            lines.append(f"| {case} | {len(some)} | {used} | {' | '.join(parts)} |")
    lines += ["", "| nothing that the log does not show | logs | used | same bits |", "|---|---|---|---|"]
    for case in NULLS:
        some = [row for row in rows if row["case"] == case]
        used, same = sum(row["kind"] is not None for row in some), sum(row["same"] for row in some)
        lines.append(f"| {case} | {len(some)} | {used} | {same} |")
    return "\n".join(lines)


def _mean(numbers: Any, sign: str = "") -> str:
    return f"{numbers.mean():{sign}.3f} ± {numbers.std(ddof=1) / np.sqrt(len(numbers)):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=Path, default=ROWS, help="where the rows are kept")
    parser.add_argument("--table", action="store_true", help="make the tables of the rows and stop")
    parser.add_argument("cases", nargs="*", help="cases to do; by default, all")
    arguments = parser.parse_args()
    logs = KNOWS | NULLS
    chosen = [] if arguments.table else arguments.cases or list(logs)
    pairs = [(case, number) for number in range(max(logs.values())) for case in chosen if number < logs[case]]
    rows = stored.resumed(
        arguments.rows,
        {pair: pair for pair in pairs},
        lambda row: (row["case"], row["log"]),
        run,
        mine=lambda row: row["seed"] == _SEED,
    )
    text = tables(rows)
    print(text)
    before, _, rest = PAGE.read_text().partition(_MARKS[0])
    PAGE.write_text(f"{before}{_MARKS[0]}\n{text}\n{_MARKS[1]}{rest.partition(_MARKS[1])[2]}")


if __name__ == "__main__":
    main()
