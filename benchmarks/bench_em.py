"""EM: nanoseconds per session and iteration beside the peers, growth, threads, a whole fit, and the first call."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import lmab
from lmab.estimation.climb import Likelihood
from lmab.estimation.families import observe
from lmab.estimation.log import Log
from lmab.parallel import Threads

from .rows import Rows

N_TYPES, N_ARMS, HORIZON = 7, 50, 7


def main() -> Rows:
    print(f"{N_TYPES} types, {N_ARMS} arms, {HORIZON} steps; load of the machine {os.getloadavg()[0]:.1f}")
    print("One thread is measured in processor time, which other programs disturb less.")
    data = _log(100_000)
    ours = _per_session(data, threads=1)
    print(f"ours, 100,000 sessions, one thread: {ours:.1f} ns per session and iteration")
    rows = {"ours": ours, "ours-ratio": 1.0}
    rows |= _beside("scipy.sparse", _sparse(data), ours) | _beside("StepMix", _stepmix(100_000), ours)
    rows |= _growth_and_threads(ours) | _in_a_process(_FIT)
    with tempfile.TemporaryDirectory() as cache:
        for state in ("compiled", "loaded"):
            rows |= _in_a_process(_FIRST_CALL.replace("STATE", state), NUMBA_CACHE_DIR=cache)
    return rows


def _log(n_sessions: int) -> Log:
    """Uniform exploration, in pieces so that the largest log fits into memory."""
    rng = np.random.default_rng(0)
    bandit = lmab.random_bandit(N_TYPES, N_ARMS, rng=rng)
    arms = rng.integers(N_ARMS, size=n_sessions * HORIZON, dtype=np.int32)
    types = np.repeat(rng.integers(N_TYPES, size=n_sessions, dtype=np.int8), HORIZON)
    rewards = np.empty(len(arms))
    for start in range(0, len(arms), 1 << 20):
        piece = slice(start, start + (1 << 20))
        rewards[piece] = rng.random(len(arms[piece])) < bandit.means[types[piece], arms[piece]]
    return observe(lmab.Sessions(arms, rewards, np.arange(n_sessions + 1) * HORIZON, N_ARMS))


def _per_session(data: Log, threads: int, repeats: int = 7, clock: Callable[[], float] = time.process_time) -> float:
    """Nanoseconds per session of one EM map: expectation, maximisation and all."""
    with Threads(threads) as passes:
        task = Likelihood(data, N_TYPES, data.prior(0.0), passes)
        model = data.random_models(1, N_TYPES, np.random.default_rng(1))
        return _time(lambda: task.map(model), repeats, clock) / len(data.sessions) * 1e9


def _growth_and_threads(small: float) -> Rows:
    rows: Rows = {}
    for n_sessions in (1_000_000, 10_000_000):
        data: Any = _log(n_sessions)
        one = _per_session(data, threads=1, repeats=5)
        print(f"{n_sessions:,} sessions, one thread: {one:.1f} ns ({one / small:.2f} of that at 100,000)")
        rows[f"growth-{n_sessions}"] = one / small
    one, two = (_per_session(data, threads, 5, time.perf_counter) for threads in (1, 2))
    print(f"{n_sessions:,} sessions, on the clock: one thread {one:.1f} ns, two {two:.1f} ns, ratio {one / two:.2f}")
    codes = data.codes
    print(f"codes of that log: {codes.nbytes / 1e6:.0f} MB ({codes.dtype})")
    return rows | {"one-thread": one, "two-threads": two, "threads-ratio": one / two, "codes-MB": codes.nbytes / 1e6}


def _sparse(data: Log) -> float:
    """The same expectation and maximisation as products with a sparse matrix of counts."""
    from scipy.special import logsumexp

    counts, _ = data.features()
    model = data.random_models(1, N_TYPES, np.random.default_rng(1))[0, :, :N_TYPES]
    transposed = counts.T.tocsr()

    def step() -> None:
        joint = np.log(model[0]) + counts @ np.log(model[1:])
        total = logsumexp(joint, axis=1, keepdims=True)
        shares = np.exp(joint - total)
        cells = (transposed @ shares).reshape(N_ARMS, -1, N_TYPES)
        shares.mean(axis=0), cells / cells.sum(axis=1, keepdims=True), total.sum()

    return _time(step, 3) / len(data.sessions) * 1e9


def _stepmix(n_sessions: int) -> float | None:
    """From the difference of a long and a short fit, so that its start does not count; each arm at most once."""
    try:
        from stepmix import StepMix
    except ImportError:
        return None
    rng = np.random.default_rng(0)
    bandit = lmab.random_bandit(N_TYPES, N_ARMS, rng=rng)
    table = np.full((n_sessions, N_ARMS), np.nan)
    arms = np.argsort(rng.random((n_sessions, N_ARMS)), axis=1)[:, :HORIZON]
    means = bandit.means[rng.integers(N_TYPES, size=n_sessions)]
    table[np.arange(n_sessions)[:, None], arms] = rng.random(arms.shape) < np.take_along_axis(means, arms, axis=1)
    seconds = []
    for max_iter in (1, 5):
        model = StepMix(
            n_components=N_TYPES, measurement="binary_nan", max_iter=max_iter, abs_tol=0.0, rel_tol=0.0,
            init_params="random", random_state=0, verbose=0, progress_bar=0,
        )  # fmt: skip
        seconds.append(_time(partial(model.fit, table), 1))
    return (seconds[1] - seconds[0]) / 4 / n_sessions * 1e9


def _beside(name: str, theirs: float | None, ours: float) -> Rows:
    if theirs is None:
        print(f"{name}: not installed, no comparison")
        return {}
    print(f"{name}: {theirs:.0f} ns, ratio {theirs / ours:.0f}")
    return {name: theirs, f"{name}-ratio": theirs / ours}


def _time(call: Callable[[], object], repeats: int, clock: Callable[[], float] = time.process_time) -> float:
    import warnings

    best = float("inf")
    for _ in range(repeats):
        start = clock()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a peer that was stopped early says so
            call()
        best = min(best, clock() - start)
    return best


_FIT = """
import json, time, numpy as np, lmab
from benchmarks.bench_em import _log, peak
lmab.EM(restarts=4, prior=0.0).fit(_log(1000), n_types=7, rng=np.random.default_rng(0))  # everything is imported
data = _log(1_000_000)
before, start, worked = peak(), time.perf_counter(), time.process_time()
fit = lmab.EM(prior=0.0).fit(data, n_types=7, rng=np.random.default_rng(0))
seconds = time.perf_counter() - start
print("a whole fit of 1,000,000 sessions:", fit.message)
print(json.dumps({"fit/wall": seconds, "fit/used": time.process_time() - worked, "fit/iterations": len(fit.trace),
                  "fit/more-MB": peak() - before, "fit/codes-MB": data.codes.nbytes / 1e6}))
