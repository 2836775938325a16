"""Figures in README and pages, from the stored rows: `python -m benchmarks.figures` writes them, a test compares.

A figure in prose is followed by a comment that names its row, `24<!-- row: em/ours -->`; it shows as many decimals as
it showed before. A table stands between `<!-- table: planning -->` and `<!-- end -->`, as the benchmark printed it, or
as it is made of the rows of several runs (`MADE`); pictures are drawn from rows too (`DRAWN`). The count of the paper's
claims that agree is written anew wherever it stands. A number that looks measured and is not, such as a limit, is
followed by `<!-- row: none -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from lmab.experiment import RowStore
from lmab.paper.experiment.page import count_verdicts, headline, levers, readings, size_readings

from . import growth, rows, study_loop

ROOT = Path(__file__).parent.parent
NUMBER = rf"(?<![\w.,]){rows.NUMBER}"
FIGURE = re.compile(rf"(?P<number>{NUMBER})(?P<percent>%?)<!-- row: (?P<row>\S+) -->")
TABLE = re.compile(r"<!-- table: (?P<run>[^/\s]+)(?:/(?P<table>\S+))? -->\n.*?<!-- end -->", re.S)
CLAIMS = re.compile(
    r"\d+ of \d+ claims of the paper agree[^,]*(?=, 20 instances each)"
)  # counted from the paper's rows
UNIT = r"(?:s|ms|µs|ns|seconds?|microseconds?|minutes?|hours?|kB|MB|GB)\b|times (?:as|the)\b"
BARE = re.compile(rf"{NUMBER}(?: (?:to|and|or) (?:{NUMBER}|§))?(?: (?:{UNIT}))")
STORED = ROOT / "docs" / "reproduction"  # rows of the paper's studies
MADE: dict[str, Callable[[dict[str, rows.Measured]], str]] = {  # tables
    "growth": growth.table,
    "headline": lambda runs: headline(RowStore(STORED).rows(), "full"),
    "size-readings": lambda runs: size_readings(RowStore(STORED).rows(), "full"),
    "readings": lambda runs: readings(RowStore(STORED).rows(), "full"),
    "levers": lambda runs: levers(RowStore(STORED).rows(), "full"),
}
DRAWN: dict[str, Callable[[dict[str, rows.Measured]], str]] = {  # in docs/pictures
    "growth.svg": growth.picture,
    "arms.svg": growth.arms_picture,
    "loops.svg": study_loop.drawn,
}
GENERATED = {"cli.md", "rates.md", "reproduction.md"}  # by other programs, from rows of their own


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted(page for page in (ROOT / "docs").glob("*.md") if page.name not in GENERATED)]


def pictures() -> dict[Path, Callable[[dict[str, rows.Measured]], str]]:
    """The pictures that are drawn from rows, and what draws each."""
    return {ROOT / "docs" / "pictures" / name: draw for name, draw in DRAWN.items()}


def filled(text: str, runs: dict[str, rows.Measured]) -> str:
    """The text with every figure and every table as stored."""
    known = rows.flat(runs)

    def figure(match: re.Match[str]) -> str:
        if match["row"] == "none":
            return match[0]
        value = known[match["row"]] * (100 if match["percent"] else 1)
        return f"{like(match['number'], value)}{match['percent']}<!-- row: {match['row']} -->"

    def table(match: re.Match[str]) -> str:
        run, part = match["run"], match["table"]
        shown = MADE[run](runs) if run in MADE else runs[run].tables[part or ""]
        return f"<!-- table: {run}{f'/{part}' if part else ''} -->\n\n{shown}\n\n<!-- end -->"

    text = TABLE.sub(table, FIGURE.sub(figure, text))
    return CLAIMS.sub(lambda match: count_verdicts(RowStore(STORED).rows(), "full"), text)


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
    wanted = {page: filled(page.read_text(), runs) for page in pages()}
    wanted |= {path: draw(runs) for path, draw in pictures().items()}
    for path, new in wanted.items():
        if not path.exists() or path.read_text() != new:
            path.write_text(new)
            print(f"{path.relative_to(ROOT)}: brought up to date", file=sys.stderr)


if __name__ == "__main__":
    main()
