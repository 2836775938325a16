"""Compiled heuristic search between two bounds; `tests/reference/planning_search.py` specifies and explains it.

Beyond the reference implementation, the bound of an arm is computed only until the bound of another arm is higher, and
a node stores the points that its bounds include. The code is written so that it compiles in seconds: functions are
inlined if possible, and take an array and a row instead of a view of the row. Everything is in one file, because Numba
compiles again when this file changes, and checks no other file.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from ..._shapes import Array, Bool, Float, Integer
from ..arrays import CLOSE, CLOSED, FULL, KEEP, LESS, MORE, MOST_TRIES, SHRINK, TINY, TRIES
from .planning import FAST

FEW_BREAKS = 64  # types up to which all break points take less time than quickselect: 261 and 682 ns for 50
BLOCK = 256  # points or vectors per block; a block of every type's row stays in the first-level cache
NEWS = 0.02  # a point that falls by this fraction of the tolerated error is new for nodes that included it
CODES = 4096  # number of codes above which a new node uses the information bound alone, a third of the work
LOW = -1e300
LOWEST = -1e30  # in single precision
SLOTS = 1 << 14  # hash table of the beliefs of a proof, at most half of it used

# Without reference counting, which took four tenths of the time, such functions cannot make arrays, so they write to
# those of `Scratch`.
_UNCOUNTED: Any = {"_nrt": False, "error_model": "numpy"}
fast = njit(cache=True, fastmath=FAST, **_UNCOUNTED)
plain = njit(cache=True, **_UNCOUNTED)  # short sums over types: vectorisation would only cost compile time
free = njit(cache=True, fastmath=FAST, nogil=True, **_UNCOUNTED)  # releases the GIL
part = njit(inline="always", fastmath=FAST, **_UNCOUNTED)  # inlined into its only caller


class Scratch(NamedTuple):
    """Arrays for intermediate results."""

    path: Integer[Array, "T"]  # the nodes of a trial
    children: Float[Array, "Z M"]  # beliefs after each value of the current arm
    vector: Float[Array, "1 M"]  # an alpha-vector
    weights: Float[Array, "M"]  # of the sawtooth at a new node
    logs: Float[Array, "M"]  # logarithms of its belief, less those of the prior
    planes: Float[Array, "Z"]  # known-type values at its children
    ratios: Float[Array, "2M+1"]  # for a knapsack; the last is the factor at its optimum
    sums: Float[Array, "2 BLOCK"]
    screen: Float[Array, "2 BLOCK"]  # gains of points, in single precision
    bits: Integer[Array, "2 BLOCK"]  # the same memory
    records: Integer[Array, "Z 2"]  # bits of the highest gains so far
    fresh: Bool[Array, "A"]  # arms with a Q-value computed in this visit of the node
    favourites: Integer[Array, "T"]  # the best arm of the last node with as many steps to go
    spent: Integer[Array, "1"]  # multiplications


def run_trials(arms, price, lower, upper, nodes, horizon, tolerance, work):
    """Run trials until the bounds at the start differ by at most `tolerance`, `work` is spent or an array is full.

    This function is not compiled, because Numba would compile all of its callees a second time as parts of it.
    """
    n_arms, n_types = arms.means.shape[1:]
    scratch = _scratch(n_arms, arms.table.shape[1] // n_arms, n_types, horizon)
    return _trials(arms, price, lower, upper, nodes, horizon, tolerance, work, scratch)


@free
def _trials(arms, price, lower, upper, nodes, horizon, tolerance, work, scratch):
    n_values, path = scratch.children.shape[0], scratch.path
    while _room(lower, upper, nodes, horizon, n_values):
        depth, down, lowest = 0, True, LOW
        while depth >= 0:
            node, steps, tolerated = path[depth], horizon - depth, tolerance * SHRINK**depth
            if nodes.high[node, 0] < 0:
                _open(arms, price, upper, nodes, node, steps - 1, scratch)
            arm = _refresh(arms, price, upper, nodes, node, steps, scratch)
            if down:
                child = _widest(arms, lower, nodes, node, arm, steps - 1, tolerated * SHRINK, scratch)
                down = child >= 0
            if down:
                depth += 1
                path[depth] = child
            else:
                _tighten_upper(arms, price, upper, nodes, node, steps, tolerated, scratch)
                lowest = _raise_lower(arms, lower, nodes, node, arm, steps, tolerated, scratch)
                depth -= 1
        if nodes.upper[0] - lowest <= tolerance:
            return CLOSED
        if scratch.spent[0] >= work:
            return MORE
    return FULL


class Proof(NamedTuple):
    """Arrays of a proof: one node for each number of steps to go, and the beliefs that it visited before."""

    beliefs: Float[Array, "T M"]
    logs: Float[Array, "T M"]
    weights: Float[Array, "T M"]  # of the bound on its children: their planes, and the relative entropy of its belief
    keys: Integer[Array, "T"]
    bounds: Float[Array, "T 4"]  # target, upper bound, lower bound, and the tolerance around a target
    places: Integer[Array, "T 4"]  # the current candidate (-1: none), its current value, tries, number of candidates
    candidates: Integer[Array, "T A"]  # arms with an information bound above the target
    values: Float[Array, "T A"]  # their bounds; of all arms during the computation
    uppers: Float[Array, "T Z"]  # at the children of the current candidate
    lowers: Float[Array, "T Z"]
    done: Bool[Array, "T Z"]  # children that had their share of the tolerance
    child: Float[Array, "1 M"]
    vector: Float[Array, "1 M"]
    sums: Float[Array, "2 BLOCK"]
    plans: Float[Array, "T M capacity"]  # the vectors in single precision, for the distribution of the tolerance
    screen: Float[Array, "1 BLOCK"]  # their values
    slots: Integer[Array, "SLOTS"]  # keys of visited beliefs; 0: free
    known_beliefs: Float[Array, "SLOTS M"]
    known: Float[Array, "SLOTS 2"]  # upper and lower bounds there
    counts: Integer[Array, "1"]
    spent: Integer[Array, "1"]  # multiplications


def new_proof(arms, lower, horizon):
    """Return empty arrays for proofs, one at a time, with these vectors."""
    n_arms, n_types = arms.means.shape[1:]
    n_values = arms.table.shape[1] // n_arms
    plans = np.empty(lower.vectors.shape, np.float32)
    for steps, count in enumerate(lower.counts):
        plans[steps, :, :count] = lower.vectors[steps, :, :count]
    shape = (horizon + 1, n_types)
    return Proof(
        np.empty(shape),
        np.empty(shape),
        np.empty(shape),
        np.zeros(horizon + 1, np.int64),
        np.zeros((horizon + 1, 4)),
        np.zeros((horizon + 1, 4), np.int64),
        np.zeros((horizon + 1, n_arms), np.int64),
        np.empty((horizon + 1, n_arms)),
        np.empty((horizon + 1, n_values)),
        np.empty((horizon + 1, n_values)),
        np.zeros((horizon + 1, n_values), np.bool_),
        np.empty((1, n_types)),
        np.empty((1, n_types)),
        np.empty((2, max(BLOCK, n_arms))),
        plans,
        np.empty((1, BLOCK), np.float32),
        np.zeros(SLOTS, np.int64),
        np.empty((SLOTS, n_types)),
        np.empty((SLOTS, 2)),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
    )


def prove(arms, price, charges, lower, proof, start, horizon, upper, tolerance, work):
    """Prove that no policy exceeds the lower bound at the start by more than `tolerance`, or raise that bound."""
    proof.spent[0] = proof.counts[0] = 0
    proof.slots[:] = 0
    proof.beliefs[horizon], proof.keys[horizon] = start, 1
    proof.logs[horizon] = np.log(np.maximum(start, TINY))
    return _proof(arms, price, charges, lower, proof, horizon, upper, tolerance, work)


@free
def _proof(arms, price, charges, lower, proof, horizon, upper, tolerance, work):
    reason, tries = np.int64(-1), TRIES
    while reason < 0:
        low, _ = _best_vector(lower.vectors, lower.counts, horizon, proof.beliefs, horizon, proof.sums)
        if upper - low <= tolerance:
            reason = CLOSED
        else:
            proof.bounds[horizon, 0], proof.bounds[horizon, 2] = low + tolerance, low
            _bound_start(arms, price, charges, lower, proof, horizon, CLOSE * tolerance, work, tries)
            upper = min(upper, proof.bounds[horizon, 1])
            if not _space(lower):
                reason = FULL
            elif proof.spent[0] >= work:
                reason = MORE
            elif proof.bounds[horizon, 2] <= low and upper - low > tolerance:  # given up: neither proved nor refuted
                tries *= 2
                reason = MORE if tries > MOST_TRIES else reason
    return reason, upper


@fast
def _space(lower):
    enough = True
    for steps in range(len(lower.counts)):
        enough &= lower.counts[steps] < lower.vectors.shape[2]
    return enough


@part
def _bound_start(arms, price, charges, lower, proof, horizon, close, work, tries):
    """Compute the reference's `_bounded` for the start: depth first, with one node for each of the steps to go."""
    steps, down = np.int64(horizon), True
    while steps <= horizon:
        if down:
            _visit(arms, price, charges, lower, proof, steps, close)
        down = steps > 2 and _press(arms, price, charges, lower, proof, steps, work, tries)
        if down:
            steps -= 1
        else:
            if steps < horizon:
                _remember(proof, steps)
                _tell_parent(proof, steps + 1, tries)
            steps += 1


