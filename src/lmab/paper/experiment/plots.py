"""Figures, PNG and SVG: of a study, from its rows alone, and of the regimes in the paper's Figure 1."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..._shapes import Array, Float
from ..theory import Regime
from .analysis import MEASURES, Evidence, Mean, Point, heading_of, in_order, points, title_of, wanted
from .checks import Cell, promise, rates, scale
from .methods import GENIE, Contender
from .slopes import measured_rates
from .store import Row
from .studies import FORMS, PAPER, RATES, Figure, Panel, Study

_DASHES = (
    "-",
    "--",
    ":",
    "-.",
    (0, (5, 1, 1, 1, 1, 1)),
    (0, (1, 4)),
)  # Dashes of methods.
_MARKERS = "osD^vP"
_LETTER, _HANDLE, _LINE = 0.075, 0.6, 0.18  # inches of a legend: a letter, the sign of a method, a line


def draw(study: Study, rows: Sequence[Row], folder: str | os.PathLike[str]) -> list[Path]:
    """Write NAME.png and NAME.svg of a study into `folder`; `rows` are its stored rows."""
    return _written(study.name, lambda: (_split_figure if study.apart else _figure)(study, rows), folder)


_LEAST_LOSS = 1e-4  # Losses below this, and plans that beat the genie's, are drawn here.


def draw_figure(figure: Figure, rows: Sequence[Row], folder: str | os.PathLike[str], size: str) -> list[Path]:
    """Write a figure of the paper in its own form, two panels with five curves and Q-MDP, and ours below.

    Below, the certified planner plans for all, and the loss against the genie stands on a logarithmic axis, since
    the curves lie on one another near 1.
    """
    from matplotlib.figure import Figure as Canvas

    def drawn() -> Any:
        canvas = Canvas(figsize=(9.2, 7.6), layout="constrained")
        counts, losses = set(), []
        for column, study in enumerate(figure.studies):
            study_rows = wanted(study, rows, size)
            above, below = canvas.add_subplot(2, 2, 1 + column), canvas.add_subplot(2, 2, 3 + column)
            missing = [method.label for method in PAPER if all(row.method != method.name for row in study_rows)]
            note = f" (not run yet: {', '.join(missing)})" if missing and study_rows else ""
            above.set_title(f"{heading_of(study, study_rows)}\nThe paper's methods, Q-MDP{note}", fontsize=9)
            below.set_title("Our forms beside them, certified planner", fontsize=9)
            counts |= _curves(above, study, points(study, study_rows, Panel("per_step_qmdp", "")), PAPER)
            lost = [
                _lost(point) for point in points(study, study_rows, Panel("fraction", "")) if point.method != GENIE.name
            ]
            counts |= _curves(below, study, lost, FORMS)
            losses += lost
            above.set_ylabel("reward per step")
            below.set_ylabel("lost: 1 - V / V genie")
            if below.lines:
                below.set_yscale("log")
        canvas.suptitle(f"{figure.title}\n{_instances(counts)}{_at_the_least(losses)}", fontsize=10)
        handles = {label: handle for axes in canvas.axes
                   for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}  # fmt: skip
        if handles:
            _draw_legend(canvas, handles)
        return canvas

    return _written(figure.name, drawn, folder)


def _lost(point: Point) -> Point:
    return replace(point, mean=max(1 - point.mean, _LEAST_LOSS))


def _at_the_least(losses: Sequence[Point]) -> str:
    """Draw a line at the smallest loss that is drawn, if there are smaller ones."""
    drawn = any(point.mean == _LEAST_LOSS for point in losses)
    return f"\nlosses below {_LEAST_LOSS:.4f} are drawn at {_LEAST_LOSS:.4f}" if drawn else ""


def _curves(axes: Any, study: Study, curve_points: Sequence[Point], methods: Sequence[Contender]) -> set[int]:
    """Draw the curves of these methods in this order, and return the numbers of instances."""
    places = in_order({point.x for point in curve_points})
    for method in methods:
        line = sorted((one for one in curve_points if one.method == method.name), key=lambda one: places.index(one.x))
        if line:
            axes.errorbar(
                [point.x for point in line],
                [point.mean for point in line],
                yerr=np.nan_to_num([point.stderr for point in line]),
                label=method.label,
                color=method.color,
                linestyle="--" if method is GENIE else "-",
                marker=method.marker,
                markersize=4,
                linewidth=1.2,
            )
    axes.set_xlabel(study.axis_label)
    _mark_places(axes, study, places)
    return {point.n_instances for point in curve_points}


def _written(name: str, figure: Callable[[], Any], folder: str | os.PathLike[str]) -> list[Path]:
    """Return the paths of NAME.png and NAME.svg in `folder`; the same figure gives the same bytes."""
    import matplotlib

    look: Any = {"svg.hashsalt": name, "svg.fonttype": "none", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}
    Path(folder).mkdir(parents=True, exist_ok=True)
    paths = [Path(folder) / f"{name}.{suffix}" for suffix in ("png", "svg")]
    with matplotlib.rc_context(look):
        drawn = figure()
        for path in paths:
            metadata = {"Date": None, "Creator": None} if path.suffix == ".svg" else {"Software": None}
            drawn.savefig(path, dpi=130, metadata=metadata)
    return paths


def _figure(study: Study, rows: Sequence[Row]) -> Any:
    from matplotlib.figure import Figure

    more = _MORE.get(study.group, ())
    n_panels = len(study.panels) + len(more)
    columns = min(2, n_panels)
    lines = -(-n_panels // columns)
    figure = Figure(figsize=(5.6 if columns == 1 else 9.2, 3.3 * lines + 0.9), layout="constrained")
    counts = set()
    for index, panel in enumerate(study.panels):
        panel_points = points(study, rows, panel)
        counts |= {point.n_instances for point in panel_points}
        axes = figure.add_subplot(lines, columns, index + 1)
        axes.set_title(title_of(rows, panel), fontsize=9)
        _draw_panel(axes, study, panel, panel_points)
    for index, drawn in enumerate(more, len(study.panels) + 1):
        drawn(figure.add_subplot(lines, columns, index), study, rows)
    figure.suptitle(f"{heading_of(study, rows)}\n{_instances(counts)}", fontsize=10)
    handles = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if handles:
        _draw_legend(figure, handles)
    return figure


_ACROSS = 4  # panels beside one another
_MOST_LABELS = 7  # on the horizontal axis of such a panel; of more, every second is written


def _split_figure(study: Study, rows: Sequence[Row]) -> Any:
    """Draw each value of the second column in panels of its own, in rows or columns."""
    from matplotlib.figure import Figure

    points_by_panel = {panel: points(study, rows, panel) for panel in study.panels}
    splits = in_order({point.split for some in points_by_panel.values() for point in some}) or [""]
    columns = min(len(splits), _ACROSS) if len(points_by_panel) == 1 else len(splits)
    lines = -(-len(splits) * len(points_by_panel) // columns)
    figure = Figure(figsize=(max(3.1 * columns, 5.6), 2.7 * lines + 0.9), layout="constrained")
    places = [(panel, split) for panel in study.panels for split in splits]
    for index, (panel, split) in enumerate(places):
        axes = figure.add_subplot(lines, columns, index + 1)
        names = [
            study.split_label.format(split) if split else "",
            panel.title if len(points_by_panel) > 1 or not split else "",
        ]
        axes.set_title("\n".join(filter(None, names)), fontsize=8)
        _draw_split_panel(axes, study, panel, [point for point in points_by_panel[panel] if point.split == split])
    counts = {point.n_instances for some in points_by_panel.values() for point in some}
    shares = [
        one for panel, some in points_by_panel.items() if _is_share(panel) for one in some if one.method != GENIE.name
    ]
    note = _at_the_least([_lost(point) for point in shares])
    figure.suptitle(f"{heading_of(study, rows)}\n{_instances(counts)}{note}", fontsize=10)
    handles = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if handles:
        _draw_legend(figure, handles)
    return figure


def _is_share(panel: Panel) -> bool:
    """Return whether the panel shows shares of the genie, which are drawn as losses."""
    return panel.measure.startswith("fraction")


def _draw_split_panel(axes: Any, study: Study, panel: Panel, panel_points: Sequence[Point]) -> None:
    shares = _is_share(panel)
    if shares:
        panel_points = [_lost(point) for point in panel_points if point.method != GENIE.name]
    if panel_points and shares:  # Bars may reach below 0, which no logarithm shows.
        axes.set_yscale("log")
        axes.set_ylim(0.6 * _LEAST_LOSS, 2 * max(point.mean for point in panel_points))
    _curves(axes, study, panel_points, study.methods())
    axes.set_ylabel("lost: 1 - V / V genie" if shares else MEASURES[panel.measure][0])
    if panel_points and panel.log:
        axes.set_yscale("log")


def _draw_legend(figure: Any, handles: Mapping[str, Any]) -> None:
    """Draw the legend below the panels, and extend the figure if it has more than two lines."""
    width, height = figure.get_size_inches()
    columns = max(1, min(4, int(width / (_HANDLE + _LETTER * max(map(len, handles))))))
    lines = -(-len(handles) // columns)
    figure.set_size_inches(width, height + _LINE * max(lines - 2, 0))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, frameon=False)


def _instances(counts: set[int]) -> str:
    if not counts:
        return "no rows yet"
    low, high = min(counts), max(counts)
    n = f"{low}" if low == high else f"{low} to {high}"
    return f"means over {n} instances, bars: one standard error over instances"


def _draw_panel(axes: Any, study: Study, panel: Panel, panel_points: Sequence[Point]) -> None:
    """Draw all lines of a panel, and their legend.

    If a study has a second column, colours show its places, and dashes and markers show the methods.
    """
    places = in_order({point.x for point in panel_points})
    splits = in_order({point.split for point in panel_points})
    methods = [method for method in study.methods() if any(point.method == method.name for point in panel_points)]
    crossed = bool(study.split) and len(methods) > 1
    for number, method in enumerate(methods):
        look = _line_style(method, number, study)
        if _is_categorical(places):
            look |= {"linestyle": "none", "shift": 0.08 * (number - (len(methods) - 1) / 2)}
        for style, split in enumerate(splits):
            line = [point for point in panel_points if (point.method, point.split) == (method.name, split)]
            if study.split:
                name = "" if crossed else study.split_label.format(split)
                look |= {"color": _shade(style, splits), "label": name}
            _draw_line(axes, line, places, **look)
        if crossed:
            sign = {"linestyle": _DASHES[number % len(_MARKERS)], "marker": look["marker"]}
            axes.plot([], [], color="black", markersize=3.5, label=method.label, **sign)
    for style, split in enumerate(splits if crossed else ()):
        axes.plot([], [], color=_shade(style, splits), linewidth=4, label=study.split_label.format(split))
    _label_axes(axes, study, panel, places)


def _is_categorical(places: Sequence[Any]) -> bool:
    return bool(places) and isinstance(places[0], str)


def _line_style(method: Contender, number: int, study: Study) -> dict[str, Any]:
    """Return the look of a method's lines: its own, or one by its number if colours show the second column."""
    mark = number % len(_MARKERS) if study.split else 0
    return {
        "label": method.label,
        "color": method.color,
        "linestyle": "--" if method.name == "genie" else _DASHES[mark],
        "marker": _MARKERS[mark] if study.split else method.marker,
    }


