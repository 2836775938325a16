"""Shape annotations are executed: what the other tests rely on without saying so."""

from __future__ import annotations

import importlib
import sys

import jaxtyping
import numpy as np
import pytest
import shapes
from reference import planning

import lmab.data.sessions
import lmab.planning.search
import lmab.simulation
from lmab.model import belief

MODULE = """
from __future__ import annotations
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple
from jaxtyping import Float
import numpy as np
Array = np.ndarray

def add(first: Float[Array, "n"], second: Float[Array, "n"]) -> Float[Array, "n"]:
    return first + second

def double(rows: Float[Array, "n"]) -> Float[Array, "n"]:
    return np.concatenate([rows, rows])

def either(rows: Float[Array, "n"] | None = None) -> tuple[Float[Array, "n"], int]:
    return (np.zeros(2) if rows is None else rows[1:]), 1

def give(value: Float[Array, "n"] | tuple[Float[Array, "n"], Float[Array, "n"]]) -> Float[Array, "n"]:
    return np.zeros(2)

def join(pieces: list[Float[Array, "n"]]) -> Float[Array, "m"]:
    return np.concatenate(pieces)

@dataclass(frozen=True)
class Table:
    rows: Float[Array, "n m"]
    names: Float[Array, "n"]

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", np.asarray(self.rows, float))

    @property
    def wide(self) -> Float[Array, "n"]:
        return self.rows

    @cached_property
    def kept(self) -> Float[Array, "n"]:
        return self.rows

    @classmethod
    def of(cls, rows: Float[Array, "n m"]) -> int:
        return len(rows)

class Pair(NamedTuple):
    left: Float[Array, "n"]
    right: Float[Array, "n"]
"""
TWO, THREE = np.zeros(2), np.zeros(3)


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    (folder / "with_shapes.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setattr(sys, "meta_path", list(sys.meta_path))
        shapes.install(["with_shapes"])
        yield importlib.import_module("with_shapes")
        del sys.modules["with_shapes"]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda m: m.add(TWO, THREE),
        lambda m: m.add(TWO, np.zeros(2, int)),
        lambda m: m.double(TWO),
        lambda m: m.either(TWO),
        lambda m: m.Table([[1, 2]], TWO),
        lambda m: m.Table(np.zeros((2, 3)), TWO).wide,
        lambda m: m.Table(np.zeros((2, 3)), TWO).kept,
        lambda m: m.Table.of(TWO),
        lambda m: m.Pair(TWO, THREE),
    ],
)
def test_a_wrong_shape_is_an_error(module, wrong):
    with pytest.raises(jaxtyping.TypeCheckError):
        wrong(module)


def test_a_right_shape_is_none(module):
    assert len(module.add(TWO, TWO)) == 2
    assert module.either()[1] == 1
    assert len(module.join([TWO, THREE])) == 5  # items of a list may differ
    assert module.Table([[1, 2]], np.zeros(1)).rows.shape == (1, 2)  # fields are checked once made
    assert module.Pair(TWO, TWO).left is TWO


@pytest.mark.parametrize(
    ("call", "right", "wrong"),
    [
        (lambda m, x: m.add(x, TWO), TWO, THREE),
        (lambda m, x: m.add(TWO, second=x), TWO, np.zeros(2, int)),
        (lambda m, x: m.either(x), None, TWO),
        (lambda m, x: m.give(x), TWO, (TWO, THREE)),
        (lambda m, x: m.Table(x, TWO), np.zeros((2, 3)), np.zeros((3, 2))),
        (lambda m, x: m.Table.of(x), np.zeros((2, 3)), TWO),
        (lambda m, x: m.Pair(TWO, x), TWO, THREE),
    ],
)
def test_a_wrong_combination_after_a_right_one_is_still_an_error(module, call, right, wrong):
    call(module, right)
    for _ in range(2):  # a wrong one is not remembered as seen
        with pytest.raises(jaxtyping.TypeCheckError):
            call(module, wrong)
    call(module, right)


def test_a_combination_is_looked_at_once(module, monkeypatch):
    looks = []

    def look(*_):
        looks.append(1)
        return True

    monkeypatch.setattr(shapes.beartype.door, "is_bearable", look)
    four = np.zeros(4)
    module.add(four, four)
    assert len(looks) == 5  # two arguments, and both again beside the result
    module.add(four + 1, four)
    assert len(looks) == 5


def test_the_package_and_its_specification_are_watched():
    with pytest.raises(jaxtyping.TypeCheckError, match="belief"):
        belief.normalise(np.ones(3, int))
    with pytest.raises(jaxtyping.TypeCheckError, match="reference"):
        planning.one_step_values(np.ones((2, 3)), np.ones((4, 2)), np.ones((2, 2)), np.ones((1, 2)))
    loaders = {
        name: type(module.__loader__).__module__
        for name, module in sys.modules.items()
        if name.startswith(("lmab", "reference"))
    }
    watched = [name for name, loader in loaders.items() if loader == "shapes"]
    assert {"lmab.data.sessions", "lmab.planning.search", "reference.planning"} <= set(watched)
    assert not [name for name in watched if "compiled" in name]


def test_what_was_imported_before_is_refused():
    with pytest.raises(RuntimeError, match=r"imported before .*lmab\.simulation"):
        shapes.install(["lmab.simulation"])
    assert lmab.simulation
