"""HTML and SVG as text: elements, tables for notebooks, small charts, and numbers with their nouns.

One function makes every element, so that labels given by users are escaped in one place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from ._shapes import Array, Float, Integer


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun, such as `12,000 sessions`.

    Examples:
        >>> count(1, "type"), count(12000, "session"), count(2, "directory", "directories")
        ('1 type', '12,000 sessions', '2 directories')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def steps_of(horizon: int, *, people_leave: bool) -> str:
    """Return the length of a session: `6 steps`, or `at most 6 steps` if people may leave before.

    Examples:
        >>> steps_of(6, people_leave=False), steps_of(1, people_leave=True)
        ('6 steps', 'at most 1 step')
    """
    return f"{'at most ' if people_leave else ''}{count(horizon, 'step')}"


def best_fixed(repeats: bool) -> str:
    """Return the name of the baseline that plays the same for everyone, whatever the rewards of the session.

    Examples:
        >>> best_fixed(True), best_fixed(False)
        ('the best fixed arm', 'the best fixed list')
    """
    return f"the best fixed {'arm' if repeats else 'list'}"


def listing(numbers: Integer[Array, "n"]) -> str:
    """Return the first five numbers, and the number of the others."""
    shown = ", ".join(str(number) for number in numbers[:5].tolist())
    return shown + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")


class Markup(str):
    """Text that is already markup and is not escaped again."""

    __slots__ = ()


def element(name: str, /, *content: Any, **attributes: Any) -> Markup:
    """Return `<name attribute="...">content</name>`; text is escaped, `Markup` is not.

    An attribute's trailing underscore is dropped (`class_`), others become hyphens (`stroke_width`); None is omitted.

    Examples:
        >>> element("p", "a < b", class_="note")
        '<p class="note">a &lt; b</p>'
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(part if isinstance(part, Markup) else escape(_text(part), quote=False) for part in content)
    return Markup(f"<{name}{given}>{inside}</{name}>" if inside or name not in _VOID else f"<{name}{given}/>")


def join(*parts: Markup) -> Markup:
    """Concatenate pieces of markup."""
    return Markup("".join(parts))


def prose(name: str, text: str, **attributes: Any) -> Markup:
    """Return an element around a sentence, in which words between backquotes become `<code>`.

    Examples:
        >>> prose("p", "run `lmab fit` < twice")
        '<p>run <code>lmab fit</code> &lt; twice</p>'
    """
    parts = text.split("`")
    return element(name, *(element("code", part) if k % 2 else part for k, part in enumerate(parts)), **attributes)


_VOID = ("line", "rect", "circle", "path", "polyline", "polygon", "meta", "br")


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def card(title: str, rows: Mapping[str, str]) -> str:
    """Return an HTML table with a title and one row per number."""
    lines = "".join(
        f'<tr><th style="text-align:left;font-weight:normal;opacity:.7;white-space:nowrap">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(text)}</td></tr>'
        for name, text in rows.items()
    )
    return (
        '<table style="border-left:3px solid #3b6fd4;font-variant-numeric:tabular-nums">'
        f'<thead><tr><th colspan="2" style="text-align:left">{escape(title)}</th></tr></thead>'
        f"<tbody>{lines}</tbody></table>"
    )


def percent(share: float) -> str:
    """Return a share as a percentage, such as `12%` or `0.4%`."""
    return f"{100 * share:.{0 if share == 0 or abs(share) >= 0.1 else 1}f}%"


