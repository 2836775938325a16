"""Step effects: rewards that rise or fall with the step, as a tilt of all reward distributions by step.

At step t the probability of the value z is proportional to p(z | arm, type) exp(delta_t z), with delta_0 = 0. Given the
expected counts of an E step, delta takes a Newton step, under a normal prior on the differences of neighbouring steps
whose precision is learned, and the probabilities take steps of Vardi's estimator for biased samples (1985):

    p(z) <- N(z) / sum_t n_t w_t(z) / W_t,   w_t(z) = exp(delta_t z),   W_t = sum_z p(z) w_t(z)

which is a minorise-maximise step, so that the likelihood never falls. Effects are used if held-out sessions are
predicted better by more than three standard errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from .._kernel import kernel
from .._shapes import Array, Float, Integer
from ..data.packed import Packed
from ..data.sessions import Sessions, sample_rows
from ..model import belief
from ..model.bandit import LatentBandit
from ..model.categorical import Categorical
from ..model.type_prior import TypePrior
from ..parallel import Passes
from .categorical import CategoricalCoordinates, CategoricalLog, categorical
from .check import Gain
from .information import Information, contrasts, covariances
from .log import CodeScores, Prior, information_of_codes

_CLEAR = 3.0  # standard errors of the held-out gain: right on all 90 simulated logs with and without an effect
_SCREEN = 0.1  # probability that a log without effects reaches the comparison on held-out sessions
_FOLDS, _ENOUGH = 5, 10_000  # folds of the comparison, and sessions of which one fold is enough
_COMPARED = 20_000  # sessions of a larger log that are compared
_FITTED = 1_000_000  # sessions of a larger log to which effects are fitted
_CELLS = 1 << 20  # rows of the table of steps, arms and values; later steps share the last effect
_TOLERANCE, _ITERATIONS = 2e-6, 300  # gain per session and iteration at which EM stops, and most iterations
_FOLD_ITERATIONS = 60  # of EM on the training sessions of a fold
_INVERSIONS = 50  # of the same update if only averages over the steps are known, from which it converges
_VARDI = 2  # updates of the probabilities in an M step
_PRECISION = (1.0, 1e4)  # least and largest precision of the difference of neighbouring effects, over the range of z
_FIRST_PRECISION = 100.0  # the best one for clicks on logs of 500 to 8,000 sessions
_UNSEEN = 1e-4  # probability that a held-out reward has any of the values


@dataclass(frozen=True, eq=False)
class StepEffects:
    """Step effects of a fit, and the gain on held-out sessions that they were selected by."""

    name: ClassVar[str] = "step"

    effects: Float[Array, "H"]  # those of the bandit
    changes: Float[Array, "H"]  # mean reward of the logged arms at each step over that without effects, minus 1
    gain: Gain

    @property
    def n_parameters(self) -> int:
        return len(self.effects) - 1

    @property
    def summary(self) -> str:
        """One sentence about the effects."""
        change = float(self.changes[-1])
        return (
            f"Rewards depend on the step, and the model includes this: the mean reward at step {len(self.effects)} is "
            f"{abs(change):.0%} {'higher' if change > 0 else 'lower'} than at step 1 (held-out log-likelihood per "
            f"session {self.gain.brief})."
        )

    @property
    def table(self) -> list[dict[str, Any]]:
        """The effect and the relative change of the mean reward, by step (from 1)."""
        rows = zip(self.effects.tolist(), self.changes.tolist(), strict=True)
        return [{"step": t + 1, "effect": effect, "change": change} for t, (effect, change) in enumerate(rows)]


@dataclass(frozen=True, eq=False)
class _Model:
    """Parameters of EM: delta is in units of the range of the values."""

    weights: Float[Array, "M"]
    tables: Float[Array, "A Z M"]
    delta: Float[Array, "H"]
    precision: float


@dataclass(frozen=True, eq=False)
class _Steps:
    """Sessions as codes (step * A + arm) * Z + value, with all that is known of each session but its rewards."""

    codes: Integer[Array, "S"]
    offsets: Integer[Array, "N1"]
    shape: tuple[int, int, int]  # steps, arms, values
    places: Float[Array, "Z"]  # the values, scaled to [0, 1]
    factors: Float[Array, "N M"] | None  # likelihood of attrition times the prior of the session over the weights
    fixed_weights: bool  # weights follow from features and persons
    pseudo: Float[Array, "H A Z"]  # pseudo-counts of the prior of arms

    @classmethod
    def of(cls, sessions: Sessions, bandit: LatentBandit, type_prior: TypePrior | None, prior: Prior) -> _Steps:
        """Return the sessions for EM that starts from a bandit."""
        rewards = bandit.rewards
        assert isinstance(rewards, Categorical)
        n_steps = min(sessions.horizon, max(_CELLS // (bandit.n_arms * rewards.n_values), 1))
        steps = np.minimum(sessions.steps, n_steps - 1).astype(np.int64)
        codes = steps * (bandit.n_arms * rewards.n_values) + rewards.codes(sessions.arms, sessions.rewards)
        shares = np.bincount(steps, minlength=n_steps) / len(steps)
        pseudo = prior.pseudo_counts
        if pseudo.shape != (bandit.n_arms, rewards.n_values):
            pseudo = np.zeros((bandit.n_arms, rewards.n_values))
        places = (rewards.values - rewards.values.min()) / rewards.spread
        return cls(
            codes,
            sessions.offsets,
            (n_steps, bandit.n_arms, rewards.n_values),
            places,
            _factors(sessions, bandit, type_prior),
            type_prior is not None,
            shares[:, None, None] * pseudo,
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def part(self, rows: Integer[Array, "n"]) -> _Steps:
        """Return some of the sessions."""
        lengths = np.diff(self.offsets)[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][rows] - offsets[:-1], lengths)
        factors = None if self.factors is None else self.factors[rows]
        share = offsets[-1] / max(self.offsets[-1], 1)
        return replace(self, codes=self.codes[places], offsets=offsets, factors=factors, pseudo=share * self.pseudo)

    def start(self, bandit: LatentBandit) -> _Model:
        rewards = bandit.rewards
        assert isinstance(rewards, Categorical)
        tables = np.ascontiguousarray(np.moveaxis(rewards.probabilities, 0, 2))
        return _Model(bandit.weights, tables, np.zeros(self.shape[0]), _FIRST_PRECISION)

    def posterior(self, model: _Model) -> tuple[Float[Array, "N M"], Float[Array, "N"]]:
        """Return the probability of each type of each session, and the log-likelihood of the sessions."""
        rows = tilted(model.tables, model.delta, self.places).reshape(-1, len(model.weights))
        like, scales = np.empty((len(self), len(model.weights))), np.empty(len(self))
        kernel("em").likelihoods(self.codes, self.offsets, np.ascontiguousarray(rows), like, scales)
        joint = like * (model.weights if self.factors is None else model.weights * self.factors)
        mass = joint.sum(axis=1)
        possible = mass > 0
        mass = np.where(possible, mass, 1.0)
        shares = np.where(possible[:, None], joint / mass[:, None], model.weights)
        return shares, np.log(mass) + np.where(possible, scales, -745.0)

    def counts(self, shares: Float[Array, "N M"]) -> Float[Array, "H A Z M"]:
        """Return the expected counts of every step, arm and value, by type."""
        owner, size = np.repeat(np.arange(len(self)), np.diff(self.offsets)), int(np.prod(self.shape))
        columns = [np.bincount(self.codes, column[owner], minlength=size) for column in shares.T]
        return np.stack(columns, axis=1).reshape(*self.shape, -1)

    def iterate(self, model: _Model, *, moves: bool) -> tuple[_Model, float]:
        """Return the model after an EM iteration, and the penalised log-likelihood before it; `moves`: delta does."""
        shares, logs = self.posterior(model)
        counts = self.counts(shares)
        objective = float(logs.sum()) + _log_prior(self, model)
        weights = model.weights if self.fixed_weights else shares.mean(axis=0)
        delta, tables, precision = model.delta, model.tables, model.precision
        if moves:
            delta, precision = newton(counts, tables, delta, self.places, precision)
            tables = tilted(tables, delta[:1], self.places)[0]
            delta = delta - delta[0]
        tables = vardi(counts + self.pseudo[..., None], tables, delta, self.places)
        return _Model(weights, tables, delta, precision), objective

    def fit(
        self,
        model: _Model,
        *,
        moves: bool,
        iterations: int = _ITERATIONS,
        stop: Callable[[], bool] = lambda: False,
    ) -> tuple[_Model, list[float]]:
        """Return the model after EM, and the objective before each iteration."""
        trace = list[float]()
        for _ in range(iterations):
            model, objective = self.iterate(model, moves=moves)
            trace.append(objective)
            if (len(trace) > 5 and abs(objective - trace[-2]) < _TOLERANCE * len(self)) or stop():
                break
        return model, trace


def _log_prior(steps: _Steps, model: _Model) -> float:
    with np.errstate(divide="ignore"):
        logs = np.log(tilted(model.tables, model.delta, steps.places))
    pseudo = np.broadcast_to(steps.pseudo[..., None], logs.shape)
    arms = float((pseudo[pseudo > 0] * logs[pseudo > 0]).sum())
    return arms - model.precision / 2 * float((np.diff(model.delta) ** 2).sum())


def _factors(sessions: Sessions, bandit: LatentBandit, type_prior: TypePrior | None) -> Float[Array, "N M"] | None:
    """Return what features and attrition say about the type of each session, as factors of the weights."""
    factors = None
    if type_prior is not None and type_prior.columns and sessions.features is not None:
        own = type_prior.weights(sessions.features.only(type_prior.columns))
        factors = own / np.maximum(bandit.weights, np.finfo(float).tiny)
    if bandit.has_informative_attrition:
        logs = np.add.reduceat(belief.log_attrition_likelihood(bandit, sessions), sessions.offsets[:-1], axis=0)
        stayed = np.exp(logs - logs.max(axis=1, keepdims=True))
        factors = stayed if factors is None else factors * stayed
    return factors


def tilted(
    tables: Float[Array, "A Z M"], delta: Float[Array, "H"], places: Float[Array, "Z"]
) -> Float[Array, "H A Z M"]:
    """Return the probabilities of every step.

    Examples:
        >>> tilted(np.array([[[0.5], [0.5]]]), np.array([0.0, 1.0]), np.array([0.0, 1.0]))[:, 0, 1, 0].round(3)
        array([0.5  , 0.731])
    """
    tables = tables * np.exp(delta[:, None] * places)[:, None, :, None]
    return tables / tables.sum(axis=2, keepdims=True)


def newton(
    counts: Float[Array, "H A Z M"],
    tables: Float[Array, "A Z M"],
    delta: Float[Array, "H"],
    places: Float[Array, "Z"],
    precision: float,
) -> tuple[Float[Array, "H"], float]:
    """Return delta after a Newton step on expected counts, and the precision of its differences given this step.

    The precision is that of maximum marginal likelihood in Laplace's approximation (one step of its fixed point).
    """
    plays, by_step = counts.sum(axis=2), tilted(tables, delta, places)
    means = np.einsum("tazm,z->tam", by_step, places)
    variances = np.einsum("tazm,z->tam", by_step, places**2) - means**2
    differences = np.diff(np.eye(len(delta)), axis=0)
    penalty = differences.T @ differences
    gradient = np.einsum("tazm,z->t", counts, places) - (plays * means).sum(axis=(1, 2)) - precision * penalty @ delta
    information = np.diag((plays * variances).sum(axis=(1, 2)) + 1e-9) + precision * penalty
    delta = delta + np.clip(np.linalg.solve(information, gradient), -1.0, 1.0)
    spread = float((np.diff(delta) ** 2).sum()) + float(np.trace(penalty @ np.linalg.inv(information)))
    learned = (len(delta) - 1) / max(spread, 1e-12)
    return delta, float(np.clip(learned, *_PRECISION))


def vardi(
    counts: Float[Array, "H A Z M"], tables: Float[Array, "A Z M"], delta: Float[Array, "H"], places: Float[Array, "Z"]
) -> Float[Array, "A Z M"]:
    """Return probabilities that explain counts at least as well, given delta; the ratio of counts if delta is 0."""
    for _ in range(_VARDI):
        tables = _unbiased(counts.sum(axis=0), counts.sum(axis=2), tables, np.exp(delta[:, None] * places))
    return tables


def _unbiased(
    totals: Float[Array, "A Z M"],
    plays: Float[Array, "H A M"],
    tables: Float[Array, "A Z M"],
    tilts: Float[Array, "H Z"],
) -> Float[Array, "A Z M"]:
    """Return probabilities after one step of Vardi's estimator, from counts over all steps and plays of each step."""
    seen = plays.sum(axis=0)[:, None] > 0
    normalisers = np.einsum("azm,tz->tam", tables, tilts)
    better = totals / np.where(seen, np.einsum("tam,tz->azm", plays / normalisers, tilts), 1.0)
    sums = better.sum(axis=1, keepdims=True)
    return np.where(seen & (sums > 0), better / np.where(sums > 0, sums, 1.0), tables)


