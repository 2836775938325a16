"""`lmab reproduce`: run the studies, store every row and draw the figures."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import Executor
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from ...checks import choices
from ...cli.options import ClusterAddress, Json
from ...cli.output import console, progress, show_json, show_table
from ...errors import InvalidArgument
from ...parallel import connected
from ..experiment.analysis import wanted
from ..experiment.methods import Contender
from ..experiment.page import page, rates_page, tables
from ..experiment.plots import draw, draw_figure, draw_measured_rates, draw_regimes
from ..experiment.store import CLOSE, Again, Row, RowStore, drawn, pending, repeated, run_all, unlike, write_table
from ..experiment.studies import FIGURES, RATES, STUDIES, Study

_FIGURES = {figure.name: figure for figure in FIGURES}
_REGIMES = "regimes"  # Figure 1, which needs no trials.
_RATES = "rates"  # one figure of four studies
_NAMES = [*_FIGURES, _REGIMES, _RATES, *(study.name for study in STUDIES)]


def reproduce(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help=f"{', '.join(_NAMES)}, or all.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List the studies and stop.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, 2 instances; all studies take minutes.")] = False,
    full: Annotated[bool, typer.Option("--full", help="All sizes, 20 instances; takes hours.")] = False,
    jobs: Annotated[int, typer.Option(help="Processes.", min=1, show_default="all cores")] = os.cpu_count() or 1,
    cluster: ClusterAddress = None,
    out: Annotated[Path, typer.Option(help="Folder of rows and figures.")] = Path("results"),
    plot_only: Annotated[bool, typer.Option("--plot-only", help="Run nothing; draw the rows that are stored.")] = False,
    again: Annotated[int, typer.Option(help="Run this many stored trials again and compare their rows.", min=0)] = 0,
    contenders: Annotated[
        list[str] | None,
        typer.Option(
            "--with", metavar="MODULE:CONTENDER", help="Also run your Contender (or a list of them), in every setting."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a study of the paper or of ours: store rows, a table and figures. By default 10 instances are run.

    Each row is stored when it is finished. If the command is stopped or killed, run it again: it continues.
    figure2 and figure3 are the paper's figures in its own form, of two studies each; regimes is its Figure 1; rates
    measures exponents in four studies. order and separation also run the studies with names that begin so.

    Example: lmab reproduce figure2 figure3 --quick --out results
    """
    if show_list:
        show_json(_listed()) if as_json else show_table("Studies", ["name", "title", "trials"], _listing())
        return
    mine = [contender for given in contenders or [] for contender in _imported(given)]
    studies, size = _chosen(names or []), _size(quick, full)
    studies = [study.with_methods(*mine) for study in studies] if mine else studies
    store = RowStore(out)
    if again:
        rows = store.rows()
        trials = drawn([trial for study in studies for trial in study.trials(size)], rows, again)
        _show_again(repeated(trials, rows, jobs=jobs), as_json)
        return
    if not plot_only and studies:
        _run(studies, size, store, jobs, cluster)
    _show(studies, _figures(names or []), size, store, as_json)


_AGREEMENT = ("method", "rows", "of this machine", "equal to the bit", f"within {CLOSE:g}", "largest difference")


def _show_again(pairs: Sequence[Again], as_json: bool) -> None:
    """Print how many rows agree, method by method; raise an error if the code gives other rows."""
    if not pairs:
        raise InvalidArgument("--again needs stored rows of the studies, got a folder (--out) without any")
    methods = {
        method: [pair for pair in pairs if pair.method == method] for method in sorted({p.method for p in pairs})
    }
    lines = [_agreement(method, some) for method, some in methods.items()]
    wrong = unlike(pairs)
    if as_json:
        show_json({"methods": [dict(zip(_AGREEMENT, line, strict=True)) for line in lines], "unlike": wrong})
    else:
        shown = [list(map(str, line)) for line in [*lines, _agreement("all", pairs)]]
        show_table("Stored rows run again", _AGREEMENT, shown)
    if wrong:
        raise InvalidArgument(
            f"stored rows must be what the code gives, got others for {', '.join(wrong)}: raise the revision of these "
            "methods and run their trials anew"
        )


def _agreement(name: str, pairs: Sequence[Again]) -> list[str | int]:
    differences = [pair.difference for pair in pairs]
    n_close = sum(difference <= CLOSE for difference in differences)
    n_here = sum(pair.same_machine for pair in pairs)
    return [name, len(pairs), n_here, differences.count(0), n_close, f"{max(differences):.2g}"]


def _listed() -> list[dict[str, str | int]]:
    return [{"name": s.name, "title": s.title, **{size: len(s.trials(size)) for size in s.cells}} for s in STUDIES]


def _listing() -> list[list[str]]:
    return [[s.name, s.title, " / ".join(str(len(s.trials(size))) for size in s.cells)] for s in STUDIES]


