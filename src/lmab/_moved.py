"""Old names of modules that moved: importing one still works, with a `DeprecationWarning` that gives the new name.

Version 0.3 will drop this file.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED = {
    "belief": "model.belief",
    "bins": "model.bins",
    "certificate": "evaluation.certificate",
    "columns": "data.columns",
    "coreset": "moments.core_set",
    "diagnostics": "evaluation.diagnostics",
    "sessions": "data.sessions",
    "importance": "evaluation.importance",
    "independent_arms": "evaluation.unrelated_arms",
    "ingest": "data.ingest",
    "instances": "model.instances",
    "laplace": "evaluation.laplace",
    "logfiles": "data.log_files",
    "off_policy": "evaluation.off_policy",
    "policy": "policies",
    "propensities": "evaluation.propensities",
    "rewards": "model.rewards",
    "small_policies": "policies.small",
    "tensors": "moments.high_orders",
    "tree": "evaluation.decision_tree",
    "estimation.climbing": "estimation.squarem",
    "estimation.fitting": "estimation.estimator",
    "estimation.matching": "estimation.moment_equations",
    "estimation.recovery": "estimation.from_moments",
    "estimation.tensor": "estimation.tensor_decomposition",
    "estimation.uncertainty": "estimation.standard_errors",
    "learning.core": "learning.core_sets",
    "learning.tensor": "learning.tensor_learner",
    "planning.once": "planning.no_repeats",
    "planning.once_exact": "planning.no_repeats_exact",
    "planning.planned": "planning.planned_policy",
    "planning.table": "planning.table_policy",
    "planning.tree": "planning.first_steps",
    "report.charts": "_charts",
    "report.markup": "_markup",
    "report.tree": "planning.tree_picture",
    "report.tree_picture": "planning.tree_picture",
    "_kernel.threads": "estimation.passes",
}


class _Alias(Loader):
    """Imports the module under its new name when the old name is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import of the old name put its own there


class _Finder(MetaPathFinder):
    """The last finder, which is asked when no other finds a module."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        package, _, module = name.partition(".")
        if package != __package__ or module not in MOVED:
            return None
        home = f"{package}.{MOVED[module]}"
        warnings.warn(f"{name} has moved to {home}", DeprecationWarning, stacklevel=2)
        return ModuleSpec(name, _Alias(home))


def forward(owner: Any, inner: str, name: str) -> Any:
    """An attribute of `owner.inner`: before 0.2, files of `lmab fit` and `lmab plan` held that part alone."""
    if inner in vars(owner) and not name.startswith("_") and hasattr(vars(owner)[inner], name):
        kind = type(owner).__name__
        message = f"{kind}.{name} will be removed in 0.3: use {kind}.{inner}.{name}"
        warnings.warn(message, DeprecationWarning, stacklevel=3)
        return getattr(vars(owner)[inner], name)
    raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}", name=name, obj=owner)


def install() -> None:
    """Make old names importable from now on."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
