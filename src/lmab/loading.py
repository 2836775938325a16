"""`load`: any file of the package back into the value it was saved from."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from . import files
from .errors import InvalidFile, first_line
from .learning import HistoryPolicy, OptimisticPolicy, restore_run
from .model import LatentBandit
from .moments import Design
from .planning import (
    ExactNoRepeatsPolicy,
    ExactPolicy,
    LookaheadPolicy,
    NoRepeatsPolicy,
    NoRepeatsVectorPolicy,
    PolicyGraph,
    VectorPolicy,
)
from .policies import MUCB, FixedSequence, Greedy, Policy, Stationary, Thompson, Uniform

PLANNED: tuple[type[Policy], ...] = (
    VectorPolicy,
    LookaheadPolicy,
    ExactPolicy,
    NoRepeatsPolicy,
    ExactNoRepeatsPolicy,
    NoRepeatsVectorPolicy,
    PolicyGraph,
)
LEARNED: tuple[type[Policy], ...] = (HistoryPolicy, OptimisticPolicy)
POLICIES: tuple[type[Policy], ...] = (Uniform, FixedSequence, Stationary, Greedy, Thompson, MUCB, *PLANNED, *LEARNED)

_READERS: dict[str, Callable[[files.Record], Any]] = {
    "bandit": LatentBandit.from_record,
    "design": Design.from_record,
    "run": restore_run,
    **{policy.kind: policy.from_record for policy in POLICIES},
}


def load(path: str | os.PathLike[str]) -> Any:
    """Read a `LatentBandit`, a policy, a `Design` or a learner's `Run` from a file; nothing in a file is ever run.

    Examples:
        >>> import os, tempfile, lmab
        >>> path = os.path.join(tempfile.mkdtemp(), "model.lmab")
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> bandit.save(path)
        >>> lmab.load(path) == bandit
        True
    """
    record = files.read(path)
    if record.kind not in _READERS:
        raise InvalidFile(f"{os.fspath(path)}: holds a {record.kind!r}, which this lmab does not know")
    try:
        return _READERS[record.kind](record)
    except Exception as error:  # whatever a class makes of contents that are not its own
        raise InvalidFile(f"{os.fspath(path)}: damaged: {first_line(error)}") from None
