"""refit: from the store's log to the next version of the policy, which is then tested as a canary."""

from __future__ import annotations

import gc
import json
import math
import os
import re
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from .._html import best_fixed
from ..checks import OneOf, Rng, check_fields, check_rng
from ..data.packed import Packed
from ..data.parts import plays_twice
from ..data.sessions import Sessions
from ..errors import InvalidArgument, LmabError, LmabWarning
from ..estimation.em import EM
from ..estimation.fit import fit
from ..estimation.result import Estimate
from ..estimation.warm_start import start_for
from ..evaluation.assess import assess
from ..evaluation.assessment import Assessment
from ..evaluation.compare import Comparison, compare
from ..evaluation.off_policy import ENOUGH
from ..loading import load
from ..planning.certified import Certified
from ..planning.plan import plan
from ..planning.problem import Plan
from ..policies.belief_policies import Uniform
from ..policies.exploration import YOUNG, floors
from ..policies.policy import Policy, underlying_bandit
from ..policies.wrappers import Relabelled
from ..simulation import simulate
from .canary import (
    END,
    MARGIN,
    NEWER,
    OLDER,
    SHARES,
    WAIT,
    WORDS,
    Canary,
    Compared,
    count_sessions,
    expected,
    next_share,
    ratio_is_wrong,
)
from .export import ServedLog, Survey, batches, export_days, keep_history, read_history, read_log, sessions_of
from .messages import Label
from .metrics import REFITS
from .register import FLOORS, POPULARITY, versions_in_force
from .stores import ArmRow, ArmState, Rollout, Signals, Store
from .versions import UNIFORM, ArmTable, Defaults, Version, read_version, stored_version
from .watch import CANARY

LAST = "last.model.lmab"  # the model of the last night, whether its plan became a canary or not
NIGHT = ".night"  # folder of the packed log of one refit
_RESTARTS = 4  # starts of a warm fit: the last model, and three others that win where it is bad
_DRAWS = 50  # models behind the assessment
_TRIED = 500  # simulated sessions that show which arms a plan plays
_RELIES = 0.01  # part of its plays from which on a plan relies on an arm
_FITTED = "fitted"  # the setting with the numbers of sessions and types of the last model
_WINDOW = 3600.0  # seconds, as `serve` has it by default
_KEPT = 100  # nights that the store remembers


@dataclass(frozen=True)
class RefitOptions:
    """How a refit is to be made; None: as the service does it."""

    canary: float = SHARES[0]  # share of new sessions that a version gets at first; 1: all at once, without a test
    window: float | None = None  # seconds after its last step in which a session's rewards may come
    types: int | str = "auto"
    horizon: int | None = None  # None: the longer one of the service's and of the version in force
    repeats: bool | None = None  # None: as in the version in force
    floor: float | None = None  # share of the decisions that explore
    features: tuple[str, ...] = ()  # none: those of the version in force, else the ones that half of the sessions have
    prior: float | str = "learned"
    least: int = 200  # sessions below which nothing is fitted
    time_limit: float = 30.0
    confidence: float = 0.9
    ties: str = NEWER  # Plan that stays where two surely earn the same but for 2%: the newer or the older one.
    keep_versions: int = 14  # versions that stay in the store and the folder, beside the served ones
    remove_days: bool = False  # also remove exported rows that the store lacks without having forgotten or erased them

    def __post_init__(self) -> None:
        check_fields(self, {"ties": OneOf((NEWER, OLDER))})


@dataclass(frozen=True)
class RefitResult:
    """Result of one refit."""

    at: float
    outcome: str  # "waits", "kept", "canary", "promoted", "withdrawn"
    version: str | None  # the version that the outcome is about
    lines: tuple[str, ...]
    canary: str | None = None  # the version that is tested from now on
    seconds: float = 0.0  # that the refit took


