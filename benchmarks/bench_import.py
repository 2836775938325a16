"""Processor seconds of a fresh process: NumPy alone, `import lmab`, `lmab --help`, a policy that acts, a plan."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import lmab

from .rows import Rows

IMPORT = """
import time, numpy, scipy
start = time.process_time()
import lmab
print(time.process_time() - start)
"""

PLAN = """
import time, numpy, lmab
means = numpy.random.default_rng(0).uniform(0.1, 0.9, (5, 20))
lmab.plan(lmab.LatentBandit.bernoulli(numpy.full(5, 0.2), means), horizon=5)
print(time.process_time())
"""

NUMBA = """
import time, numba
@numba.njit(cache=True)
def double(x):
    return 2.0 * x
double(1.0)
print(time.process_time())
"""

NUMPY = """
import time, numpy
print(time.process_time())
"""

WHOLE = """
import time, lmab
print(time.process_time())
"""

HELP = """
import contextlib, io, sys, time
sys.argv = ["lmab", "--help"]
from lmab.cli import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    main()
print(time.process_time())
"""

ACT = """
import sys, time, lmab
policy = lmab.load(sys.argv[1]).policy
policy.act(policy.start())
print(time.process_time())
"""

REPEATS = 6  # the first one may compile, and fills the cache


def main() -> Rows:
    programs = {"seconds": IMPORT, "plan": PLAN, "numba": NUMBA}
    programs |= {"numpy": NUMPY, "whole": WHOLE, "help": HELP, "act": ACT}
    seconds = dict.fromkeys(programs, float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        policy = Path(folder) / "policy.lmab"
        log = lmab.simulate(lmab.random_bandit(3, 20, rng=0), lmab.Uniform(20), n_sessions=300, horizon=5, rng=0)
        lmab.plan(lmab.fit(log, n_types=3, check=False, rng=0), horizon=5, anyway=True).save(policy)
        for name, program in programs.items():
            (Path(folder) / f"start_{name}.py").write_text(program)  # Numba keeps its cache beside the file
        for _ in range(REPEATS):
            for name in programs:
                seconds[name] = min(seconds[name], _run(Path(folder) / f"start_{name}.py", policy))
    print(f"a process that imports NumPy: {seconds['numpy']:.2f} s, one that imports lmab: {seconds['whole']:.2f} s")
    print(f"lmab --help: {seconds['help']:.2f} s; a policy is loaded and acts: {seconds['act']:.2f} s")
    print(f"import lmab after NumPy and SciPy: {seconds['seconds']:.2f} s of processor time")
    print(f"a process that imports lmab and makes a small plan: {seconds['plan']:.2f} s")
    print(f"a process that imports Numba and calls one cached function of one line: {seconds['numba']:.2f} s")
    print(f"ratio of these two: {seconds['plan'] / seconds['numba']:.2f}")
    return dict(seconds)


def _run(program: Path, policy: Path) -> float:
    return float(subprocess.run([sys.executable, program, policy], capture_output=True, text=True, check=True).stdout)


if __name__ == "__main__":
    main()
