"""Walks over short sessions: their words stay in registers, and no loop depends on their length."""

from __future__ import annotations

from numba import uint32

from .lanes import device
from .steps import Walks, largest, walks, word_walks


def short_walks(bits: int, n_words: int, last: int) -> Walks:
    """The functions for sessions of equally many words, with sums in shared memory.

    Args:
        bits: of a code.
        n_words: of a session: 1 to 4.
        last: steps in the last word; 0: as the length of the session says.
    """
    per, of_word, add_of, carry, _ = word_walks(bits)
    before = (n_words - 1) * per  # steps in the other words
    none = uint32(0), uint32(0), uint32(0), uint32(0)

    @device
    def read(words, at, stride):
        """The words of a session, the last one last; where there are fewer than four, it comes earlier, too."""
        a = words[at]
        b = words[at + stride] if n_words > 1 else a
        c = words[at + stride + stride] if n_words > 2 else b
        d = words[at + stride + stride + stride] if n_words > 3 else c
        return a, b, c, d

    @device
    def product(kept, words, at, stride, n_steps, table, pitch, column, value):
        a, b, c, d = kept
        rest = last if last > 0 else n_steps - before
        if n_words > 1:
            value = of_word(a, per, table, pitch, column, value)
        if n_words > 2:
            value = of_word(b, per, table, pitch, column, value)
        if n_words > 3:
            value = of_word(c, per, table, pitch, column, value)
        return of_word(d, rest, table, pitch, column, value)

    @device
    def add(kept, words, at, stride, n_steps, sums, pitch, column, amount, out, out_pitch, out_column):
        a, b, c, d = kept
        rest = last if last > 0 else n_steps - before
        first, second, third = none, none, none
        if n_words > 1:
            first = add_of(a, per, sums, pitch, column, amount, out, out_pitch, out_column)
        if n_words > 2:
            second = add_of(b, per, sums, pitch, column, amount, out, out_pitch, out_column)
        if n_words > 3:
            third = add_of(c, per, sums, pitch, column, amount, out, out_pitch, out_column)
        fourth = add_of(d, rest, sums, pitch, column, amount, out, out_pitch, out_column)
        if max(max(largest(first), largest(second)), max(largest(third), largest(fourth))) > uint32(~amount):
            carry(a, amount, first, out, out_pitch, out_column)  # once, so that no sum waits for those before
            carry(b, amount, second, out, out_pitch, out_column)
            carry(c, amount, third, out, out_pitch, out_column)
            carry(d, amount, fourth, out, out_pitch, out_column)

    return walks(bits, shared=True)._replace(read=read, product=product, add=add)
