"""Upper bounds on the optimum: the information price, which charges for what a session learns, and a grid of beliefs.

With t steps to go, at an unnormalised belief x over the types,

    V_t(x) <= U_t(x) = C_t . x + beta_t K(x),     K(x) = sum_m x_m log(x_m / (|x| rho_m)),

where rho is the prior. Any mixtures q_t over the arms, any laws Q_ta over the values of every arm and any increments
delta_t = beta_t - beta_{t-1} > 0 give such a bound: `certify` computes it, in double precision. `optimise` only looks
for those that make it tight. `grid_bound` is closer where types are few. docs/information-price.md has the proofs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations_with_replacement
from math import comb

import numpy as np

from .._shapes import Array, Float, Integer

_SLACK = 1e-13  # added to the bound, relative to its size: more than what rounding may take from it
_STEPS = 3  # on the mixtures of several priors or stages, between two on their laws
_COMMON = 4  # sweeps at the mean of several priors, before those at each of them
_POLISH = 8  # rounds of steps on mixtures and laws for the best increments, where people leave
_SLOWING = 100  # rounds after which steps on the increments are half as long there
_ROUNDS, _PER_STEP, _MOST_ROUNDS = 30, 6, 120  # of the search for a price; where people leave, by the steps
_COARSEST, _FINEST = 12, 512  # parts of 1 of which the beliefs of a grid are multiples
_CHILDREN = 1 << 15  # beliefs that are placed in a grid at once
_GRID_SLACK = 1e-13  # added to the bound of a grid for each step of each step to go, relative to the largest mean
_SMALLEST = 1e-9  # share of an arm in a mixture; laws of values: a thousandth of it


@dataclass(frozen=True, eq=False)
class InformationPrice:
    """The functions U_0, ..., U_H."""

    planes: Float[Array, "T M"]  # C_t
    rates: Float[Array, "T"]  # beta_t
    prior: Float[Array, "M"]  # rho
    arms: Float[Array, "T A M"]  # at least what arm a and then U_{t-1} earn, but for beta_{t-1} K

    def bound(self, x: Float[Array, "*n M"], steps: int) -> Float[Array, "*n"]:
        """U_steps at unnormalised beliefs."""
        mass = x.sum(axis=-1, keepdims=True)
        logs = np.log(np.where(x > 0, x, 1)) - np.log(np.where(mass > 0, mass, 1)) - np.log(self.prior)
        return (x * (self.planes[steps] + self.rates[steps] * logs)).sum(axis=-1)

    @property
    def at_start(self) -> float:
        """U_H at the prior, where K is 0: what no policy exceeds."""
        return float(self.planes[-1] @ self.prior)


@dataclass
class Guess:
    """What the bound may be computed from; stages are steps to go, 1 to H (row 0 is not used)."""

    mixtures: Float[Array, "T *k A"]  # q_t, of one prior or of each of several
    laws: Float[Array, "T *k A Q"]  # Q_ta, over the Z values; where people leave, over the M types that leave, too
    increments: Float[Array, "T *k"]  # delta_t

    def copy(self) -> Guess:
        return Guess(self.mixtures.copy(), self.laws.copy(), self.increments.copy())

    def for_each_of(self, n_priors: int) -> Guess:
        """The same for several priors."""
        stages, (n_arms, n_letters) = len(self.increments), self.laws.shape[-2:]
        return Guess(
            np.repeat(self.mixtures.reshape(stages, 1, n_arms), n_priors, axis=1),
            np.repeat(self.laws.reshape(stages, 1, n_arms, n_letters), n_priors, axis=1),
            np.repeat(self.increments.reshape(stages, 1), n_priors, axis=1),
        )


def information_price(
    means: Float[Array, "A M"],
    table: Float[Array, "D M"],
    prior: Float[Array, "M"],
    horizon: int,
    *,
    people_leave: bool = False,
    rounds: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> InformationPrice:
    """The tightest bound found in `rounds` rounds, or until `stop`; stopped at once, it is still a bound.

    With `people_leave` the table holds what sessions show that go on. None: 30 rounds, and more for long sessions that
    people leave, because it then takes longer to find out in which steps information is used.

    Examples:
        >>> means = np.array([[0.9, 0.1], [0.5, 0.6]])
        >>> table = np.stack([1 - means, means], axis=1).reshape(4, 2)
        >>> price = information_price(means, table, np.array([0.5, 0.5]), 5)
        >>> 3.35771 <= price.at_start < 3.6  # knowing the type_ would earn 3.75
        True
    """
    prior = prior / prior.sum()
    channels, stays = letters(table, len(means), people_leave)
    if rounds is None:
        rounds = min(max(_ROUNDS, _PER_STEP * horizon), _MOST_ROUNDS) if people_leave else _ROUNDS
    with np.errstate(all="ignore"):  # single precision may overflow there; `certify` makes a bound of any guess
        if stays is None:
            guess = optimise(means, channels, prior, horizon, rounds, stop)
        else:
            guess = _optimise_until_left(means, channels, stays, prior, horizon, rounds, stop)
    return certify(means, channels, prior, guess, stays)


def information_prices(
    means: Float[Array, "A M"],
    table: Float[Array, "D M"],
    priors: Float[Array, "K M"],
    horizon: int,
    *,
    sweeps: int = 3,
    stop: Callable[[], bool] = lambda: False,
) -> list[InformationPrice]:
    """A bound for each of several priors, found together: hardly looser than one by one, in a fraction of the time.

    They begin with what is found for the mean of the priors. People must not leave. Stopped at once, they are still
    bounds.

    Examples:
        >>> means = np.array([[0.9, 0.1], [0.5, 0.6]])
        >>> table = np.stack([1 - means, means], axis=1).reshape(4, 2)
        >>> [one] = information_prices(means, table, np.array([[0.5, 0.5]]), 5)
        >>> 3.35771 <= one.at_start < 3.6
        True
    """
    channels = table.reshape(len(means), -1, table.shape[1])
    priors = priors / priors.sum(axis=1, keepdims=True)
    mean = priors.mean(axis=0)
    first = _first_guess(means, InformationGain(channels.astype(np.float32)), mean, horizon)
    with np.errstate(all="ignore"):
        common = _optimise_together(means, channels, mean[None], first.for_each_of(1), _COMMON, stop)
        guess = _optimise_together(means, channels, priors, common.for_each_of(len(priors)), sweeps, stop)
    return _certify_together(means, channels, priors, guess)


def _optimise_together(
    means: Float[Array, "A M"],
    channels: Float[Array, "A Z M"],
    priors: Float[Array, "K M"],
    guess: Guess,
    sweeps: int,
    stop: Callable[[], bool],
) -> Guess:
    """As `optimise`, with fewer steps: the powers are computed once for several steps on the mixtures."""
    single = np.float32
    pay, rho, shown = means.astype(single), priors.astype(single), channels.astype(single)
    learning, count, spread = InformationGain(shown), len(priors), max(float(np.ptp(means)), 1e-9)
    entropy, horizon = np.maximum(-(priors * np.log(priors)).sum(axis=1), 1e-9), len(guess.increments) - 1
    for sweep in range(sweeps):
        used, gained = np.zeros((2, horizon + 1, count))
        rates = _rates(guess.increments)
        for t in range(1, horizon + 1):
            if stop():
                return guess
            laws, increment = np.fmax(guess.laws[t], single(1e-3 * _SMALLEST)), guess.increments[t]
            divergence = learning.divergences(laws)
            stage = Stages.of(pay + rates[t - 1].astype(single)[:, None, None] * divergence, increment, rho)
            mixture = guess.mixtures[t]
            for _ in range(_STEPS):
                mixture = distribution(mixture * stage.factors(stage.totals(mixture)), _SMALLEST)
            totals = stage.totals(mixture)
            parts, factors = rho / totals, stage.factors(totals)
            played = stage.powers * parts[:, None]  # of each type, over the mixture
            shares = played / np.maximum(factors, 1e-30)[..., None]
            damping = np.maximum(0.02, increment / (increment + rates[t - 1])).astype(single)[:, None, None]
            guess.mixtures[t], guess.laws[t] = mixture, laws + damping * (learning.shown_to_each(shares) - laws)
            if sweep < sweeps - 1:
                used[t] = (mixture * np.einsum("kam,kam->ka", played, stage.exponents)).sum(axis=1)
                used[t] += (rho * np.log(parts / rho)).sum(axis=1)
                used[t] -= (mixture * factors * np.log(np.maximum(factors, 1e-30))).sum(axis=1)
                gained[t] = (mixture * np.einsum("kam,kam->ka", played, divergence)).sum(axis=1)
        if sweep < sweeps - 1:
            available = np.append(np.cumsum(gained[::-1], axis=0)[::-1][1:], np.zeros((1, count)), axis=0)
            slope = np.clip((available - used) / entropy, -1, 1)
            guess.increments = np.maximum(1e-4 * spread, guess.increments * np.exp(-0.5 * slope / (1 + sweep / 8)))
    return guess


def _certify_together(
    means: Float[Array, "A M"], channels: Float[Array, "A Z M"], priors: Float[Array, "K M"], guess: Guess
) -> list[InformationPrice]:
    """As `certify`."""
    learning, planes = InformationGain(channels), np.zeros((len(guess.increments), *priors.shape))
    arms = np.zeros((*guess.mixtures.shape, priors.shape[1]))
    increments = np.maximum(guess.increments, 1e-6 * max(float(np.ptp(means)), 1e-12))
    rates = _rates(increments)
    for t in range(1, len(increments)):
        laws = distribution(guess.laws[t].astype(float), 1e-3 * _SMALLEST)
        payoff = means + rates[t - 1][:, None, None] * learning.divergences(laws)
        mixture = distribution(guess.mixtures[t].astype(float), _SMALLEST)
        step = Stages.of(payoff, increments[t], priors).planes(mixture)
        largest = np.abs(payoff).max(axis=1).max(axis=1) + np.abs(step).max(axis=1) + 800 * rates[t]
        arms[t] = planes[t - 1][:, None] + payoff
        planes[t] = planes[t - 1] + step + (_SLACK * largest)[:, None]
    return [InformationPrice(planes[:, k], rates[:, k], prior, arms[:, k]) for k, prior in enumerate(priors)]


def _rates(increments: Float[Array, "T K"]) -> Float[Array, "T K"]:
    return np.concatenate([np.zeros_like(increments[:1]), np.cumsum(increments[1:], axis=0)])


def letters(
    table: Float[Array, "D M"], n_arms: int, people_leave: bool
) -> tuple[Float[Array, "A Z M"], Float[Array, "A M"] | None]:
    """What the arms show of sessions that go on; and the probability that they do, None where nobody leaves."""
    channels = table.reshape(n_arms, -1, table.shape[1])
    return channels, channels.sum(axis=1) if people_leave else None


def certify(
    means: Float[Array, "A M"],
    channels: Float[Array, "A Z M"],
    prior: Float[Array, "M"],
    guess: Guess,
    stays: Float[Array, "A M"] | None = None,
) -> InformationPrice:
    """The bound of a guess, whatever the guess is: mixtures and laws are made positive and to sum to 1 here.

    Where people leave, only those who stay earn what the plane of the next step promises.
    """
    mixtures = distribution(guess.mixtures, _SMALLEST)
    laws = distribution(guess.laws, 1e-3 * _SMALLEST)
    increments = np.maximum(guess.increments, 1e-6 * max(float(np.ptp(means)), 1e-12))
    stages = len(increments)
    rates = np.concatenate([[0.0], np.cumsum(increments[1:])])
    planes, arms = np.zeros((stages, len(prior))), np.zeros((stages, *means.shape))
    learning = InformationGain(channels, stays, prior)
    for t in range(1, stages):
        divergence = learning.divergence(laws[t])
        payoff = means + rates[t - 1] * divergence
        if stays is not None:
            payoff += stays * planes[t - 1]
        step = Stage.of(payoff, increments[t], mixtures[t], prior).plane
        slack = _SLACK * (float(np.abs(payoff).max()) + float(np.abs(step).max()) + 800 * rates[t])
        arms[t] = payoff if stays is not None else planes[t - 1] + payoff
        planes[t] = step + slack if stays is not None else planes[t - 1] + step + slack
    return InformationPrice(planes, rates, prior, arms)


def optimise(
    means: Float[Array, "A M"],
    channels: Float[Array, "A Z M"],
    prior: Float[Array, "M"],
    horizon: int,
    rounds: int,
    stop: Callable[[], bool],
    repeats: int = 3,
) -> Guess:
    """Blahut-Arimoto steps on mixtures and laws, gradient steps on the increments, in single precision."""
    from32, to32 = np.float64, np.float32
    pay, rho, learning = means.astype(to32), prior.astype(to32), InformationGain(channels.astype(to32))
    entropy, spread = _sizes(means, prior)
    guess = _first_guess(means, learning, prior, horizon)
    mixtures, laws, increments = guess.mixtures, guess.laws, guess.increments
    best, best_value = guess.copy(), np.inf
    for round_ in range(rounds + 1):
        last = round_ == rounds
        if last:  # polish mixtures and laws for the best increments
            mixtures, laws, increments = best.mixtures.copy(), best.laws.copy(), best.increments
        used, gained, value = np.zeros(horizon + 1), np.zeros(horizon + 1), 0.0
        rates = np.concatenate([[0.0], np.cumsum(increments[1:])])
        for t in range(1, horizon + 1):
            if stop():
                return best
            for _ in range(8 * repeats if last else repeats):
                improve(learning, pay, rho, rates[t - 1], increments[t], mixtures[t], laws[t])
            divergence = learning.divergence(laws[t])
            stage = Stage.of(pay + to32(rates[t - 1]) * divergence, increments[t], mixtures[t], rho)
            value += float(stage.plane @ rho)
            used[t], gained[t] = stage.used(rho), float((stage.joint(rho) * divergence).sum())
        if value < best_value or last:
            best, best_value = Guess(mixtures.copy(), laws.copy(), increments.copy()), value
        # The price of stage t weighs what stages before it, with more steps to go, learn against what it uses.
        available = np.append(np.cumsum(gained[::-1])[::-1][1:], 0.0)
        slope = np.clip((available - used) / entropy, -1, 1)
        increments = np.maximum(1e-4 * spread, increments * np.exp(-0.5 * slope / (1 + round_ / 8)))
    return Guess(best.mixtures.astype(from32), best.laws.astype(from32), best.increments)


def _sizes(means: Float[Array, "A M"], prior: Float[Array, "M"]) -> tuple[float, float]:
    """The entropy of the prior and the range of the means, which increments are measured against."""
    return max(-float(prior @ np.log(prior)), 1e-9), max(float(np.ptp(means)), 1e-9)


def _first_guess(
    means: Float[Array, "A M"], learning: InformationGain, prior: Float[Array, "M"], horizon: int
) -> Guess:
    """In single precision: all arms alike, what they show at the prior, and a price that knowing the type is worth."""
    entropy, spread = _sizes(means, prior)
    knowing = float(prior @ means.max(axis=0) - (means @ prior).max())
    return Guess(
        np.full((horizon + 1, len(means)), 1 / len(means), np.float32),
        np.tile(learning.first_laws(prior.astype(np.float32)), (horizon + 1, 1, 1)),
        np.full(horizon + 1, max(knowing / entropy, 1e-3 * spread)),
    )


def _optimise_until_left(
    means: Float[Array, "A M"],
    channels: Float[Array, "A Z M"],
    stays: Float[Array, "A M"],
    prior: Float[Array, "M"],
    horizon: int,
    rounds: int,
    stop: Callable[[], bool],
) -> Guess:
    """As `optimise`, where people leave: a round has one step on the laws, of all stages at once."""
    single = np.float32
    pay, staying, rho = means.astype(single), stays.astype(single), prior.astype(single)
    learning, (entropy, spread) = InformationGain(channels.astype(single), staying, rho), _sizes(means, prior)
    now = _first_guess(means, learning, prior, horizon)
    best, best_value = now.copy(), np.inf
    for round_ in range(rounds + 1):
        last = round_ == rounds
        if last:
            now = best.copy()
        for _ in range(_POLISH if last else 1):
            sweep = Sweep.over(now, pay, staying, rho, learning, stop)
            if sweep is None:
                return best
            now.laws[1:] = sweep.laws(now, rho, learning)
        assert sweep is not None
        if sweep.value < best_value or last:
            best, best_value = now.copy(), sweep.value
        used, gained = sweep.by_who_is_there(now.mixtures[1:], staying, prior)
        available = np.append(np.cumsum(gained[::-1])[::-1][1:], 0.0)
        slope = np.clip((available - used) / entropy, -1, 1)
        now.increments[1:] *= np.exp(-slope / (1 + round_ / _SLOWING))
        now.increments = np.maximum(1e-4 * spread, now.increments)
    return Guess(best.mixtures.astype(float), best.laws.astype(float), best.increments)


@dataclass
class Sweep:
    """The stages from 1 step to go on, as `Stage` has them, after steps on their mixtures."""

    divergence: Float[Array, "H A M"]
    exponents: Float[Array, "H A M"]
    powers: Float[Array, "H A M"]
    totals: Float[Array, "H M"]
    factors: Float[Array, "H A"]
    value: float  # of the last plane at the prior

    @classmethod
    def over(
        cls,
        guess: Guess,
        pay: Float[Array, "A M"],
        stays: Float[Array, "A M"],
        prior: Float[Array, "M"],
        learning: InformationGain,
        stop: Callable[[], bool],
    ) -> Sweep | None:
        """Blahut-Arimoto steps on the mixtures of every stage, in place; None where `stop` says so.

        What those who stay earn is that of the stage before, so stages come one after the other. What is learned does
        not depend on it, and is computed for all at once.
        """
        single, increments = pay.dtype.type, guess.increments[1:]
        rates = np.append(0.0, np.cumsum(increments[:-1]))
        divergence = learning.divergences(guess.laws[1:])
        exponents = divergence * (rates / increments).astype(single)[:, None, None]
        powers, plane = np.empty_like(exponents), np.zeros_like(prior)
        totals, factors = np.empty_like(exponents[:, 0]), np.empty_like(exponents[:, :, 0])
        for t, increment in enumerate(increments.tolist()):
            if stop():
                return None
            exponent, mixture = exponents[t], guess.mixtures[t + 1]
            exponent += (pay + stays * plane) * single(1 / increment)
            top = exponent.max(axis=0)
            exponent -= top
            np.exp(exponent, out=powers[t])
            for _ in range(_STEPS):
                np.matmul(mixture, powers[t], out=totals[t])
                np.matmul(powers[t], prior / totals[t], out=factors[t])
                mixture *= factors[t]
                np.maximum(mixture, single(_SMALLEST), out=mixture)
                mixture /= mixture.sum()
            plane = single(increment) * (np.log(totals[t]) + top + np.log(factors[t].max()))
        return cls(divergence, exponents, powers, totals, factors, float(plane @ prior))

    def laws(self, guess: Guess, prior: Float[Array, "M"], learning: InformationGain) -> Float[Array, "H A Q"]:
        """The laws after a damped step."""
        increments = guess.increments[1:]
        rates = np.append(0.0, np.cumsum(increments[:-1]))
        damping = np.maximum(0.02, increments / (increments + rates)).astype(prior.dtype)[:, None, None]
        shares = self.powers * (prior / self.totals)[:, None]
        shares /= np.maximum(self.factors, 1e-30)[..., None]
        laws = guess.laws[1:]
        return distribution(laws + damping * (learning.shown_to_each(shares) - laws), 1e-3 * _SMALLEST)

    def by_who_is_there(
        self, mixtures: Float[Array, "H A"], stays: Float[Array, "A M"], prior: Float[Array, "M"]
    ) -> tuple[Float[Array, "H"], Float[Array, "H"]]:
        """What each stage uses and learns, counted for those who are still there."""
        law = mixtures[..., None] * self.powers
        law /= law.sum(axis=1, keepdims=True)
        kept = np.einsum("tam,am->tm", law, stays)
        there = prior * np.cumprod(np.append(np.ones_like(kept[:1]), kept[:0:-1], axis=0), axis=0)[::-1]
        used = np.einsum("tam,tam->tm", law, self.exponents) - np.log(self.totals)
        return (there * used).sum(axis=1), (there * np.einsum("tam,tam->tm", law, self.divergence)).sum(axis=1)


class InformationGain:
    """Relative entropies of what the arms show in a type from given laws.

    Where people leave, the laws have one more column for every type: that somebody of this type leaves. Whoever leaves
    takes along what was learned about them, so their part is a refund of what made them differ from the prior.
    """

    def __init__(
        self,
        channels: Float[Array, "A Z M"],
        stays: Float[Array, "A M"] | None = None,
        prior: Float[Array, "M"] | None = None,
    ) -> None:
        self.channels = channels
        self._negative_entropy = (channels * np.log(np.where(channels > 0, channels, 1))).sum(axis=1)
        self._gone = None if stays is None else np.maximum(1 - stays, 0)
        if self._gone is not None and prior is not None:
            self._negative_entropy += self._gone * np.log(np.where(self._gone > 0, self._gone * prior, 1))

    def divergence(self, laws: Float[Array, "A Q"]) -> Float[Array, "A M"]:
        """KL(P_am || Q_a), less what those who leave give back."""
        logs, n_values = np.log(laws), self.channels.shape[1]
        cross = np.einsum("az,azm->am", logs[:, :n_values], self.channels)
        if self._gone is None:
            return np.maximum(self._negative_entropy - cross, 0)
        return self._negative_entropy - cross - self._gone * logs[:, n_values:]

    def shown(self, shares: Float[Array, "A M"]) -> Float[Array, "A Q"]:
        """The law of each arm's values when types come in these shares."""
        laws = np.einsum("azm,am->az", self.channels, shares)  # OpenBLAS can raise flags on many small products
        return laws if self._gone is None else np.concatenate([laws, self._gone * shares], axis=1)

    def first_laws(self, prior: Float[Array, "M"]) -> Float[Array, "A Q"]:
        """The laws of the arms' values at the prior."""
        return distribution(self.shown(np.broadcast_to(prior, self._negative_entropy.shape)), 1e-3 * _SMALLEST)

    def divergences(self, laws: Float[Array, "K A Q"]) -> Float[Array, "K A M"]:
        """`divergence` for several priors or stages."""
        logs, n_values = np.log(laws), self.channels.shape[1]
        cross = np.matmul(logs[..., :n_values].transpose(1, 0, 2), self.channels).transpose(1, 0, 2)
        if self._gone is None:
            return np.maximum(self._negative_entropy - cross, 0)
        return self._negative_entropy - cross - self._gone * logs[..., n_values:]

    def shown_to_each(self, shares: Float[Array, "K A M"]) -> Float[Array, "K A Q"]:
        """`shown` for several priors or stages."""
        laws = np.matmul(shares.transpose(1, 0, 2), self.channels.transpose(0, 2, 1)).transpose(1, 0, 2)
        return laws if self._gone is None else np.concatenate([laws, self._gone * shares], axis=2)


