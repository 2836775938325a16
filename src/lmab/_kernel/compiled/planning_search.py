"""Heuristic search between two bounds, in Numba; `reference.planning_search` says what is computed and why.

Beyond the reference, an arm's bound is only computed as far as needed to see that another arm's is higher, and a node
remembers what its bounds already know. Written so that it compiles in seconds: functions are parts of their callers
where they can be, and take an array and a row rather than a view of the row.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..reference.planning_search import CAP, CLOSED, FULL, KEEP, MORE, SHRINK
from .planning_lookahead import FAST

BLOCK = 256  # points or vectors handled at once: a block of every context's row stays in the first-level cache
NEWS = 0.02  # a point that falls by this fraction of the tolerated error is news for nodes that knew it
LOW = -1e300

fast = njit(cache=True, fastmath=FAST, error_model="numpy")
plain = njit(cache=True, error_model="numpy")  # short sums over contexts: vectors would only cost compile time
part = njit(inline="always", fastmath=FAST, error_model="numpy")  # compiled as a part of its only caller


@fast
def run_trials(arms, lower, upper, nodes, horizon, tolerance, work):
    """Trials until the bounds at the start differ by at most `tolerance`, `work` is spent or an array is full."""
    n_arms, n_contexts = arms.means.shape
    n_values = arms.table.shape[0] // n_arms
    fresh = np.zeros(n_arms, np.bool_)
    favourites = np.zeros(horizon + 1, np.int64)  # the best arm of the last node with so many steps to go
    children, planes = np.empty((n_values, n_contexts)), np.empty(n_values)
    scratch = np.empty(max(BLOCK, len(arms.last)))
    path = np.zeros(horizon + 1, np.int64)
    spent = np.zeros(1, np.int64)
    while _room(lower, upper, nodes, horizon, n_values):
        depth, down, lowest = 0, True, LOW
        while depth >= 0:
            node, steps, tolerated = path[depth], horizon - depth, tolerance * SHRINK**depth
            known = nodes.solved[node]
            arm = _refresh(arms, upper, nodes, node, steps, favourites, fresh, children, planes, scratch, spent)
            if down:
                child = _widest(arms, lower, nodes, node, arm, steps - 1, tolerated * SHRINK, children, scratch, spent)
                down = child >= 0
            if down:
                depth += 1
                path[depth] = child
            else:
                _tighten_upper(arms, upper, nodes, node, arm, steps, known, tolerated, children, scratch)
                lowest = _raise_lower(arms, lower, nodes, node, arm, steps, tolerated, children, scratch, spent)
                depth -= 1
        if nodes.upper[0] - lowest <= tolerance:
            return CLOSED
        if spent[0] >= work:
            return MORE
    return FULL


@part
def _room(lower, upper, nodes, horizon, n_values):
    enough = nodes.counts[0] + horizon <= len(nodes.upper)
    for steps in range(len(lower.counts)):
        enough &= lower.counts[steps] + n_values <= lower.vectors.shape[2]
        enough &= upper.counts[steps] + n_values <= upper.drops.shape[1]
    return enough


@part
def _refresh(arms, upper, nodes, node, steps, favourites, fresh, children, planes, scratch, spent):
    """Recompute the highest Q-values until the highest is fresh; the node's upper bound follows. Returns that arm."""
    values = nodes.values
    arm = _argmax(values, node)
    if not nodes.solved[node]:
        for other in range(len(fresh)):
            fresh[other] = False
        arm, best = favourites[steps], LOW
        while not fresh[arm]:
            value = _arm_value(arms, upper, nodes, node, arm, steps - 1, best, children, planes, scratch, spent)
            values[node, arm] = min(values[node, arm], value)
            best = max(best, values[node, arm])
            fresh[arm] = True
            arm = _argmax(values, node)
        nodes.upper[node] = min(nodes.upper[node], values[node, arm])
        nodes.solved[node] = steps <= 3
        favourites[steps] = arm
    return arm


