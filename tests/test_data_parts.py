"""Parts of a log with the same arms and columns, and a packed log that is replaced."""

from __future__ import annotations

import numpy as np
import pytest

import lmab
from lmab.data.parts import Layout, Parts, opened, replace_packed, without_persons


def a_log(rewards, persons=None) -> lmab.Sessions:
    arms = np.arange(len(rewards))[:, None] % 3
    log = lmab.Sessions.from_arrays(arms, np.asarray(rewards, float)[:, None], n_arms=3)
    return lmab.Sessions(log.arms, log.rewards, log.offsets, 3, None, ("a", "b", "c"), None, persons)


def test_arms_of_other_names_are_left_out_and_missing_columns_are_empty():
    layout = Layout(("new", "c", "a"), {"age": False, "land": True}, persons=True)
    (part,) = layout.of(a_log([1.0, 0.0, 0.5, 0.25]))
    assert part.arm_labels == ("new", "c", "a")
    assert (part.arms.tolist(), part.rewards.tolist()) == ([2, 1, 2], [1.0, 0.5, 0.25])
    assert set(part.features["land"]) == {None}
    assert np.isnan(part.features["age"]).all()
    assert len(set(part.persons)) == 1  # strangers
    assert list(Layout(("x",)).of(a_log([1.0]))) == []


def test_persons_are_removed_from_the_files_also_if_rewards_have_many_values(tmp_path, rng):
    folder, n = tmp_path / "log", 6000
    log = a_log(rng.random(n), np.arange(n) % 3)
    assert len(replace_packed(Parts(lambda: iter([log])), folder)) == n
    assert len(without_persons(folder, [7])) == n
    kept = without_persons(folder, [1])
    assert (len(kept), set(kept.persons)) == (n * 2 // 3, {0, 2})
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    assert without_persons(folder, [0, 2]) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("killed", ["before", "after"])
def test_a_kill_while_a_log_is_replaced_loses_nothing(tmp_path, killed):
    folder = tmp_path / "log"
    log = a_log([1.0, 0.0])
    replace_packed(Parts(lambda: iter([log])), folder)
    if killed == "before":  # the new log is not in its place
        folder.rename(tmp_path / ".log.new")
    (tmp_path / ".log.old").mkdir()
    assert opened(folder).load() == log
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    assert opened(tmp_path / "none") is None
