"""check_estimator: the laws that every estimator keeps."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..data.sessions import Sessions
from ..errors import LmabError, LmabWarning, Status, first_line
from ..estimation.fit import fit
from ..estimation.result import Estimate, Estimator, capabilities_of
from ..loading import load
from ..model.bandit import LatentBandit
from ..policies.belief_policies import Uniform
from ..simulation import simulate
from .policies import same_record
from .report import Broken, Law, Report, expect, keep

_SEED = 3  # of the estimator
_EXACT = 1e-9  # rounding of a log-likelihood, in proportion to it


def check_estimator(
    method: Estimator, *, bandit: LatentBandit | None = None, horizon: int = 4, n_sessions: int = 300, n_types: int = 2
) -> Report:
    """Check that `method` keeps the laws of estimators on simulated logs.

    These are the laws. The estimate has the number of types in the call and the arms of the log, with their labels. Its
    log-likelihood is that of its bandit, its status is a `Status` with a message, and its trace never falls. The same
    seed gives the same estimate to the bit, the global generator of NumPy is not used, and neither the log nor the
    method changes. A stopped fit returns an estimate. Sessions of different lengths, one type, and normal rewards
    are fitted, or refused with an error of the package. `lmab.fit(n_types="auto")` works, and files hold the estimate.

    Args:
        method: an `Estimator`, or any object with its method `fit`.
        bandit: the bandit that generates the logs; None: two types, four arms and Bernoulli rewards.
        horizon: steps per session.
        n_sessions: sessions of a log.
        n_types: the number of types to ask for.

    Returns:
        A report of the laws that were kept. Broken ones raise `BrokenLaw`, an `AssertionError`.

    Examples:
        >>> import lmab
        >>> from lmab.testing import check_estimator
        >>> check_estimator(lmab.estimation.TensorDecomposition())
        Report(TensorDecomposition keeps 13 laws)
    """
    if bandit is None:
        bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.2, 0.5, 0.1], [0.1, 0.3, 0.6, 0.8]])
    labels = tuple(f"arm {number}" for number in range(bandit.n_arms))
    log = replace(
        simulate(bandit, Uniform(bandit.n_arms), n_sessions=n_sessions, horizon=horizon, rng=0), arm_labels=labels
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LmabWarning)  # estimators warn of small logs
        return keep(type(method).__name__, LAWS, _Fits(method, log, n_types))


@dataclass(frozen=True, eq=False)
class _Fits:
    """An estimator and a log; its estimate is computed once."""

    method: Any
    log: Sessions
    n_types: int

    @property
    def asked(self) -> int | None:
        """Return the number of types to ask for; None if the estimator chooses its own."""
        return None if capabilities_of(self.method).chooses_n_types else self.n_types

    def fit(self, log: Sessions | None = None, **options: Any) -> Estimate:
        settings = {"n_types": self.asked, "rng": _SEED, **options}
        return fit(self.log if log is None else log, method=self.method, check=False, selected=False, **settings)

    @cached_property
    def made(self) -> Estimate:
        return self.fit()


def _types_and_arms(case: _Fits) -> None:
    bandit, log = case.made.bandit, case.log
    expect(bandit.n_arms == log.n_arms, f"the bandit must have the {log.n_arms} arms of the log, got {bandit.n_arms}")
    if case.asked is not None:
        expect(bandit.n_types == case.asked, f"the bandit must have {case.asked} types, got {bandit.n_types}")
    expect(abs(bandit.weights.sum() - 1) < 1e-9, f"weights must sum to 1, got {bandit.weights}")
    expect(np.isfinite(bandit.means).all(), "means must be finite")


def _labels(case: _Fits) -> None:
    labels = case.made.bandit.arm_labels
    expect(labels == case.log.arm_labels, f"the bandit must have the log's labels {case.log.arm_labels}, got {labels}")


def _likelihood(case: _Fits) -> None:
    estimate = case.made
    truth = estimate.require_log().log_likelihood(estimate.bandit)
    seen = f"log_likelihood is {estimate.log_likelihood:.9g}, but the bandit's is {truth:.9g}"
    expect(abs(estimate.log_likelihood - truth) <= _EXACT * abs(truth), seen)


def _outcome(case: _Fits) -> None:
    estimate = case.made
    expect(isinstance(estimate.status, Status), f"status must be a Status, got {estimate.status!r}")
    expect(estimate.message, "message must say what happened, got an empty one")
    falls = np.diff(estimate.trace) < -1e-9 * np.abs(estimate.trace[:-1])
    expect(not falls.any(), f"trace must never fall, got {estimate.trace}")


def _same_again(case: _Fits) -> None:
    mine, theirs = case.made.bandit, case.fit().bandit
    for name in ("weights", "means"):
        same = np.array_equal(getattr(mine, name), getattr(theirs, name))
        expect(
            same, f"two fits with the same seed have different {name}: {getattr(mine, name)}, {getattr(theirs, name)}"
        )


def _no_global_state(case: _Fits) -> None:
    before = np.random.get_state(legacy=False)  # noqa: NPY002
    case.fit()
    after = np.random.get_state(legacy=False)  # noqa: NPY002
    assert isinstance(before, Mapping)
    assert isinstance(after, Mapping)
    same = (
        np.array_equal(before["state"]["key"], after["state"]["key"])
        and before["state"]["pos"] == after["state"]["pos"]
    )
    expect(same, "it must draw from request.rng alone, but the global generator of NumPy has moved")


def _changes_nothing(case: _Fits) -> None:
    log, settings = case.log, repr(case.method)
    arrays = [getattr(log, name).copy() for name in ("arms", "rewards", "offsets")]
    case.fit()
    for name, before in zip(("arms", "rewards", "offsets"), arrays, strict=True):
        expect(np.array_equal(getattr(log, name), before), f"the log must not change, but its {name} did")
    if is_dataclass(case.method):
        expect(repr(case.method) == settings, f"the method must not change, got {case.method!r} from {settings}")


def _stops(case: _Fits) -> None:
    stopped = case.fit(progress=lambda _: True)
    expect(stopped.bandit.n_arms == case.log.n_arms, "a fit that is stopped must return the best estimate so far")


def _fitted_or_refused(case: _Fits, what: str, log: Sessions, **options: Any) -> str | None:
    """Return why nothing was checked: an error of the package; any other error breaks the law."""
    _ = case.made  # an estimator that fits nothing refuses nothing
    try:
        found = case.fit(log, **options)
    except LmabError as error:
        return f"{what} are refused: {first_line(error)}"
    except Broken:
        raise
    except Exception as error:
        raise Broken(f"{what}: it raised {type(error).__name__}: {first_line(error)}") from error
    expect(np.isfinite(found.log_likelihood), f"{what}: the log-likelihood must be finite, got {found.log_likelihood}")
    return None


def _ragged(case: _Fits) -> str | None:
    arms, rewards = case.log.to_arrays()
    lengths = 1 + np.arange(len(arms)) % arms.shape[1]
    shorter = np.where(np.arange(arms.shape[1]) < lengths[:, None], arms, -1)
    log = Sessions.from_arrays(shorter, rewards, n_arms=case.log.n_arms)
    return _fitted_or_refused(case, "sessions of different lengths", log)


def _one_type(case: _Fits) -> str | None:
    if case.asked is None:
        return "it has its own number of types"
    return _fitted_or_refused(case, "logs of one type", case.log, n_types=1)


def _normal_rewards(case: _Fits) -> str | None:
    noise = np.random.default_rng(5).standard_normal(case.log.n_steps)
    log = replace(case.log, rewards=case.log.rewards + noise)
    return _fitted_or_refused(case, "normal rewards", log, rewards="gaussian")


def _automatic(case: _Fits) -> None:
    found = case.fit(n_types="auto")
    expect(found.bandit.n_arms == case.log.n_arms, "the estimate of n_types='auto' must have the arms of the log")


def _files(case: _Fits) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "estimate.lmab")
        case.made.save(path)
        loaded = load(path)
    expect(same_record(case.made.record(), loaded.record()), "a saved estimate must be the same after loading")


LAWS: dict[str, Law[_Fits]] = {
    "the estimate has the types and arms that were asked for": _types_and_arms,
    "the labels of arms are kept": _labels,
    "the log-likelihood is that of the bandit": _likelihood,
    "status, message and trace are true": _outcome,
    "the same seed gives the same estimate": _same_again,
    "randomness comes from the generator alone": _no_global_state,
    "neither log nor method changes": _changes_nothing,
    "it can be stopped": _stops,
    "sessions of different lengths are fitted or refused": _ragged,
    "one type is fitted or refused": _one_type,
    "normal rewards are fitted or refused": _normal_rewards,
    "the number of types can be chosen": _automatic,
    "files hold the estimate": _files,
}
