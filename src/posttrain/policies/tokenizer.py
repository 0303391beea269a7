"""Text and chat messages to token ids and back, from the tokenizer files of an ordinary Hugging Face folder.

Built on the ``tokenizers`` library and on templates in a process of their own; ``transformers`` is not needed.

Data, messages, and the output of environments and tools are text. Special tokens come from the chat
template alone, so that a row with ``<|im_end|>`` in it can neither end a turn nor speak for another role. Data that was
made with special tokens on purpose needs ``tasks.special_tokens: allow`` (`Tokenizer.allowing_special_tokens`).
"""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from tokenizers import Tokenizer as Library

from posttrain.component import nearest
from posttrain.errors import UserError
from posttrain.errors.foreign import file_in, guard, read_json, read_text, shown
from posttrain.policies._backend import Backend
from posttrain.policies._byte_tokenizer import byte_symbols
from posttrain.policies._templates import ChatTemplate
from posttrain.types import IntArray, Message

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
)
"""Everything that belongs to a tokenizer and is carried along when a model is saved."""
LARGEST = {
    "": 16 << 20,
    "chat_template.jinja": 1 << 20,
    "model.safetensors.index.json": 64 << 20,
    **dict.fromkeys(("tokenizer.json", "vocab.json", "merges.txt", "vocab.txt", "tokenizer.model"), 128 << 20),
}
"""Most bytes of a model's files, by name; those without a name of their own have that of the empty one."""
TODAY = date(2026, 1, 1)
"""Today's date in chat templates: always the same, since otherwise a run that is resumed on the next day, or repeated,
would have other prompts."""


Nested = TypeVar("Nested")

REPLACEMENT = "\ufffd"
_STAND_IN = "0xassistant0x"
"""Placeholder of the model's turn in a rendered conversation."""


