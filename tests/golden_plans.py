"""Golden plans: six bandits with the bounds of the search after 1, 2 and 4 batches, and its first arms.

Each file in `tests/golden` holds its own configuration: the bandit, the horizon and the planner's options. After an
intended change of the bounds, regenerate them with `python tests/golden_plans.py`, which keeps the configurations; the
commit then shows the difference.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lmab

FOLDER = Path(__file__).parent / "golden"
BATCHES = (1, 2, 4)


class CountingClock(lmab.planning.Clock):
    """A clock that expires after so many batches of trials, however long they take.

    The search notes its bounds once at the start, once after the warm start, and after every batch.
    """

    def __init__(self, n_batches: int) -> None:
        super().__init__(float("inf"))
        self.n_batches = n_batches

    @property
    def expired(self) -> bool:
        return len(self.trace) >= 2 + self.n_batches


def solve(configuration: dict[str, Any]) -> dict[str, Any]:
    """Return the bounds and the first arms of the plan of a configuration."""
    kind, *arguments = configuration["bandit"].values()
    bandit = getattr(lmab.LatentBandit, kind)(*arguments)
    problem = lmab.planning.Problem.of(bandit, configuration["horizon"], configuration["bins"])
    clock = CountingClock(max(BATCHES))
    plan = lmab.Certified(**configuration["certified"]).solve(problem, clock)
    proved = clock.trace[1:]  # after the warm start, then after every batch until the gap was proved
    return {
        "status": str(plan.status),
        "bounds": {str(n): list(proved[min(n, len(proved) - 1)][1:]) for n in BATCHES},
        "first_arms": _first_arms(plan.policy.tree(3)),
    }


def _first_arms(tree: Any) -> Any:
    """Return the arm and the arms after each of its rewards: [arm, [...], [...]]."""
    return [tree.arm, *(_first_arms(branch.tree) for branch in tree.branches)]


def load() -> dict[str, dict[str, Any]]:
    """Return all golden plans, by name: their configuration and result."""
    contents = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
    return {name: content for name, content in contents.items() if "configuration" in content}


def write(name: str, configuration: dict[str, Any], result: dict[str, Any]) -> None:
    """Write one field per line, so that a difference is easy to read."""
    parts = []
    for part, fields in (("configuration", configuration), ("result", result)):
        lines = ",\n".join(f"  {json.dumps(field)}: {json.dumps(value)}" for field, value in fields.items())
        parts.append(f' "{part}": {{\n{lines}\n }}')
    (FOLDER / f"{name}.json").write_text("{\n" + ",\n".join(parts) + "\n}\n")


def main() -> None:
    for name, golden in load().items():
        result = solve(golden["configuration"])
        write(name, golden["configuration"], result)
        print(f"{name}: {'as before' if result == golden['result'] else 'changed'}")


if __name__ == "__main__":
    main()
