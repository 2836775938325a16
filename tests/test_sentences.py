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
from lmab.evaluation.certificate import Certificate, Ends, Verdict
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
CERTIFICATE = Certificate(
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
    n_unplayed=0,
    n_parameters=62,
    n_floored=4,
    thin_share=0.1,
    unplayed_share=0.25,
    one_more=(0.02, 0.02),
    draws=np.zeros((40, 4)),
)
NOTE = Identifiability(3, 6, 0.5, 2, "4 of 5 starts reached the best solution", (), (), None)
BANDIT = lmab.LatentBandit.bernoulli([0.25, 0.75], [[0.9, 0.2, 0.5], [0.1, 0.8, 0.5]])
EARNS = "A session of 5 steps earns 3.10 to 3.40 under this policy, +0.10 to +0.50 over the best fixed choice"
EARNS = f"{EARNS} (90% confidence intervals)"
BEST = "The best policy earns 3.20 to 3.60, at most 0.27 more (7.5%)."
DO_NOT = "Do not count on the gain over the best fixed choice before held-out sessions confirm the types."
MAY = "This policy may earn no more than the best fixed choice."
REPLAYED = (
    "Masked replay on 1,200 held-out sessions: choosing by the answers earns {} the most popular arms ({} per "
    "session). It differs from the gain of a plan because it may choose only among half of the arms that each session "
    "logged and does not look ahead; it relies on no model, and holds if the logged arms did not depend on the "
    "session's own rewards."
)


def assumed(**fires: Assumption) -> Assumptions:
    return Assumptions(**({"shown": NO, "leaving": NO, "drift": NO, "step": NO} | fires))


