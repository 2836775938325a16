"""Packing: turn the rows of a log into a packed log, batch by batch."""

from .pack import pack as pack
