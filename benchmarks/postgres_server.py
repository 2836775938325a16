"""A PostgreSQL server of its own in a folder, on the loopback address; it is stopped at the end."""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def missing() -> str | None:
    """Why no server can be started here; None where one can."""
    try:
        import asyncpg  # noqa: F401
    except ImportError:
        return "asyncpg is not installed (extra postgres)"
    if _bin() is None:
        return "no PostgreSQL server found (Debian: apt-get install postgresql)"
    if os.geteuid() == 0 and not _user():
        return "PostgreSQL does not run as root, and there is no user postgres"
    return None


def _bin() -> Path | None:
    found = shutil.which("initdb") or next(iter(sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))), None)
    return None if found is None else Path(os.path.realpath(found)).parent


def _user() -> str | None:
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        return None


class Server:
    """One cluster; `crash` ends it as a power cut would, `start` recovers it.

    `hasty`: it does not wait for the disk, for tests that never crash it.
    """

    def __init__(self, folder: Path, *, hasty: bool = False) -> None:
        found = _bin()
        assert found is not None
        self.bin, self.folder, self.hasty = found, folder, hasty
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.address = f"postgresql://lmab@127.0.0.1:{self.port}/postgres"

    def _run(self, *command: str) -> None:
        before = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        whole = [*before, str(self.bin / command[0]), *command[1:]]
        subprocess.run(whole, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.folder)

    def make(self) -> None:
        data = str(self.folder / "data")
        self._run("initdb", "-D", data, "-U", "lmab", "--auth=trust", "--no-sync", "-E", "UTF8")

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.folder}"
        options += " -c fsync=off -c full_page_writes=off" if self.hasty else ""
        log = str(self.folder / "log")
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-o", options, "-l", log, "-w", "start")

    def crash(self) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")


@contextmanager
def running(*, hasty: bool = False) -> Iterator[Server]:
    """A server that runs until the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="lmab-pg-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres")
    server = Server(folder, hasty=hasty)
    try:
        server.make()
        server.start()
        yield server
    finally:
        with suppress(subprocess.CalledProcessError):  # it may have been stopped already
            server.crash()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def pooler(server: Server, *, ignoring: bool = False) -> Iterator[str]:
    """PgBouncer with transaction pooling in front of a server, on the loopback address; yields the address.

    `ignoring`: it ignores startup parameters that it does not know instead of refusing them.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    path = server.folder / f"pgbouncer-{port}.ini"
    ignored = "statement_timeout,lock_timeout,idle_in_transaction_session_timeout,tcp_user_timeout,client_min_messages"
    path.write_text(
        f"[databases]\n* = host=127.0.0.1 port={server.port} user=lmab\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 4\n"
        + (f"ignore_startup_parameters = {ignored}\n" if ignoring else "")
    )
    path.chmod(0o644)
    before = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    command = [*before, str(shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")), "-q", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=server.folder)
    try:
        for _ in range(600):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield server.address.replace(f":{server.port}/", f":{port}/")
    finally:
        process.terminate()
        process.wait(30)
