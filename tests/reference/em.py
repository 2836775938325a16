"""Expectation step of EM, for many models at once (equation (log_likelihood) of the paper).

Sessions are flat columns with `offsets`; `edges` divides them into B blocks. Task k = r * B + b is block b under model
r; tasks `first` to `last` - 1 are done. Each fills its entry of `statistics` and `logs`, so that tasks may run in any
order or on any number of threads and give the same bits. Models hold types in P columns, M padded with types of weight
0 to a multiple of 8.

A session that is impossible under a model makes that block's log-likelihood -inf and adds nothing to the statistics.

Returning persons: between two sessions a person keeps the type with probability `keep`; otherwise it is drawn from the
weights of the next session. The transition is keep * I plus a matrix of rank one, so a session costs O(M), not O(M^2).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from lmab._shapes import Array, Float, Integer, Shaped


def categorical(
    codes: Shaped[Array, "S"],
    offsets: Shaped[Array, "N1"],
    counts: Float[Array, "C"],
    edges: Shaped[Array, "B1"],
    tables: Float[Array, "R D1 P"],
    statistics: Float[Array, "n D1 P"],
    logs: Float[Array, "n"],
    first: int,
    last: int,
) -> None:
    """Add up expected counts and the log-likelihood of coded steps.

    Row 0 of a table holds the weights, row 1 + c the probability of code c, in every type. Row 0 of the statistics
    receives the expected number of sessions of each type, row 1 + c the expected number of steps with code c. `counts`
    holds how many identical sessions each one represents; empty means one.
    """
    n_blocks = len(edges) - 1
    for task in range(first, last):
        model, block = divmod(task, n_blocks)
        target = statistics[task - first]
        low, high = edges[block], edges[block + 1]
        rows = codes[offsets[low] : offsets[high]].astype(np.int64) + 1
        with np.errstate(divide="ignore"):
            table = np.log(tables[model])
        joint = table[0] + np.add.reduceat(table[rows], offsets[low:high] - offsets[low], axis=0)
        scale = counts[low:high] if len(counts) else np.ones(high - low)
        shares, logs[task - first] = _responsibilities(joint, scale)
        target[:] = 0.0
        target[0] = shares.sum(axis=0)
        np.add.at(target, rows, np.repeat(shares, np.diff(offsets[low : high + 1]), axis=0))


def pair_up(
    codes: Shaped[Array, "S"],
    offsets: Shaped[Array, "N1"],
    low: int,
    high: int,
    n_codes: int,
    paired: Shaped[Array, "K"],
    ends: Shaped[Array, "n1"],
) -> None:
    """Write one code for two consecutive steps of sessions `low` to `high` - 1 into `paired`, offsets into `ends`.

    The unordered pair of codes a >= b becomes `n_codes` + a (a + 1) / 2 + b; the last step of a session with an odd
    number of steps keeps its code.
    """
    place, ends[0] = 0, 0
    for number, (begin, end) in enumerate(pairwise(offsets[low : high + 1].tolist())):
        for t in range(begin, end, 2):
            pair = sorted(codes[t : min(t + 2, end)].tolist())
            paired[place] = n_codes + pair[1] * (pair[1] + 1) // 2 + pair[0] if len(pair) == 2 else pair[0]
            place += 1
        ends[number + 1] = place


def in_pairs(
    codes: Shaped[Array, "S"],
    offsets: Shaped[Array, "N1"],
    counts: Float[Array, "C"],
    edges: Shaped[Array, "B1"],
    tables: Float[Array, "R D1 P"],
    room: Float[Array, "2 Q P"],
    statistics: Float[Array, "n D1 P"],
    logs: Float[Array, "n"],
    first: int,
    last: int,
) -> None:
    """Do the work of `categorical` on codes from `pair_up`.

    The row of a pair is the product of the rows of its codes, and its sum is added to both. `room` receives table and
    sums of single codes and pairs.
    """
    n_blocks = len(edges) - 1
    highs, lows = np.tril_indices(tables.shape[1] - 1)
    for task in range(first, last):
        model, block = divmod(task, n_blocks)
        table, own = tables[model], edges[block : block + 2]
        room[0] = np.concatenate([table, table[1 + highs] * table[1 + lows]])
        categorical(codes, offsets, counts, own, room[:1], room[1:], logs[task - first : task - first + 1], 0, 1)
        target = statistics[task - first]
        target[:], sums = room[1, : len(table)], room[1, len(table) :]
        np.add.at(target, 1 + highs, sums)
        np.add.at(target, 1 + lows, sums)


def gaussian(
    arms: Shaped[Array, "S"],
    rewards: Float[Array, "S"],
    offsets: Shaped[Array, "N1"],
    edges: Shaped[Array, "B1"],
    tables: Float[Array, "R A2 P"],
    statistics: Float[Array, "n K P"],
    logs: Float[Array, "n"],
    first: int,
    last: int,
) -> None:
    """Add up expected counts, expected sums of rewards and the log-likelihood under normal rewards.

    Row 0 of a table holds the weights, rows 1 to A the means of the arms, row A + 1 the scale (in every column). Row 0
    of the statistics receives the expected number of sessions, rows 1 to A the expected plays of each arm and rows A +
    1 to 2 A the expected sum of its rewards.
    """
    n_blocks, n_arms = len(edges) - 1, tables.shape[1] - 2
    for task in range(first, last):
        model, block = divmod(task, n_blocks)
        target = statistics[task - first]
        low, high = edges[block], edges[block + 1]
        steps = slice(offsets[low], offsets[high])
        rows, values = arms[steps].astype(np.int64) + 1, rewards[steps, None]
        table, scale = tables[model], tables[model, -1, 0]
        terms = -0.5 * ((values - table[rows]) / scale) ** 2 - np.log(scale * np.sqrt(2 * np.pi))
        with np.errstate(divide="ignore"):
            joint = np.log(table[0]) + np.add.reduceat(terms, offsets[low:high] - offsets[low], axis=0)
        shares, logs[task - first] = _responsibilities(joint, np.ones(high - low))
        target[:] = 0.0
        target[0] = shares.sum(axis=0)
        spread = np.repeat(shares, np.diff(offsets[low : high + 1]), axis=0)
        np.add.at(target, rows, spread)
        np.add.at(target, rows + n_arms, spread * values)


def _responsibilities(joint: Float[Array, "n P"], scale: Float[Array, "n"]) -> tuple[Float[Array, "n P"], float]:
    """Return the posterior of each session's type times `scale`, and the log-likelihood, from the log of the joint."""
    top = joint.max(axis=1, keepdims=True)
    if (top == -np.inf).any():
        shares = np.zeros_like(joint)
        possible = top[:, 0] > -np.inf
        if possible.any():
            shares[possible] = _responsibilities(joint[possible], scale[possible])[0]
        return shares, -np.inf
    shares = np.exp(joint - top)
    total = shares.sum(axis=1, keepdims=True)
    return shares * (scale[:, None] / total), float((scale * (top + np.log(total))[:, 0]).sum())


