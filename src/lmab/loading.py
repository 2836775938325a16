"""`load`: any file of the package back into the value it was saved from."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from . import files
from .errors import InvalidFile, first_line
from .learning import restore_run
from .model import LatentBandit
from .moments import Design
from .policies import restore

_READERS: dict[str, Callable[[files.Record], Any]] = {
    "bandit": LatentBandit.from_record,
    "design": Design.from_record,
    "run": restore_run,
}


def load(path: str | os.PathLike[str]) -> Any:
    """Read a `LatentBandit`, a policy, a `Design` or a learner's `Run` from a file; nothing in a file is ever run.

    A policy may be of your own class, once the module that defines it is imported.

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
        return _READERS.get(record.kind, restore)(record)
    except InvalidFile as error:
        raise InvalidFile(f"{os.fspath(path)}: {error}") from None
    except Exception as error:  # whatever a class makes of contents that are not its own
        raise InvalidFile(f"{os.fspath(path)}: damaged: {first_line(error)}") from None
