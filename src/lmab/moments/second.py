"""Second moments of a log, and the subspace that the contexts span (step 1 of Algorithm 1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer
from ..checks import OneOf, check, check_count, optional
from ..data import Episodes, Packed
from ..errors import InvalidArgument
from ..model import distinct_values, index_among

_PAIRS = ("all", "first-two")
_FAMILIES = ("categorical", "gaussian")
_MAX_FEATURES = 5000  # a D x D matrix is held in memory
_DENSE = 1000  # with more features, only the leading eigenvalues are computed
_LEADING = 40  # eigenvalues computed beyond that, where the rank is not given
_CHUNK = 1 << 18  # episodes processed at once
_SAFETY = 2.0  # the error is measured once, and another draw of the same law is rarely more than twice as large
_LEAST_EPISODES = 4  # with fewer, two halves of the log cannot measure its error


@dataclass(frozen=True, eq=False)
class Moments:
    """Second moments M2 = sum_m w_m mu_m mu_m', estimated from a log."""

    second: Float[Array, "D D"]  # symmetric; row a*Z + z is the pair (arm a, value z), or row a is arm a
    plays: Float[Array, "A A"]  # how often each pair of arms was seen in two steps of an episode
    values: Float[Array, "Z"] | None  # the reward values; None where rewards themselves are multiplied (Gaussian)

    @property
    def n_arms(self) -> int:
        return len(self.plays)


@dataclass(frozen=True, eq=False)
class Subspace:
    """The span of the leading eigenvectors of the second moments: an estimate of span(mu_1, ..., mu_M)."""

    basis: Float[Array, "D k"]  # orthonormal columns
    eigenvalues: Float[Array, "E"]  # of the second moments, falling; the first k belong to the basis
    n_arms: int
    values: Float[Array, "Z"] | None = None  # None: one row per arm
    noise: float | None = None  # spectral norm of the error of the second moments, measured; None: unknown
    error: float | None = None  # delta_sub of Lemma 3.7, measured: see `off_by`; None: unknown

    @property
    def rank(self) -> int:
        return int(self.basis.shape[1])

    def off_by(self, weight: float) -> float:
        """How far a context of that weight is from this subspace, in any row: delta_sub / sqrt(w_m) of Lemma 3.7."""
        if self.error is None:
            raise InvalidArgument("the subspace must come from a log of at least 4 episodes, got one of unknown error")
        return self.error / float(np.sqrt(weight))

    def __repr__(self) -> str:
        return f"Subspace(rank {self.rank} of {len(self.basis)} rows, {self.n_arms} arms)"


def subspace(
    episodes: Episodes | Packed, *, rank: int | None = None, pairs: str = "all", rewards: str | None = None
) -> Subspace:
    """Estimate the subspace that the contexts' reward probabilities span, without telling contexts apart (Lemma 3.7).

    Correlations between two steps of the same episode come from the context alone, as long as the arms do not depend
    on the session's own rewards. In logs of adaptive policies the correlations are biased: they are good enough to
    start EM, but not for moment matching.

    Args:
        episodes: a log in which sessions have at least two steps.
        rank: k; None counts the eigenvalues that are above the noise, which is measured by the difference of two halves
            of the log.
        pairs: "all" pairs of steps of an episode, or the "first-two" as the paper prints it, which have the same
            expectation and several times the noise.
        rewards: "categorical" (one row per arm and value), "gaussian" (one row per arm), or None: categorical when the
            log holds at most 32 distinct rewards.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(1)
        >>> bandit = lmab.random_bandit(7, 20, rng=rng)
        >>> log = lmab.simulate(bandit, lmab.Uniform(20), n_episodes=50_000, horizon=7, rng=rng)
        >>> lmab.subspace(log)
        Subspace(rank 4 of 40 rows, 20 arms)
    """
    moments = second_moments(episodes, pairs=pairs, rewards=rewards)
    size = len(moments.second)
    if rank is not None and check_count("rank", rank) > size:
        raise InvalidArgument(f"rank must be at most the number of rows ({size}), got {rank}")
    if rank is None and len(episodes) < _LEAST_EPISODES:
        raise InvalidArgument(f"rank must be given for a log of fewer than 4 episodes, got None for {len(episodes)}")
    difference = _half_difference(episodes, pairs, moments.values)
    noise = None if difference is None else float(np.abs(_leading(difference, 0, absolute=True)[0]).max())
    values, vectors = _leading(moments.second, rank or 0)
    k = rank or max(1, int((values > (noise or 0.0)).sum()))
    basis = np.ascontiguousarray(vectors[:, :k])
    error = None
    if difference is not None and noise is not None:
        error = min(_SAFETY * _drift(difference, basis, values[:k]), float(np.sqrt(2 * noise)))
    return Subspace(basis, values, moments.n_arms, moments.values, noise, error)


