"""The report: what it says, how it reads, and that nothing in it is wrong HTML."""

from __future__ import annotations

import doctest
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from policies import always, in_turn
from seeds import generator
from typer.testing import CliRunner

import lmab
from lmab import _html, reporting
from lmab._html import percent
from lmab.cli.app import app
from lmab.errors import InvalidArgument, InvalidFile, LmabWarning
from lmab.estimation.assumptions import Assumption, Assumptions
from lmab.estimation.check import Calibration, Check, Gain
from lmab.evaluation import diagnostics
from lmab.model.belief import log_joint
from lmab.reporting import contents as contents_of
from lmab.reporting import page as pages
from lmab.reporting import plots
from lmab.reporting import tree as tree_picture
from lmab.reporting.contents import Worth, memory_gains
from lmab.reporting.page import _reached
from lmab.reporting.tree import names, palette, shortened

matplotlib.use("Agg")
RUNNER = CliRunner()
BANDIT = lmab.LatentBandit.bernoulli([0.5, 0.3, 0.2], np.random.default_rng(11).uniform(0.05, 0.95, (3, 8)))


class Reader(HTMLParser):
    """Collects texts, attributes, and tags left open."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)


@pytest.fixture(scope="module")
def contents():
    return reporting.gather(BANDIT, lmab.plan(BANDIT, horizon=4), settings={"model file": "model.lmab"})


@pytest.fixture(scope="module")
def page(contents):
    return Reader(reporting.render(contents))


def test_the_numbers_are_those_of_the_library(contents, page):
    plan = lmab.plan(BANDIT, horizon=4)
    exact = lmab.evaluate(plan.policy, BANDIT, horizon=4).mean
    best = int((BANDIT.weights @ BANDIT.means).argmax())
    fixed = lmab.evaluate(always(best, BANDIT.n_arms), BANDIT, horizon=4).mean
    known = sum(
        w * lmab.evaluate(always(int(m.argmax()), len(m)), lmab.LatentBandit.bernoulli([1.0], [m]), horizon=4).mean
        for w, m in zip(BANDIT.weights, BANDIT.means, strict=True)
    )
    worth = contents.worth
    assert (worth.fixed, worth.policy.mean, worth.upper, worth.known) == pytest.approx(
        (fixed, exact, plan.upper, known)
    )
    assert worth.fixed <= worth.policy.mean <= worth.upper <= worth.known
    for value in (fixed, exact, plan.upper, known):
        assert f"{value:.4g}" in page.text


def test_types_show_their_weights_and_extreme_arms(page):
    for type_, weight in enumerate(BANDIT.weights):
        assert f"Type {type_ + 1}{percent(weight)} of sessions" in page.text
        assert f"{BANDIT.means[type_].max():.3f}" in page.text
        assert f"{BANDIT.means[type_].min():.3f}" in page.text


def test_the_heat_map_holds_every_arm_in_every_type(page):
    cells = [value for tag, name, value in page.attributes if (tag, name) == ("td", "title")]
    assert len(cells) == BANDIT.means.size
    assert f"arm 5, type 3: {BANDIT.means[2, 5]:.4g}" in cells
    heats = [value for tag, name, value in page.attributes if (tag, name) == ("td", "style")]
    assert {"--heat:0.000", "--heat:1.000"} <= set(heats)


def test_settings_say_how_it_was_made(page):
    for text in ("model.lmab", "4 steps", f"lmab {lmab.__version__}", "exact over"):
        assert text in page.text


def test_nothing_outside_the_file_is_named(contents):
    text = reporting.render(contents)
    assert not re.search(r"https?:|//[a-z]|url\(|@import|<script|<link|<img|src=", re.sub("[a-z]+-src ", "", text))
    assert "default-src &#x27;none&#x27;" in text


def test_names_from_the_log_are_text_not_markup():
    labels = ("<script>alert(1)</script>", '"quoted" & co', *(f"item {k}" for k in range(6)))
    bandit = replace(BANDIT, arm_labels=labels)
    text = reporting.render(reporting.gather(bandit, horizon=2, title="a <b> & c"))
    page = Reader(text)
    assert not page.open
    assert "<script" not in text
    assert "a <b> & c" in page.text
    assert any(value == '"quoted" & co' for _, _, value in page.attributes)


@pytest.mark.parametrize(
    "bandit",
    [
        lmab.LatentBandit.bernoulli([1.0], [[0.4]]),
        lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]]),
        lmab.LatentBandit.categorical([0.5, 0.5], [[[0.5, 0.5], [0.9, 0.1]], [[0.2, 0.8], [0.1, 0.9]]], [-3.0, -1.0]),
        lmab.LatentBandit.gaussian([0.5, 0.5], [[100.0, 0.0], [0.0, 100.0]], scale=20.0),
        lmab.random_bandit(17, 120, rng=generator(0)),
    ],
    ids=["one arm", "constant", "negative", "normal", "large"],
)
def test_every_kind_of_bandit_has_a_report(bandit):
    contents = reporting.gather(bandit, horizon=3, time_limit=2.0)
    page = Reader(reporting.render(contents))
    assert not page.open
    assert "nan" not in page.text.lower()
    worth = contents.worth
    noise = 5 * worth.policy.stderr + 1e-9
    assert worth.fixed - noise <= worth.policy.mean <= worth.upper + noise
    assert worth.upper <= worth.known + 1e-9
    widths = [float(w) for _, _, v in page.attributes for w in re.findall(r"width:(-?[\d.]+)%", v or "")]
    assert all(0 <= width <= 100 for width in widths)


def test_a_policy_for_another_bandit_is_refused():
    other = lmab.LatentBandit.bernoulli([1.0], [[0.5, 0.5]])
    with pytest.raises(InvalidArgument, match="policy must be for 8 arms, got one for 2"):
        reporting.gather(BANDIT, lmab.Greedy(other))
    with pytest.raises(InvalidArgument, match="horizon must be the plan's, 3, for its bounds to hold, got 2"):
        reporting.gather(BANDIT, lmab.plan(BANDIT, horizon=3), horizon=2)
    with pytest.raises(InvalidArgument, match="horizon must be at most the policy's 3, got 4"):
        reporting.gather(BANDIT, lmab.Greedy(BANDIT, horizon=3), horizon=4)


def test_a_random_policy_is_simulated():
    contents = reporting.gather(BANDIT, lmab.Thompson(BANDIT, horizon=3))
    assert contents.horizon == 3
    assert contents.worth.policy.stderr > 0
    assert "simulated sessions" in dict(contents.settings)["value of the policy"]


def test_a_policy_worse_than_one_arm_is_called_that():
    contents = reporting.gather(BANDIT, always(6, BANDIT.n_arms, horizon=3))
    text = reporting.render(contents)
    assert contents.worth.policy.mean < contents.worth.fixed
    assert 'class="bad"' in text
    assert "of the possible gain" not in text


def test_the_file_is_replaced_as_a_whole(tmp_path, contents, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(pages, "render", lambda contents: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            reporting.write(contents, path)
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text() == "old"
    reporting.write(contents, path)
    assert path.read_text().startswith("<!doctype html>")
    with pytest.raises(InvalidFile, match="does not exist"):
        reporting.write(contents, tmp_path / "no" / "report.html")


@pytest.fixture(scope="module")
def story():
    """A log, what was made of it, and a held-out log."""
    rng = generator(5)
    log, held = (lmab.simulate(BANDIT, lmab.Uniform(8), n_sessions=2000, horizon=5, rng=rng) for _ in range(2))
    estimate = lmab.fit(log, n_types="auto", method=lmab.EM(prior=1.0, restarts=5), rng=rng)
    estimate = replace(estimate, check=lmab.evaluation.diagnostics.check(log, n_types=estimate.n_types, rng=rng))
    plan = lmab.plan(estimate.bandit, horizon=4)
    return estimate, plan, lmab.assess(estimate, plan, log, n_draws=20, rng=rng), held


def test_held_out_sessions_judge_model_and_policy(story):
    estimate, plan, assessment, held = story
    contents = reporting.gather(estimate, plan, sessions=held, assessment=assessment, horizon=4)
    page = Reader(reporting.render(contents))
    seen = contents.held_out
    assert assessment.sentence in page.text
    assert "These sessions confirm the types" in page.text
    assert f"{estimate.curve.reason}." in page.text
    assert seen.total[0] == pytest.approx(5 * seen.gain.mean())
    assert seen.gain[0] == pytest.approx(0, abs=1e-12)  # before the first step there is nothing to remember
    with pytest.warns(LmabWarning, match="sessions agree with the policy up to step"):  # the page says so, too
        robust = lmab.evaluate(plan.policy, held, horizon=4, method="doubly-robust", model=estimate.bandit)
    assert "sessions agree with the policy up to step" in page.text
    assert seen.evidence.doubly_robust.mean == pytest.approx(robust.mean)
    assert "These sessions do not allow an off-policy estimate of this policy." in page.text
    assert f"{robust.mean:.4g} (" not in page.text  # a value without an interval is not quoted
    assert seen.logged == pytest.approx(held.rewards.reshape(-1, 5)[:, :4].mean(axis=0).sum())


def test_without_types_nothing_latent_shows():
    rng = generator(6)
    blind = lmab.LatentBandit.bernoulli([1.0], [(BANDIT.weights @ BANDIT.means)])
    held = lmab.simulate(blind, lmab.Uniform(8), n_sessions=2000, horizon=5, rng=rng)
    contents = reporting.gather(BANDIT, horizon=4, sessions=replace(held, propensities=None))
    assert contents.held_out.total[0] < 0
    page = Reader(reporting.render(contents))
    assert "These sessions do not confirm the types" in page.text
    assert "needs logged propensities" in page.text


def test_memory_gains_add_up_to_the_likelihood(story):
    held = story[3]
    gains = memory_gains(BANDIT, held)
    remembered = np.logaddexp.reduce(log_joint(BANDIT, held), axis=1)
    average = BANDIT.weights @ BANDIT.means
    paid = average[held.arms]
    forgotten = np.log(np.where(held.rewards > 0, paid, 1 - paid)).reshape(-1, 5).sum(axis=1)
    assert gains.sum(axis=1) == pytest.approx(remembered - forgotten)


def test_sessions_of_different_lengths_and_fewer_arms_are_fine():
    log = lmab.Sessions.from_arrays([[0, 1, 2], [3, -1, -1]] * 40, [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]] * 40)
    seen = reporting.gather(BANDIT, horizon=3, sessions=log).held_out
    assert len(seen.gain) == 3
    assert np.isfinite(seen.gain).all()


def test_the_command_checks_the_model_on_a_log(tmp_path, monkeypatch, few_draws):
    monkeypatch.chdir(tmp_path)
    BANDIT.save("truth.lmab")
    for words in (
        "simulate truth.lmab --horizon 5 --sessions 2000 --seed 1 -o log.parquet",
        "simulate truth.lmab --horizon 5 --sessions 1000 --seed 2 -o held_out.parquet",
        "fit log.parquet --types 3 --no-check -o model.lmab",
        "plan model.lmab --horizon 4 -o policy.lmab",
        "report model.lmab policy.lmab --logs held_out.parquet --assess log.parquet",
    ):
        done = RUNNER.invoke(app, words.split())
        assert done.exit_code == 0, done.output
    text = Reader((tmp_path / "report.html").read_text()).text
    for part in ("Confidence intervals", "Evaluation on held-out sessions", "held_out.parquet", "doubly robust"):
        assert part in text
    refused = RUNNER.invoke(app, ["report", "model.lmab", "--assess", "log.parquet"])
    assert "--assess needs the policy" in str(refused.exception)


def test_the_command_writes_a_report(tmp_path):
    BANDIT.save(tmp_path / "model.lmab")
    lmab.plan(BANDIT, horizon=4).policy.save(tmp_path / "policy.lmab")
    target = tmp_path / "out.html"
    arguments = ["report", str(tmp_path / "model.lmab"), str(tmp_path / "policy.lmab"), "-o", str(target)]
    done = RUNNER.invoke(app, arguments)
    assert done.exit_code == 0
    assert "out.html" in done.output
    assert "types, 8 arms, 4 steps" in Reader(target.read_text()).text
    answer = json.loads(RUNNER.invoke(app, [*arguments, "--json"]).stdout)
    assert answer["fixed"] < answer["policy"] <= answer["upper"] <= answer["known"]


@pytest.mark.parametrize(
    ("model", "policy", "message"),
    [
        ("policy.lmab", None, "must hold a model"),
        ("model.lmab", "model.lmab", "must hold a policy"),
        ("none.lmab", None, "none.lmab"),
    ],
)
def test_wrong_files_are_named(tmp_path, model, policy, message):
    BANDIT.save(tmp_path / "model.lmab")
    lmab.Greedy(BANDIT, horizon=4).save(tmp_path / "policy.lmab")
    files = [str(tmp_path / name) for name in (model, policy) if name]
    result = RUNNER.invoke(app, ["report", *files, "-o", str(tmp_path / "out.html")])
    assert isinstance(result.exception, InvalidFile)
    assert message in str(result.exception)
    assert not (tmp_path / "out.html").exists()


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_are_few_round_and_inside(low, span):
    found = _html.ticks(low, low + span)
    assert 1 <= len(found) <= 7
    assert all(low - 1e-6 * span <= tick <= low + span * (1 + 1e-6) for tick in found)


@given(st.integers(1, 5), st.integers(1, 40), st.integers(1, 20))
def test_the_arms_on_which_types_differ_most_are_kept(n_types, n_arms, most):
    means = np.random.default_rng(n_arms).random((n_types, n_arms))
    arms = pages.arms_in_order(means, most)
    spread = np.ptp(means, axis=0)
    assert len(set(arms.tolist())) == min(n_arms, most)
    left = np.setdiff1d(np.arange(n_arms), arms)
    assert len(left) == 0 or spread[arms].min() >= spread[left].max()


def test_charts_place_points_where_the_axes_say():
    frame = _html.Frame((0.0, 1.0), (0.0, 2.0))
    left, bottom = frame.at(0.0, 0.0)
    right, top = frame.at(1.0, 2.0)
    assert frame.at(0.5, 1.0) == ((left + right) / 2, (top + bottom) / 2)
    assert top < bottom
    drawn = _html.points(frame, [0.5], [1.0], [0.5])
    assert f'cx="{(left + right) / 2:.6g}"' in drawn
    assert 'points="' in _html.line(frame, [0.0, 1.0], [0.0, 2.0])


@pytest.mark.parametrize("module", [_html, contents_of, pages, plots, tree_picture], ids=lambda module: module.__name__)
def test_examples_run(module):
    plt.close("all")
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
    plt.close("all")


def test_plots_draw_on_the_axes_given():
    plan = lmab.plan(BANDIT, horizon=4)
    figure, axes = plt.subplots(3)
    drawn = [
        reporting.plot_means(BANDIT, ax=axes[0]),
        reporting.plot_worth(BANDIT, plan, ax=axes[1]),
        reporting.plot_bounds(plan, ax=axes[2]),
    ]
    assert all(one is other for one, other in zip(drawn, axes, strict=True))
    assert drawn[0].images[0].get_array().shape == (3, 8)
    assert [bar.get_width() for bar in drawn[1].patches[:3]] == pytest.approx(
        [4 * (BANDIT.weights @ BANDIT.means).max(), lmab.evaluate(plan.policy, BANDIT, horizon=4).mean,
         4 * BANDIT.weights @ BANDIT.means.max(axis=1)]
    )  # fmt: skip
    assert drawn[2].lines[0].get_ydata()[-1] == plan.upper
    plt.close(figure)


def test_plots_of_checks_draw_what_was_found(story):
    estimate, _, _, held = story
    calibration = diagnostics.calibrate(estimate.bandit, held)
    figure, axes = plt.subplots(2)
    assert reporting.plot_calibration(calibration, ax=axes[0]) is axes[0]
    assert np.array_equal(axes[0].lines[1].get_xdata(), calibration.predicted)
    assert reporting.plot_curve(estimate.curve, ax=axes[1]) is axes[1]
    assert axes[1].lines[-1].get_xdata()[0] == estimate.n_types
    plt.close(figure)


def test_notebooks_show_the_numbers_that_matter():
    rng = generator(0)
    plan = lmab.plan(BANDIT, horizon=4)
    log = lmab.simulate(BANDIT, lmab.Uniform(8), n_sessions=300, horizon=4, rng=rng)
    estimate = lmab.fit(log, n_types=2, method=lmab.EM(restarts=2, prior=1.0), rng=rng)
    assessment = lmab.assess(estimate, lmab.plan(estimate.bandit, horizon=4), log, n_draws=20, rng=rng)
    cases = [
        (BANDIT, ["50%, 30%, 20%", f"{(BANDIT.weights @ BANDIT.means).max():.4g} per step"]),
        (plan, [plan.status, f"{plan.lower:.6g} over 4 steps", f"{plan.upper:.6g} (gap"]),
        (
            assessment,
            [
                f"{assessment.value[0]:.4g} to",
                f"{assessment.regret[1]:.4g} per session",
                "the true value for 90% of logs",
            ],
        ),
        (estimate, [f"{estimate.log_likelihood:.4f} of 300 sessions", f"{estimate.bic:.2f}", estimate.message]),
    ]
    for value, texts in cases:
        shown = Reader(value._repr_html_())
        assert not shown.open
        for text in texts:
            assert text in shown.text


@pytest.mark.parametrize(("share", "text"), [(0.0, "0%"), (0.004, "0.4%"), (0.25, "25%"), (1.0, "100%")])
def test_shares_read_as_one_would_say_them(share, text):
    assert percent(share) == text


def test_the_tree_shows_every_decision(contents, page):
    plan = lmab.plan(BANDIT, horizon=4)
    decisions = []

    def walk(tree):
        decisions.append(tree)
        for branch in tree.branches:
            walk(branch.tree)

    walk(plan.policy.tree(4))
    picture = Reader(reporting.tree_svg(plan.policy.tree(4)))
    assert ("svg", "role", "img") in picture.attributes  # who hears the page is told of one picture
    assert not picture.open
    assert [text for text in picture.texts if re.fullmatch(r"arm \d+", text)] != []
    notes = [text for text in picture.texts if "of sessions get here" in text]
    assert sorted(notes) == sorted(
        f"arm {node.arm}; {percent(node.probability)} of sessions get here; "
        + ", ".join(f"type {m + 1} {percent(share)}" for m, share in enumerate(node.belief))
        for node in decisions
    )
    for note in notes:  # the page shows the same tree
        assert note in page.text


def test_a_tree_fits_the_page_whatever_the_rewards():
    wide = lmab.LatentBandit.categorical([0.5, 0.5], np.full((2, 3, 7), 1 / 7), np.arange(7.0))
    shown = reporting.gather(wide, horizon=4).tree
    assert len(shown.branches) == 7
    assert shown.branches[0].tree.branches == ()
    assert reporting.gather(BANDIT, lmab.Thompson(BANDIT, horizon=3)).tree is None


def test_without_repeats_everyone_gets_the_best_sequence_at_least():
    plan = lmab.plan(BANDIT, horizon=3, repeats=False)
    for asked in (plan, plan.policy):
        contents = reporting.gather(BANDIT, asked)
        averages = BANDIT.weights @ BANDIT.means
        best = np.argsort(-averages)[:3]
        assert contents.worth.fixed == pytest.approx(averages[best].sum())
        assert contents.worth.fixed_arms == tuple(best)
        known = np.sort(BANDIT.means, axis=1)[:, -3:].sum(axis=1)
        assert contents.worth.known == pytest.approx(BANDIT.weights @ known)
        assert contents.worth.fixed <= contents.worth.policy.mean <= contents.worth.upper + 1e-9
        assert "best fixed list" in Reader(reporting.render(contents)).text


def test_a_plan_without_repeats_counts_as_one_whatever_its_policy_says():
    arms = BANDIT.best_fixed_arms(3, repeats=False)
    upper = BANDIT.known_type(3, repeats=False)
    lower = BANDIT.best_fixed(3, repeats=False)
    plan = lmab.Plan(in_turn(*arms, n_arms=BANDIT.n_arms), 3, lower, upper, "heuristic", "a fixed list", repeats=False)
    contents = reporting.gather(BANDIT, plan)
    assert (contents.worth.fixed, contents.worth.fixed_arms, contents.worth.known) == (lower, arms, upper)
    assert "no arm twice" in dict(contents.settings)["policy"]


@pytest.mark.parametrize("repeats", [True, False])
def test_a_plan_that_follows_a_check_without_types_is_shown_as_the_best_fixed_choice(tmp_path, repeats):
    log = lmab.simulate(BANDIT, lmab.Uniform(BANDIT.n_arms), n_sessions=200, horizon=3, rng=1)
    estimate = lmab.fit(log, n_types=2, method=lmab.EM(prior=1.0, restarts=2), rng=1, check=False)
    solid = Calibration(np.zeros(1), np.zeros(1), np.zeros(1), np.ones(1, int), 1.0, 0.1)
    estimate = replace(estimate, check=Check(2, 100, -1.0, Gain(0.01, 0.01), Gain(0.1, 0.01), solid))
    plan = lmab.plan(estimate, horizon=3, repeats=repeats)
    contents = reporting.gather(estimate, plan)
    assert contents.fixed
    assert contents.worth.policy.mean == pytest.approx(contents.worth.fixed)
    said = Reader(reporting.render(contents)).text
    assert "because held-out sessions do not support latent types. It earns" in said
    for other in ("no policy", "Use the best fixed arms instead", "latent type known at step 1", "belief"):
        assert other not in said
    assert contents.tree is None
    averages = estimate.bandit.weights @ estimate.bandit.means
    arms = estimate.bandit.best_fixed_arms(3, repeats)
    listed = [f"{contents.labels[arm]} ({averages[arm]:.4g})" for arm in arms]
    words = [f"every step plays {contents.labels[arms[0]]}."] if repeats else listed
    assert [said.index(word) for word in words] == sorted(said.index(word) for word in words)
    anyway = lmab.plan(estimate, horizon=3, repeats=repeats, anyway=True)
    told = Reader(reporting.render(reporting.gather(estimate, anyway))).text
    assert "The log does not support this gain." in told
    for bound in ("of the possible gain", "; no policy", "upper bound", "latent type known at step 1", "hatched"):
        assert bound not in told
    if repeats:
        assert reporting.gather(estimate, horizon=3).fixed  # where the report itself plans
    estimate.save(tmp_path / "model.lmab")
    plan.save(tmp_path / "policy.lmab")
    files = [str(tmp_path / name) for name in ("model.lmab", "policy.lmab", "report.html")]
    ran = RUNNER.invoke(app, ["report", *files[:2], "-o", files[2]])
    assert (
        f"This policy is the best fixed {'arm' if repeats else 'list'}, which earns {contents.worth.fixed:.4g} per "
        f"session on the model." in ran.output
    )
    assert "No policy earns more" not in ran.output
    ran = RUNNER.invoke(app, ["plan", files[0], "--horizon", "3", "--anyway", "-o", files[1]])
    assert "No bound on other policies is given, because held-out sessions do not support latent types" in ran.output
    ran = RUNNER.invoke(app, ["report", *files[:2], "-o", files[2]])
    assert "On the model a session of 3 steps earns" in ran.output
    assert "no policy earns more" not in ran.output


def test_an_assumption_that_the_log_contradicts_is_said_by_plan_evaluate_and_report(tmp_path):
    log = lmab.simulate(BANDIT, lmab.Uniform(BANDIT.n_arms), n_sessions=200, horizon=3, rng=1)
    fine = Assumption(fires=False, score=0.0, sentence="All is well.")
    broken = Assumption(fires=True, score=9.0, sentence="Rewards of the same arm depend on the step: 46% lower.")
    estimate = lmab.fit(log, n_types=2, method=lmab.EM(prior=1.0, restarts=2), rng=1, check=False)
    replace(estimate, tested=Assumptions(fine, fine, fine, broken)).save(tmp_path / "model.lmab")
    model, policy, page = (str(tmp_path / name) for name in ("model.lmab", "policy.lmab", "report.html"))
    for command in (
        ["plan", model, "--horizon", "3", "-o", policy],
        ["evaluate", policy, "--model", model],
        ["report", model, policy, "-o", page],
    ):
        ran = RUNNER.invoke(app, command)
        assert ran.exit_code == 0, ran.output
        assert "note: Rewards of the same arm depend on the step: 46% lower." in " ".join(ran.output.split())
        if command[0] != "report":
            answer = json.loads(RUNNER.invoke(app, [*command, "--json"]).stdout)
            assert answer["contradicted"] == {"step": broken.sentence}
    said = Reader((tmp_path / "report.html").read_text()).text
    assert broken.sentence in said
    assert "The log does not support this gain." in said


LONG = "Dr. Strangelove or: How I Learned to Stop Worrying and Love the Bomb"


def page_of(n_types: int, n_arms: int = 6, **given: object) -> str:
    rng = np.random.default_rng(n_types)
    bandit = lmab.random_bandit(n_types, n_arms, rng=rng)
    labels = tuple(f"{LONG} ({k})" for k in range(n_arms))
    weights = np.linspace(1.0, 2.0, n_types)  # the last type is the largest
    named = lmab.LatentBandit(weights / weights.sum(), bandit.rewards, labels)
    policy = lmab.Greedy(named, horizon=3)
    return reporting.render(reporting.gather(named, policy, horizon=3, time_limit=1.0, **given))


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
    assert "type 1 80%, type 2 20%" in reporting.tree_svg(tree)


def test_no_name_is_cut_without_its_full_text():
    page = page_of(2)
    assert "…" in page
    (cut,) = re.findall(r"Full names: (.*?)</p>", page)
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
    assert 'class="scrolls">The figure may be wider than the screen' in page
    assert re.search(r"@media \(max-width: 50rem\) \{ \.scrolls \{ display: block", page)


def test_log_likelihoods_have_standard_errors():
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.1, 0.9]])
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=300, horizon=3, rng=0)
    page = reporting.render(reporting.gather(bandit, lmab.Greedy(bandit, horizon=3), sessions=log))
    assert re.search(r"next reward \(log-likelihood per session \+0\.\d+ ± 0\.\d+\)", page)
    assert "context" not in page.split("</style>")[1]
    assert "episode" not in page.split("</style>")[1]


def worth(fixed: float, mean: float, upper: float) -> Worth:
    value = lmab.evaluate(always(0, 1), lmab.LatentBandit.bernoulli([1.0], [[mean / 2]]), horizon=2)
    return Worth(fixed, (0,), value, upper, 2.0)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ((1.0, 1.5, 1.5), "The policy achieves practically all of the possible gain."),
        ((1.0, 1.5, 2.0), "The policy achieves at least 50% of the possible gain."),
        ((1.0, 1.0, 1.0), "No policy gains anything on this model: the best arms are the same for all types."),
        ((1.0, 1.0, 1.0 + 5e-10), "No policy gains anything on this model: the best arms are the same for all types."),
        ((1.0, 1.0, 1.0 + 4e-9), "The policy achieves at least 0% of the possible gain."),
        ((1.0, 0.5, 1.5), "Use the best fixed arms instead."),
    ],
)
def test_what_is_reached_is_a_sentence(values, sentence):
    assert _reached(worth(*values)) == sentence


def widths(markup: str) -> list[float]:
    return [float(width) for width in re.findall(r'class="fill" style="width:([\d.-]+)%', markup)]


@pytest.mark.parametrize(
    ("fixed", "mean", "upper", "known"), [(1.0, 1.5, 1.8, 2.0), (-3.0, -2.0, -1.5, -1.0), (-1, 1, 2, 3)]
)
def test_bars_are_as_long_as_what_they_show_from_zero_or_the_lowest_on(fixed, mean, upper, known):
    value = replace(worth(1.0, 1.0, 1.0).policy, mean=mean)
    low = min(0.0, fixed, mean)
    shown = widths(pages._bars(Worth(fixed, (0,), value, upper, known), "the same for all"))
    expected = [100 * (x - low) / (known - low) for x in (fixed, mean, upper, known)]
    assert shown == pytest.approx(expected, abs=0.01)
    assert min(shown) >= 0


@pytest.mark.parametrize(("captured", "said"), [(0.98, "at least 98%"), (0.996, "practically all")])
def test_the_last_half_percent_of_a_gain_counts_as_all_of_it(captured, said):
    assert said in _reached(worth(1.0, 1.0 + 0.5 * captured, 1.5))


def test_steps_that_hardly_any_session_reached_are_not_shown(rng):
    bandit = lmab.random_bandit(2, 4, rng=rng)
    long = lmab.simulate(bandit, lmab.Uniform(4), n_sessions=20, horizon=5, rng=rng)
    short = lmab.simulate(bandit, lmab.Uniform(4), n_sessions=300, horizon=2, rng=rng)
    held_out = contents_of.look(bandit, lmab.Greedy(bandit, horizon=2), long + short, 2)
    assert len(held_out.gain) == len(held_out.gain_stderr) == 2
    alone = contents_of.look(bandit, lmab.Greedy(bandit, horizon=2), long, 2)
    assert len(alone.gain) == 5  # all of the few sessions there are


def test_the_share_on_an_edge_is_of_the_sessions_that_come_that_far():
    bandit = lmab.LatentBandit.bernoulli([0.3, 0.7], [[0.9, 0.5, 0.2], [0.1, 0.6, 0.4]])
    tree = lmab.plan(bandit, horizon=5).policy.tree(4)
    expected = []

    def walk(node):
        for branch in node.branches:
            share = branch.tree.probability / node.probability
            expected.append(f"{branch.reward:.3g} ({percent(share)})")
            walk(branch.tree)

    walk(tree)
    shown = re.findall(r">([^<>]*\([^<>]*%\))</text>", tree_picture.tree_svg(tree))
    assert sorted(shown) == sorted(expected)
    assert len(shown) > 6


@given(low=st.floats(-1e6, 1e6), span=st.floats(1e-3, 1e6), most=st.integers(2, 12))
def test_an_axis_has_no_more_ticks_than_asked_for_and_all_are_on_it(low, span, most):
    found = _html.ticks(low, low + span, most)
    assert len(found) <= most
    assert all(low - 1e-6 * span <= tick <= low + span + 1e-6 * span for tick in found)


def test_the_check_is_that_of_the_estimate_behind_the_plan_or_of_the_assessment(rng):
    bandit = lmab.random_bandit(2, 4, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(4), n_sessions=400, horizon=4, rng=rng)
    estimate = lmab.fit(log, n_types=2, rng=0)
    plan = lmab.plan(estimate, horizon=3)
    check = estimate.check
    assert check is not None
    assert reporting.gather(estimate.bandit, plan).check is check
    assert reporting.gather(estimate, plan).check is check
    assessment = lmab.assess(estimate, plan, log, n_draws=20, rng=0)
    unknown = replace(plan, source=None)
    assert reporting.gather(estimate.bandit, unknown).check is None
    assert reporting.gather(estimate.bandit, unknown, assessment=assessment).check is assessment.check is not None


def test_the_heading_of_the_cards_counts_the_types(tmp_path):
    for weights, means, heading in (
        ([1.0], [[0.2, 0.8]], "<h2>1 latent type</h2>"),
        ([0.5, 0.5], [[0.2, 0.8], [0.9, 0.1]], "<h2>2 latent types</h2>"),
    ):
        reporting.write(
            reporting.gather(lmab.LatentBandit.bernoulli(weights, means), horizon=2), tmp_path / "page.html"
        )
        assert heading in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("by_type", "note", "cells"),
    [
        (
            True,
            "each arm (row) in each type (column), in",
            {("b", "type 1"): 0.3, ("b", "type 2"): 0.64, ("a", "type 2"): 0.2},
        ),
        (
            False,
            "each arm (row) and each reward (column), in",
            {("b", "after 0"): 0.5, ("b", "after 1"): 0.4, ("a", "after 1"): 0},
        ),
    ],
)
def test_who_leaves_after_what_is_read_back(by_type, note, cells):
    """Types differ in the first table: 0.75 of the sessions leave b after 0.3, the others after 0.64."""
    rates = {"a": [[0.1, 0.0], [0.2, 0.2]], "b": [[0.3, 0.3], [0.8, 0.6]]}
    if not by_type:
        rates = {"a": [[0.1, 0.0]] * 2, "b": [[0.5, 0.4]] * 2}
    leaving = np.stack([rates["a"], rates["b"]], axis=1)
    made = lmab.LatentBandit.bernoulli([0.75, 0.25], [[0.9, 0.2], [0.1, 0.8]], leaving=leaving)
    bandit = lmab.LatentBandit(made.weights, made.rewards, ("a", "b"), leaving=leaving)
    page = str(reporting.render(reporting.gather(bandit, lmab.plan(bandit, horizon=2))))
    section = page[page.index("Attrition") :]
    assert note in section
    assert "The table shows" not in section.split("</section>")[0]
    assert 'class="map" style="--cell:2.9rem; --n:2"' in section  # two columns share the width
    shown = re.findall(r'--heat:([\d.]+)" title="(\w), ([^:]+): ([\d.]+)% leave"', section)
    found = {(arm, head): (float(heat), float(share) / 100) for heat, arm, head, share in shown}
    top = max(share for _, share in found.values())
    for place, share in cells.items():
        assert found[place][1] == pytest.approx(share, abs=0.006)
        assert found[place][0] == pytest.approx(share / top, abs=0.01)
    assert next(arm for _, arm, *_ in shown) == "b"  # it drives most people away


def test_pictures_without_matplotlib_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
    with pytest.raises(lmab.errors.LmabError, match=r"pictures need matplotlib: pip install '\.\[plot\]'"):
        reporting.plot_worth(bandit, lmab.plan(bandit, horizon=2))


def test_the_last_column_of_who_leaves_after_a_count_stands_for_all_larger_ones():
    leaving = np.broadcast_to([0.1, 0.2, 0.3], (2, 2, 3)).copy()
    bandit = lmab.LatentBandit.counts([0.5, 0.5], [[0.5, 2.0], [1.5, 0.2]], leaving=leaving)
    page = str(reporting.render(reporting.gather(bandit, lmab.plan(bandit, horizon=2))))
    section = page[page.index("Attrition") :].split("</section>")[0]
    assert re.findall(r'title="(after [^"]+)">([^<]+)<', section) == [
        ("after 0", "0"),
        ("after 1", "1"),
        ("after 2+", "2+"),
    ]
