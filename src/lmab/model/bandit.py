"""LatentBandit: the weights of the types and the rewards of the arms in each type (Definition 2.1 of the paper)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .. import _registry, files
from .._html import card, percent
from .._shapes import Array, Float, Integer, Shaped
from ..checks import check_array, check_count, check_distribution, choices, whole
from ..errors import InvalidArgument, InvalidFile
from .attrition_values import (
    best_fixed_sequence,
    constant_arm_values,
    known_type_values,
    known_type_values_without_repeats,
)
from .categorical import Categorical
from .counts import Counts
from .gaussian import Gaussian
from .rewards import Channel, Rewards, permutation, take
from .type_prior import TypePrior, check_type_prior

FAMILIES: dict[str, type[Rewards]] = {
    one.family: one for one in (Categorical, Gaussian, Counts)
}  # reward families by the name that files use
_OPTIONAL = ("leaving", "step_effects")  # arrays that a bandit may have, under these names in files
_MANY = 1 << 16  # number of cached rows of likelihoods
_APART = 2.0**40  # offset of the rewards of sessions that ended, if the distance counts leaving as a different outcome


@dataclass(frozen=True, eq=False)
class LatentBandit:
    """Latent bandit: each session draws a hidden type, which stays the same for the whole session.

    Construct one with `LatentBandit.bernoulli`, `.categorical`, `.gaussian` or `.counts`.

    With step effects, the rewards of every arm and type depend on the step: at step t = 0, 1, ... the probability of a
    reward z is proportional to p(z) exp(step_effects[t] z). The first effect is 0, and the last one holds at all later
    steps. `rewards`, `means` and `stays` are those of the first step; `at(step)` is the model of another step.

    With a `type_prior`, the weights depend on features of the session, and a returning person may keep the type;
    `weights` are those of a session of which nothing is known, and `given(features)` is the model of known features.

    With attrition, `leaving` holds the probability that a session ends after a step, by type, arm and reward. All
    values are then expected rewards until the person leaves, and the horizon is the largest length of a session.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> bandit
        LatentBandit(2 types, 2 arms, rewards in {0, 1}; weights 0.5, 0.5)
        >>> bandit.means[1, 1]
        np.float64(0.7)
    """

    weights: Float[Array, "M"]  # probability of each type: the paper's w_m
    rewards: Categorical | Gaussian | Counts
    arm_labels: tuple[str | int, ...] | None = None  # labels of the arms in the log from which the bandit was estimated
    leaving: Float[Array, "M A Z"] | None = None  # P(session ends | type, arm, value); None means no attrition
    step_effects: Float[Array, "H"] | None = None  # exponential tilt of all rewards by step; None: all steps are alike
    type_prior: TypePrior | None = None  # weights by features and persons; None: `weights` in every session

    def __post_init__(self) -> None:
        weights = check_distribution("weights", check_array("weights", self.weights, ndim=1))
        if len(weights) != self.rewards.n_types:
            raise InvalidArgument(
                f"weights must have one entry per type of the rewards ({self.rewards.n_types}), got {len(weights)}"
            )
        object.__setattr__(self, "weights", weights)
        if self.arm_labels is not None:
            labels = tuple(self.arm_labels)
            if len(labels) != self.n_arms or len(set(labels)) != len(labels):
                raise InvalidArgument(f"arm_labels must be {self.n_arms} distinct labels, got {len(labels)}")
            object.__setattr__(self, "arm_labels", labels)
        if self.leaving is not None:
            object.__setattr__(self, "leaving", _checked_leaving(self.leaving, self.rewards))
        if self.step_effects is not None:
            object.__setattr__(self, "step_effects", _checked_step_effects(self.step_effects))
        if self.type_prior is not None:
            check_type_prior(self.type_prior, self.n_types)

    @classmethod
    def bernoulli(cls, weights: Any, means: Any, *, leaving: Any = None, step_effects: Any = None) -> LatentBandit:
        """Return a bandit with rewards 0 and 1: `weights` (M,), `means` (M, A); `leaving` (M, A, 2) after a 0 and after
        a 1.
        """
        return cls(weights, Categorical.bernoulli(means), leaving=leaving, step_effects=step_effects)

    @classmethod
    def categorical(
        cls, weights: Any, probabilities: Any, values: Any, *, leaving: Any = None, step_effects: Any = None
    ) -> LatentBandit:
        """Return a bandit with rewards on finitely many `values` (Z,), with `probabilities` and `leaving` (M, A, Z)."""
        return cls(weights, Categorical(probabilities, values), leaving=leaving, step_effects=step_effects)

    @classmethod
    def gaussian(
        cls, weights: Any, means: Any, scale: float = 1.0, *, leaving: Any = None, step_effects: Any = None
    ) -> LatentBandit:
        """Return a bandit with normal rewards: `means` (M, A), one standard deviation `scale`; attrition is not
        supported.
        """
        return cls(weights, Gaussian(means, scale), leaving=leaving, step_effects=step_effects)

    @classmethod
    def counts(cls, weights: Any, means: Any, *, leaving: Any = None, step_effects: Any = None) -> LatentBandit:
        """Return a bandit with Poisson counts 0, 1, 2, ... of these `means` (M, A).

        `leaving` (M, A, Z) is the probability of leaving after 0, 1, ...; its last entry applies to all larger counts.
        """
        return cls(weights, Counts(means), leaving=leaving, step_effects=step_effects)

    def given(self, features: Mapping[str, Any] | None) -> LatentBandit:
        """Return the model of sessions with these features (one value per column), whose weights depend on nothing.

        Examples:
            >>> import lmab
            >>> prior = lmab.TypePrior.by_value("country", {"de": [0.9, 0.1], "fr": [0.2, 0.8]})
            >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9], [0.3]]).with_type_prior(prior)
            >>> bandit.given({"country": "fr"}).weights
            array([0.2, 0.8])
        """
        if features is None:
            return self.with_type_prior(None)
        if self.type_prior is None:
            raise InvalidArgument(f"features must be None for a bandit without a type_prior, got {list(features)}")
        weights = self.type_prior.weights(features)
        if len(weights) != 1:
            raise InvalidArgument(f"features must be those of one session, got {len(weights)} values a column")
        return replace(self, weights=weights[0], type_prior=None)

    def with_type_prior(self, type_prior: TypePrior | None) -> LatentBandit:
        """Return the same bandit with another type prior, or without one."""
        return self if type_prior is self.type_prior else replace(self, type_prior=type_prior)

    def at(self, step: int | None) -> LatentBandit:
        """Return the model of one step (0, 1, ...), whose rewards depend on no step.

        Examples:
            >>> import lmab
            >>> bandit = lmab.LatentBandit.bernoulli([1.0], [[0.5, 0.8]], step_effects=[0.0, -1.0])
            >>> bandit.at(5).means.round(3)
            array([[0.269, 0.595]])
        """
        if self.step_effects is None:
            return self
        if step is None:
            raise InvalidArgument(
                "step must be given, because the rewards of this bandit depend on the step (got None)"
            )
        effect = float(self.step_effects[min(step, len(self.step_effects) - 1)])
        if effect not in self._models:
            self._models[effect] = replace(self, rewards=self.rewards.tilted(effect), step_effects=None)
        return self._models[effect]

    @cached_property
    def _models(self) -> dict[float, LatentBandit]:
        """Return the models of single steps by their effect."""
        return {}

    def step_models(self, horizon: int) -> tuple[list[LatentBandit], Integer[Array, "H"]]:
        """Return the distinct models of the first `horizon` steps, and the index of the model of each step.

        Examples:
            >>> import lmab
            >>> bandit = lmab.LatentBandit.bernoulli([1.0], [[0.5]], step_effects=[0.0, 1.0])
            >>> models, index = bandit.step_models(4)
            >>> len(models), index
            (2, array([0, 1, 1, 1]))
        """
        if self.step_effects is None:
            return [self], np.zeros(horizon, np.int64)
        effects = self.step_effects[np.minimum(np.arange(horizon), len(self.step_effects) - 1)]
        _, first, index = np.unique(effects, return_index=True, return_inverse=True)
        return [self.at(int(step)) for step in first], index.ravel()

    def _require_step(self, what: str) -> None:
        if self.step_effects is not None:
            raise InvalidArgument(f"{what} depends on the step for a bandit with step effects: use bandit.at(step)")

    @property
    def means(self) -> Float[Array, "M A"]:
        return self.rewards.means

    @property
    def n_types(self) -> int:
        return len(self.weights)

    @property
    def n_arms(self) -> int:
        return self.rewards.n_arms

    @property
    def types_by_weight(self) -> list[int]:
        """Return the types in the order of decreasing weight, in which pages and commands number them 1, 2, ...

        Examples:
            >>> import lmab
            >>> lmab.LatentBandit.bernoulli([0.2, 0.5, 0.3], [[0.9], [0.1], [0.5]]).types_by_weight
            [1, 2, 0]
        """
        return np.argsort(-self.weights, kind="stable").tolist()

    def channel(self) -> Float[Array, "M A Z"]:
        """Return P(value, session continues | type, arm) = p (1 - leaving); with attrition it sums to less than 1.

        An arm is only requested in sessions that continue, so beliefs are updated by these probabilities.

        Examples:
            >>> import lmab
            >>> leaving = [[[0.5, 0.0], [0.5, 0.0]]]
            >>> lmab.LatentBandit.bernoulli([1.0], [[0.8, 0.4]], leaving=leaving).channel()
            array([[[0.1, 0.8],
                    [0.3, 0.4]]])
        """
        self._require_step("channel")
        if not isinstance(self.rewards, Categorical):
            raise InvalidArgument(f"rewards must take finitely many values to have a channel, got {self.rewards}")
        shown = self.rewards.probabilities
        return shown if self.leaving is None else shown * (1 - self.leaving)

    @cached_property
    def people_leave(self) -> bool:
        """Return whether a session may end before the horizon."""
        return self.leaving is not None and bool((self.leaving * self._leaving_column_probabilities > 0).any())

    @cached_property
    def _leaving_column_probabilities(self) -> Float[Array, "M A Z"]:
        """Return the probability of each entry of the last axis of `leaving`: a value, or all counts from some count
        on.
        """
        assert self.leaving is not None
        assert not isinstance(self.rewards, Gaussian)
        return self.rewards.shares_of_places(self.leaving.shape[2])

    def leaving_columns(self, rewards: Shaped[Array, "n"]) -> Integer[Array, "n"]:
        """Return the index of each reward along the last axis of `leaving`.

        Examples:
            >>> import numpy as np, lmab
            >>> bandit = lmab.LatentBandit.counts([1.0], [[2.0]], leaving=[[[0.5, 0.2, 0.1]]])
            >>> bandit.leaving_columns(np.array([0.0, 1.0, 9.0]))
            array([0, 1, 2])
        """
        assert self.leaving is not None
        assert not isinstance(self.rewards, Gaussian)
        return self.rewards.places(rewards, self.leaving.shape[2])

    @property
    def stays(self) -> Float[Array, "M A"]:
        """Return the probability that a session continues after an arm, for each type."""
        if self.leaving is None:
            return np.ones(self.means.shape)
        return np.maximum(
            1.0 - (self._leaving_column_probabilities * self.leaving).sum(axis=2), 0.0
        )  # 1.0 if nobody leaves

    @property
    def has_informative_attrition(self) -> bool:
        """Return whether types differ in leaving after the same arm and value, so that survival is informative.

        Examples:
            >>> import lmab
            >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.8], [0.4]], leaving=[[[0.5, 0.0]], [[0.1, 0.0]]])
            >>> bandit.has_informative_attrition
            True
        """
        return self.leaving is not None and bool((self.leaving != self.leaving[:1]).any())

    def outcomes(self, bins: int, edges: Float[Array, "A E"] | None = None) -> Channel:
        """Return the observation model of sessions that continue; continuous rewards are discretised into `bins`
        outcomes, or at the given edges.
        """
        self._require_step("outcomes")
        channel = self.rewards.channel(self.weights, bins, edges)
        if self.leaving is None:
            return channel
        if isinstance(self.rewards, Counts):
            return self.rewards.staying(channel, self.leaving)
        shown = self.channel()
        return channel._replace(table=np.ascontiguousarray(shown.reshape(self.n_types, -1).T))

    def informative_table(self, types: Integer[Array, "K"], bins: int) -> Float[Array, "D K"]:
        """Return likelihoods of observations that are at least as informative as continuous rewards, for some types.

        The value of a problem with these observations is an upper bound on the value with the rewards.
        """
        assert not isinstance(self.rewards, Categorical)
        self._require_step("informative_table")
        some = self.rewards.relabel(types=types.tolist())
        weights = self.weights[types]
        total = float(weights.sum())
        weights = weights / total if total > 0 else np.full(len(types), 1 / len(types))
        leaving = None if self.leaving is None else self.leaving[types]
        return some.informative_table(weights, bins, leaving)

    def evidence(self, arms: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Float[Array, "n M"]:
        """Return the likelihood of rewards in sessions that continue, up to one factor per row, for belief updates.

        The rows of single rewards are cached, because a server requests the same ones again and again.
        """
        self._require_step("evidence")
        if len(arms) != 1 or not self.rewards.discrete:
            return self._evidence(arms, rewards)
        key = int(arms[0]), float(rewards[0])
        row = self._rows.get(key)
        if row is None:
            row = self._evidence(arms, rewards)
            if len(self._rows) < _MANY:
                self._rows[key] = row
        return row

    def _evidence(self, arms: Shaped[Array, "n"], rewards: Shaped[Array, "n"]) -> Float[Array, "n M"]:
        likelihoods = self.rewards.evidence(arms, rewards)
        if self.leaving is None:
            return likelihoods
        return likelihoods * (1 - self.leaving[:, np.asarray(arms), self.leaving_columns(rewards)].T)

    @cached_property
    def _rows(self) -> dict[tuple[int, float], Float[Array, "1 M"]]:
        """Return the cache of likelihoods of single rewards."""
        return {}

    def label(self, arm: int) -> str:
        """Return the display name of an arm: its label in the log, or `arm 3`.

        Examples:
            >>> import lmab
            >>> lmab.LatentBandit.bernoulli([1.0], [[0.9, 0.5]]).label(1)
            'arm 1'
        """
        return arm_label(arm, self.arm_labels)

    def distance(self, other: LatentBandit) -> float:
        """Return the Wasserstein distance between the two mixtures of types (section 2.3 of the paper).

        The cost of moving one type onto another is the largest L1 distance between their reward distributions over the
        arms and steps (Gaussian: the largest difference of means). With attrition, leaving is one more outcome. By
        Proposition 3.4, the values of every policy on the two bandits differ by at most horizon**2 times this distance,
        if rewards are in [-1, 1].

        Examples:
            >>> import lmab
            >>> bandit = lmab.LatentBandit.bernoulli([0.25, 0.75], [[0.9, 0.1], [0.2, 0.7]])
            >>> bandit.distance(bandit.relabel(types=[1, 0]))
            0.0
        """
        if self.rewards.family != other.rewards.family or self.n_arms != other.n_arms:
            raise InvalidArgument(f"other must have the same reward family and number of arms as {self}, got {other}")
        steps = range(max(1 if one.step_effects is None else len(one.step_effects) for one in (self, other)))
        pairs = [(self.at(step)._shown(), other.at(step)._shown()) for step in steps]
        costs = [mine.distances(theirs) for mine, theirs in pairs]  # type: ignore[arg-type]
        return transport(self.weights, other.weights, np.max(costs, axis=0))

    def _shown(self) -> Categorical | Gaussian | Counts:
        """Return the rewards; with attrition, with a second set of values for sessions that ended."""
        if not isinstance(self.rewards, Categorical) or self.leaving is None:
            return self.rewards
        shown, values = self.channel(), self.rewards.values
        apart = np.concatenate([shown, self.rewards.probabilities - shown], axis=2)
        return Categorical(apart / apart.sum(axis=2, keepdims=True), np.concatenate([values, values + _APART]))

    def best_fixed(self, horizon: int, repeats: bool = True) -> float:
        """Return the expected reward of a session under the best fixed choice, which ignores rewards.

        This choice is the best arm at every step, or without repeats the best sequence of different arms. With
        attrition and many arms, that sequence comes from a beam search and may not be optimal.

        Examples:
            >>> import lmab
            >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
            >>> round(bandit.best_fixed(2), 10), round(bandit.best_fixed(2, repeats=False), 10)
            (1.1, 0.95)
        """
        arms, horizon = self.best_fixed_arms(horizon, repeats), whole(horizon)
        if self.people_leave or self.step_effects is not None:
            return _earned(self, arms if len(arms) == horizon else arms * horizon)
        return horizon / len(arms) * float((self.weights @ self.means)[list(arms)].sum())

    def best_fixed_arms(self, horizon: int, repeats: bool = True) -> tuple[int, ...]:
        """Return the arms of the best fixed choice: one arm, or without repeats `horizon` different arms, the best
        first.
        """
        return self.ranked_arms(horizon, repeats)[: self._n_distinct(horizon, repeats)]

    def ranked_arms(self, horizon: int, repeats: bool = True) -> tuple[int, ...]:
        """Return all arms, the best first: the arms of the best fixed choice, then the others.

        The order is that of the mean reward of a session. If arms repeat and sessions end early or steps differ, it is
        the order of the value of playing the arm at every step.

        Examples:
            >>> import lmab
            >>> lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.6], [0.2, 0.7, 0.6]]).ranked_arms(2)
            (2, 0, 1)
        """
        n_arms, horizon = self._n_distinct(horizon, repeats), whole(horizon)
        values = self.weights @ self.means
        first = np.empty(0, np.int64)
        if repeats and (self.people_leave or self.step_effects is not None):
            values = constant_arm_values(*self._arrays_by_steps_to_go(horizon), horizon)[-1] @ self.weights
        elif self.people_leave:
            means, stays = (array.mean(axis=0) for array in self._arrays_by_steps_to_go(horizon))
            first = best_fixed_sequence(means, stays, self.weights, n_arms)[0]
        elif self.step_effects is not None:
            first = _best_assignment(self._arrays_by_steps_to_go(horizon)[0][::-1] @ self.weights)
        order = np.argsort(-values, kind="stable")
        return (*first.tolist(), *order[~np.isin(order, first)].tolist())

    def known_type(self, horizon: int, repeats: bool = True) -> float:
        """Return the expected reward if the type is known from the first step on, an upper bound for every policy.

        Without repeats, if sessions end early and steps differ, it is the larger value with repeats.

        Examples:
            >>> import lmab
            >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
            >>> round(bandit.known_type(2), 10), round(bandit.known_type(2, repeats=False), 10)
            (1.6, 0.95)
        """
        n_arms, horizon = self._n_distinct(horizon, repeats), whole(horizon)
        if self.step_effects is not None and not self.people_leave and not repeats:
            payoffs = self._arrays_by_steps_to_go(horizon)[0]
            assigned = [
                payoffs[np.arange(horizon), _best_assignment(payoffs[:, :, m]), m].sum() for m in range(self.n_types)
            ]
            return float(self.weights @ assigned)
        if self.step_effects is not None or (self.people_leave and repeats):
            return float(self.weights @ known_type_values(*self._arrays_by_steps_to_go(horizon), horizon).best[-1])
        if self.people_leave:
            nothing = np.zeros((1, self.n_arms), bool)
            values = known_type_values_without_repeats(self.means.T, self.stays.T, nothing, horizon)
            return float(self.weights @ values[0])
        best = -np.partition(-self.means, n_arms - 1, axis=1)[:, :n_arms]
        return horizon / n_arms * float(self.weights @ best.sum(axis=1))

    def _arrays_by_steps_to_go(self, horizon: int) -> tuple[Float[Array, "H A M"], Float[Array, "H A M"]]:
        """Return the means, and the probabilities that a session continues, with 1, 2, ..., H steps to go."""
        models, index = self.step_models(horizon)
        arrays = [
            np.array([array.T for array in each])[index[::-1]]
            for each in ([model.means for model in models], [model.stays for model in models])
        ]
        return arrays[0], arrays[1]

    def _n_distinct(self, horizon: int, repeats: bool) -> int:
        """Return the number of different arms that a fixed choice plays."""
        horizon = check_count("horizon", horizon)
        if not repeats and horizon > self.n_arms:
            raise InvalidArgument(f"horizon must be at most the {self.n_arms} arms without repeats, got {horizon}")
        return 1 if repeats else horizon

    def relabel(self, *, types: Sequence[int] | None = None, arms: Sequence[int] | None = None) -> LatentBandit:
        """Return the same bandit with type i renamed from `types[i]` and arm j from `arms[j]`."""
        weights, labels = self.weights, self.arm_labels
        if types is not None:
            weights = weights[permutation("types", types, self.n_types)]
        if arms is not None and labels is not None:
            labels = tuple(labels[j] for j in permutation("arms", arms, self.n_arms))
        left = None if self.leaving is None else take(self.leaving, types, arms)
        rewards, prior = self.rewards.relabel(types, arms), self.type_prior
        prior = prior if prior is None or types is None else prior.relabel(types)
        return replace(self, weights=weights, rewards=rewards, arm_labels=labels, leaving=left, type_prior=prior)

    def only_arms(self, arms: Iterable[int]) -> LatentBandit:
        """Return the bandit of some arms, given by number, under their existing labels.

        Examples:
            >>> import lmab
            >>> lmab.LatentBandit.bernoulli([1.0], [[0.9, 0.1, 0.5]]).only_arms([0, 2]).arm_labels
            (0, 2)
        """
        kept = [check_count(f"arms[{place}]", int(arm), minimum=0) for place, arm in enumerate(arms)]
        names = self.arm_labels or range(self.n_arms)
        labels = tuple(names[arm] for arm in kept)
        leaving = None if self.leaving is None else self.leaving[:, kept]
        return replace(self, rewards=self.rewards.only_arms(kept), arm_labels=labels, leaving=leaving)

    def with_arms(self, labels: Sequence[str | int], *, law: Any = None) -> LatentBandit:
        """Return the same bandit with new arms after the existing ones; no log has data on the new arms yet.

        Args:
            labels: names of the new arms. If the bandit has no labels, its existing arms are called 0, 1, ...
            law: reward distribution of a new arm: the probability of each value (Z,), or the mean of normal rewards. By
                default the average of the existing arms over the types. It is the same in every type, so that a reward
                of a new arm is not informative about the type. With attrition, the leaving probabilities of a new arm
                are the averages over the existing arms, by reward.


        Examples:
            >>> import lmab
            >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]])
            >>> bandit.with_arms(["new"]).means
            array([[0.9, 0.1, 0.5],
                   [0.2, 0.8, 0.5]])
        """
        labels_now: tuple[str | int, ...] = self.arm_labels or tuple(range(self.n_arms))
        new = tuple(labels)
        if not new or len({*labels_now, *new}) != len(labels_now) + len(new):
            raise InvalidArgument(f"labels must be new and distinct, got {list(labels)!r}")
        left = None if self.leaving is None else self._leaving_with_arms(len(new))
        rewards = self.rewards.with_arms(len(new), self.weights, law)
        return replace(self, rewards=rewards, arm_labels=labels_now + new, leaving=left)

    def _leaving_with_arms(self, count: int) -> Float[Array, "M B Z"]:
        """Return the leaving probabilities with `count` more arms: by value, the average over types and arms."""
        assert self.leaving is not None
        seen = np.einsum("m,maz->z", self.weights, self._leaving_column_probabilities)
        left = np.einsum("m,maz,maz->z", self.weights, self._leaving_column_probabilities, self.leaving)
        average = np.where(seen > 0, left / np.where(seen > 0, seen, 1.0), self.leaving.mean(axis=(0, 1)))
        new = np.broadcast_to(average, (self.n_types, count, len(average)))
        return np.concatenate([self.leaving, new], axis=1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the bandit to `path`; `lmab.load` restores it exactly."""
        files.write(path, self.record())

    def record(self) -> files.Record:
        labels = None if self.arm_labels is None else list(self.arm_labels)
        nested = {"rewards": self.rewards.record()}
        if self.type_prior is not None:
            nested["type_prior"] = self.type_prior.record()
        arrays = {"weights": self.weights}
        for name in _OPTIONAL:
            if getattr(self, name) is not None:
                arrays[name] = getattr(self, name)
        return files.Record("bandit", {"arm_labels": labels}, arrays, nested)

    @classmethod
    def from_record(cls, record: files.Record) -> LatentBandit:
        if record.kind != "bandit":
            raise InvalidFile(f"holds a {record.kind}, not a bandit")
        labels = record.fields["arm_labels"]
        nested = record.records["rewards"]
        if nested.kind not in FAMILIES:
            raise InvalidArgument(f"rewards must be {choices(list(FAMILIES))}, got {nested.kind!r}")
        rewards: Any = FAMILIES[nested.kind].from_record(nested)
        named = None if labels is None else tuple(labels)
        prior = record.records.get("type_prior")
        optional: dict[str, Any] = {name: record.arrays.get(name) for name in _OPTIONAL}
        optional["type_prior"] = None if prior is None else TypePrior.from_record(prior)
        return cls(record.arrays["weights"], rewards, named, **optional)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LatentBandit):
            return NotImplemented
        mine, theirs = self.rewards.record(), other.rewards.record()
        return (
            np.array_equal(self.weights, other.weights)
            and self.arm_labels == other.arm_labels
            and self.type_prior == other.type_prior
            and all(_equal(getattr(self, name), getattr(other, name)) for name in _OPTIONAL)
            and (mine.kind, mine.fields, mine.arrays.keys()) == (theirs.kind, theirs.fields, theirs.arrays.keys())
            and all(np.array_equal(mine.arrays[name], theirs.arrays[name]) for name in mine.arrays)
        )

    __hash__ = None  # type: ignore[assignment]

    def _repr_html_(self) -> str:
        rows = {
            "types": f"{self.n_types}: " + ", ".join(percent(weight) for weight in np.sort(self.weights)[:-9:-1]),
            "arms": str(self.n_arms),
            "best fixed arm": f"{self.best_fixed(1):.4g} per step",
            "best arm of a known type": f"{self.known_type(1):.4g} per step",
        }
        return card("LatentBandit", rows)

    def __repr__(self) -> str:
        weights = ", ".join(f"{weight:.3g}" for weight in self.weights[:8]) + (", ..." if self.n_types > 8 else "")
        plural = "" if self.n_types == 1 else "s"
        left = "" if self.leaving is None else ", people leave"
        prior = "" if self.type_prior is None else f", {self.type_prior!r}"
        step = "" if self.step_effects is None else f", effects of {len(self.step_effects)} steps"
        return (
            f"LatentBandit({self.n_types} type{plural}, {self.n_arms} arms, {self.rewards}{left}{step}{prior}; "
            f"weights {weights})"
        )


