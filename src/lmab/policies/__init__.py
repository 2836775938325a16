"""Policies: what to play next, given the session so far."""

from .histories import NONE as NONE
from .histories import Decisions as Decisions
from .histories import Level as Level
from .histories import walk as walk
from .policy import BeliefPolicy as BeliefPolicy
from .policy import Policy as Policy
from .policy import State as State
from .policy import best_allowed as best_allowed
from .policy import restore_policy as restore_policy
from .small import MUCB as MUCB
from .small import FixedSequence as FixedSequence
from .small import Greedy as Greedy
from .small import Stationary as Stationary
from .small import Thompson as Thompson
from .small import Uniform as Uniform
