"""Run trials in processes of their own and store their rows, one line each; a stored trial is not run again."""

from __future__ import annotations

import csv
import gzip
import io
import json
import multiprocessing
import os
import platform
import signal
import subprocess
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ...checks import check_count
from ...errors import InvalidFile, LmabError
from .methods import SEED, Measurement, Trial

DONE = "done"
Result = TypeVar("Result")


@dataclass(frozen=True)
class Row:
    """One trial and its result; flat, so that any table reader can read it."""

    id: str
    kind: str
    n_types: int
    n_arms: int
    horizon: int
    n_sessions: int
    separation: float
    instance: int
    method: str
    seed: int
    status: str  # "done", or the error
    value: float | None
    value_qmdp: float | None
    stderr: float | None
    lower: float | None
    upper: float | None
    distance: float | None
    sessions_used: int | None
    seconds_learning: float | None
    seconds_planning: float | None
    note: str
    lmab: str  # versions
    numpy: str
    python: str
    finished: str  # when, UTC
    commit: str = ""  # of the code, "+" if files differ from it; "" if it is not known
    machine: str = ""  # decides the last bits: see `machine`
    error: float | None = None  # of an estimate, as the method defines it (studies of rates)

    @property
    def size(self) -> str:
        """Return arms and steps, for studies that vary both."""
        return f"A = {self.n_arms}, H = {self.horizon}"

    @property
    def done(self) -> bool:
        return self.status == DONE


_COLUMNS = {field.name for field in fields(Row)}
_NEEDED = _COLUMNS - {"commit", "machine", "error"}  # older rows do not have these


def row_of(trial: Trial, measurement: Measurement | None, status: str, finished: str) -> Row:
    """Return the row of a trial; `found` is None if the trial failed."""
    setting = asdict(trial.setting)
    blank = {field.name: None for field in fields(Measurement)} | {"note": ""}
    return Row(
        id=trial.id,
        instance=trial.instance,
        method=trial.method.name,
        seed=SEED,
        status=status,
        **setting,
        **(blank if measurement is None else asdict(measurement)),
        lmab=_version(),
        numpy=np.__version__,
        python=platform.python_version(),
        finished=finished,
        commit=_commit(),
        machine=machine(),
    )


class Lines:
    """Records in a file, one JSON object per line, in the order in which they were made.

    A record is written by a single append and flushed to the disk. A line cut short by a crash is ignored, and the next
    record starts on a line of its own. The studies of the paper and the benchmarks keep their rows so.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def append(self, record: Mapping[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(record, allow_nan=False, default=float) + "\n"
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            if _cut_short(descriptor):
                line = "\n" + line
            os.write(descriptor, line.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def records(self) -> list[dict[str, Any]]:
        """Return all whole records."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        return [record for record in map(_parsed, lines) if record is not None]


def _cut_short(descriptor: int) -> bool:
    """Return whether the file ends in the middle of a line."""
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


class RowStore:
    """The rows of a folder, in `rows.jsonl` (see `Lines`).

    A `rows.csv.gz` of an earlier run in the same folder counts too, so that a study can be extended from a table. Of
    two rows with the same id the later one counts.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.path = self.folder / "rows.jsonl"

    def append(self, row: Row) -> None:
        Lines(self.path).append(asdict(row))

    def rows(self) -> list[Row]:
        """Return all rows, the latest of each id."""
        table = self.folder / "rows.csv.gz"
        rows_by_id = {row.id: row for row in read_table(table)} if table.exists() else {}
        for record in Lines(self.path).records():
            if _NEEDED <= record.keys() <= _COLUMNS:
                rows_by_id[record["id"]] = Row(**record)
        return list(rows_by_id.values())

    def finished(self) -> set[str]:
        """Return the ids that need not be run again. A method that changed has a higher revision, and so other ids."""
        return {row.id for row in self.rows() if row.done}


def write_table(rows: Iterable[Row], path: str | os.PathLike[str]) -> None:
    """Return rows as compressed CSV, the same bytes for the same rows."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in sorted(rows, key=lambda row: row.id))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def read_table(path: str | os.PathLike[str]) -> list[Row]:
    """Return rows written by `write_table`."""
    try:
        text = gzip.decompress(Path(path).read_bytes()).decode()
        return [_from_text(record) for record in csv.DictReader(io.StringIO(text))]
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise InvalidFile(f"{os.fspath(path)}: not a table of rows ({error})") from None