@part
def _arm_value(arms, upper, nodes, node, arm, steps, enough, children, planes, scratch, spent):
    """An upper bound on the arm's Q-value, `steps` to go after it; as soon as it is below `enough` it will do.

    The node remembers every code's share in it and which points, from `low` to `high`, these already know.
    """
    n_values, n_contexts, shares, first = children.shape[0], children.shape[1], nodes.shares, arm * children.shape[0]
    low, high, count = nodes.low[node, arm], nodes.high[node, arm], upper.counts[steps]
    mean = _dot(arms.means, arm, nodes.beliefs, node)
    value = mean
    for z in range(n_values):
        mass = _child(nodes.beliefs, node, arms.table, first + z, children, z)
        for m in range(n_contexts):
            children[z, m] = max(children[z, m], mass / CAP)
        planes[z] = steps * _plane(arms.corner, children, z)
        if high < 0:
            shares[node, first + z] = planes[z]
        if steps > 2:
            known = _find(nodes, nodes.keys[node] + arms.keys[first + z], children, z)
            if known >= 0:
                shares[node, first + z] = min(shares[node, first + z], nodes.upper[known])
        value += shares[node, first + z]
    if high < 0:
        low, high = count, count
    floor = max(0, count - 2 * BLOCK) if steps == 2 else 0  # beyond that, V_2 itself is cheaper
    while value > enough and (high < count or low > floor):
        # What is new since the last time; then the rest from the newest on: near to where the search is now.
        if high < count:
            start, stop = high, min(high + BLOCK, count)
            high = stop
        else:
            start, stop = max(floor, low - BLOCK), low
            low = start
        value = mean
        for z in range(n_values):
            drop = _sawtooth(upper.inverse, upper.drops, steps, start, stop, children, z, scratch)
            shares[node, first + z] = min(shares[node, first + z], planes[z] + drop)
            value += shares[node, first + z]
        spent[0] += (stop - start) * n_contexts * n_values
    nodes.low[node, arm], nodes.high[node, arm] = low, high
    if steps <= 2 and value > enough:
        for z in range(n_values):
            value -= shares[node, first + z]
            shares[node, first + z] = _exact(arms, children, z, steps, scratch, spent)
            value += shares[node, first + z]
            if value <= enough:
                break
    return value


@fast
def _sawtooth(inverse, drops, steps, start, stop, beliefs, row, ratios):
    """How far below the corner plane the points from `start` to `stop` push the bound at a belief."""
    size, n_contexts, best, first = stop - start, beliefs.shape[1], 0.0, beliefs[row, 0]
    ones = inverse[steps, 0, start:stop]
    for i in range(size):
        ratios[i] = first * ones[i]
    for m in range(2 - (n_contexts - 1) % 2, n_contexts, 2):  # two contexts at a time: half the traffic on `ratios`
        ones, twos = inverse[steps, m, start:stop], inverse[steps, m - 1, start:stop]
        first, second = beliefs[row, m], beliefs[row, m - 1]
        for i in range(size):
            ratios[i] = min(ratios[i], min(first * ones[i], second * twos[i]))
    ones = drops[steps, start:stop]
    for i in range(size):
        best = min(best, ratios[i] * ones[i])
    return best


@part
def _exact(arms, beliefs, row, steps, scratch, spent):
    """V_1 or V_2 at a belief."""
    if steps == 1:
        spent[0] += arms.last.size
        return _dot(arms.last, _last_step(arms.last, beliefs, row), beliefs, row)
    return _two_steps(arms, beliefs, row, scratch, spent)[0]


@fast
def _two_steps(arms, beliefs, row, scratch, spent):
    """V_2 at a belief and the arm that reaches it, without looking at arms that full knowledge would not save."""
    n_arms, n_contexts = arms.means.shape
    n_values, n_last = arms.table.shape[0] // n_arms, arms.last.shape[0]
    corner, where = _plane(arms.corner, beliefs, row), 0
    best = 2 * _dot(arms.last, _last_step(arms.last, beliefs, row), beliefs, row)
    best -= 1e-12 * abs(best)  # so that the arm itself is looked at below
    for arm in range(n_arms):
        value = _dot(arms.means, arm, beliefs, row)
        if value + corner > best:
            for code in range(arm * n_values, (arm + 1) * n_values):
                for k in range(n_last):
                    scratch[k] = 0.0
                for m in range(n_contexts):
                    factor, means = beliefs[row, m] * arms.table[code, m], arms.last_columns[m]
                    for k in range(n_last):
                        scratch[k] += factor * means[k]
                top = LOW
                for k in range(n_last):
                    top = max(top, scratch[k])
                value += top
            spent[0] += n_values * arms.last.size
            if value > best:
                best, where = value, arm
    return best, where


@fast
def _last_step(last, beliefs, row):
    """The arm, of those for the last step, that reaches V_1 at a belief."""
    best, where = LOW, 0
    for k in range(last.shape[0]):
        value = _dot(last, k, beliefs, row)
        if value > best:
            best, where = value, k
    return where


