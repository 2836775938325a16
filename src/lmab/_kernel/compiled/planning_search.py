"""Heuristic search between two bounds, in Numba. See `reference.planning_search`: what is computed and why.

Beyond the reference, an arm's bound is only computed as far as needed to see that another arm's is higher. Functions
are few and loops plain because each caller compiles what it calls once more.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..reference.planning_search import CAP, CLOSED, FULL, KEEP, MORE
from .planning_lookahead import FAST, add_means, best_continuations

BLOCK = 256  # points or vectors handled at once: a block of every context's row stays in the first-level cache
LOW, HIGH = -1e300, 1e300

fast = njit(cache=True, fastmath=FAST, error_model="numpy")
part = njit(inline="always", fastmath=FAST, error_model="numpy")  # compiled as a part of its only caller


@fast
def run_trials(arms, lower, upper, nodes, horizon, tolerance, work):
    """Trials until the bounds at the start differ by at most `tolerance`, `work` is spent or an array is full."""
    n_arms, n_contexts, n_codes = arms.means.shape[0], arms.means.shape[1], arms.table.shape[0]
    n_values = n_codes // n_arms
    fresh = np.zeros(n_arms, np.bool_)
    favourites = np.zeros(horizon + 1, np.int64)  # the best arm of the last node with so many steps to go
    children, bounds = np.empty((n_values, n_contexts)), np.empty((n_arms, n_values))
    scratch = np.empty((3, max(BLOCK, n_codes)))
    path = np.zeros(horizon + 1, np.int64)
    spent = np.zeros(1, np.int64)
    while True:
        lowest, _ = _best_vector(lower, nodes.beliefs[0], horizon, scratch)
        if nodes.upper[0] - lowest <= tolerance:
            return CLOSED
        if not _room(lower, upper, nodes, horizon, n_values):
            return FULL
        if spent[0] >= work:
            return MORE
        depth, down = 0, True
        while depth >= 0:
            node, steps = path[depth], horizon - depth
            known = nodes.solved[node]
            arm = _refresh(arms, upper, nodes, node, steps, favourites, fresh, children, bounds, scratch, spent)
            if down:
                child = _widest(arms, lower, nodes, node, arm, steps - 1, tolerance, children, bounds, scratch, spent)
                down = child >= 0
            if down:
                depth += 1
                path[depth] = child
            else:
                _tighten_upper(arms, upper, nodes, node, arm, steps, known, tolerance, children, bounds, scratch)
                _raise_lower(arms, lower, nodes, node, arm, steps, tolerance, children, scratch, spent)
                depth -= 1


@part
def _room(lower, upper, nodes, horizon, n_values):
    enough = nodes.counts[0] + horizon <= len(nodes.upper)
    for steps in range(len(lower.counts)):
        enough &= lower.counts[steps] + n_values <= lower.vectors.shape[2]
        enough &= upper.counts[steps] + n_values <= upper.drops.shape[1]
    return enough


@part
def _refresh(arms, upper, nodes, node, steps, favourites, fresh, children, bounds, scratch, spent):
    """Recompute the highest Q-values until the highest is fresh; the node's upper bound follows. Returns that arm."""
    values = nodes.values[node]
    if nodes.solved[node]:
        return _argmax(values)
    for arm in range(len(fresh)):
        fresh[arm] = False
    arm, best = favourites[steps], LOW
    while not fresh[arm]:
        value = _arm_value(arms, upper, nodes, node, arm, steps - 1, best, children, bounds, scratch, spent)
        values[arm] = min(values[arm], value)
        best = max(best, values[arm])
        fresh[arm] = True
        arm = _argmax(values)
    nodes.upper[node] = min(nodes.upper[node], values[arm])
    nodes.solved[node] = steps <= 3
    favourites[steps] = arm
    return arm


@part
def _arm_value(arms, upper, nodes, node, arm, steps, enough, children, bounds, scratch, spent):
    """An upper bound on the arm's Q-value, `steps` to go after it; as soon as it is below `enough` it will do.

    Leaves its codes' shares in `bounds`.
    """
    x, n_values, n_contexts = nodes.beliefs[node], children.shape[0], children.shape[1]
    mean = _dot(arms.means[arm], x)
    value = mean
    for z in range(n_values):
        mass = _child(x, arms.table[arm * n_values + z], children[z])
        floor = mass / CAP
        for m in range(n_contexts):
            children[z, m] = max(children[z, m], floor)
        bounds[arm, z] = steps * _dot(arms.corner, children[z])
        if steps > 2:
            known = _find(nodes, nodes.keys[node] + arms.keys[arm * n_values + z], children[z])
            if known >= 0:
                bounds[arm, z] = min(bounds[arm, z], nodes.upper[known])
        value += bounds[arm, z]
    # Newest points first: they are the tightest, and nearest to where the search is now.
    stop = upper.counts[steps]
    while stop > 0 and value > enough:
        start = max(0, stop - BLOCK)
        value = mean
        for z in range(n_values):
            plane = steps * _dot(arms.corner, children[z])
            drop = _sawtooth(upper.inverse[steps], upper.drops[steps], start, stop, children[z], scratch[0])
            bounds[arm, z] = min(bounds[arm, z], plane + drop)
            value += bounds[arm, z]
        spent[0] += (stop - start) * n_contexts * n_values
        stop = start
    if steps <= 2 and value > enough:
        value = mean
        for z in range(n_values):
            bounds[arm, z] = _exact(arms, children[z], steps, scratch)
            value += bounds[arm, z]
        spent[0] += n_values * arms.table.shape[0] * arms.last.size
    return value


