"""The report as one HTML file that needs no other file and no network."""

from __future__ import annotations

import os
from importlib.resources import files as package_files
from pathlib import Path

import numpy as np

from .._html import Frame, Markup, count, element, join, line, percent, points, prose, steps_of
from .._html import calibration as calibration_chart
from .._shapes import Array, Float, Integer
from ..checks import check_writable
from ..data.sessions import Sessions
from ..estimation.check import Check
from ..estimation.fitted_components import FittedComponent
from ..estimation.result import Curve, Estimate
from ..evaluation.assessment import PAYS, Assessment
from ..model.bandit import LatentBandit
from ..planning.problem import Plan
from ..policies.policy import Policy
from .contents import Contents, HeldOut, People, Worth, gather
from .tree import colour, names, palette, shortened, tree_svg

_NOTHING = Markup("")
_SHOWN = 3  # A type's card has this many of its best and of its worst arms.
_ENDS = 6  # A factor's card has this many arms at each end.
_MOST_ARMS = 90  # The heat map has at most this many arms.
_MAP_ROWS = (15, 30)  # Above 15 arms the heat map has a second column; a column has at most 30.
_MAPS = 3  # The heat map has at most this many columns.
_NUMBERS_UP_TO = 8  # Up to this many types, the cells of the heat map hold numbers.
_WHOLE = 0.995  # A policy with at least this share of the possible gain is described as reaching all of it.
#: Nothing outside the file may be fetched, and no script runs.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_NOT_SUPPORTED = "The log does not support this gain."


def render(contents: Contents) -> str:
    """Return the report as HTML text."""
    style = package_files(__package__).joinpath("style.css").read_text(encoding="utf-8")
    dark = f"@media (prefers-color-scheme: dark) {{ :root {{ {palette(dark=True)} }} }}"
    style = f":root {{ {palette()} }}\n{dark}\n{style}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("title", contents.title),
        element("style", Markup(style)),
    )
    beside = element("div", worth(contents), assessment(contents), class_="pair")
    model = (types, heat_map, who_leaves) if contents.people is None else (factors, people)
    parts = (tree, *model, known_before, components, held_out, number_of_types, settings)
    body = element("body", element("main", _opening(contents), beside, *(part(contents) for part in parts)))
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def report(
    estimate: Estimate | LatentBandit,
    plan: Plan | Policy | None = None,
    path: str | os.PathLike[str] = "report.html",
    *,
    horizon: int | None = None,
    sessions: Sessions | None = None,
    assessment: Assessment | None = None,
    time_limit: float = 20.0,
    title: str = "Session policy report",
) -> Contents:
    """Write one HTML page about a model and a policy: types, gain of the policy, and confidence intervals.

    Args:
        estimate: a result of `lmab.fit`, or a bandit.
        plan: a result of `lmab.plan`, or a policy; None: plan a policy.
        path: the file to write; it needs no other file and no network.
        horizon: steps per session; None: the plan's, or 5.
        sessions: held-out sessions, on which the model is checked.
        assessment: a result of `lmab.assess`, which the report quotes.
        time_limit: limit in seconds on planning if there is no plan.
        title: the title of the page.

    Returns:
        The contents of the page as data.

    Examples:
        >>> import os, tempfile, lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> path = os.path.join(tempfile.mkdtemp(), "report.html")
        >>> lmab.report(bandit, lmab.plan(bandit, horizon=3), path).horizon
        3
    """
    contents = gather(
        estimate, plan, horizon=horizon, sessions=sessions, assessment=assessment, time_limit=time_limit, title=title
    )
    write(contents, path)
    return contents


def write(contents: Contents, path: str | os.PathLike[str]) -> None:
    """Write the report to `path`; the file is replaced as a whole."""
    check_writable(path)
    target = Path(path)
    half = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        half.write_text(render(contents), encoding="utf-8")
        half.replace(target)
    finally:
        half.unlink(missing_ok=True)


