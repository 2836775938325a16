"""Logs: sessions in memory, read from data frames and files."""

from typing import TYPE_CHECKING

from .._lazy import attach

if TYPE_CHECKING:
    from .fingerprint import Fingerprint as Fingerprint
    from .packed import Packed as Packed
    from .packing import pack as pack
    from .sessions import Sessions as Sessions
    from .splitting import LogSplit as LogSplit
    from .splitting import split_log as split_log

__getattr__, __dir__, __all__ = attach(
    __name__,
    {
        ".fingerprint": "Fingerprint",
        ".packed": "Packed",
        ".packing": "pack",
        ".sessions": "Sessions",
        ".splitting": "LogSplit split_log",
    },
)
