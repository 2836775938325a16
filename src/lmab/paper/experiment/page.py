"""The page on the reproduction, made from rows: each claim with its figure, its numbers, its tables and a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from .analysis import (
    MEASURES,
    Evidence,
    heading_of,
    in_order,
    mean_and_error,
    points,
    sessions_needed,
    title_of,
    wanted,
)
from .checks import promise
from .claims import CLAIMS, OURS, PAPER, READINGS, SIZE_READINGS, SIZE_TYPES, Claim
from .claims import FIGURES as BOTH_FIGURES
from .methods import DIRECT_MLE_FIT, ED_MLE_CORE_FIT, ED_MLE_FIT, GENIE, L_UCRL_PUBLISHED
from .slopes import ACCURACY, LEVEL, NEAR, Rate, measured_rates, successes
from .store import Row
from .studies import FIGURES, LAWS, LEVERS, ORDER, ORDER_SIZES, RATES, STUDIES, Panel, Study


@dataclass(frozen=True)
class Table:
    """One measure: a line per method (and split), a column per place on the axis."""

    title: str
    header: list[str]
    cells: list[list[str]]


def tables(study: Study, rows: Sequence[Row]) -> list[Table]:
    """Return mean ± standard error over instances, a table for each panel that has values."""
    made = (_table(study, rows, panel) for panel in study.panels)
    return [table for table in made if table.cells]


def _table(study: Study, rows: Sequence[Row], panel: Panel) -> Table:
    points_by_place = {(point.method, point.split, point.x): point for point in points(study, rows, panel)}
    places, splits = in_order({key[2] for key in points_by_place}), in_order({key[1] for key in points_by_place})
    cells = []
    for split in splits:
        for method in study.methods():
            line = [points_by_place.get((method.name, split, place)) for place in places]
            if any(line):
                name = method.label + (f", {study.split_label.format(split)}" if study.split else "")
                texts = ["" if point is None else _text(point.mean, point.stderr) for point in line]
                cells.append([name, *texts])
    counts = {point.n_instances for point in points_by_place.values()}
    instances = f"{min(counts)} to {max(counts)}" if len(counts) > 1 else "".join(map(str, counts))
    title = f"{title_of(rows, panel)}: {MEASURES[panel.measure][0]} ({instances} instances)"
    return Table(title, [study.axis_label, *(heading(place) for place in places)], cells)


def heading(place: float | str) -> str:
    """Format 50000 as 50,000."""
    return place if isinstance(place, str) else f"{place:,.10g}"


def _text(mean: float, stderr: float) -> str:
    """Return the mean to the digit that its error allows, at least three decimals below 10."""
    digits = 4 if abs(mean) >= 0.01 or mean == 0 else 6
    return f"{mean:.{digits}f}" + (f" ± {stderr:.{digits}f}" if stderr == stderr else "")


_HEAD = """\
# Reproduction of the paper's experiments

This page is generated from [stored rows](reproduction/rows.csv.gz) by `lmab reproduce all --plot-only{flag}`; no number
is typed by hand. Every study can be run again: `lmab reproduce NAME` (10 instances), `--full` for 20, `--quick` to try.

The paper draws "random instances with rank about 4" without a distribution; ours are `random_bandit(kind="spherical")`
unless a study says otherwise. Values are exact expectations (`lmab.evaluate`), so the bars show the spread over
instances alone. All methods of a study see the same instances and seeds, and a share of the genie is taken instance by
instance. The same learned model serves both planners: Q-MDP, as in the paper, and the certified planner, which stops at
a gap of 1% or after 1 s (3 s for large sizes; five times that for the genie; 20 s in the study of planners).

