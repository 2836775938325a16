"""Warm start: an earlier model as a start of the fit to a log that has grown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..data.packed import Packed
from ..data.sessions import Sessions
from ..model.bandit import LatentBandit
from .result import Estimate


def start_for(last: Estimate, sessions: Sessions | Packed) -> LatentBandit | None:
    """Return the last model for the arms of the log; None if the log lost an arm, or has rewards of another kind.

    Arms that the model does not know get the arm prior that it learned, else the average of its arms.
    """
    bandit, labels = last.bandit, _labels(sessions.arm_labels, sessions.n_arms)
    known = _labels(bandit.arm_labels, bandit.n_arms)
    new = [label for label in labels if label not in set(known)]
    if len(known) + len(new) != len(labels):
        return None
    values = bandit.rewards.values
    if values is None or not np.isin(sessions.some_rewards, values).all():
        return None
    if new:
        bandit = bandit.with_arms(new, law=last.law_of_arms)
    place = {label: arm for arm, label in enumerate([*known, *new])}
    return bandit.relabel(arms=[place[label] for label in labels])


def _labels(labels: tuple[str | int, ...] | None, n_arms: int) -> Sequence[str | int]:
    return range(n_arms) if labels is None else labels
