"""One sweep of the Gibbs sampler for the learned prior: types of sessions, then the hyperparameters of arms.

All randomness enters as uniform numbers, so that the two implementations can be compared draw by draw.
"""

from __future__ import annotations

import numpy as np

from lmab._kernel.arrays import BetaGrid
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


def draw_split(
    grid: BetaGrid,
    paid: Float[Array, "A M"],
    missed: Float[Array, "A M"],
    before: Float[Array, "A M"],
    slope: float,
    judges: Integer[Array, "j"],
    state: Integer[Array, "2"],
    choice: Integer[Array, "A"],
    shares: Float[Array, "A M"],
    rng: np.random.Generator,
) -> None:
    """Draw the laws of a split, every arm's (centre, spread), and its share in every type.

    In logits, centres move by `slope` with the share `before`, that of the split that this one divides a side of.
    """
    masses = np.empty((len(paid), len(grid.centre)))
    beta_masses(grid, paid, missed, _moves(grid, before, slope), masses)
    laws(grid, masses, judges, state, rng.random(2 + len(paid)), choice)
    draw_shares(grid, paid, missed, before, slope, choice, shares, rng)


def draw_shares(
    grid: BetaGrid,
    paid: Float[Array, "A M"],
    missed: Float[Array, "A M"],
    before: Float[Array, "A M"],
    slope: float,
    choice: Integer[Array, "A"],
    shares: Float[Array, "A M"],
    rng: np.random.Generator,
) -> None:
    """Draw every arm's share in every type, given its pair of centre and spread and its rewards."""
    centre, spread = np.divmod(choice, grid.n_spreads)
    last = len(grid.centre) // grid.n_spreads - 1
    place = np.clip(centre[:, None] + _moves(grid, before, slope), 0, last) * grid.n_spreads + spread[:, None]
    strength, own = grid.strength[place], grid.centre[place]
    shares[:] = np.clip(rng.beta(paid + strength * own, missed + strength * (1 - own)), 1e-9, 1 - 1e-9)


def _moves(grid: BetaGrid, before: Float[Array, "A M"], slope: float) -> Integer[Array, "A M"]:
    """Return by how many places of the grid centres move."""
    if slope == 0:
        return np.zeros(before.shape, np.int64)
    return np.rint(slope / grid.step * np.log(before / (1 - before))).astype(np.int64)


def slope(
    paid_before: Float[Array, "A M"],
    missed_before: Float[Array, "A M"],
    paid: Float[Array, "A M"],
    missed: Float[Array, "A M"],
    steepest: float,
) -> float:
    """Return the change of the logit of a split's share with that of the previous split, over all arms and types."""
    x, y = np.log((paid_before + 0.5) / (missed_before + 0.5)), np.log((paid + 0.5) / (missed + 0.5))
    weight = paid + missed
    total = weight.sum()
    if total <= 0:
        return 0.0
    x, y = x - (weight * x).sum() / total, y - (weight * y).sum() / total
    return float(np.clip((weight * x * y).sum() / max((weight * x * x).sum(), 1e-12), -steepest, steepest))


def join(ends: Integer[Array, "S 3"], shares: Float[Array, "S A M"], probabilities: Float[Array, "A Z M"]) -> None:
    """Multiply the shares of the sides that lead to each value; `ends` are first, middle and last of every split."""
    probabilities[:] = 1.0
    for (first, middle, last), share in zip(ends, shares, strict=True):
        probabilities[:, middle:last] *= share[:, None]
        probabilities[:, first:middle] *= 1 - share[:, None]


def beta_masses(
    grid: BetaGrid,
    paid: Float[Array, "A M"],
    missed: Float[Array, "A M"],
    shift: Integer[Array, "A M"],
    masses: Float[Array, "A J"],
) -> None:
    """Compute the probability of each arm's rewards under J beta distributions of its means, relative to the largest.

    The laws are those of the pairs of the grid; in a type with a shift the centre is so many places further on. No
    mass is below exp(-80).
    """
    from scipy.special import gammaln

    centre, spread = np.divmod(np.arange(len(grid.centre)), grid.n_spreads)
    moved = np.clip(centre + shift[:, :, None], 0, centre[-1]) * grid.n_spreads + spread
    first, second = grid.strength * grid.centre, grid.strength * (1 - grid.centre)
    evidence = np.zeros(masses.shape)
    for counts, shapes, sign in ((paid, first, 1.0), (missed, second, 1.0), (paid + missed, grid.strength, -1.0)):
        shape = shapes[moved]
        rising = gammaln(shape + counts[:, :, None]) - gammaln(shape)
        evidence += sign * rising.sum(axis=1)
    masses[:] = np.exp(np.maximum(evidence - evidence.max(axis=1, keepdims=True), -80.0))


def laws(
    grid: BetaGrid,
    masses: Float[Array, "A J"],
    judges: Integer[Array, "j"],
    state: Integer[Array, "2"],
    uniforms: Float[Array, "U"],
    choice: Integer[Array, "A"],
) -> None:
    """Draw the distributions of spreads and of centres, and the (centre, spread) of every arm, J = G * K of them.

    `judges` are the arms that the laws are drawn by; without any, the laws stay. `state` holds the two laws in force
    and receives those drawn. The arms' own pairs are summed out when a law is drawn. Uniform numbers: one for each
    law, then one for each arm.
    """
    raised = masses.reshape(len(masses), -1, grid.n_spreads)
    by_spread = np.einsum("agk,g->ak", raised, grid.centre_laws[state[1]])
    if len(judges):
        logs = np.log(by_spread[judges] @ grid.spread_laws.T)
        state[0] = _pick(grid.spread_prior + logs.sum(axis=0), uniforms[0])
    by_centre = raised @ grid.spread_laws[state[0]]
    if len(judges):
        logs = np.log(by_centre[judges] @ grid.centre_laws.T)
        state[1] = _pick(grid.centre_prior + logs.sum(axis=0), uniforms[1])
    weights = raised * grid.centre_laws[state[1]][:, None] * grid.spread_laws[state[0]]
    cumulative = np.cumsum(weights.reshape(len(masses), -1), axis=1)
    found = (cumulative <= uniforms[2:, None] * cumulative[:, -1:]).sum(axis=1)
    choice[:] = np.minimum(found, cumulative.shape[1] - 1)


def _pick(logs: Float[Array, "n"], uniform: float) -> int:
    cumulative = np.cumsum(np.exp(logs - logs.max()))
    return int(min((cumulative <= uniform * cumulative[-1]).sum(), len(logs) - 1))
