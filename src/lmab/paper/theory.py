"""The paper's sample sizes, accuracies and bounds as functions.

Constants hidden in O(.) are taken as 1, so the numbers are orders of magnitude of a worst case, not advice. Numbers
beyond the numeric range are infinite. Misprints are corrected; docs/erratum.md lists them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from .._shapes import Array, Float
from ..checks import check_count
from ..errors import InvalidArgument
from ..model.bins import gaussian_grid_size


def _power(base: float, exponent: float) -> float:
    """Return base ** exponent, infinite outside the numeric range."""
    try:
        return float(base) ** exponent
    except (OverflowError, ZeroDivisionError):
        return math.inf


def _sessions_for_variation(n_parameters: int, plays: int, variation: float, eta: float) -> float:
    """Return the smallest N >= (p log(plays N) + log(1 / eta)) / variation^2, the inverse of Lemma C.3."""
    n, scale = 1.0, _power(variation, -2)
    for _ in range(
        200
    ):  # upwards: the right-hand side is concave in N, so the iteration ends at its larger fixed point
        larger = scale * (n_parameters * math.log(plays * n) + math.log(1 / eta))
        if larger <= n * (1 + 1e-14):
            break
        n = larger
        if math.isinf(n):
            break
    return n


class Regime(StrEnum):
    """Kind of learning problem that a number of types and a horizon make (Figure 1 and section 1.2)."""

    BANDIT = "one bandit: H = 1 or M = 1"
    CLUSTERS = "sessions show their type: H >= A / gamma^2"
    SEPARATED = "polynomial by separation: H >= M^2 / gamma^2"
    PARAMETERS = "types can be learned: H >= 2M - 1"
    VALUES = "only values can be learned: H < 2M - 1"
    PRIOR = "a prior over bandits: M -> infinity"


@dataclass(frozen=True)
class Thresholds:
    """Regime of a problem, with the horizons from which separated types make it easier."""

    regime: Regime
    clustered_horizon: float | None  # A / gamma^2 of section 1.2, with `gamma_l2`; None: unknown A or gamma_l2
    separated_horizon: float | None  # M^2 / gamma^2 of appendix C, with `gamma`; None: unknown gamma
    identifiable_horizon: float  # 2M - 1 of section 3.2


def regime(
    n_types: float, horizon: int, *, n_arms: int | None = None, gamma: float | None = None,
    gamma_l2: float | None = None,
) -> Thresholds:  # fmt: skip
    """Classify a problem as Figure 1 does; constants and logarithms are left out, as they are there.

    The paper has two separations. `gamma` is that of Assumption C.1, the least L1 distance of two types' reward
    distributions on their most different arm (at most 2): sessions of M^2 / gamma^2 steps make the number of sessions
    polynomial. `gamma_l2` is that of section 1.2, the same with the L2 distance (at most sqrt(2)): with `n_arms`,
    sessions of A / gamma_l2^2 steps can be clustered one by one. `n_types` may be infinite: each session then draws its
    bandit from a continuous prior, which is learned, and Thompson sampling is near-optimal as H grows.

    Examples:
        >>> from lmab import theory
        >>> theory.regime(3, 40, gamma=0.5).separated_horizon
        36.0
    """
    if n_types != math.inf:
        n_types = check_count("n_types", n_types)
    horizon = check_count("horizon", horizon)
    if n_arms is not None:
        check_count("n_arms", n_arms)
    for name, value, most in (("gamma", gamma, 2.0), ("gamma_l2", gamma_l2, math.sqrt(2))):
        if value is not None and not 0 < value <= most * (1 + 1e-12):
            raise InvalidArgument(f"{name} must be in (0, {most:.4g}], got {value!r}")
    clustered = None if gamma_l2 is None or n_arms is None else n_arms / gamma_l2**2
    separated = None if gamma is None else n_types**2 / gamma**2
    if n_types == 1 or horizon == 1:
        kind = Regime.BANDIT
    elif n_types == math.inf:
        kind = Regime.PRIOR
    elif clustered is not None and horizon >= clustered:
        kind = Regime.CLUSTERS
    elif separated is not None and horizon >= separated:
        kind = Regime.SEPARATED
    else:
        kind = Regime.PARAMETERS if horizon >= 2 * n_types - 1 else Regime.VALUES
    return Thresholds(kind, clustered, separated, 2 * n_types - 1)


def planning_operations(n_types: int, n_arms: int, n_values: int, horizon: int, epsilon: float) -> float:
    """Return the cost H M A Z (H^2 / epsilon)^M of point-based value iteration (below Definition 2.3).

    The paper prints the exponent O(M), taken here as M: the number of points that cover beliefs over M types to within
    epsilon / H^2.
    """
    _check(n_types, n_arms, horizon, epsilon, 0.5, None)
    n_values = check_count("n_values", n_values, minimum=2)
    return horizon * n_types * n_arms * n_values * _power(horizon**2 / epsilon, n_types)


def identifiable(n_types: int, horizon: int) -> bool:
    """Return whether sessions are long enough to identify parameters: H >= 2M - 1 (section 3.2)."""
    return horizon >= 2 * n_types - 1


def reconstruction_error(rank: int, off_subspace: float, noise: float) -> float:
    """Return the largest error of a vector rebuilt from its core entries (Proposition 2.5).

    The vector is within `off_subspace` of the subspace, and its core entries are known to within `noise`.
    """
    return off_subspace + (off_subspace + noise) * math.sqrt(2 * rank)


def model_distance(n_types: int, n_values: int, core_distance: float) -> float:
    """Return the largest L1 distance over arms of two types if core pairs differ by `core_distance` (Cor. 3.2)."""
    return 2 * n_values * math.sqrt(2 * n_types) * core_distance


def off_subspace(moment_error: float, weight: float) -> float:
    """Return the distance of a type from the subspace of second moments with that error (Lemma 3.7)."""
    return math.sqrt(2 * moment_error / weight)


def value_gap(horizon: int, distance: float) -> float:
    """Return the largest difference of a policy's values on two bandits at this distance (Proposition 3.4).

    Rewards are in [-1, 1]. The distance is that of reward probabilities. For normal rewards see `gaussian_value_gap`.
    """
    return horizon**2 * distance


def gaussian_value_gap(horizon: int, distance: float, scale: float = 1.0, reach: float = 1.0) -> float:
    """Return the largest difference of a policy's values on two bandits with normal rewards (B.3).

    `distance` is that of the means, which lie in [-reach, reach]. The paper has scale 1 and reach 1. A smaller scale
    makes sessions easier to distinguish: histories differ by distance / scale, and values accordingly.
    """
    return 2 * horizon**2 * distance * max(1.0, reach / scale)


def value_gap_of_moments(horizon: int, n_values: int, delta: float) -> float:
    """Return the largest difference of a policy's values if moments of order H agree to delta (Lemma 3.5)."""
    return horizon * _power(n_values, horizon) * delta


