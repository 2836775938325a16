"""evaluate: the value of a policy, on a bandit exactly or by simulation, from a log by importance weights."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from .._shapes import Array, Float, Integer
from ..checks import Rng, check_count, check_rng
from ..data.fingerprint import Fingerprint
from ..data.sessions import Sessions
from ..errors import InvalidArgument, LmabWarning, TooLarge
from ..estimation.result import Estimate, estimate_of
from ..model.bandit import LatentBandit, bandit_of
from ..model.type_prior import TypePrior, check_type_prior
from ..parallel import with_one_blas_thread
from ..planning.problem import Plan, policy_of
from ..policies.histories import InitialStates, enumerate_histories, enumerate_random_histories, initial_states
from ..policies.policy import Policy, underlying_bandit
from ..simulation import check_fits, draw_each, draw_types, expected_rewards, interact
from . import off_policy

SESSIONS = 100_000  # simulated where no exact value exists and the caller gives no number
NODE_LIMIT = 2_000_000  # histories held at once by an exact evaluation
_REMEDY = "give n_sessions and rng to simulate instead"
_CONTINUOUS = "rewards take more values than a walk over histories can follow"
_CHUNK = 8192


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Expected reward of a session under a policy."""

    mean: float  # sum over the steps
    stderr: float  # 0.0 when exact; NaN where a log holds too few sessions that agree with the policy
    per_step: Float[Array, "H"]  # expected reward of each step
    n_sessions: int | None = None  # simulated or logged sessions; None when exact
    n_nodes: int | None = None  # histories walked; None unless exact
    interval: tuple[float, float] | None = None  # Interval of the mean; None unless a log holds enough to tell.
    effective_sizes: Float[Array, "H"] | None = None  # effective sample at each step; None unless from a log
    notes: tuple[str, ...] = ()  # warnings to read before the value is used
    logged: float | None = None  # mean reward of a session as it was logged; None unless from a log

    @property
    def exact(self) -> bool:
        return self.n_sessions is None

    def __repr__(self) -> str:
        how = "exact" if self.exact else f"{self.n_sessions} sessions"
        error = ", error unknown," if np.isnan(self.stderr) else f" ± {self.stderr:.2g}"
        return f"Evaluation({self.mean:.6g}{error} over {len(self.per_step)} steps, {how})"


