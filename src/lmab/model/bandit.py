"""LatentBandit: weights of the types and what each arm pays in each type (Definition 2.1 of the paper)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import files
from .._html import card, percent
from .._shapes import Array, Float
from ..checks import check_array, check_count, check_distribution
from ..errors import InvalidArgument, InvalidFile
from ..files import Record
from .categorical import Categorical
from .gaussian import Gaussian
from .rewards import permutation


@dataclass(frozen=True, eq=False)
class LatentBandit:
    """A latent bandit: each session draws a hidden type, which stays for the whole session.

    Make one with `LatentBandit.bernoulli`, `LatentBandit.categorical` or `LatentBandit.gaussian`.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> bandit
        LatentBandit(2 types, 2 arms, rewards in {0, 1}; weights 0.5, 0.5)
        >>> bandit.means[1, 1]
        np.float64(0.7)
    """

    weights: Float[Array, "M"]  # probability of each type: the paper's w_m
    rewards: Categorical | Gaussian
    arm_labels: tuple[str | int, ...] | None = None  # what the arms are called in the log they were learned from

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

    @classmethod
    def bernoulli(cls, weights: Any, means: Any) -> LatentBandit:
        """Rewards 0 and 1: `weights` (M,) and `means` (M, A)."""
        return cls(weights, Categorical.bernoulli(means))

    @classmethod
    def categorical(cls, weights: Any, probabilities: Any, values: Any) -> LatentBandit:
        """Rewards on finitely many `values` (Z,), with `probabilities` (M, A, Z)."""
        return cls(weights, Categorical(probabilities, values))

    @classmethod
    def gaussian(cls, weights: Any, means: Any, scale: float = 1.0) -> LatentBandit:
        """Normal rewards with `means` (M, A) and one standard deviation."""
        return cls(weights, Gaussian(means, scale))

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
    def by_size(self) -> list[int]:
        """The types, the most frequent first: pages and commands number types 1, 2, ... in this order.

        Examples:
            >>> import lmab
            >>> lmab.LatentBandit.bernoulli([0.2, 0.5, 0.3], [[0.9], [0.1], [0.5]]).by_size
            [1, 2, 0]
        """
        return np.argsort(-self.weights, kind="stable").tolist()

    def label(self, arm: int) -> str:
        """What an arm is called: its name in the log, or `arm 3`.

        Examples:
            >>> import lmab
            >>> lmab.LatentBandit.bernoulli([1.0], [[0.9, 0.5]]).label(1)
            'arm 1'
        """
        return arm_label(arm, self.arm_labels)

    def distance(self, other: LatentBandit) -> float:
        """Wasserstein distance between the two mixtures of types (section 2.3 of the paper).

        The cost of moving one type onto another is the largest L1 distance between their reward distributions
        over the arms (Gaussian: the largest difference of means). By Proposition 3.4, the values of every policy on
        the two bandits differ by at most horizon**2 times this distance, for rewards within [-1, 1].

        Examples:
            >>> import lmab
            >>> bandit = lmab.LatentBandit.bernoulli([0.25, 0.75], [[0.9, 0.1], [0.2, 0.7]])
            >>> bandit.distance(bandit.relabel(types=[1, 0]))
            0.0
        """
        if self.rewards.family != other.rewards.family or self.n_arms != other.n_arms:
            raise InvalidArgument(f"other must have the same reward family and number of arms as {self}, got {other}")
        return transport(self.weights, other.weights, self.rewards.distances(other.rewards))  # type: ignore[arg-type]

    def best_fixed(self, horizon: int, repeats: bool = True) -> float:
        """What a session earns with the best fixed choice, which ignores rewards.

        This choice is the best arm at every step, or without repeats the best list of different arms.

        Examples:
            >>> import lmab
            >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
            >>> round(bandit.best_fixed(2), 10), round(bandit.best_fixed(2, repeats=False), 10)
            (1.1, 0.95)
        """
        arms = self.best_fixed_arms(horizon, repeats)
        return horizon / len(arms) * float((self.weights @ self.means)[list(arms)].sum())

    def best_fixed_arms(self, horizon: int, repeats: bool = True) -> tuple[int, ...]:
        """The arms of the best fixed choice: one arm, or without repeats `horizon` different arms, the best first."""
        n_arms = self._n_distinct(horizon, repeats)
        return tuple(np.argsort(-(self.weights @ self.means), kind="stable")[:n_arms].tolist())

    def known_type(self, horizon: int, repeats: bool = True) -> float:
        """What a session earns when its type is known from the first step on: no policy earns more.

        Examples:
            >>> import lmab
            >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
            >>> round(bandit.known_type(2), 10), round(bandit.known_type(2, repeats=False), 10)
            (1.6, 0.95)
        """
        n_arms = self._n_distinct(horizon, repeats)
        best = -np.partition(-self.means, n_arms - 1, axis=1)[:, :n_arms]
        return horizon / n_arms * float(self.weights @ best.sum(axis=1))

    def _n_distinct(self, horizon: int, repeats: bool) -> int:
        """How many different arms a fixed choice plays."""
        check_count("horizon", horizon)
        if not repeats and horizon > self.n_arms:
            raise InvalidArgument(f"horizon must be at most the {self.n_arms} arms without repeats, got {horizon}")
        return 1 if repeats else horizon

    def relabel(self, *, types: Sequence[int] | None = None, arms: Sequence[int] | None = None) -> LatentBandit:
        """The same bandit with type i renamed from `types[i]` and arm j from `arms[j]`."""
        weights, labels = self.weights, self.arm_labels
        if types is not None:
            weights = weights[permutation("types", types, self.n_types)]
        if arms is not None and labels is not None:
            labels = tuple(labels[j] for j in permutation("arms", arms, self.n_arms))
        return LatentBandit(weights, self.rewards.relabel(types, arms), labels)

    def with_arms(self, labels: Sequence[str | int], *, law: Any = None) -> LatentBandit:
        """The same bandit with new arms after its own, of which no log tells anything yet.

        Args:
            labels: names of the new arms. A bandit without labels calls its own arms 0, 1, ...
            law: what a new arm pays: the probability of each value (Z,), or the mean of normal rewards. By default
                the average of the arms that there are, over the types. It is the same in every type, so that a
                reward of a new arm tells nothing about the type.

        Examples:
            >>> import lmab
            >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.8]])
            >>> bandit.with_arms(["new"]).means
            array([[0.9, 0.1, 0.5],
                   [0.2, 0.8, 0.5]])
        """
        own: tuple[str | int, ...] = tuple(range(self.n_arms)) if self.arm_labels is None else self.arm_labels
        new = tuple(labels)
        if not new or len({*own, *new}) != len(own) + len(new):
            raise InvalidArgument(f"labels must be new and distinct, got {list(labels)!r}")
        return LatentBandit(self.weights, self.rewards.with_arms(len(new), self.weights, law), own + new)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to `path`; `lmab.load` gives the same bandit back, to the bit."""
        files.write(path, self.record())

    def record(self) -> files.Record:
        labels = None if self.arm_labels is None else list(self.arm_labels)
        nested = {"rewards": self.rewards.record()}
        return files.Record("bandit", {"arm_labels": labels}, {"weights": self.weights}, nested)

    @classmethod
    def from_record(cls, record: files.Record) -> LatentBandit:
        if record.kind != "bandit":
            raise InvalidFile(f"holds a {record.kind}, not a bandit")
        labels = record.fields["arm_labels"]
        rewards = restore(record.records["rewards"])
        return cls(record.arrays["weights"], rewards, None if labels is None else tuple(labels))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LatentBandit):
            return NotImplemented
        mine, theirs = self.rewards.record(), other.rewards.record()
        return (
            np.array_equal(self.weights, other.weights)
            and self.arm_labels == other.arm_labels
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
        return f"LatentBandit({self.n_types} type{plural}, {self.n_arms} arms, {self.rewards}; weights {weights})"


def arm_label(arm: int, labels: tuple[str | int, ...] | None) -> str:
    """What an arm is called: text by itself, a number with the word before it.

    Examples:
        >>> arm_label(1, None), arm_label(1, ("tea", "milk")), arm_label(1, (17, 42))
        ('arm 1', 'milk', 'arm 42')
    """
    name = arm if labels is None else labels[arm]
    return name if isinstance(name, str) else f"arm {name}"


def wasserstein(weights: Any, points: Any, other_weights: Any, other_points: Any) -> float:
    """W(gamma, gamma') of section 2.3: the cost of moving a point onto another is their largest difference.

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
    """Least cost of moving `supply` onto `demand`: the linear program over couplings, equation (gamma_set)."""
    from scipy.optimize import linprog
    from scipy.sparse import eye_array, kron, vstack

    m, k = cost.shape
    leave = kron(eye_array(m), np.ones((1, k)))
    arrive = kron(np.ones((1, m)), eye_array(k))
    # The masses agree up to rounding only, so the last, implied, equation is left out.
    equations = vstack([leave, arrive]).tocsr()[:-1]
    amounts = np.concatenate([supply / supply.sum(), demand / demand.sum()])[:-1]
    answer = linprog(cost.ravel(), A_eq=equations, b_eq=amounts, bounds=(0, None), method="highs")
    if answer.status != 0:
        raise ArithmeticError(f"the transport program failed: {answer.message}")
    return max(float(answer.fun), 0.0)


def restore(record: Record) -> Categorical | Gaussian:
    """The family that `record` describes."""
    if record.kind == "categorical":
        return Categorical(record.arrays["probabilities"], record.arrays["values"], record.arrays.get("edges"))
    if record.kind == "gaussian":
        return Gaussian(record.arrays["means"], float.fromhex(record.fields["scale"]))
    raise InvalidArgument(f"rewards must be 'categorical' or 'gaussian', got {record.kind!r}")