@part
def _visit(arms, price, charges, lower, proof, steps, close):
    """Bound the arms of a node; those above the target by their children, and with two steps to go by exact values."""
    x, values, before = proof.beliefs[steps], proof.values[steps], steps - 1
    target, rate, mass, entropy, n_types = proof.bounds[steps, 0], price.rates[before], 0.0, 0.0, len(proof.child[0])
    for m in range(n_types):
        informed = proof.logs[steps, m] - price.log_prior[m]
        mass += x[m]
        entropy += x[m] * informed
        proof.weights[steps, m] = price.planes[before, m] + rate * informed
    entropy -= mass * np.log(max(mass, TINY))
    _charge_arms(charges.planes, steps, proof.beliefs, rate * entropy, values)
    bound, count, n_values = LOW, 0, proof.uppers.shape[1]
    for arm in range(len(values)):  # a separate loop, because it vectorises
        bound = max(bound, values[arm] if values[arm] <= target else LOW)
    for arm in range(len(values)):
        if values[arm] > target:
            exact = _dot(arms.means[arms.at[steps]], arm, proof.beliefs, steps)
            for code in range(arm * n_values, (arm + 1) * n_values):
                exact += _priced_child(arms, charges, proof, steps, code, rate)
            value = min(values[arm], exact)
            if value > target:
                proof.candidates[steps, count] = arm
                values[count] = value
                count += 1
            else:
                bound = max(bound, value)
    proof.spent[0] += n_types * len(values)
    proof.bounds[steps, 1], proof.bounds[steps, 3] = bound, close * mass
    proof.places[steps, 0], proof.places[steps, 3] = -1, count
    if steps == 2:
        _solve(arms, charges, lower, proof, steps)


