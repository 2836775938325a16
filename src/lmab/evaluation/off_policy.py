"""What a policy would have earned in sessions that another policy logged, from logged or fitted propensities.

The weight of a session up to step t is rho_t = prod_{s <= t} pi(a_s | h_s) / p_s, with p_s the logged probability of
the arm that was played. Three estimates of the reward of step t, each the ratio of two sums over sessions:

* per-decision: the sum of rho_t r_t divided by the number of sessions that reach step t. It is unbiased (Precup, Sutton
  and Singh, 2000).
* self-normalised: the same sum divided by the sum of rho_t. It is slightly biased and has far less noise.
* doubly robust: per-decision with a model's predictions as control variates (Jiang and Li, 2016). It is unbiased for
  any model that was not fitted to the same sessions; a better model gives less noise.

Where the log says who left, all sessions count at every step up to its limit, and the value is that of a session until
the person leaves: whoever left earns 0, with the weight that the session had then.

All three are functions of sums over sessions, so the jackknife and the bootstrap need only those sums. The sessions of
a large log are first added up in 10,000 groups. No value and no interval leaves the range of possible rewards, and
where the effective sample is too small, no interval is given, because sessions that are not there have no spread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._shapes import Array, Float, Integer
from ..checks import FRACTION, OneOf, Rng, check, check_count, check_rng
from ..data.features import LEFT
from ..data.sessions import Sessions
from ..errors import InvalidArgument, InvalidData
from ..model.bandit import LatentBandit
from ..policies.histories import initial_memories
from ..policies.policy import Policy, State
from .importance import (
    REACHED,
    WEIGHT,
    Interval,
    Range,
    Sums,
    Tails,
    average_weights,
    estimates,
    intervals,
    knows_who_left,
    standard_errors,
)
from .sequential import sessions_needed

METHODS = ("per-decision", "self-normalised", "doubly-robust")
ENOUGH = 30.0  # a step with a smaller effective sample counts as unknown
LEAST = ENOUGH * (1 - 1e-9)  # for effective samples that are 30 up to rounding
_MISFIT = 5.0  # standard errors from 1 at which weights cannot come from true propensities
_SURE = 1e-6  # p-value below which a log is called adaptive
_CHUNK = 8192
_GAIN = 0.02  # gain, as a part of the logged reward, for which a live test is sized if no model predicts one


@dataclass(frozen=True, eq=False)
class LogValue:
    """One estimate of the expected reward of a session."""

    mean: float  # never outside the possible range, whatever the steps add up to
    stderr: float  # jackknife over sessions; NaN where the effective sample is below ENOUGH
    interval: Interval | None  # within the possible range; None where the effective sample is below ENOUGH
    per_step: Float[Array, "H"]


@dataclass(frozen=True, eq=False)
class LogEvidence:
    """What a log says about a policy."""

    per_decision: LogValue
    self_normalised: LogValue | None  # None: fewer than two sessions agree with the policy up to the last step
    doubly_robust: LogValue | None  # None: no model was given
    effective_sizes: Float[Array, "H"]  # effective sample up to each step: (sum w)^2 / sum w^2
    n_followed: Integer[Array, "H"]  # sessions that agree with the policy up to each step
    n_reached: Integer[Array, "H"]  # sessions that have this step
    notes: tuple[str, ...]  # warnings to read before the numbers are used; empty where there are none
    logged: float = np.nan  # mean reward of a session of this length as it was logged

    @property
    def enough(self) -> bool:
        """Whether the effective sample of every step is large enough: then intervals are given."""
        return bool(self.effective_sizes.min() >= LEAST)

    @property
    def values(self) -> dict[str, LogValue | None]:
        """The estimate of every method, in the order of METHODS; None where the log does not allow it."""
        return dict(zip(METHODS, (self.per_decision, self.self_normalised, self.doubly_robust), strict=True))

    @property
    def default(self) -> str:
        """The method to use: the last of METHODS that the log allows, because later ones have less noise."""
        return [name for name, value in self.values.items() if value is not None][-1]

    def by(self, method: str) -> LogValue:
        """The estimate of that method. Where it does not exist, an error says what is missing."""
        check("method", method, OneOf(METHODS))
        value = self.values[method]
        if value is None and method == METHODS[2]:
            raise InvalidArgument("model must be given for method='doubly-robust', got None")
        if value is None:
            raise InvalidData(f"the log cannot tell: {self.notes[0]}")
        return value


def weigh(
    policy: Policy,
    sessions: Sessions,
    *,
    horizon: int,
    model: LatentBandit | None = None,
    outlook: Float[Array, "H M"] | None = None,
    confidence: float = 0.95,
    n_bootstrap: int = 1000,
    rng: Rng | None = None,
) -> LogEvidence:
    """All three estimates of what `policy` earns in `horizon` steps, from a log with propensities.

    Args:
        policy: what to evaluate; it is deterministic or has a `distribution`.
        sessions: the log; sessions longer than the horizon are cut, shorter ones count for the steps they have.
        horizon: steps per session.
        model: a model fitted to other sessions; the doubly robust estimate needs it.
        outlook: expected reward of every step in every type of the model under `policy`; needed with `model`.
        confidence: the confidence of the intervals.
        n_bootstrap: the number of resamples from which the intervals are made.
        rng: the generator for the bootstrap; None gives normal intervals.
    """
    horizon = check_count("horizon", horizon)
    n_bootstrap = check_count("n_bootstrap", n_bootstrap, minimum=50)
    check("confidence", confidence, FRACTION)
    if rng is not None:
        rng = check_rng(rng, "the bootstrap is random")
    sessions = _widened(sessions, policy.n_arms)
    check_log(policy, sessions, horizon, model)
    found = Sums.of(policy, sessions, horizon, model, outlook)
    sums, sizes, followed = found.groups, found.effective, found.followed
    tails = Tails.of(sums, found.heaviest, float(sizes.min()), Range.of(sessions, model))
    values = _values(sums, tails, confidence, n_bootstrap, rng)
    followed_twice = np.count_nonzero(sums[:, WEIGHT, -1]) > 1
    reached = sums[:, REACHED].sum(axis=0).astype(np.int64)
    logged = sessions.mean_session(horizon)
    notes = _notes(sums, sizes, followed, reached, model is not None)
    if sizes.min() < LEAST:
        notes[0] = f"{_live_test(sessions, horizon, logged, None if model is None else values[2].mean)}; {notes[0]}"
    return LogEvidence(
        values[0],
        values[1] if followed_twice else None,
        values[2] if model is not None else None,
        sizes,
        followed,
        reached,
        tuple(notes),
        logged,
    )


def _values(
    sums: Float[Array, "G 4 H"], tails: Tails, confidence: float, n_bootstrap: int, rng: np.random.Generator | None
) -> list[LogValue]:
    """The value by each method; where the effective sample is too small, without standard error and interval."""
    per_step = estimates(sums.sum(axis=0))
    means = np.clip(per_step.sum(axis=1), *tails.bounds).tolist()
    if tails.effective < LEAST:
        return [LogValue(mean, np.nan, None, steps) for mean, steps in zip(means, per_step, strict=True)]
    errors, found = standard_errors(sums).tolist(), intervals(sums, tails, confidence, n_bootstrap, rng)
    return [LogValue(*parts) for parts in zip(means, errors, found, per_step, strict=True)]


def _widened(sessions: Sessions, n_arms: int | None) -> Sessions:
    """The log with all arms of the policy, because a log may not play the last of them."""
    if n_arms is None or n_arms <= sessions.n_arms or sessions.arm_labels is not None:
        return sessions
    return sessions.with_arms(n_arms)


def check_log(policy: Policy, sessions: Sessions, horizon: int, model: LatentBandit | None) -> None:
    """Raise where the log cannot say what the policy earns."""
    if sessions.propensities is None:
        raise InvalidArgument(
            "sessions must carry the propensities of the logging policy, got none: name their column (propensity); if "
            "choices did not depend on rewards, fit the propensities to the log (fit_propensities)"
        )
    if policy.n_arms is not None and policy.n_arms != sessions.n_arms:
        raise InvalidArgument(f"policy must be for {sessions.n_arms} arms, got one for {policy.n_arms}")
    if model is not None and model.n_arms != sessions.n_arms:
        raise InvalidArgument(f"model must have {sessions.n_arms} arms, got {model.n_arms}")
    if policy.horizon is not None and horizon > policy.horizon:
        raise InvalidArgument(f"horizon must be at most the policy's {policy.horizon}, got {horizon}")
    if sessions.horizon < horizon:
        raise InvalidArgument(f"horizon must be at most the log's longest session ({sessions.horizon}), got {horizon}")
    if knows_who_left(sessions):
        cut = sessions.lengths[sessions.endings != LEFT]
        if len(cut) and cut.min() < horizon:
            raise InvalidArgument(
                f"horizon must be at most {cut.min()}, the steps after which the log knows of no more in some sessions "
                f"that were not left, got {horizon}"
            )
    if len(sessions) < 2:
        raise InvalidArgument("sessions must hold at least two sessions, got one")


def _notes(
    sums: Float[Array, "G 4 H"],
    sizes: Float[Array, "H"],
    followed: Integer[Array, "H"],
    reached: Integer[Array, "H"],
    has_model: bool,
) -> list[str]:
    notes = []
    unknown = np.flatnonzero(sizes < LEAST)
    if len(unknown):
        step = int(unknown[0])
        rest = "the doubly robust estimate relies on the model" if has_model else "the log says too little by itself"
        notes.append(
            f"{followed[step]:,} of {reached[step]:,} sessions agree with the policy up to step {step + 1}, an "
            f"effective sample of {sizes[step]:.1f} ({ENOUGH:.0f} needed): from this step on {rest}, and no interval "
            f"is given; an interval for sessions of this length needs {_needed(sizes, reached)} sessions logged like "
            f"these; or log sessions in which the policy chooses the arms, always or most of the time: "
            f"{ENOUGH:.0f} in which it always does are enough"
        )
    wrong = _misfit(sums, sizes)
    if wrong is not None:
        step, average = wrong
        never = "the log never plays some arms that the policy would play, or " if average < 1 else ""
        why = (
            f"{never}the propensities are not those of the policy that logged these sessions; check the column of "
            f"propensities"
        )
        if reached[step] < reached[0]:
            why = (
                "who reaches this step depends on what was shown before; say how sessions ended (by ended or limit), "
                "so that those who left count too"
            )
        notes.append(f"the importance weights of step {step + 1} average {average:.3f} instead of 1: {why}")
    if reached[-1] < reached[0]:
        notes.append(
            f"{1 - reached[-1] / reached[0]:.1%} of the sessions end before step {len(reached)}: the reward of each "
            f"step is averaged over the sessions that reach the step, and this average is right only if the end of a "
            f"session does not depend on what was shown; else say how sessions ended, by ended or limit"
        )
    return notes


def _live_test(sessions: Sessions, horizon: int, logged: float, estimated: float | None) -> str:
    """Return the sentence that only a live test can tell, with its number of sessions.

    Without a model, or if its doubly robust estimate is no gain, the number is that for a gain of `_GAIN` of the
    logged reward.
    """
    inside = np.where(sessions.steps < horizon, sessions.rewards, 0.0)
    variance = float(np.add.reduceat(inside, sessions.offsets[:-1]).var())
    gain, why = _GAIN * abs(logged), f"{_GAIN:.0%} of the {logged:.4g} that a session earned as logged"
    if estimated is not None and estimated > logged:
        gain, why = estimated - logged, f"the doubly robust estimate of {estimated:.4g}, less {logged:.4g} as logged"
    first = "a live test is needed, because too few of these sessions agree with the policy"
    if not gain > 0 or not variance > 0:
        return first
    needed = rounded(sessions_needed(gain, logged, variance))
    return f"{first}: about {needed} sessions, half of them with this policy, show a gain of {gain:.4g} ({why})"


def rounded(sessions: float) -> str:
    """Return a number of sessions with two digits.

    Examples:
        >>> rounded(5683.2)
        '5,700'
    """
    return f"{float(f'{sessions:.2g}'):,.0f}"


def _needed(sizes: Float[Array, "H"], reached: Integer[Array, "H"]) -> str:
    """How many sessions of the same kind would give every step its effective sample, in words."""
    fewest = float(sizes.min())
    if fewest == 0:
        return f"far more than {ENOUGH * reached[0]:,.0f}"
    return f"about {rounded(ENOUGH * reached[0] / fewest)}"


def _misfit(sums: Float[Array, "G 4 H"], sizes: Float[Array, "H"]) -> tuple[int, float] | None:
    """The first step whose weights do not average 1; with true propensities every step's weights do."""
    average, error = average_weights(sums)
    wrong = np.flatnonzero((sizes >= ENOUGH) & (np.abs(average - 1) > _MISFIT * error + 1e-9))
    return (int(wrong[0]), float(average[wrong[0]])) if len(wrong) else None


