"""Base class of policies, which choose the next arm for one session or for n at once.

A policy is immutable. A `State` holds the memory of a session, and `observe` returns the next state.
"""

from __future__ import annotations

import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from .. import _registry, files
from .._html import card
from .._shapes import Array, Bool, Float, Integer, Shaped
from ..checks import Rng, check_count, check_rng, whole_array
from ..data.features import require_mapping
from ..errors import InvalidArgument, InvalidFile
from ..model.bandit import LatentBandit, arm_label
from ..model.type_prior import TypePrior

_ROUNDING = 1e-12
MANY = 1 << 16  # maximum number of cached decisions, states or likelihoods
#: (arm, reward) of the past steps: the arm by its number or its label; a reward of None is unknown
History = Iterable[tuple[int | str, float | None]]


def best_allowed(scores: Float[Array, "n A"], allowed: Bool[Array, "n A"] | None = None) -> Integer[Array, "n"]:
    """Return the allowed arm with the highest score; among equals the one with the lowest number.

    Scores within rounding of each other count as equal, so that a decision does not depend on the order of a sum.

    Examples:
        >>> import numpy as np
        >>> from lmab.policies import best_allowed
        >>> best_allowed(np.array([[0.2, 0.9, 0.9]]))
        array([1])
        >>> best_allowed(np.array([[0.2, 0.9, 0.9]]), np.array([[True, False, True]]))
        array([2])
    """
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
    top = scores.max(axis=1, keepdims=True)
    best = scores >= top - _ROUNDING * np.abs(top)
    return (best if allowed is None else best & allowed).argmax(axis=1)


def mask_unplayed(played: Bool[Array, "n A"], allowed: Bool[Array, "n A"] | None) -> Bool[Array, "n A"]:
    """Return the mask of allowed arms that the session has not played.

    If all allowed arms have been played, return `allowed` for that session.
    """
    if allowed is None:
        return ~played
    fresh = ~played & allowed
    return np.where(fresh.any(axis=1, keepdims=True), fresh, allowed)


@dataclass(frozen=True, eq=False)
class State:
    """State of one session, or of n sessions at the same step: the number of steps, and the policy's memory.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.3, 0.7]])
        >>> policy = lmab.Greedy(bandit)
        >>> state = policy.observe(policy.start(), 0, 1.0)
        >>> state.step, lmab.model.belief.normalise(state.memory)
        (1, array([[0.75, 0.25]]))
    """

    step: int
    memory: Float[Array, "n K"]  # for most policies the unnormalised belief over types
    single: bool  # one session: arms are ints, not arrays


def state_to_json(state: State, kind: str) -> str:
    """Return the state as JSON; `kind` names the policy that it belongs to. Numbers keep all their bits."""
    rows = [[x if math.isfinite(x) else repr(x) for x in row] for row in state.memory.tolist()]
    return json.dumps({"kind": kind, "step": int(state.step), "single": bool(state.single), "memory": rows})


def state_from_json(text: str, kind: str, width: int) -> State:
    """Return the state that `state_to_json` wrote, for a policy of that kind with a memory of `width` numbers."""
    try:
        stored = json.loads(text)
        step, single, rows = stored["step"], stored["single"], stored["memory"]
        memory = np.array([[float(x) for x in row] for row in rows], np.float64).reshape(len(rows), -1)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise InvalidArgument(f"text must be a state that to_json wrote, got {_short(text)} ({error})") from None
    if stored.get("kind") != kind:
        raise InvalidArgument(f"text must be a state of a {kind!r} policy, got one of {stored.get('kind')!r}")
    if memory.shape[1] != width:
        raise InvalidArgument(f"text must hold {width} numbers a session for this policy, got {memory.shape[1]}")
    whole = type(step) is int and step >= 0 and type(single) is bool
    if not whole or len(memory) < 1 or (single and len(memory) != 1):
        raise InvalidArgument(f"text must be a state that to_json wrote, got {_short(text)}")
    return State(step, memory, single)


def _short(text: Any) -> str:
    shown = repr(text)
    return shown if len(shown) <= 60 else shown[:57] + "..."


class CompactState(NamedTuple):
    """State of one session in a compact policy."""

    step: int
    memory: Float[Array, "K"]  # the row of the policy's state

    @property
    def belief(self) -> Float[Array, "K"]:
        """Return the memory, which for plans with alpha-vectors is the unnormalised belief."""
        return self.memory


