"""An endpoint of chat completions for one episode: a program requests them, and the turns of the policy answer.

The first request is shown whole, with its tools; of later ones only the messages after the last answer. The text of a
turn is the content of the answer; its calls, read in the form of the environment, are its tool calls. A request that
changes messages that were shown already cannot go on, since what was sampled after them stands.
"""

import json
import queue
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from posttrain.grading.turn_calls import CallForm, read_turn

LARGEST = 1 << 26
"""Most bytes of a request."""


class Ended(Exception):
    """The program sends no more requests; `reason` is what went wrong, if something did."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Endpoint:
    """The endpoint, from its making to `close`."""

    def __init__(self, form: CallForm) -> None:
        self._form: CallForm = form
        self._requests: queue.Queue[Mapping[str, Any] | Ended] = queue.Queue()
        self._replies: queue.Queue[str | None] = queue.Queue()
        self._shown: list[Any] = []
        self._tools: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_port}/v1"

    def request(self) -> str:
        """The next request, as text. Raises `Ended`, and `RuntimeError` where it changed what was shown."""
        found = self._requests.get()
        if isinstance(found, Ended):
            raise found
        messages, known = list(found["messages"]), self._shown
        if [_content(m) for m in messages[: len(known)]] != [_content(m) for m in known]:
            raise RuntimeError("the program changed messages that were shown; such an episode cannot go on")
        lines: list[str] = []
        if not known and found.get("tools"):
            self._tools = [tool["function"]["name"] for tool in found["tools"]]
            lines = ["Tools:", *(json.dumps(tool["function"]) for tool in found["tools"])]
        new = messages[len(known) + bool(known) :]  # without the answer itself
        self._shown = messages
        return "\n".join([*lines, *filter(None, map(_content, new))])

    def reply(self, text: str) -> None:
        """Answer the request."""
        self._replies.put(text)

    def end(self, reason: str) -> None:
        """Mark that no more requests come."""
        self._requests.put(Ended(reason))

    def close(self) -> None:
        """Answer nothing any more."""
        self._replies.put(None)
        self._server.shutdown()
        self._server.server_close()

    def answer(self, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """Wait for the turn that answers a request; None after `close`."""
        self._requests.put(body)
        text = self._replies.get()
        if text is None:
            return None
        calls = [
            {"index": place, "id": f"call_{place}", "type": "function", "function": _function(call)}
            for place, call in enumerate(c for c in read_turn(text, self._form, self._tools) if not c.fault)
        ]
        return {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers.get("content-length", 0))
                try:
                    body = json.loads(self.rfile.read(min(size, LARGEST)))
                except (ValueError, RecursionError):
                    self.send_error(400)
                    return
                message = endpoint.answer(body)
                if message is None:
                    self.send_error(503)
                    return
                streamed = bool(body.get("stream"))
                content = _written(message, body, streamed)
                self.send_response(200)
                self.send_header("content-type", "text/event-stream" if streamed else "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        return Handler


def _function(call: Any) -> dict[str, str]:
    return {"name": call.name, "arguments": json.dumps(dict(call.arguments))}


def _content(message: Mapping[str, Any]) -> str:
    """The text of a message."""
    content = message.get("content") or ""
    parts = cast(Sequence[Mapping[str, Any]], [{"text": content}] if isinstance(content, str) else content)
    return "\n".join(str(part.get("text", "")) for part in parts)


def _written(message: Mapping[str, Any], body: Mapping[str, Any], streamed: bool) -> bytes:
    """A completion, whole or as the events of a stream."""
    reason = "tool_calls" if "tool_calls" in message else "stop"
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    base = {"id": "turn", "created": 0, "model": body.get("model", "policy"), "object": "chat.completion"}
    if not streamed:
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return json.dumps({**base, "choices": [choice], "usage": usage}).encode()
    base["object"] += ".chunk"
    parts: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        {"choices": [], "usage": usage},
    ]
    return "".join(
        f"data: {event}\n\n" for event in [*(json.dumps({**base, **part}) for part in parts), "[DONE]"]
    ).encode()
