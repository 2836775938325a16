"""The walk over all histories that can happen in a session under a policy, step by step.

Histories that the policy cannot tell apart are merged. Where the order of what was seen does not matter, histories with
equal counts are one, so there are C(D + t - 1, t) of them instead of D^t. A policy that ignores rewards has one history
for each step.
Exact values, the trees of certificates, policy graphs and printed trees are all made from this walk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import numpy as np

from .._shapes import Array, Float, Integer, Shaped
from ..errors import InvalidArgument, TooLarge
from ..model import belief
from ..model.bandit import LatentBandit
from ..model.rewards import Channel
from .policy import Policy, State

NONE = -1  # no history follows, because the outcome is impossible or the session is over
BRANCHES = 3  # branches of a continuous reward
_LIMIT = 100_000  # histories of one step


class Decisions(Protocol):
    """What the walk needs of a policy: decisions for n sessions at once. Every deterministic `Policy` has them."""

    @property
    def adaptive(self) -> bool: ...
    @property
    def order_free(self) -> bool: ...
    def start(self, n: int) -> State: ...
    def act(self, state: State) -> Any: ...
    def observe(self, state: State, arm: Any, reward: Any) -> State: ...


@dataclass(frozen=True, eq=False)
class Level:
    """All histories of one length that can happen, what the policy does after each, and what follows."""

    state: State  # of the policy, one row per history
    mass: Float[Array, "n M"]  # weight times probability of the history, for every type
    arms: Integer[Array, "n"]  # what the policy plays
    children: Integer[Array, "n Z"]  # row of the next level after each outcome of the arm, or NONE


def walk(
    policy: Decisions,
    bandit: LatentBandit,
    horizon: int,
    *,
    limit: int,
    remedy: str,
    merge: bool = True,
    bins: int = 2,
) -> Iterator[Level]:
    """The levels of `policy` on `bandit`, from the first step to step `horizon`; impossible histories are left out.

    Where people leave, histories are those of sessions that go on; the walk ends where nobody is left.

    Args:
        policy: a deterministic policy.
        bandit: it says what can happen, and how likely it is.
        horizon: steps per session.
        limit: the largest number of histories of one step; where there are more, the walk raises `TooLarge`.
        remedy: what the error tells the caller to do.
        merge: merge histories that the policy cannot tell apart; False keeps every sequence.
        bins: the number of outcomes into which continuous rewards are cut.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> levels = walk(lmab.Greedy(bandit), bandit, 4, limit=100, remedy="plan fewer steps")
        >>> [len(level.arms) for level in levels]
        [1, 2, 3, 5]
    """
    channel = bandit.outcomes(bins)
    state, mass = policy.start(1), bandit.weights[None]
    seen: Integer[Array, "n t"] = np.empty((1, 0), np.int64)
    for step in range(horizon):
        arms = _decide(policy, state, bandit.n_arms)
        if step + 1 == horizon:
            yield Level(state, mass, arms, np.full((len(arms), channel.rewards.shape[1]), NONE))
            return
        if merge and not policy.adaptive:
            branches = _unseen(channel, mass if bandit.leaving is None else mass * bandit.stays.T[arms])
        else:
            branches = _grown(channel, mass, seen, arms, merge and policy.order_free)
        _check_size(len(branches.parents), step + 1, limit, remedy)
        yield Level(state, mass, arms, branches.children)
        if len(branches.parents) == 0:  # everybody has left
            return
        parents, mass, seen = branches.parents, branches.mass, branches.seen
        before = State(state.step, state.memory[parents], single=False)
        state = policy.observe(before, arms[parents], channel.rewards[arms[parents], branches.outcomes])


class _Branches(NamedTuple):
    """The step from one level to the next: k histories of t1 = t + 1 steps."""

    children: Integer[Array, "n Z"]
    parents: Integer[Array, "k"]  # a history that each one continues; any of them where several were merged
    outcomes: Integer[Array, "k"]  # by this outcome of the parent's arm
    mass: Float[Array, "k M"]
    seen: Integer[Array, "k t1"]  # codes of what was seen, in the order of the session or, where merged, sorted


def _unseen(channel: Channel, mass: Float[Array, "1 M"]) -> _Branches:
    """One history for a policy that ignores rewards: what was seen makes no difference."""
    children = np.zeros((1, channel.rewards.shape[1]), np.int64)
    return _Branches(children, np.zeros(1, np.int64), np.zeros(1, np.int64), mass, np.empty((1, 0), np.int64))


def _grown(
    channel: Channel,
    mass: Float[Array, "n M"],
    seen: Integer[Array, "n t"],
    arms: Integer[Array, "n"],
    merge: bool,
) -> _Branches:
    """Every history with every outcome that can follow; with `merge`, histories with equal counts are one."""
    n_values = channel.rewards.shape[1]
    codes = arms[:, None] * n_values + np.arange(n_values)
    grown = mass[:, None, :] * channel.table[codes]
    parents, outcomes = np.nonzero(grown.sum(axis=2) > 0)
    longer, after = np.column_stack([seen[parents], codes[parents, outcomes]]), grown[parents, outcomes]
    children = np.full(codes.shape, NONE)
    if not merge:
        children[parents, outcomes] = np.arange(len(longer))
        return _Branches(children, parents, outcomes, after, longer)
    longer.sort(axis=1)
    _, first, group = np.unique(_keys(longer, len(channel.table)), return_index=True, return_inverse=True)
    children[parents, outcomes] = group
    merged = np.zeros((len(first), mass.shape[1]))
    np.add.at(merged, group, after)
    return _Branches(children, parents[first], outcomes[first], merged, longer[first])


def _keys(rows: Integer[Array, "n t"], n_codes: int) -> Shaped[Array, "n"]:
    """One key per row, equal for equal rows: a number where it fits into 64 bits, else the bytes of the row."""
    length = rows.shape[1]
    if n_codes**length < 2**63:
        return rows @ n_codes ** np.arange(length)
    return np.ascontiguousarray(rows).view(np.dtype((np.void, rows.itemsize * length))).ravel()


def _decide(policy: Decisions, state: State, n_arms: int) -> Integer[Array, "n"]:
    arms = np.asarray(policy.act(state))
    if arms.min() < 0 or arms.max() >= n_arms:
        wrong = arms[(arms < 0) | (arms >= n_arms)][0]
        raise InvalidArgument(f"policy must name arms in 0..{n_arms - 1}, got {int(wrong)}")
    return arms


def _check_size(n_histories: int, n_steps: int, limit: int, remedy: str) -> None:
    if n_histories > limit:
        raise TooLarge(
            f"the policy can meet {n_histories} different histories of {n_steps} steps, more than {limit}: {remedy}"
        )


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
        picture = import_module("..reporting.tree", __package__)  # a floor above: imported only where somebody looks
        return str(picture.tree_svg(self))

    def __str__(self) -> str:
        """The tree as text; types are in the order of their size, as in the picture and in reports."""
        order = np.argsort(-self.belief, kind="stable").tolist()
        return "\n".join(self._lines(0, f"arm {self.label}", order))

    def _lines(self, indent: int, text: str, order: list[int]) -> Iterator[str]:
        yield "  " * indent + f"{text} (belief {' '.join(f'{self.belief[m]:.2f}' for m in order)})"
        for branch in self.branches:
            share = branch.tree.probability / self.probability
            text = f"reward {branch.reward:g} ({share:.2f}): arm {branch.tree.label}"
            yield from branch.tree._lines(indent + 1, text, order)


@dataclass(frozen=True, eq=False)
class Branch:
    """A reward and what the policy does after it."""

    reward: float
    tree: Tree


def grow(policy: Policy, bandit: LatentBandit, depth: int) -> Tree:
    """The first `depth` steps of `policy`. Continuous rewards branch in three, at the middle of each third."""
    rewards = bandit.outcomes(BRANCHES).rewards
    levels = walk(policy, bandit, depth, limit=_LIMIT, remedy="ask for fewer steps", merge=False, bins=BRANCHES)
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
