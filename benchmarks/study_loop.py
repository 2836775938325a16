"""A hundred nightly loops on made-up people: does what is in force ever fall behind, and for how long?

    python -m benchmarks.study_loop --loops 100 --store

Thirty nights with fits, plans and the canary's rule, without server and store. Weekdays pay differently, and the shares
of the types drift. On night 8 an arm is opened that is the best for one type. On night 16 somebody gives a share of the
sessions to a plan that earns about 10% less. No assessment keeps a plan away, so the canary is the only test. Rows go
to `docs/benchmarks/loops.jsonl` as they are done; the picture of the docs is drawn from there.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import lmab
from lmab._html import Frame, Markup, element, line
from lmab.evaluation.sequential import HARM, GainBounds, StratifiedEvidence, Stratum, bounds, sessions_needed
from lmab.paper.experiment.store import Lines
from lmab.policies.exploration import YOUNG, floors
from lmab.policies.policy import Policy
from lmab.policies.wrappers import Relabelled
from lmab.serve.canary import END, FEWEST, MARGIN, SAME, SHARES, WAIT, next_share, verdict

from . import rows as stored

ROWS = Path(__file__).parent.parent / "docs" / "benchmarks" / "loops.jsonl"
NIGHTS, PER_NIGHT, HORIZON, ARMS = 30, 600, 4, 5
OPENED, BAD = 8, 16  # the nights of the new arm and of the bad plan
_WEEK = (1.0, 0.95, 0.9, 0.95, 1.1, 1.2, 1.15)  # what a day pays, beside the average
_FLOOR = 0.1  # share of the decisions that explore
_RECENT = 4000  # sessions that say what to expect of a test
_RELIES = 0.01  # part of its plays from which on a plan relies on an arm


@dataclass(frozen=True, eq=False)
class People:
    """Two types; the second becomes as frequent as the first was."""

    means: Any  # (2, ARMS)

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> People:
        means = np.clip(rng.beta(2.0, 3.0, (2, ARMS)), 0.05, 0.65)
        means[:, ARMS - 1] = [means[0, : ARMS - 1].max() + 0.15, 0.1]  # opened later, the best for the first type
        return cls(means)

    def on(self, night: int) -> lmab.LatentBandit:
        """Who comes on a night, and what they like that day."""
        first = 0.65 - 0.3 * night / NIGHTS
        return lmab.LatentBandit.bernoulli([first, 1 - first], self.means * _WEEK[night % 7])


def value(policy: Policy | None, bandit: lmab.LatentBandit, n_arms: int) -> float:
    """What a session earns in truth, without exploration."""
    if policy is None:
        return HORIZON * float((bandit.weights @ bandit.means)[:n_arms].mean())
    return float(lmab.evaluation.value_of(policy, with_first(bandit, n_arms), horizon=HORIZON, rng=0).mean)


def played(policy: Policy | None, bandit: lmab.LatentBandit, shares: Any, n: int, rng: np.random.Generator) -> Any:
    """Arms and rewards of n sessions; `shares` says how often each arm is explored."""
    n_arms, types = len(shares), rng.choice(2, n, p=bandit.weights)
    total = shares.sum() if policy is not None else 1.0
    arms, rewards = np.zeros((n, HORIZON), int), np.zeros((n, HORIZON))
    state = None if policy is None else policy.start(n)
    for step in range(HORIZON):
        best = np.zeros(n, int) if policy is None or state is None else np.asarray(policy.act(state))
        spread = np.full(n_arms, 1 / n_arms) if policy is None else shares / total
        arms[:, step] = np.where(rng.random(n) < total, rng.choice(n_arms, n, p=spread), best)
        rewards[:, step] = rng.random(n) < bandit.means[types, arms[:, step]]
        if policy is not None and state is not None:
            state = policy.observe(state, arms[:, step], rewards[:, step])
    return arms, rewards


def counted(arms: Any, rewards: Any, one: Policy, other: Policy | None) -> Any:
    """What sessions earned from the step on at which the plans differ; only those in which they do."""
    if other is None:
        return rewards.sum(axis=1)
    n = len(arms)
    states, agreed, total = [one.start(n), other.start(n)], np.ones(n, bool), np.zeros(n)
    for step in range(HORIZON):
        agreed &= np.asarray(one.act(states[0])) == np.asarray(other.act(states[1]))
        total += np.where(agreed, 0.0, rewards[:, step])
        states = [
            each.observe(state, arms[:, step], rewards[:, step])
            for each, state in zip((one, other), states, strict=True)
        ]
    return total[~agreed]


def bad_plan(people: People, n_arms: int, force: float, rng: np.random.Generator) -> Policy:
    """Of some plans for people who do not exist, the one that earns nearest to 90% of what is earned now."""
    found: list[tuple[float, int, Policy]] = []
    for _ in range(8):
        wrong = lmab.LatentBandit.bernoulli(
            [0.5, 0.5], np.clip(people.means[:, :n_arms] + rng.normal(0, 0.25, (2, n_arms)), 0, 1)
        )
        policy = lmab.plan(wrong, horizon=HORIZON, method=lmab.Exact()).policy
        found.append((abs(value(policy, people.on(BAD), n_arms) / force - 0.9), len(found), policy))
    return min(found)[2]


@dataclass
class Test:
    """A canary and what its sessions showed so far."""

    policy: Policy
    number: int
    n_arms: int  # that it knows
    differ: float
    mean: float
    variance: float
    whole: float  # reward of a session
    share: float = SHARES[0]
    nights: int = 0
    seen: StratifiedEvidence = field(default_factory=StratifiedEvidence)

    def needed(self, gain: float) -> float:
        """Nights at the first share after which 9 of 10 tests see this difference; the rule ends them all at last."""
        each = abs(gain) / self.differ
        if not each > 0:
            return float(END)
        found = sessions_needed(each, self.mean, self.variance, share=SHARES[0], alpha=HARM, power=0.9)
        return min(float(np.ceil(found / self.differ / PER_NIGHT)), float(END))

    def look(self, new: Any, old: Any) -> int:
        """Another night: what the counted sessions of both earned; the verdict."""
        self.seen, self.nights = self.seen.add(Stratum.of(new, old)), self.nights + 1
        found = GainBounds(*(float(one) * self.differ for one in bounds(self.seen, self.mean, self.variance)))
        self.share = float(next_share(self.share, self.nights, found.gain))
        return int(verdict(found, self.nights, MARGIN * self.whole))


@dataclass
class Loop:
    """A service and its nights."""

    people: People
    rng: np.random.Generator
    force: Policy | None = None
    test: Test | None = None
    number: int = 0  # of canaries so far
    arms: Any = field(default_factory=lambda: np.zeros((0, HORIZON), int))
    rewards: Any = field(default_factory=lambda: np.zeros((0, HORIZON)))
    model: lmab.LatentBandit | None = None

    def night(self, night: int) -> list[Any]:
        """Play, look at the canary, and plan anew where none is tested; what was true that night."""
        n_arms, bandit = (ARMS if night >= OPENED else ARMS - 1), self.people.on(night)
        for version in (self.force, None if self.test is None else self.test.policy):
            if version is not None and version.n_arms != n_arms:
                self._open_arms(n_arms)
        earned = value(self.force, bandit, n_arms)
        if night == BAD:
            self._begin(bad_plan(self.people, n_arms, earned, self.rng), n_arms)
        test = self.test
        best = lmab.plan(with_first(bandit, n_arms), horizon=HORIZON, method=lmab.Exact()).lower
        row = [earned / best, 0.0, 0, 0.0, "", 0.0]
        if test is not None:
            gets = value(test.policy, bandit, n_arms)
            row = [earned / best, gets / best, test.number, test.share, "", test.needed(gets - earned)]
        self._play(bandit, n_arms)
        row[4] = self._look(n_arms) if test is not None else ""
        if self.test is None:
            row[4] = row[4] or "kept"
            self._plan(n_arms)
        return [round(one, 5) if isinstance(one, float) else one for one in row]

    def _open_arms(self, n_arms: int) -> None:
        """The versions go on without the arms that they do not know."""
        if self.force is not None:
            self.force = Relabelled(self.force, range(n_arms))
        if self.test is not None:
            self.test.policy = Relabelled(self.test.policy, range(n_arms))

    def _play(self, bandit: lmab.LatentBandit, n_arms: int) -> None:
        plays = np.bincount(self.arms.ravel(), minlength=n_arms)
        shares = np.asarray(floors(plays.tolist(), _FLOOR, 2))
        n_new = 0 if self.test is None else int(self.rng.binomial(PER_NIGHT, self.test.share))
        new = played(None if self.test is None else self.test.policy, bandit, shares, n_new, self.rng)
        old = played(self.force, bandit, shares, PER_NIGHT - n_new, self.rng)
        self.tonight = new, old
        self.arms = np.concatenate([self.arms, new[0], old[0]])
        self.rewards = np.concatenate([self.rewards, new[1], old[1]])

    def _look(self, n_arms: int) -> str:
        test = self.test
        assert test is not None
        new, old = (counted(arms, rewards, test.policy, self.force) for arms, rewards in self.tonight)
        said = test.look(new, old)
        plays = np.bincount(self.arms.ravel(), minlength=n_arms)
        if said == WAIT and not (plays[test.n_arms :] >= 2 * YOUNG).any():
            return "waits"
        self.force, self.test = (test.policy if said > 0 else self.force), None
        return "promoted" if said > 0 else "withdrawn"

    def _plan(self, n_arms: int) -> None:
        log = lmab.Sessions.from_arrays(self.arms, self.rewards, n_arms=n_arms)
        start = self.model if self.model is not None and self.model.n_arms == n_arms else None
        method = lmab.EM(prior=1.0, restarts=3)
        self.model = lmab.fit(log, n_types=2, method=method, start=start, check=False, rng=self.rng).bandit
        policy = lmab.plan(self.model, horizon=HORIZON, method=lmab.Exact()).policy
        young = np.bincount(log.arms, minlength=n_arms) < 2 * YOUNG
        tried = lmab.simulate(self.model, policy, n_sessions=500, horizon=HORIZON, rng=self.rng)
        if (np.bincount(tried.arms, minlength=n_arms) / tried.n_steps)[young].max(initial=0.0) <= _RELIES:
            self._begin(policy, n_arms)

    def _begin(self, policy: Policy, n_arms: int) -> None:
        """Test a plan, unless it plays what the version in force plays."""
        arms, rewards = self.arms[-_RECENT:], self.rewards[-_RECENT:]
        found = counted(arms, rewards, policy, self.force)
        if len(found) >= max(SAME * len(arms), FEWEST):
            self.number += 1
            about = float(found.mean()), float(found.var()) or 1e-6, float(rewards.sum(axis=1).mean())
            self.test = Test(policy, self.number, n_arms, len(found) / len(arms), *about)


def with_first(bandit: lmab.LatentBandit, n_arms: int) -> lmab.LatentBandit:
    """The bandit with its first arms alone."""
    return lmab.LatentBandit.bernoulli(bandit.weights, bandit.means[:, :n_arms])


def loop(seed: int) -> dict[str, Any]:
    """One loop. A night is what the version in force and the canary earn, as parts of the optimum of that night, the
    number and share of the canary, what was decided, and the nights that its difference needs at the first share."""
    rng = np.random.default_rng([33, seed])
    one = Loop(People.drawn(rng), rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {"seed": seed, "nights": [one.night(night) for night in range(NIGHTS)]}


def runs(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every canary of the loops: how long it ran, what it earned beside the version in force, and how it ended."""
    found: list[dict[str, Any]] = []
    for row in rows:
        last = 0
        for night, (force, canary, number, _, outcome, needed) in enumerate(row["nights"]):
            if number and number != last:
                found.append({"seed": row["seed"], "began": night, "gains": [], "outcome": "", "needed": needed})
            if number:
                found[-1]["gains"].append((canary - force) / force)
                found[-1]["outcome"] = outcome
            last = number
    return found


