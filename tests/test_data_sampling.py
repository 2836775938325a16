"""Some sessions, drawn at random: each at most once, whether all are shuffled or only some are drawn."""

from __future__ import annotations

import numpy as np
import pytest

from lmab.data import sample_rows, sampling


@pytest.mark.parametrize("shuffled", [20, 19])  # 20 sessions are shuffled, or drawn without a shuffle
@pytest.mark.parametrize("size", [1, 7, 20, 50])
def test_sessions_are_drawn_without_repeats(monkeypatch, shuffled, size):
    monkeypatch.setattr(sampling, "_SHUFFLED", shuffled)
    rng = np.random.default_rng(3)
    drawn = [sample_rows(20, size, rng) for _ in range(200)]
    assert all(len(rows) == min(size, 20) == len(set(rows.tolist())) for rows in drawn)
    counts = np.bincount(np.concatenate(drawn), minlength=20)
    expected = 200 * min(size, 20) / 20
    assert np.abs(counts - expected).max() <= 5 * np.sqrt(expected)  # all are drawn equally often
    assert len({tuple(rows.tolist()) for rows in drawn}) > 15  # and in random order


def test_as_many_as_are_shuffled_are_the_first_of_a_shuffle(monkeypatch):
    monkeypatch.setattr(sampling, "_SHUFFLED", 20)
    assert (
        sample_rows(20, 5, np.random.default_rng(1)).tolist() == np.random.default_rng(1).permutation(20)[:5].tolist()
    )
