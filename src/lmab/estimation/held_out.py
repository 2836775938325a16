"""The held-out log-likelihood of every session under a bandit, for every reward family in one pass."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from .._shapes import Array, Float, Integer
from ..data import Packed, Sessions
from ..model import LatentBandit, belief
from .passes import Passes, session_edges


def log_likelihoods(bandit: LatentBandit, sessions: Sessions | Packed, passes: Passes) -> Float[Array, "N"]:
    """log-likelihood of each session."""
    edges = session_edges(sessions, 0)
    (logs,) = passes.ordered(_logs, len(edges) - 1, sessions, bandit, edges, work=sessions.n_steps)
    return logs


def _logs(
    sessions: Sessions | Packed, bandit: LatentBandit, edges: Integer[Array, "B1"], first: int, last: int
) -> tuple[Float[Array, "n"]]:
    """Part by part, so that the logs of a session do not depend on which parts are asked for together."""
    parts = [sessions[slice(low, high)] for low, high in pairwise(edges[first : last + 1].tolist())]
    return (np.concatenate([np.logaddexp.reduce(belief.log_joint(bandit, part), axis=1) for part in parts]),)