def screened(steps: _Steps, model: _Model) -> bool:
    """Return whether the likelihood ratio of effects, given the types of a fit, may be more than chance."""
    from scipy.special import chdtri

    counts = steps.counts(steps.posterior(model)[0])
    delta, precision = model.delta, _PRECISION[0]
    for _ in range(4):
        delta, _ = newton(counts, model.tables, delta, steps.places, precision)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(tilted(model.tables, delta, steps.places)) - np.log(model.tables)
    ratio = 2 * float((counts * np.where(counts > 0, logs, 0.0)).sum())
    return ratio > float(chdtri(len(delta) - 1, _SCREEN))


def held_out_gain(steps: _Steps, model: _Model, rng: np.random.Generator) -> Gain:
    """Return the gain of effects in held-out log-likelihood per session, over the same model without them."""
    order, differences = rng.permutation(len(steps)), list[Float[Array, "_"]]()
    folds = np.array_split(order, _FOLDS)
    for held in folds[: 1 if len(steps) > _ENOUGH else _FOLDS]:
        train = steps.part(np.setdiff1d(order, held))
        test = steps.part(np.sort(held))
        fits = [train.fit(model, moves=moves, iterations=_FOLD_ITERATIONS)[0] for moves in (True, False)]
        scores = [test.posterior(_softened(fit))[1] for fit in fits]
        differences.append(scores[0] - scores[1])
    each = np.concatenate(differences)
    return Gain(float(each.mean()), float(each.std() / np.sqrt(len(each))))


