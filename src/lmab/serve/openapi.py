"""The description of the service that programs read, made from the structs of its messages."""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import Any

import msgspec

from . import messages
from .problems import STATUS

_PATHS: tuple[tuple[str, str, str, type | None, type], ...] = (  # method, path, what it does, request, answer
    ("post", "/v1/decide", "Tell the reward of the step before and ask for an arm.", messages.Ask, messages.Told),
    ("post", "/v1/rewards", "Tell rewards that come late, or that of the last step.", messages.Rewards, messages.Kept),
    ("get", "/v1/sessions/{session}", "A session step by step.", None, messages.Story),
    ("delete", "/v1/persons/{person}", "Erase every session of a person.", None, messages.Erased),
    ("get", "/v1/policies", "The versions of the policy.", None, messages.Versions),
    ("put", "/v1/policies", "Add a version: the body is a policy file.", None, messages.VersionInfo),
    ("post", "/v1/policies/{version}:promote", "Give a version a share.", messages.Promotion, messages.Versions),
    ("post", "/v1/policies:rollback", "End the canary, or return to the version before.", None, messages.Versions),
    ("get", "/v1/arms", "The arms that are open.", None, messages.Arms),
    ("put", "/v1/arms", "Say which arms are open.", messages.Arms, messages.Arms),
)


def openapi() -> dict[str, Any]:
    """The document of /openapi.json."""
    structs = {one for row in _PATHS for one in row[3:] if one is not None} | {messages.Refusal}
    ordered = sorted(structs, key=lambda one: one.__name__)
    schemas, parts = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    refusal = _content(dict(zip(ordered, schemas, strict=True))[messages.Refusal])
    paths: dict[str, Any] = {}
    for method, path, summary, request, answer in _PATHS:
        found = dict(zip(ordered, schemas, strict=True))
        operation: dict[str, Any] = {
            "summary": summary,
            "operationId": "_".join([method, *re.findall(r"[a-z]+[0-9]*", path)]),
            "responses": {"200": {"description": "done", **_content(found[answer])}}
            | {"default": {"description": "refused: " + ", ".join(sorted(STATUS)), **refusal}},
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
        "components": {
            "schemas": parts,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}
