from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab.moments.second import Subspace
from lmab.paper.high_orders import Contrasts, _MultiIndex, centred_moments, core_moments, n_entries


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


def test_events_of_one_arm_that_overlap_are_paid_in_different_steps(event_case):
    bandit, found, log = event_case
    rows = np.array([0, 2, 5, 9])
    design = replace(found, support=rows, rho=np.full(4, 0.25))
    assert design.pairs == [(0, {2}), (0, {1, 2}), (0, {0, 1}), (1, {1, 2})]
    core = event_core(bandit, design)
    for tensor in core_moments(log, design, 3):
        truth = core[tensor.indices].prod(axis=1) @ bandit.weights
        assert (np.abs(tensor.entries - truth) < 5 * tensor.stderr).all()
        assert len(tensor.indices) == [4, 10, 20][tensor.order - 1]


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


@pytest.mark.parametrize(
    ("slots", "order"), [([[0], [1], [2]], 3), ([[0, 1], [2, -1], [3, -1]], 3), ([[-1, -1], [0, 1], [2, 3]], 4)]
)
def test_kernels_agree(slots, order, rng):
    from reference import sums as reference

    from lmab._kernel.compiled import sums as compiled

    slots = np.array(slots)
    groups, observed = rng.integers(-1, 3, 30), rng.standard_normal((30, slots.shape[1]))
    index = _MultiIndex(slots.shape[1], int(slots.max()) + 1, order)
    arguments = (
        groups, observed, np.array([0, 7, 8, 8, 15, 30]), slots, order, index.symbols, index.parents, index.degrees,
        index.repeats, index.binomials, index.starts,
    )  # fmt: skip
    np.testing.assert_allclose(compiled.moment_sums(*arguments), reference.moment_sums(*arguments), atol=1e-9)


def ragged(rng, draw, n_sessions=300, horizon=5, n_arms=3):
    """Sessions of 1 to 5 steps."""
    arms = rng.integers(n_arms, size=(n_sessions, horizon))
    lengths = rng.integers(1, horizon + 1, n_sessions)
    arms = np.where(np.arange(horizon) < lengths[:, None], arms, -1)
    return lmab.Sessions.from_arrays(arms, draw(arms.shape), n_arms=n_arms)


def discrete(rng):
    return ragged(rng, lambda shape: rng.choice([0.0, 1.0, 2.0], p=[0.5, 0.3, 0.2], size=shape))


