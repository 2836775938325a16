"""Moments of a log: the subspace that the types span, core sets, and the moments over a core set."""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from ..paper.high_orders import CoreMoments as CoreMoments
    from ..paper.high_orders import core_moments as core_moments
    from .core_set import Design as Design
    from .core_set import design as design
    from .second import Moments as Moments
    from .second import Subspace as Subspace
    from .second import second_moments as second_moments
    from .second import subspace as subspace

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        "..paper.high_orders": "CoreMoments core_moments",
        ".core_set": "Design design",
        ".second": "Moments Subspace second_moments subspace",
    },
)
