"""What a user would pick instead, on the same logs: value of the resulting policy, exact.

Peers (extra `peers`): MABWiser, contextualbandits and Vowpal Wabbit predict the next reward from the session so far
(an intercept, the step, how often each arm was played and what it paid); StepMix fits the same mixture as we do, and
msdm's point-based value iteration plans on it. What is not installed is reported in one line.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np

import lmab
from lmab.policies.belief_policies import BeliefPolicy
from lmab.policies.policy import State, best_allowed

from .rows import Rows

BUDGETS = (300, 1_000, 5_000, 20_000)
N_LOGS = 3
PATIENCE = 20.0  # seconds per log; a method that took longer is not given a larger log


@dataclass(frozen=True)
class Case:
    """A bandit and the length of its sessions."""

    name: str
    bandit: lmab.LatentBandit
    horizon: int


class Fit(Protocol):
    """From a log to a policy."""

    __name__: str

    def __call__(self, log: lmab.Sessions, case: Case, seed: int) -> lmab.Policy: ...


def cases() -> list[Case]:
    probing = lmab.LatentBandit.bernoulli([0.4, 0.35, 0.25], np.random.default_rng(11).uniform(0.05, 0.95, (3, 8)))
    drawn = {kind: lmab.random_bandit(4, 20, kind=kind, rng=np.random.default_rng(0)) for kind in ("spherical", "hard")}
    return [Case("probing", probing, 4), *(Case(kind, bandit, 5) for kind, bandit in drawn.items())]


class SessionFeatures(lmab.Policy):
    """Acts by a peer's prediction from the session so far; memory: plays and sums of rewards per arm."""

    kind = "session-features"
    n_arms: int

    def __init__(self, n_arms: int, predict: Callable[[Any], Any]) -> None:
        self.n_arms, self.horizon, self._predict = n_arms, None, predict

    def _initial_memory(self) -> Any:
        return np.zeros(2 * self.n_arms)

    def _remember(self, state: State, arms: Any, rewards: Any) -> Any:
        memory, rows = state.memory.copy(), np.arange(len(arms))
        memory[rows, arms] += 1
        memory[rows, self.n_arms + arms] += rewards
        return memory

    def _choose(self, state: State, allowed: Any, rng: Any) -> Any:
        intercept_and_step = np.tile([1.0, state.step], (len(state.memory), 1))
        return np.asarray(self._predict(np.hstack([intercept_and_step, state.memory])), np.int64)

    def record(self) -> Any:
        raise NotImplementedError("lives in this benchmark only")

    from_record = record  # type: ignore[assignment]


def features(log: lmab.Sessions) -> Any:
    """What `SessionFeatures` shows a peer, for every step of a log: (S, 2 + 2A)."""
    horizon = int(log.lengths[0])
    arms, rewards = (column.reshape(-1, horizon) for column in (log.arms, log.rewards))
    shown, rows = np.zeros((len(arms), horizon, 2 + 2 * log.n_arms)), np.arange(len(arms))
    shown[:, :, 0], shown[:, :, 1] = 1.0, np.arange(horizon)
    for step in range(1, horizon):
        shown[:, step, 2:] = shown[:, step - 1, 2:]
        shown[rows, step, 2 + arms[:, step - 1]] += 1
        shown[rows, step, 2 + log.n_arms + arms[:, step - 1]] += rewards[:, step - 1]
    return shown.reshape(-1, 2 + 2 * log.n_arms)


def mabwiser(log: lmab.Sessions, case: Case, seed: int) -> lmab.Policy:
    from mabwiser.mab import MAB, LearningPolicy

    model = MAB(list(range(log.n_arms)), LearningPolicy.LinGreedy(epsilon=0.0), seed=seed)
    model.fit(log.arms.tolist(), log.rewards.tolist(), features(log))
    return SessionFeatures(log.n_arms, lambda shown: np.atleast_1d(model.predict(shown)))


def contextualbandits(log: lmab.Sessions, case: Case, seed: int) -> lmab.Policy:
    from contextualbandits.online import SeparateClassifiers
    from sklearn.linear_model import LogisticRegression

    model = SeparateClassifiers(LogisticRegression(max_iter=300), nchoices=log.n_arms, random_state=seed + 1)
    model.fit(features(log), log.arms, log.rewards)
    return SessionFeatures(log.n_arms, lambda shown: model.decision_function(shown).argmax(axis=1))


