"""Where passes run: order, bits, and who is asked."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lmab
from lmab.estimation import observe
from lmab.estimation.passes import SERIAL, Threads, part_edges, spans
from lmab.estimation.tensor_decomposition import third_moments


def numbers(calls, first, last):
    """One entry per part, and as many further ones as the part's number says."""
    calls.append((first, last, threading.get_ident()))
    return np.arange(first, last), np.repeat(np.arange(first, last), np.arange(first, last))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("n_parts", [1, 2, 7, 40])
def test_results_come_in_the_order_of_the_parts(threads, n_parts):
    calls = []
    with Threads(threads) as passes:
        one, many = passes.ordered(numbers, n_parts, calls, work=10**6)
    assert one.tolist() == list(range(n_parts))
    assert many.tolist() == np.repeat(np.arange(n_parts), np.arange(n_parts)).tolist()
    assert sorted(first for first, _, _ in calls) == [0, *sorted(last for _, last, _ in calls)[:-1]]
    assert len(calls) == (1 if threads == 1 else min(4 * threads, n_parts))


def test_little_work_stays_where_it_is():
    for work, n_calls in [(49_999, 1), (50_000, 8)]:
        calls = []
        with Threads(2) as passes:
            passes.ordered(numbers, 20, calls, work=work)
        assert len(calls) == n_calls
        here = {ident for _, _, ident in calls} == {threading.get_ident()}
        assert here == (n_calls == 1)


def test_an_error_in_a_part_is_the_callers():
    def fails(first, last):
        raise ValueError(f"part {first}")

    with Threads(2) as passes, pytest.raises(ValueError, match="part"):
        passes.ordered(fails, 8, work=10**6)


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=60), result_bytes=st.integers(0, 200))
def test_parts_cover_every_session_once(lengths, result_bytes):
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    edges = part_edges(offsets, int(offsets[-1]), result_bytes)
    assert edges[0] == 0
    assert edges[-1] == len(lengths)
    assert (np.diff(edges) > 0).all()
    found = spans(offsets, 7)
    assert [low for low, _ in found] == [0, *(high for _, high in found[:-1])]
    assert found[-1][1] == len(lengths)
    assert all(offsets[high] - offsets[low] <= 7 + 9 for low, high in found)


def test_parts_are_as_many_as_pay():
    offsets = np.arange(0, 2**22 + 1, 8)
    assert len(part_edges(offsets, 2**22, 100)) - 1 == 64  # never more
    assert len(part_edges(offsets, 2**22, 2**18)) - 1 == 8  # results stay below half of the data
    assert len(part_edges(offsets[:8193], 2**16, 100)) - 1 == 2  # a part has at least 2^15 steps


@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_every_pass_has_the_same_bits_for_any_number_of_threads(family, rng, monkeypatch):
    monkeypatch.setattr("lmab.estimation.passes._PART", 64)
    monkeypatch.setattr("lmab.estimation.passes._WORTH", 0)
    monkeypatch.setattr("lmab.model.belief._CHUNK", 7)  # sessions are cut by it, and sums of pieces are rounded
    make = lmab.LatentBandit.bernoulli if family == "categorical" else lmab.LatentBandit.gaussian
    bandit = make([0.4, 0.6], [[0.9, 0.1, 0.5], [0.2, 0.8, 0.4]])
    log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=700, horizon=5, rng=rng)
    data, features = observe(log, rewards=family), rng.normal(size=(6, 2))
    em_map = data.em_map(data.prior(1.0))
    models = data.start_models.random(3, 2, rng)

    def everything(passes):
        third = third_moments(log, features[: data.n_features], data.values, passes)
        return (*em_map.expectation(models, passes), data.heldout(bandit, passes), third)

    alone = everything(SERIAL)
    for threads in (2, 3):
        with Threads(threads) as passes:
            for one, other in zip(alone, everything(passes), strict=True):
                np.testing.assert_array_equal(one, other)