@fast
def _charge_arms(planes, steps, beliefs, entropy, values):
    """Set values = the planes of the arms at the node's belief plus `entropy`."""
    stage, first = np.uint64(steps), beliefs.shape[1] % 2
    for arm in range(len(values)):
        values[arm] = entropy
    if first:
        here = beliefs[steps, 0]
        for arm in range(len(values)):
            values[arm] += here * planes[stage, np.uint64(0), np.uint64(arm)]
    for m in range(first, beliefs.shape[1], 2):
        left, right, one, two = np.uint64(m), np.uint64(m + 1), beliefs[steps, m], beliefs[steps, m + 1]
        for arm in range(len(values)):
            values[arm] += one * planes[stage, left, np.uint64(arm)] + two * planes[stage, right, np.uint64(arm)]


@fast
def _priced_child(arms, charges, proof, steps, code, rate):
    """Return the information bound at the child of a code, or the known-type value if that is lower."""
    mass, bound, plane, at = 0.0, 0.0, 0.0, arms.at[steps]
    for m in range(arms.table.shape[2]):
        x = proof.beliefs[steps, m] * arms.table[at, code, m]
        mass += x
        bound += x * proof.weights[steps, m] + rate * proof.beliefs[steps, m] * charges.entropies[at, code, m]
        plane += x * arms.corner[steps - 1, m]
    return min(bound - rate * mass * np.log(max(mass, TINY)), arms.scale[steps - 1] * plane)


@part
def _solve(arms, charges, lower, proof, steps):
    """Compute the optimal value with two steps to go, or stop at a bound that is at most the target."""
    values, bounds, row = proof.values[steps], proof.bounds[steps], np.int64(0)  # no literals: see `_widest`
    count, target, n_values = proof.places[steps, 3], bounds[0], proof.uppers.shape[1]
    table, means = arms.table[arms.at[steps]], arms.means[arms.at[steps]]
    highest, best, place = LOW, np.int64(-1), _highest_of(values, count)
    while place >= 0 and values[place] > max(target, highest):
        arm = proof.candidates[steps, place]
        exact = _dot(means, arm, proof.beliefs, steps)
        for z in range(n_values):
            _child(proof.beliefs, steps, table, arm * n_values + z, proof.child, row)
            exact += _best_last(charges.last, proof.child, proof.sums)
        proof.spent[0] += n_values * charges.last.size
        values[place] = LOW
        if exact > highest:
            highest, best = exact, arm
        place = _highest_of(values, count)
    if highest > target and highest > bounds[2] + bounds[3] and _space(lower):
        bounds[2] = _add_backed_up(arms, lower, proof, steps, best)
    highest = max(highest, bounds[1])
    bounds[1] = highest if place < 0 else max(highest, values[place])


@fast
def _best_last(last, child, sums):
    """Return the value of the best arm for the last step at a belief."""
    best, size = LOW, last.shape[1]
    for k in range(size):
        sums[0, k] = child[0, 0] * last[0, k]
    for m in range(1, last.shape[0]):
        here = child[0, m]
        for k in range(size):
            sums[0, k] += here * last[m, k]
    for k in range(size):
        best = max(best, sums[0, k])
    return best


@part
def _sums_after(proof, steps, mean, target):
    """Return the bounds on an arm's Q-value, the rest of the target, the sum of open gaps, and the widest of them."""
    up, down, rest, gaps, widest, z = mean, mean, target - mean, 0.0, LOW, np.int64(-1)
    for y in range(proof.uppers.shape[1]):
        high, low = proof.uppers[steps, y], proof.lowers[steps, y]
        up += high
        down += low
        if proof.done[steps, y]:
            rest -= high
        else:
            rest -= low
            gaps += high - low
            if high - low > widest:
                widest, z = high - low, y
    return up, down, rest, gaps, z


@part
def _press(arms, price, charges, lower, proof, steps, work, tries):
    """Set the next target for a child of the node; return False if the node is proved, refuted or given up."""
    bounds, place, count = proof.bounds[steps], proof.places[steps, 0], proof.places[steps, 3]
    values, n_values, target, at = proof.values[steps], proof.uppers.shape[1], proof.bounds[steps, 0], arms.at[steps]
    over = proof.spent[0] >= work or not _space(lower)
    while True:
        if place < 0:
            place = _highest_of(values, count)
            if place < 0 or over:
                break
            proof.places[steps, 0] = place
            _look(arms, price, charges, lower, proof, steps, proof.candidates[steps, place])
        arm = proof.candidates[steps, place]
        up, down, rest, gaps, z = _sums_after(proof, steps, _dot(arms.means[at], arm, proof.beliefs, steps), target)
        if up <= target:
            bounds[1], values[place], place = max(bounds[1], up), LOW, np.int64(-1)
            proof.places[steps, 0] = -1
            continue
        hopeless = z < 0 or rest <= bounds[3]
        if over or down >= target - bounds[3] or (hopeless and proof.places[steps, 2] == tries):
            values[place] = up
            if not over and down > bounds[2] + bounds[3]:
                bounds[2] = _add_backed_up(arms, lower, proof, steps, arm)
            break
        if hopeless:
            proof.places[steps, 2] += 1
            for y in range(n_values):
                proof.done[steps, y] = False
            continue
        proof.done[steps, z] = True
        aim = proof.lowers[steps, z] + rest * (proof.uppers[steps, z] - proof.lowers[steps, z]) / gaps
        if proof.uppers[steps, z] > aim:
            code, proof.places[steps, 1] = arm * n_values + z, z
            _child(proof.beliefs, steps, arms.table[at], code, proof.beliefs, steps - 1)
            for m in range(proof.logs.shape[1]):
                proof.logs[steps - 1, m] = proof.logs[steps, m] + charges.logs[at, code, m]
            proof.keys[steps - 1] = proof.keys[steps] + arms.keys[at, code]
            proof.bounds[steps - 1, 0], proof.bounds[steps - 1, 2] = aim, proof.lowers[steps, z]
            return True
    place = _highest_of(values, count)
    if place >= 0:
        bounds[1] = max(bounds[1], values[place])
    return False


