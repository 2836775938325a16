"""Rounds of backups for sessions without repeats: plans that carry the set of arms that they may use.

A plan's vector holds if none of these arms was played before. The best fixed sequence of unplayed arms always holds;
if the order of arms matters, it is the best of a few orders. Each vector is the value of a plan, in double precision;
single precision only chooses the candidates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ..._shapes import Array, Bool, Float, Integer
from ..backups import BackupRounds, Visit, best_columns, single
from ..problem import Problem
from .sequences import best_sequences, sequence_vectors

_CHUNK = 1 << 21  # numbers computed at once
_POOL = 20  # arms with the best means, and as many of the most informative ones, that the quick lookahead compares
_EACH = 4  # candidates from the lookahead, and as many from the means
_PAIRS = 1 << 26  # numbers in the quick lookahead's table of pairs of arms
_PAIRED = 200  # arms up to which there is such a table; otherwise pairs are computed for the arms that are compared
_LOOKAHEAD, _GREEDY, _OWN = 0.25, 0.5, 0.8  # shares of simulated steps; the rest: any candidate
_GREEDY_FIRST = 0.5  # share of simulated sessions that are greedy up to some step


@dataclass(frozen=True, eq=False)
class NoRepeatVectors:
    """Plans for some number of steps to go."""

    vectors: Float[Array, "K M"]
    arms: Integer[Array, "K"]  # the first arm of each plan
    used: Bool[Array, "K A"]  # the arms that it may use

    @classmethod
    def none(cls, problem: Problem) -> NoRepeatVectors:
        width, n_arms = len(problem.weights), problem.n_arms
        return cls(np.empty((0, width)), np.empty(0, np.int64), np.empty((0, n_arms), bool))

    def joined(self, other: NoRepeatVectors) -> NoRepeatVectors:
        pairs = ((self.vectors, other.vectors), (self.arms, other.arms), (self.used, other.used))
        return NoRepeatVectors(*(np.concatenate(pair) for pair in pairs))

    def conflicts(self, played: Bool[Array, "n A"]) -> Bool[Array, "n K"]:
        """Return which plans use an arm that was played."""
        with np.errstate(all="ignore"):  # OpenBLAS raises false flags on small products of single precision
            return (played.astype(np.float32) @ self.used.T.astype(np.float32)) > 0


@dataclass(frozen=True, eq=False)
class Continuations:
    """Best continuation at some beliefs: a plan, or the fixed sequence of the best unplayed arms."""

    values: Float[Array, "n"]
    plans: Integer[Array, "n"]  # -1: the sequence
    sequences: Integer[Array, "n t"]

    def vectors(self, problem: Problem, known: NoRepeatVectors) -> Float[Array, "n M"]:
        """Return their vectors, in double precision."""
        fixed = np.flatnonzero(self.plans < 0)
        vectors = known.vectors[self.plans] if len(known.arms) else np.empty((len(self.plans), len(problem.weights)))
        vectors[fixed] = sequence_vectors(problem, self.sequences[fixed])
        return vectors

    def used(self, known: NoRepeatVectors, n_arms: int) -> Bool[Array, "n A"]:
        used = known.used[self.plans] if len(known.arms) else np.zeros((len(self.plans), n_arms), bool)
        fixed = np.flatnonzero(self.plans < 0)
        used[fixed] = False
        used[fixed[:, None], self.sequences[fixed]] = True
        return used


def best_continuations(
    problem: Problem,
    beliefs: Float[Array, "n M"],
    scores: Float[Array, "n K"],
    gains: Float[Array, "n A"],
    played: Bool[Array, "n A"],
    steps: int,
) -> Continuations:
    """Return the best continuations, given scores of plans (-inf if they conflict) and gains of arms at the belief."""
    sequences, fixed = best_sequences(problem, beliefs, gains, played, steps)
    if scores.shape[1] == 0:
        return Continuations(fixed, np.full(len(fixed), -1), sequences)
    plans = scores.argmax(axis=1)
    best = scores[np.arange(len(plans)), plans]
    return Continuations(np.maximum(best, fixed), np.where(best > fixed, plans, -1), sequences)


def at_children(
    problem: Problem,
    later: NoRepeatVectors,
    beliefs: Float[Array, "n M"],
    played: Bool[Array, "n A"],
    rows: Integer[Array, "r"],
    arms: Integer[Array, "r"],
    steps: int,
) -> list[Continuations]:
    """Return the best continuation with `steps` to go after each observation of `arms`, played at `beliefs[rows]`.

    The precision is that of `beliefs`.
    """
    precision = beliefs.dtype
    columns, means = later.vectors.T.astype(precision), problem.step(steps).means.T.astype(precision)
    table = problem.step(steps + 1).table
    each = not problem.is_uniform  # otherwise the last child is the rest
    here, rest, rest_gains = beliefs[rows], (beliefs @ columns)[rows], (beliefs @ means)[rows]
    after = played[rows]
    after[np.arange(len(rows)), arms] = True
    banned = later.conflicts(played)[rows] | later.used[:, arms].T
    answers = []
    for z in range(problem.n_values):
        children = here
        if each or z < problem.n_values - 1:
            children = here * table[arms * problem.n_values + z].astype(precision)
            scores, gains = children @ columns, children @ means
            rest -= scores
            rest_gains -= gains
        else:
            scores, gains = rest, rest_gains
        open_scores = np.where(banned, -np.inf, scores)
        answers.append(best_continuations(problem, children, open_scores, gains, after, steps))
    return answers


def backup(
    problem: Problem,
    beliefs: Float[Array, "n M"],
    played: Bool[Array, "n A"],
    candidates: Integer[Array, "n c"],
    later: NoRepeatVectors,
    known: NoRepeatVectors,
    steps: int,
    precision: type = np.float32,
    stop: Callable[[], bool] = lambda: False,
) -> NoRepeatVectors:
    """Return the best plan for `steps` at each belief that begins with a candidate, if `known` has none as good.

    If `stop` returns True, the plans found so far are returned.
    """
    (n, count), step = candidates.shape, problem.step(steps)
    parts = [NoRepeatVectors.none(problem)]
    block = max(1, _CHUNK // (count * max(len(later.arms), len(problem.weights), problem.n_arms)))
    for start in range(0, n, block):
        if stop():
            break
        here, seen = beliefs[start : start + block], played[start : start + block]
        rows, tried = np.repeat(np.arange(len(here)), count), candidates[start : start + block].ravel()
        answers = at_children(problem, later, here.astype(precision), seen, rows, tried, steps - 1)
        worth = np.einsum("rm,rm->r", step.means[tried], here[rows]) + sum(answer.values for answer in answers)
        winner = np.arange(len(here)) * count + worth.reshape(-1, count).argmax(axis=1)
        arms = tried[winner]
        vectors, used = step.means[arms], np.zeros(seen.shape, bool)
        used[np.arange(len(here)), arms] = True
        for z, answer in enumerate(answers):
            best = Continuations(answer.values[winner], answer.plans[winner], answer.sequences[winner])
            vectors += step.table[arms * problem.n_values + z] * best.vectors(problem, later)
            used |= best.used(later, problem.n_arms)
        keep = _gains(problem, here, seen, vectors, known, steps)
        parts.append(NoRepeatVectors(vectors[keep], arms[keep], used[keep]))
    return NoRepeatVectors(*(np.concatenate(field) for field in zip(*((p.vectors, p.arms, p.used) for p in parts))))  # noqa: B905


def _gains(
    problem: Problem,
    beliefs: Float[Array, "n M"],
    played: Bool[Array, "n A"],
    vectors: Float[Array, "n M"],
    known: NoRepeatVectors,
    steps: int,
) -> Bool[Array, "n"]:
    """Return which vectors exceed the known plans at their beliefs; each vector is kept once."""
    scores = np.where(known.conflicts(played), -np.inf, beliefs @ known.vectors.T)
    now = best_continuations(problem, beliefs, scores, beliefs @ problem.step(steps).means.T, played, steps).values
    gain = np.einsum("nm,nm->n", vectors, beliefs) - now
    keep = np.zeros(len(gain), bool)
    better = np.flatnonzero(gain > 1e-12 * problem.scale * beliefs.sum(axis=1))
    keep[list({vectors[i].tobytes(): i for i in better[::-1].tolist()}.values())] = True
    return keep


class NoRepeatRounds(BackupRounds[NoRepeatVectors]):
    """Rounds for sessions that play each arm at most once."""

    def __init__(self, problem: Problem, rng: np.random.Generator, stop: Callable[[], bool]) -> None:
        super().__init__(replace(problem, repeats=False), rng, stop)
        self._quick, self._greedy_until = _QuickLookahead(problem), np.empty(0, np.int64)

    def run(self, plans: list[NoRepeatVectors], n: int) -> list[NoRepeatVectors]:
        """Return plans that improve on `plans` at the beliefs of n sessions."""
        return self._back_up(plans, n, NoRepeatVectors.none(self.problem))

    def look_ahead(self, plans: list[NoRepeatVectors]) -> NoRepeatVectors:
        """Return the plans of a one-step lookahead with all arms at the initial beliefs."""
        problem = self.problem
        start = problem.weights[None] if problem.priors is None else problem.priors
        nothing = np.zeros((len(start), problem.n_arms), bool)
        everything = np.tile(np.arange(problem.n_arms), (len(start), 1))
        none = NoRepeatVectors.none(problem)
        return backup(problem, start, nothing, everything, none, plans[-1], problem.horizon, np.float64)

    def _join(self, first: NoRepeatVectors, second: NoRepeatVectors) -> NoRepeatVectors:
        return first.joined(second)

    def _backup(self, remaining: int, visit: Visit, later: NoRepeatVectors, known: NoRepeatVectors) -> NoRepeatVectors:
        return backup(self.problem, *visit, later, known, remaining, stop=self._stop)

    def _columns(self, n: int, remaining: int, n_candidates: int) -> Integer[Array, "n"]:
        """Return the columns of the plans' own arm, the lookahead's, the greedy one, or any."""
        if remaining == self.problem.horizon:  # some sessions are greedy up to some step
            switch = self._rng.integers(remaining + 1, size=n)
            self._greedy_until = np.where(self._rng.random(n) < _GREEDY_FIRST, switch, remaining)
        draw = self._rng.random(n)
        anything = self._rng.integers(n_candidates, size=n)
        columns = np.select([draw < _LOOKAHEAD, draw < _GREEDY, draw < _OWN], [1, 2, 0], anything)
        return np.where(remaining > self._greedy_until, 2, columns)

    def candidates(
        self, beliefs: Float[Array, "n M"], played: Bool[Array, "n A"], remaining: int, plans: NoRepeatVectors
    ) -> Integer[Array, "n c"]:
        """Return the plans' own arm, then the best of the lookahead and of the means in turn."""
        problem, quick = self.problem, single(beliefs)
        gains = np.where(played, -np.inf, quick @ self._means[problem.step_tables[remaining]])
        ahead = self._quick.best(quick, played, gains, remaining)
        greedy = best_columns(gains, ahead.shape[1])
        own = own_arms(problem, plans, quick, played, gains, greedy, remaining)[1]
        turns = np.stack([ahead, greedy], axis=2).reshape(len(beliefs), -1)
        return np.column_stack([own, turns])


