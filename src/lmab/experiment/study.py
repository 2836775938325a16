"""Study: a question as data, with its settings, its methods and what to draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .setting import Contender, Setting, Trial

N_INSTANCES: Mapping[str, int] = {"quick": 2, "standard": 10, "full": 20}


@dataclass(frozen=True)
class Cell:
    """Settings, and the methods that are compared on them."""

    settings: tuple[Setting, ...]
    methods: tuple[Contender, ...]

    def trials(self, n_instances: int) -> list[Trial]:
        pairs = [(setting, method) for setting in self.settings for method in self.methods]
        return [Trial.of(setting, instance, method) for instance in range(n_instances) for setting, method in pairs]


@dataclass(frozen=True)
class Panel:
    """One set of axes: a measure of `analysis` against the study's axis."""

    measure: str
    title: str
    log: bool = False  # vertical axis
    budget: int | None = None  # only the smallest (0) or largest (-1) number of sessions; None: all


@dataclass(frozen=True)
class Study:
    """A question and the trials that answer it."""

    name: str
    title: str
    axis: str  # the column of the rows that varies along the figure
    axis_label: str
    panels: tuple[Panel, ...]
    cells: Mapping[str, tuple[Cell, ...]]  # by size: "quick", "standard", "full"
    split: str = ""  # a second column: one line for each of its values and each method
    split_label: str = ""  # how a line names it, e.g. "H = {}"
    log: bool = False  # horizontal axis

    def trials(self, size: str) -> list[Trial]:
        """All trials at a size, each once: one that learns nothing serves every budget."""
        trials = [trial for cell in self.cells[size] for trial in cell.trials(N_INSTANCES[size])]
        return list({trial.id: trial for trial in trials}.values())

    def methods(self) -> list[Contender]:
        """All methods, in the order of first mention."""
        found = [method for cells in self.cells.values() for cell in cells for method in cell.methods]
        return list({method.name: method for method in found}.values())
