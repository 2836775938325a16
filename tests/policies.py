"""One example of every policy class, by class, for the contract tests. A class without one fails the tests."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import lmab
from lmab import LatentBandit, Policy
from lmab.learning import HistoryPolicy, OptimisticPolicy

Maker = Callable[[LatentBandit, int], Policy]

EXAMPLES: dict[str, Maker] = {
    "Uniform": lambda bandit, horizon: lmab.Uniform(bandit.n_arms),
    "FixedSequence": lambda bandit, horizon: lmab.FixedSequence([t % bandit.n_arms for t in range(horizon)]),
    "Stationary": lambda bandit, horizon: lmab.Stationary(1),
    "Greedy": lambda bandit, horizon: lmab.Greedy(bandit),
    "Thompson": lambda bandit, horizon: lmab.Thompson(bandit),
    "MUCB": lambda bandit, horizon: lmab.MUCB(bandit),
    "VectorPolicy": lambda bandit, horizon: lmab.plan(bandit, horizon=horizon).policy,
    "LookaheadPolicy": lambda bandit, horizon: lmab.plan(bandit, horizon=horizon, method=lmab.Lookahead(2)).policy,
    "ExactPolicy": lambda bandit, horizon: lmab.plan(bandit, horizon=horizon, method=lmab.Exact()).policy,
    "PolicyGraph": lambda bandit, horizon: lmab.plan(bandit, horizon=horizon).policy.graph(),
    "NoRepeatsPolicy": lambda bandit, horizon: (
        lmab.plan(bandit, horizon=horizon, method=lmab.Lookahead(2), repeats=False).policy
    ),
    "NoRepeatsVectorPolicy": lambda bandit, horizon: (
        lmab.plan(bandit, horizon=horizon, method=lmab.PointBased(n_beliefs=20), repeats=False).policy
    ),
    "ExactNoRepeatsPolicy": lambda bandit, horizon: lmab.plan(bandit, horizon=horizon, repeats=False).policy,
    "OptimisticPolicy": lambda bandit, horizon: OptimisticPolicy(bandit, 0.1 * bandit.means),
    "HistoryPolicy": lambda bandit, horizon: _history_policy(bandit, horizon),
}


def _history_policy(bandit: LatentBandit, horizon: int) -> Policy:
    n_codes = bandit.n_arms * bandit.rewards.n_values
    rng = np.random.default_rng(0)
    return HistoryPolicy(bandit.rewards.values, [rng.random((n_codes**t, bandit.n_arms)) for t in range(horizon)])


def concrete() -> dict[str, type[Policy]]:
    """Every final policy class that the package defines."""
    found: dict[str, type[Policy]] = {}
    todo = [Policy]
    while todo:
        cls = todo.pop()
        below = cls.__subclasses__()
        todo += below
        if not below and cls.__module__.startswith("lmab"):
            found[cls.__name__] = cls
    return found
