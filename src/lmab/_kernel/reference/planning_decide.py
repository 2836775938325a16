"""One decision of one session: the belief after a reward, and the best plan at a belief."""

from __future__ import annotations

from ..._shapes import Array, Float

ROUNDING = 1e-12  # scores within this relative difference are equal: the first of them is taken


def updated(belief: Float[Array, "M"], likelihood: Float[Array, "M"]) -> tuple[Float[Array, "M"], float]:
    """The product, and its largest entry."""
    product = belief * likelihood
    return product, float(product.max())


def best_plan(
    belief: Float[Array, "M"], vectors: Float[Array, "K M"], start: int, stop: int, scores: Float[Array, "K"]
) -> int:
    """The first of the plans from `start` to `stop` whose score is the highest, up to rounding. `scores`: scratch."""
    worth = vectors[start:stop] @ belief
    return start + int((worth >= worth.max() - ROUNDING * abs(worth.max())).argmax())
