"""Where sessions start, and the walk over all histories that can happen in a session under a policy, step by step.

Histories that the policy cannot tell apart are merged. Where the order of what was seen does not matter, histories with
equal counts are one, so there are C(D + t - 1, t) of them instead of D^t. A policy that ignores rewards has one history
for each step.
Exact values, the trees of certificates, policy graphs and printed trees are all made from this walk.

A session starts from what is known before it: its features, and the earlier sessions of its person.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import numpy as np

from .._shapes import Array, Float, Integer, Shaped
from ..data.features import Features, person_numbers
from ..data.sessions import Sessions
from ..errors import InvalidArgument, TooLarge
from ..model import belief
from ..model.bandit import LatentBandit
from ..model.rewards import Channel
from ..model.type_prior import TypePrior
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

    state: State  # State of the policy, one row per history.
    mass: Float[Array, "n M"]  # weight times probability of the history, for every type
    arms: Integer[Array, "n"]  # what the policy plays
    children: Integer[Array, "n Z"]  # row of the next level after each outcome of the arm, or NONE


class Roots(NamedTuple):
    """Sessions that start differently under a policy, as the walk begins with them."""

    state: State  # State of the policy, one row per root.
    mass: Float[Array, "k M"]  # share of the sessions that start there, for every type


def known_start(policy: Policy, n: int, features: Features | None) -> State:
    """The state of n sessions before their first step; columns that the policy does not ask for are passed over."""
    prior = policy.type_prior
    known = None if features is None or prior is None else features.only(prior.columns)
    return policy.start(n, features=known) if known else policy.start(n)


def roots_of(policy: Policy, bandit: LatentBandit, type_prior: TypePrior | None, features: Any = None) -> Roots:
    """Where the people start under a policy, whose types are drawn by `type_prior`; None: by the bandit's weights.

    People whom the policy cannot tell apart are one root.
    """
    people = None if type_prior is None else type_prior.people_of(features)
    if type_prior is None or people is None:
        return Roots(policy.start(1), bandit.weights[None] if type_prior is None else type_prior.weights())
    each = people.shares[:, None] * type_prior.weights(people.features)
    memory = known_start(policy, len(people), people.features).memory
    _, first, group = np.unique(memory, axis=0, return_index=True, return_inverse=True)
    mass = np.zeros((len(first), bandit.n_types))
    np.add.at(mass, group.ravel(), each)
    return Roots(State(0, memory[first], single=False), mass)


def log_starts(policy: Policy, sessions: Sessions) -> Float[Array, "N K"] | None:
    """The policy's memory before the first step of each session of a log; None: it is the same for all.

    A person's later sessions start from the earlier ones of the log, where the policy knows how often types are kept.
    """
    prior = policy.type_prior
    if prior is None:
        return None
    returning = sessions.persons is not None and prior.keep is not None
    if not returning and (sessions.features is None or not prior.columns):
        return None
    memory = known_start(policy, len(sessions), sessions.features).memory.copy()
    if not returning:
        return memory
    assert sessions.persons is not None
    before = _sessions_before(person_numbers(sessions.persons))
    for later in _rounds(before):
        earlier = before[later]
        state = State(0, memory[earlier], single=False)
        for step in range(int(sessions.lengths[earlier].max())):
            live = np.flatnonzero(sessions.lengths[earlier] > step)
            places = sessions.offsets[earlier[live]] + step
            told = policy.tell(_rows_of(state, live), sessions.arms[places], sessions.rewards[places])
            after = state.memory.copy()
            after[live] = told.memory
            state = State(0, after, single=False)
        known = None if sessions.features is None else sessions.features.only(prior.columns).take(later)
        memory[later] = policy._next_memory(state, known or None)
    return memory


def _rows_of(state: State, rows: Integer[Array, "n"]) -> State:
    return State(state.step, state.memory[rows], single=False)


def _sessions_before(persons: Integer[Array, "N"]) -> Integer[Array, "N"]:
    """The session that each one follows, of the same person and in the order of the log; NONE: it is the first."""
    order = np.argsort(persons, kind="stable")
    again = np.append(False, persons[order][1:] == persons[order][:-1])
    before = np.full(len(persons), NONE)
    before[order[again]] = order[np.flatnonzero(again) - 1]
    return before


def _rounds(before: Integer[Array, "N"]) -> Iterator[Integer[Array, "n"]]:
    """Second sessions of persons, then third ones, and so on."""
    done = before == NONE
    while not done.all():
        ready = np.flatnonzero(~done & done[before])
        yield ready
        done[ready] = True


def walk(
    policy: Decisions,
    bandit: LatentBandit,
    horizon: int,
    *,
    limit: int,
    remedy: str,
    merge: bool = True,
    bins: int = 2,
    roots: Roots | None = None,
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
        roots: where the sessions start; None: all as `policy.start` says, with the bandit's weights.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> levels = walk(lmab.Greedy(bandit), bandit, 4, limit=100, remedy="plan fewer steps")
        >>> [len(level.arms) for level in levels]
        [1, 2, 3, 5]
    """
    channel = bandit.outcomes(bins)
    state, mass = roots or Roots(policy.start(1), bandit.weights[None])
    seen: Integer[Array, "n t"] = np.arange(len(mass))[:, None]  # the root, then codes of what was seen
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
    seen: Integer[Array, "k t1"]  # the root, and codes of what was seen, in their order or, where merged, sorted


def _unseen(channel: Channel, mass: Float[Array, "n M"]) -> _Branches:
    """One history per root for a policy that ignores rewards: what was seen makes no difference."""
    rows = np.arange(len(mass))
    children = np.repeat(rows[:, None], channel.rewards.shape[1], axis=1)
    return _Branches(children, rows, np.zeros(len(rows), np.int64), mass, rows[:, None])


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
    longer[:, 1:].sort(axis=1)
    n_codes = max(len(channel.table), int(longer[:, 0].max(initial=0)) + 1)
    _, first, group = np.unique(_keys(longer, n_codes), return_index=True, return_inverse=True)
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
    probability: float  # Probability that a session gets here.
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
