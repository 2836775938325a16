from __future__ import annotations

from dataclasses import replace

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from policies import always, in_turn
from strategies import bandits

import lmab
from lmab import LatentBandit
from lmab.errors import InvalidArgument, TooLarge
from lmab.evaluation import value as evaluation


@given(bandits(), st.integers(1, 4), st.sampled_from(["greedy", "mucb", "sequence", "stationary"]))
def test_exact_values_agree_with_the_oracle(bandit, horizon, which):
    policy = {
        "greedy": lambda: lmab.Greedy(bandit),
        "mucb": lambda: lmab.policies.MUCB(bandit),
        "sequence": lambda: in_turn(*(t % bandit.n_arms for t in range(horizon)), n_arms=bandit.n_arms),
        "stationary": lambda: always(bandit.n_arms - 1, bandit.n_arms),
    }[which]()
    got = lmab.evaluate(policy, bandit, horizon=horizon)
    family = bandit.rewards
    expected = oracle.policy_value(bandit.weights, family.probabilities, family.values.tolist(), policy.act_on, horizon)
    assert got.mean == pytest.approx(expected, abs=1e-12)
    assert got.exact
    assert got.stderr == 0.0
    assert got.per_step.sum() == pytest.approx(got.mean, abs=1e-12)


@given(bandits(max_values=2), bandits(max_values=2), st.integers(1, 4))
def test_a_policy_of_one_model_on_another(model, truth, horizon):
    if model.n_arms != truth.n_arms:
        return
    truth = LatentBandit.categorical(truth.weights, truth.rewards.probabilities, model.rewards.values)
    policy = lmab.Greedy(model)
    expected = oracle.policy_value(
        truth.weights, truth.rewards.probabilities, truth.rewards.values.tolist(), policy.act_on, horizon
    )
    assert lmab.evaluate(policy, truth, horizon=horizon).mean == pytest.approx(expected, abs=1e-12)


def test_published_values_of_feldman_1962():
    symmetric = LatentBandit.bernoulli([0.5, 0.5], [[0.7, 0.4], [0.4, 0.7]])
    greedy = lmab.Greedy(symmetric)
    assert lmab.evaluate(greedy, symmetric, horizon=5).mean == pytest.approx(2.980355, abs=1e-9)
    assert lmab.evaluate(greedy, symmetric, horizon=10).mean == pytest.approx(6.1767271963, abs=1e-9)
    lopsided = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    assert lmab.evaluate(lmab.Greedy(lopsided), lopsided, horizon=5).mean == pytest.approx(3.0183, abs=1e-9)


def test_greedy_on_the_instance_that_needs_probing():
    bandit = LatentBandit.bernoulli([0.4, 0.35, 0.25], np.random.default_rng(11).uniform(0.05, 0.95, (3, 8)))
    assert lmab.evaluate(lmab.Greedy(bandit), bandit, horizon=4).mean == pytest.approx(2.544, abs=5e-4)
    best = int((bandit.weights @ bandit.means).argmax())
    assert lmab.evaluate(always(best, bandit.n_arms), bandit, horizon=4).mean == pytest.approx(2.266, abs=5e-4)


def test_simulation_agrees_with_the_exact_value(rng):
    bandit = lmab.random_bandit(4, 10, rng=rng)
    exact = lmab.evaluate(lmab.Greedy(bandit), bandit, horizon=6)
    simulated = lmab.evaluate(lmab.Greedy(bandit), bandit, horizon=6, n_sessions=50_000, rng=rng)
    assert 0 < simulated.stderr < 0.02
    assert abs(simulated.mean - exact.mean) < 5 * simulated.stderr
    np.testing.assert_allclose(simulated.per_step, exact.per_step, atol=0.02)
    assert simulated.n_sessions == 50_000


def test_the_standard_error_is_honest(rng):
    bandit = lmab.random_bandit(4, 10, rng=rng)
    exact = lmab.evaluate(lmab.Greedy(bandit), bandit, horizon=4).mean
    runs = [lmab.evaluate(lmab.Greedy(bandit), bandit, horizon=4, n_sessions=200, rng=rng) for _ in range(200)]
    scores = np.array([(run.mean - exact) / run.stderr for run in runs])
    assert 0.85 < scores.std() < 1.15


def test_merging_by_counts_reaches_horizons_that_a_tree_cannot(rng):
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.7, 0.4], [0.4, 0.7]])
    result = lmab.evaluate(lmab.Greedy(bandit), bandit, horizon=40)
    assert result.n_nodes is not None
    assert result.n_nodes < 100_000
    check = lmab.evaluate(lmab.Greedy(bandit), bandit, horizon=40, n_sessions=100_000, rng=rng)
    assert abs(result.mean - check.mean) < 5 * check.stderr


