"""Diagnostics of a fit: the held-out check, and which parameters its log identifies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._html import count, percent
from ..checks import Rng, check_rng
from ..data.packed import Packed
from ..data.sessions import Sessions
from ..errors import LmabError
from ..estimation.cross_validation import beside_traits as beside_traits
from ..estimation.cross_validation import calibrate as calibrate
from ..estimation.cross_validation import check as check
from ..estimation.cross_validation import sampled
from ..estimation.result import Estimate
from ..model.bandit import arm_label
from ..moments.core_set import design
from ..moments.second import subspace

_PLAYS = 30  # plays in the rarest type below which an arm is reported as rarely played


@dataclass(frozen=True, eq=False)
class Identifiability:
    """Which types and arms the log of an estimate identifies, and which arms to log next."""

    n_types: int
    horizon: int  # steps of the longest session
    long_enough: float  # share of the sessions with at least 2 M - 1 steps
    rank: int | None  # numerical rank of the second moments, a lower bound on types; None: not computed
    starts: str
    rare_arms: tuple[int, ...]  # played too rarely in the rarest type
    core_arms: tuple[int, ...]  # the most informative about the types
    arm_labels: tuple[str | int, ...] | None
    rarest: float = 1.0  # share of the rarest type
    traits: bool = False  # types are points of factors: none of them is rare

    @property
    def sentences(self) -> tuple[str, ...]:
        """The findings, one sentence each."""
        need = 2 * self.n_types - 1
        lines = [] if self.traits else [self.starts + "."]
        if self.n_types > 1 and not self.traits:
            lines.append(
                f"{self.long_enough:.0%} of the sessions have at least {need} steps, which always identify "
                f"{self.n_types} types"
                + ("." if self.long_enough > 0.5 else "; with shorter sessions several models may be equally likely.")
            )
        if self.rank is not None:
            lines.append(f"Numerical rank of the second moments of rewards: {self.rank}.")
        if self.rare_arms and self.traits:
            lines.append(
                f"{count(len(self.rare_arms), 'arm')} with fewer than {_PLAYS} plays: estimates for "
                f"{self.names(self.rare_arms)} rely mostly on the prior learned from other arms."
            )
        elif self.rare_arms:
            were = "was" if len(self.rare_arms) == 1 else "were"
            lines.append(
                f"{count(len(self.rare_arms), 'arm')} {were} played fewer than {_PLAYS} times in the rarest type "
                f"({percent(self.rarest)} of the sessions): {self.names(self.rare_arms)}."
            )
        if self.core_arms:
            lines.append(
                f"Most informative arms about the types: {self.names(self.core_arms)}. Log more sessions that play "
                f"them."
            )
        return tuple(lines)

    def names(self, arms: tuple[int, ...]) -> str:
        """Return the labels of the first twelve of these arms."""
        labels = [arm_label(arm, self.arm_labels) for arm in arms[:12]]
        return ", ".join(labels) + (", ..." if len(arms) > 12 else "")


def identify(estimate: Estimate, *, rng: Rng) -> Identifiability:
    """Compute which types and arms the log of an estimate identifies."""
    rng = check_rng(rng, "a large log is sampled")
    sessions, bandit = estimate.sessions, estimate.bandit
    traits = estimate.factors is not None
    rarest = 1.0 if traits else float(bandit.weights.min())
    rare = np.flatnonzero(sessions.plays * rarest < _PLAYS)
    by_type = bandit.has_informative_attrition  # attrition by type biases the moments, which no weights correct
    rank, core = (None, ()) if by_type else _core(sessions, bandit.rewards.family, rng)
    return Identifiability(
        n_types=bandit.n_types,
        horizon=sessions.horizon,
        long_enough=sessions.share_of_length(2 * bandit.n_types - 1),
        rank=rank,
        starts=str(estimate.starts),
        rare_arms=tuple(rare.tolist()),
        core_arms=core,
        arm_labels=sessions.arm_labels,
        rarest=rarest,
        traits=traits,
    )


def _core(sessions: Sessions | Packed, family: str, rng: np.random.Generator) -> tuple[int | None, tuple[int, ...]]:
    """Return the numerical rank and the core arms; neither if the log has no pairs of steps, or too many arms."""
    try:
        sample = sampled(len(sessions), rng)
        seen = sessions.load() if sample is None else sessions[sample]
        space = subspace(seen, rewards=family)
        return space.rank, tuple(design(space, events="arms").arms)
    except LmabError:
        return None, ()
