from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import lmab
from lmab.moments.second import Subspace
from lmab.paper.high_orders import core_moments


def exact(bandit, design, indices):
    """sum_m w_m prod_j nu_m(i_j)."""
    core = (bandit.rewards.table if design.values is not None else bandit.means.T)[design.support]
    return core[indices].prod(axis=1) @ bandit.weights


@pytest.mark.parametrize("logging", ["uniform", "core"])
def test_moments_converge_to_the_truth(rng, logging):
    bandit = lmab.LatentBandit.categorical([0.3, 0.7], rng.dirichlet(np.ones(3), size=(2, 3)), [0, 1, 2])
    design = lmab.moments.design(Subspace(np.linalg.qr(bandit.rewards.table)[0], np.ones(2), 3, bandit.rewards.values),
                         events="arms")  # fmt: skip
    arms = rng.integers(3, size=(200_000, 4)) if logging == "uniform" else rng.choice(design.arms, size=(200_000, 4))
    log = lmab.simulate(bandit, arms, rng=rng)
    for tensor in core_moments(log, design, 3):
        truth = exact(bandit, design, tensor.indices)
        assert np.abs(tensor.entries - truth).max() < 6 * tensor.stderr.max()
        np.testing.assert_allclose(tensor.entries, truth, atol=0.02)
        assert len(tensor.indices) == len(
            list(itertools.combinations_with_replacement(range(len(design.support)), tensor.order))
        )


def test_counts_agree_with_loops(rng):
    bandit = lmab.random_bandit(2, 3, rng=rng)
    design = lmab.moments.design(Subspace(np.linalg.qr(bandit.rewards.table)[0], np.ones(2), 3, bandit.rewards.values),
                         events="arms")  # fmt: skip
    log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=30, horizon=4, rng=rng)
    tensor = core_moments(log, design, 2)[1]
    for index, entry, plays in zip(tensor.indices, tensor.entries, tensor.plays, strict=True):
        (a, x), (b, y) = (design.pairs[i] for i in index)
        times = hits = 0.0
        for session in log:
            steps = list(zip(session.arms.tolist(), session.rewards.tolist(), strict=True))
            for (arm, reward), (other, second) in itertools.permutations(steps, 2):
                times += (arm, other) == (a, b)
                hits += (arm, other, reward, second) == (a, b, x, y)
        assert entry == pytest.approx(hits / times)
        assert plays == times


def test_all_orders_agree_with_loops_on_sessions_of_any_length(rng):
    """Ordered picks of different steps, for pairs and for products of rewards."""
    n_arms, n_sessions = 3, 60
    lengths = rng.integers(1, 6, n_sessions)
    played = np.full((n_sessions, 5), -1)
    for row, length in zip(played, lengths, strict=True):
        row[:length] = rng.integers(n_arms, size=length)
    log = lmab.Sessions.from_arrays(played, rng.integers(0, 2, played.shape) * 1.0, n_arms=n_arms)
    pairs = lmab.moments.design(Subspace(np.linalg.qr(rng.random((6, 2)))[0], np.ones(2), 3, np.array([0.0, 1.0])))
    arms = lmab.moments.design(Subspace(np.linalg.qr(rng.random((3, 2)))[0], np.ones(2), 3, None))
    for design in (pairs, arms):
        for tensor in core_moments(log, design, 3):
            for index, entry, plays in zip(tensor.indices, tensor.entries, tensor.plays, strict=True):
                wanted = [design.pairs[i] for i in index]
                times = total = 0.0
                for session in log:
                    steps = list(zip(session.arms.tolist(), session.rewards.tolist(), strict=True))
                    for picked in itertools.permutations(steps, tensor.order):
                        if all(step[0] == pair[0] for step, pair in zip(picked, wanted, strict=True)):
                            times += 1
                            seen = zip(picked, wanted, strict=True)
                            total += np.prod([r if value is None else r == value for (_, r), (_, value) in seen])
                assert plays == times
                assert entry == pytest.approx(total / times)