@dataclass
class Stage:
    """One step: the best plane c with sum_m rho_m exp((payoff_am - c_m) / delta) <= 1 for every arm, given q."""

    exponents: Float[Array, "A M"]  # payoff / delta, less its maximum over arms
    powers: Float[Array, "A M"]  # exp of it
    totals: Float[Array, "M"]  # q @ powers
    factors: Float[Array, "A"]  # by which a Blahut-Arimoto step multiplies q
    plane: Float[Array, "M"]
    mixture: Float[Array, "A"]

    @classmethod
    def of(
        cls, payoff: Float[Array, "A M"], increment: float, mixture: Float[Array, "A"], prior: Float[Array, "M"]
    ) -> Stage:
        exponents = payoff / payoff.dtype.type(increment)
        top = exponents.max(axis=0)
        exponents -= top
        powers = np.exp(exponents)
        with np.errstate(invalid="ignore"):  # OpenBLAS raises false flags on small products of single precision
            totals = mixture @ powers
            factors = powers @ (prior / totals)
        plane = payoff.dtype.type(increment) * (np.log(totals) + top + np.log(factors.max()))
        return cls(exponents, powers, totals, factors, plane, mixture)

    def joint(self, prior: Float[Array, "M"]) -> Float[Array, "A M"]:
        """How often each arm is played in each type by the law that the plane prices."""
        return self.mixture[:, None] * self.powers * (prior / self.totals)

    def used(self, prior: Float[Array, "M"]) -> float:
        """The information that this law needs."""
        log_factors = np.log(np.maximum(self.factors, 1e-30))
        plain = float((self.joint(prior) * self.exponents).sum())
        return plain - float(prior @ np.log(self.totals)) - float((self.mixture * self.factors) @ log_factors)


