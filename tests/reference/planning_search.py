"""Heuristic search between two bounds (HSVI) for a static hidden type: the specification of one batch of trials.

All beliefs are unnormalised: x = w * prod P. On them optimal values are convex, piecewise linear and homogeneous: V_t(c
* x) = c * V_t(x). With t steps to go:

    lower  L_t(x) = max_i vectors[t, :, i] . x                     each vector is the value of a plan for t steps
    upper  U_t(x) = K_t . x + min over i and c >= 0 of c * drop_i + (K_t - k_t) . max(0, c * point_i - x)
    price  planes[t] . x + rates[t] * sum_m x_m log(x_m / (|x| prior_m))               (docs/information-bound.md)

The second is the soft sawtooth. Every plan's vector alpha lies between k_t and K_t, the values of the worst and the
best plan if the type is known: without attrition t times the lowest and the highest mean. At a point b with value at
most v it satisfies alpha . b <= v: the highest alpha . x under these constraints is a fractional knapsack. In other
words, V_t(x) <= c v + K_t . rest - k_t . more, with `rest` = max(0, x - c b) and `more` = max(0, c b - x): V_t is
subadditive, and the best plan at x has at least the value k_t . more on the additional mass. Any upper bound on
V_t(rest) may replace K_t . rest. With attrition the information bound does (`priced_rest`), because knowing the type is
then worth much more than a session can learn before it ends. V_1 is computed exactly whenever it is needed, so trials
end with 2 steps to go. Nodes are multisets of observations, identified by a sum of random keys (and compared by belief,
so that a collision of sums is harmless).

An arm with uninformative observations (`flat`) may as well wait until the end. So if it is best now, it is also best to
the end, and t times its mean may replace its Q-value: the highest of all is still at least V_t. With attrition no arm
is flat, because sessions may end meanwhile.

With attrition, the columns of an arm's part of the table sum to `stays` instead of 1: the table holds the observations
of sessions that continue. All of the above remains valid.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lmab._kernel.arrays import (
    CLOSE,
    CLOSED,
    FULL,
    KEEP,
    LESS,
    MORE,
    MOST_TRIES,
    SHRINK,
    TINY,
    TRIES,
    Arms,
    Charges,
    Lower,
    Nodes,
    Price,
    Upper,
    add_node,
    plane,
    price_bound,
)
from lmab._shapes import Array, Float, Integer


def table(arms: Arms, steps: int) -> Float[Array, "D M"]:
    """Return the observation likelihoods with `steps` to go."""
    return arms.table[arms.at[steps]]


def means(arms: Arms, steps: int) -> Float[Array, "A M"]:
    """Return the mean rewards with `steps` to go."""
    return arms.means[arms.at[steps]]


def keys(arms: Arms, steps: int) -> Integer[Array, "D"]:
    """Return the keys of the observations with `steps` to go."""
    return arms.keys[arms.at[steps]]


def values_per_arm(arms: Arms) -> int:
    return arms.table.shape[1] // arms.means.shape[1]


def run_trials(
    arms: Arms, price: Price, lower: Lower, upper: Upper, nodes: Nodes, horizon: int, tolerance: float, work: int
) -> int:
    """Run trials until the bounds at the start differ by at most `tolerance`, `work` is spent or an array is full."""
    spent = 0
    while room(lower, upper, nodes, horizon, values_per_arm(arms)):
        path = _descend(arms, price, lower, upper, nodes, horizon, tolerance)
        for depth in range(len(path) - 1, -1, -1):
            node, steps, tolerated = path[depth], horizon - depth, tolerance * SHRINK**depth
            if depth < len(path) - 1:
                _refresh(arms, price, upper, nodes, node, steps)
            _tighten_upper(arms, price, upper, nodes, node, steps, tolerated)
            _raise_lower(arms, lower, nodes, node, steps, tolerated)
        spent += sum(int(lower.counts[t] + upper.counts[t]) for t in range(horizon)) * arms.table[0].size
        if gap(lower, nodes, horizon) <= tolerance:
            return CLOSED
        if spent >= work:
            return MORE
    return FULL


def prove(
    arms: Arms,
    price: Price,
    charges: Charges,
    lower: Lower,
    proof: Proof,
    start: Float[Array, "M"],
    horizon: int,
    upper: float,
    tolerance: float,
    work: int,
) -> tuple[int, float]:
    """Prove that no policy exceeds the lower bound at the start by more than `tolerance`, or raise that bound.

    Trials return to the start after every path through the tree. A proof has a target for each bound, and stays at a
    node until the bound meets the target, or until vectors show that it cannot. Return the reason for the end and the
    upper bound, which is valid in each case.
    """
    proof.spent[0] = 0
    proof.known.clear()
    tries = TRIES
    while tries <= MOST_TRIES:
        low = _best_vector(lower, start, horizon)[0]
        if upper - low <= tolerance:
            return CLOSED, upper
        place = _Place(start, np.log(np.maximum(start, TINY)), 0, horizon, low + tolerance, low)
        found, raised = _bounded(_Problem(arms, price, charges, lower, proof, CLOSE * tolerance, work, tries), place)
        upper = min(upper, found)
        if not _space(lower):
            return FULL, upper
        if proof.spent[0] >= work:
            break
        if raised <= low and upper - low > tolerance:  # given up: neither proved nor refuted
            tries *= 2
    return MORE, upper


class Proof(NamedTuple):
    """State of a proof."""

    spent: Integer[Array, "1"]  # multiplications
    known: dict[int, tuple[float, float]]  # upper and lower bounds at visited beliefs, by key


def new_proof(arms: Arms, lower: Lower, horizon: int) -> Proof:
    """Return an empty state for proofs, one at a time, with these vectors."""
    return Proof(np.zeros(1, np.int64), {})


class _Problem(NamedTuple):
    """Arguments shared by all nodes of a proof."""

    arms: Arms
    price: Price
    charges: Charges
    lower: Lower
    proof: Proof
    close: float  # bounds nearer to a target than this, per mass, count as equal to it
    work: int
    tries: int

    @property
    def over(self) -> bool:
        return bool(self.proof.spent[0] >= self.work or not _space(self.lower))


class _Place(NamedTuple):
    """Node of a proof: a belief, its logarithms, its key, the steps to go, the target and the lower bound."""

    x: Float[Array, "M"]
    logs: Float[Array, "M"]
    key: int
    steps: int
    target: float
    low: float


def _space(lower: Lower) -> bool:
    return bool(lower.counts.max() < lower.vectors.shape[2])


def _bounded(problem: _Problem, at: _Place) -> tuple[float, float]:
    """Return an upper bound, at most the target if that is proved, and the lower bound, raised if it is refuted."""
    values = _priced_arms(problem, at)
    if at.steps == 2:
        return _solved(problem, at, values)
    found, open_ = values[values <= at.target].max(initial=-np.inf), np.flatnonzero(values > at.target).tolist()
    while open_:
        arm = max(open_, key=lambda one: values[one])
        if problem.over:
            break
        up, low = _pressed(problem, at, arm)
        if up > at.target:
            values[arm], at = up, at._replace(low=low)
            break
        found = max(found, up)
        open_.remove(arm)
    return float(max([found, *values[open_]])), at.low


def _priced_arms(problem: _Problem, at: _Place) -> Float[Array, "A"]:
    """Return upper bounds on the Q-values: the arm's bound, and if it exceeds the target those of its children."""
    arms, price, before = problem.arms, problem.price, at.steps - 1
    problem.proof.spent[0] += arms.means[0].size
    mass = at.x.sum()
    entropy = at.x @ (at.logs - price.log_prior) - mass * np.log(max(mass, TINY))
    values = at.x @ problem.charges.planes[at.steps] + price.rates[before] * entropy
    n_values = values_per_arm(arms)
    for arm in np.flatnonzero(values > at.target):
        codes = range(arm * n_values, (arm + 1) * n_values)
        exact = means(arms, at.steps)[arm] @ at.x + sum(_priced_child(problem, at, code) for code in codes)
        values[arm] = min(values[arm], exact)
    return np.asarray(values)


