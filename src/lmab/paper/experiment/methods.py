"""Settings and trials as data with an id, and the methods that studies compare on them.

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
from ...model.gaussian import Gaussian
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
from . import rates

SEED = 20221003  # The seed of everything; rows carry it.
_NO_DIRECTION = 1e-9  # Singular values below this part of the largest are rounding.


@dataclass(frozen=True)
class Setting:
    """A kind of instance, its size, and the budget of a learner."""

    kind: str  # a kind of `random_bandit`, or one of `KINDS` below
    n_types: int
    n_arms: int
    horizon: int
    n_sessions: int = 0  # 0: nothing is learned
    separation: float = 0.0  # how far types are apart: gamma of appendix C, s of "apart", sigma of "perturbed"

    @property
    def id(self) -> str:
        separation = f"-g{self.separation:g}" if self.separation else ""
        return f"{self.kind}{separation}-M{self.n_types}-A{self.n_arms}-H{self.horizon}-N{self.n_sessions}"

    @property
    def instance(self) -> Setting:
        """Return the setting without the budget, which determines the truth."""
        return replace(self, n_sessions=0)

    def draw(self, instance: int) -> LatentBandit:
        """Return the bandit number `instance`, the same for every horizon and budget."""
        rng = generator(instance, "bandit")
        if self.kind in KINDS:
            return KINDS[self.kind](self, rng)
        return random_bandit(self.n_types, self.n_arms, kind=self.kind, rng=rng)


def generator(instance: int, use: str) -> np.random.Generator:
    """Return the generator for one use within one instance, which all methods share for paired comparisons."""
    uses = ("bandit", "environment", "learner", "evaluation")
    return np.random.default_rng((SEED, instance, uses.index(use)))


def on_a_line(n_types: int, n_arms: int, rng: np.random.Generator) -> LatentBandit:
    """Return types on a line: means 1/2 + c_a * x_m with scalar positions x_m. Sessions show moments of x alone.

    A distribution on M points of a line is fixed by its first 2M-1 moments and by no fewer: the sharpest case of the
    paper's two regimes.
    """
    line = Line.draw(n_types, n_arms, rng)
    return LatentBandit.bernoulli(line.weights, np.clip(0.5 + line.positions[:, None] * line.slopes, 0.01, 0.99))


@dataclass(frozen=True, eq=False)
class Line:
    """Parameters of a bandit on a line."""

    positions: Float[Array, "M"]  # rising
    slopes: Float[Array, "A"]
    weights: Float[Array, "M"]

    @classmethod
    def draw(cls, n_types: int, n_arms: int, rng: np.random.Generator) -> Line:
        positions = np.linspace(-1, 1, n_types) + rng.uniform(-0.1, 0.1, n_types)
        slopes = rng.choice((-1.0, 1.0), n_arms) * rng.uniform(0.2, 0.45, n_arms)
        return cls(positions, slopes, rng.dirichlet(np.full(n_types, 20.0)))


def clipped(n_types: int, n_arms: int, rng: np.random.Generator) -> LatentBandit:
    """Return normal factors of rank 4, clipped to probabilities: a rank of "roughly 4", as in the paper."""
    factors, loadings = rng.standard_normal((n_types, 4)), rng.standard_normal((4, n_arms))
    means = np.clip(0.5 + 0.25 * factors @ loadings, 0.02, 0.98)
    return LatentBandit.bernoulli(np.full(n_types, 1 / n_types), means)


def separated(n_types: int, n_arms: int, separation: float, rng: np.random.Generator) -> LatentBandit:
    """Return types that differ by exactly `separation` (in l1, as in appendix C) on about half of the arms."""
    base = rng.uniform(0.3, 0.7, n_arms)
    signs: Float[Array, "M A"] = rng.choice((-1.0, 1.0), (n_types, n_arms))
    return LatentBandit.bernoulli(np.full(n_types, 1 / n_types), base + signs * separation / 4)


def uniform(n_types: int, n_arms: int, rng: np.random.Generator) -> LatentBandit:
    """Return types of equal weight with independent, uniform means."""
    return LatentBandit.bernoulli(np.full(n_types, 1 / n_types), rng.uniform(0.1, 0.9, (n_types, n_arms)))


def one_arm_apart(n_arms: int, rng: np.random.Generator) -> LatentBandit:
    """Return two types that differ by .6 on the first arm, and by .6 / sqrt(A) on each other arm."""
    half: Float[Array, "A"] = 0.3 / np.sqrt(n_arms) * rng.choice((-1.0, 1.0), n_arms)
    half[0] = 0.3
    return LatentBandit.bernoulli([0.5, 0.5], [0.5 + half, 0.5 - half])


def perturbed(n_types: int, n_arms: int, size: float, rng: np.random.Generator) -> LatentBandit:
    """Return types on a line, each mean moved by normal noise of this size: smoothed analysis (section 4.1)."""
    line = on_a_line(n_types, n_arms, rng)
    means = np.clip(line.means + size * rng.standard_normal((n_types, n_arms)), 0.01, 0.99)
    return LatentBandit.bernoulli(line.weights, means)


def gaussian(n_types: int, n_arms: int, rng: np.random.Generator) -> LatentBandit:
    """Return normal rewards of variance 1 with means in [-1, 1] (Assumption B.1)."""
    return LatentBandit.gaussian(np.full(n_types, 1 / n_types), rng.uniform(-1, 1, (n_types, n_arms)))


def valued(n_types: int, n_arms: int, n_values: int, rng: np.random.Generator) -> LatentBandit:
    """Return rewards on `n_values` values from 0 to 1, with probabilities that are uniform on the simplex."""
    table = rng.dirichlet(np.ones(n_values), (n_types, n_arms))
    return LatentBandit.categorical(np.full(n_types, 1 / n_types), table, np.linspace(0, 1, n_values))


def _valued(n_values: int, setting: Setting, rng: np.random.Generator) -> LatentBandit:
    return valued(setting.n_types, setting.n_arms, n_values, rng)


KINDS: Mapping[str, Callable[[Setting, np.random.Generator], LatentBandit]] = {
    "line": lambda setting, rng: on_a_line(setting.n_types, setting.n_arms, rng),
    "clipped": lambda setting, rng: clipped(setting.n_types, setting.n_arms, rng),
    "separated": lambda setting, rng: separated(setting.n_types, setting.n_arms, setting.separation, rng),
    "uniform": lambda setting, rng: uniform(setting.n_types, setting.n_arms, rng),
    "apart": lambda setting, rng: rates.apart(setting.n_types, setting.n_arms, setting.separation),
    "one-arm-apart": lambda setting, rng: one_arm_apart(setting.n_arms, rng),
    "perturbed": lambda setting, rng: perturbed(setting.n_types, setting.n_arms, setting.separation, rng),
    "gaussian": lambda setting, rng: gaussian(setting.n_types, setting.n_arms, rng),
    **{f"values-{n_values}": partial(_valued, n_values) for n_values in (2, 3, 5)},
}


@dataclass(frozen=True)
class Measurement:
    """Result of one trial; None if a field does not apply."""

    value: float | None  # expected reward of a session on the true bandit, certified planner (or the method's policy)
    value_qmdp: float | None = None  # the same with the paper's planner
    stderr: float = 0.0  # Standard error of `value`; 0 when exact.
    lower: float | None = None  # proved by the planner, on the model that it planned for
    upper: float | None = None
    distance: float | None = None  # Distance of the learned model to the true one (Wasserstein).
    sessions_used: int = 0
    seconds_learning: float = 0.0
    seconds_planning: float = 0.0
    note: str = ""  # message of the planner or the learner
    error: float | None = None  # of an estimate, as the method defines it (studies of rates)


@dataclass(frozen=True)
class Contender:
    """A named way to act or to estimate: `measure(setting, bandit, instance)`; `learns`: it depends on the budget.

    If the results of a method change, it gets a higher `revision`: its stored rows no longer count, all others do.
    """

    name: str
    label: str  # in figures and tables
    measure: Callable[[Setting, LatentBandit, int], Measurement]
    learns: bool = True
    revision: int = 1
    color: str = "#666666"  # of its curves, the same in every figure
    marker: str = "o"


@dataclass(frozen=True)
class Trial:
    """One method on one instance of one setting: the unit of work, and one row."""

    setting: Setting
    instance: int
    method: Contender

    @classmethod
    def of(cls, setting: Setting, instance: int, method: Contender) -> Trial:
        """Return the trial; a method that learns nothing is run once for all budgets."""
        return cls(setting if method.learns else setting.instance, instance, method)

    @property
    def id(self) -> str:
        revision = f"@{self.method.revision}" if self.method.revision > 1 else ""
        return f"{self.setting.id}/{self.instance:02d}/{self.method.name}{revision}"


PLANNING_SECONDS = 20.0  # a plan's time limit in the study of planners
_SESSIONS = 200_000  # simulated if the exact value is out of reach; stored rows depend on it


def planning_seconds(setting: Setting, learner: Learner) -> float:
    """Return a plan's limit, in processor seconds; the genie, by which all are measured, has five times as much."""
    easy = setting.n_types <= 5 and setting.n_arms <= 100 and setting.horizon <= 10
    return (1.0 if easy else 3.0) * (5.0 if isinstance(learner, Genie) else 1.0)


