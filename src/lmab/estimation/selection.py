"""The number of contexts: the one whose model predicts held-out episodes best, in doubt one more."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from .._shapes import Array, Float, Integer
from .em import EM
from .observations import Observations
from .request import Observer, StopOnce
from .result import Curve

MAX_CONTEXTS = 64
_EPISODES = 100_000  # of a larger log are looked at
_ENOUGH = 20_000  # episodes that make one fold enough; of fewer, more folds are held out in turn
_FOLDS = 5
_PATIENCE = 2  # numbers tried beyond the last that was worth it
_WORTH = 0.01  # of what all contexts so far gain over one: a model that does not fit gains a little for ever
_METHOD = EM(restarts=8, tolerance=1e-6, prior="learned", sweeps=30)


def choose(observations: Observations, *, rng: np.random.Generator, progress: StopOnce | None = None) -> Curve:
    """Held-out log-likelihood for 1, 2, ... contexts, until it falls or rises by next to nothing.

    Whole episodes are held out, never steps. The number that predicts best is found; the choice is the next one, unless
    that predicts worse by more than two standard errors: under the learned prior a context too many costs next to
    nothing, and one too few cannot be made up for.
    """
    episodes = rng.permutation(len(observations.episodes))[:_EPISODES]
    folds = np.array_split(episodes, min(_FOLDS, len(episodes)))[: max(1, round(_ENOUGH / len(episodes)))]
    scores: list[Float[Array, "n"]] = []
    means: list[float] = []
    most = max(min(MAX_CONTEXTS, len(episodes) // 2), 1)
    while len(scores) < most and not (scores and progress is not None and progress.stopped):
        n_contexts = len(scores) + 1
        scores.append(_score(observations, episodes, folds, n_contexts, rng, _prefixed(progress, n_contexts)))
        means.append(float(scores[-1].mean()))
        if _useless(means) >= _PATIENCE:
            break
    return _curve(scores)


def _useless(means: list[float]) -> int:
    """How many of the last numbers of contexts were not worth it."""
    best, since = means[0], 0
    for mean in means[1:]:
        since = 0 if mean > best + _WORTH * (best - means[0]) else since + 1
        best = max(best, mean)
    return since


def _score(
    observations: Observations,
    episodes: Integer[Array, "n"],
    folds: list[Integer[Array, "..."]],
    n_contexts: int,
    rng: np.random.Generator,
    progress: Observer | None,
) -> Float[Array, "h"]:
    """Held-out log-likelihood of every episode of every fold, in the order of the folds."""
    found = []
    for fold in folds:
        train = observations.subset(np.setdiff1d(episodes, fold))
        fit = _METHOD.fit(train, n_contexts=n_contexts, rng=rng, progress=progress)
        found.append(observations.subset(fold).heldout(fit.bandit))
    return np.concatenate(found)


def _curve(scores: list[Float[Array, "h"]]) -> Curve:
    means = np.array([score.mean() for score in scores])
    steps = [_mean_and_error(after - before) for before, after in pairwise(scores)]
    gain, stderr = np.array([(0.0, 0.0), *steps]).T
    enough = int(means.argmax())
    more = enough + 1 < len(means) and gain[enough + 1] > -2 * stderr[enough + 1]
    return Curve(tuple(range(1, len(means) + 1)), means, gain, stderr, enough + 1 + int(more))


def _mean_and_error(differences: Float[Array, "h"]) -> tuple[float, float]:
    return float(differences.mean()), float(differences.std() / np.sqrt(len(differences)))


def _prefixed(progress: StopOnce | None, n_contexts: int) -> Observer | None:
    if progress is None:
        return None
    return lambda news: progress(replace(news, stage=f"{n_contexts} contexts: {news.stage}"))
