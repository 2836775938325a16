"""Information bound: an upper bound on the optimal value that charges for the information of a session.

With t steps to go, at an unnormalised belief x over the types,

    V_t(x) <= U_t(x) = C_t . x + beta_t K(x),     K(x) = sum_m x_m log(x_m / (|x| rho_m)),

where rho is the prior. Every choice of distributions q_t over the arms, of reference distributions Q_ta over the
observations of every arm and of increments delta_t = beta_t - beta_{t-1} > 0 gives such a bound. `evaluate_bound`
computes it in double precision; `optimize_parameters` only searches for parameters that make it tight, for K priors at
once. docs/information-bound.md has the theorem and its proof.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from .._shapes import Array, Bool, Float
from .step_model import StepModel

_SLACK = 1e-13  # added to the bound, relative to its size: more than rounding can take from it
_SMALLEST = 1e-9  # smallest probability of an arm; of an observation: a thousandth of it
_ARM_STEPS = (4, 2)  # Blahut-Arimoto steps on distributions over arms in a round; with attrition rounds are dearer
_COMMON, _EACH = 4, 3  # rounds at the mean of several priors, then at each of them: they start close to their optimum
_ROUNDS, _LEAST_ROUNDS, _PER_STEP, _MOST_ROUNDS = 80, 30, 6, 120  # for one prior; the last three with attrition
_POLISH = (16, 8)  # further rounds with fixed increments; the second with attrition
_STEP = ((0.5, 16), (1.0, 100))  # step on log increments, and the rounds after which it is halved; with attrition
_FOLLOW = 0.5  # step of the arm multipliers towards the number of plays of the arms


@dataclass(frozen=True, eq=False)
class InformationBound:
    """The functions U_0, ..., U_H."""

    linear_terms: Float[Array, "T M"]  # C_t
    entropy_weights: Float[Array, "T"]  # beta_t
    prior: Float[Array, "M"]  # rho
    arm_linear_terms: Float[
        Array, "T A M"
    ]  # linear terms of the bounds on Q-values; their entropy weight is beta_{t-1}

    def bound(self, x: Float[Array, "*n M"], steps: int) -> Float[Array, "*n"]:
        """Return U_steps at unnormalised beliefs."""
        mass = x.sum(axis=-1, keepdims=True)
        logs = np.log(np.where(x > 0, x, 1)) - np.log(np.where(mass > 0, mass, 1)) - np.log(self.prior)
        return (x * (self.linear_terms[steps] + self.entropy_weights[steps] * logs)).sum(axis=-1)

    @property
    def at_start(self) -> float:
        """Return U_H at the prior, an upper bound on the value of every policy; K is 0 there."""
        return float(self.linear_terms[-1] @ self.prior)


@dataclass
class BoundParameters:
    """Free parameters of the bounds of K priors, by steps to go (row 0 is not used)."""

    arm_distributions: Float[Array, "T K A"]  # q_t
    reference_distributions: Float[Array, "T K A Q"]  # Q_ta over Z observations; with attrition, then over M types
    increments: Float[Array, "T K"]  # delta_t

    @classmethod
    def initial(cls, model: StepModel, priors: Float[Array, "K M"], increment: float | None = None) -> Self:
        """Return uniform arms, marginal observations at the priors, and the value of the type per unit of entropy."""
        divergence, n_arms = ObservationDivergence(model, priors), model.payoffs.shape[1]
        if increment is None:
            means = model.payoffs[model.step_tables[1:]].mean(axis=0)
            gain = float((priors @ means.max(axis=0) - (priors @ means.T).max(axis=1)).mean())
            increment = max(gain / float(_entropy(priors).mean()), 1e-3 * model.range_of_means)
        shares = np.broadcast_to(priors[None, :, None], (model.horizon + 1, len(priors), n_arms, priors.shape[1]))
        references = distribution(divergence.marginal(shares, slice(0, None)), 1e-3 * _SMALLEST)
        shape = (model.horizon + 1, len(priors))
        return cls(np.full((*shape, n_arms), 1 / n_arms), references, np.full(shape, increment))

    def copy(self) -> Self:
        return replace(self, **{name: array.copy() for name, array in vars(self).items()})

    def astype(self, dtype: type) -> Self:
        """Return the parameters with distributions of this type; increments keep theirs."""
        arms: Array = self.arm_distributions.astype(dtype)
        references: Array = self.reference_distributions.astype(dtype)
        return type(self)(arms, references, self.increments.copy())

    def for_each(self, n_priors: int) -> Self:
        """Return the parameters of one prior for each of several."""
        return type(self)(*(np.repeat(array, n_priors, axis=1) for array in vars(self).values()))

    def last(self, steps: int) -> Self:
        """Return the parameters of the last steps."""
        return type(self)(*(array[: steps + 1] for array in vars(self).values()))

    def take(self, other: BoundParameters, priors: Bool[Array, "K"]) -> None:
        """Copy the parameters of some priors from others."""
        for own, new in zip(vars(self).values(), vars(other).values(), strict=True):
            own[:, priors] = new[:, priors]

    @property
    def entropy_weights(self) -> Float[Array, "T K"]:
        """Return beta_t, the sums of the increments."""
        return np.concatenate([np.zeros_like(self.increments[:1]), np.cumsum(self.increments[1:], axis=0)])


class ObservationDivergence:
    """KL divergences KL(P_am, Q_a) of observation distributions from reference distributions.

    With attrition, Q_a has M more entries: the session ends and has type m. An ended session cannot use its
    information, so log(1 / rho_m) times the probability of leaving is subtracted.
    """

    def __init__(self, model: StepModel, priors: Float[Array, "K M"]) -> None:
        self.observations = model.observations
        found = model.observations
        own = (found * np.log(np.where(found > 0, found, 1))).sum(axis=2)[:, None]
        self._ended = None if model.continuation is None else np.maximum(1 - model.continuation, 0)[:, None]
        if self._ended is not None:
            ended = self._ended * priors[None, :, None]
            own = own + self._ended * np.log(np.where(ended > 0, ended, 1))
        self._negative_entropy = own  # (S, K or 1, A, M)
        self._tables = model.step_tables

    def _groups(self, stages: slice) -> list[tuple[int, Array | slice]]:
        """Return the tables of some stages, and the positions of the stages that use each."""
        tables = self._tables[stages]
        if len(self.observations) == 1:
            return [(0, slice(None))]
        return [(int(table), np.flatnonzero(tables == table)) for table in np.unique(tables)]

    def of(self, references: Float[Array, "t K A Q"], stages: slice) -> Float[Array, "t K A M"]:
        """Return the divergences at some stages."""
        n_values, n_types = self.observations.shape[2:]
        result = np.empty((*references.shape[:3], n_types), references.dtype)
        for table, places in self._groups(stages):
            logs = np.log(references[places])
            rows = logs[..., :n_values].reshape(-1, *logs.shape[2:3], n_values).transpose(1, 0, 2)
            cross = np.matmul(rows, self.observations[table]).transpose(1, 0, 2).reshape(*logs.shape[:3], n_types)
            found = self._negative_entropy[table] - cross
            if self._ended is None:
                result[places] = np.maximum(found, 0)
            else:
                result[places] = found - self._ended[table] * logs[..., n_values:]
        return result

    def marginal(self, shares: Float[Array, "t K A M"], stages: slice) -> Float[Array, "t K A Q"]:
        """Return the distributions of the observations of every arm if types have these proportions."""
        n_values, n_types = self.observations.shape[2:]
        width = n_values if self._ended is None else n_values + n_types
        result = np.empty((*shares.shape[:3], width), shares.dtype)
        for table, places in self._groups(stages):
            part = shares[places]
            rows = part.reshape(-1, *part.shape[2:]).transpose(1, 0, 2)
            seen = np.matmul(rows, self.observations[table].transpose(0, 2, 1)).transpose(1, 0, 2)
            result[places, ..., :n_values] = seen.reshape(*part.shape[:3], n_values)
            if self._ended is not None:
                result[places, ..., n_values:] = self._ended[table] * part
        return result


@dataclass
class SoftBackup:
    """Smallest linear terms c with sum_m rho_m exp((payoff_am - c_m) / delta) <= 1 for every arm, given q."""

    exponents: Float[Array, "*t K A M"]  # payoff / delta, less the maximum over arms
    powers: Float[Array, "*t K A M"]
    top: Float[Array, "*t K M"]  # that maximum
    increments: Float[Array, "*t K"]
    priors: Float[Array, "K M"]

    @classmethod
    def of(
        cls, payoffs: Float[Array, "*t K A M"], increments: Float[Array, "*t K"], priors: Float[Array, "K M"]
    ) -> Self:
        increments = increments.astype(payoffs.dtype)
        exponents = payoffs / increments[..., None, None]
        top = exponents.max(axis=-2)
        exponents -= top[..., None, :]
        return cls(exponents, np.exp(exponents), top, increments, priors)

    def totals(self, arms: Float[Array, "*t K A"]) -> Float[Array, "*t K M"]:
        return np.matmul(arms[..., None, :], self.powers)[..., 0, :]

    def factors(self, totals: Float[Array, "*t K M"]) -> Float[Array, "*t K A"]:
        """Return the factors by which a Blahut-Arimoto step multiplies the distributions that have these totals."""
        return np.matmul(self.powers, (self.priors / totals)[..., None])[..., 0]

    def improved(self, arms: Float[Array, "*t K A"], factors: Float[Array, "*t K A"]) -> Float[Array, "*t K A"]:
        """Return the distributions over arms after a Blahut-Arimoto step."""
        arms = np.fmax(arms * factors, factors.dtype.type(_SMALLEST))
        return np.asarray(arms / arms.sum(axis=-1, keepdims=True))

    def linear_terms(self, totals: Float[Array, "*t K M"], factors: Float[Array, "*t K A"]) -> Float[Array, "*t K M"]:
        highest = np.log(factors.max(axis=-1, keepdims=True))
        return self.increments[..., None] * (np.log(totals) + self.top + highest)


def information_bound(
    model: StepModel, prior: Float[Array, "M"], *, rounds: int | None = None, stop: Callable[[], bool] = lambda: False
) -> InformationBound:
    """Return the tightest bound found in `rounds` rounds, or until `stop`; stopped at once, it is still a bound.

    None: 80 rounds; with attrition 30, and more for long sessions, because it then takes longer to find out in which
    steps information is used.
    """
    priors = (prior / prior.sum())[None]
    if rounds is None and model.continuation is None:
        rounds = _ROUNDS
    elif rounds is None:
        rounds = min(max(_LEAST_ROUNDS, _PER_STEP * model.horizon), _MOST_ROUNDS)
    start = BoundParameters.initial(model, priors)
    return evaluate_bound(model, priors, optimize_parameters(model, priors, start, rounds, stop)[0])[0]


def information_bounds(
    model: StepModel, priors: Float[Array, "K M"], *, stop: Callable[[], bool] = lambda: False
) -> list[InformationBound]:
    """Return a bound for each of several priors, found together: hardly looser than one by one, in much less time.

    The search starts at the result for the mean of the priors. Stopped at once, they are still bounds.
    """
    priors = priors / priors.sum(axis=1, keepdims=True)
    mean = priors.mean(axis=0)[None]
    start = BoundParameters.initial(model, mean)
    common, _ = optimize_parameters(model, mean, start, _COMMON, stop, polish=0)
    each, _ = optimize_parameters(model, priors, common.for_each(len(priors)), _EACH, stop, polish=0)
    return evaluate_bound(model, priors, each)


def evaluate_bound(
    model: StepModel, priors: Float[Array, "K M"], parameters: BoundParameters
) -> list[InformationBound]:
    """Return the bounds of any parameters: distributions are made positive and to sum to 1 here, in double precision.

    With attrition only sessions that continue earn the linear term of the next step.
    """
    priors = priors / priors.sum(axis=1, keepdims=True)
    parameters = BoundParameters(
        distribution(parameters.arm_distributions.astype(float), _SMALLEST),
        distribution(parameters.reference_distributions.astype(float), 1e-3 * _SMALLEST),
        np.maximum(parameters.increments, 1e-6 * max(float(np.ptp(model.payoffs)), 1e-12)),
    )
    weights, divergence = parameters.entropy_weights, ObservationDivergence(model, priors)
    linear_terms = np.zeros((model.horizon + 1, *priors.shape))
    arm_terms = np.zeros((*parameters.arm_distributions.shape, priors.shape[1]))
    for t in range(1, model.horizon + 1):
        stage, before = slice(t, t + 1), linear_terms[t - 1]
        learned = divergence.of(parameters.reference_distributions[stage], stage)[0]
        values = model.by_stage[t - 1] + weights[t - 1][:, None, None] * learned
        if model.continuation is not None:
            values += model.continuation[model.step_tables[t]] * before[:, None]
        backup = SoftBackup.of(values, parameters.increments[t], priors)
        with np.errstate(all="ignore"):  # OpenBLAS raises false flags on small products
            totals = backup.totals(parameters.arm_distributions[t])
            step = backup.linear_terms(totals, backup.factors(totals))
        largest = np.abs(values).max(axis=(1, 2)) + np.abs(step).max(axis=1) + 800 * weights[t]
        rest = before if model.continuation is None else np.zeros_like(before)  # else it is part of the values
        arm_terms[t] = values + rest[:, None]
        linear_terms[t] = rest + step + (_SLACK * largest)[:, None]
    return [
        InformationBound(linear_terms[:, k], weights[:, k], prior, arm_terms[:, k]) for k, prior in enumerate(priors)
    ]


@dataclass
class _Sweep:
    """All stages after Blahut-Arimoto steps on their distributions over arms."""

    divergences: Float[Array, "H K A M"]
    exponents: Float[Array, "H K A M"]
    choices: Float[Array, "H K A M"]  # probability of each arm in each type under the joint distribution of the stage
    totals: Float[Array, "H K M"]
    plays: Float[Array, "H K A"]  # probability of each arm under that distribution
    values: Float[Array, "K"]  # of the bound at the priors

    @classmethod
    def run(
        cls,
        model: StepModel,
        priors: Float[Array, "K M"],
        parameters: BoundParameters,
        divergence: ObservationDivergence,
        stop: Callable[[], bool],
    ) -> _Sweep | None:
        """Improve the distributions over arms of every stage in place; return None if `stop` returned True."""
        stages = slice(1, model.horizon + 1)
        found = divergence.of(parameters.reference_distributions[stages], stages)
        weights = parameters.entropy_weights[:-1].astype(found.dtype)
        values = model.by_stage + weights[..., None, None] * found
        exponents, powers = np.empty_like(values), np.empty_like(values)
        totals, (factors, played) = np.empty_like(values[:, :, 0]), np.empty((2, *values.shape[:3]), values.dtype)
        arm_steps = _ARM_STEPS[model.continuation is not None]
        linear_term = np.zeros_like(priors)
        for block in model.blocks:
            if stop():
                return None
            rows = slice(block.start - 1, block.stop - 1)
            if model.continuation is not None:
                values[rows] += model.continuation[model.step_tables[block], None] * linear_term[:, None]
            backup = SoftBackup.of(values[rows], parameters.increments[block], priors)
            arms = parameters.arm_distributions[block]
            for _ in range(arm_steps - 1):
                arms = backup.improved(arms, backup.factors(backup.totals(arms)))
            totals[rows] = backup.totals(arms)
            factors[rows] = backup.factors(totals[rows])
            played[rows], parameters.arm_distributions[block] = arms, backup.improved(arms, factors[rows])
            exponents[rows], powers[rows] = backup.exponents, backup.powers
            linear_term = backup.linear_terms(totals[rows], factors[rows]).sum(axis=0)
        powers *= played[..., None] / totals[..., None, :]
        return cls(found, exponents, powers, totals, played * factors, (linear_term * priors).sum(axis=1))

    def improve_references(
        self, parameters: BoundParameters, priors: Float[Array, "K M"], divergence: ObservationDivergence
    ) -> None:
        """Move the reference distributions towards the marginal distributions of the observations, in place."""
        stages = slice(1, None)
        increments, weights = parameters.increments[stages], parameters.entropy_weights[:-1]
        damping = np.maximum(0.02, increments / (increments + weights)).astype(priors.dtype)[..., None, None]
        shares = self.choices * (priors[:, None] / np.maximum(self.plays, 1e-30)[..., None])
        references = parameters.reference_distributions[stages]
        moved = references + damping * (divergence.marginal(shares, stages) - references)
        parameters.reference_distributions[stages] = distribution(moved, 1e-3 * _SMALLEST)

    def present(self, model: StepModel, priors: Float[Array, "K M"]) -> Float[Array, "H K M"]:
        """Return the mass of each type that is still in the session before each stage."""
        if model.continuation is None:
            return np.broadcast_to(priors, self.totals.shape)
        kept = np.einsum("tkam,tam->tkm", self.choices, model.continuation[model.step_tables[1:]])
        return priors * np.cumprod(np.append(np.ones_like(kept[:1]), kept[:0:-1], axis=0), axis=0)[::-1]

    def slopes(self, present: Float[Array, "H K M"]) -> Float[Array, "H K"]:
        """Return the information that earlier stages provide to each stage, less the information that it uses."""
        used = np.einsum("tkam,tkam->tkm", self.choices, self.exponents) - np.log(self.totals)
        gained = np.einsum("tkam,tkam->tkm", self.choices, self.divergences)
        used, gained = (present * used).sum(axis=2), (present * gained).sum(axis=2)
        available = np.append(np.cumsum(gained[::-1], axis=0)[::-1][1:], np.zeros_like(gained[:1]), axis=0)
        return available - used


def optimize_parameters(
    model: StepModel,
    priors: Float[Array, "K M"],
    start: BoundParameters,
    rounds: int,
    stop: Callable[[], bool],
    *,
    multipliers: Float[Array, "K A M"] | None = None,
    is_open: Bool[Array, "K A"] | None = None,
    polish: int | None = None,
) -> tuple[BoundParameters, Float[Array, "K A M"] | None]:
    """Return the best parameters of the rounds, in single precision, and the best multipliers if they are given.

    A round takes Blahut-Arimoto steps on the distributions over arms and on the reference distributions, and a gradient
    step on the logarithms of the increments. With `multipliers`, which every play of an arm costs and every session
    gets back, it also moves these towards one play of every arm; multipliers of arms that are not open stay as they
    are and are not given back.
    """
    quick, rho, has_attrition = model.astype(np.float32), priors.astype(np.float32), model.continuation is not None
    step, slowing = _STEP[has_attrition]
    polish = _POLISH[has_attrition] if polish is None else polish
    divergence, least = ObservationDivergence(quick, rho), 1e-4 * model.range_of_means
    now, best = start.astype(np.float32), start.astype(np.float32)
    best_value, best_multipliers = np.full(len(priors), np.inf), multipliers
    with np.errstate(all="ignore"):  # single precision may overflow; `evaluate_bound` accepts any parameters
        for round_ in range(rounds + polish):
            if round_ == rounds:
                now, multipliers = best.copy(), best_multipliers
            sweep = _Sweep.run(quick.with_penalties(multipliers), rho, now, divergence, stop)
            if sweep is None:
                break
            sweep.improve_references(now, rho, divergence)
            value = sweep.values
            if multipliers is not None:
                given_back = multipliers if is_open is None else multipliers * is_open[..., None]
                value = value + np.einsum("kam,km->k", given_back, priors)
            better = value < best_value
            best.take(now, better)
            best_value = np.minimum(value, best_value)
            if multipliers is not None and best_multipliers is not None:
                best_multipliers = np.where(better[:, None, None], multipliers, best_multipliers)
            if round_ >= rounds - 1:
                continue
            present = sweep.present(quick, priors)
            slope = np.clip(sweep.slopes(present) / _entropy(priors), -1, 1)
            now.increments[1:] *= np.exp(-step * slope / (1 + round_ / slowing))
            now.increments = np.maximum(least, now.increments)
            if multipliers is not None:
                plays = sweep.choices * present[:, :, None]
                weighted = np.einsum("tkam,tk->kam", plays, now.increments[1:])
                total = plays.sum(axis=0)
                excess = np.clip(np.log(np.maximum(total / priors[:, None], 1e-9)), -2, 2)
                moved = np.maximum(multipliers + _FOLLOW * weighted / np.maximum(total, 1e-30) * excess, 0)
                multipliers = moved if is_open is None else np.where(is_open[..., None], moved, multipliers)
    return best, best_multipliers


def _entropy(priors: Float[Array, "K M"]) -> Float[Array, "K"]:
    return np.maximum(-(priors * np.log(np.where(priors > 0, priors, 1))).sum(axis=1), 1e-9)


def distribution(weights: Float[Array, "*n k"], smallest: float) -> Float[Array, "*n k"]:
    """Return positive weights that sum to 1; rows that are not finite become uniform."""
    positive = np.where(np.isfinite(weights), np.maximum(weights, weights.dtype.type(smallest)), weights.dtype.type(1))
    return positive / positive.sum(axis=-1, keepdims=True)
