"""Tokens: names, roles, the last day, and what a wrong line says."""

from __future__ import annotations

import logging

import pytest
from serving import Clock, go, policy_bytes, refused, served

from lmab.errors import InvalidFile
from lmab.serve.access import Access
from lmab.serve.app import make_app
from lmab.serve.messages import Problem

DAY = 86_400.0
LAST = 1_801_353_600.0  # 2027-01-31T00:00:00Z


def ask(access: Access, token: str, path: str = "/v1/decide", method: str = "POST") -> str:
    return access.check(method, path, {b"authorization": b"Bearer " + token.encode()})


def test_lines_without_name_and_date_stay_valid():
    access = Access(["shop", "a decide watch", "b== erase"])
    assert [(token.name, sorted(token.roles)) for token in access.tokens.values()] == [
        ("token-1", ["decide"]),
        ("token-2", ["decide", "metrics", "watch"]),
        ("token-3", ["erase"]),
    ]
    assert ask(access, "shop") == "token-1"
    assert ask(access, "b==", "/v1/persons/ann", "DELETE") == "token-3"


def test_a_token_is_valid_on_its_last_day_and_expires_after_it(caplog):
    now = [LAST + DAY - 0.001]
    access = Access(["old name=shop until=2027-01-31", "new name=shop"], lambda: now[0])
    assert ask(access, "old") == ask(access, "new") == "shop"
    now[0] = LAST + DAY
    with pytest.raises(Problem, match="the token shop has expired") as caught:
        ask(access, "old")
    assert caught.value.status == 401
    assert ask(access, "new") == "shop"
    with caplog.at_level(logging.WARNING, "lmab.serve"):
        access.replace(["old name=shop until=2027-01-31"])
    assert "the token shop has expired" in caplog.text
    with pytest.raises(Problem, match="expired"):  # a service whose tokens have all expired lets nobody in
        ask(access, "old")


@pytest.mark.parametrize(
    "line",
    [
        "operate 8f1c-secret",  # the other way round
        "8f1c-secret decide nmae=ann",
        "8f1c-secret until=31.1.2027",
        "8f1c-secret until=2027-02-30",
    ],
)
def test_a_wrong_line_is_named_by_its_number_because_it_may_hold_a_secret(line):
    access = Access(["kept"])
    with pytest.raises(InvalidFile, match="token 2: after the token there may be roles") as caught:
        access.replace(["other", line])
    assert "secret" not in str(caught.value)
    assert set(access.tokens) == {b"kept"}


def test_a_token_for_metrics_reads_no_session(tmp_path):
    """The programs that collect metrics keep their token in many places."""

    async def scenario():
        async with served(str(tmp_path / "e.db"), policy_bytes(), tokens=("shop", "prometheus metrics")) as client:
            client.http.headers["Authorization"] = "Bearer shop"
            await client.told("s", 0, person="eve@example.org", features={"diagnosis": "x"})
            client.http.headers["Authorization"] = "Bearer prometheus"
            assert "eve" not in (await client.http.get("/metrics")).text
            for path in ("/v1/summary", "/v1/sessions/s", "/v1/policies", "/v1/arms"):
                refused(await client.http.get(path), 403, "forbidden")
            refused(await client.http.post("/metrics"), 403, "forbidden")

    go(scenario())


def test_an_expired_token_gets_401_from_the_service(tmp_path):
    async def scenario():
        async with served(str(tmp_path / "e.db"), policy_bytes(), clock=Clock()) as client:
            access = Access(["old name=shop until=2027-01-31"], lambda: LAST + 2 * DAY)
            client.http._transport.app = make_app(client.service, access)
            client.http.headers["Authorization"] = "Bearer old"
            answer = await client.decide("s", 0)
            refused(answer, 401, "unauthorised")
            assert answer.headers["www-authenticate"] == "Bearer"

    go(scenario())
