"""Propensities fitted to a log: shares by step, and the test for logs that adapt."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from policies import always, in_turn
from seeds import generator

import lmab
from lmab import LatentBandit, Sessions
from lmab.errors import InvalidArgument, InvalidData, LmabWarning
from lmab.evaluation import importance, off_policy
from lmab.evaluation import off_policy as module
from lmab.evaluation import value as evaluation
from lmab.evaluation.off_policy import fit_propensities
from lmab.simulation import interact

WEIGHTS = [Fraction(1, 2), Fraction(1, 2)]
MEANS = [[Fraction(3, 4), Fraction(1, 4)], [Fraction(1, 4), Fraction(1, 2)]]
TRUTH = LatentBandit.bernoulli([0.5, 0.5], [[0.75, 0.25], [0.25, 0.5]])
WRONG = LatentBandit.bernoulli([0.3, 0.7], [[0.9, 0.2], [0.1, 0.6]])


def logging_probability(arm: int, history: list[tuple[int, int]]) -> Fraction:
    """A logging policy that looks at the reward before."""
    favourite = 0 if not history or history[-1][1] == 1 else 1
    return Fraction(3, 4) if arm == favourite else Fraction(1, 4)


def balanced_log(horizon: int) -> Sessions:
    """A log in which every possible session occurs exactly as often as it is likely.

    Averages over this log are expectations, with no sampling error at all.
    """
    sessions = []
    for steps in itertools.product(itertools.product(range(2), range(2)), repeat=horizon):
        chances = [logging_probability(arm, list(steps[:t])) for t, (arm, _) in enumerate(steps)]
        chance = sum(
            weight * math.prod([means[a] if r else 1 - means[a] for a, r in steps])
            for weight, means in zip(WEIGHTS, MEANS, strict=True)
        ) * math.prod(chances)
        sessions.append((chance, steps, chances))
    size = 2 * 16**horizon
    copies = [int(chance * size) for chance, _, _ in sessions]
    assert sum(copies) == size
    arms = np.repeat([[a for a, _ in steps] for _, steps, _ in sessions], copies, axis=0)
    rewards = np.repeat([[float(r) for _, r in steps] for _, steps, _ in sessions], copies, axis=0)
    propensities = np.repeat([[float(p) for p in chances] for _, _, chances in sessions], copies, axis=0)
    return Sessions.from_arrays(arms, rewards, propensities=propensities, n_arms=2)


def exact_steps(policy: lmab.Policy, horizon: int) -> np.ndarray:
    """Expected reward of every step under a possibly random policy, by recursion over histories."""
    per_step = np.zeros(horizon)

    def walk(state, mass, step):
        if step == horizon:
            return
        chances = policy.distribution(state, n_arms=2)[0]
        for arm in range(2):
            per_step[step] += chances[arm] * mass @ TRUTH.means[:, arm]
            for reward in (0.0, 1.0):
                likelihood = TRUTH.means[:, arm] if reward else 1 - TRUTH.means[:, arm]
                if chances[arm] > 0:
                    after = policy.observe(state, np.array([arm]), np.array([reward]))
                    walk(after, chances[arm] * mass * likelihood, step + 1)

    walk(policy.start(1), TRUTH.weights, 0)
    return per_step


POLICIES = {
    "greedy": lmab.Greedy(TRUTH),
    "greedy on another model": lmab.Greedy(WRONG),
    "thompson": lmab.Thompson(TRUTH),
    "uniform": lmab.Uniform(2),
    "sequence": in_turn(1, 0, 1),
    "mucb": lmab.policies.MUCB(TRUTH),
}


@pytest.mark.parametrize("method", off_policy.METHODS)
@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("model", [TRUTH, WRONG], ids=["true model", "wrong model"])
def test_the_expectation_over_all_sessions_is_the_value(name, method, model):
    policy, horizon = POLICIES[name], 3
    expected = exact_steps(policy, horizon)
    outlook = generator(0).random((horizon, 2))  # any outlook will do
    log = balanced_log(horizon)
    value = off_policy.weigh(policy, log, horizon=horizon, model=model, outlook=outlook).by(method)
    np.testing.assert_allclose(value.per_step, expected, atol=1e-12)
    assert value.mean == pytest.approx(expected.sum(), abs=1e-12)
    if policy.deterministic:
        assert value.mean == pytest.approx(lmab.evaluate(policy, TRUTH, horizon=horizon).mean, abs=1e-12)


LEAVING = [[[Fraction(0), Fraction(1, 2)], [Fraction(1, 2), Fraction(0)]], [[Fraction(1, 2)] * 2, [Fraction(0)] * 2]]
LEFT_BY_TYPE = replace(TRUTH, leaving=np.array(LEAVING, float))


def balanced_log_until_they_leave(horizon: int, *, tell: bool = True) -> Sessions:
    """The same for people who leave by type, arm and reward: every session that can be seen, as often as it is likely.

    The log stops after `horizon` steps; whether people would have left then is unknown.
    """
    found = []

    def grow(steps: list[tuple[int, int]], chances: list[Fraction], mass: list[Fraction]) -> None:
        for arm, reward in itertools.product(range(2), range(2)):
            chance = logging_probability(arm, steps)
            seen = [
                m * chance * (means[arm] if reward else 1 - means[arm]) for m, means in zip(mass, MEANS, strict=True)
            ]
            longer, shares = [*steps, (arm, reward)], [*chances, chance]
            if len(longer) == horizon:
                found.append((sum(seen), longer, shares, "unknown"))
                continue
            left = [m * chances[arm][reward] for m, chances in zip(seen, LEAVING, strict=True)]
            found.append((sum(left), longer, shares, "left"))
            grow(longer, shares, [m - gone for m, gone in zip(seen, left, strict=True)])

    grow([], [], WEIGHTS)
    size = 2 * 16 * 32 ** (horizon - 1)
    copies = [int(chance * size) for chance, *_ in found]
    assert sum(copies) == size
    rows = [[arm for arm, _ in steps] + [-1] * (horizon - len(steps)) for _, steps, _, _ in found]
    paid = [[float(r) for _, r in steps] + [0.0] * (horizon - len(steps)) for _, steps, _, _ in found]
    shares = [[float(p) for p in chances] + [1.0] * (horizon - len(chances)) for _, _, chances, _ in found]
    arms, rewards, propensities = (np.repeat(each, copies, axis=0) for each in (rows, paid, shares))
    ended = np.repeat([end for *_, end in found], copies) if tell else None
    return Sessions.from_arrays(arms, rewards, propensities=propensities, n_arms=2, ended=ended)


@pytest.mark.parametrize("name", ["greedy", "greedy on another model", "sequence"])
def test_the_expectation_until_people_leave_is_the_value_until_they_leave(name):
    policy, log = POLICIES[name], balanced_log_until_they_leave(3)
    expected = lmab.evaluate(policy, LEFT_BY_TYPE, horizon=3)
    evidence = off_policy.weigh(policy, log, horizon=3, model=WRONG, outlook=generator(0).random((3, 2)))
    for method in off_policy.METHODS:
        np.testing.assert_allclose(evidence.by(method).per_step, expected.per_step, atol=1e-12)
        assert evidence.by(method).mean == pytest.approx(expected.mean, abs=1e-12)
    assert evidence.notes == ()
    assert evidence.n_reached.tolist() == [len(log)] * 3
    assert log.mean_session(3) == pytest.approx(log.rewards.sum() / len(log))


def test_a_log_that_does_not_say_who_left_blames_the_ends_and_not_the_propensities():
    log = balanced_log_until_they_leave(3, tell=False)
    evidence = off_policy.weigh(POLICIES["sequence"], log, horizon=3)
    assert evidence.per_decision.mean > 1.1 * lmab.evaluate(POLICIES["sequence"], LEFT_BY_TYPE, horizon=3).mean
    said = " ".join(evidence.notes)
    assert "who reaches this step depends on what was shown before; say how sessions ended (by ended or limit)" in said
    assert "check the column of propensities" not in said
    assert "else say how sessions ended, by ended or limit" in said


def test_no_horizon_beyond_what_the_log_knows_of_sessions_that_were_not_left():
    log = Sessions.from_arrays(
        [[0, 1, 0], [1, 1, -1], [0, -1, -1]], np.zeros((3, 3)), propensities=np.full((3, 3), 0.5),
        ended=["left", "went on", "left"],
    )  # fmt: skip
    with pytest.raises(
        InvalidArgument, match="horizon must be at most 2, the steps after which the log knows of no more"
    ):
        off_policy.weigh(lmab.Uniform(2), log, horizon=3)
    assert off_policy.weigh(lmab.Uniform(2), log, horizon=2).n_reached.tolist() == [3, 3]


@pytest.mark.parametrize("method", off_policy.METHODS)
def test_sessions_that_leave_early_and_long_ones_change_nothing(method):
    log = balanced_log(3)
    arms, rewards = log.to_arrays()
    propensities = np.asarray(log.propensities).reshape(arms.shape)
    short = arms.copy()
    short[:, 2] = -1
    both = Sessions.from_arrays(
        np.vstack([arms, short]), np.vstack([rewards, rewards]), propensities=np.vstack([propensities] * 2)
    )
    policy = lmab.Greedy(TRUTH)
    evidence = evaluation.weigh(policy, both, horizon=3, model=WRONG)
    np.testing.assert_allclose(evidence.by(method).per_step, exact_steps(policy, 3), atol=1e-12)
    assert "50.0% of the sessions end before step 3" in evidence.notes[-1]
    shorter = evaluation.weigh(policy, log, horizon=2, model=WRONG).by(method)
    np.testing.assert_allclose(shorter.per_step, exact_steps(policy, 2), atol=1e-12)


def test_folding_sessions_into_groups_changes_no_estimate(monkeypatch, rng):
    log = lmab.simulate(TRUTH, lmab.Uniform(2), n_sessions=3000, horizon=3, rng=rng)
    whole = evaluation.weigh(lmab.Greedy(TRUTH), log, horizon=3, model=WRONG)
    monkeypatch.setattr(importance, "GROUPS", 500)
    monkeypatch.setattr(importance, "CHUNK", 300)
    folded = evaluation.weigh(lmab.Greedy(TRUTH), log, horizon=3, model=WRONG)
    for method in off_policy.METHODS:
        np.testing.assert_allclose(folded.by(method).per_step, whole.by(method).per_step, atol=1e-12)
        assert folded.by(method).stderr == pytest.approx(whole.by(method).stderr, rel=0.15)
    np.testing.assert_allclose(folded.effective_sizes, whole.effective_sizes)


def test_bootstrap_and_jackknife_agree_with_the_textbook(rng):
    """One step and per-decision weights: a plain average, whose standard error everyone knows."""
    log = lmab.simulate(TRUTH, lmab.Uniform(2), n_sessions=4000, horizon=1, rng=rng)
    evidence = evaluation.weigh(always(0), log, horizon=1, model=TRUTH, rng=rng, n_bootstrap=4000)
    terms = np.where(log.arms == 0, 2 * log.rewards, 0.0)
    value = evidence.per_decision
    assert value.stderr == pytest.approx(terms.std(ddof=1) / np.sqrt(len(terms)), rel=1e-9)
    np.testing.assert_allclose(
        value.interval, value.mean + np.array([-1.96, 1.96]) * value.stderr, atol=0.15 * value.stderr
    )
    shown = log.rewards[log.arms == 0]
    assert evidence.by("self-normalised").stderr == pytest.approx(shown.std() / np.sqrt(len(shown)), rel=0.02)
    assert evidence.effective_sizes[0] == pytest.approx(len(shown))
    assert evidence.n_followed[0] == len(shown)


def test_the_model_takes_noise_away(rng):
    bandit = lmab.random_bandit(4, 5, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(5), n_sessions=20_000, horizon=3, rng=rng)
    evidence = evaluation.weigh(lmab.Greedy(bandit), log, horizon=3, model=bandit, rng=rng)
    exact = lmab.evaluate(lmab.Greedy(bandit), bandit, horizon=3).mean
    assert evidence.by("doubly-robust").stderr < 0.75 * evidence.by("per-decision").stderr
    for method in off_policy.METHODS:
        value = evidence.by(method)
        assert abs(value.mean - exact) < 5 * value.stderr


def test_without_a_method_the_steadiest_estimate_is_taken(rng):
    """Doubly robust with a model, self-normalised without one, per-decision where hardly a session follows."""
    log = lmab.simulate(TRUTH, lmab.Uniform(2), n_sessions=400, horizon=3, rng=rng)
    policy = lmab.Greedy(TRUTH)
    for model, method in ((WRONG, "doubly-robust"), (None, "self-normalised")):
        evidence = evaluation.weigh(policy, log, horizon=3, model=model)
        values = {name: evidence.by(name).mean for name in off_policy.METHODS if model or name != "doubly-robust"}
        assert len(set(values.values())) == len(values)  # they can be told apart
        chosen = lmab.evaluate(policy, log, horizon=3, model=model)
        assert (chosen.mean, chosen.stderr) == (values[method], evidence.by(method).stderr)
        assert chosen.mean == lmab.evaluate(policy, log, horizon=3, model=model, method=method).mean
    short = Sessions.from_arrays([[1], [0], [0]], [[1.0], [1.0], [0.0]], propensities=[[0.5]] * 3, n_arms=2)
    with pytest.warns(LmabWarning, match="; 1 of 3 sessions agree"):
        chosen = lmab.evaluate(always(1), short, horizon=1)
    assert chosen.mean == pytest.approx(2 / 3)  # the one session that follows, with its weight, of three


def test_outlook_is_exact_or_simulated(rng):
    policy = lmab.Greedy(TRUTH)
    exact = evaluation.outlook(policy, TRUTH, 3)
    np.testing.assert_allclose(exact @ TRUTH.weights, exact_steps(policy, 3), atol=1e-12)
    noisy = evaluation.outlook(lmab.Thompson(TRUTH), TRUTH, 3, rng)
    np.testing.assert_allclose(noisy @ TRUTH.weights, exact_steps(lmab.Thompson(TRUTH), 3), atol=0.03)
    with pytest.raises(InvalidArgument, match="rng must be"):
        evaluation.outlook(lmab.Thompson(TRUTH), TRUTH, 3)


def test_outlook_of_a_policy_that_looks_at_no_reward_is_exact_for_continuous_rewards():
    normal = LatentBandit.gaussian([0.25, 0.75], [[1.0, 0.0], [0.0, 2.0]])
    outlook = evaluation.outlook(in_turn(0, 1), normal, 2)
    np.testing.assert_array_equal(outlook, [[1.0, 0.0], [0.0, 2.0]])


def test_simulated_sessions_of_an_outlook_are_shared_out_among_the_types(monkeypatch):
    asked = []

    def listen(*given):
        asked.append(given[2])
        return interact(*given)

    monkeypatch.setattr(evaluation, "interact", listen)
    evaluation.outlook(lmab.Thompson(TRUTH), TRUTH, 2, 0, n_sessions=1001)
    assert [(types[0], len(types)) for types in asked] == [(0, 501), (1, 501)]


def test_without_a_method_the_last_estimate_that_the_log_allows_is_taken_not_the_noisiest(rng):
    bandit = lmab.random_bandit(4, 5, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(5), n_sessions=5000, horizon=3, rng=rng)
    policy = lmab.Greedy(bandit)
    by = {name: lmab.evaluate(policy, log, horizon=3, method=name, model=bandit) for name in off_policy.METHODS}
    assert max(by.values(), key=lambda value: value.stderr) is by["per-decision"]
    assert len({value.mean for value in by.values()}) == 3
    assert lmab.evaluate(policy, log, horizon=3, model=bandit).mean == by["doubly-robust"].mean
    assert lmab.evaluate(policy, log, horizon=3).mean == by["self-normalised"].mean
    only = replace(off_policy.weigh(policy, log, horizon=3), self_normalised=None)
    assert only.default == "per-decision"


def robust_contributions(policy, log, horizon, model, outlook):
    """The doubly robust estimate of every session and step, written out from its definition (Jiang and Li, 2016)."""
    found = np.zeros((len(log), horizon))
    for row, session in enumerate(log):
        weight, belief, state = 1.0, np.array(model.weights), policy.start(1)
        for step in range(horizon):
            arm, reward = int(session.arms[step]), float(session.rewards[step])
            chances, share = policy.distribution(state, n_arms=2)[0], belief / belief.sum()
            after = weight * chances[arm] / session.propensities[step]
            found[row, step] += weight * chances @ (share @ model.means) - after * (share @ model.means)[arm]
            found[row, step] += after * reward
            for later in range(step + 1, horizon):
                found[row, later] += (weight - after) * share @ outlook[later]
            belief = belief * (model.means[:, arm] if reward else 1 - model.means[:, arm])
            weight, state = after, policy.observe(state, np.array([arm]), np.array([reward]))
    return found


@pytest.mark.parametrize("name", ["greedy", "thompson", "mucb"])
def test_control_variates_use_the_belief_of_each_session_at_each_step(name, rng):
    log, outlook = lmab.simulate(TRUTH, lmab.Uniform(2), n_sessions=200, horizon=4, rng=rng), rng.random((4, 2))
    ((_, part),) = importance.contributions(POLICIES[name], log, 4, WRONG, outlook)
    expected = robust_contributions(POLICIES[name], log, 4, WRONG, outlook)
    np.testing.assert_allclose(part[:, importance.ROBUST], expected, rtol=1e-12, atol=1e-12)


def test_a_log_that_cannot_tell_says_so(rng):
    bandit = lmab.random_bandit(4, 50, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(50), n_sessions=2000, horizon=5, rng=rng)
    told = (
        r"the log cannot tell: a live test is needed, .*; \d+ of 2,000 sessions agree with the policy up to step 2, "
        r"an effective sample of \d\.\d \(30 needed\): .* log sessions in which the policy chooses"
    )
    with pytest.raises(InvalidData, match=told):
        lmab.evaluate(lmab.Greedy(bandit), log, horizon=5, method="self-normalised", rng=rng)
    with pytest.warns(LmabWarning, match="from this step on the doubly robust estimate relies on the model"):
        value = lmab.evaluate(lmab.Greedy(bandit), log, horizon=5, model=bandit, rng=rng)
    assert value.effective_sizes is not None
    assert value.effective_sizes[-1] < off_policy.ENOUGH
    assert value.notes
    enough = lmab.simulate(bandit, lmab.Uniform(50), n_sessions=2000, horizon=1, rng=rng)
    assert lmab.evaluate(always(3, 50), enough, horizon=1, rng=rng).notes == ()


def test_wrong_propensities_are_noticed(rng):
    log = lmab.simulate(TRUTH, lmab.Uniform(2), n_sessions=2000, horizon=2, rng=rng)
    lie = Sessions(log.arms, log.rewards, log.offsets, 2, np.full(log.n_steps, 0.6))
    with pytest.warns(LmabWarning, match=r"weights of step 1 average 0\.8.. instead of 1"):
        lmab.evaluate(lmab.Greedy(TRUTH), lie, horizon=2)


def test_arms_that_the_log_never_plays_are_noticed(rng):
    log = lmab.simulate(TRUTH, always(0), n_sessions=2000, horizon=2, rng=rng)
    log = Sessions(log.arms, log.rewards, log.offsets, 2, np.ones(log.n_steps))
    with pytest.warns(LmabWarning, match=r"average 0\.500 instead of 1: the log never plays some arms"):
        lmab.evaluate(lmab.Uniform(2), log, horizon=2)


@given(st.integers(0, 2**32 - 1))
def test_fitted_propensities_reproduce_logged_ones_without_noise(seed):
    """On a balanced uniform log the fitted propensities are the true ones."""
    rng = np.random.default_rng(seed)
    arms = np.array(list(itertools.product(range(3), repeat=2)) * 4)
    log = Sessions.from_arrays(arms, rng.integers(2, size=arms.shape).astype(float))
    fitted = fit_propensities(log)[0]
    np.testing.assert_allclose(fitted.propensities, 1 / 3)


def test_fitted_propensities_are_shares_of_the_sessions_that_reach_the_step():
    log = Sessions.from_arrays([[0, 1], [0, 0], [1, 0], [0, -1], [1, -1]], np.ones((5, 2)))
    fitted = fit_propensities(log)[0]
    by_session = [session.propensities.tolist() for session in fitted]
    assert by_session == [[3 / 5, 1 / 3], [3 / 5, 2 / 3], [2 / 5, 2 / 3], [3 / 5], [2 / 5]]


def test_fitted_propensities_end_to_end(rng):
    log = lmab.simulate(TRUTH, lmab.Uniform(2), n_sessions=5000, horizon=3, rng=rng)
    bare = Sessions(log.arms, log.rewards, log.offsets, 2)
    with pytest.raises(InvalidArgument, match="sessions must carry the propensities"):
        lmab.evaluate(lmab.Greedy(TRUTH), bare, horizon=3)
    fitted = lmab.evaluate(lmab.Greedy(TRUTH), bare, horizon=3, fit_propensities=True)
    logged = lmab.evaluate(lmab.Greedy(TRUTH), log, horizon=3)
    assert fitted.mean == pytest.approx(logged.mean, abs=3 * logged.stderr)
    assert fitted.notes == ()
    adaptive = lmab.simulate(TRUTH, lmab.Thompson(TRUTH), n_sessions=5000, horizon=3, rng=rng)
    with pytest.warns(LmabWarning, match="depend on the rewards before them"):
        lmab.evaluate(lmab.Uniform(2), _bare(adaptive), horizon=3, fit_propensities=True)


def _bare(log: Sessions) -> Sessions:
    return Sessions(log.arms, log.rewards, log.offsets, log.n_arms)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"horizon": 4}, "horizon must be at most the log's longest session"),
        ({"method": "magic"}, "method must be 'per-decision', 'self-normalised' or 'doubly-robust', got 'magic'"),
        ({"method": "doubly-robust"}, "model must be given"),
        ({"confidence": 1.5}, "confidence must be a number between"),
        ({"n_sessions": 5}, "n_sessions must be None for a log"),
        ({"policy": lmab.Uniform(1)}, "policy must be for 2 arms"),
        ({"model": LatentBandit.bernoulli([1.0], [[0.5]])}, "model must have 2 arms|policy must be for 1 arms"),
        ({"n_bootstrap": 3}, "n_bootstrap must be"),
    ],
)
def test_bad_arguments(change, message):
    arguments = {"policy": lmab.Greedy(TRUTH), "horizon": 3, **change}
    with pytest.raises(InvalidArgument, match=message):
        lmab.evaluate(arguments.pop("policy"), balanced_log(3), **arguments)


def test_options_of_a_log_are_refused_for_a_bandit():
    with pytest.raises(InvalidArgument, match="are for a log"):
        lmab.evaluate(lmab.Greedy(TRUTH), TRUTH, horizon=2, method="per-decision")


def test_arms_that_the_log_happens_not_to_play():
    wide = LatentBandit.bernoulli([0.5, 0.5], [[0.75, 0.25, 0.1], [0.25, 0.5, 0.1]])
    value = lmab.evaluate(lmab.Greedy(wide), balanced_log(2), horizon=2, model=wide)
    assert value.mean == pytest.approx(lmab.evaluate(lmab.Greedy(TRUTH), TRUTH, horizon=2).mean)


@pytest.mark.slow
def test_intervals_cover():
    """Over 400 fresh logs a 95% interval covers the exact value in at least 93% of them."""
    rng = generator(5)
    bandit = lmab.random_bandit(3, 4, rng=rng)
    policy, horizon = lmab.Greedy(bandit), 3
    exact = lmab.evaluate(policy, bandit, horizon=horizon).mean
    hits = dict.fromkeys(off_policy.METHODS, 0)
    for _ in range(400):
        log = lmab.simulate(bandit, lmab.Uniform(4), n_sessions=4000, horizon=horizon, rng=rng)
        evidence = evaluation.weigh(policy, log, horizon=horizon, model=WRONG_FOR_FOUR, n_bootstrap=400, rng=rng)
        for method in off_policy.METHODS:
            low, high = evidence.by(method).interval or (np.nan, np.nan)
            hits[method] += low <= exact <= high
    shares = {method: count / 400 for method, count in hits.items()}
    assert all(0.93 <= share <= 0.995 for share in shares.values()), shares


WRONG_FOR_FOUR = lmab.random_bandit(2, 4, rng=generator(99))


def test_a_log_that_hardly_follows_still_gets_a_number_and_a_warning(rng):
    bandit = lmab.random_bandit(3, 30, rng=rng)
    log = lmab.simulate(bandit, lmab.Uniform(30), n_sessions=50, horizon=5, rng=rng)
    with pytest.warns(LmabWarning, match="effective sample"):
        value = lmab.evaluate(lmab.Greedy(bandit), log, horizon=5)
    assert np.isfinite(value.mean)
    assert value.notes


def test_without_a_generator_the_interval_comes_from_the_standard_error(rng):
    """Wider than 1.96 errors by what one session and Student's t add: little among 1,000 sessions that agree."""
    log = lmab.simulate(TRUTH, lmab.Uniform(2), n_sessions=4000, horizon=2, rng=rng)
    for confidence, reach in ((0.95, 1.959964), (0.8, 1.281552)):
        for method in off_policy.METHODS:
            value = evaluation.weigh(lmab.Greedy(TRUTH), log, horizon=2, model=WRONG, confidence=confidence).by(method)
            assert value.interval is not None
            below, above = np.abs(np.array(value.interval) - value.mean) / value.stderr
            assert reach < below < reach + 0.2
            assert reach < above < reach + 0.2


