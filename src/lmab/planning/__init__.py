"""Planning: LatentBandit x horizon -> Plan."""

from .certified import Certified as Certified
from .exact import Exact as Exact
from .exact import ExactPolicy as ExactPolicy
from .graph import PolicyGraph as PolicyGraph
from .lookahead import Lookahead as Lookahead
from .lookahead import LookaheadPolicy as LookaheadPolicy
from .once import OncePolicy as OncePolicy
from .once_exact import OnceExactPolicy as OnceExactPolicy
from .planner import plan as plan
from .point_based import PointBased as PointBased
from .qmdp import QMDP as QMDP
from .result import Bounds as Bounds
from .result import Plan as Plan
from .tree import Branch as Branch
from .tree import Tree as Tree
from .vectors import VectorPolicy as VectorPolicy
