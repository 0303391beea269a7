"""Builds a task from a row, given the role of each column."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from posttrain.datasets.choices import read_choices
from posttrain.datasets.image_files import read_images, with_places
from posttrain.datasets.layout import Layout, lookup, quoted, rating_of
from posttrain.datasets.messages import images_in, looks_like_messages, read_messages, to_chat
from posttrain.datasets.rows import Row
from posttrain.datasets.values import as_text, finite, shorten
from posttrain.errors import UserError
from posttrain.types import Image, Message, Preference, Rated, Task

Prompt = str | tuple[Message, ...]

_TURN = "\n\nAssistant:"
"""Start of a turn in texts of the form of the helpful-and-harmless data sets."""


def build(row: Row, layout: Layout) -> Task:
    """The task of a row, with an empty key. Raises `UserError` with the row's place for an invalid row."""
    for column in layout.required:
        if lookup(row.values, column) is None:
            here = quoted(name for name, value in row.values.items() if value is not None)
            raise UserError(f"{row.place}: no '{column}', which other rows have; this row has {here}")
    prompt, demonstrations, preferences = _prompted(row, layout)
    images = _images(row, layout)
    answer = _value(row, layout.answer)
    if layout.choices is not None:
        prompt, answer = _with_choices(row, layout, prompt, answer)
    domain = _value(row, layout.domain)
    return Task(
        key="",
        prompt=with_places(prompt, len(images), row.place) if images else prompt,
        answer=None if answer is None else as_text(answer),
        domain="" if domain is None else as_text(domain),
        demonstrations=(*demonstrations, *_demonstrations(row, layout.demonstrations)),
        preferences=preferences,
        rated=_rated(row, layout),
        images=images,
        fields={column: value for column, value in row.values.items() if column not in layout.of_prompt},
    )


def own_key(row: Row, column: str) -> str | None:
    """The row's own identifier: text or a whole number."""
    value = lookup(row.values, column)
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) and value != "" else None


def _value(row: Row, column: str | None) -> Any:
    return None if column is None else lookup(row.values, column)


def _prompted(row: Row, layout: Layout) -> tuple[Prompt, tuple[str, ...], tuple[Preference, ...]]:
    """The prompt, and the demonstration or the preference in the same columns."""
    if layout.chosen is not None and layout.rejected is not None:
        prompt, preference = _preference(row, layout, layout.chosen, layout.rejected)
        return prompt, (), (preference,)
    if layout.messages is not None:
        messages = _messages(row, layout.messages)
        if messages[-1]["role"] != "assistant":
            return messages, (), ()
        if len(messages) == 1:
            raise UserError(f"{row.place}: '{layout.messages}' holds an answer only; what it answers is missing")
        _refuse_call(messages[-1], f"{row.place}: the last message of '{layout.messages}'")
        return messages[:-1], (messages[-1]["content"],), ()
    if layout.text is not None:
        return "", (_text(row, layout.text),), ()
    if layout.prompt is None:
        return "", (), ()
    return _prompt(row, layout.prompt, layout.context), (), ()


def _with_choices(row: Row, layout: Layout, prompt: Prompt, answer: Any) -> tuple[Prompt, Any]:
    """The prompt with the row's choices below it, and the label of the answer; unchanged for a row without choices."""
    value = _value(row, layout.choices)
    if value in (None, [], {}):
        return prompt, answer
    choices = read_choices(value)
    if choices is None:
        raise UserError(
            f"{row.place}: '{layout.choices}' is {shorten(as_text(value), 60)}; choices are a list of at least two "
            "texts, or lists 'text' and 'label' of equal length"
        )
    try:
        return choices.below(prompt), None if answer is None else choices.label_of(answer)
    except ValueError as error:
        raise UserError(f"{row.place}: '{layout.answer}' {error}") from None


def _images(row: Row, layout: Layout) -> tuple[Image, ...]:
    """The images of a row: those inside its messages in order, and the column's for parts without one."""
    column = layout.messages or layout.prompt
    value = None if column is None else lookup(row.values, column)
    inside = images_in(value) if looks_like_messages(value) else []
    return read_images(inside, _value(row, layout.images), row)


def _prompt(row: Row, column: str, context: str | None = None) -> Prompt:
    if not isinstance(lookup(row.values, column), str) or looks_like_messages(lookup(row.values, column)):
        return _messages(row, column)
    more = _value(row, context)
    return _text(row, column) + (f"\n\n{as_text(more)}" if more not in (None, "") else "")


def _text(row: Row, column: str) -> str:
    value = lookup(row.values, column)
    if not isinstance(value, str):
        raise UserError(f"{row.place}: '{column}' is {shorten(as_text(value), 60)}, which is not text")
    if not value.strip():
        raise UserError(f"{row.place}: '{column}' is empty; fill it or remove the row")
    return value


def _messages(row: Row, column: str) -> tuple[Message, ...]:
    value = lookup(row.values, column)
    if not looks_like_messages(value):
        raise UserError(
            f"{row.place}: '{column}' is {shorten(as_text(value), 60)}, which is neither text nor a list of messages "
            '[{"role": "user", "content": "..."}]'
        )
    try:
        return read_messages(value)
    except ValueError as error:
        raise UserError(f"{row.place}: '{column}': {error}") from None


