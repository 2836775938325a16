"""The query engine (DuckDB): connections that see one folder only, quoted names, and errors without SQL."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from .._shapes import Array, Shaped
from ..errors import InvalidFile

NAN = "'nan'::DOUBLE"
#: Memory of an engine that reads files into memory, at least and per byte of the files: 5,000,000 rows of text
#: (123 MB) take 750 MB without a limit, and 5% more processor time but 200 MB less with it.
_LEAST_MEMORY, _PER_BYTE = 500 << 20, 4


def quoted(name: str) -> str:
    """Return an identifier of the engine.

    Examples:
        >>> quoted('a "b"; drop')
        '"a ""b""; drop"'
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text constant of the engine."""
    return "'" + text.replace("'", "''") + "'"


def available_threads() -> int:
    """Return the number of threads that the environment and the process allow."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(limit)) if limit.isdigit() and int(limit) > 0 else cores


def machine_memory() -> int:
    """Return the bytes of memory of this machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 << 30


class Engine:
    """A connection that reads and writes nothing outside one folder, in which larger results are spilled.

    Args:
        folder: the folder, which holds links to the files to read.
        files: files outside the folder that the engine may read.
        memory: bytes that the engine may use; None: half of the machine's memory.
        on_disk: whether tables are kept in a file in the folder.
    """

    def __init__(
        self, folder: Path, *, files: Sequence[Path] = (), memory: int | None = None, on_disk: bool = False
    ) -> None:  # fmt: skip
        import duckdb

        self.folder = folder
        self.on_disk, self.statements = on_disk, list[str]()  # statements that made tables and views
        self._links = {path: self._linked(path, number) for number, path in enumerate(files)}
        self._connection = duckdb.connect(str(folder / "tables.db") if on_disk else ":memory:")
        self._errors: tuple[type[BaseException], ...] = (duckdb.Error,)
        names = [literal(str(link)) for link in self._links.values()]
        settings = {
            "threads": str(available_threads()),
            "memory_limit": literal(f"{(memory or machine_memory() // 2) >> 10}KiB"),
            "temp_directory": literal(str(folder / "spill")),
            "allowed_directories": f"[{literal(str(folder))}]",
            "allowed_paths": f"[{', '.join(names)}]",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            # Statistics of Parquet files ignore NaN, from which the engine concludes that isnan(x) is false.
            "disabled_optimizers": "'statistics_propagation,filter_pushdown'",
            "enable_progress_bar": "false",
            "python_enable_replacements": "false",
            "enable_external_access": "false",
            "lock_configuration": "true",
        }
        for name, value in settings.items():
            self._connection.execute(f"SET {name} = {value}")

    def _linked(self, path: Path, number: int) -> Path:
        """Return a link to a file whose name has no wildcards."""
        link = self.folder / f"file{number}{'.gz' if path.suffix.lower() == '.gz' else '.file'}"
        link.symlink_to(path.resolve())
        return link

    def name_of(self, path: Path) -> Path:
        """Return the name under which the engine sees a file."""
        return self._links[path]

    def register(self, name: str, frame: Any) -> None:
        """Make a data frame, a dictionary of arrays, or an Arrow stream known under a name."""
        self._connection.register(name, frame)

    def run(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """Run a statement; Ctrl-C interrupts it."""
        if sql.startswith(("CREATE", "INSERT")):
            self.statements.append(sql)
        try:
            return self._connection.execute(sql, list(parameters)) if parameters else self._connection.execute(sql)
        except RuntimeError as error:
            if "interrupt" in str(error).lower():
                raise KeyboardInterrupt from None
            raise

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        found: list[tuple[Any, ...]] = self.run(sql, parameters).fetchall()
        return found

    def arrays(self, sql: str) -> dict[str, Shaped[Array, "n"]]:
        """Return the columns of a query; a missing number is NaN and a missing text None."""
        found: dict[str, Shaped[Array, "n"]] = {}
        for name, column in self.run(sql).fetchnumpy().items():
            if isinstance(column, np.ma.MaskedArray):
                column = column.filled(None if column.dtype.kind == "O" else np.nan)
            found[name] = column
        return found

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def is_engine_error(error: BaseException) -> bool:
    """Return whether the engine raised an error."""
    return type(error).__module__.partition(".")[0] in ("duckdb", "_duckdb")


@contextmanager
def temporary_engine(files: Sequence[Path] = ()) -> Iterator[Engine]:
    """Yield an engine in memory that may read some files, and whose folder is removed at the end."""
    sizes = [path.stat().st_size for path in files if path.is_file()]
    memory = max(_LEAST_MEMORY, _PER_BYTE * sum(sizes)) if sizes else None
    with tempfile.TemporaryDirectory(prefix="lmab-") as name:
        engine = Engine(Path(name), files=files, memory=memory)
        try:
            yield engine
        finally:
            engine.close()


@contextmanager
def writable(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary file beside `path`, which replaces it when everything was written."""
    temporary = Path(f"{os.fspath(path)}.partial")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise InvalidFile(f"{os.fspath(path)}: cannot write here: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)
