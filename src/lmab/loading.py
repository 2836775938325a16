"""load: read any file of the package and return the value that was saved."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from . import files
from .errors import InvalidFile, first_line

#: What reads a file, by its kind: a module, which is imported then, and a function or class of it.
_READERS = {
    "bandit": ("model.bandit", "LatentBandit"),
    "certificate": ("evaluation.certificate", "Certificate"),
    "design": ("moments.core_set", "Design"),
    "estimate": ("estimation.result", "Estimate"),
    "plan": ("planning.problem", "Plan"),
    "run": ("learning.run", "restore_run"),
    "type_prior": ("model.type_prior", "TypePrior"),
}  # Any other kind is that of a policy.


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
        return _reader(record)(record)
    except InvalidFile as error:
        raise InvalidFile(f"{os.fspath(path)}: {error}") from None
    except Exception as error:  # whatever a class makes of contents that are not its own
        raise InvalidFile(f"{os.fspath(path)}: damaged: {first_line(error)}") from None


def _reader(record: files.Record) -> Callable[[files.Record], Any]:
    """What makes the value of a record; only the modules that this takes are imported."""
    module, name = _READERS.get(record.kind, ("policies.policy", "restore_policy"))
    found = getattr(import_module(f".{module}", __package__), name)
    return getattr(found, "from_record", found)
