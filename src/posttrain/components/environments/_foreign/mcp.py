"""Tools of a server of the Model Context Protocol: ``mcp:python server.py``; a server for each episode.

A server that does not come up is started again, four times in all; one that ends later ends the episode, since its
state is lost. Its text answers are shown, an error as one. What the server prints or how it ends does not matter to
the run: it is a child of the episode's worker, and ends with it. The value of an episode is 0; a reward component
scores it.
"""

import asyncio
import importlib
import shlex
import sys
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, cast

from posttrain.components.environments._foreign import Adapter, Seen
from posttrain.components.environments._foreign.servers import Loop, script, tried, variables
from posttrain.components.environments._foreign.tools import Tool, of_schema, perform
from posttrain.errors import UserError
from posttrain.grading.turn_calls import CallForm


class ServerGone(BaseException):
    """The server ended: a failure of the episode, not of one tool."""


def open_adapter(name: str, arguments: dict[str, Any], view: str, calls: str) -> Adapter:
    """The tools of a server that is started now."""
    script(name)
    return Server(name, cast(CallForm, calls), variables(arguments))


class Server(Adapter):
    """A server and the thread that talks to it."""

    def __init__(self, command: str, form: CallForm, env: dict[str, str]) -> None:
        self._form, self._words, self._env = form, shlex.split(command)[1:], env
        importlib.import_module("mcp")  # raises here where it is missing
        listed = tried(self._started, "it did not come up in {tries} starts", (BaseException,))
        names = [tool.name for tool in listed]
        if len(set(names)) < len(names):
            raise UserError(f"mcp:{command}: it has two tools of one name: {sorted(names)}")
        self.tools = {tool.name: self._tool(tool) for tool in listed}

    def _started(self) -> list[Any]:
        """Start the server; returns its tools, once it is up."""
        self._loop, self._stop = Loop(), asyncio.Event()
        self._client: Any = None
        ready: Future[list[Any]] = Future()
        self._loop.run(self._kept(self._words, ready))
        return ready.result()

    async def _kept(self, arguments: list[str], ready: "Future[list[Any]]") -> None:
        """Hold the connection, in one task, until the episode is over."""
        import mcp

        try:
            server = mcp.StdioServerParameters(command=sys.executable, args=arguments, env=self._env)
            async with mcp.Client(server) as self._client:
                ready.set_result((await self._client.list_tools()).tools)
                await self._stop.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
        self._loop.stop()

    def reset(self, seed: int, fields: Mapping[str, Any]) -> Seen:
        """The server starts in its own state: nothing is sent to it."""
        return Seen()

    def step(self, action: str) -> Seen:
        """Run the calls of a turn, all at once."""
        return perform(action, self._form, self.tools)

    def close(self) -> None:
        """End the server, and wait a while for it."""
        self._loop.soon(self._stop.set)
        self._loop.wait(5.0)

    def _tool(self, tool: Any) -> Tool:
        schema = {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema or {}}
        return of_schema(
            schema, lambda name, arguments: asyncio.wrap_future(self._loop.run(self._called(name, arguments)))
        )

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
