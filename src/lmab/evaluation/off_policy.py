"""What a policy would have earned in sessions that another policy logged, from the logged propensities.

The weight of a session up to step t is rho_t = prod_{s <= t} pi(a_s | h_s) / p_s, with p_s the logged probability of
the arm that was played. Three estimates of the reward of step t, each the ratio of two sums over sessions:

* per-decision: the sum of rho_t r_t divided by the number of sessions that reach step t. It is unbiased (Precup, Sutton
  and Singh, 2000).
* self-normalised: the same sum divided by the sum of rho_t. It is slightly biased and has far less noise.
* doubly robust: per-decision with a model's predictions as control variates (Jiang and Li, 2016). It is unbiased for
  any model that was not fitted to the same sessions; a better model gives less noise.

All three are functions of sums over sessions, so the jackknife and the bootstrap need only those sums. The sessions of
a large log are first added up in 10,000 groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from .._shapes import Array, Float, Integer
from ..checks import FRACTION, OneOf, Rng, check, check_count, check_rng
from ..data import Episodes
from ..errors import InvalidArgument, InvalidData
from ..model import LatentBandit
from ..policies import Policy
from . import importance
from .importance import REACHED, REWARD, ROBUST, WEIGHT

METHODS = ("per-decision", "self-normalised", "doubly-robust")
ENOUGH = 30.0  # a step with a smaller effective sample counts as unknown
_GROUPS = 10_000  # units of the jackknife and the bootstrap; at least a chunk of sessions
_REPLICATES_AT_ONCE = 100
_MISFIT = 5.0  # standard errors from 1 at which weights cannot come from true propensities


@dataclass(frozen=True, eq=False)
class LogValue:
    """One estimate of the expected reward of a session."""

    mean: float
    stderr: float  # jackknife over sessions
    interval: tuple[float, float]  # percentiles of the bootstrap over sessions; without rng, from stderr
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

    @property
    def enough(self) -> bool:
        """Whether the effective sample of the last step is large enough: without a model, the log then suffices."""
        return bool(self.effective_sizes[-1] >= ENOUGH)

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
    episodes: Episodes,
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
        episodes: the log; sessions longer than the horizon are cut, shorter ones count for the steps they have.
        horizon: steps per session.
        model: a model fitted to other sessions; the doubly robust estimate needs it.
        outlook: expected reward of every step in every context of the model under `policy`; needed with `model`.
        confidence: the confidence of the intervals.
        n_bootstrap: the number of resamples from which the intervals are made.
        rng: the generator for the bootstrap; None gives normal intervals.
    """
    horizon = check_count("horizon", horizon)
    n_bootstrap = check_count("n_bootstrap", n_bootstrap, minimum=50)
    check("confidence", confidence, FRACTION)
    if rng is not None:
        rng = check_rng(rng, "the bootstrap is random")
    episodes = _widened(episodes, policy.n_arms)
    check_log(policy, episodes, horizon, model)
    sums = np.zeros((min(len(episodes), _GROUPS), 4, horizon))
    squares, followed = np.zeros(horizon), np.zeros(horizon, np.int64)
    for rows, part in importance.contributions(policy, episodes, horizon, model, outlook):
        sums[rows % len(sums)] += part
        squares += (part[:, WEIGHT] ** 2).sum(axis=0)
        followed += (part[:, WEIGHT] > 0).sum(axis=0)
    total = sums.sum(axis=0)
    per_step = estimates(total)
    errors, intervals = _uncertainty(sums, per_step, confidence, n_bootstrap, rng)
    values = [
        LogValue(float(steps.sum()), error, interval, steps)
        for steps, error, interval in zip(per_step, errors, intervals, strict=True)
    ]
    followed_twice = np.count_nonzero(sums[:, WEIGHT, -1]) > 1
    sizes = np.divide(total[WEIGHT] ** 2, squares, out=np.zeros(horizon), where=squares > 0)
    reached = total[REACHED].astype(np.int64)
    notes = _notes(sums, sizes, followed, reached, model is not None)
    return LogEvidence(
        values[0],
        values[1] if followed_twice else None,
        values[2] if model is not None else None,
        sizes,
        followed,
        reached,
        tuple(notes),
    )


