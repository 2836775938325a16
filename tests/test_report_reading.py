"""What a reader of the report needs: a legend, names in full, one numbering, sentences that are sentences."""

from __future__ import annotations

import re

import numpy as np
import pytest

import lmab
from lmab import report
from lmab.planning import names, palette, shortened
from lmab.report.contents import Worth
from lmab.report.sections import _reached

LONG = "Dr. Strangelove or: How I Learned to Stop Worrying and Love the Bomb"


def page_of(n_types: int, n_arms: int = 6, **given: object) -> str:
    rng = np.random.default_rng(n_types)
    bandit = lmab.random_bandit(n_types, n_arms, rng=rng)
    labels = tuple(f"{LONG} ({k})" for k in range(n_arms))
    weights = np.linspace(1.0, 2.0, n_types)  # the last type is the largest
    named = lmab.LatentBandit(weights / weights.sum(), bandit.rewards, labels)
    policy = lmab.Greedy(named, horizon=3)
    return report.render(report.gather(named, policy, horizon=3, time_limit=1.0, **given))


@pytest.mark.parametrize("n_types", [2, 15])
def test_every_type_is_in_the_legend_with_a_colour_of_its_own(n_types):
    page = page_of(n_types)
    (legend,) = re.findall(r'<p class="legend">(.*?)</p>', page, re.S)
    marks = re.findall(r'--colour: var\((--type\d+)\)">type (\d+)<', legend)
    assert [int(number) for _, number in marks] == list(range(1, n_types + 1))
    assert len({colour for colour, _ in marks}) == n_types


def test_there_are_sixteen_colours_in_light_and_in_dark():
    for dark in (False, True):
        colours = re.findall(r"--type\d+: (#\w{6});", palette(dark))
        assert len(set(colours)) == len(colours) == 16


def test_types_are_numbered_by_size_on_the_page_as_by_the_command():
    page = page_of(3)
    shares = [float(share) for share in re.findall(r"Type \d+<span>([\d.]+)% of sessions", page)]
    assert re.findall(r"<h3>Type (\d+)", page) == ["1", "2", "3"]
    assert shares == sorted(shares, reverse=True)
    tree = lmab.plan(lmab.LatentBandit.bernoulli([0.2, 0.8], [[0.9, 0.5], [0.1, 0.6]]), horizon=3).policy.tree(1)
    assert "type 1 80%, type 2 20%" in report.tree_svg(tree)


def test_no_name_is_cut_without_its_full_text():
    page = page_of(2)
    assert "…" in page
    (cut,) = re.findall(r"In full: (.*?)</p>", page)
    assert LONG in cut
    style = page.split("</style>")[0]
    assert "text-overflow" not in style  # names in cards and in the table go on in the next line


@pytest.mark.parametrize(
    ("name", "lines", "cut"),
    [
        ("tea", ["tea"], False),
        ("Raiders of the Lost Ark", ["Raiders of the", "Lost Ark"], False),
        ("donaudampfschifffahrt", ["donaudampfschif", "ffahrt"], False),
        (LONG, ["Dr. Strangelove", "or: How I Lea…"], True),
        ("", [""], False),
    ],
)
def test_names_in_boxes(name, lines, cut):
    assert shortened(name) == (lines, cut)


def test_the_names_of_a_tree_are_listed_once():
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    assert names(lmab.plan(bandit, horizon=5).policy.tree(3)) == ["arm 0", "arm 1"]


def test_a_small_screen_says_that_the_tree_scrolls():
    page = page_of(2)
    assert 'class="scrolls">The picture may be wider than this screen' in page
    assert re.search(r"@media \(max-width: 50rem\) \{ \.scrolls \{ display: block", page)


def test_log_likelihoods_are_said_in_words():
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=300, horizon=3, rng=0)
    page = report.render(report.gather(bandit, lmab.Greedy(bandit, horizon=3), sessions=log))
    assert "nats" not in page
    assert re.search(r"a session is [\d.]+ times as likely as without memory", page)
    assert "types" not in page.split("</style>")[1]
    assert "sessions" not in page.split("</style>")[1]


def worth(fixed: float, mean: float, upper: float) -> Worth:
    value = lmab.evaluate(lmab.Stationary(0), lmab.LatentBandit.bernoulli([1.0], [[mean / 2]]), horizon=2)
    return Worth(fixed, (0,), value, upper, 2.0)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ((1.0, 1.5, 1.5), "So the policy gains all, or next to all, that can be gained by learning the type."),
        ((1.0, 1.5, 2.0), "So the policy makes at least 50% of the gain that is possible."),
        ((1.0, 1.0, 1.0), "Types make no difference here: the best arms are the same for all."),
        ((1.0, 0.5, 1.5), "Show everyone the same instead."),
    ],
)
def test_what_is_reached_is_a_sentence(values, sentence):
    assert _reached(worth(*values)) == sentence
