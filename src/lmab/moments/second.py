"""Second moments of a log, and the subspace that the types span (step 1 of Algorithm 1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer
from ..checks import OneOf, check, check_count, optional
from ..data.features import LEFT, WENT_ON
from ..data.packed import Packed
from ..data.sessions import Sessions, require_nobody_left
from ..errors import InvalidArgument
from ..model.bandit import FAMILIES
from ..model.rewards import MAX_VALUES, distinct_values, encode_values

_PAIRS = ("all", "first-two")
_MAX_FEATURES = 5000  # a D x D matrix is held in memory
_DENSE = 1000  # with more features, only the leading eigenvalues are computed
_LEADING = 40  # eigenvalues that are computed beyond the rank if it is not given
_CHUNK = 1 << 18  # sessions processed at once
_SAFETY = 2.0  # the error is measured once, and another draw of the same law is rarely more than twice as large
_LEAST_SESSIONS = 4  # with fewer, two halves of the log cannot measure its error


@dataclass(frozen=True, eq=False)
class Moments:
    """Second moments M2 = sum_m w_m mu_m mu_m', estimated from a log."""

    second: Float[Array, "D D"]  # symmetric; row a*Z + z is the pair (arm a, value z), or row a is arm a
    plays: Float[Array, "A A"]  # how often each pair of arms was seen in two steps of a session
    values: Float[Array, "Z"] | None  # the reward values; None if rewards themselves are multiplied (Gaussian)

    @property
    def n_arms(self) -> int:
        return len(self.plays)


@dataclass(frozen=True, eq=False)
class Subspace:
    """The span of the leading eigenvectors of the second moments: an estimate of span(mu_1, ..., mu_M)."""

    basis: Float[Array, "D k"]  # orthonormal columns
    eigenvalues: Float[Array, "E"]  # Eigenvalues of the second moments, falling; the first k belong to the basis.
    n_arms: int
    values: Float[Array, "Z"] | None = None  # None: one row per arm
    noise: float | None = None  # spectral norm of the error of the second moments, measured; None: unknown
    error: float | None = None  # delta_sub of Lemma 3.7, measured: see `off_by`; None: unknown

    @property
    def rank(self) -> int:
        return int(self.basis.shape[1])

    def off_by(self, weight: float) -> float:
        """Return the distance of a type of that weight from this subspace, in any row: delta_sub / sqrt(w_m)."""
        if self.error is None:
            raise InvalidArgument("the subspace must come from a log of at least 4 sessions, got one of unknown error")
        return self.error / float(np.sqrt(weight))

    def __repr__(self) -> str:
        return f"Subspace(rank {self.rank} of {len(self.basis)} rows, {self.n_arms} arms)"


def subspace(
    sessions: Sessions | Packed, *, rank: int | None = None, pairs: str = "all", rewards: str | None = None
) -> Subspace:
    """Estimate the subspace that the types' reward probabilities span, without clustering sessions (Lemma 3.7).

    Correlations between two steps of the same session come from the type alone, as long as the arms do not depend
    on the session's own rewards. In logs of adaptive policies the correlations are biased: they are good enough to
    start EM, but not for moment matching. With attrition, pairs of steps also stand for sessions that ended before
    their second step. This is exact if leaving depends on arm and reward, and wrong if types leave differently.

    Args:
        sessions: a log in which sessions have at least two steps.
        rank: k; None counts the eigenvalues that are above the noise, which is measured by the difference of two halves
            of the log.
        pairs: "all" pairs of steps of a session, or the "first-two" as the paper prints it, which have the same
            expectation and several times the noise.
        rewards: "categorical" (one row per arm and value), "gaussian" or another family of means (one row per arm), or
            None: categorical when the log holds at most 32 distinct rewards.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(1)
        >>> bandit = lmab.random_bandit(7, 20, rng=rng)
        >>> log = lmab.simulate(bandit, lmab.Uniform(20), n_sessions=50_000, horizon=7, rng=rng)
        >>> lmab.moments.subspace(log)
        Subspace(rank 4 of 40 rows, 20 arms)
    """
    moments = second_moments(sessions, pairs=pairs, rewards=rewards)
    size = len(moments.second)
    if rank is not None and check_count("rank", rank) > size:
        raise InvalidArgument(f"rank must be at most the number of rows ({size}), got {rank}")
    if rank is None and len(sessions) < _LEAST_SESSIONS:
        raise InvalidArgument(f"rank must be given for a log of fewer than 4 sessions, got None for {len(sessions)}")
    difference = _half_difference(sessions, pairs, moments.values)
    noise = None if difference is None else float(np.abs(_leading(difference, 0, absolute=True)[0]).max())
    values, vectors = _leading(moments.second, rank or 0)
    k = rank or max(1, int((values > (noise or 0.0)).sum()))
    basis = np.ascontiguousarray(vectors[:, :k])
    error = None
    if difference is not None and noise is not None:
        error = min(_SAFETY * _drift(difference, basis, values[:k]), float(np.sqrt(2 * noise)))
    return Subspace(basis, values, moments.n_arms, moments.values, noise, error)


