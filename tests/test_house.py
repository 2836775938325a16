"""Rules of the house that no other tool checks."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import house
import pytest

TESTS = Path(__file__).parent


def test_imports_from_another_package_go_through_its_front_door():
    assert list(house.past_the_door()) == []


@pytest.mark.parametrize(
    ("package", "line", "found"),
    [
        ("planning", "from ..model.bandit import LatentBandit", ["model.bandit", "LatentBandit"]),
        ("planning", "from ..model import LatentBandit, nothing_there", ["model", "nothing_there"]),
        ("planning", "from ..model import LatentBandit, belief", []),
        ("planning", "from .problem import Problem", []),
        ("planning", "from .. import files", []),
        ("planning", "from ..files import Record", []),
        ("estimation.categorical", "from ...model.bandit import LatentBandit", ["model.bandit", "LatentBandit"]),
        ("estimation.categorical", "from ..observations import Observations", []),
        ("", "from .model.bandit import LatentBandit", ["model.bandit", "LatentBandit"]),
        ("", "from lmab.model.bandit import LatentBandit", ["model.bandit", "LatentBandit"]),
        ("", "import lmab.model.bandit", ["model.bandit", "*"]),
        ("", "import numpy.linalg", []),
        ("", "def f():\n    from .planning.problem import Problem", ["planning.problem", "Problem"]),
    ],
)
def test_the_rule_sees_what_it_forbids(package, line, found, monkeypatch):
    name = f"{package}.someone" if package else "someone"
    known = house.modules() | {name: ast.parse(line)}
    monkeypatch.setattr(house, "modules", lambda: known)
    said = [sentence for sentence in house.past_the_door() if sentence.startswith(f"{name}:")]
    assert said == ([f"{name}: from {found[0]} import {found[1]}"] if found else [])


def test_the_map_names_every_module_with_its_sentence():
    known = house.modules()
    for name, module in known.items():
        assert re.search(r"[.!?]$", house.sentence(module)), f"{name or 'lmab'} has no sentence at its top"
    rows = re.findall(r"^\| `([\w.]+)` \| ", house.chart(), re.M)
    assert sorted(rows) == sorted(name for name in known if name), "a room stands on no floor"
    assert house.chart() in house.PAGE.read_text(), "run: make map"


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
