"""Evaluation: what a policy earns on a model, from a log, and in truth."""

from ..estimation.check import Calibration as Calibration
from ..estimation.check import Check as Check
from . import diagnostics as diagnostics
from .certificate import Certificate as Certificate
from .certificate import Verdict as Verdict
from .certify import certify as certify
from .compare import Comparison as Comparison
from .compare import compare as compare
from .diagnostics import Identifiability as Identifiability
from .diagnostics import calibrate as calibrate
from .off_policy import ENOUGH as ENOUGH
from .off_policy import METHODS as METHODS
from .off_policy import LogEvidence as LogEvidence
from .off_policy import LogValue as LogValue
from .off_policy import fit_propensities as fit_propensities
from .off_policy import with_propensities as with_propensities
from .value import SESSIONS as SESSIONS
from .value import Evaluation as Evaluation
from .value import evaluate as evaluate
from .value import value_of as value_of
from .value import weigh as weigh