def bandit_of(given: Any, name: str = "bandit") -> LatentBandit:
    """Return a bandit, or the bandit of what holds one, such as an estimate; raise for anything else."""
    bandit = getattr(given, "bandit", given)
    if not isinstance(bandit, LatentBandit):
        raise InvalidArgument(
            f"{name} must be a LatentBandit, or hold one as its .bandit as an Estimate does, got a "
            f"{type(given).__name__}"
        )
    return bandit


def _checked_leaving(given: Any, rewards: Categorical | Gaussian | Counts) -> Float[Array, "M A Z"]:
    """Return the leaving probabilities as a checked, read-only array."""
    if isinstance(rewards, Gaussian):
        raise InvalidArgument(
            f"leaving must be None for {rewards}: people who leave can be modelled where rewards take finitely many "
            "values, or count; cut the rewards into bins"
        )
    array = check_array("leaving", given, ndim=3)
    wanted = (*rewards.means.shape, rewards.probabilities.shape[2] if isinstance(rewards, Categorical) else -1)
    if array.shape[:2] != wanted[:2] or wanted[2] not in (-1, array.shape[2]) or array.shape[2] == 0:
        shape = str(wanted) if wanted[2] > 0 else f"({wanted[0]}, {wanted[1]}, 1 or more)"
        raise InvalidArgument(
            f"leaving must hold one probability for each type, arm and value, {shape}, got shape {array.shape}"
        )
    if (array < 0).any() or (array > 1).any():
        where = tuple(int(i) for i in np.argwhere((array < 0) | (array > 1))[0])
        raise InvalidArgument(f"leaving must lie in [0, 1], got {array[where]} at index {where}")
    return array


