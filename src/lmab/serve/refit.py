"""refit: from the store's log to the next version of the policy, which has to pass a gate, and then a canary."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._shapes import Array, Float
from ..checks import Rng, check_rng
from ..data import Episodes
from ..errors import InvalidArgument, LmabError
from ..estimation import EM, Estimate, estimate
from ..evaluation import Certificate, Comparison, certify, compare
from ..planning import Certified, Plan, plan
from ..policies import Exploring, Policy, Relabelled, Uniform
from .export import Log, read_log, write_days
from .stores import Store, Turn
from .versions import UNIFORM, Defaults, name_of, read_version

_NORMAL = 1.96
_SPREAD = 0.2  # part of the floor that all arms share; the rest follows what the log lacks
_KEPT = 100  # nights that the store remembers
_DRAWS = 50  # models behind the certificate
_ENOUGH = 30  # whole sessions that an average needs


@dataclass(frozen=True)
class Wishes:
    """How a refit is to be made."""

    gate: float = 0.0  # what the new policy must earn more, at least, per session
    canary: float = 0.05  # share of new sessions that a version gets at first
    margin: float = 0.02  # part of the reward that a canary may lose and still be promoted
    contexts: int | str = "auto"
    horizon: int | None = None  # None: the longest session
    repeats: bool | None = None  # None: whether the log plays an arm twice in a session
    floor: float = 0.1
    prior: float | str = "learned"
    least: int = 200  # sessions below which nothing is fitted, and a canary is not judged
    held_back: float = 0.2
    time_limit: float = 30.0
    confidence: float = 0.9


@dataclass(frozen=True)
class Night:
    """What one refit found and did, in three lines."""

    at: float
    action: str  # "waits", "kept", "canary", "promoted", "rolled back"
    version: str | None
    passed: bool
    lines: tuple[str, str, str]


async def refit(
    store: Store, folder: Path, wishes: Wishes | None = None, *, rng: Rng, now: float | None = None
) -> Night:
    """Judge the canary, or make, judge and register the next version. The store must be open."""
    wishes, rng = wishes or Wishes(), check_rng(rng, "a refit draws models and sessions")
    at = time.time() if now is None else now
    turns = await store.turns(1)
    turn = turns[0] if turns else Turn(UNIFORM, None, 0.0, 0.0, "")
    rows = await store.rows(0.0, math.inf if now is None else now + 1)
    arms = [label for label, _ in await store.arms()]
    if any(row[3] is not None for row in rows):
        write_days(rows, arms, folder / "log")
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
    arms: Sequence[str | int],
    wishes: Wishes,
    rng: np.random.Generator,
    at: float,
) -> Night:
    """Fit, plan, compare, certify; register a version that passes."""
    n_sessions = len({row[0] for row in rows})
    if n_sessions < wishes.least or not any(row[3] is not None for row in rows):
        first = f"The store holds {n_sessions:,} sessions; {wishes.least} are needed."
        return Night(at, "waits", None, False, (first, "Nothing was fitted.", f"Kept {turn.active}."))
    log = read_log(rows, arms)
    fitted = await _fitted(store, log, wishes, rng)
    horizon, repeats = _shape(log.episodes, wishes)
    made = plan(fitted, horizon=horizon, method=Certified(), time_limit=wishes.time_limit, repeats=repeats)
    in_force = await _in_force(store, turn.active, log.episodes)
    found = _compared(log, made, fitted.n_contexts, in_force, wishes, rng)
    first = (
        f"{len(log.episodes):,} sessions, {log.episodes.n_arms} arms, {fitted.n_contexts} types; on the model the plan "
        f"earns {made.lower:.4f} a session, the best fixed choice {fitted.bandit.best_fixed(horizon, repeats):.4f}."
    )
    certificate, words = _certified(fitted, made, log.episodes, rng)
    second = f"{_sentence(found, turn.active, wishes)} {words}"
    failed = _failed(found, certificate, _earned(rows, turn.active, horizon), wishes)
    if failed:
        return Night(at, "kept", None, False, (first, second, f"Did not pass: {failed}. Kept {turn.active}."))
    version = await _write(store, folder, made, fitted, log, wishes, at)
    share = 1.0 if wishes.canary >= 1 else wishes.canary
    news = Turn(version, None, 0.0, at, "refit") if share == 1 else Turn(turn.active, version, share, at, "refit")
    await store.turn(news)
    action = "promoted" if share == 1 else "canary"
    return Night(at, action, version, True, (first, second, f"Passed: {version} gets {share:.0%} of new sessions."))


async def _fitted(store: Store, log: Log, wishes: Wishes, rng: np.random.Generator) -> Estimate:
    """The model; the number of types is chosen anew when the log has doubled since it was last chosen."""
    known = json.loads(await store.setting("fitted", None) or "{}")
    number = wishes.contexts
    if number == "auto" and known and len(log.episodes) < 2 * known["sessions"]:
        number = int(known["contexts"])
    fitted = estimate(log.episodes, n_contexts=number, method=EM(prior=wishes.prior), rng=rng)
    if number == "auto":
        news = {"contexts": fitted.n_contexts, "sessions": len(log.episodes)}
        await store.set_setting("fitted", json.dumps(news))
    return fitted


def _shape(episodes: Episodes, wishes: Wishes) -> tuple[int, bool]:
    """Steps of a session, and whether it may play an arm twice."""
    if wishes.repeats is not None:
        return wishes.horizon or episodes.horizon, wishes.repeats
    keys = np.repeat(np.arange(len(episodes)), episodes.lengths) * episodes.n_arms + episodes.actions
    return wishes.horizon or episodes.horizon, len(np.unique(keys)) < len(keys)


async def _in_force(store: Store, version: str, episodes: Episodes) -> Policy:
    """The policy in force without its exploration, for the arms of the log."""
    body = None if version == UNIFORM else await store.version(version)
    if body is None:
        return Uniform(episodes.n_arms)
    compact = read_version(body, Defaults(episodes.horizon)).compact
    if compact is None:
        return Uniform(episodes.n_arms)
    labels = episodes.arm_labels or tuple(range(episodes.n_arms))
    try:
        return Relabelled(compact.policy, labels)
    except InvalidArgument:  # none of its arms was played
        return Uniform(episodes.n_arms)


def _compared(
    log: Log, made: Plan, n_contexts: int, in_force: Policy, wishes: Wishes, rng: np.random.Generator
) -> Comparison | None:
    """The new way of planning against the policy in force, on sessions that its model has not seen; None: too few."""
    if log.whole is None or len(log.whole) < wishes.least:
        return None
    held = _held_back(log, wishes, rng)
    horizon = min(made.horizon, in_force.horizon or made.horizon, log.whole[held].horizon)
    try:
        method = EM(prior=wishes.prior)
        model = estimate(log.whole[~held], n_contexts=n_contexts, method=method, rng=rng).bandit
        policy = plan(
            model, horizon=made.horizon, method=Certified(), time_limit=wishes.time_limit, repeats=made.repeats
        ).policy
        return compare(
            policy, in_force, log.whole[held], horizon=horizon, model=model, confidence=wishes.confidence, rng=rng
        )
    except LmabError:
        return None


def _held_back(log: Log, wishes: Wishes, rng: np.random.Generator) -> Any:
    """The sessions of the last day where these are enough and not most of all, else a random part."""
    last = log.whole_began >= log.whole_began.max() - 86_400
    if last.sum() >= wishes.least and last.mean() <= 0.5:
        return last
    held = np.zeros(len(log.whole_began), bool)
    held[rng.permutation(len(held))[: round(wishes.held_back * len(held))]] = True
    return held


def _sentence(found: Comparison | None, active: str, wishes: Wishes) -> str:
    if found is None:
        return f"Too few sessions with probabilities to compare with {active}."
    low, high = found.interval
    return (
        f"On {found.n_episodes:,} sessions kept back it earns {found.value:.4f}, {active} {found.other:.4f}: "
        f"{found.difference:+.4f} ({low:+.4f} to {high:+.4f}), gate {wishes.gate:+g}."
    )


def _certified(
    fitted: Estimate, made: Plan, episodes: Episodes, rng: np.random.Generator
) -> tuple[Certificate | None, str]:
    """The certificate, and what it says in a few words."""
    try:
        found = certify(fitted, made, episodes, n_draws=_DRAWS, rng=rng)
    except LmabError as error:
        return None, f"No certificate: {error}"
    low, high = found.value
    return found, f"Certified: in truth {low:.4f} to {high:.4f} a session, regret below {found.regret[1]:.4f}."


def _earned(rows: Sequence[tuple[Any, ...]], version: str, horizon: int) -> float | None:
    """What whole sessions of a version earned on average; None where there are too few."""
    totals: dict[str, tuple[int, float]] = {}
    for session, _, _, reward, _, policy, _, _, _, _ in rows:
        if policy == version and reward is not None:
            steps, total = totals.get(session, (0, 0.0))
            totals[session] = steps + 1, total + reward
    whole = [total for steps, total in totals.values() if steps >= horizon]
    return float(np.mean(whole)) if len(whole) >= _ENOUGH else None


def _failed(found: Comparison | None, certificate: Certificate | None, earned: float | None, wishes: Wishes) -> str:
    """Why a plan does not pass; empty where it does.

    Few logged sessions agree with a new plan to their end, so the comparison leans on a model that the plan was made
    to please. The certificate counts how much the log leaves open about that model, so both must agree.
    """
    if found is None:
        return "there is nothing to compare it with"
    if found.interval[0] <= wishes.gate:
        return f"it must surely earn {wishes.gate:+g} a session more"
    if certificate is None:
        return "it could not be certified"
    if earned is not None and certificate.value[0] <= earned + wishes.gate:
        return f"the certificate does not exclude the {earned:.4f} that sessions earn now"
    return ""


async def _write(store: Store, folder: Path, made: Plan, fitted: Estimate, log: Log, wishes: Wishes, at: float) -> str:
    """The files of the version, and its place in the store."""
    folder.mkdir(parents=True, exist_ok=True)
    policy = Exploring(made.policy, floors(log.episodes, wishes.floor))
    draft = folder / ".draft.lmab"
    policy.save(draft)
    body = draft.read_bytes()
    version = name_of(body)
    draft.replace(folder / f"{version}.lmab")
    fitted.save(folder / f"{version}.model.lmab")
    await store.add_version(version, body, at, f"refit on {len(log.episodes):,} sessions")
    return version


def floors(episodes: Episodes, total: float) -> Float[Array, "A"]:
    """The floor of each arm: a small equal part, and more for the arms that the log hardly knows.

    Examples:
        >>> import lmab
        >>> log = lmab.Episodes.from_arrays([[0, 0, 0, 1]] * 30, [[1.0, 0.0, 1.0, 1.0]] * 30)
        >>> floors(log, 0.1).round(3)
        array([0.034, 0.066])
    """
    counts = np.bincount(episodes.actions, minlength=episodes.n_arms)
    wanted = 1 / (counts + counts.mean() / 10)
    return total * (_SPREAD / episodes.n_arms + (1 - _SPREAD) * wanted / wanted.sum())
