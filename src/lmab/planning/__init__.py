"""Planning: from a latent bandit and a horizon to a policy with bounds."""

from .certified import Certified as Certified
from .exact import Exact as Exact
from .exact import ExactPolicy as ExactPolicy
from .lookahead import QMDP as QMDP
from .lookahead import Lookahead as Lookahead
from .lookahead import LookaheadPolicy as LookaheadPolicy
from .once.exact import ExactOncePolicy as ExactOncePolicy
from .once.lookahead import OnceLookaheadPolicy as OnceLookaheadPolicy
from .once.policy import OnceVectorPolicy as OnceVectorPolicy
from .plan import Planner as Planner
from .plan import plan as plan
from .point_based import PointBased as PointBased
from .policies import PolicyGraph as PolicyGraph
from .policies import VectorPolicy as VectorPolicy
from .problem import Bounds as Bounds
from .problem import Clock as Clock
from .problem import Plan as Plan
from .problem import Problem as Problem
from .problem import policy_of as policy_of
