"""The service behind HTTP: tokens, limits, what is said about store and policy, pages for machines, schema tests."""

from __future__ import annotations

import asyncio
import json
from importlib.util import find_spec

import pytest
from policies import of_any_arms
from serving import BANDIT, HORIZON, LABELS, Client, Clock, go, patient, policy_bytes, refused, served

import lmab
from benchmarks.serve_acknowledged import play
from benchmarks.serve_load import write_policy
from benchmarks.serve_schema import ask
from lmab.errors import InvalidArgument, InvalidFile
from lmab.serve.access import Access
from lmab.serve.app import make_app, openapi
from lmab.serve.messages import Problem, Question
from lmab.serve.metrics import REFITS, Times
from lmab.serve.register import KeyedDraws
from lmab.serve.run import Options, check_address, make_service, read_tokens, server
from lmab.serve.service import Service, Settings
from lmab.serve.stores import open_store
from lmab.serve.versions import Defaults


@pytest.fixture
def store(tmp_path):
    return str(tmp_path / "events.db")


def test_a_token_is_needed_where_there_are_tokens(store):
    async def scenario():
        async with served(store, policy_bytes(), tokens=("secret", "other")) as client:
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret"}):
                client.http.headers.clear()
                client.http.headers.update(headers)
                refused(await client.decide("a", 0), 401, "unauthorised")
                refused(await client.http.get("/v1/policies"), 401, "unauthorised")
                refused(await client.http.delete("/v1/persons/x"), 401, "unauthorised")
                assert (await client.http.get("/metrics")).status_code == 401
                for path in ("/", "/healthz", "/readyz", "/openapi.json"):
                    assert (await client.http.get(path)).status_code == 200
            for token in ("secret", "other"):
                client.http.headers["Authorization"] = f"Bearer {token}"
                assert (await client.told("a", 0))["step"] == 0

    go(scenario())


def test_without_tokens_only_this_machine_may_reach_the_service():
    for host in ("127.0.0.1", "::1", "localhost", "127.1.2.3"):
        check_address(host, ())
    for host in ("0.0.0.0", "192.168.1.1", "example.org", "::"):
        with pytest.raises(InvalidArgument, match="--host must be a loopback address"):
            check_address(host, ())
        check_address(host, ("token",))


def test_a_full_queue_answers_429(store):
    async def scenario():
        async with served(store, policy_bytes(), queue=5) as client:
            await client.told("warm", 0)
            answers = await asyncio.gather(*(client.decide(f"s{i}", 0) for i in range(40)))
            statuses = {answer.status_code for answer in answers}
            assert statuses == {200, 429}
            busy = next(answer for answer in answers if answer.status_code == 429)
            refused(busy, 429, "busy")
            assert busy.headers["retry-after"] == "1"
            for index, answer in enumerate(answers):  # a retry gets what it would have got
                again = await client.told(f"s{index}", 0)
                assert answer.status_code == 429 or again == answer.json()

    go(scenario())


class Flaky:
    """Makes the commits of a service fail, as it is told."""

    def __init__(self, service: Service) -> None:
        self.fail = ""
        self._write = service.store.write
        service.store.write = self.write

    async def write(self, jobs):
        if self.fail == "after":  # the commit was durable, but its answer was lost
            await self._write(jobs)
        if self.fail:
            raise OSError("the disk is gone")
        await self._write(jobs)


@pytest.mark.parametrize("how", ["before", "after"])
def test_a_commit_that_fails_acknowledges_nothing_and_a_retry_writes_everything(store, how):
    async def scenario():
        async with served(store, policy_bytes(floor=0.5)) as client:
            flaky = Flaky(client.service)
            await client.told("a", 0)
            flaky.fail = how
            refused(await client.decide("a", 1, 1.0), 503, "no-store")
            refused(await client.reward("a", 0, 1.0), 503, "no-store")
            flaky.fail = ""
            told = await client.told("a", 1, 1.0)
            rows = await client.service.store.session("a")
            assert [row.reward for row in rows] == [1.0, None]
            assert rows[1].decision.arm == told["arm"]

    go(scenario())


