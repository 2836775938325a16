"""Testing: the laws of policies, planners and learners, for those of the package and for your own.

`check_policy`, `check_planner` and `check_learner` raise `BrokenLaw`, an `AssertionError`, with a sentence that names
the law, the inputs and what was seen. `oracle` is plain enumeration of small cases, to compare with. Nothing here
needs a test framework.
"""

from . import oracle as oracle
from .bandits import small_bandit as small_bandit
from .learners import check_learner as check_learner
from .planners import check_planner as check_planner
from .policies import check_policy as check_policy
from .report import BrokenLaw as BrokenLaw
from .report import Report as Report
