from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from policies import always, in_turn
from seeds import generator

import lmab
from lmab import LatentBandit, Uniform, simulate
from lmab.errors import InvalidArgument
from lmab.simulation import draw_types


def test_same_seed_same_sessions(rng):
    bandit = lmab.random_bandit(3, 5, rng=rng)
    for policy in (lmab.Uniform(5), lmab.Greedy(bandit), lmab.Thompson(bandit)):
        first, second = (lmab.simulate(bandit, policy, n_sessions=100, horizon=4, rng=generator(9)) for _ in range(2))
        assert first == second


def test_types_stay_for_the_whole_session(rng):
    bandit = LatentBandit.bernoulli([0.25, 0.75], [[0.0], [1.0]])
    rewards = lmab.simulate(bandit, always(0, 1), n_sessions=20_000, horizon=3, rng=rng).to_arrays()[1]
    assert (rewards.min(axis=1) == rewards.max(axis=1)).all()
    given = lmab.simulate(bandit, np.zeros((1000, 3), int), rng=rng).to_arrays()[1]
    assert (given.min(axis=1) == given.max(axis=1)).all()
    assert 0 < given.mean() < 1
    assert abs(rewards[:, 0].mean() - 0.75) < 5 * np.sqrt(0.25 * 0.75 / 20_000)


def test_policies_see_their_own_session(rng):
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[1.0, 0.0], [0.0, 0.9]])
    arms, rewards = lmab.simulate(bandit, lmab.Greedy(bandit), n_sessions=5000, horizon=3, rng=rng).to_arrays()
    lost = rewards[:, 0] == 0
    assert (arms[:, 0] == 0).all()
    np.testing.assert_array_equal(arms[:, 1], lost.astype(int))


def test_arrays_of_arms_are_played_as_given(rng):
    bandit = lmab.random_bandit(2, 4, rng=rng)
    arms = rng.integers(4, size=(10, 3))
    sessions = lmab.simulate(bandit, arms, rng=rng)
    np.testing.assert_array_equal(sessions.to_arrays()[0], arms)
    assert sessions.n_arms == 4


def test_uniform_exploration_logs_its_propensities(rng):
    bandit = lmab.random_bandit(2, 4, rng=rng)
    assert (lmab.simulate(bandit, lmab.Uniform(4), n_sessions=3, horizon=2, rng=rng).propensities == 0.25).all()
    assert lmab.simulate(bandit, always(0, 4), n_sessions=3, horizon=2, rng=rng).propensities is None


def test_simulator_counts_what_it_spends(rng):
    environment = lmab.Simulator(lmab.random_bandit(2, 4, rng=rng), horizon=3, rng=rng)
    environment.play(np.zeros((5, 2), int))
    environment.run(lmab.Uniform(4), 7)
    assert (environment.sessions_used, environment.steps_used) == (12, 31)
    with pytest.raises(ValueError, match="at most 3 columns, got 4"):
        environment.play(np.zeros((5, 4), int))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policy": lmab.Uniform(4), "n_sessions": 0, "horizon": 2}, "n_sessions must be an integer of at least 1"),
        ({"policy": lmab.Uniform(4), "n_sessions": 1, "horizon": 0}, "horizon must be an integer of at least 1, got 0"),
        ({"policy": lmab.Uniform(4), "n_sessions": 1}, "horizon must be an integer of at least 1, got None"),
        ({"policy": lmab.Uniform(3), "n_sessions": 1, "horizon": 2}, "policy must be for 4 arms, got one for 3"),
        ({"policy": in_turn(0, n_arms=4), "n_sessions": 1, "horizon": 2}, "at most the policy's 1, got 2"),
        ({"policy": [[4]]}, r"arms in 0\.\.3, got 4 to 4"),
        ({"policy": [[0, 1]], "n_sessions": 2}, r"\(n_sessions, horizon\) = \(2, 2\), got \(1, 2\)"),
        ({"policy": "greedy"}, "policy must be a Policy or an"),
    ],
)
def test_bad_input(arguments, message, rng):
    with pytest.raises(ValueError, match=message):
        lmab.simulate(lmab.random_bandit(2, 4, rng=rng), rng=rng, **arguments)


def test_large_simulations_come_in_chunks_of_the_right_sizes(monkeypatch, rng):
    monkeypatch.setattr("lmab.simulation._CHUNK", 7)
    bandit = LatentBandit.bernoulli([0.25, 0.75], [[0.0, 0.5], [1.0, 0.5]])
    log = lmab.simulate(bandit, lmab.Greedy(bandit), n_sessions=20, horizon=3, rng=rng)
    assert (len(log), log.n_steps, log.horizon) == (20, 60, 3)


def test_types_are_drawn_by_their_weights(rng):
    bandit = LatentBandit.bernoulli([0.2, 0.0, 0.5, 0.3], np.zeros((4, 1)))
    counts = np.bincount(draw_types(bandit, 40_000, rng), minlength=4) / 40_000
    np.testing.assert_allclose(counts, bandit.weights, atol=0.012)
    assert counts[1] == 0


