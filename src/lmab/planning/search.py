"""Heuristic search: a lower and an upper bound on the optimum, improved by trials (finite-horizon HSVI)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .._kernel import kernel
from .._kernel.arrays import (
    CLOSED,
    FULL,
    TINY,
    Arms,
    Charges,
    Lower,
    Nodes,
    Price,
    Upper,
    add_node,
    doubled,
    doubled_lower,
    doubled_nodes,
    empty_lower,
    empty_nodes,
    empty_upper,
    price_bound,
    renumber_points,
    superseded_share,
)  # fmt: skip
from .._shapes import Array, Float, Integer
from ..model.dominance import best_somewhere, undominated_arms
from ..model.type_prior import clustered, nearest
from ..parallel import Threads
from .backups import Rounds, VectorSet, fixed_arms
from .belief_grid import grid_bound
from .information_bound import InformationBound, information_bound, information_bounds
from .problem import Clock, PriorBounds, Problem
from .step_model import StepModel

_WORK = 1 << 24  # multiplications per batch of trials: some hundredths of a second, the same count on every machine
_LARGEST = 800  # unknowns of the linear programs that look for dominated arms: a few seconds in all
_LEAST = 0.5  # seconds to go below which they are not begun: loading the solver and one program may take as long
_DEAD = 0.25  # share of points that fell and moved to the end, beyond which the gaps they left are closed
MEMORY_LIMIT = 4e9  # bytes
_PART, _LEAST_WORK = 2, 1 << 19  # of several roots one of so many is worked on, with as many multiplications
_CLOSER = 0.1  # share of the tolerance at which one of several roots is left alone
_OWN_PRICES = 1 << 22  # priors times means times steps up to which every prior has its own price
_WEIGHT = 64  # bytes that a grid takes for each of its weights, at most
_START = 512  # vectors and points per step at first; nodes: twice that
_PROOF = 1 << 26  # multiplications spent on a proof: some hundredths of a second
_FEW = 128  # points and nodes at first, of one of several roots
_LONGER, _LONGEST = 4, 3  # batches after which the work on one of them doubles, and how often it does
_NEIGHBOURS = 8  # priors that share points and vectors, on average
_WIDE = 1 << 16  # bytes of a node beyond which a tree does not grow, and begins anew if it is full
_RESERVED = 1 << 27  # bytes reserved for such a tree; unused pages take no memory


def _arrays(problem: Problem, rng: np.random.Generator) -> Arms:
    """Return the problem as the arrays of the compiled search."""
    best, worst = problem.known
    if problem.is_uniform:  # exact multiples of the steps
        scale = np.arange(problem.horizon + 1.0)
        corner, lowest = problem.means.max(axis=0), problem.means.min(axis=0)
        best, worst = np.tile(corner, (len(scale), 1)), np.tile(lowest, (len(scale), 1))
        flat = (problem.table == problem.table[:, :1]).all(axis=1).reshape(problem.n_arms, -1).all(axis=1)
    else:
        scale, flat = np.ones(problem.horizon + 1), np.zeros(problem.n_arms, bool)
    tables, last, stays = problem.tables, problem.last_arms, problem.step_model.continuation
    return Arms(
        table=tables,
        means=problem.payoffs,
        at=problem.step_tables,
        names=np.arange(problem.n_arms),
        last=problem.step(1).means[last],
        last_names=last,
        scale=scale,
        corner=best,
        spread=best - worst,
        stays=np.empty((0, *problem.payoffs.shape[1:])) if stays is None else stays,
        flat=flat,
        columns=np.ascontiguousarray(tables.transpose(0, 2, 1)),
        entropies=np.ascontiguousarray((tables * np.log(np.maximum(tables, TINY))).transpose(0, 2, 1)),
        order=np.argsort(tables, axis=2, kind="stable").astype(np.int32),
        keys=rng.integers(2**62 // problem.horizon, size=tables.shape[:2]),
    )


class Search:
    """Bounds at every belief that trials visited. Arrays grow when they are full."""

    def __init__(
        self, problem: Problem, seed: int, memory_limit: float = MEMORY_LIMIT, threads: int | None = 1
    ) -> None:
        self.problem = problem
        self.threads = threads
        self.memory_limit = memory_limit
        self.full = False  # the arrays may not grow any more
        self._rng = np.random.default_rng(seed)
        n_types, stages = len(problem.weights), problem.horizon + 1
        self.arms = _arrays(problem, self._rng)
        self.starts = problem.weights[None] if problem.priors is None else problem.priors
        self.shares = np.ones(1) if problem.shares is None else problem.shares
        # Every prior has a tree of nodes and an information bound. Neighbours share points and vectors: distant ones
        # hardly improve the bounds, and every node would evaluate them.
        self.group = clustered(self.starts, self.shares, -(-len(self.starts) // _NEIGHBOURS))[2]
        n_groups = int(self.group.max()) + 1
        self.lowers = [empty_lower(stages, n_types, _START)]  # of all priors, until trials begin
        self._common = self.lowers[0].counts  # vectors that were there when trials began
        self.uppers = [empty_upper(stages, n_types, max(_START // n_groups, _FEW)) for _ in range(n_groups)]
        self.roots = self._trees(self.starts)
        self.prices = [Price(np.zeros((stages, n_types)), np.zeros(stages), np.zeros(n_types))] * len(self.starts)
        self._found = np.full(len(self.starts), -np.inf)  # lower bounds, from the vectors looked at so far
        self._counted = [0] * n_groups  # vectors for all steps that were looked at, by group
        self._batches = 0  # of several roots
        self._proved: list[tuple[Float[Array, "M"], float]] = []  # upper bounds at the priors of persons
        for remaining, vectors in enumerate(fixed_arms(problem), start=1):
            self.add_vectors(remaining, vectors)

    def _trees(self, starts: Float[Array, "K M"]) -> list[Nodes]:
        """Return the trees of sessions that begin at each of these beliefs."""
        problem, arms = self.problem, self.arms
        room = int(min(_RESERVED, self.memory_limit / 4) / self._node_size / len(self.starts))
        capacity = max(room, 4 * problem.horizon)
        if not self.wide:
            capacity = max(2 * _START if len(self.starts) == 1 else min(room, _START), _FEW, 2 * problem.horizon)
        trees = empty_nodes(len(starts), capacity, len(starts.T), *self._sizes)
        for nodes, start in zip(trees, starts, strict=True):
            add_node(arms, nodes, start, 0, problem.horizon)
        return trees

    @property
    def _node_size(self) -> int:
        """Return the approximate size of a node in bytes."""
        n_arms, n_codes = self._sizes
        return 8 * (len(self.arms.corner.T) + n_codes + 2 * n_arms)

    @property
    def _sizes(self) -> tuple[int, int]:
        """Return the numbers of arms and of codes."""
        return self.arms.means.shape[1], self.arms.table.shape[1]

    @property
    def wide(self) -> bool:
        """Return whether a node takes much memory, and time to open, because there are many arms."""
        return self._node_size > _WIDE

    @property
    def lower_bounds(self) -> Float[Array, "K"]:
        """Return the value of the best plan found so far at every prior."""
        for group, own in enumerate(self.lowers):
            old, count = self._counted[group], int(own.counts[-1])
            if count > old:  # vectors are only added, so the earlier ones are known
                self._found = np.maximum(self._found, (self.starts @ own.vectors[-1, :, old:count]).max(axis=1))
                self._counted[group] = count
        return self._found

    @property
    def upper_bounds(self) -> Float[Array, "K"]:
        """Return the upper bound at every prior."""
        return np.array([nodes.upper[0] for nodes in self.roots])

    @property
    def lower_bound(self) -> float:
        """Return the value of the best plan found so far, averaged over the priors."""
        if len(self.roots) > 1:
            return float(self.shares @ self.lower_bounds)
        [lower] = self.lowers
        return float((self.starts[0] @ lower.vectors[-1, :, : lower.counts[-1]]).max())

    @property
    def upper_bound(self) -> float:
        """Return the upper bound, averaged over the priors."""
        return float(self.shares @ self.upper_bounds) if len(self.roots) > 1 else float(self.roots[0].upper[0])

    def add_vectors(self, remaining: int, vectors: VectorSet) -> None:
        """Add plans for `remaining` steps to go to the lower bounds of all priors."""
        more = len(vectors[1])
        for group, lower in enumerate(self.lowers):
            count = int(lower.counts[remaining])
            while count + more > lower.arms.shape[1]:
                self.lowers[group] = lower = doubled_lower(lower)
            lower.vectors[remaining, :, count : count + more] = vectors[0].T
            lower.arms[remaining, count : count + more] = vectors[1]
            lower.counts[remaining] += more

    def look_ahead(self, clock: Clock) -> None:
        """Add the vectors of a one-step lookahead at the start: from here on no plan is worse."""
        self._rounds = Rounds(self.problem, self._rng, lambda: clock.expired)
        self.add_vectors(self.problem.horizon, self._rounds.look_ahead(self.sets()))

    def back_up(self, n_beliefs: int) -> None:
        """Add the vectors of backups at the beliefs of simulated sessions."""
        for remaining, vectors in enumerate(self._rounds.run(self.sets(), n_beliefs), start=1):
            self.add_vectors(remaining, vectors)

    def _memory(self, group: int) -> int:
        """Return the bytes of the bounds of one group, so that no thread depends on the progress of others."""
        trees = (self.roots[root] for root in np.flatnonzero(self.group == group))
        own = self.lowers[self._vectors_of(group)]
        return sum(array.nbytes for part in (own, self.uppers[group], *trees) for array in part)

    def _may_grow(self, group: int) -> bool:
        """Return whether arrays of a group may double; both copies exist meanwhile."""
        return 3 * self._memory(group) <= self.memory_limit / len(self.uppers)

    def advance(self, tolerance: float, work: int = _WORK) -> bool:
        """Run a batch of trials of a fixed amount of work, independent of the clock; return whether the gap is closed.

        `full` is set if the arrays are full and may not grow. Of several roots, the ones with the largest weighted
        gaps are improved, with more work after many batches. Groups share nothing that trials change, so each has a
        thread, and results do not depend on the number of threads.
        """
        if len(self.roots) == 1:
            return self._trials(0, tolerance, work)
        self._part_vectors()
        self._batches, work = self._batches + 1, _LEAST_WORK << min(self._batches // _LONGER, _LONGEST)
        gaps, closer = self.shares * np.maximum(self.upper_bounds - self.lower_bounds, 0), _CLOSER * tolerance
        widest = np.argsort(-gaps, kind="stable")[: -(-len(gaps) // _PART)]
        widest = widest[gaps[widest] > closer * self.shares[widest]]
        groups = self.group[widest]

        def in_turn(group: int) -> None:
            for root in widest[groups == group].tolist():
                self._trials(root, closer, work)

        self._side_by_side(in_turn, groups)
        return self.upper_bound - self.lower_bound <= tolerance

    def prove(self, tolerance: float, clock: Clock) -> None:
        """Prove at every root that no policy is better by more than `tolerance`, within a fixed amount of work.

        With many roots this takes a fraction of the time of trials, which restart after each path.
        """
        if self.upper_bound - self.lower_bound <= tolerance:
            return
        arms, horizon, kernels = self.arms, self.problem.horizon, kernel("planning_search")
        self._part_vectors()
        logs, whole = np.log(np.maximum(arms.table, TINY)), np.ascontiguousarray
        rows = (logs, whole(arms.entropies.transpose(0, 2, 1)), whole(arms.last.T))

        def in_turn(group: int) -> None:
            proof, own = None, self._vectors_of(group)
            for root in np.flatnonzero(self.group == group).tolist():
                reason, start, nodes = FULL, self.starts[root], self.roots[root]
                charges = Charges(self.charges[root], *rows)
                while reason == FULL and not clock.expired:
                    lower, bounds = self.lowers[own], (float(nodes.upper[0]), tolerance)
                    proof = proof or kernels.new_proof(arms, lower, horizon)
                    price = self.prices[root]
                    found = kernels.prove(arms, price, charges, lower, proof, start, horizon, *bounds, _PROOF)
                    reason, nodes.upper[0] = found
                    if reason == FULL and not self._may_grow(group):
                        self.full = True
                        return
                    if reason == FULL:
                        self.lowers[own], proof = doubled_lower(lower), None

        self._side_by_side(in_turn, self.group)

    def _side_by_side(self, in_turn: Callable[[int], None], groups: Integer[Array, "n"]) -> None:
        """Call a function for every group in threads, the most frequent group first, so that no other waits for it."""
        largest = np.argsort(-np.bincount(groups), kind="stable")[: len(np.unique(groups))]
        with Threads(self.threads) as threads:  # an interrupt here waits for the running threads
            threads.each(in_turn, largest.tolist())

    def _part_vectors(self) -> None:
        """Let every group of neighbours add its own vectors to the common ones from here on."""
        if len(self.lowers) == len(self.uppers):
            return
        self._common, self._counted = self.lowers[0].counts.copy(), self._counted[:1] * len(self.uppers)
        self.lowers = [Lower(*(array.copy() for array in self.lowers[0])) for _ in self.uppers]

    def _trials(self, root: int, tolerance: float, work: int) -> bool:
        """Run trials from a root; return whether its gap is closed."""
        run, group = kernel("planning_search").run_trials, int(self.group[root])
        lower, upper, nodes = self.lowers[self._vectors_of(group)], self.uppers[group], self.roots[root]
        reason = run(self.arms, self.prices[root], lower, upper, nodes, self.problem.horizon, tolerance, work)
        if superseded_share(upper) > _DEAD:
            self._bury_dead_points(group)
        if reason == FULL:
            if self._may_grow(group):
                self._grow(root)
            else:
                self.full = True
        return bool(reason == CLOSED)

    def add_information_bound(self, clock: Clock) -> None:
        """Add the information bound to the upper bound: one bound per prior, or the bound of the mean prior for all if
        one per prior would take too long or if sessions can end early."""
        problem, n = self.problem, len(self.starts)
        if n > 1 and not problem.people_leave and n * self.arms.means[0].size * problem.horizon <= _OWN_PRICES:
            self.set_information_bounds(information_bounds(self._step_model, self.starts, stop=lambda: clock.expired))
        else:
            bound = information_bound(self._step_model, problem.weights, stop=lambda: clock.expired)
            self.set_information_bounds([bound] * n)

    @property
    def _step_model(self) -> StepModel:
        """Return the payoffs and observations of the arms that the search uses."""
        problem = self.problem
        return StepModel.of(
            self.arms.means,
            self.arms.table,
            problem.horizon,
            has_attrition=bool(problem.people_leave),
            step_tables=self.arms.at,
        )

    def add_grid_bound(self, size: int, clock: Clock) -> None:
        """Lower the upper bounds at the initial beliefs to a grid bound, which is tight if there are few types."""
        if _WEIGHT * size > self.memory_limit:
            return
        found = grid_bound(self._step_model, self.starts, size=size, stop=lambda: clock.expired)
        for nodes, bound in zip(self.roots, found.tolist(), strict=True):
            nodes.upper[0] = min(nodes.upper[0], bound)

    def set_information_bounds(self, bounds: Sequence[InformationBound]) -> None:
        """Install the bounds and rebuild the trees, because opened nodes were bounded without them. Points stay."""
        horizon, old = self.problem.horizon, self.upper_bounds
        contiguous = np.ascontiguousarray  # numba would compile the search anew for slices of shared arrays
        logs = [np.log(np.maximum(bound.prior, TINY)) for bound in bounds]
        self.prices = [
            Price(contiguous(bound.linear_terms), contiguous(bound.entropy_weights), log)
            for bound, log in zip(bounds, logs, strict=True)
        ]
        self.charges = [contiguous(bound.arm_linear_terms.transpose(0, 2, 1)) for bound in bounds]
        at_starts = [bounds[0].at_start * self.problem.weights.sum()]
        if len(self.roots) > 1:  # away from its own prior, a bound also charges for the information of the prior
            at_starts = [
                price_bound(price, start, horizon) for price, start in zip(self.prices, self.starts, strict=True)
            ]
        trees = zip(self.roots, self.starts, strict=True)
        self.roots = [nodes if nodes.high[0, 0] < 0 else self._trees(start[None])[0] for nodes, start in trees]
        for nodes, bound, other in zip(self.roots, at_starts, old.tolist(), strict=True):
            nodes.upper[0] = min(bound, other)

    def drop_dominated_arms(self, clock: Clock) -> None:
        """Continue without arms that are dominated at every step; every bound found so far stays valid."""
        old, n_values = self.arms, self.problem.n_values
        if old.table.shape[1] * n_values > _LARGEST or clock.time_limit - clock.seconds < _LEAST:
            return
        leave, used = bool(self.problem.people_leave), np.unique(old.at[1:]).tolist()
        kept = np.unique(
            np.concatenate(
                [
                    undominated_arms(old.table[at], old.means[at], lambda: clock.expired, has_attrition=leave)
                    for at in used
                ]
            )
        )
        codes = (kept[:, None] * n_values + np.arange(n_values)).ravel()
        last = best_somewhere(old.last, lambda: clock.expired)
        contiguous = np.ascontiguousarray
        self.arms = old._replace(
            table=contiguous(old.table[:, codes]),
            means=contiguous(old.means[:, kept]),
            names=old.names[kept],
            last=old.last[last],
            last_names=old.last_names[last],
            stays=contiguous(old.stays[:, kept]),
            flat=old.flat[kept],
            columns=contiguous(old.columns[:, :, codes]),
            entropies=contiguous(old.entropies[:, :, codes]),
            order=contiguous(old.order[:, codes]),
            keys=contiguous(old.keys[:, codes]),
        )
        self.roots = [
            nodes._replace(
                values=contiguous(nodes.values[:, kept]),
                shares=contiguous(nodes.shares[:, codes]),
                low=contiguous(nodes.low[:, kept]),
                high=contiguous(nodes.high[:, kept]),
            )
            for nodes in self.roots
        ]

    def prove_for(self, people: Float[Array, "n M"], shares: Float[Array, "n"], tolerance: float, clock: Clock) -> None:
        """Run trials from the priors of persons, the largest weighted gaps first, until the mean gap is closed."""
        bounds = self.by_prior()
        assert bounds is not None
        lower, upper = bounds.at(people)
        near, gaps = nearest(people, self.starts), shares * (upper - lower)
        left = float(gaps.sum()) - tolerance * float(shares.sum())
        for person in np.argsort(-gaps, kind="stable").tolist():
            if left <= 0 or clock.expired or self.full:
                return
            root, prior = int(near[person]), people[person]
            tree, self.roots[root] = self.roots[root], self._trees(prior[None])[0]
            self.roots[root].upper[0] = upper[person]
            self._trials(root, _CLOSER * tolerance, _LEAST_WORK >> 2)
            proved = float(self.roots[root].upper[0])
            self._proved.append((prior, proved))
            left -= float(shares[person] * (upper[person] - proved))
            self.roots[root] = tree

    def by_prior(self) -> PriorBounds | None:
        """Return the bounds at any prior; None if all sessions begin at one."""
        if self.problem.priors is None:
            return None
        starts = np.concatenate(
            [self.starts, np.array([prior for prior, _ in self._proved]).reshape(-1, len(self.starts.T))]
        )
        return PriorBounds.over(
            self.problem,
            self.sets()[-1][0],
            starts,
            np.append(self.upper_bounds, [bound for _, bound in self._proved]),
            (self.problem.known.best[-1], self.problem.known.worst[-1]),
            np.stack([price.planes[-1] for price in self.prices]),
            np.array([price.rates[-1] for price in self.prices]),
            np.exp([price.log_prior for price in self.prices]),
        )

    def sets(self) -> list[VectorSet]:
        """Return all plans found, as vectors and first arms, for 1, 2, ..., H steps to go."""
        found = []
        for t in range(1, self.problem.horizon + 1):
            parts = [slice(int(self._common[t] if i else 0), int(own.counts[t])) for i, own in enumerate(self.lowers)]
            each = list(zip(self.lowers, parts, strict=True))
            vectors = np.concatenate([own.vectors[t, :, part].T for own, part in each])
            found.append((vectors, np.concatenate([own.arms[t, part] for own, part in each])))
        return found

    def _vectors_of(self, group: int) -> int:
        """Return the number of the set of vectors that the group uses."""
        return group if len(self.lowers) > 1 else 0

    def _grow(self, root: int) -> None:
        """Double the arrays that one more trial from the root might fill."""
        group, n_values = int(self.group[root]), self.problem.n_values
        own = self._vectors_of(group)
        lower, upper, nodes = self.lowers[own], self.uppers[group], self.roots[root]
        if lower.counts.max() + n_values > lower.arms.shape[1]:
            self.lowers[own] = doubled_lower(lower)
        if upper.counts.max() + n_values > upper.drops.shape[1]:
            beliefs, screen, drops, counts = upper
            self.uppers[group] = Upper(doubled(beliefs), doubled(screen), doubled(drops), counts)
        if nodes.counts[0] + self.problem.horizon > len(nodes.upper):
            if self.wide:
                self._begin_anew(nodes)
            else:
                self.roots[root] = doubled_nodes(nodes)

    def _begin_anew(self, nodes: Nodes) -> None:
        """Delete the nodes of a tree but its root; the points keep their bounds."""
        bound, belief = float(nodes.upper[0]), nodes.beliefs[0].copy()
        nodes.counts[0] = 0
        nodes.slots[:] = -1
        add_node(self.arms, nodes, belief, 0, self.problem.horizon)
        nodes.upper[0] = bound

    def _bury_dead_points(self, group: int) -> None:
        """Remove points that fell and were stored again at the end; the others keep their order."""
        upper, places_before = self.uppers[group], []
        for stage, size in enumerate(upper.counts.tolist()):
            alive = upper.drops[stage, :size] < 0
            places_before.append(np.concatenate([[0], np.cumsum(alive)]).astype(np.int32))  # that stay before each
            places = np.flatnonzero(alive)
            for array in (upper.beliefs, upper.screen, upper.drops):
                array[stage, ..., : len(places)] = array[stage][..., places]
            upper.counts[stage] = len(places)
        for root in np.flatnonzero(self.group == group).tolist():
            renumber_points(self.roots[root], places_before)