def test_open_loop_policies_are_exact_even_with_continuous_rewards():
    bandit = LatentBandit.gaussian([0.25, 0.75], [[1.0, 0.0], [0.0, 2.0]])
    assert lmab.evaluate(always(1), bandit, horizon=3).mean == pytest.approx(4.5)
    np.testing.assert_allclose(lmab.evaluate(in_turn(0, 1), bandit, horizon=2).per_step, [0.25, 1.5])


def test_gaussian_by_simulation(rng):
    bandit = LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]], scale=0.01)
    result = lmab.evaluate(lmab.Greedy(bandit), bandit, horizon=2, n_sessions=20_000, rng=rng)
    assert abs(result.mean - 1.5) < 5 * result.stderr + 1e-12


def test_too_many_histories_are_refused_with_their_number(monkeypatch):
    monkeypatch.setattr(evaluation, "NODE_LIMIT", 4)
    bandit = lmab.random_bandit(4, 10, rng=np.random.default_rng(20221012))
    with pytest.raises(
        TooLarge, match=r"can meet 5 different histories of 4 steps, more than 4: give n_sessions and rng"
    ):
        lmab.evaluate(lmab.Greedy(bandit), bandit, horizon=6)


@pytest.mark.parametrize(
    ("policy", "arguments", "message"),
    [
        (lmab.Uniform(4), {"horizon": 2, "n_sessions": 10}, "rng must be given"),
        (lmab.Uniform(4), {"horizon": 0}, "horizon must be an integer of at least 1, got 0"),
        (always(0, 4), {"horizon": 2, "n_sessions": 0}, "n_sessions must be an integer of at least 2"),
        (lmab.Uniform(5), {"horizon": 2}, "policy must be for 4 arms, got one for 5"),
    ],
)
def test_bad_input(policy, arguments, message, rng):
    with pytest.raises(ValueError, match=message):
        lmab.evaluate(policy, lmab.random_bandit(2, 4, rng=rng), **arguments)


@pytest.mark.parametrize("leaving", [False, True])
@pytest.mark.parametrize("kind", ["thompson", "exploring", "uniform", "ordered"])
def test_random_policies_have_the_value_of_brute_force(kind, leaving, rng):
    """All histories with the probabilities of the arms, whether or not the order of what was seen counts."""
    bandit = lmab.LatentBandit.categorical([0.3, 0.7], rng.dirichlet(np.ones(3), size=(2, 3)), [-1, 0, 2])
    if leaving:
        bandit = replace(bandit, leaving=0.7 * rng.random((2, 3, 3)))
    policy = {
        "thompson": lambda: lmab.Thompson(bandit),
        "exploring": lambda: lmab.policies.Exploring(lmab.Greedy(bandit), 0.3),
        "uniform": lambda: lmab.Uniform(3),
        "ordered": lambda: LastReward(3),
    }[kind]()
    table = bandit.rewards.probabilities * (1 if bandit.leaving is None else 1 - bandit.leaving)
    values = bandit.rewards.values.tolist()

    def total(mass, state, steps):
        if steps == 0:
            return 0.0
        found = 0.0
        for arm, share in enumerate(policy.distribution(state, n_arms=3)[0].tolist()):
            if share > 0:
                found += share * float(mass @ bandit.means[:, arm])
                for z, value in enumerate(values):
                    after = mass * table[:, arm, z]
                    found += share * total(after, policy.observe(state, [arm], [value]), steps - 1)
        return found

    found = lmab.evaluate(policy, bandit, horizon=4)
    assert found.exact
    assert found.mean == pytest.approx(total(bandit.weights, policy.start(1), 4), rel=1e-9)


class LastReward(lmab.Policy):
    """Plays at random, arm 0 more often after a reward of 2; only the last step counts."""

    kind = "last-reward"
    deterministic = False
    order_free = False

    def __init__(self, n_arms):
        self.n_arms, self.horizon = n_arms, None

    def _initial_memory(self):
        return np.zeros(1)

    def _remember(self, state, arms, rewards):
        return np.where(rewards == 2, 1.0, 0.0)[:, None]

    def distribution(self, state, *, n_arms):
        first = np.where(state.memory[:, 0] > 0, 0.8, 0.2)
        rest = np.repeat((1 - first)[:, None] / (n_arms - 1), n_arms - 1, axis=1)
        return np.column_stack([first, rest])

    def _choose(self, state, allowed, rng):
        raise NotImplementedError

    def record(self):
        raise NotImplementedError

    @classmethod
    def from_record(cls, record):
        raise NotImplementedError


