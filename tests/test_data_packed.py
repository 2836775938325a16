"""Packed logs: what is checked when one is opened, and what it answers."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

import lmab
from lmab.data import packing
from lmab.data.packed import Cutting
from lmab.errors import InvalidArgument, InvalidFile


@pytest.fixture
def log(rng):
    bandit = lmab.random_bandit(2, 5, rng=rng)
    return lmab.simulate(bandit, lmab.Uniform(5), n_sessions=200, horizon=3, rng=rng)


@pytest.fixture
def packed(log, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "PARTITION", 100)
    monkeypatch.setattr("lmab.data.packing.STEPS", 30)
    return lmab.pack(log, tmp_path / "packed")


def test_it_answers_as_the_log_does(packed, log):
    assert len(packed.manifest.partitions) == 5
    assert (len(packed), packed.n_steps, packed.n_arms) == (len(log), log.n_steps, log.n_arms)
    assert repr(packed) == "Packed(200 sessions, 600 steps, 5 arms, 5 partitions)"
    assert packed[20:170] == log[20:170]
    mask = np.arange(200) % 7 == 1
    assert packed[mask] == log[mask]
    assert packed.with_arms(6) == log.with_arms(6)
    for wrong in ([200], [-201]):
        with pytest.raises(InvalidArgument, match=r"indices must be in 0\.\.199"):
            packed[wrong]
    with pytest.raises(InvalidArgument, match="at least one session"):
        packed[[]]


def test_parts_are_cut_as_in_memory(packed, log):
    for n_parts in (2, 3, 7, 64):
        targets = np.arange(1, n_parts) * (log.n_steps / n_parts)
        assert packed.partitions.cuts(targets).tolist() == np.searchsorted(log.offsets, targets).tolist()
    for low, high in [(0, 200), (0, 1), (33, 34), (30, 70), (199, 200)]:
        offsets, codes = packed.partitions.part(low, high, "codes")
        assert offsets.tolist() == (log.offsets[low : high + 1] - log.offsets[low]).tolist()
        assert (codes // 2).tolist() == log.arms[log.offsets[low] : log.offsets[high]].tolist()


def test_a_pickle_holds_no_data(packed, log):
    text = pickle.dumps(packed)
    assert len(text) < 500
    assert pickle.loads(text).load() == log
    assert len(pickle.dumps(packed.partitions)) < 2000


@pytest.mark.parametrize("n_edges", [0, 1, 32, 33, 400])
def test_places_of_rewards_between_edges(rng, n_edges):
    edges = np.unique(rng.standard_normal(n_edges))
    rewards = np.concatenate([edges, rng.standard_normal(50)])
    expected = [sum(edge <= reward for edge in edges) for reward in rewards]
    assert Cutting(edges, np.arange(n_edges + 1.0)).places(rewards).tolist() == expected


@pytest.mark.parametrize("listed", [True, False])
def test_rewards_that_are_cut_twice(rng, tmp_path, monkeypatch, listed):
    if not listed:
        monkeypatch.setattr("lmab.data.packing.MAX_VALUES", 3)
    log = lmab.Sessions.from_arrays(rng.integers(0, 3, size=(90, 4)), rng.integers(0, 9, size=(90, 4)) / 1.0)
    packed = lmab.pack(log, tmp_path / "packed")
    assert (packed.values is not None) == listed
    once = packed.cut(np.array([2.0, 5.0, 7.0]), np.array([1.0, 3.0, 6.0, 9.0]))
    twice = once.cut(np.array([4.0, 7.0]), np.array([-1.0, 0.5, 2.0]))
    for cut, values, edges in ((once, [1.0, 3.0, 6.0, 9.0], [2, 5, 7]), (twice, [-1.0, 0.5, 2.0], [5, 7])):
        expected = replace(log, rewards=np.array(values)[np.searchsorted(edges, log.rewards, side="right")])
        assert cut.load() == expected
        assert pickle.loads(pickle.dumps(cut)).load() == expected
        assert cut.values.tolist() == values
        assert cut.cells.tolist() == [
            [int(((expected.arms == arm) & (expected.rewards == value)).sum()) for value in values] for arm in range(3)
        ]
    assert packed.load() == log


@pytest.mark.parametrize("column", ["codes", "lengths"])
def test_a_missing_cut_or_changed_partition_is_named(packed, column):
    path = packed.folder / f"00003.{column}"
    kept = path.read_bytes()
    path.write_bytes(kept[:-1])
    with pytest.raises(InvalidFile, match=rf"00003\.{column}: .* was changed: it has \d+ bytes instead of \d+"):
        lmab.Packed(packed.folder)
    path.write_bytes(bytes([kept[0] ^ 1]) + kept[1:])
    with pytest.raises(InvalidFile, match=rf"00003\.{column}: .* was changed: its checksum"):
        lmab.Packed(packed.folder)
    lmab.Packed(packed.folder, verify=False)
    path.unlink()
    with pytest.raises(InvalidFile, match=rf"00003\.{column}: this part of the packed log is missing"):
        lmab.Packed(packed.folder)
    with pytest.raises(InvalidFile, match=rf"00003\.{column}: .* cannot see this part of the packed log"):
        packed.load()


def test_a_partition_of_another_log_is_named(packed, tmp_path, log):
    lmab.pack(log[::-1], tmp_path / "other")
    (packed.folder / "00001.codes").write_bytes((tmp_path / "other" / "00001.codes").read_bytes())
    with pytest.raises(InvalidFile, match=r"00001\.codes: .* was changed"):
        lmab.Packed(packed.folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 3}, "has version 3, and this lmab reads version 2"),
        ({"format": "zip"}, "not the manifest of a packed log"),
        ({"n_steps": 5}, "damaged: its partitions hold 200 sessions and 600 steps"),
        ({"partitions": None}, "damaged"),
    ],
)
def test_another_version_or_a_damaged_manifest(packed, changes, message):
    path = packed.folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(InvalidFile, match=message):
        lmab.Packed(packed.folder)
    path.write_text("{")
    with pytest.raises(InvalidFile, match="damaged"):
        lmab.Packed(packed.folder)


def test_what_is_no_packed_log(tmp_path):
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(InvalidFile, match="not a packed log"):
            lmab.Packed(folder)
