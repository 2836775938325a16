"""How work grows: with sessions (rows of `bench_pack` and `study_billion`), and with arms (rows of `bench_arms`)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from lmab._html import Frame, Markup, element, join, line

from .rows import Measured

_RUNS = ("pack", "study_billion")  # where both have a size, the study counts
_ROW = re.compile(r"grow/(\d+)/seconds")
_ARMS = re.compile(r"stars/(\d+)/(\S+)")
_PARTS = {"fit": "fit", "check": "check", "certificate": "assessment", "plan/to-1%": "plan to 1%"}
_LEGEND = 240.0, 150.0  # where the names of the lines begin
_STYLE = """
.chart { color: #1b2230; } .chart .memory { stroke: #b5572a; stroke-width: 1.5; fill: none; }
.chart circle.memory { fill: #b5572a; }
.chart .check { stroke: #2f8f6b; stroke-width: 1.5; fill: none; } .chart circle.check { fill: #2f8f6b; }
.chart .plan { stroke: #8a56b0; stroke-width: 1.5; fill: none; } .chart circle.plan { fill: #8a56b0; }
@media (prefers-color-scheme: dark) { .chart { color: #e6e9ef; } }
"""


class Size(NamedTuple):
    """What a log of so many sessions took."""

    n_sessions: int
    seconds: float  # of the processor, packing and fitting
    wall: float  # seconds on the clock
    own: float  # MB of memory at the peak, mapped files not counted


def sizes(runs: Mapping[str, Measured]) -> list[Size]:
    """All sizes that were measured, rising."""
    found = {}
    for rows in (runs[name].rows for name in _RUNS if name in runs):
        for n in (int(match[1]) for match in map(_ROW.fullmatch, rows) if match):
            found[n] = Size(n, *(rows[f"grow/{n}/{name}"] for name in ("seconds", "wall", "own-MB")))
    return [found[n] for n in sorted(found)]


def table(runs: Mapping[str, Measured]) -> str:
    """The sizes as a Markdown table."""
    heads = ("sessions of 7 steps", "processor seconds, packing and fitting", "seconds on the clock", "MB of its own")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for one in sizes(runs):
        shown = (f"{value:,.1f}" if value < 10 else f"{value:,.0f}" for value in one[1:])
        lines.append(f"| {one.n_sessions:,} | {' | '.join(shown)} |")
    return "\n".join(lines)


def picture(runs: Mapping[str, Measured]) -> str:
    """The sizes as an SVG with logarithmic axes: processor time and memory."""
    found = sizes(runs)
    across = np.log10([one.n_sessions for one in found])
    seconds, own = np.log10([one.seconds for one in found]), np.log10([one.own for one in found])
    frame = Frame.around(across, np.concatenate([seconds, own]), powers=True)
    marks = [element("style", Markup(_STYLE))]
    marks.append(_series(frame, across, seconds, "curve", "point", "processor time, seconds"))
    marks.append(_series(frame, across, own, "memory", "memory", "own memory, MB"))
    title = "Packing and fitting a log, by its number of sessions"
    return frame.draw(title, "sessions", "seconds, or MB", *marks, standalone=True) + "\n"


def arms_picture(runs: Mapping[str, Measured]) -> str:
    """Seconds of fit, check, assessment and plan by the number of arms, as an SVG with logarithmic axes."""
    found: dict[str, dict[int, float]] = {part: {} for part in _PARTS}
    for match, value in ((_ARMS.fullmatch(name), value) for name, value in runs["arms"].rows.items()):
        if match and match[2] in found:
            found[match[2]][int(match[1])] = value
    drawn = {part: sorted(by_size.items()) for part, by_size in found.items() if by_size}
    every = np.log10([pair for pairs in drawn.values() for pair in pairs])
    frame = Frame.around(every[:, 0], every[:, 1], powers=True)
    marks = [element("style", Markup(_STYLE))]
    colours = dict(zip(_PARTS, ("curve", "check", "memory", "plan"), strict=True))
    for place, (part, pairs) in enumerate(drawn.items()):
        across, up = np.log10(pairs).T
        dot = "point" if colours[part] == "curve" else colours[part]
        marks.append(_series(frame, across, up, colours[part], dot, ""))
        left, top = _LEGEND[0], _LEGEND[1] + 16 * place  # names below the lines, which rise
        marks.append(element("circle", cx=left, cy=top - 4, r=4, class_=dot))
        marks.append(element("text", _PARTS[part], x=left + 10, y=top))
    title = "Seconds of the processor by the number of arms"
    return frame.draw(title, "arms", "seconds", *marks, standalone=True) + "\n"


def _series(frame: Frame, xs: np.ndarray, ys: np.ndarray, style: str, dot: str, name: str) -> Markup:
    """A line with its points, and its name below the middle one, where rising lines leave room."""
    places = [frame.at(x, y) for x, y in zip(xs.tolist(), ys.tolist(), strict=True)]
    dots = join(*(element("circle", cx=x, cy=y, r=3, class_=dot) for x, y in places))
    middle = places[len(places) // 2]
    label = element("text", name, x=middle[0] + 8, y=middle[1] + 16) if name else Markup("")
    return join(line(frame, xs.tolist(), ys.tolist(), style), dots, label)
