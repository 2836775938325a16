"""Policies: classes that choose the next arm from the session so far."""

from .belief_policy import BeliefPolicy as BeliefPolicy
from .choosing import best_allowed as best_allowed
from .choosing import unplayed as unplayed
from .compact import MANY as MANY
from .compact import Compact as Compact
from .compact import CompactState as CompactState
from .compact import Remembering as Remembering
from .exploring import Exploring as Exploring
from .histories import NONE as NONE
from .histories import Decisions as Decisions
from .histories import Level as Level
from .histories import walk as walk
from .policy import Policy as Policy
from .policy import check_horizon as check_horizon
from .policy import restore_policy as restore_policy
from .relabelled import Relabelled as Relabelled
from .small import MUCB as MUCB
from .small import FixedSequence as FixedSequence
from .small import Greedy as Greedy
from .small import Stationary as Stationary
from .small import Thompson as Thompson
from .small import Uniform as Uniform
from .state import State as State
