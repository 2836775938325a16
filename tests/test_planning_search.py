"""The search: its kernels, dominated arms, and the same plans as before."""

from __future__ import annotations

from dataclasses import replace

import golden_plans
import numpy as np
import pytest
from planning_cases import optimal_at
from reference import planning as reference_exact
from reference import planning as reference_lookahead
from reference import planning_search as reference_search
from seeds import generator

import lmab
from lmab._kernel import arrays
from lmab._kernel.compiled import planning as compiled_exact
from lmab._kernel.compiled import planning as compiled_lookahead
from lmab._kernel.compiled import planning_search as compiled_search
from lmab.model.categorical import Categorical
from lmab.model.dominance import best_somewhere, undominated_arms
from lmab.planning import search as search_module
from lmab.planning.exact import Multisets, Sequences, Sets, States, binomials, state_values
from lmab.planning.policies import vector_policy
from lmab.planning.problem import Clock, Problem
from lmab.planning.search import Search
from lmab.testing.oracle import small_bandit

GOLDEN = golden_plans.load()


def problem(seed: int, horizon: int = 5, leaving: bool = False) -> Problem:
    bandit, _ = small_bandit(seed)
    if leaving and isinstance(bandit.rewards, Categorical):
        often = generator(seed).beta(0.5, 1.5, bandit.rewards.probabilities.shape)
        bandit = replace(bandit, leaving=often)
    return Problem.of(bandit, horizon, 4)


@pytest.mark.parametrize("seed", range(5))
def test_exact_blocks(seed):
    it, step = problem(seed), 3
    states = Multisets(it)
    later = generator(seed).normal(size=states.count(step + 1))
    answers = []
    for module in (reference_exact, compiled_exact):
        values, symbols = np.empty(states.count(step)), np.zeros(step, np.int64)
        for part in np.array_split(values, 3):  # a block continues where the one before stopped
            module.exact_block(it.weights, it.table, it.means, states.binomials, later, symbols, part)
        answers.append(values)
    np.testing.assert_allclose(answers[1], answers[0], rtol=1e-12)
    codes = states.codes(np.arange(len(answers[0])), step)
    beliefs = it.weights * it.table[codes].prod(axis=1)
    found = state_values(it, states, beliefs, codes, later).max(axis=1)
    np.testing.assert_allclose(found, answers[0], rtol=1e-12)


def test_ranks_count_every_multiset_once():
    table = binomials(4, 3)
    rows = [(i, j, k) for k in range(4) for j in range(k + 1) for i in range(j + 1)]
    assert [reference_exact.rank(np.array(row), table) for row in rows] == list(range(len(rows)))


@pytest.mark.parametrize("kind", [Multisets, Sets, Sequences])
def test_every_state_has_one_rank(kind):
    it = Problem.of(lmab.LatentBandit.bernoulli([0.5, 0.5], np.full((2, 5), 0.5)), 4)
    states = kind(it)
    for step in range(4):
        ranks = np.arange(states.count(step))
        codes = states.codes(ranks, step)
        assert len(np.unique(codes, axis=0)) == len(ranks)
        assert codes.min(initial=0) >= 0
        assert codes.max(initial=0) < it.n_codes
        np.testing.assert_array_equal(states.ranks(codes), ranks)
        if kind is not Sequences:
            assert (np.diff(codes, axis=1) >= 0).all()
        if kind is Sets:
            assert not states.played(codes)[1].any()
    assert states.total == sum(states.count(step) for step in range(4))


def test_order_matters_only_if_likelihoods_of_steps_differ():
    it = Problem.of(lmab.random_bandit(2, 3, rng=0), 3)
    payoffs = np.concatenate([it.payoffs, 2 * it.payoffs])
    other = it.with_steps(payoffs, np.repeat(it.tables, 2, axis=0), np.array([0, 0, 1, 1]))
    assert isinstance(States.of(it), Multisets)
    assert isinstance(States.of(other), Multisets)
    assert isinstance(States.of(replace(it, repeats=False)), Sets)
    tables = np.concatenate([it.tables, it.tables[:, ::-1]])
    assert isinstance(States.of(it.with_steps(payoffs, tables, np.array([0, 0, 1, 1]))), Sequences)


