"""How often assessments hold on logs of many kinds: `python -m benchmarks.study_coverage [--logs 60] [cells ...]`.

Every row draws a fresh truth and a log, fits with the learned prior, plans, certifies, and compares the four intervals
with the truth; the assessment of version 0.1 (Laplace draws around two pseudo-plays) stands beside it on the first
logs of the older cells. Rows go to `docs/coverage/rows.jsonl` as they are done, and those already there are not done
again, so that the study can be stopped and continued. `--table` only makes the table, which goes to
`docs/assessment.md` too. Set OPENBLAS_NUM_THREADS=1: small matrices gain nothing from threads.
"""

from __future__ import annotations

import argparse
import textwrap
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import lmab
from lmab.evaluation.replanning import Replanner, laplace

from . import rows as stored

ROWS = Path(__file__).parent.parent / "docs" / "coverage" / "rows.jsonl"
PAGE = ROWS.parent.parent / "assessment.md"
README = PAGE.parent.parent / "README.md"
_CLAIMS = ("value", "optimum", "regret", "gain")
_MARKS = "<!-- coverage -->", "<!-- /coverage -->"
_BASELINE = 20  # logs of an older cell on which version 0.1's assessment stands beside
_HELD = 0.85  # share of the logs in which a claim must hold
_SEED, _LATER = 53_000, 59_000  # other seeds were used for tuning; the second one where a rule was changed after a run
_NEW = 79_000  # cells that joined with the law of arms and the tests of assumptions, or changed by them
_ONE = 83_000  # those of one type, whose claims were widened after a run with the seed before

_LEFT = 73_000  # cells of logs that say who left
_FRESH = _NEW, _ONE

Truth = Callable[[np.random.Generator, int, int], lmab.LatentBandit]


def _weights(rng: np.random.Generator, n_types: int) -> Any:
    return rng.dirichlet(np.full(n_types, 5.0))


def beta(first: float, second: float) -> Truth:
    return lambda rng, m, a: lmab.LatentBandit.bernoulli(_weights(rng, m), rng.beta(first, second, (m, a)))


def spherical(rng: np.random.Generator, m: int, a: int) -> lmab.LatentBandit:
    return lmab.random_bandit(m, a, rng=rng)


def hard(rng: np.random.Generator, m: int, a: int) -> lmab.LatentBandit:
    return lmab.random_bandit(m, a, kind="hard", rng=rng)


def sparse(rng: np.random.Generator, m: int, a: int) -> lmab.LatentBandit:
    return lmab.LatentBandit.bernoulli(_weights(rng, m), np.exp(rng.uniform(np.log(0.01), np.log(0.1), (m, a))))


def unequal(rng: np.random.Generator, m: int, a: int) -> lmab.LatentBandit:
    return lmab.LatentBandit.bernoulli(rng.dirichlet(np.full(m, 0.5)), rng.uniform(0.05, 0.95, (m, a)))


def independent(rng: np.random.Generator, m: int, a: int) -> lmab.LatentBandit:
    return lmab.LatentBandit.bernoulli(_weights(rng, m), rng.uniform(0.05, 0.95, (m, a)))


def probe(rng: np.random.Generator, m: int, a: int) -> lmab.LatentBandit:
    """Two worthless arms tell the types apart; each type has one good arm."""
    means = np.full((m, a), 0.3) + rng.uniform(-0.1, 0.1, a)
    means[:, :m] = np.where(np.eye(m, dtype=bool), 0.9, 0.1)
    bits = (np.arange(m)[:, None] >> np.arange(2)) & 1
    means[:, m : m + 2] = np.where(bits == 1, 0.25, 0.005)
    means[:, m + 2] = 0.36
    return lmab.LatentBandit.bernoulli(rng.dirichlet(np.full(m, 20.0)), means[:, rng.permutation(a)])


def three_values(rng: np.random.Generator, m: int, a: int) -> lmab.LatentBandit:
    return lmab.LatentBandit.categorical(_weights(rng, m), rng.dirichlet(np.full(3, 0.7), size=(m, a)), [0.0, 0.5, 1.0])


