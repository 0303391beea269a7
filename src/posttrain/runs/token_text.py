"""The text of each token id, from a saved ``tokenizer.json``."""

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from posttrain.errors.foreign import guard, parse_json
from posttrain.runs.reading import read_own

LARGEST: Final = 128 * 2**20
"""Bytes of a tokenizer at most."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive tokens that form complete characters: usually one token."""

    start: int
    end: int
    text: str


class TokenTexts:
    """Looks up token texts in one vocabulary."""

    def __init__(self, tokenizer: Path) -> None:
        """`tokenizer` is a ``tokenizer.json``, of which its tables are read. Raises `UserError` where it is none."""
        text = read_own(tokenizer, LARGEST)
        with guard(f"{tokenizer} is not a tokenizer"):
            described = parse_json(text.decode(), constants=True)
            self._tokens = _tokens(described["model"]["vocab"])
            self._special = {int(t["id"]): str(t["content"]) for t in described.get("added_tokens") or []}
            self._byte_of = _byte_level_bytes() if _is_byte_level(described.get("decoder")) else None

    @classmethod
    def find(cls, run: Path) -> "TokenTexts | None":
        """The vocabulary of a run's own model: the final one, else that of a checkpoint; None when there is none."""
        saved = [run / "model" / "tokenizer.json", *sorted(run.glob("checkpoints/*/models/policy/tokenizer.json"))]
        found = next((path for path in saved if path.is_file()), None)
        return cls(found) if found else None

    def pieces(self, token_ids: Sequence[int]) -> list[Piece]:
        """Texts in order. Tokens with a part of a character are joined until it is complete."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        pieces: list[Piece] = []
        start = 0
        for index, token_id in enumerate(token_ids):
            last = index == len(token_ids) - 1
            text = decoder.decode(self._bytes(token_id), final=last)
            if text or last or not decoder.getstate()[0]:
                pieces.append(Piece(start, index + 1, text))
                start = index + 1
        return pieces

    def _bytes(self, token_id: int) -> bytes:
        """UTF-8 of one token, which may be a part of a character."""
        if token_id in self._special:
            return str(self._special[token_id]).encode("utf-8", "replace")
        token = self._tokens.get(token_id)
        if token is None:
            return f"<unknown {token_id}>".encode()
        if self._byte_of is not None and all(character in self._byte_of for character in token):
            return bytes(self._byte_of[character] for character in token)
        byte = re.fullmatch(r"<0x([0-9A-Fa-f]{2})>", token)
        return bytes([int(byte[1], 16)]) if byte else str(token).replace("▁", " ").encode("utf-8", "replace")


def _tokens(vocabulary: Any) -> dict[int, str]:
    """Tokens by id: of a table of ids, or, for a unigram model, of a list of tokens with their scores."""
    if isinstance(vocabulary, list):
        return {number: str(token) for number, (token, _) in enumerate(vocabulary)}
    return {int(number): str(token) for token, number in vocabulary.items()}


def _is_byte_level(decoder: Any) -> bool:
    """Whether a tokenizer's decoder turns characters into bytes, alone or as a part of a sequence."""
    if not isinstance(decoder, dict):
        return False
    return decoder.get("type") == "ByteLevel" or any(map(_is_byte_level, decoder.get("decoders", ())))


def _byte_level_bytes() -> dict[str, int]:
    """The byte of each character of a byte-level vocabulary (Radford et al. 2019, GPT-2)."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
