"""What values say of themselves, word for word: sentences, tables and cards, on both sides of every threshold.

Values are made by hand, so that a number in a sentence is one that the test chose.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import lmab
from lmab.data.fingerprint import Fingerprint
from lmab.estimation.assumptions import Assumption, Assumptions
from lmab.estimation.check import Calibration, Check, Gain, Replay
from lmab.estimation.leaving import Gains
from lmab.estimation.result import Curve, Selection, Starts
from lmab.estimation.type_priors import Gain as Known
from lmab.evaluation.assessment import Assessment, Ends, HeldOutTests, Verdict
from lmab.evaluation.diagnostics import Identifiability
from lmab.evaluation.value import Evaluation
from lmab.learning.learner import Exploration, Learned, Phase
from lmab.moments.second import Subspace
from lmab.paper.experiment.analysis import Mean
from lmab.testing.report import Report

NO = Assumption(fires=False, score=0.5, sentence="It holds.")
YES = Assumption(fires=True, score=9.0, sentence="The mixture of types changed.")
LINE = Calibration(np.array([0.2]), np.array([0.25]), np.array([0.01]), np.array([100]), 0.874, 0.046)
CHECK = Check(3, 1200, -2.5, Gain(0.2, 0.09), Gain(0.1, 0.09), LINE)
NONE_FOUND = replace(CHECK, over_one_type=Gain(0.2, 0.1))
CERTIFICATE = Assessment(
    value=(3.1, 3.4),
    optimum=(3.2, 3.6),
    regret=(0.0, 0.27),
    gain=(0.1, 0.5),
    planning_gap=0.5,
    confidence=0.9,
    horizon=5,
    n_types=3,
    n_sessions=2000,
    n_steps=10000,
    n_parameters=62,
    draws=np.zeros((40, 4)),
    bounds=(3.2, 3.3),
    tested=Assumptions(NO, NO, NO, NO),
    held_out=HeldOutTests(*[NO] * 6),
    planned="",
    repeats=True,
    logged=2.5,
)
NOTE = Identifiability(3, 6, 0.5, 2, "4 of 5 starts reached the best solution", (), (), None)
BANDIT = lmab.LatentBandit.bernoulli([0.25, 0.75], [[0.9, 0.2, 0.5], [0.1, 0.8, 0.5]])
EARNS = "A session of 5 steps earns 3.10 to 3.40 under this policy, +0.10 to +0.50 over the best fixed arm or list"
EARNS = f"{EARNS} (90% confidence intervals)"
BEST = "The best possible policy earns 3.20 to 3.60, at most 0.27 more than this one (7.5%)."
NONE_SHOWN = "No gain over the best fixed arm or list was demonstrated"
DO_NOT = f"{NONE_SHOWN}, because the latent types were not tested on held-out sessions."
MAY = f"{NONE_SHOWN}: its confidence interval is not entirely above 0."
REPLAYED = (
    "Masked replay on 1,200 held-out sessions: the greedy policy of the model earns {} popularity ({} per session)."
)
PLAN_GAINS = (
    "The gain of a plan can be larger, because a plan looks ahead and may choose any arm, not only one half of the "
    "arms logged in a session; but it relies on the model."
)
ASSUMES = "The replay relies on no model, provided that the logged arms did not depend on the rewards of their session."


def of_arm(text: str) -> str:
    """Return a text about the best fixed arm alone."""
    return text.replace("arm or list", "arm")


def assumed(**fires: Assumption) -> Assumptions:
    return Assumptions(**({"shown": NO, "leaving": NO, "drift": NO, "step": NO} | fires))


SENTENCES = {
    "gain": (CHECK.over_one_type, "+0.2000 ± 0.0900"),
    "gain below": (Gain(-0.00004, 1.0), "-0.0000 ± 1.0000"),
    "gain, briefly": (Gain(0.0312, 0.0042).brief, "+0.0312 ± 0.0042"),
    "gain, briefly, without error": (Gain(0.03, 0.0).brief, "+0.030 ± 0.000"),
    "gain, briefly, large": (Gain(123.4, 23.0).brief, "+123 ± 23"),
    "gain, briefly, next to nothing": (Gain(-0.00001, 0.00001).brief, "+0.0000 ± 0.0000"),
    "replay sure": (Replay(0.3, 0.1, 1200), REPLAYED.format("more than", "+0.30 ± 0.10")),
    "replay not sure": (Replay(0.2, 0.1, 1200), REPLAYED.format("about as much as", "+0.20 ± 0.10")),
    "replay no worse": (Replay(-0.2, 0.1, 1200), REPLAYED.format("about as much as", "-0.20 ± 0.10")),
    "replay worse": (Replay(-0.21, 0.1, 1200), REPLAYED.format("less than", "-0.21 ± 0.10")),
    "check": (
        CHECK.verdict,
        "Latent types are supported: held-out log-likelihood per session +0.200 ± 0.090 over one type and +0.100 "
        "± 0.090 over independent arms (± standard error); calibration slope of predicted differences 0.87 ± "
        "0.05 (1 is calibrated).",
    ),
    "check, all real": (
        replace(CHECK, calibration=replace(LINE, slope=1.08)).verdict,
        "Latent types are supported: held-out log-likelihood per session +0.200 ± 0.090 over one type and +0.100 "
        "± 0.090 over independent arms (± standard error); calibration slope of predicted differences 1.08 ± "
        "0.05 (1 is calibrated).",
    ),
    "check of one type": (
        replace(CHECK, n_types=1).verdict,
        "Latent types were not tested: a model with one type predicts the same rewards for every session. Fit "
        "two or more types to test them.",
    ),
    "check, nothing": (
        NONE_FOUND.verdict,
        "No latent types found: 3 types do not predict held-out sessions better than one type (log-likelihood "
        "per session +0.20 ± 0.10). More or longer sessions may reveal types; until then, play the arms with the "
        "highest mean rewards.",
    ),
    "check, little": (
        replace(CHECK, over_independent_arms=Gain(0.1, 0.1), n_factors=1).verdict,
        "Latent types are not supported: traits with 1 factor predict held-out sessions better than one type, "
        "but not better than independent arms (log-likelihood per session +0.10 ± 0.10), so rewards of one arm "
        "do not help to choose another. Longer sessions may reveal types; until then, play the arms with the "
        "highest mean rewards.",
    ),
    "check, generosity": (
        replace(CHECK, over_generosity=Gain(0.0, 0.1), n_factors=0).verdict,
        "Latent types are not supported: sessions differ in their overall level of reward, and traits without a "
        "factor predict held-out sessions no better than this level alone. No gain over the most popular arms "
        "was demonstrated.",
    ),
    "check, by degrees": (
        " ".join(replace(CHECK, over_traits=Gain(-0.21, 0.1)).sentences),
        "Continuous latent traits predict held-out sessions better than these types: try `lmab fit --traits` (in "
        "Python `method=lmab.Traits()`).",
    ),
    "check, types as good": (" ".join(replace(CHECK, over_traits=Gain(-0.2, 0.1)).sentences), ""),
    "check, details": (
        replace(CHECK, over_generosity=Gain(0.1, 0.2), over_traits=Gain(-0.1, 0.2)).details,
        "{'over one type': '+0.2000 ± 0.0900', 'over independent arms': '+0.1000 ± 0.0900', 'over one response "
        "level per session': '+0.1000 ± 0.2000', 'over latent traits': '-0.1000 ± 0.2000', 'calibration slope': "
        "'0.87 ± 0.05'}"
    ),
    "gains of types": (
        Gains(0.012, 0.003, -0.0004, 0.001),
        "stays +0.0120 (0.0030), rewards -0.0004 (0.0010) per held-out session",
    ),
    "gain of features": (Known(0.0312, 0.004, {}), "+0.0312 (0.0040) per held-out session"),
    "starts": (Starts(20, 20, 17), "17 of 20 starts reached the best solution"),
    "starts dropped": (Starts(20, 5, 4), "4 of 5 starts reached the best solution, 15 dropped early"),
    "fingerprint": (
        Fingerprint(2000, 10000, "0123456789abcdef"),
        "2,000 sessions, 10,000 steps, checksum 0123456789abcdef",
    ),
    "mean of a study": (Mean(0.98765, 0.00123, 7), "0.9877 ± 0.0012"),
    "verdict without an assessment": (
        Verdict(None, CHECK).short,
        "The gain over the best fixed arm or list is predicted by the model; `lmab evaluate --assess` estimates "
        "its confidence interval from the log of the fit.",
    ),
    "verdict refused": (Verdict(None, CHECK, refused=True).short, "No gain over the best fixed arm or list was "
                                                                  "demonstrated, because the log contradicts an "
                                                                  "assumption of the model."),
    "verdict, no gain": (Verdict((0.0, 0.3), CHECK).short, MAY),
    "verdict, unchecked": (Verdict((0.1, 0.3), None).short, DO_NOT),
    "verdict, sure": (
        Verdict((0.1, 0.3), CHECK).short,
        "A gain over the best fixed arm or list was demonstrated: its confidence interval is above 0, and "
        "held-out sessions support the latent types.",
    ),
    "assessment": (CERTIFICATE, f"{of_arm(EARNS)}. {BEST} {of_arm(DO_NOT)}"),
    "assessment until people leave": (
        replace(CERTIFICATE, people_leave=True),
        f"{of_arm(EARNS).replace('5 steps', 'at most 5 steps')}. {BEST} {of_arm(DO_NOT)}",
    ),
    "assessment without a claim": (
        replace(CERTIFICATE, value=None, optimum=None, regret=None, gain=None, tested=assumed(drift=YES)),
        "No confidence interval for this policy: the mixture of types changed. No gain over the best fixed arm "
        "was demonstrated, because the log contradicts an assumption of the model.",
    ),
    "assessment without a reason": (
        replace(CERTIFICATE, value=None, regret=None, gain=None),
        "No confidence interval for this policy: the log contradicts an assumption. The best possible policy "
        "earns 3.20 to 3.60. No gain over the best fixed arm was demonstrated, because the log "
        "contradicts an assumption of the model.",
    ),
    "assessment below zero": (
        replace(CERTIFICATE, value=(-3.4, -3.1), optimum=(-3.2, -2.9), gain=None),
        "A session of 5 steps earns -3.40 to -3.10 under this policy (90% confidence interval). The best "
        "possible policy earns -3.20 to -2.90, at most 0.27 more than this one. No gain over the best fixed arm "
        "was demonstrated, because the log contradicts an assumption of the model.",
    ),
    "assessment of whole numbers": (
        replace(CERTIFICATE, value=(310.0, 340.0), optimum=(320.0, 360.0), regret=(0.0, 27.0), gain=(-10.0, 50.0)),
        "A session of 5 steps earns 310 to 340 under this policy, -10 to +50 over the best fixed arm "
        "(90% confidence intervals). The best possible policy earns 320 to 360, at most 27 more than this one "
        "(7.5%). No gain over the best fixed arm was demonstrated: its confidence interval is not "
        "entirely above 0.",
    ),
    "assessment of small numbers": (
        replace(CERTIFICATE, value=(1.0, 1.00001), gain=None).sentence[:65],
        "A session of 5 steps earns 1.0000 to 1.0000 under this policy (90",
    ),
    "assessment rests on": (
        CERTIFICATE.note,
        "40 models drawn from the approximate posterior given 2,000 sessions; calibration 1 of the intervals",
    ),
    "what a log identifies": (
        " ".join(NOTE.sentences),
        "4 of 5 starts reached the best solution. 50% of the sessions have at least 5 steps, which always "
        "identify 3 types; with shorter sessions several models may be equally likely. Numerical rank of the "
        "second moments of rewards: 2.",
    ),
    "what a long log identifies": (
        " ".join(replace(NOTE, long_enough=0.51, rank=None, rare_arms=(1,), rarest=0.12).sentences[1:]),
        "51% of the sessions have at least 5 steps, which always identify 3 types. 1 arm was played fewer than "
        "30 times in the rarest type (12% of the sessions): arm 1.",
    ),
    "what a log of one type identifies": (
        " ".join(replace(NOTE, n_types=1, rank=1, rare_arms=(0, 2), core_arms=(1,), arm_labels=tuple("abc")).sentences),
        "4 of 5 starts reached the best solution. Numerical rank of the second moments of rewards: 1. 2 arms "
        "were played fewer than 30 times in the rarest type (100% of the sessions): a, c. Most informative arms "
        "about the types: b. Log more sessions that play them.",
    ),
    "what a log of traits identifies": (
        " ".join(replace(NOTE, traits=True, rank=1, rare_arms=tuple(range(13))).sentences),
        "Numerical rank of the second moments of rewards: 1. 13 arms with fewer than 30 plays: estimates for arm "
        "0, arm 1, arm 2, arm 3, arm 4, arm 5, arm 6, arm 7, arm 8, arm 9, arm 10, arm 11, ... rely mostly on "
        "the prior learned from other arms.",
    ),
    "evaluation": (Evaluation(2.3456789, 0.0, np.zeros(4), n_nodes=3), "Evaluation(2.34568 ± 0 over 4 steps, exact)"),
    "evaluation of a log": (
        Evaluation(2.3456789, 0.01234, np.zeros(4), n_sessions=500),
        "Evaluation(2.34568 ± 0.012 over 4 steps, 500 sessions)",
    ),
    "evaluation of a short log": (
        Evaluation(2.3456789, float("nan"), np.zeros(4), n_sessions=5),
        "Evaluation(2.34568, error unknown, over 4 steps, 5 sessions)",
    ),
    "bandit": (BANDIT, "LatentBandit(2 types, 3 arms, rewards in {0, 1}; weights 0.25, 0.75)"),
    "bandit of one type": (
        lmab.LatentBandit.gaussian([1.0], [[0.5]], 0.25),
        "LatentBandit(1 type, 1 arms, normal rewards with scale 0.25; weights 1)",
    ),
    "bandit of many types": (
        lmab.LatentBandit.categorical(np.full(9, 1 / 9), np.full((9, 1, 9), 1 / 9), np.arange(9.0)),
        "LatentBandit(9 types, 1 arms, rewards in {0, 1, 2, 3, 4, 5, 6, 7, ...}; weights 0.111, 0.111, 0.111, 0.111, "
        "0.111, 0.111, 0.111, 0.111, ...)",
    ),
    "bandit that people leave": (
        replace(BANDIT, leaving=np.full((2, 3, 2), 0.1)),
        "LatentBandit(2 types, 3 arms, rewards in {0, 1}, people leave; weights 0.25, 0.75)",
    ),
    "bandit of counts": (
        lmab.LatentBandit.counts([1.0], [[2.0, 3.0]]),
        "LatentBandit(1 type, 2 arms, counts 0, 1, 2, ...; weights 1)",
    ),
    "sessions": (lmab.Sessions.from_arrays([[0, 1]], [[0.0, 1.0]]), "Sessions(1 session, 2 steps, 2 arms)"),
    "one arm": (lmab.Sessions.from_arrays([[0], [0]], [[0.0], [1.0]]), "Sessions(2 sessions, 2 steps, 1 arm)"),
    "features": (
        lmab.Sessions.from_arrays([[0]] * 3, [[0.0]] * 3, features={"age": [1, 2, 1], "sex": ["f", "f", "f"]}).features,
        "Features(age, sex; 3 sessions, 2 distinct rows)",
    ),
    "policy": (lmab.Uniform(3), "Uniform(3 arms, any horizon)"),
    "policy with an end": (lmab.Greedy(BANDIT, horizon=4), "Greedy(3 arms, 4 steps)"),
    "type prior": (lmab.model.TypePrior.by_value("country", {"de": [0.8, 0.2]}), "TypePrior(country; 2 types)"),
    "type prior that keeps": (
        lmab.model.TypePrior.by_value("country", {"de": [0.8, 0.2]}, keep=0.61234),
        "TypePrior(country; 2 types, keep 0.612)",
    ),
    "subspace": (Subspace(np.eye(6)[:, :2], np.ones(2), 3, np.array([0.0, 1.0])), "Subspace(rank 2 of 6 rows, 3 arms)"),
    "exploration": (
        Exploration.of_arms("explore", np.zeros((7, 2), np.int64)),
        "Exploration(explore: 7 sessions, arms given)",
    ),
    "phase": (Phase("fit", seconds=1.234, facts={"g": 3}), "Phase(fit: 1.2 s, g=3)"),
    "phase played": (
        Phase("explore", n_sessions=70, n_rounds=2, seconds=0.5),
        "Phase(explore: 70 sessions in 2 rounds, 0.5 s)",
    ),
    "learned": (
        Learned(lmab.Uniform(3), None, 70, (Phase("explore", 70, 2), Phase("fit"))),
        "Learned(Uniform from 70 sessions: explore 70)",
    ),
    "laws": (Report("Mine", ("a", "b"), {"c": "no time"}), "Report(Mine keeps 2 laws; not checked: c (no time))"),
}  # fmt: skip


@pytest.mark.parametrize("name", SENTENCES)
def test_values_say_what_they_hold(name):
    value, said = SENTENCES[name]
    assert str(value) == said


ENDS = Ends(5, 0.42, np.array([0.0, 1.0]), np.array([0.1, 0.25]), 2.345)
ROWS = [
    (
        {},
        "confidence",
        "each interval contains the true value for 90% of logs on average, if the true number of types is at most 3",
    ),
    (
        {"confidence": 0.955},
        "confidence",
        "each interval contains the true value for 96% of logs on average, if the true number of types is at most 3",
    ),
    ({}, "regret", "more planning could remove at most 50% of the bound, the rest needs data"),
    (
        {"planning_gap": 0.51, "planned": "certified"},
        "regret",
        "more planning could remove at most 51% of the bound, the rest needs data; plan again with a smaller gap "
        "(--gap)",
    ),
    ({"planning_gap": 0.004}, "regret", "limited data accounts for all of the bound; more planning cannot reduce it"),
    ({"planning_gap": 0.005}, "regret", "more planning could remove at most 0% of the bound, the rest needs data"),
    ({"regret": None}, "regret", None),
    ({}, "sparse data", None),
    (
        {"found": (("sparse data", (0.2, 25, 1)),)},
        "sparse data",
        "20% of the plan's steps go to arms played fewer than 25 times per parameter",
    ),
    ({}, "number of types", None),
    ({"found": (("number of types", (4, 3)),), "check": NONE_FOUND}, "number of types", None),
    (
        {"found": (("weak identification", (2.9,)),)},
        "weak identification",
        "the log contains little information about the types (2.9 nats per parameter)",
    ),
    (
        {"found": (("adaptive arms", ()),)},
        "adaptive arms",
        "the next arm depends on the reward before it, so arms are known from sessions they suit",
    ),
    ({"corrected": True, "held_out": HeldOutTests(NO, NO, NO, NO, YES, NO)}, "the calendar", YES.sentence),
    ({"check": CHECK}, "held-out check", CHECK.verdict),
    ({"tested": assumed(drift=YES)}, "drift", "The mixture of types changed."),
    ({"tested": assumed(drift=YES)}, "selective exposure", None),
    ({"ends": ENDS}, "sessions that reach step 5", "42% in the log; probability of leaving: 10% after 0, 25% after 1"),
    ({"ends": ENDS}, "value per started session", "about 2.35, if sessions end as in the log"),
    ({"ends": replace(ENDS, value=None)}, "value per started session", None),
]


@pytest.mark.parametrize(("change", "row", "said"), ROWS)
def test_an_assessment_says_what_it_rests_on(change, row, said):
    assert replace(CERTIFICATE, **change).table.get(row) == said


@pytest.mark.parametrize(
    ("check", "agrees"),
    [
        (CHECK, True),
        (NONE_FOUND, False),  # two standard errors are not more than two
        (replace(CHECK, over_independent_arms=Gain(0.09, 0.09)), False),
        (replace(CHECK, over_generosity=Gain(0.0, 0.0)), False),
        (replace(CHECK, over_generosity=Gain(0.001, 9.0)), True),
    ],
)
def test_held_out_sessions_confirm_types_by_two_errors_unrelated_arms_by_one_and_generosity_by_any(check, agrees):
    assert check.agrees == agrees
    assert Verdict((0.1, 0.2), check).sure == agrees
    assert not Verdict((0.0, 0.2), check).sure


def test_what_is_known_before_is_added_to_every_gain():
    more = replace(CHECK, over_generosity=Gain(0.3, 0.4), over_traits=Gain(-0.1, 0.0)).plus(0.05, 0.3)
    gains = (more.over_one_type, more.over_independent_arms, more.over_generosity, more.over_traits)
    found = [(gain.mean, gain.stderr) for gain in gains]
    error = np.hypot(0.09, 0.3)
    np.testing.assert_allclose(found, [(0.25, error), (0.15, error), (0.35, 0.5), (-0.05, 0.3)])
    assert more.log_likelihood == pytest.approx(-2.45)
    assert (CHECK.plus(0.1, 0.1).over_generosity, CHECK.plus(0.1, 0.1).over_traits) == (None, None)


@pytest.mark.parametrize(
    ("chosen", "reason"),
    [
        (2, "2 types selected: highest held-out log-likelihood"),
        (3, "3 types selected: 2 have the highest held-out log-likelihood, but one type too few costs a learner more "
            "than one too many"),
        (1, "1 type selected: 2 have a held-out log-likelihood that is not clearly higher"),
    ],
)  # fmt: skip
def test_a_curve_says_why(chosen, reason):
    curve = Curve((1, 2, 3), np.array([-2.0, -1.5, -1.75]), np.array([0.0, 0.5, -0.25]), np.zeros(3), chosen)
    assert str(curve) == f"{reason} (log-likelihood per session by number of types: 1: -2.0000, 2: -1.5000, 3: -1.7500)"
    assert (curve.best, curve.best_of_several) == (2, 2)
    lone = Curve((1,), np.array([-2.0]), np.zeros(1), np.zeros(1), 1)
    assert lone.best_of_several == 1


@pytest.mark.parametrize(("stays", "rewards", "clear"), [(2.1, 0.0, True), (2.0, 0.0, False), (2.1, -1.0, False)])
def test_leaving_by_type_is_clear_by_two_errors_and_rewards_not_worse(stays, rewards, clear):
    assert Gains(stays, 1.0, rewards, 1.0).clear == clear


def test_a_site_that_chose_by_type_is_told_with_its_numbers():
    found = Selection("free", np.ones((4, 3)), 0.0, 32.0, False, 21.37, 4.26, Gain(0.0123, 0.004))
    assert found.sentence == (
        "selective exposure: the logged arms depend on the latent type (likelihood ratio 21.4, log evidence 4.3); the "
        "model includes this, which improves the prediction of held-out rewards (+0.0123 ± 0.0040 per session)"
    )
    assert found.n_parameters == 9
    assert replace(found, kind="likes").n_parameters == 1


def test_the_replay_promises_no_more_from_a_plan_without_support_for_types():
    replay = Replay(0.3, 0.1, 7)
    assert replace(CHECK, replay=replay).replay_sentence == f"{replay} {PLAN_GAINS} {ASSUMES}"
    refused = replace(CHECK, replay=replay, over_one_type=Gain(0.01, 0.01))
    assert refused.replay_sentence == f"{replay} {ASSUMES}"
    assert CHECK.replay_sentence == ""


def cells(html: str) -> dict[str, str]:
    """The rows of a card."""
    rows = re.findall(r"<tr><th[^>]*>([^<]*)</th><td[^>]*>([^<]*)</td></tr>", html)
    return dict(rows)


CARDS = {
    "bandit": (
        BANDIT,
        {"types": "2: 75%, 25%", "arms": "3", "best fixed arm": "0.65 per step",
         "best arm of a known type": "0.825 per step"},
    ),
    "bandit of many types": (
        lmab.LatentBandit.bernoulli(np.full(10, 0.1), np.full((10, 1), 0.5)),
        {"types": "10: " + ", ".join(["10%"] * 8)},
    ),
    "policy": (
        lmab.Greedy(BANDIT, horizon=4),
        {"arms": "3", "steps": "4", "an arm twice in a session": "may be", "first arm": "arm 1",
         "chooses": "always the same after the same session"},
    ),
    "random policy": (lmab.Uniform(3), {"steps": "any number", "chooses": "at random"}),
    "assessment": (
        CERTIFICATE,
        {"value of this policy": "3.1 to 3.4", "gain over the best fixed arm": "+0.1 to +0.5",
         "value of the best policy": "3.2 to 3.6", "regret at most": "0.27 per session"},
    ),
    "assessment without claims": (
        replace(CERTIFICATE, value=None, gain=None, optimum=None, regret=None),
        {"value of this policy": "not claimed", "gain over the best fixed arm": "not claimed",
         "value of the best policy": "not claimed", "regret at most": "not claimed"},
    ),
    "check": (
        replace(CHECK, replay=Replay(0.3, 0.1, 7)),
        {"over one type": "+0.2000 ± 0.0900", "verdict": CHECK.verdict,
         "note 1": f"{Replay(0.3, 0.1, 7)} {PLAN_GAINS} {ASSUMES}"},
    ),
    "plan": (
        replace(lmab.plan(BANDIT, horizon=3), lower=2.0, upper=2.1, trace=()),
        {"earns at least": "2 over 3 steps", "no policy earns more than": "2.1 (gap 5.0%)", "found in": "no time"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CARDS)
def test_cards_show_the_numbers(name):
    value, rows = CARDS[name]
    found = cells(value._repr_html_())
    assert {row: found.get(row) for row in rows} == rows


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, "Plan(certified: optimum between 2 and 2.1, gap 0.05 over 3 steps)"),
        ({"status": lmab.errors.Status.OPTIMAL}, "Plan(optimal: 2 over 3 steps)"),
        ({"fixed": True}, "Plan(best fixed arm: 2 over 3 steps)"),
    ],
)
def test_a_plan_says_how_good_it_is(change, said):
    plan = replace(lmab.plan(BANDIT, horizon=3), lower=2.0, upper=2.1, status=lmab.errors.Status.CERTIFIED)
    assert repr(replace(plan, **change)) == said
