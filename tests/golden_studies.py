"""Golden studies: figures and verdicts for artificial rows, so that a change of a mark or a word is noticed.

Rows follow three scenarios: better methods earn more; all earn the same; the order is reversed and some rows are
missing. After an intended change of figures or words, regenerate the file with `python tests/golden_studies.py`; the
commit then shows the difference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from lmab.paper.experiment import plots
from lmab.paper.experiment.analysis import wanted
from lmab.paper.experiment.claims import CLAIMS
from lmab.paper.experiment.methods import Measurement, Trial
from lmab.paper.experiment.page import _rows_of, _verdict, count_verdicts, page
from lmab.paper.experiment.store import Row, row_of
from lmab.paper.experiment.studies import FIGURES, RATES, STUDIES

FILE = Path(__file__).with_suffix(".json")
SIZE, JUDGED = "quick", "standard"  # of figures and tables, and of checks
ORDER = ("genie", "ed-mle", "direct-mle", "tensor", "l-ucrl", "history", "ucb1")


def chance(*words: Any) -> float:
    """Return a number between 0 and 1 that depends on the words alone."""
    return crc32(" ".join(map(str, words)).encode()) / 2**32


def place(name: str) -> int:
    return next((i for i, start in enumerate(ORDER) if name.startswith(start)), len(ORDER))


def skilled(trial: Trial) -> float:
    """Return losses: small for the first methods of the list and for long logs, 0 for the genie."""
    if trial.method.name == "genie":
        return 1.0
    size = max(trial.setting.n_sessions, 100)
    return 1 - 0.4 * (1 + place(trial.method.name)) / 8 * (200 / (size + 200)) ** 0.4 - 0.02 * chance(trial.id)


def alike(trial: Trial) -> float:
    return 0.95 + 0.001 * chance(trial.id)


def turned(trial: Trial) -> float:
    """Return losses: large for the first methods of the list and for long logs."""
    if trial.method.name == "genie":
        return 1.0
    return (
        0.3 + 0.09 * place(trial.method.name) - 0.01 * np.log10(trial.setting.n_sessions + 10) + chance(trial.id) / 50
    )


WORLDS: dict[str, tuple[Callable[[Trial], float], Callable[[Trial], bool]]] = {
    "skilled": (skilled, lambda trial: True),
    "alike": (alike, lambda trial: True),
    "turned": (turned, lambda trial: chance("there", trial.id) < 0.97),
}


@cache
def rows(world: str, size: str = SIZE) -> tuple[Row, ...]:
    share, there = WORLDS[world]
    trials = {trial.id: trial for study in STUDIES for trial in study.trials(size) if there(trial)}
    return tuple(_row(trial, share(trial)) for trial in trials.values())


def _row(trial: Trial, share: float) -> Row:
    best = trial.setting.horizon * (0.5 + 0.1 * trial.instance + 0.02 * chance(trial.setting))
    found = Measurement(
        best * share, best * (share - 0.05 * chance("q", trial.id)), 0.001, 0.99 * best * share, best,
        (1.5 - share) * (1 + chance("d", trial.id)) / (1 + trial.setting.n_sessions) ** 0.3, trial.setting.n_sessions,
        10 * chance("s", trial.id), chance("p", trial.id), ("certified", "time limit")[trial.instance % 2],
        (1.5 - share) * (1 + chance("e", trial.id)) / (1 + trial.setting.n_sessions) ** 0.3,
    )  # fmt: skip
    row = row_of(trial, found, "done", "2022-10-03T00:00:00+00:00")
    return replace(row, lmab="1", numpy="2", python="3", commit=f"c{trial.instance % 2}", machine="m")


def findings(world: str) -> dict[str, str]:
    """Verdict and words of every check."""
    said = {}
    for number, claim in enumerate(CLAIMS):
        verdict, text = _verdict(claim, _rows_of(claim, rows(world, JUDGED), JUDGED), JUDGED)
        said[f"{number} {claim.study}: {claim.text}"] = f"{verdict}: {text}"
    return said | {"counted": count_verdicts(rows(world), SIZE)}


def tables(world: str) -> list[str]:
    """Return the lines of the page that depend on rows, except for the checks."""
    text = page(rows(world), SIZE)
    return [line for line in text.splitlines() if line.startswith(("| ", "**")) or "instances." in line]


def short(values: Sequence[Any]) -> str:
    return " ".join(one if isinstance(one, str) else f"{float(one):.5g}" for one in values)


def figure(drawn: Any) -> list[str]:
    """Return the contents of a figure as lines of text: words, scales, marks, bars and their style."""
    width, height = drawn.get_size_inches()
    said = [f"size {width:.4g} x {height:.4g}", f"title {drawn.get_suptitle()!r}"]
    said += [f"legend {[text.get_text() for text in one.get_texts()]} in {one._ncols} columns" for one in drawn.legends]
    for axes in drawn.axes:
        said.append(f"axes {axes.get_title()!r} x {axes.get_xlabel()!r} y {axes.get_ylabel()!r} "
                    f"{axes.get_xscale()} {axes.get_yscale()}")  # fmt: skip
        said.append(f"ticks {short(axes.get_xticks())} {[text.get_text() for text in axes.get_xticklabels()]}")
        for line in axes.lines:
            look = (
                f"{line.get_label() if not str(line.get_label()).startswith('_') else ''} {_colour(line.get_color())}"
            )
            style = f"{line.get_linestyle()} {line.get_marker()} {line.get_markersize():g} {line.get_linewidth():g}"
            said.append(f"line {look} {style}: {short(line.get_xdata())} | {short(line.get_ydata())}")
        for container in axes.containers:
            (bars,) = container.lines[2]
            said.append(f"bars of {container.get_label()}: {short(np.ravel([s[:, 1] for s in bars.get_segments()]))}")
    return said


def _colour(colour: Any) -> str:
    from matplotlib.colors import to_hex

    return to_hex(colour)


def pictures(world: str) -> dict[str, list[str]]:
    """Every figure of the studies."""
    found = {}
    for study in STUDIES:
        if study in RATES:  # drawn together
            continue
        some = wanted(study, list(rows(world)), SIZE)
        found[study.name] = figure((plots._split_figure if study.apart else plots._figure)(study, some))
    for one in FIGURES:
        found[one.name] = figure(canvas(lambda one=one: plots.draw_figure(one, list(rows(world)), "", SIZE)))
    found["rates"] = figure(canvas(lambda: plots.draw_measured_rates(list(rows(world)), "", SIZE)))
    return found


def canvas(draw: Callable[[], Any]) -> Any:
    """Return the canvas of a figure without writing a file."""
    seen: list[Any] = []
    written = plots._written
    plots._written = lambda name, drawn, folder: seen.append(drawn()) or []  # type: ignore[assignment,func-returns-value]
    try:
        draw()
    finally:
        plots._written = written
    return seen[0]


def answers() -> dict[str, Any]:
    """Return all golden values."""
    found: dict[str, Any] = {"pictures": pictures("skilled")}
    return found | {f"findings {world}": findings(world) for world in WORLDS} | {"tables": tables("turned")}


if __name__ == "__main__":
    FILE.write_text(json.dumps(answers(), indent=1) + "\n")
