"""Notes that `lmab fit` and `lmab plan` of version 0.1 wrote into their files, beside the bandit and the policy.

`lmab.load` ignores these notes. The commands read them, so that old files work as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .. import files
from ..data import Fingerprint
from ..errors import InvalidFile
from ..estimation import Estimate, Starts
from ..model import LatentBandit
from ..planning import Plan
from ..policies import BeliefPolicy, Policy


def noted_estimate(path: Path, bandit: LatentBandit) -> Estimate | None:
    """The estimate in a model file of 0.1; None where the file holds a bandit alone."""
    note = files.read(path).fields.get("fit")
    return None if note is None else _estimate(path, bandit, note)


def noted_plan(path: Path, policy: Policy) -> Plan | None:
    """The plan in a policy file of 0.1; None where the file holds a policy alone."""
    note = files.read(path).records.get("plan")
    if note is None or not isinstance(policy, BeliefPolicy):
        return None
    fitted = note.fields.get("fit")
    estimate = None if fitted is None else _estimate(path, policy.bandit, fitted)
    bounds = {**note.fields, "upper": np.inf if note.fields.get("upper") is None else note.fields["upper"]}
    names = ("horizon", "lower", "upper", "status", "message", "repeats")
    return Plan(policy, **_noted(path, bounds, names), estimate=estimate)


def _estimate(path: Path, bandit: LatentBandit, note: Mapping[str, Any]) -> Estimate:
    """The estimate without its trace, its starts and a checksum of its log, which 0.1 did not write."""
    known = _noted(path, note, ("log_likelihood", "n_parameters", "status", "message", "prior", "n_sessions"))
    fingerprint = Fingerprint(known.pop("n_sessions"), None, None)
    unknown = {"trace": np.empty(0), "starts": Starts(0, 0, 0), "observations": None}
    return Estimate(bandit, **known, **unknown, fingerprint=fingerprint)  # type: ignore[arg-type]


def _noted(path: Path, note: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    missing = [name for name in names if name not in note]
    if missing:
        raise InvalidFile(f"{path}: damaged: its note lacks {missing[0]!r}")
    return {name: note[name] for name in names}
