"""Episodes -> Estimate: fit a latent bandit to a log."""

from .em import EM as EM
from .fitting import estimate as estimate
from .fitting import observe as observe
from .moment_matching import MomentMatching as MomentMatching
from .result import Curve as Curve
from .result import Estimate as Estimate
from .result import Method as Method
from .result import Observer as Observer
from .result import Progress as Progress
from .result import Starts as Starts
from .tensor import TensorDecomposition as TensorDecomposition
