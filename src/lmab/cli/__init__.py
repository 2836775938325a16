"""The command line: each command parses its options, calls the library and prints the result."""

import os as _os

# Before NumPy is imported: threads of BLAS that wait for small matrices cost more than they gain.
if not {"OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"} & _os.environ.keys():
    _os.environ["OPENBLAS_NUM_THREADS"] = "1"

from .app import main as main
