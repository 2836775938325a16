"""The service behind HTTP: who may ask what, the short way of a decision, and every other path."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from importlib import resources
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import InvalidFile
from . import messages
from .messages import STATUS, Arms, Problem, Promotion, Question, Refusal, Rewards, RewardsStored, VersionInfo, Versions
from .service import Service
from .watch import Metrics, Summaries, session_history

MAX_BODY = 64 * 1024
MAX_POLICY = 64 * 1024 * 1024
ROLES = ("decide", "watch", "operate", "erase")
_DECIDE = "/v1/decide"
_DECIDED = (_DECIDE, 200)
_JSON = (b"content-type", b"application/json")
_FILES = {"/": "page.html", "/page.js": "page.js", "/page.css": "page.css"}
_KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
_OPEN = {*_FILES, "/healthz", "/readyz", "/openapi.json"}  # need no token: they hold nothing of any session
_SECURITY = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; frame-ancestors 'none'; "
        b"base-uri 'none'; form-action 'none'",
    ),
]
encode = msgspec.json.Encoder().encode
_decode_question = msgspec.json.Decoder(Question).decode


class Access:
    """Who may ask what: tokens with their roles; without tokens, whoever reaches the service from its own machine.

    A line of `lines` is a token and its roles, "decide" where none is named. "operate" includes "watch".

    Examples:
        >>> access = Access(["shop-front", "team watch operate"])
        >>> sorted(access.tokens[b"team"]), sorted(access.tokens[b"shop-front"])
        (['operate', 'watch'], ['decide'])
    """

    def __init__(self, lines: Iterable[str] = ()) -> None:
        self.tokens: dict[bytes, frozenset[str]] = {}
        self.replace(lines)

    def replace(self, lines: Iterable[str]) -> None:
        """Take other tokens, all or none of them."""
        found = {}
        for line in lines:
            token, *roles = line.split()
            if not set(roles) <= set(ROLES):
                raise InvalidFile(f"the roles of a token must be among {', '.join(ROLES)}, got {', '.join(roles)}")
            found[token.encode()] = frozenset(roles or ["decide"]) | ({"watch"} if "operate" in roles else set())
        self.tokens = found

    def check(self, scope: Scope) -> None:
        """Raise where this request is not allowed."""
        headers = dict(scope["headers"])
        if not self.tokens:
            _check_site(headers)
        elif scope["path"] not in _OPEN:
            role, given = role_of(scope["method"], scope["path"]), headers.get(b"authorization", b"")
            kind, _, token = given.partition(b" ")
            roles = next((own for one, own in self.tokens.items() if hmac.compare_digest(token.strip(), one)), None)
            if kind.lower() != b"bearer" or roles is None:
                raise Problem("unauthorised", "the header Authorization must be 'Bearer' and a token of the service")
            if role not in roles:
                raise Problem("forbidden", f"this needs a token with the role {role!r}, got {', '.join(sorted(roles))}")


def role_of(method: str, path: str) -> str:
    """The role that a request needs."""
    if path in (_DECIDE, "/v1/rewards"):
        return "decide"
    if path.startswith("/v1/persons/"):
        return "erase"
    return "watch" if method in ("GET", "HEAD") else "operate"


def _check_site(headers: dict[bytes, bytes]) -> None:
    """Without tokens a web page of another site must not reach the service through somebody's browser.

    Such a page names its own site in Origin; one whose name was pointed at this machine names it in Host. Names
    without a dot and addresses cannot be pointed elsewhere by others.
    """
    host = headers.get(b"host", b"").decode("latin-1")
    name = re.sub(r":\d+$", "", host).strip("[]")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        if "." in name:
            text = (
                f"the header Host must be an address or a name without a dot as long as there are no tokens, got {name}"
            )
            raise Problem("forbidden", text) from None
    origin = headers.get(b"origin", b"").decode("latin-1")
    if origin and origin.partition("://")[2] != host:
        raise Problem("forbidden", f"web pages of another site may not ask, got Origin {origin}")


def make_app(service: Service, access: Access | Iterable[str] = (), metrics: Metrics | None = None) -> ASGIApp:
    """The ASGI application of a service; `access` holds the tokens, or is a list of them."""
    return _Front(service, access if isinstance(access, Access) else Access(access), metrics or Metrics())


class _Front:
    """Decisions take the short way; everything else goes through Starlette."""

    def __init__(self, service: Service, access: Access, metrics: Metrics) -> None:
        self.service, self.access, self.metrics = service, access, metrics
        self.rest = _routes(service, metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.rest(scope, receive, send)
            return
        path = scope["path"]
        try:
            self.access.check(scope)
            if path != _DECIDE:
                await self.rest(scope, receive, _secured(send))
                return
            if scope["method"] != "POST":
                raise Problem("wrong-method", f"the method must be POST, got {scope['method']}")
            began = time.perf_counter()
            question = decoded(_decode_question, await read_body(scope, receive))
            answer = encode(await self.service.decide(question))
            self.metrics.decided(time.perf_counter() - began)
        except Problem as problem:
            self.metrics.requests[path if path == _DECIDE else "refused", problem.status] += 1
            more = {429: [(b"retry-after", b"1")], 401: [(b"www-authenticate", b"Bearer")]}.get(problem.status, [])
            await _send(send, problem.status, refusal(problem), more)
            return
        self.metrics.requests[_DECIDED] += 1
        await _send(send, 200, answer, [])


def _secured(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *_SECURITY]
        await send(message)

    return sending


async def _send(send: Send, status: int, body: bytes, more: list[tuple[bytes, bytes]]) -> None:
    headers = [_JSON, (b"content-length", b"%d" % len(body)), *_SECURITY, *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


# Bodies


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


async def _body(request: Request, kind: type[Any]) -> Any:
    body = await read_body(request.scope, request.receive)
    return decoded(lambda data: msgspec.json.decode(data, type=kind), body)


# Every path but /v1/decide


def _routes(service: Service, metrics: Metrics) -> Starlette:
    """The application of these paths, which starts and stops the service."""
    paths, watched = _Paths(service, Summaries(service, metrics)), _Watched(service, metrics)
    table = [
        ("/v1/rewards", paths.rewards, ["POST"]),
        ("/v1/sessions/{session:path}", paths.session, ["GET"]),
        ("/v1/persons/{person:path}", paths.person, ["DELETE"]),
        ("/v1/policies", paths.policies, ["GET", "PUT"]),
        ("/v1/policies/{version}:promote", paths.promote, ["POST"]),
        ("/v1/policies:rollback", paths.rollback, ["POST"]),
        ("/v1/arms", paths.arms, ["GET", "PUT"]),
        ("/v1/summary", paths.summary, ["GET"]),
        ("/openapi.json", paths.description, ["GET"]),
    ]
    found = [Route(path, _answering(metrics, function), methods=methods) for path, function, methods in table]
    found += [Route(path, _file) for path in _FILES]
    found += [Route("/healthz", watched.health), Route("/readyz", watched.ready), Route("/metrics", watched.text)]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()

    handlers: Any = {404: _unknown, 405: _wrong_method}
    return Starlette(routes=found, lifespan=lifespan, exception_handlers=handlers)


class _Paths:
    """What is answered as a message."""

    def __init__(self, service: Service, summaries: Summaries) -> None:
        self.service, self.register, self.summaries = service, service.register, summaries

    async def rewards(self, request: Request) -> Any:
        return RewardsStored(await self.service.reward((await _body(request, Rewards)).rewards))

    async def session(self, request: Request) -> Any:
        found = await self.service.history(request.path_params["session"])
        return await asyncio.to_thread(session_history, self.service, *found)  # it may have many steps

    async def person(self, request: Request) -> Any:
        return await self.service.erase(request.path_params["person"])

    async def policies(self, request: Request) -> Any:
        if request.method == "GET":
            return await self._versions()
        body = await read_body(request.scope, request.receive, MAX_POLICY)
        added = await self.register.add_version(body, request.query_params.get("note", "")[:500])
        return VersionInfo(added.name, self.service.clock(), 0.0, "")

    async def promote(self, request: Request) -> Any:
        promotion = await _body(request, Promotion)
        await self.register.promote(request.path_params["version"], promotion.share)
        return await self._versions()

    async def rollback(self, request: Request) -> Any:
        await self.register.rollback()
        return await self._versions()

    async def arms(self, request: Request) -> Any:
        if request.method == "PUT":
            await self.register.set_arms((await _body(request, Arms)).arms)
        return Arms([arm.label for arm in self.register.arms if arm.is_open])

    async def summary(self, request: Request) -> Any:
        return await self.summaries.now()

    async def description(self, request: Request) -> Any:
        return openapi()

    async def _versions(self) -> Versions:
        self.register.require_store()
        rollout = self.register.rollout
        shares = {rollout.active: 1 - rollout.share}
        if rollout.canary is not None:
            shares[rollout.canary] = rollout.share
        rows = await self.register.asked(self.register.store.versions())
        infos = [VersionInfo(row.version, row.at, shares.get(row.version, 0.0), row.note) for row in rows]
        return Versions(rollout.active, rollout.canary, rollout.share, infos)


class _Watched:
    """What machines look at."""

    def __init__(self, service: Service, metrics: Metrics) -> None:
        self.service, self.metrics = service, metrics

    async def health(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(self, request: Request) -> Response:
        service, register = self.service, self.service.register
        trouble = await service.unable()
        broken = next(iter(register.broken.values()), "")
        answer = {"ready": not trouble, "store": service.trouble or "open", "policy": register.rollout.active}
        answer |= {"trouble": trouble or broken}
        return Response(json.dumps(answer), 503 if trouble else 200, media_type="application/json")

    async def text(self, request: Request) -> Response:
        service, commits = self.service, self.service.commits
        ready = int(service.register.ready and not await service.unable())
        gauges: dict[str, float] = {"queue": commits.depth, "sessions_in_memory": service.n_live, "ready": ready}
        gauges |= {"canary_share": service.register.rollout.share, "broken_versions": len(service.register.broken)}
        counts = {f"{name}_total": count for name, count in service.counts.items()}
        counts |= {"commits_total": commits.n_commits, "committed_jobs_total": commits.n_jobs}
        counts |= {"failed_jobs_total": commits.n_failed}
        return PlainTextResponse(self.metrics.text(gauges, counts))


async def _file(request: Request) -> Response:
    """The page for the team, and what it is made of."""
    name = _FILES[request.url.path]
    text = resources.files(__package__).joinpath(name).read_text("utf-8")
    return Response(text, media_type=_KINDS[name.rpartition(".")[2]])


def _answering(
    metrics: Metrics, function: Callable[[Request], Awaitable[Any]]
) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint from a function that returns a message; problems become refusals."""

    async def endpoint(request: Request) -> Response:
        try:
            body, status = encode(await function(request)), 200
        except Problem as problem:
            body, status = refusal(problem), problem.status
        metrics.requests[function.__name__, status] += 1
        headers = {"retry-after": "1"} if status == 429 else None
        return Response(body, status, headers, media_type="application/json")

    return endpoint


