"""Logs: sessions in memory, read from data frames and files."""

from .fingerprint import Fingerprint as Fingerprint
from .ingest import MISSING as MISSING
from .log_files import is_csv as is_csv
from .packed import Packed as Packed
from .packed import Partitions as Partitions
from .packed import is_packed as is_packed
from .packing import pack as pack
from .sessions import Sessions as Sessions
from .sessions import require_log as require_log
from .sessions import sample_rows as sample_rows
