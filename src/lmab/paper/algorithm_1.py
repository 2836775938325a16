"""Algorithm 1 as printed: every multi-index measured by itself, and moments matched in the sup norm.

The practical variant (`EDMoments()`) measures the same moments from random plays of the core set and matches them by
least squares; this one follows the paper to the letter, for few types and small core sets.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer
from ..data.sessions import Sessions
from ..errors import InvalidArgument
from ..learning.learner import Course, Exploration, Task
from ..model.bandit import LatentBandit
from ..moments.core_set import Design

_MOST_ENTRIES = 20_000  # multi-indices; a linear program of the matching then takes about a second
_LEAST_WEIGHT = 1e-3
_STEPS = 200  # linear programs of one start
_SMALLEST_STEP = 1e-7  # of the trust region
_ETA = 0.1  # probability with which some moment may be off by more than the tolerance


@dataclass(frozen=True, eq=False)
class MeasuredTensors:
    """T_l of equation (tensor_estimate) for the orders 1 to L, an entry for every multi-index."""

    indices: tuple[Integer[Array, "R l"], ...]  # n^l rows for order l
    entries: tuple[Float[Array, "R"], ...]
    n_each: int  # N_1, the sessions of one multi-index; some have one more, so that the budget is played exactly

    @property
    def tolerance(self) -> float:
        """Return the delta_tsr within which all entries are with probability 1 - eta (Hoeffding, union bound)."""
        n_entries = sum(map(len, self.entries))
        return math.sqrt(math.log(2 * n_entries / _ETA) / (2 * self.n_each))


@dataclass(frozen=True, eq=False)
class Match:
    """Weights and core values with the largest residual of all moments."""

    weights: Float[Array, "M"]
    core: Float[Array, "n M"]
    residual: float
    w_min: float


def check_budget(task: Task, n_types: int, n: int, n_sessions: int) -> tuple[range, int, int]:
    """Return the orders, the number of multi-indices of n core pairs, and the sessions for each.

    Raise `InvalidArgument` if there are too many multi-indices, or not a session for each.
    """
    orders = range(1, min(task.horizon, 2 * n_types - 1) + 1)
    n_entries = sum(n**order for order in orders)
    if n_entries > _MOST_ENTRIES:
        raise InvalidArgument(
            f"literal needs at most {_MOST_ENTRIES:,} multi-indices, got {n_entries:,} of {n} core pairs up to order "
            f"{orders[-1]}: use literal=False"
        )
    if n_sessions < n_entries:
        raise InvalidArgument(
            f"n_sessions must leave a session for each of the {n_entries:,} multi-indices (Algorithm 1, step 2), got "
            f"{task.n_sessions:,}, which leaves {n_sessions:,}"
        )
    return orders, n_entries, n_sessions // n_entries


def measure(
    task: Task, core: Design, n_types: int, n_sessions: int, rng: np.random.Generator, course: Course
) -> Generator[Exploration, Sessions, MeasuredTensors]:
    """Play every multi-index of every order N_1 times in the first steps, and average the products of its events.

    The steps after the l-th one are not used by the paper; they play uniformly random arms.
    """
    n, arms = len(core.support), np.array([arm for arm, _ in core.pairs])
    orders, n_entries, n_each = check_budget(task, n_types, n, n_sessions)
    indices = tuple(np.array(list(itertools.product(range(n), repeat=order))) for order in orders)
    values = np.array([float(value) for _, value in core.pairs])
    sizes = np.full(n_entries, n_each) + (np.arange(n_entries) < n_sessions - n_each * n_entries)
    entries = []
    for rows, counts in zip(indices, np.split(sizes, np.cumsum([len(rows) for rows in indices])[:-1]), strict=True):
        played = rng.integers(task.n_arms, size=(int(counts.sum()), task.horizon))
        played[:, : rows.shape[1]] = np.repeat(arms[rows], counts, axis=0)
        sessions = yield from course.explore(Exploration.of_arms("core plays", played))
        paid = sessions.rewards.reshape(len(played), task.horizon)[:, : rows.shape[1]]
        hits = (paid == np.repeat(values[rows], counts, axis=0)).all(axis=1)
        entries.append(np.add.reduceat(hits.astype(float), np.cumsum(counts) - counts) / counts)
    return MeasuredTensors(indices, tuple(entries), n_each)


def match(
    tensors: MeasuredTensors, core: Design, n_types: int, restarts: int, w_min: float | None, rng: np.random.Generator
) -> Match:
    """Find valid parameters whose moments are within delta_tsr of the measured ones, equation (tensor_error_cond).

    Without `w_min`, least weights 1/M, 1/(2M), ... are tried until one is feasible (appendix A); if none is, the match
    with the smallest residual is returned.
    """
    least, best = w_min or 1 / n_types, None
    while least >= _LEAST_WEIGHT:
        for _ in range(restarts):
            matched = _minimise(tensors, core, n_types, least, rng)
            if best is None or matched.residual < best.residual:
                best = matched
            if best.residual < tensors.tolerance:
                return best
        if w_min is not None or n_types == 1:
            break
        least /= 2
    if best is None:
        raise InvalidArgument(f"w_min must be at least {_LEAST_WEIGHT:g}, got {w_min!r}")
    return best


def _minimise(tensors: MeasuredTensors, core: Design, n_types: int, w_min: float, rng: np.random.Generator) -> Match:
    """Minimise the largest residual from one start, by linear programs within a trust region."""
    from scipy.optimize import linprog

    n = len(core.support)
    measured = np.concatenate(tensors.entries)
    first = tensors.entries[0]
    values = np.clip(first[:, None] + 0.2 * rng.standard_normal((n, n_types)), 0, 1)
    point = np.concatenate([np.full(n_types, 1 / n_types), values.ravel()])
    residuals = _moments(tensors, point, n_types) - measured
    reach = 0.25
    for _ in range(_STEPS):
        slopes = _slopes(tensors, point, n_types)
        bound, limit = _valid(core, point, n_types)
        ones = np.ones((len(measured), 1))
        answer = linprog(
            np.append(np.zeros(len(point)), 1.0),
            A_ub=np.block([[slopes, -ones], [-slopes, -ones], [bound, np.zeros((len(bound), 1))]]),
            b_ub=np.concatenate([-residuals, residuals, limit]),
            A_eq=np.append(np.concatenate([np.ones(n_types), np.zeros(n * n_types)]), 0.0)[None],
            b_eq=[0.0],
            bounds=[*_box(point, n_types, w_min, reach), (0, None)],
        )
        if answer.x is None:  # the constraints exclude the whole region: widen it once, then give up
            reach *= 2
            if reach > 1:
                break
            continue
        after = point + answer.x[:-1]
        new = _moments(tensors, after, n_types) - measured
        if np.abs(new).max() < np.abs(residuals).max() * (1 - 1e-9):
            point, residuals, reach = after, new, min(2 * reach, 0.5)
        else:
            reach /= 4
        if reach < _SMALLEST_STEP:
            break
    weights, values = point[:n_types], point[n_types:].reshape(n, n_types)
    return Match(weights / weights.sum(), values, float(np.abs(residuals).max()), w_min)


def _box(point: Float[Array, "p"], n_types: int, w_min: float, reach: float) -> list[tuple[float, float]]:
    """Return the bounds of a step: weights of at least w_min, core values in [0, 1], and the trust region."""
    least = np.concatenate([np.full(n_types, w_min), np.zeros(len(point) - n_types)])
    low = np.minimum(np.maximum(least - point, -reach), 0.0)
    high = np.maximum(np.minimum(1.0 - point, reach), 0.0)
    return list(zip(low.tolist(), high.tolist(), strict=True))


def _moments(tensors: MeasuredTensors, point: Float[Array, "p"], n_types: int) -> Float[Array, "R"]:
    weights, core = point[:n_types], point[n_types:].reshape(-1, n_types)
    return np.concatenate([core[rows].prod(axis=1) @ weights for rows in tensors.indices])


def _slopes(tensors: MeasuredTensors, point: Float[Array, "p"], n_types: int) -> Float[Array, "R p"]:
    """Return the derivatives of all moments by the weights and the core values."""
    weights, core = point[:n_types], point[n_types:].reshape(-1, n_types)
    parts = []
    for rows in tensors.indices:
        factors = core[rows]  # (R, l, M)
        by_core = np.zeros((len(rows), *core.shape))
        for column in range(rows.shape[1]):
            others = np.delete(factors, column, axis=1).prod(axis=1)
            by_core[np.arange(len(rows)), rows[:, column]] += weights * others
        parts.append(np.hstack([factors.prod(axis=1), by_core.reshape(len(rows), -1)]))
    return np.concatenate(parts)


def _valid(core: Design, point: Float[Array, "p"], n_types: int) -> tuple[Any, Any]:
    """Return the constraints of equation (valid_param_2, corrected) on a step, with the weights of the point.

    A reconstructed type of weight w may leave its bounds by slack / sqrt(w), and by what it leaves them now.
    """
    assert core.values is not None
    weights, values = point[:n_types], point[n_types:].reshape(-1, n_types)
    rebuild = core.onto_pairs
    sums = rebuild.reshape(-1, len(core.values), rebuild.shape[1]).sum(axis=1)
    slack = (core.leeway or 0.0) / np.sqrt(np.maximum(weights, _LEAST_WEIGHT))
    rows, limits = [], []
    for m in range(n_types):
        entries, totals = rebuild @ values[:, m], sums @ values[:, m]
        bounds = np.zeros((len(rebuild), n_types + values.size))
        bounds[:, n_types + m :: n_types] = rebuild
        whole = np.zeros((len(sums), n_types + values.size))
        whole[:, n_types + m :: n_types] = sums
        wide = len(core.values) * slack[m]
        rows += [bounds, -bounds, whole, -whole]
        limits += [1 + slack[m] - entries, slack[m] + entries, 1 + wide - totals, totals - 1 + wide]
    return np.concatenate(rows), np.maximum(np.concatenate(limits), 0.0)


def rebuild(matched: Match, core: Design) -> LatentBandit:
    """Rebuild the bandit by clipping at 0 and 1 and normalising, equation (clipping_mu)."""
    assert core.values is not None
    table = np.clip(core.onto_pairs @ matched.core, 0, 1).T.reshape(len(matched.weights), -1, len(core.values))
    totals = table.sum(axis=2, keepdims=True)
    rows = np.divide(table, totals, out=np.full_like(table, 1 / table.shape[2]), where=totals > 0)
    weights = np.maximum(matched.weights, 0)
    return LatentBandit.categorical(weights / weights.sum(), rows, core.values)
