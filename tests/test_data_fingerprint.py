"""Fingerprints: the same for the same sessions in any order, another for any change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import logs

import lmab
from lmab.data import fingerprint as module
from lmab.data.fingerprint import Fingerprint


@given(logs(), st.integers(0, 2**32 - 1))
def test_the_order_of_sessions_does_not_matter(log, seed):
    order = np.random.default_rng(seed).permutation(len(log))
    assert Fingerprint.of(log[order]) == Fingerprint.of(log)


@given(logs(), st.data())
def test_any_change_of_a_step_shows(log, data):
    step = data.draw(st.integers(0, log.n_steps - 1))
    arms, rewards = log.arms.copy(), log.rewards.copy()
    arms[step] = (arms[step] + 1) % log.n_arms
    rewards[step] = 1 - rewards[step]
    for changed in (replace(log, arms=arms), replace(log, rewards=rewards)):
        assert Fingerprint.of(changed).checksum != Fingerprint.of(log).checksum


def test_the_order_of_steps_and_the_cuts_between_sessions_matter():
    log = lmab.Sessions.from_arrays([[0, 1, 2, 0]], [[1.0, 0.0, 1.0, 1.0]])
    turned = lmab.Sessions.from_arrays([[1, 0, 2, 0]], [[0.0, 1.0, 1.0, 1.0]])
    cut = replace(log, offsets=np.array([0, 2, 4]))
    sums = {Fingerprint.of(one).checksum for one in (log, turned, cut)}
    assert len(sums) == 3


def test_steps_belong_to_their_session():
    log = lmab.Sessions.from_arrays([[0, 1], [1, 0]], [[1.0, 0.0], [0.0, 1.0]])
    exchanged = lmab.Sessions.from_arrays([[0, 0], [1, 1]], [[1.0, 1.0], [0.0, 0.0]])
    assert Fingerprint.of(log).checksum != Fingerprint.of(exchanged).checksum


def test_twice_the_same_session_does_not_cancel():
    log = lmab.Sessions.from_arrays([[0, 1], [0, 1], [1, 1]], [[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    assert Fingerprint.of(log[[0, 1]]).checksum != Fingerprint.of(log[[2, 2]]).checksum


def test_large_logs_are_looked_at_in_parts(monkeypatch, rng):
    log = lmab.simulate(lmab.random_bandit(2, 3, rng=rng), lmab.Uniform(3), n_sessions=50, horizon=3, rng=rng)
    whole = Fingerprint.of(log)
    monkeypatch.setattr(module, "_SESSIONS", 7)
    assert Fingerprint.of(log) == whole


def test_minus_zero_is_zero_and_what_is_beside_the_point_does_not_count():
    log = lmab.Sessions.from_arrays([[0, 1]], [[0.0, 1.0]])
    assert Fingerprint.of(replace(log, rewards=np.array([-0.0, 1.0]))) == Fingerprint.of(log)
    assert Fingerprint.of(replace(log, propensities=np.array([0.5, 0.5]), n_arms=7)) == Fingerprint.of(log)


def test_words():
    assert str(Fingerprint(1200, 7, "00ff")) == "1,200 sessions, 7 steps, checksum 00ff"


def test_sessions_in_codes_have_the_same_sum_in_parts(monkeypatch, rng):
    """Sums of parts go beyond 64 bits: what is over is dropped, as in the sums of the parts."""
    log = lmab.simulate(lmab.random_bandit(2, 3, rng=rng), lmab.Uniform(3), n_sessions=60, horizon=3, rng=rng)
    monkeypatch.setattr(module, "_SESSIONS", 7)
    codes = 2 * log.arms + log.rewards.astype(int)
    for values, arms, rewards in ((np.array([0.0, 1.0]), codes, None), (None, log.arms, log.rewards)):
        total = module.word_sums(arms, log.lengths, values, rewards)
        assert f"{total:016x}" == Fingerprint.of(log).checksum