@dataclass
class Stages:
    """`Stage` for several priors, before their mixtures are chosen."""

    exponents: Float[Array, "K A M"]
    powers: Float[Array, "K A M"]
    top: Float[Array, "K M"]  # the maximum over arms that was taken from the exponents
    increments: Float[Array, "K"]
    priors: Float[Array, "K M"]

    @classmethod
    def of(cls, payoff: Float[Array, "K A M"], increments: Float[Array, "K"], priors: Float[Array, "K M"]) -> Stages:
        increments = increments.astype(payoff.dtype)
        exponents = payoff / increments[:, None, None]
        top = exponents.max(axis=1)
        exponents -= top[:, None]
        return cls(exponents, np.exp(exponents), top, increments, priors)

    def totals(self, mixtures: Float[Array, "K A"]) -> Float[Array, "K M"]:
        return np.matmul(mixtures[:, None], self.powers)[:, 0]

    def factors(self, totals: Float[Array, "K M"]) -> Float[Array, "K A"]:
        """By which a Blahut-Arimoto step multiplies the mixtures that have these totals."""
        return np.matmul(self.powers, (self.priors / totals)[..., None])[..., 0]

    def planes(self, mixtures: Float[Array, "K A"]) -> Float[Array, "K M"]:
        totals = self.totals(mixtures)
        highest = np.log(self.factors(totals).max(axis=1, keepdims=True))
        return self.increments[:, None] * (np.log(totals) + self.top + highest)