@part
def _look(arms, price, charges, lower, proof, steps, arm):
    """Bound the children of an arm by the information bound, by cached bounds of the proof and by the vectors."""
    n_values, rate, row, at = proof.uppers.shape[1], price.rates[steps - 1], np.int64(0), arms.at[steps]
    for z in range(n_values):
        code = arm * n_values + z
        _child(proof.beliefs, steps, arms.table[at], code, proof.child, row)
        proof.uppers[steps, z] = _priced_child(arms, charges, proof, steps, code, rate)
        slot = _slot(proof, proof.keys[steps] + arms.keys[at, code], proof.child, row)
        if proof.slots[slot] != 0:
            proof.uppers[steps, z] = min(proof.uppers[steps, z], proof.known[slot, 0])
            proof.lowers[steps, z] = proof.known[slot, 1]
        else:
            count = lower.counts[steps - 1]
            proof.lowers[steps, z] = _highest_plan(proof.plans, count, steps - 1, proof.child, proof.screen)
            proof.spent[0] += proof.child.size * count
        proof.done[steps, z] = False
    proof.places[steps, 2] = 0


@part
def _tell_parent(proof, steps, tries):
    """Transfer the bounds of a child to its parent."""
    z, up, low, aim = (
        proof.places[steps, 1],
        proof.bounds[steps - 1, 1],
        proof.bounds[steps - 1, 2],
        proof.bounds[steps - 1, 0],
    )
    proof.uppers[steps, z] = min(proof.uppers[steps, z], up)
    if low > proof.lowers[steps, z]:
        proof.lowers[steps, z] = low
        if up > aim and proof.places[steps, 2] < tries:
            proof.done[steps, z] = False
            proof.places[steps, 2] += 1


@part
def _remember(proof, steps):
    """Cache the bounds of a node; the upper one is at most the bound in the cache."""
    slot = _slot(proof, proof.keys[steps], proof.beliefs, steps)
    if proof.slots[slot] != 0:
        proof.bounds[steps, 1] = min(proof.known[slot, 0], proof.bounds[steps, 1])
    elif 2 * proof.counts[0] < len(proof.slots):
        proof.slots[slot] = proof.keys[steps]
        for m in range(proof.beliefs.shape[1]):
            proof.known_beliefs[slot, m] = proof.beliefs[steps, m]
        proof.counts[0] += 1
    if proof.slots[slot] != 0:
        proof.known[slot, 0], proof.known[slot, 1] = proof.bounds[steps, 1], proof.bounds[steps, 2]


@fast
def _slot(proof, key, beliefs, row):
    """Return the slot of a belief, or the free slot for it."""
    mask = len(proof.slots) - 1
    slot = key & mask
    while proof.slots[slot] != 0:
        if proof.slots[slot] == key:
            top, difference = 0.0, 0.0
            for m in range(beliefs.shape[1]):
                top = max(top, beliefs[row, m])
                difference = max(difference, abs(proof.known_beliefs[slot, m] - beliefs[row, m]))
            if difference <= 1e-9 * top:
                break
        slot = (slot + 1) & mask
    return slot


@fast
def _highest_of(values, count):
    """Return the index of the highest of the first values; -1 if all of them are done."""
    best, where = LOW, np.int64(-1)
    for i in range(count):
        if values[i] > best:
            best, where = values[i], np.int64(i)
    return where


@fast
def _add_backed_up(arms, lower, proof, steps, arm):
    """Add the vector of an arm at a node, followed by the best existing plans; return its value there."""
    _back_up(arms, lower, proof.beliefs, steps, steps, arm, proof.child, proof.vector, proof.sums)
    for m in range(proof.vector.shape[1]):
        proof.plans[steps, m, lower.counts[steps]] = proof.vector[0, m]
    _append(lower, steps, arms.names[arm], proof.vector, 0)
    return _dot(proof.vector, 0, proof.beliefs, steps)


@fast
def _back_up(arms, lower, beliefs, row, steps, arm, child, vector, sums):
    """Set vector = the value of the arm in every type, followed by the best existing plans for the next beliefs."""
    table, means = arms.table[arms.at[steps]], arms.means[arms.at[steps]]
    n_types, n_values, only = beliefs.shape[1], len(table) // len(means), np.int64(0)
    for m in range(n_types):
        vector[0, m] = means[arm, m]
    for code in range(arm * n_values, (arm + 1) * n_values):
        _child(beliefs, row, table, code, child, only)
        if steps == 2:
            best = _last_step(arms.last, child, only)
            for m in range(n_types):
                vector[0, m] += table[code, m] * arms.last[best, m]
        else:
            _, best = _best_vector(lower.vectors, lower.counts, steps - 1, child, only, sums)
            for m in range(n_types):
                vector[0, m] += table[code, m] * lower.vectors[steps - 1, m, best]


def _scratch(n_arms, n_values, n_types, horizon):
    screen = np.empty((2, BLOCK), np.float32)
    return Scratch(
        np.zeros(horizon + 1, np.int64),
        np.empty((n_values, n_types)),
        np.empty((1, n_types)),
        np.empty(n_types),
        np.empty(n_types),
        np.empty(n_values),
        np.empty(2 * n_types + 1),
        np.empty((2, BLOCK)),
        screen,
        screen.view(np.int32),
        np.zeros((n_values, 2), np.int32),
        np.zeros(n_arms, np.bool_),
        np.zeros(horizon + 1, np.int64),
        np.zeros(1, np.int64),
    )