class FastPath(Protocol):
    """Fast path to the decisions of one policy, for one session.

    A method returns None if it does not cover the state; the caller then uses the policy.
    """

    def arm(self, state: CompactState) -> int | None: ...
    def after(self, state: CompactState, arm: int, reward: float) -> CompactState | None: ...


class Compact:
    """Deterministic policy for one session at a time, with a cache of decisions and successor states.

    `policy.compact()` makes one. It caches the arm of every state and the state that follows every reward, up to 65,536
    of each, because most sessions repeat earlier ones: with two rewards and seven steps, a policy that is followed
    leads to 127 states. States outside the cache are left to the fast path if the policy has one, else to the policy.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> compact = lmab.plan(bandit, horizon=5).policy.compact()
        >>> state = compact.start()
        >>> arm = compact.act(state)
        >>> state = compact.observe(state, arm, 0.0)
        >>> arm, compact.act(state), compact.act(state, allowed=[True, False])
        (0, 1, 0)
    """

    def __init__(self, policy: Policy, fast_path: FastPath | None = None) -> None:
        if not policy.deterministic:
            raise InvalidArgument(f"policy must be deterministic to be compact, got {policy!r}, which plays at random")
        self.policy = policy
        self.horizon = policy.horizon
        self.n_arms = policy.n_arms
        self._fast_path = fast_path
        self._start = self._as_compact(policy.start())
        self._arms: dict[tuple[int, bytes, bytes], int] = {}
        self._after: dict[tuple[int, bytes, int, float | None], CompactState] = {}

    def start(
        self,
        *,
        features: Mapping[str, Any] | None = None,
        sessions: Iterable[History] | None = None,
        history: History | None = None,
    ) -> CompactState:
        """Return the state before the first step; features and earlier sessions are given as to `Policy.start`."""
        if features is None and sessions is None and history is None:
            return self._start
        return self._as_compact(self.policy.start(features=features, sessions=sessions, history=history))

    def act(self, state: CompactState, allowed: Any = None) -> int:
        """Return the arm to play now; `allowed` (A,) masks arms that cannot be played."""
        mask = b"" if allowed is None else np.asarray(allowed, bool).tobytes()
        key = state.step, state.memory.tobytes(), mask
        arm = self._arms.get(key)
        if arm is None:
            arm = self._decide(state, allowed)
            if len(self._arms) >= MANY:
                self._arms.clear()
            self._arms[key] = arm
        return arm

    def observe(self, state: CompactState, arm: int, reward: float | None) -> CompactState:
        """Return the state after `arm` paid `reward`; None means that the reward is unknown so far."""
        key = state.step, state.memory.tobytes(), arm, reward
        after = self._after.get(key)
        if after is None:
            after = self._follow(state, arm, reward)
            if len(self._after) >= MANY:
                self._after.clear()
            self._after[key] = after
        return after

    def tell(self, state: CompactState, arm: int, reward: float, *, step: int | None = None) -> CompactState:
        """Return the state after a late reward of `arm`, which was played at `step`."""
        return self._as_compact(self.policy.tell(self._as_state(state), arm, reward, step=step))

    def skip(self, state: CompactState) -> CompactState:
        """Return the state after a step that played an arm unknown to the policy."""
        return self._as_compact(self.policy.skip(self._as_state(state)))

    def belief(self, state: CompactState) -> Float[Array, "M"]:
        """Return the probability of each type."""
        return self.policy.belief(self._as_state(state))

    def to_json(self, state: CompactState) -> str:
        """Return the state as JSON, in the format of `Policy.to_json`."""
        return self.policy.to_json(self._as_state(state))

    def from_json(self, text: str) -> CompactState:
        """Return the state that `to_json` wrote."""
        return self._as_compact(self.policy.from_json(text))

    def _decide(self, state: CompactState, allowed: Any) -> int:
        if self._fast_path is not None and (self.horizon is None or state.step < self.horizon):
            arm = self._fast_path.arm(state)
            if arm is not None and (allowed is None or (len(allowed) == self.n_arms and allowed[arm])):
                return arm
        return int(self.policy.act(self._as_state(state), allowed=allowed))

    def _follow(self, state: CompactState, arm: int, reward: float | None) -> CompactState:
        if self._fast_path is not None and reward is not None:
            after = self._fast_path.after(state, arm, reward)
            if after is not None:
                return after
        return self._as_compact(self.policy.observe(self._as_state(state), arm, reward))

    def _as_state(self, state: CompactState) -> State:
        return State(state.step, state.memory[None], single=True)

    def _as_compact(self, state: State) -> CompactState:
        return CompactState(state.step, state.memory[0])