def test_a_service_that_may_answer_without_its_store_says_so_and_records_nothing(store):
    async def scenario():
        async with served(store, policy_bytes(floor=0.5), without_store=True) as client:
            flaky = Flaky(client.service)
            first = await client.told("a", 0)
            flaky.fail = "before"
            second = await client.told("a", 1, 1.0)
            assert (first["recorded"], second["recorded"]) == (True, False)
            assert await client.told("a", 1, 1.0) == second
            third = await client.told("a", 2, 0.0)
            flaky.fail = ""
            assert await client.service.commits.probe() == ""
            assert await client.told("a", 2, 0.0) == third  # step 1 is missing, so no later step is recorded
            refused(await client.reward("a", 1, 0.0), 404, "unknown-step")
            assert [step.decision.step for step in await client.service.store.session("a")] == [0]
            assert client.service.counts["unrecorded"] == 4
            assert (await client.told("b", 0))["recorded"]
        async with served(store, without_store=True) as client:
            later = await client.told("a", 3, 1.0)  # what came between is forgotten
            assert (later["step"], later["recorded"], later["fallback"]) == (3, False, True)
            assert await client.told("a", 0) == first
        async with served(store) as client:
            refused(await client.decide("a", 3, 1.0), 409, "out-of-order")

    go(scenario())


def test_a_store_that_stops_answering_holds_nobody_up(tmp_path):
    """The first requests after a partition find out about it: they are refused, or answered where that was wished."""

    async def silent(*given):
        raise TimeoutError

    async def scenario(without_store):
        where = str(tmp_path / f"events{without_store}.db")
        async with served(where, policy_bytes(), without_store=without_store) as client:
            await client.told("s", 0, person="ann")
            client.service._live.clear()
            client.service.store.session = client.service.store.person = silent
            for answer in (await client.decide("s", 1, 1), await client.decide("t", 0, person="ann")):
                if without_store:
                    assert answer.status_code == 200
                else:
                    refused(answer, 503, "no-store")
            if without_store:
                told = (await client.decide("s", 1, 1)).json()
                assert (told["recorded"], told["fallback"]) == (False, True)

    go(scenario(False))
    go(scenario(True))


def test_a_step_far_beyond_the_horizon_costs_nothing_without_the_store(store):
    async def scenario():
        async with served(store, policy_bytes(), without_store=True) as client:
            drawn: list[int] = []

            class Noted(KeyedDraws):
                def __call__(self, session: str, step: int) -> tuple[float, float]:
                    drawn.append(step)
                    return super().__call__(session, step)

            client.service.register.draws = Noted(b"secret")
            await client.told("known", 0)
            client.service._live.clear()
            for session, more in (("known", {}), ("nobody", {}), ("nobody", {"reward": 1})):
                drawn.clear()
                refused(await client.decide(session, 1_000_000, **more), 422, "beyond-horizon")
                assert len(drawn) <= 1  # the version of a session is drawn; its steps are not
            assert (await client.told("nobody", HORIZON - 1))["recorded"] is False

    go(scenario())


def test_draws_are_keyed_so_that_a_process_that_forgot_draws_the_same_arm_again(store):
    async def scenario():
        async with served(store, policy_bytes(floor=1.0), without_store=True) as client:
            Flaky(client.service).fail = "before"
            first = [await client.told(f"s{i}", 0) for i in range(30)]
            client.service._live.clear()
            assert [await client.told(f"s{i}", 0) for i in range(30)] == first
            assert len({told["arm"] for told in first}) == 3

    go(scenario())