def normal(rng: np.random.Generator, m: int, a: int) -> lmab.LatentBandit:
    means = rng.normal(0, 0.5, a) + rng.normal(0, 0.7, (m, a))
    return lmab.LatentBandit.gaussian(_weights(rng, m), means, scale=1.0)


def five_bins(rng: np.random.Generator, m: int, a: int) -> lmab.LatentBandit:
    """Normal rewards as they are seen after a cut into five values."""
    drawn = normal(rng, m, a)
    from scipy.special import ndtr

    edges = np.array([-1.2, -0.4, 0.4, 1.2])
    below = ndtr(edges - drawn.means[:, :, None])
    ends = np.zeros((m, a, 1)), np.ones((m, a, 1))
    return lmab.LatentBandit.categorical(
        drawn.weights, np.diff(np.concatenate([ends[0], below, ends[1]], axis=2), axis=2), [-2.0, -0.8, 0.0, 0.8, 2.0]
    )


def alike(level: float, spread: float) -> Truth:
    """Clicks: arms differ by `spread` around `level`, and types do not differ at all."""

    def draw(rng: np.random.Generator, m: int, a: int) -> lmab.LatentBandit:
        means = level * np.exp(spread * rng.standard_normal(a) - spread**2 / 2)
        return lmab.LatentBandit.bernoulli([1.0], means[None])

    return draw


