"""Rules of the house that no other tool checks."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import house
import pytest

TESTS = Path(__file__).parent


def test_imports_between_packages_name_the_module_that_defines():
    assert [line for name in house.modules() if name for line in house.through_a_door(name)] == []


@pytest.mark.parametrize(
    ("line", "home"),
    [
        ("from ..model import LatentBandit", "model.bandit"),
        ("from lmab.model import LatentBandit", "model.bandit"),
        ("from lmab import LatentBandit", "model.bandit"),
        ("def f():\n    from ..model import LatentBandit", "model.bandit"),
        ("from ..model.bandit import LatentBandit", None),
        ("from ..model import belief", None),
        ("from .problem import Problem", None),
        ("from . import Problem", None),
        ("from .. import files", None),
        ("from ..files import Record", None),
        ("import numpy.linalg", None),
    ],
)
def test_the_rule_sees_what_it_forbids(line, home, monkeypatch):
    seen = tuple(house.imports(ast.parse(line), "planning"))
    real = house.imports_of
    monkeypatch.setattr(house, "imports_of", lambda name: seen if name == "planning.someone" else real(name))
    said = list(house.through_a_door("planning.someone"))
    assert [one.rpartition(" ")[2] for one in said] == ([home] if home else [])


def test_the_map_names_every_module_with_its_sentence():
    known = house.modules()
    for name, module in known.items():
        assert re.search(r"[.!?]$", house.sentence(module)), f"{name or 'lmab'} has no sentence at its top"
    rows = re.findall(r"^\| `([\w.]+)` \| ", house.chart(), re.M)
    assert sorted(rows) == sorted(name for name in known if name), "a room stands on no floor"


def test_the_map_of_the_design_page_names_every_room_on_its_floor():
    page = (house.ROOT / "docs" / "design.md").read_text()
    rows = dict(re.findall(r"^\| (\d+) \| ([^|]+) \|", page, re.M))
    written = {room: int(number) for number, cells in rows.items() for room in re.findall(r"`(\w+)`", cells)}
    known = {room: number for number, rooms in enumerate(house.floors()) for room in rooms if room != "__main__"}
    assert written == known


def test_every_warning_that_a_test_allows_has_its_reason_beside_it():
    bare = []
    for path in sorted(TESTS.glob("*.py")):
        lines = path.read_text().splitlines()
        for number, line in enumerate(lines):
            allows = re.search(r"filterwarnings\(.ignore|simplefilter\(.ignore", line)
            if allows and "#" not in line + lines[number - 1]:
                bare.append(f"{path.name}:{number + 1}")
    assert bare == []


def test_no_test_looks_at_the_clock_to_pass():
    """Speed is measured by benchmarks. To wait for something with a limit is another matter (`monotonic`)."""
    clocks = re.compile(r"\b(perf_counter|process_time)(_ns)?\(|\btime\.time\(")
    found = [path.name for path in sorted(TESTS.glob("*.py")) if clocks.search(path.read_text())]
    assert [name for name in found if name != Path(__file__).name] == []
