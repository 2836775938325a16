"""Check: how well a model predicts held-out sessions, as data that `lmab.diagnostics.check` makes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._charts import calibration
from .._notebook import card
from .._shapes import Array, Float, Integer
from ..checks import check_same_length


@dataclass(frozen=True)
class Gain:
    """Held-out log-likelihood of a session over a baseline, in nats, with its paired standard error."""

    mean: float
    stderr: float

    @property
    def times(self) -> str:
        """How many times as likely a session is as under the baseline."""
        return f"{np.exp(min(self.mean, 700.0)):.3g}"

    @property
    def sure(self) -> bool:
        """Above zero by more than two standard errors."""
        return self.mean > 2 * self.stderr

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ± {self.stderr:.4f}"


@dataclass(frozen=True, eq=False)
class Calibration:
    """Predicted reward, given the session so far, against what was paid."""

    predicted: Float[Array, "B"]  # mean prediction of each bin of about equally many steps
    observed: Float[Array, "B"]  # mean reward
    stderr: Float[Array, "B"]  # of the observed mean
    n_steps: Integer[Array, "B"]
    slope: float  # of what was paid beyond the arm's average on what was predicted beyond it: 1 is calibrated
    slope_stderr: float  # by sessions

    def __post_init__(self) -> None:
        check_same_length("a calibration", self.predicted, self.observed, self.stderr, self.n_steps)


@dataclass(frozen=True, eq=False)
class Check:
    """What held-out sessions say about a model.

    Examples:
        >>> import numpy as np, lmab
        >>> from lmab import diagnostics
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> log = lmab.simulate(bandit, lmab.Uniform(2), n_episodes=5000, horizon=5, rng=rng)
        >>> diagnostics.check(log, n_contexts=2, rng=rng).verdict[:25]
        'There is: held-out sessio'
    """

    n_contexts: int
    n_episodes: int  # held out
    log_likelihood: float  # per session
    over_one_type: Gain
    over_independent_arms: Gain
    calibration: Calibration

    @property
    def agrees(self) -> bool:
        """Held-out sessions confirm the types: one type and unrelated arms both predict them worse."""
        return self.over_one_type.sure and self.over_independent_arms.sure

    @property
    def verdict(self) -> str:
        """The answer, with its number."""
        one, arms = self.over_one_type, self.over_independent_arms
        if self.n_contexts == 1:
            return "Not asked: a model of one type predicts the same for every session. Fit more types to see."
        if not one.sure:
            return (
                f"Nothing found: {self.n_contexts} types predict held-out sessions no better than one type does "
                f"(log-likelihood {one} per session). More or longer sessions may show more; until then play the best "
                f"arms."
            )
        if not arms.sure:
            return (
                f"Little: held-out sessions are predicted better than by one type (a session is {one.times} times as "
                f"likely, log-likelihood {one}), but not better than if arms had nothing to do with each other "
                f"({arms})."
            )
        return (
            f"There is: held-out sessions are predicted better than by one type (a session is {one.times} times as "
            f"likely, log-likelihood {one}), and better than by unrelated arms ({arms.times} times, {arms}); of each "
            f"predicted difference {self.calibration.slope:.0%} is real."
        )

    def _repr_html_(self) -> str:
        found = self.calibration
        rows = {
            "verdict": self.verdict,
            "against one type": f"log-likelihood {self.over_one_type} per session",
            "against unrelated arms": f"log-likelihood {self.over_independent_arms} per session",
            "predicted differences that are real": f"{found.slope:.0%} ± {found.slope_stderr:.0%}",
        }
        return card(f"Check on {self.n_episodes:,} held-out sessions", rows) + calibration(
            found.predicted, found.observed, found.stderr, standalone=True
        )