def test_contrasts_are_centred_uncorrelated_and_of_unit_variance_in_the_log(rng):
    log = discrete(rng)
    values = np.array([0.0, 1.0, 2.0])
    events = [(arm, value) for arm in range(3) for value in values]
    contrasts = Contrasts.of(log, events, values)
    assert contrasts.n == 6  # two of every arm
    for group, arm in enumerate(contrasts.arms):
        own = contrasts.table[group][log.rewards[log.arms == arm].astype(int)]
        np.testing.assert_allclose(own.mean(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(own.T @ own / len(own), np.eye(2), atol=1e-12)
    types = rng.dirichlet(np.ones(3), size=(2, 3))
    y = np.concatenate([(types[:, arm] @ contrasts.table[arm, :3]).T for arm in range(3)])
    np.testing.assert_allclose(contrasts.event_means(y), types.reshape(2, -1).T, atol=1e-12)
    for power in (2, 3, 4):
        expected = np.concatenate([(types[:, arm] @ contrasts.table[arm, :3] ** power).T for arm in range(3)])
        np.testing.assert_allclose(contrasts.powers(np.array([0.4, 0.6]), y, power), expected, atol=1e-9)


def test_contrasts_of_some_values_and_of_normal_rewards(rng):
    log = discrete(rng)
    some = Contrasts.of(log, [(2, 1.0), (0, 2.0), (0, 2.0)], np.array([0.0, 1.0, 2.0]))
    assert (some.events, some.n, some.arms.tolist()) == ([(0, 2.0), (2, 1.0)], 2, [0, 2])
    shares = [np.mean(log.rewards[log.arms == arm] == value) for arm, value in some.events]
    np.testing.assert_allclose(some.centre, shares)
    np.testing.assert_allclose(some.event_means(np.zeros((2, 1)))[:, 0], shares)
    normal = ragged(rng, lambda shape: 3 + 2 * rng.standard_normal(shape)).with_arms(5)
    contrasts = Contrasts.of(normal, [(arm, None) for arm in range(5)], None)
    assert contrasts.slots.ravel().tolist() == [0, 1, 2, -1, -1]  # the last arms were never played
    np.testing.assert_allclose(
        contrasts.factor[:3], np.diag([normal.rewards[normal.arms == a].std() for a in range(3)])
    )
    y = np.array([[1.0, -0.5], [0.2, -0.1], [0.0, 0.0]])
    weights = np.array([1 / 3, 2 / 3])
    within = (1 - y**2 @ weights)[:, None]
    np.testing.assert_allclose(contrasts.powers(weights, y, 2), y**2 + within)
    np.testing.assert_allclose(contrasts.powers(weights, y, 3), y**3 + 3 * y * within)
    np.testing.assert_allclose(contrasts.powers(weights, y, 4), y**4 + 6 * y**2 * within + 3 * within**2)


@pytest.mark.parametrize("kind", ["values", "normal"])
def test_centred_moments_agree_with_loops(kind, rng):
    """Mean products over different steps of sessions of any length, and how they vary between sessions."""
    values = None if kind == "normal" else np.array([0.0, 1.0, 2.0])
    log = discrete(rng) if kind == "values" else ragged(rng, rng.standard_normal)
    log = log[:60]
    contrasts = Contrasts.of(
        log, [(arm, v) for arm in range(3) for v in ([None] if values is None else values)], values
    )
    moments = centred_moments(log, contrasts, 3)
    assert moments.order == 3
    assert len(moments.entries) == n_entries(contrasts.n, 3)
    for index, entry, plays, clustering, variance in zip(
        moments.indices, moments.entries, moments.plays, moments.clustering, moments.variances, strict=True
    ):
        factors = [int(slot) for slot in index if slot < contrasts.n]
        sums, ways = [], []
        for session in log:
            steps = [
                (slot, x)
                for slot, x in (observations(contrasts, arm, reward) for arm, reward in
                                zip(session.arms.tolist(), session.rewards.tolist(), strict=True))
            ]  # fmt: skip
            found = [
                np.prod([x[slots.index(slot)] for (slots, x), slot in zip(picked, order, strict=True)])
                for picked in itertools.combinations(steps, len(factors))
                for order in set(itertools.permutations(factors))
                if all(slot in slots for (slots, _), slot in zip(picked, order, strict=True))
            ]
            sums.append(sum(found))
            ways.append(len(found))
        x, y = np.array(sums), np.array(ways)
        assert plays == y.sum()
        assert entry == pytest.approx(x.sum() / plays, abs=1e-9)
        assert clustering == pytest.approx((y**2).sum() / plays)
        assert variance == pytest.approx(((x - entry * y) ** 2).sum() / plays, abs=1e-9)


def observations(contrasts, arm, reward):
    """The contrasts that a step observes, and their values."""
    slots = [slot for slot in contrasts.slots[arm].tolist() if slot >= 0]
    if contrasts.values is None:
        return slots, [(reward - contrasts.centre[arm]) * contrasts.table[arm, 0, 0]]
    return slots, contrasts.table[arm, int(reward)].tolist()


def test_entries_of_types_that_are_alike_have_standard_error_1_over_the_root_of_their_plays():
    rng = generator(3)
    bandit = lmab.LatentBandit.bernoulli([1.0], [[0.2, 0.5, 0.9]])
    scores = []
    for _ in range(200):
        log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=200, horizon=4, rng=rng)
        contrasts = Contrasts.of(log, [(arm, value) for arm in range(3) for value in (0.0, 1.0)], np.array([0.0, 1.0]))
        moments = centred_moments(log, contrasts, 3)
        scores.append(moments.entries * np.sqrt(moments.plays))
    own = np.array(scores)[:, 3:]  # those of order 1 are 0
    np.testing.assert_allclose(own.std(axis=0), 1, atol=0.25)
    correlations = np.corrcoef(own.T) - np.eye(own.shape[1])
    assert np.abs(correlations).max() < 0.3


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
