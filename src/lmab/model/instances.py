"""Seeded random latent bandits as in the paper, typical ones, and ones in which information is costly."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._shapes import Array, Float
from ..checks import Rng, check_count, check_rng, choices
from ..errors import InvalidArgument
from .bandit import LatentBandit

Means = Float[Array, "M A"]


def random_bandit(n_types: int, n_arms: int, *, rank: int = 4, kind: str = "spherical", rng: Rng) -> LatentBandit:
    """Draw a Bernoulli latent bandit.

    Kinds:
        spherical: means (1 + u_a . v_m) / 2 with random unit vectors u_a, v_m in rank - 1 dimensions and equal
            weights, so that the means have rank `rank` for any number of types (the paper's section 4).
        ordinary: types are Dirichlet(1) mixtures of `rank` random mean vectors.
        spread: the same with Dirichlet(0.2): types near the base vectors.
        hard: each type has its good arms (0.95 against 0.10), cheap arms reveal the bits of the type's
            number (0.02 against 0.70), one safe arm has the same mean in every type, and the other arms are useless. A
            policy that never pays for information plays the safe arm.
        deep: the same, but the safe arm pays more than a guess until every bit is revealed.

    Args:
        n_types: M, at least 1.
        n_arms: A; `hard` and `deep` need one per type, one per bit and the safe one.
        rank: dimension of the space that the means span (not used by `hard` and `deep`).
        rng: a generator or a seed; the same seed gives the same bandit.


    Examples:
        >>> import numpy as np, lmab
        >>> bandit = lmab.random_bandit(7, 50, rng=np.random.default_rng(0))
        >>> bandit.n_types, bandit.n_arms, int(np.linalg.matrix_rank(bandit.means))
        (7, 50, 4)
    """
    n_types, n_arms = check_count("n_types", n_types), check_count("n_arms", n_arms)
    rng = check_rng(rng, "the bandit is drawn at random")
    if kind not in _KINDS:
        raise InvalidArgument(f"kind must be {choices(list(_KINDS))}, got {kind!r}")
    rank = check_count("rank", rank, minimum=2 if kind == "spherical" else 1)
    return _KINDS[kind](n_types, n_arms, rank, rng)


def _spherical(n_types: int, n_arms: int, rank: int, rng: np.random.Generator) -> LatentBandit:
    arms, types = _unit_vectors(n_arms, rank - 1, rng), _unit_vectors(n_types, rank - 1, rng)
    means = np.clip((1 + types @ arms.T) / 2, 0, 1)
    return LatentBandit.bernoulli(np.full(n_types, 1 / n_types), means)


def _unit_vectors(n: int, dimension: int, rng: np.random.Generator) -> Float[Array, "n d"]:
    vectors = rng.standard_normal((n, dimension))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _mixed(concentration: float) -> Callable[[int, int, int, np.random.Generator], LatentBandit]:
    def draw(n_types: int, n_arms: int, rank: int, rng: np.random.Generator) -> LatentBandit:
        base = rng.random((rank, n_arms))
        shares = rng.dirichlet(np.full(rank, concentration), size=n_types)
        return LatentBandit.bernoulli(_weights(n_types, rng), np.clip(shares @ base, 0, 1))

    return draw


def _revealing(safe_is_best: bool) -> Callable[[int, int, int, np.random.Generator], LatentBandit]:
    def draw(n_types: int, n_arms: int, rank: int, rng: np.random.Generator) -> LatentBandit:
        n_bits = max(1, int(np.ceil(np.log2(n_types))))
        if n_arms < n_types + n_bits + 1:
            raise InvalidArgument(
                f"n_arms must be at least {n_types + n_bits + 1} here (one per type, {n_bits} that reveal, "
                f"a safe one), got {n_arms}"
            )
        weights = _weights(n_types, rng, concentration=20)  # no type is so probable that a guess pays
        good = np.where(np.eye(n_types, dtype=bool), 0.95, 0.10)
        bits = (np.arange(n_types)[:, None] >> np.arange(n_bits)) & 1
        reveal = np.where(bits == 1, 0.70, 0.02)
        noise = rng.uniform(-0.02, 0.02, size=(n_types, n_types + n_bits))
        useful = np.clip(np.hstack([good, reveal]) + noise, 0.01, 0.99)
        safe = 0.605 if safe_is_best else float((weights @ useful).max()) + 0.05  # a little above the best guess
        n_fillers = n_arms - n_types - n_bits - 1
        fillers = rng.uniform(0.1, 0.85, size=n_fillers) * safe + rng.uniform(-0.07, 0.07, size=(n_types, n_fillers))
        fillers = np.clip(fillers, 0.01, safe)
        means = np.hstack([useful, np.full((n_types, 1), safe), fillers])
        return LatentBandit.bernoulli(weights, means[:, rng.permutation(n_arms)])

    return draw


def _weights(n_types: int, rng: np.random.Generator, concentration: float = 5) -> Float[Array, "M"]:
    return rng.dirichlet(np.full(n_types, concentration))


_KINDS: dict[str, Callable[[int, int, int, np.random.Generator], LatentBandit]] = {
    "spherical": _spherical,
    "ordinary": _mixed(1.0),
    "spread": _mixed(0.2),
    "hard": _revealing(safe_is_best=False),
    "deep": _revealing(safe_is_best=True),
}