WIDTH, HEIGHT = 360, 260
#: Style of a chart without a page; a page defines its own colours.
_STYLE = """
.chart { width: 22rem; max-width: 100%; display: block; font: 11px system-ui, sans-serif; }
.chart text { fill: currentColor; } .chart .grid { stroke: currentColor; opacity: .2; }
.chart .point { fill: #3b6fd4; } .chart .error, .chart .curve { stroke: #3b6fd4; stroke-width: 1.5; fill: none; }
.chart .ideal { stroke: currentColor; opacity: .6; stroke-dasharray: 4 4; fill: none; }
"""
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 10, 10, 42
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Frame:
    """Axes of a chart: the ranges shown, and the mapping from values to pixels."""

    x: tuple[float, float]
    y: tuple[float, float]
    powers: bool = False  # coordinates are logarithms to base ten, and ticks are powers of ten

    @classmethod
    def around(cls, xs: Float[Array, "n"], ys: Float[Array, "k"], *, powers: bool = False) -> Frame:
        """Return the frame that holds all points, with a small margin."""
        return cls(_padded(xs), _padded(ys), powers)

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return _LEFT + across * (WIDTH - _LEFT - _RIGHT), HEIGHT - _BOTTOM - up * (HEIGHT - _TOP - _BOTTOM)

    def draw(
        self, title: str, xlabel: str, ylabel: str, *marks: Markup, integers: bool = False, standalone: bool = False
    ) -> Markup:
        """Return the chart: grid, ticks, labels, marks; `standalone` adds the style that a page defines itself."""
        across = [tick for tick in ticks(*self.x) if not (integers or self.powers) or tick == round(tick)]
        up = [tick for tick in ticks(*self.y) if not self.powers or tick == round(tick)]
        parts = [join(*map(self._upright, across)), join(*map(self._level, up)), *marks]
        parts.append(element("text", xlabel, x=(WIDTH + _LEFT) / 2, y=HEIGHT - 8, text_anchor="middle"))
        middle = (HEIGHT - _BOTTOM + _TOP) / 2
        turn = f"rotate(-90 11 {middle:g})"
        parts.append(element("text", ylabel, x=11, y=middle, text_anchor="middle", transform=turn))
        view = f"0 0 {WIDTH} {HEIGHT}"
        style = element("style", Markup(_STYLE)) if standalone else Markup("")
        given = {"xmlns": "http://www.w3.org/2000/svg"} if standalone else {}
        name = element("title", title)
        return element("svg", name, style, *parts, viewBox=view, class_="chart", role="img", **given)

    def _upright(self, value: float) -> Markup:
        x, bottom = self.at(value, self.y[0])
        grid = element("line", x1=x, x2=x, y1=_TOP, y2=bottom, class_="grid")
        return join(grid, element("text", self._shown(value), x=x, y=bottom + 16, text_anchor="middle"))

    def _level(self, value: float) -> Markup:
        left, y = self.at(self.x[0], value)
        grid = element("line", x1=left, x2=WIDTH - _RIGHT, y1=y, y2=y, class_="grid")
        return join(grid, element("text", self._shown(value), x=left - 6, y=y + 4, text_anchor="end"))

    def _shown(self, value: float) -> str:
        return "10" + f"{value:g}".translate(_RAISED) if self.powers else f"{value:g}"


def points(frame: Frame, xs: Sequence[float], ys: Sequence[float], errors: Sequence[float]) -> Markup:
    """Return points with error bars of one standard error."""
    marks = []
    for x, y, error in zip(xs, ys, errors, strict=True):
        (across, up), (_, top), (_, low) = frame.at(x, y), frame.at(x, y + error), frame.at(x, y - error)
        note = element("title", f"{x:.3g}: {y:.4g} ± {error:.2g}")
        bar = element("line", x1=across, x2=across, y1=top, y2=low, class_="error")
        marks.append(element("g", note, bar, element("circle", cx=across, cy=up, r=4, class_="point")))
    return join(*marks)


def line(frame: Frame, xs: Sequence[float], ys: Sequence[float], style: str = "curve") -> Markup:
    """Return a line through points; `style` is its CSS class."""
    places = " ".join("{:.1f},{:.1f}".format(*frame.at(x, y)) for x, y in zip(xs, ys, strict=True))
    return element("polyline", points=places, class_=style)


def calibration(
    predicted: Float[Array, "B"], observed: Float[Array, "B"], stderr: Float[Array, "B"], *, standalone: bool = False
) -> Markup:
    """Return a chart of predicted against observed rewards; calibrated points lie on the dashed line."""
    ends = np.concatenate([predicted, observed - stderr, observed + stderr])
    frame = Frame.around(ends, ends)
    ideal = line(frame, list(frame.x), list(frame.x), "ideal")
    marks = points(frame, predicted.tolist(), observed.tolist(), stderr.tolist())
    return frame.draw("Calibration", "predicted reward", "paid", ideal, marks, standalone=standalone)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return at most `most` round numbers between low and high.

    Examples:
        >>> ticks(0.0, 1.0)
        [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    rough = (high - low) / (most - 1)
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9))
    return [round(float(k * step), 12) for k in range(first, last + 1)]


def _padded(values: Float[Array, "n"]) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    air = 0.05 * (high - low) or 0.5 * abs(low) or 0.5
    return low - air, high + air
