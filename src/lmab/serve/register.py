"""Register: what the store says of arms and versions, as this process knows it, and what changes it."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from .messages import Label, Problem, check_labels, check_name
from .stores import ArmRow, Rollout, Signals, Store, told
from .versions import UNIFORM, ArmTable, Defaults, Version, read_version, uniform_version

Value = TypeVar("Value")

FLOORS = "floors"  # the setting that holds the floor of every arm, as JSON
_ROLLED_BACK = "rolled back"
_HISTORY = 1000  # entries of the register that a rollback looks at
_log = logging.getLogger("lmab.serve")


class KeyedDraws:
    """Uniform numbers keyed by session and step, which a retry, a restart or another replica draws again.

    HMAC-SHA-256 with a secret that is hashed once, because every decision draws.

    Examples:
        >>> import hashlib, hmac
        >>> draws = KeyedDraws(b"secret")
        >>> draws.digest(b"text") == hmac.digest(b"secret", b"text", "sha256")
        True
        >>> first, second = draws("session", 0)
        >>> 0 <= first < 1 and 0 <= second < 1
        True
    """

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self._keyed = hmac.new(secret, digestmod="sha256")

    def digest(self, text: bytes) -> bytes:
        """The HMAC of a text."""
        mac = self._keyed.copy()
        mac.update(text)
        return mac.digest()

    def __call__(self, session: str, step: int) -> tuple[float, float]:
        """Two uniform numbers for a step of a session."""
        digest = self.digest(f"{session}\0{step}".encode())
        return int.from_bytes(digest[:7], "big") / 2**56, int.from_bytes(digest[8:15], "big") / 2**56


class Register:
    """The arms, the versions and who gets which; a store may be opened late, and others may change it."""

    def __init__(
        self,
        store: Store,
        defaults: Defaults,
        clock: Callable[[], float],
        forget: Callable[[], None],  # called when sessions in memory may not be what the store has
        begin: Callable[[Register], Awaitable[None]] | None = None,  # called once, when the store is open
        secret: bytes | None = None,  # Secret of the draws, for a store that has none yet.
    ) -> None:
        self.store, self.defaults, self.clock, self._forget, self._begin = store, defaults, clock, forget, begin
        self.ready = False  # the store is open, and what the service begins with is in it
        self.trouble = "the service has not started"
        self.rollout = Rollout(UNIFORM, None, 0.0, 0.0, "")
        self.arms: list[ArmRow] = []
        self.floors: Mapping[Label, float] | None = None
        self.broken: dict[str, str] = {}  # versions that do not load, and why
        self.draws = KeyedDraws(secret or secrets.token_bytes(32))
        self._opened = False
        self._number: dict[Label, int] = {}
        self._versions: dict[str, Version] = {}
        self._tables: dict[str, ArmTable] = {}
        self._loading: dict[str, asyncio.Task[Version]] = {}
        self._signals = Signals(-1, -1)

    async def refresh(self) -> None:
        """Open the store if it is not, and take over what changed in it."""
        try:
            if not self._opened:
                await self.store.open()
                secret = await self.store.setting("secret", self.draws.secret.hex()) or ""
                self.draws, self._opened = KeyedDraws(bytes.fromhex(secret)), True
            await self._take_over()
            if self._begin is not None:
                await self._begin(self)
                self._begin = None
            if not self.ready:
                self._forget()  # what was answered without the store is not in it
                self.ready = True
                _log.info("the store is open")
            self.trouble = ""
        except Exception as error:
            trouble = str(error) if isinstance(error, Problem) else f"the store does not answer: {told(error)}"
            if trouble != self.trouble:
                _log.error("%s", trouble if isinstance(error, Problem) else f"{trouble}: {error}")
            self.trouble = trouble
            raise

    async def _take_over(self) -> None:
        """Read what changed; a version is loaded before any session gets it."""
        signals = await self.store.signals()
        if signals.erased != self._signals.erased:
            self._forget()  # a person was erased, perhaps by another replica
        if signals != self._signals:
            arms, rollouts = await self.store.arms(), await self.store.rollouts(1)
            floors = json.loads(await self.store.setting(FLOORS, None) or "[]")
            rollout = rollouts[0] if rollouts else self.rollout
            for name in {rollout.active, rollout.canary} - {None, UNIFORM}:
                await self._version(str(name))
            self.floors = dict(map(tuple, floors)) or None
            if arms or self.ready:  # until then the arms on standby answer
                self._take_arms(arms)
            self.rollout = rollout
            self._signals = signals

    def use_standby(self, labels: Sequence[Label], version: Version | None) -> None:
        """Answer without the store, with the arms and the policy that were given at the start."""
        known = () if version is None else (*version.labels, *version.left_out)
        self._take_arms([ArmRow(label, True) for label in labels or known])
        if version is not None:
            self._versions[version.name] = version
            self.rollout = Rollout(version.name, None, 0.0, self.clock(), "the store is away")

    def _take_arms(self, arms: list[ArmRow]) -> None:
        self.arms, self._number = arms, {label: number for number, (label, _) in enumerate(arms)}
        self._tables.clear()

    # Asking

    async def unable(self) -> str:
        """Why no new session can be decided now; empty where it can."""
        if self.trouble:
            return self.trouble
        try:
            await self.table_of(self.rollout.active)
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
        except Problem:
            raise
        except Exception as error:
            raise Problem("no-store", f"the store does not answer: {told(error)}") from None

    def numbers(self, labels: Sequence[Label]) -> list[int]:
        """The numbers of arms."""
        try:
            return [self._number[label] for label in labels]
        except KeyError as error:
            raise Problem("unknown-arm", f"arm {error.args[0]!r} is not known here") from None

    def version_of(self, session: str) -> str:
        """The version that a new session gets."""
        if self.rollout.canary is not None and self.draws(session, -1)[0] < self.rollout.share:
            return self.rollout.canary
        return self.rollout.active

    async def table_of(self, name: str) -> tuple[ArmTable, bool]:
        """The arms as a version knows them, and whether a fallback plays for it because it does not load."""
        table = self._tables.get(name)
        if table is None:
            if not self.arms:
                raise Problem("no-policy", "the service has no arms: give it a policy or a list of arms")
            version = await self._version(name)
            table = self._tables[name] = ArmTable(version, self.arms, self.defaults.floor, self.floors)
        return table, name in self.broken

    async def _version(self, name: str) -> Version:
        """A version, loaded in a thread, once, however many sessions wait for it."""
        if name == UNIFORM:
            return uniform_version(self.defaults)
        if name not in self._versions:
            task = self._loading.get(name)
            if task is None:
                task = self._loading[name] = asyncio.create_task(self._load(name))
                task.add_done_callback(lambda _: self._loading.pop(name, None))
            self._versions[name] = await asyncio.shield(task)
        return self._versions[name]

    async def _load(self, name: str) -> Version:
        try:
            body = await self.asked(self.store.version(name))
            if body is None:
                raise Problem("unknown-policy", f"version {name!r} is not in the store")
            version = await asyncio.to_thread(lambda: read_version(body, self.defaults).warm())
            self.broken.pop(name, None)
            return version
        except Problem as problem:
            if problem.code == "no-store":
                raise
            if name not in self.broken:
                _log.error("version %s does not load, so its sessions get every allowed arm: %s", name, problem)
            self.broken[name] = str(problem)
            return uniform_version(self.defaults)

    # Changing

    async def set_arms(self, labels: Sequence[Label]) -> None:
        """Open these arms and no others."""
        self.require_store()
        check_labels(labels)
        known = {str(label): label for label, _ in await self.asked(self.store.arms())}
        for label in labels:
            if known.get(str(label), label) != label:
                raise Problem("bad-value", f"arms must be distinct labels, also as text: {label!r} is known already")
        await self.asked(self.store.set_arms(labels))
        await self.asked(self._take_over())

    async def add_arms(self, labels: Sequence[Label]) -> None:
        """Open the labels that the store does not know; what was withdrawn stays withdrawn."""
        arms = await self.asked(self.store.arms())
        new = [label for label in labels if label not in {arm.label for arm in arms}]
        if new:
            await self.set_arms([*(arm.label for arm in arms if arm.is_open), *new])

    async def add_version(self, body: bytes, note: str = "") -> Version:
        """Keep a policy file; nobody gets it before it is promoted."""
        self.require_store()
        version = await asyncio.to_thread(lambda: read_version(body, self.defaults).warm())
        known = (*version.labels, *version.left_out)
        check_labels(known)
        await self.asked(self.store.add_version(version.name, body, self.clock(), note.replace("\0", "")))
        self._versions[version.name] = version
        self._tables.pop(version.name, None)
        self.broken.pop(version.name, None)
        await self.add_arms(known)
        return version

    async def promote(self, version: str, share: float, note: str = "") -> Rollout:
        """Give a version a share of new sessions; all of them puts it in force."""
        self.require_store()
        check_name(version)
        if version == UNIFORM and self.defaults.horizon is None:
            raise Problem("bad-value", "version 'uniform' needs a horizon: start the service with --horizon")
        if version != UNIFORM and await self.asked(self.store.version(version)) is None:
            raise Problem("unknown-policy", f"version {version!r} is not known here")
        if share >= 1:
            rollout = Rollout(version, None, 0.0, self.clock(), note or "put in force")
        else:
            rollout = Rollout(self.rollout.active, version, share, self.clock(), note or "canary")
        return await self._register(rollout)

    async def rollback(self) -> Rollout:
        """End the canary; where there is none, return to the version that was in force before this one."""
        self.require_store()
        if self.rollout.canary is not None:
            return await self._register(Rollout(self.rollout.active, None, 0.0, self.clock(), "canary ended"))
        stack = versions_in_force(await self.asked(self.store.rollouts(_HISTORY)))
        if len(stack) < 2:
            raise Problem("unknown-policy", "there is no earlier version to return to")
        return await self._register(Rollout(stack[-2], None, 0.0, self.clock(), _ROLLED_BACK))

    async def _register(self, rollout: Rollout) -> Rollout:
        await self.asked(self.store.add_rollout(rollout))
        await self.asked(self._take_over())
        return rollout


def versions_in_force(rollouts: Sequence[Rollout]) -> list[str]:
    """The versions in force one after the other, the present one last; a version that was rolled back is gone.

    Examples:
        >>> entries = [Rollout(name, None, 0.0, 0.0, note) for name, note in (("a", ""), ("b", ""), ("c", ""))]
        >>> versions_in_force([Rollout("b", None, 0.0, 1.0, "rolled back"), *entries[::-1]])
        ['a', 'b']
    """
    stack: list[str] = []
    for rollout in reversed(rollouts):
        if stack and rollout.active == stack[-1]:
            continue
        if rollout.note == _ROLLED_BACK and stack[-2:-1] == [rollout.active]:
            stack.pop()
        else:
            stack.append(rollout.active)
    return stack
