"""Held-out residual tests of a fit, and the correction of predicted values that follows from them.

A fit to one half of the sessions predicts each reward of the other half from the past of its session. If the model is
right, the residuals are martingale differences under any logging policy that sees no more than the past: their mean is
0 given everything before the step. Score tests look for effects that the model lacks, one block of effects each:
the step, plays of the arm before in the session, the previous reward, pairs of successive arms, the calendar, and
sessions without (or with nothing but) rewards so far.

If a block fires, offsets for all blocks are learned by ridge regression, with the evidence of each block as its penalty
(MacKay 1992), and a plan is evaluated with these offsets. Offsets of the calendar are averaged over the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import chdtrc, expit, logit, ndtri

from .._shapes import Array, Bool, Float, Integer
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..estimation.assumptions import Assumption
from ..estimation.em import EM
from ..estimation.families import observe
from ..estimation.result import Estimate
from ..estimation.step_effects import first_steps
from ..model.bandit import LatentBandit
from ..model.belief import log_attrition_likelihood
from ..model.categorical import Categorical
from ..model.rewards import encode_values
from .assessment import HeldOutTests
from .messages import CALENDAR, PAIRS, PREVIOUS, REPEATS, RESIDUALS, SILENT, STEP, WITHIN
from .replanning import Earned, Histories

FIRES = 1e-4  # p-value over all blocks: 0 of 80 logs of a right model fired, the smallest p-value was .004
_LEAST_CHANGE = 0.005  # relative change of rewards below which an effect within sessions is not reported
_FOLD_FIT = EM(restarts=3, tolerance=1e-5, prior="learned", sweeps=16)
_LOOKED_AT = 8_000  # sessions of a larger log
_FEW = 100  # sessions below which nothing is tested
_MANY_TYPES, _FEWER_TYPES = 32, 4  # types above which the halves are fitted with fewer
_FEW_PLAYS = 30  # plays of a pair, or of an arm in a quarter, below which it is not tested
_MANY_PAIRS = 900  # pairs above which they are tested and not corrected
_QUARTERS = 4
_ROUNDS, _FIRST_PENALTY, _PENALTIES = 15, 25.0, (1.0, 1e5)  # of the ridge regression
_NEVER = -700.0  # logs of likelihoods below this count as this
_EDGE = 1e-3  # predicted means, as shares of the range of rewards, stay so far from its ends
_TILTS = 40  # bisections of the tilt of a distribution to a mean
_DRAWS = 12  # draws of the offsets from which the standard error of a corrected value is computed


@dataclass(frozen=True, eq=False)
class Steps:
    """What happened before each of S steps in its session, as far as effects may depend on it."""

    step: Integer[Array, "S"]
    arm: Integer[Array, "S"]
    before: Integer[Array, "S"]  # the previous arm; -1 at the first step
    plays: Integer[Array, "S"]  # earlier plays of the arm in the session
    reward: Float[Array, "S"]  # previous reward as a share of the range; 0 at the first step
    none: Bool[Array, "S"]  # whether all earlier rewards are the lowest one
    every: Bool[Array, "S"]  # whether all earlier rewards are the highest one
    quarter: Integer[Array, "S"]  # of the log, in the order of time

    @classmethod
    def of(
        cls, arms: Integer[Array, "n H"], shares: Float[Array, "n K"], here: Bool[Array, "n H"],
        quarter: Integer[Array, "n"],
    ) -> Steps:  # fmt: skip
        """Collect the steps of n padded sessions, session by session; `shares` are their rewards within the range."""
        n, horizon = arms.shape
        plays, none, every = np.zeros((n, horizon), np.int64), np.ones((n, horizon), bool), np.ones((n, horizon), bool)
        none[:, 0] = every[:, 0] = False
        for step in range(1, horizon):
            plays[:, step] = (arms[:, :step] == arms[:, [step]]).sum(axis=1)
            none[:, step] = (none[:, step - 1] | (step == 1)) & (shares[:, step - 1] <= 0)
            every[:, step] = (every[:, step - 1] | (step == 1)) & (shares[:, step - 1] >= 1)
        before = np.concatenate([np.full((n, 1), -1), arms[:, :-1]], axis=1)
        last = np.concatenate([np.zeros((n, 1)), shares[:, : horizon - 1]], axis=1)
        steps = np.broadcast_to(np.arange(horizon), (n, horizon))
        quarters = np.broadcast_to(quarter[:, None], (n, horizon))
        return cls(*(each[here] for each in (steps, arms, before, plays, last, none, every, quarters)))

    def columns(self, name: str, n_arms: int, n_groups: int) -> Any:
        """Return the columns of a block as a sparse matrix."""
        later = self.step > 0
        group = np.minimum(np.log2(self.step + 1.0).astype(np.int64), n_groups - 1)
        if name == STEP:
            return _indicators(group, n_groups)
        if name == REPEATS:
            return _stacked([self.plays > 0, self.plays, later & (self.before == self.arm)])
        if name == PREVIOUS:
            return _stacked([later, later * self.reward])
        if name == SILENT:
            return _stacked([later & self.none, later & self.every])
        if name == PAIRS:
            return _indicators(np.where(later, self.before * n_arms + self.arm, -1), n_arms**2)
        by_arm = _indicators(self.quarter * n_arms + self.arm, _QUARTERS * n_arms)
        return sparse.hstack([_indicators(self.quarter, _QUARTERS), by_arm]).tocsr()


def _indicators(column: Integer[Array, "S"], n_columns: int) -> Any:
    """Return a matrix with a 1 in one column of each row; rows with a negative column are empty."""
    rows = np.flatnonzero(column >= 0)
    return sparse.csr_matrix((np.ones(len(rows)), (rows, column[rows])), shape=(len(column), n_columns))


def _stacked(columns: list[Any]) -> Any:
    return sparse.csr_matrix(np.stack([np.asarray(column, float) for column in columns], axis=1))


@dataclass(frozen=True, eq=False)
class Residuals:
    """Held-out steps with the rewards that were predicted for them, as shares of the range of rewards."""

    steps: Steps
    reward: Float[Array, "S"]
    predicted: Float[Array, "S"]
    variance: Float[Array, "S"]  # of the reward given the past of the session
    n_arms: int
    range: tuple[float, float]  # lowest and highest reward

    @classmethod
    def of(cls, estimate: Estimate, sessions: Sessions | Packed, rng: np.random.Generator) -> Residuals | None:
        """Predict each half of the sessions by a fit to the other half; None if there are too few sessions or values.

        At most 8,000 sessions are used, evenly from the log, in the order of time if it is known.
        """
        chosen = sessions[:: max(1, -(-len(sessions) // _LOOKED_AT))]
        log = chosen.in_time() or chosen
        low, high = float(log.rewards.min(initial=0.0)), float(log.rewards.max(initial=0.0))
        if len(log) < _FEW or high <= low:
            return None
        predicted, variance = np.empty(log.n_steps), np.empty(log.n_steps)
        owner = np.repeat(np.arange(len(log)), log.lengths)
        for fold in range(2):
            mine = np.arange(fold, len(log), 2)
            bandit = _fitted(estimate, log[np.arange(1 - fold, len(log), 2)], rng)
            inside = owner % 2 == fold
            predicted[inside], variance[inside] = _predictions(bandit, log[mine], estimate)
        span = high - low
        shares = (log.rewards - low) / span
        arms, rewards, here = _padded(log, shares)
        quarter = np.arange(len(log)) * _QUARTERS // len(log)
        steps = Steps.of(arms, rewards, here, quarter)
        share = np.clip((predicted - low) / span, _EDGE, 1 - _EDGE)
        error = shares - share
        if estimate.bandit.rewards.values is None:  # no distribution over values: the spread of each arm's residuals
            plays = np.maximum(np.bincount(steps.arm, minlength=log.n_arms), 1)
            spread = np.bincount(steps.arm, error**2, minlength=log.n_arms) / plays
            variance = spread[steps.arm]
        else:
            variance = np.maximum(variance / span**2, _EDGE * (1 - _EDGE) * _EDGE)
        variance = variance * float((error**2).sum() / max(variance.sum(), 1e-300))
        return cls(steps, shares, share, variance, log.n_arms, (low, high))

    @cached_property
    def n_groups(self) -> int:
        """Groups of steps: the first, the next two, the next four, ..., as far as there are enough of them."""
        group = np.log2(self.steps.step + 1.0).astype(np.int64)
        enough = np.flatnonzero(np.bincount(group) >= _FEW_PLAYS)
        return int(enough[-1]) + 1 if len(enough) else 1

    def p_value(self, name: str, offset: Float[Array, "S"] | None = None) -> float:
        """Return the p-value of the score test of a block, beside levels of arms and an offset in log-odds."""
        predicted = self.predicted if offset is None else expit(logit(self.predicted) + offset)
        error = self._without_arms(self.reward - predicted)
        if name == PAIRS:
            return self._cells(error, np.where(self.steps.step > 0, self._pair, -1), self.n_arms**2)
        if name == CALENDAR:
            cells = self.steps.quarter * self.n_arms + self.steps.arm
            level = self._dense(self.reward - predicted, _indicators(self.steps.quarter, _QUARTERS))
            return min(2 * min(level, self._cells(error, cells, _QUARTERS * self.n_arms)), 1.0)
        return self._dense(self.reward - predicted, self.steps.columns(name, self.n_arms, self.n_groups))

    @property
    def _pair(self) -> Integer[Array, "S"]:
        return self.steps.before * self.n_arms + self.steps.arm

    def _without_arms(self, values: Float[Array, "S"]) -> Float[Array, "S"]:
        """Subtract the mean of each arm, which the fit to the other half knows with an error."""
        weights = np.maximum(np.bincount(self.steps.arm, self.variance, minlength=self.n_arms), 1e-300)
        level = np.bincount(self.steps.arm, values, minlength=self.n_arms) / weights
        return values - self.variance * level[self.steps.arm]

    def _cells(self, error: Float[Array, "S"], cell: Integer[Array, "S"], n_cells: int) -> float:
        """Compare the residuals of many cells with their variance."""
        inside = cell >= 0
        plays = np.bincount(cell[inside], minlength=n_cells)
        sums = np.bincount(cell[inside], error[inside], minlength=n_cells)
        spread = np.bincount(cell[inside], self.variance[inside], minlength=n_cells)
        enough = (plays >= _FEW_PLAYS) & (spread > 0)
        degrees = int(enough.sum()) - len(np.unique(np.flatnonzero(enough) % self.n_arms))
        if degrees < 1:
            return 1.0
        return float(chdtrc(degrees, (sums[enough] ** 2 / spread[enough]).sum()))

    def _dense(self, error: Float[Array, "S"], columns: Any) -> float:
        values = np.stack([self._centred(column) for column in columns.toarray().T], axis=1)
        information = (values * self.variance[:, None]).T @ values
        sizes, directions = np.linalg.eigh(information)
        kept = sizes > 1e-8 * max(float(sizes[-1]), 1e-300)
        if not kept.any() or not sizes[-1] > 0:
            return 1.0
        score = (directions.T @ (values.T @ error))[kept]
        return float(chdtrc(int(kept.sum()), (score**2 / sizes[kept]).sum()))

    def _centred(self, column: Float[Array, "S"]) -> Float[Array, "S"]:
        weights = np.maximum(np.bincount(self.steps.arm, self.variance, minlength=self.n_arms), 1e-300)
        return (
            column
            - (np.bincount(self.steps.arm, self.variance * column, minlength=self.n_arms) / weights)[self.steps.arm]
        )


def _padded(log: Sessions, shares: Float[Array, "S"]) -> tuple[Array, Array, Array]:
    """Return arms (-1 after the end), rewards as shares of the range, and which steps exist, one row per session."""
    here = np.arange(log.horizon) < log.lengths[:, None]
    arms, rewards = np.full(here.shape, -1), np.zeros(here.shape)
    arms[here], rewards[here] = log.arms, shares
    return arms, rewards, here


def _fitted(estimate: Estimate, log: Sessions, rng: np.random.Generator) -> LatentBandit:
    """Return a quick fit of as many types as the estimate has to some of its sessions."""
    rewards = estimate.bandit.rewards
    values = rewards.values if rewards.family == "categorical" else None
    seen = observe(log, rewards=rewards.family, values=values)
    if estimate.bandit.has_informative_attrition and estimate.factors is None:
        seen = seen.with_letters()
    n_types = estimate.n_types if estimate.n_types <= _MANY_TYPES else _FEWER_TYPES
    found = _FOLD_FIT.fit(seen, n_types=min(n_types, len(log)), rng=rng).bandit
    effects = estimate.bandit.step_effects
    if effects is None:
        return found
    (rewards,) = first_steps(estimate.bandit, log, [found.rewards])
    return replace(found, rewards=rewards, step_effects=effects)


def _predictions(
    bandit: LatentBandit, log: Sessions, estimate: Estimate
) -> tuple[Float[Array, "S"], Float[Array, "S"]]:
    """Return mean and variance of each reward given the past of its session."""
    owner = np.repeat(np.arange(len(log)), log.lengths)
    terms = _log_likelihood(bandit, log)
    if bandit.has_informative_attrition:
        terms = terms + log_attrition_likelihood(bandit, log)
    total = np.cumsum(np.maximum(terms, _NEVER), axis=0)
    past = total - np.maximum(terms, _NEVER)
    past -= past[log.offsets[:-1]][owner]
    with np.errstate(divide="ignore"):
        logs = past + np.log(_weights(bandit, log, estimate, owner))[owner]
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    mean, second = np.empty(log.n_steps), np.ones(log.n_steps)
    for rows, model in _by_step(bandit, log):
        family, arms = model.rewards, log.arms[rows]
        mean[rows] = (shares[rows] * model.means.T[arms]).sum(axis=1)
        if isinstance(family, Categorical):
            second[rows] = (shares[rows] * (family.probabilities @ family.values**2).T[arms]).sum(axis=1)
    return mean, second - mean**2


def _by_step(bandit: LatentBandit, log: Sessions) -> list[tuple[Any, LatentBandit]]:
    """Return the rows of the steps at which a bandit is the same, each with the bandit there."""
    if bandit.step_effects is None:
        return [(slice(None), bandit)]
    return [(np.flatnonzero(log.steps == step), bandit.at(step)) for step in range(log.horizon)]


def _log_likelihood(bandit: LatentBandit, log: Sessions) -> Float[Array, "S M"]:
    """Return the log-likelihood of each reward in each type."""
    found = np.empty((log.n_steps, bandit.n_types))
    for rows, model in _by_step(bandit, log):
        found[rows] = model.rewards.log_likelihood(log.arms[rows], log.rewards[rows])
    return found


def _weights(
    bandit: LatentBandit, log: Sessions, estimate: Estimate, owner: Integer[Array, "S"]
) -> Float[Array, "N M"]:
    """Return the weights of the types of each session, by its features if the estimate uses them.

    Types of the estimate and of the bandit are matched by how often they go together in the log.
    """
    prior = estimate.type_prior
    if prior is None or not prior.columns or log.features is None:
        return np.broadcast_to(bandit.weights, (len(log), bandit.n_types))
    own = estimate.posterior(log)
    terms = np.maximum(_log_likelihood(bandit, log), _NEVER)
    logs = np.log(np.maximum(bandit.weights, 1e-300)) + np.add.reduceat(terms, log.offsets[:-1], axis=0)
    other = np.exp(logs - logs.max(axis=1, keepdims=True))
    other /= other.sum(axis=1, keepdims=True)
    together = own.T @ other + 1e-9
    together /= together.sum(axis=1, keepdims=True)
    return prior.weights(log.features.only(prior.columns)) @ together


@dataclass(frozen=True, eq=False)
class Correction:
    """Offsets in log-odds of the reward (as a share of its range), one for each column of the blocks."""

    offsets: Float[Array, "K"]
    root: Float[Array, "K K"]  # of their covariance
    blocks: Mapping[str, slice]
    n_arms: int
    n_groups: int
    range: tuple[float, float]

    @classmethod
    def learn(cls, residuals: Residuals) -> Correction:
        """Learn the offsets of all blocks but *silent* by ridge regression; the evidence sets the penalty of each."""
        names = [name for name in (*WITHIN, CALENDAR) if name != PAIRS or residuals.n_arms**2 <= _MANY_PAIRS]
        parts = [residuals.steps.columns(name, residuals.n_arms, residuals.n_groups) for name in names]
        ends = np.cumsum([0, *(part.shape[1] for part in parts)])
        blocks = {name: slice(*pair) for name, pair in zip(names, np.stack([ends[:-1], ends[1:]], axis=1), strict=True)}
        columns, known = sparse.hstack(parts).tocsr(), logit(residuals.predicted)
        error = residuals.reward - residuals.predicted
        spread = float((error**2).sum() / (residuals.predicted * (1 - residuals.predicted)).sum())
        offsets, penalty = np.zeros(columns.shape[1]), np.full(columns.shape[1], _FIRST_PENALTY)
        covariance = np.eye(len(offsets))
        for round_ in range(_ROUNDS):
            predicted = expit(known + columns @ offsets)
            weights = predicted * (1 - predicted) / spread
            information = (columns.T @ columns.multiply(weights[:, None])).toarray() + np.diag(penalty)
            covariance = np.linalg.inv(information)
            score = columns.T @ (residuals.reward - predicted) / spread - penalty * offsets
            offsets = offsets + covariance @ score
            for part in blocks.values() if round_ > 1 else ():
                size = part.stop - part.start
                free = max(size - penalty[part.start] * float(np.diag(covariance)[part].sum()), 0.02)
                penalty[part] = np.clip(free / max(float((offsets[part] ** 2).sum()), 1e-9), *_PENALTIES)
        root = np.linalg.cholesky((covariance + covariance.T) / 2 + 1e-12 * np.eye(len(offsets)))
        return cls(offsets, root, blocks, residuals.n_arms, residuals.n_groups, residuals.range)

    def of_steps(self, steps: Steps, offsets: Float[Array, "K"] | None = None) -> Float[Array, "S"]:
        """Return the offset of each step, with calendar effects averaged over the quarters of the log."""
        own = self.offsets if offsets is None else offsets
        found = np.zeros(len(steps.step))
        for name, part in self.blocks.items():
            if name == CALENDAR:
                level, by_arm = own[part][:_QUARTERS].mean(), own[part][_QUARTERS:].reshape(_QUARTERS, -1).mean(axis=0)
                found += level + by_arm[steps.arm]
            else:
                found += steps.columns(name, self.n_arms, self.n_groups) @ own[part]
        return found

    def on_log(self, steps: Steps) -> Float[Array, "S"]:
        """Return the offset of each step of the log itself, in its own quarter."""
        return sum(
            steps.columns(name, self.n_arms, self.n_groups) @ self.offsets[part] for name, part in self.blocks.items()
        )

    def change(self, residuals: Residuals, name: str) -> float:
        """Return the relative change of the predicted reward where a block applies most, from the first step on."""
        block = residuals.steps.columns(name, self.n_arms, self.n_groups) @ self.offsets[self.blocks[name]]
        if name == STEP:
            block = block - block[residuals.steps.step == 0].mean()
        if not np.any(block):
            return 0.0
        most = np.abs(block) >= 0.5 * np.abs(block).max()
        before = residuals.predicted[most]
        return float(expit(logit(before) + block[most]).mean() / before.mean() - 1)

    def values(self, played: Earned, bandit: LatentBandit, mass: Float[Array, "G M"]) -> Float[Array, "D"]:
        """Return what the policy of simulated sessions earns: on the model, with the offsets, and with drawn offsets.

        The sessions were played on the model; each counts by how much likelier its rewards are with the offsets.
        """
        rng = np.random.default_rng(0)  # the same draws for every policy, so that differences have little noise
        drawn = self.offsets + (rng.standard_normal((_DRAWS, len(self.offsets))) @ self.root.T)
        path = _Path.of(played.histories, bandit, mass, self.range)
        rows = [np.zeros(path.n_steps), *(self.of_steps(path.steps, own) for own in (self.offsets, *drawn))]
        return np.array([path.value(row.reshape(len(played.histories.arms), -1)) for row in rows])


@dataclass(frozen=True, eq=False)
class _Path:
    """Simulated sessions of a policy on a model, with the distribution of each reward given the past."""

    steps: Steps
    shares: Float[Array, "n"]
    means: Float[Array, "n H"]
    chances: Float[Array, "n H Z"] | None  # of each value; None: rewards have a density
    codes: Integer[Array, "n K"]
    values: Float[Array, "Z"]
    stays: Float[Array, "n H"]
    range: tuple[float, float]

    @classmethod
    def of(
        cls, histories: Histories, bandit: LatentBandit, mass: Float[Array, "G M"], range_: tuple[float, float]
    ) -> _Path:
        arms, rewards = histories.arms, histories.rewards
        low, high = range_
        here = np.ones(arms.shape, bool)
        steps = Steps.of(arms, (rewards - low) / (high - low), here, np.zeros(len(arms), np.int64))
        joint = histories.reached(bandit, mass)
        belief = joint / joint.sum(axis=2, keepdims=True)
        kept = joint * histories.stays(bandit)
        stays = kept.sum(axis=2) / joint.sum(axis=2)
        there = kept / np.maximum(kept.sum(axis=2, keepdims=True), 1e-300)
        models = [bandit.at(step) for step in range(arms.shape[1])]
        means = np.stack([(there[:, t] * one.means.T[arms[:, t]]).sum(axis=1) for t, one in enumerate(models)], axis=1)
        family = bandit.rewards
        if not isinstance(family, Categorical):
            return cls(steps, histories.shares, means, None, np.zeros((len(arms), 0), int), np.zeros(0), stays, range_)
        tables = [one.rewards.probabilities for one in models if isinstance(one.rewards, Categorical)]
        chances = np.stack(
            [np.einsum("nm,mnz->nz", belief[:, t], table[:, arms[:, t]]) for t, table in enumerate(tables)], axis=1
        )
        codes = encode_values(family.values, rewards.ravel()).reshape(rewards.shape)
        return cls(steps, histories.shares, means, chances, codes, family.values, stays, range_)

    @property
    def n_steps(self) -> int:
        return self.means.size

    def value(self, offsets: Float[Array, "n H"]) -> float:
        """Return the value of a session whose rewards have these offsets in log-odds."""
        low, high = self.range
        share = np.clip((self.means - low) / (high - low), _EDGE, 1 - _EDGE)
        means = np.where(offsets == 0, self.means, low + (high - low) * expit(logit(share) + offsets))
        ratios = np.ones(self.means.shape)
        if self.chances is not None and offsets.any():
            some = self.chances[:, :-1]
            tilted = _tilted(some, self.values, (some @ self.values) + (means - self.means)[:, :-1])
            rows, columns = np.indices(self.codes.shape)
            each = tilted[rows, columns, self.codes] / np.maximum(some[rows, columns, self.codes], 1e-300)
            ratios[:, 1:] = np.cumprod(each, axis=1)
        weights = self.shares[:, None] * ratios
        return float((weights * self.stays * means / weights.sum(axis=0)).sum())


def _tilted(
    chances: Float[Array, "n K Z"], values: Float[Array, "Z"], means: Float[Array, "n K"]
) -> Float[Array, "n K Z"]:
    """Tilt distributions over values exponentially, so that they have these means."""
    scale = np.abs(values).max()
    points = values / scale
    low, high = np.full(means.shape, -60.0), np.full(means.shape, 60.0)
    target = np.clip(means / scale, points.min(), points.max())
    for _ in range(_TILTS):
        middle = (low + high) / 2
        weights = chances * np.exp(middle[..., None] * (points - points.max()))
        above = (weights @ points) > target * weights.sum(axis=-1)
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    weights = chances * np.exp(((low + high) / 2)[..., None] * (points - points.max()))
    return weights / weights.sum(axis=-1, keepdims=True)


def held_out_tests(chances: Mapping[str, float], changes: Mapping[str, float]) -> HeldOutTests:
    """Return the tests with these p-values; `changes` are relative changes of rewards by effects within sessions.

    An effect within sessions fires if its p-value is small and the correction finds it.
    """
    found = {}
    for name, (_, holds, fires) in RESIDUALS.items():
        change = changes.get(name)
        fired = chances[name] * len(RESIDUALS) < FIRES and (change is None or abs(change) >= _LEAST_CHANGE)
        text = fires.format(0.0 if change is None else change) if fired else holds
        score = float(-ndtri(np.clip(chances[name], 1e-300, 1 - 1e-16)))
        found[name] = Assumption(fired, score, text)
    return HeldOutTests(**found)
