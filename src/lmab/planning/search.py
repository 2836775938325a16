"""Search: a lower and an upper bound on the optimum, and the trials that improve both (finite-horizon HSVI)."""

from __future__ import annotations

import numpy as np

from .._kernel import kernel
from .._kernel.reference.planning_search import FULL, Arms, Lower, Nodes, Upper, add_node
from .._shapes import Array
from .clock import Clock
from .dominance import best_somewhere, undominated_arms
from .point_based import VectorSet, backup, fixed_arms, simulated_beliefs
from .problem import Problem

_WORK = 1 << 24  # multiplications per batch of trials: some hundredths of a second, the same count on every machine
_LARGEST = 2000  # unknowns of the linear programs that look for dominated arms: seconds in all
_START = 512  # vectors and points per step at first; nodes: twice that


class Search:
    """The bounds at every belief a trial came across. Arrays grow when they are full."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem = problem
        self._rng = np.random.default_rng(seed)
        self.arms = Arms(
            table=problem.table,
            means=problem.means,
            names=np.arange(problem.n_arms),
            last=problem.means[problem.last_arms],
            last_columns=np.ascontiguousarray(problem.means[problem.last_arms].T),
            last_names=problem.last_arms,
            corner=problem.corner,
            keys=self._rng.integers(2**62 // problem.horizon, size=len(problem.table)),
        )
        n_contexts, stages = len(problem.weights), problem.horizon + 1
        self.lower = Lower(
            np.empty((stages, n_contexts, _START)), np.empty((stages, _START), np.int64), np.zeros(stages, np.int64)
        )
        self.upper = Upper(
            np.empty((stages, n_contexts, _START)), np.empty((stages, _START)), np.zeros(stages, np.int64)
        )
        self.nodes = _empty_nodes(2 * _START, n_contexts, problem.n_arms, len(problem.table))
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

    def warm_start(self, n_beliefs: int, clock: Clock) -> None:
        """Backups at the beliefs of simulated sessions, from the last step to the first."""
        beliefs = simulated_beliefs(self.problem, n_beliefs, self._rng)
        for remaining in range(2, self.problem.horizon + 1):
            if clock.expired:
                return
            later = self.lower.vectors[remaining - 1, :, : self.lower.counts[remaining - 1]]
            self.add_vectors(remaining, backup(self.problem, beliefs[remaining], np.ascontiguousarray(later.T)))

    def advance(self, tolerance: float) -> None:
        """A batch of trials of a fixed amount of work: the clock has no say in what the same seed finds."""
        run = kernel("planning_search").run_trials
        reason = run(self.arms, self.lower, self.upper, self.nodes, self.problem.horizon, tolerance, _WORK)
        if reason == FULL:
            self._grow()

    def drop_dominated_arms(self, clock: Clock) -> None:
        """Search on without the arms that others make superfluous. Every bound found so far stays valid."""
        old, n_values = self.arms, self.problem.n_values
        if old.table.shape[0] * n_values > _LARGEST:
            return
        kept = undominated_arms(old.table, old.means, lambda: clock.expired)
        codes = (kept[:, None] * n_values + np.arange(n_values)).ravel()
        last = best_somewhere(old.last)
        table = old.table[codes]
        self.arms = Arms(
            table=table,
            means=old.means[kept],
            names=old.names[kept],
            last=old.last[last],
            last_columns=np.ascontiguousarray(old.last[last].T),
            last_names=old.last_names[last],
            corner=old.corner,
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
            self._bury_dead_points()
            if self.upper.counts.max() > self.upper.drops.shape[1] // 2:
                self.upper = Upper(_doubled(self.upper.inverse), _doubled(self.upper.drops), self.upper.counts)
        if self.nodes.counts[0] + self.problem.horizon > len(self.nodes.upper):
            self.nodes = _doubled_nodes(self.nodes)

    def _bury_dead_points(self) -> None:
        """Close the gaps that points left when they fell and moved to the end; nodes look at the rest afresh."""
        count = int(self.nodes.counts[0])
        steps, points = self.nodes.steps[:count], self.nodes.points[:count]
        for stage in range(len(self.upper.counts)):
            alive = np.flatnonzero(self.upper.drops[stage, : self.upper.counts[stage]] < 0)
            names = np.full(self.upper.counts[stage] + 1, -1)  # the last entry: for nodes without a point
            names[alive] = np.arange(len(alive))
            self.upper.inverse[stage, :, : len(alive)] = self.upper.inverse[stage][:, alive]
            self.upper.drops[stage, : len(alive)] = self.upper.drops[stage, alive]
            self.upper.counts[stage] = len(alive)
            points[steps == stage] = names[points[steps == stage]]
            parents = np.flatnonzero((steps == stage + 1) & (self.nodes.high[:count].max(axis=1) >= 0))
            known = self.nodes.high[parents] >= 0
            self.nodes.high[parents] = np.where(known, len(alive), -1)
            self.nodes.low[parents] = np.where(known, len(alive), 0)

    def _grow_lower(self) -> None:
        self.lower = Lower(_doubled(self.lower.vectors), _doubled(self.lower.arms), self.lower.counts)


def _doubled(array: Array) -> Array:
    """The same entries with twice the room along the last axis."""
    wide = np.empty((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    wide[..., : array.shape[-1]] = array
    return wide


def _empty_nodes(capacity: int, n_contexts: int, n_arms: int, n_codes: int) -> Nodes:
    return Nodes(
        beliefs=np.empty((capacity, n_contexts)),
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
    for name in ("beliefs", "upper", "values", "shares", "low", "high", "points", "solved", "keys", "steps"):
        getattr(wide, name)[:count] = getattr(nodes, name)[:count]
    wide.counts[0] = count
    mask = len(wide.slots) - 1
    for node, key in enumerate(nodes.keys[:count].tolist()):
        slot = key & mask
        while wide.slots[slot] >= 0:
            slot = (slot + 1) & mask
        wide.slots[slot] = node
    return wide
