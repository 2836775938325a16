"""Estimation: fit a latent bandit to a log."""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from ..paper.moment_matching import MomentMatching as MomentMatching
    from ..paper.tensor_decomposition import TensorDecomposition as TensorDecomposition
    from .assumptions import Assumption as Assumption
    from .check import Calibration as Calibration
    from .check import Check as Check
    from .check import Gain as Gain
    from .check import Replay as Replay
    from .em import EM as EM
    from .fitted_components import Candidate as Candidate
    from .fitted_components import FittedComponent as FittedComponent
    from .log import Prior as Prior
    from .result import Capabilities as Capabilities
    from .result import Curve as Curve
    from .result import Estimate as Estimate
    from .result import Estimator as Estimator
    from .result import Progress as Progress
    from .result import Request as Request
    from .result import Starts as Starts
    from .result import estimate_of as estimate_of
    from .result import finish as finish
    from .traits.surface import Factors as Factors
    from .traits.traits import Traits as Traits

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "..paper.moment_matching": "MomentMatching",
        "..paper.tensor_decomposition": "TensorDecomposition",
        ".assumptions": "Assumption",
        ".check": "Calibration Check Gain Replay",
        ".em": "EM",
        ".fitted_components": "Candidate FittedComponent",
        ".log": "Prior",
        ".result": "Capabilities Curve Estimate Estimator Progress Request Starts estimate_of finish",
        ".traits.surface": "Factors",
        ".traits.traits": "Traits",
    },
)