def test_the_exact_value_of_a_random_policy_agrees_with_simulation(rng):
    bandit = lmab.random_bandit(3, 5, rng=rng)
    exact = lmab.evaluate(lmab.Thompson(bandit), bandit, horizon=4)
    drawn = lmab.evaluate(lmab.Thompson(bandit), bandit, horizon=4, n_sessions=200_000, rng=rng)
    assert abs(exact.mean - drawn.mean) < 4 * drawn.stderr
    np.testing.assert_allclose(exact.per_step, drawn.per_step, atol=0.01)


def test_too_many_histories_of_a_random_policy_are_refused(monkeypatch):
    monkeypatch.setattr(evaluation, "NODE_LIMIT", 100)
    bandit = lmab.random_bandit(3, 10, rng=0)
    with pytest.raises(TooLarge, match="more than 100: give n_sessions and rng"):
        lmab.evaluate(lmab.Thompson(bandit), bandit, horizon=6)
    assert lmab.evaluate(lmab.Uniform(10), bandit, horizon=6).exact  # one memory


def test_a_random_policy_that_names_no_probabilities_asks_for_simulation(rng):
    class Unknown(LastReward):
        kind = "unknown-chances"

        def distribution(self, state, *, n_arms):
            return lmab.Policy.distribution(self, state, n_arms=n_arms)

    with pytest.raises(lmab.errors.InvalidArgument, match="policy must define distribution"):
        lmab.evaluate(Unknown(4), lmab.random_bandit(2, 4, rng=rng), horizon=2)


def test_continuous_rewards_ask_for_simulation():
    bandit = LatentBandit.gaussian([1.0], [[0.0]])
    with pytest.raises(ValueError, match="rewards take more values than a walk over histories can follow"):
        lmab.evaluate(lmab.Greedy(bandit), bandit, horizon=2)


@given(bandits(max_types=3, max_arms=3), st.integers(0, 1000))
def test_relabelling_changes_no_value(bandit, seed):
    rng = np.random.default_rng(seed)
    types = rng.permutation(bandit.n_types)
    other = bandit.relabel(types=types)
    first = lmab.evaluate(always(0, bandit.n_arms), bandit, horizon=2).mean
    assert lmab.evaluate(always(0, bandit.n_arms), other, horizon=2).mean == pytest.approx(first, abs=1e-12)
    greedy = lmab.evaluate(lmab.Greedy(bandit), bandit, horizon=3).mean
    assert lmab.evaluate(lmab.Greedy(bandit), other, horizon=3).mean == pytest.approx(greedy, abs=1e-12)


def test_value_of_is_exact_where_there_is_an_exact_value_and_simulated_elsewhere(monkeypatch):
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.7, 0.4], [0.4, 0.7]])
    normal = LatentBandit.gaussian([0.25, 0.75], [[1.0, 0.0], [0.0, 2.0]])
    greedy = evaluation.value_of(lmab.Greedy(bandit), bandit, horizon=5, rng=0)
    assert (greedy.exact, greedy.mean) == (True, pytest.approx(2.980355))
    assert evaluation.value_of(always(1), normal, horizon=3, rng=0).exact
    monkeypatch.setattr(evaluation, "NODE_LIMIT", 3)
    cases = [(lmab.Greedy(bandit), bandit), (lmab.Thompson(bandit), bandit), (lmab.Greedy(normal), normal)]
    for policy, source in cases:
        found = evaluation.value_of(policy, source, horizon=5, n_sessions=3000, rng=7)
        asked = lmab.evaluate(policy, source, horizon=5, n_sessions=3000, rng=7)
        assert (found.n_sessions, found.mean, found.stderr) == (3000, asked.mean, asked.stderr)
    assert evaluation.value_of(lmab.Thompson(bandit), bandit, horizon=1, rng=7).n_sessions == evaluation.SESSIONS


def test_value_of_still_refuses_what_is_wrong():
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.7, 0.4], [0.4, 0.7]])
    with pytest.raises(InvalidArgument, match="policy must be for 2 arms, got one for 3"):
        evaluation.value_of(lmab.Uniform(3), bandit, horizon=2, rng=0)
    with pytest.raises(InvalidArgument, match="horizon must be an integer of at least 1"):
        evaluation.value_of(lmab.Greedy(bandit), bandit, horizon=0, rng=0)


