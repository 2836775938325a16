"""Studies: questions as data, with their settings, methods and panels: the paper's and ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...errors import InvalidArgument
from .methods import (
    BEST_FIXED_ARM,
    COORDINATES,
    CORE,
    DIRECT_MLE,
    DIRECT_MLE_FIT,
    DIRECT_MLE_FIXED,
    ED_MLE,
    ED_MLE_APART,
    ED_MLE_CORE_FIT,
    ED_MLE_EVENTS,
    ED_MLE_FIT,
    ED_MLE_KNOWN,
    ED_MLE_LITERAL,
    ED_MLE_RANK_4,
    ED_MOMENTS,
    ED_MOMENTS_EVENTS,
    EM_BLIND,
    EM_SEGMENTS,
    GENIE,
    HISTORY,
    L_UCRL,
    L_UCRL_PASSES,
    L_UCRL_PUBLISHED,
    L_UCRL_TENSOR,
    LIKELIHOOD,
    ONE_ARM,
    PLAN_CERTIFIED,
    PLAN_LOOKAHEAD,
    PLAN_POINT_BASED,
    PLAN_QMDP,
    REBUILT,
    TENSOR,
    TENSOR_PAIRS,
    TWO_ARMS,
    UCB1,
    Contender,
    Setting,
    Trial,
)

N_INSTANCES: Mapping[str, int] = {"quick": 2, "standard": 10, "full": 20}


@dataclass(frozen=True)
class Cell:
    """Settings, and the methods that are compared on them."""

    settings: tuple[Setting, ...]
    methods: tuple[Contender, ...]

    def trials(self, instances: Iterable[int]) -> list[Trial]:
        pairs = [(setting, method) for setting in self.settings for method in self.methods]
        return [Trial.of(setting, instance, method) for instance in instances for setting, method in pairs]


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
    apart: bool = False  # draw each of its values in panels of its own, and fractions of the genie as losses
    log: bool = False  # horizontal axis
    first: int = 0  # number of the first instance
    group: str = ""  # studies that one command runs together, and that one claim may be about

    def trials(self, size: str) -> list[Trial]:
        """Return all trials at a size, each once: one that learns nothing serves every budget."""
        instances = range(self.first, self.first + N_INSTANCES[size])
        trials = [trial for cell in self.cells[size] for trial in cell.trials(instances)]
        return list({trial.id: trial for trial in trials}.values())

    def with_methods(self, *methods: Contender) -> Study:
        """Return the same study with methods of yours: they run on every setting, beside the methods of the study.

        Examples:
            >>> from lmab.experiment import STUDIES, Contender, Learning, typed
            >>> import lmab
            >>> mine = Contender("patient", "DirectMLE, 4 rounds", Learning(typed(lmab.DirectMLE, thompson_rounds=4)))
            >>> study = next(study for study in STUDIES if study.name == "arms")
            >>> study.with_methods(mine).methods()[-1].label
            'DirectMLE, 4 rounds'
        """
        taken = {method.name for method in self.methods()}
        for method in methods:
            if method.name in taken:
                raise InvalidArgument(f"name of a method must be new in the study {self.name!r}, got {method.name!r}")
            taken.add(method.name)
        more = {
            size: tuple(Cell(cell.settings, (*cell.methods, *methods)) for cell in cells)
            for size, cells in self.cells.items()
        }
        return replace(self, cells=more)

    def methods(self) -> list[Contender]:
        """Return all methods, in the order of first mention."""
        all_methods = [method for cells in self.cells.values() for cell in cells for method in cell.methods]
        return list({method.name: method for method in all_methods}.values())


# The five curves of the paper's figures, each method as printed or published; then our forms of them.
PAPER = (GENIE, ED_MLE_LITERAL, L_UCRL_PUBLISHED, TENSOR, UCB1)
FORMS = (*PAPER, ED_MLE, L_UCRL, L_UCRL_TENSOR, DIRECT_MLE)
LOW_RANK = (*FORMS, TENSOR_PAIRS)  # decomposition falls behind here, so its stronger form as well
OURS = (UCB1, TENSOR, L_UCRL, ED_MLE, DIRECT_MLE, GENIE)

# Both planners, the paper's first; rewards as the paper draws them, and shares of the genie, which compare in pairs.
_BOTH_PLANNERS = (
    Panel("per_step_qmdp", "Q-MDP, as in the paper"),
    Panel("per_step", "Certified planner"),
    Panel("fraction_qmdp", "Q-MDP, relative to the genie"),
    Panel("fraction", "Certified planner, relative to the genie"),
)
_FIGURE = (*_BOTH_PLANNERS, Panel("distance", "Parameters", log=True))


def _horizons(
    n_types: int, n_arms: int, n_sessions: int, horizons: Sequence[int], methods: Sequence[Contender] = FORMS
) -> tuple[Cell, ...]:
    """Return the settings of these horizons; tensors need third moments, and so three steps."""
    settings = [Setting("spherical", n_types, n_arms, horizon, n_sessions) for horizon in horizons]
    long, short = (tuple(each for each in settings if (each.horizon > 2) == wanted) for wanted in (True, False))
    others = tuple(
        method for method in methods if method not in (TENSOR, TENSOR_PAIRS, L_UCRL_TENSOR, L_UCRL_PUBLISHED)
    )
    return Cell(long, tuple(methods)), Cell(short, others)


def _budgets(budgets: Sequence[int]) -> tuple[Setting, ...]:
    return tuple(Setting("spherical", 5, 50, 7, n) for n in budgets)


FIG2A = Study(
    name="fig2a",
    title="Figure 2, left: M = 4, A = 20",
    axis="horizon",
    axis_label="horizon H",
    panels=_FIGURE,
    cells={
        "quick": _horizons(4, 20, 5_000, (2, 5)),
        "standard": _horizons(4, 20, 50_000, (2, 3, 5, 10, 20)),
        "full": _horizons(4, 20, 50_000, (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20)),
    },
)

FIG2B = Study(
    name="fig2b",
    title="Figure 2, right: M = 7, A = 50",
    axis="horizon",
    axis_label="horizon H",
    panels=_FIGURE,
    cells={
        "quick": _horizons(7, 50, 5_000, (3, 7), LOW_RANK),
        "standard": _horizons(7, 50, 100_000, (2, 4, 7, 12, 20), LOW_RANK),
        "full": _horizons(7, 50, 100_000, (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 20), LOW_RANK),
    },
)

FIG3A = Study(
    name="fig3a",
    title="Figure 3, left: A = 50, H = 7",
    axis="n_types",
    axis_label="types M",
    panels=_FIGURE,
    cells={
        size: (Cell(tuple(Setting("spherical", m, 50, 7, n) for m in types), LOW_RANK),)
        for size, n, types in (
            ("quick", 5_000, (4, 8)),
            ("standard", 50_000, (3, 4, 7, 10)),
            ("full", 50_000, (3, 4, 5, 6, 7, 8, 9, 10)),
        )
    },
)

FIG3B = Study(
    name="fig3b",
    title="Figure 3, right: M = 5, A = 50, H = 7",
    axis="n_sessions",
    axis_label="sessions N",
    log=True,
    panels=_FIGURE,
    cells={
        "quick": (Cell(_budgets((1_000, 5_000)), FORMS),),
        "standard": (Cell(_budgets((2_000, 10_000, 50_000, 200_000)), FORMS),),
        "full": (Cell(_budgets((2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000)), FORMS),),
    },
)

SESSIONS = Study(
    name="sessions",
    title="Sessions needed: M = 5, A = 50, H = 7",
    axis="n_sessions",
    axis_label="sessions N",
    log=True,
    panels=_BOTH_PLANNERS[2:],
    cells={
        size: (
            Cell(_budgets(budgets), (ED_MLE_LITERAL, ED_MLE)),
            Cell(_budgets([n for n in budgets if n <= 50_000]), (DIRECT_MLE,)),
            Cell(_budgets((0,)), (GENIE,)),
        )
        for size, budgets in (
            ("quick", (1_000, 4_000, 16_000)),
            ("standard", (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000)),
            ("full", (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)),
        )
    },
)

IDENTIFIABILITY = Study(
    name="identifiability",
    title="Types on a line, M = 3, A = 8: below and above H = 2M - 1 = 5",
    axis="n_sessions",
    axis_label="sessions N",
    log=True,
    split="horizon",
    split_label="H = {}",
    panels=(Panel("distance", "Parameters", log=True), Panel("value_gap", "Value lost")),
    cells={
        size: (
            Cell(tuple(Setting("line", 3, 8, h, n) for h in horizons for n in budgets), methods),
            Cell(tuple(Setting("line", 3, 8, h) for h in horizons), (GENIE,)),
        )
        for size, methods, horizons, budgets in (
            ("quick", (DIRECT_MLE_FIXED, ED_MOMENTS), (2, 5), (1_000, 10_000)),
            ("standard", (DIRECT_MLE_FIXED, ED_MOMENTS), (2, 3, 5, 8), (1_000, 10_000, 100_000)),
            (
                "full",
                (DIRECT_MLE_FIXED, ED_MOMENTS),
                (2, 3, 4, 5, 6, 8),
                (1_000, 3_000, 10_000, 30_000, 100_000, 300_000),
            ),
        )
    },
)


def _separated(n_types: int, cells: Mapping[str, tuple[Cell, ...]]) -> Study:
    """Return the study of separated types with this number of types."""
    return Study(
        name="separation" if n_types == 3 else f"separation-{n_types}",
        title=f"Separated types (appendix C): M = {n_types}, A = 20",
        axis="horizon",
        axis_label="horizon H",
        log=True,
        split="separation",
        split_label="gamma = {}",
        panels=(
            Panel("distance", "Parameters", log=True, budget=0),
            Panel("distance", "Parameters", log=True, budget=-1),
        ),
        cells=cells,
        group="separation",
    )


def _grid(n_types: int, gaps: Sequence[float], horizons: Sequence[int], budgets: Sequence[int]) -> Cell:
    settings = [Setting("separated", n_types, 20, h, n, g) for g in gaps for h in horizons for n in budgets]
    return Cell(tuple(settings), (DIRECT_MLE_FIT, ED_MLE_FIT))


def _within_lemma(n_types: int, horizon: int, n_sessions: int) -> Cell:
    """Return a place with as large a gamma^2 H as Lemma C.2 asks for; its N counts core plays alone."""
    return Cell((Setting("separated", n_types, 20, horizon, n_sessions, 1.2),), (ED_MLE_CORE_FIT,))


_SMALL = {
    n_types: {"quick": (_grid(n_types, (0.4, 1.2), (4, 16), (1_000, 4_000)),),
              "standard": (_grid(n_types, (0.2, 0.4, 0.8, 1.2), (2, 8, 32), (1_000, 10_000)),)}
    for n_types in (2, 3, 4)
}  # fmt: skip
SEPARATION = _separated(3, _SMALL[3] | {"full": (
    _grid(3, (0.1, 0.2, 0.4, 0.8, 1.2), (2, 4, 8, 16, 32, 64), (1_000, 10_000, 100_000)),
    _within_lemma(3, 256, 100_000),
)})  # fmt: skip
SEPARATION_2, SEPARATION_4 = (
    _separated(n_types, _SMALL[n_types] | {"full": (
        _grid(n_types, (0.2, 0.4, 0.8, 1.2), (2, 4, 8, 16, 32), (1_000, 10_000, 100_000)),
        _within_lemma(n_types, horizon, n_sessions),
    )})
    for n_types, horizon, n_sessions in ((2, 256, 100_000), (4, 400, 200_000))
)  # fmt: skip

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
)

ARMS = Study(
    name="arms",
    title="Who scales with the arms: M = 5, H = 7",
    axis="n_arms",
    axis_label="arms A",
    log=True,
    panels=(*_BOTH_PLANNERS[2:], Panel("seconds_learning", "Time to learn", log=True)),
    cells={
        size: (Cell(tuple(Setting("spherical", 5, a, 7, n) for a in arms), OURS),)
        for size, n, arms in (
            ("quick", 5_000, (10, 100)),
            ("standard", 20_000, (10, 100, 1_000)),
            ("full", 20_000, (10, 20, 50, 100, 200, 500, 1_000)),
        )
    },
)

# Possible reasons for the order of ED+MLE and L-UCRL: passes over the same sessions, the subspace, the sessions of
# step 1, and the law of the instances. The first instance has the number 200: some smaller ones were seen when the
# levers were chosen, or in quick runs. The readings are in `claims`; both were committed before the first full run.
LEVERS = (
    GENIE,
    L_UCRL_PUBLISHED,
    *L_UCRL_PASSES,
    L_UCRL_TENSOR,
    ED_MLE_LITERAL,
    ED_MLE,
    *ED_MLE_APART.values(),
    ED_MLE_KNOWN,
)
LAWS = ("spherical", "spread", "clipped")

ORDER = Study(
    name="order",
    title="What decides between ED+MLE and L-UCRL: M = 5, A = 50, H = 7",
    axis="n_sessions",
    axis_label="sessions N",
    log=True,
    split="kind",
    split_label="{} instances",
    apart=True,
    panels=(*_BOTH_PLANNERS[2:], Panel("distance", "Parameters", log=True)),
    first=200,
    cells={
        size: (Cell(tuple(Setting(law, 5, 50, 7, n) for law in LAWS for n in budgets), LEVERS),)
        for size, budgets in (
            ("quick", (2_000,)),
            ("standard", (2_000, 10_000)),
            ("full", (2_000, 10_000, 50_000)),
        )
    },
)

# The same question at the sizes of figure 2, on instances that no other study has: three readings of the sampling step
# that were fixed in advance, and the rank of the instances, which was added when the rows of those were known.
SIZE_LEVERS = (GENIE, L_UCRL_PUBLISHED, ED_MLE_LITERAL, ED_MLE_RANK_4, ED_MLE_APART[5, "first-two"], ED_MLE)

ORDER_SIZES = Study(
    name="order-sizes",
    title="ED+MLE and L-UCRL at the sizes of figure 2: M = 4, A = 20, H = 5 and M = 7, A = 50, H = 7",
    axis="size",
    axis_label="size",
    panels=(*_BOTH_PLANNERS[2:], Panel("distance", "Parameters", log=True)),
    first=600,
    group="order",
    cells={
        size: (
            Cell(
                (Setting("spherical", 4, 20, 5, few), Setting("spherical", 7, 50, 7, many)),
                SIZE_LEVERS,
            ),
        )
        for size, few, many in (
            ("quick", 2_000, 4_000),
            ("standard", 50_000, 100_000),
            ("full", 50_000, 100_000),
        )
    },
)

NAIVE = Study(
    name="naive",
    title="Every history a state (section 1.1): M = 2",
    axis="n_sessions",
    axis_label="sessions N",
    log=True,
    split="size",
    split_label="{}",
    apart=True,
    panels=(Panel("fraction", "Certified planner, relative to the genie"),),
    cells={
        size: (
            Cell(
                tuple(Setting("ordinary", 2, a, h, n) for a, h in sizes for n in budgets),
                (HISTORY, ED_MOMENTS, ED_MLE, DIRECT_MLE_FIXED, GENIE),
            ),
        )
        for size, sizes, budgets in (
            ("quick", ((2, 2), (3, 3)), (100, 1_000)),
            ("standard", ((2, 2), (4, 4), (16, 2), (16, 4)), (10, 100, 1_000, 10_000, 100_000)),
            (
                "full",
                ((2, 2), (2, 4), (3, 3), (4, 2), (4, 4), (8, 2), (16, 2), (16, 4)),
                (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000),
            ),
        )
    },
)

SHORT = Study(
    name="short",
    title="Sessions of 2 steps, M = 5, A = 10: segments as features",
    axis="n_sessions",
    axis_label="sessions N",
    log=True,
    panels=(Panel("distance", "Parameters", log=True),),
    cells={
        size: (Cell(tuple(Setting("uniform", 5, 10, 2, n) for n in budgets), (EM_SEGMENTS, EM_BLIND)),)
        for size, budgets in (
            ("quick", (1_000, 4_000)),
            ("standard", (2_000, 10_000, 50_000)),
            ("full", (2_000, 10_000, 50_000)),
        )
    },
)

GAUSSIAN = Study(
    name="gaussian",
    title="Normal rewards (appendix B), M = 3, A = 8: below and above H = 2M - 1 = 5",
    axis="n_sessions",
    axis_label="sessions N",
    log=True,
    split="horizon",
    split_label="H = {}",
    apart=True,
    panels=(
        Panel("fraction", "Certified planner, relative to the genie"),
        Panel("distance", "Parameters", log=True),
    ),
    cells={
        size: (
            Cell(
                tuple(Setting("gaussian", 3, 8, h, n) for h in horizons for n in budgets),
                (GENIE, UCB1, ED_MOMENTS, ED_MLE, DIRECT_MLE_FIXED),
            ),
        )
        for size, horizons, budgets in (
            ("quick", (2, 5), (1_000, 4_000)),
            ("standard", (2, 5, 8), (1_000, 10_000, 100_000)),
            ("full", (2, 3, 5, 8), (1_000, 10_000, 100_000)),
        )
    },
)

N_VALUES = (2, 3, 5)
VALUES = Study(
    name="values",
    title="Rewards on Z values, M = 3, A = 10, H = 5: core pairs and core events (Remark A.1)",
    axis="n_sessions",
    axis_label="sessions N",
    log=True,
    split="kind",
    split_label="{}",
    apart=True,
    panels=(
        Panel("distance", "Parameters", log=True),
        Panel("fraction", "Certified planner, relative to the genie"),
    ),
    cells={
        size: (
            Cell(
                tuple(Setting(f"values-{z}", 3, 10, 5, n) for z in N_VALUES for n in budgets),
                (GENIE, ED_MLE, ED_MLE_EVENTS, ED_MOMENTS, ED_MOMENTS_EVENTS, DIRECT_MLE_FIXED),
            ),
        )
        for size, budgets in (
            ("quick", (1_000, 4_000)),
            ("standard", (2_000, 10_000, 50_000)),
            ("full", (2_000, 10_000, 50_000)),
        )
    },
)

# Statements that the paper argues without a plot. Each study is one plot of the figure `rates`.
RATE_PARAMETERS = Study(
    name="rate-parameters",
    title="Worst-case errors of parameters (one arm, H = 2M - 1) and of values (two arms, H < 2M - 1)",
    axis="n_sessions",
    axis_label="sessions N",
    log=True,
    panels=(),
    group="rates",
    cells={
        size: (
            Cell(
                tuple(Setting("apart", m, 1, 2 * m - 1, n, s) for m in (2, 3) for s in gaps for n in budgets),
                (ONE_ARM,),
            ),
            Cell(
                tuple(Setting("apart", m, 2, h, n, s) for m, h in ((2, 2), (3, 4)) for s in gaps[::3] for n in some),
                (TWO_ARMS,),
            ),
        )
        for size, gaps, budgets, some in (
            ("quick", (0.02, 0.065, 0.15, 0.32), (10**3, 10**4, 10**5), (10**3, 10**4)),
            *(
                (
                    size,
                    (0.01, 0.02, 0.03, 0.045, 0.065, 0.1, 0.15, 0.22, 0.32, 0.45),
                    (10**3, 10**4, 10**5, 10**6, 10**7, 10**8),
                    (10**3, 10**4, 10**5, 10**6),
                )
                for size in ("standard", "full")
            ),
        )
    },
)

RATE_SAMPLING = Study(
    name="rate-sampling",
    title="Cost of moments (section 3.1): in coordinates of the subspace, and on the core set",
    axis="n_arms",
    axis_label="arms A",
    log=True,
    panels=(),
    group="rates",
    cells={
        size: (
            Cell(
                tuple(Setting(kind, 2, a, 3, 10_000) for kind in ("uniform", "one-arm-apart") for a in arms),
                (*COORDINATES.values(), *REBUILT.values(), *CORE.values()),
            ),
        )
        for size, arms in (
            ("quick", (10, 100)),
            ("standard", (10, 30, 100, 300, 1_000)),
            ("full", (10, 30, 100, 300, 1_000)),
        )
    },
)

RATE_ARMS = Study(
    name="rate-arms",
    title="Sessions of Algorithm 1 against the arms: M = 2, H = 3",
    axis="n_sessions",
    axis_label="sessions N",
    log=True,
    panels=(),
    group="rates",
    cells={
        size: (Cell(tuple(Setting("spherical", 2, a, 3, n) for a in arms for n in budgets), (ED_MOMENTS, GENIE)),)
        for size, arms, budgets in (
            ("quick", (5, 20), (100, 1_000)),
            ("standard", (5, 20, 100, 200), (100, 1_000, 10_000, 100_000)),
            ("full", (5, 10, 20, 50, 100, 200), (30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)),
        )
    },
)

RATE_PERTURBED = Study(
    name="rate-perturbed",
    title="Maximum likelihood after random perturbations of types on a line: M = 3, A = 8, H = 3",
    axis="n_sessions",
    axis_label="sessions N",
    log=True,
    panels=(),
    group="rates",
    cells={
        size: (Cell(tuple(Setting("perturbed", 3, 8, 3, n, s) for s in sizes for n in budgets), (LIKELIHOOD,)),)
        for size, sizes, budgets in (
            ("quick", (0.0, 0.2), (1_000, 10_000)),
            ("standard", (0.0, 0.05, 0.1, 0.2), (1_000, 10_000, 100_000)),
            ("full", (0.0, 0.05, 0.1, 0.2), (1_000, 10_000, 100_000, 1_000_000)),
        )
    },
)

RATES = (RATE_PARAMETERS, RATE_SAMPLING, RATE_ARMS, RATE_PERTURBED)
STUDIES = (FIG2A, FIG2B, FIG3A, FIG3B, SESSIONS, ORDER, ORDER_SIZES, IDENTIFIABILITY, SEPARATION_2, SEPARATION,
           SEPARATION_4, NAIVE, PLANNING, ARMS, SHORT, GAUSSIAN, VALUES, *RATES)  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A figure of the paper: two studies side by side."""

    name: str
    title: str
    studies: tuple[Study, Study]


FIGURES = (
    Figure("figure2", "Figure 2: rewards per step with longer sessions", (FIG2A, FIG2B)),
    Figure("figure3", "Figure 3: with more types, and with more sessions", (FIG3A, FIG3B)),
)
