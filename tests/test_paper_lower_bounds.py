"""Lower bounds on sessions: values and divergences by enumeration with exact numbers, and the pairs that prove them."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest

import lmab
from lmab import theory
from lmab.paper.lower_bounds import Mixture, divergence, least_regret, longest_horizon, optimal_value


def exact(mixture: Mixture) -> tuple[list[Fraction], list[list[Fraction]]]:
    weights = [Fraction(float(weight)) for weight in mixture.weights]
    total = sum(weights)
    return [weight / total for weight in weights], [[Fraction(float(p)) for p in row] for row in mixture.means]


def joint(model, history) -> list[Fraction]:
    weights, means = model
    masses = list(weights)
    for arm, reward in history:
        masses = [mass * (row[arm] if reward else 1 - row[arm]) for mass, row in zip(masses, means, strict=True)]
    return masses


def exact_value(models, shares, horizon: int) -> Fraction:
    """The value of the best policy on a mixture of bandits, over all histories and without any sharing of work."""
    n_arms = len(models[0][1][0])

    def best(history) -> Fraction:
        if len(history) == horizon:
            return Fraction(0)
        values = []
        for arm in range(n_arms):
            value = Fraction(0)
            for model, share in zip(models, shares, strict=True):
                masses = joint(model, history)
                value += share * sum(mass * row[arm] for mass, row in zip(masses, model[1], strict=True))
            values.append(value + best((*history, (arm, 0))) + best((*history, (arm, 1))))
        return max(values)

    return best(())


def exact_divergence(one, two, horizon: int) -> Decimal:
    """The largest divergence of a session over deterministic policies, with fifty digits."""
    n_arms = len(one[1][0])

    def best(history) -> Decimal:
        if len(history) == horizon:
            here, there = sum(joint(one, history)), sum(joint(two, history))
            ratio = Decimal(here.numerator) / Decimal(here.denominator)
            other = Decimal(there.numerator) / Decimal(there.denominator)
            return ratio * (ratio.ln() - other.ln()) if ratio else Decimal(0)
        return max(best((*history, (arm, 0))) + best((*history, (arm, 1))) for arm in range(n_arms))

    with localcontext() as context:
        context.prec = 50
        return best(())


@pytest.mark.parametrize(("n_types", "n_arms", "horizon"), [(1, 2, 3), (2, 2, 3), (3, 2, 4), (2, 3, 2)])
def test_values_and_divergences_agree_with_enumeration(n_types, n_arms, horizon, rng):
    one, two = (Mixture(rng.dirichlet(np.ones(n_types)), rng.random((n_types, n_arms))) for _ in range(2))
    exact_one, exact_two = exact(one), exact(two)
    assert optimal_value(one, horizon) == pytest.approx(float(exact_value([exact_one], [1], horizon)))
    assert divergence(one, two, horizon) == pytest.approx(float(exact_divergence(exact_one, exact_two, horizon)))
    half = Fraction(1, 2)
    both = exact_value([exact_one, exact_two], [half, half], horizon)
    apart = half * (exact_value([exact_one], [1], horizon) + exact_value([exact_two], [1], horizon)) - both
    assert least_regret(one, two, horizon) == pytest.approx(float(apart), abs=1e-12)


def test_the_value_is_that_of_the_planner(rng):
    mixture = Mixture(rng.dirichlet(np.ones(3)), rng.random((3, 2)))
    bandit = lmab.LatentBandit.bernoulli(mixture.weights, mixture.means)
    plan = lmab.plan(bandit, horizon=5, method=lmab.Exact())
    assert optimal_value(mixture, 5) == pytest.approx(plan.lower)


@pytest.mark.parametrize(
    ("n_types", "horizon", "epsilon", "n_arms"), [(1, 2, 0.1, 2), (2, 3, 0.2, 2), (2, 2, 0.05, 3), (4, 4, 0.5, 2)]
)
def test_every_bound_is_proved_by_its_pair(n_types, horizon, epsilon, n_arms):
    """With exact numbers: both regrets of no policy are within epsilon, and N D is less than log(1 / (4 eta))."""
    bound = theory.sessions_below(n_types, horizon, epsilon, 0.05, n_arms=n_arms)
    one, two = map(exact, bound.pair)
    assert all(each.means.shape[0] <= n_types and each.means.shape[1] <= n_arms for each in bound.pair)
    half = Fraction(1, 2)
    both = exact_value([one, two], [half, half], horizon)
    regret = half * (exact_value([one], [1], horizon) + exact_value([two], [1], horizon)) - both
    assert regret > Fraction(epsilon)
    assert float(regret) == pytest.approx(bound.regret)
    apart = max(exact_divergence(one, two, horizon), exact_divergence(two, one, horizon))
    assert Decimal(float(bound)) * apart <= Decimal(math.log(1 / 0.2))
    assert float(bound) == pytest.approx(math.log(5) / bound.divergence, rel=1e-4)


def test_no_policy_of_a_pair_is_within_epsilon_on_both(rng):
    """All deterministic policies of two steps, on the pair and on random mixtures of policies."""
    bound = theory.sessions_below(1, 2, 0.1, 0.05)
    regrets = []
    for first, *second in itertools.product((0, 1), repeat=3):
        values = []
        for each in bound.pair:
            (mean,) = each.means
            values.append(mean[first] + (1 - mean[first]) * mean[second[0]] + mean[first] * mean[second[1]])
        regrets.append([optimal_value(each, 2) - value for each, value in zip(bound.pair, values, strict=True)])
    plain = np.array(regrets)
    mixed = rng.dirichlet(np.ones(len(plain)), size=500) @ plain
    assert np.concatenate([plain, mixed]).max(axis=1).min() > 0.1


def test_bounds_grow_as_more_is_asked():
    bounds = [float(theory.sessions_below(1, 3, epsilon, 0.05)) for epsilon in (0.4, 0.2, 0.1, 0.05)]
    assert bounds == sorted(bounds)
    assert bounds[3] / bounds[2] == pytest.approx(4, rel=0.1)  # 1 / epsilon^2
    assert theory.sessions_below(1, 3, 0.1, 0.01) > theory.sessions_below(1, 3, 0.1, 0.2)
    assert theory.sessions_below(2, 3, 0.1, 0.05) >= theory.sessions_below(1, 3, 0.1, 0.05)
    assert theory.sessions_below(2, 3, 0.1, 0.05, n_arms=3) >= theory.sessions_below(2, 3, 0.1, 0.05) * (1 - 1e-6)


def test_a_loss_that_every_policy_keeps_needs_no_session():
    bound = theory.sessions_below(2, 1, 0.9, 0.05)
    assert bound == 0
    assert bound.divergence == bound.regret == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 2, 0.1, 0.1), "n_types must be"),
        ((1, 0, 0.1, 0.1), "horizon must be an integer of at least 1, got 0"),
        ((1, 2, 2.0, 0.1), r"epsilon must be in \(0, 2\), got 2.0"),
        ((1, 2, 0.1, 0.25), r"eta must be in \(0, 0.25\), got 0.25"),
        ((1, longest_horizon() + 1, 0.1, 0.1), rf"horizon must be at most {longest_horizon()}, got"),
    ],
)
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        theory.sessions_below(*arguments)


def test_at_least_two_arms_are_needed():
    with pytest.raises(ValueError, match="n_arms must be an integer of at least 2, got 1"):
        theory.sessions_below(2, 2, 0.1, 0.1, n_arms=1)
