"""Policies that planners return: by alpha-vectors or by a table of values, and for one session at a time."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any, Self

import numpy as np

from .. import files
from .._kernel import kernel
from .._shapes import Array, Bool, Float, Integer
from ..checks import check_count
from ..errors import InvalidArgument, TooLarge
from ..model import belief
from ..model.attrition_values import known_type_values
from ..model.bandit import LatentBandit
from ..model.type_prior import TypePrior
from ..policies.belief_policies import BeliefPolicy
from ..policies.graph import PolicyGraph, extract
from ..policies.histories import Tree, enumerate_histories, grow
from ..policies.policy import MANY, Compact, CompactState, Policy, State, best_allowed, mask_unplayed
from .problem import BINS, Problem, Step

SMALL = 2.0**-400  # a belief below this is updated by the policy itself, which scales it
_CHUNK = 1 << 22  # scores computed at once
_WALKED = 20_000  # histories of one step that are walked to bound a policy from below
LOOKS = 3  # first steps with a lookahead, of the policy of a plan for many priors
_AHEAD = 2  # rewards that it looks ahead there, at most
_TRIED = 8  # first arms of the best plans, which it compares there
_LOOKED = 1 << 21  # multiplications that looking ahead may take at a belief


#: Payoffs (S, A, M), tables (S, D, M) and the number of each step's entry by steps to go.
StepArrays = tuple[Float[Array, "S A M"], Float[Array, "S D M"], Integer[Array, "T"]]
_STEP_NAMES = ("payoffs", "tables", "step_tables")  # of these arrays in files


class PlannedPolicy(BeliefPolicy):
    """Belief policy for a known horizon with a value for each arm at each step.

    `bins` is the number of bins per arm into which continuous rewards are cut to compute these values. `steps` holds
    the payoffs, the tables and their numbers by steps to go (see `Problem`) if they depend on the step.
    """

    horizon: int

    def __init__(
        self,
        bandit: LatentBandit,
        *,
        horizon: int,
        bins: int = BINS,
        type_prior: TypePrior | None = None,
        steps: StepArrays | None = None,
    ) -> None:
        super().__init__(bandit, horizon=check_count("horizon", horizon), type_prior=type_prior)
        self.bins = check_count("bins", bins, minimum=2)
        self._step_arrays = steps
        if steps is not None:
            self.order_free, self.depends_on_step = False, True

    @cached_property
    def _problem(self) -> Problem:
        problem = Problem.of(self.bandit, self.horizon, self.bins, repeats=self.repeats)
        return problem if self._step_arrays is None else problem.with_steps(*self._step_arrays)

    def _likelihood(self, step: int, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n M"]:
        if self._step_arrays is None or (self._problem.binned and self._problem.has_equal_tables):
            return super()._likelihood(step, arms, rewards)
        problem = self._problem
        return problem.spread(self._step_at(step).table[problem.codes(arms, rewards)])

    def _continuation(self, step: int, arms: Integer[Array, "n"]) -> Float[Array, "n M"]:
        if self._step_arrays is None:
            return super()._continuation(step, arms)
        return self._problem.spread(self._step_at(step).stays[arms])

    def _step_at(self, step: int) -> Step:
        """Return the payoffs and observations after so many steps; steps beyond the horizon are like the last one."""
        return self._problem.step(max(self.horizon - step, 1))

    def record(self) -> files.Record:
        base = super().record()
        steps = {} if self._step_arrays is None else dict(zip(_STEP_NAMES, self._step_arrays, strict=True))
        return files.Record(base.kind, {**base.fields, "bins": self.bins}, {**base.arrays, **steps}, base.records)

    @classmethod
    def _options_of(cls, record: files.Record) -> dict[str, Any]:
        """Return the keyword arguments of the constructor that every planned policy shares."""
        found: dict[str, Any] = {**record.fields, "type_prior": cls._prior_of(record)}
        if _STEP_NAMES[0] in record.arrays:
            found["steps"] = tuple(record.arrays[name] for name in _STEP_NAMES)
        return found

    @classmethod
    def from_record(cls, record: files.Record) -> Policy:
        return cls(LatentBandit.from_record(record.records["bandit"]), **cls._options_of(record))

    @abstractmethod
    def arm_values(self, state: State) -> Float[Array, "n A"]:
        """Return the expected reward until the horizon after each arm, times the sum of the belief's entries."""

    def tree(self, depth: int = 3) -> Tree:
        """Return the first `depth` steps of the session: arms, rewards and beliefs. Notebooks draw it."""
        return grow(self, self.bandit, min(check_count("depth", depth), self.horizon))

    def graph(self, *, max_nodes: int = 1_000_000) -> PolicyGraph:
        """Return the same decisions as a graph, for discrete rewards."""
        return extract(self, self.bandit, self.horizon, check_count("max_nodes", max_nodes))

    def _remaining(self, state: State) -> int:
        return self.horizon - state.step

    def _played(self, state: State) -> Bool[Array, "n A"] | None:
        """Return the arms that each session played; None if arms may be repeated."""

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        played = self._played(state)
        return best_allowed(self.arm_values(state), allowed if played is None else mask_unplayed(played, allowed))