def test_a_plan_is_evaluated_as_its_policy():
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    plan = lmab.plan(bandit, horizon=5, method=lmab.Exact())
    assert lmab.evaluate(plan, bandit, horizon=5).mean == lmab.evaluate(plan.policy, bandit, horizon=5).mean
    assert evaluation.value_of(plan, bandit, horizon=5, rng=0).mean == pytest.approx(3.35771)
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=2000, horizon=5, rng=0)
    assert lmab.evaluate(plan, log, horizon=5).mean == lmab.evaluate(plan.policy, log, horizon=5).mean


def test_arguments_in_the_wrong_place_are_named():
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    greedy = lmab.Greedy(bandit)
    with pytest.raises(
        InvalidArgument, match=r"policy must come before .*evaluate\(policy, bandit, .* got a LatentBandit"
    ):
        lmab.evaluate(bandit, greedy, horizon=5)
    with pytest.raises(InvalidArgument, match="policy must be a Policy or a Plan, got a str"):
        lmab.evaluate("greedy", bandit, horizon=5)
    with pytest.raises(InvalidArgument, match=r"source must be a LatentBandit or Sessions .* got a Greedy"):
        lmab.evaluate(greedy, greedy, horizon=5)


@pytest.mark.parametrize("seed", range(4))
def test_policies_that_care_for_order_are_followed_in_order(seed):
    """A table of all sequences, at random: histories with equal counts must not be taken for one."""
    from lmab.paper.history_ucbvi import HistoryPolicy

    rng = np.random.default_rng(seed)
    bandit = LatentBandit.bernoulli(rng.dirichlet(np.ones(3)), rng.random((3, 2)))
    policy = HistoryPolicy([0.0, 1.0], [rng.random((4**t, 2)) for t in range(4)])
    family = bandit.rewards
    expected = oracle.policy_value(bandit.weights, family.probabilities, [0.0, 1.0], policy.act_on, 4)
    assert lmab.evaluate(policy, bandit, horizon=4).mean == pytest.approx(expected, abs=1e-12)


def test_the_error_of_two_sessions_by_hand():
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]])
    values = {lmab.evaluate(always(0), bandit, horizon=3, n_sessions=2, rng=seed).mean for seed in range(20)}
    assert values == {0.0, 1.5, 3.0}
    mixed = next(
        found
        for seed in range(20)
        if (found := lmab.evaluate(always(0), bandit, horizon=3, n_sessions=2, rng=seed)).mean == 1.5
    )
    assert mixed.stderr == pytest.approx(1.5)  # sums 0 and 3: deviation 3 / sqrt(2), over sqrt(2)
    assert mixed.per_step.tolist() == [0.5, 0.5, 0.5]


def test_simulations_of_any_size_use_every_session(monkeypatch):
    bandit = LatentBandit.bernoulli([1.0], [[0.25, 0.5]])
    monkeypatch.setattr(evaluation, "_CHUNK", 4)
    for n in (3, 4, 5, 9):
        found = lmab.evaluate(always(1), bandit, horizon=2, n_sessions=n, rng=0)
        assert (found.mean, found.n_sessions) == (pytest.approx(1.0), n)


def test_a_log_is_not_simulated_and_a_bandit_has_no_methods_for_logs():
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    greedy = lmab.Greedy(bandit)
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=20, horizon=2, rng=0)
    with pytest.raises(InvalidArgument, match="n_sessions must be None for a log, got 10"):
        lmab.evaluate(greedy, log, horizon=2, n_sessions=10, rng=0)
    for option in ({"method": "doubly-robust"}, {"model": bandit}, {"fit_propensities": True}):
        with pytest.raises(InvalidArgument, match="method, model and fit_propensities are for a log, got a bandit"):
            lmab.evaluate(greedy, bandit, horizon=2, **option)
    assert "error unknown" in repr(evaluation.Evaluation(1.0, float("nan"), np.ones(2), n_sessions=3))


def test_the_outlook_of_a_type_without_weight_is_no_error(rng):
    bandit = LatentBandit.bernoulli([1.0, 0.0], [[0.9, 0.5], [0.1, 0.6]])
    found = evaluation.outlook(always(0), bandit, 2)
    np.testing.assert_allclose(found[:, 0], [0.9, 0.9])
    assert np.isfinite(found).all()
    simulated = evaluation.outlook(lmab.Uniform(2), bandit, 2, rng, n_sessions=3001)
    np.testing.assert_allclose(simulated, [[0.7, 0.35]] * 2, atol=0.03)
