"""Off the usual path: refusals, fallbacks and words that no ordinary run reaches."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from policies import of_any_arms
from typer.testing import CliRunner

import lmab
from lmab import checks, files, learning
from lmab.cli import fit as fit_command
from lmab.cli.app import app
from lmab.cli.compare import _labels
from lmab.cli.options import Columns, _relabelled
from lmab.data.features import _untyped, person_values, require_endings
from lmab.data.log_files import Places
from lmab.errors import InvalidArgument, InvalidData, InvalidFile
from lmab.estimation import EM, MomentMatching
from lmab.estimation.families import observe
from lmab.evaluation.assessment import Assessment
from lmab.evaluation.compare import Comparison, _first_difference
from lmab.evaluation.diagnostics import _core
from lmab.evaluation.off_policy import check_log
from lmab.evaluation.value import _seen_before
from lmab.moments.core_set import design
from lmab.paper.commands import budget
from lmab.paper.experiment import checks as study_checks
from lmab.paper.experiment.analysis import _seconds
from lmab.paper.experiment.methods import GENIE
from lmab.paper.experiment.page import _provenance
from lmab.paper.history_ucbvi import HistoryPolicy
from lmab.paper.l_ucrl import OptimisticPolicy
from lmab.planning import Lookahead
from lmab.planning.exact import ExactPolicy
from lmab.planning.no_repeats.point_based import rounds_of
from lmab.policies import MUCB
from lmab.policies.graph import PolicyGraph
from lmab.reporting import gather, page
from lmab.reporting.contents import look
from lmab.serve.messages import Problem, check_finite
from lmab.simulation import leaves
from lmab.testing.oracle import discrete_cases
from lmab.testing.report import Broken, expect_refusal

RUNNER = CliRunner()
BANDIT = lmab.LatentBandit.bernoulli([0.4, 0.6], [[0.9, 0.2, 0.7], [0.1, 0.8, 0.3]])
LOG = lmab.simulate(BANDIT, lmab.Uniform(3), n_sessions=40, horizon=3, rng=1)
LARGER = lmab.simulate(lmab.random_bandit(2, 4, rng=0), lmab.Uniform(4), n_sessions=8, horizon=3, rng=1)
ONE_STEP = lmab.Sessions.from_arrays(LOG.arms[:, None], LOG.rewards[:, None])
GAUSSIAN = lmab.LatentBandit.gaussian([0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]])


def run(*words):
    result = RUNNER.invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


class PackedColumns(Columns):
    """Columns of a log that is packed."""

    def open(self, path):
        return lmab.Packed.__new__(lmab.Packed)


def of_kind(kind, noun):
    """The record of a noun that calls itself another."""
    return replace(noun.record(), kind=kind)


def history(scores):
    return HistoryPolicy([0.0, 1.0], scores)


def subspace():
    played = lmab.simulate(GAUSSIAN, lmab.Uniform(2), n_sessions=60, horizon=3, rng=0)
    return lmab.moments.subspace(played, rank=2, rewards="gaussian")


REFUSALS = [
    (
        lambda: checks.check_same_length("it", [1, 2], [1]),
        InvalidArgument,
        "the parts of it must have the same length, got [2, 1]",
    ),
    (
        lambda: observe(LOG, rewards="binned", scale=1.0),
        InvalidArgument,
        "values and scale must be None for binned rewards, got some",
    ),
    (
        lambda: observe(LOG, rewards="binned", values=[0.0]),
        InvalidArgument,
        "values and scale must be None for binned rewards, got some",
    ),
    (
        lambda: MomentMatching().fit(observe(ONE_STEP), n_types=2, rng=0),
        InvalidArgument,
        "sessions must have at least 2 steps, got 1",
    ),
    (
        lambda: lmab.fit(LOG, n_types=2, method=EM(restarts=1, prior=1.0), check=False, rng=0).posterior(LARGER),
        InvalidArgument,
        "sessions must have at most 3 arms, got 4",
    ),
    (
        lambda: check_log(lmab.Uniform(3), LOG, 2, lmab.random_bandit(2, 4, rng=0)),
        InvalidArgument,
        "model must have 3 arms, got 4",
    ),
    (
        lambda: history([np.zeros((1, 2)), np.zeros((3, 2))]),
        InvalidArgument,
        "scores[1] must have 4 rows, got shape (3, 2)",
    ),
    (
        lambda: history([np.zeros((1, 2)), np.zeros((4, 2))]).skip(lmab.Uniform(2).start(1)),
        InvalidArgument,
        "arm must be known at every step",
    ),
    (
        lambda: OptimisticPolicy(BANDIT, [[0.0, 0.9]]),
        InvalidArgument,
        "bonus must have shape (2, 3), got (1, 2)",
    ),
    (
        lambda: lmab.LatentBandit.from_record(of_kind("plan", BANDIT)),
        InvalidFile,
        "holds a plan, not a bandit",
    ),
    (
        lambda: lmab.TypePrior.from_record(of_kind("bandit", lmab.TypePrior.constant([0.5, 0.5]))),
        InvalidFile,
        "holds a bandit, not a type_prior",
    ),
    (
        lambda: Assessment.from_record(files.Record("assessment", {}, {"draws": np.zeros(3)}, {})),
        InvalidFile,
        "damaged: draws must be a table, got shape (3,)",
    ),
    (
        lambda: design(subspace(), events="events"),
        InvalidArgument,
        "events must be 'pairs' or 'arms' for continuous rewards, got 'events'",
    ),
    (
        lambda: lmab.Uniform(3).distribution(lmab.Uniform(3).start(2), n_arms=4),
        InvalidArgument,
        "n_arms must be the policy's 3, got 4",
    ),
    (
        lambda: look(BANDIT, lmab.Uniform(3), LARGER, 3),
        InvalidArgument,
        "logs must have the model's 3 arms, got 4",
    ),
    (
        lambda: lmab.plan(lmab.random_bandit(2, 50, rng=0), horizon=6, method=Lookahead(5), repeats=False),
        InvalidArgument,
        "depth must keep (arms * values) ** depth * arms at most 1e+09, got 500000000000",
    ),
    (
        lambda: ExactPolicy(BANDIT, np.zeros(3), horizon=2),
        InvalidArgument,
        "states, got 3",
    ),
    (
        lambda: PolicyGraph(lmab.Greedy(BANDIT, horizon=2), np.array([0]), np.zeros((1, 3), np.int64), 0),
        InvalidArgument,
        "following must be (1, values of the rewards), got (1, 3)",
    ),
    (
        lambda: fit_command._read_log([], PackedColumns(), 5, None),
        InvalidArgument,
        "--min-plays and --top-arms must be given with a log that is not packed",
    ),
    (
        lambda: require_endings(np.array([2, 3]), np.array([1])),
        InvalidArgument,
        "ended must hold one entry for each of the 2 sessions, got 1",
    ),
    (
        lambda: _labels("a,b,c"),
        InvalidArgument,
        "--labels must be two labels with a comma between them, got 'a,b,c'",
    ),
    (lambda: check_finite(float("inf")), Problem, "reward must be a finite number"),
    (
        lambda: expect_refusal(lambda: {}["nothing"], "a key", "key"),
        Broken,
        "a key must raise a ValueError such as InvalidArgument, got KeyError: 'nothing'",
    ),
    (
        lambda: lmab.Sessions.from_frame(
            pl.DataFrame({"s": [0.5, float("nan")], "a": [0, 1], "r": [0.0, 1.0]}), session="s", arm="a", reward="r"
        ),
        InvalidData,
        "column 's' has a missing value in row 1",
    ),
]


@pytest.mark.parametrize(("call", "error", "words"), REFUSALS, ids=[words for _, _, words in REFUSALS])
def test_a_refusal_names_what_is_wrong(call, error, words):
    with pytest.raises(error) as refused:
        call()
    assert words in str(refused.value)


def test_a_run_whose_rounds_do_not_add_up_is_damaged(tmp_path):
    run = learning.Run(learning.UCB(), n_arms=3, horizon=3, n_sessions=40, rng=0)
    run.tell(run.ask().on(lmab.Simulator(BANDIT, horizon=3, rng=0)))
    record = run.record()
    record.arrays["rounds"][0] += 1
    with pytest.raises(InvalidFile, match=r"damaged: rounds of (\d+) sessions, and \d+ sessions"):
        learning.run.restore_run(record)


def test_a_reward_family_that_nobody_knows_is_refused():
    record = BANDIT.record()
    with pytest.raises(InvalidArgument, match=r"rewards must be .* got 'other'"):
        lmab.LatentBandit.from_record(
            replace(record, records={"rewards": replace(record.records["rewards"], kind="other")})
        )


def test_policies_of_any_number_of_arms_say_so():
    policy = of_any_arms()
    assert repr(policy) == "Ranking(any arms, any horizon)"
    assert ">any<" in policy._repr_html_()


def test_a_comparison_without_an_interval_says_so():
    found = Comparison(2.5, 2.0, None, float("nan"), "model", 20, 20.0)
    assert repr(found) == "Comparison(+0.5 (no interval): 2.5 against 2, model)"


def test_a_design_says_how_many_rows_it_keeps():
    found = design(np.vander(np.linspace(-1, 1, 5), 2, increasing=True))
    assert repr(found) == f"Design({len(found.support)} of 5 rows, k = 2, g = {found.g:.6g})"


def test_priors_are_equal_to_priors_alone():
    prior = lmab.TypePrior.constant([0.5, 0.5])
    assert prior == lmab.TypePrior.constant([0.5, 0.5])
    assert prior != "a prior"


def test_the_chance_of_a_reward_below_an_edge():
    rewards = lmab.LatentBandit.categorical([1.0], [[[0.2, 0.3, 0.5]]], [0.0, 1.0, 2.0]).rewards
    np.testing.assert_allclose(rewards.below(np.array([0.0, 0.5, 1.0, 1.5, 3.0]))[0, 0], [0.0, 0.2, 0.2, 0.5, 1.0])


def test_nobody_leaves_a_bandit_without_leaving():
    gone = leaves(BANDIT, np.array([0, 1]), np.array([0, 1]), np.array([0.0, 1.0]), np.random.default_rng(0))
    assert gone.tolist() == [False, False]


def test_places_without_files_are_rows():
    assert Places()(7) == "row 7"


def test_ids_of_persons_are_integers_or_text():
    assert person_values(np.array([3, 1], np.int32), 2).dtype == np.int64
    texts = person_values(np.array(["b", "a"]), 2)
    assert (texts.dtype, texts.tolist()) == (object, ["b", "a"])


def test_points_of_plans_without_repeats_come_in_rounds():
    assert rounds_of(300) == [12, 60, 300, 300]
    assert rounds_of(60) == [12, 60, 60]
    assert rounds_of(5) == [5, 5]


def test_special_bandits_of_the_laws_keep_their_sizes():
    """Brute force takes as long as they are large, and a shorter session would ask for less."""
    found = {name: (*bandit.means.shape, horizon) for name, (bandit, horizon) in discrete_cases(0).items()}
    assert found == {
        "two types, two arms": (2, 2, 4),
        "three values": (3, 2, 3),
        "values of both signs": (2, 3, 3),
        "losses only": (2, 2, 4),
        "an arm that pays little and tells much": (3, 3, 3),
        "a type of weight 0": (3, 2, 4),
        "dominated arms": (2, 4, 3),
        "one arm best in every type": (2, 3, 3),
        "all arms equal": (2, 2, 3),
        "rewards that reveal the type": (3, 3, 3),
        "one type": (1, 3, 3),
        "one arm": (2, 1, 3),
        "one step": (3, 2, 1),
    }


def test_a_line_of_json_may_be_longer_than_a_megabyte(tmp_path):
    rows = [{"session": 0, "arm": "a", "reward": 1.0, "page": "x" * 3_000_000}, {"session": 0, "arm": "b", "reward": 0}]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert lmab.Sessions.read(tmp_path / "log.jsonl").rewards.tolist() == [1.0, 0.0]


def test_sample_and_learn_say_where_they_wrote(tmp_path):
    answer = json.loads(run("sample", tmp_path / "shop.csv", "--sessions", 5, "--json"))
    assert answer == {"output": str(tmp_path / "shop.csv"), "sessions": 5, "steps": 30, "arms": 12}
    BANDIT.save(tmp_path / "truth.lmab")
    words = ("learn", tmp_path / "truth.lmab", "--horizon", 3, "--sessions", 60, "--learner", "ucb")
    said = run(*words, "-o", tmp_path / "policy.lmab")
    assert f"Policy written to {tmp_path / 'policy.lmab'}." in said.replace("\n", "")


@pytest.mark.parametrize(("needed", "words"), [(3000, "In practice 3,000 sessions"), (None, "more than 300,000")])
def test_a_measured_budget_is_said(needed, words, monkeypatch):
    monkeypatch.setattr(budget, "_measure", lambda *asked: needed)
    said = run("budget", "--types", 2, "--arms", 3, "--horizon", 3, "--measure", 2)
    assert words in " ".join(said.split())
    assert "mean over 2 random bandits" in " ".join(said.split())


@pytest.mark.parametrize(("losses", "size"), [([0.5, 0.3, 0.1], 1000), ([0.5] * 8, None)])
def test_the_least_size_at_which_the_mean_loss_is_small_enough(losses, size, monkeypatch):
    left = iter(losses)
    monkeypatch.setattr(budget, "_loss", lambda *asked: next(left))
    assert budget._measure(2, 3, 3, 0.1, 1, 0) == size


def test_two_labels_are_taken_as_they_are():
    assert _labels("old,new") == ("old", "new")


def test_a_page_without_rows_says_so():
    assert _provenance([]) == "No rows yet.\n"


def test_a_gym_without_a_mode_draws_nothing():
    pytest.importorskip("gymnasium", reason="gymnasium is not installed (extra gym)")
    from lmab.gym import LatentBanditEnv

    assert LatentBanditEnv(BANDIT, horizon=2).render() is None


@pytest.mark.parametrize(("n_arms", "said"), [(30, False), (31, True)])
def test_of_many_arms_that_people_leave_the_first_thirty_are_shown(n_arms, said):
    leaving = np.linspace(0.1, 0.5, n_arms)[None, :, None] * np.array([1.0, 0.5])
    bandit = replace(lmab.LatentBandit.bernoulli([1.0], np.full((1, n_arms), 0.5)), leaving=leaving)
    shown = str(page.who_leaves(gather(bandit, horizon=2)))
    assert ("The table shows 30 of 31 arms." in shown) is said
    assert ("arm 0," in shown) is not said  # after it the fewest leave


def test_the_last_of_counts_stands_for_all_larger_ones():
    counts = lmab.LatentBandit.counts([1.0], [[2.0, 0.3]])
    bandit = replace(counts, leaving=np.full((1, 2, 3), 0.2) * [0.5, 1.0, 2.0])
    shown = str(page.who_leaves(gather(bandit, horizon=2)))
    assert "after 1:" in shown
    assert "after 2+: 40% leave" in shown


def test_the_steps_of_a_policy_that_plays_at_random_are_not_drawn():
    shown = str(page.tree(gather(BANDIT, lmab.Uniform(3), horizon=2)))
    assert "The policy is random: its first steps differ between sessions." in shown


@pytest.mark.parametrize(
    ("asked", "found"), [((20_000, 500_000), True), ((5_000, 500_000), False), ((500_000, 5_000), False)]
)
def test_the_guarantee_must_ask_for_a_hundred_times_the_sessions_at_every_place(asked, found, monkeypatch):
    """The theorem's numbers are always far above, so they are made up here; of one place nothing is said."""
    methods = [SimpleNamespace(name="ed", label="ED"), SimpleNamespace(name="optimistic", label="Optimist")]
    monkeypatch.setattr(study_checks, "forms", lambda evidence: (*methods, ""))
    places = dict(zip((3, 4), asked, strict=True))
    monkeypatch.setattr(
        study_checks.theory, "budget", lambda n_types, n_arms, horizon, loss: SimpleNamespace(total=places[horizon])
    )
    rows = [
        SimpleNamespace(kind="k", n_types=2, n_arms=3, horizon=horizon, instance=instance, method=method,
                        n_sessions=100, value_qmdp=1.0 if method == GENIE.name else 0.9)
        for horizon in places for instance in (0, 1) for method in (GENIE.name, "ed", "optimistic")
    ]  # fmt: skip
    check = study_checks.beats_the_guarantee("horizon")
    answer = check(SimpleNamespace(rows=rows, places=lambda column, method: list(places)))
    assert answer.holds is found
    assert f"ED: the theorem asks for at least {min(asked) / 100:.1e} times the sessions; Optimist: " in answer.text
    assert check(SimpleNamespace(rows=rows, places=lambda column, method: [3])) is None
    alone = [row for row in rows if row.instance == 0]
    assert check(SimpleNamespace(rows=alone, places=lambda column, method: list(places))) is None


