"""lmab: short sessions with people of hidden type, from session logs to a provably near-optimal session policy.

The names below are in the order of the flow: read a log, fit the types, plan, evaluate, report. Everything else is one
level down: `lmab.data`, `lmab.model`, `lmab.policies`, `lmab.moments`, `lmab.components`, `lmab.estimation`,
`lmab.planning`, `lmab.evaluation`, `lmab.learning`, `lmab.reporting`, `lmab.testing`, `lmab.theory`, `lmab.serve`,
`lmab.client`.
"""

__version__ = "0.2.0"

import importlib as _importlib
import sys as _sys
from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import _registry

if _TYPE_CHECKING:
    from . import components as components
    from . import data as data
    from . import estimation as estimation
    from . import evaluation as evaluation
    from . import learning as learning
    from . import model as model
    from . import moments as moments
    from . import planning as planning
    from . import policies as policies
    from . import reporting as reporting
    from .data import Packed as Packed
    from .data import Sessions as Sessions
    from .data import pack as pack
    from .estimation import EM as EM
    from .estimation import Estimate as Estimate
    from .estimation import Traits as Traits
    from .estimation.fit import fit as fit
    from .evaluation import Assessment as Assessment
    from .evaluation import evaluate as evaluate
    from .evaluation.assess import assess as assess
    from .evaluation.compare import compare as compare
    from .learning import DirectMLE as DirectMLE
    from .learning import learn as learn
    from .loading import load as load
    from .model import LatentBandit as LatentBandit
    from .model import TypePrior as TypePrior
    from .model import random_bandit as random_bandit
    from .model.pomdp_file import export_pomdp as export_pomdp
    from .planning import QMDP as QMDP
    from .planning import Certified as Certified
    from .planning import Exact as Exact
    from .planning import Plan as Plan
    from .planning.plan import plan as plan
    from .policies import Greedy as Greedy
    from .policies import Policy as Policy
    from .policies import Thompson as Thompson
    from .policies import Uniform as Uniform
    from .reporting import report as report
    from .simulation import Simulator as Simulator
    from .simulation import simulate as simulate

#: The flow: the module that defines, then its names. The verbs `fit`, `plan`,
#: `assess` and `compare` have the names of their modules and are public here alone.
_PUBLIC = (
    ("data.sessions", "Sessions"),
    ("data.packing", "pack"),
    ("data.packed", "Packed"),
    ("model.bandit", "LatentBandit"),
    ("model.type_prior", "TypePrior"),
    ("model.instances", "random_bandit"),
    ("simulation", "simulate Simulator"),
    ("estimation.fit", "fit"),
    ("estimation.result", "Estimate"),
    ("estimation.em", "EM"),
    ("estimation.traits.traits", "Traits"),
    ("planning.plan", "plan"),
    ("planning.problem", "Plan"),
    ("planning.certified", "Certified"),
    ("planning.exact", "Exact"),
    ("planning.lookahead", "QMDP"),
    ("model.pomdp_file", "export_pomdp"),
    ("policies.policy", "Policy"),
    ("policies.belief_policies", "Uniform Greedy Thompson"),
    ("evaluation.value", "evaluate"),
    ("evaluation.assess", "assess"),
    ("evaluation.assessment", "Assessment"),
    ("evaluation.compare", "compare"),
    ("reporting.page", "report"),
    ("learning.run", "learn"),
    ("learning.direct_mle", "DirectMLE"),
    ("loading", "load"),
)
_MODULE_OF = {name: module for module, names in _PUBLIC for name in names.split()}
_PACKAGES = (
    "data", "model", "policies", "moments", "components", "estimation", "planning", "evaluation", "learning",
    "reporting", "testing", "simulation", "theory", "serve", "client", "experiment", "gym", "errors",
)  # fmt: skip

#: The module that registers the class of each saved kind, so that a program imports only what a file needs.
_registry.declare(
    __name__,
    {
        "model.bandit": "bandit",
        "model.type_prior": "type_prior",
        "estimation.result": "estimate",
        "moments.core_set": "design",
        "evaluation.assessment": "assessment",
        "learning.run": "run",
        "planning.problem": "plan",
        "planning.policies": "vectors",
        "policies.graph": "graph",
        "planning.exact": "exact once-exact",
        "planning.lookahead": "lookahead once",
        "planning.no_repeats.vector_policy": "once-vectors",
        "policies.belief_policies": "uniform greedy thompson mucb",
        "policies.ranking": "ranking fixed-sequence stationary",
        "policies.wrappers": "exploring relabelled",
        "paper.history_ucbvi": "history",
        "paper.l_ucrl": "optimistic",
    },
)

__all__ = list(_MODULE_OF)  # in the order of the flow

if "gymnasium" in _sys.modules:  # then registering the environment costs nothing
    from . import gym as gym


def __getattr__(name: str) -> object:
    """Import a name when it is first used, so that `import lmab` takes no time for what a program does not need."""
    if name in _MODULE_OF:
        found = getattr(_importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
        globals()[name] = found
        return found
    if name in _PACKAGES:
        return _importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_hint(name)}")


def __dir__() -> list[str]:
    return [*__all__, *_PACKAGES]


def _hint(name: str) -> str:
    """Where a class is that stands one level down."""
    if name[:1].isupper():
        for package in _PACKAGES[:9]:
            if hasattr(_importlib.import_module(f"{__name__}.{package}"), name):
                return f"; it is lmab.{package}.{name}"
    return ""