def _priced_child(problem: _Problem, at: _Place, code: int) -> float:
    arms, price, before = problem.arms, problem.price, at.steps - 1
    x = at.x * table(arms, at.steps)[code]
    informed = at.logs - price.log_prior + problem.charges.logs[arms.at[at.steps], code]
    mass = x.sum()
    bound = x @ (price.planes[before] + price.rates[before] * informed)
    return float(min(bound - price.rates[before] * mass * np.log(max(mass, TINY)), plane(arms, x, before)))


def _solved(problem: _Problem, at: _Place, values: Float[Array, "A"]) -> tuple[float, float]:
    """Return the optimal value with two steps to go, or a bound as soon as it is proved to be at most the target."""
    arms, lower = problem.arms, problem.lower
    n_values, highest, best = values_per_arm(arms), -np.inf, -1
    while True:
        arm = int(values.argmax())
        if values[arm] <= max(at.target, highest):
            break
        codes = range(arm * n_values, (arm + 1) * n_values)
        exact = means(arms, 2)[arm] @ at.x
        exact += sum((arms.last @ (at.x * table(arms, 2)[code])).max() for code in codes)
        problem.proof.spent[0] += n_values * arms.last.size
        values[arm] = -np.inf
        if exact > highest:
            highest, best = exact, arm
    low = at.low
    if highest > at.target and highest > low + problem.close * at.x.sum() and _space(lower):
        low = _added(arms, lower, at.x, best, 2)
    return float(max(highest, values.max())), low


