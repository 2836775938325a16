"""The log: one line for every action of an operator and every erasure, ids of requests, text or JSON."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re

import pytest
from serving import go, policy_bytes, served

from lmab.serve.commits import Commits
from lmab.serve.logs import Lines, begin_request, request_id, token_name
from lmab.serve.messages import Problem
from lmab.serve.stores import Job

TOKENS = ("alice-token operate name=alice", "bob-token operate erase name=bob", "shop decide")


@pytest.fixture
def written():
    """Every line that the service logs, as JSON objects."""
    stream, logger = io.StringIO(), logging.getLogger("lmab")
    handler, level = logging.StreamHandler(stream), logger.level
    handler.setFormatter(Lines(as_json=True))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.fixture(autouse=True)
def outside():
    """Tests run outside of any request."""
    request_id.set("")
    token_name.set("")


def test_every_action_of_an_operator_and_every_erasure_leaves_one_line(tmp_path, written):
    async def scenario():
        async with served(str(tmp_path / "e.db"), policy_bytes(), tokens=TOKENS) as client:

            async def ask(token, method, path, **more):
                headers = {"Authorization": f"Bearer {token}", "X-Request-Id": f"{token}:{method}"}
                answer = await client.http.request(method, path, headers=headers, **more)
                assert answer.headers["x-request-id"] == f"{token}:{method}"
                return answer

            await ask("shop", "POST", "/v1/decide", json={"session": "s", "step": 0, "person": "dorothy"})
            put = await ask("alice-token", "PUT", "/v1/policies?note=hello", content=policy_bytes(seed=3))
            version = put.json()["version"]
            await ask("alice-token", "POST", f"/v1/policies/{version}:promote", json={"share": 0.5})
            await ask("alice-token", "POST", "/v1/policies/nothing:promote", json={"share": 1})
            await ask("bob-token", "PUT", "/v1/arms", json={"arms": ["red", "blue"]})
            await ask("bob-token", "DELETE", "/v1/persons/dorothy")
            await ask("alice-token", "GET", "/v1/policies")
            await ask("alice-token", "DELETE", "/v1/persons/dorothy")  # refused
            return version

    name = asyncio.run(scenario())
    lines = [line for line in written() if line["logger"] == "lmab.audit"]
    found = [(line["token"], line["action"], line["object"], line["status"], line.get("code")) for line in lines]
    assert found[:4] == [
        ("alice", "add-version", name, 200, None),
        ("alice", "promote", f"{name} to 0.5 of new sessions", 200, None),
        ("alice", "promote", "nothing to 1 of new sessions", 404, "unknown-policy"),
        ("bob", "set-arms", "red, blue", 200, None),
    ]
    assert found[4][:2] == ("bob", "erase")
    assert re.fullmatch("person [0-9a-f]{16}", found[4][2])
    assert len(found) == 5
    assert [line["request"] for line in lines[:2]] == ["alice-token:PUT", "alice-token:POST"]
    assert all(line["time"].endswith("+00:00") and line["level"] == "INFO" for line in lines)
    (refusal,) = [line for line in written() if "was refused" in line["message"]]
    counts = [line["refused"] for line in written() if line["message"].startswith("refused requests: ")]
    assert counts[0] == {"default: unknown-policy": 1}  # at most one line per second
    assert refusal["message"] == "the token alice was refused: this needs the role erase"
    assert refusal["request"] == "alice-token:DELETE"
    assert "dorothy" not in json.dumps(written())  # the log outlives the erasure
    assert not any(token.split()[0] in json.dumps([line["message"] for line in written()]) for token in TOKENS[:2])


def test_an_id_that_could_forge_a_line_is_replaced(tmp_path):
    token_name.set("ann")
    own = begin_request(b"")
    assert token_name.get() == ""  # nobody has shown a token yet
    assert re.fullmatch("[0-9a-f]{12}-[0-9]+", own)
    assert begin_request(b"proxy-1:2/3") == request_id.get() == "proxy-1:2/3"
    for given in (b"a\nb", b"x" * 129, "\u00e4".encode(), b"a b", b'"'):
        assert begin_request(given) not in (own, given.decode())

    async def scenario():
        async with served(str(tmp_path / "e.db"), policy_bytes()) as client:
            seen = set()
            for path in ("/healthz", "/v1/decide", "/nothing", "/v1/arms", "/"):
                seen.add((await client.http.get(path)).headers["x-request-id"])
            assert len(seen) == 5
            answer = await client.http.get("/healthz", headers={"X-Request-Id": "abc"})
            assert answer.headers["x-request-id"] == "abc"

    go(scenario())


def test_lines_as_text_and_as_json():
    def record(text, *values, **fields):
        return logging.LogRecord("lmab.serve", logging.ERROR, "f", 1, text, values, fields.get("error"))

    assert Lines().format(record("%d things", 3)).endswith(" ERROR lmab.serve: 3 things")
    begin_request(b"r1")
    token_name.set("ann")
    assert Lines().format(record("%d things", 3)).endswith(" ERROR lmab.serve [r1]: 3 things")
    try:
        raise OSError("gone")
    except OSError as error:
        line = Lines(as_json=True).format(record("two\nlines", error=(OSError, error, error.__traceback__)))
    found = json.loads(line)
    assert "\n" not in line
    assert found | {"time": "", "exception": ""} == {
        "time": "", "level": "ERROR", "logger": "lmab.serve", "message": "two\nlines", "request": "r1", "token": "ann",
        "exception": "",
    }  # fmt: skip
    assert "OSError: gone" in found["exception"]


def test_a_failed_commit_names_the_requests_that_it_refused(written):
    class Broken:
        async def write(self, jobs):
            raise OSError("full")

        async def probe(self):
            raise OSError("full")

    async def scenario():
        commits = Commits(Broken(), 10)

        async def ask(name):
            begin_request(name)
            with pytest.raises(Problem):
                await commits.commit(Job())

        await asyncio.gather(*(asyncio.create_task(ask(name)) for name in (b"r1", b"r2")))

    go(scenario())
    (line,) = [line for line in written() if "could not be stored" in line["message"]]
    assert line["requests"] == ["r1", "r2"]
    assert "request" not in line  # it belongs to no single one


def test_lines_of_a_request_have_its_trace_id(written):
    begin_request(b"id-1", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
    logging.getLogger("lmab.serve").warning("inside")
    begin_request(b"id-2", b"nonsense")
    logging.getLogger("lmab.serve").warning("without")
    first, second = written()[-2:]
    assert first["trace"] == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert "trace" not in second
