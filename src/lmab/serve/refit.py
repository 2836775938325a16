"""refit: from the store's log to the next version of the policy, which is then tested as a canary."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..checks import OneOf, Rng, check_fields, check_rng
from ..data.sessions import Sessions
from ..errors import InvalidArgument, LmabError
from ..estimation.em import EM
from ..estimation.fit import fit
from ..estimation.result import Estimate
from ..evaluation.certificate import Certificate
from ..evaluation.certify import certify
from ..evaluation.compare import Comparison, compare
from ..evaluation.off_policy import ENOUGH
from ..loading import load
from ..model.bandit import LatentBandit
from ..planning.certified import Certified
from ..planning.plan import plan
from ..planning.problem import Plan
from ..policies.policy import Policy, bandit_behind
from ..policies.small import Uniform
from ..policies.wrappers import Relabelled
from ..simulation import simulate
from .canary import END, MARGIN, NEWER, OLDER, SHARES, WAIT, WORDS, Canary, count_sessions, expected, next_share
from .export import ServedLog, export_days, read_log
from .messages import Label
from .register import FLOORS
from .stores import ArmRow, LogRow, Rollout, Store
from .versions import UNIFORM, ArmTable, Defaults, Version, read_version, uniform_version
from .watch import CANARY, REFITS

LAST = "last.model.lmab"  # the model of the last night, whether its plan became a canary or not
YOUNG = 100  # plays for each type below which nothing may rely on an arm
_SPREAD = 0.2  # part of the floor that all arms share; the rest follows what the log lacks
_FOR_YOUNG = 0.5  # part of the floor that young arms share
_RESTARTS = 4  # starts of a warm fit: the last model, and three others that win where it is bad
_DRAWS = 50  # models behind the certificate
_TRIED = 500  # simulated sessions that tell which arms a plan plays
_RELIES = 0.01  # part of its plays from which on a plan relies on an arm
_KEPT = 100  # nights that the store remembers


@dataclass(frozen=True)
class RefitOptions:
    """How a refit is to be made."""

    canary: float = SHARES[0]  # share of new sessions that a version gets at first; 1: all at once, without a test
    window: float = 3600.0  # seconds after its last step in which a session's rewards may come
    types: int | str = "auto"
    horizon: int | None = None  # None: the longest session
    repeats: bool | None = None  # None: whether the log plays an arm twice in a session
    floor: float = 0.1  # share of the decisions that explore
    prior: float | str = "learned"
    least: int = 200  # sessions below which nothing is fitted
    time_limit: float = 30.0
    confidence: float = 0.9
    ties: str = NEWER  # Plan that stays where two surely earn the same but for 2%: the newer or the older one.

    def __post_init__(self) -> None:
        check_fields(self, {"ties": OneOf((NEWER, OLDER))})


@dataclass(frozen=True)
class RefitResult:
    """What one refit found and did."""

    at: float
    outcome: str  # "waits", "kept", "canary", "promoted", "withdrawn"
    version: str | None  # the version that the outcome is about
    lines: tuple[str, ...]
    canary: str | None = None  # the version that is tested from now on


async def refit(
    store: Store, folder: Path, options: RefitOptions | None = None, *, rng: Rng, now: float | None = None
) -> RefitResult:
    """Look at the canary; where none is tested any more, make the next one. The store must be open.

    Args:
        store: the store of the service.
        folder: for the versions, their models and the log by day.
        options: how to fit, plan and test.
        rng: for fits, draws and simulated sessions.
        now: the present time in seconds; None: the clock's.
    """
    options, rng = options or RefitOptions(), check_rng(rng, "a refit draws models and sessions")
    at = time.time() if now is None else now
    async with store.exclusively() as alone:
        if not alone:
            return RefitResult(at, "waits", None, ("Another refit of this store is at work: nothing was done.",))
        result = await _refit(store, folder, options, rng, at, math.inf if now is None else now + 1)
        past = json.loads(await store.setting(REFITS, None) or "[]")
        await store.set_setting(REFITS, json.dumps([*past, asdict(result)][-_KEPT:]))
    return result


async def _refit(
    store: Store, folder: Path, options: RefitOptions, rng: np.random.Generator, at: float, until: float
) -> RefitResult:
    folder.mkdir(parents=True, exist_ok=True)
    rollouts = await store.rollouts(1000)
    rollout = rollouts[0] if rollouts else Rollout(UNIFORM, None, 0.0, 0.0, "")
    rows = await store.rows(0.0, until)
    await export_days(store, folder / "log", rows=rows, now=at)
    night = _Night(store, folder, options, rng, at, rows, await store.arms())
    if rollout.canary is None:
        return await night.next_version(rollout)
    result = await night.look_at_canary(rollout, rollouts)
    if result.outcome == "waits":
        return result
    rollout = (await store.rollouts(1))[0]
    after = await night.next_version(rollout)
    return RefitResult(at, result.outcome, result.version, result.lines + after.lines, after.canary)


@dataclass
class _Night:
    """What one refit knows."""

    store: Store
    folder: Path
    options: RefitOptions
    rng: np.random.Generator
    at: float
    rows: Sequence[LogRow]
    arms: Sequence[ArmRow]

    # The canary

    async def look_at_canary(self, rollout: Rollout, rollouts: Sequence[Rollout]) -> RefitResult:
        """Promote the canary, withdraw it, or wait, by what its own sessions earned."""
        name = str(rollout.canary)
        known = json.loads(await self.store.setting(CANARY, None) or "null")
        new, old = await self._table(name), await self._table(rollout.active)
        if known is None or known["version"] != name:  # it was promoted by hand
            canary = expected(self.rows, new, old, name, _began(rollouts, name))
        else:
            canary = Canary.from_json(known)
        if canary is None:
            return await self._decide(rollout, "withdrawn", f"Canary {name}: it plays what {rollout.active} plays.")
        replaced = self._outdated(new)
        if replaced:
            return await self._decide(rollout, "withdrawn", f"Canary {name}: {replaced}.")
        tested = [row for row in self.rows if canary.began <= row.began < self.at - self.options.window]
        seen = count_sessions(tested, new, old)
        changes = [one.at for one in rollouts if one.at > canary.began]
        canary, verdict = canary.look(seen.counted, rollout.active, self.at, rollout.share, changes, self.options.ties)
        await self.store.set_setting(CANARY, json.dumps(canary.to_json()))
        line = _sentence(canary, rollout, seen.n, verdict)
        if verdict == WAIT:
            await self._set_floors(_n_types(new.version))  # arms may have been opened since
            share = float(next_share(rollout.share, len(canary.nights), canary.nights[-1].gain))
            if share > rollout.share:
                await self.store.add_rollout(Rollout(rollout.active, name, share, self.at, "share raised"))
                line += f" It gets {share:.0%} of new sessions from now on."
            return RefitResult(self.at, "waits", name, (line,), name)
        return await self._decide(rollout, "promoted" if verdict > 0 else "withdrawn", line)

    async def _decide(self, rollout: Rollout, outcome: str, line: str) -> RefitResult:
        name = str(rollout.canary)
        active = name if outcome == "promoted" else rollout.active
        await self.store.add_rollout(Rollout(active, None, 0.0, self.at, f"canary {name} {outcome}"))
        return RefitResult(self.at, outcome, name, (f"{line} {outcome.capitalize()}.",))

    def _outdated(self, new: ArmTable) -> str:
        """Why the test of a canary is no use any more: an arm that it plays is gone, or it lacks one that is known."""
        plays = Counter(row.arm for row in self.rows)
        enough = YOUNG * max(_n_types(new.version), 1)
        unknown = [n for n in new.open if n not in new.place and plays[n] >= enough]
        if new.version.compact is None:
            return ""
        if unknown:
            return f"it does not know arm {self.arms[unknown[0]].label}, which was played {plays[unknown[0]]:,} times"
        played = Counter(row.arm for row in self.rows if row.policy == new.version.name and not row.explored)
        gone = [n for n in played if not self.arms[n].is_open and played[n] >= _RELIES * played.total()]
        return f"arm {self.arms[gone[0]].label}, which it plays, was withdrawn" if gone else ""

    async def _table(self, name: str) -> ArmTable:
        """The arms as a version knows them; every arm counts as open, because the log was made with all of them."""
        horizon = self.options.horizon or 1 + max((row.step for row in self.rows), default=0)
        body = None if name == UNIFORM else await self.store.version(name)
        version = uniform_version(Defaults(horizon)) if body is None else read_version(body, Defaults(horizon))
        return ArmTable(version, [ArmRow(label, True) for label, _ in self.arms])

    # The next version

    async def next_version(self, rollout: Rollout) -> RefitResult:
        """Fit, plan, and start a test of the plan unless it is surely worse, relies on young arms, or is not new."""
        n_sessions = len({row.session for row in self.rows})
        if n_sessions < self.options.least or not any(row.reward is not None for row in self.rows):
            line = f"The store holds {n_sessions:,} sessions; {self.options.least} are needed. Kept {rollout.active}."
            return RefitResult(self.at, "waits", None, (line,))
        labels = [arm.label for arm in self.arms]
        log = read_log(self.rows, labels, [n for n, arm in enumerate(self.arms) if arm.is_open])
        fitted = await fit_log(self.store, self.folder, log, self.options, self.rng, self.at)
        young = await self._set_floors(fitted.n_types)
        horizon, repeats = shape(log.sessions, self.options)
        made = plan(fitted, horizon=horizon, method=Certified(), time_limit=self.options.time_limit, repeats=repeats)
        first = (
            f"{len(log.sessions):,} sessions, {log.sessions.n_arms} arms, {fitted.n_types} types; on the model the "
            f"plan earns {made.lower:.4f} a session, the best fixed choice "
            f"{fitted.bandit.best_fixed(horizon, repeats):.4f}."
        )
        relied = _relied_on(made, fitted, young, self.rng)
        if relied:
            line = f"The plan relies on arm {relied}, which has too few plays so far. Kept {rollout.active}."
            return RefitResult(self.at, "kept", None, (first, line))
        candidate = await self._candidate(made, rollout)
        if candidate is None:
            return RefitResult(self.at, "kept", None, (first, f"The plan plays what {rollout.active} plays: kept."))
        found = self._compared(log, made, fitted, await in_force(self.store, rollout.active, log.sessions), horizon)
        certificate, words = certified(fitted, made, log.sessions, self.rng)
        lines = (first, f"{sentence(found, rollout.active)} {words}")
        why_not = surely_worse(found, certificate, earned(self.rows, rollout.active, horizon))
        if why_not:
            return RefitResult(self.at, "kept", None, (*lines, f"No canary: {why_not}. Kept {rollout.active}."))
        return await self._start(*candidate, fitted, rollout, lines, len(log.sessions))

    def _compared(
        self, log: ServedLog, made: Plan, fitted: Estimate, policy_in_force: Policy, horizon: int
    ) -> Comparison | None:
        """The plan against the policy in force, from the log; None where too few sessions tell."""
        if log.whole is None or len(log.whole) < self.options.least:
            return None
        horizon = min(horizon, policy_in_force.horizon or horizon, log.whole.horizon)
        try:
            return compare(
                [made, policy_in_force], log.whole, horizon=horizon, model=fitted.bandit,
                confidence=self.options.confidence, rng=self.rng,
            )  # fmt: skip
        except LmabError:
            return None

    async def _set_floors(self, n_types: int) -> list[Label]:
        """Say how much each open arm is explored, by every version; the arms that are young."""
        plays = Counter(row.arm for row in self.rows)
        counts = [plays[n] for n, arm in enumerate(self.arms) if arm.is_open]
        labels = [arm.label for arm in self.arms if arm.is_open]
        found = floors(counts, self.options.floor, n_types)
        text = json.dumps([[label, float(floor)] for label, floor in zip(labels, found, strict=True)])
        if await self.store.setting(FLOORS, None) != text:
            await self.store.set_setting(FLOORS, text, signal=True)
        return [label for label, count in zip(labels, counts, strict=True) if count < YOUNG * n_types]

    async def _candidate(self, made: Plan, rollout: Rollout) -> tuple[bytes, Canary] | None:
        """The file of a plan and its test; None where it plays what the version in force plays."""
        draft = self.folder / ".draft.lmab"
        made.policy.save(draft)
        body = draft.read_bytes()
        draft.unlink()
        new = read_version(body, Defaults(made.horizon))
        table = ArmTable(new, [ArmRow(label, True) for label, _ in self.arms])
        canary = expected(self.rows, table, await self._table(rollout.active), new.name, self.at)
        return None if canary is None or new.name == rollout.active else (body, canary)

    async def _start(
        self, body: bytes, canary: Canary, fitted: Estimate, rollout: Rollout, lines: tuple[str, ...], n_sessions: int
    ) -> RefitResult:
        """Write the version and give it its share."""
        name, share = canary.version, self.options.canary
        draft = self.folder / ".draft.lmab"
        draft.write_bytes(body)
        draft.replace(self.folder / f"{name}.lmab")  # nobody finds half of a version
        fitted.save(self.folder / f"{name}.model.lmab")
        await self.store.add_version(name, body, self.at, f"refit on {n_sessions:,} sessions")
        if share >= 1:
            await self.store.add_rollout(Rollout(name, None, 0.0, self.at, "refit"))
            line = f"{name} gets all new sessions, untested."
            return RefitResult(self.at, "promoted", name, (*lines, line))
        await self.store.set_setting(CANARY, json.dumps(canary.to_json()))
        await self.store.add_rollout(Rollout(rollout.active, name, share, self.at, "refit"))
        line = (
            f"Canary {name} gets {share:.0%} of new sessions. It differs from {rollout.active} in "
            f"{canary.differ:.0%} of them; a gain of {MARGIN:.0%} would be seen after about {canary.needed():,.0f} "
            f"sessions at {SHARES[1]:.0%}, a gain of 10% after {canary.needed(0.1):,.0f}."
        )
        return RefitResult(self.at, "canary", name, (*lines, line), name)


def _began(rollouts: Sequence[Rollout], canary: str) -> float:
    """When the canary of the newest entry got its first share."""
    began = rollouts[0].at
    for rollout in rollouts:
        if rollout.canary != canary:
            break
        began = rollout.at
    return began


def _sentence(canary: Canary, rollout: Rollout, n: int, verdict: int) -> str:
    night = canary.nights[-1]
    head = f"Canary {canary.version} at {rollout.share:.0%}, night {len(canary.nights)} of {END}: "
    if not (night.n_new and night.n_old):
        return f"{head}of {n:,} sessions {night.n_new:,} of it and {night.n_old:,} of {rollout.active} differ so far."
    return (
        f"{head}of {n:,} sessions "
        f"{night.n_new:,} and {night.n_old:,} of {rollout.active} differ; it earns {night.gain:+.4f} a session "
        f"({night.low:+.4f} to {night.high:+.4f}): {WORDS[verdict]}."
    )


def _n_types(version: Version) -> int:
    bandit = None if version.compact is None else bandit_behind(version.compact.policy)
    return 1 if bandit is None else int(bandit.n_types)


def _relied_on(made: Plan, fitted: Estimate, young: Sequence[Label], rng: np.random.Generator) -> Label | None:
    """A young arm that the plan plays often on its model."""
    labels = _labels(fitted.bandit.arm_labels, fitted.bandit.n_arms)
    places = [arm for arm, label in enumerate(labels) if label in set(young)]
    if not places:
        return None
    log = simulate(
        fitted.bandit, made.policy, n_sessions=_TRIED, horizon=made.horizon, type_prior=fitted.type_prior, rng=rng
    )
    shares = np.bincount(log.arms, minlength=log.n_arms) / log.n_steps
    worst = max(places, key=lambda arm: float(shares[arm]))
    return labels[worst] if shares[worst] > _RELIES else None


# The model of a night


async def fit_log(
    store: Store, folder: Path, log: ServedLog, options: RefitOptions, rng: np.random.Generator, at: float
) -> Estimate:
    """The model; the number of types is chosen anew when the log has doubled since, or while it supports one type."""
    known = json.loads(await store.setting("fitted", None) or "{}")
    number = options.types
    if number == "auto" and known.get("types", 1) > 1 and len(log.sessions) < 2 * known["sessions"]:
        number = int(known["types"])
    fitted = fit_from(last_model(folder), log.sessions, number, options, rng)
    if number == "auto":
        known |= {"types": fitted.n_types, "sessions": len(log.sessions)}
    await store.set_setting("fitted", json.dumps(known | {"at": at}))
    folder.mkdir(parents=True, exist_ok=True)
    fitted.save(folder / LAST)
    return fitted


def fit_from(
    last: Estimate | None, sessions: Sessions, number: int | str, options: RefitOptions, rng: np.random.Generator
) -> Estimate:
    """A fit that starts from the last model, too; few other starts are enough then."""
    start = None if last is None else start_for(last, sessions)
    if start is not None and number not in ("auto", start.n_types):
        start = None
    method = EM(prior=options.prior)
    if start is not None and number != "auto":
        method = EM(prior=options.prior, restarts=_RESTARTS)
    return fit(sessions, n_types=number, method=method, start=start, rng=rng)


def last_model(folder: Path) -> Estimate | None:
    """The model of the last night; None where there is none that loads."""
    try:
        found = load(folder / LAST)
    except (LmabError, OSError):
        return None
    return found if isinstance(found, Estimate) else None


def start_for(last: Estimate, sessions: Sessions) -> LatentBandit | None:
    """The last model for the arms of the log; None where the log has lost an arm, or has rewards of another kind.

    Arms that the model does not know get the law of arms that it learned, else the average of its arms.
    """
    bandit, labels = last.bandit, _labels(sessions.arm_labels, sessions.n_arms)
    known = _labels(bandit.arm_labels, bandit.n_arms)
    new = [label for label in labels if label not in set(known)]
    if len(known) + len(new) != len(labels):
        return None
    values = bandit.rewards.values
    if values is None or not np.isin(sessions.rewards, values).all():
        return None
    if new:
        bandit = bandit.with_arms(new, law=last.law_of_arms)
    place = {label: arm for arm, label in enumerate([*known, *new])}
    return bandit.relabel(arms=[place[label] for label in labels])


def _labels(labels: tuple[Label, ...] | None, n_arms: int) -> Sequence[Label]:
    return range(n_arms) if labels is None else labels


def shape(sessions: Sessions, options: RefitOptions) -> tuple[int, bool]:
    """Steps of a session, and whether it may play an arm twice."""
    if options.repeats is not None:
        return options.horizon or sessions.horizon, options.repeats
    keys = np.repeat(np.arange(len(sessions)), sessions.lengths) * sessions.n_arms + sessions.arms
    return options.horizon or sessions.horizon, len(np.unique(keys)) < len(keys)


def floors(counts: Sequence[int], total: float, n_types: int = 1) -> Any:
    """The floor of each arm: a small equal part, and more for the arms that the log hardly knows.

    Arms with fewer than 100 plays for each type share half of the floor, as long as there are any.

    Examples:
        >>> floors([90, 30], 0.1, n_types=0).round(3)
        array([0.034, 0.066])
        >>> floors([4000, 2000, 7], 0.1, n_types=3).round(3)
        array([0.018, 0.032, 0.05 ])
    """
    plays = np.asarray(counts, float)
    young = plays < YOUNG * n_types
    if not young.any() or young.all():
        return _by_need(plays, total)
    found = np.empty(len(plays))
    found[young] = _by_need(plays[young], _FOR_YOUNG * total)
    found[~young] = _by_need(plays[~young], (1 - _FOR_YOUNG) * total)
    return found


def _by_need(plays: Any, total: float) -> Any:
    wanted = 1 / (plays + max(float(plays.mean()) / 10, 1e-3))
    return total * (_SPREAD / len(plays) + (1 - _SPREAD) * wanted / wanted.sum())


# Who may be a canary


async def in_force(store: Store, version: str, sessions: Sessions) -> Policy:
    """The policy in force without its exploration, for the arms of the log."""
    body = None if version == UNIFORM else await store.version(version)
    if body is None:
        return Uniform(sessions.n_arms)
    compact = read_version(body, Defaults(sessions.horizon)).compact
    if compact is None:
        return Uniform(sessions.n_arms)
    labels = sessions.arm_labels or tuple(range(sessions.n_arms))
    try:
        return Relabelled(compact.policy, labels)
    except InvalidArgument:  # none of its arms was played
        return Uniform(sessions.n_arms)


def sentence(found: Comparison | None, active: str) -> str:
    """What the comparison says."""
    if found is None:
        return f"Too few sessions with probabilities to compare with {active}."
    text = f"On {found.n_sessions:,} sessions of the log it earns {found.value:.4f}, {active} {found.other:.4f}"
    if found.interval is None:
        return f"{text}, but only {found.effective:.0f} of them count in full ({ENOUGH:.0f} needed)."
    low, high = found.interval
    return f"{text}: {found.difference:+.4f} ({low:+.4f} to {high:+.4f})."


def certified(
    fitted: Estimate, made: Plan, sessions: Sessions, rng: np.random.Generator
) -> tuple[Certificate | None, str]:
    """The certificate, and what it says in a few words."""
    try:
        found = certify(fitted, made, sessions, n_draws=_DRAWS, rng=rng)
    except LmabError as error:
        return None, f"No certificate: {error}"
    if found.value is None or found.regret is None:
        return None, f"The certificate makes no claim: {found.sentence}"
    low, high = found.value
    return found, f"Certified: in truth {low:.4f} to {high:.4f} a session, regret below {found.regret[1]:.4f}."


def earned(rows: Sequence[LogRow], version: str, horizon: int) -> float | None:
    """What whole sessions of a version earned on average; None where there are too few."""
    totals: dict[str, tuple[int, float]] = {}
    for row in rows:
        if row.policy == version and row.reward is not None:
            steps, total = totals.get(row.session, (0, 0.0))
            totals[row.session] = steps + 1, total + row.reward
    whole = [total for steps, total in totals.values() if steps >= horizon]
    return float(np.mean(whole)) if len(whole) >= ENOUGH else None


def surely_worse(found: Comparison | None, certificate: Certificate | None, earned_now: float | None) -> str:
    """Why a plan may not even be tested; empty where it may.

    Live sessions decide whether it is better. The log only keeps away what is surely worse.
    """
    if found is not None and found.interval is not None and found.interval[1] < 0:
        return "on the log it surely earns less than the version in force"
    highest = None if certificate is None or certificate.value is None else certificate.value[1]
    if highest is not None and earned_now is not None and highest < earned_now:
        return f"its certificate lies below the {earned_now:.4f} that sessions earn now"
    return ""