def test_bootstrap_intervals_widen_with_confidence(rng):
    log = lmab.simulate(TRUTH, lmab.Uniform(2), n_sessions=500, horizon=2, rng=rng)
    narrow, wide = (
        evaluation.weigh(lmab.Greedy(TRUTH), log, horizon=2, confidence=confidence, rng=1).per_decision.interval or ()
        for confidence in (0.8, 0.99)
    )
    assert wide[0] < narrow[0] < narrow[1] < wide[1]
    half = evaluation.weigh(lmab.Greedy(TRUTH), log, horizon=2, confidence=0.5, rng=1).per_decision
    low, high = half.interval or ()
    assert (high - low) / 2 == pytest.approx(0.6745 * half.stderr, rel=0.25)


def test_thirty_effective_sessions_are_enough():
    def evidence(n_alike: int):
        arms = [[0]] * n_alike + [[1]] * n_alike
        log = Sessions.from_arrays(arms, np.zeros((2 * n_alike, 1)), propensities=np.full((2 * n_alike, 1), 0.5))
        return evaluation.weigh(always(0), log, horizon=1)

    assert evidence(30).effective_sizes.tolist() == [30.0]
    assert evidence(30).enough
    assert evidence(30).notes == ()
    assert not evidence(29).enough
    assert "29 of 58 sessions" in evidence(29).notes[0]
    arms = np.repeat([[0, 0], [0, 1]], [29, 40], axis=0)
    longer = Sessions.from_arrays(arms, np.zeros((69, 2)), propensities=np.full((69, 2), 0.5))
    assert not evaluation.weigh(always(0), longer, horizon=2).enough  # the last step counts