def _checked_step_effects(given: Any) -> Float[Array, "H"]:
    """Return the step effects as a checked, read-only array."""
    effects = check_array("step_effects", given, ndim=1)
    if len(effects) == 0 or effects[0] != 0:
        raise InvalidArgument(
            f"step_effects must begin with 0, because effects are relative to the first step, got {effects.tolist()}: "
            "subtract the first entry"
        )
    return effects


def _equal(one: Float[Array, "..."] | None, other: Float[Array, "..."] | None) -> bool:
    """Return whether two optional arrays are equal."""
    return other is None if one is None else other is not None and np.array_equal(one, other)


def _best_assignment(payoffs: Float[Array, "H A"]) -> Integer[Array, "H"]:
    """Return the distinct arms of the H steps with the largest sum of payoffs."""
    from scipy.optimize import linear_sum_assignment

    return np.asarray(linear_sum_assignment(payoffs, maximize=True)[1], np.int64)


def _earned(bandit: LatentBandit, arms: Sequence[int]) -> float:
    """Return the expected reward of a sequence of arms until the person leaves."""
    models, index = bandit.step_models(len(arms))
    arrays, value = [(model.means, model.stays) for model in models], np.zeros(bandit.n_types)
    for arm, number in zip(reversed(arms), index[::-1].tolist(), strict=True):
        means, stays = arrays[number]
        value = means[:, arm] + stays[:, arm] * value
    return float(bandit.weights @ value)