def _pressed(problem: _Problem, at: _Place, arm: int) -> tuple[float, float]:
    """Lower an arm's bound to the target by targets for its child beliefs, the loosest first."""
    arms, lower, close = problem.arms, problem.lower, problem.close * at.x.sum()
    n_values = values_per_arm(arms)
    codes = np.arange(arm * n_values, (arm + 1) * n_values)
    children = at.x * table(arms, at.steps)[codes]
    child_keys = [at.key + int(keys(arms, at.steps)[code]) for code in codes]
    mean, known = float(means(arms, at.steps)[arm] @ at.x), problem.proof.known
    ups, lows = np.empty((2, n_values))
    for z, (code, child, key) in enumerate(zip(codes.tolist(), children, child_keys, strict=True)):
        ups[z] = _priced_child(problem, at, code)
        if key in known:
            ups[z], lows[z] = min(ups[z], known[key][0]), known[key][1]
        else:
            lows[z] = _best_vector(lower, child, at.steps - 1)[0]
            problem.proof.spent[0] += child.size * lower.counts[at.steps - 1]
    done, tries = np.zeros(n_values, bool), 0
    while mean + ups.sum() > at.target:
        rest, waiting = at.target - mean - np.where(done, ups, lows).sum(), np.where(done, -np.inf, ups - lows)
        z, hopeless = int(waiting.argmax()), done.all() or rest <= close
        down = mean + lows.sum()
        if problem.over:
            break
        if down >= at.target - close or (hopeless and tries == problem.tries):
            if down > at.low + close:
                return mean + ups.sum(), _added(arms, lower, at.x, arm, at.steps)
            break
        if hopeless:
            tries, done[:] = tries + 1, False
            continue
        done[z], gaps = True, waiting[waiting > -np.inf].sum()
        target = lows[z] + rest * waiting[z] / gaps
        if ups[z] <= target:
            continue
        logs = at.logs + problem.charges.logs[arms.at[at.steps], codes[z]]
        child = _Place(children[z], logs, child_keys[z], at.steps - 1, target, float(lows[z]))
        up, low = _bounded(problem, child)
        up = min(up, known[child_keys[z]][0]) if child_keys[z] in known else up
        known[child_keys[z]] = up, low
        ups[z] = min(ups[z], up)
        if low > lows[z]:
            lows[z] = low
            if up > target and tries < problem.tries:
                done[z], tries = False, tries + 1
    return float(mean + ups.sum()), at.low


def _added(arms: Arms, lower: Lower, x: Float[Array, "M"], arm: int, steps: int) -> float:
    """Add the vector of an arm that is followed by the best existing plans; return its value at x."""
    vector = _backed_up(arms, lower, x, arm, steps)
    _append(lower, steps, int(arms.names[arm]), vector)
    return float(vector @ x)


def gap(lower: Lower, nodes: Nodes, horizon: int) -> float:
    """Return the upper minus the lower bound at the start."""
    return float(nodes.upper[0] - _best_vector(lower, nodes.beliefs[0], horizon)[0])


