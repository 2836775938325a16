"""The first steps of a session policy as a picture: arm, reward, belief, next arm, from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Protocol

import numpy as np

from .._html import Markup, element, join, percent
from .._shapes import Array, Float
from ..model.bandit import LatentBandit, arm_label
from ..policies.histories import BRANCHES, Tree, grow
from ..policies.policy import Policy

_MOST_LEAVES, _MOST_STEPS = 16, 4  # A tree of this size fits on a page.
_WIDTH, _LINE, _BAR, _PITCH = 148, 15, 8, 244
_LETTERS = 15  # A line holds this many letters of an arm's name.
_LINES = 2  # A name takes at most this many lines.
_LEGEND, _ITEM = 20, 66  # A line of the legend is 20 high, and a type takes 66 of its width.
COLOURS = 16  # Types beyond the 16th take the colours of earlier ones.
_LIGHT = (
    "#2b66d9", "#d9822b", "#17905f", "#b5499c", "#8a6fd1", "#b8432f", "#2a9db0", "#8b7d2f",
    "#5b8def", "#7a4a12", "#6fbf73", "#e07bc3", "#4b3a8f", "#f08a75", "#13606c", "#c9b400",
)  # fmt: skip
_DARK = (
    "#6f9ef5", "#f0a85c", "#4cc394", "#e08bcb", "#b39cf2", "#ee8471", "#62cadb", "#cbbb62",
    "#3d6fd0", "#b57a38", "#a5e3a8", "#a6588f", "#7c66cf", "#b3503f", "#2f8f9e", "#8f8638",
)  # fmt: skip


def palette(dark: bool = False) -> str:
    """Return the colours of the types as CSS variables, --type0 for the most frequent."""
    return " ".join(f"--type{k}: {colour};" for k, colour in enumerate(_DARK if dark else _LIGHT))


def colour(rank: int) -> str:
    """Return the colour of the type with this rank by size, from 0."""
    return f"var(--type{rank % COLOURS})"


#: For a picture that stands alone; on a page, the page's own colours count.
_STYLE = f"""
svg.tree {{ --card: #f4f5f7; --ink: #1b2230; --soft: #5a6474; --line: #b9c0cb; {palette()}
  font: 13px system-ui, sans-serif; }}
@media (prefers-color-scheme: dark) {{ svg.tree {{ --card: #1e232c; --ink: #e6e9ef; --soft: #a0a9b8; --line: #4a5361;
  {palette(dark=True)} }} }}