def test_labels_and_the_last_steps_are_kept(rng):
    rewards = LatentBandit.bernoulli([1.0], [[0.0, 1.0]]).rewards
    bandit = LatentBandit([1.0], rewards, ("tea", "milk"))
    log = lmab.simulate(bandit, [[0, 1], [1, 1]], rng=rng)
    assert log.arm_labels == ("tea", "milk")
    assert log.rewards.tolist() == [0.0, 1.0, 1.0, 1.0]
    with pytest.raises(ValueError, match=r"arms in 0\.\.1, got -1 to 1"):
        lmab.simulate(bandit, [[-1, 1]], rng=rng)
    with pytest.raises(ValueError, match=r"= \(1, 3\), got \(1, 2\)"):
        lmab.simulate(bandit, [[0, 1]], horizon=3, rng=rng)


def test_a_simulator_plays_up_to_its_horizon(rng):
    bandit = lmab.random_bandit(2, 4, rng=rng)
    environment = lmab.Simulator(bandit, horizon=3, rng=rng)
    assert environment.n_arms == 4
    assert environment.play(np.zeros((2, 3), int)).horizon == 3
    assert environment.run(lmab.Uniform(4, horizon=3), 5).horizon == 3
    assert environment.steps_used == 21


PRIOR = {"de": [0.9, 0.1], "fr": [0.2, 0.8]}


def test_types_follow_the_features():
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[1.0], [0.0]])  # the reward shows the type
    prior = lmab.TypePrior.by_value("country", PRIOR)
    log = simulate(bandit, Uniform(1), n_sessions=20_000, horizon=1, type_prior=prior, rng=generator(1))
    countries = log.features["country"]
    for country, weights in PRIOR.items():
        here = log.rewards[countries == country]
        assert abs(here.mean() - weights[0]) < 4 * np.sqrt(weights[0] * weights[1] / len(here))
    again = simulate(bandit, [[0]] * 3, type_prior=prior, features={"country": ["de", "fr", "xx"]}, rng=0)
    assert again.features["country"].tolist() == ["de", "fr", "xx"]


@pytest.mark.parametrize("keep", [0.0, 0.6, 1.0])
def test_people_who_come_back_keep_their_type_or_not(keep):
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[1.0], [0.0]])
    prior = lmab.TypePrior.constant([0.3, 0.7], keep=keep)
    persons = np.repeat(np.arange(5000), 3)
    log = simulate(
        bandit, Uniform(1), n_sessions=15_000, horizon=1, type_prior=prior, persons=persons, rng=generator(2)
    )
    assert log.persons.tolist() == persons.tolist()
    types = log.rewards.reshape(-1, 3)
    same = (types[:, 1:] == types[:, :-1]).mean()
    expected = keep + (1 - keep) * (0.3**2 + 0.7**2)
    assert abs(same - expected) < 0.02


def test_what_a_type_prior_needs():
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.9], [0.1]])
    with pytest.raises(InvalidArgument, match="features and persons must be given with a type_prior"):
        simulate(bandit, [[0]], persons=[1], rng=0)
    with pytest.raises(InvalidArgument, match="type_prior must have the bandit's 2 types, got 3"):
        simulate(bandit, [[0]], type_prior=lmab.TypePrior.constant([0.2, 0.3, 0.5]), rng=0)
    with pytest.raises(InvalidArgument, match=r"features must be a mapping.*got a DataFrame"):
        simulate(
            bandit, [[0]], type_prior=lmab.TypePrior.constant([0.5, 0.5]), features=pd.DataFrame({"a": [1]}), rng=0
        )
    with pytest.raises(InvalidArgument, match="type_prior must be a TypePrior or None, got a list"):
        simulate(bandit, [[0]], type_prior=[0.5, 0.5], rng=0)  # type: ignore[call-overload]
    plan = lmab.plan(bandit, horizon=1)
    with pytest.raises(InvalidArgument, match=r"policy must be a Policy or an \(n, H\) array of arms, got Plan$"):
        simulate(bandit, plan, n_sessions=1, horizon=1, type_prior=lmab.TypePrior.constant([0.5, 0.5]), rng=0)  # type: ignore[call-overload]


@pytest.mark.parametrize(("given", "kind"), [("uniform", "str"), (3, "int"), ([[0.5]], "list"), ({}, "dict")])
def test_what_is_no_policy_is_named_by_its_kind(given, kind):
    bandit = LatentBandit.bernoulli([1.0], [[0.2, 0.8]])
    with pytest.raises(InvalidArgument, match=rf"policy must be a Policy or an \(n, H\) array of arms, got {kind}$"):
        simulate(bandit, given, n_sessions=3, horizon=2, rng=0)