def value_of(policy: Policy, bandit: LatentBandit, horizon: int, instance: int) -> Evaluation:
    """Return the exact value, or a simulated one on shared sessions if there are too many histories."""
    rng = generator(instance, "evaluation")
    return evaluation.value_of(policy, bandit, horizon=horizon, n_sessions=_SESSIONS, rng=rng)


class ProcessorClock(Clock):
    """A clock that stands still while its process waits, so that rows do not depend on the load of the machine."""

    def __init__(self, time_limit: float) -> None:
        super().__init__(time_limit)
        self._began = time.process_time()

    @property
    def seconds(self) -> float:
        """Return processor seconds since the run began."""
        return time.process_time() - self._began


class ByProcessor(Certified):
    """The certified planner with its time limit in processor seconds."""

    def solve(self, problem: Problem, clock: Clock) -> Plan:
        return super().solve(problem, ProcessorClock(clock.time_limit))


@dataclass(frozen=True)
class Learning:
    """Measurement of a learner in a simulator of the bandit; one learned model serves both planners."""

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
            rewards="gaussian" if isinstance(bandit.rewards, Gaussian) else None,
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
            distance=_distance(bandit, learned.bandit),
            sessions_used=learned.sessions_used,
            seconds_learning=seconds - planned,
            seconds_planning=planned,
            note="" if learned.plan is None else learned.plan.status,
        )


