"""Powers that may leave the numeric range, and inequalities with a logarithm."""

from __future__ import annotations

import math


def power(base: float, exponent: float) -> float:
    """base ** exponent, infinite where it leaves the numeric range."""
    try:
        return float(base) ** exponent
    except (OverflowError, ZeroDivisionError):
        return math.inf


def solve_log(factor: float, eta: float) -> float:
    """Smallest N >= factor * log(N / eta), by iterating upwards."""
    n = max(factor, 1.0)
    if math.isinf(n):
        return n
    for _ in range(200):
        larger = factor * math.log(max(n, 1.0) / eta)
        if larger <= n * (1 + 1e-12):
            break
        n = larger
    return n
