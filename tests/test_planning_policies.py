"""Planned policies: masks, batches, graphs, files."""

from __future__ import annotations

import numpy as np
import pytest
from planning_cases import small_bandit
from seeds import generator

import lmab
from lmab import Certified, Exact
from lmab.errors import InvalidArgument, TooLarge
from lmab.planning import Lookahead
from lmab.policies import walk


@pytest.fixture
def bandit():
    return lmab.random_bandit(4, 10, kind="hard", rng=generator(1))


def optimal_values(bandit: lmab.LatentBandit, mass: np.ndarray, left: int) -> np.ndarray:
    """Q-values by plain recursion."""
    rewards = bandit.rewards
    values = mass @ bandit.means
    if left > 1:
        for code, row in enumerate(rewards.table):
            values[code // rewards.n_values] += optimal_values(bandit, mass * row, left - 1).max()
    return values


@pytest.mark.parametrize("seed", range(6))
def test_masked_exact_policies_play_the_best_allowed_arm(seed):
    bandit, _ = small_bandit(seed)
    horizon = 4
    policy = lmab.plan(bandit, horizon=horizon, method=Exact()).policy
    rng = generator(seed)
    for step in range(horizon):
        arms, rewards = rng.integers(bandit.n_arms, size=step), rng.choice(bandit.rewards.values, size=step)
        mass = bandit.weights * bandit.rewards.likelihood(arms, rewards).prod(axis=0)
        values = optimal_values(bandit, mass, horizon - step)
        for forbidden in range(bandit.n_arms):
            allowed = np.arange(bandit.n_arms) != forbidden
            arm = policy.act_on(list(zip(arms.tolist(), rewards.tolist(), strict=True)), allowed=allowed)
            assert allowed[arm]
            assert values[arm] == pytest.approx(values[allowed].max(), abs=1e-12)


@pytest.mark.parametrize("step", range(4))
def test_exact_values_at_every_step_are_the_optimal_ones(step):
    for seed in range(4):
        bandit, _ = small_bandit(seed)
        policy = lmab.plan(bandit, horizon=4, method=Exact()).policy
        rng = generator(seed)
        arms, rewards = rng.integers(bandit.n_arms, size=step), rng.choice(bandit.rewards.values, size=step)
        state = policy.start()
        for arm, reward in zip(arms.tolist(), rewards.tolist(), strict=True):
            state = policy.observe(state, arm, reward)
        mass = bandit.weights * bandit.rewards.likelihood(arms, rewards).prod(axis=0)
        np.testing.assert_allclose(policy.arm_values(state)[0], optimal_values(bandit, mass, 4 - step), atol=1e-12)


def test_exact_takes_as_many_states_as_it_says_and_no_fewer(bandit):
    with pytest.raises(TooLarge, match=r"Exact would need (\d+) states") as refused:
        lmab.plan(bandit, horizon=5, method=Exact(max_states=1))
    needed = int(str(refused.value).split()[3])
    with pytest.raises(TooLarge):
        lmab.plan(bandit, horizon=5, method=Exact(max_states=needed - 1))
    assert lmab.plan(bandit, horizon=5, method=Exact(max_states=needed)).status == "optimal"


def test_defaults_of_the_planners():
    assert Lookahead() == Lookahead(depth=1)
    assert Certified() == Certified(gap=0.01, absolute=0.0, n_beliefs=300, seed=0, memory_limit=4e9)
    assert Exact() == Exact(max_states=100_000_000)


def test_masked_vector_policies_follow_their_arm_values(bandit):
    policy = lmab.plan(bandit, horizon=5, method=Certified(gap=1e-6)).policy
    first = policy.act(policy.start())  # where the plan goes, its values are tight
    state = policy.observe(policy.start(), first, 1.0)
    arm = policy.act(state)
    values = policy.arm_values(state)[0]
    best = optimal_values(bandit, bandit.weights * bandit.rewards.likelihood(np.array([first]), np.array([1.0]))[0], 4)
    assert values[arm] == pytest.approx(best.max(), rel=1e-4)
    assert (values <= best + 1e-12).all()  # what the plans found are worth is never too high
    allowed = np.arange(10) != arm
    assert policy.act(state, allowed=allowed) == np.where(allowed, values, -np.inf).argmax()


def test_lookahead_as_deep_as_the_session_is_optimal():
    for seed in range(5):
        bandit, horizon = small_bandit(seed)
        exact = lmab.plan(bandit, horizon=horizon, method=Exact()).lower
        plan = lmab.plan(bandit, horizon=horizon, method=Lookahead(horizon))
        assert (plan.lower, plan.upper) == pytest.approx((exact, exact), abs=1e-12)
        assert lmab.evaluate(plan.policy, bandit, horizon=horizon).mean == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("method", [Certified(), Exact(), Lookahead()], ids=lambda method: type(method).__name__)
def test_the_graph_decides_what_its_policy_decides(bandit, method):
    policy = lmab.plan(bandit, horizon=5, method=method).policy
    graph = policy.graph()
    arms, successors = graph.arms, graph.successors
    for number in range(2**5):
        node, state = graph.root, policy.start()
        for step in range(5):
            assert arms[node] == policy.act(state)
            reward = float(number >> step & 1)
            state = policy.observe(state, arms[node], reward)
            if step < 4:
                node = successors[node][reward]
        assert successors[node] == {}


def test_graphs_hand_over_when_a_session_leaves_them(bandit):
    policy = lmab.plan(bandit, horizon=5).policy
    graph = policy.graph()
    first = graph.arms[graph.root]
    other = (first + 1) % 10
    assert graph.act_on([(other, 1.0), (first, 0.0)]) == policy.act_on([(other, 1.0), (first, 0.0)])
    allowed = np.arange(10) != first
    assert graph.act_on([], allowed=allowed) == policy.act_on([], allowed=allowed)
    assert lmab.evaluate(graph, bandit, horizon=5).mean == pytest.approx(
        lmab.evaluate(policy, bandit, horizon=5).mean, abs=1e-12
    )


def test_graphs_merge_what_behaves_alike_and_refuse_to_explode(bandit):
    policy = lmab.plan(bandit, horizon=5).policy
    assert len(policy.graph()) < 2**5 - 1
    sizes = [len(level.arms) for level in walk(policy, bandit, 5, limit=10**6, remedy="")]
    assert len(policy.graph(max_nodes=sum(sizes))) == len(policy.graph())
    with pytest.raises(
        TooLarge, match=rf"would need {sum(sizes)} nodes .* more than {sum(sizes) - 1}: raise max_nodes"
    ):
        policy.graph(max_nodes=sum(sizes) - 1)  # more than any step has, but less than all together
    with pytest.raises(TooLarge, match=r"more than 3: raise max_nodes"):
        policy.graph(max_nodes=3)
    gaussian = lmab.LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]])
    with pytest.raises(InvalidArgument, match="a graph needs rewards on finitely many values"):
        lmab.plan(gaussian, horizon=3).policy.graph()