@part
def _room(lower, upper, nodes, horizon, n_values):
    enough = nodes.counts[0] + horizon <= len(nodes.upper)
    for steps in range(len(lower.counts)):
        enough &= lower.counts[steps] + n_values <= lower.vectors.shape[2]
        enough &= upper.counts[steps] + n_values <= upper.drops.shape[1]
    return enough


@fast
def _open(arms, price, upper, nodes, node, steps, scratch):
    """Set the first bounds on the Q-values of a new node, `steps` to go after it: information bound and sawtooth."""
    at = arms.at[steps + 1]
    table, means, x, share = arms.table[at], arms.means[at], nodes.beliefs[node], nodes.shares[node]
    n_codes, n_types = len(table), arms.corner.shape[1]
    weights, logs = scratch.weights, scratch.logs
    need = max(0.0, -_drop(arms, price, upper, steps, nodes.beliefs, node, scratch))
    for m in range(n_types):
        weights[m] = arms.scale[steps] * arms.spread[steps, m] * x[m]
        logs[m] = np.log(max(x[m], TINY)) - price.log_prior[m]
    for start in range(0, n_codes, BLOCK):
        stop = min(start + BLOCK, n_codes)
        _corner_planes(arms, arms.columns[at], x, steps, start, stop, share)
        if price.rates[steps] <= 0.0 or n_codes <= CODES:
            for code in range(start, stop):
                share[code] += _from_parent(table, arms.order[at], code, need, weights)
        if price.rates[steps] > 0.0:
            _charge(arms, at, price, x, logs, steps, start, stop, share, scratch.sums)
    for arm in range(len(means)):
        value, n_values = _dot(means, arm, nodes.beliefs, node), n_codes // len(means)
        for code in range(arm * n_values, (arm + 1) * n_values):
            value += share[code]
        nodes.values[node, arm] = min(nodes.values[node, arm], value)
        nodes.low[node, arm] = nodes.high[node, arm] = upper.counts[steps]


@fast
def _corner_planes(arms, columns, x, steps, start, stop, share):
    """Set share = the known-type value at the child, for the children of the codes from `start` to `stop`."""
    for code in range(start, stop):
        share[code] = 0.0
    for m in range(len(x)):
        column, weight = columns[m], arms.scale[steps] * arms.corner[steps, m] * x[m]
        for code in range(start, stop):
            share[code] += weight * column[code]


@fast
def _charge(arms, at, price, x, logs, steps, start, stop, share, sums):
    """Lower share to the information bound, for the children y of the codes from `start` to `stop`.

    planes . y + rate * sum_m y_m log(y_m / (|y| prior_m)), with y_m = x_m P_m; P log P is precomputed.
    """
    size, rate = stop - start, price.rates[steps]
    masses, bounds = sums[0], sums[1]
    for i in range(size):
        masses[i] = bounds[i] = 0.0
    for m in range(len(x)):
        column, entropies = arms.columns[at, m, start:stop], arms.entropies[at, m, start:stop]
        here, plane, informed = x[m], x[m] * (price.planes[steps, m] + rate * logs[m]), rate * x[m]
        for i in range(size):
            masses[i] += here * column[i]
            bounds[i] += plane * column[i] + informed * entropies[i]
    for i in range(size):
        bound = bounds[i] - rate * masses[i] * np.log(max(masses[i], TINY))
        share[start + i] = min(share[start + i], bound)


@part
def _refresh(arms, price, upper, nodes, node, steps, scratch):
    """Recompute the highest Q-values until the highest is fresh; update the node's upper bound and return that arm."""
    values, fresh = nodes.values, scratch.fresh
    arm = _argmax(values, node)
    if not nodes.solved[node]:
        for other in range(len(fresh)):
            fresh[other] = False
        arm, best, turn = scratch.favourites[steps], LOW, -2
        while arm < len(fresh):
            if not fresh[arm] and values[node, arm] > best:
                value = _arm_value(arms, price, upper, nodes, node, arm, steps - 1, best, scratch)
                values[node, arm] = min(values[node, arm], value)
                best = max(best, values[node, arm])
                fresh[arm] = True
            turn += 1
            arm = _argmax(values, node) if turn < 0 else turn
        arm = _argmax(values, node)
        nodes.upper[node] = min(nodes.upper[node], values[node, arm])
        nodes.solved[node] = steps <= 2
        scratch.favourites[steps] = arm
    return arm


@part
def _arm_value(arms, price, upper, nodes, node, arm, steps, enough, scratch):
    """Return an upper bound on the arm's Q-value, `steps` to go after it; stop as soon as it is below `enough`.

    The node stores the contribution of every code and the range of points, from `low` to `high`, that it includes.
    """
    children, planes, shares = scratch.children, scratch.planes, nodes.shares
    n_values, first = len(planes), arm * len(planes)
    low, high, count = nodes.low[node, arm], nodes.high[node, arm], upper.counts[steps]
    at = arms.at[steps + 1]
    mean = _dot(arms.means[at], arm, nodes.beliefs, node)
    value = mean
    for z in range(n_values):
        _child(nodes.beliefs, node, arms.table[at], first + z, children, z)
        planes[z] = arms.scale[steps] * _dot(arms.corner, steps, children, z)
        if steps > 1:
            known = _find(nodes, nodes.keys[node] + arms.keys[at, first + z], children, z)
            if known >= 0:
                shares[node, first + z] = min(shares[node, first + z], nodes.upper[known])
        value += shares[node, first + z]
    scratch.records[:] = 0
    while value > enough and (high < count or low > 0):
        # First the new points, then the rest from the newest on, which are close to the current nodes.
        if high < count:
            start, stop = high, min(high + BLOCK, count)
            high = stop
        else:
            start, stop = max(0, low - BLOCK), low
            low = start
        value = mean
        for z in range(n_values):
            drop = _sawtooth(arms, price, upper, steps, start, stop, children, z, z, scratch)
            shares[node, first + z] = min(shares[node, first + z], planes[z] + drop)
            value += shares[node, first + z]
        scratch.spent[0] += 2 * (stop - start) * children.size
    nodes.low[node, arm], nodes.high[node, arm] = low, high
    if steps == 1 and value > enough:
        for z in range(n_values):
            value -= shares[node, first + z]
            shares[node, first + z] = _dot(arms.last, _last_step(arms.last, children, z), children, z)
            value += shares[node, first + z]
        scratch.spent[0] += n_values * arms.last.size
    return value