async def refit(
    store: Store, folder: Path, options: RefitOptions | None = None, *, rng: Rng, now: float | None = None,
    history: Sessions | Packed | None = None,
) -> RefitResult:  # fmt: skip
    """Analyse the canary; if none is tested any more, make the next one. The store must be open.

    Args:
        store: the store of the service.
        folder: for the versions, their models and the log by day.
        options: how to fit, plan and test.
        rng: for fits, draws and simulated sessions.
        now: the present time in seconds; None: the clock's.
        history: a log that was made before the service; it is kept in the folder, and later refits use it too.
    """
    options, rng = options or RefitOptions(), check_rng(rng, "a refit draws models and sessions")
    at = time.time() if now is None else now
    async with AsyncExitStack() as stack:
        stack.callback(os.umask, os.umask(0o077))  # only the owner may read the files, which hold sessions of persons
        stack.callback(gc.set_threshold, *gc.get_threshold())
        gc.set_threshold(50_000, 20, 50)  # rows of the store are read a third faster
        if not await stack.enter_async_context(store.exclusively()):
            return RefitResult(at, "waits", None, ("Another refit of this store is at work: nothing was done.",))
        folder.mkdir(parents=True, exist_ok=True)
        stack.callback(shutil.rmtree, folder / NIGHT, ignore_errors=True)
        began = time.monotonic()
        result = await _refit(store, folder, options, rng, at, math.inf if now is None else now + 1, history)
        result = replace(result, seconds=round(time.monotonic() - began, 1))
        past = json.loads(await store.setting(REFITS, None) or "[]")
        await store.set_setting(REFITS, json.dumps([*past, asdict(result)][-_KEPT:]))
    return result


async def _refit(
    store: Store, folder: Path, options: RefitOptions, rng: np.random.Generator, at: float, until: float,
    history: Sessions | Packed | None,
) -> RefitResult:  # fmt: skip
    signals, survey = await store.signals(), await Survey.of(store, until, at)
    rollouts = await store.rollouts(1000)
    rollout = rollouts[0] if rollouts else Rollout(UNIFORM, None, 0.0, 0.0, "")
    body = None if rollout.active == UNIFORM else await store.version(rollout.active)
    version = None if body is None else read_version(body, Defaults(survey.horizon or 1))
    options, lines = await inherited(store, options, version, survey)
    if history is not None:
        keep_history(history, folder)
    past = read_history(folder, (await store.removals()).persons)
    columns, skipped = used_columns(survey, options.features, version, past)
    lines += skipped
    days = await export_days(store, folder / "log", survey, columns=columns, remove=options.remove_days)
    if days.kept:
        stay = f"{days.kept:,} exported rows stay, which the store neither has nor forgot or erased"
        lines.append(f"{stay}: is it a restored backup? (--remove-days removes them)")
    await _forget_model(store, folder, signals)
    night = _Night(store, folder, options, rng, at, until, survey, await store.arms(), columns, past, signals.register)
    await night.set_popularity()
    result = await night.next_version(rollout) if rollout.canary is None else await night.look_at_canary(rollouts)
    if rollout.canary is not None and result.outcome != "waits" and not night.overtaken:
        after = await night.next_version((await store.rollouts(1))[0])
        result = replace(result, lines=result.lines + after.lines, canary=after.canary)
    await retire(store, folder, options.keep_versions)
    return replace(result, lines=(*lines, *result.lines))


async def inherited(
    store: Store, options: RefitOptions, version: Version | None, survey: Survey
) -> tuple[RefitOptions, list[str]]:
    """Return the options with the values of the service or the version in force, and a line on each that differs.

    `version` is the version in force; None: new sessions get every arm.
    """
    served: dict[str, Any] = await store.service_settings()
    floors_now = json.loads(await store.setting(FLOORS, None) or "[]")
    served["floor"] = served.get("floor", sum(floor for _, floor in floors_now) or Defaults.floor)
    served["window"] = served.get("window", _WINDOW)
    horizons = [served.get("horizon"), None if version is None else version.horizon]
    served["horizon"] = max([one for one in horizons if one] or [max(survey.horizon, 1)])
    served["repeats"] = served.get("repeats") if version is None else version.repeats
    given = {name: getattr(options, name) for name in ("floor", "window", "horizon", "repeats")}
    lines = [
        f"The {name} of this refit is {value:g}; the service has {served[name]:g}."
        for name, value in given.items()
        if value is not None and served[name] is not None and value != served[name]
    ]
    return replace(options, **{name: served[name] if value is None else value for name, value in given.items()}), lines


