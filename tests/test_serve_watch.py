"""What the page and Prometheus are told: the summary of steps by hand, and the text of the metrics."""

from __future__ import annotations

import asyncio
import json
import math
import time

import pytest
from serving import Clock, go, policy_bytes, served

from lmab.serve.messages import Problem
from lmab.serve.metrics import BUCKETS, Metrics, Sample, Times
from lmab.serve.stores import ArmCount, Bucket
from lmab.serve.watch import Summaries, arms_by_step, by_version, describe, per_minute

NOW = 10_000.0


def test_versions_are_summed_over_spans():
    buckets = [
        Bucket("new", 7, 2, 4, 2.0, 4.0, 8.0, 1, 1),  # sessions of 2 steps that earned 2 and 0
        Bucket("new", 8, 1, 1, 1.0, 1.0, 1.0, 0, 0),
        Bucket("old", 7, 2, 2, 6.0, 20.0, 2.0, 0, 0),
    ]
    new, old = by_version(buckets)
    reach = 1.96 * 1.0 / math.sqrt(3)  # rewards 2, 0, 1 have the variance 1
    assert (new["version"], new["sessions"], new["mean"]) == ("new", 3, pytest.approx(1.0))
    assert (new["low"], new["high"]) == (pytest.approx(1 - reach), pytest.approx(1 + reach))
    assert (new["explored"], new["fallback"]) == (1 / 5, 1 / 5)
    reach = 1.96 * math.sqrt(1 / 3) / math.sqrt(3)  # lengths 2, 2, 1
    assert new["length"] == {"mean": 5 / 3, "low": pytest.approx(5 / 3 - reach), "high": pytest.approx(5 / 3 + reach)}
    assert (old["sessions"], old["mean"], old["explored"], old["fallback"]) == (2, 3.0, 0.0, 0.0)
    point = describe(buckets[1])
    assert (point["low"], point["mean"], point["high"]) == (1.0, 1.0, 1.0)


def test_minutes_and_arms_by_hand():
    minutes = [Bucket("v", began, n, n, 0.0, 0.0, 1.0, 0, 0) for began, n in ((166, 1), (165, 2), (107, 4), (106, 9))]
    assert per_minute(minutes, NOW) == [4, *[0] * 57, 2, 1]  # the oldest minute first, this minute last
    found = arms_by_step([ArmCount(0, 2, 4), ArmCount(0, 1, 1), ArmCount(1, 0, 1), ArmCount(1, 2, 1)], ["x", "y", "z"])
    assert found["arms"][0] == "z"  # the arm that was played most comes first
    columns = [found["arms"].index(name) for name in ("x", "y", "z")]
    assert [[counts[i] for i in columns] for counts in found["by_step"]] == [[0, 1, 4], [1, 0, 1]]
    assert found["per_step"] == [5, 2]
    gone = arms_by_step([ArmCount(0, 0, 4, 1), ArmCount(0, 1, 2, 2), ArmCount(1, 0, 3, 3), ArmCount(1, 2, 1, 1)], "xyz")
    shares = dict(zip(gone["arms"], gone["left"], strict=True))
    assert shares == {"x": 0.25, "y": 1.0, "z": None}  # the last step of the longest session says nothing
    many = arms_by_step([ArmCount(0, arm, 20 - arm) for arm in range(20)], [str(arm) for arm in range(20)])
    assert many["arms"] == [str(arm) for arm in range(12)]


def test_the_summary_is_made_again_after_two_seconds_and_the_last_refits_come_first(event_store):
    async def scenario():
        clock = Clock()
        async with served(event_store, policy_bytes(), clock=clock) as client:
            nights = [{"outcome": f"night {i}"} for i in range(12)]
            await client.service.store.set_setting("refits", json.dumps(nights))
            summaries = Summaries(client.service, Times())
            await client.told("a", 0)
            first = await summaries.now()
            assert [night["outcome"] for night in first["refits"]] == [f"night {i}" for i in range(11, 1, -1)]
            await client.told("b", 0)
            assert (await summaries.now())["sessions"] == 1
            summaries._made = (time.monotonic() - 0.1, summaries._made[1])  # the time for which it is kept has passed
            assert (await summaries.now())["sessions"] == 2

    go(scenario())


def test_without_a_store_the_summary_is_the_last_one_while_it_is_fresh_and_then_a_problem(event_store):
    async def scenario():
        async with served(event_store, policy_bytes(), clock=Clock()) as client:
            summaries = Summaries(client.service, Times())
            first = await summaries.now()
            client.service.register._opened = False
            assert await summaries.now() is first
            summaries._made = (time.monotonic() - 0.1, first)
            with pytest.raises(Problem):
                await summaries.now()
            assert summaries._task is None  # nothing was asked
            client.service.register._opened = True
            one, other = await asyncio.gather(summaries.now(), summaries.now())
            assert one is other  # asked at the same time, they share it
            assert one is not first

    go(scenario())


def test_buckets_count_all_times_up_to_their_end():
    metrics, own = Metrics(), 'experiment="shop"'
    metrics.requests["shop", "/v1/decide", 200] += 3
    for seconds in (0.0005, 0.0006, 0.3, 7.0):
        metrics.times["shop"].add(seconds)
    labels = (("experiment", 'a"b'),)
    text = metrics.text([Sample("ready", "gauge", 1.0), Sample("explored", "counter", 12345678901, labels)])
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    ends = (*map(str, BUCKETS), "+Inf")
    buckets = {end: int(lines[f'lmab_decision_seconds_bucket{{{own},le="{end}"}}']) for end in ends}
    wanted = {end: sum(seconds <= float(end) for seconds in (0.0005, 0.0006, 0.3, 7.0)) for end in buckets}
    assert buckets == {end: wanted[end] if end != "+Inf" else 4 for end in buckets}
    assert float(lines[f"lmab_decision_seconds_sum{{{own}}}"]) == pytest.approx(7.3011)
    assert lines[f"lmab_decision_seconds_count{{{own}}}"] == "4"
    assert lines[f'lmab_requests_total{{{own},path="/v1/decide",status="200"}}'] == "3"
    assert '# TYPE lmab_explored counter\nlmab_explored{experiment="a\\"b"} 12345678901\n' in text
    assert "# TYPE lmab_ready gauge\nlmab_ready 1.0\n" in text
