"""Estimate: a fitted bandit with everything one needs to know before trusting it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .._notebook import card, percent
from .._shapes import Array, Float
from ..data import Episodes
from ..errors import InvalidArgument
from ..model import Bins, LatentBandit, belief
from ..status import Status
from .information import Information
from .observations import Observations
from .passes import Threads
from .prior import START, Prior
from .standard_errors import StandardErrors, standard_errors


@dataclass(frozen=True, eq=False)
class Starts:
    """What became of the starts."""

    drawn: int
    finished: int  # climbed to the end
    best: int  # of the finished ones, how many reached the best solution found

    def __str__(self) -> str:
        dropped = f", {self.drawn - self.finished} dropped early" if self.drawn > self.finished else ""
        return f"{self.best} of {self.finished} starts reached the best solution{dropped}"


@dataclass(frozen=True, eq=False)
class Curve:
    """Held-out log-likelihood per episode for each number of contexts tried."""

    n_contexts: tuple[int, ...]
    log_likelihood: Float[Array, "K"]  # mean over held-out episodes
    gain: Float[Array, "K"]  # over the number of contexts before; the first is 0
    stderr: Float[Array, "K"]  # of that gain (paired); the first is 0
    chosen: int

    def __str__(self) -> str:
        tried = ", ".join(f"{n}: {value:.4f}" for n, value in zip(self.n_contexts, self.log_likelihood, strict=True))
        return f"{self.chosen} contexts chosen by held-out log-likelihood per episode ({tried})"


@dataclass(frozen=True, eq=False)
class Estimate:
    """A bandit fitted to a log.

    Examples:
        >>> import numpy as np, lmab
        >>> rng = np.random.default_rng(0)
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
        >>> episodes = lmab.simulate(bandit, lmab.Uniform(2), n_episodes=2000, horizon=5, rng=rng)
        >>> estimate = lmab.estimate(episodes, n_contexts=2, rng=rng)
        >>> estimate.converged, estimate.n_parameters
        (True, 5)
        >>> bool(estimate.bandit.distance(bandit) < 0.1)
        True
    """

    bandit: LatentBandit
    log_likelihood: float  # total, natural logarithm, without the prior
    n_parameters: int
    status: Status  # CONVERGED, ITERATION_LIMIT or INTERRUPTED
    message: str  # what happened, in a sentence or more
    trace: Float[Array, "T"]  # log-likelihood (plus log prior) of the best start, map by map; never falls
    starts: Starts
    prior: float | str  # as the method was asked: pseudo-counts per context and arm, or "learned"
    observations: Observations = field(repr=False)  # the log, as the fit saw it
    bins: Bins | None = None  # how continuous rewards were cut before fitting; a policy of `bandit` sees cut rewards
    curve: Curve | None = None  # where the number of contexts was chosen
    learned: Prior | None = field(default=None, repr=False)  # of every arm, where the prior was learned

    @property
    def episodes(self) -> Episodes:
        """The log."""
        return self.observations.episodes

    @property
    def converged(self) -> bool:
        """Whether the best start, the one that is returned, converged."""
        return self.status is Status.CONVERGED

    @property
    def n_contexts(self) -> int:
        return self.bandit.n_contexts

    @property
    def bic(self) -> float:
        """Schwarz's criterion, with the episodes as the independent observations; lower is better."""
        return -2 * self.log_likelihood + float(np.log(len(self.episodes))) * self.n_parameters

    @property
    def aic(self) -> float:
        """Akaike's criterion; lower is better."""
        return -2 * self.log_likelihood + 2 * self.n_parameters

    def posterior(self, episodes: Episodes | None = None) -> Float[Array, "N M"]:
        """Probability of each context given each whole episode, by default of the log that was fitted."""
        episodes = self.episodes if episodes is None else episodes
        if episodes.n_arms > self.bandit.n_arms:
            raise InvalidArgument(f"episodes must have at most {self.bandit.n_arms} arms, got {episodes.n_arms}")
        return belief.posterior(self.bandit, episodes)

    def _repr_html_(self) -> str:
        weights = ", ".join(percent(weight) for weight in np.sort(self.bandit.weights)[:-9:-1])
        rows = {
            "contexts": f"{self.n_contexts}: {weights}",
            "log-likelihood": f"{self.log_likelihood:.4f} of {len(self.episodes)} episodes",
            "BIC": f"{self.bic:.2f} ({self.n_parameters} parameters)",
            "status": self.message,
        }
        return card("Estimate", rows)

    @property
    def arm_prior(self) -> Prior:
        """The prior of every arm, as the fit used it."""
        if self.learned is not None:
            return self.learned
        return self.observations.prior(START if isinstance(self.prior, str) else self.prior)

    def information(self) -> Information:
        """The observed information about the bandit, that of the prior included (Louis' identity)."""
        with Threads() as passes:
            return self.observations.information(self.bandit, self.arm_prior, passes)

    def standard_errors(self) -> StandardErrors:
        """Standard errors of the weights and means, from the observed information.

        They hold for large logs and for the model as fitted: not for the choice of the number of contexts. Of a fit
        with `rank` they are those without that constraint, so rather too large.

        Examples:
            >>> import numpy as np, lmab
            >>> rng = np.random.default_rng(0)
            >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.2, 0.7]])
            >>> episodes = lmab.simulate(bandit, lmab.Uniform(2), n_episodes=2000, horizon=5, rng=rng)
            >>> lmab.estimate(episodes, n_contexts=2, rng=rng).standard_errors().weights.round(2)
            array([0.01, 0.01])
        """
        return standard_errors(self.information())

    def __repr__(self) -> str:
        return (
            f"Estimate({self.bandit!r}, log-likelihood {self.log_likelihood:.4f}, BIC {self.bic:.4f}; {self.message})"
        )
