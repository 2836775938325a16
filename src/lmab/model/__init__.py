"""The model: reward families, latent bandits and beliefs over types."""

from . import belief as belief
from .bandit import LatentBandit as LatentBandit
from .bandit import arm_label as arm_label
from .bandit import wasserstein as wasserstein
from .bins import Bins as Bins
from .categorical import Categorical as Categorical
from .gaussian import Gaussian as Gaussian
from .instances import random_bandit as random_bandit
from .rewards import MAX_VALUES as MAX_VALUES
from .rewards import Channel as Channel
from .rewards import Rewards as Rewards
from .rewards import distinct_values as distinct_values
from .rewards import index_among as index_among
from .type_prior import TypePrior as TypePrior
