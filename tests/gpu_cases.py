"""Passes on a GPU, or on its simulator, beside the CPU's: `python gpu_cases.py N SEED` prints differences as JSON.

Each case gives the largest error of a statistic (see `scales_of`), that of the log-likelihood (relative), and whether
other grids give the same bits.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from itertools import pairwise

import numpy as np
from reference import em as reference

import lmab
from lmab._kernel.cuda import SIMULATED, launch
from lmab.estimation import gpu

PATIENCE = 60.0  # seconds after which a lane of the simulator gives up on the others
KINDS = {8: np.uint8, 16: np.uint16, 32: np.uint32}
ONE = {"n_models": 1, "n_parts": 1}
CASES = {
    "eight lanes": {"n_types": 3, "bits": 8, "other_grid": True},
    "sixteen lanes": {"n_types": 12, "bits": 8},
    "thirty-two lanes": {"n_types": 20, "bits": 16},
    "more types than lanes": {"n_types": 40, "bits": 8, "other_grid": True},
    "wide codes": {"n_types": 4, "bits": 32, "n_arms": 5},
    "merged": {"n_types": 4, "bits": 8, "merged": True},
    "merged, types in pieces": {
        "n_types": 40,
        "bits": 8,
        "merged": True,
        "n_arms": 2,
        "n_models": 1,
        "n_parts": 1,
    },
    "long": {"n_types": 4, "bits": 8, "longest": 80},
    "long, types in pieces": {"n_types": 40, "bits": 8, "longest": 40, **ONE},
    "tiny": {"n_types": 4, "bits": 8, "tiny": 1e-60},
    "tiny, types in pieces": {"n_types": 40, "bits": 8, "tiny": 1e-60, **ONE},
    "rare types": {"n_types": 3, "bits": 8, "rare": 1e-4, "zeros": True},
    "zeros": {"n_types": 3, "bits": 8, "zeros": True},
    "impossible": {"n_types": 2, "bits": 8, "impossible": True},
    "more codes than shared memory holds": {"n_types": 3, "bits": 16, "n_arms": 500, "n_values": 2},
    "many codes, types in pieces": {
        "n_types": 20,
        "bits": 16,
        "n_arms": 150,
        "n_values": 2,
        "n_models": 1,
        "n_parts": 1,
    },
    "short": {"n_types": 3, "bits": 8, "longest": 19, "short": True, "other_grid": True},
    "short, sixteen lanes": {"n_types": 12, "bits": 16, "short": True},
    "short, thirty-two lanes": {"n_types": 20, "bits": 32, "longest": 4, "short": True},
    "short, of one length": {"n_types": 3, "bits": 8, "length": 7, "short": True},
    "short, of full words": {"n_types": 3, "bits": 8, "length": 8, "short": True},
    "short and tiny": {"n_types": 4, "bits": 8, "tiny": 1e-60, "short": True},
    "streamed": {"n_types": 3, "bits": 8, "memory": 0},
}
GAUSSIAN = {
    "normal": {"n_types": 3},
    "normal, types in pieces": {"n_types": 40, "n_models": 1},
    "normal, more arms than shared memory holds": {"n_types": 3, "n_arms": 800},
}


class Parts:
    """A log as the device is given it."""

    def __init__(self, *parts):
        self._parts = parts

    def partitions(self):
        return self._parts


def models(rng, n_models, n_types, n_arms, n_values, *, zeros=False, impossible=False, tiny=None, rare=None):
    width = -(-n_types // 8) * 8
    found = np.zeros((n_models, 1 + n_arms * n_values, width))
    found[:, 0, :n_types] = rng.dirichlet(np.ones(n_types), size=n_models)
    if rare is not None:
        found[:, 0, :n_types] = [1 - rare] + [rare / (n_types - 1)] * (n_types - 1)
    tables = rng.dirichlet(np.ones(n_values), size=(n_models, n_arms, n_types))
    if zeros:
        tables[:, 0, 0] = np.eye(n_values)[0]
    if tiny is not None:
        tables *= tiny
    if impossible:
        tables[:, 0, :, 0] = 0.0
    found[:, 1:, :n_types] = np.moveaxis(tables, 3, 2).reshape(n_models, -1, n_types)
    return found


def sessions(rng, n, longest, n_codes, kind, shortest=1):
    lengths = rng.integers(shortest, longest + 1, size=n)
    return rng.integers(n_codes, size=lengths.sum()).astype(kind), lengths


def categorical(n, rng, *, n_types, bits, n_arms=3, n_values=2, longest=6, merged=False, memory=None,
                other_grid=False, short=False, length=None, n_models=2, n_parts=2, **kind):  # fmt: skip
    gpu._WORTH_COMPILING = 0 if short else 1 << 62
    codes, lengths = sessions(rng, n, length or longest, n_arms * n_values, KINDS[bits], length or 1)
    codes[0] = 0  # of which "impossible" knows nothing
    counts = rng.choice([5.0, 9.0, 14.0, 4000.0], size=n) if merged else np.empty(0)
    tables = models(rng, n_models, n_types, n_arms, n_values, **kind)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    edges = np.linspace(0, n, n_parts + 1).astype(int)
    log = Parts(
        *(
            (codes[offsets[low] : offsets[high]], lengths[low:high], counts[low:high], np.empty(0))
            for low, high in pairwise(edges)
        )
    )
    statistics, logs = np.empty_like(tables), np.empty(n_models)
    with np.errstate(under="ignore"):
        reference.categorical(codes, offsets, counts, np.array([0, n]), tables, statistics, logs, 0, n_models)
    held = gpu.Chunks(log, memory)
    return compare(held, tables, statistics, logs, scales_of(statistics, tables), other_grid)


def gaussian(n, rng, *, n_types, n_arms=3, n_models=2):
    arms, lengths = sessions(rng, n, 5, n_arms, np.uint16)
    rewards = rng.normal(size=len(arms))
    tables = models(rng, n_models, n_types, n_arms + 1, 1)
    tables[:, 1:-1, :n_types] = rng.normal(size=(n_models, n_arms, n_types))
    tables[:, -1] = [[0.7], [1.3]][:n_models]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    statistics, logs = np.empty((n_models, 1 + 2 * n_arms, tables.shape[2])), np.empty(n_models)
    reference.gaussian(arms, rewards, offsets, np.array([0, n]), tables, statistics, logs, 0, n_models)
    logs += len(arms) * np.log(tables[:, -1, 0] * np.sqrt(2 * np.pi))
    held = gpu.Chunks(Parts((arms, lengths, np.empty(0), rewards)))
    top = float(np.abs(rewards).max())
    scales = scales_of(statistics[:, : 1 + n_arms], tables)
    scales = np.concatenate([scales, 2 * top * scales[:, 1:]], axis=1)  # a sum of rewards is one of many signs
    return compare(held, tables, statistics, logs, scales, gaussian=True, top=top)


def scales_of(statistics, tables):
    """Return the scales of errors: the statistic, or a hundredth of its expectation under the type's weight."""
    return np.maximum(statistics, 0.01 * tables[:, :1] * statistics.sum(axis=2, keepdims=True))