"""

_FIRST_CALL = """
import json, time, numpy as np
from lmab._kernel import kernel
start, worked = time.perf_counter(), time.process_time()
em = kernel("em")
offsets, edges, models = np.array([0, 1]), np.array([0, 1]), np.full((1, 3, 8), 0.125)
offsets.flags.writeable = False
steps, empty = np.zeros(1), np.empty(0)
steps.flags.writeable = empty.flags.writeable = False
logs = np.empty(1)
for dtype in (np.uint8, np.uint16, np.uint32):
    codes = np.zeros(1, dtype)
    codes.flags.writeable = False
    em.categorical(codes, offsets, empty, edges, models, np.empty((1, 3, 8)), logs, 0, 1)
codes = np.zeros(1, np.uint8)
codes.flags.writeable = False
em.gaussian(codes, steps, offsets, edges, models, np.empty((1, 3, 8)), logs, 0, 1)
print("kernels STATE (codes of 8, 16 and 32 bits, and normal rewards):")
print(json.dumps({"kernels/STATE": time.perf_counter() - start, "kernels/STATE-used": time.process_time() - worked}))
"""


def peak() -> float:
    """Most memory this process ever held, in MB (the kernel's own figure: rusage would count the parent's, too)."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1e3
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def _in_a_process(program: str, **environment: str) -> Rows:
    """The last line that the program prints is its rows."""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=True)
    print(done.stdout, flush=True)
    rows: Rows = json.loads(done.stdout.splitlines()[-1])
    return rows


def table(rows: Rows) -> str:
    """Nanoseconds per session beside the peers."""
    names = {"ours": "ours", "the same step with scipy.sparse": "scipy.sparse", "StepMix, `binary_nan`": "StepMix"}
    lines = ["| | nanoseconds per session | ratio |", "|---|---|---|"]
    return "\n".join(
        [*lines, *(f"| {text} | {rows[name]:,.0f} | {rows[f'{name}-ratio']:.0f} |" for text, name in names.items())]
    )


TABLES = {"": table}


if __name__ == "__main__":
    main()
