"""Walks over the steps of one session, for one context on one lane: what the kernels of a GPU are made of.

Codes of a session lie in words, `per` codes of `bits` bits each; its next word lies `stride` words further (see
`shelves`). Tables and sums are flat: row `r` of a context is at `r * pitch + column`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from numba import float64, uint32, uint64

from ..reference.shelves import per_word
from .lanes import atomic_add, device

LOG_BITS = 24  # below the point of a tile's log-likelihood
LOG_ONE = float(1 << LOG_BITS)
TINY = 1e-30  # single precision is not trusted with sessions whose mass is below
RUN = 1e-200  # a product of masses goes to the logarithms below
_SMALL = 1e-100  # products below this go to the logarithms
_CARRY = uint64(1 << 32)


class Walks(NamedTuple):
    """The functions for codes of one size."""

    product: Callable[..., Any]
    add: Callable[..., Any]
    add_high: Callable[..., Any]
    add_weighted: Callable[..., Any]
    log_product: Callable[..., Any]
    log_density: Callable[..., Any]


class WordWalks(NamedTuple):
    """The functions for single words, all of whose codes count or the first few."""

    per: int
    product: Callable[..., Any]
    product_of: Callable[..., Any]
    add_of: Callable[..., Any]
    carry_over: Callable[..., Any]


def share_one(width: int) -> float:
    """What a session counts: more where more contexts share it, since their shares are smaller."""
    return {8: 2.0**24, 16: 2.0**25, 32: 2.0**26}[width]


def registers(width: int) -> int:
    """Of a thread for sessions of any length: with fewer, more threads hide each other's waits (measured)."""
    return 48 if width == 8 else 64