@pytest.mark.parametrize("anyway", [False, True])
def test_a_store_that_is_missing_at_the_start(tmp_path, anyway):
    async def scenario():
        (tmp_path / "p.lmab").write_bytes(policy_bytes(floor=0.0))
        where = tmp_path / "later" / "events.db"
        options = Options(str(where), tmp_path / "p.lmab", settings=Settings(without_store=anyway))
        service = make_service(options)
        async with _client(service) as client:
            ready = await client.http.get("/readyz")
            assert ready.status_code == (200 if anyway else 503)  # whether decisions are answered
            assert ready.json()["recorded"] is False
            assert "the store does not answer" in ready.json()["trouble"]
            metrics = (await client.http.get("/metrics")).text
            assert f"lmab_ready {int(anyway)}\n" in metrics
            assert "lmab_recording 0\n" in metrics
            assert (await client.http.get("/healthz")).status_code == 200
            refused(await client.http.get("/v1/sessions/a"), 503, "no-store")
            if anyway:
                told = await client.told("a", 0)
                assert (told["label"], told["recorded"]) == (
                    LABELS[lmab.load(tmp_path / "p.lmab").policy.act_on([])],
                    False,
                )
            else:
                assert (await client.decide("a", 0)).status_code == 503
            where.parent.mkdir()
            await service.register.refresh()
            ready = await client.http.get("/readyz")
            assert (ready.status_code, ready.json()["recorded"]) == (200, True)
            assert "lmab_recording 1\n" in (await client.http.get("/metrics")).text
            assert (await client.told("b", 0))["recorded"]

    go(scenario())


def test_a_policy_that_is_missing_or_broken_is_an_error_before_the_start(tmp_path):
    (tmp_path / "bad.lmab").write_bytes(b"nonsense")
    lmab.Greedy(lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])).save(tmp_path / "endless.lmab")
    settings = Settings(Defaults(None))
    for name, reason in (
        ("missing.lmab", "cannot be read: No such file or directory"),
        ("bad.lmab", "the policy does not load: .*"),
        ("endless.lmab", "the policy must know its horizon"),
        (".", "cannot be read: Is a directory"),
    ):
        options = Options(str(tmp_path / "a.db"), tmp_path / name, arms=LABELS, settings=settings)
        with pytest.raises(InvalidFile, match=f"{name}: {reason}"):
            make_service(options)
    assert not (tmp_path / "a.db").exists()


def test_a_first_policy_that_the_store_refuses_keeps_the_service_from_being_ready(tmp_path):
    """With its arms alone the service would play them at random, and look healthy."""

    async def scenario():
        where = str(tmp_path / "events.db")
        async with served(where) as client:
            await client.service.register.set_arms([1, 2])
        made = lmab.LatentBandit(BANDIT.weights, BANDIT.rewards, ("1", "2", "3"))
        lmab.plan(made, horizon=2).policy.save(tmp_path / "p.lmab")
        async with _client(make_service(Options(where, tmp_path / "p.lmab"))) as client:
            for _ in range(2):
                ready = await client.http.get("/readyz")
                assert (ready.status_code, ready.json()["ready"]) == (503, False)
                assert "arms must be distinct labels" in ready.json()["trouble"]
                with pytest.raises(Problem):
                    await client.service.register.refresh()

    go(scenario())


def test_the_file_at_the_start_does_not_undo_what_was_promoted_since(tmp_path):
    async def scenario():
        (tmp_path / "p.lmab").write_bytes(policy_bytes(floor=0.0))
        options = Options(str(tmp_path / "a.db"), tmp_path / "p.lmab")
        async with _client(make_service(options)) as client:
            first = (await client.told("a", 0))["policy"]
            version = await client.service.register.add_version(policy_bytes(seed=5))
            await client.service.register.promote(version.name, 1.0)
        async with _client(make_service(options)) as client:
            assert (await client.told("b", 0))["policy"] == version.name != first
            await client.service.register.retire(first)
        async with _client(make_service(options)) as client:  # nor does the file come back when it was retired
            assert (await client.told("c", 0))["policy"] == version.name
            assert await client.service.store.version(first) is None

    go(scenario())


def test_policies_that_cannot_be_served_are_refused_by_name(store):
    async def scenario():
        async with served(store, defaults=Defaults()) as client:
            bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
            for value, reason in (
                (lmab.Thompson(bandit, horizon=3), "must be deterministic"),
                (lmab.Greedy(bandit), "must know its horizon"),
                (of_any_arms("sequence-numbered"), "must know how many arms"),
                (bandit, "must hold a policy, got a LatentBandit"),
            ):
                path = f"{store}.lmab"
                value.save(path)
                with open(path, "rb") as stream:
                    answer = await client.http.put("/v1/policies", content=stream.read())
                refused(answer, 422, "bad-policy")
                assert reason in answer.json()["error"]

    go(scenario())


