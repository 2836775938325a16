"""People on the factors of a traits model, as data: where sessions lie, and how fast a session is located."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._shapes import Array, Float, Integer
from ..data import Sessions
from ..estimation import Factors
from ..model import LatentBandit, belief
from ..policies import Policy
from ..policies.histories import Tree
from ..simulation import simulate

_BINS, _REACH = 16, 3.2  # of the density along each factor, and where it ends
_GROUPS = 5  # of sessions along the first factor, for the tree
_SESSIONS = 500  # simulated, and most that the density takes from a log for each bin
_SEED = 0


@dataclass(frozen=True, eq=False)
class People:
    """Sessions on the factors that live."""

    factors: Factors
    density: Float[Array, "B B"]  # share of the sessions by bin of factor 1 (rows) and 2
    edges: Float[Array, "B1"]
    n_sessions: int  # of a log behind the density; 0: the model's own
    spread: Float[Array, "H1 d"]  # posterior standard deviation on each live factor, before and after every step


def look_at(factors: Factors, bandit: LatentBandit, policy: Policy, horizon: int, sessions: Sessions | None) -> People:
    """Where the sessions of a log lie (without one: those of the model), and how fast the policy locates one."""
    edges = np.linspace(-_REACH, _REACH, _BINS + 1)
    places, weights = factors.points, bandit.weights
    if sessions is not None:
        some = sessions[slice(0, _SESSIONS * _BINS)]
        places = belief.posterior(bandit, some) @ factors.points
        weights = np.full(len(places), 1 / len(places))
    first, second = (_column(places, j).clip(edges[0], edges[-1]) for j in range(2))
    density, _, _ = np.histogram2d(first, second, bins=[edges, edges], weights=weights)
    n_sessions = 0 if sessions is None else len(places)
    return People(factors, density, edges, n_sessions, _spread(factors, bandit, policy, horizon))


def _column(places: Float[Array, "n d"], j: int) -> Float[Array, "n"]:
    return places[:, j] if places.shape[1] > j else np.zeros(len(places))


def _spread(factors: Factors, bandit: LatentBandit, policy: Policy, horizon: int) -> Float[Array, "H1 d"]:
    played = simulate(bandit, policy, n_sessions=_SESSIONS, horizon=horizon, rng=_SEED)
    arms, rewards = (each.reshape(_SESSIONS, horizon) for each in (played.arms, played.rewards))
    places, beliefs = factors.points[:, factors.alive], belief.prior(bandit, _SESSIONS)
    found = []
    for step in range(horizon + 1):
        shares = belief.normalise(beliefs)
        variance = shares @ places**2 - (shares @ places) ** 2
        found.append(np.sqrt(variance.mean(axis=0)))
        if step < horizon:
            beliefs = belief.update(bandit, beliefs, arms[:, step], rewards[:, step])
    return np.array(found)


def in_groups(tree: Tree, groups: Integer[Array, "K"]) -> Tree:
    """The tree with beliefs over groups of types."""
    shares = np.bincount(groups, tree.belief, minlength=_GROUPS)
    branches = tuple(replace(branch, tree=in_groups(branch.tree, groups)) for branch in tree.branches)
    return replace(tree, belief=shares, branches=branches)


def groups_of(factors: Factors, bandit: LatentBandit) -> Integer[Array, "K"]:
    """Fifths of the sessions along the first factor, from its low end."""
    order = np.argsort(_column(factors.points, 0), kind="stable")
    below = np.cumsum(bandit.weights[order]) - bandit.weights[order] / 2
    groups = np.empty(len(order), np.int64)
    groups[order] = np.minimum((below * _GROUPS).astype(np.int64), _GROUPS - 1)
    return groups
