"""Is there anything latent to learn here? Held-out checks of a model, and what a log can identify at all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._html import count, percent
from .._shapes import Array, Bool, Float, Integer
from ..checks import Rng, check_count, check_rng
from ..data.packed import Packed
from ..data.sessions import Sessions, require_log, sample_rows
from ..errors import InvalidArgument, LmabError
from ..estimation.check import Calibration, Check, Gain, Replay
from ..estimation.em import EM
from ..estimation.families import observe
from ..estimation.log import Observations
from ..estimation.result import Estimate, Estimator
from ..estimation.traits.traits import GENEROSITY, Traits
from ..model import belief
from ..model.bandit import LatentBandit, arm_label
from ..model.rewards import index_among
from ..moments.core_set import design
from ..moments.second import subspace
from ..policies.policy import best_allowed

_SESSIONS = 100_000  # of a larger log are looked at
_HELD_OUT = 0.2
_BINS = 10
_ENOUGH = 100_000  # sessions over which folds are held out in turn
_METHOD = EM(restarts=8, tolerance=1e-6, prior="learned")
_TRAITS = Traits(n_points=128)  # that types are compared with
_PLAYS = 30  # of an arm, in the rarest type, below which it is hardly known there
_CELLS = 1 << 22  # pairs of session and arm that are replayed at once
_PRECISIONS = np.concatenate([np.geomspace(0.1, 1000, 25), [1e8]])  # pseudo-counts; the last: no variation at all
_RATIOS = np.concatenate([[0.0], np.geomspace(1e-3, 100, 25)])  # variance between sessions over that within


def check(
    sessions: Sessions | Packed | Observations | Estimate,
    *,
    n_types: int | None = None,
    method: Estimator | None = None,
    rewards: str | None = None,
    rng: Rng,
) -> Check:
    """Fit to four fifths of the sessions (of at most 100,000), and look at the others.

    Beside one type and unrelated arms the model is compared with generosity alone (sessions that like all arms more or
    less, so that nobody's best arm changes), types with traits, and the model's policy with popularity by masked
    replay. Traits are fitted five times to a log of up to 20,000 sessions, so that every session is held out once.

    Args:
        sessions: the log; or an estimate or its `observations`, whose log is encoded already.
        n_types: of the model that is checked; None: as the estimate has.
        method: how it is fitted; None: by `EM`, or by `Traits` where the estimate was.
        rewards: as for `lmab.fit`; encoded already, the log knows its own.
        rng: which sessions are held out, and where fits start.
    """
    rng = check_rng(rng, "sessions are held out at random")
    method, n_types = _model(sessions, method, n_types)
    observations = _observed(sessions.require_log() if isinstance(sessions, Estimate) else sessions, rewards, rng)
    rows = rng.permutation(len(observations.sessions))
    n_held = max(round(_HELD_OUT * len(rows)), 1)
    n_folds = max(1, min(round(1 / _HELD_OUT), round(_ENOUGH / len(rows)))) if method.own_number else 1
    held = [rows[fold * n_held : (fold + 1) * n_held] for fold in range(n_folds)]
    folds = [_Fold.of(observations, np.sort(test), method, n_types, rng) for test in held if len(test)]
    scores = _Scores(
        *(np.concatenate(each) for each in zip(*(vars(fold.scores).values() for fold in folds), strict=True))
    )
    return Check(
        n_types=folds[0].bandit.n_types,
        n_sessions=len(scores.model),
        log_likelihood=float(scores.model.mean()),
        over_one_type=_gain(scores.model - scores.one_type),
        over_independent_arms=_gain(scores.model - scores.apart),
        calibration=calibrate(folds[0].bandit, observations.sessions[np.sort(held[0])]),
        over_generosity=_gain(scores.model - scores.generosity) if len(scores.generosity) else None,
        over_traits=_gain(scores.model - scores.traits) if len(scores.traits) else None,
        replay=_replay(scores.replayed),
        n_factors=folds[0].n_factors,
    )


def _model(
    sessions: Sessions | Packed | Observations | Estimate, method: Estimator | None, n_types: int | None
) -> tuple[Estimator, int]:
    """What is fitted, and with how many types."""
    given = sessions if isinstance(sessions, Estimate) else None
    if method is None and n_types is None and given is not None and given.factors is not None:
        method = Traits(n_factors=max(given.factors.n_factors, 1), n_points=given.n_types)
    if method is not None and method.own_number:
        return method, 0
    if n_types is None and given is not None:
        n_types = given.n_types
    return method or _METHOD, check_count("n_types", n_types)


@dataclass(frozen=True, eq=False)
class _Scores:
    """Of held-out sessions: log-likelihoods under several models, and what masked replay gains."""

    model: Float[Array, "n"]
    one_type: Float[Array, "n"]
    apart: Float[Array, "n"]
    generosity: Float[Array, "g"]  # empty where sessions have one step
    traits: Float[Array, "t"]  # empty where the model is one, or has one type
    replayed: Float[Array, "r"]


@dataclass(frozen=True, eq=False)
class _Fold:
    bandit: LatentBandit  # fitted to the other sessions
    n_factors: int | None
    scores: _Scores

    @classmethod
    def of(
        cls,
        observations: Observations,
        test: Integer[Array, "n"],
        method: Estimator,
        n_types: int,
        rng: np.random.Generator,
    ) -> _Fold:
        sessions, train = observations.sessions, np.setdiff1d(np.arange(len(observations.sessions)), test)
        seen, held = observations.subset(train), observations.subset(test)
        fit = method.fit(seen, n_types=n_types, rng=rng)
        bandit = fit.bandit
        model = held.heldout(bandit)
        one_type = held.heldout(_METHOD.fit(seen, n_types=1, rng=rng).bandit)
        if bandit.rewards.values is not None:
            apart = categorical_scores(sessions[train], sessions[test], bandit.rewards.values)
        else:
            apart = gaussian_scores(sessions[train], sessions[test])
        none = np.empty(0)
        several = bandit.n_types > 1
        generosity = held.heldout(GENEROSITY.fit(seen, rng=rng).bandit) if several else none
        traits = held.heldout(_TRAITS.fit(seen, rng=rng).bandit) if several and not method.own_number else none
        replayed = masked_gains(bandit, popularity_of(sessions[train]), sessions[test]) if several else none
        n_factors = None if fit.factors is None else fit.factors.n_alive
        return cls(bandit, n_factors, _Scores(model, one_type, apart, generosity, traits, replayed))


def _replay(gains: Float[Array, "n"]) -> Replay | None:
    if not len(gains):
        return None
    return Replay(float(gains.mean()), float(gains.std() / np.sqrt(len(gains))), len(gains))


def _observed(
    sessions: Sessions | Packed | Observations, rewards: str | None, rng: np.random.Generator
) -> Observations:
    """The log, or some of its sessions where it is large, encoded."""
    if not isinstance(sessions, Observations):
        require_log("sessions", sessions)
    encoded = sessions if isinstance(sessions, Observations) else None
    log = sessions.sessions if isinstance(sessions, Observations) else sessions
    if len(log) < 10:
        raise InvalidArgument(f"sessions must be at least 10 to hold some out, got {len(log)}")
    sample = _sample(len(log), rng)
    if encoded is not None:
        return encoded if sample is None else encoded.subset(sample)
    return observe(log if sample is None else log[sample], rewards=rewards)


def _gain(differences: Float[Array, "N"]) -> Gain:
    return Gain(float(differences.mean()), float(differences.std() / np.sqrt(len(differences))))


def calibrate(bandit: LatentBandit, sessions: Sessions) -> Calibration:
    """Calibration of a model on sessions that it was not fitted to."""
    predicted, average = predictions(bandit, sessions)
    order = np.argsort(predicted, kind="stable")
    bins = [part for part in np.array_split(order, _BINS) if len(part)]
    means = [(predicted[part].mean(), sessions.rewards[part].mean(), sessions.rewards[part].std()) for part in bins]
    sizes = np.array([len(part) for part in bins])
    columns = np.array(means).T
    slope, error = _slope(predicted - average, sessions.rewards - average, sessions)
    return Calibration(columns[0], columns[1], columns[2] / np.sqrt(sizes), sizes, slope, error)


def predictions(bandit: LatentBandit, sessions: Sessions) -> tuple[Float[Array, "S"], Float[Array, "S"]]:
    """For every step, its expected reward given the session before it, and given nothing."""
    predicted = np.empty(sessions.n_steps)
    for places, beliefs in belief.before_steps(bandit, sessions):
        predicted[places] = np.einsum("nm,nm->n", beliefs, bandit.means.T[sessions.arms[places]])
    return predicted, (bandit.weights @ bandit.means)[sessions.arms]


def _slope(x: Float[Array, "S"], y: Float[Array, "S"], sessions: Sessions) -> tuple[float, float]:
    """Least squares through the origin, with a standard error that lets steps of a session depend on each other."""
    power = float(x @ x)
    if power == 0:
        return 0.0, 0.0
    slope = float(x @ y) / power
    scores = np.add.reduceat(x * (y - slope * x), sessions.offsets[:-1])
    return slope, float(np.sqrt((scores**2).sum())) / power


@dataclass(frozen=True, eq=False)
class Identifiability:
    """What the log behind an estimate can tell, and what to log next."""

    n_types: int
    horizon: int  # steps of the longest session
    long_enough: float  # share of the sessions with at least 2 M - 1 steps
    rank: int | None  # of the second moments: how many directions the types differ in; None: could not be measured
    starts: str
    rare_arms: tuple[int, ...]  # played too rarely to be known in the rarest type
    core_arms: tuple[int, ...]  # which tell most about the types
    arm_labels: tuple[str | int, ...] | None
    rarest: float = 1.0  # share of the rarest type
    traits: bool = False  # types are points of factors: none of them is rare

    @property
    def sentences(self) -> tuple[str, ...]:
        """The note, for a reader."""
        need = 2 * self.n_types - 1
        lines = [] if self.traits else [self.starts + "."]
        if self.n_types > 1 and not self.traits:
            lines.append(
                f"{self.long_enough:.0%} of the sessions have the {need} steps that identify {self.n_types} types "
                f"in every case"
                + ("." if self.long_enough > 0.5 else "; shorter ones may leave several models equally likely.")
            )
        if self.rank is not None:
            who = "Sessions" if self.traits else "The types"
            lines.append(f"{who} differ in {count(self.rank, 'direction')} (numerical rank).")
        if self.rare_arms and self.traits:
            lines.append(
                f"{count(len(self.rare_arms), 'arm')} of fewer than {_PLAYS} plays: what is known of other arms stands "
                f"in for most of what is said about {self.names(self.rare_arms)}."
            )
        elif self.rare_arms:
            were = "was" if len(self.rare_arms) == 1 else "were"
            lines.append(
                f"{count(len(self.rare_arms), 'arm')} {were} played fewer than {_PLAYS} times in the rarest type "
                f"({percent(self.rarest)} of the sessions, so below {_PLAYS / max(self.rarest, 1e-9):,.0f} plays in "
                f"all): {self.names(self.rare_arms)}."
            )
        if self.core_arms:
            lines.append(f"To learn more, log sessions that play {self.names(self.core_arms)}: they tell most.")
        return tuple(lines)

    def names(self, arms: tuple[int, ...]) -> str:
        """What arms are called, the first few."""
        labels = [arm_label(arm, self.arm_labels) for arm in arms[:12]]
        return ", ".join(labels) + (", ..." if len(arms) > 12 else "")


def identify(estimate: Estimate, *, rng: Rng) -> Identifiability:
    """The identifiability note of an estimate."""
    rng = check_rng(rng, "a large log is sampled")
    sessions, bandit = estimate.sessions, estimate.bandit
    traits = estimate.factors is not None
    rarest = 1.0 if traits else float(bandit.weights.min())
    rare = np.flatnonzero(sessions.plays * rarest < _PLAYS)
    rank, core = _core(sessions, bandit.rewards.family, rng)
    return Identifiability(
        n_types=bandit.n_types,
        horizon=sessions.horizon,
        long_enough=sessions.share_of_length(2 * bandit.n_types - 1),
        rank=rank,
        starts=str(estimate.starts),
        rare_arms=tuple(rare.tolist()),
        core_arms=core,
        arm_labels=sessions.arm_labels,
        rarest=rarest,
        traits=traits,
    )


def _core(sessions: Sessions | Packed, family: str, rng: np.random.Generator) -> tuple[int | None, tuple[int, ...]]:
    """Numerical rank and core arms; neither where the log has no pairs of steps, or too many arms to look at."""
    try:
        sample = _sample(len(sessions), rng)
        seen = sessions.load() if sample is None else sessions[sample]
        space = subspace(seen, rewards=family)
        return space.rank, tuple(design(space, events="arms").arms)
    except LmabError:
        return None, ()


def _sample(n_sessions: int, rng: np.random.Generator) -> Integer[Array, "n"] | None:
    """Some of the sessions of a large log; None: all."""
    return None if n_sessions <= _SESSIONS else np.sort(sample_rows(n_sessions, _SESSIONS, rng))


def masked_gains(bandit: LatentBandit, popularity: Float[Array, "A"], held: Sessions) -> Float[Array, "n"]:
    """What half of each session's arms earn more if they are chosen greedily instead of by popularity.

    Each arm that a session logged may be played once, and pays what it paid there first. Sessions with fewer than two
    arms leave no choice and are left out.
    """
    size = max(_CELLS // max(held.n_arms, bandit.n_types), 1)
    parts = [held[slice(start, start + size)] for start in range(0, len(held), size)]
    return np.concatenate([_replay_gains(bandit, popularity, part) for part in parts])


def popularity_of(sessions: Sessions) -> Float[Array, "A"]:
    """The mean reward of each arm, with one pseudo-play of the average arm."""
    plays = np.bincount(sessions.arms, minlength=sessions.n_arms)
    sums = np.bincount(sessions.arms, sessions.rewards, minlength=sessions.n_arms)
    return (sums + sessions.rewards.mean()) / (plays + 1)


def _replay_gains(bandit: LatentBandit, popularity: Float[Array, "A"], held: Sessions) -> Float[Array, "n"]:
    rewards, left = _first_rewards(held)
    steps = left.sum(axis=1) // 2
    popular = np.argsort(-np.where(left, popularity, -np.inf), axis=1, kind="stable")
    gains, rows = np.zeros(len(held)), np.arange(len(held))
    beliefs = belief.prior(bandit, len(held))
    for step in range(int(steps.max(initial=0))):
        live = steps[rows] > step
        rows, beliefs = rows[live], beliefs[live]
        arms = best_allowed(belief.normalise(beliefs) @ bandit.means, left[rows])
        paid = rewards[rows, arms]
        gains[rows] += paid - rewards[rows, popular[rows, step]]
        left[rows, arms] = False
        beliefs = belief.update(bandit, beliefs, arms, paid)
    return gains[steps > 0]


def _first_rewards(sessions: Sessions) -> tuple[Float[Array, "n A"], Bool[Array, "n A"]]:
    """What each session's arms paid first, and which arms it logged."""
    owner = np.repeat(np.arange(len(sessions)), sessions.lengths)
    rewards = np.zeros((len(sessions), sessions.n_arms))
    logged = np.zeros(rewards.shape, bool)
    backwards: Integer[Array, "S"] = np.arange(sessions.n_steps)[::-1]  # so that the first of several stays
    rewards[owner[backwards], sessions.arms[backwards]] = sessions.rewards[backwards]
    logged[owner, sessions.arms] = True
    return rewards, logged


@dataclass(frozen=True, eq=False)
class _Groups:
    """Plays of one arm in one session, together."""

    arm: Integer[Array, "G"]
    session: Integer[Array, "G"]
    of_step: Integer[Array, "S"]  # the group of each step

    @classmethod
    def of(cls, sessions: Sessions) -> _Groups:
        owner = np.repeat(np.arange(len(sessions)), sessions.lengths)
        keys, inverse = np.unique(owner * sessions.n_arms + sessions.arms, return_inverse=True)
        return cls(keys % sessions.n_arms, keys // sessions.n_arms, inverse)

    def sums(self, weights: Float[Array, "S"] | None = None) -> Float[Array, "G"]:
        return np.bincount(self.of_step, weights, minlength=len(self.arm)).astype(np.float64)


def categorical_scores(train: Sessions, test: Sessions, values: Float[Array, "Z"]) -> Float[Array, "N"]:
    """log-likelihood of each test session where each arm's probabilities are Dirichlet, anew in every session."""
    groups, counts = _counted(train, values)
    total = counts.sum(axis=0) / counts.sum()
    plays = np.zeros((train.n_arms, len(values)))
    np.add.at(plays, groups.arm, counts)
    marginal = (plays + total) / (plays.sum(axis=1, keepdims=True) + 1)
    fits = np.stack(
        [
            np.bincount(groups.arm, _dirichlet(counts, marginal[groups.arm], np.array([precision])), train.n_arms)
            for precision in _PRECISIONS
        ]
    )
    precision = _PRECISIONS[fits.argmax(axis=0)]
    groups, counts = _counted(test, values)
    scores = _dirichlet(counts, marginal[groups.arm], precision[groups.arm])
    return np.bincount(groups.session, scores, len(test))


def _counted(sessions: Sessions, values: Float[Array, "Z"]) -> tuple[_Groups, Float[Array, "G Z"]]:
    groups = _Groups.of(sessions)
    place = index_among(values, sessions.rewards)
    return groups, np.stack([groups.sums((place == z).astype(np.float64)) for z in range(len(values))], axis=1)


def _dirichlet(
    counts: Float[Array, "G Z"], marginal: Float[Array, "G Z"], precision: Float[Array, "K"]
) -> Float[Array, "G"]:
    """log-probability of sequences with these counts, for one precision or one per group."""
    from scipy.special import gammaln

    alpha = np.maximum(marginal * precision[:, None], 1e-300)
    terms = np.where(counts > 0, gammaln(alpha + counts) - gammaln(alpha), 0.0)
    size = counts.sum(axis=1)
    return terms.sum(axis=1) + gammaln(precision) - gammaln(precision + size)


def gaussian_scores(train: Sessions, test: Sessions) -> Float[Array, "N"]:
    """log-likelihood of each test session where each arm's mean is normal, anew in every session."""
    plays = np.bincount(train.arms, minlength=train.n_arms)
    centre = train.rewards.mean()
    means = (np.bincount(train.arms, train.rewards, train.n_arms) + centre) / (plays + 1)
    fits = []
    for ratio in _RATIOS:
        variance = _profile_variance(train, means, ratio)
        fits.append((_normal(train, means, variance, ratio).sum(), variance, ratio))
    _, variance, ratio = max(fits)
    return _normal(test, means, variance, ratio)


def _profile_variance(sessions: Sessions, means: Float[Array, "A"], ratio: float) -> float:
    """The variance within sessions that fits best, given the ratio of that between them."""
    _, size, within, between = _spread(sessions, means)
    return float((within + size * between**2 / (1 + size * ratio)).sum() / sessions.n_steps)


def _normal(sessions: Sessions, means: Float[Array, "A"], variance: float, ratio: float) -> Float[Array, "N"]:
    groups, size, within, between = _spread(sessions, means)
    quadratic = within + size * between**2 / (1 + size * ratio)
    scores = -0.5 * (size * np.log(2 * np.pi * variance) + np.log1p(size * ratio) + quadratic / variance)
    return np.bincount(groups.session, scores, len(sessions))


def _spread(
    sessions: Sessions, means: Float[Array, "A"]
) -> tuple[_Groups, Float[Array, "G"], Float[Array, "G"], Float[Array, "G"]]:
    """Per group: its size, squared deviations from its own mean, and that mean's deviation from the arm's."""
    groups = _Groups.of(sessions)
    deviation = sessions.rewards - means[sessions.arms]
    size = groups.sums()
    between = groups.sums(deviation) / size
    return groups, size, np.maximum(groups.sums(deviation**2) - size * between**2, 0.0), between
