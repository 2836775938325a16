"""Passes on a GPU, or on its simulator, beside the CPU's: `python gpu_cases.py N SEED` prints what differs, as JSON.

Each case gives the largest error of the statistics (in sessions), that of the log-likelihood (relative), and whether
other grids give the same bits.
"""

from __future__ import annotations

import json
import sys

import numpy as np

from lmab._kernel.cuda import SIMULATED, launch
from lmab._kernel.reference import em as reference
from lmab.estimation.gpu import chunks
from lmab.estimation.gpu.shelving import shelve

KINDS = {8: np.uint8, 16: np.uint16, 32: np.uint32}
CASES = {
    "eight lanes": dict(n_contexts=3, bits=8),
    "sixteen lanes": dict(n_contexts=12, bits=8),
    "thirty-two lanes": dict(n_contexts=20, bits=16),
    "more contexts than lanes": dict(n_contexts=40, bits=8),
    "wide codes": dict(n_contexts=4, bits=32, n_arms=5),
    "merged": dict(n_contexts=4, bits=8, merged=True),
    "merged, contexts in pieces": dict(n_contexts=40, bits=8, merged=True, n_arms=2),
    "long": dict(n_contexts=4, bits=8, longest=80),
    "long, contexts in pieces": dict(n_contexts=40, bits=8, longest=40),
    "tiny": dict(n_contexts=4, bits=8, tiny=1e-12),
    "tiny, contexts in pieces": dict(n_contexts=40, bits=8, tiny=1e-12),
    "too small for single precision": dict(n_contexts=2, bits=8, tiny=1e-60),
    "zeros": dict(n_contexts=3, bits=8, zeros=True),
    "impossible": dict(n_contexts=2, bits=8, impossible=True),
    "more codes than shared memory holds": dict(n_contexts=3, bits=16, n_arms=500, n_values=2),
    "many codes, contexts in pieces": dict(n_contexts=20, bits=16, n_arms=150, n_values=2),
    "streamed": dict(n_contexts=3, bits=8, memory=0),
    "double precision": dict(n_contexts=3, bits=8, exact=True),
    "double precision, contexts in pieces": dict(n_contexts=40, bits=8, exact=True),
}
GAUSSIAN = {
    "normal": dict(n_contexts=3),
    "normal, contexts in pieces": dict(n_contexts=40),
    "normal, more arms than shared memory holds": dict(n_contexts=3, n_arms=800),
}


class Parts:
    """A log as the device is given it."""

    def __init__(self, *parts):
        self._parts = parts

    def partitions(self):
        return self._parts


def models(rng, n_contexts, n_arms, n_values, *, zeros=False, impossible=False, tiny=None):
    width = -(-n_contexts // 8) * 8
    found = np.zeros((2, 1 + n_arms * n_values, width))
    found[:, 0, :n_contexts] = rng.dirichlet(np.ones(n_contexts), size=2)
    tables = rng.dirichlet(np.ones(n_values), size=(2, n_arms, n_contexts))
    if zeros:
        tables[:, 0, 0] = np.eye(n_values)[0]
    if tiny is not None:
        tables *= tiny
    if impossible:
        tables[:, 0, :, 0] = 0.0
    found[:, 1:, :n_contexts] = np.moveaxis(tables, 3, 2).reshape(2, -1, n_contexts)
    return found


def sessions(rng, n, longest, n_codes, kind):
    lengths = rng.integers(1, longest + 1, size=n)
    return rng.integers(n_codes, size=lengths.sum()).astype(kind), lengths


def categorical(n, rng, *, n_contexts, bits, n_arms=3, n_values=2, longest=6, merged=False, memory=None, exact=False,
                **kind):  # fmt: skip
    codes, lengths = sessions(rng, n, longest, n_arms * n_values, KINDS[bits])
    counts = rng.integers(1, 5000, size=n).astype(float) if merged else np.empty(0)
    tables = models(rng, n_contexts, n_arms, n_values, **kind)
    half = n // 2
    cut = int(lengths[:half].sum())
    none = np.empty(0)
    log = Parts((codes[:cut], lengths[:half], counts[:half], none), (codes[cut:], lengths[half:], counts[half:], none))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    statistics, logs = np.empty_like(tables), np.empty(2)
    with np.errstate(under="ignore"):
        reference.categorical(codes, offsets, counts, np.array([0, n]), tables, statistics, logs, 0, 2)
    held = chunks.Chunks(log, memory)
    return compare(held, tables, statistics, logs, exact=exact)


def gaussian(n, rng, *, n_contexts, n_arms=3):
    arms, lengths = sessions(rng, n, 5, n_arms, np.uint16)
    rewards = rng.normal(size=len(arms))
    tables = models(rng, n_contexts, n_arms + 1, 1)
    tables[:, 1:-1, :n_contexts] = rng.normal(size=(2, n_arms, n_contexts))
    tables[:, -1] = [[0.7], [1.3]]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    statistics, logs = np.empty((2, 1 + 2 * n_arms, tables.shape[2])), np.empty(2)
    reference.gaussian(arms, rewards, offsets, np.array([0, n]), tables, statistics, logs, 0, 2)
    logs += len(arms) * np.log(tables[:, -1, 0] * np.sqrt(2 * np.pi))
    held = chunks.Chunks(Parts((arms, lengths, np.empty(0), rewards)))
    return compare(held, tables, statistics, logs, gaussian=True, top=float(np.abs(rewards).max()))


def compare(held, tables, statistics, logs, **options):
    found = [launch.expectation(held, tables, n_sums=statistics.shape[1], blocks=b, **options) for b in (1, 3)]
    same = all(np.array_equal(one, other) for one, other in zip(*found, strict=True))
    with np.errstate(invalid="ignore"):
        lost = np.where(logs == found[0][1], 0.0, found[0][1] / logs - 1)
    scale = np.maximum(np.abs(statistics), 1e-3 * np.abs(statistics).max())
    return {
        "statistics": float((np.abs(found[0][0] - statistics) / scale).max()),
        "log": float(np.abs(lost).max()),
        "same": same,
        "logs": [float(value) for value in found[0][1]],
    }


def main(n, seed):
    if SIMULATED:
        sys.setswitchinterval(1e-4)  # threads of Python play the lanes, and one that waits for them all spins
    shown = {}
    for number, (name, case) in enumerate((CASES | GAUSSIAN).items()):
        rng = np.random.default_rng([seed, number])
        shown[name] = (gaussian if name in GAUSSIAN else categorical)(n, rng, **case)
        print(name, shown[name], file=sys.stderr, flush=True)
    print(json.dumps(shown))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