@part
def _sawtooth(arms, price, upper, steps, start, stop, beliefs, row, of, scratch):
    """Return by how much the points from `start` to `stop`, at most a block, lower the bound at a belief.

    Every point is tried with the factors mass and mass / 2, in single precision. A point that is the best so far at one
    of them, by row `of` of the records, then gets its best factor, in double precision. With attrition, the information
    bound then applies to the rest of the belief.
    """
    scale, spread = arms.scale, arms.spread
    _screen(scale, spread, upper.screen, upper.drops, steps, start, stop, beliefs, row, scratch.screen)
    best, tried = 0.0, -1
    for k in range(2):
        point = _highest(scratch.bits, k, stop - start, scratch.records, of)
        if point >= 0 and point != tried:
            best = min(
                best,
                _best_factor(
                    scale, spread, upper.beliefs, upper.drops, steps, start + point, beliefs, row, scratch.ratios
                ),
            )
            if arms.stays.shape[0] > 0 and price.rates[steps] > 0.0:
                rest = _priced_rest(arms, price, upper, steps, start + point, beliefs, row, scratch.ratios)
                best = min(best, rest)
            tried = point
    return best


@fast
def _priced_rest(arms, price, upper, steps, point, beliefs, row, ratios):
    """Return the result of `_best_factor` with the information bound on the rest of the belief.

    It is evaluated at the factor of `_best_factor`, the last of the ratios, and at a lower one, because the rest then
    has a lower bound.
    """
    n_types, rate, scale, best = beliefs.shape[1], price.rates[steps], arms.scale[steps], 0.0
    factor = ratios[2 * n_types]
    for _ in range(2):
        value, mass, plane, bound = factor * upper.drops[steps, point], 0.0, 0.0, 0.0
        for m in range(n_types):
            rest = beliefs[row, m] - factor * upper.beliefs[steps, m, point]
            if rest > 0.0:
                mass += rest
                plane += scale * arms.corner[steps, m] * rest
                bound += rest * (price.planes[steps, m] + rate * (np.log(max(rest, TINY)) - price.log_prior[m]))
            else:
                value -= scale * arms.spread[steps, m] * rest
        bound -= rate * mass * np.log(max(mass, TINY))
        best = min(best, value - max(0.0, plane - bound))
        factor *= LESS
    return best


@fast
def _screen(scale, spread, points, drops, steps, start, stop, beliefs, row, gains):
    """Compute by how much each point lowers the bound, per unit of mass, for the factor mass and, doubled, for half of
    it.

    Two types at a time; unsigned indices, which need no check of their sign, let the loops vectorise.
    """
    n_types, stage, first, size = beliefs.shape[1], np.uint64(steps), np.uint64(start), np.uint64(stop - start)
    zero, per_mass, odd = np.float32(0.0), 1.0 / max(_sum(beliefs, row), TINY), n_types % 2
    for i in range(size):
        gains[0, i] = gains[1, i] = -drops[stage, first + i]
    for k in range(-odd, n_types, 2):
        left, right, weight = (
            np.uint64(max(k, 0)),
            np.uint64(k + 1),
            np.float32(scale[steps] * spread[steps, max(k, 0)]),
        )
        other, half = np.float32(scale[steps] * spread[steps, k + 1]), np.float32(per_mass * beliefs[row, max(k, 0)])
        rest = np.float32(per_mass * beliefs[row, k + 1])
        if k < 0:
            weight = zero
        for i in range(size):
            one, two = points[stage, left, first + i], points[stage, right, first + i]
            gains[0, i] -= weight * max(zero, one - half) + other * max(zero, two - rest)
            gains[1, i] -= weight * max(zero, one - half - half) + other * max(zero, two - rest - rest)


@fast
def _highest(bits, k, size, records, of):
    """Return the index of the highest of the first numbers in row k if it is a new record, else -1.

    The numbers are given by their bits, read as integers: positive ones keep their order, and the highest integer is
    computed eight times as fast.
    """
    top, where = records[of, k], 0
    for i in range(size):
        top = max(top, bits[k, i])
    if top == records[of, k]:
        return -1
    records[of, k] = top
    while bits[k, where] != top:
        where += 1
    return where


@fast
def _best_factor(scale, spread, points, drops, steps, point, beliefs, row, ratios):
    """Return min over c >= 0 of c * drop + sum_m scale * spread_m * max(0, c * point_m - x_m)."""
    n_types = beliefs.shape[1]
    for m in range(n_types):
        there = max(points[steps, m, point], TINY)
        ratios[m] = beliefs[row, m] / there
        ratios[n_types + m] = scale[steps] * spread[steps, m] * there
    return _knapsack(ratios, n_types, -drops[steps, point])