def summary(rows: list[dict[str, Any]]) -> stored.Rows:
    """What the loops show; shares are of the optimum of each night unless another thing is named."""
    nights = np.array([[night[0] for night in row["nights"]] for row in rows])
    mixed = np.array([[1 + n[3] * (n[1] - n[0]) / n[0] if n[2] else 1.0 for n in row["nights"]] for row in rows])
    canaries = runs(rows)
    ends = {name: [one for one in canaries if one["outcome"] == name] for name in ("promoted", "withdrawn")}
    gains = [float(np.mean(one["gains"])) for one in ends["promoted"]]
    bad = [one for one in canaries if one["began"] == BAD]
    gone = [len(one["gains"]) for one in bad if one["outcome"] == "withdrawn"]
    worse = [one for one in canaries if np.mean(one["gains"]) < -MARGIN]
    longer = [one for one in worse if len(one["gains"]) > one["needed"]]
    return {
        "loops": float(len(rows)),
        "canaries": float(len(canaries)),
        "promoted": float(len(gains)),
        "promoted-worse-by-2%": float(sum(gain < -MARGIN for gain in gains)),
        "promoted-worst-gain": float(min(gains, default=0.0)),
        "night-2-mean": float(nights[:, 1].mean()),
        "before-new-arm": float(nights[:, OPENED - 1].mean()),
        "new-arm": float(nights[:, OPENED].mean()),
        "last-night-mean": float(nights[:, -1].mean()),
        "last-night-worst": float(nights[:, -1].min()),
        "bad-plans": float(len(bad)),
        "bad-promoted": float(sum(one["outcome"] == "promoted" for one in bad)),
        "bad-withdrawn": float(len(gone)),
        "bad-nights": float(np.median([len(one["gains"]) for one in bad])),
        "worse": float(len(worse)),
        "worse-promoted": float(sum(one["outcome"] == "promoted" for one in worse)),
        "worse-longer-than-needed": float(len(longer)),
        "worse-longest": float(max((len(one["gains"]) for one in worse), default=0)),
        "sessions-below-2%": float((mixed < 1 - MARGIN).mean()),
        "lost-to-canaries": float(np.maximum(1 - mixed, 0).mean()),
    }


