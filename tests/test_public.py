"""The public names are the contract's, documented, and cheap to import."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import house
import pytest

import lmab
from lmab.cli.logs import shop, shop_log, write_shop

ROOT = Path(__file__).parent.parent

#: The flow, in its order: read, model, fit, plan, evaluate, report, learn.
PUBLIC = [
    "Sessions", "pack", "Packed", "LatentBandit", "TypePrior", "random_bandit", "simulate", "Simulator",
    "fit", "Estimate", "EM", "Traits", "plan", "Plan", "Certified", "Exact", "QMDP", "export_pomdp",
    "Policy", "Uniform", "Greedy", "Thompson", "evaluate", "assess", "Assessment", "compare",
    "report", "learn", "DirectMLE", "load",
]  # fmt: skip

WITHOUT_EXAMPLE: set[str] = set()


def test_public_names_are_the_flow_in_its_order():
    assert lmab.__all__ == PUBLIC
    assert len(PUBLIC) <= 32


def test_dir_shows_the_flow_and_the_rooms_and_nothing_else():
    shown = dir(lmab)
    assert set(PUBLIC) <= set(shown)
    assert [name for name in shown if name.startswith("_")] == []
    assert set(shown) - set(PUBLIC) == set(lmab._PACKAGES)
    for room in lmab._PACKAGES:
        assert inspect.ismodule(getattr(lmab, room)), room


def test_a_name_from_one_level_down_is_found_there():
    with pytest.raises(AttributeError, match=r"no attribute 'EDMLE'; it is lmab\.learning\.EDMLE$"):
        _ = lmab.EDMLE
    with pytest.raises(AttributeError, match=r"no attribute 'estimate'$"):
        _ = lmab.estimate


DOORS = [
    "data", "model", "policies", "moments", "components", "estimation", "planning", "evaluation", "learning",
    "reporting", "testing", "serve", "client", "theory", "experiment",
]  # fmt: skip


def shown_by(room: str) -> list[str]:
    """The public names of a package, or of a module."""
    module = importlib.import_module(f"lmab.{room}")
    listed = getattr(module, "__all__", None)
    if listed is None:
        own = (name for name, value in vars(module).items() if getattr(value, "__module__", "").startswith("lmab."))
        listed = [name for name in own if not name.startswith("_") and name not in ("check_count", "InvalidArgument")]
    return listed


@pytest.mark.parametrize("room", DOORS)
def test_every_public_name_is_on_the_api_page(room):
    page = (ROOT / "docs" / "api.md").read_text()
    documented = set(re.findall(r"^::: (\S+)$", page, re.M))
    missing = []
    for name in shown_by(room):
        ways = {f"lmab.{room}.{name}"} | ({f"lmab.{name}"} if name in PUBLIC else set())
        if not ways & documented and not any(one.startswith(f"lmab.{room}.{name}.") for one in documented):
            missing.append(name)
    assert missing == []


def test_the_api_page_names_nothing_that_is_not_there():
    page = (ROOT / "docs" / "api.md").read_text()
    assert [name for name in PUBLIC if f"::: lmab.{name}\n" not in page] == []
    for name in re.findall(r"^::: lmab\.(\S+)$", page, re.M):
        value: Any = lmab
        for part in name.split("."):
            value = getattr(value, part)
        assert value.__doc__ or (not inspect.isclass(value) and not inspect.isfunction(value)), name


@pytest.mark.parametrize("room", ["data", "model", "policies", "moments", "estimation", "planning", "evaluation"])
def test_a_front_door_imports_a_name_when_it_is_used(room):
    program = f"import sys, lmab.{room} as door\nbefore = [m for m in sys.modules if m.startswith('lmab.{room}.')]\n"
    program += (
        "print(before, all(hasattr(door, name) for name in door.__all__), sorted(door.__all__) == sorted(dir(door)))"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out == "[] True True\n"
    with pytest.raises(AttributeError, match=f"module 'lmab.{room}' has no attribute 'nonsense'"):
        _ = getattr(lmab, room).nonsense


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_docstring_whose_example_runs(name):
    value = getattr(lmab, name)
    assert value.__doc__
    found = doctest.DocTestFinder(recurse=True).find(value, name, globs={"lmab": lmab})
    examples = [test for test in found if test.examples]
    assert examples or name in WITHOUT_EXAMPLE, f"{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for test in examples:
        runner.run(test)
    assert runner.failures == 0


@pytest.mark.parametrize(
    "name",
    [
        "policies.best_allowed",
        "estimation.finish",
        "estimation.Capabilities",
        "experiment.compare",
        "testing.check_estimator",
        "testing.BrokenLaw",
        "testing.Report",
        "testing.check_learner",
        "testing.check_planner",
        "testing.check_policy",
        "testing.small_bandit",
    ],
)
def test_names_for_extensions_have_examples_that_run(name):
    module, attribute = name.split(".")
    value = getattr(getattr(lmab, module), attribute)
    found = doctest.DocTestFinder(recurse=False).find(value, name, globs={"lmab": lmab})
    assert [test for test in found if test.examples], f"{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for test in found:
        runner.run(test)
    assert runner.failures == 0


def test_import_is_light():
    program = """
import sys
import lmab
assert not {"numpy", "scipy"} & set(sys.modules)
lmab.fit, lmab.plan, lmab.evaluate, lmab.assess, lmab.simulate, lmab.learn, lmab.report, lmab.load
import lmab.serve.run
heavy = {"numba", "pandas", "polars", "matplotlib", "typer", "rich", "duckdb", "jaxtyping", "dask", "scipy.stats"}
print(sorted(heavy & set(sys.modules)))
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out == "[]\n"


def test_readme_code_runs_as_printed(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_shop(shop_log(), tmp_path / "shop.csv")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2
    assert set(said) <= set(shop().arm_labels)
    assert "Confidence intervals" in (tmp_path / "report.html").read_text()


def test_version_comes_from_one_place():
    from importlib.metadata import version

    assert version("lmab") == lmab.__version__


LAZY = sorted(name for name in house.modules() if "_lazy" in {source for source, _ in house.imports_of(name)})


@pytest.mark.parametrize("package", LAZY)
def test_type_checkers_and_programs_see_the_same_names(package):
    """The imports under `TYPE_CHECKING` and the table of lazy imports name the same modules."""
    blocks = [node for node in house.modules()[package].body if isinstance(node, ast.If)]
    imported = importlib.import_module(f"lmab.{package}")
    checked = {}
    for node in (inner for block in blocks for inner in block.body):
        assert isinstance(node, ast.ImportFrom)
        checked.update({alias.name: "." * node.level + (node.module or "") for alias in node.names})
    assert sorted(checked) == sorted(imported.__all__)
    for name, module in checked.items():
        inside = importlib.import_module(module, imported.__name__)
        assert getattr(imported, name) is getattr(inside, name)
