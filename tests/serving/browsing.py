"""Servers in threads, for tests with a real browser."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import uvicorn

from posttrain.cli._listening import listen


@contextlib.contextmanager
def application_in_a_thread(app: Any) -> Iterator[int]:
    """An application on a port of this machine."""
    listening = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])), daemon=True)
    port = listening.getsockname()[1]
    thread.start()
    try:
        yield port
    finally:
        server.should_exit = True
        thread.join(30)


@contextlib.contextmanager
def page_in_a_thread(text: str, done: threading.Event) -> Iterator[int]:
    """A page on a port of this machine; `done` is set when it requests ``/done``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())
            if self.path.startswith("/done"):
                done.set()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
