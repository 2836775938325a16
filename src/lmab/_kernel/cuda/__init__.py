"""Kernels for a GPU, compiled by numba-cuda.

If the environment variable `NUMBA_ENABLE_CUDASIM` is 1, the simulator of numba-cuda runs the same functions. numba-cuda
is imported with the first module of this package, never with lmab.
"""

from __future__ import annotations

import os
import warnings

import numpy as np
from numba import config

setattr(config, "CUDA_LOW_OCCUPANCY_WARNINGS", 0)  # noqa: B010  (a log, or its last part, may be small)
SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"

_DROPPED = "row_stack"  # removed by NumPy 2.5

if SIMULATED or hasattr(np, _DROPPED):
    from numba import cuda as cuda
else:  # numba-cuda 0.30 uses this name, and others for which NumPy warns, while its compiler is imported
    setattr(np, _DROPPED, np.vstack)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            from numba import cuda as cuda
            from numba.cuda.descriptor import cuda_target

            cuda_target.typing_context.refresh()
    finally:
        delattr(np, _DROPPED)
