"""Eight logs from fit to report through the commands: all say the same, and none says what its log contradicts.

The logs are made up, each like a real one that was once promised what it did not earn, or that breaks an assumption.
"""

from __future__ import annotations

import functools
import html
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from seeds import generator
from typer.testing import CliRunner

import lmab
from lmab.cli.app import app
from lmab.evaluation.assess import assess

RUNNER = CliRunner()
NEVER = (  # words that no reader at the door should meet
    r"numerical rank",
    r"\d\.\d{7}",
    r"\d,\d{3},\d{3},\d{3}",  # below 30,000,000,000 plays
    r"-0\.0+\b(?!\d)",
    r"\bnan\b",
    r"types were not tested",  # types were compared
)
NO_GAIN = "No gain over the best fixed {} was demonstrated"
FIXED = {
    "groceries": "No latent types found: ",
    "web pages": "Latent types are not supported: 8 types predict held-out sessions better than one type, but ",
    "films": "Latent types are not supported: sessions differ in their overall level of reward",
    "adverts": "No latent types found: ",
}
NO_REPEATS = ("groceries", "films")
TYPES = ("segments", "impatient", "drift", "leave after 0")


def paid(chances: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (rng.random(chances.shape) < chances).astype(float)


def without_types(kind: str, rng: np.random.Generator) -> tuple[lmab.Sessions, float]:
    """Logs in which no session has a type, and what the best fixed choice earns in truth."""
    n, n_arms, steps = {"groceries": (500, 20, 5), "web pages": (350, 3, 8), "films": (500, 16, 8)}.get(
        kind, (4000, 46, 3)
    )
    arms = rng.integers(n_arms, size=(n, steps))
    if kind in ("groceries", "films"):  # each arm at most once
        arms = np.argsort(rng.random((n, n_arms)), axis=1)[:, :steps]
    own = np.geomspace(0.6, 0.05, n_arms)
    chances = np.tile(own, (n, 1))
    if kind == "web pages":  # what a session likes of one arm says nothing about another
        chances = rng.beta(0.4, 0.6, (n, n_arms))
    if kind == "films":
        chances = 1 / (1 + np.exp(-np.linspace(-1, 1, n_arms) - 1.5 * rng.standard_normal((n, 1))))
    if kind == "adverts":
        own = 0.05 * np.exp(0.3 * rng.standard_normal(n_arms))
        chances = np.tile(own, (n, 1))
    rewards = paid(np.take_along_axis(chances, arms, axis=1), rng)
    return lmab.Sessions.from_arrays(arms, rewards, n_arms=n_arms), 3 * own.max()


def with_types(kind: str, rng: np.random.Generator) -> lmab.Sessions:
    """Logs of three types in which arms, lengths or shares depend on who it is, or people leave after a 0."""
    n, n_arms, steps = 1200, 10, 5
    means = np.where(rng.random((3, n_arms)) < 0.35, 0.85, 0.15)
    types, arms = rng.integers(3, size=n), rng.integers(n_arms, size=(n, steps))
    if kind == "segments":
        shown = np.exp(2 * means)
        below = np.cumsum(shown / shown.sum(axis=1, keepdims=True), axis=1)[types]
        arms = (below[:, None] > rng.random((n, steps, 1))).argmax(axis=2)
    if kind == "drift":
        types[n // 2 :] = np.where(rng.random(n // 2) < 0.7, 0, types[n // 2 :])
    rewards = paid(means[types[:, None], arms], rng)
    leaves = {"impatient": np.where(types[:, None] == 0, 0.6, 0.05), "leave after 0": np.where(rewards > 0, 0.05, 0.5)}
    gone = np.cumsum(rng.random(rewards.shape) < leaves.get(kind, 0.0), axis=1)[:, :-1] > 0
    arms[:, 1:][gone] = -1
    return lmab.Sessions.from_arrays(arms, np.where(arms < 0, 0.0, rewards), n_arms=n_arms)


@dataclass(frozen=True)
class Told:
    """What each command printed about a log, and what it wrote."""

    fit: str
    plan: str
    assessment: str
    report: str
    page: str
    folder: Path
    truth: float

    @property
    def estimate(self) -> lmab.estimation.Estimate:
        return lmab.load(self.folder / "model.lmab")

    @property
    def made(self) -> lmab.Plan:
        return lmab.load(self.folder / "policy.lmab")

    @property
    def claims(self) -> lmab.evaluation.Assessment:
        return lmab.load(self.folder / "assessment.lmab")


def said(*arguments: object) -> str:
    result = RUNNER.invoke(app, [*map(str, arguments)], catch_exceptions=False, env={"COLUMNS": "1000"})
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The words about each log, made when they are first asked for."""
    done: dict[str, Told] = {}

    def tell(kind: str) -> Told:
        if kind not in done:
            done[kind] = walk(kind, tmp_path_factory.mktemp("words"))
        return done[kind]

    with pytest.MonkeyPatch.context() as patch:  # how wide intervals are is not asked here
        patch.setattr("lmab.cli.evaluate.assess", functools.partial(assess, n_draws=30))
        patch.setattr("lmab.estimation.cross_validation._COMPARED", 0)  # nor how traits would do
        patch.setattr(sys.modules["lmab.estimation.fit"], "_METHOD", lmab.EM(restarts=2, tolerance=1e-3, sweeps=8))
        yield tell


def walk(kind: str, folder: Path) -> Told:
    rng, truth = generator(31, *kind.encode()), float("nan")
    if kind in TYPES:
        log = with_types(kind, rng)
    else:
        log, truth = without_types(kind, rng)
    log.write(folder / "log.csv")
    model, policy, proof, page = (folder / name for name in ("model.lmab", "policy.lmab", "assessment.lmab", "r.html"))
    once = ["--no-repeats"] if kind in NO_REPEATS else []
    fit = said("fit", folder / "log.csv", "-o", model, "--restarts", 3)
    plan = said("plan", model, "--horizon", 3, "-o", policy, *once)
    assessment = said("evaluate", policy, "--assess", folder / "log.csv", "--save-assessment", proof)
    report = said("report", model, policy, "--assessment", proof, "-o", page)
    text = re.sub(r"<(style|script|svg).*?</\1>", " ", page.read_text(), flags=re.DOTALL)
    shown = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())
    return Told(fit, plan, assessment, report, shown, folder, truth)


@pytest.mark.parametrize("kind", [*FIXED, *TYPES])
def test_all_words_about_a_log_agree(kind, told):
    words = told(kind)
    verdict = words.estimate.check.verdict
    for text in (words.fit, words.plan, words.assessment, words.report, words.page):
        assert verdict in text
        for pattern in NEVER:
            assert not re.search(pattern, text), (pattern, text)
        assert not ("no better than one type" in text and re.search(r"one more than|one type more", text))
    number = words.estimate.curve.reason_beside(words.estimate.check)
    assert f"{number}." in words.fit
    assert f"{number}." in words.page
    assert words.estimate.n_types == words.estimate.curve.chosen <= max(words.estimate.curve.best, 2)
    assert words.claims.sentence in words.assessment
    assert words.claims.claims in words.report
    assert words.claims.sentence in words.page
    assert words.claims.verdict.short in words.page
    for name, found in words.estimate.assumptions.items():
        assert found.fires is words.claims.assumptions[name].fires
        assert (found.sentence in words.fit) is found.fires


@pytest.mark.parametrize(("kind", "verdict"), FIXED.items())
def test_without_types_the_plan_is_the_fixed_choice_and_no_gain_is_promised(kind, verdict, told):
    words, same = told(kind), "list" if kind in NO_REPEATS else "arm"
    assert words.fit.startswith(verdict)
    assert words.made.fixed
    assert words.made.lower == words.made.upper
    assert f"The plan is therefore the best fixed {same}" in words.plan
    assert "proved bounds" not in words.plan
    assert (words.claims.gain, words.claims.verdict.word) == (None, "no gain demonstrated")
    assert f"{NO_GAIN.format(same)}: held-out sessions do not support latent types." in words.assessment
    assert f"{NO_GAIN.format(same)}." in words.report
    assert f" over the best fixed {same} (" not in words.assessment
    assert "This policy plays the " in words.page
    several = "not supported" in verdict
    assert (words.estimate.n_types > 1) is several
    assert ("--anyway" in words.plan) is several  # one type leaves nothing else to plan with
    assert ("were fitted, but held-out sessions do not support them." in words.fit) is several
    assert ("on average, if there is one type" in words.assessment) is not several


def test_promises_about_clicks_are_close_to_the_truth(told):
    words = told("adverts")
    assert 0.8 < words.made.lower / words.truth < 1.25
    low, high = words.claims.value
    assert 0.98 * low < words.truth < 1.02 * high  # one 90% interval in ten misses, but not by more than 2%


@pytest.mark.parametrize("kind", TYPES)
def test_with_types_the_plan_uses_them(kind, told):
    words = told(kind)
    assert words.fit.startswith("Latent types are supported: ")
    assert not words.made.fixed
    assert "(proved bounds)" in words.plan
    assert (words.claims.gain is None) is (kind in ("impatient", "drift"))


def test_a_log_that_depends_on_who_it_is_says_so(told):
    fired = {kind: [name for name, one in told(kind).claims.assumptions.items() if one.fires] for kind in TYPES}
    assert fired == {
        "segments": ["exposure"],
        "impatient": ["leaving"],
        "drift": ["drift", "calendar"],
        "leave after 0": [],
    }
    shown, leaving = told("segments"), told("impatient")
    assert "the model includes this, and the intervals assume that it is right." in shown.fit
    assert leaving.claims.value is None
    for text in (leaving.assessment, leaving.report, leaving.page):
        assert "No confidence interval for this policy: leaving depends on the latent type" in text
        assert f"{NO_GAIN.format('arm')}, because the log contradicts an assumption" in text
    assert "No confidence interval for this policy: the mixture of types changed" in told("drift").page


def test_sessions_that_end_early_have_a_value_of_their_own(told):
    words, claims = told("leave after 0"), told("leave after 0").claims
    assert claims.ends.value < claims.value[0]
    for text in (words.assessment, words.page):
        assert f"value per started session{':' * (text is words.assessment)} about {claims.ends.value:.3g}, if" in text
        assert re.search(
            r"sessions that reach step 3:? \d\d% in the log; probability of leaving: \d\d% after 0, \d% after 1", text
        )


def test_one_type_that_was_asked_for_is_not_said_to_be_refuted(told):
    """Nobody asked held-out sessions about more types, so they cannot have said anything about them."""
    folder = told("groceries").folder
    fit = said("fit", folder / "log.csv", "-o", folder / "one.lmab", "--types", 1)
    plan = said("plan", folder / "one.lmab", "--horizon", 3, "-o", folder / "alone.lmab")
    assessment = said("evaluate", folder / "alone.lmab", "--assess", folder / "log.csv")
    assert "Latent types were not tested: a model with one type predicts the same rewards for every session." in fit
    assert "The plan is therefore the best fixed list" in plan
    message = lmab.load(folder / "alone.lmab").message
    assert message.startswith("the best fixed list, because one type was fitted; no arm is played twice, because no ")
    assert f"{NO_GAIN.format('list')}: one type was fitted." in assessment
    assert "do not support" not in fit + plan + assessment
