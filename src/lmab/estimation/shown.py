"""Who was shown what: types that also explain which arms were shown, where the site knew more than its log says.

In state g a site shows arm a to type m with chance p(a | m, g) = V[g, a] u[a, m] / Z[g, m], Z[g, m] = sum_a V[g, a]
u[a, m]. V is what it does whoever it is (shares of the arms, by part of the calendar, after the step before, without
the arms that a session has seen) and cancels in the E step; u is how it favours arms for types. So the row of (arm,
value) is multiplied by u[a, m], one code per step for its state has the row 1 / Z[g, m], and kernels stay as they are.

*Likes*: u = exp(beta (mean of the arm in the type - its average over types)). *Free*: u ~ Gamma(c b, c b) with the
arm's share b, conjugate through waiting times (Caron and Doucet 2012). Both are tried; one is taken only where it
predicts the rewards of held-out sessions better, because a site that reacts to rewards looks like one that knew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Float, Integer
from ..data.sessions import Sessions
from ..model.bandit import LatentBandit
from ..model.categorical import Categorical
from ..model.rewards import encode_values
from ..parallel import SERIAL, Passes
from .arm_law import STRENGTHS, CategoricalArms
from .assumptions import Assumptions
from .categorical import CategoricalCoordinates, CategoricalLog, categorical, code_scores
from .information import Information
from .log import Beside, Chain, Prior, information_of_codes
from .result import LIKES, Selection

LOOKED_AT = 10_000  # sessions of a larger log on which it is decided
_CELLS = 20_000_000  # states times arms that are held in memory
_PART, _PARTS = 50, 40  # sessions of a part of the calendar at least, and parts at most
_SHRINK = 10.0  # pseudo-plays that draw what a site does in a state to what it does on average
_LAST = 400  # codes up to which the step before is a state
_ROUNDS = 6  # of proportional fitting
_REPEATS = 20.0  # repeated arms that chance would bring, from which a log without any does not repeat arms
_STEEPEST = 8.0  # the largest beta, for rewards between 0 and 1
SOFT = 0.01  # part of equal probabilities in the start of a chain
_LEAST = 1e-9
_HALF = 0.5  # plays that keep what is shown of an arm off 0
CONCENTRATIONS = np.append(32 * 2.0 ** np.arange(11), 1e8)  # concentrations; the last: arms do not depend on types


@dataclass(frozen=True, eq=False)
class States:
    """States that follow from a session's number and its codes, so that they are never stored.

    The state is the part of the calendar, and where `n_last` is above 1 what the step before showed: one more than
    its code, and 0 for the first step.
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
        """The states of the steps of sessions `low`, `low` + 1, ..."""
        n = len(offsets) - 1
        rows = np.arange(low, low + n) if self.rows is None else self.rows[low : low + n]
        parts = np.repeat(rows * self.n_parts // self.n_sessions, np.diff(offsets))
        if self.n_last == 1:
            return parts
        before = np.concatenate([[0], codes[:-1] + 1])
        before[offsets[:-1]] = 0
        return parts * self.n_last + before


@dataclass(frozen=True, eq=False)
class Site:
    """A log with the state of each step as a code beside it, and what the site shows in a state, whoever it is."""

    log: CategoricalLog
    marginal: Float[Array, "A"]  # b: shares of the arms
    shares: Float[Array, "G A"]  # V: shares in every state; 0 where an arm was shown before and is not shown again
    states: Integer[Array, "S"] | None  # of each step, where the log is in memory

    @classmethod
    def of(cls, log: CategoricalLog, *, reacting: bool = False, most: int = LOOKED_AT) -> Site:
        """The site behind a log, of which at most `most` sessions are looked at, evenly over the calendar.

        A site that is `reacting` looks at the step before, which is then part of the state.
        """
        sessions = log.sessions
        if len(sessions) > most:
            rows: Any = np.linspace(0, len(sessions) - 1, most).astype(np.int64)
            sessions = sessions[rows]
        sessions = sessions.load()
        if _never_repeats(sessions):
            return cls._without_repeats(log, sessions)
        n_parts = min(_PARTS, max(len(sessions) // _PART, 1))
        n_last = 1 + log.n_own if reacting and log.n_own <= _LAST else 1
        states = States(len(sessions), n_parts, n_last)
        codes = sessions.arms * np.int64(len(log.values)) + encode_values(log.values, sessions.rewards)
        numbers = states.of(codes, sessions.offsets, 0)
        factors = [np.arange(states.n_states) // n_last]
        factors += [np.arange(states.n_states) % n_last] if n_last > 1 else []
        marginal, shares = _shares(sessions, numbers, states.n_states, factors, None)
        own = CategoricalLog.encode(sessions, log.values, Beside(states.n_states, steps=states), **log._more)
        return cls(own, marginal, shares, numbers)

    @classmethod
    def _without_repeats(cls, log: CategoricalLog, sessions: Sessions) -> Site:
        """States are the sets of arms that a session has seen, within the part of the calendar."""
        most = max(_CELLS // max(sessions.n_arms * sessions.horizon, 1), _PART)
        if len(sessions) > most:
            sessions = sessions[np.linspace(0, len(sessions) - 1, most).astype(np.int64)]
        n_parts = min(_PARTS, max(len(sessions) // _PART, 1))
        seen = _seen_before(sessions)
        parts = np.repeat(np.arange(len(sessions)) * n_parts // len(sessions), sessions.lengths)
        keys = np.column_stack([parts.astype(np.uint8), np.packbits(seen, axis=1)])
        _, first, numbers = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        numbers = numbers.ravel()
        marginal, shares = _shares(sessions, numbers, len(first), [parts[first]], ~seen[first])
        beside = Beside(len(first), steps=numbers)
        own = CategoricalLog.encode(sessions, log.values, beside, **log._more)
        return cls(own, marginal, shares, numbers)

    def over(self, log: CategoricalLog) -> Site:
        """The same site over the whole log, whose states are found as it is read; itself where sets are states."""
        beside = self.log.beside
        states = None if beside is None else beside.steps
        if not isinstance(states, States) or len(log.sessions) == len(self.log.sessions):
            return self
        beside = Beside(states.n_states, steps=replace(states, n_sessions=len(log.sessions)))
        whole = CategoricalLog.encode(log.sessions, log.values, beside, **log._more)
        return replace(self, log=whole, states=None)

    def part(self, rows: Integer[Array, "n"]) -> Site:
        """The same site with some of the sessions."""
        return replace(self, log=self.log.subset(rows), states=None)

    def tables(
        self, models: Float[Array, "R K P"], favour: Float[Array, "R A M"]
    ) -> tuple[Float[Array, "R Q P"], Float[Array, "R A"], Float[Array, "R G"]]:
        """Tables whose rows are at most 1, and what the rows of arms and of states were divided by."""
        log, m = self.log, favour.shape[2]
        result = np.zeros((len(models), log.n_sums, models.shape[2]))
        result[:, : 1 + log.n_own] = models[:, : 1 + log.n_own]
        top, sums = favour.max(axis=2), self.shares @ favour
        least = sums.min(axis=2)
        log.by_arm(result)[..., :m] *= (favour / top[:, :, None])[:, :, None]
        result[:, 1 + log.n_own :, :m] = least[:, :, None] / sums
        return result, top, 1 / least

    def expectation(
        self, models: Float[Array, "R K P"], favour: Float[Array, "R A M"], passes: Passes
    ) -> tuple[Float[Array, "R Q P"], Float[Array, "R"]]:
        """Expected statistics and log-likelihood of arms and rewards, up to a constant of the site."""
        tables, top, most = self.tables(models, favour)
        statistics, logs = self.log.expectation(tables, passes)
        plays = self.log.by_arm(statistics).sum(axis=(2, 3))
        decided = statistics[:, 1 + self.log.n_own :].sum(axis=2)
        return statistics, logs + (plays * np.log(top)).sum(axis=1) + (decided * np.log(most)).sum(axis=1)

    @cached_property
    def units(self) -> Float[Array, "Z"]:
        """The reward values moved and stretched to lie between 0 and 1."""
        values = self.log.values
        return (values - values[0]) / (values[-1] - values[0])

    def likes(self, models: Float[Array, "R K P"], n_types: int) -> Float[Array, "R A M"]:
        """How much more each type likes an arm than everybody does."""
        means = np.einsum("razm,z->ram", self.log.by_arm(models)[..., :n_types], self.units)
        weights = models[:, 0, :n_types] / models[:, 0, :n_types].sum(axis=1, keepdims=True)
        return means - np.einsum("ram,rm->ra", means, weights)[:, :, None]


def _never_repeats(sessions: Sessions) -> bool:
    """Whether no session shows an arm twice, though chance would have repeated some."""
    owner = np.repeat(np.arange(len(sessions)), sessions.lengths)
    pairs = (sessions.lengths * (sessions.lengths - 1.0)).sum() / 2
    share = sessions.plays / max(sessions.n_steps, 1)
    if pairs * float(share @ share) < _REPEATS:
        return False
    return len(np.unique(owner * np.int64(sessions.n_arms) + sessions.arms)) == sessions.n_steps


def _seen_before(sessions: Sessions) -> Any:
    """Which arms each session had seen before every step, (S, A)."""
    seen = np.zeros((sessions.n_steps, sessions.n_arms), bool)
    for step in range(1, sessions.horizon):
        now = np.flatnonzero(sessions.steps == step)
        seen[now] = seen[now - 1]
        seen[now, sessions.arms[now - 1]] = True
    return seen


def _shares(
    sessions: Sessions, states: Integer[Array, "S"], n_states: int, factors: list[Any], allowed: Any
) -> tuple[Float[Array, "A"], Float[Array, "G A"]]:
    """Shares of the arms, and what the site shows in every state: a product of factors, by proportional fitting.

    Each factor numbers the states that it takes for one; an arm that is not `allowed` has no share in a state.
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


@dataclass(frozen=True, eq=False)
class Likes:
    """Models end with A rows that hold what a type of average liking is shown of each arm, and a row that holds beta.

    Per map the former take one step of iterative scaling, because the shares of the arms are those of all types
    together; beta takes one step of Newton's method.
    """

    site: Site
    n_types: int
    prior: Prior
    passes: Passes = SERIAL
    steepens: bool = True  # False: beta stays as it is

    @property
    def _rows(self) -> slice:
        return slice(1 + self.site.log.n_own, -1)

    def favour(self, models: Float[Array, "R K P"]) -> Float[Array, "R A M"]:
        common = models[:, self._rows, :1]
        return common * np.exp(models[:, -1:, :1] * self.site.likes(models, self.n_types))

    def map(self, models: Float[Array, "R K P"]) -> tuple[Float[Array, "R"], Float[Array, "R K P"]]:
        site, m, first = self.site, self.n_types, 1 + self.site.log.n_own
        favour = self.favour(models)
        statistics, objective = site.expectation(models, favour, self.passes)
        objective = objective + site.log.log_prior(models[:, :first, :m], self.prior)
        ahead = models.copy()
        ahead[:, :first] = site.log.maximise(statistics, models[:, :first], self.prior)
        plays, decided = site.log.by_arm(statistics)[..., :m].sum(axis=(2, 3)), statistics[:, first:, :m]
        expected = (favour * (site.shares.T @ (decided / (site.shares @ favour)))).sum(axis=2)
        ahead[:, self._rows] *= ((plays + _HALF) / (expected + _HALF))[:, :, None]
        if self.steepens:
            step, _ = newton(site, self.favour(ahead), site.likes(ahead, m), statistics[..., :m])
            ahead[:, -1] = np.clip(ahead[:, -1] + step[:, None], -_STEEPEST, _STEEPEST)
        return objective, ahead

    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        first = 1 + self.site.log.n_own
        own = self.site.log.repair(trial[:, :first], near[:, :first])
        common = np.maximum(trial[:, self._rows], 0.02 * near[:, self._rows])
        return np.concatenate([own, common, np.clip(trial[:, -1:], -_STEEPEST, _STEEPEST)], axis=1)


def newton(
    site: Site, favour: Float[Array, "R A M"], likes: Float[Array, "R A M"], statistics: Float[Array, "R Q M"]
) -> tuple[Float[Array, "R"], Float[Array, "R"]]:
    """The step of Newton's method for beta, and the information about beta, where types are as in the statistics."""
    plays, decided = site.log.by_arm(statistics).sum(axis=2), statistics[:, 1 + site.log.n_own :]
    total = site.shares @ favour
    first, second = (site.shares @ (favour * likes**power) / total for power in (1, 2))
    score = (plays * likes).sum(axis=(1, 2)) - (decided * first).sum(axis=(1, 2))
    information = (decided * (second - first**2)).sum(axis=(1, 2)) + 1.0
    return score / information, information


@dataclass(frozen=True, eq=False)
class Free:
    """Models end with A rows that hold u; they take one step of iterative scaling per map."""

    site: Site
    n_types: int
    prior: Prior
    concentration: float
    passes: Passes = SERIAL

    def favour(self, models: Float[Array, "R K P"]) -> Float[Array, "R A M"]:
        return models[:, 1 + self.site.log.n_own :, : self.n_types]

    def map(self, models: Float[Array, "R K P"]) -> tuple[Float[Array, "R"], Float[Array, "R K P"]]:
        site, m, first = self.site, self.n_types, 1 + self.site.log.n_own
        favour = self.favour(models)
        statistics, objective = site.expectation(models, favour, self.passes)
        objective = objective + site.log.log_prior(models[:, :first, :m], self.prior)
        pull = self.concentration * site.marginal
        objective = objective + np.einsum("a,ram->r", pull, np.log(favour))
        ahead = models.copy()
        ahead[:, :first] = site.log.maximise(statistics, models[:, :first], self.prior)
        plays, decided = site.log.by_arm(statistics)[..., :m].sum(axis=2), statistics[:, first:, :m]
        waited = site.shares.T @ (decided / (site.shares @ favour))
        ahead[:, first:, :m] = self._scaled((plays + pull[:, None]) / (pull[:, None] + waited))
        return objective, ahead

    def repair(self, trial: Float[Array, "R K P"], near: Float[Array, "R K P"]) -> Float[Array, "R K P"]:
        first, m = 1 + self.site.log.n_own, self.n_types
        own = self.site.log.repair(trial[:, :first], near[:, :first])
        rest = np.maximum(trial[:, first:], 0.02 * near[:, first:])
        rest[..., :m] = self._scaled(rest[..., :m])
        return np.concatenate([own, rest], axis=1)

    def _scaled(self, favour: Float[Array, "R A M"]) -> Float[Array, "R A M"]:
        """With mean 1 over the arms, because what all arms of a type share cancels."""
        return favour / np.einsum("a,ram->rm", self.site.marginal, favour)[:, None]


class ShownChain(Chain):
    """A Gibbs chain of arms and rewards: beta is drawn for *likes*, and u at a concentration for *free*.

    Given the types, beta has a concave log-density, so it is drawn from the normal law one step of Newton's away.
    """

    def __init__(
        self,
        site: Site,
        bandit: LatentBandit,
        favour: Float[Array, "A M"],
        *,
        steepness: float | None = None,
        concentration: float = np.inf,
    ) -> None:
        self._site, self._arms = site, CategoricalArms(site.log.n_arms, site.log.values)
        self._model = site.log.pack(bandit)[:, : 1 + site.log.n_own, : bandit.n_types].copy()
        self._common = favour
        if steepness is not None:
            self._common = favour * np.exp(-steepness * site.likes(self._model, bandit.n_types)[0])
        self._model[0, 0] = np.maximum(self._model[0, 0], _LEAST)
        self._model[0, 1:] = (1 - SOFT) * self._model[0, 1:] + SOFT / len(site.log.values)
        self._favour, self._steepness, self.concentration = favour, steepness, concentration
        self.evidence = np.zeros(len(CONCENTRATIONS))  # logarithm, of every concentration, in this state

    @property
    def weights(self) -> Float[Array, "M"]:
        return self._model[0, 0] / self._model[0, 0].sum()

    @property
    def rewards(self) -> Categorical:
        cells = np.moveaxis(self._site.log.by_arm(self._model)[0], 2, 0)
        return Categorical(cells / cells.sum(axis=2, keepdims=True), self._site.log.values)

    def likely(self, rng: np.random.Generator) -> tuple[Float[Array, "A Z"], Float[Array, "A"]]:
        return self._arms.likely(rng)

    @staticmethod
    def prior(centre: Float[Array, "A Z"], strength: Float[Array, "A"]) -> Prior:
        return Prior(centre, np.clip(strength, *STRENGTHS))

    def sweep(self, rng: np.random.Generator) -> None:
        site, n_own = self._site, self._site.log.n_own
        statistics = self._drawn(rng)
        self._model[0, 0] = np.maximum(rng.dirichlet(statistics[0] + 1.0), _LEAST)
        counts = site.log.by_arm(statistics[None])[0]
        drawn = np.clip(self._arms.draw(counts, rng), _LEAST, 1.0)
        self._model[0, 1:] = drawn.reshape(-1, counts.shape[2])
        if self._steepness is not None:
            likes = site.likes(self._model, counts.shape[2])
            favour = self._common * np.exp(self._steepness * likes)
            step, information = newton(site, favour, likes, statistics[None])
            drawn = self._steepness + step[0] + rng.standard_normal() / np.sqrt(information[0])
            self._steepness = float(np.clip(drawn, -_STEEPEST, _STEEPEST))
            self._favour = self._common * np.exp(self._steepness * likes[0])
        else:
            self._draw_favour(counts.sum(axis=1), statistics[1 + n_own :], rng)

    def _drawn(self, rng: np.random.Generator) -> Float[Array, "Q M"]:
        """Types of all sessions, counted."""
        log = self._site.log
        table = np.ascontiguousarray(self._site.tables(self._model, self._favour[None])[0][0])
        statistics, own = np.zeros_like(table), np.empty_like(table)
        for steps in log.pieces():
            uniforms = rng.random(steps.high if log.travels else len(log.sessions))
            kernel("gibbs").categorical(steps.codes, steps.offsets, steps.counts, table, uniforms, own)
            statistics += own
        return statistics

    def _draw_favour(self, plays: Float[Array, "A M"], decided: Float[Array, "G M"], rng: np.random.Generator) -> None:
        """u given waiting times, which make it conjugate; and the evidence of every concentration."""
        shares, c = self._site.shares, self.concentration
        waited = shares.T @ (rng.gamma(np.maximum(decided, 1e-12)) / (shares @ self._favour))
        self.evidence = _evidence(plays, waited, self._site.marginal)
        if c >= CONCENTRATIONS[-1]:
            self._favour = np.ones_like(plays)
            return
        pull = c * self._site.marginal[:, None]
        self._favour = np.maximum(rng.gamma(plays + pull) / (pull + waited), _LEAST)


def _evidence(
    plays: Float[Array, "A M"], waited: Float[Array, "A M"], marginal: Float[Array, "A"]
) -> Float[Array, "c"]:
    """log evidence of each concentration c: plays ~ Poisson(waited u), u ~ Gamma(c b, c b)."""
    from scipy.special import gammaln

    shape = CONCENTRATIONS[:, None, None] * marginal[:, None]
    logs = gammaln(plays + shape) - gammaln(shape) - shape * np.log1p(waited / shape) - plays * np.log(shape + waited)
    return np.asarray(logs.sum(axis=(1, 2)))


def explained(found: Assumptions) -> Assumptions:
    """What was tested with a bandit that explains arms too: claims may rest on it though arms tell the type."""
    return replace(
        found, shown=replace(found.shown, sentence=_EXPLAINED if found.shown.fires else found.shown.sentence)
    )


_EXPLAINED = (
    "The logged arms depend on the latent type, given the past of the session (selective exposure); the model includes "
    "this, and the intervals assume that it is right. Logging the information that the site used, as a feature, is "
    "safer."
)


def information(
    log: CategoricalLog, bandit: LatentBandit, selection: Selection, prior: Prior, passes: Passes
) -> Information:
    """The information of a log, and of the prior, about a bandit that explains arms too; u is taken for known."""
    site, rewards = Site.of(log, reacting=selection.reacting).over(log), categorical(bandit)
    plain = code_scores(site.log, bandit, rewards)
    told, states = np.log(selection.favour)[plain.arms], np.log(site.shares @ selection.favour)
    scores = replace(plain, logs=plain.logs + told, beside=-states)
    matrix = information_of_codes(site.log, bandit.weights, scores, prior, passes)
    return Information(matrix, CategoricalCoordinates(bandit.weights, rewards, log.played))


def chain_of(log: CategoricalLog, bandit: LatentBandit, selection: Selection) -> Callable[[], Chain]:
    """What makes a chain of arms and rewards that starts at a fit which explains both."""
    site = Site.of(log, reacting=selection.reacting).over(log)
    steepness = selection.steepness if selection.kind == LIKES else None
    return partial(
        ShownChain, site, bandit, selection.favour, steepness=steepness, concentration=selection.concentration
    )
