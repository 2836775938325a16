"""Policies without planning: some ignore rewards, others act on the belief (`BeliefPolicy`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import files
from .._shapes import Array, Bool, Float, Integer
from ..checks import check_array, check_count
from ..errors import InvalidArgument
from ..model import belief
from ..model.bandit import LatentBandit, bandit_of
from ..model.type_prior import TypePrior, check_type_prior
from .policy import Policy, State, best_allowed, check_horizon


class BeliefPolicy(Policy):
    """Policy with the unnormalised belief under a model as its memory.

    A subclass chooses arms from `state.memory`, one row of M numbers per session; `belief.normalise` makes them
    probabilities. A subclass with a constructor that takes the same arguments can be saved and loaded without more
    code.

    Examples:
        >>> import lmab
        >>> from lmab.policies import best_allowed
        >>> class Cautious(lmab.policies.BeliefPolicy):
        ...     "The arm whose mean in the worst type_ is highest, until one type_ is sure."
        ...     kind = "cautious"
        ...     def _choose(self, state, allowed, rng):
        ...         sure = lmab.model.belief.normalise(state.memory).max(axis=1, keepdims=True) > 0.9
        ...         means = self.bandit.means
        ...         return best_allowed(sure * (state.memory @ means) + ~sure * means.min(axis=0), allowed)
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> lmab.evaluate(Cautious(bandit), bandit, horizon=5)
        Evaluation(2.75 ± 0 over 5 steps, exact)
    """

    def __init__(
        self, bandit: LatentBandit, *, horizon: int | None = None, type_prior: TypePrior | None = None
    ) -> None:
        self.bandit = bandit = bandit_of(bandit)
        if type_prior is not None:
            self.bandit = bandit.with_type_prior(check_type_prior(type_prior, bandit.n_types))
        self.n_arms = bandit.n_arms
        self.horizon = check_horizon(horizon)
        if bandit.step_effects is not None:
            self.order_free, self.depends_on_step = False, True

    @property
    def type_prior(self) -> TypePrior | None:
        return self.bandit.type_prior

    @property
    def arm_labels(self) -> tuple[str | int, ...] | None:
        return self.bandit.arm_labels

    def _initial_memory(self) -> Float[Array, "M"]:
        return self.bandit.weights

    def _first_memory(self, n: int, features: Mapping[str, Any] | None) -> Float[Array, "n K"]:
        memory = np.tile(self._initial_memory(), (n, 1))
        if features is not None:
            if self.type_prior is None:
                raise InvalidArgument(
                    f"features must be None for a {type(self).__name__} without a type prior, got "
                    f"{list(features)}; plan an estimate of a log with features"
                )
            self._put_belief(memory, _rows(self.type_prior.weights(features), n))
        return memory

    def _next_memory(self, state: State, features: Mapping[str, Any] | None) -> Float[Array, "n K"]:
        memory = self._first_memory(len(state.memory), features)
        prior = self.type_prior or TypePrior.constant(self.bandit.weights)
        posterior = self._belief(state)
        if features is None:  # an unknown person is the average over persons
            prior = TypePrior.constant(self.bandit.weights, keep=prior.keep)
        self._put_belief(memory, _rows(prior.after(posterior, features), len(memory)))
        return memory

    def _put_belief(self, memory: Float[Array, "n K"], beliefs: Float[Array, "n M"]) -> None:
        """Replace the initial belief of sessions that have not begun, in place."""
        memory[:, : self.bandit.n_types] = beliefs

    def _remember(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n M"]:
        return belief.rescale(belief.multiply(state.memory, self._likelihood(state.step, arms, rewards)))

    def _likelihood(self, step: int, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n M"]:
        """Return the likelihood of rewards at a step, up to one factor per row, and that the session continued."""
        return self.bandit.at(step).evidence(np.asarray(arms), np.asarray(rewards))

    def _continuation(self, step: int, arms: Integer[Array, "n"]) -> Float[Array, "n M"]:
        """Return the probability that a session continues after a step."""
        return self.bandit.at(step).stays.T[arms]

    def _pass(self, state: State, arms: Integer[Array, "n"]) -> Float[Array, "n K"]:
        memory, width = state.memory, self.bandit.n_types
        if self.bandit.leaving is None:
            return memory
        stayed = belief.rescale(belief.multiply(memory[:, :width], self._continuation(state.step, arms)))
        return np.hstack([stayed, memory[:, width:]])

    def _learn(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n K"]:
        if self.bandit.leaving is None:
            return belief.rescale(belief.multiply(state.memory, self._likelihood(state.step, arms, rewards)))
        stays = self._continuation(state.step, arms)  # that the session continued is known since the step itself
        given = self._likelihood(state.step, arms, rewards) / np.where(stays > 0, stays, 1.0)
        return belief.rescale(belief.multiply(state.memory, given))

    def _belief(self, state: State) -> Float[Array, "n M"]:
        return belief.normalise(state.memory[:, : self.bandit.n_types])

    def record(self) -> files.Record:
        return files.Record(self.kind, {"horizon": self.horizon}, records={"bandit": self.bandit.record()})

    @classmethod
    def from_record(cls, record: files.Record) -> Policy:
        prior = cls._prior_of(record)
        more: dict[str, Any] = {} if prior is None else {"type_prior": prior}
        return cls(LatentBandit.from_record(record.records["bandit"]), **record.fields, **more)

    @staticmethod
    def _prior_of(record: files.Record) -> TypePrior | None:
        """Return the type prior beside the bandit, in files from before the bandit held it."""
        prior_record = record.records.get("type_prior")
        return None if prior_record is None else TypePrior.from_record(prior_record)


def _rows(weights: Float[Array, "_ M"], n: int) -> Float[Array, "n M"]:
    """Return one row for each of n sessions."""
    if len(weights) not in (1, n):
        wanted = f"1 or {n} values a column" if n > 1 else "one value a column for one session, n values for start(n)"
        raise InvalidArgument(f"features must hold {wanted}, got {len(weights)}")
    return np.broadcast_to(weights, (n, weights.shape[1]))


class Uniform(Policy):
    """Policy that plays any allowed arm with equal probability: the exploration policy of Algorithm 1, step 1.

    Examples:
        >>> import numpy as np, lmab
        >>> policy = lmab.Uniform(3)
        >>> policy.act(policy.start(), allowed=[False, True, False], rng=np.random.default_rng(0))
        1
    """

    kind = "uniform"
    adaptive = False
    deterministic = False

    def __init__(self, n_arms: int, *, horizon: int | None = None) -> None:
        self.n_arms = check_count("n_arms", n_arms)
        self.horizon = check_horizon(horizon)

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        n = len(state.memory)
        if allowed is None:
            return rng.integers(self.n_arms, size=n)
        rank = (rng.random(n) * allowed.sum(axis=1)).astype(np.int64) + 1
        return (allowed.cumsum(axis=1) >= rank[:, None]).argmax(axis=1)

    def distribution(self, state: State, *, n_arms: int) -> Float[Array, "n A"]:
        if n_arms != self.n_arms:
            raise InvalidArgument(f"n_arms must be the policy's {self.n_arms}, got {n_arms}")
        return np.full((len(state.memory), n_arms), 1 / n_arms)

    def _chances(self, state: State, allowed: Bool[Array, "n A"] | None, n_arms: int) -> Float[Array, "n A"]:
        if allowed is None:
            return self.distribution(state, n_arms=n_arms)
        return allowed / allowed.sum(axis=1, keepdims=True)

    def record(self) -> files.Record:
        return files.Record(self.kind, {"n_arms": self.n_arms, "horizon": self.horizon})

    @classmethod
    def from_record(cls, record: files.Record) -> Uniform:
        return cls(**record.fields)


class Greedy(BeliefPolicy):
    """Policy that plays the arm with the highest expected reward under the belief. With static types this is Q-MDP.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.6, 0.4], [[0.9, 0.1], [0.2, 0.7]])
        >>> lmab.Greedy(bandit).act_on([])
        0
    """

    kind = "greedy"

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        return best_allowed(state.memory @ self.bandit.at(state.step).means, allowed)


class Thompson(BeliefPolicy):
    """Policy that samples a type from the belief and plays its best arm (mTS of Hong et al., 2020).

    Examples:
        >>> import numpy as np, lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.0, 1.0], [[0.9, 0.1], [0.2, 0.7]])
        >>> lmab.Thompson(bandit).act_on([], rng=np.random.default_rng(0))
        1
    """

    kind = "thompson"
    deterministic = False

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        cumulative, means = state.memory.cumsum(axis=1), self.bandit.at(state.step).means
        draw = rng.random(len(cumulative)) * cumulative[:, -1]
        types = (cumulative > draw[:, None]).argmax(axis=1)
        if allowed is None:
            return means.argmax(axis=1)[types]
        return best_allowed(means[types], allowed)

    def distribution(self, state: State, *, n_arms: int) -> Float[Array, "n A"]:
        return self._chances(state, None, n_arms)

    def _chances(self, state: State, allowed: Bool[Array, "n A"] | None, n_arms: int) -> Float[Array, "n A"]:
        beliefs, means = belief.normalise(state.memory), self.bandit.at(state.step).means
        if allowed is None:
            best = np.zeros((self.bandit.n_types, n_arms))
            best[np.arange(self.bandit.n_types), means.argmax(axis=1)] = 1.0
            return beliefs @ best
        chances = np.zeros((len(beliefs), n_arms))
        for type_, weight in enumerate(beliefs.T):
            arms = best_allowed(np.tile(means[type_], (len(beliefs), 1)), allowed)
            chances[np.arange(len(beliefs)), arms] += weight
        return chances


class MUCB(BeliefPolicy):
    """Policy that is optimistic over the types consistent with the session (mUCB of Hong et al., 2020).

    Each step takes the consistent type with the highest mean reward and plays its best arm. A type stays consistent
    while the rewards predicted at the steps in which it was taken exceed the received ones by at most `width * spread *
    sqrt(6 * t * log(t + 1))`, with `spread` the range of the rewards (Gaussian: the scale).

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> lmab.policies.MUCB(bandit).act_on([])
        0
    """

    kind = "mucb"
    order_free = False

    def __init__(
        self,
        bandit: LatentBandit,
        *,
        horizon: int | None = None,
        width: float = 0.25,
        type_prior: TypePrior | None = None,
    ) -> None:
        super().__init__(bandit, horizon=horizon, type_prior=type_prior)
        self.width = float(check_array("width", [width], ndim=1)[0])

    def _initial_memory(self) -> Float[Array, "M"]:
        return np.zeros(
            self.bandit.n_types
        )  # predicted minus received rewards, summed over the steps at which the type was taken

    def _first_memory(self, n: int, features: Mapping[str, Any] | None) -> Float[Array, "n M"]:
        return np.tile(self._initial_memory(), (n, 1))  # every type is consistent at first, with any features

    def _next_memory(self, state: State, features: Mapping[str, Any] | None) -> Float[Array, "n M"]:
        return state.memory

    def _pass(self, state: State, arms: Integer[Array, "n"]) -> Float[Array, "n M"]:
        return state.memory  # the prediction is about rewards only, not about attrition

    def _learn(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n M"]:
        return self._remember(state, arms, rewards)

    def _consistent(self, state: State) -> Bool[Array, "n M"]:
        limit = self.width * self.bandit.rewards.spread * np.sqrt(6 * state.step * np.log(state.step + 1))
        within = state.memory <= limit
        return within | ~within.any(axis=1, keepdims=True)  # if no type is consistent, all are candidates again

    def _optimistic_type(
        self, state: State, allowed: Bool[Array, "n A"] | None
    ) -> tuple[Integer[Array, "n"], Integer[Array, "n"]]:
        means = self.bandit.at(state.step).means
        if allowed is None:
            best, promise = np.tile(means.argmax(axis=1), (len(state.memory), 1)), means.max(axis=1)[None]
        else:
            masked = np.where(allowed[:, None, :], means[None], -np.inf)
            best, promise = masked.argmax(axis=2), masked.max(axis=2)
        types = np.where(self._consistent(state), promise, -np.inf).argmax(axis=1)
        return types, best[np.arange(len(best)), types]

    def _choose(self, state: State, allowed: Bool[Array, "n A"] | None, rng: Any) -> Integer[Array, "n"]:
        return self._optimistic_type(state, allowed)[1]

    def _remember(self, state: State, arms: Integer[Array, "n"], rewards: Float[Array, "n"]) -> Float[Array, "n M"]:
        types = self._optimistic_type(state, None)[0]
        memory = state.memory.copy()
        memory[np.arange(len(memory)), types] += self.bandit.at(state.step).means[types, arms] - rewards
        return memory

    def _belief(self, state: State) -> Float[Array, "n M"]:
        raise InvalidArgument("policy must be a BeliefPolicy; MUCB tracks reward sums per type, not a belief")

    def record(self) -> files.Record:
        base = super().record()
        return files.Record(base.kind, {**base.fields, "width": self.width}, base.arrays, base.records)
