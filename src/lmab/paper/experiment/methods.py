"""What is measured: settings and trials as data with an id, and the methods that studies compare on them.

All randomness follows from the id of a trial.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ... import evaluation
from ..._shapes import Array, Float
from ...estimation.em import EM
from ...estimation.fit import fit
from ...evaluation.value import Evaluation
from ...learning.direct_mle import DirectMLE
from ...learning.learner import Learner
from ...learning.run import learn
from ...model.bandit import LatentBandit
from ...model.categorical import Categorical
from ...model.instances import random_bandit
from ...model.type_prior import TypePrior
from ...moments.second import Subspace
from ...planning.certified import Certified
from ...planning.lookahead import QMDP, Lookahead
from ...planning.plan import Planner, plan
from ...planning.point_based import PointBased
from ...planning.problem import Clock, Plan, Problem
from ...policies.belief_policies import Greedy, Uniform
from ...policies.policy import Policy
from ...simulation import Simulator, simulate
from ..baselines import UCB, Genie, Tensor
from ..designed import EDMLE, EDMoments
from ..history_ucbvi import HistoryUCBVI
from ..l_ucrl import LUCRL
from ..tensor_decomposition import TensorDecomposition

SEED = 20221003  # The seed of everything; rows carry it.
_NO_DIRECTION = 1e-9  # Singular values below this part of the largest are rounding.


@dataclass(frozen=True)
class Setting:
    """A kind of instance, its size, and what a learner may spend on it."""

    kind: str  # A kind of `random_bandit`, or "line", "clipped", "separated" or "uniform", below.
    n_types: int
    n_arms: int
    horizon: int
    n_sessions: int = 0  # 0: nothing is learned
    separation: float = 0.0  # gamma of appendix C, for "separated"

    @property
    def id(self) -> str:
        separation = f"-g{self.separation:g}" if self.separation else ""
        return f"{self.kind}{separation}-M{self.n_types}-A{self.n_arms}-H{self.horizon}-N{self.n_sessions}"

    @property
    def instance(self) -> Setting:
        """The same without the budget: what the truth depends on."""
        return replace(self, n_sessions=0)

    def draw(self, instance: int) -> LatentBandit:
        """The bandit number `instance`; the same for every horizon and budget."""
        rng = generator(instance, "bandit")
        if self.kind == "line":
            return on_a_line(self.n_types, self.n_arms, rng)
        if self.kind == "clipped":
            return clipped(self.n_types, self.n_arms, rng)
        if self.kind == "separated":
            return separated(self.n_types, self.n_arms, self.separation, rng)
        if self.kind == "uniform":
            means = rng.uniform(0.1, 0.9, (self.n_types, self.n_arms))
            return LatentBandit.bernoulli(np.full(self.n_types, 1 / self.n_types), means)
        return random_bandit(self.n_types, self.n_arms, kind=self.kind, rng=rng)


def generator(instance: int, use: str) -> np.random.Generator:
    """The generator for one use within one instance: the same for all methods, so that they are compared in pairs."""
    uses = ("bandit", "environment", "learner", "evaluation")
    return np.random.default_rng((SEED, instance, uses.index(use)))


def on_a_line(n_types: int, n_arms: int, rng: np.random.Generator) -> LatentBandit:
    """Types on a line: means 1/2 + c_a * x_m with scalar positions x_m, so that sessions show moments of x alone.

    A distribution on M points of a line is fixed by its first 2M-1 moments and by no fewer: the sharpest case of the
    paper's two regimes.
    """
    line = Line.draw(n_types, n_arms, rng)
    return LatentBandit.bernoulli(line.weights, np.clip(0.5 + line.positions[:, None] * line.slopes, 0.01, 0.99))


@dataclass(frozen=True, eq=False)
class Line:
    """What a bandit on a line is made of."""

    positions: Float[Array, "M"]  # rising
    slopes: Float[Array, "A"]
    weights: Float[Array, "M"]

    @classmethod
    def draw(cls, n_types: int, n_arms: int, rng: np.random.Generator) -> Line:
        positions = np.linspace(-1, 1, n_types) + rng.uniform(-0.1, 0.1, n_types)
        slopes = rng.choice((-1.0, 1.0), n_arms) * rng.uniform(0.2, 0.45, n_arms)
        return cls(positions, slopes, rng.dirichlet(np.full(n_types, 20.0)))


def clipped(n_types: int, n_arms: int, rng: np.random.Generator) -> LatentBandit:
    """Normal factors of rank 4, clipped to probabilities: a rank that is only "roughly 4", as the paper says."""
    factors, loadings = rng.standard_normal((n_types, 4)), rng.standard_normal((4, n_arms))
    means = np.clip(0.5 + 0.25 * factors @ loadings, 0.02, 0.98)
    return LatentBandit.bernoulli(np.full(n_types, 1 / n_types), means)


def separated(n_types: int, n_arms: int, separation: float, rng: np.random.Generator) -> LatentBandit:
    """Types that differ by exactly `separation` (in l1, as in appendix C) on about half of the arms, else by 0."""
    base = rng.uniform(0.3, 0.7, n_arms)
    signs: Float[Array, "M A"] = rng.choice((-1.0, 1.0), (n_types, n_arms))
    return LatentBandit.bernoulli(np.full(n_types, 1 / n_types), base + signs * separation / 4)


@dataclass(frozen=True)
class Measurement:
    """What one trial found; None where it does not apply."""

    value: float | None  # expected reward of a session on the true bandit, certified planner (or the method's policy)
    value_qmdp: float | None = None  # the same with the paper's planner
    stderr: float = 0.0  # Standard error of `value`; 0 when exact.
    lower: float | None = None  # proved by the planner, on the model that it planned for
    upper: float | None = None
    distance: float | None = None  # Distance of the learned model to the true one (Wasserstein).
    sessions_used: int = 0
    seconds_learning: float = 0.0
    seconds_planning: float = 0.0
    note: str = ""  # what the planner or the learner said


@dataclass(frozen=True)
class Contender:
    """A named way to act: `measure(setting, bandit, instance)`; `learns` tells whether it depends on the budget.

    A method whose results change gets a higher `revision`: its stored rows no longer count, and all others stay valid.
    """

    name: str
    label: str  # in figures and tables
    measure: Callable[[Setting, LatentBandit, int], Measurement]
    learns: bool = True
    revision: int = 1


@dataclass(frozen=True)
class Trial:
    """One method on one instance of one setting: the unit of work, and one row."""

    setting: Setting
    instance: int
    method: Contender

    @classmethod
    def of(cls, setting: Setting, instance: int, method: Contender) -> Trial:
        """The trial; a method that learns nothing is run once for all budgets."""
        return cls(setting if method.learns else setting.instance, instance, method)

    @property
    def id(self) -> str:
        revision = f"@{self.method.revision}" if self.method.revision > 1 else ""
        return f"{self.setting.id}/{self.instance:02d}/{self.method.name}{revision}"


PLANNING_SECONDS = 20.0  # a plan's time limit in the study of planners
_SESSIONS = 200_000  # simulated where the exact value is out of reach; stored rows rest on this number


def planning_seconds(setting: Setting, learner: Learner) -> float:
    """A plan's limit, in processor seconds; the genie, by which all are measured, has five times as much."""
    easy = setting.n_types <= 5 and setting.n_arms <= 100 and setting.horizon <= 10
    return (1.0 if easy else 3.0) * (5.0 if isinstance(learner, Genie) else 1.0)


