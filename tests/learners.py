"""One example of every learner class, by class, with its tags. A class without one fails the tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import lmab
from lmab import LatentBandit
from lmab.learning.learner import Learner


@dataclass(frozen=True)
class Example:
    """Constructor of a learner for a bandit, and its properties.

    "plays nothing"; "one arm": its policy stays with one; "no model": it keeps none of types.
    """

    make: Callable[[LatentBandit], Learner]
    tags: frozenset[str] = frozenset()

    def __call__(self, bandit: LatentBandit) -> Learner:
        return self.make(bandit)


LIGHT = lmab.EM(restarts=3, sweeps=12)  # for tests that do not depend on the fit
EXAMPLES: dict[str, Example] = {
    "DirectMLE": Example(lambda bandit: lmab.DirectMLE(bandit.n_types, method=LIGHT)),
    "DirectMLE in rounds": Example(lambda bandit: lmab.DirectMLE(bandit.n_types, thompson_rounds=3, method=LIGHT)),
    "EDMLE": Example(lambda bandit: lmab.learning.EDMLE(bandit.n_types)),
    "EDMoments": Example(lambda bandit: lmab.learning.EDMoments(bandit.n_types)),
    "EDMoments as printed": Example(lambda bandit: lmab.learning.EDMoments(bandit.n_types, literal=True)),
    "Tensor": Example(lambda bandit: lmab.learning.Tensor(bandit.n_types)),
    "Clustering": Example(lambda bandit: lmab.learning.Clustering(bandit.n_types)),
    "LUCRL": Example(lambda bandit: lmab.learning.LUCRL(bandit.n_types)),
    "UCB": Example(lambda bandit: lmab.learning.UCB(), frozenset({"one arm", "no model"})),
    "HistoryUCBVI": Example(lambda bandit: lmab.learning.HistoryUCBVI(), frozenset({"no model"})),
    "Genie": Example(lambda bandit: lmab.learning.Genie(bandit), frozenset({"plays nothing"})),
}


def concrete() -> list[str]:
    """Every learner class that the package defines."""
    return sorted(cls.__name__ for cls in Learner.__subclasses__() if cls.__module__.startswith("lmab"))
