"""Initial states of sessions, and the enumeration of all histories of a session under a policy, step by step.

Histories that the policy cannot distinguish are merged. If the order of observations does not matter, histories with
equal counts are one, so there are C(D + t - 1, t) of them instead of D^t. A policy that ignores rewards has one history
for each step. Exact values, the trees of assessments, policy graphs and printed trees all use this enumeration.

The initial state depends on the features of the session and on the earlier sessions of its person.
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
_LIMIT = 100_000  # maximum number of histories of one step


class Decisions(Protocol):
    """Interface that the enumeration needs: decisions for n sessions at once. Every deterministic `Policy` has it."""

    @property
    def adaptive(self) -> bool: ...
    @property
    def order_free(self) -> bool: ...
    def start(self, n: int) -> State: ...
    def act(self, state: State) -> Any: ...
    def observe(self, state: State, arm: Any, reward: Any) -> State: ...


@dataclass(frozen=True, eq=False)
class HistoryLevel:
    """All possible histories of one length, the decision of the policy after each, and the histories that follow."""

    state: State  # state of the policy, one row per history
    mass: Float[Array, "n M"]  # weight times probability of the history, for every type
    arms: Integer[Array, "n"]  # arm that the policy plays
    children: Integer[Array, "n Z"]  # row of the next level after each outcome of the arm, or NONE


class InitialStates(NamedTuple):
    """Distinct initial states of a policy, from which the enumeration begins."""

    state: State  # state of the policy, one row per initial state
    mass: Float[Array, "k M"]  # share of the sessions that start there, for every type


def start_from_features(policy: Policy, n: int, features: Features | None) -> State:
    """Return the state of n sessions before their first step; columns that the policy does not use are ignored."""
    prior = policy.type_prior
    prior_features = None if features is None or prior is None else features.only(prior.columns)
    return policy.start(n, features=prior_features) if prior_features else policy.start(n)


def initial_states(
    policy: Policy, bandit: LatentBandit, type_prior: TypePrior | None, features: Any = None
) -> InitialStates:
    """Return the initial states under a policy if types are drawn from `type_prior`, or from the bandit's weights if
    None.

    Persons that the policy cannot distinguish share one initial state.
    """
    people = None if type_prior is None else type_prior.resolve_features(features)
    if type_prior is None or people is None:
        return InitialStates(policy.start(1), bandit.weights[None] if type_prior is None else type_prior.weights())
    each = people.shares[:, None] * type_prior.weights(people.features)
    memory = start_from_features(policy, len(people), people.features).memory
    _, first, group = np.unique(memory, axis=0, return_index=True, return_inverse=True)
    mass = np.zeros((len(first), bandit.n_types))
    np.add.at(mass, group.ravel(), each)
    return InitialStates(State(0, memory[first], single=False), mass)


def initial_memories(policy: Policy, sessions: Sessions) -> Float[Array, "N K"] | None:
    """Return the policy's memory before the first step of each session of a log; None if it is the same for all.

    If the type prior has a probability `keep`, later sessions of a person start from the posterior after the earlier
    ones.
    """
    prior = policy.type_prior
    if prior is None:
        return None
    returning = sessions.persons is not None and prior.keep is not None
    if not returning and (sessions.features is None or not prior.columns):
        return None
    memory = start_from_features(policy, len(sessions), sessions.features).memory.copy()
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
            informed = policy.tell(_rows_of(state, live), sessions.arms[places], sessions.rewards[places], step=step)
            after = state.memory.copy()
            after[live] = informed.memory
            state = State(0, after, single=False)
        prior_features = None if sessions.features is None else sessions.features.only(prior.columns).take(later)
        memory[later] = policy._next_memory(state, prior_features or None)
    return memory


def _rows_of(state: State, rows: Integer[Array, "n"]) -> State:
    return State(state.step, state.memory[rows], single=False)


def _sessions_before(persons: Integer[Array, "N"]) -> Integer[Array, "N"]:
    """Return the number of the same person's previous session in the log, for each session; NONE for the first one."""
    order = np.argsort(persons, kind="stable")
    again = np.append(False, persons[order][1:] == persons[order][:-1])
    before = np.full(len(persons), NONE)
    before[order[again]] = order[np.flatnonzero(again) - 1]
    return before


