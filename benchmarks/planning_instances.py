"""Bandits of the planning benchmarks: fixed by their seed, so that the rows of two versions compare."""

from __future__ import annotations

import numpy as np

import lmab

HIGH, LOW = 0.95, 0.10  # what the right and the wrong arm of a type pay on a hard bandit
RARE, OFTEN = 0.02, 0.70  # what an arm that tells one bit of the type pays, by that bit


def instance(kind: str, n_types: int, n_arms: int, seed: int) -> lmab.LatentBandit:
    """One of the kinds "ordinary", "spread", "hard", "logit4"."""
    makers = {"ordinary": _ordinary, "spread": _spread, "hard": _hard, "logit4": _logit4}
    weights, means = makers[kind](n_types, n_arms, seed)
    return lmab.LatentBandit.bernoulli(weights, means)


def _ordinary(n_types: int, n_arms: int, seed: int, concentration: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Types are mixtures of four base types."""
    rng = np.random.default_rng([seed, n_types, n_arms, 1])
    base = rng.random((4, n_arms))
    shares = rng.dirichlet(np.full(4, concentration), size=n_types)
    return rng.dirichlet(np.full(n_types, 5.0)), np.clip(shares @ base, 0, 1)


def _spread(n_types: int, n_arms: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Types near to one of four base types."""
    return _ordinary(n_types, n_arms, seed, 0.2)


def _hard(n_types: int, n_arms: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """One good arm per type, cheap arms that tell the bits of the type, a safe arm, and arms worse than it."""
    rng = np.random.default_rng([seed, n_types, n_arms, 2])
    rows = []
    for type_ in range(n_types):
        row = LOW + rng.uniform(-0.03, 0.03, n_types)
        row[type_] = HIGH + rng.uniform(-0.03, 0.03)
        rows.append(row)
    order = rng.permutation(n_types)
    weights = rng.dirichlet(np.full(n_types, 20.0))
    n_bits = max(1, int(np.ceil(np.log2(n_types))))
    rows += [np.where((order >> b) & 1, OFTEN, RARE) + rng.uniform(0, 0.02, n_types) for b in range(n_bits)]
    rows = rows[: n_arms - 1]
    safe = max(float((np.array(rows) @ weights).max()) + 0.05, 0.3)
    rows.append(np.full(n_types, min(safe, 0.9)))
    while len(rows) < n_arms:
        centre = rng.uniform(0.05, safe - 0.05)
        rows.append(np.clip(centre + rng.uniform(-0.08, 0.08, n_types), 0.01, 0.99))
    means = np.array(rows).T
    return weights, means[:, rng.permutation(n_arms)]


def _logit4(n_types: int, n_arms: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds of a reward: an intercept per arm plus the product of four traits of the type with the arm's."""
    rng = np.random.default_rng([seed, n_types, n_arms, 4, 9])
    traits, loadings = rng.normal(size=(n_types, 4)), rng.normal(size=(n_arms, 4))
    intercepts = rng.normal(size=n_arms) * 0.5 - 1.0
    return np.full(n_types, 1 / n_types), 1 / (1 + np.exp(-(intercepts + traits @ loadings.T)))