@pytest.mark.parametrize("seed", range(5))
def test_one_step_values(seed):
    it, rng = problem(seed), generator(seed)
    beliefs, vectors = rng.random((30, len(it.weights))), rng.normal(size=(7, len(it.weights)))
    answers = [
        m.one_step_values(beliefs, it.table, it.means, vectors) for m in (reference_lookahead, compiled_lookahead)
    ]
    np.testing.assert_allclose(answers[1], answers[0], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("leaving", [False, True], ids=["all stay", "some leave"])
@pytest.mark.parametrize("priced", [False, True], ids=["without price", "priced"])
@pytest.mark.parametrize("seed", range(8))
def test_both_searches_close_the_gap_around_the_optimum(seed, priced, leaving):
    it = problem(seed, leaving=leaving)
    best = lmab.plan(it.bandit, horizon=it.horizon, method=lmab.Exact()).lower
    tolerance = 1e-4 * it.scale
    for module in (reference_search, compiled_search):
        search = Search(it, seed=0)
        search.look_ahead(Clock(60.0))
        search.back_up(20)
        if priced:
            search.add_information_bound(Clock(60.0))
            assert search.prices[0].rates[1:].min() > 0
        for _ in range(200):
            bounds = (search.prices[0], search.lowers[0], search.uppers[0], search.roots[0])
            reason = module.run_trials(search.arms, *bounds, it.horizon, tolerance, 1 << 16)
            assert search.lower_bound <= best + 1e-9
            assert search.upper_bound >= best - 1e-9
            if reason == reference_search.CLOSED:
                break
            if reason == reference_search.FULL:
                search._grow(0)
        assert reason == reference_search.CLOSED
        assert search.upper_bound - search.lower_bound <= tolerance


def prepared(it, backups=0):
    """A search with its price, and what a proof is given besides."""
    search = Search(it, seed=0)
    if backups:
        search.look_ahead(Clock(60.0))
        search.back_up(backups)
    search.add_information_bound(Clock(60.0))
    arms = search.arms
    logs = np.log(np.maximum(arms.table, reference_search.TINY))
    charges = reference_search.Charges(
        search.charges[0], logs, arms.entropies.transpose(0, 2, 1).copy(), arms.last.T.copy()
    )
    return search, charges


def proved(module, search, charges, tolerance, work=1 << 30):
    """Why proofs ended, the upper bound, the work of the last one; vectors get room as they need it."""
    upper, horizon, reason = search.upper_bound, search.problem.horizon, reference_search.FULL
    while reason == reference_search.FULL:
        lower = search.lowers[0]
        proof = module.new_proof(search.arms, lower, horizon)
        given = (search.starts[0], horizon, upper, tolerance, work)
        reason, upper = module.prove(search.arms, search.prices[0], charges, lower, proof, *given)
        if reason == reference_search.FULL:
            search.lowers[0] = arrays.doubled_lower(lower)
    return reason, upper, int(proof.spent[0])


@pytest.mark.parametrize("leaving", [False, True], ids=["all stay", "some leave"])
@pytest.mark.parametrize("backups", [0, 20])
@pytest.mark.parametrize("seed", range(20))
def test_proofs_close_the_gap_around_the_optimum(seed, backups, leaving):
    spent = []
    for module in (reference_search, compiled_search):
        it = problem(seed, leaving=leaving)
        search, charges = prepared(it, backups)
        best, tolerance = lmab.plan(it.bandit, horizon=5, method=lmab.Exact()).lower, 1e-3 * it.scale
        reason, upper, work = proved(module, search, charges, tolerance)
        assert reason == reference_search.CLOSED
        assert best - 1e-9 <= upper <= search.lower_bound + tolerance + 1e-12
        assert search.lower_bound <= best + 1e-9
        vectors, arms = search.sets()[-1]
        assert (arms[(vectors @ it.weights).argmax()] >= 0).all()
        spent.append(work)
    assert spent[1] == pytest.approx(spent[0], rel=0.3)  # bounds in single precision share out a little differently


@pytest.mark.parametrize("work", [1, 300, 3000])
def test_a_proof_that_is_given_up_is_still_a_bound(work):
    for module in (reference_search, compiled_search):
        for seed in range(8):
            it = problem(seed, leaving=seed % 2 == 0)
            search, charges = prepared(it)
            best = lmab.plan(it.bandit, horizon=5, method=lmab.Exact()).lower
            reason, upper, spent = proved(module, search, charges, 1e-5 * it.scale, work)
            assert reason in (reference_search.MORE, reference_search.CLOSED)
            assert upper >= best - 1e-9
            assert search.lower_bound <= best + 1e-9
            assert reason == reference_search.CLOSED or spent >= work


def test_a_proof_shows_that_a_lower_bound_is_too_low():
    """With the vectors of fixed arms alone it must find better plans before it can prove anything."""
    it = Problem.of(lmab.random_bandit(3, 8, kind="hard", rng=generator(1)), 5)
    best = lmab.plan(it.bandit, horizon=5, method=lmab.Exact()).lower
    for module in (reference_search, compiled_search):
        search, charges = prepared(it)
        before = search.lower_bound
        assert best - before > 0.1
        reason, upper, _ = proved(module, search, charges, 0.01)
        assert reason == reference_search.CLOSED
        assert best - 0.01 <= search.lower_bound <= best + 1e-9 <= upper + 2e-9
        old = int(search.lowers[0].counts[-1])
        assert proved(module, search, charges, 0.01)[0] == reference_search.CLOSED
        assert int(search.lowers[0].counts[-1]) == old  # nothing is refuted twice


def test_a_proof_asks_for_room_before_it_writes_beyond_it():
    it = Problem.of(lmab.random_bandit(3, 8, kind="hard", rng=generator(1)), 5)
    best = lmab.plan(it.bandit, horizon=5, method=lmab.Exact()).lower
    for module in (reference_search, compiled_search):
        search, charges = prepared(it)
        vectors, arms, counts = search.lowers[0]
        tight = int(counts.max())
        search.lowers[0] = reference_search.Lower(vectors[..., :tight].copy(), arms[..., :tight].copy(), counts)
        proof = module.new_proof(search.arms, search.lowers[0], 5)
        given = (search.starts[0], 5, search.upper_bound, 0.01, 1 << 30)
        reason, upper = module.prove(search.arms, search.prices[0], charges, search.lowers[0], proof, *given)
        assert reason == reference_search.FULL
        assert upper >= best - 1e-9
        assert proved(module, search, charges, 0.01)[0] == reference_search.CLOSED


def test_proofs_remember_beliefs_by_what_they_are_not_by_their_number():
    """Two observations in either order lead to one belief; another belief of the same key is not taken for it."""
    it = Problem.of(lmab.random_bandit(3, 8, kind="hard", rng=generator(1)), 5)
    proof = compiled_search.new_proof(*(lambda search: (search.arms, search.lowers[0]))(Search(it, seed=0)), 5)
    beliefs = np.array([[0.5, 0.3, 0.2], [0.5, 0.2, 0.3]])
    proof.slots[:] = 0
    first = compiled_search._slot(proof, 77, beliefs, 0)
    assert first == 77 & (len(proof.slots) - 1)
    proof.slots[first], proof.known_beliefs[first] = 77, beliefs[0]
    assert compiled_search._slot(proof, 77, beliefs, 0) == first
    assert compiled_search._slot(proof, 77, beliefs, 1) == first + 1
    proof.known_beliefs[first] *= 1 + 1e-12  # the same but for rounding
    assert compiled_search._slot(proof, 77, beliefs, 0) == first


def test_a_bound_that_a_proof_remembers_never_rises():
    it = Problem.of(lmab.random_bandit(3, 8, kind="hard", rng=generator(1)), 5)
    search = Search(it, seed=0)
    proof = compiled_search.new_proof(search.arms, search.lowers[0], 5)
    proof.beliefs[3], proof.keys[3] = [0.2, 0.1, 0.3], 9
    for found, low, kept in ((2.0, 1.0, 2.0), (1.5, 1.1, 1.5), (1.8, 1.2, 1.5)):
        proof.bounds[3, 1:3] = found, low
        compiled_search._remember(proof, 3)
        slot = compiled_search._slot(proof, 9, proof.beliefs, 3)
        assert proof.bounds[3, 1] == kept
        assert proof.known[slot].tolist() == [kept, low]
    assert proof.counts[0] == 1
    proof.counts[0] = len(proof.slots) // 2  # half full: others are not kept
    proof.keys[3] = 10
    compiled_search._remember(proof, 3)
    assert proof.slots[compiled_search._slot(proof, 10, proof.beliefs, 3)] == 0


@pytest.mark.parametrize("seed", range(20))
def test_the_soft_sawtooth_is_the_best_factor_of_every_point(seed):
    """Against a linear program's answer by dense sampling of the factor, and the reference against the compiled."""
    rng = np.random.default_rng(seed)
    n, weights = int(rng.integers(1, 9)), rng.random(8)[: int(rng.integers(1, 9))]
    n = len(weights)
    point, x = rng.dirichlet(np.full(n, 0.5)), rng.dirichlet(np.full(n, 0.5)) * rng.random()
    point[rng.random(n) < 0.2] = 0
    drop = -rng.random() * float(weights @ point)
    factors = np.linspace(0, 20, 20_001)
    dense = (factors * drop + np.maximum(0, np.outer(factors, point) - x) @ weights).min()
    exact = reference_search.knapsack(point, drop, weights, x)
    assert dense - 1e-3 <= exact <= dense + 1e-12
    there = np.maximum(point, 1e-300)
    scratch = np.concatenate([x / there, weights * there, [np.nan]])
    assert compiled_search._knapsack(scratch, n, -drop) == pytest.approx(exact, abs=1e-12)
    found = scratch[-1] * drop + np.maximum(0, scratch[-1] * point - x) @ weights
    assert found == pytest.approx(exact, abs=1e-12)  # the factor that it leaves for the price


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 100])
def test_the_best_factor_of_few_and_of_many_types_equals_the_reference(n, rng):
    for _ in range(50):
        weights, point, x = rng.random(n), rng.dirichlet(np.full(n, 0.5)), rng.dirichlet(np.full(n, 0.5)) * rng.random()
        point[rng.random(n) < 0.2] = 0
        x[rng.random(n) < 0.2] = 0  # several equal ratios
        drop, there = -rng.random() * float(weights @ point), np.maximum(point, 1e-300)
        scratch = np.concatenate([x / there, weights * there, [np.nan]])
        found = compiled_search._knapsack(scratch, n, -drop)
        assert found == pytest.approx(reference_search.knapsack(point, drop, weights, x), abs=1e-12)
        at_factor = scratch[-1] * drop + np.maximum(0, scratch[-1] * point - x) @ weights
        assert at_factor == pytest.approx(found, abs=1e-12)