def used_columns(
    survey: Survey, wanted: Sequence[str], version: Version | None, history: Packed | None
) -> tuple[dict[str, bool], list[str]]:
    """Return the features that the fit uses, whether each is text, and a line on those that it does not use.

    Clients name features as they like, so only features count that the operator or the version in force names. Without
    either, the features of at least half of the sessions count.
    """
    own = {} if history is None or history.features is None else dict(history.features)
    n_past = 0 if history is None else len(history)
    counts, n = survey.columns + Counter(dict.fromkeys(own, n_past)), survey.n_sessions + n_past
    prior = None if version is None else version.type_prior
    unknown = [name for name in wanted if n and name not in counts]
    if unknown:
        raise InvalidArgument(f"--features must name features that some session has, got {unknown[0]!r}")
    common = [name for name, count in counts.items() if 2 * count >= n]
    texts = survey.texts | {name for name, values in own.items() if values.dtype == object}
    used = {name: name in texts for name in sorted(wanted or (() if prior is None else prior.columns) or common)}
    skipped = sorted(set(counts) - set(used), key=lambda name: (-counts[name], name))
    if not skipped:
        return used, []
    names = ", ".join(name[:40] for name in skipped[:3]) + (", ..." if len(skipped) > 3 else "")
    line = f"{len(skipped):,} features are stored and not used: {names} (--features names the used ones)."
    return used, [line]


async def _forget_model(store: Store, folder: Path, signals: Signals) -> None:
    """Delete the model of the last night if a person was erased since: it was fitted to their sessions, too."""
    known = json.loads(await store.setting(_FITTED, None) or "{}")
    if known.get("erasures", 0) != signals.erasures:
        (folder / LAST).unlink(missing_ok=True)
        await store.set_setting(_FITTED, json.dumps({"erasures": signals.erasures}))


async def retire(store: Store, folder: Path, keep: int) -> None:
    """Delete all versions but the last ones, the served ones and the one that a rollback returns to."""
    rollouts = await store.rollouts(1000)
    needed = {*versions_in_force(rollouts)[-2:], *(one.canary for one in rollouts[:1])}
    rows = await store.versions()
    for row in rows[keep:]:
        if row.version not in needed:
            await store.remove_version(row.version)
    names = {row.version for row in await store.versions()}
    for path in folder.glob("*.lmab"):
        found = re.fullmatch(r"([0-9a-f]{12})(\.model)?\.lmab", path.name)
        newest = max((row.at for row in rows), default=math.inf)  # newer files: the store was restored from a backup
        if found and found[1] not in names and path.stat().st_mtime <= newest:
            path.unlink()


