"""What the page and Prometheus are told: the summary of steps by hand, and the text of the metrics."""

from __future__ import annotations

import json
import math

import pytest
from serving import Clock, go, policy_bytes, served

from lmab.serve.metrics import BUCKETS, Metrics
from lmab.serve.summary import Summaries, summarise

NOW = 10_000.0


def row(session, step, arm, reward, policy, at, explored=0, fallback=0, began=NOW - 30):
    return (session, step, arm, reward, 0.5, policy, at, explored, fallback, began)


def test_the_summary_of_steps_by_hand():
    rows = [
        row("a", 0, 2, 1.0, "new", 9_900.0, explored=1),
        row("a", 1, 0, 1.0, "new", 9_950.0),
        row("b", 0, 2, 0.0, "new", 9_960.0, began=NOW - 90),
        row("b", 1, 2, None, "new", 9_970.0, fallback=1, began=NOW - 90),
        row("c", 0, 1, 1.0, "new", 9_990.0, began=NOW - 95),
        row("d", 0, 2, 4.0, "old", 9_000.0, began=NOW - 59 * 60 - 30),
        row("e", 0, 2, 2.0, "old", 8_000.0, began=NOW - 7200),  # too long ago for the last hour
    ]
    found = summarise(rows, ["x", "y", "z"], NOW)
    new, old = found["versions"]
    reach = 1.96 * 1.0 / math.sqrt(3)  # rewards 2, 0, 1 have the variance 1
    assert (new["version"], new["sessions"], new["mean"]) == ("new", 3, pytest.approx(1.0))
    assert (new["low"], new["high"]) == (pytest.approx(1 - reach), pytest.approx(1 + reach))
    assert (new["explored"], new["fallback"]) == (1 / 5, 1 / 5)
    assert (old["sessions"], old["mean"], old["explored"], old["fallback"]) == (2, 3.0, 0.0, 0.0)
    assert found["sessions"] == 5
    assert found["arms"][0] == "z"  # the arm that was played most comes first
    columns = [found["arms"].index(name) for name in ("x", "y", "z")]
    assert [[counts[i] for i in columns] for counts in found["by_step"]] == [[0, 1, 4], [1, 0, 1]]
    assert found["per_step"] == [5, 2]
    assert found["per_minute"] == [1, *[0] * 57, 2, 1]  # the oldest minute first, this minute last
    assert found["recent"] == ["c", "b", "a", "d", "e"]


def test_few_arms_and_few_sessions_are_shown_by_name():
    rows = [row(f"s{i}", 0, min(i, 39 - i), 1.0, "v", 100.0 + i) for i in range(40)]
    found = summarise([*rows, *rows[:1]], list(range(20)), NOW)
    assert len(found["arms"]) == 12
    assert found["arms"][0] == "0"
    assert found["recent"] == [f"s{i}" for i in range(39, 19, -1)]


def test_one_session_has_a_mean_without_a_spread():
    (version,) = summarise([row("a", 0, 0, 1.0, "v", 0.0)], ["x"], NOW)["versions"]
    assert (version["low"], version["mean"], version["high"]) == (1.0, 1.0, 1.0)


def test_the_summary_is_made_again_after_two_seconds_and_the_last_refits_come_first(event_store):
    async def scenario():
        clock = Clock()
        async with served(event_store, policy_bytes(), clock=clock) as client:
            nights = [{"outcome": f"night {i}"} for i in range(12)]
            await client.service.store.set_setting("refits", json.dumps(nights))
            summaries = Summaries(client.service, Metrics())
            await client.told("a", 0)
            first = await summaries.now()
            assert [night["outcome"] for night in first["refits"]] == [f"night {i}" for i in range(11, 1, -1)]
            await client.told("b", 0)
            clock.now += 1
            assert (await summaries.now())["sessions"] == 1
            clock.now += 1.5
            assert (await summaries.now())["sessions"] == 2

    go(scenario())


def test_buckets_count_all_times_up_to_their_end():
    metrics = Metrics()
    metrics.requests["/v1/decide", 200] += 3
    for seconds in (0.0005, 0.0006, 0.3, 7.0):
        metrics.decided(seconds)
    text = metrics.text({"ready": 1.0}, {"explored": 5})
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    buckets = {end: int(lines[f'lmab_decision_seconds_bucket{{le="{end}"}}']) for end in (*map(str, BUCKETS), "+Inf")}
    wanted = {end: sum(seconds <= float(end) for seconds in (0.0005, 0.0006, 0.3, 7.0)) for end in buckets}
    assert buckets == {end: wanted[end] if end != "+Inf" else 4 for end in buckets}
    assert float(lines["lmab_decision_seconds_sum"]) == pytest.approx(7.3011)
    assert lines["lmab_decision_seconds_count"] == "4"
    assert lines['lmab_requests_total{path="/v1/decide",status="200"}'] == "3"
    assert "# TYPE lmab_explored counter\nlmab_explored 5\n# TYPE lmab_ready gauge\nlmab_ready 1\n" in text
