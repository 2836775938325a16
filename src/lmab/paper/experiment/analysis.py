"""Analysis of rows: means and standard errors over instances, comparisons in pairs, and evidence for claims."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._shapes import Array, Float
from ...errors import InvalidArgument
from .methods import Contender
from .store import Row
from .studies import Panel, Study

REFERENCE = "genie"
OPTIMUM = "plan-certified"  # planners are measured by its upper bound

Key = tuple[str, float, int, int, int, int]  # an instance: kind, separation, M, A, H, number
Measure = Callable[[Row, Mapping[Key, Row]], float | None]


@dataclass(frozen=True)
class Point:
    """A mean over instances."""

    method: str
    split: str  # value of the study's second column, "" if it has none
    x: float | str
    mean: float
    stderr: float  # over instances; nan for a single one
    n_instances: int


def instance_of(row: Row) -> Key:
    """Return the part of a setting that determines the truth: rows with the same key are paired."""
    return row.kind, row.separation, row.n_types, row.n_arms, row.horizon, row.instance


def _per_step(column: str) -> Measure:
    def measure(row: Row, references: Mapping[Key, Row]) -> float | None:
        value = getattr(row, column)
        return None if value is None else value / row.horizon

    return measure


def _fraction(column: str) -> Measure:
    def measure(row: Row, references: Mapping[Key, Row]) -> float | None:
        reference = references.get(instance_of(row))
        if reference is None or getattr(row, column) is None or getattr(reference, column) is None:
            return None
        return getattr(row, column) / getattr(reference, column)

    return measure


def _value_gap(row: Row, references: Mapping[Key, Row]) -> float | None:
    """Return the loss per step against the genie, slightly negative if the genie's plan is not quite optimal."""
    reference = references.get(instance_of(row))
    if reference is None or row is reference or row.value is None or reference.value is None:
        return None
    return (reference.value - row.value) / row.horizon


def _of_optimum(row: Row, references: Mapping[Key, Row]) -> float | None:
    reference = references.get(instance_of(row))
    if reference is None or row.value is None or reference.upper is None:
        return None
    return row.value / reference.upper


def _column(name: str) -> Measure:
    return lambda row, references: getattr(row, name)


def _distance(row: Row, references: Mapping[Key, Row]) -> float | None:
    return row.distance if row.n_sessions else None  # no model, so no distance


def _learning(row: Row, references: Mapping[Key, Row]) -> float | None:
    return row.seconds_learning if row.n_sessions else None


def _seconds(row: Row, references: Mapping[Key, Row]) -> float | None:
    if row.seconds_learning is None or row.seconds_planning is None:
        return None
    return row.seconds_learning + row.seconds_planning


MEASURES: Mapping[str, tuple[str, Measure, str]] = {  # name: label, how, reference method
    "per_step": ("reward per step, certified planner", _per_step("value"), REFERENCE),
    "per_step_qmdp": ("reward per step, Q-MDP", _per_step("value_qmdp"), REFERENCE),
    "fraction": ("V / V genie, certified planner", _fraction("value"), REFERENCE),
    "fraction_qmdp": ("V / V genie, Q-MDP", _fraction("value_qmdp"), REFERENCE),
    "distance": ("distance to the true model", _distance, REFERENCE),
    "value_gap": ("value lost per step", _value_gap, REFERENCE),
    "of_optimum": ("V / upper bound on the optimum", _of_optimum, OPTIMUM),
    "seconds": ("seconds", _seconds, REFERENCE),
    "seconds_learning": ("seconds to learn", _learning, REFERENCE),
    "seconds_planning": ("seconds to plan", _column("seconds_planning"), OPTIMUM),
}


def wanted(study: Study, rows: Iterable[Row], size: str | None = None) -> list[Row]:
    """Return the rows of a study that are done; of all sizes, or of one."""
    sizes = study.cells if size is None else (size,)
    ids = {trial.id for each in sizes for trial in study.trials(each)}
    return [row for row in rows if row.id in ids and row.done]


def measured(rows: Sequence[Row], measure: str) -> list[tuple[Row, float]]:
    """Return each row that has the measure, with its value."""
    _, function, reference = MEASURES[measure]
    references = {instance_of(row): row for row in rows if row.method == reference}
    pairs = [(row, function(row, references)) for row in rows]
    return [(row, value) for row, value in pairs if value is not None]


def budgets_of(rows: Sequence[Row], panel: Panel) -> list[int]:
    """Return the numbers of sessions that a panel shows.

    A panel of one number of sessions chooses among the numbers that have at least half as many rows as the most common
    one, so that a single setting with a number of its own does not empty the panel.
    """
    counts = Counter(row.n_sessions for row in rows if row.n_sessions)
    budgets = sorted(counts)
    if panel.budget is None or not budgets:
        return budgets
    common = [budget for budget in budgets if 2 * counts[budget] >= max(counts.values())]
    return [common[panel.budget]]


