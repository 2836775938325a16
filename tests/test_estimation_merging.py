"""Identical sessions kept once: the same multisets with the same counts, however large the log."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmab.estimation import merging
from lmab.estimation.merging import merge


def ragged(seed: int, n_sessions: int, n_codes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 4, size=n_sessions))])
    return rng.integers(n_codes, size=offsets[-1]).astype(np.uint8), offsets


def sessions(codes: np.ndarray, offsets: np.ndarray) -> list[tuple[int, ...]]:
    return [tuple(sorted(codes[start:end].tolist())) for start, end in pairwise(offsets)]


@pytest.mark.parametrize(("sample", "chunk"), [(4096, 1 << 18), (16, 5)])
@given(seed=st.integers(0, 2**32 - 1), n_sessions=st.integers(1, 80), n_codes=st.integers(1, 3))
def test_merged_sessions_are_the_distinct_ones_with_their_counts(sample, chunk, seed, n_sessions, n_codes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "SAMPLE", sample)
        patch.setattr(merging, "_CHUNK", chunk)
        codes, offsets = ragged(seed, n_sessions, n_codes)
        found, starts, counts = merge(codes, offsets, n_codes)
    expected = Counter(sessions(codes, offsets))
    if len(counts) == 0:  # left as it was, because it would not pay
        assert found is codes
        assert starts is offsets
        return
    assert len(expected) <= n_sessions / 2
    assert dict(zip(sessions(found, starts), counts.tolist(), strict=True)) == dict(expected)
    assert counts.sum() == n_sessions
    assert found.dtype == codes.dtype


def test_merging_pays_where_at_most_half_are_distinct():
    twice = np.repeat(np.arange(6, dtype=np.uint8), 2)
    assert merge(twice, np.arange(13), 6)[2].tolist() == [2.0] * 6
    more = np.append(twice, np.uint8(6))
    assert len(merge(more, np.arange(14), 7)[2]) == 0  # seven of thirteen


@pytest.fixture
def looked(monkeypatch):
    """How many sessions were looked at, call by call."""
    calls, original = [], merging.hashes_of

    def noted(*arguments):
        calls.append(len(arguments[1]) - 1)
        return original(*arguments)

    monkeypatch.setattr(merging, "hashes_of", noted)
    return calls


def test_a_diverse_log_is_known_from_a_sample(monkeypatch, looked):
    """Where hardly two of the sample agree, the others are not even looked at."""
    monkeypatch.setattr(merging, "SAMPLE", 64)
    rng = np.random.default_rng(0)
    codes, offsets = rng.integers(200, size=4000).astype(np.uint8), np.arange(0, 4001, 4)
    assert len(merge(codes, offsets, 200)[2]) == 0
    assert looked == [64]
    alike = np.zeros(4000, np.uint8)
    assert merge(alike, offsets, 200)[2].tolist() == [1000.0]
    assert looked == [64, 64, 1000]


def test_a_very_large_diverse_log_is_known_from_a_larger_sample(monkeypatch, looked):
    """No two of a small sample are alike in either log, so that it could not tell; four times as many can."""
    monkeypatch.setattr(merging, "SAMPLE", 8)
    monkeypatch.setattr(merging, "MOST", 100)
    monkeypatch.setattr(merging, "_LARGE", 1000)
    codes = np.arange(2000, dtype=np.uint16)
    assert len(merge(codes[:999], np.arange(1000), 2000)[2]) == 0
    assert looked == [8, 999]
    looked.clear()
    assert len(merge(codes, np.arange(2001), 2000)[2]) == 0
    assert looked == [32]


@given(seed=st.integers(0, 2**32 - 1))
def test_the_answer_does_not_depend_on_the_order_of_sessions_or_steps(seed):
    codes, offsets = ragged(seed, 60, 2)
    rng = np.random.default_rng(seed)
    order = rng.permutation(60)
    shuffled = [rng.permutation(codes[offsets[k] : offsets[k + 1]]) for k in order]
    moved = np.concatenate([[0], np.cumsum([len(session) for session in shuffled])])
    for one, other in zip(merge(codes, offsets, 2), merge(np.concatenate(shuffled), moved, 2), strict=True):
        np.testing.assert_array_equal(one, other)
