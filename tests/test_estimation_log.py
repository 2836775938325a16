"""A packed log gives the same bits as the same log in memory, in everything that is a sum over sessions."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lmab
from lmab.data import packing
from lmab.data.packed import Partitions
from lmab.errors import InvalidArgument, LmabWarning
from lmab.estimation import log
from lmab.estimation.families import observe
from lmab.estimation.log import Beside, CodeBlock, merge
from lmab.evaluation import diagnostics
from lmab.model import belief
from lmab.parallel import SERIAL, Threads


def method_of_moments(name):
    """Return one of the methods of the paper, without which the other tests of this file run."""
    options = {"restarts": 2} if name == "MomentMatching" else {}
    return getattr(lmab.estimation, name)(**options)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Parts, partitions and pilots of a few steps, so that small logs go the way of large ones."""
    monkeypatch.setattr("lmab.estimation.passes._PART", 64)
    monkeypatch.setattr("lmab.parallel._WORTH", 0)
    monkeypatch.setattr("lmab.estimation.em._PILOT", 200)
    monkeypatch.setattr("lmab.estimation.em._PILOT_PER_PARAMETER", 1)
    monkeypatch.setattr("lmab.estimation.log.SAMPLE", 64)
    monkeypatch.setattr("lmab.estimation.log._HASHED_SESSIONS", 100)
    monkeypatch.setattr("lmab.estimation.log._DRAWN", 300)
    monkeypatch.setattr("lmab.data.packing.STEPS", 70)
    monkeypatch.setattr(packing, "PARTITION", 500)


def made(rng, distinct, n=1500):
    """A ragged log, most of whose sessions are `distinct` or not."""
    n_arms, horizon = (12, 6) if distinct else (2, 3)
    bandit = lmab.random_bandit(3, n_arms, rank=2, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(n_arms), n_sessions=n, horizon=horizon, rng=rng)
    arms, rewards = log.to_arrays()
    arms[np.arange(horizon) >= rng.integers(2, horizon + 1, size=n)[:, None]] = -1
    return lmab.Sessions.from_arrays(arms, rewards, n_arms=n_arms)


@pytest.fixture(params=[True, False], ids=["distinct", "merged"])
def pair(request, rng, tmp_path):
    log = made(rng, request.param)
    return log, lmab.pack(log, tmp_path / "packed"), request.param


def assert_same(one, other):
    assert one.log_likelihood == other.log_likelihood
    np.testing.assert_array_equal(one.bandit.weights, other.bandit.weights)
    np.testing.assert_array_equal(one.bandit.rewards.probabilities, other.bandit.rewards.probabilities)
    np.testing.assert_array_equal(one.trace, other.trace)
    assert (one.message, one.n_parameters, one.log) == (other.message, other.n_parameters, other.log)


def test_steps_in_files_are_those_in_memory(pair):
    log, packed, distinct = pair
    held, filed = observe(log), observe(packed)
    assert filed.travels == distinct
    assert not held.travels
    assert filed.n_distinct == held.n_distinct
    assert filed.codes.dtype == held.codes.dtype
    for name in ("codes", "offsets", "counts", "cells"):
        np.testing.assert_array_equal(getattr(filed, name), getattr(held, name))
    for size in (0, 100):
        np.testing.assert_array_equal(filed.parts(size), held.parts(size))
        assert len(held.parts(size)) > 1 or not distinct
    assert len(pickle.dumps(filed)) < 20_000 or not distinct


@pytest.mark.parametrize("prior", [0.0, 1.0, "learned"])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_fit_has_the_same_bits(pair, prior, threads):
    log, packed, _ = pair
    fits = [
        lmab.fit(
            data,
            n_types=3,
            method=lmab.EM(prior=prior, restarts=6, threads=number, max_iterations=400),
            rng=1,
            check=False,
        )
        for data, number in ((log, 1), (packed, threads))
    ]
    assert_same(*fits)
    assert fits[1].sessions is packed
    np.testing.assert_array_equal(fits[0].information().matrix, fits[1].information().matrix)
    np.testing.assert_array_equal(fits[0].posterior(), fits[1].posterior())


