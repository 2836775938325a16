"""The service behind HTTP: tokens, and the short way of a decision; everything else goes through `routes`."""

from __future__ import annotations

import hmac
import time
from collections.abc import Sequence

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from .bodies import decoded, encode, read_body, refusal
from .messages import Ask
from .metrics import Metrics
from .problems import Problem
from .routes import routes
from .service import Service

_DECIDE = "/v1/decide"
_DECIDED = (_DECIDE, 200)
_JSON = (b"content-type", b"application/json")
_OPEN = {"/", "/healthz", "/readyz", "/openapi.json"}  # need no token: they hold nothing of any session
_decode_ask = msgspec.json.Decoder(Ask).decode


def make_app(service: Service, tokens: Sequence[str] = (), metrics: Metrics | None = None) -> ASGIApp:
    """The ASGI application of a service; without tokens every request is let in."""
    return _Front(service, tuple(token.encode() for token in tokens), metrics or Metrics())


class _Front:
    """Decisions take the short way; everything else goes through Starlette."""

    def __init__(self, service: Service, tokens: tuple[bytes, ...], metrics: Metrics) -> None:
        self.service, self.tokens, self.metrics = service, tokens, metrics
        self.rest = routes(service, metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.rest(scope, receive, send)
            return
        path = scope["path"]
        try:
            if self.tokens and path not in _OPEN:
                self._check_token(scope)
            if path != _DECIDE:
                await self.rest(scope, receive, send)
                return
            if scope["method"] != "POST":
                raise Problem("wrong-method", f"the method must be POST, got {scope['method']}")
            began = time.perf_counter()
            ask = decoded(_decode_ask, await read_body(scope, receive))
            answer = encode(await self.service.decide(ask))
            self.metrics.decided(time.perf_counter() - began)
        except Problem as problem:
            self.metrics.requests[path if path == _DECIDE else "refused", problem.status] += 1
            more = [(b"retry-after", b"1")] if problem.status == 429 else []
            await _send(send, problem.status, refusal(problem), more)
            return
        self.metrics.requests[_DECIDED] += 1
        await _send(send, 200, answer, [])

    def _check_token(self, scope: Scope) -> None:
        given = dict(scope["headers"]).get(b"authorization", b"")
        kind, _, token = given.partition(b" ")
        if kind.lower() != b"bearer" or not any(hmac.compare_digest(token, one) for one in self.tokens):
            raise Problem("unauthorised", "the header Authorization must be 'Bearer' and a token of the service")


async def _send(send: Send, status: int, body: bytes, more: list[tuple[bytes, bytes]]) -> None:
    headers = [_JSON, (b"content-length", b"%d" % len(body)), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