def _chosen(names: Sequence[str]) -> list[Study]:
    unknown = [name for name in names if name not in (*_NAMES, "all")]
    if unknown or not names:
        raise InvalidArgument(f"NAME must be {choices([*_NAMES, 'all'])}, got {unknown[0] if unknown else 'none'!r}")
    parts = {study.name for name in names if name in _FIGURES for study in _FIGURES[name].studies}
    return [study for study in STUDIES if {study.name, study.group, "all"} & {*names} or study.name in parts]


def _imported(given: str) -> list[Contender]:
    """Return the contenders that "module:NAME" names; the module is looked for in the current folder first."""
    module, _, name = given.partition(":")
    if not module or not name:
        raise InvalidArgument(f"--with must be MODULE:CONTENDER, such as mymethods:PATIENT, got {given!r}")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)  # processes that run trials inherit it
    try:
        attribute = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise InvalidArgument(f"--with must name a contender that can be imported, got {given!r}: {error}") from error
    contenders = [attribute] if isinstance(attribute, Contender) else attribute
    if not isinstance(contenders, list | tuple) or not all(isinstance(one, Contender) for one in contenders):
        raise InvalidArgument(f"--with must name an lmab.experiment.Contender or a list of them, got {attribute!r}")
    return list(contenders)


def _figures(names: Sequence[str]) -> list[str]:
    """Return the figures of the paper that are drawn."""
    return [name for name in (*_FIGURES, _REGIMES, _RATES) if name in names or "all" in names]


def _size(quick: bool, full: bool) -> str:
    if quick and full:
        raise InvalidArgument("--quick and --full must not be given together, got both")
    return "quick" if quick else "full" if full else "standard"


def _run(studies: Sequence[Study], size: str, store: RowStore, jobs: int, cluster: str | None) -> None:
    if cluster is None:
        _run_on(studies, size, store, jobs, None)
        return
    with connected(cluster) as client:  # the rows are written here, wherever the trials run
        workers = max(sum(client.nthreads().values()), 1)
        _run_on(studies, size, store, workers, client.get_executor(pure=False, retries=2))


def _run_on(studies: Sequence[Study], size: str, store: RowStore, jobs: int, executor: Executor | None) -> None:
    trials = pending([trial for study in studies for trial in study.trials(size)], store)
    with progress() as bar:
        task = bar.add_task(f"{len(studies)} studies" if len(studies) > 1 else studies[0].name, total=len(trials))
        run_all(trials, store, jobs=jobs, executor=executor, progress=lambda row: bar.advance(task))


def _show(studies: Sequence[Study], figures: Sequence[str], size: str, store: RowStore, as_json: bool) -> None:
    rows = store.rows()
    folder, answers = store.folder / "figures", []
    written = [path for name in figures for path in _paths(name, rows, folder, size)]
    inside = {study.name for name in figures if name in _FIGURES for study in _FIGURES[name].studies}
    inside |= {study.name for study in RATES}
    for study in studies:
        rows_of_study = wanted(study, rows, size)
        ids = {trial.id for trial in study.trials(size)}
        answer = {
            "study": study.name,
            "trials": len(ids),
            "done": len(rows_of_study),
            "failed": [f"{row.id}: {row.status}" for row in rows if row.id in ids and not row.done],
            "tables": [vars(table) for table in tables(study, rows_of_study)],
            "figures": [] if study.name in inside else [str(path) for path in draw(study, rows_of_study, folder)],
        }
        answers.append(answer)
        if not as_json:
            _print_study(study, answer)
    if written and not as_json:
        console.print("The paper's figures: " + ", ".join(map(str, written)), highlight=False, soft_wrap=True)
    write_table(rows, store.folder / "rows.csv.gz")
    (store.folder / "reproduction.md").write_text(page(rows, size))
    (store.folder / "rates.md").write_text(rates_page(rows, size))
    if as_json:
        show_json([*answers, *({"study": name, "figures": [str(folder / f"{name}.svg")]} for name in figures)])


def _paths(name: str, rows: Sequence[Row], folder: Path, size: str) -> list[Path]:
    if name == _REGIMES:
        return draw_regimes(folder)
    return (
        draw_measured_rates(rows, folder, size) if name == _RATES else draw_figure(_FIGURES[name], rows, folder, size)
    )


def _print_study(study: Study, answer: dict[str, Any]) -> None:
    console.print(f"[bold]{study.name}[/]: {study.title}. {answer['done']} of {answer['trials']} trials are done.")
    for table in answer["tables"]:
        show_table(table["title"], table["header"], table["cells"])
    if answer["figures"]:
        console.print("Figures: " + ", ".join(answer["figures"]), highlight=False, soft_wrap=True)
    for text in answer["failed"]:
        console.print(f"[red]failed[/] {text}", highlight=False, soft_wrap=True)