def test_the_number_of_types_and_all_checks_are_the_same(pair):
    log, packed, _ = pair
    method = lmab.EM(prior="learned", restarts=4, sweeps=20)
    fits = [lmab.fit(data, n_types="auto", method=method, rng=2, check=False) for data in (log, packed)]
    assert_same(*fits)
    checks = [diagnostics.check(fit, n_types=2, rng=3) for fit in fits]
    assert checks[0].over_one_type == checks[1].over_one_type
    assert checks[0].over_independent_arms == checks[1].over_independent_arms
    known = [diagnostics.identify(fit, rng=4) for fit in fits]
    assert known[0] == known[1] or vars(known[0]) == vars(known[1])
    np.testing.assert_array_equal(*(fit.require_log().heldout(fit.bandit) for fit in fits))


def test_assessments_are_the_same(rng, tmp_path):
    log = made(rng, True, n=600)
    packed = lmab.pack(log, tmp_path / "packed")
    found = []
    for data in (log, packed):
        fit = lmab.fit(data, n_types=2, method=lmab.EM(prior="learned"), rng=5, check=False)
        plan = lmab.plan(fit, horizon=2)
        found.append(lmab.assess(fit, plan, data, n_draws=20, rng=6))
    assert (found[0].value, found[0].regret) == (found[1].value, found[1].regret)


def test_an_estimate_from_a_file_takes_its_packed_log(pair, tmp_path):
    log, packed, _ = pair
    fit = lmab.fit(packed, n_types=2, method=lmab.EM(prior=0.0), rng=1)
    fit.save(tmp_path / "fit.lmab")
    loaded = lmab.load(tmp_path / "fit.lmab")
    for data in (packed, log):
        assert loaded.with_log(data).standard_errors().weights.tolist() == fit.standard_errors().weights.tolist()
    with pytest.raises(InvalidArgument, match="must be the log that the estimate was fitted to"):
        loaded.with_log(lmab.pack(log[:-1], tmp_path / "shorter"))


def test_more_values_than_were_seen(pair):
    log, packed, _ = pair
    values = [-1.0, 0.0, 0.5, 1.0]
    assert_same(*(lmab.fit(data, n_types=2, values=values, method=lmab.EM(prior=1.0), rng=1) for data in (log, packed)))
    with pytest.raises(InvalidArgument, match="rewards must be among the values"):
        lmab.fit(packed, n_types=2, values=[0.0, 2.0], method=lmab.EM(prior=0.0), rng=1)


@pytest.mark.filterwarnings("ignore:the estimate does not match the moments")  # the log is too small for that
@pytest.mark.parametrize("name", ["TensorDecomposition", "MomentMatching"])
def test_methods_of_moments(pair, name):
    method = method_of_moments(name)
    log, packed, distinct = pair
    if distinct:  # two arms identify no two types by moments
        assert_same(*(lmab.fit(data, n_types=2, method=method, rng=1) for data in (log, packed)))


@pytest.fixture
def only_parts(monkeypatch):
    """Nobody may ask for more than half of a packed log at once."""

    def never(self):
        raise AssertionError("the whole log was asked for")

    part = Partitions.part

    def watched(self, low, high, *columns, room=None):
        assert 2 * (high - low) <= self.n_sessions, "most of the log was asked for"
        return part(self, low, high, *columns, room=room)

    for name in ("passes", "log"):  # also where statistics are as large as a small log
        monkeypatch.setattr(f"lmab.estimation.{name}.count_parts", lambda *sizes: 4)
    for name, size in (
        ("gaussian._STEPS", 1000),
        ("traits.traits._PILOT", 200),
        ("traits.traits._SAMPLE", 200),
        ("assumptions._LOOKED_AT", 200),
    ):
        monkeypatch.setattr(f"lmab.estimation.{name}", size)
    monkeypatch.setattr(lmab.Packed, "load", never)
    monkeypatch.setattr(Partitions, "part", watched)
    for name in (
        "data.packed",
        "data.fingerprint",
        "model.bins",
        "estimation.families",
        "estimation.result",
        "estimation.gaussian",
    ):
        monkeypatch.setattr(f"lmab.{name}._SESSIONS", 100)