Two things to know when reading: Q-MDP never pays for information, and near-ties at its first step make its value jump,
so that a learner may beat the genie with it; the certified planner is the better yardstick. And `tensor` decomposes
types as vectors of means, the paper's baseline; `tensor on pairs` takes the probabilities of all (arm, value) pairs,
a stronger form that stands where the rank is low. [Figures 2 and 3, explained](figures-explained.md) shows which levers
decide between ED+MLE and L-UCRL, and [measured rates](rates.md) has exponents.
"""


_OPEN = """\
## What the paper leaves open, and what we chose

| open in the paper | our choice |
|---|---|
| the law of the random instances ("rank about 4") | `random_bandit(kind="spherical")`, rank 4 |
| the horizons of figure 2 | 12 from 2 to 20 |
| N of figure 3, left | 50,000 |
| the values of N of figure 3, right | 7 from 2,000 to 200,000 |
| the number of instances, and error bars | 20; standard errors over instances, comparisons in pairs |
| how sessions are split between subspace and core set | 80% and 20% |
| the start of EM in ED+MLE | 8 starts from clusters, the best is kept |
| rank of the subspace | M, as in Algorithm 1, also where the instances have rank 4 |
| the steps of the second moments | first two, as printed ("as printed"); all pairs ("all pairs", ours) |
| whether N counts the sessions of step 1 | yes; beside it N and 5N more for step 1 (study `order`) |
| whether L-UCRL takes posteriors anew | no ("as published": once, one policy per session); ours does ("refitted") |
| L-UCRL's start | tensor decomposition ("as published", "tensor start"); clusters (ours) |
| L-UCRL's prior | 1 pseudo-count |
| L-UCRL's rounds and bonus | one session, Hoeffding's width ("as published"); 5%, half of the width ("refitted") |
| limits of the planner | none for Q-MDP; the certified planner as above |
"""


@dataclass(frozen=True)
class _Judged:
    """A claim with the rows that it is judged by, and their verdict."""

    claim: Claim
    rows: Sequence[Row]
    verdict: str
    text: str


def _judgements(rows: Sequence[Row], size: str) -> list[_Judged]:
    """Return all claims."""
    rows_by_claim = [(claim, _rows_of(claim, rows, size)) for claim in CLAIMS]
    return [_Judged(claim, claim_rows, *_verdict(claim, claim_rows, size)) for claim, claim_rows in rows_by_claim]


def count_verdicts(rows: Sequence[Row], size: str) -> str:
    """Return how many claims agree, for the page of measured numbers."""
    return _verdict_counts(_judgements(rows, size))


def _verdict_counts(judged: Sequence[_Judged]) -> str:
    def among(source: str, *, vacuous: bool) -> Counter[str]:
        return Counter(one.verdict for one in judged if (one.claim.source, one.claim.vacuous) == (source, vacuous))

    paper, vacuous, limits = among(PAPER, vacuous=False), among(PAPER, vacuous=True), among(OURS, vacuous=False)
    words = {"does not agree": "do not agree", "not decided": "are not decided", "not measured": "are not measured"}
    parts = [f"{paper[verdict]} {text}" for verdict, text in words.items() if paper[verdict]]
    parts += [f"{vacuous.total()} more are vacuous"] * bool(vacuous)
    beside = f" ({'; '.join(parts)})" if parts else ""
    missing = f" ({limits['not measured']} not measured)" if limits["not measured"] else ""
    return (
        f"{paper['agrees']} of {paper.total()} claims of the paper agree{beside} and {limits['holds']} of "
        f"{limits.total()} regression limits hold{missing}"
    )


def about(claim: Claim) -> list[Study]:
    """Return the studies that a claim is about: that with its name, or all of its group."""
    return [study for study in STUDIES if claim.study == (study.group if claim.is_grouped else study.name)]


def _rows_of(claim: Claim, rows: Sequence[Row], size: str) -> list[Row]:
    """Return the rows that a claim is judged by: from its study, or from all panels of figures 2 and 3, each once."""
    panels = [study for figure in FIGURES for study in figure.studies]
    studies = panels if claim.study == BOTH_FIGURES else about(claim)
    return list({row.id: row for study in studies for row in wanted(study, rows, size)}.values())


_PLANNERS = {"Q-MDP": "fraction_qmdp", "certified planner": "fraction"}


def readings(rows: Sequence[Row], size: str) -> str:
    """Return a table of the headline readings: the places with ED+MLE ahead and behind, and the verdict."""
    lines = []
    for text, ed, optimistic in READINGS:
        for planner, measure in _PLANNERS.items():
            (claim,) = (
                each for each in CLAIMS if each.study == ORDER.name and each.text.startswith(f"{text} ({planner}")
            )
            evidence_rows = _rows_of(claim, rows, size)
            verdict = _verdict(claim, evidence_rows, size)[0]
            differences = (
                {} if verdict == "not measured" else Evidence(evidence_rows).by_setting(measure, ed, optimistic)
            )
            tallies = []
            for law in LAWS:
                places = [mean for place, mean in differences.items() if place.startswith(f"{law}-")]
                above, below = sum(one.above for one in places), sum(one.below for one in places)
                tallies.append(f"{above} ahead, {below} behind of {len(places)}" if places else "")
            lines.append([text, planner, *tallies, verdict])
    return "\n".join(_markdown(["reading", "planner", *LAWS, "ED+MLE is ahead"], lines))


def headline(rows: Sequence[Row], size: str) -> str:
    """Return the finding on the headline in three sentences, with verdicts and numbers from the rows."""
    figures = _finding("ED+MLE is ahead of UCB", rows, size)
    laws = [_finding(f"{text} (certified planner", rows, size) for text, _, _ in READINGS]
    sizes = {text: _finding(f"{text} (certified planner", rows, size) for text, _, _ in SIZE_READINGS}
    evidence = Evidence(wanted(ORDER_SIZES, rows, size))
    differences = {
        text: ", ".join(f"{mean.mean:+.4f} ± {mean.stderr:.4f} ({_types(place)})"
                        for place, mean in evidence.by_setting("fraction", ed, optimistic).items())
        for text, ed, optimistic in SIZE_READINGS
    }  # fmt: skip
    named = "; ".join(
        f"{text.removeprefix('at the sizes of figure 2, ').removesuffix(', L-UCRL as published')} minus L-UCRL as "
        f"published {differences[text]}: {verdict}"
        for text, (verdict, _) in sizes.items()
    )
    agree = Counter(verdict for verdict, _ in laws)
    names = [f'"{text}"' for (text, _, _), (verdict, _) in zip(READINGS, laws, strict=True) if verdict == "agrees"]
    return (
        f"1. With Q-MDP, the paper's planner, the headline is {_in_words(figures[0])}: over figures 2 and 3, "
        f"{_after_last(figures[1])}.\n"
        f"2. With the certified planner, at the sizes of figure 2 on instances of their own: {named}.\n"
        f"3. Over three laws of instances {agree['agrees']} of {len(laws)} headline readings agree with the certified "
        f"planner: {', '.join(names)}."
    )


def _finding(beginning: str, rows: Sequence[Row], size: str) -> tuple[str, str]:
    """Return the verdict and the numbers of the claim that begins so."""
    claim = next(each for each in CLAIMS if each.text.startswith(beginning))
    return _verdict(claim, _rows_of(claim, rows, size), size)


def _in_words(verdict: str) -> str:
    return {"agrees": "confirmed", "does not agree": "contradicted"}.get(verdict, verdict)


def _after_last(text: str) -> str:
    """Return the part on L-UCRL, the last baseline."""
    return text.rsplit("; ", 1)[-1]


def _types(place: str) -> str:
    return f"M = {place.split('-')[1]}"


def size_readings(rows: Sequence[Row], size: str) -> str:
    """Return a table of the readings at the sizes of figure 2, with the genie in the place of ED+MLE."""
    evidence = Evidence(wanted(ORDER_SIZES, rows, size))
    lines = []
    for text, ed, optimistic in (*SIZE_READINGS, ("the genie, L-UCRL as published", GENIE, L_UCRL_PUBLISHED)):
        for planner, measure in _PLANNERS.items():
            claims = [each for each in CLAIMS if each.text.startswith(f"{text} ({planner}")]
            verdicts = [_verdict(claim, _rows_of(claim, rows, size), size)[0] for claim in claims]
            differences = (
                evidence.genie_by_setting(measure, optimistic)
                if ed is GENIE
                else evidence.by_setting(measure, ed, optimistic)
            )
            cells = [
                "; ".join(f"{mean.mean:+.4f} ± {mean.stderr:.4f}" for place, mean in differences.items()
                          if int(place.split("-")[1]) == n_types)
                for n_types in SIZE_TYPES
            ]  # fmt: skip
            shown = text.removeprefix("at the sizes of figure 2, ")
            lines.append([shown, planner, *cells, *(verdicts or [""])])
    heads = ["M = 4, A = 20, H = 5, N = 50,000", "M = 7, A = 50, H = 7, N = 100,000"]
    return "\n".join(_markdown(["reading", "planner", *heads, "ED+MLE is ahead"], lines))


def levers(rows: Sequence[Row], size: str, n_sessions: int = 10_000) -> str:
    """Return a table of the levers' fractions of the genie with the certified planner, at one number of sessions."""
    evidence = Evidence(wanted(ORDER, rows, size))
    lines = []
    for method in LEVERS[1:]:
        means = [evidence.mean("fraction", method, kind=law, n_sessions=n_sessions) for law in LAWS]
        lines.append([method.label, *("" if mean is None else str(mean) for mean in means)])
    return "\n".join(_markdown(["method", *LAWS], lines))