@pytest.fixture
def far(monkeypatch):
    """What `lmab fit --regret` asks for, without a fit: an assessment with this regret, or none."""
    assessment = SimpleNamespace(regret=(0.0, 0.4), sentence="it supports nothing")
    monkeypatch.setattr(fit_command, "plan", lambda *asked, **options: None)
    monkeypatch.setattr(fit_command, "assess", lambda *asked, **options: assessment)
    return assessment


@pytest.mark.parametrize(("regret", "more"), [(0.2, 120), (0.4, 0), (0.8, 0), (0.3, 32)])
def test_sessions_for_a_regret_grow_with_its_square(far, regret, more):
    """The bound of 40 sessions is 0.4: half of it takes four times as many sessions, three times more."""
    estimate = SimpleNamespace(sessions=LOG)
    assert fit_command._sample_size(estimate, regret, 3, np.random.default_rng(0)).sessions == more


def test_no_regret_is_promised_from_a_log_that_supports_no_claim(far):
    far.regret = None
    with pytest.raises(InvalidArgument, match="--regret needs a log that supports a claim, got one that does not: it"):
        fit_command._sample_size(SimpleNamespace(sessions=LOG), 0.1, 3, np.random.default_rng(0))


def test_a_model_without_labels_leaves_those_of_the_log():
    assert _relabelled(LOG, None) is LOG