async def _unknown(request: Request, error: Exception) -> Response:
    problem = Problem("unknown-path", f"there is nothing at {request.url.path}")
    return Response(refusal(problem), problem.status, media_type="application/json")


async def _wrong_method(request: Request, error: Exception) -> Response:
    problem = Problem("wrong-method", f"{request.url.path} does not take {request.method}")
    return Response(refusal(problem), problem.status, media_type="application/json")


# The description that programs read

_DESCRIBED: tuple[tuple[str, str, str, type | None, type], ...] = (  # method, path, what it does, request, answer
    ("post", "/v1/decide", "Tell the reward of the step before, ask for an arm.", messages.Question, messages.Answer),
    ("post", "/v1/rewards", "Tell late rewards, or that of the last step.", messages.Rewards, messages.RewardsStored),
    ("get", "/v1/sessions/{session}", "A session step by step.", None, messages.SessionHistory),
    ("delete", "/v1/persons/{person}", "Erase every session of a person.", None, messages.Erasure),
    ("get", "/v1/policies", "The versions of the policy.", None, messages.Versions),
    ("put", "/v1/policies", "Add a version: the body is a policy file.", None, messages.VersionInfo),
    ("post", "/v1/policies/{version}:promote", "Give a version a share.", messages.Promotion, messages.Versions),
    ("post", "/v1/policies:rollback", "End the canary, or return to the version before.", None, messages.Versions),
    ("get", "/v1/arms", "The arms that are open.", None, messages.Arms),
    ("put", "/v1/arms", "Say which arms are open.", messages.Arms, messages.Arms),
)


