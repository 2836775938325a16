"""Where a model and a policy came from, noted in their files: what a certificate needs, and nobody else reads.

The files stay ordinary ones: `lmab.load` passes the notes over.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from .. import files
from ..data import Episodes
from ..errors import InvalidArgument, InvalidFile
from ..estimation import Estimate, Starts, observe
from ..model import Categorical
from ..planning import Plan
from ..policies import BeliefPolicy, Policy

_FIT, _PLAN = "fit", "plan"


def save_model(path: str | os.PathLike[str], estimate: Estimate) -> None:
    """The fitted bandit, with a note of how it was fitted."""
    record = estimate.bandit.record()
    note = {
        "prior": estimate.prior,
        "n_episodes": len(estimate.episodes),
        "log_likelihood": estimate.log_likelihood,
        "n_parameters": estimate.n_parameters,
        "status": estimate.status,
        "message": estimate.message,
    }
    files.write(path, replace(record, fields={**record.fields, _FIT: note}))


def fit_note(path: str | os.PathLike[str]) -> Mapping[str, Any] | None:
    """How the model at `path` was fitted; None where nobody noted it."""
    return files.read(path).fields.get(_FIT)


def save_policy(path: str | os.PathLike[str], plan: Plan, fitted: Mapping[str, Any] | None) -> None:
    """The policy of a plan, with its bounds and how its model was fitted."""
    record = plan.policy.record()
    upper = plan.upper if np.isfinite(plan.upper) else None
    bounds = {"horizon": plan.horizon, "lower": plan.lower, "upper": upper, "status": plan.status}
    note = files.Record(_PLAN, {**bounds, "repeats": plan.repeats, "message": plan.message, _FIT: fitted})
    files.write(path, replace(record, records={**record.records, _PLAN: note}))


def restore(path: str | os.PathLike[str], policy: Policy, episodes: Episodes) -> tuple[Estimate, Plan]:
    """The plan behind a policy file, and the estimate behind the plan, given the log that it was fitted to."""
    note = files.read(path).records.get(_PLAN)
    fitted = None if note is None else note.fields.get(_FIT)
    if note is None or fitted is None or not isinstance(policy, BeliefPolicy):
        raise InvalidFile(f"{os.fspath(path)}: does not say where it came from: make it with `lmab fit`, `lmab plan`")
    known = note.fields
    upper = np.inf if known["upper"] is None else known["upper"]
    plan = Plan(
        policy, known["horizon"], known["lower"], upper, known["status"], known["message"], repeats=known["repeats"]
    )
    return _estimate(policy, episodes, fitted), plan


def _estimate(policy: BeliefPolicy, episodes: Episodes, fitted: Mapping[str, Any]) -> Estimate:
    rewards = policy.bandit.rewards
    values = rewards.values if isinstance(rewards, Categorical) else None
    observations = observe(episodes, rewards="gaussian" if values is None else None, values=values)
    found, noted = observations.log_likelihood(policy.bandit), fitted["log_likelihood"]
    if len(episodes) != fitted["n_episodes"] or abs(found - noted) > 1e-6 * abs(noted):
        raise InvalidArgument(
            f"the log must be the one that the model was fitted to ({fitted['n_episodes']} sessions, log-likelihood "
            f"{noted:.6g}), got {len(episodes)} sessions with {found:.6g}"
        )
    return Estimate(
        policy.bandit, noted, fitted["n_parameters"], fitted["status"], fitted["message"], np.array([noted]),
        Starts(1, 1, 1), fitted["prior"], observations,
    )  # fmt: skip
