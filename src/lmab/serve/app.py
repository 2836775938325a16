"""HTTP application of the service: live traffic (decisions and rewards), and every other path."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache, lru_cache, partial
from importlib import resources
from importlib.metadata import version
from typing import Any, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from . import messages
from .access import DECIDE, OPEN, PAGES, Access, role_of
from .experiments import Experiments
from .logs import begin_request, record_action, request_id, token_name
from .messages import STATUS, Problem
from .metrics import Metrics, Sample, experiment_samples, process_samples, size_samples, stored_samples
from .paths import EXPERIMENTS, split_path
from .service import Service
from .stores import DEFAULT, ArmState
from .versions import name_of
from .watch import Summaries, session_history

MAX_BODY = 64 * 1024
MAX_POLICY = 64 * 1024 * 1024
LIVE = {DECIDE: DECIDE, "/v1/rewards": "rewards"}  # paths of live traffic, and their names in the metrics
_PROBES = ("health", "ready", "metrics_text")  # endpoints of monitoring, which are not counted themselves
_KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
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
_ADVICE = {  # by status: further headers
    401: [(b"www-authenticate", b"Bearer")],
    405: [(b"allow", b"POST")],
    429: [(b"retry-after", b"1")],
    503: [(b"retry-after", b"1")],
}
_LATER = (429, 503)  # statuses after which the same request can succeed: Retry-After
_TYPED = (400, 401, 403, 404, 409, 410, 422, 429, 503)  # statuses of refusals that the OpenAPI document lists
_log = logging.getLogger("lmab.serve")
encode = msgspec.json.Encoder().encode
_decode_question = msgspec.json.Decoder(messages.Question).decode
_decode_rewards = msgspec.json.Decoder(messages.Rewards).decode
Body = bytearray | Callable[[], Awaitable[bytes]]  # of a request: the bytes if they have arrived, or how to get them


class Reply(NamedTuple):
    """Response to a request of live traffic, for any transport."""

    status: int
    body: bytes
    request_id: bytes


def fixed_headers(status: int) -> list[tuple[bytes, bytes]]:
    """Return the headers that all replies of a status have; the others are Content-Length and X-Request-Id."""
    return [(b"content-type", b"application/json"), *_SECURITY, *_ADVICE.get(status, [])]


@lru_cache(maxsize=4096)
def live_path(url: bytes) -> str:
    """Return the path of a URL if it is one of live traffic, and an empty text otherwise."""
    path = url.decode("latin-1")
    return path if split_path(path)[1] in LIVE else ""


class Application:
    """ASGI application of the service. Connections of the service call `respond` for live traffic, without ASGI."""

    def __init__(self, experiments: Experiments, access: Access, metrics: Metrics) -> None:
        self.experiments, self.access, self.metrics = experiments, access, metrics
        self.other_paths = _routes(experiments, metrics)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.other_paths(scope, receive, send)
            return
        method, path, headers = scope["method"], scope["path"], dict(scope["headers"])
        if split_path(path)[1] in LIVE:
            reply = await self.respond(method, path, headers, partial(read_body, scope, receive))
        else:
            try:
                self._begin(method, path, headers)
            except Problem as problem:
                self.metrics.requests[DEFAULT, "other", problem.status] += 1
                self.metrics.refuse(DEFAULT, problem.code)
                reply = Reply(problem.status, refusal(problem), request_id.get().encode())
            else:
                await self.other_paths(scope, receive, _secured(send))
                return
        more = [(b"content-length", b"%d" % len(reply.body)), (b"x-request-id", reply.request_id)]
        start = {"type": "http.response.start", "status": reply.status}
        await send({**start, "headers": [*fixed_headers(reply.status), *more]})
        await send({"type": "http.response.body", "body": reply.body})

    def _begin(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> None:
        """Set the id of the request; raise `Problem` if its token does not allow it."""
        begin_request(headers.get(b"x-request-id", b""), headers.get(b"traceparent", b""))
        if name := self.access.check(method, path, headers):
            token_name.set(name)

    async def respond(self, method: str, path: str, headers: Mapping[bytes, bytes], body: Body) -> Reply:
        """Return the response to a request of live traffic."""
        (experiment, plain), name, began = split_path(path), DEFAULT, time.perf_counter()
        try:
            self._begin(method, path, headers)
            service, name = self.experiments.service(experiment), experiment
            if method != "POST":
                raise Problem("wrong-method", f"the method must be POST, got {method}")
            data = body if isinstance(body, bytearray) else await body()
            if plain == DECIDE:
                status, answer = 200, encode(await service.decide(decoded(_decode_question, data)))
            else:
                stored = await service.reward(decoded(_decode_rewards, data).rewards)
                status, answer = 200, encode(messages.RewardsStored(stored))
        except Problem as problem:
            status, answer = problem.status, refusal(problem)
            self.metrics.refuse(name, problem.code)
        except Exception as error:
            _log.error("the request to %s failed", path, exc_info=error)
            status, answer = 500, refusal(Problem("internal", "an error of the service, which its log describes"))
        if plain == DECIDE:
            self.metrics.times[name].add(time.perf_counter() - began)
        self.metrics.requests[name, plain, status] += 1
        return Reply(status, answer, request_id.get().encode())


def make_app(
    service: Service | Experiments, access: Access | Iterable[str] = (), metrics: Metrics | None = None
) -> Application:
    """Return the ASGI application of experiments, or of one service; `access` holds the tokens or lists them."""
    experiments = Experiments(service) if isinstance(service, Service) else service
    return Application(experiments, access if isinstance(access, Access) else Access(access), metrics or Metrics())


def _secured(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *_SECURITY, (b"x-request-id", request_id.get().encode())]
        await send(message)

    return sending


async def read_body(scope: Scope, receive: Receive, limit: int = MAX_BODY) -> bytes:
    """Return the body of a request; raise `Problem` as soon as it is longer than `limit`."""
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and int(value) > limit:
            raise Problem("too-large", f"the body must have at most {limit} bytes, got {int(value)}")
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Problem("malformed", "the client went away")
        body += message.get("body", b"")
        if len(body) > limit:
            raise Problem("too-large", f"the body must have at most {limit} bytes")
        more = message.get("more_body", False)
    return bytes(body)


def decoded(decode: Callable[[bytes | bytearray], Any], body: bytes | bytearray) -> Any:
    """Decode a JSON body; raise `Problem` if it is malformed. 1.0 is an integer, as in JSON Schema."""
    try:
        try:
            return decode(body)
        except msgspec.ValidationError:
            return decode(encode(_with_integers(msgspec.json.decode(body))))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError) as error:
        raise Problem("malformed", str(error)) from None


def _with_integers(value: Any) -> Any:
    """Return a value of JSON in which whole numbers have the type int."""
    if isinstance(value, dict):
        return {name: _with_integers(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_with_integers(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**63 else value


def refusal(problem: Problem) -> bytes:
    """Return a problem as JSON."""
    return encode(messages.Refusal(str(problem), problem.code))


async def _body(request: Request, kind: type[Any]) -> Any:
    body = await read_body(request.scope, request.receive)
    return decoded(lambda data: msgspec.json.decode(data, type=kind), body)


def _routes(experiments: Experiments, metrics: Metrics) -> Starlette:
    """Return the application of these paths, which starts and stops the services."""
    made: dict[str, _Endpoints] = {}

    def endpoint(route: str, name: str) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            experiment = request.path_params.get("experiment", DEFAULT)
            try:
                service = experiments.service(experiment)
            except Problem as problem:
                metrics.requests[DEFAULT, route, problem.status] += 1
                return _json(refusal(problem), problem.status)
            if experiment not in made or made[experiment].service is not service:
                made[experiment] = _Endpoints(experiment, experiments, metrics)
            return await made[experiment].respond(name, route, request)

        return respond

    methods = dict[tuple[str, str], list[str]]()
    for method, path, name, *_ in _DESCRIBED:
        if path not in LIVE:
            methods.setdefault((path, name), []).append(method.upper())
    routes = [Route("/openapi.json", endpoint("/openapi.json", "description")), *(Route(path, _file) for path in PAGES)]
    for (path, name), allowed in methods.items():
        respond = endpoint(path.replace(":path}", "}"), name)
        routes += [Route(one, respond, methods=allowed) for one in _paths_of(path)]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await experiments.start()
        yield
        await experiments.stop()

    handlers: Any = dict.fromkeys((404, 405), _without_route)
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)


class _Endpoints:
    """Endpoints of all paths except live traffic: each returns a response, or a message that becomes one."""

    def __init__(self, name: str, experiments: Experiments, metrics: Metrics) -> None:
        self.name, self.experiments, self.metrics = name, experiments, metrics
        self.service = experiments.service(name)
        self.register = self.service.register
        self.summaries = Summaries(self.service, metrics.times[name])
        self._stored: list[Sample] = []  # last samples from the store

    async def session(self, request: Request) -> Any:
        found = await self.service.history(request.path_params["session"])
        return await asyncio.to_thread(session_history, self.service, *found)  # it may have many steps

    async def person(self, request: Request) -> Any:
        name = request.path_params["person"]
        keyed = self.register.draws.digest(name.encode("utf-8", "replace")).hex()[:16]
        _audit(request, "erase", f"person {keyed}")  # the log outlives the erasure, so it must not hold the name
        return await self.service.erase(name)

    async def policies(self, request: Request) -> Any:
        if request.method == "GET":
            return await self._versions()
        body = await read_body(request.scope, request.receive, MAX_POLICY)
        _audit(request, "add-version", name_of(body))
        added = await self.register.add_version(body, request.query_params.get("note", "")[:500])
        return messages.VersionInfo(added.name, self.service.clock(), 0.0, "")

    async def policy(self, request: Request) -> Any:
        version = request.path_params["version"]
        if request.method == "DELETE":
            _audit(request, "retire", version)
            await self.register.retire(version)
            return await self._versions()
        return Response(await self.register.body_of(version), media_type="application/octet-stream")

    async def promote(self, request: Request) -> Any:
        promotion, version = await _body(request, messages.Promotion), request.path_params["version"]
        _audit(request, "promote", f"{version} to {promotion.share:g} of new sessions")
        await self.register.promote(version, promotion.share, after=_if_match(request))
        return await self._versions()

    async def rollback(self, request: Request) -> Any:
        ends = (await _body(request, messages.Rollback)).ends
        _audit(request, "rollback", ends)
        await self.register.rollback(ends)
        return await self._versions()

    async def arms(self, request: Request) -> Any:
        if request.method == "PUT":
            labels = (await _body(request, messages.Arms)).arms
            _audit(request, "set-arms", ", ".join(map(str, labels)))
            await self.register.set_arms(labels, _if_match(request))
        return self._arms()

    async def arm(self, request: Request) -> Any:
        state = ArmState.OPEN if request.method == "POST" else ArmState.WITHDRAWN
        _audit(request, "open-arm" if state else "withdraw-arm", request.path_params["arm"])
        await self.register.put_arm(request.path_params["arm"], state, _if_match(request))
        return self._arms()

    async def summary(self, request: Request) -> Any:
        return await self.summaries.now()

    async def list(self, request: Request) -> Any:
        found = []
        for name, service in sorted(self.experiments.services.items()):
            reason, rollout = await service.unable(), service.register.rollout
            found.append(messages.ExperimentInfo(name, not reason, reason, rollout.active, rollout.canary))
        return messages.ExperimentList(found)

    async def description(self, request: Request) -> Any:
        return openapi()

    async def health(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(self, request: Request) -> Response:
        trouble, broken = await self.experiments.unable(), next(iter(self.register.broken.values()), "")
        away, active = self.service.trouble, self.register.rollout.active
        answer = messages.Readiness(not trouble, not away, away or "open", active, trouble or away or broken)
        return _json(encode(answer), 503 if trouble else 200)

    async def metrics_text(self, request: Request) -> Response:
        samples = process_samples(self.service, not await self.experiments.unable())
        for name, service in self.experiments.services.items():
            samples += experiment_samples(name, service)
        with suppress(Problem):  # while the store is away, the last samples stand
            stored = await size_samples(self.register)
            for name, service in self.experiments.services.items():
                stored += await stored_samples(name, service.register)
            self._stored = stored
        return PlainTextResponse(self.metrics.text([*samples, *self._stored]))

    async def respond(self, name: str, route: str, request: Request) -> Response:
        """Return the response of an endpoint to a request; count and log it unless it is monitoring."""
        function = getattr(self, name)
        if name in _PROBES:
            return await function(request)
        status, code = 500, ""
        try:
            found = await function(request)
            answer = found if isinstance(found, Response) else _json(encode(found))
            status = answer.status_code
        except Problem as problem:
            status, code = problem.status, problem.code
            answer = _json(refusal(problem), status, **({"retry-after": "1"} if status in _LATER else {}))
            self.metrics.refuse(self.name, code)
        finally:
            if "audit" in request.scope:
                record_action(request.scope["audit"], status, code, self.name)
        self.metrics.requests[self.name, route, status] += 1
        return answer

    def _arms(self) -> Response:
        found = messages.Arms([arm.label for arm in self.register.arms if arm.is_open])
        return _json(encode(found), etag=f'"{self.register.signals.arms}"')

    async def _versions(self) -> Response:
        self.register.require_store()
        rollout = self.register.rollout
        shares = {rollout.canary: rollout.share, rollout.active: 1 - rollout.share}
        rows = await self.register.asked(self.register.store.versions())
        infos = [messages.VersionInfo(row.version, row.at, shares.get(row.version, 0.0), row.note) for row in rows]
        found = messages.Versions(rollout.active, rollout.canary, rollout.share, infos)
        return _json(encode(found), etag=f'"{self.register.signals.register}"')


async def _file(request: Request) -> Response:
    """Return a file of the dashboard."""
    name = PAGES[request.url.path]
    return Response(_text_of(name), media_type=_KINDS[name.rpartition(".")[2]])


@cache
def _text_of(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def _json(body: bytes, status: int = 200, **headers: str) -> Response:
    return Response(body, status, headers, media_type="application/json")


def _if_match(request: Request) -> int | None:
    """Return the number of the ETag in the header If-Match; None if any will do, -1 if it is none of ours."""
    given = request.headers.get("if-match", "*")
    return None if given == "*" else int(given[1:-1]) if re.fullmatch(r'"\d{1,18}"', given) else -1


def _audit(request: Request, action: str, target: str) -> None:
    """Have `_Endpoints.endpoint` log this action with its outcome."""
    request.scope["audit"] = action, target


async def _without_route(request: Request, error: Any) -> Response:
    problem = Problem("unknown-path", f"there is nothing at {request.url.path}")
    if error.status_code == 405:
        problem = Problem("wrong-method", f"{request.url.path} does not take {request.method}")
    return _json(refusal(problem), problem.status, **(error.headers or {}))


_DESCRIBED: tuple[tuple[str, str, str, str, type | None, type], ...] = (
    # method, path, endpoint, summary, request, response
    ("post", DECIDE, "", "Decide a step, with the reward of the step before.", messages.Question, messages.Answer),
    ("post", "/v1/rewards", "", "Store late rewards, or the last one.", messages.Rewards, messages.RewardsStored),
    ("get", "/v1/sessions/{session:path}", "session", "A session step by step.", None, messages.SessionHistory),
    ("delete", "/v1/persons/{person:path}", "person", "Erase every session of a person.", None, messages.Erasure),
    ("get", "/v1/policies", "policies", "The versions of the policy.", None, messages.Versions),
    ("put", "/v1/policies", "policies", "Add a version: the body is a policy file.", bytes, messages.VersionInfo),
    ("post", "/v1/policies/{version}:promote", "promote", "Give a version a share of new sessions.",
     messages.Promotion, messages.Versions),
    ("get", "/v1/policies/{version}", "policy", "Download the file of a version.", None, bytes),
    ("delete", "/v1/policies/{version}", "policy", "Retire a version without new sessions.", None, messages.Versions),
    ("post", "/v1/policies:rollback", "rollback", "End the canary, or the version in force.", messages.Rollback,
     messages.Versions),
    ("get", "/v1/arms", "arms", "The arms that are open.", None, messages.Arms),
    ("put", "/v1/arms", "arms", "Open these arms and withdraw the other open ones.", messages.Arms, messages.Arms),
    ("post", "/v1/arms/{arm:path}", "arm", "Open one arm; an unknown one is added.", None, messages.Arms),
    ("delete", "/v1/arms/{arm:path}", "arm", "Withdraw one arm.", None, messages.Arms),
    ("get", EXPERIMENTS, "list", "The experiments that are served.", None, messages.ExperimentList),
    ("get", "/v1/summary", "summary", "The data of the page; its fields may change.", None, dict),
    ("get", "/healthz", "health", "Whether the process responds.", None, str),
    ("get", "/readyz", "ready", "Whether sessions can be decided (200, else 503).", None, messages.Readiness),
    ("get", "/metrics", "metrics_text", "Metrics, as Prometheus reads them.", None, str),
)  # fmt: skip


def _paths_of(path: str) -> list[str]:
    """Return a path and, if each experiment has it, the path that names one."""
    if not path.startswith("/v1/") or path == EXPERIMENTS:
        return [path]
    return [path, f"{EXPERIMENTS}/{{experiment}}{path.removeprefix('/v1')}"]


def openapi() -> dict[str, Any]:
    """Return the document of /openapi.json."""
    structs = {one for row in _DESCRIBED for one in row[4:] if one not in (None, bytes)} | {messages.Refusal}
    ordered = sorted(structs, key=lambda one: one.__name__)
    schemas, parts = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    found = dict(zip(ordered, schemas, strict=True)) | {bytes: {"type": "string", "format": "binary"}}

    def content(kind: type) -> dict[str, Any]:
        media: dict[type, str] = {bytes: "application/octet-stream", str: "text/plain"}
        return {"content": {media.get(kind, "application/json"): {"schema": found[kind]}}}

    paths: dict[str, Any] = {}
    described = [(path, row) for row in _DESCRIBED for path in _paths_of(row[1].replace(":path}", "}"))]
    for path, (method, _, _, summary, request, answer) in described:
        refused = {"description": "refused: " + ", ".join(sorted(STATUS)), **content(messages.Refusal)}
        typed = {str(status): {"$ref": f"#/components/responses/{status}"} for status in _TYPED if "/v1/" in path}
        operation: dict[str, Any] = {
            "summary": summary,
            "operationId": "_".join([method, *re.findall(r"[a-z]+[0-9]*", path)]),
            "responses": {"200": {"description": "done", **content(answer)}, **typed, "default": refused},
            **({"security": []} if path in OPEN else {"x-role": role_of(method.upper(), split_path(path)[1])}),
        }
        if answer is messages.Readiness:
            operation["responses"]["503"] = operation["responses"]["200"] | {"description": "not ready"}
        places = [(name, "path") for name in re.findall("{([a-z]+)}", path)]
        if (method != "get" and "/arms" in path) or path.endswith("promote"):
            places.append(("If-Match", "header"))  # the ETag of the GET request
        operation["parameters"] = [
            {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}
            for name, place in places
        ]
        if request is not None:
            operation["requestBody"] = {"required": True, **content(request)}
        paths.setdefault(path, {})[method] = operation
    seconds = {"description": "seconds to wait", "required": True, "schema": {"type": "integer"}}
    responses = {
        str(status): {
            "description": "refused: " + ", ".join(code for code, own in STATUS.items() if own == status),
            **content(messages.Refusal),
            **({"headers": {"Retry-After": seconds}} if status in _LATER else {}),
        }
        for status in _TYPED
    }
    tokens = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "lmab", "version": version("lmab"), "description": "Decisions for live sessions."},
        "paths": paths,
        "components": {"schemas": parts, "responses": responses, "securitySchemes": tokens},
        "security": [{"token": []}],
    }