class Policy(ABC):
    """Policy for sessions: `start`, then `act` and `observe` in turn.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> policy = lmab.Greedy(bandit)
        >>> state = policy.start()
        >>> arm = policy.act(state)
        >>> policy.act(policy.observe(state, arm, 0.0))
        1
        >>> policy.act_on([(0, 0.0)])
        1
    """

    kind: ClassVar[str]  # the name of the class in files
    deterministic: ClassVar[bool] = True  # needs no rng
    adaptive: bool = True  # uses rewards
    order_free: bool = True  # the memory only depends on the multiset of observations
    repeats: bool = True  # may play an arm twice in a session
    depends_on_step: bool = False  # the likelihood of a reward depends on its step, so late rewards need their step
    horizon: int | None = None
    n_arms: int | None = None  # None means that any arm number is valid

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Register the class under its kind, so that `restore_policy` can construct it."""
        super().__init_subclass__(**arguments)
        kind = vars(cls).get("kind")
        if kind is None:
            return
        registered = _registry.registered(kind) or cls
        same_name = (registered.__module__, registered.__qualname__) == (cls.__module__, cls.__qualname__)
        if not same_name:  # a class that is defined again replaces the earlier one
            raise InvalidArgument(f"kind must be a new name, got {kind!r}, which is the kind of {registered.__name__}")
        _registry.register(kind, cls)

    def start(
        self,
        n: int | None = None,
        *,
        features: Mapping[str, Any] | None = None,
        sessions: Iterable[History] | None = None,
        history: History | None = None,
    ) -> State:
        """Return the state of one session, or of n sessions, before the first step.

        Features and earlier sessions inform the belief but count no step. Arms of earlier sessions may be played again,
        and a reward of None is ignored.

        Args:
            n: number of sessions; None means one session, with ints as arms.
            features: values by column of the policy's type prior, one for a session or n; None: the average person.
            sessions: earlier sessions of the person, the first one first, each a list of (arm, reward). Between two
                sessions the type is kept with probability `keep` of the type prior (.9 if that is not estimated).
            history: one earlier session. A policy without a type prior assumes that the type is kept.
        """
        size = 1 if n is None else check_count("n", n)
        if sessions is not None and history is not None:
            raise InvalidArgument("history must be None where sessions are given: it is one earlier session")
        if features is not None:
            require_mapping(features)
        state = State(0, self._first_memory(size, features), n is None)
        for session in _earlier(sessions, history):
            for step, (arm, reward) in enumerate(session):
                if reward is not None:
                    state = self.tell(state, _of_each("arm", arm, size), _of_each("reward", reward, size), step=step)
            if sessions is not None or self.type_prior is not None:
                state = State(0, self._next_memory(state, features), state.single)
        return state

    def act(self, state: State, *, allowed: Any = None, rng: Rng | None = None) -> int | Integer[Array, "n"]:
        """Return the arm to play now; `allowed` (A,) or (n, A) masks arms that cannot be played."""
        _check_state(state)
        if self.horizon is not None and state.step >= self.horizon:
            raise InvalidArgument(f"state must be before the horizon of {self.horizon} steps, got step {state.step}")
        if not self.deterministic:
            rng = check_rng(rng, f"{type(self).__name__} plays at random")
        mask = None if allowed is None else self._mask(allowed, len(state.memory))
        arms = self._choose(state, mask, rng)  # type: ignore[arg-type]  # a policy that draws gets a generator
        return int(arms[0]) if state.single else arms

    def observe(self, state: State, arm: Any, reward: Any) -> State:
        """Return the state after `arm` paid `reward`; if the reward is None (unknown so far), the belief is unchanged.

        An integer is the number of the arm, text is its label.
        """
        _check_state(state)
        arms = self._checked_arms(state, arm)
        if reward is None:
            return State(state.step + 1, self._pass(state, arms), state.single)
        return State(state.step + 1, self._remember(state, arms, _rewards(arms, reward)), state.single)

    def tell(self, state: State, arm: Any, reward: Any, *, step: int | None = None) -> State:
        """Return the state after a late reward: `arm` was observed with the reward None and paid `reward`.

        The step does not count again. Beliefs do not depend on the order in which rewards arrive. `step` is the number
        of the step (from 0) at which the arm was played; it is needed only if rewards depend on the step.
        """
        arms = self._checked_arms(state, arm)
        if step is None and self.depends_on_step:
            raise InvalidArgument(
                "step must be the number of the step that was rewarded, because steps differ, got None"
            )
        told = state if step is None else State(check_count("step", step, minimum=0), state.memory, state.single)
        return State(state.step, self._learn(told, arms, _rewards(arms, reward)), state.single)

    def skip(self, state: State) -> State:
        """Return the state after a step that played an arm unknown to the policy, such as one added after the fit."""
        return State(state.step + 1, self._skip(state), state.single)

    def belief(self, state: State) -> Float[Array, "*n M"]:
        """Return the probability of each type, (M,) for one session, (n, M) for n."""
        beliefs = self._belief(state)
        return beliefs[0] if state.single else beliefs

    def probabilities(self, state: State, *, allowed: Any = None) -> Float[Array, "*n A"]:
        """Return the probability of playing each arm, (A,) for one session, (n, A) for n; 0 for arms not allowed."""
        mask = None if allowed is None else self._mask(allowed, len(state.memory))
        n_arms = self.n_arms if mask is None else mask.shape[1]
        if n_arms is None:
            raise InvalidArgument(f"allowed must be given, because {self!r} does not know how many arms there are")
        chances = self._chances(state, mask, n_arms)
        return chances[0] if state.single else chances

    def top(self, state: State, k: int, *, allowed: Any = None, rng: Rng | None = None) -> Any:
        """Return the k best arms, the best first: (k,) for one session, (n, k) for n.

        The second is the arm that the policy plays if the first is not allowed, and so on.

        Examples:
            >>> import lmab
            >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5, 0.3], [0.1, 0.6, 0.3]])
            >>> policy = lmab.Greedy(bandit)
            >>> policy.top(policy.start(), 2)
            array([1, 0])
        """
        _check_state(state)
        size = self.n_arms if allowed is None else np.shape(allowed)[-1]
        if size is None:
            raise InvalidArgument(f"allowed must be given, because {self!r} does not know how many arms there are")
        mask = self._mask(np.ones(size, bool) if allowed is None else allowed, len(state.memory)).copy()
        fewest = int(mask.sum(axis=1).min())
        if check_count("k", k) > fewest:
            raise InvalidArgument(f"k must be at most the {fewest} arms that are allowed, got {k}")
        best = np.empty((len(mask), k), np.int64)
        for place in range(k):
            best[:, place] = self.act(state, allowed=mask, rng=rng)
            mask[np.arange(len(mask)), best[:, place]] = False
        return best[0] if state.single else best

    def compact(self) -> Compact:
        """Return a cached version of the policy for one session at a time, with the same decisions."""
        return Compact(self)

    def to_json(self, state: State) -> str:
        """Return the state as JSON; `from_json` restores it exactly."""
        return state_to_json(state, self.kind)

    def from_json(self, text: str) -> State:
        """Return the state that `to_json` of the same policy wrote."""
        return state_from_json(text, self.kind, len(self._initial_memory()))

    def act_on(self, history: History, *, allowed: Any = None, rng: Rng | None = None) -> int:
        """Return the arm to play after `history`, a list of (arm, reward); a reward of None is unknown."""
        state = self.start()
        for arm, reward in _pairs(history):
            state = self.observe(state, arm, reward)
        return int(self.act(state, allowed=allowed, rng=rng))

    def distribution(self, state: State, *, n_arms: int) -> Float[Array, "n A"]:
        """Return the probability of playing each of `n_arms` arms, one row per session."""
        if not self.deterministic and type(self)._chances is Policy._chances:
            raise InvalidArgument(
                f"policy must define distribution if it plays at random, got {type(self).__name__}, which does not"
            )
        return self._chances(state, None, n_arms)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy to `path`; `lmab.load` gives a policy that makes the same decisions."""
        files.write(path, self.record())

    def __repr__(self) -> str:
        arms = "any arms" if self.n_arms is None else f"{self.n_arms} arms"
        steps = "any horizon" if self.horizon is None else f"{self.horizon} steps"
        return f"{type(self).__name__}({arms}, {steps})"

    def _repr_html_(self) -> str:
        rows = {
            "arms": "any" if self.n_arms is None else str(self.n_arms),
            "steps": "any number" if self.horizon is None else str(self.horizon),
            "an arm twice in a session": "may be" if self.repeats else "never",
            "chooses": "always the same after the same session" if self.deterministic else "at random",
        }
        if self.deterministic:
            rows["first arm"] = arm_label(self.act_on([]), self.arm_labels)
        return card(f"Policy: {type(self).__name__}", rows)

    @abstractmethod
    def record(self) -> files.Record:
        """Return the record from which `from_record` constructs this policy."""

    @classmethod
    @abstractmethod
    def from_record(cls, record: files.Record) -> Policy:
        """Construct the policy that `record` describes."""

    @property
    def arm_labels(self) -> tuple[str | int, ...] | None:
        """Return the labels of the arms in the log from which the policy was learned."""
        return None

    def label(self, arm: Any) -> str | int:
        """Return the label of an arm in the log, or its number if arms have no labels.

        Examples:
            >>> import lmab
            >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
            >>> policy = lmab.Greedy(lmab.LatentBandit(bandit.weights, bandit.rewards, ("tea", "milk")))
            >>> policy.label(policy.act_on([("tea", 0.0)]))
            'milk'
        """
        number = int(arm)
        if number < 0 or (self.n_arms is not None and number >= self.n_arms):
            raise InvalidArgument(f"arm must be an integer in 0..{(self.n_arms or 0) - 1}, got {arm!r}")
        return number if self.arm_labels is None else self.arm_labels[number]

    def arm_of(self, label: str | int) -> int:
        """Return the number of the arm with this label in the log.

        Examples:
            >>> import lmab
            >>> bandit = lmab.LatentBandit.bernoulli([1.0], [[0.9, 0.1]])
            >>> lmab.Greedy(lmab.LatentBandit(bandit.weights, bandit.rewards, ("tea", "milk"))).arm_of("milk")
            1
        """
        labels = self.arm_labels
        if labels is None or label not in labels:
            examples = "none, because the arms of this policy have numbers only" if labels is None else _some(labels)
            raise InvalidArgument(f"arm must be a label of the policy ({examples}), got {label!r}")
        return labels.index(label)

    @property
    def type_prior(self) -> TypePrior | None:
        """Return the prior over types given features and earlier sessions; None if it is the same for everybody."""
        return None

    def _initial_memory(self) -> Float[Array, "K"]:
        """Return the memory of a session before its first step; by default it is empty."""
        return np.empty(0)

    def _first_memory(self, n: int, features: Mapping[str, Any] | None) -> Float[Array, "n K"]:
        """Return the memory of n sessions with these features before their first step."""
        return np.tile(self._initial_memory(), (n, 1))

    def _next_memory(self, state: State, features: Mapping[str, Any] | None) -> Float[Array, "n K"]:
        """Return the memory before the first step of a person's next session, after the sessions of `state`."""
        return state.memory

    def _remember(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        """Return the memory of n sessions after one more step, as a new array, because the old state stays valid."""
        return state.memory

    def _pass(self, state: State, arms: Integer[Array, "n"]) -> Float[Array, "n K"]:
        """Return the memory after a step with an unknown reward."""
        return state.memory

    def _skip(self, state: State) -> Float[Array, "n K"]:
        """Return the memory after a step that played an unknown arm."""
        return state.memory

    def _learn(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        """Return the memory after a late reward, which counts no step."""
        return self._remember(state, arms, rewards)

    def _belief(self, state: State) -> Float[Array, "n M"]:
        raise InvalidArgument(f"policy must be a BeliefPolicy to have a belief over types, got a {type(self).__name__}")

    def _chances(self, state: State, allowed: Bool[Array, "n A"] | None, n_arms: int) -> Float[Array, "n A"]:
        """Return the probability of each arm, one row per session."""
        if not self.deterministic:
            if allowed is None:
                return self.distribution(state, n_arms=n_arms)
            raise InvalidArgument(f"allowed must be None for the probabilities of {type(self).__name__}, got a mask")
        chosen = np.atleast_1d(np.asarray(self.act(state, allowed=allowed)))
        if chosen.max() >= n_arms:
            raise InvalidArgument(f"n_arms must be above the arm played, {int(chosen.max())}, got {n_arms}")
        chances = np.zeros((len(chosen), n_arms))
        chances[np.arange(len(chosen)), chosen] = 1.0
        return chances

    def _checked_arms(self, state: State, arm: Any) -> Integer[Array, "n"]:
        """Return the arms of n sessions as checked numbers; text is taken as labels."""
        if state.single and type(arm) is int and self.n_arms is not None and 0 <= arm < self.n_arms:
            return np.array([arm])
        arms = whole_array(np.atleast_1d(np.asarray(arm)))
        if arms.dtype.kind == "U":
            arms = np.array([self.arm_of(text) for text in arms.tolist()])
        if arms.shape != (len(state.memory),):
            raise InvalidArgument(f"arm and reward must hold {len(state.memory)} entries, got arms of {arms.shape}")
        if not np.issubdtype(arms.dtype, np.integer) or arms.min() < 0 or (self.n_arms and arms.max() >= self.n_arms):
            raise InvalidArgument(f"arm must be an integer in 0..{(self.n_arms or 0) - 1}, got {arm!r}")
        return arms

    @abstractmethod
    def _choose(
        self, state: State, allowed: Bool[Array, "n A"] | None, rng: np.random.Generator | None
    ) -> Integer[Array, "n"]:
        """Return one arm per session; `rng` is a generator unless the policy is deterministic."""

    def _mask(self, allowed: Any, n: int) -> Bool[Array, "n A"]:
        mask = np.asarray(allowed, dtype=bool)
        size = self.n_arms or (mask.shape[-1] if mask.ndim else 0)
        if mask.shape not in ((size,), (n, size)):
            raise InvalidArgument(f"allowed must have shape ({size},) or ({n}, {size}), got {mask.shape}")
        mask = np.broadcast_to(mask, (n, size))
        stuck = ~mask.any(axis=1)
        if stuck.any():
            raise InvalidArgument(f"allowed must leave an arm to play, got none in row {int(stuck.argmax())}")
        return mask


def _check_state(state: Any) -> None:
    if not isinstance(state, State):
        raise InvalidArgument(
            f"state must be what policy.start() or policy.observe() returned, got a {type(state).__name__}; "
            "policy.act_on takes a list of (arm, reward)"
        )


def _pairs(history: Any, name: str = "history", form: str = "a list") -> list[tuple[Any, Any]]:
    """Return the steps of a session, each an (arm, reward)."""
    try:
        return [(arm, reward) for arm, reward in history]
    except (TypeError, ValueError):
        raise InvalidArgument(f"{name} must be {form} of (arm, reward), got {_short(history)}") from None


def _earlier(sessions: Any, history: Any) -> list[list[tuple[Any, Any]]]:
    """Return the earlier sessions of a person."""
    if sessions is None:
        return [] if history is None else [_pairs(history)]
    if not isinstance(sessions, Iterable):
        raise InvalidArgument(f"sessions must be a list of sessions, got {_short(sessions)}")
    return [_pairs(session, "sessions", "a list of sessions, each a list") for session in sessions]


def _of_each(name: str, value: Any, n: int) -> Shaped[Array, "n"]:
    """Return n values from one value of all sessions, or from a value for each of them."""
    try:
        return np.full(n, value)
    except ValueError:
        raise InvalidArgument(f"{name} must be one value or {n} of them, got {_short(value)}") from None


def _some(labels: tuple[str | int, ...]) -> str:
    return ", ".join(map(repr, labels[:5])) + (", ..." if len(labels) > 5 else "")


def _rewards(arms: Integer[Array, "n"], reward: Any) -> Float[Array, "n"]:
    """Return the rewards of n sessions, one for each arm."""
    try:
        rewards = np.atleast_1d(np.asarray(reward, np.float64))
    except (TypeError, ValueError):
        raise InvalidArgument(f"reward must be a number, or None if it is unknown, got {_short(reward)}") from None
    if rewards.shape != arms.shape:
        raise InvalidArgument(
            f"arm and reward must hold {len(arms)} entries, got shapes {arms.shape} and {rewards.shape}"
        )
    return rewards


def underlying_bandit(policy: Policy) -> LatentBandit | None:
    """Return the bandit of a policy, or of the policy that it wraps; None if there is none.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.3, 0.7]])
        >>> underlying_bandit(lmab.policies.Exploring(lmab.Greedy(bandit), 0.1)) is bandit
        True
    """
    inner = getattr(policy, "policy", None) or getattr(policy, "source", None)
    return getattr(policy, "bandit", None) if inner is None else underlying_bandit(inner)


def restore_policy(record: files.Record) -> Policy:
    """Return the policy that `record` describes; its class is one of the package or of the user."""
    policy_class = _registry.class_of(record.kind)
    if not (isinstance(policy_class, type) and issubclass(policy_class, Policy)):
        raise InvalidFile(
            f"holds a {record.kind!r}, which this lmab does not know: import the module of its class first, if it is a "
            "policy of your own"
        )
    return policy_class.from_record(record)


def check_horizon(horizon: int | None) -> int | None:
    """Return None, or a horizon of at least one step."""
    return None if horizon is None else check_count("horizon", horizon)
