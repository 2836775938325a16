"""refit: from the store's log to the next version of the policy, which has to pass a gate, and then a canary."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from .._shapes import Array, Float
from ..checks import Rng, check_rng
from ..estimation import Estimate
from ..planning import Certified, Plan, plan
from ..policies import Exploring
from .export import Log, read_log, write_days
from .fitting import fit_log, floors, last_model, shape
from .gate import certified, compared, earned, failed, in_force, sentence
from .messages import Label
from .stores import Store, Turn
from .versions import UNIFORM, name_of
from .wishes import Night, Wishes

_NORMAL = 1.96
_KEPT = 100  # nights that the store remembers


async def refit(
    store: Store, folder: Path, wishes: Wishes | None = None, *, rng: Rng, now: float | None = None
) -> Night:
    """Judge the canary, or make, judge and register the next version. The store must be open."""
    wishes, rng = wishes or Wishes(), check_rng(rng, "a refit draws models and sessions")
    at = time.time() if now is None else now
    turns = await store.turns(1)
    turn = turns[0] if turns else Turn(UNIFORM, None, 0.0, 0.0, "")
    rows = await store.rows(0.0, math.inf if now is None else now + 1)
    arms = await store.arms()
    if any(row[3] is not None for row in rows):
        write_days(rows, [label for label, _ in arms], folder / "log")
    if turn.canary is not None:
        night = await _judge(store, turn, rows, wishes, at)
    else:
        night = await _next(store, folder, turn, rows, arms, wishes, rng, at)
    past = json.loads(await store.setting("refits", None) or "[]")
    await store.set_setting("refits", json.dumps([*past, asdict(night)][-_KEPT:]))
    return night


async def _judge(store: Store, turn: Turn, rows: Sequence[tuple[Any, ...]], wishes: Wishes, at: float) -> Night:
    """Promote the canary, end it, or wait, by what its own sessions earned."""
    assert turn.canary is not None
    new, old = (_session_rewards(rows, version, turn.at) for version in (turn.canary, turn.active))
    first = f"Canary {turn.canary}: {len(new):,} sessions, {len(old):,} of {turn.active} beside it."
    if min(len(new), len(old)) < wishes.least:
        return Night(at, "waits", turn.canary, True, (first, f"Each needs {wishes.least}.", "Waited."))
    gain = float(new.mean() - old.mean())
    reach = _NORMAL * float(np.sqrt(new.var(ddof=1) / len(new) + old.var(ddof=1) / len(old)))
    second = (
        f"It earns {new.mean():.4f} a session, the other {old.mean():.4f}: "
        f"{gain:+.4f} ({gain - reach:+.4f} to {gain + reach:+.4f})."
    )
    if gain + reach < 0:
        await store.turn(Turn(turn.active, None, 0.0, at, f"canary {turn.canary} earned less"))
        return Night(at, "rolled back", turn.canary, False, (first, second, "It earns less: rolled back."))
    if gain - reach > -wishes.margin * abs(float(old.mean())):
        await store.turn(Turn(turn.canary, None, 0.0, at, "the canary passed"))
        return Night(at, "promoted", turn.canary, True, (first, second, "Promoted: all new sessions get it."))
    return Night(at, "waits", turn.canary, True, (first, second, "This is not clear yet: waited."))


def _session_rewards(rows: Sequence[tuple[Any, ...]], version: str, since: float) -> Float[Array, "n"]:
    totals: dict[str, float] = {}
    for session, _, _, reward, _, policy, _, _, _, began in rows:
        if policy == version and began >= since:
            totals[session] = totals.get(session, 0.0) + (reward or 0.0)
    return np.array(list(totals.values()))


async def _next(
    store: Store,
    folder: Path,
    turn: Turn,
    rows: Sequence[tuple[Any, ...]],
    arms: Sequence[tuple[Label, bool]],
    wishes: Wishes,
    rng: np.random.Generator,
    at: float,
) -> Night:
    """Fit, plan, compare, certify; register a version that passes."""
    n_sessions = len({row[0] for row in rows})
    if n_sessions < wishes.least or not any(row[3] is not None for row in rows):
        first = f"The store holds {n_sessions:,} sessions; {wishes.least} are needed."
        return Night(at, "waits", None, False, (first, "Nothing was fitted.", f"Kept {turn.active}."))
    log = read_log(rows, [label for label, _ in arms], [number for number, (_, is_open) in enumerate(arms) if is_open])
    last = await _last(store, folder)
    fitted = await fit_log(store, folder, log, wishes, rng, at)
    horizon, repeats = shape(log.sessions, wishes)
    made = plan(fitted, horizon=horizon, method=Certified(), time_limit=wishes.time_limit, repeats=repeats)
    found = compared(log, made, fitted, last, await in_force(store, turn.active, log.sessions), wishes, rng)
    first = (
        f"{len(log.sessions):,} sessions, {log.sessions.n_arms} arms, {fitted.n_types} types; on the model the plan "
        f"earns {made.lower:.4f} a session, the best fixed choice {fitted.bandit.best_fixed(horizon, repeats):.4f}."
    )
    certificate, words = certified(fitted, made, log.sessions, rng)
    second = f"{sentence(found, turn.active, wishes)} {words}"
    why_not = failed(found, certificate, earned(rows, turn.active, horizon), turn.active, wishes)
    if why_not:
        return Night(at, "kept", None, False, (first, second, f"Did not pass: {why_not}. Kept {turn.active}."))
    version = await _write(store, folder, made, fitted, log, wishes, at)
    share = 1.0 if wishes.canary >= 1 else wishes.canary
    news = Turn(version, None, 0.0, at, "refit") if share == 1 else Turn(turn.active, version, share, at, "refit")
    await store.turn(news)
    outcome = "promoted" if share == 1 else "canary"
    return Night(at, outcome, version, True, (first, second, f"Passed: {version} gets {share:.0%} of new sessions."))


async def _last(store: Store, folder: Path) -> tuple[Estimate, float] | None:
    """The last model, and when it was fitted."""
    found, known = last_model(folder), json.loads(await store.setting("fitted", None) or "{}")
    return None if found is None or "at" not in known else (found, float(known["at"]))


async def _write(store: Store, folder: Path, made: Plan, fitted: Estimate, log: Log, wishes: Wishes, at: float) -> str:
    """The files of the version, and its place in the store."""
    folder.mkdir(parents=True, exist_ok=True)
    policy = Exploring(made.policy, floors(log.sessions, wishes.floor))
    draft = folder / ".draft.lmab"
    policy.save(draft)
    body = draft.read_bytes()
    version = name_of(body)
    draft.replace(folder / f"{version}.lmab")
    fitted.save(folder / f"{version}.model.lmab")
    await store.add_version(version, body, at, f"refit on {len(log.sessions):,} sessions")
    return version