def arm_label(arm: int, labels: tuple[str | int, ...] | None) -> str:
    """Return the display name of an arm: its label, or its number after the word "arm".

    Examples:
        >>> arm_label(1, None), arm_label(1, ("tea", "milk")), arm_label(1, (17, 42))
        ('arm 1', 'milk', 'arm 42')
    """
    name = arm if labels is None else labels[arm]
    return name if isinstance(name, str) else f"arm {name}"


def wasserstein(weights: Any, points: Any, other_weights: Any, other_points: Any) -> float:
    """Return W(gamma, gamma') of section 2.3; moving a point onto another costs their largest difference.

    Args:
        weights: (M,) of the first mixture; `points` (M, n) are its parameters nu_m, for example on a core set.
        other_weights: (K,) of the second mixture; `other_points` (K, n).


    Examples:
        >>> from lmab.model import wasserstein
        >>> round(wasserstein([0.5, 0.5], [[0.0, 1.0], [1.0, 0.0]], [1.0], [[0.5, 0.2]]), 10)
        0.65
    """
    first, second = check_array("points", points, ndim=2), check_array("other_points", other_points, ndim=2)
    if first.shape[1] != second.shape[1]:
        raise InvalidArgument(f"other_points must have {first.shape[1]} columns, got {second.shape[1]}")
    cost = np.abs(first[:, None] - second[None]).max(axis=2)
    supply, demand = (check_array("weights", one, ndim=1) for one in (weights, other_weights))
    return transport(supply, demand, cost)


def transport(supply: Float[Array, "M"], demand: Float[Array, "K"], cost: Float[Array, "M K"]) -> float:
    """Return the least cost of moving `supply` onto `demand`, a linear program over couplings (equation gamma_set)."""
    from scipy.optimize import linprog
    from scipy.sparse import eye_array, kron, vstack

    m, k = cost.shape
    leave = kron(eye_array(m), np.ones((1, k)))
    arrive = kron(np.ones((1, m)), eye_array(k))
    # The masses agree only up to rounding, so the last equation, which the others imply, is omitted.
    equations = vstack([leave, arrive]).tocsr()[:-1]
    amounts = np.concatenate([supply / supply.sum(), demand / demand.sum()])[:-1]
    answer = linprog(cost.ravel(), A_eq=equations, b_eq=amounts, bounds=(0, None), method="highs")
    if answer.status != 0:
        raise ArithmeticError(f"the transport program failed: {answer.message}")
    return max(float(answer.fun), 0.0)


_registry.register("bandit", LatentBandit)
