"""What a fit is asked for and what it gives: Estimator, Request, Progress, and the Estimate."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from .. import _registry, files
from .._html import card, count, percent
from .._shapes import Array, Float
from ..checks import check_same_length
from ..data.fingerprint import Fingerprint
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..errors import InvalidArgument, Status
from ..model import belief
from ..model.bandit import LatentBandit
from ..model.bins import Bins
from ..model.type_prior import TypePrior
from ..parallel import with_one_blas_thread
from ..planning.advice import Advice, SavedModel
from .assumptions import Assumption, Assumptions, tested
from .check import Calibration, Check, Gain, Replay
from .fitted_components import AddedComponents, Candidate, ComparedCandidates, FittedComponent, components_of
from .information import Information, StandardErrors, standard_errors
from .log import START, Log, Prior
from .log_summary import LogSummary
from .passes import opened
from .step_effects import StepEffects
from .traits.surface import Factors

LIKES, FREE = "likes", "free"  # how a site chose what it showed to whom
_SESSIONS = 1 << 16  # looked at together
_READ_ALIKE = (
    "; their sizes agree, so read the log as for the fit: with the same rewards, features, persons and ends "
    "(at the command line --rewards, --features, --person, --ended or --limit)"
)


@dataclass(frozen=True)
class Progress:
    """What a long fit tells its observer."""

    stage: str  # "starts", "climb", "polish", or "3 types: climb" and the like
    iteration: int
    max_iterations: int
    log_likelihood: float  # Log-likelihood of the best so far (plus log prior, if there is one).


Observer = Callable[[Progress], bool | None]  # answers True to stop: the best so far is returned


class StopOnce:
    """An observer that, once told to stop, stays stopped: a fit may have several stages to leave."""

    def __init__(self, observer: Observer | None = None) -> None:
        self._observer = observer
        self.stopped = False

    def __call__(self, progress: Progress) -> bool:
        self.stopped = self.stopped or (self._observer is not None and bool(self._observer(progress)))
        return self.stopped

    def stop(self) -> None:
        """Stop from now on."""
        self.stopped = True


@dataclass(frozen=True, eq=False)
class Request:
    """One fit to be made."""

    log: Log  # the encoded log
    n_types: int  # 0 where the method has its own number
    rng: np.random.Generator
    progress: StopOnce  # to be told; once it answers True, the best so far is wanted
    backend: Any = None  # where passes run; None: threads
    start: LatentBandit | None = None  # a model to start from, beside those that the method finds itself


@dataclass(frozen=True)
class Capabilities:
    """What `lmab.fit` may expect of an estimator; the defaults are right for any.

    Examples:
        >>> import lmab
        >>> lmab.EM().capabilities.takes_start, lmab.estimation.MomentMatching().capabilities.takes_start
        (True, False)
    """

    tolerates_extra_types: bool = False  # superfluous types are harmless: `n_types="auto"` may choose too many
    chooses_n_types: bool = False  # the estimator has its own number of types, so that none may be given
    takes_start: bool = False  # it can start from a given model
    devices: tuple[str, ...] = ()  # where its passes can run beside the CPU
    uses_moments: bool = False  # it compares moments of steps, which attrition biases
    corrects_attrition: bool = False  # these moments are weighted for attrition by arm and reward
    is_checked: bool = False  # held-out sessions check its types


def capabilities_of(method: Any) -> Capabilities:
    """Return the capabilities of any object with a `fit` method; the default ones if it declares none."""
    return getattr(method, "capabilities", Capabilities())


class Estimator(ABC):
    """A way to fit a bandit to a log: `EM`, `Traits`, `MomentMatching`, `TensorDecomposition`, or your own.

    A subclass is configuration, a frozen dataclass with one method, `solve`, which returns `finish(log, bandit)`.
    `lmab.testing.check_estimator` checks the laws of estimators.

    Examples:
        >>> from dataclasses import dataclass
        >>> import lmab
        >>> from lmab.estimation import Estimator, finish
        >>> @dataclass(frozen=True)
        ... class Pooled(Estimator):
        ...     '''All types are like the whole log.'''
        ...     def solve(self, request):
        ...         one = lmab.EM(prior=0.0).fit(request.log, n_types=1, rng=request.rng).bandit
        ...         n = request.n_types
        ...         return finish(request.log, lmab.LatentBandit.bernoulli([1 / n] * n, [one.means[0]] * n))
        >>> bandit = lmab.random_bandit(2, 4, rng=0)
        >>> log = lmab.simulate(bandit, lmab.Uniform(4), n_sessions=200, horizon=3, rng=0)
        >>> lmab.fit(log, n_types=2, method=Pooled(), rng=0).n_types
        2
    """

    @property
    def capabilities(self) -> Capabilities:
        """What `lmab.fit` may expect of this estimator."""
        return Capabilities()

    @abstractmethod
    def solve(self, request: Request) -> Estimate:
        """Return the estimate that is asked for."""

    def fit(
        self,
        log: Log,
        *,
        n_types: int = 0,
        rng: np.random.Generator,
        progress: Observer | None = None,
        backend: Any = None,
        start: LatentBandit | None = None,
    ) -> Estimate:
        """Fit `n_types` types to an encoded log; unlike `lmab.fit` this warns of nothing."""

        watch = progress if isinstance(progress, StopOnce) else StopOnce(progress)
        return with_one_blas_thread(self.solve)(Request(log, n_types, rng, watch, backend, start))


@dataclass(frozen=True, eq=False)
class Starts:
    """How many starts were drawn, and how many ran to the end."""

    drawn: int
    finished: int  # ran until they converged or reached the limit
    best: int  # finished starts that reached the best solution

    def __str__(self) -> str:
        dropped = f", {self.drawn - self.finished} dropped early" if self.drawn > self.finished else ""
        return f"{self.best} of {self.finished} starts reached the best solution{dropped}"


@dataclass(frozen=True, eq=False)
class Curve:
    """Held-out log-likelihood per session for each number of types compared."""

    n_types: tuple[int, ...]
    log_likelihood: Float[Array, "K"]  # mean over held-out sessions
    gain: Float[Array, "K"]  # over the number of types before; the first is 0
    stderr: Float[Array, "K"]  # Paired standard error of that gain; the first is 0.
    chosen: int
    settled: bool = False  # whether the check on held-out sessions decided otherwise than the curve alone
    known: bool = False  # whether sessions held out were predicted with their features

    def __post_init__(self) -> None:
        check_same_length("the curve", self.n_types, self.log_likelihood, self.gain, self.stderr)

    def __str__(self) -> str:
        compared = ", ".join(f"{n}: {value:.4f}" for n, value in zip(self.n_types, self.log_likelihood, strict=True))
        return f"{self.reason} (log-likelihood per session by number of types: {compared})"

    @property
    def best(self) -> int:
        """The number of types that predicts best."""
        return self.n_types[int(np.argmax(self.log_likelihood))]

    @property
    def best_of_several(self) -> int:
        """The number, of at least two, that predicts best: what a check of types is about."""
        return self.n_types[1 + int(np.argmax(self.log_likelihood[1:]))] if len(self.n_types) > 1 else 1

    def reason_beside(self, check: Check | None) -> str:
        """Return why this many types were selected; if the check supports none, only how many were fitted."""
        if check is None or check.agrees or self.chosen == 1:
            return self.reason
        return f"{count(self.chosen, 'type')} were fitted, but held-out sessions do not support them"

    @property
    def reason(self) -> str:
        """Why this many types were selected."""
        selected, score = f"{count(self.chosen, 'type')} selected", "held-out log-likelihood"
        if self.settled:
            support = f"does not support {self.best_of_several}" if self.chosen == 1 else "supports them"
            return f"{selected}: the check on held-out sessions {support}"
        given = " given the features" if self.known else ""
        if self.chosen == self.best:
            return f"{selected}: highest {score}{given}"
        if self.chosen > self.best:
            return (
                f"{selected}: {self.best} have the highest {score}, but one type too few costs a learner more than one "
                f"too many"
            )
        return f"{selected}: {self.best} have a {score}{given} that is not clearly higher"


@dataclass(frozen=True, eq=False)
class Selection:
    """How a site chose what it showed to whom, as a fit explains it."""

    kind: str  # "likes" or "free"
    favour: Float[Array, "A M"]  # u: how much more an arm is shown to a type than to everybody
    steepness: float  # beta of "likes"; 0 for "free"
    concentration: float  # c of "free"; infinite for "likes"
    reacting: bool  # whether the site also looks at the step before
    ratio: float  # likelihood ratio of "likes" against arms that do not depend on types
    evidence: float  # logarithm, of "free" against the same
    gain: Gain  # log-likelihood of the rewards of a held-out session over a fit that does not explain arms

    @property
    def n_parameters(self) -> int:
        """Free parameters: beta, or u, which has mean 1 in every type."""
        return 1 if self.kind == LIKES else self.favour.size - self.favour.shape[1]

    @property
    def sentence(self) -> str:
        """The finding with its statistics."""
        return (
            f"selective exposure: the logged arms depend on the latent type (likelihood ratio {self.ratio:.1f}, log "
            f"evidence {self.evidence:.1f}); the model includes this, which improves the prediction of held-out "
            f"rewards ({self.gain} per session)"
        )

    @property
    def plain(self) -> str:
        """The finding without its statistics."""
        return (
            "selective exposure: the logged arms depend on the latent type; the model includes this, which improves "
            "the prediction of held-out rewards"
        )


@dataclass(frozen=True, eq=False)
class Estimate:
    """A bandit fitted to a log.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> sessions = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=2000, horizon=5, rng=rng)
        >>> estimate = lmab.fit(sessions, n_types=2, rng=rng)
        >>> estimate.converged, estimate.n_parameters
        (True, 5)
        >>> bool(estimate.bandit.distance(bandit) < 0.1)
        True
    """

    bandit: LatentBandit
    log_likelihood: float  # total, natural logarithm, without the prior
    n_parameters: int
    status: Status  # CONVERGED, ITERATION_LIMIT or INTERRUPTED; equal to its name as text
    message: str  # what happened, in a sentence or more
    trace: Float[Array, "T"]  # log-likelihood (plus log prior) of the best start after each iteration; never falls
    starts: Starts
    prior: float | str  # as the method was asked: pseudo-counts per type and arm, or "learned"
    encoded: Log | None = field(repr=False)  # the encoded log; None: loaded from a file
    bins: Bins | None = None  # how continuous rewards were cut before the fit; a policy for `bandit` sees cut rewards
    curve: Curve | None = None  # where the number of types was chosen
    check: Check | None = None  # how well held-out sessions are predicted; None if this was not checked
    fingerprint: Fingerprint | None = field(repr=False, default=None)  # Fingerprint of the log; None: see `encoded`.
    known_scale: bool = False  # whether the scale of normal rewards was given; needed if the log is not here
    learned: Prior | None = field(default=None, repr=False)  # Prior of every arm, if it was learned.
    factors: Factors | None = field(default=None, repr=False)  # Where types and arms of a traits model lie.
    known: tuple[float, float] | None = None  # what features gain on held-out sessions, and its standard error
    tested: Assumptions | None = field(default=None, repr=False)  # by `lmab.fit`; see `assumptions`
    left_out: tuple[str | int, ...] = field(default=(), repr=False)  # rare arms whose steps were not fitted
    selection: Selection | None = field(default=None, repr=False)  # how arms were chosen for types, if fitted
    step: StepEffects | None = field(default=None, repr=False)  # effects of the step, if the fit includes them
    summarised: LogSummary | None = field(default=None, repr=False)  # in files; see `log_summary`
    columns: tuple[tuple[str, str | int], ...] = field(default=(), repr=False)  # options that read the log, by name
    own_components: AddedComponents | None = field(default=None, repr=False)  # that the caller gave; see `components`
    compared: ComparedCandidates | None = field(default=None, repr=False)  # by the model selection; see `candidates`

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", Status.named(self.status))  # files and other methods may give its text

    @property
    def sessions(self) -> Sessions | Packed:
        """The log."""
        return self.require_log().sessions

    @cached_property
    def log(self) -> Fingerprint:
        """The fingerprint of the log that was fitted: its size and a checksum."""
        return self.fingerprint or Fingerprint.of(self.sessions)

    @cached_property
    def assumptions(self) -> dict[str, Assumption]:
        """The assumptions of the fit, tested on its log: "exposure", "leaving", "drift" and "step".

        Examples:
            >>> import lmab
            >>> bandit = lmab.random_bandit(2, 5, rng=0)
            >>> log = lmab.simulate(bandit, lmab.Uniform(5), n_sessions=300, horizon=4, rng=1)
            >>> lmab.fit(log, n_types=2, rng=2).assumptions["drift"].fires
            False
        """
        if self.tested is not None:
            return self.tested.by_name
        return tested(self.bandit, self.sessions).by_name

    @property
    def components(self) -> Mapping[str, FittedComponent]:
        """The components in use beyond weights and rewards: by name, each with its name, summary and table.

        Examples:
            >>> import lmab
            >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
            >>> prior, persons = lmab.TypePrior.constant([0.5, 0.5], keep=0.8), [number // 4 for number in range(800)]
            >>> people = {"n_sessions": 800, "horizon": 4, "type_prior": prior, "persons": persons}
            >>> log = lmab.simulate(bandit, lmab.Uniform(2), **people, rng=0)
            >>> lmab.fit(log, n_types=2, rng=0, check=False).components["persons"].summary
            'Returning persons keep their type with probability 0.78.'
        """
        return components_of(self)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The models that the model selection compared: name, gain per held-out session, its error, if selected."""
        return () if self.compared is None else tuple(self.compared)

    def with_candidates(self, *candidates: Candidate) -> Estimate:
        """Return the estimate with more candidates after those that were compared before."""
        return replace(self, compared=ComparedCandidates.of([*self.candidates, *candidates]))

    @cached_property
    def log_summary(self) -> LogSummary | None:
        """What plans follow from the log: repeats, the longest session, withdrawn arms; None in files without it."""
        return self.summarised or (None if self.encoded is None else LogSummary.of(self.sessions))

    @property
    def contradicted(self) -> dict[str, str]:
        """The assumptions that the log contradicts, each with its sentence; empty if they were not tested."""
        found = {} if self.tested is None else self.tested.by_name
        return {name: one.sentence for name, one in found.items() if one.fires}

    def advice(self) -> Advice:
        """Return what follows for a plan from the log and the held-out check."""
        summary, check, factors = self.log_summary, self.check, self.factors
        return Advice(
            repeats=summary is None or summary.repeats,
            repeats_reason="" if summary is None else summary.reason,
            longest=None if summary is None else summary.longest,
            withdrawn=() if summary is None else tuple(summary.withdrawn),
            withdrawn_note="" if summary is None else summary.sentence_on_withdrawn(self.bandit),
            contradicted=tuple(self.contradicted),
            refusal="" if check is None or check.agrees else check.refusal,
            verdict="" if check is None else check.verdict,
            remark="" if factors is None or factors.tell_arms_apart else factors.ranking,
        )

    @property
    def n_sessions(self) -> int:
        """The number of sessions of the log."""
        return len(self.sessions) if self.fingerprint is None else self.fingerprint.n_sessions

    @property
    def converged(self) -> bool:
        """Whether the best start, which this estimate comes from, converged."""
        return self.status is Status.CONVERGED

    @property
    def n_types(self) -> int:
        return self.bandit.n_types

    @property
    def type_prior(self) -> TypePrior | None:
        """The weights of a session by features and persons, from the bandit; None: the same for all sessions."""
        return self.bandit.type_prior

    @property
    def bic(self) -> float:
        """Schwarz's criterion, with the sessions as the independent observations; lower is better."""
        return -2 * self.log_likelihood + float(np.log(self.n_sessions)) * self.n_parameters

    @property
    def aic(self) -> float:
        """Akaike's criterion; lower is better."""
        return -2 * self.log_likelihood + 2 * self.n_parameters

    def posterior(self, sessions: Sessions | Packed | None = None) -> Float[Array, "N M"]:
        """Probability of each type given each whole session, by default of the log that was fitted.

        Where the fit learned what features tell, sessions with these features start from their own prior.
        """
        sessions = self.sessions if sessions is None else sessions
        if sessions.n_arms > self.bandit.n_arms:
            raise InvalidArgument(f"sessions must have at most {self.bandit.n_arms} arms, got {sessions.n_arms}")
        return np.concatenate([self._posterior(chunk) for chunk in sessions.chunks(_SESSIONS)])

    def _posterior(self, sessions: Sessions) -> Float[Array, "n M"]:
        found = belief.posterior(self.bandit, sessions)
        if self.type_prior is None or not self.type_prior.columns or sessions.features is None:
            return found
        own = self.type_prior.weights(sessions.features.only(self.type_prior.columns))
        return belief.normalise(found * own / np.maximum(self.bandit.weights, np.finfo(float).tiny))

    def _repr_html_(self) -> str:
        weights = ", ".join(percent(weight) for weight in np.sort(self.bandit.weights)[:-9:-1])
        rows = {
            "types": f"{self.n_types}: {weights}",
            "log-likelihood": f"{self.log_likelihood:.4f} of {self.n_sessions} sessions",
            "BIC": f"{self.bic:.2f} ({self.n_parameters} parameters)",
            "status": self.message,
            **{name: one.summary for name, one in self.components.items()},
        }
        return card("Estimate", rows)

    def require_log(self) -> Log:
        """Return the encoded log; raises where the estimate was loaded from a file."""
        if self.encoded is None:
            raise InvalidArgument(
                f"estimate must have its log for this, but files hold no log: give estimate.with_log(sessions) the "
                f"sessions that were fitted ({self.log})"
            )
        return self.encoded

    def with_log(self, sessions: Sessions | Packed) -> Estimate:
        """Return the estimate with the log that it was fitted to, if it was loaded from a file; another log raises.

        The log may have more columns of features than the model uses, for baselines that use them.

        Examples:
            >>> import os, tempfile, numpy as np, lmab
            >>> rng = np.random.default_rng(0)
            >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
            >>> log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=500, horizon=3, rng=rng)
            >>> path = os.path.join(tempfile.mkdtemp(), "estimate.lmab")
            >>> lmab.fit(log, n_types=2, rng=rng).save(path)
            >>> lmab.load(path).with_log(log).posterior().shape
            (500, 2)
        """
        if self.encoded is not None and sessions is self.sessions:
            return self
        log = self.without_rare(sessions)
        log = log.with_arms(self.bandit.n_arms) if log.n_arms < self.bandit.n_arms else log
        log = log if self.bins is None else self.bins.cut(log)
        found = Fingerprint.of(log)
        if found == self.log and self.encoded is not None:
            return self
        if found == self.log or self._has_more_features(log):
            self._require_columns(log)
            return replace(self, encoded=_observe(self.bandit, log, self.known_scale), fingerprint=None)
        raise InvalidArgument(
            f"sessions must be the log that the estimate was fitted to ({self.log}), got another ({found})"
            + (_READ_ALIKE if found.sizes == self.log.sizes else "")
        )

    def _has_more_features(self, log: Sessions | Packed) -> bool:
        """Return whether a log is that of the fit with more columns of features, which the model does not use."""
        if isinstance(log, Packed) or log.features is None:
            return False
        used = () if self.type_prior is None else self.type_prior.columns
        if not set(used) < set(log.features):
            return False
        return Fingerprint.of(replace(log, features=log.features.only(used) if used else None)) == self.log

    def _require_columns(self, log: Sessions | Packed) -> None:
        """Raise where the features of the fit have other names in the log, which its checksum does not hold."""
        known = list(log.features or ())
        unknown = [] if self.type_prior is None else [name for name in self.type_prior.columns if name not in known]
        if unknown:
            raise InvalidArgument(f"sessions must have the feature {unknown[0]!r} of the fit, got {known}")

    def without_rare(self, sessions: Sessions | Packed) -> Sessions | Packed:
        """Return the log without the steps of the arms that were left out of the fit, if it has any."""
        if not self.left_out or isinstance(sessions, Packed) or self.bandit.arm_labels is None:
            return sessions
        names, rare = sessions.arm_labels or range(sessions.n_arms), set(self.left_out)
        kept = [arm for arm, name in enumerate(names) if name not in rare]
        return sessions if len(kept) == sessions.n_arms else sessions.only_arms(kept)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to `path`; `lmab.load` gives the same estimate back, to the bit, but for the log: see `with_log`."""
        files.write(path, self.record())

    def record(self) -> files.Record:
        known = self.known_scale if self.encoded is None else self.encoded.known_scale is not None
        found = replace(self, fingerprint=self.log, known_scale=known, summarised=self.log_summary)
        return files.encode(found, "estimate", without=("encoded",))

    @classmethod
    def from_record(cls, record: files.Record) -> Estimate:
        prior = record.records.get("type_prior")  # in files from before the bandit held it
        records = {name: one for name, one in record.records.items() if name != "type_prior"}
        plain = {name: value for name, value in record.fields.items() if name != "type_prior"}  # None without features
        found = files.decode(replace(record, records=records, fields=plain), cls, _PARTS, encoded=None)
        if prior is None:
            return found
        return replace(found, bandit=found.bandit.with_type_prior(TypePrior.from_record(prior)))

    @property
    def arm_prior(self) -> Prior:
        """The prior of every arm, as the fit used it."""
        if self.learned is not None:
            return self.learned
        return self.require_log().prior(START if isinstance(self.prior, str) else self.prior)

    @property
    def law_of_arms(self) -> Any:
        """What an arm of which nothing is known pays, for `LatentBandit.with_arms`; None if no law was learned.

        Examples:
            >>> import lmab
            >>> bandit = lmab.random_bandit(2, 5, rng=0)
            >>> log = lmab.simulate(bandit, lmab.Uniform(5), n_sessions=300, horizon=4, rng=1)
            >>> estimate = lmab.fit(log, n_types=2, method=lmab.EM(prior="learned"), rng=2)
            >>> estimate.bandit.with_arms(["new"], law=estimate.law_of_arms).n_arms
            6
        """
        if self.learned is None:
            return None
        law = self.learned.centre.mean(axis=0)
        return law / law.sum() if law.ndim else float(law)

    @with_one_blas_thread
    def information(self, sessions: Sessions | Packed | None = None, *, backend: Any = None) -> Information:
        """Return the observed information about the bandit, including that of the prior (Louis' identity).

        The pass over a packed log runs on `backend`, as for `lmab.fit`, with the same bits.
        """
        there = self if sessions is None else self.with_log(sessions)
        with opened(backend) as passes:
            if self.factors is not None:
                from .traits.coordinates import traits_information

                return traits_information(there.require_log(), self.factors, self.bandit, passes.processor)
            log = there.require_log()
            if self.step is not None:
                from .categorical import CategoricalLog
                from .step_effects import information as with_step_effects

                assert isinstance(log, CategoricalLog)  # no other log is fitted with step effects
                return with_step_effects(log, self.bandit, there.arm_prior, passes.processor)
            if self.selection is not None:
                from .categorical import CategoricalLog
                from .exposure import information

                assert isinstance(log, CategoricalLog)  # no other log is fitted with a selection
                return information(log, self.bandit, self.selection, there.arm_prior, passes.processor)
            return log.information(self.bandit, there.arm_prior, passes.processor)

    def standard_errors(self, sessions: Sessions | Packed | None = None, *, backend: Any = None) -> StandardErrors:
        """Standard errors of the weights and means, from the observed information, which `backend` computes.

        An estimate from a file needs the `sessions` that were fitted.

        The errors hold for large logs and for the fitted number of types; they do not include the choice of this
        number. Weights of traits are given and have none. For a fit with `rank` they are computed without this
        constraint and so are rather too large.

        Examples:
            >>> import numpy as np, lmab
            >>> rng = np.random.default_rng(0)
            >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
            >>> sessions = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=2000, horizon=5, rng=rng)
            >>> lmab.fit(sessions, n_types=2, rng=rng).standard_errors().weights.round(2)
            array([0.01, 0.01])
        """
        return standard_errors(self.information(sessions, backend=backend))

    def __repr__(self) -> str:
        return (
            f"Estimate({self.bandit!r}, log-likelihood {self.log_likelihood:.4f}, BIC {self.bic:.4f}; {self.message})"
        )


def estimate_of(source: object) -> Estimate | None:
    """Return the estimate that is the `source` of a plan; None if the plan was made for another model."""
    if isinstance(source, SavedModel):
        return source.restored(Estimate.from_record)
    return source if isinstance(source, Estimate) else None


_PARTS: files.Makers = {
    "bandit": LatentBandit.from_record,
    **{
        part.__name__: part
        for part in (
            Starts,
            Curve,
            Bins,
            Check,
            Gain,
            Calibration,
            Replay,
            Fingerprint,
            Prior,
            Factors,
            Assumption,
            Assumptions,
            Selection,
            LogSummary,
            StepEffects,
            AddedComponents,
            ComparedCandidates,
        )
    },
}


def _observe(bandit: LatentBandit, sessions: Sessions | Packed, known_scale: bool) -> Log:
    """Return the log, encoded as for the fit of `bandit`."""
    from .families import observe  # Whoever loads a policy and plays it fits nothing.

    rewards = bandit.rewards
    scale = rewards.spread if known_scale else None
    log = observe(sessions, rewards=rewards.family, values=rewards.values, scale=scale)
    return log.with_letters() if bandit.has_informative_attrition else log


def finish(
    log: Log,
    bandit: LatentBandit,
    *,
    status: Status | str = Status.CONVERGED,
    message: str = "",
    starts: Starts | None = None,
    trace: Any = None,
) -> Estimate:
    """Return the `Estimate` of `bandit`, with which an estimator's `solve` ends.

    Args:
        log: the log of the request.
        bandit: the model that was found, with the arms of the log; without labels it gets those of the log.
        status: how the fit ended: "converged", "iteration limit", "unmatched" or "interrupted".
        message: what happened, in a sentence; empty: that of the status.
        starts: how many starts were drawn and finished, and how many reached the best solution; None: one of one.
        trace: the objective after each iteration, which never falls; None: the log-likelihood alone.

    Examples:
        >>> import lmab
        >>> bandit = lmab.random_bandit(2, 4, rng=0)
        >>> log = lmab.simulate(bandit, lmab.Uniform(4), n_sessions=200, horizon=3, rng=0)
        >>> encoded = lmab.fit(log, n_types=2, rng=0, check=False).require_log()
        >>> truth = lmab.estimation.finish(encoded, bandit)
        >>> truth.converged, truth.n_parameters
        (True, 9)
    """
    if bandit.arm_labels is None:
        bandit = replace(bandit, arm_labels=log.sessions.arm_labels)
    log_likelihood = log.log_likelihood(bandit)
    found = Status.named(status)
    return Estimate(
        bandit=bandit,
        log_likelihood=log_likelihood,
        n_parameters=log.n_parameters(bandit.n_types),
        status=found,
        message=message or found.sentence,
        trace=np.array([log_likelihood]) if trace is None else np.asarray(trace, dtype=np.float64),
        starts=Starts(1, 1, 1) if starts is None else starts,
        prior=0.0,
        encoded=log,
    )


_registry.register("estimate", Estimate)
