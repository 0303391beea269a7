"""Valid files, and ways to make them invalid: byte by byte, and value by value where they hold a tree."""

import copy
import json
import random
from collections.abc import Callable
from typing import Any

ODD_TEXTS = (
    "",
    " ",
    "\x00",
    "\ud7ff",
    "{{",
    "}}",
    "%s",
    "../..",
    "/",
    "~",
    "-1",
    "1e999",
    "nan",
    "null",
    "!!x",
    "é" * 50,
)
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 7, 2**31, 2**63, 2**64 + 1, -(2**70), 10**400, 0.5, -0.0, 1e308, 1e-320,
    float("inf"), float("nan"), [], {}, [[]], [None], {"kind": "sum"}, {"": ""}, "auto", "grpo", *ODD_TEXTS,
)  # fmt: skip


def mutate_bytes(rng: random.Random, content: bytes) -> bytes:
    """One to four changes that know nothing of the content."""
    for _ in range(rng.randint(1, 4)):
        content = rng.choice(_BYTES)(rng, bytearray(content))
    return content


def _flip(rng: random.Random, content: bytearray) -> bytes:
    for _ in range(rng.randint(1, 8)):
        if content:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def _cut(rng: random.Random, content: bytearray) -> bytes:
    return bytes(content[: rng.randint(0, len(content))])


def _drop(rng: random.Random, content: bytearray) -> bytes:
    begin = rng.randint(0, len(content))
    del content[begin : begin + rng.randint(1, 40)]
    return bytes(content)


def _repeat(rng: random.Random, content: bytearray) -> bytes:
    begin = rng.randint(0, len(content))
    content[begin:begin] = content[begin : begin + rng.randint(1, 200)] * rng.randint(1, 3)
    return bytes(content)


def _insert(rng: random.Random, content: bytearray) -> bytes:
    begin = rng.randint(0, len(content))
    odd = rng.choice(
        [rng.randbytes(rng.randint(1, 12)), rng.choice(ODD_TEXTS).encode("utf-8", "surrogatepass"), b"\n\n"]
    )
    content[begin:begin] = odd
    return bytes(content)


def _number(rng: random.Random, content: bytearray) -> bytes:
    """Put an extreme number in the place of a digit."""
    digits = [place for place, byte in enumerate(content) if 48 <= byte <= 57]
    if digits:
        place = rng.choice(digits)
        content[place : place + 1] = rng.choice([b"-1", b"0", b"9" * 20, b"1e999", b"", b"x", b"0x1F", b"1_0"])
    return bytes(content)


_BYTES: tuple[Callable[[random.Random, bytearray], bytes], ...] = (_flip, _cut, _drop, _repeat, _insert, _number)


def mutate_tree(rng: random.Random, tree: Any) -> Any:
    """One to three changes of values: another one, none, or one more."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.randint(1, 3)):
        places = list(_places(tree))
        if not places:
            return rng.choice(ODD_VALUES)
        parent, key = rng.choice(places)
        match rng.randrange(6):
            case 0:
                del parent[key]
            case 1 if isinstance(parent, dict):
                parent[rng.choice(["kind", "x", "", "é", "a.b", *parent])] = parent[key]
            case 2:
                parent[key] = [parent[key]]
            case 3:
                other, name = rng.choice(places)
                parent[key] = copy.deepcopy(other[name]) if name in other or isinstance(other, list) else None
            case _:
                parent[key] = copy.deepcopy(rng.choice(ODD_VALUES))
    return tree


def _places(tree: Any) -> Any:
    """Every (container, key) of a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in list(items):
        yield tree, key
        yield from _places(value)


def mutate_json(rng: random.Random, content: bytes) -> bytes:
    """A JSON document with other values in it, or other bytes."""
    if rng.random() < 0.5:
        return mutate_bytes(rng, content)
    return json.dumps(mutate_tree(rng, json.loads(content))).encode()


def mutate_safetensors(rng: random.Random, content: bytes) -> bytes:
    """Weights with another header, most often: that is where a reader can be led astray."""
    if rng.random() < 0.2:
        return mutate_bytes(rng, content)
    size = int.from_bytes(content[:8], "little")
    header, rest = content[8 : 8 + size], content[8 + size :]
    header = mutate_json(rng, header)
    size = len(header) if rng.random() < 0.9 else rng.choice([0, 1, 2**31, 2**63, 2**64 - 1, len(header) + 100])
    return size.to_bytes(8, "little") + header + rest
