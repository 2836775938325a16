"""The learned prior: what an arm is like before it is played, from short Gibbs runs over all arms of the log.

A sweep draws the type of every session, the weights, what arms are like (`arm_law`) and the rewards. Chains start from
a fitted model and are short on purpose: types keep their places, so that draws of one run can be averaged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Any

import numpy as np

from .._shapes import Array, Float
from ..model.bandit import LatentBandit
from .log import Log, Prior
from .passes import Threads

_CHAINS, _KEEP = 4, 10  # averages need fewer draws than quantiles
_LEAST_ARMS = 3  # fewer say nothing about what arms are like
_NO_PLAYS = 1e-3  # stands for no plays, where the strength would be 0 / 0
_LARGE = 300_000  # steps, arms counted as 100, above which fewer chains have to do


def unlearnable(log: Log) -> str | None:
    """Why nothing can be learned about what arms are like here; None: it can."""
    n_played = int((log.sessions.plays > 0).sum())
    if n_played < _LEAST_ARMS:
        return f"{n_played} of the arms were played, and what arms are like takes at least {_LEAST_ARMS}"
    values = log.values
    if values is not None and len(values) < 2:
        return "every reward is the same"
    return None


def learn(log: Log, bandit: LatentBandit, sweeps: int, rng: np.random.Generator, threads: int | None = None) -> Prior:
    """The prior of every arm, from chains of `sweeps` sweeps that start at `bandit`, a fit to the log."""
    keep = min(_KEEP, -(-sweeps // 4))
    thin = max(min(sweeps // (2 * keep), 3), 1)
    schedule = Schedule(_CHAINS, max(sweeps - keep * thin, 0), keep, thin)
    return run(log, bandit, rng=rng, schedule=schedule, threads=threads).prior


@dataclass(frozen=True)
class Schedule:
    """How many chains, and how long they are: by default, of draws that can be told from exact ones by little."""

    chains: int = 5
    burn: int = 120  # sweeps thrown away
    keep: int = 20  # draws kept of each chain
    thin: int = 3  # sweeps per draw

    @classmethod
    def of(cls, log: Log, n_draws: int) -> Schedule:
        """About `n_draws` draws, from fewer and shorter chains where a sweep takes long."""
        work = log.sessions.n_steps + 100 * log.sessions.n_arms
        chains, burn = (5, 120) if work <= _LARGE else (3, 60)
        return cls(chains, burn, -(-n_draws // chains))


@dataclass(frozen=True, eq=False)
class Draws:
    """Models that a log could have come from, and the prior of every arm that they point to."""

    weights: Float[Array, "B M"]
    rewards: tuple[Any, ...]  # of each model, of the log's family
    prior: Prior

    def __len__(self) -> int:
        return len(self.weights)


def run(
    log: Log,
    bandit: LatentBandit,
    *,
    rng: np.random.Generator,
    schedule: Schedule,
    threads: int | None = None,
) -> Draws:
    """Short chains from `bandit`, and the prior of every arm that is nearest to what they drew.

    Every chain has a generator of its own, so that the draws are the same to the bit for any number of threads.
    """
    stop = Event()
    with Threads(threads) as passes:
        try:
            one = partial(_draws, log, bandit, schedule, stop)
            priors, runs = zip(*passes.each(one, rng.spawn(schedule.chains)), strict=True)
        finally:
            stop.set()  # so that nobody waits for the other chains after Ctrl-C
    weights, rewards, centres, inverses = zip(*(draw for run in runs for draw in run), strict=True)
    drawn = np.stack(weights)
    prior = priors[0](*_averaged(np.stack(centres), np.stack(inverses), log.sessions.plays * _alone(drawn)))
    return Draws(drawn, rewards, prior)


def _alone(weights: Float[Array, "B M"]) -> float:
    """1 where one type has all the weight, 0 where the weights are as even as those of two types, or more even."""
    return float(np.maximum(2 - 1 / (weights**2).sum(axis=1), 0.0).mean())


def _averaged(
    centres: Float[Array, "B A *Z"], inverses: Float[Array, "B A"], plays: Float[Array, "A"]
) -> tuple[Float[Array, "A *Z"], Float[Array, "A"]]:
    """Centre and strength that pull an arm of so many plays as far to its centre as the draws do on average.

    Without plays these are the mean centre and the harmonic mean of the strengths, which leaves types free to differ.
    An arm that has all its plays in one type gets its posterior mean, where the harmonic mean, which follows the
    weakest draws, would pull it too little.
    """
    n = np.maximum(plays, _NO_PLAYS)
    pull = 1 / (1 + n * inverses)  # strength / (plays + strength)
    shares = pull.reshape(*pull.shape, *[1] * (centres.ndim - 2))
    average = pull.mean(axis=0)
    return (shares * centres).mean(axis=0) / shares.mean(axis=0), n * average / (1 - average)


def _draws(
    log: Log, bandit: LatentBandit, schedule: Schedule, stop: Event, rng: np.random.Generator
) -> tuple[Callable[..., Prior], list[tuple[Any, ...]]]:
    """Weights, rewards, centres and inverse strengths of the arms, of each draw that one chain keeps."""
    kept, chain = [], log.chain(bandit)
    for sweep in range(schedule.burn + schedule.keep * schedule.thin):
        if stop.is_set():
            break
        chain.sweep(rng)
        if sweep >= schedule.burn and (sweep - schedule.burn) % schedule.thin == schedule.thin - 1:
            kept.append((chain.weights, chain.rewards, *chain.likely(rng)))
    return chain.prior, kept


def draw_models(
    log: Log, bandit: LatentBandit, *, rng: np.random.Generator, schedule: Schedule
) -> tuple[Float[Array, "B M"], tuple[Any, ...]]:
    """Weights and rewards of models that the log could have come from, by chains that start at `bandit`."""
    draws = run(log, bandit, rng=rng, schedule=schedule)
    return draws.weights, draws.rewards
