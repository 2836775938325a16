"""Masked replay: a policy replayed among the arms that each session logged."""

from __future__ import annotations

import numpy as np
import pytest

import lmab
from lmab.evaluation import masked_replay
from lmab.evaluation.masked_replay import masked_gains, popularity_of


def by_hand(bandit: lmab.LatentBandit, popularity: np.ndarray, session: list[tuple[int, float]]) -> float | None:
    """One session by its definition."""
    paid: dict[int, float] = {}
    for arm, reward in session:
        paid.setdefault(arm, reward)
    steps, history, total = len(paid) // 2, [], 0.0
    if not steps:
        return None
    for _ in range(steps):
        weights = bandit.weights.copy()
        for arm, reward in history:
            weights = weights * (bandit.means[:, arm] if reward else 1 - bandit.means[:, arm])
        left = [arm for arm in sorted(paid) if arm not in dict(history)]
        best = max(left, key=lambda arm: weights @ bandit.means[:, arm])
        history.append((best, paid[best]))
        total += paid[best]
    popular = sorted(paid, key=lambda arm: -popularity[arm])[:steps]
    return total - sum(paid[arm] for arm in popular)


@pytest.mark.parametrize("cells", [1 << 22, 20])
def test_gains_are_those_of_the_definition(rng, monkeypatch, cells):
    monkeypatch.setattr(masked_replay, "_CELLS", cells)  # in one part, or in many
    bandit = lmab.random_bandit(3, 6, rng=rng)
    log = lmab.Sessions.from_arrays(rng.integers(6, size=(80, 7)), rng.integers(2, size=(80, 7)) * 1.0, n_arms=6)
    log += lmab.Sessions.from_arrays([[2, 2, 2]], [[1.0, 0.0, 1.0]], n_arms=6)  # one arm leaves no choice
    log += lmab.Sessions.from_arrays(rng.integers(6, size=(40, 3)), rng.integers(2, size=(40, 3)) * 1.0, n_arms=6)
    popularity = popularity_of(log)
    expected = []
    for i in range(len(log)):
        steps = slice(log.offsets[i], log.offsets[i + 1])
        session = list(zip(log.arms[steps].tolist(), log.rewards[steps].tolist(), strict=True))
        expected.append(by_hand(bandit, popularity, session))
    np.testing.assert_allclose(masked_gains(bandit, popularity, log), [gain for gain in expected if gain is not None])
    assert expected[80] is None


def test_popularity_has_one_pseudo_play_of_the_average_arm():
    log = lmab.Sessions.from_arrays([[0, 0, 1]], [[1.0, 0.0, 1.0]], n_arms=3)
    np.testing.assert_allclose(popularity_of(log), [(1 + 2 / 3) / 3, (1 + 2 / 3) / 2, 2 / 3])


def test_a_session_earns_more_where_types_differ(rng):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.8, 0.1, 0.2], [0.1, 0.1, 0.9, 0.9]])
    arms = np.array([rng.permutation(4) for _ in range(2000)])
    type_ = rng.integers(2, size=(2000, 1))
    log = lmab.Sessions.from_arrays(arms, (rng.random(arms.shape) < bandit.means[type_, arms]) * 1.0)
    gains = masked_gains(bandit, popularity_of(log), log)
    assert gains.mean() > 5 * gains.std() / np.sqrt(len(gains))