def _distance(bandit: LatentBandit, learned: LatentBandit | None) -> float | None:
    """Return the distance of a learned model; None for one of another family, such as normal rewards in bins."""
    return None if learned is None or type(learned.rewards) is not type(bandit.rewards) else bandit.distance(learned)


@dataclass(frozen=True)
class Fitting:
    """Measurement of the learned parameters alone, if sessions are too long to plan and evaluate."""

    learner: Callable[[Setting, LatentBandit], Learner]
    apart: int = 0  # sessions of step 1, beside the N of step 2

    def __call__(self, setting: Setting, bandit: LatentBandit, instance: int) -> Measurement:
        environment = Simulator(bandit, horizon=setting.horizon, rng=generator(instance, "environment"))
        start = time.process_time()
        rng = generator(instance, "learner")
        learner = self.learner(setting, bandit)
        learned = learn(environment, learner, n_sessions=self.apart + setting.n_sessions, rng=rng, planner=QMDP())
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
    """Measurement of a fit if a segment changes the probabilities of the types; `known`: the segment is a feature."""

    known: bool

    def __call__(self, setting: Setting, bandit: LatentBandit, instance: int) -> Measurement:
        rng = generator(instance, "environment")
        mixtures = rng.dirichlet(np.full(setting.n_types, 0.3), _SEGMENTS)
        prior = TypePrior.by_value("segment", {str(number): each for number, each in enumerate(mixtures)})
        log = simulate(bandit, Uniform(bandit.n_arms), n_sessions=setting.n_sessions, horizon=setting.horizon,
                       type_prior=prior, rng=rng)  # fmt: skip
        log = log if self.known else replace(log, features=None)
        start = time.process_time()
        result = fit(log, n_types=setting.n_types, method=EM(restarts=8, prior=1.0), check=False,
                    rng=generator(instance, "learner"))  # fmt: skip
        truth = replace(bandit, weights=mixtures.mean(axis=0) / mixtures.mean(axis=0).sum())
        return Measurement(
            None,
            distance=truth.distance(result.bandit),
            sessions_used=setting.n_sessions,
            seconds_learning=time.process_time() - start,
            note="known before" if result.type_prior is not None else "",
        )


