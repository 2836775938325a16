"""Measurements of rates that the paper argues and nobody has plotted: parameters, sampling, perturbed types.

Parameters: sessions of one arm with H = 2M - 1 steps are counts of successes, a mixture of M binomial distributions,
with 2M - 1 moments that only M points match. Logs are drawn as histograms, so their size costs nothing.

Values: with two arms and H < 2M - 1 steps the most likely parameters are not unique, but all of them give every policy
nearly its true value.

Sampling: a moment of order l in coordinates of the subspace is a mean of products of l weighted rewards, and its
standard error is known exactly. So is that of a moment of the core set.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import comb, expit, log_softmax, logit, logsumexp

from ..._shapes import Array, Float
from ...model.bandit import LatentBandit, wasserstein
from ...model.categorical import Categorical
from ...moments.core_set import design
from ...moments.second import Subspace

_REPLICATES = 10  # logs in one trial, over which errors are averaged
_STARTS = 2  # of the search for the maximum of a likelihood
_EDGE = 1e-9  # probabilities stay this far from 0 and 1


def apart(n_types: int, n_arms: int, separation: float) -> LatentBandit:
    """Return types of equal weight at 1/2 - s, 1/2 + s and between; every second arm has them in reverse order."""
    places = np.linspace(-1, 1, n_types)[:, None] * np.where(np.arange(n_arms) % 2, -1.0, 1.0)
    return LatentBandit.bernoulli(np.full(n_types, 1 / n_types), 0.5 + separation * places)


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Kinds of sessions under uniform play, by the counts of plays and of rewards of each arm."""

    plays: Float[Array, "k A"]
    paid: Float[Array, "k A"]
    log_number: Float[Array, "k"]  # log probability of the plays, times the number of orders of the rewards

    @classmethod
    def of(cls, n_arms: int, horizon: int) -> Outcomes:
        """Return every kind of session of `horizon` steps."""
        plays, paid = [], []
        for counts in itertools.product(range(horizon + 1), repeat=n_arms):
            if sum(counts) == horizon:
                for ones in itertools.product(*(range(count + 1) for count in counts)):
                    plays.append(counts)
                    paid.append(ones)
        played, rewarded = np.array(plays, float), np.array(paid, float)
        arrangements = np.array([_multinomial(counts) for counts in plays]) * comb(played, rewarded).prod(axis=1)
        return cls(played, rewarded, np.log(arrangements) - horizon * np.log(n_arms))

    def log_probabilities(self, weights: Float[Array, "M"], means: Float[Array, "M A"]) -> Float[Array, "k"]:
        """Return the log probability of each kind under a bandit."""
        means = np.clip(means, _EDGE, 1 - _EDGE)
        by_type = self.paid @ np.log(means).T + (self.plays - self.paid) @ np.log1p(-means).T
        return self.log_number + np.asarray(logsumexp(by_type, b=weights, axis=1))


def _multinomial(counts: Sequence[int]) -> float:
    ways, left = 1.0, sum(counts)
    for count in counts:
        ways *= float(comb(left, count))
        left -= count
    return ways


def most_likely(
    outcomes: Outcomes, shares: Float[Array, "k"], n_types: int, rng: np.random.Generator
) -> tuple[Float[Array, "M"], Float[Array, "M A"]]:
    """Return weights and means of the mixture with `n_types` types that makes these shares of outcomes most likely."""
    n_arms = outcomes.plays.shape[1]
    seen = shares > 0
    kinds = Outcomes(outcomes.plays[seen], outcomes.paid[seen], outcomes.log_number[seen])
    observed_shares = shares[seen]
    failed = kinds.plays - kinds.paid

    def loss(vector: Float[Array, "p"]) -> tuple[float, Float[Array, "p"]]:
        log_weights = np.asarray(log_softmax(vector[:n_types]))
        levels = vector[n_types:].reshape(n_types, n_arms)
        means = expit(levels)
        joint = log_weights - kinds.paid @ np.logaddexp(0, -levels).T - failed @ np.logaddexp(0, levels).T
        total = np.asarray(logsumexp(joint, axis=1))
        posterior = np.exp(joint - total[:, None]) * observed_shares[:, None]
        mass = posterior.sum(axis=0)
        slopes = posterior.T @ kinds.paid - (posterior.T @ kinds.plays) * means
        gradient = np.concatenate([mass - np.exp(log_weights), slopes.ravel()])
        return -float(observed_shares @ total), -gradient

    middle = logit(
        np.clip((observed_shares @ kinds.paid) / np.maximum(observed_shares @ kinds.plays, _EDGE), 1e-3, 1 - 1e-3)
    )
    best: Any = None
    for _ in range(_STARTS):
        start = np.concatenate([np.zeros(n_types), (middle + rng.normal(0, 0.7, (n_types, n_arms))).ravel()])
        result = minimize(loss, start, jac=True, method="L-BFGS-B",
                          options={"maxiter": 1000, "ftol": 1e-13, "gtol": 1e-9})  # fmt: skip
        if best is None or result.fun < best.fun:
            best = result
    return np.exp(log_softmax(best.x[:n_types])), expit(best.x[n_types:]).reshape(n_types, n_arms)


