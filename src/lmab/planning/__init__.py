"""Planning: from a latent bandit and a horizon to a policy with bounds."""

from .certified import Certified as Certified
from .clock import Bounds as Bounds
from .clock import Clock as Clock
from .compact import CompactPolicy as CompactPolicy
from .exact import Exact as Exact
from .exact import ExactPolicy as ExactPolicy
from .first_steps import BRANCHES as BRANCHES
from .first_steps import Branch as Branch
from .first_steps import Tree as Tree
from .first_steps import grow as grow
from .graph import PolicyGraph as PolicyGraph
from .lookahead import Lookahead as Lookahead
from .lookahead import LookaheadPolicy as LookaheadPolicy
from .no_repeats import NoRepeatsPolicy as NoRepeatsPolicy
from .no_repeats_backups import UsedPlans as UsedPlans
from .no_repeats_backups import at_children as at_children
from .no_repeats_exact import ExactNoRepeatsPolicy as ExactNoRepeatsPolicy
from .no_repeats_vectors import NoRepeatsVectorPolicy as NoRepeatsVectorPolicy
from .planner import Planner as Planner
from .planner import plan as plan
from .point_based import PointBased as PointBased
from .problem import Problem as Problem
from .qmdp import QMDP as QMDP
from .result import Plan as Plan
from .result import policy_of as policy_of
from .vectors import VectorPolicy as VectorPolicy