class Tokenizer:
    """Encodes and decodes; immutable."""

    end_token_ids: frozenset[int]
    """Ids that end a completion: the end tokens of the generation config, the config and the tokenizer config."""
    pad_token_id: int | None

    def __init__(
        self,
        backend: Library | Backend,
        settings: Mapping[str, Any],
        *,
        end_token_ids: Iterable[int] = (),
        where: str = "tokenizer",
    ) -> None:
        self._backend = backend if isinstance(backend, Backend) else Backend(backend, f"the tokenizer '{where}'")
        self._settings = settings
        self._where = where
        self._specials_are_text = True
        self._closing: int | None = None
        self.pad_token_id = self._special_id("pad_token")
        end = self._special_id("eos_token")
        self.end_token_ids = frozenset(end_token_ids) | ({end} if end is not None else set())
        self._start = self._start_ids()

    @classmethod
    def load(cls, folder: Path, *, model: Path | None = None, where: str = "") -> Self:
        """Read a folder. Raises `UserError` when there is no usable ``tokenizer.json`` in it.

        `model` is the folder of the model's configs, where it is another one; `where` names the model in messages.
        """
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise UserError(
                f"'{folder}' has no tokenizer.json. Tokenizers are read in that form only; make one with "
                f"AutoTokenizer.from_pretrained('{folder}').save_pretrained('{folder}') of transformers"
            )
        backend = Backend.read(file_in(folder, path.name), LARGEST[path.name])
        settings = _settings(folder, "tokenizer_config.json")
        if (folder / "chat_template.jinja").exists():
            template = file_in(folder, "chat_template.jinja")
            settings["chat_template"] = read_text(template, LARGEST[template.name])
        ends: set[int] = set()
        for name in ("generation_config.json", "config.json"):
            given = _settings(model or folder, name).get("eos_token_id")
            listed = given if isinstance(given, list) else [] if given is None else [given]
            if any(isinstance(end, bool) or not isinstance(end, int) or not 0 <= end < 2**31 for end in listed):
                place, value = (model or folder) / name, shown(repr(given), 60)
                raise UserError(f"'{place}': eos_token_id is {value}; it is the id of a token, or a list of ids")
            ends.update(listed)
        return cls(backend, settings, end_token_ids=ends, where=where or str(folder))

    @property
    def size(self) -> int:
        """Number of tokens, special ones included."""
        return self._backend.size

    @property
    def vocabulary(self) -> Mapping[str, int]:
        """The id of every token, special ones included."""
        return self._backend.vocabulary

    @property
    def has_chat_template(self) -> bool:
        """Whether chat messages can be given."""
        return bool(self._settings.get("chat_template"))

    @cached_property
    def special_tokens(self) -> Mapping[str, int]:
        """The id of each special token by its text."""
        return self._backend.special_tokens

    def allowing_special_tokens(self) -> "Tokenizer":
        """The same tokenizer for data in which the texts of special tokens are meant as special tokens."""
        other = copy.copy(self)
        other._specials_are_text = False
        return other

    def closing_with(self, token: str | None) -> "Tokenizer":
        """The same tokenizer whose completions end with another token than the end token, by its text.

        Raises `UserError` for a text that is no token of the vocabulary.
        """
        other = copy.copy(self)
        other._closing = None if token is None else self.vocabulary.get(token)
        if token is not None and other._closing is None:
            raise UserError(
                f"'{token}' is no single token of the tokenizer '{self._where}'; {nearest(token, self.special_tokens)}"
            )
        return other

    def encode(self, text: str, *, allow: Iterable[str] = ()) -> IntArray:
        """Ids of a text as is, after the start token where the model has one.

        Special tokens in it are text, but those that are named in `allow`.
        """
        return np.array([*self._start, *self._text_ids(text, allow)], np.int64)

    def encode_chat(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        *,
        allow: Iterable[str] = (),
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> IntArray:
        """Ids of chat messages in the model's own template, by default up to where the assistant's reply begins.

        Special tokens in the messages and tools are text, but those that are named in `allow`. Raises `UserError`
        where the template ignores the tools.
        """
        (masked, masked_tools), marks = self._masked((list(messages), list(tools)), allow)
        text = self.render_chat(masked, add_generation_prompt, masked_tools)
        quiet = [Message(role=message["role"], content=message["content"]) for message in masked]
        if any("tool_calls" in m for m in masked) and text == self.render_chat(
            quiet, add_generation_prompt, masked_tools
        ):
            raise UserError(f"the chat template of '{self._where}' has no place for the tool_calls of a message")
        if tools and text == self.render_chat(masked, add_generation_prompt):
            raise UserError(
                f"the chat template of '{self._where}' has no place for tools, so the model would not see them; leave "
                "the tools out, or serve a model that was trained to call them"
            )
        return np.array(self._ids(text, marks), np.int64)

    def tool_prompt(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """What the chat template makes of tools and a message without words: it shows how calls are written."""
        return self.render_chat([Message(role="user", content="")], True, tools)

    def file_content(self) -> str:
        """The content of ``tokenizer.json``, as the library writes it."""
        return self._backend.file_content()

    def encode_prompt(self, prompt: str | Sequence[Message], *, allow: Iterable[str] = ()) -> IntArray:
        """Ids of a prompt: text as is, or chat messages by the template."""
        return self.encode(prompt, allow=allow) if isinstance(prompt, str) else self.encode_chat(prompt, allow=allow)

    def encode_completion(self, prompt: str | Sequence[Message], text: str) -> IntArray:
        """Ids of a completion as the model should write it after `prompt`, up to and including its end token.

        After messages it is what the chat template makes of an assistant's reply, where the template continues its own
        generation prompt; otherwise the text and the end token.
        """
        ids = self._text_ids(text)
        if not isinstance(prompt, str):
            masked, marks = self._masked([*prompt, Message(role="assistant", content=text)])
            start = self.render_chat(masked[:-1])
            whole = self.render_chat(masked, add_generation_prompt=False)
            if whole.startswith(start):
                ids = self._ids(whole[len(start) :], marks)
        ends = [place for place, token in enumerate(ids) if token in self.end_token_ids]
        if self._closing is not None:
            return np.array([*(ids[: ends[0]] if ends else ids), self._closing], np.int64)
        if ends:
            return np.array(ids[: ends[0] + 1], np.int64)
        end = self._special_id("eos_token")
        closing = [end] if end is not None else sorted(self.end_token_ids)[:1]
        return np.array([*ids, *closing], np.int64)

    def encode_conversation(self, messages: Sequence[Message]) -> tuple[IntArray, list[tuple[int, int]]]:
        """Ids of a whole conversation, and where in them each turn of the assistant begins and ends, its end token
        included.

        What precedes a turn is, token by token, what the model is given when it writes that turn. Raises `UserError`
        for a template that changes earlier turns, whose conversation is no such sequence.
        """
        ids = self.encode_chat(messages, add_generation_prompt=False)
        spans = []
        for number, message in enumerate(messages):
            if message["role"] != "assistant" or not number:
                continue
            begin = self.encode_chat(messages[:number])
            through = self.encode_chat(messages[: number + 1], add_generation_prompt=False)
            if not (np.array_equal(ids[: len(begin)], begin) and np.array_equal(ids[: len(through)], through)):
                raise UserError(
                    f"the chat template of '{self._where}' writes a conversation differently once it goes on, as where "
                    "it leaves out earlier thoughts, so not all turns can be trained in one sequence; train the last "
                    "turn only (turns=last), with a row for each turn"
                )
            ends = [at for at in range(len(begin), len(through)) if int(ids[at]) in self.end_token_ids]
            spans.append((len(begin), ends[0] + 1 if ends else len(through)))
        last = spans[-1][1] if spans else len(ids)
        end = self._special_id("eos_token")
        if last == len(ids) and end is not None and int(ids[-1]) not in self.end_token_ids:
            ids, spans = np.append(ids, end), [*spans[:-1], (spans[-1][0], last + 1)] if spans else spans
        return ids[: spans[-1][1]] if spans else ids, spans

    def encode_open(self, text: str) -> IntArray:
        """Ids of a text that goes on from others: no start token before it, no end token after it."""
        return np.array(self._text_ids(text), np.int64)

    def encode_reply(self, prompt: str | Sequence[Message], turn: IntArray, reply: Message) -> IntArray:
        """Ids of a reply to the model's turn, up to where its next turn begins.

        After a text it is the reply's text as is. After messages it is what the chat template puts between two
        turns of the assistant; the end of the first one is left out where the ids of the `turn` have it already.
        Special tokens in the reply are always text: it comes from an environment or a tool, and is no row of data.
        """
        if isinstance(prompt, str):
            [masked_reply], marks = self._masked([reply], always=True)
            return np.array(self._ids(masked_reply["content"], marks), np.int64)
        turn_before = Message(role="assistant", content=_STAND_IN)
        masked, marks = self._masked([*prompt, turn_before, reply], always=True)
        _, found, after = self.render_chat(masked).rpartition(_STAND_IN)
        if not found:
            raise UserError(
                f"the chat template of '{self._where}' leaves out what the assistant said before, so a conversation "
                "cannot go on from what was sampled; write prompts as plain text"
            )
        ids = self._ids(after, marks)
        content = masked[-1]["content"]
        closing = after.partition(content)[0] if content else after
        ended = len(turn) > 0 and int(turn[-1]) in self.end_token_ids
        if ended and self.end_token_ids.intersection(self._ids(closing)):
            ids = ids[next(place for place, token in enumerate(ids) if token in self.end_token_ids) + 1 :]
        return np.array(ids, np.int64)

    def decode(self, token_ids: Iterable[int], *, special: bool = False) -> str:
        """Text of token ids, without special tokens unless `special`. Broken UTF-8 becomes U+FFFD."""
        return self._backend.decode([int(i) for i in token_ids], special=special)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for, which may be a part of a character; none of a special token."""
        text = self.decode([token_id])
        if REPLACEMENT not in text:
            return text.encode()
        name = self._backend.id_to_token(token_id) or ""
        if re.fullmatch("<0x[0-9A-F]{2}>", name):
            return bytes([int(name[3:5], 16)])
        numbers = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
        return bytes(numbers[symbol] for symbol in name) if set(name) <= set(numbers) else text.encode()

    def render_chat(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        """The text that the chat template makes of messages, and of tools where there are some."""
        names = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
        tokens = {name: text for name in names if (text := self._special(name)) is not None}
        given = {"messages": [dict(message) for message in messages], "tools": list(tools) or None, "documents": None}
        return self._template.render({**given, "add_generation_prompt": add_generation_prompt, **tokens})

    @cached_property
    def _template(self) -> ChatTemplate:
        """The default chat template."""
        source = self._settings.get("chat_template")
        if isinstance(source, list):
            with guard(f"'{self._where}': chat_template is no list of named templates"):
                source = {item["name"]: item["template"] for item in source}.get("default")
        if not source:
            raise UserError(
                f"the model '{self._where}' has no chat template, so chat messages cannot be given to it; write "
                "prompts as plain text, or put a chat_template.jinja into its folder"
            )
        if not isinstance(source, str):
            raise UserError(f"'{self._where}': chat_template is {shown(repr(source), 60)}; it is a text")
        return ChatTemplate(source, self._where, TODAY.isoformat())

    def _ids(self, text: str, marks: Mapping[str, str] | None = None) -> list[int]:
        """Ids of a text whose special tokens are meant; `marks` stand for special tokens that are text."""
        if not marks:
            return self._backend.encode(text)
        parts = re.split(f"({'|'.join(map(re.escape, self._by_length))})", text)
        found: list[int] = []
        for place, part in enumerate(parts):
            if place % 2:
                found.append(self.special_tokens[part])
            else:
                for mark, special in marks.items():
                    part = part.replace(mark, special)
                found += self._plain.encode(part)
        return found

    def _text_ids(self, text: str, allow: Iterable[str] = ()) -> list[int]:
        """Ids of a text from data."""
        [masked], marks = self._masked([Message(role="", content=text)], allow)
        return self._ids(masked["content"], marks)

    def _masked(
        self, given: Nested, allow: Iterable[str] = (), *, always: bool = False
    ) -> tuple[Nested, Mapping[str, str]]:
        """Messages, or what holds some, with a mark for each special token in a text, and what each mark stands for.

        Nothing is marked in nearly all data, which is then encoded in one piece.
        """
        texts = list(_texts(given))
        specials = set(self._by_length) - set(allow) if self._specials_are_text or always else set()
        inside = [special for special in self._by_length if special in specials and any(special in t for t in texts)]
        free = (chr(code) for code in range(0xE000, 0xF8FF) if not any(chr(code) in text for text in texts))
        marks = {next(free): special for special in inside}
        return _replaced(given, {special: mark for mark, special in marks.items()}), marks

    @cached_property
    def _by_length(self) -> list[str]:
        """Texts of the special tokens, the longest first, since one may begin another."""
        return sorted((text for text in self.special_tokens if text), key=lambda text: (-len(text), text))

    @cached_property
    def _plain(self) -> Backend:
        """The same tokenizer, to which special tokens are text."""
        return self._backend.plain()

    def _special(self, name: str) -> str | None:
        """Text of a special token by role."""
        value = self._settings.get(name)
        text = value.get("content") if isinstance(value, Mapping) else value
        if text is not None and not isinstance(text, str):
            raise UserError(
                f"the tokenizer settings of '{self._where}' give {shown(repr(value), 60)} as {name}; it is a text"
            )
        return text

    def _special_id(self, name: str) -> int | None:
        text = self._special(name)
        return None if text is None else self._backend.token_to_id(text)

    def _start_ids(self) -> list[int]:
        """The start token, if the post-processor puts one before texts.

        An end token that it would append is left out: a prompt is to be continued.
        """
        start = self._special_id("bos_token")
        added = self._backend.encode("", special=True)[:1]
        return [start] if start is not None and added == [start] else []


def _texts(given: Any) -> Iterator[str]:
    """Every text in nested lists and mappings, names of fields too."""
    if isinstance(given, str):
        yield given
    elif isinstance(given, Mapping):
        for name, value in given.items():
            yield from _texts(name)
            yield from _texts(value)
    elif isinstance(given, list | tuple):
        for value in given:
            yield from _texts(value)


def _replaced(given: Any, texts: Mapping[str, str]) -> Any:
    """A copy in which each of the texts is another one, wherever it is."""
    if isinstance(given, str):
        for text, other in texts.items():
            given = given.replace(text, other)
        return given
    if isinstance(given, Mapping):
        return {_replaced(name, texts): _replaced(value, texts) for name, value in given.items()}
    if isinstance(given, list | tuple):
        return type(given)(_replaced(value, texts) for value in given)
    return given


def _settings(folder: Path, name: str) -> dict[str, Any]:
    """A JSON file of a model's folder; empty where there is none."""
    return read_json(file_in(folder, name), LARGEST[""]) if (folder / name).exists() else {}