def _flag(size: str) -> str:
    return "" if size == "standard" else f" --{size}"


def page(rows: Sequence[Row], size: str = "standard") -> str:
    """Return the page, in Markdown; figures are expected in `figures/`."""
    used = {row.id: row for study in STUDIES for row in wanted(study, rows, size)}.values()
    head, judged = _HEAD.format(flag=_flag(size)), _judgements(rows, size)
    parts = [head, _provenance(list(used)), f"{_verdict_counts(judged)}.\n", _overview(judged), _OPEN]
    parts.append(_origin(rows, size))
    parts += ["## figures\n\nFigures 2 and 3 together.\n", *_said(BOTH_FIGURES, judged), ""]
    drawn = {figure.studies[0].name: figure for figure in FIGURES}
    in_figures = {study.name for figure in FIGURES for study in figure.studies}
    for study in STUDIES:
        if study.name in drawn:
            figure = drawn[study.name]
            parts.append(f"## {figure.name}\n\n![{figure.title}](figures/{figure.name}.svg)\n")
        parts.append(_section(study, rows, size, judged, in_figure=study.name in in_figures))
    return "\n".join(parts)


def _provenance(rows: Sequence[Row]) -> str:
    if not rows:
        return "No rows yet.\n"
    days = sorted({row.finished[:10] for row in rows})
    hours = sum((row.seconds_learning or 0) + (row.seconds_planning or 0) for row in rows) / 3600
    versions = ", ".join(sorted({f"lmab {row.lmab}, NumPy {row.numpy}, Python {row.python}" for row in rows}))
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    facts = f"{len(rows):,} rows, {hours:.1f} hours of computing, {when}; {versions}; seed {rows[0].seed}."
    return f"{facts} {_unfinished(rows)}\n"


