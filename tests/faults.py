"""TCP proxy in front of a service that injects faults, for tests of clients."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from benchmarks.serve_load import HOST

FAULTS = ("refuse", "hang", "drip", "lose", "garbage", "500", "busy")


class FaultProxy:
    """Proxy of a port; `mode` is "pass" or one of `FAULTS` and applies to every request that arrives from then on."""

    def __init__(self, port: int) -> None:
        self.target, self.mode, self.n_requests = port, "pass", 0
        self.listener = socket.create_server((HOST, 0))
        self.port = self.listener.getsockname()[1]
        self.ended = threading.Event()
        self.open: list[socket.socket] = [self.listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while not self.ended.is_set():
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.open.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            while request := self._request(client):
                self.n_requests += 1
                if not self._answer(client, request):
                    return

    def _request(self, client: socket.socket) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data:
            part = client.recv(65536)
            if not part:
                return b""
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        lines = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        length = int(lines[0].split(b":")[1]) if lines else 0
        while len(body) < length:
            body += client.recv(65536)
        return head + b"\r\n\r\n" + body

    def _answer(self, client: socket.socket, request: bytes) -> bool:
        """Answer a request; return whether the connection stays open."""
        mode = self.mode
        if mode == "refuse":
            return False
        if mode == "hang":
            self.ended.wait(60)
            return False
        if mode in ("garbage", "500", "busy"):
            line = {"garbage": b"200 OK", "500": b"500 Internal Server Error", "busy": b"429 Too Many Requests"}[mode]
            client.sendall(b"HTTP/1.1 " + line + b"\r\nContent-Length: 8\r\n\r\n<html>..")
            return True
        response = self._forward(request)
        if mode == "lose":
            return False
        if mode == "drip":
            for byte in response:
                client.sendall(bytes([byte]))
                if self.ended.wait(0.05):
                    return False
            return True
        client.sendall(response)
        return True

    def _forward(self, request: bytes) -> bytes:
        request = request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
        response = b""
        with socket.create_connection((HOST, self.target)) as service:
            service.sendall(request)
            while part := service.recv(65536):
                response += part
        return response.replace(b"connection: close\r\n", b"")

    def close(self) -> None:
        self.ended.set()
        for one in self.open:
            with suppress(OSError):
                one.close()