def openapi() -> dict[str, Any]:
    """The document of /openapi.json."""
    structs = {one for row in _DESCRIBED for one in row[3:] if one is not None} | {messages.Refusal}
    ordered = sorted(structs, key=lambda one: one.__name__)
    schemas, parts = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    found = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, Any] = {}
    for method, path, summary, request, answer in _DESCRIBED:
        refused = {"description": "refused: " + ", ".join(sorted(STATUS)), **_content(found[messages.Refusal])}
        operation: dict[str, Any] = {
            "summary": summary,
            "operationId": "_".join([method, *re.findall(r"[a-z]+[0-9]*", path)]),
            "responses": {"200": {"description": "done", **_content(found[answer])}, "default": refused},
            "x-role": role_of(method.upper(), path),
        }
        names = [part.strip("{}").split("}")[0] for part in path.split("/") if part.startswith("{")]
        if names:
            operation["parameters"] = [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
            ]
        if request is not None:
            operation["requestBody"] = {"required": True, **_content(found[request])}
        elif (method, path) == ("put", "/v1/policies"):
            body = {"schema": {"type": "string", "format": "binary"}}
            operation["requestBody"] = {"required": True, "content": {"application/octet-stream": body}}
        paths.setdefault(path, {})[method] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "lmab", "version": version("lmab"), "description": "Decisions for live sessions."},
        "paths": paths,
        "components": {"schemas": parts, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}
