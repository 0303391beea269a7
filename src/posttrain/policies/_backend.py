"""The ``tokenizers`` library behind one guard: whatever it raises, a panic of its own code too, is a `UserError`.

A ``tokenizer.json`` is a program of regular expressions and tables, and fails when it is read or at any text.
"""

import base64
import contextlib
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tokenizers import Tokenizer as Library

from posttrain.errors.foreign import guard, read_text

_CHARSMAP = re.compile(r'"precompiled_charsmap"\s*:\s*"([^"]*)"')
_ONE_AT_A_TIME = threading.Lock()


class Backend:
    """A tokenizer of the library that neither pads nor truncates."""

    def __init__(self, library: Library, where: str) -> None:
        """`where` begins messages: the tokenizer, in words."""
        self._library, self._where = library, where
        self._content: str | None = None
        with guard(where):
            library.no_padding()
            library.no_truncation()

    @classmethod
    def read(cls, path: Path, most: int) -> "Backend":
        """Read a ``tokenizer.json`` of at most `most` bytes. Raises `UserError` where it is none."""
        text = read_text(path, most)
        for found in _CHARSMAP.finditer(text):
            _check_charsmap(path, found[1])
        with guard(f"'{path}' is not a tokenizer"), _panics_unseen():
            backend = cls(Library.from_str(text), f"the tokenizer '{path}'")
            backend.encode("a b 1", special=True)  # some panic at the first text, and would write to the terminal
            backend.decode([0], special=True)
        return backend

    def plain(self) -> "Backend":
        """The same tokenizer, to which special tokens are text."""
        with guard(self._where):
            library = Library.from_str(self._library.to_str())
            library.encode_special_tokens = True
        return Backend(library, self._where)

    def file_content(self) -> str:
        """The content of ``tokenizer.json``, as the library writes it."""
        if self._content is None:
            with guard(self._where):
                self._content = str(self._library.to_str())
        return self._content

    @property
    def size(self) -> int:
        """Number of tokens, special ones included."""
        return int(self._library.get_vocab_size(with_added_tokens=True))

    @property
    def vocabulary(self) -> Mapping[str, int]:
        """The id of every token, special ones included."""
        ids: dict[str, int] = self._library.get_vocab(with_added_tokens=True)
        return ids

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """The id of each special token by its text."""
        added = self._library.get_added_tokens_decoder()
        return {token.content: number for number, token in added.items() if token.special}

    def token_to_id(self, text: str) -> int | None:
        """The id of a token; None where it is none."""
        with guard(self._where):
            found: int | None = self._library.token_to_id(text)
        return found

    def id_to_token(self, token_id: int) -> str | None:
        """The name of a token in the vocabulary; None where there is none."""
        with guard(self._where):
            found: str | None = self._library.id_to_token(token_id)
        return found

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of a text; `special` adds what the post-processor puts around texts."""
        with guard(f"{self._where} cannot encode a text of {len(text):,} characters"):
            ids: list[int] = self._library.encode(text, add_special_tokens=special).ids
        return ids

    def decode(self, token_ids: Sequence[int], *, special: bool) -> str:
        """Text of ids, with special tokens or without."""
        with guard(f"{self._where} cannot decode {len(token_ids):,} tokens"):
            text: str = self._library.decode(list(token_ids), skip_special_tokens=not special)
        return text


def _check_charsmap(path: Path, encoded: str) -> None:
    """Raise `UserError` for a table of characters that lies about its size, for which the library ends the process."""
    with guard(f"'{path}' is not a tokenizer: its precompiled_charsmap is damaged"):
        content = base64.b64decode(encoded)
        size = int.from_bytes(content[:4], "little")
        if len(content) < 4 or size % 4 or size > len(content) - 4:
            raise ValueError(f"it is {len(content):,} bytes long, with a table of {size:,}")


@contextlib.contextmanager
def _panics_unseen() -> Iterator[None]:
    """Keep off the terminal what Rust writes there about a panic, which is an exception here as well."""
    with _ONE_AT_A_TIME, open(os.devnull, "wb") as nowhere:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