@pytest.mark.parametrize("leaving", [False, True], ids=["all stay", "some leave"])
@pytest.mark.parametrize("seed", range(10))
def test_prices_and_points_of_a_search_hold_at_any_belief(seed, leaving):
    it, rng = problem(seed, horizon=4, leaving=leaving), np.random.default_rng(seed)
    search = Search(it, seed=0)
    search.add_information_bound(Clock(60.0))
    search.advance(1e-3 * it.scale)
    scratch = compiled_search._scratch(1, 1, len(it.weights), it.horizon)
    for steps in (2, 3, 4):
        for x in rng.dirichlet(np.full(len(it.weights), 0.3), 20) * 0.7:
            best = optimal_at(it.table, it.means, x[None], steps)[0]
            soft = compiled_search._drop(search.arms, search.prices[0], search.uppers[0], steps, x[None], 0, scratch)
            assert reference_search.plane(search.arms, x, steps) + soft >= best - 1e-12 * it.scale
            spec = reference_search.sawtooth(search.arms, search.prices[0], search.uppers[0], x, steps)
            assert soft >= spec - 1e-12 * it.scale
            assert reference_search.price_bound(search.prices[0], x, steps) >= best - 1e-12 * it.scale


@pytest.mark.parametrize("leaving", [False, True], ids=["all stay", "some leave"])
def test_the_price_bounds_what_a_point_leaves_where_people_leave(leaving):
    """One point by its formula; what is proved with it holds at any belief."""
    rng, bandit = np.random.default_rng(4), lmab.random_bandit(6, 12, kind="hard", rng=3)
    often = rng.beta(0.6, 4.0, (6, 12, 2)) if leaving else None
    it, steps, closer = Problem.of(replace(bandit, leaving=often), 4), 3, 0
    search = Search(it, seed=0)
    search.add_information_bound(Clock(60.0))
    arms, price, upper = search.arms, search.prices[0], search.uppers[0]
    scratch = compiled_search._scratch(1, 1, 6, it.horizon)
    weights = arms.scale[steps] * arms.spread[steps]
    for point in rng.dirichlet(np.ones(6), 20):
        drop = float(optimal_at(it.table, it.means, point[None], steps)[0]) - reference_search.plane(arms, point, steps)
        upper.counts[steps] = 0
        compiled_search._add_point(upper, steps, point[None], 0, 1.0, drop)
        x = rng.dirichlet(5 * point + 0.5) * 0.7
        plain = reference_search.knapsack(point, drop, weights, x)
        priced = reference_search.priced_rest(arms, price, point, drop, x, steps)
        soft = compiled_search._drop(arms, price, upper, steps, x[None], 0, scratch)
        if soft < 0:  # else the screen saw no gain, and no factor was tried
            assert soft == pytest.approx(min(plain, priced) if leaving else plain, abs=1e-12)
        bound = reference_search.plane(arms, x, steps) + min(plain, priced)
        assert bound >= optimal_at(it.table, it.means, x[None], steps)[0] - 1e-12
        closer += soft < 0 and priced < plain - 1e-3
    assert closer >= 10