def event_core(bandit, design):
    """Probability of each core event in each type."""
    places = [(arm, np.searchsorted(bandit.rewards.values, sorted(event))) for arm, event in design.pairs]
    return np.array([bandit.rewards.probabilities[:, arm, place].sum(axis=1) for arm, place in places])


@pytest.fixture
def event_case(rng):
    bandit = lmab.LatentBandit.categorical([0.4, 0.6], rng.dirichlet(np.ones(3), size=(2, 2)), [0, 1, 2])
    space = Subspace(np.linalg.qr(bandit.rewards.table)[0], np.ones(2), 2, bandit.rewards.values)
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=100_000, horizon=3, rng=rng)
    return bandit, lmab.moments.design(space, events="events"), log


def test_remark_a_1_types_are_rebuilt_from_events(event_case):
    bandit, design, _ = event_case
    np.testing.assert_allclose(design.onto_pairs @ event_core(bandit, design), bandit.rewards.table, atol=1e-9)


def test_events_of_one_arm_that_overlap_are_not_joined(event_case):
    bandit, found, log = event_case
    rows = np.array([0, 2, 5, 9])
    design = replace(found, support=rows, rho=np.full(4, 0.25))
    assert design.pairs == [(0, {2}), (0, {1, 2}), (0, {0, 1}), (1, {1, 2})]
    core = event_core(bandit, design)
    for tensor in core_moments(log, design, 3):
        truth = core[tensor.indices].prod(axis=1) @ bandit.weights
        assert (np.abs(tensor.entries - truth) < 5 * tensor.stderr).all()
        joined = {tuple(sorted(set(row))) for row in tensor.indices.tolist()}
        assert all(not {0, 1} <= set(own) and not {1, 2} <= set(own) for own in joined)
    assert (0, 2, 3) in joined


def test_standard_errors_are_those_of_repeated_logs(rng):
    """Steps of a session share their type, so that long sessions say less than as many independent steps."""
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2], [0.1, 0.7]])
    design = lmab.moments.design(Subspace(np.linalg.qr(bandit.rewards.table)[0], np.ones(2), 2, bandit.rewards.values))
    found = []
    for _ in range(200):
        log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=300, horizon=8, rng=rng)
        tensors = core_moments(log, design, 2)
        found.append([np.concatenate([getattr(t, name) for t in tensors]) for name in ("entries", "stderr")])
    entries, stderr = np.array(found).transpose(1, 0, 2)
    np.testing.assert_allclose(stderr.mean(axis=0), entries.std(axis=0), rtol=0.25)


def test_kernels_agree(rng):
    from reference import sums as reference

    from lmab._kernel.compiled import sums as compiled

    groups = rng.integers(-1, 3, 60)
    slots = np.array([[0, 1], [2, -1], [3, -1]])
    offsets = np.array([0, 7, 8, 8, 30, 60])
    products, ways = rng.integers(0, 4 * 4 + 1, (20, 3)), rng.integers(0, 3 * 4 + 1, (20, 3))
    arguments = (groups, rng.random((60, 2)), offsets, slots, 4, 3, products, ways)
    np.testing.assert_allclose(compiled.core_sums(*arguments), reference.core_sums(*arguments), rtol=1e-10)


def test_products_of_normal_rewards(rng):
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], rng.uniform(-1, 1, (2, 4)))
    design = lmab.moments.design(Subspace(np.linalg.qr(bandit.means.T)[0], np.ones(2), 4, None))
    log = lmab.simulate(bandit, lmab.Uniform(4), n_sessions=100_000, horizon=4, rng=rng)
    for tensor in core_moments(log, design, 3):
        errors = np.abs(tensor.entries - exact(bandit, design, tensor.indices))
        assert (errors < 6 * tensor.stderr).all()