@pytest.fixture(params=[True, False], ids=["listed", "unlisted"])
def amounts(request, rng, tmp_path, monkeypatch):
    """A log of 0 and amounts, which its pack lists or not."""
    if not request.param:
        monkeypatch.setattr("lmab.data.packing.MAX_VALUES", 20)
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], [[3.0, 1.0, 2.0], [1.0, 3.0, 2.0]])
    log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=900, horizon=4, rng=rng)
    log = replace(log, rewards=np.round(np.maximum(log.rewards, 0.0), 1))
    packed = lmab.pack(log, tmp_path / "packed")
    assert (packed.values is None) == (not request.param)
    return log, packed


def test_amounts_are_cut_as_they_are_read(amounts, only_parts):
    log, packed = amounts
    one, other = (
        lmab.fit(data, n_types=2, rewards="binned", method=lmab.EM(prior=0.0), rng=1) for data in (log, packed)
    )
    assert_same(one, other)
    np.testing.assert_array_equal(one.bins.edges, other.bins.edges)
    np.testing.assert_array_equal(one.bins.values, other.bins.values)
    assert other.sessions[:30] == one.sessions[:30]
    np.testing.assert_array_equal(one.information().matrix, other.information().matrix)
    np.testing.assert_array_equal(one.posterior(), other.posterior())
    np.testing.assert_array_equal(*(fit.require_log().heldout(fit.bandit) for fit in (one, other)))
    again = pickle.loads(pickle.dumps(other.sessions))
    assert again[:30] == one.sessions[:30]
    for data in (packed, other.sessions):  # what is cut already stays as it is
        assert replace(other, encoded=None, fingerprint=one.log).with_log(data).log == one.log


def test_rewards_without_a_list_are_listed_when_they_are_read(amounts, only_parts):
    log, packed = amounts
    method = lmab.EM(prior=1.0, restarts=4, max_iterations=400)
    for values in (None, np.arange(-10, 90) / 10):
        how = {"n_types": 2, "rewards": "categorical", "values": values, "method": method, "rng": 1}
        found = lmab.fit(packed, **how, check=False)
        assert_same(lmab.fit(log, **how, check=False), found)
        np.testing.assert_array_equal(found.sessions.values, np.unique(log.rewards))  # the list holds what was paid
    with pytest.raises(InvalidArgument, match="rewards must be among the values"):
        lmab.fit(packed, n_types=2, values=[0.0, 2.0], method=lmab.EM(prior=0.0), rng=1)
    with pytest.raises(InvalidArgument, match="more than 32 distinct rewards"):
        lmab.fit(packed, n_types=2, method=lmab.EM(prior=0.0), rng=1)


@pytest.mark.parametrize("scale", [None, 1.0])
@pytest.mark.parametrize("prior", [1.0, "learned"])
def test_normal_rewards(amounts, only_parts, prior, scale):
    log, packed = amounts
    fits = [
        lmab.fit(
            data,
            n_types=2,
            rewards="gaussian",
            scale=scale,
            method=lmab.EM(prior=prior, restarts=4),
            rng=1,
            check=False,
        )
        for data in (log, packed)
    ]
    one, other = fits
    assert other.sessions is packed
    assert (one.log_likelihood, one.message, one.log) == (other.log_likelihood, other.message, other.log)
    np.testing.assert_array_equal(one.trace, other.trace)
    np.testing.assert_array_equal(one.bandit.weights, other.bandit.weights)
    np.testing.assert_array_equal(one.bandit.means, other.bandit.means)
    assert one.bandit.rewards.scale == other.bandit.rewards.scale
    np.testing.assert_array_equal(one.information().matrix, other.information().matrix)
    np.testing.assert_array_equal(one.posterior(), other.posterior())
    np.testing.assert_array_equal(*(fit.require_log().heldout(fit.bandit) for fit in fits))
    assert len(pickle.dumps(other.require_log())) < 20_000
    logs = [fit.require_log() for fit in fits]
    for name in ("n_steps", "n_sums", "largest", "squares", "n_distinct", "least_scale"):
        assert getattr(logs[0], name) == getattr(logs[1], name)


