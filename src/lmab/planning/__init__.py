"""Planning: from a latent bandit and a horizon to a policy with bounds."""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from ..policies.graph import PolicyGraph as PolicyGraph
    from .certified import Certified as Certified
    from .exact import Exact as Exact
    from .lookahead import QMDP as QMDP
    from .lookahead import Lookahead as Lookahead
    from .plan import Planner as Planner
    from .point_based import PointBased as PointBased
    from .problem import Bounds as Bounds
    from .problem import Clock as Clock
    from .problem import Plan as Plan
    from .problem import Problem as Problem

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        ".certified": "Certified",
        ".exact": "Exact",
        ".lookahead": "QMDP Lookahead",
        ".plan": "Planner",
        ".point_based": "PointBased",
        "..policies.graph": "PolicyGraph",
        ".problem": "Bounds Clock Plan Problem",
    },
)
