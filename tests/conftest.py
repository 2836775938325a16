"""Shape annotations of the package are executed in every test; all chance comes from `LMAB_SEED` (see `seeds.py`)."""

from __future__ import annotations

import functools
import gc
import importlib
import inspect
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# Before NumPy comes in: workers that share two cores must not each start two threads for every small matrix.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import hypothesis
import kernels
import numpy as np
import pytest
import shapes
import times
from seeds import SEED, generator

SOURCE = Path(__file__).parent.parent / "src" / "lmab"
# Numba compiles the bare function, and typer reads the signatures of the commands.
UNCHECKED = ("lmab._kernel.compiled", "lmab.cli")


# A program in the background of a shell ignores Ctrl-C, and so would the tests of Ctrl-C and the programs they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# By their files: to import a package here would be to import its modules before anything is checked.
_folders = (SOURCE, Path(__file__).parent / "reference")
_paths = [path.relative_to(top.parent) for top in _folders for path in top.rglob("*.py") if path.name != "__init__.py"]
_names = (".".join(path.with_suffix("").parts) for path in _paths)
shapes.install([name for name in _names if not name.startswith(UNCHECKED)])

hypothesis.settings.register_profile(
    "lmab", deadline=None, derandomize=True, max_examples=50, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("lmab")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help=f"leave out the tests that take {times.QUICK} s or more")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a worker process the folder that all workers of this run share."""
    node.workerinput["kernels"] = kernels.meeting_place()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the kernels and set the clocks before any test file is imported, because some of them plan."""
    folder = getattr(session.config, "workerinput", {}).get("kernels")
    if folder:
        kernels.together(Path(folder), kernels.JOBS)
    _count_processor_time()


def _count_processor_time() -> None:
    """Let time limits of plans and assessments count processor time, so that a busy machine changes no result."""
    from lmab.evaluation import replanning
    from lmab.planning import exact, problem
    from lmab.testing import planners

    for module in (exact, planners, problem):
        module.time = SimpleNamespace(perf_counter=time.process_time)
    replanning.perf_counter = time.process_time


def pytest_report_header() -> str:
    return f"LMAB_SEED={SEED}" + (" (the ordinary draws)" if SEED == 0 else "")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Under another seed, Hypothesis draws other examples; the longest files start first."""
    for item in items if SEED else ():
        if isinstance(item, pytest.Function) and getattr(item.obj, "is_hypothesis_test", False):
            hypothesis.seed(SEED)(item.obj)
    known = times.read()
    if config.getoption("--quick"):
        long = [known.get(_function(item), 0.0) >= times.QUICK for item in items]
        config.hook.pytest_deselected(items=[item for item, is_long in zip(items, long, strict=True) if is_long])
        items[:] = [item for item, is_long in zip(items, long, strict=True) if not is_long]
    if config.args_source.name != "ARGS":  # files that were named run in the order given
        by_file: dict[str, list[str]] = {}
        for item in items:
            by_file.setdefault(str(item.path), []).append(_function(item))
        place = {file: number for number, file in enumerate(times.longest_first(by_file, known))}
        items.sort(key=lambda item: place[str(item.path)])


def pytest_collection_finish() -> None:
    """Modules and tests stay: the collector need not look at them again and again, nor as often as it does."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _function(item: pytest.Item) -> str:
    return getattr(item, "originalname", item.name)


@pytest.fixture(scope="session", autouse=True)
def _share_of_threads() -> None:
    """Processes that share the cores take as many threads as are left to each, or they only wait for each other."""
    from lmab import parallel

    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    share = max(parallel._available() // workers, 1)
    parallel._available = lambda: share


@pytest.fixture(scope="session")
def postgres():
    """Start a PostgreSQL server on the loopback address; every test gets a database of its own."""
    from benchmarks import postgres_server

    why_not = postgres_server.missing()
    if why_not is not None:
        pytest.skip(why_not)
    with postgres_server.running(hasty=True) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def event_store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of an empty store of the service, of each kind."""
    if request.param == "sqlite":
        return str(tmp_path / "events.db")
    import serving

    return serving.empty_database(request.getfixturevalue("postgres").address)


@pytest.fixture
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Assessments of the command line from few models, for tests that do not ask how wide their intervals are."""
    from lmab.evaluation.assess import assess

    for command in ("evaluate", "fit", "report"):
        monkeypatch.setattr(f"lmab.cli.{command}.assess", functools.partial(assess, n_draws=20))


@pytest.fixture
def light_work(few_draws: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the searches and checks of fits and assessments, for tests that ask only whether code runs."""
    import lmab

    briefly = lmab.EM(restarts=2, tolerance=1e-3, sweeps=8)
    monkeypatch.setitem(inspect.unwrap(lmab.fit).__kwdefaults__, "method", briefly)
    for method in ("fit._METHOD", "cross_validation._METHOD"):
        _set(monkeypatch, f"lmab.estimation.{method}", briefly)
    _set(monkeypatch, "lmab.evaluation.assess._ONE_MORE_METHOD", briefly)
    _set(monkeypatch, "lmab.evaluation.assess._START", lmab.EM(restarts=2, tolerance=1e-4, prior=1.5))
    for module in ("fit", "cross_validation"):
        _set(monkeypatch, f"lmab.estimation.{module}._ENOUGH", 1)  # one fold for logs of any size
    _set(monkeypatch, "lmab.estimation.cross_validation._COMPARED", 0)
    _set(monkeypatch, "lmab.estimation.exposure_selection._SWEEPS", 6)
    _set(monkeypatch, "lmab.estimation.exposure_selection._BURN", 2)


def _set(monkeypatch: pytest.MonkeyPatch, name: str, value: Any) -> None:
    """Set an attribute of a module, even if its package has a function of the same name."""
    module, _, attribute = name.rpartition(".")
    monkeypatch.setattr(importlib.import_module(module), attribute, value)


@pytest.fixture
def rng() -> np.random.Generator:
    return generator(20221012)


@pytest.fixture
def seed() -> int:
    """Return `LMAB_SEED`, for a test whose draws are made by another program or by an environment."""
    return SEED
