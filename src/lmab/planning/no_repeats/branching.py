"""Branch and bound for sessions without repeats: the relaxation is optimised anew after each step.

The optimum at a belief is the maximum over the unplayed arms of the mean now plus the optima after each observation.
A tree of beliefs holds bounds on these: at its leaves the bounds of the relaxation and of the plans, with two steps to
go the exact values. Each iteration follows the arm with the highest upper bound and the observation after which the
bounds are furthest apart, and expands the leaf where it ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..._shapes import Array, Bool, Float, Integer
from ..information_bound import BoundParameters, evaluate_bound, optimize_parameters
from ..lookahead import lookahead_values
from ..problem import Problem
from .backups import NoRepeatVectors, best_continuations
from .point_based import NoRepeatPlans

_ROUNDS = 10  # for the multipliers of a belief, from the initial ones on; then as many for its children
_COST = 4.0  # of an arm that was played, in units of the largest sum of rewards: more than a play can be worth
_SMALLEST = 1e-12  # smallest probability of a type in the priors of the relaxation
_CHUNK = 1 << 21  # parameters that are optimised at once: a look at the clock every tenth of a second
_NODE_BYTES = 500  # of a node without its arrays


@dataclass(eq=False)
class _Node:
    """A belief after the observations `codes`; the arrays are None until it is expanded."""

    belief: Float[Array, "M"]
    codes: tuple[int, ...]
    bounds: tuple[float, float]  # lower and upper
    children: _Children | None = None


@dataclass(eq=False)
class _Children:
    """Bounds after each unplayed arm and observation."""

    arms: Integer[Array, "a"]
    means: Float[Array, "a"]  # of the arms at the belief
    lower: Float[Array, "a Z"]
    upper: Float[Array, "a Z"]

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the bounds of the belief that follow from the children."""
        lower, upper = ((self.means + bound.sum(axis=1)).max() for bound in (self.lower, self.upper))
        return float(lower), float(upper)