@pytest.mark.filterwarnings("ignore:the estimate does not match the moments")  # the log is too small for that
@pytest.mark.parametrize("name", ["TensorDecomposition", "MomentMatching"])
def test_methods_of_moments_on_normal_rewards(amounts, only_parts, name, monkeypatch):
    method = method_of_moments(name)
    monkeypatch.setattr("lmab.moments.second._CHUNK", 100)
    monkeypatch.setattr("lmab.paper.high_orders._CHUNK", 100)
    monkeypatch.setattr("lmab.paper.moment_matching._SESSIONS", 100)
    one, other = (lmab.fit(data, n_types=2, rewards="gaussian", method=method, rng=1, check=False) for data in amounts)
    assert one.log_likelihood == other.log_likelihood
    np.testing.assert_array_equal(one.bandit.means, other.bandit.means)
    assert one.bandit.rewards.scale == other.bandit.rewards.scale


def test_normal_rewards_in_files_are_those_in_memory(amounts):
    held, filed = (observe(data, rewards="gaussian") for data in amounts)
    for name in ("arms", "numbers", "offsets", "centres", "plays"):
        np.testing.assert_array_equal(getattr(filed, name), getattr(held, name))
    assert filed.numbers @ filed.numbers == pytest.approx(filed.squares)
    rewards, arms = amounts[0].rewards, amounts[0].arms
    np.testing.assert_allclose(held.centres, [rewards[arms == arm].mean() for arm in range(3)])


def test_traits_and_choices_of_normal_rewards(amounts, only_parts):
    """On parts, too: traits, and the number of types."""
    fits = [lmab.fit(data, method=lmab.Traits(n_points=5), rewards="gaussian", rng=1, check=False) for data in amounts]
    assert fits[0].log_likelihood == fits[1].log_likelihood
    np.testing.assert_array_equal(*(fit.information().matrix for fit in fits))


def test_doubts_are_the_same(tmp_path):
    log = lmab.Sessions.from_arrays(np.zeros((50, 2), int), np.ones((50, 2)))
    with pytest.warns(LmabWarning) as found:
        lmab.fit(lmab.pack(log, tmp_path / "packed"), n_types=2, method=lmab.EM(prior=0.0), rng=1)
    with pytest.warns(LmabWarning) as expected:
        lmab.fit(log, n_types=2, method=lmab.EM(prior=0.0), rng=1)
    assert [str(one.message) for one in found] == [str(one.message) for one in expected]


def test_a_level_is_one_of_many_parts(pair):
    log, packed, distinct = pair
    whole, filed = observe(log), observe(packed)
    if not distinct:
        assert whole.level(16) is None
        return
    level, other = whole.level(16), filed.level(16)
    parts = whole.parts(0)
    np.testing.assert_array_equal(level.parts(0), parts[8::16])
    assert level.n_distinct == -(-whole.n_distinct // 16)
    models = whole.random_models(2, 3, np.random.default_rng(0))
    with Threads(2) as passes:
        found = [data.expectation(models, passes) for data in (level, other)]
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one, two)
    rows = np.concatenate([np.arange(*part) for part in parts[8::16]])
    expected = observe(log[rows], values=whole.values)
    alone = expected.expectation(models, Threads(1))
    np.testing.assert_allclose(found[0][0], alone[0], rtol=1e-9)
    np.testing.assert_allclose(found[0][1], alone[1], rtol=1e-9)


def test_a_large_log_is_climbed_on_a_part_first(rng, monkeypatch):
    monkeypatch.setattr("lmab.estimation.log.MOST", 0)  # no sessions are merged
    log = made(rng, True, n=8000)
    data = observe(log)
    seen, original = [], type(data).expectation

    def noted(self, models, passes):
        seen.append((self.n_distinct, len(models)))
        return original(self, models, passes)

    monkeypatch.setattr(type(data), "expectation", noted)
    fits, maps = [], []
    for level in (16, 1 << 40):
        seen.clear()
        monkeypatch.setattr("lmab.estimation.em._LEVEL", level)
        fits.append(lmab.EM(prior=1.0, restarts=6).fit(data, n_types=3, rng=np.random.default_rng(1)))
        sizes = {size: sum(models for n, models in seen if n == size) for size, _ in seen}
        assert (500 in sizes) == (level == 16)
        maps.append(sizes[8000])
    assert fits[0].trace[-1] >= fits[1].trace[-1] - 1.0
    assert maps[0] < maps[1]
    assert fits[0].starts.finished == 2  # told of the last climb with more than one start