def second_moments(
    sessions: Sessions | Packed,
    *,
    pairs: str = "all",
    rewards: str | None = None,
    values: Float[Array, "Z"] | None = None,
    half: int | None = None,
) -> Moments:
    """Return the second moments of a log: each entry is a mean over the joint plays of its two arms.

    Entries are divided by the plays of the pair and not by N (the paper's estimator, which is M2 / A^2 under uniform
    play), so that they do not depend on the logging policy. Pairs of arms that were never played together get the
    product of their marginals. `values` are the (rising) reward values, if the log may lack some of them. `half` 0 or 1
    takes every second session only. With attrition, steps have the weights of `Stays`.
    """
    check("pairs", pairs, OneOf(_PAIRS))
    check("rewards", rewards, optional(OneOf(tuple(FAMILIES))))
    if sessions.horizon < 2:
        raise InvalidArgument("sessions must have at least 2 steps, because correlations need two, got 1")
    if values is None and (rewards is None or FAMILIES[rewards].by_value):
        values = distinct_values(_seen(sessions, pairs), limited=rewards is None)
    per_arm = 1 if values is None else len(values)
    if sessions.n_arms * per_arm > _MAX_FEATURES:
        raise InvalidArgument(f"sessions must have at most {_MAX_FEATURES} pairs, got {sessions.n_arms * per_arm}")
    size = sessions.n_arms * per_arm
    sums, plays = np.zeros((size, size)), np.zeros((sessions.n_arms, sessions.n_arms))
    paid, played = np.zeros(size), np.zeros(sessions.n_arms)
    stays = Stays.of(sessions, half)
    for chunk in _chunks(sessions, pairs, half):
        arms, steps = np.asarray(chunk.arms, np.int64), np.ones(chunk.n_steps)
        features, weights = arms, chunk.rewards
        if values is not None:
            features, weights = arms * per_arm + encode_values(values, chunk.rewards), steps
        reached = None if stays is None else stays.weights(chunk)
        sums += _pair_sums(chunk, features, weights, size, reached)
        plays += _pair_sums(chunk, arms, steps, sessions.n_arms, reached)
        paid += np.bincount(features, weights if reached is None else weights * reached, minlength=size)
        played += np.bincount(arms, reached, minlength=sessions.n_arms)
    marginal = (paid / np.maximum(np.repeat(played, per_arm), 1)).reshape(-1, per_arm)
    second = sums.reshape(sessions.n_arms, per_arm, sessions.n_arms, per_arm)  # in place: D x D is large
    second /= np.maximum(plays, 1)[:, None, :, None]
    one, other = np.nonzero(plays == 0)
    second[one, :, other, :] = marginal[one][:, :, None] * marginal[other][:, None, :]
    return Moments(sums, plays, values)


def _seen(sessions: Sessions | Packed, pairs: str) -> Float[Array, "n"]:
    """Return the reward values that occur in the log."""
    if pairs == "all":
        return sessions.some_rewards
    return np.concatenate([np.unique(chunk.rewards) for chunk in _chunks(sessions, pairs, None)])


def _chunks(sessions: Sessions | Packed, pairs: str, half: int | None) -> Iterator[Sessions]:
    """Yield the sessions of the log, or of its half, a bounded number at a time."""
    for chunk in sessions.chunks(_CHUNK):
        if half is not None and len(chunk) <= half:
            continue
        own = chunk if half is None else chunk[half::2]
        yield _first_steps(own, 2) if pairs == "first-two" else own


