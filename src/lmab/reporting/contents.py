"""Contents of a report as data, computed once and then rendered."""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np

from .._html import best_fixed
from .._shapes import Array, Float, Integer
from ..data.fingerprint import Fingerprint
from ..data.sessions import Sessions
from ..errors import InvalidArgument
from ..estimation.check import Calibration, Check
from ..estimation.fitted_components import FittedComponent
from ..estimation.result import Curve, Estimate, estimate_of
from ..estimation.traits.surface import Factors
from ..evaluation.assessment import Assessment, Verdict
from ..evaluation.baselines import Baselines, Segment, segments_of
from ..evaluation.diagnostics import calibrate
from ..evaluation.off_policy import LogEvidence
from ..evaluation.value import Evaluation, prior_behind, value_of, weigh
from ..model import belief
from ..model.bandit import LatentBandit
from ..model.type_prior import TypePrior
from ..planning.plan import plan
from ..planning.problem import Plan, policy_of
from ..policies.histories import Tree
from ..policies.policy import Policy
from ..policies.ranking import Ranking
from ..simulation import check_fits, simulate
from .tree import tree_of

_SEED = 0  # Seed of simulated sessions, which replace an exact value if there is none.
_MOST_SESSIONS = 50_000  # A larger held-out log is checked on this many of its sessions.
_FEWEST = 30  # A step is shown if at least this many sessions reach it.
_BINS, _REACH = 16, 3.2  # The density has this many bins along each factor, from -3.2 to 3.2.
_GROUPS = 5  # The tree of a traits model shows fifths of the sessions along factor 1.
_SIMULATED = 500  # Sessions simulated; the density takes at most this many sessions of a log for each bin.


@dataclass(frozen=True, eq=False)
class Worth:
    """Expected reward of a session under the model: with a fixed choice, with the policy, and with the type known."""

    fixed: float
    fixed_arms: tuple[int, ...]  # the best arm; without repeats, the best list
    policy: Evaluation
    upper: float  # no policy earns more
    known: float
    baselines: tuple[tuple[str, float], ...] = ()  # name and value of further baselines

    @property
    def captured(self) -> float:
        """Return the policy's gain over the fixed arm as a share of the possible gain; 1 if no gain is possible."""
        possible = self.upper - self.fixed
        return (self.policy.mean - self.fixed) / possible if possible > 1e-9 * abs(self.upper) else 1.0


@dataclass(frozen=True, eq=False)
class KnownBefore:
    """Weights of the types by feature value, and the gain of the policy from features."""

    shares: dict[str, dict[str, Float[Array, "M"]]]  # weights of the types by column and value
    keep: float | None  # probability that a returning person keeps the type
    worth: float | None  # gain of the policy per session from features; None: the policy uses none
    left_out: tuple[str, ...] = ()  # a sentence on each column that has more values than are shown