@dataclass
class _Night:
    """State of one refit."""

    store: Store
    folder: Path
    options: RefitOptions
    rng: np.random.Generator
    at: float
    until: float
    survey: Survey
    arms: Sequence[ArmRow]
    columns: Mapping[str, bool]
    history: Packed | None
    number: int  # of the last entry of the register that this refit knows
    overtaken: bool = False  # another program changed the register meanwhile

    async def _register(self, rollout: Rollout, opens: Sequence[Label] = ()) -> str:
        """Add an entry to the register unless it has changed since this refit read it; return a remark if it has."""
        if await self.store.add_rollout(rollout, after=self.number, opens=opens):
            self.number += 1
            return ""
        self.overtaken = True
        return " The register changed: nothing was put in force."

    @property
    def plays(self) -> Counter[int]:
        """Return the plays of each arm, with the plays of the history."""
        found = self.survey.plays.copy()
        if self.history is not None:
            names = map(str, self.history.arm_labels or range(self.history.n_arms))
            own = dict(zip(names, self.history.plays.tolist(), strict=True))
            found.update({number: own.get(str(arm.label), 0) for number, arm in enumerate(self.arms)})
        return found

    # The canary

    async def look_at_canary(self, rollouts: Sequence[Rollout]) -> RefitResult:
        """Promote the canary, withdraw it, or wait, by the rewards of its own sessions."""
        rollout, name = rollouts[0], str(rollouts[0].canary)
        known = json.loads(await self.store.setting(CANARY, None) or "null")
        new, old = await self._table(name), await self._table(rollout.active)
        if known is None or known["version"] != name:  # it was promoted by hand
            canary = expected(self.survey.latest, new, old, name, _began(rollouts, name))
        else:
            canary = Canary.from_json(known)
        reason = f"it plays what {rollout.active} plays" if canary is None else self._outdated(new, old)
        if canary is None or reason:
            return await self._decide(rollout, new, "withdrawn", f"Canary {name}: {reason}.")
        until = self.at - (self.options.window or 0.0)
        parts, began = list[Compared](), list[tuple[float, str]]()
        async for rows in batches(self.store, canary.began, until):
            parts.append(count_sessions(sessions_of(rows), new, old))
            began += [(row.began, row.policy) for row in rows if row.step == 0]
        counted = [one for part in parts for one in part.counted]
        changes = [one.at for one in rollouts if one.at > canary.began]
        canary, verdict = canary.look(counted, rollout.active, self.at, rollout.share, changes, self.options.ties)
        await self.store.set_setting(CANARY, json.dumps(canary.to_json()))
        line = _sentence(canary, rollout, sum(part.n for part in parts), verdict)
        if wrong := ratio_is_wrong(began, rollouts, until):
            verdict = min(verdict, WAIT)
            line += f" {wrong} It is not promoted: look for clients that lose or repeat sessions."
        if verdict == WAIT:
            await self._set_floors(_n_types(new.version))  # arms may have been opened since
            share = float(next_share(rollout.share, len(canary.nights), canary.nights[-1].gain))
            if share > rollout.share:
                lost = await self._register(Rollout(rollout.active, name, share, self.at, "share raised"))
                line += lost or f" It gets {share:.0%} of new sessions from now on."
            return RefitResult(self.at, "waits", name, (line,), name)
        return await self._decide(rollout, new, "promoted" if verdict > 0 else "withdrawn", line)

    async def _decide(self, rollout: Rollout, new: ArmTable, outcome: str, line: str) -> RefitResult:
        name, promoted = str(rollout.canary), outcome == "promoted"
        entry = Rollout(name if promoted else rollout.active, None, 0.0, self.at, f"canary {name} {outcome}")
        lost = await self._register(entry, new.version.all_labels if promoted else ())
        if lost:
            return RefitResult(self.at, "kept", name, (f"{line}{lost}",))
        return RefitResult(self.at, outcome, name, (f"{line} {outcome.capitalize()}.",))

    def _outdated(self, new: ArmTable, old: ArmTable) -> str:
        """Return why a canary may not go on: sessions would be shorter, or an arm is gone or unknown to it."""
        if new.version.horizon < min(old.version.horizon, self.options.horizon or 1):
            steps = f"it plans {new.version.horizon} steps of a session, {old.version.name} {old.version.horizon}"
            return f"{steps} (refit with --horizon {new.version.horizon} to shorten sessions)"
        plays = self.survey.plays
        enough = YOUNG * max(_n_types(new.version), 1)
        unknown = [n for n in new.open if n not in new.place and plays[n] >= enough]
        if new.version.compact is None:
            return ""
        if unknown:
            return f"it does not know arm {self.arms[unknown[0]].label}, which was played {plays[unknown[0]]:,} times"
        played = self.survey.chosen[new.version.name]
        gone = [n for n in played if not self.arms[n].is_open and played[n] >= _RELIES * played.total()]
        return f"arm {self.arms[gone[0]].label}, which it plays, was withdrawn" if gone else ""

    async def _table(self, name: str) -> ArmTable:
        """The arms as a version knows them; every arm counts as open, because the log was made with all of them."""
        version = await stored_version(self.store, name, Defaults(self.options.horizon or 1))
        return ArmTable(version, [ArmRow(label, ArmState.OPEN) for label, _ in self.arms])

    # The next version

    async def next_version(self, rollout: Rollout) -> RefitResult:
        """Fit, plan, and start a test of the plan unless it is surely worse, relies on young arms, or is not new."""
        n_sessions = self.survey.n_sessions
        if n_sessions + len(self.history or ()) < self.options.least or not (self.survey.rewarded or self.history):
            line = f"The store holds {n_sessions:,} sessions; {self.options.least} are needed. Kept {rollout.active}."
            return RefitResult(self.at, "waits", None, (line,))
        labels = [arm.label for arm in self.arms]
        log = await read_log(
            self.store, self.folder / NIGHT, self.survey, labels, columns=self.columns, history=self.history,
            more=[n for n, arm in enumerate(self.arms) if arm.is_open], until=self.until,
        )  # fmt: skip
        fitted = await fit_log(self.store, self.folder, log, self.options, self.rng, self.at)
        young = await self._set_floors(fitted.n_types)
        horizon, repeats = self.options.horizon or 1, self.options.repeats
        repeats = plays_twice(log.sessions) if repeats is None else repeats
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LmabWarning)  # sessions of the log are shorter than planned ones
            limit = self.options.time_limit
            made = plan(fitted, horizon=horizon, method=Certified(), time_limit=limit, repeats=repeats)
        size = f"{len(log.sessions):,} sessions, {log.sessions.n_arms} arms, {fitted.n_types} types"
        fixed = f"{fitted.bandit.best_fixed(horizon, repeats):.4f}"
        first = f"{size}; on the model the plan earns {made.lower:.4f} a session, {best_fixed(made.repeats)} {fixed}."
        relied = _relied_on(made, fitted, young, self.rng)
        if relied is not None:
            line = (
                f"The plan relies on arm {relied}, which has {young[relied]:,} plays so far; "
                f"{YOUNG * fitted.n_types:,} are needed ({YOUNG} for each type). Kept {rollout.active}."
            )
            return RefitResult(self.at, "kept", None, (first, line))
        candidate = await self._candidate(made, rollout)
        if candidate is None:
            return RefitResult(self.at, "kept", None, (first, f"The plan plays what {rollout.active} plays: kept."))
        names = log.sessions.arm_labels or range(log.sessions.n_arms)
        present = await in_force(self.store, rollout.active, names, log.sessions.horizon)
        found = self._compared(log, made, fitted, present, horizon)
        assessment, words = assessed(fitted, made, log.sessions, self.rng)
        lines = (first, f"{sentence(found, rollout.active)} {words}")
        why_not = surely_worse(found, assessment, earned(self.survey, rollout.active, horizon))
        if why_not:
            return RefitResult(self.at, "kept", None, (*lines, f"No canary: {why_not}. Kept {rollout.active}."))
        return await self._start(*candidate, fitted, rollout, lines, len(log.sessions))

    def _compared(
        self, log: ServedLog, made: Plan, fitted: Estimate, policy_in_force: Policy, horizon: int
    ) -> Comparison | None:
        """Return the comparison of the plan with the policy in force on the log; None if too few sessions allow it."""
        if log.whole is None or len(log.whole) < self.options.least:
            return None
        horizon = min(horizon, policy_in_force.horizon or horizon, log.whole.horizon)
        with suppress(LmabError):
            return compare(
                [made, policy_in_force], log.whole, horizon=horizon, model=fitted.bandit,
                confidence=self.options.confidence, rng=self.rng,
            )  # fmt: skip
        return None

    async def set_popularity(self) -> None:
        """Store the popularity ranking, which the holdout plays from then on."""
        text = json.dumps(self.survey.popularity([arm.label for arm in self.arms]))
        if text != "[]" and await self.store.setting(POPULARITY, None) != text:
            await self.store.set_setting(POPULARITY, text, signal=True)

    async def _set_floors(self, n_types: int) -> dict[Label, int]:
        """Store how much every version explores each open arm; return the plays of the young arms."""
        plays = self.plays
        counts = {arm.label: plays[n] for n, arm in enumerate(self.arms) if arm.is_open}
        found = floors(list(counts.values()), self.options.floor or 0.0, n_types)
        text = json.dumps([[label, float(floor)] for label, floor in zip(counts, found, strict=True)])
        if await self.store.setting(FLOORS, None) != text:
            await self.store.set_setting(FLOORS, text, signal=True)
        return {label: count for label, count in counts.items() if count < YOUNG * n_types}

    async def _candidate(self, made: Plan, rollout: Rollout) -> tuple[bytes, Canary] | None:
        """Return the file of a plan and its test; None if it plays like the version in force."""
        draft = self.folder / ".draft.lmab"
        made.policy.save(draft)
        body = draft.read_bytes()
        draft.unlink()
        new = read_version(body, Defaults(made.horizon))
        table = ArmTable(new, [ArmRow(label, ArmState.OPEN) for label, _ in self.arms])
        canary = expected(self.survey.latest, table, await self._table(rollout.active), new.name, self.at)
        return None if canary is None or new.name == rollout.active else (body, canary)

    async def _start(
        self, body: bytes, canary: Canary, fitted: Estimate, rollout: Rollout, lines: tuple[str, ...], n_sessions: int
    ) -> RefitResult:
        """Write the version and give it its share."""
        name, share = canary.version, self.options.canary
        draft = self.folder / ".draft.lmab"
        draft.write_bytes(body)
        draft.replace(self.folder / f"{name}.lmab")  # no reader finds half of a version
        fitted.save(self.folder / f"{name}.model.lmab")
        await self.store.add_version(name, body, self.at, f"refit on {n_sessions:,} sessions")
        whole = share >= 1
        entry = Rollout(rollout.active, name, share, self.at, "refit")
        if whole:
            entry = Rollout(name, None, 0.0, self.at, "refit")
        lost = await self._register(entry)
        if lost:
            return RefitResult(self.at, "kept", None, (*lines, lost.strip()))
        if whole:
            line = f"{name} gets all new sessions, untested."
            return RefitResult(self.at, "promoted", name, (*lines, line))
        await self.store.set_setting(CANARY, json.dumps(canary.to_json()))
        line = (
            f"Canary {name} gets {share:.0%} of new sessions. It differs from {rollout.active} in "
            f"{canary.differ:.0%} of them; a gain of {MARGIN:.0%} would be seen after about {canary.needed():,.0f} "
            f"sessions at {SHARES[1]:.0%}, a gain of 10% after {canary.needed(0.1):,.0f}."
        )
        return RefitResult(self.at, "canary", name, (*lines, line), name)


