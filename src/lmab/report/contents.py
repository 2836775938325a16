"""What a report says, as data: it is measured once and then rendered."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np

from ..data import Sessions
from ..errors import InvalidArgument
from ..estimation import Check, Curve, Factors
from ..evaluation import Certificate, Evaluation, Verdict, value_of
from ..model import LatentBandit
from ..planning import Plan, plan, policy_of
from ..policies import Policy
from ..policies.histories import Tree
from ..simulation import check_fits
from .held_out import HeldOut, look
from .people import People, groups_of, in_groups, look_at
from .tree import tree_of

_SEED = 0  # of the sessions that are simulated where no exact value exists


@dataclass(frozen=True, eq=False)
class Worth:
    """Expected reward of a session under the model: with a fixed choice, with the policy, and with the type known."""

    fixed: float
    fixed_arms: tuple[int, ...]  # the best arm; where no arm may be played twice, the best sequence
    policy: Evaluation
    upper: float  # no policy earns more
    known: float

    @property
    def captured(self) -> float:
        """The policy's gain over the fixed arm, as a part of the possible gain; 1 where nothing can be gained."""
        possible = self.upper - self.fixed
        return (self.policy.mean - self.fixed) / possible if possible > 1e-9 * abs(self.upper) else 1.0


@dataclass(frozen=True, eq=False)
class Contents:
    """Everything that `page.render` shows."""

    title: str
    bandit: LatentBandit
    policy: Policy
    horizon: int
    worth: Worth
    tree: Tree | None  # the first steps; None for a policy that plays at random
    certificate: Certificate | None
    held_out: HeldOut | None
    curve: Curve | None  # held-out likelihood by number of types
    settings: tuple[tuple[str, str], ...]
    check: Check | None = None  # of the fit, on held-out sessions
    people: People | None = None  # where sessions lie on the factors of a traits model; None: types

    @property
    def verdict(self) -> Verdict:
        """Whether the gain may be counted on; only then is it shown in green."""
        return Verdict(None if self.certificate is None else self.certificate.gain, self.check)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the arms on the page."""
        return tuple(self.bandit.label(arm) for arm in range(self.bandit.n_arms))


def gather(
    bandit: LatentBandit,
    policy: Policy | Plan | None = None,
    *,
    horizon: int | None = None,
    sessions: Sessions | None = None,
    certificate: Certificate | None = None,
    curve: Curve | None = None,
    check: Check | None = None,
    factors: Factors | None = None,
    time_limit: float = 20.0,
    title: str = "Session policy report",
    settings: dict[str, str] | None = None,
) -> Contents:
    """Measure what a report shows.

    Args:
        bandit: the model.
        policy: a policy, a plan (then its bounds are used), or None: then a policy is planned.
        horizon: steps per session; None: the policy's, or 5.
        sessions: sessions that the model was not fitted to; the model is checked on them.
        certificate: from `lmab.certify`, to be quoted.
        curve: the curve of an estimate whose number of types was chosen, to be drawn.
        check: the held-out check of the fit; None: that of the certificate, or of the plan's estimate.
        factors: of a traits model, to be drawn instead of types; None: those of the plan's estimate.
        time_limit: seconds that planning may take where a policy or bounds are missing.
        title: the title of the page.
        settings: more lines for the table at the end, such as where the model came from.
    """
    steps = horizon or getattr(policy, "horizon", None) or 5
    if policy is not None:
        check_fits(policy_of(policy), bandit, steps)
    if isinstance(policy, Plan) and steps != policy.horizon:
        raise InvalidArgument(f"horizon must be the plan's, {policy.horizon}, for its bounds to hold, got {steps}")
    repeats = policy is None or policy.repeats
    made = policy if isinstance(policy, Plan) else plan(bandit, horizon=steps, time_limit=time_limit, repeats=repeats)
    chosen = made.policy if policy is None else policy_of(policy)
    worth = measure(bandit, chosen, made.upper, steps, repeats=repeats)
    check = check or (None if certificate is None else certificate.check) or _check_behind(policy)
    factors = factors or _factors_behind(policy)
    tree = tree_of(chosen, bandit, steps)
    if factors is not None and tree is not None:
        tree = in_groups(tree, groups_of(factors, bandit))
    lines = {
        **(settings or {}),
        "policy": f"{chosen.kind}, {steps} steps" + ("" if repeats else ", no arm twice"),
        "bounds": f"{made.status}: {made.message}",
        "value of the policy": _how(worth.policy),
        "made": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, lmab {version('lmab')}, NumPy {np.__version__}, "
        f"Python {platform.python_version()}",
    }
    return Contents(
        title=title,
        bandit=bandit,
        policy=chosen,
        horizon=steps,
        worth=worth,
        tree=tree,
        certificate=certificate,
        held_out=None if sessions is None else look(bandit, chosen, sessions, steps),
        curve=curve,
        settings=tuple(lines.items()),
        check=check,
        people=None if factors is None else look_at(factors, bandit, chosen, steps, sessions),
    )


def _factors_behind(policy: Policy | Plan | None) -> Factors | None:
    return policy.estimate.factors if isinstance(policy, Plan) and policy.estimate is not None else None


def _check_behind(policy: Policy | Plan | None) -> Check | None:
    return policy.estimate.check if isinstance(policy, Plan) and policy.estimate is not None else None


def measure(bandit: LatentBandit, policy: Policy, upper: float, horizon: int, *, repeats: bool = True) -> Worth:
    """The values of the best fixed arm (without repeats, list of arms), of the policy, and of knowing the type."""
    return Worth(
        fixed=bandit.best_fixed(horizon, repeats),
        fixed_arms=bandit.best_fixed_arms(horizon, repeats),
        policy=value_of(policy, bandit, horizon=horizon, rng=_SEED),
        upper=upper,
        known=bandit.known_type(horizon, repeats),
    )


def _how(value: Evaluation) -> str:
    if value.exact:
        return f"{value.mean:.6g}, exact over {value.n_nodes} histories"
    return f"{value.mean:.6g} ± {value.stderr:.2g} from {value.n_sessions} simulated sessions, seed {_SEED}"