def value_of(policy: Policy, bandit: LatentBandit, horizon: int, instance: int) -> Evaluation:
    """The exact value; where too many histories can happen, a simulated one on sessions that all methods share."""
    rng = generator(instance, "evaluation")
    return evaluation.value_of(policy, bandit, horizon=horizon, n_sessions=_SESSIONS, rng=rng)


class ProcessorClock(Clock):
    """A clock that stands still while its process waits, so that rows do not depend on what else the machine does."""

    def __init__(self, time_limit: float) -> None:
        super().__init__(time_limit)
        self._began = time.process_time()

    @property
    def seconds(self) -> float:
        """Processor seconds since the run began."""
        return time.process_time() - self._began


class ByProcessor(Certified):
    """The certified planner with its time limit in processor seconds."""

    def solve(self, problem: Problem, clock: Clock) -> Plan:
        return super().solve(problem, ProcessorClock(clock.time_limit))


@dataclass(frozen=True)
class Learning:
    """Learn in a simulator of the bandit; one learned model serves both planners."""

    learner: Callable[[Setting, LatentBandit], Learner]
    times: int = 1  # sessions that are played, as a multiple of the setting's N

    def __call__(self, setting: Setting, bandit: LatentBandit, instance: int) -> Measurement:
        environment = Simulator(bandit, horizon=setting.horizon, rng=generator(instance, "environment"))
        learner = self.learner(setting, bandit)
        start = time.process_time()
        learned = learn(
            environment,
            learner,
            n_sessions=max(self.times * setting.n_sessions, 1),
            rng=generator(instance, "learner"),
            planner=ByProcessor(),
            time_limit=planning_seconds(setting, learner),
        )
        seconds = time.process_time() - start
        planned = 0.0 if learned.plan is None else learned.plan.trace[-1].seconds
        value = value_of(learned.policy, bandit, setting.horizon, instance)
        # Q-MDP is the greedy policy; a learner without a model has one policy only.
        qmdp = learned.policy if learned.bandit is None else Greedy(learned.bandit, horizon=setting.horizon)
        return Measurement(
            value.mean,
            value_qmdp=value_of(qmdp, bandit, setting.horizon, instance).mean,
            stderr=value.stderr,
            lower=None if learned.plan is None else learned.plan.lower,
            upper=None if learned.plan is None else learned.plan.upper,
            distance=None if learned.bandit is None else bandit.distance(learned.bandit),
            sessions_used=learned.sessions_used,
            seconds_learning=seconds - planned,
            seconds_planning=planned,
            note="" if learned.plan is None else learned.plan.status,
        )