def likelihoods(
    codes: Shaped[Array, "S"],
    offsets: Integer[Array, "N1"],
    table: Float[Array, "D M"],
    rows: Float[Array, "N M"],
    scales: Float[Array, "N"],
) -> None:
    """Write the likelihood of each session by type to `rows`, scaled to a maximum of 1, and the logs of the scales.

    Row c of the table holds the probability of code c in each type.
    """
    with np.errstate(divide="ignore"):
        logs = np.add.reduceat(np.log(table[codes.astype(np.int64)]), offsets[:-1], axis=0)
    top = logs.max(axis=1, keepdims=True)
    top[~np.isfinite(top)] = 0.0
    rows[:] = np.exp(logs - top)
    scales[:] = top[:, 0]


def returning(
    like: Float[Array, "N M"],
    edges: Integer[Array, "P1"],
    weights: Float[Array, "G M"],
    groups: Integer[Array, "N"],
    keep: float,
    posterior: Float[Array, "N M"],
    fresh: Float[Array, "G M"],
    kept: Float[Array, "2"],
    logs: Float[Array, "N"],
) -> None:
    """Compute the posterior of every session given all sessions of its person, and its log-probability.

    Person p has the sessions edges[p] to edges[p + 1] - 1, in order. `fresh` receives the expected number of newly
    drawn types, by group of the session; `kept` how often a returning person kept the type, and how many returned.
    """
    fresh[:], kept[:] = 0.0, 0.0
    for low, high in pairwise(edges.tolist()):
        forward, masses = np.empty((high - low, like.shape[1])), np.empty(high - low)
        for t in range(high - low):
            prior_weights = weights[groups[low + t]]
            prior = prior_weights if t == 0 else keep * forward[t - 1] + (1 - keep) * prior_weights
            forward[t] = prior * like[low + t]
            masses[t] = forward[t].sum()
            logs[low + t] = np.log(masses[t])
            forward[t] /= masses[t]
        back = np.ones(like.shape[1])
        for t in range(high - low - 1, -1, -1):
            posterior[low + t] = forward[t] * back
            prior_weights = weights[groups[low + t]]
            if t == 0:
                fresh[groups[low]] += posterior[low]
                continue
            after = like[low + t] * back / masses[t]
            fresh[groups[low + t]] += (1 - keep) * prior_weights * after
            kept += (keep * float(forward[t - 1] @ after), 1.0)
            back = keep * after + (1 - keep) * float(prior_weights @ after)


