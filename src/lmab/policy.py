"""Policies: what to play next given the session so far, for one session or for n at once.

A policy never changes; what a session has seen is a `State`, a value that `observe` turns into the next one.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from . import belief, files
from ._shapes import Array, Bool, Float, Integer
from .errors import InvalidArgument, InvalidFile, check_array, check_count, check_rng
from .model import LatentBandit


@dataclass(frozen=True, eq=False)
class State:
    """Where a session, or n sessions in step, stands: how many steps were seen, and what the policy remembers."""

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
    horizon: int | None = None
    n_arms: int | None = None  # None: any arm number is fine

    def start(self, n: int | None = None) -> State:
        """The state before the first step: of one session, or of n."""
        size = 1 if n is None else check_count("n", n)
        return State(0, np.tile(self._initial_memory(), (size, 1)), n is None)

    def act(
        self, state: State, *, allowed: Any = None, rng: np.random.Generator | None = None
    ) -> int | Integer[Array, "n"]:
        """The arm to play now; `allowed` (A,) or (n, A) masks arms that cannot be played."""
        if self.horizon is not None and state.step >= self.horizon:
            raise InvalidArgument(f"state must be before the horizon of {self.horizon} steps, got step {state.step}")
        if not self.deterministic:
            check_rng(rng, f"{type(self).__name__} plays at random")
        mask = None if allowed is None else self._mask(allowed, len(state.memory))
        arms = self._choose(state, mask, rng)
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

    def act_on(
        self, history: Iterable[tuple[int, float]], *, allowed: Any = None, rng: np.random.Generator | None = None
    ) -> int:
        """The arm to play after `history`, a list of (arm, reward)."""
        state = self.start()
        for arm, reward in history:
            state = self.observe(state, arm, reward)
        return int(self.act(state, allowed=allowed, rng=rng))  # type: ignore[arg-type]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to `path`; `lmab.load` gives a policy that makes the same decisions."""
        files.write(path, self.record())

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
        return np.empty(0)

    def _remember(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        return state.memory

    @abstractmethod
    def _choose(
        self, state: State, allowed: Bool[Array, "n A"] | None, rng: np.random.Generator | None
    ) -> Integer[Array, "n"]:
        """One arm per session."""

    def _mask(self, allowed: Any, n: int) -> Bool[Array, "n A"]:
        mask = np.asarray(allowed, dtype=bool)
        if mask.ndim not in (1, 2) or mask.shape[-1] != (self.n_arms or mask.shape[-1]) or mask.shape[:-1] not in ((), (n,)):
            expected = f"({self.n_arms or 'A'},) or ({n}, {self.n_arms or 'A'})"
            raise InvalidArgument(f"allowed must have shape {expected}, got {mask.shape}")
        mask = np.broadcast_to(mask, (n, mask.shape[-1]))
        if not mask.any(axis=1).all():
            raise InvalidArgument(f"allowed must leave an arm to play, got none in row {int(np.argmin(mask.any(axis=1)))}")
        return mask


def best_allowed(scores: Float[Array, "n A"], allowed: Bool[Array, "n A"] | None) -> Integer[Array, "n"]:
    """The allowed arm with the highest score; the lowest number among equals."""
    return (scores if allowed is None else np.where(allowed, scores, -np.inf)).argmax(axis=1)


class _Blind(Policy):
    """A policy that knows no model."""

    adaptive = False

    def _preferred(self, arm: int, n: int, allowed: Bool[Array, "n A"] | None, others: Sequence[int]) -> Integer[Array, "n"]:
        """`arm`, or where it is not allowed the first allowed one of `others`, then of all arms."""
        if allowed is None:
            return np.full(n, arm)
        n_arms = allowed.shape[1]
        order = list(dict.fromkeys([arm, *others, *range(n_arms)]))
        if max(order) >= n_arms:
            raise InvalidArgument(f"allowed must cover arm {max(order)}, got {n_arms} arms")
        return np.array(order)[allowed[:, order].argmax(axis=1)]


class Uniform(_Blind):
    """Any allowed arm, equally likely: the exploration policy of Algorithm 1, step 1.

    Examples:
        >>> import numpy as np, lmab
        >>> policy = lmab.Uniform(3)
        >>> policy.act(policy.start(), allowed=[False, True, False], rng=np.random.default_rng(0))
        1
    """

    kind = "uniform"
    deterministic = False

    def __init__(self, n_arms: int, *, horizon: int | None = None) -> None:
        self.n_arms = check_count("n_arms", n_arms)
        self.horizon = _horizon(horizon)

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        n = len(state.memory)
        if allowed is None:
            return rng.integers(self.n_arms, size=n)  # type: ignore[no-any-return]
        rank = (rng.random(n) * allowed.sum(axis=1)).astype(np.int64) + 1
        return (allowed.cumsum(axis=1) >= rank[:, None]).argmax(axis=1)

    def record(self) -> files.Record:
        return files.Record(self.kind, {"n_arms": self.n_arms, "horizon": self.horizon})

    @classmethod
    def from_record(cls, record: files.Record) -> Uniform:
        return cls(**record.fields)


class FixedSequence(_Blind):
    """The given arms in the given order, whatever they pay.

    Examples:
        >>> import lmab
        >>> policy = lmab.FixedSequence([2, 0])
        >>> policy.act_on([(2, 1.0)])
        0
    """

    kind = "fixed-sequence"

    def __init__(self, arms: Sequence[int]) -> None:
        self.arms = tuple(check_count(f"arms[{i}]", arm, minimum=0) for i, arm in enumerate(arms))
        self.horizon = check_count("the number of arms", len(self.arms))

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        return self._preferred(self.arms[state.step], len(state.memory), allowed, self.arms[state.step :])

    def record(self) -> files.Record:
        return files.Record(self.kind, {"arms": list(self.arms)})

    @classmethod
    def from_record(cls, record: files.Record) -> FixedSequence:
        return cls(**record.fields)


class Stationary(_Blind):
    """One arm at every step: the best that ignoring contexts can do.

    Examples:
        >>> import lmab
        >>> lmab.Stationary(4).act_on([])
        4
    """

    kind = "stationary"

    def __init__(self, arm: int, *, horizon: int | None = None) -> None:
        self.arm = check_count("arm", arm, minimum=0)
        self.horizon = _horizon(horizon)

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        return self._preferred(self.arm, len(state.memory), allowed, ())

    def record(self) -> files.Record:
        return files.Record(self.kind, {"arm": self.arm, "horizon": self.horizon})

    @classmethod
    def from_record(cls, record: files.Record) -> Stationary:
        return cls(**record.fields)


class BeliefPolicy(Policy):
    """A policy whose memory is the unnormalised belief under a model."""

    def __init__(self, bandit: LatentBandit, *, horizon: int | None = None) -> None:
        self.bandit = bandit
        self.n_arms = bandit.n_arms
        self.horizon = _horizon(horizon)

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


class Greedy(BeliefPolicy):
    """The arm with the highest expected reward under the belief. With static contexts this is Q-MDP.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.6, 0.4], [[0.9, 0.1], [0.2, 0.7]])
        >>> lmab.Greedy(bandit).act_on([])
        0
    """

    kind = "greedy"

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        return best_allowed(state.memory @ self.bandit.means, allowed)


class Thompson(BeliefPolicy):
    """Draw a context from the belief and play its best arm (mTS of Hong et al., 2020).

    Examples:
        >>> import numpy as np, lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.0, 1.0], [[0.9, 0.1], [0.2, 0.7]])
        >>> lmab.Thompson(bandit).act_on([], rng=np.random.default_rng(0))
        1
    """

    kind = "thompson"
    deterministic = False

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        cumulative = state.memory.cumsum(axis=1)
        draw = rng.random(len(cumulative)) * cumulative[:, -1]
        contexts = (cumulative > draw[:, None]).argmax(axis=1)
        if allowed is None:
            return self.bandit.means.argmax(axis=1)[contexts]
        return best_allowed(self.bandit.means[contexts], allowed)


class MUCB(BeliefPolicy):
    """Optimism over the contexts still consistent with the session (mUCB of Hong et al., 2020).

    Each step believes the consistent context that promises most and plays its best arm. A context stays consistent
    while the rewards it promised, when believed, exceed those received by at most
    `width * spread * sqrt(6 * t * log(t + 1))`, with `spread` the range of the rewards (Gaussian: the scale).

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> lmab.MUCB(bandit).act_on([])
        0
    """

    kind = "mucb"
    order_free = False

    def __init__(self, bandit: LatentBandit, *, horizon: int | None = None, width: float = 0.25) -> None:
        super().__init__(bandit, horizon=horizon)
        self.width = float(check_array("width", [width], ndim=1)[0])

    def _initial_memory(self) -> Float[Array, "M"]:
        return np.zeros(self.bandit.n_contexts)  # promised minus received, summed over the steps a context was believed

    def _consistent(self, state: State) -> Bool[Array, "n M"]:
        rewards = self.bandit.rewards
        spread = float(np.ptp(rewards.values)) if hasattr(rewards, "values") else rewards.scale
        limit = self.width * spread * np.sqrt(6 * state.step * np.log(state.step + 1))
        within = state.memory <= limit
        return within | ~within.any(axis=1, keepdims=True)  # when none is left, all are candidates again

    def _believed(self, state: State, allowed: Bool[Array, "n A"] | None) -> tuple[Integer[Array, "n"], Integer[Array, "n"]]:
        means = self.bandit.means
        if allowed is None:
            best, promise = np.tile(means.argmax(axis=1), (len(state.memory), 1)), means.max(axis=1)[None]
        else:
            masked = np.where(allowed[:, None, :], means[None], -np.inf)
            best, promise = masked.argmax(axis=2), masked.max(axis=2)
        contexts = np.where(self._consistent(state), promise, -np.inf).argmax(axis=1)
        return contexts, best[np.arange(len(best)), contexts]

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        return self._believed(state, allowed)[1]

    def _remember(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n M"]:
        contexts = self._believed(state, None)[0]
        memory = state.memory.copy()
        memory[np.arange(len(memory)), contexts] += self.bandit.means[contexts, arms] - rewards
        return memory

    def record(self) -> files.Record:
        base = super().record()
        return files.Record(base.kind, {**base.fields, "width": self.width}, base.arrays, base.records)


def restore(record: files.Record, kinds: Iterable[type[Policy]]) -> Policy:
    """The policy that `record` describes, of one of the given kinds."""
    makers: dict[str, Callable[[files.Record], Policy]] = {kind.kind: kind.from_record for kind in kinds}
    if record.kind not in makers:
        raise InvalidFile(f"holds a {record.kind}, not a policy")
    return makers[record.kind](record)


def _horizon(horizon: int | None) -> int | None:
    return None if horizon is None else check_count("horizon", horizon)
