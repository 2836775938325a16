"""Structs of requests and responses, from which /openapi.json is generated, and the problems of refused requests."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from ..errors import LmabError

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Step = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
MOST_FEATURES, MOST_LETTERS = 100, 200  # columns of a session, and letters of a value
Label = str | Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # the range of an integer column


class Question(msgspec.Struct, forbid_unknown_fields=True):
    """Request for the next arm, with the reward of the step before."""

    session: Name
    step: Step
    reward: float | None = None  # Reward of step - 1.
    allowed: list[Label] | None = None  # labels of the arms that may be played; None: all open arms
    person: Name | None = None  # returning person: earlier sessions inform this one; read at step 0
    features: dict[Name, str | float | bool | None] | None = None  # features of the session; read at step 0
    baseline: Label | None = None  # arm of your present rule: the response in apprentice mode
    force: Label | None = None  # arm for a tester: it is played, and nothing learns from the session


class Answer(msgspec.Struct):
    """Arm to play."""

    session: str
    step: int
    arm: int
    label: Label
    propensity: float | None  # the probability with which this arm was chosen; None: a baseline chose it
    policy: str  # the version that the session stays with
    explored: bool = False
    fallback: bool = False  # no policy is available: any allowed arm, with equal probability
    recorded: bool = True  # False: the store is away, and --without-store is set
    forced: bool | msgspec.UnsetType = msgspec.UNSET  # True: the request named the arm
    unknown_features: list[str] | msgspec.UnsetType = msgspec.UNSET  # their text is unknown to the policy


class Reward(msgspec.Struct, forbid_unknown_fields=True):
    """Late reward, or reward of the last step."""

    session: Name
    step: Step
    reward: float


class Rewards(msgspec.Struct, forbid_unknown_fields=True):
    """Batch of rewards: all of them are stored, or none."""

    rewards: Annotated[list[Reward], msgspec.Meta(min_length=1, max_length=1000)]


class RewardsStored(msgspec.Struct):
    """Number of rewards of the request that are in the store."""

    rewards: int


class Promotion(msgspec.Struct, forbid_unknown_fields=True):
    """Share of new sessions that a version gets; 1 puts it in force."""

    share: Share


class Rollback(msgspec.Struct, forbid_unknown_fields=True, rename={"ends": "from"}):
    """Version that ends: the canary if there is one, otherwise the version in force."""

    ends: Name


class Arms(msgspec.Struct, forbid_unknown_fields=True):
    """Open arms: new labels are added, missing ones are withdrawn."""

    arms: Annotated[list[Label], msgspec.Meta(min_length=1, max_length=100_000)]


class HistoryStep(msgspec.Struct):
    """Step of a session."""

    step: int
    label: Label
    reward: float | None
    propensity: float | None
    policy: str
    explored: bool
    fallback: bool
    at: float
    belief: list[float] | None  # the probability of each type before the step
    why: str


class SessionHistory(msgspec.Struct):
    """Session from its first step on."""

    session: str
    person: str | None
    features: dict[str, str | float | None] | None
    policy: str
    steps: list[HistoryStep]
    belief: list[float] | None  # now


class Erasure(msgspec.Struct):
    """Number of erased sessions of a person, places of remaining copies, and policies made from them."""

    sessions: int
    left: list[str]
    versions: list[str] = []  # made from a log with the person, until each is retired


class VersionInfo(msgspec.Struct):
    """Version of the policy."""

    version: str
    at: float
    share: float  # Share of new sessions.
    note: str


class Versions(msgspec.Struct):
    """Versions, the newest first, and the rollout."""

    active: str
    canary: str | None
    share: float
    versions: list[VersionInfo]


class Readiness(msgspec.Struct):
    """Readiness for new sessions."""

    ready: bool  # whether decisions are answered
    recorded: bool  # whether they are recorded; without the store, only --without-store answers
    store: str  # "open", or why nothing can be recorded
    policy: str  # the version in force
    trouble: str  # why the service is not ready, or else which version does not load; empty: all is well


class ExperimentInfo(msgspec.Struct):
    """Experiment that is served."""

    name: str
    ready: bool
    trouble: str  # why it cannot be decided
    active: str  # the version in force
    canary: str | None


class ExperimentList(msgspec.Struct):
    """Experiments that are served, by name."""

    experiments: list[ExperimentInfo]


class Refusal(msgspec.Struct):
    """Reason of a refused request."""

    error: str
    code: str


STATUS = {
    "malformed": 400,  # not JSON, or not the required fields
    "unauthorised": 401,
    "forbidden": 403,  # the token lacks the role, or the request comes from a page of another site
    "erased": 410,
    "unknown-path": 404,
    "unknown-experiment": 404,
    "unknown-session": 404,
    "unknown-step": 404,
    "unknown-policy": 404,
    "wrong-method": 405,
    "out-of-order": 409,
    "in-force": 409,  # a version that sessions get is not retired
    "not-in-force": 409,  # a rollback names another version than the one that would end
    "last-arm": 409,
    "register-changed": 409,
    "precondition-failed": 412,  # the number in If-Match is not the present one
    "other-reward": 409,
    "too-late": 410,
    "too-large": 413,
    "too-slow": 408,
    "unknown-arm": 422,
    "unknown-reward": 422,
    "beyond-horizon": 422,
    "bad-value": 422,
    "bad-policy": 422,
    "busy": 429,
    "internal": 500,
    "no-policy": 503,
    "no-store": 503,
}


class Problem(LmabError):
    """Refused request."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.status = code, STATUS[code]


def check_name(name: str) -> None:
    """Raise `Problem` if a store cannot hold a text: the whole commit would fail."""
    if "\0" in name or (not name.isprintable() and any(0xD800 <= ord(letter) <= 0xDFFF for letter in name)):
        raise Problem("bad-value", "names of sessions, persons, arms and versions must be text without the character 0")


def check_features(features: Mapping[str, str | float | bool | None]) -> str:
    """Return features as the JSON text that a store keeps; booleans become numbers."""
    if len(features) > MOST_FEATURES:
        raise Problem("bad-value", f"features must be at most {MOST_FEATURES}, got {len(features)}")
    for name, value in features.items():
        check_name(name)
        if isinstance(value, str):
            check_name(value)
            if len(value) > MOST_LETTERS:
                raise Problem("bad-value", f"features[{name!r}] must have at most {MOST_LETTERS} letters")
        elif value is not None and not math.isfinite(value):
            raise Problem("bad-value", f"features[{name!r}] must be text, a finite number or null")
    known = {name: float(value) if isinstance(value, bool) else value for name, value in features.items()}
    return json.dumps(known, ensure_ascii=False)


def check_labels(labels: Sequence[Label]) -> None:
    """Raise `Problem` if labels are equal as text, which the log by day writes, or do not fit 64 bits."""
    if len({str(label) for label in labels}) != len(labels):
        raise Problem("bad-value", "arms must be distinct labels, also as text: 1 and '1' are one")
    for label in labels:
        if isinstance(label, str):
            check_name(label)
        elif not -(2**63) <= label < 2**63:
            raise Problem("bad-value", f"arms must be text or integers of 64 bits, got {label}")


def check_finite(reward: float) -> None:
    """Raise `Problem` if a reward is not finite."""
    if not math.isfinite(reward):
        raise Problem("unknown-reward", "reward must be a finite number")
