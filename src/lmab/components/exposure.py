"""The component of selective exposure: types also explain which arms were chosen, for reasons that the log omits.

In state g the logging policy chooses arm a for type m with probability p(a | m, g) = V[g, a] u[a, m] / Z[g, m], with
Z[g, m] = sum_a V[g, a] u[a, m]. V holds the shares of the arms for all types (by part of the calendar, after the step
before, without the arms that a session has played), which cancel in the E step; u is how a type tilts them. So the row
of (arm, value) is multiplied by u[a, m], and a code per step for its state has the row 1 / Z[g, m].

*Preferences*: u = exp(beta (mean of the arm in the type - its average over types)). *Free*: u ~ Gamma(c b, c b) with
the arm's share b, conjugate through waiting times (Caron and Doucet 2012).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from .._shapes import Array, Float, Integer
from ..data.sessions import Sessions
from ..estimation.categorical import CategoricalLog
from ..estimation.log import Beside, CodeBlock
from ..model.rewards import encode_values
from .component import Component, Rows

NAME = "exposure"
LOOKED_AT = 10_000  # sessions of a larger log on which it is decided
_CELLS = 20_000_000  # states times arms that are held in memory
_PART, _PARTS = 50, 40  # sessions of a part of the calendar at least, and parts at most
_SHRINK = 10.0  # pseudo-plays that draw the shares of a state to those of the log
_LAST = 400  # codes up to which the step before is a state
_ROUNDS = 6  # of proportional fitting
_REPEATS = 20.0  # repeated arms expected by chance, from which a log without any does not repeat arms
_STEEPEST = 8.0  # the largest beta, for rewards between 0 and 1
_LEAST = 1e-9
_HALF = 0.5  # plays that keep the ratio of an arm off 0
_SHRINK_RATIO = 0.02  # An extrapolation keeps at least this part of a ratio.
CONCENTRATIONS = np.append(32 * 2.0 ** np.arange(11), 1e8)  # concentrations; the last: arms do not depend on types


@dataclass(frozen=True, eq=False)
class States:
    """States computed from the number and the codes of a session, so that they are never stored.

    The state is the part of the calendar and, if `n_last` is above 1, the step before: one more than its code, and 0
    for the first step.
    """

    n_sessions: int
    n_parts: int
    n_last: int = 1
    rows: Integer[Array, "n"] | None = None  # numbers of the sessions; None: 0, 1, 2, ...

    @property
    def n_states(self) -> int:
        return self.n_parts * self.n_last

    def subset(self, rows: Integer[Array, "n"]) -> States:
        return replace(self, rows=rows if self.rows is None else self.rows[rows])

    def of(self, codes: Integer[Array, "S"], offsets: Integer[Array, "K1"], low: int) -> Integer[Array, "S"]:
        """Return the states of the steps of sessions `low`, `low` + 1, ..."""
        n = len(offsets) - 1
        rows = np.arange(low, low + n) if self.rows is None else self.rows[low : low + n]
        parts = np.repeat(rows * self.n_parts // self.n_sessions, np.diff(offsets))
        if self.n_last == 1:
            return parts
        before = np.concatenate([[0], codes[:-1] + 1])
        before[offsets[:-1]] = 0
        return parts * self.n_last + before


@dataclass(frozen=True, eq=False)
class ExposureLog:
    """A log with the state of each step as an auxiliary code, and the shares of the arms in every state."""

    log: CategoricalLog
    marginal: Float[Array, "A"]  # b: shares of the arms
    shares: Float[
        Array, "G A"
    ]  # V: shares in every state; 0 for an arm that the session has played, if no session repeats an arm
    states: Integer[Array, "S"] | None  # of each step; None: of a log in files, or a part

    @classmethod
    def of(cls, log: CategoricalLog, *, reacting: bool = False, most: int = LOOKED_AT) -> ExposureLog:
        """Return the states and shares of a log, from at most `most` sessions that are evenly spread over it.

        If the logging policy is `reacting` to the step before, this step is part of the state. Auxiliary codes of the
        log stay.
        """
        log = _spread(log, most)
        sessions = log.sessions.load()
        if _never_repeats(sessions):
            return cls._without_repeats(log)
        n_parts = min(_PARTS, max(len(sessions) // _PART, 1))
        n_last = 1 + log.n_own if reacting and log.n_own <= _LAST else 1
        states = States(len(sessions), n_parts, n_last)
        codes = sessions.arms * np.int64(len(log.values)) + encode_values(log.values, sessions.rewards)
        numbers = states.of(codes, sessions.offsets, 0)
        factors = [np.arange(states.n_states) // n_last]
        factors += [np.arange(states.n_states) % n_last] if n_last > 1 else []
        marginal, shares = _shares(sessions, numbers, states.n_states, factors, None)
        return cls(_with_states(log, CodeBlock(NAME, states.n_states, steps=states)), marginal, shares, numbers)

    @classmethod
    def _without_repeats(cls, log: CategoricalLog) -> ExposureLog:
        """Take the set of arms that a session has played as the state, within the part of the calendar."""
        log = _spread(log, max(_CELLS // max(log.n_arms * log.sessions.horizon, 1), _PART))
        sessions = log.sessions.load()
        n_parts = min(_PARTS, max(len(sessions) // _PART, 1))
        seen = _seen_before(sessions)
        parts = np.repeat(np.arange(len(sessions)) * n_parts // len(sessions), sessions.lengths)
        keys = np.column_stack([parts.astype(np.uint8), np.packbits(seen, axis=1)])
        _, first, numbers = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        numbers = numbers.ravel()
        marginal, shares = _shares(sessions, numbers, len(first), [parts[first]], ~seen[first])
        return cls(_with_states(log, CodeBlock(NAME, len(first), steps=numbers)), marginal, shares, numbers)

    def over(self, log: CategoricalLog) -> ExposureLog:
        """Return the same states and shares over the whole log, unless the states are sets of arms."""
        assert self.log.beside is not None
        states = self.log.beside.blocks[-1].steps
        if not isinstance(states, States) or len(log.sessions) == len(self.log.sessions):
            return self
        block = CodeBlock(NAME, states.n_states, steps=replace(states, n_sessions=len(log.sessions)))
        return replace(self, log=_with_states(log, block), states=None)

    def part(self, rows: Integer[Array, "n"]) -> ExposureLog:
        """Return the same states and shares with some of the sessions."""
        return replace(self, log=self.log.subset(rows), states=None)

    def write(self, ratios: Float[Array, "R A M"], table: Rows) -> None:
        """Multiply the probability of the chosen arms, up to the baseline, into the rows of arms and states."""
        m = ratios.shape[2]
        self.log.by_arm(table.array)[..., :m] *= ratios[:, :, None]
        table[NAME][..., :m] /= self.shares @ ratios

    def plays(self, counts: Rows, n_types: int) -> tuple[Float[Array, "R A M"], Float[Array, "R G M"]]:
        """Return expected plays of every arm, and choices in every state, by type."""
        return self.log.by_arm(counts.array)[..., :n_types].sum(axis=2), counts[NAME][..., :n_types]

    @cached_property
    def units(self) -> Float[Array, "Z"]:
        """The reward values moved and stretched to lie between 0 and 1."""
        values = self.log.values
        return (values - values[0]) / (values[-1] - values[0])

    def preferences(self, models: Float[Array, "R K P"], n_types: int) -> Float[Array, "R A M"]:
        """Return the mean reward of each arm and type less its mean over types, in units of the reward range."""
        means = np.einsum("razm,z->ram", self.log.by_arm(models)[..., :n_types], self.units)
        weights = models[:, 0, :n_types] / models[:, 0, :n_types].sum(axis=1, keepdims=True)
        return means - np.einsum("ram,rm->ra", means, weights)[:, :, None]


def _spread(log: CategoricalLog, most: int) -> CategoricalLog:
    """Return at most so many sessions of a log in memory, evenly spread over it."""
    n, beside, sessions = len(log.sessions), log.beside, log.sessions
    if n > most:
        rows = np.linspace(0, n - 1, most).astype(np.int64)
        beside, sessions = None if beside is None else beside.subset(sessions, rows), sessions[rows]
    return log if sessions is log.sessions and not log.travels else log.coded(sessions.load(), beside)


def _with_states(log: CategoricalLog, block: CodeBlock) -> CategoricalLog:
    """Return the log with the states of its steps after its other auxiliary codes."""
    return log.coded(log.sessions, Beside.of(*(() if log.beside is None else log.beside.blocks), block))


def _never_repeats(sessions: Sessions) -> bool:
    """Return whether no session repeats an arm although chance would have repeated some."""
    owner = np.repeat(np.arange(len(sessions)), sessions.lengths)
    pairs = (sessions.lengths * (sessions.lengths - 1.0)).sum() / 2
    share = sessions.plays / max(sessions.n_steps, 1)
    if pairs * float(share @ share) < _REPEATS:
        return False
    return len(np.unique(owner * np.int64(sessions.n_arms) + sessions.arms)) == sessions.n_steps


def _seen_before(sessions: Sessions) -> Any:
    """Return which arms each session had played before every step, (S, A)."""
    seen = np.zeros((sessions.n_steps, sessions.n_arms), bool)
    for step in range(1, sessions.horizon):
        now = np.flatnonzero(sessions.steps == step)
        seen[now] = seen[now - 1]
        seen[now, sessions.arms[now - 1]] = True
    return seen


def _shares(
    sessions: Sessions, states: Integer[Array, "S"], n_states: int, factors: list[Any], allowed: Any
) -> tuple[Float[Array, "A"], Float[Array, "G A"]]:
    """Return the shares of the arms, overall and in every state: a product of factors, by proportional fitting.

    Each factor maps states to its levels; an arm that is not `allowed` has no share in a state.
    """
    arms, n_arms = sessions.arms.astype(np.int64), sessions.n_arms
    marginal = (np.bincount(arms, minlength=n_arms) + 0.5) / (len(arms) + 0.5 * n_arms)
    decided = np.bincount(states, minlength=n_states).astype(float)
    counts = [_counted(factor[states], arms, int(factor.max()) + 1, n_arms) for factor in factors]
    tables = [np.ones_like(count) for count in counts]
    open_to = np.ones((1, n_arms)) if allowed is None else allowed.astype(float)

    def product() -> Float[Array, "G A"]:
        found = np.broadcast_to(open_to * marginal, (n_states, n_arms)).copy()
        for factor, table in zip(factors, tables, strict=True):
            found *= table[factor]
        return found

    for _ in range(1 if len(factors) == 1 and allowed is None else _ROUNDS):
        for i, factor in enumerate(factors):
            found = product()
            expected = np.zeros_like(tables[i])
            np.add.at(expected, factor, found * (decided / found.sum(axis=1))[:, None])
            tables[i] = tables[i] * (counts[i] + _SHRINK * marginal) / (expected + _SHRINK * marginal * tables[i])
    return marginal, product()


def _counted(rows: Integer[Array, "S"], arms: Integer[Array, "S"], n_rows: int, n_arms: int) -> Float[Array, "n A"]:
    return np.bincount(rows * n_arms + arms, minlength=n_rows * n_arms).reshape(n_rows, n_arms).astype(float)


class Exposure(Component):
    """Ratios u of arms and types."""

    name = NAME
    log: ExposureLog
    n_types: int

    def ratios(self, own: Float[Array, "R k P"], table: Rows) -> Float[Array, "R A M"]:
        """Return u, given weights and rewards in a table."""
        raise NotImplementedError

    def write(self, own: Float[Array, "R k P"], table: Rows) -> Float[Array, "R A M"]:
        ratios = self.ratios(own, table)
        self.log.write(ratios, table)
        return ratios


@dataclass(frozen=True, eq=False)
class PreferenceExposure(Exposure):
    """A rows for the ratio of each arm to a type of average preference, and a row for beta.

    Per update the former take one step of iterative scaling, because the shares of the arms are those of all types
    together; beta takes one step of Newton's method.
    """

    looks_ahead = True
    log: ExposureLog
    n_types: int
    learns_beta: bool = True  # False: beta stays as it is

    @property
    def n_rows(self) -> int:
        return self.log.log.n_arms + 1

    def ratios(self, own: Float[Array, "R k P"], table: Rows) -> Float[Array, "R A M"]:
        return own[:, :-1, :1] * np.exp(own[:, -1:, :1] * self.log.preferences(table.array, self.n_types))

    def update(
        self, own: Float[Array, "R k P"], memo: Float[Array, "R A M"], counts: Rows, ahead: Rows
    ) -> Float[Array, "R k P"]:
        plays, chosen = self.log.plays(counts, self.n_types)
        expected = (memo * (self.log.shares.T @ (chosen / (self.log.shares @ memo)))).sum(axis=2)
        result = own.copy()
        result[:, :-1] *= ((plays.sum(axis=2) + _HALF) / (expected + _HALF))[:, :, None]
        if self.learns_beta:
            step, _ = self._newton(result, counts, ahead)
            result[:, -1] = np.clip(result[:, -1] + step[:, None], -_STEEPEST, _STEEPEST)
        return result

    def _newton(
        self, own: Float[Array, "R k P"], counts: Rows, table: Rows
    ) -> tuple[Float[Array, "R"], Float[Array, "R"]]:
        """Return the step of Newton's method for beta, and the information about beta, given expected counts."""
        plays, chosen = self.log.plays(counts, self.n_types)
        ratios, likes = self.ratios(own, table), self.log.preferences(table.array, self.n_types)
        total = self.log.shares @ ratios
        first, second = (self.log.shares @ (ratios * likes**power) / total for power in (1, 2))
        score = (plays * likes).sum(axis=(1, 2)) - (chosen * first).sum(axis=(1, 2))
        information = (chosen * (second - first**2)).sum(axis=(1, 2)) + 1.0
        return score / information, information

    def project(self, trial: Float[Array, "R k P"], near: Float[Array, "R k P"]) -> Float[Array, "R k P"]:
        common = np.maximum(trial[:, :-1], _SHRINK_RATIO * near[:, :-1])
        return np.concatenate([common, np.clip(trial[:, -1:], -_STEEPEST, _STEEPEST)], axis=1)

    def sample(
        self, own: Float[Array, "R k P"], memo: Any, counts: Rows, ahead: Rows, rng: np.random.Generator
    ) -> Float[Array, "R k P"]:
        """Draw beta, whose log density is concave, from the normal approximation one step of Newton's away."""
        step, information = self._newton(own, counts, ahead)
        result = own.copy()
        drawn = own[:, -1, 0] + step + rng.standard_normal() / np.sqrt(information)
        result[:, -1] = np.clip(drawn, -_STEEPEST, _STEEPEST)[:, None]
        return result

    def n_parameters(self, n_types: int) -> int:
        return 1


