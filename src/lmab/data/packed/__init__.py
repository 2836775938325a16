"""Packed logs: sessions in files that are read in place, for logs larger than memory."""

from .log import Packed as Packed
from .log import is_packed as is_packed
from .manifest import MANIFEST as MANIFEST
from .manifest import Entry as Entry
from .manifest import Manifest as Manifest
from .partitions import Partitions as Partitions
