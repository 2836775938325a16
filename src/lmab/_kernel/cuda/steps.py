"""Device functions that loop over the steps of one session, for one type on one lane.

Codes of a session are stored in words, `per` codes of `bits` bits each; its next word is `stride` words further (see
`shelves`). Tables and sums are flat: row `r` of a type is at `r * pitch + column`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from numba import float64, uint32, uint64

from ..arrays import per_word
from .lanes import DOUBLE, WORD, add_at, atomic_add, device, load

TINY = 1e-150  # sessions with a smaller mass use logarithms
RUN = 1e-150  # a smaller product of masses is replaced by its logarithm; times TINY it is still positive
LARGE = 2.0**31  # larger amounts go to the device's memory directly
_SMALL = 1e-100  # smaller products use logarithms
_CARRY = uint64(1 << 32)
_LOW = uint64(0xFFFFFFFF)


class WordWalks(NamedTuple):
    """Functions for single words of codes of one size; all codes count or the first few."""

    per: int
    product: Callable[..., Any]
    add: Callable[..., Any]
    carry: Callable[..., Any]
    row: Callable[..., Any]


class Walks(NamedTuple):
    """Functions for sessions with codes of one size."""

    read: Callable[..., Any]
    product: Callable[..., Any]
    add: Callable[..., Any]
    add_large: Callable[..., Any]
    add_weighted: Callable[..., Any]
    log_product: Callable[..., Any]
    log_density: Callable[..., Any]


@device
def logarithm(value):
    return math.log(value) if value > 0.0 else -math.inf


@device
def from_shared(table, row, pitch, column):
    """Return an entry of a table in shared memory; `column` is an address."""
    return load(table, uint32(column + row * uint32(pitch * DOUBLE)))


@device
def from_global(table, row, pitch, column):
    return table[uint64(row) * pitch + column]


@device
def to_shared(sums, row, pitch, column, amount, out, out_pitch, out_column):
    """Add to 32 bits in shared memory, with an address as `column`; return the previous value."""
    return add_at(sums, uint32(column + row * uint32(pitch * WORD)), amount)


@device
def to_global(sums, row, pitch, column, amount, out, out_pitch, out_column):
    """Add to `out` itself, if shared memory is too small; nothing has to be carried."""
    atomic_add(out, uint64(row) * out_pitch + out_column, uint64(amount))
    return uint32(0)


def word_walks(bits: int, shared: bool = True) -> WordWalks:
    """Return the functions for words of codes of `bits` bits, with tables and sums in shared memory or not."""
    per = per_word(bits)
    word_type = uint32 if bits == 8 else uint64
    mask = word_type((1 << bits) - 1)
    entry, add_one = (from_shared, to_shared) if shared else (from_global, to_global)

    @device
    def row(word, place):
        """Return the row of a code; the first row holds the weights."""
        return uint32(uint32((word >> word_type(place * bits)) & mask) + uint32(1))

    @device
    def product(word, n, table, pitch, column, value):
        """Return `value` times the probabilities of the first n codes of a word."""
        for place in range(per):
            if place < n:
                value *= entry(table, row(word, place), pitch, column)
        return value

    @device
    def add(word, n, sums, pitch, column, amount, out, out_pitch, out_column):
        """Add `amount` to the sums of the first n codes of a word; return the previous values of up to four.

        None of the sums waits for an earlier one.
        """
        b, c, d = uint32(0), uint32(0), uint32(0)
        a = add_one(sums, row(word, 0), pitch, column, amount, out, out_pitch, out_column)
        if n > 1:
            b = add_one(sums, row(word, 1), pitch, column, amount, out, out_pitch, out_column)
        if per > 2 and n > 2:
            c = add_one(sums, row(word, 2 % per), pitch, column, amount, out, out_pitch, out_column)
        if per > 2 and n > 3:
            d = add_one(sums, row(word, 3 % per), pitch, column, amount, out, out_pitch, out_column)
        return a, b, c, d

    @device
    def carry(word, amount, held, out, pitch, column):
        """Carry 2**32 to `out` for the sums of a word that overflow 32 bits by adding `amount`."""
        if largest(held) > uint32(~amount):
            for place in range(per):
                if held[place] > uint32(~amount):
                    atomic_add(out, uint64(row(word, place)) * pitch + column, _CARRY)

    return WordWalks(per, product, add, carry, row)


@device
def largest(held):
    """Return the largest of four values."""
    return max(max(held[0], held[1]), max(held[2], held[3]))


def walks(bits: int, shared: bool) -> Walks:
    """Return the functions for codes of `bits` bits, with sums in shared memory or not."""
    per, of_word, add_of, carry, row = word_walks(bits, shared)
    add_one = to_shared if shared else to_global
    nothing = (uint32 if bits == 8 else uint64)(0)

    @device
    def read(words, at, stride):
        """Return the words to keep in registers: none, since there may be many."""
        return nothing, nothing, nothing, nothing

    @device
    def row_of(words, at, stride, step):
        return row(words[at + uint64(uint32(step) // uint32(per)) * stride], uint32(step) % uint32(per))

    @device
    def product(kept, words, at, stride, n_steps, table, pitch, column, value):
        """Return `value` times the probabilities of all steps."""
        for _ in range(n_steps // per):
            value = of_word(words[at], per, table, pitch, column, value)
            at += stride
        if n_steps % per > 0:
            value = of_word(words[at], n_steps % per, table, pitch, column, value)
        return value

    @device
    def add(kept, words, at, stride, n_steps, sums, pitch, column, amount, out, out_pitch, out_column):
        """Add an `amount` of 32 bits to the sums of the codes of all steps."""
        for _ in range(n_steps // per):
            held = add_of(words[at], per, sums, pitch, column, amount, out, out_pitch, out_column)
            carry(words[at], amount, held, out, out_pitch, out_column)
            at += stride
        if n_steps % per > 0:
            held = add_of(words[at], n_steps % per, sums, pitch, column, amount, out, out_pitch, out_column)
            carry(words[at], amount, held, out, out_pitch, out_column)

    @device
    def add_large(words, at, stride, n_steps, amount, out, out_pitch, out_column):
        """Add an `amount` of more than 32 bits to `out`: a merged session, or a large share of a rare type."""
        step = uint32(0)
        while step < n_steps:
            atomic_add(out, uint64(row_of(words, at, stride, step)) * out_pitch + out_column, amount)
            step = uint32(step + uint32(1))

    @device
    def add_weighted(
        words, rewards, at, first, stride, n_steps, sums, pitch, column, share, top, n_arms, out, out_pitch, out_column
    ):
        """Add the share times each step's reward, moved and scaled from -top .. top to 0 .. 1."""
        for step in range(n_steps):
            this = uint32(row_of(words, at, stride, step) + n_arms)
            amount = uint64(share * (rewards[first + uint64(step) * stride] / top * 0.5 + 0.5) + 0.5)
            low, high = uint32(amount & _LOW), amount >> uint64(32) << uint64(32)
            if add_one(sums, this, pitch, column, low, out, out_pitch, out_column) > uint32(~low):
                high += _CARRY
            if high > 0:
                atomic_add(out, uint64(this) * out_pitch + out_column, high)

    @device
    def log_product(words, rewards, at, first, stride, n_steps, table, n_rows, pitch, column):
        """Return the log of the weight times the probabilities of all steps."""
        total, value = float64(0.0), table[column]
        for step in range(n_steps):
            factor = table[uint64(row_of(words, at, stride, step)) * pitch + column]
            if factor < _SMALL:
                total += logarithm(factor)
            else:
                value *= factor
                if value < _SMALL:
                    total += logarithm(value)
                    value = 1.0
        return total + logarithm(value)

    @device
    def log_density(words, rewards, at, first, stride, n_steps, table, n_rows, pitch, column):
        """Return the log of the weight times the normal densities of all steps, without their constant."""
        if table[column] == 0.0:
            return -math.inf
        squares = float64(0.0)
        for step in range(n_steps):
            mean = table[uint64(row_of(words, at, stride, step)) * pitch + column]
            deviation = rewards[first + uint64(step) * stride] - mean
            squares += deviation * deviation
        scale = table[uint64(n_rows - 1) * pitch + column]
        return logarithm(table[column]) - 0.5 * squares / (scale * scale)

    return Walks(read, product, add, add_large, add_weighted, log_product, log_density)
