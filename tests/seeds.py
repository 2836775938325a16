"""Random generators of the tests: the same bits in every run, and others under `LMAB_SEED=3 pytest`.

A claim about random cases must hold for other random cases. Therefore a test draws from the fixture `rng` or from
`generator`, unless it is about one known instance; then it uses `np.random.default_rng`.
"""

from __future__ import annotations

import os

import numpy as np

SEED = int(os.environ.get("LMAB_SEED", "0"))  # 0: the ordinary draws


def generator(*numbers: int) -> np.random.Generator:
    """Return the generator of these numbers and of `LMAB_SEED`."""
    return np.random.default_rng([*numbers, SEED] if SEED else numbers)
