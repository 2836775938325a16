"""Learning: learners that play an unknown environment and return a policy."""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from ..paper.baselines import UCB as UCB
    from ..paper.baselines import Genie as Genie
    from ..paper.baselines import Tensor as Tensor
    from ..paper.clustering import Clustering as Clustering
    from ..paper.designed import EDMLE as EDMLE
    from ..paper.designed import EDMoments as EDMoments
    from ..paper.history_ucbvi import HistoryUCBVI as HistoryUCBVI
    from ..paper.l_ucrl import LUCRL as LUCRL
    from .direct_mle import DirectMLE as DirectMLE
    from .learner import Campaign as Campaign
    from .learner import Course as Course
    from .learner import Exploration as Exploration
    from .learner import Learned as Learned
    from .learner import Learner as Learner
    from .learner import Phase as Phase
    from .learner import Task as Task
    from .run import Run as Run
    from .run import learn as learn

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "..paper.baselines": "UCB Genie Tensor",
        "..paper.clustering": "Clustering",
        "..paper.designed": "EDMLE EDMoments",
        "..paper.history_ucbvi": "HistoryUCBVI",
        "..paper.l_ucrl": "LUCRL",
        ".direct_mle": "DirectMLE",
        ".learner": "Campaign Course Exploration Learned Learner Phase Task",
        ".run": "Run learn",
    },
)