@pytest.mark.parametrize("texts", [[None, None], ["1", "x"], ["x", "inf"]])
def test_texts_that_are_no_numbers_stay_texts(texts):
    assert _untyped("age", np.array(texts, object)).tolist() == texts


@pytest.mark.parametrize("text", [None, "nan"])
def test_texts_that_are_numbers_become_numbers_and_gaps_stay(text):
    np.testing.assert_array_equal(_untyped("age", np.array(["1", text, "2.5"], object)), [1.0, np.nan, 2.5])


def test_rewards_of_a_packed_log_that_are_not_listed_are_found_in_its_files(tmp_path, monkeypatch):
    monkeypatch.setattr("lmab.data.packing.MAX_VALUES", 20)
    log = replace(LOG, rewards=np.arange(LOG.n_steps) / 7)
    packed = lmab.pack(log, tmp_path / "packed")
    assert packed.values is None
    np.testing.assert_array_equal(packed.some_rewards, np.unique(log.rewards))


def test_a_log_without_a_reward_that_can_be_used_is_refused(tmp_path):
    (tmp_path / "log.csv").write_text("session,arm,reward\n0,a,\n0,b,\n1,b,\n")
    with pytest.raises(InvalidData, match="column 'reward' must hold a reward that can be used, got none"):
        lmab.pack(tmp_path / "log.csv", tmp_path / "packed", missing="drop")


