"""Make the Estimate of a method whose objective is not the likelihood."""

from __future__ import annotations

import numpy as np

from ..errors import Status
from ..model import LatentBandit
from .observations import Observations
from .result import Estimate, Starts


def finish(
    observations: Observations,
    bandit: LatentBandit,
    *,
    status: Status,
    message: str,
    starts: Starts,
) -> Estimate:
    """The Estimate of `bandit`; its likelihood is only reported."""
    log_likelihood = observations.log_likelihood(bandit)
    return Estimate(
        bandit=bandit,
        log_likelihood=log_likelihood,
        n_parameters=observations.n_parameters(bandit.n_types),
        status=status,
        message=message,
        trace=np.array([log_likelihood]),
        starts=starts,
        prior=0.0,
        observations=observations,
    )