@dataclass(frozen=True)
class Erring:
    """Measurement of the error of an estimate, `error(setting, bandit, rng)`, which no policy follows."""

    error: Callable[[Setting, LatentBandit, np.random.Generator], float]

    def __call__(self, setting: Setting, bandit: LatentBandit, instance: int) -> Measurement:
        start = time.process_time()
        error = self.error(setting, bandit, generator(instance, "environment"))
        return Measurement(
            None, sessions_used=setting.n_sessions, seconds_learning=time.process_time() - start, error=error
        )


def _parameter_error(setting: Setting, bandit: LatentBandit, rng: np.random.Generator) -> float:
    return rates.parameter_error(bandit, setting.horizon, setting.n_sessions, rng)


def _value_error(setting: Setting, bandit: LatentBandit, rng: np.random.Generator) -> float:
    return rates.value_error(bandit, setting.horizon, setting.n_sessions, rng)


def _coordinate_error(
    setting: Setting, bandit: LatentBandit, rng: np.random.Generator, *, order: int, rebuilt: bool
) -> float:
    return rates.coordinate_error(bandit, order, setting.n_sessions, rebuilt=rebuilt)


def _core_error(setting: Setting, bandit: LatentBandit, rng: np.random.Generator, *, order: int) -> float:
    return rates.core_error(bandit, order, setting.n_sessions)


@dataclass(frozen=True)
class Likelihood:
    """Comparison of EM on uniform plays with EM that starts from the truth.

    `error` is how much lower the log-likelihood per session is than from the truth, at least 0: EM missed the maximum.
    """

    method: EM

    def __call__(self, setting: Setting, bandit: LatentBandit, instance: int) -> Measurement:
        log = simulate(bandit, Uniform(bandit.n_arms), n_sessions=setting.n_sessions, horizon=setting.horizon,
                       rng=generator(instance, "environment"))  # fmt: skip
        start = time.process_time()
        result = fit(log, n_types=setting.n_types, method=self.method, values=[0, 1], check=False,
                    rng=generator(instance, "learner"))  # fmt: skip
        seconds = time.process_time() - start
        best = fit(log, n_types=setting.n_types, method=replace(self.method, restarts=1), values=[0, 1], check=False,
                   start=bandit, rng=generator(instance, "learner"))  # fmt: skip
        missed = max(best.log_likelihood - result.log_likelihood, 0.0) / setting.n_sessions
        return Measurement(
            None,
            distance=bandit.distance(result.bandit),
            sessions_used=setting.n_sessions,
            seconds_learning=seconds,
            error=missed,
        )


@dataclass(frozen=True)
class Planning:
    """Measurement of a planner on the true bandit; the value is that of the policy, the bounds are the planner's."""

    method: Planner

    def __call__(self, setting: Setting, bandit: LatentBandit, instance: int) -> Measurement:
        result = plan(bandit, horizon=setting.horizon, method=self.method, time_limit=PLANNING_SECONDS)
        value = value_of(result.policy, bandit, setting.horizon, instance)
        return Measurement(
            value.mean,
            stderr=value.stderr,
            lower=result.lower,
            upper=result.upper,
            seconds_planning=result.trace[-1].seconds,  # without compilation
            note=result.status,
        )


def best_fixed_arm(setting: Setting, bandit: LatentBandit, instance: int) -> Measurement:
    """Return the value of the best policy that ignores types."""
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
    """Return ED+MLE that is given the span of the true types."""
    assert isinstance(bandit.rewards, Categorical)
    basis, singular, _ = np.linalg.svd(bandit.rewards.table, full_matrices=False)
    rank = int((singular > _NO_DIRECTION * singular[0]).sum())
    return EDMLE(setting.n_types, space=Subspace(basis[:, :rank], singular**2, bandit.n_arms, bandit.rewards.values))


