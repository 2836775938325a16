"""Check: how well a model predicts held-out sessions, computed by `cross_validation`."""

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
        """Whether the mean is above zero by more than two standard errors."""
        return self.mean > 2 * self.stderr

    @property
    def likely(self) -> bool:
        """Whether the mean is above zero by more than one standard error."""
        return self.mean > self.stderr

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ± {self.stderr:.4f}"

    @property
    def brief(self) -> str:
        """The mean and its standard error, with two significant digits of the latter."""
        digits = 3 if self.stderr <= 0 else min(max(1 - int(np.floor(np.log10(self.stderr))), 0), 4)
        return f"{round(self.mean, digits) + 0.0:+.{digits}f} ± {self.stderr:.{digits}f}"


@dataclass(frozen=True)
class Gain(_Paired):
    """Held-out log-likelihood per session over a baseline, in nats, with its paired standard error."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """Predicted rewards, given the session so far, compared with observed rewards."""

    predicted: Float[Array, "B"]  # mean prediction of each bin; bins have about equally many steps
    observed: Float[Array, "B"]  # mean reward
    stderr: Float[Array, "B"]  # standard error of the observed mean
    n_steps: Integer[Array, "B"]
    slope: float  # of observed on predicted rewards, both less the mean of the arm; 1 is calibrated
    slope_stderr: float  # by sessions

    def __post_init__(self) -> None:
        check_same_length("a calibration", self.predicted, self.observed, self.stderr, self.n_steps)


_PLAN_GAINS = (
    "The gain of a plan can be larger, because a plan looks ahead and may choose any arm, not only one half of the "
    "arms logged in a session; but it relies on the model."
)
_REPLAY_ASSUMES = (
    "The replay relies on no model, provided that the logged arms did not depend on the rewards of their session."
)


@dataclass(frozen=True)
class Replay(_Paired):
    """Gain of the greedy policy over popularity, among the arms that held-out sessions logged.

    In each session the policy plays half of the logged arms, each once. The result relies on no model, because every
    reward was observed; the logged arms must not depend on the rewards of their session.
    """

    n_sessions: int  # with a choice: at least two arms

    def __str__(self) -> str:
        verdict = "more than" if self.sure else "less than" if self.mean < -2 * self.stderr else "about as much as"
        return (
            f"Masked replay on {self.n_sessions:,} held-out sessions: the greedy policy of the model earns {verdict} "
            f"popularity ({self.brief} per session)."
        )


@dataclass(frozen=True, eq=False)
class Check:
    """Comparison of a model with simpler models on held-out sessions.

    Examples:
        >>> import numpy as np, lmab
        >>> from lmab.evaluation import diagnostics
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> log = lmab.simulate(bandit, lmab.Uniform(2), n_sessions=5000, horizon=5, rng=rng)
        >>> diagnostics.check(log, n_types=2, rng=rng).verdict[:28]
        'Latent types are supported: '
    """

    n_types: int
    n_sessions: int  # held out
    log_likelihood: float  # per session
    over_one_type: Gain
    over_independent_arms: Gain
    calibration: Calibration
    over_generosity: Gain | None = None  # over a model with one response level per session; None: not fitted
    over_traits: Gain | None = None  # over continuous latent traits
    replay: Replay | None = None  # None: no session has a choice of arms
    n_factors: int | None = None  # active factors of a traits model; None: types

    def plus(self, mean: float, stderr: float) -> Check:
        """Return the check of a model with a higher log-likelihood, such as one that uses features or exposure."""

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
        """Whether held-out sessions support the types.

        The types must predict held-out sessions better than one type by two standard errors, better than independent
        arms by one standard error, and better than one response level per session. The last model explains the same
        differences between sessions in another way, so the better of the two is selected.
        """
        return self.over_one_type.sure and self.over_independent_arms.likely and not self._generous

    @property
    def refusal(self) -> str:
        """Why no gain is claimed if the check does not support the types."""
        return "one type was fitted" if self.n_types == 1 else "held-out sessions do not support latent types"

    @property
    def _generous(self) -> bool:
        """Whether one response level per session predicts held-out sessions as well."""
        return self.over_generosity is not None and self.over_generosity.mean <= 0

    @property
    def better_by_degrees(self) -> bool:
        """Whether continuous traits predict held-out sessions better than these types by two standard errors."""
        return self.over_traits is not None and self.over_traits.mean < -2 * self.over_traits.stderr

    @property
    def sentences(self) -> tuple[str, ...]:
        """The other comparisons that were made, each in a sentence."""
        found = []
        if self.better_by_degrees:
            found.append(
                "Continuous latent traits predict held-out sessions better than these types: try `lmab fit --traits` "
                "(in Python `method=lmab.Traits()`)."
            )
        if self.replay is not None:
            found.append(self.replay_sentence)
        return tuple(found)

    @property
    def replay_sentence(self) -> str:
        """Result of the masked replay, and why it differs from the gain of a plan that uses the types; may be empty."""
        if self.replay is None:
            return ""
        differs = f"{_PLAN_GAINS} " if self.agrees else ""  # without support the plan is a fixed choice
        return f"{self.replay} {differs}{_REPLAY_ASSUMES}"

    @property
    def verdict(self) -> str:
        """Whether held-out sessions support latent types, with the comparison that decides."""
        one, arms, model = self.over_one_type, self.over_independent_arms, self._model
        if self.n_types == 1:
            return (
                "Latent types were not tested: a model with one type predicts the same rewards for every session. Fit "
                "two or more types to test them."
            )
        if not one.sure:
            return (
                f"No latent types found: {model} do not predict held-out sessions better than one type (log-likelihood "
                f"per session {one.brief}). More or longer sessions may reveal types; until then, play the arms with "
                f"the highest mean rewards."
            )
        if not arms.likely:
            return (
                f"Latent types are not supported: {model} predict held-out sessions better than one type, but not "
                f"better than independent arms (log-likelihood per session {arms.brief}), so rewards of one arm do not "
                f"help to choose another. Longer sessions may reveal types; until then, play the arms with the highest "
                f"mean rewards."
            )
        if self._generous:
            return (
                f"Latent types are not supported: sessions differ in their overall level of reward, and {model} "
                f"predict held-out sessions no better than this level alone. No gain over the most popular arms was "
                f"demonstrated."
            )
        return (
            f"Latent types are supported: held-out log-likelihood per session {one.brief} over one type and "
            f"{arms.brief} over independent arms (± standard error); calibration slope of predicted differences "
            f"{self._slope} (1 is calibrated)."
        )

    @property
    def _slope(self) -> str:
        return f"{self.calibration.slope:.2f} ± {self.calibration.slope_stderr:.2f}"

    @property
    def details(self) -> dict[str, str]:
        """The comparisons behind the verdict: gains of held-out log-likelihood per session, and the calibration."""
        gains = {
            "over one type": self.over_one_type,
            "over independent arms": self.over_independent_arms,
            "over one response level per session": self.over_generosity,
            "over latent traits": self.over_traits,
        }
        rows = {name: str(gain) for name, gain in gains.items() if gain is not None}
        return rows | {"calibration slope": self._slope}

    @property
    def _model(self) -> str:
        """The fitted model in words."""
        if self.n_factors is None:
            return f"{self.n_types} types"
        return "traits without a factor" if self.n_factors == 0 else f"traits with {count(self.n_factors, 'factor')}"

    def _repr_html_(self) -> str:
        found = self.calibration
        rows = {"verdict": self.verdict} | self.details
        rows |= {f"note {i}": sentence for i, sentence in enumerate(self.sentences, 1)}
        return card(f"Check on {self.n_sessions:,} held-out sessions", rows) + calibration(
            found.predicted, found.observed, found.stderr, standalone=True
        )
