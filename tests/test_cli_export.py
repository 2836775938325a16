"""`lmab export`: rows of the view, as CSV and Parquet, beside a running service, without changing the store."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import sqlite3

import pytest
from serving import LABELS, go, policy_bytes, served
from typer.testing import CliRunner

from lmab.cli.app import app
from lmab.errors import InvalidArgument, InvalidFile
from lmab.serve.stores import EXPORTED, open_store

RUNNER = CliRunner()
NOW = 1_000_000.0  # time of the clock of `serving`, on 1970-01-12


def exported(*words: str) -> list[dict[str, str]]:
    result = RUNNER.invoke(app, ["export", *words])
    assert result.exit_code == 0, (result.output, result.exception)
    return list(csv.DictReader(io.StringIO(result.stdout)))


async def play(client) -> list[dict]:
    answers = [await client.told("a", 0, person='ann, or "anna"', features={"country": "de"})]
    answers.append(await client.told("a", 1, 1.0, allowed=["red", "blue"]))
    answers.append(await client.told("b", 0, force="blue"))
    return answers


def test_every_decision_is_a_row_beside_a_running_service(event_store, tmp_path):
    duckdb = pytest.importorskip("duckdb")

    async def scenario():
        async with served(event_store, policy_bytes(floor=0.3)) as client:
            answers = await play(client)
            rows = await asyncio.to_thread(exported, event_store)
            assert list(rows[0]) == list(EXPORTED)
            assert [(row["session"], row["step"], row["arm"]) for row in rows] == [
                (answer["session"], str(answer["step"]), answer["label"]) for answer in answers
            ]
            first, second, forced = rows
            assert (first["person"], first["features"]) == ('ann, or "anna"', '{"country": "de"}')
            assert (float(first["propensity"]), float(first["reward"])) == (answers[0]["propensity"], 1.0)
            assert (second["reward"], second["allowed"], second["version"]) == (
                "",
                '["red", "blue"]',
                answers[1]["policy"],
            )
            assert (forced["forced"], forced["propensity"], forced["fallback"]) == ("1", "", "0")
            path = tmp_path / "rows.parquet"
            words = [event_store, "--format", "parquet", "-o", str(path)]
            result = await asyncio.to_thread(RUNNER.invoke, app, ["export", *words])
            assert result.exit_code == 0, result.exception
            table = duckdb.read_parquet(str(path))
            assert table.columns == list(EXPORTED)
            found = table.project("session, step, arm, propensity, person, forced").order("session, step").fetchall()
            assert found[0] == ("a", 0, answers[0]["label"], answers[0]["propensity"], 'ann, or "anna"', 0)
            assert found[2] == ("b", 0, "blue", None, None, 1)
            assert (await client.told("a", 2, 0.0))["recorded"]

    go(scenario())


def test_days_and_experiments_are_chosen(tmp_path):
    where = str(tmp_path / "events.db")

    async def scenario():
        async with served(where, policy_bytes()) as client:
            await play(client)
            await client.service.store.create_experiment("shop", NOW)

    go(scenario())
    assert len(exported(where, "--since", "1970-01-12", "--until", "1970-01-13")) == 3
    assert exported(where, "--since", "1970-01-13") == []
    assert exported(where, "--until", "1970-01-12") == []
    assert exported(where, "--experiment", "shop") == []
    for words, match in ((["--experiment", "x"], "one of default, shop"), (["--since", "may"], "--since must be a day"),
                         (["--format", "parquet"], "needs --output")):  # fmt: skip
        result = RUNNER.invoke(app, ["export", where, *words])
        assert isinstance(result.exception, InvalidArgument)
        assert match in str(result.exception)


def test_a_store_is_neither_made_nor_changed(tmp_path):
    where = tmp_path / "events.db"
    assert isinstance(RUNNER.invoke(app, ["export", str(where)]).exception, InvalidFile)
    assert not where.exists()

    async def make():
        store = open_store(str(where))
        await store.open()
        await store.set_arms(LABELS)
        await store.close()

    go(make())
    with contextlib.closing(sqlite3.connect(where)) as db:  # as the release before left it
        db.execute("DROP VIEW exported")
        db.commit()
    before = where.read_bytes()
    result = RUNNER.invoke(app, ["export", str(where)])
    assert isinstance(result.exception, InvalidFile)
    assert "brings them up to date" in str(result.exception)
    assert where.read_bytes() == before

    async def reading():
        store = open_store(str(where))
        await store.open_to_read()
        with pytest.raises((sqlite3.OperationalError, InvalidFile)):
            await store.set_setting("name", "value")
        await store.close()

    go(reading())