def second_moments(
    episodes: Episodes | Packed,
    *,
    pairs: str = "all",
    rewards: str | None = None,
    values: Float[Array, "Z"] | None = None,
    half: int | None = None,
) -> Moments:
    """The second moments of a log: each entry is a mean over the times that its two arms were played together.

    Entries are divided by the plays of the pair and not by N (the paper's estimator, which is M2 / A^2 under uniform
    play), so that they do not depend on the logging policy. Pairs of arms that were never played together get the
    product of their marginals. `values` are the (rising) reward values, where the log may not show all of them. `half`
    0 or 1 looks at every second episode only.
    """
    check("pairs", pairs, OneOf(_PAIRS))
    check("rewards", rewards, optional(OneOf(_FAMILIES)))
    if episodes.horizon < 2:
        raise InvalidArgument("episodes must have sessions of at least 2 steps, because correlations need two, got 1")
    if values is None and rewards != "gaussian":
        values = distinct_values(_seen(episodes, pairs), limited=rewards is None)
    per_arm = 1 if values is None else len(values)
    if episodes.n_arms * per_arm > _MAX_FEATURES:
        raise InvalidArgument(f"episodes must have at most {_MAX_FEATURES} pairs, got {episodes.n_arms * per_arm}")
    size = episodes.n_arms * per_arm
    sums, plays = np.zeros((size, size)), np.zeros((episodes.n_arms, episodes.n_arms))
    paid, played = np.zeros(size), np.zeros(episodes.n_arms)
    for chunk in _chunks(episodes, pairs, half):
        arms, steps = np.asarray(chunk.actions, np.int64), np.ones(chunk.n_steps)
        features, weights = arms, chunk.rewards
        if values is not None:
            features, weights = arms * per_arm + index_among(values, chunk.rewards), steps
        sums += _pair_sums(chunk, features, weights, size)
        plays += _pair_sums(chunk, arms, steps, episodes.n_arms)
        paid += np.bincount(features, weights, minlength=size)
        played += np.bincount(arms, minlength=episodes.n_arms)
    marginal = (paid / np.maximum(np.repeat(played, per_arm), 1)).reshape(-1, per_arm)
    second = sums.reshape(episodes.n_arms, per_arm, episodes.n_arms, per_arm)  # in place: D x D is large
    second /= np.maximum(plays, 1)[:, None, :, None]
    one, other = np.nonzero(plays == 0)
    second[one, :, other, :] = marginal[one][:, :, None] * marginal[other][:, None, :]
    return Moments(sums, plays, values)


def _seen(episodes: Episodes | Packed, pairs: str) -> Float[Array, "n"]:
    """Rewards among which each reward is that counts."""
    if pairs == "all":
        return episodes.some_rewards
    return np.concatenate([np.unique(chunk.rewards) for chunk in _chunks(episodes, pairs, None)])


def _chunks(episodes: Episodes | Packed, pairs: str, half: int | None) -> Iterator[Episodes]:
    """What counts of the log, a bounded number of episodes at a time."""
    for chunk in episodes.chunks(_CHUNK):
        if half is not None and len(chunk) <= half:
            continue
        own = chunk if half is None else chunk[half::2]
        yield _first_steps(own, 2) if pairs == "first-two" else own


def _pair_sums(
    episodes: Episodes, features: Integer[Array, "S"], weights: Float[Array, "S"], size: int
) -> Float[Array, "D D"]:
    """Sum over ordered pairs of different steps of an episode of the products of their weights, by feature."""
    from scipy.sparse import csr_array

    rows = csr_array((weights, features, episodes.offsets), shape=(len(episodes), size))
    total = (rows.T @ rows).toarray()
    own = np.bincount(features, weights**2, minlength=size)  # a step with itself is no pair
    total[np.diag_indices(size)] -= own
    return total


def _first_steps(episodes: Episodes, n: int) -> Episodes:
    """The first n steps of every episode."""
    keep = episodes.steps < n
    offsets = np.concatenate([[0], np.cumsum(np.minimum(episodes.lengths, n))])
    return Episodes(episodes.actions[keep], episodes.rewards[keep], offsets, episodes.n_arms)


def _half_difference(
    episodes: Episodes | Packed, pairs: str, values: Float[Array, "Z"] | None
) -> Float[Array, "D D"] | None:
    """Half the difference between the moments of two halves of the log: it has the law of the moments' own error."""
    if len(episodes) < _LEAST_EPISODES:
        return None
    family = "gaussian" if values is None else "categorical"
    how: dict[str, Any] = {"pairs": pairs, "rewards": family, "values": values}
    one, other = (second_moments(episodes, **how, half=half).second for half in (0, 1))
    return (one - other) / 2


def _drift(error: Float[Array, "D D"], basis: Float[Array, "D k"], values: Float[Array, "k"]) -> float:
    """How far a context of weight 1 is off the subspace of moments with this error, to first order.

    The leading eigenvectors turn by P E U / lambda, with P the projection off the subspace, so mu_m is off it by
    P E M2^-1 mu_m; and |M2^-1/2 mu_m| <= 1 / sqrt(w_m), because w_m mu_m mu_m' is a part of M2.
    """
    if values[-1] <= 0:
        return float("inf")
    turned = error @ (basis / np.sqrt(values))
    return float(np.linalg.norm(turned - basis @ (basis.T @ turned), axis=1).max())


def _leading(matrix: Float[Array, "D D"], rank: int, *, absolute: bool = False) -> tuple[Any, Any]:
    """Eigenvalues, largest first, and their eigenvectors: all of them for small matrices, else the leading ones."""
    if len(matrix) <= max(_DENSE, rank + 1):
        values, vectors = np.linalg.eigh(matrix)
    else:
        from scipy.sparse.linalg import eigsh

        which, number = ("LM", 1) if absolute else ("LA", rank or _LEADING)
        values, vectors = eigsh(matrix, k=number, which=which, v0=np.ones(len(matrix)))
    order = np.argsort(-values)
    return values[order], vectors[:, order]
