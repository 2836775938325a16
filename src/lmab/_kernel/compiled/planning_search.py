"""Heuristic search between two bounds, in Numba. See `reference.planning_search`, which it follows step by step."""

from __future__ import annotations

import numpy as np
from numba import njit

from ..reference.planning_search import CAP, CLOSED, FULL, KEEP, MORE
from .planning_lookahead import FAST, add_means, best_continuations

BLOCK = 256  # points or vectors handled at once: a block of every context's row stays in the first-level cache
LOW = -1e300
fast = njit(cache=True, fastmath=FAST, error_model="numpy")


@fast
def run_trials(arms, lower, upper, nodes, horizon, tolerance, work):
    """Trials until the bounds at the start differ by at most `tolerance`, `work` is spent or an array is full."""
    n_arms, n_contexts, n_codes = arms.means.shape[0], arms.means.shape[1], arms.table.shape[0]
    n_values = n_codes // n_arms
    fresh = np.zeros(n_arms, np.bool_)
    child, vector, later = np.empty(n_contexts), np.empty(n_contexts), np.empty(n_contexts)
    leaves = np.empty((n_values, n_contexts))
    leaf_arms = np.empty(n_values, np.int64)
    scratch = np.empty((3, max(BLOCK, n_codes)))
    path = np.empty(horizon + 1, np.int64)
    spent = np.zeros(1, np.int64)
    while True:
        lowest, _ = _best_vector(lower, nodes.beliefs[0], horizon, scratch)
        if nodes.upper[0] - lowest <= tolerance:
            return CLOSED
        if not _room(lower, upper, nodes, horizon, n_values):
            return FULL
        if spent[0] >= work:
            return MORE
        length = _descend(arms, lower, upper, nodes, horizon, tolerance, path, fresh, child, scratch, spent)
        for depth in range(length - 1, -1, -1):
            node, steps = path[depth], horizon - depth
            if depth < length - 1:
                _refresh(arms, upper, nodes, node, steps, fresh, child, scratch, spent)
            _tighten_upper(arms, upper, nodes, node, steps, tolerance, child, scratch)
            _raise_lower(arms, lower, nodes, node, steps, tolerance, vector, later, leaves, leaf_arms, child, scratch)


@fast
def _room(lower, upper, nodes, horizon, n_values):
    if nodes.counts[0] + horizon > len(nodes.upper):
        return False
    for steps in range(len(lower.counts)):
        if lower.counts[steps] + n_values > lower.vectors.shape[2] or upper.counts[steps] + 1 > upper.drops.shape[1]:
            return False
    return True


@fast
def _descend(arms, lower, upper, nodes, horizon, tolerance, path, fresh, child, scratch, spent):
    n_values = arms.table.shape[0] // arms.means.shape[0]
    node, steps, length = 0, horizon, 1
    path[0] = 0
    while True:
        arm = _refresh(arms, upper, nodes, node, steps, fresh, child, scratch, spent)
        steps -= 1
        if steps <= 2:
            return length
        excess, chosen = 0.0, -1
        for code in range(arm * n_values, (arm + 1) * n_values):
            mass = _child(nodes.beliefs[node], arms.table[code], child)
            bound = _upper_value(
                arms, upper, nodes, child, mass, nodes.keys[node] + arms.keys[code], steps, scratch, spent
            )
            value, _ = _best_vector(lower, child, steps, scratch)
            spent[0] += lower.counts[steps] * len(child)
            extra = bound - value - tolerance * mass
            if extra > excess:
                excess, chosen = extra, code
        if chosen < 0:
            return length
        _child(nodes.beliefs[node], arms.table[chosen], child)
        key = nodes.keys[node] + arms.keys[chosen]
        node = _find(nodes, key, child)
        if node < 0:
            node = _add_node(arms, nodes, child, key, steps)
        path[length] = node
        length += 1


@fast
def _child(x, likelihood, child):
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
def _argmax(values):
    best, where = values[0], 0
    for i in range(1, len(values)):
        if values[i] > best:
            best, where = values[i], i
    return where


