"""How arms rank where no factor tells them apart: by their mean rewards, unless the fit is sure that this loses.

Such a fit still corrects every arm for how generous the sessions were that played it, and draws arms to their law. On
a log whose arms did not depend on the session, both move arms by less than the log can tell: the list of arms that
comes out differs from that of the mean rewards by noise. The fit then has nothing to say against the plain list. Where
arms did depend on the session, mean rewards mislead, and the fit is sure of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._shapes import Array, Bool, Float, Integer
from .factors import ALIVE
from .points import Points
from .surface import Arms, Surface, blocks

SURE = 2.0  # standard errors by which the fit's own list must be ahead
_KNOWN = 0.5  # of what the log says about the average arm, from which on an arm counts as known
_ROUNDING = 1e-9  # of a sum of rewards


@dataclass(frozen=True, eq=False)
class Ranking:
    """Arms as they are planned with."""

    arms: Arms
    by_mean: bool  # in the order of their mean rewards in the log


def apart(surface: Surface, loadings: Float[Array, "A d"]) -> float:
    """By how much the loadings of arms differ, along the direction in which they differ most, in natural units."""
    known = loadings[surface.played]
    if not known.size:
        return 0.0
    largest = np.linalg.norm(known - known.mean(axis=0), ord=2)
    return float(largest / np.sqrt(len(known)) / surface.unit)


def ranked(surface: Surface, arms: Arms, points: Points) -> Ranking:
    """Arms that load alike and rank by their mean rewards, where no factor tells them apart; else the arms as given.

    On more than two values an arm is more than a level, so that generosity itself may change who is best: such arms
    stay as they are.
    """
    if surface.n_intercepts != 1 or apart(surface, arms.parameters[:, 1:]) > ALIVE:
        return Ranking(arms, by_mean=False)
    known = _known(surface, arms)
    alike = _alike(surface, arms, known)
    by_mean = _by_mean(surface, alike, known)
    if _loses(surface, alike, by_mean, points):
        return Ranking(alike, by_mean=False)
    return Ranking(by_mean, by_mean=True)


def _known(surface: Surface, arms: Arms) -> Bool[Array, "A"]:
    """Arms about which the log says more than the law does, or about as much as about the average arm.

    The law moves arms of equally many plays alike. An arm of few plays is moved more; its mean reward tells little.
    """
    law = 1 / arms.variance[0]
    log = np.where(surface.played, 1 / arms.covariance[:, 0, 0] - law, 0.0)
    return surface.played & (log >= min(law, _KNOWN * float(log[surface.played].mean())))


def _alike(surface: Surface, arms: Arms, known: Bool[Array, "A"]) -> Arms:
    """The same levels with one loading for all arms, and equally unsure where the log knows the arm.

    At every point and under every belief these arms then rank by their levels.
    """
    parameters, covariance = arms.parameters.copy(), arms.covariance.copy()
    parameters[:, 1:] = parameters[surface.played, 1:].mean(axis=0)
    if known.any():
        covariance[known] = covariance[known].mean(axis=0)
    return replace(arms, parameters=parameters, covariance=covariance)


def _by_mean(surface: Surface, arms: Arms, known: Bool[Array, "A"]) -> Arms:
    """The levels of the arms that the log knows, given to these arms in the order of their mean rewards."""
    parameters, places = arms.parameters.copy(), np.flatnonzero(known)
    parameters[places[_order(surface.popularity()[known])], 0] = np.sort(parameters[known, 0])[::-1]
    return replace(arms, parameters=parameters)


def _loses(surface: Surface, arms: Arms, other: Arms, points: Points) -> bool:
    """Whether the arms are sure that a list in the order of the others earns less, for sessions of any length."""
    means, variance = _means(surface, arms, points)
    own, changed = _order(arms.parameters[:, 0]), _order(other.parameters[:, 0])
    lost = np.cumsum(means[own]) - np.cumsum(means[changed])
    doubt = SURE * np.sqrt(_variance_of_difference(own, changed, variance)) + _ROUNDING * np.cumsum(np.abs(means[own]))
    return bool((lost > doubt).any())


def _means(surface: Surface, arms: Arms, points: Points) -> tuple[Float[Array, "A"], Float[Array, "A"]]:
    """The mean reward of each arm over all sessions, and its variance."""
    n_arms, p = arms.parameters.shape
    slopes = np.empty((n_arms, p))
    for some in blocks(n_arms, len(points) * p):
        slopes[some] = np.einsum("k,kap->ap", points.weights, surface.mean_slopes(arms.parameters[some], points))
    means = points.weights @ surface.averaged(arms, points).means
    return means, np.einsum("ai,aij,aj->a", slopes, arms.covariance, slopes)


def _variance_of_difference(
    one: Integer[Array, "A"], other: Integer[Array, "A"], variance: Float[Array, "A"]
) -> Float[Array, "A"]:
    """Of the sums over the first 1, 2, ... arms of two lists: arms that both have fall out."""
    ranks = np.argsort(one), np.argsort(other)
    change = np.zeros(len(variance) + 1)
    np.add.at(change, np.minimum(*ranks), variance)
    np.add.at(change, np.maximum(*ranks), -variance)
    return np.cumsum(change)[:-1].clip(0)


def _order(scores: Float[Array, "n"]) -> Integer[Array, "n"]:
    """Highest first, the lowest number among equals."""
    return np.argsort(-scores, kind="stable")