@fast
def _sawtooth(inverse, drops, start, stop, x, ratios):
    """How far below the corner plane the points from `start` to `stop` push the bound at x."""
    size, best = stop - start, 0.0
    row = inverse[0, start:stop]
    for i in range(size):
        ratios[i] = x[0] * row[i]
    for m in range(1, len(x)):
        row, factor = inverse[m, start:stop], x[m]
        for i in range(size):
            ratios[i] = min(ratios[i], factor * row[i])
    row = drops[start:stop]
    for i in range(size):
        best = min(best, ratios[i] * row[i])
    return best


@part
def _exact(arms, x, steps, scratch):
    """V_1 or V_2 at x."""
    if steps == 1:
        return _dot(arms.last[_last_step(arms, x)], x)
    return scratch[2][_two_steps(arms, x, scratch)]


@fast
def _two_steps(arms, x, scratch):
    """The arm that reaches V_2 at x; its value is left in scratch[2]."""
    n_codes, n_arms = arms.table.shape[0], arms.means.shape[0]
    best_continuations(x, arms.columns, arms.last, scratch[0][:n_codes], scratch[1][:n_codes])
    add_means(x, arms.means, scratch[1][:n_codes], scratch[2][:n_arms])
    return _argmax(scratch[2][:n_arms])


@fast
def _last_step(arms, x):
    """The arm, of those for the last step, that reaches V_1 at x."""
    best, where = LOW, 0
    for k in range(len(arms.last)):
        value = _dot(arms.last[k], x)
        if value > best:
            best, where = value, k
    return where


@part
def _widest(arms, lower, nodes, node, arm, steps, tolerance, children, bounds, scratch, spent):
    """The child of `arm` whose bounds are furthest apart beyond what is tolerated, as a node; -1 if none is."""
    if steps <= 2:
        return -1
    excess, chosen = 0.0, -1
    for z in range(children.shape[0]):
        mass = _child(nodes.beliefs[node], arms.table[arm * children.shape[0] + z], children[z])
        value, _ = _best_vector(lower, children[z], steps, scratch)
        extra = bounds[arm, z] - value - tolerance * mass
        if extra > excess:
            excess, chosen = extra, z
    spent[0] += children.size * lower.counts[steps]
    if chosen < 0:
        return -1
    key = nodes.keys[node] + arms.keys[arm * children.shape[0] + chosen]
    child = _find(nodes, key, children[chosen])
    return child if child >= 0 else _add_node(arms, nodes, children[chosen], key, steps)


@part
def _tighten_upper(arms, upper, nodes, node, arm, steps, known, tolerance, children, bounds, scratch):
    """The node's upper bound as a sawtooth point, where it improves on the points there are."""
    x = nodes.beliefs[node]
    mass, plane = _sum(x), steps * _dot(arms.corner, x)
    point, drop = nodes.points[node], (nodes.upper[node] - plane) / mass
    if point >= 0:
        upper.drops[steps, point] = min(upper.drops[steps, point], drop)
        return
    current = 0.0
    for start in range(0, upper.counts[steps], BLOCK):
        stop = min(start + BLOCK, upper.counts[steps])
        current = min(current, _sawtooth(upper.inverse[steps], upper.drops[steps], start, stop, x, scratch[0]))
    if drop * mass < current - KEEP * tolerance * mass:
        nodes.points[node] = _add_point(upper, steps, x, mass, drop)
    if steps == 3 and not known:  # solved just now: what it knows of V_2 spares others the exact computation
        for z in range(children.shape[0]):
            mass = _child(x, arms.table[arm * children.shape[0] + z], children[z])
            if mass > 0.0:
                drop = bounds[arm, z] / mass - 2 * _dot(arms.corner, children[z]) / mass
                _add_point(upper, steps - 1, children[z], mass, drop)


@fast
def _add_point(upper, steps, x, mass, drop):
    point = upper.counts[steps]
    for m in range(len(x)):
        upper.inverse[steps, m, point] = mass / max(x[m], mass / CAP)
    upper.drops[steps, point] = drop
    upper.counts[steps] = point + 1
    return point


