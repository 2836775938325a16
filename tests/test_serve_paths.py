"""Paths: what is remembered of a policy is what the policy says, and no more of it than allowed."""

from __future__ import annotations

import numpy as np
import pytest

import lmab
from lmab.serve.paths import Paths

BANDIT = lmab.random_bandit(3, 6, kind="hard", rng=0)
POLICIES = {
    "vectors": lmab.plan(BANDIT, horizon=6, method=lmab.planning.PointBased()).policy,
    "any other": lmab.plan(BANDIT, horizon=6, method=lmab.planning.Lookahead()).policy,
}


def calls(compact, monkeypatch) -> list[str]:
    """What the policy itself is asked from now on."""
    asked: list[str] = []

    def counted(name, method):
        def call(*given):
            asked.append(name)
            return method(*given)

        return call

    for name in ("act", "observe"):
        monkeypatch.setattr(compact, name, counted(name, getattr(compact, name)))
    return asked


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_sessions_on_kept_paths_play_what_the_policy_plays(policy):
    rng, compact = np.random.default_rng(1), policy.compact()
    paths = Paths(compact, most=50)  # the memory is full soon, so that both ways are taken
    for _ in range(60):
        state, alone = paths.start, compact.start()
        for _ in range(5):
            assert paths.act(state) == compact.act(alone)
            arm = int(rng.integers(6)) if rng.random() < 0.3 else compact.act(alone)
            reward = [0.0, 1.0, None][rng.integers(3)]
            state, alone = paths.observe(state, arm, reward), compact.observe(alone, arm, reward)
            assert state.step == alone.step
            np.testing.assert_array_equal(state.memory, alone.memory)


def test_a_second_session_of_the_same_path_asks_the_policy_nothing(monkeypatch):
    compact = POLICIES["vectors"].compact()
    paths, asked = Paths(compact), calls(compact, monkeypatch)
    for wanted in (["act", "observe", "act", "observe", "act"], []):
        asked.clear()
        state = paths.start
        for reward in (1.0, 0.0):
            state = paths.observe(state, paths.act(state), reward)
        paths.act(state)
        assert asked == wanted


def test_what_is_kept_is_bounded_and_the_rest_is_asked_of_the_policy(monkeypatch):
    compact = POLICIES["vectors"].compact()
    paths, asked = Paths(compact, most=3), calls(compact, monkeypatch)
    for _ in range(2):
        asked.clear()
        for arm in range(5):
            paths.observe(paths.start, arm, 1.0)
    assert asked == ["observe"] * 3  # two of the five states are kept, beside the start


def test_states_of_no_path_are_not_kept(monkeypatch):
    compact = POLICIES["vectors"].compact()
    paths, asked = Paths(compact), calls(compact, monkeypatch)
    known = compact.start(history=[(0, 1.0)])  # a person's own: another one may live at the same address later
    for _ in range(2):
        paths.act(known)
        paths.observe(known, 1, 1.0)
    assert asked == ["act", "observe"] * 2
