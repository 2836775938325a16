"""Every planner of the package, with its tags. A class without an example fails the tests."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import lmab
from lmab.planning.plan import Planner


@dataclass(frozen=True)
class Example:
    """Planner and its properties: "repeats only" if it refuses sessions without repeated arms."""

    method: Planner
    tags: frozenset[str] = frozenset()


EXAMPLES: dict[str, Example] = {
    "Certified": Example(lmab.Certified(gap=1e-4)),
    "Certified by default": Example(lmab.Certified()),
    "Exact": Example(lmab.Exact()),
    "PointBased": Example(lmab.planning.PointBased()),
    "Lookahead": Example(lmab.planning.Lookahead()),
    "Lookahead(0)": Example(lmab.planning.Lookahead(0)),
    "Lookahead(2)": Example(lmab.planning.Lookahead(2)),
    "QMDP": Example(lmab.QMDP()),
}

METHODS = [example.method for example in EXAMPLES.values()]


def concrete() -> set[str]:
    """Every planner class that the package exports."""
    values = [value for value in vars(lmab).values() if isinstance(value, type) and dataclasses.is_dataclass(value)]
    return {value.__name__ for value in values if hasattr(value, "solve_without_repeats")}