def moments_from_core(n_types: int, order: int, delta: float) -> float:
    """Return how well all moments of an order agree when the core set's agree to delta (Proposition 3.6)."""
    return _power(2 * n_types, order / 2) * delta


def distance_of_moments(n_types: int, core_size: int, delta: float) -> float:
    """Return how close parameters are if moments up to order 2M - 1 agree to delta (Lemma 3.3, corrected)."""
    return n_types**3 * core_size * _power(delta, 1 / (2 * n_types - 1))


def likelihood_sessions(core_size: int, n_types: int, horizon: int, delta: float, eta: float) -> float:
    """Return the smallest N at which maximum likelihood matches every moment to delta (Lemma 4.1, corrected).

    By the proof of the lemma, moments of order l differ by at most n^l times the variation of Lemma C.3, and its
    corrected form has p = n M + M - 1 parameters: N >= n^(2 l) (p log(n H N) + log(1 / eta)) / delta^2 for
    l = min(H, 2M - 1). The printed n^min(2H+1, 4M-1) log(N / eta) / delta^2 has n in the place of p.
    """
    order = min(horizon, 2 * n_types - 1)
    variation = delta * _power(core_size, -order)
    return _sessions_for_variation(_free_parameters(core_size, n_types), core_size * horizon, variation, eta)


def likelihood_variation(core_size: int, n_types: int, horizon: int, n_sessions: float, eta: float) -> float:
    """Return the L1 distance of core plays at the maximum of the likelihood from the truth (Lemma C.3, corrected).

    It is sqrt((p log(n H N) + log(1 / eta)) / N) with p = n M + M - 1 parameters; the paper prints n + M and then n.
    """
    n_parameters = _free_parameters(core_size, n_types)
    return math.sqrt((n_parameters * math.log(core_size * horizon * n_sessions) + math.log(1 / eta)) / n_sessions)


def _free_parameters(core_size: int, n_types: int) -> int:
    """Count the free parameters of core plays: n probabilities for each type, and the weights of the types."""
    return core_size * n_types + n_types - 1


def moments_from_variation(core_size: int, order: int, variation: float) -> float:
    """Return how well moments of an order agree if laws of core plays differ by `variation` (Lemma 4.1)."""
    return _power(core_size, order) * variation


