"""The page of the service in a real browser against a live server: it fills, fits, and asks nobody else."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import browser
import pytest

from benchmarks.serve_kill import swapper
from benchmarks.serve_load import HOST, Record, Served, player, write_policy
from lmab.serve.refit import RefitOptions, refit
from lmab.serve.stores import open_store

CHROMIUM, REASON = browser.find()
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason=REASON),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # the driver's own pipes
]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A server that has played some sessions, half of them with a canary, which a refit has looked at."""
    folder = tmp_path_factory.mktemp("served")
    write_policy(folder / "policy.lmab")
    served = Served(str(folder / "events.db"), str(folder / "policy.lmab"))
    served.start()
    record = Record()

    async def played(until: int, tag: str) -> None:
        def enough() -> bool:
            return record.acknowledged >= until

        await asyncio.gather(*(player(f"{tag}{i}", [served.port], record, enough, seed=i) for i in range(8)))

    async def fill() -> None:
        await played(800, "p")
        await asyncio.to_thread(swapper(served, folder), 0)
        await played(2000, "q")
        store = open_store(served.store)
        await store.open()
        later = max(row.at for row in await store.rows(0.0, 1e12)) + 4000  # every reward has come by then
        await refit(store, folder / "policies", RefitOptions(types=2, least=100, time_limit=5.0), rng=0, now=later)
        await store.close()

    try:
        asyncio.run(fill())
        yield f"http://{HOST}:{served.port}/"
    finally:
        served.kill()


@pytest.fixture(scope="module")
def chromium(service):  # after it: the driver has a loop of its own
    assert CHROMIUM is not None
    with browser.launched(CHROMIUM) as running:
        yield running


def test_days_have_the_names_of_days_of_utc_wherever_the_reader_is(chromium, service):
    """The first second of a day of UTC is still the day before in Los Angeles."""
    page = chromium.new_context(timezone_id="America/Los_Angeles", locale="en-US").new_page()
    page.goto(service)
    assert page.evaluate("day(1767225600, 86400)") == "1/1/2026"
    assert page.evaluate("day(1767225600, 3600)") == "04:00 PM"
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [(390, 844), (1440, 900)], ids=["phone", "desktop"])
def test_the_page_fills_and_fits(chromium, service, tmp_path, size, scheme):
    page = chromium.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    requests: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(service)
    page.wait_for_selector("#history table")
    assert complaints == []
    assert all(url.startswith(service) for url in requests)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    text = page.inner_text("body")
    for words in ("in force", "canary", "sessions", "explored", "Canary", "type 1", "step 4", "arm-", "the plan"):
        assert words in text, words
    assert page.evaluate("document.querySelectorAll('#minutes rect').length") == 60
    assert page.evaluate("document.querySelectorAll('#history tr').length") >= 3
    assert page.inner_text("#problem") == ""
    page.fill("#session", "nobody")
    page.click("#show")
    page.locator("#history", has_text="not known").wait_for()
    folder = Path(os.environ.get("LMAB_SCREENSHOTS", tmp_path))
    picture = folder / f"service-{size[0]}-{scheme}.png"
    page.fill("#session", "p1-0")
    page.click("#show")
    page.wait_for_selector("#history table")
    page.screenshot(path=picture, full_page=True)
    assert picture.stat().st_size > 10_000
    page.close()
