"""Prefixes of sequences whose pages of keys and values stay when the sequences have ended, so that the next turn of a
conversation computes only what is new (Zheng et al. 2024, SGLang, arXiv:2312.07104, section 3).

A tree of pages: a node is a page and the tokens in it, after the page before it; only full pages have children. What is
found is the longest prefix that is the same, token by token. Nodes that were not used for longest go first, a page
always after those that follow it.
"""

from itertools import islice
from typing import Final

import numpy as np

from posttrain.kernels import PAGE
from posttrain.types import IntArray

ROOT: Final = -1
"""In place of a page before the first ones."""
SHORTEST: Final = PAGE
"""Tokens of the shortest prefix that is looked for."""
LATEST: Final = 8
"""Of the pages that follow another, how many are compared token by token: the latest."""
Key = tuple[int, bytes]
"""The page before, and the tokens."""


class KeptPrefixes:
    """The tree; the cache counts who holds its pages."""

    def __init__(self, most: int) -> None:
        self.most = most
        """Pages at most."""
        self._pages: dict[Key, int] = {}  # the one that was used last is last, and a page is after those that follow it
        self._children: dict[int, dict[Key, None]] = {}
        self.dropped = 0
        """Pages that others have taken the place of."""

    def __len__(self) -> int:
        return len(self._pages)

    def find(self, token_ids: IntArray, most: int) -> tuple[list[int], int]:
        """Pages of the longest prefix that is kept, and its length, at most `most` tokens; of the last page maybe
        some tokens only.
        """
        path, done = self._walk(token_ids[:most])
        parent = self._pages[path[-1]] if path else ROOT
        best, page = 0, ROOT
        for key in self._latest(parent):
            alike = _alike(np.frombuffer(key[1], token_ids.dtype), token_ids[done:most])
            if alike > best:
                best, page, last = alike, self._pages[key], key
        if done + best < SHORTEST:
            return [], 0
        pages = [self._pages[key] for key in path]
        if best:
            path, pages = [*path, last], [*pages, page]
        self._touch(path)
        return pages, done + best

    def keep(self, token_ids: IntArray, pages: list[int]) -> tuple[list[int], list[int]]:
        """Keep the pages of a sequence, as far as its tokens are not there already. Gives the pages that it begins to
        hold, and those that it holds no longer.
        """
        path, done = self._walk(token_ids)
        parent = self._pages[path[-1]] if path else ROOT
        begun, ended = list[int](), list[int]()
        while done < len(token_ids):
            tokens = token_ids[done : done + PAGE].tobytes()
            if len(token_ids) - done < PAGE and any(key[1].startswith(tokens) for key in self._latest(parent)):
                break
            for other in [key for key in self._latest(parent) if tokens.startswith(key[1])]:
                ended.append(self._drop(other))  # a part of this page, without others after it
            page, key = pages[done // PAGE], (parent, tokens)
            self._pages[key] = page
            self._children.setdefault(parent, {})[key] = None
            begun.append(page)
            path.append(key)
            parent, done = page, done + PAGE
        self._touch(path)
        while len(self._pages) > self.most:
            ended.append(self._drop(next(iter(self._pages))))
            self.dropped += 1
        return begun, ended

    def clear(self) -> list[int]:
        """Keep nothing; gives the pages that were held."""
        pages = list(self._pages.values())
        self._pages, self._children = {}, {}
        return pages

    def _walk(self, token_ids: IntArray) -> tuple[list[Key], int]:
        """Full pages of the prefix, and how many tokens they hold."""
        path, parent, done, content = list[Key](), ROOT, 0, token_ids.tobytes()
        size = PAGE * token_ids.itemsize
        for begin in range(0, len(content) - size + 1, size):
            key = parent, content[begin : begin + size]
            page = self._pages.get(key)
            if page is None:
                break
            path.append(key)
            parent, done = page, done + PAGE
        return path, done

    def _latest(self, parent: int) -> list[Key]:
        return list(islice(reversed(self._children.get(parent, {})), LATEST))

    def _touch(self, path: list[Key]) -> None:
        for key in reversed(path):
            self._pages[key] = self._pages.pop(key)

    def _drop(self, key: Key) -> int:
        """Forget a page that none follows."""
        parent, _ = key
        del self._children[parent][key]
        if not self._children[parent]:
            del self._children[parent]
        return self._pages.pop(key)


def _alike(one: IntArray, other: IntArray) -> int:
    """Number of first tokens that are the same."""
    size = min(len(one), len(other))
    differ = np.flatnonzero(one[:size] != other[:size])
    return int(differ[0]) if len(differ) else size
