"""Who leaves: codes with three letters, the two forms, and what held-out sessions say about them."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab.errors import InvalidArgument, LmabWarning
from lmab.estimation import leaving
from lmab.estimation.climb import Likelihood, climb
from lmab.estimation.families import observe
from lmab.estimation.leaving import dependences
from lmab.estimation.log import with_letters
from lmab.model import belief
from lmab.parallel import SERIAL

QUICK = lmab.EM(restarts=4, tolerance=1e-5, sweeps=8, threads=1)
MEANS = [[0.9, 0.2, 0.5, 0.6], [0.1, 0.8, 0.6, 0.3], [0.5, 0.5, 0.1, 0.9]]


def truth(kind: str) -> lmab.LatentBandit:
    chances = np.zeros((3, 4, 2))
    chances[:] = np.array([0.5, 0.15, 0.02])[:, None, None] if kind == "type" else [0.35, 0.05]
    return lmab.LatentBandit.bernoulli([0.5, 0.3, 0.2], MEANS, leaving=chances)


def log_of(kind: str, n_sessions: int = 400, horizon: int = 6, seed: int = 1) -> lmab.Sessions:
    return lmab.simulate(truth(kind), lmab.Uniform(4), n_sessions=n_sessions, horizon=horizon, rng=seed)


@pytest.fixture(scope="module")
def by_type() -> lmab.Sessions:
    return log_of("type", 3000, 8)


@pytest.fixture(scope="module")
def fitted(by_type):
    return lmab.fit(by_type, n_types=3, leaving="type", method=QUICK, check=False, rng=0)


def test_the_likelihood_of_letters_is_that_of_the_definition():
    bandit, log = truth("type"), log_of("type", 50)
    total = 0.0
    for session, ended in zip(log, log.ended.tolist(), strict=True):
        own = bandit.weights.copy()
        for step, (arm, reward) in enumerate(zip(session.arms, session.rewards, strict=True)):
            chance, leaves = bandit.rewards.probabilities[:, arm, int(reward)], bandit.leaving[:, arm, int(reward)]
            goes_on = step + 1 < len(session.arms)
            own *= chance * (1 - leaves if goes_on else leaves if ended == "left" else 1.0)
        total += np.log(own.sum())
    encoded = observe(log).with_letters()
    assert encoded.log_likelihood(bandit) == pytest.approx(total, rel=1e-12)
    assert np.logaddexp.reduce(belief.log_joint(bandit, log), axis=1).sum() == pytest.approx(total, rel=1e-12)


def test_bandits_come_back_from_models_with_letters():
    bandit, encoded = truth("type"), observe(log_of("type")).with_letters()
    found = encoded.bandit(encoded.pack(bandit)[0], 3)
    np.testing.assert_allclose(found.leaving, bandit.leaving, atol=1e-12)
    np.testing.assert_allclose(found.means, bandit.means, atol=1e-12)


def test_no_map_lowers_the_objective(rng):
    encoded = observe(log_of("type")).with_letters()
    models = encoded.random_models(3, 3, rng)
    for strength in (0.0, 1.5):
        task = Likelihood(encoded, 3, encoded.prior(strength), SERIAL)
        for accelerate in (False, True):
            way = climb(task, models, left=1e-6, max_maps=30, accelerate=accelerate)
            assert all((np.diff(trace) > -1e-9 * abs(trace[0])).all() for trace in way.traces)


def test_shown_leaves_the_types_as_they_are_to_the_bit():
    log = log_of("type")
    none, shown = (
        lmab.fit(log, n_types=2, leaving=form, method=QUICK, check=False, rng=0) for form in ("none", "shown")
    )
    assert none.bandit.leaving is None
    assert replace(shown.bandit, leaving=None) == none.bandit
    assert shown.log_likelihood == none.log_likelihood
    assert not shown.bandit.has_informative_attrition
    counts = np.zeros((2, 4, 2))
    last = log.offsets[1:] - 1
    left, known = leaving.after(log)
    assert left.sum() == (log.ended == "left").sum()
    assert (~known).sum() == (log.ended == "unknown").sum() == (~known[last]).sum()
    np.add.at(counts[0], (log.arms, log.rewards.astype(int)), left)
    np.add.at(counts[1], (log.arms, log.rewards.astype(int)), known)
    np.testing.assert_allclose(shown.bandit.leaving[0], counts[0] / counts[1], atol=0.03)


def test_types_that_leave_early_are_counted(by_type, fitted):
    """Ignored, early leavers are overlooked: their weight is what long sessions say."""
    ignored = lmab.fit(by_type, n_types=3, leaving="none", method=QUICK, check=False, rng=0)
    errors = [np.abs(np.sort(one.bandit.weights) - [0.2, 0.3, 0.5]).max() for one in (ignored, fitted)]
    assert errors[1] < 0.04
    assert errors[1] < errors[0]
    order = np.argsort(-fitted.bandit.weights)
    np.testing.assert_allclose(fitted.bandit.leaving[order].mean(axis=(1, 2)), [0.5, 0.15, 0.02], atol=0.06)
    assert fitted.bandit.has_informative_attrition
    assert (np.diff(fitted.trace) > -1e-9 * abs(fitted.trace[0])).all()
    assert "leaving is modelled by type, arm and reward" in fitted.message


def test_a_saved_estimate_finds_its_log_again(by_type, fitted, tmp_path):
    fitted.save(tmp_path / "e.lmab")
    again = lmab.load(tmp_path / "e.lmab").with_log(by_type)
    assert again.require_log().letters
    np.testing.assert_array_equal(again.posterior(), fitted.posterior())


def test_a_packed_log_has_the_same_codes_and_fit(by_type, fitted, tmp_path):
    by_type.write(tmp_path / "log.parquet")
    packed = lmab.pack(tmp_path / "log.parquet", tmp_path / "packed", ended="ended")
    here, there = observe(by_type).with_letters(), observe(packed).with_letters()
    np.testing.assert_array_equal(here.held.codes, there.held.codes)
    np.testing.assert_array_equal(here.shown, there.shown)
    plain = by_type.arms * 2 + by_type.rewards.astype(int)
    expected = with_letters(plain, by_type.offsets, by_type.endings, 8)
    files = replace(there, memory=None, _cuts={})  # not merged: codes lie in the files
    away = pickle.loads(pickle.dumps(files))  # as on the workers of a cluster
    some = slice(by_type.offsets[1000], by_type.offsets[1700])
    np.testing.assert_array_equal(away.steps(1000, 1700).own.codes, expected[some])
    on_device = [codes for codes, *_ in files.partitions()]  # as a GPU is given them
    np.testing.assert_array_equal(np.concatenate(on_device), expected)
    np.testing.assert_array_equal(files._pick(np.array([0, 7, 2999]))[0][-1:], expected[-1:])
    found = lmab.fit(packed, n_types=3, leaving="type", method=QUICK, check=False, rng=0)
    assert found.bandit == replace(fitted.bandit, arm_labels=found.bandit.arm_labels)


@pytest.mark.parametrize(("kind", "expected"), [("type", True), ("reward", False)])
def test_held_out_sessions_tell_who_leaves_by_type(kind, expected):
    found = leaving.gains_of_types(observe(log_of(kind, 1000)), 3, np.random.default_rng(0))
    assert found.clear is expected


def test_leaving_by_step_is_not_taken_for_types():
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.3, 0.2], MEANS)
    log = lmab.simulate(bandit, lmab.Uniform(4), n_sessions=1000, horizon=6, rng=3)
    arms, rewards = log.to_arrays()
    gone = np.cumsum(np.random.default_rng(1).random((1000, 5)) < [0.5, 0.3, 0.05, 0.05, 0.05], axis=1) > 0
    arms[:, 1:][gone] = -1
    ended = np.where((arms >= 0).sum(axis=1) < 6, "left", "unknown")
    log = lmab.Sessions.from_arrays(arms, rewards, ended=ended)
    assert not leaving.gains_of_types(observe(log), 3, np.random.default_rng(0)).clear


@pytest.mark.parametrize(
    ("stays", "rewards", "clear"),
    [(2.1, 0.0, True), (1.9, 0.0, False), (2.1, -0.9, True), (2.1, -1.1, False)],
)
def test_stays_must_be_clearly_better_and_rewards_not_worse(stays, rewards, clear):
    assert leaving.Gains(stays, 1.0, rewards, 1.0).clear is clear


def test_auto_takes_the_form_that_held_out_sessions_support(by_type, monkeypatch):
    asked: list[int] = []

    def better(log: object, n_types: int, rng: object) -> leaving.Gains:
        asked.append(n_types)
        return leaving.Gains(0.1, 0.01, 0, 1)

    monkeypatch.setattr(leaving, "gains_of_types", better)
    found = lmab.fit(by_type[:600], n_types=2, method=QUICK, check=False, rng=0)
    assert found.bandit.has_informative_attrition
    assert "by type, arm and reward: held-out sessions are predicted better (stays +0.1000 (0.0100)" in found.message
    assert asked == [2]


@pytest.mark.parametrize(
    ("kind", "stays", "by_type"), [("type", 0.1, True), ("type", -0.5, False), ("reward", 0.1, False)]
)
def test_where_the_log_contradicts_leaving_by_what_was_shown_types_leave(kind, stays, by_type, monkeypatch):
    """In doubt the test of the assumption decides, unless held-out sessions are predicted clearly worse."""
    monkeypatch.setattr(leaving, "gains_of_types", lambda log, n, rng: leaving.Gains(stays, 0.2, 0, 1))
    found = lmab.fit(log_of(kind, 600, 8), n_types=3, method=QUICK, check=False, rng=0)
    assert found.bandit.leaving is not None
    assert found.bandit.has_informative_attrition is by_type
    assert (
        "the log contradicts leaving by arm and reward alone" if by_type else "types do not improve the prediction"
    ) in found.message
    assert found.assumptions["leaving"].fires is (kind == "type" and not by_type)


def test_arms_that_types_leave_differently_are_free_and_the_others_are_held_together():
    """Each of two arms drives one type away; who leaves the other arms is the same for everybody."""
    chances = np.full((2, 6, 2), 0.1)
    chances[0, 0], chances[1, 1] = 0.7, 0.7
    means = np.array([[0.9, 0.2, 0.7, 0.3, 0.8, 0.2], [0.1, 0.7, 0.2, 0.9, 0.3, 0.8]])
    bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], means, leaving=chances)
    log = lmab.simulate(bandit, lmab.Uniform(6), n_sessions=1500, horizon=6, rng=4)
    found = lmab.fit(log, n_types=2, leaving="type", method=QUICK, check=False, rng=0)
    freedom = found.learned.freedom
    assert freedom[:2].max() < 30 < 60 < freedom[2:].min()
    order = np.argsort(-found.bandit.means[:, 0])
    np.testing.assert_allclose((1 - found.bandit.stays)[order], (1 - bandit.stays), atol=0.1)


def test_a_log_that_hardly_anybody_left_is_not_asked(monkeypatch):
    monkeypatch.setattr(leaving, "gains_of_types", None)
    log = log_of("type")
    left = np.flatnonzero(log.ended == "left")[29:]
    found = lmab.fit(log[np.setdiff1d(np.arange(400), left)], n_types=2, method=QUICK, check=False, rng=0)
    assert "fewer than 30 sessions were left" in found.message


def test_where_nobody_left_nothing_is_fitted():
    log = lmab.simulate(
        lmab.LatentBandit.bernoulli([1.0], [[0.5] * 4]), lmab.Uniform(4), n_sessions=50, horizon=3, rng=0
    )
    known = replace(log, endings=np.full(50, 1, np.uint8))
    for form in leaving.FORMS:
        assert lmab.fit(known, n_types=1, leaving=form, method=QUICK, check=False, rng=0).bandit.leaving is None


@pytest.mark.parametrize("form", ["shown", "type"])
def test_what_cannot_be_fitted_is_refused_with_a_remedy(form):
    log = log_of("reward", 60)
    silent = replace(log, endings=None)
    with pytest.raises(InvalidArgument, match=r"leaving must be 'auto' or 'none' where the log does not say .*`limit`"):
        lmab.fit(silent, n_types=2, leaving=form, rng=0)
    with pytest.raises(InvalidArgument, match=r"rewards are gaussian: cut them .* rewards='binned'"):
        lmab.fit(log, n_types=2, leaving=form, rewards="gaussian", rng=0)
    with pytest.raises(InvalidArgument, match="sessions differ by degrees: fit types"):
        lmab.fit(log, leaving=form, method=lmab.Traits(), rng=0)


def test_other_forms_are_refused():
    with pytest.raises(InvalidArgument, match="leaving must be 'auto', 'none', 'shown' or 'type', got 'person'"):
        lmab.fit(log_of("reward", 60), n_types=2, leaving="person", rng=0)


def test_a_log_without_ends_and_one_of_normal_rewards_are_fitted_as_ever():
    log = log_of("reward", 60)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rewards of 0 and 1 are hardly normal, which a fit says
        silent = lmab.fit(replace(log, endings=None), n_types=1, rng=0)
    assert silent.bandit.leaving is None
    assert "leaving" not in silent.message
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rewards of 0 and 1 are hardly normal, which a fit says
        normal = lmab.fit(log, n_types=1, rewards="gaussian", rng=0)
    assert normal.bandit.leaving is None
    assert "leaving is not modelled, because rewards are gaussian: cut them into a few values" in normal.message


def test_chains_draw_who_leaves(by_type, fitted, rng):
    chain = fitted.require_log().chain(fitted.bandit)
    draws = []
    for _ in range(12):
        chain.sweep(rng)
        draws.append(chain.leaving)
    assert np.std(draws, axis=0).max() > 0
    np.testing.assert_allclose(np.mean(draws, axis=0).mean(axis=1), fitted.bandit.leaving.mean(axis=1), atol=0.05)


def test_chances_that_the_log_allows_are_drawn_around_the_fit(fitted, rng):
    log = fitted.require_log()
    drawn = log.draw_leaving(fitted.bandit, 200, rng)
    np.testing.assert_allclose(np.mean(drawn, axis=0), fitted.bandit.leaving, atol=0.02)
    plain = observe(log.sessions)
    shown = replace(fitted.bandit, leaving=np.broadcast_to(plain.shown, (3, 4, 2)))
    drawn = np.array(plain.draw_leaving(shown, 200, rng))
    assert (drawn == drawn[:, :1]).all()
    np.testing.assert_allclose(drawn.mean(axis=(0, 1)), plain.shown, atol=0.02)
    assert plain.draw_leaving(replace(shown, leaving=None), 2, rng) is None


def test_predictions_follow_the_session(rng):
    """Of a session: the chance to leave after each step, given its rewards so far and that it went on."""
    bandit, log = truth("type"), log_of("type", 1, 4, seed=12)
    logs, chance = leaving.predicted(bandit, log)
    own, total = bandit.weights.copy(), 0.0
    for step, (arm, reward) in enumerate(zip(log.arms, log.rewards, strict=True)):
        seen = own * bandit.rewards.probabilities[:, arm, int(reward)]
        total += np.log(seen.sum() / own.sum())
        leaves = bandit.leaving[:, arm, int(reward)]
        assert chance[step] == pytest.approx((seen @ leaves) / seen.sum())
        own = seen * (1 - leaves)
    assert logs[0] == pytest.approx(total)


def test_moments_over_a_core_set_refuse_logs_that_people_left():
    log = log_of("reward", 100)
    left = int((log.ended == "left").sum())
    said = r"sessions must not be left by people for the method MomentMatching: .* EM\(\).* got {} of 100 sessions"
    with pytest.raises(InvalidArgument, match=said.format(left)):
        lmab.fit(log, n_types=2, method=lmab.estimation.MomentMatching(), rng=0)
    core = lmab.moments.design(lmab.moments.subspace(log, rank=2))
    with pytest.raises(InvalidArgument, match="must not be left by people for moments over a core set"):
        lmab.moments.core_moments(log, core, 2)
    assert lmab.moments.core_moments(replace(log, endings=None), core, 2)


def test_third_moments_know_who_left_by_reward():
    """The weights of steps that were survived make up for those who left; ignoring them bends the types."""
    bandit, log = truth("reward"), log_of("reward", 40_000)
    method = lmab.estimation.TensorDecomposition()
    found = lmab.fit(log, n_types=3, method=method, rng=0)
    ignored = lmab.fit(replace(log, endings=None), n_types=3, method=method, rng=0)
    assert found.bandit.distance(bandit) < 0.6 * ignored.bandit.distance(bandit)
    np.testing.assert_array_equal(found.bandit.leaving[0], observe(log).shown)
    assert "leaving is modelled by arm and reward" in found.message
    assert lmab.fit(log, n_types=3, method=method, leaving="none", rng=0).bandit.leaving is None
    with pytest.raises(InvalidArgument, match=r"leaving must be 'auto', 'shown' or 'none' .*EM\(\); got 'type'"):
        lmab.fit(log, n_types=3, method=method, leaving="type", rng=0)


def test_third_moments_warn_where_types_leave_differently():
    with pytest.warns(LmabWarning, match=r"leaving depends on the type .* biased; fit with EM\(\)"):
        lmab.fit(log_of("type", 4000), n_types=3, method=lmab.estimation.TensorDecomposition(), rng=0)


def test_learners_of_the_paper_refuse_people_who_leave_and_direct_likelihood_learns_them():
    environment = lmab.Simulator(truth("type"), horizon=4, rng=0)
    learner = lmab.learning.EDMLE(n_types=2)
    with pytest.raises(InvalidArgument, match="sessions must not be left by people for a core set that is learned"):
        lmab.learn(environment, learner, n_sessions=400, rng=0)
    method = lmab.EM(restarts=2, tolerance=1e-4, sweeps=4, threads=1)
    found = lmab.learn(environment, lmab.DirectMLE(n_types=2, method=method), n_sessions=300, rng=0)
    assert found.plan.people_leave


@pytest.mark.parametrize("form", ["shown", "type"])
def test_what_is_known_before_a_session_does_not_forget_who_leaves(form):
    prior = lmab.TypePrior.by_value("land", {"de": [0.9, 0.05, 0.05], "fr": [0.05, 0.9, 0.05], "it": [0.05, 0.05, 0.9]})
    log = lmab.simulate(truth("type"), lmab.Uniform(4), n_sessions=400, horizon=6, type_prior=prior, rng=1)
    found = lmab.fit(log, n_types=3, leaving=form, method=QUICK, check=False, rng=0)
    assert found.type_prior is not None
    assert found.bandit.leaving is not None
    assert found.bandit.has_informative_attrition is (form == "type")
    if form == "shown":
        np.testing.assert_array_equal(found.bandit.leaving[0], observe(log).shown)
    else:
        assert np.ptp(found.bandit.leaving.mean(axis=(1, 2))) > 0.3


def ended_log(chance, seed, n_sessions=1500, horizon=6):
    """A log whose chance to leave is a function of arm, reward and step; its rewards fall with the step."""
    rng = generator(seed)
    arms = rng.integers(4, size=(n_sessions, horizon))
    rewards = (rng.random(arms.shape) < np.array([0.5, 0.4, 0.3, 0.6])[arms] * 0.85 ** np.arange(horizon)).astype(float)
    leaves = rng.random(arms.shape) < chance(arms, rewards, np.arange(horizon) + 0 * arms)
    gone = np.concatenate([np.zeros((n_sessions, 1), bool), np.cumsum(leaves, axis=1)[:, :-1] > 0], axis=1)
    ended = np.where(gone.any(axis=1), "left", "unknown")
    return lmab.Sessions.from_arrays(np.where(gone, -1, arms), np.where(gone, 0.0, rewards), n_arms=4, ended=ended)


def test_leaving_at_random_depends_neither_on_the_arm_nor_on_the_reward():
    """Though it depends on the step, and so do the rewards."""
    found = [dependences(ended_log(lambda arms, rewards, step: 0.1 + 0.04 * step, seed)) for seed in range(40)]
    assert sum(map(bool, found)) <= 4  # 0.8 are expected


@pytest.mark.parametrize(
    ("chance", "expected"),
    [
        (lambda arms, rewards, step: np.where(rewards > 0, 0.15, 0.3), ("reward",)),
        (lambda arms, rewards, step: np.array([0.3, 0.15, 0.2, 0.2])[arms], ("arm",)),
        (
            lambda arms, rewards, step: np.where(rewards > 0, 0.1, 0.3) * np.array([1, 0.5, 1, 1])[arms],
            ("arm", "reward"),
        ),
    ],
)
def test_what_leaving_depends_on_is_found(chance, expected):
    assert dependences(ended_log(chance, 1, n_sessions=4000)) == expected
