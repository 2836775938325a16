"""lmab: episodic latent bandits, from session logs to a provably near-optimal session policy."""

__version__ = "0.2.0"

import sys as _sys

from . import _moved as _moved
from . import testing as testing
from .data import Packed as Packed
from .data import Sessions as Sessions
from .data import pack as pack
from .estimation import EM as EM
from .estimation import Estimate as Estimate
from .estimation import MomentMatching as MomentMatching
from .estimation import TensorDecomposition as TensorDecomposition
from .estimation import Traits as Traits
from .estimation import fit as fit
from .evaluation import Certificate as Certificate
from .evaluation import Evaluation as Evaluation
from .evaluation import certify as certify
from .evaluation import diagnostics as diagnostics
from .evaluation import evaluate as evaluate
from .learning import DirectMLE as DirectMLE
from .learning import learn as learn
from .loading import load as load
from .model import LatentBandit as LatentBandit
from .model import belief as belief
from .model import random_bandit as random_bandit
from .moments import Design as Design
from .moments import Subspace as Subspace
from .moments import design as design
from .moments import subspace as subspace
from .planning import QMDP as QMDP
from .planning import Bounds as Bounds
from .planning import Certified as Certified
from .planning import Clock as Clock
from .planning import Exact as Exact
from .planning import Lookahead as Lookahead
from .planning import Plan as Plan
from .planning import Planner as Planner
from .planning import PointBased as PointBased
from .planning import Problem as Problem
from .planning import plan as plan
from .policies import MUCB as MUCB
from .policies import BeliefPolicy as BeliefPolicy
from .policies import Exploring as Exploring
from .policies import FixedSequence as FixedSequence
from .policies import Greedy as Greedy
from .policies import Policy as Policy
from .policies import State as State
from .policies import Stationary as Stationary
from .policies import Thompson as Thompson
from .policies import Uniform as Uniform
from .simulation import Environment as Environment
from .simulation import Simulator as Simulator
from .simulation import simulate as simulate

_moved.install()
if "gymnasium" in _sys.modules:  # then registering the environment costs nothing
    from . import gym as gym


def __getattr__(name: str) -> object:
    """Modules that moved, for programs that say `lmab.sessions` without importing it."""
    if name in _moved.MOVED:
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
