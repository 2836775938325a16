"""Traits on real people and known truth: `python -m benchmarks.study_traits STUDY`, STUDY one of the below.

`jester` learns from halves of 7,200 people, of whom L jokes each were seen (see `examples/jester.py` for the data),
and plays greedily without repeats to the other halves: splits `default_rng(s).permutation(7200)`, jokes seen by
`default_rng(s + 1)`. `lists PATH` compares, over 30 other splits and people who differ in generosity alone, the list
that a fit has of its own with that of the mean rewards. `truth` knows the surface: three factors, 100 arms, 10 steps.
`ahead` compares looking one step ahead with being greedy where the model is the truth. `search PATH` compares the
certified planner with being greedy on people held out. `cost` measures processor seconds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import lmab
from lmab.estimation.traits.surface import Points

from . import rows as stored

HORIZONS = (5, 10, 20)
SPLITS = (0, 1, 2)
LABELS = {
    "jester": ("reward", "L"), "lists": ("people", "L"), "truth": ("sessions",), "ahead": ("H",), "search": ("reward",),
    "cost": ("log",),
}  # fmt: skip
OTHER_SPLITS = range(13, 43)  # than those that anything was chosen or reported on
SEEDS = (0, 1, 2, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=list(LABELS))
    parser.add_argument("path", type=Path, nargs="?", help="the ratings, for jester")
    parser.add_argument("--shown", nargs="+", type=int, default=[5, 10, 20, 50], help="jokes seen per person (L)")
    parser.add_argument("--splits", nargs="+", type=int, default=SPLITS)
    parser.add_argument("--store", action="store_true", help="keep the table in docs/benchmarks/rows.json")
    options = parser.parse_args()
    studies = {"jester": jester, "lists": lists, "truth": truth, "ahead": ahead, "search": search, "cost": cost}
    table = studies[options.study](options)
    if options.store:
        real = options.study in ("jester", "lists", "search")
        command = f"python -m benchmarks.study_traits {options.study}" + " PATH" * real
        rows = stored.of_table(table, LABELS[options.study])
        stored.store(f"traits_{options.study}", stored.measured(command, rows, {"": table}))


def printed(head: str, lines: Callable[[], Iterator[str]]) -> str:
    """A Markdown table, printed line by line as it grows."""
    table = [head, "|---" * (head.count("|") - 1) + "|"]
    print("\n".join(table), flush=True)
    for line in lines():
        print(line, flush=True)
        table.append(line)
    return "\n".join(table)


def told(bandit: lmab.LatentBandit, answers: np.ndarray, horizon: int) -> np.ndarray:
    """(N, H) what each session pays in each step when the arm of highest expected reward is played, none twice."""
    policy, rows = lmab.Greedy(bandit), np.arange(len(answers))
    state, left, paid = policy.start(len(answers)), np.ones(answers.shape, bool), np.empty((len(answers), horizon))
    for step in range(horizon):
        arms = policy.act(state, allowed=left)
        left[rows, arms] = False
        paid[:, step] = answers[rows, arms]
        state = policy.observe(state, arms, paid[:, step])
    return paid


def popularity(arms: np.ndarray, paid: np.ndarray, n_arms: int) -> np.ndarray:
    """Arms by their mean, with one pseudo-play of the average arm."""
    plays, sums = np.bincount(arms.ravel(), minlength=n_arms), np.bincount(arms.ravel(), paid.ravel(), n_arms)
    return np.argsort(-(sums + paid.mean()) / (plays + 1), kind="stable")


def logged(answers: np.ndarray, n_shown: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Of every session `n_shown` random arms, none twice, and what they paid."""
    arms = rng.random(answers.shape).argsort(axis=1)[:, :n_shown]
    return arms, np.take_along_axis(answers, arms, axis=1)


# -------------------------------------------------------------------------------- real people


def jester(options: argparse.Namespace) -> str:
    with np.load(options.path, allow_pickle=False) as arrays:
        ratings = arrays[arrays.files[0]] / 100

    def lines() -> Iterator[str]:
        for kind in "AB":
            for n_shown in options.shown:
                yield _cell(ratings, kind, n_shown, options.splits)

    gains = " | ".join(f"H = {horizon}" for horizon in HORIZONS)
    return printed(f"| reward | L | {gains} | factors alive | seconds a fit |", lines)


def lists(options: argparse.Namespace) -> str:
    """The list of a model of generosity alone, which corrects jokes for who saw them, less that of the mean rewards."""
    with np.load(options.path, allow_pickle=False) as arrays:
        liked = _liked(arrays[arrays.files[0]] / 100, "A")

    def lines() -> Iterator[str]:
        for n_people, n_shown in ((3600, 5), (500, 10)):
            more = np.array([_list_gain(liked, n_people, n_shown, split) for split in OTHER_SPLITS])
            errors = more.std(axis=0) / np.sqrt(len(more))
            cells = [f"{mean:+.3f} ± {error:.3f}" for mean, error in zip(more.mean(axis=0), errors, strict=True)]
            below = (more[:, -1] < 0).mean()
            yield f"| {n_people:,} | {n_shown} | {' | '.join(cells)} | {below:.0%} |"

    gains = " | ".join(f"H = {horizon}" for horizon in HORIZONS)
    return printed(f"| people | L | {gains} | splits below 0 at H = {HORIZONS[-1]} |", lines)


