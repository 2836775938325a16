"""Components of a latent class model: what a session tells beside rewards, one kind of information each."""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from .component import Component as Component
    from .component import Rows as Rows

__getattr__, __dir__, __all__ = attach(__name__, {".component": "Component Rows"})
