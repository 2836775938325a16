from __future__ import annotations

import itertools

import numpy as np
import pytest

import lmab
from lmab.moments import Subspace
from lmab.tensors import core_tensors


def exact(bandit, design, indices):
    """sum_m w_m prod_j nu_m(i_j)."""
    core = (bandit.rewards.table if design.values is not None else bandit.means.T)[design.support]
    return core[indices].prod(axis=1) @ bandit.weights


@pytest.mark.parametrize("logging", ["uniform", "core"])
def test_moments_converge_to_the_truth(rng, logging):
    bandit = lmab.LatentBandit.categorical([0.3, 0.7], rng.dirichlet(np.ones(3), size=(2, 3)), [0, 1, 2])
    design = lmab.design(Subspace(np.linalg.qr(bandit.rewards.table)[0], np.ones(2), 3, bandit.rewards.values),
                         events="arms")  # fmt: skip
    arms = rng.integers(3, size=(200_000, 4)) if logging == "uniform" else rng.choice(design.arms, size=(200_000, 4))
    log = lmab.simulate(bandit, arms, rng=rng)
    for tensor in core_tensors(log, design, 3):
        truth = exact(bandit, design, tensor.indices)
        assert np.abs(tensor.entries - truth).max() < 6 * tensor.stderr.max()
        np.testing.assert_allclose(tensor.entries, truth, atol=0.02)
        assert len(tensor.indices) == len(
            list(itertools.combinations_with_replacement(range(len(design.support)), tensor.order))
        )


def test_counts_agree_with_loops(rng):
    bandit = lmab.random_bandit(2, 3, rng=rng)
    design = lmab.design(Subspace(np.linalg.qr(bandit.rewards.table)[0], np.ones(2), 3, bandit.rewards.values),
                         events="arms")  # fmt: skip
    log = lmab.simulate(bandit, lmab.Uniform(3), n_episodes=30, horizon=4, rng=rng)
    tensor = core_tensors(log, design, 2)[1]
    for index, entry, plays in zip(tensor.indices, tensor.entries, tensor.plays, strict=True):
        (a, x), (b, y) = (design.pairs[i] for i in index)
        times = hits = 0.0
        for episode in log:
            steps = list(zip(episode.actions.tolist(), episode.rewards.tolist(), strict=True))
            for (arm, reward), (other, second) in itertools.permutations(steps, 2):
                times += (arm, other) == (a, b)
                hits += (arm, other, reward, second) == (a, b, x, y)
        assert entry == pytest.approx(hits / times)
        assert plays in (times, times / 2)


def test_products_of_normal_rewards(rng):
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], rng.uniform(-1, 1, (2, 4)))
    design = lmab.design(Subspace(np.linalg.qr(bandit.means.T)[0], np.ones(2), 4, None))
    log = lmab.simulate(bandit, lmab.Uniform(4), n_episodes=100_000, horizon=4, rng=rng)
    for tensor in core_tensors(log, design, 3):
        errors = np.abs(tensor.entries - exact(bandit, design, tensor.indices))
        assert (errors < 6 * tensor.stderr).all()


def test_too_many_moments_are_refused(rng):
    space = Subspace(np.linalg.qr(rng.standard_normal((120, 30)))[0], np.ones(30), 60, np.array([0.0, 1.0]))
    log = lmab.simulate(lmab.random_bandit(2, 60, rng=rng), lmab.Uniform(60), n_episodes=10, horizon=9, rng=rng)
    with pytest.raises(ValueError, match="order must be smaller for a core set"):
        core_tensors(log, lmab.design(space), 9)


def test_orders_that_were_never_measured_are_left_out(rng):
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], rng.uniform(-1, 1, (2, 4)))
    design = lmab.design(Subspace(np.linalg.qr(bandit.means.T)[0], np.ones(2), 4, None))
    other = next(arm for arm in range(4) if arm not in design.arms)
    arms = np.array([[design.arms[0], design.arms[1], other]] * 5)
    assert [tensor.order for tensor in core_tensors(lmab.simulate(bandit, arms, rng=rng), design, 3)] == [1, 2]
    with pytest.raises(ValueError, match="must play arms of the core set twice"):
        core_tensors(lmab.simulate(bandit, np.full((5, 3), other), rng=rng), design, 3)
