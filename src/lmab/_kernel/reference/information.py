"""The missing information: what is lost because types are hidden (Louis, 1982), summed over sessions.

With the type known, a session's score (the gradient of its log-likelihood) has, for every type m, an entry 1 at
coordinate m (the logits of the weights) and, for every step, a score of K entries at the coordinates of the step's arm
in type m. The type is not known: the covariance of that score under the session's posterior is the information
that is missing.
"""

from __future__ import annotations

import numpy as np

from ..._shapes import Array, Float, Shaped


def missing(
    arms: Shaped[Array, "S"],
    rows: Shaped[Array, "S"],
    offsets: Shaped[Array, "N1"],
    counts: Float[Array, "N"],
    shares: Float[Array, "N M"],
    scores: Float[Array, "D M K"],
    result: Float[Array, "P P"],
) -> None:
    """Fill `result` with the missing information.

    Step t played `arms[t]`, and row `rows[t]` of `scores` is its score in every type; `shares` is the posterior of
    every session, which stands for `counts` identical ones. The coordinates are M for the weights, then A * M * K in
    the order (arm, type, entry).
    """
    n_types, n_entries = scores.shape[1:]
    result[:] = 0.0
    for session, share in enumerate(shares):
        score = np.zeros((n_types, len(result)))
        score[:, :n_types] = np.eye(n_types)
        for t in range(offsets[session], offsets[session + 1]):
            for type_ in range(n_types):
                first = n_types + (int(arms[t]) * n_types + type_) * n_entries
                score[type_, first : first + n_entries] += scores[rows[t], type_]
        mean = share @ score
        result += counts[session] * ((score.T * share) @ score - np.outer(mean, mean))
