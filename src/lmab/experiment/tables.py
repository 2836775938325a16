"""The tables of a study, from its rows alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .analysis import MEASURES, in_order, points, title_of
from .store import Row
from .study import Panel, Study


@dataclass(frozen=True)
class Table:
    """One measure: a line per method (and split), a column per place on the axis."""

    title: str
    header: list[str]
    cells: list[list[str]]


def tables(study: Study, rows: Sequence[Row]) -> list[Table]:
    """Mean ± standard error over instances, a table for each panel that has values."""
    made = (_table(study, rows, panel) for panel in study.panels)
    return [table for table in made if table.cells]


def _table(study: Study, rows: Sequence[Row], panel: Panel) -> Table:
    found = {(point.method, point.split, point.x): point for point in points(study, rows, panel)}
    places, splits = in_order({key[2] for key in found}), in_order({key[1] for key in found})
    cells = []
    for split in splits:
        for method in study.methods():
            line = [found.get((method.name, split, place)) for place in places]
            if any(line):
                name = method.label + (f", {study.split_label.format(split)}" if study.split else "")
                texts = ["" if point is None else _text(point.mean, point.stderr) for point in line]
                cells.append([name, *texts])
    counts = {point.n_instances for point in found.values()}
    instances = f"{min(counts)} to {max(counts)}" if len(counts) > 1 else "".join(map(str, counts))
    title = f"{title_of(rows, panel)}: {MEASURES[panel.measure][0]} ({instances} instances)"
    return Table(title, [study.axis_label, *(heading(place) for place in places)], cells)


def heading(place: float | str) -> str:
    """50000 as 50,000."""
    return place if isinstance(place, str) else f"{place:,.10g}"


def _text(mean: float, stderr: float) -> str:
    """The mean to the digit that its error allows, at least three decimals below 10."""
    digits = 4 if abs(mean) >= 0.01 or mean == 0 else 6
    return f"{mean:.{digits}f}" + (f" ± {stderr:.{digits}f}" if stderr == stderr else "")
