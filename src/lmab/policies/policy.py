"""Policies: what to play next given the session so far, for one session or for n at once.

A policy never changes; what a session has seen is a `State`, a value that `observe` turns into the next one.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .. import files
from .._shapes import Array, Bool, Float, Integer
from ..checks import Rng, check_count, check_rng
from ..errors import InvalidArgument, InvalidFile
from ..model import LatentBandit, belief

_ROUNDING = 1e-12
_KINDS: dict[str, type[Policy]] = {}  # every policy class that was imported, by kind


@dataclass(frozen=True, eq=False)
class State:
    """Where a session, or n sessions in step, stands: how many steps were seen, and what the policy remembers.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.3, 0.7]])
        >>> policy = lmab.Greedy(bandit)
        >>> state = policy.observe(policy.start(), 0, 1.0)
        >>> state.step, lmab.belief.normalise(state.memory)
        (1, array([[0.75, 0.25]]))
    """

    step: int
    memory: Float[Array, "n K"]  # for most policies the unnormalised belief over contexts
    single: bool  # one session: arms are ints, not arrays


class Policy(ABC):
    """A session policy: `start`, then `act` and `observe` in turn.

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

    kind: ClassVar[str]  # the name under which files know it
    deterministic: ClassVar[bool] = True  # needs no rng
    adaptive: ClassVar[bool] = True  # looks at rewards
    order_free: ClassVar[bool] = True  # the order of what was seen does not matter
    repeats: bool = True  # may play an arm twice in a session
    horizon: int | None = None
    n_arms: int | None = None  # None: any arm number is fine

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Note under which kind files know the class; only `restore_policy` reads that."""
        super().__init_subclass__(**arguments)
        kind = vars(cls).get("kind")
        if kind is None:
            return
        known = _KINDS.get(kind, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):  # else a class made anew
            raise InvalidArgument(f"kind must be a name of its own, got {kind!r}, which is that of {known.__name__}")
        _KINDS[kind] = cls

    def start(self, n: int | None = None) -> State:
        """The state before the first step: of one session, or of n."""
        size = 1 if n is None else check_count("n", n)
        return State(0, np.tile(self._initial_memory(), (size, 1)), n is None)

    def act(self, state: State, *, allowed: Any = None, rng: Rng | None = None) -> int | Integer[Array, "n"]:
        """The arm to play now; `allowed` (A,) or (n, A) masks arms that cannot be played."""
        if self.horizon is not None and state.step >= self.horizon:
            raise InvalidArgument(f"state must be before the horizon of {self.horizon} steps, got step {state.step}")
        if not self.deterministic:
            rng = check_rng(rng, f"{type(self).__name__} plays at random")
        mask = None if allowed is None else self._mask(allowed, len(state.memory))
        arms = self._choose(state, mask, rng)  # type: ignore[arg-type]  # a policy that draws gets a generator
        return int(arms[0]) if state.single else arms

    def observe(self, state: State, arm: Any, reward: Any) -> State:
        """The state after `arm` paid `reward`."""
        arms, rewards = np.atleast_1d(np.asarray(arm)), np.atleast_1d(np.asarray(reward, np.float64))
        if arms.shape != rewards.shape or arms.shape != (len(state.memory),):
            raise InvalidArgument(
                f"arm and reward must hold {len(state.memory)} entries, got shapes {arms.shape} and {rewards.shape}"
            )
        if not np.issubdtype(arms.dtype, np.integer) or arms.min() < 0 or (self.n_arms and arms.max() >= self.n_arms):
            raise InvalidArgument(f"arm must be an integer in 0..{(self.n_arms or 0) - 1}, got {arm!r}")
        return State(state.step + 1, self._remember(state, arms, rewards), state.single)

    def act_on(self, history: Iterable[tuple[int, float]], *, allowed: Any = None, rng: Rng | None = None) -> int:
        """The arm to play after `history`, a list of (arm, reward)."""
        state = self.start()
        for arm, reward in history:
            state = self.observe(state, arm, reward)
        return int(self.act(state, allowed=allowed, rng=rng))

    def distribution(self, state: State, *, n_arms: int) -> Float[Array, "n A"]:
        """Probability of playing each of `n_arms` arms now, one row per session."""
        if not self.deterministic:
            raise InvalidArgument(f"policy must know its own probabilities, got {type(self).__name__}, which does not")
        chosen = np.atleast_1d(np.asarray(self.act(state)))
        if chosen.max() >= n_arms:
            raise InvalidArgument(f"n_arms must be above the arm played, {int(chosen.max())}, got {n_arms}")
        probabilities = np.zeros((len(chosen), n_arms))
        probabilities[np.arange(len(chosen)), chosen] = 1.0
        return probabilities

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to `path`; `lmab.load` gives a policy that makes the same decisions."""
        files.write(path, self.record())

    def __repr__(self) -> str:
        arms = "any arms" if self.n_arms is None else f"{self.n_arms} arms"
        steps = "any horizon" if self.horizon is None else f"{self.horizon} steps"
        return f"{type(self).__name__}({arms}, {steps})"

    @abstractmethod
    def record(self) -> files.Record:
        """What `from_record` needs to make this policy again."""

    @classmethod
    @abstractmethod
    def from_record(cls, record: files.Record) -> Policy:
        """The policy that `record` describes."""

    @property
    def arm_labels(self) -> tuple[str | int, ...] | None:
        """What the arms are called in the log the policy was learned from."""
        return None

    def _initial_memory(self) -> Float[Array, "K"]:
        """What a session remembers before its first step; by default nothing."""
        return np.empty(0)

    def _remember(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        """What n sessions remember after one more step: a new array, since the old state stays valid."""
        return state.memory

    @abstractmethod
    def _choose(
        self, state: State, allowed: Bool[Array, "n A"] | None, rng: np.random.Generator | None
    ) -> Integer[Array, "n"]:
        """One arm per session; `rng` is a generator where the policy is not deterministic, else None or unused."""

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


def best_allowed(scores: Float[Array, "n A"], allowed: Bool[Array, "n A"] | None = None) -> Integer[Array, "n"]:
    """The allowed arm with the highest score; the lowest number among equals.

    Scores within rounding of each other are equal, so that a decision does not hang on the order of a sum.

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


class BeliefPolicy(Policy):
    """A policy whose memory is the unnormalised belief under a model.

    A subclass says what to play at `state.memory`, one row of M numbers per session; `belief.normalise` makes them
    probabilities. It can be saved and loaded as it is where its constructor takes what this one takes.

    Examples:
        >>> import lmab
        >>> from lmab.policies import best_allowed
        >>> class Cautious(lmab.BeliefPolicy):
        ...     "The arm whose mean in the worst context is highest, until one context is sure."
        ...     kind = "cautious"
        ...     def _choose(self, state, allowed, rng):
        ...         sure = lmab.belief.normalise(state.memory).max(axis=1, keepdims=True) > 0.9
        ...         means = self.bandit.means
        ...         return best_allowed(sure * (state.memory @ means) + ~sure * means.min(axis=0), allowed)
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> lmab.evaluate(Cautious(bandit), bandit, horizon=5)
        Evaluation(2.75 ± 0 over 5 steps, exact)
    """

    def __init__(self, bandit: LatentBandit, *, horizon: int | None = None) -> None:
        self.bandit = bandit
        self.n_arms = bandit.n_arms
        self.horizon = check_horizon(horizon)

    @property
    def arm_labels(self) -> tuple[str | int, ...] | None:
        return self.bandit.arm_labels

    def _initial_memory(self) -> Float[Array, "M"]:
        return self.bandit.weights

    def _remember(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n M"]:
        return belief.update(self.bandit, state.memory, arms, rewards)

    def record(self) -> files.Record:
        return files.Record(self.kind, {"horizon": self.horizon}, records={"bandit": self.bandit.record()})

    @classmethod
    def from_record(cls, record: files.Record) -> Policy:
        return cls(LatentBandit.from_record(record.records["bandit"]), **record.fields)


def restore_policy(record: files.Record) -> Policy:
    """The policy of any imported class, a user's own among them, that `record` describes."""
    if record.kind not in _KINDS:
        raise InvalidFile(
            f"holds a {record.kind!r}, which this lmab does not know: import the module of its class first, if it is a "
            "policy of your own"
        )
    return _KINDS[record.kind].from_record(record)


def check_horizon(horizon: int | None) -> int | None:
    """None, or a horizon of at least one step."""
    return None if horizon is None else check_count("horizon", horizon)
