"""`lmab serve` and `lmab refit` as commands, and the client that the page shows."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
import socket
import sqlite3
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from serving import LABELS
from typer.testing import CliRunner

from benchmarks.serve_load import HOST, Served
from lmab.cli import app as application
from lmab.cli import serve as command
from lmab.cli.app import app
from lmab.errors import InvalidArgument, InvalidFile, LmabWarning
from lmab.serve.run import lines_of
from lmab.serve.stores import Store, open_store

ROOT = Path(__file__).parent.parent
RUNNER = CliRunner()


def test_rewards_and_lists_are_read(tmp_path):
    assert command.values_of("0,1") == (0.0, 1.0)
    assert command.values_of("any") is None
    with pytest.raises(InvalidArgument, match="--rewards must be numbers with commas"):
        command.values_of("yes,no")
    path = tmp_path / "arms.txt"
    path.write_text("tea\n\n milk \n")
    assert lines_of(path) == ("tea", "milk")
    for wrong in ("", "tea\ntea\n"):
        path.write_text(wrong)
        with pytest.raises(InvalidFile, match="must hold one label or token on each line, none twice"):
            lines_of(path)
    with pytest.raises(InvalidFile, match="cannot be read"):
        lines_of(tmp_path / "missing.txt")


@pytest.mark.parametrize(("text", "seconds"), [("400d", 400 * 86_400.0), ("1.5h", 5400.0), ("2m", 120.0), ("9s", 9.0)])
def test_ages_are_read(text, seconds):
    assert command.seconds_of(text) == seconds
    for wrong in ("", "400", "d", "-1d", "0d", "nand", "infd"):
        with pytest.raises(InvalidArgument, match="--keep must be a number above 0 and a unit"):
            command.seconds_of(wrong)


def test_no_password_is_printed(monkeypatch):
    monkeypatch.setattr(command.service_package(), "run", lambda running: running.announce("http://[::1]:80/"))
    answer = RUNNER.invoke(app, ["serve", "--horizon", "2", "--store", "postgresql://lmab:hunter2@db/shop"])
    assert (
        answer.output
        == "Serving at http://[::1]:80/ (Ctrl-C stops); decisions are kept in postgresql://lmab@db/shop.\n"
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["typo.lmab"], "typo.lmab: cannot be read: No such file or directory"),
        (["arms.txt"], "arms.txt: the policy does not load"),
        (["--arms", "typo.txt"], "typo.txt: cannot be read"),
        (["--token-file", "typo"], "typo: cannot be read"),
        (["--token-file", "tokens"], "after the token there may be roles"),
        (["--host", "0.0.0.0"], "--host must be a loopback address"),
        (["--rewards", "yes"], "--rewards must be numbers"),
        (["--keep", "7"], "--keep must be a number above 0 and a unit"),
        (["--store", "mysql://u:hunter2@h/db"], "got mysql:/..."),
        (["--store", "postgresql:/u:hunter2@h/db"], "got postgresql:/..."),
        (["--store", "postgresql://u:hunter2@h/db?sslmode=requird"], "`sslmode` parameter must be one of"),
        (["--store", "postgresql://u:hunter2@h/db?sslmode=require&sslrootcert=/typo"], "the files that it names"),
        (["--store", "postgresql://u:hunter2@h:54x/db"], "Check port"),
        (["--store", "postgresql://u:hunter2?x@h/db"], "must be percent-encoded"),
        (["--store", "postgresql://u:hunter2@[::1/db"], "Check port"),
    ],
)
def test_a_configuration_that_cannot_be_served_ends_with_a_status_of_its_own(tmp_path, monkeypatch, more, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arms.txt").write_text("tea\nmilk\n")
    (tmp_path / "tokens").write_text("secret admin\n")
    started = []
    monkeypatch.setattr(command.service_package(), "run", started.append)
    monkeypatch.setenv("COLUMNS", "1000")
    answer = RUNNER.invoke(app, ["serve", "--arms", "arms.txt", "--horizon", "5", *more])
    assert (answer.exit_code, started) == (78, []), answer.output
    assert message in answer.output
    assert "Serving" not in answer.output
    assert "hunter2" not in answer.output
    unit = (ROOT / "deploy" / "systemd" / "lmab.service").read_text()
    assert "\nRestartPreventExitStatus=78\n" in unit


def test_a_configuration_can_be_checked(tmp_path, monkeypatch):
    monkeypatch.setattr(command.service_package(), "run", None)
    for store in (str(tmp_path / "x.db"), "postgresql://h/x", "postgresql://a:1,b:2/x?sslmode=require&search_path=t"):
        answer = RUNNER.invoke(app, ["serve", "--check", "--horizon", "2", "--store", store])
        assert (answer.exit_code, answer.output) == (0, "The configuration is valid. Nothing was started.\n")
    assert list(tmp_path.iterdir()) == []


def test_serving_is_said_once_requests_are_accepted(tmp_path):
    """Where the port is taken, nothing is."""
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        words = ["--horizon", "2", "--store", str(tmp_path / "x.db"), "--port", str(taken.getsockname()[1])]
        ended = subprocess.run([sys.executable, "-m", "lmab", "serve", *words], capture_output=True, text=True)
    assert ended.returncode not in (0, 78)
    assert "address already in use" in ended.stderr
    assert ended.stdout == ""


def test_options_reach_the_service(tmp_path, monkeypatch):
    seen = []
    door = command.service_package()
    monkeypatch.setattr(door, "server", lambda options, say: seen.append(options))
    monkeypatch.setattr(door, "run", lambda running: None)
    (tmp_path / "arms.txt").write_text("tea\nmilk\n")
    (tmp_path / "tokens").write_text("secret\n")
    words = [
        "serve", "--store", "x.db", "--arms", str(tmp_path / "arms.txt"), "--horizon", "3", "--no-repeats", "--rewards",
        "0,1,2", "--floor", "0.2", "--default-reward", "0", "--window", "60", "--apprentice", "--without-store",
        "--host", "0.0.0.0", "--port", "9000", "--token-file", str(tmp_path / "tokens"), "--queue", "7",
        "--keep", "400d",
    ]  # fmt: skip
    answer = RUNNER.invoke(app, words)
    assert answer.exit_code == 0, answer.output
    (options,) = seen
    assert (options.store, options.arms, options.host, options.port) == ("x.db", ("tea", "milk"), "0.0.0.0", 9000)
    assert (options.token_file, options.policy, options.settings.keep) == (tmp_path / "tokens", None, 400 * 86_400.0)
    settings = options.settings
    assert (settings.default_reward, settings.window, settings.queue) == (0.0, 60.0, 7)
    assert (settings.apprentice, settings.without_store) == (True, True)
    defaults = settings.defaults
    assert (defaults.horizon, defaults.floor, defaults.values, defaults.repeats) == (3, 0.2, (0.0, 1.0, 2.0), False)


def test_without_options_the_service_is_as_the_library_says(monkeypatch):
    seen = []
    door = command.service_package()
    monkeypatch.setattr(door, "server", lambda options, say: seen.append(options))
    monkeypatch.setattr(door, "run", lambda running: None)
    answer = RUNNER.invoke(app, ["serve"])
    assert seen == [door.Options("events.db", settings=door.Settings())]
    assert answer.output.splitlines() == [
        "No policy and no horizon were given: the service answers once the store has a policy."
    ]
    assert "No policy" not in RUNNER.invoke(app, ["serve", "--horizon", "3"]).output
    assert "No policy" not in RUNNER.invoke(app, ["serve", "policy.lmab"]).output


def test_the_demonstration_is_asked_for_by_an_option(monkeypatch):
    seen = []
    monkeypatch.setattr("lmab.cli.serve_demo.play_demo", lambda options, say: seen.append(options.store))
    assert RUNNER.invoke(app, ["serve", "--demo", "--store", "d.db"]).exit_code == 0
    assert seen == ["d.db"]


def test_a_missing_extra_is_named(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError("no", name="starlette")

    monkeypatch.setattr(command.importlib, "import_module", missing)
    with pytest.raises(InvalidArgument, match=r"the service needs starlette: pip install '\.\[serve\]'"):
        command.service_package()


def test_an_open_address_without_tokens_is_refused():
    answer = RUNNER.invoke(app, ["serve", "--host", "0.0.0.0", "--horizon", "2"])
    assert answer.exit_code == 78


def make_store(where) -> None:
    async def make() -> None:
        store = open_store(str(where))
        await store.open()
        await store.set_arms(LABELS)
        await store.close()

    asyncio.run(make())


def test_refit_says_lines_or_json(tmp_path):
    where = tmp_path / "events.db"
    make_store(where)
    words = ["refit", "--store", str(where), "--policies", str(tmp_path / "policies")]
    answer = RUNNER.invoke(app, words)
    assert answer.exit_code == 0, answer.output
    assert answer.output.splitlines() == ["The store holds 0 sessions; 200 are needed. Kept uniform."]
    told = json.loads(RUNNER.invoke(app, [*words, "--json"]).stdout)
    assert (told["outcome"], told["version"], told["notes"]) == ("waits", None, [])


def test_options_reach_the_refit(tmp_path, monkeypatch):
    seen = []
    door = command.service_package()

    async def note(store, folder, options, *, rng, history):
        seen.append((store.path, folder, options, history, rng))
        return door.RefitResult(1.0, "kept", None, ("one", "two", "three"))

    monkeypatch.setattr(door, "refit", note)
    make_store(tmp_path / "x.db")
    words = ["refit", "--store", str(tmp_path / "x.db"), "--policies", str(tmp_path / "p")]
    assert RUNNER.invoke(app, words).output.splitlines() == ["one", "two", "three"]
    more = [
        "--canary", "0.2", "--window", "60", "--types", "4", "--horizon", "6", "--floor", "0.15", "--least", "77",
        "--time-limit", "2.5", "--seed", "9", "--features", "age, country", "--keep-versions", "3", "--remove-days",
    ]  # fmt: skip
    assert RUNNER.invoke(app, [*words, *more]).exit_code == 0
    options = door.RefitOptions(
        canary=0.2, window=60.0, types=4, horizon=6, floor=0.15, least=77, time_limit=2.5, features=("age", "country"),
        keep_versions=3, remove_days=True,
    )  # fmt: skip
    assert [row[2:] for row in seen] == [(door.RefitOptions(), None, 0), (options, None, 9)]
    assert seen[0][:2] == (str(tmp_path / "x.db"), tmp_path / "p")
    log = tmp_path / "log.csv"
    log.write_text("visit,item,reward\n1,tea,1\n1,milk,0\n2,tea,1\n")
    past = ["--history", str(log), "--session", "visit", "--arm", "item"]
    assert RUNNER.invoke(app, [*words, *past]).exit_code == 0
    assert seen[2][3].arm_labels == ("milk", "tea")
    wrong = RUNNER.invoke(app, [*words, *past[2:]])
    assert "--history must be given with options of columns other than --features" in str(wrong.exception)


def test_what_a_refit_warns_of_is_told_after_its_lines(tmp_path, monkeypatch):
    door = command.service_package()

    async def warn(store, folder, options, *, rng, history):
        warnings.warn("few sessions", LmabWarning, stacklevel=2)
        return door.RefitResult(1.0, "kept", None, ("one",))

    monkeypatch.setattr(door, "refit", warn)
    make_store(tmp_path / "x.db")
    words = ["refit", "--store", str(tmp_path / "x.db"), "--policies", str(tmp_path / "p")]
    assert RUNNER.invoke(app, words).output.splitlines() == ["one", "note: few sessions"]
    assert json.loads(RUNNER.invoke(app, [*words, "--json"]).stdout)["notes"] == ["few sessions"]


def test_the_client_on_the_page_is_the_example_and_it_works(tmp_path):
    text = (ROOT / "examples" / "serve_client.py").read_text()
    shown = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "in-production.md").read_text(), re.S | re.M)
    assert shown == [text]
    spec = importlib.util.spec_from_file_location("serve_client", ROOT / "examples" / "serve_client.py")
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (tmp_path / "arms.txt").write_text("tea\nmilk\n")
    served = Served(str(tmp_path / "events.db"), "--arms", str(tmp_path / "arms.txt"), "--horizon", "3")
    served.start()
    try:
        with module.Client(f"http://{HOST}:{served.port}", deadline=30.0) as client:
            assert 0 <= module.play(client, "visitor", 3) <= 3
            assert client.flush(30.0) == 0
    finally:
        served.kill()
    with module.Client(f"http://{HOST}:{served.port}", deadline=30.0) as client:
        assert module.play(client, "visitor", 1) in (0, 1)  # the service is away: the usual arm
        assert not client.counts["decided"]
        client.close(0.0)
    rows = asyncio.run(_rows(str(tmp_path / "events.db")))
    assert [row[3] is not None for row in rows] == [True, True, True]


async def _rows(where: str) -> list:
    store = open_store(where)
    await store.open()
    rows = await store.rows(0.0, 1e18)
    await store.close()
    return rows


def refused_refit(capsys, monkeypatch, where: str) -> str:
    """The one line of a refit that fails without a mistake of ours."""
    monkeypatch.setattr(sys, "argv", ["lmab", "refit", "--store", where, "--policies", "never"])
    with pytest.raises(SystemExit) as stop:
        application.main()
    shown = capsys.readouterr()
    assert (stop.value.code, shown.out, shown.err.count("\n")) == (1, "", 1)
    assert "report it" not in shown.err
    return shown.err


@pytest.mark.parametrize(
    "place", ["db:54x2/shop", "db:99999/shop", "[::1/shop", "db/shop?sslmode=maybe", "wo?rd@db/shop"]
)
def test_a_mistyped_address_is_no_mistake_of_ours_and_shows_no_password(capsys, monkeypatch, place):
    shown = refused_refit(capsys, monkeypatch, f"postgresql://lmab:hun/ter2{'@' * ('@' not in place)}{place}")
    assert "is no valid address" in shown
    assert not re.search("hun|ter2|wo[?]", shown)


def test_a_full_disk_or_a_database_that_stops_is_no_mistake_of_ours(capsys, monkeypatch, event_store):
    errors = [sqlite3.OperationalError("database or disk is full")]
    if "://" in event_store:
        import asyncpg

        errors = [asyncpg.AdminShutdownError("terminating connection due to administrator command")]
        errors += [asyncpg.InterfaceError("connection is closed"), asyncpg.DiskFullError("could not extend file")]
    for error in errors:

        async def fail(self, *arguments, error=error, **more):
            raise error

        monkeypatch.setattr(Store, "signals", fail)
        monkeypatch.setattr(Store, "arms", fail)
        monkeypatch.setattr(Store, "rollouts", fail)
        asyncio.run(make_tables(event_store))
        shown = refused_refit(capsys, monkeypatch, event_store)
        assert f"the store failed: {error} ({type(error).__name__}); check its address and its disk" in shown


async def make_tables(where: str) -> None:
    store = open_store(where)
    await store.open()
    await store.close()
