"""Policies: classes that choose the next arm from the session so far."""

from .histories import NONE as NONE
from .histories import Decisions as Decisions
from .histories import Level as Level
from .histories import walk as walk
from .policy import MANY as MANY
from .policy import Compact as Compact
from .policy import CompactState as CompactState
from .policy import Policy as Policy
from .policy import State as State
from .policy import best_allowed as best_allowed
from .policy import check_horizon as check_horizon
from .policy import restore_policy as restore_policy
from .policy import unplayed as unplayed
from .small import MUCB as MUCB
from .small import BeliefPolicy as BeliefPolicy
from .small import FixedSequence as FixedSequence
from .small import Greedy as Greedy
from .small import Stationary as Stationary
from .small import Thompson as Thompson
from .small import Uniform as Uniform
from .wrappers import Exploring as Exploring
from .wrappers import Relabelled as Relabelled
