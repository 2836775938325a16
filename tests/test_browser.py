"""The report in a real browser: nothing fetched, nothing complained about, nothing cut off, light and dark.

Screenshots go to the folder named by LMAB_SCREENSHOTS, or to pytest's temporary folder.
"""

from __future__ import annotations

import os
from pathlib import Path

import browser
import numpy as np
import pytest

import lmab
from lmab import reporting

CHROMIUM, REASON = browser.find()
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason=REASON),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # the driver's own pipes
]

SIZES = [(390, 844), (1440, 900)]
NAMES = ["small", "large", "two", "fifteen"]
LONG = [
    "Dr. Strangelove or: How I Learned to Stop Worrying and Love the Bomb",
    "Donaudampfschifffahrtsgesellschaftskapitän",
    "Star Wars",
]


@pytest.fixture(scope="module")
def chromium():
    assert CHROMIUM is not None
    with browser.launched(CHROMIUM) as running:
        yield running


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    rng = np.random.default_rng(0)
    small = lmab.random_bandit(4, 20, rng=rng)
    large = lmab.random_bandit(12, 200, kind="hard", rng=rng)
    log = lmab.simulate(small, lmab.Uniform(20), n_sessions=1000, horizon=7, rng=rng)
    estimate = lmab.fit(log, n_types="auto", method=lmab.EM(prior=1.0, restarts=4), rng=rng)
    plan = lmab.plan(estimate.bandit, horizon=5)
    assessment = lmab.assess(estimate, plan, log, n_draws=20, rng=rng)
    held = lmab.simulate(small, lmab.Uniform(20), n_sessions=1000, horizon=7, rng=rng)
    everything = reporting.gather(estimate, plan, sessions=held, assessment=assessment)
    reporting.write(everything, folder / "small.html")
    reporting.write(reporting.gather(large, horizon=7, time_limit=2.0), folder / "large.html")
    for name, n_types in (("two", 2), ("fifteen", 15)):
        bandit = lmab.random_bandit(n_types, 40, rng=rng)
        labels = tuple(f"{LONG[k % 3]} ({1950 + k})" for k in range(40))
        named = lmab.LatentBandit(bandit.weights, bandit.rewards, labels)
        reporting.write(reporting.gather(named, horizon=5, time_limit=2.0), folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in NAMES}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES, ids=["phone", "desktop"])
@pytest.mark.parametrize("name", NAMES)
def test_the_report_opens_from_disk(chromium, pages, tmp_path, name, size, scheme):
    width, height = size
    page = chromium.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    requests: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(pages[name].as_uri())

    assert requests == [pages[name].as_uri()]
    assert complaints == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper, ink = page.evaluate("(s => [s.backgroundColor, s.color])(getComputedStyle(document.body))")
    assert (_brightness(paper) > _brightness(ink)) == (scheme == "light")
    assert page.evaluate(_CUT_OFF) == []
    assert page.evaluate(_TALL) == []
    assert page.evaluate("getComputedStyle(document.querySelector('.scrolls')).display") == (
        "block" if width == 390 else "none"
    )
    if width == 1440 and name in ("two", "fifteen"):  # the width is used
        assert (
            page.evaluate(
                "Math.max(...[...document.querySelectorAll('.type, .tree, .bars')].map(_right))".replace(
                    "_right", "e => e.getBoundingClientRect().right"
                )
            )
            > 0.85 * width
        )

    folder = Path(os.environ.get("LMAB_SCREENSHOTS", tmp_path))
    picture = folder / f"report-{name}-{width}-{scheme}.png"
    page.screenshot(path=picture, full_page=True)
    assert picture.stat().st_size > 10_000
    page.close()


# Headings, sentences and numbers that stick out of the window, or out of what holds them.
_CUT_OFF = """
[...document.querySelectorAll("h1, h2, h3, p, .value, .name, .settings td")]
  .filter(e => e.getBoundingClientRect().right > innerWidth + 1 || e.scrollWidth > e.clientWidth + 1)
  .map(e => e.textContent)
"""


# Names squeezed into a column of single letters.
_TALL = """
[...document.querySelectorAll(".map th, .arm span, .bars .name")]
  .filter(e => e.getBoundingClientRect().height > 140)
  .map(e => e.textContent)
"""


def _brightness(colour: str) -> float:
    return sum(float(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))