@fast
def _refresh(arms, upper, nodes, node, steps, fresh, child, scratch, spent):
    values, x = nodes.values[node], nodes.beliefs[node]
    arm = _argmax(values)
    if nodes.solved[node]:
        return arm
    n_values = arms.table.shape[0] // arms.means.shape[0]
    fresh[:] = False
    while not fresh[arm]:
        value = _dot(arms.means[arm], x)
        for code in range(arm * n_values, (arm + 1) * n_values):
            mass = _child(x, arms.table[code], child)
            key = nodes.keys[node] + arms.keys[code]
            value += _upper_value(arms, upper, nodes, child, mass, key, steps - 1, scratch, spent)
        values[arm] = min(values[arm], value)
        fresh[arm] = True
        arm = _argmax(values)
    nodes.upper[node] = min(nodes.upper[node], values[arm])
    nodes.solved[node] = steps <= 3
    return arm


@fast
def _upper_value(arms, upper, nodes, x, mass, key, steps, scratch, spent):
    if steps == 1:
        spent[0] += arms.last.size
        best = LOW
        for k in range(len(arms.last)):
            best = max(best, _dot(arms.last[k], x))
        return best
    if steps == 2:
        spent[0] += arms.table.shape[0] * arms.last.size
        return _two_steps(arms, x, scratch)[0]
    spent[0] += upper.counts[steps] * len(x)
    bound = steps * _dot(arms.corner, x) + _sawtooth(upper, x, mass, steps, scratch)
    node = _find(nodes, key, x)
    return bound if node < 0 else min(bound, nodes.upper[node])


@fast
def _sawtooth(upper, x, mass, steps, scratch):
    """How far below the corner plane the points push the bound at x."""
    inverse, drops, count = upper.inverse[steps], upper.drops[steps], upper.counts[steps]
    ratios, floor, best = scratch[0], mass / CAP, 0.0
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        factor, row = max(x[0], floor), inverse[0, start : start + size]
        for i in range(size):
            ratios[i] = factor * row[i]
        for m in range(1, len(x)):
            factor, row = max(x[m], floor), inverse[m, start : start + size]
            for i in range(size):
                ratios[i] = min(ratios[i], factor * row[i])
        drop = drops[start : start + size]
        for i in range(size):
            best = min(best, ratios[i] * drop[i])
    return best


@fast
def _best_vector(lower, x, steps, scratch):
    vectors, count = lower.vectors[steps], lower.counts[steps]
    sums, best, where = scratch[0], LOW, 0
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        row = vectors[0, start : start + size]
        for i in range(size):
            sums[i] = x[0] * row[i]
        for m in range(1, len(x)):
            row = vectors[m, start : start + size]
            for i in range(size):
                sums[i] += x[m] * row[i]
        top = LOW
        for i in range(size):
            top = max(top, sums[i])
        if top > best:
            best = top
            for i in range(size):
                if sums[i] == top:
                    where = start + i
                    break
    return best, where


@fast
def _two_steps(arms, x, scratch):
    """V_2 at x and the arm that reaches it; scratch[1] is left with every code's best continuation."""
    n_codes, n_arms = arms.table.shape[0], arms.means.shape[0]
    best, values = scratch[1][:n_codes], scratch[2][:n_arms]
    best_continuations(x, arms.columns, arms.last, scratch[0][:n_codes], best)
    add_means(x, arms.means, best, values)
    arm = _argmax(values)
    return values[arm], arm


@fast
def _last_step(arms, x):
    best, where = LOW, 0
    for k in range(len(arms.last)):
        value = _dot(arms.last[k], x)
        if value > best:
            best, where = value, k
    return where