@part
def _widest(arms, lower, nodes, node, arm, steps, tolerance, children, scratch, spent):
    """The child of `arm` whose bounds are furthest apart beyond what is tolerated, as a node; -1 if none is."""
    child, chosen = np.int64(-1), np.int64(-1)  # not literals, for which callees would be compiled once more
    excess, first = 0.0, arm * children.shape[0]
    if steps > 2:
        for z in range(children.shape[0]):
            mass = _child(nodes.beliefs, node, arms.table, first + z, children, z)
            value, _ = _best_vector(lower.vectors, lower.counts, steps, children, z, scratch)
            extra = nodes.shares[node, first + z] - value - tolerance * mass
            if extra > excess:
                excess, chosen = extra, z
        spent[0] += children.size * lower.counts[steps]
    if chosen >= 0:
        key = nodes.keys[node] + arms.keys[first + chosen]
        child = _find(nodes, key, children, chosen)
        if child < 0:
            child = _add_node(arms, nodes, children, chosen, key, steps)
    return child


@part
def _tighten_upper(arms, upper, nodes, node, arm, steps, known, tolerance, children, scratch):
    """The node's upper bound as a sawtooth point, where it improves on the points there are.

    A point that falls by much is put last again, where all who look for news find it, and dies where it was.
    """
    n_values, mass, point, current = children.shape[0], _sum(nodes.beliefs, node), nodes.points[node], 0.0
    drop = (nodes.upper[node] - steps * _plane(arms.corner, nodes.beliefs, node)) / mass
    if point >= 0:
        current = upper.drops[steps, point] * mass
    else:
        for start in range(0, upper.counts[steps], BLOCK):
            stop = min(start + BLOCK, upper.counts[steps])
            there = _sawtooth(upper.inverse, upper.drops, steps, start, stop, nodes.beliefs, node, scratch)
            current = min(current, there)
    gain = current / mass - drop
    if point >= 0 and 0.0 < gain < NEWS * tolerance:
        upper.drops[steps, point] = drop
    elif gain > KEEP * tolerance:
        if point >= 0:
            upper.drops[steps, point] = 0.0
        nodes.points[node] = _add_point(upper, steps, nodes.beliefs, node, mass, drop)
    if steps == 3 and not known:  # solved just now: what it knows of V_2 spares others the exact computation
        for z in range(n_values):
            mass = _child(nodes.beliefs, node, arms.table, arm * n_values + z, children, z)
            if mass > 0.0:
                plane = (steps - 1) * _plane(arms.corner, children, z)
                _add_point(upper, steps - 1, children, z, mass, (nodes.shares[node, arm * n_values + z] - plane) / mass)


@fast
def _add_point(upper, steps, beliefs, row, mass, drop):
    point = upper.counts[steps]
    for m in range(beliefs.shape[1]):
        upper.inverse[steps, m, point] = mass / max(beliefs[row, m], mass / CAP)
    upper.drops[steps, point] = drop
    upper.counts[steps] = point + 1
    return point


@part
def _raise_lower(arms, lower, nodes, node, arm, steps, tolerance, children, scratch, spent):
    """Back up `arm` at the node; keep the vector, and those of its leaves, if it gains. Returns the lower bound."""
    n_values, n_contexts = children.shape
    later, firsts = np.empty((n_values + 1, n_contexts)), np.empty(n_values, np.int64)  # the last row: the vector
    for m in range(n_contexts):
        later[n_values, m] = arms.means[arm, m]
    for z in range(n_values):
        code = arm * n_values + z
        _child(nodes.beliefs, node, arms.table, code, children, z)
        if steps <= 3:
            firsts[z] = _leaf_vector(arms, children, z, steps - 1, later, scratch, spent)
        else:
            _, best = _best_vector(lower.vectors, lower.counts, steps - 1, children, z, scratch)
            for m in range(n_contexts):
                later[z, m] = lower.vectors[steps - 1, m, best]
        for m in range(n_contexts):
            later[n_values, m] += arms.table[code, m] * later[z, m]
    spent[0] += children.size * lower.counts[steps]
    current, _ = _best_vector(lower.vectors, lower.counts, steps, nodes.beliefs, node, scratch)
    value = _dot(later, n_values, nodes.beliefs, node)
    if value > current + KEEP * tolerance * _sum(nodes.beliefs, node):
        current = value
        if steps == 3:
            for z in range(n_values):
                _append(lower, steps - 1, firsts[z], later, z)
        _append(lower, steps, arms.names[arm], later, n_values)
    return current


