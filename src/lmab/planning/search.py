"""Search: a lower and an upper bound on the optimum, and the trials that improve both (finite-horizon HSVI)."""

from __future__ import annotations

import numpy as np

from .._kernel import CLOSED, FULL, TINY, Arms, Lower, Nodes, Price, Upper, add_node, kernel
from .._shapes import Array
from .backups import Rounds, VectorSet, fixed_arms
from .clock import Clock
from .dominance import best_somewhere, undominated_arms
from .information_price import InformationPrice, information_price
from .problem import Problem

_WORK = 1 << 24  # multiplications per batch of trials: some hundredths of a second, the same count on every machine
_LARGEST = 800  # unknowns of the linear programs that look for dominated arms: a few seconds in all
_LEAST = 0.5  # seconds to go below which they are not begun: loading the solver and one program may take as long
_DEAD = 0.25  # share of points that fell and moved to the end, beyond which the gaps they left are closed
MEMORY_LIMIT = 4e9  # bytes
_START = 512  # vectors and points per step at first; nodes: twice that


class Search:
    """The bounds at every belief a trial came across. Arrays grow when they are full."""

    def __init__(self, problem: Problem, seed: int, memory_limit: float = MEMORY_LIMIT) -> None:
        self.problem = problem
        self.memory_limit = memory_limit
        self.full = False  # the arrays may not grow any more
        self._rng = np.random.default_rng(seed)
        self.arms = Arms(
            table=problem.table,
            means=problem.means,
            names=np.arange(problem.n_arms),
            last=problem.means[problem.last_arms],
            last_names=problem.last_arms,
            corner=problem.corner,
            spread=problem.corner - problem.means.min(axis=0),
            flat=(problem.table == problem.table[:, :1]).all(axis=1).reshape(problem.n_arms, -1).all(axis=1),
            columns=np.ascontiguousarray(problem.table.T),
            entropies=np.ascontiguousarray((problem.table * np.log(np.maximum(problem.table, TINY))).T),
            order=np.argsort(problem.table, axis=1, kind="stable").astype(np.int32),
            keys=self._rng.integers(2**62 // problem.horizon, size=len(problem.table)),
        )
        n_types, stages = len(problem.weights), problem.horizon + 1
        self.lower = Lower(
            np.empty((stages, n_types, _START)), np.empty((stages, _START), np.int64), np.zeros(stages, np.int64)
        )
        self.upper = Upper(
            np.empty((stages, n_types, _START)),
            np.empty((stages, n_types, _START), np.float32),
            np.empty((stages, _START)),
            np.zeros(stages, np.int64),
        )
        self.price = Price(np.zeros((stages, n_types)), np.zeros(stages), np.zeros(n_types))
        self.nodes = _empty_nodes(2 * _START, n_types, problem.n_arms, len(problem.table))
        add_node(self.arms, self.nodes, problem.weights, 0, problem.horizon)
        for remaining, vectors in enumerate(fixed_arms(problem), start=1):
            self.add_vectors(remaining, vectors)

    @property
    def lower_bound(self) -> float:
        """What the best plan found so far earns."""
        return float((self.problem.weights @ self.lower.vectors[-1, :, : self.lower.counts[-1]]).max())

    @property
    def upper_bound(self) -> float:
        """What no policy can exceed."""
        return float(self.nodes.upper[0])

    def add_vectors(self, remaining: int, vectors: VectorSet) -> None:
        """Put plans for `remaining` steps to go under the lower bound."""
        count, more = int(self.lower.counts[remaining]), len(vectors[1])
        while count + more > self.lower.arms.shape[1]:
            self._grow_lower()
        self.lower.vectors[remaining, :, count : count + more] = vectors[0].T
        self.lower.arms[remaining, count : count + more] = vectors[1]
        self.lower.counts[remaining] += more

    def look_ahead(self, clock: Clock) -> None:
        """What one step of lookahead proves: from here on no plan is worse."""
        self._rounds = Rounds(self.problem, self._rng, lambda: clock.expired)
        self.add_vectors(self.problem.horizon, self._rounds.look_ahead(self.sets()))

    def back_up(self, n_beliefs: int) -> None:
        """Backups at the beliefs of simulated sessions."""
        for remaining, vectors in enumerate(self._rounds.run(self.sets(), n_beliefs), start=1):
            self.add_vectors(remaining, vectors)

    @property
    def memory(self) -> int:
        """Bytes that the bounds take."""
        return sum(array.nbytes for part in (self.lower, self.upper, self.nodes) for array in part)

    def advance(self, tolerance: float, work: int = _WORK) -> bool:
        """A batch of trials of a fixed amount of work: the clock has no say in what the same seed finds.

        Returns whether the gap is closed. Where the arrays are full and may not grow, `full` says so.
        """
        run = kernel("planning_search").run_trials
        reason = run(self.arms, self.price, self.lower, self.upper, self.nodes, self.problem.horizon, tolerance, work)
        if self._share_of_dead_points() > _DEAD:
            self._bury_dead_points()
        if reason == FULL:
            self.full = 3 * self.memory > self.memory_limit  # while an array doubles, both copies are there
            if not self.full:
                self._grow()
        return bool(reason == CLOSED)

    def charge_for_information(self, clock: Clock) -> None:
        """Put the information price under the upper bound, and grow the tree of nodes anew: what they hold was
        computed without it. Points and vectors stay."""
        arms, problem = self.arms, self.problem
        self.use(
            information_price(arms.means, arms.table, problem.weights, problem.horizon, stop=lambda: clock.expired)
        )

    def use(self, price: InformationPrice) -> None:
        problem, mass = self.problem, self.problem.weights.sum()
        self.price = Price(price.planes, price.rates, np.log(price.prior))
        bound = min(self.upper_bound, price.at_start * mass)
        sizes = (len(problem.weights), len(self.arms.means), len(self.arms.table))
        self.nodes = _empty_nodes(2 * _START, *sizes)
        add_node(self.arms, self.nodes, problem.weights, 0, problem.horizon)
        self.nodes.upper[0] = bound

    def drop_dominated_arms(self, clock: Clock) -> None:
        """Search on without the arms that others make superfluous. Every bound found so far stays valid."""
        old, n_values = self.arms, self.problem.n_values
        if old.table.shape[0] * n_values > _LARGEST or clock.time_limit - clock.seconds < _LEAST:
            return
        kept = undominated_arms(old.table, old.means, lambda: clock.expired)
        codes = (kept[:, None] * n_values + np.arange(n_values)).ravel()
        last = best_somewhere(old.last, lambda: clock.expired)
        self.arms = old._replace(
            table=old.table[codes],
            means=old.means[kept],
            names=old.names[kept],
            last=old.last[last],
            last_names=old.last_names[last],
            flat=old.flat[kept],
            columns=np.ascontiguousarray(old.columns[:, codes]),
            entropies=np.ascontiguousarray(old.entropies[:, codes]),
            order=old.order[codes],
            keys=old.keys[codes],
        )
        nodes = self.nodes
        self.nodes = nodes._replace(
            values=np.ascontiguousarray(nodes.values[:, kept]),
            shares=np.ascontiguousarray(nodes.shares[:, codes]),
            low=np.ascontiguousarray(nodes.low[:, kept]),
            high=np.ascontiguousarray(nodes.high[:, kept]),
        )

    def sets(self) -> list[VectorSet]:
        """All plans found, as vectors and first arms, for 1 step to go, 2, ..., H."""
        lower = self.lower
        counts = lower.counts.tolist()
        return [
            (lower.vectors[t, :, : counts[t]].T.copy(), lower.arms[t, : counts[t]].copy())
            for t in range(1, len(counts))
        ]

    def _grow(self) -> None:
        """Double whatever one more trial might fill."""
        if self.lower.counts.max() + self.problem.n_values > self.lower.arms.shape[1]:
            self._grow_lower()
        if self.upper.counts.max() + self.problem.n_values > self.upper.drops.shape[1]:
            beliefs, screen, drops, counts = self.upper
            self.upper = Upper(_doubled(beliefs), _doubled(screen), _doubled(drops), counts)
        if self.nodes.counts[0] + self.problem.horizon > len(self.nodes.upper):
            self.nodes = _doubled_nodes(self.nodes)

    def _share_of_dead_points(self) -> float:
        stage = int(self.upper.counts.argmax())
        count = int(self.upper.counts[stage])
        return float((self.upper.drops[stage, :count] >= 0).mean()) if count else 0.0

    def _bury_dead_points(self) -> None:
        """Close the gaps that points left when they fell and moved to the end. The others keep their order, so what a
        node has looked at stays a range of them."""
        count = int(self.nodes.counts[0])
        steps, points = self.nodes.steps[:count], self.nodes.points[:count]
        for stage, size in enumerate(self.upper.counts.tolist()):
            alive = self.upper.drops[stage, :size] < 0
            before = np.concatenate([[0], np.cumsum(alive)]).astype(np.int32)  # points that stay before each
            places = np.flatnonzero(alive)
            for array in (self.upper.beliefs, self.upper.screen, self.upper.drops):
                array[stage, ..., : len(places)] = array[stage][..., places]
            self.upper.counts[stage] = len(places)
            owners = np.flatnonzero((steps == stage) & (points >= 0))
            points[owners] = before[points[owners]]
            parents = np.flatnonzero((steps == stage + 1) & (self.nodes.high[:count, 0] >= 0))
            for known in (self.nodes.low, self.nodes.high):
                known[parents] = before[known[parents]]

    def _grow_lower(self) -> None:
        self.lower = Lower(_doubled(self.lower.vectors), _doubled(self.lower.arms), self.lower.counts)


def _doubled(array: Array) -> Array:
    """The same entries with twice the room along the last axis."""
    wide = np.empty((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., : array.shape[-1]] = array
    return wide


def _empty_nodes(capacity: int, n_types: int, n_arms: int, n_codes: int) -> Nodes:
    return Nodes(
        beliefs=np.empty((capacity, n_types)),
        upper=np.empty(capacity),
        values=np.empty((capacity, n_arms)),
        shares=np.empty((capacity, n_codes)),
        low=np.empty((capacity, n_arms), np.int32),
        high=np.empty((capacity, n_arms), np.int32),
        points=np.empty(capacity, np.int64),
        solved=np.empty(capacity, np.bool_),
        keys=np.empty(capacity, np.int64),
        steps=np.empty(capacity, np.int64),
        slots=np.full(1 << (2 * capacity).bit_length(), -1, np.int64),  # at most half full
        counts=np.zeros(1, np.int64),
    )


def _doubled_nodes(nodes: Nodes) -> Nodes:
    sizes = (nodes.beliefs.shape[1], nodes.values.shape[1], nodes.shares.shape[1])
    wide = _empty_nodes(2 * len(nodes.upper), *sizes)
    count = int(nodes.counts[0])
    for name in set(Nodes._fields) - {"slots", "counts"}:
        getattr(wide, name)[:count] = getattr(nodes, name)[:count]
    wide.counts[0] = count
    mask = len(wide.slots) - 1
    for node, key in enumerate(nodes.keys[:count].tolist()):
        slot = key & mask
        while wide.slots[slot] >= 0:
            slot = (slot + 1) & mask
        wide.slots[slot] = node
    return wide