@fast
def _leaf_vector(arms, x, steps, later, scratch):
    """The vector of the plan that reaches V_1 or V_2 at x, into `later`; returns its first arm."""
    n_contexts = len(x)
    if steps == 1:
        best = _last_step(arms, x)
        later[:] = arms.last[best]
        return arms.last_arms[best]
    _, arm = _two_steps(arms, x, scratch)
    n_values = arms.table.shape[0] // arms.means.shape[0]
    grandchild = np.empty(n_contexts)
    later[:] = arms.means[arm]
    for code in range(arm * n_values, (arm + 1) * n_values):
        _child(x, arms.table[code], grandchild)
        best = _last_step(arms, grandchild)
        for m in range(n_contexts):
            later[m] += arms.table[code, m] * arms.last[best, m]
    return arm


@fast
def _tighten_upper(arms, upper, nodes, node, steps, tolerance, child, scratch):
    x, mass = nodes.beliefs[node], 0.0
    for m in range(len(x)):
        mass += x[m]
    drop = (nodes.upper[node] - steps * _dot(arms.corner, x)) / mass
    point = nodes.points[node]
    if point >= 0:
        upper.drops[steps, point] = min(upper.drops[steps, point], drop)
    elif drop * mass < _sawtooth(upper, x, mass, steps, scratch) - KEEP * tolerance * mass:
        point = upper.counts[steps]
        for m in range(len(x)):
            upper.inverse[steps, m, point] = min(CAP, mass / max(x[m], mass / CAP))
        upper.drops[steps, point] = drop
        upper.counts[steps] += 1
        nodes.points[node] = point


@fast
def _raise_lower(arms, lower, nodes, node, steps, tolerance, vector, later, leaves, leaf_arms, child, scratch):
    x, arm = nodes.beliefs[node], _argmax(nodes.values[node])
    n_values, n_contexts = arms.table.shape[0] // arms.means.shape[0], len(x)
    vector[:] = arms.means[arm]
    for z in range(n_values):
        code = arm * n_values + z
        _child(x, arms.table[code], child)
        if steps - 1 <= 2:
            leaf_arms[z] = _leaf_vector(arms, child, steps - 1, later, scratch)
            leaves[z] = later
        else:
            _, best = _best_vector(lower, child, steps - 1, scratch)
            for m in range(n_contexts):
                later[m] = lower.vectors[steps - 1, m, best]
        for m in range(n_contexts):
            vector[m] += arms.table[code, m] * later[m]
    mass = 0.0
    for m in range(n_contexts):
        mass += x[m]
    current, _ = _best_vector(lower, x, steps, scratch)
    if _dot(vector, x) > current + KEEP * tolerance * mass:
        if steps == 3:
            for z in range(n_values):
                _append(lower, 2, leaf_arms[z], leaves[z])
        _append(lower, steps, arm, vector)


@fast
def _append(lower, steps, arm, vector):
    count = lower.counts[steps]
    for m in range(len(vector)):
        lower.vectors[steps, m, count] = vector[m]
    lower.arms[steps, count] = arm
    lower.counts[steps] = count + 1


@fast
def _find(nodes, key, x):
    mask = len(nodes.slots) - 1
    slot = key & mask
    while nodes.slots[slot] >= 0:
        node = nodes.slots[slot]
        if nodes.keys[node] == key and _same(nodes.beliefs[node], x):
            return node
        slot = (slot + 1) & mask
    return -1


@fast
def _same(left, right):
    top, difference = 0.0, 0.0
    for m in range(len(left)):
        top = max(top, right[m])
        difference = max(difference, abs(left[m] - right[m]))
    return difference <= 1e-9 * top


@fast
def _add_node(arms, nodes, x, key, steps):
    node = nodes.counts[0]
    nodes.counts[0] = node + 1
    corner = _dot(arms.corner, x)
    for m in range(len(x)):
        nodes.beliefs[node, m] = x[m]
    for arm in range(len(arms.means)):
        nodes.values[node, arm] = _dot(arms.means[arm], x) + (steps - 1) * corner
    nodes.upper[node] = steps * corner
    nodes.points[node] = -1
    nodes.solved[node] = False
    nodes.keys[node] = key
    mask = len(nodes.slots) - 1
    slot = key & mask
    while nodes.slots[slot] >= 0:
        slot = (slot + 1) & mask
    nodes.slots[slot] = node
    return node