class BranchAndBound:
    """A tree of beliefs of sessions that start at `prior`.

    With `plans`, it adds the plans that its lower bounds rest on to them; None: it is for upper bounds only.
    """

    def __init__(
        self,
        problem: Problem,
        prior: Float[Array, "M"],
        start: tuple[Float[Array, "A M"], BoundParameters],
        plans: NoRepeatPlans | None,
        stop: Callable[[], bool],
    ) -> None:
        self.problem, self._plans, self._stop = problem, plans, stop
        self._multipliers, self._parameters = start
        self._nodes: dict[tuple[int, ...], _Node] = {}
        self.n_bytes = 0
        self.root = self._node(prior, (), (-np.inf, np.inf))

    @property
    def gap(self) -> float:
        """Return the difference of the bounds at the start."""
        return self.root.bounds[1] - self.root.bounds[0]

    def improve(self) -> None:
        """Expand one leaf, and update the bounds on the way to it."""
        path, node = [], self.root
        while (children := node.children) is not None and self._steps(node) > 3:
            row = int((children.means + children.upper.sum(axis=1)).argmax())
            value = int((children.upper[row] - children.lower[row]).argmax())
            path.append((node, row, value))
            code = int(children.arms[row]) * self.problem.n_values + value
            after = node.belief * self.problem.step(self._steps(node)).table[code]
            bounds = float(children.lower[row, value]), float(children.upper[row, value])
            node = self._node(after, (*node.codes, code), bounds)
        if node.children is None:
            node.children = self._expanded(node)
            self.n_bytes += _NODE_BYTES + node.belief.nbytes + 2 * node.children.lower.nbytes
            self._update(node)
        for parent, row, value in reversed(path):
            assert parent.children is not None
            lower, upper = parent.children.lower, parent.children.upper
            lower[row, value] = max(lower[row, value], node.bounds[0])
            upper[row, value] = min(upper[row, value], node.bounds[1])
            self._update(parent)
            node = parent

    def _steps(self, node: _Node) -> int:
        """Return the steps to go at a node."""
        return self.problem.horizon - len(node.codes)

    def _node(self, belief: Float[Array, "M"], codes: tuple[int, ...], bounds: tuple[float, float]) -> _Node:
        """Return the node after these observations; their order does not matter if the tables of steps are equal."""
        key = tuple(sorted(codes)) if self.problem.has_equal_tables else codes
        return self._nodes.setdefault(key, _Node(belief, codes, bounds))

    def _update(self, node: _Node) -> None:
        """Tighten the bounds of a node by its children; add the plan of a higher lower bound."""
        assert node.children is not None
        before, (lower, upper) = node.bounds[0], node.children.bounds
        node.bounds = max(before, lower), min(node.bounds[1], upper)
        if self._plans is not None and lower > before + 1e-12 * self.problem.scale:
            self._add_plan(node, node.children, self._plans)

    def _add_plan(self, node: _Node, children: _Children, plans: NoRepeatPlans) -> None:
        """Add the plan that begins with the arm of the highest lower bound."""
        steps = self._steps(node)
        arm = children.arms[(children.means + children.lower.sum(axis=1)).argmax()]
        beliefs, played = self._after(node, np.array([arm]))
        if steps == 3:  # the exact values rest on plans for two steps
            candidates = np.tile(children.arms[children.arms != arm], (len(beliefs), 1))
            plans.add(2, beliefs, played, candidates)
        plans.add(steps, node.belief[None], self._played(node)[None], np.array([[arm]]))

    def _played(self, node: _Node) -> Bool[Array, "A"]:
        played = np.zeros(self.problem.n_arms, bool)
        played[np.array(node.codes, np.int64) // self.problem.n_values] = True
        return played

    def _after(self, node: _Node, arms: Integer[Array, "a"]) -> tuple[Float[Array, "aZ M"], Bool[Array, "aZ A"]]:
        """Return the beliefs after each observation of these arms, and the arms played by then."""
        codes = (arms[:, None] * self.problem.n_values + np.arange(self.problem.n_values)).ravel()
        played = np.tile(self._played(node), (len(codes), 1))
        played[np.arange(len(codes)), codes // self.problem.n_values] = True
        return node.belief * self.problem.step(self._steps(node)).table[codes], played

    def _expanded(self, node: _Node) -> _Children:
        """Return the bounds of the children of a node."""
        problem, steps = self.problem, self._steps(node)
        arms = np.flatnonzero(~self._played(node))
        beliefs, played = self._after(node, arms)
        means, shape = problem.step(steps).means[arms] @ node.belief, (len(arms), problem.n_values)
        if steps <= 3:
            values = lookahead_values(problem, beliefs, steps - 1, steps - 2, played=played).max(axis=1)
            return _Children(arms, means, values.reshape(shape), values.reshape(shape).copy())
        plans = NoRepeatVectors.none(problem) if self._plans is None else self._plans.plans[steps - 2]
        scores = np.where(plans.conflicts(played), -np.inf, beliefs @ plans.vectors.T)
        gains = np.where(played, -np.inf, beliefs @ problem.step(steps - 1).means.T)
        lower = best_continuations(problem, beliefs, scores, gains, played, steps - 1).values
        upper = np.maximum(self._relaxed(node, beliefs, played), lower)
        return _Children(arms, means, lower.reshape(shape), upper.reshape(shape))

    def _relaxed(self, node: _Node, beliefs: Float[Array, "k M"], played: Bool[Array, "k A"]) -> Float[Array, "k"]:
        """Return the bounds of the relaxation at the children of a node; infinite if the time is over."""
        steps, n_types = self._steps(node) - 1, len(node.belief)
        bounds = np.full(len(beliefs), np.inf)
        start = self._optimized(node.belief[None], self._played(node)[None], steps + 1, self._multipliers[None], None)
        block = max(1, _CHUNK // (steps * self.problem.n_arms * n_types))
        for first in range(0, len(beliefs), block):
            if self._stop():
                break
            part = slice(first, first + block)
            multipliers, parameters = self._optimized(beliefs[part], played[part], steps, *start)
            model = self.problem.step_model.last(steps).with_penalties(multipliers)
            found = evaluate_bound(model, _priors(beliefs[part]), parameters)
            pairs = zip(found, beliefs[part, None], strict=True)
            bounds[part] = np.concatenate([bound.bound(belief, steps) for bound, belief in pairs])
            bounds[part] += np.einsum("kam,ka,km->k", multipliers, ~played[part], beliefs[part])
        return bounds

    def _optimized(
        self,
        beliefs: Float[Array, "k M"],
        played: Bool[Array, "k A"],
        steps: int,
        multipliers: Float[Array, "1 A M"],
        parameters: BoundParameters | None,
    ) -> tuple[Float[Array, "k A M"], BoundParameters]:
        """Return multipliers and parameters for each belief; arms that were played cost more than they can earn."""
        costs = np.where(played[..., None], _COST * self.problem.scale, multipliers)
        start = (parameters or self._parameters).last(steps).for_each(len(beliefs))
        model, priors = self.problem.step_model.last(steps), _priors(beliefs)
        found, best = optimize_parameters(
            model, priors, start, _ROUNDS, self._stop, multipliers=costs, is_open=~played, polish=0
        )
        assert best is not None
        return best, found


def _priors(beliefs: Float[Array, "k M"]) -> Float[Array, "k M"]:
    """Return positive distributions close to the beliefs: the bound holds at a belief for any of them."""
    mass = beliefs.sum(axis=1, keepdims=True)
    priors = np.maximum(beliefs / np.where(mass > 0, mass, 1), _SMALLEST)
    return priors / priors.sum(axis=1, keepdims=True)
