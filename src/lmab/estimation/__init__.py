"""Episodes -> Estimate: fit a latent bandit to a log."""

from .em import EM as EM
from .estimator import estimate as estimate
from .estimator import observe as observe
from .held_out import Calibration as Calibration
from .held_out import Check as Check
from .held_out import Gain as Gain
from .moment_matching import MomentMatching as MomentMatching
from .moment_matching import reconstruct as reconstruct
from .observations import Observations as Observations
from .passes import Crew as Crew
from .result import Curve as Curve
from .result import Estimate as Estimate
from .result import Estimator as Estimator
from .result import Observer as Observer
from .result import Progress as Progress
from .result import Starts as Starts
from .tensor_decomposition import TensorDecomposition as TensorDecomposition
