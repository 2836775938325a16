"""What a policy is worth: on a bandit exactly or by simulation, on a log by importance weights."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer
from ..checks import Rng, check_count, check_rng
from ..data import Episodes
from ..errors import InvalidArgument, LmabWarning, TooLarge
from ..estimation import Estimate
from ..model import Categorical, LatentBandit
from ..planning import Plan, policy_of
from ..policies import Policy, State
from ..simulation import check_fits, draw_contexts, interact
from . import off_policy, propensities

NODE_LIMIT = 2_000_000  # histories held at once by an exact evaluation
_CHUNK = 8192
_OUTLOOK = 2000  # sessions per context where a model's expectation of a policy is simulated


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Expected reward of a session under a policy."""

    mean: float  # sum over the steps
    stderr: float  # 0.0 when exact
    per_step: Float[Array, "H"]  # expected reward of each step
    n_episodes: int | None = None  # simulated or logged sessions; None when exact
    n_nodes: int | None = None  # histories walked; None unless exact
    interval: tuple[float, float] | None = None  # of the mean; None unless from a log
    effective_sizes: Float[Array, "H"] | None = None  # sessions that speak for each step; None unless from a log
    notes: tuple[str, ...] = ()  # what to know before using the number

    @property
    def exact(self) -> bool:
        return self.n_episodes is None

    def __repr__(self) -> str:
        how = "exact" if self.exact else f"{self.n_episodes} episodes"
        return f"Evaluation({self.mean:.6g} ± {self.stderr:.2g} over {len(self.per_step)} steps, {how})"


def evaluate(
    policy: Policy | Plan,
    source: LatentBandit | Estimate | Episodes,
    *,
    horizon: int,
    n_episodes: int | None = None,
    method: str | None = None,
    model: LatentBandit | None = None,
    fit_propensities: bool = False,
    confidence: float = 0.95,
    n_bootstrap: int = 1000,
    rng: Rng | None = None,
) -> Evaluation:
    """Expected total reward of `policy` over `horizon` steps: the paper's V(pi), on a bandit or from a log.

    On a bandit the value is exact where the policy is deterministic and rewards take finitely many values: all
    histories that can happen are walked, those with equal counts as one where the policy does not care for order.
    Otherwise, or when `n_episodes` is given, sessions are simulated; each step then counts the expected reward of the
    arm in the session's hidden context, which has the same mean as the reward and less noise.

    From a log (off-policy) the sessions are weighted by how much likelier the policy is to act as they did than the
    policy that logged them, from the logged propensities. `notes`, and a warning, say when the log cannot tell.

    Args:
        policy: what to evaluate; of a plan its policy.
        source: a bandit, which need not be the model the policy was made from (of an estimate its bandit), or a log
            with propensities.
        horizon: steps per session.
        n_episodes: sessions to simulate on a bandit; None asks for the exact value.
        method: for a log, "per-decision" (unbiased), "self-normalised" (less noise), or "doubly-robust" (with the
            help of `model`); None: the last of these that the log allows.
        model: for a log, a bandit fitted to other sessions.
        fit_propensities: for a log, take the logging policy to choose by the number of the step alone, and fit that.
        confidence: of the interval (log).
        n_bootstrap: resamples of the sessions behind the interval (log).
        rng: the generator, for simulation and for the bootstrap (a log without it gets a normal interval).

    Examples:
        >>> import numpy as np, lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.7, 0.4], [0.4, 0.7]])
        >>> lmab.evaluate(lmab.Greedy(bandit), bandit, horizon=5)
        Evaluation(2.98035 ± 0 over 5 steps, exact)
        >>> rng = np.random.default_rng(0)
        >>> lmab.evaluate(lmab.Uniform(2), bandit, horizon=5, n_episodes=1000, rng=rng).exact
        False
        >>> log = lmab.simulate(bandit, lmab.Uniform(2), n_episodes=20_000, horizon=5, rng=rng)
        >>> value = lmab.evaluate(lmab.Greedy(bandit), log, horizon=5, model=bandit, rng=rng)
        >>> bool(value.interval[0] < 2.98035 < value.interval[1])
        True
    """
    policy = policy_of(policy)
    source = source.bandit if isinstance(source, Estimate) else source
    if isinstance(source, Episodes):
        if n_episodes is not None:
            raise InvalidArgument(f"n_episodes must be None for a log, got {n_episodes!r}")
        evidence = weigh(
            policy, source, horizon=horizon, model=model, fit_propensities=fit_propensities,
            confidence=confidence, n_bootstrap=n_bootstrap, rng=rng,
        )  # fmt: skip
        return _from_log(evidence, method or _steadiest(evidence))
    if method is not None or model is not None or fit_propensities:
        raise InvalidArgument("method, model and fit_propensities are for a log, got a bandit")
    return _on_bandit(policy, source, horizon, n_episodes, rng)


