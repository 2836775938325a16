"""The expectation step on a GPU: sessions a second beside JAX, torch and two cores of the CPU, and a whole fit."""

from __future__ import annotations

import datetime
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from numba import njit, prange

import lmab
from lmab._shapes import Array
from lmab.estimation import log as steps_of
from lmab.estimation.categorical import CategoricalLog
from lmab.estimation.gpu import Gpu
from lmab.estimation.log import Steps
from lmab.estimation.result import Progress
from lmab.parallel import Threads

from . import rows as rows_of
from .bench_pack import TYPES
from .pack_work import simulated
from .rows import Rows

REPEATS = 15
WARM = 1.0  # seconds of passes before those that count, since an idle GPU runs slowly
PART = 1 << 26  # steps of a part of that log below: fewer than pay, for many parts
STREAMED = 60_000_000  # sessions of the log that is read from files


@dataclass(frozen=True)
class Case:
    """A log and a model of random numbers."""

    name: str
    n_sessions: int
    n_types: int
    n_arms: int
    length: int  # on average
    ragged: bool = False

    @property
    def key(self) -> str:
        """The name in rows."""
        return self.name.replace(",", "").replace(" ", "-")


FIXED = Case("fixed length", 200_000_000, 8, 50, 8)
CASES = (
    Case("ragged", 200_000_000, 8, 50, 8, ragged=True),
    FIXED,
    Case("32 types", 50_000_000, 32, 50, 8),
    Case("512 types, as of traits", 4_000_000, 512, 100, 10),
)
WHOLE = Case("a whole fit", 1_000_000_000, 8, 50, 8)


def main(whole: int = WHOLE.n_sessions, streamed: int = STREAMED) -> Rows:
    print(f"{datetime.date.today()}, {gpu()}")
    rows: Rows = {}
    for case in CASES:
        rows |= _passes(case)
    rows |= _streamed(streamed)
    for name, program in (("JAX", _jax), ("torch", _torch)):
        rows |= _beside(name, program, rows[f"{FIXED.key}/gpu"])
    return rows | _whole_fit(whole)