_STYLE = """
.chart { color: #1b2230; } .chart .band { fill: #2563a8; opacity: 0.15; stroke: none; }
.chart .one { stroke: #b5572a; stroke-width: 1; fill: none; opacity: 0.6; }
@media (prefers-color-scheme: dark) { .chart { color: #e6e9ef; } }
"""


def picture(rows: list[dict[str, Any]]) -> str:
    """What the version in force earns, night by night: the mean of the loops, their middle 80%, and the worst loop."""
    nights = np.array([[night[0] for night in row["nights"]] for row in rows])
    across = np.arange(1.0, NIGHTS + 1)
    low, high = np.quantile(nights, [0.1, 0.9], axis=0)
    frame = Frame.around(across, np.array([min(0.5, float(nights.min())), 1.0]))
    corners = [frame.at(x, y) for x, y in [*zip(across, high, strict=True), *zip(across[::-1], low[::-1], strict=True)]]
    worst = nights[nights[:, OPENED + 4 :].mean(axis=1).argmin()]
    marks = [
        element("style", Markup(_STYLE)),
        element("polygon", class_="band", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in corners)),
        line(frame, across.tolist(), worst.tolist(), "one"),
        line(frame, across.tolist(), nights.mean(axis=0).tolist()),
    ]
    title = f"{len(rows)} loops: the mean, the middle 80%, and the loop that earned least after the arm was opened"
    label = "part of what is possible that night"
    return str(frame.draw(title, "night", label, *marks, integers=True, standalone=True)) + "\n"


def drawn(_: Any) -> str:
    """The picture of the stored loops."""
    return picture(Lines(ROWS).records())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loops", type=int, default=100)
    parser.add_argument("--rows", type=Path, default=ROWS, help="where the rows are kept")
    parser.add_argument("--store", action="store_true", help="keep the sums in docs/benchmarks/rows.json")
    given = parser.parse_args()
    wanted = {seed: (seed,) for seed in range(given.loops)}
    rows = stored.resumed(given.rows, wanted, lambda row: row["seed"], loop)
    found = summary(rows)
    for name, value in found.items():
        print(f"{name:24s} {value:10.4f}")
    if given.store:
        stored.store("study_loop", stored.measured(f"python -m benchmarks.study_loop --loops {given.loops}", found))


if __name__ == "__main__":
    main()
