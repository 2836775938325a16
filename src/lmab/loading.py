"""load: read any file of the package and return the value that was saved."""

from __future__ import annotations

import os
from typing import Any

from . import _registry, files
from .errors import InvalidFile, first_line
from .policies.policy import restore_policy

_RETIRED = {
    "certificate": "holds a certificate of an earlier version, which is no longer read: make an assessment with "
    "`lmab evaluate POLICY --assess LOG --save-assessment FILE`",
}  # kinds of records that no class restores, with the remedy


def load(path: str | os.PathLike[str]) -> Any:
    """Read what was saved: a bandit, an estimate, a policy, a plan, an assessment, a `Design`, a learner's `Run`, or a
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
    if record.kind in _RETIRED:
        raise InvalidFile(f"{os.fspath(path)}: {_RETIRED[record.kind]}")
    try:
        found = _registry.class_of(record.kind)
        return restore_policy(record) if found is None else found.from_record(record)
    except InvalidFile as error:
        raise InvalidFile(f"{os.fspath(path)}: {error}") from None
    except Exception as error:  # whatever a class makes of contents that are not its own
        raise InvalidFile(f"{os.fspath(path)}: damaged: {first_line(error)}") from None
