"""Is there anything latent to learn here? Held-out checks of a model, and what a log can identify at all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._notebook import percent
from .._shapes import Array, Float, Integer
from .._words import count
from ..checks import Rng, check_count, check_rng
from ..data import Episodes, Packed, require_log, sample_rows
from ..errors import InvalidArgument, LmabError
from ..estimation import EM, Calibration, Check, Estimate, Gain, Observations, observe
from ..model import LatentBandit, arm_label, belief
from ..moments import design, subspace
from .unrelated_arms import categorical_scores, gaussian_scores

_SESSIONS = 100_000  # of a larger log are looked at
_HELD_OUT = 0.2
_BINS = 10
_CHUNK = 8192
_METHOD = EM(restarts=8, tolerance=1e-6, prior="learned")
_PLAYS = 30  # of an arm, in the rarest context, below which it is hardly known there


def check(
    episodes: Episodes | Packed | Observations | Estimate, *, n_contexts: int, rewards: str | None = None, rng: Rng
) -> Check:
    """Fit to four fifths of the sessions (of at most 100,000), and look at the others.

    Args:
        episodes: the log; or an estimate or its `observations`, whose log is encoded already.
        n_contexts: of the model that is checked.
        rewards: as for `lmab.estimate`; encoded already, the log knows its own.
        rng: which sessions are held out, and where fits start.
    """
    rng = check_rng(rng, "sessions are held out at random")
    n_contexts = check_count("n_contexts", n_contexts)
    observations = _observed(episodes.require_log() if isinstance(episodes, Estimate) else episodes, rewards, rng)
    episodes = observations.episodes
    rows = rng.permutation(len(episodes))
    n_held = max(round(_HELD_OUT * len(rows)), 1)
    test, train = np.sort(rows[:n_held]), np.sort(rows[n_held:])
    seen, held = observations.subset(train), observations.subset(test)
    bandit = _METHOD.fit(seen, n_contexts=n_contexts, rng=rng).bandit
    score = held.heldout(bandit)
    one_type = held.heldout(_METHOD.fit(seen, n_contexts=1, rng=rng).bandit)
    if bandit.rewards.values is not None:
        apart = categorical_scores(episodes[train], episodes[test], bandit.rewards.values)
    else:
        apart = gaussian_scores(episodes[train], episodes[test])
    return Check(
        n_contexts, n_held, float(score.mean()), _gain(score - one_type), _gain(score - apart),
        calibrate(bandit, episodes[test]),
    )  # fmt: skip


def _observed(
    episodes: Episodes | Packed | Observations, rewards: str | None, rng: np.random.Generator
) -> Observations:
    """The log, or some of its sessions where it is large, encoded."""
    if not isinstance(episodes, Observations):
        require_log("episodes", episodes)
    encoded = episodes if isinstance(episodes, Observations) else None
    log = episodes.episodes if isinstance(episodes, Observations) else episodes
    if len(log) < 10:
        raise InvalidArgument(f"episodes must be at least 10 to hold some out, got {len(log)}")
    sample = _sample(len(log), rng)
    if encoded is not None:
        return encoded if sample is None else encoded.subset(sample)
    return observe(log if sample is None else log[sample], rewards=rewards)


def _gain(differences: Float[Array, "N"]) -> Gain:
    return Gain(float(differences.mean()), float(differences.std() / np.sqrt(len(differences))))


def calibrate(bandit: LatentBandit, episodes: Episodes) -> Calibration:
    """Calibration of a model on sessions that it was not fitted to."""
    predicted, average = predictions(bandit, episodes)
    order = np.argsort(predicted, kind="stable")
    bins = [part for part in np.array_split(order, _BINS) if len(part)]
    means = [(predicted[part].mean(), episodes.rewards[part].mean(), episodes.rewards[part].std()) for part in bins]
    sizes = np.array([len(part) for part in bins])
    columns = np.array(means).T
    slope, error = _slope(predicted - average, episodes.rewards - average, episodes)
    return Calibration(columns[0], columns[1], columns[2] / np.sqrt(sizes), sizes, slope, error)


def predictions(bandit: LatentBandit, episodes: Episodes) -> tuple[Float[Array, "S"], Float[Array, "S"]]:
    """For every step, its expected reward given the session before it, and given nothing."""
    predicted = np.empty(episodes.n_steps)
    for start in range(0, len(episodes), _CHUNK):
        rows = np.arange(start, min(start + _CHUNK, len(episodes)))
        beliefs = belief.prior(bandit, len(rows))
        for step in range(int(episodes.lengths[rows].max())):
            live = episodes.lengths[rows] > step
            rows, beliefs = rows[live], beliefs[live]
            places = episodes.offsets[rows] + step
            arms = episodes.actions[places]
            predicted[places] = np.einsum("nm,nm->n", belief.normalise(beliefs), bandit.means.T[arms])
            beliefs = belief.update(bandit, beliefs, arms, episodes.rewards[places])
    return predicted, (bandit.weights @ bandit.means)[episodes.actions]


def _slope(x: Float[Array, "S"], y: Float[Array, "S"], episodes: Episodes) -> tuple[float, float]:
    """Least squares through the origin, with a standard error that lets steps of a session depend on each other."""
    power = float(x @ x)
    if power == 0:
        return 0.0, 0.0
    slope = float(x @ y) / power
    scores = np.add.reduceat(x * (y - slope * x), episodes.offsets[:-1])
    return slope, float(np.sqrt((scores**2).sum())) / power


@dataclass(frozen=True, eq=False)
class Identifiability:
    """What the log behind an estimate can tell, and what to log next."""

    n_contexts: int
    horizon: int  # steps of the longest session
    long_enough: float  # share of the sessions with at least 2 M - 1 steps
    rank: int | None  # of the second moments: how many directions the types differ in; None: could not be measured
    starts: str
    rare_arms: tuple[int, ...]  # played too rarely to be known in the rarest type
    core_arms: tuple[int, ...]  # which tell most about the types
    arm_labels: tuple[str | int, ...] | None
    rarest: float = 1.0  # share of the rarest type

    @property
    def sentences(self) -> tuple[str, ...]:
        """The note, for a reader."""
        need = 2 * self.n_contexts - 1
        lines = [self.starts + "."]
        if self.n_contexts > 1:
            lines.append(
                f"{self.long_enough:.0%} of the sessions have the {need} steps that identify {self.n_contexts} types "
                f"in every case"
                + ("." if self.long_enough > 0.5 else "; shorter ones may leave several models equally likely.")
            )
        if self.rank is not None:
            lines.append(f"The types differ in {count(self.rank, 'direction')} (numerical rank).")
        if self.rare_arms:
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
    episodes, bandit = estimate.episodes, estimate.bandit
    rare = np.flatnonzero(episodes.plays * bandit.weights.min() < _PLAYS)
    rank, core = _core(episodes, bandit.rewards.family, rng)
    return Identifiability(
        n_contexts=bandit.n_contexts,
        horizon=episodes.horizon,
        long_enough=episodes.share_of_length(2 * bandit.n_contexts - 1),
        rank=rank,
        starts=str(estimate.starts),
        rare_arms=tuple(rare.tolist()),
        core_arms=core,
        arm_labels=episodes.arm_labels,
        rarest=float(bandit.weights.min()),
    )


def _core(episodes: Episodes | Packed, family: str, rng: np.random.Generator) -> tuple[int | None, tuple[int, ...]]:
    """Numerical rank and core arms; neither where the log has no pairs of steps, or too many arms to look at."""
    try:
        sample = _sample(len(episodes), rng)
        seen = episodes.load() if sample is None else episodes[sample]
        space = subspace(seen, rewards=family)
        return space.rank, tuple(design(space, events="arms").arms)
    except LmabError:
        return None, ()


def _sample(n_episodes: int, rng: np.random.Generator) -> Integer[Array, "n"] | None:
    """Some of the sessions of a large log; None: all."""
    return None if n_episodes <= _SESSIONS else np.sort(sample_rows(n_episodes, _SESSIONS, rng))