def _began(rollouts: Sequence[Rollout], canary: str) -> float:
    """Return when the canary of the newest entry got its first share."""
    return list(takewhile(lambda rollout: rollout.canary == canary, rollouts))[-1].at


def _sentence(canary: Canary, rollout: Rollout, n: int, verdict: int) -> str:
    night = canary.nights[-1]
    head = f"Canary {canary.version} at {rollout.share:.0%}, night {len(canary.nights)} of {END}: of {n:,} sessions"
    if not (night.n_new and night.n_old):
        return f"{head} {night.n_new:,} of it and {night.n_old:,} of {rollout.active} differ so far."
    earns = f"it earns {night.gain:+.4f} a session ({night.low:+.4f} to {night.high:+.4f})"
    return f"{head} {night.n_new:,} and {night.n_old:,} of {rollout.active} differ; {earns}: {WORDS[verdict]}."


def _n_types(version: Version) -> int:
    bandit = None if version.compact is None else underlying_bandit(version.compact.policy)
    return 1 if bandit is None else int(bandit.n_types)


def _relied_on(made: Plan, fitted: Estimate, young: Mapping[Label, int], rng: np.random.Generator) -> Label | None:
    """A young arm that the plan plays often on its model."""
    labels = fitted.bandit.arm_labels or range(fitted.bandit.n_arms)
    places = [arm for arm, label in enumerate(labels) if label in young]
    if not places:
        return None
    prior = fitted.type_prior
    log = simulate(fitted.bandit, made.policy, n_sessions=_TRIED, horizon=made.horizon, type_prior=prior, rng=rng)
    shares = np.bincount(log.arms, minlength=log.n_arms) / log.n_steps
    worst = max(places, key=lambda arm: float(shares[arm]))
    return labels[worst] if shares[worst] > _RELIES else None


