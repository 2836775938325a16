"""Array annotations with shapes, `Float[Array, "M A"]`: executed under the tests, plain documentation elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Integer, Shaped, UInt8
else:
    try:
        from jaxtyping import Bool, Float, Integer, Shaped, UInt8
    except ImportError:

        class _Documentation:
            """`Float[np.ndarray, "M A"]` where jaxtyping is not installed."""

            def __class_getitem__(cls, item: Any) -> type:
                return np.ndarray

        Bool = Float = Integer = Shaped = UInt8 = _Documentation

Array = np.ndarray

__all__ = ["Array", "Bool", "Float", "Integer", "Shaped", "UInt8"]