def test_effective_sizes_are_those_of_unequal_weights():
    """(sum of w)^2 / sum of w^2, with weights 1 and 4 for two sessions each."""
    log = Sessions.from_arrays([[0]] * 4, np.zeros((4, 1)), propensities=[[1.0], [1.0], [0.25], [0.25]])
    evidence = evaluation.weigh(always(0), log, horizon=1)
    assert evidence.effective_sizes[0] == pytest.approx(100 / 34)
    assert evidence.n_followed.tolist() == [4]
    assert evidence.n_reached.tolist() == [4]


def test_weights_within_five_standard_errors_of_one_are_believed(rng):
    """Propensities logged as 0.52 instead of 0.5: noticed among 100,000 sessions, not among 1,000."""
    for n, noticed in ((1000, False), (100_000, True)):
        log = lmab.simulate(TRUTH, lmab.Uniform(2), n_sessions=n, horizon=1, rng=rng)
        lie = Sessions(log.arms, log.rewards, log.offsets, 2, np.full(n, 0.52))
        notes = evaluation.weigh(always(0), lie, horizon=1).notes
        assert any("instead of 1" in note for note in notes) == noticed
    much = Sessions(log.arms, log.rewards, log.offsets, 2, np.full(n, 0.4))
    (note,) = evaluation.weigh(always(0), much, horizon=1).notes
    assert "average 1.2" in note
    assert "never plays" not in note  # weights above 1 on average have another cause