class DepthPolicy(PlannedPolicy):
    """Policy with a lookahead of `depth` rewards at every step; `optimistic`: the type counts as known afterwards."""

    def __init__(self, bandit: LatentBandit, *, depth: int = 1, optimistic: bool = False, **options: Any) -> None:
        super().__init__(bandit, **options)
        self.depth, self.optimistic = check_count("depth", depth, minimum=0), bool(optimistic)

    def record(self) -> files.Record:
        base = super().record()
        fields = {**base.fields, "depth": self.depth} | ({"optimistic": True} if self.optimistic else {})
        return files.Record(base.kind, fields, base.arrays, base.records)


class NoRepeatPolicy(PlannedPolicy):
    """Planned policy that plays each arm at most once. The memory is the belief, then a 1 for every arm played."""

    repeats = False

    def _played(self, state: State) -> Bool[Array, "n A"]:
        return state.memory[:, self.bandit.n_types :] > 0

    def _initial_memory(self) -> Float[Array, "K"]:
        return np.concatenate([self.bandit.weights, np.zeros(self.bandit.n_arms)])

    def _remember(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        width = self.bandit.n_types
        known = State(state.step, state.memory[:, :width], state.single)
        return self._marked(np.hstack([super()._remember(known, arms, rewards), state.memory[:, width:]]), arms)

    def _pass(self, state: State, arms: Integer[Array, "n"]) -> Float[Array, "n K"]:
        return self._marked(super()._pass(state, arms).copy(), arms)

    def _learn(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        width = self.bandit.n_types
        belief_only = State(state.step, state.memory[:, :width], state.single)
        return np.hstack([super()._learn(belief_only, arms, rewards), state.memory[:, width:]])

    def _marked(self, memory: Float[Array, "n K"], arms: Integer[Array, "n"]) -> Float[Array, "n K"]:
        memory[np.arange(len(memory)), self.bandit.n_types + arms] = 1
        return memory


class TablePolicy(PlannedPolicy):
    """Table of values for every step.

    The memory of a session is its belief, then the codes of its observations (sorted unless steps differ), then a 1
    if the table does not cover the session, because it began at another prior. A step without a known reward has
    the code D + arm, with D the number of codes; D + A stands for an arm that the policy does not know. A lookahead
    decides in sessions that the table does not cover.
    """

    def __init__(self, bandit: LatentBandit, values: Float[Array, "states"], **options: Any) -> None:
        super().__init__(bandit, **options)
        sizes = self._prepare()
        if len(values) != sum(sizes):
            raise InvalidArgument(f"values must hold {sum(sizes)} states, got {len(values)}")
        if not np.isfinite(values).all():
            raise InvalidArgument(f"values must be finite, got {values[~np.isfinite(values)][0]}")
        self._values = values
        self._starts = np.cumsum([0, *sizes])

    _in_order = False  # the codes of a session keep their order

    def _put_belief(self, memory: Float[Array, "n K"], beliefs: Float[Array, "n M"]) -> None:
        super()._put_belief(memory, beliefs)
        memory[:, -1] = 1  # the table is for sessions that begin with the bandit's weights

    @abstractmethod
    def _prepare(self) -> list[int]:
        """Return the number of states of the table after 0, 1, ... steps."""

    def _seen(self, state: State) -> Integer[Array, "n t"]:
        """Return the codes of the observations of each session."""
        width = self.bandit.n_types
        return state.memory[:, width : width + state.step].astype(np.int64)

    def _covered(self, state: State) -> Bool[Array, "n"]:
        """Return whether the table covers the session."""
        return (self._seen(state) < self._problem.n_codes).all(axis=1) & (state.memory[:, -1] == 0)

    def _initial_memory(self) -> Float[Array, "K"]:
        return np.concatenate([self.bandit.weights, np.full(self.horizon, np.inf), [0.0]])

    def _remember(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        memory = self._updated(state, arms, rewards)
        return self._noted(state, memory, self._problem.codes(arms, rewards))

    def _pass(self, state: State, arms: Integer[Array, "n"]) -> Float[Array, "n K"]:
        memory, width = state.memory.copy(), self.bandit.n_types
        if self.bandit.leaving is not None:
            memory[:, :width] = belief.multiply(memory[:, :width], self._continuation(state.step, arms))
        return self._noted(state, memory, self._problem.n_codes + arms)

    def _skip(self, state: State) -> Float[Array, "n K"]:
        unknown = np.full(len(state.memory), self._problem.n_codes + self._problem.n_arms)
        return self._noted(state, state.memory.copy(), unknown)

    def _learn(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        memory, width = self._updated(state, arms, rewards), self.bandit.n_types
        if self.bandit.leaving is not None:  # that the session continued is known since the step itself
            stays = self._continuation(state.step, arms)
            memory[:, :width] /= np.where(stays > 0, stays, 1.0)
        notes, codes = memory[:, width:-1], self._problem.codes(arms, rewards)
        waits = notes == (self._problem.n_codes + arms)[:, None]
        if self._in_order:
            waits &= np.arange(notes.shape[1]) == state.step
        known = waits.any(axis=1)
        rows = np.flatnonzero(known)
        notes[rows, waits[rows].argmax(axis=1)] = codes[rows]
        if not self._in_order:
            notes.sort(axis=1)
        memory[~known, -1] = 1
        memory[~known, :width] = belief.rescale(memory[~known, :width])  # off the table the scale is free
        return memory

    def _updated(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        """Return the memory with the belief after `rewards`."""
        memory, width = state.memory.copy(), self.bandit.n_types
        # No rescaling: beliefs and the table's values are on one scale, the probability of the observations.
        table = self._step_at(state.step).table
        likelihood = self._problem.spread(table[self._problem.codes(arms, rewards)])
        memory[:, :width] = belief.multiply(memory[:, :width], likelihood)
        return memory

    def _noted(self, state: State, memory: Float[Array, "n K"], codes: Integer[Array, "n"]) -> Float[Array, "n K"]:
        """Return the memory with one more code."""
        if state.step < self.horizon:
            notes = memory[:, self.bandit.n_types : -1]
            notes[:, state.step] = codes
            if not self._in_order:
                notes.sort(axis=1)
        return memory

    def record(self) -> files.Record:
        base = super().record()
        return files.Record(base.kind, base.fields, {**base.arrays, "values": self._values}, base.records)

    @classmethod
    def from_record(cls, record: files.Record) -> Self:
        bandit = LatentBandit.from_record(record.records["bandit"])
        return cls(bandit, record.arrays["values"], **cls._options_of(record))


class VectorPolicy(PlannedPolicy):
    """Policy that plays the first arm of the plan with the highest value at the belief; it earns at least that value.

    `vectors[starts[t] : starts[t + 1]]` are the plans for t + 1 steps to go and `arms` their first arms. If that arm
    is not allowed, the policy plays the allowed arm with the highest mean plus value of the plans afterwards.

    At the first `looks` steps the policy looks two rewards ahead (one at the last of them, or if two would take long)
    and compares the values of the plans there: it earns at least as much, and more if a session begins at a prior
    that was not planned for. After these steps the belief depends less on the prior.
    """

    kind = "vectors"

    def __init__(
        self,
        bandit: LatentBandit,
        vectors: Float[Array, "K M"],
        arms: Integer[Array, "K"],
        starts: Integer[Array, "T"],
        *,
        looks: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(bandit, **options)
        self.looks = check_count("looks", looks, minimum=0)
        check_plans(bandit, vectors, arms, starts, self.horizon, least=1)
        self.vectors, self.arms, self.starts = vectors, arms, starts
        self._transposed = [np.ascontiguousarray(self._stage(left).T) for left in range(1, self.horizon + 1)]

    def _stage(self, remaining: int) -> Float[Array, "K M"]:
        return self.vectors[self.starts[remaining - 1] : self.starts[remaining]]

    def value_of_features(self) -> float | None:
        """Return how much features of persons add to the guaranteed value per session; None if there are no features.

        It is the mean over persons of the guaranteed value of each, less the guaranteed value at the mean prior.
        """
        prior = self.type_prior
        people = None if prior is None else prior.resolve_features()
        if prior is None or people is None:
            return None
        values = prior.weights(people.features) @ self._stage(self.horizon).T
        return float(people.shares @ values.max(axis=1) - (people.shares @ values).max())

    def arm_values(self, state: State) -> Float[Array, "n A"]:
        """Return the mean now plus the value of the best plans afterwards, for every arm."""
        problem, remaining = self._problem, self._remaining(state)
        beliefs = problem.beliefs(state.memory)
        if remaining == 1:
            return beliefs @ problem.step(1).means.T
        later = np.ascontiguousarray(self._stage(remaining - 1)[:, problem.types])
        step = problem.step(remaining)
        return kernel("planning").one_step_values(beliefs, step.table, step.means, later)

    def compact(self) -> Compact:
        """Return the same decisions for one session at a time, in a few microseconds each."""
        return Compact(self, VectorFastPath(self))

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        remaining, depth = self._remaining(state), self._depth(state.step)
        stage, first = self._transposed[remaining - 1], self.arms[self.starts[remaining - 1] :]
        block = max(1, _CHUNK // stage.shape[1])
        beliefs = state.memory
        if depth:
            chosen = self._look_ahead(beliefs, remaining, depth)
        else:
            best = [best_allowed(beliefs[i : i + block] @ stage) for i in range(0, len(beliefs), block)]
            chosen = first[np.concatenate(best)]
        if allowed is not None:
            chosen = self._replace_forbidden(state, chosen, allowed)
        return chosen

    def _look_ahead(self, beliefs: Float[Array, "n M"], remaining: int, depth: int) -> Integer[Array, "n"]:
        """Return the arm with the highest value of the plans after it, at each belief."""
        _, first, group = np.unique(beliefs, axis=0, return_index=True, return_inverse=True)
        distinct, scores = beliefs[first], max(self._scores(remaining, ahead) for ahead in range(depth + 1))
        block = max(1, _CHUNK // scores)
        found = [self._tried(distinct[i : i + block], remaining, depth) for i in range(0, len(distinct), block)]
        each = [arms[np.arange(len(arms)), best_allowed(values)] for arms, values in found]
        return np.asarray(np.concatenate(each)[group.ravel()])

    def _depth(self, step: int) -> int:
        """Return the number of rewards to look ahead: the same for all beliefs, so that sessions stay independent.

        It is at most one more than at the next step, which must achieve the value that this step expects of it.
        """
        if step >= self.looks:
            return 0
        remaining, most = self.horizon - step, min(_AHEAD, self._depth(step + 1) + 1)
        depths = [depth for depth in range(1, most + 1) if depth < remaining]
        short = [depth for depth in depths if self._scores(remaining, depth) * self.bandit.n_types <= _LOOKED]
        return max(short, default=0)

    def _scores(self, remaining: int, ahead: int) -> int:
        """Return the number of plan values that a belief needs after so many rewards."""
        return (_TRIED * self._problem.n_values) ** ahead * len(self._stage(remaining - ahead))

    @cached_property
    def _all_types(self) -> list[tuple[Float[Array, "D M"], Float[Array, "A M"]]]:
        """Return tables and payoffs of the steps over all types of the bandit."""
        if self._step_arrays is not None or self.bandit.step_effects is not None:
            problem = self._problem
            pairs = zip(problem.tables, problem.payoffs, strict=True)
            return [(problem.spread(table), problem.spread(means)) for table, means in pairs]
        table = np.ascontiguousarray(self.bandit.outcomes(self.bins)[0])
        return [(table, np.ascontiguousarray(self.bandit.means.T))]

    def _tried(
        self, beliefs: Float[Array, "n M"], remaining: int, depth: int
    ) -> tuple[Integer[Array, "n c"], Float[Array, "n c"]]:
        """Return the first arms of the best plans, in increasing order, and their values `depth` rewards ahead."""
        columns, arms, begins = self._by_arm[remaining - 1]
        worth = np.maximum.reduceat(beliefs @ columns, begins, axis=1)
        worth = (worth / np.maximum(np.abs(worth).max(axis=1, keepdims=True), SMALL)).round(12)  # ties are by number
        tried = arms[np.sort(np.argsort(-worth, axis=1, kind="stable")[:, :_TRIED], axis=1)]
        table, means = self._all_types[self._problem.step_tables[remaining]]
        n_values = self._problem.n_values
        codes = tried[..., None] * n_values + np.arange(n_values)
        after = (beliefs[:, None, None] * table[codes]).reshape(-1, beliefs.shape[1])
        if depth > 1:
            best = self._tried(after, remaining - 1, depth - 1)[1].max(axis=1)
        else:
            best = (after @ self._transposed[remaining - 2]).max(axis=1)
        return tried, np.einsum("nm,ncm->nc", beliefs, means[tried]) + best.reshape(codes.shape).sum(axis=2)

    @cached_property
    def _by_arm(self) -> list[tuple[Float[Array, "M K"], Integer[Array, "k"], Integer[Array, "k"]]]:
        """Return for 1, 2, ... steps to go the plans by first arm, these arms, and the position of each one's plans."""
        found = []
        for remaining in range(1, self.horizon + 1):
            first = self.arms[self.starts[remaining - 1] : self.starts[remaining]]
            order = np.argsort(first, kind="stable")
            arms, begins = np.unique(first[order], return_index=True)
            found.append((np.ascontiguousarray(self._transposed[remaining - 1][:, order]), arms, begins))
        return found

    def _replace_forbidden(
        self, state: State, chosen: Integer[Array, "n"], allowed: Bool[Array, "n A"]
    ) -> Integer[Array, "n"]:
        rows = np.flatnonzero(~allowed[np.arange(len(chosen)), chosen])
        if len(rows):
            chosen = chosen.copy()
            some = State(state.step, state.memory[rows], single=False)
            chosen[rows] = best_allowed(self.arm_values(some), allowed[rows])
        return chosen

    def record(self) -> files.Record:
        base = super().record()
        arrays = {**base.arrays, "vectors": self.vectors, "arms": self.arms, "starts": self.starts}
        fields = {**base.fields, **({"looks": self.looks} if self.looks else {})}
        return files.Record(base.kind, fields, arrays, base.records)

    @classmethod
    def from_record(cls, record: files.Record) -> VectorPolicy:
        arrays = (record.arrays[name] for name in ("vectors", "arms", "starts"))
        bandit = LatentBandit.from_record(record.records["bandit"])
        return cls(bandit, *arrays, **cls._options_of(record))


class VectorFastPath:
    """Decisions of a `VectorPolicy` for one session, without arrays of sessions and masks.

    Rare cases are left to the policy: a new reward, a belief near the end of the numeric range, and steps with a
    lookahead; the compact form remembers these decisions.
    """

    def __init__(self, policy: VectorPolicy) -> None:
        self._policy, self._horizon, self._looks = policy, policy.horizon, policy.looks
        self._arms, self._starts = policy.arms.tolist(), policy.starts.tolist()
        self._vectors = np.ascontiguousarray(policy.vectors)
        self._scores = np.empty(int(np.diff(policy.starts).max()))
        self._rows: dict[tuple[int, int, float], Float[Array, "M"]] = {}  # likelihoods that were used, by table
        module = kernel("planning")
        self._updated, self._best_plan = module.updated, module.best_plan

    def arm(self, state: CompactState) -> int | None:
        if state.step < self._looks:
            return None
        left, starts = self._horizon - state.step, self._starts
        return self._arms[self._best_plan(state.memory, self._vectors, starts[left - 1], starts[left], self._scores)]

    def after(self, state: CompactState, arm: int, reward: float) -> CompactState | None:
        policy = self._policy
        table = 0 if policy.order_free else int(policy._problem.step_tables[max(self._horizon - state.step, 1)])
        row = self._rows.get((table, arm, reward))
        if row is not None:
            belief, top = self._updated(state.memory, row)
            return CompactState(state.step + 1, belief) if top >= SMALL else None
        bandit = policy.bandit
        if bandit.rewards.discrete and len(self._rows) < MANY and type(arm) is int and 0 <= arm < bandit.n_arms:
            self._rows[table, arm, reward] = policy._likelihood(state.step, np.array([arm]), np.array([reward]))[0]
        return None


def check_plans(
    bandit: LatentBandit,
    vectors: Float[Array, "K M"],
    arms: Integer[Array, "K"],
    starts: Integer[Array, "T"],
    horizon: int,
    *,
    least: int,
) -> None:
    """Raise `InvalidArgument` if the arrays are not plans for 1, 2, ..., H steps, at least `least` for each."""
    ends = len(starts) == horizon + 1 and starts[0] == 0 and starts[-1] == len(vectors)
    if not ends or (np.diff(starts) < least).any():
        raise InvalidArgument(f"starts must rise from 0 to {len(vectors)} in {horizon} steps, got {starts.tolist()}")
    if vectors.shape != (len(arms), bandit.n_types):
        raise InvalidArgument(f"vectors must be ({len(arms)}, {bandit.n_types}), got {vectors.shape}")
    if len(arms) and (arms.min() < 0 or arms.max() >= bandit.n_arms):
        raise InvalidArgument(f"arms must be in 0..{bandit.n_arms - 1}, got {int(arms.min())}..{int(arms.max())}")


def vector_policy(problem: Problem, sets: list[tuple[Float[Array, "K M"], Integer[Array, "K"]]]) -> VectorPolicy:
    """Return the policy of `sets`: vectors over the problem's types and their arms, for 1, 2, ..., H steps to go."""
    distinct = [_distinct(vectors, arms) for vectors, arms in sets]
    starts = np.cumsum([0, *(len(arms) for _, arms in distinct)])
    vectors = problem.spread(np.concatenate([vectors for vectors, _ in distinct]))
    arms = np.concatenate([arms for _, arms in distinct]).astype(np.int64)
    looks = 0 if problem.priors is None else LOOKS
    return VectorPolicy(problem.bandit, vectors, arms, starts, **problem.of_policy, looks=looks)


def _distinct(
    vectors: Float[Array, "K M"], arms: Integer[Array, "K"]
) -> tuple[Float[Array, "J M"], Integer[Array, "J"]]:
    """Return each vector once, in the order they were found."""
    _, first = np.unique(vectors, axis=0, return_index=True)
    first.sort()
    return vectors[first], arms[first]


def policy_lower_bound(policy: PlannedPolicy, problem: Problem) -> float:
    """Return a lower bound on the value of a policy.

    Histories are enumerated step by step while there are at most 20,000 of one length; after the last enumerated step
    the bound assumes the worst arms for a known type. With several priors, or if steps differ, only the latter is used.
    """
    if problem.priors is not None or not problem.is_stationary:
        return float(problem.weights @ problem.known.worst[-1])
    total, seen, stays = 0.0, 0.0, problem.bandit.stays.T
    worst = known_type_values(problem.bandit.means.T, stays, problem.horizon).worst
    try:
        for level in enumerate_histories(
            policy, problem.bandit, problem.horizon, limit=_WALKED, remedy="none is needed"
        ):
            total = seen + float(np.einsum("nm,nm->", level.mass, problem.bandit.means.T[level.arms]))
            seen = total
            left = problem.horizon - level.state.step - 1
            total += float(np.einsum("nm,nm->", level.mass, stays[level.arms] * worst[left]))
    except TooLarge:
        pass
    return total
