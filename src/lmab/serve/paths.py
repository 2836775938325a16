"""Paths: states and arms of a policy by what a session saw, so that sessions that saw the same ask it once."""

from __future__ import annotations

from ..policies import Compact, CompactState

_MOST = 1 << 14  # states kept, of some hundred bytes each


class Paths:
    """A compact policy with a memory of the states that follow from its start, up to `most` of them.

    Most sessions see what others saw: with two rewards and seven steps, a policy that is followed leads to 127 states.
    A state that is not kept (after a late reward, or from a person's history) is left to the policy.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> paths = Paths(lmab.plan(bandit, horizon=5).policy.compact())
        >>> state = paths.observe(paths.start, 0, 0.0)
        >>> paths.act(state), paths.observe(paths.start, 0, 0.0) is state
        (1, True)
    """

    def __init__(self, compact: Compact, most: int = _MOST) -> None:
        self.compact, self.most = compact, most
        self.start = compact.start()
        self._kept = {id(self.start): self.start}  # a state that lives here shares its id with no other
        self._arms: dict[int, int] = {}
        self._after: dict[tuple[int, int, float | None], CompactState] = {}

    def act(self, state: CompactState) -> int:
        """The arm to play where every arm may be played."""
        arm = self._arms.get(id(state))
        if arm is None:
            arm = self.compact.act(state)
            if id(state) in self._kept:
                self._arms[id(state)] = arm
        return arm

    def observe(self, state: CompactState, arm: int, reward: float | None) -> CompactState:
        """The state after `arm` paid `reward`; None: the reward is not known yet."""
        key = id(state), arm, reward
        found = self._after.get(key)
        if found is None:
            found = self.compact.observe(state, arm, reward)
            if len(self._kept) < self.most and id(state) in self._kept:
                self._kept[id(found)] = self._after[key] = found
        return found
