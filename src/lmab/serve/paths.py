"""Paths of requests: the experiment that a path names, and the path without it."""

from __future__ import annotations

import re
from functools import lru_cache

from .stores import DEFAULT

EXPERIMENTS = "/v1/experiments"


@lru_cache(maxsize=4096)
def split_path(path: str) -> tuple[str, str]:
    """Return the experiment that a path names, and the path without it.

    Examples:
        >>> split_path("/v1/experiments/checkout/decide"), split_path("/v1/decide")
        (('checkout', '/v1/decide'), ('default', '/v1/decide'))
    """
    found = re.fullmatch(f"{EXPERIMENTS}/([^/]+)(/.+)", path)
    return (found[1], f"/v1{found[2]}") if found else (DEFAULT, path)
