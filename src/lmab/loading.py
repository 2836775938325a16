"""`load`: any file of the package back into the value it was saved from."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from . import files
from .errors import InvalidArgument, InvalidFile, first_line
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

Reader = Callable[[files.Record], Any]

_READERS: dict[str, Reader] = {
    "bandit": LatentBandit.from_record,
    "design": Design.from_record,
    **{policy.kind: policy.from_record for policy in POLICIES},
}


def load(path: str | os.PathLike[str], *, classes: Sequence[type] = ()) -> Any:
    """Read a `LatentBandit`, a policy, a `Design` or a learner's `Run` from a file; nothing in a file is ever run.

    Args:
        path: a file that `save` wrote.
        classes: classes of your own that the file may hold: policies, learners, planners.

    Examples:
        >>> import os, tempfile, lmab
        >>> path = os.path.join(tempfile.mkdtemp(), "model.lmab")
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> bandit.save(path)
        >>> lmab.load(path) == bandit
        True
    """
    record = files.read(path)
    readers = _readers(classes)
    if record.kind not in readers:
        raise InvalidFile(f"{os.fspath(path)}: holds a {record.kind!r}, which this lmab does not know")
    try:
        return readers[record.kind](record)
    except Exception as error:  # whatever a class makes of contents that are not its own
        raise InvalidFile(f"{os.fspath(path)}: damaged: {first_line(error)}") from None


def _readers(classes: Sequence[type]) -> dict[str, Reader]:
    """What reads each kind of file: the package's classes, then those given."""
    own = {cls.kind: cls.from_record for cls in classes if issubclass(cls, Policy) and cls not in POLICIES}
    taken = sorted(own.keys() & (_READERS.keys() | {"run"}))
    if taken:
        raise InvalidArgument(f"classes must have kinds of their own, got {taken[0]!r}, which is the package's")
    return {**_READERS, **own, "run": partial(restore_run, classes=classes)}