def sums(
    codes: Shaped[Array, "S"], offsets: Integer[Array, "N1"], posterior: Float[Array, "N M"], into: Float[Array, "D M"]
) -> None:
    """Add up the expected number of steps with each code in each type."""
    into[:] = 0.0
    np.add.at(into, codes.astype(np.int64), np.repeat(posterior, np.diff(offsets), axis=0))


def soft_counts(
    arms: Shaped[Array, "S"],
    outcomes: Shaped[Array, "S"],
    offsets: Shaped[Array, "N1"],
    sessions: Float[Array, "M"],
    plays: Float[Array, "M A"],
    paid: Float[Array, "M A Z"],
    prior: float,
    floor: float,
) -> None:
    """Add sessions one after another to soft counts, each with its posterior under the counts before it.

    Value z of an arm has the probability (paid + prior / Z) / (plays + prior), at least `floor`, then normalised.
    """
    for begin, end in pairwise(offsets.tolist()):
        share = sessions / sessions.sum()
        for arm, outcome in zip(arms[begin:end].tolist(), outcomes[begin:end].tolist(), strict=True):
            chances = np.maximum((paid[:, arm] + prior / paid.shape[2]) / (plays[:, arm, None] + prior), floor)
            share = share * chances[:, outcome] / chances.sum(axis=1)
            share = share / share.sum()
        sessions += share
        for arm, outcome in zip(arms[begin:end].tolist(), outcomes[begin:end].tolist(), strict=True):
            plays[:, arm] += share
            paid[:, arm, outcome] += share


def optimistic_plays(
    types: Integer[Array, "n"],
    uniforms: Float[Array, "n H"],
    cumulative: Float[Array, "cells Y"],
    nearest: Integer[Array, "X"],
    known: Shaped[Array, "X"],
    values: Float[Array, "Z"],
    sessions: Float[Array, "M"],
    plays: Float[Array, "M A"],
    paid: Float[Array, "M A Z"],
    prior: float,
    floor: float,
    width: float,
    arms: Integer[Array, "n H"],
    outcomes: Integer[Array, "n H"],
) -> int:
    """Play sessions on a bandit, each by optimism on the soft counts of all before it; return their number.

    Row type * A + arm of `cumulative` holds the true bandit's cumulative probabilities of its X values but the last.
    Value x is replaced by `nearest[x]` of `values`. The kernel stops after a session with a value that is not `known`,
    and leaves that session to the caller. The bonus is width / sqrt(max(plays, 1)), up to the largest value.
    """
    n_values, n_arms = len(values), plays.shape[1]
    for session, session_type in enumerate(types.tolist()):
        chances = np.maximum((paid + prior / n_values) / (plays[:, :, None] + prior), floor)
        chances /= chances.sum(axis=2, keepdims=True)
        means = chances @ values
        index = means + np.minimum(width / np.sqrt(np.maximum(plays, 1.0)), values.max() - means)
        share = sessions / sessions.sum()
        for step in range(uniforms.shape[1]):
            arm = int((share @ index).argmax())
            outcome = int((uniforms[session, step] >= cumulative[session_type * n_arms + arm]).sum())
            arms[session, step], outcomes[session, step] = arm, outcome
            share = share * chances[:, arm, nearest[outcome]]
            share = share / share.sum()
        if not known[outcomes[session]].all():
            return session + 1
        steps = np.array([0, uniforms.shape[1]])
        soft_counts(arms[session], nearest[outcomes[session]], steps, sessions, plays, paid, prior, floor)
    return len(types)