def title_of(rows: Sequence[Row], panel: Panel) -> str:
    """Return the title of a panel, with its number of sessions if it shows one of several."""
    budgets = [] if panel.budget is None else budgets_of(rows, panel)
    return panel.title + "".join(f", N = {budget:,}" for budget in budgets)


def heading_of(study: Study, rows: Sequence[Row]) -> str:
    """Return the title of a study, with its number of sessions if there is only one."""
    budgets = {row.n_sessions for row in rows if row.n_sessions}
    return study.title + (f", N = {budgets.pop():,}" if len(budgets) == 1 and study.axis != "n_sessions" else "")


def points(study: Study, rows: Sequence[Row], panel: Panel) -> list[Point]:
    """Return mean and standard error over instances for every method and place on the axis."""
    budgets = budgets_of(rows, panel)
    groups: dict[tuple[str, str, float | str], list[float]] = {}
    for row, value in measured(rows, panel.measure):
        if row.n_sessions not in (0, *budgets):
            continue
        split = str(getattr(row, study.split)) if study.split else ""
        # A row that needs no sessions belongs to every budget.
        everywhere = study.axis == "n_sessions" and row.n_sessions == 0
        for x in budgets if everywhere else [getattr(row, study.axis)]:
            groups.setdefault((row.method, split, x), []).append(value)
    return [Point(*key, *mean_and_error(values), len(values)) for key, values in groups.items()]


