"""What hiding the contexts costs in information (Louis, 1982), summed over the episodes of a log.

With the context known, an episode's score (the gradient of its log-likelihood) has, for every context m, an entry 1 at
coordinate m (the logits of the weights) and, for every step, a score of K entries at the coordinates of the step's arm
in context m. The context is not known: the covariance of that score under the episode's posterior is the information
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

    Step t played `arms[t]`, and row `rows[t]` of `scores` is its score in every context; `shares` is the posterior of
    every episode, which stands for `counts` identical ones. The coordinates are M for the weights, then A * M * K in
    the order (arm, context, entry).
    """
    n_contexts, n_entries = scores.shape[1:]
    result[:] = 0.0
    for episode, share in enumerate(shares):
        score = np.zeros((n_contexts, len(result)))
        score[:, :n_contexts] = np.eye(n_contexts)
        for t in range(offsets[episode], offsets[episode + 1]):
            for context in range(n_contexts):
                first = n_contexts + (int(arms[t]) * n_contexts + context) * n_entries
                score[context, first : first + n_entries] += scores[rows[t], context]
        mean = share @ score
        result += counts[episode] * ((score.T * share) @ score - np.outer(mean, mean))