@pytest.mark.parametrize("prior", [1.0, "learned"])
def test_a_stop_on_a_part_gives_a_model_of_the_whole(rng, prior, monkeypatch):
    monkeypatch.setattr("lmab.estimation.log.MOST", 0)  # no sessions are merged
    log = made(rng, True, n=8000)
    stages = []

    def stop(news):
        stages.append(news.stage)
        return len(stages) > 20 and news.stage == "climb"

    fit = lmab.fit(log, n_types=3, method=lmab.EM(prior=prior, restarts=6), rng=1, progress=stop, check=False)
    assert fit.status == "interrupted"
    assert fit.n_sessions == 8000
    assert fit.log_likelihood == pytest.approx(observe(log).log_likelihood(fit.bandit))


def ragged(seed: int, n_sessions: int, n_codes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 4, size=n_sessions))])
    return rng.integers(n_codes, size=offsets[-1]).astype(np.uint8), offsets


def sessions(codes: np.ndarray, offsets: np.ndarray) -> list[tuple[int, ...]]:
    return [tuple(sorted(codes[start:end].tolist())) for start, end in pairwise(offsets)]


@pytest.mark.parametrize(("sample", "chunk"), [(4096, 1 << 18), (16, 5)])
@given(seed=st.integers(0, 2**32 - 1), n_sessions=st.integers(1, 80), n_codes=st.integers(1, 3))
def test_merged_sessions_are_the_distinct_ones_with_their_counts(sample, chunk, seed, n_sessions, n_codes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "SAMPLE", sample)
        patch.setattr(log, "_HASHED_STEPS", chunk)
        codes, offsets = ragged(seed, n_sessions, n_codes)
        found, starts, counts = merge(codes, offsets, n_codes)
    expected = Counter(sessions(codes, offsets))
    if len(counts) == 0:  # left as it was, because it would not pay
        assert found is codes
        assert starts is offsets
        return
    assert len(expected) <= 0.75 * n_sessions
    assert dict(zip(sessions(found, starts), counts.tolist(), strict=True)) == dict(expected)
    assert counts.sum() == n_sessions
    assert found.dtype == codes.dtype


def test_merging_pays_if_at_most_three_quarters_are_distinct():
    codes = np.array([0, 0, 1, 1, 2, 3, 4, 5], np.uint8)
    assert sorted(merge(codes, np.arange(9), 6)[2].tolist()) == [1.0] * 4 + [2.0] * 2
    more = np.append(codes, np.uint8(6))
    assert len(merge(more, np.arange(10), 7)[2]) == 0  # seven of nine


def test_a_sample_predicts_the_distinct_sessions_of_the_whole_log(monkeypatch):
    """Of N draws from N equally likely sessions 63% are distinct, which pays; of those from 4 N 88% are, too many."""
    monkeypatch.setattr(log, "SAMPLE", 1000)
    rng = np.random.default_rng(0)
    for n_possible, pays in ((4000, True), (16_000, False)):
        codes = rng.integers(n_possible, size=4000).astype(np.uint16)
        assert (len(merge(codes, np.arange(4001), n_possible)[2]) > 0) is pays


@pytest.fixture
def looked(monkeypatch):
    """How many sessions were looked at, call by call."""
    calls, original = [], log.hashes_of

    def noted(*arguments):
        calls.append(len(arguments[1]) - 1)
        return original(*arguments)

    monkeypatch.setattr(log, "hashes_of", noted)
    return calls


def test_a_diverse_log_is_known_from_a_sample(monkeypatch, looked):
    """Where hardly two of the sample agree, the others are not even looked at."""
    monkeypatch.setattr(log, "SAMPLE", 64)
    rng = np.random.default_rng(0)
    codes, offsets = rng.integers(200, size=4000).astype(np.uint8), np.arange(0, 4001, 4)
    assert len(merge(codes, offsets, 200)[2]) == 0
    assert looked == [64]
    alike = np.zeros(4000, np.uint8)
    assert merge(alike, offsets, 200)[2].tolist() == [1000.0]
    assert looked == [64, 64, 1000]


