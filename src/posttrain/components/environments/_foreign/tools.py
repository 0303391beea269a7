"""Tools of an environment: their schemas, and the calls of a turn.

The calls of a turn run together, and their answers stand in the order of the calls. A call that cannot be read, has
arguments that do not fit, or whose tool raises, is answered by its error, alone. A turn without a call ends the
episode.
"""

import ast
import asyncio
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from posttrain.components.environments._foreign import Seen, written
from posttrain.errors import UserError
from posttrain.grading.turn_calls import CallForm, TurnCall, read_turn

MESSAGE = 300
"""Most characters of an error that is answered."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool that can be called."""

    name: str
    schema: Mapping[str, Any]
    """As chat templates take it: name, description, JSON schema of the parameters."""
    call: Callable[[Mapping[str, Any], bool], Any]
    """Runs it on arguments, which may be texts; the result may be awaitable. Raises `Misfit`."""
    parameters: Sequence[str] = ()


class Misfit(Exception):
    """Arguments that the tool does not take."""


def of_method(method: Callable[..., Any]) -> Tool:
    """A typed method as a tool. Raises `UserError` for a parameter without a type."""
    name = method.__name__
    hints = get_type_hints(method)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(method).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise UserError(f"the tool '{name}' has a parameter '{parameter}', which no call can name; write it out")
        if parameter.name not in hints:
            raise UserError(f"the tool '{name}' has no type for its parameter '{parameter.name}'; annotate it")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints[parameter.name], default)
    model: type[BaseModel] = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
    parameters = {key: value for key, value in model.model_json_schema().items() if key != "title"}
    schema = {"name": name, "description": inspect.getdoc(method) or "", "parameters": parameters}

    def call(arguments: Mapping[str, Any], texts: bool) -> Any:
        try:
            checked = model.model_validate(_read(arguments, hints) if texts else dict(arguments), strict=False)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise Misfit(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        return method(**{field: getattr(checked, field) for field in fields})

    return Tool(name=name, schema=schema, call=call, parameters=tuple(fields))


def of_schema(schema: Mapping[str, Any], call: Callable[[str, dict[str, Any]], Any]) -> Tool:
    """A tool of a library, by its schema; `call` takes its name and the arguments."""
    name, parameters = str(schema["name"]), tuple((schema.get("parameters") or {}).get("properties", {}))
    return Tool(
        name=name, schema=schema, call=lambda arguments, texts: call(name, dict(arguments)), parameters=parameters
    )


def hermes(name: str, arguments: Mapping[str, Any]) -> str:
    """A call in the form ``hermes``, as solvers write it."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': dict(arguments)})}</tool_call>"


def read_python(text: str, tools: Mapping[str, Tool]) -> tuple[str, dict[str, Any]]:
    """Name and arguments of a call of literals in Python; arguments without a name are in the order of the tool's."""
    call = cast(ast.Call, ast.parse(text.strip(), mode="eval").body)
    name = cast(ast.Name, call.func).id
    given = dict(zip(tools[name].parameters, call.args, strict=False)) | {k.arg or "": k.value for k in call.keywords}
    return name, {key: ast.literal_eval(value) for key, value in given.items()}


def _read(arguments: Mapping[str, Any], hints: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that were written as texts: JSON where the type is no text."""
    read = {}
    for name, text in arguments.items():
        try:
            read[name] = text if hints.get(name) is str else json.loads(text)
        except (ValueError, RecursionError):
            read[name] = text
    return read


def perform(text: str, form: CallForm, tools: Mapping[str, Tool]) -> Seen:
    """Run the calls of a turn; `terminated` where it has none."""
    calls = read_turn(text, form, tools)
    if not calls:
        return Seen(terminated=True)
    answers = asyncio.run(_all(calls, tools))
    texts = [answer for answer, _ in answers]
    together = texts[0] if len(texts) == 1 else "\n".join(f"<tool_response>{text}</tool_response>" for text in texts)
    failed = sum(not ok for _, ok in answers)
    return Seen(text=together, valid=failed < len(calls), calls=len(calls) - failed, failed_calls=failed)


async def _all(calls: Sequence[TurnCall], tools: Mapping[str, Tool]) -> list[tuple[str, bool]]:
    return list(await asyncio.gather(*(_answer(call, tools) for call in calls)))


async def _answer(call: TurnCall, tools: Mapping[str, Tool]) -> tuple[str, bool]:
    if call.fault:
        return f"error: {call.fault}", False
    tool = tools.get(call.name)
    if tool is None:
        return f"error: there is no tool '{call.name[:60]}'; there are {', '.join(tools)}", False
    arguments = call.arguments
    if set(arguments) == {""}:
        arguments = {tool.parameters[0]: arguments[""]} if tool.parameters else {}
    try:
        result = tool.call(arguments, call.texts)
        if inspect.isawaitable(result):
            result = await result
    except Misfit as error:
        return f"error: {str(error)[:MESSAGE]}", False
    except MemoryError:  # of the whole episode, as in an environment without tools
        raise
    except Exception as error:  # not what ends a process or a server
        return f"error: {' '.join(f'{type(error).__name__}: {error}'.split())[:MESSAGE]}", False
    return written(result), True