def _opening(contents: Contents) -> Markup:
    bandit, people = contents.bandit, contents.people
    model = count(bandit.n_types, "latent type") if people is None else count(people.factors.n_alive, "latent factor")
    text = f"{model}, {count(bandit.n_arms, 'arm')}, {count(contents.horizon, 'step')} per session."
    check = contents.check
    verdict = _NOTHING if check is None else prose("p", check.verdict, class_="lead")
    doubts = [prose("p", sentence, class_="bad") for sentence in contents.contradicted]
    return element("header", element("h1", contents.title), verdict, *doubts, element("p", text, class_="soft"))


def worth(contents: Contents) -> Markup:
    """Render the gain of the policy over the best fixed arm or list: a sentence, then bars."""
    values = contents.worth
    single = len(values.fixed_arms) == 1
    best = f"{len(values.fixed_arms)} arms with the highest mean rewards"
    fixed = contents.labels[values.fixed_arms[0]] if single else best
    if contents.fixed:
        return _same_for_everyone(contents, f"the best single arm ({fixed})" if single else f"the {best}")
    return element(
        "section",
        element("h2", "Estimated gain"),
        element("p", _sentence(contents, "arm" if single else "list", fixed), class_="lead"),
        prose("p", _gain_said(contents))
        if contents.assessment is None
        else _NOTHING,  # otherwise the assessment contains it
        _bars(
            values,
            f"best fixed arm, {fixed}" if single else "best fixed list",
            contents.logged,
            supported=_supported(contents),
            bounded=contents.supports_types,
        ),
        element("p", _caption(contents), class_="soft"),
        _replayed(contents),
    )


def _caption(contents: Contents) -> str:
    text = f"Expected reward of a session of {_steps(contents)} under the model."
    if not contents.supports_types:
        return text
    return (
        f"{text} The value of the best policy lies in the hatched part. The last bar assumes that the latent type is "
        "known at step 1, which no policy can achieve."
    )


def _same_for_everyone(contents: Contents, what: str) -> Markup:
    """Render the section of a plan for which the check supports no types: a fixed arm or list, and baselines."""
    earned, steps = f"{contents.worth.fixed:.4g}", _steps(contents)
    why = contents.check.refusal if contents.check is not None else "held-out sessions do not support latent types"
    text = f"This policy plays {what} for everyone, because {why}. It earns "
    beside = [
        f"{name[0].upper()}{name[1:]} earns {value:.4g} on the model." for name, value in contents.worth.baselines
    ]
    if contents.logged is not None:
        beside.insert(0, f"As logged, a session of {steps} earned {contents.logged:.4g} on average.")
    return element(
        "section",
        element("h2", "Estimated gain"),
        element("p", text, element("strong", earned), f" per session of {steps} on the model.", class_="lead"),
        element("p", " ".join(beside)) if beside else _NOTHING,
        _replayed(contents),
    )


def _supported(contents: Contents) -> bool:
    """Return whether the log contradicts neither the types nor an assumption of the fit."""
    return contents.supports_types and not contents.contradicted


def _steps(contents: Contents) -> str:
    return steps_of(contents.horizon, people_leave=contents.bandit.leaving is not None)


def _gain_said(contents: Contents) -> str:
    """Return whether a gain was demonstrated; the verdict of the check stands at the top of the page."""
    return contents.verdict.sentence if contents.check is None else contents.verdict.short


def _sentence(contents: Contents, what: str, fixed: str) -> Markup:
    """Return the value of the policy; a gain is green, and shown in percent, only if it was demonstrated."""
    values, sure = contents.worth, contents.verdict.word == PAYS
    gain = values.policy.mean - values.fixed
    share = f" ({percent(gain / abs(values.fixed))} more)" if values.fixed and gain > 0 and sure else ""
    style = {"class_": "bad"} if gain < 0 else {"class_": "good"} if sure else {}
    return join(
        Markup(f"The best fixed {what} ("),
        element("em", fixed),
        Markup(f") earns {values.fixed:.4g} per session of {_steps(contents)} on the model. This policy earns "),
        element("strong", f"{values.policy.mean:.4g}{share}", **style),
        *_bound(contents),
        Markup(f". {_conclusion(contents, gain)}"),
    )