def test_requests_of_every_path_are_counted_by_how_they_ended(store):
    async def scenario():
        async with served(store, policy_bytes(floor=0.5)) as client:
            for _ in range(2):
                assert (await client.http.get("/v1/summary")).status_code == 200
            lines = (await client.http.get("/metrics")).text.splitlines()
            counted = [line for line in lines if line.startswith("lmab_requests_total") and "summary" in line]
            assert [line.rpartition(" ")[2] for line in counted] == ["2"], lines

    go(scenario())


def test_metrics_summary_and_description(store):
    async def scenario():
        async with served(store, policy_bytes(floor=0.5)) as client:
            for i in range(10):
                await client.told(f"s{i}", 0)
                await client.told(f"s{i}", 1, 1.0)
            await client.decide("s0", 5)
            text = (await client.http.get("/metrics")).text
            where = 'experiment="default",path="/v1/decide"'
            assert f'lmab_requests_total{{{where},status="200"}} 20' in text
            assert f'lmab_requests_total{{{where},status="409"}} 1' in text
            assert 'lmab_refused_total{experiment="default",code="out-of-order"} 1' in text
            assert 'lmab_decision_seconds_count{experiment="default"} 21' in text  # with failures
            of_version = f'{{experiment="default",version="{client.service.register.rollout.active}"}}'
            assert f"lmab_sessions_total{of_version} 10\n" in text
            assert f"lmab_version_rewards_total{of_version} 10\n" in text
            assert f"lmab_reward_sum_total{of_version} 10.0\n" in text
            assert 'lmab_build_info{version="' in text
            assert "lmab_store_bytes " in text
            assert "lmab_ready 1" in text
            summary = (await client.http.get("/v1/summary")).json()
            (version,) = summary["versions"]
            assert (version["sessions"], version["mean"], version["low"]) == (10, 1.0, 1.0)
            assert [(point["at"], point["sessions"]) for point in summary["series"]] == [(999_960.0, 10)]
            assert summary["per_step"] == [10, 10]
            assert sum(summary["per_minute"]) == 10
            assert sum(map(sum, summary["by_step"])) == 20
            assert len(summary["recent"]) == 10
            described = (await client.http.get("/openapi.json")).json()
            assert described == json.loads(json.dumps(openapi()))
            paths = {path for path in described["paths"] if "{" not in path}
            for path in paths:  # every described path is there
                assert (await client.http.request("PATCH", path)).status_code == 405
            assert "reward" in described["components"]["schemas"]["Question"]["properties"]

    go(scenario())


def test_metrics_count_rewards_and_say_when_the_last_refit_ended(store):
    async def scenario():
        async with served(store, policy_bytes()) as client:
            await client.told("s", 0)
            assert "last_refit" not in (await client.http.get("/metrics")).text  # nobody has refitted yet
            await client.told("s", 1, 1.0)
            await client.reward("s", 1, 0.0)
            refused(await client.reward("s", 1, 1.0), 409, "other-reward")
            await client.service.store.set_setting(REFITS, '[{"at": 1}, {"at": 1234567.5}]')
            text = (await client.http.get("/metrics")).text
            assert '\nlmab_rewards_total{experiment="default"} 2\n' in text
            line = 'lmab_last_refit_timestamp_seconds{experiment="default"} 1234567.5'
            assert f"\n# TYPE lmab_last_refit_timestamp_seconds gauge\n{line}\n" in text

            async def fail(*given):
                raise OSError("the store is away")

            client.service.store.setting = fail
            assert line in (await client.http.get("/metrics")).text

    go(scenario())


def test_every_path_of_the_service_is_described(store):
    async def scenario():
        async with served(store, policy_bytes(), tokens=("all decide watch operate erase",)) as client:
            described = (await client.http.get("/openapi.json")).json()["paths"]
            assert {"/v1/summary", "/healthz", "/readyz", "/metrics"} <= set(described)
            for path in ("/healthz", "/readyz", "/metrics", "/v1/summary"):
                answer = await client.http.get(path)
                needs_token = answer.status_code == 401
                assert needs_token == ("x-role" in described[path]["get"]) == ("security" not in described[path]["get"])
                client.http.headers["Authorization"] = "Bearer all"
                answer = await client.http.get(path)
                client.http.headers.clear()
                (kind,) = described[path]["get"]["responses"]["200"]["content"]
                assert answer.headers["content-type"].partition(";")[0] == kind
            assert set(described["/readyz"]["get"]["responses"]) == {"200", "503", "default"}

    go(scenario())


