"""Bodies of requests and answers: read within a limit, decoded, encoded; every problem as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from starlette.types import Receive, Scope

from .messages import Refusal
from .problems import Problem

MAX_BODY = 64 * 1024
encode = msgspec.json.Encoder().encode


async def read_body(scope: Scope, receive: Receive, limit: int = MAX_BODY) -> bytes:
    """The body of a request, refused as soon as it is longer than `limit`."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > limit:
            raise Problem("too-large", f"the body must have at most {limit} bytes, got {int(value)}")
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Problem("malformed", "the client went away")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise Problem("too-large", f"the body must have at most {limit} bytes")
        more = message.get("more_body", False)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def decoded(decode: Callable[[bytes], Any], body: bytes) -> Any:
    """What a body says, or a problem."""
    try:
        return decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem("malformed", str(error)) from None


def refusal(problem: Problem) -> bytes:
    """A problem as JSON."""
    return encode(Refusal(str(problem), problem.code))
