"""What the cases of hostile files share."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

Make = Callable[[], Sequence[str]]
"""Changes the files of the working folder, and returns what the command line gets in addition."""
SECRET = "the-contents-of-a-private-file-5d41402a"
CONTROL = "\x1b]0;title\x07\x1b[2J"


def sparse(path: Path, size: int, start: bytes = b"") -> None:
    """Write a file of a size that holds no blocks."""
    path.write_bytes(start)
    os.truncate(path, size)


def nested(depth: int) -> str:
    """JSON of `levels` levels."""
    return '{"a":' * depth + "1" + "}" * depth