def _draw_line(axes: Any, line: Sequence[Point], places: Sequence[Any], *, shift: float = 0.0, **look: Any) -> None:
    """Draw points with their standard errors; words on the axis stand at 0, 1, ..., moved by `shift`."""
    if not line:
        return
    line = sorted(line, key=lambda point: places.index(point.x))
    axes.errorbar(
        [places.index(point.x) + shift if _is_categorical(places) else point.x for point in line],
        [point.mean for point in line],
        yerr=np.nan_to_num([point.stderr for point in line]),
        markersize=3.5,
        linewidth=1.3,
        **look,
    )


def _shade(place: int, places: Sequence[Any]) -> Any:
    """Return the colour of a place in the second column."""
    from matplotlib import colormaps

    return colormaps["viridis"](0.85 * place / max(len(places) - 1, 1))


def _label_axes(axes: Any, study: Study, panel: Panel, places: Sequence[Any]) -> None:
    axes.set_ylabel(MEASURES[panel.measure][0])
    axes.set_xlabel(study.axis_label)
    if _is_categorical(places):
        axes.set_xticks(range(len(places)), places)
    else:
        _mark_places(axes, study, places)
    if panel.log and axes.lines:
        axes.set_yscale("log")


def _mark_places(axes: Any, study: Study, places: Sequence[Any]) -> None:
    """Set ticks at the places of the study, on a logarithmic axis if it has one."""
    from matplotlib.ticker import FixedLocator, NullFormatter

    if study.log and places:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(list(places)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        every = 2 if study.apart and len(places) > _MOST_LABELS else 1
        axes.set_xticks(list(places), ["" if index % every else _short(place) for index, place in enumerate(places)])
    elif places:
        axes.set_xticks(list(places))


def _draw_rates(axes: Any, study: Study, rows: Sequence[Row]) -> None:
    """Draw the rate of every cell against gamma^2 H: one curve, if gamma^2 H alone decides."""
    axes.set_title("Rates, all N", fontsize=9)
    axes.set_ylabel("r: distance falls as N^-r")
    _draw_cells(axes, {method: rates(rows, method) for method in study.methods()})
    axes.axhline(0.5, color="black", linewidth=0.8, linestyle="--", label="parametric rate, 1/2")


def _draw_lemma(axes: Any, study: Study, rows: Sequence[Row]) -> None:
    """Draw each cell's distance at its largest number of sessions against gamma^2 H, and the range of Lemma C.2."""
    learned = [row for row in rows if row.n_sessions]
    if not learned:
        return
    axes.set_title("Parameters at each cell's largest N, and Lemma C.2", fontsize=9)
    axes.set_ylabel(MEASURES["distance"][0])
    evidence = Evidence(rows)
    means_by_method: dict[Contender, dict[Cell, Mean]] = {}
    for method in study.methods():
        sizes: dict[Cell, int] = {}
        for row in learned:
            if row.method == method.name:
                sizes[row.separation, row.horizon] = max(row.n_sessions, sizes.get((row.separation, row.horizon), 0))
        means = {cell: evidence.mean("distance", method, separation=cell[0], horizon=cell[1], n_sessions=size)
                 for cell, size in sorted(sizes.items())}  # fmt: skip
        means_by_method[method] = {cell: mean for cell, mean in means.items() if mean is not None}
    _draw_cells(axes, means_by_method)
    named = {label for each in axes.figure.axes for label in each.get_legend_handles_labels()[1]}
    for number, method in enumerate(method for method in means_by_method if means_by_method[method]):
        if method.label not in named:
            axes.plot([], [], color="black", linestyle="none", marker=_MARKERS[number], label=method.label)
    lemma = promise(rows[0].n_types, max(row.n_sessions for row in learned), max(row.horizon for row in rows))
    if lemma.errors.epsilon < 1:  # otherwise the lemma guarantees nothing at this number of sessions
        style: Any = {"color": "black", "linewidth": 0.8}
        ends = [lemma.scale, 3 * lemma.scale]
        axes.plot(ends, [lemma.distance] * 2, linestyle="--", label="Lemma C.2: distance", **style)
        axes.axvline(lemma.scale, linestyle=":", label="Lemma C.2: gamma^2 H", **style)
    axes.set_yscale("log")


def _draw_cells(axes: Any, means_by_method: Mapping[Contender, Mapping[Cell, Mean]]) -> None:
    """Draw a mark for each cell, with the color of its gamma and the marker of its method."""
    gaps = sorted({cell[0] for means in means_by_method.values() for cell in means})
    drawn = [method for method in means_by_method if means_by_method[method]]
    for number, method in enumerate(drawn):
        for style, gap in enumerate(gaps):
            line = {cell: mean for cell, mean in means_by_method[method].items() if cell[0] == gap}
            axes.errorbar(
                [scale(cell) for cell in line],
                [mean.mean for mean in line.values()],
                yerr=[mean.stderr for mean in line.values()],
                color=_shade(style, gaps),
                linestyle="none",
                marker=_MARKERS[number],
                markersize=3.5,
            )
    axes.set_xlabel("gamma^2 H")
    axes.set_xscale("log")


_MORE: Mapping[str, tuple[Callable[[Any, Study, Sequence[Row]], None], ...]] = {
    "separation": (_draw_rates, _draw_lemma)  # panels of a group of studies with an axis that is no column
}


def draw_measured_rates(rows: Sequence[Row], folder: str | os.PathLike[str], size: str) -> list[Path]:
    """Write the figure `rates` into `folder`: a plot for each study of rates, with exponents in its legend."""
    from matplotlib.figure import Figure as Canvas

    rows_by_id = {row.id: row for study in RATES for row in wanted(study, rows, size)}
    lines = measured_rates(list(rows_by_id.values()))

    def drawn() -> Any:
        canvas = Canvas(figsize=(11.0, 11.0), layout="constrained")
        for number, study in enumerate(RATES):
            axes = canvas.add_subplot(2, 2, number + 1)
            axes.set_title(study.title, fontsize=8)
            axes.set(xscale="log", yscale="log", xlabel=_RATE_AXES[study.name][0], ylabel=_RATE_AXES[study.name][1])
            some = [rate for rate in lines if rate.study == study.name]
            for rate in some:
                text = f"{rate.label}: {rate.exponent.mean:+.2f} ± {rate.exponent.stderr:.2f}"
                dashes = "--" if "one-arm-apart" in rate.label else "-"
                axes.plot(rate.places, rate.values, color=rate.color, marker=rate.marker, linestyle=dashes,
                          markersize=3.5, linewidth=1.2, label=text)  # fmt: skip
            if some:
                axes.legend(fontsize=6, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12))
        canvas.suptitle("Measured rates; legends show exponents with standard errors", fontsize=10)
        return canvas

    return _written("rates", drawn, folder)


