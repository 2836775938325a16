"""Ctrl-C at the door: the best so far, and a way out."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab.cli.output import interruptible


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_once_asks_twice_ends():
    before = signal.getsignal(signal.SIGINT)
    with interruptible() as asked:
        assert not asked()
        interrupt()
        assert asked()
        with pytest.raises(KeyboardInterrupt):
            interrupt()
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_are_left_alone():
    answers = []

    def work() -> None:
        with interruptible() as asked:
            answers.append(asked())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert answers == [False]


def test_an_interrupted_fit_returns_the_best_so_far(rng):
    bandit = lmab.random_bandit(3, 10, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(10), n_sessions=500, horizon=5, rng=rng)
    seen = []

    with interruptible() as asked:

        def observer(news: object) -> bool:
            seen.append(news)
            if len(seen) == 5:
                interrupt()
            return asked()

        fit = lmab.fit(log, n_types=3, method=lmab.EM(prior=0.0), rng=generator(0), progress=observer)
    assert fit.status == "interrupted"
    assert len(seen) == 5
    assert np.isfinite(fit.log_likelihood)