@with_one_blas_thread
def evaluate(
    policy: Policy | Plan,
    source: LatentBandit | Estimate | Sessions,
    *,
    horizon: int,
    n_sessions: int | None = None,
    method: str | None = None,
    model: LatentBandit | None = None,
    fit_propensities: bool = False,
    confidence: float = 0.95,
    n_bootstrap: int = 1000,
    type_prior: TypePrior | None = None,
    features: Mapping[str, Any] | None = None,
    rng: Rng | None = None,
) -> Evaluation:
    """Expected total reward of `policy` over `horizon` steps: the paper's V(pi), on a bandit or from a log.

    On a bandit the value is exact if rewards take finitely many values: all histories that can happen are enumerated,
    with the probabilities of the arms if the policy plays at random. Histories with equal counts are one if the policy
    ignores their order. If `n_sessions` is given, sessions are simulated; each step then counts the expected reward of
    the arm in the session's hidden type, which has the same mean as the reward and less noise.

    From a log (off-policy) each session is weighted by the probability of its arms under the policy, divided by their
    logged propensities. Where too few sessions agree with the policy (an effective sample below 30), no interval is
    given, and `notes` and a warning say what the log would need.

    A policy with a type prior starts every session from what is known: on an estimate with such a prior, or with
    `type_prior`, the value is the mean over people; of a log, the features and the earlier sessions of a person count.

    Args:
        policy: what to evaluate: a policy, or a plan, whose policy is evaluated.
        source: a bandit, which need not be the model that the policy was made from; an estimate, whose bandit is used;
            or a log with propensities.
        horizon: steps per session.
        n_sessions: sessions to simulate on a bandit; None asks for the exact value.
        method: for a log, "per-decision" (unbiased), "self-normalised" (less noise), or "doubly-robust" (with the
            help of `model`); None: the last of these that the log allows.
        model: for a log, a bandit fitted to other sessions.
        fit_propensities: for a log, assume that the logging policy chose by the number of the step alone, and fit this.
        confidence: for a log, the confidence of the interval.
        n_bootstrap: for a log, the number of resamples from which the interval is made.
        type_prior: for a bandit, how types depend on what is known before a session; None: that of the estimate.
        features: with a type prior, those of the people, n values by column; None: those of the prior's own log.
        rng: the generator, for simulation and for the bootstrap (a log without it gets a normal interval).

    Examples:
        >>> import numpy as np, lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.7, 0.4], [0.4, 0.7]])
        >>> lmab.evaluate(lmab.Greedy(bandit), bandit, horizon=5)
        Evaluation(2.98035 ± 0 over 5 steps, exact)
        >>> rng = np.random.default_rng(0)
        >>> lmab.evaluate(lmab.Uniform(2), bandit, horizon=5)  # a policy that plays at random
        Evaluation(2.75 ± 0 over 5 steps, exact)
        >>> log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=20_000, horizon=5, rng=rng)
        >>> value = lmab.evaluate(lmab.Greedy(bandit), log, horizon=5, model=bandit, rng=rng)
        >>> bool(value.interval[0] < 2.98035 < value.interval[1])
        True
    """
    if isinstance(policy, LatentBandit | Estimate | Sessions):
        raise InvalidArgument(
            f"policy must come before what it is evaluated on, evaluate(policy, bandit, horizon=...), "
            f"got a {type(policy).__name__}"
        )
    if isinstance(source, Estimate):
        source = source.bandit
    if isinstance(source, Sessions):
        if type_prior is not None or features is not None:
            raise InvalidArgument("type_prior and features are for a bandit: a log has features of its own")
        if n_sessions is not None:
            raise InvalidArgument(f"n_sessions must be None for a log, got {n_sessions!r}")
        evidence = weigh(
            policy, source, horizon=horizon, model=model, fit_propensities=fit_propensities,
            confidence=confidence, n_bootstrap=n_bootstrap, rng=rng,
        )  # fmt: skip
        return _from_log(evidence, method or evidence.default)
    policy = policy_of(policy)
    if not isinstance(source, LatentBandit):
        raise InvalidArgument(
            f"source must be a LatentBandit or Sessions (an estimate has its .bandit), got a {type(source).__name__}"
        )
    if method is not None or model is not None or fit_propensities:
        raise InvalidArgument("method, model and fit_propensities are for a log, got a bandit")
    return _on_bandit(policy, source, horizon, n_sessions, People(type_prior, features).fitting(source), rng)


class People(NamedTuple):
    """Who comes: how types depend on features, and the features; without a type prior all have the same weights."""

    type_prior: TypePrior | None = None
    features: Mapping[str, Any] | None = None

    def fitting(self, bandit: LatentBandit) -> People:
        """Raise where these are no people of the bandit."""
        prior = bandit.type_prior if self.type_prior is None else check_type_prior(self.type_prior, bandit.n_types)
        if prior is None and self.features is not None:
            raise InvalidArgument("features must be given with a type_prior, or an estimate that has one")
        return self._replace(type_prior=prior)

    def roots(self, policy: Policy, bandit: LatentBandit) -> InitialStates:
        """Where they start under a policy."""
        return initial_states(policy, bandit, self.type_prior, self.features)

    def draw(self, bandit: LatentBandit, n: int, rng: np.random.Generator) -> tuple[Integer[Array, "n"], Any]:
        """The types of n sessions, and their features."""
        if self.type_prior is None:
            return draw_types(bandit, n, rng), None
        people = self.type_prior.resolve_features(self.features)
        known = None if people is None else people.draw(n, rng)
        weights = self.type_prior.weights(known)
        return draw_each(np.broadcast_to(weights, (n, bandit.n_types)), rng), known


NOBODY_KNOWN = People()


def prior_behind(policy: Policy | Plan | None, model: LatentBandit | Estimate) -> TypePrior | None:
    """Where the people of a model start: the type prior of an estimate, else that of a policy made from this bandit.

    The types of another bandit are other types, of which the policy's prior says nothing.
    """
    bandit = bandit_of(model)
    if bandit.type_prior is not None or policy is None:
        return bandit.type_prior
    policy = policy_of(policy)
    own = underlying_bandit(policy)
    return policy.type_prior if own is not None and own.with_type_prior(None) == bandit else None


