"""Passes on a GPU: the log stays on the device, and the expectation step runs there."""

from .passes import Gpu as Gpu
from .passes import missing as missing
