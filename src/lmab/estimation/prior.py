"""The learned prior: what an arm is like before it is played, from short Gibbs runs over all arms of the log.

A sweep draws the type of every session, the weights, what arms are like (`arm_law`) and the rewards. Chains start from
a fitted model and are short on purpose: types keep their places, so that draws of one run can be averaged.

Where people are known by their features, each group of them has weights of its own, w_g ~ Dirichlet(alpha w), with
alpha and w drawn too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..model import belief
from ..model.bandit import LatentBandit
from ..parallel import Threads
from .log import Chain, Log, Prior

_CHAINS, _KEEP = 4, 10  # averages need fewer draws than quantiles
_LEAST_ARMS = 3  # fewer say nothing about what arms are like
_TELLING, _HARDLY_TOLD = 500, 0.005  # sessions that say how much is told of types, and what makes two types half one
_TOLD = 0.02  # of a session's type that is known at its end, above which types are no chance
_NO_PLAYS = 1e-3  # stands for no plays, where the strength would be 0 / 0
_SOME_ARMS, _MANY_ARMS = 100, 500  # arms that are many if the log is large, and that are many of any log
_FEW_CHAINS, _SHORT_BURN, _FEW_KEPT, _SHORT_THIN = 2, 20, 8, 2
_LARGE = 300_000  # steps above which fewer chains have to do; for draws, an arm counts as 100 steps
_ALPHAS = np.exp(np.linspace(np.log(0.3), np.log(1000.0), 50))  # how much alike groups may be
_FIRST_ALPHA = 10.0
_LEAST_SHARE = 1e-9  # Least share of a type in a group.
_SWEEPS = 4  # Sweeps over types and weights of groups, where the rewards of a model are given.
_LOOKED_AT = 20_000  # sessions that tell the weights of groups, where the rewards of a model are given


def unlearnable(log: Log) -> str | None:
    """Return why nothing can be learned about what arms are like here; None: it can."""
    n_played = int((log.sessions.plays > 0).sum())
    if n_played < _LEAST_ARMS:
        return f"{n_played} of the arms were played, and what arms are like takes at least {_LEAST_ARMS}"
    values = log.values
    if values is not None and len(values) < 2:
        return "every reward is the same"
    return None


def many_arms(log: Log) -> bool:
    """Return whether averages over the arms need fewer and shorter chains, and climbs may leave more open.

    More than 500 arms are many, and more than 100 are if the log has more than 300,000 steps, because a pass over
    it takes long, and few sessions would not tell as many parameters.
    """
    n_arms = log.sessions.n_arms
    return n_arms > _MANY_ARMS or (n_arms > _SOME_ARMS and log.sessions.n_steps > _LARGE)


def learn(log: Log, bandit: LatentBandit, sweeps: int, rng: np.random.Generator, threads: int | None = None) -> Prior:
    """Return the prior of every arm, from chains of `sweeps` sweeps that start at `bandit`, a fit to the log."""
    keep = min(_KEEP, -(-sweeps // 4))
    thin = max(min(sweeps // (2 * keep), 3), 1)
    chains, burn = _CHAINS, max(sweeps - keep * thin, 0)
    if many_arms(log):
        chains, burn = _FEW_CHAINS, min(burn, _SHORT_BURN)
        keep, thin = min(keep, _FEW_KEPT), min(thin, _SHORT_THIN)
    schedule = Schedule(chains, burn, keep, thin, frees=True)
    return run(log, bandit, rng=rng, schedule=schedule, threads=threads).prior


@dataclass(frozen=True)
class Schedule:
    """How many chains, and how long they are: by default, of draws that can be told from exact ones by little."""

    chains: int = 5
    burn: int = 120  # sweeps thrown away
    keep: int = 20  # draws kept of each chain
    thin: int = 3  # sweeps per draw
    frees: bool = False  # whether arms need not be alike, from half of the burn-in on, if sessions tell their type

    @classmethod
    def of(cls, log: Log, n_draws: int) -> Schedule:
        """About `n_draws` draws, from fewer and shorter chains if a sweep takes long."""
        work = log.sessions.n_steps + 100 * log.sessions.n_arms
        chains, burn = (5, 120) if work <= _LARGE else (3, 60)
        return cls(chains, burn, -(-n_draws // chains))


@dataclass(frozen=True, eq=False)
class Draws:
    """Models that a log could have come from, and the prior of every arm that they point to."""

    weights: Float[Array, "B M"]
    rewards: tuple[Any, ...]  # Rewards of each model, of the log's family.
    prior: Prior
    groups: Float[Array, "B G M"] | None = None  # weights of each group of people
    leaving: tuple[Any, ...] | None = None  # of each model, if types leave differently

    def __len__(self) -> int:
        return len(self.weights)


def run(
    log: Log,
    bandit: LatentBandit,
    *,
    rng: np.random.Generator,
    schedule: Schedule,
    threads: int | None = None,
    n_groups: int = 0,
    chain: Callable[[], Chain] | None = None,
) -> Draws:
    """Short chains from `bandit`, and the prior of every arm that is nearest to what they drew.

    With `n_groups`, the log has the group of each session as a code beside those of its steps. What a chain walks
    over may be more than the rewards of the log: then `chain` makes it.

    Every chain has a generator of its own, so that the draws are the same to the bit for any number of threads.
    """
    stop = Event()
    with Threads(threads) as passes:
        try:
            made = chain or partial(log.chain, bandit)
            one = partial(_draws, made, schedule, stop, bandit, n_groups, log.sessions if schedule.frees else None)
            priors, runs = zip(*passes.each(one, rng.spawn(schedule.chains)), strict=True)
        finally:
            stop.set()  # so that nobody waits for the other chains after Ctrl-C
    weights, rewards, left, freedom, groups, centres, inverses = zip(
        *(draw for run in runs for draw in run), strict=True
    )
    drawn = np.stack(weights)
    as_one = _alone(drawn, _told(log.sessions, drawn, rewards))
    prior = priors[0](*_averaged(np.stack(centres), np.stack(inverses), log.sessions.plays * as_one))
    if freedom[0] is not None:
        prior = replace(prior, freedom=np.exp(np.log(freedom).mean(axis=0)))
    return Draws(drawn, rewards, prior, np.stack(groups) if n_groups else None, None if left[0] is None else left)


def _alone(weights: Float[Array, "B M"], told: Float[Array, "B"]) -> float:
    """How far the types are one: 1 where one has all the weight, or if sessions do not tell types apart at all.

    It is 0 if sessions tell which type they are of, and the weights are as even as those of two types.
    """
    even = 1 - np.maximum(2 - 1 / (weights**2).sum(axis=1), 0.0)
    return float(1 - (even * told**2 / (told**2 + _HARDLY_TOLD**2)).mean())


def _told(sessions: Sessions | Packed, weights: Float[Array, "B M"], rewards: Sequence[Any]) -> Float[Array, "B"]:
    """How much of a session's type is known at its end: 0 where only the weights are known, 1 where the type is."""
    if weights.shape[1] == 1:
        return np.zeros(len(weights))
    some, found = sessions[:: max(1, len(sessions) // _TELLING)], []
    for own, family in zip(weights, rewards, strict=True):
        logs = belief.log_joint(LatentBandit(own, family), some)
        shares = np.exp(logs - logs.max(axis=1, keepdims=True))
        known = ((shares / shares.sum(axis=1, keepdims=True)) ** 2).sum(axis=1).mean()
        before = (own**2).sum()
        found.append(max(known - before, 0.0) / max(1 - before, _LEAST_SHARE))
    return np.array(found)


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
    make: Callable[[], Chain],
    schedule: Schedule,
    stop: Event,
    bandit: LatentBandit,
    n_groups: int,
    sessions: Sessions | Packed | None,
    rng: np.random.Generator,
) -> tuple[Callable[..., Prior], list[tuple[Any, ...]]]:
    """Of each draw kept: weights, rewards, leaving and its freedom, weights of groups, what arms are like.

    The law of arms falls with their spread, so that types of alike arms are not believed. Where `sessions` tell their
    types under that law, there are types, and it would only merge some of them: it falls no longer.
    """
    kept, chain = [], make()
    groups = GroupWeights(bandit.weights, n_groups) if n_groups else None
    for sweep in range(schedule.burn + schedule.keep * schedule.thin):
        if stop.is_set():
            break
        chain.sweep(rng)
        asked = sessions if sweep == schedule.burn // 2 else None
        if asked is not None and _told(asked, chain.weights[None], [chain.rewards])[0] > _TOLD:
            chain.free()
        if groups is not None:
            groups.draw(chain.group_sums, rng)
            chain.weigh_groups(groups.common, groups.each)
        if sweep >= schedule.burn and (sweep - schedule.burn) % schedule.thin == schedule.thin - 1:
            each = None if groups is None else groups.each.copy()
            kept.append((chain.weights, chain.rewards, chain.leaving, chain.freedom, each, *chain.likely(rng)))
    return chain.prior, kept


class GroupWeights:
    """The weights of each group of people: Dirichlet around common ones, as much alike as the log says."""

    def __init__(self, weights: Float[Array, "M"], n_groups: int) -> None:
        self.common = np.maximum(weights, _LEAST_SHARE) / np.maximum(weights, _LEAST_SHARE).sum()
        self.each = np.tile(self.common, (n_groups, 1))
        self.alpha = _FIRST_ALPHA

    def draw(self, counts: Float[Array, "G M"], rng: np.random.Generator) -> None:
        """Draw alpha, the common weights and those of each group, given how many sessions had each type."""
        from scipy.special import digamma, gammaln

        base, sizes = self.common, counts.sum(axis=1)
        shapes = _ALPHAS[:, None, None] * base
        logs = (gammaln(counts + shapes) - gammaln(shapes)).sum(axis=(1, 2))
        logs += (gammaln(_ALPHAS)[:, None] - gammaln(_ALPHAS[:, None] + sizes)).sum(axis=1)
        chances = np.exp(logs - logs.max())
        self.alpha = float(rng.choice(_ALPHAS, p=chances / chances.sum()))
        own = self.alpha * base
        # How often a type was drawn anew from the common weights: once if it occurs, and then ever less often.
        anew = (counts > 0) + rng.poisson(
            np.maximum(own * (digamma(own + counts) - digamma(own)) - 1, 0) * (counts > 1)
        )
        drawn = np.maximum(rng.dirichlet(anew.sum(axis=0) + 1.0), _LEAST_SHARE)
        self.common = drawn / drawn.sum()
        each = np.maximum(rng.standard_gamma(np.maximum(counts + self.alpha * self.common, 1e-3)), _LEAST_SHARE)
        self.each = each / each.sum(axis=1, keepdims=True)


def weigh_groups(
    likelihoods: Float[Array, "n M"], groups: Integer[Array, "n"], start: Float[Array, "G M"],
    counts_for: float, rng: np.random.Generator,
) -> Float[Array, "G M"]:  # fmt: skip
    """The weights of groups, drawn for a model whose rewards are given, from the likelihoods of sessions by type.

    Each session counts for `counts_for` ones, where the sessions are some of a larger log.
    """
    found = GroupWeights(start.mean(axis=0), len(start))
    found.each = start
    for _ in range(_SWEEPS):
        shares = np.cumsum(likelihoods * found.each[groups], axis=1)
        types = (shares[:, :-1] <= rng.random(len(shares))[:, None] * shares[:, -1:]).sum(axis=1)
        cells = np.bincount(groups * start.shape[1] + types, minlength=start.size).reshape(start.shape)
        found.draw(counts_for * cells, rng)
    return found.each


def draw_models(
    log: Log,
    bandit: LatentBandit,
    *,
    rng: np.random.Generator,
    schedule: Schedule,
    chain: Callable[[], Chain] | None = None,
) -> Draws:
    """Return models that the log could have come from, by chains that start at `bandit`."""
    return run(log, bandit, rng=rng, schedule=schedule, chain=chain)
