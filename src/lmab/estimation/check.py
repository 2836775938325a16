"""Check: how well a model predicts held-out sessions, as data that `lmab.diagnostics.check` makes."""

from __future__ import annotations

from dataclasses import dataclass

from .._shapes import Array, Float, Integer
from ..checks import check_same_length


@dataclass(frozen=True)
class Gain:
    """Held-out log-likelihood of a session over a baseline, in nats, with its paired standard error."""

    mean: float
    stderr: float

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
        if not one.sure:
            return (
                f"Nothing found: {self.n_contexts} types predict held-out sessions no better than one type does "
                f"({one} nats per session). More or longer sessions may show more; until then play the best arms."
            )
        if not arms.sure:
            return (
                f"Little: held-out sessions are predicted better than by one type ({one} nats per session), but not "
                f"better than if arms had nothing to do with each other ({arms})."
            )
        return (
            f"There is: held-out sessions are predicted better than by one type by {one} nats per session, and better "
            f"than by unrelated arms by {arms}; of each predicted difference {self.calibration.slope:.0%} is real."
        )
