"""Heuristic search between two bounds, in Numba. See `reference.planning_search`: what is computed and why.

Beyond the reference, an arm's bound is only computed as far as needed to see that another arm's is higher. Functions
are few and loops plain because each caller compiles what it calls once more.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..reference.planning_search import CAP, CLOSED, FULL, KEEP, MORE
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
            node, steps = path[depth], horizon - depth
            known = nodes.solved[node]
            arm = _refresh(arms, upper, nodes, node, steps, favourites, fresh, children, planes, scratch, spent)
            if down:
                child = _widest(arms, lower, nodes, node, arm, steps - 1, tolerance, children, scratch, spent)
                down = child >= 0
            if down:
                depth += 1
                path[depth] = child
            else:
                _tighten_upper(arms, upper, nodes, node, arm, steps, known, tolerance, children, scratch)
                lowest = _raise_lower(arms, lower, nodes, node, arm, steps, tolerance, children, scratch, spent)
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
    values = nodes.values[node]
    arm = _argmax(values)
    if not nodes.solved[node]:
        for other in range(len(fresh)):
            fresh[other] = False
        arm, best = favourites[steps], LOW
        while not fresh[arm]:
            value = _arm_value(arms, upper, nodes, node, arm, steps - 1, best, children, planes, scratch, spent)
            values[arm] = min(values[arm], value)
            best = max(best, values[arm])
            fresh[arm] = True
            arm = _argmax(values)
        nodes.upper[node] = min(nodes.upper[node], values[arm])
        nodes.solved[node] = steps <= 3
        favourites[steps] = arm
    return arm


@part
def _arm_value(arms, upper, nodes, node, arm, steps, enough, children, planes, scratch, spent):
    """An upper bound on the arm's Q-value, `steps` to go after it; as soon as it is below `enough` it will do.

    The node remembers every code's share in it and which points, from `low` to `high`, these already know.
    """
    x, n_values, n_contexts = nodes.beliefs[node], children.shape[0], children.shape[1]
    shares = nodes.shares[node, arm * n_values : (arm + 1) * n_values]
    low, high, count = nodes.low[node, arm], nodes.high[node, arm], upper.counts[steps]
    mean = _dot(arms.means[arm], x)
    value = mean
    for z in range(n_values):
        mass = _child(x, arms.table[arm * n_values + z], children[z])
        for m in range(n_contexts):
            children[z, m] = max(children[z, m], mass / CAP)
        planes[z] = steps * _dot(arms.corner, children[z])
        if high < 0:
            shares[z] = planes[z]
        if steps > 2:
            known = _find(nodes, nodes.keys[node] + arms.keys[arm * n_values + z], children[z])
            if known >= 0:
                shares[z] = min(shares[z], nodes.upper[known])
        value += shares[z]
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
            drop = _sawtooth(upper.inverse[steps], upper.drops[steps], start, stop, children[z], scratch)
            shares[z] = min(shares[z], planes[z] + drop)
            value += shares[z]
        spent[0] += (stop - start) * n_contexts * n_values
    nodes.low[node, arm], nodes.high[node, arm] = low, high
    if steps <= 2 and value > enough:
        for z in range(n_values):
            value -= shares[z]
            shares[z] = _exact(arms, children[z], steps, scratch, spent)
            value += shares[z]
            if value <= enough:
                break
    return value


@fast
def _sawtooth(inverse, drops, start, stop, x, ratios):
    """How far below the corner plane the points from `start` to `stop` push the bound at x."""
    size, best, first = stop - start, 0.0, x[0]
    row = inverse[0, start:stop]
    for i in range(size):
        ratios[i] = first * row[i]
    for m in range(2 - (len(x) - 1) % 2, len(x), 2):  # two contexts at a time: half the traffic on `ratios`
        row, other, first, second = inverse[m, start:stop], inverse[m - 1, start:stop], x[m], x[m - 1]
        for i in range(size):
            ratios[i] = min(ratios[i], min(first * row[i], second * other[i]))
    row = drops[start:stop]
    for i in range(size):
        best = min(best, ratios[i] * row[i])
    return best


@part
def _exact(arms, x, steps, scratch, spent):
    """V_1 or V_2 at x."""
    if steps == 1:
        spent[0] += arms.last.size
        return _dot(arms.last[_last_step(arms, x)], x)
    return _two_steps(arms, x, scratch, spent)[0]


@fast
def _two_steps(arms, x, scratch, spent):
    """V_2 at x and the arm that reaches it, without looking at arms that even full knowledge would not save."""
    n_arms, n_contexts = arms.means.shape
    n_values, n_last = arms.table.shape[0] // n_arms, len(arms.last)
    corner, where = _dot(arms.corner, x), 0
    best = 2 * _dot(arms.last[_last_step(arms, x)], x)
    best -= 1e-12 * abs(best)  # so that the arm itself is looked at below
    for arm in range(n_arms):
        value = _dot(arms.means[arm], x)
        if value + corner > best:
            for code in range(arm * n_values, (arm + 1) * n_values):
                for k in range(n_last):
                    scratch[k] = 0.0
                for m in range(n_contexts):
                    factor, row = x[m] * arms.table[code, m], arms.last_columns[m]
                    for k in range(n_last):
                        scratch[k] += factor * row[k]
                top = LOW
                for k in range(n_last):
                    top = max(top, scratch[k])
                value += top
            spent[0] += n_values * arms.last.size
            if value > best:
                best, where = value, arm
    return best, where


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
def _widest(arms, lower, nodes, node, arm, steps, tolerance, children, scratch, spent):
    """The child of `arm` whose bounds are furthest apart beyond what is tolerated, as a node; -1 if none is."""
    if steps <= 2:
        return -1
    excess, chosen = 0.0, -1
    for z in range(children.shape[0]):
        mass = _child(nodes.beliefs[node], arms.table[arm * children.shape[0] + z], children[z])
        value, _ = _best_vector(lower, children[z], steps, scratch)
        extra = nodes.shares[node, arm * children.shape[0] + z] - value - tolerance * mass
        if extra > excess:
            excess, chosen = extra, z
    spent[0] += children.size * lower.counts[steps]
    if chosen < 0:
        return -1
    key = nodes.keys[node] + arms.keys[arm * children.shape[0] + chosen]
    child = _find(nodes, key, children[chosen])
    return child if child >= 0 else _add_node(arms, nodes, children[chosen], key, steps)


@part
def _tighten_upper(arms, upper, nodes, node, arm, steps, known, tolerance, children, scratch):
    """The node's upper bound as a sawtooth point, where it improves on the points there are.

    A point that falls by much is put last again, where all who look for news find it, and dies where it was.
    """
    x, n_values = nodes.beliefs[node], children.shape[0]
    mass, point = _sum(x), nodes.points[node]
    drop, current = (nodes.upper[node] - steps * _dot(arms.corner, x)) / mass, 0.0
    if point >= 0:
        current = upper.drops[steps, point] * mass
    else:
        for start in range(0, upper.counts[steps], BLOCK):
            stop = min(start + BLOCK, upper.counts[steps])
            current = min(current, _sawtooth(upper.inverse[steps], upper.drops[steps], start, stop, x, scratch))
    gain = current / mass - drop
    if point >= 0 and 0.0 < gain < NEWS * tolerance:
        upper.drops[steps, point] = drop
    elif gain > KEEP * tolerance:
        if point >= 0:
            upper.drops[steps, point] = 0.0
        nodes.points[node] = _add_point(upper, steps, x, mass, drop)
    if steps == 3 and not known:  # solved just now: what it knows of V_2 spares others the exact computation
        for z in range(n_values):
            mass = _child(x, arms.table[arm * n_values + z], children[z])
            if mass > 0.0:
                share = nodes.shares[node, arm * n_values + z]
                drop = (share - (steps - 1) * _dot(arms.corner, children[z])) / mass
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
    """Back up `arm` at the node; keep the vector, and those of its leaves, if it gains. Returns the lower bound."""
    x, n_values, n_contexts = nodes.beliefs[node], children.shape[0], children.shape[1]
    later, firsts = np.empty((n_values, n_contexts)), np.empty(n_values, np.int64)
    vector = np.empty(n_contexts)
    for m in range(n_contexts):
        vector[m] = arms.means[arm, m]
    for z in range(n_values):
        likelihood = arms.table[arm * n_values + z]
        _child(x, likelihood, children[z])
        if steps - 1 <= 2:
            firsts[z] = _leaf_vector(arms, children[z], steps - 1, later[z], scratch, spent)
        else:
            _, best = _best_vector(lower, children[z], steps - 1, scratch)
            for m in range(n_contexts):
                later[z, m] = lower.vectors[steps - 1, m, best]
        for m in range(n_contexts):
            vector[m] += likelihood[m] * later[z, m]
    spent[0] += children.size * lower.counts[steps]
    current, _ = _best_vector(lower, x, steps, scratch)
    value = _dot(vector, x)
    if value > current + KEEP * tolerance * _sum(x):
        if steps == 3:
            for z in range(n_values):
                _append(lower, steps - 1, firsts[z], later[z])
        _append(lower, steps, arms.names[arm], vector)
        current = value
    return current


@part
def _leaf_vector(arms, x, steps, later, scratch, spent):
    """The vector of the plan that reaches V_1 or V_2 at x, into `later`; returns its first arm's name."""
    if steps == 1:
        best = _last_step(arms, x)
        for m in range(len(x)):
            later[m] = arms.last[best, m]
        return arms.last_names[best]
    _, arm = _two_steps(arms, x, scratch, spent)
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
    vectors, count, sums = lower.vectors[steps], lower.counts[steps], scratch
    best, where = LOW, 0
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        row, first = vectors[0, start : start + size], x[0] if len(x) % 2 else 0.0
        for i in range(size):
            sums[i] = first * row[i]
        for m in range(len(x) % 2, len(x), 2):
            row, other = vectors[m, start : start + size], vectors[m + 1, start : start + size]
            first, second = x[m], x[m + 1]
            for i in range(size):
                sums[i] += first * row[i] + second * other[i]
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
        nodes.high[node, arm] = -1
    nodes.upper[node], nodes.points[node] = steps * corner, -1
    nodes.solved[node], nodes.keys[node], nodes.steps[node] = False, key, steps
    slot = key & mask
    while nodes.slots[slot] >= 0:
        slot = (slot + 1) & mask
    nodes.slots[slot] = node
    return node


@plain
def _child(x, likelihood, child):
    """child = x * likelihood; returns its sum."""
    mass = 0.0
    for m in range(len(x)):
        child[m] = x[m] * likelihood[m]
        mass += child[m]
    return mass


@plain
def _dot(left, right):
    total = 0.0
    for m in range(len(left)):
        total += left[m] * right[m]
    return total


@plain
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
