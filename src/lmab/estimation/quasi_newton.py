"""L-BFGS (Nocedal, 1980; Liu and Nocedal, 1989) for log-likelihoods at which EM converges slowly.

Maximises a smooth function of unbounded coordinates. The last steps and changes of the gradient represent the inverse
Hessian. A step is shortened until the objective rises, so it never falls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from .._shapes import Array, Float

_MEMORY = 20  # pairs of steps and changes of the gradient
_SUFFICIENT = 1e-4  # part of the gain that the slope predicts which a step must make (Armijo)
_SHORTENED = (0.1, 0.5)  # range of the factors by which a step is shortened
_TRIALS = 20  # points at which a step is tried before the memory is forgotten
_CURVED = 1e-10  # least cosine between a step and the change of the gradient that is remembered
_LONGEST = 4.0  # longest move of a coordinate in one step, unscaled: a probability changes by a factor of at most e^4
_WINDOW = 10  # iterations whose gain must be at most what may remain
_ROUNDING = 1e-13  # gains below this part of the objective are noise


class Smooth(Protocol):
    """An objective on models that are described by coordinates without bounds."""

    def place(self, model: Float[Array, "K P"]) -> Float[Array, "n"]:
        """Return the coordinates of a model."""

    def model(self, place: Float[Array, "n"]) -> Float[Array, "K P"]:
        """Return the model with these coordinates."""

    def evaluate(self, model: Float[Array, "K P"]) -> tuple[float, Float[Array, "n"]]:
        """Return the objective at a model and its gradient in the coordinates."""

    def longest(self, direction: Float[Array, "n"]) -> float:
        """Return the largest move of a single parameter, unscaled."""


@dataclass(frozen=True, eq=False)
class Ascent:
    """Result of an ascent: the best model, its objective, and the best objective after each evaluation."""

    model: Float[Array, "K P"]
    objective: float
    trace: tuple[float, ...]
    remains: float  # what may remain to be gained
    converged: bool
    stopped: bool  # by the observer


class _InverseHessian:
    """Product of the inverse Hessian of minus the objective with a vector, by the two-loop recursion."""

    def __init__(self) -> None:
        self._pairs: deque[tuple[Float[Array, "n"], Float[Array, "n"], float]] = deque(maxlen=_MEMORY)

    def __bool__(self) -> bool:
        return bool(self._pairs)

    def forget(self) -> None:
        """Return to the identity."""
        self._pairs.clear()

    def update(self, step: Float[Array, "n"], change: Float[Array, "n"]) -> None:
        """Remember a step and by how much the gradient fell along it, if the objective is concave there."""
        product = float(step @ change)
        if product > _CURVED * float(np.sqrt((step @ step) * (change @ change))):
            self._pairs.append((step, change, product))

    def __matmul__(self, gradient: Float[Array, "n"]) -> Float[Array, "n"]:
        found, factors = gradient.copy(), []
        for step, change, product in reversed(self._pairs):
            factors.append(float(step @ found) / product)
            found -= factors[-1] * change
        if self._pairs:
            _, change, product = self._pairs[-1]
            found *= product / float(change @ change)
        for (step, change, product), factor in zip(self._pairs, reversed(factors), strict=True):
            found += (factor - float(change @ found) / product) * step
        return found


def maximise(
    objective: Smooth,
    model: Float[Array, "K P"],
    *,
    left: float,
    max_evaluations: int,
    observer: Callable[[int, float], bool] | None = None,
) -> Ascent:
    """Climb from the model until at most about `left` remains to be gained, or `max_evaluations` are spent.

    What may remain is the larger of the gain that the quadratic approximation predicts and the gain of the last ten
    iterations. `observer(evaluations, objective)` is called after every iteration and may return True to stop.
    """
    hessian, place = _InverseHessian(), objective.place(model)
    value, gradient = objective.evaluate(model)
    trace, values = [value], [value]
    converged = stopped = False
    remains = np.inf
    while not (converged or stopped) and len(trace) < max_evaluations:
        direction = hessian @ gradient
        slope = float(gradient @ direction)
        direction_is_new = not hessian
        length = min(1.0, _LONGEST / max(objective.longest(direction), 1e-300))
        accepted = False
        for _ in range(min(_TRIALS, max_evaluations - len(trace))):
            new_place = place + length * direction
            new_model = objective.model(new_place)
            new_value, new_gradient = objective.evaluate(new_model)
            accepted = new_value >= value + _SUFFICIENT * length * slope
            trace.append(max(trace[-1], new_value) if accepted else trace[-1])
            if accepted:
                break
            length *= _shortening(value, new_value, length * slope)
        if not accepted:
            if direction_is_new or slope <= _ROUNDING * abs(value):
                remains = slope / 2
                converged = slope / 2 <= max(left, _ROUNDING * abs(value))
                break
            hessian.forget()
            continue
        hessian.update(new_place - place, gradient - new_gradient)
        place, model, value, gradient = new_place, new_model, new_value, new_gradient
        values.append(value)
        predicted = float(gradient @ (hessian @ gradient)) / 2
        remains = max(predicted, value - values[-1 - _WINDOW] if len(values) > _WINDOW else np.inf)
        converged = remains <= max(left, _ROUNDING * abs(value))
        if observer is not None:
            stopped = observer(len(trace), value)
    return Ascent(model, value, tuple(trace), remains, converged, stopped)


def _shortening(value: float, new_value: float, gain: float) -> float:
    """Return the factor on a step that the parabola through both values suggests, given the predicted gain."""
    if not np.isfinite(new_value):
        return _SHORTENED[0]
    return float(np.clip(gain / (2 * (gain - (new_value - value))), *_SHORTENED))
