"""What a fit is worth: the value of planning on it, as a part of planning on the truth."""

from __future__ import annotations

import numpy as np
import pytest
from seeds import generator

import lmab


def worth(n_types: int, n_sessions: int, method: lmab.EM, n_instances: int) -> float:
    """Mean over spherical instances with 50 arms and 7 steps; both policies look one step ahead, values are exact."""
    ratios = []
    for seed in range(n_instances):
        rng = generator(seed, n_types, n_sessions)
        bandit = lmab.random_bandit(n_types, 50, rank=4, kind="spherical", rng=rng)
        log = lmab.simulate(bandit, lmab.Uniform(50), n_sessions=n_sessions, horizon=7, rng=rng)
        fit = lmab.fit(log, n_types=n_types, method=method, rng=rng)
        learned, genie = (
            lmab.evaluate(lmab.plan(model, horizon=7, method=lmab.planning.Lookahead()).policy, bandit, horizon=7).mean
            for model in (fit.bandit, bandit)
        )
        ratios.append(learned / genie)
    return float(np.mean(ratios))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_types", "n_sessions", "method", "least"),
    [
        (5, 2_000, lmab.EM(prior=2.0), 0.945),
        (5, 10_000, lmab.EM(prior=2.0), 0.98),
        (7, 100_000, lmab.EM(prior=1.0, rank=4), 0.993),
    ],
)
def test_planning_on_the_fit_is_nearly_planning_on_the_truth(n_types, n_sessions, method, least):
    value = worth(n_types, n_sessions, method, n_instances=20)
    print(f"{n_types} types, {n_sessions} sessions: {value:.4f} of the genie's value")
    assert value >= least


def test_planning_on_a_small_fit_beats_the_best_arm(rng):
    """The same on one small instance, to keep the study above honest between its runs."""
    bandit = lmab.random_bandit(3, 12, rank=3, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(12), n_sessions=3000, horizon=6, rng=rng)
    fit = lmab.fit(log, n_types=3, method=lmab.EM(prior=1.0), rng=rng)
    best = lmab.policies.Stationary(int((bandit.weights @ bandit.means).argmax()))
    learned, genie, alone = (
        lmab.evaluate(policy, bandit, horizon=6).mean
        for policy in (
            lmab.plan(fit.bandit, horizon=6, method=lmab.planning.Lookahead()).policy,
            lmab.plan(bandit, horizon=6, method=lmab.planning.Lookahead()).policy,
            best,
        )
    )
    assert learned >= 0.97 * genie
    assert learned > alone
