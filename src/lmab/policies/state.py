"""State: where a session stands, or n sessions at the same step; as JSON, so that a session outlives its process."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._shapes import Array, Float
from ..errors import InvalidArgument


@dataclass(frozen=True, eq=False)
class State:
    """The state of one session, or of n sessions at the same step: the number of steps seen, and the policy's memory.

    Examples:
        >>> import lmab
        >>> bandit = lmab.LatentBandit.bernoulli([0.5, 0.5], [[0.9, 0.1], [0.3, 0.7]])
        >>> policy = lmab.Greedy(bandit)
        >>> state = policy.observe(policy.start(), 0, 1.0)
        >>> state.step, lmab.model.belief.normalise(state.memory)
        (1, array([[0.75, 0.25]]))
    """

    step: int
    memory: Float[Array, "n K"]  # for most policies the unnormalised belief over types
    single: bool  # one session: arms are ints, not arrays


def state_to_json(state: State, kind: str) -> str:
    """The state as JSON; `kind` names the policy that it belongs to. Numbers keep all their bits."""
    rows = [[x if math.isfinite(x) else repr(x) for x in row] for row in state.memory.tolist()]
    return json.dumps({"kind": kind, "step": int(state.step), "single": bool(state.single), "memory": rows})


def state_from_json(text: str, kind: str, width: int) -> State:
    """The state that `state_to_json` wrote, for a policy of that kind whose memory has `width` numbers."""
    try:
        told = json.loads(text)
        step, single, rows = told["step"], told["single"], told["memory"]
        memory = np.array([[float(x) for x in row] for row in rows], np.float64).reshape(len(rows), -1)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise InvalidArgument(f"text must be a state that to_json wrote, got {_short(text)} ({error})") from None
    if told.get("kind") != kind:
        raise InvalidArgument(f"text must be a state of a {kind!r} policy, got one of {told.get('kind')!r}")
    if memory.shape[1] != width:
        raise InvalidArgument(f"text must hold {width} numbers a session for this policy, got {memory.shape[1]}")
    whole = type(step) is int and step >= 0 and type(single) is bool
    if not whole or len(memory) < 1 or (single and len(memory) != 1):
        raise InvalidArgument(f"text must be a state that to_json wrote, got {_short(text)}")
    return State(step, memory, single)


def _short(text: Any) -> str:
    shown = repr(text)
    return shown if len(shown) <= 60 else shown[:57] + "..."
