"""Evaluation: what a policy earns on a model, from a log, and in truth."""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from . import diagnostics as diagnostics
    from .assessment import Assessment as Assessment
    from .assessment import Verdict as Verdict
    from .compare import Comparison as Comparison
    from .diagnostics import Identifiability as Identifiability
    from .off_policy import LogEvidence as LogEvidence
    from .off_policy import LogValue as LogValue
    from .off_policy import fit_propensities as fit_propensities
    from .off_policy import with_propensities as with_propensities
    from .value import Evaluation as Evaluation
    from .value import evaluate as evaluate
    from .value import value_of as value_of
    from .value import weigh as weigh

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        ".": "diagnostics",
        ".assessment": "Assessment Verdict",
        ".compare": "Comparison",
        ".diagnostics": "Identifiability",
        ".off_policy": "LogEvidence LogValue fit_propensities with_propensities",
        ".value": "Evaluation evaluate value_of weigh",
    },
)