def quadrature(moments: Float[Array, "n"]) -> tuple[Float[Array, "M"], Float[Array, "M"]] | None:
    """Return the weights and the M points that have moments of orders 0 to 2M - 1; None if there are none.

    The points are the eigenvalues of the Jacobi matrix of the orthogonal polynomials (Golub and Welsch, 1969).
    """
    orders = np.arange(len(moments) // 2)
    try:
        root = np.linalg.cholesky(moments[orders[:, None] + orders])
    except np.linalg.LinAlgError:
        return None
    jacobi = np.linalg.solve(root, np.linalg.solve(root, moments[orders[:, None] + orders + 1]).T)
    points, vectors = np.linalg.eigh((jacobi + jacobi.T) / 2)
    return moments[0] * vectors[0] ** 2, points


def one_arm_mixture(counts: Float[Array, "n"], n_types: int) -> tuple[Float[Array, "K"], Float[Array, "K"]]:
    """Return weights and points that match the moments of one arm; `counts` has the sessions with 0, ... H successes.

    Sampled moments may belong to no distribution on [0, 1]. Then as many points are taken as moments allow.
    """
    shares, horizon = counts / counts.sum(), len(counts) - 1
    paid, orders = np.arange(horizon + 1), np.arange(2 * n_types)
    raw = np.array([shares @ (comb(paid, order) / comb(horizon, order)) for order in orders])
    # Standardised moments, so that close types do not drown in rounding.
    centred = np.array([comb(order, orders[: order + 1]) @ (raw[: order + 1] * (-raw[1]) ** orders[order::-1])
                        for order in orders])  # fmt: skip
    unit = float(np.sqrt(max(centred[2], 0.0)))
    for n_points in range(n_types, 1, -1) if unit > 0 else ():
        mixture = quadrature((centred / unit**orders)[: 2 * n_points])
        if mixture is not None:
            points = raw[1] + unit * mixture[1]
            if points.min() >= 0 and points.max() <= 1:
                return mixture[0], points
    return np.ones(1), raw[1:2]


def parameter_error(bandit: LatentBandit, horizon: int, n_sessions: int, rng: np.random.Generator) -> float:
    """Return the mean Wasserstein distance of section 2.3 of parameters that match the moments of one arm."""
    outcomes = Outcomes.of(1, horizon)
    law = np.exp(outcomes.log_probabilities(bandit.weights, bandit.means))
    errors = []
    for counts in rng.multinomial(n_sessions, law / law.sum(), size=_REPLICATES):
        weights, points = one_arm_mixture(counts.astype(float), bandit.n_types)
        errors.append(wasserstein(bandit.weights, bandit.means, weights / weights.sum(), points[:, None]))
    return float(np.mean(errors))


def value_error(bandit: LatentBandit, horizon: int, n_sessions: int, rng: np.random.Generator) -> float:
    """Return the mean over logs of the largest error of the most likely model in the value of any policy."""
    outcomes = Outcomes.of(bandit.n_arms, horizon)
    law = np.exp(outcomes.log_probabilities(bandit.weights, bandit.means))
    errors = []
    for counts in rng.multinomial(n_sessions, law / law.sum(), size=_REPLICATES):
        weights, means = most_likely(outcomes, counts / n_sessions, bandit.n_types, rng)
        errors.append(largest_value_difference(bandit.weights, bandit.means, weights, means, horizon))
    return float(np.mean(errors))


def largest_value_difference(
    weights: Float[Array, "M"], means: Float[Array, "M A"], other_weights: Float[Array, "K"],
    other_means: Float[Array, "K A"], horizon: int,
) -> float:  # fmt: skip
    """Return the largest difference of the values of one policy on two bandits, over all policies, by enumeration.

    The difference is linear in the policy's choices at each history, so backward induction over histories maximises
    it, once in each direction.
    """
    joint = np.concatenate([weights, -other_weights])
    levels = np.concatenate([means, other_means])

    def best(mass: Float[Array, "n"], left: int, sign: float) -> float:
        if left == 0:
            return 0.0
        return max(
            sign * float(mass @ levels[:, arm])
            + best(mass * levels[:, arm], left - 1, sign)
            + best(mass * (1 - levels[:, arm]), left - 1, sign)
            for arm in range(levels.shape[1])
        )

    return max(best(joint, horizon, 1.0), best(joint, horizon, -1.0))


def coordinate_error(bandit: LatentBandit, order: int, n_sessions: int, *, rebuilt: bool) -> float:
    """Return the standard error of moments that are sampled in coordinates of the subspace (section 3.1).

    For each multi-index of an orthonormal basis, `n_sessions` sessions play an arm with probability proportional to
    sum_z |beta_j(a, z)| at each step. The result is the largest standard error, over multi-indices or, if `rebuilt`,
    over the moments of arms that follow from them.
    """
    table, basis = _spanned(bandit)
    n_values = table.shape[1] // bandit.n_arms
    sizes = np.abs(basis).reshape(bandit.n_arms, n_values, -1).sum(axis=1)  # (A, k)
    norms = sizes.sum(axis=0)
    # One step's estimate of mu_m . beta_j, if arm a paid z, is norm_j beta_j(a, z) / sizes_j(a).
    squares = norms * (table @ (basis**2 / np.maximum(np.repeat(sizes, n_values, axis=0), 1e-300)))  # (M, k)
    variances = _variances(bandit.weights, squares, table @ basis, order)
    if rebuilt:
        rows = basis[_telling(basis)] ** 2
        for axis in range(order):
            variances = np.moveaxis(np.tensordot(variances, rows, axes=([axis], [1])), -1, axis)
    return float(np.sqrt(variances.max() / n_sessions))


def core_error(bandit: LatentBandit, order: int, n_sessions: int) -> float:
    """Return the largest standard error of moments of arms that are rebuilt from the core set."""
    table, basis = _spanned(bandit)
    assert isinstance(bandit.rewards, Categorical)
    core = design(Subspace(basis, np.ones(basis.shape[1]), bandit.n_arms, bandit.rewards.values))
    columns = [arm * len(bandit.rewards.values) + bandit.rewards.values.tolist().index(z) for arm, z in core.pairs]
    seen = table[:, columns]
    variances = _variances(bandit.weights, seen, seen, order)
    rows = core.reconstruction[_telling(basis)] ** 2
    for axis in range(order):
        variances = np.moveaxis(np.tensordot(variances, rows, axes=([axis], [1])), -1, axis)
    return float(np.sqrt(variances.max() / n_sessions))


_TELLING = 12  # rebuilt rows: the rows with the largest norm in the basis have the largest errors


def _telling(basis: Float[Array, "D k"]) -> Any:
    return np.argsort(-np.linalg.norm(basis, axis=1), kind="stable")[:_TELLING]


def _spanned(bandit: LatentBandit) -> tuple[Float[Array, "M D"], Float[Array, "D k"]]:
    """Return the probabilities of all (arm, value) pairs by type, and an orthonormal basis of their span."""
    assert isinstance(bandit.rewards, Categorical)
    table = bandit.rewards.table.T
    left, singular, _ = np.linalg.svd(table.T, full_matrices=False)
    return table, left[:, singular > 1e-9 * singular[0]]


def _variances(
    weights: Float[Array, "M"], squares: Float[Array, "M n"], firsts: Float[Array, "M n"], order: int
) -> Any:
    """Return the variances of products of `order` independent steps, for all multi-indices: E[x^2] - E[x]^2."""
    second, first = weights, weights
    for _ in range(order):
        second, first = second[..., None] * _beside(squares, second), first[..., None] * _beside(firsts, first)
    return second.sum(axis=0) - first.sum(axis=0) ** 2


def _beside(factors: Float[Array, "M n"], tensor: Any) -> Any:
    """Return the factors of one step with as many axes as the tensor will have."""
    return factors.reshape(len(factors), *(1,) * (tensor.ndim - 1), factors.shape[1])
