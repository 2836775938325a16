"""Where the tests draw from: the same bits in every run, and others under `LMAB_SEED=3 pytest`.

Whatever a test claims of random cases must hold for other cases too. A test therefore draws from the fixture `rng` or
from `generator`, unless it is about one known instance; then it says `np.random.default_rng`.
"""

from __future__ import annotations

import os

import numpy as np

SEED = int(os.environ.get("LMAB_SEED", "0"))  # 0: the ordinary draws


def generator(*numbers: int) -> np.random.Generator:
    """The generator that belongs to these numbers; under another `LMAB_SEED` another one."""
    return np.random.default_rng([*numbers, SEED] if SEED else numbers)
