"""Client of `lmab serve` for product code: one deadline per decision, and the caller's default arm after any failure.

Standard library only; the file can be copied alone. `Client.decide` never raises because of the service and never takes
longer than its deadline. Rewards wait in a queue and are sent again until the service accepts or refuses them. Both
requests are idempotent, so sending one twice stores it once.
"""

from __future__ import annotations

import http.client
import json
import queue
import socket
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

DEADLINE = 0.2  # seconds of one decision: below what visitors notice in the response of a page
_THREADS = 16  # decisions of one client that are under way at a time
_SESSIONS = 100_000  # sessions with a default arm that the client remembers
_BATCH = 500  # rewards of one request; the service takes up to 1000
_SLOW = 5.0  # seconds that a request with rewards may take: no visitor waits for it
_PAUSES = (0.2, 30.0)  # first and longest pause in seconds after a failure; each pause doubles the one before
_FAILURES = 5  # consecutive failures that open the circuit
_UNAVAILABLE = (408, 425, 429)  # statuses below 500 after which the same request can succeed later


class Choice(NamedTuple):
    """Arm to play at one step."""

    arm: Any  # label of the arm
    propensity: float | None  # probability with which the service chose the arm; None: default arm or forced arm
    from_service: bool  # False: the default arm, because of `failure`
    failure: str = ""  # such as "timeout", "connection", "circuit-open", "earlier-failure", "422 unknown-arm"
    response: Mapping[str, Any] = {}  # whole response of the service


class _Refused(Exception):
    """Response with a status other than 200."""

    def __init__(self, status: int, body: bytes) -> None:
        try:
            code = str(json.loads(body)["code"])
        except (ValueError, KeyError, TypeError):
            code = ""
        super().__init__(f"{status} {code}".strip())
        self.status = status


class _Call:
    """Request in a worker thread, so that its deadline includes name resolution and connecting."""

    def __init__(self, path: str, body: bytes, until: float) -> None:
        self.path, self.body, self.until = path, body, until
        self.done, self.abandoned = threading.Event(), False
        self.connection: http.client.HTTPConnection | None = None
        self.result: Any = None
        self.error: BaseException | None = None

    def abandon(self) -> None:
        """Cut the connection: a response that arrives byte by byte must not occupy the thread."""
        self.abandoned = True
        if self.connection is not None and (sock := self.connection.sock) is not None:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)