@fast
def _knapsack(ratios, n, need):
    """Return min over c of sum_m g_m * max(0, c - r_m) - need * c, with r = ratios[:n], g = ratios[n : 2n].

    The function is convex and piecewise linear, so its minimum is at one of the r. Few of them are all evaluated in
    vectors, because the branches of a search mispredict. Of many, quickselect by weight selects the r at which the sum
    of g reaches `need`. For any final c, the value returned is that of c, so a rounding error cannot make the bound
    wrong.
    """
    if n <= FEW_BREAKS:
        best, c = 0.0, 0.0
        for k in range(n):
            at, value = ratios[k], 0.0
            for m in range(n):
                value += ratios[n + m] * max(0.0, at - ratios[m])
            value -= need * at
            if value < best:
                best, c = value, at
        ratios[2 * n] = c
        return best
    low, high, c, slope, offset = 0, n, 0.0, 0.0, 0.0
    while high > low:
        c = ratios[(low + high) // 2]
        below, at, top = low, low, high  # [low, below) is smaller than c, [below, at) equal, [top, high) larger
        smaller, area, equal = 0.0, 0.0, 0.0
        while at < top:
            r, g = ratios[at], ratios[n + at]
            if r < c:
                smaller += g
                area += g * r
                _swap(ratios, n, at, below)
                below += 1
                at += 1
            elif r > c:
                top -= 1
                _swap(ratios, n, at, top)
            else:
                equal += g
                at += 1
        if slope + smaller >= need:
            high = below
        else:
            slope += smaller
            offset += area
            if slope + equal >= need:
                break
            slope += equal
            offset += equal * c
            low = top
    ratios[2 * n] = c
    return min(0.0, c * (slope - need) - offset)


@part
def _swap(ratios, n, i, j):
    ratios[i], ratios[j] = ratios[j], ratios[i]
    ratios[n + i], ratios[n + j] = ratios[n + j], ratios[n + i]


@fast
def _drop(arms, price, upper, steps, beliefs, row, scratch):
    """Return V_steps at a belief minus the known-type value, as bounded by the points."""
    if steps == 1:
        plane = arms.scale[1] * _dot(arms.corner, 1, beliefs, row)
        return _dot(arms.last, _last_step(arms.last, beliefs, row), beliefs, row) - plane
    drop, of = 0.0, np.int64(0)
    scratch.records[0, 0] = scratch.records[0, 1] = 0
    for start in range(0, upper.counts[steps], BLOCK):
        stop = min(start + BLOCK, upper.counts[steps])
        drop = min(drop, _sawtooth(arms, price, upper, steps, start, stop, beliefs, row, of, scratch))
    return drop


@fast
def _from_parent(table, order, code, need, weights):
    """Return the sawtooth at a child with its parent's belief x as the point: the ratios are the code's probabilities.

    As in `_knapsack`, by its dual: `need` is taken from the types with the lowest ratios, in their precomputed order.
    """
    total = 0.0
    for k in range(order.shape[1]):
        m = order[code, k]
        taken = min(need, weights[m])
        need -= taken
        total -= taken * table[code, m]
    return total


@fast
def _last_step(last, beliefs, row):
    """Return the arm, among the candidates for the last step, that attains V_1 at a belief."""
    best, where = LOW, 0
    for k in range(last.shape[0]):
        value = _dot(last, k, beliefs, row)
        if value > best:
            best, where = value, k
    return where


@part
def _widest(arms, lower, nodes, node, arm, steps, tolerance, scratch):
    """Return the child of `arm` with the largest excess gap, as a node; -1 if all are within the tolerance."""
    child, chosen = np.int64(-1), np.int64(-1)  # not literals, for which callees would be compiled once more
    children = scratch.children
    excess, first, at = 0.0, arm * children.shape[0], arms.at[steps + 1]
    if steps > 1:
        for z in range(children.shape[0]):
            mass = _child(nodes.beliefs, node, arms.table[at], first + z, children, z)
            value, _ = _best_vector(lower.vectors, lower.counts, steps, children, z, scratch.sums)
            extra = nodes.shares[node, first + z] - value - tolerance * mass
            if extra > excess:
                excess, chosen = extra, z
        scratch.spent[0] += children.size * lower.counts[steps]
    if chosen >= 0:
        key = nodes.keys[node] + arms.keys[at, first + chosen]
        child = _find(nodes, key, children, chosen)
        if child < 0:
            child = _add_node(arms, nodes, children, chosen, key, steps)
    return child


@part
def _tighten_upper(arms, price, upper, nodes, node, steps, tolerance, scratch):
    """Store the node's upper bound as a sawtooth point, if it improves on the existing points.

    A point that falls by much is stored again at the end, so that nodes with its old value include it again.
    """
    mass, point = _sum(nodes.beliefs, node), nodes.points[node]
    drop = (nodes.upper[node] - arms.scale[steps] * _dot(arms.corner, steps, nodes.beliefs, node)) / mass
    if point >= 0:
        current = upper.drops[steps, point] * mass
    else:
        current = _drop(arms, price, upper, steps, nodes.beliefs, node, scratch)
    gain = current / mass - drop
    if point >= 0 and 0.0 < gain < NEWS * tolerance:
        upper.drops[steps, point] = drop
    elif gain > KEEP * tolerance:
        if point >= 0:
            upper.drops[steps, point] = 0.0
        nodes.points[node] = _add_point(upper, steps, nodes.beliefs, node, mass, drop)


@fast
def _add_point(upper, steps, beliefs, row, mass, drop):
    point = upper.counts[steps]
    for m in range(beliefs.shape[1]):
        upper.beliefs[steps, m, point] = upper.screen[steps, m, point] = beliefs[row, m] / mass
    upper.drops[steps, point] = drop
    upper.counts[steps] = point + 1
    return point


@part
def _raise_lower(arms, lower, nodes, node, arm, steps, tolerance, scratch):
    """Back up `arm` at the node, keep the vector if it improves, and return the lower bound there."""
    children, vector = scratch.children, scratch.vector
    n_values, n_types = children.shape
    table, means = arms.table[arms.at[steps]], arms.means[arms.at[steps]]
    for m in range(n_types):
        vector[0, m] = means[arm, m]
    for z in range(n_values):
        code = arm * n_values + z
        _child(nodes.beliefs, node, table, code, children, z)
        if steps == 2:
            best = _last_step(arms.last, children, z)
            for m in range(n_types):
                vector[0, m] += table[code, m] * arms.last[best, m]
        else:
            _, best = _best_vector(lower.vectors, lower.counts, steps - 1, children, z, scratch.sums)
            for m in range(n_types):
                vector[0, m] += table[code, m] * lower.vectors[steps - 1, m, best]
    scratch.spent[0] += children.size * lower.counts[steps]
    current, _ = _best_vector(lower.vectors, lower.counts, steps, nodes.beliefs, node, scratch.sums)
    value = _dot(vector, 0, nodes.beliefs, node)
    if value > current + KEEP * tolerance * _sum(nodes.beliefs, node):
        current = value
        _append(lower, steps, arms.names[arm], vector, 0)
    return current


@fast
def _append(lower, steps, name, vectors, row):
    count = lower.counts[steps]
    for m in range(vectors.shape[1]):
        lower.vectors[steps, m, count] = vectors[row, m]
    lower.arms[steps, count] = name
    lower.counts[steps] = count + 1


@fast
def _best_vector(vectors, counts, steps, beliefs, row, sums):
    """Return max_i vectors[steps, :, i] . x for a belief x, and the maximising i."""
    best, where, stage, odd = LOW, 0, np.uint64(steps), beliefs.shape[1] % 2
    for start in range(0, counts[steps], BLOCK):
        begin, size = np.uint64(start), np.uint64(min(BLOCK, counts[steps] - start))
        for i in range(size):
            sums[0, i] = beliefs[row, 0] * vectors[stage, np.uint64(0), begin + i] if odd else 0.0
        for m in range(odd, beliefs.shape[1], 2):  # two types at a time: half the traffic on `sums`
            left, right, first, second = np.uint64(m), np.uint64(m + 1), beliefs[row, m], beliefs[row, m + 1]
            for i in range(size):
                sums[0, i] += first * vectors[stage, left, begin + i] + second * vectors[stage, right, begin + i]
        for i in range(size):
            if sums[0, i] > best:
                best, where = sums[0, i], start + np.int64(i)
    return best, where


@fast
def _highest_plan(plans, count, steps, child, sums):
    """Return approximately the value of the best of the first plans at a belief."""
    zero, stage, odd = np.float32(0.0), np.uint64(steps), child.shape[1] % 2
    best = np.float32(LOWEST)
    for start in range(0, count, BLOCK):
        begin, size = np.uint64(start), np.uint64(min(BLOCK, count - start))
        for i in range(size):
            sums[0, i] = zero
        if odd:
            here = np.float32(child[0, 0])
            for i in range(size):
                sums[0, i] = here * plans[stage, np.uint64(0), begin + i]
        for m in range(odd, child.shape[1], 2):  # two types at a time: half the traffic on `sums`
            left, right, first, second = (
                np.uint64(m),
                np.uint64(m + 1),
                np.float32(child[0, m]),
                np.float32(child[0, m + 1]),
            )
            for i in range(size):
                sums[0, i] += first * plans[stage, left, begin + i] + second * plans[stage, right, begin + i]
        for i in range(size):
            best = max(best, sums[0, i])
    return best


@fast
def _find(nodes, key, beliefs, row):
    """Return the node with this key and belief, or -1."""
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
    """Add a node with the bounds of knowing the type from the next step on; return its number."""
    node, mask = nodes.counts[0], len(nodes.slots) - 1
    ahead = arms.scale[steps - 1] * _dot(arms.corner, steps - 1, beliefs, row)
    nodes.counts[0] = node + 1
    for m in range(beliefs.shape[1]):
        nodes.beliefs[node, m] = beliefs[row, m]
    means, at = arms.means[arms.at[steps]], arms.at[steps]
    for arm in range(len(means)):
        mean = _dot(means, arm, beliefs, row)
        if arms.stays.shape[0] > 0:
            nodes.values[node, arm] = mean + _staying(arms.stays[at], arm, arms.corner, steps - 1, beliefs, row)
        else:
            nodes.values[node, arm] = steps * mean if arms.flat[arm] else mean + ahead
        nodes.high[node, arm] = -1
    nodes.upper[node], nodes.points[node] = arms.scale[steps] * _dot(arms.corner, steps, beliefs, row), -1
    nodes.solved[node], nodes.keys[node], nodes.steps[node] = False, key, steps
    slot = key & mask
    while nodes.slots[slot] >= 0:
        slot = (slot + 1) & mask
    nodes.slots[slot] = node
    return node


@plain
def _child(beliefs, row, table, code, children, z):
    """Set children[z] = beliefs[row] * table[code]; return its sum."""
    mass = 0.0
    for m in range(beliefs.shape[1]):
        children[z, m] = beliefs[row, m] * table[code, m]
        mass += children[z, m]
    return mass


@plain
def _dot(left, i, right, j):
    """Return left[i] . right[j]."""
    total = 0.0
    for m in range(left.shape[1]):
        total += left[i, m] * right[j, m]
    return total


@plain
def _staying(stays, arm, corner, steps, beliefs, row):
    """Return the known-type value after the arm, in sessions that continue."""
    total = 0.0
    for m in range(beliefs.shape[1]):
        total += stays[arm, m] * corner[steps, m] * beliefs[row, m]
    return total


@plain
def _sum(beliefs, row):
    total = 0.0
    for m in range(beliefs.shape[1]):
        total += beliefs[row, m]
    return total


@fast
def _argmax(values, row):
    best, where = LOW, 0
    for i in range(values.shape[1]):
        best = max(best, values[row, i])
    while values[row, where] != best:
        where += 1
    return where