def weigh(
    policy: Policy | Plan,
    sessions: Sessions,
    *,
    horizon: int,
    model: LatentBandit | None = None,
    fit_propensities: bool = False,
    confidence: float = 0.95,
    n_bootstrap: int = 1000,
    rng: Rng | None = None,
) -> off_policy.LogEvidence:
    """Every estimate of the value of `policy` that a log allows, with effective samples and warnings."""
    notes = _seen_before(policy, sessions)
    policy = policy_of(policy)
    notes += _not_known(policy, sessions)
    if fit_propensities:
        sessions, more = off_policy.fit_propensities(sessions)
        notes += more
    evidence = off_policy.weigh(
        policy,
        sessions,
        horizon=horizon,
        model=model,
        outlook=None if model is None else outlook(policy, model, horizon, rng),
        confidence=confidence,
        n_bootstrap=n_bootstrap,
        rng=rng,
    )
    return replace(evidence, notes=evidence.notes + notes)


def _seen_before(policy: Policy | Plan, sessions: Sessions) -> tuple[str, ...]:
    """That the plan was made from this very log, as far as fingerprints tell."""
    estimate = estimate_of(policy.source) if isinstance(policy, Plan) else None
    if estimate is None or Fingerprint.of(sessions) != estimate.log:
        return ()
    return (
        "these are the sessions that the model was fitted to, on which every policy looks better than it is: evaluate "
        "on other sessions, or assess the plan, which allows for this",
    )


def _not_known(policy: Policy, sessions: Sessions) -> tuple[str, ...]:
    """That the log lacks columns from which the policy starts its sessions."""
    asked = () if policy.type_prior is None else policy.type_prior.columns
    lacking = [name for name in asked if sessions.features is None or name not in sessions.features]
    if not lacking:
        return ()
    return (
        f"the policy starts sessions from {', '.join(asked)}, and the log was read without {', '.join(lacking)}, as if "
        "nobody had told: read the log with these features",
    )


def _from_log(evidence: off_policy.LogEvidence, method: str) -> Evaluation:
    value = evidence.by(method)
    for note in evidence.notes:
        warnings.warn(note, LmabWarning, stacklevel=4)  # the caller of `evaluate`, behind its decorator
    return Evaluation(
        value.mean,
        value.stderr,
        value.per_step,
        n_sessions=int(evidence.n_reached[0]),
        interval=value.interval,
        effective_sizes=evidence.effective_sizes,
        notes=evidence.notes,
        logged=evidence.logged,
    )


def value_of(
    policy: Policy | Plan,
    bandit: LatentBandit,
    *,
    horizon: int,
    n_sessions: int = SESSIONS,
    type_prior: TypePrior | None = None,
    features: Mapping[str, Any] | None = None,
    rng: Rng,
) -> Evaluation:
    """The exact value of a policy on a bandit where there is one, else that of `n_sessions` simulated sessions.

    No exact value exists where the policy plays at random, where it acts on continuous rewards, or where it can meet
    too many histories.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.7, 0.4], [0.4, 0.7]])
        >>> value_of(lmab.Greedy(bandit), bandit, horizon=5, rng=0).exact
        True
        >>> value_of(lmab.Thompson(bandit), bandit, horizon=5, rng=0).n_sessions
        100000
    """
    bandit = bandit_of(bandit)
    people = People(type_prior, features).fitting(bandit)
    found = exact_if_possible(policy_of(policy), bandit, horizon, people)
    if found is not None:
        return _sum(*found)
    return evaluate(
        policy, bandit, horizon=horizon, n_sessions=n_sessions, type_prior=type_prior, features=features, rng=rng
    )


