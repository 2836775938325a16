"""What held-out sessions say: a model is fitted to parts of a log and judged on the rest, beside simpler models.

Three simpler models stand beside it. *One type*: all sessions are alike. *Unrelated arms*: every session draws anew
what each arm pays, so plays of one arm in one session are alike and plays of different arms are independent.
*Generosity*: sessions like all arms more or less, so that nobody's best arm changes. If the model does not predict
held-out sessions better than each of them, its types do not say which arm suits whom. In masked replay the model's
policy may choose only among the arms that a held-out session logged; it needs no model to be believed, because every
reward was paid there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._shapes import Array, Bool, Float, Integer
from ..checks import Rng, check_count, check_rng
from ..data.packed import Packed
from ..data.sessions import Sessions, require_log, sample_rows
from ..errors import InvalidArgument
from ..model import belief
from ..model.bandit import LatentBandit
from ..parallel import with_one_blas_thread
from ..policies.policy import best_allowed
from .check import Calibration, Check, Gain, Replay
from .em import EM
from .families import observe
from .log import Log
from .result import Estimate, Estimator, capabilities_of
from .traits.traits import Traits

LEAST = 10  # sessions of a log of which some can be held out
_SESSIONS = 100_000  # Sessions of a larger log that are looked at.
_FOLDS = 5
_ENOUGH = 20_000  # sessions of a larger log are held out in one fold
_SMALL, _REPEATS = 300, 2  # sessions of a log that is split several times, and how many times
_METHOD = EM(restarts=3, tolerance=1e-4, prior="learned", sweeps=12)
_ONE_TYPE = EM(restarts=1, tolerance=1e-3, prior="learned", sweeps=8)  # it has one maximum
_GENEROSITY = Traits(n_factors=1, n_points=12, equal_loadings=True)
_GENEROUS = 2  # folds that it is fitted to, which takes as long as types do
_TRAITS = Traits(n_points=128, tolerance=1e-3)  # that types are compared with, on held-out sessions: gains are
# unsure by some hundredths, and 200 arms with 10 rewards took 166 rounds instead of 56 for .006 more
_COMPARED = 500  # arms of a log up to which they are: of more, traits take minutes
_BINS = 10
_CELLS = 1 << 22  # pairs of session and arm that are replayed at once


@with_one_blas_thread
def check(
    sessions: Sessions | Packed | Log | Estimate,
    *,
    n_types: int | None = None,
    method: Estimator | None = None,
    rewards: str | None = None,
    traits: bool = True,
    n_folds: int = _FOLDS,
    rng: Rng,
) -> Check:
    """Fit to four fifths of the sessions (of at most 100,000), and look at the others; five times, each fifth once.

    A log of up to 300 sessions is split twice; of more than 20,000 one fifth is enough. Generosity is fitted only where
    one type and unrelated arms predict worse than the model, since without that there is nothing to explain. The fits
    know nothing before a session, nor do they explain which arms were shown; what either gains is added, where the
    estimate found that.

    Args:
        sessions: the log; or an estimate or a `Log`, whose sessions are encoded already.
        n_types: of the model that is checked; None: as the estimate has, or if it chose its number itself, the
            number that predicts best.
        method: how it is fitted; None: by `EM`, or by `Traits` where the estimate was.
        rewards: as for `lmab.fit`; encoded already, the log knows its own.
        traits: whether types are compared with traits, on the first fifth, in a log of at most 500 arms; this takes as
            long as all the rest.
        n_folds: fifths that are held out in turn, where fits take long.
        rng: which sessions are held out, and where fits start.

    Examples:
        >>> import lmab
        >>> truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.6], [0.1, 0.9, 0.4]])
        >>> log = lmab.simulate(truth, lmab.Uniform(3), n_sessions=400, horizon=4, rng=0)
        >>> check(log, n_types=2, traits=False, rng=1).agrees
        True
    """
    rng = check_rng(rng, "sessions are held out at random")
    method, n_types = _model(sessions, method, n_types)
    observations = _observed(sessions.require_log() if isinstance(sessions, Estimate) else sessions, rewards, rng)
    held = _held_out(len(observations.sessions), check_count("n_folds", n_folds), rng)
    folds = [_Fold.of(observations, test, method, n_types, rng) for test in held]
    everyone = np.concatenate([fold.rows for fold in folds])
    gains = {name: _gain(everyone, [fold.over(name) for fold in folds]) for name in ("one_type", "apart")}
    several = folds[0].bandit.n_types > 1
    generosity = None
    if several and gains["one_type"].sure and gains["apart"].likely:
        some = folds[:_GENEROUS]
        rows = np.concatenate([fold.rows for fold in some])
        generosity = _gain(rows, [fold.over_fit(_GENEROSITY, rng) for fold in some])
    compared = (
        several and traits and not capabilities_of(method).chooses_n_types and observations.sessions.n_arms <= _COMPARED
    )
    replayed = np.concatenate([fold.replayed() for fold in folds]) if several else np.empty(0)
    result = Check(
        n_types=folds[0].bandit.n_types,
        n_sessions=len(np.unique(everyone)),
        log_likelihood=float(np.concatenate([fold.model for fold in folds]).mean()),
        over_one_type=gains["one_type"],
        over_independent_arms=gains["apart"],
        calibration=calibrate(folds[0].bandit, folds[0].held.sessions.load()),
        over_generosity=generosity,
        over_traits=_gain(folds[0].rows, [folds[0].over_fit(_TRAITS, rng)]) if compared else None,
        replay=_replay(replayed),
        n_factors=folds[0].n_factors,
    )
    return informed(result, sessions) if isinstance(sessions, Estimate) else result


def beside_traits(estimate: Estimate, *, rng: Rng) -> Check:
    """The check of an estimate that has one, with its types compared with traits on one fifth, where `check` does so.

    Examples:
        >>> import lmab
        >>> truth = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1, 0.6], [0.1, 0.9, 0.4]])
        >>> log = lmab.simulate(truth, lmab.Uniform(3), n_sessions=400, horizon=4, rng=0)
        >>> beside_traits(lmab.fit(log, n_types=2, rng=1), rng=2).better_by_degrees
        False
    """
    found, rng = estimate.check, check_rng(rng, "sessions are held out at random")
    if found is None:
        raise InvalidArgument("estimate must have a check to add to, got one without: see `check`")
    if found.n_types == 1 or found.n_factors is not None or estimate.bandit.n_arms > _COMPARED:
        return found
    log = _observed(estimate.require_log(), None, rng)
    fold = _Fold.of(log, _held_out(len(log.sessions), 1, rng)[0], _METHOD, found.n_types, rng)
    gain = _gain(fold.rows, [fold.over_fit(_TRAITS, rng)])
    return replace(found, over_traits=informed(replace(found, over_traits=gain), estimate).over_traits)


def informed(check: Check, estimate: Estimate) -> Check:
    """Return the check of the estimate's log, with what explaining arms, and features, gained on held-out sessions."""
    if estimate.selection is not None:
        check = check.plus(estimate.selection.gain.mean, estimate.selection.gain.stderr)
    return check if estimate.known is None else check.plus(*estimate.known)


