"""What is measured: settings and trials as data with an id, and the methods that studies compare on them.

All randomness follows from the id of a trial.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from .. import evaluation
from .._shapes import Array, Float
from ..estimation.em import EM
from ..estimation.tensor_decomposition import TensorDecomposition
from ..evaluation.value import Evaluation
from ..learning.baselines import UCB, Genie, Tensor
from ..learning.designed import EDMLE, EDMoments
from ..learning.direct_mle import DirectMLE
from ..learning.history_ucbvi import HistoryUCBVI
from ..learning.l_ucrl import LUCRL
from ..learning.learner import Learner
from ..learning.run import learn
from ..model.bandit import LatentBandit
from ..model.instances import random_bandit
from ..planning.certified import Certified
from ..planning.lookahead import QMDP, Lookahead
from ..planning.plan import Planner, plan
from ..planning.point_based import PointBased
from ..planning.problem import Clock, Plan, Problem
from ..policies.policy import Policy
from ..policies.small import Greedy
from ..simulation import Simulator

SEED = 20221003  # of everything; rows carry it


@dataclass(frozen=True)
class Setting:
    """A kind of instance, its size, and what a learner may spend on it."""

    kind: str  # of `random_bandit`, or "line" or "separated", below
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
        if self.kind == "separated":
            return separated(self.n_types, self.n_arms, self.separation, rng)
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
    stderr: float = 0.0  # of `value`; 0 when exact
    lower: float | None = None  # proved by the planner, on the model that it planned for
    upper: float | None = None
    distance: float | None = None  # of the learned model to the true one (Wasserstein)
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

    def __call__(self, setting: Setting, bandit: LatentBandit, instance: int) -> Measurement:
        environment = Simulator(bandit, horizon=setting.horizon, rng=generator(instance, "environment"))
        learner = self.learner(setting, bandit)
        start = time.process_time()
        learned = learn(
            environment,
            learner,
            n_sessions=max(setting.n_sessions, 1),
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


def _genie(setting: Setting, bandit: LatentBandit) -> Learner:
    return Genie(bandit)


def _ucb(setting: Setting, bandit: LatentBandit) -> Learner:
    return UCB()


def _tensor(setting: Setting, bandit: LatentBandit) -> Learner:
    return Tensor(setting.n_types)


def _tensor_pairs(setting: Setting, bandit: LatentBandit) -> Learner:
    return Tensor(setting.n_types, method=TensorDecomposition(features="pairs"))


def _ed_moments(setting: Setting, bandit: LatentBandit) -> Learner:
    return EDMoments(setting.n_types)


def _lucrl(setting: Setting, bandit: LatentBandit) -> Learner:
    return LUCRL(setting.n_types)


def _lucrl_tensor(setting: Setting, bandit: LatentBandit) -> Learner:
    return LUCRL(setting.n_types, method=TensorDecomposition(features="free"))


def _lucrl_plain(setting: Setting, bandit: LatentBandit) -> Learner:
    return LUCRL(setting.n_types, prior=1e-6)


def _lucrl_once(setting: Setting, bandit: LatentBandit) -> Learner:
    return LUCRL(setting.n_types, sweeps=1)


def _ed_mle_half(setting: Setting, bandit: LatentBandit) -> Learner:
    return EDMLE(setting.n_types, split=0.5)


def _ed_mle_full(setting: Setting, bandit: LatentBandit) -> Learner:
    return EDMLE(setting.n_types, likelihood="full")


def _history(setting: Setting, bandit: LatentBandit) -> Learner:
    return HistoryUCBVI()


def _ed_mle(setting: Setting, bandit: LatentBandit) -> Learner:
    return EDMLE(setting.n_types)


def _ed_mle_literal(setting: Setting, bandit: LatentBandit) -> Learner:
    return EDMLE(setting.n_types, pairs="first-two")


def _direct_mle(setting: Setting, bandit: LatentBandit) -> Learner:
    return DirectMLE(setting.n_types, thompson_rounds=0)


def _direct_mle_fixed(setting: Setting, bandit: LatentBandit) -> Learner:
    return DirectMLE(setting.n_types, thompson_rounds=0, method=EM(restarts=8, tolerance=1e-6, prior=1.5))


GENIE = Contender("genie", "genie", Learning(_genie), learns=False)
UCB1 = Contender("ucb", "UCB", Learning(_ucb))
TENSOR = Contender("tensor", "tensor", Learning(_tensor))
TENSOR_PAIRS = Contender("tensor-pairs", "tensor on pairs", Learning(_tensor_pairs))
ED_MOMENTS = Contender("ed-moments", "ED+moments", Learning(_ed_moments), revision=2)  # bounds by each weight
L_UCRL = Contender("l-ucrl", "L-UCRL", Learning(_lucrl))
L_UCRL_TENSOR = Contender("l-ucrl-tensor", "L-UCRL, tensor start", Learning(_lucrl_tensor))
L_UCRL_PLAIN = Contender("l-ucrl-plain", "L-UCRL, no prior", Learning(_lucrl_plain))
L_UCRL_ONCE = Contender("l-ucrl-once", "L-UCRL, one sweep", Learning(_lucrl_once))
ED_MLE = Contender("ed-mle", "ED+MLE, all pairs", Learning(_ed_mle))
ED_MLE_HALF = Contender("ed-mle-half", "ED+MLE, half for the core set", Learning(_ed_mle_half))
ED_MLE_FULL = Contender("ed-mle-full", "ED+MLE, full likelihood", Learning(_ed_mle_full))
ED_MLE_LITERAL = Contender("ed-mle-literal", "ED+MLE as printed", Learning(_ed_mle_literal))
HISTORY = Contender("history-ucbvi", "history MDP", Learning(_history))
DIRECT_MLE = Contender(
    "direct-mle", "DirectMLE, uniform play", Learning(_direct_mle), revision=2
)  # its prior is learned
DIRECT_MLE_FIXED = Contender("direct-mle", "DirectMLE, fixed prior", Learning(_direct_mle_fixed))
ED_MLE_FIT = Contender("ed-mle-fit", "ED+MLE, all pairs", Fitting(_ed_mle))
DIRECT_MLE_FIT = Contender("direct-mle-fit", "DirectMLE, fixed prior", Fitting(_direct_mle_fixed))

BEST_FIXED_ARM = Contender("best-fixed-arm", "best fixed arm", best_fixed_arm, learns=False)
PLAN_QMDP = Contender("plan-qmdp", "Q-MDP", Planning(QMDP()), learns=False)
PLAN_LOOKAHEAD = Contender("plan-lookahead", "lookahead, 1 step", Planning(Lookahead(1)), learns=False)
PLAN_POINT_BASED = Contender("plan-point-based", "point-based", Planning(PointBased()), learns=False)
PLAN_CERTIFIED = Contender("plan-certified", "certified", Planning(Certified()), learns=False)