def _rounds(before: Integer[Array, "N"]) -> Iterator[Integer[Array, "n"]]:
    """Yield the second sessions of persons, then the third ones, and so on."""
    done = before == NONE
    while not done.all():
        ready = np.flatnonzero(~done & done[before])
        yield ready
        done[ready] = True


def enumerate_histories(
    policy: Decisions,
    bandit: LatentBandit,
    horizon: int,
    *,
    limit: int,
    remedy: str,
    merge: bool = True,
    bins: int = 2,
    roots: InitialStates | None = None,
) -> Iterator[HistoryLevel]:
    """Yield the levels of `policy` on `bandit`, from the first step to step `horizon`, without impossible histories.

    With attrition, histories belong to sessions that continue; the enumeration ends when no session is left.

    Args:
        policy: a deterministic policy.
        bandit: model that gives the possible outcomes and their probabilities.
        horizon: steps per session.
        limit: the largest number of histories of one step; if there are more, `TooLarge` is raised.
        remedy: advice to the caller in the error message.
        merge: merge histories that the policy cannot distinguish; False keeps every sequence.
        bins: the number of outcomes into which continuous rewards are discretised.
        roots: the initial states; None means the states of `policy.start` with the bandit's weights.


    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> levels = enumerate_histories(lmab.Greedy(bandit), bandit, 4, limit=100, remedy="plan fewer steps")
        >>> [len(level.arms) for level in levels]
        [1, 2, 3, 5]
    """
    models, index = bandit.step_models(horizon)
    channels = [model.outcomes(bins) for model in models]
    state, mass = roots or InitialStates(policy.start(1), bandit.weights[None])
    seen: Integer[Array, "n t"] = np.arange(len(mass))[:, None]  # the initial state, then codes of the observations
    for step in range(horizon):
        arms, model, channel = _decide(policy, state, bandit.n_arms), models[index[step]], channels[index[step]]
        if step + 1 == horizon:
            yield HistoryLevel(state, mass, arms, np.full((len(arms), channel.rewards.shape[1]), NONE))
            return
        if merge and not policy.adaptive:
            branches = _unseen(channel, mass if bandit.leaving is None else mass * model.stays.T[arms])
        else:
            branches = _grown(channel, mass, seen, arms, merge and policy.order_free)
        _check_size(len(branches.parents), step + 1, limit, remedy)
        yield HistoryLevel(state, mass, arms, branches.children)
        if len(branches.parents) == 0:  # no session is left
            return
        parents, mass, seen = branches.parents, branches.mass, branches.seen
        before = State(state.step, state.memory[parents], single=False)
        state = policy.observe(before, arms[parents], channel.rewards[arms[parents], branches.outcomes])


class RandomLevel(NamedTuple):
    """All histories of one length under a policy that plays at random, one row for each arm that may follow."""

    mass: Float[Array, "n M"]  # weight times probability of the history and of the arm, for every type
    arms: Integer[Array, "n"]