def _model(
    sessions: Sessions | Packed | Log | Estimate, method: Estimator | None, n_types: int | None
) -> tuple[Estimator, int]:
    """What is fitted, and with how many types."""
    given = sessions if isinstance(sessions, Estimate) else None
    if method is None and n_types is None and given is not None and given.factors is not None:
        method = Traits(n_factors=max(given.factors.n_factors, 1), n_points=given.n_types)
    if method is not None and capabilities_of(method).chooses_n_types:
        return method, 0
    if n_types is None and given is not None:
        n_types = given.n_types if given.curve is None else given.curve.best_of_several
    return method or _METHOD, check_count("n_types", n_types)


def _held_out(n_sessions: int, n_folds: int, rng: np.random.Generator) -> list[Integer[Array, "_"]]:
    """Sessions that are held out together."""
    splits = _REPEATS if n_sessions <= _SMALL and n_folds == _FOLDS else 1
    folds = [np.array_split(rng.permutation(n_sessions), min(_FOLDS, n_sessions)) for _ in range(splits)]
    n_folds = 1 if n_sessions > _ENOUGH else n_folds
    kept = [test for split in folds for test in split[:n_folds]]
    return [np.sort(test) for test in kept]


@dataclass(frozen=True, eq=False)
class _Fold:
    """A model fitted to some sessions, and the others."""

    rows: Integer[Array, "n"]  # sessions held out
    seen: Log
    held: Log
    bandit: LatentBandit  # fitted to `seen`
    n_factors: int | None
    model: Float[Array, "n"]  # log-likelihood of every session held out

    @classmethod
    def of(
        cls,
        observations: Log,
        test: Integer[Array, "n"],
        method: Estimator,
        n_types: int,
        rng: np.random.Generator,
    ) -> _Fold:
        train = np.setdiff1d(np.arange(len(observations.sessions)), test)
        seen, held = observations.subset(train), observations.subset(test)
        fit = method.fit(seen, n_types=n_types, rng=rng)
        n_factors = None if fit.factors is None else fit.factors.n_alive
        return cls(test, seen, held, fit.bandit, n_factors, held.heldout(fit.bandit))

    def over(self, name: str) -> Float[Array, "n"]:
        """Return how much likelier each session is than under one type, or under unrelated arms."""
        if name == "one_type":
            return self.over_fit(_ONE_TYPE, np.random.default_rng(0), n_types=1)
        return self.model - self.seen.unrelated(self.held.sessions.load())

    def over_fit(self, method: Estimator, rng: np.random.Generator, n_types: int = 0) -> Float[Array, "n"]:
        """Return how much likelier each session is than under another model, fitted to the same sessions."""
        return self.model - self.held.heldout(method.fit(self.seen, n_types=n_types, rng=rng).bandit)

    def replayed(self) -> Float[Array, "r"]:
        """What masked replay gains in each session that leaves a choice."""
        return masked_gains(self.bandit, popularity_of(self.seen.sessions.load()), self.held.sessions.load())


