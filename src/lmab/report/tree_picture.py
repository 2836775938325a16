"""The first steps of a session policy as SVG: arm, reward, belief, next arm, from left to right."""

from __future__ import annotations

from dataclasses import dataclass

from .._notebook import percent
from ..model import LatentBandit
from ..planning import BRANCHES, Tree, grow
from ..policies import Policy
from .markup import Markup, element, join

_NODE, _BAR, _PITCH, _ROW = (124, 38), 8, 216, 50
_LEGEND = 26
_MOST_LEAVES, _MOST_STEPS = 16, 4
_LETTERS = 15  # of an arm's name

#: For a picture that stands alone; on a page, the page's own colours count.
_STYLE = """
svg { --card: #f4f5f7; --ink: #1b2230; --soft: #5a6474; --line: #b9c0cb; font: 13px system-ui, sans-serif;
  --type0: #2b66d9; --type1: #d9822b; --type2: #17905f; --type3: #b5499c;
  --type4: #8a6fd1; --type5: #b8432f; --type6: #2a9db0; --type7: #8b7d2f; }
@media (prefers-color-scheme: dark) { svg { --card: #1e232c; --ink: #e6e9ef; --soft: #a0a9b8; --line: #4a5361;
  --type0: #6f9ef5; --type1: #f0a85c; --type2: #4cc394; --type3: #e08bcb;
  --type4: #b39cf2; --type5: #ee8471; --type6: #62cadb; --type7: #cbbb62; } }
"""


@dataclass(frozen=True)
class Placed:
    """A node of the tree, and the row on which it stands."""

    tree: Tree
    row: float
    children: tuple[tuple[float, Placed], ...]  # reward, what follows


def first_steps(policy: Policy, bandit: LatentBandit, horizon: int) -> Tree | None:
    """As many steps as fit on a page; None for a policy that plays at random."""
    if not policy.deterministic:
        return None
    values = bandit.rewards.channel(bandit.weights, BRANCHES).rewards.shape[1]
    depth = 1
    while depth < min(horizon, _MOST_STEPS) and values**depth <= _MOST_LEAVES:
        depth += 1
    return grow(policy, bandit, depth)


def tree_svg(tree: Tree, *, standalone: bool = True) -> Markup:
    """The tree as SVG text.

    Args:
        tree: what `policy.tree(depth)` gives.
        standalone: include the colours for light and dark; False on a page that defines them.

    Examples:
        >>> import lmab, lmab.report
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> picture = lmab.report.tree_svg(lmab.plan(bandit, horizon=5).policy.tree(3))
        >>> picture.count("<g>")  # 1 + 2 + 4 decisions
        7
    """
    root, rows = _place(tree, 0)
    width = (_depth(root) - 1) * _PITCH + _NODE[0] + 2
    height = rows * _ROW + _LEGEND
    given = {"xmlns": "http://www.w3.org/2000/svg"} if standalone else {}
    return element(
        "svg",
        element("title", "First steps of the session policy"),
        element("style", Markup(_STYLE)) if standalone else Markup(""),
        _legend(len(tree.belief)),
        element("g", _draw(root, tree.step), transform=f"translate(1 {_LEGEND})"),
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        class_="tree",
        role="img",
        **given,
    )


def _place(tree: Tree, row: int) -> tuple[Placed, int]:
    """The tree placed from `row` on, with its root in the middle of its branches, and the first row below it."""
    if not tree.branches:
        return Placed(tree, row, ()), row + 1
    children, below = [], row
    for branch in sorted(tree.branches, key=lambda branch: -branch.reward):
        child, below = _place(branch.tree, below)
        children.append((branch.reward, child))
    return Placed(tree, (children[0][1].row + children[-1][1].row) / 2, tuple(children)), below


def _depth(placed: Placed) -> int:
    return 1 + max((_depth(child) for _, child in placed.children), default=0)


def _draw(placed: Placed, first: int) -> Markup:
    x, y = (placed.tree.step - first) * _PITCH, placed.row * _ROW
    edges = [_edge(placed, reward, child, x, y) for reward, child in placed.children]
    return join(*edges, _node(placed.tree, x, y), *(_draw(child, first) for _, child in placed.children))


def _node(tree: Tree, x: float, y: float) -> Markup:
    name = str(tree.label) if isinstance(tree.label, str) else f"arm {tree.label}"
    short = name if len(name) <= _LETTERS else name[: _LETTERS - 1] + "…"
    shares = ", ".join(f"type {m} {percent(float(share))}" for m, share in enumerate(tree.belief))
    note = element("title", f"{name}; {percent(tree.probability)} of sessions get here; {shares}")
    box = element("rect", x=x, y=y, width=_NODE[0], height=_NODE[1], rx=4, fill="var(--card)", stroke="var(--line)")
    text = element("text", short, x=x + 9, y=y + 18, fill="var(--ink)", font_weight=600)
    return element("g", note, box, text, _belief(tree, x + 9, y + _NODE[1] - _BAR - 5))


def _belief(tree: Tree, x: float, y: float) -> Markup:
    """A bar divided into the shares of the types."""
    room, parts = _NODE[0] - 18.0, []
    for context, share in enumerate(tree.belief.tolist()):
        colour = f"var(--type{context % 8})"
        parts.append(element("rect", x=x, y=y, width=room * share, height=_BAR, fill=colour))
        x += room * share
    return join(*parts)


def _edge(placed: Placed, reward: float, child: Placed, x: float, y: float) -> Markup:
    start, end = x + _NODE[0], x + _PITCH
    above, below = y + _NODE[1] / 2, child.row * _ROW + _NODE[1] / 2
    bend = start + 28
    way = f"M{start:g} {above:g}C{bend:g} {above:g} {start:g} {below:g} {bend:g} {below:g}L{end:g} {below:g}"
    share = child.tree.probability / placed.tree.probability
    text = element("text", f"{reward:.3g} ({percent(share)})", x=bend, y=below - 4, fill="var(--soft)", font_size=11)
    return join(element("path", d=way, fill="none", stroke="var(--line)"), text)


def _legend(n_contexts: int) -> Markup:
    """The legend of types and colours, where every type has its own colour."""
    if n_contexts > 8:
        return Markup("")
    parts = []
    for context in range(n_contexts):
        parts.append(element("rect", x=1 + 62 * context, y=4, width=10, height=10, fill=f"var(--type{context})"))
        label = element("text", f"type {context}", x=16 + 62 * context, y=13, fill="var(--soft)", font_size=11)
        parts.append(label)
    return join(*parts)
