"""The kernels of a GPU beside the reference: in the simulator, and with `make gpu` on a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lmab
from lmab._kernel.compiled import shelves as compiled
from lmab._kernel.reference import shelves as reference
from lmab.estimation.gpu.passes import missing

CASES = (
    "eight lanes", "sixteen lanes", "thirty-two lanes", "more contexts than lanes", "wide codes", "merged",
    "merged, contexts in pieces", "long", "long, contexts in pieces", "tiny", "tiny, contexts in pieces",
    "too small for single precision", "zeros", "impossible", "more codes than shared memory holds",
    "many codes, contexts in pieces", "short", "short, sixteen lanes", "short, thirty-two lanes",
    "short, of one length", "short, of full words", "short and tiny", "streamed", "double precision",
    "double precision, contexts in pieces", "normal", "normal, contexts in pieces",
    "normal, more arms than shared memory holds",
)  # fmt: skip
EXACT = {"double precision", "double precision, contexts in pieces", "too small for single precision"}


def run(n_sessions, seed, **environment):
    """What `gpu_cases.py` prints: in a process of its own, since the simulator is chosen when Numba is imported."""
    command = [sys.executable, "-W", "ignore", str(Path(__file__).parent / "gpu_cases.py"), str(n_sessions), str(seed)]
    environment["PYTHONPATH"] = str(Path(lmab.__file__).parent.parent)  # the package under test, perhaps a copy
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def simulated():
    return run(4, 0, NUMBA_ENABLE_CUDASIM="1")


@pytest.fixture(scope="module")
def on_gpu():
    why_not = missing()
    if why_not is not None:
        pytest.skip(why_not)
    return run(100_000, 0)


@pytest.mark.parametrize("name", CASES)
def test_a_pass_in_the_simulator_equals_the_reference(simulated, name):
    found = simulated[name]
    assert found["statistics"] < 1e-6
    assert found["log"] < (1e-8 if name in EXACT else 1e-7)
    assert found["same"]


def test_the_simulator_meets_an_impossible_session(simulated):
    assert [name for name in CASES if not simulated[name]["finite"]] == ["impossible"]


def test_a_fit_in_the_simulator_equals_that_of_the_cpu(simulated):
    assert simulated["fit"]["log"] < 1e-12
    assert simulated["fit"]["models"] < 1e-6


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_a_pass_on_the_gpu_equals_the_reference(on_gpu, name):
    found = on_gpu[name]
    assert found["statistics"] < 5e-7
    assert found["log"] < (1e-11 if name in EXACT else 1e-8)
    assert found["same"]


@pytest.mark.gpu
def test_a_fit_on_the_gpu_equals_that_of_the_cpu(on_gpu):
    found = on_gpu["fit"]
    assert found["converged"]
    assert found["falls"] < 1e-7  # as a part of the log-likelihood: the rounding of single precision
    assert found["log"] < 1e-8  # the tolerance of the climb
    assert found["models"] < 1e-2


@given(seed=st.integers(0, 2**32 - 1), bits=st.sampled_from([8, 16, 32]), longest=st.integers(1, 11))
def test_both_ways_to_sort_sessions_agree(seed, bits, longest):
    """Every code is found again at the place that the shelves say."""
    from lmab.estimation.gpu import shelving

    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, size=9)
    codes = rng.integers(250, size=lengths.sum()).astype(f"u{bits // 8}")
    per = {8: 4, 16: 4, 32: 2}[bits]
    shelves, n_words, _ = shelving._shelves(lengths, per)
    results = []
    for kernel in (reference, compiled):
        words = np.zeros(n_words, np.uint32 if bits == 8 else np.uint64)
        side, order = np.full(len(codes), np.nan), np.full(9, -1)
        kernel.fill(codes, codes.astype(float), lengths, shelves, bits, per, words, side, order)
        results.append((words, side, order))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)
    words, side, order = results[0]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    for length, size, word, step, session, _ in shelves.tolist():
        for k in range(size):
            steps = codes[offsets[order[session + k]] :][:length]
            found = [int(words[word + t // per * size + k]) >> (t % per * bits) & (2**bits - 1) for t in range(length)]
            assert found == steps.tolist()
            assert side[step + np.arange(length) * size + k].tolist() == steps.tolist()