def _ed_mle_apart(setting: Setting, bandit: LatentBandit, times: int, pairs: str) -> Learner:
    """Return ED+MLE with separate sessions for step 1: `times` N, in addition to the N of step 2."""
    return EDMLE(setting.n_types, pairs=pairs, explore=times * setting.n_sessions)


def typed(make: Callable[..., Learner], **options: Any) -> Callable[[Setting, LatentBandit], Learner]:
    """Return `make(n_types, **options)` for the number of types of a setting; it can be pickled."""
    return partial(_learner, make, **options)


_FIXED = EM(restarts=8, tolerance=1e-6, prior=1.5)
_LIKELIHOOD = EM(restarts=8, tolerance=1e-7, prior=0.0)
_TENSORS = TensorDecomposition(features="free")
_PUBLISHED: Mapping[str, Any] = {"refit": False, "bonus": 1.0, "method": _TENSORS}
_DIRECT_FIXED = typed(DirectMLE, thompson_rounds=0, method=_FIXED)
_STEP_1 = 5_000  # sessions of step 1 if only step 2 counts

# The colours stay apart for colour-blind readers (Okabe and Ito).
GENIE = Contender("genie", "genie", Learning(_genie), learns=False, color="#000000", marker="")
UCB1 = Contender("ucb", "UCB", Learning(_ucb), color="#999999", marker="x")
TENSOR = Contender("tensor", "tensor", Learning(typed(Tensor)), color="#CC79A7", marker="^")
TENSOR_PAIRS = Contender(
    "tensor-pairs", "tensor on pairs", Learning(typed(Tensor, method=TensorDecomposition(features="pairs"))),
    color="#882255", marker="v",
)  # fmt: skip
ED_MOMENTS = Contender(
    "ed-moments", "ED+moments", Learning(typed(EDMoments)), revision=3, color="#E69F00", marker="h"
)  # The fit chooses the weight.
ED_MOMENTS_EVENTS = Contender(
    "ed-moments-events", "ED+moments, events", Learning(typed(EDMoments, events="events")), color="#B35900", marker="H"
)
HISTORY = Contender("history-ucbvi", "history MDP", Learning(_history), color="#999999", marker="x")

# L-UCRL: posteriors taken once, as published; then EM over the same sessions; and refitted in rounds, which is ours.
L_UCRL_PUBLISHED = Contender(
    "l-ucrl-published", "L-UCRL as published", Learning(typed(LUCRL, **_PUBLISHED)), color="#117733", marker="s"
)
L_UCRL_PASSES = tuple(
    Contender(
        f"l-ucrl-passes-{n}", f"L-UCRL, then {n} pass{'es' * (n > 1)}", Learning(typed(LUCRL, sweeps=n, **_PUBLISHED)),
        color=color, marker=marker,
    )
    for n, color, marker in ((1, "#66A61E", "1"), (5, "#A6D854", "2"), (75, "#B3A000", "3"))
)  # fmt: skip
L_UCRL = Contender("l-ucrl", "L-UCRL, refitted", Learning(typed(LUCRL)), color="#009E73", marker="P")
L_UCRL_TENSOR = Contender(
    "l-ucrl-tensor", "L-UCRL, refitted, tensor start", Learning(typed(LUCRL, method=_TENSORS)), color="#44AA99",
    marker="X",
)  # fmt: skip

