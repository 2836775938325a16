"""Register: arms, versions of the policy and the rollout, as the store has them, and their changes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import secrets
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from .messages import Label, Problem, check_labels, check_name
from .stores import ArmRow, ArmState, NewerStore, Rollout, Signals, Store, Value, public_reason
from .versions import HOLDOUT, UNIFORM, ArmTable, Defaults, Version, holdout_version, read_version, uniform_version

FLOORS = "floors"  # the setting that holds the floor of every arm, as JSON
POPULARITY = "popularity"  # the setting that holds the labels of the arms, that of the largest mean reward first
_ROLLED_BACK = "rolled back"
HISTORY = 10_000  # entries of the register that are read to find the version before the one in force
_BLOCK = 64  # bytes that SHA-256 hashes at once
_PAIR = struct.Struct(">QQ")
_TRIES = 5  # tries of a change that another one overtakes
_log = logging.getLogger("lmab.serve")


class KeyedDraws:
    """Uniform numbers keyed by session and step, which a retry, a restart or another replica draws again.

    HMAC-SHA-256 (RFC 2104) with a secret that is hashed once: `hmac` takes three times as long.

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
        key = (secret if len(secret) <= _BLOCK else hashlib.sha256(secret).digest()).ljust(_BLOCK, b"\0")
        self._inner, self._outer = (hashlib.sha256(bytes(byte ^ pad for byte in key)) for pad in (0x36, 0x5C))

    def digest(self, text: bytes) -> bytes:
        """Return the HMAC of a text."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(text)
        outer.update(inner.digest())
        return outer.digest()

    def __call__(self, session: str, step: int) -> tuple[float, float]:
        """Return two uniform numbers for a step of a session."""
        first, second = _PAIR.unpack_from(self.digest(f"{session}\0{step}".encode()))
        return (first >> 8) / 2**56, (second >> 8) / 2**56


class Register:
    """Arms, versions, and the version of each new session; other processes may change the store."""

    def __init__(
        self,
        store: Store,
        defaults: Defaults,
        clock: Callable[[], float],
        forget: Callable[[], None],  # called if sessions in memory may differ from the store
        begin: Callable[[Register], Awaitable[None]] | None = None,  # called once, when the store is open
        secret: bytes | None = None,  # Secret of the draws, for a store that has none yet.
        settle: Callable[[bool], Awaitable[None]] | None = None,  # called if the settings may have changed
    ) -> None:
        self.store, self.defaults, self.clock, self._forget, self._begin = store, defaults, clock, forget, begin
        self.ready = False  # the store is open and has the first policy and arms
        self.trouble = "the service has not started"
        self.rollout = Rollout(UNIFORM, None, 0.0, 0.0, "")
        self.arms: list[ArmRow] = []
        self.floors: Mapping[Label, float] | None = None
        self.broken: dict[str, str] = {}  # versions that do not load, and why
        self.outdated = False  # a newer release has migrated the store
        self.draws = KeyedDraws(secret or secrets.token_bytes(32))
        self._opened, self._settle = False, settle
        self.holdout, self.popularity = 0.0, tuple[Label, ...]()  # share of new sessions, and their ranking
        self._number: dict[Label, int] = {}
        self._versions: dict[str, Version] = {}
        self.tables: dict[str, tuple[ArmTable, bool]] = {}  # results of `table_of`, until arms or versions change
        self._loading: dict[str, asyncio.Task[Version]] = {}
        self.signals = Signals(-1, -1, -1, -1, -1)  # counters of the store that were taken over

    async def refresh(self) -> None:
        """Open the store if it is not, and take over its changes."""
        try:
            if not self._opened:
                await self.store.open()
                secret = await self.store.setting("secret", self.draws.secret.hex()) or ""
                if self._settle is not None:
                    await self._settle(True)
                self.draws, self._opened = KeyedDraws(bytes.fromhex(secret)), True
            await self._take_over()
            if self._begin is not None:
                await self._begin(self)
                self._begin = None
            if not self.ready:
                self._forget()  # sessions without the store are not in it
                self.ready = True
                _log.info("the store is open")
            self.trouble, self.outdated = "", False
        except Exception as error:
            self.outdated = isinstance(error, NewerStore)
            trouble = str(error) if isinstance(error, Problem) else f"the store does not answer: {public_reason(error)}"
            if trouble != self.trouble:
                _log.error("%s", trouble if isinstance(error, Problem) else f"{trouble}: {error}")
            self.trouble = trouble
            raise

    async def _take_over(self) -> None:
        """Read the changes; a version is loaded before any session gets it."""
        signals = await self.store.signals()
        if signals.erased != self.signals.erased:
            self._forget()  # a person was erased, perhaps by another replica
        if signals.changed != self.signals.changed and self.signals.changed >= 0 and self._settle is not None:
            await self._settle(False)
        if signals != self.signals:
            arms, rollouts = await self.store.arms(), await self.store.rollouts(1)
            floors = json.loads(await self.store.setting(FLOORS, None) or "[]")
            rollout = rollouts[0] if rollouts else self.rollout
            for name in {rollout.active, rollout.canary} - {None, UNIFORM}:
                await self._version(str(name))
            self.floors = dict(map(tuple, floors)) or None
            self.popularity = tuple(json.loads(await self.store.setting(POPULARITY, None) or "[]"))
            if self.ready or any(arm.is_open for arm in arms):  # until then the arms on standby answer
                self._take_arms(arms)
            if rollout != self.rollout:  # also by a refit or another replica
                fields = {"experiment": self.store.experiment} | rollout._asdict()
                own = self.store.experiment, *rollout[:3], rollout.note
                _log.info("%s: in force: %s, canary: %s at %g (%s)", *own, extra={"fields": fields})
            self.rollout, self.signals = rollout, signals

    def configure(self, defaults: Defaults, holdout: float) -> None:
        """Take over settings of the experiment; versions are read again, because they depend on them."""
        if defaults != self.defaults:
            self._versions.clear()
            self.tables.clear()
        self.defaults, self.holdout = defaults, holdout

    def use_standby(self, labels: Sequence[Label], version: Version | None) -> None:
        """Answer without the store, with the arms and the policy that were given at the start."""
        known = () if version is None else version.all_labels
        self._take_arms([ArmRow(label, ArmState.OPEN) for label in labels or known])
        if version is not None:
            self._versions[version.name] = version
            self.rollout = Rollout(version.name, None, 0.0, self.clock(), "the store is away")

    def _take_arms(self, arms: list[ArmRow]) -> None:
        self.arms, self._number = arms, {label: number for number, (label, _) in enumerate(arms)}
        self.tables.clear()

    # Asking

    async def unable(self) -> str:
        """Return why no new session can be decided now, even without the store; an empty text if it can."""
        try:
            await self.table_of(self.rollout.active)
        except Problem as problem:
            return str(problem)
        return ""

    def require_store(self) -> None:
        """Raise `Problem` if the store is not open."""
        if not self._opened:
            raise Problem("no-store", self.trouble)

    async def asked(self, question: Awaitable[Value]) -> Value:
        """Return the result of a query; raise `Problem` if the store does not respond."""
        try:
            return await question
        except Problem:
            raise
        except Exception as error:
            raise Problem("no-store", f"the store does not answer: {public_reason(error)}") from None

    async def record(self, name: str) -> Any:
        """Return the value of a setting that holds JSON; None if there is none."""
        text = await self.asked(self.store.setting(name, None))
        return None if text is None else json.loads(text)

    def numbers(self, labels: Sequence[Label]) -> list[int]:
        """Return the numbers of arms."""
        try:
            return [self._number[label] for label in labels]
        except KeyError as error:
            raise Problem("unknown-arm", f"arm {error.args[0]!r} is not known here") from None

    def version_of(self, session: str) -> str:
        """Return the version that a new session gets; the holdout waits for the first popularity ranking."""
        if self.holdout and self.popularity and self.draws(session, -2)[0] < self.holdout:
            return HOLDOUT
        if self.rollout.canary is not None and self.draws(session, -1)[0] < self.rollout.share:
            return self.rollout.canary
        return self.rollout.active

    async def table_of(self, name: str) -> tuple[ArmTable, bool]:
        """Return the arms as a version knows them, and whether a fallback plays for it because it does not load."""
        if name not in self.tables:
            if not self.arms:
                raise Problem("no-policy", "the service has no arms: give it a policy or a list of arms")
            version = await self._version(name)
            self.tables[name] = ArmTable(version, self.arms, self.defaults.floor, self.floors), name in self.broken
        return self.tables[name]

    async def _version(self, name: str) -> Version:
        """Return a version, loaded in a thread, once, however many sessions wait for it."""
        if name == UNIFORM:
            return uniform_version(self.defaults)
        if name == HOLDOUT:
            return holdout_version(self.popularity, await self._version(self.rollout.active))
        if name not in self._versions:
            task = self._loading.get(name)
            if task is None:
                task = self._loading[name] = asyncio.create_task(self._load(name))
                task.add_done_callback(lambda _: self._loading.pop(name, None))
            self._versions[name] = await asyncio.shield(task)
        return self._versions[name]

    async def _load(self, name: str) -> Version:
        try:
            body = await self.body_of(name)
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

    async def set_arms(self, labels: Sequence[Label], after: int | None = None) -> None:
        """Open these arms and withdraw the other open ones; with `after`, only if the number of the arms is that."""

        async def change(_: Signals) -> bool:
            await self._check_arms(labels)
            return await self.store.set_arms(labels, after)

        await self._change(change, after)

    async def put_arm(self, text: str, state: ArmState, after: int | None = None) -> None:
        """Open or withdraw the arm with this label as text; a new one is added, an integer if all others are."""

        async def change(found: Signals) -> bool:
            arms = await self.store.arms()
            label: Label | None = next((arm.label for arm in arms if str(arm.label) == text), None)
            if label is None and state is ArmState.WITHDRAWN:
                raise Problem("unknown-arm", f"arm {text!r} is not known here")
            if state is ArmState.WITHDRAWN and [arm.label for arm in arms if arm.is_open] == [label]:
                raise Problem("last-arm", f"{text!r} is the last open arm: open another one first")
            if label is None:
                integers = bool(arms) and all(isinstance(arm.label, int) for arm in arms)
                label = int(text) if integers and re.fullmatch("0|-?[1-9][0-9]*", text) else text
                check_labels([label])
            return await self.store.put_arm(label, state, found.arms if after is None else after)

        await self._change(change, after)

    async def add_arms(self, labels: Sequence[Label], state: ArmState = ArmState.OPEN) -> None:
        """Add the labels that the store does not have; withdrawn arms stay withdrawn."""
        await self.asked(self._check_arms(labels))
        await self.asked(self.store.add_arms(labels, state))
        await self.asked(self._take_over())

    async def _check_arms(self, labels: Sequence[Label]) -> None:
        check_labels(labels)
        known = {str(arm.label): arm.label for arm in await self.store.arms()}
        for label in labels:
            if known.get(str(label), label) != label:
                raise Problem("bad-value", f"arms must be distinct labels, also as text: {label!r} is known already")

    async def add_version(self, body: bytes, note: str = "") -> Version:
        """Store a policy file; before it is promoted, no session gets it and its new arms are not played."""
        self.require_store()
        version = await asyncio.to_thread(lambda: read_version(body, self.defaults).warm())
        await self.asked(self._check_arms(version.all_labels))
        await self.asked(self.store.add_version(version.name, body, self.clock(), note.replace("\0", "")))
        self._versions[version.name] = version
        self.tables.pop(version.name, None)
        self.broken.pop(version.name, None)
        await self.add_arms(version.all_labels, ArmState.KNOWN)
        return version

    async def body_of(self, version: str) -> bytes:
        """Return the file of a version."""
        self.require_store()
        check_name(version)
        body = await self.asked(self.store.version(version))
        if body is None:
            raise Problem("unknown-policy", f"version {version!r} is not in the store")
        return body

    async def retire(self, version: str) -> None:
        """Delete the file of a version that no new session gets."""
        await self.body_of(version)
        removed = await self.asked(self.store.remove_version(version))
        await self.asked(self._take_over())
        if not removed:
            raise Problem("in-force", f"version {version} is in force or being tested: end that first")

    async def promote(self, version: str, share: float, note: str = "", after: int | None = None) -> Rollout:
        """Give a version a share of new sessions and open the arms that only it knows; a share of 1 puts it in force.

        With `after`, only if the number of the register is that.
        """
        if version == UNIFORM and self.defaults.horizon is None:
            raise Problem("bad-value", "version 'uniform' needs a horizon: start the service with --horizon")

        async def change(found: Signals) -> bool:
            if version != UNIFORM:
                await self.body_of(version)
            opens = (await self._version(version)).all_labels if share > 0 else ()
            if version in self.broken:
                raise Problem("bad-policy", f"version {version} does not load: {self.broken[version]}")
            active = (await self._entries(1))[0].active
            rollout = Rollout(active, version, share, self.clock(), note or "canary")
            if share >= 1:
                rollout = Rollout(version, None, 0.0, self.clock(), note or "put in force")
            return await self.store.add_rollout(rollout, found.register if after is None else after, opens)

        return await self._change(change, after)

    async def rollback(self, ends: str) -> Rollout:
        """End the canary, or without one return to the version in force before; `ends` names the version that ends.

        A retry names a version that has ended, and changes nothing.
        """

        async def change(found: Signals) -> bool:
            entries = await self._entries(HISTORY)
            active, canary, *_ = entries[0]
            if ends != (canary or active):
                which = f"{canary} is being tested" if canary else f"{active} is in force"
                raise Problem("not-in-force", f"from must name the version that ends: {which}, got {ends}")
            rollout = Rollout(active, None, 0.0, self.clock(), "canary ended")
            if canary is None:
                there = {row.version for row in await self.store.versions()}
                there |= set() if self.defaults.horizon is None else {UNIFORM}
                earlier = [name for name in versions_in_force(entries)[:-1] if name in there]
                if not earlier:
                    raise Problem("unknown-policy", "there is no earlier version to return to")
                rollout = Rollout(earlier[-1], None, 0.0, self.clock(), _ROLLED_BACK)
            return await self.store.add_rollout(rollout, found.register)

        return await self._change(change)

    async def _entries(self, limit: int) -> list[Rollout]:
        return await self.store.rollouts(limit) or [self.rollout]

    async def _change(self, change: Callable[[Signals], Awaitable[bool]], after: int | None = None) -> Rollout:
        """Make a change that depends on numbers read before; try again if they changed, unless `after` names them."""
        self.require_store()
        done = False
        for _ in range(_TRIES if after is None else 1):
            done = done or await self.asked(change(await self.asked(self.store.signals())))
        await self.asked(self._take_over())
        if not done and after is not None:
            text = "this changed since the number in If-Match: read it again, and send its present ETag"
            raise Problem("precondition-failed", text)
        if not done:
            raise Problem("register-changed", "other requests change arms or versions again and again: try again")
        return self.rollout


def versions_in_force(rollouts: Sequence[Rollout]) -> list[str]:
    """Return the versions in force in order, the present one last, without versions that were rolled back.

    Examples:
        >>> entries = [Rollout(name, None, 0.0, 0.0, note) for name, note in (("a", ""), ("b", ""), ("c", ""))]
        >>> versions_in_force([Rollout("b", None, 0.0, 1.0, "rolled back"), *entries[::-1]])
        ['a', 'b']
    """
    stack: list[str] = []
    for rollout in reversed(rollouts):
        if stack and rollout.active == stack[-1]:
            continue
        if rollout.note == _ROLLED_BACK and rollout.active in stack:  # versions between the two were retired
            del stack[len(stack) - stack[::-1].index(rollout.active) :]
        else:
            stack.append(rollout.active)
    return stack