@pytest.mark.parametrize("priced", [False, True], ids=["without price", "priced"])
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("seed", range(6))
def test_a_node_is_opened_with_the_lower_of_its_price_and_what_its_own_belief_tells(seed, steps, priced):
    """Every code's share, from the formulas of the reference; the last bandit has more codes than a block holds."""
    it = problem(seed, horizon=4) if seed < 5 else Problem.of(lmab.random_bandit(5, 140, rng=0), 4, 4)
    search = Search(it, seed=0)
    if priced:
        search.add_information_bound(Clock(60.0))
    search.advance(1e-2 * it.scale, work=1 << 12)
    arms, upper, nodes = search.arms, search.uppers[0], search.roots[0]
    x = np.random.default_rng(seed).dirichlet(np.full(len(it.weights), 0.5)) * 0.6
    node = reference_search.add_node(arms, nodes, x, key=5, steps=steps + 1)
    before = nodes.values[node].copy()
    scratch = compiled_search._scratch(len(it.means), it.n_values, len(it.weights), it.horizon)
    compiled_search._open(arms, search.prices[0], upper, nodes, node, steps, scratch)
    exact = min(0.0, float((arms.last @ x).max() - it.means.max(axis=0) @ x))
    drop = exact if steps == 1 else compiled_search._drop(arms, search.prices[0], upper, steps, x[None], 0, scratch)
    shares = []
    for row in it.table:
        soft = reference_search.knapsack(x, drop, steps * arms.spread[steps], x * row)
        shares.append(steps * (it.means.max(axis=0) @ (x * row)) + soft)
        if priced:
            shares[-1] = min(shares[-1], reference_search.price_bound(search.prices[0], x * row, steps))
    np.testing.assert_allclose(nodes.shares[node], shares, rtol=1e-9, atol=1e-12)
    values = it.means @ x + np.reshape(shares, (len(it.means), -1)).sum(axis=1)
    np.testing.assert_allclose(nodes.values[node], np.minimum(before, values), rtol=1e-9, atol=1e-12)
    assert (nodes.low[node] == upper.counts[steps]).all()
    assert (nodes.high[node] == upper.counts[steps]).all()