# ED+MLE: second moments of the first two steps, as printed, or of all pairs, which is ours; and other levers.
ED_MLE = Contender("ed-mle", "ED+MLE, all pairs", Learning(typed(EDMLE)), color="#0072B2", marker="D")
ED_MLE_LITERAL = Contender(
    "ed-mle-literal", "ED+MLE as printed", Learning(typed(EDMLE, pairs="first-two")), color="#56B4E9"
)
ED_MLE_RANK_4 = Contender(
    "ed-mle-rank-4", "ED+MLE as printed, rank 4", Learning(typed(EDMLE, pairs="first-two", rank=4)), color="#E7298A",
    marker="H",
)  # fmt: skip
ED_MLE_KNOWN = Contender("ed-mle-known", "ED+MLE, true subspace", Learning(_ed_mle_known), color="#882255", marker="p")
ED_MLE_APART = {
    (times, pairs): Contender(
        f"ed-mle-{pairs}-apart-{times}",
        f"ED+MLE, {'all pairs' if pairs == 'all' else 'as printed'}, step 1 with {'' if times == 1 else times}N more",
        Learning(partial(_ed_mle_apart, times=times, pairs=pairs), times=1 + times),
        color=color,
        marker="<" if pairs == "first-two" else ">",
    )
    for (times, pairs), color in {
        (1, "first-two"): "#9E9AC8", (1, "all"): "#2171B5", (5, "first-two"): "#6A51A3", (5, "all"): "#08306B",
    }.items()
}  # fmt: skip
ED_MLE_EVENTS = Contender(
    "ed-mle-events", "ED+MLE, events", Learning(typed(EDMLE, events="events")), color="#003F63", marker="d"
)
ED_MLE_FIT = Contender("ed-mle-fit", "ED+MLE, all pairs", Fitting(typed(EDMLE)), color="#0072B2")
ED_MLE_CORE_FIT = Contender(
    "ed-mle-core-fit", "ED+MLE, N core plays", Fitting(typed(EDMLE, explore=_STEP_1), apart=_STEP_1), color="#08306B"
)

DIRECT_MLE = Contender(
    "direct-mle", "DirectMLE, uniform play", Learning(typed(DirectMLE, thompson_rounds=0)), revision=4,
    color="#D55E00", marker="*",
)  # fmt: skip  # Its prior is learned, with the law of arms.
DIRECT_MLE_FIXED = Contender(
    "direct-mle", "DirectMLE, fixed prior", Learning(_DIRECT_FIXED), color="#D55E00", marker="*"
)
DIRECT_MLE_FIT = Contender("direct-mle-fit", "DirectMLE, fixed prior", Fitting(_DIRECT_FIXED), color="#D55E00")

EM_SEGMENTS = Contender(
    "em-segments", "EM with the segment as a feature", Segments(known=True), color="#0072B2", marker="D"
)
EM_BLIND = Contender("em-blind", "EM on rewards alone", Segments(known=False), color="#D55E00")
BEST_FIXED_ARM = Contender("best-fixed-arm", "best fixed arm", best_fixed_arm, learns=False, color="#999999")
PLAN_QMDP = Contender("plan-qmdp", "Q-MDP", Planning(QMDP()), learns=False, color="#E69F00")
PLAN_LOOKAHEAD = Contender("plan-lookahead", "lookahead, 1 step", Planning(Lookahead(1)), learns=False, color="#56B4E9")
PLAN_POINT_BASED = Contender("plan-point-based", "point-based", Planning(PointBased()), learns=False, color="#CC79A7")
PLAN_CERTIFIED = Contender("plan-certified", "certified", Planning(Certified()), learns=False, color="#0072B2")

# Estimates of the studies of rates.
_ORDERS = ((1, "o"), (2, "s"), (3, "^"))
ONE_ARM = Contender("moments-one-arm", "parameters of one arm", Erring(_parameter_error), color="#0072B2")
TWO_ARMS = Contender("likelihood-two-arms", "values on two arms", Erring(_value_error), color="#D55E00", marker="s")
COORDINATES = {
    order: Contender(
        f"coordinates-{order}", f"coordinates, order {order}",
        Erring(partial(_coordinate_error, order=order, rebuilt=False)), color="#D55E00", marker=marker,
    )
    for order, marker in _ORDERS
}  # fmt: skip
REBUILT = {
    order: Contender(
        f"rebuilt-{order}", f"arms from coordinates, order {order}",
        Erring(partial(_coordinate_error, order=order, rebuilt=True)), color="#E69F00", marker=marker,
    )
    for order, marker in _ORDERS
}  # fmt: skip
CORE = {
    order: Contender(
        f"core-{order}", f"arms from the core set, order {order}", Erring(partial(_core_error, order=order)),
        color="#0072B2", marker=marker,
    )
    for order, marker in _ORDERS
}  # fmt: skip
LIKELIHOOD = Contender("em-likelihood", "EM on all arms", Likelihood(_LIKELIHOOD), color="#009E73")
