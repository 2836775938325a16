"""Near-optimal designs: time against the number of rows, and beside a general convex solver."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import lmab


def main() -> None:
    rng = np.random.default_rng(0)
    lmab.design(rng.standard_normal((100, 3)))  # imports
    for n_rows in (10**4, 10**5, 10**6):
        features = rng.standard_normal((n_rows, 10))
        seconds, design = _time(lambda features=features: lmab.design(features))
        print(f"{n_rows:>9,} x 10, g <= 2k: {seconds:6.3f} s, {seconds / n_rows * 1e6:.2f} us per row, {design}")
    _against_cvxpy(rng)


def _against_cvxpy(rng: np.random.Generator) -> None:
    features = rng.standard_normal((2000, 6))
    ours, design = _time(lambda: lmab.design(features, tolerance=1e-6))
    try:
        import cvxpy as cp
    except ImportError:
        print("cvxpy is not installed: no comparison")
        return
    rho = cp.Variable(2000, nonneg=True)
    problem = cp.Problem(cp.Maximize(cp.log_det(features.T @ cp.diag(rho) @ features)), [cp.sum(rho) == 1])
    theirs, _ = _time(problem.solve, repeats=1)
    information = features[design.support].T @ (design.rho[:, None] * features[design.support])
    difference = np.linalg.slogdet(information)[1] - problem.value
    print(f"2,000 x 6, tolerance 1e-6: ours {ours * 1e3:.1f} ms, cvxpy {theirs:.2f} s, ratio {theirs / ours:.0f}; "
          f"log det ours - cvxpy {difference:+.1e}")  # fmt: skip


def _time(call: Callable[[], object], repeats: int = 3) -> tuple[float, object]:
    best, result = float("inf"), None
    for _ in range(repeats):
        start = time.perf_counter()
        result = call()
        best = min(best, time.perf_counter() - start)
    return best, result


if __name__ == "__main__":
    main()
