"""Processor seconds of `import lmab` in a fresh process, on top of NumPy and SciPy."""

from __future__ import annotations

import subprocess
import sys

from .rows import Rows

PROGRAM = """
import time, numpy, scipy
start = time.process_time()
import lmab
print(time.process_time() - start)
"""


def main() -> Rows:
    runs = [
        subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True) for _ in range(5)
    ]
    seconds = min(float(run.stdout) for run in runs)
    print(f"import lmab: {seconds:.2f} s of processor time")
    return {"seconds": seconds}


if __name__ == "__main__":
    main()