def test_impossible_rewards_are_not_in_the_graph():
    bandit = lmab.LatentBandit.bernoulli(np.full(3, 1 / 3), np.eye(3))
    graph = lmab.plan(bandit, horizon=5, method=Exact()).policy.graph()
    node = graph.root
    for _ in range(2):
        node = graph.successors[node][1.0]
    assert set(graph.successors[node]) == {1.0}


def test_a_hundred_thousand_sessions_in_one_call(bandit):
    policy = lmab.plan(bandit, horizon=5).policy
    state = policy.start(100_000)
    rng = generator(0)
    state = policy.observe(state, policy.act(state), rng.integers(2, size=100_000).astype(float))
    arms = policy.act(state)
    first = policy.act_on([])
    outcomes = [policy.act_on([(first, 0.0)]), policy.act_on([(first, 1.0)])]
    assert set(arms.tolist()) == set(outcomes)


def test_damaged_policies_are_refused(tmp_path, bandit):
    from lmab import files

    policy = lmab.plan(bandit, horizon=5).policy
    good = policy.record()
    path = tmp_path / "policy.lmab"
    for name, array in (("arms", good.arrays["arms"] + 100), ("starts", good.arrays["starts"][:-1])):
        files.write(path, files.Record(good.kind, good.fields, {**good.arrays, name: array}, good.records))
        with pytest.raises(lmab.errors.InvalidFile, match="damaged"):
            lmab.load(path)
    graph = policy.graph().record()
    files.write(path, files.Record(graph.kind, {"root": 10**6}, graph.arrays, graph.records))
    with pytest.raises(lmab.errors.InvalidFile, match="damaged"):
        lmab.load(path)
    other = files.Record("uniform", {"n_arms": 2, "horizon": None})
    files.write(path, files.Record(graph.kind, graph.fields, graph.arrays, {"source": other}))
    with pytest.raises(lmab.errors.InvalidFile, match="damaged"):
        lmab.load(path)
