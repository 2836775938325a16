"""Observations that are at least as informative as continuous rewards: the value with them is an upper bound.

A reward between two ends is replaced by one of the ends, or by the type itself. In a one-parameter exponential family
two weights, positive between the ends, write the densities of the types with the smallest and the largest mean as sums
of those at the ends. The densities of the other types lie above these sums (docs/information-bound.md), and what is
left reveals the type. The reward can be simulated from such an observation, so no policy needs the reward itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._shapes import Array, Float

_SAFE = 1e-12  # by which the ends are observed less often, so that rounding cannot make them less informative
_REACH = 6.0  # standard deviations beyond the outermost means between which ends lie
_GRID = 2001  # points at which the mixture is evaluated to place the ends
_FAR = 8.0  # standard deviations above the largest mean count up to which counts are distinguished


def informative_normal(
    means: Float[Array, "A M"], scales: Float[Array, "A"], weights: Float[Array, "M"], bins: int
) -> Float[Array, "D M"]:
    """Return the likelihoods of the observations of every arm: `bins` - 1 ends, then the M types."""
    arms = zip(means, scales.tolist(), strict=True)
    return np.concatenate([_normal_arm(arm, scale, _ends(arm, scale, weights, bins)) for arm, scale in arms])


def _ends(means: Float[Array, "M"], scale: float, weights: Float[Array, "M"], bins: int) -> Float[Array, "E"]:
    """Return ends as dense as the cube root of the mixture: the loss in a bin is its mass times its width squared."""
    y = np.linspace(means.min() - _REACH * scale, means.max() + _REACH * scale, _GRID)
    density = np.exp(-(((y[:, None] - means) / scale) ** 2) / 2) @ weights
    share = np.cumsum(np.cbrt(density))
    return np.interp(np.arange(1, bins) / bins, share / share[-1], y)


def _normal_arm(means: Float[Array, "M"], scale: float, ends: Float[Array, "E"]) -> Float[Array, "Z M"]:
    if np.ptp(means) == 0:
        return _uninformative(len(ends), len(means))
    z = (ends[:, None] - means) / scale
    outer = z[:, [means.argmin(), means.argmax()]]
    left, right = outer[:-1], outer[1:]
    at_left, at_right = _split(_relative_mass(left, right, left), (left**2 - right**2) / 2)
    weights = np.append(at_left, 0.0) + np.append(0.0, at_right)
    weights[0] += _relative_mass(-np.inf, outer[0, 1], outer[0, 1]) * (1 - _SAFE)
    weights[-1] += _relative_mass(outer[-1, 0], np.inf, outer[-1, 0]) * (1 - _SAFE)
    return _with_types(weights[:, None] * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi))


def informative_counts(
    means: Float[Array, "A M"], bins: int, leaving: Float[Array, "A M P"] | None = None
) -> Float[Array, "D M"]:
    """Return the same for Poisson counts: small counts are ends of their own, larger ends are farther apart.

    With `leaving`, the probability that the session ends after the counts 0, 1, ..., P - 2 and after all larger ones,
    these are the likelihoods that the session continues.
    """
    top = float(means.max())
    last = int(np.ceil(top + _FAR * np.sqrt(top) + _FAR))
    n_places = 0 if leaving is None else leaving.shape[2]
    n_small = min(max(bins // 2, n_places), last + 1)
    small = np.arange(max(n_small, n_places), dtype=float)
    far = np.linspace(np.sqrt(small[-1]), np.sqrt(max(last, small[-1])), bins - bins // 2) ** 2
    ends = np.unique(np.round(np.concatenate([small, far])))
    tables = np.stack([_counts_arm(arm, ends, merge=leaving is None) for arm in means])
    if leaving is not None:  # a revealed type stands for counts between ends and above them, which are large
        stays = np.repeat(1 - leaving[:, :, -1:], tables.shape[1], axis=2)
        stays[:, :, : n_places - 1] = 1 - leaving[:, :, :-1]
        tables = tables * stays.transpose(0, 2, 1)
    return np.ascontiguousarray(tables.reshape(-1, means.shape[1]))


def _counts_arm(means: Float[Array, "M"], ends: Float[Array, "E"], *, merge: bool) -> Float[Array, "Z M"]:
    """Return the likelihoods of one arm; with `merge` an arm of one mean has a single observation."""
    from scipy.special import gammaln, pdtrc, xlogy

    is_uninformative = np.ptp(means) == 0
    if is_uninformative and merge:
        return _uninformative(len(ends), len(means))
    outer = np.array([means.argmin(), means.argmax()])
    logs = xlogy(ends[:, None], means) - means - gammaln(ends + 1)[:, None]
    weights = np.ones(len(ends))
    with np.errstate(all="ignore"):
        for j in np.flatnonzero(np.diff(ends) > 1):
            between = np.arange(ends[j] + 1, ends[j + 1])[:, None]
            inner = xlogy(between, means[outer]) - means[outer] - gammaln(between + 1)
            mass = np.exp(inner - logs[j, outer]).sum(axis=0)
            if is_uninformative:
                weights[j] += np.nan_to_num(mass[0] * (1 - _SAFE))  # a mean of 0 has no larger counts
                continue
            at_left, at_right = _split(mass, logs[j + 1, outer] - logs[j, outer])
            weights[j] += at_left
            weights[j + 1] += at_right
        above = pdtrc(ends[-1], means[outer[0]]) / np.exp(logs[-1, outer[0]]) * (1 - _SAFE)
        weights[-1] += above if np.isfinite(above) else 0.0
    return _with_types(weights[:, None] * np.exp(logs))


def _relative_mass(low: Any, high: Any, reference: Any) -> Any:
    """Return P(low < T <= high) of a standard normal T over its density at the reference, without underflow."""
    from scipy.special import log_ndtr

    low, high, reference = np.broadcast_arrays(np.asarray(low, float), np.asarray(high, float), reference)
    mirrored = low > 0  # the lower tail has more digits
    small, large = np.where(mirrored, -high, low), np.where(mirrored, -low, high)
    with np.errstate(all="ignore"):
        logs = log_ndtr(large)
        share = -np.expm1(log_ndtr(small) - logs)
        return np.asarray(np.exp(logs + reference**2 / 2) * share * np.sqrt(2 * np.pi))


def _split(mass: Any, log_ratios: Any) -> tuple[Any, Any]:
    """Return how often the left and the right end stand for the rewards between them, per unit of their densities.

    For the types with the smallest and the largest mean (last axis), `mass` is the probability between the ends over
    the density at the left one, and `log_ratios` the log density at the right end less that at the left one. Where
    numbers are out of range the answer is 0, so that the type is revealed.
    """
    with np.errstate(all="ignore"):
        ratios = np.exp(log_ratios)
        right = (mass[..., 1] - mass[..., 0]) / (ratios[..., 1] - ratios[..., 0])
        left = mass[..., 0] - ratios[..., 0] * right
        safe = 1 - _SAFE - 0.1 * _SAFE / np.abs(log_ratios[..., 1] - log_ratios[..., 0])
        usable = np.isfinite(left + right) & (left >= 0) & (right >= 0) & (safe > 0)
    return np.where(usable, left * safe, 0.0), np.where(usable, right * safe, 0.0)


def _with_types(ends: Float[Array, "E M"]) -> Float[Array, "Z M"]:
    """Return the likelihoods of the ends, and of the types that are revealed for the rest."""
    return np.concatenate([ends, np.diag(np.maximum(1 - ends.sum(axis=0), 0))])


def _uninformative(n_ends: int, n_types: int) -> Float[Array, "Z M"]:
    """Return the likelihoods of an arm whose rewards do not depend on the type: a single observation."""
    return np.eye(n_ends + n_types, 1) * np.ones(n_types)
