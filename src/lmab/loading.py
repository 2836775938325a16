"""load: read any file of the package and return the value that was saved."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from . import files
from .errors import InvalidFile, first_line
from .estimation import Estimate
from .evaluation import Certificate
from .learning.run import restore_run
from .model import LatentBandit, TypePrior
from .moments import Design
from .planning import Plan
from .policies import restore_policy

_READERS: dict[str, Callable[[files.Record], Any]] = {
    "bandit": LatentBandit.from_record,
    "certificate": Certificate.from_record,
    "design": Design.from_record,
    "estimate": Estimate.from_record,
    "plan": Plan.from_record,
    "run": restore_run,
    "type_prior": TypePrior.from_record,
}  # any other kind is that of a policy


def load(path: str | os.PathLike[str]) -> Any:
    """Read what was saved: a bandit, an estimate, a policy, a plan, a certificate, a `Design`, a learner's `Run`, or a
    `TypePrior`.

    No code in a file is ever run.

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
    try:
        return _READERS.get(record.kind, restore_policy)(record)
    except InvalidFile as error:
        raise InvalidFile(f"{os.fspath(path)}: {error}") from None
    except Exception as error:  # whatever a class makes of contents that are not its own
        raise InvalidFile(f"{os.fspath(path)}: damaged: {first_line(error)}") from None
