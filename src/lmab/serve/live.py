"""Live: one session in memory, as far as its steps and rewards are known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..errors import LmabError
from ..policies import CompactState
from .problems import Problem
from .stores import Decision, Past
from .versions import Seats


class Live:
    """The rows of a session, its rewards, and the policy's state before the step that `state` is at."""

    __slots__ = ("broken", "person", "policy", "rewards", "rows", "seats", "state")

    def __init__(
        self, policy: str, seats: Seats, person: str | None, known: Sequence[tuple[int, float]], broken: bool
    ) -> None:
        self.policy, self.seats, self.person, self.broken = policy, seats, person, broken
        self.rows: list[Decision] = []
        self.rewards: dict[int, float] = {}
        self.state: CompactState | None = None
        paths = seats.paths
        if paths is not None:
            self.state = paths.start
            if known:
                history = [(seats.place[arm], reward) for arm, reward in known if arm in seats.place]
                usable = [(arm, reward) for arm, reward in history if seats.version.accepts(reward)]
                self.state = paths.compact.start(history=usable) if usable else paths.start

    def check_reward(self, step: int, reward: float) -> None:
        """Raise where there cannot be such a reward, or another one is known."""
        version = self.seats.version
        if not version.accepts(reward):
            raise Problem("unknown-reward", f"reward must be among {sorted(version.values or ())}, got {reward!r}")
        known = self.rewards.get(step)
        if known is not None and known != reward:
            name = self.rows[0].session
            raise Problem("other-reward", f"step {step} of session {name!r} has the reward {known:g} already")

    def unrewarded(self) -> Iterator[int]:
        """Decided steps without a reward."""
        return (step for step in range(len(self.rows)) if step not in self.rewards)

    def learn(self, step: int, reward: float) -> None:
        """Take a reward in; a step that the state has passed is told late."""
        if step in self.rewards:
            return
        self.rewards[step] = reward
        paths = self.seats.paths
        if self.state is not None and step < self.state.step and paths is not None:
            place = self.seats.place.get(self.rows[step].arm)
            if place is not None:
                self.state = paths.compact.tell(self.state, place, reward)

    def advance(self) -> None:
        """Bring the state to the next step to decide."""
        paths, state = self.seats.paths, self.state
        if paths is None or state is None:
            return
        while state.step < len(self.rows):
            place = self.seats.place.get(self.rows[state.step].arm)
            if place is None:  # an arm that was added after the fit
                state = paths.compact.skip(state)
            else:
                state = paths.observe(state, place, self.rewards.get(state.step))
            self.state = state

    def fresh(self, allowed: Sequence[int] | None) -> Sequence[int]:
        """The arms of the service that may be explored now."""
        seats = self.seats
        opened = seats.open
        if allowed is not None:
            given = set(allowed)
            opened = [number for number in opened if number in given]
        if not seats.version.repeats and self.rows:
            played = {row.arm for row in self.rows}
            return [number for number in opened if number not in played] or opened
        return opened

    def best(self, allowed: Sequence[int] | None) -> tuple[int | None, bool]:
        """The policy's arm, and whether the policy failed; None where it cannot play any arm."""
        seats = self.seats
        paths = seats.paths
        if paths is None or self.state is None:
            return None, False
        mask, anything = seats.mask, seats.anything
        if allowed is not None:
            mask = seats.mask_of(set(allowed) & set(seats.open))
            anything = mask is not None and bool(mask.any())
        elif seats.everything:
            mask = None
        if not anything:
            return None, False
        try:
            self.advance()
            arm = paths.act(self.state) if mask is None else paths.compact.act(self.state, mask)
            return seats.number[arm], False
        except (LmabError, ArithmeticError, IndexError):  # a policy that fails must not take the service with it
            return None, True


def restore(rows: Sequence[Past], seats: Seats, known: Sequence[tuple[int, float]], broken: bool) -> Live:
    """The session that the store has."""
    first = rows[0].decision
    live = Live(first.policy, seats, first.person, known, broken)
    live.rows = [past.decision for past in rows]
    live.rewards = {past.decision.step: past.reward for past in rows if past.reward is not None}
    return live
