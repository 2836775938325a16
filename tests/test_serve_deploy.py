"""What is in deploy/: every file can be read, every command has its options, every metric is one of the service."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from serving import go, policy_bytes, served

from lmab.cli.app import app
from lmab.serve.stores import PASSWORD_FILE

DEPLOY = Path(__file__).parent.parent / "deploy"
yaml = pytest.importorskip("yaml")


def check_command(words: list[str]) -> None:
    """The words after `lmab` are a command with options that it has."""
    command = typer.main.get_command(app).commands[words[0]]
    known = {name for parameter in command.params for name in parameter.opts}
    options = [word for word in words[1:] if word.startswith("--")]
    assert options
    assert set(options) <= known, words
    given = [word for word in words[1:] if not word.startswith("--")]
    assert command.make_context("lmab", words[1:], resilient_parsing=True)
    assert len(given) == len(options)  # every option here has one value


def unit(name: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=True, interpolation=None)
    found.optionxform = str  # type: ignore[assignment]
    found.read_string((DEPLOY / "systemd" / name).read_text())
    return found


@pytest.mark.parametrize("name", ["lmab.service", "lmab-refit.service"])
def test_units_run_commands_that_exist(name):
    service = unit(name)["Service"]
    words = shlex.split(service["ExecStart"])
    assert words[0] == "/opt/lmab/bin/lmab"
    check_command(words[1:])
    assert (service["User"], service["UMask"]) == ("lmab", "0077")
    cache = service["Environment"].removeprefix("NUMBA_CACHE_DIR=")  # nothing else can be written under ProtectSystem
    assert Path(cache).parts[:4] == ("/", "var", "lib", service["StateDirectory"])


@pytest.mark.parametrize("name", ["lmab-refit", "lmab-backup"])
def test_every_timer_has_its_service(name):
    assert unit(f"{name}.timer")["Timer"]["OnCalendar"].startswith("*-*-* ")
    assert unit(f"{name}.service")["Service"]["Type"] == "oneshot"
    store = "/var/lib/lmab/events.db"
    assert store in unit("lmab.service")["Service"]["ExecStart"]
    assert store in unit(f"{name}.service")["Service"]["ExecStart"]


def test_the_image_runs_a_command_that_exists():
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    (command,) = [json.loads(line.removeprefix("CMD ")) for line in lines if line.startswith("CMD ")]
    assert 'ENTRYPOINT ["lmab"]' in lines
    check_command(command)
    assert "USER lmab" in lines


def test_the_services_of_compose_exist_and_hold_no_secret():
    found = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services: dict[str, Any] = found["services"]
    for name in ("lmab", "refit"):
        check_command(services[name]["command"])
        assert set(services[name]["secrets"]) <= set(found["secrets"])
        assert "postgresql://lmab@database/lmab" in services[name]["command"]
        assert services[name]["environment"] == {PASSWORD_FILE: "/run/secrets/database"}
    for service in services.values():
        assert set(service.get("depends_on", ())) <= set(services)
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert source.startswith("./") or source in found["volumes"]
    assert (DEPLOY / "Dockerfile").exists()


async def _metrics(where: str) -> set[str]:
    async with served(where, policy_bytes()) as client:
        await client.told("a", 0)
        text = (await client.http.get("/metrics")).text
        return set(re.findall(r"^(lmab_\w+)", text, re.M))


def test_rules_and_dashboard_ask_for_metrics_of_the_service(tmp_path):
    metrics: set[str] = set()

    async def scenario():
        metrics.update(await _metrics(str(tmp_path / "events.db")))

    go(scenario())
    rules = yaml.safe_load((DEPLOY / "prometheus" / "lmab.rules.yml").read_text())["groups"][0]["rules"]
    panels = json.loads((DEPLOY / "grafana" / "lmab.json").read_text())["panels"]
    asked = [rule["expr"] for rule in rules] + [target["expr"] for panel in panels for target in panel["targets"]]
    for expression in asked:
        names = set(re.findall(r"\blmab_\w+", expression))
        assert names, expression
        assert names <= metrics, names - metrics
        assert expression.count("(") == expression.count(")")
    assert len({panel["id"] for panel in panels}) == len(panels)
    scrape = yaml.safe_load((DEPLOY / "prometheus" / "scrape.yml").read_text())
    assert scrape["rule_files"] == ["lmab.rules.yml"]


def test_the_proxies_pass_on_to_the_port_and_keep_metrics_inside():
    for name in ("Caddyfile", "nginx.conf"):
        text = (DEPLOY / "proxy" / name).read_text()
        assert text.count("{") == text.count("}")
        assert ":8000" in text
        assert "/metrics" in text
