"""What a fit takes for granted is tested on its log, and assessments and plans follow what is found."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from seeds import generator
from typer.testing import CliRunner

import lmab
from lmab.cli.app import app
from lmab.estimation import assumptions as module
from lmab.estimation.assumptions import reaction, reacts
from lmab.estimation.check import Gain
from lmab.model import belief

TRUTH = lmab.LatentBandit.bernoulli([0.6, 0.4], [[0.9, 0.5, 0.2], [0.1, 0.4, 0.8]])


def logged(policy, n_sessions=800, seed=0):
    return lmab.simulate(TRUTH, policy, n_sessions=n_sessions, horizon=5, rng=generator(seed))


def by_pairs(log):
    """The same from all pairs of steps, one by one."""
    steps = [(one.arms[t], one.arms[t + 1], one.rewards[t]) for one in log for t in range(len(one.arms) - 1)]
    means = {arm: np.mean([reward for now, _, reward in steps if now == arm]) for arm, _, _ in steps}
    total = variance = 0.0
    for i, (arm, after, reward) in enumerate(steps):
        for j, (other, next_one, paid) in enumerate(steps):
            if i != j and (arm, after) == (other, next_one):
                product = (reward - means[arm]) * (paid - means[other])
                total += product
                variance += 2 * product**2
    return total / np.sqrt(variance)


def test_it_is_the_sum_over_pairs_of_steps_over_its_deviation():
    for policy in (lmab.Uniform(3), lmab.Greedy(TRUTH)):
        log = logged(policy, 30)
        assert reaction(log) == pytest.approx(by_pairs(log))


def test_logs_without_reaction_are_about_0_and_seldom_above(rng):
    found = [reaction(logged(lmab.Uniform(3), seed=seed)) for seed in range(60)]
    assert abs(np.mean(found)) < 1.0
    assert 0.5 < np.std(found) < 1.5
    assert not reacts(max(found))


def test_arms_of_unequal_shares_do_not_react(rng):
    arms = rng.choice(3, (800, 5), p=[0.7, 0.2, 0.1])
    rewards = (rng.random(arms.shape) < TRUTH.means[rng.integers(2, size=800)[:, None], arms]).astype(float)
    assert not reacts(reaction(lmab.Sessions.from_arrays(arms, rewards, n_arms=3)))


def test_greedy_and_thompson_react_with_and_without_repeats():
    for policy in (lmab.Greedy(TRUTH), lmab.Thompson(TRUTH)):
        assert reacts(reaction(logged(policy)))
    plan = lmab.plan(TRUTH, horizon=2, repeats=False, method=lmab.QMDP())
    log = lmab.simulate(TRUTH, plan.policy, n_sessions=800, horizon=2, rng=generator(0))
    assert reacts(reaction(log))


def test_one_step_or_one_reward_says_nothing():
    assert reaction(lmab.Sessions.from_arrays([[0], [1]], [[1.0], [0.0]])) == 0.0
    assert reaction(lmab.Sessions.from_arrays([[0, 1], [1, 0]], [[1.0, 1.0], [1.0, 1.0]])) == 0.0


def test_of_a_large_log_some_sessions_are_looked_at(monkeypatch):
    log = logged(lmab.Greedy(TRUTH), 100)
    monkeypatch.setattr(module, "_SESSIONS", 25)
    assert reaction(log) == reaction(log[::4])


def test_a_packed_log_reacts_as_the_same_log_in_memory(tmp_path):
    log = logged(lmab.Greedy(TRUTH), 200)
    lmab.pack(log, tmp_path / "packed")
    assert reaction(lmab.Packed(tmp_path / "packed")) == reaction(log)


def test_an_assessment_reports_that_its_log_reacts():
    assessments = []
    for policy in (lmab.policies.Exploring(lmab.Greedy(TRUTH), 0.3), lmab.Uniform(3)):
        log, rng = logged(policy, 400), generator(3)
        estimate = lmab.fit(log, n_types=2, method=lmab.EM(prior="learned", restarts=4), rng=rng, check=False)
        assessments.append(lmab.assess(estimate, lmab.plan(estimate.bandit, horizon=5), log, rng=rng))
    reacting, not_reacting = assessments
    assert "depends on the reward before it" in reacting.table["adaptive arms"]
    assert "adaptive arms" not in not_reacting.table


@pytest.mark.parametrize(("deviations", "expected"), [(5.0, False), (5.01, True)])
def test_five_standard_deviations_are_no_chance(deviations, expected):
    assert reacts(deviations) is expected


def made_up(kind, seed, n_sessions=2000, horizon=5, n_arms=12):
    """A log of three types whose arms, lengths or shares depend on who it is, or (the first three) do not."""
    rng = generator(seed, *kind.encode())
    truth = lmab.LatentBandit.bernoulli([0.4, 0.35, 0.25], rng.beta(1.5, 2, (3, n_arms)))
    types, arms = rng.choice(3, n_sessions, p=truth.weights), rng.integers(n_arms, size=(n_sessions, horizon))
    if kind == "greedy":
        policy = lmab.policies.Exploring(lmab.Greedy(truth), 0.1)
        return truth, lmab.simulate(truth, policy, n_sessions=n_sessions, horizon=horizon, rng=rng)
    if kind == "segments":
        shares = np.exp(3 * truth.means)
        below = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)[types]
        arms = (below[:, None] > rng.random((n_sessions, horizon, 1))).argmax(axis=2)
    if kind == "drift":
        types[n_sessions // 2 :] = rng.choice(3, n_sessions - n_sessions // 2, p=[0.1, 0.2, 0.7])
    by_step = {"fatigue": 0.8 ** np.arange(horizon), "warming up": 0.4 + 0.15 * np.arange(horizon)}
    factor = np.broadcast_to(by_step.get(kind, 1.0), arms.shape).copy()
    if kind == "season":
        factor[2 * n_sessions // 3 :] = 0.6
    rewards = (rng.random(arms.shape) < factor * truth.means[types[:, None], arms]).astype(float)
    chance = {"leave0": np.where(rewards > 0, 0.05, 0.5), "impatient": np.where(types == 0, 0.6, 0.05)[:, None]}
    gone = rng.random(arms.shape) < chance.get(kind, 0.0)
    gone = np.concatenate([np.zeros((n_sessions, 1), bool), np.cumsum(gone, axis=1)[:, :-1] > 0], axis=1)
    return truth, lmab.Sessions.from_arrays(np.where(gone, -1, arms), np.where(gone, 0.0, rewards), n_arms=n_arms)


@pytest.mark.parametrize(
    ("kind", "fires"),
    [
        ("uniform", []),
        ("greedy", []),
        ("leave0", []),
        ("segments", ["exposure"]),
        ("impatient", ["leaving"]),
        ("drift", ["drift"]),
        ("season", ["drift"]),
        ("fatigue", ["step"]),
        ("warming up", ["step"]),
    ],
)
def test_an_assumption_fires_where_the_log_depends_on_who_it_is_and_only_there(kind, fires):
    for seed in (1, 2):
        truth, log = made_up(kind, seed)
        found = module.tested(truth, log).by_name
        assert [name for name, one in found.items() if one.fires] == fires
        for name, one in found.items():
            assert one.fires == (one.score > module._FIRES[name])


def test_nothing_is_asked_of_one_type_or_of_a_handful_of_sessions():
    truth, log = made_up("segments", 1, n_sessions=29)
    one = lmab.LatentBandit.bernoulli([1.0], truth.means[:1])
    for found in (module.tested(truth, log), module.tested(one, made_up("uniform", 1)[1])):
        assert not any(assumption.fires for assumption in found.by_name.values())
        assert found.shown.sentence.startswith("Not tested")
        assert found.leaving.sentence.startswith("Not tested")


def one_type(log):
    means = np.bincount(log.arms, log.rewards, minlength=log.n_arms) / np.maximum(log.plays, 1)
    return lmab.LatentBandit.bernoulli([1.0], means[None])


def test_an_effect_of_the_step_is_said_with_its_size_for_any_number_of_types():
    for kind, word in (("fatigue", "lower"), ("warming up", "higher")):
        truth, log = made_up(kind, 1)
        spread = np.linspace(-0.1, 0.1, 33)[:, None]
        points = np.clip(truth.weights @ truth.means + spread, 0.01, 0.99)
        many = lmab.LatentBandit.bernoulli(np.full(33, 1 / 33), points)
        for bandit in (truth, one_type(log), many):
            found = module.tested(bandit, log).step
            assert found.fires
            assert f"{word} than at step 1, so a model without an effect of the step cannot predict" in found.sentence
            level = {"fatigue": 0.8 ** np.arange(5), "warming up": 0.4 + 0.15 * np.arange(5)}[kind]
            expected = abs(level[3:].mean() / level[0] - 1)
            assert "at steps 4 to 5 they are " in found.sentence
            share = float(found.sentence.split("(")[1].split("%")[0]) / 100
            assert share == pytest.approx(expected, abs=0.2)


def test_arms_that_follow_the_rewards_do_not_look_like_an_effect_of_the_step():
    """With one type alone, sessions that stay with an arm look like rewards that rise: more types explain it."""
    truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.4], [0.1, 0.8, 0.4]])
    log = lmab.simulate(
        truth, lmab.policies.Exploring(lmab.Greedy(truth), 0.2), n_sessions=1500, horizon=5, rng=generator(1)
    )
    alone = one_type(log)
    seen = module._Seen.of(alone, log)
    assert module._within_arms(seen, module._step_groups(log))[0] < 1e-6
    assert not module.tested(alone, log).step.fires
    assert not module.tested(truth, log).step.fires


def test_an_arm_that_has_its_own_step_cannot_show_an_effect_of_the_step(rng):
    arms = np.tile(np.arange(4), (500, 1))
    rewards = (rng.random(arms.shape) < 0.9**arms).astype(float)
    log = lmab.Sessions.from_arrays(arms, rewards)
    found = module.tested(one_type(log), log)
    assert found.step.score < 0
    assert not found.step.fires


def test_the_test_of_the_step_has_its_nominal_size_without_and_with_types():
    """Ends of the interval: 2 and 22 of 120 have a chance below 1 in 2,000 if 10% are expected."""
    truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.4], [0.1, 0.8, 0.4]])
    small = 0
    for seed in range(60):
        log = lmab.simulate(truth, lmab.Uniform(3), n_sessions=300, horizon=5, rng=generator(seed))
        for bandit in (truth, one_type(log)):
            seen = module._Seen.of(bandit, log)
            small += module._within_arms(seen, module._step_groups(log))[0] < 0.1
    assert 2 < small < 26


@pytest.mark.parametrize("kind", ["uniform", "warming up", "fatigue", "season"])
def test_exposure_at_random_is_never_called_selective_however_wrong_the_model(kind):
    for seed in range(4):
        log = made_up(kind, seed)[1]
        wrong = lmab.random_bandit(3, log.n_arms, rng=seed)
        assert not module.exposure(wrong, log).fires
        assert not module.exposure(wrong, log[np.argsort(log.lengths)]).fires


@pytest.mark.parametrize("kind", ["previous arm", "previous arm, log-odds"])
def test_rewards_that_depend_on_the_previous_arm_are_not_called_selective(kind):
    from benchmarks import study_assumptions

    for seed in range(4):
        assert "exposure" not in study_assumptions.fired(study_assumptions.log_of(kind, seed), seed)


def test_one_order_of_arms_for_everybody_is_not_called_selective(rng):
    arms = np.tile([0, 1, 2, 1], (800, 1))
    means = np.array([[0.9, 0.1, 0.5], [0.1, 0.7, 0.6]])
    log = lmab.Sessions.from_arrays(
        arms, (rng.random(arms.shape) < means[rng.integers(2, size=800)[:, None], arms]) * 1.0
    )
    assert module._alike_arms((means - 0.5).T[log.arms], log) == 0.0
    assert not module.exposure(lmab.LatentBandit.bernoulli([0.5, 0.5], means), log).fires


def test_rewards_that_fall_with_the_step_do_not_look_like_types_that_leave():
    """Long sessions have late steps, whose low rewards look like those of a type: compare sessions at one step."""
    rng = generator(3)
    truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.6, 0.5, 0.55, 0.6], [0.15, 0.1, 0.2, 0.1]])
    types, arms = rng.integers(2, size=3000), rng.integers(4, size=(3000, 8))
    rewards = (rng.random(arms.shape) < truth.means[types[:, None], arms] * 0.85 ** np.arange(8)).astype(float)
    gone = np.arange(8) >= np.minimum(rng.geometric(0.25, 3000), 8)[:, None]
    log = lmab.Sessions.from_arrays(np.where(gone, -1, arms), np.where(gone, 0.0, rewards), n_arms=4)
    method = lmab.EM(restarts=2, tolerance=1e-4, prior="learned", sweeps=8)
    fitted = lmab.fit(log, n_types=2, method=method, rng=0, check=False, selected=False).bandit
    assert fitted.step_effects is not None
    assert not module.tested(fitted, log).step.fires
    assert not module.attrition(fitted, log).fires
    plain = lmab.fit(log, n_types=2, method=lmab.EM(restarts=2, tolerance=1e-4, prior=2.0), rng=0, check=False).bandit
    assert plain.step_effects is None
    assert module.tested(plain, log).step.fires
    assert not module.attrition(plain, log).fires


def test_beliefs_are_those_of_the_model_step_by_step():
    truth, log = made_up("leave0", 3, n_sessions=40)
    seen = module._Seen.of(truth, log)
    for places, beliefs in belief.predictive_beliefs(truth, log):
        np.testing.assert_allclose(seen.before[places], beliefs, atol=1e-12)
    np.testing.assert_allclose(seen.whole, belief.posterior(truth, log), atol=1e-12)


def test_who_left_is_what_the_log_says_or_who_stopped_before_the_longest_session():
    arms = [[0, 1, 0], [1, -1, -1], [0, 0, -1]]
    log = lmab.Sessions.from_arrays(arms, np.zeros((3, 3)), n_arms=2)
    left, known = module.left_after(log)
    assert left.tolist() == [0, 0, 0, 1, 0, 1]
    assert known.tolist() == [True, True, False, True, True, True]
    said = lmab.Sessions.from_arrays(arms, np.zeros((3, 3)), n_arms=2, ended=["unknown", "left", "went on"])
    left, known = module.left_after(said)
    assert left.tolist() == [0, 0, 0, 1, 0, 0]
    assert known.tolist() == [True, True, False, True, True, True]


def test_a_rate_of_leaving_is_fitted_by_arm_and_by_step():
    rng = generator(4)
    cell, time = rng.integers(3, size=60_000), rng.integers(2, size=60_000)
    truth = np.array([0.1, 0.2, 0.4])[cell] * np.array([1.0, 0.5])[time]
    rate = module._rate(cell, time, (rng.random(60_000) < truth).astype(float), np.ones(60_000, bool))
    np.testing.assert_allclose(rate, truth, atol=0.02)


def test_a_rate_that_both_keys_know_is_fitted():
    """The reward is part of both: rates of one round that both came from the round before would swing for ever."""
    rng = generator(5)
    arm, step, value = (rng.integers(n, size=60_000) for n in (3, 2, 2))
    truth = np.array([0.2, 0.4, 0.6])[arm] * np.array([1.0, 0.1])[value]
    left = (rng.random(60_000) < truth).astype(float)
    rate = module._rate(2 * arm + value, 2 * step + value, left, np.ones(60_000, bool))
    np.testing.assert_allclose(rate, truth, atol=0.03)


def test_leaving_after_what_was_seen_does_not_fire_where_arms_repeat():
    """Few arms come again within a session, and its steps are of one type: they count as one."""
    chances = np.broadcast_to([0.5, 0.3, 0.05], (2, 3, 3)) * np.array([1.0, 0.4, 0.8])[None, :, None]
    truth = lmab.LatentBandit.counts([0.6, 0.4], [[0.5, 3.0, 1.0], [2.0, 0.4, 1.5]], leaving=chances)
    scores = []
    for seed in range(3):
        log = lmab.simulate(truth, lmab.Uniform(3), n_sessions=2000, horizon=5, rng=seed)
        scores.append(module.tested(truth, log).leaving.score)
    assert max(scores) < 3.0


def test_sums_so_far_start_anew_in_every_session():
    log = lmab.Sessions.from_arrays([[0, 0, 0], [0, 0, -1]], np.zeros((2, 3)))
    assert module._so_far(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), log).tolist() == [1, 3, 6, 4, 9]


def test_an_estimate_keeps_its_assumptions_in_its_file(tmp_path):
    log = made_up("segments", 5, n_sessions=800)[1]
    estimate = lmab.fit(log, n_types=3, method=lmab.EM(prior="learned", restarts=4), rng=1)
    assert estimate.assumptions["exposure"].fires
    estimate.save(tmp_path / "model.lmab")
    assert lmab.load(tmp_path / "model.lmab").assumptions == estimate.assumptions
    plain = lmab.fit(log, n_types=3, method=lmab.EM(prior=0.0, restarts=4), rng=1)
    assert plain.check is None  # the paper's methods are not checked
    assert set(plain.assumptions) == {"exposure", "leaving", "drift", "step"}


def test_an_assessment_claims_nothing_that_its_log_contradicts():
    log = made_up("segments", 5, n_sessions=800)[1]
    estimate = lmab.fit(log, n_types=3, method=lmab.EM(prior="learned", restarts=4), rng=1, selected=False, check=False)
    found = lmab.assess(estimate, lmab.plan(estimate, horizon=5, anyway=True), log, n_draws=20, rng=2)
    assert (found.value, found.optimum, found.regret, found.gain) == (None, None, None, None)
    assert found.assumptions["exposure"].fires
    assert found.sentence.startswith("No confidence interval for this policy")
    assert "or log some sessions with random arms" in found.sentence
    assert "allow for it" not in found.sentence
    assert found.verdict.word == "no gain demonstrated"


def test_a_plan_makes_no_claim_about_real_sessions_that_its_log_contradicts(tmp_path):
    log = made_up("segments", 5, n_sessions=800)[1]
    method = lmab.EM(prior="learned", restarts=4)
    estimate = lmab.fit(log, n_types=3, method=method, rng=1, selected=False, check=False)
    said = "the bounds hold for the model alone: the log contradicts the assumption 'exposure', so claims about real"
    assert said in lmab.plan(estimate, horizon=5).message
    assert said not in lmab.plan(estimate.bandit, horizon=5).message
    estimate.save(tmp_path / "model.lmab")
    words = ["plan", str(tmp_path / "model.lmab"), "--horizon", "5", "-o", str(tmp_path / "policy.lmab")]
    assert said in " ".join(CliRunner().invoke(app, words).output.split())
    one_type = lmab.fit(log, n_types=3, method=method, rng=1, selected=False)
    assert one_type.check is not None
    refused = replace(one_type, check=replace(one_type.check, over_one_type=Gain(-1.0, 0.1)))
    refused.save(tmp_path / "model.lmab")
    told = " ".join(CliRunner().invoke(app, words).output.split())
    assert "the log contradicts an assumption of the model, so real sessions may earn less." in told


def test_an_assessment_says_how_sessions_end_and_what_a_started_one_earns():
    log = made_up("leave0", 6, n_sessions=1200)[1]
    estimate = lmab.fit(log, n_types=3, method=lmab.EM(prior="learned", restarts=4), rng=1, check=False)
    plan = lmab.plan(estimate, horizon=5, anyway=True)
    found = lmab.assess(estimate, plan, log, n_draws=20, rng=2)
    ends = found.ends
    assert ends.reached == pytest.approx((log.lengths == 5).mean())
    np.testing.assert_allclose(ends.leaving, [0.5, 0.05], atol=0.05)
    policy, state, types = (
        plan.policy,
        plan.policy.start(20_000),
        generator(7).choice(3, 20_000, p=estimate.bandit.weights),
    )
    rng, alive, earned = generator(8), np.ones(20_000), 0.0
    for _ in range(5):  # the same by simulation
        arms = np.asarray(policy.act(state))
        rewards = estimate.bandit.rewards.sample(types, arms, rng=rng)
        earned += float((alive * rewards).mean())
        alive *= 1 - ends.leaving[rewards.astype(int)]
        state = policy.observe(state, arms, rewards)
    assert ends.value == pytest.approx(earned, abs=0.03)
    assert found.table["value per started session"].startswith(f"about {ends.value:.3g}")
    assert "probability of leaving: 5" in found.table["sessions that reach step 5"]


def test_a_plan_follows_the_verdict_of_the_check():
    rng = generator(9)
    arms = rng.integers(10, size=(600, 4))
    means = rng.uniform(0.2, 0.6, 10)
    log = lmab.Sessions.from_arrays(arms, (rng.random(arms.shape) < means[arms]).astype(float), n_arms=10)
    estimate = lmab.fit(log, n_types=3, method=lmab.EM(prior="learned", restarts=4), rng=1)
    assert estimate.check is not None
    assert not estimate.check.agrees
    plan = lmab.plan(estimate, horizon=4)
    assert plan.fixed
    assert plan.verdict == estimate.check.verdict
    assert plan.lower == plan.upper == estimate.bandit.best_fixed(4)
    best = int((estimate.bandit.weights @ estimate.bandit.means).argmax())
    assert plan.policy.act_on([]) == plan.policy.act_on([(best, 0.0)]) == best
    once = lmab.plan(estimate, horizon=4, repeats=False)
    assert once.fixed
    assert once.policy.arms[:4] == estimate.bandit.best_fixed_arms(4, repeats=False)
    anyway = lmab.plan(estimate, horizon=4, anyway=True)
    assert not anyway.fixed
    assert anyway.verdict == plan.verdict
    assert not lmab.plan(estimate.bandit, horizon=4).fixed  # a bandit has no check
    found = lmab.assess(estimate, plan, log, n_draws=20, rng=2)
    assert (found.optimum, found.regret, found.gain) == (None, None, None)
    assert found.value is not None
    assert "The best possible policy earns" not in found.sentence
    assert "No gain over" in found.sentence
    assert "types" not in found.table  # one more type is not recommended where one is enough


@pytest.mark.slow
def test_a_fit_under_a_given_prior_raises_false_alarms_in_one_of_a_hundred_logs_at_most():
    """Nothing depends on who it is; on 615 logs of other seeds *shown* and *drift* fired twice each, as by chance."""
    from benchmarks.study_certificate import PROBING

    fired = {"exposure": 0, "leaving": 0, "drift": 0, "step": 0}
    cases = [(kind, n) for kind in ("probing", "spherical") for n in (500, 2000)]
    for seed, (kind, n_sessions) in itertools.product(range(100), cases):
        rng = np.random.default_rng([97_001, seed, n_sessions, *kind.encode()])
        truth = PROBING if kind == "probing" else lmab.random_bandit(4, 20, rng=rng)
        log = lmab.simulate(truth, lmab.Uniform(truth.n_arms), n_sessions=n_sessions, horizon=5, rng=rng)
        method = lmab.EM(prior=2.0, restarts=8, tolerance=1e-6, threads=1)
        fit = lmab.fit(log, n_types=truth.n_types, method=method, rng=rng)
        for name, found in fit.assumptions.items():
            fired[name] += found.fires
    assert max(fired.values()) <= 4, fired