def _from_text(record: dict[str, str]) -> Row:
    """Return a row from the text of its cells; an empty cell is None unless text is expected."""
    cells: dict[str, Any] = {}
    for field in fields(Row):
        text, kind = record[field.name] if field.name in _NEEDED else record.get(field.name) or "", str(field.type)
        if kind.startswith("str"):
            cells[field.name] = text
        else:
            cells[field.name] = None if text == "" else (int(text) if kind.startswith("int") else float(text))
    return Row(**cells)


@cache  # to look it up takes longer than many a trial
def _version() -> str:
    from importlib.metadata import version

    return version("lmab")


def _git(*words: str) -> str:
    folder = Path(__file__).parent.parent
    return subprocess.run(("git", *words), cwd=folder, capture_output=True, check=True, text=True).stdout.strip()


@cache
def _commit() -> str:
    """Return the commit of the code that runs, if it lies in a repository of its own."""
    try:
        _git("ls-files", "--error-unmatch", __file__)
        commit, changed = _git("rev-parse", "--short=10", "HEAD"), _git("status", "--porcelain", "-uno", ".")
    except (OSError, subprocess.CalledProcessError):
        return ""
    return commit + ("+" if changed else "")


@cache
def machine() -> str:
    """Return the processor and the libraries that decide the last bits of a row."""
    from importlib.metadata import version

    import scipy

    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        told = dict(reversed([[part.strip() for part in line.partition(":")[::2]] for line in lines]))
        processor = " ".join(told[name] for name in ("model name", "cpu family", "model", "stepping"))
    except (OSError, KeyError):
        processor = platform.processor() or platform.machine()
    blas = [np.show_config(mode="dicts"), scipy.show_config(mode="dicts")]
    versions = [each["Build Dependencies"]["blas"].get("version", "") for each in blas]
    return f"{processor}; BLAS {' and '.join(versions)}; SciPy {scipy.__version__}; Numba {version('numba')}"


_THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class WorkerDied(LmabError):
    """A process was killed from outside; the rows that were finished are kept."""


def perform(trial: Trial) -> Row:
    """Run one trial. If it fails, its row has the error, and the next run tries it again."""
    measurement, status = None, DONE
    try:
        measurement = trial.method.measure(trial.setting, trial.setting.draw(trial.instance), trial.instance)
    except Exception as problem:  # whatever it is, the other trials go on
        where = traceback.extract_tb(problem.__traceback__)[-1]
        status = f"{type(problem).__name__}: {problem} ({os.path.basename(where.filename)}:{where.lineno})"
    return row_of(trial, measurement, status, datetime.now(UTC).isoformat(timespec="seconds"))


def pending(trials: Sequence[Trial], store: RowStore) -> list[Trial]:
    """Return the trials that the store lacks, each once, instance by instance: an early stop is then balanced."""
    finished = store.finished()
    unique = {trial.id: trial for trial in trials if trial.id not in finished}
    return sorted(unique.values(), key=lambda trial: trial.instance)


def run_all(
    trials: Sequence[Trial],
    store: RowStore,
    *,
    jobs: int = 1,
    executor: Executor | None = None,
    progress: Callable[[Row], None] | None = None,
) -> list[Row]:
    """Run all pending trials, append each row as it finishes, and return the new rows.

    Args:
        trials: all trials; if the store holds one, it is skipped.
        store: the store of the rows.
        jobs: processes, of one thread each: the rows depend neither on it nor on the number of cores, except for plans
            that stop at their time limit.
        executor: the executor that runs the trials instead, `jobs` at a time; only this process writes to the store.
        progress: called with each row after it was stored.
    """
    rows = []
    left = [(trial,) for trial in pending(trials, store)]
    for row in performed(perform, left, jobs=check_count("jobs", jobs), executor=executor):
        store.append(row)
        rows.append(row)
        if progress is not None:
            progress(row)
    return rows


@dataclass(frozen=True)
class Again:
    """A stored row, and the row of the same trial here and now."""

    stored: Row
    found: Row

    @property
    def method(self) -> str:
        """Return the method with its revision."""
        return self.found.id.rpartition("/")[2]

    @property
    def same_machine(self) -> bool:
        """Return whether the last bits must agree too: other machines round differently."""
        return self.stored.machine == self.found.machine

    @property
    def difference(self) -> float:
        """Return the largest relative difference of their numbers: 0 if all bits agree, infinite if one has none."""
        if self.found.status != self.stored.status:
            return np.inf
        pairs = [(getattr(self.stored, name), getattr(self.found, name)) for name in _NUMBERS]
        return max(_relative(one, other) for one, other in pairs)


