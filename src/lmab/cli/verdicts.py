"""The verdict of the fit's held-out check, repeated by the commands that come after the fit."""

from __future__ import annotations

from typing import Any

from ..estimation import Check
from ..planning import Plan
from ..policies import Policy
from .output import note, say


def check_of(planned: Policy | Plan) -> Check | None:
    """The held-out check of the fit behind a plan; None where there is none."""
    estimate = planned.estimate if isinstance(planned, Plan) else None
    return None if estimate is None else estimate.check


def check_summary(planned: Policy | Plan) -> dict[str, Any] | None:
    """The check for machines."""
    check = check_of(planned)
    return None if check is None else {"agrees": check.agrees, "verdict": check.verdict}


def tell_check(planned: Policy | Plan) -> None:
    """The check for people: a note where it does not confirm the types."""
    check = check_of(planned)
    if check is None:
        return
    text = f"Held-out check of the fit: {check.verdict}"
    if check.agrees:
        say(text)
    else:
        note(text)