def test_a_wrong_method_is_told_the_right_ones(store):
    right = {"/v1/decide": {"POST"}, "/v1/arms": {"GET", "HEAD", "PUT"}, "/healthz": {"GET", "HEAD"}}

    async def scenario():
        async with served(store, policy_bytes()) as client:
            for path, methods in right.items():
                answer = await client.http.request("PATCH", path)
                refused(answer, 405, "wrong-method")
                assert set(answer.headers["allow"].split(", ")) == methods

    go(scenario())


def test_whole_numbers_are_integers_however_they_are_written(store):
    async def scenario():
        async with served(store, policy_bytes()) as client:
            for text, status in (
                (b'{"session": "a", "step": 0.0}', 200),
                (b'{"session": "a", "step": 1.0, "reward": 1, "allowed": ["red"]}', 200),
                (b'{"session": "a", "step": 20e-1, "reward": 1}', 200),
                (b'{"session": "a", "step": 1.5}', 400),
                (b'{"session": "a", "step": "1"}', 400),
                (b'{"session": "a", "step": 1e300}', 400),
                (b'{"session": "a", "step": 1.0, "more": ' + b"[" * 20_000, 400),
            ):
                answer = await client.http.post("/v1/decide", content=text)
                assert answer.status_code == status, (text[:50], answer.text)
            late = b'{"rewards": [{"session": "a", "step": 2.0, "reward": 0.0}]}'
            assert (await client.http.post("/v1/rewards", content=late)).status_code == 200
            assert [row.reward for row in await client.service.store.session("a")] == [1.0, 1.0, 0.0]

    go(scenario())


def test_quantiles_of_the_times():
    times = Times()
    assert times.quantile(0.5) is None
    for seconds in [0.0004] * 98 + [0.02, 99.0]:
        times.add(seconds)
    assert (times.quantile(0.5), times.quantile(0.99), times.quantile(1.0)) == (0.0005, 0.025, 10.0)


def test_whatever_was_acknowledged_is_in_the_store(event_store, tmp_path):
    write_policy(tmp_path / "policy.lmab")
    statuses = asyncio.run(play(patient(open_store(event_store)), tmp_path / "policy.lmab", 1500, seed=1))
    assert statuses[200] > 300
    assert {400, 404, 409, 422} <= set(statuses) <= {200, 400, 404, 409, 410, 422}


@pytest.mark.skipif(find_spec("schemathesis") is None, reason="schemathesis is not installed: the extra dev has it")
def test_answers_are_as_the_description_of_the_service_says(tmp_path):
    others = r"/v1/experiments/\{experiment\}/(?!decide|rewards)"  # the same endpoints a second time
    status, text = ask(tmp_path, examples=20, seed=1, phases="coverage,fuzzing", without=others)
    assert status == 0, text


