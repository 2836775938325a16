"""Sums and quantiles of rewards that come in pieces, against sorting all of them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lmab.model.bins import Bins, counts_and_sums, quantiles

TARGETS = np.arange(1, 8) / 8


def sorted_quantiles(rewards, targets):
    """The first of the sorted rewards whose share, half by number and half by size, is above each target."""
    ordered = np.sort(rewards[rewards != 0])
    sizes = np.cumsum(np.abs(ordered))
    shares = (sizes / sizes[-1] + np.arange(1, len(ordered) + 1) / len(ordered)) / 2
    return np.unique(ordered[np.searchsorted(shares, targets, side="right")])


@pytest.mark.parametrize("shape", ["normal", "heavy", "close", "few"])
def test_quantiles_are_those_of_the_sorted_rewards(rng, shape):
    rewards = {
        "normal": lambda: rng.standard_normal(5000),
        "heavy": lambda: np.maximum(rng.pareto(0.5, 5000) - 1, 0.0),
        "close": lambda: 1e6 + 1e-6 * rng.random(5000),  # the first bits say nothing
        "few": lambda: rng.choice([-3.0, 0.0, 1.0, 1.1, 50.0], 5000),
    }[shape]()
    expected = sorted_quantiles(rewards, TARGETS)
    for n_pieces in (1, 7):
        np.testing.assert_array_equal(quantiles(lambda n=n_pieces: np.array_split(rewards, n), TARGETS), expected)


@given(arrays(np.float64, st.integers(1, 30), elements=st.floats(-1e9, 1e9)))
def test_quantiles_are_rewards_of_the_log(rewards):
    rewards = np.append(rewards, 1.0)
    found = quantiles(lambda: [rewards], TARGETS)
    assert np.isin(found, rewards[rewards != 0]).all()
    assert (np.diff(found) > 0).all()


def test_counts_and_sums_of_pieces(rng):
    rewards, edges = rng.integers(-3, 4, size=100).astype(float), np.array([-1.0, 0.0, 2.0])
    counts, sums = counts_and_sums(lambda: np.array_split(rewards, 3), edges)
    bounds = [-np.inf, *edges, np.inf]
    inside = [rewards[(rewards >= low) & (rewards < high)] for low, high in pairwise(bounds)]
    assert counts.tolist() == [len(part) for part in inside]
    assert sums.tolist() == [part.sum() for part in inside]


@pytest.mark.parametrize("beyond", ["ends", "zero"])
def test_the_grid_of_the_appendix_grows_with_the_scale_of_the_rewards(beyond):
    one, wide = (Bins.appendix_grid(3, 0.2, scale, beyond=beyond) for scale in (1.0, 2.5))
    np.testing.assert_allclose(wide.edges, 2.5 * one.edges)
    np.testing.assert_allclose(wide.values, 2.5 * one.values)
    assert one.edges.max() > 1
