"""What learners reach on random spherical instances, V / V genie with the certified planner for both.

`python tests/test_learning_study.py` prints the table of docs/learning.md; `make slow` checks it. Two numbers choose
other instances: `python tests/test_learning_study.py 100 200`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from seeds import generator

import lmab

NUMBERS = range(20)  # of the instances
LEARNERS: dict[str, Callable[[int], lmab.Learner]] = {
    "DirectMLE": lmab.DirectMLE,
    "EDMLE": lmab.EDMLE,
    "EDMLE literal": lambda n_contexts: lmab.EDMLE(n_contexts, pairs="first-two"),
    "Tensor": lmab.Tensor,
    "Tensor on pairs": lambda n_contexts: lmab.Tensor(n_contexts, method=lmab.TensorDecomposition(features="pairs")),
    "LUCRL": lmab.LUCRL,
    "UCB": lambda n_contexts: lmab.UCB(),
}
# contexts, arms, horizon, episodes, learner: least mean fraction of the genie (None: only shown)
CASES: dict[tuple[int, int, int, int, str], float | None] = {
    (4, 20, 5, 50_000, "DirectMLE"): 0.997,
    (4, 20, 5, 50_000, "EDMLE"): 0.988,
    (5, 50, 7, 2_000, "DirectMLE"): 0.945,
    (5, 50, 7, 10_000, "DirectMLE"): 0.98,
    (5, 50, 7, 10_000, "EDMLE"): 0.957,
    (7, 50, 7, 100_000, "DirectMLE"): 0.993,
    (7, 50, 7, 100_000, "EDMLE"): 0.987,
    (7, 50, 7, 100_000, "Tensor"): None,
    (7, 50, 7, 100_000, "Tensor on pairs"): None,
    (7, 50, 7, 100_000, "LUCRL"): None,
    (5, 50, 7, 4_000, "DirectMLE"): 0.97,
    (5, 50, 7, 60_000, "EDMLE literal"): None,
    (7, 50, 7, 100_000, "UCB"): None,
}


@cache
def instance(n_contexts: int, n_arms: int, horizon: int, number: int) -> tuple[lmab.LatentBandit, float]:
    """A bandit, and what the genie earns on it."""
    bandit = lmab.random_bandit(n_contexts, n_arms, rng=generator(2022, n_contexts, n_arms, number))
    return bandit, value(lmab.plan(bandit, horizon=horizon).policy, bandit, horizon)


def value(policy: lmab.Policy, bandit: lmab.LatentBandit, horizon: int) -> float:
    return lmab.evaluate(policy, bandit, horizon=horizon).mean


@cache
def fractions(
    n_contexts: int, n_arms: int, horizon: int, n_episodes: int, name: str, numbers: range = NUMBERS
) -> np.ndarray:
    """The learner's value as a fraction of the genie's, for every instance; sessions are shared between learners."""
    found = []
    for number in numbers:
        bandit, best = instance(n_contexts, n_arms, horizon, number)
        environment = lmab.Simulator(bandit, horizon=horizon, rng=generator(1, number))
        rng = generator(2, number)
        learned = lmab.learn(environment, LEARNERS[name](n_contexts), n_episodes=n_episodes, rng=rng)
        found.append(value(learned.policy, bandit, horizon) / best)
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case, least in CASES.items() if least is not None])
def test_fraction_of_the_genie(case):
    assert fractions(*case).mean() >= CASES[case]


@pytest.mark.slow
@pytest.mark.parametrize(("decomposition", "margin"), [("Tensor", 0.05), ("Tensor on pairs", 0.02)])
def test_maximum_likelihood_beats_decomposition_where_the_rank_is_low(decomposition, margin):
    setting = (7, 50, 7, 100_000)
    assert (fractions(*setting, "EDMLE") - fractions(*setting, decomposition)).mean() > margin


@pytest.mark.slow
def test_optimistic_play_keeps_up():
    setting = (7, 50, 7, 100_000)
    assert (fractions(*setting, "DirectMLE") - fractions(*setting, "LUCRL")).mean() < 0.03


@pytest.mark.slow
def test_fifteen_times_fewer_episodes_than_the_literal_recipe():
    assert fractions(5, 50, 7, 4_000, "DirectMLE").mean() >= 0.97 > fractions(5, 50, 7, 60_000, "EDMLE literal").mean()


if __name__ == "__main__":
    chosen = range(*map(int, sys.argv[1:])) if sys.argv[1:] else NUMBERS
    for case, least in CASES.items():
        found = fractions(*case, chosen)
        error = found.std(ddof=1) / np.sqrt(len(found))
        asked = "" if least is None else f"  (at least {least})"
        print("M{} A{} H{} N{} {}".format(*case), f"{found.mean():.4f} ± {error:.4f}{asked}", flush=True)
