"""estimate: fit a latent bandit to a log with the chosen method."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from ..checks import Rng, check_count, check_rng
from ..data import Packed, Sessions, require_log
from ..errors import InvalidArgument, LmabWarning, Status
from ..model import LatentBandit
from .backends import require_backend
from .em import EM
from .encoding import observe
from .gaussian import misfit
from .request import Estimator, Observer, StopOnce
from .result import Estimate
from .selection import choose

_DEFAULT = EM()
_OWN = "its types are points of the factors; say how many with n_points, and how many factors with n_factors"


def fit(
    sessions: Sessions | Packed,
    *,
    n_types: int | str | None = None,
    method: Estimator = _DEFAULT,
    rewards: str | None = None,
    values: Any = None,
    scale: float | None = None,
    rng: Rng,
    progress: Observer | None = None,
    backend: Any = None,
    start: LatentBandit | None = None,
) -> Estimate:
    """Fit a latent bandit to a log.

    Args:
        sessions: the log, in memory or packed; under `EM` the arms may have been chosen by any policy, even one that
            looks at the rewards.
        n_types: how many types; "auto" takes the number that predicts held-out sessions best, in doubt more.
            None with `Traits`, whose points are the types.
        method: `EM(...)`, `Traits(...)`, `MomentMatching(...)` or `TensorDecomposition(...)`.
        rewards: "categorical", "gaussian", "binned" (amounts such as money or seconds, cut into a few values with 0
            apart), or None: categorical on the observed values when they are at most 32.
        values: the reward values of a categorical model, when some may not have been observed yet.
        scale: the standard deviation of a Gaussian model; None: estimated.
        rng: where the starts come from.
        progress: told about the progress; answers True to stop with the best so far.
        backend: where passes over a packed log run: None (threads), a `concurrent.futures.Executor`, or a Dask client,
            with the same result to the bit; or "gpu": those of `EM` over any large log run on an NVIDIA GPU, and where
            there is none, an error says so. Where the cluster is lost, `lmab.errors.ClusterLost` is raised with the
            best model so far.
        start: a model with the arms of the log, such as that of last night: `EM` starts from it, too, so that a few
            restarts are enough. The objective never ends below that of this model, and the types are given its
            order. Where "auto" chooses another number of types, it is not used.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]], scale=0.5)
        >>> sessions = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=1000, horizon=4, rng=rng)
        >>> estimate = lmab.fit(sessions, n_types=2, rewards="gaussian", rng=rng)
        >>> round(estimate.bandit.rewards.scale, 1)
        0.5
    """
    rng = check_rng(rng, "the starts are random")
    require_log("sessions", sessions)
    _check_method(method, backend, start)
    own_number = getattr(method, "own_number", False)  # methods of others may not know of it
    if own_number and n_types is not None:
        raise InvalidArgument(f"n_types must be None with {type(method).__name__}, got {n_types!r}: {_OWN}")
    observations = observe(sessions, rewards=rewards, values=values, scale=scale)
    watch = StopOnce(progress)
    curve = None
    if n_types == "auto":
        _warn(_doubts(sessions))
        curve = choose(observations, forgiving=method.forgiving, rng=rng, progress=watch)
        number = curve.chosen
    else:
        number = 0 if own_number else _number(n_types, len(sessions))
        _warn(_doubts(sessions) if number != 1 else [])
    where = {} if backend is None else {"backend": backend}  # methods of others may know of no backend and no start
    if start is not None and (curve is None or start.n_types == number):
        where["start"] = start
    result = method.fit(observations, n_types=number, rng=rng, progress=watch, **where)
    if rewards == "binned":
        result = replace(result, bins=observations.bins)
    if result.bandit.rewards.values is None:
        _warn(misfit(result.bandit, result.sessions))
    if result.status is Status.ITERATION_LIMIT:
        _warn([f"the estimate did not converge: {result.message}"])
    if result.status is Status.UNMATCHED:
        _warn([f"the estimate does not match the moments: {result.message}"])
    return result if curve is None else replace(result, curve=curve, message=f"{result.message}; {curve}")


def _check_method(method: Any, backend: Any, start: LatentBandit | None) -> None:
    if isinstance(method, type) or not hasattr(method, "fit"):
        shown = f"the class {method.__name__} itself" if isinstance(method, type) else repr(method)
        raise InvalidArgument(f"method must be an estimator such as EM() or EM(prior=1.0), got {shown}")
    require_backend(backend)
    if isinstance(backend, str) and backend not in getattr(method, "devices", ()):
        raise InvalidArgument(f"backend must be None for the method {type(method).__name__}, got {backend!r}")
    if start is not None and not getattr(method, "takes_start", False):
        raise InvalidArgument(f"start must be None for the method {type(method).__name__}, got {start}")


def _number(n_types: int | str | None, n_sessions: int) -> int:
    if n_types is None or isinstance(n_types, str):
        raise InvalidArgument(f"n_types must be an integer of at least 1 or 'auto', got {n_types!r}")
    number = check_count("n_types", n_types)
    if number > n_sessions:
        raise InvalidArgument(f"n_types must be at most the number of sessions ({n_sessions}), got {number}")
    return number


def _doubts(sessions: Sessions | Packed) -> list[str]:
    """Why types may not be told apart in this log."""
    found = []
    one_reward, played = sessions.one_reward, np.flatnonzero(sessions.plays)
    if one_reward is not None:
        found.append(f"every reward is {one_reward:g}: nothing tells types apart")
    elif sessions.horizon == 1:
        found.append("no session is longer than 1 step: the weights of the types cannot be identified")
    if len(played) == 1:
        found.append(f"only arm {played[0]} was ever played: nothing is known about any other")
    return found


def _warn(messages: list[str]) -> None:
    for message in messages:
        warnings.warn(message, LmabWarning, stacklevel=3)
