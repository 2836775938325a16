"""The HTML table that a notebook shows for a value, in the notebook's own colours."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


def card(title: str, rows: Mapping[str, str]) -> str:
    """An HTML table with a title and one line per number."""
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
    """`12%`, `0.4%`: a share as a reader would say it."""
    return f"{100 * share:.{0 if share == 0 or abs(share) >= 0.1 else 1}f}%"