def enumerate_random_histories(
    policy: Policy, bandit: LatentBandit, horizon: int, *, limit: int, remedy: str, roots: InitialStates | None = None
) -> Iterator[RandomLevel]:
    """Yield the levels of a policy that plays at random; the arguments are as in `enumerate_histories`.

    Histories after which the policy has the same memory are one, because its probabilities follow from the memory.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> levels = enumerate_random_histories(lmab.Uniform(2), bandit, 3, limit=100, remedy="plan fewer steps")
        >>> [len(level.arms) for level in levels]
        [2, 2, 2]
    """
    models, index = bandit.step_models(horizon)
    channels = [model.outcomes(2) for model in models]
    state, mass = roots or InitialStates(policy.start(1), bandit.weights[None])
    seen: Integer[Array, "n t"] = np.arange(len(mass))[:, None]
    for step in range(horizon):
        chances, channel = policy.distribution(state, n_arms=bandit.n_arms), channels[index[step]]
        rows, arms = np.nonzero(chances > 0)
        mass = mass[rows] * chances[rows, arms][:, None]
        yield RandomLevel(mass, arms)
        if step + 1 == horizon:
            return
        _check_size(len(rows) * channel.rewards.shape[1], step + 1, limit, remedy)
        branches = _grown(channel, mass, seen[rows], arms, policy.order_free)
        if len(branches.parents) == 0:  # everybody has left
            return
        before = State(state.step, state.memory[rows[branches.parents]], single=False)
        paid = channel.rewards[arms[branches.parents], branches.outcomes]
        state = policy.observe(before, arms[branches.parents], paid)
        _, first, group = np.unique(state.memory, axis=0, return_index=True, return_inverse=True)
        mass = np.zeros((len(first), bandit.n_types))
        np.add.at(mass, group.ravel(), branches.mass)
        state, seen = State(state.step, state.memory[first], single=False), branches.seen[first]


class _Branches(NamedTuple):
    """Step from one level to the next: k histories of t1 = t + 1 steps."""

    children: Integer[Array, "n Z"]
    parents: Integer[Array, "k"]  # a history that each one continues; one of them if several were merged
    outcomes: Integer[Array, "k"]  # outcome of the parent's arm
    mass: Float[Array, "k M"]
    seen: Integer[
        Array, "k t1"
    ]  # the initial state, and codes of the observations in their order or, if merged, sorted


def _unseen(channel: Channel, mass: Float[Array, "n M"]) -> _Branches:
    """Return one history per initial state for a policy that ignores rewards, so observations make no difference."""
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
    """Return every history followed by every possible outcome; with `merge`, histories with equal counts are one."""
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
    """Return one key per row, equal for equal rows: an integer if it fits into 64 bits, else the bytes of the row."""
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
    """Decision of the policy at one point of the session, and the branches that follow.

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
    label: str | int  # label of the arm in the log, or its number
    probability: float  # probability that a session gets here
    belief: Float[Array, "M"]  # probability of each type, before the arm is played
    branches: tuple[Branch, ...]  # empty at the end of the tree

    def _repr_svg_(self) -> str:
        picture = import_module(
            "..reporting.tree", __package__
        )  # a higher layer, imported only if the tree is displayed
        return str(picture.tree_svg(self))

    def __str__(self) -> str:
        """Return the tree as text; types are in the order of decreasing weight, as in the picture and in reports."""
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
    """Reward and the policy tree that follows it."""

    reward: float
    tree: Tree


def grow(policy: Policy, bandit: LatentBandit, depth: int) -> Tree:
    """Return the tree of the first `depth` steps of `policy`.

    Continuous rewards have three branches, at the middle of each third.
    """
    models, index = bandit.step_models(depth)
    rewards = [model.outcomes(BRANCHES).rewards for model in models]
    levels = enumerate_histories(
        policy, bandit, depth, limit=_LIMIT, remedy="ask for fewer steps", merge=False, bins=BRANCHES
    )
    below: list[Tree] = []
    for level in reversed(list(levels)):
        paid = rewards[index[level.state.step]]
        below = [_tree(policy, level, row, paid, below) for row in range(len(level.arms))]
    return below[0]


def _tree(policy: Policy, level: HistoryLevel, row: int, rewards: Float[Array, "A Z"], below: Sequence[Tree]) -> Tree:
    """Return the decision after one history of a level, and the branches that follow."""
    arm, mass = int(level.arms[row]), level.mass[row]
    label = arm if policy.arm_labels is None else policy.arm_labels[arm]
    following = zip(rewards[arm].tolist(), level.children[row].tolist(), strict=True)
    branches = tuple(Branch(reward, below[child]) for reward, child in following if child != NONE)
    return Tree(level.state.step, arm, label, float(mass.sum()), belief.normalise(mass), branches)
