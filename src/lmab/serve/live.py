"""LiveSession: one session in memory, as far as its steps and rewards are known."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from ..data.parts import as_text
from ..errors import InvalidArgument, LmabError
from ..model.type_prior import Category, TypePrior
from ..policies.policy import CompactState
from .messages import Problem
from .stores import Decision, PlayedArm, StoredStep
from .versions import ArmTable


class LiveSession:
    """The rows of a session, its rewards, and the policy's state before the step that `state` is at.

    `table` is that of the session's version with the arms that are open now: the service renews it at every decision.
    """

    __slots__ = (
        "broken", "features", "person", "policy", "rewards", "rows", "state", "table", "unknown", "unrecorded_from",
    )  # fmt: skip

    def __init__(
        self,
        policy: str,
        table: ArmTable,
        person: str | None,
        known: Sequence[PlayedArm],
        broken: bool,
        features: str | None = None,
    ) -> None:
        self.features = features  # known before the session, as JSON
        self.policy, self.table, self.person, self.broken = policy, table, person, broken
        self.rows: list[Decision] = []
        self.unrecorded_from: int | None = None  # the first step that the store does not have: no later one is recorded
        self.rewards: dict[int, float] = {}
        self.state: CompactState | None = None
        self.unknown: list[str] = []  # features with a text that the policy does not know
        compact, prior = table.version.compact, table.version.type_prior
        if compact is not None:
            usable = None if features is None or prior is None else usable_features(prior, json.loads(features))
            if usable and prior is not None:
                texts = [term for term in prior.terms if isinstance(term, Category) and term.name in usable]
                self.unknown = [term.name for term in texts if usable[term.name] not in term.levels]
            self.state = compact.start(features=usable, sessions=_past_sessions(known, table))

    def require_step(self, step: int) -> None:
        """Raise `Problem` if the horizon of the session's version ends before a step."""
        horizon = self.table.version.horizon
        if step >= horizon:
            raise Problem("beyond-horizon", f"step must be below the horizon of {horizon} steps, got {step}")

    def check_reward(self, step: int, reward: float) -> None:
        """Raise `Problem` if there cannot be such a reward, or another one is known."""
        version = self.table.version
        if not version.accepts(reward):
            raise Problem("unknown-reward", f"reward must be among {sorted(version.values or ())}, got {reward!r}")
        known = self.rewards.get(step)
        if known is not None and known != reward:
            name = self.rows[0].session
            raise Problem("other-reward", f"step {step} of session {name!r} has the reward {known:g} already")

    def unrewarded(self) -> Iterator[int]:
        """Yield the decided steps without a reward."""
        return (step for step in range(len(self.rows)) if step not in self.rewards)

    def learn(self, step: int, reward: float) -> None:
        """Learn a reward, also of a step that the state has passed."""
        if step in self.rewards:
            return
        self.rewards[step] = reward
        compact = self.table.version.compact
        if self.state is not None and step < self.state.step and compact is not None:
            place = self.table.place.get(self.rows[step].arm)
            if place is not None:
                self.state = compact.tell(self.state, place, reward, step=step)

    def advance(self) -> None:
        """Bring the state to the next step to decide."""
        compact, state = self.table.version.compact, self.state
        if compact is None or state is None:
            return
        while state.step < len(self.rows):
            place = self.table.place.get(self.rows[state.step].arm)  # None: an arm that was added after the fit
            reward = self.rewards.get(state.step)
            self.state = state = compact.skip(state) if place is None else compact.observe(state, place, reward)

    def fresh(self, allowed: Sequence[int] | None) -> Sequence[int]:
        """Return the arms of the service that may be explored now."""
        opened = self.table.open
        if allowed is not None:
            given = set(allowed)
            opened = [number for number in opened if number in given]
        if not self.table.version.repeats and self.rows:
            played = {row.arm for row in self.rows}
            return [number for number in opened if number not in played] or opened
        return opened

    def best(self, allowed: Sequence[int] | None) -> tuple[int | None, bool]:
        """Return the policy's arm, or None if it cannot play any, and whether the policy failed."""
        table = self.table
        compact = table.version.compact
        if compact is None or self.state is None:
            return None, False
        mask, anything = table.mask, table.anything
        if allowed is not None:
            mask = table.mask_of(set(allowed) & set(table.open))
            anything = mask is not None and bool(mask.any())
        elif table.everything:
            mask = None
        if not anything:
            return None, False
        try:
            self.advance()
            arm = compact.act(self.state, mask)
            return table.number[arm], False
        except (LmabError, ArithmeticError, IndexError):  # a policy that fails must not take the service with it
            return None, True


def _past_sessions(known: Sequence[PlayedArm], table: ArmTable) -> list[list[tuple[int, float]]] | None:
    """Return the earlier sessions of a person, as far as a version knows their arms and rewards."""
    found = []
    for _, steps in groupby(known, key=lambda step: step.session):
        usable = [step for step in steps if step.arm in table.place and table.version.accepts(step.reward)]
        found.append([(table.place[step.arm], step.reward) for step in usable])
    return [steps for steps in found if steps] or None


def usable_features(
    prior: TypePrior, given: Mapping[str, str | float | None], *, strict: bool = False
) -> dict[str, Any] | None:
    """Return the features that a version uses; a value that it does not know, or of another kind, is missing.

    A column of texts some of which are numbers had both kinds in the log: there a number counts as its text. None where
    the version asks for nothing. With `strict`, a value of the wrong kind raises.
    """
    if not prior.columns:
        return None
    found: dict[str, Any] = {}
    for term in prior.terms:
        value = given.get(term.name)
        if isinstance(value, float | int) and isinstance(term, Category) and any(map(_is_number, term.levels)):
            value = as_text(value)
        try:
            prior.weights({term.name: value})
        except InvalidArgument as error:
            if strict:
                raise Problem("bad-value", str(error)) from None
            continue
        if value is not None:
            found[term.name] = value
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def restore(rows: Sequence[StoredStep], table: ArmTable, known: Sequence[PlayedArm], broken: bool) -> LiveSession:
    """Return the session that the store has."""
    first = rows[0].decision
    live = LiveSession(first.policy, table, first.person, known, broken, first.features)
    live.rows = [step.decision for step in rows]
    live.rewards = {step.decision.step: step.reward for step in rows if step.reward is not None}
    return live