"""


class Drawn(Protocol):
    """Protocol of a tree of decisions that can be drawn."""

    @property
    def step(self) -> int: ...
    @property
    def label(self) -> str | int: ...
    @property
    def probability(self) -> float: ...
    @property
    def belief(self) -> Float[Array, "M"]: ...
    @property
    def branches(self) -> Sequence[Follows]: ...


class Follows(Protocol):
    """Protocol of a reward and its subtree."""

    @property
    def reward(self) -> float: ...
    @property
    def tree(self) -> Drawn: ...


@dataclass(frozen=True)
class Placed:
    """A node of the tree, and the row on which it stands."""

    tree: Drawn
    row: float
    children: tuple[tuple[float, Placed], ...]  # reward and subtree


@dataclass(frozen=True)
class TreeStyle:
    """Settings shared by all nodes of a picture."""

    first: int  # step of the first node
    order: tuple[int, ...]  # types by size
    height: int  # Height of a node.

    @property
    def row(self) -> int:
        return self.height + 12


def tree_svg(tree: Drawn, *, standalone: bool = True) -> Markup:
    """Return the tree as SVG text; types are numbered by size, from 1.

    Args:
        tree: a result of `policy.tree(depth)`.
        standalone: include a legend and the colours for light and dark; False on a page that has them.

    Examples:
        >>> import lmab, lmab.reporting
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> picture = lmab.reporting.tree_svg(lmab.plan(bandit, horizon=5).policy.tree(3))
        >>> picture.count("<g>")  # 1 + 2 + 4 decisions
        7
    """
    root, rows = _place(tree, 0)
    lines = max(len(shortened(name)[0]) for name in names(tree))
    order = tuple(np.argsort(-tree.belief, kind="stable").tolist())
    look = TreeStyle(tree.step, order, 8 + _LINE * lines + _BAR + 5)
    width = (_depth(root) - 1) * _PITCH + _WIDTH + 2
    legend, above = _legend(len(order), width) if standalone else (Markup(""), 1)
    height = rows * look.row + above
    given = {"xmlns": "http://www.w3.org/2000/svg"} if standalone else {}
    return element(
        "svg",
        element("title", "First steps of the session policy"),
        element("style", Markup(_STYLE)) if standalone else Markup(""),
        legend,
        element("g", _draw(root, look), transform=f"translate(1 {above})"),
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        class_="tree",
        role="img",
        **given,
    )


def names(tree: Drawn) -> list[str]:
    """Return the distinct labels of the arms in the tree."""
    found = {_name(tree): None}
    for branch in tree.branches:
        found |= dict.fromkeys(names(branch.tree))
    return list(found)


def shortened(name: str) -> tuple[list[str], bool]:
    """Return a label in at most two lines, and whether it was shortened.

    Examples:
        >>> shortened("Star Wars")
        (['Star Wars'], False)
        >>> shortened("Raiders of the Lost Ark")
        (['Raiders of the', 'Lost Ark'], False)
        >>> shortened("Dr. Strangelove or: How I Learned to Stop Worrying")
        (['Dr. Strangelove', 'or: How I Lea…'], True)
    """
    lines = wrap(name, _LETTERS) or [name]
    if len(lines) <= _LINES:
        return lines, False
    last = " ".join(lines[_LINES - 1 :])[: _LETTERS - 2].rstrip()
    return [*lines[: _LINES - 1], f"{last}…"], True


def _name(tree: Drawn) -> str:
    return arm_label(0, (tree.label,))


def _place(tree: Drawn, row: int) -> tuple[Placed, int]:
    """Place the tree from `row` on with its root in the middle of its branches; return it and the first free row."""
    if not tree.branches:
        return Placed(tree, row, ()), row + 1
    children, below = [], row
    for branch in sorted(tree.branches, key=lambda branch: -branch.reward):
        child, below = _place(branch.tree, below)
        children.append((branch.reward, child))
    return Placed(tree, (children[0][1].row + children[-1][1].row) / 2, tuple(children)), below


def _depth(placed: Placed) -> int:
    return 1 + max((_depth(child) for _, child in placed.children), default=0)


def _draw(placed: Placed, look: TreeStyle) -> Markup:
    x, y = (placed.tree.step - look.first) * _PITCH, placed.row * look.row
    edges = [_edge(placed, reward, child, x, y, look) for reward, child in placed.children]
    return join(*edges, _node(placed.tree, x, y, look), *(_draw(child, look) for _, child in placed.children))


def _node(tree: Drawn, x: float, y: float, look: TreeStyle) -> Markup:
    name = _name(tree)
    shares = ", ".join(
        f"type {rank} {percent(float(tree.belief[type_]))}" for rank, type_ in enumerate(look.order, start=1)
    )
    note = element("title", f"{name}; {percent(tree.probability)} of sessions get here; {shares}")
    box = element("rect", x=x, y=y, width=_WIDTH, height=look.height, rx=4, fill="var(--card)", stroke="var(--line)")
    text = [
        element("text", line, x=x + 9, y=y + 17 + _LINE * number, fill="var(--ink)", font_weight=600)
        for number, line in enumerate(shortened(name)[0])
    ]
    return element("g", note, box, *text, _belief(tree, x + 9, y + look.height - _BAR - 5, look))


def _belief(tree: Drawn, x: float, y: float, look: TreeStyle) -> Markup:
    """Return a bar divided into the shares of the types, the most frequent type first."""
    room, parts = _WIDTH - 18.0, []
    for rank, type_ in enumerate(look.order):
        share = float(tree.belief[type_])
        parts.append(element("rect", x=x, y=y, width=room * share, height=_BAR, fill=colour(rank)))
        x += room * share
    return join(*parts)


def _edge(placed: Placed, reward: float, child: Placed, x: float, y: float, look: TreeStyle) -> Markup:
    start, end = x + _WIDTH, x + _PITCH
    above, below = y + look.height / 2, child.row * look.row + look.height / 2
    bend = start + 28
    way = f"M{start:g} {above:g}C{bend:g} {above:g} {start:g} {below:g} {bend:g} {below:g}L{end:g} {below:g}"
    share = child.tree.probability / placed.tree.probability
    text = element("text", f"{reward:.3g} ({percent(share)})", x=bend, y=below - 4, fill="var(--soft)", font_size=11)
    return join(element("path", d=way, fill="none", stroke="var(--line)"), text)


def _legend(n_types: int, width: float) -> tuple[Markup, int]:
    """Return the legend of types and colours, and its height."""
    per_line = max(int(width // _ITEM), 1)
    parts = []
    for rank in range(n_types):
        x, y = _ITEM * (rank % per_line), _LEGEND * (rank // per_line)
        parts.append(element("rect", x=1 + x, y=4 + y, width=10, height=10, fill=colour(rank)))
        parts.append(element("text", f"type {rank + 1}", x=16 + x, y=13 + y, fill="var(--soft)", font_size=11))
    return join(*parts), _LEGEND * -(-n_types // per_line) + 6


def tree_of(policy: Policy, bandit: LatentBandit, horizon: int) -> Tree | None:
    """Return the first steps of a policy that fit on a page; None for a random policy."""
    if not policy.deterministic:
        return None
    values = bandit.rewards.channel(bandit.weights, BRANCHES).rewards.shape[1]
    depth = 1
    while depth < min(horizon, _MOST_STEPS) and values**depth <= _MOST_LEAVES:
        depth += 1
    return grow(policy, bandit, depth)