def room(lower: Lower, upper: Upper, nodes: Nodes, horizon: int, n_values: int) -> bool:
    """Return whether the arrays have capacity for one trial."""
    return bool(
        nodes.counts[0] + horizon <= len(nodes.upper)
        and lower.counts.max() + n_values <= lower.vectors.shape[2]
        and upper.counts.max() + n_values <= upper.drops.shape[1]
    )


def _descend(
    arms: Arms, price: Price, lower: Lower, upper: Upper, nodes: Nodes, horizon: int, tolerance: float
) -> list[int]:
    """Descend from the start by the arm of the highest upper bound and the value with the largest excess; return the
    nodes.
    """
    path, node, steps = [0], 0, horizon
    n_values = values_per_arm(arms)
    while True:
        arm = _refresh(arms, price, upper, nodes, node, steps)
        steps, tolerance = steps - 1, tolerance * SHRINK
        if steps <= 1:
            return path
        excess, chosen = 0.0, -1
        for code in range(arm * n_values, (arm + 1) * n_values):
            child = nodes.beliefs[node] * table(arms, steps + 1)[code]
            key = nodes.keys[node] + keys(arms, steps + 1)[code]
            bound = _upper_value(arms, price, upper, nodes, child, key, steps)
            extra = bound - _best_vector(lower, child, steps)[0] - tolerance * child.sum()
            if extra > excess:
                excess, chosen = extra, code
        if chosen < 0:
            return path
        child = nodes.beliefs[node] * table(arms, steps + 1)[chosen]
        key = nodes.keys[node] + keys(arms, steps + 1)[chosen]
        node = find(nodes, key, child)
        if node < 0:
            node = add_node(arms, nodes, child, key, steps)
        path.append(node)


def _refresh(arms: Arms, price: Price, upper: Upper, nodes: Nodes, node: int, steps: int) -> int:
    """Recompute the highest Q-values until the highest is fresh; update the node's upper bound and return that arm."""
    values, fresh = nodes.values[node], np.zeros(arms.means.shape[1], bool)
    n_values = values_per_arm(arms)
    while not nodes.solved[node]:
        arm = int(values.argmax())
        if fresh[arm]:
            break
        value = means(arms, steps)[arm] @ nodes.beliefs[node]
        for code in range(arm * n_values, (arm + 1) * n_values):
            child = nodes.beliefs[node] * table(arms, steps)[code]
            key = nodes.keys[node] + keys(arms, steps)[code]
            value += _upper_value(arms, price, upper, nodes, child, key, steps - 1)
        values[arm] = min(values[arm], value)
        fresh[arm] = True
    nodes.upper[node] = min(nodes.upper[node], values.max())
    nodes.solved[node] |= steps <= 2
    return int(values.argmax())


def _upper_value(
    arms: Arms, price: Price, upper: Upper, nodes: Nodes, x: Float[Array, "M"], key: int, steps: int
) -> float:
    if steps == 1:
        return float((arms.last @ x).max())
    bound = min(plane(arms, x, steps) + sawtooth(arms, price, upper, x, steps), price_bound(price, x, steps))
    node = find(nodes, key, x)
    return float(bound if node < 0 else min(bound, nodes.upper[node]))


def sawtooth(arms: Arms, price: Price, upper: Upper, x: Float[Array, "M"], steps: int) -> float:
    """Return by how much the points lower the bound at x below the known-type value."""
    points, drops = upper.beliefs[steps].T, upper.drops[steps]
    weights = arms.scale[steps] * arms.spread[steps]
    each = [knapsack(points[i], drops[i], weights, x) for i in range(upper.counts[steps])]
    if len(arms.stays) and price.rates[steps] > 0:
        each += [priced_rest(arms, price, points[i], drops[i], x, steps) for i in range(upper.counts[steps])]
    return min(each, default=0.0)


def knapsack(point: Float[Array, "M"], drop: float, weights: Float[Array, "M"], x: Float[Array, "M"]) -> float:
    """Return min over c >= 0 of c * drop + weights . max(0, c * point - x), attained at one of the ratios."""
    return _best_factor(point, drop, weights, x)[1]


