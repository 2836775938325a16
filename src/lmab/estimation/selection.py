"""The number of types: what predicts held-out sessions best, in doubt more where that costs little."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from .._shapes import Array, Float, Integer
from ..data import sample_rows
from .em import EM
from .observations import Observations
from .request import Observer, StopOnce
from .result import Curve

MAX_CONTEXTS = 64
_EPISODES = 100_000  # of a larger log are looked at
_ENOUGH = 10_000  # sessions that make one fold enough; of fewer, more folds are held out in turn
_FOLDS = 5
_PATIENCE = 2  # numbers tried beyond the last that was worth it; twice as many where even more may be chosen
_WORTH = 0.01  # of what all types so far gain over one: a model that does not fit gains a little for ever
_CLEAR = 2.0  # standard errors that leave no doubt
_MORE, _ONE_MORE = 3, 1  # types that may be added to what is enough: in doubt, and where the gain of it was clear
_METHOD = EM(restarts=6, tolerance=1e-5, prior="learned", sweeps=24)


def choose(
    observations: Observations, *, forgiving: bool = True, rng: np.random.Generator, progress: StopOnce | None = None
) -> Curve:
    """Held-out log-likelihood for 1, 2, ... types, until it falls or rises by next to nothing.

    Whole sessions are held out, never steps. Enough is the smallest number that predicts as well as the best, up to a
    standard error. Where it predicts clearly better than one type less, and for fits that are not `forgiving`, the
    next one is chosen if it predicts as well. Else the choice is the largest of the next three numbers that is not
    clearly behind the best: such fits lose next to nothing by a type too many, and by one too few they lose what
    planning needs.
    """
    sessions = sample_rows(len(observations.sessions), _EPISODES, rng)
    folds = np.array_split(sessions, min(_FOLDS, len(sessions)))[: max(1, round(_ENOUGH / len(sessions)))]
    scores: list[Float[Array, "n"]] = []
    most = max(min(MAX_CONTEXTS, len(sessions) // 2), 1)
    while len(scores) < most and not (scores and progress is not None and progress.stopped):
        n_types = len(scores) + 1
        scores.append(_score(observations, sessions, folds, n_types, rng, _prefixed(progress, n_types)))
        useless = _useless([float(score.mean()) for score in scores])
        if useless >= 2 * _PATIENCE or (useless >= _PATIENCE and n_types > _reach(scores, forgiving)[0]):
            break
    return _curve(scores, forgiving)


def _useless(means: list[float]) -> int:
    """How many of the last numbers of types were not worth it."""
    best, since = means[0], 0
    for mean in means[1:]:
        since = 0 if mean > best + _WORTH * (best - means[0]) else since + 1
        best = max(best, mean)
    return since


def _score(
    observations: Observations,
    sessions: Integer[Array, "n"],
    folds: list[Integer[Array, "..."]],
    n_types: int,
    rng: np.random.Generator,
    progress: Observer | None,
) -> Float[Array, "h"]:
    """Held-out log-likelihood of every session of every fold, in the order of the folds."""
    found = []
    for fold in folds:
        train = observations.subset(np.setdiff1d(sessions, fold))
        fit = _METHOD.fit(train, n_types=n_types, rng=rng, progress=progress)
        found.append(observations.subset(fold).heldout(fit.bandit))
    return np.concatenate(found)


def _curve(scores: list[Float[Array, "h"]], forgiving: bool = True) -> Curve:
    means = np.array([score.mean() for score in scores])
    steps = [_mean_and_error(after - before) for before, after in pairwise(scores)]
    gain, stderr = np.array([(0.0, 0.0), *steps]).T
    last, allowed = _reach(scores, forgiving)
    chosen = max(i for i in _as_good(scores, allowed) if i <= last)
    return Curve(tuple(range(1, len(means) + 1)), means, gain, stderr, chosen + 1)


def _as_good(scores: list[Float[Array, "h"]], allowed: float = 1.0) -> list[int]:
    """Those that predict as well as the best, up to the allowed standard errors."""
    best = max(scores, key=lambda score: float(score.mean()))
    lags = [_mean_and_error(best - score) for score in scores]
    return [i for i, (lag, error) in enumerate(lags) if lag <= allowed * error]


def _reach(scores: list[Float[Array, "h"]], forgiving: bool) -> tuple[int, float]:
    """The last place that may be chosen, and by how many standard errors it may be behind the best."""
    enough = _as_good(scores)[0]
    gain, error = _mean_and_error(scores[enough] - scores[enough - 1]) if enough else (0.0, 0.0)
    return (enough + _MORE, _CLEAR) if forgiving and gain <= _CLEAR * error else (enough + _ONE_MORE, 1.0)


def _mean_and_error(differences: Float[Array, "h"]) -> tuple[float, float]:
    return float(differences.mean()), float(differences.std() / np.sqrt(len(differences)))


def _prefixed(progress: StopOnce | None, n_types: int) -> Observer | None:
    if progress is None:
        return None
    return lambda news: progress(replace(news, stage=f"{n_types} types: {news.stage}"))
