"""Text and chat messages to token ids and back, from the tokenizer files of an ordinary Hugging Face folder.

Built on the ``tokenizers`` library and a sandboxed template engine; ``transformers`` is not needed.

What stands in data, in messages and in what environments and tools say is text. Special tokens come from the chat
template alone, so that a row with ``<|im_end|>`` in it can neither end a turn nor speak for another role. Data that was
made with special tokens on purpose says so (``tasks.special_tokens: allow``, see `Tokenizer.allowing_special_tokens`).
"""

import copy
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer as Backend

from posttrain.errors import UserError
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
TODAY = date(2026, 1, 1)
"""What a chat template is told that asks for today's date: always the same, since otherwise a run that is resumed on
the next day, or repeated, would have other prompts."""


_STAND_IN = "0xassistant0x"
"""Takes the place of what the model said in a rendered conversation."""


class Tokenizer:
    """Encodes and decodes; immutable."""

    end_token_ids: frozenset[int]
    """Ids that end a completion: the end tokens of the generation config, the config and the tokenizer config."""
    pad_token_id: int | None

    def __init__(
        self,
        backend: Backend,
        settings: Mapping[str, Any],
        *,
        end_token_ids: Iterable[int] = (),
        where: str = "tokenizer",
    ) -> None:
        backend.no_padding()
        backend.no_truncation()
        self._backend = backend
        self._settings = settings
        self._where = where
        self._specials_are_text = True
        self.pad_token_id = self._special_id("pad_token")
        end = self._special_id("eos_token")
        self.end_token_ids = frozenset(end_token_ids) | ({end} if end is not None else set())
        self._start = self._start_ids()

    @classmethod
    def load(cls, folder: Path, *, model: Path | None = None) -> "Tokenizer":
        """Read a folder. Raises `UserError` when there is no usable ``tokenizer.json`` in it.

        `model` is the folder of the model's configs, where it is another one.
        """
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise UserError(
                f"'{folder}' has no tokenizer.json. Tokenizers are read in that form only; make one with "
                f"AutoTokenizer.from_pretrained('{folder}').save_pretrained('{folder}') of transformers"
            )
        try:
            backend = Backend.from_file(str(path))
        except Exception as error:  # The library raises bare exceptions.
            raise UserError(f"'{path}' is not a tokenizer: {error}") from None
        settings = read_json(folder / "tokenizer_config.json")
        template = folder / "chat_template.jinja"
        if template.is_file():
            settings["chat_template"] = template.read_text(encoding="utf-8")
        ends: set[int] = set()
        for name in ("generation_config.json", "config.json"):
            given = read_json((model or folder) / name).get("eos_token_id")
            listed = given if isinstance(given, list) else [] if given is None else [given]
            if any(isinstance(end, bool) or not isinstance(end, int) or end < 0 for end in listed):
                place = (model or folder) / name
                raise UserError(f"'{place}': eos_token_id is {given!r}; it is the id of a token, or a list of ids")
            ends.update(listed)
        return cls(backend, settings, end_token_ids=ends, where=str(folder))

    @property
    def size(self) -> int:
        """Number of tokens, special ones included."""
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    @property
    def vocabulary(self) -> Mapping[str, int]:
        """The id of every token, special ones included."""
        ids: dict[str, int] = self._backend.get_vocab(with_added_tokens=True)
        return ids

    @property
    def has_chat_template(self) -> bool:
        """Whether chat messages can be given."""
        return bool(self._settings.get("chat_template"))

    @cached_property
    def special_tokens(self) -> Mapping[str, int]:
        """The id of each special token by its text."""
        added = self._backend.get_added_tokens_decoder()
        return {token.content: number for number, token in added.items() if token.special}

    def allowing_special_tokens(self) -> "Tokenizer":
        """The same tokenizer for data in which the texts of special tokens are meant as special tokens."""
        other = copy.copy(self)
        other._specials_are_text = False
        return other

    def encode(self, text: str, *, allow: Iterable[str] = ()) -> IntArray:
        """Ids of a text as it stands, after the start token where the model has one.

        Special tokens in it are text, but those that are named in `allow`.
        """
        return np.array([*self._start, *self._text_ids(text, allow)], np.int64)

    def encode_chat(
        self, messages: Sequence[Message], add_generation_prompt: bool = True, *, allow: Iterable[str] = ()
    ) -> IntArray:
        """Ids of chat messages in the model's own template, by default up to where the assistant's reply begins.

        Special tokens in the messages are text, but those that are named in `allow`.
        """
        masked, marks = self._masked(messages, allow)
        return np.array(self._ids(self.render_chat(masked, add_generation_prompt), marks), np.int64)

    def encode_prompt(self, prompt: str | Sequence[Message], *, allow: Iterable[str] = ()) -> IntArray:
        """Ids of a prompt: text as it stands, or chat messages by the template."""
        return self.encode(prompt, allow=allow) if isinstance(prompt, str) else self.encode_chat(prompt, allow=allow)

    def encode_completion(self, prompt: str | Sequence[Message], text: str) -> IntArray:
        """Ids of a completion as the model should write it after `prompt`, up to and including its end token.

        After messages it is what the chat template makes of an assistant's reply, where the template continues its own
        generation prompt; otherwise the text and the end token.
        """
        ids = self._text_ids(text)
        if not isinstance(prompt, str):
            masked, marks = self._masked([*prompt, Message(role="assistant", content=text)])
            asked = self.render_chat(masked[:-1])
            whole = self.render_chat(masked, add_generation_prompt=False)
            if whole.startswith(asked):
                ids = self._ids(whole[len(asked) :], marks)
        ends = [place for place, token in enumerate(ids) if token in self.end_token_ids]
        if ends:
            return np.array(ids[: ends[0] + 1], np.int64)
        end = self._special_id("eos_token")
        closing = [end] if end is not None else sorted(self.end_token_ids)[:1]
        return np.array([*ids, *closing], np.int64)

    def encode_open(self, text: str) -> IntArray:
        """Ids of a text that goes on from others: no start token before it, no end token after it."""
        return np.array(self._text_ids(text), np.int64)

    def encode_reply(self, prompt: str | Sequence[Message], turn: IntArray, reply: Message) -> IntArray:
        """Ids of what somebody says after the model's turn, up to where its next turn begins.

        After a text it is the reply's text as it stands. After messages it is what the chat template puts between two
        turns of the assistant; the end of the first one is left out where the ids of the `turn` have it already.
        Special tokens in the reply are always text: it comes from an environment or a tool, and is no row of data.
        """
        if isinstance(prompt, str):
            [said], marks = self._masked([reply], always=True)
            return np.array(self._ids(said["content"], marks), np.int64)
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
        """Text of token ids, without special tokens unless they are asked for. Broken UTF-8 becomes U+FFFD."""
        text: str = self._backend.decode([int(i) for i in token_ids], skip_special_tokens=not special)
        return text

    def render_chat(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """The text that the chat template makes of messages."""
        names = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
        tokens = {name: text for name in names if (text := self._special(name)) is not None}
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **tokens,
            )
        except Exception as error:  # a template is a program, and fails in any way that one can
            what = str(error) if isinstance(error, TemplateError) else f"{type(error).__name__}: {error}"
            raise UserError(f"the chat template of '{self._where}' refuses these messages: {what}") from None

    @cached_property
    def _template(self) -> Template:
        """The compiled default chat template."""
        source = self._settings.get("chat_template")
        if isinstance(source, list):
            named = {item["name"]: item["template"] for item in source}
            source = named.get("default")
        if not source:
            raise UserError(
                f"the model '{self._where}' has no chat template, so chat messages cannot be given to it; write "
                "prompts as plain text, or put a chat_template.jinja into its folder"
            )
        try:
            return _environment().from_string(source)
        except TemplateError as error:
            raise UserError(f"the chat template of '{self._where}' is broken: {error}") from None

    def _ids(self, text: str, marks: Mapping[str, str] | None = None) -> list[int]:
        """Ids of a text whose special tokens are meant; `marks` stand for special tokens that are text."""
        if not marks:
            ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
            return ids
        parts = re.split(f"({'|'.join(map(re.escape, self._by_length))})", text)
        found: list[int] = []
        for place, part in enumerate(parts):
            if place % 2:
                found.append(self.special_tokens[part])
            else:
                for mark, special in marks.items():
                    part = part.replace(mark, special)
                found += self._plain.encode(part, add_special_tokens=False).ids
        return found

    def _text_ids(self, text: str, allow: Iterable[str] = ()) -> list[int]:
        """Ids of a text from data."""
        [masked], marks = self._masked([Message(role="", content=text)], allow)
        return self._ids(masked["content"], marks)

    def _masked(
        self, messages: Sequence[Message], allow: Iterable[str] = (), *, always: bool = False
    ) -> tuple[list[Message], Mapping[str, str]]:
        """The messages with a mark for each special token in their texts, and what each mark stands for.

        Nothing is marked in nearly all data, which is then encoded in one piece.
        """
        copies = [message.copy() for message in messages]
        texts = [message["content"] for message in messages if isinstance(message["content"], str)]
        specials = set(self._by_length) - set(allow) if self._specials_are_text or always else set()
        inside = [special for special in self._by_length if special in specials and any(special in t for t in texts)]
        free = (chr(code) for code in range(0xE000, 0xF8FF) if not any(chr(code) in text for text in texts))
        marks = {next(free): special for special in inside}
        for message in copies:
            for mark, special in marks.items():
                if isinstance(message["content"], str):
                    message["content"] = message["content"].replace(special, mark)
        return copies, marks

    @cached_property
    def _by_length(self) -> list[str]:
        """Texts of the special tokens, the longest first, since one may begin another."""
        return sorted((text for text in self.special_tokens if text), key=lambda text: (-len(text), text))

    @cached_property
    def _plain(self) -> Backend:
        """The same tokenizer, to which special tokens are text."""
        plain = Backend.from_str(self._backend.to_str())
        plain.encode_special_tokens = True
        return plain

    def _special(self, name: str) -> str | None:
        """Text of a special token by role."""
        value = self._settings.get(name)
        text = value.get("content") if isinstance(value, Mapping) else value
        if text is not None and not isinstance(text, str):
            raise UserError(f"the tokenizer settings of '{self._where}' give {value!r} as {name}; it is a text")
        return text

    def _special_id(self, name: str) -> int | None:
        text = self._special(name)
        return None if text is None else self._backend.token_to_id(text)

    def _start_ids(self) -> list[int]:
        """The start token, if the post-processor puts one before texts.

        An end token that it would append is left out: a prompt is to be continued.
        """
        start = self._special_id("bos_token")
        added: list[int] = self._backend.encode("", add_special_tokens=True).ids[:1]
        return [start] if start is not None and added == [start] else []


class _Generation(Extension):
    """Accepts ``{% generation %}`` blocks, which mark the assistant's words in some templates, and renders them."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The block's own content."""
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))


def _environment() -> ImmutableSandboxedEnvironment:
    """The template engine with what chat templates of Hugging Face models rely on."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = TODAY.strftime
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the escapes that HTML would need."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    """What templates call to refuse messages."""
    raise TemplateError(message)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; empty when there is no file. Raises `UserError` for anything else."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise UserError(f"'{path}' is not readable JSON: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"'{path}' holds a {type(value).__name__}, not a JSON object")
    return value