def improve(
    learning: InformationGain,
    means: Float[Array, "A M"],
    prior: Float[Array, "M"],
    rate: float,
    increment: float,
    mixture: Float[Array, "A"],
    laws: Float[Array, "A Q"],
) -> None:
    """One Blahut-Arimoto step on the mixture, and a damped one on the laws, in place."""
    payoff = means + means.dtype.type(rate) * learning.divergence(laws) if rate > 0 else means
    stage = Stage.of(payoff, increment, mixture, prior)
    if rate > 0:
        damping = means.dtype.type(max(0.02, increment / (increment + rate)))
        shares = stage.powers * (prior / stage.totals) / np.maximum(stage.factors, 1e-30)[:, None]
        laws += damping * (learning.shown(shares) - laws)
        laws[:] = distribution(laws, 1e-3 * _SMALLEST)
    mixture *= stage.factors
    mixture[:] = distribution(mixture, _SMALLEST)


def distribution(shares: Float[Array, "*n k"], smallest: float) -> Float[Array, "*n k"]:
    """The shares made positive and to sum to 1; nonsense becomes equal shares."""
    positive = np.where(np.isfinite(shares), np.maximum(shares, smallest), 1.0)
    return positive / positive.sum(axis=-1, keepdims=True)


def grid_bound(
    means: Float[Array, "A M"],
    table: Float[Array, "D M"],
    starts: Float[Array, "K M"],
    horizon: int,
    *,
    size: int,
    stop: Callable[[], bool] = lambda: False,
) -> Float[Array, "K"]:
    """What no policy exceeds from unnormalised beliefs, by dynamic programming over a grid of beliefs.

    Optimal values are convex in the belief, so between the points of a grid they lie below what is interpolated
    (Lovejoy, 1991). Where an arm leads from each point does not depend on the steps to go, so it is computed once. The
    grid is the finest one of at most `size` weights; infinite where it would be too coarse to tell anything, or where
    `stop` says so.

    Examples:
        >>> means = np.array([[0.9, 0.1], [0.5, 0.6]])
        >>> table = np.stack([1 - means, means], axis=1).reshape(4, 2)
        >>> round(float(grid_bound(means, table, np.array([[0.5, 0.5]]), 5, size=4096)[0]), 3)
        3.358
    """
    from scipy.sparse import csr_matrix

    nothing = np.full(len(starts), np.inf)
    grid = BeliefGrid.within(size // len(table) // table.shape[1], table.shape[1])
    if grid is None:
        return nothing
    points, shape = grid.points, (len(grid.points), len(table), table.shape[1])
    places, weights = np.empty(shape, np.int32), np.empty(shape)
    block = max(1, _CHILDREN // len(table))
    for start in range(0, len(points), block):
        if stop():
            return nothing
        part = slice(start, start + block)
        children = (points[part, None] * table).reshape(-1, table.shape[1])
        at, share = grid.around(children)
        places[part], weights[part] = at.reshape(-1, *shape[1:]), share.reshape(-1, *shape[1:])
    ends = np.arange(0, places.size + 1, places.size // (len(points) * len(means)))
    leads = csr_matrix((weights.ravel(), places.ravel(), ends), shape=(len(ends) - 1, len(points)))
    paid, values = points @ means.T, np.zeros(len(points))
    for _ in range(horizon):
        if stop():
            return nothing
        values = (paid + (leads @ values).reshape(paid.shape)).max(axis=1)
    at, share = grid.around(starts)
    slack = _GRID_SLACK * horizon**2 * float(np.abs(means).max())
    return (share * (values[at] + slack)).sum(axis=1)


@dataclass(frozen=True, eq=False)
class BeliefGrid:
    """Beliefs whose entries are multiples of 1 / n, and the simplices between them (Freudenthal's triangulation).

    A belief is named by its n-fold sums of the last 1, 2, ..., M - 1 entries, which rise. Floors of these are a corner
    of the simplex around it; raising them one by one, those with the largest fractions first, leads to the others.
    """

    n: int
    points: Float[Array, "P M"]
    choose: Integer[Array, "_ M"]  # binomial coefficients, of which ranks of points are sums

    @classmethod
    def within(cls, n_points: int, n_types: int) -> BeliefGrid | None:
        """The finest grid of at most so many points; None where it is too coarse."""
        n = _COARSEST
        if n_types < 2 or comb(n + n_types - 1, n_types - 1) > n_points:
            return None
        while n < _FINEST and comb(n + n_types, n_types - 1) <= n_points:
            n += 1
        sums = np.array(list(combinations_with_replacement(range(n + 1), n_types - 1)))
        choose = np.array([[comb(k, j) for j in range(n_types)] for k in range(n + n_types + 1)])
        ends = np.pad(sums, ((0, 0), (1, 1)), constant_values=((0, 0), (0, n)))
        points = np.empty((len(sums), n_types))
        points[_ranks(sums, choose)] = np.diff(ends, axis=1)[:, ::-1] / n
        return cls(n, points, choose)

    def around(self, beliefs: Float[Array, "k M"]) -> tuple[Integer[Array, "k M"], Float[Array, "k M"]]:
        """The points around unnormalised beliefs, and the weights whose sum with them each belief is."""
        sums = np.cumsum(beliefs[:, ::-1], axis=1)
        mass = sums[:, -1:]
        sums = np.minimum(sums[:, :-1] * (self.n / np.where(mass > 0, mass, 1)), self.n)
        corner = np.floor(sums)
        order = np.argsort(corner - sums, axis=1, kind="stable")
        fractions = np.take_along_axis(sums - corner, order, axis=1)
        weights = -np.diff(fractions, axis=1, prepend=1.0, append=0.0) * mass
        corner, rows, places = corner.astype(np.int64), np.arange(len(sums)), np.empty(beliefs.shape, np.int64)
        places[:, 0] = _ranks(corner, self.choose)
        for step, raised in enumerate(order.T, start=1):
            corner[rows, raised] += 1
            places[:, step] = _ranks(corner, self.choose)
        return np.minimum(places, len(self.points) - 1), weights  # a point outside the grid has no weight


def _ranks(sums: Integer[Array, "k m"], choose: Integer[Array, "_ M"]) -> Integer[Array, "k"]:
    """The place of each rising row among all of them."""
    total = np.zeros(len(sums), np.int64)
    for place, column in enumerate(sums.T):
        total += choose[column + place, place + 1]
    return total
