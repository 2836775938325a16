"""Values as records: what goes in comes out, and what a class cannot hold is refused."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmab.errors import InvalidFile
from lmab.files import Record
from lmab.records import decode, decode_any, encode


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