def _gain(rows: Integer[Array, "n"], differences: list[Float[Array, "_"]]) -> Gain:
    """Mean and paired standard error over sessions; a session held out several times counts once, by its average."""
    places = np.unique(rows, return_inverse=True)[1]
    own = np.bincount(places, np.concatenate(differences)) / np.bincount(places)
    return Gain(float(own.mean()), float(own.std() / np.sqrt(len(own))))


def _replay(gains: Float[Array, "n"]) -> Replay | None:
    if not len(gains):
        return None
    return Replay(float(gains.mean()), float(gains.std() / np.sqrt(len(gains))), len(gains))


def _observed(sessions: Sessions | Packed | Log, rewards: str | None, rng: np.random.Generator) -> Log:
    """Return the log, or some of its sessions if it is large, encoded."""
    if not isinstance(sessions, Log):
        require_log("sessions", sessions)
    encoded = sessions.without_letters() if isinstance(sessions, Log) else None  # types must predict rewards
    log = sessions.sessions if isinstance(sessions, Log) else sessions
    if len(log) < LEAST:
        raise InvalidArgument(f"sessions must be at least {LEAST} to hold some out, got {len(log)}")
    sample = sampled(len(log), rng)
    if encoded is not None:
        return encoded if sample is None else encoded.subset(sample)
    return observe(log if sample is None else log[sample], rewards=rewards)


def sampled(n_sessions: int, rng: np.random.Generator) -> Integer[Array, "n"] | None:
    """Some of the sessions of a large log; None: all."""
    return None if n_sessions <= _SESSIONS else np.sort(sample_rows(n_sessions, _SESSIONS, rng))


