"""Run every benchmark, or the ones named: `python -m benchmarks [frame em ...]`."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys

import benchmarks

for pool in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(pool, "1")  # linear algebra on one core: benchmarks import NumPy after this
available = sorted(module.name.removeprefix("bench_") for module in pkgutil.iter_modules(benchmarks.__path__)
                   if module.name.startswith("bench_"))  # fmt: skip
for name in sys.argv[1:] or available:
    if name not in available:
        sys.exit(f"no benchmark {name!r}; there are {', '.join(available)}")
    print(f"== {name} ==", flush=True)
    importlib.import_module(f"benchmarks.bench_{name}").main()
