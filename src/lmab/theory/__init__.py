"""The paper's sample sizes, accuracies and bounds as functions.

Constants hidden in O(.) are taken as 1, so the numbers are orders of magnitude of a worst case, not advice. Numbers
beyond the numeric range are infinite. Misprints are corrected; docs/moments.md lists them.
"""

from .bounds import distance_of_moments as distance_of_moments
from .bounds import gaussian_value_gap as gaussian_value_gap
from .bounds import model_distance as model_distance
from .bounds import moments_from_core as moments_from_core
from .bounds import off_subspace as off_subspace
from .bounds import reconstruction_error as reconstruction_error
from .bounds import value_gap as value_gap
from .bounds import value_gap_of_moments as value_gap_of_moments
from .budgets import Budget as Budget
from .budgets import budget as budget
from .budgets import core_set_size as core_set_size
from .budgets import delta_sub as delta_sub
from .budgets import delta_tsr as delta_tsr
from .budgets import gaussian_budget as gaussian_budget
from .budgets import gaussian_exponent as gaussian_exponent
from .budgets import gaussian_grid as gaussian_grid
from .budgets import printed_moment_sessions as printed_moment_sessions
from .likelihood import likelihood_sessions as likelihood_sessions
from .likelihood import likelihood_variation as likelihood_variation
from .likelihood import moments_from_variation as moments_from_variation
from .regimes import Regime as Regime
from .regimes import identifiable as identifiable
from .regimes import regime as regime
from .separated_types import SeparatedErrors as SeparatedErrors
from .separated_types import core_separation as core_separation
from .separated_types import separated_errors as separated_errors
from .separated_types import separated_horizon as separated_horizon
from .separated_types import separated_sessions as separated_sessions
from .separated_types import separation as separation
from .separated_types import session_shows_type as session_shows_type
