"""One sweep of the Gibbs sampler for the learned prior: types of sessions, then the hyperparameters of arms.

All randomness enters as uniform numbers, so that the two implementations can be compared draw by draw.
"""

from __future__ import annotations

import numpy as np

from lmab._shapes import Array, Float, Integer, Shaped


def categorical(
    codes: Shaped[Array, "S"],
    offsets: Shaped[Array, "N1"],
    counts: Float[Array, "C"],
    table: Float[Array, "D1 M"],
    uniforms: Float[Array, "N"],
    statistics: Float[Array, "D1 M"],
) -> None:
    """Draw the type of every session of coded steps, and count sessions (row 0) and codes (row 1 + c) per type.

    Row 0 of the table holds the weights, row 1 + c the probability of code c; none is zero. `counts` holds how many
    identical sessions each one represents (empty: one); each of them has a separate draw and uniform number.
    """
    logs = np.log(table)
    rows = codes.astype(np.int64) + 1
    joint = logs[0] + np.add.reduceat(logs[rows], offsets[:-1], axis=0)
    _count(joint, rows, offsets, counts, uniforms, statistics)


def gaussian(
    arms: Shaped[Array, "S"],
    rewards: Float[Array, "S"],
    offsets: Shaped[Array, "N1"],
    table: Float[Array, "A1 M"],
    scale: float,
    uniforms: Float[Array, "N"],
    statistics: Float[Array, "Q M"],
) -> None:
    """Draw types for normal rewards: row 0 of the table holds the weights, row 1 + a the means of arm a.

    Rows 1 + a of the statistics count plays, rows 1 + A + a sum rewards, in each type.
    """
    rows = arms.astype(np.int64) + 1
    terms = -0.5 * ((rewards[:, None] - table[rows]) / scale) ** 2
    joint = np.log(table[0]) + np.add.reduceat(terms, offsets[:-1], axis=0)
    drawn = _count(joint, rows, offsets, np.empty(0), uniforms, statistics)
    owner = np.repeat(drawn, np.diff(offsets))
    np.add.at(statistics, (rows + len(table) - 1, owner), rewards)


def _count(
    joint: Float[Array, "N M"],
    rows: Integer[Array, "S"],
    offsets: Shaped[Array, "N1"],
    counts: Float[Array, "C"],
    uniforms: Float[Array, "n"],
    statistics: Float[Array, "Q M"],
) -> Integer[Array, "n"]:
    """Draw a type for each session from the log of the joint, and add it to the statistics."""
    copies = counts.astype(np.int64) if len(counts) else np.ones(len(joint), np.int64)
    owner = np.repeat(np.arange(len(joint)), copies)
    cumulative = np.cumsum(np.exp(joint - joint.max(axis=1, keepdims=True)), axis=1)[owner]
    drawn = (cumulative <= uniforms[:, None] * cumulative[:, -1:]).sum(axis=1)
    drawn = np.minimum(drawn, joint.shape[1] - 1)
    shares = np.zeros_like(joint)
    np.add.at(shares, (owner, drawn), 1.0)
    statistics[:] = 0.0
    statistics[0] = shares.sum(axis=0)
    np.add.at(statistics, rows, np.repeat(shares, np.diff(offsets), axis=0))
    return drawn


def beta_evidence(
    paid: Float[Array, "A M"],
    missed: Float[Array, "A M"],
    first: Float[Array, "J"],
    second: Float[Array, "J"],
    table: Float[Array, "3 n J"],
    shift: Integer[Array, "A M"],
    n_spreads: int,
    evidence: Float[Array, "A J"],
) -> None:
    """Compute the log-probability of each arm's rewards under J beta distributions of its means: beta-binomial.

    `first` and `second` are the parameters of the distributions, `n_spreads` for each centre. In a type with a shift
    the centre is moved by that many entries. Entry [0, n] of the table is the log of the rising factorial first (first
    + 1) ... (first + n - 1), [1, n] and [2, n] are those of second and of their sum; counts beyond the table are
    computed.
    """
    from scipy.special import gammaln

    centre, spread = np.divmod(np.arange(len(first)), n_spreads)
    moved = np.clip(centre + shift[:, :, None], 0, centre[-1]) * n_spreads + spread
    both = first + second
    for counts, shapes, sign in ((paid, first, 1.0), (missed, second, 1.0), (paid + missed, both, -1.0)):
        shape = shapes[moved]
        rising = gammaln(shape + counts[:, :, None]) - gammaln(shape)
        evidence += sign * rising.sum(axis=1)


def laws(
    evidence: Float[Array, "A J"],
    centre_laws: Float[Array, "B G"],
    centre_prior: Float[Array, "B"],
    spread_laws: Float[Array, "L K"],
    spread_prior: Float[Array, "L"],
    judges: Integer[Array, "j"],
    state: Integer[Array, "2"],
    uniforms: Float[Array, "U"],
    choice: Integer[Array, "A"],
) -> None:
    """Draw the distributions of spreads and of centres, and the (centre, spread) of every arm, J = G * K of them.

    Priors are logarithms. `judges` are the arms that the draw uses as evidence; without any, the distributions do not
    change. `state` holds the two current distributions and receives the new ones. The pairs of the arms are
    marginalised out when a distribution is drawn. There is a uniform number for each distribution, then one for each
    arm.
    """
    n_centres, n_spreads = centre_laws.shape[1], spread_laws.shape[1]
    raised = np.exp(np.maximum(evidence - evidence.max(axis=1, keepdims=True), -80.0))
    raised = raised.reshape(-1, n_centres, n_spreads)
    by_spread = np.einsum("agk,g->ak", raised, centre_laws[state[1]])
    if len(judges):
        state[0] = _pick(spread_prior + np.log(by_spread[judges] @ spread_laws.T).sum(axis=0), uniforms[0])
    by_centre = raised @ spread_laws[state[0]]
    if len(judges):
        state[1] = _pick(centre_prior + np.log(by_centre[judges] @ centre_laws.T).sum(axis=0), uniforms[1])
    weights = raised * centre_laws[state[1]][:, None] * spread_laws[state[0]]
    cumulative = np.cumsum(weights.reshape(len(evidence), -1), axis=1)
    positions = (cumulative <= uniforms[2:, None] * cumulative[:, -1:]).sum(axis=1)
    choice[:] = np.minimum(positions, cumulative.shape[1] - 1)


def _pick(logs: Float[Array, "n"], uniform: float) -> int:
    cumulative = np.cumsum(np.exp(logs - logs.max()))
    return int(min((cumulative <= uniform * cumulative[-1]).sum(), len(logs) - 1))
