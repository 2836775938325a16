"""Instructions of the GPU that numba-cuda has no name for, as one line of PTX each."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.cuda.extending import intrinsic

_DOUBLE, _WORD, _LONG = ir.DoubleType(), ir.IntType(32), ir.IntType(64)


def _line(builder: Any, text: str, kinds: str, result: Any, *arguments: Any) -> Any:
    """The value of a line, for which nothing is assumed but its text and the kinds of its operands."""
    function = ir.FunctionType(result, [one.type for one in arguments])
    return builder.call(ir.InlineAsm(function, text, kinds, side_effect=True), arguments)


@intrinsic
def first(type_, array):
    """The address of the first entry of an array in shared memory."""

    def generate(target, builder, signature, arguments):
        held = cgutils.create_struct_proxy(signature.args[0])(target, builder, value=arguments[0])
        anywhere = builder.ptrtoint(held.data, _LONG)
        return builder.trunc(_line(builder, "cvta.to.shared.u64 $0, $1;", "=l,l", _LONG, anywhere), _WORD)

    return types.uint32(array), generate


@intrinsic
def load(type_, address):
    """The float64 at an address."""

    def generate(target, builder, signature, arguments):
        return _line(builder, "ld.shared.f64 $0, [$1];", "=d,r", _DOUBLE, *arguments)

    return types.float64(types.uint32), generate


@intrinsic
def add(type_, address, amount):
    """Add to the 32 bits at an address; what was there before."""

    def generate(target, builder, signature, arguments):
        return _line(builder, "atom.shared.add.u32 $0, [$1], $2;", "=r,r,r", _WORD, *arguments)

    return types.uint32(types.uint32, types.uint32), generate


@intrinsic
def rough_reciprocal(type_, value):
    """1 / value to about 6 digits."""

    def generate(target, builder, signature, arguments):
        return _line(builder, "rcp.approx.ftz.f64 $0, $1;", "=d,d", _DOUBLE, *arguments)

    return types.float64(types.float64), generate