def fit_propensities(sessions: Sessions) -> tuple[Sessions, tuple[str, ...]]:
    """The log with fitted propensities, and warnings where they are wrong.

    The fit assumes that the logging policy chose its arm by the number of the step alone. Where its choices depended on
    what the session had seen, the fitted propensities are wrong. A test for dependence on the previous reward looks
    for such choices.

    Examples:
        >>> import numpy as np, lmab
        >>> log = lmab.Sessions.from_arrays([[0, 1], [0, 0]], [[1.0, 0.0], [0.0, 0.0]])
        >>> fit_propensities(log)[0].propensities
        array([1. , 0.5, 1. , 0.5])
    """
    steps = sessions.steps
    cells = steps * sessions.n_arms + sessions.arms
    counts = np.bincount(cells, minlength=sessions.horizon * sessions.n_arms)
    share = counts.reshape(sessions.horizon, -1) / np.bincount(steps)[:, None]
    notes = []
    p_value = _independence(sessions, steps)
    if p_value < _SURE:
        notes.append(
            f"the arms of this log depend on the rewards before them (p = {p_value:.1g}), so propensities fitted by "
            f"step are wrong and the estimates are biased: log the true propensities"
        )
    return replace(sessions, propensities=share.ravel()[cells]), tuple(notes)


