"""Prior: pseudo-observations of every type and arm, as data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._shapes import Array, Float

LEARNED = "learned"  # what a method is asked for
START = 1.5  # pseudo-plays at the arm's own mean under which a start is searched, and where none can be learned


@dataclass(frozen=True, eq=False)
class Prior:
    """Pseudo-plays that every type has seen: arm a `strength[a]` times, paying what `centre[a]` says.

    For rewards on Z values the centre is a distribution over them (so that strength times centre are pseudo-counts);
    for normal rewards it is a mean. The objective gains sum_a strength[a] E[log density of such a reward], without the
    part that depends on the scale of normal rewards only.

    Examples:
        >>> import numpy as np
        >>> Prior(np.array([[0.25, 0.75]]), np.array([2.0])).pseudo_counts
        array([[0.5, 1.5]])
    """

    centre: Float[Array, "A *Z"]
    strength: Float[Array, "A"]  # not negative; all 0: maximum likelihood

    @classmethod
    def equal(cls, centre: Float[Array, "A *Z"], strength: float) -> Prior:
        """The same strength for every arm."""
        return cls(centre, np.full(len(centre), float(strength)))

    @property
    def active(self) -> bool:
        """Whether there is any pseudo-play at all."""
        return bool(self.strength.any())

    @property
    def pseudo_counts(self) -> Float[Array, "A Z"]:
        """How often each arm paid each value in the pseudo-plays."""
        return self.strength[:, None] * self.centre