@dataclass(frozen=True)
class Budget:
    """Numbers that Algorithm 1 asks for (Theorem 3.8, or B.2 for normal rewards)."""

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
        """Return sessions of both phases, by the method of moments."""
        return self.subspace_sessions + self.tensor_sessions

    @property
    def likelihood_total(self) -> float:
        """Return the sessions of both phases if maximum likelihood replaces the moments: N0 and N of Lemma 4.1."""
        return self.subspace_sessions + self.likelihood_sessions


def core_set_size(rank: int) -> int:
    """Return n = 4 k log log k + 16, and 16 for k <= 2 (Theorem 2.4)."""
    rank = check_count("rank", rank)
    return 16 if rank <= 2 else math.floor(4 * rank * math.log(math.log(rank)) + 16)


def delta_sub(n_types: int, n_values: int, horizon: int, epsilon: float, w_min: float) -> float:
    """Return how accurate the subspace must be: equation (choice_of_delta_a)."""
    m, z, h = n_types, n_values, horizon
    if identifiable(m, h):
        return epsilon / (2 * z * m * h**2)
    smallest = w_min + epsilon / (m * h**2) * _power(z * math.sqrt(2 * m), -h)
    return min(math.sqrt(smallest), epsilon / (h * math.sqrt(m))) / (2 * z * math.sqrt(m) * h)


def delta_tsr(n_types: int, n_values: int, horizon: int, epsilon: float, core_size: int) -> float:
    """Return how accurate every moment must be: below equation (tensor_error_cond)."""
    m, z, h = n_types, n_values, horizon
    if identifiable(m, h):
        return _power(epsilon / (z * h**2 * m**3.5 * core_size), 2 * m - 1)
    return epsilon / h * _power(z * math.sqrt(2 * m), -h)


def budget(
    n_types: int, n_arms: int, horizon: int, epsilon: float, *, n_values: int = 2, eta: float = 0.1,
    w_min: float | None = None,
) -> Budget:  # fmt: skip
    """Return sessions that Theorem 3.8 asks for to be within epsilon of the optimum with probability 1 - eta.

    Examples:
        >>> from lmab import theory
        >>> theory.budget(2, 10, 3, epsilon=0.5).identifiable
        True
    """
    weight = _check(n_types, n_arms, horizon, epsilon, eta, w_min)
    n_values = check_count("n_values", n_values, minimum=2)
    n, order = core_set_size(n_types), min(horizon, 2 * n_types - 1)
    sub = delta_sub(n_types, n_values, horizon, epsilon, weight)
    tensor = delta_tsr(n_types, n_values, horizon, epsilon, n)
    return Budget(
        identifiable(n_types, horizon), order, n, sub, tensor,
        subspace_sessions=n_arms**4 * n_values**2 * math.log(n_values * n_arms / eta) * _power(sub, -4),
        sessions_per_entry=_per_entry(order, n, tensor, eta),
        tensor_sessions=sum(_power(n, i) * _per_entry(i, n, tensor, eta) for i in range(1, order + 1)),
        likelihood_sessions=likelihood_sessions(n, n_types, horizon, tensor, eta),
    )  # fmt: skip


def gaussian_budget(
    n_types: int, n_arms: int, horizon: int, epsilon: float, *, eta: float = 0.1, w_min: float | None = None
) -> Budget:
    """Return the sessions of Theorem B.2 for unit normal rewards: products of rewards, or rewards on a grid."""
    weight = _check(n_types, n_arms, horizon, epsilon, eta, w_min)
    if not identifiable(n_types, horizon):
        size = gaussian_grid_size(horizon, epsilon)
        cut = budget(n_types, n_arms, horizon, epsilon, n_values=size + 1, eta=eta, w_min=weight)
        return Budget(**{**vars(cut), "grid_size": size})
    n, order = core_set_size(n_types), 2 * n_types - 1
    sub = epsilon / (2 * n_types * horizon**2)
    tensor = _power(epsilon / (horizon**2 * n_types**3.5 * n), order)
    per_entry = [_gaussian_per_entry(i, n, tensor, eta) for i in range(1, order + 1)]
    return Budget(
        True, order, n, sub, tensor,
        subspace_sessions=n_arms**4 * math.log(n_arms / eta) * _power(sub, -4),
        sessions_per_entry=per_entry[-1],
        tensor_sessions=sum(_power(n, i) * one for i, one in enumerate(per_entry, 1)),
        likelihood_sessions=likelihood_sessions(n, n_types, horizon, tensor, eta),
    )  # fmt: skip