@dataclass(frozen=True, eq=False)
class Contents:
    """Everything that `page.render` shows."""

    title: str
    bandit: LatentBandit
    policy: Policy
    horizon: int
    worth: Worth
    tree: Tree | None  # the first steps; None for a policy that plays at random
    assessment: Assessment | None
    held_out: HeldOut | None
    curve: Curve | None  # held-out likelihood by number of types
    settings: tuple[tuple[str, str], ...]
    check: Check | None = None  # the held-out check of the fit
    people: People | None = None  # factor scores of sessions under a traits model; None: types
    known: KnownBefore | None = None  # None: the model has no features
    fixed: bool = False  # the policy is the best fixed arm or list, because the check does not support types
    repeats: bool = True  # whether a session may repeat an arm
    contradicted: tuple[str, ...] = ()  # a sentence on each assumption of the fit that its log contradicts
    components: tuple[FittedComponent, ...] = ()  # of the estimate, beyond weights and rewards
    listed: tuple[int, ...] | None = None  # the arms of every session, if the policy ignores rewards; no tree then

    @property
    def verdict(self) -> Verdict:
        """Return whether a gain was demonstrated; only then is it shown in green."""
        if self.assessment is None:
            return Verdict(None, self.check, best_fixed=best_fixed(self.repeats))
        return replace(self.assessment.verdict, check=self.check)

    @property
    def supports_types(self) -> bool:
        """Return whether held-out sessions support the types; otherwise no bound on the best policy is shown."""
        return self.check is None or self.check.agrees

    @property
    def logged(self) -> float | None:
        """Return the mean logged reward of a session: in the held-out log, or in the log of the assessment."""
        if self.held_out is not None:
            return self.held_out.logged
        return None if self.assessment is None else self.assessment.logged

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels of the arms on the page."""
        return tuple(self.bandit.label(arm) for arm in range(self.bandit.n_arms))


def gather(
    model: LatentBandit | Estimate,
    policy: Policy | Plan | None = None,
    *,
    horizon: int | None = None,
    sessions: Sessions | None = None,
    assessment: Assessment | None = None,
    time_limit: float = 20.0,
    title: str = "Session policy report",
    settings: dict[str, str] | None = None,
) -> Contents:
    """Compute the contents of a report.

    Args:
        model: the estimate, whose check and choice of types are shown, or a bandit alone.
        policy: a policy, a plan (then its bounds are used), or None: plan a policy.
        horizon: steps per session; None: the policy's, or 5.
        sessions: held-out sessions, on which the model is checked.
        assessment: a result of `lmab.assess`, which the report quotes.
        time_limit: limit in seconds on planning if a policy or bounds are missing.
        title: the title of the page.
        settings: more rows for the table at the end, such as the origin of the model.
    """
    estimate = _estimate_behind(model, policy)
    bandit = model.bandit if isinstance(model, Estimate) else model
    steps = horizon or getattr(policy, "horizon", None) or 5
    _check_policy(policy, bandit, steps)
    prior = prior_behind(policy, bandit if estimate is None or estimate.bandit != bandit else estimate)
    made = _bounded_plan(model, policy, bandit, steps, prior, time_limit)
    repeats = made.repeats if policy is None else policy.repeats
    chosen = made.policy if policy is None else policy_of(policy)
    worth = measure(
        bandit, chosen, made.upper, steps, repeats=repeats, type_prior=prior, arms=made.kept_arms,
        segments=_segments(bandit, chosen, prior, sessions),
    )  # fmt: skip
    listed, factors = _listed(chosen, steps), None if estimate is None else estimate.factors
    lines = {
        **(settings or {}),
        "policy": f"{chosen.kind}, {steps} steps" + ("" if repeats else ", no arm twice"),
        "bounds on the model": f"{made.status}: {made.message}",
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
        tree=None if listed is not None else _tree(chosen, bandit, steps, factors),
        assessment=assessment,
        held_out=None if sessions is None else look(bandit, chosen, sessions, steps, estimate),
        curve=None if estimate is None else estimate.curve,
        settings=tuple(lines.items()),
        check=_check_behind(estimate, assessment),
        people=None if factors is None else look_at(factors, bandit, chosen, steps, sessions),
        known=None if prior is None else known_before(prior, bandit, chosen, worth, steps),
        fixed=made.fixed,
        repeats=repeats,
        contradicted=() if estimate is None else tuple(estimate.contradicted.values()),
        components=() if estimate is None else tuple(estimate.components.values()),
        listed=listed,
    )


def _check_policy(policy: Policy | Plan | None, bandit: LatentBandit, horizon: int) -> None:
    """Raise if a policy does not fit the bandit and the horizon."""
    if policy is not None:
        check_fits(policy_of(policy), bandit, horizon)
    if isinstance(policy, Plan) and horizon != policy.horizon:
        raise InvalidArgument(f"horizon must be the plan's, {policy.horizon}, for its bounds to hold, got {horizon}")


def _bounded_plan(
    model: LatentBandit | Estimate, policy: Policy | Plan | None, bandit: LatentBandit, horizon: int,
    prior: TypePrior | None, time_limit: float,
) -> Plan:  # fmt: skip
    """Return the given plan if its bounds hold for these people, otherwise a new plan with such bounds."""
    if isinstance(policy, Plan) and (policy.fixed or policy.policy.type_prior == prior):
        return policy
    if policy is None:  # a plan for an estimate follows its check and its log
        return plan(model, horizon=horizon, time_limit=time_limit, type_prior=prior)
    return plan(bandit, horizon=horizon, time_limit=time_limit, repeats=policy.repeats, type_prior=prior)


def _segments(
    bandit: LatentBandit, policy: Policy, prior: TypePrior | None, sessions: Sessions | None
) -> tuple[Segment, ...]:
    """Return the weights of the types by value of the feature columns of a log that the policy does not use."""
    if sessions is None:
        return ()
    return segments_of(bandit, sessions, () if prior is None or policy.type_prior is None else prior.columns)


def _tree(policy: Policy, bandit: LatentBandit, horizon: int, factors: Factors | None) -> Tree | None:
    """Return the first steps of a policy; for a traits model, with beliefs over fifths of the sessions."""
    tree = tree_of(policy, bandit, horizon)
    return tree if factors is None or tree is None else in_groups(tree, groups_of(factors, bandit))


def _listed(policy: Policy, horizon: int) -> tuple[int, ...] | None:
    """Return the arms of every session of a policy that ignores rewards; None for other policies."""
    if not isinstance(policy, Ranking):
        return None
    history: list[tuple[int, float]] = []
    for _ in range(horizon):
        history.append((policy.act_on(history), 0.0))
    arms = tuple(arm for arm, _ in history)
    return arms[:1] if len(set(arms)) == 1 else arms


def known_before(
    prior: TypePrior, bandit: LatentBandit, policy: Policy, worth: Worth, horizon: int
) -> KnownBefore | None:
    """Return weights of types by feature value, and the gain from features; None without features."""
    columns = prior.shown()
    shares = {column.name: dict(column.rows) for column in columns}
    if not shares and prior.keep is None:
        return None
    gained = None
    if shares and policy.type_prior is not None:
        average = bandit.with_type_prior(None)  # every session starts with the mean weights
        alone = value_of(policy, average, horizon=horizon, rng=_SEED)
        gained = worth.policy.mean - alone.mean
    return KnownBefore(shares, prior.keep, gained, tuple(column.remark for column in columns if column.remark))


def _estimate_behind(model: LatentBandit | Estimate, policy: Policy | Plan | None) -> Estimate | None:
    """Return the given estimate or that of the plan; None if there is neither."""
    if isinstance(model, Estimate):
        return model
    return estimate_of(policy.source) if isinstance(policy, Plan) else None


def _check_behind(estimate: Estimate | None, assessment: Assessment | None) -> Check | None:
    """Return the held-out check of the fit: the estimate's, or otherwise that in the assessment."""
    check = None if estimate is None else estimate.check
    return check or (None if assessment is None else assessment.check)