def test_rows_in_any_order_are_packed_with_their_propensities(tmp_path):
    rows = ["1,a,1,0.5,1", "0,a,0,0.25,0", "1,b,0,0.75,0", "0,b,1,0.125,1"]
    (tmp_path / "log.csv").write_text("\n".join(["session,arm,reward,chance,at", *rows]))
    found = lmab.pack(tmp_path / "log.csv", tmp_path / "packed", step="at", propensity="chance").load()
    chances = {tuple(one) for one in found.propensities.reshape(2, 2).tolist()}
    assert chances == {(0.75, 0.5), (0.25, 0.125)}


@pytest.mark.parametrize(("w_min", "least"), [(None, 0.5), (0.2, 0.2)])
def test_features_given_by_hand_are_taken_for_as_wrong_as_epsilon_allows(w_min, least):
    core = design(np.vander(np.linspace(-1, 1, 5), 2, increasing=True))
    method = MomentMatching(design=core, epsilon=0.1, w_min=w_min)
    wanted = 2 * np.sqrt(2) * lmab.theory.delta_sub(2, 1, 4, 0.1, least)
    assert method._slack(core, 2, 4) == pytest.approx(wanted, rel=1e-12)


def test_policies_that_play_at_random_may_differ_from_the_first_step_on():
    assert _first_difference(lmab.Uniform(3), lmab.Greedy(BANDIT), LOG, 3).tolist() == [0] * len(LOG)
    assert _first_difference(lmab.Greedy(BANDIT), lmab.Uniform(3), LOG, 3).tolist() == [0] * len(LOG)


