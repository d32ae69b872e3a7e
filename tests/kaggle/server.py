"""A stand-in for Kaggle: what the kaggle CLI asks of it, and every way in which it can fail.

Standard library only. The real CLI is led here as through a proxy, so it runs unmodified: see
Desk.environment of tests/kaggle/desk.py. Everything that is asked is kept, and every byte that is
uploaded.
"""

import errno
import itertools
import json
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.kaggle.world import GET, PUT, Fault, World

HTML = b"<html><body>Kaggle is down for maintenance</body></html>"
MESSAGES = {
    401: "Unauthenticated", 403: "You cannot submit until you accept the competition rules",
    404: "Competition not found", 429: "Too Many Requests", 405: "Method Not Allowed",
    500: "Internal server error",
}  # fmt: skip
# Below the ports that systems give away by themselves: nobody is given the port of a server that
# listens no more. Each process of the tests begins elsewhere.
PORTS = itertools.cycle(range(10_000 + os.getpid() % 200 * 100, 32_000))


class KaggleServer(ThreadingHTTPServer):
    """Serves one world on a port of its own."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self._find_port()
        self.server_activate()
        self.world = World()
        self.guard = threading.Lock()
        self.closing = threading.Event()
        self.listening = True
        self._listen()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def _listen(self) -> None:
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def _find_port(self) -> None:
        for port in PORTS:
            self.server_address = ("127.0.0.1", port)
            try:
                self.server_bind()
                return
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise

    def refuse(self) -> None:
        """From now on nobody listens on the port, which stays ours: connections are refused."""
        self.listening = False
        self.shutdown()
        self.server_close()
        self.socket = socket.socket(self.address_family, self.socket_type)
        self.server_bind()

    def accept_again(self) -> None:
        """Listen on the same port as before."""
        if not self.listening:
            self.server_activate()
            self.listening = True
            self._listen()

    def stop(self) -> None:
        self.closing.set()
        if self.listening:
            self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is what many tests are about."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: KaggleServer
    timeout = 60

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        """Say nothing."""

    def do_CONNECT(self) -> None:  # noqa: N802
        """No tunnel: nothing reaches the real site."""
        self.send_error(403)

    def do_POST(self) -> None:  # noqa: N802
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        call = self.path.rpartition("/")[2]
        self._serve(call, json.loads(body or b"{}"))

    def do_PUT(self) -> None:  # noqa: N802
        length = int(self.headers["Content-Length"])
        token = self.path.rpartition("/")[2]
        fault = self._begin(PUT, {"token": token})
        if fault and fault.kind == "dropped":
            self.rfile.read(length // 2)
            self._hang_up()
            return
        data = self.rfile.read(length)
        if fault is None or fault.counted:
            self.server.world.uploads[token] = data
        self._answer(fault, {})

    def do_GET(self) -> None:  # noqa: N802
        name = self.path.partition("localhost/files/")[2].partition("?")[0]
        fault = self._begin(GET, {"name": name, "range": self.headers.get("Range") or ""})
        world = self.server.world
        if name == "archive.zip":
            data = world.archive
        else:
            data = world.files[name] if name in world.files else world.find_output(name)
        if fault:
            self._answer(fault, {})
        else:
            self._send_file(data, self.headers.get("Range") or "")

    def _serve(self, call: str, body: dict[str, Any]) -> None:
        fault = self._begin(call, body)
        if fault and fault.kind == "dropped":
            self._hang_up()
            return
        reply: dict[str, Any] = {}
        if fault is None or fault.counted:
            with self.server.guard:
                reply = getattr(self.server.world, f"on_{call}")(body)
        if fault is None and "redirect" in reply:
            self.send_response(302)
            self.send_header("Location", reply["redirect"])
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self._answer(fault, reply)

    def _begin(self, call: str, body: dict[str, Any]) -> Fault | None:
        """Note the call, and find what is to go wrong with it."""
        world = self.server.world
        with self.server.guard:
            world.calls.append((call, body))
            if len(world.calls) == world.deaf_after:
                self.server.refuse()
            world.schemes.add((self.headers.get("Authorization") or "").partition(" ")[0])
            number = world.count(call)
            for fault in world.faults:
                if fault.call == call and fault.first <= number < fault.first + fault.times:
                    return fault
        return None

    def _answer(self, fault: Fault | None, reply: dict[str, Any]) -> None:
        kind = fault.kind if fault else ""
        if kind in ("lost", "dropped"):
            self._hang_up()
        elif kind == "hangs":
            self.server.closing.wait(60)
        elif kind == "html":
            self._send(200, HTML, "text/html")
        elif kind == "wrong":
            self._send(200, b'{"unexpected": true}', "application/json")
        elif fault:
            status = int(kind)
            error = {"code": status, "message": fault.message or MESSAGES[status]}
            self._send(status, json.dumps(error).encode(), "application/json")
        else:
            status = reply.get("httpStatus", 200)
            self._send(status, json.dumps(reply).encode(), "application/json")

    def _send(self, status: int, data: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _send_file(self, data: bytes, wanted: str) -> None:
        start = int(wanted.removeprefix("bytes=").partition("-")[0]) if wanted else 0
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(data) - start))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Fri, 20 Nov 2026 07:00:00 GMT")
        self.end_headers()
        world = self.server.world
        if world.dropped_at is not None and not wanted:
            self.wfile.write(data[: world.dropped_at])
            self._hang_up()
        else:
            self.wfile.write(data[start:])

    def _hang_up(self) -> None:
        """End the connection without a word."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
