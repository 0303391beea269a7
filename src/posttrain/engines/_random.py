"""Counter-based random numbers, and their keys."""

import hashlib

from posttrain.statistics.philox import philox, uniform

__all__ = ["key_of", "philox", "uniform"]


def key_of(*parts: int | str) -> int:
    """A 64-bit name of `parts`: the same on every machine, and another one for ``1``, ``"1"`` and ``("1", "")``."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        text = str(part).encode()
        digest.update(f"{'s' if isinstance(part, str) else 'i'}{len(text)}:".encode() + text)
    return int.from_bytes(digest.digest(), "little")
