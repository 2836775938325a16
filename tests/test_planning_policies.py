"""Planned policies: masks, batches, graphs, files."""

from __future__ import annotations

import numpy as np
import pytest
from reference import planning as reference
from seeds import generator

import lmab
from lmab import Certified, Exact
from lmab._kernel.compiled import planning as compiled
from lmab.errors import InvalidArgument, TooLarge
from lmab.planning.exact import ExactPolicy
from lmab.planning.lookahead import Lookahead
from lmab.policies.histories import enumerate_histories
from lmab.testing.oracle import small_bandit


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
    sizes = [len(level.arms) for level in enumerate_histories(policy, bandit, 5, limit=10**6, remedy="")]
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


def test_the_same_arm_in_a_hundred_thousand_random_decisions():
    bandit = lmab.random_bandit(7, 50, kind="hard", rng=0)
    policy, rng = lmab.plan(bandit, horizon=10, method=lmab.planning.PointBased()).policy, np.random.default_rng(1)
    compact, n = policy.compact(), 10_000
    arms, rewards = rng.integers(50, size=(10, n)), rng.integers(2, size=(10, n)).astype(float)
    state, alone = policy.start(n), [compact.start()] * n
    for step in range(10):
        assert [compact.act(one) for one in alone] == policy.act(state).tolist()
        if step < 9:
            # Half of the sessions play what the policy says, the others anything.
            played = np.where(np.arange(n) % 2, policy.act(state), arms[step])
            state = policy.observe(state, played, rewards[step])
            told = zip(alone, played.tolist(), rewards[step].tolist(), strict=True)
            alone = [compact.observe(one, arm, reward) for one, arm, reward in told]


def test_one_session_takes_a_short_way_to_the_same_belief():
    bandit = lmab.random_bandit(4, 6, rng=2)
    policy = lmab.plan(bandit, horizon=6).policy
    single, many = policy.start(), policy.start(1)
    for arm, reward in [(1, 1.0), (1, 1.0), (1, 0), (1, 0.0), (2, np.float64(1.0)), (2, 1.0)]:
        single = policy.observe(single, arm, reward)
        many = policy.observe(many, np.array([arm]), np.array([float(reward)]))
        np.testing.assert_array_equal(single.memory, many.memory)
    for bad in ((6, 1.0), (-1, 1.0), (0, 0.5), (True, 1.0), (0, float("nan"))):
        for _ in range(2):
            with pytest.raises(InvalidArgument):
                policy.observe(policy.start(), *bad)


def test_impossible_and_tiny_beliefs_are_left_to_the_policy():
    bandit = lmab.LatentBandit.bernoulli(np.full(3, 1 / 3), np.eye(3) * (1 - 1e-300) + 1e-300 * 0)
    policy = lmab.plan(bandit, horizon=6).policy
    compact = policy.compact()
    state, whole = compact.start(), policy.start()
    for arm, reward in [(0, 1.0), (0, 0.0), (1, 1.0), (0, 0.0), (0, 1.0)]:
        state, whole = compact.observe(state, arm, reward), policy.observe(whole, arm, reward)
        np.testing.assert_array_equal(state.belief, whole.memory[0])
    assert compact.act(state) == policy.act(whole)
    with pytest.raises(InvalidArgument, match="state must be before the horizon of 6 steps"):
        compact.act(compact.observe(state, 0, 1.0))


def test_normal_rewards():
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0, 0.6], [0.0, 1.0, -0.6]], scale=0.7)
    policy = lmab.plan(bandit, horizon=4).policy
    state = policy.compact().observe(policy.compact().start(), 2, 0.31)
    assert policy.compact().act(state) == policy.act_on([(2, 0.31)])


@pytest.mark.parametrize("seed", range(10))
def test_the_kernels_agree(seed):
    rng = np.random.default_rng(seed)
    belief, row, vectors = rng.random(5), rng.random(5), rng.normal(size=(30, 5))
    vectors[7] = vectors[3]  # a tie: the first wins
    for one, other in zip(reference.updated(belief, row), compiled.updated(belief, row), strict=True):
        np.testing.assert_array_equal(one, other)
    scores = np.empty(30)
    for start, stop in ((0, 30), (3, 8), (7, 8)):
        found = reference.best_plan(belief, vectors, start, stop, scores)
        assert found == compiled.best_plan(belief, vectors, start, stop, scores)


def test_point_based_certifies_values_below_zero_too():
    bandit = lmab.LatentBandit.categorical(
        [0.5, 0.5], [[[0.9, 0.1], [0.4, 0.6]], [[0.2, 0.8], [0.7, 0.3]]], [-2.0, -1.0]
    )
    plan = lmab.plan(bandit, horizon=4, method=lmab.planning.PointBased(gap=0.05))
    assert plan.upper < 0
    assert plan.upper - plan.lower <= 0.05 * abs(plan.lower)
    assert plan.status == "certified"


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_the_table_of_an_exact_policy_is_finite(bad):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    policy = lmab.plan(bandit, horizon=3, method=Exact()).policy
    values = policy._values.copy()
    ExactPolicy(bandit, values, horizon=3)
    values[-1] = bad
    with pytest.raises(InvalidArgument, match=f"values must be finite, got {bad}"):
        ExactPolicy(bandit, values, horizon=3)