def _softened(model: _Model) -> _Model:
    n_values = model.tables.shape[1]
    return replace(model, tables=(1 - _UNSEEN) * model.tables + _UNSEEN / n_values)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A bandit with step effects, fitted to a log."""

    bandit: LatentBandit
    component: StepEffects
    trace: list[float]
    converged: bool


def _some(sessions: Sessions | Packed, size: int, rng: np.random.Generator) -> Sessions:
    """Return the sessions, or `size` of a larger log."""
    return sessions.load() if len(sessions) <= size else sessions[np.sort(sample_rows(len(sessions), size, rng))]


def learn(
    sessions: Sessions | Packed,
    bandit: LatentBandit,
    type_prior: TypePrior | None,
    prior: Prior,
    *,
    rng: np.random.Generator,
    stop: Callable[[], bool] = lambda: False,
) -> Fitted | Gain | None:
    """Return the fit with step effects, or the gain if held-out sessions do not confirm effects; None: no comparison.

    Args:
        sessions: the log.
        bandit: the fit without effects, from which EM starts.
        type_prior: the prior over types by features and persons, which stays as it is.
        prior: the prior of arms.
        rng: where the folds come from.
        stop: returns whether to stop with the best so far.

    Examples:
        >>> import lmab
        >>> truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.4], [0.4, 0.8]], step_effects=[0.0, -1.0, -2.0])
        >>> log = lmab.simulate(truth, lmab.Uniform(2), n_sessions=2000, horizon=3, rng=0)
        >>> plain = lmab.LatentBandit(truth.weights, truth.rewards)
        >>> prior = Prior(plain.rewards.probabilities[0], np.zeros(2))
        >>> found = learn(log, plain, None, prior, rng=np.random.default_rng(0))
        >>> found.bandit.step_effects.round(1)
        array([ 0. , -1. , -1.9])
    """
    if not isinstance(bandit.rewards, Categorical) or bandit.rewards.n_values < 2 or len(sessions) < 2 * _FOLDS:
        return None
    some = _some(sessions, _COMPARED, rng)
    steps = _Steps.of(some, bandit, type_prior, prior)
    model = steps.start(bandit)
    if steps.shape[0] < 2 or not screened(steps, model):
        return None
    gain = held_out_gain(steps, model, rng)
    if not gain.mean > _CLEAR * gain.stderr:
        return gain
    if len(some) < len(sessions):
        some = _some(sessions, _FITTED, rng)
        steps = _Steps.of(some, bandit, type_prior, prior)
        model = steps.start(bandit)
    found, trace = steps.fit(model, moves=True, stop=stop)
    rewards = replace(bandit.rewards, probabilities=np.moveaxis(found.tables, 2, 0))
    effects = found.delta / bandit.rewards.spread
    fitted = replace(bandit, weights=found.weights, rewards=rewards, step_effects=effects)
    component = StepEffects(effects, _changes(fitted, some), gain)
    return Fitted(fitted, component, trace, len(trace) < _ITERATIONS)


def information(log: CategoricalLog, bandit: LatentBandit, prior: Prior, passes: Passes) -> Information:
    """Return the observed information about weights and rewards of the first step, if the effects are known.

    An effect is an offset of the logits, so that the coordinates of an arm and type are the same at every step.
    """
    rewards, (models, index) = categorical(bandit), bandit.step_models(log.sessions.horizon)
    n_arms, n_values, sessions = log.n_arms, len(log.values), log.sessions.load()
    arms = index[sessions.steps] * n_arms + sessions.arms
    steps = replace(sessions, arms=arms, n_arms=len(models) * n_arms, propensities=None, arm_labels=None)
    wide = type(log).encode(steps, log.values, **log._more)
    tables = np.concatenate([categorical(model).probabilities for model in models], axis=1)
    leaving = None if bandit.leaving is None else np.tile(bandit.leaving, (1, len(models), 1))
    spread = LatentBandit(bandit.weights, replace(rewards, probabilities=tables), leaving=leaving)
    with np.errstate(divide="ignore"):
        logs = np.log(wide.pack(spread)[0, 1 : 1 + wide.n_own, : bandit.n_types])
    basis, code = contrasts(rewards.n_values), np.arange(wide.n_own) % wide.n_cells
    places, values = code // n_values, rewards.encode(log.values)[code % n_values]
    expected = (tables @ basis).swapaxes(0, 1)
    seen = (basis.T @ covariances(tables) @ basis).swapaxes(0, 1).reshape(len(models), n_arms, bandit.n_types, -1)
    plays = _expected_plays(bandit, sessions, arms, len(models) * n_arms).reshape(
        len(models), n_arms, bandit.n_types, 1
    )
    shares = plays / np.maximum(plays.sum(axis=0), np.finfo(float).tiny)
    average = np.where(plays.sum(axis=0) > 0, (shares * seen).sum(axis=0), seen[0])
    n_entries = rewards.n_values - 1
    scores = CodeScores(
        places % n_arms,
        logs,
        np.ascontiguousarray(basis[values][:, None, :] - expected[places]),
        average.reshape(n_arms, bandit.n_types, n_entries, n_entries),
    )
    matrix = information_of_codes(wide, bandit.weights, scores, prior, passes)
    return Information(matrix, CategoricalCoordinates(bandit.weights, rewards, log.played))


def _expected_plays(
    bandit: LatentBandit, sessions: Sessions, arms: Integer[Array, "S"], n_arms: int
) -> Float[Array, "A M"]:
    """Return the expected number of plays of each arm in sessions of each type."""
    owner = np.repeat(np.arange(len(sessions)), sessions.lengths)
    shares = belief.posterior(bandit, sessions)
    return np.stack([np.bincount(arms, column[owner], minlength=n_arms) for column in shares.T], axis=1)


def first_steps(bandit: LatentBandit, sessions: Sessions | Packed, families: Sequence[Any]) -> Sequence[Any]:
    """Return rewards of the first step from rewards that are averages over the steps of a log.

    Gibbs chains draw rewards that do not depend on the step; those of the bandit do. Rewards of a bandit without step
    effects stay as they are.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([1.0], [[0.5]], step_effects=[0.0, 1.0])
        >>> log = lmab.Sessions.from_arrays([[0, 0]], [[0.0, 1.0]])
        >>> average = lmab.LatentBandit.bernoulli([1.0], [[(0.5 + 0.731059) / 2]])
        >>> first_steps(bandit, log, [average.rewards])[0].means.round(4)
        array([[0.5]])
    """
    effects = bandit.step_effects
    if effects is None:
        return families
    log = _some(sessions, _COMPARED, np.random.default_rng(0))
    shares = np.bincount(np.minimum(log.steps, len(effects) - 1), minlength=len(effects)) / log.n_steps
    found = []
    for family in families:
        tables = average = np.moveaxis(family.probabilities, 0, 2)
        plays = np.broadcast_to(shares[:, None, None], (len(shares), average.shape[0], average.shape[2]))
        for _ in range(_INVERSIONS):
            tables = _unbiased(average, plays, tables, np.exp(effects[:, None] * (family.values - family.values.min())))
        found.append(replace(family, probabilities=np.moveaxis(tables, 2, 0)))
    return found


def _changes(bandit: LatentBandit, sessions: Sessions) -> Float[Array, "H"]:
    """Return the relative change of the mean reward at each step, averaged over the plays of the log."""
    assert bandit.step_effects is not None
    plays = sessions.plays / sessions.n_steps
    means = np.array([bandit.weights @ bandit.at(step).means @ plays for step in range(len(bandit.step_effects))])
    return means / means[0] - 1 if means[0] != 0 else np.zeros(len(means))