@dataclass(frozen=True)
class Fitting:
    """Learn as above and look at the parameters alone, where sessions are too long to plan and evaluate at leisure."""

    learner: Callable[[Setting, LatentBandit], Learner]

    def __call__(self, setting: Setting, bandit: LatentBandit, instance: int) -> Measurement:
        environment = Simulator(bandit, horizon=setting.horizon, rng=generator(instance, "environment"))
        start = time.process_time()
        rng = generator(instance, "learner")
        learner = self.learner(setting, bandit)
        learned = learn(environment, learner, n_sessions=setting.n_sessions, rng=rng, planner=QMDP())
        seconds = time.process_time() - start
        assert learned.bandit is not None
        return Measurement(
            None,
            distance=bandit.distance(learned.bandit),
            sessions_used=learned.sessions_used,
            seconds_learning=seconds,
        )


_SEGMENTS = 20  # of people, in each of which the types are mixed differently


@dataclass(frozen=True)
class Segments:
    """Fit sessions of people whose segment changes how likely each type is; `known`: the segment is a feature."""

    known: bool

    def __call__(self, setting: Setting, bandit: LatentBandit, instance: int) -> Measurement:
        rng = generator(instance, "environment")
        mixtures = rng.dirichlet(np.full(setting.n_types, 0.3), _SEGMENTS)
        prior = TypePrior.by_value("segment", {str(number): each for number, each in enumerate(mixtures)})
        log = simulate(bandit, Uniform(bandit.n_arms), n_sessions=setting.n_sessions, horizon=setting.horizon,
                       type_prior=prior, rng=rng)  # fmt: skip
        log = log if self.known else replace(log, features=None)
        start = time.process_time()
        found = fit(log, n_types=setting.n_types, method=EM(restarts=8, prior=1.0), check=False,
                    rng=generator(instance, "learner"))  # fmt: skip
        truth = replace(bandit, weights=mixtures.mean(axis=0) / mixtures.mean(axis=0).sum())
        return Measurement(
            None,
            distance=truth.distance(found.bandit),
            sessions_used=setting.n_sessions,
            seconds_learning=time.process_time() - start,
            note="known before" if found.type_prior is not None else "",
        )


@dataclass(frozen=True)
class Planning:
    """Plan on the true bandit; the value is that of the policy, the bounds are those of the planner."""

    method: Planner

    def __call__(self, setting: Setting, bandit: LatentBandit, instance: int) -> Measurement:
        found = plan(bandit, horizon=setting.horizon, method=self.method, time_limit=PLANNING_SECONDS)
        value = value_of(found.policy, bandit, setting.horizon, instance)
        return Measurement(
            value.mean,
            stderr=value.stderr,
            lower=found.lower,
            upper=found.upper,
            seconds_planning=found.trace[-1].seconds,  # without compilation
            note=found.status,
        )


def best_fixed_arm(setting: Setting, bandit: LatentBandit, instance: int) -> Measurement:
    """The best that ignoring types can do."""
    return Measurement(bandit.best_fixed(setting.horizon))


def _learner(make: Callable[..., Learner], setting: Setting, bandit: LatentBandit, **options: Any) -> Learner:
    return make(setting.n_types, **options)


def _genie(setting: Setting, bandit: LatentBandit) -> Learner:
    return Genie(bandit)


def _ucb(setting: Setting, bandit: LatentBandit) -> Learner:
    return UCB()


def _history(setting: Setting, bandit: LatentBandit) -> Learner:
    return HistoryUCBVI()


def _ed_mle_known(setting: Setting, bandit: LatentBandit) -> Learner:
    """ED+MLE that is given the span of the true types."""
    assert isinstance(bandit.rewards, Categorical)
    basis, singular, _ = np.linalg.svd(bandit.rewards.table, full_matrices=False)
    rank = int((singular > _NO_DIRECTION * singular[0]).sum())
    return EDMLE(setting.n_types, space=Subspace(basis[:, :rank], singular**2, bandit.n_arms, bandit.rewards.values))