def _bound(contents: Contents) -> tuple[Markup, ...]:
    """Return the bound on the best policy, or nothing if held-out sessions do not support the types."""
    if not contents.supports_types:
        return ()
    return Markup("; no policy earns more than "), element("strong", f"{contents.worth.upper:.4g}")


def _conclusion(contents: Contents, gain: float) -> str:
    if not contents.supports_types and gain <= 0:
        return "No bound on other policies is given, because held-out sessions do not support latent types."
    return _reached(contents.worth) if gain <= 0 or _supported(contents) else _NOT_SUPPORTED


def _reached(values: Worth) -> str:
    """Return the share of the possible gain that the policy achieves, as a sentence."""
    if values.upper - values.fixed <= 1e-9 * abs(values.upper):
        return "No policy gains anything on this model: the best arms are the same for all types."
    if values.policy.mean < values.fixed:
        return "Use the best fixed arms instead."
    if values.captured >= _WHOLE:
        return "The policy achieves practically all of the possible gain."
    return f"The policy achieves at least {percent(values.captured)} of the possible gain."


def _replayed(contents: Contents) -> Markup:
    """Return the masked replay of the held-out check, and the reason for its difference from the policy's gain."""
    check = contents.check
    return _NOTHING if check is None or check.replay is None else prose("p", check.replay_sentence, class_="soft")


def _bars(
    values: Worth, fixed: str, logged: float | None = None, *, supported: bool = True, bounded: bool = True
) -> Markup:
    """Return bars of the log, baselines, policy and, if `bounded`, bounds; grey if the gain is unsupported."""
    beside = [(fixed, values.fixed), *((name.removeprefix("the "), value) for name, value in values.baselines)]
    if logged is not None:
        beside.insert(0, ("as logged", logged))
    low = min(0.0, values.policy.mean, *(value for _, value in beside))
    bounds = [("upper bound on any policy", values.upper), ("latent type known at step 1", values.known)]
    bounds = bounds if bounded else []
    span = max(values.policy.mean, *(value for _, value in bounds), *(value for _, value in beside)) - low or 1.0

    def width(value: float) -> float:
        return 100 * (value - low) / span

    def row(name: str, value: float, text: str, style: str = "", more: Markup = Markup("")) -> Markup:  # noqa: B008
        bar = element("div", "", class_="fill", style=f"width:{width(value):.2f}%")
        track = element("div", element("div", bar, more, class_=style, style="height:100%"), class_="track")
        return join(element("div", name, class_="name"), element("div", text, class_="value"), track)

    mine = values.policy
    left, right = width(mine.mean), width(max(values.upper, mine.mean))
    style = f"left:{left:.2f}%;width:{right - left:.2f}%"
    hatched = element("div", "", class_="open", style=style) if bounded else _NOTHING
    noise = "" if mine.exact else f" ± {mine.stderr:.2g}"
    return element(
        "div",
        *(row(name, value, f"{value:.4g}") for name, value in beside),
        row("this policy", mine.mean, f"{mine.mean:.4g}{noise}", "ours" if supported else "", hatched),
        *(row(name, value, f"{value:.4g}") for name, value in bounds),
        class_="bars",
    )


def types(contents: Contents) -> Markup:
    """Render a card per type with its weight and its best and worst arms."""
    bandit = contents.bandit
    scale = float(bandit.means.min()), float(bandit.means.max())
    cards = [_card(contents, rank, m, scale) for rank, m in enumerate(bandit.types_by_weight)]
    plural = "type" if bandit.n_types == 1 else "types"
    return element(
        "section",
        element("h2", f"{bandit.n_types} latent {plural}"),
        element("p", "Types are numbered by size, as in lmab fit: type 1 is the most frequent.", class_="soft"),
        element("div", *cards, class_="types"),
    )