@pytest.mark.parametrize("n_types", [1, 2, 3, 8])
def test_the_screen_shows_what_every_point_gains_at_two_factors(n_types):
    rng = np.random.default_rng(n_types)
    points = rng.dirichlet(np.full(n_types, 0.5), (3, 40)).transpose(0, 2, 1).astype(np.float32)
    drops, spread = -rng.random((3, 40)), rng.random((3, n_types))
    x, gains = 1e-9 * rng.dirichlet(np.ones(n_types)), np.zeros((2, compiled_search.BLOCK), np.float32)
    compiled_search._screen(np.arange(3.0), spread, points, drops, 2, 10, 30, x[None], 0, gains)
    for row, factor in ((0, 1.0), (1, 0.5)):
        beyond = np.maximum(0, factor * points[2, :, 10:30].T - x / x.sum()) @ spread[2]
        np.testing.assert_allclose(
            gains[row, :20], (-factor * drops[2, 10:30] - 2 * beyond) / factor, rtol=1e-4, atol=1e-5
        )


def test_only_records_are_found():
    numbers = np.array([[-1.0, 0.5, 2.0, 2.0], [-3.0, -2.0, -1.0, -4.0]], np.float32)
    records = np.zeros((3, 2), np.int32)
    bits = numbers.view(np.int32)
    assert compiled_search._highest(bits, 0, 2, records, 1) == 1
    assert compiled_search._highest(bits, 0, 4, records, 1) == 2
    assert compiled_search._highest(bits, 0, 4, records, 1) == -1  # no longer one
    assert compiled_search._highest(bits, 1, 4, records, 1) == -1  # nothing is gained
    assert records.view(np.float32).tolist() == [[0, 0], [2, 0], [0, 0]]


def test_the_bounds_hold_at_beliefs_the_search_never_saw():
    """Points and vectors against the exact value at random beliefs, for every number of steps to go."""
    bandit = lmab.random_bandit(4, 8, kind="hard", rng=generator(2))
    it = Problem.of(bandit, 6, 2)
    search = Search(it, seed=0)
    search.look_ahead(Clock(60.0))
    search.back_up(50)
    search.advance(1e-6)
    assert search.uppers[0].counts[3:6].min() > 5
    rng = generator(0)
    for steps in range(2, 7):
        for concentration in (0.05, 0.5, 5.0):
            x = 0.3 * rng.dirichlet(np.full(4, concentration)) + 1e-12
            best = _optimum(bandit, x, steps)
            upper = steps * (it.means.max(axis=0) @ x) + reference_search.sawtooth(
                search.arms, search.prices[0], search.uppers[0], x, steps
            )
            assert upper >= best - 1e-12
            assert (x @ search.lowers[0].vectors[steps, :, : search.lowers[0].counts[steps]]).max() <= best + 1e-12


