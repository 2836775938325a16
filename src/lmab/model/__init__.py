"""The model: reward families, latent bandits and beliefs over types."""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from . import belief as belief
    from .bandit import LatentBandit as LatentBandit
    from .bandit import wasserstein as wasserstein
    from .bins import Bins as Bins
    from .categorical import Categorical as Categorical
    from .counts import Counts as Counts
    from .gaussian import Gaussian as Gaussian
    from .instances import random_bandit as random_bandit
    from .rewards import Rewards as Rewards
    from .type_prior import TypePrior as TypePrior

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        ".": "belief",
        ".bandit": "LatentBandit wasserstein",
        ".bins": "Bins",
        ".categorical": "Categorical",
        ".counts": "Counts",
        ".gaussian": "Gaussian",
        ".instances": "random_bandit",
        ".rewards": "Rewards",
        ".type_prior": "TypePrior",
    },
)
