"""Intervals from pooled posterior draws, and the calibration that a stored study gives them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._shapes import Array, Float

Interval = tuple[float, float]
LEAST_MODELS = 20  # drawn models without which nothing is claimed: the ends of a 90% interval would be their extremes


@dataclass(frozen=True)
class Calibration:
    """Factors by which the ends of plain quantile intervals lie further from the median.

    Examples:
        >>> import numpy as np
        >>> one = Calibration(0, "none", ((1.0, 1.0), (100.0, 2.0)))
        >>> one.factor(10.0)
        1.5
        >>> one.interval(np.linspace(0, 1, 101), 0.8, 100.0)
        (-0.3, 1.3)
    """

    version: int
    study: str  # the command that measured the factors
    cells: tuple[tuple[float, float], ...]  # logged steps per parameter, and the factor there
    attrition: float = 1.0  # further factor if types may leave differently
    modelled_exposure: float = 1.0  # further factor if the model includes selective exposure

    def factor(self, steps_per_parameter: float) -> float:
        """Return the factor for a log, by interpolation in the logarithm of the steps per parameter."""
        ratios, factors = np.array(self.cells).T
        return float(np.interp(np.log(max(steps_per_parameter, 1e-9)), np.log(ratios), factors))

    def interval(
        self, sample: Float[Array, "B"], confidence: float, steps_per_parameter: float, further: float = 1.0
    ) -> Interval:
        """Return the interval of a claim from draws of both samplers.

        Args:
            sample: the quantity on each drawn model.
            confidence: level of the interval.
            steps_per_parameter: logged steps per parameter of the model.
            further: factor for sessions that depend on each other.
        """
        low, middle, high = np.quantile(sample, [(1 - confidence) / 2, 0.5, (1 + confidence) / 2])
        factor = further * self.factor(steps_per_parameter)
        return float(middle - factor * (middle - low)), float(middle + factor * (high - middle))


#: Prior draws of 10 arms and 3 types, 25 logs of each size: the largest of the factors of value, optimum and gain.
#: At 50, 80 and 99% the same factors leave coverage within chance of the level (`docs/coverage/calibration.jsonl`).
CALIBRATION = Calibration(
    version=1,
    study="python -m benchmarks.study_calibration",
    attrition=1.3,  # of `python -m benchmarks.study_coverage`, cells in which sessions leave
    modelled_exposure=1.5,  # of the same study, cells with segments
    cells=((18.75, 1.29), (62.5, 1.08), (187.5, 1.0), (625.0, 1.02)),
)
