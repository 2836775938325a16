"""Algorithm 1 as printed: what it plays, what it measures, and the sup norm that it minimises."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import lmab
from lmab.learning import EDMoments
from lmab.paper import algorithm_1
from lmab.paper.algorithm_1 import MeasuredTensors, match, rebuild


def core_of(bandit: lmab.LatentBandit):
    table = bandit.rewards.table
    space = lmab.moments.Subspace(np.linalg.qr(table)[0], np.ones(2), bandit.n_arms, bandit.rewards.values)
    return lmab.moments.design(space)


def exact_tensors(bandit: lmab.LatentBandit, core, order: int, n_each: int = 10**9) -> MeasuredTensors:
    nu = bandit.rewards.table[core.support]
    indices = [np.array(list(itertools.product(range(len(nu)), repeat=each))) for each in range(1, order + 1)]
    entries = [nu[rows].prod(axis=1) @ bandit.weights for rows in indices]
    return MeasuredTensors(tuple(indices), tuple(entries), n_each)


@pytest.fixture
def bandit(rng):
    return lmab.LatentBandit.bernoulli([0.3, 0.7], rng.random((2, 5)))


def test_exact_moments_give_back_the_bandit(bandit):
    core = core_of(bandit)
    found = match(exact_tensors(bandit, core, 3), core, 2, 12, None, np.random.default_rng(0))
    assert found.residual < 1e-4
    assert rebuild(found, core).distance(bandit) < 0.02


def test_a_least_weight_above_the_true_one_is_not_feasible_and_is_halved(bandit):
    core, tensors = core_of(bandit), exact_tensors(bandit, core_of(bandit), 3)
    held = match(tensors, core, 2, 6, 0.5, np.random.default_rng(0))
    assert held.residual > tensors.tolerance
    assert held.weights.tolist() == pytest.approx([0.5, 0.5])
    free = match(tensors, core, 2, 12, None, np.random.default_rng(0))
    assert free.w_min == 0.25
    assert sorted(free.weights) == pytest.approx([0.3, 0.7], abs=0.01)


def test_if_no_start_is_feasible_the_smallest_residual_is_returned(bandit, monkeypatch):
    core, left = core_of(bandit), iter([0.3, 0.1, 0.2])
    monkeypatch.setattr(
        algorithm_1, "_minimise", lambda *args: algorithm_1.Match(bandit.weights, np.zeros((1, 2)), next(left), 0.5)
    )
    assert match(exact_tensors(bandit, core, 1), core, 2, 3, 0.5, np.random.default_rng(0)).residual == 0.1


def test_the_slopes_are_the_derivatives_of_the_moments(bandit, rng):
    tensors = exact_tensors(bandit, core_of(bandit), 3)
    point = rng.random(2 + 2 * len(tensors.indices[0]))
    slopes = algorithm_1._slopes(tensors, point, 2)
    for k in range(len(point)):
        step = np.zeros(len(point))
        step[k] = 1e-6
        numeric = (
            algorithm_1._moments(tensors, point + step, 2) - algorithm_1._moments(tensors, point - step, 2)
        ) / 2e-6
        np.testing.assert_allclose(slopes[:, k], numeric, atol=1e-8)


def test_every_multi_index_is_played_by_sessions_of_its_own(bandit):
    learner = EDMoments(2, literal=True)
    environment = lmab.Simulator(bandit, horizon=3, rng=0)
    run = lmab.learning.Run(learner, n_arms=5, horizon=3, n_sessions=30_000, rng=0)
    played = []
    while not run.finished:
        exploration = run.ask()
        played.append(exploration)
        run.tell(exploration.on(environment))
    core = run.learned["design"].facts["core_set"]
    n, arms = len(core), np.array([arm for arm, _ in core])
    n_each = run.learned["match"].facts["sessions_per_entry"]
    assert n_each == 15_000 // (n + n**2 + n**3)
    for order, exploration in enumerate(played[1:], start=1):
        rows = np.array(list(itertools.product(range(n), repeat=order)))
        left_over = exploration.n_sessions - n_each * len(rows)
        counts = np.full(len(rows), n_each) + (np.arange(len(rows)) < left_over)
        np.testing.assert_array_equal(exploration.arms[:, :order], np.repeat(arms[rows], counts, axis=0))
        assert order == 3 or len(np.unique(exploration.arms[:, order:])) == 5  # later steps play any arm


def test_entries_are_shares_of_hits_and_within_the_tolerance(bandit):
    environment = lmab.Simulator(bandit, horizon=3, rng=1)
    course, core = lmab.learning.Course(), core_of(bandit)
    task = lmab.learning.Task(n_arms=5, horizon=3, n_sessions=100_000)
    measuring = algorithm_1.measure(task, core, 2, 100_000, np.random.default_rng(0), course)
    exploration = next(measuring)
    try:
        while True:
            exploration = measuring.send(exploration.on(environment))
    except StopIteration as end:
        tensors = end.value
    expected = exact_tensors(bandit, core, 3)
    for found, truth in zip(tensors.entries, expected.entries, strict=True):
        assert np.abs(found - truth).max() < tensors.tolerance
        shares = [np.abs(found * n - np.round(found * n)) for n in (tensors.n_each, tensors.n_each + 1)]
        assert np.minimum(*shares).max() < 1e-6  # hits of whole sessions


def test_it_learns_as_well_as_the_practical_variant(rng):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2, 0.5, 0.4], [0.1, 0.8, 0.5, 0.6]])
    best = lmab.plan(bandit, horizon=3, method=lmab.Exact()).lower
    environment = lmab.Simulator(bandit, horizon=3, rng=rng)
    result = lmab.learn(environment, EDMoments(2, literal=True), n_sessions=60_000, rng=0, planner=lmab.Exact())
    assert lmab.evaluate(result.policy, bandit, horizon=3).mean > 0.99 * best
    assert result["match"].facts["feasible"]
    assert result.bandit.distance(bandit) < 0.15


def test_clipping_keeps_zeros():
    """The practical variant keeps every probability above a floor, the printed one does not."""
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[1.0, 0.0, 0.5], [0.0, 1.0, 0.5]])
    core = core_of(bandit)
    found = match(exact_tensors(bandit, core, 3), core, 2, 12, None, np.random.default_rng(0))
    assert rebuild(found, core).rewards.probabilities.min() < 1e-4


@pytest.mark.parametrize(
    ("options", "message"),
    [({"w_min": "tried"}, "literal must be False with w_min='tried'"), ({"events": "events"}, "events='events'")],
)
def test_options_of_the_practical_variant_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        EDMoments(2, literal=True, **options)


@pytest.mark.parametrize(
    ("n_sessions", "rewards", "n_types", "message"),
    [
        (16, None, 2, "n_sessions must leave a session for each of the"),
        (1000, "gaussian", 2, "literal must be False for gaussian rewards"),
        (4000, None, 4, "literal needs at most 20,000 multi-indices"),
    ],
)
def test_what_it_cannot_do_is_said(bandit, n_sessions, rewards, n_types, message):
    environment = lmab.Simulator(lmab.random_bandit(4, 8, rng=0), horizon=7, rng=0)
    with pytest.raises(ValueError, match=message):
        lmab.learn(environment, EDMoments(n_types, literal=True), n_sessions=n_sessions, rewards=rewards, rng=0)