def test_a_share_counts_the_sessions_that_reach_the_step():
    """Four sessions begin, three have a second step, one a third: shares are of four, three and one."""
    log = Sessions.from_arrays([[0, 1, 1], [0, 1, -1], [0, 0, -1], [1, -1, -1]], np.zeros((4, 3)))
    fitted, notes = fit_propensities(log)
    expected = [3 / 4, 2 / 3, 1, 3 / 4, 2 / 3, 3 / 4, 1 / 3, 1 / 4]
    np.testing.assert_allclose(fitted.propensities, expected)
    assert notes == ()
    assert fitted.arms is not None
    np.testing.assert_array_equal(fitted.rewards, log.rewards)


def test_fitted_weights_of_a_blind_policy_average_one_at_every_step(rng):
    """Uniform play of ragged sessions: per-decision weights from fitted propensities average 1 where arms were seen."""
    arms = rng.integers(3, size=(300, 4))
    arms[np.arange(4) >= rng.integers(1, 5, size=300)[:, None]] = -1
    log = Sessions.from_arrays(arms, rng.integers(2, size=(300, 4)).astype(float), n_arms=3)
    fitted, _ = fit_propensities(log)
    shares = np.asarray(fitted.propensities)
    for step in range(4):
        here = shares[log.steps == step]
        assert (1 / 3 / here).mean() == pytest.approx(1)