def copies(rng: np.random.Generator, m: int, a: int) -> lmab.LatentBandit:
    """Arms on two directions, a tenth of them exact copies of others, and one arm that is best for everybody."""
    likes, arms = rng.normal(0, 1, (m, 2)), rng.normal(0, 1, (a, 2))
    means = 1 / (1 + np.exp(0.6 - rng.normal(0, 0.5, a) - 0.9 * likes @ arms.T))
    pairs = rng.choice(a, 2 * max(a // 20, 1), replace=False).reshape(2, -1)
    means[:, pairs[0]] = means[:, pairs[1]]
    means[:, int(rng.integers(a))] = np.minimum(means.max(axis=1) + 0.02, 0.97)
    return lmab.LatentBandit.bernoulli(_weights(rng, m), means)


def continuous(rng: np.random.Generator, m: int, a: int) -> lmab.LatentBandit:
    """People who differ by degrees in two directions: `m` of them, all equally frequent."""
    people, arms = rng.normal(0, 1, (m, 2)), rng.normal(0, 1, (a, 2))
    return lmab.LatentBandit.bernoulli(np.full(m, 1 / m), 1 / (1 + np.exp(-rng.normal(0, 0.7, a) - people @ arms.T)))


def left(form: str) -> Truth:
    """People who leave: by reward, by type, by type and arm, or one type that hardly stays."""

    def draw(rng: np.random.Generator, m: int, a: int) -> lmab.LatentBandit:
        chances = np.empty((m, a, 2))
        if form == "reward":
            chances[:] = [0.3, 0.05]
        elif form == "type":
            chances[:] = rng.permutation(np.geomspace(0.02, 0.4, m))[:, None, None]
        elif form == "type and arm":
            chances[:] = rng.beta(0.6, 4.0, (m, a))[..., None]
        else:
            chances[:] = np.where(np.arange(m) == 0, 0.6, 0.05)[:, None, None]
        return lmab.LatentBandit.bernoulli(_weights(rng, m), rng.beta(2, 3, (m, a)), leaving=chances)

    return draw


@dataclass(frozen=True)
class Cell:
    """What is drawn and fitted."""

    truth: Truth
    n_types: int
    n_arms: int
    horizon: int
    n_sessions: int
    power: float = 0.0  # arms are logged in proportion to 1 / rank^power
    more: int | str = 0  # types fitted beyond those of the truth, or "auto"
    logger: str = "random"  # "ragged": of random lengths; "greedy", "thompson": chosen by what was seen; "rare"; ...
    strength: float = 3.0  # of a site that shows each type what it likes: chances go with exp(strength * mean)
    repeats: bool = True
    selected: bool | str = False  # whether types may explain which arms were shown
    warns: bool = False  # a failure counts as held where the assessment warned
    seed: int = _SEED


CELLS = {
    "uniform": Cell(beta(2, 3), 3, 60, 5, 2000),
    "1/rank": Cell(beta(2, 3), 3, 60, 5, 2000, 1.0),
    "1/rank^1.5": Cell(beta(2, 3), 3, 60, 5, 2000, 1.5),
    "N = 300": Cell(beta(2, 3), 3, 20, 5, 300),
    "N = 10,000, 1/rank^1.5": Cell(beta(2, 3), 3, 60, 5, 10_000, 1.5),
    "spherical": Cell(spherical, 5, 50, 7, 2000),
    "sparse .01 to .1": Cell(sparse, 4, 20, 7, 2000),
    "sparse Beta(1, 20), 1/rank": Cell(beta(1, 20), 3, 40, 5, 5000, 1.0),
    "one type": Cell(beta(2, 3), 1, 60, 5, 1000, 1.0),
    "unequal weights": Cell(unequal, 4, 20, 5, 2000),
    "three values": Cell(three_values, 3, 40, 5, 2000, 1.0, seed=_LATER),
    "five bins": Cell(five_bins, 3, 20, 4, 2000, seed=_LATER),
    "normal rewards": Cell(normal, 3, 20, 4, 2000),
    "ragged": Cell(beta(2, 3), 3, 40, 5, 2000, logger="ragged"),
    "greedy with 10% random": Cell(beta(2, 3), 3, 20, 5, 2000, logger="greedy", seed=_LATER),
    "Thompson": Cell(beta(2, 3), 3, 20, 5, 2000, logger="thompson", warns=True, seed=_LATER),
    "rare arms": Cell(beta(2, 3), 3, 40, 5, 2000, logger="rare"),
    "probe": Cell(probe, 4, 20, 5, 2000),
    "hard, N = 500": Cell(hard, 4, 20, 5, 500, seed=_NEW),
    "three types too many": Cell(beta(2, 3), 3, 40, 5, 2000, 1.0, more=3, warns=True),
    "one type too few": Cell(hard, 4, 20, 5, 2000, more=-1, warns=True),
    "auto": Cell(hard, 4, 20, 5, 2000, more="auto"),
    "without repeats": Cell(beta(2, 3), 3, 30, 4, 2000, 1.0, repeats=False),
    "alike .05, one type": Cell(alike(0.05, 0.0), 1, 46, 3, 4000, seed=_ONE),
    "alike .05, two types": Cell(alike(0.05, 0.0), 1, 46, 3, 4000, more=1, seed=_NEW),
    "clicks .05, one type": Cell(alike(0.05, 0.3), 1, 46, 3, 4000, seed=_ONE),
    "clicks .05, two types": Cell(alike(0.05, 0.3), 1, 46, 3, 4000, more=1, seed=_NEW),
    "clicks .005, one type": Cell(alike(0.005, 0.3), 1, 46, 3, 4000, seed=_ONE),
    "clicks .005, two types": Cell(alike(0.005, 0.3), 1, 46, 3, 4000, more=1, seed=_NEW),
    "segments": Cell(beta(2, 3), 3, 20, 5, 2000, logger="segments", warns=True, seed=_NEW),
    "mild segments": Cell(beta(2, 3), 3, 20, 5, 2000, logger="segments", strength=1.5, warns=True, seed=_NEW),
    "impatient": Cell(beta(2, 3), 3, 20, 5, 2000, logger="impatient", warns=True, seed=_NEW),
    "leave after 0": Cell(beta(2, 3), 3, 20, 5, 2000, logger="leave after 0", seed=_NEW),
    "left by reward": Cell(left("reward"), 3, 20, 5, 2000, warns=True, seed=_LEFT),
    "left by type": Cell(left("type"), 3, 20, 5, 2000, warns=True, seed=_LEFT),
    "left by type and arm": Cell(left("type and arm"), 3, 20, 5, 2000, warns=True, seed=_LEFT),
    "left by the impatient": Cell(left("impatient"), 3, 20, 5, 2000, warns=True, seed=_LEFT),
    "segments, explained": Cell(beta(2, 3), 3, 20, 5, 2000, logger="segments", selected="auto", seed=_LEFT),
    "mild segments, explained": Cell(
        beta(2, 3), 3, 20, 5, 2000, logger="segments", strength=1.5, selected="auto", seed=_LEFT
    ),
    "drift": Cell(beta(2, 3), 3, 20, 5, 2000, logger="drift", warns=True, seed=_NEW),
    "continuous people": Cell(continuous, 200, 20, 5, 2000, more=-196, warns=True, seed=_NEW),
    "copies, one dominating arm": Cell(copies, 3, 40, 5, 2000, seed=_NEW),
}


_LEAVE: dict[str, Callable[[Any, Any], Any]] = {  # the chance to leave after a reward, by type
    "leave after 0": lambda rewards, types: np.where(rewards > 0, 0.05, 0.5),
    "impatient": lambda rewards, types: np.where(types == 0, 0.6, 0.05) + 0 * rewards,
}


def people_to_come(cell: Cell, truth: lmab.LatentBandit, rng: np.random.Generator) -> lmab.LatentBandit:
    """Those whom claims are about: others than in the first half of the log, where shares of types drift."""
    if cell.logger != "drift":
        return truth
    return lmab.LatentBandit.bernoulli(rng.dirichlet(np.full(truth.n_types, 2.0)), truth.means)


def draw_log(
    cell: Cell, truth: lmab.LatentBandit, rng: np.random.Generator, later: lmab.LatentBandit | None = None
) -> lmab.Sessions:
    """A log of the cell's kind; its second half is of people like `later`."""
    n, steps, n_arms = cell.n_sessions, cell.horizon, cell.n_arms
    if truth.leaving is not None:
        return lmab.simulate(truth, lmab.Uniform(n_arms), n_sessions=n, horizon=steps, rng=rng)
    if cell.logger == "greedy":
        return _greedy(truth, n, steps, rng)
    if cell.logger == "thompson":
        return lmab.simulate(truth, lmab.Thompson(truth), n_sessions=n, horizon=steps, rng=rng)
    share = 1 / np.arange(1, n_arms + 1) ** cell.power
    if cell.logger == "rare":  # a quarter of the arms is played about twice
        share[-n_arms // 4 :] = 2 * share.sum() / (n * steps)
    if cell.repeats:
        arms = rng.choice(n_arms, (n, steps), p=share / share.sum())
    else:
        arms = np.argsort(rng.gumbel(size=(n, n_arms)) + np.log(share), axis=1)[:, ::-1][:, :steps]
    types = rng.choice(truth.n_types, n, p=truth.weights)
    if cell.logger == "segments":
        chances = np.exp(cell.strength * truth.means)
        below = np.cumsum(chances / chances.sum(axis=1, keepdims=True), axis=1)[types]
        arms = (below[:, None] > rng.random((n, steps, 1))).argmax(axis=2)
    if cell.logger == "drift" and later is not None:
        types[n // 2 :] = rng.choice(truth.n_types, n - n // 2, p=later.weights)
    rewards = truth.rewards.sample(np.repeat(types, steps), arms.ravel(), rng=rng).reshape(n, steps)
    if cell.logger in _LEAVE:
        gone = np.cumsum(rng.random(rewards.shape) < _LEAVE[cell.logger](rewards, types[:, None]), axis=1)
        gone = np.concatenate([np.zeros((n, 1), bool), gone[:, :-1] > 0], axis=1)
        return lmab.Sessions.from_arrays(np.where(gone, -1, arms), np.where(gone, 0.0, rewards), n_arms=n_arms)
    if cell.logger != "ragged":
        return lmab.Sessions.from_arrays(arms, rewards, n_arms=n_arms)
    keep = np.arange(steps) < rng.integers(1, steps + 1, n)[:, None]
    offsets = np.concatenate([[0], np.cumsum(keep.sum(axis=1))])
    return lmab.Sessions(arms[keep], rewards[keep], offsets, n_arms)


def _greedy(truth: lmab.LatentBandit, n: int, steps: int, rng: np.random.Generator) -> lmab.Sessions:
    """Sessions of a policy that knows the truth and is greedy, but for one step in ten."""
    policy = lmab.Greedy(truth)
    state, types, arms, rewards = policy.start(n), rng.choice(truth.n_types, n, p=truth.weights), [], []
    for _ in range(steps):
        chosen = np.where(rng.random(n) < 0.1, rng.integers(truth.n_arms, size=n), policy.act(state))
        arms.append(chosen)
        rewards.append(truth.rewards.sample(types, chosen, rng=rng))
        state = policy.observe(state, chosen, rewards[-1])
    return lmab.Sessions.from_arrays(np.stack(arms, axis=1), np.stack(rewards, axis=1), n_arms=truth.n_arms)


def run(name: str, log_number: int) -> dict[str, Any]:
    """One log: what the assessment said, and what is true."""
    cell = CELLS[name]
    rng = np.random.default_rng([cell.seed, log_number, *name.encode()])
    truth = cell.truth(rng, cell.n_types, cell.n_arms)
    later = people_to_come(cell, truth, rng)
    log, truth = draw_log(cell, truth, rng, later), later
    number = "auto" if cell.more == "auto" else max(cell.n_types + int(cell.more), 1)
    start = time.process_time()
    method = lmab.EM(prior="learned", tolerance=1e-6, threads=1)
    said = {"rewards": "gaussian"} if not truth.rewards.discrete else {"values": truth.rewards.values}
    estimate = lmab.fit(log, n_types=number, method=method, rng=rng, selected=cell.selected, check=False, **said)
    plan = lmab.plan(estimate.bandit, horizon=cell.horizon, repeats=cell.repeats, time_limit=2.0)
    assessment = lmab.assess(estimate, plan, log, rng=rng)
    seconds = time.process_time() - start
    best = lmab.plan(truth, horizon=cell.horizon, repeats=cell.repeats, time_limit=2.0)
    value, fixed = _value(plan, truth), truth.best_fixed(cell.horizon, cell.repeats)
    slack = 1e-9 if truth.rewards.discrete else 0.02  # of a value that is simulated
    row = {
        "seed": cell.seed,
        "cell": name,
        "log": log_number,
        "types": estimate.n_types,
        "share": value / best.lower,
        "promise": plan.lower / value,
        "value": _held(assessment.value, value, value),
        "optimum": _held(assessment.optimum, best.lower, best.upper),
        "regret": _held(assessment.regret, best.lower - value, np.inf),
        "gain": _held(assessment.gain, value - fixed - slack, value - fixed + slack),
        "width": _width(assessment.value),
        "widths": [_width(claim) for claim in (assessment.optimum, assessment.regret, assessment.gain)],
        "ends": [assessment.value, assessment.optimum, assessment.regret, assessment.gain],
        "true": [value, best.lower, fixed],
        "narrow": _narrow(assessment.draws),
        "told": dict(assessment.found).get("weak identification", (None,))[0],
        "warned": any(one.severity == "warning" for one in assessment.findings)
        or any(found.fires for found in assessment.assumptions.values()),
        "fires": [name for name, found in assessment.assumptions.items() if found.fires],
        "seconds": seconds,
    }
    older = cell.seed in (_SEED, _LATER) and log_number < _BASELINE
    return row | (_version_0_1(cell, truth, log, best, rng) if older else {})


def _held(claim: tuple[float, float] | None, low: float, high: float) -> bool | None:
    """Whether a claim meets what is true, which lies between `low` and `high`; None: it was refused."""
    return None if claim is None else bool(claim[0] <= high and claim[1] >= low)


def _width(claim: tuple[float, float] | None) -> float | None:
    return None if claim is None else claim[1] - claim[0]


def _narrow(draws: np.ndarray, n_draws: int = 100) -> list[tuple[float, float]]:
    """Value and gain as they would be claimed by the union of 90% ends, which is narrower than the rule in force."""
    sets = [draws[first : first + n_draws] for first in range(0, len(draws), n_draws)]
    claims = []
    for samples in ([drawn[:, 1] for drawn in sets], [drawn[:, 1] - drawn[:, 3] for drawn in sets]):
        ends = np.array([np.quantile(sample, [0.05, 0.95]) for sample in samples])
        claims.append((float(ends[:, 0].min()), float(ends[:, 1].max())))
    return claims


def _version_0_1(
    cell: Cell, truth: lmab.LatentBandit, log: lmab.Sessions, best: lmab.Plan, rng: np.random.Generator
) -> dict[str, Any]:
    """The assessment of version 0.1, where it had one."""
    if cell.more == "auto" or not truth.rewards.discrete:
        return {}
    method = lmab.EM(prior=2.0, tolerance=1e-6, threads=1)
    number = max(cell.n_types + int(cell.more), 1)
    estimate = lmab.fit(log, n_types=number, method=method, values=truth.rewards.values, rng=rng)
    plan = lmab.plan(estimate.bandit, horizon=cell.horizon, repeats=cell.repeats, time_limit=2.0)
    replanner = Replanner(estimate.bandit, plan, np.ones(cell.n_arms, bool))
    drawn = replanner.replan(*laplace(estimate.information()).draw(100, rng))
    value = _value(plan, truth)
    low, high = np.quantile(drawn.value, [0.025, 0.975])
    least, most = np.quantile(drawn.optimum, [0.025, 0.975])
    return {
        "old_share": value / best.lower,
        "old_value": bool(low <= value <= high),
        "old_optimum": bool(least <= best.upper and most + max(plan.upper - replanner.own, 0) >= best.lower),
        "old_width": float(high - low),
    }


def _value(plan: lmab.Plan, truth: lmab.LatentBandit) -> float:
    try:
        return lmab.evaluate(plan.policy, truth, horizon=plan.horizon).mean
    except (lmab.errors.TooLarge, lmab.errors.InvalidArgument):
        return lmab.evaluate(plan.policy, truth, horizon=plan.horizon, n_sessions=40_000, rng=1).mean


def table(rows: list[dict[str, Any]]) -> str:
    """Coverage per cell and over all cells, as Markdown."""
    groups = _by_cell(rows)
    lines = [
        "| cell | logs | value | optimum | regret | gain | warned | all held, or warned | their widths | share of the optimum | 0.1: value, optimum | 0.1: width, share | seconds |",  # noqa: E501
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    shown = [(name, groups[name]) for name in CELLS if groups[name]]
    for name, some in shown:
        lines.append(f"| {name} | {len(some)} | {_cells(some)} |")
    held = np.array([[_mean(some, key) for key in _CLAIMS] for _, some in shown])
    means = " | ".join(f"{share:.2f}" for share in np.nanmean(held, axis=0))  # not of claims that were all refused
    lines.append(f"| **mean over the cells** | | {means} | |" + " |" * 7)
    return "\n".join(lines)


def sentence(rows: list[dict[str, Any]]) -> str:
    """Return the sentences of README: coverage on the new cells and on the older ones, and how often tests fired."""
    groups, tests = (
        _by_cell(rows),
        {"segments": "shown", "impatient": "leaving", "drift": "drift"},
    )  # as stored rows name it
    plain = [name for name, cell in CELLS.items() if groups[name] and not (cell.seed in _FRESH and cell.warns)]
    new = [name for name in plain if CELLS[name].seed in _FRESH]
    old = [name for name in plain if CELLS[name].seed in (_SEED, _LATER)]
    held = {name: [_mean(groups[name], claim) for claim in _CLAIMS] for name in plain}
    counts = [len(groups[name]) for name in new]
    shares = [float(np.mean([held[name] for name in some])) for some in (new, old)]
    shares.insert(0, min(min(held[name]) for name in new))
    least, average, before = (f"{100 * share:.0f}%" for share in shares)
    fired = ", ".join(
        f"{sum(test in row['fires'] for row in groups[name])} of {len(groups[name])} logs of *{name}*"
        for name, test in tests.items()
    )
    quiet = [row for name in new for row in groups[name] if row["told"] is not None]  # one type is not tested
    false = sum(bool(row["fires"]) for row in quiet)
    return (
        f"on {_range(counts)} simulated logs of each of {len(new)} kinds, the four 90% intervals of an assessment "
        f"cover the true values in {average} of the cases on average, and in at least {least} for every interval and "
        f"kind; on 60 logs of each of {len(old)} older kinds in {before}. Four assumptions (exposure, attrition, "
        f"drift, effect of the step) are tested on the log, and claims that it contradicts are refused; others are not "
        f"tested. In this study, which was run before the test of the step was added, tests fired in {fired}, and "
        f"falsely in {false} of {len(quiet)} other logs"
    )


def _range(counts: list[int]) -> str:
    """How many logs, where kinds may have different numbers of them."""
    return f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


def _by_cell(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups = defaultdict(list)
    for row in rows:
        groups[row["cell"]].append(row)
    return groups


def beside(rows: list[dict[str, Any]]) -> str:
    """How wide the value's interval is beside that of version 0.1 on the same logs, where the latter held."""
    groups = _by_cell([row for row in rows if "old_width" in row])
    held = [name for name in CELLS if groups[name] and _mean(groups[name], "old_value") >= _HELD]
    both = [name for name in held if _mean(groups[name], "old_optimum") >= _HELD]
    ratios = {name: _mean(groups[name], "width") / _mean(groups[name], "old_width") for name in held}
    lines = [f"| cells where 0.1 held in at least {_HELD} | its width is multiplied by |", "|---|---|"]
    lines += [f"| {name} | {ratios[name]:.2f} |" for name in held]
    for label, names in (("its value", held), ("its value and its optimum", both)):
        lines.append(f"| **mean where it held {label}** | {np.mean([ratios[name] for name in names]):.2f} |")
    return "\n".join(lines)


def promises(rows: list[dict[str, Any]]) -> str:
    """What plans promise over what they earn where arms are alike, and how often narrower claims would have held."""
    groups = _by_cell([row for row in rows if row["seed"] in _FRESH])
    lines = ["| arms that are alike | logs | promise / truth | its standard error |", "|---|---|---|---|"]
    for name in groups:
        if name.startswith(("alike", "clicks")):
            ratios = np.array([row["promise"] for row in groups[name]])
            error = ratios.std() / np.sqrt(len(ratios))
            lines.append(f"| {name} | {len(ratios)} | {ratios.mean():.2f} | {error:.2f} |")
    covered = [groups[name] for name in groups if not CELLS[name].warns]
    held = np.array([np.mean([_narrow_held(row) for row in some], axis=0) for some in covered])
    (value, gain), (least_value, least_gain) = held.mean(axis=0), held.min(axis=0)
    said = (
        f"The union of 90% ends, instead of 95%, would have held the value in {value:.2f} and the gain in {gain:.2f} "
        f"of the logs of covered new cells, and in {least_value:.2f} and {least_gain:.2f} in the worst of these cells: "
        "too rarely, so the ends stay."
    )
    return "\n".join([*lines, "", textwrap.fill(said, 120)])


def shorter(rows: list[dict[str, Any]]) -> str:
    """How long the bounds on the regret are where most arms are rare, and how often shorter ones would have held."""
    groups = _by_cell([row for row in rows if row["regret"] is not None])
    tails = [name for name in groups if CELLS[name].power >= 1 and not CELLS[name].warns and len(groups[name]) > 1]
    bound, lost = (np.concatenate([_regrets(groups[name])[which] for name in tails]) for which in (0, 1))
    all_cells = [name for name in groups if not CELLS[name].warns]
    ends = []
    for part in (0.65, 0.5):
        held = {name: float(np.mean(part * _regrets(groups[name])[0] >= _regrets(groups[name])[1])) for name in groups}
        tail, other = min(tails, key=held.__getitem__), min(all_cells, key=held.__getitem__)
        ends.append(f"{part:.0%} of it in {held[tail]:.2f} of the logs (*{tail}*) and in {held[other]:.2f} (*{other}*)")
    said = (
        f"Where arms are logged by 1/rank, the bound exceeds the regret by a factor of {bound.mean() / lost.mean():.1f}"
        f" on average. Shorter bounds would have held as follows in the worst of these cells, and in the worst "
        f"of all covered cells: {'; '.join(ends)}. That is too rarely, so the bound stays. Most of its length is "
        "the log's own doubt, and the rest is needed where types are hard to tell apart."
    )
    return textwrap.fill(said, 120)


def _regrets(rows: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Bounds on the regret, and the regrets."""
    return np.array([row["ends"][2][1] for row in rows]), np.array([row["true"][1] - row["true"][0] for row in rows])


def _narrow_held(row: dict[str, Any]) -> tuple[bool, bool]:
    (low, high), (least, most) = row["narrow"]
    value, _, fixed = row["true"]
    return low <= value <= high, least <= value - fixed <= most


def _mean(rows: list[dict[str, Any]], key: str) -> float:
    return _average([row.get(key) for row in rows])


def _average(found: list[float | None]) -> float:
    """The mean of those that are there; not a number where none is."""
    there = [one for one in found if one is not None]
    return float(np.mean(there)) if there else float("nan")


def _cells(rows: list[dict[str, Any]]) -> str:
    held = [f"{_mean(rows, key):.2f}" for key in (*_CLAIMS, "warned")]
    honest = np.mean([row["warned"] or all(row[key] is not False for key in _CLAIMS) for row in rows])
    held.append(f"{honest:.2f}")
    old = f"{_mean(rows, 'old_value'):.2f}, {_mean(rows, 'old_optimum'):.2f}"
    was = f"{_mean(rows, 'old_width'):.2f}, {_mean(rows, 'old_share'):.3f}"
    widths = [_average([[row["width"], *row["widths"]][place] for row in rows]) for place in range(len(_CLAIMS))]
    own = [", ".join(f"{width:.2f}" for width in widths), f"{_mean(rows, 'share'):.3f}"]
    return " | ".join([*held, *own, old, was, f"{np.median([row['seconds'] for row in rows]):.1f}"])


def _quietly(name: str, log_number: int) -> dict[str, Any]:
    """`run`, without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run(name, log_number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=60, help="logs per cell")
    parser.add_argument("--rows", type=Path, default=ROWS, help="where the rows are kept")
    parser.add_argument("--table", action="store_true", help="make the table of the rows and stop")
    parser.add_argument("cells", nargs="*", help="cells to do; by default, all")
    arguments = parser.parse_args()
    pairs = [
        (name, log) for log in range(0 if arguments.table else arguments.logs) for name in arguments.cells or CELLS
    ]
    rows = stored.resumed(
        arguments.rows,
        {pair: pair for pair in pairs},
        lambda row: (row["cell"], row["log"]),
        _quietly,
        mine=mine,
    )
    print(page_of(rows).strip())
    _write(PAGE, page_of(rows))
    _write(README, readme_of(rows))


def _write(page: Path, text: str) -> None:
    """Put a text between the marks of a page."""
    before, _, rest = page.read_text().partition(_MARKS[0])
    page.write_text(f"{before}{_MARKS[0]}{text}{_MARKS[1]}{rest.partition(_MARKS[1])[2]}")


def page_of(rows: list[dict[str, Any]]) -> str:
    """The tables of the page about assessments."""
    return f"\n{table(rows)}\n\n{beside(rows)}\n\n{promises(rows)}\n\n{shorter(rows)}\n"


def mine(row: dict[str, Any]) -> bool:
    """Whether a row is of the study as it is; others belong to an earlier one."""
    return bool(row["seed"] == CELLS[row["cell"]].seed)


def readme_of(rows: list[dict[str, Any]]) -> str:
    """The sentence as it stands in the README."""
    return "\n" + textwrap.fill(sentence(rows), 118, initial_indent="  ", subsequent_indent="  ")


if __name__ == "__main__":
    main()