def compare(held, tables, statistics, logs, scales, other_grid=False, **options):
    grids = ((1, 2) if other_grid else (1,)) if SIMULATED else (1, 2, None)
    found = [expectation(held, tables, statistics.shape[1], blocks=b, **options) for b in grids]
    same = all(np.array_equal(one, first) for other in found for one, first in zip(other, found[0], strict=True))
    with np.errstate(invalid="ignore", divide="ignore"):
        wrong = np.where(statistics == found[0][0], 0.0, np.abs(found[0][0] - statistics) / scales)
        lost = np.where(logs == found[0][1], 0.0, found[0][1] / logs - 1)
    return {
        "statistics": float(wrong.max()),
        "log": float(np.abs(lost).max()),
        "same": same,
        "finite": bool(np.isfinite(found[0][1]).all()),
    }


def expectation(held, tables, n_sums, **options):
    return launch.expectation(held, tables, n_sums=n_sums, n_steps=held.n_steps, weight=held.weight, **options)


def fit(n, n_types):
    """Compare a whole fit on the device with the CPU's: log-likelihood per session, and parameters."""
    rng = np.random.default_rng(0)
    bandit = lmab.random_bandit(2, 4, rng=rng)
    sessions = lmab.simulate(bandit, lmab.Uniform(4), n_sessions=n, horizon=5, rng=rng)
    gpu._WORTH_THE_WAY = 0
    fits = [
        lmab.fit(sessions, n_types=n_types, method=lmab.EM(restarts=2, prior=0.0), backend=backend, rng=1)
        for backend in (None, "gpu")
    ]
    gap = abs(fits[0].log_likelihood - fits[1].log_likelihood) / n
    falls = max(0.0, float(-np.diff(fits[1].trace).min(initial=0.0))) / abs(fits[1].log_likelihood)
    return {"log": gap, "models": float(fits[0].bandit.distance(fits[1].bandit)), "falls": falls,
            "converged": fits[1].converged}  # fmt: skip


def in_turns():
    """Run the simulator's lanes, which are Python threads, one after another until each waits for the others.

    Numba's own block polls every lane, which takes more time than the lanes do. In turns, a lane that reads a value
    before a later lane has written it reads the same value in every run. All lanes run on one core, because a turn on
    another core waits for that core, which may be busy.
    """
    from numba.cuda.simulator import kernel

    class Lane(kernel.BlockThread):
        def run(self):
            super().run()
            self._manager.failed = self._manager.failed or self.exception
            self.following.gate.release()

        def syncthreads(self):
            self.following.gate.release()
            self.wait()

        def wait(self):
            if not self.gate.acquire(timeout=PATIENCE) or self._manager.failed:
                raise RuntimeError(f"{self} waited for a lane that is gone")

    def run(block, place, *arguments):
        def work():
            threading.current_thread().wait()
            block._f(*arguments)

        block.failed = None
        lanes = [Lane(work, block, place, lane, block._debug) for lane in np.ndindex(*block._block_dim)]
        for lane, following in zip(lanes, lanes[1:] + lanes[:1], strict=True):
            lane.gate, lane.following = threading.Lock(), following
            lane.gate.acquire()
        for lane in lanes:
            lane.start()
        lanes[0].gate.release()
        for lane in lanes:
            lane.join()
        if block.failed:
            raise block.failed[0].with_traceback(block.failed[1])

    kernel.BlockManager.run = run
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def main(n, seed):
    if SIMULATED:
        in_turns()
    shown = {}
    for number, (name, case) in enumerate((CASES | GAUSSIAN).items()):
        rng = np.random.default_rng([seed, number])
        shown[name] = (gaussian if name in GAUSSIAN else categorical)(n, rng, **case)
    shown["room"] = float((launch._scales(np.array([[1e-30, 0.5]]), 1000, 2**40) * 2**40).max())
    shown["fit"] = fit(12 if SIMULATED else 100_000, 1 if SIMULATED else 2)
    print(json.dumps(shown))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
