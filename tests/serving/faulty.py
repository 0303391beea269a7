"""An OpenAI-compatible server that does what a test configures: answers, refuses, is silent, breaks off, dies."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Asked = dict[str, Any]
Behaviour = Callable[["Handler", Asked], None]


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    server: "FaultyServer"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.server.headers.append(dict(self.headers))
        self.server.models(self, {})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.headers.append(dict(self.headers))
            self.server.asked.append(asked)
            behaviour = self.server.next_behaviour()
        behaviour(self, asked)

    def send(self, status: int, body: str, **headers: str) -> None:
        data = body.encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class FaultyServer(ThreadingHTTPServer):
    """Behaves as scripted for the first requests, and then as `usual`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *script: Behaviour, usual: Behaviour | None = None, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.lock = threading.Lock()
        self.script = list(script)
        self.usual = usual or answer
        self.models: Behaviour = models("tester")
        self.asked: list[Asked] = []
        self.headers: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def next_behaviour(self) -> Behaviour:
        return self.script.pop(0) if self.script else self.usual

    def handle_error(self, *_: object) -> None:
        """A client that went away is no news."""

    @contextmanager
    def running(self) -> Iterator["FaultyServer"]:
        thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            self.shutdown()
            thread.join()
            self.server_close()


def reply_to(asked: Asked) -> str:
    """A text that is a function of the request."""
    said = asked.get("prompt") or asked["messages"][-1]["content"]
    return f"{said}!{asked['seed'] % 1000}"


def completion(asked: Asked, text: str) -> str:
    choice = {"text": text} if "prompt" in asked else {"message": {"role": "assistant", "content": text}}
    return json.dumps({"choices": [{"index": 0, "finish_reason": "stop", **choice}]})


def answer(handler: Handler, asked: Asked) -> None:
    handler.send(200, completion(asked, reply_to(asked)))


def models(*names: str) -> Behaviour:
    body = json.dumps({"object": "list", "data": [{"id": name} for name in names]})
    return lambda handler, _: handler.send(200, body)


def status(code: int, body: str = "{}", **headers: str) -> Behaviour:
    return lambda handler, _: handler.send(code, body, **headers)


def garbage(body: str) -> Behaviour:
    return status(200, body)


def silence(seconds: float) -> Behaviour:
    def behave(handler: Handler, _: Asked) -> None:
        threading.Event().wait(seconds)
        handler.close_connection = True

    return behave


def truncated(handler: Handler, asked: Asked) -> None:
    """Promises a whole answer and breaks off in the middle of it."""
    whole = completion(asked, reply_to(asked))
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(whole)))
    handler.end_headers()
    handler.wfile.write(whole[: len(whole) // 2].encode())
    handler.close_connection = True


def hang_up(handler: Handler, _: Asked) -> None:
    """Closes the connection without a word."""
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def free_port() -> int:
    """A port at which nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port
