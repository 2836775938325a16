"""Step effects of a bandit: all functions that use the model agree with enumeration of histories."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from tiny_problems import draw

import lmab
from lmab import LatentBandit, Sessions
from lmab.errors import InvalidArgument
from lmab.evaluation.value import outlook
from lmab.model import belief

EFFECTS = [0.0, -0.7, 0.4]


def bandit(rng: np.random.Generator, *, n_types: int = 2, n_arms: int = 2, leaving: bool = False) -> LatentBandit:
    probabilities = rng.dirichlet(np.ones(3), (n_types, n_arms))
    left = rng.uniform(0, 0.5, probabilities.shape) if leaving else None
    weights = rng.dirichlet(np.ones(n_types))
    return LatentBandit.categorical(weights, probabilities, [-1.0, 0.0, 2.0], leaving=left, step_effects=EFFECTS)


def table(one: LatentBandit, step: int) -> np.ndarray:
    """Return P(value | type, arm) at a step, from the definition."""
    effect = EFFECTS[min(step, len(EFFECTS) - 1)]
    tilted = one.rewards.probabilities * np.exp(effect * one.rewards.values)
    return tilted / tilted.sum(axis=2, keepdims=True)


def enumerated(one: LatentBandit, policy: lmab.Policy, horizon: int) -> float:
    """Return the value of a deterministic policy by enumeration of all reward sequences."""
    total, values = 0.0, one.rewards.values
    for places in itertools.product(range(len(values)), repeat=horizon):
        mass, history, paid = one.weights.copy(), [], 0.0
        for step, place in enumerate(places):
            arm = policy.act_on(history)
            mass = mass * table(one, step)[:, arm, place]
            history.append((arm, float(values[place])))
            paid += values[place]
        total += mass.sum() * paid
    return total


def test_rewards_of_a_step_are_tilted(rng):
    one = bandit(rng)
    for step in range(5):
        np.testing.assert_allclose(one.at(step).rewards.probabilities, table(one, step), rtol=1e-14)
    assert one.at(2) == one.at(9)
    counts = LatentBandit.counts([1.0], [[2.0]], step_effects=[0.0, 0.5])
    assert counts.at(1).means[0, 0] == pytest.approx(2 * np.exp(0.5), rel=1e-14)
    normal = LatentBandit.gaussian([1.0], [[2.0]], scale=3.0, step_effects=[0.0, 0.5])
    assert normal.at(1).means[0, 0] == pytest.approx(2 + 0.5 * 9, rel=1e-14)


def test_tilted_densities_follow_the_definition():
    grid = np.arange(60.0)
    for one in (LatentBandit.counts([1.0], [[2.5]]).rewards, LatentBandit.gaussian([1.0], [[2.5]], scale=1.5).rewards):
        points = grid if one.family == "counts" else np.linspace(-12, 20, 2001)
        logs = one.log_likelihood(np.zeros(len(points), int), points)[:, 0] + 0.3 * points
        direct = np.exp(logs - logs.max())
        tilted = one.tilted(0.3).likelihood(np.zeros(len(points), int), points)[:, 0]
        np.testing.assert_allclose(tilted / tilted.sum(), direct / direct.sum(), atol=1e-12)


@pytest.mark.parametrize("effects", [[], [1.0, 0.0], [[0.0]], [0.0, np.nan]])
def test_wrong_effects_are_refused(effects):
    with pytest.raises(InvalidArgument, match="step_effects"):
        LatentBandit.bernoulli([1.0], [[0.5]], step_effects=effects)


def test_functions_of_one_step_ask_for_it(rng):
    one = bandit(rng)
    for call in (one.channel, lambda: one.outcomes(2), lambda: one.evidence(np.array([0]), np.array([0.0]))):
        with pytest.raises(InvalidArgument, match="step"):
            call()
    with pytest.raises(InvalidArgument, match="step must be given"):
        belief.update(one, one.weights, 0, 2.0)


def test_belief_follows_bayes(rng):
    one = bandit(rng)
    history = [(0, 2.0), (1, -1.0), (0, 0.0), (1, 2.0)]
    mass = one.weights.copy()
    for step, (arm, reward) in enumerate(history):
        mass = mass * table(one, step)[:, arm, list(one.rewards.values).index(reward)]
    sessions = Sessions.from_arrays([[arm for arm, _ in history]], [[reward for _, reward in history]])
    np.testing.assert_allclose(belief.posterior(one, sessions)[0], mass / mass.sum(), rtol=1e-12)
    assert np.logaddexp.reduce(belief.log_joint(one, sessions)[0]) == pytest.approx(np.log(mass.sum()), rel=1e-12)
    policy = lmab.Greedy(one)
    state = policy.start()
    for arm, reward in history:
        state = policy.observe(state, arm, reward)
    np.testing.assert_allclose(policy.belief(state), mass / mass.sum(), rtol=1e-12)
    steps = list(belief.predictive_beliefs(one, sessions))
    after = steps[3][1][0] * table(one, 3)[:, 1, 2]
    np.testing.assert_allclose(after / after.sum(), mass / mass.sum(), rtol=1e-12)


def test_late_rewards_count_at_their_step(rng):
    one = bandit(rng)
    policy = lmab.Greedy(one)
    state = policy.observe(policy.observe(policy.start(), 0, None), 1, 2.0)
    with pytest.raises(InvalidArgument, match="step"):
        policy.tell(state, 0, -1.0)
    late = policy.tell(state, 0, -1.0, step=0)
    at_once = policy.observe(policy.observe(policy.start(), 0, -1.0), 1, 2.0)
    np.testing.assert_allclose(policy.belief(late), policy.belief(at_once), rtol=1e-12)


@pytest.mark.parametrize("method", [lmab.Exact(), lmab.Certified(gap=1e-6), lmab.QMDP()])
def test_exact_value_is_that_of_enumeration(rng, method):
    one = bandit(rng)
    plan = lmab.plan(one, horizon=4, method=method)
    value = lmab.evaluate(plan, one, horizon=4)
    assert value.exact
    assert value.mean == pytest.approx(enumerated(one, plan.policy, 4), rel=1e-12)
    assert plan.lower - 1e-9 <= value.mean <= plan.upper + 1e-9


def test_random_policies_have_exact_values(rng):
    one = bandit(rng)
    means = sum((one.weights @ (table(one, step) @ one.rewards.values)).mean() for step in range(4))
    assert lmab.evaluate(lmab.Uniform(2), one, horizon=4).mean == pytest.approx(means, rel=1e-12)


@pytest.mark.parametrize("leaving", [False, True])
def test_simulation_has_the_means_of_each_step(rng, leaving):
    one = bandit(rng, leaving=leaving)
    n = 40_000
    log = lmab.simulate(one, np.tile([0, 1, 0, 1], (n, 1)), rng=rng)
    played = lmab.simulate(one, lmab.policies.Ranking([0, 1], horizon=4), n_sessions=n, horizon=4, rng=rng)
    expected = outlook(lmab.policies.Ranking([0, 1], horizon=4), one, 4)
    for step in range(4):
        own = np.where(played.steps == step)[0]
        total = played.rewards[own].sum() / n
        assert total == pytest.approx(float(one.weights @ expected[step]), abs=5 * 1.5 / np.sqrt(n))
        if not leaving:
            mean = one.weights @ (table(one, step)[:, step % 2] @ one.rewards.values)
            assert log.rewards.reshape(n, 4)[:, step].mean() == pytest.approx(mean, abs=5 * 1.5 / np.sqrt(n))


@pytest.mark.parametrize("leaving", [False, True])
@pytest.mark.parametrize("repeats", [False, True])
def test_fixed_choices_and_known_types_are_those_of_enumeration(rng, leaving, repeats):
    one = bandit(rng, n_arms=3, leaving=leaving)
    horizon = 3
    stays = [1 - (table(one, t) * (0 if one.leaving is None else one.leaving)).sum(axis=2) for t in range(horizon)]

    def earned(arms: tuple[int, ...]) -> np.ndarray:
        total, alive = np.zeros(2), np.ones(2)
        for step, arm in enumerate(arms):
            total += alive * (table(one, step)[:, arm] @ one.rewards.values)
            alive = alive * stays[step][:, arm]
        return total

    everything = list(itertools.product(range(3), repeat=horizon))
    orders = list(itertools.permutations(range(3), horizon))
    fixed = [(arm,) * horizon for arm in range(3)] if repeats else orders
    best = max(float(one.weights @ earned(arms)) for arms in fixed)
    known = one.weights @ np.max([earned(arms) for arms in (everything if repeats else orders)], axis=0)
    arms = one.best_fixed_arms(horizon, repeats)
    played = arms * horizon if repeats else arms
    assert one.best_fixed(horizon, repeats) == pytest.approx(float(one.weights @ earned(played)), rel=1e-12)
    if leaving and not repeats:  # a beam search and a bound with repeats
        assert one.best_fixed(horizon, repeats) <= best + 1e-12
        assert one.known_type(horizon, repeats) >= known - 1e-12
    else:
        assert one.best_fixed(horizon, repeats) == pytest.approx(best, rel=1e-12)
        assert one.known_type(horizon, repeats) == pytest.approx(float(known), rel=1e-12)


def test_effects_are_kept_by_files_and_changes_of_arms_and_types(rng, tmp_path):
    one = bandit(rng)
    one.save(tmp_path / "one.lmab")
    again = lmab.load(tmp_path / "one.lmab")
    assert again == one
    assert again != LatentBandit(one.weights, one.rewards)
    for other in (one.relabel(types=[1, 0]), one.only_arms([1]), one.with_arms(["new"])):
        assert other.step_effects.tolist() == EFFECTS
    assert one.distance(one.relabel(types=[1, 0])) == pytest.approx(0.0, abs=1e-12)
    stationary = LatentBandit(one.weights, one.rewards)
    assert one.distance(stationary) > 0.01


def test_policies_of_plans_are_restored(rng, tmp_path):
    one = bandit(rng)
    for plan in (lmab.plan(one, horizon=4), lmab.plan(one, horizon=4, method=lmab.Exact())):
        plan.save(tmp_path / "plan.lmab")
        again = lmab.load(tmp_path / "plan.lmab")
        for history in itertools.product(itertools.product(range(2), one.rewards.values.tolist()), repeat=3):
            assert again.policy.act_on(list(history)) == plan.policy.act_on(list(history))
        compact = plan.policy.compact() if hasattr(plan.policy, "compact") else None
        if compact is not None:
            state, seen = compact.start(), list[tuple[int, float]]()
            for reward in (2.0, -1.0, 0.0):
                arm = compact.act(state)
                assert arm == plan.policy.act_on(seen)
                state, seen = compact.observe(state, arm, reward), [*seen, (arm, reward)]


def test_off_policy_estimates_use_the_model_of_each_step(rng):
    one = bandit(rng)
    log = lmab.simulate(one, lmab.Uniform(2), n_sessions=4000, horizon=4, rng=rng)
    value = lmab.evaluate(lmab.Greedy(one), log, horizon=4, model=one, rng=rng)
    exact = lmab.evaluate(lmab.Greedy(one), one, horizon=4).mean
    assert value.interval[0] < exact < value.interval[1] or abs(value.mean - exact) < 4 * value.stderr
    control = lmab.evaluate(lmab.Uniform(2), log, horizon=4, model=one, rng=rng)
    assert control.mean == pytest.approx(lmab.evaluate(lmab.Uniform(2), one, horizon=4).mean, abs=4 * control.stderr)


def test_a_tilt_by_zero_changes_nothing(rng):
    one = bandit(rng)
    plain = LatentBandit(one.weights, one.rewards)
    zero = LatentBandit(one.weights, one.rewards, step_effects=[0.0, 0.0])
    a, b = lmab.plan(plain, horizon=5), lmab.plan(zero, horizon=5)
    assert a.lower == pytest.approx(b.lower, rel=1e-12)
    assert a.upper == pytest.approx(b.upper, rel=1e-12)


def test_tiny_problems_with_step_effects_are_of_every_kind():
    drawn = [draw(seed, step_effects=True).problem for seed in range(20_000, 20_040)]
    assert {one.bandit.rewards.family for one in drawn} == {"categorical", "gaussian", "counts"}
    assert any(one.bandit.leaving is not None for one in drawn)
    assert any(not one.is_stationary for one in drawn)
    assert any(one.priors is not None for one in drawn)