def own_arms(
    problem: Problem,
    plans: NoRepeatVectors,
    beliefs: Float[Array, "n M"],
    played: Bool[Array, "n A"],
    gains: Float[Array, "n A"],
    greedy: Integer[Array, "n c"],
    remaining: int,
) -> tuple[Float[Array, "n"], Integer[Array, "n"]]:
    """Return the value of the best plan, or fixed sequence, at each belief and its first arm."""
    scores = np.where(plans.conflicts(played), -np.inf, beliefs @ plans.vectors.T.astype(beliefs.dtype))
    best = best_continuations(problem, beliefs, scores, gains, played, remaining)
    first = greedy[:, 0] if problem.is_uniform else best.sequences[:, 0]
    return best.values, np.where(best.plans < 0, first, plans.arms[best.plans] if len(plans.arms) else first)


class _QuickLookahead:
    """Lookahead of one reward, followed by the best fixed sequence of unplayed arms, by moments of pairs of arms."""

    def __init__(self, problem: Problem) -> None:
        self._problem, (means, table, _) = problem, problem.mean_step
        self.means = single(means.T)
        channels = table.reshape(problem.n_arms, problem.n_values, -1)
        if problem.people_leave:  # leaving is one more value, the last, after which nothing is earned
            channels = np.concatenate([channels, channels[:, :1]], axis=1)
        size = channels[:, :-1].size * problem.n_arms
        self._quickly, self._pairs = size <= _PAIRS, None
        self._channels = single(channels)
        if self._quickly and problem.n_arms <= _PAIRED:
            pairs = np.einsum("azm,km->zmak", channels[:, :-1], means, dtype=np.float32, casting="same_kind")
            self._pairs = np.ascontiguousarray(pairs.reshape(*pairs.shape[:2], -1))
        self._table, self._squares = single(table.T), single((table**2).T)

    def best(
        self, beliefs: Float[Array, "n M"], played: Bool[Array, "n A"], gains: Float[Array, "n A"], steps: int
    ) -> Integer[Array, "n c"]:
        """Return the best arms of the lookahead, the best first; the most informative arms if there are too many."""
        n_arms, pool = self._problem.n_arms, self._pool(beliefs, played, gains)
        count = min(_EACH, n_arms - int(played.sum(axis=1).max(initial=0)))
        if not self._quickly or steps == 1:
            return pool[:, -count:][:, ::-1]
        values = np.empty(pool.shape, np.float32)
        block = max(1, _CHUNK // (n_arms * (n_arms if self._pairs is not None else pool.shape[1])))
        for start in range(0, len(beliefs), block):
            part = slice(start, start + block)
            values[part] = self._values(beliefs[part], played[part], gains[part], pool[part], steps)
        return np.take_along_axis(pool, best_columns(values, count), axis=1)

    def _values(
        self,
        beliefs: Float[Array, "n M"],
        played: Bool[Array, "n A"],
        gains: Float[Array, "n A"],
        pool: Integer[Array, "n p"],
        steps: int,
    ) -> Float[Array, "n p"]:
        rows = np.arange(len(beliefs))[:, None]
        banned = np.repeat(played[:, None, :], pool.shape[1], axis=1)
        np.put_along_axis(banned, pool[:, :, None], True, axis=2)
        rest = np.repeat((beliefs @ self.means)[:, None, :], pool.shape[1], axis=1)
        values = np.take_along_axis(gains, pool, axis=1)
        for z in range(self._channels.shape[1] - 1):
            moments = self._moments(z, beliefs, pool, rows)
            rest -= moments
            values = values + _top(np.where(banned, -np.inf, moments), steps - 1)
        if self._problem.people_leave:
            return values
        return values + _top(np.where(banned, -np.inf, rest), steps - 1)

    def _moments(
        self, z: int, beliefs: Float[Array, "n M"], pool: Integer[Array, "n p"], rows: Integer[Array, "n 1"]
    ) -> Float[Array, "n p A"]:
        """Return the mean of every arm after value z of each arm of the pool, times the probability of that value."""
        if self._pairs is not None:
            n_arms = self._problem.n_arms
            return (beliefs @ self._pairs[z]).reshape(len(beliefs), n_arms, n_arms)[rows, pool]
        return (beliefs[:, None] * self._channels[pool, z]) @ self.means

    def _pool(
        self, beliefs: Float[Array, "n M"], played: Bool[Array, "n A"], gains: Float[Array, "n A"]
    ) -> Integer[Array, "n p"]:
        """Return the arms with the best means, then the arms whose probabilities vary most over the types."""
        mass = beliefs.sum(axis=1, keepdims=True)
        spread = beliefs @ self._squares - (beliefs @ self._table) ** 2 / mass
        informative = np.where(played, -np.inf, spread.reshape(len(beliefs), self._problem.n_arms, -1).sum(axis=2))
        count = min(_POOL, self._problem.n_arms - int(played.sum(axis=1).max(initial=0)))
        return np.column_stack([best_columns(gains, count), best_columns(informative, count)[:, ::-1]])


def _top(scores: Float[Array, "*n A"], count: int) -> Float[Array, "*n"]:
    return -np.partition(-scores, count - 1, axis=-1)[..., :count].sum(axis=-1)
