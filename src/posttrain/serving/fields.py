"""Fields of requests that are objects of their own: messages, tools, and the form of a completion."""

import json
from typing import Annotated, Any, Literal

from pydantic import Field, Strict, StringConstraints
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.errors.foreign import shown
from posttrain.types import Message

LARGEST = 2**31 - 1
"""Of whole numbers."""

Text = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
Whole = Annotated[int, Strict(), Field(le=LARGEST)]
Positive = Annotated[int, Strict(), Field(ge=1, le=LARGEST)]
Real = Annotated[float, Strict()]
Flag = Annotated[bool, Strict()]

MOST_CHARACTERS = 500
"""Of an error's message, which may quote the request."""
MOST_TOOLS = 128
MOST_DEPTH = 24
"""Levels of a tool's schema, and of a call's arguments."""


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code

    @property
    def body(self) -> dict[str, Any]:
        """The error object of the protocol."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        param = None if self.param is None else shown(self.param, MOST_CHARACTERS)
        message = shown(self, MOST_CHARACTERS)
        return {"error": {"message": message, "type": kind, "param": param, "code": self.code}}


def shape_of(given: Any) -> tuple[int, int]:
    """How many values are in nested lists and objects, and how deep they are."""
    values = depth = 0
    level = [given]
    while level:
        values += len(level)
        depth += 1
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict | list):
                inner.extend(value.values() if isinstance(value, dict) else value)
        level = inner
    return values, depth


@frozen
class Part:
    """A part of a message's content."""

    type: Literal["text"]
    text: str


@frozen
class GivenFunction:
    """The function of a call that a client sends back."""

    name: Text
    arguments: Annotated[str, StringConstraints(max_length=100_000)]


@frozen
class GivenCall:
    """A call of a tool that a client sends back."""

    id: Text | None = None
    type: Literal["function"] = "function"
    function: GivenFunction

    @property
    def plain(self) -> dict[str, Any]:
        """The call as chat templates take it. Raises `Refused` for arguments that are no JSON object."""
        try:
            arguments = json.loads(self.function.arguments or "{}")
        except (ValueError, RecursionError):
            arguments = None
        if not isinstance(arguments, dict) or shape_of(arguments)[1] > MOST_DEPTH:
            raise Refused(
                f"the arguments of a call are a JSON object as text, at most {MOST_DEPTH} deep; those of "
                f"'{self.function.name:.60}' are not",
                param="messages",
            )
        function = {"name": self.function.name, "arguments": arguments}
        return {"type": "function", "function": function} | ({"id": self.id} if self.id is not None else {})


@frozen
class Function:
    """What a tool is."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    """A JSON schema, which the model is shown. It is followed by force where the call is (`ToolChoice`)."""
    strict: Annotated[bool, Strict()] | None = None

    def __post_init__(self) -> None:
        """Refuses what is too deep."""
        if self.strict:
            raise PydanticCustomError(
                "tool", "strict is not supported: arguments follow a schema only where tool_choice forces the call"
            )
        if self.parameters is not None and shape_of(self.parameters)[1] > MOST_DEPTH:
            raise PydanticCustomError("tool", f"parameters are more than {MOST_DEPTH} deep")


@frozen
class Tool:
    """A tool that the model may call."""

    type: Literal["function"]
    function: Function

    @property
    def plain(self) -> dict[str, Any]:
        """The tool as chat templates take it."""
        function = self.function
        given: dict[str, Any] = {"name": function.name, "description": function.description}
        given["parameters"] = function.parameters
        return {"type": "function", "function": {name: value for name, value in given.items() if value is not None}}


@frozen
class ChosenFunction:
    """The name of a tool."""

    name: Text


@frozen
class ToolChoice:
    """A tool that the reply has to call."""

    type: Literal["function"]
    function: ChosenFunction


@frozen
class Schema:
    """A JSON schema with its name."""

    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: str | None = None
    schema: dict[str, Any]
    strict: Annotated[bool, Strict()] | None = None
    """Without effect: a schema is followed exactly, or refused."""


@frozen
class ResponseFormat:
    """The form of a completion."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: Schema | None = None

    def __post_init__(self) -> None:
        """Refuses a schema of another type, and a missing one."""
        if (self.json_schema is not None) != (self.type == "json_schema"):
            raise PydanticCustomError("format", "json_schema is given with type 'json_schema', and only then")

    @property
    def wanted(self) -> dict[str, Any] | None:
        """The schema to follow."""
        if self.json_schema is not None:
            return self.json_schema.schema
        return {"type": "object"} if self.type == "json_object" else None


@frozen
class ChatMessage:
    """A message as clients send it."""

    role: Text
    content: str | Annotated[list[Part], Field(fail_fast=True, max_length=1000)] | None = None
    """None only where there are `tool_calls`."""
    tool_calls: Annotated[tuple[GivenCall, ...], Field(fail_fast=True, max_length=MOST_TOOLS)] = ()
    tool_call_id: Text | None = None
    name: Text | None = None

    @property
    def plain(self) -> Message:
        """The message as chat templates take it: its content as one string, arguments of calls as objects."""
        given = self.content or ""
        parts = [given] if isinstance(given, str) else [part.text for part in given]
        message = Message(role=self.role, content="".join(parts))
        more: dict[str, Any] = {}
        if self.tool_calls:
            more["tool_calls"] = [call.plain for call in self.tool_calls]
        if self.tool_call_id is not None:
            more["tool_call_id"] = self.tool_call_id
        if self.name is not None:
            more["name"] = self.name
        message.update(more)  # type: ignore[typeddict-item]
        return message