def printed_moment_sessions(
    n_types: int, horizon: int, epsilon: float, *, n_values: int = 2, eta: float = 0.1
) -> float:
    """Return the second term of Theorem 3.8 for H < 2M - 1 as printed: H^2 log(M / eta) (2 M Z^2)^H / epsilon^2.

    It lacks n^H, the number of multi-indices, each of which Algorithm 1 measures; `budget` counts them.
    """
    weight = math.log(n_types / eta) * horizon**2 / epsilon**2
    return weight * _power(2 * n_types * n_values**2, horizon)


def gaussian_exponent(n_types: int, horizon: int) -> int:
    """Return the power of 1/epsilon in the number of sessions with normal rewards: min(2H + 2, 4M - 2) (Remark 3.9)."""
    return min(2 * horizon + 2, 4 * n_types - 2)


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


def _log_entries(order: int, core_size: int, eta: float) -> float:
    """Return log(l n^l / eta)."""
    return math.log(order / eta) + order * math.log(core_size)


def _per_entry(order: int, core_size: int, delta: float, eta: float) -> float:
    return _log_entries(order, core_size, eta) * _power(delta, -2)


def _gaussian_per_entry(order: int, core_size: int, delta: float, eta: float) -> float:
    return _power(order * _log_entries(order, core_size, eta), order) * _power(delta, -2)


def separation(distances: Float[Array, "M M"]) -> float:
    """Return gamma of Assumption C.1: the least of `bandit.rewards.distances(bandit.rewards)` of two types."""
    apart = distances[~np.eye(len(distances), dtype=bool)]
    return float(apart.min()) if len(apart) else math.inf


def core_separation(n_types: int, n_values: int, gamma: float) -> float:
    """Return the least distance on some core pair of two types that are separated by gamma (appendix C)."""
    return gamma / (n_values * math.sqrt(2 * n_types))


def session_shows_type(core_size: int, horizon: int, apart: float) -> float:
    """Return the least probability that core plays are within apart / 8 of their type everywhere (Lemma C.4).

    Types are `apart` on some core pair. An arm is played at least H / (2n) times but for exp(-H / (16 n)), and is
    then within apart / 8 but for 2 exp(-apart^2 H / (64 n)); the paper prints the second without the factor 2.
    """
    close = max(1 - 2 * math.exp(-(apart**2) * horizon / (64 * core_size)), 0.0)
    enough = 1 - math.exp(-horizon / (16 * core_size))
    return max(1 - core_size * (1 - close * enough), 0.0)


def separated_horizon(core_size: int, n_types: int, n_values: int, gamma: float, epsilon: float, w_min: float) -> float:
    """Return the horizon from which separation gamma makes the sample size polynomial (appendix C)."""
    return core_size * n_types * n_values**2 * math.log(1 / (epsilon * w_min)) / gamma**2


def separated_sessions(core_size: int, n_types: int, horizon: int, epsilon: float, w_min: float, eta: float) -> float:
    """Return the smallest N from which maximum likelihood is accurate for separated types (Lemma C.2, corrected).

    The proof needs the variation of Lemma C.3 to be at most epsilon w_min / 2.
    """
    n_parameters = _free_parameters(core_size, n_types)
    return _sessions_for_variation(n_parameters, core_size * horizon, epsilon * w_min / 2, eta)


@dataclass(frozen=True)
class SeparatedErrors:
    """Guarantee of Lemma C.2 for the likelihood's maximum on core plays, up to the order of the types."""

    epsilon: float  # 1 or more: the sessions or the steps are too few, and nothing is promised
    weights: float  # largest |w_m - w'_m|: epsilon w_min
    core: float  # largest difference of nu_m and nu'_m on a core pair: 2 epsilon
    wasserstein: float  # largest distance of section 2.3: 3 epsilon, from the two above


def separated_errors(
    core_size: int, n_types: int, n_values: int, horizon: int, n_sessions: float, gamma: float, *, w_min: float,
    eta: float = 0.1,
) -> SeparatedErrors:  # fmt: skip
    """Return both bounds of Lemma C.2, with the least epsilon for which N and H are large enough.

    The variation of Lemma C.3 must be at most epsilon w_min / 2, and H at least `separated_horizon` at that epsilon.
    """
    by_sessions = 2 * likelihood_variation(core_size, n_types, horizon, n_sessions, eta) / w_min
    by_steps = math.exp(-(gamma**2) * horizon / (core_size * n_types * n_values**2)) / w_min
    epsilon = max(by_sessions, by_steps)
    return SeparatedErrors(epsilon, epsilon * w_min, 2 * epsilon, 3 * epsilon)
