"""Learning: learners that play an unknown environment and return a policy."""

from typing import TYPE_CHECKING

from .._doors import door

if TYPE_CHECKING:
    from .baselines import UCB as UCB
    from .baselines import Genie as Genie
    from .baselines import Tensor as Tensor
    from .clustering import Clustering as Clustering
    from .designed import EDMLE as EDMLE
    from .designed import EDMoments as EDMoments
    from .direct_mle import DirectMLE as DirectMLE
    from .history_ucbvi import HistoryUCBVI as HistoryUCBVI
    from .l_ucrl import LUCRL as LUCRL
    from .learner import Campaign as Campaign
    from .learner import Course as Course
    from .learner import Exploration as Exploration
    from .learner import Learned as Learned
    from .learner import Learner as Learner
    from .learner import Phase as Phase
    from .learner import Task as Task
    from .run import Run as Run
    from .run import learn as learn

__getattr__, __dir__, __all__ = door(__name__)