_RATE_AXES = {  # horizontal and vertical
    "rate-parameters": ("sessions N", "error"),
    "rate-sampling": ("arms A", "sessions for each moment"),
    "rate-arms": ("arms A", "sessions needed"),
    "rate-perturbed": ("sessions N", "distance to the true model"),
}


def _short(number: float) -> str:
    """Format 1000 as 1k, 1000000 as 1M."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"


_REGIMES = {  # Colour, place of the name (H, M), and its angle.
    Regime.BANDIT: ("#BBBBBB", (28.0, 1.0), 0),
    Regime.VALUES: ("#F0C36D", (4.6, 11.0), 0),
    Regime.PARAMETERS: ("#9BD1F2", (45.0, 9.5), 0),
    Regime.SEPARATED: ("#5AA2D0", (95.0, 4.2), 0),
    Regime.CLUSTERS: ("#66C2A5", (560.0, 9.5), 90),
}
_N_ARMS, _GAMMA = 200, 0.8  # Arms and separation of Figure 1.
_MOST_TYPES, _MOST_STEPS = 16.5, 1000.0


def regime_polygons() -> dict[Regime, Float[Array, "n 2"]]:
    """Return the corners (H, M) of each regime in Figure 1, for 1 to 16 types and 1 to 1000 steps.

    There are 200 arms, and both separations of `theory.regime` are 0.8.

    Whole numbers lie within the polygons: one type, or one step, is the strip from 0.5 to 1.5.
    """
    types = np.linspace(1.5, _MOST_TYPES, 61)
    clusters = _N_ARMS / _GAMMA**2
    separated = np.minimum(types**2 / _GAMMA**2, clusters)
    starts: dict[
        Regime, Any
    ] = {  # The least horizon of each regime, by the number of types; it ends at the start of the next.
        Regime.VALUES: np.full(61, 1.5),
        Regime.PARAMETERS: 2 * types - 1,
        Regime.SEPARATED: separated,
        Regime.CLUSTERS: np.full(61, clusters),
    }
    ends = [*list(starts.values())[1:], np.full(61, _MOST_STEPS)]
    strip = [(0.7, 0.5), (_MOST_STEPS, 0.5), (_MOST_STEPS, 1.5), (1.5, 1.5), (1.5, _MOST_TYPES), (0.7, _MOST_TYPES)]
    polygons = {Regime.BANDIT: np.array(strip)}
    for (one, left), right in zip(starts.items(), ends, strict=True):
        sides = np.column_stack([left, types]), np.column_stack([right, types])[::-1]
        polygons[one] = np.concatenate(sides)
    return polygons


def draw_regimes(folder: str | os.PathLike[str]) -> list[Path]:
    """Write Figure 1 as regimes.png and regimes.svg into `folder`: five polygons with their names inside."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Polygon

    def figure() -> Any:
        drawn = Figure(figsize=(7.2, 4.2), layout="constrained")
        axes = drawn.add_subplot()
        axes.grid(False)
        for one, corners in regime_polygons().items():
            colour, place, angle = _REGIMES[one]
            axes.add_patch(Polygon(corners, facecolor=colour, edgecolor="white"))
            name = one.value if one is Regime.BANDIT or angle else one.value.replace(": ", "\n")
            axes.text(*place, name, rotation=angle, ha="center", va="center", fontsize=8)
        axes.set(xscale="log", xlim=(0.7, _MOST_STEPS), ylim=(0.5, _MOST_TYPES), xlabel="horizon H", ylabel="types M")
        axes.set_title(f"A = {_N_ARMS}, separation gamma = {_GAMMA}; constants and logarithms left out", fontsize=9)
        return drawn

    return _written("regimes", figure, folder)
