"""Plans without repeats from rounds of backups: a lower bound that holds for the policy."""

from __future__ import annotations

import numpy as np

from ..._shapes import Array, Bool, Float, Integer
from ...errors import Status
from ..backups import useful_arms
from ..problem import Clock, Plan, Problem
from .backups import NoRepeatRounds, NoRepeatVectors, backup
from .sequences import best_sequences
from .vector_policy import no_repeat_policy

_LARGEST_TREE = 1 << 21  # nodes times types of the tree of greedy first steps
_LARGEST_GAINS = 1 << 27  # nodes times arms of that tree
_BLOCK = 1024  # beliefs handled at once
_FIRST = (12, 60)  # sessions of the first rounds: soon there is something to return


class NoRepeatPlans:
    """Plans found so far, for 1, 2, ..., H steps to go, with the arms that are planned with."""

    def __init__(self, problem: Problem, seed: int, clock: Clock) -> None:
        self._whole = problem
        # If the order of arms matters, a policy compares orders of all arms, and so must its plans.
        self.arms = useful_arms(problem) if problem.is_uniform else np.arange(problem.n_arms)
        self.problem = problem = problem if len(self.arms) == problem.n_arms else problem.among(self.arms)
        self._place = np.full(self._whole.n_arms, problem.n_arms)  # of each arm among the planned ones
        self._place[self.arms] = np.arange(problem.n_arms)
        self._clock = clock
        self._rounds = NoRepeatRounds(problem, np.random.default_rng(seed), lambda: clock.expired)
        self.plans = [NoRepeatVectors.none(problem)] * problem.horizon
        self._greedy_start: tuple[float, int] | None = None  # Value and arm of the plans as they are.
        self.sequences = np.array([_best_sequence(one) for _, one in problem.each()])  # at every prior
        self.sequence = float(self.sequences[0] if problem.shares is None else problem.shares @ self.sequences)

    @property
    def of_all_arms(self) -> list[NoRepeatVectors]:
        """Return the plans with the arm numbers of the whole problem."""
        found = []
        for plans in self.plans:
            used = np.zeros((len(plans.arms), self._whole.n_arms), bool)
            used[:, self.arms] = plans.used
            found.append(NoRepeatVectors(plans.vectors, self.arms[plans.arms], used))
        return found

    @property
    def lower_bound(self) -> float:
        """Return a lower bound on the value of the policy: the best plan for all steps, or the best fixed sequence."""
        problem = self.problem
        if problem.priors is not None and problem.shares is not None:
            worth = (problem.priors @ self.plans[-1].vectors.T).max(axis=1, initial=-np.inf)
            return float(problem.shares @ np.maximum(worth, self.sequences))
        worth = self.plans[-1].vectors @ problem.weights
        return float(max(worth.max(initial=-np.inf), self.sequence))

    def greedy_start(self) -> tuple[float, int]:
        """Return the best lower bound with greedy steps before the plans, and the number of these steps."""
        if self._greedy_start is None:
            self._greedy_start = self._best_greedy_start()
        return self._greedy_start

    def _best_greedy_start(self) -> tuple[float, int]:
        """Enumerate the observations of greedy steps until the tree would be too large.

        In long sessions most beliefs are far from all simulated ones; the plans then undervalue later information.
        """
        problem = self.problem
        if problem.priors is not None:  # no greedy steps, because their value differs between priors
            return self.lower_bound, 0
        beliefs, played = problem.weights[None], np.empty((1, 0), np.int64)
        earned, best = 0.0, (self.lower_bound, 0)
        for step in range(1, problem.horizon):
            n_next = len(beliefs) * problem.n_values
            large = n_next * len(problem.weights) > _LARGEST_TREE or n_next * self._whole.n_arms > _LARGEST_GAINS
            if large or self._clock.expired:
                break
            now = self._whole.step(problem.horizon - step + 1)
            arms = self._greedy(beliefs, played, now.means)
            earned += float(np.einsum("nm,nm->", now.means[arms], beliefs))
            codes = arms[:, None] * problem.n_values + np.arange(problem.n_values)
            beliefs = (beliefs[:, None, :] * now.table[codes]).reshape(-1, beliefs.shape[1])
            played = np.repeat(np.column_stack([played, arms]), problem.n_values, axis=0)
            possible = beliefs.sum(axis=1) > 0
            beliefs, played = beliefs[possible], played[possible]
            best = max(best, (earned + self._worth(beliefs, played, problem.horizon - step), step))
        return best

    def _greedy(
        self, beliefs: Float[Array, "n M"], played: Integer[Array, "n t"], means: Float[Array, "A M"]
    ) -> Integer[Array, "n"]:
        """Return the unplayed arm with the best mean."""
        best = np.empty(len(beliefs), np.int64)
        for start in range(0, len(beliefs), _BLOCK):
            part = slice(start, start + _BLOCK)
            gains = beliefs[part] @ means.T
            np.put_along_axis(gains, played[part], -np.inf, axis=1)
            best[part] = gains.argmax(axis=1)
        return best

    def _worth(self, beliefs: Float[Array, "n M"], played: Integer[Array, "n t"], steps: int) -> float:
        """Return the total value of the plans with `steps` to go; -inf if the time is over."""
        plans, total = self.plans[steps - 1], 0.0
        for start in range(0, len(beliefs), _BLOCK):
            if self._clock.expired:
                return -np.inf
            here, seen = beliefs[start : start + _BLOCK], self._seen(played[start : start + _BLOCK])
            scores = np.where(plans.conflicts(seen), -np.inf, here @ plans.vectors.T)
            left = np.where(seen, -np.inf, here @ self.problem.step(steps).means.T)
            if self.problem.is_uniform:
                sequence = np.partition(left, -steps, axis=1)[:, -steps:].sum(axis=1)  # the best arms left
            else:
                sequence = best_sequences(self.problem, here, left, seen, steps)[1]
            total += float(np.maximum(scores.max(axis=1, initial=-np.inf), sequence).sum())
        return total

    def _seen(self, played: Integer[Array, "n t"]) -> Bool[Array, "n K"]:
        """Return which of the planned arms were played."""
        seen = np.zeros((len(played), self.problem.n_arms + 1), bool)
        np.put_along_axis(seen, self._place[played], True, axis=1)
        return seen[:, :-1]

    def look_ahead(self) -> None:
        if self.problem.horizon > 1:
            self._replace([*self.plans[:-1], self.plans[-1].joined(self._rounds.look_ahead(self.plans))])

    def back_up(self, n_sessions: int) -> bool:
        """Add the plans of one round; return whether there are any."""
        if self.problem.horizon == 1:
            return False
        found = self._rounds.run(self.plans, n_sessions)
        self._replace([old.joined(new) for old, new in zip(self.plans, found, strict=True)])
        return any(len(new.arms) for new in found)

    def add(
        self, steps: int, beliefs: Float[Array, "n M"], played: Bool[Array, "n A"], candidates: Integer[Array, "n c"]
    ) -> None:
        """Add the best plans for `steps` that begin with a candidate; arms have the numbers of the whole problem."""
        problem, plans = self.problem, self.plans
        later = plans[steps - 2] if steps > 1 else NoRepeatVectors.none(problem)
        seen, place = played[:, self.arms], self._place[candidates]
        if (place == problem.n_arms).any():  # an arm that is not planned with
            return
        new = backup(problem, beliefs, seen, place, later, plans[steps - 1], steps, np.float64)
        self._replace([*plans[: steps - 1], plans[steps - 1].joined(new), *plans[steps:]])

    def _replace(self, plans: list[NoRepeatVectors]) -> None:
        self.plans, self._greedy_start = plans, None


