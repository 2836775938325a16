"""Log lines of the service: text or JSON, with the id of the request and the name of the token; audit lines."""

from __future__ import annotations

import json
import logging
import re
import secrets
from contextvars import ContextVar
from datetime import UTC, datetime
from itertools import count

request_id: ContextVar[str] = ContextVar("request_id", default="")
token_name: ContextVar[str] = ContextVar("token_name", default="")
trace_id: ContextVar[str] = ContextVar("trace_id", default="")
_TRACE = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")  # W3C Trace Context
_GIVEN = re.compile(rb"[\w.:/+=@-]{1,128}", re.ASCII)  # ids of clients and proxies; nothing that could forge a line
_PROCESS, _numbers = secrets.token_hex(6), count(1)
_audit = logging.getLogger("lmab.audit")


def begin_request(given: bytes, trace: bytes = b"") -> str:
    """Set the id of the request that begins in this context: the given X-Request-Id if it is usable, else a new one.

    `trace` is the header `traceparent`: every log line of the request has its trace id.
    """
    found_trace = _TRACE.fullmatch(trace) if trace else None
    trace_id.set(found_trace[1].decode() if found_trace else "")
    found = given.decode() if given and _GIVEN.fullmatch(given) else f"{_PROCESS}-{next(_numbers)}"
    request_id.set(found)
    token_name.set("")  # one task may serve several requests
    return found


def record_action(done: tuple[str, str], status: int, code: str = "", experiment: str = "default") -> None:
    """Log an action of an operator or an erasure on an object with its outcome, whether it succeeded or not."""
    action, target = done
    fields = {"experiment": experiment, "action": action, "object": target, "status": status}
    fields |= {"code": code} if code else {}
    outcome = "done" if status < 400 else f"failed ({status}{' ' * bool(code)}{code})"
    token = token_name.get() or "nobody"
    of = "" if experiment == "default" else f" of experiment {experiment}"
    _audit.info("%s %s %s%s: %s", token, action, json.dumps(target), of, outcome, extra={"fields": fields})


class Lines(logging.Formatter):
    """Formatter of log lines; a line that belongs to a request has its id."""

    def __init__(self, as_json: bool = False) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s%(request)s: %(message)s")
        self.as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        request = request_id.get()
        record.request = f" [{request}]" if request else ""
        if not self.as_json:
            return super().format(record)
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        found = {"time": at, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        given = {"request": request, "token": token_name.get(), "trace": trace_id.get()}
        found |= {name: value for name, value in given.items() if value} | getattr(record, "fields", {})
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found)


def configure_logs(as_json: bool) -> None:
    """Write the log of this process to standard error in one format, also that of the server in front."""
    handler = logging.StreamHandler()
    handler.setFormatter(Lines(as_json))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("lmab").setLevel(logging.INFO)
