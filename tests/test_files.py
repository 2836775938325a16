from __future__ import annotations

import contextlib
import io
import json
import math
import os
import stat
import zipfile
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import bandits

import lmab
from lmab import LatentBandit, files, reporting
from lmab.errors import InvalidFile
from lmab.files import Record, decode, decode_any, encode


@pytest.fixture
def bandit():
    return LatentBandit.categorical([0.1, 0.9], [[[1 / 3, 2 / 3]], [[0.0, 1.0]]], [-0.1, 0.3])


@given(bandits())
def test_round_trip_is_exact_to_the_bit(tmp_path_factory, bandit):
    path = tmp_path_factory.mktemp("files") / "model.lmab"
    bandit.save(path)
    again = lmab.load(path)
    assert again == bandit
    assert again.weights.tobytes() == bandit.weights.tobytes()
    assert again.rewards.probabilities.tobytes() == bandit.rewards.probabilities.tobytes()


def test_gaussian_and_labels_round_trip(tmp_path):
    gaussian = LatentBandit(np.ones(1), LatentBandit.gaussian([1.0], [[0.1, -0.2]], 0.1 + 0.2).rewards, ("é", 7))
    gaussian.save(tmp_path / "g.lmab")
    assert lmab.load(tmp_path / "g.lmab") == gaussian


def test_same_value_same_bytes(tmp_path, bandit):
    bandit.save(tmp_path / "a")
    bandit.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with zipfile.ZipFile(tmp_path / "a") as archive:  # no time of day is in there, which would differ tomorrow
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_every_truncation_is_an_error_that_names_the_file(tmp_path, bandit):
    path = tmp_path / "model.lmab"
    bandit.save(path)
    whole = path.read_bytes()
    for size in range(0, len(whole), 37):
        path.write_bytes(whole[:size])
        with pytest.raises(InvalidFile, match=r"model\.lmab"):
            lmab.load(path)


@given(st.integers(0, 10**6))
def test_a_changed_byte_never_runs_code_nor_escapes_as_another_error(tmp_path_factory, seed):
    rng = np.random.default_rng(seed)
    path = tmp_path_factory.mktemp("files") / "model.lmab"
    LatentBandit.bernoulli([0.5, 0.5], [[0.1, 0.2], [0.3, 0.4]]).save(path)
    data = bytearray(path.read_bytes())
    for place in rng.integers(len(data), size=rng.integers(1, 4)):
        data[place] = rng.integers(256)
    path.write_bytes(bytes(data))
    with contextlib.suppress(InvalidFile):  # any other error fails the test; the bytes may also not have mattered
        assert isinstance(lmab.load(path), LatentBandit)


def test_foreign_files(tmp_path):
    path = tmp_path / "x.lmab"
    for content in (b"", b"hello", b"\x80\x04\x95", b"PK\x03\x04"):
        path.write_bytes(content)
        with pytest.raises(InvalidFile, match=r"x\.lmab"):
            lmab.load(path)
    np.savez(tmp_path / "x.npz", weights=np.ones(3))
    with pytest.raises(InvalidFile, match="not a file of lmab"):
        lmab.load(tmp_path / "x.npz")
    with pytest.raises(InvalidFile, match="no such file"):
        lmab.load(tmp_path / "missing.lmab")
    with pytest.raises(InvalidFile):
        lmab.load(tmp_path)


def _rewrite(path, change):
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(members[files.HEADER])
    change(header, members)
    members[files.HEADER] = json.dumps(header).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def test_newer_version(tmp_path, bandit):
    bandit.save(tmp_path / "m.lmab")
    _rewrite(tmp_path / "m.lmab", lambda header, _: header.update(version=99))
    with pytest.raises(InvalidFile, match=r"m\.lmab: written by a newer lmab \(format 99"):
        lmab.load(tmp_path / "m.lmab")


def test_unknown_kind(tmp_path, bandit):
    bandit.save(tmp_path / "m.lmab")
    _rewrite(tmp_path / "m.lmab", lambda header, _: header.update(kind="spaceship"))
    with pytest.raises(InvalidFile, match="spaceship"):
        lmab.load(tmp_path / "m.lmab")


def test_pickled_arrays_are_refused(tmp_path, bandit):
    bandit.save(tmp_path / "m.lmab")
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    _rewrite(tmp_path / "m.lmab", lambda _, members: members.update({"weights.npy": buffer.getvalue()}))
    with pytest.raises(InvalidFile, match=r"m\.lmab"):
        lmab.load(tmp_path / "m.lmab")


def test_compressed_members_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.lmab", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(files.HEADER, "0" * 10**6)
    with pytest.raises(InvalidFile, match="its members are compressed"):
        lmab.load(tmp_path / "bomb.lmab")