@dataclass(frozen=True, eq=False)
class FreeExposure(Exposure):
    """A rows that hold u; they take one step of iterative scaling per update."""

    log: ExposureLog
    n_types: int
    concentration: float
    evidence: Float[Array, "c"] = field(default_factory=lambda: np.zeros(len(CONCENTRATIONS)))  # of the last draw

    @property
    def n_rows(self) -> int:
        return self.log.log.n_arms

    def ratios(self, own: Float[Array, "R k P"], table: Rows) -> Float[Array, "R A M"]:
        return own[..., : self.n_types]

    def update(
        self, own: Float[Array, "R k P"], memo: Float[Array, "R A M"], counts: Rows, ahead: Rows
    ) -> Float[Array, "R k P"]:
        plays, chosen = self.log.plays(counts, self.n_types)
        pull, result = self.concentration * self.log.marginal[:, None], own.copy()
        waited = self.log.shares.T @ (chosen / (self.log.shares @ memo))
        result[..., : self.n_types] = self._scaled((plays + pull) / (pull + waited))
        return result

    def log_prior(self, own: Float[Array, "R k P"]) -> Float[Array, "R"]:
        return np.einsum("a,ram->r", self.concentration * self.log.marginal, np.log(own[..., : self.n_types]))

    def project(self, trial: Float[Array, "R k P"], near: Float[Array, "R k P"]) -> Float[Array, "R k P"]:
        rest = np.maximum(trial, _SHRINK_RATIO * near)
        rest[..., : self.n_types] = self._scaled(rest[..., : self.n_types])
        return rest

    def sample(
        self,
        own: Float[Array, "R k P"],
        memo: Float[Array, "R A M"],
        counts: Rows,
        ahead: Rows,
        rng: np.random.Generator,
    ) -> Float[Array, "R k P"]:
        """Draw u given waiting times, which make it conjugate; the evidence of every concentration is kept."""
        plays, chosen = (one[0] for one in self.log.plays(counts, self.n_types))
        waited = self.log.shares.T @ (rng.gamma(np.maximum(chosen, 1e-12)) / (self.log.shares @ memo[0]))
        self.evidence[:] = _evidence(plays, waited, self.log.marginal)
        if self.concentration >= CONCENTRATIONS[-1]:
            return np.ones_like(own)
        pull = self.concentration * self.log.marginal[:, None]
        return np.maximum(rng.gamma(plays + pull) / (pull + waited), _LEAST)[None]

    def n_parameters(self, n_types: int) -> int:
        return (self.n_rows - 1) * n_types

    def _scaled(self, ratios: Float[Array, "R A M"]) -> Float[Array, "R A M"]:
        """Return the ratios with mean 1 over the arms, because a factor common to the arms of a type cancels."""
        return ratios / np.einsum("a,ram->rm", self.log.marginal, ratios)[:, None]


def _evidence(
    plays: Float[Array, "A M"], waited: Float[Array, "A M"], marginal: Float[Array, "A"]
) -> Float[Array, "c"]:
    """Return the log evidence of each concentration c: plays ~ Poisson(waited u), u ~ Gamma(c b, c b)."""
    from scipy.special import gammaln

    shape = CONCENTRATIONS[:, None, None] * marginal[:, None]
    logs = gammaln(plays + shape) - gammaln(shape) - shape * np.log1p(waited / shape) - plays * np.log(shape + waited)
    return np.asarray(logs.sum(axis=(1, 2)))
