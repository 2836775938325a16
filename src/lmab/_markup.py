"""HTML and SVG as text: one function makes every element, so that names given by users are escaped in one place."""

from __future__ import annotations

from html import escape
from typing import Any


class Markup(str):
    """Text that is already markup and is not escaped again."""

    __slots__ = ()


def element(name: str, /, *content: Any, **attributes: Any) -> Markup:
    """`<name attribute="...">content</name>`; text is escaped, `Markup` is not.

    An attribute's trailing underscore is dropped (`class_`), others become hyphens (`stroke_width`); None is left out.

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
    """Pieces of markup one after the other."""
    return Markup("".join(parts))


def prose(name: str, text: str, **attributes: Any) -> Markup:
    """An element around a sentence, in which words between backquotes become `<code>`.

    Examples:
        >>> prose("p", "say `lmab fit` < twice")
        '<p>say <code>lmab fit</code> &lt; twice</p>'
    """
    parts = text.split("`")
    return element(name, *(element("code", part) if k % 2 else part for k, part in enumerate(parts)), **attributes)


_VOID = ("line", "rect", "circle", "path", "polyline", "polygon", "meta", "br")


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
