"""Register: what the store says of arms and versions, as this process knows it, and what changes it."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from .draws import Draws
from .messages import Label
from .problems import Problem, check_name
from .stores import Store, Turn
from .versions import UNIFORM, Defaults, Seats, Version, read_version, uniform_version

Value = TypeVar("Value")


class Register:
    """The arms, the versions and who gets which; a store may be opened late, and others may change it."""

    def __init__(
        self,
        store: Store,
        defaults: Defaults,
        clock: Callable[[], float],
        forget: Callable[[], None],  # called when sessions in memory may not be what the store has
        begin: Callable[[Register], Awaitable[None]] | None = None,  # called once, when the store is open
        secret: bytes | None = None,  # of the draws, for a store that has none yet
    ) -> None:
        self.store, self.defaults, self.clock, self._forget, self._begin = store, defaults, clock, forget, begin
        self.ready = False  # the store is open, and what the service begins with is in it
        self.trouble = "the service has not started"
        self.turn = Turn(UNIFORM, None, 0.0, 0.0, "")
        self.labels: list[tuple[Label, bool]] = []
        self.broken: dict[str, str] = {}  # versions that do not load, and why
        self.draws = Draws(secret or secrets.token_bytes(32))
        self._opened = False
        self._number: dict[Label, int] = {}
        self._seats: dict[str, Seats] = {}
        self._signals = (-1, -1)

    async def refresh(self) -> None:
        """Open the store if it is not, and take over what changed in it."""
        try:
            if not self._opened:
                await self.store.open()
                secret = await self.store.setting("secret", self.draws.secret.hex()) or ""
                self.draws, self._opened = Draws(bytes.fromhex(secret)), True
            await self._take_over()
            if self._begin is not None:
                await self._begin(self)
                self._begin = None
            if not self.ready:
                self._forget()  # what was answered without the store is not in it
                self.ready = True
            self.trouble = ""
        except Exception as error:
            self.trouble = f"the store does not answer: {type(error).__name__}"
            raise

    async def _take_over(self) -> None:
        signals = await self.store.signals()
        if signals[1] != self._signals[1]:
            self._forget()  # a person was erased, perhaps by another replica
        if signals != self._signals:
            arms, turns = await self.store.arms(), await self.store.turns(1)
            if arms or self.ready:  # until then the spare arms answer
                self._take_arms(arms)
            self.turn = turns[0] if turns else self.turn
            self._signals = signals

    def use_spare(self, labels: Sequence[Label], version: Version | None) -> None:
        """Answer without the store, with the arms and the policy that were given at the start."""
        self._take_arms([(label, True) for label in labels or (() if version is None else version.labels)])
        if version is not None:
            self._seats[version.name] = Seats(version, self.labels)
            self.turn = Turn(version.name, None, 0.0, self.clock(), "the store is away")

    def _take_arms(self, arms: list[tuple[Label, bool]]) -> None:
        if arms != self.labels:
            self.labels, self._number = arms, {label: number for number, (label, _) in enumerate(arms)}
            self._seats.clear()

    # Asking

    async def unable(self) -> str:
        """Why no new session can be decided now; empty where it can."""
        if self.trouble:
            return self.trouble
        try:
            await self.seats_of(self.turn.active)
        except Problem as problem:
            return str(problem)
        return ""

    def require_store(self) -> None:
        """Raise where the store is away."""
        if not self._opened:
            raise Problem("no-store", self.trouble)

    async def asked(self, question: Awaitable[Value]) -> Value:
        """What the store answers."""
        try:
            return await question
        except Exception as error:
            raise Problem("no-store", f"the store does not answer: {type(error).__name__}") from None

    def numbers(self, labels: Sequence[Label]) -> list[int]:
        """The numbers of arms."""
        try:
            return [self._number[label] for label in labels]
        except KeyError as error:
            raise Problem("unknown-arm", f"arm {error.args[0]!r} is not known here") from None

    def version_of(self, session: str) -> str:
        """The version that a new session gets."""
        if self.turn.canary is not None and self.draws(session, -1)[0] < self.turn.share:
            return self.turn.canary
        return self.turn.active

    async def seats_of(self, name: str) -> tuple[Seats, bool]:
        """The seats of a version, and whether a fallback plays for it because it is missing or does not load."""
        if not self.labels:
            raise Problem("no-policy", "the service has no arms: give it a policy or a list of arms")
        seats = self._seats.get(name)
        if seats is None:
            version = await self._find(name)
            seats = self._seats[name] = Seats(version, self.labels)
        return seats, name in self.broken

    async def _find(self, name: str) -> Version:
        if name == UNIFORM:
            return uniform_version(self.defaults)
        try:
            body = await self.asked(self.store.version(name))
            if body is None:
                raise Problem("unknown-policy", f"version {name!r} is not in the store")
            self.broken.pop(name, None)
            return read_version(body, self.defaults)
        except Problem as problem:
            if problem.code == "no-store":
                raise
            self.broken[name] = str(problem)
            return uniform_version(self.defaults)

    # Changing

    async def set_arms(self, labels: Sequence[Label]) -> None:
        """Open these arms and no others."""
        self.require_store()
        if len(set(labels)) != len(labels):
            raise Problem("bad-value", "arms must be distinct labels")
        await self.asked(self.store.set_arms(labels))
        await self.asked(self._take_over())

    async def add_version(self, body: bytes, note: str = "") -> Version:
        """Keep a policy file; nobody gets it before it is promoted."""
        self.require_store()
        version = read_version(body, self.defaults)
        await self.asked(self.store.add_version(version.name, body, self.clock(), note.replace("\0", "")))
        arms = await self.asked(self.store.arms())
        new = [label for label in version.labels if label not in {label for label, _ in arms}]
        if new:
            await self.asked(self.store.set_arms([*(label for label, is_open in arms if is_open), *new]))
            await self.asked(self._take_over())
        return version

    async def promote(self, version: str, share: float, note: str = "") -> Turn:
        """Give a version a share of new sessions; all of them puts it in force."""
        self.require_store()
        check_name(version)
        if version != UNIFORM and await self.asked(self.store.version(version)) is None:
            raise Problem("unknown-policy", f"version {version!r} is not known here")
        if share >= 1:
            turn = Turn(version, None, 0.0, self.clock(), note or "put in force")
        else:
            turn = Turn(self.turn.active, version, share, self.clock(), note or "canary")
        return await self._register(turn)

    async def rollback(self, note: str = "") -> Turn:
        """End the canary; where there is none, return to the version before."""
        self.require_store()
        if self.turn.canary is not None:
            return await self._register(Turn(self.turn.active, None, 0.0, self.clock(), note or "canary ended"))
        for turn in await self.asked(self.store.turns(1000)):
            if turn.active != self.turn.active:
                return await self._register(Turn(turn.active, None, 0.0, self.clock(), note or "rolled back"))
        raise Problem("unknown-policy", "there is no earlier version to return to")

    async def _register(self, turn: Turn) -> Turn:
        await self.asked(self.store.turn(turn))
        await self.asked(self._take_over())
        return turn