def _ed_mle_apart(setting: Setting, bandit: LatentBandit, times: int, pairs: str) -> Learner:
    """ED+MLE whose step 1 has sessions of its own: `times` N, beside the N of step 2."""
    return EDMLE(setting.n_types, pairs=pairs, explore=times * setting.n_sessions)


def typed(make: Callable[..., Learner], **options: Any) -> Callable[[Setting, LatentBandit], Learner]:
    """`make(n_types, **options)` for the number of types of a setting; it travels to other processes."""
    return partial(_learner, make, **options)


_FIXED = EM(restarts=8, tolerance=1e-6, prior=1.5)
_TENSORS = TensorDecomposition(features="free")
_PUBLISHED: Mapping[str, Any] = {"refit": False, "bonus": 1.0, "method": _TENSORS}

GENIE = Contender("genie", "genie", Learning(_genie), learns=False)
UCB1 = Contender("ucb", "UCB", Learning(_ucb))
TENSOR = Contender("tensor", "tensor", Learning(typed(Tensor)))
TENSOR_PAIRS = Contender(
    "tensor-pairs", "tensor on pairs", Learning(typed(Tensor, method=TensorDecomposition(features="pairs")))
)
ED_MOMENTS = Contender(
    "ed-moments", "ED+moments", Learning(typed(EDMoments)), revision=3
)  # The fit chooses the weight.
HISTORY = Contender("history-ucbvi", "history MDP", Learning(_history))

# L-UCRL: posteriors taken once, as published; then EM over the same sessions; and refitted in rounds, which is ours.
L_UCRL_PUBLISHED = Contender("l-ucrl-published", "L-UCRL as published", Learning(typed(LUCRL, **_PUBLISHED)))
L_UCRL_PASSES = tuple(
    Contender(
        f"l-ucrl-passes-{n}", f"L-UCRL, then {n} pass{'es' * (n > 1)}", Learning(typed(LUCRL, sweeps=n, **_PUBLISHED))
    )
    for n in (1, 5, 75)
)
L_UCRL = Contender("l-ucrl", "L-UCRL, refitted", Learning(typed(LUCRL)))
L_UCRL_TENSOR = Contender("l-ucrl-tensor", "L-UCRL, refitted, tensor start", Learning(typed(LUCRL, method=_TENSORS)))

# ED+MLE: second moments of the first two steps, as printed, or of all pairs, which is ours; and what else decides.
ED_MLE = Contender("ed-mle", "ED+MLE, all pairs", Learning(typed(EDMLE)))
ED_MLE_LITERAL = Contender("ed-mle-literal", "ED+MLE as printed", Learning(typed(EDMLE, pairs="first-two")))
ED_MLE_KNOWN = Contender("ed-mle-known", "ED+MLE, true subspace", Learning(_ed_mle_known))
ED_MLE_APART = {
    (times, pairs): Contender(
        f"ed-mle-{pairs}-apart-{times}",
        f"ED+MLE, {'all pairs' if pairs == 'all' else 'as printed'}, step 1 with {'' if times == 1 else times}N more",
        Learning(partial(_ed_mle_apart, times=times, pairs=pairs), times=1 + times),
    )
    for times in (1, 5)
    for pairs in ("first-two", "all")
}

DIRECT_MLE = Contender(
    "direct-mle", "DirectMLE, uniform play", Learning(typed(DirectMLE, thompson_rounds=0)), revision=4
)  # Its prior is learned, with the law of arms.
_DIRECT_FIXED = typed(DirectMLE, thompson_rounds=0, method=_FIXED)
DIRECT_MLE_FIXED = Contender("direct-mle", "DirectMLE, fixed prior", Learning(_DIRECT_FIXED))
ED_MLE_FIT = Contender("ed-mle-fit", "ED+MLE, all pairs", Fitting(typed(EDMLE)))
DIRECT_MLE_FIT = Contender("direct-mle-fit", "DirectMLE, fixed prior", Fitting(_DIRECT_FIXED))

EM_SEGMENTS = Contender("em-segments", "EM, the segment known", Segments(known=True))
EM_BLIND = Contender("em-blind", "EM, rewards alone", Segments(known=False))
BEST_FIXED_ARM = Contender("best-fixed-arm", "best fixed arm", best_fixed_arm, learns=False)
PLAN_QMDP = Contender("plan-qmdp", "Q-MDP", Planning(QMDP()), learns=False)
PLAN_LOOKAHEAD = Contender("plan-lookahead", "lookahead, 1 step", Planning(Lookahead(1)), learns=False)
PLAN_POINT_BASED = Contender("plan-point-based", "point-based", Planning(PointBased()), learns=False)
PLAN_CERTIFIED = Contender("plan-certified", "certified", Planning(Certified()), learns=False)