_RATES_HEAD = """\
# Measured rates

The paper argues rates that it does not plot. This page measures four of them. It is generated from
[stored rows](reproduction/rows.csv.gz) by `lmab reproduce rates{flag}`; no number is typed by hand. Exponents are
slopes of straight lines through logarithms, with standard errors from a bootstrap over instances.

![Measured rates](figures/rates.svg)
"""

_RATES_TEXT = {  # title and text of each plot
    "rate-parameters": (
        "(a) Parameters and values against sessions",
        "One arm, H = 2M - 1 steps, types of equal weight at 1/2 ± s (with M = 3 a third one at 1/2). The\n"
        "estimate matches the moments of the observed counts; the error is the Wasserstein distance of section\n"
        "2.3. The worst case is the largest mean error over a grid of s from .01 to .45; fixed types have s =\n"
        ".45, and their exponent is that of the three largest logs. Values: two arms, H < 2M - 1 steps, the\n"
        "largest error of the most likely model in the value of any policy, in the worst case over s. Theory:\n"
        "N^(-1/(4M-2)), N^(-1/2) and N^(-1/2).",
    ),
    "rate-sampling": (
        "(b) The cost of moments against the arms",
        f"Sessions for each multi-index until moments of order 1, 2 and 3 have a standard error of {ACCURACY:g}\n"
        "(the largest over all entries; exact variances of the estimators). *Coordinates* plays arm a with\n"
        "probability proportional to |beta_j(a)| and estimates moments of the projections on the basis vectors\n"
        "beta_j. *Arms from coordinates* rebuilds the moments of arms from these, and *arms from the core set*\n"
        "from core plays. In the kind *uniform* all arms differ between the two types, in *one-arm-apart* one arm\n"
        "differs much and all others little. Theory: at least A^(l/2) sessions for coordinates, A^0 for the core\n"
        "set.",
    ),
    "rate-arms": (
        "(c) Sessions of Algorithm 1 against the arms",
        f"Sessions at which Algorithm 1 (`EDMoments`) has {LEVEL:g} of the genie (certified planner), M = 2, H =\n"
        "3, spherical instances; interpolated between the numbers of sessions that were run. Theory: polynomial\n"
        "in A (Lemma 3.7 asks for A^4).",
    ),
    "rate-perturbed": (
        "(d) Maximum likelihood after random perturbations",
        "Three types on a line, 8 arms, sessions of H = 3 < 2M - 1 steps, which do not identify types on a line.\n"
        "Normal noise of standard deviation sigma is added to every mean; then EM (8 starts, no prior) fits\n"
        "uniform plays. EM is at the maximum if EM from the true parameters is not more likely by more than half\n"
        "a unit of log-likelihood.",
    ),
}


