"""Budgets: the accuracies and sessions that Algorithm 1 asks for (Theorems 3.8 and B.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .._shapes import Array, Float
from ..checks import check_count
from ..errors import InvalidArgument
from .likelihood import likelihood_sessions
from .numbers import power
from .regimes import identifiable


@dataclass(frozen=True)
class Budget:
    """What Algorithm 1 asks for (Theorem 3.8, or B.2 for normal rewards)."""

    identifiable: bool  # horizon >= 2M - 1: parameters, not only values, can be learned
    order: int  # highest moment that is matched, min(H, 2M - 1)
    core_size: int  # n, the number of core pairs
    delta_sub: float  # accuracy of the subspace, equation (choice_of_delta_a)
    delta_tsr: float  # accuracy of every moment, section 3.4
    subspace_sessions: float  # N0 of Lemma 3.7
    sessions_per_entry: float  # N1, for every multi-index
    tensor_sessions: float  # N1 for all multi-indices of all orders
    likelihood_sessions: float  # N of Lemma 4.1 to match the same moments by maximum likelihood
    grid_size: int | None = None  # values into which normal rewards are cut (appendix B.2); None: not cut

    @property
    def total(self) -> float:
        """Sessions of both phases."""
        return self.subspace_sessions + self.tensor_sessions


def core_set_size(rank: int) -> int:
    """n = 4 k log log k + 16, and 16 for k <= 2 (Theorem 2.4)."""
    check_count("rank", rank)
    return 16 if rank <= 2 else math.floor(4 * rank * math.log(math.log(rank)) + 16)


def delta_sub(n_types: int, n_values: int, horizon: int, epsilon: float, w_min: float) -> float:
    """How accurate the subspace must be: equation (choice_of_delta_a)."""
    m, z, h = n_types, n_values, horizon
    if identifiable(m, h):
        return epsilon / (2 * z * m * h**2)
    smallest = w_min + epsilon / (m * h**2) * power(z * math.sqrt(2 * m), -h)
    return min(math.sqrt(smallest), epsilon / (h * math.sqrt(m))) / (2 * z * math.sqrt(m) * h)


def delta_tsr(n_types: int, n_values: int, horizon: int, epsilon: float, core_size: int) -> float:
    """How accurate every moment must be: below equation (tensor_error_cond)."""
    m, z, h = n_types, n_values, horizon
    if identifiable(m, h):
        return power(epsilon / (z * h**2 * m**3.5 * core_size), 2 * m - 1)
    return epsilon / h * power(z * math.sqrt(2 * m), -h)


def budget(
    n_types: int, n_arms: int, horizon: int, epsilon: float, *, n_values: int = 2, eta: float = 0.1,
    w_min: float | None = None,
) -> Budget:  # fmt: skip
    """Sessions that Theorem 3.8 asks for to be within epsilon of the optimum with probability 1 - eta.

    Examples:
        >>> from lmab import theory
        >>> theory.budget(2, 10, 3, epsilon=0.5).identifiable
        True
    """
    weight = _check(n_types, n_arms, horizon, epsilon, eta, w_min)
    check_count("n_values", n_values, minimum=2)
    n, order = core_set_size(n_types), min(horizon, 2 * n_types - 1)
    sub = delta_sub(n_types, n_values, horizon, epsilon, weight)
    tensor = delta_tsr(n_types, n_values, horizon, epsilon, n)
    return Budget(
        identifiable(n_types, horizon), order, n, sub, tensor,
        subspace_sessions=n_arms**4 * n_values**2 * math.log(n_values * n_arms / eta) * power(sub, -4),
        sessions_per_entry=_per_entry(order, n, tensor, eta),
        tensor_sessions=sum(power(n, i) * _per_entry(i, n, tensor, eta) for i in range(1, order + 1)),
        likelihood_sessions=likelihood_sessions(n, n_types, horizon, tensor, eta),
    )  # fmt: skip


def gaussian_budget(
    n_types: int, n_arms: int, horizon: int, epsilon: float, *, eta: float = 0.1, w_min: float | None = None
) -> Budget:
    """Sessions that Theorem B.2 asks for with unit normal rewards: products of rewards, or rewards cut on a grid."""
    weight = _check(n_types, n_arms, horizon, epsilon, eta, w_min)
    if not identifiable(n_types, horizon):
        size = _grid(horizon, epsilon)[1]
        cut = budget(n_types, n_arms, horizon, epsilon, n_values=size + 1, eta=eta, w_min=weight)
        return Budget(**{**vars(cut), "grid_size": size})
    n, order = core_set_size(n_types), 2 * n_types - 1
    sub = epsilon / (2 * n_types * horizon**2)
    tensor = power(epsilon / (horizon**2 * n_types**3.5 * n), order)
    per_entry = [_gaussian_per_entry(i, n, tensor, eta) for i in range(1, order + 1)]
    return Budget(
        True, order, n, sub, tensor,
        subspace_sessions=n_arms**4 * math.log(n_arms / eta) * power(sub, -4),
        sessions_per_entry=per_entry[-1],
        tensor_sessions=sum(power(n, i) * one for i, one in enumerate(per_entry, 1)),
        likelihood_sessions=likelihood_sessions(n, n_types, horizon, tensor, eta),
    )  # fmt: skip


def printed_moment_sessions(
    n_types: int, horizon: int, epsilon: float, *, n_values: int = 2, eta: float = 0.1
) -> float:
    """The second term of Theorem 3.8 for H < 2M - 1 as printed: H^2 log(M / eta) (2 M Z^2)^H / epsilon^2.

    It lacks n^H, the number of multi-indices, each of which Algorithm 1 measures; `budget` counts them.
    """
    weight = math.log(n_types / eta) * horizon**2 / epsilon**2
    return weight * power(2 * n_types * n_values**2, horizon)


def gaussian_exponent(n_types: int, horizon: int) -> int:
    """The power of 1/epsilon in the number of sessions with normal rewards: min(2H + 2, 4M - 2) (Remark 3.9)."""
    return min(2 * horizon + 2, 4 * n_types - 2)


def gaussian_grid(horizon: int, epsilon: float) -> Float[Array, "Z"]:
    """The grid of appendix B.2: from -4 sqrt(log(H / epsilon)) upwards in steps of epsilon / H^2."""
    start, size = _grid(horizon, epsilon)
    return start + np.arange(size) * epsilon / horizon**2


def _check(n_types: int, n_arms: int, horizon: int, epsilon: float, eta: float, w_min: float | None) -> float:
    for name, value in (("n_types", n_types), ("n_arms", n_arms), ("horizon", horizon)):
        check_count(name, value)
    for name, number in (("epsilon", epsilon), ("eta", eta)):
        if not 0 < number < (horizon if name == "epsilon" else 1):
            limit = "horizon" if name == "epsilon" else "1"
            raise InvalidArgument(f"{name} must be in (0, {limit}), got {number!r}")
    weight = 1 / n_types if w_min is None else w_min
    if not 0 < weight <= 1 / n_types + 1e-12:
        raise InvalidArgument(f"w_min must be in (0, 1/{n_types}], got {w_min!r}")
    return weight


def _grid(horizon: int, epsilon: float) -> tuple[float, int]:
    """Where the grid of appendix B.2 starts, and how many points it has."""
    if not 0 < epsilon < horizon:
        raise InvalidArgument(f"epsilon must be in (0, horizon), got {epsilon!r}")
    edge = math.sqrt(math.log(horizon / epsilon))
    return -4 * edge, math.floor(8 * horizon**2 * edge / epsilon)


def _log_entries(order: int, core_size: int, eta: float) -> float:
    """log(l n^l / eta)."""
    return math.log(order / eta) + order * math.log(core_size)


def _per_entry(order: int, core_size: int, delta: float, eta: float) -> float:
    return _log_entries(order, core_size, eta) * power(delta, -2)


def _gaussian_per_entry(order: int, core_size: int, delta: float, eta: float) -> float:
    return power(order * _log_entries(order, core_size, eta), order) * power(delta, -2)
