"""Where passes run: order, bits, and who is asked."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from clusters import cluster, in_process
from hypothesis import given
from hypothesis import strategies as st

import lmab
from lmab import parallel
from lmab.data import packing
from lmab.errors import ClusterLost, InvalidArgument, InvalidFile
from lmab.estimation.families import observe
from lmab.estimation.passes import opened, part_edges, spans
from lmab.parallel import SERIAL, Pool, Threads, travels

METHOD = lmab.EM(prior=1.0, restarts=3, tolerance=1e-4)


def numbers(calls, first, last):
    """One entry per part, and as many further ones as the part's number says."""
    calls.append((first, last, threading.get_ident()))
    return np.arange(first, last), np.repeat(np.arange(first, last), np.arange(first, last))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("n_parts", [1, 2, 7, 40])
def test_results_come_in_the_order_of_the_parts(threads, n_parts):
    calls = []
    with Threads(threads) as passes:
        one, many = passes.ordered(numbers, n_parts, calls, work=10**6)
    assert one.tolist() == list(range(n_parts))
    assert many.tolist() == np.repeat(np.arange(n_parts), np.arange(n_parts)).tolist()
    assert sorted(first for first, _, _ in calls) == [0, *sorted(last for _, last, _ in calls)[:-1]]
    assert len(calls) == (1 if threads == 1 else min(4 * threads, n_parts))


def test_little_work_stays_where_it_is():
    for work, n_calls in [(49_999, 1), (50_000, 8)]:
        calls = []
        with Threads(2) as passes:
            passes.ordered(numbers, 20, calls, work=work)
        assert len(calls) == n_calls
        here = {ident for _, _, ident in calls} == {threading.get_ident()}
        assert here == (n_calls == 1)


def test_an_error_in_a_part_is_the_callers():
    def fails(first, last):
        raise ValueError(f"part {first}")

    with Threads(2) as passes, pytest.raises(ValueError, match="part"):
        passes.ordered(fails, 8, work=10**6)


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=60), result_bytes=st.integers(0, 200))
def test_parts_cover_every_session_once(lengths, result_bytes):
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    edges = part_edges(offsets, int(offsets[-1]), result_bytes)
    assert edges[0] == 0
    assert edges[-1] == len(lengths)
    assert (np.diff(edges) > 0).all()
    found = spans(offsets, 7)
    assert [low for low, _ in found] == [0, *(high for _, high in found[:-1])]
    assert found[-1][1] == len(lengths)
    assert all(offsets[high] - offsets[low] <= 7 + 9 for low, high in found)


def test_parts_are_as_many_as_pay():
    offsets = np.arange(0, 2**22 + 1, 8)
    assert len(part_edges(offsets, 2**22, 100)) - 1 == 64  # never more
    assert len(part_edges(offsets, 2**22, 2**18)) - 1 == 8  # results stay below half of the data
    assert len(part_edges(offsets[:8193], 2**16, 100)) - 1 == 2  # a part has at least 2^15 steps


