"""Policies: classes that choose the next arm from the session so far."""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from .belief_policies import MUCB as MUCB
    from .belief_policies import BeliefPolicy as BeliefPolicy
    from .belief_policies import Greedy as Greedy
    from .belief_policies import Thompson as Thompson
    from .belief_policies import Uniform as Uniform
    from .policy import Compact as Compact
    from .policy import Policy as Policy
    from .policy import State as State
    from .policy import best_allowed as best_allowed
    from .ranking import Ranking as Ranking
    from .wrappers import Exploring as Exploring
    from .wrappers import PolicyWrapper as PolicyWrapper
    from .wrappers import Relabelled as Relabelled

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        ".belief_policies": "MUCB BeliefPolicy Greedy Thompson Uniform",
        ".policy": "Compact Policy State best_allowed",
        ".ranking": "Ranking",
        ".wrappers": "Exploring PolicyWrapper Relabelled",
    },
)
