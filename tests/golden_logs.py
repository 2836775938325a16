"""Golden logs: files of many forms, stored with the arrays that reading them gave.

`python tests/golden_logs.py` draws the inputs anew and stores them with today's results: run it only when a change of
the results is intended. The test beside it reads the stored inputs and compares every array to the bit.
"""

from __future__ import annotations

import base64
import csv
import gzip
import io
import itertools
import json
import shutil
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import lmab

FILE = Path(__file__).parent / "golden" / "logs" / "logs.json.gz"
FOLDER = FILE.parent / "packed"  # a packed log
FOLDER_ARRAYS = FILE.parent / "packed.json"  # its arrays
N_GENERATED = 200
_DELIMITERS = {"csv": ",", "semicolon.csv": ";", "tsv": "\t"}
_KINDS = ("csv", "semicolon.csv", "tsv", "jsonl", "csv.gz", "jsonl.gz", "parquet")
_WORDS = ("tea", "Milk", "café", "Ærø", "a b", 'the "best"', "x,y", "z;z", "日本", "_", "007", "10", "9")

Rows = list[dict[str, Any]]


def result(path: Any, how: dict[str, Any], *, events: bool) -> dict[str, Any]:
    """Return the arrays of the log that `path` holds, as JSON; for a refused log, the class of the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lmab.errors.LmabWarning)  # broken logs warn as well
        try:
            log = lmab.Sessions.from_events(path, **how) if events else lmab.Sessions.read(path, **how)
        except lmab.errors.LmabError as error:
            return {"error": type(error).__name__}
    return arrays(log)


def arrays(log: lmab.Sessions) -> dict[str, Any]:
    """Return every array of a log with its type, as JSON; numbers as hexadecimal text, so that no bit is lost."""
    columns = {
        name: getattr(log, name) for name in ("arms", "rewards", "offsets", "propensities", "persons", "endings")
    }
    columns |= {f"feature {name}": log.features[name] for name in (log.features.columns if log.features else ())}
    return {
        "n_arms": log.n_arms,
        "arm_labels": None if log.arm_labels is None else list(log.arm_labels),
        "fingerprint": repr(lmab.data.fingerprint.Fingerprint.of(log)),
    } | {name: None if column is None else _listed(column) for name, column in columns.items()}


def _listed(column: np.ndarray) -> list[Any]:
    values = [value.hex() if isinstance(value, float) else value for value in column.tolist()]
    return [str(column.dtype), values]


# --- drawing inputs ---


def _ids(rng: np.random.Generator, n: int) -> list[Any]:
    """Return n distinct ids of one kind: integers of any size, text, digits as text, or times."""
    kind = rng.integers(6)
    if kind == 0:
        return rng.permutation(n).tolist()
    if kind == 1:
        return [int(i) for i in rng.choice(10**6, n, replace=False) - 500_000]
    if kind == 2:
        return [2**53 + int(i) for i in rng.permutation(3 * n)[:n]]
    if kind == 3:
        return [f"s{i}" for i in rng.permutation(n)]
    if kind == 4:
        return [f"{i:03d}" for i in rng.permutation(n)]
    return [f"{_WORDS[i % len(_WORDS)]}-{i}" for i in rng.permutation(n)]


def _arms(rng: np.random.Generator) -> list[Any]:
    n = int(rng.integers(1, 6))
    kind = rng.integers(4)
    if kind == 0:
        return list(range(n))
    if kind == 1:
        return sorted(int(i) for i in rng.choice(1000, n, replace=False))
    return [str(word) for word in rng.choice(_WORDS, n, replace=False)]


def _rewards(rng: np.random.Generator, n: int) -> list[Any]:
    kind = rng.integers(5)
    if kind == 0:
        return rng.integers(2, size=n).tolist()
    if kind == 1:
        return rng.integers(1, 6, size=n).tolist()
    if kind == 2:
        return [round(float(x), 3) for x in rng.normal(size=n)]
    if kind == 3:
        return [bool(x) for x in rng.integers(2, size=n)]
    return [float(x) for x in rng.exponential(size=n)]


def _feature(rng: np.random.Generator, n: int) -> list[Any]:
    kind = rng.integers(4)
    if kind == 0:
        values: list[Any] = [round(float(x), 2) for x in rng.normal(40, 10, n)]
    elif kind == 1:
        values = rng.integers(5, size=n).tolist()
    elif kind == 2:
        values = [str(word) for word in rng.choice(_WORDS, n)]
    else:
        values = [bool(x) for x in rng.integers(2, size=n)]
    return [None if rng.random() < 0.1 else value for value in values]


def _session_rows(rng: np.random.Generator) -> tuple[Rows, dict[str, Any]]:
    """Return the rows of a log with sessions, and how it is read."""
    n = int(rng.integers(1, 15))
    ids, arms = _ids(rng, n), _arms(rng)
    lengths = rng.integers(1, 7, n)
    rewards = iter(_rewards(rng, int(lengths.sum())))
    has_step, has_own, has_persons, has_ended = (bool(x) for x in rng.random(4) < (0.7, 0.3, 0.3, 0.2))
    times = bool(rng.random() < 0.3)
    gaps = rng.random() < 0.2  # rewards that are missing
    names = [f"f{k}" for k in range(int(rng.choice([0, 0, 1, 2])))]
    features = {name: _feature(rng, n) for name in names}
    persons = rng.choice(np.array(_ids(rng, max(n // 2, 1)), object), n).tolist()
    rows: Rows = []
    for session in range(n):
        for step in range(lengths[session]):
            row: Rows = [{"visit": ids[session], "item": arms[int(rng.integers(len(arms)))]}]
            row[0]["paid"] = next(rewards)
            if gaps and rng.random() < 0.15:
                row[0]["paid"] = None
            if has_step:
                tied = step - int(step > 0 and rng.random() < 0.1)
                row[0]["place"] = f"2024-03-{1 + session % 28:02d} 10:{tied:02d}:00" if times else tied
            if has_own:
                row[0]["chance"] = round(float(rng.uniform(0.05, 1)), 4)
            if has_persons:
                row[0]["who"] = persons[session]
            if has_ended:
                row[0]["end"] = "left" if session % 2 else "went on"
            row[0] |= {name: features[name][session] for name in names}
            rows += row
    if rng.random() < 0.5:
        rows = [rows[k] for k in rng.permutation(len(rows))]
    how: dict[str, Any] = {"session": "visit", "arm": "item", "reward": "paid"}
    how |= {"step": "place"} if has_step else {}
    how |= {"propensity": "chance"} if has_own else {}
    how |= {"person": "who"} if has_persons else {}
    how |= {"ended": "end"} if has_ended else {}
    how |= {"features": names} if names else {}
    if gaps:
        how["missing"] = str(rng.choice(["drop", "zero", "error"], p=[0.5, 0.4, 0.1]))
    if rng.random() < 0.2:
        how["at_most"] = int(rng.integers(1, 5))
    if not has_ended and rng.random() < 0.2:
        how["limit"] = int(lengths.max())
    return rows, how


def _event_rows(rng: np.random.Generator) -> tuple[Rows, dict[str, Any]]:
    """Return the rows of a log of events, and how it is read."""
    n = int(rng.integers(1, 60))
    people, arms = _ids(rng, int(rng.integers(1, 8))), _arms(rng)
    kind = rng.integers(3)
    seconds = rng.integers(0, 40_000, n)
    times: list[Any] = seconds.tolist()
    if kind == 1:
        times = [int(s) + 1_700_000_000_000 for s in 1000 * seconds]  # milliseconds
    elif kind == 2:
        times = [str(np.datetime64("2024-05-01T00:00:00") + int(s)).replace("T", " ") for s in seconds]
    rewards = _rewards(rng, n)
    rows = [
        {"who": people[int(rng.integers(len(people)))], "when": times[k], "item": arms[int(rng.integers(len(arms)))]}
        | {"paid": rewards[k]}
        for k in range(n)
    ]
    how: dict[str, Any] = {"person": "who", "time": "when", "arm": "item", "reward": "paid"}
    how["gap"] = str(rng.choice(["30m", "1h", "90s"]))
    return rows, how


def _text(kind: str, rows: Rows) -> bytes:
    """Return the contents of a file of the kind."""
    if kind.startswith("jsonl"):
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    elif kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet

        sink = io.BytesIO()
        pa.parquet.write_table(pa.Table.from_pylist(rows), sink)
        content = sink.getvalue()
    else:
        out = io.StringIO()
        writer = csv.DictWriter(out, list(rows[0]), delimiter=_DELIMITERS.get(kind, ","), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        content = out.getvalue().encode()
    return gzip.compress(content, mtime=0) if kind.endswith(".gz") else content


def _case(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng([seed, 47])
    events = bool(rng.random() < 0.25)
    rows, how = _event_rows(rng) if events else _session_rows(rng)
    kind = str(rng.choice(_KINDS))
    n_files = min(int(rng.choice([1, 1, 1, 2, 3])), len(rows))
    bounds = np.linspace(0, len(rows), n_files + 1).astype(int)
    parts = [rows[low:high] for low, high in itertools.pairwise(bounds)]
    files = {f"log{k}.{kind}": base64.b64encode(_text(kind, part)).decode() for k, part in enumerate(parts)}
    return {"files": files, "how": how, "events": events}


def _example_cases(folder: Path) -> list[dict[str, Any]]:
    """Return the six example logs with few people, read as their own options ask."""
    import sys

    sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
    from six_logs import LOGS

    cases = []
    for name, log in LOGS.items():
        place = folder / log.file
        log.make(place, np.random.default_rng(5), 40)
        options = dict(zip((o.removeprefix("--") for o in log.columns[::2]), log.columns[1::2], strict=True))
        options = {o.replace("-", "_"): int(v) if o == "at-most" else v for o, v in options.items()}
        files = sorted(place.iterdir()) if place.is_dir() else [place]
        stored = {f"{name}-{file.name}": base64.b64encode(file.read_bytes()).decode() for file in files}
        cases.append({"files": stored, "how": options, "events": "time" in options})
    return cases


def _packed_case(folder: Path) -> Path:
    """Pack a shuffled log with propensities, features, persons and ends, and return the packed folder."""
    rng = np.random.default_rng(49)
    rows: Rows = []
    for session in range(60):
        known = {"who": f"p{session % 23}", "end": "left" if session % 3 else "went on", "age": 20 + session % 7}
        known |= {"town": _WORDS[session % 5]}
        for step in range(int(rng.integers(1, 6))):
            row = {"visit": f"s{session}", "place": step, "item": _WORDS[int(rng.integers(6))]}
            rows.append(row | {"paid": int(rng.integers(3)) / 2, "chance": 0.25} | known)
    path = folder / "packed.csv"
    path.write_bytes(_text("csv", [rows[k] for k in rng.permutation(len(rows))]))
    columns = {"session": "visit", "step": "place", "arm": "item", "reward": "paid", "propensity": "chance"}
    known_columns = {"person": "who", "ended": "end", "features": ["age", "town"]}
    lmab.pack(path, folder / "packed", **columns, **known_columns)
    return folder / "packed"


def written(case: dict[str, Any], folder: Path) -> list[Path]:
    """Write the files of a case into a folder and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in case["files"]]
    for path, content in zip(paths, case["files"].values(), strict=True):
        path.write_bytes(base64.b64decode(content))
    return paths