def adaptive_log(repeat: int) -> Sessions:
    """Two steps; the second arm is the first reward. Each of the four sessions occurs equally often."""
    sessions = list(itertools.product((0, 1), (0.0, 1.0)))
    arms = [[first, int(reward)] for first, reward in sessions] * repeat
    rewards = [[reward, 0.5] for _, reward in sessions] * repeat
    return Sessions.from_arrays(arms, rewards)


def test_arms_that_follow_the_reward_before_are_noticed():
    _, notes = fit_propensities(adaptive_log(50))
    assert len(notes) == 1
    assert "depend on the rewards before them" in notes[0]


def test_the_p_value_is_that_of_the_chi_square_test(rng):
    """One later step: the plain test of independence of a 2 x A table."""
    from scipy.stats import chi2_contingency

    log = lmab.simulate(lmab.random_bandit(2, 3, rng=rng), lmab.Uniform(3), n_sessions=400, horizon=2, rng=rng)
    first, second = log.rewards[::2] > log.rewards.mean(), log.arms[1::2]
    table = np.array([[np.sum((first == side) & (second == arm)) for arm in range(3)] for side in (False, True)])
    expected = chi2_contingency(table, correction=False).pvalue
    assert module._independence(log, log.steps) == pytest.approx(expected)


def test_few_sessions_prove_nothing():
    """Cells with an expected count below 5 are left out: what is left here has no freedom at all."""
    assert module._independence(adaptive_log(2), adaptive_log(2).steps) == 1.0
    assert module._independence(adaptive_log(5), adaptive_log(5).steps) < 0.001
    single = Sessions.from_arrays([[0], [1]], [[0.0], [1.0]])
    assert module._independence(single, single.steps) == 1.0


def test_a_log_with_labels_keeps_its_arms(rng):
    """Which arms of the policy the log does not play is known by name: they cannot be added by number."""
    log = Sessions.from_arrays([[0, 1]], [[1.0, 0.0]], propensities=[[0.5, 0.5]])
    assert module._widened(log, 4).n_arms == 4
    assert module._widened(log, None) is module._widened(log, 1) is log
    labelled = replace(log, arm_labels=("tea", "milk"))
    assert module._widened(labelled, 4) is labelled


def test_the_sessions_that_are_needed_are_counted_from_the_first_step():
    """Of 1,000 sessions 200 reach the second step, and there only 10 count: a hundredth of all."""
    sizes, reached = np.array([50.0, 10.0]), np.array([1000, 200])
    assert module._needed(sizes, reached) == f"about {module.ENOUGH * 100:,.0f}"
    assert module._needed(0 * sizes, reached) == f"far more than {module.ENOUGH * 1000:,.0f}"