def rates_page(rows: Sequence[Row], size: str = "standard") -> str:
    """Return the page on measured rates, in Markdown."""
    rate_rows = list({row.id: row for study in RATES for row in wanted(study, rows, size)}.values())
    judged, lines = _judgements(rows, size), measured_rates(rate_rows)
    parts = [_RATES_HEAD.format(flag=_flag(size))]
    for study in RATES:
        title, text = _RATES_TEXT[study.name]
        parts += [f"## {title}", "", text, ""]
        missing = len(study.trials(size)) - len(wanted(study, rows, size))
        parts += [f"{missing} trials are missing.", ""] if missing else []
        parts += [*_said(study.name, judged), ""]
        some = [rate for rate in lines if rate.study == study.name]
        parts += [
            *_markdown(["line", "exponent", "argued", "from", "to"], [_exponent_cells(rate) for rate in some]),
            "",
        ]
        if study.name == "rate-perturbed":
            counts = successes(rate_rows)
            cells = [[f"{one.size:g}", f"{one.n_sessions:,}", f"{one.near:.0%}", f"{one.maximal:.0%}",
                      str(one.n_instances)] for one in counts]  # fmt: skip
            heads = ["sigma", "sessions N", f"within {NEAR:g} of the truth", "EM at the maximum", "instances"]
            parts += [*_markdown(heads, cells), ""]
    return "\n".join(parts)


def _exponent_cells(rate: Rate) -> list[str]:
    argued = "" if rate.theory is None else f"{rate.theory:+.3f}"
    ends = [f"{rate.values[place]:,.4g} at {rate.places[place]:,.0f}" for place in (0, -1)]
    return [rate.label, f"{rate.exponent.mean:+.3f} ± {rate.exponent.stderr:.3f}", argued, *ends]


