"""Every path but /v1/decide: rewards, sessions, persons, versions, arms, what to watch, and the page."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from .bodies import decoded, encode, read_body, refusal
from .messages import Arms, Erased, Kept, Promotion, Rewards, VersionInfo, Versions
from .metrics import Metrics
from .openapi import openapi
from .problems import Problem
from .service import Service
from .stories import tell_story
from .summary import Summaries

MAX_POLICY = 64 * 1024 * 1024
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"


def routes(service: Service, metrics: Metrics) -> Starlette:
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
    found += [Route("/", page), Route("/healthz", watched.health), Route("/readyz", watched.ready)]
    found += [Route("/metrics", watched.text)]

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
        return Kept(await self.service.reward((await _body(request, Rewards)).rewards))

    async def session(self, request: Request) -> Any:
        return tell_story(self.service, *await self.service.story(request.path_params["session"]))

    async def person(self, request: Request) -> Any:
        return Erased(await self.service.erase(request.path_params["person"]))

    async def policies(self, request: Request) -> Any:
        if request.method == "GET":
            return await self._versions()
        body = await read_body(request.scope, request.receive, MAX_POLICY)
        version = await self.register.add_version(body, request.query_params.get("note", "")[:500])
        return VersionInfo(version.name, self.service.clock(), 0.0, "")

    async def promote(self, request: Request) -> Any:
        told = await _body(request, Promotion)
        await self.register.promote(request.path_params["version"], told.share)
        return await self._versions()

    async def rollback(self, request: Request) -> Any:
        await self.register.rollback()
        return await self._versions()

    async def arms(self, request: Request) -> Any:
        if request.method == "PUT":
            await self.register.set_arms((await _body(request, Arms)).arms)
        return Arms([label for label, is_open in self.register.labels if is_open])

    async def summary(self, request: Request) -> Any:
        return await self.summaries.now()

    async def description(self, request: Request) -> Any:
        return openapi()

    async def _versions(self) -> Versions:
        self.register.require_store()
        turn = self.register.turn
        shares = {turn.active: 1 - turn.share} | ({} if turn.canary is None else {turn.canary: turn.share})
        rows = await self.register.asked(self.register.store.versions())
        infos = [VersionInfo(row.version, row.at, shares.get(row.version, 0.0), row.note) for row in rows]
        return Versions(turn.active, turn.canary, turn.share, infos)


class _Watched:
    """What machines look at."""

    def __init__(self, service: Service, metrics: Metrics) -> None:
        self.service, self.metrics = service, metrics

    async def health(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(self, request: Request) -> Response:
        register = self.service.register
        trouble = await register.unable()
        broken = next(iter(register.broken.values()), "")
        answer = {"ready": not trouble, "store": register.trouble or "open", "policy": register.turn.active}
        answer |= {"trouble": trouble or broken}
        return Response(json.dumps(answer), 503 if trouble else 200, media_type="application/json")

    async def text(self, request: Request) -> Response:
        service, commits = self.service, self.service.commits
        gauges = {"queue": commits.depth, "sessions_in_memory": service.n_live, "ready": int(service.register.ready)}
        counts = {f"{name}_total": count for name, count in service.counts.items()}
        counts |= {"commits_total": commits.n_commits, "committed_jobs_total": commits.n_jobs}
        return PlainTextResponse(self.metrics.text(gauges, counts))


async def page(request: Request) -> Response:
    """The page for the team."""
    text = resources.files(__package__).joinpath("page.html").read_text("utf-8")
    return HTMLResponse(text, headers={"content-security-policy": _POLICY})


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


async def _body(request: Request, kind: type[Any]) -> Any:
    body = await read_body(request.scope, request.receive)
    return decoded(lambda data: msgspec.json.decode(data, type=kind), body)


async def _unknown(request: Request, error: Exception) -> Response:
    problem = Problem("unknown-path", f"there is nothing at {request.url.path}")
    return Response(refusal(problem), problem.status, media_type="application/json")


async def _wrong_method(request: Request, error: Exception) -> Response:
    problem = Problem("wrong-method", f"{request.url.path} does not take {request.method}")
    return Response(refusal(problem), problem.status, media_type="application/json")