def test_wrong_numbers_inside_are_an_error(tmp_path, bandit):
    bandit.save(tmp_path / "m.lmab")
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.array([0.5, 0.9]))
    _rewrite(tmp_path / "m.lmab", lambda _, members: members.update({"weights.npy": buffer.getvalue()}))
    with pytest.raises(InvalidFile, match=r"m\.lmab: damaged: weights must sum to 1"):
        lmab.load(tmp_path / "m.lmab")


def test_unwritable_paths(tmp_path, bandit):
    with pytest.raises(InvalidFile, match="does not exist"):
        bandit.save(tmp_path / "no" / "m.lmab")
    with pytest.raises(InvalidFile, match="cannot write"):
        bandit.save(tmp_path)


def specials(folder: Path) -> list[Path]:
    """A pipe, a link to it, a link to a device, and where we may make one, a device."""
    pipe, link, null, device = (folder / name for name in ("pipe", "link", "null", "device"))
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    null.symlink_to(os.devnull)
    with contextlib.suppress(PermissionError):
        os.mknod(device, stat.S_IFCHR | 0o600, os.stat(os.devnull).st_rdev)
    return [path for path in (pipe, link, null, device) if os.path.lexists(path)]


def test_devices_and_pipes_are_never_replaced(tmp_path, bandit, monkeypatch):
    log = lmab.Sessions.from_arrays([[0, 0]], [[1.0, 0.0]])
    contents = reporting.gather(bandit, horizon=2)
    plan = lmab.plan(bandit, horizon=2)  # before: a kernel compiled here would be written to its cache
    monkeypatch.setattr(os, "replace", lambda *_: pytest.fail("something was replaced"))
    for number, path in enumerate(specials(tmp_path)):
        before = os.lstat(path)
        log_path = tmp_path / f"log-{number}.csv"
        log_path.symlink_to(path)
        for write in (bandit.save, plan.save, partial(reporting.write, contents)):
            with pytest.raises(InvalidFile, match=f"{path.name}: cannot write here: this is a device or a pipe"):
                write(path)
        with pytest.raises(InvalidFile, match="this is a device or a pipe"):
            log.write(log_path)
        assert (os.lstat(path).st_ino, os.lstat(path).st_mode) == (before.st_ino, before.st_mode)


def test_a_link_to_a_file_may_be_replaced(tmp_path, bandit):
    bandit.save(tmp_path / "file.lmab")
    (tmp_path / "link.lmab").symlink_to(tmp_path / "file.lmab")
    bandit.save(tmp_path / "link.lmab")
    assert lmab.load(tmp_path / "link.lmab") == bandit


def test_failed_write_leaves_the_old_file_and_no_litter(tmp_path, bandit, monkeypatch):
    path = tmp_path / "m.lmab"
    bandit.save(path)
    before = path.read_bytes()
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        bandit.save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.lmab"]


def test_arrays_of_a_file_are_frozen_and_everybody_may_read_it(tmp_path, bandit):
    path = tmp_path / "m.lmab"
    bandit.save(path)
    assert path.stat().st_mode & 0o777 == 0o644
    record = files.read(path)
    assert not record.arrays["weights"].flags.writeable
    assert record.kind == "bandit"
    assert set(record.records) == {"rewards"}


@pytest.mark.parametrize("version", [0, -1, "1", None, 1.0])
def test_a_version_that_is_none(tmp_path, bandit, version):
    bandit.save(tmp_path / "m.lmab")
    _rewrite(tmp_path / "m.lmab", lambda header, _: header.update(version=version))
    with pytest.raises(InvalidFile, match="damaged: its version is"):
        lmab.load(tmp_path / "m.lmab")


def test_text_and_times_are_no_arrays_of_ours(tmp_path, bandit):
    bandit.save(tmp_path / "m.lmab")
    for array in (np.array(["a", "b"]), np.array([1, 2], "datetime64[s]"), np.array([1j, 2j])):
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, array)
        data = buffer.getvalue()
        _rewrite(tmp_path / "m.lmab", lambda _, members, data=data: members.update({"weights.npy": data}))
        with pytest.raises(InvalidFile, match=r"weights\.npy holds"):
            files.read(tmp_path / "m.lmab")


def nested(depth: int) -> files.Record:
    return files.Record("x") if depth == 0 else files.Record("x", records={"in": nested(depth - 1)})


def test_records_are_nested_four_deep_at_most(tmp_path):
    files.write(tmp_path / "deep.lmab", nested(4))
    assert files.read(tmp_path / "deep.lmab").records["in"].records["in"].kind == "x"
    files.write(tmp_path / "deeper.lmab", nested(5))
    with pytest.raises(InvalidFile, match="nested too deep"):
        files.read(tmp_path / "deeper.lmab")


