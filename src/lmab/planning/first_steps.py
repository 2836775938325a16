"""Tree: the first steps of a session policy as data, to print or draw."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .._shapes import Array, Float
from ..model import LatentBandit, belief
from ..policies import Policy, State

BRANCHES = 3  # in which continuous rewards branch


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
    belief: Float[Array, "M"]  # probability of each context, before the arm is played
    branches: tuple[Branch, ...]  # empty where the tree ends

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
    table, rewards, _ = bandit.rewards.channel(bandit.weights, BRANCHES)
    return _grow(
        policy,
        bandit,
        rewards,
        table.reshape(bandit.n_arms, -1, bandit.n_contexts),
        policy.start(),
        bandit.weights,
        depth,
    )


def _grow(
    policy: Policy,
    bandit: LatentBandit,
    rewards: Float[Array, "A Z"],
    channels: Float[Array, "A Z M"],
    state: State,
    mass: Float[Array, "M"],
    depth: int,
) -> Tree:
    """`mass` is weight times probability of what was seen, for every context."""
    arm = int(policy.act(state))
    branches = []
    for reward, likelihood in zip(rewards[arm].tolist(), channels[arm], strict=True):
        after = mass * likelihood
        if depth > 1 and after.sum() > 0:
            seen = policy.observe(state, arm, reward)
            branches.append(Branch(reward, _grow(policy, bandit, rewards, channels, seen, after, depth - 1)))
    label = arm if policy.arm_labels is None else policy.arm_labels[arm]
    return Tree(state.step, arm, label, float(mass.sum()), belief.normalise(mass), tuple(branches))
