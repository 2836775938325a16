"""Learning: Environment -> Learned, one learner per file."""

from .direct_mle import DirectMLE as DirectMLE
from .ed_mle import EDMLE as EDMLE
from .ed_moments import EDMoments as EDMoments
from .exploration import Exploration as Exploration
from .genie import Genie as Genie
from .history_ucbvi import HistoryPolicy as HistoryPolicy
from .history_ucbvi import HistoryUCBVI as HistoryUCBVI
from .l_ucrl import LUCRL as LUCRL
from .l_ucrl import OptimisticPolicy as OptimisticPolicy
from .learner import Learner as Learner
from .learner import Task as Task
from .result import Campaign as Campaign
from .result import Course as Course
from .result import Learned as Learned
from .result import Phase as Phase
from .run import Run as Run
from .run import learn as learn
from .saving import restore_run as restore_run
from .tensor_learner import Tensor as Tensor
from .ucb import UCB as UCB
