"""Policy graph: the decisions of a policy for discrete rewards, computed in advance."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from .. import files
from .._shapes import Array, Bool, Float, Integer
from ..errors import InvalidArgument, TooLarge
from ..model.bandit import LatentBandit
from ..model.categorical import Categorical
from ..model.type_prior import TypePrior
from .histories import NONE, enumerate_histories
from .policy import Policy, State, restore_policy

OFF = NONE  # the node of a session that left the graph, by another arm or an impossible reward


class PolicyGraph(Policy):
    """Decisions of a policy as a graph, computed in advance.

    In a loop, use the plain lists: `arm = graph.arms[node]`, then `node = graph.successors[node][reward]`, from
    `node = graph.root`. As a `Policy` it makes the same decisions. When a session
    leaves the graph or an arm is not allowed, the policy that the graph was made from decides.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> graph = lmab.plan(bandit, horizon=5).policy.graph()
        >>> node = graph.root
        >>> graph.arms[node]
        0
        >>> node = graph.successors[node][0.0]
        >>> graph.arms[node]
        1
    """

    kind = "graph"

    def __init__(self, source: Policy, arms: Integer[Array, "K"], following: Integer[Array, "K Z"], root: int) -> None:
        rewards = source.bandit.rewards  # type: ignore[attr-defined]
        if not isinstance(rewards, Categorical) or following.shape != (len(arms), rewards.n_values):
            raise InvalidArgument(f"following must be ({len(arms)}, values of the rewards), got {following.shape}")
        if not 0 <= root < len(arms) or following.min() < OFF or following.max() >= len(arms):
            raise InvalidArgument(f"following must name nodes below {len(arms)}, got {following.max()}")
        self.source, self.root, self.horizon, self.n_arms = source, int(root), source.horizon, source.n_arms
        self.repeats, self.depends_on_step = source.repeats, source.depends_on_step
        self._arms, self._following, self._rewards = arms, following, rewards

    @cached_property
    def arms(self) -> list[int]:
        """Return the arm to play at each node."""
        return [int(arm) for arm in self._arms]

    @cached_property
    def successors(self) -> list[dict[float, int]]:
        """Return the node that follows each reward, for each node; empty after the last step."""
        values = self._rewards.values.tolist()
        rows = self._following.tolist()
        return [{value: node for value, node in zip(values, row, strict=True) if node != OFF} for row in rows]

    def __len__(self) -> int:
        return len(self._arms)

    @property
    def arm_labels(self) -> tuple[str | int, ...] | None:
        return self.source.arm_labels

    def _initial_memory(self) -> Float[Array, "K"]:
        return np.concatenate([[float(self.root)], self.source.start().memory[0]])

    @property
    def type_prior(self) -> TypePrior | None:
        return self.source.type_prior

    def _first_memory(self, n: int, features: Mapping[str, Any] | None) -> Float[Array, "n K"]:
        if features is None:
            return super()._first_memory(n, features)
        return self._off(State(0, self.source._first_memory(n, features), single=False))

    def _next_memory(self, state: State, features: Mapping[str, Any] | None) -> Float[Array, "n K"]:
        inner = self.source._next_memory(self._inner(state, slice(None)), features)
        return self._off(State(0, inner, single=False))

    def _remember(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        nodes = state.memory[:, 0].astype(np.int64)
        after = self.source.observe(self._inner(state, slice(None)), arms, rewards).memory
        reached = self._following[nodes, self._rewards.encode(rewards)]
        stays = (nodes != OFF) & (self._arms[nodes] == arms)
        return np.column_stack([np.where(stays, reached, OFF), after])

    def _pass(self, state: State, arms: Integer[Array, "n"]) -> Float[Array, "n K"]:
        return self._off(self.source.observe(self._inner(state, slice(None)), arms, None))

    def _learn(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        return self._off(self.source.tell(self._inner(state, slice(None)), arms, rewards, step=state.step))

    def _skip(self, state: State) -> Float[Array, "n K"]:
        return self._off(self.source.skip(self._inner(state, slice(None))))

    def _off(self, after: State) -> Float[Array, "n K"]:
        """Return the memory of sessions in which the source decides from now on, for example after a missing reward."""
        return np.column_stack([np.full(len(after.memory), float(OFF)), after.memory])

    def _belief(self, state: State) -> Float[Array, "n M"]:
        return self.source.belief(self._inner(state, slice(None)))

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        nodes = state.memory[:, 0].astype(np.int64)
        chosen, ask = self._arms[nodes].astype(np.int64), nodes == OFF
        if allowed is not None:
            ask = ask | ~allowed[np.arange(len(chosen)), chosen]
        rows = np.flatnonzero(ask)
        if len(rows):
            mask = None if allowed is None else allowed[rows]
            chosen[rows] = self.source.act(self._inner(state, rows), allowed=mask)
        return chosen

    def _inner(self, state: State, rows: Any) -> State:
        return State(state.step, state.memory[rows, 1:], single=False)

    def record(self) -> files.Record:
        arrays = {"arms": self._arms, "following": self._following}
        return files.Record(self.kind, {"root": self.root}, arrays, {"source": self.source.record()})

    @classmethod
    def from_record(cls, record: files.Record) -> PolicyGraph:
        source = restore_policy(record.records["source"])
        return cls(source, record.arrays["arms"], record.arrays["following"], **record.fields)


def extract(policy: Policy, bandit: LatentBandit, horizon: int, max_nodes: int) -> PolicyGraph:
    """Return the graph of a policy: enumerate its histories and merge all with the same later decisions."""
    if not isinstance(bandit.rewards, Categorical):
        raise InvalidArgument("a graph needs rewards on finitely many values, got continuous rewards")
    arms: list[Array] = []
    following: list[Array] = []
    names = np.empty(0, np.int64)  # node of each history of the level below
    total = 0
    for chosen, reached in reversed(_decisions(policy, bandit, horizon, max_nodes)):
        below = np.where(reached == OFF, OFF, names[reached]) if len(names) else reached
        rows, group = np.unique(np.column_stack([chosen, below]), axis=0, return_inverse=True)
        names = total + group.ravel()
        arms.append(rows[:, 0].astype(np.min_scalar_type(bandit.n_arms)))
        following.append(rows[:, 1:].astype(np.int32))
        total += len(rows)
    return PolicyGraph(policy, np.concatenate(arms), np.concatenate(following), int(names[0]))


def _decisions(
    policy: Policy, bandit: LatentBandit, horizon: int, max_nodes: int
) -> list[tuple[Integer[Array, "n"], Integer[Array, "n Z"]]]:
    """Return for each step the arm at every history, and the history of the next step that follows each reward."""
    decisions, total, remedy = [], 0, "raise max_nodes"
    for level in enumerate_histories(policy, bandit, horizon, limit=max_nodes, remedy=remedy):
        total += len(level.arms)
        if total > max_nodes:
            raise TooLarge(f"the graph would need {total} nodes for its first steps, more than {max_nodes}: {remedy}")
        decisions.append((level.arms, level.children))
    return decisions
