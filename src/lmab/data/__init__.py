"""Logs: sessions in memory, and how they come in from frames and files."""

from .episodes import Episodes as Episodes
from .fingerprint import Fingerprint as Fingerprint
from .log_files import is_csv as is_csv
