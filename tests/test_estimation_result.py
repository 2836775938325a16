"""The way in for other methods of estimation."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab.errors import InvalidArgument, Status
from lmab.estimation.categorical import LEAST
from lmab.estimation.families import observe
from lmab.estimation.result import Estimate, Estimator, Progress, Request, Starts, StopOnce
from lmab.evaluation import diagnostics
from lmab.moments.second import Subspace

BANDIT = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.5], [0.2, 0.7, 0.4]])
GAUSSIAN = lmab.LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]], 0.5)
LOG = lmab.Sessions.from_arrays(
    [[0, 1, 1, 0], [1, 0, 0, 1]], [[0.0, 1.0, 1.0, 1.0], [0.0, 1.0, 1.0, 1.0]], n_arms=3
)  # arm 2 is never played


@dataclass(frozen=True)
class Middle(Estimator):
    """One type: every arm pays its average."""

    def solve(self, request: Request) -> Estimate:
        data = request.log
        stop = request.progress(Progress("middle", 1, 1, 0.0))
        bandit = data.bandit(data.clustered(np.zeros(data.n_distinct, int), 1)[0], 1)
        likelihood = data.log_likelihood(bandit)
        return Estimate(
            bandit, likelihood, data.n_parameters(1), Status.INTERRUPTED if stop else Status.ITERATION_LIMIT,
            f"asked for {request.n_types}", np.array([likelihood]), Starts(1, 1, 1), 0.0, data,
        )  # fmt: skip


@pytest.fixture
def log(rng):
    bandit = lmab.LatentBandit.bernoulli([0.4, 0.6], [[0.9, 0.1], [0.2, 0.8]])
    return lmab.simulate(bandit, lmab.Uniform(2), n_sessions=100, horizon=3, rng=rng)


def test_a_method_of_ones_own(log):
    with pytest.warns(lmab.errors.LmabWarning, match="did not converge: asked for 2"):
        fit = lmab.fit(log, n_types=2, method=Middle(), rng=0, check=False)
    means = [log.rewards[log.arms == arm].mean() for arm in range(2)]
    np.testing.assert_allclose(fit.bandit.means[0], means)
    assert not fit.converged


def test_fit_warns_of_nothing_and_stopping_is_no_failure(log):
    assert Middle().fit(observe(log), n_types=2, rng=generator(0)).status == "iteration limit"
    assert (
        lmab.fit(log, n_types=2, method=Middle(), rng=0, progress=lambda _: True, check=False).status == "interrupted"
    )


def test_whoever_stops_stays_stopped():
    answers = [False, True, False]
    watch = StopOnce(lambda _: answers.pop(0))
    news = Progress("starts", 1, 2, 0.0)
    assert [watch(news) for _ in range(4)] == [False, True, True, True]
    assert answers == [False]  # not asked again
    assert not StopOnce()(news)


def test_all_methods_share_the_signature():
    for method in (lmab.EM, lmab.estimation.MomentMatching, lmab.estimation.TensorDecomposition):
        assert issubclass(method, Estimator)
        assert "fit" not in vars(method)


def a_log(bandit=BANDIT, horizon=4, seed=0, n_sessions=400):
    policy, rng = lmab.Uniform(bandit.n_arms), generator(seed)
    return lmab.simulate(bandit, policy, n_sessions=n_sessions, horizon=horizon, rng=rng)


def fit(log, **options):
    return lmab.fit(log, **{"n_types": 2, "method": lmab.EM(restarts=2, prior=0.0), "rng": 0, **options})


CASES = {
    "EM": lambda: fit(a_log()),
    "prior": lambda: fit(a_log(), method=lmab.EM(restarts=2, prior=1.5)),
    "chosen": lambda: fit(a_log(), n_types="auto"),
    "unseen value": lambda: fit(a_log(), values=[0.0, 0.5, 1.0]),
    "normal": lambda: fit(a_log(GAUSSIAN), rewards="gaussian"),
    "known scale": lambda: fit(a_log(GAUSSIAN), rewards="gaussian", scale=0.5),
    "moments": lambda: fit(a_log(n_sessions=4000), method=lmab.estimation.MomentMatching(restarts=2)),
    "cut": lambda: fit(
        a_log(GAUSSIAN, 2, n_sessions=4000), rewards="gaussian", method=lmab.estimation.MomentMatching(restarts=2)
    ),
    "interrupted": lambda: fit(a_log(), progress=lambda news: True),
}


@pytest.fixture(scope="module", params=CASES)
def estimate(request):
    made = CASES[request.param]()
    if request.param == "chosen":
        made = replace(made, check=diagnostics.check(made.encoded, n_types=made.n_types, rng=1))
    return made


def saved(estimate: Estimate, folder) -> Estimate:
    estimate.save(folder / "estimate.lmab")
    return lmab.load(folder / "estimate.lmab")


def same(first, second) -> bool:
    """To the bit, down to every number in every part."""
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and first.tobytes() == second.tobytes() and first.shape == second.shape
    if dataclasses.is_dataclass(first) and type(first) is type(second):
        names = [field.name for field in dataclasses.fields(first)]
        return all(same(getattr(first, name), getattr(second, name)) for name in names)
    return first == second


def test_round_trip_to_the_bit(estimate, tmp_path):
    again = saved(estimate, tmp_path)
    assert again.encoded is None
    for name in (field.name for field in dataclasses.fields(Estimate)):
        if name not in ("encoded", "fingerprint", "known_scale", "summarised"):
            assert same(getattr(again, name), getattr(estimate, name)), name
    assert again.log == estimate.log
    assert again.log_summary == estimate.log_summary
    assert (again.bic, again.aic, repr(again), again._repr_html_()) == (
        estimate.bic,
        estimate.aic,
        repr(estimate),
        estimate._repr_html_(),
    )


def test_same_value_same_bytes_however_often_saved(estimate, tmp_path):
    estimate.save(tmp_path / "first")
    lmab.load(tmp_path / "first").save(tmp_path / "second")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_the_log_itself_is_not_in_the_file(tmp_path):
    with pytest.warns(lmab.errors.LmabWarning, match="did not converge"):
        small, large = (
            fit(a_log(n_sessions=n), method=lmab.EM(restarts=2, max_iterations=5, prior=0.0)) for n in (100, 10_000)
        )
    sizes = []
    for one in (small, large):
        one.save(tmp_path / "x.lmab")
        sizes.append((tmp_path / "x.lmab").stat().st_size)
    assert abs(sizes[1] - sizes[0]) < 200


def test_with_its_log_it_is_what_it_was(estimate, tmp_path):
    whole = saved(estimate, tmp_path).with_log(estimate.sessions)
    np.testing.assert_array_equal(whole.posterior(), estimate.posterior())
    mine, theirs = estimate.standard_errors(), whole.standard_errors()
    np.testing.assert_array_equal(mine.means, theirs.means)
    np.testing.assert_array_equal(mine.weights, theirs.weights)
    assert whole.encoded.log_likelihood(whole.bandit) == estimate.encoded.log_likelihood(estimate.bandit)
    assert whole.encoded.n_parameters(2) == estimate.encoded.n_parameters(2)
    errors = saved(estimate, tmp_path).standard_errors(estimate.sessions)
    np.testing.assert_array_equal(errors.means, mine.means)


def test_sessions_in_another_order_are_the_same_log(tmp_path):
    log = a_log()
    again = saved(fit(log), tmp_path)
    assert again.with_log(log[::-1]).n_sessions == len(log)


def test_a_log_that_was_cut_before_the_fit_is_cut_again(tmp_path):
    estimate = CASES["cut"]()
    log = a_log(GAUSSIAN, 2, n_sessions=4000)
    assert estimate.bins is not None
    for given in (log, estimate.sessions):
        assert saved(estimate, tmp_path).with_log(given).sessions == estimate.sessions


def test_without_the_log_the_error_says_what_to_pass(tmp_path):
    again = saved(fit(a_log()), tmp_path)
    for ask in (
        again.posterior,
        again.standard_errors,
        lambda: again.sessions,
        lambda: diagnostics.identify(again, rng=0),
        lambda: lmab.EM(prior=0.0).polish(again, rank=1),
    ):
        with pytest.raises(InvalidArgument, match=r"estimate\.with_log\(sessions\).*400 sessions, 1,600 steps"):
            ask()
    assert again.posterior(a_log(seed=3)).shape == (400, 2)  # of any sessions that are given


def test_another_log_is_refused(tmp_path):
    log = a_log()
    estimate = fit(log)
    for one in (estimate, saved(estimate, tmp_path)):
        for other in (a_log(seed=1), log[:399], a_log(horizon=3)):
            with pytest.raises(InvalidArgument, match="must be the log that the estimate was fitted to"):
                one.with_log(other)
    assert estimate.with_log(log) is estimate
    assert estimate.with_log(log[::-1]) is estimate


def test_an_assessment_from_a_file_is_that_from_memory(tmp_path):
    log = a_log(n_sessions=1000)
    estimate = fit(log, method=lmab.EM(prior=2.0, restarts=2))
    plan = lmab.plan(estimate, horizon=3)
    mine = lmab.assess(estimate, plan, log, n_draws=20, rng=1)
    theirs = lmab.assess(saved(estimate, tmp_path), plan, log, n_draws=20, rng=1)
    assert same(mine, theirs)
    with pytest.raises(InvalidArgument, match="must be the log"):
        lmab.assess(saved(estimate, tmp_path), plan, a_log(seed=1, n_sessions=1000), rng=1)


def test_another_log_of_the_same_size_is_refused(tmp_path):
    log = a_log()
    kept = saved(fit(log), tmp_path)
    assert kept.with_log(log).sessions == log
    for other in (a_log(seed=1), log[:399]):
        with pytest.raises(InvalidArgument, match=r"fitted to \(400 sessions, [\d,]+ steps, checksum [0-9a-f]{16}\)"):
            kept.with_log(other)


def test_the_check_may_use_the_encoded_log():
    log = a_log()
    estimate = fit(log)
    mine = diagnostics.check(estimate.encoded, n_types=2, rng=1)
    assert same(mine, diagnostics.check(log, n_types=2, rng=1))


def floored(*probabilities: float) -> np.ndarray:
    raised = np.maximum(probabilities, LEAST)
    return raised / raised.sum()


def test_probabilities_are_clipped_before_they_are_made_to_sum_to_one():
    """Equation (clipping_mu): 1.5 counts as 1 and -1 as 0, whatever the others are."""
    vectors = np.array([[0.5, 1.5, -1.0, 0.5, 0.3, 0.7], [0.2, 0.6, 1.2, -0.2, 0.0, 0.0]])
    found = observe(LOG).from_moments(np.array([0.4, 0.6]), vectors).rewards.probabilities
    np.testing.assert_allclose(found[0, 0], floored(1 / 3, 2 / 3))
    np.testing.assert_allclose(found[0, 1], floored(0.0, 1.0))
    np.testing.assert_allclose(found[1, 0], floored(0.25, 0.75))
    np.testing.assert_allclose(found[1, 1], floored(1.0, 0.0))


def test_an_arm_without_plays_gets_the_rewards_of_all_arms():
    found = observe(LOG).from_moments(np.array([0.4, 0.6]), np.tile([0.9, 0.1], (2, 3))).rewards.probabilities
    np.testing.assert_allclose(found[:, 2], np.tile([2 / 8, 6 / 8], (2, 1)))
    np.testing.assert_allclose(found[:, 0], np.tile([0.9, 0.1], (2, 1)))


def test_an_arm_that_came_out_as_nothing_gets_its_own_rewards():
    found = observe(LOG).from_moments(np.array([1.0]), np.array([[-0.3, 0.0005, 0.5, 0.5, 0.5, 0.5]]))
    np.testing.assert_allclose(found.rewards.probabilities[0, 0], [1 / 4, 3 / 4])  # arm 0 paid 1 in three of four plays


def test_normal_means_stay_and_the_scale_is_what_is_left():
    rng = np.random.default_rng(0)
    means = np.array([[0.0, 3.0], [2.0, -1.0]])
    bandit = lmab.LatentBandit.gaussian([0.5, 0.5], means, scale=0.5)
    log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=20_000, horizon=3, rng=rng).with_arms(3)
    found = observe(log, rewards="gaussian").from_moments(np.array([0.5, 0.5]), np.column_stack([means, [9.0, 9.0]]))
    np.testing.assert_array_equal(found.means[:, :2], means)
    np.testing.assert_allclose(found.means[:, 2], log.rewards.mean())
    assert found.rewards.scale == pytest.approx(0.5, abs=0.02)
    known = observe(log, rewards="gaussian", scale=0.7).from_moments(np.array([0.5, 0.5]), np.zeros((2, 3)))
    assert known.rewards.scale == 0.7
    absurd = observe(log, rewards="gaussian").from_moments(np.array([0.5, 0.5]), 50 * np.ones((2, 3)))
    assert 0 < absurd.rewards.scale < 1e-4  # more explained than there is: next to nothing is left


def test_reconstruction_clips_too():
    """A core set of all pairs: what is rebuilt is what was found, clipped."""
    from lmab.paper.moment_matching import reconstruct

    core = lmab.moments.design(Subspace(np.eye(6), np.ones(6), 3, np.array([0.0, 1.0])))
    np.testing.assert_allclose(core.reconstruction, np.eye(6), atol=1e-9)
    found = reconstruct(np.array([1.0]), np.array([[0.5, 1.5, -1.0, 0.5, 0.3, 0.7]]).T, core, LOG)
    np.testing.assert_allclose(found.rewards.probabilities[0, 0], floored(1 / 3, 2 / 3), rtol=1e-6)
    np.testing.assert_allclose(found.rewards.probabilities[0, 1], [LEAST / (LEAST + 0.5), 0.5 / (LEAST + 0.5)])


def test_values_that_only_the_core_plays_paid_join_with_the_least_probability():
    from lmab.paper.moment_matching import reconstruct

    core = lmab.moments.design(Subspace(np.eye(4), np.ones(4), 2, np.array([0.0, 1.0])))
    log = lmab.Sessions.from_arrays([[0, 1], [1, 0]], [[0.0, 2.0], [1.0, 0.0]])
    found = reconstruct(np.array([1.0]), np.array([[0.4, 0.6, 0.5, 0.5]]).T, core, log).rewards
    assert found.values.tolist() == [0.0, 1.0, 2.0]
    np.testing.assert_allclose(found.probabilities[0, 0], np.array([0.4, 0.6, LEAST]) / (1 + LEAST), rtol=1e-6)


def test_a_log_that_was_read_without_the_options_of_the_fit_is_told_which_these_are(log):
    known = replace(log, persons=np.arange(len(log)))
    estimate = lmab.fit(known, n_types=2, check=False, rng=0)
    with pytest.raises(InvalidArgument, match=r"their sizes agree.*--features, --person, --ended or --limit"):
        estimate.with_log(log)
    with pytest.raises(InvalidArgument, match=r"got another \(99 sessions, 297 steps, checksum \w{16}\)$"):
        estimate.with_log(known[:99])
    shorter = lmab.Sessions.from_arrays(log.arms.reshape(-1, 3)[:, :2], log.rewards.reshape(-1, 3)[:, :2], n_arms=2)
    with pytest.raises(InvalidArgument, match=r"got another \(100 sessions, 200 steps, checksum \w{16}\)$"):
        estimate.with_log(shorter)