def gpu() -> str:
    """The device and its driver."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "no GPU"


def machine() -> str:
    """The device, for the store."""
    name, driver = gpu().split(", ")
    return f"{name}, driver {driver}, beside {rows_of.machine()}"


def _passes(case: Case) -> Rows:
    """Sessions a second of passes over a log that is on the device, and of two threads of the CPU on a part of it."""
    log, models = _log(case), _models(case, 1)
    small = _log(case, max(case.n_sessions // 40, 400_000))
    with Gpu(2) as passes:
        start = time.perf_counter()
        log.expectation(models, passes)
        first = time.perf_counter() - start
        seconds = _seconds(lambda: log.expectation(models, passes))
        statistics, logs = small.expectation(models, passes)
    with Threads(2) as threads:
        truth = small.expectation(models, threads)
        theirs = small.n_distinct / _best(lambda: small.expectation(models, threads), 2)
    ours, slowest = case.n_sessions / np.median(seconds), case.n_sessions / seconds.max()
    wrong = (np.abs(statistics - truth[0])[truth[0] > 0] / truth[0][truth[0] > 0]).max()
    lost = np.abs(logs / truth[1] - 1).max()
    print(
        f"{case.name}: {ours / 1e9:.3f} G sessions/s (the slowest of {REPEATS} passes {slowest / 1e9:.3f}), two cores "
        f"{theirs / 1e9:.5f}: {ours / theirs:.0f} times; sorting, copying and compiling {first:.1f} s; relative to the "
        f"CPU's, statistics {wrong:.1e}, each by itself, log-likelihood {lost:.1e}",
        flush=True,
    )
    rates = {"gpu": ours / 1e9, "slowest": slowest / 1e9, "cpu": theirs / 1e9, "ratio": ours / theirs}
    errors = {"statistics": float(wrong), "log-likelihood": float(lost)}
    return {f"{case.key}/{name}": value for name, value in (rates | errors).items()}


def _streamed(n_sessions: int) -> Rows:
    """A packed log in files, passed over from the device's memory and, with a fourth of the memory, in parts."""
    with tempfile.TemporaryDirectory() as folder, patch.object(steps_of, "PARTITION", PART):
        packed = lmab.pack(simulated(n_sessions), f"{folder}/packed")
        data = CategoricalLog.encode(packed, np.array([0.0, 1.0]))
        models = data.random_models(1, TYPES, np.random.default_rng(0))
        n_bytes = data.n_steps
        seconds, found = [], []
        for memory in (None, n_bytes // 4):
            with Gpu(2, memory=memory) as passes:
                found.append(data.expectation(models, passes))
                seconds.append(float(np.median(_seconds(lambda: data.expectation(models, passes)))))
    same = all(np.array_equal(one, other) for one, other in zip(*found, strict=True))
    print(
        f"a packed log of {n_sessions:,} sessions, {n_bytes / 1e9:.2f} GB: {n_sessions / seconds[0] / 1e9:.2f} "
        f"G sessions/s from the device's memory, {n_sessions / seconds[1] / 1e9:.2f} with {n_bytes / 4e9:.2f} GB of it "
        f"({n_bytes / seconds[1] / 1e9:.0f} GB/s); the same bits: {same}",
        flush=True,
    )
    rates = {"resident": n_sessions / seconds[0] / 1e9, "gpu": n_sessions / seconds[1] / 1e9, "same": float(same)}
    return {f"streamed/{name}": value for name, value in rates.items()}


def _log(case: Case, n_sessions: int | None = None) -> CategoricalLog:
    """Random codes; the sessions of the log are only the first of its sessions."""
    n_sessions = case.n_sessions if n_sessions is None else n_sessions
    rng = np.random.default_rng(0)
    lengths = np.full(n_sessions, case.length)
    if case.ragged:
        lengths = rng.integers(1, 2 * case.length, size=n_sessions)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    codes = rng.integers(2 * case.n_arms, size=int(offsets[-1]), dtype=np.uint8)
    return _as_log(codes, offsets, case.n_arms)


def _as_log(codes: Array, offsets: Array, n_arms: int) -> CategoricalLog:
    few = min(len(offsets) - 1, 1_000_000)
    steps = codes[: offsets[few]].astype(np.int64)
    sessions = lmab.Sessions(steps // 2, (steps % 2).astype(float), offsets[: few + 1], n_arms)
    for array in (codes, offsets):
        array.flags.writeable = False
    log = CategoricalLog(sessions, Steps.of(codes, offsets), np.array([0.0, 1.0]))
    log.__dict__["cells"] = np.ones((log.n_arms, 2))  # nothing here depends on them
    return log


def _models(case: Case, n_models: int) -> Array:
    rng = np.random.default_rng(1)
    models = np.zeros((n_models, 1 + 2 * case.n_arms, -(-case.n_types // 8) * 8))
    models[:, 0, : case.n_types] = rng.dirichlet(np.ones(case.n_types), size=n_models)
    paying = rng.uniform(0.05, 0.95, size=(n_models, case.n_arms, case.n_types))
    models[:, 1::2, : case.n_types], models[:, 2::2, : case.n_types] = 1 - paying, paying
    return models


def _seconds(call: Callable[[], object]) -> Array:
    """What each of several calls takes, once the device is warm."""
    end = time.perf_counter() + WARM
    while time.perf_counter() < end:
        call()
    return np.array([_best(call, 1) for _ in range(REPEATS)])


def _best(call: Callable[[], object], repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def _beside(name: str, program: Callable[[], float], ours: float) -> Rows:
    try:
        theirs = program()
    except ImportError:
        print(f"{name}: not installed, no comparison")
        return {}
    print(
        f"{name}, the same pass of fixed length: {theirs / 1e9:.3f} G sessions/s, ratio {ours * 1e9 / theirs:.0f}",
        flush=True,
    )
    return {name: theirs / 1e9, f"{name}/ratio": ours * 1e9 / theirs}


def _jax(n: int = 1 << 25, at_once: int = 1 << 20) -> float:
    """Counts of codes as products of matrices, or gathered and scattered: what is faster."""
    import jax
    import jax.numpy as jnp

    model, n_codes = jnp.asarray(_models(FIXED, 1)[0], jnp.float32), 2 * FIXED.n_arms
    codes = jax.random.randint(jax.random.key(0), (n // at_once, at_once, 8), 0, n_codes, jnp.uint8)

    def shares(joint: Any) -> tuple[Any, Any]:
        top = joint.max(axis=1, keepdims=True)
        mass = jnp.exp(joint - top)
        total = mass.sum(axis=1, keepdims=True)
        return mass / total, (top + jnp.log(total)).sum()

    def by_products(carry: Any, chunk: Any) -> Any:
        counts = jax.nn.one_hot(chunk, n_codes, dtype=jnp.float32).sum(axis=1)
        share, logs = shares(jnp.log(model[0]) + counts @ jnp.log(model[1:]))
        return (carry[0] + share.sum(axis=0), carry[1] + counts.T @ share, carry[2] + logs), None

    def by_scattering(carry: Any, chunk: Any) -> Any:
        share, logs = shares(jnp.log(model[0]) + jnp.log(model[1:])[chunk].sum(axis=1))
        steps = jnp.broadcast_to(share[:, None], (*chunk.shape, share.shape[1]))
        return (carry[0] + share.sum(axis=0), carry[1].at[chunk].add(steps), carry[2] + logs), None

    empty = (jnp.zeros(model.shape[1]), jnp.zeros((n_codes, model.shape[1])), jnp.zeros(()))
    rates = []
    for step in (by_products, by_scattering):
        run = jax.jit(partial(jax.lax.scan, step, empty))
        jax.block_until_ready(run(codes))
        rates.append(n / _best(partial(_ready, jax, run, codes), 3))
    return max(rates)


def _ready(jax: Any, run: Callable[..., Any], codes: Any) -> None:
    jax.block_until_ready(run(codes))


def _torch(n: int = 1 << 25, at_once: int = 1 << 21) -> float:
    import torch

    model = torch.as_tensor(_models(FIXED, 1)[0], dtype=torch.float32, device="cuda")
    codes = torch.randint(2 * FIXED.n_arms, (n, 8), device="cuda", dtype=torch.int32)

    def step() -> None:
        sums = torch.zeros_like(model)
        total = torch.zeros((), dtype=torch.float64, device="cuda")
        for chunk in codes.split(at_once):
            joint = torch.log(model[0]) + torch.log(model[1:])[chunk].sum(dim=1)
            total += torch.logsumexp(joint, dim=1).sum()
            share = torch.softmax(joint, dim=1)
            sums[0] += share.sum(dim=0)
            sums[1:].index_add_(0, chunk.ravel(), share.repeat_interleave(8, dim=0))
        torch.cuda.synchronize()

    step()
    return n / _best(step, 3)


def _whole_fit(n_sessions: int) -> Rows:
    """8 types, 8 starts, by the likelihood alone, on a log that is in memory and was passed over once."""
    start = time.perf_counter()
    case = Case(WHOLE.name, n_sessions, WHOLE.n_types, WHOLE.n_arms, WHOLE.length)
    truth = lmab.random_bandit(case.n_types, case.n_arms, rng=0)
    codes, cells = _played(n_sessions, case.length, np.cumsum(truth.weights), truth.means)
    log = _as_log(codes, np.arange(0, len(codes) + 1, case.length), case.n_arms)
    log.__dict__["cells"] = cells.astype(float)
    watch = _Watch()
    print(f"{n_sessions:,} sessions made in {time.perf_counter() - start:.1f} s", flush=True)
    with Gpu() as passes:
        start = time.perf_counter()
        log.expectation(_models(case, 1), passes)
        loading = time.perf_counter() - start
        start = time.perf_counter()
        fit = lmab.EM(restarts=8, prior=0.0).fit(
            log, n_types=8, rng=np.random.default_rng(0), progress=watch, backend=passes
        )
        seconds = time.perf_counter() - start
    watch.show(start)
    print(
        f"a whole fit of {n_sessions:,} sessions, 8 types, 8 starts: {seconds:.1f} s, once sorting, copying and "
        f"compiling had taken {loading:.1f} s; {fit.message}; distance to the truth {fit.bandit.distance(truth):.1e}",
        flush=True,
    )
    return {"fit/seconds": seconds, "fit/loading": loading, "fit/maps": float(len(fit.trace))}


class _Watch:
    """When the fit reported progress."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, Progress]] = []

    def __call__(self, news: Progress) -> bool:
        self.seen.append((time.perf_counter(), news))
        return False

    def show(self, start: float) -> None:
        """The seconds after which each stage began to report, and ended."""
        before = None
        for moment, news in self.seen:
            if before is None or news.stage != before[1].stage or news.iteration < before[1].iteration:
                print(f"  {news.stage} from {moment - start:.1f} s on", flush=True)
            before = moment, news


@njit(cache=True)
def _uniform(state):  # type: ignore[no-untyped-def]
    """A number between 0 and 1 by the generator splitmix64, whose state is one number."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    word = state[0]
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return float((word ^ (word >> np.uint64(31))) >> np.uint64(11)) / 2.0**53


@njit(parallel=True, cache=True)
def _played(n_sessions, length, cumulative, means):  # type: ignore[no-untyped-def]
    """Codes of sessions with arms at random, and how often each occurs."""
    n_arms, n_parts = means.shape[1], 64
    codes = np.empty(n_sessions * length, np.uint8)
    cells = np.zeros((n_parts, n_arms, 2), np.int64)
    for part in prange(n_parts):
        state = np.full(1, part * 2**40, np.uint64)
        for session in range(n_sessions * part // n_parts, n_sessions * (part + 1) // n_parts):
            type_ = min(np.searchsorted(cumulative, _uniform(state)), len(cumulative) - 1)
            for step in range(session * length, (session + 1) * length):
                arm = int(_uniform(state) * n_arms)
                paid = int(_uniform(state) < means[type_, arm])
                codes[step] = 2 * arm + paid
                cells[part, arm, paid] += 1
    return codes, cells.sum(axis=0)


def table(rows: Rows) -> str:
    """Sessions a second by case."""
    lines = [
        "| | GPU, G sessions/s | two cores | ratio | largest relative error of a statistic | of the log-likelihood |",
        "|---|---|---|---|---|---|",
    ]
    for case in CASES:
        ours, theirs, wrong, lost = (
            rows[f"{case.key}/{one}"] for one in ("gpu", "cpu", "statistics", "log-likelihood")
        )
        lines.append(f"| {case.name} | {ours:.3g} | {theirs:.2g} | {ours / theirs:.0f} | {wrong:.0e} | {lost:.0e} |")
    return "\n".join(lines)


TABLES = {"": table}


if __name__ == "__main__":
    main()
