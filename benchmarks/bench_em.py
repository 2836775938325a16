"""EM: nanoseconds per episode and iteration beside the peers, growth, threads, a whole fit, and the first call."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

import lmab
from lmab.estimation import Observations, observe
from lmab.estimation.objective import Likelihood
from lmab.estimation.passes import Threads

N_CONTEXTS, N_ARMS, HORIZON = 7, 50, 7


def main() -> None:
    print(f"{N_CONTEXTS} contexts, {N_ARMS} arms, {HORIZON} steps; load of the machine {os.getloadavg()[0]:.1f}")
    print("One thread is measured in processor time, which other programs disturb less.")
    data = _log(100_000)
    ours = _per_episode(data, threads=1)
    print(f"ours, 100,000 episodes, one thread: {ours:.1f} ns per episode and iteration")
    _beside("the same step with scipy.sparse", _sparse(data), ours)
    _beside("StepMix, binary_nan", _stepmix(100_000), ours)
    _growth_and_threads(ours)
    print(_in_a_process(_FIT))
    with tempfile.TemporaryDirectory() as cache:
        print("kernels compiled for the first time: " + _in_a_process(_FIRST_CALL, NUMBA_CACHE_DIR=cache))
        print("kernels loaded in a fresh process:   " + _in_a_process(_FIRST_CALL, NUMBA_CACHE_DIR=cache))


def _log(n_episodes: int) -> Observations:
    """Uniform exploration, in pieces so that the largest log fits into memory."""
    rng = np.random.default_rng(0)
    bandit = lmab.random_bandit(N_CONTEXTS, N_ARMS, rng=rng)
    actions = rng.integers(N_ARMS, size=n_episodes * HORIZON, dtype=np.int32)
    contexts = np.repeat(rng.integers(N_CONTEXTS, size=n_episodes, dtype=np.int8), HORIZON)
    rewards = np.empty(len(actions))
    for start in range(0, len(actions), 1 << 20):
        piece = slice(start, start + (1 << 20))
        rewards[piece] = rng.random(len(actions[piece])) < bandit.means[contexts[piece], actions[piece]]
    return observe(lmab.Episodes(actions, rewards, np.arange(n_episodes + 1) * HORIZON, N_ARMS))


def _per_episode(
    data: Observations, threads: int, repeats: int = 7, clock: Callable[[], float] = time.process_time
) -> float:
    """Nanoseconds per episode of one EM map: expectation, maximisation and all."""
    with Threads(threads) as passes:
        task = Likelihood(data, N_CONTEXTS, data.prior(0.0), passes)
        model = data.start_models.random(1, N_CONTEXTS, np.random.default_rng(1))
        return _time(lambda: task.map(model), repeats, clock) / len(data.episodes) * 1e9


def _growth_and_threads(small: float) -> None:
    for n_episodes in (1_000_000, 10_000_000):
        data = _log(n_episodes)
        one = _per_episode(data, threads=1, repeats=5)
        print(f"{n_episodes:,} episodes, one thread: {one:.1f} ns ({one / small:.2f} of that at 100,000)")
    one, two = (_per_episode(data, threads, 5, time.perf_counter) for threads in (1, 2))
    print(f"{n_episodes:,} episodes, on the clock: one thread {one:.1f} ns, two {two:.1f} ns, ratio {one / two:.2f}")
    print(f"codes of that log: {data.log.codes.nbytes / 1e6:.0f} MB ({data.log.codes.dtype})")


def _sparse(data: Observations) -> float:
    """The same expectation and maximisation as products with a sparse matrix of counts."""
    from scipy.special import logsumexp

    counts, _ = data.start_models.features()
    model = data.start_models.random(1, N_CONTEXTS, np.random.default_rng(1))[0, :, :N_CONTEXTS]
    transposed = counts.T.tocsr()

    def step() -> None:
        joint = np.log(model[0]) + counts @ np.log(model[1:])
        total = logsumexp(joint, axis=1, keepdims=True)
        shares = np.exp(joint - total)
        cells = (transposed @ shares).reshape(N_ARMS, -1, N_CONTEXTS)
        shares.mean(axis=0), cells / cells.sum(axis=1, keepdims=True), total.sum()

    return _time(step, 3) / len(data.episodes) * 1e9


def _stepmix(n_episodes: int) -> float | None:
    """From the difference of a long and a short fit, so that its start does not count; each arm at most once."""
    try:
        from stepmix import StepMix
    except ImportError:
        return None
    rng = np.random.default_rng(0)
    bandit = lmab.random_bandit(N_CONTEXTS, N_ARMS, rng=rng)
    table = np.full((n_episodes, N_ARMS), np.nan)
    arms = np.argsort(rng.random((n_episodes, N_ARMS)), axis=1)[:, :HORIZON]
    means = bandit.means[rng.integers(N_CONTEXTS, size=n_episodes)]
    table[np.arange(n_episodes)[:, None], arms] = rng.random(arms.shape) < np.take_along_axis(means, arms, axis=1)
    seconds = []
    for max_iter in (1, 5):
        model = StepMix(
            n_components=N_CONTEXTS, measurement="binary_nan", max_iter=max_iter, abs_tol=0.0, rel_tol=0.0,
            init_params="random", random_state=0, verbose=0, progress_bar=0,
        )  # fmt: skip
        seconds.append(_time(lambda model=model: model.fit(table), 1))
    return (seconds[1] - seconds[0]) / 4 / n_episodes * 1e9


def _beside(name: str, theirs: float | None, ours: float) -> None:
    if theirs is None:
        print(f"{name}: not installed, no comparison")
    else:
        print(f"{name}: {theirs:.0f} ns, ratio {theirs / ours:.0f}")


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
import time, numpy as np, lmab
from benchmarks.bench_em import _log, peak
lmab.EM(restarts=4).fit(_log(1000), n_contexts=7, rng=np.random.default_rng(0))  # everything is imported
data = _log(1_000_000)
before, start, worked = peak(), time.perf_counter(), time.process_time()
fit = lmab.EM().fit(data, n_contexts=7, rng=np.random.default_rng(0))
seconds = time.perf_counter() - start
print(f"a whole fit of 1,000,000 episodes: {seconds:.1f} s on the clock, {time.process_time() - worked:.1f} s of work; "
      f"peak memory {peak():.0f} MB, {before:.0f} MB before it, codes {data.log.codes.nbytes / 1e6:.0f} MB; "
      f"{fit.message}")
"""

_FIRST_CALL = """
import time, numpy as np
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
print(f"{time.perf_counter() - start:.2f} s on the clock, {time.process_time() - worked:.2f} s of work "
      "(codes of 8, 16 and 32 bits, and normal rewards)")
"""


def peak() -> float:
    """Most memory this process ever held, in MB (the kernel's own figure: rusage would count the parent's, too)."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1e3
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def _in_a_process(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or done.stderr.strip()


if __name__ == "__main__":
    main()