def weigh(
    policy: Policy,
    episodes: Episodes,
    *,
    horizon: int,
    model: LatentBandit | None = None,
    fit_propensities: bool = False,
    confidence: float = 0.95,
    n_bootstrap: int = 1000,
    rng: Rng | None = None,
) -> off_policy.LogEvidence:
    """Every estimate that a log offers of the value of `policy`, with the evidence behind them."""
    notes: tuple[str, ...] = ()
    if fit_propensities:
        episodes, notes = propensities.fit_propensities(episodes)
    evidence = off_policy.weigh(
        policy,
        episodes,
        horizon=horizon,
        model=model,
        outlook=None if model is None else outlook(policy, model, horizon, rng),
        confidence=confidence,
        n_bootstrap=n_bootstrap,
        rng=rng,
    )
    return replace(evidence, notes=evidence.notes + notes)


def _steadiest(evidence: off_policy.LogEvidence) -> str:
    """The method with the least noise among those that the log allows."""
    values = (evidence.per_decision, evidence.self_normalised, evidence.doubly_robust)
    return [name for name, value in zip(off_policy.METHODS, values, strict=True) if value is not None][-1]


def _from_log(evidence: off_policy.LogEvidence, method: str) -> Evaluation:
    value = evidence.by(method)
    for note in evidence.notes:
        warnings.warn(note, LmabWarning, stacklevel=3)
    return Evaluation(
        value.mean,
        value.stderr,
        value.per_step,
        n_episodes=int(evidence.n_reached[0]),
        interval=value.interval,
        effective_sizes=evidence.effective_sizes,
        notes=evidence.notes,
    )


def outlook(policy: Policy, bandit: LatentBandit, horizon: int, rng: Rng | None = None) -> Float[Array, "H M"]:
    """Expected reward of every step in every context, exact where `evaluate` is, else simulated."""
    horizon = check_count("horizon", horizon)
    check_fits(policy, bandit, horizon)
    if policy.deterministic and isinstance(bandit.rewards, Categorical):
        try:
            joint, _ = _walk(policy, bandit, bandit.rewards, horizon)
            return joint / np.where(bandit.weights > 0, bandit.weights, 1.0)
        except TooLarge:
            pass
    rng = check_rng(rng, "what the model expects of the policy is simulated")
    contexts = np.repeat(np.arange(bandit.n_contexts), _OUTLOOK)
    actions, _ = interact(bandit, policy, contexts, horizon, rng)
    expected = bandit.means[contexts[:, None], actions]
    return expected.reshape(bandit.n_contexts, _OUTLOOK, horizon).mean(axis=1).T


def _on_bandit(
    policy: Policy, bandit: LatentBandit, horizon: int, n_episodes: int | None, rng: Rng | None
) -> Evaluation:
    horizon = check_count("horizon", horizon)
    check_fits(policy, bandit, horizon)
    if n_episodes is not None:
        n_episodes = check_count("n_episodes", n_episodes, minimum=2)
        return _simulated(policy, bandit, horizon, n_episodes, check_rng(rng, "the evaluation is simulated"))
    if not policy.deterministic:
        raise InvalidArgument(f"n_episodes and rng are needed: {type(policy).__name__} plays at random, got None")
    if not policy.adaptive:
        return _open_loop(policy, bandit, horizon)
    if not isinstance(bandit.rewards, Categorical):
        raise InvalidArgument("n_episodes and rng are needed: rewards are continuous, got None")
    joint, nodes = _walk(policy, bandit, bandit.rewards, horizon)
    per_step = joint.sum(axis=1)
    return Evaluation(float(per_step.sum()), 0.0, per_step, n_nodes=nodes)