def test_a_very_large_diverse_log_is_known_from_a_larger_sample(monkeypatch, looked):
    """No two of a small sample are alike in either log, so that it could not tell; four times as many can."""
    monkeypatch.setattr(log, "SAMPLE", 8)
    monkeypatch.setattr(log, "MOST", 100)
    monkeypatch.setattr(log, "_LARGE", 1000)
    codes = np.arange(2000, dtype=np.uint16)
    assert len(merge(codes[:999], np.arange(1000), 2000)[2]) == 0
    assert looked == [8, 999]
    looked.clear()
    assert len(merge(codes, np.arange(2001), 2000)[2]) == 0
    assert looked == [32]


@given(seed=st.integers(0, 2**32 - 1))
def test_the_answer_does_not_depend_on_the_order_of_sessions_or_steps(seed):
    codes, offsets = ragged(seed, 60, 2)
    rng = np.random.default_rng(seed)
    order = rng.permutation(60)
    shuffled = [rng.permutation(codes[offsets[k] : offsets[k + 1]]) for k in order]
    moved = np.concatenate([[0], np.cumsum([len(session) for session in shuffled])])
    for one, other in zip(merge(codes, offsets, 2), merge(np.concatenate(shuffled), moved, 2), strict=True):
        np.testing.assert_array_equal(one, other)


def test_scores_are_those_of_the_softened_bandit_by_enumeration(rng):
    probabilities = rng.dirichlet(np.ones(2), size=(2, 3))
    bandit = lmab.LatentBandit.categorical([0.3, 0.7], probabilities, [0.0, 1.0])
    log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=30, horizon=3, rng=rng)
    scores = observe(log + log + log, values=[0.0, 1.0]).heldout(bandit)  # merged, and yet one score per session
    softer = (1 - 1e-4) * probabilities + 1e-4 / 2
    expected = []
    for session in log:
        history = tuple(zip(session.arms.tolist(), session.rewards.tolist(), strict=True))
        expected.append(np.log(oracle.likelihood([0.3, 0.7], softer, [0.0, 1.0], history).sum()))
    np.testing.assert_allclose(scores, np.tile(expected, 3), rtol=1e-10)


def test_normal_rewards_need_no_softening(rng):
    bandit = lmab.LatentBandit.gaussian([0.3, 0.7], [[0.0, 1.0], [2.0, -1.0]], scale=0.5)
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=20, horizon=3, rng=rng)
    scores = observe(log, rewards="gaussian").heldout(bandit)
    expected = np.logaddexp.reduce(lmab.model.belief.log_joint(bandit, log), axis=1)
    np.testing.assert_allclose(scores, expected, rtol=1e-12)


def test_parts_change_nothing(rng, monkeypatch):
    bandit = lmab.random_bandit(3, 10, rng=rng)
    data = observe(lmab.simulate(bandit, lmab.Uniform(10), n_sessions=200, horizon=5, rng=rng))
    whole = data.heldout(bandit)
    monkeypatch.setattr("lmab.estimation.passes._PART", 30)
    np.testing.assert_allclose(data.heldout(bandit), whole, rtol=1e-13)


def test_a_bandit_of_another_family_is_refused(rng):
    normal = lmab.LatentBandit.gaussian([1.0], [[0.0, 1.0]])
    coins = lmab.LatentBandit.bernoulli([1.0], [[0.5, 0.5]])
    log = lmab.simulate(coins, lmab.Uniform(2), n_sessions=5, horizon=2, rng=rng)
    with pytest.raises(ValueError, match="categorical rewards"):
        observe(log).heldout(normal)
    with pytest.raises(ValueError, match="normal rewards"):
        observe(log, rewards="gaussian").log_likelihood(coins)


# Codes beside those of the arms.

GROUPED = {
    "two values": lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.4], [0.2, 0.7, 0.5]]),
    "normal": lmab.LatentBandit.gaussian([0.5, 0.5], [[3.0, 1.0, 2.0], [1.0, 3.0, 2.5]], scale=0.8),
}


def grouped(bandit, rng, n=60):
    """A log, and a log of the same sessions whose first code is one of three groups."""
    log = lmab.simulate(bandit, lmab.Uniform(3), n_sessions=n, horizon=3, rng=rng)
    plain = observe(log, rewards=bandit.rewards.family)
    groups = rng.integers(3, size=n)
    made = {"categorical": lambda beside: type(plain).encode(log, plain.values, beside)}
    made["gaussian"] = lambda beside: type(plain).encode(log, None, beside)
    return log, plain, groups, made[bandit.rewards.family]