class Client:
    """Decisions and rewards of one experiment; an instance may be shared by threads.

    Args:
        address: of the service or of the proxy in front of it, such as "https://lmab.example.com".
        token: token with the role `decide`, if the service has tokens.
        experiment: name of the experiment.
        deadline: seconds after which `decide` returns the default arm.
        waiting: rewards that may wait in the queue; the oldest ones are dropped and counted.

    Attributes:
        counts: number of decisions from the service (`decided`), of default arms by failure (`default: timeout`), and
            of rewards (`rewards-sent`, `rewards-refused`, `rewards-dropped`).

    Examples:
        >>> with Client("http://127.0.0.1:9", deadline=0.05) as client:  # no service listens there
        ...     choice = client.decide("visit-17", 0, default="tea")
        >>> choice.arm, choice.from_service
        ('tea', False)
    """

    def __init__(
        self,
        address: str,
        *,
        token: str = "",
        experiment: str = "default",
        deadline: float = DEADLINE,
        waiting: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"address must begin with http:// or https:// and name a host, got {address!r}")
        if not deadline > 0:
            raise ValueError(f"deadline must be above 0 seconds, got {deadline}")
        self._connect: Any = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._place = parts.hostname, parts.port
        folder = "" if experiment == "default" else f"/experiments/{quote(experiment, safe='')}"
        self._path = f"{parts.path.rstrip('/')}/v1{folder}"
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self.deadline, self._clock = deadline, clock
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._idle = 0  # threads without work, less the calls that wait for one
        self._threads = 0
        self._failures, self._closed_until, self._trial = 0, 0.0, False  # circuit breaker
        self._defaulted: OrderedDict[str, int] = OrderedDict()  # session -> its first step with a default arm
        self._rewards: deque[dict[str, Any]] = deque(maxlen=waiting)
        self._changed = threading.Condition()
        self._sending, self._stopped = 0, False
        self._sender: threading.Thread | None = None

    # Decisions

    def decide(self, session: str, step: int, default: Any, *, reward: float | None = None, **fields: Any) -> Choice:
        """Return the arm for a step, or `default` if the service gives none within the deadline.

        After a default arm, the rest of the session gets default arms as well, and no reward is sent from that step on:
        the service may have stored another arm for the step. If the steps of a session are served by several processes,
        keep `from_service` with the session, and do not ask again once it was False.

        Args:
            session: name of the session.
            step: number of the step, from 0.
            default: arm that the product plays without the service.
            reward: of the step before, if it is known.
            fields: further fields of the request, such as `allowed`, `person` and `features`.
        """
        until = self._clock() + self.deadline
        first_default = self._defaulted.get(session)
        if first_default is not None and step > first_default:
            if reward is not None and step - 1 < first_default:
                self.reward(session, step - 1, reward)
            return self._default(default, session, step, "earlier-failure")
        failure = self._refused_by_circuit()
        if not failure:
            body = {"session": session, "step": step, "reward": reward, **fields}
            failure, response = self._ask(body, until)
            if response is not None:
                with self._lock:
                    self.counts["decided"] += 1
                    self._defaulted.pop(session, None)
                return Choice(response["label"], response["propensity"], True, "", response)
        if reward is not None and step > 0:
            self.reward(session, step - 1, reward)  # the request may not have arrived
        return self._default(default, session, step, failure)

    def _ask(self, body: dict[str, Any], until: float) -> tuple[str, dict[str, Any] | None]:
        """Return why a decision failed, or its response."""
        try:
            call = self._start(f"{self._path}/decide", json.dumps(body).encode(), until)
        except (TypeError, ValueError) as error:  # a field that JSON cannot hold
            self._record(available=True)
            return f"request: {type(error).__name__}", None
        if not call.done.wait(max(until - self._clock(), 0.0)):
            call.abandon()
            self._record(available=False)
            return "timeout", None
        if call.error is None and isinstance(call.result, dict) and {"label", "propensity"} <= set(call.result):
            self._record(available=True)
            return "", call.result
        if isinstance(call.error, _Refused):
            self._record(available=call.error.status < 500 and call.error.status not in _UNAVAILABLE)
            return str(call.error), None
        self._record(available=False)
        if call.error is None or isinstance(call.error, ValueError):
            return "malformed-response", None
        return ("timeout" if isinstance(call.error, TimeoutError) else "connection"), None

    def _default(self, default: Any, session: str, step: int, failure: str) -> Choice:
        with self._lock:
            self.counts[f"default: {failure}"] += 1
            self._defaulted[session] = min(step, self._defaulted.get(session, step))
            self._defaulted.move_to_end(session)
            while len(self._defaulted) > _SESSIONS:
                self._defaulted.popitem(last=False)
        return Choice(default, None, False, failure)

    # Circuit breaker

    def _refused_by_circuit(self) -> str:
        """Return "circuit-open" while the service is not to be asked; after each pause one decision tries it."""
        with self._lock:
            if self._failures < _FAILURES:
                return ""
            if self._clock() < self._closed_until or self._trial:
                return "circuit-open"
            self._trial = True
            return ""

    def _record(self, available: bool) -> None:
        with self._lock:
            self._trial = False
            self._failures = 0 if available else self._failures + 1
            if self._failures >= _FAILURES:
                first, longest = _PAUSES
                pause = min(first * 2.0 ** min(self._failures - _FAILURES, 30), longest)
                self._closed_until = self._clock() + pause

    # Rewards

    def reward(self, session: str, step: int, reward: float) -> None:
        """Send a reward in the background, again and again until the service accepts or refuses it."""
        with self._changed:
            first_default = self._defaulted.get(session)
            if self._stopped or (first_default is not None and step >= first_default):
                self.counts["rewards-dropped"] += 1
                return
            if len(self._rewards) == self._rewards.maxlen:
                self.counts["rewards-dropped"] += 1
            self._rewards.append({"session": session, "step": step, "reward": reward})
            if self._sender is None:
                self._sender = threading.Thread(target=self._send_rewards, name="lmab-rewards", daemon=True)
                self._sender.start()
            self._changed.notify_all()

    def flush(self, timeout: float = 5.0) -> int:
        """Wait until no reward is left in the queue; return how many are left after the timeout."""
        until = self._clock() + timeout
        with self._changed:
            while (self._rewards or self._sending) and self._clock() < until:
                self._changed.wait(0.05)
            return len(self._rewards) + self._sending

    def _send_rewards(self) -> None:
        pause, longest = _PAUSES
        wait = 0.0
        while True:
            with self._changed:
                if wait:
                    self._changed.wait_for(lambda: self._stopped, wait)
                self._changed.wait_for(lambda: self._rewards or self._stopped)
                if self._stopped:
                    return
                batch = [self._rewards.popleft() for _ in range(min(len(self._rewards), _BATCH))]
                self._sending = len(batch)
            again = self._send(batch)
            with self._changed:
                self._sending = 0
                room = (self._rewards.maxlen or 0) - len(self._rewards)
                if len(again) > room:
                    self.counts["rewards-dropped"] += len(again) - room
                self._rewards.extendleft(again[::-1][:room])
                self._changed.notify_all()
            wait = min(max(2 * wait, pause), longest) if again else 0.0

    def _send(self, batch: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Send rewards; return those to send again. The service takes all of a request or none."""
        try:
            call = self._start(f"{self._path}/rewards", json.dumps({"rewards": batch}).encode(), self._clock() + _SLOW)
        except (TypeError, ValueError):
            return self._one_by_one(batch, "rewards-refused")
        if not call.done.wait(_SLOW):
            call.abandon()
            return batch
        if call.error is None:
            self.counts["rewards-sent"] += len(batch)
            return []
        if not isinstance(call.error, _Refused) or call.error.status >= 500:
            return batch
        if call.error.status in (*_UNAVAILABLE, 401, 403):  # a new token may be on its way
            return batch
        return self._one_by_one(batch, "rewards-refused")

    def _one_by_one(self, batch: list[dict[str, Any]], refused: str) -> list[dict[str, Any]]:
        if len(batch) == 1:
            self.counts[refused] += 1
            return []
        return [reward for one in batch for reward in self._send([one])]

    # Requests

    def _start(self, path: str, body: bytes, until: float) -> _Call:
        """Begin a request in a thread that is free, or in a new one."""
        call = _Call(path, body, until)
        with self._lock:
            if self._idle <= 0 and self._threads < _THREADS:
                self._threads += 1
                threading.Thread(target=self._work, name="lmab-request", daemon=True).start()
            else:
                self._idle -= 1
        self._calls.put(call)
        return call

    def _work(self) -> None:
        """Make requests on one connection, which is kept open between them."""
        connection: Any = None  # http.client has no type for a connection that is open
        while (call := self._calls.get()) is not None:
            fresh = connection is None
            while True:
                left = call.until - self._clock()
                if call.abandoned or left <= 0:
                    call.error = TimeoutError()
                    break
                connection = connection or self._connect(*self._place)
                try:
                    call.result = self._post(connection, call, left)
                except _Refused as error:
                    call.error = error
                except Exception as error:  # whatever happens, the caller gets the default arm
                    connection.close()
                    connection = None
                    if not fresh and isinstance(error, ConnectionError | http.client.BadStatusLine):
                        fresh = True  # the service closed a connection that was idle: once more with a new one
                        continue
                    call.error = error
                break
            with self._lock:
                self._idle += 1
            call.done.set()
        if connection is not None:
            connection.close()

    def _post(self, connection: Any, call: _Call, left: float) -> Any:
        connection.timeout = left
        if connection.sock is None:
            connection.connect()
        connection.sock.settimeout(left)  # each operation; `Client._ask` limits all of them together
        call.connection = connection
        try:
            connection.request("POST", call.path, call.body, self._headers)
            response = connection.getresponse()
            body = response.read(1 << 20)
        finally:
            call.connection = None
        if response.status != 200:
            raise _Refused(response.status, body)
        return json.loads(body)

    # End

    def close(self, timeout: float = 5.0) -> int:
        """Send the rewards that wait, for at most `timeout` seconds; return how many were lost."""
        lost = self.flush(timeout)
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for _ in range(self._threads):
            self._calls.put(None)
        return lost

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
