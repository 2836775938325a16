"""Versions: what a file says and what it leaves to the defaults, and arms that come as often as they are told to."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from serving import BANDIT, HORIZON, LABELS, policy_bytes

import lmab
from lmab.model.categorical import Categorical
from lmab.serve.register import Register
from lmab.serve.stores import ArmRow, ArmState
from lmab.serve.versions import ArmTable, Defaults, Version, _pick, read_version, uniform_version

COMPACT = lmab.plan(BANDIT, horizon=HORIZON).policy.compact()
OPEN = [ArmRow(label, ArmState.OPEN) for label in LABELS]


def table_of(floor, arms=OPEN) -> ArmTable:
    return ArmTable(Version("v", COMPACT, HORIZON, True, LABELS, floor, None), arms)


@pytest.mark.parametrize(
    ("floor", "best", "fresh", "explores"),
    [
        (0.3, 1, [0, 1, 2], 0.3),
        (0.3, None, [0, 2], 1.0),
        (0.3, 1, [0, 2], 0.3),  # the policy's own arm may not be explored
        (np.array([0.1, 0.0, 0.2]), 0, [0, 1, 2], 0.3),
        (np.array([0.1, 0.0, 0.2]), 1, [0, 1], 0.1),
        (np.array([0.1, 0.0, 0.2]), None, [1, 2], 1.0),
        (np.array([0.1, 0.0, 0.2]), 2, [0, 1, 2, 3], 0.5),  # a new arm has the largest floor
        (np.array([0.4, 0.3, 0.2]), 2, [0, 1, 2, 3], 0.9),  # and all of them together leave a tenth to the policy
        (np.array([0.0, 0.0, 0.0]), 1, [0, 1, 2], 0.0),
    ],
)
def test_arms_come_as_often_as_they_are_told_to(floor, best, fresh, explores):
    table, n = table_of(floor, [*OPEN, ArmRow("new", ArmState.OPEN)]), 100
    draws = (np.arange(n) + 0.5) / n
    counts, told, explored = np.zeros(4), {}, 0
    for first in draws:
        for second in draws:
            arm, propensity, was_explored = table.choose(best, fresh, first, second)
            assert told.setdefault(arm, propensity) == pytest.approx(propensity, rel=1e-12)
            assert arm in fresh or arm == best
            counts[arm] += 1
            explored += was_explored
    assert explored / n**2 == pytest.approx(explores, abs=0.01)
    assert sum(told.values()) == pytest.approx(1.0)
    for arm, propensity in told.items():
        assert counts[arm] / n**2 == pytest.approx(propensity, abs=0.01)


def test_tables_are_the_open_arms_as_the_version_knows_them():
    states = {"new": ArmState.OPEN, "blue": ArmState.OPEN, "red": ArmState.WITHDRAWN, "green": ArmState.OPEN}
    table = table_of(0.1, [ArmRow(*item) for item in (states | {"unopened": ArmState.KNOWN}).items()])
    assert table.open == [0, 1, 3]
    assert table.place == {2: 0, 3: 1, 1: 2}
    assert table.mask.tolist() == [False, True, True]
    assert (table.everything, table.anything) == (False, True)
    assert table_of(0.1).everything
    alone = table_of(0.1, [ArmRow("new", ArmState.OPEN), ArmRow("red", ArmState.WITHDRAWN)])
    assert (alone.everything, alone.anything) == (False, False)


def test_floors_of_the_register_are_for_versions_that_say_none():
    version = read_version(policy_bytes(), Defaults())
    rows = [*OPEN, ArmRow("new", ArmState.OPEN)]
    table = ArmTable(version, rows, 0.05, {"red": 0.01, "green": 0.04, "blue": 0.02})
    assert table.floors == [0.01, 0.04, 0.02, 0.04]  # a new arm has the largest
    assert (ArmTable(version, rows, 0.05).floors, ArmTable(version, rows, 0.05).floor) == (None, 0.05)
    own = read_version(policy_bytes(floor=0.4), Defaults())
    assert (ArmTable(own, rows, 0.05, {"red": 0.5}).floors, ArmTable(own, rows, 0.05).floor) == (None, 0.4)


def file_of(value, tmp_path) -> bytes:
    value.save(tmp_path / "p.lmab")
    return (tmp_path / "p.lmab").read_bytes()


def test_what_a_file_does_not_say_comes_from_the_defaults(tmp_path):
    planned = read_version(policy_bytes(), Defaults(99, repeats=False))
    assert (planned.floor, planned.horizon, planned.repeats, planned.labels) == (None, HORIZON, True, LABELS)
    assert planned.values == {0.0, 1.0}
    assert read_version(policy_bytes(floor=0.4), Defaults(floor=0.2)).floor == 0.4
    anything = read_version(file_of(lmab.Uniform(3), tmp_path), Defaults(7, floor=0.2, values=None, repeats=False))
    assert (anything.compact, anything.horizon, anything.repeats, anything.floor) == (None, 7, False, 1.0)
    assert (anything.labels, anything.values) == ((0, 1, 2), None)
    assert read_version(file_of(lmab.Uniform(3), tmp_path), Defaults(7)).values == {0.0, 1.0}
    once = lmab.plan(BANDIT, horizon=3, repeats=False).policy
    assert not read_version(file_of(once, tmp_path), Defaults()).repeats


def test_any_number_is_a_reward_where_rewards_are_cut_into_values_or_normal(tmp_path):
    normal = lmab.LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]], scale=0.7)
    cut = Categorical(np.array([[[0.2, 0.8], [0.7, 0.3]]] * 2), np.array([1.0, 5.0]), np.array([3.0]))
    for bandit in (normal, lmab.LatentBandit([0.5, 0.5], cut)):
        version = read_version(file_of(lmab.plan(bandit, horizon=2).policy, tmp_path), Defaults())
        assert version.accepts(0.123)
    assert not read_version(policy_bytes(), Defaults()).accepts(0.5)


def test_the_version_without_a_policy_is_what_the_defaults_say():
    version = uniform_version(Defaults(5, values=(0.0, 2.0), repeats=False))
    assert (version.name, version.horizon, version.repeats, version.floor) == ("uniform", 5, False, 1.0)
    assert (version.accepts(2.0), version.accepts(1.0)) == (True, False)
    assert uniform_version(Defaults(5, values=None)).accepts(0.1)


def test_an_arm_without_a_floor_is_never_explored():
    for draw in (0.0, 0.5, 1.0 - 2**-53, 1.0):  # the ends of the range, too
        assert _pick([5, 6, 7], [0.0, 0.2, 0.0], draw) == 6


def test_arms_that_a_fit_left_out_are_open_and_explored(tmp_path):
    log = lmab.simulate(BANDIT, lmab.Uniform(BANDIT.n_arms), n_sessions=60, horizon=HORIZON, rng=0)
    estimate = dataclasses.replace(lmab.fit(log, n_types=2, check=False, rng=0), left_out=("rare",))
    version = read_version(file_of(lmab.plan(estimate, horizon=HORIZON), tmp_path), Defaults())
    assert version.left_out == ("rare",)
    assert read_version(policy_bytes(), Defaults()).left_out == ()
    register = Register(None, Defaults(HORIZON), lambda: 0.0, lambda: None)
    register.use_standby((), version)
    assert [arm.label for arm in register.arms] == [*version.labels, "rare"]
    table = ArmTable(version, register.arms)
    assert len(table.open) == len(version.labels) + 1
    assert len(version.labels) not in table.place  # the policy itself does not play it


def test_a_version_of_very_long_sessions_is_warmed_by_a_few_steps():
    """Else a file that claims a horizon of a billion steps would keep a processor busy for ever."""
    acted = []

    class Counting:
        def start(self, **_):
            return 0

        def act(self, state, mask=None):
            acted.append(state)
            assert len(acted) < 1000
            return 0

        def observe(self, state, arm, reward):
            return state + 1

        def tell(self, state, arm, reward, step):
            return state

    Version("v", Counting(), 10**9, True, LABELS, None, None).warm()
    assert acted[-1] == 99


@pytest.mark.parametrize("repeats", [True, False])
def test_a_policy_whose_rewards_depend_on_the_step_is_served(tmp_path, repeats):
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.3, 0.5], [0.2, 0.8, 0.5]], step_effects=[0.0, -1.0, -2.0])
    plan = lmab.plan(bandit, horizon=3, repeats=repeats)
    version = read_version(file_of(plan, tmp_path), Defaults()).warm()
    compact = version.compact
    late = compact.tell(compact.observe(compact.observe(compact.start(), 0, None), 1, 1.0), 0, 0.0, step=0)
    at_once = compact.observe(compact.observe(compact.start(), 0, 0.0), 1, 1.0)
    np.testing.assert_allclose(compact.belief(late), compact.belief(at_once), rtol=1e-12)
    assert compact.act(late) == compact.act(at_once) == plan.policy.act_on([(0, 0.0), (1, 1.0)])