def outlook(
    policy: Policy, bandit: LatentBandit, horizon: int, rng: Rng | None = None, *, n_sessions: int = SESSIONS
) -> Float[Array, "H M"]:
    """Expected reward of every step in every type; a simulation uses equally many sessions for each type."""
    found = exact_if_possible(policy, bandit, horizon)
    if found is not None:
        return found[0] / np.where(bandit.weights > 0, bandit.weights, 1.0)
    rng = check_rng(rng, "what the model expects of the policy is simulated")
    each = -(-n_sessions // bandit.n_types)
    result = np.empty((horizon, bandit.n_types))
    for type_ in range(bandit.n_types):
        arms, _ = interact(bandit, policy, np.full(each, type_), horizon, rng)
        result[:, type_] = expected_rewards(bandit, np.full(each, type_), arms).mean(axis=0)
    return result


def _on_bandit(
    policy: Policy, bandit: LatentBandit, horizon: int, n_sessions: int | None, people: People, rng: Rng | None
) -> Evaluation:
    horizon = check_count("horizon", horizon)
    check_fits(policy, bandit, horizon)
    if n_sessions is not None:
        n_sessions = check_count("n_sessions", n_sessions, minimum=2)
        return _simulated(policy, bandit, horizon, n_sessions, people, check_rng(rng, "the evaluation is simulated"))
    if policy.adaptive and not bandit.rewards.discrete:
        raise InvalidArgument(f"n_sessions and rng are needed: {_CONTINUOUS}, got None")
    return _sum(*(_exact if policy.deterministic else _exact_random)(policy, bandit, horizon, people))


def _obstacle(policy: Policy, bandit: LatentBandit) -> str | None:
    """Why no exact value can exist, for any number of histories; None where one can."""
    if not policy.deterministic:
        return f"{type(policy).__name__} plays at random"
    if policy.adaptive and not bandit.rewards.discrete:
        return _CONTINUOUS
    return None


def _exact_random(
    policy: Policy, bandit: LatentBandit, horizon: int, people: People
) -> tuple[Float[Array, "H M"], int]:
    """Return what `_exact` does, of a policy that plays at random."""
    joint, nodes = np.zeros((horizon, bandit.n_types)), 0
    levels = enumerate_random_histories(
        policy, bandit, horizon, limit=NODE_LIMIT, remedy=_REMEDY, roots=people.roots(policy, bandit)
    )
    for step, level in enumerate(levels):
        joint[step] = np.einsum("nm,mn->m", level.mass, bandit.at(step).means[:, level.arms])
        nodes += len(level.arms)
    return joint, nodes


def _exact(policy: Policy, bandit: LatentBandit, horizon: int, people: People) -> tuple[Float[Array, "H M"], int]:
    """Weight times expected reward of every step and type, and the number of histories that were walked."""
    joint, nodes = np.zeros((horizon, bandit.n_types)), 0
    roots = people.roots(policy, bandit)
    for step, level in enumerate(
        enumerate_histories(policy, bandit, horizon, limit=NODE_LIMIT, remedy=_REMEDY, roots=roots)
    ):
        joint[step] = np.einsum("nm,mn->m", level.mass, bandit.at(step).means[:, level.arms])
        nodes += len(level.arms)
    return joint, nodes


def exact_if_possible(
    policy: Policy, bandit: LatentBandit, horizon: int, people: People = NOBODY_KNOWN
) -> tuple[Float[Array, "H M"], int] | None:
    """The exact value where it can be computed, else None: then the caller simulates."""
    horizon = check_count("horizon", horizon)
    check_fits(policy, bandit, horizon)
    if _obstacle(policy, bandit) is not None:
        return None
    try:
        return _exact(policy, bandit, horizon, people)
    except TooLarge:
        return None


def _sum(joint: Float[Array, "H M"], nodes: int) -> Evaluation:
    per_step = joint.sum(axis=1)
    return Evaluation(float(per_step.sum()), 0.0, per_step, n_nodes=nodes)


def _simulated(
    policy: Policy, bandit: LatentBandit, horizon: int, n_sessions: int, people: People, rng: np.random.Generator
) -> Evaluation:
    total, squares, per_step = 0.0, 0.0, np.zeros(horizon)
    for start in range(0, n_sessions, _CHUNK):
        types, features = people.draw(bandit, min(_CHUNK, n_sessions - start), rng)
        arms, _ = interact(bandit, policy, types, horizon, rng, features)
        expected = expected_rewards(bandit, types, arms)
        per_step += expected.sum(axis=0)
        sums = expected.sum(axis=1)
        total += float(sums.sum())
        squares += float((sums**2).sum())
    mean = total / n_sessions
    variance = max(squares / n_sessions - mean**2, 0.0) * n_sessions / (n_sessions - 1)
    return Evaluation(mean, float(np.sqrt(variance / n_sessions)), per_step / n_sessions, n_sessions=n_sessions)
