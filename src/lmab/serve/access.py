"""Access: tokens with a name, roles and perhaps a last day, and the role that a request needs."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import NamedTuple

from ..errors import InvalidFile
from .messages import Problem
from .paths import split_path

ROLES = ("decide", "metrics", "watch", "operate", "erase")
_INCLUDED = {"watch": {"metrics"}, "operate": {"metrics", "watch"}}
DECIDE = "/v1/decide"
PAGES = {"/": "page.html", "/page.js": "page.js", "/page.css": "page.css"}
OPEN = {*PAGES, "/healthz", "/readyz", "/openapi.json"}  # need no token: they hold nothing of any session
_log = logging.getLogger("lmab.serve")


class Token(NamedTuple):
    """Name, roles, experiments and last day of a token."""

    name: str  # in the log; several tokens may share it, as the old and the new one of a client
    roles: frozenset[str]
    experiments: frozenset[str] | None = None  # None: all experiments and the paths without one
    until: date = date.max  # the last day (UTC) on which it is valid


class Access:
    """Tokens with their roles; without tokens, every request from the machine of the service is allowed.

    A line of `lines` is a token, its roles ("decide" if none is named), and optionally `name=NAME`,
    `experiments=NAME,NAME` and `until=DATE`, the last day (UTC) on which the token is valid. "operate" includes
    "watch", and "watch" includes "metrics".

    Examples:
        >>> access = Access(["shop-front", "a1b2 operate name=ann until=2027-01-31"])
        >>> access.tokens[b"shop-front"].name, sorted(access.tokens[b"shop-front"].roles)
        ('token-1', ['decide'])
        >>> access.tokens[b"a1b2"].name, sorted(access.tokens[b"a1b2"].roles)
        ('ann', ['metrics', 'operate', 'watch'])
    """

    def __init__(self, lines: Iterable[str] = (), clock: Callable[[], float] = time.time) -> None:
        self.tokens: dict[bytes, Token] = {}
        self.clock = clock
        self.replace(lines)

    def replace(self, lines: Iterable[str]) -> None:
        """Take other tokens, all or none of them."""
        self.tokens = dict(_read_token(line, number) for number, line in enumerate(lines, 1))
        for name in [token.name for token in self.tokens.values() if self._has_expired(token)]:
            _log.warning("the token %s has expired", name)

    def _has_expired(self, token: Token) -> bool:
        return token.until < date.max and datetime.fromtimestamp(self.clock(), UTC).date() > token.until

    def check(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> str:
        """Return the name of the request's token; raise `Problem` if the request is not allowed."""
        if not self.tokens:
            _check_site(headers)
        elif path not in OPEN:
            kind, _, given = headers.get(b"authorization", b"").partition(b" ")
            token = next((one for text, one in self.tokens.items() if hmac.compare_digest(given.strip(), text)), None)
            if kind.lower() != b"bearer" or token is None:
                raise Problem("unauthorised", "the header Authorization must be 'Bearer' and a token of the service")
            if self._has_expired(token):
                raise Problem("unauthorised", f"the token {token.name} has expired: ask the operator for a new one")
            experiment, plain = split_path(path)
            role = role_of(method, plain)
            if token.experiments is not None and (experiment not in token.experiments or not plain.startswith("/v1/")):
                raise Problem("forbidden", f"the token {token.name} is for {', '.join(sorted(token.experiments))} only")
            if role not in token.roles:
                _log.warning("the token %s was refused: this needs the role %s", token.name, role)
                held = ", ".join(sorted(token.roles))
                raise Problem("forbidden", f"this needs a token with the role {role!r}, got {held}")
            return token.name
        return ""


def role_of(method: str, path: str) -> str:
    """Return the role that a request needs."""
    if path in (DECIDE, "/v1/rewards"):
        return "decide"
    if path.startswith("/v1/persons/"):
        return "erase"
    if method not in ("GET", "HEAD"):
        return "operate"
    return "metrics" if path == "/metrics" else "watch"


def _read_token(line: str, number: int) -> tuple[bytes, Token]:
    """Return a token and its properties; messages never quote the line, which may hold a secret."""
    text, *words = line.split()
    roles = {word for word in words if "=" not in word} or {"decide"}
    options = dict(word.split("=", 1) for word in words if "=" in word)
    try:
        name = options.pop("name", "") or f"token-{number}"
        until = date.fromisoformat(options.pop("until", "9999-12-31"))
        experiments = frozenset(options.pop("experiments").split(",")) if "experiments" in options else None
        if options or not roles <= set(ROLES):
            raise ValueError
    except ValueError:
        allowed = f"roles ({', '.join(ROLES)}), name=NAME, experiments=NAME,NAME and until=YYYY-MM-DD"
        raise InvalidFile(f"token {number}: after the token there may be {allowed}") from None
    included = frozenset(roles.union(*(_INCLUDED.get(role, ()) for role in roles)))
    return text.encode(), Token(name, included, experiments, until)


def _check_site(headers: Mapping[bytes, bytes]) -> None:
    """Without tokens a web page of another site must not reach the service through a browser on this machine.

    Such a page names its own site in Origin; a name that was pointed at this machine appears in Host. Names
    without a dot and addresses cannot be pointed elsewhere by others.
    """
    host = headers.get(b"host", b"").decode("latin-1")
    if domain := _domain(host):
        text = "the header Host must be an address or a name without a dot as long as there are no tokens"
        raise Problem("forbidden", f"{text}, got {domain}")
    origin = headers.get(b"origin", b"").decode("latin-1")
    if origin and origin.partition("://")[2] != host:
        raise Problem("forbidden", f"web pages of another site may not ask, got Origin {origin}")


@lru_cache(maxsize=256)  # parsing takes a tenth of the time of a decision, and a fleet uses few hosts
def _domain(host: str) -> str:
    """Return the name in a Host header if it has a dot; an address and a name without a dot give an empty text."""
    name = re.sub(r":\d+$", "", host).strip("[]")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name if "." in name else ""
    return ""
