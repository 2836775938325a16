"""Estimator, Request and Progress: the protocol of estimators, what they are asked, and what they report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..model import LatentBandit
from .observations import Observations
from .result import Estimate


@dataclass(frozen=True)
class Progress:
    """What a long fit tells its observer."""

    stage: str  # "starts", "climb", "polish", or "3 types: climb" and the like
    iteration: int
    max_iterations: int
    log_likelihood: float  # of the best so far (plus log prior, where there is one)


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

    observations: Observations  # the encoded log
    n_types: int  # 0 where the method has its own number
    rng: np.random.Generator
    progress: StopOnce  # to be told; once it answers True, the best so far is wanted
    backend: Any = None  # where passes run; None: threads
    start: LatentBandit | None = None  # a model to start from, beside those that the method finds itself


class Estimator(ABC):
    """A way to fit a bandit to a log: `EM`, `Traits`, `MomentMatching`, `TensorDecomposition`, or your own.

    A subclass is configuration with one method, `solve`.
    """

    @property
    def forgiving(self) -> bool:
        """Whether a type too many costs next to nothing, so that the choice of their number may err high."""
        return False

    @property
    def devices(self) -> tuple[str, ...]:
        """Where its passes can run besides the CPU."""
        return ()

    @property
    def takes_start(self) -> bool:
        """Whether it can start from a model that it is given."""
        return False

    @property
    def own_number(self) -> bool:
        """Whether the method itself knows how many types there are, so that none may be asked for."""
        return False

    @abstractmethod
    def solve(self, request: Request) -> Estimate:
        """The estimate that is asked for."""

    def fit(
        self,
        observations: Observations,
        *,
        n_types: int = 0,
        rng: np.random.Generator,
        progress: Observer | None = None,
        backend: Any = None,
        start: LatentBandit | None = None,
    ) -> Estimate:
        """Fit `n_types` types to an encoded log; unlike `lmab.fit` this warns of nothing."""
        watch = progress if isinstance(progress, StopOnce) else StopOnce(progress)
        return self.solve(Request(observations, n_types, rng, watch, backend, start))