@device
def give_sums(sums, offset, out, first, columns, n_rows, pitch, width, thread, n_threads):
    """Add the sums of shared memory, those of all groups together, to `out`."""
    for i in range(thread, n_rows * width, n_threads):
        total = uint64(0)
        for column in range(i % width, pitch, width):
            total += uint64(sums[offset + i // width * pitch + column])
        if total > 0:
            atomic_add(out, first + uint64(i // width) * columns + uint64(i % width), total)


@device
def load_table(table, single, first, columns, n_rows, pitch, width, thread, n_threads):
    """Bring a piece of the table to shared memory, repeated for every group where `pitch` is 32."""
    for i in range(thread, n_rows * pitch, n_threads):
        table[i] = single[first + uint64(i // pitch) * columns + uint64(i % width)]


@device
def logarithm(value):
    return math.log(value) if value > 0.0 else -math.inf


@device
def shared_add(sums, place, amount, most, out, target):
    """Add to 32 bits in shared memory; whether they could not hold it, so that 2**32 must be carried to `out`."""
    return atomic_add(sums, place, amount) > most


@device
def global_add(sums, place, amount, most, out, target):
    """Add to `out` itself, where shared memory is too small: nothing is carried."""
    atomic_add(out, target, uint64(amount))
    return False


def word_walks(bits: int, shared: bool = True) -> WordWalks:
    """The functions for words of codes of `bits` bits, with sums in shared memory or not."""
    per = per_word(bits)
    word_type = uint32 if bits == 8 else uint64
    mask = word_type((1 << bits) - 1)
    add_one = shared_add if shared else global_add

    @device
    def row(word):
        return uint32(uint32(word & mask) + uint32(1))

    @device
    def product(word, table, pitch, column, value):
        """`value` times the probabilities of all codes of a word."""
        for place in range(per):
            value *= table[uint32(row(word >> word_type(place * bits)) * pitch) + column]
        return value

    @device
    def product_of(word, n, table, pitch, column, value):
        """The same for the first n codes."""
        for place in range(per):
            if place < n:
                value *= table[uint32(row(word >> word_type(place * bits)) * pitch) + column]
        return value

    @device
    def add_of(word, n, sums, pitch, column, amount, out, out_pitch, out_column):
        """Add `amount` to the sums of the first n codes of a word; bits of those that could not hold it.

        None of the sums waits for the one before.
        """
        most, carry = uint32(uint32(0xFFFFFFFF) - amount), uint32(0)
        for place in range(per):
            if place < n:
                this = row(word >> word_type(place * bits))
                full = add_one(sums, uint32(this * pitch) + column, amount, most, out, this * out_pitch + out_column)
                carry |= uint32(uint32(full) << uint32(place))
        return carry

    @device
    def carry_over(word, carry, out, out_pitch, out_column):
        """Carry 2**32 to `out` for the codes whose bits are set."""
        if carry > 0:
            for place in range(per):
                if (carry >> uint32(place)) & uint32(1) > 0:
                    atomic_add(out, row(word >> word_type(place * bits)) * out_pitch + out_column, _CARRY)

    return WordWalks(per, product, product_of, add_of, carry_over)


def walks(bits: int, shared: bool) -> Walks:
    """The functions for codes of `bits` bits, with sums in shared memory or not."""
    per, of_word, of_rest, add_of, carry_over = word_walks(bits, shared)
    word_type = uint32 if bits == 8 else uint64
    mask = word_type((1 << bits) - 1)
    add_one = shared_add if shared else global_add

    @device
    def row(word):
        return uint32(uint32(word & mask) + uint32(1))

    @device
    def product(words, at, stride, n_steps, table, pitch, column, value):
        """`value` times the probabilities of all steps."""
        for _ in range(n_steps // per):
            value = of_word(words[at], table, pitch, column, value)
            at += stride
        if n_steps % per > 0:
            value = of_rest(words[at], n_steps % per, table, pitch, column, value)
        return value

    @device
    def add(words, at, stride, n_steps, sums, pitch, column, amount, out, out_pitch, out_column):
        """Add `amount` to the sums of the codes of all steps."""
        for _ in range(n_steps // per):
            carry = add_of(words[at], per, sums, pitch, column, amount, out, out_pitch, out_column)
            carry_over(words[at], carry, out, out_pitch, out_column)
            at += stride
        if n_steps % per > 0:
            carry = add_of(words[at], n_steps % per, sums, pitch, column, amount, out, out_pitch, out_column)
            carry_over(words[at], carry, out, out_pitch, out_column)

    @device
    def add_high(words, at, stride, n_steps, amount, out, out_pitch, out_column):
        """Add an `amount` of more than 32 bits: many sessions in one."""
        for step in range(n_steps):
            word = words[at + uint64(step // per) * stride] >> word_type(step % per * bits)
            atomic_add(out, row(word) * out_pitch + out_column, amount)

    @device
    def add_weighted(
        words, rewards, at, first, stride, n_steps, sums, pitch, column, share, top, n_arms, out, out_pitch, out_column
    ):
        """Add the share times each step's reward, moved and scaled from -top .. top to 0 .. 1."""
        for step in range(n_steps):
            word = words[at + uint64(step // per) * stride] >> word_type(step % per * bits)
            this = row(word) + n_arms
            amount = uint32(share * (rewards[first + uint64(step) * stride] / top * 0.5 + 0.5) + 0.5)
            most = uint32(uint32(0xFFFFFFFF) - amount)
            if add_one(sums, this * pitch + column, amount, most, out, this * out_pitch + out_column):
                atomic_add(out, this * out_pitch + out_column, _CARRY)

    @device
    def log_product(words, rewards, at, first, stride, n_steps, table, n_rows, pitch, column):
        """log of the weight times the probabilities of all steps, in double precision."""
        total, value = float64(0.0), table[column]
        for step in range(n_steps):
            word = words[at + uint64(step // per) * stride] >> word_type(step % per * bits)
            factor = table[row(word) * pitch + column]
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
        """log of the weight times the normal densities of all steps, without their constant."""
        if table[column] == 0.0:
            return -math.inf
        squares = float64(0.0)
        for step in range(n_steps):
            word = words[at + uint64(step // per) * stride] >> word_type(step % per * bits)
            deviation = rewards[first + uint64(step) * stride] - table[row(word) * pitch + column]
            squares += deviation * deviation
        scale = table[uint64(n_rows - 1) * pitch + column]
        return logarithm(table[column]) - 0.5 * squares / (scale * scale)

    return Walks(product, add, add_high, add_weighted, log_product, log_density)
