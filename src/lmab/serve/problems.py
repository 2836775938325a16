"""Problem: why a request is refused, with the status of HTTP and a short code that programs can test."""

from __future__ import annotations

from ..errors import LmabError

STATUS = {
    "malformed": 400,  # not JSON, or not the fields that are asked for
    "unauthorised": 401,
    "unknown-path": 404,
    "unknown-session": 404,
    "unknown-step": 404,
    "unknown-policy": 404,
    "wrong-method": 405,
    "out-of-order": 409,
    "other-reward": 409,
    "too-late": 410,
    "too-large": 413,
    "unknown-arm": 422,
    "unknown-reward": 422,
    "beyond-horizon": 422,
    "bad-value": 422,
    "bad-policy": 422,
    "busy": 429,
    "no-policy": 503,
    "no-store": 503,
}


class Problem(LmabError):
    """A request that cannot be answered."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.status = code, STATUS[code]
