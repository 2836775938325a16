"""Check: how well a model predicts held-out sessions, as data that `cross_validation` makes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._html import calibration, card, count
from .._shapes import Array, Float, Integer
from ..checks import check_same_length


@dataclass(frozen=True)
class _Paired:
    """A mean over held-out sessions, with its paired standard error."""

    mean: float
    stderr: float

    @property
    def sure(self) -> bool:
        """Above zero by more than two standard errors."""
        return self.mean > 2 * self.stderr

    @property
    def likely(self) -> bool:
        """Above zero by more than one standard error."""
        return self.mean > self.stderr

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ± {self.stderr:.4f}"


@dataclass(frozen=True)
class Gain(_Paired):
    """Held-out log-likelihood of a session over a baseline, in nats, with its paired standard error."""

    @property
    def times(self) -> str:
        """How many times as likely a session is as under the baseline."""
        return f"{np.exp(min(self.mean, 700.0)):.3g}"


@dataclass(frozen=True, eq=False)
class Calibration:
    """Predicted reward, given the session so far, against what was paid."""

    predicted: Float[Array, "B"]  # mean prediction of each bin of about equally many steps
    observed: Float[Array, "B"]  # mean reward
    stderr: Float[Array, "B"]  # Standard error of the observed mean.
    n_steps: Integer[Array, "B"]
    slope: float  # Slope of what was paid beyond the arm's average on what was predicted beyond it: 1 is calibrated.
    slope_stderr: float  # by sessions

    def __post_init__(self) -> None:
        check_same_length("a calibration", self.predicted, self.observed, self.stderr, self.n_steps)


@dataclass(frozen=True)
class Replay(_Paired):
    """What the greedy policy earns more than popularity, among the arms that held-out sessions logged.

    In each session half of its arms are played, each once. No model needs to be believed, because every reward was
    paid; the arms that were logged must not depend on the session's own rewards.
    """

    n_sessions: int  # with a choice: at least two arms

    def __str__(self) -> str:
        verdict = "more than" if self.sure else "less than" if self.mean < -2 * self.stderr else "about as much as"
        return (
            f"Masked replay on {self.n_sessions:,} held-out sessions: choosing by the answers earns {verdict} the most "
            f"popular arms ({super().__str__()} per session). {self.beside}"
        )

    @property
    def beside(self) -> str:
        """The sentence on why this differs from the gain of a plan."""
        return (
            "It differs from the gain of a plan because it may choose only among half of the arms that each session "
            "logged and does not look ahead; it relies on no model, and holds if the logged arms did not depend on the "
            "session's own rewards."
        )


@dataclass(frozen=True, eq=False)
class Check:
    """What held-out sessions say about a model.

    Examples:
        >>> import numpy as np, lmab
        >>> from lmab.evaluation import diagnostics
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=5000, horizon=5, rng=rng)
        >>> diagnostics.check(log, n_types=2, rng=rng).verdict[:25]
        'There are types: a held-o'
    """

    n_types: int
    n_sessions: int  # held out
    log_likelihood: float  # per session
    over_one_type: Gain
    over_independent_arms: Gain
    calibration: Calibration
    over_generosity: Gain | None = None  # over sessions that like all arms more or less; None: not looked at
    over_traits: Gain | None = None  # Gain of types over continuous ones.
    replay: Replay | None = None  # None: no session leaves a choice
    n_factors: int | None = None  # alive in a traits model; None: types

    def plus(self, mean: float, stderr: float) -> Check:
        """The check of a model that predicts better by so much: it knows more before a session, or explains arms."""

        def more(one: Gain) -> Gain:
            return Gain(one.mean + mean, float(np.hypot(one.stderr, stderr)))

        return replace(
            self,
            log_likelihood=self.log_likelihood + mean,
            over_one_type=more(self.over_one_type),
            over_independent_arms=more(self.over_independent_arms),
            over_generosity=None if self.over_generosity is None else more(self.over_generosity),
            over_traits=None if self.over_traits is None else more(self.over_traits),
        )

    @property
    def agrees(self) -> bool:
        """Held-out sessions support the types: one type, unrelated arms and generosity alone predict them worse.

        That there is more than one type must be sure, and unrelated arms must predict worse by a standard error.
        Generosity explains the same differences between sessions in another way, and the better of the two is taken.
        """
        return self.over_one_type.sure and self.over_independent_arms.likely and not self._generous

    @property
    def refusal(self) -> str:
        """Why no gain is counted on, where the check does not agree."""
        return "one type was fitted" if self.n_types == 1 else "held-out sessions support no types"

    @property
    def _generous(self) -> bool:
        """Generosity alone predicts held-out sessions as well."""
        return self.over_generosity is not None and self.over_generosity.mean <= 0

    @property
    def better_by_degrees(self) -> bool:
        """Continuous types predict held-out sessions surely better than these types do."""
        return self.over_traits is not None and self.over_traits.mean < -2 * self.over_traits.stderr

    @property
    def sentences(self) -> tuple[str, ...]:
        """What else was looked at, each in a sentence."""
        said = []
        if self.better_by_degrees:
            said.append(
                "Continuous types predict held-out sessions better than these types do: try `lmab fit --traits`, or "
                "`method=lmab.Traits()`."
            )
        if self.replay is not None:
            said.append(str(self.replay))
        return tuple(said)

    @property
    def verdict(self) -> str:
        """The answer, with its number."""
        one, arms = self.over_one_type, self.over_independent_arms
        if self.n_types == 1:
            return "Not asked: a model of one type predicts the same for every session. Fit more types to see."
        if not one.sure:
            return (
                f"Nothing found: {self._who} predict held-out sessions no better than one type does. More or longer "
                f"sessions may show more; until then play the best arms."
            )
        if not arms.likely:
            return (
                f"Little: {self._who} predict held-out sessions better than one type does, but no better than if arms "
                f"had nothing to do with each other. Longer sessions may show more; until then play the best arms."
            )
        if self._generous:
            return (
                f"Generosity alone: sessions like all arms more or less, and {self._who} predict held-out sessions no "
                f"better than that. No gain over the most popular arms was demonstrated."
            )
        return (
            f"There are types: a held-out session is {one.times} times as likely as under one type and {arms.times} "
            f"times as likely as under unrelated arms; of each predicted difference "
            f"{min(self.calibration.slope, 1):.0%} is real."
        )

    @property
    def details(self) -> dict[str, str]:
        """What stands behind the verdict: gains of held-out log-likelihood per session, with standard errors."""
        rows = {
            "over one type": str(self.over_one_type),
            "over unrelated arms": str(self.over_independent_arms),
        }
        if self.over_generosity is not None:
            rows["over generosity alone"] = str(self.over_generosity)
        if self.over_traits is not None:
            rows["over traits"] = str(self.over_traits)
        rows["predicted differences that are real"] = (
            f"{self.calibration.slope:.0%} ± {self.calibration.slope_stderr:.0%}"
        )
        return rows

    @property
    def _who(self) -> str:
        if self.n_factors is None:
            return f"{self.n_types} types"
        return "traits without a factor" if self.n_factors == 0 else f"traits with {count(self.n_factors, 'factor')}"

    def _repr_html_(self) -> str:
        found = self.calibration
        rows = {"verdict": self.verdict} | self.details
        rows |= {f"and {i}": sentence for i, sentence in enumerate(self.sentences, 1)}
        return card(f"Check on {self.n_sessions:,} held-out sessions", rows) + calibration(
            found.predicted, found.observed, found.stderr, standalone=True
        )
