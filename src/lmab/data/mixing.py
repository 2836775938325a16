"""Mixing of 64-bit words, for checksums and hashes."""

from __future__ import annotations

import numpy as np

from .._shapes import Array, Shaped


def mixed(words: Shaped[Array, "*n"]) -> Shaped[Array, "*n"]:
    """Each word of 64 bits, mixed so that every bit depends on all bits (the mixer of SplitMix64)."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