def _simulated(
    policy: Policy, bandit: LatentBandit, horizon: int, n_episodes: int, rng: np.random.Generator
) -> Evaluation:
    total, squares, per_step = 0.0, 0.0, np.zeros(horizon)
    for start in range(0, n_episodes, _CHUNK):
        contexts = draw_contexts(bandit, min(_CHUNK, n_episodes - start), rng)
        actions, _ = interact(bandit, policy, contexts, horizon, rng)
        expected = bandit.means[contexts[:, None], actions]
        per_step += expected.sum(axis=0)
        sums = expected.sum(axis=1)
        total += float(sums.sum())
        squares += float((sums**2).sum())
    mean = total / n_episodes
    variance = max(squares / n_episodes - mean**2, 0.0) * n_episodes / (n_episodes - 1)
    return Evaluation(mean, float(np.sqrt(variance / n_episodes)), per_step / n_episodes, n_episodes=n_episodes)


def _open_loop(policy: Policy, bandit: LatentBandit, horizon: int) -> Evaluation:
    state, per_step = policy.start(1), np.empty(horizon)
    for step in range(horizon):
        arms: Any = policy.act(state)
        if arms[0] >= bandit.n_arms:
            raise InvalidArgument(f"policy must name arms in 0..{bandit.n_arms - 1}, got {int(arms[0])}")
        per_step[step] = bandit.weights @ bandit.means[:, arms[0]]
        state = policy.observe(state, arms, np.zeros(1))
    return Evaluation(float(per_step.sum()), 0.0, per_step, n_nodes=horizon)


def _walk(policy: Policy, bandit: LatentBandit, rewards: Categorical, horizon: int) -> tuple[Float[Array, "H M"], int]:
    """Weight times expected reward of every step and context, level by level, and the number of histories.

    `mass` is weight times probability of the history, for every context.
    """
    state, mass = policy.start(1), bandit.weights[None]
    history: Integer[Array, "n t"] = np.empty((1, 0), np.int32)
    joint, nodes = np.empty((horizon, bandit.n_contexts)), 0
    for step in range(horizon):
        nodes += len(mass)
        arms: Any = policy.act(state)
        joint[step] = np.einsum("nm,mn->m", mass, rewards.means[:, arms])
        if step + 1 < horizon:
            state, mass, history = _branch(policy, rewards, state, mass, history, arms)
    return joint, nodes


def _branch(
    policy: Policy,
    rewards: Categorical,
    state: State,
    mass: Float[Array, "n M"],
    history: Integer[Array, "n t"],
    arms: Integer[Array, "n"],
) -> tuple[State, Float[Array, "k M"], Integer[Array, "k t1"]]:
    """All histories one step longer that can happen, merged by counts where order does not matter."""
    size = len(mass) * rewards.n_values
    codes = (arms[:, None] * rewards.n_values + np.arange(rewards.n_values)).ravel()
    parent = np.repeat(np.arange(len(mass)), rewards.n_values)
    children = mass[parent] * rewards.table[codes]
    alive = np.flatnonzero(children.max(axis=1) > 0)
    codes, parent, children = codes[alive], parent[alive], children[alive]
    longer = np.column_stack([history[parent], codes]).astype(np.int32)
    if policy.order_free:
        longer.sort(axis=1)
        keep, group = _unique_rows(longer)
        merged = np.zeros((len(keep), mass.shape[1]))
        np.add.at(merged, group, children)
        codes, parent, children, longer = codes[keep], parent[keep], merged, longer[keep]
    if len(children) > NODE_LIMIT:
        raise TooLarge(
            f"an exact evaluation would hold {len(children)} histories of {longer.shape[1]} steps (of {size} reached), "
            f"more than {NODE_LIMIT}: give n_episodes and rng to simulate instead"
        )
    picked = State(state.step, state.memory[parent], single=False)
    values = rewards.values[codes % rewards.n_values]
    return policy.observe(picked, codes // rewards.n_values, values), children, longer


def _unique_rows(rows: Integer[Array, "n t"]) -> tuple[Integer[Array, "k"], Integer[Array, "n"]]:
    """First index of each distinct row, and for every row which distinct one it is."""
    keys = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel()
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    return first, group
