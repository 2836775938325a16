"""1e9 sessions of 7 steps, simulated straight into a pack and fitted with 8 types, in this process.

`python -m benchmarks.study_billion FOLDER [SESSIONS]` needs about 25 GB of disk for 1e9 sessions and prints seconds and
memory.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from .pack_work import grow


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    n_sessions = int(float(sys.argv[2])) if len(sys.argv) > 2 else 10**9
    print(json.dumps(grow(folder, n_sessions), indent=1))


if __name__ == "__main__":
    main()