def estimates(total: Float[Array, "*n 4 H"]) -> Float[Array, "3 *n H"]:
    """Expected reward of each step by the three methods, from the sums over sessions; NaN where there is no weight."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.stack(
            [
                total[..., REWARD, :] / total[..., REACHED, :],
                total[..., REWARD, :] / total[..., WEIGHT, :],
                total[..., ROBUST, :] / total[..., REACHED, :],
            ]
        )


def _widened(episodes: Episodes, n_arms: int | None) -> Episodes:
    """The log with all arms of the policy, because a log may not play the last of them."""
    if n_arms is None or n_arms <= episodes.n_arms or episodes.arm_labels is not None:
        return episodes
    return episodes.with_arms(n_arms)


def check_log(policy: Policy, episodes: Episodes, horizon: int, model: LatentBandit | None) -> None:
    """Raise where the log cannot say what the policy earns."""
    if episodes.propensities is None:
        raise InvalidArgument(
            "episodes must carry the propensities of the logging policy, got none: name their column; if the choices "
            "in the log did not depend on the rewards, the propensities can be fitted (fit_propensities=True)"
        )
    if policy.n_arms is not None and policy.n_arms != episodes.n_arms:
        raise InvalidArgument(f"policy must be for {episodes.n_arms} arms, got one for {policy.n_arms}")
    if model is not None and model.n_arms != episodes.n_arms:
        raise InvalidArgument(f"model must have {episodes.n_arms} arms, got {model.n_arms}")
    if policy.horizon is not None and horizon > policy.horizon:
        raise InvalidArgument(f"horizon must be at most the policy's {policy.horizon}, got {horizon}")
    if episodes.horizon < horizon:
        raise InvalidArgument(f"horizon must be at most the log's longest session ({episodes.horizon}), got {horizon}")
    if len(episodes) < 2:
        raise InvalidArgument("episodes must hold at least two sessions, got one")


def _uncertainty(
    sums: Float[Array, "G 4 H"],
    per_step: Float[Array, "3 H"],
    confidence: float,
    n_bootstrap: int,
    rng: np.random.Generator | None,
) -> tuple[list[float], list[tuple[float, float]]]:
    """Standard errors (jackknife) and intervals (bootstrap percentiles) of the three totals; NaN where undefined."""
    size = len(sums)
    left_out = estimates(sums.sum(axis=0) - sums).sum(axis=2)
    errors = np.sqrt((size - 1) / size * ((left_out - left_out.mean(axis=1, keepdims=True)) ** 2).sum(axis=1))
    means, tail = per_step.sum(axis=1), (1 - confidence) / 2
    if rng is None:
        reach = NormalDist().inv_cdf(1 - tail) * errors
        low, high = means - reach, means + reach
    else:
        low, high = _percentiles(_resample(sums, n_bootstrap, rng), tail)
    return errors.tolist(), list(zip(low.tolist(), high.tolist(), strict=True))


def _resample(sums: Float[Array, "G 4 H"], n_bootstrap: int, rng: np.random.Generator) -> Float[Array, "3 B"]:
    """Totals of the three methods on resampled sessions."""
    size, flat, replicates = len(sums), sums.reshape(len(sums), -1), []
    for start in range(0, n_bootstrap, _REPLICATES_AT_ONCE):
        n = min(_REPLICATES_AT_ONCE, n_bootstrap - start)
        counts = np.stack([np.bincount(rng.integers(size, size=size), minlength=size) for _ in range(n)])
        replicates.append(estimates((counts @ flat).reshape(n, *sums.shape[1:])).sum(axis=2))
    return np.concatenate(replicates, axis=1)


def _percentiles(replicates: Float[Array, "3 B"], tail: float) -> tuple[Float[Array, "3"], Float[Array, "3"]]:
    """Percentiles over resamples; those in which no session agrees with the policy to the end have no value."""
    bounds = np.full((2, 3), np.nan)
    for row, values in enumerate(replicates):
        defined = values[np.isfinite(values)]
        if len(defined):
            bounds[:, row] = np.quantile(defined, [tail, 1 - tail])
    return bounds[0], bounds[1]


def _notes(
    sums: Float[Array, "G 4 H"],
    sizes: Float[Array, "H"],
    followed: Integer[Array, "H"],
    reached: Integer[Array, "H"],
    has_model: bool,
) -> list[str]:
    notes = []
    unknown = np.flatnonzero(sizes < ENOUGH)
    if len(unknown):
        step = int(unknown[0])
        rest = "the doubly robust estimate relies on the model" if has_model else "the log says too little by itself"
        notes.append(
            f"{followed[step]:,} of {reached[step]:,} sessions agree with the policy up to step {step + 1}, an "
            f"effective sample of {sizes[step]:.1f} ({ENOUGH:.0f} needed): from this step on {rest}; to measure these "
            f"steps, log sessions in which the policy chooses the arms, always or most of the time"
        )
    wrong = _misfit(sums, sizes)
    if wrong is not None:
        step, average = wrong
        never = "the log never plays some arms that the policy would play, or " if average < 1 else ""
        notes.append(
            f"the importance weights of step {step + 1} average {average:.3f} instead of 1: {never}the propensities "
            f"are not those of the policy that logged these sessions; check the column of propensities"
        )
    if reached[-1] < reached[0]:
        notes.append(
            f"{1 - reached[-1] / reached[0]:.1%} of the sessions end before step {len(reached)}: the reward of each "
            f"step is averaged over the sessions that reach the step, and this average is right only if the end of a "
            f"session does not depend on what was shown"
        )
    return notes


def _misfit(sums: Float[Array, "G 4 H"], sizes: Float[Array, "H"]) -> tuple[int, float] | None:
    """The first step whose weights do not average 1; with true propensities every step's weights do."""
    weights, reached = sums[:, WEIGHT], sums[:, REACHED]
    average = weights.sum(axis=0) / reached.sum(axis=0)
    deviation = weights - average * reached
    error = np.sqrt((deviation**2).sum(axis=0)) / reached.sum(axis=0)
    wrong = np.flatnonzero((sizes >= ENOUGH) & (np.abs(average - 1) > _MISFIT * error + 1e-9))
    return (int(wrong[0]), float(average[wrong[0]])) if len(wrong) else None