def vowpal_wabbit(log: lmab.Sessions, case: Case, seed: int) -> lmab.Policy:
    from vowpalwabbit import Workspace

    def text(row: Any) -> str:
        return "| " + " ".join(
            f"f{index}:{row[index]:g}" for index in np.flatnonzero(row[1:]) + 1
        )  # the intercept is its own

    model = Workspace(f"--cb {log.n_arms} --quiet --random_seed {seed}")
    shown = [text(row) for row in features(log)]
    for _ in range(2):  # passes
        for arm, reward, line in zip(log.arms, log.rewards, shown, strict=True):
            model.learn(f"{arm + 1}:{-reward:g}:{1 / log.n_arms:g} {line}")
    return SessionFeatures(log.n_arms, lambda rows: np.array([model.predict(text(row)) for row in rows]) - 1)


def stepmix(log: lmab.Sessions, case: Case, seed: int) -> lmab.LatentBandit:
    """The mixture that StepMix fits to the first play of each arm in each session; fitted once for both planners."""
    from stepmix.stepmix import StepMix

    key = case.name, len(log), seed
    if key not in _FITTED:
        _FITTED[key] = _stepmix(StepMix, log, case, seed)
    return _FITTED[key]


_FITTED: dict[tuple[str, int, int], lmab.LatentBandit] = {}


