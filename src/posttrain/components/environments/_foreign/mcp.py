"""Tools of a server of the Model Context Protocol: ``mcp:python server.py``; a server for each episode.

A server that does not come up is started again, `STARTS` times in all; one that ends later ends the episode, since its
state is lost. Its text answers are shown, an error as one. What the server prints or how it ends does not matter to
the run: it is a child of the episode's worker, and ends with it. The value of an episode is 0; a reward component
scores it.
"""

import asyncio
import importlib
import shlex
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, cast

from posttrain.components.environments._foreign import Adapter, Seen, ServerDown
from posttrain.components.environments._foreign.tools import Tool, perform
from posttrain.errors import UserError
from posttrain.grading.turn_calls import CallForm

STARTS: Final = 4
"""Starts of a server at most: one, and three more."""
WAIT: Final = 0.2
"""Seconds before another start; it doubles each time."""


class ServerGone(BaseException):
    """The server ended: a failure of the episode, not of one tool."""


def script(command: str) -> str:
    """The Python file of ``python FILE.py ...``, the only form, so that its bytes can be asked consent for."""
    words = shlex.split(command)
    if len(words) < 2 or Path(words[0]).name not in ("python", "python3") or not words[1].endswith(".py"):
        raise UserError(f"mcp:{command}: write mcp:python FILE.py; start another server from such a file")
    return words[1]


def open_adapter(name: str, arguments: dict[str, Any], view: str, calls: str) -> Adapter:
    """The tools of a server that is started now."""
    script(name)
    return Server(name, cast(CallForm, calls))


class Server(Adapter):
    """A server and the thread that talks to it."""

    def __init__(self, command: str, form: CallForm) -> None:
        self._form, self._words = form, shlex.split(command)[1:]
        listed = self._started()
        names = [tool.name for tool in listed]
        if len(set(names)) < len(names):
            raise UserError(f"mcp:{command}: it has two tools of one name: {sorted(names)}")
        self.tools = {tool.name: self._tool(tool) for tool in listed}

    def _started(self) -> list[Any]:
        """The tools of the server, once it is up. Raises `ServerDown` after the last start."""
        importlib.import_module("mcp")  # raises here where it is missing
        for start in range(STARTS):
            self._loop, self._stop = asyncio.new_event_loop(), asyncio.Event()
            self._client: Any = None
            ready: Future[list[Any]] = Future()
            asyncio.run_coroutine_threadsafe(self._kept(self._words, ready), self._loop)
            threading.Thread(target=self._loop.run_forever, daemon=True).start()
            try:
                return ready.result()
            except BaseException as error:
                if start + 1 == STARTS:
                    raise ServerDown(f"it did not come up in {STARTS} starts: {_reason(error)}") from error
                time.sleep(WAIT * 2**start)
        raise AssertionError("the last start returned or raised")

    async def _kept(self, arguments: list[str], ready: "Future[list[Any]]") -> None:
        """Hold the connection, in one task, until the episode is over."""
        import mcp

        try:
            async with mcp.Client(mcp.StdioServerParameters(command=sys.executable, args=arguments)) as self._client:
                ready.set_result((await self._client.list_tools()).tools)
                await self._stop.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
        asyncio.get_running_loop().stop()

    def reset(self, seed: int, fields: Mapping[str, Any]) -> Seen:
        """The server starts in its own state: nothing is sent to it."""
        return Seen()

    def step(self, action: str) -> Seen:
        """Run the calls of a turn, all at once."""
        return perform(action, self._form, self.tools)

    def close(self) -> None:
        """End the server."""
        self._loop.call_soon_threadsafe(self._stop.set)

    def _tool(self, tool: Any) -> Tool:
        def call(arguments: Mapping[str, Any], texts: bool) -> Any:
            work = asyncio.run_coroutine_threadsafe(self._called(tool.name, dict(arguments)), self._loop)
            return asyncio.wrap_future(work)

        schema = {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema}
        parameters = tuple((tool.input_schema or {}).get("properties", {}))
        return Tool(name=tool.name, schema=schema, call=call, parameters=parameters)

    async def _called(self, name: str, arguments: dict[str, Any]) -> str:
        import mcp

        try:
            result = await self._client.call_tool(name, arguments)
        except mcp.MCPError as error:
            if "closed" not in str(error):
                raise
            raise ServerGone("the server ended, with the answer to a call open") from None
        text = "\n".join(part.text for part in result.content if getattr(part, "type", "") == "text")
        if result.is_error:
            raise RuntimeError(text or "the tool failed")
        return text


def _reason(error: BaseException) -> str:
    """The innermost error of a group of one, by its type and message."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
