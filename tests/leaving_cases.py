"""Small bandits that people leave, and what is true of them by the definition: every history is enumerated."""

from __future__ import annotations

import itertools

import numpy as np

from lmab import LatentBandit, Policy, Sessions


def bandit_people_leave(seed: int) -> tuple[LatentBandit, int]:
    """A bandit and a horizon: rewards of both signs; nobody leaves, some do, all do after an arm or by type alone."""
    rng = np.random.default_rng([seed, 32])
    n_types, n_arms, horizon = (int(n) for n in rng.integers([1, 2, 1], [4, 5, 5]))
    horizon = 3 if n_arms == 4 and horizon == 4 else horizon
    n_values = 3 if n_arms * horizon < 8 and rng.random() < 0.4 else 2
    shape = n_types, n_arms, n_values
    probabilities = rng.dirichlet(np.full(n_values, rng.choice([0.3, 1.0])), shape[:2])
    leaving = rng.beta(0.5, 1.0, shape) * rng.choice([0.3, 1.0])
    if seed % 5 == 0:
        leaving[:] = 0.0
    elif seed % 5 == 1:
        leaving = (rng.random(shape) < 0.5).astype(float)
    elif seed % 5 == 2:
        leaving[:, rng.integers(n_arms)] = 1.0
    elif seed % 5 == 3:
        leaving[:] = rng.random((n_types, 1, 1))
    signs = {0: np.sort(rng.normal(size=n_values)), 1: np.arange(float(n_values)), 2: np.sort(-rng.random(n_values))}
    weights = rng.dirichlet(np.ones(n_types))
    return LatentBandit.categorical(weights, probabilities, signs[seed % 3], leaving=leaving), horizon


def optimum(bandit: LatentBandit, horizon: int, *, repeats: bool) -> float:
    """The value of the best policy, by recursion over (reward, goes on or left)."""
    p, values, arms = bandit.rewards.probabilities, bandit.rewards.values, range(bandit.n_arms)
    leave = np.zeros(p.shape) if bandit.leaving is None else bandit.leaving

    def value(mass: np.ndarray, steps: int, gone: frozenset[int]) -> float:
        best = -np.inf
        for arm in arms:
            if repeats or arm not in gone:
                total = 0.0
                for z, reward in enumerate(values):
                    seen = mass * p[:, arm, z]
                    total += reward * seen.sum()
                    stay = seen * (1 - leave[:, arm, z])
                    if steps > 1 and stay.sum() > 0:
                        total += value(stay, steps - 1, gone | {arm})
                best = max(best, total)
        return best

    return value(bandit.weights, horizon, frozenset())


def earned(policy: Policy, bandit: LatentBandit, horizon: int) -> float:
    """What a deterministic policy earns until people leave, by recursion over all that may be seen."""
    p, values = bandit.rewards.probabilities, bandit.rewards.values
    leave = np.zeros(p.shape) if bandit.leaving is None else bandit.leaving

    def value(mass: np.ndarray, history: list[tuple[int, float]]) -> float:
        if len(history) == horizon or mass.sum() <= 0:
            return 0.0
        arm = policy.act_on(history)
        total = float(mass @ (p[:, arm] @ values))
        for z, reward in enumerate(values.tolist()):
            total += value(mass * p[:, arm, z] * (1 - leave[:, arm, z]), [*history, (arm, reward)])
        return total

    return value(bandit.weights, [])


def best_fixed_sequence(
    bandit: LatentBandit, weights: np.ndarray, horizon: int, *, repeats: bool, constant: bool = False
) -> float:
    """What the best list of arms earns where nothing is seen; `constant`: of one arm only."""
    arms, stays = range(bandit.n_arms), bandit.channel().sum(axis=2)
    lists = itertools.product(arms, repeat=horizon) if repeats else itertools.permutations(arms, horizon)
    best = -np.inf
    for chosen in lists:
        if constant and len(set(chosen)) > 1:
            continue
        mass, total = weights, 0.0
        for arm in chosen:
            total += float(mass @ bandit.means[:, arm])
            mass = mass * stays[:, arm]
        best = max(best, total)
    return best


def every_session(bandit: LatentBandit, horizon: int) -> Sessions:
    """Every session that uniform play may give, as often as it is probable: as multiples of the rarest one."""
    p, values, leave = bandit.rewards.probabilities, bandit.rewards.values, bandit.leaving
    found: list[tuple[list[tuple[int, float]], float, str]] = []

    def go(type_: int, history: list[tuple[int, float]], mass: float) -> None:
        for arm, z in itertools.product(range(bandit.n_arms), range(len(values))):
            here, gone = mass * p[type_, arm, z] / bandit.n_arms, leave[type_, arm, z]
            longer = [*history, (arm, float(values[z]))]
            if len(longer) == horizon:
                found.append((longer, here, "unknown"))
                continue
            found.append((longer, here * gone, "left"))
            if here * (1 - gone) > 0:
                go(type_, longer, here * (1 - gone))

    for type_, weight in enumerate(bandit.weights.tolist()):
        go(type_, [], weight)
    found = [one for one in found if one[1] > 0]
    rarest = min(mass for _, mass, _ in found)
    times = [round(mass / rarest) for _, mass, _ in found]
    assert np.allclose(times, [mass / rarest for _, mass, _ in found])
    arms, rewards = np.full((len(found), horizon), -1), np.zeros((len(found), horizon))
    for row, (history, _, _) in enumerate(found):
        for step, (arm, reward) in enumerate(history):
            arms[row, step], rewards[row, step] = arm, reward
    ended = np.repeat([how for _, _, how in found], times)
    table = (np.repeat(array, times, axis=0) for array in (arms, rewards))
    return Sessions.from_arrays(*table, n_arms=bandit.n_arms, ended=ended)


def left_by_reward() -> LatentBandit:
    """Two types on two arms, left by arm and reward; all probabilities are dyadic."""
    leaving = np.broadcast_to([[0.5, 0.0], [0.5, 0.5]], (2, 2, 2))
    return LatentBandit.bernoulli([0.5, 0.5], [[0.75, 0.25], [0.25, 0.5]], leaving=leaving)
