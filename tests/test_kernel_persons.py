"""People who come back: the kernels against enumeration, and compiled against reference."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from reference import em as reference

from lmab._kernel.compiled import em as compiled

KERNELS = [reference, compiled]


def people(rng, n_persons=4, n_types=3, n_groups=2):
    """Likelihoods of the sessions of some persons, edges, weights and groups."""
    edges = np.concatenate([[0], np.cumsum(rng.integers(1, 5, n_persons))])
    like = rng.uniform(0.05, 1, (edges[-1], n_types))
    return (
        like,
        edges,
        rng.dirichlet(np.ones(n_types), n_groups),
        rng.integers(n_groups, size=edges[-1]).astype(np.int32),
    )


def walked(kernel, like, edges, weights, groups, keep):
    posterior, fresh, kept, logs = np.empty_like(like), np.empty_like(weights), np.empty(2), np.empty(len(like))
    kernel.returning(like, edges, weights, groups, keep, posterior, fresh, kept, logs)
    return posterior, fresh, kept, logs


def enumerated(like, low, high, weights, groups, keep):
    """Every way in which types are kept or drawn anew, of one person: posterior, fresh draws, kept, probability."""
    n, m = high - low, like.shape[1]
    posterior, fresh, kept, total = np.zeros((n, m)), np.zeros_like(weights), 0.0, 0.0
    for moves in itertools.product([False, True], repeat=n - 1):  # True: the type is kept
        for drawn in itertools.product(range(m), repeat=n):
            if any(move and drawn[t + 1] != drawn[t] for t, move in enumerate(moves)):
                continue
            chance = weights[groups[low], drawn[0]] * like[low, drawn[0]]
            for t in range(1, n):
                own = keep if moves[t - 1] else (1 - keep) * weights[groups[low + t], drawn[t]]
                chance *= own * like[low + t, drawn[t]]
            total += chance
            kept += chance * sum(moves)
            for t in range(n):
                posterior[t, drawn[t]] += chance
                if t == 0 or not moves[t - 1]:
                    fresh[groups[low + t], drawn[t]] += chance
    return posterior / total, fresh / total, kept / total, total


@pytest.mark.parametrize("keep", [0.0, 0.35, 1.0])
@pytest.mark.parametrize("kernel", KERNELS, ids=["reference", "compiled"])
def test_forward_and_backward_against_enumeration(kernel, keep, rng):
    like, edges, weights, groups = people(rng)
    posterior, fresh, kept, logs = walked(kernel, like, edges, weights, groups, keep)
    expected_fresh, expected_kept = np.zeros_like(fresh), 0.0
    for low, high in itertools.pairwise(edges.tolist()):
        own, drawn, stayed, total = enumerated(like, low, high, weights, groups, keep)
        np.testing.assert_allclose(posterior[low:high], own, atol=1e-12)
        np.testing.assert_allclose(logs[low:high].sum(), np.log(total), atol=1e-12)
        expected_fresh, expected_kept = expected_fresh + drawn, expected_kept + stayed
    np.testing.assert_allclose(fresh, expected_fresh, atol=1e-12)
    np.testing.assert_allclose(kept, [expected_kept, len(like) - len(edges) + 1], atol=1e-12)


def test_compiled_against_reference_on_long_sessions(rng):
    lengths = np.array([1, 3, 900])  # products of 900 probabilities leave the range of numbers
    offsets, table = np.concatenate([[0], np.cumsum(lengths)]), rng.uniform(0.3, 0.4, (6, 3))
    codes = rng.integers(6, size=offsets[-1]).astype(np.uint8)
    found = []
    for kernel in KERNELS:
        rows, scales, sums = np.empty((3, 3)), np.empty(3), np.empty((6, 3))
        kernel.likelihoods(codes, offsets, table, rows, scales)
        kernel.sums(codes, offsets, rows, sums)
        found.append((rows, scales, sums))
    logs = np.add.reduceat(np.log(table[codes.astype(int)]), offsets[:-1], axis=0)
    np.testing.assert_allclose(found[0][0].max(axis=1), 1.0)
    np.testing.assert_allclose(np.log(found[0][0]) + found[0][1][:, None], logs, rtol=1e-9)
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-300)