_NUMBERS = ("value", "value_qmdp", "stderr", "lower", "upper", "distance", "sessions_used", "error")
CLOSE = 1e-6  # relative difference of rows that differ by rounding alone


def _relative(one: float | None, other: float | None) -> float:
    if one is None or other is None:
        return 0.0 if one is other else np.inf
    return 0.0 if one == other else abs(one - other) / max(abs(one), abs(other))


def drawn(trials: Sequence[Trial], rows: Sequence[Row], n: int) -> list[Trial]:
    """Return at most `n` of the trials that have rows; the same `n` draws the same ones.

    Plans that were stopped by their time limit are left out: they depend on the speed of the machine.
    """
    stored = {row.id for row in rows if row.done and row.note != "time limit"}
    known = {trial.id: trial for trial in trials if trial.id in stored}
    order = np.random.default_rng(0).permutation(len(known))[: check_count("n", n)]
    names = sorted(known)
    return [known[names[place]] for place in order.tolist()]


def repeated(trials: Sequence[Trial], rows: Sequence[Row], *, jobs: int = 1) -> list[Again]:
    """Run trials again that have rows, in processes of one thread, and put the new rows beside the old."""
    stored = {row.id: row for row in rows}
    return [Again(stored[row.id], row) for row in performed(perform, [(trial,) for trial in trials], jobs=jobs)]


def unlike(pairs: Iterable[Again]) -> list[str]:
    """Return the methods with rows that the code does not reproduce: they need a higher revision.

    Every row that this machine made must agree to the bit. Of the rows of other machines at least half must be
    `CLOSE`: if the likelihood is flat, EM makes a difference of rounding visible (133 of the 2,200 rows of the study
    `naive` that two processors made), while a change of a method moves nearly all of its rows.
    """
    methods: dict[str, list[Again]] = {}
    for pair in pairs:
        methods.setdefault(pair.method, []).append(pair)
    wrong = []
    for method, some in methods.items():
        here = [pair for pair in some if pair.same_machine]
        others = [pair for pair in some if not pair.same_machine]
        n_close = sum(pair.difference <= CLOSE for pair in others)
        if any(pair.difference > 0 for pair in here) or 2 * n_close < len(others):
            wrong.append(method)
    return wrong


def performed(
    run: Callable[..., Result], calls: Sequence[tuple[Any, ...]], *, jobs: int | None, executor: Executor | None = None
) -> Iterator[Result]:
    """Yield the result of `run` for each tuple of arguments as it finishes; without `jobs` in this process."""
    if jobs is None:
        yield from (run(*call) for call in calls)
        return
    if executor is not None:
        try:
            yield from _in_order_of_completion(executor, run, calls, 2 * jobs)
        except CancelledError:
            raise WorkerDied("the cluster was lost; run the same command again to go on from here") from None
        return
    processes = multiprocessing.get_context("spawn")
    with _one_thread_per_process():
        pool = ProcessPoolExecutor(jobs, mp_context=processes, initializer=_prepare_worker)
        try:
            yield from _in_order_of_completion(pool, run, calls, 2 * jobs)
        except BrokenProcessPool:
            raise WorkerDied("a worker process was killed; run the same command again to go on from here") from None
        except BaseException:  # Ctrl-C among them: running trials are lost in any case, so do not wait
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _in_order_of_completion(
    pool: Executor, run: Callable[..., Result], calls: Sequence[tuple[Any, ...]], ahead: int
) -> Iterator[Result]:
    """Yield results as they finish, with at most `ahead` calls submitted: a stop need not wait for a queue."""
    left = iter(calls)
    active: set[Future[Result]] = set()
    while True:
        for call in left:
            active.add(pool.submit(run, *call))
            if len(active) >= ahead:
                break
        if not active:
            return
        finished, active = wait(active, return_when=FIRST_COMPLETED)
        for future in finished:
            yield future.result()


def _prepare_worker() -> None:
    """Leave Ctrl-C to the parent, and end when the parent is gone, however it went."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


@contextmanager
def _one_thread_per_process() -> Iterator[None]:
    """Have workers, which inherit the environment, use one thread: linear algebra rounds differently on two."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
