"""The parts of the page that show a traits model: its factors, the people on them, how fast one is located."""

from __future__ import annotations

import numpy as np

from .._charts import Frame, line
from .._markup import Markup, element, join
from .._words import count
from .contents import Contents
from .people import People

_ENDS = 6  # arms at each end of a factor


def factors(contents: Contents) -> Markup:
    """A card per factor with the arms at its two ends."""
    people = contents.people
    assert people is not None
    found = people.factors
    if not found.n_alive:
        note = "The log supports no factor: everybody is best shown the most popular arms."
        return element("section", element("h2", "Factors"), element("p", note))
    cards = [_card(contents, people, j) for j in range(found.n_alive)]
    note = (
        f"{found}. A session's place on each factor is normal with mean 0 and standard deviation 1; an arm's loading "
        "says how much the log-odds of its reward (or its mean) rise with it."
    )
    return element(
        "section",
        element("h2", f"Sessions differ by degrees: {count(found.n_alive, 'factor')}"),
        element("p", note[:1].upper() + note[1:], class_="soft"),
        element("div", *cards, class_="types"),
    )


def _card(contents: Contents, people: People, factor: int) -> Markup:
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
    """Where sessions lie on the first two factors, and how fast a session is located."""
    found = contents.people
    assert found is not None
    if not found.factors.n_alive:
        return Markup("")
    who = f"{found.n_sessions:,} sessions" if found.n_sessions else "sessions of the model"
    where = f"Where {who} lie on the first two factors; darker is more of them."
    speed = "How unsure one is of a session's place on each factor, in standard deviations, step by step."
    figures = [element("figure", _density(found), element("figcaption", where))]
    figures.append(element("figure", _located(found), element("figcaption", speed)))
    return element("section", element("h2", "People"), element("div", *figures, class_="pair"))


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
    return frame.draw("Density of people", "factor 1", "factor 2", join(*cells))


def _located(people: People) -> Markup:
    steps = np.arange(len(people.spread), dtype=np.float64)
    frame = Frame.around(steps, np.r_[0.0, people.spread.ravel()])
    curves = [line(frame, steps.tolist(), column.tolist()) for column in people.spread.T]
    return frame.draw("How fast a session is located", "step", "posterior spread", *curves, integers=True)
