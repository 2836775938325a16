"""Models that a log could have come from, what a plan is worth on them, and what replanning for each would earn.

Models around the estimate come from its Laplace approximation. With few histories the plan is written out once, and
each model improves it by one step of policy iteration. With too many histories one simulated crowd plays the plan. The
best known for a drawn model is then the plan, the best fixed choice, or the plan improved where histories that follow
the same vector are one; of a plan without vectors, such as that of a traits model with its hundreds of types, it is the
greedy policy. The crowd is the same for every model and policy, so that differences have little noise. Every drawn
traits model has one more factor, of a size that the log would not have shown, because a fit drops factors that hide in
the noise; and in half of the models the factors that live are smaller, because the size of a factor near the noise is
partly noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from .._shapes import Array, Bool, Float, Integer
from ..errors import TooLarge
from ..estimation.information import Information
from ..estimation.result import Estimate
from ..estimation.traits.coordinates import TraitCoordinates, hidden_size
from ..estimation.traits.surface import Factors
from ..estimation.type_priors import MOST_GROUPS
from ..model.bandit import LatentBandit
from ..model.categorical import Categorical
from ..model.rewards import encode_values
from ..model.type_prior import clustered, nearest
from ..planning.policies import VectorPolicy
from ..planning.problem import Plan
from ..policies.belief_policies import Greedy
from ..policies.histories import InitialStates, start_from_features
from ..policies.policy import Policy, State
from ..policies.wrappers import Relabelled
from .baselines import Baselines, Segment, segments_of
from .calibration import LEAST_MODELS
from .decision_tree import (
    Branches,
    Cut,
    DecisionTree,
    discrete,
    improved,
    improved_at_decisions,
    merged,
    only,
    unroll,
    weighed,
)

_POOL = 24  # Of many arms so many are planned with: the best of every type and on average, and as many that tell most.
_MANY = 200  # arms
_NEVER = -700.0  # logs of likelihoods below this count as this
WRITTEN_OUT = 10_000  # histories of one step, up to which a plan is written out; of more it is simulated
_CROWD = 1024  # about, and at least one of each type
_LEAST_CROWD = 64  # simulated sessions if time is short, and two of each type; intervals add the standard error
_ALIKE = 0.5  # share of the crowd that must count for a drawn model, or the plan is simulated anew for it
_FIRST_PLAY = 0.25  # share of the time that is left for simulating the plan on the estimate
_AS_LONG = 2.0  # times as long as writing out the plan takes replanning for a model, about
FLOOR = 1.0  # least information about any direction: a coordinate (a logit, say) is never less sure than +-1
Progress = Callable[[int, int, float], None]  # models planned for, models in all, and seconds that are left, about
_Model = TypeVar("_Model")
LEARNED_FLOOR = 0.25  # the same under a learned prior, which knows how far arms can be apart


class Pace:
    """Time limit and progress of replanning.

    Every set of drawn models gets an equal part of the time that is left. One of its models is planned for in any
    case, and no further one that would not be finished in time.
    """

    def __init__(
        self, time_limit: float = math.inf, progress: Progress | None = None, n_sets: int = 1, n_draws: int = 0
    ) -> None:
        self._until, self._progress = perf_counter() + time_limit, progress
        self._n_sets, self._ahead = n_sets, n_sets * n_draws
        self._planned, self._spent = 0, 0.0
        self.left_out = 0  # models that were drawn and not planned for

    @property
    def per_model(self) -> float:
        """Seconds of work for each model that take half of the time that is left, for the least number of models."""
        return 0.5 * max(self.left, 0.0) / (LEAST_MODELS * max(self._n_sets, 1))

    def affordable(self, seconds: float) -> float:
        """Return the share of some work for each model that leaves time for the least number of models.

        Args:
            seconds: time that the work takes for one model.
        """
        return min(self.per_model / seconds, 1.0) if seconds > 0 else 1.0

    @property
    def left(self) -> float:
        """Seconds until the time limit."""
        return self._until - perf_counter()

    def some(self, drawn: Iterable[_Model], n: int) -> Iterator[_Model]:
        """Yield the models of a set, n in all, as long as there is time for it."""
        began = perf_counter()
        until, self._n_sets = began + (self._until - began) / max(self._n_sets, 1), self._n_sets - 1
        start = began
        for i, model in enumerate(drawn):
            took, start = perf_counter() - start, perf_counter()
            if i > 0 and start + took > until:
                self.left_out += n - i
                self._ahead -= n - i
                return
            yield model
            self._planned, self._ahead = self._planned + 1, max(self._ahead - 1, 0)
            self._spent += perf_counter() - start
            if self._progress is not None:
                left = min(self._spent / self._planned * self._ahead, max(self._until - perf_counter(), 0.0))
                self._progress(self._planned, self._planned + self._ahead, left)


class TimedDecisions:
    """The decisions of a policy, refused with `TooLarge` as soon as they would take longer than some seconds."""

    def __init__(self, policy: Policy, seconds: float) -> None:
        self._policy, self._seconds = policy, seconds
        self._spent, self._decided = 0.0, 0
        self.adaptive, self.order_free = policy.adaptive, policy.order_free

    def start(self, n: int) -> State:
        return self._policy.start(n)

    def act(self, state: State) -> Any:
        """Decide for all rows, unless time for so many is not left, as far as decisions before tell."""
        rows = len(state.memory)
        if self._spent + rows * self._spent / max(self._decided, 1) > self._seconds:
            raise TooLarge(f"decisions after {rows:,} histories take more than the {self._seconds:.3g} s that are left")
        began = perf_counter()
        arms = self._policy.act(state)
        self._spent, self._decided = self._spent + perf_counter() - began, self._decided + rows
        return arms

    def observe(self, state: State, arm: Any, reward: Any) -> State:
        return self._policy.observe(state, arm, reward)


@dataclass(frozen=True, eq=False)
class Replanned:
    """One entry per drawn model."""

    optimum: Float[Array, "B"]  # the best known for the model: its own plan, the policy, or the best fixed choice
    value: Float[Array, "B"]  # Value of the policy on the model.
    transferred: Float[Array, "B"]  # Value of the model's own plan on the estimate.
    fixed: Float[Array, "B"]  # the best that ignores what it sees, on the model
    fixed_played: Float[Array, "B"]  # the same among the arms that the log plays, where these are enough
    unplayed: Float[Array, "B"]  # share of the optimum that is earned with arms the log never plays
    baselines: Float[Array, "B K"] | None = None  # values of further baselines on the model; None: not computed


@dataclass(frozen=True, eq=False)
class Groups:
    """The people of a plan: groups of them, and where the policy starts with each. Without features all are one."""

    start: Float[Array, "G K"]  # the policy's memory before a session
    shares: Float[Array, "G"]  # Shares of the sessions.
    priors: Float[Array, "G M"]  # weights of the types, on the estimate
    exact: bool = True  # whether people of different priors are in different groups
    of_sessions: Integer[Array, "N"] | None = None  # The group of every session of the log; None: there is one group.
    segments: tuple[Segment, ...] = ()  # weights of the types by columns that the policy does not use

    @classmethod
    def of(cls, estimate: Estimate, plan: Plan) -> Groups:
        """The people of an estimate as the policy of a plan for it knows them."""
        prior, policy = estimate.type_prior, plan.policy
        used = () if prior is None or policy.type_prior is None else prior.columns
        segments = segments_of(estimate.bandit, estimate.sessions, used)
        people = None if prior is None or policy.type_prior is None else prior.resolve_features()
        log = estimate.sessions.features if people is not None else None
        if prior is None or people is None or log is None:
            return replace(cls.alone(estimate.bandit, policy), segments=segments)
        known = prior.weights(people.features)
        centres, shares, own = clustered(known, people.shares, MOST_GROUPS)
        near = ((known - centres[own]) ** 2).sum(axis=1)
        middle = [int(np.where(own == g, near, np.inf).argmin()) for g in range(len(centres))]
        start = start_from_features(policy, len(centres), people.features.take(middle)).memory
        rows = log.only(prior.columns)
        each = nearest(prior.weights(replace(rows, rows=np.arange(rows.n_rows, dtype=np.int32))), centres)
        return cls(start, shares, centres, len(centres) == len(known), each[rows.rows], segments)

    @classmethod
    def alone(cls, bandit: LatentBandit, policy: Policy) -> Groups:
        """Everybody as one group."""
        return cls(policy.start(1).memory, np.ones(1), bandit.weights[None])

    def __len__(self) -> int:
        return len(self.shares)

    @property
    def state(self) -> State:
        return State(0, self.start, single=False)

    @property
    def mass(self) -> Float[Array, "G M"]:
        """The weights on the estimate, times the shares."""
        return self.masses(self.priors)

    def masses(self, weights: Float[Array, "*G M"]) -> Float[Array, "G M"]:
        """Weights of the groups, or of everybody, times the shares."""
        return self.shares[:, None] * np.broadcast_to(weights, (len(self), weights.shape[-1]))

    def roots(self, memory: Float[Array, "G K"], weights: Float[Array, "*G M"]) -> InitialStates:
        """Where sessions start that a policy made for these weights plays."""
        begin = memory.copy()
        begin[:, : weights.shape[-1]] = weights
        return InitialStates(State(0, begin, single=False), self.masses(weights))


class Replanner:
    """A plan for an estimate, written out once."""

    def __init__(
        self,
        bandit: LatentBandit,
        plan: Plan,
        played: Bool[Array, "A"],
        groups: Groups | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._arms, self._groups = plan.kept_arms, Groups.alone(bandit, plan.policy) if groups is None else groups
        bandit, plan, self._played = among_planned(bandit, plan, played)
        if bandit.step_effects is not None:
            raise TooLarge("histories of rewards that depend on the step are not written out")
        self._plan, self.pace = plan, pace or Pace()
        self._cut = Cut.of(bandit, plan.horizon)
        began = perf_counter()
        self.exact = self._cut is None and self._groups.exact  # nothing was cut, and nobody grouped with others
        self._bandit, self.tree = self._written_out(bandit)
        self.own = worth(self.tree, self._groups.mass, self._bandit)  # value of the policy on the estimate
        self.values = bandit.rewards.values
        self.baselines = _baselines(plan, bandit, self._groups)
        self._whole = None if self._cut is not None else (self.tree, discrete(bandit.rewards, None))
        if self._cut is None and max(len(level.arms) for level in self.tree.levels) <= len(self._groups):
            self._cut = Cut.coarse(bandit, plan.horizon)  # The plan ignores rewards, but plans for drawn models do not.
            if self._cut is not None:
                self._bandit, self.tree = self._written_out(bandit)
        self._branches = Branches.of(self.tree)
        if self.pace.affordable(_AS_LONG * (perf_counter() - began)) < 1:
            raise TooLarge("replanning with all histories for the least number of models takes more time than is left")

    def _written_out(self, bandit: LatentBandit) -> tuple[LatentBandit, DecisionTree]:
        """Return the estimate with rewards as they are cut, and the tree of the plan on it."""
        model = LatentBandit(bandit.weights, discrete(bandit.rewards, self._cut), leaving=bandit.leaving)
        roots = InitialStates(self._groups.state, self._groups.mass)
        policy = TimedDecisions(self._plan.policy, self.pace.per_model / _AS_LONG)
        return model, unroll(policy, model, self._plan.horizon, limit=WRITTEN_OUT, roots=roots)

    @property
    def stderr(self) -> float:
        """Values are exact, or as exact as the cut."""
        return 0.0

    @property
    def leaves(self) -> bool:
        """Whether people leave the estimate."""
        return self._bandit.leaving is not None

    @property
    def plays(self) -> Float[Array, "A"]:
        """How often a session plays each arm on the estimate."""
        return self.tree.plays(self._bandit.n_arms)

    def started(self, stays: Float[Array, "Z"]) -> float | None:
        """What a started session earns on the estimate, if it goes on after each value with chance `stays`."""
        if self._whole is None:
            return None
        tree, rewards = self._whole
        return weighed(self._groups.mass, tree.branches(rewards, stays=stays)[0])

    def replan(
        self, weights: Float[Array, "B *G M"], families: Sequence[Any], leaving: Sequence[Any] | None = None
    ) -> Replanned:
        """For each drawn model, as far as the time goes, one step of policy iteration from the plan."""
        families, leaving = only_planned(self._arms, families, leaving)
        drawn = self.pace.some(zip(weights, families, _or_nobody(leaving, len(families)), strict=True), len(families))
        rows = [self._one(own, discrete(family, self._cut), left) for own, family, left in drawn]
        found = Replanned(*np.array(rows).reshape(-1, 6).T)
        return replace(
            found, baselines=_beside(self.baselines, self._groups, weights[: len(rows)], families[: len(rows)], leaving)
        )

    def _one(
        self, weights: Float[Array, "*G M"], family: Categorical, left: Float[Array, "M A Z"] | None = None
    ) -> tuple[float, ...]:
        mass = self._groups.masses(weights)
        model = LatentBandit(_total(mass), family, leaving=left)
        values = self.tree.branches(family, stays=_stays(model))
        replanned = self._improved(weights, model, values)
        value, own = weighed(mass, values[0]), worth(replanned, mass, model)
        share = unplayed(replanned if own > value else self.tree, mass, model, self._played)
        transferred = worth(replanned, self._groups.mass, self._bandit)
        fixed, among_played = fixed_choices(model, self._plan, self._played)
        return max(own, value, fixed), value, transferred, fixed, among_played, share

    def _improved(
        self, weights: Float[Array, "*G M"], model: LatentBandit, values: list[Float[Array, "_ M"]]
    ) -> DecisionTree:
        """The tree of the improved plan; many arms are left out that could hardly be in it."""
        arms = self._useful(model.weights, model.means)
        branches = replace(self._branches, arms=np.searchsorted(arms, self._branches.arms))
        model = _some_arms(model, arms)
        policy = improved(model, branches, values, self._plan.horizon, repeats=self._plan.repeats)
        roots = self._groups.roots(policy.start(len(self._groups)).memory, weights)
        return unroll(policy, model, self._plan.horizon, roots=roots).renamed(arms)

    def _useful(self, weights: Float[Array, "M"], means: Float[Array, "M A"]) -> Integer[Array, "K"]:
        if means.shape[1] <= _MANY:
            return np.arange(means.shape[1])
        average = weights @ means
        scores = np.concatenate([means, average[None], (weights @ means**2 - average**2)[None]])
        best = np.argpartition(-scores, _POOL + self._plan.horizon, axis=1)[:, : _POOL + self._plan.horizon]
        return np.union1d(best.ravel(), self._branches.arms)


def worth(
    tree: DecisionTree, mass: Float[Array, "G M"], model: LatentBandit, means: Float[Array, "M A"] | None = None
) -> float:
    """What the decisions of a tree earn on a model, until people leave."""
    return tree.value(mass, model.rewards, means, _stays(model))  # type: ignore[arg-type]


def unplayed(tree: DecisionTree, mass: Float[Array, "G M"], model: LatentBandit, played: Bool[Array, "A"]) -> float:
    """The share of what a tree earns on a model that comes from arms the log never plays."""
    if played.all():
        return 0.0
    total, rest = worth(tree, mass, model), worth(tree, mass, model, np.where(played, 0.0, model.means))
    return rest / total if total > 0 else 0.0


def _baselines(plan: Plan, bandit: LatentBandit, groups: Groups) -> Baselines:
    """Return the baselines beside the best fixed arm or list, for people in these groups."""
    prior = plan.policy.type_prior if len(groups) > 1 else None
    return Baselines.of(prior, bandit.n_arms, plan.horizon, repeats=plan.repeats, segments=groups.segments)


def _beside(
    baselines: Baselines,
    groups: Groups,
    weights: Float[Array, "B *G M"],
    families: Sequence[Any],
    leaving: Sequence[Any] | None,
    step_effects: Float[Array, "H"] | None = None,
) -> Float[Array, "B K"]:
    """Return the value of each baseline on each drawn model."""
    found = np.empty((len(families), len(baselines.names)))
    for row, (own, family, left) in enumerate(zip(weights, families, _or_nobody(leaving, len(families)), strict=False)):
        mass = groups.masses(own)
        model = LatentBandit(_total(mass), family, leaving=left, step_effects=step_effects)
        found[row] = baselines.values(mass, model)
    return found


def among_planned(
    bandit: LatentBandit, plan: Plan, played: Bool[Array, "A"]
) -> tuple[LatentBandit, Plan, Bool[Array, "K"]]:
    """Restrict a bandit, its plan, and which arms were played to the arms that were planned with.

    Other arms, such as those that were withdrawn, can neither be the best fixed choice nor part of the optimum.
    """
    if plan.kept_arms is None:
        return bandit, plan, played
    some, policy = bandit.only_arms(plan.kept_arms), plan.policy
    inner = policy.policy if isinstance(policy, Relabelled) else Relabelled(policy, some.arm_labels or ())
    return some, replace(plan, policy=inner, kept_arms=None), played[list(plan.kept_arms)]


def only_planned(
    arms: tuple[int, ...] | None, families: Sequence[Any], leaving: Sequence[Any] | None
) -> tuple[Sequence[Any], Sequence[Any] | None]:
    """Restrict the rewards and the leaving of drawn models to the arms that were planned with."""
    if arms is None:
        return families, leaving
    kept = list(arms)
    return [one.only_arms(kept) for one in families], None if leaving is None else [left[:, kept] for left in leaving]


def _or_nobody(leaving: Sequence[Any] | None, n_models: int) -> Sequence[Any]:
    """The chances to leave of each drawn model; None where nobody leaves."""
    return [None] * n_models if leaving is None else leaving


def _some_arms(model: LatentBandit, arms: Integer[Array, "K"]) -> LatentBandit:
    left = None if model.leaving is None else model.leaving[:, arms]
    return replace(model, rewards=only(model.rewards, arms), arm_labels=None, leaving=left)  # type: ignore[arg-type]


def _stays(model: LatentBandit) -> Float[Array, "M A Z"] | None:
    return None if model.leaving is None else 1 - model.leaving


def _total(mass: Float[Array, "G M"]) -> Float[Array, "M"]:
    """The weights of everybody."""
    if len(mass) == 1:
        return mass[0]
    found = mass.sum(axis=0)
    return found / found.sum()


def fixed_choices(model: LatentBandit, plan: Plan, played: Bool[Array, "A"]) -> tuple[float, float]:
    """What the best choice earns that ignores what it sees, among all arms and among those that the log plays."""
    fixed = model.best_fixed(plan.horizon, plan.repeats)
    average = np.sort((model.weights @ model.means)[played])[::-1]
    if played.all() or (not plan.repeats and len(average) < plan.horizon):
        return fixed, fixed
    if model.leaving is not None or model.step_effects is not None:
        return fixed, _some_arms(model, np.flatnonzero(played)).best_fixed(plan.horizon, plan.repeats)
    return fixed, float(plan.horizon * average[0] if plan.repeats else average[: plan.horizon].sum())


class CrowdReplanner:
    """A plan with too many histories to write out: one crowd plays it on the estimate and on every drawn model.

    The best known for a drawn model is the plan, the best fixed choice, or what replanning for it finds: the plan with
    histories merged and improved, or without vectors and without repeats the greedy policy.
    """

    exact = False

    def __init__(
        self,
        bandit: LatentBandit,
        plan: Plan,
        played: Bool[Array, "A"],
        rng: np.random.Generator,
        groups: Groups | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.pace = pace or Pace()
        self._arms, self._groups = plan.kept_arms, Groups.alone(bandit, plan.policy) if groups is None else groups
        bandit, plan, played = among_planned(bandit, plan, played)
        self._bandit, self._plan, self._played, self._rng = bandit, plan, played, rng
        self.values, self.leaves = bandit.rewards.values, bandit.leaving is not None
        self.baselines = _baselines(plan, bandit, self._groups)
        self._crowds: dict[int, Crowd] = {}
        vectors = isinstance(plan.policy, VectorPolicy) and plan.repeats and bandit.rewards.discrete
        vectors = vectors and bandit.step_effects is None  # decisions of merged histories belong to no step
        self._tree = merged(plan.policy, bandit, self._groups.mass) if vectors else None  # type: ignore[arg-type]
        self._size = _CROWD if math.isinf(self.pace.left) else self._affordable_size()
        found = self._played_plan = self._play(plan.policy, bandit, self._groups.priors, self._groups.start)
        self.own, self.plays, self.stderr = found.value, found.plays, found.stderr

    def replan(
        self, weights: Float[Array, "B *G M"], families: Sequence[Any], leaving: Sequence[Any] | None = None
    ) -> Replanned:
        """For drawn models, as far as time goes, what the plan, a plan for each and the best fixed choice earn."""
        families, leaving = only_planned(self._arms, families, leaving)
        drawn = self.pace.some(zip(weights, families, _or_nobody(leaving, len(families)), strict=True), len(families))
        rows = [self._one(own, family, left) for own, family, left in drawn]
        found = Replanned(*np.array(rows).reshape(-1, 6).T)
        some, effects = slice(len(rows)), self._bandit.step_effects
        beside = _beside(self.baselines, self._groups, weights[some], families[some], leaving, effects)
        return replace(found, baselines=beside)

    def _affordable_size(self) -> int:
        """Return how many sessions can be simulated in time, judged by a crowd of the least size."""
        n_kinds = self._bandit.n_types * len(self._groups)
        self._size = least = min(max(_LEAST_CROWD, 2 * n_kinds), _CROWD)
        rng, self._rng = self._rng, self._rng.spawn(1)[0]  # so that drawing this crowd changes no later one
        began = perf_counter()
        self._played_plan = self._play(self._plan.policy, self._bandit, self._groups.priors, self._groups.start)
        played = perf_counter()
        self._one(self._groups.priors, self._bandit.rewards, self._bandit.leaving)
        one, self._crowds, self._rng = perf_counter() - played, {}, rng
        once = _FIRST_PLAY * max(self.pace.left, 0.0) / (played - began) if played > began else math.inf
        return int(np.clip(least * min(once, self.pace.per_model / one if one > 0 else math.inf), least, _CROWD))

    def started(self, stays: Float[Array, "Z"]) -> float | None:
        """What a started session earns on the estimate, if it goes on after each value with chance `stays`."""
        if not self._bandit.rewards.discrete:
            return None
        return self._play(self._plan.policy, self._bandit, self._groups.priors, self._groups.start, stays).value

    def _play(
        self,
        policy: Policy,
        model: LatentBandit,
        weights: Float[Array, "*G M"],
        start: Float[Array, "G K"],
        stays: Float[Array, "Z"] | None = None,
    ) -> Earned:
        if model.n_types not in self._crowds:
            made = Crowd.of(model.n_types, self._plan.horizon, self._rng, len(self._groups), self._size)
            self._crowds[model.n_types] = made
        mass = self._groups.masses(weights)
        return self._crowds[model.n_types].play(
            policy, model, repeats=self._plan.repeats, stays=stays, start=start, mass=mass
        )

    def _one(
        self, weights: Float[Array, "*G M"], family: Any, left: Float[Array, "M A Z"] | None = None
    ) -> tuple[float, ...]:
        mass, effects = self._groups.masses(weights), self._bandit.step_effects
        model = LatentBandit(_total(mass), family, leaving=left, step_effects=effects)
        value = self._played_plan.on(model, mass, self._bandit, self._groups.mass)
        if value is None:
            value = self._play(self._plan.policy, model, weights, self._groups.start)
        own, transferred, share = self._replanned(weights, model)
        fixed, among_played = fixed_choices(model, self._plan, self._played)
        if own <= value.value:
            share = value.share_of(~self._played)
        return max(own, value.value, fixed), value.value, transferred, fixed, among_played, share

    def _replanned(self, weights: Float[Array, "*G M"], model: LatentBandit) -> tuple[float, float, float]:
        """What a plan made for a model earns on it and on the estimate, and its share from arms never played."""
        groups = self._groups
        if self._tree is not None:
            mass = groups.masses(weights)
            tree = improved_at_decisions(self._tree, model, mass)
            there, here = worth(tree, mass, model), worth(tree, groups.mass, self._bandit)
            return there, here, unplayed(tree, mass, model, self._played)
        greedy = Greedy(model, horizon=self._plan.horizon)
        begin = groups.roots(greedy.start(len(groups)).memory, weights).state.memory
        own = self._play(greedy, model, weights, begin)
        return own.value, self._play(greedy, self._bandit, groups.priors, begin).value, own.share_of(~self._played)


class TraitsReplanner:
    """A plan for a traits estimate, with the crowd that plays it."""

    def __init__(
        self,
        estimate: Estimate,
        plan: Plan,
        played: Bool[Array, "A"],
        rng: np.random.Generator,
        groups: Groups | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._estimate, self._played = estimate, played
        self._simulated = CrowdReplanner(estimate.bandit, plan, played, rng, groups, pace)
        self._weights = estimate.bandit.weights if groups is None else groups.priors
        self.own, self.plays, self.stderr = self._simulated.own, self._simulated.plays, self._simulated.stderr
        self.started, self.values, self.leaves = self._simulated.started, self._simulated.values, False
        self.baselines = self._simulated.baselines

    def replan(self, n_draws: int, rng: np.random.Generator, backend: Any = None) -> tuple[list[Replanned], int]:
        """Two sets of models around the estimate, and how many directions the log says next to nothing about."""
        information, data = self._estimate.information(backend=backend), self._estimate.require_log()
        posterior, coordinates = laplace(information, LEARNED_FLOOR), information.coordinates
        assert isinstance(coordinates, TraitCoordinates)
        hidden = hidden_size(data, coordinates.arms.scale)
        moves = posterior.moves(n_draws, rng)
        sets = [moves, coordinates.shrunk(moves, self._shares(hidden, n_draws, rng))]
        weights = np.stack([self._weights] * n_draws)
        drawn = [self._widened(coordinates, each, hidden, rng) for each in sets]
        return [self._simulated.replan(weights, families) for families in drawn], posterior.n_floored

    def _shares(self, hidden: float, n_draws: int, rng: np.random.Generator) -> Float[Array, "B d"]:
        """How much of each live factor is there in truth: the size of one near the noise is mostly noise."""
        size = self._factors.size[self._factors.alive] * self._estimate.require_log().surface.unit
        return np.sqrt(np.maximum(1 - 2 * rng.random((n_draws, 1)) * (hidden / size) ** 2, 0.0))

    def _widened(
        self, coordinates: TraitCoordinates, moves: Float[Array, "B P"], hidden: float, rng: np.random.Generator
    ) -> list[Any]:
        """The drawn rewards, with one more factor of any size that the log would not have shown."""
        if self._factors.alive.all():
            return coordinates.moved(moves)
        sizes = hidden * rng.random((len(moves), 1))
        loadings = sizes * rng.standard_normal((len(moves), len(self._played)))
        return coordinates.with_one_more(moves, loadings, self._factors.points[:, self._factors.n_alive])

    @property
    def _factors(self) -> Factors:
        assert self._estimate.factors is not None
        return self._estimate.factors


@dataclass(frozen=True, eq=False)
class Histories:
    """The sessions that a crowd played with a policy, and how much each counts."""

    groups: Integer[Array, "n"]
    shares: Float[Array, "n"]  # sum to 1
    arms: Integer[Array, "n H"]
    rewards: Float[Array, "n H-1"]  # The last reward decides nothing.

    def reached(self, model: LatentBandit, mass: Float[Array, "G M"]) -> Float[Array, "n H M"]:
        """Return the probability of each type, and of the rewards before each step in it, for the arms played."""
        n, horizon = self.arms.shape
        each = np.empty((n, horizon - 1, model.n_types))
        for step in range(horizon - 1):
            logs = model.at(step).rewards.log_likelihood(self.arms[:, step], self.rewards[:, step])
            each[:, step] = np.exp(np.maximum(logs, _NEVER))
        before = np.concatenate([np.ones((n, 1, model.n_types)), np.cumprod(each, axis=1)], axis=1)
        return mass[self.groups][:, None] / mass.sum(axis=1)[self.groups, None, None] * before

    def stays(self, model: LatentBandit) -> Float[Array, "n H M"] | float:
        """Return the probability that a session of each type is not over before each step."""
        if model.leaving is None:
            return 1.0
        n = len(self.arms)
        each = 1 - model.leaving[:, self.arms[:, :-1], model.leaving_columns(self.rewards.ravel()).reshape(n, -1)]
        return np.cumprod(np.concatenate([np.ones((n, 1, model.n_types)), np.moveaxis(each, 0, 2)], axis=1), axis=1)


@dataclass(frozen=True, eq=False)
class Earned:
    """Of one session on average."""

    by_arm: Float[Array, "A"]  # what each arm earned
    plays: Float[Array, "A"]
    stderr: float  # Standard error of the value, because the crowd is finite.
    histories: Histories

    @property
    def value(self) -> float:
        return float(self.by_arm.sum())

    def share_of(self, arms: Bool[Array, "A"]) -> float:
        """The share of some arms in what is earned."""
        return float(self.by_arm[arms].sum() / self.value) if self.value > 0 else 0.0

    def on(
        self, model: LatentBandit, mass: Float[Array, "G M"], own: LatentBandit, own_mass: Float[Array, "G K"]
    ) -> Earned | None:
        """Return what the same policy earns on another model, from the same sessions by importance weighting.

        A session counts by how much likelier its rewards are on the model than on `own`, on which it was played. None
        if fewer than half of the sessions count effectively; then the policy must be played on the model.
        """
        if own.step_effects is not None:  # the chances of a history multiply tables that depend on no step
            return None
        seen = self.histories
        there, here = seen.reached(model, mass), seen.reached(own, own_mass)
        ratios = seen.shares[:, None] * there.sum(axis=2) / here.sum(axis=2)
        total = ratios.sum(axis=0)
        if (total**2 < _ALIKE * len(ratios) * (ratios**2).sum(axis=0)).any():
            return None
        more = self._by_arm(model, there * seen.stays(model) / (here.sum(axis=2) * total)[:, :, None])
        less = self._by_arm(own, here * seen.stays(own) / here.sum(axis=2)[:, :, None])
        return replace(self, by_arm=self.by_arm + more - less)

    def _by_arm(self, model: LatentBandit, chances: Float[Array, "n H M"]) -> Float[Array, "A"]:
        arms = self.histories.arms
        earned = self.histories.shares[:, None] * (chances * model.means.T[arms]).sum(axis=2)
        return np.bincount(arms.ravel(), earned.ravel(), minlength=len(self.by_arm))


@dataclass(frozen=True, eq=False)
class Crowd:
    """n sessions of H steps."""

    types: Integer[Array, "n"]
    groups: Integer[Array, "n"]  # The group of every person.
    luck: Float[Array, "n H"]

    @classmethod
    def of(
        cls, n_types: int, horizon: int, rng: np.random.Generator, n_groups: int = 1, size: int | None = None
    ) -> Crowd:
        """Draw about `size` sessions, as many of each type and group, every second one with reversed luck."""
        n_kinds = n_types * n_groups
        each = max(round((_CROWD if size is None else size) / n_kinds), 1)
        luck = rng.random((each, n_kinds, horizon))
        luck[1::2] = 1 - luck[: 2 * (each // 2) : 2]
        kinds = np.tile(np.arange(n_kinds), each)
        return cls(kinds % n_types, kinds // n_types, luck.reshape(-1, horizon))

    def play(
        self,
        policy: Policy,
        model: LatentBandit,
        *,
        repeats: bool,
        stays: Float[Array, "Z"] | None = None,
        start: Float[Array, "G K"] | None = None,
        mass: Float[Array, "G M"] | None = None,
    ) -> Earned:
        """What a session earns under the policy where the model is true.

        After each value a session goes on with chance `stays`, where this is given: it then counts that much less. So
        it does where people leave the model.
        Groups of people have the policy's memory `start` before the first step, and the weights `mass`, which sum to 1
        in all.
        """
        n, horizon = self.luck.shape
        everyone, n_arms = np.arange(n), model.n_arms
        state = policy.start(n) if start is None else State(0, start[self.groups], single=False)
        mass = model.weights[None] if mass is None else mass
        left: Bool[Array, "n A"] = np.ones((n, n_arms), bool)
        shares = mass[self.groups, self.types] * (mass.size / n)
        paid, plays, sums = np.zeros(n_arms), np.zeros(n_arms), np.zeros(n)
        seen = Histories(self.groups, shares, np.zeros((n, horizon), np.int64), np.zeros((n, horizon - 1)))
        for step in range(horizon):
            arms = np.asarray(policy.act(state) if repeats else policy.act(state, allowed=left))
            left[everyone, arms] = False
            seen.arms[:, step] = arms
            now = model.at(step)
            earned = shares * now.means[self.types, arms]
            sums += earned
            paid += np.bincount(arms, earned, minlength=n_arms)
            plays += np.bincount(arms, shares, minlength=n_arms)
            if step < horizon - 1:
                rewards = seen.rewards[:, step] = now.rewards.quantile(self.types, arms, self.luck[:, step])
                state = policy.observe(state, arms, rewards)
                if model.leaving is not None:
                    shares = shares * (1 - model.leaving[self.types, arms, model.leaving_columns(rewards)])
                elif stays is not None and model.rewards.values is not None:
                    shares = shares * stays[encode_values(model.rewards.values, rewards)]
        kinds = self.groups * model.n_types + self.types
        means = np.bincount(kinds, sums) / np.bincount(kinds)
        return Earned(paid, plays, float(np.sqrt(((sums - means[kinds]) ** 2).sum())), seen)


@dataclass(frozen=True, eq=False)
class Laplace:
    """A normal distribution over the coordinates of a bandit."""

    information: Information
    eigenvalues: Float[Array, "P"]  # Eigenvalues of the information, before any is raised to the floor.
    eigenvectors: Float[Array, "P P"]
    floor: float = FLOOR

    @property
    def n_parameters(self) -> int:
        return len(self.eigenvalues)

    @property
    def n_floored(self) -> int:
        """Directions that the log says next to nothing about."""
        return int((self.eigenvalues < self.floor).sum())

    def moves(self, n_draws: int, rng: np.random.Generator) -> Float[Array, "B P"]:
        """Coordinates of models that the log could have come from."""
        noise = rng.standard_normal((n_draws, self.n_parameters))
        return noise / np.sqrt(np.maximum(self.eigenvalues, self.floor)) @ self.eigenvectors.T

    def draw(self, n_draws: int, rng: np.random.Generator) -> tuple[Float[Array, "B M"], list[Any]]:
        """Weights and rewards (of the bandit's family) of models that the log could have come from."""
        moves, coordinates = self.moves(n_draws, rng), self.information.coordinates
        return coordinates.moved_weights(moves), coordinates.moved(moves)


def laplace(information: Information, floor: float = FLOOR) -> Laplace:
    """The Laplace approximation around the bandit that the information is about."""
    return Laplace(information, *np.linalg.eigh(information.matrix), floor)