def test_points_stay_with_their_nodes_when_arrays_grow_and_dead_points_go(monkeypatch):
    monkeypatch.setattr(search_module, "_START", 16)
    bandit = lmab.random_bandit(5, 8, rng=np.random.default_rng(1))  # one that has many
    it = Problem.of(bandit, 6, 2)
    search = Search(it, seed=0)
    for _ in range(60):
        search.advance(1e-6)
    nodes, upper = search.roots[0], search.uppers[0]
    assert upper.drops.shape[1] > 16
    owners = np.flatnonzero(nodes.points[: nodes.counts[0]] >= 0)
    assert len(owners) > 50
    for node in owners.tolist():
        steps, point, x = nodes.steps[node], nodes.points[node], nodes.beliefs[node]
        np.testing.assert_allclose(upper.beliefs[steps, :, point], x / x.sum(), rtol=1e-9)
        plane = steps * (it.means.max(axis=0) @ x)
        assert plane + upper.drops[steps, point] * x.sum() >= nodes.upper[node] - 1e-12
    assert search.lower_bound <= _optimum(bandit, bandit.weights, 6) + 1e-9 <= search.upper_bound + 2e-9


def test_a_tree_of_wide_nodes_is_begun_anew_and_keeps_what_it_proved(monkeypatch):
    monkeypatch.setattr(search_module, "_WIDE", 100)
    monkeypatch.setattr(search_module, "_RESERVED", 10_000)
    bandit = lmab.random_bandit(5, 8, rng=np.random.default_rng(1))
    search = Search(Problem.of(bandit, 6, 2), seed=0)
    room, begun, bounds = len(search.roots[0].upper), 0, []
    assert room == 10_000 // search._node_size < 90
    for _ in range(60):
        search.advance(1e-6)
        begun += int(search.roots[0].counts[0]) == 1
        bounds.append(search.upper_bound)
        assert len(search.roots[0].upper) == room
    assert begun > 1
    assert (np.diff(bounds) <= 0).all()
    optimum = _optimum(bandit, bandit.weights, 6)
    assert search.lower_bound <= optimum + 1e-9 <= search.upper_bound + 2e-9
    assert search.upper_bound < 1.01 * optimum


@pytest.mark.parametrize("wide", [False, True])
def test_many_arms_are_priced_at_once_and_backed_up_again_after_trials(monkeypatch, wide):
    """With wide nodes the order of work differs; the bounds hold either way."""
    monkeypatch.setattr(search_module, "_WIDE", 100 if wide else 1 << 16)
    asked = []
    for name in ("advance", "back_up", "add_information_bound"):
        whole = getattr(Search, name)

        def spy(self, *given, name=name, whole=whole):
            asked.append(name)
            return whole(self, given[0], 1 << 8) if name == "advance" else whole(self, *given)

        monkeypatch.setattr(Search, name, spy)
    bandit = lmab.random_bandit(5, 8, rng=np.random.default_rng(1))
    plan = lmab.plan(bandit, horizon=5, method=lmab.Certified(gap=1e-4, n_beliefs=5))
    assert plan.lower <= _optimum(bandit, bandit.weights, 5) + 1e-9 <= plan.upper + 2e-9
    first = asked.index("add_information_bound")
    last = len(asked) - 1 - asked[::-1].index("back_up")
    assert asked[first - 1] == ("back_up" if wide else "advance")
    assert (last > first) == wide


def test_bounds_of_thousands_of_codes_hold():
    """A new node then takes the information price for enough, which is a bound by itself."""
    rng = np.random.default_rng(3)
    few = rng.dirichlet(np.ones(3), size=(3, 4))
    chances = few[:, np.arange(1400) % 4]  # the same four arms again and again: the optimum is that of four
    small = lmab.LatentBandit.categorical([0.2, 0.3, 0.5], few, [0.0, 1.0, 3.0])
    bandit = lmab.LatentBandit.categorical([0.2, 0.3, 0.5], chances, [0.0, 1.0, 3.0])
    optimum = lmab.plan(small, horizon=4, method=lmab.Exact()).lower
    search = Search(Problem.of(bandit, 4, 2), seed=0)
    search.add_information_bound(Clock(10.0))
    assert search.prices[0].rates[1:].max() > 0
    for _ in range(5):
        search.advance(1e-9, 1 << 16)
    assert search.lower_bound <= optimum + 1e-9 <= search.upper_bound + 2e-9
    assert search.upper_bound < 1.05 * optimum


