"""Tree: the first steps of a session policy as data, to print or draw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .._shapes import Array, Float
from ..model import LatentBandit, belief
from ..policies import NONE, Level, Policy, walk
from .tree_picture import tree_svg

_MOST_LEAVES, _MOST_STEPS = 16, 4  # of a tree that fits on a page
BRANCHES = 3  # branches of a continuous reward
LIMIT = 100_000  # histories of one step


@dataclass(frozen=True, eq=False)
class Tree:
    """What the policy does at one point of the session, and what may follow.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> tree = lmab.plan(bandit, horizon=5).policy.tree(2)
        >>> tree.arm, [(branch.reward, branch.tree.arm) for branch in tree.branches]
        (0, [(0.0, 1), (1.0, 0)])
        >>> print(tree)
        arm 0 (belief 0.50 0.50)
          reward 0 (0.50): arm 1 (belief 0.10 0.90)
          reward 1 (0.50): arm 0 (belief 0.90 0.10)
    """

    step: int
    arm: int
    label: str | int  # the arm's name in the log, or its number
    probability: float  # of the session getting here
    belief: Float[Array, "M"]  # probability of each type, before the arm is played
    branches: tuple[Branch, ...]  # empty where the tree ends

    def _repr_svg_(self) -> str:
        return tree_svg(self)

    def __str__(self) -> str:
        return "\n".join(self._lines(0, f"arm {self.label}"))

    def _lines(self, indent: int, text: str) -> Iterator[str]:
        yield "  " * indent + f"{text} (belief {' '.join(f'{share:.2f}' for share in self.belief)})"
        for branch in self.branches:
            share = branch.tree.probability / self.probability
            text = f"reward {branch.reward:g} ({share:.2f}): arm {branch.tree.label}"
            yield from branch.tree._lines(indent + 1, text)


@dataclass(frozen=True, eq=False)
class Branch:
    """A reward and what the policy does after it."""

    reward: float
    tree: Tree


def grow(policy: Policy, bandit: LatentBandit, depth: int) -> Tree:
    """The first `depth` steps of `policy`. Continuous rewards branch in three, at the middle of each third."""
    rewards = bandit.rewards.channel(bandit.weights, BRANCHES).rewards
    levels = walk(policy, bandit, depth, limit=LIMIT, remedy="ask for fewer steps", merge=False, bins=BRANCHES)
    below: list[Tree] = []
    for level in reversed(list(levels)):
        below = [_tree(policy, level, row, rewards, below) for row in range(len(level.arms))]
    return below[0]


def _tree(policy: Policy, level: Level, row: int, rewards: Float[Array, "A Z"], below: Sequence[Tree]) -> Tree:
    """What one history of a level does, and the branches to what follows."""
    arm, mass = int(level.arms[row]), level.mass[row]
    label = arm if policy.arm_labels is None else policy.arm_labels[arm]
    following = zip(rewards[arm].tolist(), level.children[row].tolist(), strict=True)
    branches = tuple(Branch(reward, below[child]) for reward, child in following if child != NONE)
    return Tree(level.state.step, arm, label, float(mass.sum()), belief.normalise(mass), branches)


def tree_of(policy: Policy, bandit: LatentBandit, horizon: int) -> Tree | None:
    """As many steps as fit on a page; None for a policy that plays at random."""
    if not policy.deterministic:
        return None
    values = bandit.rewards.channel(bandit.weights, BRANCHES).rewards.shape[1]
    depth = 1
    while depth < min(horizon, _MOST_STEPS) and values**depth <= _MOST_LEAVES:
        depth += 1
    return grow(policy, bandit, depth)