class _client:
    """A client of a service that is started and stopped."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def __aenter__(self) -> Client:
        import httpx

        await self.service.start(watch=False)
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=make_app(self.service)), base_url="http://service"
        )
        return Client(self.service, self.http)

    async def __aexit__(self, *problem: object) -> None:
        await self.http.aclose()
        await self.service.stop()


def test_stores_by_address(tmp_path):
    assert type(open_store(str(tmp_path / "x"))).__name__ == "SqliteStore"
    assert type(open_store("postgresql://localhost/x")).__name__ == "PostgresStore"


def test_roles_say_who_may_ask_what(store):
    asked = {
        "decide": [("POST", "/v1/decide"), ("POST", "/v1/rewards")],
        "metrics": [("GET", "/metrics"), ("HEAD", "/metrics")],
        "watch": [("GET", "/v1/summary"), ("GET", "/v1/sessions/a"), ("GET", "/v1/policies")],
        "operate": [("PUT", "/v1/arms"), ("PUT", "/v1/policies"), ("POST", "/v1/policies:rollback")],
        "erase": [("DELETE", "/v1/persons/ann")],
    }
    tokens = ("front", "scraper metrics", "eyes watch", "hands operate", "rubber erase", "all decide operate erase")
    may = {"front": {"decide"}, "scraper": {"metrics"}, "eyes": {"metrics", "watch"}, "rubber": {"erase"}}
    may |= {"hands": {"metrics", "watch", "operate"}, "all": {"decide", "metrics", "watch", "operate", "erase"}}

    async def scenario():
        async with served(store, policy_bytes(), tokens=tokens) as client:
            for token, roles in may.items():
                client.http.headers["Authorization"] = f"Bearer {token}"
                for role, requests in asked.items():
                    for method, path in requests:
                        answer = await client.http.request(method, path, content=b"")
                        assert (answer.status_code == 403) == (role not in roles), (token, method, path)

    go(scenario())


def test_unknown_roles_are_refused_and_tokens_are_read_again(tmp_path, monkeypatch):
    with pytest.raises(InvalidFile, match=r"token 1: after the token there may be roles \(decide, metrics, watch"):
        Access(["token admin"])
    path = tmp_path / "tokens"
    path.write_text("one\n")
    running = server(Options(str(tmp_path / "e.db"), host="0.0.0.0", token_file=path))
    access = running.config.app.access
    path.write_text("two operate\n")
    running.reload_tokens()
    assert set(access.tokens) == {b"two"}
    path.write_text("two root\n")
    running.reload_tokens()  # wrong: the old ones stay
    path.write_text("")
    running.reload_tokens()
    assert set(access.tokens) == {b"two"}
    monkeypatch.setenv("LMAB_TOKENS", "env; other watch")
    assert read_tokens(None) == ("env", "other watch")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "127.0.0.1:8000"}, 200),
        ({"Host": "[::1]:8000"}, 200),
        ({"Host": "localhost"}, 200),
        ({"Host": "lmab"}, 200),
        ({"Host": "evil.example:8000"}, 403),
        ({"Host": "localhost:8000", "Origin": "http://localhost:8000"}, 200),
        ({"Host": "localhost:8000", "Origin": "https://evil.example"}, 403),
        ({"Host": "localhost:8000", "Origin": "null"}, 403),
    ],
)
def test_without_tokens_pages_of_other_sites_are_refused(store, headers, status):
    async def scenario():
        async with served(store, policy_bytes()) as client:
            answer = await client.http.post("/v1/decide", json={"session": "a", "step": 0}, headers=headers)
            assert answer.status_code == status, answer.text
            assert (await client.http.get("/v1/summary", headers=headers)).status_code == status

    go(scenario())


def test_every_answer_has_the_headers_of_safety(store):
    async def scenario():
        async with served(store, policy_bytes()) as client:
            for answer in (await client.decide("a", 0), await client.http.get("/"), await client.http.get("/nothing")):
                assert answer.headers["x-content-type-options"] == "nosniff"
                assert "unsafe-inline" not in answer.headers["content-security-policy"]
                assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            page = (await client.http.get("/")).text
            assert "<style" not in page
            assert " style=" not in page
            assert (await client.http.get("/page.js")).headers["content-type"].startswith("text/javascript")
            assert (await client.http.get("/page.css")).status_code == 200

    go(scenario())


def test_a_store_that_takes_no_writes_is_not_ready(store):
    async def scenario():
        async with served(store, policy_bytes()) as client:
            assert (await client.http.get("/readyz")).status_code == 200
            flaky = Flaky(client.service)
            probe = client.service.store.probe

            async def fail():
                raise OSError("no space left")

            flaky.fail, client.service.store.probe = "before", fail
            refused(await client.decide("a", 0), 503, "no-store")
            ready = await client.http.get("/readyz")
            assert (ready.status_code, ready.json()["trouble"]) == (503, "the store takes no writes: OSError")
            assert "\nlmab_ready 0\n" in (await client.http.get("/metrics")).text
            flaky.fail, client.service.store.probe = "", probe
            assert await client.service.commits.probe() == ""
            assert (await client.http.get("/readyz")).status_code == 200
            assert "\nlmab_ready 1\n" in (await client.http.get("/metrics")).text

    go(scenario())


def test_arms_withdrawn_over_http_stay_so_and_are_not_played_by_sessions_under_way(tmp_path):
    where = str(tmp_path / "events.db")
    options = Options(where, arms=tuple(LABELS), settings=Settings(Defaults(40)))

    async def scenario():
        service = make_service(options)
        await service.start(watch=False)
        await service.decide(Question("w", 0))
        await service.register.set_arms(["blue"])
        answers = [await service.decide(Question("w", step)) for step in range(1, 40)]
        assert {(answer.label, answer.propensity) for answer in answers} == {("blue", 1.0)}
        await service.stop()
        again = make_service(options)
        await again.start(watch=False)
        assert [arm.label for arm in again.register.arms if arm.is_open] == ["blue"]
        await again.stop()

    go(scenario())


def test_labels_stay_apart_as_text_and_fit_a_column_of_integers(store):
    async def scenario():
        async with served(store, policy_bytes()) as client:
            for arms in (["1", 1], ["red", "red"], ["a\0"]):
                refused(await client.http.put("/v1/arms", json={"arms": arms}), 422, "bad-value")
            refused(await client.http.put("/v1/arms", json={"arms": [10**30]}), 400, "malformed")
            await client.http.put("/v1/arms", json={"arms": [1]})
            refused(await client.http.put("/v1/arms", json={"arms": ["1"]}), 422, "bad-value")

    go(scenario())


def test_uniform_without_a_horizon_is_not_promoted(store):
    async def scenario():
        async with served(store, policy_bytes(), defaults=Defaults()) as client:
            answer = await client.http.post("/v1/policies/uniform:promote", json={"share": 1})
            refused(answer, 422, "bad-value")
            assert (await client.told("a", 0))["step"] == 0

    go(scenario())


def test_a_promotion_names_its_share(store):
    """Without a share a slip of the hand gave an untested version all sessions."""

    async def scenario():
        async with served(store) as client:
            register = client.service.register
            name = (await register.add_version(policy_bytes(seed=1))).name
            before = await register.store.rollouts(10)
            refused(await client.http.post(f"/v1/policies/{name}:promote", json={}), 400, "malformed")
            assert await register.store.rollouts(10) == before

    go(scenario())


def test_rollback_is_a_stack(store):
    async def scenario():
        async with served(store) as client:
            register = client.service.register
            names = [(await register.add_version(policy_bytes(seed=seed))).name for seed in (1, 2, 3)]
            for name in names:
                await register.promote(name, 1.0)
            assert [(await register.rollback(name)).active for name in names[:0:-1]] == [names[1], names[0]]
            with pytest.raises(Problem, match="no earlier version"):
                await register.rollback(names[0])
            await register.promote(names[2], 1.0)
            assert (await register.rollback(names[2])).active == names[0]

    go(scenario())


def test_old_sessions_are_deleted(store):
    async def scenario():
        clock = Clock()
        async with served(store, policy_bytes(), clock=clock, keep=1000.0) as client:
            await client.told("old", 0)
            clock.now += 900
            await client.told("new", 0)
            assert await client.service.forget_old_sessions() == 0
            clock.now += 700
            assert await client.service.forget_old_sessions() == 1
            assert [row.session for row in await client.service.store.rows(0.0, 1e12)] == ["new"]

    go(scenario())


def test_shares_of_versions_are_those_of_the_sessions_they_get(tmp_path):
    async def scenario():
        async with served(str(tmp_path / "events.db"), policy_bytes()) as client:
            canary = await client.service.register.add_version(policy_bytes(seed=1))
            await client.service.register.promote(canary.name, 0.2)
            answer = await client.http.get("/v1/policies")
            assert answer.status_code == 200, answer.text
            found = answer.json()
            shares = {row["version"]: row["share"] for row in found["versions"]}
            assert shares == pytest.approx({found["active"]: 0.8, found["canary"]: 0.2})
            assert found["canary"] == canary.name

    go(scenario())
