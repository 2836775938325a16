"""One example of every policy class, by class, with its tags. A class without one fails the tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from seeds import generator

import lmab
from lmab import LatentBandit, Policy
from lmab.policies.wrappers import Relabelled


@dataclass(frozen=True)
class Example:
    """Constructor of a policy, and its properties: "random", "blind" to rewards, "ordered" (the order matters)."""

    make: Callable[[LatentBandit, int], Policy]
    tags: frozenset[str] = frozenset()

    def __call__(self, bandit: LatentBandit, horizon: int) -> Policy:
        return self.make(bandit, horizon)


def _planned(bandit: LatentBandit, horizon: int, **options) -> Policy:
    return lmab.plan(bandit, horizon=horizon, **options).policy


def _history_policy(bandit: LatentBandit, horizon: int) -> Policy:
    from lmab.paper.history_ucbvi import HistoryPolicy

    n_codes = bandit.n_arms * bandit.rewards.n_values
    rng = generator(0)
    return HistoryPolicy(bandit.rewards.values, [rng.random((n_codes**t, bandit.n_arms)) for t in range(horizon)])


def _optimistic_policy(bandit: LatentBandit, horizon: int) -> Policy:
    from lmab.paper.l_ucrl import OptimisticPolicy

    return OptimisticPolicy(bandit, 0.1 * bandit.means)


EXAMPLES: dict[str, Example] = {
    "Uniform": Example(lambda bandit, horizon: lmab.Uniform(bandit.n_arms), frozenset({"random", "blind"})),
    "Ranking": Example(
        lambda bandit, horizon: lmab.policies.Ranking(range(bandit.n_arms)[::-1], horizon=horizon, repeats=False),
        frozenset({"blind"}),
    ),
    "Greedy": Example(lambda bandit, horizon: lmab.Greedy(bandit)),
    "Thompson": Example(lambda bandit, horizon: lmab.Thompson(bandit), frozenset({"random"})),
    "MUCB": Example(lambda bandit, horizon: lmab.policies.MUCB(bandit), frozenset({"ordered"})),
    "Exploring": Example(
        lambda bandit, horizon: lmab.policies.Exploring(_planned(bandit, horizon), 0.3), frozenset({"random"})
    ),
    "Relabelled": Example(
        lambda bandit, horizon: Relabelled(_planned(bandit, horizon), [3, 4, *range(10, 8 + bandit.n_arms)])
    ),
    "VectorPolicy": Example(_planned),
    "LookaheadPolicy": Example(lambda bandit, horizon: _planned(bandit, horizon, method=lmab.planning.Lookahead(2))),
    "ExactPolicy": Example(lambda bandit, horizon: _planned(bandit, horizon, method=lmab.Exact())),
    "PolicyGraph": Example(lambda bandit, horizon: _planned(bandit, horizon).graph()),
    "NoRepeatLookaheadPolicy": Example(
        lambda bandit, horizon: _planned(bandit, horizon, method=lmab.planning.Lookahead(2), repeats=False)
    ),
    "NoRepeatVectorPolicy": Example(
        lambda bandit, horizon: _planned(bandit, horizon, method=lmab.planning.PointBased(n_beliefs=20), repeats=False)
    ),
    "NoRepeatExactPolicy": Example(lambda bandit, horizon: _planned(bandit, horizon, repeats=False)),
}
if find_spec("lmab.paper") is not None:
    EXAMPLES |= {
        "OptimisticPolicy": Example(_optimistic_policy),
        "HistoryPolicy": Example(_history_policy, frozenset({"ordered"})),
    }


def always(arm: int, n_arms: int = 2, *, horizon: int | None = None) -> lmab.policies.Ranking:
    """Return the policy that plays one arm at every step, and the others by number if it is not allowed."""
    return lmab.policies.Ranking(list(dict.fromkeys([arm, *range(n_arms)])), horizon=horizon)


def in_turn(*arms: int, n_arms: int | None = None) -> lmab.policies.Ranking:
    """Return the policy that plays each of these arms once, then the others by number, then the first arm."""
    order = dict.fromkeys([*arms, *range(n_arms or max(arms) + 1)])
    return lmab.policies.Ranking(list(order), horizon=len(arms), repeats=False)


def of_any_arms(name: str = "one-arm-numbered") -> lmab.policies.Ranking:
    """Load a policy of an earlier version that does not know how many arms there are; by default it plays arm 2."""
    loaded = lmab.load(Path(__file__).parent / "golden" / "policies" / f"{name}.lmab")
    assert isinstance(loaded, lmab.policies.Ranking)
    return loaded


def concrete() -> dict[str, type[Policy]]:
    """Every final policy class that the package defines."""
    found: dict[str, type[Policy]] = {}
    todo: list[type[Policy]] = Policy.__subclasses__()
    while todo:
        cls = todo.pop()
        below = [one for one in cls.__subclasses__() if one.__module__.startswith("lmab")]
        todo += below
        if not below and cls.__module__.startswith("lmab"):
            found[cls.__name__] = cls
    return found
