"""The limit of BLAS to one thread: results do not depend on the user's setting, which stays."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import lmab
from lmab.parallel import blas_libraries, with_one_blas_thread

pytestmark = pytest.mark.skipif(not blas_libraries(), reason="NumPy and SciPy bring no OpenBLAS along")


def threads():
    return {getter() for getter, _ in blas_libraries()}


@contextlib.contextmanager
def setting(number):
    before = [getter() for getter, _ in blas_libraries()]
    for _, setter in blas_libraries():
        setter(number)
    try:
        yield
    finally:
        for value, (_, setter) in zip(before, blas_libraries(), strict=True):
            setter(value)


def test_results_have_the_same_bits_for_any_number_of_blas_threads(rng):
    """The start of a fit of traits is eigenvectors of a matrix of 200 rows, which two threads round differently."""
    bandit = lmab.random_bandit(2, 200, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(200), n_sessions=400, horizon=4, rng=rng)
    method = lmab.Traits(n_factors=1, n_points=8, tolerance=1.0)
    found, plain, limited = [], [], []
    matrix = rng.standard_normal((200, 200))
    matrix += matrix.T
    for number in (1, 2):
        with setting(number):
            plain.append(np.linalg.eigh(matrix)[1])
            limited.append(with_one_blas_thread(np.linalg.eigh)(matrix)[1])
            found.append(lmab.fit(log, method=method, check=False, rng=0).bandit)
            assert threads() == {number}  # the setting stays
    assert not np.array_equal(plain[0], plain[1])  # so that the test can fail
    np.testing.assert_array_equal(limited[0], limited[1])
    np.testing.assert_array_equal(found[0].weights, found[1].weights)
    np.testing.assert_array_equal(found[0].means, found[1].means)


def test_the_limit_holds_until_the_last_of_several_threads_ends():
    inside, events, seen = threading.Barrier(3), [threading.Event(), threading.Event()], []

    @with_one_blas_thread
    def wait(event):
        inside.wait(60)
        event.wait(60)
        seen.append(threads())

    with setting(2):
        workers = [threading.Thread(target=wait, args=(event,)) for event in events]
        for worker in workers:
            worker.start()
        inside.wait(60)
        for worker, event, left in zip(workers, events, ({1}, {2}), strict=True):
            event.set()
            worker.join()
            assert threads() == left
    assert seen == [{1}, {1}]


def test_the_limit_ends_with_an_error():
    @with_one_blas_thread
    def fail():
        raise RuntimeError(str(threads()))

    with setting(2):
        with pytest.raises(RuntimeError, match=r"\{1\}"):
            fail()
        assert threads() == {2}


@pytest.mark.parametrize("setting", [{}, {"OMP_NUM_THREADS": "2"}, {"OPENBLAS_NUM_THREADS": "2"}])
def test_the_command_line_starts_blas_with_one_thread_unless_the_user_said_otherwise(setting):
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in names} | setting
    code = "import os, lmab.cli; print(os.environ.get('OPENBLAS_NUM_THREADS'))"
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(setting.get("OPENBLAS_NUM_THREADS", None if setting else "1"))
