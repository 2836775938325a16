"""pomdp-py on a latent bandit: its exact value iteration, and its online search POUCT."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pomdp_py

import lmab


def value_iteration(bandit: lmab.LatentBandit, horizon: int) -> int:
    """The first arm by exact value iteration."""
    return int(pomdp_py.ValueIteration(horizon=horizon, discount_factor=1.0).plan(agent_of(bandit)).name)


def agent_of(bandit: lmab.LatentBandit) -> Any:
    """The bandit in pomdp-py's terms: a state that never moves, an observation that is the reward."""
    types = [pomdp_py.SimpleState(m) for m in range(bandit.n_types)]
    arms = [pomdp_py.SimpleAction(str(a)) for a in range(bandit.n_arms)]
    probabilities = _probabilities(bandit)
    outcomes = [pomdp_py.SimpleObservation(z) for z in range(probabilities.shape[2])]
    table, means = probabilities.tolist(), bandit.means.tolist()

    class Stay(pomdp_py.TransitionModel):
        def probability(self, after: Any, before: Any, arm: Any) -> float:
            return float(after == before)

        def sample(self, before: Any, arm: Any) -> Any:
            return before

        def get_all_states(self) -> Sequence[Any]:
            return types

    class Show(pomdp_py.ObservationModel):
        def probability(self, outcome: Any, after: Any, arm: Any) -> float:
            return table[after.data][int(arm.name)][outcome.data]

        def sample(self, after: Any, arm: Any) -> Any:
            draw, total = np.random.random(), 0.0  # noqa: NPY002, the peer draws from the global generator too
            for outcome in outcomes:
                total += table[after.data][int(arm.name)][outcome.data]
                if draw < total:
                    return outcome
            return outcomes[-1]

        def get_all_observations(self) -> Sequence[Any]:
            return outcomes

    class Pay(pomdp_py.RewardModel):
        def sample(self, before: Any, arm: Any, after: Any) -> float:
            return means[before.data][int(arm.name)]

        def probability(self, reward: float, before: Any, arm: Any, after: Any) -> float:
            return float(reward == self.sample(before, arm, after))

    class Roll(pomdp_py.RolloutPolicy):
        def sample(self, state: Any) -> Any:
            return arms[np.random.randint(len(arms))]  # noqa: NPY002

        def rollout(self, state: Any, history: Any = None) -> Any:
            return self.sample(state)

        def get_all_actions(self, state: Any = None, history: Any = None) -> Sequence[Any]:
            return arms

    belief = pomdp_py.Histogram(dict(zip(types, bandit.weights.tolist(), strict=True)))
    return pomdp_py.Agent(belief, Roll(), Stay(), Show(), Pay())


def _probabilities(bandit: lmab.LatentBandit) -> Any:
    rewards: Any = bandit.rewards  # on finitely many values, here
    return rewards.probabilities


def pouct(bandit: lmab.LatentBandit, horizon: int, seconds: float, sessions: int) -> list[float]:
    """Expected reward of each simulated session, with a new search before every step."""
    rng = np.random.default_rng(1)
    np.random.seed(1)  # noqa: NPY002
    totals = []
    for type_ in rng.choice(bandit.n_types, size=sessions, p=bandit.weights).tolist():
        agent, total = agent_of(bandit), 0.0
        for step in range(horizon):
            planner = pomdp_py.POUCT(
                max_depth=horizon - step - 1,
                discount_factor=1.0,
                planning_time=seconds,
                exploration_const=1.0,
                rollout_policy=agent.policy_model,
            )
            arm = planner.plan(agent)
            total += bandit.means[type_, int(arm.name)]
            outcome = int(bandit.rewards.sample(np.array([type_]), np.array([int(arm.name)]), rng=rng)[0])
            after = {
                state: agent.belief[state] * _probabilities(bandit)[state.data, int(arm.name), outcome]
                for state in agent.belief.histogram
            }
            mass = sum(after.values())
            agent.set_belief(pomdp_py.Histogram({state: share / mass for state, share in after.items()}))
            agent.tree = None
        totals.append(total)
    return totals
