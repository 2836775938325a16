"""Other seeds draw other cases, and no seed the same ones every time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import seeds

PROBE = """
import numpy as np
from hypothesis import given, strategies as st
drawn = []

def test_fixture(rng, seed):
    drawn.append(rng.integers(2**60))

@given(st.integers(0, 2**60))
def test_hypothesis(number):
    drawn.append(number)

def test_shows():
    print("DRAWN", drawn)
"""


def draws(path: Path, seed: str | None) -> str:
    """What a small test file draws in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "LMAB_SEED"}
    environment |= {"PYTHONPATH": str(Path(__file__).parent)} | ({"LMAB_SEED": seed} if seed else {})
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "conftest", "-p", "no:cacheprovider", str(path)]
    done = subprocess.run(command, cwd=path.parent, env=environment, capture_output=True, text=True, check=True)
    return next(line for line in done.stdout.splitlines() if "DRAWN" in line)


def test_fixture_and_hypothesis_follow_the_environment(tmp_path):
    path = tmp_path / "test_probe.py"
    path.write_text(PROBE)
    ordinary, again, other = (draws(path, seed).split(",") for seed in (None, "0", "3"))
    assert ordinary == again
    assert other[0] != ordinary[0]  # the fixture
    assert other[1:] != ordinary[1:]  # Hypothesis


def test_generators_without_a_seed_are_numpys_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(seeds, "SEED", 0)
    assert seeds.generator(5).integers(2**60) == np.random.default_rng(5).integers(2**60)
    assert seeds.generator(5, 7).integers(2**60) == np.random.default_rng([5, 7]).integers(2**60)
    monkeypatch.setattr(seeds, "SEED", 1)
    assert seeds.generator(5).integers(2**60) != np.random.default_rng(5).integers(2**60)