_ORIGIN = """\
## Where the rows come from

Each row names the commit of the code and the machine that made it. The same code on the same machine gives the same
bits, except for plans that stop at their time limit; another processor rounds differently, and where the likelihood is
flat EM makes that visible in the parameters. `lmab reproduce all{flag} --again 60` runs 60 stored trials again and
counts how many agree. The rows of ED+moments match raw products of core pairs, as all commits below do; later code
matches centred, standardised moments.
"""
_OLDER = "not recorded"  # the commit of rows that were stored before rows had one


def _origin(rows: Sequence[Row], size: str) -> str:
    """Return how many rows of each study were made by which commit."""
    lines = []
    for study in STUDIES:
        counts = Counter(row.commit or _OLDER for row in wanted(study, rows, size))
        told = [f"{n:,} rows: {commit}" for commit, n in counts.most_common()]
        lines.append([study.name, "; ".join(told) or "no rows yet"])
    flag = _flag(size)
    return "\n".join([_ORIGIN.format(flag=flag), *_markdown(["study", "commit of the code"], lines), ""])


def _unfinished(rows: Sequence[Row]) -> str:
    """Return how many plans ran out of time, and how far apart their bounds were."""
    gaps = [row.upper / row.lower - 1 for row in rows if row.note == "time limit" and row.upper and row.lower]
    n_plans = sum(row.note in ("time limit", "certified", "optimal") for row in rows)
    if not gaps:
        return f"All {n_plans:,} certified plans were finished in time."
    return (
        f"{len(gaps):,} of {n_plans:,} certified plans were stopped by the time limit, at a gap of {median(gaps):.1%} "
        f"in the median, {max(gaps):.1%} at most."
    )


def _overview(judged: Sequence[_Judged]) -> str:
    lines = ["| study | instances | claim | of | verdict |", "|---|---|---|---|---|"]
    for name in (BOTH_FIGURES, *(study.name for study in STUDIES)):
        for one in judged:
            if one.claim.study == name:
                marks = [
                    word
                    for word, is_so in (("vacuous", one.claim.vacuous), ("rule after rows", one.claim.late))
                    if is_so
                ]
                verdict = one.verdict + (f" ({'; '.join(marks)})" if marks else "")
                said = f"{_instances(one.rows)} | {one.claim.text} | {one.claim.source} | {verdict}"
                lines.append(f"| [{name}](#{name}) | {said} |")
    return "\n".join(lines) + "\n"


def _instances(rows: Sequence[Row]) -> str:
    """Return how many instances every cell of the study has, at least."""
    cells: dict[tuple[object, ...], int] = {}
    for row in rows:
        key = row.kind, row.separation, row.n_types, row.n_arms, row.horizon, row.n_sessions, row.method
        cells[key] = cells.get(key, 0) + 1
    return (
        "0"
        if not cells
        else f"{min(cells.values())}" + (f" to {max(cells.values())}" if len(set(cells.values())) > 1 else "")
    )


def _verdict(claim: Claim, rows: Sequence[Row], size: str) -> tuple[str, str]:
    """Return the verdict on a claim. A claim named before its run is judged once, after the run."""
    asked = sum(len(study.trials(size)) for study in about(claim)) if claim.ahead else 0
    finding = None if len(rows) < asked else claim.check(Evidence(rows))
    if finding is None:
        return "not measured", "rows are missing"
    if finding.holds is None:
        return "not decided", finding.text
    good, bad = ("holds", "does not hold") if claim.source == OURS else ("agrees", "does not agree")
    return (good if finding.holds else bad), finding.text


