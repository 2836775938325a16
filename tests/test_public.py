"""The public names are the contract's, documented, and cheap to import."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import shop
from seeds import generator

import lmab

ROOT = Path(__file__).parent.parent

PUBLIC = [
    "BeliefPolicy",
    "Bounds",
    "Certificate",
    "Certified",
    "Clock",
    "Design",
    "DirectMLE",
    "EM",
    "Environment",
    "Sessions",
    "Estimate",
    "Evaluation",
    "Exact",
    "Exploring",
    "FixedSequence",
    "Greedy",
    "LatentBandit",
    "Lookahead",
    "MUCB",
    "MomentMatching",
    "Packed",
    "Plan",
    "Planner",
    "PointBased",
    "Policy",
    "Problem",
    "QMDP",
    "Simulator",
    "State",
    "Stationary",
    "Subspace",
    "TensorDecomposition",
    "Thompson",
    "Traits",
    "Uniform",
    "certify",
    "design",
    "estimate",
    "evaluate",
    "learn",
    "load",
    "pack",
    "plan",
    "random_bandit",
    "simulate",
    "subspace",
]

WITHOUT_EXAMPLE = {
    "Design",
    "Subspace",
    "Evaluation",
    "Environment",
}  # results and protocols: shown in the examples of what makes them


def names() -> list[str]:
    return sorted(
        name for name, value in vars(lmab).items() if not name.startswith("_") and not inspect.ismodule(value)
    )


def test_public_names_are_the_contract():
    assert names() == sorted(PUBLIC)


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
heavy = {"numba", "pandas", "polars", "matplotlib", "typer", "rich", "pyarrow", "jaxtyping", "dask"} & set(sys.modules)
print(sorted(heavy))
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert out == "[]\n"


def test_readme_code_runs_as_printed(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shop.write(tmp_path / "shop.csv", generator(0))
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("A session of 5 steps earns between")
    assert set(said[1:]) <= set(shop.ITEMS)


def test_version_comes_from_one_place():
    from importlib.metadata import version

    assert version("lmab") == lmab.__version__


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("lmab.policy", "State Policy BeliefPolicy best_allowed check_horizon"),
        ("lmab.rewards", "Rewards Categorical Gaussian MAX_VALUES distinct_values restore permutation"),
    ],
)
def test_names_of_0_1_can_still_be_imported(module, names):
    sys.modules.pop(module, None)
    with pytest.warns(DeprecationWarning, match=f"{module} has moved to lmab"):
        found = importlib.import_module(module)
    assert [name for name in names.split() if not hasattr(found, name)] == []
