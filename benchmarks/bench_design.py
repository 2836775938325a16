"""Near-optimal designs: processor time against the number of rows, and beside a general convex solver."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import lmab

from .rows import Rows
from .timing import fastest


def main() -> Rows:
    rng, rows = np.random.default_rng(0), {}
    lmab.moments.design(rng.standard_normal((100, 3)))  # imports
    for n_rows in (10**4, 10**5, 10**6):
        features = rng.standard_normal((n_rows, 10))
        design, _, seconds = fastest(partial(lmab.moments.design, features), repeats=3)
        print(f"{n_rows:>9,} x 10, g <= 2k: {seconds:6.3f} s, {seconds / n_rows * 1e6:.2f} us per row, {design}")
        rows[f"{n_rows}/seconds"] = seconds
    return rows | _against_cvxpy(rng)


def _against_cvxpy(rng: np.random.Generator) -> Rows:
    features = rng.standard_normal((2000, 6))
    design, _, ours = fastest(partial(lmab.moments.design, features, tolerance=1e-6), repeats=3)
    try:
        import cvxpy
    except ImportError:
        print("cvxpy is not installed: no comparison")
        return {"2000/milliseconds": ours * 1e3}
    cp: Any = cvxpy  # its types leave out most of it
    rho = cp.Variable(2000, nonneg=True)
    problem = cp.Problem(cp.Maximize(cp.log_det(features.T @ cp.diag(rho) @ features)), [cp.sum(rho) == 1])
    theirs = fastest(problem.solve, repeats=1).used
    information = features[design.support].T @ (design.rho[:, None] * features[design.support])
    difference = float(np.linalg.slogdet(information)[1] - problem.value)
    print(f"2,000 x 6, tolerance 1e-6: ours {ours * 1e3:.1f} ms, cvxpy {theirs:.2f} s, ratio {theirs / ours:.0f}; "
          f"log det ours - cvxpy {difference:+.1e}")  # fmt: skip
    measures = {"milliseconds": ours * 1e3, "cvxpy": theirs, "ratio": theirs / ours, "difference": difference}
    return {f"2000/{name}": value for name, value in measures.items()}


if __name__ == "__main__":
    main()
