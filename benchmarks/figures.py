"""Figures in README and pages, from the stored rows: `python -m benchmarks.figures` writes them, a test compares.

A figure in prose is followed by a comment that names its row, `24<!-- row: em/ours -->`; it shows as many decimals as
it showed before. A table stands between `<!-- table: planning -->` and `<!-- end -->`, as the benchmark printed it. A
number that looks measured and is not, such as a limit, is followed by `<!-- row: none -->`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from . import rows

ROOT = Path(__file__).parent.parent
NUMBER = rf"(?<![\w.,]){rows.NUMBER}"
FIGURE = re.compile(rf"(?P<number>{NUMBER})(?P<percent>%?)<!-- row: (?P<row>\S+) -->")
TABLE = re.compile(r"<!-- table: (?P<run>[^/\s]+)(?:/(?P<table>\S+))? -->\n.*?<!-- end -->", re.S)
UNIT = r"(?:s|ms|µs|ns|seconds?|microseconds?|minutes?|hours?|kB|MB|GB)\b|times (?:as|the)\b"
BARE = re.compile(rf"{NUMBER}(?: (?:to|and|or) (?:{NUMBER}|§))?(?: (?:{UNIT}))")
GENERATED = {"cli.md", "reproduction.md"}  # by other programs, from rows of their own


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").glob("*.md") if page.name not in GENERATED)]


def filled(text: str, runs: dict[str, rows.Measured]) -> str:
    """The text with every figure and every table as stored."""
    known = rows.flat(runs)

    def figure(match: re.Match[str]) -> str:
        if match["row"] == "none":
            return match[0]
        value = known[match["row"]] * (100 if match["percent"] else 1)
        return f"{like(match['number'], value)}{match['percent']}<!-- row: {match['row']} -->"

    def table(match: re.Match[str]) -> str:
        name = match["run"] + (f"/{match['table']}" if match["table"] else "")
        return f"<!-- table: {name} -->\n\n{runs[match['run']].tables[match['table'] or '']}\n\n<!-- end -->"

    return TABLE.sub(table, FIGURE.sub(figure, text))


def like(number: str, value: float) -> str:
    """The value with as many decimals as the number has; a sign, or no leading zero, where it has that."""
    decimals = len(number.partition(".")[2])
    shown = f"{value:{'+' if number[0] in '+-' else ''},.{decimals}f}"
    return shown.replace("0.", ".", 1) if number.lstrip("+-").startswith(".") and abs(value) < 1 else shown


def bare(text: str) -> list[str]:
    """Times, sizes and ratios in prose that name no row."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    return [match[0] for match in BARE.finditer(FIGURE.sub("§", TABLE.sub("", text)))]


def main() -> None:
    runs = rows.read()
    for page in pages():
        text = page.read_text()
        if (new := filled(text, runs)) != text:
            page.write_text(new)
            print(f"{page.relative_to(ROOT)}: figures brought up to date", file=sys.stderr)


if __name__ == "__main__":
    main()
