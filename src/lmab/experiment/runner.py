"""run_all: run trials in processes of their own and store their rows; a stored trial is not run again."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from datetime import UTC, datetime

from ..checks import check_count
from ..errors import LmabError
from .setting import Trial
from .store import DONE, Row, Store, row_of

_THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class WorkerDied(LmabError):
    """A process was killed from outside; the rows that were finished are kept."""


def perform(trial: Trial) -> Row:
    """Do one trial. One that fails is a row too, which says why; it is tried again the next time."""
    found, status = None, DONE
    try:
        found = trial.method.measure(trial.setting, trial.setting.draw(trial.instance), trial.instance)
    except Exception as problem:  # whatever it is, the other trials go on
        where = traceback.extract_tb(problem.__traceback__)[-1]
        status = f"{type(problem).__name__}: {problem} ({os.path.basename(where.filename)}:{where.lineno})"
    return row_of(trial, found, status, datetime.now(UTC).isoformat(timespec="seconds"))


def pending(trials: Sequence[Trial], store: Store) -> list[Trial]:
    """The trials, each once, that the store does not have; instance by instance, so that an early stop is balanced."""
    finished = store.finished()
    unique = {trial.id: trial for trial in trials if trial.id not in finished}
    return sorted(unique.values(), key=lambda trial: trial.instance)


def run_all(
    trials: Sequence[Trial],
    store: Store,
    *,
    jobs: int = 1,
    executor: Executor | None = None,
    progress: Callable[[Row], None] | None = None,
) -> list[Row]:
    """Do what is pending, append each row as it finishes, and return the new rows.

    Args:
        trials: what is wanted; those that the store holds are left out.
        store: where rows go.
        jobs: processes, of one thread each: the rows depend neither on it nor on the number of cores, except for plans
            that stop at their time limit.
        executor: where trials run instead, `jobs` of them at a time; only this process writes to the store.
        progress: called with each row after it was stored.
    """
    rows = []
    for row in _performed(pending(trials, store), check_count("jobs", jobs), executor):
        store.append(row)
        rows.append(row)
        if progress is not None:
            progress(row)
    return rows


def _performed(trials: Sequence[Trial], jobs: int, executor: Executor | None) -> Iterator[Row]:
    if executor is not None:
        try:
            yield from _in_order_of_completion(executor, trials, 2 * jobs)
        except CancelledError:
            raise WorkerDied("the cluster was lost; run the same command again to go on from here") from None
        return
    type_ = multiprocessing.get_context("spawn")
    with _one_thread_per_process():
        pool = ProcessPoolExecutor(jobs, mp_context=type_, initializer=_prepare_worker)
        try:
            yield from _in_order_of_completion(pool, trials, 2 * jobs)
        except BrokenProcessPool:
            raise WorkerDied("a worker process was killed; run the same command again to go on from here") from None
        except BaseException:  # Ctrl-C among them: what is in flight is lost in any case, so do not wait for it
            for worker in multiprocessing.active_children():
                worker.terminate()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _in_order_of_completion(pool: Executor, trials: Sequence[Trial], ahead: int) -> Iterator[Row]:
    """Rows as they finish, with at most `ahead` trials handed out: a stop need not wait for a long queue."""
    left = iter(trials)
    active: set[Future[Row]] = set()
    while True:
        for trial in left:
            active.add(pool.submit(perform, trial))
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
