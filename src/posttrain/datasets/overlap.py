r"""Decontamination: leaves out training tasks whose prompts resemble a held-out prompt.

Prompts are compared as tokens: words, numbers and single marks, in lower case.

    n_grams        more than `share` of the held-out prompt's tokens lie in n-grams that both prompts contain; a share
                   of 0 is any common n-gram
    subsequence    the longest common subsequence has at least n tokens, and `share` of the shorter prompt's tokens

Source: 8-grams and a half of the test prompt, Tulu 3, arXiv:2411.15124, and its release (open-instruct at e6c3044a,
decontamination/search.py); any 9-gram, AceReason-Nemotron 1.1, arXiv:2506.13284; a subsequence of 13 tokens and 0.6,
Qwen2.5, arXiv:2412.15115.

Differs: the papers' tokens are those of their tokenizers. A prompt of fewer than n tokens has no n-gram and resembles
none. Tulu 3 also leaves out whole data sets in which many rows match; here the note of a run states how many did.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.datasets.keys import problem
from posttrain.types import Task

Tokens = tuple[str, ...]

_TOKEN = re.compile(r"\d+|[^\W\d_]+|[^\w\s]|_")


@frozen
class Decontamination:
    """A rule of resemblance."""

    rule: Literal["n_grams", "subsequence"] = "n_grams"
    """What two prompts must have in common."""
    n: PositiveInt = 8
    """Tokens of an n-gram, or fewest tokens of the subsequence."""
    share: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.5
    """Share of tokens: of the held-out prompt, above which it is resembled; or of the shorter prompt, from which."""

    def clean(self, tasks: Sequence[Task], held_out: Sequence[Task]) -> tuple[tuple[Task, ...], int]:
        """The tasks that resemble no held-out one, in order, and the number of the others."""
        tested = [tokens_of(task) for task in held_out]
        matches = self._by_n_grams(tested) if self.rule == "n_grams" else self._by_subsequence(tested)
        kept = tuple(task for task in tasks if not matches.like(tokens_of(task)))
        return kept, len(tasks) - len(kept)

    @property
    def description(self) -> str:
        """The rule in words."""
        if self.rule == "subsequence":
            return (
                f"whose prompts share a subsequence of {self.n} tokens, and {self.share:.0%} of the shorter one, with "
                "a held-out one"
            )
        if not self.share:
            return f"whose prompts share {self.n} consecutive tokens with a held-out one"
        return f"with {self.n}-grams that cover more than {self.share:.0%} of a held-out prompt"

    def _by_n_grams(self, tested: Sequence[Tokens]) -> "_NGrams":
        return _NGrams(self.n, self.share, tested)

    def _by_subsequence(self, tested: Sequence[Tokens]) -> "_Subsequences":
        return _Subsequences(self.n, self.share, tested)


class _NGrams:
    """An index of the n-grams of held-out prompts: for each, the prompts and places that it has."""

    def __init__(self, n: int, share: float, tested: Sequence[Tokens]) -> None:
        self.n, self.share, self.lengths = n, share, [len(tokens) for tokens in tested]
        self.places: defaultdict[Tokens, list[tuple[int, int]]] = defaultdict(list)
        for index, tokens in enumerate(tested):
            for start, gram in enumerate(_grams(tokens, n)):
                self.places[gram].append((index, start))

    def like(self, tokens: Tokens) -> bool:
        """Whether the n-grams of a prompt cover more than the share of any held-out one."""
        covered: defaultdict[int, set[int]] = defaultdict(set)
        for gram in set(_grams(tokens, self.n)):
            for index, start in self.places.get(gram, ()):
                covered[index].update(range(start, start + self.n))
        return any(len(places) > self.share * self.lengths[index] for index, places in covered.items())


class _Subsequences:
    """Held-out prompts to compare with, each with the number of each of its tokens."""

    def __init__(self, n: int, share: float, tested: Sequence[Tokens]) -> None:
        self.n, self.share = n, share
        self.tested = [(tokens, Counter(tokens)) for tokens in dict.fromkeys(tested) if len(tokens) >= n]

    def like(self, tokens: Tokens) -> bool:
        """Whether a prompt has a common subsequence of that length with any held-out one."""
        own = Counter(tokens)
        for other, counts in self.tested:
            least = max(self.n, self.share * min(len(tokens), len(other)))
            # The tokens that both have bound the subsequence, and take less time to count.
            if (own & counts).total() >= least and longest_common_subsequence(tokens, other) >= least:
                return True
        return False


def tokens_of(task: Task) -> Tokens:
    """The tokens of a task's prompt, without its system message."""
    return tuple(_TOKEN.findall(problem(task).lower()))


def longest_common_subsequence(first: Iterable[str], second: Sequence[str]) -> int:
    """Its length, by bits: one addition of numbers as long as `second` for each token of `first` (Hyyro 2004)."""
    places: defaultdict[str, int] = defaultdict(int)
    for index, token in enumerate(second):
        places[token] |= 1 << index
    every = (1 << len(second)) - 1
    left = every
    for token in first:
        both = left & places.get(token, 0)
        left = ((left + both) | (left - both)) & every
    return len(second) - left.bit_count()


def _grams(tokens: Tokens, n: int) -> Iterator[Tokens]:
    return (tokens[start : start + n] for start in range(len(tokens) - n + 1))