def _demonstrations(row: Row, column: str | None) -> tuple[str, ...]:
    """One demonstration, or a list of them; empty ones are dropped."""
    value = _value(row, column)
    if value in (None, "") or column is None:
        return ()
    if isinstance(value, list) and not looks_like_messages(value):
        return tuple(as_text(item) for item in value if item not in (None, ""))
    return (_completion(row, column),)


def _completion(row: Row, column: str) -> str:
    """The text of a completion, given as text or as a single message of the assistant."""
    value = lookup(row.values, column)
    if not looks_like_messages(value):
        return as_text(value)
    messages = _messages(row, column)
    if len(messages) != 1 or messages[0]["role"] != "assistant":
        raise UserError(f"{row.place}: '{column}' holds {len(messages)} messages; one by the assistant is needed")
    _refuse_call(messages[0], f"{row.place}: '{column}'")
    return messages[0]["content"]


def _refuse_call(message: Message, what: str) -> None:
    """Raise `UserError` for a demonstration that calls a tool, whose text would be trained on without the call."""
    if message.get("tool_calls") or message.get("function_call"):
        raise UserError(
            f"{what} calls a tool, and a demonstration is the text of a message: the call would be lost. Write the "
            "call into 'content' as the model's chat template writes it, or end the conversation before it, which "
            "makes the rest a prompt. Calls and results before the last message can stay as they are"
        )


def _rated(row: Row, layout: Layout) -> tuple[Rated, ...]:
    if layout.completion is None or layout.rating is None:
        return ()
    value = lookup(row.values, layout.rating)
    rating = rating_of(value, layout.rating)
    if rating is None:
        allowed = "true or false" if layout.rating.lower() == "label" else "a number"
        raise UserError(f"{row.place}: '{layout.rating}' is {shorten(as_text(value), 60)}; it must be {allowed}")
    return (Rated(completion=_completion(row, layout.completion), rating=rating),)


def _preference(row: Row, layout: Layout, chosen: str, rejected: str) -> tuple[Prompt, Preference]:
    """The prompt is its column, followed by the common start of both conversations."""
    column = layout.prompt or layout.messages
    prompt = None if column is None else _prompt(row, column)
    if not looks_like_messages(lookup(row.values, chosen)):
        good, bad = _text(row, chosen), _text(row, rejected)
        if prompt is None:
            prompt, good, bad = _shared_text(row, good, bad)
        return prompt, _stated(row, Preference(chosen=good, rejected=bad))
    good_turns, bad_turns = _messages(row, chosen), _messages(row, rejected)
    shared = _shared_length(good_turns[:-1], bad_turns[:-1])
    for side, turns in ((chosen, good_turns), (rejected, bad_turns)):
        if len(turns) != shared + 1 or turns[-1]["role"] != "assistant":
            raise UserError(
                f"{row.place}: '{side}' does not end in one message by the assistant after what "
                f"'{chosen}' and '{rejected}' share"
            )
    opening = good_turns[:shared]
    given = () if prompt is None else to_chat(prompt, None)
    if given[len(given) - shared :] == opening:
        opening = given
    if not opening:
        raise UserError(f"{row.place}: '{chosen}' and '{rejected}' hold an answer only; what they answer is missing")
    pair = Preference(chosen=good_turns[-1]["content"], rejected=bad_turns[-1]["content"])
    return opening, _stated(row, pair)


def _stated(row: Row, pair: Preference) -> Preference:
    """The pair with the columns about it. Raises `UserError` with the row's place for a value of another type."""
    known: dict[str, Any] = {}
    for name in ("strength", "annotator", "user", "principle", "reference", "aspects"):
        value = _value(row, name)
        if value in (None, ""):
            continue
        if name == "strength":
            known[name] = finite(value) or value  # 0 is refused as it was given
        elif name == "reference" or (name in ("annotator", "user") and type(value) is int):
            known[name] = as_text(value)
        elif name == "aspects" and not isinstance(value, Mapping):
            raise UserError(f"{row.place}: 'aspects' is {shorten(as_text(value), 60)}, which has no names of aspects")
        else:
            known[name] = value
    try:
        return replace(pair, **known)
    except UserError as error:
        raise UserError(f"{row.place}: {error}; correct it, or give the column another name") from None


def _shared_length(left: Sequence[Any], right: Sequence[Any]) -> int:
    """Length of the common prefix of two sequences."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(left), len(right)))


def _shared_text(row: Row, chosen: str, rejected: str) -> tuple[str, str, str]:
    """Split two texts after their last common turn or, without turns, after their last common whole word."""
    shared = chosen[: _shared_length(chosen, rejected)]
    turn = shared.rfind(_TURN)
    cut = turn + len(_TURN) if turn >= 0 else _whole_words(shared)
    if not shared[:cut].strip():
        raise UserError(
            f"{row.place}: there is no prompt column, and the two texts begin with no common words to take for a prompt"
        )
    return chosen[:cut], chosen[cut:], rejected[cut:]


def _whole_words(shared: str) -> int:
    """Length of a text without its last word, which may be half a word, and without the space before that."""
    if shared[-1:].isspace():
        return len(shared.rstrip())
    words = shared.rsplit(None, 1)
    return len(words[0]) if len(words) == 2 else 0