def stored() -> list[dict[str, Any]]:
    """Return the stored cases."""
    with gzip.open(FILE, "rt", encoding="utf-8") as file:
        cases: list[dict[str, Any]] = json.load(file)
    return cases


def store(cases: Sequence[dict[str, Any]]) -> None:
    """Store the cases; the file is the same for the same cases."""
    text = "\n".join(["[", ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases), "]"])
    FILE.write_bytes(gzip.compress(text.encode(), mtime=0))


def main() -> None:
    """Draw the cases anew and store them with today's results."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases = [_case(seed) for seed in range(N_GENERATED)] + _example_cases(folder)
        for number, case in enumerate(cases):
            paths = written(case, folder / str(number))
            case["result"] = result(paths, case["how"], events=case["events"])
        log = _packed_case(folder)
        shutil.rmtree(FOLDER, ignore_errors=True)
        shutil.copytree(log, FOLDER)
    FOLDER_ARRAYS.write_text(json.dumps(arrays(lmab.Packed(FOLDER).load())) + "\n")
    store(cases)
    refused = sum("error" in case["result"] for case in cases)
    print(f"{len(cases)} logs stored, {refused} of them refused: {FILE} ({FILE.stat().st_size:,} bytes)")


if __name__ == "__main__":
    main()
