"""The service in exactly the packages of `deploy/serve.txt`: it decides with a policy, and the packages are small."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import runpy
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from serving import policy_bytes

from lmab._kernel import acting, kernel

ROOT = Path(__file__).parent.parent
LIMIT = 150e6  # bytes of Python packages


def pinned() -> list[str]:
    names = re.findall(r"^([a-z0-9-]+)==", (ROOT / "deploy" / "serve.txt").read_text(), re.M)
    return [name for name in dict.fromkeys(names) if name != "colorama"]  # which is for Windows


def test_every_package_is_pinned_with_hashes():
    for name in ("serve.txt", "refit.txt"):
        lines = (ROOT / "deploy" / name).read_text().replace("\\\n", " ").splitlines()
        assert all(re.match(r"[a-z0-9-]+==\S+ ", line) and "--hash=sha256:" in line for line in lines), name
    assert not {"numba", "scipy", "pyarrow", "duckdb", "pandas"} & set(pinned())


def test_the_bill_of_materials_lists_every_package():
    bill = runpy.run_path(str(ROOT / "deploy" / "sbom.py"))["bill"]
    text = (ROOT / "deploy" / "refit.txt").read_text()
    found = bill(text, "lmab", "1.0")
    assert len(found["components"]) == len(re.findall("^[a-z0-9-]+==", text, re.M)) > 20
    assert all(one["hashes"] for one in found["components"])


def environment(folder: Path) -> int:
    """Link the pinned packages of this environment into a folder; return their bytes."""
    size = 0
    for name in pinned():
        try:
            files = importlib.metadata.distribution(name).files or []
        except importlib.metadata.PackageNotFoundError:
            pytest.skip(f"{name} is not installed")
        for file in files:
            source = Path(str(file.locate()))
            if source.is_file() and ".." not in file.parts:
                size += source.stat().st_size
                link = folder / file.parts[0]
                if not link.exists():
                    link.symlink_to(Path(str(files[0].locate())).parents[len(files[0].parts) - 1] / file.parts[0])
    return size


def test_the_service_runs_a_policy_with_these_packages_alone(tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    assert 20e6 < environment(site) < LIMIT
    (tmp_path / "p.lmab").write_bytes(policy_bytes(floor=0.1))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = (
        f"import sys; sys.path[:0] = [{str(ROOT / 'src')!r}, {str(site)!r}]\n"
        "for name in ('numba', 'scipy', 'pyarrow', 'pandas', 'duckdb', 'narwhals'):\n"
        "    try: __import__(name)\n"
        "    except ModuleNotFoundError: continue\n"
        "    raise SystemExit(name + ' is installed')\n"
        "from lmab.cli import main; main()\n"
    )
    words = ["serve", str(tmp_path / "p.lmab"), "--store", str(tmp_path / "events.db"), "--port", str(port)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", program, *words], env=clean)
    try:
        until = time.monotonic() + 120
        while time.monotonic() < until and process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5):
                    break
            except OSError:
                time.sleep(0.1)
        assert process.poll() is None
        for step in range(4):
            body = {"session": "a", "step": step, **({"reward": 1.0} if step else {})}
            request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/decide", json.dumps(body).encode())
            with urllib.request.urlopen(request, timeout=30) as response:
                answer = json.load(response)
            assert (answer["fallback"], answer["recorded"]) == (False, True)
            assert answer["propensity"] > 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(importlib.util.find_spec("numba") is None, reason="the compiled kernels need Numba")
def test_numpy_and_compiled_kernels_agree(rng):
    compiled = kernel("planning")
    for _ in range(50):
        n_types, n_plans, n_arms, n_symbols = rng.integers(1, 6, 4)
        belief, likelihood = rng.random(n_types), rng.random(n_types)
        product, top = acting.updated(belief, likelihood)
        other, other_top = compiled.updated(belief, likelihood)
        np.testing.assert_allclose(product, other)
        assert top == pytest.approx(other_top)
        vectors = rng.integers(0, 3, (n_plans + 2, n_types)).astype(float)  # with ties
        scores = np.empty(n_plans)
        found = acting.best_plan(belief, vectors, 1, 1 + n_plans, scores)
        assert found == compiled.best_plan(belief, vectors, 1, 1 + n_plans, scores)
        beliefs, means = rng.random((3, n_types)), rng.random((n_arms, n_types))
        table = rng.random((n_arms * n_symbols, n_types))
        args = beliefs, table, means, np.ascontiguousarray(vectors)
        np.testing.assert_allclose(acting.one_step_values(*args), compiled.one_step_values(*args))
