"""estimate: Episodes -> Estimate."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from ..checks import POSITIVE, OneOf, Rng, check, check_array, check_count, check_rng, optional
from ..data import Episodes
from ..errors import InvalidArgument, LmabWarning
from ..model import distinct_values
from .categorical import CategoricalObservations
from .em import EM
from .gaussian import GaussianObservations
from .observations import Observations
from .result import Estimate, Estimator, Observer, StopOnce
from .selection import choose

_DEFAULT = EM()


def estimate(
    episodes: Episodes,
    *,
    n_contexts: int | str,
    method: Estimator = _DEFAULT,
    rewards: str | None = None,
    values: Any = None,
    scale: float | None = None,
    rng: Rng,
    progress: Observer | None = None,
) -> Estimate:
    """Fit a latent bandit to a log.

    Args:
        episodes: the log; under `EM` the arms may have been chosen by any policy, even one that looks at the rewards.
        n_contexts: how many contexts; "auto" takes the number that predicts held-out episodes best, in doubt one more.
        method: `EM(...)`, `MomentMatching(...)` or `TensorDecomposition(...)`.
        rewards: "categorical", "gaussian", or None: categorical on the observed values when they are at most 32.
        values: the reward values of a categorical model, when some may not have been observed yet.
        scale: the standard deviation of a Gaussian model; None: estimated.
        rng: where the starts come from.
        progress: told about the progress; answers True to stop with the best so far.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.LatentBandit.gaussian([0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]], scale=0.5)
        >>> episodes = lmab.simulate(bandit, lmab.Uniform(2), n_episodes=1000, horizon=4, rng=rng)
        >>> estimate = lmab.estimate(episodes, n_contexts=2, rewards="gaussian", rng=rng)
        >>> round(estimate.bandit.rewards.scale, 1)
        0.5
    """
    rng = check_rng(rng, "the starts are random")
    observations = observe(episodes, rewards=rewards, values=values, scale=scale)
    watch = StopOnce(progress)
    if n_contexts == "auto":
        _warn(episodes)
        curve = choose(observations, rng=rng, progress=watch)
        result = method.fit(observations, n_contexts=curve.chosen, rng=rng, progress=watch)
        return replace(result, curve=curve, message=f"{result.message}; {curve}")
    number = _number(n_contexts, len(episodes))
    if number > 1:
        _warn(episodes)
    return method.fit(observations, n_contexts=number, rng=rng, progress=watch)


def observe(
    episodes: Episodes, *, rewards: str | None = None, values: Any = None, scale: float | None = None
) -> Observations:
    """The log encoded for the named family of rewards, as `estimate` does it."""
    check("rewards", rewards, optional(OneOf(("categorical", "gaussian"))))
    if rewards == "gaussian":
        if values is not None:
            raise InvalidArgument("values must be None for gaussian rewards, got some")
        check("scale", scale, optional(POSITIVE))
        observations = GaussianObservations.encode(episodes, None if scale is None else float(scale))
        if scale is None and observations.spread == 0:
            raise InvalidArgument(
                "scale must be given where no arm's rewards ever differ: there is none to estimate, got None"
            )
        return observations
    if scale is not None:
        raise InvalidArgument(f"scale must be None unless rewards='gaussian', got {scale!r}")
    if values is not None:
        return CategoricalObservations.encode(episodes, np.unique(check_array("values", values, ndim=1)))
    return CategoricalObservations.encode(episodes, distinct_values(episodes.rewards, limited=rewards is None))


def _number(n_contexts: int | str, n_episodes: int) -> int:
    if isinstance(n_contexts, str):
        raise InvalidArgument(f"n_contexts must be an integer of at least 1 or 'auto', got {n_contexts!r}")
    number = check_count("n_contexts", n_contexts)
    if number > n_episodes:
        raise InvalidArgument(f"n_contexts must be at most the number of episodes ({n_episodes}), got {number}")
    return number


def _warn(episodes: Episodes) -> None:
    """Warn of logs from which contexts cannot be told apart."""
    if (episodes.rewards == episodes.rewards[0]).all():
        _say(f"every reward is {episodes.rewards[0]:g}: nothing tells contexts apart")
    elif episodes.horizon == 1:
        _say("no episode is longer than 1 step: the weights of the contexts cannot be identified")
    if (episodes.actions == episodes.actions[0]).all():
        _say(f"only arm {episodes.actions[0]} was ever played: nothing is known about any other")


def _say(message: str) -> None:
    warnings.warn(message, LmabWarning, stacklevel=4)
