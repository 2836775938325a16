"""What the fallback of a plan earns under masks, as part of what popularity earns: `Ranking` and the lists before it.

Three simulated logs whose arms differ in popularity but not by type, so that the check refuses types and the plan is
the fallback. At every step of 2,000 new sessions 15 arms are allowed, drawn at random. Rows are the part of the gain of
popularity over playing at random, and of its reward, that each policy earns; rewards are expected ones, without noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import lmab

from .rows import Rows

ALLOWED, SESSIONS = 15, 2_000


@dataclass(frozen=True)
class Site:
    """A log to be simulated: the mean reward of each arm is drawn from a beta distribution."""

    name: str
    n_arms: int
    horizon: int
    beta: tuple[float, float]
    n_sessions: int = 3_000


SITES = (
    Site("clicks on products", 60, 6, (1.5, 12.0)),
    Site("answers to questions", 28, 5, (4.0, 4.0)),
    Site("pages of a catalogue", 200, 8, (0.7, 10.0), 8_000),
)
Choose = Callable[[list[int], np.ndarray], int]  # the arms played so far and the mask -> the arm to play


def main() -> Rows:
    found: Rows = {}
    for site in SITES:
        for repeats in (False, True):
            found |= measure(site, repeats=repeats)
    for name, value in found.items():
        print(f"{name:60} {value:.4f}")
    return found


def measure(site: Site, *, repeats: bool, n_sessions: int = SESSIONS) -> Rows:
    """Measure the parts for one log."""
    rng = np.random.default_rng(0)
    truth = lmab.LatentBandit.bernoulli([1.0], rng.beta(*site.beta, size=(1, site.n_arms)))
    log = lmab.simulate(truth, lmab.Uniform(site.n_arms), n_sessions=site.n_sessions, horizon=site.horizon, rng=rng)
    estimate = lmab.fit(log, n_types=2, method=lmab.EM(restarts=2, prior="learned"), rng=0)
    made = lmab.plan(estimate, horizon=site.horizon, repeats=repeats)
    assert made.fixed, "the plan must be the fallback"
    means = estimate.bandit.weights @ estimate.bandit.means
    order = np.argsort(-means, kind="stable")
    chooses = {
        "ranking": lambda played, allowed: made.policy.act_on([(arm, None) for arm in played], allowed=allowed),
        "list before": lambda played, allowed: first_allowed(
            [*order[len(played) if not repeats else 0 : 1 if repeats else site.horizon], *range(site.n_arms)], allowed
        ),
        "popularity": lambda played, allowed: popularity(order, [] if repeats else played, allowed),
        "random": lambda played, allowed: int(rng.choice(np.flatnonzero(allowed))),
    }
    masks = [
        [np.isin(np.arange(site.n_arms), rng.choice(site.n_arms, ALLOWED, replace=False)) for _ in range(site.horizon)]
        for _ in range(n_sessions)
    ]
    earned = {name: sum(play(choose, session, truth.means[0]) for session in masks) for name, choose in chooses.items()}
    best, chance = earned["popularity"], earned["random"]
    label = f"{site.name}, {'with' if repeats else 'no'} repeats"
    return {
        f"{label}/{name}/{part}": value
        for name in ("ranking", "list before")
        for part, value in (
            ("of the gain", (earned[name] - chance) / (best - chance)),
            ("of the reward", earned[name] / best),
        )
    }


def play(choose: Choose, masks: list[np.ndarray], means: np.ndarray) -> float:
    """The expected reward of a session under these masks."""
    played: list[int] = []
    for allowed in masks:
        played.append(choose(played, allowed))
    return float(means[played].sum())


def first_allowed(order: list[int], allowed: np.ndarray) -> int:
    """The rule of the lists before: what is left of the list, then the arm of the lowest number."""
    return int(next(arm for arm in order if allowed[arm]))


def popularity(order: np.ndarray, played: list[int], allowed: np.ndarray) -> int:
    """The allowed arm with the highest mean that was not played."""
    fresh = [arm for arm in order if allowed[arm] and arm not in played]
    return int(fresh[0] if fresh else next(arm for arm in order if allowed[arm]))


if __name__ == "__main__":
    main()
