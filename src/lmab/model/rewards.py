"""The reward families together, and the one that a file holds."""

from __future__ import annotations

from ..errors import InvalidArgument
from ..files import Record
from .categorical import Categorical as Categorical
from .family import Channel as Channel
from .family import Rewards as Rewards
from .family import permutation as permutation
from .gaussian import Gaussian as Gaussian
from .reward_values import MAX_VALUES as MAX_VALUES
from .reward_values import distinct_values as distinct_values
from .reward_values import index_among as index_among


def restore(record: Record) -> Categorical | Gaussian:
    """The family that `record` describes."""
    if record.kind == "categorical":
        return Categorical(record.arrays["probabilities"], record.arrays["values"], record.arrays.get("edges"))
    if record.kind == "gaussian":
        return Gaussian(record.arrays["means"], float.fromhex(record.fields["scale"]))
    raise InvalidArgument(f"rewards must be 'categorical' or 'gaussian', got {record.kind!r}")
