"""Run every benchmark, or the ones named: `python -m benchmarks [frame em ...]`; with `--store` keep their rows."""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil

import benchmarks

for pool in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(pool, "1")  # linear algebra on one core: benchmarks import NumPy after this


def main() -> None:
    available = sorted(module.name.removeprefix("bench_") for module in pkgutil.iter_modules(benchmarks.__path__)
                       if module.name.startswith("bench_"))  # fmt: skip
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(available)}; all without")
    parser.add_argument("--store", action="store_true", help="keep the rows in docs/benchmarks/rows.json")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(available))
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(available)}")
    for name in arguments.names or available:
        print(f"== {name} ==", flush=True)
        run(name, keep=arguments.store)


def run(name: str, *, keep: bool) -> None:
    from . import rows

    module = importlib.import_module(f"benchmarks.bench_{name}")
    found = module.main()
    if found and keep:
        tables = {table: show(found) for table, show in getattr(module, "TABLES", {}).items()}
        where = getattr(module, "machine", rows.machine)()
        rows.store(name, rows.measured(f"python -m benchmarks {name}", found, tables, where))


if __name__ == "__main__":
    main()
