"""Policies: classes that choose the next arm from the session so far."""

from typing import TYPE_CHECKING

from .._doors import door

if TYPE_CHECKING:
    from .policy import Compact as Compact
    from .policy import Policy as Policy
    from .policy import State as State
    from .policy import best_allowed as best_allowed
    from .ranking import Ranking as Ranking
    from .small import MUCB as MUCB
    from .small import BeliefPolicy as BeliefPolicy
    from .small import Greedy as Greedy
    from .small import Thompson as Thompson
    from .small import Uniform as Uniform
    from .wrappers import Exploring as Exploring
    from .wrappers import PolicyWrapper as PolicyWrapper
    from .wrappers import Relabelled as Relabelled

__getattr__, __dir__, __all__ = door(__name__)
