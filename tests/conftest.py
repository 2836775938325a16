"""Shape annotations of the package are executed in every test; Hypothesis draws the same examples every time."""

from __future__ import annotations

import os
import pkgutil
from pathlib import Path

# Before NumPy comes in: workers that share two cores must not each start two threads for every small matrix.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import hypothesis
import jaxtyping
import numpy as np
import pytest

SOURCE = Path(__file__).parent.parent / "src" / "lmab"


def _checked_modules() -> list[str]:
    """Everything but the compiled kernels (Numba compiles the bare function) and the command line (typer reads it)."""
    names = [module.name for module in pkgutil.walk_packages([str(SOURCE)], "lmab.", onerror=lambda name: None)]
    return [name for name in names if not name.startswith(("lmab._kernel", "lmab.cli"))]


jaxtyping.install_import_hook(_checked_modules(), "beartype.beartype")

hypothesis.settings.register_profile(
    "lmab", deadline=None, derandomize=True, max_examples=50, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("lmab")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20221012)