@part
def _raise_lower(arms, lower, nodes, node, arm, steps, tolerance, children, scratch, spent):
    """Back up `arm` at the node; keep the vector, and those of its leaves, if it gains."""
    x, n_values, n_contexts = nodes.beliefs[node], children.shape[0], children.shape[1]
    later, firsts = np.empty((n_values, n_contexts)), np.empty(n_values, np.int64)
    vector = np.empty(n_contexts)
    for m in range(n_contexts):
        vector[m] = arms.means[arm, m]
    for z in range(n_values):
        likelihood = arms.table[arm * n_values + z]
        _child(x, likelihood, children[z])
        if steps - 1 <= 2:
            firsts[z] = _leaf_vector(arms, children[z], steps - 1, later[z], scratch)
        else:
            _, best = _best_vector(lower, children[z], steps - 1, scratch)
            for m in range(n_contexts):
                later[z, m] = lower.vectors[steps - 1, m, best]
        for m in range(n_contexts):
            vector[m] += likelihood[m] * later[z, m]
    spent[0] += children.size * lower.counts[steps]
    current, _ = _best_vector(lower, x, steps, scratch)
    if _dot(vector, x) > current + KEEP * tolerance * _sum(x):
        if steps == 3:
            for z in range(n_values):
                _append(lower, steps - 1, firsts[z], later[z])
        _append(lower, steps, arms.names[arm], vector)


@part
def _leaf_vector(arms, x, steps, later, scratch):
    """The vector of the plan that reaches V_1 or V_2 at x, into `later`; returns its first arm's name."""
    if steps == 1:
        best = _last_step(arms, x)
        for m in range(len(x)):
            later[m] = arms.last[best, m]
        return arms.last_names[best]
    arm = _two_steps(arms, x, scratch)
    n_values = arms.table.shape[0] // arms.means.shape[0]
    grandchild = np.empty(len(x))
    for m in range(len(x)):
        later[m] = arms.means[arm, m]
    for code in range(arm * n_values, (arm + 1) * n_values):
        _child(x, arms.table[code], grandchild)
        best = _last_step(arms, grandchild)
        for m in range(len(x)):
            later[m] += arms.table[code, m] * arms.last[best, m]
    return arms.names[arm]


@fast
def _append(lower, steps, name, vector):
    count = lower.counts[steps]
    for m in range(len(vector)):
        lower.vectors[steps, m, count] = vector[m]
    lower.arms[steps, count] = name
    lower.counts[steps] = count + 1


@fast
def _best_vector(lower, x, steps, scratch):
    """max_i vectors[steps, :, i] . x, and the i that reaches it."""
    vectors, count, sums = lower.vectors[steps], lower.counts[steps], scratch[0]
    best, where = LOW, 0
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        row = vectors[0, start : start + size]
        for i in range(size):
            sums[i] = x[0] * row[i]
        for m in range(1, len(x)):
            row, factor = vectors[m, start : start + size], x[m]
            for i in range(size):
                sums[i] += factor * row[i]
        top = LOW
        for i in range(size):
            top = max(top, sums[i])
        if top > best:
            best = top
            i = 0
            while sums[i] != top:
                i += 1
            where = start + i
    return best, where


@fast
def _find(nodes, key, x):
    """The node with this key and belief, or -1."""
    mask = len(nodes.slots) - 1
    slot = key & mask
    while nodes.slots[slot] >= 0:
        node = nodes.slots[slot]
        if nodes.keys[node] == key:
            top, difference = 0.0, 0.0
            for m in range(len(x)):
                top = max(top, x[m])
                difference = max(difference, abs(nodes.beliefs[node, m] - x[m]))
            if difference <= 1e-9 * top:
                return node
        slot = (slot + 1) & mask
    return -1


@part
def _add_node(arms, nodes, x, key, steps):
    """A new node with the bounds of knowing the context from the next step on."""
    node, corner, mask = nodes.counts[0], _dot(arms.corner, x), len(nodes.slots) - 1
    nodes.counts[0] = node + 1
    for m in range(len(x)):
        nodes.beliefs[node, m] = x[m]
    for arm in range(len(arms.means)):
        nodes.values[node, arm] = _dot(arms.means[arm], x) + (steps - 1) * corner
    nodes.upper[node], nodes.points[node] = steps * corner, -1
    nodes.solved[node], nodes.keys[node] = False, key
    slot = key & mask
    while nodes.slots[slot] >= 0:
        slot = (slot + 1) & mask
    nodes.slots[slot] = node
    return node


@fast
def _child(x, likelihood, child):
    """child = x * likelihood; returns its sum."""
    mass = 0.0
    for m in range(len(x)):
        child[m] = x[m] * likelihood[m]
        mass += child[m]
    return mass


@fast
def _dot(left, right):
    total = 0.0
    for m in range(len(left)):
        total += left[m] * right[m]
    return total


@fast
def _sum(x):
    total = 0.0
    for m in range(len(x)):
        total += x[m]
    return total


@fast
def _argmax(values):
    best, where = values[0], 0
    for i in range(1, len(values)):
        if values[i] > best:
            best, where = values[i], i
    return where
