"""The held-out log-likelihood of every episode under a bandit, for every reward family in one pass."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from .._shapes import Array, Float, Integer
from ..data import Episodes, Packed
from ..model import LatentBandit, belief
from .passes import Passes, session_edges


def log_likelihoods(bandit: LatentBandit, episodes: Episodes | Packed, passes: Passes) -> Float[Array, "N"]:
    """log-likelihood of each episode."""
    edges = session_edges(episodes, 0)
    (logs,) = passes.ordered(_logs, len(edges) - 1, episodes, bandit, edges, work=episodes.n_steps)
    return logs


def _logs(
    episodes: Episodes | Packed, bandit: LatentBandit, edges: Integer[Array, "B1"], first: int, last: int
) -> tuple[Float[Array, "n"]]:
    """Part by part, so that the logs of an episode do not depend on which parts are asked for together."""
    parts = [episodes[slice(low, high)] for low, high in pairwise(edges[first : last + 1].tolist())]
    return (np.concatenate([np.logaddexp.reduce(belief.log_joint(bandit, part), axis=1) for part in parts]),)
