"""Estimates as values: through a file to the bit, all but the log, which is known again by its fingerprint."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import numpy as np
import pytest
from seeds import generator

import lmab
from lmab.errors import InvalidArgument
from lmab.estimation import Estimate, Starts
from lmab.evaluation import diagnostics

BANDIT = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.5], [0.2, 0.7, 0.4]])
GAUSSIAN = lmab.LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]], 0.5)


def a_log(bandit=BANDIT, horizon=4, seed=0, n_sessions=400):
    policy, rng = lmab.Uniform(bandit.n_arms), generator(seed)
    return lmab.simulate(bandit, policy, n_sessions=n_sessions, horizon=horizon, rng=rng)


def fit(log, **options):
    return lmab.fit(log, **{"n_types": 2, "method": lmab.EM(restarts=2), "rng": 0, **options})


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
        made = replace(made, check=diagnostics.check(made.observations, n_types=made.n_types, rng=1))
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
    assert again.observations is None
    for name in (field.name for field in dataclasses.fields(Estimate)):
        if name not in ("observations", "fingerprint", "known_scale"):
            assert same(getattr(again, name), getattr(estimate, name)), name
    assert again.log == estimate.log
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
        small, large = (fit(a_log(n_sessions=n), method=lmab.EM(restarts=2, max_iterations=5)) for n in (100, 10_000))
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
    assert whole.observations.log_likelihood(whole.bandit) == estimate.observations.log_likelihood(estimate.bandit)
    assert whole.observations.n_parameters(2) == estimate.observations.n_parameters(2)
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
        lambda: lmab.EM().polish(again, rank=1),
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


def test_a_certificate_from_a_file_is_that_from_memory(tmp_path):
    log = a_log(n_sessions=1000)
    estimate = fit(log, method=lmab.EM(prior=2.0, restarts=2))
    plan = lmab.plan(estimate, horizon=3)
    mine = lmab.certify(estimate, plan, log, n_draws=20, rng=1)
    theirs = lmab.certify(saved(estimate, tmp_path), plan, log, n_draws=20, rng=1)
    assert same(mine, theirs)
    with pytest.raises(InvalidArgument, match="must be the log"):
        lmab.certify(saved(estimate, tmp_path), plan, a_log(seed=1, n_sessions=1000), rng=1)


def test_files_of_0_1_noted_less(tmp_path):
    """Number of sessions and log-likelihood: then the likelihood tells logs apart."""
    log = a_log()
    estimate = fit(log)
    old = replace(
        saved(estimate, tmp_path),
        fingerprint=replace(estimate.log, n_steps=None, checksum=None),
        starts=Starts(0, 0, 0),
    )
    assert old.with_log(log).sessions == log
    for other in (a_log(seed=1), log[:399]):
        with pytest.raises(InvalidArgument, match=r"fitted to \(400 sessions\)"):
            old.with_log(other)
    assert str(old.starts) == "the file does not say how many starts there were"


def test_the_check_may_use_the_encoded_log():
    log = a_log()
    estimate = fit(log)
    mine = diagnostics.check(estimate.observations, n_types=2, rng=1)
    assert same(mine, diagnostics.check(log, n_types=2, rng=1))
