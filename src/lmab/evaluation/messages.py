"""The sentences of an assessment: one for each finding about its log, and the remedies of residual tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

STEP, REPEATS, PREVIOUS, PAIRS, CALENDAR, SILENT = "step", "repeats", "previous", "pairs", "calendar", "silent"
BLOCKS = (STEP, REPEATS, PREVIOUS, PAIRS, CALENDAR, SILENT)  # of residual tests
WITHIN = (STEP, REPEATS, PREVIOUS, PAIRS)  # effects within a session, which a correction follows


class Finding(NamedTuple):
    """A circumstance that weakens an interval, or that a reader must know."""

    code: str
    severity: str  # "note" or "warning"
    data: tuple[float, ...]

    @property
    def text(self) -> str:
        """The finding in words."""
        return _TEXTS[self.code](*self.data)


_SEVERE = ("sparse data", "number of types", "time limit", "copies", "dependent sessions", "unplayed arms")


def findings(stored: Sequence[tuple[str, tuple[float, ...]]]) -> tuple[Finding, ...]:
    """Return the findings that a file or an assessment holds as codes with their data."""
    return tuple(Finding(code, "warning" if code in _SEVERE else "note", data) for code, data in stored)


def _unplayed(n_arms: float, share: float) -> str:
    arms = "1 arm was" if n_arms == 1 else f"{n_arms:.0f} arms were"
    return f"{arms} never played; {share:.0%} of the value of the best policy is based on assumed mean rewards"


_TEXTS: dict[str, Callable[..., str]] = {
    "sparse data": lambda share, least, traits=0: (
        f"{share:.0%} of the plan's steps go to arms played fewer than {least:.0f} times per "
        f"{'parameter' if traits else 'type'}"
    ),
    "number of types": lambda more, own: (
        f"{more:.0f} types predict held-out sessions better than {own:.0f}; the intervals allow for one more type"
    ),
    "weak identification": lambda told: (
        f"the log contains little information about the types ({told:.1f} nats per parameter)"
    ),
    "adaptive arms": lambda: "the next arm depends on the reward before it, so arms are known from sessions they suit",
    "unplayed arms": _unplayed,
    "unknown directions": lambda unknown, all_: (
        f"the log contains almost no information about {unknown:.0f} of the {all_:.0f} directions in parameter space"
    ),
    "time limit": lambda planned, drawn: (
        f"{planned:,.0f} of {drawn:,.0f} drawn models were planned for, so the intervals are less precise than with a "
        "longer time limit"
    ),
    "copies": lambda share, factor: (
        f"{share:.0%} of the sessions repeat one of the ten sessions before (copies or bots), so intervals are "
        f"{factor:.1f} times as wide; remove the copies from the log"
    ),
    "dependent sessions": lambda factor: (
        f"sessions near in the log are alike, so intervals are {factor:.1f} times as wide as for independent sessions"
    ),
    "live test": lambda n, width: (
        f"{n:,.0f} live sessions estimate the value to within {width:.0%} without a model: start a canary with "
        "`lmab serve`"
    ),
}

UNTESTED = "Not tested: the log has fewer than 100 sessions, or all rewards are equal."
NOT_WITH_EXPOSURE = "Not tested: the arms of the log depend on the type, and the held-out predictions ignore this."
NOT_TESTABLE = (
    "no log reveals rewards that are missing because they were low, sessions that were never logged, or a future "
    "unlike the log; the intervals assume that there are none of these"
)
#: Each block of residual tests: its name in tables, the sentence if it does not fire, and the sentence if it does.
RESIDUALS = {
    STEP: (
        "the effect of the step",
        "Rewards do not depend on the step beyond the model.",
        "Rewards of the same arm change by {0:+.0%} from the first step on where the step matters most; the value is "
        "corrected for this.",
    ),
    REPEATS: (
        "repeated arms",
        "Rewards do not depend on earlier plays of the arm in the session beyond the model.",
        "An arm that is played again in a session pays {0:+.0%}; the value is corrected for this; consider a plan that "
        "does not repeat arms (--no-repeats).",
    ),
    PREVIOUS: (
        "the previous reward",
        "Rewards do not depend on the previous reward beyond the latent type.",
        "Rewards depend on the previous reward of the session beyond the latent type ({0:+.0%}); the value is "
        "corrected for this.",
    ),
    PAIRS: (
        "pairs of arms",
        "Rewards do not depend on the previous arm beyond the model.",
        "Rewards depend on the previous arm of the session beyond the model ({0:+.0%} for some pairs); the value is "
        "corrected for this.",
    ),
    CALENDAR: (
        "the calendar",
        "Rewards do not depend on the quarter of the log.",
        "Rewards depend on the quarter of the log; the intervals are for the average of the log, so compare with "
        "recent sessions.",
    ),
    SILENT: (
        "sessions without rewards",
        "Sessions without any reward, or with nothing but rewards, are as frequent as the model predicts.",
        "Sessions that begin without rewards go on otherwise than the model predicts, so sessions without any reward "
        "may be missing from the log, or bots may be in it; log every session, and remove bots.",
    ),
}
