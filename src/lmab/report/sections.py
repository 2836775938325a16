"""The parts of the page that show the model, the policy and what the policy earns."""

from __future__ import annotations

import numpy as np

from .._markup import Markup, element, join, prose
from .._notebook import percent
from .._shapes import Array, Float, Integer
from .contents import Contents, Worth
from .tree import colour, names, shortened, tree_svg

_SHOWN = 3  # best and worst arms per type
_MOST_ARMS = 90  # rows of the heat map
_MAP_ROWS = (15, 30)  # arms above which the heat map has a second column, and most arms of a column
_MAPS = 3  # columns of the heat map, where there is room
_NUMBERS_UP_TO = 8  # types up to which cells hold numbers
_WHOLE = 0.995  # share of the possible gain from which the policy is said to reach all of it


def worth(contents: Contents) -> Markup:
    """What personalisation is worth: a sentence, then bars."""
    values, steps = contents.worth, contents.horizon
    single = len(values.fixed_arms) == 1
    fixed = contents.labels[values.fixed_arms[0]] if single else f"the {len(values.fixed_arms)} best on average"
    return element(
        "section",
        element("h2", "What personalisation is worth"),
        element("p", _sentence(contents, "best single arm" if single else "same arms", fixed), class_="lead"),
        prose("p", contents.verdict.sentence),
        _bars(values, f"best single arm, {fixed}" if single else "same arms for everyone"),
        element(
            "p",
            f"Expected reward of a session of {steps} steps under the model. The optimum lies within the hatched part. "
            "No policy can know the type from the first step on.",
            class_="soft",
        ),
    )


def _sentence(contents: Contents, what: str, fixed: str) -> Markup:
    """What the policy earns; a gain is green, and a share of it is given, only where the verdict is sure."""
    values, steps, sure = contents.worth, contents.horizon, contents.verdict.sure
    gain = values.policy.mean - values.fixed
    share = f" ({percent(gain / abs(values.fixed))} more)" if values.fixed and gain > 0 and sure else ""
    style = {"class_": "bad"} if gain < 0 else {"class_": "good"} if sure else {}
    return join(
        Markup(f"Showing everyone the {what} ("),
        element("em", fixed),
        Markup(f") earns {values.fixed:.4g} per session of {steps} steps on the model. This policy earns "),
        element("strong", f"{values.policy.mean:.4g}{share}", **style),
        Markup("; no policy can earn more than "),
        element("strong", f"{values.upper:.4g}"),
        Markup(f". {_reached(values)}"),
    )


def _reached(values: Worth) -> str:
    """How much of the possible gain the policy makes, as a sentence."""
    if values.upper - values.fixed <= 1e-9 * abs(values.upper):
        return "Types make no difference here: the best arms are the same for all."
    if values.policy.mean < values.fixed:
        return "Show everyone the same instead."
    if values.captured >= _WHOLE:
        return "So the policy gains all, or next to all, that can be gained by learning the type."
    return f"So the policy makes at least {percent(values.captured)} of the gain that is possible."


def _bars(values: Worth, fixed: str) -> Markup:
    low = min(0.0, values.fixed, values.policy.mean)
    span = max(values.known, values.upper) - low or 1.0

    def width(value: float) -> float:
        return 100 * (value - low) / span

    def row(name: str, value: float, text: str, style: str = "", more: Markup = Markup("")) -> Markup:  # noqa: B008
        bar = element("div", "", class_="fill", style=f"width:{width(value):.2f}%")
        track = element("div", element("div", bar, more, class_=style, style="height:100%"), class_="track")
        return join(element("div", name, class_="name"), element("div", text, class_="value"), track)

    mine = values.policy
    left, right = width(mine.mean), width(max(values.upper, mine.mean))
    hatched = element("div", "", class_="open", style=f"left:{left:.2f}%;width:{right - left:.2f}%")
    noise = "" if mine.exact else f" ± {mine.stderr:.2g}"
    return element(
        "div",
        row(fixed, values.fixed, f"{values.fixed:.4g}"),
        row("this policy", mine.mean, f"{mine.mean:.4g}{noise}", "ours", hatched),
        row("no policy earns more", values.upper, f"{values.upper:.4g}"),
        row("type known from the start", values.known, f"{values.known:.4g}"),
        class_="bars",
    )


def types(contents: Contents) -> Markup:
    """A card per type: its weight, its best and worst arms."""
    bandit = contents.bandit
    scale = float(bandit.means.min()), float(bandit.means.max())
    cards = [_card(contents, rank, m, scale) for rank, m in enumerate(bandit.by_size)]
    plural = "type" if bandit.n_types == 1 else "types"
    return element(
        "section",
        element("h2", f"{bandit.n_types} {plural} of sessions"),
        element("p", "Types are numbered by size, as by lmab fit: type 1 is the most frequent.", class_="soft"),
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
    """Expected reward of every arm in every type; arms are grouped by the type that gains most by them."""
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


def arms_in_order(means: Float[Array, "M A"], most: int = _MOST_ARMS) -> Integer[Array, "k"]:
    """The arms on which types differ most, grouped by the type that gains most by them, in the order of this gain."""
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
        cells = [_cell(contents, rank, m, arm, scale, numbered) for rank, m in enumerate(contents.bandit.by_size)]
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


def tree(contents: Contents) -> Markup:
    """The policy's first steps."""
    if contents.tree is None:
        note = "The policy plays at random: its first steps differ from session to session."
        return element("section", element("h2", "First steps of the policy"), element("p", note, class_="soft"))
    note = (
        "From left to right: the arm that is played, what it pays (and how often), and the next arm. The bar in "
        "each box is the belief: the share of each type among the sessions that get there."
    )
    if contents.people is not None:
        note += " Types are here the fifths of all sessions along factor 1, from its low end."
    cut = [name for name in names(contents.tree) if shortened(name)[1]]
    full = f"In full: {'; '.join(cut)}." if cut else ""
    return element(
        "section",
        element("h2", "First steps of the policy"),
        element("p", note, class_="soft"),
        element("p", "The picture may be wider than this screen: push it aside to see later steps.", class_="scrolls"),
        _legend(len(contents.tree.belief)),
        element("div", tree_svg(contents.tree, standalone=False), class_="wide", tabindex=0),
        element("p", full, class_="soft") if cut else Markup(""),
    )


def _legend(n_types: int) -> Markup:
    """The types and their colours."""
    marks = [element("span", f"type {rank + 1}", style=f"--colour: {colour(rank)}") for rank in range(n_types)]
    return element("p", *marks, class_="legend")


def settings(contents: Contents) -> Markup:
    """The settings from which the numbers come."""
    rows = [element("tr", element("th", name), element("td", text)) for name, text in contents.settings]
    return element(
        "section", element("h2", "How this was made"), element("table", element("tbody", *rows), class_="settings")
    )


def _number(value: float) -> str:
    """Three decimals, or four digits where numbers are large."""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.4g}"


def _share(value: float, scale: tuple[float, float]) -> float:
    low, high = scale
    return (float(value) - low) / (high - low) if high > low else 0.5