def _stepmix(StepMix: Any, log: lmab.Sessions, case: Case, seed: int) -> lmab.LatentBandit:
    wide = np.full((len(log), log.n_arms), np.nan)
    sessions = np.repeat(np.arange(len(log)), log.lengths)
    wide[sessions[::-1], log.arms[::-1]] = log.rewards[::-1]  # in reverse: the first play stays
    n_types = case.bandit.n_types
    model = StepMix(n_types, measurement="binary_nan", n_init=2, max_iter=300, random_state=seed, progress_bar=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # StepMix says so when it stops early
        model.fit(wide)
    found = model.get_parameters()
    means = np.clip(np.asarray(found["measurement"]["pis"]), 1e-3, 1 - 1e-3)
    return lmab.LatentBandit.bernoulli(np.asarray(found["weights"]), means.reshape(n_types, -1))


def _discrete(bandit: lmab.LatentBandit) -> Any:
    return bandit.rewards  # on finitely many values, here


class StagedVectors(BeliefPolicy):
    """One-step lookahead on the alpha vectors that a peer found for each number of steps left."""

    kind = "staged-vectors"

    def __init__(self, bandit: lmab.LatentBandit, vectors: list[Any]) -> None:
        super().__init__(bandit, horizon=len(vectors))
        self.vectors = vectors  # [steps left] (n, M)

    def _choose(self, state: State, allowed: Any, rng: Any) -> Any:
        values, rewards = state.memory @ self.bandit.means, _discrete(self.bandit)
        for code in range(len(rewards.table)):
            later = (state.memory * rewards.table[code]) @ self.vectors[len(self.vectors) - 1 - state.step].T
            values[:, code // rewards.n_values] += later.max(axis=1)
        return best_allowed(values, allowed)


def stepmix_msdm(log: lmab.Sessions, case: Case, seed: int) -> lmab.Policy:
    from msdm.algorithms.pointbasedvalueiteration import expand_beliefs, point_based_value_iteration

    bandit = stepmix(log, case, seed)
    n_types, n_arms = bandit.means.shape
    likelihood = _discrete(bandit).probabilities  # (M, A, Z)
    pomdp = SimpleNamespace(
        transition_matrix=np.tile(np.eye(n_types)[:, None, :], (1, n_arms, 1)),
        observation_matrix=likelihood.transpose(1, 0, 2),
        state_action_reward_matrix=bandit.means,
        absorbing_state_vec=np.zeros(n_types),
        action_list=range(n_arms),
        state_list=range(n_types),
        observation_list=range(likelihood.shape[2]),
        discount_rate=1.0,
    )
    beliefs = bandit.weights[None]
    while len(beliefs) < 300:
        beliefs = expand_beliefs(pomdp, beliefs)
    vectors = [np.zeros((1, n_types))]
    for left in range(1, case.horizon):
        found = point_based_value_iteration(pomdp, beliefs, value_convergence_epsilon=0.0, horizon=left)
        vectors.append(found["alpha_vectors"])
    return StagedVectors(bandit, vectors)


def stepmix_lmab(log: lmab.Sessions, case: Case, seed: int) -> lmab.Policy:
    return lmab.plan(stepmix(log, case, seed), horizon=case.horizon, time_limit=10.0).policy


def ours(log: lmab.Sessions, case: Case, seed: int) -> lmab.Policy:
    run = lmab.learning.Run(
        lmab.DirectMLE(case.bandit.n_types, thompson_rounds=0),  # the log is given
        n_arms=log.n_arms,
        horizon=case.horizon,
        n_sessions=len(log),
        rng=np.random.default_rng(seed),
        time_limit=10.0,
    )
    run.tell(log)
    return run.learned.policy


METHODS: dict[str, Fit] = {
    "MABWiser LinGreedy": mabwiser,
    "contextualbandits": contextualbandits,
    "Vowpal Wabbit --cb": vowpal_wabbit,
    "StepMix + msdm": stepmix_msdm,
    "the same fit + our plan": stepmix_lmab,
    "DirectMLE + certified": ours,
}
NEXT_REWARD = (mabwiser, contextualbandits, vowpal_wabbit)


def measure(fit: Fit, case: Case, n_sessions: int) -> Rows:
    """Mean value over the logs, its standard error, and processor seconds per log."""
    values, start = [], time.process_time()
    for seed in range(N_LOGS):
        policy = fit(_log(case, n_sessions, seed), case, seed)
        values.append(lmab.evaluate(policy, case.bandit, horizon=case.horizon).mean)
    seconds = (time.process_time() - start) / N_LOGS
    error = float(np.std(values, ddof=1) / np.sqrt(N_LOGS))
    return {"value": float(np.mean(values)), "error": error, "seconds": seconds}


def _log(case: Case, n_sessions: int, seed: int) -> lmab.Sessions:
    uniform, rng = lmab.Uniform(case.bandit.n_arms), np.random.default_rng((n_sessions, seed))
    return lmab.simulate(case.bandit, uniform, n_sessions=n_sessions, horizon=case.horizon, rng=rng)


def references(case: Case) -> Rows:
    """What the truth allows: the optimum, greed, and one arm for everybody."""
    best = lmab.plan(case.bandit, horizon=case.horizon, time_limit=20.0)
    greedy = lmab.evaluate(lmab.Greedy(case.bandit), case.bandit, horizon=case.horizon).mean
    measures = {
        "lower": best.lower,
        "upper": best.upper,
        "greedy": greedy,
        "fixed": case.bandit.best_fixed(case.horizon),
    }
    return {f"{case.name}/{name}": value for name, value in measures.items()}


def main() -> Rows:
    rows: Rows = {}
    for case in cases():
        rows |= references(case)
        for name, fit in METHODS.items():
            try:
                fit(_log(case, 100, 0), case, 0)  # imports and compilation are not what is timed
            except ImportError as missing:
                print(f"{name}: not installed here ({missing})")
                continue
            for n in BUDGETS:
                found = measure(fit, case, n)
                rows |= {f"{case.name}/{fit.__name__}/{n}/{measure}": value for measure, value in found.items()}
                if found["seconds"] > PATIENCE:
                    break
        print(table(case.name, rows), flush=True)
    return rows | _ranges(rows)


def _ranges(rows: Rows) -> Rows:
    """The least and the most that predicting the next reward earns on the bandit where information costs."""
    values = [rows.get(f"hard/{fit.__name__}/1000/value", float("nan")) for fit in NEXT_REWARD]
    return {"hard/next-reward/least": min(values), "hard/next-reward/most": max(values)}


def table(name: str, rows: Rows) -> str:
    """One bandit: who earns what from how many sessions."""
    case = next(case for case in cases() if case.name == name)
    n_types, n_arms = case.bandit.means.shape
    known = {key: rows[f"{name}/{key}"] for key in ("lower", "upper", "greedy", "fixed")}
    lines = [
        f"**{name}**, M={n_types}, A={n_arms}, H={case.horizon}: optimum {known['lower']:.3f} to "
        f"{known['upper']:.3f}, greedy on the truth {known['greedy']:.3f}, best fixed arm {known['fixed']:.3f}",
        "",
        "| value ± s.e. (seconds) | " + " | ".join(f"N = {n:,}" for n in BUDGETS) + " |",
        "|---" * (1 + len(BUDGETS)) + "|",
    ]
    for label, fit in METHODS.items():
        cells = [_cell(f"{name}/{fit.__name__}/{n}", rows) for n in BUDGETS]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(key: str, rows: Rows) -> str:
    if f"{key}/value" not in rows:
        return "not run"
    return f"{rows[f'{key}/value']:.3f} ± {rows[f'{key}/error']:.3f} ({rows[f'{key}/seconds']:.1f})"


TABLES = {name: partial(table, name) for name in ("probing", "spherical", "hard")}

if __name__ == "__main__":
    main()