def _said(name: str, judged: Sequence[_Judged]) -> list[str]:
    """Return the claims of a study, each with its quotation, its verdict and its numbers."""
    lines = []
    for one in judged:
        claim = one.claim
        if claim.study == name:
            quoted = f" {claim.quotation}:" if claim.quotation else ""
            history = f" {claim.history}." if claim.history else ""
            late = " The rule was fixed after rows had been seen." * claim.late
            verdict = f"**{one.verdict.capitalize()}**: {one.text}.{late}"
            lines.append(f"- {claim.source.capitalize()}:{quoted} {claim.text} {verdict}{history}")
    return lines


def _section(study: Study, all_rows: Sequence[Row], size: str, judged: Sequence[_Judged], *, in_figure: bool) -> str:
    """Return the claims and tables of a study, and its figure if it is no part of a figure of the paper."""
    rows = wanted(study, all_rows, size)
    missing = len(study.trials(size)) - len(rows)
    parts = [f"{'###' if in_figure else '##'} {study.name}", "",
             f"{heading_of(study, rows)}. {_instances(rows)} instances.", ""]  # fmt: skip
    if missing:
        parts += [f"{missing} of {missing + len(rows)} trials are missing.", ""]
    if study in RATES:
        parts += ["Plot and exponents: [measured rates](rates.md).", ""]
    elif rows and not in_figure:
        parts += [f"![{study.title}](figures/{study.name}.svg)", ""]
    parts += _said(study.name, judged)
    for table in tables(study, rows):
        parts += ["", f"**{table.title}**", "", *_markdown(table.header, table.cells)]
    if study.name == "sessions":
        parts += ["", "**Sessions needed (5% to 95% of a bootstrap over instances)**", "", *_needed(study, rows)]
    if study.group == "separation" and rows:
        parts += ["", "**Lemma C.2: what it asks for and promises (constants 1), and what was measured**", ""]
        parts += _promised(rows)
    return "\n".join(parts) + "\n"


def _promised(rows: Sequence[Row]) -> list[str]:
    """Return for each number of sessions both bounds, and the distances at the largest gamma^2 H."""
    longest = max(row.separation**2 * row.horizon for row in rows)
    cells = []
    for n_sessions in sorted({row.n_sessions for row in rows}):
        lemma = promise(rows[0].n_types, n_sessions, max(row.horizon for row in rows))
        errors = lemma.errors
        nearest = [row for row in rows if row.n_sessions == n_sessions and row.separation**2 * row.horizon == longest]
        reached = ", ".join(
            f"{method.label} {mean_and_error(values)[0]:.4f}"
            for method in (ED_MLE_FIT, DIRECT_MLE_FIT, ED_MLE_CORE_FIT)
            if (values := [row.distance for row in nearest if row.method == method.name and row.distance is not None])
        )
        numbers = (errors.epsilon, errors.weights, errors.core, lemma.distance)
        asked = f"{lemma.scale:,.0f} ({longest:.0f})" if errors.epsilon < 1 else f"no guarantee ({longest:.0f})"
        cells.append([f"{n_sessions:,}", asked, *(f"{number:.3f}" for number in numbers), reached])
    header = ["sessions N", "gamma^2 H asked for (largest of the study)", "epsilon", "weights within",
              "core pairs within", "distance within", "distance measured at the largest gamma^2 H"]  # fmt: skip
    return _markdown(header, cells)


def _needed(study: Study, rows: Sequence[Row]) -> list[str]:
    levels = (0.95, 0.97, 0.99)
    cells = []
    for method in study.methods():
        needs = [sessions_needed(rows, method.name, level) for level in levels]
        if method.learns and all(needs):
            cells.append([method.label, *(_range(each.n_sessions, each.low, each.high) for each in needs if each)])
    return _markdown(["share of the genie", *map(str, levels)], cells)


def _range(middle: float, low: float, high: float) -> str:
    texts = ["not reached" if value == float("inf") else f"{value:,.0f}" for value in (middle, low, high)]
    return f"{texts[0]} ({texts[1]} to {texts[2]})"


def _markdown(header: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *cells]
    return ["| " + " | ".join(line) + " |" for line in lines]
