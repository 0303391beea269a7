"""Token ranges of the tagged parts of a completion, such as the thoughts in ``<think>...</think>``.

Positions are those of bytes, which every token has, so that no text is tokenized again. A token belongs to a part only
if it is wholly inside: one that also holds a piece of a tag belongs to the form.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

Range = tuple[int, int]


def tagged_ranges(pieces: Sequence[bytes], tag: str, *, opened: bool = False) -> tuple[Range, ...]:
    """For each part ``<tag>...</tag>`` of a text, its first token and the one after its last.

    `pieces` are the bytes of each token. With `opened`, the text is inside the tag from its start. A tag that is
    nested, or that is not closed, has no part at all. Parts without a whole token are left out.
    """
    text = b"".join(pieces)
    marks = {f"<{tag}>".encode(): True, f"</{tag}>".encode(): False}
    found = sorted((place, mark) for mark in marks for place in _places(text, mark))
    opens = [marks[mark] for _, mark in found]
    if opened:
        found, opens = [(0, b""), *found], [True, *opens]
    if opens != [True, False] * (len(opens) // 2):
        return ()
    parts = [(place + len(mark), close) for (place, mark), (close, _) in zip(found[::2], found[1::2], strict=True)]
    return _whole_tokens(pieces, parts)


def quoted_ranges(pieces: Sequence[bytes], key: str) -> tuple[Range, ...]:
    """The same for each text that is the value of a key in JSON, ``"key": "..."``, without its quotation marks."""
    value = re.compile(rb'"' + re.escape(key.encode()) + rb'"\s*+:\s*+"((?:[^"\\]|\\.)*+)"', re.DOTALL)
    return _whole_tokens(pieces, [match.span(1) for match in value.finditer(b"".join(pieces))])


def _whole_tokens(pieces: Sequence[bytes], parts: Sequence[Range]) -> tuple[Range, ...]:
    """The tokens that are wholly inside each part, given by bytes."""
    ends = list(accumulate(map(len, pieces)))
    ranges = []
    for start, close in parts:
        inside = [i for i, end in enumerate(ends) if end - len(pieces[i]) >= start and end <= close and pieces[i]]
        if inside:
            ranges.append((inside[0], inside[-1] + 1))
    return tuple(ranges)


def closing_tokens(pieces: Sequence[bytes], tag: str) -> tuple[int, ...]:
    """For each ``</tag>`` of a text, the index of the token that completes it; `pieces` are the bytes of each token."""
    mark, ends = f"</{tag}>".encode(), list(accumulate(map(len, pieces)))
    return tuple(bisect_left(ends, place + len(mark)) for place in _places(b"".join(pieces), mark))


def _places(text: bytes, mark: bytes) -> list[int]:
    """Where a mark begins in a text."""
    places, place = [], text.find(mark)
    while place >= 0:
        places.append(place)
        place = text.find(mark, place + len(mark))
    return places