def test_what_is_no_number_is_not_written(tmp_path):
    with pytest.raises(ValueError, match=r"JSON compliant|not JSON"):
        files.write(tmp_path / "x.lmab", files.Record("x", {"value": float("nan")}))
    assert list(tmp_path.iterdir()) == []


def test_a_header_that_is_not_ours(tmp_path, bandit):
    bandit.save(tmp_path / "m.lmab")
    _rewrite(tmp_path / "m.lmab", lambda header, _: header.update(format="other"))
    with pytest.raises(InvalidFile, match="its header names another format"):
        lmab.load(tmp_path / "m.lmab")
    with zipfile.ZipFile(tmp_path / "empty.lmab", "w") as archive:
        archive.writestr("a.txt", "hello")
    with pytest.raises(InvalidFile, match=r"no lmab\.json inside"):
        lmab.load(tmp_path / "empty.lmab")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Inner:
    size: int


@dataclass(frozen=True, eq=False)
class Outer:
    number: float
    count: int
    word: str | None
    pair: tuple[float, float]
    many: tuple[int, ...]
    flag: bool
    colour: Colour | None
    table: np.ndarray
    inner: Inner | None


OUTER = Outer(0.1, 3, None, (0.0, math.inf), (1, 2), True, Colour.BLUE, np.arange(4.0).reshape(2, 2), Inner(5))
MAKERS = {"Inner": Inner}


def through_json(record: Record) -> Record:
    """The record as a file would give it back."""
    nested = {name: through_json(part) for name, part in record.records.items()}
    return Record(record.kind, json.loads(json.dumps(dict(record.fields), allow_nan=False)), record.arrays, nested)


def test_round_trip():
    again = decode(through_json(encode(OUTER)), Outer, MAKERS)
    assert {**vars(again), "table": 0} == {**vars(OUTER), "table": 0}
    np.testing.assert_array_equal(again.table, OUTER.table)


@given(st.floats())
def test_every_number_survives_to_the_bit(number):
    again = decode(through_json(encode(replace(OUTER, number=number))), Outer, MAKERS).number
    assert np.float64(again).tobytes() == np.float64(number).tobytes() or (math.isnan(again) and math.isnan(number))


def test_numpy_numbers_are_numbers():
    record = encode(replace(OUTER, number=np.float64(0.1), count=np.int64(3), flag=np.bool_(True)))
    assert [type(record.fields[name]) for name in ("number", "count", "flag")] == [float, int, bool]


def test_fields_may_be_left_out_and_given():
    record = encode(OUTER, "outer", without=("word", "inner"))
    assert record.kind == "outer"
    assert decode(record, Outer, word="given", inner=None).word == "given"
    assert decode(encode(OUTER), Outer, inner=None).inner is None  # what is given is not read


WRONG = {
    "number": "0.1",
    "count": 3.0,
    "word": 7,
    "pair": [1.0],
    "many": [1, "2"],
    "flag": 1,
    "colour": "green",
    "inner": 5,
    "surprise": 1,
}


@pytest.mark.parametrize("name", WRONG)
def test_what_the_class_cannot_hold_is_refused(name):
    record = encode(OUTER)
    nested = {other: part for other, part in record.records.items() if other != name}
    lying = replace(record, fields={**record.fields, name: WRONG[name]}, records=nested)
    with pytest.raises(InvalidFile, match=name):
        decode(lying, Outer, MAKERS)


@pytest.mark.parametrize("number", [True, {"float": "inf", "x": 1}, {}, [1.0]])
def test_no_number(number):
    with pytest.raises(InvalidFile):
        decode(replace(encode(OUTER), fields={**encode(OUTER).fields, "number": number}), Outer, MAKERS)


def test_unknown_kinds_are_refused():
    with pytest.raises(InvalidFile, match="'Inner', which this lmab does not know"):
        decode(encode(OUTER), Outer, {})
    with pytest.raises(InvalidFile, match="spaceship"):
        decode_any(Record("spaceship"), MAKERS)


def test_what_has_no_file_form_is_refused_when_written():
    @dataclass(frozen=True)
    class Odd:
        thing: Any

    with pytest.raises(TypeError, match="set has no file form"):
        encode(Odd({1}))


def test_members_may_not_be_larger_than_the_file():
    def check(*sizes: int) -> None:
        infos = [SimpleNamespace(compress_type=zipfile.ZIP_STORED, file_size=size) for size in sizes]
        files._check_members(SimpleNamespace(infolist=lambda: infos), 100)

    check(60, 40)
    with pytest.raises(InvalidFile, match="damaged: its members are larger than the file"):
        check(60, 41)
