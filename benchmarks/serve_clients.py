"""HTTP clients of other languages, as they come, ask the service for decisions; each must get all of them.

python -m benchmarks.serve_clients --decisions 1000

Java (java.net.http), curl (--http2), node, PHP and Go; a client that is not installed is skipped. The first two and PHP
offer HTTP/2 by Upgrade.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .serve_load import HOST, Served

_FOLDER = Path(__file__).parent / "clients"
COMMANDS = {  # the program, and its command with the address and the number of decisions behind it
    "java": ["java", str(_FOLDER / "Ask.java")],
    "curl": ["curl", "--http2"],
    "node": ["node", str(_FOLDER / "ask.mjs")],
    "php": ["php", str(_FOLDER / "ask.php")],
    "go": ["go", "run", str(_FOLDER / "ask.go")],
}


def installed() -> list[str]:
    """Return the names of the clients that this machine has."""
    return [name for name in COMMANDS if shutil.which(name)]


def decisions(name: str, url: str, n: int, folder: Path) -> int:
    """Return how many of n requests of a client were answered with a decision for their own session."""
    if name == "curl":
        return _of_curl(url, n, folder)
    ended = subprocess.run([*COMMANDS[name], url, str(n)], cwd=folder, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{name} failed: {ended.stderr[-500:]}")
    return int(ended.stdout)


def _of_curl(url: str, n: int, folder: Path) -> int:
    """One process of curl sends all requests, which a file lists."""
    sessions = [f"curl-{i}" for i in range(n)]
    bodies = [json.dumps(json.dumps({"session": session, "step": 0})) for session in sessions]
    asked = "\nnext\n".join(f'http2\nsilent\nurl = "{url}"\ndata = {body}\nwrite-out = "\\n"' for body in bodies)
    (folder / "asked.curl").write_text(asked)
    ended = subprocess.run(["curl", "--config", str(folder / "asked.curl")], capture_output=True, text=True)
    answers = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    return len({answer["session"] for answer in answers if "arm" in answer} & set(sessions))


def study(folder: Path, n: int, names: list[str]) -> dict[str, int]:
    """Return how many of n decisions each client got from a service of its own."""
    (folder / "arms.txt").write_text("tea\nmilk\njuice\n")
    found = {}
    for name in names:
        served = Served(str(folder / f"{name}.db"), "--arms", str(folder / "arms.txt"), "--horizon", "2")
        served.start()
        try:
            found[name] = decisions(name, f"http://{HOST}:{served.port}/v1/decide", n, folder)
        finally:
            served.kill()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, default=1000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lmab-clients-") as name:
        found = study(Path(name), given.decisions, installed())
    for client in COMMANDS:
        got = f"{found[client]:,} of {given.decisions:,} decisions" if client in found else "not installed"
        print(f"{client}: {got}")
    sys.exit(any(got != given.decisions for got in found.values()))


if __name__ == "__main__":
    main()
