"""The images of a row: paths, base64, data URIs, and the ``{bytes, path}`` of Hugging Face data sets."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain.datasets.images import from_base64
from posttrain.datasets.rows import Row
from posttrain.errors import UserError
from posttrain.types import IMAGE, Image, Message

Prompt = str | tuple[Message, ...]


def read_images(inside: Sequence[Any], column: Any, row: Row) -> tuple[Image, ...]:
    """The images in the order of the prompt.

    `inside` are the images in the messages, None for a placeholder; `column` is the value of the column for images,
    which fills the placeholders. Raises `UserError` with the row's place.
    """
    beside = [] if column is None else column if isinstance(column, list) else [column]
    missing = sum(held is None for held in inside)
    if inside and missing != len(beside):
        raise UserError(
            f"{row.place}: the messages show {missing} images that they do not hold, and the column for images has "
            f"{len(beside)}"
        )
    left = iter(beside)
    given = [next(left) if held is None else held for held in inside] if inside else beside
    try:
        return tuple(_image(value, row) for value in given)
    except ValueError as error:
        raise UserError(f"{row.place}: {error}") from None


def with_places(prompt: Prompt, images: int, place: str) -> Prompt:
    """The prompt with a place for each image: as is, or with all before the text if it has none."""
    texts = [prompt] if isinstance(prompt, str) else [message["content"] for message in prompt]
    found = sum(text.count(IMAGE) for text in texts)
    if found == images:
        return prompt
    if found:
        raise UserError(f"{place}: the prompt has {found} places {IMAGE} for {images} images; leave all out, or none")
    if isinstance(prompt, str):
        return IMAGE * images + prompt
    first = next((i for i, message in enumerate(prompt) if message["role"] == "user"), 0)
    shown = prompt[first].copy()
    shown["content"] = IMAGE * images + shown["content"]
    return (*prompt[:first], shown, *prompt[first + 1 :])


def _image(value: Any, row: Row) -> Image:
    """One image. Raises `ValueError` for an invalid one."""
    if isinstance(value, Mapping):
        if value.get("bytes"):
            return Image(data=from_base64(str(value["bytes"])))
        value = value.get("path")
    if not isinstance(value, str) or not value:
        raise ValueError(f"an image is a path, base64 or a link that holds it, but this is {str(value)[:60]!r}")
    if value.startswith("data:"):
        return Image(data=from_base64(value))
    if value.startswith(("http://", "https://")):
        raise ValueError(f"the image {value[:80]!r} is on the network, which is not read; copy it beside the data")
    path = Path(row.file).parent / value.removeprefix("file://")
    if _is_file(path):
        return Image(path=str(path.resolve()), name=value)
    if len(value) > 256 and not value.isspace():
        return Image(data=from_base64(value))
    raise ValueError(f"there is no image '{value[:200]}' in {path.parent.absolute()}")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or base64
        return False