def beside_rows(log):
    return slice(1 + log.n_own, 1 + log.n_own + log.n_beside)


@pytest.mark.parametrize("kind", GROUPED)
def test_rows_of_ones_beside_the_arms_change_nothing(kind, rng):
    bandit = GROUPED[kind]
    _, plain, groups, made = grouped(bandit, rng)
    log = made(Beside.of(CodeBlock("more", 3, front=groups)))
    assert log.log_likelihood(bandit) == pytest.approx(plain.log_likelihood(bandit), rel=1e-12)
    found, expected = (one.expectation(one.pack(bandit), SERIAL)[0] for one in (log, plain))
    np.testing.assert_allclose(found[:, : expected.shape[1]], expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found[0, -3:].sum(axis=1), np.bincount(groups, minlength=3))
    ahead = [
        one.maximise(one.expectation(one.pack(bandit), SERIAL)[0], one.pack(bandit), one.prior(1.0))
        for one in (log, plain)
    ]
    found, expected = (one.bandit(model[0], 2) for one, model in zip((log, plain), ahead, strict=True))
    np.testing.assert_allclose(found.means, expected.means, rtol=1e-9)
    np.testing.assert_array_equal(ahead[0][0, beside_rows(log), :2], 1.0)


@pytest.mark.parametrize("kind", GROUPED)
def test_a_code_in_front_of_a_session_gives_its_group_weights_of_its_own(kind, rng):
    """The row w(x) / w of a group stands for the weights of its sessions; each group alone is the oracle."""
    bandit = GROUPED[kind]
    sessions, plain, groups, made = grouped(bandit, rng)
    log, ratios = made(Beside.of(CodeBlock("more", 3, front=groups))), np.array([[1.8, 0.2], [1.0, 1.0], [0.0, 2.0]])
    model = log.pack(bandit)
    model[0, beside_rows(log), :2] = ratios
    statistics, logs = log.expectation(model, SERIAL)
    expected = 0.0
    for group, ratio in enumerate(ratios):
        own = replace(bandit, weights=bandit.weights * ratio)
        rows = np.flatnonzero(groups == group)
        expected += plain.subset(rows).log_likelihood(own)
        np.testing.assert_allclose(
            statistics[0, -3 + group, :2], belief.posterior(own, sessions[rows]).sum(axis=0), rtol=1e-7, atol=1e-9
        )
    assert logs[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("kind", GROUPED)
def test_a_code_after_a_step_multiplies_its_likelihood(kind, rng):
    """Two letters after steps, and none after some: the factor of a session is the product over its letters."""
    bandit = GROUPED[kind]
    sessions, _, _, made = grouped(bandit, rng)
    letters = rng.integers(-1, 2, size=sessions.n_steps)
    log, rows = made(Beside.of(CodeBlock("more", 2, steps=letters))), np.array([[0.7, 0.4], [0.3, 0.6]])
    model = log.pack(bandit)
    model[0, beside_rows(log), :2] = rows
    factors = np.where(letters[:, None] >= 0, rows[letters], 1.0)
    joint = belief.log_joint(bandit, sessions) + np.add.reduceat(np.log(factors), sessions.offsets[:-1], axis=0)
    assert log.expectation(model, SERIAL)[1][0] == pytest.approx(np.logaddexp.reduce(joint, axis=1).sum(), rel=1e-12)


@pytest.mark.parametrize("rewards", ["categorical", "gaussian"])
def test_codes_beside_are_the_same_in_files_and_in_samples(rewards, rng, tmp_path):
    sessions = made(rng, True, n=300)
    packed, groups = lmab.pack(sessions, tmp_path / "packed"), rng.integers(4, size=300)
    logs = [observe(data, rewards=rewards) for data in (sessions, packed)]
    arguments = (np.array([0.0, 1.0]),) if rewards == "categorical" else (None,)
    held, filed = (
        type(log).encode(log.sessions, *arguments, Beside.of(CodeBlock("more", 4, front=groups))) for log in logs
    )
    np.testing.assert_array_equal(held.codes, filed.codes)
    np.testing.assert_array_equal(held.offsets, filed.offsets)
    np.testing.assert_array_equal(held.own.codes, logs[0].codes)
    np.testing.assert_array_equal(held.own.offsets, logs[0].offsets)
    rows = np.array([3, 7, 100, 299])
    some = held.subset(rows)
    np.testing.assert_array_equal(some.beside.blocks[0].front, groups[rows])
    front = some.codes[some.offsets[:-1]] if not len(some.counts) else None
    assert front is None or front.tolist() == (held.n_own + groups[rows]).tolist()


@pytest.mark.parametrize("kind", GROUPED)
def test_blocks_of_several_components_multiply_their_likelihoods(kind, rng):
    """Two codes in front of a session and two after its steps, of which some steps have none."""
    bandit = GROUPED[kind]
    sessions, _, groups, made = grouped(bandit, rng)
    one, two = (rng.integers(-1, 2, size=sessions.n_steps) for _ in range(2))
    other = rng.integers(2, size=len(sessions))
    log = made(
        Beside.of(
            CodeBlock("a", 3, front=groups), None, CodeBlock("b", 2, steps=one),
            CodeBlock("c", 2, front=other, steps=two),
        )
    )  # fmt: skip
    rows = rng.uniform(0.2, 1.0, size=(7, 2))
    model = log.pack(bandit)
    model[0, beside_rows(log), :2] = rows
    places = log.beside.rows
    steps = np.where(one[:, None] >= 0, rows[places["b"]][one], 1.0) * np.where(
        two[:, None] >= 0, rows[places["c"]][two], 1.0
    )
    factors = np.log(rows[places["a"]][groups]) + np.log(rows[places["c"]][other])
    factors += np.add.reduceat(np.log(steps), sessions.offsets[:-1], axis=0)
    expected = np.logaddexp.reduce(belief.log_joint(bandit, sessions) + factors, axis=1).sum()
    assert log.expectation(model, SERIAL)[1][0] == pytest.approx(expected, rel=1e-12)


def test_letters_of_a_sample_are_those_of_its_steps(rng):
    sessions = made(rng, True, n=50)
    letters, rows = np.arange(sessions.n_steps), np.array([0, 4, 49])
    found = CodeBlock("more", len(letters), steps=letters).subset(sessions, rows).steps
    assert found.tolist() == [i for row in rows for i in range(sessions.offsets[row], sessions.offsets[row + 1])]


def test_the_fit_of_a_log_with_codes_beside_it_is_that_without(rng):
    """Starts, chains, information and traits leave the codes beside the arms' alone while their rows are 1."""
    bandit = GROUPED["two values"]
    _, plain, groups, made = grouped(bandit, rng, n=400)
    beside = made(Beside.of(CodeBlock("more", 3, front=groups)))
    fits = [lmab.EM(prior=1.0, restarts=2).fit(one, n_types=2, rng=np.random.default_rng(0)) for one in (plain, beside)]
    assert fits[1].log_likelihood == pytest.approx(fits[0].log_likelihood, abs=1e-4)
    found, expected = (one.information(bandit, one.prior(1.0)).matrix for one in (beside, plain))
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)
    chain = beside.chain(bandit)
    chain.sweep(rng)
    assert chain.rewards.probabilities.shape == (2, 3, 2)
    found, expected = (one.surface.deviations()[0].data @ one.multiplicity.repeat(3) for one in (beside, plain))
    assert found == pytest.approx(expected)


def test_rows_of_tables_and_statistics_lie_on_cache_lines(rng, monkeypatch):
    encoded, seen, kernel = observe(made(rng, True)), [], log.kernel

    class Noting:
        @staticmethod
        def categorical(*arguments):
            seen.extend(array.ctypes.data % 64 for array in arguments[4:6])
            kernel("em").categorical(*arguments)

        @staticmethod
        def in_pairs(*arguments):
            seen.extend(array.ctypes.data % 64 for array in arguments[4:7])
            kernel("em").in_pairs(*arguments)

    monkeypatch.setattr(log, "kernel", lambda name: Noting)
    for n_types in (2, 9):
        models = encoded.random_models(3, n_types, rng)
        encoded.expectation(models[1:], SERIAL)
    assert seen == [0] * len(seen)
    assert len(seen) > 3