def _best_sequence(problem: Problem) -> float:
    """Return the value of the best fixed sequence."""
    gains = problem.weights @ problem.step(problem.horizon).means.T
    if problem.is_uniform:
        return float(np.sort(problem.means @ problem.weights)[-problem.horizon :].sum())
    nothing = np.zeros((1, problem.n_arms), bool)
    return float(best_sequences(problem, problem.weights[None], gains[None], nothing, problem.horizon)[1][0])


def rounds_of(n_beliefs: int) -> list[int]:
    """Return the sessions of every round: small ones first, the last at the beliefs that the plans lead to."""
    return [n for n in _FIRST if n < n_beliefs] + [n_beliefs] * 2


def plan_no_repeat_points(problem: Problem, clock: Clock, n_beliefs: int, seed: int) -> Plan:
    """Return the plan of `PointBased` without repeats."""
    known = problem.full_information
    found, reason = NoRepeatPlans(problem, seed, clock), Status.HEURISTIC
    clock.record(found.sequence, known)
    try:
        found.look_ahead()
        for n in rounds_of(n_beliefs):
            clock.record(found.lower_bound, known)
            if clock.expired:
                reason = Status.TIME_LIMIT
                break
            found.back_up(n)
        lower, greedy_steps = found.greedy_start()
    except KeyboardInterrupt:
        reason, lower, greedy_steps = Status.INTERRUPTED, found.lower_bound, 0
    clock.record(lower, known)
    lower, upper = clock.trace[-1][1:]
    message = f"PBVI on {n_beliefs} sessions, no arm twice: the policy earns at least the lower bound"
    if problem.binned:
        message += f"; rewards were put into {problem.n_values} bins per arm"
    policy = no_repeat_policy(problem, found.of_all_arms, greedy_steps)
    return Plan(policy, problem.horizon, lower, upper, reason, message, tuple(clock.trace))
