"""Versions of the policy that sessions are pinned to, and the arms of the service as each version knows them."""

from __future__ import annotations

import hashlib
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from .._kernel import compiles
from .._shapes import Array, Bool, Float
from ..errors import LmabError
from ..estimation.result import estimate_of
from ..loading import load
from ..model.bandit import LatentBandit
from ..model.type_prior import TypePrior
from ..planning.plan import plan
from ..planning.point_based import PointBased
from ..planning.problem import Plan, policy_of
from ..policies.belief_policies import Uniform
from ..policies.policy import Compact, Policy, underlying_bandit
from ..policies.ranking import Ranking
from ..policies.wrappers import Exploring
from .messages import Label, Problem
from .stores import ArmRow, Store

UNIFORM = "uniform"  # the version of a service that starts without a policy
HOLDOUT = "holdout"  # the version of the sessions that always get the popularity ranking
_WARMED = 100  # steps of a session that are played when a version is loaded
_MOST_EXPLORED = 0.9  # Most decisions that explore, as a share, where floors by arm meet new arms.


@dataclass(frozen=True, eq=False)
class Version:
    """A policy that sessions can be pinned to; without a policy it plays every allowed arm equally often."""

    name: str
    compact: Compact | None
    horizon: int
    repeats: bool
    labels: tuple[Label, ...]  # Labels of the policy's arms.
    floor: float | Float[Array, "A"] | None  # None: the floors of the register
    values: frozenset[float] | None  # rewards that there can be; None: any number
    left_out: tuple[Label, ...] = ()  # rare arms that were not fitted: open, explored, and telling nothing

    @property
    def type_prior(self) -> TypePrior | None:
        """Return how the types depend on features and earlier sessions; None: they do not."""
        return None if self.compact is None else self.compact.policy.type_prior

    @property
    def asks(self) -> bool:
        """Return whether the policy uses features of a session."""
        return self.type_prior is not None and bool(self.type_prior.columns)

    @property
    def all_labels(self) -> tuple[Label, ...]:
        """Labels that the policy's file names."""
        return (*self.labels, *self.left_out)

    def accepts(self, reward: float) -> bool:
        return self.values is None or reward in self.values

    def warm(self) -> Version:
        """Run the code of the first decisions, so that kernels are compiled before a client waits."""
        compact = self.compact
        if compact is not None:
            state, value = compact.start(), min(self.values) if self.values else 0.0
            for _ in range(min(self.horizon, _WARMED)):
                arm = compact.act(state)
                compact.act(state, np.ones(len(self.labels), bool))
                state = compact.observe(state, arm, value)
            compact.start(history=[(0, value)])
            compact.tell(compact.observe(compact.start(), 0, None), 0, value, step=0)
        return self


@dataclass(frozen=True)
class Defaults:
    """Properties of a version that neither its policy nor the register sets: horizon, floor, values, repeats."""

    horizon: int | None = None
    floor: float = 0.05  # share of the decisions that explore
    values: tuple[float, ...] | None = (0.0, 1.0)
    repeats: bool = True


def name_of(body: bytes) -> str:
    """Return the name of a version, from its file."""
    return hashlib.sha256(body).hexdigest()[:12]


def uniform_version(defaults: Defaults) -> Version:
    """Return the version that explores."""
    if defaults.horizon is None:
        raise Problem("no-policy", "the service has no policy and no horizon: give one of them when it is started")
    values = None if defaults.values is None else frozenset(defaults.values)
    return Version(UNIFORM, None, defaults.horizon, defaults.repeats, (), 1.0, values)


def holdout_version(popularity: Sequence[Label], active: Version) -> Version:
    """Return the version that plays the popularity ranking without exploration, beside the version in force."""
    if not popularity:
        return replace(active, name=HOLDOUT, compact=None, labels=(), floor=1.0, left_out=())
    ranking = Ranking(range(len(popularity)), horizon=active.horizon, repeats=active.repeats).compact()
    return replace(active, name=HOLDOUT, compact=ranking, labels=tuple(popularity), floor=0.0, left_out=())


