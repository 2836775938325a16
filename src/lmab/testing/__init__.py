"""Testing: checks of the laws that every policy, planner, estimator and learner keeps, for the package's and for yours.

`check_policy`, `check_planner`, `check_estimator` and `check_learner` raise `BrokenLaw`, an `AssertionError`, with a
sentence for each broken law that names the law, the inputs and the observation. `oracle` enumerates small cases, to
compare with. No test framework is needed.
"""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from ..paper.learner_checks import check_learner as check_learner
    from . import oracle as oracle
    from .estimators import check_estimator as check_estimator
    from .oracle import small_bandit as small_bandit
    from .planners import check_planner as check_planner
    from .policies import check_policy as check_policy
    from .report import BrokenLaw as BrokenLaw
    from .report import Report as Report

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "..paper.learner_checks": "check_learner",
        ".": "oracle",
        ".estimators": "check_estimator",
        ".oracle": "small_bandit",
        ".planners": "check_planner",
        ".policies": "check_policy",
        ".report": "BrokenLaw Report",
    },
)
