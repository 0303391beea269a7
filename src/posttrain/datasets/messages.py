"""Chat messages in the formats of data sets: lists, JSON text of lists, parts of content, and ShareGPT's keys."""

from collections.abc import Mapping
from typing import Any, cast

from posttrain.errors.foreign import parse_json
from posttrain.types import IMAGE, Message

_SHAREGPT_ROLES = {"human": "user", "gpt": "assistant"}


def looks_like_messages(value: Any) -> bool:
    """Whether a value is a list of messages, or JSON text of one."""
    if isinstance(value, str):
        value = _from_json(value)
    return isinstance(value, list) and bool(value) and all(_is_message(item) for item in value)


def read_messages(value: Any) -> tuple[Message, ...]:
    """The messages of a value that looks like them. Raises `ValueError` with the number of the invalid one."""
    if isinstance(value, str):
        value = _from_json(value)
    return tuple(_message(item, number) for number, item in enumerate(value, 1))


def images_in(value: Any) -> list[Any]:
    """The images in the parts of messages, in order; None for a placeholder."""
    if isinstance(value, str):
        value = _from_json(value)
    contents = [item.get("content", item.get("value")) for item in value]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return [_held(part) for part in parts if _is_image(part)]


def to_chat(prompt: str | tuple[Message, ...], system: str | None) -> tuple[Message, ...]:
    """A text as the only message of a user, after an optional system message; messages are returned unchanged."""
    if not isinstance(prompt, str):
        return prompt
    opening = () if system is None else (Message(role="system", content=system),)
    return (*opening, Message(role="user", content=prompt))


def _from_json(text: str) -> Any:
    if not text.lstrip().startswith("["):
        return None
    try:
        return parse_json(text)
    except (ValueError, RecursionError):
        return None


def _is_message(item: Any) -> bool:
    if not isinstance(item, Mapping):
        return False
    spoken = "role" in item and ("content" in item or _calls(item))
    return spoken or {"from", "value"} <= item.keys()


def _calls(item: Mapping[str, Any]) -> bool:
    """Whether a message calls a tool; such a message needs no content."""
    return bool(item.get("tool_calls") or item.get("function_call"))


def _message(item: Mapping[str, Any], number: int) -> Message:
    """One message; further entries (tool calls, a name) are kept for the chat template."""
    role, content = (item["role"], item.get("content")) if "role" in item else (item["from"], item["value"])
    if not isinstance(role, str) or not role:
        raise ValueError(f"message {number} has the role {role!r}, which is not text")
    if isinstance(content, list):
        content = _join_parts(content, number)
    if content is None and _calls(item):
        content = ""
    if not isinstance(content, str):
        raise ValueError(f"message {number} ({role}) has content that is not text: {str(content)[:60]}")
    if not (role + content).isascii() and any("\ud800" <= character <= "\udfff" for character in role + content):
        raise ValueError(f"message {number} holds half of a character (an unpaired surrogate)")
    more = {k: v for k, v in item.items() if k not in ("role", "content", "from", "value") and v is not None}
    return cast(Message, {"role": _SHAREGPT_ROLES.get(role, role), "content": content, **more})


def _join_parts(parts: list[Any], number: int) -> str:
    """The text of a content given as parts, ``[{"type": "image"}, {"type": "text", "text": ...}]``."""
    for part in parts:
        if not _is_image(part) and (not isinstance(part, Mapping) or not isinstance(part.get("text"), str)):
            raise ValueError(
                f"message {number} has a part that is neither text nor an image, which is not supported: "
                f"{str(part)[:60]}"
            )
    return "".join(IMAGE if _is_image(part) else part["text"] for part in parts)


def _is_image(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in ("image", "image_url")


def _held(part: Mapping[str, Any]) -> Any:
    """The image of a part, under any of the names in use."""
    held = next((part[key] for key in ("image", "image_url", "url", "path", "base64") if part.get(key)), None)
    return held.get("url") if isinstance(held, Mapping) and "url" in held else held