def calibrate(bandit: LatentBandit, sessions: Sessions) -> Calibration:
    """Calibration of a model on sessions that it was not fitted to."""
    predicted, average = predictions(bandit, sessions)
    order = np.argsort(predicted, kind="stable")
    bins = [part for part in np.array_split(order, _BINS) if len(part)]
    means = [(predicted[part].mean(), sessions.rewards[part].mean(), sessions.rewards[part].std()) for part in bins]
    sizes = np.array([len(part) for part in bins])
    columns = np.array(means).T
    slope, error = _slope(predicted - average, sessions.rewards - average, sessions)
    return Calibration(columns[0], columns[1], columns[2] / np.sqrt(sizes), sizes, slope, error)


def predictions(bandit: LatentBandit, sessions: Sessions) -> tuple[Float[Array, "S"], Float[Array, "S"]]:
    """For every step, its expected reward given the session before it, and given nothing."""
    predicted, means = np.empty(sessions.n_steps), belief.expected_rewards(bandit, sessions)
    for places, beliefs in belief.predictive_beliefs(bandit, sessions):
        predicted[places] = np.einsum("nm,nm->n", beliefs, means[places])
    return predicted, means @ bandit.weights


def _slope(x: Float[Array, "S"], y: Float[Array, "S"], sessions: Sessions) -> tuple[float, float]:
    """Least squares through the origin, with a standard error that lets steps of a session depend on each other."""
    power = float(x @ x)
    if power == 0:
        return 0.0, 0.0
    slope = float(x @ y) / power
    scores = np.add.reduceat(x * (y - slope * x), sessions.offsets[:-1])
    return slope, float(np.sqrt((scores**2).sum())) / power


def masked_gains(bandit: LatentBandit, popularity: Float[Array, "A"], held: Sessions) -> Float[Array, "n"]:
    """What half of each session's arms earn more if they are chosen greedily instead of by popularity.

    Each arm that a session logged may be played once, and pays what it paid there first. Sessions with fewer than two
    arms leave no choice and are left out.
    """
    size = max(_CELLS // max(held.n_arms, bandit.n_types), 1)
    parts = [held[slice(start, start + size)] for start in range(0, len(held), size)]
    return np.concatenate([_replay_gains(bandit, popularity, part) for part in parts])


def popularity_of(sessions: Sessions) -> Float[Array, "A"]:
    """Return the mean reward of each arm, with one pseudo-play of the average arm."""
    plays = np.bincount(sessions.arms, minlength=sessions.n_arms)
    sums = np.bincount(sessions.arms, sessions.rewards, minlength=sessions.n_arms)
    return (sums + sessions.rewards.mean()) / (plays + 1)


def _replay_gains(bandit: LatentBandit, popularity: Float[Array, "A"], held: Sessions) -> Float[Array, "n"]:
    rewards, left = _first_rewards(held)
    steps = left.sum(axis=1) // 2
    popular = np.argsort(-np.where(left, popularity, -np.inf), axis=1, kind="stable")
    gains, rows = np.zeros(len(held)), np.arange(len(held))
    beliefs = belief.prior(bandit, len(held))
    for step in range(int(steps.max(initial=0))):
        live = steps[rows] > step
        rows, beliefs = rows[live], beliefs[live]
        arms = best_allowed(belief.normalise(beliefs) @ bandit.at(step).means, left[rows])
        paid = rewards[rows, arms]
        gains[rows] += paid - rewards[rows, popular[rows, step]]
        left[rows, arms] = False
        beliefs = belief.update(bandit, beliefs, arms, paid, step)
    return gains[steps > 0]


def _first_rewards(sessions: Sessions) -> tuple[Float[Array, "n A"], Bool[Array, "n A"]]:
    """What each session's arms paid first, and which arms it logged."""
    owner = np.repeat(np.arange(len(sessions)), sessions.lengths)
    rewards = np.zeros((len(sessions), sessions.n_arms))
    logged = np.zeros(rewards.shape, bool)
    backwards: Integer[Array, "S"] = np.arange(sessions.n_steps)[::-1]  # so that the first of several stays
    rewards[owner[backwards], sessions.arms[backwards]] = sessions.rewards[backwards]
    logged[owner, sessions.arms] = True
    return rewards, logged
