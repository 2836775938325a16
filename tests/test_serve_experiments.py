"""Experiments of one store: tables, services, settings, holdout, forced arms, tokens, and an old store as `default`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3

import httpx
import numpy as np
import pytest
from serving import HORIZON, LABELS, Client, Wire, go, patient, policy_bytes, refused
from typer.testing import CliRunner

from lmab.cli.app import app
from lmab.errors import InvalidArgument
from lmab.serve.app import make_app
from lmab.serve.experiments import Experiments
from lmab.serve.export import Survey, batches, read_log
from lmab.serve.register import POPULARITY
from lmab.serve.service import Service, Settings
from lmab.serve.stores import FORCED, Job, RewardRow, open_store
from lmab.serve.versions import HOLDOUT, Defaults

RUNNER = CliRunner()


@contextlib.asynccontextmanager
async def several(where: str, *names: str, tokens: tuple[str, ...] = (), **settings):
    """Services of `default` and of other experiments, with arms red, green, blue, and a client."""
    store = patient(open_store(where))
    first = Service(store, Settings(Defaults(HORIZON), **settings), secret=b"the same draws in every run")
    experiments = Experiments(
        first, lambda name: Service(store.of(name), Settings(), given=(), beside=first, secret=name.encode())
    )
    await experiments.start(watch=False)
    try:
        await first.register.set_arms(LABELS)
        for name in names:
            if await store.create_experiment(name, 1.0):
                await store.of(name).set_service_settings({"horizon": HORIZON, "floor": 0.2})
                await store.of(name).add_arms([f"{name}-{label}" for label in LABELS])
        await experiments.refresh()
        transport = Wire(make_app(experiments, tokens))
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as http:
            yield Client(first, http), experiments
    finally:
        await experiments.stop()


def test_experiments_share_a_store_and_nothing_else(event_store):
    async def scenario():
        async with several(event_store, "shop", "news-page") as (client, experiments):
            post = client.http.post
            for path, arms in (("/v1", LABELS), ("/v1/experiments/shop", [f"shop-{one}" for one in LABELS])):
                answer = await post(f"{path}/decide", json={"session": "same", "step": 0})
                assert answer.json()["label"] in arms
                rewards = {"rewards": [{"session": "same", "step": 0, "reward": float(path == "/v1")}]}
                assert (await post(f"{path}/rewards", json=rewards)).json() == {"rewards": 1}
            paths = {"default": "/v1/sessions/same", "shop": "/v1/experiments/shop/sessions/same"}
            found = {name: (await client.http.get(path)).json() for name, path in paths.items()}
            assert [found[name]["steps"][0]["reward"] for name in ("default", "shop")] == [1.0, 0.0]
            refused(await client.http.get("/v1/experiments/news-page/sessions/same"), 404, "unknown-session")
            refused(
                await post("/v1/experiments/none/decide", json={"session": "a", "step": 0}), 404, "unknown-experiment"
            )
            refused(await client.http.get("/v1/experiments/none/arms"), 404, "unknown-experiment")
            erased = await client.http.delete("/v1/experiments/shop/persons/nobody")
            assert erased.json()["sessions"] == 0
            listed = (await client.http.get("/v1/experiments")).json()["experiments"]
            assert [(one["name"], one["ready"]) for one in listed] == [
                ("default", True), ("news-page", True), ("shop", True),
            ]  # fmt: skip
            metrics = (await client.http.get("/metrics")).text
            assert 'lmab_requests_total{experiment="shop",path="/v1/decide",status="200"} 1' in metrics
            assert 'lmab_decision_seconds_count{experiment="none"' not in metrics
            assert experiments.services["shop"].settings.defaults.floor == 0.2
            assert experiments.services["shop"].commits is client.service.commits

    go(scenario())


def test_jobs_of_several_experiments_are_one_commit_and_a_conflict_in_one_leaves_the_others(event_store):
    async def scenario():
        async with several(event_store, "a", "b") as (client, experiments):
            stores = {name: service.store for name, service in experiments.services.items()}
            for service in experiments.services.values():
                await service.decide(_question("s", 0))
            jobs = [Job([RewardRow("s", 0, float(i), 1.0, 0)], experiment=name) for i, name in enumerate(stores)]
            await client.service.store.write(jobs)
            jobs = [Job([RewardRow("s", 0, 1.0, 1.0, 0)], experiment=name) for name in stores]
            await client.service.store.write(jobs)
            assert [job.conflict is None for job in jobs] == [False, True, False]  # 0, 1 and 2 were stored
            rows = [(await store.session("s"))[0].reward for store in stores.values()]
            assert rows == [0.0, 1.0, 2.0]

    go(scenario())


def _question(session: str, step: int, **more):
    from lmab.serve.messages import Question

    return Question(session, step, **more)


def test_a_service_follows_experiments_that_are_created_changed_and_archived(event_store):
    words = ["--store", event_store]

    def run(*more: str) -> str:
        result = RUNNER.invoke(app, ["experiments", *more, *words])
        assert result.exit_code == 0, (result.output, result.exception)
        return result.output

    async def scenario():
        async with several(event_store) as (_, experiments):
            await asyncio.to_thread(run, "create", "shop", "--horizon", "3", "--floor", "0.1")
            await experiments.refresh()
            shop = experiments.service("shop")
            assert (shop.settings.defaults.horizon, shop.settings.defaults.floor) == (3, 0.1)
            assert await experiments.unable() == ""  # an experiment without arms does not make the service unready
            await shop.register.set_arms(["x", "y"])
            assert (await shop.decide(_question("s", 0))).propensity == 0.5
            await asyncio.to_thread(run, "set", "shop", "--holdout", "0.25", "--window", "60")
            await shop.register.refresh()
            assert (shop.settings.holdout, shop.settings.window, shop.register.holdout) == (0.25, 60.0, 0.25)
            assert shop.settings.defaults.floor == 0.1
            for keep, seconds in (("2d", 172_800.0), ("never", None)):
                await asyncio.to_thread(run, "set", "shop", "--keep", keep)
                await shop.register.refresh()
                assert shop.settings.keep == seconds
            assert "shop: 2 open arms, in force: uniform" in await asyncio.to_thread(run, "list")
            await asyncio.to_thread(run, "archive", "shop")
            await experiments.refresh()
            assert list(experiments.services) == ["default"]
            assert "shop: 2 open arms, archived" in await asyncio.to_thread(run, "list")
            await asyncio.to_thread(run, "create", "shop")
            await experiments.refresh()
            steps = await experiments.service("shop").store.session("s")
            assert len(steps) == 1  # its rows stayed

    go(scenario())


@pytest.mark.parametrize("words", [["set", "none"], ["create", "default"], ["archive", "default"], ["list", "x"],
                                   ["create", "Shop"], ["create"]])  # fmt: skip
def test_what_experiments_cannot_do_is_refused(tmp_path, words):
    store = str(tmp_path / "events.db")

    async def make():
        one = open_store(store)
        await one.open()
        await one.close()

    go(make())
    result = RUNNER.invoke(app, ["experiments", *words, "--store", store])
    assert isinstance(result.exception, InvalidArgument)


def test_a_forced_arm_has_no_propensity_and_nothing_learns_from_its_session(event_store, tmp_path):
    async def scenario():
        async with several(event_store) as (client, _):
            told = await client.told("tester", 0, force="blue")
            assert (told["label"], told["propensity"], told["forced"]) == ("blue", None, True)
            assert "forced" not in await client.told("tester", 1, 1.0)
            assert (await client.told("tester", 0, force="blue"))["forced"]  # a repeated request
            await client.reward("tester", 1, 1.0)
            await client.told("plain", 0)
            await client.reward("plain", 0, 1.0)
            refused(await client.decide("other", 0, force="pink"), 422, "unknown-arm")
            store = client.service.store
            assert [step.decision.fallback for step in await store.session("tester")] == [FORCED, 0]
            rows = [row async for part in batches(store) for row in part]
            assert {row.session for row in rows} == {"plain"}
            survey = await Survey.of(store)
            log = await read_log(store, tmp_path / "log", survey, LABELS)
            assert len(log.sessions) == 1
            buckets = await store.buckets(0.0, 86400.0)
            assert sum(bucket.fallback for bucket in buckets) == 0

    go(scenario())


def test_the_holdout_waits_for_a_ranking_and_then_plays_it_with_certainty(event_store):
    async def scenario():
        async with several(event_store, holdout=0.5) as (client, _):
            service = client.service
            assert {(await client.told(f"early-{i}", 0))["policy"] for i in range(20)} == {"uniform"}
            await service.store.set_setting(POPULARITY, json.dumps(["green", "blue"]), signal=True)
            await service.register.refresh()
            version = await service.register.add_version(policy_bytes(floor=0.3))
            await service.register.promote(version.name, 1.0)
            answers = [await client.told(f"s{i}", 0) for i in range(200)]
            held = [answer for answer in answers if answer["policy"] == HOLDOUT]
            assert 60 < len(held) < 140  # of 200 keyed draws; 5.7 standard deviations on each side
            assert {(answer["label"], answer["propensity"], answer["explored"]) for answer in held} == {
                ("green", 1.0, False)
            }
            second = await client.told(held[0]["session"], 1, 1.0, allowed=["blue", "red"])
            assert (second["label"], second["policy"], second["propensity"]) == ("blue", HOLDOUT, 1.0)
            service._live.clear()
            again = await client.told(held[1]["session"], 1, 0.0)
            assert (again["policy"], again["label"]) == (HOLDOUT, "green")

    go(scenario())


def test_popularity_is_the_order_of_mean_rewards():
    survey = Survey(paid={0: (10, 2.0), 1: (10, 8.0), 2: (1, 1.0)})
    assert survey.popularity(["a", "b", "c", "never played"]) == ["b", "c", "a"]
    assert Survey().popularity(["a"]) == []


def test_tokens_for_some_experiments_open_no_others(event_store):
    tokens = ("all decide watch operate", "shop decide watch experiments=shop", "metrics metrics experiments=shop")

    async def scenario():
        async with several(event_store, "shop", "news", tokens=tokens) as (client, _):
            body = {"session": "a", "step": 0}

            async def status(token: str, path: str, method: str = "POST") -> int:
                headers = {"Authorization": f"Bearer {token}"}
                given = {"json": body} if method == "POST" else {}
                return (await client.http.request(method, path, headers=headers, **given)).status_code

            assert await status("shop", "/v1/experiments/shop/decide") == 200
            assert await status("shop", "/v1/experiments/news/decide") == 403
            assert await status("shop", "/v1/decide") == 403
            assert await status("shop", "/v1/experiments/shop/arms", "GET") == 200
            assert await status("shop", "/v1/experiments", "GET") == 403
            assert await status("metrics", "/metrics", "GET") == 403
            for path in ("/v1/experiments/shop/decide", "/v1/experiments/news/decide", "/v1/decide"):
                assert await status("all", path) == 200

    go(scenario())


def test_sessions_of_all_experiments_share_one_memory(event_store):
    async def scenario():
        async with several(event_store, "shop", memory=0.0045) as (client, experiments):
            shop = experiments.service("shop")
            await client.told("a", 0)
            await shop.decide(_question("b", 0))
            await client.told("c", 0)
            assert (list(client.service._live.sessions), list(shop._live.sessions)) == (["c"], ["b"])
            shop._live.clear()
            await client.told("d", 0)
            assert list(client.service._live.sessions) == ["c", "d"]

    go(scenario())


def test_the_views_of_an_experiment_have_the_columns_of_the_first_one(tmp_path):
    where = str(tmp_path / "events.db")

    async def scenario():
        async with several(where, "shop") as (_, experiments):
            await experiments.service("shop").decide(_question("s", 0))

    go(scenario())
    with contextlib.closing(sqlite3.connect(where)) as db:
        for view in ("decisions", "rewards", "labelled"):
            names = [[row[1] for row in db.execute(f'PRAGMA table_info("{name}")')] for name in (view, f"shop.{view}")]
            assert names[0] == names[1]
        assert db.execute('SELECT session, label IS NOT NULL FROM "shop.labelled"').fetchall() == [("s", 1)]


def test_refits_of_all_experiments_use_their_own_sessions(tmp_path):
    where, rng = str(tmp_path / "events.db"), np.random.default_rng(0)

    async def scenario():
        async with several(where, "shop") as (_, experiments):
            for name, service in experiments.services.items():
                for i in range(30):
                    answer = await service.decide(_question(f"{name}{i}", 0))
                    reward = float(rng.random() < 0.5)
                    await service.store.write(
                        [Job([RewardRow(answer.session, 0, reward, 1.0, 0)], experiment=service.store.experiment)]
                    )

    go(scenario())
    words = ["refit", "--store", where, "--policies", str(tmp_path / "p"), "--experiment", "all", "--json"]
    result = RUNNER.invoke(app, words)
    assert result.exit_code == 0, (result.output, result.exception)
    found = json.loads(result.stdout)
    assert {name for name in found if name != "notes"} == {"default", "shop"}
    assert all("30 sessions" in " ".join(found[name]["lines"]) for name in ("default", "shop"))
    assert (tmp_path / "p" / "shop" / "log").is_dir()
    assert RUNNER.invoke(app, [*words[:-2], "none"]).exit_code == 1
