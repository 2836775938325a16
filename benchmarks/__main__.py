"""Run every benchmark, or the ones named: `python -m benchmarks [frame em ...]`."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import benchmarks

available = sorted(module.name.removeprefix("bench_") for module in pkgutil.iter_modules(benchmarks.__path__)
                   if module.name.startswith("bench_"))  # fmt: skip
for name in sys.argv[1:] or available:
    if name not in available:
        sys.exit(f"no benchmark {name!r}; there are {', '.join(available)}")
    print(f"== {name} ==", flush=True)
    importlib.import_module(f"benchmarks.bench_{name}").main()
