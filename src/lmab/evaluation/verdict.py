"""Verdict: whether a gain over the best fixed choice may be counted on, in the same words at every door."""

from __future__ import annotations

from dataclasses import dataclass

from ..estimation import Check


@dataclass(frozen=True, eq=False)
class Verdict:
    """What the certificate and the held-out check of the fit say together.

    An interval of the gain that lies above 0 rests on the fitted types. Held-out sessions must confirm these types:
    they must be predicted better than by one type, and better than if arms had nothing to do with each other.

    Examples:
        >>> Verdict(gain=(0.1, 0.3), check=None).sure
        False
    """

    gain: tuple[float, float] | None  # over the best fixed choice, of a certificate; None where there is none
    check: Check | None  # of the fit; None where none was made

    @property
    def sure(self) -> bool:
        """The interval of the gain lies above 0, and held-out sessions confirm the types."""
        return self.gain is not None and self.gain[0] > 0 and self.check is not None and self.check.agrees

    @property
    def sentence(self) -> str:
        """The verdict for somebody who has to decide, with what the held-out check said."""
        return f"{self._about_gain} {self._about_types}"

    @property
    def _about_gain(self) -> str:
        if self.gain is None:
            return (
                "Without a certificate nobody knows how much of the gain over the best fixed choice is real: make one "
                "from the log of the fit (`lmab evaluate --certify`)."
            )
        if self.gain[0] <= 0:
            return "This policy may earn no more than the best fixed choice: the interval of its gain holds 0."
        if not self.sure:
            return "Do not count on the gain over the best fixed choice: held-out sessions do not confirm the types."
        return "Count on a gain over the best fixed choice: its interval lies above 0, and held-out sessions agree."

    @property
    def _about_types(self) -> str:
        if self.check is None:
            return "No held-out sessions were asked about the types: `lmab fit` does so, unless it is told not to."
        return self.check.verdict