def _card(contents: Contents, rank: int, type_: int, scale: tuple[float, float]) -> Markup:
    means = contents.bandit.means[type_]
    order = np.argsort(-means, kind="stable")
    shown = min(_SHOWN, (len(order) + 1) // 2)
    parts = [element("h4", "best arms"), *(_arm(contents, a, means[a], scale) for a in order[:shown])]
    if len(order) > shown:
        parts += [element("h4", "worst arms"), *(_arm(contents, a, means[a], scale) for a in order[-shown:])]
    weight = element("span", f"{percent(float(contents.bandit.weights[type_]))} of sessions")
    title = element("h3", f"Type {rank + 1}", weight)
    return element("article", title, *parts, class_="type", style=f"--colour: {colour(rank)}")


def _arm(contents: Contents, arm: int, mean: float, scale: tuple[float, float]) -> Markup:
    name = contents.labels[arm]
    filled = element("div", "", class_="fill", style=f"width:{100 * _share(mean, scale):.1f}%")
    bar = element("div", filled, class_="track")
    return element(
        "div", element("span", name, title=name), bar, element("span", _number(mean), class_="value"), class_="arm"
    )


def heat_map(contents: Contents) -> Markup:
    """Render the expected reward of every arm in every type; arms are grouped by the type with the largest gain."""
    means = contents.bandit.means
    arms = arms_in_order(means)
    scale = float(means.min()), float(means.max())
    n_maps = _MAPS if contents.bandit.n_types <= _NUMBERS_UP_TO else 2
    n_maps = min(n_maps, -(-len(arms) // _MAP_ROWS[0]))
    rows = min(-(-len(arms) // n_maps), _MAP_ROWS[1])
    maps = [_map(contents, arms[start : start + rows], scale) for start in range(0, len(arms), rows)]
    note = "Expected reward of each arm (row) in each type (column); arms are grouped by the type that gains most."
    if len(arms) < contents.bandit.n_arms:
        note += f" Shown are the {len(arms)} of {contents.bandit.n_arms} arms on which types differ most."
    key = element("span", _number(scale[0]), element("span", class_="key"), _number(scale[1]), class_="scale")
    return element(
        "section",
        element("h2", "Arms by types"),
        element("p", note + " ", key, class_="soft"),
        element("div", *maps, class_="maps"),
    )


_IN_SECTIONS = ("features", "persons", "leaving", "traits")  # components that sections of their own describe
_ROWS = 24  # rows of a component's table on the page


def components(contents: Contents) -> Markup:
    """Render the summary and the table of each component that has no section of its own."""
    found = [one for one in contents.components if one.name not in _IN_SECTIONS]
    if not found:
        return _NOTHING
    parts = [part for one in found for part in (element("p", one.summary), _component_table(one))]
    return element("section", element("h2", "Components of the model"), *parts)


def _component_table(component: FittedComponent) -> Markup:
    """Render the first rows of a component's table."""
    heads = [element("th", head) for head in component.columns]
    rows = [
        element("tr", *(element("td", f"{cell:.4g}" if isinstance(cell, float) else str(cell)) for cell in row))
        for row in component.cells[:_ROWS]
    ]
    return element("div", element("table", element("tr", *heads), *rows, class_="shares"), class_="wide")


def known_before(contents: Contents) -> Markup:
    """Render the shares of types by feature value, and the gain from features."""
    known = contents.known
    if known is None:
        return _NOTHING
    order = contents.bandit.types_by_weight
    said = []
    if known.worth is not None:
        said.append(
            f"Gain from features: {known.worth:+.4g} per session of {contents.horizon} steps on the model, compared "
            f"with the same policy started from the population-average prior in every session."
        )
    if known.keep is not None:
        said.append(f"Returning persons keep their type with probability {known.keep:.2f}; otherwise it is drawn anew.")
    tables = []
    for column, values in known.shares.items():
        marks = [element("th", f"type {rank + 1}") for rank in range(len(order))]
        rows = [
            element("tr", element("th", value), *(element("td", percent(float(weights[m]))) for m in order))
            for value, weights in values.items()
        ]
        table = element("table", element("tr", element("th", column), *marks), *rows, class_="shares")
        tables.append(element("div", table, class_="wide"))
    return element(
        "section",
        element("h2", "Features known before a session"),
        *(element("p", sentence) for sentence in said),
        *tables,
        element(
            "p",
            " ".join(["Shares of the types by feature value, averaged over the other features.", *known.left_out]),
            class_="soft",
        )
        if tables
        else _NOTHING,
    )


def arms_in_order(means: Float[Array, "M A"], most: int = _MOST_ARMS) -> Integer[Array, "k"]:
    """Return the arms on which types differ most, grouped by the type with the largest gain, largest first."""
    spread = means.max(axis=0) - means.min(axis=0)
    kept = np.sort(np.argsort(-spread, kind="stable")[:most])
    excess = means - means.mean(axis=0)
    return kept[np.lexsort((-excess.max(axis=0)[kept], excess.argmax(axis=0)[kept]))]


def _map(contents: Contents, arms: Integer[Array, "k"], scale: tuple[float, float]) -> Markup:
    n_types = contents.bandit.n_types
    marks = [
        element("th", rank + 1, title=f"type {rank + 1}", style=f"--colour: {colour(rank)}") for rank in range(n_types)
    ]
    head = element("tr", element("th"), *marks)
    rows = []
    for arm in arms.tolist():
        numbered = n_types <= _NUMBERS_UP_TO
        cells = [
            _cell(contents, rank, m, arm, scale, numbered) for rank, m in enumerate(contents.bandit.types_by_weight)
        ]
        rows.append(element("tr", element("th", contents.labels[arm], title=contents.labels[arm]), *cells))
    cell = "2.3rem" if n_types <= _NUMBERS_UP_TO else f"{max(0.5, min(1.3, 21 / n_types)):.2f}rem"
    body = element("tbody", *rows)
    return element("table", element("thead", head), body, class_="map", style=f"--cell:{cell}; --n:{n_types}")


def _cell(contents: Contents, rank: int, type_: int, arm: int, scale: tuple[float, float], numbered: bool) -> Markup:
    mean = float(contents.bandit.means[type_, arm])
    heat = _share(mean, scale)
    note = f"{contents.labels[arm]}, type {rank + 1}: {mean:.4g}"
    text = element("span", f"{mean:.2f}".removeprefix("0") if numbered else "")
    return element("td", text, class_="hot" if heat > 0.55 else None, style=f"--heat:{heat:.3f}", title=note)


def who_leaves(contents: Contents) -> Markup:
    """Render the probability of leaving after each arm: by type if types differ in it, otherwise by reward."""
    bandit, left = contents.bandit, contents.bandit.leaving
    if left is None:
        return _NOTHING
    by_type = bandit.has_informative_attrition
    chances = (1 - bandit.stays)[bandit.types_by_weight].T if by_type else left[0]
    heads = [f"type {rank + 1}" for rank in range(bandit.n_types)]
    if not by_type:
        values = np.arange(left.shape[2]) if bandit.rewards.values is None else bandit.rewards.values
        heads = [f"after {value:g}" for value in values.tolist()]
        if bandit.rewards.values is None:
            heads[-1] += "+"  # and all larger counts
    arms = np.argsort(-chances.mean(axis=1), kind="stable")[: _MAP_ROWS[1]]
    rows = [_leaving_row(contents.labels[arm], heads, chances[arm], float(chances.max())) for arm in arms.tolist()]
    head = element("tr", element("th"), *(element("th", name.split()[-1], title=name) for name in heads))
    column = "in each type (column)" if by_type else "and each reward (column)"
    note = f"Probability that a session ends after each arm (row) {column}, in descending order."
    if len(arms) < bandit.n_arms:
        note += f" The table shows {len(arms)} of {bandit.n_arms} arms."
    style = f"--cell:2.9rem; --n:{len(heads)}"
    table = element("table", element("thead", head), element("tbody", *rows), class_="map", style=style)
    return element(
        "section",
        element("h2", "Attrition"),
        element("p", note, class_="soft"),
        element("div", table, class_="maps"),
    )


def _leaving_row(label: str, heads: list[str], chances: Float[Array, "k"], top: float) -> Markup:
    cells = []
    for name, chance in zip(heads, chances.tolist(), strict=True):
        heat = _share(chance, (0.0, top))
        style, hot = f"--heat:{heat:.3f}", "hot" if heat > 0.55 else None
        title = f"{label}, {name}: {percent(chance)} leave"
        cells.append(element("td", element("span", percent(chance)), class_=hot, style=style, title=title))
    return element("tr", element("th", label, title=label), *cells)


def tree(contents: Contents) -> Markup:
    """Show the policy's first steps, or its list of arms."""
    if contents.listed is not None:
        means, title = contents.bandit.weights @ contents.bandit.means, "Arms of every session"
        if len(contents.listed) == 1 and contents.horizon > 1:
            note = f"The policy ignores rewards: every step plays {contents.labels[contents.listed[0]]}."
            return element("section", element("h2", title), element("p", note))
        note = "The policy ignores rewards: every session gets these arms in this order, each with its expected reward."
        rows = [element("li", f"{contents.labels[arm]} ({means[arm]:.4g})") for arm in contents.listed]
        return element("section", element("h2", title), element("p", note, class_="soft"), element("ol", *rows))
    if contents.tree is None:
        note = "The policy is random: its first steps differ between sessions."
        return element("section", element("h2", "First steps of the policy"), element("p", note, class_="soft"))
    note = (
        "From left to right: the arm, its reward (with the share of sessions), and the next arm. The bar in each box "
        "is the belief: the posterior probability of each type at this point of the session."
    )
    if contents.people is not None:
        note += " The types of this figure are the fifths of all sessions along factor 1, from its low end."
    if contents.known is not None and contents.known.shares:
        note += " The figure starts from the average prior; a session with features starts from its own prior."
    cut = [name for name in names(contents.tree) if shortened(name)[1]]
    full = f"Full names: {'; '.join(cut)}." if cut else ""
    return element(
        "section",
        element("h2", "First steps of the policy"),
        element("p", note, class_="soft"),
        element("p", "The figure may be wider than the screen: scroll it to see later steps.", class_="scrolls"),
        _legend(len(contents.tree.belief)),
        element("div", tree_svg(contents.tree, standalone=False), class_="wide", tabindex=0),
        element("p", full, class_="soft") if cut else Markup(""),
    )


def _legend(n_types: int) -> Markup:
    """Render the legend of types."""
    marks = [element("span", f"type {rank + 1}", style=f"--colour: {colour(rank)}") for rank in range(n_types)]
    return element("p", *marks, class_="legend")


def settings(contents: Contents) -> Markup:
    """Render the settings behind the numbers."""
    rows = [element("tr", element("th", name), element("td", text)) for name, text in contents.settings]
    return element("section", element("h2", "Settings"), element("table", element("tbody", *rows), class_="settings"))


def _number(value: float) -> str:
    """Format with three decimals, or with four digits if the number is large."""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.4g}"


def _share(value: float, scale: tuple[float, float]) -> float:
    low, high = scale
    return (float(value) - low) / (high - low) if high > low else 0.5


def assessment(contents: Contents) -> Markup:
    """Render the confidence intervals of the assessment, with its details."""
    found = contents.assessment
    if found is None:
        return _NOTHING
    return element(
        "section",
        element("h2", "Confidence intervals"),
        element("p", found.sentence, class_="lead"),
        element("table", element("tbody", *(_row(*row) for row in found.table.items())), class_="settings"),
    )


def _row(name: str, text: str) -> Markup:
    return element("tr", element("th", name), element("td", text))


def held_out(contents: Contents) -> Markup:
    """Render predictions compared with held-out sessions."""
    seen = contents.held_out
    if seen is None:
        return _NOTHING
    return element(
        "section",
        element("h2", "Evaluation on the log of the fit" if seen.fitted else "Evaluation on held-out sessions"),
        element("p", seen.verdict(sure=contents.verdict.word == PAYS), class_="lead"),
        element("div", _calibration(seen), _memory(seen), class_="charts"),
        _evidence(seen, _steps(contents)),
    )


def _calibration(seen: HeldOut) -> Markup:
    found = seen.calibration
    note = (
        f"Mean observed reward against the reward predicted from the past of the session, for tenths of the steps of "
        f"{seen.n_sessions:,} sessions, ± one standard error. Calibration slope of predicted differences: "
        f"{found.slope:.2f} ± {found.slope_stderr:.2f} (1 is calibrated)."
    )
    chart = calibration_chart(found.predicted, found.observed, found.stderr)
    return element("figure", chart, element("figcaption", note))


def _memory(seen: HeldOut) -> Markup:
    steps = np.arange(1.0, len(seen.gain) + 1)
    frame = Frame.around(steps, np.concatenate([seen.gain - seen.gain_stderr, seen.gain + seen.gain_stderr, [0.0]]))
    marks = points(frame, steps.tolist(), seen.gain.tolist(), seen.gain_stderr.tolist())
    note = (
        "Log-likelihood of the reward of each step given the past of the session, less that given the arm alone. It "
        "rises with the step while rewards still add information about the latent type."
    )
    curve = line(frame, steps.tolist(), seen.gain.tolist())
    zero = line(frame, list(frame.x), [0.0, 0.0], "ideal")
    title = "Gain from the past of the session"
    chart = frame.draw(title, "step", "gain in log-likelihood", zero, curve, marks, integers=True)
    return element("figure", chart, element("figcaption", note))


def _evidence(seen: HeldOut, steps: str) -> Markup:
    if seen.evidence is None:
        text = (
            f"As logged, a session of {steps} earned {seen.logged:.4g} on average. An off-policy estimate of this "
            "policy needs logged propensities, of sessions at least as long."
        )
        return element("p", text, class_="soft")
    value = seen.evidence.doubly_robust
    assert value is not None  # a model was given
    logged = f"As logged, a session of {steps} earned {seen.logged:.4g} on average. "
    if value.interval is None:
        text = Markup(f"{logged}These sessions do not allow an off-policy estimate of this policy.")
    else:
        text = join(
            Markup(f"{logged}Off-policy estimate of this policy: "),
            element("strong", f"{value.mean:.4g}"),
            Markup(" (95% confidence interval {:.4g} to {:.4g}, doubly robust).".format(*value.interval)),
        )
    remarks = [element("p", f"{note[:1].upper()}{note[1:]}.", class_="soft") for note in seen.evidence.notes]
    return join(element("p", text), *remarks)


def _chosen(curve: Curve, check: Check | None) -> str:
    """Return the number of types and its reason, as `lmab fit` prints them."""
    return curve.reason_beside(check)


def number_of_types(contents: Contents) -> Markup:
    """Render the held-out likelihood for each number of types if the number was selected."""
    curve = contents.curve
    if curve is None or len(curve.n_types) < 2:
        return _NOTHING
    numbers, scores = [float(number) for number in curve.n_types], curve.log_likelihood
    frame = Frame.around(np.array(numbers), np.concatenate([scores - curve.stderr, scores + curve.stderr]))
    marks = points(frame, numbers, scores.tolist(), curve.stderr.tolist())
    x, y = frame.at(float(curve.chosen), float(scores[curve.n_types.index(curve.chosen)]))
    ring = element("circle", cx=x, cy=y, r=8, class_="chosen")
    chart = frame.draw(
        "Number of types", "number of types", "log-likelihood per session",
        line(frame, numbers, scores.tolist()), marks, ring, integers=True,
    )  # fmt: skip
    note = (
        f"Held-out log-likelihood; bars are standard errors of the difference from one number to the next. "
        f"{_chosen(curve, contents.check)}."
    )
    return element("section", element("h2", "Number of types"), element("figure", chart, element("figcaption", note)))


def factors(contents: Contents) -> Markup:
    """Render a card per factor with the arms at its two ends."""
    people = contents.people
    assert people is not None
    found = people.factors
    if not found.n_alive:
        note = "The log supports no latent factor, so the policy plays the arms with the highest mean rewards."
        return element("section", element("h2", "Factors"), element("p", note))
    cards = [_factor_card(contents, people, j) for j in range(found.n_alive)]
    note = (
        f"{found}. The score of a session on each factor is normal with mean 0 and standard deviation 1. The loading "
        "of an arm is the change of the log-odds of its reward (or of its mean) per unit of the score."
    )
    return element(
        "section",
        element("h2", f"Latent traits: {count(found.n_alive, 'factor')}"),
        element("p", note[:1].upper() + note[1:], class_="soft"),
        element("div", *cards, class_="types"),
    )


def _factor_card(contents: Contents, people: People, factor: int) -> Markup:
    loadings = people.factors.loadings[:, factor]
    low, high = people.factors.ends(factor, min(_ENDS, (len(loadings) + 1) // 2))
    top = float(np.abs(loadings).max()) or 1.0

    def row(arm: int) -> Markup:
        name, value = contents.labels[arm], float(loadings[arm])
        filled = element("div", "", class_="fill", style=f"width:{100 * abs(value) / top:.1f}%")
        number = element("span", f"{value:+.2f}", class_="value")
        return element(
            "div", element("span", name, title=name), element("div", filled, class_="track"), number, class_="arm"
        )

    title = element("h3", f"Factor {factor + 1}", element("span", f"size {people.factors.size[factor]:.2f}"))
    parts = [element("h4", "high end"), *map(row, high.tolist()), element("h4", "low end"), *map(row, low.tolist())]
    return element("article", title, *parts, class_="type")


def people(contents: Contents) -> Markup:
    """Render the factor scores of sessions, and their posterior standard deviation by step."""
    found = contents.people
    assert found is not None
    if not found.factors.n_alive:
        return Markup("")
    source = f"{found.n_sessions:,} sessions" if found.n_sessions else "sessions of the model"
    scores = f"Scores of {source} on the first two factors; darker cells hold more sessions."
    deviation = "Posterior standard deviation of the score of a session on each factor, by step."
    figures = [element("figure", _density(found), element("figcaption", scores))]
    figures.append(element("figure", _located(found), element("figcaption", deviation)))
    return element("section", element("h2", "Factor scores"), element("div", *figures, class_="pair"))


def _density(people: People) -> Markup:
    edges, density = people.edges, people.density
    frame = Frame((float(edges[0]), float(edges[-1])), (float(edges[0]), float(edges[-1])))
    cells = []
    for i, j in np.argwhere(density > 0).tolist():
        (left, top), (right, bottom) = (
            frame.at(float(edges[i]), float(edges[j + 1])),
            frame.at(float(edges[i + 1]), float(edges[j])),
        )
        shade = f"{float(density[i, j] / density.max()) ** 0.5:.3f}"
        note = element("title", f"{density[i, j]:.2%} of the sessions")
        cells.append(element("g", note, element(
            "rect", x=left, y=top, width=right - left, height=bottom - top, class_="point", fill_opacity=shade,
        )))  # fmt: skip
    return frame.draw("Density of factor scores", "factor 1", "factor 2", join(*cells))


def _located(people: People) -> Markup:
    steps = np.arange(len(people.spread), dtype=np.float64)
    frame = Frame.around(steps, np.r_[0.0, people.spread.ravel()])
    curves = [line(frame, steps.tolist(), column.tolist()) for column in people.spread.T]
    return frame.draw("Uncertainty of factor scores", "step", "posterior standard deviation", *curves, integers=True)
