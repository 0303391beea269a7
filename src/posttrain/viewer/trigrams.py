"""Which files of the index can hold a match of a regular expression: those that hold its literals.

A table of the index comes with three sets of bits, one for each text that can be searched. A bit is set for the hash of
every three consecutive bytes in the texts. A file that lacks one of a literal's is not searched.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

BITS: Final = 2**17
TEXTS: Final = ("completion", "prompt", "score_explanation")
DIGEST: Final = 16
SIZE: Final = 2 * DIGEST + len(TEXTS) * BITS // 8
"""Bytes of all: the digest of the table, the bits of each text, and the digest of all before."""
PIECE: Final = 2**22
Bits = npt.NDArray[np.bool_]

_TOKEN = re.compile(
    r"""(?P<escape>\\.)|(?P<group>[()])|(?P<set>\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\])"""
    r"""|(?P<repeat>[*?]|\{[0-9,]*\})|(?P<plus>\+)|(?P<any>[.^$])|(?P<literal>.)""",
    re.DOTALL,
)
_UNKNOWN = re.compile(r"\||\(\?|\\[QExpPC0-9]|\[(?![^\]]*\])")
"""What makes literals optional, or means more than the characters after it: nothing is required then."""


def literals(pattern: str) -> list[bytes]:
    """Literals of at least three bytes that every match of a regular expression (RE2) contains, as far as is seen."""
    if _UNKNOWN.search(pattern):
        return []
    found, depth, run = [""], 0, ""
    for token in _TOKEN.finditer(pattern):
        kind, text = token.lastgroup, token[0]
        literal = text if kind == "literal" else text[1] if kind == "escape" and not text[1].isalnum() else ""
        if depth or not literal:
            run = run[:-1] if kind == "repeat" and not depth else run
            found.append(run)
            run = ""
            depth += (text == "(") - (text == ")") if kind == "group" else 0
        else:
            run += literal
    return [one for text in (*found, run) if len(one := text.encode("utf-8", "surrogatepass")) >= 3]


def hashes(text: bytes) -> npt.NDArray[np.uint32]:
    """Numbers of bits, one for every three consecutive bytes."""
    plain = np.frombuffer(text, np.uint8).astype(np.uint32)
    if len(plain) < 3:
        return np.zeros(0, np.uint32)
    three = plain[:-2] << 16 | plain[1:-1] << 8 | plain[2:]
    return ((three * np.uint32(0x9E3779B1)) >> (32 - BITS.bit_length() + 1)).astype(np.uint32)


def bits(texts: Iterable[str]) -> Bits:
    """The bits of some texts."""
    found = np.zeros(BITS, np.bool_)
    waiting: list[bytes] = []
    size = 0
    for text in texts:
        waiting.append(text.encode("utf-8", "surrogatepass"))
        size += len(waiting[-1])
        if size > PIECE:
            found[hashes(b"\n".join(waiting))] = True
            waiting, size = [], 0
    found[hashes(b"\n".join(waiting))] = True
    return found


def may_match(found: Bits, wanted: Sequence[bytes]) -> bool:
    """Whether texts with these bits can hold all the literals."""
    return all(bool(found[hashes(literal)].all()) for literal in wanted)


def packed(table: bytes, of_texts: Sequence[Bits]) -> bytes:
    """The file that goes with a table of the index."""
    content = digest(table) + b"".join(np.packbits(one).tobytes() for one in of_texts)
    return content + digest(content)


def unpacked(content: bytes) -> tuple[bytes, dict[str, Bits]] | None:
    """The digest of the table, and the bits of each text; None for a damaged file."""
    if len(content) != SIZE or digest(content[:-DIGEST]) != content[-DIGEST:]:
        return None
    rows = np.frombuffer(content[DIGEST:-DIGEST], np.uint8).reshape(len(TEXTS), -1)
    return content[:DIGEST], {name: np.unpackbits(row).astype(np.bool_) for name, row in zip(TEXTS, rows, strict=True)}


def digest(content: bytes) -> bytes:
    """A digest against damage."""
    return hashlib.blake2b(content, digest_size=DIGEST).digest()