SENTENCES = {
    "gain": (CHECK.over_one_type, "+0.2000 ± 0.0900"),
    "gain below": (Gain(-0.00004, 1.0), "-0.0000 ± 1.0000"),
    "times": (Gain(0.7, 0.1).times, "2.01"),
    "times without end": (Gain(1e6, 0.1).times, "1.01e+304"),
    "replay sure": (Replay(0.3, 0.1, 1200), REPLAYED.format("more than", "+0.3000 ± 0.1000")),
    "replay not sure": (Replay(0.2, 0.1, 1200), REPLAYED.format("about as much as", "+0.2000 ± 0.1000")),
    "replay no worse": (Replay(-0.2, 0.1, 1200), REPLAYED.format("about as much as", "-0.2000 ± 0.1000")),
    "replay worse": (Replay(-0.21, 0.1, 1200), REPLAYED.format("less than", "-0.2100 ± 0.1000")),
    "check": (
        CHECK.verdict,
        "There are types: a held-out session is 1.22 times as likely as under one type and 1.11 times as likely as "
        "under unrelated arms; of each predicted difference 87% is real.",
    ),
    "check, all real": (
        replace(CHECK, calibration=replace(LINE, slope=1.08)).verdict,
        "There are types: a held-out session is 1.22 times as likely as under one type and 1.11 times as likely as "
        "under unrelated arms; of each predicted difference 100% is real.",
    ),
    "check of one type": (
        replace(CHECK, n_types=1).verdict,
        "Not asked: a model of one type predicts the same for every session. Fit more types to see.",
    ),
    "check, nothing": (
        NONE_FOUND.verdict,
        "Nothing found: 3 types predict held-out sessions no better than one type does. More or longer sessions may "
        "show more; until then play the best arms.",
    ),
    "check, little": (
        replace(CHECK, over_independent_arms=Gain(0.1, 0.1), n_factors=1).verdict,
        "Little: traits with 1 factor predict held-out sessions better than one type does, but no better than if arms "
        "had nothing to do with each other. Longer sessions may show more; until then play the best arms.",
    ),
    "check, generosity": (
        replace(CHECK, over_generosity=Gain(0.0, 0.1), n_factors=0).verdict,
        "Generosity alone: sessions like all arms more or less, and traits without a factor predict held-out sessions "
        "no better than that. No gain over the most popular arms was demonstrated.",
    ),
    "check, by degrees": (
        " ".join(replace(CHECK, over_traits=Gain(-0.21, 0.1)).sentences),
        "Continuous types predict held-out sessions better than these types do: try `lmab fit --traits`, or "
        "`method=lmab.Traits()`.",
    ),
    "check, types as good": (" ".join(replace(CHECK, over_traits=Gain(-0.2, 0.1)).sentences), ""),
    "check, details": (
        replace(CHECK, over_generosity=Gain(0.1, 0.2), over_traits=Gain(-0.1, 0.2)).details,
        "{'over one type': '+0.2000 ± 0.0900', 'over unrelated arms': '+0.1000 ± 0.0900', 'over generosity alone': "
        "'+0.1000 ± 0.2000', 'over traits': '-0.1000 ± 0.2000', 'predicted differences that are real': '87% ± 5%'}",
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
    "verdict without a certificate": (
        Verdict(None, CHECK).short,
        "The gain over the best fixed choice is that on the model: estimate its confidence interval from the log "
        "of the fit (`lmab evaluate --certify`).",
    ),
    "verdict refused": (Verdict(None, CHECK, refused=True).short, "No gain over the best fixed choice is claimed."),
    "verdict, no gain": (Verdict((0.0, 0.3), CHECK).short, MAY),
    "verdict, unchecked": (Verdict((0.1, 0.3), None).short, DO_NOT),
    "verdict, sure": (
        Verdict((0.1, 0.3), CHECK).short,
        "Count on the gain over the best fixed choice: held-out sessions confirm the types.",
    ),
    "certificate": (CERTIFICATE, f"{EARNS}. {BEST} {DO_NOT}"),
    "certificate until people leave": (
        replace(CERTIFICATE, people_leave=True),
        f"{EARNS.replace('5 steps', 'at most 5 steps')}. {BEST} {DO_NOT}",
    ),
    "certificate without a claim": (
        replace(CERTIFICATE, value=None, optimum=None, regret=None, gain=None, tested=assumed(drift=YES)),
        "Nothing is claimed about what this policy earns: the mixture of types changed. No gain over the best fixed "
        "choice is claimed.",
    ),
    "certificate without a reason": (
        replace(CERTIFICATE, value=None, regret=None, gain=None),
        "Nothing is claimed about what this policy earns: the log contradicts an assumption. The best policy earns "
        "3.20 to 3.60. No gain over the best fixed choice is claimed.",
    ),
    "certificate below zero": (
        replace(CERTIFICATE, value=(-3.4, -3.1), optimum=(-3.2, -2.9), gain=None),
        "A session of 5 steps earns -3.40 to -3.10 under this policy (90% confidence interval). The best policy "
        "earns -3.20 to -2.90, at most 0.27 more. No gain over the best fixed choice is claimed.",
    ),
    "certificate of whole numbers": (
        replace(CERTIFICATE, value=(310.0, 340.0), optimum=(320.0, 360.0), regret=(0.0, 27.0), gain=(-10.0, 50.0)),
        f"A session of 5 steps earns 310 to 340 under this policy, -10 to +50 over the best fixed choice (90% "
        f"confidence intervals). The best policy earns 320 to 360, at most 27 more (7.5%). {MAY}",
    ),
    "certificate of small numbers": (
        replace(CERTIFICATE, value=(1.0, 1.00001), gain=None).sentence[:65],
        "A session of 5 steps earns 1.0000 to 1.0000 under this policy (90",
    ),
    "certificate rests on": (
        CERTIFICATE.note,
        "From 40 models that the 2,000 sessions could have come from; these say next to nothing about 4 of the 62 "
        "directions in which models differ. Each interval holds with 90% on average, provided that there are no more "
        "than 3 types in truth.",
    ),
    "certificate of a log that knows all": (
        replace(CERTIFICATE, n_floored=0).note[:66],
        "From 40 models that the 2,000 sessions could have come from. Each ",
    ),
    "certificate of traits": (
        replace(CERTIFICATE, n_factors=2).note[-76:],
        "provided that sessions differ by degrees in no more than 2 factors in truth.",
    ),
    "what a log identifies": (
        " ".join(NOTE.sentences),
        "4 of 5 starts reached the best solution. 50% of the sessions have the 5 steps that identify 3 types in every "
        "case; shorter ones may leave several models equally likely. The types differ in 2 directions.",
    ),
    "what a long log identifies": (
        " ".join(replace(NOTE, long_enough=0.51, rank=None, rare_arms=(1,), rarest=0.12).sentences[1:]),
        "51% of the sessions have the 5 steps that identify 3 types in every case. 1 arm was played fewer than 30 "
        "times in the rarest type (12% of the sessions): arm 1.",
    ),
    "what a log of one type identifies": (
        " ".join(replace(NOTE, n_types=1, rank=1, rare_arms=(0, 2), core_arms=(1,), arm_labels=tuple("abc")).sentences),
        "4 of 5 starts reached the best solution. The types differ in 1 direction. 2 arms were played fewer than 30 "
        "times in the rarest type (100% of the sessions): a, c. To learn more, log sessions that play b: they tell "
        "most.",
    ),
    "what a log of traits identifies": (
        " ".join(replace(NOTE, traits=True, rank=1, rare_arms=tuple(range(13))).sentences),
        f"Sessions differ in 1 direction. 13 arms of fewer than 30 plays: what is known of other arms stands in for "
        f"most of what is said about {', '.join(f'arm {i}' for i in range(12))}, ....",
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
    ({}, "confidence", "each interval contains its value in 90% of logs, on average"),
    ({"confidence": 0.955}, "confidence", "each interval contains its value in 96% of logs, on average"),
    ({}, "what is given away", "planning accounts for 50% of it, limited data for the rest"),
    (
        {"planning_gap": 0.51, "planned": "certified"},
        "what is given away",
        "planning accounts for 51% of it, limited data for the rest; plan again with a smaller gap (--gap)",
    ),
    ({"planning_gap": 0.004}, "what is given away", "limited data accounts for all of it: planning is complete"),
    ({"planning_gap": 0.005}, "what is given away", "planning accounts for 0% of it, limited data for the rest"),
    ({"regret": None}, "what is given away", None),
    ({}, "thin", None),
    ({"thin_share": 0.11}, "thin", "11% of the plan's steps go to arms played fewer than 25 times per type"),
    (
        {"thin_share": 0.2, "n_factors": 1},
        "thin",
        "20% of the plan's steps go to arms played fewer than 25 times per parameter",
    ),
    ({}, "types", None),
    (
        {"one_more": (0.021, 0.02)},
        "types",
        "one more than 3 predicts held-out sessions better; the claims allow for it",
    ),
    ({"one_more": (1e-4, 0.0)}, "types", None),
    ({"one_more": (0.03, 0.02), "check": NONE_FOUND}, "types", None),
    ({"told": 3.0}, "hardly told apart", None),
    (
        {"told": 2.9},
        "hardly told apart",
        "the sessions say little about who is of which type: upper ends reach further up",
    ),
    ({"reaction": 5.0}, "arms", None),
    ({"reaction": 5.1}, "arms", "the next one depends on the reward before it: lower ends reach further down"),
    ({"n_unplayed": 1}, "unplayed", "1 arm was never played; 25% of the best there is rests on guessing what they pay"),
    (
        {"n_unplayed": 2},
        "unplayed",
        "2 arms were never played; 25% of the best there is rests on guessing what they pay",
    ),
    ({"check": CHECK}, "held-out check", CHECK.verdict),
    ({"tested": assumed(drift=YES)}, "drift", "The mixture of types changed."),
    ({"tested": assumed(drift=YES)}, "shown", None),
    ({"ends": ENDS}, "sessions that reach step 5", "42% in the log; chance to leave 10% after 0, 25% after 1"),
    ({"ends": ENDS}, "per started session", "about 2.35, where people leave as in the log"),
    ({"ends": replace(ENDS, value=None)}, "per started session", None),
]


@pytest.mark.parametrize(("change", "row", "said"), ROWS)
def test_a_certificate_says_what_it_rests_on(change, row, said):
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
        (2, "2 types, because held-out sessions are predicted best so"),
        (3, "3 types, some of them to spare: 2 predict held-out sessions best, but one type too few costs a learner "
            "more than one too many"),
        (1, "1 type, because 2 predict held-out sessions hardly better"),
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
        "which arms were shown tells who it is (likelihood ratio 21.4, log evidence 4.3), so the types explain the "
        "arms as well, and predict held-out rewards better for it (+0.0123 ± 0.0040 a session)"
    )
    assert found.n_parameters == 9
    assert replace(found, kind="likes").n_parameters == 1


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
    "certificate": (
        CERTIFICATE,
        {"this policy earns": "3.1 to 3.4", "over the best fixed choice": "+0.1 to +0.5",
         "the best earns": "3.2 to 3.6", "given away at most": "0.27 per session"},
    ),
    "certificate without claims": (
        replace(CERTIFICATE, value=None, gain=None, optimum=None, regret=None),
        {"this policy earns": "not claimed", "over the best fixed choice": "not claimed",
         "the best earns": "not claimed", "given away at most": "not claimed"},
    ),
    "check": (
        replace(CHECK, replay=Replay(0.3, 0.1, 7)),
        {"over one type": "+0.2000 ± 0.0900", "verdict": CHECK.verdict,
         "and 1": str(Replay(0.3, 0.1, 7)).replace("'", "&#x27;")},
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
        ({"fixed": True}, "Plan(best fixed choice: 2 over 3 steps)"),
    ],
)
def test_a_plan_says_how_good_it_is(change, said):
    plan = replace(lmab.plan(BANDIT, horizon=3), lower=2.0, upper=2.1, status=lmab.errors.Status.CERTIFIED)
    assert repr(replace(plan, **change)) == said