def _best_factor(
    point: Float[Array, "M"], drop: float, weights: Float[Array, "M"], x: Float[Array, "M"]
) -> tuple[float, float]:
    """Return the best factor of a point, and its value."""
    ratios = np.append(x / np.maximum(point, TINY), 0.0)
    ratios = ratios[np.isfinite(ratios)]
    values = ratios * drop + np.maximum(0, np.outer(ratios, point) - x) @ weights
    return float(ratios[values.argmin()]), float(values.min())


def priced_rest(
    arms: Arms, price: Price, point: Float[Array, "M"], drop: float, x: Float[Array, "M"], steps: int
) -> float:
    """Return the `knapsack` with the information bound on the rest of x, for two factors, of which any is valid."""
    weights = arms.scale[steps] * arms.spread[steps]
    best = _best_factor(point, drop, weights, x)[0]
    each = []
    for factor in (best, LESS * best):
        rest = np.maximum(0, x - factor * point)
        cheaper = max(0.0, plane(arms, rest, steps) - price_bound(price, rest, steps))
        each.append(float(factor * drop + np.maximum(0, factor * point - x) @ weights - cheaper))
    return min(each)


def _best_vector(lower: Lower, x: Float[Array, "M"], steps: int) -> tuple[float, int]:
    values = x @ lower.vectors[steps, :, : lower.counts[steps]]
    best = int(values.argmax())
    return float(values[best]), best


def _tighten_upper(
    arms: Arms, price: Price, upper: Upper, nodes: Nodes, node: int, steps: int, tolerance: float
) -> None:
    """Store the node's upper bound as a sawtooth point, if it improves on the existing points."""
    x, mass = nodes.beliefs[node], nodes.beliefs[node].sum()
    drop = (nodes.upper[node] - plane(arms, x, steps)) / mass
    point = nodes.points[node]
    if point >= 0:
        upper.drops[steps, point] = min(upper.drops[steps, point], drop)
    elif drop * mass < sawtooth(arms, price, upper, x, steps) - KEEP * tolerance * mass:
        point = upper.counts[steps]
        upper.beliefs[steps, :, point] = upper.screen[steps, :, point] = x / mass
        upper.drops[steps, point] = drop
        upper.counts[steps] += 1
        nodes.points[node] = point


def _raise_lower(arms: Arms, lower: Lower, nodes: Nodes, node: int, steps: int, tolerance: float) -> None:
    """Back up the arm of the highest upper bound at the node; keep the vector if it improves."""
    x, arm = nodes.beliefs[node], int(nodes.values[node].argmax())
    vector = _backed_up(arms, lower, x, arm, steps)
    if vector @ x > _best_vector(lower, x, steps)[0] + KEEP * tolerance * x.sum():
        _append(lower, steps, int(arms.names[arm]), vector)


def _backed_up(arms: Arms, lower: Lower, x: Float[Array, "M"], arm: int, steps: int) -> Float[Array, "M"]:
    """Return the vector of an arm that is followed by the best existing plans."""
    n_values = values_per_arm(arms)
    vector = means(arms, steps)[arm].copy()
    for code in range(arm * n_values, (arm + 1) * n_values):
        child = x * table(arms, steps)[code]
        if steps == 2:
            later = arms.last[int((arms.last @ child).argmax())]
        else:
            later = lower.vectors[steps - 1, :, _best_vector(lower, child, steps - 1)[1]]
        vector += table(arms, steps)[code] * later
    return vector


def _append(lower: Lower, steps: int, arm: int, vector: Float[Array, "M"]) -> None:
    lower.vectors[steps, :, lower.counts[steps]] = vector
    lower.arms[steps, lower.counts[steps]] = arm
    lower.counts[steps] += 1


def find(nodes: Nodes, key: int, x: Float[Array, "M"]) -> int:
    """Return the node with this key and belief, or -1."""
    mask = len(nodes.slots) - 1
    slot = int(key) & mask
    while nodes.slots[slot] >= 0:
        node = int(nodes.slots[slot])
        if nodes.keys[node] == key and np.abs(nodes.beliefs[node] - x).max() <= 1e-9 * x.max():
            return node
        slot = (slot + 1) & mask
    return -1
