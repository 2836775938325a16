"""Array annotations with shapes, `Float[Array, "M A"]`: the tests check them; otherwise they are documentation."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING or "jaxtyping" in sys.modules:  # the tests import it before the package, to check shapes
    from jaxtyping import Bool, Float, Integer, Shaped, UInt8
else:

    class _Documentation:
        """Placeholder of `Float[Array, "M A"]` if shapes are not checked."""

        def __class_getitem__(cls, item: Any) -> type:
            return np.ndarray

    Bool = Float = Integer = Shaped = UInt8 = _Documentation

Array = np.ndarray

__all__ = ["Array", "Bool", "Float", "Integer", "Shaped", "UInt8"]
