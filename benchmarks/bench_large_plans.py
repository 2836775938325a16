"""Plans with many types or arms, with and without repeats: processor seconds to 1%, and the gap left after 10 seconds.

Prints ours beside the rows of lmab 0.1, which are stored in this folder, and beside SARSOP where its binary is at hand
(`POMDPSOL=path`, see docs/planning.md; `POMDPSOL_LARGEST=80000` lets in files that it reads for minutes).
`python -m benchmarks.bench_large_plans store FILE [part]` stores rows.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import lmab

from .planning_instances import instance
from .rows import Rows

STORED = Path(__file__).with_name("large_plans_0_1.json")
LARGEST = int(os.environ.get("POMDPSOL_LARGEST", 10_000))  # M * A * H of the files for SARSOP: it reads them slowly
LIMIT = 10.0  # processor seconds for each plan


class Case(NamedTuple):
    kind: str
    n_types: int
    n_arms: int
    horizon: int
    seed: int = 1
    repeats: bool = True
    limit: float = LIMIT

    @property
    def name(self) -> str:
        size = f"({self.n_types},{self.n_arms},{self.horizon})"
        return f"{self.kind} {size} seed {self.seed}{'' if self.repeats else ' without repeats'}"

    @property
    def slug(self) -> str:
        once = "" if self.repeats else "-without-repeats"
        return f"{self.kind}-{self.n_types}-{self.n_arms}-{self.horizon}-{self.seed}{once}"


CASES = [
    *(Case(kind, *size) for kind in ("ordinary", "spread") for size in ((7, 50, 7), (7, 50, 20), (10, 200, 10))),
    *(Case("spread", *size) for size in ((15, 500, 10), (20, 1000, 7))),
    Case("hard", 7, 50, 7),
    Case("hard", 10, 200, 10, limit=30.0),
    *(Case("hard", *size, seed) for size in ((20, 1000, 7), (50, 100, 10)) for seed in (1, 2)),
    *(Case("hard", 15, 500, 10, seed, limit=60.0) for seed in (1, 2)),
    *(Case("hard", 30, 300, 15, seed) for seed in (1, 2)),
    *(Case("logit4", 256, 100, 10, seed) for seed in (1, 2)),
    Case("logit4", 1000, 100, 10, limit=20.0),
    Case("logit4", 64, 18, 5, repeats=False),
    Case("logit4", 64, 16, 5, 2, repeats=False),
    Case("hard", 12, 16, 5, repeats=False),
    *(Case("logit4", 256, 100, 10, seed, repeats=False) for seed in (1, 2)),
    Case("logit4", 256, 100, 20, repeats=False),
]


def main() -> Rows:
    """Our rows beside the stored ones."""
    stored = _stored()
    found: Rows = {}
    print("processor seconds to a gap of 1%, or the gap when they are over; in brackets lmab 0.1:")
    for case in CASES:
        row, old = measure(case), stored.get(case.name)
        beside = f" ({sentence(old)})" if old else ""
        row |= sarsop(case, row["lower"])
        print(f"  {case.name:42} {sentence(row)}{beside} {sarsop_sentence(row)}", flush=True)
        found |= flat(case, row)
    return found


def _stored() -> dict[str, Any]:
    return json.loads(STORED.read_text()) if STORED.exists() else {}


def flat(case: Case, row: dict[str, Any]) -> Rows:
    """The numbers of a row by the short name of its case."""
    return {f"{case.slug}/{key}": float(value) for key, value in row.items() if isinstance(value, int | float)}


def table(rows: Rows) -> str:
    """The rows beside those of 0.1, as Markdown."""
    stored = _stored()
    lines = ["| kind (M, A, H) | this version | 0.1 | SARSOP |", "|---|---|---|---|"]
    for case in CASES:
        fields = (f"{case.slug}/{key}" for key in KEYS)
        row = dict(zip(KEYS, (rows.get(field) for field in fields), strict=True))
        old = stored.get(case.name)
        lines.append(f"| {case.name} | {sentence(row)} | {sentence(old) if old else ''} | {sarsop_sentence(row)} |")
    return "\n".join(lines)


KEYS = ("seconds", "lower", "gap", "to_1%", "gap_at_10_s", "sarsop_to_1%", "sarsop_seconds", "sarsop_gap")
TABLES = {"": table}


def measure(case: Case) -> dict[str, Any]:
    """Bounds over processor time: what was proved at 1 s and at the end, and when 1% was."""
    bandit = instance(case.kind, case.n_types, case.n_arms, case.seed)
    tiny = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    lmab.plan(tiny, horizon=2, method=lmab.Certified(), repeats=case.repeats)  # kernels loaded
    trace: list[tuple[float, float, float]] = []
    start = time.process_time()

    def watch(bounds: Any) -> None:
        trace.append((time.process_time() - start, bounds.lower, bounds.upper))
        if len(trace) > 1 and trace[-2][0] <= case.limit < trace[-1][0]:
            raise KeyboardInterrupt  # as Ctrl-C would, once

    plan = lmab.plan(
        bandit,
        horizon=case.horizon,
        method=lmab.Certified(),
        time_limit=20 * case.limit,
        progress=watch,
        repeats=case.repeats,
    )
    seconds = time.process_time() - start
    reached = [used for used, lower, upper in trace if upper - lower <= 0.01 * abs(lower) * (1 + 1e-9)]
    by_ten = [point for point in trace if point[0] <= LIMIT] or trace[:1]
    return {
        "seconds": round(seconds, 3),
        "lower": round(plan.lower, 4),
        "upper": round(plan.upper, 4),
        "gap": round(plan.gap, 4),
        "to_1%": round(reached[0], 3) if reached else None,
        "gap_at_10_s": round((min(p[2] for p in by_ten) / max(p[1] for p in by_ten)) - 1, 4),
        "first": [round(number, 4) for number in trace[0]],
    }


def sentence(row: dict[str, Any]) -> str:
    if row["to_1%"] is not None:
        return f"1% in {row['to_1%']:.2f} s, at least {row['lower']:.4f}"
    return f"{row['gap_at_10_s']:.1%} at 10 s, {row['gap']:.1%} at {row['seconds']:.0f} s, at least {row['lower']:.4f}"


def sarsop(case: Case, lower: float) -> dict[str, float]:
    """SARSOP's own clock to 1% on the same problem, where `POMDPSOL` names its binary: time is part of its state."""
    binary = os.environ.get("POMDPSOL")
    if not binary or not case.repeats or case.n_types * case.n_arms * case.horizon > LARGEST:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bandit.pomdp"
        lmab.export_pomdp(instance(case.kind, case.n_types, case.n_arms, case.seed), case.horizon, path)
        return measure_sarsop(binary, path, case.limit, precision=0.009 * abs(lower))


