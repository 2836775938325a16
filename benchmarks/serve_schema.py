"""Schema tests: schemathesis sends what /openapi.json allows and what it does not, and holds the answers against it.

python -m benchmarks.serve_schema --examples 200

No answer may be 5xx, have another body or type than described, accept what the schema forbids, call malformed what the
schema allows, or need no token where one is needed. At most a minute, of which a usual run needs less.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from .serve_load import HOST, Served, write_policy

SECONDS = 60  # at most, for all phases together
_TOKEN = "all"
# What a request names may be missing, closed or too late, whether the schema allows the request or not. One that it
# allows is not malformed (400), and has the right path and method (405).
_REFUSALS = "401, 403, 404, 409, 410, 412, 413, 422, 429"
_CONFIGURATION = f"""
[checks]
positive_data_acceptance.expected-statuses = ["2xx", {_REFUSALS}]
negative_data_rejection.expected-statuses = [400, 405, {_REFUSALS}]
"""


def ask(
    folder: Path, examples: int, seed: int, phases: str = "coverage,fuzzing,stateful", without: str = "^$"
) -> tuple[int, str]:
    """Serve a policy, test every path but those that match `without`, and return the exit status and the output."""
    write_policy(folder / "policy.lmab")
    (folder / "tokens").write_text(f"{_TOKEN} decide watch operate erase\n")
    (folder / "schemathesis.toml").write_text(_CONFIGURATION)
    served = Served(
        str(folder / "events.db"), str(folder / "policy.lmab"), "--token-file", str(folder / "tokens"),
        "--rewards", "any",
    )  # fmt: skip
    served.start()
    try:
        command = [
            sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml", "run",
            f"http://{HOST}:{served.port}/openapi.json", "--header", f"Authorization: Bearer {_TOKEN}", "--max-time",
            str(SECONDS), "--max-examples", str(examples), "--seed", str(seed), "--continue-on-failure", "--no-color",
            "--phases", phases, "--exclude-path-regex", without,
        ]  # fmt: skip
        ended = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, env={**os.environ, "COLUMNS": "120"}
        )
        assert served.process is not None
        assert served.process.poll() is None, "the service ended"
    finally:
        served.kill()
    return ended.returncode, ended.stdout + ended.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lmab-schema-") as name:
        status, text = ask(Path(name), given.examples, given.seed)
    print(text)
    sys.exit(status)


if __name__ == "__main__":
    main()