def _independence(sessions: Sessions, steps: Integer[Array, "S"]) -> float:
    """p-value of the hypothesis that an arm does not depend on whether the reward before it was high."""
    from scipy.stats import chi2

    later = np.flatnonzero(steps > 0)
    if len(later) == 0:
        return 1.0
    high = sessions.rewards[later - 1] > sessions.rewards.mean()
    cells = steps[later] * sessions.n_arms + sessions.arms[later]
    observed = np.stack([np.bincount(cells[high == side], minlength=cells.max() + 1) for side in (False, True)])
    observed = observed.reshape(2, -1)
    step_of = np.arange(observed.shape[1]) // sessions.n_arms
    by_step = np.stack([np.bincount(step_of, weights=row) for row in observed])
    expected = observed.sum(axis=0) * (by_step / np.maximum(by_step.sum(axis=0), 1))[:, step_of]
    usable = expected.min(axis=0) >= 5  # the rule for the chi-square approximation
    statistic = ((observed - expected)[:, usable] ** 2 / expected[:, usable]).sum()
    freedom = usable.sum() - len(np.unique(step_of[usable]))
    return float(chi2.sf(statistic, freedom)) if freedom > 0 else 1.0


def with_propensities(sessions: Sessions, policy: Policy) -> Sessions:
    """The log with propensities: the probabilities with which `policy`, which logged it, chose its arms.

    Examples:
        >>> import numpy as np, lmab
        >>> log = lmab.Sessions.from_arrays([[0, 1], [0, 0]], [[1.0, 0.0], [0.0, 0.0]])
        >>> with_propensities(log, lmab.Uniform(2)).propensities
        array([0.5, 0.5, 0.5, 0.5])
    """
    chances, memory = np.empty(sessions.n_steps), initial_memories(policy, sessions)
    for start in range(0, len(sessions), _CHUNK):
        rows = np.arange(start, min(start + _CHUNK, len(sessions)))
        state = policy.start(len(rows)) if memory is None else State(0, memory[rows], single=False)
        for step in range(int(sessions.lengths[rows].max())):
            live = sessions.lengths[rows] > step
            rows, state = rows[live], State(state.step, state.memory[live], single=False)
            places = sessions.offsets[rows] + step
            arms = sessions.arms[places]
            chances[places] = policy.distribution(state, n_arms=sessions.n_arms)[np.arange(len(arms)), arms]
            if step + 1 < (policy.horizon or np.inf):
                state = policy.observe(state, arms, sessions.rewards[places])
    return replace(sessions, propensities=chances)