def in_order(values: Iterable[Any]) -> list[Any]:
    """Return a sort key: numbers by size, also inside texts; words in alphabetical order."""

    def key(value: Any) -> tuple[float, list[str | int]]:
        try:
            return float(value), []
        except ValueError:  # "A = 4, H = 2" comes before "A = 16, H = 2".
            return 0.0, [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(value))]

    return sorted(values, key=key)


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean, and its standard error (nan for a single value)."""
    array = np.asarray(values, float)
    error = float(array.std(ddof=1) / np.sqrt(len(array))) if len(array) > 1 else float("nan")
    return float(array.mean()), error


@dataclass(frozen=True)
class Needed:
    """Sessions that a method needs for a fraction of the genie; inf if no budget reaches it."""

    method: str
    fraction: float
    n_sessions: float
    low: float  # 5% and 95% quantiles of a bootstrap over instances
    high: float
    n_instances: int


def sessions_needed(
    rows: Sequence[Row], method: str, fraction: float, *, measure: str = "fraction", n_draws: int = 500
) -> Needed | None:
    """Return the sessions at which the mean curve reaches `fraction`, by log-linear interpolation."""
    budgets, curves = _curves(rows, method, measure)
    if len(curves) == 0:
        return None
    draws = np.random.default_rng(0).integers(len(curves), size=(n_draws, len(curves)))
    sampled = [crossing(budgets, curves[draw].mean(axis=0), fraction) for draw in draws]
    low, high = np.quantile(sampled, [0.05, 0.95], method="nearest")
    return Needed(
        method, fraction, crossing(budgets, curves.mean(axis=0), fraction), float(low), float(high), len(curves)
    )


def _curves(rows: Sequence[Row], method: str, measure: str) -> tuple[Float[Array, "n"], Float[Array, "i n"]]:
    """Return one curve per instance that has all budgets."""
    values = {(row.instance, row.n_sessions): value for row, value in measured(rows, measure) if row.method == method}
    budgets = sorted({n for _, n in values})
    instances = sorted({i for i, _ in values})
    complete = [[values[i, n] for n in budgets] for i in instances if all((i, n) in values for n in budgets)]
    return np.asarray(budgets, float), np.asarray(complete, float).reshape(len(complete), len(budgets))


def crossing(budgets: Float[Array, "n"], curve: Float[Array, "n"], level: float) -> float:
    above = np.flatnonzero(curve >= level)
    if len(above) == 0:
        return float("inf")
    if above[0] == 0:
        return float(budgets[0])
    left, right = above[0] - 1, above[0]
    share = (level - curve[left]) / (curve[right] - curve[left])
    return float(np.exp((1 - share) * np.log(budgets[left]) + share * np.log(budgets[right])))


@dataclass(frozen=True)
class Finding:
    """Outcome of a check, with the numbers behind it."""

    holds: bool | None  # None: not decided, because the interval contains the limit or because nobody can meet the rule
    text: str


@dataclass(frozen=True)
class Mean:
    """A mean over instances."""

    mean: float
    stderr: float
    n_instances: int

    @property
    def above(self) -> bool:
        """Return whether the mean is more than two standard errors above 0."""
        return self.mean > 2 * self.stderr

    @property
    def below(self) -> bool:
        """Return whether the mean is more than two standard errors below 0."""
        return -self.mean > 2 * self.stderr

    def exceeds(self, limit: float) -> bool | None:
        """Return whether the mean is above `limit`; None if it is within two standard errors of it."""
        if abs(self.mean - limit) <= 2 * self.stderr:
            return None
        return self.mean > limit

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.stderr:.4f}"


class Evidence:
    """The rows of one study, asked for means."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self._measured: dict[str, list[tuple[Row, float]]] = {}  # by measure, since checks ask many times

    def measured(self, measure: str) -> list[tuple[Row, float]]:
        """Return each row that has the measure, with its value."""
        if measure not in self._measured:
            self._measured[measure] = measured(self.rows, measure)
        return self._measured[measure]

    def values(self, measure: str, method: Contender, **where: Any) -> dict[tuple[Any, ...], float]:
        """Return the value by instance (and budget), for rows with the given columns."""
        pairs = self.measured(measure)
        return {
            (*instance_of(row), row.n_sessions): value
            for row, value in pairs
            if row.method == method.name and all(getattr(row, name) == wanted for name, wanted in where.items())
        }

    def mean(self, measure: str, method: Contender, **where: Any) -> Mean | None:
        values = list(self.values(measure, method, **where).values())
        return Mean(*mean_and_error(values), len(values)) if len(values) > 1 else None

    def difference(self, measure: str, method: Contender, other: Contender, **where: Any) -> Mean | None:
        """Return the paired difference `method` minus `other`."""
        ours, theirs = self.values(measure, method, **where), self.values(measure, other, **where)
        values = [ours[key] - theirs[key] for key in ours if key in theirs]
        return Mean(*mean_and_error(values), len(values)) if len(values) > 1 else None

    def places(self, column: str, method: Contender | None = None) -> list[Any]:
        """Return the values of a column, in order, among rows that learned (by `method`)."""
        rows = [row for row in self.rows if row.n_sessions and (method is None or row.method == method.name)]
        return sorted({getattr(row, column) for row in rows})

    def along(self, column: str, measure: str, method: Contender) -> dict[Any, Mean]:
        """Return the mean at every place of a column, in order."""
        means = {place: self.mean(measure, method, **{column: place}) for place in self.places(column, method)}
        return {place: mean for place, mean in means.items() if mean is not None}

    def differences_along(self, column: str, measure: str, method: Contender, other: Contender) -> dict[Any, Mean]:
        """Return the paired difference `method` minus `other` at every place of a column that both have."""
        places = [place for place in self.places(column, method) if place in self.places(column, other)]
        differences = {place: self.difference(measure, method, other, **{column: place}) for place in places}
        return {place: mean for place, mean in differences.items() if mean is not None}

    def changes_between(self, column: str, measure: str, method: Contender) -> dict[Any, Mean]:
        """Return the change from each place of a column to the next, by instance; the key is the later place."""
        places = self.places(column, method)
        changes = {
            after: self._change(column, measure, method, before, after) for before, after in itertools.pairwise(places)
        }
        return {place: mean for place, mean in changes.items() if mean is not None}

    def changes_since(self, column: str, measure: str, method: Contender, origin: Any) -> dict[Any, Mean]:
        """Return the change from one place of a column to each later one, instance by instance."""
        later = [place for place in self.places(column, method) if place > origin]
        changes = {place: self._change(column, measure, method, origin, place) for place in later}
        return {place: mean for place, mean in changes.items() if mean is not None}

    def by_setting(self, measure: str, method: Contender, other: Contender) -> dict[str, Mean]:
        """Return the paired difference at every setting that both have; a key is kind-M-A-H-N."""
        ours, theirs = self.values(measure, method), self.values(measure, other)
        groups: dict[str, list[float]] = {}
        for key in ours:
            if key in theirs:
                kind, _, n_types, n_arms, horizon, _, n_sessions = key
                name = f"{kind}-{n_types}-{n_arms}-{horizon}-{n_sessions}"
                groups.setdefault(name, []).append(ours[key] - theirs[key])
        return {name: Mean(*mean_and_error(some), len(some)) for name, some in groups.items() if len(some) > 1}

    def genie_by_setting(self, measure: str, other: Contender) -> dict[str, Mean]:
        """Return 1 minus the fraction of `other` at every setting: the genie in the place of a method, paired."""
        groups: dict[str, list[float]] = {}
        for (kind, _, n_types, n_arms, horizon, _, n_sessions), value in self.values(measure, other).items():
            groups.setdefault(f"{kind}-{n_types}-{n_arms}-{horizon}-{n_sessions}", []).append(1 - value)
        return {name: Mean(*mean_and_error(some), len(some)) for name, some in groups.items() if len(some) > 1}

    def slope(self, column: str, measure: str, method: Contender) -> tuple[Mean, int] | None:
        """Return the slope of a measure along a column by instance, and the number of negative slopes."""
        curves: dict[int, list[tuple[float, float]]] = {}
        for row, value in self.measured(measure):
            if row.method == method.name:
                curves.setdefault(row.instance, []).append((getattr(row, column), value))
        arrays = [np.array(curve, float) for curve in curves.values() if len(curve) > 1]
        slopes = [float(np.polyfit(points[:, 0], points[:, 1], 1)[0]) for points in arrays]
        if len(slopes) < 2:
            return None
        return Mean(*mean_and_error(slopes), len(slopes)), sum(one < 0 for one in slopes)

    def _change(self, column: str, measure: str, method: Contender, before: Any, after: Any) -> Mean | None:
        first, second = (
            {key[-2]: value for key, value in self.values(measure, method, **{column: place}).items()}
            for place in (before, after)
        )
        changes = [second[instance] - first[instance] for instance in first if instance in second]
        return Mean(*mean_and_error(changes), len(changes)) if len(changes) > 1 else None


