"""Dask clusters for tests: processes for tests that kill workers, and threads of this process for the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager


class Processes:
    """A scheduler and its workers."""

    def __init__(self, folder):
        self.file = folder / "scheduler.json"
        self.scheduler = self._start("dask_scheduler", "--port", "0")
        self.workers = []
        for _ in range(600):
            if self.file.exists() and self.file.read_text().strip().endswith("}"):
                break
            time.sleep(0.05)
        self.address = json.loads(self.file.read_text())["address"]

    def _start(self, program, *options):
        command = [sys.executable, "-m", f"distributed.cli.{program}", "--scheduler-file", str(self.file)]
        command += ["--no-dashboard", "--host", "127.0.0.1", *options]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def add_worker(self):
        options = ("--no-nanny", "--nthreads", "1", "--death-timeout", "30", "--memory-limit", "0")
        self.workers.append(self._start("dask_worker", *options))
        return self.workers[-1]

    def end(self):
        for process in [*self.workers, self.scheduler]:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def cluster(folder, n_workers):
    """Processes with so many workers, all of which have registered."""
    from lmab.parallel import connected

    processes = Processes(folder)
    try:
        for _ in range(n_workers):
            processes.add_worker()
        with connected(processes.address) as client:
            if n_workers:
                client.wait_for_workers(n_workers, timeout=60)
            yield processes, client
    finally:
        processes.end()


@contextmanager
def in_process(n_workers):
    """Return a client of a cluster inside this process, for tests that kill no worker."""
    from distributed import Client, LocalCluster

    options = {"processes": False, "protocol": "tcp", "dashboard_address": None, "memory_limit": 0}
    with LocalCluster(n_workers=n_workers, threads_per_worker=1, **options) as local, Client(local) as client:
        yield client
