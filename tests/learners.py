"""One example of every learner class, by class, for the contract tests. A class without one fails the tests."""

from __future__ import annotations

from collections.abc import Callable

import lmab
from lmab import LatentBandit, Learner

EXAMPLES: dict[str, Callable[[LatentBandit], Learner]] = {
    "DirectMLE": lambda bandit: lmab.DirectMLE(bandit.n_contexts),
    "EDMLE": lambda bandit: lmab.EDMLE(bandit.n_contexts),
    "EDMoments": lambda bandit: lmab.EDMoments(bandit.n_contexts),
    "Tensor": lambda bandit: lmab.Tensor(bandit.n_contexts),
    "LUCRL": lambda bandit: lmab.LUCRL(bandit.n_contexts),
    "UCB": lambda bandit: lmab.UCB(),
    "HistoryUCBVI": lambda bandit: lmab.HistoryUCBVI(),
    "Genie": lambda bandit: lmab.Genie(bandit),
}


def concrete() -> list[str]:
    """Every learner class that the package defines."""
    return sorted(cls.__name__ for cls in Learner.__subclasses__() if cls.__module__.startswith("lmab"))
