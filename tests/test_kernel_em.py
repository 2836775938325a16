"""The expectation kernel: reference against enumeration, compiled against reference."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config
from numba.core import event
from reference import em as reference

from lmab._kernel.compiled import em as compiled
from lmab._kernel.compiled import planning

KERNELS = [reference, compiled]


def random_log(rng, n_sessions, n_arms, n_values, longest):
    lengths = rng.integers(1, longest + 1, size=n_sessions)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return rng.integers(n_arms * n_values, size=offsets[-1]), offsets


def random_models(rng, n_models, n_types, n_arms, n_values, zeros=False):
    width = -(-n_types // 8) * 8
    models = np.zeros((n_models, 1 + n_arms * n_values, width))
    models[:, 0, :n_types] = rng.dirichlet(np.ones(n_types), size=n_models)
    tables = rng.dirichlet(np.ones(n_values), size=(n_models, n_arms, n_types))
    if zeros:
        tables[:, 0, 0] = np.eye(n_values)[0]
    models[:, 1:, :n_types] = np.moveaxis(tables, 3, 2).reshape(n_models, -1, n_types)
    return models


def categorical(kernel, codes, offsets, models, counts=(), edges=None, dtype=np.uint16):
    edges = np.array([0, len(offsets) - 1]) if edges is None else edges
    n_models, n_blocks = len(models), len(edges) - 1
    tasks = n_models * n_blocks
    statistics, logs = np.full((tasks, *models.shape[1:]), np.nan), np.full(tasks, np.nan)
    arguments = (codes.astype(dtype), offsets, np.array(counts, float), edges, models, statistics, logs)
    kernel.categorical(*arguments, 0, tasks)
    return by_model(statistics, logs, n_models)


def by_model(statistics, logs, n_models):
    """Sums over the blocks of the log."""
    return statistics.reshape(n_models, -1, *statistics.shape[1:]).sum(axis=1), logs.reshape(n_models, -1).sum(axis=1)


def gaussian(kernel, arms, rewards, offsets, models, edges=None):
    edges = np.array([0, len(offsets) - 1]) if edges is None else edges
    rows = 1 + 2 * (models.shape[1] - 2)
    tasks = len(models) * (len(edges) - 1)
    statistics, logs = np.full((tasks, rows, models.shape[2]), np.nan), np.full(tasks, np.nan)
    kernel.gaussian(arms.astype(np.uint8), rewards, offsets, edges, models, statistics, logs, 0, tasks)
    return by_model(statistics, logs, len(models))


@pytest.mark.parametrize("kernel", KERNELS, ids=["reference", "compiled"])
def test_likelihood_and_counts_equal_enumeration(kernel, rng):
    n_arms, n_values = 3, 2
    codes, offsets = random_log(rng, 12, n_arms, n_values, 5)
    models = random_models(rng, 2, 3, n_arms, n_values)
    statistics, logs = categorical(kernel, codes, offsets, models)
    for model in range(2):
        expected, total = np.zeros(models.shape[1:]), 0.0
        probabilities = models[model, 1:, :3].T.reshape(3, n_arms, n_values)
        for k in range(12):
            steps = codes[offsets[k] : offsets[k + 1]]
            history = tuple((int(c) // n_values, int(c) % n_values) for c in steps)
            joint = oracle.likelihood(models[model, 0, :3], probabilities, range(n_values), history)
            total += np.log(joint.sum())
            expected[0, :3] += joint / joint.sum()
            for code in steps:
                expected[1 + code, :3] += joint / joint.sum()
        np.testing.assert_allclose(logs[model], total, rtol=1e-12)
        np.testing.assert_allclose(statistics[model], expected, rtol=1e-10, atol=1e-12)


@given(seed=st.integers(0, 2**32 - 1), n_types=st.integers(1, 9), longest=st.integers(1, 30), zeros=st.booleans())
def test_compiled_equals_reference(seed, n_types, longest, zeros):
    rng = np.random.default_rng(seed)
    codes, offsets = random_log(rng, 20, 4, 3, longest)
    models = random_models(rng, 3, n_types, 4, 3, zeros)
    counts = rng.integers(1, 5, size=20) if seed % 2 else ()
    edges = np.array([0, 7, 8, 20])
    expected, likelihood = categorical(reference, codes, offsets, models, counts, edges)
    found, logs = categorical(compiled, codes, offsets, models, counts, edges)
    np.testing.assert_allclose(logs, likelihood, rtol=1e-10)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def in_pairs(kernel, codes, offsets, models, counts=(), edges=None):
    """Do the work of `categorical` with one code for two steps."""
    edges = np.array([0, len(offsets) - 1]) if edges is None else edges
    tasks, n_codes = len(models) * (len(edges) - 1), models.shape[1] - 1
    paired, ends = np.empty(len(codes) + len(offsets), np.uint16), np.empty(len(offsets), np.int64)
    kernel.pair_up(codes.astype(np.uint8), offsets, 0, len(offsets) - 1, n_codes, paired, ends)
    room = np.full((2, 1 + n_codes + n_codes * (n_codes + 1) // 2, models.shape[2]), np.nan)
    statistics, logs = np.full((tasks, *models.shape[1:]), np.nan), np.full(tasks, np.nan)
    arguments = (paired[: ends[-1]], ends, np.array(counts, float), edges, models, room, statistics, logs)
    kernel.in_pairs(*arguments, 0, tasks)
    return by_model(statistics, logs, len(models))


@pytest.mark.parametrize("kernel", KERNELS, ids=["reference", "compiled"])
@given(seed=st.integers(0, 2**32 - 1), n_types=st.integers(1, 17), longest=st.integers(1, 400), zeros=st.booleans())
@settings(max_examples=30)
def test_pairs_of_steps_give_the_sums_of_single_steps(kernel, seed, n_types, longest, zeros):
    rng = np.random.default_rng(seed)
    codes, offsets = random_log(rng, 20, 4, 3, longest)
    models = random_models(rng, 3, n_types, 4, 3, zeros)
    counts = rng.integers(1, 5, size=20) if seed % 2 else ()
    edges = np.array([0, 7, 8, 20])
    expected, likelihood = categorical(reference, codes, offsets, models, counts, edges)
    found, logs = in_pairs(kernel, codes, offsets, models, counts, edges)
    np.testing.assert_allclose(logs, likelihood, rtol=1e-10)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kernel", KERNELS, ids=["reference", "compiled"])
def test_codes_of_pairs_number_all_unordered_pairs_and_keep_odd_steps(kernel):
    pairs = [(a, b) for a in range(3) for b in range(a + 1)]
    codes = np.array([step for a, b in pairs for step in (b, a, a, b, a)], np.uint8)
    paired, ends = np.full(18, 99, np.uint16), np.empty(7, np.int64)
    kernel.pair_up(codes, np.arange(7) * 5, 0, 6, 3, paired, ends)
    assert paired.tolist() == [code for number, (a, _) in enumerate(pairs) for code in (3 + number, 3 + number, a)]
    assert ends.tolist() == [0, 3, 6, 9, 12, 15, 18]
    some, own = np.empty(6, np.uint16), np.empty(3, np.int64)
    kernel.pair_up(codes, np.arange(7) * 5, 2, 4, 3, some, own)
    np.testing.assert_array_equal(some, paired[6:12])
    assert own.tolist() == [0, 3, 6]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
def test_code_sizes_agree(dtype, rng):
    codes, offsets = random_log(rng, 30, 5, 2, 6)
    models = random_models(rng, 1, 3, 5, 2)
    expected = categorical(reference, codes, offsets, models)
    found = categorical(compiled, codes, offsets, models, dtype=dtype)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("length", [100, 1000, 50_000])
def test_long_sessions_do_not_underflow(length, rng):
    codes, offsets = rng.integers(20, size=2 * length), np.array([0, length, 2 * length])
    models = random_models(rng, 1, 3, 5, 4)
    expected, likelihood = categorical(reference, codes, offsets, models)
    found, logs = categorical(compiled, codes, offsets, models)
    np.testing.assert_allclose(logs, likelihood, rtol=1e-10)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kernel", KERNELS, ids=["reference", "compiled"])
def test_a_type_far_behind_half_way_can_still_win(kernel):
    """A thousand steps speak for type 0, then a thousand and one for type 1: neither may be lost on the way."""
    models = np.zeros((1, 3, 8))
    models[0, :, :2] = [[0.5, 0.5], [0.9, 0.1], [0.1, 0.9]]
    codes = np.repeat([0, 1], [1000, 1001])
    _, logs = categorical(kernel, codes, np.array([0, 2001]), models)
    other = 1000 * np.log(0.09)
    np.testing.assert_allclose(logs[0], other + np.log(0.5 * 0.9 + 0.5 * 0.1), rtol=1e-12)
    statistics, _ = categorical(kernel, codes, np.array([0, 2001]), models)
    np.testing.assert_allclose(statistics[0, 0, :2], [0.1, 0.9], rtol=1e-9)


@pytest.mark.parametrize("kernel", KERNELS, ids=["reference", "compiled"])
def test_tiny_probabilities_are_not_lost(kernel):
    models = np.zeros((1, 3, 8))
    models[0, :, :2] = [[0.5, 0.5], [1e-290, 1e-300], [1 - 1e-290, 1 - 1e-300]]
    statistics, logs = categorical(kernel, np.array([0, 0, 0]), np.array([0, 3]), models)
    np.testing.assert_allclose(logs[0], np.log(0.5) + 3 * np.log(1e-290), rtol=1e-12)
    np.testing.assert_allclose(statistics[0, 1], [3, 0, 0, 0, 0, 0, 0, 0], atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS, ids=["reference", "compiled"])
def test_an_impossible_session_is_minus_infinity_and_adds_nothing(kernel):
    models = np.zeros((1, 3, 8))
    models[0, :, :2] = [[0.5, 0.5], [1.0, 1.0], [0.0, 0.0]]
    statistics, logs = categorical(kernel, np.array([0, 1, 0]), np.array([0, 1, 3]), models)
    assert logs[0] == -np.inf
    np.testing.assert_allclose(statistics[0, :, :2], [[0.5, 0.5], [0.5, 0.5], [0.0, 0.0]])


@pytest.mark.parametrize("kernel", KERNELS, ids=["reference", "compiled"])
def test_any_range_of_tasks_gives_the_entries_of_those_tasks(kernel, rng):
    codes, offsets = random_log(rng, 30, 5, 2, 9)
    models, edges = random_models(rng, 2, 5, 5, 2), np.array([0, 9, 10, 30])
    whole, logs = np.empty((6, 11, 8)), np.empty(6)
    arguments = (codes.astype(np.uint8), offsets, np.empty(0), edges, models)
    kernel.categorical(*arguments, whole, logs, 0, 6)
    for first, last in [(0, 1), (1, 4), (4, 6)]:
        part, own = np.empty((last - first, 11, 8)), np.empty(last - first)
        kernel.categorical(*arguments, part, own, first, last)
        np.testing.assert_array_equal(part, whole[first:last])
        np.testing.assert_array_equal(own, logs[first:last])


@given(seed=st.integers(0, 2**32 - 1), n_types=st.integers(1, 6), longest=st.integers(1, 300))
def test_gaussian_compiled_equals_reference(seed, n_types, longest):
    rng = np.random.default_rng(seed)
    arms, offsets = random_log(rng, 8, 3, 1, longest)
    rewards = rng.normal(size=len(arms)) * 3
    models = np.zeros((2, 5, -(-n_types // 8) * 8))
    models[:, 0, :n_types] = rng.dirichlet(np.ones(n_types), size=2)
    models[:, 1:-1, :n_types] = rng.normal(size=(2, 3, n_types))
    models[:, -1] = rng.uniform(0.5, 2, size=(2, 1))
    edges = np.array([0, 3, 8])
    expected, likelihood = gaussian(reference, arms, rewards, offsets, models, edges)
    found, logs = gaussian(compiled, arms, rewards, offsets, models, edges)
    np.testing.assert_allclose(logs, likelihood, rtol=1e-10)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_gaussian_likelihood_equals_the_density(rng):
    models = np.zeros((1, 4, 8))
    models[0, :, :2] = [[0.3, 0.7], [0.0, 1.0], [2.0, -1.0], [0.5, 0.5]]
    arms, rewards = np.array([0, 1]), np.array([0.4, 1.1])
    _, logs = gaussian(reference, arms, rewards, np.array([0, 2]), models)

    def density(x, mean):
        return np.exp(-0.5 * ((x - mean) / 0.5) ** 2) / (0.5 * np.sqrt(2 * np.pi))

    total = 0.3 * density(0.4, 0.0) * density(1.1, 2.0) + 0.7 * density(0.4, 1.0) * density(1.1, -1.0)
    np.testing.assert_allclose(logs[0], np.log(total), rtol=1e-12)


def test_compilation_leaves_numbas_settings_alone():
    """The kernel is compiled with a vectoriser that Numba leaves off: for itself only."""
    before, seen = config.SLP_VECTORIZE, []
    for dispatcher in (compiled.categorical, planning.updated):
        with event.trigger_event("numba:compile", data={"dispatcher": dispatcher}):
            seen.append(config.SLP_VECTORIZE)
        assert before == config.SLP_VECTORIZE
    assert seen == [1, before]
    assert before != 1


@pytest.mark.parametrize("kernel", KERNELS, ids=["reference", "compiled"])
@pytest.mark.parametrize("longest", [10, 191, 192, 193, 1500])
def test_a_merged_session_of_any_length_counts_as_often_as_it_was_seen(kernel, longest, rng):
    codes = rng.integers(6, size=2 * longest)
    models = random_models(rng, 1, 3, 3, 2)
    offsets, counts = np.array([0, longest, 2 * longest]), np.array([3, 2])
    merged, log = categorical(kernel, codes, offsets, models, counts)
    each = np.split(codes, 2)
    apart = np.concatenate([*[each[0]] * 3, *[each[1]] * 2])
    counted, logs = categorical(kernel, apart, np.arange(6) * longest, models)
    np.testing.assert_allclose(log, logs, rtol=1e-9)
    np.testing.assert_allclose(merged, counted, rtol=1e-9, atol=1e-12)