def _list_gain(liked: np.ndarray, n_people: int, n_shown: int, split: int) -> np.ndarray:
    order = np.random.default_rng(split).permutation(len(liked))
    test = liked[order[len(liked) // 2 :]].mean(axis=0)
    arms, paid = logged(liked[order[:n_people]], n_shown, np.random.default_rng(split + 1))
    log = lmab.Sessions.from_arrays(arms, paid, n_arms=liked.shape[1])
    method = lmab.Traits(n_factors=1, n_points=32, equal_loadings=True, threads=1)
    bandit = lmab.fit(log, method=method, rng=split).bandit
    own = np.argsort(-(bandit.weights @ bandit.means), kind="stable")
    return np.cumsum(test[own] - test[popularity(arms, paid, liked.shape[1])])[np.array(HORIZONS) - 1]


def search(options: argparse.Namespace) -> str:
    """Sessions of 20 jokes for 2,000 people of the first split, learned from 20 jokes each of the other half."""
    with np.load(options.path, allow_pickle=False) as arrays:
        ratings = arrays[arrays.files[0]] / 100

    def lines() -> Iterator[str]:
        for kind in "AB":
            train, test = np.split(_liked(ratings, kind)[np.random.default_rng(0).permutation(len(ratings))], 2)
            arms, paid = logged(train, 20, np.random.default_rng(1))
            log = lmab.Sessions.from_arrays(arms, paid, n_arms=ratings.shape[1])
            fit = lmab.fit(log, method=lmab.Traits(threads=1), rng=0)
            plan = lmab.plan(fit, horizon=20, repeats=False, method=lmab.Certified(), time_limit=25)
            people = test[:2000]
            more = _replayed(plan.policy, people, 20) - told(fit.bandit, people, 20).sum(axis=1)
            yield f"| {kind} | {more.mean():+.3f} ± {more.std() / np.sqrt(len(more)):.3f} |"

    return printed("| reward | certified, less greedy |", lines)


def _liked(ratings: np.ndarray, kind: str) -> np.ndarray:
    bar = 0.0 if kind == "A" else np.median(ratings, axis=1, keepdims=True)
    return (ratings > bar).astype(float)


def _replayed(policy: lmab.Policy, answers: np.ndarray, horizon: int) -> np.ndarray:
    """What each session pays in all under a policy that repeats nothing by itself."""
    state, total, everyone = policy.start(len(answers)), np.zeros(len(answers)), np.arange(len(answers))
    for _ in range(horizon):
        arms = np.asarray(policy.act(state))
        total += answers[everyone, arms]
        state = policy.observe(state, arms, answers[everyone, arms])
    return total


def _cell(ratings: np.ndarray, kind: str, n_shown: int, splits: tuple[int, ...]) -> str:
    """Gain over popularity, mean of the splits; its standard error is over people, who are in one half or the other."""
    liked = _liked(ratings, kind)
    gains, alive, seconds = [], [], []
    for split in splits:
        order = np.random.default_rng(split).permutation(len(ratings))
        train, test = np.split(liked[order], [len(ratings) // 2])
        arms, paid = logged(train, n_shown, np.random.default_rng(split + 1))
        log = lmab.Sessions.from_arrays(arms, paid, n_arms=liked.shape[1])
        start = time.process_time()
        fit = lmab.fit(log, method=lmab.Traits(threads=1), rng=split)
        seconds.append(time.process_time() - start)
        assert fit.factors is not None
        alive.append(fit.factors.n_alive)
        popular = popularity(arms, paid, liked.shape[1])[: max(HORIZONS)]
        gains.append(np.cumsum(told(fit.bandit, test, max(HORIZONS)) - test[:, popular], axis=1))
    cells = []
    for horizon in HORIZONS:
        per_split = [gain[:, horizon - 1] for gain in gains]
        mean = np.mean([gain.mean() for gain in per_split])
        error = np.mean([gain.std() / np.sqrt(len(gain)) for gain in per_split])
        cells.append(f"{mean:+.3f} ± {error:.3f}")
    return f"| {kind} | {n_shown} | {' | '.join(cells)} | {np.mean(alive):.1f} | {np.mean(seconds):.1f} |"


# -------------------------------------------------------------------------------- known truth


def truth(options: argparse.Namespace) -> str:
    """Three factors, 100 arms, 10 steps logged and played: the share of what the true surface gains over popularity."""
    sizes = (1000, 4000, 16_000)

    def lines() -> Iterator[str]:
        shares = np.array([_shares(seed, sizes) for seed in SEEDS])
        for place, size in enumerate(sizes):
            yield (
                f"| {size:,} | {shares[:, place].mean():.0%} | "
                + " | ".join(f"{x:.0%}" for x in shares[:, place])
                + " |"
            )

    head = " | ".join(f"seed {seed}" for seed in SEEDS)
    return printed(f"| sessions | share of the gain | {head} |", lines)


def ahead(options: argparse.Namespace) -> str:
    """People drawn from a surface of 256 types that the planner knows: nothing is wrong with the model."""
    rng = np.random.default_rng(0)
    points = Points.of(3, 256)
    chances = 1 / (1 + np.exp(-(rng.normal(0, 0.7, 100) + points.places @ rng.normal(0, 0.6, (3, 100)))))
    bandit = lmab.LatentBandit.bernoulli(points.weights, chances)
    types = rng.integers(256, size=1000)
    answers = (rng.random((1000, 100)) < bandit.means[types]).astype(float)

    def lines() -> Iterator[str]:
        for horizon in HORIZONS:
            earned = []
            for method in (lmab.QMDP(), lmab.planning.Lookahead()):
                policy = lmab.plan(bandit, horizon=horizon, method=method, repeats=False, time_limit=10).policy
                state, total, everyone = policy.start(1000), np.zeros(1000), np.arange(1000)
                for _ in range(horizon):
                    arms = np.asarray(policy.act(state))
                    total += bandit.means[types, arms]
                    state = policy.observe(state, arms, answers[everyone, arms])
                earned.append(total)
            more = earned[1] - earned[0]
            yield f"| {horizon} | {earned[0].mean():.3f} | {more.mean():+.3f} ± {more.std() / np.sqrt(1000):.3f} |"

    return printed("| H | greedy | one step ahead, less greedy |", lines)


def _shares(seed: int, sizes: tuple[int, ...], n_arms: int = 100, n_steps: int = 10) -> list[float]:
    rng = np.random.default_rng(seed)
    intercepts, loadings = rng.normal(0, 0.7, n_arms), rng.normal(0, 0.6, (n_arms, 3))

    def chances(factors: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-(intercepts + factors @ loadings.T)))

    def draw(n: int) -> np.ndarray:
        return (rng.random((n, n_arms)) < chances(rng.normal(size=(n, 3)))).astype(float)

    test = draw(4000)
    points = Points.of(3, 2048)
    surface = lmab.LatentBandit.bernoulli(points.weights, chances(points.places))
    marginal = np.argsort(-surface.weights @ surface.means)[:n_steps]
    base = test[:, marginal].sum(axis=1)
    best = (told(surface, test, n_steps).sum(axis=1) - base).mean()
    shares = []
    for size in sizes:
        arms, paid = logged(draw(size), n_steps, rng)
        fit = lmab.fit(lmab.Sessions.from_arrays(arms, paid, n_arms=n_arms), method=lmab.Traits(), rng=seed)
        shares.append(float((told(fit.bandit, test, n_steps).sum(axis=1) - base).mean() / best))
    return shares


# -------------------------------------------------------------------------------- cost


def cost(options: argparse.Namespace) -> str:
    """Processor seconds of one round and of a whole fit with 256 points, on one core."""

    def lines() -> Iterator[str]:
        for n_sessions, n_arms in ((50_000, 100), (100_000, 100), (100_000, 1000)):
            log = _log(n_sessions, n_arms)
            rounds: list[float] = []
            start = time.process_time()

            def watch(news: object, rounds: list[float] = rounds) -> None:
                rounds.append(time.process_time())

            fit = lmab.fit(log, method=lmab.Traits(n_points=256, threads=1), rng=0, progress=watch)
            whole = time.process_time() - start
            name = f"{n_sessions:,} sessions of 10 steps; {n_arms:,} arms"
            yield f"| {name} | {np.median(np.diff(rounds)[-15:]):.3f} | {whole:.2f} | {len(rounds)} | {fit.status} |"

    lmab.fit(_log(200, 5), method=lmab.Traits(n_points=16), rng=0)  # compiles
    return printed("| log | seconds a round | seconds in all | rounds | status |", lines)


def _log(n_sessions: int, n_arms: int) -> lmab.Sessions:
    rng = np.random.default_rng(0)
    intercepts, loadings = rng.normal(0, 0.7, n_arms), rng.normal(0, 0.6, (n_arms, 3))
    arms = rng.integers(n_arms, size=(n_sessions, 10))
    logits = intercepts[arms] + np.einsum("nd,nld->nl", rng.normal(size=(n_sessions, 3)), loadings[arms])
    return lmab.Sessions.from_arrays(arms, (rng.random(arms.shape) < 1 / (1 + np.exp(-logits))) * 1.0, n_arms=n_arms)


if __name__ == "__main__":
    main()
