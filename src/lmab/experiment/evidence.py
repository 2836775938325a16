"""Evidence: the rows of one study, asked for means, curves and paired differences; findings from it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .analysis import instance_of, mean_and_error, measured
from .setting import Contender
from .store import Row


@dataclass(frozen=True)
class Finding:
    """What the rows say about a claim."""

    holds: bool
    text: str  # with the numbers


@dataclass(frozen=True)
class Mean:
    """A mean over instances."""

    mean: float
    stderr: float
    n_instances: int

    @property
    def above(self) -> bool:
        """More than two standard errors above 0."""
        return self.mean > 2 * self.stderr

    @property
    def below(self) -> bool:
        """More than two standard errors below 0."""
        return -self.mean > 2 * self.stderr

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.stderr:.4f}"


class Evidence:
    """The rows of one study, asked for means."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self._measured: dict[str, list[tuple[Row, float]]] = {}  # by measure, since checks ask many times

    def measured(self, measure: str) -> list[tuple[Row, float]]:
        """Each row with its measure, where it has one."""
        if measure not in self._measured:
            self._measured[measure] = measured(self.rows, measure)
        return self._measured[measure]

    def values(self, measure: str, method: Contender, **where: Any) -> dict[tuple[Any, ...], float]:
        """Value by instance (and budget), for rows whose columns are as given."""
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
        """Paired: `method` minus `other`."""
        ours, theirs = self.values(measure, method, **where), self.values(measure, other, **where)
        values = [ours[key] - theirs[key] for key in ours if key in theirs]
        return Mean(*mean_and_error(values), len(values)) if len(values) > 1 else None

    def places(self, column: str, method: Contender | None = None) -> list[Any]:
        """The values of a column, in order, among rows that learned (by `method`)."""
        rows = [row for row in self.rows if row.n_sessions and (method is None or row.method == method.name)]
        return sorted({getattr(row, column) for row in rows})

    def along(self, column: str, measure: str, method: Contender) -> dict[Any, Mean]:
        """The mean at every place of a column, in order."""
        found = {place: self.mean(measure, method, **{column: place}) for place in self.places(column, method)}
        return {place: mean for place, mean in found.items() if mean is not None}

    def ahead(self, column: str, measure: str, method: Contender, other: Contender) -> dict[Any, Mean]:
        """Paired at every place of a column that both have: `method` minus `other`."""
        places = [place for place in self.places(column, method) if place in self.places(column, other)]
        found = {place: self.difference(measure, method, other, **{column: place}) for place in places}
        return {place: mean for place, mean in found.items() if mean is not None}

    def steps(self, column: str, measure: str, method: Contender) -> dict[Any, Mean]:
        """From each place of a column to the next, instance by instance; the key is the later place."""
        places = self.places(column, method)
        found = {
            after: self._change(column, measure, method, before, after) for before, after in itertools.pairwise(places)
        }
        return {place: mean for place, mean in found.items() if mean is not None}

    def since(self, column: str, measure: str, method: Contender, origin: Any) -> dict[Any, Mean]:
        """From one place of a column to each later one, instance by instance."""
        later = [place for place in self.places(column, method) if place > origin]
        found = {place: self._change(column, measure, method, origin, place) for place in later}
        return {place: mean for place, mean in found.items() if mean is not None}

    def _change(self, column: str, measure: str, method: Contender, before: Any, after: Any) -> Mean | None:
        first, second = (
            {key[-2]: value for key, value in self.values(measure, method, **{column: place}).items()}
            for place in (before, after)
        )
        changes = [second[instance] - first[instance] for instance in first if instance in second]
        return Mean(*mean_and_error(changes), len(changes)) if len(changes) > 1 else None


Check = Callable[[Evidence], Finding | None]
