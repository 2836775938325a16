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
from .planning import ExactNoRepeatsPolicy, ExactPolicy, LookaheadPolicy, NoRepeatsPolicy, PolicyGraph, VectorPolicy
from .policies import MUCB, FixedSequence, Greedy, Policy, Stationary, Thompson, Uniform

PLANNED: tuple[type[Policy], ...] = (
    VectorPolicy,
    LookaheadPolicy,
    ExactPolicy,
    NoRepeatsPolicy,
    ExactNoRepeatsPolicy,
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

    Policies, learners and planners may be of your own classes, once the modules that define them are imported.

    Examples:
        >>> import os, tempfile, lmab
        >>> path = os.path.join(tempfile.mkdtemp(), "model.lmab")
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> bandit.save(path)
        >>> lmab.load(path) == bandit
        True
    """
    record = files.read(path)
    reader = _READERS.get(record.kind) or _own_policy(record.kind)
    if reader is None:
        raise InvalidFile(f"{os.fspath(path)}: holds a {record.kind!r}, which this lmab does not know")
    try:
        return reader(record)
    except Exception as error:  # whatever a class makes of contents that are not its own
        raise InvalidFile(f"{os.fspath(path)}: damaged: {first_line(error)}") from None


def _own_policy(kind: str) -> Callable[[files.Record], Any] | None:
    """What reads a policy of a class outside the package; of two classes of one kind the later."""
    found, todo = None, list(Policy.__subclasses__())
    for cls in todo:
        todo += cls.__subclasses__()
        if vars(cls).get("kind") == kind:
            found = cls.from_record
    return found
