"""What requests and answers hold. The page /openapi.json is made from the same structs."""

from __future__ import annotations

from typing import Annotated

import msgspec

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Step = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Label = str | int


class Ask(msgspec.Struct, forbid_unknown_fields=True):
    """Tell the reward of the step before, and ask for the next arm."""

    session: Name
    step: Step
    reward: float | None = None  # of step - 1
    allowed: list[Label] | None = None  # labels of the arms that may be played; None: all that are open
    person: Name | None = None  # who returns, so that earlier sessions inform this one; read at step 0
    baseline: Label | None = None  # what your present rule would play: answered in apprentice mode


class Told(msgspec.Struct):
    """The arm to play."""

    session: str
    step: int
    arm: int
    label: Label
    propensity: float | None  # the probability with which this arm was chosen; None: a baseline chose it
    policy: str  # the version that the session stays with
    explored: bool = False
    fallback: bool = False  # no policy could be asked: any allowed arm, with equal probability
    recorded: bool = True  # False: the store is away and the service was told to answer all the same


class Reward(msgspec.Struct, forbid_unknown_fields=True):
    """A reward that comes late, or that of the last step."""

    session: Name
    step: Step
    reward: float


class Rewards(msgspec.Struct, forbid_unknown_fields=True):
    """A batch of rewards: all of them are kept, or none."""

    rewards: Annotated[list[Reward], msgspec.Meta(min_length=1, max_length=1000)]


class Kept(msgspec.Struct):
    """How many rewards are in the store now."""

    rewards: int


class Promotion(msgspec.Struct, forbid_unknown_fields=True):
    """Which share of new sessions a version gets; 1 puts it in force."""

    share: Share = 1.0


class Arms(msgspec.Struct, forbid_unknown_fields=True):
    """The arms that are open: new labels are added, missing ones are withdrawn."""

    arms: Annotated[list[Label], msgspec.Meta(min_length=1, max_length=100_000)]


class Played(msgspec.Struct):
    """One step of a session, as it was played."""

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


class Story(msgspec.Struct):
    """A session from its first step on."""

    session: str
    person: str | None
    policy: str
    steps: list[Played]
    belief: list[float] | None  # now


class Erased(msgspec.Struct):
    """How many sessions of a person were erased."""

    sessions: int


class VersionInfo(msgspec.Struct):
    """A version of the policy."""

    version: str
    at: float
    share: float  # of new sessions
    note: str


class Versions(msgspec.Struct):
    """The versions, the newest first, and which of them new sessions get."""

    active: str
    canary: str | None
    share: float
    versions: list[VersionInfo]


class Refusal(msgspec.Struct):
    """Why a request was refused."""

    error: str
    code: str