def read_version(body: bytes, defaults: Defaults) -> Version:
    """Return the version in a file that `lmab plan`, `lmab refit` or `policy.save` wrote."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "policy.lmab"
            path.write_bytes(body)
            found = load(path)
    except LmabError as error:
        raise Problem("bad-policy", f"the policy does not load: {str(error).split(': ', 1)[-1]}") from None
    if not isinstance(found, Policy | Plan):
        raise Problem("bad-policy", f"the file must hold a policy, got a {type(found).__name__}")
    version = _version(name_of(body), policy_of(found), defaults)
    estimate = estimate_of(found.source) if isinstance(found, Plan) else None
    return version if estimate is None else replace(version, left_out=estimate.left_out)


async def stored_version(store: Store, name: str, defaults: Defaults) -> Version:
    """Return a version of the store; the version that explores if the store has no such file."""
    body = None if name == UNIFORM else await store.version(name)
    return uniform_version(defaults) if body is None else read_version(body, defaults)


def warm_up() -> None:
    """Load and play a small plan, so that the first version that comes later finds its modules and kernels loaded."""
    if not compiles():
        return
    bandit = LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "policy.lmab"
        plan(bandit, horizon=2, method=PointBased()).policy.save(path)
        read_version(path.read_bytes(), Defaults()).warm()


def _version(name: str, policy: Policy, defaults: Defaults) -> Version:
    inner, floor = (policy.policy, policy.floor) if isinstance(policy, Exploring) else (policy, None)
    horizon = inner.horizon or defaults.horizon
    if horizon is None:
        raise Problem("bad-policy", f"the policy must know its horizon, got {inner!r}: give the service a horizon")
    if inner.n_arms is None:
        raise Problem("bad-policy", f"the policy must know how many arms there are, got {inner!r}")
    labels = inner.arm_labels or tuple(range(inner.n_arms))
    if isinstance(inner, Uniform):
        return Version(name, None, horizon, defaults.repeats, labels, 1.0, _values(inner, defaults))
    if not inner.deterministic:
        raise Problem("bad-policy", f"the policy must be deterministic, or Exploring around such a one, got {inner!r}")
    return Version(name, inner.compact(), horizon, inner.repeats, labels, floor, _values(inner, defaults))


def _values(policy: Policy, defaults: Defaults) -> frozenset[float] | None:
    bandit: Any = underlying_bandit(policy)
    if bandit is None:
        return None if defaults.values is None else frozenset(defaults.values)
    continuous = not bandit.rewards.discrete or bandit.rewards.edges is not None
    return None if continuous else frozenset(bandit.rewards.values.tolist())


class ArmTable:
    """The arms of the service, as one version knows them: which are open, which it can play, and their floors."""

    def __init__(
        self,
        version: Version,
        arms: Sequence[ArmRow],
        default: float = 1.0,  # share that explores by default
        floors: Mapping[Label, float] | None = None,  # Floors of the register, which both versions share.
    ) -> None:
        numbers = {label: number for number, (label, _) in enumerate(arms)}
        self.version = version
        self.open = [number for number, arm in enumerate(arms) if arm.is_open]
        self.place = {numbers[label]: arm for arm, label in enumerate(version.labels) if label in numbers}
        self.number = {arm: number for number, arm in self.place.items()}
        self.mask = self.mask_of(set(self.open))
        self.everything = self.mask is not None and bool(self.mask.all())  # no arm of the version is withdrawn
        self.anything = self.mask is not None and bool(self.mask.any())
        self.floor = version.floor if isinstance(version.floor, float) else default  # if all arms share one
        self.floors = self._floors(arms, floors)

    def mask_of(self, numbers: set[int]) -> Bool[Array, "A"] | None:
        """Return which of the version's arms are among the service's `numbers`."""
        if self.version.compact is None:
            return None
        return np.array([self.number.get(arm, -1) in numbers for arm in range(len(self.version.labels))])

    def _floors(self, arms: Sequence[ArmRow], floors: Mapping[Label, float] | None) -> list[float] | None:
        """Return the floor of every arm of the service; None if all share one. New arms get the largest floor."""
        own = self.version.floor
        if isinstance(own, np.ndarray):
            known = {number: float(own[place]) for number, place in self.place.items()}
        elif own is None and floors:
            known = {number: floors[label] for number, (label, _) in enumerate(arms) if label in floors}
        else:
            return None
        most = max(known.values(), default=self.floor)
        return [known.get(number, most) for number in range(len(arms))]

    def choose(self, best: int | None, fresh: Sequence[int], first: float, second: float) -> tuple[int, float, bool]:
        """Return the arm to play, its probability, and whether it was explored, from two uniform draws.

        `best` is the policy's arm, None if it can play none; `fresh` are the arms that may be explored.
        """
        if self.floors is None or best is None:
            total = 1.0 if best is None else self.floor
            each = total / len(fresh)
            if first < total:
                arm = fresh[min(int(second * len(fresh)), len(fresh) - 1)]
                return arm, each + (1 - total) * (arm == best), True
            assert best is not None
            return best, each * (best in fresh) + 1 - total, False
        floors = [self.floors[arm] for arm in fresh]
        total = sum(floors)
        scale = min(1.0, _MOST_EXPLORED / total) if total > 0 else 0.0
        total *= scale
        chosen, explored = best, first < total
        if explored:
            chosen = _pick(fresh, floors, second)
        own = floors[fresh.index(chosen)] * scale if chosen in fresh else 0.0
        return chosen, own + (1 - total) * (chosen == best), explored


def _pick(arms: Sequence[int], floors: Sequence[float], draw: float) -> int:
    """Return an arm with a probability in proportion to its floor; arms without a floor are never returned."""
    sums = list(accumulate(floors))
    return arms[min(bisect_right(sums, draw * sums[-1]), bisect_left(sums, sums[-1]))]
