"""Plan: a policy, and the bounds that are proved for it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import numpy as np

from .. import files
from .._html import card, percent
from ..checks import check_count
from ..errors import InvalidArgument, Status
from ..estimation import Estimate
from ..policies import Policy, restore_policy
from .clock import Bounds


@dataclass(frozen=True, eq=False)
class Plan:
    """A session policy with bounds on the optimum.

    The exact value of `policy` (the expected reward of `horizon` steps) is at least `lower`, and the value of every
    policy is at most `upper`. For continuous rewards `upper` is the value of knowing the type, because the bound of
    the search holds only for rewards seen in bins; `message` gives this bound.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.5], [0.1, 0.6]])
        >>> plan = lmab.plan(bandit, horizon=5, method=lmab.Exact())
        >>> plan
        Plan(optimal: 3.35771 over 5 steps)
        >>> plan.policy.act_on([])
        0
    """

    policy: Policy
    horizon: int
    lower: float
    upper: float
    status: Status  # how the planning ended; equal to its name as text
    message: str  # what was done and what it means, in a sentence or two
    trace: tuple[Bounds, ...] = field(repr=False, default=())  # for continuous rewards: of the problem in bins
    repeats: bool = True  # False: policy and bounds are for sessions that play each arm at most once
    estimate: Estimate | None = field(repr=False, default=None)  # the estimate that was planned on; None for a bandit

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", Status.named(self.status))

    @property
    def gap(self) -> float:
        """(upper - lower) / |lower|; 0 where the bounds are equal, infinite where only `lower` is 0."""
        difference = max(self.upper - self.lower, 0.0)
        if difference == 0:
            return 0.0
        return difference / abs(self.lower) if self.lower else float("inf")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to `path`, with the policy and the estimate; `lmab.load` gives the same plan back."""
        files.write(path, self.record())

    def record(self) -> files.Record:
        plain = files.encode(self, "plan", without=("policy", "trace", "estimate"))
        nested = {"policy": self.policy.record()}
        if self.estimate is not None:
            nested["estimate"] = self.estimate.record()
        return files.Record(plain.kind, plain.fields, {"trace": np.array(self.trace).reshape(-1, 3)}, nested)

    @classmethod
    def from_record(cls, record: files.Record) -> Plan:
        check_count("horizon", record.fields["horizon"])
        found = record.records.get("estimate")
        return files.decode(
            record,
            cls,
            policy=restore_policy(record.records["policy"]),
            trace=tuple(Bounds(*row) for row in record.arrays["trace"].tolist()),
            estimate=None if found is None else Estimate.from_record(found),
        )

    def _repr_html_(self) -> str:
        rows = {
            "status": self.status,
            "earns at least": f"{self.lower:.6g} over {self.horizon} steps",
            "no policy earns more than": f"{self.upper:.6g} (gap {percent(self.gap)})",
            "found in": f"{self.trace[-1].seconds:.2f} s" if self.trace else "no time",
        }
        if self.estimate is not None and self.estimate.check is not None:
            rows["held-out check"] = self.estimate.check.verdict
        return card("Plan", rows)

    def __repr__(self) -> str:
        if self.status == Status.OPTIMAL:
            return f"Plan(optimal: {self.lower:.6g} over {self.horizon} steps)"
        bounds = f"between {self.lower:.6g} and {self.upper:.6g}, gap {self.gap:.2g}"
        return f"Plan({self.status}: optimum {bounds} over {self.horizon} steps)"


def policy_of(given: Policy | Plan) -> Policy:
    """The policy, or the policy of a plan; anything else raises."""
    if isinstance(given, Plan):
        return given.policy
    if isinstance(given, Policy):
        return given
    raise InvalidArgument(f"policy must be a Policy or a Plan, got a {type(given).__name__}")
