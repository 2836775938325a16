"""The model of a night: fitted to the log, from the model of the last night where that one still applies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .._shapes import Array, Float
from ..data import Sessions
from ..errors import LmabError
from ..estimation import EM, Estimate, fit
from ..loading import load
from ..model import LatentBandit
from .export import Log
from .messages import Label
from .stores import Store
from .wishes import Wishes

LAST = "last.model.lmab"  # the model of the last night, whether its plan passed or not
_SPREAD = 0.2  # part of the floor that all arms share; the rest follows what the log lacks
_RESTARTS = 4  # starts of a warm fit: the last model, and three others that win where it is bad


async def fit_log(
    store: Store, folder: Path, log: Log, wishes: Wishes, rng: np.random.Generator, at: float
) -> Estimate:
    """The model; the number of types is chosen anew when the log has doubled since it was last chosen."""
    known = json.loads(await store.setting("fitted", None) or "{}")
    number = wishes.types
    if number == "auto" and "types" in known and len(log.sessions) < 2 * known["sessions"]:
        number = int(known["types"])
    fitted = fit_from(last_model(folder), log.sessions, number, wishes, rng)
    if number == "auto":
        known |= {"types": fitted.n_types, "sessions": len(log.sessions)}
    await store.set_setting("fitted", json.dumps(known | {"at": at}))
    folder.mkdir(parents=True, exist_ok=True)
    fitted.save(folder / LAST)
    return fitted


def fit_from(
    last: Estimate | None, sessions: Sessions, number: int | str, wishes: Wishes, rng: np.random.Generator
) -> Estimate:
    """A fit that starts from the last model, too; few other starts are enough then."""
    start = None if last is None else start_for(last, sessions)
    if start is not None and number not in ("auto", start.n_types):
        start = None
    method = EM(prior=wishes.prior)
    if start is not None and number != "auto":
        method = EM(prior=wishes.prior, restarts=_RESTARTS)
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


def shape(sessions: Sessions, wishes: Wishes) -> tuple[int, bool]:
    """Steps of a session, and whether it may play an arm twice."""
    if wishes.repeats is not None:
        return wishes.horizon or sessions.horizon, wishes.repeats
    keys = np.repeat(np.arange(len(sessions)), sessions.lengths) * sessions.n_arms + sessions.arms
    return wishes.horizon or sessions.horizon, len(np.unique(keys)) < len(keys)


def floors(sessions: Sessions, total: float) -> Float[Array, "A"]:
    """The floor of each arm: a small equal part, and more for the arms that the log hardly knows.

    Examples:
        >>> import lmab
        >>> log = lmab.Sessions.from_arrays([[0, 0, 0, 1]] * 30, [[1.0, 0.0, 1.0, 1.0]] * 30)
        >>> floors(log, 0.1).round(3)
        array([0.034, 0.066])
    """
    counts = np.bincount(sessions.arms, minlength=sessions.n_arms)
    wanted = 1 / (counts + counts.mean() / 10)
    return total * (_SPREAD / sessions.n_arms + (1 - _SPREAD) * wanted / wanted.sum())
