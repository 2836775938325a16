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
from reference import sums as reference

import lmab
from lmab._kernel.compiled import sums as compiled
from lmab.estimation.gpu import missing


def run(n_sessions, seed, **environment):
    """What `gpu_cases.py` prints: in a process of its own, since the simulator is chosen when Numba is imported."""
    command = [sys.executable, "-W", "ignore", str(Path(__file__).parent / "gpu_cases.py"), str(n_sessions), str(seed)]
    paths = [str(Path(lmab.__file__).parent.parent), os.environ.get("PYTHONPATH", "")]  # the package under test first
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def as_asked(case):
    """Statistics to 1e-6 (of what, `gpu_cases` says), the log-likelihood to 1e-9, the same bits on another grid."""
    return case["statistics"] < 1e-6 and case["log"] < 1e-9 and case["same"]


@pytest.fixture(scope="module")
def on_gpu():
    why_not = missing()
    if why_not is not None:
        pytest.skip(why_not)
    return run(100_000, 0)


def test_passes_in_the_simulator_equal_the_reference():
    """One test, so that a single process runs the simulator, however many share the suite."""
    found = run(4, 0, NUMBA_ENABLE_CUDASIM="1")
    fit, room = found.pop("fit"), found.pop("room")
    assert room < 2**63  # sums over the whole log are of 64 bits
    assert {name for name, case in found.items() if not case["finite"]} == {"impossible"}
    assert {name: case for name, case in found.items() if not as_asked(case)} == {}
    assert fit["log"] < 1e-12
    assert fit["models"] < 1e-6


@pytest.mark.gpu
def test_every_pass_on_the_gpu_equals_the_reference(on_gpu):
    cases = {name: case for name, case in on_gpu.items() if isinstance(case, dict) and name != "fit"}
    assert {name: case for name, case in cases.items() if not as_asked(case)} == {}


@pytest.mark.gpu
def test_a_fit_on_the_gpu_equals_that_of_the_cpu(on_gpu):
    found = on_gpu["fit"]
    assert found["converged"]
    assert found["falls"] == 0.0
    assert found["log"] < 1e-9  # a session; the tolerance of the climb is ten times that
    assert found["models"] < 2e-3  # so far the two stop from each other


@given(seed=st.integers(0, 2**32 - 1), bits=st.sampled_from([8, 16, 32]), longest=st.integers(1, 11))
def test_both_ways_to_sort_sessions_agree(seed, bits, longest):
    """Every code is found again at the place that the shelves say."""
    from lmab.estimation import gpu

    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, longest + 1, size=9)
    codes = rng.integers(250, size=lengths.sum()).astype(f"u{bits // 8}")
    per = {8: 4, 16: 4, 32: 2}[bits]
    shelves, n_words, _ = gpu._shelves(lengths, per)
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