Check = Callable[[Evidence], Finding | None]


@dataclass(frozen=True)
class Difference:
    """Mean paired difference of two methods over the instances of one setting and budget."""

    kind: str
    n_types: int
    n_arms: int
    horizon: int
    separation: float
    n_sessions: int  # 0 if neither method learns
    n_instances: int
    mean: float
    stderr: float  # NaN for a single instance

    def __str__(self) -> str:
        return (
            f"M={self.n_types} A={self.n_arms} H={self.horizon} N={self.n_sessions}: {self.mean:+.4g} ± "
            f"{self.stderr:.2g} over {self.n_instances} instances"
        )


def compare(rows: Iterable[Row], mine: str, other: str, *, measure: str = "per_step") -> list[Difference]:
    """Return the measure of method `mine` minus that of `other`, paired by instance, for each setting and budget.

    Both methods meet the same instances with the same seeds, so differences vary far less than values. A method that
    does not learn has one row for all budgets.

    Args:
        rows: rows of a study, as `RowStore.rows()` or `wanted` return them; rows of failed trials do not count.
        mine: name of a method, as in `Contender`.
        other: name of the method to compare with.
        measure: "per_step" (reward per step), "fraction" (of the genie's value, if its rows exist), "distance"
            (to the true model), "value_gap", "seconds" and others that the panels of studies name.

    Examples:
        >>> from lmab.experiment import Row, compare
        >>> empty = [*[None] * 8, *[""] * 5]
        >>> rows = [
        ...     Row(f"{method}-{i}", "ordinary", 2, 5, 4, 100, 0.0, i, method, i, "done", value, *empty)
        ...     for method, values in (("mine", (2.0, 2.4)), ("theirs", (1.8, 2.0)))
        ...     for i, value in enumerate(values)
        ... ]
        >>> print(*compare(rows, "mine", "theirs"))
        M=2 A=5 H=4 N=100: +0.075 ± 0.025 over 2 instances
    """
    if measure not in MEASURES:
        raise InvalidArgument(f"measure must be one of {', '.join(MEASURES)}, got {measure!r}")
    done = [row for row in rows if row.done]
    for name in (mine, other):
        if not any(row.method == name for row in done):
            known = ", ".join(sorted({row.method for row in done})) or "none"
            raise InvalidArgument(f"rows must have the method {name!r}, got methods {known}")
    values = {(row.method, instance_of(row), row.n_sessions): value for row, value in measured(done, measure)}
    differences: dict[tuple[Any, ...], list[float]] = {}
    for key, budget in sorted({(key, budget) for method, key, budget in values if method in (mine, other)}):
        pair = [values.get((name, key, budget), values.get((name, key, 0))) for name in (mine, other)]
        if pair[0] is None or pair[1] is None or (budget == 0 and _has_budgets(values, mine, other)):
            continue
        kind, separation, n_types, n_arms, horizon, _ = key
        cell = kind, n_types, n_arms, horizon, separation, budget
        differences.setdefault(cell, []).append(pair[0] - pair[1])
    result = []
    for (kind, n_types, n_arms, horizon, separation, budget), values_of_cell in differences.items():
        mean, stderr = mean_and_error(values_of_cell)
        result.append(Difference(kind, n_types, n_arms, horizon, separation, budget, len(values_of_cell), mean, stderr))
    return result


def _has_budgets(values: Mapping[tuple[str, Key, int], float], mine: str, other: str) -> bool:
    """Return whether one of the methods learns, so that differences are taken at its budgets."""
    return any(budget > 0 for method, _, budget in values if method in (mine, other))
