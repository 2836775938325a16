"""Client that openapi-python-client generates from the document of the service, against the real service."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from benchmarks.serve_load import HOST, Served

pytest.importorskip("openapi_python_client")


def test_a_generated_client_decides_rewards_and_reads_typed_refusals(tmp_path, monkeypatch):
    (tmp_path / "arms.txt").write_text("tea\nmilk\n")
    served = Served(str(tmp_path / "events.db"), "--arms", str(tmp_path / "arms.txt"), "--horizon", "2")
    served.start()
    try:
        with urllib.request.urlopen(f"http://{HOST}:{served.port}/openapi.json") as answer:
            document = json.load(answer)
        (tmp_path / "openapi.json").write_text(json.dumps(document))
        words = ["generate", "--path", str(tmp_path / "openapi.json"), "--meta", "none", "--output-path"]
        command = [sys.executable, "-m", "openapi_python_client", *words, str(tmp_path / "generated_lmab")]
        environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # it runs ruff
        command.append("--fail-on-warning")
        ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        monkeypatch.syspath_prepend(str(tmp_path))
        decide = importlib.import_module("generated_lmab.api.default.post_v1_decide")
        reward = importlib.import_module("generated_lmab.api.default.post_v1_rewards")
        history = importlib.import_module("generated_lmab.api.default.get_v1_sessions_session")
        models = importlib.import_module("generated_lmab.models")
        with importlib.import_module("generated_lmab").Client(f"http://{HOST}:{served.port}") as client:
            answer = decide.sync(client=client, body=models.Question(session="a", step=0))
            assert (answer.session, answer.propensity) == ("a", 0.5)
            rewards = models.Rewards([models.Reward(session="a", step=0, reward=1.0)])
            assert reward.sync(client=client, body=rewards).rewards == 1
            assert history.sync("a", client=client).steps[0].reward == 1.0
            refusals = {
                404: history.sync_detailed("nobody", client=client),
                409: decide.sync_detailed(client=client, body=models.Question(session="a", step=2)),
                422: decide.sync_detailed(client=client, body=models.Question(session="b", step=0, allowed=["x"])),
            }
            for status, refusal in refusals.items():
                assert refusal.status_code == status
                assert isinstance(refusal.parsed, models.Refusal)
    finally:
        served.kill()
    for later in ("429", "503"):
        assert "Retry-After" in document["components"]["responses"][later]["headers"]