@dataclass(frozen=True, eq=False)
class Stays:
    """Rates of staying after each arm and reward, which reweight a log with attrition.

    A step that was reached counts as one over the probability to have gone on after every step before it. So a pair of
    steps, or any number of them, counts with the weight of its last step, and in expectation as often as if nobody had
    left, if leaving depends on arm and reward (and neither on the type nor on the step).
    """

    values: Float[Array, "Z"]
    logs: Float[Array, "A Z"]  # of one over the probability to stay; infinite if nobody did

    @classmethod
    def of(cls, sessions: Sessions | Packed, half: int | None = None) -> Stays | None:
        """Return the rates in the log or in half of it; None if no session of it ends by leaving."""
        if sessions.endings is None or not (sessions.endings == LEFT).any():
            return None
        values = np.unique(sessions.some_rewards)
        if len(values) > MAX_VALUES:
            require_nobody_left(f"moments of more than {MAX_VALUES} distinct rewards", sessions)
        cells = np.zeros((2, sessions.n_arms * len(values)))
        for chunk in _chunks(sessions, "all", half):
            code = np.asarray(chunk.arms, np.int64) * len(values) + encode_values(values, chunk.rewards)
            last = chunk.offsets[1:] - 1
            went_on = np.ones(chunk.n_steps)
            went_on[last] = chunk.endings == WENT_ON
            cells[0] += np.bincount(code, went_on, minlength=cells.shape[1])
            cells[1] += np.bincount(code[last], chunk.endings == LEFT, minlength=cells.shape[1])
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(cells.sum(axis=0)) - np.log(cells[0])
        return cls(values, np.nan_to_num(logs, nan=0.0, posinf=np.inf).reshape(sessions.n_arms, -1))

    def weights(self, sessions: Sessions) -> Float[Array, "S"]:
        """Return the weight of each step of these sessions."""
        logs = self.logs[sessions.arms, encode_values(self.values, sessions.rewards)]
        logs[sessions.offsets[1:] - 1] = 0.0  # leaving after the last step changes no weight
        before = np.cumsum(logs) - logs
        return np.exp(before - np.repeat(before[sessions.offsets[:-1]], sessions.lengths))


def _pair_sums(
    sessions: Sessions,
    features: Integer[Array, "S"],
    weights: Float[Array, "S"],
    size: int,
    reached: Float[Array, "S"] | None,
) -> Float[Array, "D D"]:
    """Sum over ordered pairs of different steps of a session of the products of their weights, by feature.

    With attrition, a pair has the weight `reached` of its later step.
    """
    from scipy.sparse import csr_array

    if reached is not None:
        total = csr_array((size, size))
        for apart in range(1, sessions.horizon):
            later = np.flatnonzero(sessions.steps >= apart)
            earlier = later - apart
            amount = weights[later] * weights[earlier] * reached[later]
            total = total + csr_array((amount, (features[earlier], features[later])), shape=(size, size))
        return (total + total.T).toarray()
    rows = csr_array((weights, features, sessions.offsets), shape=(len(sessions), size))
    total = (rows.T @ rows).toarray()
    own = np.bincount(features, weights**2, minlength=size)  # a step with itself is no pair
    total[np.diag_indices(size)] -= own
    return total


def _first_steps(sessions: Sessions, n: int) -> Sessions:
    """Return the first n steps of every session."""
    keep = sessions.steps < n
    offsets = np.concatenate([[0], np.cumsum(np.minimum(sessions.lengths, n))])
    return Sessions(sessions.arms[keep], sessions.rewards[keep], offsets, sessions.n_arms)


def _half_difference(
    sessions: Sessions | Packed, pairs: str, values: Float[Array, "Z"] | None
) -> Float[Array, "D D"] | None:
    """Return half the difference of the moments of two halves: it is distributed like the moments' error."""
    if len(sessions) < _LEAST_SESSIONS:
        return None
    family = "gaussian" if values is None else "categorical"
    how: dict[str, Any] = {"pairs": pairs, "rewards": family, "values": values}
    one, other = (second_moments(sessions, **how, half=half).second for half in (0, 1))
    return (one - other) / 2


def _drift(error: Float[Array, "D D"], basis: Float[Array, "D k"], values: Float[Array, "k"]) -> float:
    """Return how far a type of weight 1 is off the subspace of moments with this error, to first order.

    The leading eigenvectors turn by P E U / lambda, with P the projection off the subspace, so mu_m is off it by
    P E M2^-1 mu_m; and |M2^-1/2 mu_m| <= 1 / sqrt(w_m), because w_m mu_m mu_m' is a part of M2.
    """
    if values[-1] <= 0:
        return float("inf")
    turned = error @ (basis / np.sqrt(values))
    return float(np.linalg.norm(turned - basis @ (basis.T @ turned), axis=1).max())


def _leading(matrix: Float[Array, "D D"], rank: int, *, absolute: bool = False) -> tuple[Any, Any]:
    """Return eigenvalues, largest first, and their eigenvectors: all for small matrices, else the leading ones."""
    if len(matrix) <= max(_DENSE, rank + 1):
        values, vectors = np.linalg.eigh(matrix)
    else:
        from scipy.sparse.linalg import eigsh

        which, number = ("LM", 1) if absolute else ("LA", rank or _LEADING)
        values, vectors = eigsh(matrix, k=number, which=which, v0=np.ones(len(matrix)))
    order = np.argsort(-values)
    return values[order], vectors[:, order]