def measure_sarsop(binary: str, path: Path, limit: float, precision: float) -> dict[str, float]:
    """Run the binary and read its table of (time, ..., lower, upper, precision); its clock begins when it has read."""
    command = [binary, "--timeout", str(limit), "--precision", str(precision), "--output", os.devnull, str(path)]
    out = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    rows = [
        [float(x) for x in line.split()] for line in out.splitlines() if re.match(r"\s*[\d.]+(\s+[-\d.e+]+){6}", line)
    ]
    if not rows:
        return {}
    found = {"sarsop_seconds": rows[-1][0], "sarsop_gap": rows[-1][4] / rows[-1][3] - 1}
    reached = [row[0] for row in rows if row[4] - row[3] <= 0.01 * abs(row[3])]
    return found | ({"sarsop_to_1%": reached[0]} if reached else {})


def sarsop_sentence(row: dict[str, Any]) -> str:
    if row.get("sarsop_to_1%") is not None:
        return f"1% in {row['sarsop_to_1%']:.2f} s"
    return f"{row['sarsop_gap']:.1%} at {row['sarsop_seconds']:.0f} s" if row.get("sarsop_gap") is not None else ""


def store(path: Path, part: str = "") -> None:
    """Write rows of the library that is imported, case after case, so that a stopped run keeps what it has."""
    rows = json.loads(path.read_text()) if path.exists() else {}
    for case in CASES:
        if part in case.name and case.name not in rows:
            rows[case.name] = measure(case)
            print(case.name, sentence(rows[case.name]), flush=True)
            path.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["store"]:
        store(Path(sys.argv[2]), *sys.argv[3:4])
    else:
        main()