def test_a_log_without_pairs_of_steps_has_no_core():
    assert _core(ONE_STEP, "categorical", np.random.default_rng(0)) == (None, ())


def test_a_plan_is_not_praised_by_its_own_log():
    estimate = lmab.fit(LOG, n_types=2, method=EM(restarts=1, prior=1.0), check=False, rng=0)
    made = lmab.plan(estimate, horizon=2, method=lmab.QMDP())
    words = "these are the sessions that the model was fitted to"
    assert any(words in note for note in _seen_before(made, LOG))
    assert _seen_before(made, LOG[:20]) == _seen_before(made.policy, LOG) == ()


def test_seconds_are_of_learning_and_planning():
    row = SimpleNamespace(seconds_learning=2.0, seconds_planning=0.5)
    assert _seconds(row, {}) == 2.5
    for name in vars(row):
        assert _seconds(SimpleNamespace(**(vars(row) | {name: None})), {}) is None


def test_the_memory_of_promises_waits_for_rewards():
    policy = MUCB(BANDIT)
    state = policy.start()
    waiting = policy.observe(state, 0, None)
    assert waiting.step == 1
    np.testing.assert_array_equal(waiting.memory, state.memory)
    np.testing.assert_array_equal(policy.tell(waiting, 0, 1.0).memory, policy.observe(state, 0, 1.0).memory)
    seen = policy.observe(state, 0, 1.0)
    np.testing.assert_array_equal(policy._next_memory(seen, None), seen.memory)