@pytest.mark.parametrize("family", ["categorical", "gaussian"])
def test_every_pass_has_the_same_bits_for_any_number_of_threads(family, rng, monkeypatch):
    from lmab.paper.tensor_decomposition import third_moments

    monkeypatch.setattr("lmab.estimation.passes._PART", 64)
    monkeypatch.setattr("lmab.parallel._WORTH", 0)
    monkeypatch.setattr("lmab.model.belief._CHUNK", 7)  # sessions are cut by it, and sums of pieces are rounded
    make = lmab.LatentBandit.bernoulli if family == "categorical" else lmab.LatentBandit.gaussian
    bandit = make([0.4, 0.6], [[0.9, 0.1, 0.5], [0.2, 0.8, 0.4]])
    log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=700, horizon=5, rng=rng)
    data, features = observe(log, rewards=family), rng.normal(size=(6, 2))
    models = data.random_models(3, 2, rng)

    def everything(passes):
        third = third_moments(log, features[: data.n_features], data.values, passes)
        return (*data.expectation(models, passes), data.heldout(bandit, passes), third)

    alone = everything(SERIAL)
    for threads in (2, 3):
        with Threads(threads) as passes:
            for one, other in zip(alone, everything(passes), strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.fixture
def log(rng, monkeypatch):
    monkeypatch.setattr("lmab.estimation.passes._PART", 128)
    monkeypatch.setattr("lmab.estimation.em._PILOT", 200)
    monkeypatch.setattr("lmab.estimation.em._PILOT_PER_PARAMETER", 1)
    monkeypatch.setattr(packing, "PARTITION", 3000)
    monkeypatch.setattr("lmab.data.packing.STEPS", 500)
    monkeypatch.setattr(parallel, "_FAR", 0)
    bandit = lmab.random_bandit(3, 10, rng=rng)
    return lmab.simulate(bandit, lmab.Uniform(10), n_sessions=3000, horizon=5, rng=rng)


@pytest.fixture(scope="module")
def processes():
    """An executor in other processes, started once."""
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


@pytest.fixture
def packed(log, tmp_path):
    return lmab.pack(log, tmp_path / "packed")


@pytest.fixture
def expected(log):
    return lmab.fit(log, n_types=3, method=METHOD, rng=1, check=False)


def assert_same(one, other):
    assert one.log_likelihood == other.log_likelihood
    np.testing.assert_array_equal(one.bandit.rewards.probabilities, other.bandit.rewards.probabilities)
    np.testing.assert_array_equal(one.trace, other.trace)


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_any_executor_gives_the_same_bits(log, packed, expected, kind, processes):
    with ThreadPoolExecutor(2) as threads:
        executor = threads if kind == "threads" else processes
        assert_same(lmab.fit(packed, n_types=3, method=METHOD, rng=1, backend=executor, check=False), expected)
        if kind == "threads":
            assert_same(lmab.fit(log, n_types=3, method=METHOD, rng=1, backend=executor, check=False), expected)


def test_information_and_assessments_run_where_they_are_told(log, packed, expected, processes):
    """The workers are other processes: what they compute has the bits of the log in memory."""
    away = lmab.fit(packed, n_types=3, method=METHOD, rng=1, check=False)
    plan = lmab.plan(expected.bandit, horizon=2)
    counted = Counted(processes, Threads(1))
    np.testing.assert_array_equal(away.information(backend=counted).matrix, expected.information().matrix)
    np.testing.assert_array_equal(away.standard_errors(backend=counted).means, expected.standard_errors().means)
    assert counted.sent == 2
    assessment = lmab.assess(away, plan, packed, n_draws=20, rng=2, backend=counted)
    assert counted.sent == 3
    assert assessment.regret == lmab.assess(expected, plan, log, n_draws=20, rng=2).regret


@pytest.mark.parametrize("rewards", ["gaussian", "binned"])
def test_continuous_rewards_run_where_they_are_told(rng, monkeypatch, tmp_path, log, rewards, processes):
    """The fit and its information, on rewards that no list holds."""
    monkeypatch.setattr("lmab.data.packing.MAX_VALUES", 20)
    amounts = replace(log, rewards=log.rewards + rng.standard_normal(log.n_steps))
    packed = lmab.pack(amounts, tmp_path / "amounts")
    assert packed.values is None
    expected = lmab.fit(amounts, n_types=2, rewards=rewards, method=METHOD, rng=1, check=False)
    counted = Counted(processes, Threads(1))
    found = lmab.fit(packed, n_types=2, rewards=rewards, method=METHOD, rng=1, backend=counted, check=False)
    assert counted.sent > 5
    assert found.log_likelihood == expected.log_likelihood
    np.testing.assert_array_equal(found.trace, expected.trace)
    np.testing.assert_array_equal(found.bandit.means, expected.bandit.means)
    np.testing.assert_array_equal(found.information(backend=counted).matrix, expected.information().matrix)


class Counted(Pool):
    """A pool that counts what it is asked to send away."""

    sent = 0

    def ordered(self, function, n_parts, *arguments, work):
        self.sent += travels(arguments)
        return super().ordered(function, n_parts, *arguments, work=work)


def here(log, first, last):
    return (np.full(last - first, os.getpid()),)


def test_what_is_sent_away(packed, log, monkeypatch, processes):
    assert travels((packed,))
    assert not travels((log, np.ones(3)))
    pool = Pool(processes, Threads(1))
    assert (pool.ordered(here, 5, packed, work=10)[0] != os.getpid()).all()
    assert (pool.ordered(here, 5, log, work=10)[0] == os.getpid()).all()  # a log in memory stays
    assert (pool.ordered(here, 1, packed, work=10)[0] == os.getpid()).all()
    monkeypatch.setattr(parallel, "_FAR", 11)
    assert (pool.ordered(here, 5, packed, work=10)[0] == os.getpid()).all()  # so does little work


def test_what_is_no_backend(packed):
    with pytest.raises(
        InvalidArgument, match=r"backend must be None, a concurrent\.futures\.Executor, a Dask client or 'gpu'"
    ):
        lmab.fit(packed, n_types=2, method=lmab.EM(prior=0.0), rng=1, backend="tcp://localhost:1")
    passes = Threads(1)
    with opened(passes) as found:
        assert found is passes


def test_a_method_of_others_needs_no_backend(packed, expected):
    class Own:
        def fit(self, log, *, n_types, rng, progress=None):
            return METHOD.fit(log, n_types=n_types, rng=rng)

    assert_same(lmab.fit(packed, n_types=3, method=Own(), rng=1, check=False), expected)


def fitted(packed, client, progress=None):
    return lmab.fit(packed, n_types=3, method=METHOD, rng=1, backend=client, progress=progress, check=False)


def test_a_scheduler_is_asked_to_forgive_deaths_and_may_refuse():
    asked = []

    class Strict:
        def run_on_scheduler(self, function):
            asked.append(function)
            raise PermissionError("not here")

    parallel.Cluster(Strict(), SERIAL)
    scheduler = SimpleNamespace(allowed_failures=3)
    asked[0](scheduler)
    assert scheduler.allowed_failures == parallel._DEATHS > 3
    scheduler.allowed_failures = 10**6
    asked[0](scheduler)
    assert scheduler.allowed_failures == 10**6


def test_a_cluster_gives_the_same_bits_whatever_its_workers_do(packed, expected, tmp_path, monkeypatch):
    pytest.importorskip("distributed", reason="Dask is not installed")
    from lmab import parallel

    with cluster(tmp_path, 2) as (processes, client):
        assert_same(fitted(packed, client), expected)
        sent = []
        submitted = parallel.Cluster._submitted

        def killing(self, function, n_parts, arguments):
            """In the middle of the third pass a worker is killed; in the sixth another one comes."""
            jobs = submitted(self, function, n_parts, arguments)
            sent.append(len(jobs))
            if len(sent) == 3:
                os.kill(processes.workers[0].pid, signal.SIGKILL)
            if len(sent) == 6:
                processes.add_worker()
            return jobs

        monkeypatch.setattr(parallel.Cluster, "_submitted", killing)
        monkeypatch.setattr(parallel, "_LARGE", 1000)
        assert_same(fitted(packed, client), expected)
        assert processes.workers[0].wait() == -signal.SIGKILL
        assert len(sent) > 6
        assert max(sent) > 1


def test_a_worker_that_does_not_see_the_files_says_which(packed, tmp_path, monkeypatch):
    pytest.importorskip("distributed", reason="Dask is not installed")
    from lmab import parallel

    submitted = parallel.Cluster._submitted

    def hiding(self, *arguments):
        shutil.move(tmp_path / "packed" / "00001.codes", tmp_path / "elsewhere")
        return submitted(self, *arguments)

    monkeypatch.setattr(parallel.Cluster, "_submitted", hiding)
    seen = pytest.raises(InvalidFile, match=r"worker tcp://.*00001\.codes: .* cannot see this part")
    with in_process(1) as client, seen:
        fitted(packed, client)


def test_a_dead_scheduler_leaves_the_best_model_so_far(packed, tmp_path, monkeypatch):
    pytest.importorskip("distributed", reason="Dask is not installed")
    from lmab import parallel

    monkeypatch.setattr(parallel, "_LOOK", 0.2)
    seen = []
    with cluster(tmp_path, 1) as (processes, client):

        def kill(news):
            seen.append(news.stage)
            if news.stage == "climb" and "killed" not in seen:
                os.kill(processes.scheduler.pid, signal.SIGKILL)
                processes.scheduler.wait()
                seen.append("killed")

        with pytest.raises(ClusterLost, match="the cluster was lost") as caught:
            fitted(packed, client, kill)
    best = caught.value.estimate
    assert best.status == "interrupted"
    assert best.bandit.n_types == 3
    assert np.isfinite(best.log_likelihood)


def test_a_cluster_without_workers_is_lost_after_a_while(packed, monkeypatch):
    pytest.importorskip("distributed", reason="Dask is not installed")
    from lmab import parallel

    monkeypatch.setattr(parallel, "_LOOK", 0.1)
    monkeypatch.setattr(parallel, "_PATIENCE", 0.3)
    with in_process(0) as client, pytest.raises(ClusterLost, match="there was no worker for"):
        fitted(packed, client)


def test_no_scheduler_answers(monkeypatch):
    pytest.importorskip("distributed", reason="Dask is not installed")
    from lmab import parallel

    monkeypatch.setattr(parallel, "_CONNECT", 0.5)
    with (
        pytest.raises(ClusterLost, match=r"no scheduler answers at tcp://127\.0\.0\.1:9"),
        parallel.connected("tcp://127.0.0.1:9"),
    ):
        pass