# The model of a night


async def fit_log(
    store: Store, folder: Path, log: ServedLog, options: RefitOptions, rng: np.random.Generator, at: float
) -> Estimate:
    """The model; the number of types is chosen anew when the log has doubled since, or while it supports one type."""
    known = json.loads(await store.setting(_FITTED, None) or "{}")
    number = options.types
    if number == "auto" and known.get("types", 1) > 1 and len(log.sessions) < 2 * known["sessions"]:
        number = int(known["types"])
    fitted = fit_from(last_model(folder), log.sessions, number, options, rng)
    if number == "auto":
        known |= {"types": fitted.n_types, "sessions": len(log.sessions)}
    await store.set_setting(_FITTED, json.dumps(known | {"at": at}))
    folder.mkdir(parents=True, exist_ok=True)
    fitted.save(folder / LAST)
    return fitted


def fit_from(
    last: Estimate | None, log: Sessions | Packed, number: int | str, options: RefitOptions, rng: np.random.Generator
) -> Estimate:
    """A fit that starts from the last model, too; few other starts are enough then."""
    start = None if last is None else start_for(last, log)
    if start is not None and number not in ("auto", start.n_types):
        start = None
    warm = start is not None and number != "auto"
    method = EM(prior=options.prior, restarts=_RESTARTS) if warm else EM(prior=options.prior)
    return fit(log, n_types=number, method=method, start=start, rng=rng)