@part
def _leaf_vector(arms, beliefs, row, steps, later, scratch, spent):
    """The vector of the plan that reaches V_1 or V_2 at a belief, into its row of `later`; returns its first arm."""
    n_values, n_contexts = beliefs.shape
    grandchildren = np.empty((n_values, n_contexts))
    if steps == 1:
        best = _last_step(arms.last, beliefs, row)
        name = arms.last_names[best]
        for m in range(n_contexts):
            later[row, m] = arms.last[best, m]
    else:
        _, arm = _two_steps(arms, beliefs, row, scratch, spent)
        name = arms.names[arm]
        for m in range(n_contexts):
            later[row, m] = arms.means[arm, m]
        for code in range(arm * n_values, (arm + 1) * n_values):
            _child(beliefs, row, arms.table, code, grandchildren, row)
            best = _last_step(arms.last, grandchildren, row)
            for m in range(n_contexts):
                later[row, m] += arms.table[code, m] * arms.last[best, m]
    return name


@fast
def _append(lower, steps, name, vectors, row):
    count = lower.counts[steps]
    for m in range(vectors.shape[1]):
        lower.vectors[steps, m, count] = vectors[row, m]
    lower.arms[steps, count] = name
    lower.counts[steps] = count + 1


@fast
def _best_vector(vectors, counts, steps, beliefs, row, sums):
    """max_i vectors[steps, :, i] . x for a belief x, and the i that reaches it."""
    best, where, odd = LOW, 0, beliefs.shape[1] % 2
    for start in range(0, counts[steps], BLOCK):
        stop = min(start + BLOCK, counts[steps])
        ones, first = vectors[steps, 0, start:stop], beliefs[row, 0] if odd else 0.0
        for i in range(stop - start):
            sums[i] = first * ones[i]
        for m in range(odd, beliefs.shape[1], 2):  # two contexts at a time: half the traffic on `sums`
            ones, twos = vectors[steps, m, start:stop], vectors[steps, m + 1, start:stop]
            first, second = beliefs[row, m], beliefs[row, m + 1]
            for i in range(stop - start):
                sums[i] += first * ones[i] + second * twos[i]
        top = LOW
        for i in range(stop - start):
            top = max(top, sums[i])
        if top > best:
            best = top
            i = 0
            while sums[i] != top:
                i += 1
            where = start + i
    return best, where


@fast
def _find(nodes, key, beliefs, row):
    """The node with this key and belief, or -1."""
    mask = len(nodes.slots) - 1
    slot = key & mask
    while nodes.slots[slot] >= 0:
        node = nodes.slots[slot]
        if nodes.keys[node] == key:
            top, difference = 0.0, 0.0
            for m in range(beliefs.shape[1]):
                top = max(top, beliefs[row, m])
                difference = max(difference, abs(nodes.beliefs[node, m] - beliefs[row, m]))
            if difference <= 1e-9 * top:
                return node
        slot = (slot + 1) & mask
    return -1


@part
def _add_node(arms, nodes, beliefs, row, key, steps):
    """A new node with the bounds of knowing the context from the next step on."""
    node, corner, mask = nodes.counts[0], _plane(arms.corner, beliefs, row), len(nodes.slots) - 1
    nodes.counts[0] = node + 1
    for m in range(beliefs.shape[1]):
        nodes.beliefs[node, m] = beliefs[row, m]
    for arm in range(arms.means.shape[0]):
        nodes.values[node, arm] = _dot(arms.means, arm, beliefs, row) + (steps - 1) * corner
        nodes.high[node, arm] = -1
    nodes.upper[node], nodes.points[node] = steps * corner, -1
    nodes.solved[node], nodes.keys[node], nodes.steps[node] = False, key, steps
    slot = key & mask
    while nodes.slots[slot] >= 0:
        slot = (slot + 1) & mask
    nodes.slots[slot] = node
    return node


@plain
def _child(beliefs, row, table, code, children, z):
    """children[z] = beliefs[row] * table[code]; returns its sum."""
    mass = 0.0
    for m in range(beliefs.shape[1]):
        children[z, m] = beliefs[row, m] * table[code, m]
        mass += children[z, m]
    return mass


@plain
def _dot(left, i, right, j):
    """left[i] . right[j]"""
    total = 0.0
    for m in range(left.shape[1]):
        total += left[i, m] * right[j, m]
    return total


@plain
def _plane(corner, beliefs, row):
    """corner . beliefs[row]"""
    total = 0.0
    for m in range(len(corner)):
        total += corner[m] * beliefs[row, m]
    return total


@plain
def _sum(beliefs, row):
    total = 0.0
    for m in range(beliefs.shape[1]):
        total += beliefs[row, m]
    return total


@plain
def _argmax(values, row):
    best, where = values[row, 0], 0
    for i in range(1, values.shape[1]):
        if values[row, i] > best:
            best, where = values[row, i], i
    return where
