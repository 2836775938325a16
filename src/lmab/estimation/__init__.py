"""Estimation: fit a latent bandit to a log."""

from .backends import require_backend as require_backend
from .check import Calibration as Calibration
from .check import Check as Check
from .check import Gain as Gain
from .coordinates import contrasts as contrasts
from .em import EM as EM
from .encoding import FAMILIES as FAMILIES
from .encoding import observe as observe
from .estimator import estimate as estimate
from .gibbs import Draws as Draws
from .gibbs import Schedule as Schedule
from .gibbs import draw_models as draw_models
from .information import Information as Information
from .moment_matching import MomentMatching as MomentMatching
from .moment_matching import reconstruct as reconstruct
from .observations import Observations as Observations
from .prior import Prior as Prior
from .request import Estimator as Estimator
from .request import Observer as Observer
from .request import Progress as Progress
from .request import Request as Request
from .result import Curve as Curve
from .result import Estimate as Estimate
from .result import Starts as Starts
from .sweeping import sweep as sweep
from .tensor_decomposition import TensorDecomposition as TensorDecomposition