def last_model(folder: Path) -> Estimate | None:
    """The model of the last night; None where there is none that loads."""
    try:
        found = load(folder / LAST)
    except (LmabError, OSError):
        return None
    return found if isinstance(found, Estimate) else None


# Conditions for a canary


async def in_force(store: Store, version: str, labels: Sequence[Label], horizon: int) -> Policy:
    """Return the policy in force without its exploration, for arms with these labels."""
    compact = (await stored_version(store, version, Defaults(horizon))).compact
    try:
        return Uniform(len(labels)) if compact is None else Relabelled(compact.policy, labels)
    except InvalidArgument:  # none of its arms was played
        return Uniform(len(labels))


def sentence(found: Comparison | None, active: str) -> str:
    """Return the result of the comparison in words."""
    if found is None:
        return f"Too few sessions with probabilities to compare with {active}."
    text = f"On {found.n_sessions:,} sessions of the log it earns {found.value:.4f}, {active} {found.other:.4f}"
    if found.interval is None:
        return f"{text}, but only {found.effective:.0f} of them count in full ({ENOUGH:.0f} needed)."
    low, high = found.interval
    return f"{text}: {found.difference:+.4f} ({low:+.4f} to {high:+.4f})."


def assessed(
    fitted: Estimate, made: Plan, sessions: Sessions | Packed, rng: np.random.Generator
) -> tuple[Assessment | None, str]:
    """Return the assessment, and its result in a few words."""
    try:
        found = assess(fitted, made, sessions, n_draws=_DRAWS, rng=rng)
    except LmabError as error:
        return None, f"No assessment: {error}"
    if found.value is None or found.regret is None:
        return None, f"The assessment makes no claim: {found.sentence}"
    low, high = found.value
    return found, f"Confidence interval: {low:.4f} to {high:.4f} per session, regret at most {found.regret[1]:.4f}."


def earned(survey: Survey, version: str, horizon: int) -> float | None:
    """Return the mean reward of whole sessions of a version; None if there are too few."""
    whole = [found for (name, steps), found in survey.earned.items() if name == version and steps >= horizon]
    n = sum(n for n, _ in whole)
    return sum(total for _, total in whole) / n if n >= ENOUGH else None


def surely_worse(found: Comparison | None, assessment: Assessment | None, earned_now: float | None) -> str:
    """Why a plan may not even be tested; empty where it may.

    Live sessions decide whether it is better. The log only excludes plans that are surely worse.
    """
    if found is not None and found.interval is not None and found.interval[1] < 0:
        return "on the log it surely earns less than the version in force"
    highest = None if assessment is None or assessment.value is None else assessment.value[1]
    if highest is not None and earned_now is not None and highest < earned_now:
        return f"its assessment lies below the {earned_now:.4f} that sessions earn now"
    return ""
