"""Traits: published truths, known truths, what happens to bad input, and the estimate that comes out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import lmab
from lmab.errors import InvalidArgument, LmabWarning, Status
from lmab.estimation.cross_validation import popularity_of
from lmab.estimation.families import observe
from lmab.estimation.result import estimate_of
from lmab.estimation.traits import traits as traits_module
from lmab.estimation.traits.surface import Factors, Points, TraitArms
from lmab.estimation.traits.traits import _variance_of_difference, apart, ranked

# Counts of the answers 00000, 00001, ... 11111 of 1,000 people to five questions (Bock and Lieberman, 1970).
LSAT6 = [3, 6, 2, 11, 1, 1, 3, 4, 1, 8, 0, 16, 0, 3, 2, 15,
         10, 29, 14, 81, 3, 28, 15, 80, 16, 56, 21, 173, 11, 61, 28, 298]  # fmt: skip
LSAT7 = [12, 19, 1, 7, 3, 19, 3, 17, 10, 5, 3, 7, 7, 23, 8, 28,
         7, 39, 11, 34, 14, 51, 15, 90, 6, 25, 7, 35, 18, 136, 32, 308]  # fmt: skip
SMALL = lmab.Traits(n_factors=3, n_points=64)
SMALL_TRAITS_RANKING = lmab.Traits(n_factors=2, n_points=25)
N_ARMS = 20


def answers(counts: list[int]) -> lmab.Sessions:
    rows = np.repeat((np.arange(32)[:, None] >> np.arange(4, -1, -1)) & 1, counts, axis=0)
    return lmab.Sessions.from_arrays(np.tile(np.arange(5), (len(rows), 1)), rows.astype(float))


def people(n: int, loadings: np.ndarray, rng: np.random.Generator, *, horizon: int = 8) -> lmab.Sessions:
    """Sessions of the truth with intercepts 0 and these loadings."""
    n_arms, d = loadings.shape
    arms = np.array([rng.permutation(n_arms)[:horizon] for _ in range(n)])
    logits = np.einsum("nd,nhd->nh", rng.normal(size=(n, d)), loadings[arms])
    return lmab.Sessions.from_arrays(arms, (rng.random(arms.shape) < 1 / (1 + np.exp(-logits))) * 1.0, n_arms=n_arms)


@pytest.mark.parametrize(
    ("counts", "log_likelihood", "slopes", "intercepts"),
    [
        # Rizopoulos (2006), ltm: discriminations, and difficulties, which are minus intercept over discrimination
        (LSAT6, -2466.653, [0.8254, 0.7229, 0.8905, 0.6886, 0.6575], [2.7731, 0.9901, 0.2493, 1.2849, 2.0538]),
        # Chalmers (2012), mirt
        (LSAT7, -2658.805, [0.988, 1.081, 1.706, 0.765, 0.736], [1.856, 0.808, 1.804, 0.486, 1.855]),
    ],
)
def test_published_maxima_of_the_two_parameter_logistic_model(counts, log_likelihood, slopes, intercepts):
    found = lmab.fit(answers(counts), method=lmab.Traits(n_factors=1, n_points=21, prior=None), rng=0, check=False)
    assert found.log_likelihood == pytest.approx(log_likelihood, abs=1e-3)
    np.testing.assert_allclose(found.factors.loadings[:, 0], slopes, atol=2e-3)
    np.testing.assert_allclose(found.factors.intercepts[:, 0], intercepts, atol=3e-3)
    assert found.converged
    assert found.n_types == 21
    assert found.n_parameters == 10
    assert found.prior == 0.0
    assert (np.diff(found.trace) >= -1e-9).all()


def test_the_default_finds_the_one_ability_behind_the_answers():
    found = lmab.fit(answers(LSAT6), method=lmab.Traits(), rng=0, check=False)
    assert found.factors.n_factors == 5  # as many as arms
    assert found.factors.n_alive == 1
    assert found.log_likelihood > -2466.653 - 1.0
    assert "8 factors were asked for, and 5 arms allow no more than as many" in found.message


def test_known_loadings_are_found_up_to_a_rotation(rng):
    loadings = rng.normal(0, 1.0, (12, 2))
    found = lmab.fit(people(6000, loadings, rng), method=SMALL, rng=0, check=False)
    assert found.factors.n_alive == 2
    error = found.factors.loadings @ found.factors.loadings.T - loadings @ loadings.T
    assert np.sqrt((error**2).mean()) < 0.15 * np.sqrt(((loadings @ loadings.T) ** 2).mean())
    assert abs(found.factors.doubled) < 0.01


def test_where_sessions_differ_in_generosity_alone_arms_are_ranked_by_popularity(rng):
    popularity = np.linspace(-1, 1, 10)
    shift = 1.5 * rng.normal(size=(4000, 1))
    arms = np.array([rng.permutation(10)[:6] for _ in range(4000)])
    rewards = (rng.random(arms.shape) < 1 / (1 + np.exp(-popularity[arms] - shift))) * 1.0
    found = lmab.fit(lmab.Sessions.from_arrays(arms, rewards, n_arms=10), method=SMALL, rng=0, check=False)
    assert found.factors.n_alive == 1
    np.testing.assert_allclose(found.factors.loadings[:, 0], 1.5, atol=0.25)
    weighty = found.bandit.weights @ found.bandit.means
    tops = found.bandit.means.argmax(axis=1)
    assert (np.sort(weighty)[-2:] == weighty[8:]).all()
    assert np.isin(tops, [8, 9]).mean() > 0.95  # nobody is told anything but what is popular


def test_a_log_without_factors_loses_them(rng):
    chances = rng.uniform(0.2, 0.8, 8)
    arms = rng.integers(8, size=(3000, 5))
    log = lmab.Sessions.from_arrays(arms, (rng.random(arms.shape) < chances[arms]) * 1.0, n_arms=8)
    found = lmab.fit(log, method=SMALL, rng=0, check=False)
    assert found.factors.size[0] < 0.25  # what is left is shared by all arms
    np.testing.assert_allclose(found.factors.size[1:], 0, atol=0.05)
    np.testing.assert_allclose(found.bandit.means.std(axis=0), 0, atol=0.06)


def test_normal_rewards(rng):
    loadings, middles = rng.normal(0, 1.0, (10, 2)), rng.normal(0, 3.0, 10)
    arms = np.array([rng.permutation(10)[:6] for _ in range(4000)])
    means = middles[arms] + np.einsum("nd,nhd->nh", rng.normal(size=(4000, 2)), loadings[arms])
    log = lmab.Sessions.from_arrays(arms, 100 + means + 0.7 * rng.normal(size=means.shape), n_arms=10)
    found = lmab.fit(log, method=lmab.Traits(n_factors=3, n_points=256), rewards="gaussian", rng=0, check=False)
    assert found.factors.n_alive == 2
    assert found.bandit.rewards.scale == pytest.approx(0.7, rel=0.15)
    average = found.bandit.weights @ found.bandit.means
    np.testing.assert_allclose(average, 100 + middles, atol=0.2)
    np.testing.assert_allclose(found.factors.loadings @ found.factors.loadings.T, loadings @ loadings.T, atol=0.5)


def test_normal_rewards_without_a_prior_reach_the_maximum_of_a_factor_model(rng):
    """With one factor and every arm played once the maximum is that of factor analysis with equal noise: of PCA."""
    rewards = rng.normal(size=(800, 1)) * [1.0, 0.5, -1.0] + 0.8 * rng.normal(size=(800, 3)) + [3.0, 0.0, 1.0]
    log = lmab.Sessions.from_arrays(np.tile(np.arange(3), (800, 1)), rewards)
    found = lmab.fit(
        log, method=lmab.Traits(n_factors=1, n_points=40, prior=None), rewards="gaussian", rng=0, check=False
    )
    values, vectors = np.linalg.eigh(np.cov(rewards.T, bias=True))
    noise = values[:2].mean()
    expected = vectors[:, 2] * np.sqrt(values[2] - noise)
    assert found.bandit.rewards.scale == pytest.approx(np.sqrt(noise), rel=1e-3)
    np.testing.assert_allclose(found.factors.loadings[:, 0], expected * np.sign(expected.sum()), atol=5e-3)


def test_ordered_values(rng):
    """Logits b[z] + place of the value times w.u, as the surface says."""
    steps, values = np.array([0, 0.5, 1.0]), np.array([1.0, 2.0, 3.0])
    intercepts = np.column_stack([np.zeros(8), rng.normal(0, 0.7, (8, 2))])
    loadings = rng.normal(1.5, 0.5, 8)
    arms = np.array([rng.permutation(8)[:6] for _ in range(5000)])
    logits = intercepts[arms] + steps * (loadings[arms] * rng.normal(size=(5000, 1)))[..., None]
    chances = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    rewards = values[(rng.random((5000, 6, 1)) > chances.cumsum(axis=2)).sum(axis=2).clip(0, 2)]
    found = lmab.fit(lmab.Sessions.from_arrays(arms, rewards, n_arms=8), method=SMALL, rng=0, check=False)
    assert (found.factors.size[1:] < 0.3 * found.factors.size[0]).all()
    np.testing.assert_allclose(found.factors.loadings[:, 0], loadings, atol=0.4)
    np.testing.assert_allclose(found.factors.intercepts, intercepts[:, 1:], atol=0.3)
    assert found.bandit.rewards.values.tolist() == [1.0, 2.0, 3.0]
    k = found.factors.n_alive
    assert found.n_parameters == 8 * 2 + 8 * k - k * (k - 1) // 2


def test_an_arm_that_was_never_played_follows_the_law_of_the_others(rng):
    log = people(2000, rng.normal(1.0, 0.3, (6, 1)), rng, horizon=5).with_arms(7)
    found = lmab.fit(log, method=SMALL, rng=0, check=False)
    assert "never played, so set to the learned prior of arms: arm 6" in found.message
    factors = found.factors
    np.testing.assert_allclose(np.r_[factors.intercepts[6], factors.loadings[6]], factors.centre, atol=0.02)
    np.testing.assert_allclose(factors.covariance[6], factors.spread, rtol=0.05, atol=1e-5)
    np.testing.assert_allclose(factors.centre[1], factors.loadings[:6, 0].mean(), atol=0.02)


def test_an_arm_played_once_is_taken_for_an_arm(rng):
    log = people(2000, rng.normal(1.0, 0.3, (6, 1)), rng, horizon=5)
    once = lmab.Sessions.from_arrays([[6, 0]], [[1.0, 1.0]], n_arms=7)
    found = lmab.fit(log.with_arms(7) + once, method=SMALL, rng=0, check=False)
    assert 0.4 < found.bandit.weights @ found.bandit.means[:, 6] < 0.75


@pytest.mark.parametrize("number", [1, 5])
def test_a_number_of_types_is_refused(number):
    with pytest.raises(InvalidArgument, match=r"n_types must not be given with Traits, got .*n_points"):
        lmab.fit(answers(LSAT6), n_types=number, method=lmab.Traits(), rng=0)


def test_a_number_of_types_is_needed_by_other_methods():
    with pytest.raises(InvalidArgument, match="n_types must be an integer of at least 1 or 'auto', got None"):
        lmab.fit(answers(LSAT6), n_types=None, rng=0)


def test_sessions_of_one_step_identify_no_factors(rng):
    arms = rng.integers(3, size=(500, 1))
    log = lmab.Sessions.from_arrays(arms, (rng.random((500, 1)) < [[0.5]]) * 1.0, n_arms=3)
    with pytest.warns(LmabWarning, match="no session is longer than 1 step"):
        found = lmab.fit(log, method=lmab.Traits(), rng=0, check=False)
    assert "factors are not identified, because no session is longer than one step" in found.message
    assert found.factors.n_factors == 0
    assert found.n_types == 1
    assert found.bandit.means.shape == (1, 3)


def test_equal_rewards_identify_no_factors():
    log = lmab.Sessions.from_arrays([[0, 1], [1, 2]], [[1.0, 1.0], [1.0, 1.0]])
    with pytest.warns(LmabWarning, match="every reward is 1"):
        found = lmab.fit(log, method=lmab.Traits(), rng=0, check=False)
    assert "factors are not identified, because all rewards are equal" in found.message
    np.testing.assert_allclose(found.bandit.means, 1.0)


def test_equal_rewards_among_values_that_were_given():
    log = lmab.Sessions.from_arrays([[0, 1], [1, 2]], [[1.0, 1.0], [1.0, 1.0]])
    with pytest.warns(LmabWarning, match="every reward is 1"):
        found = lmab.fit(log, method=SMALL, values=[0.0, 1.0], rng=0, check=False)
    assert np.isfinite(found.bandit.means).all()
    assert (found.bandit.means > 0.5).all()


def test_one_arm_has_one_factor_at_most(rng):
    chances = 1 / (1 + np.exp(-2 * rng.normal(size=(1000, 1))))
    log = lmab.Sessions.from_arrays(np.zeros((1000, 6), int), (rng.random((1000, 6)) < chances) * 1.0)
    with pytest.warns(LmabWarning, match="only arm 0 was ever played"):
        found = lmab.fit(log, method=lmab.Traits(), rng=0, check=False)
    assert found.factors.n_factors == 1
    assert found.factors.loadings[0, 0] == pytest.approx(2.0, abs=0.4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_factors": 0}, "n_factors must be an integer of at least 1, got 0"),
        ({"n_points": 2.5}, "n_points must be an integer of at least 1, got 2.5"),
        ({"prior": 1.0}, "prior must be 'learned' or None, got 1.0"),
        ({"tolerance": -1}, "tolerance must be a finite number of at least 0, got -1"),
        ({"threads": 0}, "threads must be an integer of at least 1 or None, got 0"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(InvalidArgument, match=message):
        lmab.Traits(**settings)


def test_the_same_bits_for_any_number_of_threads_and_any_seed(rng):
    log = people(12_000, rng.normal(0, 1.0, (10, 2)), rng)
    one, two = (
        lmab.fit(log, method=replace(SMALL, threads=threads, max_iterations=56), rng=seed, check=False)
        for threads, seed in ((1, 0), (2, 5))
    )
    np.testing.assert_array_equal(one.bandit.means, two.bandit.means)
    assert one.log_likelihood == two.log_likelihood


def test_a_large_log_begins_with_a_sample(rng, monkeypatch):
    log = people(3000, rng.normal(0, 1.0, (10, 2)), rng)
    whole = lmab.fit(log, method=SMALL, rng=0, check=False)
    monkeypatch.setattr(traits_module, "_PILOT", 500)
    sizes, original = [], traits_module.first_arms

    def watched(data, n_factors):
        sizes.append(len(data.sessions))
        return original(data, n_factors)

    monkeypatch.setattr(traits_module, "first_arms", watched)
    sampled = lmab.fit(log, method=SMALL, rng=0, check=False)
    assert sizes == [500]
    assert sampled.log_likelihood == pytest.approx(whole.log_likelihood, abs=3)


def test_a_file_keeps_the_factors(tmp_path):
    log = answers(LSAT7)
    found = lmab.fit(log, method=lmab.Traits(n_factors=2, n_points=49), rng=0, check=False)
    found.save(tmp_path / "traits.lmab")
    loaded = lmab.load(tmp_path / "traits.lmab")
    for name in Factors.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(loaded.factors, name), getattr(found.factors, name))
    assert loaded.message == found.message
    assert loaded.with_log(log).posterior().shape == (1000, 49)
    np.testing.assert_array_equal(loaded.bandit.means, found.bandit.means)


def test_the_factors_are_those_of_the_bandit(rng):
    """Turning axes and points together leaves the surface as it was."""
    log = people(1000, rng.normal(0, 1.0, (8, 2)), rng)
    found = lmab.fit(log, method=lmab.Traits(n_factors=2, n_points=49, prior=None, tolerance=1e-3), rng=0, check=False)
    factors = found.factors
    logits = factors.intercepts[:, 0] + factors.points @ factors.loadings.T
    np.testing.assert_allclose(found.bandit.means, 1 / (1 + np.exp(-logits)), rtol=1e-8)
    products = factors.loadings.T @ factors.loadings
    assert abs(products[0, 1]) < 1e-8 * products[0, 0]  # principal axes
    assert factors.size[0] > factors.size[1]
    low, high = factors.ends(0, 2)
    assert factors.loadings[low[0], 0] == factors.loadings[:, 0].min()
    assert factors.loadings[high[0], 0] == factors.loadings[:, 0].max()


def test_a_fit_that_is_stopped_gives_what_it_has():
    for method in (SMALL, replace(SMALL, prior=None)):
        found = lmab.fit(answers(LSAT6), method=method, rng=0, progress=lambda news: news.iteration >= 3, check=False)
        assert found.status is Status.INTERRUPTED
        assert "interrupted after" in found.message


def test_a_fit_that_runs_out_of_rounds_says_so():
    for method in (replace(SMALL, max_iterations=10), replace(SMALL, prior=None, max_iterations=4)):
        with pytest.warns(LmabWarning, match="did not converge: stopped by max_iterations"):
            found = lmab.fit(answers(LSAT6), method=method, rng=0, check=False)
        assert found.status is Status.ITERATION_LIMIT


def test_arms_in_another_order_give_the_same_model(rng):
    loadings = rng.normal(0.5, 0.8, (6, 1))
    log = people(1500, loadings, rng, horizon=5)
    order = np.array([3, 1, 5, 0, 2, 4])
    turned = lmab.Sessions.from_arrays(order[log.arms].reshape(-1, 5), log.rewards.reshape(-1, 5), n_arms=6)
    one, other = (
        lmab.fit(each, method=lmab.Traits(n_factors=1, n_points=15), rng=0, check=False) for each in (log, turned)
    )
    np.testing.assert_allclose(other.factors.loadings[order], one.factors.loadings, atol=1e-6)
    assert other.log_likelihood == pytest.approx(one.log_likelihood, abs=1e-6)


def test_amounts_in_bins(rng):
    log = people(500, np.ones((4, 1)), rng, horizon=3)
    spent = lmab.Sessions.from_arrays(
        log.arms.reshape(-1, 3), log.rewards.reshape(-1, 3) * rng.gamma(2.0, size=(500, 3)), n_arms=4
    )
    found = lmab.fit(spent, method=SMALL, rewards="binned", rng=0, check=False)
    assert found.bins is not None
    assert found.factors.intercepts.shape == (4, len(found.bins.values) - 1)


def test_traits_know_their_own_number():
    assert lmab.Traits().capabilities.chooses_n_types
    assert not lmab.EM(prior=0.0).capabilities.chooses_n_types
    data = observe(answers(LSAT6))
    assert traits_module.identified(data, 3) == 3
    assert traits_module.identified(data, 8) == 5


def test_equal_loadings_are_raschs_model():
    """With one factor that all questions load alike on; the law of the loadings leaves them a hundredth of a logit."""
    rasch = lmab.Traits(n_factors=1, n_points=21, equal_loadings=True)
    found = lmab.fit(answers(LSAT6), method=rasch, rng=0, check=False)
    assert np.ptp(found.factors.loadings) < 0.02
    # Rizopoulos (2006), ltm: log-likelihood -2466.938, discrimination .7551
    np.testing.assert_allclose(found.factors.loadings, 0.7551, atol=0.02)
    assert found.log_likelihood == pytest.approx(-2466.938, abs=0.3)
    with pytest.raises(InvalidArgument, match="prior must be 'learned' with equal_loadings, got None"):
        lmab.Traits(equal_loadings=True, prior=None)


def generous(n: int, rng: np.random.Generator, *, normal: bool = False) -> lmab.Sessions:
    """Sessions that like all arms more or less, and log six of them at random."""
    levels, shift = rng.normal(0, 0.5, N_ARMS), rng.normal(size=(n, 1))
    arms = rng.random((n, N_ARMS)).argsort(axis=1)[:, :6]
    logits = levels[arms] + shift
    rewards = logits + rng.normal(size=arms.shape) if normal else (rng.random(arms.shape) < 1 / (1 + np.exp(-logits)))
    return lmab.Sessions.from_arrays(arms, rewards * 1.0, n_arms=N_ARMS)


def popular(log: lmab.Sessions) -> np.ndarray:
    return np.argsort(-popularity_of(log), kind="stable")


@pytest.mark.parametrize("normal", [False, True])
def test_every_session_is_told_the_arms_of_highest_mean_reward(rng, normal):
    log = generous(700, rng, normal=normal)
    found = lmab.fit(log, method=SMALL_TRAITS_RANKING, rewards="gaussian" if normal else None, rng=0, check=False)
    assert found.factors.by_mean
    assert not found.factors.tell_arms_apart
    for means in found.bandit.means:
        np.testing.assert_array_equal(np.argsort(-means, kind="stable"), popular(log))
    assert "no factor distinguishes arms" in found.message
    assert "arms are ranked by their mean rewards in the log" in found.message


def test_without_this_the_list_would_differ_by_noise(rng):
    log = generous(700, rng)
    alone = lmab.fit(log, method=replace(SMALL_TRAITS_RANKING, equal_loadings=True), rng=0, check=False)
    assert not alone.factors.by_mean  # the model that was asked for stays as it is
    fitted = np.argsort(-(alone.bandit.weights @ alone.bandit.means))
    assert (fitted != popular(log)).any()


def test_the_levels_stay_those_of_the_fit(rng):
    """Only who has which level changes, so that predictions hardly do."""
    log = generous(700, rng)
    ranking, alone = (
        lmab.fit(log, method=one, rng=0, check=False)
        for one in (SMALL_TRAITS_RANKING, replace(SMALL_TRAITS_RANKING, equal_loadings=True))
    )
    np.testing.assert_allclose(
        np.sort(ranking.bandit.weights @ ranking.bandit.means),
        np.sort(alone.bandit.weights @ alone.bandit.means),
        atol=0.01,
    )
    assert abs(ranking.log_likelihood - alone.log_likelihood) < 0.005 * len(log)


def test_a_fit_that_is_sure_of_its_own_order_keeps_it(rng):
    """Generous sessions are shown other arms than mean ones, so that mean rewards mislead."""
    n, levels = 2000, np.tile(np.linspace(-1, 1, N_ARMS // 2), 2)
    shift, arms = rng.normal(0, 1.5, (n, 1)), np.empty((n, 6), int)
    arms[:, :2] = rng.random((n, N_ARMS)).argsort(axis=1)[:, :2]
    first = rng.random((n, 2)) < 1 / (1 + np.exp(-levels[arms[:, :2]] - shift))
    half = np.where(first.all(axis=1), N_ARMS // 2, 0)  # those who liked both are shown the other half of the arms
    arms[:, 2:] = half[:, None] + rng.random((n, N_ARMS // 2)).argsort(axis=1)[:, :4]
    rest = rng.random((n, 4)) < 1 / (1 + np.exp(-levels[arms[:, 2:]] - shift))
    log = lmab.Sessions.from_arrays(arms, np.hstack([first, rest]) * 1.0, n_arms=N_ARMS)
    found = lmab.fit(log, method=SMALL_TRAITS_RANKING, rng=0, check=False)
    assert not found.factors.tell_arms_apart
    assert not found.factors.by_mean
    assert "mean rewards" not in found.message
    assert levels[np.argsort(-found.bandit.means[0])[:6]].sum() > levels[popular(log)[:6]].sum()


def test_an_arm_played_once_does_not_lead_the_list(rng):
    once = lmab.Sessions.from_arrays([[N_ARMS, 0]], [[1.0, 1.0]], n_arms=N_ARMS + 1)
    log = generous(700, rng).with_arms(N_ARMS + 1) + once
    found = lmab.fit(log, method=SMALL_TRAITS_RANKING, rng=0, check=False)
    order = np.argsort(-found.bandit.means[0])
    assert popular(log).tolist().index(N_ARMS) < 4
    assert order.tolist().index(N_ARMS) > 4  # of what is known of it most is the law
    others = popular(log)
    np.testing.assert_array_equal(order[order < N_ARMS], others[others < N_ARMS])


def test_the_plan_says_so_and_its_file_too(rng, tmp_path):
    found = lmab.fit(generous(300, rng), method=SMALL_TRAITS_RANKING, rng=0, check=False)
    lmab.plan(found, horizon=3, repeats=False, method=lmab.QMDP(), anyway=True).save(tmp_path / "plan.lmab")
    plan = lmab.load(tmp_path / "plan.lmab")
    assert plan.message.endswith(f"; {found.factors.ranking}")
    assert estimate_of(plan.source).factors.by_mean
    assert found.factors is not None
    apart_enough = replace(found, factors=replace(found.factors, apart=1.0))
    told = lmab.plan(apart_enough, horizon=3, repeats=False, method=lmab.QMDP(), anyway=True)
    assert "no factor tells arms apart" not in told.message


def case(values: list[float], loadings: np.ndarray, rng: np.random.Generator):
    arms = rng.integers(4, size=(200, 3))
    data = observe(lmab.Sessions.from_arrays(arms, rng.choice(values, arms.shape), n_arms=5), values=values)
    q = len(values) - 1
    parameters = np.column_stack([rng.normal(size=(5, q)), loadings])
    p = parameters.shape[1]
    given = TraitArms(parameters, np.tile(0.01 * np.eye(p), (5, 1, 1)), parameters.mean(axis=0), np.ones(p))
    return data.surface, given, Points.of(loadings.shape[1], 9)


def test_how_much_loadings_differ_is_measured_over_the_arms_that_were_played(rng):
    loadings = np.array([[1.0, 0.0], [2.0, 0.0], [1.0, 0.0], [2.0, 0.0], [100.0, 50.0]])
    surface, _, _ = case([0.0, 1.0], loadings, rng)
    assert apart(surface, loadings) == pytest.approx(0.5)
    turn = np.array([[0.6, 0.8], [-0.8, 0.6]])
    assert apart(surface, loadings @ turn) == pytest.approx(0.5)
    assert apart(surface, np.zeros((5, 0))) == 0.0


def test_arms_that_factors_tell_apart_stay_as_they_are(rng):
    surface, given, points = case([0.0, 1.0], np.array([[1.0], [1.4], [1.0], [1.4], [1.2]]), rng)
    found = ranked(surface, given, points)
    assert found.arms is given
    assert not found.by_mean


def test_arms_on_more_than_two_values_stay_as_they_are(rng):
    surface, given, points = case([0.0, 1.0, 3.0], np.ones((5, 1)), rng)
    found = ranked(surface, given, points)
    assert found.arms is given
    assert not found.by_mean


def test_the_list_of_mean_rewards_itself_loses_nothing(rng):
    surface, given, points = case([0.0, 1.0], np.ones((5, 1)), rng)
    parameters = given.parameters.copy()
    parameters[np.argsort(-surface.popularity(), kind="stable"), 0] = np.linspace(1, -1, 5)
    sure = replace(given, parameters=parameters, covariance=1e-9 * given.covariance)
    found = ranked(surface, sure, points)
    assert found.by_mean
    np.testing.assert_array_equal(found.arms.parameters, parameters)


def test_two_standard_errors_decide(rng):
    """Two arms whose mean rewards are in the other order: the fit has to be sure of its own."""
    surface, given, points = case([0.0, 1.0], np.ones((5, 1)), rng)
    parameters = given.parameters.copy()
    order = np.argsort(-surface.popularity()[:4], kind="stable")
    parameters[order, 0] = [0.3, 0.7, -1.0, -2.0]
    parameters[4, 0] = -3.0
    for error, by_mean in ((0.4 / np.sqrt(2) / 2.2, False), (0.4 / np.sqrt(2) / 1.8, True)):
        covariance = 1e-9 * given.covariance
        covariance[:, 0, 0] = error**2
        found = ranked(surface, replace(given, parameters=parameters, covariance=covariance), points)
        assert found.by_mean == by_mean
        assert found.arms.parameters[order[0], 0] == (0.7 if by_mean else 0.3)


def test_arms_in_both_lists_fall_out_of_their_difference(rng):
    one, other, variance = rng.permutation(8), rng.permutation(8), rng.random(8)
    expected = [sum(variance[list(set(one[:n]) ^ set(other[:n]))]) for n in range(1, 9)]
    np.testing.assert_allclose(_variance_of_difference(one, other, variance), expected, atol=1e-12)


def test_rotations_of_factors_are_no_parameters():
    method = lmab.Traits(n_factors=2, n_points=25, prior=None, max_iterations=2)
    with pytest.warns(LmabWarning, match="did not converge"):  # nothing but the count matters
        found = lmab.fit(answers(LSAT6), method=method, rng=0, check=False)
    assert found.n_parameters == 5 + 2 * 5 - 1
