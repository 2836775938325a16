"""The service behind HTTP: routes, tokens, limits, and every problem as JSON."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from .messages import Arms, Ask, Erased, Kept, Promotion, Refusal, Rewards, VersionInfo, Versions
from .metrics import Metrics
from .openapi import openapi
from .problems import Problem
from .service import Service
from .stories import tell_story
from .summary import Summaries

MAX_BODY = 64 * 1024
MAX_POLICY = 64 * 1024 * 1024
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
_JSON = (b"content-type", b"application/json")
_OPEN = {"/", "/healthz", "/readyz", "/openapi.json"}  # need no token: they hold nothing of any session
_encode = msgspec.json.Encoder().encode
_decode_ask = msgspec.json.Decoder(Ask).decode


def make_app(service: Service, tokens: Sequence[str] = (), metrics: Metrics | None = None) -> ASGIApp:
    """The ASGI application of a service; without tokens every request is let in."""
    return _Front(service, tuple(token.encode() for token in tokens), metrics or Metrics())


class _Front:
    """Decisions take the short way; everything else goes through Starlette."""

    def __init__(self, service: Service, tokens: tuple[bytes, ...], metrics: Metrics) -> None:
        self.service, self.tokens, self.metrics = service, tokens, metrics
        self.rest = _starlette(service, metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.rest(scope, receive, send)
            return
        path = scope["path"]
        try:
            self._check_token(path, scope)
            if path != "/v1/decide":
                await self.rest(scope, receive, send)
                return
            if scope["method"] != "POST":
                raise Problem("wrong-method", f"the method must be POST, got {scope['method']}")
            began = time.perf_counter()
            body = await read_body(scope, receive, MAX_BODY)
            answer, status = _encode(await self.service.decide(_decoded(_decode_ask, body))), 200
            self.metrics.decided(time.perf_counter() - began)
        except Problem as problem:
            answer, status = _refusal(problem), problem.status
        self.metrics.requests[path if path == "/v1/decide" else "refused", status] += 1
        await _send(send, status, answer)

    def _check_token(self, path: str, scope: Scope) -> None:
        if not self.tokens or path in _OPEN:
            return
        given = dict(scope["headers"]).get(b"authorization", b"")
        kind, _, token = given.partition(b" ")
        if kind.lower() != b"bearer" or not any(hmac.compare_digest(token, one) for one in self.tokens):
            raise Problem("unauthorised", "the header Authorization must be 'Bearer' and a token of the service")


async def _send(send: Send, status: int, body: bytes) -> None:
    headers = [_JSON, (b"content-length", str(len(body)).encode())]
    if status == 429:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _refusal(problem: Problem) -> bytes:
    return _encode(Refusal(str(problem), problem.code))


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
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
    return b"".join(parts)


def _decoded(decode: Callable[[bytes], Any], body: bytes) -> Any:
    try:
        return decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem("malformed", str(error)) from None


async def _body(request: Request, kind: type[Any]) -> Any:
    body = await read_body(request.scope, request.receive, MAX_BODY)
    return _decoded(lambda data: msgspec.json.decode(data, type=kind), body)


def _starlette(service: Service, metrics: Metrics) -> Starlette:
    """Every path but /v1/decide."""
    summaries = Summaries(service, metrics)

    async def rewards(request: Request) -> Any:
        return Kept(await service.reward((await _body(request, Rewards)).rewards))

    async def session(request: Request) -> Any:
        return tell_story(service, *await service.story(request.path_params["session"]))

    async def person(request: Request) -> Any:
        return Erased(await service.erase(request.path_params["person"]))

    async def policies(request: Request) -> Any:
        if request.method == "GET":
            return await _versions(service)
        body = await read_body(request.scope, request.receive, MAX_POLICY)
        version = await service.add_version(body, request.query_params.get("note", "")[:500])
        return VersionInfo(version.name, service.clock(), 0.0, "")

    async def promote(request: Request) -> Any:
        told = await _body(request, Promotion)
        await service.promote(request.path_params["version"], told.share)
        return await _versions(service)

    async def rollback(request: Request) -> Any:
        await service.rollback()
        return await _versions(service)

    async def arms(request: Request) -> Any:
        if request.method == "PUT":
            await service.set_arms((await _body(request, Arms)).arms)
        return Arms([label for label, is_open in service.labels if is_open])

    async def ready(request: Request) -> Response:
        trouble = service.trouble or ("" if service.labels else "the service has no arms and no policy")
        broken = next(iter(service.broken.values()), "")
        answer = {"ready": not trouble, "store": service.trouble or "open", "policy": service.turn.active}
        answer |= {"trouble": trouble or broken}
        return Response(json.dumps(answer), 503 if trouble else 200, media_type="application/json")

    async def text(request: Request) -> Response:
        gauges = {"queue": service.commits.depth, "sessions_in_memory": service.n_live, "ready": int(service.ready)}
        counts = {f"{name}_total": count for name, count in service.counts.items()}
        counts |= {"commits_total": service.commits.n_commits, "committed_jobs_total": service.commits.n_jobs}
        return PlainTextResponse(metrics.text(gauges, counts))

    async def health(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def description(request: Request) -> Any:
        return openapi()

    async def summary(request: Request) -> Any:
        return await summaries.now()

    async def page(request: Request) -> Response:
        text = resources.files(__package__).joinpath("page.html").read_text("utf-8")
        return HTMLResponse(text, headers={"content-security-policy": _POLICY})

    answering = _Answering(metrics)
    routes = [
        Route("/", page),
        Route("/v1/rewards", answering(rewards), methods=["POST"]),
        Route("/v1/sessions/{session:path}", answering(session)),
        Route("/v1/persons/{person:path}", answering(person), methods=["DELETE"]),
        Route("/v1/policies", answering(policies), methods=["GET", "PUT"]),
        Route("/v1/policies/{version}:promote", answering(promote), methods=["POST"]),
        Route("/v1/policies:rollback", answering(rollback), methods=["POST"]),
        Route("/v1/arms", answering(arms), methods=["GET", "PUT"]),
        Route("/v1/summary", answering(summary)),
        Route("/openapi.json", answering(description)),
        Route("/healthz", health),
        Route("/readyz", ready),
        Route("/metrics", text),
    ]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()

    handlers: Any = {404: _unknown, 405: _wrong_method}
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)


class _Answering:
    """Turns a function that returns a message into an endpoint; problems become refusals."""

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics

    def __call__(self, function: Callable[[Request], Awaitable[Any]]) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                body, status = _encode(await function(request)), 200
            except Problem as problem:
                body, status = _refusal(problem), problem.status
            self.metrics.requests[function.__name__, status] += 1
            headers = {"retry-after": "1"} if status == 429 else None
            return Response(body, status, headers, media_type="application/json")

        return endpoint


async def _unknown(request: Request, error: Exception) -> Response:
    problem = Problem("unknown-path", f"there is nothing at {request.url.path}")
    return Response(_refusal(problem), problem.status, media_type="application/json")


async def _wrong_method(request: Request, error: Exception) -> Response:
    problem = Problem("wrong-method", f"{request.url.path} does not take {request.method}")
    return Response(_refusal(problem), problem.status, media_type="application/json")


async def _versions(service: Service) -> Versions:
    service.require_store()
    turn = service.turn
    shares = {turn.active: 1 - turn.share} | ({} if turn.canary is None else {turn.canary: turn.share})
    rows = await service.asked(service.store.versions())
    infos = [VersionInfo(row.version, row.at, shares.get(row.version, 0.0), row.note) for row in rows]
    return Versions(turn.active, turn.canary, turn.share, infos)
