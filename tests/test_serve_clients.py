"""Clients of other languages, each with some decisions; `python -m benchmarks.serve_clients` gives each a thousand."""

from __future__ import annotations

import pytest

from benchmarks.serve_clients import COMMANDS, installed, study


@pytest.mark.parametrize("name", COMMANDS)
def test_a_client_of_another_language_gets_every_decision(name, tmp_path):
    if name not in installed():
        pytest.skip(f"{name} is not installed")
    assert study(tmp_path, 20, [name]) == {name: 20}
