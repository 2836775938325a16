"""What is in deploy/: every file can be read, every command has its options, every metric is one of the service."""

from __future__ import annotations

import configparser
import contextlib
import json
import os
import re
import runpy
import shlex
import shutil
import socket
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
from serving import go, policy_bytes, served

from lmab.cli.app import app
from lmab.serve.metrics import BACKUP, REFITS
from lmab.serve.run import notify_manager
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
    found = configparser.ConfigParser(strict=False, interpolation=None)  # SystemCallFilter comes twice
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


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("name", ["lmab.service", "lmab-refit.service", "lmab-backup.service"])
def test_units_are_hardened(name):
    words = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(DEPLOY / "systemd" / name)]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    level = re.search(r"Overall exposure level for \S+: ([0-9.]+)", ended.stdout)
    assert level is not None, ended.stdout + ended.stderr
    assert float(level[1]) < 3.0


def test_the_manager_is_notified_once_requests_are_accepted(tmp_path, monkeypatch):
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        notify_manager("READY=1")  # without the variable nothing is sent
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        notify_manager("READY=1")
        assert manager.recv(100) == b"READY=1"
        manager.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.recv(100)
    assert unit("lmab.service")["Service"]["Type"] == "notify"


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
    for name in ("refit", "backup"):  # the check of the image and of PostgreSQL asks a server, which does not run there
        assert services[name]["healthcheck"] == {"disable": True}
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
    image = (DEPLOY / "Dockerfile").read_text()
    user = re.search(r"useradd .*--uid (\d+)", image)[1]
    header = (DEPLOY / "compose.yaml").read_text().partition("services:")[0]
    assert f"sudo chown {user} deploy/secrets/*" in header  # compose mounts the files as they are
    for volume in services["refit"]["volumes"]:  # a new volume takes the owner of the folder in the image
        folder = volume.partition(":")[2]
        assert re.search(rf"install -d -o lmab .*{folder}\b", image.partition("USER")[0])


def test_the_backup_of_compose_keeps_generations_and_the_old_ones_where_the_dump_fails(tmp_path):
    found = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    (script,) = found["services"]["backup"]["command"]
    backups, programs = tmp_path / "backups", tmp_path / "bin"
    backups.mkdir()
    programs.mkdir()
    (tmp_path / "secret").write_text("hunter2")
    for n in range(30):
        (backups / f"lmab-20260101T{n:06d}Z.dump").write_text("old")
    (programs / "sleep").write_text(f"#!/bin/sh\necho >> {tmp_path}/n; test $(wc -l < {tmp_path}/n) -le 2\n")
    (programs / "pg_dump").write_text(
        f"#!/bin/sh\ntest $(wc -l < {tmp_path}/n) = 2 || exit 1\n"  # the first one fails
        'test "$PGPASSWORD" = hunter2 || exit 1\nwhile [ "$1" != --file ]; do shift; done; echo new > "$2"\n'
    )
    for program in programs.iterdir():
        program.chmod(0o755)
    script = script.replace("$$", "$").replace("/run/secrets/database", str(tmp_path / "secret"))
    shell = [*found["services"]["backup"]["entrypoint"], script.replace("/backups", str(backups))]
    subprocess.run(shell, env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}, timeout=60, check=True)
    kept = sorted(path.name for path in backups.iterdir())
    assert len(kept) == 28
    assert (backups / kept[-1]).read_text() == "new\n"
    assert kept[:-1] == [f"lmab-20260101T{n:06d}Z.dump" for n in range(3, 30)]


def test_backups_of_a_file_are_whole_checked_and_the_newest_ones(tmp_path, monkeypatch):
    back_up = runpy.run_path(str(DEPLOY / "backup.py"))["back_up"]
    store, folder = tmp_path / "events.db", tmp_path / "backups"

    async def scenario():
        async with served(str(store), policy_bytes()) as client:  # the service writes on
            for n in range(5):
                now = f"2026011{n}T000000Z"
                monkeypatch.setattr("time.strftime", lambda form, when, now=now: now)
                await client.told(f"s{n}", 0)
                made = back_up(store, folder, 3)
                assert (made.name, made.stat().st_mode & 0o777) == (f"events-{now}.db", 0o600)

    go(scenario())
    kept = sorted(path.name for path in folder.iterdir())
    assert kept == [f"events-2026011{n}T000000Z.db" for n in (2, 3, 4)]
    for n in (2, 3, 4):
        with contextlib.closing(sqlite3.connect(folder / f"events-2026011{n}T000000Z.db")) as db:
            assert db.execute("SELECT session FROM sessions").fetchall() == [(f"s{k}",) for k in range(n + 1)]
    with pytest.raises(sqlite3.OperationalError):
        back_up(tmp_path / "evnets.db", folder, 1)
    (tmp_path / "events.db").write_bytes(b"nonsense" * 1000)
    with pytest.raises(sqlite3.DatabaseError):
        back_up(store, folder, 1)
    assert sorted(path.name for path in folder.iterdir()) == kept
    assert not (tmp_path / "evnets.db").exists()


def test_the_unit_backs_up_the_store_of_the_service():
    words = shlex.split(unit("lmab-backup.service")["Service"]["ExecStart"])
    assert words[0] == "/opt/lmab/bin/python"
    assert Path(words[1]).name == "backup.py"
    assert words[2] in unit("lmab.service")["Service"]["ExecStart"]
    assert int(words[4]) > 1


async def _metrics(where: str) -> set[str]:
    async with served(where, policy_bytes()) as client:
        await client.told("a", 0)
        refits = '[{"at": 1}, {"at": 1234567.5, "outcome": "kept", "seconds": 3.5}]'
        await client.service.store.set_setting(REFITS, refits)
        await client.service.store.set_setting(BACKUP, "1234567.5")
        await client.decide("a", 7)
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
        assert names or "up{job=" in expression, expression
        assert names <= metrics, names - metrics
        assert expression.count("(") == expression.count(")")
    assert len({panel["id"] for panel in panels}) == len(panels)
    scrape = yaml.safe_load((DEPLOY / "prometheus" / "scrape.yml").read_text())
    assert scrape["rule_files"] == ["lmab.rules.yml"]
    runbook = (DEPLOY.parent / "docs" / "runbook.md").read_text()
    sections = re.findall(r"^### (\w+)$", runbook, re.M)
    assert [rule["alert"] for rule in rules] == sections
    for rule in rules:
        assert rule["annotations"]["runbook_url"].endswith(f"/runbook/#{rule['alert'].lower()}")
    assert set(re.findall(r"`(lmab_\w+)`", runbook)) <= metrics
    for words in re.findall(r"`lmab ([^`]+)`", runbook):
        if "--" in words:
            name, options = words.split()[0], set(re.findall(r"--[a-z-]+", words))
            known = {one for parameter in typer.main.get_command(app).commands[name].params for one in parameter.opts}
            assert options <= known, words


def test_the_proxies_pass_on_to_the_port_and_keep_metrics_inside():
    for name in ("Caddyfile", "nginx.conf"):
        text = (DEPLOY / "proxy" / name).read_text()
        assert text.count("{") == text.count("}")
        assert re.search(r"(:|port )8000\b", text)
        assert "/metrics" in text
