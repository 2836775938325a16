"""certify: from a fitted bandit and a plan to an honest statement about the truth behind the log."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .._kernel import kernel
from .._notebook import card, percent
from .._shapes import Array, Float, Integer
from ..checks import FRACTION, Rng, check, check_count, check_rng
from ..data import Episodes
from ..errors import InvalidArgument
from ..estimation import Estimate
from ..model import Categorical, LatentBandit, belief
from ..planning import NoRepeatsPolicy, Plan, Problem
from ..policies import Decisions, State, best_allowed
from ..simulation import check_fits
from .decision_tree import Tree, unroll
from .laplace import Laplace, laplace

Interval = tuple[float, float]
THIN = 25  # steps per parameter below which certificates held less often than claimed
_BRANCHES = 64  # branches of the plan, the likeliest of each step, that a draw may continue with
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Certificate:
    """What a policy is worth in truth, what the best one would be worth, and the regret between them.

    Each of the three intervals holds with `confidence` on average, provided that the truth has no more contexts than
    the estimate.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> log = lmab.simulate(truth, lmab.Uniform(2), n_episodes=2000, horizon=5, rng=rng)
        >>> estimate = lmab.estimate(log, n_contexts=2, method=lmab.EM(prior=2.0), rng=rng)
        >>> certificate = lmab.certify(estimate, lmab.plan(estimate.bandit, horizon=5), log, rng=rng)
        >>> certificate.value[0] <= 3.35771 <= certificate.value[1]
        True
    """

    value: Interval  # of the policy: expected reward of a session
    optimum: Interval  # the value of the best policy there is
    regret: Interval  # optimum less value: (0.0, the bound)
    planning_gap: float  # share of the bound on the regret that better planning could remove; the rest takes data
    confidence: float
    horizon: int
    n_contexts: int
    n_episodes: int
    n_steps: int
    n_unplayed: int  # arms that the log never plays
    n_parameters: int
    n_floored: int  # directions among the parameters that the log says next to nothing about
    draws: Float[Array, "B 3"] = field(repr=False)  # on model b: the optimum, the policy; on the estimate: b's plan

    @property
    def sentence(self) -> str:
        """The certificate in words for somebody who has to decide."""
        places = _places(self.value, self.optimum, self.regret)
        low, high = (f"{end:.{places}f}" for end in self.value)
        best_low, best_high = (f"{end:.{places}f}" for end in self.optimum)
        share = f" ({self.regret[1] / self.optimum[1]:.1%})" if self.optimum[1] > 0 else ""
        return (
            f"A session of {self.horizon} steps earns between {low} and {high} under this policy, between {best_low} "
            f"and {best_high} under the best there is, and so this policy gives away at most "
            f"{self.regret[1]:.{places}f} per session{share}, each with {self.confidence:.0%} confidence; "
            f"{self._remedy}.{self._caution}"
        )

    @property
    def thin(self) -> bool:
        """The log has so few steps per parameter that certificates were seen to fail: collect more, or fit less."""
        return self.n_steps < THIN * self.n_parameters

    @property
    def note(self) -> str:
        """What the certificate rests on."""
        return (
            f"From {len(self.draws)} models that the {self.n_episodes} episodes could have come from; these say next "
            f"to nothing about {self.n_floored} of the {self.n_parameters} directions in which models differ. Each "
            f"interval holds with {self.confidence:.0%} on average, provided that there are no more than "
            f"{self.n_contexts} contexts in truth."
        )

    @property
    def _caution(self) -> str:
        thin = f" But the log is thin: {self._thinness}, so that this may promise too much." if self.thin else ""
        arms = "1 arm was" if self.n_unplayed == 1 else f"{self.n_unplayed} arms were"
        return thin + (
            f" And {arms} never played: nothing here covers what the log never tried." if self.n_unplayed else ""
        )

    @property
    def _thinness(self) -> str:
        return f"{self.n_steps / self.n_parameters:.0f} steps per parameter of the model instead of at least {THIN}"

    @property
    def _remedy(self) -> str:
        if self.planning_gap > 0.5:
            return f"{self.planning_gap:.0%} of that is planning left undone: plan with a smaller gap"
        if self.planning_gap >= 0.005:
            return f"{self.planning_gap:.0%} of that is planning left undone, the rest is for want of data"
        return "that is for want of data: planning is done"

    def __str__(self) -> str:
        return self.sentence

    def _repr_html_(self) -> str:
        rows = {
            "this policy earns": "{:.4g} to {:.4g}".format(*self.value),
            "the best earns": "{:.4g} to {:.4g}".format(*self.optimum),
            "given away at most": f"{self.regret[1]:.4g} per session of {self.horizon} steps",
            "each holds with": percent(self.confidence)
            + (f", but the log is thin: {self._thinness}" if self.thin else ""),
        }
        return card("Certificate", rows)


def certify(
    estimate: Estimate,
    plan: Plan,
    episodes: Episodes,
    *,
    confidence: float = 0.9,
    n_draws: int = 100,
    rng: Rng,
) -> Certificate:
    """Certify what the policy of `plan` is worth in truth, and how far from the best it can be.

    Models that the log could have come from are drawn around the estimate (its Laplace approximation), each is planned
    for anew, and the spread of the values tells how much the log leaves open. Quantiles of `confidence` half way
    further to 1 are taken (95% to claim 90%): with those the claim held on fresh data.

    Args:
        estimate: a maximum a posteriori fit, best with `lmab.EM(prior=2.0)`, of at least as many contexts as in truth.
        plan: a plan for `estimate.bandit`.
        episodes: the log that `estimate` was fitted to.
        confidence: how often each of the three intervals is to hold.
        n_draws: models drawn.
        rng: where the draws come from.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> log = lmab.simulate(truth, lmab.Uniform(2), n_episodes=2000, horizon=5, rng=rng)
        >>> estimate = lmab.estimate(log, n_contexts=2, method=lmab.EM(prior=2.0), rng=rng)
        >>> plan = lmab.plan(estimate.bandit, horizon=5)
        >>> print(lmab.certify(estimate, plan, log, rng=rng))  # doctest: +ELLIPSIS
        A session of 5 steps earns between ... and ... under this policy, between ... and ... under the best there is...
    """
    rng = check_rng(rng, "models are drawn at random")
    n_draws = check_count("n_draws", n_draws, minimum=20)
    check("confidence", confidence, FRACTION)
    rewards = _check_estimate(estimate, episodes)
    _check_plan(plan, estimate.bandit)
    posterior = laplace(estimate.information())
    draws, own = _replan(estimate.bandit, rewards, plan, posterior, n_draws, rng)
    _check_bounds(plan, own)
    return _certificate(estimate, plan, posterior, draws, own, confidence)


def _certificate(
    estimate: Estimate, plan: Plan, posterior: Laplace, draws: Float[Array, "B 3"], own: float, confidence: float
) -> Certificate:
    optimum, value, transferred = draws.T
    miss = (1 - confidence) / 2
    best = max(own, float(transferred.max()))  # the best known for the estimate
    undone = max(plan.upper - best, 0.0)
    low, high = np.quantile(optimum, [miss / 2, 1 - miss / 2])
    regret = undone + max(float(np.quantile(loss, 1 - miss)) for loss in (optimum - value, best - transferred))
    return Certificate(
        value=_interval(np.quantile(value, [miss / 2, 1 - miss / 2])),
        optimum=(float(low), float(high) + undone),
        regret=(0.0, regret),
        planning_gap=undone / regret if regret > 0 else 0.0,
        confidence=confidence,
        horizon=plan.horizon,
        n_contexts=estimate.n_contexts,
        n_episodes=len(estimate.episodes),
        n_steps=estimate.episodes.n_steps,
        n_unplayed=estimate.bandit.n_arms - len(np.unique(estimate.episodes.actions)),
        n_parameters=posterior.n_parameters,
        n_floored=posterior.n_floored,
        draws=draws,
    )


def _replan(
    bandit: LatentBandit, rewards: Categorical, plan: Plan, posterior: Laplace, n_draws: int, rng: np.random.Generator
) -> tuple[Float[Array, "B 3"], float]:
    """Per drawn model: the value of its own plan, that of the policy, that of its own plan on the estimate.

    And the value of the policy on the estimate.
    """
    tree = unroll(plan.policy, bandit, plan.horizon)
    result = []
    for weights, family in zip(*posterior.draw(n_draws, rng), strict=True):
        model, branches = LatentBandit(weights, family), tree.branches(family)
        policy: Decisions = NoRepeatsPolicy(model, horizon=plan.horizon)
        if plan.repeats:
            policy = _Replanned(model, tree, branches, plan.horizon)
        replanned = unroll(policy, model, plan.horizon)
        value = float(weights @ branches[0][0])
        result.append((max(replanned.value(weights, family), value), value, replanned.value(bandit.weights, rewards)))
    return np.array(result), tree.value(bandit.weights, rewards)


class _Replanned:
    """A plan improved for another model: at every step the best arm if a branch of the plan, or one arm, follows.

    This is one step of policy iteration, with all branches of the plan on offer at every belief.
    """

    adaptive = True
    order_free = True

    def __init__(self, bandit: LatentBandit, tree: Tree, branches: list[Float[Array, "n M"]], horizon: int) -> None:
        self._problem = Problem.of(bandit, horizon, bins=2)
        last = self._problem.means[self._problem.last_arms]
        self._later = [last]  # what may follow, with 1 step to go, 2, ...
        for level, worth in list(zip(tree.levels, branches, strict=True))[-2:0:-1]:
            likely = np.argsort(-level.probabilities, kind="stable")[:_BRANCHES]
            self._later.append(np.concatenate([worth[likely], (len(self._later) + 1) * last]))

    def start(self, n: int) -> State:
        return State(0, belief.prior(self._problem.bandit, n), single=False)

    def act(self, state: State) -> Integer[Array, "n"]:
        problem, remaining = self._problem, self._problem.horizon - state.step
        if remaining == 1:
            return best_allowed(state.memory @ problem.means.T, None)
        one_step = kernel("planning_lookahead").one_step_values
        return best_allowed(one_step(state.memory, problem.table, problem.means, self._later[remaining - 2]), None)

    def observe(self, state: State, arm: Integer[Array, "n"], reward: Float[Array, "n"]) -> State:
        return State(state.step + 1, belief.update(self._problem.bandit, state.memory, arm, reward), single=False)


def _check_estimate(estimate: Estimate, episodes: Episodes) -> Categorical:
    """The rewards of an estimate that can be certified."""
    if estimate.prior <= 0:
        raise InvalidArgument(
            f"estimate must be a maximum a posteriori one (fit with method=EM(prior=2.0)), got prior "
            f"{estimate.prior:g}: plain maximum likelihood overfits, and certificates around it held in as few as 16 "
            "cases of 100 where 90 were claimed"
        )
    rewards = estimate.bandit.rewards
    if not isinstance(rewards, Categorical):
        raise InvalidArgument("estimate must have rewards on finitely many values (bins will do), got normal ones")
    fitted = estimate.episodes
    same = episodes is fitted or all(
        np.array_equal(getattr(episodes, name), getattr(fitted, name)) for name in ("actions", "rewards", "offsets")
    )
    if not same:
        raise InvalidArgument(
            f"episodes must be the log that the estimate was fitted to ({len(fitted)} episodes), got {episodes}"
        )
    return rewards


def _check_plan(plan: Plan, bandit: LatentBandit) -> None:
    check_fits(plan.policy, bandit, plan.horizon)
    if not plan.policy.deterministic:
        raise InvalidArgument(f"plan must have a deterministic policy, got {type(plan.policy).__name__}")


def _check_bounds(plan: Plan, value: float) -> None:
    slack = _ROUNDING * max(abs(value), 1.0)
    if not plan.lower - slack <= value <= plan.upper + slack:
        raise InvalidArgument(
            f"plan must be a plan for estimate.bandit: it promises {plan.lower:.6g} to {plan.upper:.6g}, but its "
            f"policy earns {value:.6g} there"
        )


def _interval(ends: Float[Array, "2"]) -> Interval:
    return float(ends[0]), float(ends[1])


def _places(*intervals: Interval) -> int:
    """Decimals that show two digits of the shortest interval."""
    width = max(min(high - low for low, high in intervals), 1e-6)
    return max(1 - int(np.floor(np.log10(width))), 0)
