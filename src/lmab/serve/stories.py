"""The story of one session: every step with the belief before it, and why its arm was played."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import LmabError
from ..policies import CompactState
from .live import Live, restore
from .messages import Played, Story
from .service import Service
from .stores import Decision, Past


def tell_story(service: Service, rows: Sequence[Past], live: Live) -> Story:
    """The session as the store has it, with all rewards that are known by now."""
    steps = []
    for index, past in enumerate(rows):
        so_far = restore(rows, live.seats, [], live.broken)
        so_far.rows = so_far.rows[:index]
        so_far.state = live.state  # before the first step, with what is known of the person
        row = past.decision
        steps.append(
            Played(
                row.step,
                service.register.labels[row.arm][0],
                past.reward,
                row.propensity,
                row.policy,
                bool(row.explored),
                bool(row.fallback),
                row.at,
                _belief(so_far),
                _why(row, service),
            )
        )
    final = restore(rows, live.seats, [], live.broken)
    final.state = live.state
    return Story(rows[0].decision.session, live.person, live.policy, steps, _belief(final))


def _belief(live: Live) -> list[float] | None:
    """The probability of each type; None where the policy keeps none."""
    compact = live.seats.version.compact
    if compact is None or live.state is None:
        return None
    try:
        live.advance()
        state: CompactState = live.state
        return [float(share) for share in compact.belief(state)]
    except LmabError:
        return None


def _why(row: Decision, service: Service) -> str:
    if row.wish is not None:
        return f"your baseline; the policy would have played {service.register.labels[row.wish][0]}"
    if row.fallback:
        return "a fallback: the policy could not be asked, so every allowed arm was equally likely"
    if row.explored:
        return "explored: any allowed arm, so that the next model learns about all of them"
    return "the plan: it promises most for the steps that are left"