def test_held_out_sessions_beyond_a_limit_are_drawn(monkeypatch):
    assert look(BANDIT, lmab.Uniform(3), LOG, 3).n_sessions == 40
    monkeypatch.setattr("lmab.reporting.contents._MOST_SESSIONS", 30)
    assert look(BANDIT, lmab.Uniform(3), LOG, 3).n_sessions == 30


def test_three_points_with_given_moments():
    points, weights = np.array([-1.0, 0.5, 2.0]), np.array([0.2, 0.5, 0.3])
    moments = np.array([weights @ points**order for order in range(5)])
    found = study_checks.three_points(moments, np.array([0.5]))
    np.testing.assert_allclose(found[0], [[0.5, -1.0, 2.0]])
    np.testing.assert_allclose(found[1], [[0.5, 0.2, 0.3]])
    for close in (points, np.array([-1.0, 0.5, 0.6])):
        moments = np.array([weights @ close**order for order in range(5)])
        given = np.sort(np.append(np.linspace(-3.0, 3.0, 2000), close[0]))
        ways, _ = study_checks.three_points(moments, given)
        assert sorted(ways[:, 0]) == [one for one in given.tolist() if _completes(moments, one)]
    single = np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    assert [part.shape for part in study_checks.three_points(single, np.array([0.0, 0.3]))] == [(0, 3), (0, 3)]


def _completes(moments, given) -> bool:
    """Whether two more positions, roots of a quadratic, and weights that are not negative have the moments."""
    shifted = moments[1:] - given * moments[:-1]
    others = np.roots([1.0, *np.linalg.solve([shifted[1::-1], shifted[2:0:-1]], -shifted[2:])])
    if np.iscomplex(others).any():
        return False
    points = np.array([given, *others.real])
    return bool(np.linalg.solve(points ** np.arange(3)[:, None], moments[:3]).min() >= 0)
