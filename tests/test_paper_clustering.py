"""Clustering of sessions one by one: it works if sessions are long enough for A / gamma^2, and only then."""

from __future__ import annotations

import numpy as np
import pytest

import lmab
from lmab.learning import Clustering
from lmab.paper.clustering import _centres, _distances, cluster


def two_types(gap: float, n_arms: int = 4) -> lmab.LatentBandit:
    means = np.full((2, n_arms), 0.5)
    means[0, 0], means[1, 0] = 0.5 + gap / 2, 0.5 - gap / 2
    means[0, 1], means[1, 1] = 0.5 - gap / 2, 0.5 + gap / 2
    return lmab.LatentBandit.bernoulli([0.3, 0.7], means)


def learned(bandit, horizon, n_sessions=300, rng=0, **options):
    environment = lmab.Simulator(bandit, horizon=horizon, rng=rng)
    method = lmab.QMDP()
    return lmab.learn(environment, Clustering(2, **options), n_sessions=n_sessions, rng=rng, planner=method)


def test_distances_are_squares_weighted_by_plays(rng):
    plays, means, centres = rng.integers(0, 3, (5, 4)).astype(float), rng.random((5, 4)), rng.random((3, 4))
    expected = [[(plays[i] * (means[i] - centres[k]) ** 2).sum() for k in range(3)] for i in range(5)]
    np.testing.assert_allclose(_distances(plays, means, centres), expected, atol=1e-12)


def test_an_arm_that_a_cluster_never_played_has_the_mean_of_all_sessions():
    plays, totals = np.array([[2.0, 0.0], [1.0, 0.0], [0.0, 4.0]]), np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 3.0]])
    found = _centres(plays, totals, np.array([0.6, 0.7]), np.array([0, 0, 1]), 3)
    np.testing.assert_allclose(found, [[2 / 3, 0.7], [0.6, 0.75], [0.6, 0.7]])


def test_long_sessions_show_their_type():
    bandit = two_types(0.8)
    result = learned(bandit, horizon=80)  # 20 plays of each arm: far above A / gamma^2 = 6
    assert result.bandit.distance(bandit) < 0.1
    assert sorted(result["cluster"].facts["sizes"] / 300) == pytest.approx(sorted(bandit.weights), abs=0.06)


def test_short_sessions_do_not():
    """At H well below A / gamma^2 the clusters follow the noise, and EM on the same sessions is nearer to the truth."""
    bandit = two_types(0.4)
    result = learned(bandit, horizon=4, n_sessions=4000)  # A / gamma^2 is 25
    log = lmab.simulate(bandit, lmab.Uniform(4), n_sessions=4000, horizon=4, rng=1)
    by_em = lmab.fit(log, n_types=2, check=False, rng=1).bandit
    assert by_em.distance(bandit) < 0.5 * result.bandit.distance(bandit)


def test_each_session_plays_the_arms_equally_often(rng):
    run = lmab.learning.Run(Clustering(2), n_arms=3, horizon=7, n_sessions=50, rng=0)
    arms = run.ask().arms
    counts = np.array([np.bincount(row, minlength=3) for row in arms])
    assert counts.min() == 2
    assert counts.max() == 3
    short = lmab.learning.Run(Clustering(2), n_arms=9, horizon=4, n_sessions=50, rng=0).ask().arms
    assert all(len(set(row.tolist())) == 4 for row in short)  # no arm twice while others wait


def test_the_best_start_is_kept(rng):
    """Four groups on a line: a single start may merge two of them, ten starts do not."""
    truth = np.repeat([0.05, 0.35, 0.65, 0.95], 50)
    rewards = (rng.random((200, 40)) < truth[:, None]).astype(float)
    log = lmab.Sessions.from_arrays(np.zeros((200, 40), int), rewards, n_arms=1)
    found, loss = cluster(log, 4, 10, np.random.default_rng(0))
    singles = [cluster(log, 4, 1, np.random.default_rng(seed))[1] for seed in range(20)]
    assert loss <= min(singles[:1]) + 1e-12
    assert loss == pytest.approx(min(singles), rel=0.02)
    pairs = [len(set(found[group * 50 : (group + 1) * 50].tolist())) for group in (0, 3)]
    assert pairs == [1, 1]


@pytest.mark.parametrize("rewards", ["gaussian", "counts", "three values"])
def test_other_rewards_are_estimated_by_cluster(rewards, rng):
    if rewards == "gaussian":
        bandit = lmab.LatentBandit.gaussian([0.5, 0.5], [[2.0, 0.0], [-2.0, 1.0]], scale=0.5)
    elif rewards == "counts":
        bandit = lmab.LatentBandit.counts([0.5, 0.5], [[6.0, 1.0], [0.5, 3.0]])
    else:
        tables = [[[0.8, 0.1, 0.1], [0.1, 0.8, 0.1]], [[0.1, 0.1, 0.8], [0.8, 0.1, 0.1]]]
        bandit = lmab.LatentBandit.categorical([0.5, 0.5], tables, [0, 1, 5])
    family = None if rewards == "three values" else rewards
    environment = lmab.Simulator(bandit, horizon=40, rng=rng)
    result = lmab.learn(environment, Clustering(2), n_sessions=400, rng=rng, rewards=family, planner=lmab.QMDP())
    order = np.argsort(result.bandit.means[:, 0])
    np.testing.assert_allclose(result.bandit.means[order], bandit.means[np.argsort(bandit.means[:, 0])], atol=0.3)


def test_more_clusters_than_different_sessions_leave_some_empty():
    log = lmab.Sessions.from_arrays(np.zeros((6, 2), int), np.ones((6, 2)), n_arms=2)
    labels, loss = cluster(log, 3, 2, np.random.default_rng(0))
    assert loss == 0
    assert set(labels.tolist()) <= {0, 1, 2}
    bandit = lmab.LatentBandit.bernoulli([1.0], [[1.0, 1.0]])
    assert learned(bandit, horizon=2, n_sessions=5).bandit.n_types == 2


@pytest.mark.parametrize("options", [{"n_types": 0}, {"restarts": 0}])
def test_bad_configuration(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
        Clustering(**{"n_types": 2, **options})


def test_fewer_sessions_than_types_are_refused_before_playing():
    with pytest.raises(ValueError, match="n_sessions must leave at least 2 sessions"):
        learned(two_types(0.5), horizon=4, n_sessions=1)
