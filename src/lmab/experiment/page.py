"""The page of the reproduction, generated from rows: claim, figure, numbers, and whether they agree."""

from __future__ import annotations

from collections.abc import Sequence

from .analysis import episodes_needed, heading_of, wanted
from .checks import Evidence
from .claims import CLAIMS, PAPER, Claim
from .store import Row
from .studies import STUDIES
from .study import Study
from .tables import tables

_HEAD = """\
# Reproduction of the paper's experiments

This page is generated from [stored rows](reproduction/rows.csv.gz) by `lmab reproduce all --plot-only`; no number is
typed by hand. Every study can be run again: `lmab reproduce NAME` (10 instances), `--full` for 20, `--quick` to try.

The paper draws "random instances with rank about 4" and does not say how; ours are `random_bandit(kind="spherical")`
unless a study says otherwise. Values are exact expectations (`lmab.evaluate`), so the bars show the spread over
instances alone. All methods of a study see the same instances and seeds, and a share of the genie is taken instance by
instance. The same learned model serves both planners: Q-MDP, as in the paper, and the certified planner, stopped after
1 s (3 s for large sizes; five times that for the genie), so that its value is within a fraction of a percent of the
optimum for the learned model, not at it.
"""


def page(rows: Sequence[Row], size: str = "standard") -> str:
    """The page, in Markdown; figures are expected in `figures/`."""
    used = {row.id: row for study in STUDIES for row in wanted(study, rows, size)}.values()
    parts = [_HEAD, _provenance(list(used)), _overview(rows, size)]
    parts += [_section(study, wanted(study, rows, size), size) for study in STUDIES]
    return "\n".join(parts)


def _provenance(rows: Sequence[Row]) -> str:
    if not rows:
        return "No rows yet.\n"
    days = sorted({row.finished[:10] for row in rows})
    hours = sum((row.seconds_learning or 0) + (row.seconds_planning or 0) for row in rows) / 3600
    versions = ", ".join(sorted({f"lmab {row.lmab}, NumPy {row.numpy}, Python {row.python}" for row in rows}))
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"{len(rows):,} rows, {hours:.1f} hours of computing, {when}; {versions}; seed {rows[0].seed}.\n"


def _overview(rows: Sequence[Row], size: str) -> str:
    lines = ["| study | instances | claim | of | verdict |", "|---|---|---|---|---|"]
    for study in STUDIES:
        found = wanted(study, rows, size)
        for claim in CLAIMS:
            if claim.study == study.name:
                verdict = _verdict(claim, found)[0]
                link = f"[{study.name}](#{study.name})"
                lines.append(f"| {link} | {_instances(found)} | {claim.text} | {claim.source} | {verdict} |")
    return "\n".join(lines) + "\n"


def _instances(rows: Sequence[Row]) -> str:
    """How many instances every cell of the study has, at least."""
    cells: dict[tuple[object, ...], int] = {}
    for row in rows:
        key = row.kind, row.separation, row.n_contexts, row.n_arms, row.horizon, row.n_episodes, row.method
        cells[key] = cells.get(key, 0) + 1
    return (
        "0"
        if not cells
        else f"{min(cells.values())}" + (f" to {max(cells.values())}" if len(set(cells.values())) > 1 else "")
    )


def _verdict(claim: Claim, rows: Sequence[Row]) -> tuple[str, str]:
    finding = claim.check(Evidence(rows))
    if finding is None:
        return "not measured", "rows are missing"
    good, bad = ("agrees", "does not agree") if claim.source == PAPER else ("holds", "does not hold")
    return (good if finding.holds else bad), finding.text


def _section(study: Study, rows: Sequence[Row], size: str) -> str:
    missing = len({trial.id for trial in study.trials(size)}) - len(rows)
    parts = [f"## {study.name}", "", f"{heading_of(study, rows)}. {_instances(rows)} instances.", ""]
    if missing:
        parts += [f"{missing} of {missing + len(rows)} trials are missing.", ""]
    if rows:
        parts += [f"![{study.title}](figures/{study.name}.svg)", ""]
    for claim in CLAIMS:
        if claim.study == study.name:
            verdict, text = _verdict(claim, rows)
            why = f" {claim.why}" if claim.why and verdict.startswith("does not") else ""
            parts.append(f"- {claim.source.capitalize()}: {claim.text} **{verdict.capitalize()}**: {text}.{why}")
    for table in tables(study, rows):
        parts += ["", f"**{table.title}**", "", *_markdown(table.header, table.cells)]
    if study.name == "episodes":
        parts += ["", "**Episodes needed (5% to 95% of a bootstrap over instances)**", "", *_needed(study, rows)]
    return "\n".join(parts) + "\n"


def _needed(study: Study, rows: Sequence[Row]) -> list[str]:
    levels = (0.95, 0.97, 0.99)
    cells = []
    for method in study.methods():
        found = [episodes_needed(rows, method.name, level) for level in levels]
        if method.learns and all(found):
            cells.append([method.label, *(_range(each.n_episodes, each.low, each.high) for each in found if each)])
    return _markdown(["share of the genie", *map(str, levels)], cells)


def _range(middle: float, low: float, high: float) -> str:
    texts = ["not reached" if value == float("inf") else f"{value:,.0f}" for value in (middle, low, high)]
    return f"{texts[0]} ({texts[1]} to {texts[2]})"


def _markdown(header: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *cells]
    return ["| " + " | ".join(line) + " |" for line in lines]
