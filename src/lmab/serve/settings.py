"""Settings: how the service behaves."""

from __future__ import annotations

from dataclasses import dataclass, field

from .versions import Defaults


@dataclass(frozen=True)
class Settings:
    """How the service behaves; what a policy says of itself comes before `defaults`."""

    defaults: Defaults = field(default_factory=Defaults)
    default_reward: float | None = None  # counts for a step whose reward did not come within the window
    window: float = 3600.0  # seconds after a decision in which its reward may come
    apprentice: bool = False  # answer the baseline of the request
    without_store: bool = False  # answer also while the store is away; such answers are not recorded
    memory: int = 200_000  # sessions kept in memory
    queue: int = 10_000  # requests that may wait for a commit