def test_too_many_moments_are_refused(rng):
    space = Subspace(np.linalg.qr(rng.standard_normal((40, 12)))[0], np.ones(12), 20, np.array([0.0, 1.0]))
    log = lmab.simulate(lmab.random_bandit(2, 20, rng=rng), lmab.Uniform(20), n_sessions=10, horizon=9, rng=rng)
    with pytest.raises(ValueError, match="order must be smaller for a core set"):
        core_moments(log, lmab.moments.design(space), 9)


def test_orders_that_were_never_measured_are_left_out(rng):
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], rng.uniform(-1, 1, (2, 4)))
    design = lmab.moments.design(Subspace(np.linalg.qr(bandit.means.T)[0], np.ones(2), 4, None))
    other = next(arm for arm in range(4) if arm not in design.arms)
    arms = np.array([[design.arms[0], design.arms[1], other]] * 9)
    assert [tensor.order for tensor in core_moments(lmab.simulate(bandit, arms, rng=rng), design, 3)] == [1, 2]
    with pytest.raises(ValueError, match="must play arms of the core set twice"):
        core_moments(lmab.simulate(bandit, np.full((5, 3), other), rng=rng), design, 3)


def test_an_entry_seen_never_or_always_is_not_known_without_error():
    """The variance of a share is at least half an observation's, so no weight is infinite."""
    core = lmab.moments.design(Subspace(np.eye(2), np.ones(2), 1, np.array([0.0, 1.0])))
    log = lmab.Sessions.from_arrays(np.zeros((10, 2), int), np.ones((10, 2)))
    first, second = core_moments(log, core, 2)
    assert first.entries.tolist() == [0.0, 1.0]
    assert second.entries.tolist() == [0.0, 0.0, 1.0]
    for tensor in (first, second):
        np.testing.assert_allclose(tensor.stderr, np.sqrt(0.5) / 10)


def test_products_of_fewer_than_five_sessions_are_left_out(rng):
    design = lmab.moments.design(Subspace(np.eye(2), np.ones(2), 2, None))
    arms = np.array([[0, 0]] * 6 + [[1, 1]] * 4)
    log = lmab.Sessions.from_arrays(arms, rng.normal(size=(10, 2)))
    first, second = core_moments(log, design, 2)
    assert first.indices.tolist() == [[0]]
    assert second.indices.tolist() == [[0, 0]]
    five = lmab.Sessions.from_arrays(arms[1:], rng.normal(size=(9, 2)))
    assert core_moments(five, design, 2)[0].indices.tolist() == [[0]]


def test_a_reward_that_is_no_value_of_the_core_set_is_a_miss():
    """Core plays may pay what exploration never saw: that is none of the pairs."""
    core = lmab.moments.design(Subspace(np.eye(2), np.ones(2), 1, np.array([0.0, 1.0])))
    log = lmab.Sessions.from_arrays(np.zeros((4, 2), int), [[0.0, 7.0], [1.0, 7.0], [7.0, 7.0], [1.0, 0.0]])
    first, second = core_moments(log, core, 2)
    assert first.entries.tolist() == [2 / 8, 2 / 8]
    assert second.entries.tolist() == [0.0, 1 / 8, 0.0]


def test_a_log_that_never_plays_the_last_arms_measures_the_others(rng):
    """The core set of a larger model: arms that the log does not even know are not measured."""
    bandit = lmab.random_bandit(2, 5, rng=rng)
    basis = np.linalg.qr(bandit.rewards.table)[0]
    design = lmab.moments.design(Subspace(basis, np.ones(2), 5, bandit.rewards.values), events="arms")
    core = sorted(design.arms)
    short = lmab.Sessions.from_arrays(rng.choice(core[:-1], size=(200, 3)), rng.integers(2, size=(200, 3)) * 1.0)
    assert short.n_arms <= core[-1]
    for few, all_arms in zip(core_moments(short, design, 2), core_moments(short.with_arms(5), design, 2), strict=True):
        np.testing.assert_array_equal(few.indices, all_arms.indices)
        np.testing.assert_array_equal(few.entries, all_arms.entries)
