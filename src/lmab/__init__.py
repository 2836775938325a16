"""lmab: episodic latent bandits, from session logs to a provably near-optimal session policy."""

__version__ = "0.1.0"

import sys as _sys

from .certificate import Certificate as Certificate
from .certificate import certify as certify
from .coreset import Design as Design
from .coreset import design as design
from .episodes import Episodes as Episodes
from .estimation import EM as EM
from .estimation import Estimate as Estimate
from .estimation import MomentMatching as MomentMatching
from .estimation import TensorDecomposition as TensorDecomposition
from .estimation import estimate as estimate
from .evaluation import Evaluation as Evaluation
from .evaluation import evaluate as evaluate
from .instances import random_bandit as random_bandit
from .learning import EDMLE as EDMLE
from .learning import LUCRL as LUCRL
from .learning import UCB as UCB
from .learning import DirectMLE as DirectMLE
from .learning import EDMoments as EDMoments
from .learning import Exploration as Exploration
from .learning import Genie as Genie
from .learning import HistoryUCBVI as HistoryUCBVI
from .learning import Learned as Learned
from .learning import Learner as Learner
from .learning import Run as Run
from .learning import Tensor as Tensor
from .learning import learn as learn
from .loading import load as load
from .model import LatentBandit as LatentBandit
from .moments import Subspace as Subspace
from .moments import subspace as subspace
from .planning import QMDP as QMDP
from .planning import Certified as Certified
from .planning import Exact as Exact
from .planning import Lookahead as Lookahead
from .planning import Plan as Plan
from .planning import PointBased as PointBased
from .planning import plan as plan
from .policy import Policy as Policy
from .simulation import Environment as Environment
from .simulation import Simulator as Simulator
from .simulation import simulate as simulate
from .small_policies import MUCB as MUCB
from .small_policies import FixedSequence as FixedSequence
from .small_policies import Greedy as Greedy
from .small_policies import Stationary as Stationary
from .small_policies import Thompson as Thompson
from .small_policies import Uniform as Uniform

if "gymnasium" in _sys.modules:  # then registering the environment costs nothing
    from . import gym as gym
