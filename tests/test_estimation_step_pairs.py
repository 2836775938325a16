"""Pairs of steps as one code: the same expectation step, wherever the log lies."""

from __future__ import annotations

import numpy as np
import pytest

import lmab
from lmab.estimation import log as log_module
from lmab.estimation import step_pairs
from lmab.estimation.climb import Likelihood
from lmab.estimation.families import observe
from lmab.estimation.log import Beside, CodeBlock
from lmab.parallel import SERIAL, Threads


@pytest.fixture
def ragged(rng):
    """A log of sessions of 1 to 9 steps, some of which were left."""
    bandit = lmab.random_bandit(3, 5, rng=rng)
    arms, rewards = lmab.simulate(bandit, lmab.Uniform(5), n_sessions=4000, horizon=9, rng=rng).to_arrays()
    arms[np.arange(9) >= rng.integers(1, 10, size=4000)[:, None]] = -1
    return lmab.Sessions.from_arrays(arms, rewards, n_arms=5)


@pytest.fixture
def calls(monkeypatch):
    """Names of the kernels of the expectation step, in the order of their calls."""
    seen, kernel = [], log_module.kernel

    class Noting:
        @staticmethod
        def categorical(*arguments):
            seen.append("categorical")
            kernel("em").categorical(*arguments)

        @staticmethod
        def in_pairs(*arguments):
            seen.append("in_pairs")
            kernel("em").in_pairs(*arguments)

    monkeypatch.setattr(log_module, "kernel", lambda name: Noting)
    return seen


def in_single_steps(log, models, passes=SERIAL):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_pairs, "_CACHED", 0)
        return log.expectation(models, passes)


def assert_close(found, expected):
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-13)
    np.testing.assert_allclose(found[0], expected[0], rtol=6e-14, atol=1e-13)


@pytest.mark.parametrize("kind", ["plain", "merged", "letters", "groups"])
@pytest.mark.parametrize("n_types", [3, 9])
def test_statistics_are_those_of_single_steps(ragged, kind, n_types, rng, calls, monkeypatch):
    """In logs of sessions of several lengths, of attrition, and with codes of groups of features in front."""
    monkeypatch.setattr(log_module, "MOST", 4000 if kind == "merged" else 0)
    sessions = ragged + ragged if kind == "merged" else ragged
    log = observe(sessions)
    if kind == "letters":
        log = log.with_letters()
    if kind == "groups":
        groups = CodeBlock("groups", 3, front=rng.integers(3, size=len(sessions)))
        log = type(log).encode(sessions, log.listed, Beside.of(groups))
    assert (len(log.counts) > 0) is (kind == "merged")
    models = log.random_models(2, n_types, rng)
    found = log.expectation(models, SERIAL)
    assert set(calls) == {"in_pairs"}
    expected = in_single_steps(log, models)
    assert calls[-1] == "categorical"
    assert_close(found, expected)


def test_logs_in_files_and_any_number_of_threads_give_the_same_bits(ragged, rng, tmp_path, monkeypatch, calls):
    monkeypatch.setattr("lmab.estimation.passes._PART", 3000)
    monkeypatch.setattr("lmab.parallel._WORTH", 0)
    monkeypatch.setattr(log_module, "MOST", 1)  # no sessions are merged
    held, filed = observe(ragged), observe(lmab.pack(ragged, tmp_path / "packed"))
    assert filed.travels
    assert not held.travels
    models = held.random_models(3, 4, rng)
    with Threads(3) as threads:
        found = [log.expectation(models, passes) for log in (held, filed) for passes in (SERIAL, threads)]
    assert set(calls) == {"in_pairs"}
    for statistics, logs in found[1:]:
        np.testing.assert_array_equal(statistics, found[0][0])
        np.testing.assert_array_equal(logs, found[0][1])


def test_probabilities_whose_products_underflow_are_not_paired(ragged, rng, calls):
    log = observe(ragged)
    models = log.random_models(1, 3, rng)
    models[0, 1, 0] = 1e-200
    assert step_pairs.can_multiply(np.where(models == 1e-200, 0.0, models))
    log.expectation(models, SERIAL)
    assert set(calls) == {"categorical"}


def test_short_logs_and_many_codes_are_not_paired(ragged, rng, calls):
    for log in (observe(ragged[:100]), observe(ragged, values=np.arange(60.0))):
        log.expectation(log.random_models(1, 3, rng), SERIAL)
    assert set(calls) == {"categorical"}


def test_the_rule_follows_the_memory_and_the_steps():
    assert step_pairs.is_faster(32 * 8128, 126, 8)
    assert not step_pairs.is_faster(32 * 8128 - 1, 126, 8)
    assert not step_pairs.is_faster(10**9, 128, 8)
    assert not step_pairs.is_faster(10**9, 126, 16)


def test_a_level_of_a_log_is_paired_once_with_the_whole_log(ragged, rng, calls, monkeypatch):
    monkeypatch.setattr("lmab.estimation.passes._PART", 1000)
    monkeypatch.setattr(step_pairs, "_STEPS_PER_ROW", 8)
    monkeypatch.setattr(log_module, "MOST", 0)
    log = observe(ragged)
    part = log.level(16)
    models = part.random_models(1, 3, rng)
    assert_close(part.expectation(models, SERIAL), in_single_steps(part, models))
    assert calls[0] == "in_pairs"


def test_one_iteration_of_em_is_that_of_single_steps(ragged, rng):
    log = observe(ragged)
    task = Likelihood(log, 3, log.prior(1.0), SERIAL)
    models = log.random_models(1, 3, rng)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_pairs, "_CACHED", 0)
        expected = task.map(models)
    found = task.map(models)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-12)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-13)
