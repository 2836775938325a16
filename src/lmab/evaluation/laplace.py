"""How sure a log makes one of a fitted bandit: the Laplace approximation of the posterior around the estimate.

Models are described by logits: every distribution over n outcomes (the weights; the reward values of an arm in a
context) is softmax(B x) with n - 1 coordinates x. The columns of B sum to 0 and are orthogonal, of length 1/sqrt(2):
for two outcomes x is the usual logit, and for more no outcome is singled out as the reference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Float
from ..data import Episodes
from ..errors import TooLarge
from ..model import Categorical, LatentBandit, belief

PARAMETER_LIMIT = 5000  # whose information matrix is still decomposed in minutes
FLOOR = 1.0  # least information about any direction: a logit is never less sure than +-1
_IMPOSSIBLE = 1e-12  # probabilities below this are taken for this: logits are finite


@dataclass(frozen=True, eq=False)
class Laplace:
    """A normal distribution over the logits of a bandit."""

    weights: Float[Array, "M"]  # of the model in the centre
    rewards: Categorical
    eigenvalues: Float[Array, "P"]  # of the information, before any is raised to FLOOR
    eigenvectors: Float[Array, "P P"]

    @property
    def n_parameters(self) -> int:
        return len(self.eigenvalues)

    @property
    def n_floored(self) -> int:
        """Directions that the log says next to nothing about."""
        return int((self.eigenvalues < FLOOR).sum())

    def draw(self, n_draws: int, rng: np.random.Generator) -> tuple[Float[Array, "B M"], list[Categorical]]:
        """Weights and rewards of models that the log could have come from."""
        noise = rng.standard_normal((n_draws, self.n_parameters))
        moves = noise / np.sqrt(np.maximum(self.eigenvalues, FLOOR)) @ self.eigenvectors.T
        n_contexts, n_arms, n_values = self.rewards.probabilities.shape
        weights = _moved(self.weights, moves[:, : n_contexts - 1])
        moves = moves[:, n_contexts - 1 :].reshape(n_draws, n_arms, n_contexts, n_values - 1)
        probabilities = _moved(self.rewards.probabilities, moves.swapaxes(1, 2))
        return weights, [Categorical(drawn, self.rewards.values) for drawn in probabilities]


def laplace(bandit: LatentBandit, rewards: Categorical, episodes: Episodes, *, prior: float) -> Laplace:
    """The Laplace approximation around `bandit`, fitted with `prior` pseudo-counts per context and arm."""
    eigenvalues, eigenvectors = np.linalg.eigh(information(bandit, rewards, episodes, prior=prior))
    return Laplace(bandit.weights, rewards, eigenvalues, eigenvectors)


def information(bandit: LatentBandit, rewards: Categorical, episodes: Episodes, *, prior: float) -> Float[Array, "P P"]:
    """Minus the second derivatives of log-likelihood plus log prior in the logits: Louis' observed information.

    That is the information of a log in which the contexts were seen, plus that of the prior, less what is missing
    because they were not. Coordinates: M - 1 for the weights, then those of the rewards as (arm, context, Z - 1).
    """
    n_contexts = bandit.n_contexts
    shares = belief.posterior(bandit, episodes)
    result = -_missing(rewards, episodes, shares)
    result[:n_contexts, :n_contexts] += len(episodes) * _covariances(bandit.weights)
    plays = _expected_plays(episodes, shares, rewards.n_arms)
    blocks = (plays + prior)[:, :, None, None] * _seen_information(rewards)
    starts = n_contexts + np.arange(plays.size) * (rewards.n_values - 1)
    rows = starts[:, None] + np.arange(rewards.n_values - 1)
    result[rows[:, :, None], rows[:, None, :]] += blocks.reshape(plays.size, *blocks.shape[2:])
    return _reduced(result, contrasts(n_contexts))


def contrasts(n: int) -> Float[Array, "n n1"]:
    """The matrix B of softmax(B x): n rows, n - 1 orthogonal columns of length 1/sqrt(2) that sum to 0."""
    columns = np.zeros((n, n - 1))
    for k in range(1, n):
        columns[:k, k - 1] = -1.0
        columns[k, k - 1] = k
        columns[:, k - 1] /= np.sqrt(2 * k * (k + 1))
    return columns


def _missing(rewards: Categorical, episodes: Episodes, shares: Float[Array, "N M"]) -> Float[Array, "Q Q"]:
    n_contexts, n_arms, n_values = rewards.probabilities.shape
    size = n_contexts * (1 + n_arms * (n_values - 1))
    if size > PARAMETER_LIMIT:
        raise TooLarge(
            f"a certificate would need the second derivatives of {size} parameters ({n_contexts} contexts, {n_arms} "
            f"arms, {n_values} values), more than {PARAMETER_LIMIT}: fit fewer contexts, or merge rare arms or values"
        )
    basis = contrasts(n_values)
    expected = (rewards.probabilities @ basis).swapaxes(0, 1)  # (A, M, K)
    scores = np.ascontiguousarray(basis[None, :, None, :] - expected[:, None])  # (A, Z, M, K)
    codes = rewards.codes(episodes.actions, episodes.rewards)
    result = np.empty((size, size))
    kernel("information").missing(
        codes, episodes.offsets, shares, scores.reshape(n_arms * n_values, n_contexts, n_values - 1), result
    )
    return result


def _expected_plays(episodes: Episodes, shares: Float[Array, "N M"], n_arms: int) -> Float[Array, "A M"]:
    """How often each arm was played in each context, in expectation."""
    lengths = np.diff(episodes.offsets)
    columns = [np.bincount(episodes.actions, np.repeat(column, lengths), minlength=n_arms) for column in shares.T]
    return np.stack(columns, axis=1)


def _seen_information(rewards: Categorical) -> Float[Array, "A M K K"]:
    """What one play of an arm in a known context tells about its logits."""
    basis = contrasts(rewards.n_values)
    return (basis.T @ _covariances(rewards.probabilities) @ basis).swapaxes(0, 1)


def _covariances(probabilities: Float[Array, "*n Z"]) -> Float[Array, "*n Z Z"]:
    """diag(p) - p p' of every distribution."""
    diagonal = probabilities[..., None] * np.eye(probabilities.shape[-1])
    return diagonal - probabilities[..., :, None] * probabilities[..., None, :]


def _reduced(matrix: Float[Array, "Q Q"], basis: Float[Array, "M k"]) -> Float[Array, "P P"]:
    """The first M coordinates, of which only differences matter, replaced by M - 1."""
    n = len(basis)
    top = basis.T @ matrix[:n]
    corner = top[:, :n] @ basis
    return np.block([[corner, top[:, n:]], [top[:, n:].T, matrix[n:, n:]]])


def _moved(probabilities: Float[Array, "*n Z"], moves: Float[Array, "B *n K"]) -> Float[Array, "B *n Z"]:
    """The distributions with their logits moved."""
    logits = np.log(np.maximum(probabilities, _IMPOSSIBLE)) + moves @ contrasts(probabilities.shape[-1]).T
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)
