"""Runs from files: find the classes of a saved run by their names, and restore the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..estimation import EM, TensorDecomposition, Traits
from ..files import Makers, Record, decode_any
from ..model import LatentBandit
from ..planning import QMDP, Certified, Exact, Lookahead, Planner, PointBased
from .direct_mle import DirectMLE
from .ed_mle import EDMLE
from .ed_moments import EDMoments
from .genie import Genie
from .history_ucbvi import HistoryUCBVI
from .l_ucrl import LUCRL
from .learner import Learner, Task
from .run import Run, sessions_from
from .tensor_learner import Tensor
from .ucb import UCB

LEARNERS: tuple[type[Learner], ...] = (DirectMLE, EDMLE, EDMoments, Tensor, LUCRL, UCB, HistoryUCBVI, Genie)

_PLANNERS = (Certified, Exact, Lookahead, PointBased, QMDP)
_MAKERS: Makers = {
    "bandit": LatentBandit.from_record,
    **{maker.__name__: maker for maker in (*LEARNERS, *_PLANNERS, Task, EM, Traits, TensorDecomposition)},
}


def restore_run(record: Record) -> Run:
    """The run that a record describes; all computations are repeated."""
    makers = {**_own(Learner), **_own(Planner), **_MAKERS}
    learner, task = (decode_any(record.records[name], makers) for name in ("learner", "task"))
    n_rounds, partial = record.fields["n_rounds"], record.fields["partial"]
    told = [sessions_from(record.records[f"round-{index}"]) for index in range(n_rounds + partial)]
    return Run.resume(learner, task, record.fields["seed"], told)


def _own(base: Any) -> dict[str, Callable[..., Any]]:
    """The subclasses of `base` that the program has defined, by name; of two with the same name the later one."""
    found: dict[str, Callable[..., Any]] = {}
    todo = list(base.__subclasses__())
    for cls in todo:
        todo += cls.__subclasses__()
        found[cls.__name__] = cls
    return found