def test_what_nodes_have_looked_at_stays_looked_at_when_dead_points_go():
    it = Problem.of(lmab.random_bandit(5, 8, rng=np.random.default_rng(1)), 6, 2)
    search = Search(it, seed=0)
    search.advance(1e-6)
    nodes, upper = search.roots[0], search.uppers[0]
    count, stage = int(nodes.counts[0]), 3
    parents = np.flatnonzero(nodes.steps[:count] == stage + 1)
    parents = parents[nodes.high[parents, 0] >= 0]
    upper.drops[stage, : upper.counts[stage] : 3] = 0.0  # every third point is dead
    alive = upper.drops[stage, : upper.counts[stage]] < 0
    kept = upper.beliefs[stage][:, : len(alive)][:, alive].copy()
    ranges = [(nodes.low[node, 0], nodes.high[node, 0]) for node in parents]
    assert len({pair for pair in ranges if pair[0] < pair[1]}) > 1
    nodes.points[:count][(nodes.steps[:count] == stage) & (nodes.points[:count] % 3 == 0)] = -1
    search._bury_dead_points(0)
    assert upper.counts[stage] == alive.sum()
    np.testing.assert_array_equal(upper.beliefs[stage, :, : alive.sum()], kept)
    np.testing.assert_array_equal(upper.screen[stage, :, : alive.sum()], kept.astype(np.float32))
    for node, (low, high) in zip(parents, ranges, strict=True):
        assert (nodes.low[node, 0], nodes.high[node, 0]) == (alive[:low].sum(), alive[:high].sum())


def _optimum(bandit: lmab.LatentBandit, x: np.ndarray, steps: int) -> float:
    there = lmab.LatentBandit.bernoulli(x / x.sum(), bandit.means)
    return lmab.plan(there, horizon=steps, method=lmab.Exact()).lower * x.sum()


def _value(bandit: lmab.LatentBandit, arms: np.ndarray, horizon: int) -> float:
    some = lmab.LatentBandit.categorical(bandit.weights, bandit.rewards.probabilities[:, arms], bandit.rewards.values)
    return lmab.plan(some, horizon=horizon, method=lmab.Exact()).lower


def _bandit(kind: str, n_values: int, rng: np.random.Generator) -> lmab.LatentBandit:
    """A few arms, and mixtures and garblings of them that are never needed."""
    if kind != "categorical":
        return lmab.random_bandit(3, 8, kind=kind, rng=rng)
    values = np.sort(rng.normal(size=n_values))
    base = rng.dirichlet(np.ones(n_values), (3, 3))
    worse = base[:, :2] @ np.where(np.eye(n_values) > 0, 0.7, 0)  # 0.7 stays, the rest is shown as the worst value
    worse[:, :, 0] += 0.3
    return lmab.LatentBandit.categorical(rng.dirichlet(np.ones(3)), np.concatenate([base, worse], axis=1), values)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("kind", "n_values"), [("hard", 2), ("ordinary", 2), ("categorical", 2), ("categorical", 3)])
def test_nothing_is_lost(kind, n_values, seed):
    bandit = _bandit(kind, n_values, generator(seed))
    problem = Problem.of(bandit, 4, 2)
    kept = undominated_arms(problem.table, problem.means)
    everything = np.arange(bandit.n_arms)
    assert _value(bandit, kept, 4) == pytest.approx(_value(bandit, everything, 4), abs=1e-12)
    if kind == "categorical":
        assert not {3, 4} & set(kept.tolist())  # garbled and worse: always superfluous


def test_means_alone_would_lose_what_cheap_arms_tell():
    """The negative control: the same reduction without the condition on what an arm shows."""
    # Two gambles that hardly tell which is better, and a probe that always loses a little and tells all.
    gambles = [[[0.4, 0, 0, 0.6], [0.6, 0, 0, 0.4]], [[0.6, 0, 0, 0.4], [0.4, 0, 0, 0.6]]]
    probe = [[[0, 1, 0, 0]], [[0, 0, 1, 0]]]
    bandit = lmab.LatentBandit.categorical(
        [0.5, 0.5], np.concatenate([gambles, probe], axis=1), [-1.0, -0.1, -0.05, 1.0]
    )
    problem = Problem.of(bandit, 6, 2)
    assert best_somewhere(problem.means).tolist() == [0, 1]
    assert undominated_arms(problem.table, problem.means).tolist() == [0, 1, 2]
    assert _value(bandit, np.array([0, 1]), 6) < 0.9 * _value(bandit, np.arange(3), 6)


