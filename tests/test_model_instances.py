from __future__ import annotations

import numpy as np
import pytest
from seeds import generator

import lmab

KINDS = ["spherical", "ordinary", "spread", "hard", "deep"]


@pytest.mark.parametrize("kind", KINDS)
def test_same_seed_same_bandit(kind):
    first, second, third = (lmab.random_bandit(4, 20, kind=kind, rng=np.random.default_rng(s)) for s in (1, 1, 2))
    assert first == second
    assert first != third
    assert (first.n_types, first.n_arms) == (4, 20)


@pytest.mark.parametrize("n_types", [4, 7, 10])
def test_spherical_means_have_the_asked_rank(rng, n_types):
    bandit = lmab.random_bandit(n_types, 50, rng=rng)
    assert np.linalg.matrix_rank(bandit.means) == 4
    np.testing.assert_allclose(bandit.weights, 1 / n_types)
    assert np.linalg.matrix_rank(lmab.random_bandit(n_types, 50, rank=3, rng=rng).means) == 3


@pytest.mark.parametrize("kind", ["ordinary", "spread"])
def test_mixtures_stay_in_the_hull_of_their_base(rng, kind):
    bandit = lmab.random_bandit(9, 30, kind=kind, rng=rng)
    assert np.linalg.matrix_rank(bandit.means) == 4


def test_spread_types_lie_further_apart_than_ordinary_ones():
    def spread(kind):
        bandits = [lmab.random_bandit(6, 30, kind=kind, rng=generator(seed)) for seed in range(20)]
        return np.mean([bandit.means.std(axis=0).mean() for bandit in bandits])

    assert spread("spread") > spread("ordinary")


@pytest.mark.parametrize("kind", ["hard", "deep"])
def test_hard_kinds_pay_for_information(kind):
    """Greedy never leaves the safe arm; probing first and then the type's own arm does much better."""
    for seed in range(5):
        bandit = lmab.random_bandit(4, 20, kind=kind, rng=generator(seed))
        greedy = lmab.evaluate(lmab.Greedy(bandit), bandit, horizon=10).mean
        full = 10 * float(bandit.weights @ bandit.means.max(axis=1))
        assert greedy < 0.75 * full
        assert (bandit.means.max(axis=1) > 0.9).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_types": 0, "n_arms": 5}, "n_types must be an integer of at least 1, got 0"),
        ({"n_types": 2, "n_arms": 0}, "n_arms must be"),
        ({"n_types": 2, "n_arms": 5, "kind": "odd"}, "kind must be 'spherical', .* or 'deep', got 'odd'"),
        ({"n_types": 2, "n_arms": 5, "rank": 1}, "rank must be an integer of at least 2"),
        ({"n_types": 8, "n_arms": 11, "kind": "hard"}, "n_arms must be at least 12 here"),
    ],
)
def test_bad_input(arguments, message, rng):
    with pytest.raises(ValueError, match=message):
        lmab.random_bandit(**arguments, rng=rng)


def test_a_generator_is_required():
    with pytest.raises(ValueError, match="rng must be"):
        lmab.random_bandit(2, 3, rng=-1)
    assert lmab.random_bandit(2, 3, rng=42) == lmab.random_bandit(2, 3, rng=np.random.default_rng(42))
