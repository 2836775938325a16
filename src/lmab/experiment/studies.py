"""The studies: settings as literal data."""

from __future__ import annotations

from .methods import (
    BEST_FIXED_ARM,
    PLAN_CERTIFIED,
    PLAN_LOOKAHEAD,
    PLAN_POINT_BASED,
    PLAN_QMDP,
)
from .setting import Setting
from .study import Cell, Panel, Study

PLANNING = Study(
    name="planning",
    title="Planners on the true model",
    axis="kind",
    axis_label="kind of instance",
    panels=(
        Panel("of_optimum", "Share of the optimum's upper bound"),
        Panel("seconds_planning", "Time to plan", log=True),
    ),
    cells={
        size: (
            Cell(
                tuple(Setting(kind, *sizes) for kind in ("ordinary", "spread", "hard", "deep")),
                (BEST_FIXED_ARM, PLAN_QMDP, PLAN_LOOKAHEAD, PLAN_POINT_BASED, PLAN_CERTIFIED),
            ),
        )
        for size, sizes in {"quick": (4, 20, 5), "standard": (7, 50, 7), "full": (7, 50, 7)}.items()
    },
    table=("of_optimum", "seconds_planning"),
)

STUDIES = (PLANNING,)