def measure(
    bandit: LatentBandit,
    policy: Policy,
    upper: float,
    horizon: int,
    *,
    repeats: bool = True,
    type_prior: TypePrior | None = None,
    arms: tuple[int, ...] | None = None,
    segments: tuple[Segment, ...] = (),
) -> Worth:
    """Return the values of the best fixed arm (without repeats, list of arms), of the policy, and of knowing the type.

    With a type prior they are means over persons, each with the weights of their features. If `arms` gives the arms of
    the plan, all values except the policy's are for sessions with these arms only.
    """
    some = bandit if arms is None else bandit.only_arms(arms)
    beside = Baselines.of(type_prior, some.n_arms, horizon, repeats=repeats, segments=segments)
    best = some.best_fixed_arms(horizon, repeats)
    return Worth(
        fixed=some.best_fixed(horizon, repeats),
        fixed_arms=best if arms is None else tuple(arms[arm] for arm in best),
        policy=value_of(policy, bandit, horizon=horizon, type_prior=type_prior, rng=_SEED),
        upper=upper,
        known=some.known_type(horizon, repeats),
        baselines=tuple(beside.table(some, type_prior).items()),
    )


def _how(value: Evaluation) -> str:
    if value.exact:
        return f"{value.mean:.6g}, exact over {value.n_nodes} histories"
    return f"{value.mean:.6g} ± {value.stderr:.2g} from {value.n_sessions} simulated sessions, seed {_SEED}"


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Predictions of the model on held-out sessions, and the value of the policy estimated from them."""

    n_sessions: int
    calibration: Calibration
    gain: Float[Array, "T"]  # nats by which knowing the session so far improves the prediction of each step
    gain_stderr: Float[Array, "T"]
    total: tuple[float, float]  # the same over whole sessions, with its standard error
    evidence: LogEvidence | None  # None if no propensities were logged
    logged: float  # mean logged reward of a session of the policy's length
    fitted: bool = False  # whether these are the sessions that the model was fitted to

    def verdict(self, *, sure: bool) -> str:
        """Return the verdict in one sentence; `sure` if a gain was demonstrated."""
        if self.fitted:
            return (
                "The model was fitted to these sessions, so its predictions look better here than on new sessions. "
                "Split the log before the fit (`lmab split`) and use the second part here."
            )
        mean, stderr = self.total
        size = f"log-likelihood per session {mean:+.3f} ± {stderr:.3f}"
        if mean > 2 * stderr:
            start = "These sessions confirm the types: the" if sure else "The"
            return f"{start} past of a session improves the prediction of its next reward ({size})."
        return (
            f"These sessions do not confirm the types: the past of a session does not improve the prediction of its "
            f"next reward ({size})."
        )


def look(
    bandit: LatentBandit, policy: Policy, sessions: Sessions, horizon: int, estimate: Estimate | None = None
) -> HeldOut:
    """Check the model and the policy on `sessions`; the fingerprint in the estimate detects the log of the fit."""
    fitted = estimate is not None and estimate.log == Fingerprint.of(sessions)
    if sessions.n_arms > bandit.n_arms:
        raise InvalidArgument(f"logs must have the model's {bandit.n_arms} arms, got {sessions.n_arms}")
    rng = np.random.default_rng(_SEED)
    log = sessions.with_arms(bandit.n_arms) if sessions.n_arms < bandit.n_arms else sessions
    if len(log) > _MOST_SESSIONS:
        log = log[np.sort(rng.permutation(len(log))[:_MOST_SESSIONS])]
    gains = memory_gains(bandit, log)
    counts = np.isfinite(gains).sum(axis=0)
    shown = gains[:, counts >= min(_FEWEST, len(log))]
    sums = np.nansum(gains, axis=1)
    evidence = None
    if log.propensities is not None and log.horizon >= horizon:
        evidence = weigh(policy, log, horizon=horizon, model=bandit, rng=rng)
    return HeldOut(
        n_sessions=len(log),
        calibration=calibrate(bandit, log),
        gain=np.nanmean(shown, axis=0),
        gain_stderr=np.nanstd(shown, axis=0) / np.sqrt(counts[: shown.shape[1]]),
        total=(float(sums.mean()), float(sums.std() / np.sqrt(len(sums)))),
        evidence=evidence,
        logged=log.mean_session(horizon),
        fitted=fitted,
    )


def memory_gains(bandit: LatentBandit, sessions: Sessions) -> Float[Array, "N H"]:
    """Return log p(reward | arm, session so far) - log p(reward | arm) of every step; NaN after a session's end.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[1.0, 0.0], [0.0, 1.0]])
        >>> memory_gains(bandit, lmab.Sessions.from_arrays([[0, 1]], [[1.0, 0.0]])).round(3).tolist()
        [[0.0, 0.693]]
    """
    arms, rewards = sessions.to_arrays()
    gains = np.full(arms.shape, np.nan)
    beliefs = belief.prior(bandit, len(arms))
    for step in range(arms.shape[1]):
        live = np.flatnonzero(arms[:, step] >= 0)
        now_arms, paid = arms[live, step], rewards[live, step]
        likelihood = bandit.at(step).rewards.evidence(now_arms, paid)  # up to a factor, the same for both predictions
        now = np.einsum("nm,nm->n", belief.normalise(beliefs[live]), likelihood)
        before = likelihood @ bandit.weights
        gains[live, step] = np.log(np.maximum(now, 1e-12) / np.maximum(before, 1e-12))
        beliefs[live] = belief.update(bandit, beliefs[live], now_arms, paid, step)
    return gains


@dataclass(frozen=True, eq=False)
class People:
    """Factor scores of sessions on factors with positive variance."""

    factors: Factors
    density: Float[Array, "B B"]  # share of the sessions by bin of factor 1 (rows) and 2
    edges: Float[Array, "B1"]
    n_sessions: int  # Sessions of the log behind the density; 0: the model's own.
    spread: Float[Array, "H1 d"]  # posterior standard deviation on each live factor, before and after every step


def look_at(factors: Factors, bandit: LatentBandit, policy: Policy, horizon: int, sessions: Sessions | None) -> People:
    """Return factor scores of a log (or of simulated sessions), and their posterior deviation by step."""
    edges = np.linspace(-_REACH, _REACH, _BINS + 1)
    places, weights = factors.points, bandit.weights
    if sessions is not None:
        some = sessions[slice(0, _SIMULATED * _BINS)]
        places = belief.posterior(bandit, some) @ factors.points
        weights = np.full(len(places), 1 / len(places))
    first, second = (_column(places, j).clip(edges[0], edges[-1]) for j in range(2))
    density, _, _ = np.histogram2d(first, second, bins=[edges, edges], weights=weights)
    n_sessions = 0 if sessions is None else len(places)
    return People(factors, density, edges, n_sessions, _spread(factors, bandit, policy, horizon))


def _column(places: Float[Array, "n d"], j: int) -> Float[Array, "n"]:
    return places[:, j] if places.shape[1] > j else np.zeros(len(places))


def _spread(factors: Factors, bandit: LatentBandit, policy: Policy, horizon: int) -> Float[Array, "H1 d"]:
    played = simulate(bandit, policy, n_sessions=_SIMULATED, horizon=horizon, rng=_SEED)
    arms, rewards = (each.reshape(_SIMULATED, horizon) for each in (played.arms, played.rewards))
    places, beliefs = factors.points[:, factors.alive], belief.prior(bandit, _SIMULATED)
    found = []
    for step in range(horizon + 1):
        shares = belief.normalise(beliefs)
        variance = shares @ places**2 - (shares @ places) ** 2
        found.append(np.sqrt(variance.mean(axis=0)))
        if step < horizon:
            beliefs = belief.update(bandit, beliefs, arms[:, step], rewards[:, step], step)
    return np.array(found)


def in_groups(tree: Tree, groups: Integer[Array, "K"]) -> Tree:
    """Return the tree with beliefs over groups of types."""
    shares = np.bincount(groups, tree.belief, minlength=_GROUPS)
    branches = tuple(replace(branch, tree=in_groups(branch.tree, groups)) for branch in tree.branches)
    return replace(tree, belief=shares, branches=branches)


def groups_of(factors: Factors, bandit: LatentBandit) -> Integer[Array, "K"]:
    """Return fifths of the sessions along the first factor, from its low end."""
    order = np.argsort(_column(factors.points, 0), kind="stable")
    below = np.cumsum(bandit.weights[order]) - bandit.weights[order] / 2
    groups = np.empty(len(order), np.int64)
    groups[order] = np.minimum((below * _GROUPS).astype(np.int64), _GROUPS - 1)
    return groups
