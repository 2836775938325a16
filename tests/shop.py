"""The log of the README: a shop shows products to visitors of three kinds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

ITEMS = ("Cake", "Espresso", "Green tea", "Juice", "Sandwich", "Soup")
LIKED = np.array([[0.8, 0.7, 0.1, 0.2, 0.3, 0.1], [0.1, 0.2, 0.8, 0.7, 0.3, 0.4], [0.3, 0.3, 0.2, 0.1, 0.8, 0.7]])


def write(path: Path, rng: np.random.Generator, sessions: int = 600) -> None:
    rows = ["session,item,click"]
    for session in range(sessions):
        kind = rng.integers(3)
        items = rng.integers(len(ITEMS), size=5)
        rows += [f"v{session},{ITEMS[item]},{int(rng.random() < LIKED[kind, item])}" for item in items]
    path.write_text("\n".join(rows))