def test_the_last_step_needs_only_arms_that_are_best_somewhere():
    rng = generator(0)
    means = rng.random((30, 4))
    kept = best_somewhere(means)
    assert len(kept) < 30
    beliefs = rng.dirichlet(np.full(4, 0.5), 2000)
    np.testing.assert_allclose((beliefs @ means.T).max(axis=1), (beliefs @ means[kept].T).max(axis=1), rtol=1e-12)
    for arm in kept:  # each of them is needed
        others = [other for other in kept if other != arm]
        assert len(best_somewhere(means[others])) == len(others)


def test_equal_arms_keep_one():
    means = np.array([[0.5, 0.2], [0.5, 0.2], [0.1, 0.9]])
    table = np.stack([1 - means, means], axis=1).reshape(6, 2)
    assert len(undominated_arms(table, means)) == 2
    assert len(best_somewhere(means)) == 2


def test_stopping_keeps_the_rest():
    means = np.array([[0.9, 0.1], [0.2, 0.2], [0.1, 0.8]])
    table = np.stack([1 - means, means], axis=1).reshape(6, 2)
    assert undominated_arms(table, means, lambda: True).tolist() == [0, 1, 2]
    assert best_somewhere(means, lambda: True).tolist() == [0, 1, 2]
    asked = iter([False, True])
    several = np.concatenate([[[0.1, 0.05]], means])  # the weakest is examined, then time is up
    assert best_somewhere(several, lambda: next(asked)).tolist() == [1, 2, 3]


@pytest.mark.parametrize(("seconds", "dropped"), [(0.4, False), (60.0, True)])
def test_programs_are_not_begun_in_the_last_half_second(seconds, dropped):
    """Loading the solver and one program may take as long."""
    search = Search(Problem.of(lmab.random_bandit(4, 20, kind="hard", rng=generator(0)), 5, 2), seed=0)
    search.drop_dominated_arms(Clock(seconds))
    assert (len(search.arms.names) < 20) == dropped


def test_solver_tolerance_is_no_dominance():
    """Arms that differ by less than a solver notices, but do differ, both stay."""
    means = np.array([[0.6, 0.4], [0.6 + 1e-8, 0.4 + 1e-8]])
    table = np.stack([1 - means, means], axis=1).reshape(4, 2)
    assert undominated_arms(table, means).tolist() == [0, 1]


def test_vectors_name_the_arms_of_the_bandit_after_arms_were_dropped():
    bandit = lmab.random_bandit(4, 20, kind="hard", rng=generator(0))
    search = Search(Problem.of(bandit, 5, 2), seed=0)
    search.drop_dominated_arms(Clock(60.0))
    assert len(search.arms.names) < 20
    search.advance(1e-3)
    policy = vector_policy(search.problem, search.sets())
    assert search.lower_bound > 3
    assert lmab.evaluate(policy, bandit, horizon=5).mean >= search.lower_bound - 1e-9


def test_a_search_that_drops_arms_ends_at_the_same_optimum():
    bandit = lmab.random_bandit(4, 20, kind="hard", rng=generator(0))
    exact = lmab.plan(bandit, horizon=5, method=lmab.Exact()).lower
    plan = lmab.plan(bandit, horizon=5, method=lmab.Certified(gap=1e-8))  # open long enough to drop
    assert plan.status == "certified"
    assert plan.lower - 1e-9 <= exact <= plan.upper + 1e-9
    assert lmab.evaluate(plan.policy, bandit, horizon=5).mean >= plan.lower - 1e-9


def test_there_are_six():
    assert len(GOLDEN) == 6


@pytest.mark.parametrize("name", GOLDEN)
def test_a_plan_is_the_golden_one(name):
    """Where the search was changed on purpose, `python tests/golden_plans.py` makes the files anew."""
    expected, found = GOLDEN[name]["result"], golden_plans.solve(GOLDEN[name]["configuration"])
    assert found["status"] == expected["status"]
    assert found["first_arms"] == expected["first_arms"]
    for n_batches, bounds in expected["bounds"].items():
        assert found["bounds"][n_batches] == pytest.approx(bounds, rel=1e-3)  # single precision chooses what is tried


@pytest.mark.parametrize("name", GOLDEN)
def test_bounds_of_golden_plans_only_improve(name):
    bounds = [GOLDEN[name]["result"]["bounds"][str(n)] for n in golden_plans.BATCHES]
    assert all(lower <= upper * (1 + 1e-12) for lower, upper in bounds)
    assert bounds == sorted(bounds, key=lambda pair: (pair[0], -pair[1]))
